"""Figures of merit with known answers, and searches that use them."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn import pipeline as sklearn_pipeline
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import StandardScaler

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    Explanation,
    TabularEncoder,
    Uncertainty,
    VAEEncoder,
)
from sklearn_clue.evaluation import (
    EXPLANATION_SCORERS,
    informativeness,
    knee_point,
    knee_point_distance,
    mean_ratio,
    nearest_neighbor_distance,
    relevance,
)
from sklearn_clue.pipeline import make_pipeline

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_clue.exceptions.SearchConvergenceWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

TINY = {"n_draws": 6, "burn_in": 20, "thinning": 2, "random_state": 0}


def tiny_explainer(estimator=None, **settings):
    return CLUEExplainer(
        LogisticRegression() if estimator is None else estimator,
        VAEEncoder(2, (20,), max_iter=20, random_state=0),
        **({"distance_weight": 2.0, "max_iter": 10, "random_state": 0} | settings),
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return X, X[:, 0] + 0.3 * rng.normal(size=150) > 0


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "dose": rng.normal(20, 4, 120),
            "color": rng.choice(["red", "green", "blue"], 120),
        }
    )
    return X, X["dose"] + rng.normal(size=120) > 20


@pytest.fixture(scope="module")
def clue(data):
    return tiny_explainer().fit(*data)


@pytest.fixture(scope="module")
def mixed_clue(mixed):
    return tiny_explainer(BayesianMLPClassifier((10,), **TINY)).fit(*mixed)


@pytest.fixture
def by_hand():
    """Two rows of two numbers, with figures that are easy to add up."""
    encoder = TabularEncoder().fit(np.arange(20.0).reshape(10, 2))
    x = np.array([[0.0, 0.0], [1.0, 1.0]])
    x_cf = np.array([[3.0, 4.0], [1.0, 1.5]])
    return Explanation(
        X=encoder.inverse_transform(x),
        counterfactuals=encoder.inverse_transform(x_cf),
        uncertainty_before=Uncertainty(*np.array([[0.6, 0.5], [0.4, 0.5], [0.2, 0.0]])),
        uncertainty_after=Uncertainty(*np.array([[0.2, 0.6], [0.1, 0.5], [0.1, 0.1]])),
        prediction_before=np.array([0, 1]),
        prediction_after=np.array([0, 1]),
        distance=np.abs(x - x_cf).sum(1),
        encoded=x,
        encoded_counterfactuals=x_cf,
        schema=encoder.schema_,
        is_classification=True,
    )


# Figures of merit -------------------------------------------------------------------


def test_informativeness_by_hand(by_hand):
    falls = informativeness(by_hand, average=False)
    np.testing.assert_allclose(falls, [0.4, -0.1])
    np.testing.assert_array_equal(falls, by_hand.uncertainty_explained)
    assert informativeness(by_hand) == pytest.approx(0.15)
    assert informativeness(by_hand, uncertainty="aleatoric") == pytest.approx(0.15)
    assert informativeness(by_hand, uncertainty="epistemic") == pytest.approx(0.0)
    weighted = informativeness(
        by_hand, uncertainty={"aleatoric": 2.0, "epistemic": 0.5}, average=False
    )
    np.testing.assert_allclose(weighted, [0.65, -0.05])


@pytest.mark.parametrize("uncertainty", ["entropy", {"noise": 1.0}, {}])
def test_informativeness_knows_three_kinds(by_hand, uncertainty):
    with pytest.raises(ValueError, match="'total', 'aleatoric', 'epistemic', or a"):
        informativeness(by_hand, uncertainty=uncertainty)


def test_relevance_by_hand(by_hand):
    np.testing.assert_allclose(relevance(by_hand, average=False), [7.0, 0.5])
    assert relevance(by_hand) == pytest.approx(3.75)
    # The nearest encoded rows are the origin for the one, itself for the other.
    train = [[0.0, 0.0], [1.0, 1.5], [-9.0, 0.0]]
    np.testing.assert_allclose(
        relevance(by_hand, train, average=False), [np.hypot(2, 2.5), 0.0]
    )
    assert relevance(by_hand, train[:1]) == pytest.approx((5 + np.hypot(1, 1.5)) / 2)


def test_empty_and_incomplete_explanations(by_hand):
    with pytest.raises(ValueError, match="has no rows"):
        informativeness(by_hand[:0])
    with pytest.raises(ValueError, match="has no rows"):
        relevance(by_hand[:0])
    with pytest.raises(ValueError, match="Pass explainer= to have X_train encoded"):
        relevance(by_hand, np.zeros((5, 3)))
    object.__setattr__(by_hand, "encoded_counterfactuals", None)
    with pytest.raises(ValueError, match="call nearest_neighbor_distance"):
        relevance(by_hand, np.zeros((5, 2)))


def test_nearest_neighbours_by_hand():
    reference = [[0.0, 0.0], [10.0, 0.0], [0.0, 1.0]]
    rows = [[3.0, -4.0], [10.0, 0.0], [0.0, 0.75]]
    np.testing.assert_array_equal(
        nearest_neighbor_distance(rows, reference), [5.0, 0.0, 0.25]
    )
    with pytest.raises(ValueError, match="X has 2 columns and reference has 1"):
        nearest_neighbor_distance(rows, [[0.0]])


def test_nearest_neighbours_against_all_pairs():
    rng = np.random.default_rng(0)
    rows, reference = rng.normal(100, 1, (30, 40)), rng.normal(100, 1, (200, 40))
    # The search in so many columns finds some of these at 1e-5, and 0 must be 0.
    rows[:10] = reference[10:20]
    pairs = np.linalg.norm(rows[:, None] - reference, axis=2)
    found = nearest_neighbor_distance(rows, reference)
    np.testing.assert_allclose(found, pairs.min(1))
    assert (found[:10] == 0).all()


def test_distances_in_the_space_of_an_explainer(mixed_clue, mixed):
    X, _ = mixed
    encoder = mixed_clue.estimator_.encoder_
    distance = nearest_neighbor_distance(X[:10], X[50:], explainer=mixed_clue)
    np.testing.assert_allclose(
        distance,
        nearest_neighbor_distance(encoder.transform(X[:10]), encoder.transform(X[50:])),
    )
    assert (nearest_neighbor_distance(X, X, explainer=mixed_clue) == 0).all()
    # Another colour is a step along two of the one-hot columns.
    moved = X[:1].assign(color="red" if X["color"][0] != "red" else "blue")
    distance = nearest_neighbor_distance(moved, X[:1], explainer=mixed_clue)
    assert distance == pytest.approx(np.sqrt(2))

    explanation = mixed_clue.explain(X[:5])
    np.testing.assert_allclose(
        relevance(explanation, X, explainer=mixed_clue, average=False),
        nearest_neighbor_distance(explanation.counterfactuals, X, explainer=mixed_clue),
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "make", [make_pipeline, sklearn_pipeline.make_pipeline], ids=["ours", "plain"]
)
def test_an_explainer_may_be_the_end_of_a_pipeline(make, data):
    X, y = data
    pipeline = make(StandardScaler(), tiny_explainer()).fit(X, y)
    scaled = pipeline[0].transform(X)
    explanation = pipeline[-1].explain(scaled[:4])
    assert relevance(explanation, X, explainer=pipeline) == pytest.approx(
        relevance(explanation, scaled, explainer=pipeline[-1])
    )
    assert EXPLANATION_SCORERS(pipeline, X) == EXPLANATION_SCORERS(pipeline[-1], scaled)


def test_who_can_measure(by_hand, data):
    with pytest.raises(TypeError, match="got LogisticRegression, which has no explain"):
        relevance(by_hand, data[0], explainer=LogisticRegression())
    with pytest.raises(NotFittedError, match="CLUEExplainer"):
        relevance(by_hand, data[0], explainer=tiny_explainer())


def test_mean_ratio_leaves_out_zeros_and_counts_them():
    assert mean_ratio([1.0, 3.0, -1.0], [2.0, 0.0, 4.0]) == (0.125, 1)
    ratio, n_left_out = mean_ratio([1.0, 2.0], [0.0, 0.0])
    assert np.isnan(ratio)
    assert n_left_out == 2
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        mean_ratio([1.0], [1.0, 2.0])


# Knees ------------------------------------------------------------------------------


def test_knee_point_distance_of_known_curves():
    cost = np.linspace(0, 1, 101)
    # A straight line is nearest to (0, 1) half way: √(1/4 + 1/4) / √2.
    assert knee_point_distance(cost, cost) == pytest.approx(0.5)
    # All gained at once; nothing gained until all is paid; a circle around (0, 1).
    assert knee_point_distance(np.ones(101), cost) == 0
    assert knee_point_distance(cost == 1, cost) == pytest.approx(np.sqrt(0.5))
    circle = 1 - np.sqrt(1 - cost**2)
    assert knee_point_distance(circle, cost) == pytest.approx(np.sqrt(0.5))
    # Units do not matter.
    assert knee_point_distance(9 * cost, 7 * cost) == pytest.approx(0.5)


def test_knee_point_distance_between_methods():
    # With half of the gain of the other method, at no cost: √(1/4) / √2.
    assert knee_point_distance(
        [0.0, 1.0], [0.0, 0.0], max_gain=2.0, max_cost=3.0
    ) == pytest.approx(np.sqrt(1 / 8))
    assert knee_point_distance([np.nan, 1.0], [1.0, 0.0]) == 0


def results(gain, neg_distance):
    return {
        "params": [{}] * len(gain),
        "mean_test_uncertainty_explained": np.array(gain),
        "mean_test_neg_distance": np.array(neg_distance),
    }


def test_knee_point_of_known_curves():
    assert knee_point(results([0.0, 0.8, 1.0], [0.0, -0.1, -1.0])) == 1
    assert knee_point(results([0.0, 0.2, 1.0], [0.0, -0.9, -1.0])) == 0
    cost = np.linspace(0, 1, 101)
    # (1 - √c)² + c² is least where its slope 1 - 1/√c + 2c is 0: c = 0.35.
    assert cost[knee_point(results(np.sqrt(cost), -cost))] == pytest.approx(0.35)
    # Candidates that failed are not chosen.
    assert knee_point(results([np.nan, 0.1, 1.0], [np.nan, -0.9, -1.0])) == 2


def test_knee_point_without_scores():
    with pytest.raises(ValueError, match="'mean_test_uncertainty_explained' and 'mean"):
        knee_point({"mean_test_score": np.zeros(3)})
    with pytest.raises(ValueError, match="error_score='raise'"):
        knee_point(results([np.nan] * 2, [np.nan] * 2))


# Scorers ----------------------------------------------------------------------------


def test_scores_are_those_of_the_rejected_rows(clue, data):
    X, y = data
    scores = EXPLANATION_SCORERS(clue, X, y)
    explanation = clue.explain(X[clue.rejects(X)])
    assert list(scores) == ["uncertainty_explained", "neg_distance", "balance"]
    assert scores["uncertainty_explained"] == informativeness(explanation)
    assert scores["neg_distance"] == -relevance(explanation) < 0
    assert scores["balance"] == clue.score(X)
    # All rows if none is rejected.
    sure = X[~clue.rejects(X)]
    expected = informativeness(clue.explain(sure))
    assert EXPLANATION_SCORERS(clue, sure)["uncertainty_explained"] == expected


def test_scores_follow_the_uncertainty_that_is_lowered(mixed_clue, mixed):
    X, _ = mixed
    epistemic = copy.copy(mixed_clue).set_params(uncertainty="epistemic")
    explanation = epistemic.explain(X[epistemic.rejects(X)])
    assert EXPLANATION_SCORERS(epistemic, X)[
        "uncertainty_explained"
    ] == informativeness(explanation, uncertainty="epistemic")


def test_scores_of_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = 1000 * (X[:, 0] + 0.1 * rng.normal(size=100))
    regressor = BayesianMLPRegressor((10,), **TINY)
    clue = tiny_explainer(regressor, distance_weight=0.1).fit(X, y)
    scores = EXPLANATION_SCORERS(clue, X, y)
    assert scores["balance"] == clue.score(X)
    assert scores["uncertainty_explained"] > 1  # in the unit of y


def test_scorers_need_an_explainer(data):
    X, y = data
    with pytest.raises(TypeError, match="got LogisticRegression, which has no explain"):
        EXPLANATION_SCORERS(LogisticRegression().fit(X, y), X, y)


def test_there_is_one_of_the_scorers():
    assert pickle.loads(pickle.dumps(EXPLANATION_SCORERS)) is EXPLANATION_SCORERS
    assert copy.deepcopy(EXPLANATION_SCORERS) is EXPLANATION_SCORERS
    assert repr(EXPLANATION_SCORERS) == "EXPLANATION_SCORERS"


def knee_search(explainer=None, prefix="", **settings):
    return GridSearchCV(
        tiny_explainer() if explainer is None else explainer,
        {f"{prefix}distance_weight": [0.001, 0.5, 1000.0]},
        **({"scoring": EXPLANATION_SCORERS, "refit": knee_point, "cv": 2} | settings),
    )


@pytest.fixture(scope="module")
def search(data):
    return knee_search().fit(*data)


def test_search_for_the_knee(search, data):
    explained = search.cv_results_["mean_test_uncertainty_explained"]
    distance = -search.cv_results_["mean_test_neg_distance"]
    assert explained[0] > explained[1] > explained[2]
    assert distance[0] > distance[1] > distance[2] >= 0
    assert search.best_index_ == knee_point(search.cv_results_)
    assert search.best_params_ == {"distance_weight": 0.5}
    assert len(search.best_estimator_.explain(data[0][:3])) == 3


def test_search_explains_each_fold_once_per_candidate(data, monkeypatch):
    calls, explain = [], CLUEExplainer._explain

    def counted(self, X, *args):
        calls.append(len(X))
        return explain(self, X, *args)

    monkeypatch.setattr(CLUEExplainer, "_explain", counted)
    knee_search().fit(*data)
    assert len(calls) == 3 * 2
    assert max(calls) < len(data[0]) / 4  # of 75 rows in a fold, those rejected


def test_search_in_parallel_and_after_pickling(search, data):
    parallel = pickle.loads(pickle.dumps(knee_search(n_jobs=2))).fit(*data)
    for name in ("uncertainty_explained", "neg_distance", "balance"):
        column = f"mean_test_{name}"
        np.testing.assert_allclose(
            parallel.cv_results_[column], search.cv_results_[column], rtol=1e-5
        )
    loaded = pickle.loads(pickle.dumps(parallel))
    assert loaded.best_params_ == search.best_params_
    assert clone(loaded).scoring is EXPLANATION_SCORERS


def test_search_by_balance_equals_the_default(data):
    by_balance = knee_search(refit="balance").fit(*data)
    default = knee_search(scoring=None, refit=True).fit(*data)
    np.testing.assert_array_equal(
        by_balance.cv_results_["mean_test_balance"],
        default.cv_results_["mean_test_score"],
    )
    assert by_balance.best_params_ == default.best_params_


@pytest.mark.parametrize(
    "make", [make_pipeline, sklearn_pipeline.make_pipeline], ids=["ours", "plain"]
)
def test_search_over_a_pipeline(make, data):
    pipeline = make(StandardScaler(), tiny_explainer())
    search = knee_search(pipeline, "clueexplainer__").fit(*data)
    assert search.best_params_ == {"clueexplainer__distance_weight": 0.5}


def test_search_with_metadata_routing(data, search):
    with sklearn.config_context(enable_metadata_routing=True):
        routed = knee_search().fit(*data)
    assert routed.best_params_ == search.best_params_


@pytest.mark.filterwarnings("ignore:Scoring failed")
@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_search_whose_scores_all_fail(data):
    search = knee_search()
    search.estimator, search.param_grid = LogisticRegression(), {"C": [0.1, 1.0]}
    with pytest.raises(ValueError, match="all scores failed, and error_score='raise'"):
        search.fit(*data)


def test_scorers_in_cross_validate(data):
    scores = cross_validate(tiny_explainer(), *data, scoring=EXPLANATION_SCORERS, cv=2)
    assert scores["test_uncertainty_explained"].shape == (2,)
    assert (scores["test_neg_distance"] < 0).all()
