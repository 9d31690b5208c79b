"""Which model becomes which provider of uncertainty, and what becomes of the rest.

A model is read right here or refused by name, most of the time before it is fitted.
"""

import copy
import inspect
from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import ARDRegression, BayesianRidge, LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_array, gen_batches
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from sklearn_clue._row_ensembles import (
    BaggedRows,
    MembersRows,
    TreesRows,
    tree_members,
)
from sklearn_clue._rows import (
    EncodedRows,
    ProbabilityRows,
    QuantileRows,
    SpreadRows,
    StepsRows,
    read_distribution,
    read_gaussian_process,
    read_mean,
    read_precision,
    read_return_std,
    read_variance,
)
from sklearn_clue._tables import take
from sklearn_clue._torch import DTYPE, PRECISE_DTYPE, as_tensor, one_thread
from sklearn_clue.uncertainty import (
    TableProvider,
    Uncertainty,
    UncertaintyProvider,
    entropy_parts,
    root,
    variance_parts,
    weighted_sum,
    weights_of_parts,
)

__all__ = ["as_provider", "as_table_provider", "global_sensitivity"]

# What the attribute `answers_with` of a torch module may say.
ANSWERS = ("classes", "mean", "mean_std")


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

    def uncertainty(self, x):
        """Judge encoded rows; see `UncertaintyProvider`."""
        return _of_affine(self.provider.uncertainty, self.offset, self.factor, x)


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
            "is_differentiable is False. It can still tell how unsure it is: use "
            "predict_uncertainty and rejects."
        )


def as_provider(model, n_classes=None):
    """View a fitted model as a source of uncertainty.

    Parameters
    ----------
    model : object
        - an UncertaintyProvider, which is returned as it is;
        - an estimator with a method `uncertainty_provider`, as the Bayesian MLPs;
        - a torch module, in its evaluation mode: see Notes;
        - a skorch net around such a module, which answers as its `predict_proba` or
          `predict` does;
        - :class:`~sklearn.neural_network.MLPClassifier`,
          :class:`~sklearn.neural_network.MLPRegressor`,
          :class:`~sklearn.linear_model.LogisticRegression`, whose coefficients are
          rebuilt as a module;
        - one of these in a :class:`~sklearn.frozen.FrozenEstimator`, or at the end of
          a :class:`~sklearn.pipeline.Pipeline` of scalers;
        - a list of the above, or a :class:`~sklearn.ensemble.BaggingClassifier` or
          :class:`~sklearn.ensemble.BaggingRegressor` of them: an ensemble, which is
          unsure where its members disagree. Classes are matched by label.

        Models without gradients are asked about rows of a table:

        - forests, and bagging and voting ensembles or lists of any models;
        - any classifier with `predict_proba`;
        - regressors with `predict(X, return_std=True)`, `pred_dist` or `predict_var`;
        - a list of regressors of different quantiles;
        - a pipeline of any steps and one of these, or one of the models above.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    Returns
    -------
    provider : UncertaintyProvider or TableProvider
        Takes rows as the model does: tensors where gradients reach them; else tables,
        and `is_differentiable` is False and `takes_tables` True.

    Notes
    -----
    How the uncertainty of a model without gradients splits is a matter of its kind; see
    the :doc:`chapter on models </user_guide/models>`. Its provider has two methods more
    than it needs: `learn(X, y)` shows it the rows that the model was fitted on, by
    which forests and bagging ensembles tell noise, and `out_of_bag(X, y)` judges these
    rows as if they were new.

    What a torch module answers with is told and not guessed from its shape. Its
    attribute `answers_with` says it, of a module or of its class, bare or in a skorch
    net:

    - `"classes"`: logits or probabilities of shape (n_rows, n_classes), or a single
      logit for two classes;
    - `"mean"`: means of shape (n_rows, n_outputs);
    - `"mean_std"`: a pair of means and standard deviations of that shape, or one
      tensor with the means in its first half of columns.

    Without it, `n_classes` tells classes from means.

    Examples
    --------
    >>> import torch
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.providers import as_provider
    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> x = torch.tensor([[1.5], [99.0]], dtype=torch.float64)
    >>> parts, proba = as_provider(model).uncertainty(x)
    >>> parts.total.numpy().round(2)
    array([0.69, 0.  ])

    A network that predicts a mean and a standard deviation says so:

    >>> heads = torch.nn.Linear(1, 2, dtype=torch.float64)
    >>> net = torch.nn.Sequential(heads, torch.nn.Softplus())
    >>> net.answers_with = "mean_std"
    >>> parts, mean = as_provider(net).uncertainty(x)
    >>> torch.equal(parts.aleatoric, net(x)[:, 1])
    True
    """
    return _builder(model)(model, n_classes)


