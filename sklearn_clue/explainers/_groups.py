"""Rejected rows in groups: those that one common change makes sure."""

from functools import partial
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state, gen_batches, get_tags

from sklearn_clue import _facts, _tables, _words
from sklearn_clue._torch import one_thread
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
)
from sklearn_clue.explainers import _parts
from sklearn_clue.explainers._clue import CLUEExplainer
from sklearn_clue.explainers._common_changes import (
    Trials,
    changes_between,
    learn_changes,
    portions_of,
)
from sklearn_clue.explainers._polish import polish
from sklearn_clue.explainers._question import AsksForSureRows
from sklearn_clue.explainers._results import Found, Results, run_in_batches
from sklearn_clue.explainers._yardstick import ROUNDING, Yardstick, replaced
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import unit_of

# Of more rows a random choice is learned from.
MAX_ROWS = 300

# A part of a common change is kept if it is enough for this share of the rows: each one
# makes new rows dearer.
USEFUL = 0.05


class GroupExplainer(DocLinkMixin, VersionedState, MetaEstimatorMixin, BaseEstimator):
    """Group the rows a model is unsure about by the change that makes them sure.

    An explainer finds one counterfactual for each rejected row. Here a few changes are
    learned that many of these rows have in common: "38 of 120: sure if months employed
    were about 14 higher". New rows get the best of the common changes, without a
    search of their own.

    Parameters
    ----------
    explainer : explainer or None, default=None
        Finds the counterfactuals to learn from: a :class:`CLUEExplainer` or a
        :class:`NeighborExplainer`. One that is fitted, or frozen by
        :class:`~sklearn.frozen.FrozenEstimator`, is taken as it is; others are copied
        and fitted. `clone` makes an unfitted copy of what is not frozen. None means
        :class:`CLUEExplainer`.

    n_groups : int or "auto", default="auto"
        Groups wanted; there are fewer if more would not help. `"auto"` learns changes
        from half of the rows, up to eight, and takes the fewest groups that make
        about as many of the other half sure as more would. Only rows count whose
        common change is not much longer than what rows need on their own.

    max_columns : int, default=3
        Columns that a common change may concern.

    random_state : int, RandomState instance or None, default=None
        Draws the halves, and 300 rows to learn from where there are more. It also
        fixes the fit of an explainer that has no `random_state` of its own.

    Attributes
    ----------
    explainer_ : explainer
        The fitted explainer.

    labels_ : ndarray of shape (n_explained,)
        Group of each row that was explained, the largest group being 0: the group
        whose change makes it sure at the least distance. Where none does, the group
        that leaves it least unsure; -1 if the row is sure as it is.

    explained_ : ndarray of shape (n_explained,)
        Positions of the explained rows in the X of `fit`, or in the explanation.

    n_groups_ : int
        Number of groups.

    translations_ : ndarray of shape (n_groups, n_encoded)
        The common changes in encoded space: what is added to a number, and for a
        category the indicator of its new value. Zero elsewhere.

    destinations_ : ndarray of shape (n_groups, n_encoded)
        What numbers are set to instead, in encoded space. NaN elsewhere.

    still_unsure_ : ndarray of shape (n_groups,)
        Share of the rows of each group that its change does not make sure.

    less_plausible_ : ndarray of shape (n_groups,)
        Share of the rows of each group that its change makes sure, but less plausible
        or farther away than the explainer demands.

    sentences_ : list of str
        Each group in a sentence.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    CLUEExplainer : Explains each row on its own.
    Explanation.drivers : What changes most over many rows, column by column.

    Notes
    -----
    Proposals are the most frequent patterns of columns among the counterfactuals, with
    the least important changes left out of those that concern more than `max_columns`:
    numbers are shifted, in several lengths, or set to what they are set to there. They
    are chosen greedily so that the best of them costs the rows least, exchanged as long
    as that helps, and then lengthened, shortened, set to other values, and given or
    spared a column. A row costs the l1 distance if it becomes sure and as plausible as
    the explainer demands, and three times what is far for rows on their own if not.
    Where some columns of a change are enough for one row in twenty or more, rows may
    get these alone. The idea of one translation for a group of rows is that of
    GLAM-CLUE [1]_.

    References
    ----------
    .. [1] D. Ley, U. Bhatt, A. Weller, "Diverse, Global and Amortised Counterfactual
       Explanations for Uncertainty Estimates", AAAI 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import GroupExplainer, NeighborExplainer
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 300), "age": rng.normal(50, 9, 300)}
    ... )
    >>> y = np.where(X["dose"] > 5, "works", "fails")
    >>> groups = GroupExplainer(NeighborExplainer(LogisticRegression()), n_groups=2)
    >>> groups = groups.fit(X, y)
    >>> for sentence in groups.sentences_:
    ...     print(sentence.split(";")[0])
    33 of 60: sure if dose were about 4.08
    27 of 60: sure if dose were about 6.04
    """

    _parameter_constraints: dict = {
        "explainer": [HasMethods(["fit", "explain"]), None],
        "n_groups": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_columns": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self, explainer=None, *, n_groups="auto", max_columns=3, random_state=None
    ):
        self.explainer = explainer
        self.n_groups = n_groups
        self.max_columns = max_columns
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(CLUEExplainer() if self.explainer is None else self.explainer)
        tags.input_tags = inner.input_tags
        tags.target_tags.required = inner.target_tags.required
        return tags

    # Learning ---------------------------------------------------------------------

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Explain the rejected rows, and group them.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows; those that the explainer rejects are explained and grouped.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Target values. Needed only if the explainer has to be fitted.

        Returns
        -------
        self : object
            The fitted instance.
        """
        X = _tables.check_rows(self, X, reset=True)
        rng = check_random_state(self.random_state)
        explainer = self._fitted_explainer(X, y, rng)
        rejected = np.flatnonzero(explainer.rejects(X))
        if not len(rejected):
            raise ValueError(
                f"None of the {X.shape[0]} rows is rejected, so there is nothing to "
                "group. Pass more rows, or raise rejection_rate of the explainer."
            )
        explanation = explainer.explain(_tables.take(X, rejected))
        return self._learn(explainer, explanation, rejected, rng)

    @classmethod
    def from_explanation(
        cls,
        explainer,
        explanation,
        *,
        n_groups="auto",
        max_columns=3,
        random_state=None,
    ):
        """Group rows that have been explained already.

        Parameters
        ----------
        explainer : explainer
            The fitted explainer.

        explanation : Explanation
            What it said of the rows.

        n_groups : int or "auto", default="auto"
            See :class:`GroupExplainer`.

        max_columns : int, default=3
            See :class:`GroupExplainer`.

        random_state : int, RandomState instance or None, default=None
            See :class:`GroupExplainer`.

        Returns
        -------
        groups : GroupExplainer
            Fitted.
        """
        groups = cls(
            explainer,
            n_groups=n_groups,
            max_columns=max_columns,
            random_state=random_state,
        )
        groups._validate_params()
        explainer = _parts.thawed(explainer)
        check_kind(explainer)
        check_is_fitted(explainer, "estimator_")
        if explanation.encoded is None or not len(explanation):
            raise ValueError(
                "The explanation must hold encoded rows, and at least one: pass what "
                "explain of the explainer returns."
            )
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(explainer, name):
                setattr(groups, name, getattr(explainer, name))
        rng = check_random_state(random_state)
        return groups._learn(explainer, explanation, np.arange(len(explanation)), rng)

    def _fitted_explainer(self, X, y, rng):
        explainer = CLUEExplainer() if self.explainer is None else self.explainer
        check_kind(_parts.thawed(explainer))
        if isinstance(explainer, FrozenEstimator) or hasattr(explainer, "estimator_"):
            explainer = _parts.thawed(explainer)
            check_is_fitted(explainer, "estimator_")
            return explainer
        explainer = clone(explainer)
        if self.random_state is not None and explainer.random_state is None:
            explainer.set_params(random_state=rng.randint(2**31 - 1))
        return explainer.fit(X, y)

    def _learn(self, explainer, explanation, explained, rng):
        if explainer._image_shape is not None:
            raise ValueError(
                "Images have no columns that a common change could concern. Give an "
                "explainer of tables."
            )
        schema = explainer._space.schema
        problem, results = problem_of(explainer, explanation.X)
        changes = changes_between(
            schema, explanation.encoded, explanation.encoded_counterfactuals
        )
        importance = explanation.contributions
        if importance is None or importance.shape[1] != len(schema):
            shift = np.abs(explanation.encoded_counterfactuals - explanation.encoded)
            importance = [shift[:, column.block].sum(1) for column in schema]
            importance = np.stack(importance, axis=1)
        rows = np.arange(len(changes))
        if len(rows) > MAX_ROWS:
            rows = np.sort(rng.choice(rows, MAX_ROWS, replace=False))
        with one_thread():
            common = learn_changes(
                lambda part: trials_of(explainer, problem.take(rows[part])),
                changes[rows],
                importance[rows],
                self.n_groups,
                self.max_columns,
                rng,
            )
        self.explainer_ = explainer
        self.explained_ = np.asarray(explained)
        self._describe_groups(common, problem, results)
        return self

    def _describe_groups(self, common, problem, results):
        """Sort groups by size, leave out empty ones, and say what they are."""
        schema, n_groups = problem.schema, len(common)
        self._changes, self._owner = portions_of(schema, common)
        taken = self._assign(problem).choice
        taken = np.bincount(taken[taken >= 0], minlength=len(self._owner))
        is_kept = taken >= USEFUL * taken.sum()
        is_kept[:n_groups] = True
        self._changes, self._owner = self._changes[is_kept], self._owner[is_kept]

        found = self._assign(problem)
        labels = found.labels(self._owner)
        sizes = np.bincount(labels[labels >= 0], minlength=n_groups)
        order = np.argsort(-sizes, kind="stable")
        order = order[sizes[order] > 0]
        position = np.full(n_groups + 1, -1)
        position[order] = np.arange(len(order))
        self.labels_ = position[labels]
        self._changes = self._changes[position[self._owner] >= 0]
        self._owner = position[self._owner[position[self._owner] >= 0]]
        shift, goal = np.moveaxis(common[order], 1, 0)
        is_number = np.isin(np.arange(shift.shape[1]), schema.numeric_index)
        self.destinations_ = np.where(is_number, goal, np.nan)
        self.translations_ = np.where(is_number, shift, np.nan_to_num(goal))
        self.n_groups_ = len(order)
        members = [np.flatnonzero(self.labels_ == k) for k in range(len(order))]
        is_sure, is_less = found.is_sure, found.is_sure & ~found.is_good
        self.still_unsure_ = np.array([1 - is_sure[rows].mean() for rows in members])
        self.less_plausible_ = np.array([is_less[rows].mean() for rows in members])
        self.sentences_ = [
            self._sentence(k, rows, problem, found.x, results)
            for k, rows in enumerate(members)
        ]

    def _assign(self, problem):
        """Give each row that is not sure the best of the common changes."""
        with one_thread():
            return self._method(is_polished=False).assign(problem)

    def _method(self, is_polished):
        return CommonChanges(
            self._changes,
            self.explainer_._target(),
            partial(trials_of, self.explainer_),
            is_polished,
        )

    # Telling ----------------------------------------------------------------------

    def _sentence(self, group, rows, problem, x, results):
        """One group in words; amounts are those that its rows change by, in median."""
        before = _tables.take(results.before.table, rows)
        x0 = problem.x0[rows].numpy()
        after = results.space.decode(x[rows].numpy(), before, x0)
        parts = changed_columns(
            results.space.display_schema, before, after, self.max_columns
        )
        # One verb serves them all: amount were about 14 higher and housing own.
        joint = " were " if parts else ""
        first, *others = parts or [("changed as the group is", "")]
        words = _words.listed([joint.join(first), *(" ".join(each) for each in others)])
        unsure = _words.percent(self.still_unsure_[group])
        text = (
            f"{len(rows):,} of {len(self.labels_):,}: sure if {words}; share still "
            f"unsure after the common change {unsure}"
        )
        if self.less_plausible_[group] > 0:
            text += (
                ", share less believable than asked "
                f"{_words.percent(self.less_plausible_[group])}"
            )
        return text

    def summary(self):
        """Say each group in a sentence.

        Returns
        -------
        summary : str
            One line per group, the largest first.
        """
        check_is_fitted(self, "translations_")
        return "\n".join(self.sentences_)

    # New rows ---------------------------------------------------------------------

    def _check_new_rows(self, X):
        check_is_fitted(self, "translations_")
        X = _tables.check_rows(self, X, reset=False)
        is_gapped = _tables.gaps(X).any(1)
        if is_gapped.any():
            # Once encoded, gaps are numbers. A model that takes none says so itself;
            # the tags of a pipeline do not know of its imputers.
            self.explainer_.predict(_tables.take(X, np.flatnonzero(is_gapped)))
        return X

    def predict(self, X):
        """Tell to which group rows belong.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The group whose change makes the row sure at the least distance. Where none
            does, the group that leaves it least unsure; -1 if the row is sure as it
            is.
        """
        X = self._check_new_rows(X)
        problem, _ = problem_of(self.explainer_, X)
        batches = gen_batches(len(problem), self.explainer_.batch_size)
        return np.concatenate(
            [self._assign(problem.take(batch)).labels(self._owner) for batch in batches]
        )

    def explain(self, X, *, polish=True, contributions=True):
        """Explain rows by the best of the common changes.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain.

        polish : bool, default=True
            Whether to take back whatever part of the common change a row does not
            need to become sure, and to move up to three other numbers to where similar
            training rows have them, if the common change alone is less plausible than
            the explainer demands.

        contributions : bool, default=True
            Whether to tell how much each change lowers the uncertainty.

        Returns
        -------
        explanation : Explanation
            Counterfactuals in the units and the container of X, and what they did to
            the uncertainty. A row that is sure stays as it is, and so does one that
            every common change would make less sure.
        """
        X = self._check_new_rows(X)
        explainer = self.explainer_
        problem, results = problem_of(explainer, X)
        found = run_in_batches(
            self._method(polish),
            problem,
            explainer.batch_size,
            explainer.n_jobs,
            explainer.verbose,
        )
        candidates = results.judge_candidates(found)
        return results.explanation(
            found[0],
            candidates[0],
            None,
            partial(describe, explainer),
            contributions=contributions,
        )


class Assigned(NamedTuple):
    """What becomes of rows, and whether that is what was asked for."""

    choice: np.ndarray  # position of the change, -1 for rows that are sure
    x: torch.Tensor
    is_sure: np.ndarray
    is_good: np.ndarray
    n_judged: np.ndarray

    def labels(self, owner):
        """The group of each row, given that of each change."""
        return np.append(owner, -1)[self.choice]


class CommonChanges:
    """Give each row the best of some changes.

    Parameters
    ----------
    changes : ndarray of shape (n_changes, 2, n_encoded)
        What rows may get.

    target : float
        Largest uncertainty of a sure row.

    make_trials : callable
        From a `SearchProblem` to `Trials`.

    is_polished : bool
        Whether to take back what is not needed.
    """

    def __init__(self, changes, target, make_trials, is_polished):
        self.changes = changes
        self.target = target
        self.make_trials = make_trials
        self.is_polished = is_polished

    def __call__(self, problem):
        """Change all rows of a problem that need it."""
        found = self.assign(problem)
        shape = len(problem), 1
        return [
            Found(
                x=found.x[:, None].numpy(),
                n_iter=found.n_judged.reshape(shape),
                converged=np.ones(shape, dtype=bool),
                is_answer=np.ones(shape, dtype=bool),
            )
        ]

    def assign(self, problem):
        """Find the best change of all rows that are not sure."""
        before = problem.weigh(problem.before[0])
        found = Assigned(
            np.full(len(before), -1),
            problem.x0.clone(),
            *np.ones((2, len(before)), dtype=bool),
            np.zeros(len(before), dtype=int),
        )
        unsure = np.flatnonzero((before > self.target).numpy())
        if len(unsure) and len(self.changes):
            trials = self.make_trials(problem.take(unsure))
            choice, tried = trials.best(self.changes)
            yardstick = trials.yardstick
            is_sure = tried.uncertainty <= self.target
            is_good = yardstick.is_good(tried)
            if self.is_polished and not is_good.all():
                tried = self._draw_in(problem.take(unsure), tried, ~is_good)
            x = self._finish(yardstick, tried, before[unsure])
            values = choice, x, is_sure, is_good, yardstick.n_judged
            for array, value in zip(found, values, strict=True):
                array[unsure] = value
        return found

    def _draw_in(self, problem, tried, is_open):
        """Keep rows plausible by moving other numbers, where that is all they lack."""
        open_rows = np.flatnonzero(is_open.numpy())
        trials = self.make_trials(problem.take(open_rows))
        _, others = trials.best(self.changes, draws_in=True)
        is_good = trials.yardstick.is_good(others)
        rows = torch.as_tensor(open_rows)[is_good]
        return replaced(tried, rows, others.keep(is_good)._replace(rows=rows))

    def _finish(self, yardstick, tried, before):
        """Undo changes that make rows less sure, and polish the others."""
        is_worse = tried.uncertainty >= before
        tried.x[is_worse] = yardstick.problem.x0[is_worse]
        (moved,) = (~is_worse).nonzero(as_tuple=True)
        if not self.is_polished or not len(moved):
            return tried.x
        some = tried.keep(moved)
        # What was not reached is not demanded of the polished row either.
        for limit, reached in (
            (yardstick.max_gap, some.gap),
            (yardstick.target, some.uncertainty),
            (yardstick.max_distance, yardstick.distance(some.x, moved)),
        ):
            limit[moved] = torch.maximum(limit[moved], reached)
        return replaced(tried, moved, polish(yardstick, some)).x


# What is asked of the explainer ------------------------------------------------------


def check_kind(explainer):
    """Refuse explainers that have no target to make rows sure by."""
    if not isinstance(explainer, AsksForSureRows):
        raise TypeError(
            "GroupExplainer needs to know when a row counts as sure, which "
            f"CLUEExplainer and NeighborExplainer do, got {type(explainer).__name__}. "
            "Give one of these, fitted or not."
        )


def problem_of(explainer, X):
    """The problem to explain rows, and what turns answers into an explanation."""
    space = explainer._constrained_space()
    shown = space.display(X)
    x0 = space.encode_display(shown)
    limits = space.limits(shown, x0)
    problem = explainer._problem_of(x0, limits, tables=(space, shown))
    about = explainer._about() | {"method": "Groups"}
    unit = unit_of(explainer._provider)
    return problem, Results(problem, space, shown, unit, explainer._in_words, about)


def trials_of(explainer, problem):
    """Try changes on rows, and measure them by what the explainer asks."""
    stored = explainer._stored_rows()
    # Who is set to a value at the very threshold must not be sure by rounding.
    target = (1 - ROUNDING) * explainer._target()

    def make_yardstick(problem, gaps):
        return Yardstick(
            problem,
            target,
            stored,
            explainer.min_plausibility,
            explainer.max_distance,
            margin=0.0,
            own_gaps=gaps,
        )

    is_asked = explainer.min_plausibility is not None
    return Trials(problem, make_yardstick, stored if is_asked else None)


def describe(explainer, problem, before, after):
    """What an explanation by common changes says of rows."""
    facts = explainer._describe(None, problem, before, after)
    return facts | explainer._describe_sure(problem, before, after)


# Words -------------------------------------------------------------------------------


def changed_columns(schema, before, after, max_columns):
    """Name the columns that change in most rows, with what becomes of them.

    Parameters
    ----------
    schema : FeatureSchema
        The columns, as explanations show them.

    before : {ndarray, DataFrame}
        Rows.

    after : {ndarray, DataFrame}
        The same rows, changed.

    max_columns : int
        Columns to name at most; those that change most come first.

    Returns
    -------
    pairs : list of (str, str)
        Name, and what the column would be.
    """
    found = []
    sides = (before, after)
    cells = zip(schema, *map(_tables.arrays, sides), strict=True)
    changed = _facts.is_changed(*sides).T
    for (column, old, new), moved in zip(cells, changed, strict=True):
        if 2 * moved.sum() < len(old) or not moved.any():
            continue
        if column.kind == "category":
            texts = [_words.value(_facts.plain(value)) for value in new[moved]]
            values, counts = np.unique(texts, return_counts=True)
            found.append((2.0, str(column.name), values[counts.argmax()]))
            continue
        old, new = (column.numbers_of(side[moved]).astype(float) for side in (old, new))
        known = (new - old)[~np.isnan(new - old)]
        if not len(known):  # gaps are all that it fills, or leaves
            is_filled = not np.isnan(new).any()
            found.append((1.0, str(column.name), "known" if is_filled else "missing"))
        elif np.ptp(new) == 0 < np.ptp(old):  # not by the same amount, but to there
            size = np.abs(known).mean() / (column.scale or 1.0)
            there = _words.value(float(new[0]), _facts.decimals_of(column))
            there += f" {column.unit}" if column.unit else ""
            about = "" if column.is_integer else "about "
            found.append((size, str(column.name), about + there))
        elif shift := float(np.median(known)):
            side = "higher" if shift > 0 else "lower"
            size = abs(shift) / (column.scale or 1.0)
            much = _words.rounded(shift) + (f" {column.unit}" if column.unit else "")
            found.append((size, str(column.name), f"about {much} {side}"))
    found.sort(key=lambda entry: -entry[0])
    return [entry[1:] for entry in found[:max_columns]]
