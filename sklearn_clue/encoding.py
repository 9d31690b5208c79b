"""The way from a user's table to the numbers a network sees, and back.

`TabularEncoder` does the travelling; the `FeatureSchema` that it learns is its map.
"""

import warnings
from numbers import Integral

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_array
from sklearn.utils.validation import has_fit_parameter

from sklearn_clue import _tables
from sklearn_clue._tables import Column
from sklearn_clue._validation import (
    MAX_MAGNITUDE,
    DocLinkMixin,
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

# Text with more different values than this, which are few rows each, names something.
MANY_CATEGORIES = 30


class TabularEncoder(DocLinkMixin, VersionedState, TransformerMixin, BaseEstimator):
    """Encode a table of numbers and categories for a network, and decode it again.

    Numbers are standardised to zero mean and unit variance; a constant column becomes
    zero. Each category gets a full block of indicators, one per known value: none is
    dropped or merged, because :meth:`inverse_transform` must find the way back.

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
    double). Floats are not clipped to any range, and come back within rounding of the
    column's spread.

    Missing values are refused: fill them first, for example with
    :class:`sklearn.impute.SimpleImputer`.

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
    """

    _parameter_constraints: dict = {
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
    }

    def __init__(self, categorical_features="from_dtype"):
        self.categorical_features = categorical_features

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
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
        return self._encode(X)

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
            The rows in the user's units. If both X and the table seen in `fit` are
            pandas DataFrames, the index of X is kept.
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
        columns = [
            Column(column.name, _decode(column, X[:, column.block]), column.dtype)
            for column in self.schema_
        ]
        return _tables.assemble(columns, self._template, index)

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
            `color_red`.
        """
        check_is_fitted(self, "schema_")
        names = _check_feature_names_in(self, input_features)
        encoded_names = []
        for name, column in zip(names, self.schema_, strict=True):
            if column.kind == "category":
                encoded_names += [f"{name}_{value}" for value in column.categories]
            else:
                encoded_names.append(name)
        return np.asarray(encoded_names, dtype=object)

    def _pack_state(self, state):
        if "_template" in state:
            state["_template"] = _tables.pack_template(state["_template"])
        return state

    def _unpack_state(self, state):
        if "_template" in state:
            state["_template"] = _tables.unpack_template(state["_template"])
        return state

    def _fit(self, X, sample_weight=None, *, allow_missing=False):
        """Fit; with `allow_missing`, learn from the values that are there."""
        X = _tables.check_rows(self, X, reset=True)
        columns = _tables.columns(X)
        kinds = self._learn_kinds(columns, is_frame=_tables.is_frame(X))
        self._goes_by_dtype = isinstance(self.categorical_features, str)
        arrays = _clean(columns, kinds, allow_missing=allow_missing)
        weight = check_weights(sample_weight, X)

        schema, start = [], 0
        for column, kind, array in zip(columns, kinds, arrays, strict=True):
            present = ~pd.isna(array) & (weight > 0)
            array = array[present]
            if len(array) == 0:
                raise ValueError(
                    f"Column {column.name!r} holds missing values only, so there is "
                    "nothing to learn from it. Drop the column."
                )
            if kind == "category":
                facts = {"categories": _learn_categories(column.name, array)}
            else:
                facts = _learn_number(
                    array, weight[present], _tables.is_integer(column)
                )
            stop = start + len(facts.get("categories", (None,)))
            schema.append(
                ColumnSchema(
                    name=column.name,
                    kind=kind,
                    span=(start, stop),
                    dtype=column.dtype,
                    **facts,
                )
            )
            start = stop

        self.schema_ = FeatureSchema(tuple(schema))
        self._template = _tables.take(X, slice(0))
        if isinstance(X, np.ndarray) and X.dtype.kind in "US" and "number" in kinds:
            self._template = self._template.astype(object)  # text is no number
        return self

    def _encode(self, X, *, allow_missing=False):
        """Encode; with `allow_missing`, an absent value is NaN wherever it lives."""
        X = _tables.check_rows(self, X, reset=False)
        columns = _tables.columns(X)
        if _tables.is_frame(X):
            self._check_kinds(columns)
        kinds = [column.kind for column in self.schema_]
        arrays = _clean(columns, kinds, allow_missing=allow_missing)

        all_float32 = all(str(column.dtype).lower() == "float32" for column in columns)
        encoded = np.zeros(
            (len(arrays[0]), self.schema_.n_encoded),
            dtype=np.float32 if all_float32 else np.float64,
        )
        unseen = []
        for column, array in zip(self.schema_, arrays, strict=True):
            block = encoded[:, column.block]
            if column.kind == "number":
                scores = _standardise(array, column)
                _check_magnitude(scores, array, column.name)
                block[:, 0] = scores
                continue
            codes = _codes(array, column.categories)
            rows = np.flatnonzero(codes >= 0)
            block[rows, codes[rows]] = 1
            if len(rows) < len(codes):
                missing = pd.isna(array)
                block[missing] = np.nan
                strange = pd.unique(array[(codes < 0) & ~missing])
                if len(strange):
                    unseen.append(
                        f"column {column.name!r} holds {listing(strange.tolist())} "
                        f"besides the known {listing(column.categories)}"
                    )
        if unseen:
            raise ValueError(
                f"X holds categories that were not seen in fit: {'; '.join(unseen)}. "
                "Replace them by known ones, fit on rows that hold them, or declare "
                "all possible values with a pandas CategoricalDtype before fit."
            )
        return encoded

    def _learn_kinds(self, columns, *, is_frame):
        """Decide for each column whether it is a number or a category."""
        choice = self.categorical_features
        if isinstance(choice, str):
            if not is_frame:
                return ["number"] * len(columns)
            kinds = [_tables.kind_of(column) for column in columns]
            _warn_of_names(columns, kinds)
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
            found = _tables.inferred(column)
            if found == "empty" or (found and known.kind == "category"):
                continue  # nothing to tell, or numbers that are categories
            kind = _tables.kind_of(column)
            if kind != known.kind:
                raise ValueError(
                    f"Column {known.name!r} was a {known.kind} in fit (dtype "
                    f"{known.dtype}), and is a {kind} now (dtype {column.dtype}). "
                    f"Convert it back with astype, or fit again."
                )


class EncoderOwner:
    """What estimators that own an encoder do with it: check, fit, encode.

    For a mixin left of `BaseEstimator`, with the parameter `encoder`: None means a
    `TabularEncoder`, `"passthrough"` that rows are encoded already.
    """

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
        encoded = X
        if self.encoder_ is not None:
            rows = _tables.named(X, getattr(self, "feature_names_in_", None))
            encoded = np.asarray(self.encoder_.transform(rows))
        with naming("X"):
            encoded = check_array(
                encoded, dtype=np.float64, estimator=self, input_name="X"
            )
        return as_float32(encoded)


def _warn_of_names(columns, kinds):
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


def _clean(columns, kinds, *, allow_missing):
    """Return plain values per column, or say which columns are missing or infinite.

    Numbers come as integer or float64 arrays, with NaN for a missing value; categories
    as object arrays or pandas categoricals.
    """
    arrays = [
        _tables.as_numbers(column)
        if kind == "number"
        else _tables.as_categories(column)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    missing = [
        f"{column.name!r} ({count} of {len(array)} rows)"
        for column, array in zip(columns, arrays, strict=True)
        if (count := int(pd.isna(array).sum()))
    ]
    if missing and not allow_missing:
        raise ValueError(
            f"Input X contains NaN: values are missing in column {', '.join(missing)}. "
            "Fill them in with an imputer before encoding, such as "
            "sklearn.impute.SimpleImputer or sklearn_clue.VAEACImputer, or drop those "
            "rows or columns."
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


def _count_infinite(values):
    return int(np.isinf(values).sum()) if values.dtype.kind == "f" else 0


def _learn_categories(name, values):
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


def _codes(values, categories):
    """Position of each value among the categories; -1 for a stranger."""
    index = _object_index(categories)
    if isinstance(values, pd.Categorical):
        # Look the few categories up rather than the many rows; the last entry serves
        # the code -1 that pandas gives to a missing value.
        table = index.get_indexer(_object_index(values.categories))
        return np.append(table, -1)[values.codes]
    return index.get_indexer(_object_index(values))


def _object_index(values):
    # Objects, so that values are compared as Python does, and tuples stay whole.
    return pd.Index(values, dtype=object, tupleize_cols=False)


def _learn_number(values, weight, is_integer):
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
    }


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


def _check_magnitude(scores, values, name):
    """Refuse numbers so far out that a network would answer with NaN."""
    is_far = np.abs(scores) > MAX_MAGNITUDE
    if is_far.any():
        raise ValueError(
            f"Column {name!r} holds {float(values[is_far][0]):.6g}, more than "
            f"{MAX_MAGNITUDE:.0e} standard deviations of the training rows away from "
            "their mean. Networks cannot compute with such a number: correct it, or "
            "leave out the row."
        )


def _standardise(values, column):
    if column.is_integer:
        # Integers beyond 2**53 are no float64; where the platform has a longer
        # float their differences survive.
        values = values.astype(np.longdouble)
    center, scale, divisor = _halved(column)
    if divisor != 1:
        values = values / divisor
    with np.errstate(over="ignore"):  # what is too large is refused after
        return (values - center) / scale


_LARGEST = np.finfo(np.float64).max


def _halved(column):
    """Centre, scale, and what they were divided by so that differences stay finite."""
    # Without a loss: powers of two, and far from the smallest numbers.
    divisor = 2.0 if abs(column.center) > 1e290 else 1.0
    return column.center / divisor, column.scale / divisor, divisor


def _decode(column, encoded):
    """Turn the encoded block of a column into its values."""
    if column.kind == "category":
        return _object_index(column.categories).to_numpy()[encoded.argmax(axis=1)]
    if not column.is_integer:
        center, scale, divisor = _halved(column)
        with np.errstate(over="ignore"):
            decoded = divisor * (encoded[:, 0].astype(np.float64) * scale + center)
        return decoded.clip(-_LARGEST, _LARGEST)
    decoded = np.rint(
        encoded[:, 0].astype(np.longdouble) * column.scale + column.center
    )
    # What the cast cannot hold lies outside the seen range, and is overwritten.
    with np.errstate(invalid="ignore"):
        values = decoded.astype(np.int64 if column.high < 2**63 else np.uint64)
    values[decoded <= column.low] = column.low
    values[decoded >= column.high] = column.high
    return values
