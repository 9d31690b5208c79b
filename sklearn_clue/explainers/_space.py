"""The one encoded space of an explainer, and the ways between it and the user's rows.

A row travels from the user's table through the steps of a pipeline that come before
the predictor, and through an encoder, to the encoded space where explainers work; and
back. Whoever changes rows in that space asks here what a valid row is.
"""

import copy
import warnings
from dataclasses import replace
from datetime import timedelta
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_clue import _dtypes, _durations, _tables
from sklearn_clue._columns import Strangers
from sklearn_clue.encoding import (
    TabularEncoder,
    decode_freely,
    encode_quietly,
    unfrozen,
)
from sklearn_clue.exceptions import EncodingMismatchError
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import names_after
from sklearn_clue.schema import ColumnSchema, FeatureSchema, plain_schema

# Values that are tried in search of those that a column can take.
N_POSSIBLE = 20_000


class PixelScaler(VersionedState, TransformerMixin, BaseEstimator):
    """Pixels as numbers between 0 and 1: integers are divided by 255."""

    def _pack_state(self, state):
        if "dtype_" in state:
            state["dtype_"] = state["dtype_"].str
        return state

    def _unpack_state(self, state):
        if "dtype_" in state:
            state["dtype_"] = np.dtype(state["dtype_"])
        return state

    def fit(self, X, y=None):
        """Look at the dtype of the pixels."""
        self.dtype_ = np.asarray(X).dtype
        return self

    def transform(self, X):
        """Scale pixels to [0, 1]."""
        X = np.asarray(X)
        return X / 255 if self.dtype_.kind in "iu" else X.astype(np.float64)

    def inverse_transform(self, X):
        """Scale pixels back."""
        if self.dtype_.kind in "iu":
            return np.rint(255 * np.clip(X, 0, 1)).astype(self.dtype_)
        return (X >= 0.5) if self.dtype_.kind == "b" else X.astype(self.dtype_)


class Limits(NamedTuple):
    """Where rows may go, in encoded space: bounds per row and position."""

    low: np.ndarray
    high: np.ndarray

    def take(self, rows):
        """The bounds of some rows."""
        return Limits(self.low[rows], self.high[rows])


