import pickle

import numpy as np
import pytest

from sklearn_clue.explainers._neighbors import MAX_ROWS, StoredRows


def plausibility_by_definition(train, query):
    """The definition, one row at a time."""

    def mean_of_five(gaps):
        return np.sort(gaps)[:5].mean()

    others = np.array(
        [
            mean_of_five(np.abs(np.delete(train, i, 0) - row).sum(1))
            for i, row in enumerate(train)
        ]
    )
    shares = []
    for row in query:
        gap = mean_of_five(np.abs(train - row).sum(1))
        is_tie = np.isclose(others, gap, rtol=1e-9, atol=0)
        shares.append((((others > gap) & ~is_tie) + 0.5 * is_tie).mean())
    return np.array(shares)


@pytest.mark.parametrize("kind", ["numbers", "duplicates", "categories"])
def test_plausibility_follows_its_definition(kind):
    rng = np.random.default_rng(0)
    train, query = rng.normal(size=(60, 3)), rng.normal(size=(40, 3))
    if kind == "duplicates":
        train = np.repeat(train[:15], 4, axis=0)
        query = np.concatenate([train[:10], query])
    if kind == "categories":  # many ties
        rare = np.minimum(rng.geometric(0.4, size=(50, 2)), 6) - 1
        train = np.eye(6)[rare].reshape(50, -1)
        query = np.eye(6)[rng.integers(6, size=(30, 2))].reshape(30, -1)
    stored = StoredRows(train, np.zeros(len(train)))
    expected = plausibility_by_definition(train, query)
    np.testing.assert_allclose(stored.plausibility(query), expected, atol=1e-12)
    assert 0 <= expected.min() < expected.max() <= 1


def test_a_training_row_counts_as_one_of_its_own_five():
    train = np.arange(8.0)[:, None]
    stored = StoredRows(train, np.zeros(8))
    assert stored.gaps(np.array([[0.0]]))[0] == pytest.approx((0 + 1 + 2 + 3 + 4) / 5)
    assert stored.usual_gaps.max() == pytest.approx((1 + 2 + 3 + 4 + 5) / 5)


def test_widest_gap_is_the_inverse_of_plausibility():
    rng = np.random.default_rng(0)
    stored = StoredRows(rng.normal(size=(200, 2)), np.zeros(200))
    demands = np.array([0.1, 0.35, 0.5, 0.9])
    gaps = stored.widest_gaps(demands)
    assert (stored.shares(gaps) >= demands).all()
    assert (stored.shares(gaps * 1.2) < demands).all()
    assert stored.widest_gaps([0.0])[0] == np.inf


def test_rows_of_zero_weight_and_too_many_rows_are_not_stored():
    x = np.arange(3.0 * MAX_ROWS)[:, None]
    weight = np.where(x[:, 0] % 2, 1.0, 0.0)
    first, again = (StoredRows(x, x[:, 0], weight) for _ in range(2))
    assert len(first) == MAX_ROWS
    assert (first.x % 2 == 1).all()
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.uncertainty, first.x[:, 0])


def test_nearest_sure_rows_come_once_and_the_plausible_first():
    train = np.array([[0.0], [1.0], [1.0], [1.1], [1.2], [1.3], [2.0], [9.0]])
    stored = StoredRows(train, np.array([5, 0, 0, 0, 0, 0, 0, 0.0]))
    rows, uncertainty, _ = stored.nearest_sure(np.zeros((1, 1)), 1.0, 3)
    np.testing.assert_array_equal(rows[0, :, 0], [1.0, 1.1, 1.2])
    assert (uncertainty == 0).all()
    # 9.0 is far from all others, and 2.0 farther than the rest.
    rows, *_ = stored.nearest_sure(np.full((1, 1), 8.0), 1.0, 2, np.array([0.5]))
    np.testing.assert_array_equal(rows[0, :, 0], [1.3, 1.2])
    rows, *_ = stored.nearest_sure(np.zeros((1, 1)), 1.0, 99)
    assert rows.shape[1] == 6  # all there are


def test_answers_do_not_depend_on_other_rows_and_survive_pickling():
    rng = np.random.default_rng(0)
    train = np.eye(6)[rng.integers(6, size=(300, 2))].reshape(300, -1)
    query = train[:50] + rng.normal(size=(50, 12)).round(1)
    stored = StoredRows(train, rng.random(300))
    loaded = pickle.loads(pickle.dumps(stored))
    for method, more in (
        (stored.gaps, ()),
        (stored.nearest_sure, (0.5, 4)),
    ):
        together = method(query, *more)
        alone = [method(query[i : i + 1], *more) for i in range(len(query))]
        reloaded = getattr(loaded, method.__name__)(query, *more)
        if method == stored.gaps:
            together, reloaded, alone = [together], [reloaded], [[a] for a in alone]
        for k, part in enumerate(together):
            np.testing.assert_array_equal(part, np.concatenate([a[k] for a in alone]))
            np.testing.assert_array_equal(part, reloaded[k])
