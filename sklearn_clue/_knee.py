"""The point of a trade-off that gains most for its cost."""

import numpy as np

__all__ = []


def knee_distances(gain, cost, *, max_gain=None, max_cost=None):
    """Measure how far each point of a trade-off is from gaining all at no cost.

    Parameters
    ----------
    gain : array-like of shape (n_points,)
        What is to be large, for example the uncertainty explained.

    cost : array-like of shape (n_points,)
        What is to be small, for example the distance from the original rows.

    max_gain : float, default=None
        What counts as all of the gain; None means the largest one given. To compare
        methods, pass the largest one of all of them.

    max_cost : float, default=None
        What counts as all of the cost, likewise.

    Returns
    -------
    distances : ndarray of shape (n_points,)
        0 for all of the gain at no cost, 1 for no gain at all of the cost.

    See Also
    --------
    knee_index : The nearest point.

    Notes
    -----
    Section 5.1 of the paper: both axes are scaled to [0, 1/√2], and the gain is turned
    round so that its best value is 0.

    Examples
    --------
    >>> from sklearn_clue.explanation import knee_distances
    >>> knee_distances([0.0, 0.8, 1.0], [0.0, 0.1, 1.0]).round(2)
    array([0.71, 0.16, 0.71])
    """
    gain, cost = np.asarray(gain, dtype=float), np.asarray(cost, dtype=float)
    # A curve without any gain or cost has no scale of its own.
    max_gain = max(np.nanmax(gain) if max_gain is None else max_gain, 0.0) or 1.0
    max_cost = max(np.nanmax(cost) if max_cost is None else max_cost, 0.0) or 1.0
    return np.hypot(1 - gain / max_gain, cost / max_cost) / np.sqrt(2)


def knee_index(gain, cost, *, max_gain=None, max_cost=None):
    """Find the point of a trade-off that gains most for its cost.

    Parameters
    ----------
    gain : array-like of shape (n_points,)
        What is to be large, for example the uncertainty explained.

    cost : array-like of shape (n_points,)
        What is to be small, for example the distance from the original rows.

    max_gain : float, default=None
        What counts as all of the gain; None means the largest one given.

    max_cost : float, default=None
        What counts as all of the cost, likewise.

    Returns
    -------
    index : int
        Position of the knee point: the one of the smallest knee distance.

    See Also
    --------
    knee_distances : The distance of each point.

    Examples
    --------
    >>> from sklearn_clue.explanation import knee_index
    >>> knee_index([0.0, 0.8, 1.0], [0.0, 0.1, 1.0])
    1
    """
    distances = knee_distances(gain, cost, max_gain=max_gain, max_cost=max_cost)
    return int(np.nanargmin(distances))
