"""
One person, several explanations
================================

Uncertainty about one row can often be explained in more than one way: by other prior
convictions or by another age, in the paper's example from COMPAS (Appendix D). This
example asks for many explanations of each rejected row with ``n_explanations``, and
finds that many rows come below the threshold of rejection by several sets of columns,
none of which is part of another: no single one of them is the reason for the doubt.

With the folder of the COMPAS data in the environment variable ``SKLEARN_CLUE_DATA`` it
uses them, without the column that nearly is the target; otherwise a toy.
"""

# %%
# Race and sex are held fixed: an explanation by them would not help anyone to decide.

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.datasets import fetch_compas, make_mixed_toy

if os.environ.get("SKLEARN_CLUE_DATA"):
    X, y = fetch_compas(return_X_y=True)
    fixed = ["race", "sex"]
else:
    X, y = make_mixed_toy(2000, random_state=0, return_X_y=True)
    fixed = None
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=1200, test_size=300, random_state=0, stratify=y
)
clue = CLUEExplainer(
    BayesianMLPClassifier((100,), thinning=20),
    VAEEncoder(4, (100, 100), learning_rate=3e-3),
    distance_weight=0.3,
    n_explanations=10,
    init_noise=0.5,
    immutable_features=fixed,
    random_state=0,
).fit(X_train, y_train)
explanation = clue.explain(X_test[clue.rejects(X_test)])

# %%
# A candidate counts if the model would not reject it, as in the paper. What it changes
# are categories, and numbers that move by more than a quarter of a standard deviation:
# the generator does not rebuild numbers exactly.

width = 0.25 * X_train.std(numeric_only=True)


def changed(candidates, original):
    """Tell which cells of some candidates differ from the row they are for."""
    is_changed = candidates.astype(object) != original.astype(object)
    for name in width.index:
        is_changed[name] = (candidates[name] - original[name]).abs() > width[name]
    return is_changed.to_numpy(dtype=bool)


details = explanation.candidate_details
ways = []  # of each row: positions of candidates whose changes contain no other's
for row, candidates in enumerate(explanation.candidates):
    total = details.loc[details["row"] == row, "total"].to_numpy()
    cells = changed(candidates, explanation.X.iloc[row])
    found = []
    # Few changes first, and of as many the best objective.
    for i in np.argsort(cells.sum(1), kind="stable"):
        is_new = not any((cells[i] >= cells[other]).all() for other in found)
        if total[i] < clue.threshold_ and cells[i].any() and is_new:
            found.append(i)
    ways.append(found)
n_ways = np.array([len(found) for found in ways])
for n in range(n_ways.max() + 1):
    print(f"rows with {n} sets of columns: {(n_ways == n).sum()} of {len(n_ways)}")

# %%
# The row with most of them. Cells that differ from the row on the left are in colour.

row = int(np.argmax(n_ways))
candidates = explanation.candidates[row].iloc[ways[row]]
total = details.loc[details["row"] == row, "total"].to_numpy()[ways[row]]
original = explanation.X.iloc[[row]]
columns = [original, *(candidates.iloc[[i]] for i in range(len(candidates)))]
is_changed = np.vstack([changed(one, original.iloc[0]) for one in columns]).T
before = explanation.uncertainty_before.total[row]
titles = [f"the row\n{before:.2f} nats"] + [f"{value:.2f} nats" for value in total]

figure, ax = plt.subplots(
    figsize=(1.6 * (len(columns) + 1), 0.4 * len(is_changed) + 0.9),
    layout="constrained",
)
ax.imshow(is_changed, cmap="Oranges", vmin=0, vmax=3, aspect="auto")
for i, one in enumerate(columns):
    for j, value in enumerate(one.iloc[0]):
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        ax.text(i, j, text, ha="center", va="center", fontsize=9)
ax.set_xticks(range(len(columns)), titles)
ax.set_yticks(range(len(is_changed)), X.columns)
ax.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
ax.set_xticks(np.arange(0.5, len(columns) - 1), minor=True)
ax.grid(which="minor", color="white", linewidth=4)
plt.show()

# %%
# The best candidate alone would have named one set of columns as the reason. Each is a
# place where the model is surer, and no claim about what would be if the person was
# another. How many there are depends on what counts: on COMPAS, where the threshold is
# near the largest entropy there is, no row has more than one set that takes half of the
# entropy away.
