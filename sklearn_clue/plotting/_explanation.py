"""Rows of a table beside their counterfactuals: what would have to change."""

import numpy as np
import pandas as pd

from sklearn_clue import _words
from sklearn_clue.plotting._style import BLUE, GREY, check_axes, literal, new_axes

__all__ = ["ExplanationDisplay"]


class ExplanationDisplay:
    """How far each feature moves from a row to its counterfactual.

    Bars show the change in percentile points of the training distribution. What the
    explanation highlights is drawn in full colour, with its values in bold; a category
    that changes has no length and shows as a diamond.

    Use :meth:`from_explanation` to make one.

    Parameters
    ----------
    changes : list of DataFrame
        One frame per row that is drawn, with one line per feature from the largest
        change to the smallest: `feature`, `values` (the text before → after), `shift`
        (in percentile points, NaN if it cannot be measured) and `highlighted`.

    titles : list of str
        The titles of the rows.

    n_left_out : list of int
        For each row the number of features that are not drawn.

    Attributes
    ----------
    axes_ : ndarray of Axes of shape (n_rows,)
        The axes drawn on.

    figure_ : Figure
        Their figure.

    See Also
    --------
    ImageExplanationDisplay : For rows that are images.
    sklearn_clue.Explanation.changes : The numbers, as a frame.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue.plotting import ExplanationDisplay
    >>> changes = pd.DataFrame(
    ...     {
    ...         "feature": ["priors", "age"],
    ...         "values": ["9 → 2", "31 → 33"],
    ...         "shift": [-62.0, 4.0],
    ...         "highlighted": [True, False],
    ...     }
    ... )
    >>> display = ExplanationDisplay([changes], ["case 4"], [0]).plot()
    >>> display.axes_[0].get_title(loc="left")
    'case 4'
    """

    def __init__(self, changes, titles, n_left_out):
        self.changes = changes
        self.titles = titles
        self.n_left_out = n_left_out

    @classmethod
    def from_explanation(cls, explanation, *, max_rows=3, max_features=15, ax=None):
        """Draw the first rows of an explanation.

        Parameters
        ----------
        explanation : Explanation
            What to draw; slice it to choose the rows.

        max_rows : int, default=3
            The number of rows to draw at most.

        max_features : int, default=15
            The number of features to draw at most, those that move most.

        ax : Axes or array of Axes, default=None
            Where to draw, one per row; None makes a new figure.

        Returns
        -------
        display : ExplanationDisplay
            The display, drawn.
        """
        facts = explanation[:max_rows].to_dict()
        if facts["image_shape"] is not None:
            raise ValueError(
                "The rows of this explanation are images. Use "
                "ImageExplanationDisplay.from_explanation, or explanation.plot()."
            )
        if not facts["rows"]:
            raise ValueError("The explanation has no rows to draw.")
        changes, titles, n_left_out = [], [], []
        for row in facts["rows"]:
            frame = _bars(row, facts)
            changes.append(frame.head(max_features))
            n_left_out.append(max(0, len(frame) - max_features))
            shift = _words.measured(
                row["uncertainty"]["before"]["total"],
                row["uncertainty"]["after"]["total"],
                facts["unit"],
            )
            titles.append(f"{_words.label(row)}: {facts['measure']} {shift}")
        return cls(changes, titles, n_left_out).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : Axes or array of Axes, default=None
            Where to draw, one per row; None makes a new figure.

        Returns
        -------
        display : ExplanationDisplay
            The display itself, with `axes_` and `figure_`.
        """
        n_rows = len(self.changes)
        if ax is None:
            heights = [0.34 * len(frame) + 1.2 for frame in self.changes]
            axes = new_axes(
                n_rows,
                1,
                (7.2, sum(heights)),
                gridspec_kw={"height_ratios": heights},
            )[:, 0]
        else:
            axes = check_axes(ax, (n_rows,), f"{_words.count(n_rows)}")
        shifts = np.concatenate([frame["shift"] for frame in self.changes])
        largest = np.nanmax(np.abs(np.append(shifts, 0.0)))
        limit = min(105.0, max(25.0, 1.1 * largest))
        for axis, frame, title, n_left_out in zip(
            axes, self.changes, self.titles, self.n_left_out, strict=True
        ):
            _draw_bars(axis, frame, title, n_left_out)
            axis.set_xlim(-limit, limit)
        self.axes_, self.figure_ = axes, axes[0].figure
        return self


def _bars(row, facts):
    """One line per feature of a row, from the largest change to the smallest."""
    lines = []
    for entry, feature in zip(row["changes"], facts["features"], strict=True):
        old, new = (
            literal(_words.value(entry[when], feature["decimals"]), limit=18)
            for when in ("before", "after")
        )
        before, after = entry["percentile_before"], entry["percentile_after"]
        measured = before is not None and after is not None
        lines.append(
            {
                "feature": feature["name"],
                "values": old if old == new else f"{old} → {new}",
                "shift": after - before if measured else np.nan,
                "highlighted": entry["highlighted"],
                "size": _words.shift(entry),
            }
        )
    frame = pd.DataFrame(lines).sort_values("size", ascending=False, kind="stable")
    return frame.drop(columns="size").reset_index(drop=True)


def _draw_bars(ax, frame, title, n_left_out):
    heights = np.arange(len(frame))
    highlighted = frame["highlighted"].to_numpy(dtype=bool)
    shift = frame["shift"].to_numpy(dtype=float)
    colors = np.where(highlighted, BLUE, GREY)
    ax.barh(heights, np.nan_to_num(shift), color=colors, height=0.65, zorder=2)
    switched = highlighted & np.isnan(shift)
    ax.plot(
        np.zeros(switched.sum()),
        heights[switched],
        linestyle="none",
        marker="D",
        markersize=8,
        color=BLUE,
        zorder=3,
    )
    for edge in (-15, 15):
        ax.axvline(edge, color="0.4", linestyle=":", linewidth=1, zorder=1)
    ax.axvline(0, color="0.2", linewidth=1, zorder=2)
    ax.set_ylim(len(frame) - 0.4, -0.6)
    names = [literal(name, limit=50, width=26) for name in frame["feature"]]
    ax.set_yticks(heights, names, fontsize=9)
    remarks = ["dotted: ±15"]
    if switched.any():
        remarks.append("◆: category changes")
    if n_left_out:
        remarks.append(f"{_words.count(n_left_out, 'feature')} not shown")
    ax.set_xlabel(f"change in percentile points ({', '.join(remarks)})")
    ax.set_title(literal(title, limit=70), loc="left", pad=10)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)

    # The values stand beside the axes, where no bar can reach them.
    values = ax.twinx()
    values.set_ylim(ax.get_ylim())
    values.set_yticks(heights, frame["values"], fontsize=9)
    values.tick_params(axis="y", length=0)
    values.spines[:].set_visible(False)
    for texts in (ax.get_yticklabels(), values.get_yticklabels()):
        for text, is_bold in zip(texts, highlighted, strict=True):
            text.set_fontweight("bold" if is_bold else "normal")
