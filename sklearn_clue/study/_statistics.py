"""The arithmetic of a user study: counts, signal detection, variances, permutations.

Arrays in, arrays out. Answers are counted in cells: each method has one cell for the
test rows that the model is sure about and one for the others.
"""

import numpy as np
from scipy.special import expit, logit, ndtri, stdtrit

__all__ = []

_MAX_AT_ONCE = 1_000_000  # labels that are shuffled at once: some 20 MB


# --- Figures of merit, from counts ---


def accuracy(counts):
    """The share of right answers.

    Parameters
    ----------
    counts : ndarray of shape (..., 4)
        Right answers about sure rows, answers about sure rows, right answers about
        unsure rows, answers about unsure rows.

    Returns
    -------
    accuracy : ndarray of shape (...)
        NaN where there is no answer.
    """
    right, n = counts[..., 0] + counts[..., 2], counts[..., 1] + counts[..., 3]
    return _ratio(right, n)


def signal_detection(counts):
    """Tell how well sure and unsure rows are told apart from what is said readily.

    Parameters
    ----------
    counts : ndarray of shape (..., 4)
        As for `accuracy`.

    Returns
    -------
    d_prime, criterion : ndarrays of shape (...)
        The distance between both kinds of rows in standard deviations, and how far the
        bar for saying "sure" is above the middle of the two: positive where people
        rather say "unsure". NaN where one kind of rows was not asked about.
    """
    sure, unsure = (ndtri(_log_linear(*cell)) for cell in _cells(counts))
    # z("sure" | unsure row) = -z(right | unsure row)
    return sure + unsure, (unsure - sure) / 2


def _cells(counts):
    return (counts[..., 0], counts[..., 1]), (counts[..., 2], counts[..., 3])


def _log_linear(right, n):
    """Hautus's correction: half an answer more on each side, so that no share is 0."""
    return np.where(n > 0, (right + 0.5) / (n + 1.0), np.nan)


def _ratio(part, whole):
    return np.divide(
        part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0
    )


# --- Variances that respect participants and questions ---


class CellModel:
    """Shares of right answers in cells, and their covariance over two ways of grouping.

    These are generalised estimating equations with one parameter per cell and an
    independent working correlation. Their solution is the share of right answers; what
    needs care is its covariance. Answers of a participant hang together and so do
    answers to a question, hence both are clusters: the sandwich of the participants
    plus that of the questions, minus that of single answers, which both have counted
    (Cameron, Gelbach and Miller, 2011). Residuals are inflated by the leverage of their
    cluster, after Mancl and DeRouen (2001), or few clusters would give too narrow
    intervals.

    Parameters
    ----------
    right : ndarray of shape (n_answers,)
        Whether each answer is right.

    cell : ndarray of shape (n_answers,)
        The cell of each answer.

    participant, question : ndarrays of shape (n_answers,)
        Codes of who answered, and what.

    n_cells : int
        The number of cells.
    """

    def __init__(self, right, cell, participant, question, n_cells):
        self.n = np.bincount(cell, minlength=n_cells).astype(float)
        self.n_right = np.bincount(cell, weights=right, minlength=n_cells)
        self.shares = _ratio(self.n_right, self.n)
        residuals = right - self.shares[cell]
        clusters = (participant, question, np.arange(len(right)))
        parts = [self._sandwich(residuals, cell, code) for code in clusters]
        # A cell without a wrong answer has no residuals, which is no proof that there
        # could be none: it gets the variance of as many independent answers.
        p = self.smoothed = _log_linear(self.n_right, self.n)
        is_flat = (self.n_right == 0) | (self.n_right == self.n)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.diag(np.where(is_flat, p * (1 - p) / self.n, 0.0))
        both_ways = parts[0] + parts[1] - parts[2]
        self._covariances = [each + least for each in (both_ways, parts[0], parts[2])]

    def _sandwich(self, residuals, cell, code):
        shape = (code.max() + 1, len(self.n))
        place = code * shape[1] + cell
        sums = np.bincount(place, residuals, np.prod(shape)).reshape(shape)
        sizes = np.bincount(place, minlength=np.prod(shape)).reshape(shape)
        # (I - H)^-1 r of Mancl and DeRouen sums to r n / (n - size) in each cluster. A
        # cell that is a single cluster says nothing about how clusters differ.
        rest = self.n - sizes
        scores = np.divide(sums, rest, out=np.zeros(shape), where=rest > 0)
        return scores.T @ scores

    def error(self, slope):
        """The standard error of a function of the shares, given its slope.

        Few participants and questions may seem to differ by less than chance allows, so
        it is never less than over participants alone, or of independent answers.
        """
        used = np.flatnonzero(slope)
        place, slope = np.ix_(used, used), slope[used]
        variances = [slope @ each[place] @ slope for each in self._covariances]
        return float(np.sqrt(max(variances)))

    def accuracy_slope(self, method):
        """How the accuracy of a method depends on the shares of its two cells."""
        slope = np.zeros(len(self.n))
        pair = slice(2 * method, 2 * method + 2)
        slope[pair] = self.n[pair] / self.n[pair].sum()
        return slope

    def signal_slopes(self, method):
        """How d' and criterion of a method depend on the shares of its two cells."""
        d_prime, criterion = np.zeros((2, len(self.n)))
        pair = slice(2 * method, 2 * method + 2)
        n = self.n[pair]
        z = ndtri(_log_linear(self.n_right[pair], n))
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        d_prime[pair] = n / (n + 1) / density
        criterion[pair] = d_prime[pair] * np.array([-0.5, 0.5])
        return d_prime, criterion


