"""What training rows say about the nodes of trees that were fitted on others.

A tree that is grown until its leaves are pure is sure of everything, and surest at the
rows that it knows by heart: a search for sure rows would end at these, wherever they
are. It is also as sure far away from all rows as among them. Rows that it has not seen
tell how mixed its leaves really are, and the boxes that rows span tell where it has no
grounds to answer.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import entr
from sklearn.utils import gen_batches

# Rows that a node needs before its mixture of targets is believed; a row in a leaf of
# fewer is judged by the leaf's ancestors. On the mixed toy (1000 rows, 300 trees) the
# correlation of the aleatoric part with the known one was 0.89, 0.88 and 0.85 at 5, 10
# and 20, and fewer rows have too little to say about several classes.
MIN_ROWS = 10

# What a node says beyond the node above it counts as if so many rows of that node said
# that there is no difference. Errors among new rows are found by areas of 0.76, 0.76
# and 0.75 at 3, 6 and 10 on the mixed toy, of 0.91, 0.90 and 0.89 on digits; answers of
# a search on the toy lose 66, 68 and 69 % of the entropy that they claim to lose. When
# nodes of less than ten rows were merged instead, errors were found by 0.72 and 0.84.
SHRINKAGE = 6

# How far a box reaches beyond its rows, in mean gaps between them: the next row of the
# same kind is outside of the rows so far now and then.
MARGIN = 2.0

# Numbers that are looked up at once.
CACHE = 2**20


class TreeMember(NamedTuple):
    """A tree of a forest or of a bagging ensemble."""

    tree: object  # a fitted decision tree
    columns: object  # positions of the columns that it sees; None for all


class Nodes(NamedTuple):
    """What is known about the nodes that enough rows have reached, of all trees.

    Others would take ten times the memory, and are not asked.
    """

    trusted: np.ndarray  # of every node: it or its nearest ancestor among these
    parent: np.ndarray  # a root is its own
    low: np.ndarray  # the box of its rows, in the columns that were split above it
    high: np.ndarray
    mean: np.ndarray  # of the targets, or of the indicators of the classes
    spread: np.ndarray  # entropy or variance of its targets


class Leaves:
    """Judge rows by the leaves that they fall into.

    Leaves are known by training rows that are new to their tree. The total is the
    entropy, or the variance, of what the trees say together, after each of them was
    drawn towards the nodes above its leaf (hierarchical shrinkage, Agarwal et al.,
    2022).

    Which share of it is noise: the mixture of targets within a leaf is, where leaves of
    few rows are merged into their ancestors. A row outside of the box which the rows of
    its leaf span might belong to any leaf of the smallest node around it: that the tree
    cannot tell is a lack of knowledge, and none of it is noise. Boxes are about the
    columns that led to the leaf: in some other column of many, nearly every row is
    outside of any ten.

    Parameters
    ----------
    members : list of TreeMember
        The trees.

    seen : list of ndarray
        Positions of the training rows that each tree was grown on.

    X : ndarray of shape (n_samples, n_features)
        The training rows.

    targets : ndarray of shape (n_samples, n_columns)
        Indicators of classes, or numbers.

    is_classification : bool
        Which of the two.
    """

    def __init__(self, members, seen, X, targets, is_classification):
        self.is_classification = is_classification
        X = np.asarray(X, dtype=np.float32)  # as trees take them
        nodes, shrunk = [], []
        for member, rows in zip(members, seen, strict=True):
            known = _known_rows(member, rows, X, self._moments(targets))
            shrunk.append(_shrunk(member, *known))
            nodes.append(_read_nodes(member, rows, X, targets, is_classification))
        self.shrunk, self.nodes = np.concatenate(shrunk), _joined_nodes(nodes)

    def _moments(self, targets):
        """What to average: indicators, or numbers and the square of their length."""
        if self.is_classification:
            return targets
        # A variance does not depend on the zero, and far from it its digits are lost.
        targets = targets - targets.mean(0)
        squares = np.square(targets).sum(1, keepdims=True)
        return np.concatenate([targets, squares], axis=1)

    def total(self, leaves):
        """Tell how unsure the trees are together.

        Parameters
        ----------
        leaves : ndarray of shape (n_trees, n_rows)
            The leaf of each tree that a row falls into, as `leaves_of` tells.

        Returns
        -------
        total : ndarray of shape (n_rows,)
            Entropies in nats, or variances.
        """
        if leaves.shape[1] == 1:
            # numpy adds up the trees of a single row in another order.
            return self.total(np.repeat(leaves, 2, axis=1))[:1]
        return self._spread(self.shrunk[leaves].mean(0))

    def _spread(self, said):
        if self.is_classification:
            return entr(said.clip(min=0)).sum(1)
        return (said[:, -1] - np.square(said[:, :-1]).sum(1)).clip(min=0)

    def unseen_total(self, members, seen, X, targets):
        """Tell how unsure the trees are about training rows, as if these were new.

        A row is judged by the trees that have not seen it, without what it says itself.

        Parameters
        ----------
        members, seen, X, targets : as the class takes them
            The same once more.

        Returns
        -------
        total : ndarray of shape (n_samples,)
            Entropies in nats, or variances; NaN where no tree can tell.
        """
        X, targets = np.asarray(X, dtype=np.float32), self._moments(targets)
        said, n_trees = np.zeros(targets.shape), np.zeros((len(X), 1))
        for member, rows in zip(members, seen, strict=True):
            unseen = np.setdiff1d(np.arange(len(X)), rows)
            if len(unseen) > 1:  # without a row that is alone, the tree says nothing
                said[unseen] += _without_itself(*_known_rows(member, rows, X, targets))
                n_trees[unseen] += 1
        with np.errstate(invalid="ignore"):
            return self._spread(said / n_trees)

    def noise(self, X, leaves, is_asked=None):
        """Tell which share of the total is noise, as new rows know it.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            The rows.

        leaves : ndarray of shape (n_trees, n_rows)
            Where they fall, as `leaves_of` tells.

        is_asked : ndarray of shape (n_trees, n_rows) of bool or None, default=None
            Which tree answers about which row; None for all. Some tree must answer
            about every row.

        Returns
        -------
        share : ndarray of shape (n_rows,)
            Of entropies or variances, between 0 and 1.
        """
        X = np.asarray(X, dtype=np.float32)
        share = np.empty(len(X))
        # What is looked up for the rows of a block should fit the cache.
        n_block = max(CACHE // (X.shape[1] * len(leaves)), 2)
        for rows in gen_batches(len(X), n_block, min_batch_size=2):
            weights = np.ones(leaves[:, rows].shape)
            if is_asked is not None:
                weights = is_asked[:, rows].astype(np.float64)
            share[rows] = self._noise(X[rows], leaves[:, rows], weights)
        return share

    def _noise(self, X, leaves, weights):
        means, spreads, within = _ask(self.nodes, X, leaves)
        weights = weights / weights.sum(0)
        mean = (weights[:, :, None] * means).sum(0)
        noise = (weights * within).sum(0)
        if self.is_classification:
            total = entr(mean).sum(1)
        else:
            disagreement = np.square(means - mean).sum(2)
            total = (weights * (spreads + disagreement)).sum(0)
        # Rows that are all alike are not unsure, and none of it is noise.
        share = np.divide(noise, total, where=total > 0, out=np.zeros_like(total))
        return share.clip(max=1)  # but for rounding


def leaves_of(members, X):
    """The leaves that rows fall into, as positions among the nodes of all trees.

    Parameters
    ----------
    members : list of TreeMember
        The trees.

    X : ndarray of shape (n_rows, n_features)
        The rows.

    Returns
    -------
    leaves : ndarray of shape (n_trees, n_rows)
        The nodes of each tree come after those of the trees before it.
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    leaves = np.empty((len(members), len(X)), dtype=np.intp)
    first = 0
    for leaf, (tree, columns) in zip(leaves, members, strict=True):
        # Rows have been checked: scikit-learn would check them for each tree.
        rows = np.ascontiguousarray(_columns_of(X, columns))
        leaf[:] = tree.tree_.apply(rows)
        leaf += first
        first += tree.tree_.node_count
    return leaves


