"""The nearest sure and plausible row: many proposers, one yardstick.

Proposals come from sure training rows near by, from single columns and, where there is
a generator, from its latent space. The best of them are brought nearer by slopes where
the model has any, and polished.
"""

from typing import NamedTuple

import torch

from sklearn_clue.explainers._by_values import (
    ValuesYardstick,
    improve_by_values,
    worth_shortening,
)
from sklearn_clue.explainers._columns import ColumnMoves, propose_columns
from sklearn_clue.explainers._descent import approach, slopes_towards
from sklearn_clue.explainers._latents import propose_latents
from sklearn_clue.explainers._neighbors import StoredRows
from sklearn_clue.explainers._polish import (
    N_ALONE,
    draw_back,
    put_back,
    put_back_by_slope,
    put_on_atoms,
)
from sklearn_clue.explainers._yardstick import (
    MARGIN,
    Candidates,
    Yardstick,
    first_of_each,
    join,
)

# Candidates of a row and proposer that columns are put back of, by slopes; the best
# candidates of a row, besides the best of each proposer, that are brought nearer by
# rough slopes; those that are brought nearer by slopes of all draws, and polished.
N_PUT_BACK = 5
N_APPROACH = 4
N_STEPS_ROUGH = 5
N_LAST = 2
N_STEPS = 5
N_POLISH = 2

# The same without slopes.
N_PUT_BACK_BLIND = 10
N_POLISH_BLIND = 3

# Neighbours that change at most so many columns are polished without any search.
N_FEW_COLUMNS = 3

# Where rows differ by less, they have been rounded.
SAME = 1e-6

# Columns of an answer cost so many times more in the next one; and so many searches
# may end at an answer that is there already.
PRICE = 5.0
N_RETRIES = 3


class SureRows(NamedTuple):
    """What was found, the nearest answer of each row first.

    Answers beyond `n_found` repeat the one that was found first.

    `n_judged` is the number of candidates that the predictor was asked about, where a
    slope counts as two.
    """

    x: torch.Tensor  # (n_rows, n_explanations, n_encoded)
    uncertainty: torch.Tensor  # (n_rows, n_explanations)
    plausibility: torch.Tensor
    distance: torch.Tensor
    is_sure: torch.Tensor
    is_plausible: torch.Tensor
    n_found: torch.Tensor  # (n_rows,)
    n_judged: torch.Tensor


def find_sure_rows(
    problem,
    target,
    *,
    stored=None,
    demand=None,
    margin=MARGIN,
    max_distance=None,
    n_neighbors=10,
    n_explanations=1,
    proposers=("neighbors", "columns", "noise"),
    use_slopes=None,
    fit_slopes=False,
):
    """Find for each row the nearest row that the model is sure about.

    Parameters
    ----------
    problem : SearchProblem
        The rows to explain, the model, and what a valid row is.

    target : float
        Largest uncertainty of a sure row.

    stored : StoredRows, UsualDensity or None, default=None
        Training rows; without rows there are no neighbours, and without a density
        there is no plausibility either.

    demand : "row", float or None, default=None
        Least plausibility: that of the row but at most 0.5, a number, or none.

    margin : float, default=MARGIN
        See `Yardstick`.

    max_distance : float or None, default=None
        Largest l1 distance.

    n_neighbors : int, default=10
        Sure training rows to start from.

    n_explanations : int, default=1
        Answers per row, which change different columns.

    proposers : sequence of str, default=("neighbors", "columns", "noise")
        Who proposes: `"neighbors"`, `"columns"`, `"latents"`, `"noise"` (latents with
        the noise of the row kept), `"latent_neighbors"` (the same from the latents of
        sure rows). Latents need slopes and a generator, and are left out without.

    use_slopes : bool or None, default=None
        None if the problem has slopes.

    fit_slopes : bool, default=False
        Whether to fit slopes to the judgements of a search that uses none.

    Returns
    -------
    found : SureRows
        The answers. Where nothing sure and plausible was found, they are sure and as
        plausible as possible, or else the least uncertain rows that were found: never
        less sure than the row itself. Rows that are sure already come back as they
        are.
    """
    use_slopes = problem.is_differentiable if use_slopes is None else use_slopes
    measure = ValuesYardstick if fit_slopes and not use_slopes else Yardstick
    yardstick = measure(problem, target, stored, demand, max_distance, margin)
    x0 = problem.x0
    everyone = torch.arange(len(x0))
    itself = Candidates(
        x0, everyone, yardstick.uncertainty(x0, everyone), yardstick.gaps(x0)
    )
    (rows,) = (itself.uncertainty > target).nonzero(as_tuple=True)
    answers = []
    if len(rows):
        search = _Search(yardstick, itself.keep(rows), use_slopes)
        proposals = search.propose(proposers, n_neighbors)
        answers = search.answers(proposals, n_explanations)
    return _as_sure_rows(yardstick, answers, itself, target, n_explanations)


