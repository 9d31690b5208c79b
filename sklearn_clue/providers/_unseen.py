"""How unsure a model is about rows that it has not seen."""

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv

from sklearn_clue._tables import take
from sklearn_clue.providers._models import classifies
from sklearn_clue.providers._networks import unit_of
from sklearn_clue.providers._registry import as_table_provider
from sklearn_clue.uncertainty import Uncertainty


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
    splitter = check_cv(cv, y, classifier=classifies(members[0], X, y))
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