def is_grown_on(member, seen, X):
    """Say whether a tree was grown on these rows, by how many reach each node."""
    tree, columns = member
    if len(seen) == 0 or np.max(seen) >= len(X):
        return False
    rows = _columns_of(np.asarray(X, dtype=np.float32), columns)
    path = tree.decision_path(rows).tocsr()
    # Rows that were drawn twice are counted once if the draw was made by weights.
    counts = (path[picked].sum(0) for picked in (np.unique(seen), np.asarray(seen)))
    known = tree.tree_.n_node_samples
    return any(np.array_equal(np.ravel(count), known) for count in counts)


def unseen_rows(seen, n_rows):
    """Tell which member has not seen which row: (n_members, n_rows) of bool."""
    is_unseen = np.ones((len(seen), n_rows), dtype=bool)
    for unseen, rows in zip(is_unseen, seen, strict=True):
        unseen[rows] = False
    return is_unseen


def _read_nodes(member, seen, X, targets, is_classification):
    tree, columns = member
    unseen = np.setdiff1d(np.arange(len(X)), seen)
    # A tree that has seen all rows is judged by them, for want of others.
    rows = unseen if len(unseen) else np.arange(len(X))
    n_columns = X.shape[1]
    X, targets = _columns_of(X[rows], columns), targets[rows]
    path = sparse.csc_array(tree.decision_path(X))
    n_rows = np.diff(path.indptr)
    is_kept = n_rows >= MIN_ROWS
    is_kept[0] = True  # the root, where a forest has few rows
    kept = np.flatnonzero(is_kept)
    place = np.zeros(len(n_rows), dtype=np.int32)
    place[kept] = np.arange(len(kept))
    parent = _parents(tree.tree_)
    trusted = place[_nearest_ancestor(is_kept, parent)]
    # What the rows of the nodes that are kept hold, node after node.
    path = path[:, kept]
    n_rows, starts, below = n_rows[kept], path.indptr[:-1], path.indices
    mean = np.add.reduceat(targets[below], starts) / n_rows[:, None]
    if is_classification:
        spread = entr(mean).sum(1)
    else:
        gaps = np.square(targets[below] - np.repeat(mean, n_rows, axis=0)).sum(1)
        spread = np.add.reduceat(gaps, starts) / np.maximum(n_rows - 1, 1)
    # Missing values span nothing: `fmin` passes over them.
    low, high = np.fmin.reduceat(X[below], starts), np.fmax.reduceat(X[below], starts)
    margin = MARGIN * (high - low) / np.maximum(n_rows - 1, 1)[:, None]
    low, high = (low - margin).astype(X.dtype), (high + margin).astype(X.dtype)
    is_split = _split_above(tree.tree_, kept, place[parent[kept]], parent)
    low[~is_split], high[~is_split] = -np.inf, np.inf
    if columns is not None:
        low, high = (
            _spread_out(end, columns, n_columns, value)
            for end, value in ((low, -np.inf), (high, np.inf))
        )
    return Nodes(trusted, place[parent[kept]], low, high, mean, spread)


