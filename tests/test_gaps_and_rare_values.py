"""Tables as people have them: gaps, strangers, rare values, decimals and atoms."""

import pickle
import warnings
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from sklearn_clue import CLUEExplainer, TabularEncoder, VAEEncoder
from sklearn_clue._modules import ValidRows

GAPS = pd.DataFrame({"age": [20.0, np.nan, 40.0], "job": ["cook", "smith", None]})


def _columns(values, **params):
    """The schema of a table with one column."""
    return TabularEncoder(**params).fit(pd.DataFrame({"v": values})).schema_.columns[0]


# Gaps


def test_gaps_have_a_position_in_the_block_of_their_column():
    encoder = TabularEncoder().fit(GAPS)
    age, job = encoder.schema_
    assert_array_equal(
        encoder.transform(GAPS),
        [[-1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1]],
    )
    assert (age.span, age.gap_position, age.n_proposed) == ((0, 2), 1, 1)
    assert (job.span, job.gap_position, job.n_proposed) == ((2, 5), 4, 2)
    assert_array_equal(encoder.schema_.numeric_index, [0])
    assert_array_equal(encoder.schema_.described_index, [1, 4])
    names = ["age", "age_missing", "job_cook", "job_smith", "job_missing"]
    assert encoder.get_feature_names_out().tolist() == names
    assert_frame_equal(encoder.inverse_transform(encoder.transform(GAPS)), GAPS)


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([1, None, 3], "Int64"),
        ([1, None, 3], "UInt8"),
        ([0.5, None, 2], "Float32"),
        ([0.5, None, 2], "float32"),
        ([1, None, 3], "int64[pyarrow]"),
        ([0.5, None, 3], "double[pyarrow]"),
        (["a", None, "b"], "string[pyarrow]"),
        ([True, None, False], "bool[pyarrow]"),
        (["a", None, "b"], "string[python]"),
        (["a", np.nan, "b"], object),
        (["a", None, "b"], "category"),
        ([True, None, False], "boolean"),
        ([1, None, 3], pl.Int8()),
        ([0.5, None, 2.0], pl.Float64()),
        (["a", None, "b"], pl.String()),
        ([True, None, False], pl.Boolean()),
        (["a", None, "b"], pl.Enum(["a", "b"])),
        (["a", None, "b"], pl.Categorical()),
    ],
    ids=str,
)
def test_gaps_of_every_dtype_come_back(values, dtype):
    is_polars = hasattr(dtype, "base_type")
    if is_polars:
        X = pl.DataFrame({"v": pl.Series(values, dtype=dtype)})
    else:
        if str(dtype).endswith("[pyarrow]"):
            pytest.importorskip("pyarrow")
        X = pd.DataFrame({"v": pd.Series(values, dtype=dtype)})
    encoder = TabularEncoder().fit(X)
    known = encoder.schema_.columns[0]
    encoded = encoder.transform(X)
    assert known.has_gap
    assert_array_equal(encoded[:, -1], [0, 1, 0])
    # The positions of values are those of a table without the gap.
    complete = TabularEncoder().fit_transform(
        X[[0, 2]] if is_polars else X.iloc[[0, 2]]
    )
    assert_allclose(encoded[[0, 2], :-1], complete)
    assert not encoded[1, :-1].any()
    decoded = encoder.inverse_transform(encoded)
    if is_polars:
        assert decoded.fill_nan(None).equals(X)
    else:
        assert_frame_equal(decoded, X)


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long doubles are doubles here"
)
@pytest.mark.parametrize("dtype", ["Int64", "UInt64", object, pl.Int64(), pl.UInt64()])
def test_long_integers_beside_a_gap_come_back(dtype):
    """As doubles they would be rounded, and the largest to more than there is."""
    values = [2**63 - 1, None, 2**63 - 2, 2**63 - 99]
    if hasattr(dtype, "base_type"):
        X = pl.DataFrame({"v": pl.Series(values, dtype=dtype)})
    else:
        X = pd.DataFrame({"v": pd.Series(values, dtype=dtype)})
    encoder = TabularEncoder().fit(X)
    assert encoder.schema_.columns[0].high == 2**63 - 1
    back = encoder.inverse_transform(encoder.transform(X))
    assert [None if pd.isna(v) else v for v in back["v"]] == values


def test_weightless_rows_have_no_gaps():
    encoder = TabularEncoder().fit(GAPS, sample_weight=[1, 0, 1])
    assert [column.has_gap for column in encoder.schema_] == [False, True]


