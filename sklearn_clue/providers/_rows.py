"""Models that are asked about rows of a table, and answer with values only.

Every class is a `TableProvider`; `providers.as_provider` says which model becomes
which. What an answer must look like is checked here, whoever gives it.
"""

import copy

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scipy.special import entr, ndtri
from sklearn.gaussian_process.kernels import Product, Sum, WhiteKernel

from sklearn_clue._torch import PRECISE_DTYPE, as_tensor, one_thread, pad_rows
from sklearn_clue.uncertainty import Uncertainty

# What probabilities may be off by, for models that compute in single precision.
TOLERANCE = 1e-3


class RowsProvider:
    """A model that is asked about rows; what its kinds have in common.

    Subclasses answer in `_answer(X)`. The attribute `has_epistemic` says whether they
    know what they do not know; the epistemic part of others is zero.

    Parameters
    ----------
    name : str
        What errors call the model.

    is_classification : bool
        Whether it predicts classes; else numbers.

    feature_names : list of str or None, default=None
        Names of its columns, where it was fitted on a table.
    """

    takes_tables = True
    is_differentiable = False
    has_epistemic = True
    center, scale, threshold = 0.0, 1.0, None

    def __init__(self, name, is_classification, feature_names=None):
        self.name = name
        self.is_classification = is_classification
        self.feature_names = feature_names

    def uncertainty_of_rows(self, X):
        """Judge rows of a table; see `TableProvider`."""
        X = self._named(X)
        parts, prediction = self._answer(X)
        if len(prediction) != n_rows(X):
            raise ValueError(
                f"{self.name} answers about {len(prediction)} rows when asked about "
                f"{n_rows(X)}. A model or a step of it drops or adds rows; let it keep "
                "them, for example by imputing instead of dropping."
            )
        if self.is_classification:
            check_probabilities(self.name, prediction)
        check_finite(self.name, parts, prediction)
        return Uncertainty(*(np.asarray(part, np.float64) for part in parts)), (
            np.asarray(prediction, dtype=np.float64)
        )

    def _named(self, X):
        """Give arrays the names that the model was fitted with."""
        if isinstance(X, np.ndarray) and self.feature_names is not None:
            X = pd.DataFrame(X, columns=self.feature_names)
            return X.infer_objects()  # objects may be numbers
        return X

    def total_of_rows(self, X):
        """Tell the total uncertainty of rows alone, which may take less.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows like those that `uncertainty_of_rows` has taken.

        Returns
        -------
        total : ndarray of shape (n_rows,)
            To the last bit as `uncertainty_of_rows` tells it.
        """
        return self.uncertainty_of_rows(X)[0].total

    def uncertainty(self, x):
        """Judge rows that are numbers throughout; see `UncertaintyProvider`."""
        parts, prediction = self.uncertainty_of_rows(x.detach().cpu().numpy())
        parts = Uncertainty(*(torch.as_tensor(part) for part in parts))
        return parts, torch.as_tensor(prediction)

    def learn(self, X, y):
        """Look at the rows that the model was fitted on, to judge noise by them.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows, in the order of the fit.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        is_used : bool
            Whether it changed anything: the model must have a use for them, and be
            fitted on these very rows.
        """
        return False

    def out_of_bag(self, X, y):
        """Judge the training rows as if they were new, for a threshold that holds.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows, in the order of the fit.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        parts : Uncertainty or None
            Of the rows that can be judged without what is known about them from the
            fit, in their order, in the unit of the target. None if members have not
            left out any rows, or other rows were fitted.
        """
        return None


# What all answers have to be ---------------------------------------------------------


