"""One column: what is learned of its values, the way to its block, and back.

And what to tell the user about columns.
"""

import re
import warnings

import numpy as np
import pandas as pd

from sklearn_clue._validation import MAX_MAGNITUDE, listing

# "auto" pools in columns with more values than this, those below this share of rows.
MANY_CATEGORIES = 30
RARE_SHARE = 0.005

# A number has this many digits after the point, or any.
MAX_DECIMALS = 6

# An atom holds this share of the rows, and so many times that of the values next to it,
# in a column with that many different ones.
ATOM_SHARE, ATOM_RATIO, ATOM_VALUES = 0.05, 5, 10

# In fewer rows it takes no reason for columns to be alike.
MIN_HINT_ROWS = 20

CODE_NAME = re.compile(
    r"(code|type|kind|class|category|group|region|zip|(?<![a-z])id)s?$", re.IGNORECASE
)


# Categories ------------------------------------------------------------------------


def learn_category(name, values, weight, min_frequency):
    """Find the known values of a category, and those so rare that they are pooled.

    Parameters
    ----------
    name : hashable
        For errors.

    values : {ndarray of objects, pandas.Categorical}
        What is there, with nothing missing.

    weight : ndarray of shape (n_values,)
        Weights of the rows.

    min_frequency : "auto", int, float or None
        See `TabularEncoder`.

    Returns
    -------
    facts : dict
        Fields of a `ColumnSchema`.
    """
    known = _known_values(name, values)
    if min_frequency == "auto":
        least = RARE_SHARE if len(known) > MANY_CATEGORIES else 0
    else:
        least = min_frequency or 0
    if isinstance(least, float):
        least *= weight.sum()
    if not least:
        return {"categories": known}
    counts = np.bincount(codes_of(values, known), weight, minlength=len(known))
    # Sums of weights round; nobody is rare by that.
    is_rare = counts < least * (1 - 1e-9)
    order = np.argsort(-counts, kind="stable")
    return {
        "categories": tuple(known[i] for i in np.flatnonzero(~is_rare)),
        "pooled": tuple(known[i] for i in order if is_rare[i]),
    }


def _known_values(name, values):
    if isinstance(values, pd.Categorical):
        return tuple(values.categories.tolist())
    try:
        found = pd.unique(values).tolist()
        types = sorted({type(value).__name__ for value in found})
        if len(types) > 1:
            raise TypeError(f"the values mix the types {', '.join(types)}")
        return tuple(sorted(found))
    except TypeError as error:  # unhashable or unordered values
        raise TypeError(
            f"Column {name!r} cannot be read as a category: {error}. The values of "
            "such an argument must be all strings or all numbers: convert them, for "
            "example with astype(str)."
        ) from error


def codes_of(values, known):
    """Position of each value among the known ones; -1 for a stranger."""
    index = _object_index(known)
    if isinstance(values, pd.Categorical):
        # Look the few categories up rather than the many rows; the last entry serves
        # the code -1 that pandas gives to a missing value.
        table = index.get_indexer(_object_index(values.categories))
        return np.append(table, -1)[values.codes]
    return index.get_indexer(_object_index(values))


def _object_index(values):
    # Objects, so that values are compared as Python does, and tuples stay whole.
    return pd.Index(values, dtype=object, tupleize_cols=False)


# Numbers ---------------------------------------------------------------------------


def learn_number(values, weight, is_integer, is_float32):
    """Find the scale of a number, and which values it takes.

    Parameters
    ----------
    values : ndarray of integers or float64
        What is there, with nothing missing. May be empty.

    weight : ndarray of shape (n_values,)
        Weights of the rows.

    is_integer : bool
        Whether the column holds whole numbers only, by its dtype.

    is_float32 : bool
        Whether the user's values have single precision.

    Returns
    -------
    facts : dict
        Fields of a `ColumnSchema`.
    """
    if not len(values):
        return {"center": 0.0, "scale": 1.0}
    # Of the sorted distinct values, so that order and repetition of the rows leave no
    # trace in the last digit.
    values, position = np.unique(values, return_inverse=True)
    weight = np.bincount(position, weights=weight)
    low, high = values[0], values[-1]
    center, scale = float(low), 1.0
    if low < high:
        # Statistics of the position within the seen range: sums neither overflow for
        # huge values nor vanish for tiny ones.
        span = np.longdouble(high) - np.longdouble(low)
        position = (values.astype(np.longdouble) - np.longdouble(low)) / span
        mean = np.average(position, weights=weight)
        variance = np.average((position - mean) ** 2, weights=weight)
        center = float(low + span * mean)
        scale = float(span * np.sqrt(variance)) or 1.0
    # Hazen's percentiles: a value stands at the middle of its own weight.
    rank = (np.cumsum(weight) - weight / 2) / weight.sum()
    # Their differences stay finite for huge values, divided by a power of two.
    divisor = 2.0**64 if max(abs(float(low)), abs(float(high))) > 1e290 else 1.0
    percentiles = divisor * np.interp(
        np.linspace(0, 1, 101), rank, values.astype(np.float64) / divisor
    )
    python_type = int if is_integer else float
    return {
        "center": center,
        "scale": scale,
        "low": python_type(low),
        "high": python_type(high),
        "percentiles": tuple(percentiles.tolist()),
        "decimals": 0 if is_integer else _decimals_of(values, is_float32),
        "atoms": tuple(map(python_type, _atoms_of(values, weight / weight.sum()))),
    }