def as_table_provider(model, n_classes=None):
    """View a fitted model as a source of uncertainty that takes tables.

    What has gradients is asked for values only.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    Returns
    -------
    provider : TableProvider
        Takes rows as the model does.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.providers import as_table_provider
    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> parts, proba = as_table_provider(model).uncertainty_of_rows([[1.5], [99.0]])
    >>> parts.total.round(2)
    array([0.69, 0.  ])
    """
    return _in_tables(model, as_provider(model, n_classes), n_classes)


def _in_tables(model, provider, n_classes=None):
    """The provider of a model if it takes tables, else one that does."""
    if takes_tables(provider):
        return provider
    steps, last = peel(model)
    if steps and hasattr(last, "encoder_"):
        return _of_steps(model, n_classes)
    return EncodedRows(
        provider,
        getattr(last, "encoder_", None),
        type(last).__name__,
        feature_names_of(model),
    )


def takes_tables(provider):
    """Say whether a provider is asked about rows of a table, and not about tensors."""
    return getattr(provider, "takes_tables", False)


def unseen_uncertainty(model, X, y, *, cv=5, n_classes=None):
    """Tell how unsure a model is about training rows when it has not seen them.

    Models that learn rows by heart are much surer about these than about new ones.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them, fitted or not.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Training rows.

    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.

    cv : int, splitter or iterable, default=5
        How rows are held out, as in :func:`~sklearn.model_selection.cross_val_score`.

    n_classes : int or None, default=None
        As in :func:`as_provider`.

    Returns
    -------
    parts : Uncertainty or None
        Of the held-out rows, in the order of the folds, in the unit of the target.
        None if the model cannot be fitted again.
    """
    members = model if isinstance(model, list | tuple) else [model]
    fresh = [_unfitted(member) for member in members]
    if any(member is None for member in fresh):
        return None
    splitter = check_cv(cv, y, classifier=_classifies(members[0], X, y))
    pieces = []
    for train, test in splitter.split(X, y):
        rows, targets = take(X, train), take(y, train)
        fitted = [clone(member).fit(rows, targets) for member in fresh]
        fitted = fitted if isinstance(model, list | tuple) else fitted[0]
        provider = as_table_provider(fitted, n_classes)
        provider.learn(rows, targets)
        parts, _ = provider.uncertainty_of_rows(take(X, test))
        pieces.append([unit_of(provider) * part for part in parts])
    return Uncertainty(*map(np.concatenate, zip(*pieces, strict=True)))


def _unfitted(model):
    """A model to fit again; None if there is no way to."""
    while isinstance(model, FrozenEstimator):
        model = model.estimator
    return model if isinstance(model, BaseEstimator) else None


