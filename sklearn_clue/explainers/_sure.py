"""The nearest sure and plausible row: many proposers, one yardstick.

Proposals come from sure training rows near by, from single columns and, where there is
a generator, from its latent space. The best of them are brought nearer by slopes where
the model has any, and polished.
"""

from typing import NamedTuple

import torch

from sklearn_clue.explainers._columns import ColumnMoves, propose_columns
from sklearn_clue.explainers._descent import approach, slopes_towards
from sklearn_clue.explainers._latents import propose_latents
from sklearn_clue.explainers._polish import (
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

# Candidates of a row that columns are put back of, that are brought nearer by slopes,
# and that are polished to the end.
N_PUT_BACK = 5
N_APPROACH = 2
N_POLISH = 1
N_STEPS = 8

# The same without slopes.
N_PUT_BACK_BLIND = 10
N_POLISH_BLIND = 3

# Columns of an answer cost so many times more in the next one.
PRICE = 5.0


class SureRows(NamedTuple):
    """What was found. Answers beyond `n_found` repeat the first one.

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
    proposers=("neighbors", "columns"),
    use_slopes=None,
):
    """Find for each row the nearest row that the model is sure about.

    Parameters
    ----------
    problem : SearchProblem
        The rows to explain, the model, and what a valid row is.

    target : float
        Largest uncertainty of a sure row.

    stored : StoredRows or None, default=None
        Training rows; without them there are no neighbours and no plausibility.

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

    proposers : sequence of str, default=("neighbors", "columns")
        Who proposes: `"neighbors"`, `"columns"`, `"latents"`, `"noise"` (latents with
        the noise of the row kept), `"latent_neighbors"` (the same from the latents of
        sure rows).

    use_slopes : bool or None, default=None
        None if the problem has slopes.

    Returns
    -------
    found : SureRows
        The answers. Where nothing sure and plausible was found, they are sure and as
        plausible as possible, or else the least uncertain rows that were found: never
        less sure than the row itself. Rows that are sure already come back as they
        are.
    """
    yardstick = Yardstick(problem, target, stored, demand, max_distance, margin)
    use_slopes = problem.is_differentiable if use_slopes is None else use_slopes
    x0 = problem.x0
    everyone = torch.arange(len(x0))
    itself = Candidates(
        x0, everyone, yardstick.uncertainty(x0, everyone), yardstick.gaps(x0)
    )
    (rows,) = (itself.uncertainty > target).nonzero(as_tuple=True)
    answers = [itself]
    if len(rows):
        search = _Search(yardstick, itself.keep(rows), use_slopes)
        pool = search.propose(proposers, n_neighbors)
        answers = search.answers(pool, n_explanations)
    return _as_sure_rows(yardstick, answers, itself, target, n_explanations)


class _Search:
    """Steps from proposals to answers, for the rows that are not sure."""

    def __init__(self, yardstick, itself, use_slopes):
        self.yardstick, self.itself, self.use_slopes = yardstick, itself, use_slopes
        self.rows = itself.rows

    # Proposals --------------------------------------------------------------------

    def propose(self, proposers, n_neighbors):
        """Collect and judge proposals."""
        yardstick, rows, stored = self.yardstick, self.rows, self.yardstick.stored
        pool, neighbors = [self.itself], None
        if stored is not None and n_neighbors:
            neighbors = self._neighbors(n_neighbors)
        if "neighbors" in proposers and neighbors is not None:
            pool.append(neighbors)
        if "columns" in proposers and stored is not None:
            moves = ColumnMoves(yardstick.problem.schema, stored.x)
            slope = None
            if self.use_slopes:
                slope = slopes_towards(yardstick, self.itself, neighbors)
            pool.append(
                propose_columns(yardstick, rows, moves, self.itself.uncertainty, slope)
            )
        for kind in ("latents", "noise", "latent_neighbors"):
            if kind in proposers:
                starts = neighbors if kind == "latent_neighbors" else None
                keep_noise = kind != "latents"
                pool.append(propose_latents(yardstick, rows, keep_noise, starts))
        return join(pool)

    def _neighbors(self, n_neighbors):
        """Sure training rows near by, as far as constraints let them be."""
        yardstick, rows = self.yardstick, self.rows
        x, uncertainty = yardstick.stored.nearest_sure(
            yardstick.problem.x0[rows].numpy(),
            float(yardstick.target[0]),
            n_neighbors,
            yardstick.max_gap[rows].numpy(),
        )
        x = torch.as_tensor(x)
        if not x.shape[1]:
            return None
        rows = rows.repeat_interleave(x.shape[1])
        x, known = x.flatten(0, 1), torch.as_tensor(uncertainty).flatten()
        # The predictor has been asked about them already, unless constraints change
        # them now.
        with torch.no_grad():
            is_same = (yardstick.problem.valid(x, rows) == x).all(1)
        judged = yardstick.judge(x, rows, ask=~is_same)
        return judged._replace(
            uncertainty=torch.where(is_same, known, judged.uncertainty)
        )

    # Answers ----------------------------------------------------------------------

    def answers(self, pool, n_explanations):
        """The answers of all rows, best first; rows without one more are left out."""
        yardstick = self.yardstick
        n_rows, n_columns = len(yardstick.target), len(yardstick.columns)
        answers, used = [], []  # and their columns
        is_open = torch.ones(n_rows, dtype=torch.bool)
        for _ in range(n_explanations):
            pool = pool.keep(is_open[pool.rows])
            if not len(pool.x):
                break
            if not answers:
                self._ask_less_plausible(pool)
            pool = join([pool, self._improve(pool)])
            if not answers:
                self._compromise(pool)
            pool = pool.keep(self._is_new(pool, used))
            finished = self._finish(pool.keep(yardstick.best(pool, self._n_polish)))
            finished = finished.keep(self._is_new(finished, used))
            best = finished.keep(yardstick.best(finished))
            answers.append(best)
            changed = yardstick.changed(best.x, best.rows)
            used.append(torch.zeros(n_rows, n_columns, dtype=torch.bool))
            used[-1][best.rows] = changed
            is_open = used[-1].any(1)
            is_dear = changed.double() @ yardstick.belongs.double() > 0
            yardstick.price[best.rows] *= torch.where(is_dear, PRICE, 1.0)
        return answers

    @property
    def _n_polish(self):
        return N_POLISH if self.use_slopes else N_POLISH_BLIND

    def _is_new(self, candidates, used):
        """Whether candidates leave a column as it is of every answer so far."""
        changed = self.yardstick.changed(candidates.x, candidates.rows)
        is_new = torch.ones(len(candidates.rows), dtype=torch.bool)
        for columns in used:
            is_new &= (columns[candidates.rows] & ~changed).any(1)
        return is_new

    def _improve(self, pool):
        """Undo and shorten changes of the best candidates."""
        yardstick = self.yardstick
        if not self.use_slopes:
            return put_back(
                yardstick, pool.keep(yardstick.best(pool, N_PUT_BACK_BLIND))
            )
        starts = pool.keep(yardstick.best(pool, N_PUT_BACK))
        lean = put_back_by_slope(yardstick, starts)
        index = yardstick.best(lean, N_APPROACH)
        starts = join([lean.keep(index), self._least_uncertain(pool)])
        return join([lean, approach(yardstick, starts, N_STEPS)])

    def _least_uncertain(self, pool):
        """Of rows without a good candidate the least uncertain one, to start from."""
        is_asked = ~torch.isnan(pool.uncertainty) & ~self._has_good(pool)[pool.rows]
        (index,) = is_asked.nonzero(as_tuple=True)
        first = first_of_each(pool.rows[index], pool.uncertainty[index], 1)
        return pool.keep(index[first])

    def _finish(self, candidates):
        yardstick = self.yardstick
        if self.use_slopes:
            candidates = put_back(yardstick, candidates)
        return put_on_atoms(yardstick, draw_back(yardstick, candidates))

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
    n_found = torch.ones(len(x), dtype=torch.long)
    for k, answer in enumerate(answers):
        rows = answer.rows
        x[rows, k:] = answer.x[:, None]
        uncertainty[rows, k:] = answer.uncertainty[:, None]
        gap[rows, k:] = answer.gap[:, None]
        n_found[rows] = k + 1
    for k in range(1, n_explanations):
        is_missing = n_found <= k
        x[is_missing, k] = x[is_missing, 0]
        uncertainty[is_missing, k] = uncertainty[is_missing, 0]
        gap[is_missing, k] = gap[is_missing, 0]
    plausibility = yardstick.shares(gap.flatten()).view_as(gap)
    return SureRows(
        x=x,
        uncertainty=uncertainty,
        plausibility=plausibility,
        distance=(x - itself.x[:, None]).abs().sum(2),
        is_sure=uncertainty <= target,
        is_plausible=plausibility >= yardstick.demand[:, None] - 1e-12,
        n_found=n_found,
        n_judged=yardstick.n_judged,
    )
