import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_clue import TabularEncoder
from sklearn_clue._columns import Strangers
from sklearn_clue.encoding import as_float32
from sklearn_clue.schema import FeatureSchema


def _round_trip(X, **params):
    encoder = TabularEncoder(**params).fit(X)
    return encoder.inverse_transform(encoder.transform(X))


# What the encoding is


def test_numbers_like_standard_scaler_categories_like_one_hot(mixed_frame):
    encoded = TabularEncoder().fit_transform(mixed_frame)
    numbers = StandardScaler().fit_transform(mixed_frame[["age", "weight"]])
    colors = OneHotEncoder(sparse_output=False).fit_transform(mixed_frame[["color"]])
    assert encoded.dtype == np.float64
    assert_allclose(encoded[:, [0, 4]], numbers)
    assert_array_equal(encoded[:, 1:4], colors)


def test_names_of_the_encoded_positions(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    names = encoder.get_feature_names_out().tolist()
    assert names == (
        ["age", "color_blue", "color_green", "color_red", "weight"]
        + ["member_False", "member_True", "grade_low", "grade_middle", "grade_high"]
    )
    with pytest.raises(ValueError, match="input_features"):
        encoder.get_feature_names_out(["a", "b", "c", "d", "e"])


def test_names_without_names():
    encoder = TabularEncoder([1]).fit([[0.5, 3.0], [0.2, 4.0]])
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1_3.0", "x1_4.0"]
    assert encoder.get_feature_names_out(["a", "b"]).tolist() == ["a", "b_3.0", "b_4.0"]


@pytest.mark.parametrize(
    "column, n_encoded",
    [
        (pd.Series(["a", "b", "a"], dtype=object), 2),
        (pd.Series(["a", "b", "a"], dtype="string"), 2),
        (pd.Series(["a", "b", "a"]), 2),
        (pd.Series([1, 2, 1], dtype="category"), 2),
        (pd.Series([True, False, True]), 2),
        (pd.Series([True, False, True], dtype="boolean"), 2),
        (pd.Series([1, 2, 1]), 1),
        (pd.Series([1, 2, 1], dtype="uint8"), 1),
        (pd.Series([1, 2, 1], dtype="Int64"), 1),
        (pd.Series([1.5, 2, 1]), 1),
        (pd.Series([1.5, 2, 1], dtype="float16"), 1),
        (pd.Series([1.5, 2, 1], dtype="Float32"), 1),
        (pd.Series([1.5, 0, 0], dtype="Sparse[float64]"), 1),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_dtypes_decide_and_come_back(column, n_encoded):
    X = pd.DataFrame({"column": column, "other": [0.5, 0.25, 1.0]})
    encoder = TabularEncoder().fit(X)
    assert encoder.schema_.n_encoded == n_encoded + 1
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])),
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"], utc=True)),
        pd.Series([1 + 2j, 3j]),
    ],
    ids=lambda column: str(column.dtype),
)
@pytest.mark.parametrize("categorical_features", ["from_dtype", None])
def test_other_dtypes_are_refused_by_name(column, categorical_features):
    X = pd.DataFrame({"ok": [1, 2], "when": column})
    with pytest.raises(TypeError, match=r"Column 'when' has dtype .*Convert it"):
        TabularEncoder(categorical_features).fit(X)


def test_values_that_make_no_category():
    mixed = pd.DataFrame({"code": pd.Series([1, "a"], dtype=object)})
    with pytest.raises(TypeError, match=r"Column 'code' .* mix the types int, str"):
        TabularEncoder().fit(mixed)
    lists = pd.DataFrame({"tags": [["a"], ["b"]]})
    with pytest.raises(
        TypeError, match=r"Column 'tags' cannot be read .*astype\(str\)"
    ):
        TabularEncoder().fit(lists)


@pytest.mark.parametrize(
    "values", [[1, 2, 7], [1.5, 2.0, 7.0], [1, 2.5, 7]], ids=lambda values: str(values)
)
def test_objects_that_are_numbers_are_numbers(values):
    X = pd.DataFrame({"a": pd.Series(values, dtype=object), "b": ["x", "y", "x"]})
    encoder = TabularEncoder().fit(X)
    assert [column.kind for column in encoder.schema_] == ["number", "category"]
    decoded = encoder.inverse_transform(encoder.transform(X))
    assert decoded["a"].dtype == object
    assert decoded["a"].tolist() == pytest.approx(values)
    assert encoder.schema_.column("a").is_integer == (values == [1, 2, 7])


