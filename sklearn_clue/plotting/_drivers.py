"""What drives the uncertainty, over many rows."""

import numpy as np
import pandas as pd

from sklearn_clue import _tables, _words
from sklearn_clue.plotting._style import (
    BLUE,
    GREY,
    RED,
    check_axes,
    check_contributions,
    literal,
    measure_of,
    new_axes,
)

__all__ = ["DriversDisplay"]


class DriversDisplay:
    """What each feature contributes to the fall of the uncertainty, over many rows.

    Bars show the mean contribution of each feature. Beside them every row is a point at
    its own contribution, coloured by the value that the feature has before the change:
    dark for values that are low among the training rows, light for high ones.

    Use :meth:`from_explanation` to make one.

    Parameters
    ----------
    drivers : DataFrame
        One line per feature that is drawn, the most important one first: `feature`,
        `n_changed`, `mean_contribution`, `share` and `direction`.

    contributions : ndarray of shape (n_rows, n_drivers)
        The contributions of these features.

    percentiles : ndarray of shape (n_rows, n_drivers)
        Where their values stand in the training distribution, from 0 to 100; NaN for
        categories and missing values.

    measure : str, default="uncertainty"
        Name of the uncertainty, with its unit.

    note : str, default=""
        What is not drawn.

    Attributes
    ----------
    axes_ : ndarray of Axes of shape (2,)
        The axes drawn on: bars and points.

    figure_ : Figure
        Their figure.

    See Also
    --------
    DependenceDisplay : One feature, by its value.
    sklearn_clue.Explanation.drivers : The numbers, as a frame.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_clue.plotting import DriversDisplay
    >>> drivers = pd.DataFrame(
    ...     {
    ...         "feature": ["amount", "housing"],
    ...         "n_changed": [2, 1],
    ...         "mean_contribution": [0.2, 0.1],
    ...         "share": [2 / 3, 1 / 3],
    ...         "direction": ["down", "to own"],
    ...     }
    ... )
    >>> display = DriversDisplay(
    ...     drivers,
    ...     contributions=np.array([[0.3, 0.0], [0.1, 0.2]]),
    ...     percentiles=np.array([[90.0, np.nan], [60.0, np.nan]]),
    ... ).plot()
    >>> [label.get_text() for label in display.axes_[0].get_yticklabels()]
    ['amount', 'housing']
    """

    def __init__(
        self, drivers, contributions, percentiles, measure="uncertainty", note=""
    ):
        self.drivers = drivers
        self.contributions = contributions
        self.percentiles = percentiles
        self.measure = measure
        self.note = note

    @classmethod
    def from_explanation(cls, explanation, *, max_features=12, ax=None):
        """Draw all rows of an explanation together.

        Parameters
        ----------
        explanation : Explanation
            What to draw, with `contributions`.

        max_features : int, default=12
            The number of features to draw at most, those that contribute most. The
            picture says what the others contribute.

        ax : array of two Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : DriversDisplay
            The display, drawn.
        """
        check_contributions(explanation)
        if not len(explanation):
            raise ValueError("The explanation has no rows to draw.")
        drivers = explanation.drivers()
        drivers = pd.DataFrame(
            dict(zip(drivers.columns, _tables.arrays(drivers), strict=True))
        )
        changing = drivers[drivers["n_changed"] > 0]
        shown = changing.head(max_features)
        if shown.empty:
            raise ValueError(
                "Nothing changes in this explanation, so that nothing drives it. Look "
                "at explanation.summary()."
            )
        names = list(explanation.schema.names)
        columns = [names.index(name) for name in shown["feature"]]
        shape = explanation.X.shape
        standing = explanation.changes["percentile_before"].to_numpy().reshape(shape)
        rest = changing.iloc[len(shown) :]
        notes = []
        if len(rest):
            brought = rest["share"].sum()
            notes.append(
                f"{_words.count(len(rest), 'more feature')} with "
                f"{_words.percent(brought)} of the fall not drawn"
            )
        if stays := len(drivers) - len(changing):
            verb = "never changes" if stays == 1 else "never change"
            notes.append(f"{_words.count(stays, 'feature')} {verb}")
        return cls(
            shown,
            np.asarray(explanation.contributions)[:, columns],
            standing[:, columns],
            measure_of(explanation),
            "; ".join(notes),
        ).plot(ax=ax)

    def plot(self, ax=None, *, cmap="cividis"):
        """Draw.

        Parameters
        ----------
        ax : array of two Axes, default=None
            Where to draw; None makes a new figure.

        cmap : str or Colormap, default="cividis"
            Colours of the values of a feature, from low to high.

        Returns
        -------
        display : DriversDisplay
            The display itself, with `axes_` and `figure_`.
        """
        n_drivers = len(self.drivers)
        if ax is None:
            axes = new_axes(1, 2, (9.6, 0.46 * n_drivers + 1.7), width_ratios=[1, 1.3])[
                0
            ]
        else:
            axes = check_axes(ax, (2,), "bars and points")
        self._draw_bars(axes[0])
        self._draw_points(axes[1], cmap)
        for axis in axes:
            axis.set_ylim(n_drivers - 0.4, -0.6)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(axis="y", length=0)
        self.axes_, self.figure_ = axes, axes[0].figure
        if self.note:
            self.figure_.supxlabel(literal(self.note), fontsize="small")
        return self

    def _draw_bars(self, ax):
        drivers, heights = self.drivers, np.arange(len(self.drivers))
        means = drivers["mean_contribution"].to_numpy(dtype=float)
        ax.barh(heights, means, color=np.where(means >= 0, BLUE, RED), height=0.6)
        names = [literal(name, limit=40, width=22) for name in drivers["feature"]]
        ax.set_yticks(heights, names, fontsize=9)
        for height, line in zip(heights, drivers.itertuples(), strict=True):
            share = "" if pd.isna(line.share) else f"{_words.percent(line.share)}, "
            where = _words.DIRECTIONS.get(line.direction, line.direction)
            text = literal(f"{share}{where}", limit=30)
            ax.annotate(
                text,
                (max(line.mean_contribution, 0.0), height),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        ax.axvline(0, color="0.2", linewidth=1)
        # Room for the texts behind the bars.
        low, high = min(means.min(), 0.0), max(means.max(), 0.0)
        ax.set_xlim(1.05 * low, high + 0.55 * (high - low or 1.0))
        n_rows = _words.count(len(self.contributions))
        ax.set_title(f"mean contribution, {n_rows}", loc="left", fontsize="medium")
        ax.set_xlabel(literal(f"fall of {self.measure}"))

    def _draw_points(self, ax, cmap):
        low, high = self.contributions.min(), self.contributions.max()
        scale = (high - low) or 1.0
        shown, has_grey = None, False
        for height in range(len(self.drivers)):
            values = self.contributions[:, height]
            # What did not change would pile up at zero and hide the rest.
            moved = values != 0
            offsets = height + _swarm(values[moved] / scale)
            colors = self.percentiles[moved, height]
            known = ~np.isnan(colors)
            ax.scatter(
                values[moved][~known], offsets[~known], s=12, color=GREY, **_EDGE
            )
            shown = ax.scatter(
                values[moved][known],
                offsets[known],
                c=colors[known],
                s=12,
                cmap=cmap,
                vmin=0,
                vmax=100,
                **_EDGE,
            )
            has_grey |= bool((~known).any())
        ax.axvline(0, color="0.2", linewidth=1)
        names = [_words.count(n) for n in self.drivers["n_changed"]]
        ax.set_yticks(range(len(names)), names, fontsize=8)
        ax.set_title("each row in which it changes", loc="left", fontsize="medium")
        ax.set_xlabel(literal(f"fall of {self.measure}"))
        bar = ax.figure.colorbar(shown, ax=ax, aspect=30, ticks=[0, 50, 100])
        bar.ax.set_yticklabels(["low", "median", "high"])
        grey = "\n(grey: category or gap)" if has_grey else ""  # short axes cut a line
        bar.set_label(f"value before the change{grey}", fontsize="small")


_EDGE = {"edgecolors": "0.25", "linewidths": 0.3, "zorder": 2}


def _swarm(values, width=0.36, n_bins=60):
    """Move points apart that would hide each other, up and down in turn.

    `values` are in shares of the axis; offsets are within `width` of zero.
    """
    offsets = np.zeros(len(values))
    bins = np.floor(values * n_bins).astype(int)
    order = np.argsort(values, kind="stable")
    crowd = {}
    for position in order:
        rank = crowd.get(bins[position], 0)
        crowd[bins[position]] = rank + 1
        offsets[position] = (rank + 1) // 2 * (1 if rank % 2 else -1)
    largest = np.abs(offsets).max(initial=0.0)
    return offsets * min(0.08, width / largest if largest else width)
