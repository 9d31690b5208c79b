"""Groups of rejected rows: planted causes, new rows, and what is refused."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from explainers.analytic import category, number
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

from sklearn_clue import (
    CLUEExplainer,
    GroupExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    Uncertainty,
)
from sklearn_clue.explainers._common_changes import (
    Chooser,
    Measured,
    changed_rows,
    changes_between,
    portions_of,
)
from sklearn_clue.explainers._groups import changed_columns, problem_of, trials_of
from sklearn_clue.schema import FeatureSchema

NAMES = ["dose", "delay", "noise", "weight", "height"]


class Causes:
    """Unsure where dose is high, delay low, or noise high; the rest has no say."""

    is_classification = False

    def uncertainty(self, x):
        signed = x[:, :3] * torch.tensor([1.0, -1.0, 1.0], dtype=x.dtype)
        spread = 0.2 + (signed - 1.0).clamp_min(0).sum(1)
        return Uncertainty(spread, spread, 0 * spread), x[:, :1]


def make_rows(n_rows, seed):
    """Rows of which a quarter have one cause each, and the cause or -1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 5))
    cause = np.where(rng.random(n_rows) < 0.25, rng.integers(0, 3, n_rows), -1)
    for j, sign in enumerate([1, -1, 1]):
        rows = cause == j
        X[rows, j] = sign * rng.uniform(2.0, 3.0, rows.sum())
    return pd.DataFrame(X, columns=NAMES), cause


@pytest.fixture(scope="module")
def planted():
    X, cause = make_rows(400, 0)
    explainer = NeighborExplainer(Causes(), target_uncertainty=0.25).fit(X)
    return explainer, X, cause


@pytest.fixture(scope="module")
def groups(planted):
    explainer, X, _ = planted
    return GroupExplainer(explainer, random_state=0).fit(X)


def test_finds_the_planted_causes(planted, groups):
    _, _, cause = planted
    assert groups.n_groups_ == 3  # by itself
    assert groups.labels_.shape == groups.explained_.shape
    assert adjusted_rand_score(cause[groups.explained_], groups.labels_) >= 0.8
    # Each group is named by its column.
    starts = sorted(sentence.split("if ")[1] for sentence in groups.sentences_)
    for start, expected in zip(starts, ["delay", "dose", "noise"], strict=True):
        assert start.startswith(f"{expected} were about ")
    assert groups.summary() == "\n".join(groups.sentences_)


def test_changes_concern_one_column_each(groups):
    is_set = ~np.isnan(groups.destinations_)
    assert not (is_set & (groups.translations_ != 0)).any()
    concerned = is_set | (groups.translations_ != 0)
    assert (concerned.sum(1) == 1).all()
    assert sorted(concerned.argmax(1)) == [0, 1, 2]
    assert (groups.still_unsure_ < 0.2).all()


def test_sentence_counts(groups):
    n_rows = len(groups.labels_)
    sizes = np.bincount(groups.labels_)
    assert (np.diff(sizes) <= 0).all()  # the largest group first
    for size, share, sentence in zip(
        sizes, groups.still_unsure_, groups.sentences_, strict=True
    ):
        assert sentence.startswith(f"{size} of {n_rows}: sure if ")
        assert f"after the common change {100 * share:.0f} %" in sentence


def test_groups_say_what_they_miss(planted, groups):
    explainer, X = planted[0], planted[1]
    rows = X.iloc[groups.explained_]
    changed = groups.explain(rows, polish=False, contributions=False)
    assert changed.contributions is None
    is_less = changed.is_sure & ~changed.is_plausible
    for k, sentence in enumerate(groups.sentences_):
        mine = groups.labels_ == k
        assert groups.less_plausible_[k] == pytest.approx(is_less[mine].mean())
        assert groups.still_unsure_[k] == pytest.approx(
            1 - changed.is_sure[mine].mean()
        )
        assert ("less believable than asked" in sentence) == is_less[mine].any()
    assert is_less.any() and explainer.min_plausibility == "row"


def test_predicts_groups_of_new_rows(planted, groups):
    _, _, cause = planted
    X_new, cause_new = make_rows(300, 1)
    labels = groups.predict(X_new)
    assert (labels[cause_new == -1] == -1).all()  # sure as they are
    rejected = cause_new >= 0
    assert adjusted_rand_score(cause_new[rejected], labels[rejected]) >= 0.8
    # A row of the fit gets its own label again.
    assert np.array_equal(
        groups.predict(make_rows(400, 0)[0].iloc[groups.explained_]), groups.labels_
    )