class EncodedSpace:
    """Encode the user's rows, decode them, and say what a valid row is.

    Parameters
    ----------
    steps : list of fitted transformers
        What the user's rows go through before the encoder.

    encoder : fitted transformer or None
        From the input of the predictor to encoded space; None is the identity.

    X : {array-like, DataFrame}
        Training rows of the user, for the distribution of each column and to find out
        which way back there is.

    immutable_features : sequence or None
        Columns that keep their value.

    feature_ranges : mapping or None
        Bounds by column: a pair of numbers or durations, of which None and infinity
        are open, `"increase"` or `"decrease"`.

    unread : sequence of int, default=()
        Positions of columns that the predictor does not read, if it is asked about
        the table itself. They keep their value: no change of theirs makes it sure.
    """

    fill_missing = False
    lattices: dict = {}  # of explainers that were saved before there were any
    _numbers = None  # in files that were saved without

    def __init__(
        self, steps, encoder, X, immutable_features, feature_ranges, unread=()
    ):
        self.steps = steps
        self.encoder = encoder
        names = _tables.names(X) if _tables.is_frame(X) else [None]
        self._names = names if all(isinstance(name, str) for name in names) else None
        inputs = self.to_inputs(X)
        self._has_names = _tables.is_frame(inputs)
        self._is_undone = self._find_inverses(X)
        self.is_invertible = self._is_undone is not None
        self.schema = self._schema_of_inputs(inputs)
        self.display_schema = self._schema_of_display(X)
        self.is_columnwise = self._works_by_column(X)
        self._unused = self._find_unused(X, unread)
        self._numbers = self._read_numbers()
        self._is_rising, self._range = self._find_range(X)
        self._read_constraints(None, None)
        self._possible, self.lattices = self._find_possible(X)
        self._read_constraints(immutable_features, feature_ranges)

    # From the user's rows to encoded space ----------------------------------------

    @property
    def search_schema(self):
        """Columns as a search sees them, with the decimals and atoms of the table."""
        return getattr(self, "_possible", None) or self.schema

    def to_inputs(self, X):
        """Take the user's rows to the input of the predictor."""
        X = _tables.named(X, self._names)
        for step in self.steps:
            X = step.transform(X)
        return _tables.dense(X)

    def encode(self, X):
        """Take the user's rows to encoded space, as float64; warn of strangers."""
        strangers = Strangers()
        x = self.encode_inputs(self.to_inputs(X), strangers)
        strangers.tell()
        return x

    def encode_display(self, X, strangers=None):
        """Take rows as explanations show them to encoded space, without a warning."""
        inputs = X if self._has_names else np.asarray(X)
        if self.is_invertible:
            inputs = self.to_inputs(X)
        return self.encode_inputs(inputs, strangers)

    def display(self, X):
        """The user's rows as explanations show them: raw if there is a way back."""
        if self.is_invertible:
            return X
        inputs = self.to_inputs(X)
        if self._has_names or _tables.index_of(X) is None:
            return inputs
        # The steps gave up the frame, but know the names of what they made.
        names = names_after(self.steps, _tables.names(X))
        return pd.DataFrame(inputs, index=_tables.index_of(X), columns=names)

    @property
    def note(self):
        """What to tell the reader about units, if anything."""
        if self.is_invertible:
            return None
        names = ", ".join(type(step).__name__ for step in self.steps)
        return (
            f"Rows are shown as the predictor sees them, after {names}: these steps "
            "have no inverse_transform that leads back to the raw table."
        )

    def encode_inputs(self, inputs, strangers=None):
        """Take rows as the predictor gets them to encoded space, as float64."""
        if self.encoder is not None:
            inputs = encode_quietly(self.encoder, inputs, strangers or Strangers())
        return np.array(inputs, dtype=np.float64)  # pandas gives views not to write to

    # And back ---------------------------------------------------------------------

    def decode(self, x, X, x0):
        """Take encoded rows back to the user's units.

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_encoded)
            Encoded rows.

        X : {ndarray, DataFrame} with n_rows rows
            The rows they were made from, as `display` gives them: their container is
            kept, and values that did not or must not change are copied.

        x0 : ndarray of shape (n_rows, n_encoded)
            The same rows, encoded.

        Returns
        -------
        X_decoded : {ndarray, DataFrame}
            Like X.
        """
        if self._is_plain(X):
            return self._decode_numbers(x, X, x0)
        # Ranges are kept below, for whole numbers as for others.
        rows = x if self.encoder is None else decode_freely(self.encoder, x)
        if self.is_invertible:
            for step, is_undone in zip(
                reversed(self.steps), reversed(self._is_undone), strict=True
            ):
                rows = step.inverse_transform(rows) if is_undone else rows
        rows = _tables.with_columns(X, dict(enumerate(_tables.arrays(rows))))
        cells, own = _tables.arrays(rows), _tables.arrays(X)
        if self.steps and self.is_invertible:
            # Steps know nothing of decimals.
            for j, column in enumerate(self.display_schema):
                if column.decimals is not None and cells[j].dtype.kind == "f":
                    cells[j] = np.round(cells[j], column.decimals)
        # Cells that did not move in encoded space, but for rounding, are copied to the
        # last bit.
        is_same = np.abs(x - x0) <= 1e-9
        for j, column in enumerate(self.schema if self.is_columnwise else ()):
            cells[j] = np.where(is_same[:, column.block].all(1), own[j], cells[j])
        # Steps that mix columns fill whatever was missing.
        refills = not self.is_columnwise and not self.fill_missing
        for j, is_blank in enumerate(_tables.gaps(X).T):
            if is_blank.any():
                stays = is_blank & (refills | pd.isna(cells[j]))
                cells[j] = np.where(stays, own[j], cells[j])
        for j in self._unused:
            cells[j] = own[j]
        for bounds in (self._training_range(own), self._bounds(X, own)):
            for j, (low, high) in bounds.items():
                cells[j] = _clip(cells[j], low, high)
        for j in self._immutable:
            cells[j] = own[j]
        return _tables.with_columns(X, dict(enumerate(cells)))

    def _is_plain(self, X):
        """Whether rows are floats throughout, without gaps, and no step comes first."""
        if self._numbers is None or not _tables.holds_floats(X):
            return False
        return not np.isnan(np.asarray(X)).any()

    def _decode_numbers(self, x, X, x0):
        """What `decode` does, for all columns at once: searches ask for it often."""
        own, (center, scale, decimals, low, high) = np.asarray(X), self._numbers
        cells = x * scale + center
        for places in np.unique(decimals[decimals >= 0]):
            is_rounded = decimals == places
            cells[:, is_rounded] = np.round(cells[:, is_rounded], places)
        cells = np.where(np.abs(x - x0) <= 1e-9, own, cells)
        cells[:, self._unused] = own[:, self._unused]
        is_open = [j for j, pair in self._ranges.items() if not isinstance(pair, str)]
        low, high = np.minimum(low, own), np.maximum(high, own)
        low[:, is_open], high[:, is_open] = -np.inf, np.inf
        cells = cells.clip(low, high)
        for j, bounds in self._bounds(X, own.T).items():
            cells[:, j] = _clip(cells[:, j], *bounds)
        cells[:, self._immutable] = own[:, self._immutable]
        return _tables.with_cells(X, cells)

    def _read_numbers(self):
        """Centres, scales, decimals and ranges, if all columns are plain numbers."""
        if self.steps or not isinstance(unfrozen(self.encoder), TabularEncoder):
            return None
        columns, facts = list(self.schema), []
        for column in columns:
            is_number = column.kind == "number" and column.low is not None
            if not is_number or column.has_gap or column.is_integer or column.unit:
                return None
            places = -1 if column.decimals is None else column.decimals
            ends = column.low, column.high
            facts.append((column.center, column.scale, places, *ends))
        center, scale, decimals, low, high = np.array(facts, dtype=float).T
        if max(np.abs(low).max(), np.abs(high).max()) > 1e100:
            return None  # the encoder takes care not to leave the numbers
        return center, scale, decimals.astype(int), low, high

    def _works_by_column(self, X):
        """Whether each column of the table has its own stretch of encoded space."""
        if len(self.schema) != len(self.display_schema):
            return False
        if not self.steps or not self.is_invertible:
            return True
        # Steps may mix columns: give columns the values of other rows, and see what
        # moves. Of any two columns one moves without the other in some group.
        X = some_rows(X)
        x, n_columns = self.encode(X), len(self.schema)
        for bit in range(n_columns.bit_length()):
            is_moved = np.arange(n_columns) >> bit & 1 == 1
            for group in (is_moved, ~is_moved):
                others = {
                    j: np.roll(cells, 1)
                    for j, cells in enumerate(_tables.arrays(X))
                    if group[j]
                }
                is_same = x == self.encode(_tables.with_columns(X, others))
                for j in others:
                    is_same[:, self.schema.columns[j].block] = True
                if not is_same.all():
                    return False
        return True

    def _find_unused(self, X, unread):
        """Columns of the table that nobody looks at; they keep their value."""
        if self.is_columnwise or not self.is_invertible:
            return list(unread)
        return unread_columns(self.encode_display, X)

    def _find_inverses(self, X):
        """Which steps to undo on the way back, or None if a step has no inverse."""
        # What the user will get back must be a row of the same table, so each step is
        # asked to undo what it did to some of them. Lossy steps count: explanations
        # are scored again as the user gets them.
        X = some_rows(X)
        is_undone = []
        for step in self.steps:
            after = _tables.dense(step.transform(X))
            inverse = getattr(step, "inverse_transform", None)
            # An imputer's output is in the units of its input, whether or not it
            # claims to have an inverse.
            is_undone.append(not _fills_only(X, after))
            if is_undone[-1] and (inverse is None or not _leads_back(step, after, X)):
                return None
            X = after
        return is_undone

    def _schema_of_inputs(self, inputs):
        schema = getattr(unfrozen(self.encoder), "schema_", None)
        if schema is not None:
            return schema
        n_encoded = self.encode_inputs(_tables.take(inputs, slice(1))).shape[1]
        return plain_schema(_tables.names(inputs), n_encoded)

    def _schema_of_display(self, X):
        if isinstance(unfrozen(self.encoder), PixelScaler):
            return self.schema
        if not self.steps and any(c.percentiles is not None for c in self.schema):
            return self.schema
        # Some columns may hold missing values, which a step fills in.
        return TabularEncoder()._fit(self.display(X), give_hints=False).schema_

    # Constraints ------------------------------------------------------------------

    def _read_constraints(self, immutable_features, feature_ranges):
        """Turn names into positions, after a look at what they allow."""
        names = self.display_schema.names
        try:
            self._immutable, self._ranges = read_constraints(
                names, immutable_features, feature_ranges
            )
        except ValueError as error:
            if self.is_invertible:
                raise
            raise ValueError(f"{error} {self.note}") from None
        for position, allowed in self._ranges.items():
            column = self.display_schema.columns[position]
            _check_range(column, allowed, column.dtype)
        if (self._immutable or self._ranges) and not self.is_columnwise:
            raise ValueError(
                f"The steps before the predictor mix columns (of {len(names)} they "
                f"make {len(self.schema)}), so constraints on single columns cannot be "
                "kept while searching. Leave out immutable_features and "
                "feature_ranges, or the steps that mix columns."
            )

    def constrained(self, immutable_features, feature_ranges, fill_missing=False):
        """The same space under other constraints."""
        space = copy.copy(self)
        space._read_constraints(immutable_features, feature_ranges)
        space.fill_missing = fill_missing
        return space

    def blanks(self, X, x0):
        """Cells that tell a model nothing: missing ones, and unknown categories.

        Parameters
        ----------
        X : {ndarray, DataFrame}
            Rows as `display` gives them.

        x0 : ndarray of shape (n_rows, n_encoded)
            The same rows, encoded.

        Returns
        -------
        is_blank : ndarray of bool of shape (n_rows, n_columns)
            They keep their value, unless `fill_missing` is true. The price of filling
            one is its distance from what `x0` holds: 2 for a missing category, as for
            any change of a category, and for a number 1 and the distance to the mean.
        """
        is_blank = _tables.gaps(X)
        for j, column in enumerate(self.schema):
            if column.kind == "category":
                is_blank[:, j] |= ~x0[:, column.block].any(1)
        return is_blank

    def limits(self, X, x0):
        """Bounds of encoded rows, from the constraints and the rows they start from.

        No row may become one with a missing or a pooled value. Those that are may stay
        so, and missing values must, unless `fill_missing` is true.

        Parameters
        ----------
        X : {ndarray, DataFrame}
            Rows as `display` gives them.

        x0 : ndarray of shape (n_rows, n_encoded)
            The same rows, encoded.

        Returns
        -------
        limits : Limits or None
            None if steps mix columns.
        """
        if not self.is_columnwise:
            return None
        described = self.schema.described_index
        is_blank = self.blanks(X, x0)
        if is_blank.any():
            strangers = Strangers()
            self.encode_display(X, strangers)
            strangers.tell()
        # A value of the row itself may lie outside of the training range.
        low, high = np.minimum(self._range[0], x0), np.maximum(self._range[1], x0)
        for j in self._ranges:
            if not isinstance(self._ranges[j], str):
                at = self.schema.columns[j].span[0]
                low[:, at], high[:, at] = -np.inf, np.inf
        ranges = self._bounds(X, _tables.arrays(X))
        # All columns at once, since each has its own stretch of encoded space.
        for side in (0, 1):
            pairs = ranges.items()
            bounds = {j: pair[side] for j, pair in pairs if pair[side] is not None}
            if bounds:
                moved = self.encode_display(_tables.with_columns(X, bounds))
            for j, bound in bounds.items():
                at, is_open = self.schema.columns[j].span[0], pd.isna(bound)
                is_low = (side == 0) == self._is_rising[j]
                side_of_row = low if is_low else high
                side_of_row[~is_open, at] = moved[~is_open, at]
        high[:, described] = np.where(x0[:, described] > 0, np.inf, 0)
        for j, column in enumerate(self.schema):
            is_fixed = np.full(len(x0), j in self._immutable or j in self._unused)
            if not self.fill_missing:
                is_fixed |= is_blank[:, j]
            rows = np.flatnonzero(is_fixed)
            low[rows, column.block] = high[rows, column.block] = x0[rows, column.block]
        return Limits(low, high)

    def _bounds(self, X, own):
        """Lowest and highest values by column, one per row; None is no bound."""
        bounds, dtypes = {}, _tables.dtypes(X)
        for j, allowed in self._ranges.items():
            if isinstance(allowed, str):
                is_low = allowed == "increase"
                bounds[j] = (own[j], None) if is_low else (None, own[j])
                continue
            column = self.display_schema.columns[j]
            dtype = own[j].dtype if own[j].dtype.kind in "iu" else None
            bounds[j] = [
                None
                if bound is None
                else column.cells_of(np.full(len(own[j]), bound, dtype=dtype))
                for bound in _check_range(column, allowed, dtypes[j])
            ]
        return bounds

    def _training_range(self, own):
        """Bounds of numbers without a range of their own: where `fit` saw values."""
        ranges = {}
        for j, column in enumerate(self.display_schema):
            is_open = j in self._ranges and not isinstance(self._ranges[j], str)
            if column.kind == "number" and column.low is not None and not is_open:
                low, high = column.cells_of(np.array([column.low, column.high]))
                (values,) = _comparable(own[j], is_duration=column.unit is not None)
                # A value of the row itself may lie outside.
                ranges[j] = np.fmin(low, values), np.fmax(high, values)
        return ranges

    def _find_possible(self, X):
        """The values that numbers behind steps may take, in encoded space.

        A search must not end between them: what is rounded on the way back to the
        table may be unsure again.

        Returns
        -------
        schema : FeatureSchema or None
            With decimals and atoms of the table, where steps only rescale.

        lattices : dict of int to ndarray
            For other columns with decimals, possible values by position.
        """
        if not (self.steps and self.is_invertible and self.is_columnwise):
            return None, {}
        rows = some_rows(X)
        x, cells = self.encode(rows), _tables.arrays(rows)
        columns, bent = list(self.schema), []
        for j, raw in enumerate(self.display_schema):
            if raw.decimals is None or raw.unit is not None or raw.low == raw.high:
                continue
            (numbers,) = _comparable(cells[j], is_duration=False)
            line = _line_through(x[:, columns[j].span[0]], numbers, raw.decimals)
            if line is None:
                bent.append(columns[j].span[0])
                continue
            columns[j] = replace(
                columns[j],
                center=line[0],
                scale=line[1],
                decimals=raw.decimals,
                atoms=raw.atoms,
                percentiles=raw.percentiles,
            )
        return FeatureSchema(tuple(columns)), self._values_seen(X, bent)

    def _values_seen(self, X, positions):
        """Encoded values of these positions that come back from the table as they are.

        All that there are, or so many that they are close together.
        """
        if not positions:
            return {}
        whole = _tables.gaps(X).any(1).argmin()  # a row without gaps, if there is one
        X = _tables.take(X, np.full(N_POSSIBLE, whole))
        x0 = self.encode(X)
        x, (low, high) = x0.copy(), self._range
        for at in positions:
            x[:, at] = np.linspace(low[at], high[at], N_POSSIBLE)
        x = self.encode(self.decode(x, X, x0))
        values = {at: np.unique(x[:, at]) for at in positions}
        return {at: known for at, known in values.items() if len(known) > 1}

    def _find_range(self, X):
        """How encoded numbers go with those of a table, and their training range.

        Returns
        -------
        is_rising : list of bool
            Whether a larger value of a column is larger in encoded space, too.

        range : pair of ndarrays of shape (n_encoded,)
            Lowest and highest values in encoded space; infinite for categories.
        """
        if not self.is_columnwise:
            return None, None
        numbers = {
            j: column.cells_of(np.array([[column.low], [column.high]]))
            for j, column in enumerate(self.display_schema)
            if column.kind == "number" and column.low is not None
        }
        X = self.display(_tables.take(X, slice(1)))
        first, last = (
            self.encode_display(
                _tables.with_columns(X, {j: pair[end] for j, pair in numbers.items()})
            )[0]
            for end in (0, 1)
        )
        low, high = np.full_like(first, -np.inf), np.full_like(first, np.inf)
        positions = [self.schema.columns[j].span[0] for j in numbers]
        low[positions] = np.minimum(first, last)[positions]
        high[positions] = np.maximum(first, last)[positions]
        is_rising = [
            bool((last >= first)[column.block].all()) for column in self.schema
        ]
        return is_rising, (low, high)


