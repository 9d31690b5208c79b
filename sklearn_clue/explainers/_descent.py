"""Nearer sure rows by slopes: successive linear programs in encoded space.

The predictor is dear and plausibility is cheap. So each step asks the predictor once,
for its value and slope, and then solves for the nearest row exactly: at most the
target by the tangent, and near enough to the five training rows that are the nearest
now. The mean distance to any five rows is at least that to the nearest five, so what
is near enough to these is plausible.
"""

import copy

import numpy as np
import torch

from sklearn_clue.explainers._yardstick import TOLL, join, replaced

# The tangent is trusted so far, in standard deviations of a column, at first.
REACH = 1.0
GROW, SHRINK = 2.0, 0.5

# A step that makes a good candidate cheaper by less than this share is an idle one, and
# after so many of them it is done.
STALL = 0.01
N_IDLE = 2

# Multipliers of the second bound that are tried, and the largest.
N_MULTIPLIERS = 3
MOST = 100.0

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
        # What was rounded away was too little: aim lower, if there is need.
        lacks = (here.uncertainty - yardstick.target[here.rows])[active].clamp_min(0)
        is_stuck = (moved <= 1e-3) & (lacks > 0)
        stuck = active[is_stuck]
        excess[stuck] = 2 * excess[stuck] + lacks[is_stuck]
        reach[stuck] /= SHRINK
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
        is_going = ((moved > 1e-3) | is_stuck) & (reach[active] > 1e-2)
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
    points, until its bound is met or there is no stretch left. For the second bound
    there is a multiplier, and two solutions around the bound are mixed so that it is
    just met.

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
        # Rows first, as arrays of numpy: these are many small operations.
        parts = (part.expand_as(points) for part in (points, cost, rise, spread))
        self.parts = [part.transpose(0, 1).contiguous().numpy() for part in parts]
        self.width = np.diff(self.parts[0], axis=1)
        steepness = [self._slopes(part) for part in self.parts[1:]]
        self.cost_slope, rise_slope, self.spread_slope = steepness
        self.room, self.gap = room.numpy(), gap.numpy()
        # A stretch lowers the first sum if it is walked against its rise.
        self.gain = np.abs(rise_slope) * self.width
        with np.errstate(divide="ignore", invalid="ignore"):
            self.per_gain = np.where(self.gain > 0, -1 / rise_slope, 0.0)

    def _slopes(self, part):
        """How steeply a part changes from point to point."""
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.diff(part, axis=1) / self.width
        # Between points that are the same, as from there to the next.
        is_same, after = self.width <= SAME, 0.0
        for number in reversed(range(slopes.shape[1])):
            np.copyto(slopes[:, number], after, where=is_same[:, number])
            after = slopes[:, number]
        return slopes

    def solve(self):
        """The solution of each row, of shape (n_rows, n_positions)."""
        solved, cost, spread = self._within_room(np.zeros_like(self.room))
        index = np.flatnonzero(spread > self.gap)
        if len(index):
            passed = solved[index], cost[index], spread[index]
            solved[index] = self._keep(index)._within_both(passed)
        return torch.as_tensor(solved)

    def _keep(self, index):
        some = copy.copy(self)
        for name, values in vars(self).items():
            is_list = isinstance(values, list)
            few = [each[index] for each in values] if is_list else values[index]
            setattr(some, name, few)
        return some

    def _within_both(self, passed):
        """The cheapest mix of a solution within the second bound and one beyond.

        The next multiplier is the one at which the last two cost the same, so that a
        third one that is no better shows that their mix is the best.
        """
        kept = self._within_room(np.full_like(self.gap, MOST))
        for _ in range(N_MULTIPLIERS):
            saved = kept[1] - passed[1]
            weight = _divide(saved, passed[2] - kept[2]).clip(0, MOST)
            trial = self._within_room(weight)
            fits = trial[2] <= self.gap
            kept, passed = _either(fits, trial, kept), _either(fits, passed, trial)
        # As far as the bound allows.
        share = _divide(self.gap - kept[2], passed[2] - kept[2]).clip(0, 1)
        return kept[0] + share[:, None] * (passed[0] - kept[0])

    def _within_room(self, weight):
        """The cheapest with the first sum in its bound, its cost and second sum."""
        n_rows, n_stretches, n_positions = self.gain.shape
        falls = self.spread_slope * weight[:, None, None]
        falls += self.cost_slope
        best = np.count_nonzero(falls < 0, axis=1)
        best += (n_stretches + 1) * np.arange(n_rows)[:, None]
        best = best * n_positions + np.arange(n_positions)
        x, cost, rise, spread = (part.take(best) for part in self.parts)
        short = (rise.sum(1) - self.room).clip(min=0)
        # By convexity, nearer stretches of a position come first.
        price = (falls * self.per_gain).reshape(n_rows, -1)
        is_open = price > 0
        np.copyto(price, np.inf, where=~is_open)
        order = price.argsort(axis=1)
        order += price.shape[1] * np.arange(n_rows)[:, None]
        gain = (self.gain.reshape(n_rows, -1) * is_open).take(order)
        left = gain - gain.cumsum(1)
        left += short[:, None]
        way = np.empty_like(price)
        way.put(order, left.clip(0, gain))
        # Back from what is gained to the way, against the rise.
        way = way.reshape(falls.shape)
        way *= self.per_gain
        cost, spread = (
            start.sum(1) + np.einsum("ijk,ijk->i", way, slope)
            for start, slope in ((cost, self.cost_slope), (spread, self.spread_slope))
        )
        return x + way.sum(1), cost, spread


def _divide(above, below):
    return np.divide(above, below, where=below > 0, out=np.zeros_like(above))


def _either(condition, first, second):
    return [
        np.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)
        for a, b in zip(first, second, strict=True)
    ]
