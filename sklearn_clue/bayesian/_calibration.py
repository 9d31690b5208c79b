"""What held-out rows say of a posterior: how far off its confidence is.

One number does most of it, and it changes the predictive distribution itself, so that
all that is read off the distribution agrees: a temperature of the class probabilities,
or a factor on the spread of a regressor's mixture about its mean. Both are those of the
highest likelihood. Intervals get a second, conformal step: the level of the mixture at
which to cut so that the stated coverage holds, whatever its shape.
"""

import math
import warnings

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from sklearn_clue.bayesian._targets import GaussianMoments, Softmax, normal_cdf

# Fewer rows than these cannot vouch for intervals of 95 %.
MIN_ROWS = 20

# Of the logarithm of the temperature, around 0. Half or double is nothing unusual, and
# a third takes more than a few dozen rows that happen to be classified right.
PRIOR_STD = 0.5

# Where logarithms of temperatures and factors are looked for.
LOG_RANGE = np.linspace(-20, 20, 81)


def find_temperature(logits, codes):
    """Find the temperature under which classes are most likely.

    Parameters
    ----------
    logits : Tensor of shape (n_draws, n_rows, n_classes)
        What the networks say.

    codes : Tensor of shape (n_rows,)
        Codes of the classes of the rows.

    Returns
    -------
    temperature : float
        Above 1 if the networks together are too sure, below if not sure enough.
    """
    rows = torch.arange(len(codes))

    def loss(log_temperature):
        log_proba = Softmax.log_proba(logits, math.exp(log_temperature))
        fit = (log_proba[:, rows, codes].logsumexp(0) - math.log(len(logits))).sum()
        # Where all rows are classified right, the likelihood alone would make the
        # networks infinitely sure.
        return 0.5 * (log_temperature / PRIOR_STD) ** 2 - float(fit)

    return math.exp(_minimiser(loss))


def find_scale(mean, std, y):
    """Find the factor on the spread of mixtures under which values are most likely.

    Parameters
    ----------
    mean, std : Tensor of shape (n_draws, n_rows)
        Gaussians that the networks predict.

    y : Tensor of shape (n_rows,)
        Values of the rows.

    Returns
    -------
    scale : float
        The factor.
    """

    def loss(log_scale):
        scale = math.exp(log_scale)
        center, spread = GaussianMoments.rescale(mean, std, scale)
        log_density = -0.5 * ((y - center) / spread).square() - spread.log()
        return -float(log_density.logsumexp(0).sum())

    return math.exp(_minimiser(loss))


def _minimiser(loss):
    """Look at the range coarsely, for it may have several valleys, and then closely."""
    best = LOG_RANGE[np.argmin([loss(point) for point in LOG_RANGE])]
    bounds, options = (best - 0.5, best + 0.5), {"xatol": 1e-6}
    return minimize_scalar(loss, bounds=bounds, method="bounded", options=options).x


def conformal_scores(mean, std, y):
    """How far out in its mixture each value lies, as an absolute normal score, sorted.

    It is the score |2 F(y) - 1| in a unit that does not come to rest in the tails.
    After `find_scale` the mean square of the scores is about 1, so that no more than
    one row in a thousand can be where even this one ends, at 37.

    Parameters
    ----------
    mean, std : Tensor of shape (n_draws, n_rows, n_outputs)
        Gaussians that the networks predict.

    y : Tensor of shape (n_rows, n_outputs)
        Values of the rows.

    Returns
    -------
    scores : Tensor of shape (n_rows, n_outputs)
        Each output on its own, in ascending order.
    """
    z = (y - mean) / std
    below, above = normal_cdf(z).mean(0), normal_cdf(-z).mean(0)
    tail = torch.minimum(below, above).clamp(1e-300, 0.5)
    return -torch.special.ndtri(tail).sort(dim=0, descending=True).values


def conformal_tail(scores, coverage):
    """Level at which to cut off either end of a mixture so that the coverage holds.

    Parameters
    ----------
    scores : Tensor of shape (n_rows, n_outputs)
        Those of held-out rows, in ascending order.

    coverage : float
        Probability that the interval shall have.

    Returns
    -------
    tail : Tensor of shape (n_outputs,)
        Levels below one half.
    """
    n_rows = len(scores)
    # A new row is as likely to have any of the n + 1 ranks among the others. Rounding
    # must not make 9.000000000000002 a ten.
    rank = math.ceil((n_rows + 1) * coverage - 1e-9)
    limit = scores[min(rank, n_rows) - 1]
    if rank > n_rows:
        warnings.warn(
            f"{n_rows} calibration rows can promise a coverage of "
            f"{n_rows / (n_rows + 1):.4g} at most, got coverage={coverage}. Beyond "
            "that the interval goes by the tails of the model. Calibrate with more "
            "rows.",
            stacklevel=3,
        )
        own = torch.special.ndtri(torch.tensor(0.5 + coverage / 2).to(limit))
        limit = limit.clamp_min(own)
    return normal_cdf(-limit)
