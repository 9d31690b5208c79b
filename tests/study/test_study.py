"""The questions of a study: which rows, how they are balanced, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import GroupExplainer, LocalSensitivityExplainer, NeighborExplainer
from sklearn_clue.study import Study


def _numbers(question):
    return question.id, question.context, question.test


def test_variants_ask_the_same_questions(study):
    assert study.methods == tuple(study.variants)
    expected = [_numbers(q) for q in study.variants["neighbors"]]
    for method, questions in study.variants.items():
        assert [_numbers(q) for q in questions] == expected
        assert {q.variant for q in questions} == {q.method for q in questions}
        assert questions[0].method == method
    assert study.questions == tuple(q for qs in study.variants.values() for q in qs)


def test_proportions_of_the_paper(study, doses, explainers):
    """18 questions, 10 of them about rows that the model is sure about (App. I)."""
    _, _, pool = doses
    questions = study.variants["none"]
    assert len(questions) == 18
    assert sum(q.test_is_sure for q in questions) == 10
    rejects = explainers["neighbors"].rejects(pool)
    assert rejects[[q.context for q in questions]].all()
    assert [q.test_is_sure for q in questions] == list(
        ~rejects[[q.test for q in questions]]
    )


def test_no_row_twice(study):
    rows = [row for q in study.variants["none"] for row in (q.context, q.test)]
    rows += [study.example.context, study.example.test]
    shown = study._pool.X.iloc[rows]
    drawn = [study.seen(q).explanation for q in study.variants["random"]]
    shown = pd.concat([shown, *drawn, study.seen(study.example).explanation])
    # Not even a row of the same values.
    assert len(shown) == 18 * 3 + 3
    assert not shown.duplicated().any()


def test_equal_rows_are_used_once(doses, explainers):
    X, _, pool = doses
    doubled = pd.concat([pool, pool])
    found = Study(explainers, X, doubled, random_state=0)
    rows = [row for q in found.variants["neighbors"] for row in (q.context, q.test)]
    assert not doubled.iloc[rows].duplicated().any()


def test_test_rows_are_balanced(doses, explainers):
    X, _, pool = doses
    study = Study(explainers, X, pool, n_questions=40, n_sure=20, random_state=0)
    questions = study.variants["neighbors"]
    predicted = explainers["neighbors"].predict(pool)
    for is_sure in (True, False):
        here = [q for q in questions if q.test_is_sure == is_sure]
        by_class = pd.Series(predicted[[q.test for q in here]]).value_counts()
        assert by_class.to_dict() == {"works": 10, "fails": 10}
        difficulty = np.array([q.difficulty for q in here])
        # Ten strata per class, so each fifth holds about a fifth of them.
        counts, _ = np.histogram(difficulty, bins=5, range=(0, 1))
        assert counts.min() >= 2 and counts.max() <= 6


def test_likeness_alone_does_not_tell(doses, explainers):
    """Test rows of both kinds are as far from their contexts."""
    X, _, pool = doses
    study = Study(explainers, X, pool, n_questions=40, n_sure=20, random_state=0)
    frame = study.to_frame().query("variant == 'neighbors'")
    sure, unsure = (
        frame["distance"][frame["test_is_sure"] == s] for s in (True, False)
    )
    wins = (sure.to_numpy()[:, None] > unsure.to_numpy()).mean()
    assert 0.4 < wins < 0.6  # the AUC of the distance; near 1 with nearest contexts
    assert np.median(frame["distance"]) < 2  # and contexts are still similar


def test_difficulty_is_nearness_to_the_threshold(study):
    pool = study._pool
    nearest = np.abs(pool.uncertainty - pool.threshold)
    for side in (pool.is_sure, ~pool.is_sure):
        difficulty, gap = pool.difficulty[side], nearest[side]
        assert difficulty[gap.argmin()] == pytest.approx(1, abs=0.02)
        assert difficulty[gap.argmax()] == pytest.approx(0, abs=0.02)


def test_same_seed_same_study(doses, explainers):
    X, _, pool = doses
    first, again, other = (
        Study(explainers, X, pool, n_questions=6, random_state=seed)
        for seed in (3, 3, 4)
    )
    assert first.questions == again.questions
    assert first.example == again.example
    assert first.questions != other.questions


def test_seen_is_in_the_columns_of_the_user(study, doses):
    _, _, pool = doses
    for method, questions in study.variants.items():
        question = questions[4]
        seen = study.seen(question)
        pd.testing.assert_frame_equal(seen.context, pool.iloc[[question.context]])
        pd.testing.assert_frame_equal(seen.test, pool.iloc[[question.test]])
        if method == "none":
            assert seen.explanation is None
            assert study.explanation_of(question) is None
            continue
        pd.testing.assert_series_equal(seen.explanation.dtypes, pool.dtypes)
        assert list(seen.explanation.index) == list(seen.context.index)
        explanation = study.explanation_of(question)
        assert len(explanation) == 1
        assert "dose" in explanation.summary()
    assert study.feature_names == ["dose", "age", "clinic"]
    assert study.image_shape is None


def test_explanations_are_those_of_the_explainers(study, explainers):
    for method, explainer in explainers.items():
        expected = explainer.explain(study.contexts).counterfactuals
        shown = [study.seen(q).explanation for q in study.variants[method]]
        pd.testing.assert_frame_equal(pd.concat(shown), expected)


def test_control_shows_sure_rows_of_the_pool(study, doses, explainers):
    _, _, pool = doses
    known = set(pool.itertuples(index=False, name=None))
    for question in study.variants["random"]:
        row = study.seen(question).explanation
        assert next(row.itertuples(index=False, name=None)) in known
        assert not explainers["neighbors"].rejects(row)[0]
        assert study.explanation_of(question).is_sure[0]


def test_example_is_the_same_for_all_methods(study):
    example = study.example
    assert example.test_is_sure
    seen = [
        study.seen(replace(example, variant=name, method=name)).explanation
        for name in study.methods
    ]
    assert seen.pop(study.methods.index("none")) is None
    for each in seen:
        pd.testing.assert_frame_equal(each, seen[0])


def test_frame_lists_all_questions(study):
    frame = study.to_frame()
    assert len(frame) == 4 * 18
    assert frame.query("method == 'neighbors'")["explanation_is_sure"].all()
    assert frame.query("method == 'none'")["explanation_is_sure"].isna().all()
    near, far = (
        frame.query("method == @name")["explanation_distance"].mean()
        for name in ("neighbors", "random")
    )
    assert near < far


def test_rows_picked_by_people(doses, explainers, study):
    X, _, pool = doses
    picked = pd.concat([study.seen(q).explanation for q in study.variants["random"]])
    picked.index = range(len(picked))
    both = {**explainers, "people": picked}
    found = Study(both, X, pool, random_state=0)
    assert [_numbers(q) for q in found.variants["people"]] == [
        _numbers(q) for q in study.variants["random"]
    ]
    shown = [found.seen(q).explanation for q in found.variants["people"]]
    np.testing.assert_array_equal(pd.concat(shown), picked)
    with pytest.raises(ValueError, match="'people' holds 17 rows, but the study asks"):
        Study({**explainers, "people": picked[:-1]}, X, pool, random_state=0)
    with pytest.raises(ValueError, match="'people' holds rows .* unsure about"):
        Study({**explainers, "people": study.contexts}, X, pool, random_state=0)
    asked = next(q for q in study.variants["none"] if q.test_is_sure)
    picked.iloc[3] = pool.iloc[asked.test]
    with pytest.raises(ValueError, match="a question asks about, at the positions 3"):
        Study({**explainers, "people": picked}, X, pool, random_state=0)


def test_pick_by_others(doses, explainers, study):
    X, _, pool = doses
    pairs = [(q.context, q.test) for q in study.variants["none"][:4]]
    seen = []

    def pick(candidates):
        seen.append(candidates)
        return pairs

    for chosen in (pairs, pick):
        found = Study(explainers, X, pool, pick=chosen, random_state=0)
        asked = found.variants["neighbors"]
        assert [(q.context, q.test) for q in asked] == pairs
        rows = {row for pair in pairs for row in pair}
        assert rows.isdisjoint({found.example.context, found.example.test})
    np.testing.assert_array_equal(
        seen[0].is_sure, ~explainers["neighbors"].rejects(pool)
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda pairs: [0, 1], r"shape \(n_questions, 2\), got shape \(2,\)"),
        (lambda pairs: [[0.5, 1.5]], "whole numbers, got values of type float64"),
        (lambda pairs: [[0, 10_000]], "gave the positions 10000, but X_pool has 600"),
        (lambda pairs: [pair[::-1] for pair in pairs], "which it is sure about"),
        (lambda pairs: pairs[:1] * 2, "more than once"),
    ],
)
def test_wrong_pairs_are_refused(doses, explainers, study, change, message):
    X, _, pool = doses
    pairs = [(q.context, q.test) for q in study.variants["none"] if q.test_is_sure]
    with pytest.raises((TypeError, ValueError), match=message):
        Study(explainers, X, pool, pick=change(pairs))


def test_small_pool_is_refused(doses, explainers):
    X, _, pool = doses
    with pytest.raises(ValueError, match="need 27 different rows .* unsure about"):
        Study(explainers, X, pool[:60])
    with pytest.raises(ValueError, match="need 30 different rows .* is sure about"):
        control = {**explainers, "control": "random"}
        Study(control, X, pool[explainers["neighbors"].rejects(pool)])


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ({}, TypeError, "dict of names to explainers"),
        ({1: None}, TypeError, "named by strings"),
        ({"a": "radnom"}, ValueError, "'a' is 'radnom', which names no method"),
        ({"a": LogisticRegression()}, TypeError, "has no explain method"),
        ({"a": make_pipeline(LogisticRegression())}, TypeError, "has no explain"),
        ({"a": NeighborExplainer()}, ValueError, "not fitted"),
        ({"a": GroupExplainer()}, ValueError, "not fitted"),
        ({"a": None, "b": "random"}, ValueError, "None of the methods is a fitted"),
    ],
)
def test_wrong_methods_are_refused(doses, wrong, error, message):
    X, _, pool = doses
    with pytest.raises(error, match=message):
        Study(wrong, X, pool)


def test_other_models_are_refused(doses, explainers):
    X, y, pool = doses
    other = NeighborExplainer(explainers["neighbors"].estimator, rejection_rate=0.5)
    with pytest.raises(ValueError, match="'neighbors' and 'other' do not explain"):
        Study({**explainers, "other": other.fit(X, y)}, X, pool)


@pytest.mark.parametrize("n_sure", [-1, 19, 2.5])
def test_wrong_counts_are_refused(doses, explainers, n_sure):
    X, _, pool = doses
    with pytest.raises(ValueError, match="n_sure must be a whole number between 0"):
        Study(explainers, X, pool, n_sure=n_sure)
    with pytest.raises(ValueError, match="n_questions must be a positive"):
        Study(explainers, X, pool, n_questions=0)


def test_unknown_questions_are_refused(study):
    question = study.questions[0]
    with pytest.raises(ValueError, match="no method 'CLUE'. It compares 'neighbors'"):
        study.seen(replace(question, method="CLUE"))
    with pytest.raises(ValueError, match="no question 'q99'"):
        study.seen(replace(question, id="q99"))


def test_regression_on_arrays():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(500, 2))
    y = X[:, 0] + rng.normal(size=500)
    explainer = NeighborExplainer(BayesianRidge()).fit(X[:200], y[:200])
    study = Study({"a": explainer, "none": None}, X[:200], X[200:], n_questions=9)
    seen = study.seen(study.variants["a"][0])
    assert all(isinstance(row, np.ndarray) and row.shape == (1, 2) for row in seen)
    sure = [q.test for q in study.variants["a"] if q.test_is_sure]
    # Thirds of the predicted means, five rows: two, two and one.
    cuts = np.quantile(explainer.predict(X[200:]), [1 / 3, 2 / 3])
    groups = np.searchsorted(cuts, explainer.predict(X[200:][sure]))
    assert sorted(np.bincount(groups, minlength=3)) == [1, 2, 2]


def test_images():
    rng = np.random.default_rng(0)
    X = (255 * rng.uniform(size=(400, 9))).astype(np.uint8)
    y = X[:, 4] > 127
    model = LocalSensitivityExplainer(LogisticRegression(), image_shape=(3, 3))
    model.fit(X[:200], y[:200])
    study = Study({"a": model, "none": None}, X[:200], X[200:], n_questions=6)
    assert study.image_shape == (3, 3)
    assert study.seen(study.questions[0]).explanation.dtype == np.uint8
    assert study.explanation_of(study.example).image_shape == (3, 3)
    assert study.encode(X[:1]).max() <= 1


def test_groups_explain_too(doses):
    X, y, pool = doses
    X, pool = (table[["dose", "age"]][:200] for table in (X, pool))
    neighbors = NeighborExplainer(LogisticRegression())
    groups = GroupExplainer(neighbors, n_groups=2, random_state=0).fit(X, y[:200])
    study = Study({"groups": groups}, X, pool, n_questions=4)
    assert study.seen(study.questions[0]).explanation.shape == (1, 2)
