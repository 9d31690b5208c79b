"""A noise level for any regressor."""

import numpy as np
from scipy.special import ndtri
from sklearn.base import (
    BaseEstimator,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
    is_classifier,
)
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, check_cv, cross_val_predict
from sklearn.utils import check_array, check_consistent_length, column_or_1d, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from sklearn_clue._tables import check_rows
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    _fit_context,
    _routing_enabled,
    check_weights,
    naming,
)
from sklearn_clue.persistence import VersionedState

__all__ = ["PredictedNoiseRegressor"]

# Mean of the logarithm of the square of a standard normal number: -(gamma + log 2).
LOG_SQUARE = -(np.euler_gamma + np.log(2))

# Errors that happen to be zero have no logarithm, and single ones next to zero would
# weigh much. This share of them counts as the largest among these.
SMALLEST = 0.01


class PredictedNoiseRegressor(
    DocLinkMixin, VersionedState, MetaEstimatorMixin, RegressorMixin, BaseEstimator
):
    """Predict how far off any regressor will be, row by row.

    The regressor predicts the mean. A second model learns, on a logarithmic scale, how
    large the squared errors are that the regressor makes on rows held out from it.

    Parameters
    ----------
    estimator : estimator
        The regressor, a pipeline for example. It is given tables as they are. One that
        is fitted, in a :class:`~sklearn.frozen.FrozenEstimator`, is not fitted again:
        fit this on rows that it has not seen then.

    noise_estimator : estimator or None, default=None
        The regressor of the noise; None means one like `estimator`, or like what a
        :class:`~sklearn.compose.TransformedTargetRegressor` holds.

    cv : int, splitter or iterable, default=5
        How rows are held out, each of them once. A number means so many folds of
        shuffled rows, the same ones each time.

    Attributes
    ----------
    estimator_ : estimator
        The regressor, fitted on all rows.

    noise_estimator_ : estimator
        The model of the logarithms of squared errors.

    noise_trust_ : float
        How much of what `noise_estimator_` says held on rows that it had not seen: 1 if
        all of it did, and 0 if the noise might as well be the same everywhere. Its
        predictions are drawn towards their mean accordingly.

    noise_level_ : float
        The noise where `noise_estimator_` predicts zero, as the logarithm of a
        variance.

    noise_range_ : tuple of float
        The least and the largest prediction of `noise_estimator_` that is believed:
        those for training rows that were held out.

    scores_ : ndarray of shape (n_samples,)
        Absolute errors on held-out rows in units of the predicted noise, in ascending
        order, of which intervals are made.

    score_levels_ : ndarray of shape (n_samples,)
        Which share of the rows has at most this score.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where they are all strings.

    See Also
    --------
    BayesianMLPRegressor : Also knows what it does not know.
    sklearn.ensemble.BaggingRegressor : Unsure where models of samples disagree.

    Notes
    -----
    What is predicted is noise as the regressor meets it: where it fits badly, that
    counts as well. There is no epistemic part. Errors are taken for normal when their
    logarithms are turned into standard deviations; intervals rest on the errors as
    they were.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn_clue import PredictedNoiseRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 3, size=(2000, 1))
    >>> y = 5 * X[:, 0] + np.exp(X[:, 0] - 1) * rng.normal(size=2000)
    >>> model = PredictedNoiseRegressor(LinearRegression()).fit(X, y)
    >>> mean, std = model.predict([[1.0], [2.0]], return_std=True)
    >>> std.round(1)  # the truth is 1 and 2.7
    array([1. , 2.9])
    >>> model.predict_interval([[1.0], [2.0]], coverage=0.8).round(0)
    array([[ 4.,  6.],
           [ 6., 13.]])
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "noise_estimator": [HasMethods(["fit", "predict"]), None],
        "cv": ["cv_object"],
    }

    def __init__(self, estimator, noise_estimator=None, cv=5):
        self.estimator = estimator
        self.noise_estimator = noise_estimator
        self.cv = cv

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, **fit_params):
        """Fit the regressor, and the model of its errors.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Target values.

        **fit_params : dict
            Metadata such as `sample_weight`: for the estimators that take it, or
            routed as requested if metadata routing is enabled.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        X = check_rows(self, X, reset=True)
        y = self._read_targets(y)
        check_consistent_length(X, y)
        self._check_regressor()
        params = self._route(fit_params)
        weight = check_weights(fit_params.get("sample_weight"), X)
        folds = self._folds(X, y)
        self.estimator_ = clone(self.estimator).fit(X, y, **params["estimator"])
        errors = y - _held_out(self.estimator, X, y, folds, params["estimator"])
        target = _log_squares(errors)
        noise = self._resolve_noise()
        self.noise_estimator_ = clone(noise).fit(X, target, **params["noise_estimator"])
        told = _held_out(noise, X, target, folds, params["noise_estimator"])
        self._learn_trust(told, target, weight)
        deviation = self._deviation(told)
        # A regressor that is always right has no noise, and no scores.
        scores = np.abs(errors) / np.where(deviation > 0, deviation, 1.0)
        order = np.argsort(scores, kind="stable")
        self.scores_ = scores[order]
        self.score_levels_ = np.cumsum(weight[order]) / (weight.sum() + weight.mean())
        return self

    def _read_targets(self, y):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        with naming("y"):
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
            if y.ndim == 2 and y.shape[1] > 1:
                raise ValueError(
                    f"{type(self).__name__} predicts the noise of one target, got y of "
                    f"shape {y.shape}. Fit one for each target."
                )
            return column_or_1d(y, warn=True)

    def _check_regressor(self):
        for name in ("estimator", "noise_estimator"):
            part = getattr(self, name)
            if hasattr(part, "__sklearn_tags__") and is_classifier(part):
                raise TypeError(
                    f"{name} must be a regressor, got {type(part).__name__}, which "
                    "predicts classes. How sure a classifier is, its predict_proba "
                    "says."
                )

    def _folds(self, X, y):
        cv = self.cv
        if isinstance(cv, int):
            # Tables are often sorted, and folds of neighbours would extrapolate.
            cv = KFold(cv, shuffle=True, random_state=0)
        folds = list(check_cv(cv, y).split(X, y))
        held_out = np.concatenate([test for _, test in folds])
        if not np.array_equal(np.sort(held_out), np.arange(len(y))):
            raise ValueError(
                f"cv must hold out every row once, got {self.cv!r}. Take a number of "
                "folds, or a splitter such as KFold or GroupKFold."
            )
        return folds

    def _learn_trust(self, told, target, weight):
        """The line from what the noise model says of new rows to what is true."""
        gaps = told - np.average(told, weights=weight)
        spread = np.average(gaps**2, weights=weight)
        slope = 0.0
        if spread > 0:
            slope = np.average(gaps * target, weights=weight) / spread
        self.noise_trust_ = float(np.clip(slope, 0.0, 1.0))
        self.noise_level_ = float(
            np.average(target - self.noise_trust_ * told, weights=weight) - LOG_SQUARE
        )
        self.noise_range_ = (float(told.min()), float(told.max()))

    def _deviation(self, told):
        told = np.clip(told, *self.noise_range_)
        return np.exp(0.5 * (self.noise_level_ + self.noise_trust_ * told))

    def _resolve_noise(self):
        if self.noise_estimator is not None:
            return self.noise_estimator
        estimator = self.estimator
        while isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        if isinstance(estimator, TransformedTargetRegressor):
            # It turns targets around, and the noise is another target.
            inner = estimator.regressor
            estimator = LinearRegression() if inner is None else inner
        return estimator

    def predict(self, X, return_std=False):
        """Predict means, and how far off they may be.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        return_std : bool, default=False
            Whether to return the standard deviation of the noise as well.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predicted means.

        std : ndarray of shape (n_samples,)
            Standard deviations in the unit of the target, if `return_std`.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        mean = np.asarray(self.estimator_.predict(X), dtype=np.float64).reshape(-1)
        if not return_std:
            return mean
        return mean, self._deviation(self.noise_estimator_.predict(X).reshape(-1))

    def predict_noise(self, X):
        """Predict the noise.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        std : ndarray of shape (n_samples,)
            Standard deviations in the unit of the target.
        """
        return self.predict(X, return_std=True)[1]

    def predict_interval(self, X, coverage=0.9):
        """Predict central intervals that hold the target with a given probability.

        They are as many standard deviations wide as it took to hold that share of the
        rows that were held out.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        coverage : float, default=0.9
            Probability of the interval, between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2)
            Lower and upper bounds.
        """
        if not 0 < coverage < 1:
            raise ValueError(
                f"coverage must be between 0 and 1, both excluded, got {coverage!r}."
            )
        mean, std = self.predict(X, return_std=True)
        position = np.searchsorted(self.score_levels_, coverage)
        if position < len(self.scores_):
            width = self.scores_[position]
        else:  # too few rows to tell: as far out as a normal number is
            width = max(self.scores_[-1], ndtri((1 + coverage) / 2))
        return np.stack([mean - width * std, mean + width * std], axis=-1)

    def get_metadata_routing(self):
        """Get the metadata routing of this object.

        Returns
        -------
        routing : MetadataRouter
            `fit` passes metadata to the estimators that request it.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self)
        router.add(estimator=self.estimator, method_mapping=mapping)
        return router.add(noise_estimator=self._resolve_noise(), method_mapping=mapping)

    def _route(self, fit_params):
        names = ("estimator", "noise_estimator")
        if not fit_params:
            return {name: {} for name in names}
        if _routing_enabled():
            routed = process_routing(self, "fit", **fit_params)
            return {name: dict(routed[name].fit) for name in names}
        if self.noise_estimator is None:
            return {name: fit_params for name in names}
        taken = {
            name: value
            for name, value in fit_params.items()
            if has_fit_parameter(self.noise_estimator, name)
        }
        return {"estimator": fit_params, "noise_estimator": taken}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = get_tags(self.estimator)
            tags.input_tags.allow_nan = inner.input_tags.allow_nan
            tags.non_deterministic = inner.non_deterministic
        tags.input_tags.sparse = False
        return tags


def _log_squares(errors):
    squares = np.square(errors)
    positive = squares[squares > 0]
    # All errors may be zero: then the noise is as small as numbers get.
    least = np.quantile(positive, SMALLEST) if len(positive) else 0.0
    return np.log(np.maximum(squares, max(least, np.finfo(np.float64).tiny)))


def _held_out(estimator, X, y, folds, params):
    """Predictions for rows by copies of an estimator that have not seen them."""
    told = cross_val_predict(clone(estimator), X, y, cv=folds, params=params)
    return np.asarray(told, dtype=np.float64).reshape(-1)
