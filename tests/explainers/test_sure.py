import numpy as np
import pytest
import torch
from explainers.analytic import AnalyticProblem, bowl, category, number, plane

from sklearn_clue.explainers._neighbors import StoredRows
from sklearn_clue.explainers._sure import find_sure_rows
from sklearn_clue.schema import FeatureSchema

EVERYONE = ("neighbors", "columns", "latents", "noise", "latent_neighbors")
DEFAULT = ("neighbors", "columns", "noise")


@pytest.fixture(scope="module")
def train():
    return np.random.default_rng(0).normal(size=(400, 4))


def stored_rows(x, function):
    return StoredRows(x, function(torch.as_tensor(x)).numpy())


@pytest.mark.parametrize("use_slopes", [True, False])
def test_one_column_of_a_plane(train, use_slopes):
    problem = AnalyticProblem([[1.5, 0.3, -0.2, 0.1]], plane)
    found = find_sure_rows(
        problem, 0.5, stored=stored_rows(train, plane), use_slopes=use_slopes
    )
    assert found.is_sure.all() and found.is_plausible.all()
    expected = torch.tensor([0.5, 0.3, -0.2, 0.1]).double()
    torch.testing.assert_close(found.x[0, 0], expected, atol=0.05, rtol=0)
    np.testing.assert_array_equal(found.x[0, 0, 1:], problem.x0[0, 1:])


@pytest.mark.parametrize("proposers", [("neighbors",), ("columns",), EVERYONE])
def test_nearest_point_of_a_ball(train, proposers):
    # The l1 distance to a ball is least along the largest coordinate.
    problem = AnalyticProblem([[2.0, 0.5, 0.0, 0.0], [0.0, 0.5, -2.5, 0.0]], bowl)
    stored = stored_rows(train, bowl)
    found = find_sure_rows(problem, 1.25, stored=stored, proposers=proposers)
    torch.testing.assert_close(
        found.distance[:, 0], torch.tensor([1.0, 1.5]).double(), atol=0.05, rtol=0
    )
    assert (found.uncertainty <= 1.25).all()


def test_a_step_of_a_category():
    schema = FeatureSchema((number("age", 0), category("job", 1, "abc")))
    rng = np.random.default_rng(0)
    train = np.column_stack([rng.normal(size=90), np.eye(3)[np.arange(90) % 3]])

    def step(x):
        return 1 - x[:, 3]

    problem = AnalyticProblem([[0.2, 1, 0, 0]], step, schema, is_differentiable=False)
    found = find_sure_rows(problem, 0.5, stored=stored_rows(train, step), demand="row")
    torch.testing.assert_close(found.x[0, 0], torch.tensor([0.2, 0, 0, 1]).double())


def test_sure_rows_come_back_as_they_are_at_no_cost(train):
    problem = AnalyticProblem([[0.1, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]], bowl)
    found = find_sure_rows(problem, 1.0, stored=stored_rows(train, bowl), demand="row")
    np.testing.assert_array_equal(found.x[0, 0], problem.x0[0])
    assert found.n_judged[0] == 1 and found.distance[0, 0] == 0
    assert found.is_sure.all() and found.is_plausible.all()


def test_demand_holds_and_costs_distance(train):
    # Rows far off the line of the training rows are implausible.
    line = train.copy()
    line[:, 1:] = line[:, :1] + 0.05 * train[:, 1:]
    stored = stored_rows(line, plane)
    problem = AnalyticProblem(np.full((3, 4), [[1.0], [1.5], [2.0]]), plane)
    free = find_sure_rows(problem, 0.0, stored=stored)
    kept = find_sure_rows(problem, 0.0, stored=stored, demand="row")
    assert free.is_sure.all() and kept.is_sure.all() and kept.is_plausible.all()
    demanded = np.minimum(stored.plausibility(problem.x0.numpy()), 0.5)
    assert (kept.plausibility[:, 0].numpy() >= demanded).all()
    assert (free.plausibility[:, 0].numpy() < demanded).all()
    assert (kept.distance > free.distance + 1).all()


@pytest.mark.parametrize("use_slopes", [True, False])
def test_a_demand_on_many_columns_does_not_change_all_of_them(use_slopes):
    """Rows of many columns are far from each other: a tenth of that is a long way."""
    rng = np.random.default_rng(0)
    train, x0 = rng.normal(size=(500, 40)), rng.normal(size=(5, 40))
    x0[:, 0] = [1.5, 1.8, 2.0, 2.2, 2.5]
    found = find_sure_rows(
        AnalyticProblem(x0, plane),
        1.0,
        stored=stored_rows(train, plane),
        demand="row",
        use_slopes=use_slopes,
    )
    assert found.is_sure.all() and found.is_plausible.all()
    assert (found.distance[:, 0].numpy() < 1.3 * (x0[:, 0] - 1)).all()
    n_changed = (found.x[:, 0] != torch.as_tensor(x0)).sum(1)
    assert n_changed.double().mean() <= 3


