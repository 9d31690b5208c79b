"""How unsure a model is about rows that it has not seen."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, check_cv

from sklearn_clue._tables import take
from sklearn_clue.providers._models import classifies
from sklearn_clue.providers._networks import unit_of
from sklearn_clue.providers._registry import as_table_provider
from sklearn_clue.uncertainty import Uncertainty


def unseen_uncertainty(model, X, y, *, cv=5, provider=None, n_classes=None):
    """Tell how unsure a model is about rows like those of its fit, but new to it.

    Models that know rows by heart are surer about them than about others, and a
    threshold that is taken from those rows is too low. Forests and bagging ensembles
    have members that have not seen a row. Of others, copies are fitted to folds: where
    rows that a copy has not seen come among those that it has seen is where new rows
    will come among all rows of the fit. Uncertainties of the copies themselves are of
    little use, because they have seen less and each is unsure in its own measure. They
    are taken only where a row comes above all that its copy has seen: of neighbours
    weighted by distance, and of Gaussian processes, nearly every row does.

    Parameters
    ----------
    model : object
        A fitted model, as :func:`as_provider` takes them.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        The rows of its fit.

    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.

    cv : int, splitter or iterable, default=5
        How rows are held out, as in :func:`~sklearn.model_selection.cross_val_score`.

    provider : TableProvider or None, default=None
        What :func:`as_table_provider` made of the model, if somebody has asked already.

    n_classes : int or None, default=None
        As in :func:`as_provider`.

    Returns
    -------
    parts : Uncertainty or None
        Of rows as if they were new, in no particular order, in the unit of the target:
        good for quantiles. None if the model cannot be fitted again, or to folds.
    """
    if provider is None:
        provider = as_table_provider(model, n_classes)
    parts = provider.out_of_bag(X, y)
    if parts is not None:
        return parts
    members = model if isinstance(model, list | tuple) else [model]
    fresh = [_unfitted(member) for member in members]
    if any(member is None for member in fresh):
        return None
    unit, levels, beyond = unit_of(provider), [], []
    for train, test in _folds(cv, X, y, classifies(members[0], X, y)):
        fitted = [clone(m).fit(take(X, train), take(y, train)) for m in fresh]
        fitted = fitted if isinstance(model, list | tuple) else fitted[0]
        copy = as_table_provider(fitted, n_classes)
        copy.learn(take(X, train), take(y, train))
        seen, unseen = (
            copy.uncertainty_of_rows(take(X, rows))[0] for rows in (train, test)
        )
        levels.append(list(map(_levels, seen, unseen)))
        beyond.append(list(map(_beyond, seen, unseen)))
    if not levels:
        return None
    levels, beyond = (
        map(np.concatenate, zip(*each, strict=True)) for each in (levels, beyond)
    )
    seen = provider.uncertainty_of_rows(X)[0]
    among = map(np.quantile, seen, levels)
    return Uncertainty(
        *(unit * np.maximum(*p) for p in zip(among, beyond, strict=True))
    )


def _folds(cv, X, y, is_classification):
    """Rows to fit and rows to hold out; a model may need all classes to be fitted.

    So rows of a class with fewer rows than there are folds are never held out.
    """
    if not is_classification or not isinstance(cv, Integral):
        return list(check_cv(cv, y, classifier=is_classification).split(X, y))
    _, codes, counts = np.unique(
        np.asarray(y).ravel(), return_inverse=True, return_counts=True
    )
    n_folds = min(cv, counts.max())
    if n_folds < 2:
        return []
    is_rare = counts[codes] < n_folds
    rare, common = np.flatnonzero(is_rare), np.flatnonzero(~is_rare)
    splits = StratifiedKFold(n_folds).split(common, codes[common])
    return [(np.sort(np.r_[rare, common[a]]), common[b]) for a, b in splits]


def _levels(seen, unseen):
    """Where values come among others: 0 below all of them, 1 above all."""
    seen = np.sort(seen)
    # Among equals in the middle.
    sides = (np.searchsorted(seen, unseen, side) for side in ("left", "right"))
    return sum(sides) / (2 * len(seen))


def _beyond(seen, unseen):
    """Values that are above all others, and zero instead of the rest."""
    return np.where(unseen > seen.max(), unseen, 0.0)


def _unfitted(model):
    """A model to fit again; None if there is no way to."""
    while isinstance(model, FrozenEstimator):
        model = model.estimator
    return model if isinstance(model, BaseEstimator) else None