def test_a_gap_where_there_was_none_is_the_mean_and_a_warning():
    X = pd.DataFrame({"n": [1.0, 3.0], "i": [1, 3], "c": ["a", "b"]})
    gaps = pd.DataFrame({"n": [np.nan], "i": [np.nan], "c": [None]})
    encoder = TabularEncoder().fit(X)
    with pytest.warns(UserWarning, match="complete in fit: 'n', 'i', 'c'") as caught:
        assert_array_equal(encoder.transform(gaps), np.zeros((1, 4)))
    assert len(caught) == 1
    with pytest.raises(ValueError, match="complete in fit"):
        encoder.set_params(handle_unknown="error").transform(gaps)


def test_whole_chunks_may_be_empty():
    # As pandas reads a file whose column is empty: floats, whatever they were before.
    encoder = TabularEncoder().fit(GAPS)
    empty = pd.DataFrame({"age": [None, None], "job": [np.nan, np.nan]})
    assert_array_equal(encoder.transform(empty), [[0, 1, 0, 0, 1]] * 2)


def test_columns_that_say_nothing_new_are_named():
    X = pd.DataFrame({"a": [1.0, 2, 3], "b": [1.0, 2, 3], "c": "x", "d": np.nan})
    X["e"], X["f"] = pd.Series([np.nan] * 3, dtype=object), 7
    X = pd.concat([X] * 10, ignore_index=True)
    with pytest.warns(UserWarning) as caught:
        encoder = TabularEncoder().fit(X)
    (message,) = [str(warning.message) for warning in caught]
    for hint in (
        "'b' repeats 'a'",
        "'c' has one value",
        "'d' is missing in all",
        "'e' is missing in all",
        "'f' has one value",
    ):
        assert hint in message
    encoded = encoder.transform(X)
    assert_array_equal(encoded[:, 2:], [[1, 0, 1, 1, 0]] * 30)
    assert_frame_equal(encoder.inverse_transform(encoded), X)


@pytest.mark.parametrize(
    "name, values, is_hinted",
    [
        ("pclass", [1, 2, 3], True),
        ("job_code", [10, 47, 3, 8], True),
        ("region id", [1, 2, 3], True),
        ("paid", [1, 2, 3], False),
        ("children", [0, 1, 2, 3], False),
        ("pclass", list(range(20)), False),
        ("pclass", [0, 1], False),
        ("pclass", ["1", "2", "3"], False),
    ],
)
def test_numbers_that_may_be_codes_are_named(name, values, is_hinted):
    X = pd.DataFrame({name: np.resize(values, 40)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TabularEncoder().fit(X)
    assert [f"{name!r} may be a code" in str(w.message) for w in caught] == (
        [True] if is_hinted else []
    )


def test_tags_follow_the_setting():
    assert get_tags(TabularEncoder()).input_tags.allow_nan
    assert not get_tags(TabularEncoder(missing="refuse")).input_tags.allow_nan


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])),
        pd.Series([date(2020, 1, 1), date(2021, 1, 1)], dtype=object),
        pl.Series("v", [date(2020, 1, 1), date(2021, 1, 1)]),
    ],
)
def test_dates_are_refused_with_what_to_write(column):
    is_polars = isinstance(column, pl.Series)
    X = pl.DataFrame({"v": column}) if is_polars else pd.DataFrame({"v": column})
    with pytest.raises(TypeError, match=r"'v'.*\n.*X\['v'\]\.dt\.month.*\n.*drop"):
        TabularEncoder().fit(X)


# Strangers


def test_unseen_categories_say_nothing_and_are_named_once():
    encoder = TabularEncoder().fit(pd.DataFrame({"c": ["a", "b"], "d": ["u", "v"]}))
    strange = pd.DataFrame({"c": ["z", "a", "y"], "d": ["u", "w", "v"]})
    with pytest.warns(UserWarning) as caught:
        encoded = encoder.transform(strange)
    (message,) = [str(warning.message) for warning in caught]
    assert "'c' holds 'z', 'y' besides the known 'a', 'b'" in message
    assert "'d' holds 'w'" in message
    assert_array_equal(encoded, [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])


# Rare values