def _far_bowl(x):  # sure where there are few rows
    return bowl(x - 1)


def test_compromises_are_marked_and_never_less_sure(train):
    stored = stored_rows(train, bowl)
    x0 = [[2.0, 2.0, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0]]
    problem = AnalyticProblem(x0, bowl, low=-10.0, high=10.0)
    near = find_sure_rows(problem, 0.5, stored=stored, max_distance=0.4)
    assert not near.is_sure.any()
    assert (near.distance <= 0.4).all()
    assert (near.uncertainty[:, 0] < bowl(problem.x0)).all()
    # Sure but less plausible than demanded comes before unsure.
    problem = AnalyticProblem(x0, _far_bowl, low=-10.0, high=10.0)
    stored = stored_rows(train, _far_bowl)
    strict = find_sure_rows(problem, 0.1, stored=stored, demand=1.0, margin=0.0)
    assert strict.is_sure.all() and not strict.is_plausible.any()
    # Nothing can be changed.
    fixed = AnalyticProblem(x0[:1], bowl, low=x0[:1], high=x0[:1])
    stuck = find_sure_rows(fixed, 0.5, stored=stored, demand="row")
    np.testing.assert_array_equal(stuck.x[0, 0], fixed.x0[0])
    assert not stuck.is_sure.any() and stuck.distance[0, 0] == 0


def test_answers_change_different_columns(train):
    def tilted(x):
        return x @ torch.tensor([1.0, 0.9, 0.8, 0.7]).double()

    problem = AnalyticProblem([[1.0, 1.1, 1.2, 1.3]], tilted)
    stored = stored_rows(train, tilted)
    found = find_sure_rows(problem, 3.0, stored=stored, n_explanations=3)
    assert found.n_found[0] == 3 and found.is_sure.all()
    sets = {tuple((x != problem.x0[0]).tolist()) for x in found.x[0]}
    assert len(sets) == 3
    # Where only one column matters there is only one answer.
    problem = AnalyticProblem([[1.0, 0.0, 0.0, 0.0]], plane)
    found = find_sure_rows(
        problem, 0.5, stored=stored_rows(train, plane), n_explanations=3
    )
    assert found.n_found[0] == 1
    torch.testing.assert_close(found.x[0, 2], found.x[0, 0])


def wave(x):
    return x.square().sum(1) + torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]


@pytest.mark.parametrize("proposers", [("neighbors",), DEFAULT])
def test_rows_do_not_depend_on_each_other_and_judgements_are_bounded(train, proposers):
    x0 = np.random.default_rng(1).normal(size=(12, 4)) + 1.5
    stored = stored_rows(train, wave)
    ask = {"stored": stored, "demand": "row", "proposers": proposers}
    together = find_sure_rows(AnalyticProblem(x0, wave), 1.0, **ask)
    again = find_sure_rows(AnalyticProblem(x0, wave), 1.0, **ask)
    for a, b in zip(together, again, strict=True):
        np.testing.assert_array_equal(a, b)
    for i in (0, 5, 11):
        alone = find_sure_rows(AnalyticProblem(x0[i : i + 1], wave), 1.0, **ask)
        torch.testing.assert_close(alone.x[0], together.x[i], atol=1e-9, rtol=0)
        assert alone.n_judged[0] == together.n_judged[i]
    assert together.n_judged.max() <= (300 if proposers == DEFAULT else 150)


def test_all_proposers_together_are_no_farther_than_each_alone(train):
    x0 = np.random.default_rng(2).normal(size=(30, 4)) + 1.5
    problem, stored = AnalyticProblem(x0, wave), stored_rows(train, wave)
    together = find_sure_rows(problem, 1.0, stored=stored)
    assert together.is_sure.all()
    for proposer in DEFAULT:
        alone = find_sure_rows(problem, 1.0, stored=stored, proposers=(proposer,))
        is_sure = alone.is_sure
        assert is_sure.double().mean() > 0.3  # enough of them to compare
        ours, theirs = (found.distance[is_sure].mean() for found in (together, alone))
        assert ours <= 1.001 * theirs


def test_every_value_of_a_number_with_few_of_them_is_tried():
    train = np.random.default_rng(0).integers(0, 8, size=(500, 2)).astype(float)
    train[:450, 0] = 0.0  # so that quantiles of the column hold two values

    def only_three(x):
        return 1.0 - (x[:, 0] == 3).double()

    problem = AnalyticProblem([[0.0, 1.0]], only_three, is_differentiable=False)
    found = find_sure_rows(
        problem,
        0.5,
        stored=stored_rows(train, only_three),
        proposers=("columns",),
        use_slopes=False,
    )
    assert found.x[0, 0].tolist() == [3.0, 1.0]
