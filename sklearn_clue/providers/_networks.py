"""Models with gradients: networks, alone and in ensembles, as modules of torch."""

import copy
from functools import partial

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.validation import check_is_fitted

from sklearn_clue.providers._models import (
    declared_answer,
    frozen_copy,
    module_dtype,
)
from sklearn_clue.uncertainty import (
    Uncertainty,
    entropy_parts,
    root,
    variance_parts,
)


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

    threshold : float or None, default=None
        The probability of the second of two classes above which it is predicted; None
        predicts the most probable class.
    """

    is_differentiable = True

    def __init__(
        self, members, *, is_classification, center=None, scale=None, threshold=None
    ):
        self.members = members
        self.is_classification = is_classification
        self.center = np.zeros(1) if center is None else np.asarray(center)
        self.scale = np.ones(1) if scale is None else np.asarray(scale)
        self.threshold = threshold

    @property
    def input_dtype(self):
        """The precision in which rows are seen, as numpy calls it."""
        return getattr(self.members, "input_dtype", np.float64)

    def thinned(self, n_members):
        """The same by so many of the networks; None if that is no saving."""
        thin = getattr(self.members, "thinned", lambda n_members: None)(n_members)
        if thin is None:
            return None
        provider = copy.copy(self)
        provider.members = thin
        return provider

    def uncertainty(self, x):
        if self.is_classification:
            proba = self.members(x)
            return entropy_parts(proba), proba.mean(0)
        mean, std = self.members(x)
        parts = variance_parts(mean, std)
        if mean.shape[2] > 1:  # the length of the vector of standard deviations
            parts = Uncertainty(*(root(part.square().sum(-1)) for part in parts))
        else:
            parts = Uncertainty(*(part[:, 0] for part in parts))
        return parts, mean.mean(0)


class AffineInputs:
    """A provider that sees rows in units of its own: `factor * x + offset`."""

    def __init__(self, provider, offset, factor):
        self.provider = provider
        self.offset = np.array(offset, dtype=np.float64)
        self.factor = np.array(factor, dtype=np.float64)
        for name, default in _OPTIONAL.items():
            setattr(self, name, getattr(provider, name, default))
        self.is_classification = provider.is_classification

    def thinned(self, n_members):
        """See `EnsembleProvider`."""
        thin = getattr(self.provider, "thinned", lambda n_members: None)(n_members)
        return None if thin is None else AffineInputs(thin, self.offset, self.factor)

    def uncertainty(self, x):
        """Judge encoded rows; see `UncertaintyProvider`."""
        return of_affine(self.provider.uncertainty, self.offset, self.factor, x)


# What a provider need not say, and what it means then.
_OPTIONAL = {"is_differentiable": True, "center": 0.0, "scale": 1.0, "threshold": None}


def unit_of(provider):
    """Factor from the uncertainty of a provider to the unit of the target."""
    scale = np.atleast_1d(getattr(provider, "scale", 1.0))
    # Several outputs have several units; their joint spread stays standardised.
    return float(scale[0]) if len(scale) == 1 else 1.0


def decide(provider, prediction):
    """Positions of the predicted classes, or means in the unit of the target."""
    if provider.is_classification:
        threshold = getattr(provider, "threshold", None)
        if threshold is None:
            return prediction.argmax(1)
        return (prediction[:, 1] > threshold).astype(np.intp)
    center, scale = getattr(provider, "center", 0.0), getattr(provider, "scale", 1.0)
    prediction = prediction * scale + center
    return prediction[:, 0] if prediction.shape[1] == 1 else prediction


def check_gradients(provider, who):
    """Refuse a provider that answers with values only, on behalf of who needs more."""
    if not getattr(provider, "is_differentiable", True):
        raise TypeError(
            f"{who} follows gradients of the uncertainty, and the model has none: "
            "is_differentiable is False. It can still tell how unsure it is, by "
            "predict_uncertainty and rejects. Explain it by NeighborExplainer, or by "
            "CLUEExplainer with distance_weight=None and search='auto'."
        )


# Models whose coefficients are put into a module.
REBUILDABLE = MLPClassifier | MLPRegressor | LogisticRegression


def of_coefficients(model, n_classes):
    check_is_fitted(model)
    is_classification = is_classifier(model)
    activation = getattr(model, "out_activation_", None)
    if activation == "logistic" and model.n_outputs_ > 1:
        raise ValueError(
            f"{type(model).__name__} was fitted to {model.n_outputs_} labels per row, "
            "which cannot be explained together. Fit one model per label."
        )
    read = _as_slab if is_classification else _as_means
    return _one_network(_rebuilt(model), read, is_classification)


def of_module(module, n_classes):
    answer = declared_answer(module) or ("mean" if n_classes is None else "classes")
    read = {
        "classes": partial(_as_probabilities, n_classes),
        "mean": _as_means,
        "mean_std": _as_moments,
    }[answer]
    return _one_network(frozen_copy(module), read, answer == "classes")


def of_net(net, n_classes):
    check_is_fitted(net, "module_")
    if not is_classifier(net) and declared_answer(net.module_) == "mean_std":
        read = _as_moments
    else:
        # What its predict and predict_proba do.
        nonlinearity = net._get_predict_nonlinearity()
        read = partial(_as_net, nonlinearity, is_classifier(net))
    provider = _one_network(frozen_copy(net.module_), read, is_classifier(net))
    provider.threshold = getattr(net, "threshold", None)
    return provider


def joined(providers, threshold=None):
    return EnsembleProvider(
        partial(_together, [provider.members for provider in providers]),
        is_classification=providers[0].is_classification,
        threshold=threshold,
    )


def _one_network(module, read, is_classification):
    members = partial(_said, module, module_dtype(module), read)
    return EnsembleProvider(members, is_classification=is_classification)


def _said(module, dtype, read, x):
    return read(module(x.to(dtype)))


def of_affine(function, offset, factor, x):
    offset, factor = (torch.as_tensor(part) for part in (offset, factor))
    return function(x.double() * factor + offset)


def of_columns(function, columns, x):
    return function(x[:, columns])


def aligned(members, positions, n_classes):
    return partial(_in_order, members, torch.as_tensor(positions), n_classes)


def _in_order(members, positions, n_classes, x):
    proba = members(x)
    blank = proba.new_zeros(*proba.shape[:2], n_classes)
    return blank.index_copy(2, positions, proba)


def _together(members, x):
    said = [member(x) for member in members]
    if isinstance(said[0], tuple):
        return tuple(map(_stacked, zip(*said, strict=True)))
    return _stacked(said)


def _stacked(said):
    widths = [each.shape[2] for each in said]
    if len(set(widths)) > 1:
        raise ValueError(
            "The members of an ensemble must answer with the same classes or targets, "
            f"got {widths} columns. Leave out those that differ."
        )
    return torch.cat(said)


def _as_columns(outputs):
    """Outputs of a module with one column per class or target."""
    if isinstance(outputs, torch.Tensor) and outputs.ndim in (1, 2):
        return outputs.double().reshape(len(outputs), -1)
    raise ValueError(
        "A torch module must answer with a tensor of shape (n_rows, n_columns), got "
        f"{getattr(outputs, 'shape', type(outputs).__name__)}. A pair of means and "
        "standard deviations is declared: answers_with = 'mean_std'."
    )


def _as_slab(outputs):
    return outputs[None]


def _as_means(outputs):
    outputs = _as_columns(outputs)[None]
    return outputs, torch.zeros_like(outputs)


def _as_moments(outputs):
    if isinstance(outputs, torch.Tensor):
        outputs = _as_columns(outputs)
        if outputs.shape[1] % 2:
            raise ValueError(
                "Means and standard deviations need an even number of columns, got "
                f"{outputs.shape[1]}. Mend the module, or its answers_with."
            )
        outputs = outputs.chunk(2, 1)
    mean, std = (_as_columns(part)[None] for part in outputs)
    if (std < 0).any():
        raise ValueError(
            f"A standard deviation cannot be negative, got {std.min():.3g} from a "
            "module with answers_with = 'mean_std'. Let it apply softplus or exp."
        )
    return mean, std


def _as_probabilities(n_classes, outputs):
    """Read logits or probabilities; one column is about the second of two classes."""
    outputs = _as_columns(outputs)
    n_columns = outputs.shape[1]
    if n_classes not in (None, max(n_columns, 2)):
        raise ValueError(
            f"A torch module answers with {n_columns} column(s) for {n_classes} "
            "classes. There must be a logit or probability for each class, or a single "
            "logit for two classes."
        )
    if n_columns == 1:
        return _two_columns(outputs.sigmoid())[None]
    # Row by row: no row may depend on its neighbours.
    is_proba = (outputs >= 0).all(1) & ((outputs.sum(1) - 1).abs() < 1e-4)
    return torch.where(is_proba[:, None], outputs, outputs.softmax(1))[None]


def _as_net(nonlinearity, is_classification, outputs):
    outputs = (outputs[0] if isinstance(outputs, tuple) else outputs).double()
    if not is_classification:
        return _as_means(nonlinearity(outputs))
    proba = nonlinearity(outputs[:, 0] if outputs.shape[1:] == (1,) else outputs)
    if proba.ndim != 2:
        raise ValueError(
            "A skorch net must predict one label per row, got probabilities of shape "
            f"{tuple(proba.shape)}. Fit one net per label."
        )
    return proba[None]


def _two_columns(proba):
    return torch.cat([1 - proba, proba], 1)


_ACTIVATIONS = {
    "identity": torch.nn.Identity,
    "logistic": torch.nn.Sigmoid,
    "tanh": torch.nn.Tanh,
    "relu": torch.nn.ReLU,
}


class _Sigmoid(torch.nn.Module):
    def forward(self, outputs):
        return _two_columns(outputs.sigmoid())


class _Exp(torch.nn.Module):
    def forward(self, outputs):
        return outputs.exp()


def _rebuilt(model):
    """Rebuild the fitted coefficients of a scikit-learn model as a torch module."""
    if isinstance(model, LogisticRegression):
        coefs, intercepts = [model.coef_.T], [model.intercept_]
        hidden = None
        answer = _Sigmoid() if len(model.classes_) == 2 else torch.nn.Softmax(1)
    else:
        coefs, intercepts = model.coefs_, model.intercepts_
        hidden = _ACTIVATIONS[model.activation]
        answer = {
            "identity": torch.nn.Identity(),
            "logistic": _Sigmoid(),
            "softmax": torch.nn.Softmax(1),
            "exp": _Exp(),
        }[model.out_activation_]
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
