"""Proposals that change one, two or three columns, over values of the training rows."""

from itertools import combinations

import numpy as np
import torch

from sklearn_clue.explainers._yardstick import first_of_each, join

# Values of a number to try: these quantiles of its column.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# All values of a number that has so few of them.
N_FEW = 12

# Single changes that are judged where slopes tell the promising ones, and where not;
# changes that are combined, and combinations that are judged.
N_SINGLE = 32
N_SINGLE_BLIND = 72
N_BEAM = 6
N_COMBINED = 6


class ColumnMoves:
    """All changes of one column to a value of the training rows.

    Parameters
    ----------
    schema : FeatureSchema
        The columns.

    x : ndarray of shape (n_rows, n_encoded) or None, default=None
        Encoded training rows, for the quantiles of numbers; None for those that the
        schema knows.

    Attributes
    ----------
    values : Tensor of shape (n_moves, n_encoded)
        What the column of a move becomes; zero elsewhere.

    belongs : Tensor of shape (n_moves, n_encoded)
        Which positions that is.

    column : Tensor of shape (n_moves,)
        The column of each move.
    """

    def __init__(self, schema, x=None):
        values, belongs, column = [], [], []
        n_encoded = schema.n_encoded
        for j, each in enumerate(schema):
            for value in _values(each, x):
                values.append(np.zeros(n_encoded))
                belongs.append(np.zeros(n_encoded, dtype=bool))
                values[-1][each.block], belongs[-1][each.block] = value, True
                column.append(j)
        self.values = torch.as_tensor(np.array(values).reshape(-1, n_encoded))
        self.belongs = torch.as_tensor(np.array(belongs).reshape(-1, n_encoded))
        self.column = torch.tensor(column, dtype=torch.long)

    def __len__(self):
        return len(self.column)

    def apply(self, x, moves):
        """Rows after one move each; -1 is none."""
        moved = torch.where(self.belongs[moves], self.values[moves], x)
        return torch.where((moves < 0)[:, None], x, moved)


def _values(column, x):
    if column.kind == "category":
        return np.eye(column.span[1] - column.span[0])
    values = list(getattr(column, "atoms", None) or ())
    if x is None:
        known = column.percentiles or ()
        values += [known[round(100 * share)] for share in QUANTILES if known]
    if values:
        values = (np.array(values, dtype=float) - column.center) / column.scale
    if x is not None:
        own = x[:, column.span[0]]
        distinct = np.unique(own)
        if len(distinct) > N_FEW:
            distinct = np.quantile(own, QUANTILES, method="nearest")
        values = np.append(values, distinct)
    return np.unique(values)[:, None]


def propose_columns(yardstick, rows, moves, uncertainty, slope=None):
    """Change one column at a time, then two or three of the most useful.

    Parameters
    ----------
    yardstick : Yardstick
        Judges the proposals.

    rows : LongTensor of shape (n_open,)
        Rows to propose something for.

    moves : ColumnMoves
        The changes to try.

    uncertainty : Tensor of shape (n_open,)
        Of these rows as they are.

    slope : Tensor of shape (n_open, n_encoded) or None, default=None
        How the uncertainty changes on the way to sure rows, to judge the promising
        moves only.

    Returns
    -------
    candidates : Candidates
        All that was judged.
    """
    x0 = yardstick.problem.x0[rows]
    position = torch.arange(len(rows)).repeat_interleave(len(moves))
    move = torch.arange(len(moves)).repeat(len(rows))
    x = moves.apply(x0[position], move)
    rank = yardstick.cost(x, rows[position])
    is_move = rank > 0
    n_single = N_SINGLE_BLIND
    if slope is not None:
        drop = -(slope[position] * (x - x0[position])).sum(1)
        need = (uncertainty - yardstick.target[rows])[position]
        # The distance at which the tangent meets the target.
        rank = rank * (need / drop.clamp_min(1e-12)).clamp(0.5, 1e6)
        n_single = N_SINGLE
    position, move, x, rank = (a[is_move] for a in (position, move, x, rank))
    chosen = first_of_each(position, rank, n_single)
    position, move = position[chosen], move[chosen]
    single = yardstick.judge(x[chosen], rows[position])
    several = _combine(yardstick, single, position, move, moves, uncertainty, rows)
    return join([single, several])


def _combine(yardstick, single, position, move, moves, uncertainty, rows):
    """Judge the combinations of useful moves that should do by the sum of effects."""
    drop = uncertainty[position] - single.uncertainty
    cost = yardstick.cost(single.x, single.rows)
    is_useful = drop > 0  # and not NaN
    position, move, drop, cost = (a[is_useful] for a in (position, move, drop, cost))
    beam = first_of_each(position, -drop / cost, N_BEAM)
    position, move, drop, cost = (a[beam] for a in (position, move, drop, cost))
    # One line per row, with -1 and no effect where there are fewer moves.
    n_rows = len(rows)
    first = torch.searchsorted(position, position)
    rank = torch.arange(len(position)) - first
    table = torch.full((n_rows, N_BEAM), -1)
    effect, price = (drop.new_zeros(n_rows, N_BEAM) for _ in range(2))
    table[position, rank], effect[position, rank], price[position, rank] = (
        move,
        drop,
        cost,
    )
    need = uncertainty - yardstick.target[rows]
    groups = [g for n in (2, 3) for g in combinations(range(N_BEAM), n)]
    column = torch.where(table < 0, -1 - torch.arange(N_BEAM), moves.column[table])
    tables = []
    for group in groups:
        part = table[:, group]
        columns = column[:, group].sort(1).values
        is_distinct = (columns.diff(dim=1) != 0).all(1) & (part >= 0).all(1)
        # Short of the target, what is nearer to it comes first.
        short = (need - effect[:, group].sum(1)).clamp_min(0) / need.clamp_min(1e-12)
        value = price[:, group].sum(1) * (1 + 10 * short)
        tables.append(torch.where(is_distinct, value, torch.inf))
    value = torch.stack(tables, 1)
    best = value.argsort(dim=1, stable=True)[:, :N_COMBINED]
    is_there = torch.isfinite(value.gather(1, best))
    row, place = is_there.nonzero(as_tuple=True)
    padded = torch.tensor([(*g, -1)[:3] for g in groups])[best[row, place]]
    x = yardstick.problem.x0[rows[row]]
    for part in padded.T:
        index = table[row, part.clamp_min(0)]
        x = moves.apply(x, torch.where(part < 0, -1, index))
    return yardstick.judge(x, rows[row])
