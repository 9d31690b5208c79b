"""The one encoded space of an explainer, and the ways between it and the user's rows.

A row travels from the user's table through the steps of a pipeline that come before
the predictor, and through an encoder, to the encoded space where explainers work; and
back. Whoever changes rows in that space asks here what a valid row is.
"""

import copy
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_clue._validation import _safe_indexing, is_pandas_df, is_polars_df
from sklearn_clue.encoding import ColumnSchema, FeatureSchema, TabularEncoder
from sklearn_clue.exceptions import EncodingMismatchError
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import names_after


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
        return X.astype(self.dtype_)


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
        Bounds by column: a pair of numbers, `"increase"` or `"decrease"`.
    """

    def __init__(self, steps, encoder, X, immutable_features, feature_ranges):
        self.steps = steps
        self.encoder = encoder
        inputs = self.to_inputs(X)
        self._has_names = hasattr(inputs, "columns")
        self._is_undone = self._find_inverses(X)
        self.is_invertible = self._is_undone is not None
        self.schema = self._schema_of_inputs(inputs)
        self.display_schema = self._schema_of_display(X)
        self.is_columnwise = self._works_by_column(X)
        self._read_constraints(immutable_features, feature_ranges)

    # From the user's rows to encoded space ----------------------------------------

    def to_inputs(self, X):
        """Take the user's rows to the input of the predictor."""
        for step in self.steps:
            X = step.transform(X)
        return X

    def encode(self, X):
        """Take the user's rows to encoded space, as float64."""
        return self._encode_inputs(self.to_inputs(X))

    def encode_display(self, X):
        """Take rows as explanations show them to encoded space."""
        if self.is_invertible:
            return self.encode(X)
        return self._encode_inputs(X if self._has_names else np.asarray(X))

    def display(self, X):
        """The user's rows as explanations show them: raw if there is a way back."""
        if self.is_invertible:
            return X
        inputs = self.to_inputs(X)
        if self._has_names or not is_pandas_df(X):
            return inputs
        # The steps gave up the frame, but know the names of what they made.
        names = names_after(self.steps, list(X.columns))
        return pd.DataFrame(inputs, index=X.index, columns=names)

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

    def _encode_inputs(self, inputs):
        if self.encoder is not None:
            inputs = self.encoder.transform(inputs)
        return np.asarray(inputs, dtype=np.float64)

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
        rows = x if self.encoder is None else self.encoder.inverse_transform(x)
        if self.is_invertible:
            for step, is_undone in zip(
                reversed(self.steps), reversed(self._is_undone), strict=True
            ):
                rows = step.inverse_transform(rows) if is_undone else rows
        rows = _in_container_of(rows, X)
        return self._respect_limits(self._copy_unchanged(rows, X, x == x0), X)

    def _copy_unchanged(self, rows, X, is_same):
        """Copy cells that did not move in encoded space, to the last bit."""
        if not self.is_columnwise:
            return rows
        kept = np.stack([is_same[:, column.block].all(1) for column in self.schema], 1)
        if isinstance(rows, np.ndarray):
            return np.where(kept, X, rows)
        for position in np.flatnonzero(kept.any(0)).tolist():
            own, new = _column(X, position), _column(rows, position)
            cells = np.where(kept[:, position], own, new)
            rows = _with_column(rows, position, cells)
        return rows

    def _works_by_column(self, X):
        """Whether each column of the table has its own stretch of encoded space."""
        if len(self.schema) != len(self.display_schema):
            return False
        if not self.steps or not self.is_invertible:
            return True
        # Steps may mix columns: give a column the values of other rows, and see what
        # moves.
        X = _safe_indexing(X, np.arange(min(_n_rows(X), 100)))
        x = self.encode(X)
        for position, column in enumerate(self.schema):
            others = np.roll(_column(X, position), 1)
            is_same = x == self.encode(_with_column(X, position, others))
            is_same[:, column.block] = True
            if not is_same.all():
                return False
        return True

    def _find_inverses(self, X):
        """Which steps to undo on the way back, or None if a step has no inverse."""
        # What the user will get back must be a row of the same table, so each step is
        # asked to undo what it did to some of them. Lossy steps count: explanations
        # are scored again as the user gets them.
        X = _safe_indexing(X, np.arange(min(_n_rows(X), 100)))
        is_undone = []
        for step in self.steps:
            after = step.transform(X)
            inverse = getattr(step, "inverse_transform", None)
            # An imputer's output is in the units of its input, whether or not it
            # claims to have an inverse.
            is_undone.append(not _fills_only(X, after))
            if is_undone[-1] and (inverse is None or not _works(inverse, after, X)):
                return None
            X = after
        return is_undone

    def _schema_of_inputs(self, inputs):
        schema = getattr(_unfrozen(self.encoder), "schema_", None)
        if schema is not None:
            return schema
        n_encoded = np.shape(self._encode_inputs(_safe_indexing(inputs, [0])))[1]
        names = list(inputs.columns) if hasattr(inputs, "columns") else None
        if names is None or len(names) != n_encoded:
            names = range(n_encoded)
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

    def _schema_of_display(self, X):
        if isinstance(_unfrozen(self.encoder), PixelScaler):
            return self.schema
        if not self.steps and any(c.percentiles is not None for c in self.schema):
            return self.schema
        # Some columns may hold missing values, which a step fills in.
        return TabularEncoder()._fit(self.display(X), allow_missing=True).schema_

    # Constraints ------------------------------------------------------------------

    def _read_constraints(self, immutable_features, feature_ranges):
        """Turn names into positions, after a look at what they allow."""
        names = self.display_schema.names
        self._immutable, self._ranges = read_constraints(
            names, immutable_features, feature_ranges
        )
        for position in self._ranges:
            if self.display_schema.columns[position].kind != "number":
                raise ValueError(_no_range(names[position]))
        n_inputs, n_columns = len(self.schema), len(names)
        if (self._immutable or self._ranges) and n_inputs != n_columns:
            raise ValueError(
                f"The steps before the predictor turn {n_columns} columns into "
                f"{n_inputs}, so constraints on single columns cannot be kept while "
                "searching. Leave out immutable_features and feature_ranges, or the "
                "steps that mix columns."
            )
        if (self._immutable or self._ranges) and not self.is_columnwise:
            raise ValueError(
                "The steps before the predictor mix columns, so constraints on single "
                "columns cannot be kept while searching. Leave out immutable_features "
                "and feature_ranges, or the steps that mix columns."
            )

    def constrained(self, immutable_features, feature_ranges):
        """The same space under other constraints."""
        space = copy.copy(self)
        space._read_constraints(immutable_features, feature_ranges)
        return space

    def limits(self, X, x0):
        """Bounds of encoded rows, from the constraints and the rows they start from.

        Parameters
        ----------
        X : {ndarray, DataFrame}
            Rows as `display` gives them.

        x0 : ndarray of shape (n_rows, n_encoded)
            The same rows, encoded.

        Returns
        -------
        limits : Limits or None
            None if there are no constraints.
        """
        if not self._immutable and not self._ranges:
            return None
        low, high = np.full_like(x0, -np.inf), np.full_like(x0, np.inf)
        for position in self._ranges:
            block = self.schema.columns[position].block
            sides = (low, high) if self._is_rising(position, X) else (high, low)
            for side, bound in zip(sides, self._range(position, X), strict=True):
                if bound is not None:
                    moved = self.encode_display(_with_column(X, position, bound))
                    side[:, block] = moved[:, block]
        for position in self._immutable:
            block = self.schema.columns[position].block
            low[:, block] = high[:, block] = x0[:, block]
        return Limits(low, high)

    def _range(self, position, X):
        """Lowest and highest value of a column per row; None is no bound."""
        allowed = self._ranges[position]
        own = _column(X, position)
        if isinstance(allowed, str):
            return (own, None) if allowed == "increase" else (None, own)
        low, high = allowed
        if self.display_schema.columns[position].is_integer:
            low, high = np.ceil(low), np.floor(high)
        return np.full(len(own), low), np.full(len(own), high)

    def _is_rising(self, position, X):
        """Whether a larger value of a column is larger in encoded space, too."""
        column = self.display_schema.columns[position]
        X = _safe_indexing(X, [0])
        block = self.schema.columns[position].block
        first, last = (
            self.encode_display(_with_column(X, position, np.array([value])))[:, block]
            for value in (column.low, column.high)
        )
        return bool((last >= first).all())

    def _respect_limits(self, rows, X):
        """Make constraints hold to the last bit in the user's units."""
        for position in self._ranges:
            values = _column(rows, position)
            low, high = self._range(position, X)
            # Of a missing bound and a value, fmax and fmin take the value.
            values = values if low is None else np.fmax(values, low)
            values = values if high is None else np.fmin(values, high)
            rows = _with_column(rows, position, values)
        for position in self._immutable:
            rows = _with_column(rows, position, _column(X, position))
        return rows