def test_an_imputer_of_a_mixed_frame_leaves_numbers_numbers():
    X = pd.DataFrame({"age": [20, 30, np.nan, 40], "color": ["red", "blue"] * 2})
    fill = SimpleImputer(strategy="most_frequent").set_output(transform="pandas")
    schema = TabularEncoder().fit(fill.fit_transform(X)).schema_
    assert [column.kind for column in schema] == ["number", "category"]


def test_warns_of_text_that_differs_in_most_rows():
    X = pd.DataFrame({"size": ["s", "l"] * 20, "day": [f"day {i}" for i in range(40)]})
    with pytest.warns(UserWarning, match=r"'day' .* 40 different values in 40 rows"):
        TabularEncoder().fit(X)
    # Few rows, a few values for most of them, and what was asked for.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TabularEncoder().fit(X[:20])
        TabularEncoder().fit(pd.concat([X, X, X]))
        TabularEncoder(["size", "day"]).fit(X)
        TabularEncoder().fit(X.astype("category"))


# The way back


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_round_trip_of_a_mixed_frame(mixed_frame, dtype):
    original = mixed_frame.copy(deep=True)
    encoder = TabularEncoder().fit(mixed_frame)
    encoded = encoder.transform(mixed_frame).astype(dtype)
    decoded = encoder.inverse_transform(pd.DataFrame(encoded, index=mixed_frame.index))
    rtol = 4 * np.finfo(dtype).eps
    assert_frame_equal(decoded, mixed_frame, check_exact=False, rtol=rtol)
    exact = ["age", "color", "member", "grade"]
    assert_frame_equal(decoded[exact], mixed_frame[exact], check_exact=True)
    assert_frame_equal(mixed_frame, original)


def test_index_is_that_of_the_encoded_frame(mixed_frame):
    encoder = TabularEncoder().set_output(transform="pandas").fit(mixed_frame)
    encoded = encoder.transform(mixed_frame)
    assert encoded.columns.tolist() == encoder.get_feature_names_out().tolist()
    some = encoder.inverse_transform(encoded.iloc[3:5])
    assert_frame_equal(some, mixed_frame.iloc[3:5])
    bare = encoder.inverse_transform(encoded.to_numpy())
    assert bare.index.equals(pd.RangeIndex(len(mixed_frame)))


def test_soft_blocks_give_the_largest(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    soft = [[0, 0.2, 0.5, 0.3, 0, 0.51, 0.49, -3, -1, -2]]
    decoded = encoder.inverse_transform(soft)
    assert decoded.iloc[0, [1, 3, 4]].tolist() == ["green", False, "middle"]


def test_integers_are_rounded_inside_the_seen_range_and_floats_are_free():
    X = pd.DataFrame({"count": [0, 5, 10], "size": [0.0, 5.0, 10 + 1e-9]})
    encoder = TabularEncoder().fit(X)
    steps = np.array([-9, -0.3, 0.2, 9])
    decoded = encoder.inverse_transform(np.c_[steps, steps])
    assert decoded["count"].tolist() == [0, 4, 6, 10]
    assert decoded["count"].dtype == X["count"].dtype
    assert_allclose(decoded["size"], X["size"].mean() + steps * X["size"].std(ddof=0))


@pytest.mark.parametrize(
    "values",
    [
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array([0, 5, 2**64 - 1], dtype=np.uint64),
        np.array([-128, 127, 0], dtype=np.int8),
    ],
)
def test_integers_do_not_wrap_around(values):
    encoder = TabularEncoder().fit(values[:, None])
    far = encoder.inverse_transform([[-1e3], [1e3]])
    assert far.dtype == values.dtype
    assert far.ravel().tolist() == [values.min(), values.max()]
    assert_allclose(_round_trip(values[:, None])[:, 0], values, rtol=1e-15, atol=1e3)


needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="the platform has no longer float"
)


