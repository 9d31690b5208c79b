"""The nearest sure row of a model that has no slopes, from values alone.

Every search leaves judged rows around the row that is explained. A plane through a
candidate, fitted to them, tells which changes matter there: slopes that cost no
judgement, of forests as of networks.
"""

import numpy as np
import torch

from sklearn_clue.explainers._descent import approach
from sklearn_clue.explainers._polish import put_back
from sklearn_clue.explainers._yardstick import (
    Candidates,
    Yardstick,
    first_of_each,
    join,
)

# Weight of a slope of zero, against the rows that were judged.
RIDGE = 2e-2

TINY = np.finfo(float).tiny

# Places for what was judged of a row come in tiles. So many candidates at a time fit
# the cache.
TILE = 32
FEW = 32

# Candidates of a row and proposer that columns are put back of.
N_PUT_BACK = 3

# Judgements of a row for putting columns back one by one, a third of what a search may
# spend: the cheapest candidates get them, and lend what they learned to the others.
N_TRIALS = 90

# Candidates, besides the best of each proposer, that are brought nearer, and steps;
# then the same for the best of what was found, of rows that came nearer by this share.
N_APPROACH = 3
N_STEPS = 6
N_AGAIN = 2
NEARER = 0.05

# Rows that are nearly sure, from which to walk on, at first and the second time: the
# cheapest, by what they cost and by this share of the way that they lack in the
# steepest column. On rows that no setting was chosen on, eight at first are nearer than
# four by a percent at most (networks on Credit and breast cancer; a forest: two).
N_NEARLY = 8
N_NEARLY_AGAIN = 4
SHARE = 0.5

# Candidates that cost more than this times the cheapest of their row are not shortened.
SLACK = 1.5


