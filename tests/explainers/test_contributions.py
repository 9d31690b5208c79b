"""Shares of games whose Shapley values are known by formula."""

import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import entropy
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import Explanation, NeighborExplainer, TabularEncoder, Uncertainty
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.explainers._contributions import shapley_of_changes


def single(n_columns):
    return [[column] for column in range(n_columns)]


class Counted:
    """A value that remembers all rows it was asked about."""

    def __init__(self, value):
        self.value, self.rows = value, []

    def __call__(self, x, rows):
        self.rows.extend(map(tuple, x))
        return self.value(x, rows)


@pytest.mark.parametrize("max_exact", [10, 0], ids=["exact", "sampled"])
def test_an_additive_game_gives_each_column_its_own_fall(max_exact):
    rng = np.random.default_rng(0)
    slope, x0, x = rng.normal(size=6), *rng.normal(size=(2, 20, 6))
    result = shapley_of_changes(
        lambda x, rows: x @ slope, x0, x, single(6), max_exact=max_exact
    )
    np.testing.assert_allclose(result.values, (x0 - x) * slope, atol=1e-12)
    np.testing.assert_allclose(result.standard_error, 0, atol=1e-12)


def test_a_product_is_divided_evenly():
    # One of them at zero is enough, and each is the first in a third of the orders.
    x0, x = np.full((1, 3), 2.0), np.zeros((1, 3))
    result = shapley_of_changes(lambda x, rows: x.prod(1), x0, x, single(3))
    np.testing.assert_allclose(result.values, [[8 / 3] * 3])
    # x y from (3, 5) to (1, 2): averages of both orders.
    result = shapley_of_changes(
        lambda x, rows: x.prod(1),
        np.array([[3.0, 5.0]]),
        np.array([[1.0, 2.0]]),
        single(2),
    )
    np.testing.assert_allclose(result.values, [[(10 + 4) / 2, (9 + 3) / 2]], atol=1e-12)


def bent(x, rows=None):
    return np.tanh(x @ np.linspace(-1, 0.9, x.shape[1])) ** 2 + x[:, 0] * x[:, -1]


def test_agrees_with_the_definition():
    rng = np.random.default_rng(1)
    x0, x = rng.normal(size=(2, 1, 5))
    expected = np.zeros(5)
    for order in permutations(range(5)):
        now = x0.copy()
        for column in order:
            old = bent(now)[0]
            now[:, column] = x[:, column]
            expected[column] += (old - bent(now)[0]) / math.factorial(5)
    result = shapley_of_changes(bent, x0, x, single(5))
    np.testing.assert_allclose(result.values[0], expected, atol=1e-12)


