"""What the columns of a table are, separate from how they are stored.

Code that loops over columns (likelihoods, distances, displays) takes a schema, and
never the encoder that learned it.

Each column has one stretch of encoded space, its `block`:

- a number: its standard score;
- a category: one indicator per known value; then, if rare values were pooled in `fit`,
  one for all of them;
- at the end of either, if values were missing in `fit`: one that says so.

A missing number has the score 0, the mean. Where there is no position for what a row
holds, such as a category that was not seen in `fit`, the whole block is zero. The
indicators of rare and of missing values describe rows as they are, and no change leads
there: `n_proposed` counts the positions before them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from sklearn_clue import _durations
from sklearn_clue._dtypes import pack_dtype, unpack_dtype
from sklearn_clue._validation import listing

__all__ = ["ColumnSchema", "FeatureSchema"]


@dataclass(frozen=True, kw_only=True)
class ColumnSchema:
    """What one column of the user's table is, and where it lives when encoded.

    Parameters
    ----------
    name : hashable
        The user's label of the column.

    kind : {"number", "category"}
        How the column is encoded: a number by its standard score, a category by one
        indicator per known value.

    categories : tuple, default=None
        The known values of a category, in the order of their indicators.

    pooled : tuple, default=()
        The rare values of a category that share one indicator, the most frequent one
        first.

    has_gap : bool, default=False
        Whether values were missing in `fit`, so that there is an indicator of that.

    span : tuple of (int, int)
        First encoded position, and the one after the last.

    dtype : dtype
        The user's dtype (of numpy, pandas or polars), restored when decoding.

    center : float, default=None
        Of a number, which is encoded as `(value - center) / scale`.

    scale : float, default=None
        See `center`.

    low : int or float, default=None
        The smallest number seen in `fit`: an int for a column of integers.

    high : int or float, default=None
        The largest number seen in `fit`.

    percentiles : tuple of float, default=None
        The training percentiles 0, 1, ..., 100 of a number, in the user's units.

    decimals : int, default=None
        Digits after the point that the training values of a number have; None if they
        have more than six.

    atoms : tuple of float, default=()
        Values that many rows share, in a number that has others all around: no rain.

    unit : str, default=None
        What a duration is counted in: `"days"`, `"hours"`, and so on down to
        `"nanoseconds"`, the largest of which all training values are multiples. All
        numbers of the schema, such as `low` and `percentiles`, are in that unit.

    See Also
    --------
    FeatureSchema : All columns of a table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.schema import ColumnSchema
    >>> color = ColumnSchema(
    ...     name="color",
    ...     kind="category",
    ...     span=(1, 3),
    ...     dtype=np.dtype(object),
    ...     categories=("blue", "red"),
    ... )
    >>> np.array([0.3, 0.0, 1.0])[color.block]
    array([0., 1.])
    """

    name: Hashable
    kind: str
    categories: tuple | None = None
    pooled: tuple = ()
    has_gap: bool = False
    span: tuple[int, int]
    dtype: Any
    center: float | None = None
    scale: float | None = None
    low: float | None = None
    high: float | None = None
    percentiles: tuple[float, ...] | None = None
    decimals: int | None = None
    atoms: tuple[float, ...] = ()
    unit: str | None = None

    def __getstate__(self):
        state = {**vars(self), "dtype": pack_dtype(self.dtype, self.categories)}
        if self.percentiles is not None:
            state["percentiles"] = np.array(self.percentiles)
        return state

    def __setstate__(self, state):
        state = dict(state)
        state["dtype"] = unpack_dtype(state["dtype"], state["categories"])
        if state["percentiles"] is not None:
            state["percentiles"] = tuple(state["percentiles"].tolist())
        vars(self).update(state)

    @property
    def block(self):
        """Slice of the encoded positions of this column."""
        return slice(*self.span)

    @property
    def is_integer(self):
        """Whether the column is a number that only takes whole values."""
        return isinstance(self.low, Integral)

    def numbers_of(self, cells):
        """Give cells of a number as numbers: a duration counted in its unit.

        Parameters
        ----------
        cells : ndarray
            Values of this column, as a table holds them.

        Returns
        -------
        numbers : ndarray
            The same as they are, but for durations.
        """
        if self.unit is None:
            return cells
        return _durations.as_numbers(_durations.read(cells, self.name), self.unit)

    def cells_of(self, numbers):
        """Go back from numbers to cells, the reverse of `numbers_of`.

        Parameters
        ----------
        numbers : ndarray
            Numbers in the unit of the column.

        Returns
        -------
        cells : ndarray
            The same as they are, but durations as `timedelta64[ns]`.
        """
        return (
            numbers
            if self.unit is None
            else _durations.from_numbers(numbers, self.unit)
        )

    @property
    def n_proposed(self):
        """Number of positions, at the front, that a change may lead to."""
        return len(self.categories or ()) or 1

    @property
    def gap_position(self):
        """Encoded position that says that a value is missing, or None."""
        return self.span[1] - 1 if self.has_gap else None


@dataclass(frozen=True)
class FeatureSchema:
    """What each column of a table is, separate from how it is stored.

    Schemas are immutable and hashable, and two of them are equal exactly if they
    encode and decode alike.

    Parameters
    ----------
    columns : tuple of ColumnSchema
        One entry per column, in the user's order.

    See Also
    --------
    sklearn_clue.TabularEncoder : Learns a schema from data, as its attribute `schema_`.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue import TabularEncoder
    >>> X = pd.DataFrame({"age": [31, 58], "color": ["red", "blue"]})
    >>> schema = TabularEncoder().fit(X).schema_
    >>> schema.names, schema.n_encoded
    (('age', 'color'), 3)
    >>> schema.numeric_index, schema.blocks
    (array([0]), (slice(1, 3, None),))
    >>> schema.column("color").categories
    ('blue', 'red')
    """

    columns: tuple[ColumnSchema, ...]

    def __iter__(self):
        return iter(self.columns)

    def __len__(self):
        return len(self.columns)

    @property
    def n_encoded(self):
        """Number of encoded positions."""
        return self.columns[-1].span[1] if self.columns else 0

    @property
    def names(self):
        """Names of the columns, in the user's order."""
        return tuple(column.name for column in self)

    @property
    def numbers(self):
        """The columns that are numbers."""
        return tuple(column for column in self if column.kind == "number")

    @property
    def categories(self):
        """The columns that are categories."""
        return tuple(column for column in self if column.kind == "category")

    @property
    def numeric_index(self):
        """Encoded positions of the numbers, as an integer array."""
        return np.array([column.span[0] for column in self.numbers], dtype=np.intp)

    @property
    def blocks(self):
        """Slices of the encoded positions of the categories, one per column."""
        return tuple(column.block for column in self.categories)

    @property
    def described_index(self):
        """Encoded positions of rare and missing values, where no change leads."""
        stretches = [
            (column.span[0] + column.n_proposed, column.span[1]) for column in self
        ]
        return np.array([p for span in stretches for p in range(*span)], dtype=np.intp)

    def column(self, name):
        """Look up a column by its name.

        Parameters
        ----------
        name : hashable
            The user's label of the column.

        Returns
        -------
        column : ColumnSchema
            The column of that name.
        """
        for column in self:
            if column.name == name:
                return column
        raise KeyError(f"No column {name!r}. The columns are: {listing(self.names)}.")

    def describe_difference(self, other):
        """Say in words where another schema first departs from this one.

        Parameters
        ----------
        other : FeatureSchema
            The schema to compare with.

        Returns
        -------
        difference : str or None
            For example `"'marital_status': 4 categories against 3 (extra:
            'widowed')"`, where the first figure is about this schema; None if the two
            are equal.
        """
        if self.names != other.names:
            return _count_difference("columns", self.names, other.names)
        for mine, theirs in zip(self, other, strict=True):
            if mine.kind == theirs.kind == "category":
                if mine.categories != theirs.categories:
                    difference = _count_difference(
                        "categories", mine.categories, theirs.categories
                    )
                    return f"{mine.name!r}: {difference}"
            for field in fields(mine):
                a, b = getattr(mine, field.name), getattr(theirs, field.name)
                if a != b:
                    if field.name == "percentiles":  # 101 numbers help nobody
                        return f"{mine.name!r}: other training percentiles"
                    return f"{mine.name!r}: {field.name} {a} against {b}"
        return None


def plain_schema(names, n_encoded):
    """Describe encoded positions of which nothing is known but that they are numbers.

    Parameters
    ----------
    names : sequence
        Names of the columns before they were encoded.

    n_encoded : int
        Number of encoded positions. Where it differs from that of the columns, these
        have been mixed, and positions are called `x0`, `x1`, and so on.

    Returns
    -------
    schema : FeatureSchema
        One number per position.
    """
    if len(names) != n_encoded:
        names = [f"x{position}" for position in range(n_encoded)]
    return FeatureSchema(
        tuple(
            ColumnSchema(
                name=name,
                kind="number",
                span=(position, position + 1),
                dtype=np.dtype(np.float64),
                center=0.0,
                scale=1.0,
            )
            for position, name in enumerate(names)
        )
    )


def _count_difference(what, mine, theirs):
    known, wanted = set(mine), set(theirs)
    extra = [value for value in mine if value not in wanted]
    absent = [value for value in theirs if value not in known]
    notes = [
        f"{word}: {listing(values)}"
        for word, values in (("extra", extra), ("missing", absent))
        if values
    ]
    note = "; ".join(notes) or "other order"
    return f"{len(mine)} {what} against {len(theirs)} ({note})"
