"""Rows of an explanation: which are meant, and the entries of each field for them."""

from numbers import Integral

import numpy as np
import pandas as pd

from sklearn_clue import _tables
from sklearn_clue._words import count

__all__ = []


def positions_of(key, n_rows):
    """Positions that an integer, a slice, a mask or positions stand for."""
    if isinstance(key, Integral) and not isinstance(key, bool | np.bool_):
        if not -n_rows <= key < n_rows:
            raise IndexError(f"row {key} of an explanation of {count(n_rows)}")
        return np.array([key % n_rows])  # whatever the number of rows, in no time
    if not isinstance(key, slice):
        key = np.asarray(key)
        if key.size == 0:
            key = key.astype(np.intp)
        if key.ndim != 1 or key.dtype.kind not in "biu":
            raise TypeError(
                "The rows of an explanation are chosen by an integer, a slice, a "
                "boolean mask or an array of positions, got "
                f"{key.ndim}-dimensional values of type {key.dtype}."
            )
    return np.arange(n_rows)[key]


def check_shapes(explanation, names):
    """Refuse fields without one entry per row, or without one per cell."""
    for name in names:
        for value in _arrays(getattr(explanation, name)):
            if len(value) != len(explanation.X):
                raise ValueError(
                    f"{name} has {len(value)} rows, but X has {len(explanation.X)}. An "
                    "explanation needs one entry per row of X."
                )
    if explanation.X.shape[1] != len(explanation.schema):
        raise ValueError(
            f"X has {explanation.X.shape[1]} columns, but the schema describes "
            f"{len(explanation.schema)}. Give the schema of the columns of X."
        )
    expected = tuple(explanation.X.shape)
    for name in ("contributions", "contributions_error"):
        values = getattr(explanation, name)
        if values is not None and np.shape(values) != expected:
            raise ValueError(
                f"{name} has shape {np.shape(values)}, but X has {expected}. It needs "
                "one entry per cell of X."
            )


def _arrays(value):
    """The arrays, frames or lists with one entry per row that a field holds."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple) else (value,)


def take_each(value, positions):
    """Entries of some rows of a field: of a table, an array, a list or parts."""
    if value is None:
        return None
    if isinstance(value, tuple):  # an Uncertainty or a SearchPath
        return type(value)(*(np.asarray(part)[positions] for part in value))
    if isinstance(value, list):
        return [value[position] for position in positions]
    is_frame = _tables.is_frame(value)
    return _tables.take(value, positions) if is_frame else np.asarray(value)[positions]


def only_candidates(explanation):
    """The counterfactuals as the only candidates there are, and a line for each."""
    n_rows, objective = len(explanation), explanation.objective
    details = {
        "row": np.arange(n_rows),
        "rank": np.zeros(n_rows, dtype=int),
        "objective": np.full(n_rows, np.nan) if objective is None else objective,
        **explanation.uncertainty_after._asdict(),
        "distance": explanation.distance,
        "count": np.ones(n_rows, dtype=int),
    }
    table = explanation.counterfactuals
    candidates = [_tables.take(table, [row]) for row in range(n_rows)]
    return candidates, pd.DataFrame(details)


def lines_of_rows(rows, n_rows):
    """An order that puts the lines of each row together, and where they start."""
    rows = np.asarray(rows)
    order = np.argsort(rows, kind="stable")
    return order, np.append(0, np.cumsum(np.bincount(rows, minlength=n_rows)))


def take_lines(details, lines, positions):
    """Lines of some rows, in the new order and under the new positions."""
    order, starts = lines
    taken = [order[starts[row] : starts[row + 1]] for row in positions]
    counts = [len(each) for each in taken]
    taken = np.concatenate([*taken, np.empty(0, dtype=np.intp)])
    details = details.iloc[taken].reset_index(drop=True)
    return details.assign(row=np.repeat(np.arange(len(positions)), counts))
