"""
Why is the model unsure? CLUE in one minute
===========================================

A model that says "I don't know" owes its user a reason. This example fits the default
explainer to measurements of tumours, lets it reject those that it is unsure about, and
asks for the smallest change after which it would be sure. It finds one for each of
them, mostly in two measurements: concave points and texture.
"""

# %%
# A raw DataFrame goes in. There is no scaler and no encoder, and the model is the
# default: a Bayesian neural network, sampled.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_clue import CLUEExplainer

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X, y = X.filter(like="mean"), y.map({0: "malignant", 1: "benign"})
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=0, stratify=y
)
clue = CLUEExplainer(random_state=0).fit(X_train, y_train)

# %%
# The explainer predicts like the classifier inside it, and says which rows it had
# better not decide on. Most errors are among them.

unsure = clue.rejects(X_test)
is_wrong = clue.predict(X_test) != y_test
print(f"rejected: {unsure.sum()} of {len(X_test)} tumours")
print(f"errors: {is_wrong[unsure].sum()} among them, {is_wrong[~unsure].sum()} others")

# %%
# Explain them: the nearest row that the model is sure about, and that is as near to
# training rows as the tumour itself is. The first four, as they come:

explanation = clue.explain(X_test[unsure])
print(explanation[:4].summary())

# %%
# Are these typical? Over all rejected tumours:

print(f"sure: {explanation.is_sure.sum()} of {len(explanation)}")
print(f"as believable as asked: {explanation.is_plausible.sum()}")
n_changed = np.bincount(explanation.n_changed, minlength=4)
print(f"with one change: {n_changed[1]}, two: {n_changed[2]}, more: ", end="")
print(n_changed[3:].sum())
is_same = explanation.prediction_before == explanation.prediction_after
print(f"sure of the class that was predicted before: {is_same.sum()}")

# %%
# Not every change matters alike. Some are there to keep the row believable: if the
# radius moves, so must the area. Contributions tell how much each change lowers the
# uncertainty, and `drivers` sums them up over all rows.

drivers = explanation.drivers()
print(drivers[["feature", "n_changed", "share", "direction"]].to_string())

# %%
# In pictures: first four tumours, one by one, and then all of them.

display = explanation[:4].plot()
together = explanation.plot()
path = Path("out") / "one_minute_clue.png"
path.parent.mkdir(exist_ok=True)
display.figure_.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Bars of the first picture show how far each measurement moves, in percentile points of
# the training data. In the second each point is one tumour, and its place what the
# change brings. None of it is advice, and none a cause: it says where these tumours lie
# between the kinds that the model knows.
