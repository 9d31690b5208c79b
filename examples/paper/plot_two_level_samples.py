"""
Samples without the gaps: one level against two
===============================================

Latents of an auto-encoder do not fill its prior, so draws from the prior decode to rows
from the gaps between real ones as well. The paper's ground truth (Appendix I) therefore
learns a second, small model of where the latents of the first are. This example draws
from both on three clusters, and finds that fewer rows of the two-level model fall
between the clusters, though a classifier tells them from real ones about as well.
"""

# %%
# One number in three clusters, and the name of the cluster.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from sklearn_clue import VAEACImputer, VAEEncoder
from sklearn_clue.generative import TwoLevelVAEAC

N_ROWS = 800
CENTERS = {"a": -4.0, "b": 0.0, "c": 4.0}


def draw(random_state):
    values, codes = make_blobs(
        N_ROWS,
        centers=np.array(list(CENTERS.values()))[:, np.newaxis],
        cluster_std=0.3,
        random_state=random_state,
    )
    return pd.DataFrame({"x": values[:, 0], "label": np.array(list(CENTERS))[codes]})


X = draw(0)

# %%
# Both levels are in :class:`~sklearn_clue.generative.TwoLevelVAEAC`. Its outer model
# alone is the one-level model: asked to fill rows of which all is missing, it draws
# from its own prior. So the comparison is of the two priors and of nothing else.

model = TwoLevelVAEAC(
    VAEACImputer(2, (40, 40), learning_rate=0.01, max_iter=100),
    VAEEncoder(2, (40, 40), noise_variance="learned", learning_rate=0.01, max_iter=100),
    random_state=0,
).fit(X)
nothing = X.mask(np.ones(X.shape, dtype=bool))
samples = {
    "real rows": draw(1),
    "one level": model.outer_.sample(nothing, random_state=0)[0],
    "two levels": model.sample(N_ROWS, random_state=0),
}

# %%
# A row is in a gap if it is more than four standard deviations from the centre of its
# label. And a classifier tries to tell samples from real rows: at an area under the
# curve of 0.5 it cannot.

judge = HistGradientBoostingClassifier(
    max_iter=30, categorical_features=["label"], random_state=0
)
origin = np.repeat([0, 1], N_ROWS)
shares = {}
for name, rows in samples.items():
    gap = (rows["x"] - rows["label"].map(CENTERS)).abs()
    shares[name] = np.mean(gap > 4 * 0.3)
    both = pd.concat([X, rows]).astype({"label": "category"})
    auc = cross_val_score(judge, both, origin, cv=3, scoring="roc_auc").mean()
    print(f"{name:11} in gaps {shares[name]:6.1%}   told from real ones: AUC {auc:.2f}")

# %%
# Histograms, by label.

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.4), sharex=True, sharey=True, layout="constrained"
)
bins = np.linspace(-6.5, 6.5, 66)
for ax, (name, rows) in zip(axes, samples.items(), strict=True):
    ax.hist(
        [rows.loc[rows["label"] == label, "x"] for label in CENTERS],
        bins,
        stacked=True,
        color=["#0072b2", "#e69f00", "#009e73"],
        label=[f"label {label}" for label in CENTERS],
    )
    ax.set_title(f"{name}: {shares[name]:.0%} in gaps", loc="left")
    ax.set_xlabel("x")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel(f"rows (of {N_ROWS})")
axes[1].legend(fontsize="small", loc="upper right")
plt.show()

# %%
# The one-level model knows where the clusters are, and draws rows from between them all
# the same. The second level has learned which of its latents occur, and draws fewer of
# them. The clusters of both are wider than the real ones, which is what the classifier
# sees.
#
# These data were chosen to show it. Where the latents fill the prior well there is
# little to learn for a second level: of three real tables in the user guide, it makes
# no difference on one.