@pytest.mark.parametrize("polish", [False, True])
def test_explains_new_rows(planted, groups, polish):
    X_new, cause_new = make_rows(300, 1)
    X_new = X_new[cause_new >= 0]
    explanation = groups.explain(X_new, polish=polish)
    assert explanation.is_sure.mean() >= 0.85
    # Polish moves other numbers where the change alone is not plausible.
    assert (explanation.n_changed <= 1).mean() >= (0.8 if polish else 1.0)
    assert explanation.X is X_new or explanation.X.equals(X_new)
    fall = explanation.uncertainty_before.total - explanation.uncertainty_after.total
    np.testing.assert_allclose(explanation.contributions.sum(1), fall, atol=1e-8)
    if not polish:  # one shift, or one destination, for all rows of a group
        labels, after = groups.predict(X_new), explanation.encoded_counterfactuals
        for group in range(3):
            rows = np.flatnonzero((labels == group) & (explanation.n_changed == 1))
            (column,) = np.unique((after != explanation.encoded)[rows].nonzero()[1])
            there, here = after[rows, column], explanation.encoded[rows, column]
            spread = min(np.ptp(there), np.ptp(there - here))
            assert len(rows) > 5 and spread < 1e-9 < np.ptp(here)


def test_polish_takes_back_what_is_not_needed(planted, groups):
    X_new, cause_new = make_rows(300, 1)
    X_new = X_new[cause_new >= 0]
    plain = groups.explain(X_new, polish=False)
    polished = groups.explain(X_new)
    is_good = plain.is_sure & plain.is_plausible
    assert (polished.distance <= plain.distance + 1e-9)[is_good].all()
    assert polished.distance.mean() < 0.95 * plain.distance.mean()
    assert polished.is_sure[plain.is_sure].all()


def test_polish_keeps_rows_plausible(planted, groups):
    X_new = planted[1].iloc[groups.explained_]
    plain = groups.explain(X_new, polish=False)
    polished = groups.explain(X_new)
    is_less = ~(plain.is_sure & plain.is_plausible)
    is_good = polished.is_sure & polished.is_plausible
    assert is_good[~is_less].all()
    assert is_less.mean() > 0.05 and is_good[is_less].mean() > 0.8
    # One row alone becomes what it becomes among others.
    for row in np.flatnonzero(is_less)[:3]:
        alone = groups.explain(X_new.iloc[[row]]).encoded_counterfactuals
        np.testing.assert_allclose(alone[0], polished.encoded_counterfactuals[row])
    # By few other numbers, and not by those that may not change.
    assert polished.n_changed.max() <= 4
    explainer = clone(groups.explainer_).set_params(immutable_features=NAMES[3:])
    fixed = GroupExplainer(explainer.fit(planted[1]), random_state=0).fit(planted[1])
    kept = fixed.explain(X_new)
    assert kept.counterfactuals[NAMES[3:]].equals(X_new[NAMES[3:]])
    assert (kept.is_sure & kept.is_plausible).mean() > 0.7


def test_sure_rows_stay_as_they_are(planted, groups):
    X, cause = make_rows(60, 2)
    X = X[cause < 0]
    explanation = groups.explain(X)
    assert explanation.counterfactuals.equals(X)
    assert (groups.predict(X) == -1).all()


def test_from_explanation_is_the_same(planted, groups):
    explainer, X, _ = planted
    explanation = explainer.explain(X[explainer.rejects(X)])
    again = GroupExplainer.from_explanation(explainer, explanation, random_state=0)
    assert again.sentences_ == groups.sentences_
    assert np.array_equal(again.labels_, groups.labels_)
    assert np.array_equal(again.explained_, np.arange(len(explanation)))
    assert np.array_equal(again.predict(X), groups.predict(X))


def test_frozen_and_fitted_explainers_are_taken_as_they_are(planted, groups):
    explainer, X, _ = planted
    frozen = GroupExplainer(FrozenEstimator(explainer), random_state=0).fit(X)
    assert frozen.explainer_ is explainer is groups.explainer_
    assert frozen.sentences_ == groups.sentences_


def test_number_of_groups_and_columns(planted):
    explainer, X, _ = planted
    explanation = explainer.explain(X[explainer.rejects(X)])
    two = GroupExplainer.from_explanation(
        explainer, explanation, n_groups=2, max_columns=1
    )
    assert two.n_groups_ == 2
    is_set = ~np.isnan(two.destinations_)
    assert (((two.translations_ != 0) | is_set).sum(1) <= 1).all()
    assert two.still_unsure_.max() > 0.2  # one cause has no group of its own


