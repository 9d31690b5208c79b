"""What all pictures share: colours, text that stays text, and axes to draw on.

matplotlib is imported when something is drawn, never before.
"""

import textwrap

import numpy as np

# Okabe and Ito, "Color Universal Design": told apart with any kind of colour vision.
BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, BLACK = "#cc79a7", "#56b4e9", "#000000"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, BLACK)
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
GREY = "#b8b8b8"

KINDS = ("total", "aleatoric", "epistemic")


def check_kind(kind):
    """Refuse what is not a kind of uncertainty."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")


def measure_label(explanation, kind):
    """Name the measure of uncertainty of an explanation, with its unit."""
    name = "" if kind == "total" else f"{kind} "
    if explanation.is_classification:
        return f"{name}entropy (nats)"
    return f"{name}standard deviation (unit of the target)"


def literal(text, limit=None, width=None):
    """Keep a user's text from being read as a formula.

    It is shortened to `limit` characters, and wrapped to lines of `width`.
    """
    # Half a surrogate pair, which a name may hold, is in no font.
    text = str(text).encode("utf-8", "backslashreplace").decode()
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if width is not None:
        text = textwrap.fill(text, width)
    return text.replace("$", r"\$")


def new_axes(n_rows, n_columns, figsize, **kwargs):
    """Make a figure with a grid of axes, which it keeps from overlapping."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=figsize,
        layout="constrained",
        squeeze=False,
        **kwargs,
    )
    return axes


def check_axes(ax, shape, what):
    """Bring the user's axes into `shape`."""
    axes = np.asarray(ax, dtype=object)
    if axes.size != np.prod(shape):
        raise ValueError(
            f"This display draws {what} and needs {np.prod(shape)} axes, got "
            f"{axes.size}. Make them with plt.subplots{tuple(shape)}, or leave ax=None."
        )
    return axes.reshape(shape)
