"""Run the first Python block of README.md, and draw the picture above it.

    python doc/figures/readme.py

The output of the blocks goes to the screen, for the blocks of text that follow them in
the README. The picture goes to doc/_static/clue.png.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sklearn_clue.plotting import ExplanationDisplay, RejectionCurveDisplay

ROOT = Path(__file__).parents[2]


def readme_blocks():
    """Give pairs of code and the output that is shown below it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pattern = r"```python\n(.*?)```.*?```text\n(.*?)```"
    return re.findall(pattern, readme, flags=re.S)


def typical(explanation):
    """Choose the row whose counterfactual is at the median distance."""
    return explanation[[np.argsort(explanation.distance)[len(explanation) // 2]]]


def draw(clue, explanation, X_test, y_test):
    """Errors that rejecting saves, and one row that is rejected, explained."""
    # One column and large letters, to be read on a phone.
    plt.rcParams["font.size"] = 12
    figure = plt.figure(figsize=(6.4, 6.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.15, 1])
    heading = {"x": 0.01, "ha": "left", "weight": "bold"}
    above.suptitle("It knows when not to decide", **heading)
    below.suptitle("It says what would make it sure", **heading)
    curve = RejectionCurveDisplay.from_estimator(
        clue, X_test, y_test, name="most uncertain first", ax=above.subplots()
    )
    curve.ax_.set(xlabel="tumours rejected (%)", ylabel="error among the rest")
    curve.ax_.legend(loc="center right", frameon=False)
    ExplanationDisplay.from_explanation(typical(explanation), ax=below.subplots())
    return figure


if __name__ == "__main__":
    names = {}
    for code, _ in readme_blocks():
        exec(code, names)
    figure = draw(
        names["clue"], names["explanation"], names["X_test"], names["y_test"].to_numpy()
    )
    figure.savefig(ROOT / "doc" / "_static" / "clue.png", dpi=110)
