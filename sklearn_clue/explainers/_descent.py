"""Nearer sure rows by slopes: successive linear programs in encoded space.

The predictor is dear and plausibility is cheap. So each step asks the predictor once,
for its value and slope, and then solves for the nearest row exactly: at most the
target by the tangent, and near enough to the five training rows that are the nearest
now. The mean distance to any five rows is at least that to the nearest five, so what
is near enough to these is plausible.
"""

import copy

import torch

from sklearn_clue.explainers._yardstick import TOLL, join, replaced

# The tangent is trusted so far, in standard deviations of a column, at first.
REACH = 1.0
GROW, SHRINK = 1.5, 0.5

# A step that makes a good candidate cheaper by less than this share is an idle one, and
# after so many of them it is done.
STALL = 0.01
N_IDLE = 2

# Halvings of the multiplier of the second bound, and its range in decades.
N_HALVINGS_GAP = 5
DECADES_GAP = (-1.0, 2.0)

# Points that are nearer to each other are the same.
SAME = 1e-9

# Beyond the bounds of any column.
FAR = 1e6


def approach(yardstick, candidates, n_steps):
    """Walk from candidates to nearer ones that are as good.

    Parameters
    ----------
    yardstick : Yardstick
        Of a problem with slopes.

    candidates : Candidates
        Where to start. Their categories stay.

    n_steps : int
        Most slopes to ask for, per candidate, after that of the start.

    Returns
    -------
    seen : Candidates
        The start and all rows on the way, whether good or not.

    start : LongTensor of shape (n_seen,)
        The candidate that each of them came from.
    """
    low, high = bounds(yardstick.problem)
    here, slope = yardstick.with_slopes(candidates)
    seen, starts = [here], [torch.arange(len(here.rows))]
    reach = torch.full_like(here.gap, REACH)
    excess = torch.zeros_like(reach)
    least = yardstick.cost(here.x, here.rows)
    least[~yardstick.is_good(here)] = torch.inf
    n_idle = torch.zeros_like(here.rows)
    # In a table of categories alone there is no way to walk.
    active = torch.arange(len(reach) if yardstick.number_positions.any() else 0)
    for _ in range(n_steps):
        if not len(active):
            break
        state = here.keep(active), slope[active], reach[active], excess[active]
        x = _nearest_by_tangent(yardstick, *state, low, high)
        there = yardstick.judge(x, here.rows[active], ask=torch.zeros(()).bool())
        # Where nothing moves there is nothing to ask about.
        moved = (there.x - here.x[active]).abs().sum(1)
        is_asked = yardstick.is_near(there) & (moved > 1e-3)
        reach[active[~is_asked]] *= SHRINK
        asked = active[is_asked]
        there, there_slope = yardstick.with_slopes(there.keep(is_asked))
        seen.append(there)
        starts.append(asked)
        # A little beyond the target the next step returns to it, and aims a little
        # lower; far beyond it the tangent was trusted too far.
        target = yardstick.target[there.rows]
        miss = (there.uncertainty - target).clamp_min(0)
        before = (here.uncertainty[asked] - target).clamp_min(0)
        is_taken = miss <= before + 0.02 * target.abs()
        excess[asked] = 0.5 * excess[asked] + miss
        reach[asked] *= torch.where(miss > 0, SHRINK, GROW)
        here = replaced(here, asked[is_taken], there.keep(is_taken))
        slope[asked[is_taken]] = there_slope[is_taken]
        is_going = (moved > 1e-3) & (reach[active] > 1e-2)
        # Good ones that have stopped coming nearer are done.
        good = asked[yardstick.is_good(there)]
        cost = yardstick.cost(here.x[good], here.rows[good])
        n_idle[good] += cost > (1 - STALL) * least[good]
        least[good] = torch.minimum(least[good], cost)
        active = active[is_going & (n_idle[active] < N_IDLE)]
    return join(seen), torch.cat(starts)


def bounds(problem):
    """How far numbers may go, found by asking for the valid rows far outside."""
    rows = torch.arange(len(problem.x0))
    with torch.no_grad():
        return tuple(
            problem.valid(torch.full_like(problem.x0, far), rows) for far in (-FAR, FAR)
        )