class _Search:
    """Steps from proposals to answers, for the rows that are not sure."""

    def __init__(self, yardstick, itself, use_slopes):
        self.yardstick, self.itself, self.use_slopes = yardstick, itself, use_slopes
        self.rows = itself.rows
        self.neighbors = itself.keep(slice(0))

    # Proposals --------------------------------------------------------------------

    def propose(self, proposers, n_neighbors):
        """Collect proposals and note whose they are."""
        yardstick, rows, stored = self.yardstick, self.rows, self.yardstick.stored
        proposals, neighbors = [self.itself], None
        if isinstance(stored, StoredRows):
            neighbors = self._neighbors(n_neighbors)
        if "neighbors" in proposers and neighbors is not None:
            proposals.append(neighbors)
            self.neighbors = neighbors
        yardstick.is_rough = self.use_slopes  # what slopes improve is judged anew
        yardstick.level_rough(rows, self.itself.uncertainty)
        if "columns" in proposers:
            x = stored.x if isinstance(stored, StoredRows) else None
            moves = ColumnMoves(yardstick.problem.schema, x)
            slope = None
            if self.use_slopes:
                slope = slopes_towards(yardstick, self.itself, neighbors)
            proposals.append(
                propose_columns(yardstick, rows, moves, self.itself.uncertainty, slope)
            )
        has_latents = self.use_slopes and yardstick.problem.has_latents
        for kind in ("latents", "noise", "latent_neighbors") if has_latents else ():
            if kind in proposers:
                starts = neighbors if kind == "latent_neighbors" else None
                keep_noise = kind != "latents"
                proposals.append(propose_latents(yardstick, rows, keep_noise, starts))
        yardstick.is_rough = False
        sizes = torch.tensor([len(each.x) for each in proposals])
        self.source = torch.arange(len(sizes)).repeat_interleave(sizes)
        return join(proposals)

    def _neighbors(self, n_neighbors):
        """Sure training rows near by, as far as constraints let them be."""
        yardstick, rows = self.yardstick, self.rows
        x, uncertainty, positions = yardstick.stored.nearest_sure(
            yardstick.problem.x0[rows].numpy(),
            # Where no training row is sure, the least unsure one has to do.
            max(float(yardstick.target[0]), yardstick.stored.uncertainty.min()),
            n_neighbors,
            yardstick.max_gap[rows].numpy(),
        )
        yardstick.look_around(rows, positions)
        if not x.shape[1]:
            return None
        rows = rows.repeat_interleave(x.shape[1])
        x = torch.as_tensor(x).flatten(0, 1)
        known = torch.as_tensor(uncertainty).flatten()
        # The predictor has been asked about them already, unless constraints change
        # them now.
        with torch.no_grad():
            is_same = (yardstick.problem.valid(x, rows) - x).abs().amax(1) < SAME
        judged = yardstick.judge(x, rows, ask=~is_same)
        return judged._replace(
            uncertainty=torch.where(is_same, known, judged.uncertainty)
        )

    # Answers ----------------------------------------------------------------------

    def answers(self, proposals, n_explanations):
        """The answers of all rows, best first; rows without one more are left out."""
        yardstick = self.yardstick
        n_rows, n_columns = len(yardstick.target), len(yardstick.columns)
        pool = self.itself
        self._ask_less_plausible(proposals)
        answers, used = [], []  # and their columns
        is_open = torch.ones(n_rows, dtype=torch.bool)
        for _ in range(n_explanations + (N_RETRIES if n_explanations > 1 else 0)):
            pool = pool.keep(is_open[pool.rows])
            if not len(pool.x):
                break
            pool = join([pool, self._improve(proposals, is_open)])
            neighbors = self._lean_neighbors(pool, is_open)
            pool = join([pool, neighbors])
            pool = join([pool, self._judge_again(proposals, pool, is_open)])
            if not answers:
                self._compromise(pool)
            new = pool.keep(self._is_new(pool, used))
            finished = self._finish(new.keep(yardstick.best(new, self._n_polish)))
            neighbors = neighbors.keep(self._is_new(neighbors, used))
            best = neighbors.keep(yardstick.best(neighbors, N_POLISH_BLIND))
            finished = join([finished, self._shorten(best, N_ALONE)])
            dear = finished.keep(yardstick.best(finished))
            finished = finished.keep(self._is_new(finished, used))
            best = finished.keep(yardstick.best(finished))
            answers.append(best)
            used.append(torch.zeros(n_rows, n_columns, dtype=torch.bool))
            used[-1][best.rows] = yardstick.changed(best.x, best.rows)
            n_found = torch.stack([columns.any(1) for columns in used]).sum(0)
            is_open = used[0].any(1) & (n_found < n_explanations)
            # Also of a row that was found before, or it would be found again.
            changed = yardstick.changed(dear.x, dear.rows).double()
            is_dear = changed @ yardstick.belongs.double() > 0
            yardstick.price[dear.rows] *= torch.where(is_dear, PRICE, 1.0)
        return answers

    @property
    def _n_polish(self):
        if self.use_slopes:
            return N_POLISH
        # So many of each proposer, besides the row itself.
        return N_POLISH_BLIND * max(int(self.source.max()), 1)

    def _is_new(self, candidates, used):
        """Whether candidates change other columns than every answer so far."""
        changed = self.yardstick.changed(candidates.x, candidates.rows)
        is_new = torch.ones(len(candidates.rows), dtype=torch.bool)
        for columns in used:
            is_new &= (columns[candidates.rows] != changed).any(1)
        return is_new

    def _improve(self, proposals, is_open):
        """Undo and shorten changes of the best proposals of each proposer."""
        yardstick = self.yardstick
        (index,) = is_open[proposals.rows].nonzero(as_tuple=True)
        proposals, source = proposals.keep(index), self.source[index]
        if not self.use_slopes:
            stuck = self._least_uncertain(proposals)
            if isinstance(yardstick, ValuesYardstick):
                lean = improve_by_values(yardstick, proposals, source)
            else:
                best = yardstick.best(proposals, N_PUT_BACK_BLIND, source)
                lean = put_back(yardstick, proposals.keep(best))
            return join([lean, stuck])
        best = yardstick.best(proposals, N_PUT_BACK, source)
        yardstick.is_rough = True
        lean = put_back_by_slope(yardstick, proposals.keep(best))
        chosen = self._best_of_each(lean, source[best], N_APPROACH)
        stuck = self._stuck(proposals, source)
        lean = join([lean.keep(chosen), proposals.keep(stuck)])
        source = torch.cat([source[best][chosen], source[stuck]])
        seen, start = approach(yardstick, lean, N_STEPS_ROUGH)
        lean, source = join([lean, seen]), torch.cat([source, source[start]])
        stuck = self._stuck(lean, source)
        yardstick.is_rough = False
        best = self._best_of_each(lean, source, N_LAST)
        return approach(yardstick, lean.keep(torch.cat([best, stuck])), N_STEPS)[0]

    def _best_of_each(self, candidates, source, n):
        """Positions of the best candidate of each proposer, and of the best n of all.

        Rough judgements may be wrong about a whole region, so that the best of all
        are not enough.
        """
        best = self.yardstick.best
        return torch.cat([best(candidates, 1, source), best(candidates, n)]).unique()

    def _least_uncertain(self, proposals):
        """Of rows without a good proposal the least uncertain one, to start from."""
        return proposals.keep(self._stuck(proposals, torch.zeros_like(proposals.rows)))

    def _stuck(self, proposals, source):
        """Positions of the least uncertain of each proposer that found nothing good.

        Slopes may lead from there to nearer rows than from what others have found.
        """
        group = proposals.rows * (source.max() + 1) + source
        is_asked = ~torch.isnan(proposals.uncertainty)
        is_asked &= ~torch.isin(group, group[self.yardstick.is_good(proposals)])
        (index,) = is_asked.nonzero(as_tuple=True)
        return index[first_of_each(group[index], proposals.uncertainty[index], 1)]

    def _judge_again(self, proposals, pool, is_open):
        """Of rows without a good candidate, judge the best proposals as they are."""
        yardstick = self.yardstick
        is_wanted = (is_open & ~self._has_good(pool))[proposals.rows]
        (index,) = is_wanted.nonzero(as_tuple=True)
        proposals, source = proposals.keep(index), self.source[index]
        best = proposals.keep(yardstick.best(proposals, N_PUT_BACK, source))
        return yardstick.judge(best.x, best.rows)

    def _lean_neighbors(self, pool, is_open):
        """Sure training rows that may be answers without any search by slopes.

        Those that change few columns, with needless changes undone: what anybody would
        try first. And those that cost less than what was made of proposals, because
        rough judgements may have led to rows that are not sure.
        """
        yardstick, neighbors = self.yardstick, self.neighbors
        neighbors = neighbors.keep(is_open[neighbors.rows] & self.use_slopes)
        neighbors = neighbors.keep(yardstick.is_good(neighbors))
        least = yardstick.least_costs(pool)[neighbors.rows]
        is_chosen = yardstick.cost(neighbors.x, neighbors.rows) < least
        n_changed = yardstick.changed(neighbors.x, neighbors.rows).sum(1)
        is_chosen |= n_changed <= N_FEW_COLUMNS
        return put_back(yardstick, neighbors.keep(is_chosen))

    def _finish(self, candidates):
        yardstick = self.yardstick
        if self.use_slopes or isinstance(yardstick, ValuesYardstick):
            candidates = put_back(yardstick, candidates)
        if isinstance(yardstick, ValuesYardstick):
            candidates = worth_shortening(yardstick, candidates)
        # Slopes have led to where single numbers are hardly too far.
        return self._shorten(candidates, 1 if self.use_slopes else N_ALONE)

    def _shorten(self, candidates, n_alone):
        candidates = draw_back(self.yardstick, candidates, n_alone)
        return put_on_atoms(self.yardstick, candidates)

    # Compromises ------------------------------------------------------------------

    def _ask_less_plausible(self, pool):
        """Allow any plausibility where no proposal meets the demand."""
        yardstick = self.yardstick
        for allowed in (yardstick.demanded_gap, torch.tensor(torch.inf)):
            yardstick.max_gap = torch.where(
                self._has_good(pool), yardstick.max_gap, allowed
            )
            is_asked = torch.isnan(pool.uncertainty) & yardstick.is_near(pool)
            is_asked &= ~self._has_good(pool)[pool.rows]
            pool.uncertainty[is_asked] = yardstick.uncertainty(
                pool.x[is_asked], pool.rows[is_asked]
            )

    def _compromise(self, pool):
        """Demand what there is: the most plausible sure row, or the least unsure."""
        yardstick = self.yardstick
        any_gap = torch.isinf(yardstick.max_gap) & ~torch.isinf(yardstick.demanded_gap)
        for value in (pool.gap, pool.uncertainty):
            if value is pool.gap:
                is_open = any_gap[pool.rows] & yardstick.is_good(pool)
            else:
                is_open = ~self._has_good(pool)[pool.rows] & yardstick.is_near(pool)
                is_open &= ~torch.isnan(pool.uncertainty)
            (index,) = is_open.nonzero(as_tuple=True)
            best = index[first_of_each(pool.rows[index], value[index], 1)]
            rows = pool.rows[best]
            yardstick.max_gap[rows] = pool.gap[best]
            yardstick.target[rows] = torch.maximum(
                yardstick.target[rows], pool.uncertainty[best]
            )

    def _has_good(self, pool):
        has_good = torch.zeros(len(self.yardstick.target), dtype=torch.bool)
        has_good[pool.rows[self.yardstick.is_good(pool)]] = True
        return has_good


