"""Learners that answer the questions of a study in place of people."""

from numbers import Integral

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    Interval,
    check_count,
    check_is_fitted,
    fit_context,
    listing,
)

__all__ = []


class SimulatedParticipant(DocLinkMixin, BaseEstimator):
    """A learner that answers the questions of a study in place of a person.

    It sees what a participant sees: the context, its explanation and the test row, as
    numbers, and how they compare. From questions whose answers are known it learns
    when the model is sure, and is asked about others. Methods whose explanations help
    a learner may help people; those that hold no information for a learner will help
    nobody. That ranks methods in minutes and finds mistakes in a study before people
    take it. It is no substitute for asking people: learners get feedback from many
    questions and see all columns at once, people do neither and know the world.

    Parameters
    ----------
    estimator : classifier or None, default=None
        What learns. None means a logistic regression on standard scores: it can
        compare the three rows, but it cannot learn by heart where the model is unsure.
        A forest can, from the test rows alone, and then needs explanations less.

    cv : int, default=5
        Folds: questions of one are answered by a learner that knows the others.

    n_practice : int or None, default=None
        Questions that `fit` learns from, taken at random from each variant, so that
        participants with different seeds differ. None means all.

    random_state : int, RandomState instance or None, default=None
        Fixes the folds, and the questions to learn from.

    Attributes
    ----------
    estimators_ : dict of str to classifier
        The fitted learner of each variant.

    See Also
    --------
    Study : Makes the questions. A learner needs many: some hundreds.

    References
    ----------
    Chen, Johnson, Topin, Plumb, Talwalkar, "Use-Case-Grounded Simulations for
    Explanation Evaluation", NeurIPS 2022, arXiv:2206.02256.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer
    >>> from sklearn_clue.study import SimulatedParticipant, Study
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(800, 2))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=800) > 0
    >>> neighbors = NeighborExplainer(LogisticRegression()).fit(X[:200], y[:200])
    >>> methods = {"neighbors": neighbors, "none": None}
    >>> study = Study(methods, X[:200], X[200:], n_questions=60, random_state=0)
    >>> learner = SimulatedParticipant(random_state=0)
    >>> learner.rank(study, n_participants=1)[["accuracy", "gain"]].round(2)
               accuracy  gain
    method
    neighbors      0.73  0.23
    none           0.50  0.00
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "n_practice": [Interval(Integral, 2, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(self, estimator=None, *, cv=5, n_practice=None, random_state=None):
        self.estimator = estimator
        self.cv = cv
        self.n_practice = n_practice
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, study, y=None):
        """Learn from all questions of a study, each variant by itself.

        Parameters
        ----------
        study : Study
            Questions to learn from. They must not share rows with those that are to be
            answered: split the pool.

        y : None
            Ignored: a study knows the answers.

        Returns
        -------
        self : object
            The fitted participant.
        """
        rng = check_random_state(self.random_state)
        self.estimators_ = {}
        for variant, truth in _truths(study, n_least=1).items():
            chosen = self._practice(truth, rng)
            seen = what_is_seen(study, variant)[chosen]
            self.estimators_[variant] = self._learner().fit(seen, truth[chosen])
        return self

    def _practice(self, truth, rng):
        """Questions to learn from: some of them, in which both answers occur."""
        everything = np.arange(len(truth))
        if self.n_practice is None or self.n_practice >= len(truth):
            return everything
        least = min(truth.sum(), (~truth).sum()) / len(truth) * self.n_practice
        if least < 1:
            raise ValueError(
                f"n_practice is {self.n_practice}, too few of the {len(truth)} "
                f"questions for both answers to occur. Give at least "
                f"{int(np.ceil(self.n_practice / least))}."
            )
        return train_test_split(
            everything,
            train_size=self.n_practice,
            stratify=truth,
            random_state=rng.randint(2**31 - 1),
        )[0]

    def answer(self, study, name="learner"):
        """Answer the questions of another study, with what was learned by `fit`.

        Parameters
        ----------
        study : Study
            The questions. Its variants are among those of the study of `fit`.

        name : str, default="learner"
            What to call the participant, before the name of the variant.

        Returns
        -------
        answers : pandas.DataFrame
            One line per answer: `participant`, `variant`, `method`, `question`,
            `position`, `sure` (the truth), `answer`, `seconds` (missing) and `check`
            (False). There is one participant per variant.
        """
        check_is_fitted(self, "estimators_")
        strange = [name for name in study.variants if name not in self.estimators_]
        if strange:
            raise ValueError(
                f"The participant has learned nothing about {listing(strange)}: the "
                f"study of fit had the variants {listing(list(self.estimators_))}."
            )
        return pd.concat(
            [
                answers_of(study, variant, f"{name}, {variant}", learner.predict(seen))
                for variant in study.variants
                for learner, seen in [
                    (self.estimators_[variant], what_is_seen(study, variant))
                ]
            ],
            ignore_index=True,
        )

    def cross_answer(self, study, n_participants=5):
        """Answer all questions of a study, having learned from others of the same.

        Parameters
        ----------
        study : Study
            The questions; a hundred or more, or there is little to learn from.

        n_participants : int, default=5
            Participants per variant. Each knows other questions when it answers one:
            the folds differ.

        Returns
        -------
        answers : pandas.DataFrame
            Like that of :meth:`answer`.
        """
        self._validate_params()
        check_count("n_participants", n_participants)
        truths = _truths(study, n_least=self.cv)
        # The same folds for all variants: what differs is the explanation.
        seeds = check_random_state(self.random_state).randint(
            2**31 - 1, size=n_participants
        )
        tables = []
        for variant, truth in truths.items():
            seen = what_is_seen(study, variant)
            for place, seed in enumerate(seeds, start=1):
                said = cross_val_predict(
                    self._learner(),
                    seen,
                    truth,
                    cv=StratifiedKFold(self.cv, shuffle=True, random_state=seed),
                )
                tables.append(answers_of(study, variant, f"{variant} {place}", said))
        return pd.concat(tables, ignore_index=True)

    def rank(self, study, n_participants=5, reference=None):
        """Rank the methods of a study by how well their questions are answered.

        Parameters
        ----------
        study : Study
            The questions; see :meth:`cross_answer`.

        n_participants : int, default=5
            Participants per variant.

        reference : str or None, default=None
            The method to compare with. None means the one that shows nothing; if there
            is no such method, `gain` is left out.

        Returns
        -------
        ranking : pandas.DataFrame
            One line per method, the best first: `accuracy`, the share of right
            answers; `accuracy_sure` and `accuracy_unsure`, that among test rows that
            the model is sure and unsure about; `gain`, the accuracy less that of the
            reference; and the standard errors `accuracy_error` and `gain_error`, which
            are about other questions of the same kind. More participants do not lower
            these: all of them learn alike.
        """
        answers = self.cross_answer(study, n_participants)
        answers["right"] = answers["answer"] == answers["sure"]
        share = answers.pivot_table("right", "question", "method", dropna=False)
        ranking = pd.DataFrame(
            {"accuracy": share.mean(), "accuracy_error": _error(share)}
        )
        for name, side in answers.groupby("sure"):
            column = "accuracy_sure" if name else "accuracy_unsure"
            ranking[column] = side.groupby("method")["right"].mean()
        reference = _reference(study, reference)
        if reference is not None:
            gain = share.sub(share[reference], axis=0)
            ranking["gain"], ranking["gain_error"] = gain.mean(), _error(gain)
        return ranking.sort_values("accuracy", ascending=False, kind="stable")

    def _learner(self):
        if self.estimator is None:
            return make_pipeline(
                StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)
            )
        return clone(self.estimator)


def what_is_seen(study, variant):
    """What a participant sees in each question of a variant, as numbers.

    Parameters
    ----------
    study : Study
        The study.

    variant : str
        Name of the variant.

    Returns
    -------
    seen : ndarray of shape (n_questions, n_numbers)
        The encoded context, test row and explanation; the differences between each two
        of them, and the sums of their absolute values; and how far the test row lies
        on the way from the context to its explanation: 0 at the one and 1 at the
        other.
    """
    context, explanation, test = (
        None if table is None else study.encode(table)
        for table in study.seen_in(variant)
    )
    moved = test - context
    parts = [context, test, moved, _length(moved)]
    if explanation is not None:
        change, rest = explanation - context, test - explanation
        squares = np.maximum((change**2).sum(axis=1), np.finfo(float).tiny)
        along = (moved * change).sum(axis=1) / squares
        parts += [explanation, change, rest, _length(change), _length(rest)]
        parts += [_length(rest) - _length(moved), along[:, None]]
    return np.hstack(parts)


def _length(difference):
    return np.abs(difference).sum(axis=1, keepdims=True)


def answers_of(study, variant, participant, said, seconds=np.nan):
    """The answers of one participant to all questions of a variant.

    Parameters
    ----------
    study : Study
        The study.

    variant, participant : str
        Their names.

    said : array of bool of shape (n_questions,)
        Whether the participant said "sure".

    seconds : float, default=NaN
        How long an answer took.

    Returns
    -------
    answers : pandas.DataFrame
        One line per answer, as `read_answers` gives it.
    """
    questions = study.variants[variant]
    return pd.DataFrame(
        {
            "participant": participant,
            "variant": variant,
            "method": [question.method for question in questions],
            "question": [question.id for question in questions],
            "position": np.arange(len(questions)),
            "sure": [question.test_is_sure for question in questions],
            "answer": np.asarray(said, dtype=bool),
            "seconds": float(seconds),
            "check": False,
        }
    )


def _truths(study, n_least):
    """The right answers of each variant, if there are enough of both kinds."""
    truths = {}
    for variant, questions in study.variants.items():
        truth = np.array([question.test_is_sure for question in questions])
        n_fewest = min(truth.sum(), (~truth).sum())
        if n_fewest < n_least:
            raise ValueError(
                f"Learners need at least {n_least} questions about sure and as many "
                f"about unsure rows, got {truth.sum()} and {(~truth).sum()}. Build a "
                "study for learners alone, such as Study(..., n_questions=200)."
            )
        truths[variant] = truth
    return truths


def _reference(study, reference):
    if reference is not None:
        if reference not in study.methods:
            raise ValueError(
                f"reference is {reference!r}, which is no method of the study. Its "
                f"methods are {listing(study.methods)}."
            )
        return reference
    silent = [v for v in study.variants if study.seen_in(v).explanation is None]
    return silent[0] if silent else None


def _error(table):
    """Standard errors of the means of columns."""
    return table.std(ddof=1) / np.sqrt(len(table))
