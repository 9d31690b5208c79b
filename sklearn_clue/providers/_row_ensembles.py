"""Ensembles that are asked about rows: unsure where their members disagree."""

from functools import reduce

import numpy as np
from scipy.special import entr
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from sklearn_clue.providers._leaves import (
    Leaves,
    TreeMember,
    is_grown_on,
    leaves_of,
    unseen_rows,
)
from sklearn_clue.providers._rows import (
    RowsProvider,
    as_columns,
    as_numbers,
    length,
    n_rows,
)
from sklearn_clue.uncertainty import (
    Uncertainty,
    decompose_entropy,
    decompose_variance,
)


class MembersRows(RowsProvider):
    """Models that answer as one, and may disagree.

    Parameters
    ----------
    members : list of RowsProvider
        What each of them says.

    positions : list of ndarray or None, default=None
        Where the classes of each member are among all classes; None if they are the
        same.

    n_classes : int or None, default=None
        Number of all classes.

    weights : array-like of shape (n_members,) or None, default=None
        How much each member counts; None for the same.

    codes_of : ndarray of shape (n_classes,) or None, default=None
        The labels whose codes the members were fitted on; None if they were fitted on
        labels.
    """

    def __init__(
        self,
        members,
        name,
        *,
        positions=None,
        n_classes=None,
        weights=None,
        codes_of=None,
        feature_names=None,
    ):
        super().__init__(name, members[0].is_classification, feature_names)
        self.members = members
        self.positions = positions
        self.n_classes = n_classes
        self.codes_of = codes_of
        self.has_epistemic = len(members) > 1 or members[0].has_epistemic
        weights = np.ones(len(members)) if weights is None else weights
        self.weights = np.asarray(weights, dtype=np.float64)
        if not self.is_classification:
            # Members have units of their own, and this speaks that of the target.
            self.center, self.scale = 0.0, 1.0
        else:
            self.threshold = members[0].threshold

    def _answer(self, X):
        answers = [self._ask(position, X) for position in range(len(self.members))]
        return self._combine(answers, np.tile(self.weights[:, None], n_rows(X)))

    def _ask(self, position, X):
        """What a member says, of all classes, in the unit of the target."""
        member = self.members[position]
        parts, prediction = member.uncertainty_of_rows(X)
        if self.is_classification:
            if self.positions is None:
                return parts, prediction
            proba = np.zeros((len(prediction), self.n_classes))
            proba[:, self.positions[position]] = prediction
            return parts, proba
        factor = float(np.ravel(member.scale)[0]) if np.size(member.scale) == 1 else 1.0
        parts = Uncertainty(*(factor * part for part in parts))
        return parts, prediction * member.scale + member.center

    def _combine(self, answers, weights, noise=0.0):
        """Put answers together, with weights of shape (n_members, n_rows)."""
        weights = weights / weights.sum(0)
        predictions = np.stack([prediction for _, prediction in answers])
        mean = sum_in_order(weights[:, :, None] * predictions)
        totals, aleatorics, _ = (
            np.stack([parts[kind] for parts, _ in answers]) for kind in range(3)
        )
        if self.is_classification:
            own = entr(predictions.clip(min=0)).sum(2)
            disagreement = entr(mean.clip(min=0)).sum(1) - sum_in_order(weights * own)
            # The entropy of the mean, unless members have looked at their training
            # rows and are less sure than their probabilities are. Both together could
            # be more than there is to be unsure about.
            total = sum_in_order(weights * totals) + disagreement
            total = total.clip(min=0, max=np.log(mean.shape[1]))
            aleatoric = np.minimum(sum_in_order(weights * aleatorics), total)
            return Uncertainty(total, aleatoric, total - aleatoric), mean
        # The law of total variance, over members.
        aleatoric = sum_in_order(weights * aleatorics**2) + noise
        disagreement = np.square(predictions - mean).sum(2)
        total = sum_in_order(weights * (totals**2 + disagreement)) + noise
        rest = (total - aleatoric).clip(min=0)
        return Uncertainty(*map(np.sqrt, (total, aleatoric, rest))), mean

    def learn(self, X, y):
        """See `RowsProvider.learn`."""
        if self.codes_of is not None:
            y = np.searchsorted(self.codes_of, np.asarray(y).reshape(-1))
        return any([member.learn(X, y) for member in self.members])


