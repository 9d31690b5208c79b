"""Few changes that many rows have in common: proposed, chosen and adapted.

A change is a translation in encoded space: a shift of some numbers, and for some
categories the indicator of a new value. It is zero wherever it leaves rows as they are.
"""

from typing import NamedTuple

import numpy as np
import torch

from sklearn_clue.explainers._yardstick import Candidates

# Patterns of columns and directions of each size that changes are proposed for, and
# their lengths: quantiles of what the rows with the pattern need, and multiples.
N_PATTERNS = 12
LENGTHS = ((0.5, 1.0), (0.75, 1.0), (0.9, 1.0), (0.9, 1.25), (0.9, 1.6), (0.9, 2.5))

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

# Proposals that are judged at once.
BLOCK = 4096


class Measured(NamedTuple):
    """What changes do to rows, each of shape (n_rows, n_changes)."""

    distance: np.ndarray
    uncertainty: np.ndarray
    is_sure: np.ndarray
    is_good: np.ndarray  # sure, near and plausible enough

    def best(self):
        """The change of each row: the nearest good one, else sure, else least unsure.

        Returns
        -------
        choice : ndarray of shape (n_rows,)
            Positions of the changes.
        """
        order = np.lexsort(
            (
                np.where(self.is_sure, self.distance, self.uncertainty),
                ~self.is_sure,
                ~self.is_good,
            ),
            axis=1,
        )
        return order[:, 0]


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
    changes : ndarray of shape (n_rows, n_encoded)
        Zero where a missing value was filled in: other rows have none.
    """
    changes = np.zeros_like(x0)
    for column in schema:
        block = column.block
        if column.kind == "number":
            was_there = (x[:, block] == x0[:, block])[:, 1:].all(1)
            at = column.span[0]
            changes[:, at] = np.where(was_there, x[:, at] - x0[:, at], 0.0)
        else:
            is_new = (x[:, block] != x0[:, block]).any(1, keepdims=True)
            changes[:, block] = np.where(is_new, x[:, block], 0.0)
    return changes


def changed_rows(schema, x0, changes):
    """Rows after their changes, before anybody has asked whether they are valid."""
    x = x0 + changes
    for block in schema.blocks:
        is_new = changes[:, block].any(1, keepdims=True)
        x[:, block] = np.where(is_new, changes[:, block], x0[:, block])
    return x


def changes_columns(schema, changes):
    """Which columns changes concern, of shape (n_changes, n_columns)."""
    return np.stack([changes[:, column.block].any(1) for column in schema], axis=1)


# Proposing ---------------------------------------------------------------------------


def propose(schema, changes, importance, max_columns):
    """Propose common changes, from those that single rows need.

    Parameters
    ----------
    schema : FeatureSchema
        The columns of encoded space.

    changes : ndarray of shape (n_rows, n_encoded)
        The change of each row.

    importance : ndarray of shape (n_rows, n_columns)
        What the change of each column does for the row.

    max_columns : int
        Columns that a common change may concern.

    Returns
    -------
    proposals : ndarray of shape (n_proposals, n_encoded)
        For the most frequent patterns of columns and directions, in several lengths.
    """
    owner = np.repeat(
        np.arange(len(schema)), [len(range(*c.span)) for c in schema.columns]
    )
    is_number = np.zeros(changes.shape[1], dtype=bool)
    is_number[schema.numeric_index] = True
    has_changed = changes_columns(schema, changes)
    importance = np.where(has_changed, importance, -np.inf)
    rank = np.argsort(np.argsort(-importance, axis=1, kind="stable"), axis=1)
    proposals = []
    for size in range(1, max_columns + 1):
        rows = has_changed.sum(1) >= size
        sparse = np.where(rank[rows] < size, True, False)[:, owner] * changes[rows]
        if not len(sparse):
            break
        patterns, member, count = np.unique(
            np.sign(sparse), axis=0, return_inverse=True, return_counts=True
        )
        for pattern in np.argsort(-count, kind="stable")[:N_PATTERNS]:
            shifts = np.abs(sparse[member.ravel() == pattern])
            for level, factor in LENGTHS:
                length = np.quantile(shifts, level, axis=0)
                length = np.where(is_number, factor * length, 1.0)
                proposals.append(patterns[pattern] * length)
    if not proposals:
        return changes[:0]
    return np.unique(np.stack(proposals).round(9), axis=0)


# Judging -----------------------------------------------------------------------------


def measure(yardstick, changes):
    """Try each change on each row.

    Parameters
    ----------
    yardstick : Yardstick
        The rows, and what is asked of them.

    changes : ndarray of shape (n_changes, n_encoded)
        What to try.

    Returns
    -------
    measured : Measured
        What they do.
    """
    n_rows, n_changes = len(yardstick.target), len(changes)
    arrays = [
        np.empty((n_rows, n_changes), dtype=t) for t in (float, float, bool, bool)
    ]
    n_together = max(1, BLOCK // max(n_rows, 1))
    for start in range(0, n_changes, n_together):
        some = changes[start : start + n_together]
        rows = torch.arange(n_rows).repeat_interleave(len(some))
        tried = try_on(yardstick, np.tile(some, (n_rows, 1)), rows)
        values = (
            yardstick.distance(tried.x, rows),
            tried.uncertainty,
            tried.uncertainty <= yardstick.target[rows],
            yardstick.is_good(tried),
        )
        for array, value in zip(arrays, values, strict=True):
            array[:, start : start + n_together] = value.numpy().reshape(n_rows, -1)
    return Measured(*arrays)


def try_on(yardstick, changes, rows):
    """Judge rows after their changes; how plausible only sure ones are.

    Parameters
    ----------
    yardstick : Yardstick
        The rows, and what is asked of them.

    changes : ndarray of shape (n_candidates, n_encoded)
        One change for each candidate.

    rows : LongTensor of shape (n_candidates,)
        The row that each candidate is made of.

    Returns
    -------
    candidates : Candidates
        Valid rows. The gap is infinite where nobody has asked.
    """
    problem = yardstick.problem
    x = changed_rows(problem.schema, problem.x0[rows].numpy(), changes)
    with torch.no_grad():
        x = problem.valid(torch.as_tensor(x), rows)
    uncertainty = yardstick.uncertainty(x, rows)
    is_sure = uncertainty <= yardstick.target[rows]
    gap = torch.full_like(uncertainty, torch.inf)
    gap[is_sure] = yardstick.gaps(x[is_sure])
    return Candidates(x, rows, uncertainty, gap)


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

    def costs(self, measured):
        """What rows pay for changes: the distance, or more where they do not work."""
        # To be sure and not plausible is never dearer than not to be sure.
        half = 0.5 * (self.missed + np.minimum(measured.distance, self.missed))
        cost = np.where(measured.is_sure, half, self.missed)
        return np.where(measured.is_good, measured.distance, cost)

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

    def adapt(self, yardstick, changes):
        """Lengthen, shorten and simplify changes as long as rows pay less for it."""
        changes = changes.copy()
        cost = self.costs(measure(yardstick, changes))
        for _ in range(N_SWEEPS):
            has_improved = False
            for k in range(len(changes)):
                variants = _variants(yardstick.problem.schema, changes[k])
                tried = self.costs(measure(yardstick, variants))
                others = self._paid(cost, [m for m in range(len(changes)) if m != k])
                total = np.minimum(others[:, None], tried).sum(0)
                best = int(total.argmin())
                if total[best] < np.minimum(others, cost[:, k]).sum() - 1e-9:
                    changes[k], cost[:, k] = variants[best], tried[:, best]
                    has_improved = True
            if not has_improved:
                break
        return changes


def _variants(schema, change):
    """A change with numbers longer and shorter, and with columns left out."""
    numbers = np.intersect1d(schema.numeric_index, np.flatnonzero(change))
    variants = []
    for positions in [numbers, *([position] for position in numbers)]:
        for factor in FACTORS:
            variant = change.copy()
            variant[positions] *= factor
            variants.append(variant)
    concerned = np.flatnonzero(changes_columns(schema, change[None])[0])
    for column in concerned if len(concerned) > 1 else ():
        variant = change.copy()
        variant[schema.columns[column].block] = 0.0
        variants.append(variant)
    return np.stack(variants)


def learn_changes(make_yardstick, changes, importance, n_groups, max_columns, rng):
    """Learn the common changes of rows.

    Parameters
    ----------
    make_yardstick : callable
        From positions of rows to a `Yardstick` of these.

    changes : ndarray of shape (n_rows, n_encoded)
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
    common : ndarray of shape (n_groups, n_encoded)
        The common changes; fewer if more would not help.
    """
    everyone = np.arange(len(changes))
    yardstick = make_yardstick(everyone)
    schema = yardstick.problem.schema
    x0 = yardstick.problem.x0.numpy()
    own = np.abs(changed_rows(schema, x0, changes) - x0).sum(1)
    moved = own[own > 0]
    chooser = Chooser(np.quantile(moved, FAR) if len(moved) else 1.0, max_columns)
    if n_groups == "auto":
        halves = np.array_split(rng.permutation(everyone), 2)
        n_groups = _count_groups(
            chooser, make_yardstick, changes, importance, own, halves
        )
    proposals = propose(schema, changes, importance, max_columns)
    if not len(proposals):
        return proposals
    cost = chooser.costs(measure(yardstick, proposals))
    return chooser.adapt(yardstick, proposals[chooser.choose(cost, n_groups)])


def _count_groups(chooser, make_yardstick, changes, importance, own, halves):
    """The fewest groups that serve held-out rows about as often as more would.

    A change of all columns might make every row sure, and be nobody's cause: only what
    is not much farther away than rows need to go on their own counts.
    """
    served = []
    for learn, judge in (halves, halves[::-1]):
        yardstick = make_yardstick(learn)
        schema = yardstick.problem.schema
        proposals = propose(
            schema, changes[learn], importance[learn], chooser.max_columns
        )
        if not len(proposals) or not len(judge):
            return 1
        cost = chooser.costs(measure(yardstick, proposals))
        unseen = measure(make_yardstick(judge), proposals)
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