@pytest.mark.parametrize("n_columns", [1, 4, 10, 14])
def test_sums_to_the_fall(n_columns):
    rng = np.random.default_rng(2)
    x0, x = rng.normal(size=(2, 7, n_columns))
    x[:3, : n_columns // 2] = x0[:3, : n_columns // 2]  # rows change more or fewer
    result = shapley_of_changes(bent, x0, x, single(n_columns))
    np.testing.assert_allclose(
        result.values.sum(axis=1), bent(x0) - bent(x), atol=1e-12
    )
    assert (result.values[x == x0] == 0).all()


def test_equal_columns_get_equal_shares():
    x0, x = np.zeros((1, 4)), np.ones((1, 4))
    result = shapley_of_changes(lambda x, rows: -np.exp(x.sum(1)), x0, x, single(4))
    np.testing.assert_allclose(result.values, np.expm1(4) / 4)


def test_blocks_change_together():
    # Three indicators of one category, and a number.
    x0 = np.array([[1.0, 0.0, 0.0, 2.0]])
    x = np.array([[0.0, 0.0, 1.0, 2.0]])
    value = Counted(lambda x, rows: x[:, 0] - 3 * x[:, 2] + x[:, 3])
    result = shapley_of_changes(value, x0, x, [slice(0, 3), slice(3, 4)])
    np.testing.assert_allclose(result.values, [[4.0, 0.0]])
    assert all(sum(row[:3]) == 1 for row in value.rows)


def test_missing_values_that_stay_are_no_change():
    x0 = np.array([[np.nan, 1.0]])
    x = np.array([[np.nan, 0.0]])
    result = shapley_of_changes(lambda x, rows: x[:, 1], x0, x, single(2))
    np.testing.assert_allclose(result.values, [[0.0, 1.0]])


@pytest.mark.parametrize("n_columns, n_asked", [(4, 2**4), (12, None)])
def test_each_subset_is_judged_once(n_columns, n_asked):
    value = Counted(bent)
    rng = np.random.default_rng(3)
    x0, x = rng.normal(size=(2, 1, n_columns))
    shapley_of_changes(value, x0, x, single(n_columns), batch_size=5)
    assert len(set(value.rows)) == len(value.rows)
    assert n_asked is None or len(value.rows) == n_asked
    assert len(value.rows) <= 64 * 11 + 2


def test_known_ends_are_not_asked_for():
    value = Counted(bent)
    x0, x = np.zeros((2, 3)), np.ones((2, 3))
    result = shapley_of_changes(
        value, x0, x, single(3), before=np.array([5.0, 7.0]), after=np.array([1.0, 1.0])
    )
    assert len(value.rows) == 2 * (2**3 - 2)
    np.testing.assert_allclose(result.values.sum(axis=1), [4, 6], atol=1e-12)


def test_sampling_errs_by_what_it_says():
    rng = np.random.default_rng(4)
    x0, x = rng.normal(size=(2, 40, 9))
    exact = shapley_of_changes(bent, x0, x, single(9)).values
    drawn = shapley_of_changes(bent, x0, x, single(9), max_exact=8)
    assert (drawn.standard_error > 0).all()
    scores = (drawn.values - exact) / drawn.standard_error
    # Standard normal, more or less: 32 pairs of orders, shared by all rows.
    assert 0.5 < np.sqrt((scores**2).mean()) < 1.6


@pytest.mark.parametrize("max_exact", [10, 2])
def test_a_row_does_not_depend_on_the_others(max_exact):
    rng = np.random.default_rng(5)
    x0, x = rng.normal(size=(2, 30, 6))
    x[rng.random(x.shape) < 0.4] = 0
    x0[rng.random(x.shape) < 0.4] = 0
    options = {"max_exact": max_exact, "seed": 3}
    together = shapley_of_changes(bent, x0, x, single(6), **options).values
    for row in (0, 7, 29):
        alone = shapley_of_changes(
            bent, x0[[row]], x[[row]], single(6), **options
        ).values
        np.testing.assert_allclose(together[[row]], alone, atol=1e-12)


def test_contributions_of_a_model_explain_its_fall():
    X, y = make_classification(200, n_features=6, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["c"] = np.where(frame["c"] > 0, "u", "v")
    encoder = TabularEncoder().fit(frame)
    model = LogisticRegression().fit(encoder.transform(frame), y)

    def entropies(x, rows=None):
        return entropy(model.predict_proba(x), axis=1)

    rows, new = frame[:20].copy(), frame[20:40].set_index(frame.index[:20])
    new["a"], new["f"] = rows["a"], rows["f"]
    x0, x = encoder.transform(rows), encoder.transform(new)
    before, after = entropies(x0), entropies(x)
    found = shapley_of_changes(
        entropies, x0, x, [column.block for column in encoder.schema_]
    )
    np.testing.assert_allclose(found.values.sum(axis=1), before - after, atol=1e-8)
    explanation = Explanation(
        X=rows,
        counterfactuals=new,
        uncertainty_before=Uncertainty(before, before, 0 * before),
        uncertainty_after=Uncertainty(after, after, 0 * after),
        prediction_before=model.predict(x0),
        prediction_after=model.predict(x),
        distance=np.abs(x - x0).sum(axis=1),
        schema=encoder.schema_,
        is_classification=True,
        contributions=found.values,
    )
    drivers = explanation.drivers().set_index("feature")
    assert drivers.loc[["a", "f"], "n_changed"].tolist() == [0, 0]
    assert drivers["mean_contribution"].sum() == pytest.approx((before - after).mean())


def test_the_columns_that_carry_known_uncertainty_come_first():
    toy, rng = make_mixed_toy(1500, random_state=0), np.random.default_rng(0)
    useless = {
        "colour": rng.choice(["red", "green"], 1500),
        "age": rng.normal(10, 3, 1500),
        "shelf": rng.normal(size=1500),
    }
    X = toy.data.assign(**useless)
    forest = RandomForestClassifier(50, min_samples_leaf=10, random_state=0)
    model = make_pipeline(TabularEncoder(), forest)
    explainer = NeighborExplainer(model, target_uncertainty=0.5).fit(X, toy.target)
    rejected = X[explainer.rejects(X)][:60]
    drivers = explainer.explain(rejected).drivers().set_index("feature")
    # What the exact uncertainty moves by if a column gets the values of other rows.
    carried = {
        name: np.abs(
            toy.aleatoric(X.assign(**{name: X[name].to_numpy()[rng.permutation(1500)]}))
            - toy.aleatoric(X)
        ).mean()
        for name in X
    }
    first = sorted(carried, key=carried.get)[::-1][:3]
    assert set(drivers.index[:3]) == set(first) == {"length", "weight", "material"}
    assert set(drivers.index[:2]) == {"length", "material"}  # a boundary, and glass
    assert drivers.loc[list(useless), "share"].abs().max() < 0.01


def test_no_rows_and_no_changes():
    result = shapley_of_changes(bent, np.ones((2, 3)), np.ones((2, 3)), single(3))
    assert result.values.shape == (2, 3) and not result.values.any()
    empty = shapley_of_changes(bent, np.ones((0, 3)), np.ones((0, 3)), single(3))
    assert empty.values.shape == (0, 3)