@needs_long_double
@pytest.mark.parametrize("dtype, bits", [(np.float64, 52), (np.float32, 23)])
def test_integers_are_exact_up_to_the_documented_distance(dtype, bits):
    X = np.random.default_rng(0).integers(-(2**bits), 2**bits, (5000, 1))
    encoder = TabularEncoder().fit(X)
    assert_array_equal(encoder.inverse_transform(encoder.transform(X).astype(dtype)), X)


@needs_long_double
def test_integers_beyond_float64_keep_their_differences():
    ids = 2**60 + np.arange(1000)
    assert_array_equal(_round_trip(ids[:, None])[:, 0], ids)
    schema = TabularEncoder().fit(ids[:, None]).schema_
    assert_allclose(schema.columns[0].scale, np.arange(1000).std())


def test_declared_categories_need_not_be_seen():
    grades = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    X = pd.DataFrame({"grade": pd.Series(["high", "low"], dtype=grades)})
    encoder = TabularEncoder().fit(X)
    assert encoder.schema_.column("grade").categories == ("low", "middle", "high")
    assert_array_equal(encoder.transform(X), [[0, 0, 1], [1, 0, 0]])
    decoded = encoder.inverse_transform([[0, 1, 0]])
    assert decoded["grade"].tolist() == ["middle"]
    assert decoded["grade"].dtype == grades
    # The values count, not the order in which another frame declares them.
    other = pd.DataFrame({"grade": pd.Categorical(["middle"], ["middle", "high"])})
    assert_array_equal(encoder.transform(other), [[0, 1, 0]])
    assert_array_equal(encoder.transform(other.astype(object)), [[0, 1, 0]])


def test_interval_categories():
    X = pd.DataFrame({"bin": pd.cut([1.0, 2.0, 3.0, 9.0], 3)})
    assert_frame_equal(_round_trip(X), X)


def test_both_booleans_are_known():
    X = pd.DataFrame({"flag": [True, True], "size": [1.0, 2.0]})
    encoder = TabularEncoder().fit(X)
    assert_array_equal(encoder.transform(X)[:, :2], [[0, 1], [0, 1]])
    assert_array_equal(encoder.transform(X.assign(flag=False))[:, :2], [[1, 0], [1, 0]])


def test_labels_that_are_no_strings():
    X = pd.DataFrame([[1.5, "a"], [2.5, "b"]])
    X.columns = pd.Index([2010, 2020], name="year")
    encoder = TabularEncoder().fit(X)
    assert not hasattr(encoder, "feature_names_in_")
    assert encoder.schema_.names == (2010, 2020)
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1_a", "x1_b"]
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)

    X.columns = ["year", 2020]
    with pytest.raises(TypeError, match="only supported if all input features"):
        TabularEncoder().fit(X)


def test_multi_level_labels():
    columns = pd.MultiIndex.from_product([["a", "b"], ["x", "y"]])
    X = pd.DataFrame(np.arange(8.0).reshape(2, 4), columns=columns)
    assert_frame_equal(_round_trip(X), X)


def test_inverse_transform_checks_its_input(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    with pytest.raises(ValueError, match=r"X has 3 columns, but .* has 10\. Pass rows"):
        encoder.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        encoder.inverse_transform(np.full((2, 10), np.nan))
    nothing = encoder.inverse_transform(np.zeros((0, 10)))
    assert_frame_equal(nothing, mixed_frame.iloc[:0].reset_index(drop=True))


# Arrays


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_float_arrays(dtype, order):
    X = np.random.default_rng(0).normal(5, 3, (50, 4)).astype(dtype, order=order)
    X.setflags(write=False)
    encoder = TabularEncoder().fit(X)
    encoded = encoder.transform(X)
    decoded = encoder.inverse_transform(encoded)
    assert encoded.dtype == decoded.dtype == dtype
    assert_allclose(decoded, X, rtol=4 * np.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool])
def test_integer_arrays_come_back(dtype):
    X = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(dtype)
    encoder = TabularEncoder().fit(X)
    encoded, decoded = encoder.transform(X), _round_trip(X)
    assert encoded.shape == X.shape  # bare arrays are numbers, even booleans
    assert encoded.dtype == np.float64
    assert decoded.dtype == dtype
    assert_array_equal(decoded, X)


