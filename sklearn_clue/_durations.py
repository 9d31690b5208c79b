"""Durations: how they are read, counted in a unit, written down and put into words.

A duration is a number of units, the largest ones of which all training values are
whole multiples: a column of days is counted in days, and counterfactuals are days, too.
Between tables and encoders they are arrays of `timedelta64[ns]`.
"""

from datetime import timedelta

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

# Nanoseconds of each unit, and how a text calls it.
UNITS = {
    "days": (86_400_000_000_000, "day"),
    "hours": (3_600_000_000_000, "h"),
    "minutes": (60_000_000_000, "min"),
    "seconds": (1_000_000_000, "s"),
    "milliseconds": (1_000_000, "ms"),
    "microseconds": (1_000, "µs"),
    "nanoseconds": (1, "ns"),
}

_DTYPE = np.dtype("timedelta64[ns]")
_LONGEST = 2**63 - 1


def is_duration(values):
    """Whether an array holds durations, by its dtype or as objects."""
    if values.dtype == object:
        return infer_dtype(values, skipna=True) in ("timedelta", "timedelta64")
    return values.dtype.kind == "m"


def read(values, name):
    """Durations of any kind as an array of `timedelta64[ns]`.

    Parameters
    ----------
    values : array
        Durations of numpy, pandas, pyarrow or Python.

    name : hashable
        Of the column, for errors.

    Returns
    -------
    durations : ndarray of timedelta64[ns]
        With NaT for what is missing.
    """
    if values.dtype == _DTYPE and isinstance(values, np.ndarray):
        return values
    try:
        if not isinstance(values, np.ndarray):  # an extension array of pandas
            values = np.asarray(values.to_numpy(dtype=object, na_value=None))
        if values.dtype == object:
            values = pd.to_timedelta(pd.Series(values, dtype=object))
        return pd.Series(values).astype(_DTYPE).to_numpy()
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"Column {name!r} holds durations that cannot be counted in nanoseconds: "
            f"{error}. Convert it, for example to a number of days."
        ) from error


def unit_of(durations):
    """The largest unit that all durations are whole multiples of."""
    counts = durations[~np.isnat(durations)].view(np.int64)
    if not counts.any():
        return "seconds"
    return next(name for name, (size, _) in UNITS.items() if not (counts % size).any())


def as_numbers(durations, unit):
    """Durations as numbers of a unit: whole ones if they are, else with NaN for NaT."""
    size, _ = UNITS[unit]
    whole, rest = np.divmod(durations.view(np.int64), size)
    missing = np.isnat(durations)
    if not (missing.any() or rest.any()):
        return whole
    return np.where(missing, np.nan, whole + rest / size)


def from_numbers(numbers, unit):
    """Numbers of a unit as an array of `timedelta64[ns]`, with NaT for NaN."""
    size, _ = UNITS[unit]
    numbers = np.asarray(numbers)
    missing = np.asarray(pd.isna(numbers))
    numbers = np.where(missing, 0, numbers)
    if numbers.dtype == object:
        numbers = pd.Series(numbers).infer_objects().to_numpy()
    if numbers.dtype.kind == "f":
        # The longest double below the limit; a cast of more would wrap.
        limit = np.nextafter(float(_LONGEST), 0)
        counts = np.rint(numbers * size).clip(-limit, limit).astype(np.int64)
    else:
        limit = _LONGEST // size
        counts = numbers.clip(-limit, limit).astype(np.int64) * size
    durations = counts.view(_DTYPE)
    durations[missing] = np.timedelta64("NaT")
    return durations


def as_objects(durations):
    """Durations as objects of Python, or of pandas where these are too coarse."""
    series = pd.Series(durations)
    known = series[series.notna()].to_numpy().view(np.int64)
    if (known % 1000).any():
        objects = list(series)
    else:
        objects = [pd.NaT if d is pd.NaT else d.to_pytimedelta() for d in series]
    return np.fromiter(objects, dtype=object, count=len(objects))


def _nanoseconds(duration):
    return pd.Timedelta(duration) // pd.Timedelta(1, "ns")


def bound_in(bound, unit):
    """A bound of a range in numbers of a unit; None if it is no duration.

    Infinite numbers, which are open, stay.
    """
    if isinstance(bound, timedelta | np.timedelta64):
        size, _ = UNITS[unit]
        count = _nanoseconds(bound)
        whole, rest = divmod(count, size)
        return whole if rest == 0 else whole + rest / size
    return bound if isinstance(bound, float) and np.isinf(bound) else None


def text_of(duration, step=1):
    """Write a duration as people do: 2 days 3 h.

    Parameters
    ----------
    duration : timedelta
        Of Python, numpy or pandas; not missing.

    step : int, default=1
        Nanoseconds to round to.

    Returns
    -------
    text : str
        The duration in words.
    """
    count = _nanoseconds(duration)
    sign, count = "-" if count < 0 else "", (abs(count) + step // 2) // step * step
    parts = []
    for size, name in list(UNITS.values())[:3]:
        number, count = divmod(count, size)
        if number:
            plural = "s" if name == "day" and number > 1 else ""
            parts.append(f"{number:,} {name}{plural}")
    if count or not parts:
        size, name = UNITS["seconds"]
        if not parts and 0 < count < size:
            size, name = next(unit for unit in UNITS.values() if unit[0] <= count)
        whole, rest = divmod(count, size)
        digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
        parts.append(f"{whole}{'.' if digits else ''}{digits} {name}")
    return sign + " ".join(parts)


def step_of(scale, unit):
    """Nanoseconds that show a hundredth of the spread of a column, at least its unit.

    Parameters
    ----------
    scale : float
        Standard deviation, in the unit of the column.

    unit : str
        That unit.

    Returns
    -------
    step : int
        For `text_of`.
    """
    size, _ = UNITS[unit]
    wanted = scale * size / 100
    steps = [ns for ns, _ in UNITS.values() if size <= ns <= max(wanted, size)]
    return max(steps)
