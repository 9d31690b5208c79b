"""How much each change of a counterfactual lowers the uncertainty."""

from math import factorial
from typing import NamedTuple

import numpy as np
import torch

from sklearn_clue.explainers._problem import with_slope

__all__ = []

# Steps of a way that gradients are asked for at, and the share of the fall that may be
# missed before more of them are taken, beyond what single precision rounds; images that
# go their ways together.
N_STEPS = (16, 64, 256)
MAX_MISSED = 0.005
ROUNDING = 1e-5
BLOCK = 64


class Contributions(NamedTuple):
    """What each column contributes to the fall of a value, and how exactly.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Positive where the change of the column lowers the value, zero where the column
        does not change. Each row sums to the whole fall.

    standard_error : ndarray of shape (n_rows, n_columns)
        Zero where all orders of the changes were counted, above zero where some were
        drawn.
    """

    values: np.ndarray
    standard_error: np.ndarray


def shapley_of_changes(
    value,
    x0,
    x,
    blocks,
    *,
    before=None,
    after=None,
    max_exact=10,
    n_permutations=64,
    batch_size=8192,
    seed=0,
):
    """Divide the fall of a value between the columns that change.

    The game is "which columns have changed": a set of columns is worth the value of the
    row in which these have their new values and all others their old ones. A column
    gets its Shapley value, the mean over all orders of the changes of what it lowers
    the value by when it is its turn.

    Parameters
    ----------
    value : callable
        Takes encoded rows of shape (n, n_encoded) and the numbers of the rows that they
        are made of, and returns an array of shape (n,).

    x0 : ndarray of shape (n_rows, n_encoded)
        The rows before the changes.

    x : ndarray of shape (n_rows, n_encoded)
        The rows after all changes.

    blocks : sequence of slices or index arrays
        The encoded positions of each column, which change together.

    before : ndarray of shape (n_rows,), default=None
        The values of `x0`, if they are known already; they are then not asked for, and
        the sums are exact with respect to them.

    after : ndarray of shape (n_rows,), default=None
        The values of `x`, likewise.

    max_exact : int, default=10
        The largest number of changed columns for which all their subsets are judged.

    n_permutations : int, default=64
        The number of orders drawn for a row in which more columns change. They come in
        pairs, an order and its reverse, which halves the error of a smooth value.

    batch_size : int, default=8192
        The number of rows that `value` takes at a time.

    seed : int, default=0
        Of the orders, which depend on nothing but it and the number of changed columns:
        the answer for a row does not depend on the other rows.

    Returns
    -------
    contributions : Contributions
        The contributions of shape (n_rows, n_columns), which sum to the value of `x0`
        minus that of `x` in each row, and their standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.explainers._contributions import shapley_of_changes
    >>> product = lambda x, rows: x[:, 0] * x[:, 1] + x[:, 2]
    >>> x0, x = np.array([[2.0, 2.0, 5.0]]), np.array([[0.0, 0.0, 5.0]])
    >>> shapley_of_changes(product, x0, x, [[0], [1], [2]]).values
    array([[2., 2., 0.]])
    """
    x0, x = np.asarray(x0), np.asarray(x)
    is_same = (x0 == x) | (np.isnan(x0) & np.isnan(x))
    has_changed = np.stack([~is_same[:, block].all(axis=1) for block in blocks], axis=1)
    n_changed = has_changed.sum(axis=1)
    owner = np.full(x0.shape[1], -1)
    for column, block in enumerate(blocks):
        owner[block] = column
    ends = [
        _judge(value, rows, batch_size) if known is None else np.asarray(known)
        for rows, known in ((x0, before), (x, after))
    ]
    result = Contributions(*np.zeros((2, *has_changed.shape)))
    # Rows that change as many columns share their subsets, and are judged together.
    for k in np.unique(n_changed[n_changed > 0]):
        rows = np.flatnonzero(n_changed == k)
        columns = np.nonzero(has_changed[rows])[1].reshape(len(rows), k)
        if k <= max_exact:
            subsets = np.arange(2**k)[:, np.newaxis] >> np.arange(k) & 1 == 1
        else:
            orders = _orders(k, n_permutations, seed)
            subsets, steps = _prefixes(orders)
        worth = _worth(value, x0, x, (rows, columns, owner), subsets, ends, batch_size)
        if k <= max_exact:
            shares, error = _exact(worth, k), 0.0
        else:
            shares, error = _sampled(worth, orders, steps)
        result.values[rows[:, np.newaxis], columns] = shares
        result.standard_error[rows[:, np.newaxis], columns] = error
    return result


