"""How far counterfactuals are from their rows, against how believable they are."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from sklearn_clue import _words
from sklearn_clue.explanation import Explanation
from sklearn_clue.plotting._style import (
    CYCLE,
    MARKERS,
    along,
    find_room,
    literal,
    new_axes,
)

__all__ = ["FrontDisplay"]


class FrontDisplay:
    """Distance against plausibility, for several explainers or settings.

    The best place is the upper left: near to the row, and believable. A point says for
    how many of the rows the model is sure afterwards, because to stay where one is is
    near and believable as well. Bars are standard errors over the rows.

    Use :meth:`from_explanations` to make one.

    Parameters
    ----------
    fronts : dict of str to DataFrame
        For each explainer one line per setting: `distance` and `plausibility` (means
        over the rows), `distance_error` and `plausibility_error` (their standard
        errors) and `share_sure` (NaN if it is not known).

    plausibility_before : float, default=None
        Mean plausibility of the rows themselves, a dashed line.

    Attributes
    ----------
    ax_ : Axes
        The axes drawn on.

    figure_ : Figure
        Its figure.

    See Also
    --------
    TradeOffDisplay : Uncertainty explained against distance.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue.plotting import FrontDisplay
    >>> front = pd.DataFrame(
    ...     {
    ...         "distance": [1.1, 1.9],
    ...         "plausibility": [0.2, 0.5],
    ...         "distance_error": [0.1, 0.1],
    ...         "plausibility_error": [0.03, 0.03],
    ...         "share_sure": [1.0, 0.97],
    ...     }
    ... )
    >>> display = FrontDisplay({"CLUE": front}).plot()
    >>> sorted(text.get_text() for text in display.ax_.texts)
    ['100 % sure', '97 % sure']
    """

    def __init__(self, fronts, plausibility_before=None):
        self.fronts = fronts
        self.plausibility_before = plausibility_before

    @classmethod
    def from_explanations(cls, explanations, *, ax=None):
        """Draw one point per explanation.

        Parameters
        ----------
        explanations : dict of str to Explanation or to sequences of them
            By name, explanations of the same rows, with `plausibility`; those of one
            explainer at several settings, in order, are joined by a line.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : FrontDisplay
            The display, drawn.
        """
        if not isinstance(explanations, Mapping) or not explanations:
            raise ValueError(
                "A front needs a dict of names to explanations, got "
                f"{type(explanations).__name__}"
                f"{' that is empty' if isinstance(explanations, Mapping) else ''}."
            )
        fronts, before = {}, None
        for name, sequence in explanations.items():
            sequence = sequence if isinstance(sequence, list | tuple) else [sequence]
            for explanation in sequence:
                if not isinstance(explanation, Explanation):
                    raise TypeError(
                        "A front needs explanations, as explain(X) gives them, got "
                        f"{type(explanation).__name__} for {name!r}."
                    )
            if not sequence:
                raise ValueError(f"There is no explanation for {name!r}.")
            lines = [_line(name, explanation) for explanation in sequence]
            fronts[name] = pd.DataFrame(lines)
            if before is None and sequence[0].plausibility_before is not None:
                before = float(np.mean(sequence[0].plausibility_before))
        return cls(fronts, before).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : FrontDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.4, 4.4))[0, 0]
        for k, (name, front) in enumerate(self.fronts.items()):
            ax.errorbar(
                front["distance"],
                front["plausibility"],
                xerr=front["distance_error"],
                yerr=front["plausibility_error"],
                color=CYCLE[k % len(CYCLE)],
                marker=MARKERS[k % len(MARKERS)],
                markersize=8,
                linewidth=1.2,
                elinewidth=0.8,
                capsize=2,
                label=literal(name, limit=40),
            )
        if self.plausibility_before is not None:
            ax.axhline(
                self.plausibility_before,
                color="0.3",
                linestyle="--",
                linewidth=1,
                label="the rows themselves",
            )
        ax.margins(0.15)
        ax.set_xlim(left=0)
        ax.set_xlabel("mean distance ℓ1, encoded space (nearer is better)")
        ax.set_ylabel("mean plausibility (higher is better)")
        # Beside the axes, where it hides no point.
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        self._annotate()
        return self

    def _annotate(self):
        """Write the share of sure rows beside the points, if there is room for it."""
        self.figure_.canvas.draw()  # places depend on the final layout
        taken, hidden = [], []
        pixels = self.ax_.transData.transform
        for front in self.fronts.values():
            points = front[["distance", "plausibility"]].to_numpy(dtype=float)
            hidden.append(along(pixels(points)))
            for axis, name in enumerate(("distance_error", "plausibility_error")):
                bar = np.zeros_like(points)
                bar[:, axis] = front[name]
                ends = zip(pixels(points - bar), pixels(points + bar), strict=True)
                hidden += [along(np.stack(pair)) for pair in ends]
        hidden = np.concatenate(hidden)
        for k, front in enumerate(self.fronts.values()):
            for line in front.itertuples():
                if np.isnan(line.share_sure):
                    continue
                text = self.ax_.annotate(
                    f"{_words.percent(line.share_sure)} sure",
                    (line.distance, line.plausibility),
                    xytext=(0, 0),
                    textcoords="offset points",
                    fontsize="small",
                    color=CYCLE[k % len(CYCLE)],
                    annotation_clip=False,
                )
                box = find_room(text, 8, taken, hidden)
                if box is None:
                    text.remove()
                else:
                    taken.append(box)


def _line(name, explanation):
    """Means over the rows of one explanation, with their standard errors."""
    if explanation.plausibility is None:
        raise ValueError(
            f"The explanation of {name!r} holds no plausibility. Explain with a "
            "min_plausibility, or add that of its counterfactuals: "
            "dataclasses.replace(explanation, plausibility="
            "sklearn_clue.evaluation.plausibility(explainer, counterfactuals))."
        )
    if not len(explanation):
        raise ValueError(f"The explanation of {name!r} has no rows to draw.")
    line = {}
    for key in ("distance", "plausibility"):
        values = np.asarray(getattr(explanation, key), dtype=float)
        n_rows = len(values)
        line[key] = values.mean()
        line[f"{key}_error"] = (
            values.std(ddof=1) / np.sqrt(n_rows) if n_rows > 1 else 0.0
        )
    is_sure = explanation.is_sure
    line["share_sure"] = np.nan if is_sure is None else float(np.mean(is_sure))
    return line
