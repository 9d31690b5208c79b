"""What uncertainty is, and how it splits into its two sources."""

from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

__all__ = [
    "TableProvider",
    "Uncertainty",
    "UncertaintyProvider",
    "decompose_entropy",
    "decompose_variance",
    "forest_draws",
]

_FORESTS = (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)


class Uncertainty(NamedTuple):
    """Uncertainty of predictions, in total and by source.

    Parameters
    ----------
    total : array of shape (n_samples,)
        All that keeps the model from being sure.

    aleatoric : array of shape (n_samples,)
        The part that comes from noise in the data: more of the same data would not
        lower it.

    epistemic : array of shape (n_samples,)
        The part that comes from not knowing the model: more data nearby would lower
        it.

    See Also
    --------
    uncertainty.decompose_entropy : For class probabilities, in nats; the parts add up.
    uncertainty.decompose_variance : For regression, as standard deviations; their
        squares add up.

    Examples
    --------
    >>> from sklearn_clue import Uncertainty
    >>> total, aleatoric, epistemic = Uncertainty(0.69, 0.5, 0.19)
    >>> total
    0.69
    """

    total: Any
    aleatoric: Any
    epistemic: Any


@runtime_checkable
class UncertaintyProvider(Protocol):
    """A predictor as explainers see it: tensors in, how unsure it is out.

    Rows are independent and the answer is repeatable. Where gradients reach the rows,
    the weights need none.

    Attributes
    ----------
    is_classification : bool
        Whether it predicts classes; else numbers.

    is_differentiable : bool, default=True
        Whether gradients of the answer reach the rows. If not, it is asked for values
        only, which is enough to judge rows. Need not be there.

    center : float or array-like of shape (n_outputs,), default=0.0
        With `scale`, the unit of regression: a mean m is `center + scale * m` in the
        unit of the target. Need not be there.

    scale : float or array-like of shape (n_outputs,), default=1.0
        A standard deviation s of a single output is `scale * s` in the unit of the
        target; of several outputs it stays as it is. Need not be there.

    See Also
    --------
    sklearn_clue.providers.as_provider : Makes one of a fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import LocalSensitivityExplainer, Uncertainty
    >>> class Bowl:
    ...     is_classification = False
    ...     def uncertainty(self, x):
    ...         spread = x.square().sum(1)
    ...         return Uncertainty(spread, spread, 0 * spread), x[:, :1]
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> explanation = LocalSensitivityExplainer(Bowl()).fit(X, X[:, 0]).explain(X[:1])
    >>> bool(explanation.uncertainty_after.total < explanation.uncertainty_before.total)
    True
    """

    is_classification: bool

    def uncertainty(self, x):
        """Tell how unsure the predictions for rows are.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_inputs)
            Rows as the model takes them.

        Returns
        -------
        parts : Uncertainty
            Of tensors of shape (n_rows,): nats for classes; standard deviations, in
            the unit of the prediction, for regression.

        prediction : Tensor of shape (n_rows, n_classes) or (n_rows, n_outputs)
            Class probabilities, or means.
        """


@runtime_checkable
class TableProvider(Protocol):
    """A predictor that is asked about rows of the user's table, and for values only.

    What :func:`~sklearn_clue.providers.as_provider` makes of models without
    gradients. Rows are independent and the answer is repeatable.

    Attributes
    ----------
    is_classification : bool
        Whether it predicts classes; else numbers, in the unit of the target.

    takes_tables : bool
        True, which tells it from an :class:`UncertaintyProvider`.

    See Also
    --------
    sklearn_clue.providers.as_provider : Makes one of a fitted model.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn_clue.providers import as_provider
    >>> from sklearn_clue.uncertainty import TableProvider
    >>> model = KNeighborsClassifier(2).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> provider = as_provider(model)
    >>> isinstance(provider, TableProvider)
    True
    >>> provider.uncertainty_of_rows([[0.2], [1.5]])[0].total.round(2)
    array([0.  , 0.69])
    """

    is_classification: bool
    takes_tables: bool

    def uncertainty_of_rows(self, X):
        """Tell how unsure the predictions for rows are.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows as the model takes them.

        Returns
        -------
        parts : Uncertainty
            Of arrays of shape (n_rows,): nats for classes; standard deviations in the
            unit of the target for regression.

        prediction : ndarray of shape (n_rows, n_classes) or (n_rows, n_outputs)
            Class probabilities, or means.
        """


