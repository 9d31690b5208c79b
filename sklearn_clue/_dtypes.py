"""What dtypes can hold; and dtypes and containers as plain values, for files."""

import math

import numpy as np
import pandas as pd
from pandas.api.types import is_object_dtype, is_string_dtype, pandas_dtype

from sklearn_clue._validation import is_pandas_df, is_polars_df

# Limits -----------------------------------------------------------------------------


def in_limits(values, dtype):
    """Numbers that a dtype of whole ones can hold; a cast would wrap the others."""
    try:  # "int8", "Int8" and "int8[pyarrow]" are one to numpy, polars and pandas
        limits = np.iinfo(str(dtype).lower().partition("[")[0])
    except (TypeError, ValueError):
        return values
    if values.dtype.kind == "f":
        low, high = values.dtype.type(limits.min), values.dtype.type(limits.max)
        if int(high) > limits.max:  # rounded up, beyond what the cast can take
            high = np.nextafter(high, values.dtype.type(0))
        return values.clip(low, high)
    if values.dtype.kind in "iu":
        own = np.iinfo(values.dtype)
        return values.clip(max(limits.min, own.min), min(limits.max, own.max))
    return values


def bounds_within(low, high, dtype, is_whole):
    """Bounds of a column as numbers that it can hold, moved inwards.

    Parameters
    ----------
    low, high : number
        The bounds; infinity is open.

    dtype : dtype
        Of the column.

    is_whole : bool
        Whether it holds whole numbers only, whatever the dtype.

    Returns
    -------
    low, high : number or None
        None is open. An empty range has the lower bound above the higher one.
    """
    # As Python's own numbers: math.floor takes a large integer of numpy for a double.
    low, high = (getattr(bound, "item", lambda b=bound: b)() for bound in (low, high))
    low, high = None if low == -np.inf else low, None if high == np.inf else high
    try:  # "int8", "Int8" and "int8[pyarrow]" are one to numpy, polars and pandas
        dtype = np.dtype(str(dtype).lower().partition("[")[0])
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        least, most = np.array([limits.min, limits.max], dtype).tolist()
    except (TypeError, ValueError):
        dtype = np.dtype(object)
    if is_whole or dtype.kind in "iu":
        low = None if low is None else math.ceil(low)
        high = None if high is None else math.floor(high)
    if dtype.kind not in "iuf":
        return low, high
    if low is not None and low > most:
        return low, most
    if high is not None and high < least:
        return least, high
    low = None if low is None or low <= least else low
    high = None if high is None or high >= most else high
    if dtype.kind == "f":
        low, high = _rounded_up(low, dtype), _rounded_up(high, dtype, -1)
    return low, high


def _rounded_up(bound, dtype, sign=1):
    """The next number of a float dtype that is not below a bound, or not above it."""
    if bound is None:
        return None
    near = dtype.type(bound)
    is_outside = sign * float(near) < sign * bound
    return float(np.nextafter(near, dtype.type(sign * np.inf)) if is_outside else near)


# Files ------------------------------------------------------------------------------
# pandas and polars may change how they pickle their own from one release to the next.


def pack_template(template):
    if is_polars_df(template):
        return {"container": "polars"}
    if not is_pandas_df(template):
        return template
    columns = template.columns
    labels, names = columns.tolist(), list(columns.names)
    packed = {"container": "pandas", "labels": labels, "names": names}
    if is_string_dtype(columns.dtype) and not is_object_dtype(columns.dtype):
        packed["dtype"] = pack_dtype(columns.dtype)  # of text there are several
    # Labels of other types, such as dates, are left to pandas.
    restored = unpack_template(packed).columns
    is_plain = (restored.dtype, True) == (columns.dtype, restored.equals(columns))
    is_plain &= all(
        isinstance(part, str | int | float | None)
        for label in (*labels, *names)
        for part in (label if isinstance(label, tuple) else (label,))
    )
    return packed if is_plain else template


