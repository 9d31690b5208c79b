"""What uncertainty is, and how it splits into its two sources."""

import copy
from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_classifier
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_array, gen_batches
from sklearn.utils.validation import check_is_fitted

from sklearn_clue._torch import DTYPE, PRECISE_DTYPE, as_tensor, one_thread

__all__ = [
    "Uncertainty",
    "UncertaintyProvider",
    "as_provider",
    "decompose_entropy",
    "decompose_variance",
    "global_sensitivity",
]


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
    return Uncertainty(*map(_root, (total, aleatoric, epistemic)))


def _entropy(proba):
    # At zero the entropy of a class is zero but its slope infinite.
    return torch.special.entr(proba.clamp_min(torch.finfo(proba.dtype).tiny)).sum(-1)


def _root(variance):
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


# Providers ------------------------------------------------------------------------


@runtime_checkable
class UncertaintyProvider(Protocol):
    """A predictor as explainers see it: differentiable, on tensors.

    Rows are independent, the answer is repeatable, gradients reach the rows and the
    weights need none.

    See Also
    --------
    as_provider : Makes one of a fitted model.

    Examples
    --------
    >>> import torch
    >>> from sklearn_clue.uncertainty import Uncertainty, UncertaintyProvider
    >>> class Bowl:
    ...     is_classification = False
    ...     def uncertainty(self, x):
    ...         spread = x.square().sum(1)
    ...         return Uncertainty(spread, spread, 0 * spread), x[:, :1]
    >>> isinstance(Bowl(), UncertaintyProvider)
    True
    """

    is_classification: bool

    def uncertainty(self, x):
        """Tell how unsure the predictions for rows are.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_inputs)
            Rows as the networks see them.

        Returns
        -------
        parts : Uncertainty
            Of tensors of shape (n_rows,): nats for classes; standard deviations, in
            the unit of the prediction, for regression.

        prediction : Tensor of shape (n_rows, n_classes) or (n_rows, n_outputs)
            Class probabilities, or means.
        """


class EnsembleProvider:
    """Judge rows by one or more networks that answer as one; they may disagree.

    Parameters
    ----------
    members : callable
        `members(x)` gives what each network says: class probabilities of shape
        (n_members, n_rows, n_classes), or a pair of means and standard deviations,
        each of shape (n_members, n_rows, n_outputs).

    is_classification : bool
        Which of the two.

    center, scale : array-like of shape (n_outputs,), default=None
        What turns standardised regression targets into the user's unit.
    """

    def __init__(self, members, *, is_classification, center=None, scale=None):
        self.members = members
        self.is_classification = is_classification
        self.center = np.zeros(1) if center is None else np.asarray(center)
        self.scale = np.ones(1) if scale is None else np.asarray(scale)

    def uncertainty(self, x):
        if self.is_classification:
            proba = self.members(x)
            return entropy_parts(proba), proba.mean(0)
        mean, std = self.members(x)
        parts = variance_parts(mean, std)
        if mean.shape[2] > 1:  # the length of the vector of standard deviations
            parts = Uncertainty(*(_root(part.square().sum(-1)) for part in parts))
        else:
            parts = Uncertainty(*(part[:, 0] for part in parts))
        return parts, mean.mean(0)


def as_provider(model, n_classes=None):
    """View a fitted model as a differentiable source of uncertainty.

    Parameters
    ----------
    model : object
        - an estimator with a method `uncertainty_provider`, as the Bayesian MLPs;
        - a torch module, in its evaluation mode: it answers with logits or
          probabilities of shape (n_rows, n_classes), or for regression with means of
          shape (n_rows, 1) or means and standard deviations of shape (n_rows, 2);
        - a skorch net around such a module;
        - :class:`~sklearn.neural_network.MLPClassifier`,
          :class:`~sklearn.neural_network.MLPRegressor`,
          :class:`~sklearn.linear_model.LogisticRegression`, whose coefficients are
          rebuilt as a module;
        - a list of the above, or a :class:`~sklearn.ensemble.BaggingClassifier` or
          :class:`~sklearn.ensemble.BaggingRegressor` of them: an ensemble, which is
          unsure where its members disagree.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    Returns
    -------
    provider : UncertaintyProvider
        Takes rows as the model does.

    Examples
    --------
    >>> import torch
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.uncertainty import as_provider
    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> x = torch.tensor([[1.5], [99.0]], dtype=torch.float64)
    >>> parts, proba = as_provider(model).uncertainty(x)
    >>> parts.total.numpy().round(2)
    array([0.69, 0.  ])
    """
    if hasattr(model, "uncertainty_provider"):
        return model.uncertainty_provider()
    members = _members(model, n_classes)
    kinds = {is_classification for _, is_classification in members}
    if len(kinds) > 1:
        raise TypeError(
            "An ensemble must hold classifiers only or regressors only, got both: "
            f"{model!r}."
        )
    (is_classification,) = kinds
    functions = [function for function, _ in members]
    if is_classification:
        return EnsembleProvider(_Stack(functions), is_classification=True)
    return EnsembleProvider(_StackMoments(functions), is_classification=False)