class ValuesYardstick(Yardstick):
    """A yardstick that remembers what it has judged, and has slopes by that.

    Whether the model has slopes does not matter: it is asked for values only.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._known = {}
        # What was judged of each row, in the order of asking.
        n_rows, n_encoded = self.problem.x0.shape
        self._n_asked = np.zeros(n_rows, dtype=np.intp)
        self._x = np.zeros((n_rows, 0, n_encoded))
        self._value = np.zeros((n_rows, 0))

    def uncertainty(self, x, rows):
        """Ask the predictor about what is new, count, and remember."""
        known = self._known
        # The bytes of each, whatever order x comes in.
        cells = np.ascontiguousarray(np.column_stack([rows.numpy(), x.numpy()]))
        keys = cells.view(f"V{cells.itemsize * cells.shape[1]}")[:, 0].tolist()
        new = {key: i for i, key in enumerate(keys) if key not in known}
        if new:
            index = torch.tensor(list(new.values()))
            x, rows = x[index], rows[index]
            value = super().uncertainty(x, rows).numpy()
            self._remember(x.numpy(), rows.numpy(), value)
            known.update(zip(new, value.tolist(), strict=True))
        return torch.as_tensor(np.array([known[key] for key in keys], dtype=float))

    def _remember(self, x, rows, value):
        order = rows.argsort(kind="stable")
        x, rows, value = x[order], rows[order], value[order]
        place = self._n_asked[rows] + np.arange(len(rows)) - rows.searchsorted(rows)
        n_more = place.max() + 1 - self._value.shape[1]
        if n_more > 0:
            n_more = -(-n_more // TILE) * TILE
            self._x = np.pad(self._x, ((0, 0), (0, n_more), (0, 0)))
            self._value = np.pad(self._value, ((0, 0), (0, n_more)))
        self._x[rows, place], self._value[rows, place] = x, value
        self._n_asked += np.bincount(rows, minlength=len(self._n_asked))

    def with_slopes(self, candidates):
        """Ask for the uncertainty of candidates, and tell slopes by what was judged.

        They are those of the plane through a candidate that fits best what was judged
        of its row, the more so the nearer.

        Parameters
        ----------
        candidates : Candidates
            Their uncertainty is not looked at.

        Returns
        -------
        candidates : Candidates
            With their uncertainty.

        slope : Tensor of shape (n_candidates, n_encoded)
            Zero at positions that no judged row differs in.
        """
        uncertainty = self.uncertainty(candidates.x, candidates.rows)
        parts = (part.numpy() for part in (candidates.x, candidates.rows, uncertainty))
        at, rows, value_at = parts
        slope = np.zeros(at.shape)
        # Rows of as many tiles at once: a slope must not depend on who shares its
        # batch, and products round by their size.
        n_tiles = -(-self._n_asked[rows] // TILE)
        for n in np.unique(n_tiles):
            for index in _blocks(np.flatnonzero(n_tiles == n)):
                known = self._x[rows[index], : n * TILE]
                value = self._value[rows[index], : n * TILE]
                is_asked = np.arange(n * TILE) < self._n_asked[rows[index], None]
                step = known - at[index, None]
                distance = np.abs(step).sum(2)
                is_asked &= distance > 0
                nearness = np.divide(1, distance, where=is_asked, out=0 * distance)
                # The cube: with squares, far ones tell as much as near ones of a bowl,
                # and little with the fourth power (wine: 1.007, 1.014 and 1.033 of the
                # distances by gradients at 2, 3 and 4; a bowl: 1.05, 1.03 and 1.02).
                weight = nearness * nearness * nearness
                across = (weight[:, :, None] * step).transpose(0, 2, 1)
                normal = across @ step
                rise = across @ (value - value_at[index, None])[:, :, None]
                diagonal = np.einsum("...ii->...i", normal)
                diagonal += RIDGE * diagonal.mean(1, keepdims=True) + TINY
                slope[index] = np.linalg.solve(normal, rise)[:, :, 0]
        return candidates._replace(uncertainty=uncertainty), torch.as_tensor(slope)

    def judged(self):
        """All that was asked about: encoded rows, whose they are, and the answers."""
        is_asked = np.arange(self._value.shape[1]) < self._n_asked[:, None]
        return self._x[is_asked], is_asked.nonzero()[0], self._value[is_asked]


def _blocks(index):
    return [index[first : first + FEW] for first in range(0, len(index), FEW)]


def improve_by_values(yardstick, candidates, source):
    """Undo and shorten changes of candidates, within a budget of judgements.

    Parameters
    ----------
    yardstick : ValuesYardstick
        What candidates must not lose.

    candidates : Candidates
        What was proposed, good or not.

    source : LongTensor of shape (n_candidates,)
        Who has proposed it.

    Returns
    -------
    seen : Candidates
        Leaner ones, and all rows on the way to nearer ones, whether good or not.
    """
    best = yardstick.best(candidates, N_PUT_BACK, source)
    candidates, source = candidates.keep(best), source[best]
    is_swept = _within_budget(yardstick, candidates)
    swept = put_back(yardstick, candidates.keep(is_swept))
    rest, rest_source = candidates.keep(~is_swept), source[~is_swept]
    lent, whose = _with_columns_of(yardstick, rest, swept)
    lean = join([swept, lent])
    source = torch.cat([source[is_swept], rest_source[whose]])
    chosen = yardstick.best(lean, 1, source), yardstick.best(lean, N_APPROACH)
    starts = lean.keep(torch.cat(chosen).unique())
    starts = join([starts, _nearly_sure(yardstick, lean, N_NEARLY)])
    first = join([lean, approach(yardstick, starts, N_STEPS)[0]])
    starts = first.keep(yardstick.best(first, N_AGAIN))
    starts = join([starts, _nearly_sure(yardstick, first, N_NEARLY_AGAIN)])
    before, after = map(yardstick.least_costs, (lean, first))
    starts = starts.keep((after < (1 - NEARER) * before)[starts.rows])
    return join([first, approach(yardstick, starts, N_STEPS)[0]])


def _nearly_sure(yardstick, candidates, n):
    """Some rows that were judged and not sure, but may lead to nearer ones that are.

    A category and a little of a number are often nearer than two categories.
    """
    best, slope = yardstick.with_slopes(candidates.keep(yardstick.best(candidates)))
    steepness = slope.abs() / yardstick.price[best.rows] * yardstick.number_positions
    steepest = torch.zeros_like(yardstick.target)
    steepest[best.rows] = steepness.amax(1)
    least = yardstick.least_costs(candidates)
    x, rows, value = map(torch.as_tensor, yardstick.judged())
    short = value - yardstick.target[rows]
    cost = yardstick.cost(x, rows) + SHARE * short / steepest[rows]
    (index,) = ((short > 0) & (cost < least[rows])).nonzero(as_tuple=True)
    index = index[first_of_each(rows[index], cost[index], n)]
    x, rows = x[index], rows[index]
    nearly = Candidates(x, rows, value[index], yardstick.gaps(x, rows))
    return nearly.keep(yardstick.is_near(nearly))


def worth_shortening(yardstick, candidates):
    """Those that may become the cheapest of their row."""
    cost = yardstick.cost(candidates.x, candidates.rows)
    least = yardstick.least_costs(candidates)[candidates.rows]
    return candidates.keep(cost <= SLACK * least)


def _with_columns_of(yardstick, candidates, others):
    """Judge candidates with no changes but in the columns that others change.

    What one of them needs is often what the next one needs.
    """
    mine, theirs = (candidates.rows[:, None] == others.rows).nonzero(as_tuple=True)
    changed = yardstick.changed(others.x, others.rows)[theirs].double()
    is_kept = changed @ yardstick.belongs.double() > 0
    rows = candidates.rows[mine]
    x = torch.where(is_kept, candidates.x[mine], yardstick.problem.x0[rows])
    judged = yardstick.judge(x, rows)
    fits = yardstick.is_good(judged)
    return judged.keep(fits), mine[fits]


def _within_budget(yardstick, candidates):
    """The cheapest of each row whose columns can be tried one by one, and the first."""
    rows = candidates.rows
    cost = yardstick.cost(candidates.x, rows)
    order = first_of_each(rows, cost, len(rows))
    n_trials = yardstick.changed(candidates.x, rows).sum(1)[order]
    first = torch.searchsorted(rows[order], rows[order])
    spent = n_trials.cumsum(0)
    spent = spent - (spent - n_trials)[first]
    is_swept = torch.zeros(len(rows), dtype=torch.bool)
    is_swept[order] = (spent <= N_TRIALS) | (torch.arange(len(rows)) == first)
    return is_swept
