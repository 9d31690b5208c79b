"""Rows of a table beside their counterfactuals: what would have to change."""

import textwrap

import numpy as np
import pandas as pd

from sklearn_clue import _words
from sklearn_clue.plotting._style import (
    BLUE,
    GREY,
    RED,
    check_axes,
    literal,
    new_axes,
    titled,
)

__all__ = ["ExplanationDisplay"]

KINDS = ("changes", "waterfall")


class ExplanationDisplay:
    """How far each feature moves from a row to its counterfactual, and what it brings.

    Bars show the change in percentile points of the training distribution. What the
    explanation highlights is drawn in full colour, with its values in bold. A category
    that changes has no length: a hatched band across the picture says so, and likewise
    where a gap is filled. A waterfall shows instead how the changes lower the
    uncertainty, one after the other.

    Use :meth:`from_explanation` to make one.

    Parameters
    ----------
    changes : list of DataFrame
        One frame per row that is drawn, with one line per feature from the largest
        change to the smallest: `feature`, `values` (the text before → after), `shift`
        (in percentile points, NaN if it cannot be measured) and `highlighted`. A
        waterfall needs `contribution` as well, in the unit of the uncertainty.

    titles : list of str
        The titles of the rows.

    n_left_out : list of int
        For each row the number of features that are not drawn.

    ends : list of (float, float), default=None
        For each row the uncertainty before and after, which a waterfall goes between.

    target : float, default=None
        The uncertainty up to which the model is sure, a line in a waterfall.

    measure : str, default="uncertainty"
        Name of the uncertainty, with its unit.

    marks_moves : bool, default=True
        Whether lines mark moves of 15 percentile points, from which on the paper
        highlights them.

    note : str, default=""
        What else is not drawn.

    Attributes
    ----------
    axes_ : ndarray of Axes of shape (n_rows,)
        The axes drawn on.

    figure_ : Figure
        Their figure.

    See Also
    --------
    DriversDisplay : For many rows together.
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

    def __init__(
        self,
        changes,
        titles,
        n_left_out,
        ends=None,
        target=None,
        measure="uncertainty",
        marks_moves=True,
        note="",
    ):
        self.changes = changes
        self.titles = titles
        self.n_left_out = n_left_out
        self.ends = ends
        self.target = target
        self.measure = measure
        self.marks_moves = marks_moves
        self.note = note

    @classmethod
    def from_explanation(
        cls, explanation, *, kind="changes", max_rows=6, max_features=15, ax=None
    ):
        """Draw the first rows of an explanation.

        Parameters
        ----------
        explanation : Explanation
            What to draw; slice it to choose the rows.

        kind : {"changes", "waterfall"}, default="changes"
            Whether bars show how far features move, or what their changes contribute to
            the fall of the uncertainty.

        max_rows : int, default=6
            The number of rows to draw at most.

        max_features : int, default=15
            The number of features to draw at most, those that move most or contribute
            most. Where every change was needed, all of them are drawn, and features
            that stay are not.

        ax : Axes or array of Axes, default=None
            Where to draw, one per row; None makes a new figure.

        Returns
        -------
        display : ExplanationDisplay
            The display, drawn.
        """
        _check_kind(kind, explanation.contributions)
        facts = explanation[:max_rows].to_dict()
        if facts["image_shape"] is not None:
            raise ValueError(
                "The rows of this explanation are images. Use "
                "ImageExplanationDisplay.from_explanation, or explanation.plot()."
            )
        if not facts["rows"]:
            raise ValueError("The explanation has no rows to draw.")
        changes, n_left_out, ends = [], [], []
        for row in facts["rows"]:
            frame = _bars(row, facts, kind)
            kept = frame.head(max_features)
            if facts["goal"] == "sure" and frame["highlighted"].any():
                kept = frame[frame["highlighted"]]
            changes.append(kept.reset_index(drop=True))
            n_left_out.append(len(frame) - len(kept))
            ends.append((row["judged"]["before"], row["judged"]["after"]))
        unit = f" ({facts['unit']})" if facts["unit"] else ""
        more = len(explanation) - len(changes)
        return cls(
            changes,
            [_words.title(row, facts) for row in facts["rows"]],
            n_left_out,
            ends,
            facts["target"],
            _words.judged_measure(facts) + unit,
            facts["goal"] != "sure",
            f"{_words.count(more)} not drawn, see max_rows" if more > 0 else "",
        ).plot(ax=ax, kind=kind)

    def plot(self, ax=None, *, kind="changes"):
        """Draw.

        Parameters
        ----------
        ax : Axes or array of Axes, default=None
            Where to draw, one per row; None makes a new figure.

        kind : {"changes", "waterfall"}, default="changes"
            Whether bars show how far features move, or what their changes contribute to
            the fall of the uncertainty.

        Returns
        -------
        display : ExplanationDisplay
            The display itself, with `axes_` and `figure_`.
        """
        has_contributions = all("contribution" in frame for frame in self.changes)
        _check_kind(kind, self.ends if has_contributions else None)
        n_rows = len(self.changes)
        if ax is None:
            heights = [0.34 * max(len(frame), 2) + 1.4 for frame in self.changes]
            axes = new_axes(
                n_rows,
                1,
                (7.2, sum(heights)),
                gridspec_kw={"height_ratios": heights},
            )[:, 0]
        else:
            axes = check_axes(ax, (n_rows,), f"{_words.count(n_rows)}")
        for position, axis in enumerate(axes):
            draw = self._draw_waterfall if kind == "waterfall" else self._draw_changes
            remarks = draw(axis, position)
            if n_left_out := self.n_left_out[position]:
                verb = "stay" if not self.marks_moves else "not shown"
                verb = "stays" if verb == "stay" and n_left_out == 1 else verb
                remarks.append(f"{_words.count(n_left_out, 'feature')} {verb}")
            if self.note and position == n_rows - 1:
                remarks.append(self.note)
            axis.set_xlabel("\n".join([axis.get_xlabel(), *_lines(remarks)]))
            axis.set_title(titled(self.titles[position]), loc="left", fontsize="medium")
        self.axes_, self.figure_ = axes, axes[0].figure
        return self

    def _draw_changes(self, ax, position):
        """Draw how far features move; return remarks on it."""
        frame = self.changes[position]
        shifts = np.concatenate([frame["shift"] for frame in self.changes])
        largest = np.nanmax(np.abs(np.append(shifts, 0.0)))
        limit = min(105.0, max(25.0, 1.1 * largest))
        heights = np.arange(len(frame))
        highlighted = frame["highlighted"].to_numpy(dtype=bool)
        shift = frame["shift"].to_numpy(dtype=float)
        colors = np.where(highlighted, BLUE, GREY)
        ax.barh(heights, np.nan_to_num(shift), color=colors, height=0.65, zorder=2)
        # A band from edge to edge: what switches has moved, but has no length.
        switched = heights[highlighted & np.isnan(shift)]
        ax.barh(
            switched,
            np.full(len(switched), 2 * limit),
            left=-limit,
            height=0.65,
            facecolor="none",
            edgecolor=BLUE,
            hatch="///",
            linewidth=0,
            alpha=0.55,
            zorder=3,
        )
        remarks = []
        if self.marks_moves:
            remarks.append("dotted: ±15")
            for edge in (-15, 15):
                ax.axvline(edge, color="0.4", linestyle=":", linewidth=1, zorder=1)
        if len(switched):
            remarks.append("hatched: category or gap, no length")
        ax.axvline(0, color="0.2", linewidth=1, zorder=2)
        ax.set_xlim(-limit, limit)
        ax.set_xlabel("change in percentile points")
        _name_lines(ax, frame, highlighted)
        return remarks

    def _draw_waterfall(self, ax, position):
        """Draw what each change contributes; return remarks on it."""
        frame = self.changes[position]
        before, after = self.ends[position]
        parts = frame["contribution"].to_numpy(dtype=float)
        rest = before - after - parts.sum()
        if abs(rest) > 1e-6 * max(abs(before), abs(after)):
            other = {"feature": "all others", "values": "", "highlighted": False}
            other = pd.DataFrame([other | {"contribution": rest}])
            frame = pd.concat([frame, other], ignore_index=True)
            parts = np.append(parts, rest)
        levels = before - np.append(0.0, np.cumsum(parts))
        heights = np.arange(len(parts))
        ax.barh(
            heights,
            -parts,
            left=levels[:-1],
            color=np.where(parts >= 0, BLUE, RED),
            height=0.65,
            zorder=2,
        )
        for height, level in zip(heights[:-1], levels[1:-1], strict=True):
            ax.plot([level] * 2, [height, height + 1], color="0.4", linewidth=1)
        ax.axvline(before, color="0.2", linewidth=1)
        ax.axvline(after, color="0.2", linewidth=1, linestyle="--")
        remarks = ["solid: before", "dashed: after"]
        if self.target is not None:
            ax.axvline(self.target, color="0.4", linestyle=":", linewidth=1.5)
            remarks.append("dotted: sure up to here")
        if (parts < 0).any():
            remarks.append("red: raises it")
        shown = [*levels, after] + ([] if self.target is None else [self.target])
        room = 0.06 * (np.ptp(shown) or 1.0)
        ax.set_xlim(min(shown) - room, max(shown) + room)
        ax.locator_params(axis="x", nbins=6)  # levels of a small fall have many digits
        ax.set_xlabel(self.measure)
        _name_lines(ax, frame, frame["highlighted"].to_numpy(dtype=bool))
        return remarks


def _lines(remarks, width=80):
    """Write remarks one after the other, and break lines between them only."""
    whole = ", ".join(remark.replace(" ", "\0") for remark in remarks)
    return [line.replace("\0", " ") for line in textwrap.wrap(whole, width)]


def _check_kind(kind, contributions):
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if kind == "waterfall" and contributions is None:
        raise ValueError(
            "A waterfall shows contributions, which this explanation does not hold. "
            "Explain with contributions=True, or draw kind='changes'."
        )


def _bars(row, facts, kind):
    """One line per feature of a row, from the largest change to the smallest."""
    lines = []
    for entry, feature in zip(row["changes"], facts["features"], strict=True):
        old, new = (
            literal(_words.value(entry[when], feature["decimals"]), limit=18)
            for when in ("before", "after")
        )
        if entry["highlighted"]:
            texts = _words.two_values(entry, feature)
            old, new = (literal(text, limit=18) for text in texts)
        before, after = entry["percentile_before"], entry["percentile_after"]
        measured = before is not None and after is not None
        line = {
            "feature": feature["name"],
            "values": old if old == new else f"{old} → {new}",
            "shift": after - before if measured else np.nan,
            "highlighted": entry["highlighted"],
            "size": _words.shift(entry),
        }
        if "contribution" in entry:
            line["contribution"] = entry["contribution"]
        lines.append(line)
    by = "contribution" if kind == "waterfall" else "size"
    # Rows that stay come last, whatever the others do.
    frame = pd.DataFrame(lines).sort_values(
        ["highlighted", by], ascending=False, kind="stable"
    )
    return frame.drop(columns="size").reset_index(drop=True)


def _name_lines(ax, frame, is_bold):
    """Write the names of the features at the left, and their values at the right."""
    heights = np.arange(len(frame))
    ax.set_ylim(len(frame) - 0.4, -0.6)
    names = [literal(name, limit=50, width=26) for name in frame["feature"]]
    ax.set_yticks(heights, names, fontsize=9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)

    # The values stand beside the axes, where no bar can reach them.
    values = ax.twinx()
    values.set_ylim(ax.get_ylim())
    values.set_yticks(heights, frame["values"], fontsize=9)
    values.tick_params(axis="y", length=0)
    values.spines[:].set_visible(False)
    for texts in (ax.get_yticklabels(), values.get_yticklabels()):
        for text, bold in zip(texts, is_bold, strict=True):
            text.set_fontweight("bold" if bold else "normal")