def target_of(provider):
    """Who knows the unit of the target: it may have attributes `center`, `scale`."""
    return getattr(provider, "target", provider)


def unit_of(provider):
    """Factor from standardised uncertainty to the unit of the target."""
    scale = np.atleast_1d(getattr(target_of(provider), "scale", 1.0))
    # Several outputs have several units; their joint spread stays standardised.
    return float(scale[0]) if len(scale) == 1 else 1.0


def peel(estimator):
    """Take off wrappers down to the model that predicts.

    Parameters
    ----------
    estimator : object
        A fitted estimator: possibly frozen, possibly a pipeline.

    Returns
    -------
    steps : list of transformers
        What comes before the model, in order.

    model : object
        The model itself.
    """
    steps = []
    while isinstance(estimator, FrozenEstimator | Pipeline):
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
            continue
        steps += [
            step
            for _, step in estimator.steps[:-1]
            if step is not None and not isinstance(step, str)
        ]
        estimator = estimator.steps[-1][1]
    return steps, estimator


def _thawed(part):
    return part.estimator if isinstance(part, FrozenEstimator) else part


def names_after(steps, names):
    """Names of the columns after some transformers; None if one does not tell."""
    try:
        for step in steps:
            names = step.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return list(names)


def global_sensitivity(model, X, *, uncertainty="total", n_classes=None):
    """Tell how much the uncertainty about rows depends on each feature, on average.

    Uncertainty sensitivity analysis: the mean absolute gradient of the uncertainty
    over rows. It is a sum of linear approximations: it says how much the
    uncertainty would move if a feature did by a little, and nothing about where real
    rows are.

    Parameters
    ----------
    model : estimator, torch module, list of them, or UncertaintyProvider
        A fitted model that :func:`as_provider` accepts, also in a
        :class:`~sklearn.frozen.FrozenEstimator` or at the end of a
        :class:`~sklearn.pipeline.Pipeline`; or a provider, which takes the rows as
        they are.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows to average over, as the model takes them.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        Which uncertainty, or weights of several.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    Returns
    -------
    sensitivity : Series of shape (n_features,)
        By feature, in nats or the unit of the target: per standard deviation of a
        number, and per change of a category.

    See Also
    --------
    sklearn_clue.LocalSensitivityExplainer : Takes a step against the gradient, from
        each row.

    Notes
    -----
    The gradient is taken in the encoded space of the model, where numbers are
    standardised. For a model that has no encoder it is multiplied by the standard
    deviations of the columns that it sees in X.

    No row can have a little more of one category and no less of another, so single
    gradients of a one-hot block mean nothing. What counts is the linear
    approximation of a change: the gradient at another category less that at the
    category of the row, its absolute value averaged over the other categories.

    If steps of a pipeline change the number or the names of the columns, the features
    are those that the last step sees.

    References
    ----------
    Depeweg, Hernández-Lobato, Udluft, Runkler, "Sensitivity Analysis for Predictive
    Uncertainty", ESANN 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.uncertainty import global_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["dose", "age"])
    >>> model = LogisticRegression().fit(X, X["dose"] + rng.normal(size=300) > 0)
    >>> global_sensitivity(model, X).idxmax()
    'dose'
    """
    weights = weights_of_parts(uncertainty)
    steps, model = peel(model)
    inputs = X
    for step in steps:
        inputs = step.transform(inputs)
    names = _names_of(X, inputs, steps)
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        inputs = encoder.transform(inputs)
        steps = [*steps, encoder]
    x = check_array(inputs, dtype=np.float64, input_name="X")
    is_provider = isinstance(model, UncertaintyProvider)
    if isinstance(model, list | tuple):
        model = [_thawed(member) for member in model]
    provider = model if is_provider else as_provider(model, n_classes)
    gradient = _gradient(provider, weights, x)
    # A TabularEncoder knows the columns, inside of the model or before it.
    schema = getattr(_thawed(steps[-1]), "schema_", None) if steps else None
    if schema is not None:
        return _by_column(schema, x, gradient)
    if not (is_provider or hasattr(model, "encoder_")):
        gradient = gradient * x.std(0)
    return pd.Series(np.abs(gradient).mean(0), index=names, name="sensitivity")


