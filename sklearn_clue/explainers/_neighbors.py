"""What an explainer keeps of its training rows: near sure rows, and plausibility.

Distances are l1 in encoded space, by brute force in blocks: at some thousands of rows
and more than a handful of columns that is faster than a tree, and what it says of a
row does not depend on the rows asked with it, not even among equal distances.
"""

import numpy as np
from sklearn.metrics.pairwise import manhattan_distances

from sklearn_clue._torch import row_blocks

# Plausibility is about the mean distance to so many rows.
N_NEAREST = 5

# Most training rows to keep. More would make every judgement of plausibility dearer
# than one of the predictor, and hardly change a rank among them.
MAX_ROWS = 5000

# Training rows around a row that is explained, to find the nearest five of its
# candidates among.
N_AROUND = 150

# Farther than any row.
FAR = 1e9

# Sums of the same distances in another order differ in their last digits; these are
# ties all the same.
ROUNDING = 1e-9


class StoredRows:
    """Training rows in encoded space, their uncertainty, and how near rows usually are.

    It holds plain arrays only.

    Parameters
    ----------
    x : array of shape (n_rows, n_encoded)
        Encoded training rows.

    uncertainty : array of shape (n_rows,)
        The chosen uncertainty of each.

    sample_weight : array of shape (n_rows,) or None, default=None
        Rows with the weight zero are not stored; other weights have no influence.

    max_rows : int, default=MAX_ROWS
        Of more rows a random choice is kept, which is always the same.

    Attributes
    ----------
    x, uncertainty : ndarray
        Of the rows that are kept, in their order.

    own_nearest : ndarray of shape (n_kept, 5)
        Positions of the five nearest of each kept row, itself being one of them.

    own_gaps : ndarray of shape (n_kept,)
        Mean distance to these.

    usual_gaps : ndarray of shape (n_kept,)
        Mean distance of each kept row to its five nearest others, sorted.
    """

    def __init__(self, x, uncertainty, sample_weight=None, max_rows=MAX_ROWS):
        kept = np.arange(len(x))
        if sample_weight is not None:
            kept = np.flatnonzero(np.asarray(sample_weight) != 0)
        if len(kept) > max_rows:
            choice = np.random.RandomState(0).choice(len(kept), max_rows, replace=False)
            kept = kept[np.sort(choice)]
        self.x = np.array(x, dtype=np.float64)[kept]
        self.uncertainty = np.array(uncertainty, dtype=np.float64)[kept]
        gaps, self.own_nearest = self.nearest(self.x, self.n_nearest)
        self.own_gaps = gaps.mean(1)
        self.usual_gaps = np.zeros(len(self))
        if len(self) > 1:
            n_others = min(N_NEAREST, len(self) - 1)
            gaps, _ = self.nearest(self.x, n_others, not_itself=True)
            self.usual_gaps = np.sort(gaps.mean(1))

    def nearest(self, x, n_nearest, not_itself=False):
        """Distances to the nearest rows and their positions, the nearest first."""
        distance = np.empty((len(x), n_nearest))
        found = np.empty((len(x), n_nearest), dtype=np.intp)
        for block in self._blocks(len(x)):
            there = manhattan_distances(x[block], self.x)
            if not_itself:
                position = np.arange(len(x))[block]
                there[np.arange(len(position)), position] = np.inf
            near = there.argpartition(n_nearest - 1, axis=1)[:, :n_nearest]
            near_distance = np.take_along_axis(there, near, 1)
            order = near_distance.argsort(axis=1, kind="stable")
            distance[block] = np.take_along_axis(near_distance, order, 1)
            found[block] = np.take_along_axis(near, order, 1)
        return distance, found

    def __len__(self):
        return len(self.x)

    @property
    def n_nearest(self):
        """Rows that plausibility looks at: five, or as many as there are."""
        return min(N_NEAREST, len(self))

    def gaps(self, x):
        """Mean distance of encoded rows to the five nearest rows."""
        return self.nearest(x, self.n_nearest)[0].mean(1)

    def plausibility(self, x):
        """Share of the rows that are as far from others as the given ones, or farther.

        Parameters
        ----------
        x : array of shape (n_rows, n_encoded)
            Encoded rows.

        Returns
        -------
        share : ndarray of shape (n_rows,)
            Share of stored rows whose mean distance to their five nearest others is
            at least that of the given row to its five nearest; ties count half. A
            stored row that equals the given one is one of its five.
        """
        return self.shares(self.gaps(x))

    def shares(self, gaps):
        """Plausibility of rows at such mean distances from their five nearest."""
        slack = ROUNDING * np.abs(gaps)
        n_nearer = np.searchsorted(self.usual_gaps, gaps - slack, side="left")
        n_not_farther = np.searchsorted(self.usual_gaps, gaps + slack, side="right")
        return 1 - (n_nearer + n_not_farther) / (2 * len(self))

    def widest_gaps(self, shares):
        """The largest of the usual gaps with at least such plausibility.

        Parameters
        ----------
        shares : array of shape (n_rows,)
            Plausibility that is demanded.

        Returns
        -------
        gaps : ndarray of shape (n_rows,)
            Infinite where nothing is demanded, zero where no gap will do.
        """
        shares = np.asarray(shares)
        n_gaps = np.searchsorted(-self.shares(self.usual_gaps), -shares, side="right")
        gaps = np.append(0.0, self.usual_gaps)[n_gaps]
        return np.where(shares <= 0, np.inf, gaps)

    def around(self, x, others):
        """Rows around the given ones, and the nearest five of some others.

        Parameters
        ----------
        x : array of shape (n_rows, n_encoded)
            Encoded rows.

        others : array of shape (n_rows, n_others)
            Positions of stored rows.

        Returns
        -------
        around : ndarray of shape (n_rows, n_around, n_encoded)
            Stored rows, with places far away instead of those that come again.
        """
        n_around = min(N_AROUND, len(self))
        found = np.empty((len(x), n_around), dtype=np.intp)
        for block in self._blocks(len(x)):
            distance = manhattan_distances(x[block], self.x)
            found[block] = distance.argpartition(n_around - 1, axis=1)[:, :n_around]
        theirs = self.own_nearest[others].reshape(len(x), -1)
        # A row that comes twice would count twice: the second one is put far away.
        both = np.concatenate([found, theirs], 1)
        order = both.argsort(axis=1, kind="stable")
        is_again = np.zeros(both.shape, dtype=bool)
        ordered = np.take_along_axis(both, order, 1)
        np.put_along_axis(is_again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], 1)
        return np.where(is_again[:, :, None], FAR, self.x[both])

    def nearest_sure(self, x, target, n_neighbors, max_gaps=None):
        """The nearest rows that are sure, each of them once.

        Parameters
        ----------
        x : array of shape (n_rows, n_encoded)
            Encoded rows.

        target : float
            Largest uncertainty of a sure row.

        n_neighbors : int
            Rows wanted; there may be fewer.

        max_gaps : array of shape (n_rows,) or None, default=None
            Prefer rows that are at most so far from their five nearest.

        Returns
        -------
        neighbors : ndarray of shape (n_rows, n_found, n_encoded)
            The nearest first, those with a larger gap after all others.

        uncertainty : ndarray of shape (n_rows, n_found)
            As it was stored.

        positions : ndarray of shape (n_rows, n_found)
            Where they are stored.
        """
        sure = np.flatnonzero(self.uncertainty <= target)
        _, first = np.unique(self.x[sure], axis=0, return_index=True)
        sure = sure[np.sort(first)]
        n_found = min(n_neighbors, len(sure))
        found = np.empty((len(x), n_found), dtype=np.intp)
        for block in self._blocks(len(x)) if n_found else ():
            distance = manhattan_distances(x[block], self.x[sure])
            if max_gaps is not None:
                limit = max_gaps[block, None] * (1 + ROUNDING)
                distance += np.where(self.own_gaps[sure] > limit, FAR, 0.0)
            found[block] = distance.argsort(axis=1, kind="stable")[:, :n_found]
        found = sure[found]
        return self.x[found], self.uncertainty[found], found

    def _blocks(self, n_rows):
        return row_blocks(n_rows, 8 * len(self))
