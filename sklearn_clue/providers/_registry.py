"""Which model becomes which provider of uncertainty, and what becomes of the rest.

A model is read right here or refused by name, most of the time before it is fitted.
"""

import inspect
from functools import partial

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
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
from sklearn.linear_model import ARDRegression, BayesianRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from sklearn_clue.providers._models import (
    check_one_task,
    feature_names_of,
    is_net,
    is_search,
    known_labels,
    peel,
    predicts_classes,
    predicts_numbers,
    quantile_of,
    thawed,
)
from sklearn_clue.providers._networks import (
    REBUILDABLE,
    aligned,
    joined,
    of_affine,
    of_coefficients,
    of_columns,
    of_module,
    of_net,
)
from sklearn_clue.providers._row_ensembles import (
    BaggedRows,
    MembersRows,
    TreesRows,
    tree_members,
)
from sklearn_clue.providers._rows import (
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
from sklearn_clue.uncertainty import TableProvider, UncertaintyProvider


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
    return _in_tables(model, as_provider(model, n_classes))


def _in_tables(model, provider):
    """The provider of a model if it takes tables, else one that does."""
    if takes_tables(provider):
        return provider
    _, last = peel(model)
    return EncodedRows(
        provider,
        getattr(last, "encoder_", None),
        type(last).__name__,
        feature_names_of(model),
    )


def takes_tables(provider):
    """Say whether a provider is asked about rows of a table, and not about tensors."""
    return getattr(provider, "takes_tables", False)


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
    elif is_search(model):
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


def _speaks_for_itself(model):
    return isinstance(model, UncertaintyProvider | TableProvider) or hasattr(
        model, "uncertainty_provider"
    )


def _is_a(kind):
    return lambda model: isinstance(model, kind)


def _is_rebuildable(model):
    """Whether coefficients say all: a subclass may have probabilities of its own."""
    methods = (
        getattr(type(model), name, None)
        for name in ("predict_proba", "decision_function")
    )
    return isinstance(model, REBUILDABLE) and all(
        method is None or method.__module__.startswith("sklearn.") for method in methods
    )


def _is_soft_voting(model):
    return isinstance(model, VotingClassifier) and model.voting == "soft"


def _has_probabilities(model):
    if not predicts_classes(model):
        return False
    if hasattr(model, "predict_proba"):
        return True
    if getattr(model, "voting", None) == "hard":
        return False
    # Some that hold others can tell only after the fit.
    inner = getattr(model, "estimator", None)
    if inner is not None and predicts_classes(inner):
        return _has_probabilities(inner)
    return hasattr(model, "estimators") and hasattr(type(model), "predict_proba")


def _returns_std(model):
    predict = getattr(model, "predict", None)
    return (
        not predicts_classes(model)
        and predict is not None
        and "return_std" in inspect.signature(predict).parameters
    )


def _has(method):
    return lambda model: hasattr(model, method) and not predicts_classes(model)


def _builder(model, is_member=False):
    for accepts, build in REGISTRY:
        if accepts(model):
            return build
    if is_member and predicts_numbers(model):
        return _of_point  # whose spread is that of the members
    raise TypeError(_refusal(model))


def _refusal(model):
    name = type(model).__name__
    if getattr(model, "voting", None) == "hard":
        return (
            f"{name} with voting='hard' answers with labels only, which do not say how "
            "sure it is. Set voting='soft'."
        )
    if predicts_classes(model):
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
    if predicts_numbers(model):
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
    if not steps:
        return provider
    # What speaks for itself does so in a space of its own, behind the steps.
    is_plain = not (takes_tables(provider) or _speaks_for_itself(model))
    if not (is_plain and all(map(_is_affine, steps))):
        return _of_steps(pipeline, n_classes)
    for step in reversed(steps):
        offset, factor = _scaling(step)
        provider.members = partial(of_affine, provider.members, offset, factor)
    return provider


def _of_steps(pipeline, n_classes):
    """The whole pipeline is the model, whatever its steps do."""
    check_is_fitted(pipeline)
    steps, model = peel(pipeline)
    provider = as_table_provider(model, n_classes)
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
    check_one_task({provider.is_classification for provider in providers}, models)
    labels = known_labels(models)
    if any(map(takes_tables, providers)):
        return _rows_of_list(models, providers, labels)
    for model, provider in zip(models, providers, strict=True):
        own = known_labels(model)
        if own is not None and len(own) < len(labels):
            positions = np.searchsorted(labels, own)
            provider.members = aligned(provider.members, positions, len(labels))
    thresholds = {provider.threshold for provider in providers}
    if len(thresholds) > 1:
        raise ValueError(
            "The members of an ensemble must decide alike, got the thresholds "
            f"{sorted(map(str, thresholds))}. Give them one."
        )
    return joined(providers, *thresholds)


def _rows_of_list(models, providers, labels):
    """An ensemble some members of which take tables: all of them do then."""
    positions = None
    if labels is not None:
        positions = [
            np.arange(len(labels)) if own is None else np.searchsorted(labels, own)
            for own in map(known_labels, models)
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
        provider.members = partial(of_columns, provider.members, columns)
        codes = known_labels(member)
        if codes is not None:
            # The members were fitted on codes of the classes, and a bootstrap sample
            # may lack some of them.
            provider.members = aligned(provider.members, codes, ensemble.n_classes_)
        providers.append(provider)
    return joined(providers)


def _rows_of_bagging(ensemble, providers):
    is_class = predicts_classes(ensemble)
    members = ensemble.estimators_
    return BaggedRows(
        list(map(_in_tables, members, providers)),
        type(ensemble).__name__,
        ensemble.estimators_features_,
        ensemble.estimators_samples_,
        # The members were fitted on codes of the classes.
        positions=list(map(known_labels, members)) if is_class else None,
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
        codes_of=getattr(ensemble, "classes_", None),
        feature_names=feature_names_of(ensemble),
    )


def _of_trees(ensemble, n_classes):
    check_is_fitted(ensemble)
    if getattr(ensemble, "n_outputs_", 1) > 1 and predicts_classes(ensemble):
        raise ValueError(
            f"{type(ensemble).__name__} was fitted to {ensemble.n_outputs_} labels per "
            "row, which cannot be explained together. Fit one model per label."
        )
    return TreesRows(
        ensemble,
        tree_members(ensemble),
        type(ensemble).__name__,
        predicts_classes(ensemble),
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


# Which models are known, and how they are read once they are fitted. The first pair of
# `accepts(model)` and `build(model, n_classes)` that fits is taken.
REGISTRY = [
    (_speaks_for_itself, _of_itself),
    (_is_a(FrozenEstimator), _of_frozen),
    (_is_a(Pipeline), _of_pipeline),
    (_is_a((list, tuple)), _of_list),
    (_is_a(_BAGGING), _of_bagging),
    (_is_rebuildable, of_coefficients),
    (_is_a(torch.nn.Module), of_module),
    (is_net, of_net),
    (is_search, _of_search),
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
