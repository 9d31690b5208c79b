"""The way from a user's table to the numbers a network sees, and back.

`TabularEncoder` does the travelling; the `FeatureSchema` that it learns is its map.
"""

from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_array
from sklearn.utils.validation import has_fit_parameter

from sklearn_clue import _columns, _dtypes, _tables
from sklearn_clue._columns import Strangers
from sklearn_clue._tables import Column
from sklearn_clue._validation import (
    MAX_MAGNITUDE,
    DocLinkMixin,
    Interval,
    StrOptions,
    _check_feature_names_in,
    check_is_fitted,
    check_weights,
    fit_context,
    listing,
    naming,
)
from sklearn_clue.persistence import VersionedState
from sklearn_clue.schema import ColumnSchema, FeatureSchema

__all__ = ["TabularEncoder"]


class TabularEncoder(DocLinkMixin, VersionedState, TransformerMixin, BaseEstimator):
    """Encode a table of numbers and categories for a network, and decode it again.

    Numbers are standardised to zero mean and unit variance; a constant column becomes
    zero. Each category gets a full block of indicators, one per known value: none is
    dropped, because :meth:`inverse_transform` must find the way back. Columns with
    missing values get an indicator of that in addition.

    Parameters
    ----------
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns are categories. All others are numbers.

        - `"from_dtype"`: the columns of a DataFrame that hold strings, booleans or a
          categorical dtype, or objects that are not all numbers. A bare array holds
          numbers only.
        - boolean array-like of shape (n_features,): a mask of the categories.
        - array-like of int or of str: positions or names of the categories.
        - None: no column is a category.

    missing : {"indicate", "refuse"}, default="indicate"
        What to do about missing values: NaN, None, NaT or `pandas.NA`. With
        `"indicate"`, a missing number is encoded as the mean of its column, and an
        indicator in the same block says that it is missing; a missing category is a
        category of its own. Columns without missing values in `fit` have no such
        indicator. `"refuse"` raises an error.

    handle_unknown : {"warn", "error"}, default="warn"
        What to do about categories that were not seen in `fit`, and about missing
        values in columns that had none. With `"warn"` they say nothing: a category is
        encoded as zeros, a number as the mean of its column, and one warning names
        the columns and values. `"error"` raises an error.

    min_frequency : "auto", int, float or None, default="auto"
        How many rows a category must have for an indicator of its own. Rarer ones of
        the same column share one. A whole number counts rows, or adds up their
        weights; a fraction is a share of those where the column is not missing.
        `"auto"` means 0.005 in columns with more than 30 values, and else None, which
        pools nothing.

    Attributes
    ----------
    schema_ : FeatureSchema
        What each column is, and where it lives when encoded.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    sklearn.preprocessing.OneHotEncoder : Encodes categories only.
    sklearn.preprocessing.StandardScaler : Encodes numbers only.
    sklearn.compose.ColumnTransformer : Joins other encoders; cannot decode.

    Notes
    -----
    The known values of a category are those seen in `fit`, sorted. Where the dtype
    declares its values (a pandas categorical, a polars enum, a boolean) they are the
    declared ones in the declared order, whether seen or not, so the encoded width
    does not depend on which rows a cross-validation fold happens to hold. Call
    `Series.cat.remove_unused_categories` first if only the seen ones are wanted.

    Decoding restores integers by rounding, inside the range seen in `fit`. They come
    back exactly as long as they lie within 2**52 of the mean if encoded in float64, or
    2**23 in float32 (a little less where `numpy.longdouble` is no longer than a
    double). Floats are not clipped to any range. They are rounded to as many decimals
    as the column had in `fit`, if these were six or fewer, and else come back within
    rounding of the column's spread. A pooled category comes back as the most frequent
    one that shares its indicator; explanations give back what a row held.

    Dates are refused. Which parts of a date matter is the user's to say::

        X["month"] = X["date"].dt.month  # or year, day_of_week, hour
        X = X.drop(columns="date")

    A duration is a number, counted in the largest unit (days, hours, down to
    nanoseconds) that all training values are multiples of. It comes back as a duration
    in such units.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_clue import TabularEncoder
    >>> X = pd.DataFrame({"age": [20, 30, 40], "color": ["red", "blue", "red"]})
    >>> encoder = TabularEncoder().fit(X)
    >>> encoder.get_feature_names_out()
    array(['age', 'color_blue', 'color_red'], dtype=object)
    >>> encoder.transform(X).round(2)
    array([[-1.22,  0.  ,  1.  ],
           [ 0.  ,  1.  ,  0.  ],
           [ 1.22,  0.  ,  1.  ]])

    A network answers in between; the way back gives a valid row all the same.

    >>> encoder.inverse_transform([[0.31, 0.4, 0.6]])
       age color
    0   33   red

    What is missing is told apart from the mean.

    >>> gaps = pd.DataFrame({"age": [20.0, None, 40.0]})
    >>> TabularEncoder().fit_transform(gaps)
    array([[-1.,  0.],
           [ 0.,  1.],
           [ 1.,  0.]])
    """

    _parameter_constraints: dict = {
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "missing": [StrOptions({"indicate", "refuse"})],
        "handle_unknown": [StrOptions({"warn", "error"})],
        "min_frequency": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
    }

    def __init__(
        self,
        categorical_features="from_dtype",
        *,
        missing="indicate",
        handle_unknown="warn",
        min_frequency="auto",
    ):
        self.categorical_features = categorical_features
        self.missing = missing
        self.handle_unknown = handle_unknown
        self.min_frequency = min_frequency

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "indicate"
        # `input_tags.categorical` stays False, as in HistGradientBoosting: a bare array
        # holds numbers, and the tag would make the common checks round theirs.
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Learn the columns of X: their kind, scale or categories.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            The table to learn.

        y : None
            Ignored.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: a weight of 2 equals the row twice, and one of 0 no
            row.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        return self._fit(X, sample_weight)

    def transform(self, X):
        """Encode X.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            The table to encode.

        Returns
        -------
        X_encoded : ndarray of shape (n_samples, `schema_.n_encoded`)
            Standard scores and indicators; float32 if all of X is, else float64.
        """
        check_is_fitted(self, "schema_")
        strangers = Strangers()
        X = _tables.check_rows(self, X, reset=False)
        encoded = self._encode(X, strangers)
        strangers.tell()
        return encoded

    def inverse_transform(self, X):
        """Decode X to the container, columns and dtypes seen in `fit`.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, `schema_.n_encoded`)
            Encoded rows. The indicators of a category need not be zeros and ones: the
            largest wins.

        Returns
        -------
        X_original : {ndarray, DataFrame} of shape (n_samples, n_features)
            The rows in the user's units; whole numbers lie in the range seen in `fit`.
            If both X and the table seen in `fit` are pandas DataFrames, the index of X
            is kept.
        """
        check_is_fitted(self, "schema_")
        index = _tables.index_of(X)
        X = check_array(
            X, dtype=(np.float64, np.float32), ensure_min_samples=0, input_name="X"
        )
        if X.shape[1] != self.schema_.n_encoded:
            raise ValueError(
                f"X has {X.shape[1]} columns, but the encoded space of this "
                f"{type(self).__name__} has {self.schema_.n_encoded}. Pass rows as "
                "transform returns them."
            )
        return self._decode(X, index)

    def get_feature_names_out(self, input_features=None):
        """Get the names of the encoded positions.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns; only needed to check them against those seen in
            `fit`, or to name the columns of a bare array.

        Returns
        -------
        feature_names_out : ndarray of str
            A number keeps its name; a category `color` of value `red` gives
            `color_red`. The indicators of pooled and of missing values are called
            `color_infrequent` and `color_missing`.
        """
        check_is_fitted(self, "schema_")
        names = _check_feature_names_in(self, input_features)
        encoded_names = []
        for name, column in zip(names, self.schema_, strict=True):
            if column.kind == "category":
                encoded_names += [f"{name}_{value}" for value in column.categories]
            else:
                encoded_names.append(name)
            encoded_names += [f"{name}_infrequent"] if column.pooled else []
            encoded_names += [f"{name}_missing"] if column.has_gap else []
        return np.asarray(encoded_names, dtype=object)

    def _pack_state(self, state):
        if "_template" in state:
            state["_template"] = _dtypes.pack_template(state["_template"])
        return state

    def _unpack_state(self, state):
        if "_template" in state:
            state["_template"] = _dtypes.unpack_template(state["_template"])
        # Files from before there was a choice.
        first = {"missing": "refuse", "handle_unknown": "error", "min_frequency": None}
        return {**first, **state}

    def _fit(self, X, sample_weight=None, *, ignore_gaps=False, give_hints=True):
        """Fit; with `ignore_gaps`, missing values leave no trace."""
        X = _tables.check_rows(self, X, reset=True)
        columns, is_frame = _tables.columns(X), _tables.is_frame(X)
        kinds = self._learn_kinds(columns, is_frame=is_frame)
        units = [
            _tables.unit_of(column) if kind == "number" else None
            for column, kind in zip(columns, kinds, strict=True)
        ]
        arrays = self._read(columns, kinds, units, ignore_gaps=ignore_gaps)
        self._goes_by_dtype = isinstance(self.categorical_features, str)
        weight = check_weights(sample_weight, X)

        schema, start = [], 0
        for column, kind, unit, array in zip(
            columns, kinds, units, arrays, strict=True
        ):
            is_gap = np.asarray(pd.isna(array))
            present = ~is_gap & (weight > 0)
            array, its_weight = array[present], weight[present]
            has_gap = not ignore_gaps and bool((is_gap & (weight > 0)).any())
            if not (len(array) or has_gap):
                raise ValueError(
                    f"Column {column.name!r} holds missing values only, so there is "
                    "nothing to learn from it. Drop the column."
                )
            if kind == "category":
                facts = _columns.learn_category(
                    column.name, array, its_weight, self.min_frequency
                )
                n_positions = len(facts["categories"]) + bool(facts.get("pooled"))
            else:
                is_integer = _tables.is_integer(column)
                facts = _columns.learn_number(
                    array, its_weight, is_integer, _is_float32(column)
                )
                n_positions = 1
            stop = start + n_positions + has_gap
            schema.append(
                ColumnSchema(
                    name=column.name,
                    kind=kind,
                    span=(start, stop),
                    dtype=column.dtype,
                    has_gap=has_gap,
                    unit=unit,
                    **facts,
                )
            )
            start = stop

        self.schema_ = FeatureSchema(tuple(schema))
        self._template = _tables.take(X, slice(0))
        if isinstance(X, np.ndarray) and X.dtype.kind in "US" and "number" in kinds:
            self._template = self._template.astype(object)  # text is no number
        if is_frame and give_hints and len(weight) >= _columns.MIN_HINT_ROWS:
            _columns.give_hints(self.schema_, arrays)
        return self

    def _encode(self, X, strangers, *, hide_gaps=False):
        """Encode, and note down what was not seen in `fit`.

        With `hide_gaps`, what is missing or unknown is NaN in the whole block. Whoever
        owns the encoder has checked the rows.
        """
        if tuple(_tables.names(X)) != tuple(self.schema_.names):
            X = _tables.check_rows(self, X, reset=False)  # which says what is wrong
        columns = _tables.columns(X)
        if _tables.is_frame(X):
            self._check_kinds(columns)
        kinds = [column.kind for column in self.schema_]
        units = [column.unit for column in self.schema_]
        arrays = self._read(columns, kinds, units, ignore_gaps=hide_gaps)
        encoded = np.zeros(
            (len(arrays[0]), self.schema_.n_encoded),
            dtype=np.float32 if all(map(_is_float32, columns)) else np.float64,
        )
        for column, array in zip(self.schema_, arrays, strict=True):
            is_gap, is_strange = _columns.encode(
                column, array, encoded[:, column.block], hide_gaps=hide_gaps
            )
            if is_strange.any():
                strangers.add_values(column, pd.unique(array[is_strange]))
            if is_gap.any() and not (column.has_gap or hide_gaps):
                strangers.add_gaps(column)
        if self.handle_unknown == "error":
            strangers.refuse()
        return encoded

    def _decode(self, x, index=None, *, is_bounded=True):
        """Decode; with `is_bounded`, whole numbers stay in the range seen in `fit`."""
        columns = []
        for column in self.schema_:
            numbers = _columns.decode(column, x[:, column.block], is_bounded=is_bounded)
            cells = column.cells_of(numbers)
            columns.append(Column(column.name, cells, column.dtype))
        return _tables.assemble(columns, self._template, index)

    def _read(self, columns, kinds, units, *, ignore_gaps):
        """Plain values per column; an error names columns that may not be as they are.

        Numbers come as integer or float64 arrays, with NaN for a missing value;
        categories as object arrays or pandas categoricals.
        """
        arrays = [
            _tables.as_numbers(column, unit)
            if kind == "number"
            else _tables.as_categories(column)
            for column, kind, unit in zip(columns, kinds, units, strict=True)
        ]
        missing = [
            f"{column.name!r} ({count} of {len(array)} rows)"
            for column, array in zip(columns, arrays, strict=True)
            if (count := int(pd.isna(array).sum()))
        ]
        if missing and self.missing == "refuse" and not ignore_gaps:
            raise ValueError(
                "Input X contains NaN: values are missing in column "
                f"{', '.join(missing)}. Fill them in with an imputer before encoding, "
                "such as sklearn.impute.SimpleImputer or sklearn_clue.VAEACImputer, "
                "drop those rows or columns, or set missing='indicate'."
            )
        infinite = [
            f"{column.name!r} ({count} of {len(array)} rows)"
            for column, array in zip(columns, arrays, strict=True)
            if (count := _count_infinite(array) or _count_infinite(column.values))
        ]
        if infinite:
            raise ValueError(
                f"Input X contains infinity in column {', '.join(infinite)}. Replace "
                "infinite values by finite ones, or drop those rows."
            )
        return arrays

    def _learn_kinds(self, columns, *, is_frame):
        """Decide for each column whether it is a number or a category."""
        choice = self.categorical_features
        if isinstance(choice, str):
            if not is_frame:
                return ["number"] * len(columns)
            kinds = [_tables.kind_of(column) for column in columns]
            _columns.warn_of_names(columns, kinds)
            return kinds
        chosen = _chosen_positions(
            choice, [column.name for column in columns], is_frame
        )
        return [
            "category" if position in chosen else "number"
            for position in range(len(columns))
        ]

    def _check_kinds(self, columns):
        """Refuse a DataFrame whose columns changed their kind since `fit`."""
        by_dtype = isinstance(self.categorical_features, str)
        if not getattr(self, "_goes_by_dtype", by_dtype):  # older files do not say
            return  # the user decided about the kinds, not the dtypes
        for column, known in zip(columns, self.schema_, strict=True):
            if (_tables.inferred(column) and known.kind == "category") or np.all(
                pd.isna(column.values)
            ):
                continue  # numbers that are categories, or nothing to tell
            kind = _tables.kind_of(column)
            if kind != known.kind:
                raise ValueError(
                    f"Column {known.name!r} was a {known.kind} in fit (dtype "
                    f"{known.dtype}), and is a {kind} now (dtype {column.dtype}). "
                    f"Convert it back with astype, or fit again."
                )


