"""
The way of a search through latent space
========================================

CLUE does not walk through the table, but through the latent space of a generative
model. This example draws that way over the uncertainty of all that lies around it, as
the paper does for the Credit data. It finds that the search heads for where the model
is sure, and ends before it reaches the bottom: what is further down costs more distance
than it is worth. With a smaller weight of the distance it goes further down.

With the folder of the Credit data in the environment variable ``SKLEARN_CLUE_DATA`` it
uses them; otherwise a toy.
"""

# %%
# Two latents, so that the picture is the latent space itself and not a projection.

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.datasets import fetch_credit_default, make_mixed_toy
from sklearn_clue.plotting import LatentPathDisplay

N_ROWS = 1500  # of the Credit data; 30 000 is all of them

if os.environ.get("SKLEARN_CLUE_DATA"):
    X, y = fetch_credit_default(return_X_y=True, as_frame=True)
    X, y = X.sample(N_ROWS, random_state=0), y.sample(N_ROWS, random_state=0)
else:
    X, y = make_mixed_toy(1500, random_state=0, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=0, stratify=y
)
clue = CLUEExplainer(
    BayesianMLPClassifier((100,), thinning=20),
    VAEEncoder(2, (100, 100), learning_rate=3e-3),
    random_state=0,
).fit(X_train, y_train)

# %%
# A large weight and a small one, for a typical row: of all, the one at the median of
# how much further the entropy falls with the small weight.

WEIGHTS = (1.0, 0.1)
rows = X_test[clue.rejects(X_test)]
dear, cheap = clue.explain_path(rows, WEIGHTS)
further = cheap.uncertainty_explained - dear.uncertainty_explained
row = int(np.argsort(further, kind="stable")[len(rows) // 2])
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for ax, weight, explanation in zip(axes, WEIGHTS, (dear, cheap), strict=True):
    LatentPathDisplay.from_explainer(
        clue, explanation, row=row, grid_resolution=30, margin=0.8, ax=ax
    )
    one = explanation[row]
    ax.set_title(
        f"λ = {weight:g}: {one.uncertainty_before.total[0]:.2f} → "
        f"{one.uncertainty_after.total[0]:.2f} nats",
        loc="left",
    )
    print(
        f"λ = {weight:g}: {one.n_iter[0]} steps, "
        f"entropy {one.uncertainty_before.total[0]:.2f} → "
        f"{one.uncertainty_after.total[0]:.2f} nats, distance {one.distance[0]:.2f}"
    )
plt.show()

# %%
# The circle is where the encoder puts the row, the star the step with the best
# objective. The small weight is searched first, and the other may go on from its end:
# then its way leaps down there and comes back. Colours are the entropy of what the
# latents decode to; they leave out the distance, which is why the star need not be at
# the darkest place.

# %%
# Over all rejected rows the same holds: a smaller weight goes further and ends lower.

for weight, explanation in zip(WEIGHTS, (dear, cheap), strict=True):
    print(
        f"λ = {weight:g}, {len(explanation)} rows: mean entropy "
        f"{explanation.uncertainty_before.total.mean():.2f} → "
        f"{explanation.uncertainty_after.total.mean():.2f} nats, "
        f"mean distance {explanation.distance.mean():.2f}"
    )