def feature_names_of(model):
    """Names of the columns that a model was fitted on, or None."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else list(names)


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
    >>> from sklearn_clue.providers import global_sensitivity
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
    provider = as_provider(model, n_classes)
    check_gradients(provider, "global_sensitivity")
    gradient = _gradient(provider, weights, x)
    # A TabularEncoder knows the columns, inside of the model or before it.
    schema = getattr(thawed(steps[-1]), "schema_", None) if steps else None
    if schema is not None:
        return _by_column(schema, x, gradient)
    if not (provider is model or hasattr(model, "encoder_")):
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
        tables.append(pd.DataFrame(np.asarray(rows)))
    return all(table.equals(tables[0]) for table in tables)


def names_after(steps, names):
    """Names of the columns after some transformers; None if one does not tell."""
    try:
        for step in steps:
            names = step.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return list(names)


# Before the fit ----------------------------------------------------------------------


def check_model(model, is_member=False):
    """Refuse, before it is fitted, a model that as_provider would refuse after.

    Parameters
    ----------
    model : object
        As :func:`as_provider` takes them, fitted or not.

    is_member : bool, default=False
        Whether the model belongs to an ensemble.
    """
    _, model = peel(model)
    _builder(model, is_member)
    if isinstance(model, list | tuple):
        if not model:
            raise ValueError(
                "estimator is an empty list, and an ensemble needs at least one "
                "member. Give some, or None for a BayesianMLPClassifier."
            )
        members = model
    elif isinstance(model, _BAGGING):
        member = model.estimator
        if member is None:  # what they bag by default
            is_class = is_classifier(model)
            member = DecisionTreeClassifier() if is_class else DecisionTreeRegressor()
        members = [member]
    elif isinstance(model, _VOTING):
        members = [member for _, member in model.estimators if member != "drop"]
    elif _is_search(model):
        members = []
        check_model(model.estimator, is_member)
    else:
        members = []
        if is_member and _speaks_for_itself(model):
            raise TypeError(
                f"An ensemble cannot hold a {type(model).__name__}, which knows how "
                "unsure it is on its own, in a space of its own. Use it alone."
            )
    for member in members:
        check_model(member, is_member=True)


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
        _classifies(member, X, y)
        for member in (model if isinstance(model, list) else [model])
    }
    _check_one_task(tasks, model)
    (is_classification,) = tasks
    if is_classification and np.shape(y)[1:] not in ((), (1,)):
        raise ValueError(
            f"Targets of several labels per row cannot be explained, got y of shape "
            f"{np.shape(y)}. Explain one column of y at a time."
        )
    return is_classification


def _classifies(member, X, y):
    _, model = peel(member)
    if isinstance(model, UncertaintyProvider):
        return bool(model.is_classification)
    if not isinstance(model, torch.nn.Module):
        return _predicts_classes(model)
    answer = _declared(model)
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
    module = _frozen_copy(module)
    rows = as_tensor(np.asarray(X[:2], dtype=np.float64), dtype=_module_dtype(module))
    outputs = module(rows)
    return None if isinstance(outputs, tuple) else outputs[0].numel()


def _check_one_task(tasks, model):
    if len(tasks) > 1:
        raise TypeError(
            "An ensemble must hold classifiers only or regressors only, got both: "
            f"{model!r}."
        )


# After the fit -----------------------------------------------------------------------


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
    labels = _known_labels(model)
    if labels is not None:
        return labels
    members = model if isinstance(model, list) else [model]
    # A skorch net predicts positions, whatever the labels were.
    if y is None or all(is_net(peel(member)[1]) for member in members):
        return None if n_classes is None else np.arange(n_classes)
    return np.unique(y)


def _known_labels(model):
    if isinstance(model, list | tuple):
        known = [_known_labels(member) for member in model]
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


# The registry ------------------------------------------------------------------------

_BAGGING = BaggingClassifier | BaggingRegressor
_VOTING = VotingClassifier | VotingRegressor
_FORESTS = (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
_TREES = DecisionTreeClassifier | DecisionTreeRegressor
# What is affine, column by column.
_SCALERS = (MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler)
# Models whose coefficients are put into a module.
_REBUILDABLE = MLPClassifier | MLPRegressor | LogisticRegression


def is_net(model):
    """Say whether a model is a net of skorch, fitted or not."""
    return hasattr(model, "module") and hasattr(model, "criterion")


def _speaks_for_itself(model):
    return isinstance(model, UncertaintyProvider | TableProvider) or hasattr(
        model, "uncertainty_provider"
    )


def _is_a(kind):
    return lambda model: isinstance(model, kind)


def _is_search(model):
    """Whether a model is chosen by a search, as GridSearchCV does."""
    return hasattr(model, "param_grid") or hasattr(model, "param_distributions")


def _is_soft_voting(model):
    return isinstance(model, VotingClassifier) and model.voting == "soft"


def _predicts_classes(model):
    try:
        return is_classifier(model)
    except (AttributeError, TypeError):  # it has scikit-learn's manners, but no tags
        return hasattr(model, "predict_proba")


def _predicts_numbers(model):
    try:
        return is_regressor(model)
    except (AttributeError, TypeError):
        return hasattr(model, "predict") and not hasattr(model, "predict_proba")


def _has_probabilities(model):
    if not _predicts_classes(model):
        return False
    if hasattr(model, "predict_proba"):
        return True
    # Some that hold others can tell only after the fit.
    holds_others = hasattr(model, "estimators") or hasattr(model, "estimator")
    is_hard = getattr(model, "voting", None) == "hard"
    return holds_others and not is_hard and hasattr(type(model), "predict_proba")


def _returns_std(model):
    predict = getattr(model, "predict", None)
    return (
        not _predicts_classes(model)
        and predict is not None
        and "return_std" in inspect.signature(predict).parameters
    )


def _has(method):
    return lambda model: hasattr(model, method) and not _predicts_classes(model)


def _builder(model, is_member=False):
    for accepts, build in REGISTRY:
        if accepts(model):
            return build
    if is_member and _predicts_numbers(model):
        return _of_point  # whose spread is that of the members
    raise TypeError(_refusal(model))


def _refusal(model):
    name = type(model).__name__
    if getattr(model, "voting", None) == "hard":
        return (
            f"{name} with voting='hard' answers with labels only, which do not say how "
            "sure it is. Set voting='soft'."
        )
    if _predicts_classes(model):
        return (
            f"{name} has no predict_proba, and labels alone do not say how sure a "
            "model is. Calibrate it, sklearn.calibration.CalibratedClassifierCV("
            f"{name}()), or let it learn probabilities if it can."
        )
    if quantile_of(model) is not None:
        return (
            f"{name} predicts one quantile, {quantile_of(model)}, and a spread takes "
            "two. Give a list of such models, for example of the quantiles 0.05, 0.5 "
            "and 0.95."
        )
    if _predicts_numbers(model):
        return (
            f"{name} predicts a number and does not say how far off it may be. Bag it, "
            f"sklearn.ensemble.BaggingRegressor({name}()), or let another model "
            f"predict its errors, sklearn_clue.PredictedNoiseRegressor({name}())."
        )
    return (
        f"{name} is neither a classifier with predict_proba nor a regressor that tells "
        "how far off it may be, so there is no uncertainty to explain. Use such a "
        "model of scikit-learn or with its manners, BayesianMLPClassifier or "
        "BayesianMLPRegressor, a torch module, a list of them, or a model with a "
        "method uncertainty_provider."
    )


def _of_itself(model, n_classes):
    if isinstance(model, UncertaintyProvider | TableProvider):
        return model
    return model.uncertainty_provider()


def _of_frozen(model, n_classes):
    return as_provider(model.estimator, n_classes)


def _of_pipeline(pipeline, n_classes):
    steps, model = peel(pipeline)
    provider = as_provider(model, n_classes)
    if (
        takes_tables(provider)
        or not hasattr(provider, "members")
        or not all(map(_is_affine, steps))
    ):
        return _of_steps(pipeline, n_classes)
    for step in reversed(steps):
        offset, factor = _scaling(step)
        provider.members = partial(_of_affine, provider.members, offset, factor)
    return provider


def _of_steps(pipeline, n_classes):
    """The whole pipeline is the model, whatever its steps do."""
    check_is_fitted(pipeline)
    steps, model = peel(pipeline)
    provider = as_table_provider(model, n_classes)
    if not steps:
        return provider
    name = f"{type(pipeline).__name__} of {type(model).__name__}"
    return StepsRows(steps, provider, name, feature_names_of(pipeline))


def _is_affine(step):
    step = thawed(step)
    return isinstance(step, _SCALERS) and not getattr(step, "clip", False)


def _scaling(step):
    """Offset and factor of a scaler: what it makes of x is `factor * x + offset`."""
    step = thawed(step)
    if isinstance(step, MinMaxScaler):
        return step.min_, step.scale_
    center = getattr(step, "center_", None)
    if isinstance(step, StandardScaler) and step.with_mean:
        center = step.mean_
    factor = 1 / (1.0 if step.scale_ is None else step.scale_)
    return (0.0 if center is None else -center * factor), factor


def _of_list(models, n_classes):
    check_model(models)
    levels = [quantile_of(peel(model)[1]) for model in models]
    if None not in levels and len(set(levels)) > 1:
        return QuantileRows(
            models, levels, "A list of quantiles", feature_names_of(models[0])
        )
    providers = [_of_member(model, n_classes) for model in models]
    _check_one_task({provider.is_classification for provider in providers}, models)
    labels = _known_labels(models)
    if any(map(takes_tables, providers)):
        return _rows_of_list(models, providers, labels)
    for model, provider in zip(models, providers, strict=True):
        own = _known_labels(model)
        if own is not None and len(own) < len(labels):
            positions = np.searchsorted(labels, own)
            provider.members = _aligned(provider.members, positions, len(labels))
    thresholds = {provider.threshold for provider in providers}
    if len(thresholds) > 1:
        raise ValueError(
            "The members of an ensemble must decide alike, got the thresholds "
            f"{sorted(map(str, thresholds))}. Give them one."
        )
    return _ensemble(providers, *thresholds)


def _rows_of_list(models, providers, labels):
    """An ensemble some members of which take tables: all of them do then."""
    positions = None
    if labels is not None:
        positions = [
            np.arange(len(labels)) if own is None else np.searchsorted(labels, own)
            for own in map(_known_labels, models)
        ]
    return MembersRows(
        list(map(_in_tables, models, providers)),
        f"A list of {len(models)} models",
        positions=positions,
        n_classes=None if labels is None else len(labels),
        feature_names=feature_names_of(models[0]),
    )


def _of_member(model, n_classes):
    steps, last = peel(model)
    if steps and _builder(last, is_member=True) is _of_point:
        provider = _of_point(last, n_classes)
        return StepsRows(steps, provider, provider.name, feature_names_of(model))
    model = model if steps else last
    return _builder(model, is_member=True)(model, n_classes)


def _of_bagging(ensemble, n_classes):
    check_is_fitted(ensemble)
    check_model(ensemble)
    if isinstance(ensemble.estimators_[0], _TREES):
        return _of_trees(ensemble, n_classes)
    members = [_of_member(member, n_classes) for member in ensemble.estimators_]
    if any(map(takes_tables, members)):
        return _rows_of_bagging(ensemble, members)
    providers = []
    for provider, member, columns in zip(
        members, ensemble.estimators_, ensemble.estimators_features_, strict=True
    ):
        columns = torch.as_tensor(np.array(columns))
        provider.members = partial(_of_columns, provider.members, columns)
        codes = _known_labels(member)
        if codes is not None:
            # The members were fitted on codes of the classes, and a bootstrap sample
            # may lack some of them.
            provider.members = _aligned(provider.members, codes, ensemble.n_classes_)
        providers.append(provider)
    return _ensemble(providers)


def _rows_of_bagging(ensemble, providers):
    is_class = _predicts_classes(ensemble)
    members = ensemble.estimators_
    return BaggedRows(
        list(map(_in_tables, members, providers)),
        type(ensemble).__name__,
        ensemble.estimators_features_,
        ensemble.estimators_samples_,
        # The members were fitted on codes of the classes.
        positions=list(map(_known_labels, members)) if is_class else None,
        n_classes=ensemble.n_classes_ if is_class else None,
        feature_names=feature_names_of(ensemble),
    )


def _of_voting(ensemble, n_classes):
    check_is_fitted(ensemble)
    check_model(ensemble)
    weights = ensemble.weights
    if weights is not None:
        weights = [
            weight
            for (_, member), weight in zip(ensemble.estimators, weights, strict=True)
            if member != "drop"
        ]
    members = [
        _in_tables(member, _of_member(member, n_classes))
        for member in ensemble.estimators_
    ]
    return MembersRows(
        members,
        type(ensemble).__name__,
        weights=weights,
        feature_names=feature_names_of(ensemble),
    )


def _of_trees(ensemble, n_classes):
    check_is_fitted(ensemble)
    if getattr(ensemble, "n_outputs_", 1) > 1 and _predicts_classes(ensemble):
        raise ValueError(
            f"{type(ensemble).__name__} was fitted to {ensemble.n_outputs_} labels per "
            "row, which cannot be explained together. Fit one model per label."
        )
    return TreesRows(
        ensemble,
        tree_members(ensemble),
        type(ensemble).__name__,
        _predicts_classes(ensemble),
        feature_names=feature_names_of(ensemble),
    )


def _of_probabilities(model, n_classes):
    _check_fitted(model)
    if not hasattr(model, "predict_proba"):
        raise TypeError(_refusal(model))
    return ProbabilityRows(model, type(model).__name__, feature_names_of(model))


def _of_spread(read, model, n_classes):
    _check_fitted(model)
    return SpreadRows(model, read, type(model).__name__, feature_names_of(model))


def _of_point(model, n_classes):
    return _of_spread(read_mean, model, n_classes)


def _of_search(search, n_classes):
    check_is_fitted(search)
    return as_provider(search.best_estimator_, n_classes)


def _check_fitted(model):
    """Ask those that can say it."""
    if isinstance(model, BaseEstimator):
        check_is_fitted(model)


def quantile_of(model):
    """The quantile that a regressor predicts, or None if it predicts something else."""
    if not hasattr(model, "get_params") or _predicts_classes(model):
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


def _ensemble(providers, threshold=None):
    return EnsembleProvider(
        partial(_together, [provider.members for provider in providers]),
        is_classification=providers[0].is_classification,
        threshold=threshold,
    )


def _of_coefficients(model, n_classes):
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


def _of_module(module, n_classes):
    answer = _declared(module) or ("mean" if n_classes is None else "classes")
    read = {
        "classes": partial(_as_probabilities, n_classes),
        "mean": _as_means,
        "mean_std": _as_moments,
    }[answer]
    return _one_network(_frozen_copy(module), read, answer == "classes")


def _of_net(net, n_classes):
    check_is_fitted(net, "module_")
    if not is_classifier(net) and _declared(net.module_) == "mean_std":
        read = _as_moments
    else:
        # What its predict and predict_proba do.
        nonlinearity = net._get_predict_nonlinearity()
        read = partial(_as_net, nonlinearity, is_classifier(net))
    provider = _one_network(_frozen_copy(net.module_), read, is_classifier(net))
    provider.threshold = getattr(net, "threshold", None)
    return provider


# Which models are known, and how they are read once they are fitted. The first pair of
# `accepts(model)` and `build(model, n_classes)` that fits is taken.
REGISTRY = [
    (_speaks_for_itself, _of_itself),
    (_is_a(FrozenEstimator), _of_frozen),
    (_is_a(Pipeline), _of_pipeline),
    (_is_a((list, tuple)), _of_list),
    (_is_a(_BAGGING), _of_bagging),
    (_is_a(_REBUILDABLE), _of_coefficients),
    (_is_a(torch.nn.Module), _of_module),
    (is_net, _of_net),
    (_is_search, _of_search),
    # Without gradients.
    (_is_a(_FORESTS), _of_trees),
    (_is_a(VotingRegressor), _of_voting),
    (_is_soft_voting, _of_voting),
    (_has_probabilities, _of_probabilities),
    (_is_a(GaussianProcessRegressor), partial(_of_spread, read_gaussian_process)),
    (_is_a((ARDRegression, BayesianRidge)), partial(_of_spread, read_precision)),
    (_has("pred_dist"), partial(_of_spread, read_distribution)),
    (_has("predict_var"), partial(_of_spread, read_variance)),
    (_returns_std, partial(_of_spread, read_return_std)),
]


# What members say --------------------------------------------------------------------


def _one_network(module, read, is_classification):
    members = partial(_said, module, _module_dtype(module), read)
    return EnsembleProvider(members, is_classification=is_classification)


def _said(module, dtype, read, x):
    return read(module(x.to(dtype)))


def _of_affine(function, offset, factor, x):
    offset, factor = (torch.as_tensor(part) for part in (offset, factor))
    return function(x.double() * factor + offset)


def _of_columns(function, columns, x):
    return function(x[:, columns])


def _aligned(members, positions, n_classes):
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


def _declared(module):
    """What a torch module says that it answers with; None if it says nothing."""
    answer = getattr(module, "answers_with", None)
    if answer not in (None, *ANSWERS):
        raise ValueError(
            f"answers_with of {type(module).__name__} must be one of "
            f"{', '.join(map(repr, ANSWERS))}, got {answer!r}."
        )
    return answer


def _frozen_copy(module):
    return copy.deepcopy(module).requires_grad_(False).eval()


def _module_dtype(module):
    return next((p.dtype for p in module.parameters()), DTYPE)


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
