"""The search on its own: known answers, without any model."""

import numpy as np
import pytest
import torch

from sklearn_clue.explainers._search import (
    L1Distance,
    Point,
    StoppingRule,
    adam,
    curvature_between,
    evaluate,
    minimise_rows,
)


def identity(z, rows):
    return z


def run(costly, cheap, start, decode=identity, **settings):
    rows = torch.arange(len(start))
    starts = [evaluate(decode, costly, start, rows)]
    return minimise_rows(decode, costly, cheap, starts, **settings)


def check_path(result, costly, cheap, decode=identity):
    """The path tells where each step went and what it was worth, and the best wins."""
    rows = torch.arange(len(result.value))
    assert torch.equal(result.path_z.isnan().any(2), result.path_value.isnan())
    for z, value in zip(result.path_z.unbind(1), result.path_value.T, strict=True):
        asked = rows[~value.isnan()]
        x = decode(z[asked], asked)
        torch.testing.assert_close(value[asked], costly(x, asked) + cheap(x, asked))
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

    return center, costly, L1Distance(torch.zeros_like(center), weight)


PATIENT = StoppingRule(max_iter=300, tol=0.0, n_iter_no_change=20)


def test_soft_threshold_is_found():
    # argmin ½|x - c|² + w|x|₁ is the soft threshold of c at w.
    center, costly, cheap = bowl_problem()
    result = run(costly, cheap, torch.ones_like(center), rule=PATIENT)
    expected = soft_threshold(center, 0.6)
    torch.testing.assert_close(result.best.x, expected, atol=1e-2, rtol=0)
    least = costly(expected, torch.arange(7)) + cheap(expected, torch.arange(7))
    torch.testing.assert_close(result.value, least, atol=1e-3, rtol=0)


def test_minimum_through_a_decoder():
    # x = z², so that the optimum of a bowl at 2 is z = √2.
    def decode(z, rows):
        return z.square()

    result = run(
        lambda x, rows: (x - 2).square().sum(1),
        L1Distance(torch.zeros(4, 1), 0.0),
        torch.ones(4, 1, dtype=torch.float64),
        decode=decode,
        rule=PATIENT,
    )
    torch.testing.assert_close(
        result.best.z, torch.full((4, 1), 2**0.5).double(), atol=1e-2, rtol=0
    )


def test_objective_never_rises_and_belongs_to_the_returned_row():
    center, costly, cheap = bowl_problem(n_rows=40)
    start = torch.linspace(-6, 6, 120).double().view(40, 3)
    result = run(costly, cheap, start)
    rows = torch.arange(len(start))
    assert (result.value <= costly(start, rows) + cheap(start, rows)).all()
    torch.testing.assert_close(
        result.value, costly(result.best.x, rows) + cheap(result.best.x, rows)
    )
    check_path(result, costly, cheap)


def test_rows_are_independent():
    center, costly, cheap = bowl_problem(n_rows=30)
    start = torch.linspace(-2, 2, 90).double().view(30, 3)
    together = run(costly, cheap, start)
    assert len(set(together.n_iter.tolist())) > 1  # some left the batch before others
    for row in (0, 13, 29):
        alone = run(
            lambda x, rows, row=row: costly(x, rows + row),
            L1Distance(cheap.anchor[row:], cheap.weight[row:]),
            start[row : row + 1],
        )
        torch.testing.assert_close(alone.best.z[0], together.best.z[row])
        assert alone.n_iter[0] == together.n_iter[row]
        n_steps = alone.path_value.shape[1]
        assert n_steps == alone.n_iter[0] + 2  # and the first and the best start
        torch.testing.assert_close(
            alone.path_z[0], together.path_z[row, :n_steps], equal_nan=True
        )
        assert together.path_value[row, n_steps:].isnan().all()


def test_best_of_several_starts_is_taken():
    center, costly, cheap = bowl_problem()
    rows = torch.arange(len(center))
    far = evaluate(identity, costly, center + 9, rows)
    near = evaluate(identity, costly, soft_threshold(center, 0.6), rows)
    rule = StoppingRule(max_iter=1)
    result = minimise_rows(identity, costly, cheap, [far, near], rule=rule)
    least = near.costly + cheap(near.x, rows)
    assert (result.value <= least).all()
    # The path begins at the first of them, which the rule compares with.
    torch.testing.assert_close(result.path_z[:, 0], far.z)
    torch.testing.assert_close(result.path_z[:, 1], near.z)
    torch.testing.assert_close(result.path_value[:, 1], least)