def test_arrays_with_chosen_categories():
    X = np.array([[1.5, "a", True], [2.5, "b", False]], dtype=object)
    decoded = _round_trip(X, categorical_features=[1, 2])
    assert decoded.dtype == object
    assert_array_equal(decoded, X)

    text = np.array([["a", "x"], ["b", "y"]])
    decoded = _round_trip(text, categorical_features=[True, True])
    assert decoded.dtype == text.dtype
    assert_array_equal(decoded, text)

    partly_text = [["1.5", "x"], ["2.5", "y"]]
    decoded = _round_trip(partly_text, categorical_features=[1])
    assert decoded.tolist() == [[1.5, "x"], [2.5, "y"]]


def test_text_in_an_array_needs_to_be_told():
    with pytest.raises(
        ValueError, match=r"Column 'x1' .*set_output.* categorical_features"
    ):
        TabularEncoder().fit(np.array([[1.0, "a"], [2.0, "b"]], dtype=object))


# categorical_features


@pytest.mark.parametrize(
    "choice",
    [
        ["code", "color"],
        [0, 2],
        np.array([True, False, True]),
        np.array(["code", "color"]),
        ("color", "code"),
    ],
    ids=str,
)
def test_ways_to_choose_categories(choice):
    X = pd.DataFrame({"code": [1, 2], "size": [0.1, 0.2], "color": ["r", "g"]})
    encoder = TabularEncoder(choice).fit(X)
    assert [column.kind for column in encoder.schema_] == (
        ["category", "number", "category"]
    )
    assert encoder.schema_.column("code").categories == (1, 2)
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)


@pytest.mark.parametrize("choice", [None, []])
def test_all_numbers(choice):
    X = pd.DataFrame({"flag": [True, False], "size": [1, 2]})
    encoder = TabularEncoder(choice).fit(X)
    assert encoder.schema_.n_encoded == 2
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)

    X["color"] = pd.Series(["red", "blue"], dtype="string")
    with pytest.raises(
        TypeError, match="Column 'color' has dtype string.*not a number"
    ):
        TabularEncoder(choice).fit(X)


@pytest.mark.parametrize(
    "choice, message",
    [
        ([True], r"mask of 1 entries, but X has 2 features"),
        ([0, 2], r"position 2, but X has 2 features\. Positions run from 0 to 1"),
        ([-1], r"position -1, but"),
        (["colour"], r"names 'colour', which X does not have.*'size', 'color'"),
        (["color", 1], r"only positions or only names, got 'color', 1"),
        ([0.5], r"only positions or only names, got 0\.5"),
        ("auto", r"'categorical_features' parameter of TabularEncoder must be"),
    ],
)
def test_wrong_choices_are_explained(choice, message):
    X = pd.DataFrame({"size": [0.1, 0.2], "color": ["r", "g"]})
    with pytest.raises(ValueError, match=message):
        TabularEncoder(choice).fit(X)


def test_names_need_a_frame():
    with pytest.raises(ValueError, match="holds names, but X is not a DataFrame"):
        TabularEncoder(["color"]).fit([[1.0], [2.0]])


# What can be wrong with a table


def test_missing_values_are_named(mixed_frame):
    encoder = TabularEncoder(missing="refuse").fit(mixed_frame)
    broken = mixed_frame.astype({"age": float, "color": object})
    broken.iloc[:2, 0] = np.nan
    broken.iloc[3, 1] = None
    broken.iloc[4, 4] = None
    message = (
        r"contains NaN: .* column 'age' \(2 of 12 rows\), 'color' \(1 of 12 rows\), "
        r"'grade' \(1 of 12 rows\)\. Fill them in with an imputer .*VAEACImputer"
    )
    for method in (encoder.fit, encoder.transform):
        with pytest.raises(ValueError, match=message):
            method(broken)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, None], dtype="Int64"),
        pd.Series([True, None], dtype="boolean"),
        pd.Series(["a", None], dtype="string"),
        pd.Series(["a", np.nan], dtype=object),
        pd.Series([1.0, np.nan], dtype="float32"),
        pd.Series([1.0, 0.0], dtype="Float64") / [1.0, 0.0],  # NaN behind the mask
    ],
    ids=lambda column: str(column.dtype),
)
def test_missing_values_of_every_dtype(column):
    with pytest.raises(ValueError, match=r"column 'value' \(1 of 2 rows\)"):
        TabularEncoder(missing="refuse").fit(pd.DataFrame({"value": column}))


