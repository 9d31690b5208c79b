"""The way a search took, over the uncertainty behind it."""

import numpy as np

from sklearn_clue import _facts, _words
from sklearn_clue.explanation import Explanation
from sklearn_clue.plotting._style import (
    check_kind,
    kind_cmap,
    measure_label,
    new_axes,
    titled,
)

__all__ = ["LatentPathDisplay"]


class LatentPathDisplay:
    """The way a search took through latent space, over the uncertainty behind it.

    With two latents the picture is the latent space itself. With more it is the plane
    that holds the start, the result, and the direction in which the path strays most
    from the line between them; other steps are projected onto it.

    Use :meth:`from_explainer` to make one.

    Parameters
    ----------
    path : ndarray of shape (n_steps + 1, 2)
        The steps in the plane, from the start on.

    best : int
        The step that was returned.

    grid_x : ndarray of shape (n_points,)
        The horizontal coordinates of the landscape.

    grid_y : ndarray of shape (n_points,)
        The vertical ones.

    uncertainty : ndarray of shape (n_points, n_points)
        The uncertainty at `grid_y` (first axis) and `grid_x`.

    labels : tuple of (str, str, str)
        Name of the horizontal axis, of the vertical one, and of the uncertainty.

    title : str, default=""
        The title.

    kind : {"total", "aleatoric", "epistemic"}, default="total"
        The uncertainty shown, which decides on its colours.

    Attributes
    ----------
    ax_ : Axes
        The axes drawn on.

    figure_ : Figure
        Its figure.

    See Also
    --------
    sklearn_clue.explanation.SearchPath : The path, in all its dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.plotting import LatentPathDisplay
    >>> x = y = np.linspace(-1, 1, 5)
    >>> display = LatentPathDisplay(
    ...     path=np.array([[0.8, 0.8], [0.4, 0.3], [0.1, 0.0]]),
    ...     best=2,
    ...     grid_x=x,
    ...     grid_y=y,
    ...     uncertainty=np.hypot(x, y[:, np.newaxis]),
    ...     labels=("latent 0", "latent 1", "entropy (nats)"),
    ... ).plot()
    >>> display.ax_.get_xlabel()
    'latent 0'
    """

    def __init__(
        self,
        path,
        best,
        grid_x,
        grid_y,
        uncertainty,
        labels,
        title="",
        kind="total",
    ):
        self.path = path
        self.best = best
        self.grid_x = grid_x
        self.grid_y = grid_y
        self.uncertainty = uncertainty
        self.labels = labels
        self.title = title
        self.kind = kind

    @classmethod
    def from_explainer(
        cls,
        explainer,
        explanation,
        *,
        row=0,
        kind="total",
        grid_resolution=50,
        margin=0.4,
        ax=None,
    ):
        """Draw the path of one row.

        Parameters
        ----------
        explainer : object
            A fitted explainer with a method `latent_uncertainty(Z)` that returns the
            `Uncertainty` of what latents decode to.

        explanation : Explanation, or {ndarray, DataFrame} of shape (n_rows, n_features)
            What the explainer returned, with a `path`; or rows for it to explain.

        row : int, default=0
            The position of the row to draw.

        kind : {"total", "aleatoric", "epistemic"}, default="total"
            The uncertainty to show.

        grid_resolution : int, default=50
            The number of points along each axis of the landscape.

        margin : float, default=0.4
            The room around the path, as a share of its extent.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : LatentPathDisplay
            The display, drawn.
        """
        check_kind(kind)
        if not isinstance(explanation, Explanation):
            explanation = explainer.explain(explanation)
        if explanation.path is None:
            raise ValueError(
                "This explanation holds no path, since its method does not search a "
                "latent space. Explain with CLUEExplainer."
            )
        chosen = explanation[row]
        latents, objective = chosen.path.latents[0], chosen.path.objective[0]
        taken = np.isfinite(latents).all(axis=1)
        latents, objective = latents[taken], objective[taken]
        if latents.shape[1] < 2:
            raise ValueError(
                "The picture of a path needs at least 2 latents, got 1. Plot "
                "explanation.path.latents against explanation.path.objective."
            )
        # Should no step have an objective, the last one is the result.
        known = np.isfinite(objective).any()
        best = int(np.nanargmin(objective)) if known else len(latents) - 1
        origin, axes, labels = _plane(latents, best)
        path = (latents - origin) @ axes.T
        grid_x, grid_y = (_around(path[:, axis], margin, path) for axis in (0, 1))
        grid_x, grid_y = (
            np.linspace(*ends, grid_resolution) for ends in (grid_x, grid_y)
        )
        plane = np.stack(np.meshgrid(grid_x, grid_y), axis=-1).reshape(-1, 2)
        parts = explainer.latent_uncertainty(origin + plane @ axes)
        uncertainty = np.asarray(getattr(parts, kind)).reshape(len(grid_y), -1)
        label = measure_label(chosen, kind)
        facts = chosen.to_dict()
        # Called as in the whole explanation: a slice counts from zero again.
        facts["rows"][0]["row"] = _facts.plain(explanation._labels[row])
        title = _words.title(facts["rows"][0], facts)
        return cls(
            path, best, grid_x, grid_y, uncertainty, (*labels, label), title, kind
        ).plot(ax=ax)

    def plot(self, ax=None, *, cmap=None):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure.

        cmap : str or Colormap, default=None
            Colours of the uncertainty. None means `"cividis"`, or the colour that a
            part of the uncertainty has in all pictures.

        Returns
        -------
        display : LatentPathDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.4, 4.8))[0, 0]
        landscape = ax.pcolormesh(
            self.grid_x,
            self.grid_y,
            self.uncertainty,
            cmap=cmap or kind_cmap(self.kind),
            shading="gouraud",
        )
        if np.ptp(self.uncertainty) > 0:
            ax.contour(
                self.grid_x,
                self.grid_y,
                self.uncertainty,
                colors="white",
                linewidths=0.6,
                alpha=0.5,
            )
        outline = {"markeredgecolor": "black", "color": "white", "linestyle": "none"}
        ax.plot(*self.path.T, color="black", linewidth=3.5)
        ax.plot(*self.path.T, color="white", linewidth=1.5, marker=".", markersize=5)
        ax.plot(*self.path[0], marker="o", markersize=10, label="start", **outline)
        ax.plot(
            *self.path[self.best],
            label="result",
            **outline | {"marker": "*", "markersize": 18},
        )
        x, y, label = self.labels
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(titled(self.title, limit=70), loc="left", fontsize="medium")
        ax.legend(loc="best", facecolor="white", framealpha=0.9)
        self.ax_, self.figure_ = ax, ax.figure
        self.figure_.colorbar(landscape, ax=ax, label=label)
        return self


def _plane(latents, best):
    """A point and two directions that hold a path best, and the names of the two."""
    start, dim = latents[0], latents.shape[1]
    if dim == 2:
        return np.zeros(2), np.eye(2), ("latent 0", "latent 1")
    moves = latents - start
    first = moves[best]
    if not first.any():  # nothing gained: take the direction of the wandering
        first = np.linalg.svd(moves)[2][0]
    first = first / np.linalg.norm(first)
    strays = moves - np.outer(moves @ first, first)
    second = np.linalg.svd(strays)[2][0]
    if np.abs(strays).max() <= 1e-9 * np.abs(moves).max():
        # A straight path lies in many planes: add the axis most across it.
        second = np.eye(dim)[np.abs(first).argmin()]
    second = second - (second @ first) * first
    labels = (
        f"from start to result ({dim} latents, projected)",
        "main direction across it",
    )
    return start, np.stack([first, second / np.linalg.norm(second)]), labels


def _around(values, margin, path):
    """Both ends of an axis around a path, never much narrower than the other axis."""
    extent = np.ptp(path, axis=0).max() or 1.0
    middle = (values.min() + values.max()) / 2
    half = max(np.ptp(values), 0.5 * extent) / 2 + margin * extent
    return middle - half, middle + half
