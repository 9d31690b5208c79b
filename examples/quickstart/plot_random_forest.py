"""
Why is my random forest unsure?
===============================

Many tables are answered by a forest behind a one-hot encoder. This example takes such
a pipeline, already fitted, and a raw table of numbers and words, and asks about each
row that the forest should not decide on: what is the smallest change after which it
would be sure? The table was drawn from a formula, and that shows that the changed rows
are easier to judge in truth, and not in the eyes of the forest only.
"""

# %%
# Pieces of goods are accepted or refused. The pipeline is scikit-learn's own, and
# nothing in it knows that it will be explained.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_clue import CLUEExplainer
from sklearn_clue.datasets import make_mixed_toy

toy = make_mixed_toy(1500, random_state=0)
X, y = toy.data, toy.target.map({0: "refused", 1: "accepted"})
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=300, random_state=0, stratify=y
)
encode = make_column_transformer(
    (OneHotEncoder(), ["material", "finish"]), remainder="passthrough"
)
forest = make_pipeline(encode, RandomForestClassifier(random_state=0))
forest.fit(X_train, y_train)
print(X_train.head(3).to_string())

# %%
# The whole pipeline goes in, frozen because it is fitted already. `fit` leaves it as it
# is: it reads the table, and judges each tree by rows that it was not grown on. Rows
# with most uncertainty are rejected, a fifth of new ones but for chance.
#
# What counts as sure is a decision. On a table as noisy as this one the default, "as
# sure as about four out of five training rows", would be lax: entropies up to 0.68
# nats, while a coin has 0.69. An answer that is right four times out of five has 0.50.

clue = CLUEExplainer(FrozenEstimator(forest), target_uncertainty=0.5)
clue.fit(X_train, y_train)
unsure = clue.rejects(X_test)
is_wrong = clue.predict(X_test) != y_test
print(f"rejected: {unsure.sum()} of {len(X_test)} pieces")
print(f"errors: {is_wrong[unsure].mean():.0%} among them, ", end="")
print(f"{is_wrong[~unsure].mean():.0%} among the others")

# %%
# Forests know two reasons to be unsure: rows in a leaf disagree (*aleatoric*), or trees
# do, or the row lies where no leaf has seen any (*epistemic*). Here it is the first.

parts = clue.predict_uncertainty(X_test[unsure])
print(f"aleatoric: {parts.aleatoric.mean():.2f} nats at the rejected pieces")
print(f"epistemic: {parts.epistemic.mean():.2f} nats")

# %%
# Explain all of them, and read the first five as they come. Answers also have to be
# believable: as near to training rows as the piece itself is, or as half of the
# training rows are to each other.

explanation = clue.explain(X_test[unsure])
print(explanation[:5].summary())

# %%
# Over all rejected pieces:

print(f"sure: {explanation.is_sure.sum()} of {len(explanation)}")
print(f"and as believable as asked: {explanation.is_plausible.sum()}")
print(f"columns changed: {np.mean(explanation.n_changed):.1f} on average")
is_same = explanation.prediction_before == explanation.prediction_after
print(f"same class as before: {is_same.sum()}")
print(explanation.drivers()[["feature", "n_changed", "share", "direction"]])

# %%
# The formula of the toy tells how hard a piece is to judge in truth.

true_before = toy.aleatoric(explanation.X).mean()
true_after = toy.aleatoric(explanation.counterfactuals).mean()
before = explanation.uncertainty_before.total.mean()
after = explanation.uncertainty_after.total.mean()
print(f"entropy, says the forest: {before:.2f} → {after:.2f} nats")
print(f"entropy, in truth:        {true_before:.2f} → {true_after:.2f} nats")

# %%
# One piece as a picture, and what drives the doubt in all of them.

display = explanation[:1].plot()
drivers = explanation.plot()
path = Path("out") / "random_forest.png"
path.parent.mkdir(exist_ok=True)
drivers.figure_.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Above, the first piece: bars show how far its numbers move, in percentile points of
# the training rows, and the hatched band is a category, which has no length. Below, all
# rejected pieces: most of the fall comes from the length and from the material, which
# becomes wood. The finish hardly ever changes. That agrees with the formula: its
# probabilities are steep for wood and nearly flat for glass, and the finish only shifts
# them.
#
# A changed row is not advice. Nobody can make a piece of glass a piece of wood; the
# answer says that the forest knows what to do with wood of that size. Where such an
# answer is of no use, `immutable_features=["material"]` forbids it.
