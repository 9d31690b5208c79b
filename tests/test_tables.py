"""Tables of every container: what is read is what can be written back."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_clue import (
    BayesianMLPClassifier,
    DeepEnsembleRegressor,
    TabularEncoder,
    VAEACImputer,
    _dtypes,
    _tables,
)

VALUES = {
    "count": [3, 1, 2**60 + 1],
    "size": [0.1, -0.0, 1e300],
    "color": ["red", "blue", "red"],
    "on": [True, False, True],
}
CONTAINERS = {
    "pandas": lambda: pd.DataFrame(VALUES, index=["a", "b", "c"]),
    "nullable": lambda: pd.DataFrame(VALUES).convert_dtypes(),
    "categorical": lambda: pd.DataFrame(VALUES).astype({"color": "category"}),
    "objects": lambda: pd.DataFrame(VALUES, dtype=object),
    "polars": lambda: pl.DataFrame(VALUES),
    "enum": lambda: pl.DataFrame(VALUES).cast({"color": pl.Enum(["red", "blue"])}),
    "long": lambda: pl.DataFrame(VALUES).cast({"count": pl.Int128}),
    "array": lambda: np.array(list(VALUES.values()), dtype=object).T,
}


@pytest.fixture(params=CONTAINERS)
def table(request):
    return CONTAINERS[request.param]()


def same(a, b):
    if isinstance(a, pd.DataFrame):
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    elif isinstance(a, pl.DataFrame):
        assert a.equals(b) and a.schema == b.schema
    else:
        assert a.dtype == b.dtype and a.tolist() == b.tolist()


def test_arrays_are_written_back_to_the_last_bit(table):
    arrays = _tables.arrays(table)
    same(_tables.with_columns(table, dict(enumerate(arrays))), table)
    objects = [_tables.as_objects(values) for values in arrays]
    same(_tables.with_columns(table, dict(enumerate(objects))), table)
    index = _tables.index_of(table)
    columns = [
        _tables.Column(name, values, dtype)
        for name, values, dtype in zip(
            _tables.names(table), arrays, _tables.dtypes(table), strict=True
        )
    ]
    same(_tables.assemble(columns, _tables.take(table, slice(0)), index), table)


def test_writing_leaves_the_table_alone(table):
    before = _tables.take(table, slice(None))
    new = _tables.with_columns(table, {1: np.array([5.0, 6.0, 7.0])})
    assert _tables.arrays(new)[1].tolist() == [5, 6, 7]
    same(table, before)
    for position in (0, 2, 3):
        old = _tables.arrays(table)[position].tolist()
        assert _tables.arrays(new)[position].tolist() == old


@pytest.mark.parametrize("other", CONTAINERS)
def test_cells_move_between_containers(table, other):
    """What one container holds, another takes in its own dtypes."""
    target = CONTAINERS[other]()
    moved = _tables.with_columns(target, dict(enumerate(_tables.arrays(table))))
    same(moved, target)


def test_floats_are_rounded_where_numbers_are_whole():
    X = pd.DataFrame({"n": [1, 2], "on": [True, False]})
    for table in (X, X.convert_dtypes(), pl.DataFrame(X.to_dict("list"))):
        new = np.array([0.3, 0.7])
        moved = _tables.arrays(_tables.with_columns(table, {0: 9 + new, 1: new}))
        assert [values.tolist() for values in moved] == [[9, 10], [False, True]]
    X = np.array([[True], [True]])
    assert _tables.with_columns(X, {0: new})[:, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    "kind", ["int8", "uint8", "int64", "uint64", "Int16", "UInt64"]
)
@pytest.mark.parametrize("container", ["pandas", "polars", "numpy"])
def test_numbers_beyond_a_dtype_become_its_limits(container, kind):
    """A cast would wrap around, or raise in the middle of an explanation."""
    limits = np.iinfo(kind.lower())
    X = pd.DataFrame({"n": pd.array([1, 2, 3, 4], dtype=kind)})
    if container == "polars":
        X = pl.DataFrame({"n": [1, 2, 3, 4]}, schema={"n": getattr(pl, _polars(kind))})
    elif container == "numpy":
        X = np.arange(1, 5, dtype=kind.lower()).reshape(-1, 1)
    for far in (np.array([-1e30, 1e30, 5.4, limits.max]), [-(10**9), 10**18, 5, 6]):
        far = np.array(far)
        (cells,) = _tables.arrays(_tables.with_columns(X, {0: far}))
        cells = [int(cell) for cell in cells]
        assert cells[0] == max(limits.min, int(far[0]))
        assert 0 <= min(limits.max, int(far[1])) - cells[1] <= limits.max >> 52
        assert cells[2] == 5 and limits.min <= cells[3] <= limits.max


def _polars(kind):
    return kind.replace("uint", "UInt").replace("int", "Int")


def test_empty_names_are_kept():
    X = pl.DataFrame({"a": [1.0], "": [2.0]})
    assert _tables.with_columns(X, {0: np.array([3.0])}).columns == ["a", ""]


def test_missing_cells_stay_what_they_were():
    for X in (
        pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "s": ["a", None]}),
        pd.DataFrame({"n": [1.0, np.nan], "s": np.array(["a", None], dtype=object)}),
        pl.DataFrame({"n": [1, None], "s": ["a", None]}),
        pl.DataFrame({"n": [1.0, None], "s": ["a", None]}),
        pl.DataFrame({"n": [1.0, np.nan], "s": ["a", None]}),
    ):
        same(_tables.with_columns(X, dict(enumerate(_tables.arrays(X)))), X)


@pytest.mark.parametrize(
    "rows", [slice(np.int64(1), np.int64(3)), [1, 2], np.array([False, True, True])]
)
def test_rows_of_every_container(table, rows):
    taken = _tables.take(table, rows)
    assert taken.shape == (2, 4)
    assert [values.tolist() for values in _tables.arrays(taken)] == [
        values.tolist()[1:] for values in _tables.arrays(table)
    ]


def test_names_of_columns():
    assert _tables.names(np.zeros((1, 2))) == ["x0", "x1"]
    assert _tables.names(pd.DataFrame(np.zeros((1, 2)))) == [0, 1]
    assert _tables.names(pl.DataFrame({"a": [1]})) == ["a"]


class Table:
    """As much of a pyarrow Table as tells what it is."""

    column_names = ["a"]

    def to_pandas(self):
        return pd.DataFrame({"a": [1.0]})

    def __array__(self, dtype=None, copy=None):
        return np.ones((1, 1))


@pytest.mark.parametrize(
    "X, message",
    [
        (pl.LazyFrame({"a": [1.0]}), r"X is a LazyFrame.*X\.collect\(\)"),
        (Table(), r"X is a Table.*X\.to_pandas\(\)"),
        (pd.DataFrame({"a": [Decimal(1), Decimal(2)]}), r"'a' .*Decimal.*\(float\)"),
    ],
)
def test_tables_that_are_refused(X, message):
    with pytest.raises(TypeError, match=message):
        TabularEncoder().fit(X)


@pytest.mark.parametrize("low", [2**64 - 1, -(2**63) - 1, 2**70])
@pytest.mark.parametrize(
    "make",
    [
        lambda values: pd.DataFrame({"x0": values}, dtype=object),
        lambda values: np.array([values], dtype=object).T,
        lambda values: pl.DataFrame({"x0": pl.Series(values, dtype=pl.Int128)}),
    ],
)
def test_integers_of_more_than_64_bits_are_refused(make, low):
    with pytest.raises(ValueError, match=f"'x0' holds integers from {low} to"):
        TabularEncoder().fit(make([low, low + 3]))


@pytest.mark.parametrize("low", [-(2**63), 2**53, 2**63 - 2, 2**64 - 9])
def test_long_integers_come_back(low):
    values = [low + step for step in range(8)]
    for X in (
        pd.DataFrame({"n": values}, dtype=object),
        pl.DataFrame({"n": pl.Series(values, dtype=pl.Int128)}),
    ):
        encoder = TabularEncoder().fit(X)
        decoded = encoder.inverse_transform(encoder.transform(X))
        assert _tables.arrays(decoded)[0].tolist() == values


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, DeepEnsembleRegressor])
def test_masked_targets_and_weights_are_refused(estimator):
    X = np.arange(40.0).reshape(20, 2)
    plain = np.arange(20) % 2
    masked = np.ma.masked_array(plain, mask=np.arange(20) < 3)
    with pytest.raises(ValueError, match="y is a masked array.*3 of 20"):
        estimator().fit(X, masked)
    with pytest.raises(ValueError, match="sample_weight is a masked array.*3 of 20"):
        estimator().fit(X, plain, sample_weight=masked + 1)


def test_masked_cells_are_missing():
    rng = np.random.default_rng(0)
    X = np.ma.masked_array(rng.normal(size=(30, 2)), mask=rng.random((30, 2)) < 0.3)
    X.data[X.mask] = 1e6
    with pytest.raises(ValueError, match="Input X contains NaN"):
        TabularEncoder(missing="refuse").fit(X)
    assert TabularEncoder().fit(X).schema_.n_encoded == 4
    imputer = VAEACImputer(2, (5,), max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning):
        filled = imputer.fit(X).transform(X)
    np.testing.assert_array_equal(filled[~X.mask], X.data[~X.mask])
    assert np.abs(filled).max() < 100
    TabularEncoder().fit(np.ma.masked_array(rng.normal(size=(5, 2))))


@pytest.mark.parametrize(
    "allowed, dtype, expected",
    [
        ((0, 300), "uint8", (None, None)),
        ((3, 300), pl.UInt8(), (3, None)),
        ((-np.inf, np.inf), "int64", (None, None)),
        ((0.5, 3.5), "Int16", (1, 3)),
        ((300, np.inf), "int8", (300, 127)),
        ((-np.inf, -1), np.dtype("uint64"), (0, -1)),
        ((0.5, 1e39), "float32", (0.5, None)),
        ((0.5, 2.5), object, (0.5, 2.5)),
    ],
)
def test_bounds_as_a_dtype_knows_them(allowed, dtype, expected):
    assert _dtypes.bounds_within(*allowed, dtype, is_whole=False) == expected


def test_bounds_of_narrow_floats_lie_inside():
    low, high = _dtypes.bounds_within(0.1, 0.3, "float32", is_whole=False)
    assert 0.1 <= low < 0.1 + 1e-7 and 0.3 - 1e-7 < high <= 0.3
    assert np.float32(low) == low and np.float32(high) == high


@pytest.mark.parametrize("kind", [int, np.int64])
def test_bounds_near_the_largest_integer_are_not_rounded(kind):
    low, high = -(2**63) + 15, 2**63 - 15
    found = _dtypes.bounds_within(kind(low), kind(high), "int64", is_whole=True)
    assert found == (low, high)
