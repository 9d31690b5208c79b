"""
Three explanations of the same doubt
====================================

The paper's CLUE, U-FIDO and a plain step against the gradient all turn an unsure row
into a surer one. On data whose true uncertainty and density are known, this example
finds that they differ in what they cost: for the same fall in true uncertainty CLUE
changes rows least, U-FIDO changes most and makes them more likely, and the gradient
step mostly leads farther away from the data.
"""

# %%
# Pieces of goods: two numbers, two categories, and whether a piece was accepted. The
# classifier is fitted once and frozen, so all three explain the same doubt. Rows are
# those that it should not decide on.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator

from sklearn_clue import (
    BayesianMLPClassifier,
    CLUEExplainer,
    LocalSensitivityExplainer,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.datasets import make_mixed_toy

toy = make_mixed_toy(800, random_state=0)
X_train, y_train, X_test = toy.data[:600], toy.target[:600], toy.data[600:]
classifier = BayesianMLPClassifier((100,), thinning=20, random_state=0)
classifier.fit(X_train, y_train)
frozen = FrozenEstimator(classifier)

# %%
# Each explainer has one parameter that trades the uncertainty explained for the size of
# the change. It may be set after `fit`, so each is fitted once and swept.

clue = CLUEExplainer(
    frozen, VAEEncoder(4, (50, 50), learning_rate=3e-3), random_state=0
)
ufido = UFIDOExplainer(
    frozen, VAEACImputer(4, (50, 50), learning_rate=3e-3), random_state=0
)
sensitivity = LocalSensitivityExplainer(frozen)
sweeps = {
    "CLUE": (clue, "distance_weight", np.geomspace(0.3, 10, 8)),
    "U-FIDO": (ufido, "mask_weight", np.geomspace(0.01, 0.5, 8)),
    "Local Sensitivity": (sensitivity, "step_size", np.geomspace(0.3, 15, 8)),
}
for explainer, _, _ in sweeps.values():
    explainer.fit(X_train)
rows = X_test[clue.rejects(X_test)]
print(f"{len(rows)} of {len(X_test)} rows are rejected")

# %%
# The judge is not the model: `toy.aleatoric` and `toy.log_density` are formulas.

results = []
for name, (explainer, parameter, values) in sweeps.items():
    for value in values:
        explanation = explainer.set_params(**{parameter: value}).explain(rows)
        found = explanation.counterfactuals
        fall = toy.aleatoric(rows) - toy.aleatoric(found)
        likelier = toy.log_density(found) - toy.log_density(rows)
        results.append(
            {
                "method": name,
                parameter: value,
                "fall": fall.mean(),
                "distance": explanation.distance.mean(),
                "log density": likelier.mean(),
                "cells changed": (found != rows).to_numpy().sum(1).mean(),
            }
        )
results = pd.DataFrame(results)

# %%
# What the same fall costs, interpolated along each sweep:

costs = ["distance", "log density", "cells changed"]
table = {
    name: [
        np.interp(0.25, *curve.sort_values("fall")[["fall", cost]].T.to_numpy())
        for cost in costs
    ]
    for name, curve in results.groupby("method", sort=False)
}
print("for a fall of 0.25 nats:")
print(pd.DataFrame(table, index=costs).T.round(2))
print("largest fall:")
print(results.groupby("method", sort=False)["fall"].max().round(2).to_string())

# %%
# And along the sweeps:

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
markers = dict(zip(sweeps, "os^", strict=True))
for name, curve in results.groupby("method", sort=False):
    for ax, cost in zip(axes, ["distance", "log density"], strict=True):
        ax.plot(curve[cost], curve["fall"], marker=markers[name], label=name)
axes[0].set(
    xlabel="mean l1 distance (standard deviations)",
    ylabel="mean fall of the true entropy (nats)",
    title="what it costs in distance",
)
axes[1].set(
    xlabel="mean change of the true log-density (nats)",
    title="what it costs in plausibility",
)
axes[1].axvline(0, color="0.6", linewidth=1)
axes[0].legend()
path = Path("out") / "compare_explainers.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Higher and farther to the left is better in the left picture, higher and farther to
# the right in the right one. Apart from the smallest changes, CLUE is on top on the
# left: it moves what matters, and categories if need be. On the right U-FIDO stands
# alone, apart from them again. It replaces cells by what the others suggest, so its
# rows become more likely than the ones they explain, and most cells are untouched. But
# a row of expected values is as far as it can go: its curve flattens. The step against
# the gradient moves both numbers of every row, wherever the data are, and is behind
# CLUE for most of its way in both pictures.
#
# Which one to use depends on the question. "Which cell is odd?" is U-FIDO's. "What
# would a sure piece like this one look like?" is CLUE's.
