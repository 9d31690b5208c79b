"""Minimise an objective of each row on its own, with Adam; knows no model.

The cost that an objective depends on is asked for as seldom as possible: in CLUE it is
the uncertainty by a hundred networks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sklearn_clue.explainers._problem import with_slope


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
    """A point of each row, and the cost around it."""

    z: Tensor  # (n_rows, n_latent)
    x: Tensor  # (n_rows, n_encoded): what z stands for
    cost: Tensor  # (n_rows,)
    slope: Tensor  # (n_rows, n_encoded): its gradient

    def keep(self, rows):
        """The points of some rows."""
        return Point(*(part[rows] for part in self))

    def replace(self, rows, others):
        """Put other points in the place of those of some rows."""
        for mine, theirs in zip(self, others, strict=True):
            mine[rows] = theirs


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


# Steps of Adam within one step of the search, and how much longer than asked for they
# are at first: few long steps, of which the best is taken, cost less than many short
# ones. At the default step size they cross most of a standard deviation of the latents.
N_INNER = 4
LONGER = 2.0

# A proposal that turns out worse than what it came from makes the next one smaller, and
# a better one makes it larger.
SHRINK = 0.5
GROW = 1.5

# A promised decrease is worth asking about from this share on of what the stopping rule
# calls small. Where there is none, the next proposal stays much nearer, and the step
# counts for more than a small one: two of them for three.
WORTH_ASKING = 0.2
SHRINK_UNASKED = 0.25
WEIGHT_UNASKED = 1.5

# A relative gain as small as this may be rounding, which depends on the neighbours.
ROUNDING = 1e-7


def minimise_rows(
    problem,
    objective,
    starts,
    *,
    project=None,
    learning_rate=0.1,
    rule=None,
    n_legs=1,
):
    """Minimise an objective over latents, every row on its own.

    In each step the cost is replaced by a parabola at the best point so far: its
    tangent, and the curvature that the last proposal has shown. Adam then minimises
    the objective with the parabola, and the proposal it arrives at is valued. A better
    one is the next point to start from, and the next proposal may go farther; after a
    worse one it stays nearer. The objective never rises.

    Rows share the cost of a step but nothing else: each has its own state of Adam and
    its own reach, stops by itself and leaves the batch, and its answer does not depend
    on the others.

    A row may be searched for several times, in legs that differ in the objective. A leg
    begins when the row has done the one before, and may start where that one ended.
    The rows do not wait for each other.

    Parameters
    ----------
    problem : SearchProblem
        Decodes latents: `decode(z, rows)`. Its rows are all searches: with n starts
        and several legs, search number s goes from start s % n, in leg s // n.

    objective : Objective
        What to minimise: `cost(x, rows)`, `value(cost, x, rows)` and
        `gradient(cost, slope, x, rows)`.

    starts : sequence of Point
        Where to start: each row at the best of its points. The first of them is the
        start that the stopping rule compares with.

    project : callable, default=None
        `project(z, rows)` takes latents to the nearest allowed ones, after each step.

    learning_rate : float, default=0.1
        Step size of Adam.

    rule : StoppingRule, default=None
        When to stop. Its steps are costs asked for.

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
    value = torch.zeros_like(best.cost)
    n_iter = torch.zeros(n_searches, dtype=torch.long)
    converged = torch.zeros(n_searches, dtype=torch.bool)
    reach = torch.full_like(best.z[:, :1], LONGER * learning_rate)
    curvature = torch.zeros_like(value)
    n_unasked = torch.zeros_like(n_iter)
    path = []  # of searches: their numbers, the number of the point, latents, value

    def begin(searches, others):
        """Go to the best of the starts."""
        first = objective.value(best.cost[searches], best.x[searches], searches)
        path.append((searches, 0 * searches, best.z[searches], first))
        value[searches] = first
        for other in others:
            value_there = objective.value(other.cost, other.x, searches)
            is_better = value_there < value[searches]
            best.replace(searches[is_better], other.keep(is_better))
            value[searches[is_better]] = value_there[is_better]
        path.append((searches, 0 * searches + 1, best.z[searches], value[searches]))
        return rule.begin(first)

    active = torch.arange(n_rows)
    state = begin(active, starts[1:])
    while len(active):
        here = best.keep(active)
        z, x, gain = adam(
            problem,
            objective,
            here.z,
            active,
            n_steps=N_INNER,
            learning_rate=reach[active],
            cost=Parabola(here.cost, here.slope, curvature[active]),
            project=project,
        )
        n_iter[active] += 1
        # Where not even the parabola promises much there is nothing to ask about: the
        # step is a small one.
        is_asked = gain > (WORTH_ASKING * rule.tol + ROUNDING) * state.first.abs()
        asked = active[is_asked]
        factor = torch.full_like(gain, SHRINK_UNASKED)
        if len(asked):
            proposal = evaluate(problem, objective, z[is_asked], asked, x[is_asked])
            proposed = objective.value(proposal.cost, proposal.x, asked)
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
        n_unasked[active] = torch.where(is_asked, 0, n_unasked[active] + 1)
        is_idle = WEIGHT_UNASKED * n_unasked[active] >= rule.n_iter_no_change
        is_at_rest |= is_idle & (state.n_iter >= rule.min_iter)
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


