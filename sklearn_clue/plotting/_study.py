"""What a user study found: how often people are right, and what they prefer to say."""

import numpy as np

from sklearn_clue._words import percent
from sklearn_clue.plotting._style import (
    CYCLE,
    GREY,
    MARKERS,
    along,
    check_axes,
    find_room,
    literal,
    new_axes,
)

__all__ = ["StudyDisplay"]


class StudyDisplay:
    """Accuracy of the methods of a user study, and d′ against the criterion.

    On the left the share of right answers of each method with its interval, and a small
    dot for each participant. On the right how well people tell sure from unsure rows,
    d′, against what they prefer to say: a method to the right of another one makes
    people say "unsure" more often, which is no understanding by itself.

    Parameters
    ----------
    methods : DataFrame
        One line per method, by its name: `accuracy`, `low`, `high`, `d_prime`,
        `d_prime_low`, `d_prime_high` and `criterion`, as in
        `sklearn_clue.study.analyse(answers).methods`.

    participants : DataFrame, default=None
        One line per participant: `method` and `accuracy`. None draws no dots.

    level : float, default=0.95
        The level of the intervals, for the label.

    Attributes
    ----------
    ax_ : ndarray of two Axes
        The axes drawn on.

    figure_ : Figure
        Their figure.

    See Also
    --------
    sklearn_clue.study.analyse : Computes what is drawn.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue.plotting import StudyDisplay
    >>> methods = pd.DataFrame(
    ...     {
    ...         "accuracy": [0.82, 0.62],
    ...         "low": [0.74, 0.52],
    ...         "high": [0.88, 0.71],
    ...         "d_prime": [2.3, 2.0],
    ...         "d_prime_low": [1.7, 1.3],
    ...         "d_prime_high": [2.9, 2.7],
    ...         "criterion": [0.6, 1.5],
    ...     },
    ...     index=["CLUE", "random"],
    ... )
    >>> display = StudyDisplay(methods).plot()
    >>> [label.get_text() for label in display.ax_[0].get_yticklabels()]
    ['CLUE', 'random']
    """

    def __init__(self, methods, participants=None, level=0.95):
        self.methods = methods
        self.participants = participants
        self.level = level

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : array of two Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : StudyDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            height = 1.6 + 0.5 * max(4, len(self.methods))
            ax = new_axes(1, 2, (9.6, height))[0]
        left, right = self.ax_ = check_axes(ax, (2,), "two pictures")
        self.figure_ = left.figure
        self._draw_accuracies(left)
        self._draw_signals(right)
        for each in self.ax_:
            each.spines[["top", "right"]].set_visible(False)
        self._name_signals(right)
        return self

    def _draw_accuracies(self, ax):
        names = list(self.methods.index)
        for k, name in enumerate(names):
            line, color = self.methods.iloc[k], CYCLE[k % len(CYCLE)]
            if self.participants is not None:
                of_method = (self.participants["method"] == name).to_numpy()
                shares = 100 * np.sort(self.participants["accuracy"][of_method])
                ax.plot(
                    shares, k + 0.12 + _stacked(shares), ".", color=color, alpha=0.5
                )
            ax.plot(100 * line[["low", "high"]].astype(float), [k, k], color=color)
            marker = MARKERS[k % len(MARKERS)]
            ax.plot(100 * line["accuracy"], k, marker, color=color, markersize=9)
        ax.axvline(50, color=GREY, zorder=0)
        ax.set_yticks(
            range(len(names)), [literal(n, limit=40, width=20) for n in names]
        )
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_xlim(-2, 102)
        ax.set_xlabel(f"right answers (%), with intervals of {percent(self.level)}")
        if self.participants is not None:
            ax.set_title("Small dots: participants", fontsize="medium", loc="left")

    def _draw_signals(self, ax):
        for k, line in enumerate(self.methods.itertuples()):
            color, marker = CYCLE[k % len(CYCLE)], MARKERS[k % len(MARKERS)]
            x = line.criterion
            ax.plot([x, x], [line.d_prime_low, line.d_prime_high], color=color)
            ax.plot(x, line.d_prime, marker, color=color, markersize=9)
        ax.axhline(0, color=GREY, zorder=0)
        ax.axvline(0, color=GREY, zorder=0)
        ax.margins(x=0.25)
        ax.set_xlabel('criterion (to the right people rather say "unsure")')
        ax.set_ylabel("d′: how well they tell both apart")

    def _name_signals(self, ax):
        """Write the methods beside their points, where there is room."""
        self.figure_.canvas.draw()  # places depend on the final layout
        places = self.methods[["criterion", "d_prime"]].to_numpy(dtype=float)
        hidden = [ax.transData.transform(places[np.isfinite(places).all(axis=1)])]
        columns = ["criterion", "d_prime_low", "d_prime_high"]
        for x, *ends in self.methods[columns].to_numpy(dtype=float):
            if np.isfinite([x, *ends]).all():
                hidden.append(along(ax.transData.transform([(x, end) for end in ends])))
        points = np.concatenate(hidden)
        taken = []
        for k, (name, place) in enumerate(zip(self.methods.index, places, strict=True)):
            if not np.isfinite(place).all():
                continue
            text = ax.annotate(
                literal(name, limit=24),
                place,
                xytext=(0, 0),
                textcoords="offset points",
                color=CYCLE[k % len(CYCLE)],
                annotation_clip=False,
            )
            box = find_room(text, 9, taken, points)
            if box is None:
                text.remove()
            else:
                taken.append(box)


def _stacked(shares):
    """Heights of dots, so that equal ones stand above each other."""
    _, first, code = np.unique(shares.round(6), return_index=True, return_inverse=True)
    return -0.06 * (np.arange(len(shares)) - first[code.ravel()]) - 0.24
