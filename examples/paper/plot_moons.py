"""
Two reasons to be unsure, on two moons
======================================

Figure 2 of the paper shows a Bayesian network on two moons, and two kinds of doubt.
This example draws it again with
:class:`~sklearn_clue.plotting.UncertaintyMapDisplay`. It finds aleatoric uncertainty
where the classes overlap, among the points, and epistemic uncertainty away from them;
and that five times the data shrink the second, and not the first.
"""

# %%
# A network a little smaller than the default, and two hundred points.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from sklearn_clue import BayesianMLPClassifier
from sklearn_clue.plotting import UncertaintyMapDisplay

NOISE = 0.3
X, y = make_moons(200, noise=NOISE, random_state=0)
few = BayesianMLPClassifier((100, 100), random_state=0).fit(X, y)
display = UncertaintyMapDisplay.from_estimator(
    few, X, y, margin=0.6, grid_resolution=40
)
plt.show()

# %%
# From left to right: the probability of the second moon, the uncertainty that more data
# could not lower, and the uncertainty that they could.

# %%
# Is it so? Fit to five times the data, and compare in two places: where points are, and
# on a wide circle around all of them.

X_many, y_many = make_moons(1000, noise=NOISE, random_state=1)
many = BayesianMLPClassifier((100, 100), thinning=12, random_state=0).fit(
    X_many, y_many
)

angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
circle = X.mean(0) + 3.5 * np.column_stack([np.cos(angle), np.sin(angle)])
among = make_moons(500, noise=NOISE, random_state=2)[0]
print(f"{'mean, nats':24}{'aleatoric':>10}{'epistemic':>10}")
for name, model in {"200 points": few, "1000 points": many}.items():
    for place, rows in {"among them": among, "far away": circle}.items():
        parts = model.predict_uncertainty(rows)
        print(
            f"{name + ', ' + place:24}"
            f"{parts.aleatoric.mean():10.3f}{parts.epistemic.mean():10.3f}"
        )

# %%
# Drawn side by side, on one scale of colours.

figure, axes = plt.subplots(
    2, 2, figsize=(8.4, 6.6), sharex=True, sharey=True, layout="constrained"
)
for line, (name, model) in zip(
    axes, {"200 points": few, "1000 points": many}.items(), strict=True
):
    UncertaintyMapDisplay.from_estimator(
        model,
        X,
        responses=("aleatoric", "epistemic"),
        margin=0.6,
        grid_resolution=40,
        ax=line,
    )
    line[0].set_ylabel(f"{name}: x1")
for ax in axes[0]:
    ax.set_xlabel("")
top = {
    column: max(line[column].collections[0].get_array().max() for line in axes)
    for column in (0, 1)
}
for line in axes:
    for column, ax in enumerate(line):
        ax.collections[0].set_clim(0, top[column])
plt.show()

# %%
# The band of aleatoric uncertainty gets sharper and stays where the classes overlap;
# the epistemic uncertainty draws back from the points. All panels show the same two
# hundred of them.
