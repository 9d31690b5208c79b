"""The linear programs of the descent."""

import pytest
import torch
from scipy.optimize import linprog

from sklearn_clue.explainers._descent import LinearProgram


@pytest.mark.parametrize("has_anchors", [False, True])
def test_programs_are_solved_as_scipy_solves_them(has_anchors):
    n_rows, n_positions, n_anchors = 20, 6, 5
    random = torch.Generator().manual_seed(0)

    def uniform(*shape):
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    own, tilt = torch.zeros(n_rows, n_positions), 2 * uniform(n_rows, n_positions) - 1
    # Halves, so that anchors and ends come several times.
    anchors = (4 * uniform(n_anchors, n_rows, n_positions) - 2).mul(2).round() / 2
    ends = torch.stack([own - 1.5, own + 1.5])
    points = torch.cat([own[None], ends, anchors.clamp(-1.5, 1.5)]).sort(0).values
    spread = points.new_zeros(1, n_rows, n_positions)
    gap = torch.full((n_rows,), torch.inf, dtype=torch.float64)
    if has_anchors:
        spread = (points[:, None] - anchors).abs().mean(1)
        # Between the least that there is and what the row has.
        gap = 0.5 * (spread.amin(0).sum(1) + (own - anchors).abs().mean(0).sum(1))
    room = -0.3 * tilt.abs().sum(1)
    parts = points, (points - own).abs(), tilt * points, spread
    solved = LinearProgram(*parts, room, gap).solve()
    assert ((tilt * solved).sum(1) <= room + 1e-9).all()
    for i in range(n_rows):
        # Weights of the points of each position, which are mixed.
        cost, rise, near = (
            part.expand_as(points)[:, i].T.flatten().numpy() for part in parts[1:]
        )
        mixes = torch.eye(n_positions).repeat_interleave(len(points), 1).numpy()
        bounds = [rise, near] if has_anchors else [rise]
        limits = [float(room[i]), float(gap[i])][: len(bounds)]
        best = linprog(cost, bounds, limits, mixes, [1] * n_positions)
        if best.status == 2:  # nothing is near enough
            continue
        far = float(solved[i].abs().sum())
        if has_anchors:
            assert (solved[i] - anchors[:, i]).abs().sum(1).mean() <= gap[i] + 1e-9
        assert best.fun - 1e-9 <= far <= 1.1 * best.fun


def test_what_cannot_be_met_is_approached_within_the_points():
    # The bound is out of reach in the first row, and easy in the second.
    points = torch.tensor([-1.0, 0.0, 1.0]).double()[:, None, None].expand(3, 2, 2)
    tilt = torch.tensor([[1.0, -2.0], [1.0, -2.0]]).double()
    room, gap = torch.tensor([-9.0, -1.0]).double(), torch.full((2,), torch.inf)
    parts = points, points.abs(), tilt * points, torch.zeros(1, 2, 2).double()
    solved = LinearProgram(*parts, room, gap.double()).solve()
    assert solved.tolist() == [[-1.0, 1.0], [0.0, 0.5]]