def decompose_entropy(proba):
    """Split predictive entropy into its aleatoric and epistemic parts.

    Parameters
    ----------
    proba : array-like of shape (n_draws, n_samples, n_classes)
        Class probabilities, one slab per posterior draw.

    Returns
    -------
    parts : Uncertainty
        `total`, `aleatoric` and `epistemic`, each of shape (n_samples,), in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.uncertainty import decompose_entropy
    >>> coin = [[0.5, 0.5], [0.5, 0.5]]  # both draws: could be either class
    >>> feud = [[1.0, 0.0], [0.0, 1.0]]  # each draw is sure, of opposite classes
    >>> parts = decompose_entropy(np.stack([coin, feud], axis=1))
    >>> parts.epistemic.round(2)
    array([0.  , 0.69])
    """
    return _as_arrays(entropy_parts(_as_draws(proba, "proba", n_axes=3)))


def decompose_variance(mean, std):
    """Split predictive spread into its aleatoric and epistemic parts.

    Parameters
    ----------
    mean : array-like of shape (n_draws, n_samples) or (n_draws, n_samples, n_outputs)
        Predictive mean, one slab per posterior draw.

    std : array-like of the shape of `mean`
        Standard deviation of the noise, one slab per posterior draw.

    Returns
    -------
    parts : Uncertainty
        `total`, `aleatoric` and `epistemic` standard deviations in the unit of `mean`,
        each of its shape without the first axis. The squares of the parts add up to
        the square of the total.

    Examples
    --------
    >>> from sklearn_clue.uncertainty import decompose_variance
    >>> parts = decompose_variance([[3.0], [-3.0]], [[4.0], [4.0]])
    >>> parts.total, parts.aleatoric, parts.epistemic
    (array([5.]), array([4.]), array([3.]))
    """
    mean, std = _as_draws(mean, "mean"), _as_draws(std, "std")
    if mean.shape != std.shape:
        raise ValueError(
            "mean and std must have the same shape, got "
            f"{tuple(mean.shape)} and {tuple(std.shape)}."
        )
    return _as_arrays(variance_parts(mean, std))


def forest_draws(forest, X):
    """Tell what each tree of a forest says about rows.

    Parameters
    ----------
    forest : estimator
        A fitted forest of scikit-learn: RandomForestClassifier, RandomForestRegressor,
        ExtraTreesClassifier or ExtraTreesRegressor.

    X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
        Rows of numbers, as the forest takes them.

    Returns
    -------
    draws : ndarray of shape (n_trees, n_samples, n_classes), or pair of them
        Class probabilities, as :func:`decompose_entropy` takes them. For a regressor
        a pair of means and standard deviations, each of shape (n_trees, n_samples,
        n_outputs), as :func:`decompose_variance` takes them.

    See Also
    --------
    sklearn_clue.providers.as_provider : Also judges leaves by rows that their trees
        have not seen.

    Notes
    -----
    Probabilities and deviations are those of the rows that a tree was grown on. Trees
    that are grown until their leaves are pure have no noise by this account, whatever
    the data are like, and all that is left is disagreement: set `min_samples_leaf`, or
    see `learn` of :func:`~sklearn_clue.providers.as_provider`. Deviations are also
    zero where the criterion of the forest is not about squares, because such trees do
    not keep them. With several targets trees keep the mean variance over the targets,
    and each target gets that.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn_clue.uncertainty import decompose_entropy, forest_draws
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(500, 1))
    >>> y = rng.uniform(size=500) < np.where(X[:, 0] > 0, 0.5, 0.02)  # a coin, or no
    >>> forest = RandomForestClassifier(min_samples_leaf=20, random_state=0).fit(X, y)
    >>> parts = decompose_entropy(forest_draws(forest, [[-0.5], [0.5]]))
    >>> parts.aleatoric.round(1)
    array([0.1, 0.6])
    """
    if isinstance(forest, FrozenEstimator):
        return forest_draws(forest.estimator, X)
    if not isinstance(forest, _FORESTS):
        raise TypeError(
            "forest_draws needs a random forest or extra trees, got "
            f"{type(forest).__name__}. Of a pipeline, give it the forest at the end "
            "and the rows that the steps before make: forest_draws(pipeline[-1], "
            "pipeline[:-1].transform(X))."
        )
    check_is_fitted(forest)
    if sparse.issparse(X) or not hasattr(X, "columns"):
        X = check_array(
            X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan"
        )
    trees = [tree.tree_ for tree in forest.estimators_]
    # All nodes of all trees in one table, so that no tree is walked twice.
    first = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    nodes = (forest.apply(X) + first).T
    values = np.concatenate([tree.value for tree in trees])
    if is_classifier(forest):
        if values.shape[1] > 1:
            raise ValueError(
                f"{type(forest).__name__} was fitted to {values.shape[1]} labels per "
                "row. Fit one forest per label."
            )
        proba = values[:, 0] / values[:, 0].sum(1, keepdims=True)
        return proba[nodes]
    mean, deviation = values[:, :, 0], np.zeros((len(values), 1))
    if forest.criterion in ("squared_error", "friedman_mse"):
        impurity = np.concatenate([tree.impurity for tree in trees])
        deviation = np.sqrt(impurity.clip(min=0))[:, None]
    return mean[nodes], np.broadcast_to(deviation, mean.shape)[nodes]


