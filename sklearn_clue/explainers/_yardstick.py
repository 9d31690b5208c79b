"""One yardstick for all candidates: distance, uncertainty and plausibility.

Whoever proposes rows is judged by the same measure, which also imposes the
constraints and counts how often the predictor was asked.
"""

from typing import NamedTuple

import numpy as np
import torch

# Rows that the predictor is asked about at once.
BLOCK = 1024

# Rows whose surroundings are looked at together, and candidates of one row.
FEW = 64
N_TOGETHER = 8

# What is nearer by less than this is not nearer.
ROUNDING = 1e-9

# Whoever searches for the nearest row finds the weak spots of a demand: with a law that
# is known exactly, rows that just met it were less likely than the rows they were made
# from. With this margin they are about as likely.
MARGIN = 0.1

# But no more than this share of the distance: with many columns a tenth of the gap is a
# long way. In a table of 71 columns it made rows change 16 of them and go seven times
# as far, instead of the one column that their uncertainty hangs on.
TOLL = 0.4

# A rough judgement that is above the target by this share is believed.
CLEARLY = 0.005

# A further column must bring a row nearer by so much, in standard deviations: readers
# count columns. The mean distance does not suffer (wine, german, the known law).
COLUMN_PRICE = 0.05


class Candidates(NamedTuple):
    """Rows that have been judged. Each knows the row that it is meant for.

    The uncertainty is NaN where nobody has asked: of rows that are too far away or
    not plausible enough to matter.
    """

    x: torch.Tensor
    rows: torch.Tensor
    uncertainty: torch.Tensor
    gap: torch.Tensor  # mean distance to the five nearest training rows

    def keep(self, index):
        """Some of the candidates."""
        return Candidates(*(values[index] for values in self))


def join(parts):
    """Candidates of several lists in one."""
    return Candidates(*map(torch.cat, zip(*parts, strict=True)))


def replaced(candidates, index, others):
    """Candidates with others in the place of some."""
    parts = []
    for values, new in zip(candidates, others, strict=True):
        values = values.clone()
        values[index] = new
        parts.append(values)
    return Candidates(*parts)