def n_rows(X):
    """Number of rows of a table, also of a sparse one."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def check_probabilities(name, proba):
    """Refuse what are no probabilities."""
    total = proba.sum(1)
    if (proba < -TOLERANCE).any() or np.abs(total - 1).max(initial=0) > TOLERANCE:
        worst = np.argmax(np.abs(total - 1) + (proba < -TOLERANCE).any(1))
        raise ValueError(
            f"{name} must answer with probabilities, which add up to 1, got "
            f"{proba[worst].round(3).tolist()}. Mend its predict_proba, or calibrate "
            "it: sklearn.calibration.CalibratedClassifierCV."
        )


def check_finite(name, parts, prediction):
    """Refuse answers that are no numbers."""
    answers = (("a prediction", prediction), ("an uncertainty", parts.total))
    for what, values in answers:
        is_bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if is_bad.any():
            raise ValueError(
                f"{name} answers with {what} that is not finite for "
                f"{is_bad.sum()} of {len(is_bad)} rows, the first of them row "
                f"{np.argmax(is_bad)}: got {values[np.argmax(is_bad)]}. Look at these "
                "rows, or take a model that answers about all of them."
            )


def as_columns(values):
    """Numbers with one column per target."""
    values = np.asarray(values, dtype=np.float64)
    return values.reshape(len(values), -1)


def as_numbers(X):
    """A table of numbers as one array, in double precision."""
    return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=np.float64)


def length(deviation):
    """Of several targets, the length of the vector of standard deviations."""
    return np.sqrt(np.square(as_columns(deviation)).sum(1))


# One model ---------------------------------------------------------------------------


class ProbabilityRows(RowsProvider):
    """A classifier with `predict_proba`, which does not know what it does not know."""

    has_epistemic = False

    def __init__(self, model, name, feature_names=None):
        super().__init__(name, True, feature_names)
        self.model = model
        self.threshold = _own_threshold(model)

    def _answer(self, X):
        proba = self.model.predict_proba(X)
        if isinstance(proba, list) or np.ndim(proba) != 2:
            shape = "a list" if isinstance(proba, list) else f"shape {np.shape(proba)}"
            raise ValueError(
                f"predict_proba of {self.name} must answer with one probability per "
                f"row and class, got {shape}. Labels alone say nothing about how sure "
                "a model is, and several labels per row need one model each."
            )
        proba = np.asarray(proba, dtype=np.float64)
        total = entr(proba.clip(min=0)).sum(1)
        return Uncertainty(total, total.copy(), np.zeros(len(total))), proba


def _own_threshold(model):
    """The probability above which a model with a threshold predicts its second class.

    As FixedThresholdClassifier and TunedThresholdClassifierCV of scikit-learn do.
    """
    threshold = getattr(model, "best_threshold_", getattr(model, "threshold", None))
    if not isinstance(threshold, float):
        return None
    is_plain = getattr(model, "response_method", None) in ("auto", "predict_proba")
    is_second = getattr(model, "pos_label", None) in (None, model.classes_[-1])
    # They say "at least".
    return np.nextafter(threshold, -1) if is_plain and is_second else None


class SpreadRows(RowsProvider):
    """A regressor that tells how far off it may be.

    Parameters
    ----------
    model : object
        The fitted model.

    read : callable
        `read(model, X)` gives means, standard deviations of the predictions, and those
        of the noise, with one column per target.
    """

    def __init__(self, model, read, name, feature_names=None):
        super().__init__(name, False, feature_names)
        self.model = model
        self.read = read
        is_noise = read in (read_mean, read_distribution, read_variance)
        self.has_epistemic = not (is_noise or hasattr(model, "predict_noise"))

    def _answer(self, X):
        mean, std, noise = map(as_columns, self.read(self.model, X))
        if (std < 0).any():
            raise ValueError(
                f"A standard deviation cannot be negative, got {std.min():.3g} from "
                f"{self.name}. Mend the model."
            )
        total, aleatoric = length(std), length(np.minimum(noise, std))
        rest = np.sqrt((total**2 - aleatoric**2).clip(min=0))
        return Uncertainty(total, aleatoric, rest), mean


def read_mean(model, X):
    """Read a regressor that predicts nothing but a mean."""
    mean = model.predict(X)
    return mean, np.zeros_like(mean), np.zeros_like(mean)


def read_return_std(model, X):
    """Read `predict(X, return_std=True)`, and `predict_noise` where there is one."""
    mean, std = model.predict(X, return_std=True)
    if hasattr(model, "predict_noise"):
        return mean, std, model.predict_noise(X)
    return mean, std, np.zeros_like(std)


def read_precision(model, X):
    """Read a Bayesian linear model, which learns the precision of the noise."""
    mean, std = model.predict(X, return_std=True)
    return mean, std, np.full_like(std, model.alpha_**-0.5)


def read_gaussian_process(model, X):
    """Read a Gaussian process: its noise is what WhiteKernel stands for."""
    mean, std = model.predict(X, return_std=True)
    quiet = copy.copy(model)
    quiet.kernel_ = _without_noise(model.kernel_)
    if quiet.kernel_ is model.kernel_:
        return mean, std, np.zeros_like(std)
    _, rest = quiet.predict(X, return_std=True)
    return mean, std, np.sqrt((std**2 - rest**2).clip(min=0))


def _without_noise(kernel):
    """A kernel with its white noise silenced; itself if it has none."""
    if isinstance(kernel, WhiteKernel):
        # Kernels keep the logarithm of the level, so that zero is out of reach.
        return WhiteKernel(np.finfo(np.float64).tiny)
    if isinstance(kernel, Sum | Product):
        parts = [_without_noise(part) for part in (kernel.k1, kernel.k2)]
        if parts[0] is kernel.k1 and parts[1] is kernel.k2:
            return kernel
        return type(kernel)(*parts)
    return kernel


def read_distribution(model, X):
    """Read `pred_dist(X)`, as NGBoost has it: a distribution of scipy's manners."""
    given = model.pred_dist(X)
    mean, std = (
        value() if callable(value) else value
        for value in (
            getattr(given, "mean", None) or given.loc,
            getattr(given, "std", None) or given.scale,
        )
    )
    return mean, std, std