def evaluate(problem, objective, z, rows, x=None):
    """Ask for the cost and its slope at some latents.

    Parameters
    ----------
    problem, objective : SearchProblem, Objective
        As in `minimise_rows`.

    z : Tensor of shape (n_rows, n_latent)
        The latents.

    rows : Tensor of shape (n_rows,)
        Numbers of the rows.

    x : Tensor of shape (n_rows, n_encoded), default=None
        What the latents stand for, if that is known.

    Returns
    -------
    point : Point
        The point of each row.
    """
    if x is None:
        with torch.no_grad():
            x = problem.decode(z, rows)
    return Point(z, x, *with_slope(lambda there: objective.cost(there, rows), x))


def curvature_between(here, there):
    """Give the curvature of the parabola that meets the cost at two points.

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
    excess = there.cost - here.cost - (here.slope * move).sum(1)
    curvature = 2 * excess / move.square().sum(1)
    return curvature.nan_to_num(0.0, 0.0, 0.0).clamp_min(0)


class Parabola(NamedTuple):
    """A cost as it is believed to be around a point of each row."""

    cost: Tensor  # (n_rows,): at the point
    slope: Tensor  # (n_rows, n_encoded): there
    curvature: Tensor  # (n_rows,): in all directions

    @classmethod
    def flat(cls, x):
        """No cost at all, for rows like x."""
        none = torch.zeros_like(x[:, 0])
        return cls(none, torch.zeros_like(x), none)

    def at(self, move):
        """The cost and its slope, so far from the point."""
        cost = (self.slope * move).sum(1) + self.curvature / 2 * move.square().sum(1)
        return self.cost + cost, self.slope + self.curvature[:, None] * move


def adam(
    problem, objective, z, rows, *, n_steps, learning_rate, cost=None, project=None
):
    """Take steps of Adam on an objective whose cost is a parabola.

    Parameters
    ----------
    problem, objective : SearchProblem, Objective
        As in `minimise_rows`.

    z : Tensor of shape (n_rows, n_latent)
        Where to start.

    rows : Tensor of shape (n_rows,)
        Numbers of the rows.

    n_steps : int
        Steps to take.

    learning_rate : Tensor of shape (n_rows, 1) or float
        Step size.

    cost : Parabola, default=None
        The cost, around the start. None is no cost.

    project : callable, default=None
        As in `minimise_rows`.

    Returns
    -------
    z : Tensor of shape (n_rows, n_latent)
        The best step; the start is one of them.

    x : Tensor of shape (n_rows, n_encoded)
        What it stands for.

    gain : Tensor of shape (n_rows,)
        By how much the objective is lower there than at the start.
    """
    first_moment, second_moment = torch.zeros_like(z), torch.zeros_like(z)
    best = z
    for step in range(1, n_steps + 2):
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            there = problem.decode(z, rows)
        x = there.detach()
        if step == 1:
            origin = best_x = x
            cost = Parabola.flat(x) if cost is None else cost
        cost_here, slope = cost.at(x - origin)
        value = objective.value(cost_here, x, rows)
        if step == 1:
            first = least = value
        is_better = value < least
        best = torch.where(is_better[:, None], z.detach(), best)
        best_x = torch.where(is_better[:, None], x, best_x)
        least = torch.where(is_better, value, least)
        if step > n_steps:
            return best, best_x, first - least
        direction = objective.gradient(cost_here, slope, x, rows)
        (gradient,) = torch.autograd.grad(there, z, direction)
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        # Kingma and Ba (2015), Algorithm 1 with its default decay rates. torch's own
        # Adam knows no step size per row.
        first_moment = first_moment.lerp(gradient, 0.1)
        second_moment = second_moment.lerp(gradient.square(), 0.001)
        direction = first_moment / (1 - 0.9**step)
        scale = (second_moment / (1 - 0.999**step)).sqrt() + 1e-8
        z = z.detach() - learning_rate * direction / scale
        z = z if project is None else project(z, rows)
