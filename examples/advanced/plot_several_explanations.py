"""
One doubt, several ways out
===========================

A digit between a 4 and a 9 can be made a clear 4 or a clear 9, and one explanation
shows one of the two. This example asks for many with ``n_explanations``, and finds that
the digits that a classifier is least sure of have clear neighbours of more than one
class: the doubt is a choice, and the candidates are its options.
"""

# %%
# The classifier sees pixels between 0 and 1 as they are.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, random_state=0, stratify=y
)
classifier = BayesianMLPClassifier((100,), encoder="passthrough", random_state=0)
classifier.fit(X_train, y_train)

# %%
# The first search starts at the digit itself. Each further one starts from a place
# nearby, with noise of ``init_noise`` in the latent space, and may end elsewhere;
# results that are nearly the same are merged.

clue = CLUEExplainer(
    FrozenEstimator(classifier),
    VAEEncoder(8, image_shape=(8, 8), learning_rate=3e-3, max_iter=60, random_state=0),
    distance_weight=10.0,
    n_explanations=12,
    init_noise=0.5,
    random_state=0,
).fit(X_train, y_train)
entropy = classifier.predict_uncertainty(X_test).total
unsure = np.argsort(-entropy)[:12]
explanation = clue.explain(X_test[unsure])

# %%
# ``candidates`` holds the distinct results of each row, best objective first, and
# ``candidate_details`` what each of them does. A candidate counts as clear if it has
# lost half of the entropy of its digit.

details = explanation.candidate_details
options = []
for row, candidates in enumerate(explanation.candidates):
    lines = details[details["row"] == row]
    labels = clue.predict(candidates)
    is_clear = lines["total"].to_numpy() < 0.5 * entropy[unsure[row]]
    best = {}  # of each class, the candidate with the best objective
    for rank in np.flatnonzero(is_clear):
        best.setdefault(int(labels[rank]), rank)
    options.append(best)
n_classes = np.array([len(best) for best in options])
print(f"candidates per digit: {details.groupby('row').size().mean():.1f} distinct")
for n in range(n_classes.max() + 1):
    print(f"digits with clear neighbours of {n} classes: {(n_classes == n).sum()}")
is_offered = [
    label in best for label, best in zip(y_test[unsure], options, strict=True)
]
is_first = explanation.prediction_after == y_test[unsure]
print(f"label is that of the best candidate: {is_first.sum()} of {len(unsure)}")
print(f"label is among the options: {np.sum(is_offered)} of {len(unsure)}")

# %%
# The digits with most options, and the best candidate of each class.

shown = np.argsort(-n_classes, kind="stable")[:6]
n_columns = 1 + min(n_classes[shown].max(), 5)
figure, axes = plt.subplots(
    len(shown), n_columns, figsize=(1.6 * n_columns, 9.6), layout="constrained"
)
for axis in axes.flat:
    axis.set_axis_off()
for line, row in zip(axes, shown, strict=True):
    line[0].imshow(explanation.X[row].reshape(8, 8), cmap="gray", vmin=0, vmax=1)
    line[0].set_title(
        f"labelled {y_test[unsure[row]]}\n{entropy[unsure[row]]:.2f} nats", fontsize=9
    )
    totals = details.loc[details["row"] == row, "total"].to_numpy()
    for axis, (label, rank) in zip(line[1:], options[row].items(), strict=False):
        image = explanation.candidates[row][rank].reshape(8, 8)
        axis.imshow(image, cmap="gray", vmin=0, vmax=1)
        axis.set_title(f"a {label}\n{totals[rank]:.2f} nats", fontsize=9)
plt.show()

# %%
# Each line is one digit, on the left, and up to five of its options, best objective
# first. The best alone would have hidden that there are others.