def slopes_towards(yardstick, rows, sure):
    """Slopes of rows on the way to sure ones: halfway to the nearest, and at the start.

    Where a model is least sure its uncertainty is flat, so that slopes there say
    little of what would help.

    Parameters
    ----------
    yardstick : Yardstick
        Of a problem with slopes.

    rows : Candidates
        The rows themselves.

    sure : Candidates or None
        Sure ones, sorted by row, the nearest of each row first.

    Returns
    -------
    slope : Tensor of shape (n_rows, n_encoded)
        Mean of the two.
    """
    _, slope = yardstick.with_slopes(rows)
    if sure is None:
        return slope
    nearest = sure.keep(torch.searchsorted(sure.rows, rows.rows))
    middle = rows._replace(x=(rows.x + nearest.x) / 2)
    return (slope + yardstick.with_slopes(middle)[1]) / 2


# The linear program -----------------------------------------------------------------


def _nearest_by_tangent(yardstick, here, slope, reach, excess, low, high):
    """Solve the linear program of each candidate; see the top of this file."""
    x, rows = here.x, here.rows
    (free,) = yardstick.number_positions.nonzero(as_tuple=True)
    now, own, tilt = x[:, free], yardstick.problem.x0[rows][:, free], slope[:, free]
    least = torch.maximum(low[rows][:, free], now - reach[:, None])
    most = torch.minimum(high[rows][:, free], now + reach[:, None])
    least, most = torch.minimum(least, now), torch.maximum(most, now)
    room = yardstick.target[rows] - excess - here.uncertainty + (tilt * now).sum(1)
    anchors, gap, toll = _anchors(yardstick, here)
    spread = gap.new_zeros(1, len(gap), len(free))
    if anchors is not None:
        # What the columns that stay as they are need of it is gone.
        x0 = yardstick.problem.x0[rows]
        whole = (x[:, None] - anchors).abs().mean(1) + toll[:, None] * (x - x0).abs()
        gap = gap - whole.sum(1) + whole[:, free].sum(1)
        anchors = anchors[:, :, free]
    # A piecewise linear function is least at a kink or at an end.
    points = torch.stack([own, least, most])
    if anchors is not None:
        points = torch.cat([points, anchors.transpose(0, 1)])
    points = torch.minimum(torch.maximum(points, least), most).sort(0).values
    cost = yardstick.price[rows][:, free] * (points - own).abs()
    if anchors is not None:
        spread = sum((points - anchor).abs() for anchor in anchors.unbind(1))
        spread = spread / anchors.shape[1] + toll[:, None] * (points - own).abs()
    # In units of the steepest column, so that multipliers have no unit.
    unit = tilt.abs().amax(1).clamp_min(1e-12)
    rise = (tilt / unit[:, None]) * points
    solved = x.clone()
    program = LinearProgram(points, cost, rise, spread, room / unit, gap)
    solved[:, free] = program.solve()
    # Too far away, on the same line.
    x0 = yardstick.problem.x0[rows]
    share = yardstick.max_distance[rows] / yardstick.distance(solved, rows)
    return torch.where(
        (share < 1)[:, None], torch.lerp(x0, solved, share[:, None]), solved
    )


def _anchors(yardstick, here):
    """The five nearest training rows, and how far from them one may be on average.

    The last is the share of the distance that counts as well, see `TOLL`.
    """
    gap, spare = yardstick.gap_limits(here.rows)
    if not yardstick.looks_around or not torch.isfinite(gap).any():
        return None, torch.full_like(gap, torch.inf), None
    anchors, now = yardstick.nearest(here.x, here.rows)
    distance = yardstick.distance(here.x, here.rows)
    toll = torch.where(TOLL * distance < spare, TOLL, 0.0)
    gap = torch.where(toll > 0, gap + spare, gap)
    return anchors, torch.maximum(gap, now + toll * distance), toll