def _judge(value, rows, batch_size):
    starts = range(0, len(rows), batch_size)
    numbers = np.arange(len(rows))
    blocks = [slice(start, start + batch_size) for start in starts]
    parts = [np.asarray(value(rows[block], numbers[block])) for block in blocks]
    return np.concatenate([*parts, np.empty(0)])


def _worth(value, x0, x, where, subsets, ends, batch_size):
    """Value of each row at each subset of its changes, of shape (n_rows, n_subsets)."""
    rows, columns, owner = where
    size = subsets.sum(axis=1)
    k = subsets.shape[1]
    worth = np.empty((len(rows), len(subsets)))
    worth[:, size == 0] = ends[0][rows, np.newaxis]
    worth[:, size == k] = ends[1][rows, np.newaxis]
    between = np.flatnonzero((size > 0) & (size < k))
    # One line per pair of a row and a subset; made in pieces, since they are many.
    n_lines = len(rows) * len(between)
    for start in range(0, n_lines, batch_size):
        lines = np.arange(start, min(start + batch_size, n_lines))
        which, subset = lines // len(between), between[lines % len(between)]
        is_new = np.zeros((len(lines), owner.max() + 1), dtype=bool)
        is_new[np.arange(len(lines))[:, np.newaxis], columns[which]] = subsets[subset]
        taken = is_new[:, owner] & (owner >= 0)
        mixed = np.where(taken, x[rows[which]], x0[rows[which]])
        worth[which, subset] = value(mixed, rows[which])
    return worth


def _exact(worth, k):
    """Shapley values from the worth of all subsets, which are numbered by their bits.

    A column gets Σ |S|! (k - |S| - 1)! / k! · (v(S) - v(S ∪ {column})) over all subsets
    S without it; the sign is such that a fall counts as positive.
    """
    number = np.arange(2**k)
    size = sum(number >> column & 1 for column in range(k))
    weight = np.array([factorial(s) * factorial(k - s - 1) for s in range(k)])
    weight = weight / factorial(k)
    shares = np.empty((len(worth), k))
    for column in range(k):
        without = number[number >> column & 1 == 0]
        fall = worth[:, without] - worth[:, without | 1 << column]
        shares[:, column] = fall @ weight[size[without]]
    return shares