def unpack_template(packed):
    if not isinstance(packed, dict):
        return packed
    if packed["container"] == "polars":
        import polars as pl

        return pl.DataFrame()
    labels, names = packed["labels"], packed["names"]
    if len(names) > 1:
        return pd.DataFrame(columns=pd.MultiIndex.from_tuples(labels, names=names))
    dtype = packed.get("dtype") and unpack_dtype(packed["dtype"], None)
    index = pd.Index(labels, dtype=dtype, name=names[0], tupleize_cols=False)
    return pd.DataFrame(columns=index)


def pack_dtype(dtype, categories=None):
    """A dtype as plain values; declared categories only if they are not those given."""
    if isinstance(dtype, np.dtype):
        return {"numpy": dtype.str}
    if isinstance(dtype, pd.CategoricalDtype):
        inner = pack_dtype(dtype.categories.dtype)
        packed = {"pandas": "category", "ordered": dtype.ordered, "values": inner}
        return packed | _others(dtype.categories.tolist(), categories)
    if isinstance(dtype, pd.ArrowDtype):
        return _pack_arrow(dtype)
    if isinstance(dtype, pd.api.extensions.ExtensionDtype):
        if pandas_dtype(str(dtype)) == dtype:
            return {"pandas": str(dtype)}
    if isinstance(dtype, pd.StringDtype):  # not in the storage that is the default
        return {"storage": dtype.storage, "has_nan": dtype.na_value is np.nan}
    if hasattr(dtype, "base_type"):
        packed = {"polars": dtype.base_type().__name__}
        for name in ("time_unit", "precision", "scale"):  # of durations and decimals
            if hasattr(dtype, name):
                packed[name] = getattr(dtype, name)
        if packed["polars"] == "Enum":
            packed |= _others(dtype.categories.to_list(), categories)
        return packed
    return dtype


def _others(declared, categories):
    return {} if tuple(declared) == categories else {"categories": tuple(declared)}


def _pack_arrow(dtype):
    """The name of a dtype of pyarrow, if it has one, or its parts."""
    import pyarrow

    inner = dtype.pyarrow_dtype
    if pyarrow.types.is_dictionary(inner):
        parts = (inner.index_type, inner.value_type)
        packed = [_pack_arrow(pd.ArrowDtype(part)) for part in parts]
        return {"dictionary": packed, "ordered": inner.ordered}
    if pyarrow.types.is_decimal(inner):
        bits = inner.bit_width
        return {"decimal": bits, "precision": inner.precision, "scale": inner.scale}
    name = str(inner)
    try:
        is_known = pyarrow.type_for_alias(name) == dtype.pyarrow_dtype
    except ValueError:
        is_known = False
    return {"arrow": name} if is_known else dtype


def unpack_dtype(packed, categories):
    if not isinstance(packed, dict):
        return packed
    categories = packed.get("categories", categories)
    if "arrow" in packed:
        import pyarrow

        return pd.ArrowDtype(pyarrow.type_for_alias(packed["arrow"]))
    if "dictionary" in packed:
        import pyarrow

        parts = (unpack_dtype(part, None) for part in packed["dictionary"])
        parts = (part.pyarrow_dtype for part in parts)
        return pd.ArrowDtype(pyarrow.dictionary(*parts, ordered=packed["ordered"]))
    if "decimal" in packed:
        import pyarrow

        dtype = getattr(pyarrow, f"decimal{packed['decimal']}")
        return pd.ArrowDtype(dtype(packed["precision"], packed["scale"]))
    if "storage" in packed:
        missing = {"na_value": np.nan} if packed["has_nan"] else {}
        return pd.StringDtype(packed["storage"], **missing)
    if "numpy" in packed:
        return np.dtype(packed["numpy"])
    if "polars" in packed:
        import polars as pl

        dtype = getattr(pl, packed["polars"])
        names = ("time_unit", "precision", "scale")
        settings = {name: packed[name] for name in names if name in packed}
        return dtype(categories) if packed["polars"] == "Enum" else dtype(**settings)
    if packed["pandas"] != "category":
        return pandas_dtype(packed["pandas"])
    values = pd.Index(
        categories,
        dtype=unpack_dtype(packed["values"], None),
        tupleize_cols=False,
    )
    return pd.CategoricalDtype(values, ordered=packed["ordered"])