class LinearProgram:
    """Least cost with bounds on two sums, for many rows at once.

    Without bounds each position is on its own, and takes the best of its points. From
    there the first sum is lowered where that costs least, stretch by stretch between
    points, until its bound is met. The multiplier of the second sum is found by
    bisection, and the last two solutions around its bound are mixed so that it is just
    met.

    Parameters
    ----------
    points : Tensor of shape (n_points, n_rows, n_positions)
        What each position may become, sorted.

    cost, rise, spread : Tensor of the same shape
        What a point adds to the cost and to the two sums; `spread` may be one zero.
        `rise` is linear and the others are convex.

    room, gap : Tensor of shape (n_rows,)
        The bounds of the sums of `rise` and `spread`.
    """

    def __init__(self, points, cost, rise, spread, room, gap):
        # Rows first: each is solved on its own.
        parts = [part.expand_as(points) for part in (points, cost, rise, spread)]
        points, *parts = (part.transpose(0, 1) for part in parts)
        self.points, self.rise, self.spread = points, parts[1], parts[2]
        self.width = points.diff(dim=1)
        self.slopes = [self._slopes(part) for part in parts]
        self.room, self.gap = room, gap

    def _slopes(self, part):
        """How steeply a part changes from point to point."""
        slopes = part.diff(dim=1) / self.width
        # Between points that are the same, as from there to the next.
        for number in reversed(range(self.width.shape[1] - 1)):
            is_same = self.width[:, number] <= SAME
            slopes[:, number] = slopes[:, number + 1].where(is_same, slopes[:, number])
        return slopes

    def solve(self):
        """The solution of each row, of shape (n_rows, n_positions)."""
        solved, spread = self._within_room(torch.zeros_like(self.room))
        (index,) = (spread > self.gap).nonzero(as_tuple=True)
        if len(index):
            some = self._keep(index)
            solved[index] = some._within_both(solved[index], spread[index])
        return solved

    def _keep(self, index):
        some = copy.copy(self)
        for name in ("points", "rise", "spread", "width", "room", "gap"):
            setattr(some, name, getattr(self, name)[index])
        some.slopes = [slopes[index] for slopes in self.slopes]
        return some

    def _within_both(self, *passed):
        low, high = (torch.full_like(self.gap, end) for end in DECADES_GAP)
        kept = self._within_room(10**high)
        for _ in range(N_HALVINGS_GAP):
            middle = (low + high) / 2
            trial = self._within_room(10**middle)
            fits = trial[1] <= self.gap
            low, high = torch.where(fits, low, middle), torch.where(fits, middle, high)
            kept, passed = _either(fits, trial, kept), _either(fits, passed, trial)
        # Between the one within the bound and the one beyond, as far as it allows.
        share = (self.gap - kept[1]) / (passed[1] - kept[1])
        share = share.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)
        return torch.lerp(kept[0], passed[0], share[:, None])

    def _within_room(self, weight):
        """The cheapest with the first sum in its bound, and its second sum."""
        cost, rise, spread = self.slopes
        falls = torch.addcmul(cost, weight[:, None, None], spread)
        best = (falls < 0).sum(1, keepdim=True)
        x = self.points.gather(1, best)[:, 0]
        short = (self.rise.gather(1, best)[:, 0].sum(1) - self.room).clamp_min(0)
        # A stretch lowers the sum if it is walked against its rise. By convexity,
        # nearer stretches of a position come first.
        price = -falls / rise
        gain = torch.where(price > 0, rise.abs() * self.width, 0.0).nan_to_num(0.0)
        price = torch.where(gain > 0, price, torch.inf).flatten(1)
        # By numpy, which takes half of the time.
        order = torch.as_tensor(price.numpy().argsort(axis=1, kind="stable"))
        sorted_gain = gain.flatten(1).gather(1, order)
        before = sorted_gain.cumsum(1) - sorted_gain
        share = ((short[:, None] - before) / sorted_gain).clamp(0, 1).nan_to_num(0.0)
        share = torch.zeros_like(share).scatter_(1, order, share).view_as(gain)
        way = torch.where(share > 0, -rise.sign() * share * self.width, 0.0)
        second = self.spread.gather(1, best)[:, 0].sum(1)
        second = second + (way * spread).nan_to_num(0.0).flatten(1).sum(1)
        return x + way.sum(1), second


def _either(condition, first, second):
    return [
        torch.where(condition.view(-1, *[1] * (a.ndim - 1)), a, b)
        for a, b in zip(first, second, strict=True)
    ]
