"""What any posterior over networks shares: rows, targets, stacked weights, predictions.

A posterior says how it finds its networks (`_sample`), and nothing else.
"""

from abc import abstractmethod

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import (
    Bunch,
    check_consistent_length,
    check_random_state,
    gen_batches,
)

from sklearn_clue._modules import mlp_outputs
from sklearn_clue._torch import (
    as_tensor,
    check_device,
    pad_rows,
    row_blocks,
    to_numpy,
)
from sklearn_clue._validation import (
    CallbackSupportMixin,
    DocLinkMixin,
    _safe_indexing,
    check_count,
    check_is_fitted,
    check_unmasked,
    check_weights,
    check_widths,
    drop_weightless_rows,
    fit_context,
    merge_repeated_rows,
    naming,
    with_callbacks,
)
from sklearn_clue.bayesian._calibration import (
    MIN_ROWS,
    conformal_scores,
    conformal_tail,
    find_scale,
    find_temperature,
)
from sklearn_clue.bayesian._targets import (
    ClassTarget,
    GaussianMoments,
    NumberTarget,
    mixture_quantile,
)
from sklearn_clue.encoding import EncoderOwner
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import EnsembleProvider
from sklearn_clue.uncertainty import Uncertainty, entropy_parts, variance_parts

# Rows encoded at a time for prediction.
ROWS_PER_CHUNK = 8192


class NetworkPosterior(
    DocLinkMixin, EncoderOwner, CallbackSupportMixin, VersionedState, BaseEstimator
):
    """Networks of one shape that predict together.

    Subclasses have the parameters `hidden_layer_sizes` and `encoder`, and `_sample`.
    """

    # Parameters that not every posterior has.
    device = "cpu"
    warm_start = False

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Find the networks that the data leave possible.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows: numbers and categories as they are.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: a weight of 2 equals the row twice.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        go_on = self.warm_start and hasattr(self, "coefs_")
        widths = check_widths(self.hidden_layer_sizes)
        check_device(self.device)
        self._check_settings()
        X = self._check_rows(X, reset=not go_on)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        check_unmasked("y", y)
        with naming("y"):
            y = self._read_target(y, go_on=go_on)
            check_consistent_length(X, y)
        weight = check_weights(sample_weight, X)
        weight, X, y = drop_weightless_rows(weight, X, y)
        if not go_on:
            self._fit_encoder(X, weight)
        vars(self).pop("calibration_", None)
        # The posterior sees no difference between a row of weight 2 and the row twice,
        # nor in the order of rows. After this, neither does the sampler.
        weight, x, y = merge_repeated_rows(weight, self._encode(X), y)
        y, weight = self._prepare_target(y, weight, go_on=go_on)
        layer_sizes = (x.shape[1], *widths, self._n_network_outputs())
        tensors = (
            as_tensor(x, self.device),
            self._target_tensor(y),
            as_tensor(weight, self.device),
        )
        self.coefs_, self.intercepts_ = self._sample(tensors, layer_sizes, go_on)
        return self

    def _check_settings(self):
        """Refuse parameters that do not go together, before anything is read."""

    @abstractmethod
    def _sample(self, tensors, layer_sizes, go_on):
        """Find networks by the data.

        Parameters
        ----------
        tensors : tuple of Tensor
            Encoded rows, distinct; their targets; their weights.

        layer_sizes : tuple of int
            Widths from the input to the output.

        go_on : bool
            Whether to go on from the networks of the last `fit`.

        Returns
        -------
        coefs, intercepts : lists of ndarray
            Per layer, of shapes (n_draws, n_in, n_out) and (n_draws, n_out).
        """

    def calibrate(self, X, y):
        """Adjust how sure the predictions are by rows that were not trained on.

        A classifier gets a temperature, a regressor a factor on its spread. All that
        the estimator says changes alike, and so does what explainers see of it.
        Intervals of a regressor are conformal in addition: over new rows they have the
        stated coverage, whatever the shape of the predictive distribution. A second
        call replaces the first, and `fit` undoes it.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Held-out rows, at least 20. Some hundred are better.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        self : object
            The calibrated estimator.
        """
        check_is_fitted(self, "coefs_")
        x = self._read_rows(X)
        check_unmasked("y", y)
        with naming("y"):
            y = self._read_target(y, go_on=True)
            check_consistent_length(X, y)
        if len(y) < MIN_ROWS:
            raise ValueError(
                f"Calibration needs at least {MIN_ROWS} rows, got {len(y)}. Hold out "
                "more rows, or leave the model as it is."
            )
        outputs = torch.as_tensor(self._outputs(x, lambda outputs: outputs, axis=1))
        self.calibration_ = self._calibration(outputs, y)
        return self

    @abstractmethod
    def _calibration(self, outputs, y):
        """Learn what `_head` needs from what the networks say of held-out rows."""

    def uncertainty_provider(self):
        """View the posterior as a differentiable function of encoded rows.

        Returns
        -------
        provider : UncertaintyProvider
            Takes tensors in the space of `encoder_`. The unit of regression is that
            of the standardised target.
        """
        check_is_fitted(self, "coefs_")
        members = NetworkMembers(*self._weights(), self._head())
        if is_classifier(self):
            return EnsembleProvider(members, is_classification=True)
        return EnsembleProvider(
            members,
            is_classification=False,
            center=self.target_mean_,
            scale=self.target_scale_,
        )

    def _weights(self):
        """Coefficients and intercepts as tensors."""
        return (
            [as_tensor(coef, self.device) for coef in self.coefs_],
            [as_tensor(intercept, self.device) for intercept in self.intercepts_],
        )

    def _read_rows(self, X):
        """Check rows to predict, and encode them chunk by chunk as asked for."""
        check_is_fitted(self, "coefs_")
        X = self._check_rows(X, reset=False)
        chunks = gen_batches(len(X), ROWS_PER_CHUNK)
        return self._encode_tables(_safe_indexing(X, rows) for rows in chunks)

    def _outputs(self, chunks, reduce, axis=0):
        """Run encoded rows through all draws, in blocks that bound the memory.

        Parameters
        ----------
        chunks : iterable of ndarray of shape (n_samples, n_encoded)
            Encoded rows.

        reduce : callable
            Turns outputs of shape (n_draws, n_rows, n_out) into a tensor with the rows
            on `axis`.

        axis : int, default=0
            Axis of the rows.

        Returns
        -------
        values : ndarray
            The reduced blocks put together.
        """
        coefs, intercepts = self._weights()
        n_draws, _, n_out = coefs[-1].shape
        # Reductions work in float64 and hold two or three copies of the outputs.
        n_bytes = 32 * n_draws * n_out + 12 * max(c.shape[2] for c in coefs)
        answers = []
        for x in chunks:
            blocks = []
            for rows in row_blocks(len(x), n_bytes):
                block = as_tensor(x[rows], self.device)
                outputs = mlp_outputs(pad_rows(block), coefs, intercepts)
                # Padding comes off last: incomplete tiles round differently here, too.
                reduced = reduce(outputs.double()).narrow(axis, 0, len(block))
                blocks.append(to_numpy(reduced))
            # Many small arrays that stay would keep the memory between them in use.
            answers.append(np.concatenate(blocks, axis=axis))
        return np.concatenate(answers, axis=axis)