def test_missing_values_in_an_array():
    for X in ([[1.0, 2.0], [3.0, np.nan]], np.array([[1, 2], [3, None]], dtype=object)):
        with pytest.raises(ValueError, match=r"NaN: .* column 'x1' \(1 of 2 rows\)"):
            TabularEncoder(missing="refuse").fit(X)
        expected = [[-1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
        assert_array_equal(TabularEncoder().fit_transform(X), expected)


def test_infinite_values_are_named():
    X = pd.DataFrame({"a": [1.0, np.inf], "b": [1.0, 2.0], "c": [-np.inf, 1.0]})
    message = r"infinity in column 'a' \(1 of 2 rows\), 'c' \(1 of 2 rows\)\. Replace"
    with pytest.raises(ValueError, match=message):
        TabularEncoder().fit(X)
    with pytest.raises(ValueError, match=message):
        TabularEncoder().fit(X.replace([np.inf, -np.inf], 0.0)).transform(X)


def test_infinity_is_no_category():
    X = pd.DataFrame({"code": [1.0, np.inf]})
    with pytest.raises(ValueError, match="infinity in column 'code'"):
        TabularEncoder(["code"]).fit(X)


def test_unseen_categories_are_named(mixed_frame):
    encoder = TabularEncoder(handle_unknown="error").fit(mixed_frame)
    strange = mixed_frame.astype({"color": object, "grade": object})
    strange.iloc[0, 1] = "mauve"
    strange.iloc[1, 1] = "teal"
    strange.iloc[1, 4] = "top"
    message = (
        r"not seen in fit: column 'color' holds 'mauve', 'teal' besides the known "
        r"'blue', 'green', 'red'; column 'grade' holds 'top' .*CategoricalDtype"
    )
    with pytest.raises(ValueError, match=message):
        encoder.transform(strange)


def test_many_unseen_categories_are_summed_up():
    encoder = TabularEncoder().fit(pd.DataFrame({"c": ["a", "b"]}))
    with pytest.warns(UserWarning, match="'s4' and 5 more besides"):
        encoder.transform(pd.DataFrame({"c": [f"s{i}" for i in range(10)]}))


def test_duplicate_column_names_are_named():
    X = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"unique, got more than one 'a'\. Rename"):
        TabularEncoder().fit(X)


@pytest.mark.parametrize(
    "before, after, message",
    [
        (
            [1, 2],
            ["1", "2"],
            r"Column 'v' was a number in fit \(dtype int64\), and is a ",
        ),
        (["1", "2"], [1, 2], r"Column 'v' was a category in fit .*\(dtype int64\)"),
        (
            [True, False],
            [1, 0],
            r"was a category in fit \(dtype bool\), and is a number",
        ),
    ],
)
def test_a_column_that_changes_its_kind(before, after, message):
    encoder = TabularEncoder().fit(pd.DataFrame({"v": before}))
    with pytest.raises(ValueError, match=message):
        encoder.transform(pd.DataFrame({"v": after}))


def test_a_column_that_changes_its_dtype_but_not_its_kind():
    encoder = TabularEncoder().fit(pd.DataFrame({"v": [1, 2, 4]}))
    as_float = encoder.transform(pd.DataFrame({"v": [1.0, 2.0, 4.0]}))
    as_nullable = encoder.transform(pd.DataFrame({"v": [1, 2, 4]}, dtype="Int64"))
    assert_allclose(as_float, as_nullable)
    # Positions chosen by the user: the values decide, and the message shows the type.
    encoder = TabularEncoder(["v"]).fit(pd.DataFrame({"v": [1, 2]}))
    assert_array_equal(encoder.transform(pd.DataFrame({"v": [2.0]})), [[0, 1]])
    with pytest.warns(UserWarning, match="holds '1' besides the known 1, 2"):
        encoder.transform(pd.DataFrame({"v": ["1"]}))


def test_a_failed_fit_leaves_no_fitted_encoder():
    encoder = TabularEncoder()
    with pytest.raises(ValueError, match="infinity"):
        encoder.fit([[np.inf]])
    with pytest.raises(NotFittedError):
        encoder.transform([[1.0]])


def test_other_columns_than_in_fit(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(mixed_frame[mixed_frame.columns[::-1]])
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now"):
        encoder.transform(mixed_frame.drop(columns="color"))


def test_no_rows_or_no_columns(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    for method in (encoder.fit, encoder.transform):
        with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 5\)\) while"):
            method(mixed_frame.iloc[:0])
    with pytest.raises(ValueError, match=r"0 feature\(s\) \(shape=\(12, 0\)\) while"):
        encoder.fit(mixed_frame.iloc[:, :0])


def test_constant_columns_stay_finite():
    X = pd.DataFrame({"a": [0.1] * 7, "b": [3] * 7, "c": ["x"] * 7})
    encoder = TabularEncoder().fit(X)
    assert_array_equal(encoder.transform(X), [[0.0, 0.0, 1.0]] * 7)
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)
    assert_array_equal(encoder.transform(X.assign(a=1.1))[:, 0], [1.0] * 7)


