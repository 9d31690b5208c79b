"""Tables: the one place that tells DataFrames of pandas and polars and arrays apart.

Whoever reads columns, writes them back, takes rows or names things asks here. Arrays of
columns go between: a table is read as arrays, and built from arrays like another table.
"""

from collections.abc import Hashable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import (
    infer_dtype,
    is_bool_dtype,
    is_integer_dtype,
    is_object_dtype,
    is_string_dtype,
)
from scipy import sparse

from sklearn_clue import _durations
from sklearn_clue._dtypes import in_limits
from sklearn_clue._validation import (
    _safe_indexing,
    is_pandas_df,
    is_polars_df,
    listing,
    validate_data,
)


class Column(NamedTuple):
    """One column as read: its name, its values and the user's dtype."""

    name: Hashable
    values: Any  # ndarray, or a pandas extension array
    dtype: Any  # of numpy, pandas or polars


# Marks of a LazyFrame of polars and a Table of pyarrow, and what makes frames of them.
_OTHER_FRAMES = {"collect_schema": "collect", "column_names": "to_pandas"}


def is_frame(X):
    """Whether X is a DataFrame that is read column by column."""
    return is_pandas_df(X) or is_polars_df(X)


def check_rows(estimator, X, *, reset):
    """Check container, shape and names of the user's rows; encoders check the rest.

    Parameters
    ----------
    estimator : estimator
        Remembers the names if `reset`, and else compares with those it knows.

    X : {array-like, DataFrame}
        The rows, as the user passed them.

    reset : bool
        Whether this is `fit`.

    Returns
    -------
    X : {ndarray, DataFrame}
        The same rows.
    """
    if not is_frame(X):
        for mark, method in _OTHER_FRAMES.items():
            if hasattr(X, mark) and hasattr(X, method):
                raise TypeError(
                    f"X is a {type(X).__name__}, whose columns would lose their names "
                    "and types. Pass a DataFrame of pandas or polars, for example "
                    f"X.{method}()."
                )
        if np.ma.is_masked(X):  # scikit-learn takes what lies under the mask
            dtype = {"f": X.dtype, "O": object}.get(X.dtype.kind, np.float64)
            X = X.astype(dtype).filled(np.nan)
        return validate_data(
            estimator, X, reset=reset, dtype=None, ensure_all_finite=False
        )
    n_samples, n_features = X.shape
    for count, what in ((n_features, "feature(s)"), (n_samples, "sample(s)")):
        if count == 0:
            raise ValueError(
                f"Found a DataFrame with 0 {what} (shape={X.shape}) while a minimum of "
                f"1 is required by {type(estimator).__name__}. Check how X was "
                "selected or split."
            )
    if is_pandas_df(X) and not X.columns.is_unique:
        repeated = X.columns[X.columns.duplicated()].unique()
        raise ValueError(
            f"Column names must be unique, got more than one {listing(repeated)}. "
            "Rename the columns, or drop the copies with "
            "X.loc[:, ~X.columns.duplicated()]."
        )
    return validate_data(estimator, X, reset=reset, skip_check_array=True)


# Names, rows -----------------------------------------------------------------------


def names(X):
    """Names of the columns; those of an array are `x0`, `x1`, and so on."""
    return list(X.columns) if is_frame(X) else [f"x{i}" for i in range(np.shape(X)[1])]


def named(X, known_names):
    """A bare array as a frame, if names are known; other tables as they are.

    Parts that were fitted to a frame then find its columns, and do not warn again of
    what the border has warned of.
    """
    if known_names is None or is_frame(X):
        return X
    # Objects, so that nobody takes the common dtype for that of each column.
    return pd.DataFrame(np.asarray(X, dtype=object), columns=list(known_names))


def dtypes(X):
    """The dtypes of the columns."""
    return list(X.dtypes) if is_frame(X) else [X.dtype] * X.shape[1]


def index_of(X):
    """What pandas calls the rows, or None."""
    return X.index if is_pandas_df(X) else None


