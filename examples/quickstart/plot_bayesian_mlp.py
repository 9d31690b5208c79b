"""
A classifier that knows what it does not know
=============================================

An ordinary classifier answers every question with the same face. This example fits a
:class:`~sklearn_clue.BayesianMLPClassifier` to the breast cancer data, and finds that
most of its errors are among the few tumours it calls uncertain itself. Then it shows
the two reasons to be unsure, on a toy where both can be seen.
"""

# %%
# The data come as a DataFrame, and go in as one: no scaler, no encoder, no settings.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier
from sklearn_clue.plotting import RejectionCurveDisplay, UncertaintyMapDisplay

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
y = y.map({0: "malignant", 1: "benign"})
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, random_state=0, stratify=y
)
classifier = BayesianMLPClassifier(random_state=0).fit(X_train, y_train)

# %%
# Reject the tenth of the tumours with the largest uncertainty, and look at the errors.

is_wrong = classifier.predict(X_test) != y_test
uncertainty = classifier.predict_uncertainty(X_test)
is_unsure = uncertainty.total > np.quantile(uncertainty.total, 0.9)
print(f"errors on all {len(y_test)} tumours: {is_wrong.sum()}")
print(f"errors on the {is_unsure.sum()} most uncertain: {is_wrong[is_unsure].sum()}")
print(f"errors on the {(~is_unsure).sum()} others: {is_wrong[~is_unsure].sum()}")

# %%
# Chains of samples are only worth something if they agree. The diagnostics say so:
# R-hat near 1, a kinetic temperature of 1, and no epoch that had to be taken back.

diagnostics = classifier.diagnostics_
print(f"R-hat at the median row: {np.median(diagnostics.r_hat):.3f}")
print(f"temperature per chain: {diagnostics.temperature.round(3)}")
print(f"rejected epochs per chain: {diagnostics.n_rejected_epochs}")

# %%
# There are two reasons to be unsure. *Aleatoric* uncertainty is where the classes
# overlap: more data would not help. *Epistemic* uncertainty is where there are no
# data, so the sampled networks disagree.

X_moons, y_moons = make_moons(300, noise=0.25, random_state=0)
moons = BayesianMLPClassifier((100, 100), random_state=0).fit(X_moons, y_moons)

figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
RejectionCurveDisplay.from_estimator(classifier, X_test, y_test, ax=axes[0])
axes[0].set_title("Breast cancer: say “I don't know”")
UncertaintyMapDisplay.from_estimator(moons, X_moons, y_moons, margin=0.6, ax=axes[1:])

path = Path("out") / "bayesian_mlp.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Left: the more of the uncertain tumours go to a doctor, the fewer errors are left.
# Right: between the moons the classes overlap and the uncertainty is aleatoric; away
# from all points the sampled networks disagree about where the boundary runs, and it
# is epistemic.
