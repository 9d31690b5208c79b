"""
A fitted LightGBM pipeline with one-hot encoding
================================================

Boosted trees behind a ColumnTransformer are what many tables end up with. Here is such
a pipeline as one finds it: fitted, of another library, on a raw table with words and
gaps. It is explained as a whole. No step has to be taken apart, nobody has to encode
anything, and the answers are rows of the raw table.
"""

# %%
# Somebody has fitted the pipeline. The table was drawn from a formula, and some lengths
# are missing.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_clue import CLUEExplainer
from sklearn_clue.datasets import make_mixed_toy

toy = make_mixed_toy(2000, random_state=0)
X, y = toy.data.copy(), toy.target.map({0: "refused", 1: "accepted"})
X.loc[np.random.default_rng(0).uniform(size=len(X)) < 0.05, "length"] = np.nan
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=400, random_state=0, stratify=y
)
prepare = make_column_transformer(
    (SimpleImputer(), ["length", "weight"]),
    (OneHotEncoder(), ["material", "finish"]),
)
boosting = LGBMClassifier(
    n_estimators=60, min_child_samples=60, random_state=0, n_jobs=1, verbose=-1
)
model = make_pipeline(prepare, boosting).fit(X_train, y_train)
print(f"accuracy on new pieces: {model.score(X_test, y_test):.2f}")

# %%
# The pipeline is frozen, so that `fit` does not fit it again. A single classifier knows
# noise only: what it does not know is not in its probabilities. So the epistemic part
# is zero.
#
# A threshold that is taken from training rows would be too low for a model that knows
# them by heart. `fit` therefore fits copies of the pipeline to folds, and a fifth of
# *new* rows is rejected.

clue = CLUEExplainer(FrozenEstimator(model), target_uncertainty=0.5)
clue.fit(X_train, y_train)
unsure = clue.rejects(X_test)
parts = clue.predict_uncertainty(X_test)
is_wrong = clue.predict(X_test) != y_test
print(f"rejected: {unsure.mean():.0%} of the new pieces")
print(f"epistemic part: {parts.epistemic.max():.1f} nats at most")
print(f"errors: {is_wrong[unsure].mean():.0%} among them, ", end="")
print(f"{is_wrong[~unsure].mean():.0%} among the others")

# %%
# What is the smallest change after which the pipeline would be right four times out of
# five by its own account, 0.50 nats? The pipeline is asked about raw rows, a few dozen
# times per piece, and never for a gradient.

explanation = clue.explain(X_test[unsure])
print(explanation[:4].summary())

# %%
# Over all of them:

print(f"sure: {explanation.is_sure.sum()} of {len(explanation)}")
print(f"columns changed: {np.mean(explanation.n_changed):.1f} on average")
print(f"judgements of a row: {np.mean(explanation.n_iter):.0f} per piece")

# %%
# Gaps stay gaps: a piece without a length is explained by the other columns, unless
# `fill_missing=True` allows to fill it.

has_gap = explanation.X["length"].isna()
still = explanation.counterfactuals["length"].isna()
print(f"pieces without a length: {has_gap.sum()}, and {still.sum()} after the change")

# %%
# What drives the doubt, over all rejected pieces:

drivers = explanation.plot()
path = Path("out") / "lightgbm.png"
path.parent.mkdir(exist_ok=True)
drivers.figure_.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# XGBoost, CatBoost and scikit-learn's own boosting go the same way. For a boosted
# regressor, see :ref:`sphx_glr_auto_examples_quickstart_plot_any_regressor.py`.
