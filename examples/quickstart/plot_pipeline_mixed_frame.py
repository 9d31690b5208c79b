"""
A mixed table in a Pipeline, explained in its own units
=======================================================

Tables have numbers, words and gaps, and models sit at the end of a Pipeline. This
example puts :class:`~sklearn_clue.CLUEExplainer` around such a Pipeline, and finds that
the explanations come back as rows of the raw table, in centimetres, kilograms and names
of materials. The toy behind the table has a formula, so it can be checked whether the
changes would make these rows easier to judge in truth, and not in the eyes of the model
only.
"""

# %%
# Pieces of goods are accepted or not. A piece of glass is hard to judge whatever its
# size; a piece of wood is easy unless it is near the boundary. Some weights were never
# noted.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import sklearn_clue.pipeline
from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.datasets import make_mixed_toy

toy = make_mixed_toy(1500, random_state=0)
X, y = toy.data.copy(), toy.target.map({0: "refused", 1: "accepted"})
is_unknown = np.random.default_rng(0).uniform(size=len(X)) < 0.05
X.loc[is_unknown, "weight"] = np.nan
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=300, random_state=0, stratify=y
)
print(X_train.head(4).to_string())

# %%
# scikit-learn's imputer fills the gaps. There is no encoder for the materials: the
# classifier has one of its own, as long as the frame stays a frame.

fill = make_column_transformer(
    (SimpleImputer(), ["length", "weight"]),
    remainder="passthrough",
    verbose_feature_names_out=False,
).set_output(transform="pandas")
clue = CLUEExplainer(
    make_pipeline(fill, BayesianMLPClassifier((100,), thinning=20)),
    VAEEncoder(4, (100, 100), learning_rate=3e-3),
    random_state=0,
)
clue.fit(X_train, y_train)
unsure = clue.rejects(X_test)
print(f"accuracy: {np.mean(clue.predict(X_test) == y_test):.2f}")
print(f"rejected: {unsure.sum()} of {len(X_test)} pieces")
print(X_test.loc[unsure, "material"].value_counts().to_string())

# %%
# The counterfactuals are a frame like the one that went in: same columns, same units,
# same categories, same index. Here are the first four as they come.

explanation = clue.explain(X_test[unsure])
print(explanation[:4].summary())
print()
print(explanation.counterfactuals[:4].to_string())
print()
print("dtypes before:", *X.dtypes)
print("and after:    ", *explanation.counterfactuals.dtypes)
print(f"{explanation.is_sure.sum()} of {len(explanation)} would be sure")

# %%
# The truth is known for any row of the toy, so ask it as well. Pieces without a weight
# are left out, as the formula needs one.

is_complete = explanation.X["weight"].notna().to_numpy()
before, after = explanation.X[is_complete], explanation.counterfactuals[is_complete]
model_before = explanation.uncertainty_before.total[is_complete].mean()
model_after = explanation.uncertainty_after.total[is_complete].mean()
true_before, true_after = toy.aleatoric(before).mean(), toy.aleatoric(after).mean()
print(f"entropy, says the model: {model_before:.2f} → {model_after:.2f} nats")
print(f"entropy, in truth:       {true_before:.2f} → {true_after:.2f} nats")

changed = explanation.changes.query("highlighted")
share = changed["feature"].value_counts() / len(explanation)
print("share of the pieces in which a column changes:")
print(share.round(2).to_string())

display = explanation[:2].plot()
plt.show()

# %%
# Each panel is one piece. Bars show how far a number moves among the training rows, in
# percentile points. Where a category changes, its line says what it was and became.

# %%
# Explainers may also be the last step. Then
# :func:`sklearn_clue.pipeline.make_pipeline` builds a Pipeline that explains and
# rejects, and the explanation speaks of what the last step is given: here of the filled
# table, in which no weight is missing. Both parts are fitted by now, so they are frozen
# and fitted no more.

inside = sklearn_clue.pipeline.make_pipeline(
    fill,
    CLUEExplainer(
        FrozenEstimator(clue.estimator_[-1]),
        FrozenEstimator(clue.generator_),
        random_state=0,
    ),
)
inside.fit(X_train, y_train)
again = inside.explain(X_test[unsure])
for name, rows in {"around the Pipeline": explanation, "inside it": again}.items():
    n_gaps = rows.X["weight"].isna().sum()
    print(f"{name}: {n_gaps} of {len(rows)} rows without a weight")
same = np.isclose(explanation.uncertainty_before.total, again.uncertainty_before.total)
print(f"rows with the same uncertainty: {same.sum()} of {len(same)}")
