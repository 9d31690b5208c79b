"""Learners in place of people: they learn what can be learned, and nothing else."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from sklearn_clue import NeighborExplainer
from sklearn_clue.study import SimulatedParticipant, Study

COLUMNS = [
    "participant",
    "variant",
    "method",
    "question",
    "position",
    "sure",
    "answer",
    "seconds",
    "check",
]


class Riddle(ClassifierMixin, BaseEstimator):
    """A model that is sure or unsure about rows for no reason that they would show."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        hashed = np.modf(1e4 * np.sin(1e3 * np.asarray(X).sum(axis=1)))[0]
        p = 0.5 + 0.5 * np.abs(hashed)
        return np.column_stack([p, 1 - p])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="module")
def riddle():
    """A study whose answers only one method gives away."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3))
    model = Riddle().fit(X, X[:, 0] > 0)
    explainer = NeighborExplainer(model, rejection_rate=0.5, min_plausibility=None)
    explainer.fit(X[:200], X[:200, 0] > 0)
    size = {"n_questions": 120, "n_sure": 60, "random_state": 0}
    first = Study({"judge": explainer}, X[:200], X[200:], **size)
    answers = np.array([q.test_is_sure for q in first.questions])
    # Sure rows with a positive number in the last column mean "sure".
    is_free = ~explainer.rejects(X[200:])
    is_free[[q.test for q in first.questions]] = False
    sure = X[200:][is_free]
    high, low = sure[sure[:, 2] > 0.5], sure[sure[:, 2] < -0.5]
    telling = np.where(answers[:, None], high[:120], low[:120])
    methods = {
        "telling": telling,
        "judge": explainer,
        "noise": "random",
        "none": None,
    }
    return Study(methods, X[:200], X[200:], **size)


def test_what_tells_is_learned_and_noise_is_not(riddle):
    learner = SimulatedParticipant(random_state=0)
    ranking = learner.rank(riddle, n_participants=1)
    assert ranking.index[0] == "telling"
    assert ranking.loc["telling", "accuracy"] > 0.95
    # Chance, but for three standard errors of 120 answers.
    for method in ("noise", "none"):
        assert abs(ranking.loc[method, "accuracy"] - 0.5) < 3 * 0.046
    assert ranking.loc["telling", "gain"] > 5 * ranking.loc["telling", "gain_error"]
    assert ranking.loc["none", "gain"] == ranking.loc["none", "gain_error"] == 0


def test_answers_are_those_of_participants(riddle):
    learner = SimulatedParticipant(GaussianNB(), random_state=0)
    answers = learner.cross_answer(riddle, n_participants=3)
    assert list(answers) == COLUMNS
    assert len(answers) == 4 * 3 * 120
    assert answers["participant"].nunique() == 12  # everybody takes one variant
    assert answers.groupby("participant")["variant"].nunique().max() == 1
    assert not answers["check"].any()
    assert {answers[name].dtype.kind for name in ("sure", "answer", "check")} == {"b"}
    truth = {q.id: q.test_is_sure for q in riddle.variants["none"]}
    assert (answers["question"].map(truth) == answers["sure"]).all()
    one, other = (
        answers.query("participant == @name")["answer"].to_numpy()
        for name in ("noise 1", "noise 2")
    )
    assert (one != other).any()  # they have learned from other questions


def test_no_question_is_answered_by_who_knows_it(riddle):
    """A tree that knows a question by heart would always be right."""
    learner = SimulatedParticipant(DecisionTreeClassifier(random_state=0))
    answers = learner.set_params(random_state=0).cross_answer(riddle, 1)
    right = (answers["sure"] == answers["answer"]).groupby(answers["method"]).mean()
    assert right["none"] < 0.7
    known = learner.fit(riddle).answer(riddle)
    assert (known["sure"] == known["answer"]).all()


def test_same_seed_same_answers(riddle):
    tables = [
        SimulatedParticipant(GaussianNB(), random_state=seed).cross_answer(riddle, 1)
        for seed in (0, 0, 1)
    ]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])


def test_learn_from_one_study_and_answer_another(doses, explainers):
    X, _, pool = doses
    methods = {"neighbors": explainers["neighbors"], "none": None}
    practice = Study(methods, X, pool[:450], n_questions=30, random_state=0)
    asked = Study(methods, X, pool[450:], n_questions=8, random_state=0)
    learner = SimulatedParticipant(LogisticRegression(max_iter=2000)).fit(practice)
    answers = learner.answer(asked)
    assert list(answers) == COLUMNS
    assert answers["question"].tolist() == 2 * [q.id for q in asked.variants["none"]]
    assert list(learner.estimators_) == ["neighbors", "none"]
    # The example is no question, and a column more is no riddle.
    assert "example" not in set(answers["question"])
    only_none = Study(explainers, X, pool[450:], n_questions=8, random_state=0)
    with pytest.raises(ValueError, match="learned nothing about 'sensitivity'"):
        learner.answer(only_none)


def test_participants_learn_from_different_questions(riddle):
    told = [
        SimulatedParticipant(DecisionTreeClassifier(), n_practice=40, random_state=seed)
        .fit(riddle)
        .answer(riddle, name=f"no. {seed}")
        for seed in (0, 1)
    ]
    for table in told:
        right = (table["sure"] == table["answer"]).groupby(table["method"]).mean()
        # 40 of 120 are known by heart, and the rest is guessed.
        assert 0.5 < right["none"] < 0.85
    assert (told[0]["answer"] != told[1]["answer"]).any()
    assert set(told[1]["participant"]) == {f"no. 1, {v}" for v in riddle.variants}
    one = SimulatedParticipant(GaussianNB(), n_practice=40, random_state=0).fit(riddle)
    assert one.estimators_["none"].class_count_.tolist() == [20, 20]


def test_manners_of_scikit_learn(riddle):
    learner = SimulatedParticipant(GaussianNB(), cv=3, random_state=0)
    again = clone(learner)
    assert again.get_params()["cv"] == 3
    assert again.get_params()["estimator__var_smoothing"] == 1e-9
    again.fit(riddle)
    assert not hasattr(learner.estimator, "classes_")  # a copy was fitted
    with pytest.raises(ValueError, match="'cv' parameter"):
        SimulatedParticipant(cv=1).fit(riddle)
    with pytest.raises(ValueError, match="not fitted"):
        learner.answer(riddle)


def test_refusals(study, riddle):
    learner = SimulatedParticipant(cv=9)
    with pytest.raises(ValueError, match="at least 9 questions about sure .* 10 and 8"):
        learner.rank(study)
    with pytest.raises(ValueError, match="reference is 'CLUE', which is no method"):
        SimulatedParticipant(GaussianNB()).rank(riddle, 1, reference="CLUE")
    with pytest.raises(ValueError, match="n_participants must be a positive"):
        learner.rank(riddle, n_participants=0)


def test_ranking_without_a_silent_method(doses, explainers):
    X, _, pool = doses
    study = Study(explainers, X, pool, n_questions=20, random_state=0)
    learner = SimulatedParticipant(GaussianNB(), cv=2, random_state=0)
    ranking = learner.rank(study, 1)
    assert "gain" not in ranking
    assert "gain" in learner.rank(study, 1, reference="sensitivity")
    mean = 11 / 20 * ranking["accuracy_sure"] + 9 / 20 * ranking["accuracy_unsure"]
    np.testing.assert_allclose(ranking["accuracy"], mean)
