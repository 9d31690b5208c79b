"""The search that asks for values only."""

import numpy as np
import pytest
import torch
from explainers.analytic import AnalyticProblem, bowl, category, number

from sklearn_clue.explainers import _by_values
from sklearn_clue.explainers._by_values import ValuesYardstick, improve_by_values
from sklearn_clue.explainers._neighbors import StoredRows
from sklearn_clue.explainers._sure import find_sure_rows
from sklearn_clue.explainers._yardstick import Yardstick
from sklearn_clue.schema import FeatureSchema

TILT = torch.tensor([3.0, -1.0, 0.5, 0.0], dtype=torch.float64)


def _normal(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def _yardstick(function, x0, target=0.0):
    return ValuesYardstick(AnalyticProblem(x0, function), target)


def _is_blind(function):
    """A function without slopes, in whatever a search does."""
    return lambda x: function(x.detach()).detach()


def test_slopes_of_a_plane_are_told_by_what_was_judged(monkeypatch):
    monkeypatch.setattr(_by_values, "RIDGE", 1e-9)
    yardstick = _yardstick(_is_blind(lambda x: x @ TILT), torch.zeros(2, 4))
    rows = torch.tensor([0, 1]).repeat(12)
    judged = yardstick.judge(_normal(24, 4), rows)
    asked, slope = yardstick.with_slopes(judged.keep(torch.tensor([3, 6, 9])))
    torch.testing.assert_close(slope, TILT.expand(3, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(asked.uncertainty, asked.x @ TILT)
    # None for the slope, and none for what was judged before.
    assert yardstick.n_judged.tolist() == [12, 12]
    yardstick.with_slopes(judged._replace(x=judged.x + 1).keep(torch.tensor([3, 6, 9])))
    assert yardstick.n_judged.tolist() == [12 + 1, 12 + 2]


def test_nobody_is_asked_about_a_row_twice():
    asked = []

    def remember(x):
        asked.extend(map(tuple, x.tolist()))
        return x @ TILT

    yardstick = _yardstick(remember, torch.zeros(2, 4))
    x, rows = _normal(3, 4)[[0, 1, 0, 2, 0]], torch.tensor([0, 0, 0, 1, 1])
    told = yardstick.uncertainty(x, rows)
    torch.testing.assert_close(told, x @ TILT)
    # What was asked for another row may have other limits.
    assert yardstick.n_judged.tolist() == [2, 2] and len(asked) == 4
    assert torch.equal(yardstick.uncertainty(x, rows), told) and len(asked) == 4


def test_rows_are_known_again_in_any_memory_layout():
    yardstick = _yardstick(lambda x: x @ TILT, torch.zeros(2, 4))
    x, rows = _normal(4, 5).T, torch.tensor([0, 0, 0, 1, 1])
    assert not x.is_contiguous()
    told = yardstick.uncertainty(x, rows)
    torch.testing.assert_close(told, x @ TILT)
    assert torch.equal(yardstick.uncertainty(x.contiguous(), rows), told)
    assert yardstick.n_judged.tolist() == [3, 2]
    assert len(yardstick.uncertainty(x[:0], rows[:0])) == 0


def test_gaps_are_those_to_the_five_nearest_rows_around():
    stored = StoredRows(_normal(200, 4).numpy(), np.zeros(200))
    x0, rows = _normal(3, 4, seed=1), torch.tensor([2] * 20 + [0] * 3)
    yardsticks = [
        kind(AnalyticProblem(x0, bowl), 0.0, stored)
        for kind in (ValuesYardstick, Yardstick)
    ]
    x = x0[rows] + 0.1 * _normal(23, 4, seed=2)
    for yardstick in yardsticks:
        yardstick.look_around(torch.tensor([0, 2]), np.zeros((2, 1), dtype=int))
    ours, known = (yardstick.gaps(x, rows) for yardstick in yardsticks)
    torch.testing.assert_close(ours, known)
    assert torch.equal(yardsticks[0].gaps(x[:1], rows[:1]), ours[:1])
    assert len(yardsticks[0].gaps(x[:0], rows[:0])) == 0


def test_rows_do_not_learn_from_each_other():
    x = _normal(30, 4)

    def slope(rows):
        yardstick = _yardstick(bowl, torch.zeros(2, 4))
        judged = yardstick.judge(x[: len(rows)], rows)
        return yardstick.with_slopes(judged.keep(slice(0, 1)))[1]

    both = torch.tensor([0] * 15 + [1] * 15)
    assert torch.equal(slope(both), slope(both[:15]))
    assert not torch.equal(slope(both), slope(torch.zeros(30, dtype=torch.long)))


def test_a_column_that_never_changed_has_no_slope():
    yardstick = _yardstick(lambda x: x @ TILT, torch.zeros(1, 4))
    x = _normal(10, 4)
    x[:, 0] = 0
    judged = yardstick.judge(x, torch.zeros(10, dtype=torch.long))
    _, slope = yardstick.with_slopes(judged)
    assert (slope[:, 0] == 0).all() and (slope[:, 1] < 0).all()
    # Nothing is known around the first row that is asked about.
    alone = _yardstick(lambda x: x @ TILT, torch.zeros(1, 4))
    _, slope = alone.with_slopes(judged.keep(slice(0, 1)))
    assert (slope == 0).all()


def test_the_budget_is_kept_and_the_cheapest_come_first(monkeypatch):
    monkeypatch.setattr(_by_values, "N_TRIALS", 25)
    yardstick = _yardstick(lambda x: x[:, 0], torch.ones(2, 10))
    x = -torch.ones(8, 10, dtype=torch.float64)
    x *= torch.tensor([4.0, 1, 2, 3, 3, 2, 1, 4])[:, None]
    rows = torch.tensor([0] * 4 + [1] * 4)
    candidates = yardstick.judge(x, rows)
    is_swept = _by_values._within_budget(yardstick, candidates)
    assert is_swept.tolist() == [False, True, True, False, False, True, True, False]
    # Somebody is always taken apart, or nothing would be learned.
    monkeypatch.setattr(_by_values, "N_TRIALS", 5)
    is_swept = _by_values._within_budget(yardstick, candidates)
    assert is_swept.nonzero().flatten().tolist() == [1, 6]


@pytest.mark.parametrize("n_trials", [0, 1000])
def test_needless_columns_are_put_back_on_any_budget(monkeypatch, n_trials):
    monkeypatch.setattr(_by_values, "N_TRIALS", n_trials)
    monkeypatch.setattr(_by_values, "N_PUT_BACK", 10)
    yardstick = _yardstick(_is_blind(lambda x: x[:, 0]), torch.ones(1, 12), 0.5)
    x = 1 + _normal(10, 12)
    x[:, 0] = -x[:, 0].abs()
    candidates = yardstick.judge(x, torch.zeros(10, dtype=torch.long))
    seen = improve_by_values(yardstick, candidates, torch.zeros(10, dtype=torch.long))
    best = seen.keep(yardstick.best(seen))
    assert (best.x[0, 1:] == 1).all() and best.x[0, 0] <= 0.5
    # Without a budget, all but the first try the columns that this one needs.
    assert (yardstick.n_judged < 10 + 12 + 30) == (n_trials == 0)


def test_columns_that_one_needs_are_lent_to_others():
    # Sure once the first column is low: one number does it, farther away.
    yardstick = _yardstick(lambda x: x[:, 0], torch.ones(2, 4))
    rows = torch.tensor([0, 0, 1])
    candidates = yardstick.judge(-_normal(3, 4).abs(), rows)
    lean = candidates.keep(slice(0, 1))
    lean.x[:, 1:] = 1
    lent, whose = _by_values._with_columns_of(yardstick, candidates, lean)
    assert whose.tolist() == [0, 1]  # the third is of another row
    assert torch.equal(lent.x[:, 0], candidates.x[:2, 0]) and (lent.x[:, 1:] == 1).all()


def test_a_row_that_is_nearly_sure_leads_to_a_nearer_one(monkeypatch):
    schema = FeatureSchema(
        (number("age", 0), category("job", 1, "ab"), category("town", 3, "ab"))
    )
    x0 = torch.tensor([[0.0, 1, 0, 1, 0]], dtype=torch.float64)

    def unsure(x):  # sure by both categories, or by one and half of the number
        return 1 - 0.65 * x[:, 2] - 0.65 * x[:, 4] - 0.1 * x[:, 0]

    def nearest():
        problem = AnalyticProblem(x0, unsure, schema, is_differentiable=False)
        yardstick = ValuesYardstick(problem, 0.3)
        x = torch.tensor([[0.5, 0, 1, 0, 1]], dtype=torch.float64)
        rows = torch.zeros(1, dtype=torch.long)
        seen = improve_by_values(yardstick, yardstick.judge(x, rows), rows)
        best = seen.keep(yardstick.best(seen))
        return float(yardstick.distance(best.x, best.rows))

    assert nearest() == pytest.approx(2.5, abs=0.05)
    monkeypatch.setattr(_by_values, "N_NEARLY", 0)
    assert nearest() == 4


def test_what_is_far_dearer_than_the_cheapest_is_not_shortened():
    yardstick = _yardstick(lambda x: x[:, 0], torch.ones(2, 2))
    x = torch.tensor([[0.0, 1], [-0.4, 1], [-1.0, 1], [-9.0, 1]])
    candidates = yardstick.judge(x.double(), torch.tensor([0, 0, 0, 1]))
    kept = _by_values.worth_shortening(yardstick, candidates)
    assert kept.x[:, 0].tolist() == pytest.approx([0, -0.4, -9])


def test_values_do_nearly_as_well_as_slopes(monkeypatch):
    # Nearest in l1 where all slopes are the same, in four columns at once.
    train = _normal(600, 5).numpy()
    x0 = 1 + _normal(12, 5, seed=1).abs() / 2

    def squares(x):
        return x[:, :4].square().sum(1)

    stored = StoredRows(train, squares(torch.as_tensor(train)).numpy())

    def mean_distance(function, **options):
        problem = AnalyticProblem(x0, function)
        found = find_sure_rows(problem, 4.0, stored=stored, demand="row", **options)
        assert found.is_sure.all() and found.n_judged.max() <= 300
        return found.distance.mean()

    by_slopes = mean_distance(squares, use_slopes=True)
    by_values = mean_distance(_is_blind(squares), use_slopes=False, fit_slopes=True)
    assert by_slopes <= by_values <= 1.05 * by_slopes
    monkeypatch.setattr(_by_values, "N_STEPS", 0)
    without = mean_distance(_is_blind(squares), use_slopes=False, fit_slopes=True)
    assert by_values < 0.99 * without


def test_answers_do_not_depend_on_who_shares_the_batch():
    schema = FeatureSchema(
        (number("age", 0), number("rain", 1), category("job", 2, "abc"))
    )
    rng = np.random.default_rng(0)
    train = np.hstack([rng.normal(size=(300, 2)), np.eye(3)[np.arange(300) % 3]])

    def step(x):  # as trees have it
        return (x[:, 0] > 0.3).double() + (x[:, 1] > 0.5).double() - 0.5 * x[:, 4]

    stored = StoredRows(train, step(torch.as_tensor(train)).numpy())
    x0 = np.hstack([1 + rng.uniform(size=(6, 2)), np.eye(3)[[0, 1, 0, 1, 0, 1]]])

    def found(rows):
        problem = AnalyticProblem(x0[rows], step, schema, is_differentiable=False)
        return find_sure_rows(
            problem, 0.6, stored=stored, demand="row", fit_slopes=True
        )

    together = found(range(6))
    assert together.is_sure.all()
    for row in (0, 3, 5):
        alone = found([row])
        assert torch.equal(alone.x[0], together.x[row])
        assert alone.n_judged[0] == together.n_judged[row]