def _clip(values, low, high):
    """Make a range hold to the last bit in the user's units."""
    # A missing bound or value compares as False.
    for bound, is_beyond in ((low, np.less), (high, np.greater)):
        if bound is not None:
            is_duration = any(map(_durations.is_duration, (values, bound)))
            where = is_beyond(*_comparable(values, bound, is_duration=is_duration))
            bound = _tables.as_objects(bound) if values.dtype == object else bound
            values = np.where(where, bound, values)
    return values


def _comparable(*arrays, is_duration):
    """Arrays of objects as numbers, or as durations; others as they are."""
    for values in arrays:
        if is_duration:
            yield _durations.read(values, None)
        elif values.dtype.kind in "iuf":
            yield values
        else:
            yield _tables.as_numbers(_tables.Column(None, values, values.dtype))


def check_constraints(X, immutable_features, feature_ranges):
    """Check constraints as far as the user's rows alone can tell."""
    names = _tables.names(X)
    _, ranges = read_constraints(names, immutable_features, feature_ranges)
    columns = _tables.columns(X) if ranges else ()
    for position, allowed in ranges.items():
        column = columns[position]
        kind = _tables.kind_of(column) if _tables.is_frame(X) else "number"
        known = ColumnSchema(
            name=column.name,
            kind=kind,
            span=(0, 1),
            dtype=column.dtype,
            low=0 if _tables.is_integer(column) else 0.0,
            unit=_tables.unit_of(column),
        )
        _check_range(known, allowed, column.dtype)


