"""The search on its own: known answers, without any model."""

import numpy as np
import pytest
import torch

from sklearn_clue.explainers._objectives import Ball, Objective, Penalty, Threshold
from sklearn_clue.explainers._search import (
    Parabola,
    Point,
    StoppingRule,
    adam,
    curvature_between,
    evaluate,
    minimise_rows,
)
from tests.explainers.conftest import Toy


def objective_of(costly, home, weight=1.0, decode=None):
    return Penalty(Toy(costly, home, decode), weight)


def run(objective, start, **settings):
    rows = torch.arange(len(start))
    starts = [evaluate(objective.problem, objective, start, rows)]
    return minimise_rows(objective.problem, objective, starts, **settings)


def value_at(objective, x):
    rows = torch.arange(len(x))
    return objective.value(objective.cost(x, rows), x, rows)


def check_path(result, objective):
    """The path tells where each step went and what it was worth, and the best wins."""
    rows = torch.arange(len(result.value))
    assert torch.equal(result.path_z.isnan().any(2), result.path_value.isnan())
    for z, value in zip(result.path_z.unbind(1), result.path_value.T, strict=True):
        asked = rows[~value.isnan()]
        x = objective.problem.decode(z[asked], asked)
        expected = objective.value(objective.cost(x, asked), x, asked)
        torch.testing.assert_close(value[asked], expected)
    path = result.path_value.nan_to_num(nan=torch.inf)
    torch.testing.assert_close(result.value, path.min(1).values)


def soft_threshold(x, amount):
    return x.sign() * (x.abs() - amount).clamp_min(0)


def bowl_problem(n_rows=7, n_latent=3, weight=0.6, seed=0):
    """A quadratic bowl around `center`, and an l1 distance from the origin."""
    generator = torch.Generator().manual_seed(seed)
    center = torch.randn(n_rows, n_latent, generator=generator, dtype=torch.float64)

    def costly(x, rows):
        return 0.5 * (x - center[rows]).square().sum(1)

    return center, objective_of(costly, torch.zeros_like(center), weight)


PATIENT = StoppingRule(max_iter=300, tol=0.0, n_iter_no_change=20)


def test_soft_threshold_is_found():
    # argmin ½|x - c|² + w|x|₁ is the soft threshold of c at w.
    center, objective = bowl_problem()
    result = run(objective, torch.ones_like(center), rule=PATIENT)
    expected = soft_threshold(center, 0.6)
    torch.testing.assert_close(result.best.x, expected, atol=1e-2, rtol=0)
    least = value_at(objective, expected)
    torch.testing.assert_close(result.value, least, atol=1e-3, rtol=0)


def test_minimum_through_a_decoder():
    # x = z², so that the optimum of a bowl at 2 is z = √2.
    objective = objective_of(
        lambda x, rows: (x - 2).square().sum(1),
        torch.zeros(4, 1),
        0.0,
        lambda z, rows: z.square(),
    )
    result = run(objective, torch.ones(4, 1, dtype=torch.float64), rule=PATIENT)
    torch.testing.assert_close(
        result.best.z, torch.full((4, 1), 2**0.5).double(), atol=1e-2, rtol=0
    )


def far_bowl(x, rows):
    """Least at (3, 0), and there is nothing else to prefer."""
    return (x - torch.tensor([3.0, 0.0])).square().sum(1)


def test_threshold_is_met_on_the_shortest_way():
    # |x - (3, 0)|² = 4 holds first at (1, 0), and nothing pays beyond.
    problem = Toy(far_bowl, torch.zeros(1, 2))
    objective = Threshold(problem, target=4.0)
    start = torch.tensor([[0.5, 0.5]]).double()
    result = run(objective, start, rule=PATIENT, learning_rate=0.05)
    torch.testing.assert_close(
        result.best.x, torch.tensor([[1.0, 0.0]]).double(), atol=0.02, rtol=0
    )
    assert result.value[0] == pytest.approx(1.0, abs=0.03)