def read_variance(model, X):
    """Read `predict_var(X)`, as skpro has it."""
    std = np.sqrt(np.asarray(model.predict_var(X), dtype=np.float64))
    return model.predict(X), std, std


class QuantileRows(RowsProvider):
    """Regressors of several quantiles of one target.

    Half of the central interval is so many standard deviations of a normal
    distribution; the outermost two of the quantiles are taken.

    Parameters
    ----------
    models : list of estimators
        The fitted models.

    levels : list of float
        Their quantiles, between 0 and 1.
    """

    has_epistemic = False

    def __init__(self, models, levels, name, feature_names=None):
        super().__init__(name, False, feature_names)
        order = np.argsort(levels)
        self.models = [models[position] for position in order]
        self.levels = [levels[position] for position in order]

    def _answer(self, X):
        low, high = (
            as_columns(m.predict(X)) for m in (self.models[0], self.models[-1])
        )
        width = ndtri(self.levels[-1]) - ndtri(self.levels[0])
        # Quantiles that were learned apart may cross, where there is hardly any noise.
        std = length((high - low).clip(min=0) / width)
        if 0.5 in self.levels:
            middle = as_columns(self.models[self.levels.index(0.5)].predict(X))
        else:
            # Where a normal distribution with these two quantiles has its centre.
            share = -ndtri(self.levels[0]) / width
            middle = low + share * (high - low)
        return Uncertainty(std, std.copy(), np.zeros(len(std))), middle


class EncodedRows(RowsProvider):
    """A model with gradients, asked about rows of a table all the same.

    Parameters
    ----------
    provider : UncertaintyProvider
        Takes encoded rows.

    encoder : transformer or None
        From the table to encoded rows; None if it is numbers that it takes.
    """

    def __init__(self, provider, encoder, name, feature_names=None):
        super().__init__(name, provider.is_classification, feature_names)
        self.provider = provider
        self.encoder = encoder
        for attribute in ("center", "scale", "threshold"):
            if hasattr(provider, attribute):
                setattr(self, attribute, getattr(provider, attribute))

    def _answer(self, X):
        if self.encoder is not None:
            X = self.encoder.transform(X)
        x = as_tensor(as_numbers(X), dtype=PRECISE_DTYPE)
        pieces = []
        with one_thread(), torch.no_grad():
            for rows in x.split(1024):
                # Whole tiles, so that answers do not depend on neighbours.
                parts, prediction = self.provider.uncertainty(pad_rows(rows))
                pieces.append([p[: len(rows)].numpy() for p in (*parts, prediction)])
        *parts, prediction = map(np.concatenate, zip(*pieces, strict=True))
        return Uncertainty(*parts), prediction


class StepsRows(RowsProvider):
    """A pipeline as a whole: steps, and a model that is asked about what they make.

    Parameters
    ----------
    steps : list of transformers
        Fitted.

    provider : RowsProvider
        The model at the end.
    """

    def __init__(self, steps, provider, name, feature_names=None):
        super().__init__(name, provider.is_classification, feature_names)
        self.steps = steps
        self.provider = provider
        self.center, self.scale = provider.center, provider.scale
        self.has_epistemic = provider.has_epistemic
        self.threshold = provider.threshold

    def _transform(self, X):
        n_before = n_rows(X)
        for step in self.steps:
            X = step.transform(X)
            if n_rows(X) != n_before:
                raise ValueError(
                    f"{type(step).__name__} turns {n_before} rows into {n_rows(X)}. A "
                    "row that is dropped has no prediction that could be unsure: let "
                    "the pipeline impute instead, or drop the rows before the fit."
                )
        return X

    def _answer(self, X):
        return self.provider.uncertainty_of_rows(self._transform(X))

    def total_of_rows(self, X):
        """See `RowsProvider.total_of_rows`."""
        return self.provider.total_of_rows(self._transform(self._named(X)))

    def learn(self, X, y):
        """See `RowsProvider.learn`."""
        return self.provider.learn(self._transform(X), y)

    def out_of_bag(self, X, y):
        """See `RowsProvider.out_of_bag`."""
        return self.provider.out_of_bag(self._transform(X), y)