class BaggedRows(MembersRows):
    """Members that were fitted on samples of the rows, and of the columns.

    A regressor that predicts nothing but a mean knows no noise. Once training rows
    were shown to `learn`, it is what the members that have not seen a row are off by,
    beyond their disagreement: the same everywhere.

    Parameters
    ----------
    columns : list of ndarray
        Positions of the columns of each member.

    seen : list of ndarray
        Positions of the training rows of each member.

    members, name, **options
        As `MembersRows` takes them.
    """

    def __init__(self, members, name, columns, seen, **options):
        super().__init__(members, name, **options)
        self.columns = columns
        self.seen = seen
        self.noise = 0.0

    def _ask(self, position, X):
        return super()._ask(position, X[:, self.columns[position]])

    def _answer(self, X):
        X = bagged_table(X)
        answers = [self._ask(position, X) for position in range(len(self.members))]
        weights = np.ones((len(answers), n_rows(X)))
        return self._combine(answers, weights, self.noise)

    def _unseen_answers(self, X):
        """Answers of members about rows new to them, and which rows these are."""
        X = bagged_table(X)
        if max(map(np.max, self.seen)) >= n_rows(X):
            return None
        is_unseen = unseen_rows(self.seen, n_rows(X))
        rows = np.flatnonzero(is_unseen.any(0))
        if not len(rows):
            return None
        answers = [self._ask(i, X[rows]) for i in range(len(self.members))]
        parts, mean = self._combine(answers, is_unseen[:, rows].astype(np.float64))
        return rows, parts, mean

    def learn(self, X, y):
        """See `RowsProvider.learn`."""
        if self.is_classification:
            return False
        answer = self._unseen_answers(X)
        if answer is None:
            return False
        rows, parts, mean = answer
        gaps = np.square(as_columns(y)[rows] - mean).sum(1)
        self.noise = max(float((gaps - parts.total**2).mean()), 0.0)
        return True

    def out_of_bag(self, X, y):
        """See `RowsProvider.out_of_bag`."""
        answer = self._unseen_answers(X)
        if answer is None:
            return None
        total, aleatoric, rest = answer[1]
        if self.is_classification:
            return answer[1]
        total, aleatoric = (np.sqrt(p**2 + self.noise) for p in (total, aleatoric))
        return Uncertainty(total, aleatoric, rest)


def sum_in_order(values):
    """Sum over the first axis, one after the other; numpy does not, for one row."""
    return reduce(np.add, values)


def bagged_table(X):
    """Rows as bagging ensembles give them to their members."""
    return check_array(X, dtype=None, ensure_all_finite=False, accept_sparse="csr")


