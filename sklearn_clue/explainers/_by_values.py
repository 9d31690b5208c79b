"""The nearest sure row of a model that has no slopes, from values alone.

Every search leaves judged rows around the row that is explained. A plane through a
candidate, fitted to them, tells which changes matter there: slopes that cost no
judgement, of forests as of networks.
"""

import numpy as np
import torch

from sklearn_clue.explainers._descent import approach
from sklearn_clue.explainers._polish import put_back, put_back_by_slope
from sklearn_clue.explainers._yardstick import Yardstick, first_of_each, join

# Weight of a slope of zero, against the rows that were judged.
RIDGE = 1e-2

# Judged rows weigh by this power of their nearness. With squares, far ones tell as much
# as near ones of a bowl, and little with the fourth power (wine: 1.007, 1.014 and 1.033
# of the distances by gradients at 2, 3 and 4; a bowl: 1.05, 1.03 and 1.02).
POWER = 3

# Judgements of a row for putting columns back one by one, most of what a search
# spends: the cheapest candidates get them, and the planes rank the columns of others.
N_TRIALS = 100

# Candidates, besides the best of each proposer, that are brought nearer, and steps.
N_APPROACH = 3
N_STEPS = 6


class ValuesYardstick(Yardstick):
    """A yardstick that remembers what it has judged, and has slopes by that.

    Whether the model has slopes does not matter: it is asked for values only.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._asked = []

    def uncertainty(self, x, rows):
        """Ask the predictor, count, and remember."""
        uncertainty = super().uncertainty(x, rows)
        self._asked.append([part.numpy() for part in (x, rows, uncertainty)])
        return uncertainty

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
        x, rows = candidates.x, candidates.rows
        uncertainty = self.uncertainty(x, rows)
        slope = np.zeros(x.shape)
        for i, (known, value) in enumerate(self._judged_of(rows.numpy())):
            step = known - x[i].numpy()
            distance = np.abs(step).sum(1)
            weight = np.divide(1, distance**POWER, where=distance > 0, out=distance * 0)
            normal = (weight[:, None] * step).T @ step
            rise = step.T @ (weight * (value - uncertainty[i].item()))
            # Row by row, by numpy: a slope must not depend on who shares its batch.
            ridge = RIDGE * np.trace(normal) / len(normal) + np.finfo(float).tiny
            slope[i] = np.linalg.solve(normal + ridge * np.eye(len(normal)), rise)
        return candidates._replace(uncertainty=uncertainty), torch.as_tensor(slope)

    def _judged_of(self, rows):
        """What was judged of each of some rows, in the order of judging."""
        x, whose, value = map(np.concatenate, zip(*self._asked, strict=True))
        self._asked = [[x, whose, value]]
        order = whose.argsort(kind="stable")
        ends = [np.searchsorted(whose[order], rows, side) for side in ("left", "right")]
        for first, last in zip(*ends, strict=True):
            yield x[order[first:last]], value[order[first:last]]


def improve_by_values(yardstick, candidates, source):
    """Undo and shorten changes of candidates, within a budget of judgements.

    Parameters
    ----------
    yardstick : ValuesYardstick
        What candidates must not lose.

    candidates : Candidates
        Good ones.

    source : LongTensor of shape (n_candidates,)
        Who has proposed them.

    Returns
    -------
    seen : Candidates
        Leaner ones, and all rows on the way to nearer ones, whether good or not.
    """
    is_swept = _within_budget(yardstick, candidates)
    swept = put_back(yardstick, candidates.keep(is_swept))
    ranked = put_back_by_slope(yardstick, candidates.keep(~is_swept))
    lean = join([swept, ranked])
    source = torch.cat([source[is_swept], source[~is_swept]])
    chosen = yardstick.best(lean, 1, source), yardstick.best(lean, N_APPROACH)
    starts = lean.keep(torch.cat(chosen).unique())
    seen, _ = approach(yardstick, starts, N_STEPS)
    return join([lean, seen])


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
