"""Minimise a function of each row on its own, with Adam; knows no model.

The function is a sum of two: a costly one, each value of which counts, and a distance.
In CLUE the costly one is the uncertainty by a hundred networks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """When a row is done (Sec. 3): its objective has come to rest, or time is up.

    Parameters
    ----------
    min_iter, max_iter : int
        Fewest and most steps.

    tol : float
        A decrease in one step below this share of the first objective is a small one.

    n_iter_no_change : int
        So many small decreases in a row, and the row is at rest.
    """

    min_iter: int = 3
    max_iter: int = 35
    tol: float = 0.01
    n_iter_no_change: int = 3

    def begin(self, first):
        """Start watching rows with the given first objectives."""
        return StoppingState(0, first, first, torch.zeros_like(first, dtype=torch.long))

    def update(self, state, value):
        """Watch one more step.

        Parameters
        ----------
        state : StoppingState
            What was seen so far.

        value : Tensor of shape (n_rows,)
            Objectives after the step.

        Returns
        -------
        state : StoppingState
            What was seen, this step included.

        is_at_rest : Tensor of bool of shape (n_rows,)
            Rows that can stop.

        is_last : bool
            Whether no row may go on.
        """
        decrease = state.previous - value
        # The first objective may be zero or, where a caller's terms are, negative.
        is_small = (decrease < self.tol * state.first.abs()) | (decrease <= 0)
        n_small = torch.where(is_small, state.n_small + 1, 0)
        n_iter = state.n_iter + 1
        is_at_rest = (n_small >= self.n_iter_no_change) & (n_iter >= self.min_iter)
        state = StoppingState(n_iter, state.first, value, n_small)
        return state, is_at_rest, n_iter >= self.max_iter


class StoppingState(NamedTuple):
    """What a `StoppingRule` remembers of each row."""

    n_iter: int
    first: Tensor
    previous: Tensor
    n_small: Tensor

    def keep(self, rows):
        """Forget all rows but some."""
        return StoppingState(
            self.n_iter, self.first[rows], self.previous[rows], self.n_small[rows]
        )


class Point(NamedTuple):
    """A point of each row, and the costly function around it."""

    z: Tensor  # (n_rows, n_latent)
    x: Tensor  # (n_rows, n_encoded): what z stands for
    costly: Tensor  # (n_rows,)
    slope: Tensor  # (n_rows, n_encoded): its gradient; NaN if nobody asked yet

    def keep(self, rows):
        """The points of some rows."""
        return Point(*(part[rows] for part in self))

    def replace(self, rows, others):
        """Put other points in the place of those of some rows."""
        for mine, theirs in zip(self, others, strict=True):
            mine[rows] = theirs


# A coordinate this close to where it would like to be, in standard deviations, has
# arrived: longer steps would only take it to the other side and back.
AT_HOME = 1e-3


class L1Distance:
    """Weighted l1 distance of the point of each row from one of its own.

    Parameters
    ----------
    anchor : Tensor of shape (n_rows, n_encoded)
        Where each row would like to be.

    weight : float
        What a unit of distance costs.
    """

    def __init__(self, anchor, weight=1.0):
        self.anchor = anchor
        self.weight = weight

    def __call__(self, x, rows):
        """Give the distance of the points x of some rows."""
        return self.weight * (x - self.anchor[rows]).abs().sum(1)

    def gradient(self, x, rows, slope):
        """Gradient of the distance plus a linear function with a given slope.

        At the kink it is the subgradient of least length: a coordinate that is where
        it would like to be stays there unless the slope outweighs the distance.
        """
        gap = x - self.anchor[rows]
        excess = slope.sign() * (slope.abs() - self.weight).clamp_min(0)
        is_home = gap.abs() < AT_HOME
        return torch.where(is_home, excess, slope + self.weight * gap.sign())


class SearchResult(NamedTuple):
    """What a search has found, per row."""

    best: Point
    value: Tensor  # (n_rows,): its objective
    n_iter: Tensor  # (n_rows,): steps taken
    converged: Tensor  # (n_rows,): whether the row came to rest
    # The first start, the best one if there are several, and all proposals; NaN where
    # there was none, and after a row stopped.
    path_z: Tensor  # (n_rows, n_points, n_latent)
    path_value: Tensor  # (n_rows, n_points): the objective


# Steps of Adam within one step of the search: at the default step size they cross half
# a standard deviation of latent space, and cost less than one value of the costly
# function.
N_INNER = 5

# A proposal that turns out worse than what it came from makes the next one smaller, and
# a better one makes it larger.
SHRINK = 0.5
GROW = 1.5

# A promised decrease is worth a value of the costly function from this share on of what
# the stopping rule calls small.
WORTH_ASKING = 0.2

# A relative gain as small as this may be rounding, which depends on the neighbours.
ROUNDING = 1e-7


def minimise_rows(decode, costly, distance, starts, *, learning_rate=0.1, rule=None):
    """Minimise `costly(decode(z)) + distance(decode(z))`, every row on its own.

    In each step the costly function is replaced by a parabola at the best point so far:
    its tangent, and the curvature that the last proposal has shown. Adam then minimises
    the parabola plus the distance, and the proposal it arrives at is valued. A better
    one is the next point to start from, and the next proposal may go farther; after a
    worse one it stays nearer. The objective never rises.

    Rows share the cost of a step but nothing else: each has its own state of Adam and
    its own reach, stops by itself and leaves the batch, and its answer does not depend
    on the others.

    Parameters
    ----------
    decode : callable
        `decode(z, rows)` maps latents of shape (n_active, n_latent), which belong to
        the rows of the given numbers, to points x of shape (n_active, n_encoded).

    costly : callable
        `costly(x, rows)` gives values of shape (n_active,). Both are differentiable.

    distance : L1Distance
        The other part of the objective.

    starts : sequence of Point
        Where to start: each row at the best of its points. The first of them is the
        start that the stopping rule compares with.

    learning_rate : float, default=0.1
        Step size of Adam.

    rule : StoppingRule, default=None
        When to stop. Its steps are values of the costly function.

    Returns
    -------
    result : SearchResult
        The best step of each row; the starts are among them.
    """
    rule = StoppingRule() if rule is None else rule
    active = torch.arange(len(starts[0].z), device=starts[0].z.device)
    best = Point(*(part.clone() for part in starts[0]))
    value = best.costly + distance(best.x, active)
    state = rule.begin(value.clone())
    path_z, path_value = [best.z.clone()], [value.clone()]
    for start in starts[1:]:
        value_there = start.costly + distance(start.x, active)
        is_better = value_there < value
        best.replace(is_better, start.keep(is_better))
        value = torch.where(is_better, value_there, value)
    if len(starts) > 1:
        path_z.append(best.z.clone())
        path_value.append(value.clone())
    flat = best.slope.isnan().any(1).nonzero()[:, 0]
    if len(flat):
        best.replace(flat, evaluate(decode, costly, best.z[flat], flat))
    n_iter = torch.zeros_like(active)
    converged = torch.zeros_like(active, dtype=torch.bool)
    reach = torch.full_like(best.z[:, :1], learning_rate)
    curvature = torch.zeros_like(value)
    is_last = rule.max_iter == 0
    while len(active) and not is_last:
        here = best.keep(active)
        z, gain = adam(
            decode,
            distance,
            here.slope,
            here.z,
            active,
            N_INNER,
            reach[active],
            curvature[active],
        )
        n_iter[active] += 1
        # Where not even the parabola promises much there is nothing to ask about: the
        # step is a small one.
        is_asked = gain > (WORTH_ASKING * rule.tol + ROUNDING) * state.first.abs()
        asked = active[is_asked]
        path_z.append(torch.full_like(best.z, torch.nan))
        path_value.append(torch.full_like(value, torch.nan))
        factor = torch.full_like(value, SHRINK)
        if len(asked):
            proposal = evaluate(decode, costly, z[is_asked], asked)
            proposed = proposal.costly + distance(proposal.x, asked)
            path_z[-1][asked], path_value[-1][asked] = proposal.z, proposed
            curvature[asked] = curvature_between(here.keep(is_asked), proposal)
            # A value that is no number is never better.
            is_better = value[asked] - proposed > ROUNDING * value[asked].abs()
            better = asked[is_better]
            best.replace(better, proposal.keep(is_better))
            value[better] = proposed[is_better]
            factor[better] = GROW
        reach *= factor[:, None]

        state, is_at_rest, is_last = rule.update(state, value[active])
        converged[active[is_at_rest]] = True
        if is_at_rest.any():
            active, state = active[~is_at_rest], state.keep(~is_at_rest)
    return SearchResult(
        best,
        value,
        n_iter,
        converged,
        torch.stack(path_z, 1),
        torch.stack(path_value, 1),
    )


def evaluate(decode, costly, z, rows, *, with_slope=True):
    """Ask for the costly function at some latents.

    Parameters
    ----------
    decode, costly : callable
        As in `minimise_rows`.

    z : Tensor of shape (n_rows, n_latent)
        The latents.

    rows : Tensor of shape (n_rows,)
        Numbers of the rows.

    with_slope : bool, default=True
        Whether to ask for the slope, too, which costs as much again. It is NaN
        otherwise.

    Returns
    -------
    point : Point
        The point of each row.
    """
    with torch.no_grad():
        x = decode(z, rows)
        if not with_slope:
            return Point(z, x, costly(x, rows), torch.full_like(x, torch.nan))
    there = x.clone().requires_grad_()
    with torch.enable_grad():
        costs = costly(there, rows)
        # Sum, not mean: each row's slope must not depend on who shares its batch.
        (slope,) = torch.autograd.grad(costs.sum(), there)
    # A row without a slope (an overflow far out) must not move to nowhere.
    return Point(z, x, costs.detach(), slope.nan_to_num(0.0, 0.0, 0.0))


def curvature_between(here, there):
    """Give the curvature of the parabola that meets the costly function at two points.

    Its slope is that of the first point. A category that flips is a jump, which a
    tangent promises again and again, however small the steps; a parabola that has met
    the value behind the jump does not.

    Parameters
    ----------
    here, there : Point
        The points of each row.

    Returns
    -------
    curvature : Tensor of shape (n_rows,)
        Second derivative in all directions, at least zero. It is zero where the
        points are the same, or a value is no number.
    """
    move = there.x - here.x
    excess = there.costly - here.costly - (here.slope * move).sum(1)
    curvature = 2 * excess / move.square().sum(1)
    return curvature.nan_to_num(0.0, 0.0, 0.0).clamp_min(0)


def adam(decode, distance, slope, z, rows, n_steps, learning_rate, curvature=0.0):
    """Take steps of Adam on a distance plus a parabola, every row on its own.

    Parameters
    ----------
    decode, distance : callable, L1Distance
        As in `minimise_rows`.

    slope : Tensor of shape (n_rows, n_encoded), or 0.0
        Slope of the parabola where it starts, in the decoded point.

    z : Tensor of shape (n_rows, n_latent)
        Where to start.

    rows : Tensor of shape (n_rows,)
        Numbers of the rows.

    n_steps : int
        Steps to take.

    learning_rate : Tensor of shape (n_rows, 1) or float
        Step size.

    curvature : Tensor of shape (n_rows,) or float, default=0.0
        Its second derivative in all directions.

    Returns
    -------
    z : Tensor of shape (n_rows, n_latent)
        The best step; the start is one of them.

    gain : Tensor of shape (n_rows,)
        By how much the function is lower there than at the start.
    """
    first_moment, second_moment = torch.zeros_like(z), torch.zeros_like(z)
    best = z
    for step in range(1, n_steps + 2):
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            there = decode(z, rows)
        x = there.detach()
        if step == 1:
            slope = torch.zeros_like(x) + slope
            curvature = torch.zeros_like(x[:, 0]) + curvature
            origin = x
        move = x - origin
        value = (slope * move).sum(1) + curvature / 2 * move.square().sum(1)
        value = value + distance(x, rows)
        if step == 1:
            first = least = value
        is_better = value < least
        best = torch.where(is_better[:, None], z.detach(), best)
        least = torch.where(is_better, value, least)
        if step > n_steps:
            return best, first - least
        tilt = slope + curvature[:, None] * move
        (gradient,) = torch.autograd.grad(there, z, distance.gradient(x, rows, tilt))
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        # Kingma and Ba (2015), Algorithm 1 with its default decay rates. torch's own
        # Adam knows no step size per row.
        first_moment = first_moment.lerp(gradient, 0.1)
        second_moment = second_moment.lerp(gradient.square(), 0.001)
        direction = first_moment / (1 - 0.9**step)
        scale = (second_moment / (1 - 0.999**step)).sqrt() + 1e-8
        z = z.detach() - learning_rate * direction / scale
