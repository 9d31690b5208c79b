"""
Gaps have more than one filling
===============================

An imputer that fills each gap with its expected value hides that other values were
possible. This example hides the lower half of handwritten digits, and finds that the
expected half is a blur wherever the upper half leaves open which digit it is, while
completions drawn with :meth:`VAEACImputer.sample <sklearn_clue.VAEACImputer.sample>`
commit themselves to one, each with its own label.
"""

# %%
# A table of 64 pixels and one category, the digit. One imputer learns every column
# given every set of others, so it is fitted once, on complete rows, and can be asked
# for any gap afterwards.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sklearn_clue import VAEACImputer

digits = load_digits()
X = pd.DataFrame(digits.data, columns=digits.feature_names)
X["digit"] = pd.Categorical(digits.target.astype(str))
X_train, X_test = train_test_split(X, test_size=0.2, random_state=0)
imputer = VAEACImputer(20, learning_rate=3e-3, max_iter=120, random_state=0)
imputer.fit(X_train)

# %%
# Hide the digit and the lower half of the image. How often is the most probable digit
# the right one, and are the probabilities honest?

lower = digits.feature_names[32:]
gaps = X_test.copy()
gaps[[*lower, "digit"]] = np.nan
gaps["digit"] = gaps["digit"].astype(X["digit"].dtype)
proba = imputer.category_proba(gaps, "digit")
is_right = proba.argmax(axis=1) == X_test["digit"].cat.codes.to_numpy()
is_sure = proba.max(axis=1) > 0.9
print(f"right from the upper half: {is_right.mean():.2f}")
print(f"of those it is sure of ({is_sure.mean():.0%}): {is_right[is_sure].mean():.2f}")
print(f"of the others: {is_right[~is_sure].mean():.2f}")

# %%
# The expected values, and three completions, for rows of falling certainty.

order = np.argsort(-proba.max(axis=1))
rows = order[np.linspace(0, len(order) - 1, 8).astype(int)]
expected = imputer.transform(gaps.iloc[rows])
drawn = imputer.sample(gaps.iloc[rows], 3, random_state=0)

tables = {
    "image": X_test.iloc[rows],
    "upper half": gaps.iloc[rows],
    "expected": expected,
    **{f"draw {number}": table for number, table in enumerate(drawn, start=1)},
}
figure, axes = plt.subplots(6, 8, figsize=(9, 7.4), layout="constrained")
for line, (title, table) in zip(axes, tables.items(), strict=True):
    for ax, (_, row) in zip(line, table.iterrows(), strict=True):
        pixels = row[digits.feature_names].to_numpy(dtype=float).reshape(8, 8)
        ax.imshow(np.ma.masked_invalid(pixels), cmap="gray", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[], facecolor="#f2d9c9")
        if title != "upper half":
            ax.set_title(row["digit"], fontsize=9, pad=2)
    line[0].set_ylabel(title)
for ax, row in zip(axes[1], rows, strict=True):
    ax.set_title(f"{proba[row].max():.0%} {proba[row].argmax()}", fontsize=9, pad=2)

path = Path("out") / "impute_vaeac.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# From left to right the upper half says less about the digit; above it stands the most
# probable one. On the left, expectation and draws agree. On the right, the expectation
# is an average of several digits and a blur, while each draw commits itself: most are
# legible, if noisy, and the digit that a draw comes with fits its pixels, as the two
# are drawn together.
