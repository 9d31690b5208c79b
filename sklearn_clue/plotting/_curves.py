"""Pictures of models and methods: landscapes and trade-offs of uncertainty."""

import math
from collections.abc import Mapping
from numbers import Integral

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from sklearn_clue import _tables
from sklearn_clue.explanation import Explanation, knee_index
from sklearn_clue.plotting._style import (
    BLACK,
    CYCLE,
    MARKERS,
    ORANGE,
    SKY,
    check_axes,
    literal,
    new_axes,
)

__all__ = [
    "LatentPathDisplay",
    "RejectionCurveDisplay",
    "TradeOffDisplay",
    "UncertaintyMapDisplay",
]

_KINDS = ("total", "aleatoric", "epistemic")


def _check_kind(kind):
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}.")


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

    def __init__(self, path, best, grid_x, grid_y, uncertainty, labels, title=""):
        self.path = path
        self.best = best
        self.grid_x = grid_x
        self.grid_y = grid_y
        self.uncertainty = uncertainty
        self.labels = labels
        self.title = title

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
        _check_kind(kind)
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
        label = _measure_label(chosen, kind)
        # Of the whole explanation: a slice counts from zero again.
        name = explanation._labels[row]
        title = f"row {name}" if isinstance(name, Integral) else str(name)
        return cls(
            path, best, grid_x, grid_y, uncertainty, (*labels, label), title
        ).plot(ax=ax)

    def plot(self, ax=None, *, cmap="cividis"):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure.

        cmap : str or Colormap, default="cividis"
            Colours of the uncertainty.

        Returns
        -------
        display : LatentPathDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.4, 4.8))[0, 0]
        landscape = ax.pcolormesh(
            self.grid_x, self.grid_y, self.uncertainty, cmap=cmap, shading="gouraud"
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
            **outline | {"marker": "*", "markersize": 16, "color": ORANGE},
        )
        x, y, label = self.labels
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(literal(self.title, limit=60), loc="left")
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