def interval(center, error, n_degrees, level):
    """An interval by Student's distribution."""
    if not n_degrees >= 1:
        return np.nan, np.nan
    half = stdtrit(n_degrees, 0.5 + level / 2) * error
    return center - half, center + half


def share_interval(share, smoothed, error, n_degrees, level):
    """An interval of a share, made on the scale of log odds so that it stays in 0 to 1.

    Where all or no answers are right, it is made around the smoothed share.
    """
    center = share if 0 < share < 1 else smoothed
    low, high = interval(
        logit(center), error / (center * (1 - center)), n_degrees, level
    )
    low, high = expit(low), expit(high)
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)


def intraclass_correlation(right, cell, participant):
    """The share of the variance of right and wrong that lies between participants.

    The estimator of the analysis of variance, within cells; it may be below zero, and
    is NaN if there are too few participants to tell.
    """
    n = np.bincount(cell)
    residuals = right - (np.bincount(cell, right) / np.fmax(n, 1))[cell]
    sizes = np.bincount(participant)
    n_answers, n_people = len(right), len(sizes)
    n_methods = len(np.unique(cell // 2))
    if n_people <= n_methods or n_answers <= n_people:
        return np.nan
    between = (np.bincount(participant, residuals) ** 2 / sizes).sum()
    within = ((residuals**2).sum() - between) / (n_answers - n_people)
    between /= n_people - n_methods  # the mean of each method took one
    size = (n_answers - (sizes**2).sum() / n_answers) / (n_people - 1)
    whole = between + (size - 1) * within
    return float((between - within) / whole) if whole > 0 else np.nan


# --- Permutations of participants ---


def permuted(statistic, labels, blocks, n_permutations, rng):
    """Draw a statistic with the labels shuffled.

    Parameters
    ----------
    statistic : callable
        Takes labels of shape (n_draws, n), and returns an array of shape
        (..., n_draws).

    labels : ndarray of shape (n,)
        What is shuffled.

    blocks : ndarray of shape (n,)
        Codes of the blocks, rising: labels move within their block only.

    n_permutations : int
        How often.

    rng : RandomState instance
        Where chance comes from.

    Returns
    -------
    drawn : ndarray of shape (..., n_permutations)
        The statistic for each permutation.
    """
    at_once = max(1, _MAX_AT_ONCE // len(labels))
    drawn = []
    for start in range(0, n_permutations, at_once):
        n_draws = min(at_once, n_permutations - start)
        keys = rng.random_sample((n_draws, len(labels)))
        drawn.append(statistic(labels[np.argsort(blocks + keys, axis=1)]))
    return np.concatenate(drawn, axis=-1)


def permutation_p_value(observed, drawn):
    """The share of statistics that are as large, the observed one among them.

    With that one counted, a p-value of at most α comes up with a probability of at most
    α if nothing differs, for any number of permutations.
    """
    if not np.isfinite(observed):
        return np.nan
    as_large = drawn >= observed - 1e-9 * (1 + abs(observed))
    return float((1 + as_large.sum()) / (1 + len(drawn)))


def holm(p_values):
    """Adjust p-values for their number, after Holm; those that are NaN do not count."""
    p_values = np.asarray(p_values, dtype=float)
    adjusted = np.full(p_values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p_values[order]))
    return adjusted