def check_constraints(X, immutable_features, feature_ranges):
    """Check constraints as far as the user's rows alone can tell."""
    names = list(getattr(X, "columns", [f"x{i}" for i in range(X.shape[1])]))
    _, ranges = read_constraints(names, immutable_features, feature_ranges)
    for position in ranges:
        if _is_text(X, position):
            raise ValueError(_no_range(names[position]))


def _no_range(name):
    return (
        f"feature_ranges holds {name!r}, which is a category. Ranges are for numbers; "
        "list it in immutable_features to keep its value."
    )


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
        if isinstance(allowed, str):
            is_valid = allowed in ("increase", "decrease")
        else:
            is_valid = (
                np.shape(allowed) == (2,)
                and all(isinstance(bound, Real) for bound in allowed)
                and allowed[0] <= allowed[1]
            )
        if not is_valid:
            raise ValueError(
                f"feature_ranges[{name!r}] must be a pair (low, high) of numbers, the "
                f"lower one first, 'increase' or 'decrease', got {allowed!r}."
            )
        ranges[_position(names, name, "feature_ranges")] = allowed
    return immutable, ranges


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


def check_same_space(space, generator):
    """Refuse a generator that was fitted in another encoded space."""
    schema = getattr(generator, "schema_", None)
    if schema is None:  # an image has none
        return
    difference = schema.describe_difference(space.schema)
    if difference:
        raise EncodingMismatchError(
            f"The generator and the predictor encode rows differently. {difference}. "
            "Let fit train the generator, or fit it with "
            "encoder=FrozenEstimator(predictor.encoder_)."
        )