def _orders(k, n_permutations, seed):
    """Orders of k columns, each followed by its reverse."""
    rng = np.random.default_rng([seed, k])
    n_pairs = max(2, -(-n_permutations // 2))
    drawn = rng.permuted(np.tile(np.arange(k), (n_pairs, 1)), axis=1)
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, k)


def _prefixes(orders):
    """The distinct sets that orders build up, and which of them each step reaches."""
    n_orders, k = orders.shape
    rank = np.argsort(orders, axis=1)
    reached = rank[:, np.newaxis, :] < np.arange(k + 1)[:, np.newaxis]
    subsets, steps = np.unique(reached.reshape(-1, k), axis=0, return_inverse=True)
    return subsets, steps.reshape(n_orders, k + 1)


def _sampled(worth, orders, steps):
    """Means over orders of what each column lowers the value by, and their errors."""
    along = worth[:, steps]  # rows, orders, steps
    falls = np.empty((*along.shape[:2], orders.shape[1]))
    np.put_along_axis(falls, orders[np.newaxis], along[..., :-1] - along[..., 1:], 2)
    pairs = falls.reshape(len(worth), -1, 2, orders.shape[1]).mean(axis=2)
    error = pairs.std(axis=1, ddof=1) / np.sqrt(pairs.shape[1])
    return pairs.mean(axis=1), error


# Images ------------------------------------------------------------------------------


def along_the_way(problem, x, way=None):
    """Divide the fall of the uncertainty between pixels, by gradients along a way.

    After Perez et al., "Attribution of predictive uncertainties in classification
    models", UAI 2022: the integral of the gradient along a way through images that the
    generator can make. The way begins at the image and ends at its counterfactual;
    what the generator misses of them is added, less and less of the one and more and
    more of the other.

    Parameters
    ----------
    problem : SearchProblem
        The images.

    x : ndarray of shape (n_rows, n_pixels)
        What becomes of them.

    way : ndarray of shape (n_rows, n_points, n_latent) or None, default=None
        Latents on the way, NaN after its end; None for the straight way from image to
        image.

    Returns
    -------
    values : ndarray of shape (n_rows, n_pixels)
        Positive where the change of a pixel lowers the uncertainty.
    """
    values = torch.zeros_like(problem.x0)
    everyone = torch.arange(len(problem)).split(BLOCK)
    for rows in everyone if len(problem) else ():
        part, end = problem.take(rows), torch.as_tensor(x)[rows]
        points = None if way is None else torch.as_tensor(way[rows.numpy()])
        values[rows] = _integrate(part, end, points)
    return values.numpy()


def _integrate(problem, x, way):
    """Integrate gradients, in finer steps where more than a little is missed."""
    everyone = torch.arange(len(x))
    with torch.no_grad():
        fall = problem.uncertainty(problem.x0, everyone)
        fall = fall - problem.uncertainty(x, everyone)
    values = torch.zeros_like(x)
    (rows,) = (x != problem.x0).any(1).nonzero(as_tuple=True)
    for n_steps in N_STEPS if len(rows) else ():
        points = None if way is None else way[rows]
        values[rows] = _sum_of_steps(problem.take(rows), x[rows], points, n_steps)
        missed = (values.sum(1) - fall)[rows].abs()
        rows = rows[missed > MAX_MISSED * fall[rows].abs() + ROUNDING]
        if not len(rows):
            break
    return values


def _sum_of_steps(problem, x, way, n_steps):
    """The integral by the midpoint rule."""
    rows, total, here = torch.arange(len(x)), torch.zeros_like(x), problem.x0
    for step in range(n_steps):
        there = _on_the_way(problem, x, way, (step + 1) / n_steps)
        middle = (here + there) / 2
        _, slope = with_slope(lambda at: problem.uncertainty(at, rows), middle)
        total -= slope * (there - here)
        here = there
    return total


def _on_the_way(problem, x, way, share):
    """Images at a share of the way."""
    rows = torch.arange(len(x))
    direct = (1 - share) * problem.x0 + share * x
    if way is None or share == 1:
        return direct
    with torch.no_grad():
        first, last, there = (_latents_at(way, at) for at in (0.0, 1.0, share))
        bend = problem.decode(there)
        bend -= (1 - share) * problem.decode(first) + share * problem.decode(last)
        return problem.valid(direct + bend, rows)


def _latents_at(way, share):
    """Latents at a share of the length of the way."""
    known = ~torch.isnan(way).any(2)
    # What comes after the end is the end.
    last = known.sum(1) - 1
    index = torch.minimum(torch.arange(way.shape[1]), last[:, None])
    way = way.gather(1, index[:, :, None].expand_as(way))
    length = (way[:, 1:] - way[:, :-1]).norm(dim=2)
    reached = torch.cat([length.new_zeros(len(way), 1), length.cumsum(1)], 1)
    target = share * reached[:, -1:]
    step = torch.searchsorted(reached[:, 1:].contiguous(), target)[:, 0]
    step = step.clamp(max=way.shape[1] - 2)
    rows = torch.arange(len(way))
    part = (target[:, 0] - reached[rows, step]) / length[rows, step].clamp_min(1e-300)
    part = part.clamp(0, 1)[:, None]
    return (1 - part) * way[rows, step] + part * way[rows, step + 1]


def up_to_best(way, objective):
    """Leave out what a search did after its best point.

    Parameters
    ----------
    way : ndarray of shape (n_rows, n_points, n_latent)
        Latents, NaN where there are none.

    objective : ndarray of shape (n_rows, n_points) or None
        What was least at the best point; None if the way ends there.

    Returns
    -------
    way : ndarray of shape (n_rows, n_points, n_latent)
        With NaN after the best point, and without NaN before.
    """
    if objective is None:
        return way
    way = way.copy()
    best = np.where(np.isnan(objective), np.inf, objective).argmin(1)
    place = np.arange(way.shape[1])
    for k, last in enumerate(best):
        known = way[k, (place <= last) & ~np.isnan(way[k]).any(1)]
        way[k] = np.nan
        way[k, : len(known)] = known
    return way