class Yardstick:
    """Measure candidates, and say which of them will do.

    Parameters
    ----------
    problem : SearchProblem
        The rows to explain, the model, and what a valid row is.

    target : float
        Largest uncertainty of a sure row.

    stored : StoredRows, UsualDensity or None, default=None
        Tells how far rows are from the training rows, and how plausible that is; None
        if all rows are equally plausible.

    demand : "row", float or None, default=None
        Least plausibility: that of the row but at most 0.5, a number, or none.

    margin : float, default=MARGIN
        With `"row"`, candidates keep nearer to the training rows than demanded by
        this share of the gap, but by no more than 0.4 of their own distance.

    max_distance : float or None, default=None
        Largest l1 distance in encoded space.

    own_gaps : ndarray of shape (n_rows,) or None, default=None
        Mean distances of the rows to their five nearest training rows, if known.

    Attributes
    ----------
    target, max_gap, max_distance : Tensor of shape (n_rows,)
        What is asked of the candidates of each row.

    demand : Tensor of shape (n_rows,)
        The plausibility that the user demands.

    price : Tensor of shape (n_rows, n_encoded)
        What a change of one unit costs: 1, unless a change of other columns is wanted.

    n_judged : Tensor of shape (n_rows,)
        Candidates of each row that the predictor was asked about. A slope counts as
        two, rough judgements do not count.

    is_rough : bool
        Whether to ask `problem.rough` instead of `problem.uncertainty`, if there is
        one: the same up to some noise, from part of the draws, to choose what is
        worth asking about.
    """

    def __init__(
        self,
        problem,
        target,
        stored=None,
        demand=None,
        max_distance=None,
        margin=MARGIN,
        own_gaps=None,
    ):
        self.problem, self.stored = problem, stored
        x0 = problem.x0
        self._around = self._place = None
        self.is_rough = False
        self._offset = x0.new_zeros(len(x0))  # of rough judgements
        self.n_judged = torch.zeros(len(x0), dtype=torch.long)
        self.price = torch.ones_like(x0)
        self.target = x0.new_full((len(x0),), target)
        most = torch.inf if max_distance is None else max_distance
        self.max_distance = x0.new_full((len(x0),), most)
        if stored is None or demand is None:
            demand = 0.0
        self._read_demand(demand, margin, own_gaps)
        # Each block of encoded positions belongs to a column.
        self.columns = list(problem.schema)
        self.belongs = torch.zeros(len(self.columns), x0.shape[1], dtype=torch.bool)
        for mask, column in zip(self.belongs, self.columns, strict=True):
            mask[column.block] = True
        self.is_number = torch.tensor([c.kind == "number" for c in self.columns])
        self.number_positions = self.belongs[self.is_number].any(0)
        # Sums of such numbers with signs are different for different signs.
        digits = torch.Generator().manual_seed(0)
        self._digits = torch.randint(2**62, x0.shape[1:], generator=digits)

    def _read_demand(self, demand, margin, gaps):
        """Turn a plausibility into the largest gap that has it."""
        x0 = self.problem.x0
        if demand == "row":
            gap = self.gaps(x0) if gaps is None else torch.as_tensor(gaps)
            self.demand = self.shares(gap).clamp(max=0.5)
            typical = self.stored.widest_gaps(np.full(len(x0), 0.5))
            self.demanded_gap = torch.maximum(gap, torch.as_tensor(typical))
            self.max_gap = (1 - margin) * self.demanded_gap
            return
        self.demand = x0.new_full((len(x0),), demand)
        self.demanded_gap = torch.full_like(self.demand, torch.inf)
        if demand > 0:
            widest = self.stored.widest_gaps(self.demand.numpy())
            self.demanded_gap = torch.as_tensor(widest)
        self.max_gap = self.demanded_gap

    def distance(self, x, rows):
        """The l1 distance to the rows."""
        return (x - self.problem.x0[rows]).abs().sum(1)

    def cost(self, x, rows):
        """The l1 distance at the price of each column, and a little for each change."""
        return self.column_costs(x, rows).sum(1)

    def column_costs(self, x, rows):
        """What the change of each column costs, of shape (n_candidates, n_columns)."""
        costs = self.price[rows] * (x - self.problem.x0[rows]).abs()
        costs = costs @ self.belongs.T.to(costs.dtype)
        return costs + COLUMN_PRICE * self.changed(x, rows)

    def changed(self, x, rows):
        """Which columns differ from the row, of shape (n_candidates, n_columns)."""
        differs = (x != self.problem.x0[rows]).to(x.dtype)
        return differs @ self.belongs.T.to(x.dtype) > 0

    def look_around(self, rows, others):
        """From now on, find the nearest training rows of candidates around their row.

        What is found there is at most nearer than it seems, and at a tenth of the
        cost.

        Parameters
        ----------
        rows : LongTensor of shape (n_open,)
            The rows that candidates will be for.

        others : ndarray of shape (n_open, n_others)
            Positions of stored rows whose surroundings matter as well.
        """
        around = self.stored.around(self.problem.x0[rows].numpy(), others)
        self._around = torch.as_tensor(around)
        self._place = torch.full((len(self.problem.x0),), -1)
        self._place[rows] = torch.arange(len(rows))

    @property
    def looks_around(self):
        """Whether the nearest training rows of candidates are known."""
        return self._around is not None

    def nearest(self, x, rows):
        """The five nearest training rows around each row, and the mean distance.

        Parameters
        ----------
        x : Tensor of shape (n_candidates, n_encoded)
            Encoded rows.

        rows : LongTensor of shape (n_candidates,)
            The row that each is meant for.

        Returns
        -------
        neighbors : Tensor of shape (n_candidates, n_nearest, n_encoded)
            In no particular order.

        gaps : Tensor of shape (n_candidates,)
            Mean distance to them.
        """
        n_nearest = self.stored.n_nearest
        gaps = x.new_zeros(len(x))
        neighbors = x.new_zeros(len(x), n_nearest, x.shape[1])
        # Few at a time: what is around them should fit the cache.
        for block in torch.arange(len(x)).split(FEW):
            around = self._around[self._place[rows[block]]]
            distance = (around - x[block, None]).abs_().sum(2)
            near, index = distance.topk(n_nearest, largest=False)
            gaps[block] = near.mean(1)
            neighbors[block] = around[torch.arange(len(block))[:, None], index]
        return neighbors, gaps

    def gaps(self, x, rows=None):
        """Mean distances to the five nearest training rows; zero if none are stored."""
        if self.stored is None or not len(x):
            return x.new_zeros(len(x))
        if rows is None or not self.looks_around:
            return torch.as_tensor(self.stored.gaps(x.numpy()))
        gaps = x.new_zeros(len(x))
        order = rows.argsort(stable=True)
        place = self._place[rows[order]]
        rank = torch.arange(len(x)) - torch.searchsorted(place, place)
        # Candidates of a row share their surroundings, so several of them at a time.
        for first in range(0, int(rank.max()) + 1, N_TOGETHER):
            is_next = (rank >= first) & (rank < first + N_TOGETHER)
            (index,) = is_next.nonzero(as_tuple=True)
            around, group = place[index].unique_consecutive(return_inverse=True)
            column = rank[index] - first
            table = x.new_zeros(len(around), int(column.max()) + 1, x.shape[1])
            table[group, column] = x[order[index]]
            distance = torch.cdist(table, self._around[around], p=1).numpy()
            n_nearest = self.stored.n_nearest
            near = np.partition(distance, n_nearest - 1, axis=2)[:, :, :n_nearest]
            gaps[order[index]] = torch.as_tensor(near.mean(2))[group, column]
        return gaps

    def shares(self, gaps):
        """The plausibility of rows with such gaps; 1 if nothing is stored."""
        if self.stored is None:
            return torch.ones_like(gaps)
        return torch.as_tensor(self.stored.shares(gaps.numpy()))

    def uncertainty(self, x, rows):
        """Ask the predictor, and count."""
        self.count(rows)
        if not len(x):
            return x.new_zeros(0)
        blocks = zip(x.split(BLOCK), rows.split(BLOCK), strict=True)
        with torch.no_grad():
            return torch.cat([self._ask(*block) for block in blocks])

    def _ask(self, x, rows):
        if self.is_rough and hasattr(self.problem, "rough"):
            return self.problem.rough(x, rows) + self._offset[rows]
        return self.problem.uncertainty(x, rows)

    def level_rough(self, rows, uncertainty):
        """Make rough judgements agree with the true ones at the rows themselves."""
        if hasattr(self.problem, "rough"):
            with torch.no_grad():
                rough = self.problem.rough(self.problem.x0[rows], rows)
            self._offset[rows] = uncertainty - rough

    def with_slopes(self, candidates):
        """Ask for uncertainty and slope of candidates; that counts as two judgements.

        Parameters
        ----------
        candidates : Candidates
            Their uncertainty is not looked at.

        Returns
        -------
        candidates : Candidates
            With their uncertainty.

        slope : Tensor of shape (n_candidates, n_encoded)
            Gradient of the uncertainty.
        """
        if not len(candidates.x):
            return candidates, torch.zeros_like(candidates.x)
        self.count(candidates.rows, 2)
        values, slopes = [], []
        blocks = candidates.x.split(BLOCK), candidates.rows.split(BLOCK)
        for x, rows in zip(*blocks, strict=True):
            x = x.clone().requires_grad_()
            with torch.enable_grad():
                value = self._ask(x, rows)
                # Sum, not mean: a slope must not depend on who shares its batch.
                (slope,) = torch.autograd.grad(value.sum(), x)
            values.append(value.detach())
            slopes.append(slope.nan_to_num(0.0, 0.0, 0.0))
        return candidates._replace(uncertainty=torch.cat(values)), torch.cat(slopes)

    def count(self, rows, n=1):
        """Count judgements of the candidates of some rows."""
        if self.is_rough and hasattr(self.problem, "rough"):
            return
        self.n_judged += n * torch.bincount(rows, minlength=len(self.n_judged))

    def levels(self, candidates):
        """By how much rough judgements of candidates are wrong; None if there are none.

        Near to a candidate they are wrong by about the same.
        """
        if self.is_rough or not hasattr(self.problem, "rough"):
            return None
        blocks = candidates.x.split(BLOCK), candidates.rows.split(BLOCK)
        with torch.no_grad():
            rough = [self.problem.rough(*block) for block in zip(*blocks, strict=True)]
        return candidates.uncertainty - torch.cat([*rough, candidates.gap[:0]])

    def judge(self, x, rows, ask=None, level=None, known=None):
        """Make rows valid and judge them.

        Parameters
        ----------
        x : Tensor of shape (n_candidates, n_encoded)
            Encoded rows, valid or not.

        rows : LongTensor of shape (n_candidates,)
            The row that each is meant for.

        ask : Tensor of bool or None, default=None
            Candidates worth asking about; None for all. Those that are too far away or
            not plausible enough are left out in any case.

        level : Tensor of shape (n_candidates,) or None, default=None
            The `levels` of candidates that these came from. Those that are clearly
            unsure by a rough judgement at that level keep it, and not all networks
            are asked.

        known : Candidates or None, default=None
            Judged ones. Nobody is asked again about those that come out the same.

        Returns
        -------
        candidates : Candidates
            The valid rows, in the same order.
        """
        with torch.no_grad():
            x = self.problem.valid(x, rows)
        judged = Candidates(
            x, rows, torch.full_like(x[:, 0], torch.nan), self.gaps(x, rows)
        )
        is_asked = self.is_near(judged) if ask is None else self.is_near(judged) & ask
        uncertainty = judged.uncertainty
        if known is not None:
            is_known = (x == known.x).all(1)
            uncertainty[is_known] = known.uncertainty[is_known]
            is_asked &= ~is_known
        if level is not None and is_asked.any():
            with torch.no_grad():
                guess = self.problem.rough(x[is_asked], rows[is_asked])
            uncertainty[is_asked] = guess + level[is_asked]
            target = self.target[rows]
            is_asked &= uncertainty <= target + CLEARLY * target.abs()
        uncertainty[is_asked] = self.uncertainty(x[is_asked], rows[is_asked])
        return judged

    def is_near(self, candidates):
        """Whether candidates are near enough to the row and to the training rows."""
        rows = candidates.rows
        distance = self.distance(candidates.x, rows)
        strict, spare = self.gap_limits(rows)
        limit = strict + (spare - TOLL * distance).clamp_min(0)
        is_plausible = candidates.gap <= limit * (1 + ROUNDING)
        return is_plausible & (distance <= self.max_distance[rows])

    def gap_limits(self, rows):
        """The gaps that will do in any case, and what more will do without a move."""
        strict = self.max_gap[rows]
        spare = self.demanded_gap[rows] - strict
        return strict, spare.nan_to_num(0.0, 0.0, 0.0).clamp_min(0)

    def is_good(self, candidates):
        """Whether candidates are sure, near and plausible enough."""
        is_sure = candidates.uncertainty <= self.target[candidates.rows]
        return is_sure & self.is_near(candidates)

    def best(self, candidates, n=1, source=None):
        """Positions of the n cheapest good candidates of each row, cheapest first.

        No two of a row change the same columns in the same direction: by slopes they
        would end as the same answer. With `source`, a number of each candidate, of
        each source apart.
        """
        (good,) = self.is_good(candidates).nonzero(as_tuple=True)
        group = candidates.rows[good]
        if source is not None and len(good):
            group = group * (source.max() + 1) + source[good]
        cost = self.cost(candidates.x[good], candidates.rows[good])
        if n > 1:
            kind = torch.stack([group, self._kinds(candidates.keep(good))], 1)
            kind = kind.unique(dim=0, return_inverse=True)[1]
            first = first_of_each(kind, cost, 1)
            good, group, cost = good[first], group[first], cost[first]
        return good[first_of_each(group, cost, n)]

    def least_costs(self, candidates):
        """What the cheapest good candidate of each row costs; infinite without one."""
        best = candidates.keep(self.best(candidates))
        least = torch.full_like(self.target, torch.inf)
        least[best.rows] = self.cost(best.x, best.rows)
        return least

    def _kinds(self, candidates):
        """A number for the columns that change, and the direction or the category."""
        direction = (candidates.x - self.problem.x0[candidates.rows]).sign().long()
        return (direction * self._digits).sum(1)


def first_of_each(rows, value, n):
    """Positions of the n smallest values of each row, row by row, smallest first."""
    order = np.lexsort((value.numpy(), rows.numpy()))
    sorted_rows = rows.numpy()[order]
    starts = np.searchsorted(sorted_rows, sorted_rows, side="left")
    rank = np.arange(len(order)) - starts
    return torch.as_tensor(order[rank < n])