def test_categories_become_the_mode():
    rng = np.random.default_rng(0)
    job = rng.choice(["clerk", "cook", "coach"], 300)
    X = pd.DataFrame({"job": job, "age": rng.uniform(20, 60, 300)})

    y = np.where(job == "cook", rng.random(300) < 0.5, job == "coach")
    forest = RandomForestClassifier(20, min_samples_leaf=15, random_state=0)
    model = make_pipeline(TabularEncoder(), forest)
    explainer = NeighborExplainer(model, target_uncertainty=0.4).fit(X, y)
    groups = GroupExplainer(explainer, n_groups=1, max_columns=1).fit(X)
    assert groups.n_groups_ == 1 and groups.still_unsure_[0] < 0.3
    start = groups.sentences_[0].split("sure if ")[1]
    assert start.startswith(("job were clerk;", "job were coach;"))
    explanation = groups.explain(X[(job == "cook") & explainer.rejects(X)])
    assert (explanation.counterfactuals["job"] != "cook").mean() > 0.7
    # There need not be any number that could be moved besides.
    explainer = NeighborExplainer(model, target_uncertainty=0.4, min_plausibility=0.99)
    groups = GroupExplainer(explainer, n_groups=1).fit(X[["job"]], y)
    assert len(groups.explain(X[["job"]])) == 300


def test_survives_saving(planted, tmp_path):
    _, X, _ = planted
    y = X["dose"] > 0
    fitted = GroupExplainer(
        NeighborExplainer(LogisticRegression()), n_groups=2, random_state=0
    ).fit(X, y)
    joblib.dump(fitted, tmp_path / "groups.joblib")
    loaded = joblib.load(tmp_path / "groups.joblib")
    assert loaded.sentences_ == fitted.sentences_
    assert np.array_equal(loaded.predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"n_groups": 0}, ValueError, "n_groups"),
        ({"n_groups": "many"}, ValueError, "n_groups"),
        ({"max_columns": 0}, ValueError, "max_columns"),
        ({"explainer": "clue"}, ValueError, "explainer"),
        (
            {"explainer": LocalSensitivityExplainer(Causes())},
            TypeError,
            "got LocalSensitivityExplainer",
        ),
        ({"explainer": CLUEExplainer()}, ValueError, "requires y"),
    ],
)
def test_refuses_bad_parameters(planted, settings, error, message):
    _, X, _ = planted
    with pytest.raises(error, match=message):
        GroupExplainer(**settings).fit(X)


def test_refuses_rows_of_which_none_is_rejected(planted):
    explainer, X, cause = planted
    with pytest.raises(ValueError, match="None of the .* rows is rejected"):
        GroupExplainer(explainer).fit(X[cause < 0].iloc[:20])


def test_refuses_an_explainer_that_is_not_fitted(planted):
    explainer, X, _ = planted
    explanation = explainer.explain(X.iloc[:3])
    with pytest.raises(ValueError, match="not fitted yet"):
        GroupExplainer.from_explanation(NeighborExplainer(), explanation)


# The parts ---------------------------------------------------------------------------


def test_changes_lead_from_row_to_row():
    schema = FeatureSchema((number("a", 0), category("b", 1, ["u", "v", "w"])))
    x0 = np.array([[1.0, 1, 0, 0], [2.0, 0, 1, 0]])
    x = np.array([[1.5, 1, 0, 0], [2.0, 0, 0, 1]])
    changes = changes_between(schema, x0, x)
    nan = np.nan
    assert np.array_equal(changes[:, 0], [[0.5, 0, 0, 0], [0.0, 0, 0, 0]])
    assert np.array_equal(changes[:, 1], [[nan] * 4, [nan, 0, 0, 1]], equal_nan=True)
    assert np.array_equal(changed_rows(x0, changes), x)
    # A number may be set as well, and then goes there from anywhere.
    changes[:, 1, 0] = 7.0
    assert np.array_equal(changed_rows(x0, changes)[:, 0], [7.0, 7.0])


def test_portions_are_all_choices_of_columns():
    schema = FeatureSchema((number("a", 0), category("b", 1, ["u", "v"])))
    nan = np.nan
    changes = np.array([[[2.0, 0, 0], [nan, 0, 1]], [[3.0, 0, 0], [nan, nan, nan]]])
    portions, owner = portions_of(schema, changes)
    assert np.array_equal(portions[:2], changes, equal_nan=True)
    assert owner.tolist() == [0, 1, 0, 0]
    x = changed_rows(np.array([1.0, 1, 0]), portions)
    assert x.tolist() == [[3, 0, 1], [4, 1, 0], [3, 1, 0], [1, 0, 1]]


def shifts(*sizes):
    """Changes of the first of five numbers."""
    changes = np.stack([np.zeros((len(sizes), 5)), np.full((len(sizes), 5), np.nan)], 1)
    changes[:, 0, 0] = sizes
    return changes


