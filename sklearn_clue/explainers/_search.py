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
        none = torch.zeros_like(first, dtype=torch.long)
        return StoppingState(none, first, first, none)

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

        is_last : Tensor of bool of shape (n_rows,)
            Rows that must stop.
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

    n_iter: Tensor
    first: Tensor
    previous: Tensor
    n_small: Tensor

    def keep(self, rows):
        """Forget all rows but some."""
        return StoppingState(*(part[rows] for part in self))

    def join(self, other):
        """Remember the rows of another state as well."""
        return StoppingState(*map(torch.cat, zip(self, other, strict=True)))


class Point(NamedTuple):
    """A point of each row, and the costly function around it."""

    z: Tensor  # (n_rows, n_latent)
    x: Tensor  # (n_rows, n_encoded): what z stands for
    costly: Tensor  # (n_rows,)
    slope: Tensor  # (n_rows, n_encoded): its gradient

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

    weight : float or Tensor of shape (n_rows,), default=1.0
        What a unit of distance costs.
    """

    def __init__(self, anchor, weight=1.0):
        self.anchor = anchor
        self.weight = anchor.new_zeros(len(anchor)) + weight

    def __call__(self, x, rows):
        """Give the distance of the points x of some rows."""
        return self.weight[rows] * (x - self.anchor[rows]).abs().sum(1)

    def gradient(self, x, rows, slope):
        """Gradient of the distance plus a linear function with a given slope.

        At the kink it is the subgradient of least length: a coordinate that is where
        it would like to be stays there unless the slope outweighs the distance.
        """
        gap, weight = x - self.anchor[rows], self.weight[rows, None]
        excess = slope.sign() * (slope.abs() - weight).clamp_min(0)
        is_home = gap.abs() < AT_HOME
        return torch.where(is_home, excess, slope + weight * gap.sign())


class SearchResult(NamedTuple):
    """What the searches have found."""

    best: Point
    value: Tensor  # (n_searches,): its objective
    n_iter: Tensor  # (n_searches,): steps taken
    converged: Tensor  # (n_searches,): whether the search came to rest
    # The first start, the best one, and all proposals; NaN where there was none, and
    # after a search stopped.
    path_z: Tensor  # (n_searches, n_points, n_latent)
    path_value: Tensor  # (n_searches, n_points): the objective

    def keep(self, searches):
        """What some of the searches have found."""
        best, *others = self
        return SearchResult(best.keep(searches), *(part[searches] for part in others))


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


def minimise_rows(
    decode, costly, distance, starts, *, learning_rate=0.1, rule=None, n_legs=1
):
    """Minimise `costly(decode(z)) + distance(decode(z))`, every row on its own.

    In each step the costly function is replaced by a parabola at the best point so far:
    its tangent, and the curvature that the last proposal has shown. Adam then minimises
    the parabola plus the distance, and the proposal it arrives at is valued. A better
    one is the next point to start from, and the next proposal may go farther; after a
    worse one it stays nearer. The objective never rises.

    Rows share the cost of a step but nothing else: each has its own state of Adam and
    its own reach, stops by itself and leaves the batch, and its answer does not depend
    on the others.

    A row may be searched for several times, in legs that differ in the distance. A leg
    begins when the row has done the one before, and may start where that one ended.
    The rows do not wait for each other.

    Parameters
    ----------
    decode : callable
        `decode(z, searches)` maps latents of shape (n_active, n_latent), which belong
        to the searches of the given numbers, to points x of shape (n_active,
        n_encoded). With n rows, search number s is for row s % n, in leg s // n.

    costly : callable
        `costly(x, searches)` gives values of shape (n_active,). Both are
        differentiable, and depend on the row alone.

    distance : L1Distance
        The other part of the objective, for each of the searches.

    starts : sequence of Point
        Where to start: each row at the best of its points. The first of them is the
        start that the stopping rule compares with.

    learning_rate : float, default=0.1
        Step size of Adam.

    rule : StoppingRule, default=None
        When to stop. Its steps are values of the costly function.

    n_legs : int, default=1
        Searches for each row.

    Returns
    -------
    result : SearchResult
        The best step of each search; the starts are among them.
    """
    rule = StoppingRule() if rule is None else rule
    n_rows = len(starts[0].z)
    n_searches = n_legs * n_rows
    best = starts[0].keep(torch.arange(n_searches) % n_rows)
    value = torch.zeros_like(best.costly)
    n_iter = torch.zeros(n_searches, dtype=torch.long)
    converged = torch.zeros(n_searches, dtype=torch.bool)
    reach = torch.full_like(best.z[:, :1], learning_rate)
    curvature = torch.zeros_like(value)
    path = []  # of searches: their numbers, the number of the point, latents, value

    def begin(searches, others):
        """Go to the best of the starts."""
        first = best.costly[searches] + distance(best.x[searches], searches)
        path.append((searches, 0 * searches, best.z[searches], first))
        value[searches] = first
        for other in others:
            value_there = other.costly + distance(other.x, searches)
            is_better = value_there < value[searches]
            best.replace(searches[is_better], other.keep(is_better))
            value[searches[is_better]] = value_there[is_better]
        path.append((searches, 0 * searches + 1, best.z[searches], value[searches]))
        return rule.begin(first)

    active = torch.arange(n_rows)
    state = begin(active, starts[1:])
    while len(active):
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
        factor = torch.full_like(gain, SHRINK)
        if len(asked):
            proposal = evaluate(decode, costly, z[is_asked], asked)
            proposed = proposal.costly + distance(proposal.x, asked)
            path.append((asked, n_iter[asked] + 1, proposal.z, proposed))
            curvature[asked] = curvature_between(here.keep(is_asked), proposal)
            # A value that is no number is never better.
            is_better = value[asked] - proposed > ROUNDING * value[asked].abs()
            better = asked[is_better]
            best.replace(better, proposal.keep(is_better))
            value[better] = proposed[is_better]
            factor[is_asked] = torch.where(is_better, GROW, SHRINK).to(factor)
        reach[active] *= factor[:, None]

        state, is_at_rest, is_last = rule.update(state, value[active])
        converged[active[is_at_rest]] = True
        is_over = is_at_rest | is_last
        if is_over.any():
            following = active[is_over] + n_rows
            following = following[following < n_searches]
            rows = following % n_rows
            others = [start.keep(rows) for start in starts[1:]]
            others.append(best.keep(following - n_rows))
            active = torch.cat([active[~is_over], following])
            state = state.keep(~is_over).join(begin(following, others))

    searches, point, *on_path = map(torch.cat, zip(*path, strict=True))
    paths, n_points = [], int(n_iter.max()) + 2
    for values in on_path:
        shape = (n_searches, n_points, *values.shape[1:])
        paths.append(values.new_full(shape, torch.nan))
        paths[-1][searches, point] = values
    return SearchResult(best, value, n_iter, converged, *paths)


def evaluate(decode, costly, z, rows):
    """Ask for the costly function and its slope at some latents.

    Parameters
    ----------
    decode, costly : callable
        As in `minimise_rows`.

    z : Tensor of shape (n_rows, n_latent)
        The latents.

    rows : Tensor of shape (n_rows,)
        Numbers of the rows.

    Returns
    -------
    point : Point
        The point of each row.
    """
    with torch.no_grad():
        x = decode(z, rows)
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