@pytest.mark.parametrize("column", [[1.5, 2.5], [1, 2], ["a", "b"], [True, False]])
def test_a_single_column(column):
    X = pd.DataFrame({"only": column})
    assert_frame_equal(_round_trip(X), X)


def test_a_single_row(mixed_frame):
    X = mixed_frame.iloc[:1].reset_index(drop=True)
    assert_frame_equal(_round_trip(X), X)


# Extremes


@pytest.mark.parametrize("magnitude", [5e-324, 1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_magnitudes(magnitude):
    X = np.array([[-1.0], [0.0], [2.0], [7.0]]) * magnitude
    encoder = TabularEncoder().fit(X)
    encoded = encoder.transform(X)
    decoded = encoder.inverse_transform(encoded.astype(np.float32))
    assert_allclose(decoded / magnitude, X / magnitude, atol=1e-6)
    if magnitude > 1e-320:  # the smallest float cannot hold its own scale
        assert_allclose([encoded.mean(), encoded.std()], [0, 1], atol=1e-12)


def test_far_from_zero():
    X = 1e9 + np.random.default_rng(0).normal(size=(100, 1))
    encoded = TabularEncoder().fit_transform(X)
    assert_allclose([encoded.mean(), encoded.std()], [0, 1], atol=1e-6)


def test_what_lies_beyond_the_largest_number_decodes_to_it():
    encoder = TabularEncoder().fit([[-1.7e308], [1.7e308]])
    largest = np.finfo(np.float64).max
    decoded = encoder.inverse_transform([[-50.0], [50.0]])
    assert_array_equal(decoded, [[-largest], [largest]])


def test_what_networks_can_hold():
    limit = 1e18
    encoded = np.array([[1.0, -limit], [limit, 0.1]])
    assert_array_equal(as_float32(encoded), encoded.astype(np.float32))
    encoded[1, 0] = -1.5e18
    with pytest.raises(ValueError, match=r"column 0 holds -1.5e\+18.* beyond 1e\+18"):
        as_float32(encoded)


@pytest.mark.filterwarnings("ignore:Column .id. is taken as a category")
def test_many_categories_are_quick():
    X = pd.DataFrame({"id": [f"user {i}" for i in range(10_000)]})
    start = time.perf_counter()
    encoder = TabularEncoder(min_frequency=None).fit(X)
    schema = encoder.schema_
    assert schema.describe_difference(clone(encoder).fit(X[1:]).schema_)
    assert schema.n_encoded == 10_000
    encoded = encoder.transform(X[:100])
    assert_frame_equal(encoder.inverse_transform(encoded), X[:100])
    # About 0.03 s; the bound only rules out work per row times category.
    assert time.perf_counter() - start < 10


# polars


@pytest.fixture
def polars_frame():
    pl = pytest.importorskip("polars")
    return pl.DataFrame(
        {
            "count": pl.Series([1, 2, 4], dtype=pl.Int8),
            "size": [0.5, 1.5, 2.5],
            "color": ["red", "blue", "red"],
            "flag": [True, False, True],
            "grade": pl.Series(["high", "low", "low"], dtype=pl.Enum(["low", "high"])),
            "city": pl.Series(["Rome", "Oslo", "Rome"], dtype=pl.Categorical),
        }
    )


def test_polars_round_trip(polars_frame):
    encoder = TabularEncoder().fit(polars_frame)
    assert encoder.feature_names_in_.tolist() == polars_frame.columns
    assert encoder.schema_.column("grade").categories == ("low", "high")
    encoded = encoder.transform(polars_frame)
    decoded = encoder.inverse_transform(encoded)
    assert decoded.schema == polars_frame.schema
    assert_allclose(decoded["size"], polars_frame["size"])
    exact = polars_frame.drop("size").to_dict(as_series=False)
    assert decoded.drop("size").to_dict(as_series=False) == exact
    encoder.set_output(transform="polars")
    assert encoder.transform(polars_frame).columns == list(
        encoder.get_feature_names_out()
    )


def test_polars_and_pandas_agree(polars_frame):
    in_pandas = pd.DataFrame(polars_frame.to_dict(as_series=False))
    assert_array_equal(
        TabularEncoder(["color"]).fit_transform(polars_frame.select("size", "color")),
        TabularEncoder(["color"]).fit_transform(in_pandas[["size", "color"]]),
    )


def test_polars_errors(polars_frame):
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"column 'color' \(1 of 3 rows\)"):
        TabularEncoder(missing="refuse").fit(
            polars_frame.with_columns(pl.Series("color", ["red", None, "blue"]))
        )
    with pytest.raises(ValueError, match=r"column 'size' \(2 of 3 rows\)"):
        TabularEncoder(missing="refuse").fit(
            polars_frame.with_columns(pl.Series("size", [None, 1.0, float("nan")]))
        )
    with pytest.raises(TypeError, match="Column 'size' has dtype List"):
        TabularEncoder().fit(polars_frame.with_columns(pl.concat_list("size")))


# The hook for estimators that can live with missing values


def test_missing_values_become_nan_where_they_are_allowed():
    X = pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0],
            "count": pd.array([1, 2, None], dtype="Int64"),
            "color": ["red", "blue", None],
            "flag": pd.array([None, True, True], dtype="boolean"),
        }
    )
    encoder = TabularEncoder()._fit(X, ignore_gaps=True)
    encoded = encoder._encode(X, Strangers(), hide_gaps=True)
    nan = np.nan
    expected = [
        [-1, -1, 0, 1, nan, nan],
        [nan, 1, 1, 0, 0, 1],
        [1, nan, nan, nan, 0, 1],
    ]
    assert_allclose(encoded, expected)
    complete = encoder.inverse_transform(np.nan_to_num(encoded))
    assert complete.dtypes.tolist() == X.dtypes.tolist()

    X["size"] = np.nan
    with pytest.raises(ValueError, match="'size' holds missing values only"):
        TabularEncoder()._fit(X, ignore_gaps=True)