def _names_of(X, inputs, steps):
    if hasattr(inputs, "columns"):
        return list(inputs.columns)
    names = list(X.columns) if hasattr(X, "columns") else None
    if steps and names is not None:
        names = names_after(steps, names)
    return names if names is not None else range(np.shape(inputs)[1])


def _gradient(provider, weights, x):
    """Gradient of the uncertainty of each row, in the unit of the target."""
    pieces = []
    with one_thread():
        for rows in gen_batches(len(x), 1024):
            here = as_tensor(x[rows], dtype=PRECISE_DTYPE).requires_grad_()
            parts, _ = provider.uncertainty(here)
            value = weighted_sum(weights, parts)
            pieces.append(torch.autograd.grad(value.sum(), here)[0].numpy())
    return unit_of(provider) * np.concatenate(pieces)


def _by_column(schema, x, gradient):
    """Reduce encoded positions to the columns of the user."""
    values = {}
    for column in schema:
        here = gradient[:, column.block]
        if column.kind == "category":
            own = (here * x[:, column.block]).sum(1, keepdims=True)
            # That of the category itself is zero, and does not count.
            n_others = max(here.shape[1] - 1, 1)
            values[column.name] = (np.abs(here - own).sum(1) / n_others).mean()
        else:
            values[column.name] = np.abs(here).mean()
    return pd.Series(values, name="sensitivity")


class _Stack:
    """Class probabilities of several networks, in double precision."""

    def __init__(self, functions):
        self.functions = functions

    def __call__(self, x):
        return torch.stack([function(x).double() for function in self.functions])


class _StackMoments(_Stack):
    """Means and standard deviations of several networks."""

    def __call__(self, x):
        outputs = super().__call__(x)
        if outputs.shape[2] == 2:
            return outputs[..., :1], outputs[..., 1:]
        return outputs, torch.zeros_like(outputs)


# Models whose coefficients are put into a module.
REBUILT = MLPClassifier | MLPRegressor | LogisticRegression


def _members(model, n_classes):
    """List functions from rows to outputs, each with whether it classifies."""
    if isinstance(model, list | tuple):
        if not model:
            raise ValueError("An ensemble needs at least one member, got none.")
        return [pair for member in model for pair in _members(member, n_classes)]
    if isinstance(model, BaggingClassifier | BaggingRegressor):
        return _bagging_members(model)
    if isinstance(model, REBUILT):
        check_is_fitted(model)
        module = _rebuilt(model)
        return [(_Module(module, torch.float64), is_classifier(model))]
    if isinstance(model, torch.nn.Module):
        return [_torch_member(model, n_classes)]
    if is_net(model):
        check_is_fitted(model, "module_")
        return [_skorch_member(model)]
    raise _refusal(model)


def check_differentiable(model, is_member=False):
    """Refuse, before it is fitted, a model that as_provider would refuse after.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them, or such a model frozen or at the end of a
        pipeline; fitted or not.

    is_member : bool, default=False
        Whether the model belongs to an ensemble.
    """
    if isinstance(model, list | tuple):
        for member in model:
            check_differentiable(_thawed(member), is_member=True)
        return
    if not is_member:
        _, model = peel(model)
    if isinstance(model, BaggingClassifier | BaggingRegressor):
        member = model.estimator
        if member is None:  # what they bag by default
            is_class = is_classifier(model)
            member = DecisionTreeClassifier() if is_class else DecisionTreeRegressor()
        check_differentiable(member, is_member=True)
    elif not (
        isinstance(model, torch.nn.Module | REBUILT)
        or is_net(model)
        or (hasattr(model, "uncertainty_provider") and not is_member)
    ):
        raise _refusal(model)


def is_net(model):
    """Say whether a model is a net of skorch, fitted or not."""
    return hasattr(model, "module") and hasattr(model, "criterion")


def _refusal(model):
    name = type(model).__name__
    if hasattr(model, "uncertainty_provider"):
        return TypeError(
            f"An ensemble cannot hold a {name}, which knows how unsure it is on its "
            "own. Use it alone."
        )
    return TypeError(
        f"{name} cannot be differentiated, so nothing can be explained about it. Use "
        "BayesianMLPClassifier or BayesianMLPRegressor, a torch module, a skorch net, "
        "scikit-learn's MLPClassifier, MLPRegressor or LogisticRegression, or a list "
        "of them."
    )


