"""What a model predicts over two features, and how sure it is."""

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from sklearn_clue import _tables
from sklearn_clue.plotting._style import (
    BLACK,
    GREEN,
    KINDS,
    MARKERS,
    PURPLE,
    RED,
    SKY,
    check_axes,
    kind_cmap,
    literal,
    new_axes,
)

__all__ = ["UncertaintyMapDisplay"]


class UncertaintyMapDisplay:
    """What a model predicts over two features, and how sure it is of it.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    grid_x : ndarray of shape (n_points,)
        The horizontal coordinates of the maps.

    grid_y : ndarray of shape (n_points,)
        The vertical ones.

    maps : dict of str to ndarray of shape (n_points, n_points)
        The maps by what they show, `"prediction"` or a kind of uncertainty; their
        first axis belongs to `grid_y`.

    titles : dict of str to str
        The title of each map, with its unit.

    points : ndarray of shape (n_samples, 2)
        The data.

    y : ndarray of shape (n_samples,) or None
        Their classes or values.

    feature_names : tuple of (str, str)
        The names of the two features.

    is_classification : bool, default=True
        Whether `y` holds classes.

    note : str, default=""
        A remark that goes with the figure.

    Attributes
    ----------
    axes_ : ndarray of Axes of shape (n_maps,)
        The axes drawn on.

    figure_ : Figure
        Their figure.

    See Also
    --------
    sklearn.inspection.DecisionBoundaryDisplay : The prediction alone.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.plotting import UncertaintyMapDisplay
    >>> grid = np.linspace(-1, 1, 3)
    >>> display = UncertaintyMapDisplay(
    ...     grid_x=grid,
    ...     grid_y=grid,
    ...     maps={"epistemic": np.abs(grid) + np.abs(grid)[:, np.newaxis]},
    ...     titles={"epistemic": "epistemic (nats)"},
    ...     points=np.zeros((1, 2)),  # far from the only row, the model knows little
    ...     y=None,
    ...     feature_names=("x0", "x1"),
    ... ).plot()
    >>> display.axes_[0].get_title()
    'epistemic (nats)'
    """

    def __init__(
        self,
        grid_x,
        grid_y,
        maps,
        titles,
        points,
        y,
        feature_names,
        is_classification=True,
        note="",
    ):
        self.grid_x = grid_x
        self.grid_y = grid_y
        self.maps = maps
        self.titles = titles
        self.points = points
        self.y = y
        self.feature_names = feature_names
        self.is_classification = is_classification
        self.note = note

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        features=(0, 1),
        responses=("prediction", "aleatoric", "epistemic"),
        grid_resolution=80,
        margin=0.2,
        ax=None,
    ):
        """Draw the maps of a fitted estimator around the data.

        Parameters
        ----------
        estimator : object
            A fitted classifier or regressor with `predict_uncertainty`.

        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            The data, shown as points. Features that are not on the map are held at
            their median, or at their most frequent value.

        y : array-like of shape (n_samples,), default=None
            Classes or values, which colour the points.

        features : tuple of two int or str, default=(0, 1)
            Positions or names of the features to map; both must be numbers.

        responses : sequence of str, default=("prediction", "aleatoric", "epistemic")
            The maps to draw, out of `"prediction"`, `"total"`, `"aleatoric"` and
            `"epistemic"`. The prediction is the probability of the second of two
            classes, the class if there are more, or the mean.

        grid_resolution : int, default=80
            The number of points along each axis.

        margin : float, default=0.2
            The room around the data, as a share of their extent.

        ax : array of Axes, default=None
            Where to draw, one per map; None makes a new figure.

        Returns
        -------
        display : UncertaintyMapDisplay
            The display, drawn.
        """
        unknown = set(responses) - {"prediction", *KINDS}
        if unknown:
            raise ValueError(
                f"responses must be out of prediction, {', '.join(KINDS)}, got "
                f"{sorted(unknown)}."
            )
        X = X if _tables.is_frame(X) else np.asarray(X)
        names = _tables.names(X)
        positions = [
            names.index(feature) if feature in names else feature
            for feature in features
        ]
        points = np.column_stack([_numbers(X, j, names) for j in positions])
        low, high = points.min(axis=0), points.max(axis=0)
        room = margin * np.where(high > low, high - low, 1.0)
        grid_x, grid_y = np.linspace(low - room, high + room, grid_resolution).T
        plane = np.stack(np.meshgrid(grid_x, grid_y), axis=-1).reshape(-1, 2)
        grid = _fill_grid(X, positions, plane)
        parts = estimator.predict_uncertainty(grid)
        classify = is_classifier(estimator)
        unit = "nats" if classify else "unit of the target"
        maps, titles = {}, {}
        for response in responses:
            if response == "prediction":
                titles[response], values = _predict(estimator, grid, classify)
            else:
                titles[response] = f"{response} ({unit})"
                values = getattr(parts, response)
            if np.ndim(values) > 1:
                raise ValueError(
                    "A map shows one output, but the estimator has "
                    f"{np.shape(values)[1]}. Fit one estimator per output."
                )
            maps[response] = np.asarray(values).reshape(len(grid_y), len(grid_x))
        held = len(names) - 2
        note = f"{held} other features held at their median" if held else ""
        return cls(
            grid_x,
            grid_y,
            maps,
            titles,
            points,
            None if y is None else np.asarray(y),
            tuple(str(names[j]) for j in positions),
            classify,
            note,
        ).plot(ax=ax)

    def plot(self, ax=None, *, cmap=None):
        """Draw.

        Parameters
        ----------
        ax : array of Axes, default=None
            Where to draw, one per map; None makes a new figure.

        cmap : str or Colormap, default=None
            Colours of the maps; probabilities have diverging ones. None gives the two
            parts of the uncertainty the colours that they have in all pictures.

        Returns
        -------
        display : UncertaintyMapDisplay
            The display itself, with `axes_` and `figure_`.
        """
        n_maps = len(self.maps)
        if ax is None:
            axes = new_axes(1, n_maps, (4.2 * n_maps, 3.6), sharex=True, sharey=True)[0]
        else:
            axes = check_axes(ax, (n_maps,), f"{n_maps} maps")
        for axis, (response, values) in zip(axes, self.maps.items(), strict=True):
            if response != "prediction" or not self.is_classification:
                self._draw_map(axis, values, cmap=cmap or kind_cmap(response))
            elif values.dtype.kind == "f":  # a probability
                self._draw_map(axis, values, cmap="PRGn", vmin=0, vmax=1)
            else:
                classes, codes = np.unique(values, return_inverse=True)
                bar = self._draw_map(
                    axis,
                    codes.reshape(values.shape),
                    cmap=cmap or kind_cmap(response),
                    vmin=-0.5,
                    vmax=len(classes) - 0.5,
                )
                bar.set_ticks(range(len(classes)))
                bar.set_ticklabels([literal(label, limit=20) for label in classes])
            self._draw_points(axis)
            axis.set_title(literal(self.titles[response], limit=40))
            axis.set_xlabel(literal(self.feature_names[0], limit=40))
        axes[0].set_ylabel(literal(self.feature_names[1], limit=40))
        if self.y is not None and self.is_classification:
            axes[0].legend(loc="best", markerscale=1.3, framealpha=0.9)
        self.axes_, self.figure_ = axes, axes[0].figure
        if self.note:
            self.figure_.supxlabel(self.note, fontsize="small")
        return self

    def _draw_map(self, ax, values, **style):
        shown = ax.pcolormesh(
            self.grid_x, self.grid_y, values, rasterized=True, **style
        )
        return ax.figure.colorbar(shown, ax=ax)

    def _draw_points(self, ax):
        style = {"s": 18, "edgecolors": "white", "linewidths": 0.6}
        if self.y is None:
            ax.scatter(*self.points.T, color=BLACK, **style)
        elif not self.is_classification:
            ax.scatter(*self.points.T, c=self.y, cmap="gray", **style)
        else:
            # Black and white next to each other stand out on any map; the colours of
            # the two parts of the uncertainty are left to these.
            colors = (BLACK, "white", SKY, RED, GREEN, PURPLE)
            for k, label in enumerate(np.unique(self.y)):
                color = colors[k % len(colors)]
                ax.scatter(
                    *self.points[self.y == label].T,
                    c=color,
                    marker=MARKERS[k % len(MARKERS)],
                    label=literal(label, limit=20),
                    **style | {"edgecolors": "white" if color == BLACK else "black"},
                )