def _measure_label(explanation, kind):
    name = "" if kind == "total" else f"{kind} "
    if explanation.is_classification:
        return f"{name}entropy (nats)"
    return f"{name}standard deviation (unit of the target)"


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
        unknown = set(responses) - {"prediction", *_KINDS}
        if unknown:
            raise ValueError(
                f"responses must be out of prediction, {', '.join(_KINDS)}, got "
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

    def plot(self, ax=None, *, cmap="cividis"):
        """Draw.

        Parameters
        ----------
        ax : array of Axes, default=None
            Where to draw, one per map; None makes a new figure.

        cmap : str or Colormap, default="cividis"
            Colours of the maps; probabilities have diverging ones.

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
                self._draw_map(axis, values, cmap=cmap)
            elif values.dtype.kind == "f":  # a probability
                self._draw_map(axis, values, cmap="PuOr", vmin=0, vmax=1)
            else:
                classes, codes = np.unique(values, return_inverse=True)
                bar = self._draw_map(
                    axis,
                    codes.reshape(values.shape),
                    cmap=cmap,
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
        style = {"s": 16, "edgecolors": "white", "linewidths": 0.5}
        if self.y is None:
            ax.scatter(*self.points.T, color=BLACK, **style)
        elif not self.is_classification:
            ax.scatter(*self.points.T, c=self.y, cmap="gray", **style)
        else:
            # Black and white next to each other stand out on any map.
            colors = (BLACK, SKY, ORANGE, *CYCLE[2:])
            for k, label in enumerate(np.unique(self.y)):
                ax.scatter(
                    *self.points[self.y == label].T,
                    color=colors[k % len(colors)],
                    marker=MARKERS[k % len(MARKERS)],
                    label=literal(label, limit=20),
                    **style,
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
        _check_kind(kind)
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
        label = f"mean fall of {_measure_label(sequence[0], kind)}"
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
        lines = np.concatenate(
            [
                _along(self.ax_.transData.transform(curve[["distance", "explained"]]))
                for curve in self.curves.values()
            ]
        )
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
                box = _find_room(text, 11 if line.is_knee else 7, taken, lines)
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


def _along(points, step=5.0):
    """Points along a broken line in pixels, so close that no text fits between."""
    pieces = [points]
    for start, stop in zip(points[:-1], points[1:], strict=True):
        n_steps = int(np.hypot(*(stop - start)) / step) + 1
        pieces.append(np.linspace(start, stop, n_steps))
    return np.concatenate(pieces)


def _find_room(text, gap, taken, points):
    """Move a text to a side of its point where it hides nothing; return its box."""
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
        if not inside.any() and not any(box.overlaps(other) for other in taken):
            return box
    return None


_RANDOM = "rejecting at random"


class RejectionCurveDisplay:
    """Error among the rows a model keeps, as it rejects those it is least sure of.

    A model that knows what it does not know has a curve that falls; rejecting rows at
    random would leave the error where it is.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one.

    Parameters
    ----------
    share_rejected : ndarray of shape (n_points,)
        The share of the rows rejected.

    error : ndarray of shape (n_points,)
        The error among the others.

    metric_name : str, default="error"
        Name of the error.

    name : str, default=None
        Name of the curve.

    Attributes
    ----------
    ax_ : Axes
        The axes drawn on.

    figure_ : Figure
        Its figure.

    line_ : Line2D
        The curve.

    random_line_ : Line2D
        The error of rejecting at random.

    See Also
    --------
    sklearn.calibration.CalibrationDisplay : Whether probabilities are what they say.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.plotting import RejectionCurveDisplay
    >>> display = RejectionCurveDisplay.from_predictions(
    ...     y_true=[0, 1, 1, 0], y_pred=[0, 1, 1, 1], uncertainty=[0.1, 0.2, 0.3, 0.6]
    ... )
    >>> display.share_rejected, display.error
    (array([0.  , 0.25, 0.5 , 0.75]), array([0.25, 0.  , 0.  , 0.  ]))
    """

    def __init__(self, share_rejected, error, metric_name="error", name=None):
        self.share_rejected = share_rejected
        self.error = error
        self.metric_name = metric_name
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, metric=None, kind="total", name=None, ax=None
    ):
        """Draw the curve of a fitted estimator on new rows.

        Parameters
        ----------
        estimator : object
            A fitted estimator with `predict` and `predict_uncertainty`.

        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows the estimator was not fitted on.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        metric : callable, default=None
            Function `metric(y_true, y_pred)` that returns an error. None means the
            share of wrong classes for a classifier, the root mean squared error
            otherwise.

        kind : {"total", "aleatoric", "epistemic"}, default="total"
            The uncertainty to reject by.

        name : str, default=None
            Name of the curve; None means the class of the estimator.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : RejectionCurveDisplay
            The display, drawn.
        """
        _check_kind(kind)
        if metric is None:
            metric = _error_rate if is_classifier(estimator) else _root_mean_square
        return cls.from_predictions(
            y,
            estimator.predict(X),
            getattr(estimator.predict_uncertainty(X), kind),
            metric=metric,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls, y_true, y_pred, uncertainty, *, metric=None, name=None, ax=None
    ):
        """Draw the curve of predictions and their uncertainties.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
            The targets.

        y_pred : array-like of the shape of `y_true`
            The predictions.

        uncertainty : array-like of shape (n_samples,) or (n_samples, n_outputs)
            How unsure each prediction is; several outputs are added up.

        metric : callable, default=None
            Function `metric(y_true, y_pred)` that returns an error. None means the
            root mean squared error if the targets are floats, the share of wrong
            predictions otherwise.

        name : str, default=None
            Name of the curve.

        ax : Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : RejectionCurveDisplay
            The display, drawn.
        """
        y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
        uncertainty = np.asarray(uncertainty, dtype=float)
        if uncertainty.ndim == 2:
            uncertainty = uncertainty.sum(axis=1)
        n_samples = len(y_true)
        if not n_samples == len(y_pred) == len(uncertainty) or n_samples == 0:
            raise ValueError(
                "y_true, y_pred and uncertainty need one entry per row, got "
                f"{n_samples}, {len(y_pred)} and {len(uncertainty)}."
            )
        if metric is None:
            metric = _root_mean_square if y_true.dtype.kind == "f" else _error_rate
        surest_first = np.argsort(uncertainty, kind="stable")
        # The error of a handful of rows is noise: a twentieth of them stays.
        fewest = math.ceil(n_samples / 20)
        n_kept = np.unique(np.linspace(fewest, n_samples, 100).round().astype(int))
        n_kept = n_kept[::-1]
        error = [
            metric(y_true[surest_first[:n]], y_pred[surest_first[:n]]) for n in n_kept
        ]
        metric_name = getattr(metric, "__name__", "error").strip("_").replace("_", " ")
        share_rejected = 1 - n_kept / n_samples
        display = cls(share_rejected, np.array(error, dtype=float), metric_name, name)
        return display.plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a new figure. Several curves may share axes.

        Returns
        -------
        display : RejectionCurveDisplay
            The display itself, with `ax_` and `figure_`.
        """
        if ax is None:
            ax = new_axes(1, 1, (6.0, 4.0))[0, 0]
        name = None if self.name is None else literal(self.name, limit=40)
        (self.line_,) = ax.plot(
            100 * self.share_rejected,
            self.error,
            label=name or "rejecting the least sure",
            color=CYCLE[sum(line.get_linestyle() == "-" for line in ax.lines) % 7],
        )
        # One entry in the legend says what all the dashed lines are.
        is_said = any(line.get_label() == _RANDOM for line in ax.lines)
        self.random_line_ = ax.axhline(
            self.error[0],
            color=self.line_.get_color(),
            linestyle="--",
            linewidth=1,
            label=None if is_said else _RANDOM,
        )
        ax.set_xlim(0, 100)
        if self.error.min() >= 0:  # an error has a natural zero, and the legend room
            top = max(np.max(line.get_ydata()) for line in ax.lines)
            n_entries = len(ax.get_legend_handles_labels()[1])
            ax.set_ylim(0.0, (1.1 + 0.1 * n_entries) * top or 1.0)
        ax.set_xlabel("rows rejected, most uncertain first (%)")
        ax.set_ylabel(f"{literal(self.metric_name)} among the rows kept")
        ax.legend(loc="upper right")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _error_rate(y_true, y_pred):
    return np.mean(y_true != y_pred)


def _root_mean_square(y_true, y_pred):
    return np.sqrt(np.mean((y_true - y_pred) ** 2))


_root_mean_square.__name__ = "root mean squared error"
