"""
Attributions, pointed at uncertainty
====================================

Attributions explain a number that a model gives out, so nothing keeps one from pointing
them at the uncertainty. This example does so with Shapley values and integrated
gradients, and compares them with the contributions of CLUE. The questions differ: an
attribution says which values of a row speak for the doubt, compared with other rows,
and CLUE says what to change so that it goes. So they blame different columns in most
rows, and attributions blame many more of them.
"""

# %%
# A classifier of tumours with ten measurements, and CLUE around it.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.evaluation import attribute_uncertainty

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X = X.filter(like="mean").rename(columns=lambda name: name.removeprefix("mean "))
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=0, stratify=y
)
clue = CLUEExplainer(BayesianMLPClassifier((50,)), VAEEncoder(), random_state=0)
clue.fit(X_train, y_train)
rows = X_test[clue.rejects(X_test)][:12]  # as they come

# %%
# Shapley values compare each tumour with training rows: what would the entropy be, if
# some of its measurements were those of another? Integrated gradients follow the line
# from the mean of the training rows. The contributions of CLUE divide the fall of the
# entropy between what it changes.

explanation = clue.explain(rows)
parts = {"CLUE": explanation.contributions}
for name, method in (
    ("Shapley", "shapley"),
    ("integrated gradients", "integrated_gradients"),
):
    parts[name] = attribute_uncertainty(
        clue, rows, method=method, background=X_train
    ).to_numpy()
before, after = explanation.uncertainty_before, explanation.uncertainty_after
print(f"entropy {before.total.mean():.2f} → {after.total.mean():.2f} nats by CLUE")

# %%
# How much do they agree on which measurement matters most?

blamed = pd.DataFrame(
    {name: rows.columns[values.argmax(axis=1)] for name, values in parts.items()},
    index=rows.index,
)
print(blamed.to_string())
for name in list(parts)[1:]:
    same = (blamed[name] == blamed["CLUE"]).sum()
    print(f"{name} blames the same measurement in {same} of {len(rows)} tumours")
n_columns = {name: (np.abs(p) > 0.01).sum(axis=1).mean() for name, p in parts.items()}
for name, number in n_columns.items():
    print(f"{name}: {number:.1f} measurements with a part of 0.01 nats or more")

# %%
# A blamed column alone does not say what to do about it: with the one that is blamed
# most at the median of the training rows, few of the tumours are sure, whoever blames
# it. CLUE proposes the values itself.

for name, values in parts.items():
    changed = rows.copy()
    for row, feature in enumerate(rows.columns[values.argmax(axis=1)]):
        column = changed.columns.get_loc(feature)
        changed.iloc[row, column] = X_train[feature].median()
    asked = clue.predict_uncertainty(changed).total
    sure = (asked <= clue.threshold_).sum()
    print(f"{name}, blamed one at its median: {sure} of {len(rows)} sure")
print(f"CLUE, its own proposal: {explanation.is_sure.sum()} of {len(rows)} sure")

# %%
# All parts side by side.

figure, axes = plt.subplots(1, 3, figsize=(10, 4), sharey=True, layout="constrained")
limit = max(np.abs(values).max() for values in parts.values())
for ax, (name, values) in zip(axes, parts.items(), strict=True):
    image = ax.imshow(values.T, vmin=-limit, vmax=limit, aspect="auto", cmap="PuOr")
    ax.set(title=name, xlabel="tumour", xticks=range(len(values)))
axes[0].set_yticks(range(len(rows.columns)), rows.columns)
figure.colorbar(image, ax=axes, label="part of the uncertainty (nats)")
plt.show()

# %%
# Each column is a tumour. Attributions spread the doubt over many measurements, some of
# which lower it. CLUE names few, because whatever was not needed has been put back, and
# it says to which value. The price is its question: it tells what would settle the
# matter near this row, and not how the row differs from others.
