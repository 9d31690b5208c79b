"""
Why is the model unsure? CLUE in one minute
===========================================

A model that says "I don't know" owes its user a reason. This example fits a Bayesian
classifier to measurements of tumours, lets it reject those that it is unsure about,
and finds that a few measurements are behind most of the doubt: with other values there,
the model would decide on four out of five of them.
"""

# %%
# A raw DataFrame goes in. There is no scaler and no encoder; networks smaller than the
# default, and the longer chains that these need, make it a matter of seconds.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X, y = X.filter(like="mean"), y.map({0: "malignant", 1: "benign"})
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=0, stratify=y
)
clue = CLUEExplainer(
    BayesianMLPClassifier(hidden_layer_sizes=(200,), thinning=40),
    VAEEncoder(hidden_layer_sizes=(100, 100)),
    distance_weight=2.0,
    random_state=0,
)
clue.fit(X_train, y_train)

# %%
# The explainer predicts like the classifier inside it, and says which rows it had
# better not decide on. Most errors are among them.

unsure = clue.rejects(X_test)
is_wrong = clue.predict(X_test) != y_test
print(f"rejected: {unsure.sum()} of {len(X_test)} tumours")
print(f"errors: {is_wrong[unsure].sum()} among them, {is_wrong[~unsure].sum()} others")

# %%
# Explain them. A counterfactual is a tumour that looks like those in the data, differs
# little from the one in question, and leaves the model sure.

explanation = clue.explain(X_test[unsure])
before, rebuilt, after = (
    getattr(explanation, f"uncertainty_{when}").total
    for when in ("before", "reconstructed", "after")
)
print(f"mean entropy: {before.mean():.2f} → {after.mean():.2f} nats")
print(f"of the plain auto-encoding: {rebuilt.mean():.2f} nats")
print(f"no longer rejected: {(after <= clue.threshold_).sum()} of {len(explanation)}")
n_changes = explanation.changes.groupby("row")["highlighted"].sum()
print(f"measurements that moved noticeably: {n_changes.median():.0f} at the median")

# %%
# In words, for the three tumours about which most was explained:

order = np.argsort(-explanation.uncertainty_explained)
best = explanation[order[:3]]
print(best.summary())

# %%
# And in a picture. In a notebook, the explanation itself is shown as a table.

display = best.plot()
path = Path("out") / "one_minute_clue.png"
path.parent.mkdir(exist_ok=True)
display.figure_.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Bars show how far each measurement moves, in percentiles of the training data; the
# marked ones move by 15 or more. They are not advice and not causes: they say where
# this tumour lies between the kinds that the model knows.
