"""Few changes that many rows have in common: proposed, chosen and adapted.

A change is a pair of encoded rows. The first is added to numbers. The second holds what
numbers and categories are set to, and NaN wherever nothing is set: "if months overdue
were 0" may be believable where "if months overdue were 2 lower" is not.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from sklearn_clue.explainers._yardstick import Candidates

# Patterns of columns and directions of each size that changes are proposed for, and
# their lengths: quantiles of what the rows with the pattern need, and multiples.
N_PATTERNS = 12
LENGTHS = ((0.5, 1.0), (0.75, 1.0), (0.9, 1.0), (0.9, 1.25), (0.9, 1.6), (0.9, 2.5))

# Sets of values that the columns of a pattern are set to, and values that a column is
# tried with later.
N_GOALS = 8

# Nine of ten rows need at most this much of a change on their own: the measure of what
# is far. A row that no common change makes sure costs so many times that; one that
# becomes sure, but less plausible than demanded, half of it and half its distance.
FAR = 0.9
MISSED = 3.0

# A common change serves a row if it makes it sure within so many times that distance.
SERVED = 1.5

# What a chosen change is tried with, and how often all of them are gone through.
FACTORS = (0.6, 0.8, 0.9, 1.1, 1.25, 1.6)
N_SWEEPS = 3
MAX_GROUPS = 8

# Proposals that are judged at once, and rows whose gaps are found together, so that
# their distances fit the cache.
BLOCK = 4096
FEW = 64

# Training rows near a row to find the nearest five of its changed versions among.
N_NEAR = 250

# Changes that a new row is tried with at first: the nearest ones.
FIRST = 2

# Numbers that may be moved besides, to keep a row plausible.
N_MOVES = 3
FAR_AWAY = 1e9


class Measured(NamedTuple):
    """What changes do to rows, each of shape (n_rows, n_changes)."""

    distance: np.ndarray
    is_near: np.ndarray  # and plausible enough
    is_sure: np.ndarray


# Changes -----------------------------------------------------------------------------


def changes_between(schema, x0, x):
    """The changes that lead from rows to others.

    Parameters
    ----------
    schema : FeatureSchema
        The columns of encoded space.

    x0 : ndarray of shape (n_rows, n_encoded)
        Rows.

    x : ndarray of shape (n_rows, n_encoded)
        What they become.

    Returns
    -------
    changes : ndarray of shape (n_rows, 2, n_encoded)
        Numbers are shifted and categories set. Nothing is done where a missing value
        was filled in: other rows have none.
    """
    changes = np.stack([np.zeros_like(x0), np.full_like(x0, np.nan)], axis=1)
    for column in schema:
        block = column.block
        if column.kind == "number":
            was_there = (x[:, block] == x0[:, block])[:, 1:].all(1)
            at = column.span[0]
            changes[:, 0, at] = np.where(was_there, x[:, at] - x0[:, at], 0.0)
        else:
            is_new = (x[:, block] != x0[:, block]).any(1, keepdims=True)
            changes[:, 1, block] = np.where(is_new, x[:, block], np.nan)
    return changes


def changed_rows(x0, changes):
    """Rows after their changes, before anybody has asked whether they are valid."""
    shift, goal = np.moveaxis(changes, -2, 0)
    return np.where(np.isnan(goal), x0 + shift, goal)


def changes_columns(schema, changes):
    """Which columns changes concern, of shape (n_changes, n_columns)."""
    concerned = (changes[:, 0] != 0) | ~np.isnan(changes[:, 1])
    return np.stack([concerned[:, column.block].any(1) for column in schema], axis=1)


def only_columns(schema, changes, is_kept):
    """Changes of some of their columns, given by an array (n_changes, n_columns)."""
    sizes = [column.span[1] - column.span[0] for column in schema]
    is_kept = np.repeat(is_kept, sizes, axis=1)
    shift = np.where(is_kept, changes[:, 0], 0.0)
    return np.stack([shift, np.where(is_kept, changes[:, 1], np.nan)], axis=1)


def _distinct(changes):
    flat = np.nan_to_num(changes.reshape(len(changes), -1), nan=np.inf).round(9)
    return changes[np.sort(np.unique(flat, axis=0, return_index=True)[1])]


# Proposing ---------------------------------------------------------------------------


def propose(schema, x0, changes, importance, max_columns):
    """Propose common changes, from those that single rows need.

    Parameters
    ----------
    schema : FeatureSchema
        The columns of encoded space.

    x0 : ndarray of shape (n_rows, n_encoded)
        The rows.

    changes : ndarray of shape (n_rows, 2, n_encoded)
        The change of each row.

    importance : ndarray of shape (n_rows, n_columns)
        What the change of each column does for the row.

    max_columns : int
        Columns that a common change may concern.

    Returns
    -------
    proposals : ndarray of shape (n_proposals, 2, n_encoded)
        For the most frequent patterns of columns and directions, shifts in several
        lengths; for the most frequent patterns of columns, what they are set to.
    """
    has_changed = changes_columns(schema, changes)
    importance = np.where(has_changed, importance, -np.inf)
    rank = np.argsort(np.argsort(-importance, axis=1, kind="stable"), axis=1)
    proposals = [changes[:0]]
    for size in range(1, max_columns + 1):
        rows = has_changed.sum(1) >= size
        if not rows.any():
            break
        sparse = only_columns(schema, changes[rows], rank[rows] < size)
        direction = np.sign(sparse[:, 0]) + 2 * np.nan_to_num(sparse[:, 1])
        for members in _most_frequent(direction):
            length = np.abs(sparse[members, 0])
            for level, factor in LENGTHS:
                change = sparse[members[:1]].copy()
                quantile = factor * np.quantile(length, level, axis=0)
                change[0, 0] = np.sign(change[0, 0]) * quantile
                proposals.append(change)
        is_set = sparse[:, 0] != 0
        goals = np.where(is_set, x0[rows] + sparse[:, 0], sparse[:, 1])
        goals = np.stack([np.zeros_like(goals), goals], axis=1)
        for members in _most_frequent(rank[rows] < size):
            proposals.append(_spread(_distinct(goals[members])))
    return _distinct(np.concatenate(proposals))


def _most_frequent(patterns):
    """Positions of the rows with each of the most frequent patterns."""
    _, member, count = np.unique(
        patterns, axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(-count, kind="stable")[:N_PATTERNS]
    return [np.flatnonzero(member.ravel() == pattern) for pattern in order]


def _spread(values):
    """At most so many of the values, from all over their order."""
    n_kept = min(N_GOALS, len(values))
    return values[np.linspace(0, len(values) - 1, n_kept).round().astype(int)]


# Judging -----------------------------------------------------------------------------


class Trials:
    """Try changes on rows.

    Parameters
    ----------
    problem : SearchProblem
        The rows.

    make_yardstick : callable
        From a problem, and the gaps of its rows where they are known, to a `Yardstick`
        that says what is asked of them.

    stored : StoredRows or None
        Training rows; None if nobody asks how near they are.
    """

    def __init__(self, problem, make_yardstick, stored):
        self.x0, self._near = problem.x0.numpy(), None
        gaps = None
        if stored is not None:
            self._stored, self._columns = stored.x, {}
            n_near = min(N_NEAR, len(stored))
            self._distance, self._near = stored.nearest(self.x0, n_near)
            gaps = self._distance[:, : stored.n_nearest].mean(1)
        self.yardstick = make_yardstick(problem, gaps)

    def make(self, change, rows):
        """Valid rows after a change, of shape (n, n_encoded)."""
        x = torch.as_tensor(changed_rows(self.x0[rows.numpy()], change))
        with torch.no_grad():
            return self.yardstick.problem.valid(x, rows)

    def gaps(self, x, rows):
        """Mean distances to the five nearest training rows; zero if nobody asks.

        Looked at are the rows near by and the columns that have changed, since all
        other distances are known. So a row is at most nearer than it seems.
        """
        gaps = torch.zeros(len(x), dtype=torch.float64)
        if self._near is None:
            return gaps
        n_nearest = self.yardstick.stored.n_nearest
        blocks = zip(x.split(FEW), rows.split(FEW), gaps.split(FEW), strict=True)
        for there, which, gap in blocks:
            distance = self._distances(there.numpy(), which.numpy())
            distance.partition(n_nearest - 1, axis=1)
            gap[:] = torch.as_tensor(distance[:, :n_nearest].mean(1))
        return gaps

    def _distances(self, x, rows):
        """Distances to the training rows near by."""
        x0, distance = self.x0[rows], self._distance[rows]
        for j in np.flatnonzero((x != x0).any(0)):
            if j not in self._columns:
                self._columns[j] = self._stored[self._near, j]
            values = self._columns[j][rows]
            distance += np.abs(x[:, j, None] - values)
            distance -= np.abs(x0[:, j, None] - values)
        return distance

    def draw_in(self, candidates):
        """Move a few more numbers to where the nearest training rows have them.

        Parameters
        ----------
        candidates : Candidates
            Rows after changes. Those that are near and plausible enough stay.

        Returns
        -------
        candidates : Candidates
            With at most `N_MOVES` more numbers changed.
        """
        x, rows, unknown, gap = (values.clone() for values in candidates)
        numbers = self.yardstick.problem.schema.numeric_index
        is_free = (x == self.yardstick.problem.x0[rows]).numpy()
        can_move = self._near is not None and len(numbers) > 0
        for _ in range(N_MOVES if can_move else 0):
            is_near = self.yardstick.is_near(Candidates(x, rows, unknown, gap))
            far = np.flatnonzero(~is_near.numpy())
            if not len(far):
                break
            here, which = x[far].numpy(), rows[far].numpy()
            n_nearest = self.yardstick.stored.n_nearest
            near = self._distances(here, which).argpartition(n_nearest - 1, axis=1)
            near = np.take_along_axis(self._near[which], near[:, :n_nearest], 1)
            around = self._stored[near][:, :, numbers]
            middle = np.median(around, axis=1)
            ways = [np.abs(at[:, None] - around) for at in (here[:, numbers], middle)]
            saved = (ways[0] - ways[1]).mean(1)
            saved[~is_free[far][:, numbers]] = -np.inf
            # The shortest way that is enough, else what brings the row nearest.
            wanted = (gap - self.yardstick.max_gap[rows])[far].numpy()[:, None]
            length = np.abs(middle - here[:, numbers])
            order = np.where(saved >= wanted, length - FAR_AWAY, -saved)
            best, everyone = order.argmin(1), np.arange(len(far))
            is_moved = saved[everyone, best] > 0
            if not is_moved.any():
                break
            far, here, best = far[is_moved], here[is_moved], best[is_moved]
            here[np.arange(len(far)), numbers[best]] = middle[is_moved, best]
            is_free[far, numbers[best]] = False
            with torch.no_grad():
                x[far] = self.yardstick.problem.valid(torch.as_tensor(here), rows[far])
            gap[far] = self.gaps(x[far], rows[far])
        return Candidates(x, rows, unknown, gap)

    def measure(self, changes, is_worth=None):
        """Try each change on each row.

        Parameters
        ----------
        changes : ndarray of shape (n_changes, 2, n_encoded)
            What to try.

        is_worth : callable or None, default=None
            Says of distances and of whether rows are near and plausible enough, both
            of shape (n_rows, n), whether the predictor shall be asked; None for always.

        Returns
        -------
        measured : Measured
            What they do; nothing is sure that nobody has asked about.
        """
        yardstick, n_rows = self.yardstick, len(self.x0)
        everyone = torch.arange(n_rows)
        parts = [Measured(*np.zeros((3, n_rows, 0)))]
        n_together = max(1, BLOCK // max(n_rows, 1))
        for start in range(0, len(changes), n_together):
            some = changes[start : start + n_together]
            x = torch.cat([self.make(change, everyone) for change in some])
            rows = everyone.repeat(len(some))
            unknown = torch.full((len(x),), torch.inf, dtype=x.dtype)
            tried = Candidates(x, rows, unknown, self.gaps(x, rows))
            shape = len(some), n_rows
            distance = yardstick.distance(x, rows).numpy().reshape(shape).T
            is_near = yardstick.is_near(tried).numpy().reshape(shape).T
            is_asked = distance > 0
            if is_worth is not None:
                is_asked &= is_worth(distance, is_near)
            index = torch.as_tensor(np.flatnonzero(is_asked.T))
            unknown[index] = yardstick.uncertainty(x[index], rows[index])
            is_sure = (unknown <= yardstick.target[rows]).numpy().reshape(shape).T
            parts.append(Measured(distance, is_near, is_sure))
        distance, *others = (
            np.concatenate(part, 1) for part in zip(*parts, strict=True)
        )
        return Measured(distance, *(part.astype(bool) for part in others))

    def best(self, changes, draws_in=False):
        """The nearest good change of each row, else sure one, else the least unsure.

        The predictor is asked about the nearest first, and about no more than needed.

        Parameters
        ----------
        changes : ndarray of shape (n_changes, 2, n_encoded)
            What to try.

        draws_in : bool, default=False
            Whether to move other numbers as well where a change alone is less
            plausible than asked.

        Returns
        -------
        choice : ndarray of shape (n_rows,)
            Positions of the changes.

        candidates : Candidates
            The rows after them.
        """
        yardstick, n_changes = self.yardstick, len(changes)
        everyone = torch.arange(len(self.x0))
        x = torch.cat([self.make(change, everyone) for change in changes])
        rows = everyone.repeat(n_changes)
        unknown = torch.full((len(x),), torch.inf, dtype=x.dtype)
        tried = Candidates(x, rows, unknown, self.gaps(x, rows))
        if draws_in:
            tried = self.draw_in(tried)
            x, unknown = tried.x, tried.uncertainty
        distance = yardstick.distance(x, rows)
        is_near = yardstick.is_near(tried).numpy()
        order = np.lexsort((distance.numpy(), ~is_near, rows.numpy()))
        # Candidates of each row, those that are near and plausible enough first.
        order = torch.as_tensor(order).view(len(everyone), n_changes)
        place = torch.arange(n_changes).expand_as(order)
        is_near = torch.as_tensor(is_near)[order]
        is_sure = torch.zeros_like(is_near)
        # In few rounds, since one question costs about as much as many at once.
        for is_due in (place < FIRST, is_near, place >= 0):
            is_asked = is_due & torch.isinf(unknown[order]) & (distance[order] > 0)
            is_asked &= ~is_sure.any(1, keepdim=True)
            index = order[is_asked]
            unknown[index] = yardstick.uncertainty(x[index], rows[index])
            is_sure = unknown[order] <= yardstick.target[:, None]
        first = is_sure.to(torch.int8).argmax(1)
        least = unknown[order].argmin(1)
        chosen = torch.where(is_sure.any(1), first, least)
        chosen = order[everyone, chosen]
        return (chosen // len(everyone)).numpy(), tried.keep(chosen)


# Choosing ----------------------------------------------------------------------------


class Chooser:
    """Choose and adapt common changes.

    Parameters
    ----------
    far : float
        A large distance of rows from their own counterfactuals.

    max_columns : int
        Columns that a change may concern.
    """

    def __init__(self, far, max_columns):
        self.far, self.missed = far, MISSED * far
        self.max_columns = max_columns

    def costs(self, trials, changes, paid=None):
        """What rows pay for changes: the distance, or more where they do not work.

        Parameters
        ----------
        trials : Trials
            The rows.

        changes : ndarray of shape (n_changes, 2, n_encoded)
            Changes.

        paid : ndarray of shape (n_rows,) or None, default=None
            What rows pay already. Nobody asks about what could only be dearer.

        Returns
        -------
        cost : ndarray of shape (n_rows, n_changes)
            At most that of a row that is not made sure.
        """
        paid = self.missed if paid is None else paid[:, None]
        measured = trials.measure(changes, lambda *values: self._prices(*values) < paid)
        prices = self._prices(measured.distance, measured.is_near)
        return np.where(measured.is_sure, prices, self.missed)

    def _prices(self, distance, is_near):
        """What sure rows pay."""
        # To be sure and not plausible is never dearer than not to be sure.
        half = 0.5 * (self.missed + np.minimum(distance, self.missed))
        return np.where(is_near, np.minimum(distance, self.missed), half)

    def choose(self, cost, n_groups):
        """Choose changes so that the best of them costs rows least, in sum.

        Parameters
        ----------
        cost : ndarray of shape (n_rows, n_changes)
            What each row pays for each change.

        n_groups : int
            Changes to choose; fewer if more would not help.

        Returns
        -------
        chosen : list of int
            Positions of the changes.
        """
        chosen = []
        paid = np.full(len(cost), self.missed)
        for _ in range(n_groups):
            total = np.minimum(paid[:, None], cost).sum(0)
            best = int(total.argmin())
            if total[best] >= paid.sum() - 1e-9:
                break
            chosen.append(best)
            paid = np.minimum(paid, cost[:, best])
        # The first choice had to serve all rows. Now that there are others, it need
        # not.
        has_improved = len(chosen) > 1
        while has_improved:
            has_improved = False
            for k in range(len(chosen)):
                others = self._paid(cost, chosen[:k] + chosen[k + 1 :])
                total = np.minimum(others[:, None], cost).sum(0)
                best = int(total.argmin())
                if total[best] < total[chosen[k]] - 1e-9:
                    chosen[k], has_improved = best, True
        return chosen

    def _paid(self, cost, chosen):
        return np.minimum(cost[:, chosen].min(1, initial=np.inf), self.missed)

    def adapt(self, trials, changes, goals):
        """Lengthen, shorten and simplify changes as long as rows pay less for it.

        Parameters
        ----------
        trials : Trials
            The rows.

        changes : ndarray of shape (n_changes, 2, n_encoded)
            What was chosen.

        goals : list of array
            What each encoded position may be set to, where it is set.

        Returns
        -------
        changes : ndarray of shape (n_changes, 2, n_encoded)
            At most as dear.
        """
        changes = changes.copy()
        cost = self.costs(trials, changes)
        for _ in range(N_SWEEPS):
            has_improved = False
            for k in range(len(changes)):
                schema = trials.yardstick.problem.schema
                variants = _variants(schema, changes[k], goals, self.max_columns)
                if not len(variants):
                    continue
                others = self._paid(cost, [m for m in range(len(changes)) if m != k])
                tried = self.costs(trials, variants, others)
                total = np.minimum(others[:, None], tried).sum(0)
                best = int(total.argmin())
                if total[best] < np.minimum(others, cost[:, k]).sum() - 1e-9:
                    changes[k], has_improved = variants[best], True
                    cost[:, k] = self.costs(trials, changes[k : k + 1])[:, 0]
            if not has_improved:
                break
        return changes


def _variants(schema, change, goals, max_columns):
    """A change with numbers longer, shorter or elsewhere, and columns more or less."""
    shifted = np.flatnonzero(change[0])
    is_set = ~np.isnan(change[1, schema.numeric_index])
    variants = [change[None][:0]]

    def add(part, positions, values):
        variant = change.copy()
        variant[part, positions] = values
        variants.append(variant[None])

    for positions in [shifted, *([position] for position in shifted)]:
        for factor in FACTORS if len(shifted) else ():
            add(0, positions, factor * change[0, positions])
    concerned = changes_columns(schema, change[None])
    numbers = schema.numeric_index
    if concerned.sum() >= max_columns:
        numbers = numbers[is_set]
    for position in np.setdiff1d(numbers, shifted):
        for goal in goals[position]:
            add(1, position, goal)
    for column in np.flatnonzero(concerned) if concerned.sum() > 1 else ():
        is_kept = concerned.copy()
        is_kept[0, column] = False
        variants.append(only_columns(schema, change[None], is_kept))
    return np.concatenate(variants)


def portions_of(schema, changes):
    """All parts of changes: each of their columns, and each choice of some.

    Parameters
    ----------
    schema : FeatureSchema
        The columns of encoded space.

    changes : ndarray of shape (n_changes, 2, n_encoded)
        Changes.

    Returns
    -------
    portions : ndarray of shape (n_portions, 2, n_encoded)
        The changes themselves come first.

    owner : ndarray of shape (n_portions,)
        The change that each is a part of.
    """
    portions, owner = [changes], [np.arange(len(changes))]
    for k, concerned in enumerate(changes_columns(schema, changes)):
        columns = np.flatnonzero(concerned)
        for size in range(1, len(columns)):
            for kept in combinations(columns, size):
                is_kept = np.isin(np.arange(len(schema)), kept)[None]
                portions.append(only_columns(schema, changes[k : k + 1], is_kept))
                owner.append([k])
    return np.concatenate(portions), np.concatenate(owner)


def learn_changes(make_trials, changes, importance, n_groups, max_columns, rng):
    """Learn the common changes of rows.

    Parameters
    ----------
    make_trials : callable
        From positions of rows to `Trials` of these.

    changes : ndarray of shape (n_rows, 2, n_encoded)
        The change of each row.

    importance : ndarray of shape (n_rows, n_columns)
        What the change of each column does for the row.

    n_groups : int or "auto"
        Common changes to learn.

    max_columns : int
        Columns that a common change may concern.

    rng : RandomState
        Draws halves of the rows.

    Returns
    -------
    common : ndarray of shape (n_groups, 2, n_encoded)
        The common changes; fewer if more would not help.
    """
    everyone = np.arange(len(changes))
    trials = make_trials(everyone)
    schema, x0 = trials.yardstick.problem.schema, trials.x0
    x = changed_rows(x0, changes)
    own = np.abs(x - x0).sum(1)
    moved = own[own > 0]
    chooser = Chooser(np.quantile(moved, FAR) if len(moved) else 1.0, max_columns)
    if n_groups == "auto":
        halves = np.array_split(rng.permutation(everyone), 2)
        n_groups = _count_groups(chooser, make_trials, changes, importance, own, halves)
    proposals = propose(schema, x0, changes, importance, max_columns)
    if not len(proposals):
        return proposals
    chosen = chooser.choose(chooser.costs(trials, proposals), n_groups)
    columns = zip(x0.T, x.T, strict=True)
    goals = [_spread(np.unique(new[new != old])) for old, new in columns]
    return chooser.adapt(trials, proposals[chosen], goals)


def _count_groups(chooser, make_trials, changes, importance, own, halves):
    """The fewest groups that serve held-out rows about as often as more would.

    A change of all columns might make every row sure, and be nobody's cause: only what
    is not much farther away than rows need to go on their own counts.
    """
    served = []
    for learn, judge in (halves, halves[::-1]):
        trials = make_trials(learn)
        proposals = propose(
            trials.yardstick.problem.schema,
            trials.x0,
            changes[learn],
            importance[learn],
            chooser.max_columns,
        )
        if not len(proposals) or not len(judge):
            return 1
        cost = chooser.costs(trials, proposals)
        unseen = make_trials(judge).measure(proposals)
        limit = SERVED * np.maximum(own[judge], chooser.far)
        is_served = unseen.is_sure & (unseen.distance <= limit[:, None])
        served.append(
            [
                is_served[:, chooser.choose(cost, k)].any(1)
                for k in range(1, MAX_GROUPS + 1)
            ]
        )
    shares = np.concatenate(served, axis=1).mean(1)

    n_rows = len(own)
    # One standard error, of a share that is neither none nor all.
    share = (shares.max() * n_rows + 1) / (n_rows + 2)
    slack = max(np.sqrt(share * (1 - share) / n_rows), 0.02)
    return int(np.argmax(shares >= shares.max() - slack)) + 1
