"""Plausibility by the density of a generator, for those who must not store rows."""

import inspect
from functools import partial

import numpy as np
import torch

from sklearn_clue._torch import pad_rows
from sklearn_clue.explainers._neighbors import MAX_ROWS

# Latents per row, where the generator lets itself be told: the same for all rows, so
# that the estimate is smooth from row to row.
N_IMPORTANCE = 16

# Relative differences this small are rounding.
ROUNDING = 1e-9


def log_density_of(model):
    """A function from encoded rows to their log-density by a generator, or None."""
    log_prob = getattr(model, "log_prob", None)
    if log_prob is None:
        return None
    settings = {"n_importance": N_IMPORTANCE, "common_noise": True}
    if settings.keys() <= inspect.signature(log_prob).parameters.keys():
        log_prob = partial(log_prob, **settings)

    def log_density(x):
        rows = pad_rows(torch.as_tensor(x)).to(getattr(model, "dtype", torch.float64))
        with torch.no_grad():
            return log_prob(rows)[: len(x)].double().numpy()

    return log_density


def usual_densities(model, x):
    """Sorted log-densities of training rows, of a random choice if there are many.

    Parameters
    ----------
    model : object
        What the generator gives to search its latents.

    x : ndarray of shape (n_rows, n_encoded)
        Encoded training rows.

    Returns
    -------
    usual : ndarray or None
        None if the generator has no density, or none that is a number.
    """
    log_density = log_density_of(model)
    if log_density is None:
        return None
    chosen = np.random.RandomState(0).permutation(len(x))[:MAX_ROWS]
    usual = np.sort(log_density(x[np.sort(chosen)]))
    return usual if np.isfinite(usual).all() else None


class UsualDensity:
    """Plausibility as the rank of a row's density among those of training rows.

    It measures rows as `StoredRows` does, by gaps that are smaller for rows that are
    more plausible, but holds one number per training row and no row.

    Parameters
    ----------
    usual : ndarray of shape (n_rows,)
        Sorted log-densities of training rows.

    model : object
        The generator that they are by.
    """

    def __init__(self, usual, model):
        self.usual, self.model = usual, model

    def gaps(self, x):
        """Share of the training rows that are denser; above 1 if all are by far."""
        density = log_density_of(self.model)(x)
        places = np.linspace(1, 0, len(self.usual))
        # Beyond the least dense row, the farther the less plausible.
        short = np.maximum(self.usual[0] - density, 0) / max(np.ptp(self.usual), 1e-12)
        return np.interp(density, self.usual, places) + short

    def plausibility(self, x):
        """Share of the training rows that are not denser than the given ones.

        Parameters
        ----------
        x : array of shape (n_rows, n_encoded)
            Encoded rows.

        Returns
        -------
        share : ndarray of shape (n_rows,)
            Between 0 and 1, linear between two training rows.
        """
        return self.shares(self.gaps(x))

    def shares(self, gaps):
        """Plausibility of rows with such gaps."""
        return np.clip(1 - gaps, 0, 1)

    def widest_gaps(self, shares):
        """The largest gap with such plausibility; infinite where none is demanded."""
        shares = np.asarray(shares)
        return np.where(shares <= 0, np.inf, 1 - shares + ROUNDING)
