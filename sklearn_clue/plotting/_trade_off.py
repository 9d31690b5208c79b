"""Uncertainty explained against the distance it takes."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from sklearn_clue.explanation import Explanation, knee_index
from sklearn_clue.plotting._style import (
    CYCLE,
    MARKERS,
    along,
    check_kind,
    find_room,
    literal,
    measure_label,
    new_axes,
)

__all__ = ["TradeOffDisplay"]


class TradeOffDisplay:
    """Uncertainty explained against the distance it takes, with the knee points.

    Use :meth:`from_explanations` to make one.

    Parameters
    ----------
    curves : dict of str to DataFrame
        For each method one line per setting: `weight` (the distance weight, or NaN),
        `distance` and `explained` (means over the rows), and `is_knee`.

    label : str, default="mean uncertainty explained"
        Name of the vertical axis.

    Attributes
    ----------
    ax_ : Axes
        The axes drawn on.

    figure_ : Figure
        Its figure.

    See Also
    --------
    sklearn_clue.explanation.knee_index : Finds the knee point.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue.plotting import TradeOffDisplay
    >>> curve = pd.DataFrame(
    ...     {
    ...         "weight": [0.1, 1.0, 10.0],
    ...         "distance": [4.0, 1.0, 0.1],
    ...         "explained": [0.5, 0.4, 0.1],
    ...         "is_knee": [False, True, False],
    ...     }
    ... )
    >>> display = TradeOffDisplay({"CLUE": curve}).plot()
    >>> sorted(text.get_text() for text in display.ax_.texts)
    ['0.1', '1', '10']
    """

    def __init__(self, curves, label="mean uncertainty explained"):
        self.curves = curves
        self.label = label

    @classmethod
    def from_explanations(cls, explanations, *, kind="total", ax=None):
        """Draw one curve per method, one point per explanation.

        Parameters
        ----------
        explanations : sequence of Explanation, or dict of str to such sequences
            Explanations of the same rows at different settings, in order; or several
            methods by name.

        kind : {"total", "aleatoric", "epistemic"}, default="total"
            The uncertainty that is to fall.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : TradeOffDisplay
            The display, drawn.

        Notes
        -----
        Knee points are found as in Section 5.1 of the paper: both axes are scaled by
        the largest value of any method, and the point nearest to all of the gain at no
        cost is the knee.
        """
        check_kind(kind)
        if not isinstance(explanations, Mapping):
            explanations = list(explanations)
            name = explanations[0].method if explanations else ""
            explanations = {name: explanations}
        curves = {}
        for name, sequence in explanations.items():
            sequence = [sequence] if isinstance(sequence, Explanation) else [*sequence]
            if not sequence:
                raise ValueError(
                    "A trade-off needs at least one explanation per method, got none"
                    f"{f' for {name!r}' if name else ''}."
                )
            curves[name] = pd.DataFrame(
                [
                    {
                        "weight": math.nan
                        if explanation.distance_weight is None
                        else float(explanation.distance_weight),
                        "distance": float(np.mean(explanation.distance)),
                        "explained": float(
                            np.mean(getattr(explanation.uncertainty_before, kind))
                            - np.mean(getattr(explanation.uncertainty_after, kind))
                        ),
                    }
                    for explanation in sequence
                ]
            )
        together = pd.concat(curves.values())
        scales = {
            "max_gain": together["explained"].max(),
            "max_cost": together["distance"].max(),
        }
        for curve in curves.values():
            knee = knee_index(curve["explained"], curve["distance"], **scales)
            curve["is_knee"] = np.arange(len(curve)) == knee
        label = f"mean fall of {measure_label(sequence[0], kind)}"
        return cls(curves, label).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : TradeOffDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.4, 4.4))[0, 0]
        for k, (name, curve) in enumerate(self.curves.items()):
            color = CYCLE[k % len(CYCLE)]
            x, y = curve["distance"], curve["explained"]
            style = {"color": color, "marker": MARKERS[k % len(MARKERS)]}
            ax.plot(x, y, label=literal(name, limit=30), **style)
            knee = curve["is_knee"].to_numpy(dtype=bool)
            ax.plot(x[knee], y[knee], **_RING, markeredgecolor=color)
        ax.plot([], [], **_RING, markeredgecolor="0.3", label="knee point")
        ax.margins(0.1)
        has_weights = any(c["weight"].notna().any() for c in self.curves.values())
        note = " (figures: distance weight)" if has_weights else ""
        ax.set_xlabel(f"mean distance ℓ1, encoded space{note}")
        ax.set_ylabel(self.label)
        ax.legend(loc="lower right")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        self._annotate()
        return self

    def _annotate(self):
        """Write the weights beside the points, as far as there is room for them."""
        self.figure_.canvas.draw()  # places depend on the final layout
        taken = [self.ax_.get_legend().get_window_extent()]
        hidden, radius = [], _RING["markersize"] / 2 * self.figure_.dpi / 72
        for curve in self.curves.values():
            points = curve[["distance", "explained"]].to_numpy(dtype=float)
            points = self.ax_.transData.transform(points)
            knees = points[curve["is_knee"].to_numpy(dtype=bool)]
            hidden += [along(points), _circle(knees, radius)]
        hidden = np.concatenate(hidden)
        for k, curve in enumerate(self.curves.values()):
            # Knees first, then the ends, then the rest: they matter in this order.
            order = curve.assign(
                is_end=np.isin(np.arange(len(curve)), (0, len(curve) - 1))
            ).sort_values(["is_knee", "is_end"], ascending=False, kind="stable")
            for line in order.itertuples():
                if math.isnan(line.weight):
                    continue
                text = self.ax_.annotate(
                    f"{line.weight:.3g}",
                    (line.distance, line.explained),
                    xytext=(0, 0),
                    textcoords="offset points",
                    fontsize="small",
                    color=CYCLE[k % len(CYCLE)],
                    fontweight="bold" if line.is_knee else "normal",
                    annotation_clip=False,
                )
                box = find_room(text, 12 if line.is_knee else 7, taken, hidden)
                if box is None:
                    text.remove()
                else:
                    taken.append(box)


_RING = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 15,
    "markerfacecolor": "none",
    "markeredgewidth": 2,
}


def _circle(centers, radius):
    """Pixels of the rings around knee points."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    return (centers[:, np.newaxis] + ring).reshape(-1, 2)