def _as_sure_rows(yardstick, answers, itself, target, n_explanations):
    x = itself.x[:, None].repeat(1, n_explanations, 1)
    uncertainty, gap = (
        values[:, None].repeat(1, n_explanations)
        for values in (itself.uncertainty, itself.gap)
    )
    n_found = torch.zeros(len(x), dtype=torch.long)
    for answer in answers:
        rows, place = answer.rows, n_found[answer.rows]
        for values, new in ((x, answer.x), (uncertainty, answer.uncertainty)):
            values[rows, place] = new
        gap[rows, place] = yardstick.gaps(answer.x)
        n_found[rows] += 1
    n_found = n_found.clamp_min(1)  # a row that is sure is its own answer
    is_missing = torch.arange(n_explanations) >= n_found[:, None]
    for values in (x, uncertainty, gap):
        values[is_missing] = values[:, :1].expand_as(values)[is_missing]
    distance = (x - itself.x[:, None]).abs().sum(2)
    # The nearest first. Later answers cost more, but may be nearer by chance.
    order = distance.masked_fill(is_missing, torch.inf).argsort(dim=1, stable=True)
    x = x.take_along_dim(order[:, :, None], 1)
    uncertainty, gap, distance = (
        values.take_along_dim(order, 1) for values in (uncertainty, gap, distance)
    )
    plausibility = yardstick.shares(gap.flatten()).view_as(gap)
    return SureRows(
        x=x,
        uncertainty=uncertainty,
        plausibility=plausibility,
        distance=distance,
        is_sure=uncertainty <= target,
        is_plausible=plausibility >= yardstick.demand[:, None] - 1e-12,
        n_found=n_found,
        n_judged=yardstick.n_judged,
    )