def encode_quietly(encoder, X, strangers):
    """Encode by any transformer; one of ours notes strangers down, and warns not."""
    if isinstance(unfrozen(encoder), TabularEncoder):
        return unfrozen(encoder)._encode(X, strangers)
    return np.asarray(encoder.transform(X))


def decode_freely(encoder, x):
    """Decode by any transformer; one of ours lets numbers leave the range of `fit`."""
    if isinstance(unfrozen(encoder), TabularEncoder):
        return unfrozen(encoder)._decode(x, is_bounded=False)
    return encoder.inverse_transform(x)


def unfrozen(encoder):
    """What a FrozenEstimator holds, or the encoder itself."""
    return getattr(encoder, "estimator", encoder)


class EncoderOwner:
    """What estimators that own an encoder do with it: check, fit, encode.

    For a mixin left of `BaseEstimator`, with the parameter `encoder`: None means a
    `TabularEncoder`, `"passthrough"` that rows are encoded already.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        encoder = TabularEncoder() if self.encoder is None else unfrozen(self.encoder)
        tags.input_tags.allow_nan = (
            isinstance(encoder, TabularEncoder) and encoder.missing == "indicate"
        )
        return tags

    def _check_rows(self, X, *, reset):
        """Check the shape and names of the user's rows; the encoder checks the rest."""
        return _tables.check_rows(self, X, reset=reset)

    def _fit_encoder(self, X, weight):
        if isinstance(self.encoder, str):  # "passthrough"
            self.encoder_ = None
            return
        self.encoder_ = (
            TabularEncoder() if self.encoder is None else clone(self.encoder)
        )
        # FrozenEstimator wants y by name, whatever it wraps.
        if has_fit_parameter(self.encoder_, "sample_weight"):
            self.encoder_.fit(X, None, sample_weight=weight)
        else:
            self.encoder_.fit(X, None)

    def _encode(self, X):
        """Turn the user's rows into what the networks see, as float32."""
        (encoded,) = self._encode_tables([X])
        return encoded

    def _encode_tables(self, tables):
        """Encode one table after the other, with one warning for all of them."""
        strangers = Strangers()
        for X in tables:
            yield self._encode_table(X, strangers)
        strangers.tell()

    def _encode_table(self, X, strangers):
        encoded = X
        if self.encoder_ is not None:
            rows = _tables.named(X, getattr(self, "feature_names_in_", None))
            encoded = encode_quietly(self.encoder_, rows, strangers)
        with naming("X"):
            encoded = check_array(
                encoded, dtype=np.float64, estimator=self, input_name="X"
            )
        return as_float32(encoded)