def _known_rows(member, seen, X, moments):
    """Paths of the rows that a tree is known by, and what is averaged over them."""
    tree, columns = member
    unseen = np.setdiff1d(np.arange(len(X)), seen)
    # A tree that has seen all rows is judged by them, for want of others.
    rows = unseen if len(unseen) else np.arange(len(X))
    path = sparse.csr_array(tree.decision_path(_columns_of(X[rows], columns)))
    return path, moments[rows]


def _shrunk(member, path, moments):
    """Means over the rows of each node, each step down the tree shortened."""
    above = _parents(member.tree.tree_)
    n_rows = np.asarray(path.sum(0), dtype=np.float64)[:, None]
    means = path.T @ moments / n_rows.clip(min=1)
    # None for the root, and none where nobody tells.
    step = _shortened(means - means[above], n_rows[above]) * (n_rows > 0)
    while above.any():  # the way from the root doubles
        step = step + step[above]
        above = above[above]
    return means[0] + step


def _without_itself(path, moments):
    """What a tree says about each of the rows that it is known by, without that row."""
    n_rows, sums = np.asarray(path.sum(0), dtype=np.float64), path.T @ moments
    n_nodes = np.diff(path.indptr)  # on the way of each row; they come in its order
    above, n_above = np.zeros_like(moments), np.zeros((len(moments), 1))
    said = np.zeros_like(moments)
    for depth in range(n_nodes.max()):
        rows = np.flatnonzero(n_nodes > depth)
        node = path.indices[path.indptr[rows] + depth]
        n_others = n_rows[node, None] - 1
        means = (sums[node] - moments[rows]) / n_others.clip(min=1)
        means = np.where(n_others > 0, means, above[rows])
        step = means - above[rows]
        said[rows] += _shortened(step, n_above[rows]) if depth else step
        above[rows], n_above[rows] = means, n_others
    return said


