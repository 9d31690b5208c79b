"""Polish: take back whatever a row does not need to be sure.

Rows that have been found hold changes that are not needed, or larger than needed.
Nothing that was good is lost here: each step is taken only if the row stays sure,
valid and plausible enough.
"""

import torch

from sklearn_clue.explainers._yardstick import ROUNDING, replaced

# Sweeps over the columns that might be put back, halvings of a stretch of numbers,
# and numbers that are drawn back on their own.
N_SWEEPS = 4
N_HALVINGS = 6
N_ALONE = 4

# Share of its way that a number is drawn back at first.
FIRST = 0.05

# A number this near to an atom of its column, in standard deviations, is put on it.
NEXT_TO = 0.25


def polish(yardstick, candidates):
    """Take back whatever candidates do not need.

    Parameters
    ----------
    yardstick : Yardstick
        What must not be lost, and the price of what is left.

    candidates : Candidates
        Good ones.

    Returns
    -------
    candidates : Candidates
        In the same order, all good and none dearer than before.
    """
    if not len(candidates.x):
        return candidates
    polished = put_back(yardstick, candidates)
    polished = draw_back(yardstick, polished)
    return put_on_atoms(yardstick, polished)


# Columns ---------------------------------------------------------------------------


def put_back(yardstick, candidates):
    """Give columns the value of the row, the most useless first."""
    level = yardstick.levels(candidates)
    is_open = yardstick.changed(candidates.x, candidates.rows)
    for _ in range(N_SWEEPS):
        is_open &= yardstick.changed(candidates.x, candidates.rows)
        candidate, column = is_open.nonzero(as_tuple=True)
        if not len(candidate):
            break
        is_back = yardstick.belongs[column]
        trials = _without(yardstick, candidates, candidate, is_back, level)
        fits = yardstick.is_good(trials)
        is_open[candidate[~fits], column[~fits]] = False
        # Useless: much distance for little certainty.
        rise = trials.uncertainty - candidates.uncertainty[candidate]
        saved = yardstick.column_costs(candidates.x, candidates.rows)
        harm = torch.full_like(saved, torch.inf)
        harm[candidate, column] = rise / saved[candidate, column].clamp_min(1e-12)
        harm[~is_open] = torch.inf
        order = harm.argsort(dim=1, stable=True)
        candidates = _longest_start(yardstick, candidates, order, is_open.sum(1), level)
    return candidates


def put_back_by_slope(yardstick, candidates):
    """Put back the columns that slopes call useless, as many as possible.

    That takes few judgements even where most columns differ. The slopes are those
    halfway to the row.
    """
    x0 = yardstick.problem.x0[candidates.rows]
    middle = candidates._replace(x=(candidates.x + x0) / 2)
    _, slope = yardstick.with_slopes(middle)
    rise = (slope * (x0 - candidates.x)) @ yardstick.belongs.T.to(slope.dtype)
    saved = yardstick.column_costs(candidates.x, candidates.rows)
    harm = torch.where(saved > 0, rise / saved.clamp_min(1e-12), torch.inf)
    order = harm.argsort(dim=1, stable=True)
    return _longest_start(yardstick, candidates, order, (saved > 0).sum(1))


def _without(yardstick, candidates, index, is_back, level=None):
    """Judge candidates with some positions put back."""
    x, rows = candidates.x[index], candidates.rows[index]
    there = torch.where(is_back, yardstick.problem.x0[rows], x)
    return yardstick.judge(there, rows, level=_of(level, index))


def _of(level, index):
    return None if level is None else level[index]


def _longest_start(yardstick, candidates, order, n_columns, level=None):
    """Put back as many columns as possible from the start of an order, by bisection."""
    rank = order.argsort(1)
    # At least `least` columns can be put back, and not more than `most`.
    least, most = torch.zeros_like(n_columns), n_columns
    middle = most  # often all of them can
    while True:
        (index,) = (least < most).nonzero(as_tuple=True)
        if not len(index):
            return candidates
        is_back = rank[index] < middle[index, None]
        is_back = is_back.to(torch.float64) @ yardstick.belongs.to(torch.float64) > 0
        trials = _without(yardstick, candidates, index, is_back, level)
        fits = yardstick.is_good(trials)
        candidates = replaced(candidates, index[fits], trials.keep(fits))
        least, most = least.clone(), most.clone()
        least[index[fits]] = middle[index[fits]]
        most[index[~fits]] = middle[index[~fits]] - 1
        middle = (least + most + 1) // 2


# Numbers ---------------------------------------------------------------------------


def draw_back(yardstick, candidates, n_alone=N_ALONE):
    """Move numbers towards the row: the farthest ones alone, then all together."""
    costs = yardstick.column_costs(candidates.x, candidates.rows)
    costs[:, ~yardstick.is_number] = 0
    farthest, order = costs.sort(dim=1, descending=True, stable=True)
    level = yardstick.levels(candidates)
    for column, is_moved in list(
        zip(order.T[:n_alone], farthest.T[:n_alone] > 0, strict=True)
    ):
        is_drawn = yardstick.belongs[column] & is_moved[:, None]
        candidates = _shorten(yardstick, candidates, is_drawn, level)
    everywhere = yardstick.number_positions.expand(len(costs), -1)
    return _shorten(yardstick, candidates, everywhere, level)


def _shorten(yardstick, candidates, is_drawn, level):
    """Move some positions towards the row as far as that stays good, by bisection."""
    x0 = yardstick.problem.x0[candidates.rows]
    far = torch.where(is_drawn, candidates.x - x0, 0.0)
    origin = candidates.x - far
    (index,) = (far != 0).any(1).nonzero(as_tuple=True)
    least, most = far.new_zeros(len(far)), far.new_ones(len(far))
    for step in range(N_HALVINGS):
        if not len(index):
            break
        # Most numbers are as near as they can be: see first whether there is any room.
        middle = (least + most) / 2 if step else most - FIRST
        now = candidates.keep(index)
        trials = yardstick.judge(
            (origin + middle[:, None] * far)[index],
            now.rows,
            level=_of(level, index),
            known=now,
        )
        fits = yardstick.is_good(trials)
        # Rounding to possible values may lead away from the row.
        is_nearer = yardstick.cost(trials.x, trials.rows) < (
            yardstick.cost(now.x, now.rows) - ROUNDING
        )
        fits &= is_nearer
        candidates = replaced(candidates, index[fits], trials.keep(fits))
        most[index[fits]] = middle[index[fits]]
        if step:
            least[index[~fits]] = middle[index[~fits]]
        else:
            # So little may be rounded away, which says nothing of a longer way.
            index = index[fits | ~is_nearer]
    return candidates


def put_on_atoms(yardstick, candidates):
    """Put numbers next to an atom of their column on it, where that is good."""
    level = yardstick.levels(candidates)
    for column in yardstick.columns:
        for atom in getattr(column, "atoms", None) or ():
            value = (float(atom) - column.center) / column.scale
            position = column.span[0]
            x, x0 = candidates.x[:, position], yardstick.problem.x0[:, position]
            is_next = (x != value) & ((x - value).abs() <= NEXT_TO)
            is_next &= x != x0[candidates.rows]
            (index,) = is_next.nonzero(as_tuple=True)
            if not len(index):
                continue
            there = candidates.x[index].clone()
            there[:, position] = value
            rows = candidates.rows[index]
            trials = yardstick.judge(there, rows, level=_of(level, index))
            fits = yardstick.is_good(trials)
            candidates = replaced(candidates, index[fits], trials.keep(fits))
    return candidates