def take(X, rows):
    """Some rows of a table, an array or a list: by slice, mask or positions."""
    if isinstance(rows, slice):  # whose ends polars wants as numbers of Python
        ends = (rows.start, rows.stop, rows.step)
        rows = slice(*(end if end is None else int(end) for end in ends))
        return X.iloc[rows] if is_pandas_df(X) else X[rows]
    if isinstance(X, np.ndarray) and isinstance(rows, np.ndarray):
        return X[rows]  # searches do it often
    return _safe_indexing(X, rows)


def stack(tables):
    """Tables of one kind, below each other."""
    if is_pandas_df(tables[0]):
        return pd.concat(tables)
    if is_polars_df(tables[0]):
        import polars as pl

        return pl.concat(tables)
    return np.concatenate(tables)


def frame(columns, like):
    """A DataFrame of named columns: of polars if another table is, else of pandas."""
    if is_polars_df(like):
        import polars as pl

        lists = {name: values.tolist() for name, values in columns.items()}
        return pl.DataFrame(lists, strict=False, nan_to_null=True).fill_nan(None)
    return pd.DataFrame(columns)


# Reading ---------------------------------------------------------------------------


def columns(X):
    """Read the columns, with what their dtypes declare."""
    if is_pandas_df(X):
        return [_column_from_pandas(name, series) for name, series in X.items()]
    if is_polars_df(X):
        return [_column_from_polars(series) for series in X.iter_columns()]
    numbered = enumerate(X.T)
    return [Column(f"x{position}", values, X.dtype) for position, values in numbered]


def _is_numpy(dtype, kinds=None):
    return isinstance(dtype, np.dtype) and (kinds is None or dtype.kind in kinds)


def _column_from_pandas(name, series):
    dtype = series.dtype
    if _is_numpy(dtype):
        return Column(name, series.to_numpy(), dtype)
    if _decimal_places(dtype) is not None:
        return Column(name, _floats(series.array), dtype)
    if str(dtype).startswith("dictionary"):  # categories of pyarrow
        return Column(name, series.to_numpy(object), dtype)
    return Column(name, series.array, dtype)


def _decimal_places(dtype):
    """Digits after the point of a dtype of decimals, of pyarrow or polars, or None."""
    of_pandas = getattr(dtype, "pyarrow_dtype", None)
    if str(of_pandas).startswith("decimal"):
        return of_pandas.scale
    is_polars = hasattr(dtype, "base_type") and dtype.base_type().__name__ == "Decimal"
    return dtype.scale if is_polars else None


def _floats(decimals):
    """Decimals as floats, with NaN for what is missing."""
    cells = [np.nan if pd.isna(value) else float(value) for value in decimals]
    return np.array(cells, dtype=np.float64)


def _column_from_polars(series):
    """Read a polars column without pyarrow, which polars' own `to_pandas` needs."""
    dtype, kind = series.dtype, series.dtype.base_type().__name__
    if kind == "Decimal":
        return Column(series.name, _floats(series.to_list()), dtype)
    if kind in ("Int128", "UInt128"):  # of which numpy knows nothing
        return Column(series.name, as_objects(series.to_list()), dtype)
    known = ("String", "Categorical", "Enum", "Boolean", "Duration")
    if not (_is_plain(dtype) or kind in known):
        raise TypeError(_unsupported(series.name, dtype))
    if dtype.is_integer() and series.null_count():  # numpy would have doubles
        missing = series.is_null().to_numpy()
        whole = pd.arrays.IntegerArray(series.fill_null(0).to_numpy(), missing)
        return Column(series.name, whole, dtype)
    values = series.to_numpy()
    if kind == "Enum":
        values = pd.Categorical(values, categories=dtype.categories.to_list())
    elif kind == "Boolean":
        values = pd.array(values, dtype="boolean")  # stays boolean beside a null
    return Column(series.name, values, dtype)


