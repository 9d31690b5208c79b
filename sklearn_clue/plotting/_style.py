"""What all pictures share: colours, text that stays text, and axes to draw on.

matplotlib is imported when something is drawn, never before.
"""

import textwrap

import numpy as np

from sklearn_clue._rendering import PART_COLORS

# Okabe and Ito, "Color Universal Design": told apart with any kind of colour vision.
BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, BLACK = "#cc79a7", "#56b4e9", "#000000"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, BLACK)
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
GREY = "#b8b8b8"

KINDS = ("total", "aleatoric", "epistemic")

# One polarity for all images: large values are bright, as on the HTML page.
IMAGE_CMAP = "gray"


def kind_cmap(kind):
    """Colours of a kind of uncertainty, from little in the dark to much in the light.

    The two parts have their own colour, which is the same in all pictures and pages.
    """
    if kind not in PART_COLORS:
        return "cividis"
    from matplotlib.colors import LinearSegmentedColormap

    stops = ["#0d0d0d", PART_COLORS[kind], "#fffaf0"]
    return LinearSegmentedColormap.from_list(kind, stops)


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


def measure_of(explanation):
    """Name the uncertainty that was to fall in an explanation, with its unit."""
    kind = explanation.kind if isinstance(explanation.kind, str) else "weighted"
    return measure_label(explanation, kind)


def check_contributions(explanation):
    """Refuse to draw contributions that an explanation does not hold."""
    if explanation.image_shape is not None:
        raise ValueError(
            "The rows of this explanation are images. Use "
            "ImageExplanationDisplay.from_explanation, or explanation.plot()."
        )
    if explanation.contributions is None:
        raise ValueError(
            "This explanation holds no contributions. Explain with "
            "distance_weight=None, or with contributions=True."
        )


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


def titled(text, limit=84):
    """Keep each line of a title from being read as a formula, and short."""
    return "\n".join(literal(line, limit=limit) for line in text.splitlines())


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


def along(points, step=5.0):
    """Points along a broken line in pixels, so close that no text fits between."""
    pieces = [points]
    for start, stop in zip(points[:-1], points[1:], strict=True):
        n_steps = int(np.hypot(*(stop - start)) / step) + 1
        pieces.append(np.linspace(start, stop, n_steps))
    return np.concatenate(pieces)


def find_room(text, gap, taken, points, padding=4):
    """Move a text to a side of its point where it hides nothing.

    Parameters
    ----------
    text : Annotation
        The text, whose offset is in points.

    gap : float
        How far from its point it stands.

    taken : list of Bbox
        Boxes of other texts, in pixels.

    points : ndarray of shape (n_points, 2)
        What else must stay visible, in pixels.

    padding : float, default=4
        The pixels between two texts.

    Returns
    -------
    box : Bbox or None
        The box of the text, in pixels; None if there is no room.
    """
    for x, y, ha, va in (
        (0, 1, "center", "bottom"),
        (-0.8, 0.8, "right", "bottom"),
        (0.8, -0.8, "left", "top"),
        (1, 0, "left", "center"),
        (-1, 0, "right", "center"),
        (0, -1, "center", "top"),
    ):
        text.xyann = (gap * x, gap * y)
        text.set(ha=ha, va=va)
        box = text.get_window_extent()
        inside = (
            (points > (box.x0 - 2, box.y0 - 2)) & (points < (box.x1 + 2, box.y1 + 2))
        ).all(axis=1)
        room = box.padded(padding)
        if not inside.any() and not any(room.overlaps(other) for other in taken):
            return box
    return None