def test_rare_values_are_pooled_in_long_columns_only():
    common = [f"c{i}" for i in range(30)] * 20
    few = _columns(common[:-1] + ["rare"] * 2)
    assert len(few.categories) == 30 and few.pooled == ("rare",)
    assert few.n_proposed == 30 and few.span == (0, 31)
    # With 30 values nobody is rare, however few rows there are.
    assert not _columns([f"c{i}" for i in range(29)] * 200 + ["rare"]).pooled
    # Three rows of 600 are 0.5 %.
    assert not _columns(common[:-3] + ["rare"] * 3).pooled
    assert not _columns(common[:-1] + ["rare"], min_frequency=None).pooled


@pytest.mark.parametrize("min_frequency", [3, 0.3])
def test_rare_values_as_scikit_learn_pools_them(min_frequency):
    values = list("aaabbbbcdd")
    X = pd.DataFrame({"v": values})
    encoder = TabularEncoder(min_frequency=min_frequency).fit(X)
    column = encoder.schema_.columns[0]
    assert (column.categories, column.pooled) == (("a", "b"), ("d", "c"))
    assert encoder.get_feature_names_out()[-1] == "v_infrequent"
    encoded = encoder.transform(X)
    assert_array_equal(encoded.sum(axis=0), [3, 4, 3])
    # On its own, the way back leads to the most frequent of them.
    decoded = encoder.inverse_transform(encoded)["v"].tolist()
    assert decoded == list("aaabbbbddd")
    # Weights count as rows.
    heavy = TabularEncoder(min_frequency=3).fit(X, sample_weight=[3.0] * 10)
    assert not heavy.schema_.columns[0].pooled


def test_rare_and_missing_values_side_by_side():
    X = pd.DataFrame({"v": ["a", "a", "b", None]})
    encoder = TabularEncoder(min_frequency=2).fit(X)
    expected = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert_array_equal(encoder.transform(X), expected)
    with pytest.warns(UserWarning, match="'z' besides the known 'a', 'b'"):
        assert_array_equal(encoder.transform(pd.DataFrame({"v": ["z"]})), [[0, 0, 0]])


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_declared_categories_survive_pooling_and_pickling(container):
    words = ["w", "z", "a", "never"]
    values = ["z", "z", "w", "w", "a"]
    if container == "pandas":
        X = pd.DataFrame({"v": pd.Categorical(values, words, ordered=True)})
    else:
        X = pl.DataFrame({"v": pl.Series(values, dtype=pl.Enum(words))})
    encoder = TabularEncoder(min_frequency=2).fit(X)
    again = pickle.loads(pickle.dumps(encoder))
    assert again.schema_ == encoder.schema_
    assert again.schema_.columns[0].pooled == ("a", "never")
    assert again.inverse_transform(again.transform(X)).equals(X)


# Decimals and atoms


@pytest.mark.parametrize(
    "values, decimals",
    [
        ([1, 2, 5], 0),
        ([1.0, 2.0, 5.0], 0),
        ([0.5, 2.25, 1e6], 2),
        ([0.1 + 0.2, 0.7], 1),  # an error in the last digit
        ([1e-6, 2e-6, 1.0], 6),
        ([1e-7, 1.0], None),
        ([1 / 3, 2.0], None),
        ([1e17, 2.0], None),  # beyond the digits of the type
        (np.array([0.1, 2.3], dtype=np.float32), 1),
        (np.array([1 / 3, 2.3], dtype=np.float32), None),
        ([np.nan, 0.5], 1),
        (["a", "b"], None),
    ],
)
def test_decimals_are_those_of_the_column(values, decimals):
    assert _columns(values).decimals == decimals


def test_numbers_come_back_with_the_decimals_of_the_column():
    X = pd.DataFrame({"price": [1.25, 3.1, 7.99], "n": [1.0, 2.0, 9.0]})
    encoder = TabularEncoder().fit(X)
    decoded = encoder.inverse_transform([[0.1234, 0.3], [-9.0, -9.0]])
    for column, decimals in (("price", 2), ("n", 0)):
        assert (decoded[column] == decoded[column].round(decimals)).all()
    assert (decoded.loc[1] < X.min()).all()  # floats are not bounded here
    assert_frame_equal(encoder.inverse_transform(encoder.transform(X)), X)


def test_atoms_are_values_that_many_rows_share():
    rng = np.random.default_rng(0)
    rain = np.where(rng.random(400) < 0.6, 0.0, rng.gamma(2.0, 3.0, 400))
    assert _columns(rain).atoms == (0.0,)
    hours = np.where(rng.random(400) < 0.5, 40, rng.integers(20, 60, 400))
    assert _columns(hours).atoms == (40,)
    for plain in (rng.normal(size=400), rng.poisson(3, 400), rng.integers(0, 5, 400)):
        assert _columns(plain).atoms == ()


