"""Estimators that others hold: taken as they are, or copied, seeded and fitted."""

from contextlib import contextmanager

import numpy as np
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from sklearn_clue.providers import is_net
from sklearn_clue.uncertainty import UncertaintyProvider


def is_frozen(part):
    """Whether a part says that it is fitted."""
    return isinstance(part, FrozenEstimator)


def is_fitted_already(part):
    """Whether `fit` takes a part as it is."""
    if isinstance(part, list | tuple):
        return all(map(is_fitted_already, part))
    return isinstance(part, FrozenEstimator | torch.nn.Module | UncertaintyProvider)


def fresh(part):
    """A copy to fit; what is fitted already is taken as it is."""
    if isinstance(part, list | tuple):
        return [fresh(member) for member in part]
    return part if is_fitted_already(part) else clone(part)


def seeded(part, seed):
    """Fix what a part leaves to chance; members of a list get seeds of their own."""
    if isinstance(part, list):
        return [seeded(member, seed + position) for position, member in enumerate(part)]
    return _hand_down(part, "random_state", None, int(seed) % (2**31 - 1))


def _hand_down(part, parameter, default, value):
    """Set a parameter of a part, and of its own parts, wherever it is the default."""
    if not hasattr(part, "get_params") or is_frozen(part):
        return part
    names = [
        name
        for name, own in part.get_params(deep=True).items()
        if name.split("__")[-1] == parameter
        # False is no 0: a Pipeline takes nothing but a boolean.
        and type(own) is type(default)
        and own == default
    ]
    return part.set_params(**dict.fromkeys(names, value))


@contextmanager
def seeded_globally(seed):
    """Fix what parts draw from the generators of everybody, and put these back.

    Some have no `random_state` to set: skorch nets, and scikit-learn's TargetEncoder.
    """
    if seed is None:
        yield
        return
    everybody, seed = check_random_state(None), int(seed) % (2**31 - 1)
    state = everybody.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            everybody.seed(seed)
            torch.random.default_generator.manual_seed(seed)
            yield
    finally:
        everybody.set_state(state)


def fit_part(part, X, y, params, verbose=0):
    """Fit a part, or the members of a list; what is fitted already stays."""
    if isinstance(part, list):
        return [fit_part(member, X, y, params, verbose) for member in part]
    if is_fitted_already(part):
        return part
    # Parts that are silent themselves report as the explainer should.
    part = _hand_down(clone(part), "verbose", 0, verbose)
    if is_net(part):  # it takes the columns of frames apart
        X = np.asarray(X, dtype=np.float32)
    try:
        return part.fit(X, y, **params)
    except ValueError as error:
        if isinstance(part, Pipeline) and "inconsistent numbers of sam" in str(error):
            raise ValueError(
                f"A step before {type(part.steps[-1][1]).__name__} does not keep the "
                f"number of rows: {error}. A row that is dropped has no prediction "
                "that could be unsure: let the pipeline impute instead, or drop the "
                "rows before the fit."
            ) from error
        raise
