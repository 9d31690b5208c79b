"""
SHAP and LIME, pointed at uncertainty
=====================================

Attributions explain a number that a model gives out, so nothing keeps one from pointing
them at the uncertainty. This example does so with SHAP and LIME and compares them with
CLUE. It finds that the ranks they give to features have nothing to do with CLUE's, and
that LIME says nearly the same of every row. The questions differ: an attribution says
which values of a row speak for the doubt, compared with other rows, and CLUE says what
to change so that it goes.

SHAP and LIME are not needed by sklearn_clue. Install them with
``pip install shap lime``; without them this example says so and ends.
"""

# %%
# Look for the two packages first.

from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder

missing = [name for name in ("shap", "lime") if find_spec(name) is None]
if missing:
    print(f"not installed: {', '.join(missing)}. To run this example:")
    print(f"    pip install {' '.join(missing)}")

# %%
# A classifier of tumours, and CLUE around it.


def fit_clue():
    X, y = load_breast_cancer(as_frame=True, return_X_y=True)
    X = X.filter(like="mean").rename(columns=lambda name: name.removeprefix("mean "))
    X_train, X_test, y_train, _ = train_test_split(
        X, y, test_size=0.3, random_state=0, stratify=y
    )
    clue = CLUEExplainer(
        BayesianMLPClassifier((50,)), VAEEncoder(), distance_weight=2.0, random_state=0
    )
    return clue.fit(X_train, y_train), X_train, X_test


# %%
# What SHAP and LIME explain is a function from an array to one number per row. Any
# uncertainty is one: no class has to be chosen, which both would want otherwise.


def attribute(clue, X_train, rows):
    import shap
    from lime.lime_tabular import LimeTabularExplainer

    def entropy(values):
        frame = pd.DataFrame(values, columns=rows.columns)
        return clue.predict_uncertainty(frame).total

    # SHAP compares with reference rows; a few typical ones keep it quick.
    reference = shap.kmeans(X_train, 10)
    kernel = shap.KernelExplainer(entropy, reference)
    by_shap = kernel.shap_values(rows.to_numpy(), nsamples=200, silent=True)

    lime = LimeTabularExplainer(
        X_train.to_numpy(),
        mode="regression",
        feature_names=list(rows.columns),
        discretize_continuous=False,
        random_state=0,
    )
    by_lime = np.zeros(rows.shape)
    for weights, row in zip(by_lime, rows.to_numpy(), strict=True):
        told = lime.explain_instance(
            row, entropy, num_features=rows.shape[1], num_samples=1000
        )
        for position, weight in next(iter(told.as_map().values())):
            weights[position] = weight
    return by_shap, by_lime


# %%
# Ten tumours, those that the classifier is least sure about. Each method gives a number
# per tumour and measurement; to compare them, the absolute values of each tumour are
# divided by their sum.


def compare():
    clue, X_train, X_test = fit_clue()
    worst = np.argsort(-clue.predict_uncertainty(X_test).total)[:10]
    rows = X_test.iloc[worst]
    explanation = clue.explain(rows)
    by_shap, by_lime = attribute(clue, X_train, rows)
    moved = explanation.encoded_counterfactuals - explanation.encoded
    shares = {
        name: np.abs(values) / np.abs(values).sum(1, keepdims=True)
        for name, values in (("CLUE", moved), ("SHAP", by_shap), ("LIME", by_lime))
    }
    for name in ("SHAP", "LIME"):
        ranks = [
            np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1]
            for a, b in zip(shares["CLUE"], shares[name], strict=True)
        ]
        print(f"rank correlation of {name} with CLUE: {np.mean(ranks):.2f} on average")
    for name, values in shares.items():
        alike = np.corrcoef(values)[np.triu_indices(len(values), 1)].mean()
        print(f"correlation between two tumours, by {name}: {alike:.2f} on average")
    before, after = explanation.uncertainty_before.total, explanation.uncertainty_after
    print(f"entropy: {before.mean():.2f} → {after.total.mean():.2f} nats by CLUE")
    return shares, list(rows.columns)


def draw(shares, names):
    figure, axes = plt.subplots(
        1, 3, figsize=(10, 4), sharey=True, layout="constrained"
    )
    for ax, (name, values) in zip(axes, shares.items(), strict=True):
        image = ax.imshow(values.T, vmin=0, vmax=0.5, aspect="auto", cmap="viridis")
        ax.set(title=name, xlabel="tumour", xticks=range(len(values)))
    axes[0].set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=axes, label="share of the row's blame")
    path = Path("out") / "attributions.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


if not missing:
    draw(*compare())
    plt.show()

# %%
# Each column is a tumour. LIME fits one linear model around each, as wide as the data,
# and these tumours are near to each other: the columns look alike. SHAP blames size and
# concave points, where these tumours differ from the reference rows. CLUE moves other
# measurements in each of them, and what it moves them to makes the classifier surer.
# Neither attribution says what value would be better.
#
# The paper (Appendix F) points both at class probabilities of digits. An uncertainty
# needs no choice of a class, but the limit it names stays: attributions judge the
# values that are there, and cannot propose others.