def test_best_is_good_then_sure_then_least_unsure(planted):
    explainer, X, _ = planted
    rows, dose = 0.0 * X.iloc[:3], explainer._space.schema.columns[0]
    # Sure up to 1.05 in encoded space.
    rows["dose"] = dose.center + dose.scale * np.array([2.0, 2.5, 3.0])
    problem, _ = problem_of(explainer, rows)
    changes = shifts(-0.5, -2.4, -1.5)
    trials = trials_of(explainer, problem)
    choice, found = trials.best(changes)
    # The third is good for the first row and nearer than the second, which serves the
    # second and third.
    assert choice.tolist() == [2, 1, 1]
    assert trials.yardstick.is_good(found).all()
    exact = torch.as_tensor(explainer._stored_rows().gaps(found.x.numpy()))
    assert (found.gap >= exact - 1e-9).all()  # at most nearer than it seems
    # Where nothing is sure, the least unsure.
    choice, found = trials.best(changes[[0, 0]] * [[[1.0]], [[0.5]]])
    assert choice.tolist() == [0, 0, 0]
    # Sure and not plausible is better than not sure.
    trials.yardstick.max_gap = torch.zeros(3, dtype=torch.float64)
    trials.yardstick.demanded_gap = trials.yardstick.max_gap
    choice, found = trials.best(changes)
    assert choice.tolist() == [2, 1, 1]
    assert not trials.yardstick.is_good(found).any()


def test_rows_pay_most_for_what_does_not_make_them_sure():
    chooser = Chooser(far=1.0, max_columns=1)

    class Known:
        def measure(self, changes, is_worth):
            distance = np.array([[2.0, 2.0, 9.0, 2.0]])
            is_near = np.array([[True, False, False, True]])
            self.is_asked = is_worth(distance, is_near)
            is_sure = self.is_asked & [[True, True, True, False]]
            return Measured(distance, is_near, is_sure)

    trials = Known()
    good, sure, far, unsure = chooser.costs(trials, None)[0]
    assert good == 2.0 < sure < far == unsure == chooser.missed
    assert trials.is_asked.tolist() == [[True, True, False, True]]
    # Who pays less already is not asked about.
    chooser.costs(trials, None, paid=np.array([2.5]))
    assert trials.is_asked.tolist() == [[True, False, False, True]]


def test_choice_exchanges_what_has_become_needless():
    # The first choice serves everybody at some price; two specialists are better.
    chooser = Chooser(far=1.0, max_columns=1)
    missed = chooser.missed
    cost = np.array([[1.4, 1.0, missed], [1.4, missed, 1.0]])
    assert chooser.choose(cost, 1) == [0]
    assert sorted(chooser.choose(cost, 2)) == [1, 2]


def test_what_numbers_are_set_to_has_words():
    before = pd.DataFrame(
        {"age": [40.0, 50.0, 30.0], "late": [2, 3, 1], "dose": [0.5, 1.5, 7.25]}
    )
    after = before.assign(age=before["age"] - 3, late=0, dose=2.5)
    schema = TabularEncoder().fit(pd.concat([before, after])).schema_
    assert changed_columns(schema, before, after, 5) == [
        ("late", "0"),
        ("dose", "about 2.50"),
        ("age", "about 3 lower"),
    ]


def test_gaps_are_no_changes_and_have_words():
    before = pd.DataFrame(
        {
            "age": [40.0, 50.0, np.nan],
            "deck": ["A", None, None],
            "fare": [np.nan, np.nan, 3.0],
            "town": ["Cork", None, None],
        }
    )
    after = before.assign(
        age=[38.0, 46.0, np.nan], fare=[7.0, 8.0, 3.0], town=["Cork", "Rome", "Rome"]
    )
    schema = TabularEncoder().fit(pd.concat([before, after])).schema_
    assert changed_columns(schema, before, after, 5) == [
        ("town", "Rome"),
        ("fare", "known"),
        ("age", "about 3 lower"),
    ]


@pytest.mark.parametrize("step", [TabularEncoder(), SimpleImputer()])
def test_new_rows_may_have_gaps_where_the_model_takes_them(step):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=[*"abc"])
    y = X["a"] + 0.3 * rng.normal(size=200) > 0
    X = X.mask(rng.random(X.shape) < 0.1)
    model = make_pipeline(step, LogisticRegression())
    groups = GroupExplainer(NeighborExplainer(model), n_groups=2).fit(X, y)
    assert groups.predict(X).max() > -1
    after = groups.explain(X).counterfactuals
    np.testing.assert_array_equal(after.isna(), X.isna())


def test_new_rows_with_gaps_are_refused_where_the_model_takes_none(planted):
    _, X, _ = planted
    groups = GroupExplainer(NeighborExplainer(LogisticRegression()), n_groups=2)
    groups.fit(X, X["dose"] + X["noise"] > 0)
    rows = X[:3].assign(dose=[0.1, np.nan, 0.2])
    with pytest.raises(ValueError, match="NaN"):
        groups.predict(rows)
    with pytest.raises(ValueError, match="NaN"):
        groups.explain(rows)