def weights_of_parts(uncertainty):
    """Read which uncertainty is meant.

    Parameters
    ----------
    uncertainty : {"total", "aleatoric", "epistemic"} or dict
        One part, or weights of several.

    Returns
    -------
    weights : list of 3 floats
        Weights of total, aleatoric and epistemic uncertainty.
    """
    kinds = Uncertainty._fields
    named = {uncertainty: 1.0} if isinstance(uncertainty, str) else uncertainty
    weights = [named.get(kind, 0.0) for kind in kinds]
    is_weights = all(isinstance(weight, Real) for weight in weights) and all(
        0 <= weight < np.inf for weight in weights
    )
    if set(named) - set(kinds) or not is_weights or not any(weights):
        raise ValueError(
            "uncertainty must be 'total', 'aleatoric', 'epistemic', or a mapping of "
            "some of them to weights that are at least 0 and not all 0, got "
            f"{uncertainty!r}."
        )
    return [float(weight) for weight in weights]


def weighted_sum(weights, parts):
    """Add up parts of the uncertainty with the weights of `weights_of_parts`."""
    return sum(
        weight * part for weight, part in zip(weights, parts, strict=True) if weight
    )


def entropy_parts(proba):
    """Do the work of `decompose_entropy`, on tensors and differentiably."""
    # Appendix B.2 prints this entropy without its minus sign; it is positive here.
    total = _entropy(proba.mean(0))
    aleatoric = _entropy(proba).mean(0)
    # Jensen's inequality bounds the difference below by zero, rounding does not.
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def variance_parts(mean, std):
    """Do the work of `decompose_variance`, on tensors and differentiably."""
    # Appendix B.2, as a mean of squared deviations: E[m²] - E[m]² cancels digits and
    # can come out negative.
    epistemic = mean.var(0, correction=0)
    aleatoric = std.square().mean(0)
    total = epistemic + aleatoric
    return Uncertainty(*map(root, (total, aleatoric, epistemic)))


def _entropy(proba):
    # At zero the entropy of a class is zero but its slope infinite.
    return torch.special.entr(proba.clamp_min(torch.finfo(proba.dtype).tiny)).sum(-1)


def root(variance):
    # Draws that agree have no spread, where the slope of the root is infinite.
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def _as_draws(values, name, n_axes=None):
    values = torch.as_tensor(np.asarray(values, dtype=np.float64))
    if values.ndim < 2 or n_axes not in (None, values.ndim) or len(values) == 0:
        raise ValueError(
            f"{name} needs posterior draws on its first axis and samples on its "
            f"second{', classes on its third' if n_axes == 3 else ''}, got shape "
            f"{tuple(values.shape)}."
        )
    return values


def _as_arrays(parts):
    return Uncertainty(*(part.cpu().numpy() for part in parts))