def _shortened(step, n_rows):
    return step * n_rows / (n_rows + SHRINKAGE)


def _columns_of(X, columns):
    return X if columns is None else X[:, columns]


def _spread_out(values, columns, n_columns, rest):
    """Values of some columns among all of them; of one that comes twice, any."""
    wide = np.full((len(values), n_columns), rest, dtype=values.dtype)
    wide[:, columns] = values
    return wide


def _joined_nodes(trees):
    """Put the nodes of all trees in one table, one tree after the other."""
    trees = list(trees)
    first = np.cumsum([0] + [len(nodes.parent) for nodes in trees[:-1]])
    moved = [
        nodes._replace(trusted=nodes.trusted + start, parent=nodes.parent + start)
        for nodes, start in zip(trees, first, strict=True)
    ]
    return Nodes(*map(np.concatenate, zip(*moved, strict=True)))


def _parents(tree):
    parent = np.zeros(tree.node_count, dtype=np.intp)
    for children in (tree.children_left, tree.children_right):
        inner = np.flatnonzero(children >= 0)
        parent[children[inner]] = inner
    return parent


def _split_above(tree, kept, above, parent):
    """Which columns the nodes above some nodes were split by: (n_kept, n_columns)."""
    is_split = np.zeros((len(kept), tree.n_features), dtype=bool)
    inner = np.arange(1, len(kept))  # all but the root
    is_split[inner, tree.feature[parent[kept[1:]]]] = True
    while above.any():  # the steps double
        is_split |= is_split[above]
        above = above[above]
    return is_split


def _nearest_ancestor(is_wanted, parent):
    """The node itself if it is wanted, else its nearest ancestor that is, or the root.

    The steps double, so that deep trees take few of them.
    """
    ancestor = np.where(is_wanted, np.arange(len(parent)), parent)
    while True:
        further = ancestor[ancestor]
        if np.array_equal(further, ancestor):
            return ancestor
        ancestor = further


def _ask(nodes, X, leaves):
    """Means and spreads at the nodes that trees trust, and spreads in leaves alone."""
    start = nodes.trusted[leaves]
    node = start.copy()
    is_outside = (X < nodes.low[node]) | (X > nodes.high[node])
    tree, row = is_outside.any(2).nonzero()
    while len(tree):
        at = node[tree, row]
        above = nodes.parent[at]
        # From here on these are the nodes above; a root answers for all rows.
        is_inner = above != at
        tree, row, at = tree[is_inner], row[is_inner], above[is_inner]
        node[tree, row] = at
        rows = X[row]
        is_outside = ((rows < nodes.low[at]) | (rows > nodes.high[at])).any(1)
        tree, row = tree[is_outside], row[is_outside]
    spread = nodes.spread[node]
    return nodes.mean[node], spread, np.where(node == start, spread, 0.0)
