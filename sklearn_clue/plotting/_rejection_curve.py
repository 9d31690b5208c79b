"""The error of a model as it rejects the rows it is least sure of."""

import math

import numpy as np
from sklearn.base import is_classifier

from sklearn_clue.plotting._style import CYCLE, check_kind, literal, new_axes

__all__ = ["RejectionCurveDisplay"]

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
        check_kind(kind)
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
