"""
Let the model say no
====================

A model that must not be wrong may be allowed to pass on a case. This example lets a
:class:`~sklearn_clue.BayesianMLPClassifier` reject the rows that it is least sure of.
It finds that errors gather there, and, on a toy whose true uncertainty is known, that
the classifier ranks the rows nearly as well as the truth itself would.
"""

# %%
# The toy has a formula for the probability of its target, so there is a best possible
# order in which to reject: by the true entropy.

import matplotlib.pyplot as plt
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.plotting import RejectionCurveDisplay

toy = make_mixed_toy(2400, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(
    toy.data, toy.target, test_size=0.5, random_state=0, stratify=toy.target
)
classifier = BayesianMLPClassifier((100,), thinning=20, random_state=0)
classifier.fit(X_train, y_train)

# %%
# A rejection curve shows the error among the rows that are kept.

truth = RejectionCurveDisplay.from_predictions(
    y_test,
    toy.predict_proba(X_test).argmax(1),
    toy.aleatoric(X_test),
    name="by the true entropy",
)
model = RejectionCurveDisplay.from_estimator(
    classifier, X_test, y_test, name="by the model's own", ax=truth.ax_
)
plt.show()

for share in (0.0, 0.2, 0.5):
    at = abs(model.share_rejected - share).argmin()
    print(
        f"{share:4.0%} rejected: error {model.error[at]:.3f}, "
        f"with the truth at hand {truth.error[at]:.3f}"
    )

# %%
# The curve of the model falls as that of the truth does; the dashed lines are what
# rejecting at random would give. Even the truth makes errors: some rows are a matter of
# chance.

# %%
# How many to reject is a decision, not a result: it weighs a wrong answer against no
# answer. :meth:`CLUEExplainer.rejects <sklearn_clue.CLUEExplainer.rejects>` takes it as
# a rate, and learns a threshold from the training rows, without looking at a target.
# The classifier is frozen, and after the first round the generator is as well.

is_right = classifier.predict(X_test) == y_test
generator = VAEEncoder(2, (20,), learning_rate=0.01, max_iter=60, random_state=0)
print("rate asked for   rejected   accuracy: all   kept   rejected")
for rate in (0.1, 0.2, 0.4):
    clue = CLUEExplainer(FrozenEstimator(classifier), generator, rejection_rate=rate)
    clue.fit(X_train, y_train)
    generator = FrozenEstimator(clue.generator_)
    unsure = clue.rejects(X_test)
    print(
        f"{rate:14.0%} {unsure.mean():10.0%} {is_right.mean():15.3f}"
        f" {is_right[~unsure].mean():6.3f} {is_right[unsure].mean():10.3f}"
    )