class PosteriorClassifier(ClassTarget, ClassifierMixin, NetworkPosterior):
    """Networks that predict classes together."""

    def _calibration(self, outputs, codes):
        return Bunch(temperature=find_temperature(outputs, torch.as_tensor(codes)))

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        proba = self.predict_proba(X)  # first, so an unfitted call fails clearly
        return self.classes_[proba.argmax(axis=1)]

    def predict_proba(self, X):
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities in the order of `classes_`.
        """
        head = self._head()
        return self._outputs(self._read_rows(X), lambda outputs: head(outputs).mean(0))

    def predict_uncertainty(self, X):
        """Tell how unsure the predictions are, and why.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        parts : Uncertainty
            Entropies in nats, each of shape (n_samples,): `total` is the sum of
            `aleatoric` (classes overlap here) and `epistemic` (the draws disagree).
        """
        head = self._head()
        parts = self._outputs(
            self._read_rows(X),
            lambda outputs: torch.stack(entropy_parts(head(outputs))),
            axis=1,
        )
        return Uncertainty(*parts)

    def posterior_predictive(self, X):
        """Predict class probabilities by each draw from the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        proba : ndarray of shape (n_draws, n_samples, n_classes)
            Probabilities in the order of `classes_`.
        """
        return self._outputs(self._read_rows(X), self._head(), axis=1)

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw classes from the posterior predictive distribution.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows to classify.

        n_samples : int, default=1
            Draws per row.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        y : ndarray of shape (n_rows, n_samples)
            Class labels.
        """
        check_count("n_samples", n_samples)
        # Averaging before drawing or after is the same for a categorical.
        cumulative = self.predict_proba(X).cumsum(axis=1)
        rng = check_random_state(random_state)
        points = rng.uniform(size=(len(cumulative), n_samples, 1))
        codes = (points > cumulative[:, None, :-1]).sum(axis=2)
        return self.classes_[codes]