def _decimals_of(values, is_float32):
    """Digits after the point that all values have, up to the error of their type."""
    values = values.astype(np.float64)
    error = np.finfo(np.float32 if is_float32 else np.float64).eps
    largest = np.abs(values).max()
    for decimals in range(MAX_DECIMALS + 1):
        if 10.0**-decimals < 16 * error * largest:
            return None  # the digits of the type end before
        if np.allclose(np.round(values, decimals), values, rtol=4 * error, atol=0):
            return decimals
    return None


def _atoms_of(values, share):
    """Values that hold far more rows than those next to them."""
    if len(values) < ATOM_VALUES:
        return ()
    # Two neighbours to either side, as far as there are.
    near, count = (
        np.convolve(array, [1, 1, 0, 1, 1], "same")
        for array in (share, np.ones_like(share))
    )
    is_atom = (share >= ATOM_SHARE) & (share >= ATOM_RATIO * near / count)
    return values[is_atom]


def standardise(values, column):
    """Standard scores of numbers; NaN where they are missing."""
    if column.is_integer:
        # Integers beyond 2**53 are no float64; where the platform has a longer
        # float their differences survive.
        values = values.astype(np.longdouble)
    center, scale, divisor = _halved(column)
    if divisor != 1:
        values = values / divisor
    with np.errstate(over="ignore"):  # what is too large is refused after
        scores = (values - center) / scale
    is_far = np.abs(scores) > MAX_MAGNITUDE
    if is_far.any():
        raise ValueError(
            f"Column {column.name!r} holds {float((values * divisor)[is_far][0]):.6g}, "
            f"more than {MAX_MAGNITUDE:.0e} standard deviations of the training rows "
            "away from their mean. Networks cannot compute with such a number: correct "
            "it, or leave out the row."
        )
    return scores


_LARGEST = np.finfo(np.float64).max


def _halved(column):
    """Centre, scale, and what they were divided by so that differences stay finite."""
    # Without a loss: powers of two, and far from the smallest numbers.
    divisor = 2.0 if abs(column.center) > 1e290 else 1.0
    return column.center / divisor, column.scale / divisor, divisor


# Blocks ----------------------------------------------------------------------------


def encode(column, values, block, *, hide_gaps=False):
    """Write the values of a column into its block of zeros.

    Parameters
    ----------
    column : ColumnSchema
        What was learned of it.

    values : {ndarray, pandas.Categorical}
        Numbers with NaN for a missing one, or objects.

    block : ndarray of shape (n_rows, n_positions)
        Is written to.

    hide_gaps : bool, default=False
        Whether what says nothing becomes NaN in the whole block.

    Returns
    -------
    is_gap, is_strange : ndarray of bool of shape (n_rows,)
        Where values are missing, and where they are not among the known ones.
    """
    is_gap = np.asarray(pd.isna(values))
    is_strange = np.zeros_like(is_gap)
    if column.kind == "number":
        block[:, 0] = np.where(is_gap, 0, standardise(values, column))
    else:
        codes = codes_of(values, column.categories + column.pooled)
        is_strange = (codes < 0) & ~is_gap
        rows = np.flatnonzero(codes >= 0)
        block[rows, codes[rows].clip(max=len(column.categories))] = 1
    if hide_gaps:
        block[is_gap | is_strange] = np.nan
    elif column.has_gap:
        block[is_gap, -1] = 1
    return is_gap, is_strange


def decode(column, block, *, is_bounded=True):
    """Turn the encoded block of a column into its values.

    Parameters
    ----------
    column : ColumnSchema
        What was learned of it.

    block : ndarray of shape (n_rows, n_positions)
        Its positions in encoded rows.

    is_bounded : bool, default=True
        Whether whole numbers stay in the range that was seen in `fit`. Others never
        have to.

    Returns
    -------
    values : ndarray of shape (n_rows,)
        Numbers, with NaN for a missing one, or objects.
    """
    if column.kind == "category":
        # A rare value comes back as the most frequent of them.
        known = [*column.categories, *column.pooled[:1], np.nan]
        return _object_index(known).to_numpy()[block.argmax(axis=1)]
    values = _decode_number(column, block[:, 0], is_bounded)
    is_gap = block[:, -1] > 0.5 if column.has_gap else np.zeros(len(block), dtype=bool)
    if not is_gap.any():
        return values
    if column.is_integer:  # which have no NaN
        values = values.astype(object)
    values[is_gap] = np.nan
    return values


