"""What a model is: its parts, its task and its labels, before it is asked anything."""

import copy

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.multiclass import type_of_target

from sklearn_clue import _tables
from sklearn_clue._torch import DTYPE, as_tensor
from sklearn_clue.uncertainty import UncertaintyProvider

# What the attribute `answers_with` of a torch module may say.
ANSWERS = ("classes", "mean", "mean_std")


def is_net(model):
    """Say whether a model is a net of skorch, fitted or not."""
    return hasattr(model, "module") and hasattr(model, "criterion")


def is_search(model):
    """Whether a model is chosen by a search, as GridSearchCV does."""
    return hasattr(model, "param_grid") or hasattr(model, "param_distributions")


def predicts_classes(model):
    try:
        return is_classifier(model)
    except (AttributeError, TypeError):  # it has scikit-learn's manners, but no tags
        return hasattr(model, "predict_proba")


def predicts_numbers(model):
    try:
        return is_regressor(model)
    except (AttributeError, TypeError):
        return hasattr(model, "predict") and not hasattr(model, "predict_proba")


def quantile_of(model):
    """The quantile that a regressor predicts, or None if it predicts something else."""
    if not hasattr(model, "get_params") or predicts_classes(model):
        return None
    params = model.get_params(deep=False)
    loss = params.get("loss") or params.get("objective") or params.get("loss_function")
    names_it = type(model).__name__ == "QuantileRegressor"
    if not (names_it or "quantile" in str(loss).lower()):
        return None
    if "alpha=" in str(loss):  # as CatBoost writes it: "Quantile:alpha=0.9"
        return float(str(loss).rpartition("alpha=")[2])
    for name in ("quantile", "quantile_alpha", "alpha"):
        if isinstance(params.get(name), float):
            return params[name]
    return None