def _chosen_positions(choice, names, is_frame):
    """Turn `categorical_features` given as mask, positions or names into positions."""
    if choice is None:
        return set()
    choice = np.asarray(choice, dtype=object).ravel().tolist()
    if all(isinstance(entry, bool | np.bool_) for entry in choice):
        if choice and len(choice) != len(names):
            raise ValueError(
                f"categorical_features is a mask of {len(choice)} entries, but X has "
                f"{len(names)} features. Give one entry per feature."
            )
        return {position for position, chosen in enumerate(choice) if chosen}
    if all(isinstance(entry, str) for entry in choice):
        if not is_frame:
            raise ValueError(
                "categorical_features holds names, but X is not a DataFrame, so its "
                "columns have none. Give positions, or pass a DataFrame."
            )
        unknown = [entry for entry in choice if entry not in names]
        if unknown:
            raise ValueError(
                f"categorical_features names {listing(unknown)}, which X does not "
                f"have. Its columns are: {listing(names)}."
            )
        return {names.index(entry) for entry in choice}
    if all(
        isinstance(entry, Integral) and not isinstance(entry, bool) for entry in choice
    ):
        outside = [entry for entry in choice if not 0 <= entry < len(names)]
        if outside:
            raise ValueError(
                f"categorical_features holds the position {listing(outside)}, but X "
                f"has {len(names)} features. Positions run from 0 to "
                f"{len(names) - 1}."
            )
        return set(choice)
    raise ValueError(
        "categorical_features must be a boolean mask, or hold only positions or only "
        f"names, got {listing(choice)}."
    )


def _count_infinite(values):
    return int(np.isinf(values).sum()) if values.dtype.kind == "f" else 0


def _is_float32(column):
    return str(column.dtype).lower() == "float32"


def as_float32(encoded):
    """Give encoded rows the precision of networks, if it can hold them."""
    is_far = np.abs(encoded) > MAX_MAGNITUDE
    if is_far.any():
        row, position = np.argwhere(is_far)[0]
        raise ValueError(
            f"Encoded column {position} holds {encoded[row, position]:.6g}. Networks "
            f"cannot compute with numbers beyond {MAX_MAGNITUDE:.0e}: scale the "
            "columns first, as TabularEncoder does."
        )
    return encoded.astype(np.float32)