def _check_range(column, allowed, dtype):
    """The bounds of a column as its dtype knows them; an error if nothing is left.

    Those of durations are numbers in the unit of the column.
    """
    name = column.name
    if column.kind != "number":
        raise ValueError(
            f"feature_ranges holds {name!r}, which is a category. Ranges are "
            "for numbers; list it in immutable_features to keep its value."
        )
    if isinstance(allowed, str):
        return None, None
    limits, counted = allowed, dtype
    if column.unit is not None:
        limits = [_durations.bound_in(bound, column.unit) for bound in allowed]
        counted = "int64"
    is_mixed = column.unit is None and any(map(_is_duration, allowed))
    if is_mixed or None in limits:
        what = "numbers" if column.unit is None else "durations, such as a timedelta"
        raise ValueError(
            f"feature_ranges[{name!r}] = {allowed!r} does not go with the column, of "
            f"dtype {dtype}. Give {what}, or None where there is no bound."
        )
    low, high = _dtypes.bounds_within(*limits, counted, column.is_integer)
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"feature_ranges[{name!r}] = {allowed!r} holds no value that the column, "
            f"of dtype {dtype}, could take. Widen it."
        )
    return low, high


def read_constraints(names, immutable_features, feature_ranges):
    """Check constraints by themselves, and find their columns.

    Parameters
    ----------
    names : sequence
        The columns, as explanations show them.

    immutable_features, feature_ranges : see `CLUEExplainer`
        The constraints.

    Returns
    -------
    immutable : list of int
        Positions of the columns that keep their value.

    ranges : dict of int to pair or str
        What the others may become, by position.
    """
    if isinstance(immutable_features, str):
        immutable_features = [immutable_features]
    immutable = [
        _position(names, name, "immutable_features")
        for name in (() if immutable_features is None else immutable_features)
    ]
    ranges = {}
    for name, allowed in (feature_ranges or {}).items():
        is_valid = isinstance(allowed, str) and allowed in ("increase", "decrease")
        if not isinstance(allowed, str) and np.shape(allowed) == (2,):
            low, high = allowed
            low, high = (
                -np.inf if low is None else low,
                np.inf if high is None else high,
            )
            allowed = (low, high)
            is_valid = _is_pair(low, high)
        if not is_valid:
            raise ValueError(
                f"feature_ranges[{name!r}] must be a pair (low, high) of numbers, the "
                "lower one first and None where there is no bound, 'increase' or "
                f"'decrease', got {allowed!r}."
            )
        ranges[_position(names, name, "feature_ranges")] = allowed
    return immutable, ranges


