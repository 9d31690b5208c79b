"""Data whose density and uncertainty are known, to judge estimates of them by."""

import numpy as np
import pandas as pd
from sklearn.utils import Bunch, check_random_state

_NUMBERS = ["length", "weight"]
_CATEGORIES = {"material": ["wood", "stone", "glass"], "finish": ["raw", "polished"]}
# Tables are (material, finish).
_PROBABILITY = np.array([[0.30, 0.15], [0.15, 0.15], [0.05, 0.20]])
# Numbers given the categories are Gaussian, with means (material, finish, number) in
# standard deviations of the numbers and the same correlation everywhere.
_MEAN = np.array(
    [
        [[-0.8, 0.0], [-0.8, 0.6]],
        [[0.6, 0.4], [0.6, 1.0]],
        [[0.4, -1.0], [0.4, -0.4]],
    ]
)
_CORRELATION = 0.3
_CENTER, _SCALE = np.array([30.0, 2.0]), np.array([5.0, 0.5])
# The log-odds of the target: a boundary through the numbers, sharp for wood and blurred
# for glass, moved by the finish.
_SLOPE = np.array([2.5, 1.2, 0.3])
_DIRECTION = np.array([1.0, -0.7])
_OFFSET = np.array([-0.5, 0.5])

MIXED_TOY_DESCR = """\
Mixed-type toy
--------------

Pieces of goods, none of them real: two numbers, `length` (cm) and `weight` (kg), and
two categories, `material` (wood, stone, glass) and `finish` (raw, polished). The target
says whether a piece is accepted.

Categories are drawn from a table of 6 probabilities. Given them, the numbers are
Gaussian, with means of their own for each material and finish and one covariance. The
log-odds of the target are linear in the numbers, steep for wood, less so for stone and
nearly flat for glass, and shifted by the finish. So a piece may be uncertain because it
is near the boundary, or because it is of glass, and both have a remedy.

Nothing is estimated in `log_density`, `predict_proba` and `aleatoric`: the distribution
is a formula, so they are exact, for any rows of the same columns.
"""


def _parts(X):
    """Give the codes of material and finish, and the numbers, standardised."""
    missing = [name for name in (*_NUMBERS, *_CATEGORIES) if name not in X]
    if missing:
        raise ValueError(
            f"The rows lack the columns {missing}, got {list(X)}. Pass a DataFrame "
            "with the columns of make_mixed_toy().data."
        )
    codes = []
    for name, categories in _CATEGORIES.items():
        column = X[name].to_numpy(dtype=object)
        codes.append(pd.Index(categories, dtype=object).get_indexer(column))
        if (codes[-1] < 0).any():
            raise ValueError(
                f"The column {name!r} has {column[codes[-1] < 0][0]!r}, which never "
                f"occurs. Its categories are {categories}."
            )
    numbers = X[_NUMBERS].to_numpy(dtype=np.float64)
    return (*codes, (numbers - _CENTER) / _SCALE)


def _log_density(X):
    material, finish, numbers = _parts(X)
    first, second = (numbers - _MEAN[material, finish]).T
    unexplained = 1 - _CORRELATION**2  # of the second number by the first
    square = first**2 + (second - _CORRELATION * first) ** 2 / unexplained
    log_normalizer = (
        np.log(2 * np.pi) + 0.5 * np.log(unexplained) + np.log(_SCALE).sum()
    )
    return np.log(_PROBABILITY[material, finish]) - 0.5 * square - log_normalizer


def _log_proba(X):
    material, finish, numbers = _parts(X)
    log_odds = _SLOPE[material] * (numbers @ _DIRECTION) + _OFFSET[finish]
    return -np.logaddexp(0, np.column_stack([log_odds, -log_odds]))


def _predict_proba(X):
    return np.exp(_log_proba(X))


def _aleatoric(X):
    log_proba = _log_proba(X)
    return -(np.exp(log_proba) * log_proba).sum(axis=1)


def make_mixed_toy(n_samples=1000, *, random_state=None, return_X_y=False):
    """Draw mixed-type rows whose density and uncertainty are known exactly.

    Two numbers and two categories, and a binary target. The distribution does not
    depend on the arguments, so the exact functions serve any sample of it, and rows
    that are in none, such as counterfactuals.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows.
    random_state : int, RandomState instance or None, default=None
        Determines the rows and their targets.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`.

    Returns
    -------
    toy : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : DataFrame of shape (n_samples, 4)
            `length` in cm, `weight` in kg, `material` and `finish`.
        target : Series of shape (n_samples,)
            1 if a piece is accepted, else 0.
        log_density : callable
            Gives log p(x) in nats, an array of shape (n_rows,), for the rows of a
            DataFrame with these columns: a density in the numbers, per cm and kg, and
            a probability in the categories.
        predict_proba : callable
            Gives p(y | x), an array of shape (n_rows, 2), for such rows.
        aleatoric : callable
            Gives the entropy of p(y | x) in nats, an array of shape (n_rows,), for
            such rows.
        frame : DataFrame of shape (n_samples, 5)
            Inputs and target in one table.
        feature_names, target_names : list of str
            Names of the columns.
        categories : dict of str to list
            The categories of each categorical column.
        DESCR : str
            How the data are made.

    See Also
    --------
    sklearn.datasets.make_classification : Numbers only, of unknown uncertainty.

    Examples
    --------
    >>> from sklearn_clue.datasets import make_mixed_toy
    >>> toy = make_mixed_toy(5000, random_state=0)
    >>> is_glass = toy.data["material"] == "glass"
    >>> print(toy.aleatoric(toy.data[is_glass]).mean().round(2))
    0.64

    A piece of wood of the same size and weight would be easier to judge:

    >>> wood = toy.data[is_glass].assign(material="wood")
    >>> print(toy.aleatoric(wood).mean().round(2))
    0.32
    """
    random_state = check_random_state(random_state)
    cell = random_state.choice(6, size=n_samples, p=_PROBABILITY.ravel())
    material, finish = np.divmod(cell, 2)
    noise = random_state.standard_normal((n_samples, 2))
    noise[:, 1] *= np.sqrt(1 - _CORRELATION**2)
    noise[:, 1] += _CORRELATION * noise[:, 0]
    numbers = _CENTER + _SCALE * (_MEAN[material, finish] + noise)
    X = pd.DataFrame(numbers, columns=_NUMBERS)
    for (name, categories), codes in zip(
        _CATEGORIES.items(), (material, finish), strict=True
    ):
        X[name] = pd.Categorical.from_codes(codes, categories)
    is_accepted = random_state.uniform(size=n_samples) < _predict_proba(X)[:, 1]
    y = pd.Series(is_accepted.astype(np.int64), name="accepted")
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        log_density=_log_density,
        predict_proba=_predict_proba,
        aleatoric=_aleatoric,
        frame=pd.concat([X, y], axis=1),
        feature_names=list(X),
        target_names=[y.name],
        categories={name: list(X[name].cat.categories) for name in _CATEGORIES},
        DESCR=MIXED_TOY_DESCR,
    )