# As an estimator


def test_fitting_again_forgets(mixed_frame):
    twice = TabularEncoder().fit(mixed_frame[["color"]]).fit(mixed_frame)
    assert twice.schema_ == TabularEncoder().fit(mixed_frame).schema_


def test_pickle_clone_and_company(mixed_frame):
    encoder = TabularEncoder().fit(mixed_frame)
    loaded = pickle.loads(pickle.dumps(encoder))
    assert loaded.schema_ == encoder.schema_
    assert_array_equal(loaded.transform(mixed_frame), encoder.transform(mixed_frame))
    assert not hasattr(clone(encoder), "schema_")
    frozen = FrozenEstimator(encoder).fit(mixed_frame, None)
    pipeline = make_pipeline(frozen, StandardScaler()).fit(mixed_frame)
    assert pipeline.get_feature_names_out().size == encoder.schema_.n_encoded


# The schema


def test_schema_describes_the_columns(mixed_frame):
    schema = TabularEncoder().fit(mixed_frame).schema_
    assert len(schema) == 5
    assert schema.names == tuple(mixed_frame.columns)
    assert [column.span for column in schema] == (
        [(0, 1), (1, 4), (4, 5), (5, 7), (7, 10)]
    )
    assert schema.numeric_index.tolist() == [0, 4]
    assert schema.blocks == (slice(1, 4), slice(5, 7), slice(7, 10))
    assert [column.name for column in schema.numbers] == ["age", "weight"]
    assert [column.name for column in schema.categories] == ["color", "member", "grade"]

    age, weight = schema.numbers
    assert age.is_integer and not weight.is_integer
    assert (age.low, age.high) == (mixed_frame["age"].min(), mixed_frame["age"].max())
    assert_allclose(weight.center, mixed_frame["weight"].mean())
    assert_allclose(
        weight.percentiles,
        np.percentile(mixed_frame["weight"], np.arange(101), method="hazen"),
    )
    assert schema.column("member").categories == (False, True)
    assert schema.column("grade").dtype == mixed_frame["grade"].dtype
    with pytest.raises(
        KeyError, match="No column 'colour'. The columns are: 'age', 'c"
    ):
        schema.column("colour")
    assert FeatureSchema(()).n_encoded == 0