def _is_duration(bound):
    return isinstance(bound, timedelta | np.timedelta64)


def _is_pair(low, high):
    """Whether two bounds, of which infinite ones are open, are a range."""
    if any(map(_is_duration, (low, high))):
        # Durations of pandas can be compared with numbers, those of numpy cannot.
        low, high = (
            pd.Timedelta(bound) if _is_duration(bound) else bound
            for bound in (low, high)
        )
        is_known = not (pd.isna(low) or pd.isna(high))
        is_open = low == -np.inf or high == np.inf
        both = _is_duration(low) and _is_duration(high)
        return is_known and (is_open or (both and low <= high))
    is_number = all(isinstance(bound, Real) for bound in (low, high))
    return is_number and low <= high and low < np.inf and -np.inf < high


def _position(names, name, parameter):
    names = list(names)
    if name in names:
        return names.index(name)
    # The columns of an array have no names but positions.
    if isinstance(name, Integral) and 0 <= name < len(names):
        return int(name)
    raise ValueError(
        f"{parameter} names {name!r}, which is not a column of X. The columns are: "
        f"{', '.join(map(repr, names[:20]))}."
    )


# Generators ------------------------------------------------------------------------


def check_same_space(space, generator, inputs):
    """Refuse a generator that was fitted in another encoded space."""
    schema = getattr(generator, "schema_", None)
    if schema is None:  # an image has none
        return
    difference = schema.describe_difference(space.schema)
    if difference is None and not hasattr(unfrozen(space.encoder), "schema_"):
        # Plain numbers do not say how they were made: compare some.
        rows = some_rows(inputs)
        encoder = getattr(generator, "encoder_", None)
        own = rows if encoder is None else encoder.transform(rows)
        if not np.allclose(np.asarray(own, dtype=float), space.encode_inputs(rows)):
            difference = "The same rows become other numbers"
    if difference:
        raise EncodingMismatchError(
            f"The generator and the predictor encode rows differently. {difference}. "
            "Let fit train the generator, or fit it with "
            "encoder=FrozenEstimator(predictor.encoder_)."
        )


