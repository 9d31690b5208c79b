"""
What a change may cost: choosing λ
==================================

The search of the paper weighs the uncertainty that is left against the distance that it
takes. The weight, λ in the paper and ``distance_weight`` here, decides whether
explanations are timid or bold. (The default, None, asks for the nearest sure row.) This
example chooses it in three ways, none of which needs more than a line: balance by
:class:`~sklearn.model_selection.GridSearchCV`, the knee point by the same class, and
:class:`~sklearn_clue.CLUEExplainerCV`. It finds that the third gives the answer of the
first from one search along all weights, and that the knee lies at a larger weight: less
of the doubt is explained, by smaller changes.
"""

# %%
# A table of two numbers and two categories, and a plain neural network that is fitted
# once and frozen: any model whose uncertainty has a gradient will do. ``memory`` keeps
# fitted parts on disk, so a grid over the weight fits the generator once per fold and
# not once per weight.

import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from sklearn_clue import CLUEExplainer, CLUEExplainerCV, TabularEncoder, VAEEncoder
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.evaluation import EXPLANATION_SCORERS, knee_point
from sklearn_clue.plotting import TradeOffDisplay

X, y = make_mixed_toy(1500, random_state=0, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=500, random_state=0, stratify=y
)
weights = np.geomspace(0.1, 30, 6).round(1)
classifier = make_pipeline(TabularEncoder(), MLPClassifier(alpha=0.1, random_state=0))
classifier.fit(X_train, y_train)
parts = {
    "estimator": FrozenEstimator(classifier),
    "generator": VAEEncoder(3, (50,), learning_rate=5e-3, max_iter=150, random_state=0),
}
cache = tempfile.TemporaryDirectory()
seconds = {}

# %%
# The first way is the default score: the paper's rule that both terms of the objective
# be of similar size.

start = time.process_time()
balance = GridSearchCV(
    CLUEExplainer(**parts, memory=cache.name, random_state=0),
    {"distance_weight": weights},
    cv=2,
).fit(X_train, y_train)
seconds["GridSearchCV, balance"] = time.process_time() - start

# %%
# The second looks at what explanations do: how much uncertainty they take away, and how
# far they go for it. The knee is the point nearest to all of the one at none of the
# other.

start = time.process_time()
knee = GridSearchCV(
    CLUEExplainer(**parts, memory=cache.name, random_state=0),
    {"distance_weight": weights},
    scoring=EXPLANATION_SCORERS,
    refit=knee_point,
    cv=2,
).fit(X_train, y_train)
seconds["GridSearchCV, knee (from the cache)"] = time.process_time() - start

# %%
# The third is made for this, as ``LassoCV`` is: each fold is fitted once, and all
# weights are searched along one path.

start = time.process_time()
clue = CLUEExplainerCV(
    **parts, distance_weights=weights, cv=2, memory=cache.name, random_state=0
)
clue.fit(X_train, y_train)
seconds["CLUEExplainerCV (from the cache)"] = time.process_time() - start
cache.cleanup()

chosen = {
    "GridSearchCV, balance": balance.best_params_["distance_weight"],
    "GridSearchCV, knee (from the cache)": knee.best_params_["distance_weight"],
    "CLUEExplainerCV (from the cache)": clue.distance_weight_,
}
for name, weight in chosen.items():
    print(f"{name:36} λ = {weight:5.2f}   {seconds[name]:4.1f} s")

# %%
# Both rules in pictures. The trade-off is that of the pieces which were not used to
# choose, all weights in one search by
# :meth:`~sklearn_clue.CLUEExplainer.explain_path`.

unsure = clue.rejects(X_test)
explanations = clue.explain_path(X_test[unsure], weights)
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
for fold, scores in enumerate(clue.cv_results_["split_scores"].T):
    label = "one fold" if fold == 0 else None
    axes[0].semilogx(weights, scores, color="0.75", label=label)
axes[0].semilogx(weights, clue.cv_results_["mean_score"], "o-", label="mean")
axes[0].axvline(clue.distance_weight_, color="black", linestyle=":", label="chosen")
axes[0].set(
    xlabel="distance weight λ",
    ylabel="balance of the two terms (0 is even)",
)
axes[0].set_title("The default score", loc="left")
axes[0].legend()
axes[0].spines[["top", "right"]].set_visible(False)
TradeOffDisplay.from_explanations(explanations, ax=axes[1])
axes[1].set_title(f"The trade-off, on {unsure.sum()} rejected pieces", loc="left")
plt.show()

# %%
# Left: small weights leave distance without a say, large ones leave nothing but
# distance; the score is largest where both count. Right: the curve rises steeply at
# first, so that little distance buys much certainty, and flattens. The ring is the
# knee.

index = {weight: position for position, weight in enumerate(weights)}
for name, weight in chosen.items():
    explanation = explanations[index[weight]]
    print(
        f"{name:36} entropy {explanation.uncertainty_before.total.mean():.2f} → "
        f"{explanation.uncertainty_after.total.mean():.2f} nats at a distance of "
        f"{explanation.distance.mean():.1f}"
    )