def feature_names_of(model):
    """Names of the columns that a model was fitted on, or None."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else list(names)


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


def thawed(part):
    """Take a FrozenEstimator off."""
    return part.estimator if isinstance(part, FrozenEstimator) else part


def same_steps(members, X):
    """Say whether models, each after steps of its own, see the same rows.

    Parameters
    ----------
    members : list of estimators
        The fitted members of an ensemble.

    X : {array-like, DataFrame}
        Rows as the first step takes them.

    Returns
    -------
    is_same : bool
        Whether there are such steps, and they make the same table of X.
    """
    all_steps = [peel(member)[0] for member in members]
    if not all(all_steps):
        return False
    tables = []
    for steps in all_steps:
        rows = X
        for step in steps:
            rows = step.transform(rows)
        tables.append(pd.DataFrame(np.asarray(_tables.dense(rows))))
    return all(table.equals(tables[0]) for table in tables)


def names_after(steps, names):
    """Names of the columns after some transformers; None if one does not tell."""
    try:
        for step in steps:
            names = step.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return list(names)


def read_task(model, X, y):
    """Say whether a model classifies, fitted or not; ask where nobody can tell.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them, fitted or not.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Training rows.

    y : array-like or None
        Their targets.

    Returns
    -------
    is_classification : bool
        Whether it does.
    """
    tasks = {
        classifies(member, X, y)
        for member in (model if isinstance(model, list) else [model])
    }
    check_one_task(tasks, model)
    (is_classification,) = tasks
    if is_classification and np.shape(y)[1:] not in ((), (1,)):
        raise ValueError(
            f"Targets of several labels per row cannot be explained, got y of shape "
            f"{np.shape(y)}. Explain one column of y at a time."
        )
    return is_classification


def classifies(member, X, y):
    _, model = peel(member)
    if isinstance(model, UncertaintyProvider):
        return bool(model.is_classification)
    if not isinstance(model, torch.nn.Module):
        return predicts_classes(model)
    answer = declared_answer(model)
    if answer is not None:
        return answer == "classes"
    received = "no y"
    if y is not None:
        kind, labels = type_of_target(y), np.unique(y)
        if kind.startswith("continuous"):
            return False
        if labels.dtype.kind not in "iuf":
            return True
        # A single target has a single mean, so two or more columns are logits.
        width = _width(model, X)
        if kind in ("binary", "multiclass") and width == len(labels) > 1:
            return True
        received = (
            f"{width} column(s) of outputs, and whole numbers as targets: "
            f"{labels[:5].tolist()}{'...' if len(labels) > 5 else ''}"
        )
    raise ValueError(
        f"{type(model).__name__} does not say whether it classifies, got {received}. "
        "Set its attribute answers_with to 'classes', 'mean' or 'mean_std'; see "
        "sklearn_clue.providers.as_provider."
    )


def _width(module, X):
    module = frozen_copy(module)
    rows = as_tensor(np.asarray(X[:2], dtype=np.float64), dtype=module_dtype(module))
    outputs = module(rows)
    return None if isinstance(outputs, tuple) else outputs[0].numel()


def check_one_task(tasks, model):
    if len(tasks) > 1:
        raise TypeError(
            "An ensemble must hold classifiers only or regressors only, got both: "
            f"{model!r}."
        )


def check_prediction(model, prediction, y):
    """Refuse a model whose predictions are not what its targets ask for.

    Parameters
    ----------
    model : object
        The fitted model.

    prediction : ndarray of shape (n_rows, n_columns)
        Its class probabilities, or means.

    y : array-like or None
        The targets it is about; None for classes.
    """
    name = type(model).__name__
    if y is None:
        if (prediction < 0).any() or np.abs(prediction.sum(1) - 1).max() > 1e-3:
            raise ValueError(
                f"{name} must answer with probabilities, which add up to 1, got "
                f"{prediction[0].round(3).tolist()}. For a skorch net, see its "
                "predict_nonlinearity."
            )
        return
    n_targets = 1 if np.ndim(y) == 1 else np.shape(y)[1]
    if prediction.shape[1] != n_targets:
        raise ValueError(
            f"{name} answers with {prediction.shape[1]} columns for {n_targets} "
            "target(s). If it predicts means and standard deviations, say so: set "
            "answers_with = 'mean_std' on the torch module."
        )


def labels_of(model, n_classes, y=None):
    """Class labels in the order of the probabilities of a fitted model.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them.

    n_classes : int or None
        Number of columns of its probabilities; None if that is not known yet.

    y : array-like or None, default=None
        Targets, for models that know no labels.

    Returns
    -------
    labels : ndarray of shape (n_classes,) or None
        None if nobody knows.
    """
    labels = known_labels(model)
    if labels is not None:
        return labels
    members = model if isinstance(model, list) else [model]
    # A skorch net predicts positions, whatever the labels were.
    if y is None or all(is_net(peel(member)[1]) for member in members):
        return None if n_classes is None else np.arange(n_classes)
    return np.unique(y)


def known_labels(model):
    if isinstance(model, list | tuple):
        known = [known_labels(member) for member in model]
        known = [labels for labels in known if labels is not None]
        if len({labels.dtype.kind for labels in known}) > 1:
            raise TypeError(
                "The members of an ensemble know labels of different types, got "
                f"{[labels.tolist() for labels in known]}. Fit them to the same labels."
            )
        return np.unique(np.concatenate(known)) if known else None
    _, model = peel(model)
    labels = None if is_net(model) else getattr(model, "classes_", None)
    return None if labels is None else np.asarray(labels)


def declared_answer(module):
    """What a torch module says that it answers with; None if it says nothing."""
    answer = getattr(module, "answers_with", None)
    if answer not in (None, *ANSWERS):
        raise ValueError(
            f"answers_with of {type(module).__name__} must be one of "
            f"{', '.join(map(repr, ANSWERS))}, got {answer!r}."
        )
    return answer


def frozen_copy(module):
    return copy.deepcopy(module).requires_grad_(False).eval()


def module_dtype(module):
    return next((p.dtype for p in module.parameters()), DTYPE)