# Steps -----------------------------------------------------------------------------


def some_rows(X, n_rows=100):
    """Rows from all over a table, which may be sorted."""
    n_all = X.shape[0]
    return _tables.take(X, np.linspace(0, n_all - 1, min(n_rows, n_all)).astype(int))


def _line_through(scores, numbers, decimals):
    """Center and scale, if numbers are a rising line in their scores; else None."""
    there = np.isfinite(numbers)
    if not there.any() or np.ptp(numbers[there]) == 0:
        return None
    scores, numbers = scores[there], numbers[there].astype(np.float64)
    first, last = numbers.argmin(), numbers.argmax()
    if not scores[last] > scores[first]:
        return None
    scale = float(np.ptp(numbers) / (scores[last] - scores[first]))
    center = float(numbers[first] - scale * scores[first])
    # Up to rounding, which must be far from the last decimal.
    is_line = np.abs(center + scale * scores - numbers).max() < 1e-3 * 10.0**-decimals
    return (center, scale) if is_line else None


def unread_columns(transform, X, n_rows=10, n_together=50):
    """Positions of the columns of a table that make no difference to a transform.

    Parameters
    ----------
    transform : callable
        From a table to a table, row by row.

    X : {array-like, DataFrame}
        Training rows. Some of them get other values, one column at a time.

    n_rows, n_together : int
        Rows that are tried, and columns that are tried in one call.

    Returns
    -------
    unread : list of int
        Their positions. A column that holds one value only is none of them.
    """
    places = np.linspace(0, X.shape[0] - 1, min(n_rows, X.shape[0])).astype(int)
    cells, others = _tables.arrays(X), {}
    for j, values in enumerate(cells):
        codes, known = pd.factorize(values)
        if len(known) > 1:
            # Half of the values away, which for two of them is the other one.
            others[j] = known[(codes[places] + len(known) // 2) % len(known)]
    unread, tried = [], list(others)
    for start in range(0, len(tried), n_together):
        group = tried[start : start + n_together]
        rows = np.tile(places, len(group) + 1)  # the last ones stay as they are
        blocks = [
            slice(at, at + len(places)) for at in range(0, len(rows), len(places))
        ]
        changed = {j: cells[j][rows] for j in group}
        for j, block in zip(group, blocks, strict=False):
            changed[j][block] = others[j]
        made = transform(_tables.with_columns(_tables.take(X, rows), changed))
        if made.shape[0] != len(rows):  # whoever asks about rows refuses such steps
            return []
        made = [_tables.take(made, block) for block in blocks]
        unread += [
            j for j, rows in zip(group, made, strict=False) if _is_same(rows, made[-1])
        ]
    return unread


def _is_same(one, other):
    if sparse.issparse(one):
        return not (one != other).nnz
    pairs = zip(_tables.arrays(one), _tables.arrays(other), strict=True)
    return all(bool(((a == b) | (pd.isna(a) & pd.isna(b))).all()) for a, b in pairs)


def _fills_only(before, after):
    """Whether a step left alone all values that were there."""
    if np.shape(before) != np.shape(after):
        return False
    before, after = (np.asarray(rows, dtype=object).ravel() for rows in (before, after))
    there = ~pd.isna(before)
    return bool((before[there] == after[there]).all())


def _leads_back(step, after, before):
    """Whether undoing a step gives rows that it would turn into the same again."""
    try:
        undone = step.inverse_transform(after)
        if np.shape(undone) != np.shape(before):
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names, and of values out of place
            again = _tables.dense(step.transform(undone))
    except (ValueError, AttributeError, TypeError, NotImplementedError):
        return False
    pairs = zip(_tables.arrays(after), _tables.arrays(again), strict=True)
    return all(_is_close(one, other) for one, other in pairs)


def _is_close(one, other):
    if one.dtype.kind in "iufb" and other.dtype.kind in "iufb":
        return np.allclose(one, other, rtol=1e-3, atol=1e-6, equal_nan=True)
    return bool(((one == other) | (pd.isna(one) & pd.isna(other))).all())