def test_schemas_compare(mixed_frame):
    schema = TabularEncoder().fit(mixed_frame).schema_
    same = TabularEncoder().fit(mixed_frame.copy()).schema_
    assert schema == same and hash(schema) == hash(same)
    assert schema.describe_difference(same) is None
    with pytest.raises(AttributeError):
        schema.columns = ()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda X: X.replace({"color": {"blue": "red"}}),
            "'color': 3 categories against 2 (extra: 'blue')",
        ),
        (
            lambda X: X.replace({"color": {"blue": "azure"}}),
            "'color': 3 categories against 3 (extra: 'blue'; missing: 'azure')",
        ),
        (
            lambda X: X.assign(
                grade=X["grade"].cat.reorder_categories(["high", "middle", "low"])
            ),
            "'grade': 3 categories against 3 (other order)",
        ),
        (lambda X: X.assign(color=1.0), "'color': kind category against number"),
        (lambda X: X.drop(columns="age"), "5 columns against 4 (extra: 'age')"),
        (lambda X: X[X.columns[::-1]], "5 columns against 5 (other order)"),
        (lambda X: X.astype({"age": float}), "'age': dtype int64 against float64"),
    ],
)
def test_the_first_difference_is_told(mixed_frame, change, message):
    schema = TabularEncoder().fit(mixed_frame).schema_
    other = TabularEncoder().fit(change(mixed_frame)).schema_
    assert schema != other
    assert schema.describe_difference(other) == message


def test_other_scaling_is_a_difference():
    X = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0]})
    schema = TabularEncoder().fit(X).schema_
    moved = TabularEncoder().fit(X + 1).schema_
    assert schema.describe_difference(moved) == "'size': center 2.5 against 3.5"
    # Same mean, spread and range; only the percentiles can tell.
    a = TabularEncoder().fit([[0.0], [1.0], [4.0], [5.0]]).schema_
    b = TabularEncoder().fit([[0.0], [0.0], [2.0], [3.0], [5.0], [5.0]]).schema_
    assert a.describe_difference(b) == "'x0': other training percentiles"


def test_weight_two_is_the_row_twice_and_zero_none(mixed_frame):
    weight = np.array([0, 1, 2] * 4)
    weighted = TabularEncoder().fit(mixed_frame, sample_weight=weight)
    repeated = TabularEncoder().fit(mixed_frame.iloc[np.repeat(np.arange(12), weight)])
    assert weighted.schema_ == repeated.schema_
    shuffled = TabularEncoder().fit(mixed_frame.iloc[::-1])
    assert shuffled.schema_ == TabularEncoder().fit(mixed_frame).schema_


def test_weights_must_leave_something_to_learn(mixed_frame):
    with pytest.raises(ValueError, match="zero"):
        TabularEncoder().fit(mixed_frame, sample_weight=np.zeros(12))
    with pytest.raises(ValueError, match="[Nn]egative"):
        TabularEncoder().fit(mixed_frame, sample_weight=-np.ones(12))