def test_legs_follow_each_other():
    """A leg is the search that would start where the one before has ended."""
    center, costly, _ = bowl_problem(n_rows=9)
    n_rows, n_latent = center.shape
    home = torch.zeros_like(center)
    start = evaluate(identity, costly, home + 2, torch.arange(n_rows))
    weights = torch.tensor([0.2, 0.6, 5.0]).double()
    result = minimise_rows(
        identity,
        lambda x, searches: costly(x, searches % n_rows),
        L1Distance(home.repeat(3, 1), weights.repeat_interleave(n_rows)),
        [start],
        n_legs=3,
    )
    assert len(set(result.n_iter.tolist())) > 1  # so that rows are in different legs
    starts = [start]
    for leg, weight in enumerate(weights):
        alone = minimise_rows(identity, costly, L1Distance(home, weight), starts)
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

    nowhere = L1Distance(torch.zeros(3, 1), 0.0)
    result = run(costly, nowhere, torch.ones(3, 1).double())
    assert result.value.isfinite().all()
    assert (result.best.x >= 0.5).all()


def test_what_the_parabola_cannot_improve_is_not_asked_about():
    n_asked = []

    def costly(x, rows):
        n_asked.append(len(x))
        return 0 * x[:, 0]

    # At the optimum of the distance, and the costly function is flat.
    at_home = torch.zeros(5, 2, dtype=torch.float64)
    result = run(costly, L1Distance(at_home), at_home)
    assert result.converged.all()
    assert sum(n_asked) == 5  # the start alone


def test_curvature_is_that_of_a_parabola():
    rows = torch.arange(2)

    def parabola(x, rows):
        return x.sum(1) + torch.tensor([1.5, -2.0])[rows] * x.square().sum(1)

    here, there = (
        evaluate(identity, parabola, torch.full((2, 3), at).double(), rows)
        for at in (1.0, -0.5)
    )
    curvature = curvature_between(here, there)
    torch.testing.assert_close(curvature, torch.tensor([3.0, 0.0]).double())
    assert torch.equal(curvature_between(here, here), torch.zeros(2).double())
    for nowhere in (torch.nan, torch.inf, -torch.inf):
        beyond = there._replace(costly=torch.full((2,), nowhere).double())
        assert torch.equal(curvature_between(here, beyond), torch.zeros(2).double())


def test_a_jump_is_not_promised_twice():
    # The first coordinate is a category behind a hard threshold. By its slope, the
    # flip is the best that can be done; it is not, and hides what the second offers.
    def decode(z, rows):
        hard = (z[:, :1] > 0.02).to(z) + z[:, :1] - z[:, :1].detach()
        return torch.cat([hard, z[:, 1:]], 1)

    def costly(x, rows):
        return 4 * x[:, 0] * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1).square()

    start = torch.zeros(3, 2).double()
    distance = L1Distance(start, 0.1)
    result = run(costly, distance, start, decode=decode)
    check_path(result, costly, distance, decode)
    # The first step is the flip: asked about, and not taken.
    first = run(costly, distance, start, decode=decode, rule=StoppingRule(max_iter=1))
    check_path(first, costly, distance, decode)
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
    distance = L1Distance(anchor, 0.7)
    z, gain = adam(decode, distance, slope, start, rows, 7, 0.1, curvature)
    torch.testing.assert_close(z, torch.stack(steps)[best, rows])
    torch.testing.assert_close(gain, values[0] - values.min(0).values)
    assert (gain > 0).all()
    # Without a curvature, it is none.
    straight = [
        adam(decode, distance, slope, start, rows, 7, 0.1, *c) for c in ([0], [])
    ]
    torch.testing.assert_close(*straight)


def test_adam_returns_its_best_step():
    home = torch.zeros(3, 2)
    z, gain = adam(identity, L1Distance(home), 0.0, home, torch.arange(3), 5, 1.0)
    assert torch.equal(z, home) and torch.equal(gain, torch.zeros(3))


def test_coordinates_at_home_stay_unless_the_slope_outweighs_the_distance():
    distance = L1Distance(torch.zeros(1, 4), 1.0)
    x = torch.tensor([[0.0, 0.0, 2.0, -2.0]])
    slope = torch.tensor([[0.9, -1.5, 0.2, 0.2]])
    gradient = distance.gradient(x, torch.tensor([0]), slope)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, -0.5, 1.2, -0.8]]))


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