class TreesRows(RowsProvider):
    """A forest, or a bagging ensemble of trees.

    Trees are asked in one pass. Before `learn` they say what the rows in their leaves
    were like that they were grown on, which is nothing about noise if leaves are pure.
    After it, see `Leaves`. Predictions are those of the model either way.

    Parameters
    ----------
    model : estimator
        The fitted ensemble.

    members : list of TreeMember
        Its trees.
    """

    def __init__(self, model, members, name, is_classification, **options):
        super().__init__(name, is_classification, **options)
        self.model = model
        self.members = members
        self.leaves = None
        self._tables = {}

    def __getstate__(self):
        return self.__dict__ | {"_tables": {}}  # the model knows what is in them

    def _answer(self, X):
        rows = self._checked(X)
        if len(rows) == 1:
            # numpy adds up the trees of a single row in another order.
            parts, mean = self._judge(np.repeat(rows, 2, axis=0))
            return Uncertainty(*(part[:1] for part in parts)), mean[:1]
        return self._judge(rows)

    def total_of_rows(self, X):
        """See `RowsProvider.total_of_rows`."""
        if self.leaves is None:
            return super().total_of_rows(X)
        leaves = leaves_of(self.members, as_numbers(X))
        total = self.leaves.total(leaves)
        return total if self.is_classification else np.sqrt(total)

    def _checked(self, X):
        """Rows as a forest checks them, names of columns included."""
        if not hasattr(self.model, "apply"):
            return as_numbers(X)
        return as_numbers(
            validate_data(
                self.model,
                X,
                reset=False,
                dtype=np.float32,
                accept_sparse="csr",
                ensure_all_finite="allow-nan",
            )
        )

    def _judge(self, rows):
        leaves = leaves_of(self.members, rows)
        # Summed in the order of the trees: those of a forest that works in parallel
        # are added up as they come, and the last digits differ from call to call.
        draws = self._at_leaves(leaves, _node_mean)
        mean = draws.mean(0)
        if self.leaves is not None:
            total, share = self.leaves.total(leaves), self.leaves.noise(rows, leaves)
            return self._as_parts(total, share), mean
        if self.is_classification:
            return decompose_entropy(draws), mean
        std = np.sqrt(self._at_leaves(leaves, _node_variance))
        return Uncertainty(*map(length, decompose_variance(draws, std))), mean

    def _at_leaves(self, leaves, read):
        """What trees keep about leaves: (n_trees, n_rows, n_columns)."""
        if read not in self._tables:
            n_classes = len(self.model.classes_) if self.is_classification else None
            parts = [read(member.tree, n_classes) for member in self.members]
            self._tables[read] = np.concatenate(parts)
        return self._tables[read][leaves]

    def _as_parts(self, total, share):
        aleatoric = share * total
        if self.is_classification:
            return Uncertainty(total, aleatoric, total - aleatoric)
        return Uncertainty(*map(np.sqrt, (total, aleatoric, total - aleatoric)))

    def learn(self, X, y):
        """See `RowsProvider.learn`."""
        X = as_numbers(X)
        seen = self.model.estimators_samples_
        if not is_grown_on(self.members[0], seen[0], X):
            return False
        if self.leaves is not None:
            return True  # the same rows again
        targets = self._targets(y)
        if self.is_classification and not targets.any(1).all():
            return False
        self.leaves = Leaves(self.members, seen, X, targets, self.is_classification)
        return True

    def _targets(self, y):
        """Indicators of classes, or numbers."""
        if not self.is_classification:
            return as_columns(y)
        is_class = np.asarray(y).reshape(-1, 1) == self.model.classes_
        return is_class.astype(np.float64)

    def out_of_bag(self, X, y):
        """See `RowsProvider.out_of_bag`."""
        if not self.learn(X, y):
            return None
        X, seen = as_numbers(X), self.model.estimators_samples_
        is_unseen = unseen_rows(seen, len(X))
        # Noise is told by rows that a tree has not seen. So a row is new to what is
        # known of a tree that has seen it, unless the tree has seen all rows.
        is_new = ~is_unseen & is_unseen.any(1, keepdims=True)
        total = self.leaves.unseen_total(self.members, seen, X, self._targets(y))
        rows = np.flatnonzero(np.isfinite(total) & is_new.any(0))
        if not len(rows):
            return None
        total, X = total[rows], X[rows]
        leaves = leaves_of(self.members, X)
        return self._as_parts(total, self.leaves.noise(X, leaves, is_new[:, rows]))


def _node_mean(tree, n_classes):
    """Class probabilities or means of the nodes of a tree, as it has learned them."""
    value = tree.tree_.value
    if n_classes is None:
        return value[:, :, 0]
    proba = np.zeros((len(value), n_classes))
    # Trees are grown on codes of the classes, and a sample may lack some of them.
    codes = tree.classes_.astype(np.intp)
    proba[:, codes] = value[:, 0] / value[:, 0].sum(1, keepdims=True)
    return proba


def _node_variance(tree, n_classes):
    """Variances of the targets, where the tree was grown by squares; else zero."""
    is_square = tree.criterion in ("squared_error", "friedman_mse")
    variance = (is_square * tree.tree_.impurity).clip(min=0)
    return np.repeat(variance[:, None], tree.tree_.n_outputs, axis=1)


def tree_members(model):
    """The trees of a forest or bagging ensemble, with the columns that each sees."""
    columns = getattr(model, "estimators_features_", [None] * len(model.estimators_))
    return list(map(TreeMember, model.estimators_, columns))