def test_ball_and_projection_keep_a_search_inside():
    problem = Toy(far_bowl, torch.zeros(1, 2))
    start = torch.zeros(1, 2).double()
    # Within an l1 distance of 1, the corner (1, 0) is nearest to (3, 0).
    inside = run(Ball(problem, 1.0), start, rule=PATIENT)
    assert inside.best.x.abs().sum() <= 1 and inside.value[0] < 4.5

    def project(z, rows):
        return z * (1 / z.norm(dim=1, keepdim=True).clamp_min(1))

    projected = run(Objective(problem), start, rule=PATIENT, project=project)
    assert (projected.path_z[0].norm(dim=1).nan_to_num(0.0) <= 1 + 1e-9).all()
    torch.testing.assert_close(
        projected.best.x, torch.tensor([[1.0, 0.0]]).double(), atol=0.01, rtol=0
    )


def test_objective_never_rises_and_belongs_to_the_returned_row():
    _, objective = bowl_problem(n_rows=40)
    start = torch.linspace(-6, 6, 120).double().view(40, 3)
    result = run(objective, start)
    assert (result.value <= value_at(objective, start)).all()
    torch.testing.assert_close(result.value, value_at(objective, result.best.x))
    check_path(result, objective)


def test_rows_are_independent():
    center, objective = bowl_problem(n_rows=30)
    start = torch.linspace(-2, 2, 90).double().view(30, 3)
    together = run(objective, start)
    assert len(set(together.n_iter.tolist())) > 1  # some left the batch before others
    for row in (0, 13, 29):
        mine = objective_of(
            lambda x, rows, row=row: objective.cost(x, rows + row),
            objective.x0[row : row + 1],
            objective.weight[row : row + 1],
        )
        alone = run(mine, start[row : row + 1])
        torch.testing.assert_close(alone.best.z[0], together.best.z[row])
        assert alone.n_iter[0] == together.n_iter[row]
        n_steps = alone.path_value.shape[1]
        assert n_steps == alone.n_iter[0] + 2  # and the first and the best start
        torch.testing.assert_close(
            alone.path_z[0], together.path_z[row, :n_steps], equal_nan=True
        )
        assert together.path_value[row, n_steps:].isnan().all()


def test_best_of_several_starts_is_taken():
    center, objective = bowl_problem()
    rows = torch.arange(len(center))
    far, near = (
        evaluate(objective.problem, objective, z, rows)
        for z in (center + 9, soft_threshold(center, 0.6))
    )
    rule = StoppingRule(max_iter=1)
    result = minimise_rows(objective.problem, objective, [far, near], rule=rule)
    least = objective.value(near.cost, near.x, rows)
    assert (result.value <= least).all()
    # The path begins at the first of them, which the rule compares with.
    torch.testing.assert_close(result.path_z[:, 0], far.z)
    torch.testing.assert_close(result.path_z[:, 1], near.z)
    torch.testing.assert_close(result.path_value[:, 1], least)


def test_legs_follow_each_other():
    """A leg is the search that would start where the one before has ended."""
    center, single = bowl_problem(n_rows=9)
    n_rows = len(center)
    home = torch.zeros_like(center)
    start = evaluate(single.problem, single, home + 2, torch.arange(n_rows))
    weights = torch.tensor([0.2, 0.6, 5.0]).double()
    objective = objective_of(
        lambda x, searches: single.cost(x, searches % n_rows),
        home.repeat(3, 1),
        weights.repeat_interleave(n_rows),
    )
    result = minimise_rows(objective.problem, objective, [start], n_legs=3)
    assert len(set(result.n_iter.tolist())) > 1  # so that rows are in different legs
    starts = [start]
    for leg, weight in enumerate(weights):
        alone = minimise_rows(single.problem, Penalty(single.problem, weight), starts)
        part = result.keep(slice(leg * n_rows, (leg + 1) * n_rows))
        torch.testing.assert_close(part.best, alone.best)
        torch.testing.assert_close(part.value, alone.value)
        assert torch.equal(part.n_iter, alone.n_iter)
        assert torch.equal(part.converged, alone.converged)
        n_points = alone.path_value.shape[1]
        torch.testing.assert_close(
            part.path_z[:, :n_points], alone.path_z, equal_nan=True
        )
        assert part.path_value[:, n_points:].isnan().all()
        starts = [start, alone.best]