def _numbers(X, position, names):
    """A column as floats, or an error that names it."""
    try:
        return np.asarray(_tables.arrays(X)[position], dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"A map needs two features that are numbers, but {names[position]!r} is "
            "not. Choose others with features=."
        ) from error


def _fill_grid(X, positions, plane):
    """Rows like those of X, with two features from the plane and the others fixed."""
    filled = {
        j: _fill_column(pd.Series(values).infer_objects(), len(plane))
        for j, values in enumerate(_tables.arrays(X))
        if j not in positions
    }
    filled |= dict(zip(positions, plane.T, strict=True))
    rows = np.zeros(len(plane), dtype=np.intp)
    return _tables.with_columns(_tables.take(X, rows), filled)


def _fill_column(column, n_rows):
    """The middle of a column, or the most frequent value of a category."""
    is_bool = pd.api.types.is_bool_dtype(column)
    if pd.api.types.is_numeric_dtype(column) and not is_bool:
        return np.full(n_rows, float(column.median()))
    return _tables.as_objects([column.mode().iloc[0]] * n_rows)


def _predict(estimator, grid, classify):
    if not classify:
        return "mean", estimator.predict(grid)
    proba = estimator.predict_proba(grid)
    if proba.shape[1] == 2:
        return f"P(y = {estimator.classes_[1]})", proba[:, 1]
    return "predicted class", estimator.classes_[proba.argmax(axis=1)].astype(object)
