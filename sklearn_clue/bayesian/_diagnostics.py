"""Do several chains tell the same story, and how many independent draws is it worth?

Formulas of Gelman et al., "Bayesian Data Analysis" (3rd ed.), Sec. 11.4 and 11.5.
"""

import numpy as np


def split_r_hat(values):
    """Compare the spread between halves of chains with the spread within them.

    Parameters
    ----------
    values : ndarray of shape (n_chains, n_draws, ...)
        A quantity along each chain.

    Returns
    -------
    r_hat : ndarray of shape (...)
        Near 1 if the chains agree. NaN with fewer than 4 draws per chain, or where
        nothing moves.
    """
    halves = _split(values)
    if halves is None:
        return np.full(values.shape[2:], np.nan)
    within, pooled = _variances(halves)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(pooled / within)


def effective_sample_size(values):
    """Count the independent draws that would estimate a mean equally well.

    Parameters
    ----------
    values : ndarray of shape (n_chains, n_draws, ...)
        A quantity along each chain.

    Returns
    -------
    n_effective : ndarray of shape (...)
        At most the number of draws. NaN as for `split_r_hat`.
    """
    halves = _split(values)
    if halves is None:
        return np.full(values.shape[2:], np.nan)
    n_chains, n_draws = halves.shape[:2]
    _, pooled = _variances(halves)
    centred = halves - halves.mean(1, keepdims=True)
    total = np.ones_like(pooled)
    is_open = np.ones(pooled.shape, dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Eq. 11.7, with the autocovariance of each chain instead of its variogram.
        unexplained = pooled - halves.var(1, ddof=1).mean(0)
        correlation = [
            (
                unexplained
                + (centred[:, lag:] * centred[:, : n_draws - lag]).sum(1).mean(0)
                / n_draws
            )
            / pooled
            for lag in range(1, n_draws)
        ]
        # Geyer: sum in pairs until one is negative; beyond is noise.
        for first, second in zip(correlation[0::2], correlation[1::2], strict=False):
            is_open &= first + second > 0
            total += np.where(is_open, 2 * (first + second), 0)
        n_total = n_chains * n_draws
        return np.where(pooled > 0, np.minimum(n_total / total, n_total), np.nan)


def _split(values):
    """Cut each chain into its two halves, as chains of their own."""
    half = values.shape[1] // 2
    if half < 2:
        return None
    return np.concatenate([values[:, :half], values[:, -half:]]).astype(np.float64)


def _variances(chains):
    """Within-chain variance, and the estimate that also counts the spread between."""
    n_draws = chains.shape[1]
    within = chains.var(1, ddof=1).mean(0)
    between = chains.mean(1).var(0, ddof=1)
    return within, within * (n_draws - 1) / n_draws + between
