"""What one feature contributes, by its value."""

import numpy as np
import pandas as pd

from sklearn_clue import _tables, _words
from sklearn_clue.plotting._style import (
    BLUE,
    GREY,
    check_contributions,
    literal,
    measure_of,
    new_axes,
)

__all__ = ["DependenceDisplay"]


class DependenceDisplay:
    """What one feature contributes to the fall of the uncertainty, by its value.

    Each row is a point at the value it has, and at the contribution of the feature. A
    thin line leads to the value that it has in the counterfactual. Rows in which the
    feature stays are grey, at zero.

    Use :meth:`from_explanation` to make one.

    Parameters
    ----------
    before : ndarray of shape (n_rows,)
        The values of the feature: numbers, or positions in `categories`. NaN is a gap,
        which is drawn at the left edge.

    after : ndarray of shape (n_rows,)
        The values in the counterfactuals.

    contributions : ndarray of shape (n_rows,)
        What the change of the feature contributes.

    is_changed : ndarray of shape (n_rows,)
        Whether it changes.

    feature : str
        The name of the feature.

    categories : list of str, default=None
        The categories, if it has them.

    measure : str, default="uncertainty"
        Name of the uncertainty, with its unit.

    Attributes
    ----------
    ax_ : Axes
        The axes drawn on.

    figure_ : Figure
        Its figure.

    See Also
    --------
    DriversDisplay : All features together.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.plotting import DependenceDisplay
    >>> display = DependenceDisplay(
    ...     before=np.array([8400.0, 5000.0, 900.0]),
    ...     after=np.array([2100.0, 2100.0, 900.0]),
    ...     contributions=np.array([0.4, 0.2, 0.0]),
    ...     is_changed=np.array([True, True, False]),
    ...     feature="amount",
    ... ).plot()
    >>> display.ax_.get_xlabel()
    'amount (lines: to the value in the counterfactual)'
    """

    def __init__(
        self,
        before,
        after,
        contributions,
        is_changed,
        feature,
        categories=None,
        measure="uncertainty",
    ):
        self.before = before
        self.after = after
        self.contributions = contributions
        self.is_changed = is_changed
        self.feature = feature
        self.categories = categories
        self.measure = measure

    @classmethod
    def from_explanation(cls, explanation, feature=None, *, ax=None):
        """Draw one feature of all rows of an explanation.

        Parameters
        ----------
        explanation : Explanation
            What to draw, with `contributions`.

        feature : str or int, default=None
            Name or position of the feature; None means the one that contributes most.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : DependenceDisplay
            The display, drawn.
        """
        check_contributions(explanation)
        if not len(explanation):
            raise ValueError("The explanation has no rows to draw.")
        names = list(explanation.schema.names)
        contributions = np.asarray(explanation.contributions, dtype=float)
        if feature is None:
            position = int(contributions.sum(axis=0).argmax())
        elif feature in names:
            position = names.index(feature)
        elif isinstance(feature, int) and 0 <= feature < len(names):
            position = feature
        else:
            raise ValueError(
                f"There is no feature {feature!r}. The features are: "
                f"{', '.join(map(str, names))}."
            )
        column = explanation.schema.columns[position]
        old, new = (
            _tables.as_objects(column.numbers_of(_tables.arrays(table)[position]))
            for table in (explanation.X, explanation.counterfactuals)
        )
        categories = None
        if column.kind == "category":
            known = list(column.categories or ())
            known += sorted({*old, *new} - {*known}, key=str)  # rows may hold others
            known = [category for category in known if not pd.isna(category)]
            categories = [str(category) for category in known]
            place = {category: i for i, category in enumerate(known)}
            old, new = ([place.get(value) for value in side] for side in (old, new))
        before, after = (
            np.array([np.nan if pd.isna(value) else float(value) for value in side])
            for side in (old, new)
        )
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        return cls(
            before,
            after,
            contributions[:, position],
            ~same,
            str(names[position]) + (f" ({column.unit})" if column.unit else ""),
            categories,
            measure_of(explanation),
        ).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : DependenceDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.4, 4.0))[0, 0]
        x, x_after, has_gaps = self._places()
        y, moved = np.asarray(self.contributions), np.asarray(self.is_changed)
        ax.hlines(
            y[moved], x[moved], x_after[moved], color=BLUE, linewidth=0.8, alpha=0.35
        )
        ax.plot(
            x_after[moved], y[moved], "|", color=BLUE, alpha=0.6, label="its new value"
        )
        for rows, color, name in (
            (~moved, GREY, f"stays ({_words.count(int((~moved).sum()))})"),
            (moved, BLUE, f"changes ({_words.count(int(moved.sum()))})"),
        ):
            ax.plot(
                x[rows],
                y[rows],
                "o",
                color=color,
                markersize=5,
                markeredgecolor="white",
                markeredgewidth=0.5,
                label=name,
            )
        ax.axhline(0, color="0.2", linewidth=1, zorder=0)
        name = literal(self.feature, limit=40)
        ax.set_xlabel(f"{name} (lines: to the value in the counterfactual)")
        if self.categories is not None:
            self._name_categories(ax)
        if has_gaps:
            ax.annotate(
                "missing",
                (np.nanmin(x), 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize="small",
            )
        ax.set_ylabel(literal(f"contribution to the fall\nof {self.measure}"))
        ax.legend(fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _name_categories(self, ax):
        """Write the categories, aslant where they would run into each other."""
        ticks = [literal(text, limit=24) for text in self.categories]
        longest = max(map(len, ticks), default=0)
        # So many letters of this size fit one beside the other.
        width = ax.get_window_extent().width / ax.figure.dpi
        is_crowded = (longest + 2) * len(ticks) > 13 * width
        style = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(ticks)), ticks, **(style if is_crowded else {}))

    def _places(self):
        """Where points stand: apart within a category, and gaps left of all others."""
        both = np.stack([self.before, self.after]).astype(float)
        gaps = np.isnan(both)
        known = both[~gaps]
        span = np.ptp(known) if len(known) else 1.0
        both[gaps] = (known.min() if len(known) else 0.0) - 0.12 * (span or 1.0)
        if self.categories is not None:
            # Rows of one category are drawn beside each other.
            both[gaps] = -1.0
            apart = np.random.default_rng(0).uniform(-0.18, 0.18, len(self.before))
            both = both + apart
        return both[0], both[1], bool(gaps.any())