class PosteriorRegressor(NumberTarget, RegressorMixin, NetworkPosterior):
    """Networks that predict numbers and their noise together."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _calibration(self, outputs, y):
        y = torch.as_tensor(self._standardised(y.reshape(len(y), -1)))
        mean, std = GaussianMoments(self._floor())(outputs)
        moments_of_outputs = zip(mean.unbind(-1), std.unbind(-1), y.T, strict=True)
        scale = np.array([find_scale(*parts) for parts in moments_of_outputs])
        moments = GaussianMoments.rescale(mean, std, torch.as_tensor(scale))
        return Bunch(scale=scale, scores=to_numpy(conformal_scores(*moments, y)))

    def predict(self, X, return_std=False):
        """Predict the mean of the target, and on request its spread.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        return_std : bool, default=False
            Whether to return the standard deviation of the predictive distribution as
            well: noise and ignorance together.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Mean of the predictive distribution.

        y_std : ndarray of the shape of `y_mean`
            Its standard deviation. Only returned if `return_std` is true.
        """
        x, head = self._read_rows(X), self._head()
        if not return_std:
            return self._in_units(self._outputs(x, lambda o: head(o)[0].mean(0)))
        mean, std = self._outputs(
            x,
            lambda outputs: torch.stack(
                [
                    head(outputs)[0].mean(0),
                    variance_parts(*head(outputs)).total,
                ]
            ),
            axis=1,
        )
        return self._in_units(mean), self._in_units(std, is_spread=True)

    def predict_interval(self, X, coverage=0.9):
        """Predict central intervals that hold the target with a given probability.

        The bounds are quantiles of the mixture of all draws, not of a Gaussian with
        its moments.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        coverage : float, default=0.9
            Probability of the interval, between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper bounds.
        """
        if not 0 < coverage < 1:
            raise ValueError(
                f"coverage must be between 0 and 1, both excluded, got {coverage!r}."
            )
        rows, head, tail = self._read_rows(X), self._head(), (1 - coverage) / 2
        if hasattr(self, "calibration_"):
            scores = torch.as_tensor(self.calibration_.scores)
            tail = conformal_tail(scores, coverage)

        def bounds_of(outputs):
            mean, std = head(outputs)
            # From below, where levels near the end have all their digits.
            low, high = (mixture_quantile(m, std, tail) for m in (mean, -mean))
            return torch.stack([low, -high])

        bounds = self._outputs(rows, bounds_of, axis=1)
        return np.stack([self._in_units(bound) for bound in bounds], axis=-1)

    def predict_uncertainty(self, X):
        """Tell how unsure the predictions are, and why.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        parts : Uncertainty
            Standard deviations in the unit of the target, each of the shape of
            `predict(X)`. The square of `total` is the sum of the squares of
            `aleatoric` (noise) and `epistemic` (the draws disagree).
        """
        head = self._head()
        parts = self._outputs(
            self._read_rows(X),
            lambda outputs: torch.stack(variance_parts(*head(outputs))),
            axis=1,
        )
        return Uncertainty(*(self._in_units(part, is_spread=True) for part in parts))

    def posterior_predictive(self, X):
        """Predict mean and noise by each draw from the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        moments : ndarray of shape (n_draws, n_samples, 2) or \
                (n_draws, n_samples, n_outputs, 2)
            Mean and standard deviation of the Gaussian that each draw predicts, in the
            unit of the target.
        """
        head = self._head()
        mean, std = np.moveaxis(
            self._outputs(
                self._read_rows(X),
                lambda outputs: torch.stack(head(outputs), -1),
                axis=1,
            ),
            -1,
            0,
        )
        return np.stack(
            [self._in_units(mean), self._in_units(std, is_spread=True)], axis=-1
        )

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw targets from the posterior predictive distribution.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows to predict.

        n_samples : int, default=1
            Draws per row.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        y : ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            Draws in the unit of the target.
        """
        check_count("n_samples", n_samples)
        x, head = self._read_rows(X), self._head()
        rng = check_random_state(random_state)

        def draw(outputs):
            mean, std = head(outputs)
            n_draws, n_rows, n_outputs = mean.shape
            # One network speaks for all outputs of a row, so they stay correlated.
            who = torch.as_tensor(rng.randint(n_draws, size=(n_samples, n_rows)))
            row = torch.arange(n_rows)
            noise = torch.as_tensor(rng.standard_normal((n_samples, n_rows, n_outputs)))
            sample = mean[who, row] + std[who, row] * noise.to(mean.device)
            return sample.movedim(0, -1)

        drawn = np.moveaxis(self._outputs(x, draw), -1, 0)
        return np.moveaxis(self._in_units(drawn), 0, -1)


class NetworkMembers:
    """What all networks say of encoded rows, differentiably."""

    def __init__(self, coefs, intercepts, head):
        self.coefs = coefs
        self.intercepts = intercepts
        self.head = head

    @property
    def input_dtype(self):
        """The precision of the weights, in which rows are seen."""
        return np.dtype(str(self.coefs[0].dtype).removeprefix("torch."))

    def thinned(self, n_members):
        """So many of the networks, evenly spaced; None if there are no more."""
        n_all = len(self.coefs[0])
        if n_all <= n_members:
            return None
        kept = torch.linspace(0, n_all - 1, n_members).round().long()
        parts = (
            [part[kept] for part in parts] for parts in (self.coefs, self.intercepts)
        )
        return NetworkMembers(*parts, self.head)

    def __call__(self, x):
        x = x.to(self.coefs[0].dtype)
        # Whole tiles, and reductions in double precision: as in prediction.
        outputs = mlp_outputs(pad_rows(x), self.coefs, self.intercepts).double()
        return self.head(outputs[:, : len(x)])