# Containers ------------------------------------------------------------------------


def _unfrozen(estimator):
    return getattr(estimator, "estimator", estimator)


def _n_rows(X):
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _fills_only(before, after):
    """Whether a step left alone all values that were there."""
    if np.shape(before) != np.shape(after):
        return False
    before, after = (np.asarray(rows, dtype=object).ravel() for rows in (before, after))
    there = ~pd.isna(before)
    return bool((before[there] == after[there]).all())


def _works(inverse, after, before):
    try:
        return np.shape(inverse(after)) == np.shape(before)
    except (ValueError, AttributeError, TypeError, NotImplementedError):
        return False


def _in_container_of(rows, X):
    """Give rows the container, columns, index and dtypes of X."""
    if is_pandas_df(X):
        values = rows if is_pandas_df(rows) else pd.DataFrame(np.asarray(rows))
        columns = {}
        for position, (_, like) in enumerate(X.items()):
            series = values.iloc[:, position]
            if pd.api.types.is_integer_dtype(like.dtype) and (
                not pd.api.types.is_integer_dtype(series.dtype)
            ):
                series = np.rint(series.astype(np.float64))
            columns[position] = series.astype(like.dtype).array
        frame = pd.DataFrame(columns, index=X.index)
        frame.columns = X.columns
        return frame
    if is_polars_df(X):
        if is_polars_df(rows):
            return rows.cast(dict(X.schema))
        frame = type(X)(np.asarray(rows), schema=X.columns)
        return frame.cast(dict(X.schema))
    rows = np.asarray(rows)
    if X.dtype.kind in "iu" and rows.dtype.kind == "f":
        rows = np.rint(rows)
    return rows.astype(X.dtype)


def _is_text(X, position):
    """Whether the dtype of a column is none of a number."""
    if is_polars_df(X):
        return not X.dtypes[position].is_numeric()
    if is_pandas_df(X):
        dtype = X.iloc[:, position].infer_objects().dtype
        is_bool = pd.api.types.is_bool_dtype(dtype)
        return is_bool or not pd.api.types.is_numeric_dtype(dtype)
    return False


def _column(X, position):
    if is_pandas_df(X):
        return X.iloc[:, position].to_numpy()
    if is_polars_df(X):
        return X[:, position].to_numpy()
    return X[:, position]


def _with_column(X, position, values):
    """A copy of X with other values in one column, in its dtype."""
    if is_pandas_df(X):
        dtype = X.dtypes.iloc[position]
        X = X.copy()
        X.isetitem(position, pd.Series(values, index=X.index).astype(dtype))
        return X
    if is_polars_df(X):
        import polars as pl

        name = X.columns[position]
        # Of objects, polars reads a list only.
        values = values.tolist() if values.dtype == object else values
        return X.with_columns(pl.Series(name, values).cast(X.schema[name]))
    X = X.copy()
    X[:, position] = values
    return X
