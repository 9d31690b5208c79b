"""Which rows of a pool a study asks about: pairs of a context and a test row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.pairwise import manhattan_distances

from sklearn_clue._validation import listing

# Groups that numbers predicted by a regressor are split into, to balance questions.
_N_GROUPS = 3

# Contexts to choose among at most: the time to match them grows with the cube.
_MAX_CONTEXTS = 2000


@dataclass(frozen=True, eq=False)
class Pool:
    """The rows that a study may ask about, and what the model says of them.

    Parameters
    ----------
    X : {ndarray, DataFrame} of shape (n_pool, n_features)
        The rows.

    encoded : ndarray of shape (n_pool, n_encoded)
        The rows as numbers that can be compared: standard scores and indicators.

    uncertainty : ndarray of shape (n_pool,)
        Total uncertainty of the model.

    prediction : ndarray of shape (n_pool,) or (n_pool, n_outputs)
        Class labels or means.

    threshold : float
        The uncertainty up to which the model counts as sure.

    Attributes
    ----------
    is_sure : ndarray of bool of shape (n_pool,)
        Whether the model is sure.

    difficulty : ndarray of shape (n_pool,)
        How near rows are to the threshold: the rank among the rows on the same side,
        from 0 for the farthest to 1 for the nearest.

    is_free : ndarray of bool of shape (n_pool,)
        Whether a row may be used; False for all equal rows but the first.

    group : ndarray of int of shape (n_pool,)
        Which group of predictions a row belongs to: its class, or the lower, middle or
        upper third of the means.
    """

    X: Any
    encoded: np.ndarray
    uncertainty: np.ndarray
    prediction: np.ndarray
    threshold: float

    def __post_init__(self):
        is_sure = self.uncertainty <= self.threshold
        difficulty = np.empty(len(is_sure))
        for side, sign in ((is_sure, 1), (~is_sure, -1)):
            difficulty[side] = _ranks(sign * self.uncertainty[side])
        _, first, self_of = np.unique(
            self.encoded, axis=0, return_index=True, return_inverse=True
        )
        is_free = np.zeros(len(is_sure), dtype=bool)
        is_free[first] = True
        derived = {
            "is_sure": is_sure,
            "difficulty": difficulty,
            "is_free": is_free,
            "group": _groups(self.prediction),
            "_first": first[self_of.ravel()],
        }
        for name, values in derived.items():
            object.__setattr__(self, name, values)

    def __len__(self):
        return len(self.is_sure)

    def first_of(self, rows):
        """The first row that equals each of some rows."""
        return self._first[rows]

    def distances(self, rows, others):
        """L1 distances between rows, in encoded space."""
        return manhattan_distances(self.encoded[rows], self.encoded[others])


def _ranks(values):
    """Ranks from 0 to 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count + 1) / 2
    return middle[place.ravel()] / max(len(values) - 1, 1)


def _groups(prediction):
    """Groups of predictions: classes, or thirds of means."""
    prediction = np.asarray(prediction)
    if prediction.dtype.kind != "f":
        return np.unique(prediction, return_inverse=True)[1].reshape(-1)
    means = prediction.reshape(len(prediction), -1).mean(axis=1)
    cuts = np.quantile(means, np.arange(1, _N_GROUPS) / _N_GROUPS)
    return np.searchsorted(cuts, means)


# Picking ---------------------------------------------------------------------------


def pick_pairs(pool, n_sure, n_unsure, rng):
    """Pick test rows balanced by prediction and difficulty, and contexts like them.

    Stands in for the pilot of Section 5.2, in which a person chooses test rows from a
    random pool and maps each to a similar row that the model is unsure about, without
    replacement.

    Differs from the paper: a test row that the model is unsure about has nearer
    contexts than one that it is sure about, so that to call whatever looks like the
    context unsure would nearly always be right, without any explanation. Here both
    kinds are as far from their contexts.

    Parameters
    ----------
    pool : Pool
        The rows.

    n_sure, n_unsure : int
        Test rows that the model is and is not sure about.

    rng : RandomState
        Chooses among rows of equal rank.

    Returns
    -------
    pairs : ndarray of shape (n_sure + n_unsure, 2)
        Contexts and test rows, those that the model is sure about first.
    """
    sure, unsure = (
        _balanced(pool, np.flatnonzero(pool.is_free & side), n, rng)
        for side, n in ((pool.is_sure, n_sure), (~pool.is_sure, n_unsure))
    )
    contexts = _contexts(pool, sure, unsure, rng)
    near = np.sort(np.abs(pool.encoded[contexts] - pool.encoded[sure]).sum(axis=1))
    wanted = np.zeros(n_unsure)  # the nearest, if there is nothing to be like
    if n_sure:
        wanted = rng.permutation(
            np.quantile(near, (np.arange(n_unsure) + 0.5) / n_unsure)
        )
    others = _contexts(pool, unsure, np.append(unsure, contexts), rng, wanted)
    return np.column_stack([np.append(contexts, others), np.append(sure, unsure)])