def _decode_number(column, scores, is_bounded):
    if not column.is_integer:
        center, scale, divisor = _halved(column)
        with np.errstate(over="ignore"):
            decoded = divisor * (scores.astype(np.float64) * scale + center)
        decoded = decoded.clip(-_LARGEST, _LARGEST)
        return (
            decoded if column.decimals is None else np.round(decoded, column.decimals)
        )
    decoded = np.rint(scores.astype(np.longdouble) * column.scale + column.center)
    held = np.iinfo(np.int64 if column.high < 2**63 else np.uint64)
    low, high = (column.low, column.high) if is_bounded else (held.min, held.max)
    # What the cast cannot hold lies outside of these, and is overwritten.
    with np.errstate(invalid="ignore"):
        values = decoded.astype(held.dtype)
    values[decoded <= low] = low
    values[decoded >= high] = high
    return values


# Words -----------------------------------------------------------------------------


class Strangers:
    """What rows hold that was not there in `fit`, over one or several tables."""

    def __init__(self):
        self.values, self.gaps = {}, {}

    def add_values(self, column, values):
        """Note categories that are not known."""
        self.values.setdefault(column, {}).update(dict.fromkeys(values.tolist()))

    def add_gaps(self, column):
        """Note that values are missing in a column that was complete."""
        self.gaps[column] = None

    def tell(self):
        """Warn, if there is something to tell."""
        if self.values or self.gaps:
            warnings.warn(
                f"{self._words()} They count as no information: zeros for a category, "
                "the mean of the column for a number.",
                UserWarning,
                stacklevel=4,
            )

    def refuse(self):
        """Raise an error, if there is something to tell."""
        if self.values or self.gaps:
            raise ValueError(
                f"{self._words()} Replace them by known ones, fit on rows that hold "
                "them, declare all possible values with a pandas CategoricalDtype "
                "before fit, or set handle_unknown='warn'."
            )

    def _words(self):
        words = []
        if self.values:
            unseen = "; ".join(
                f"column {column.name!r} holds {listing(list(values))} besides the "
                f"known {listing(column.categories + column.pooled)}"
                for column, values in self.values.items()
            )
            words.append(f"X holds categories that were not seen in fit: {unseen}.")
        if self.gaps:
            names = listing([column.name for column in self.gaps])
            words.append(
                f"Values are missing in columns that were complete in fit: {names}."
            )
        return " ".join(words)


def warn_of_names(columns, kinds):
    """Warn of text that differs in most rows, such as dates, names and comments."""
    for column, kind in zip(columns, kinds, strict=True):
        dtype = column.values.dtype
        if kind == "number" or isinstance(dtype, pd.CategoricalDtype):
            continue
        try:
            n_values = pd.Series(column.values).nunique()
        except TypeError:
            continue  # unhashable, which is refused when categories are learned
        n_rows = len(column.values)
        if n_values > MANY_CATEGORIES and n_values > n_rows / 2:
            warnings.warn(
                f"Column {column.name!r} is taken as a category, and has {n_values} "
                f"different values in {n_rows} rows. Little can be learned from it, "
                "and other rows will have values that are not known. Convert it to a "
                "number if it is one, such as a date, or drop it if it names rows.",
                UserWarning,
                stacklevel=2,
            )


def give_hints(schema, arrays):
    """Name columns that say nothing new, and numbers that may be codes."""
    hints, same = [], {}
    for column, array in zip(schema, arrays, strict=True):
        known = (column.categories or ()) + column.pooled
        if not known and column.low is None:
            hints.append(f"{column.name!r} is missing in all rows")
            continue
        if column.low == column.high and len(known) < 2 and not column.has_gap:
            hints.append(f"{column.name!r} has one value only")
            continue
        if _may_be_code(column, array):
            hints.append(
                f"{column.name!r} may be a code (if its numbers have no order, use "
                "astype('category') or categorical_features)"
            )
        facts = (column.kind, column.categories, column.center, column.percentiles)
        for name, other in same.setdefault(facts, []):
            if pd.Series(array).equals(pd.Series(other)):
                hints.append(f"{column.name!r} repeats {name!r}")
                break
        else:
            same[facts].append((column.name, array))
    if hints:
        warnings.warn(
            f"Have a look at these columns: {'; '.join(hints[:5])}"
            f"{' and others' if len(hints) > 5 else ''}. They are used as they are.",
            UserWarning,
            stacklevel=5,
        )


def _may_be_code(column, array):
    """Whether a few whole numbers stand under a name that codes have."""
    is_whole = column.kind == "number" and column.is_integer
    if not (
        is_whole and isinstance(column.name, str) and CODE_NAME.search(column.name)
    ):
        return False
    return 3 <= len(np.unique(array[~pd.isna(array)])) <= 10