def arrays(X):
    """The values of each column, as objects where numpy has no such dtype.

    Dtypes of durations become `timedelta64[ns]`; objects stay what they are.
    """
    if is_pandas_df(X):
        found = [
            series.array
            if series.dtype.kind == "m"
            else series.to_numpy(None if _is_numpy(series.dtype, "biufO") else object)
            for _, series in X.items()
        ]
    elif is_polars_df(X):
        found = [
            series.to_numpy()
            if (_is_plain(series.dtype) and not series.null_count())
            or series.dtype.base_type().__name__ == "Duration"
            else as_objects(series.to_list())
            for series in X.iter_columns()
        ]
    else:
        found = list(X.T)
    return [
        _durations.read(cells, name) if cells.dtype.kind == "m" else cells
        for name, cells in zip(names(X), found, strict=True)
    ]


def _is_plain(dtype):
    """Whether a dtype of polars is a number that numpy knows, too."""
    is_number = dtype.is_integer() or dtype.is_float()
    return is_number and not str(dtype).endswith("128")


def as_objects(values):
    """Values as Python objects, in an array of objects."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "m":
        return _durations.as_objects(values)  # numpy would give numbers
    values = values.tolist() if isinstance(values, np.ndarray) else values
    return np.fromiter(values, dtype=object, count=len(values))


def pandas_arrays(X):
    """The values of each column, as a DataFrame of pandas takes them."""
    return [s.array for _, s in X.items()] if is_pandas_df(X) else arrays(X)


def dense(X):
    """A sparse table, which one-hot encoders like to give, as an array."""
    return X.toarray() if sparse.issparse(X) else X


def gaps(X):
    """Where values are missing, as a mask of shape (n_rows, n_columns)."""
    return np.column_stack([pd.isna(cells) for cells in arrays(X)])


def kind_of(column):
    """Whether the dtype of a column of a frame is that of a number or a category."""
    dtype = column.values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or is_bool_dtype(dtype):
        return "category"
    if dtype.kind in "iufm":
        return "number"
    if is_object_dtype(dtype):
        found = inferred(column)
        if found == "decimal":
            raise TypeError(_unsupported(column.name, "decimal.Decimal"))
        if found in ("date", "datetime", "datetime64", "period", "time"):
            raise TypeError(_unsupported(column.name, found))
        # Steps that handle numbers and text together, such as SimpleImputer, make
        # objects of both. scikit-learn reads such numbers as numbers.
        numbers = ("integer", "floating", "mixed-integer-float")
        numbers += ("timedelta", "timedelta64")
        return "number" if found in numbers else "category"
    if is_string_dtype(dtype):
        return "category"
    raise TypeError(_unsupported(column.name, column.dtype))


def _unsupported(name, dtype):
    start = f"Column {name!r} has dtype {dtype}, which is neither a number nor a "
    kind = str(dtype).lower()
    if kind.startswith("time") and not kind.startswith("timestamp"):  # of day
        return (
            f"{start}category. Convert it to the parts that matter, for example\n"
            f"    X['hour'] = [time.hour for time in X[{name!r}]]  # or minute\n"
            f"    X = X.drop(columns={name!r})"
        )
    if kind.startswith(("date", "timestamp", "period")):
        return (
            f"{start}category. Convert it to the parts that matter, for example\n"
            f"    X['month'] = X[{name!r}].dt.month  # or year, day_of_week, hour\n"
            f"    X = X.drop(columns={name!r})"
        )
    return (
        f"{start}category. Convert it, for example decimals with astype(float), or "
        "drop it."
    )


def inferred(column):
    """What the values of a column of objects are, in the words of pandas, or None."""
    if is_object_dtype(column.values.dtype):
        return infer_dtype(column.values, skipna=True)
    return None


def is_integer(column):
    """Whether a column of numbers holds whole ones only, by dtype or as objects.

    Durations do: they are counted in a unit that all of them are multiples of.
    """
    if _durations.is_duration(column.values):
        return True
    if hasattr(column.dtype, "is_integer"):  # polars
        return column.dtype.is_integer()
    return column.dtype.kind in "iub" or inferred(column) == "integer"


def unit_of(column):
    """The unit that a column of durations is counted in; None for other columns."""
    if not _durations.is_duration(column.values):
        return None
    return _durations.unit_of(_durations.read(column.values, column.name))


def as_numbers(column, unit=None):
    """Values of a column as integers or float64, with NaN for a missing value.

    Durations are counted in the `unit`; other columns have none.
    """
    values, kind = column.values, column.values.dtype.kind
    is_text = kind == "O" and values.dtype != object  # a string or categorical dtype
    if kind == "M":
        raise TypeError(_unsupported(column.name, column.dtype))
    is_duration = _durations.is_duration(values)
    if is_duration and unit is not None:
        return _durations.as_numbers(_durations.read(values, column.name), unit)
    if is_duration or (unit is not None and not pd.isna(values).all()):
        now, then, how = (
            ("durations", "numbers", "X[name].dt.total_seconds()")
            if is_duration
            else ("no durations", "durations", "pd.to_timedelta(X[name], unit=...)")
        )
        raise ValueError(
            f"Column {column.name!r} holds {now} (dtype {column.dtype}), and held "
            f"{then} in fit. Convert it back, for example with {how}."
        )
    if is_text or kind not in "iubfOUS":
        raise TypeError(
            f"Column {column.name!r} has dtype {column.dtype}, which is not a number. "
            "Convert it, or list it in categorical_features."
        )
    missing = pd.isna(values)
    if inferred(column) == "integer":
        kind = _kind_of_integers(column.name, values[~missing])
    if kind in "iub":
        there = np.asarray(
            values[~missing], dtype=np.uint64 if kind == "u" else np.int64
        )
        if not missing.any():
            return there
        if len(there) and max(abs(int(there.min())), int(there.max())) > 2**53:
            # A double would round them, and up to more than their dtype can hold.
            numbers = np.full(len(values), np.nan, dtype=np.longdouble)
            numbers[~missing] = there
            return numbers
    if missing.any():
        values = np.where(missing, np.nan, values)
    try:
        return np.asarray(values, dtype=np.float64)
    except ValueError as error:
        raise ValueError(
            f"Column {column.name!r} does not hold numbers: {error}. Convert it, pass "
            "a DataFrame, whose text is taken for categories (steps of a Pipeline keep "
            "one after set_output(transform='pandas')), or list the column in the "
            "categorical_features of a TabularEncoder."
        ) from error


def _kind_of_integers(name, values):
    """The dtype of numpy, signed or not, that holds integers of any length."""
    low, high = min(values), max(values)
    if -(2**63) <= low and high < 2**63:
        return "i"
    if 0 <= low and high < 2**64:
        return "u"
    raise ValueError(
        f"Column {name!r} holds integers from {low} to {high}, which do not fit into "
        "64 bits. Convert it with astype(float), which keeps 15 digits, or list it in "
        "categorical_features."
    )


def as_categories(column):
    """Values of a column as objects, or as a pandas categorical if it declares them."""
    values = column.values
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values
    is_numpy_duration = isinstance(values, np.ndarray) and values.dtype.kind == "m"
    objects = as_objects(values) if is_numpy_duration else np.asarray(values, object)
    if values.dtype.kind == "b":
        # A boolean declares both of its values, even where only one is seen.
        return pd.Categorical(objects, categories=[False, True])
    return objects


# Writing ---------------------------------------------------------------------------


def assemble(columns, container, index=None):
    """Put columns together to a table in the container of another.

    Parameters
    ----------
    columns : list of Column
        The values, which become what the dtypes say.

    container : {ndarray, DataFrame}
        The other table. Its rows play no part; an array has the dtype of its own.

    index : pandas.Index, default=None
        What a DataFrame of pandas calls the rows.

    Returns
    -------
    table : {ndarray, DataFrame}
        The table.
    """
    if is_pandas_df(container):
        # Built under positions: labels may be anything a pandas Index holds.
        cells = [_pandas_cells(values, dtype, index) for _, values, dtype in columns]
        frame = pd.DataFrame(dict(enumerate(cells)), index=index)
        frame.columns = container.columns
        return frame
    if is_polars_df(container):
        # By name, for polars replaces an empty one in a list.
        return type(container)({c.name: _polars_series(*c) for c in columns})
    array = np.empty((len(columns[0].values), len(columns)), dtype=container.dtype)
    for position, column in enumerate(columns):
        cells = _rounded(column.values, array.dtype.kind in "iub")
        if cells.dtype.kind == "m" and array.dtype == object:
            cells = _durations.as_objects(cells)
        array[:, position] = in_limits(cells, array.dtype)
    return array


def with_columns(X, columns):
    """A copy of a table with other values in some columns, in the dtypes of these.

    Parameters
    ----------
    X : {ndarray, DataFrame}
        The table.

    columns : dict of int to ndarray
        The new values, by position.

    Returns
    -------
    X : {ndarray, DataFrame}
        The copy.
    """
    old = zip(names(X), arrays(X), dtypes(X), strict=True)
    new = [
        Column(name, columns.get(position, cells), dtype)
        for position, (name, cells, dtype) in enumerate(old)
    ]
    return assemble(new, X, index_of(X))


def holds_floats(X):
    """Whether a table is an array, or a frame of pandas, of double precision."""
    if isinstance(X, np.ndarray):
        return X.dtype == np.float64
    return is_pandas_df(X) and all(dtype == np.float64 for dtype in X.dtypes)


def with_cells(X, cells):
    """The array of double precision in the container of a table that `holds_floats`."""
    if isinstance(X, np.ndarray):
        return cells
    return pd.DataFrame(cells, index=X.index, columns=X.columns)


def append_columns(X, columns):
    """A table with more columns to its right, a dict of names to arrays."""
    if is_pandas_df(X):
        return pd.concat([X, pd.DataFrame(columns, index=X.index)], axis=1)
    if is_polars_df(X):
        return X.hstack(type(X)(columns))
    return np.column_stack([X, *columns.values()]).astype(X.dtype)


def _pandas_cells(values, dtype, index):
    if (
        _is_numpy(dtype, "iuf") and values.dtype.kind in "iufb"
    ):  # most columns, and quickly made
        return in_limits(_rounded(values, dtype.kind != "f"), dtype).astype(dtype)
    if values.dtype.kind == "m":
        if is_object_dtype(dtype):
            values = _durations.as_objects(values)
        return pd.Series(values, index=index).astype(dtype)
    places = _decimal_places(dtype)
    if places is not None:
        values = _as_decimals(values, places)
    is_whole = is_bool_dtype(dtype) or is_integer_dtype(dtype)
    values = in_limits(_rounded(values, is_whole), dtype)
    # A series, with the dtype said: pandas reads objects that are words as strings.
    return pd.Series(values, index=index, dtype=dtype)


def _polars_series(name, values, dtype):
    import polars as pl

    places = _decimal_places(dtype)
    if places is not None:
        values = _as_decimals(values, places)
    values = _rounded(values, dtype.is_integer() or dtype == pl.Boolean)
    values = in_limits(values, dtype)
    if dtype == pl.Duration:
        values = _durations.read(values, name)
    if values.dtype == object:  # of which polars reads lists only
        if not dtype.is_float():  # where NaN is a number
            values = np.where(pd.isna(values), None, values)
        values = values.tolist()
    return pl.Series(name, values, strict=False).cast(dtype)


def _as_decimals(values, places):
    """Numbers as decimals, None where missing; those that are decimals stay."""
    unit = Decimal(1).scaleb(-places)
    cells = [
        None
        if pd.isna(value)
        else value
        if isinstance(value, Decimal)
        else Decimal(repr(float(value))).quantize(unit)
        for value in values
    ]
    return as_objects(cells)


def _rounded(values, is_whole):
    """Values for a column, which are rounded if it holds whole numbers or booleans."""
    if not is_whole:
        return values
    if values.dtype == object and not pd.isna(values).any():
        values = pd.Series(values, dtype=object).infer_objects().to_numpy()
    return np.rint(values) if values.dtype.kind == "f" else values