def pick_example(pool, pairs, rng):
    """Pick one more pair and a sure row that explains it; none of them is used yet.

    The test row is one that the model is sure about. In the paper's study people said
    "unsure" of most rows, whatever they saw, and such a check finds those who always
    do.
    """
    used = pool.first_of(pairs.ravel())
    free = np.setdiff1d(np.flatnonzero(pool.is_free & pool.is_sure), used)
    # Neither given away nor a riddle: of middle difficulty.
    order = np.argsort(np.abs(pool.difficulty[free] - 0.5), kind="stable")
    test = free[order[:1]]
    context = _contexts(pool, test, np.append(used, test), rng)
    others = np.setdiff1d(free, test)
    nearest = others[pool.distances(context, others)[0].argmin()]
    return int(context[0]), int(test[0]), int(nearest)


def _balanced(pool, rows, n_wanted, rng):
    """Some of the rows: as many of each prediction, from easy to difficult ones."""
    labels, sizes = np.unique(pool.group[rows], return_counts=True)
    chosen = []
    for label, n_here in zip(labels, _shares(sizes, n_wanted), strict=True):
        here = rows[pool.group[rows] == label]
        # In random order first: of equal difficulty, any may be chosen.
        here = rng.permutation(here)
        here = here[np.argsort(pool.difficulty[here], kind="stable")]
        strata = np.array_split(here, n_here) if n_here else []
        chosen += [stratum[rng.randint(len(stratum))] for stratum in strata]
    return np.array(chosen, dtype=np.intp)


def _shares(sizes, n_wanted):
    """Numbers that add up, as equal as groups of such sizes allow."""
    shares = np.zeros(len(sizes), dtype=int)
    for _ in range(n_wanted):
        is_open = shares < sizes
        shares[np.where(is_open, shares, np.iinfo(int).max).argmin()] += 1
    return shares


def _contexts(pool, tests, used, rng, wanted=0.0):
    """For each test row one that the model is unsure about, at a wanted distance."""
    free = np.flatnonzero(pool.is_free & ~pool.is_sure)
    free = np.setdiff1d(free, used)
    if len(free) > max(_MAX_CONTEXTS, len(tests)):
        free = rng.choice(free, max(_MAX_CONTEXTS, len(tests)), replace=False)
    # The best choice on the whole, since no row is taken twice.
    gaps = pool.distances(tests, free) - np.reshape(wanted, (-1, 1))
    return free[linear_sum_assignment(np.abs(gaps))[1]]


# Refusing --------------------------------------------------------------------------


def check_size(pool, n_sure, n_unsure, n_random):
    """Refuse a pool that cannot fill a study and its example."""
    needed = {
        # The test row of the example and what explains it, and the control's rows.
        "sure": n_sure + 2 + n_random,
        "unsure": n_sure + 2 * n_unsure + 1,
    }
    for side, is_there in (("sure", pool.is_sure), ("unsure", ~pool.is_sure)):
        n_there = int((is_there & pool.is_free).sum())
        if n_there < needed[side]:
            raise ValueError(
                f"X_pool is too small: {n_sure + n_unsure} questions and an example "
                f"need {needed[side]} different rows that the model is {side} about, "
                f"and there are {n_there} among its {len(pool)} rows. Pass more rows, "
                "or ask fewer questions."
            )


def check_pairs(pool, pairs):
    """Read pairs that somebody else has picked."""
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(
            "pick must give pairs of a context and a test row, an array of shape "
            f"(n_questions, 2), got shape {pairs.shape}."
        )
    if pairs.dtype.kind not in "iu":
        raise TypeError(
            "pick must give positions of rows in X_pool, which are whole numbers, got "
            f"values of type {pairs.dtype}."
        )
    outside = pairs[(pairs < 0) | (pairs >= len(pool))]
    if len(outside):
        raise ValueError(
            f"pick gave the positions {listing(outside.tolist())}, but X_pool has "
            f"{len(pool)} rows, counted from 0."
        )
    sure = pairs[pool.is_sure[pairs[:, 0]], 0]
    if len(sure):
        raise ValueError(
            "Contexts are rows that the model is unsure about, but pick gave "
            f"{listing(sure.tolist())}, which it is sure about. The context comes "
            "first in each pair, and the test row second."
        )
    rows, count = np.unique(pool.first_of(pairs.ravel()), return_counts=True)
    if count.max() > 1:
        raise ValueError(
            "pick gave a row, or its equal, more than once: "
            f"{listing(rows[count > 1].tolist())}. A participant would see it again, "
            "with the answer beside it."
        )
    return pairs.astype(np.intp)