def test_values_that_are_no_numbers_are_never_taken():
    def costly(x, rows):
        return torch.where(x[:, 0] < 0.5, torch.nan, x[:, 0])

    nowhere = objective_of(costly, torch.zeros(3, 1), 0.0)
    result = run(nowhere, torch.ones(3, 1).double())
    assert result.value.isfinite().all()
    assert (result.best.x >= 0.5).all()


def test_what_the_parabola_cannot_improve_is_not_asked_about():
    n_asked = []

    def costly(x, rows):
        n_asked.append(len(x))
        return 0 * x[:, 0]

    # At the optimum of the distance, and the cost is flat.
    at_home = torch.zeros(5, 2, dtype=torch.float64)
    result = run(objective_of(costly, at_home), at_home)
    assert result.converged.all()
    assert sum(n_asked) == 5  # the start alone


def test_curvature_is_that_of_a_parabola():
    rows = torch.arange(2)

    def parabola(x, rows):
        return x.sum(1) + torch.tensor([1.5, -2.0])[rows] * x.square().sum(1)

    objective = objective_of(parabola, torch.zeros(2, 3))
    here, there = (
        evaluate(objective.problem, objective, torch.full((2, 3), at).double(), rows)
        for at in (1.0, -0.5)
    )
    curvature = curvature_between(here, there)
    torch.testing.assert_close(curvature, torch.tensor([3.0, 0.0]).double())
    assert torch.equal(curvature_between(here, here), torch.zeros(2).double())
    for nowhere in (torch.nan, torch.inf, -torch.inf):
        beyond = there._replace(cost=torch.full((2,), nowhere).double())
        assert torch.equal(curvature_between(here, beyond), torch.zeros(2).double())
    # And the parabola meets the cost at the point where its curvature was found.
    cost, slope = Parabola(here.cost, here.slope, curvature).at(there.x - here.x)
    torch.testing.assert_close(cost[0], there.cost[0])
    torch.testing.assert_close(slope[0], there.slope[0])


def test_a_jump_is_not_promised_twice():
    # The first coordinate is a category behind a hard threshold. By its slope, the
    # flip is the best that can be done; it is not, and hides what the second offers.
    def decode(z, rows):
        hard = (z[:, :1] > 0.02).to(z) + z[:, :1] - z[:, :1].detach()
        return torch.cat([hard, z[:, 1:]], 1)

    def costly(x, rows):
        return 4 * x[:, 0] * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1).square()

    start = torch.zeros(3, 2).double()
    objective = objective_of(costly, start, 0.1, decode)
    result = run(objective, start)
    check_path(result, objective)
    # The first step is the flip: asked about, and not taken.
    first = run(objective, start, rule=StoppingRule(max_iter=1))
    check_path(first, objective)
    assert (first.path_value[:, 2] > first.value).all()
    assert torch.equal(first.best.z, start)
    # The optimum of the second coordinate is 0.9, by soft threshold.
    assert (result.best.x[:, 0] == 0).all() and (result.best.x[:, 1] > 0.5).all()


def test_adam_matches_torch():
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    anchor = torch.tensor([[1.0, 1.0], [-3.0, -2.0]], dtype=torch.float64)
    curvature = torch.tensor([0.0, 0.8], dtype=torch.float64)
    rows = torch.arange(2)

    def decode(z, rows):
        return z.square() + torch.tensor([[1.0], [0.5]])[rows] * z

    def function(z):
        x = decode(z, rows)
        bend = curvature / 2 * (x - decode(start, rows)).square().sum(1)
        return (slope * x).sum(1) + bend + 0.7 * (x - anchor).abs().sum(1)

    start = torch.full((2, 2), 0.3, dtype=torch.float64)
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.1)
    steps = [start]
    for _ in range(7):
        optimizer.zero_grad()
        function(weights).sum().backward()
        optimizer.step()
        steps.append(weights.detach().clone())
    values = torch.stack([function(step) for step in steps])
    best = values.argmin(0)
    objective = objective_of(None, anchor, 0.7, decode)
    z, x, gain = adam(
        objective.problem,
        objective,
        start,
        rows,
        n_steps=7,
        learning_rate=0.1,
        cost=Parabola(torch.zeros(2).double(), slope, curvature),
    )
    torch.testing.assert_close(z, torch.stack(steps)[best, rows])
    torch.testing.assert_close(x, decode(z, rows))
    torch.testing.assert_close(gain, values[0] - values.min(0).values)
    assert (gain > 0).all()


