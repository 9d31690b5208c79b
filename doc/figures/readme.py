"""Run the first Python block of README.md, and draw the picture above it.

    python doc/figures/readme.py

The output of the block goes to the screen, for the block of text that follows it in the
README. The picture goes to doc/_static/clue.png.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt

from sklearn_clue.plotting import ExplanationDisplay, RejectionCurveDisplay

ROOT = Path(__file__).parents[2]


def readme_blocks():
    """The first block of code, and the output that is printed below it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(
        r"```python\n(.*?)```.*?```text\n(.*?)```", readme, flags=re.S
    ).groups()
    return code, output


def draw(clue, explanation, X_test, y_test):
    """Errors that rejecting saves, and one row that is rejected, explained."""
    figure, axes = plt.subplots(
        1, 2, figsize=(11, 3.9), layout="constrained", width_ratios=[1, 1.5]
    )
    RejectionCurveDisplay.from_estimator(clue, X_test, y_test, ax=axes[0])
    axes[0].set_title("1. It knows when not to decide", loc="left")
    ExplanationDisplay.from_explanation(explanation[:1], max_features=7, ax=axes[1])
    title = axes[1].get_title(loc="left")
    axes[1].set_title(f"2. It says why: {title}", loc="left")
    return figure


if __name__ == "__main__":
    names = {}
    exec(readme_blocks()[0], names)
    figure = draw(
        names["clue"], names["first"], names["X_test"], names["y_test"].to_numpy()
    )
    figure.savefig(ROOT / "doc" / "_static" / "clue.png", dpi=110)