class _Module:
    """A module as a function, with rows cast to its dtype."""

    def __init__(self, module, dtype):
        self.module = module
        self.dtype = dtype
        self.activation = None
        self.columns = None  # that a member of a bagging ensemble sees
        self.classes = None  # (which it knows, of how many)

    def __call__(self, x):
        x = x.to(self.dtype)
        outputs = self.module(x if self.columns is None else x[:, self.columns])
        if self.activation is not None:
            outputs = self.activation(outputs)
        if self.classes is not None:
            known, n_classes = self.classes
            blank = outputs.new_zeros(len(outputs), n_classes)
            outputs = blank.index_copy(1, known, outputs)
        return outputs


def _frozen_copy(module):
    return copy.deepcopy(module).requires_grad_(False).eval()


def _module_dtype(module):
    return next((p.dtype for p in module.parameters()), DTYPE)


def _torch_member(module, n_classes):
    module = _frozen_copy(module)
    function = _Module(module, _module_dtype(module))
    if n_classes is None:
        function.activation = _as_columns
        return function, False
    function.activation = _as_probabilities
    return function, True


def _as_columns(outputs):
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.ndim != 2 or outputs.shape[1] > 2:
        raise ValueError(
            "A regression module must answer with means of shape (n_rows, 1), or with "
            "means and standard deviations of shape (n_rows, 2), got "
            f"{tuple(outputs.shape)}."
        )
    return outputs


def _as_probabilities(outputs):
    """Read logits or probabilities; one column is about the second of two classes."""
    outputs = outputs.double()
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.shape[1] == 1:
        return _two_columns(outputs.sigmoid())
    # Row by row: no row may depend on its neighbours.
    is_proba = (outputs >= 0).all(1) & ((outputs.sum(1) - 1).abs() < 1e-4)
    return torch.where(is_proba[:, None], outputs, outputs.softmax(1))


def _two_columns(proba):
    proba = proba.reshape(-1, 1)
    return torch.cat([1 - proba, proba], 1)


def _skorch_member(net):
    module = _frozen_copy(net.module_)
    function = _Module(module, _module_dtype(module))
    if not is_classifier(net):
        function.activation = _as_columns
        return function, False
    # What skorch's predict_proba does by default: it looks at the criterion.
    if isinstance(net.criterion_, torch.nn.CrossEntropyLoss):
        function.activation = _softmax
    elif isinstance(net.criterion_, torch.nn.BCEWithLogitsLoss):
        function.activation = _sigmoid
    return function, True


def _softmax(outputs):
    return outputs.double().softmax(-1)


def _sigmoid(outputs):
    return _two_columns(outputs.double().sigmoid())


_ACTIVATIONS = {
    "identity": torch.nn.Identity,
    "logistic": torch.nn.Sigmoid,
    "tanh": torch.nn.Tanh,
    "relu": torch.nn.ReLU,
}


class _Softmax(torch.nn.Module):
    def forward(self, outputs):
        return outputs.softmax(1)


class _Sigmoid(torch.nn.Module):
    def forward(self, outputs):
        return _two_columns(outputs.sigmoid())


def _rebuilt(model):
    """Rebuild the fitted coefficients of a scikit-learn model as a torch module."""
    if isinstance(model, LogisticRegression):
        coefs, intercepts = [model.coef_.T], [model.intercept_]
        hidden = None
        answer = _Sigmoid() if len(model.classes_) == 2 else _Softmax()
    else:
        coefs, intercepts = model.coefs_, model.intercepts_
        hidden = _ACTIVATIONS[model.activation]
        answer = {
            "identity": torch.nn.Identity,
            "logistic": _Sigmoid,
            "softmax": _Softmax,
        }[model.out_activation_]()
    layers = []
    for coef, intercept in zip(coefs, intercepts, strict=True):
        # First weights would be drawn from torch's global generator, for nothing.
        linear = torch.nn.utils.skip_init(
            torch.nn.Linear, *coef.shape, dtype=torch.float64
        )
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(np.array(coef.T)))
            linear.bias.copy_(torch.as_tensor(np.array(intercept)))
        layers += [linear] if hidden is None else [linear, hidden()]
    layers = layers if hidden is None else layers[:-1]
    return torch.nn.Sequential(*layers, answer).requires_grad_(False).eval()


def _bagging_members(ensemble):
    members = []
    for member, columns in zip(
        ensemble.estimators_, ensemble.estimators_features_, strict=True
    ):
        ((function, is_classification),) = _members(member, None)
        function.columns = torch.as_tensor(np.array(columns))
        if is_classification:
            # The members were fitted on codes of the classes, and a bootstrap sample
            # may lack some of them.
            known = torch.as_tensor(np.array(member.classes_, dtype=np.int64))
            function.classes = (known, len(ensemble.classes_))
        members.append((function, is_classification))
    return members