def test_adam_returns_its_best_step():
    home = torch.zeros(3, 2).double()
    objective, rows = objective_of(None, home), torch.arange(3)
    z, x, gain = adam(
        objective.problem, objective, home, rows, n_steps=5, learning_rate=1.0
    )
    assert torch.equal(z, home) and torch.equal(x, home)
    assert torch.equal(gain, torch.zeros(3).double())


def test_coordinates_at_home_stay_unless_the_slope_outweighs_the_distance():
    objective = objective_of(None, torch.zeros(1, 4))
    x = torch.tensor([[0.0, 0.0, 2.0, -2.0]]).double()
    slope = torch.tensor([[0.9, -1.5, 0.2, 0.2]]).double()
    gradient = objective.gradient(None, slope, x, torch.tensor([0]))
    expected = torch.tensor([[0.0, -0.5, 1.2, -0.8]]).double()
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("kind", [Objective, Penalty, Threshold])
def test_gradients_are_those_of_the_values(kind):
    """Away from kinks, whatever the objective does with the cost."""
    problem = Toy(far_bowl, torch.zeros(5, 2))
    objective = kind(problem, 0.7)
    x = torch.linspace(-2, 3, 10).double().view(5, 2).requires_grad_()
    rows = torch.arange(5)
    cost = objective.cost(x, rows)
    (slope,) = torch.autograd.grad(cost.sum(), x, retain_graph=True)
    (expected,) = torch.autograd.grad(objective.value(cost, x, rows).sum(), x)
    torch.testing.assert_close(objective.gradient(cost, slope, x, rows), expected)


def watch(rule, values):
    """Steps until a row with these objectives stops, and whether at rest."""
    values = torch.as_tensor(values, dtype=torch.float64)[:, None]
    state = rule.begin(values[0])
    for step, value in enumerate(values[1:], start=1):
        state, is_at_rest, is_last = rule.update(state, value)
        if is_at_rest[0] or is_last[0]:
            return step, bool(is_at_rest[0])
    return None, False


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Three consecutive decreases below 1 % of the first value.
        ([10, 9.95, 9.9, 9.85, 0], (3, True)),
        # A large one in between starts the count anew.
        ([10, 9.95, 9.0, 8.95, 8.9, 8.85], (5, True)),
        # 1 % of the first value, not of the current one.
        ([10, 5, 4.95, 4.9, 4.85], (4, True)),
        # A rise is a small decrease.
        ([10, 11, 12, 13], (3, True)),
        # Exactly 1 % is not below.
        ([100, 99, 98, 97, 96, 95], (None, False)),
    ],
)
def test_stopping_rule_of_the_paper(values, expected):
    assert watch(StoppingRule(), values) == expected


def test_stopping_rule_limits():
    flat = np.full(50, 10.0)
    assert watch(StoppingRule(), flat) == (3, True)
    assert watch(StoppingRule(min_iter=8), flat) == (8, True)
    assert watch(StoppingRule(n_iter_no_change=5), flat) == (5, True)
    steep = 100 * 0.9 ** np.arange(50)
    assert watch(StoppingRule(max_iter=4), steep) == (4, False)
    assert watch(StoppingRule(tol=0.5), steep) == (3, True)


def test_points_are_replaced_row_by_row():
    point = Point(*(torch.zeros(3, 2) for _ in range(4)))
    point.replace(torch.tensor([2]), Point(*(torch.ones(1, 2) for _ in range(4))))
    assert torch.equal(point.keep(torch.tensor([2])).x, torch.ones(1, 2))
    assert torch.equal(point.x[:2], torch.zeros(2, 2))