# Valid rows


def test_valid_rows_have_the_decimals_of_their_columns():
    X = pd.DataFrame({"price": [1.25, 3.1, 7.99], "odd": [1 / 3, 2.0, 5.0]})
    encoder = TabularEncoder().fit(X)
    x = torch.randn(
        20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    x.requires_grad_()
    valid = ValidRows(encoder.schema_)(x)
    rows = encoder.inverse_transform(valid.detach().numpy())
    assert_allclose(encoder.transform(rows), valid.detach(), atol=1e-12)
    assert torch.equal(valid[:, 1], x[:, 1])
    (slope,) = torch.autograd.grad(valid.sum(), x)
    assert torch.equal(slope, torch.ones_like(x))


def test_valid_rows_create_no_gaps_and_no_rare_values():
    X = pd.DataFrame({"n": [1.5, 2.5, None, 1 / 3], "c": ["a", "b", None, "a"]})
    X = pd.concat([X] * 3 + [X.assign(c="rare")[:1]], ignore_index=True)
    encoder = TabularEncoder(min_frequency=2).fit(X)
    valid = ValidRows(encoder.schema_)
    #                    n, gap,   a,   b, rare, gap
    x = torch.tensor([[0.7, 0.9, 0.1, 0.2, 0.9, 0.8]], dtype=torch.float64)
    assert valid(x).tolist() == [[0.7, 0, 0, 1, 0, 0]]
    # Bounds of a row whose values are rare or missing leave that open,
    infinity = torch.full_like(x, torch.inf)
    assert valid(x, -infinity, infinity).tolist() == [[0, 1, 0, 0, 1, 0]]
    # and those of a row that keeps what it has fix it.
    own = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert valid(x, own, own).tolist() == own.tolist()
    high = infinity.clone()
    high[:, [1, 4, 5]] = 0
    assert valid(x - 1, -infinity, high).tolist() == [[0.7 - 1, 0, 0, 1, 0, 0]]


def test_files_from_before_there_was_a_choice():
    encoder = TabularEncoder().fit(pd.DataFrame({"n": [1.0, 2.0]}))
    state = encoder._unpack_state({"categorical_features": None})
    assert state["missing"] == "refuse" and state["handle_unknown"] == "error"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.transform(pd.DataFrame({"n": [3.0]}))


# Filling


@pytest.fixture(scope="module")
def incomes():
    """The model is sure where the income is known to be high or low."""
    rng = np.random.default_rng(0)
    income = rng.integers(10, 60, 200) * 100.0
    X = pd.DataFrame({"income": income, "town": rng.choice(["here", "there"], 200)})
    y = np.where(income + rng.normal(0, 200, 200) > 3000, "yes", "no")
    X.loc[::4, "income"] = np.nan
    model = make_pipeline(TabularEncoder(), LogisticRegression(C=10))
    generator = VAEEncoder(2, (8,), max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        explainer = CLUEExplainer(
            model, generator, target_uncertainty=0.3, random_state=0
        ).fit(X, y)
    rows = X[X["income"].isna()]
    rows = rows[explainer.rejects(rows)]
    assert len(rows) >= 10
    kept = explainer.explain(rows)
    return rows, kept, explainer.set_params(fill_missing=True).explain(rows)


def test_gaps_are_filled_with_leave_only(incomes):
    rows, kept, filled = incomes
    assert_frame_equal(kept.counterfactuals.isna(), rows.isna())
    assert filled.counterfactuals.notna().all(axis=None)  # and none was made
    assert not kept.is_sure.any() and filled.is_sure.all()


def test_filled_gaps_are_told_and_have_their_price(incomes):
    _, _, filled = incomes
    income = filled.counterfactuals["income"].iloc[0]
    assert 1000 <= income <= 5900 and income == round(income)  # as all are
    words = filled[:1].summary()
    assert f"if income were known to be {income:,.0f}" in words
    # One for the gap, and the way from the mean: a changed category costs 2.
    score = filled.encoded_counterfactuals[:, 0]
    only = filled.n_changed == 1
    assert only.any() and (np.abs(score[only]) > 0).all()
    assert_allclose(filled.distance[only], 1 + np.abs(score[only]))
