"""The estimators among scikit-learn's own."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import (
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.ensemble import (
    BaggingClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    TabularEncoder,
)

TINY = {
    "hidden_layer_sizes": (8,),
    "n_draws": 6,
    "burn_in": 20,
    "thinning": 1,
    "step_size": 0.05,
    "random_state": 0,
}
classifier = BayesianMLPClassifier(**TINY)
regressor = BayesianMLPRegressor(**TINY)


@pytest.fixture(scope="module")
def table():
    """Numbers and categories, names of classes, and a positive number."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=90),
            "age": rng.integers(20, 70, size=90),
            "color": rng.choice(["red", "green", "blue"], size=90),
        }
    )
    score = 2 * X["size"] + (X["color"] == "red") + 0.3 * rng.normal(size=90)
    return X, np.where(score > 0.3, "yes", "no"), np.exp(score.to_numpy())


def test_cross_validation(table):
    X, y, amount = table
    assert cross_val_score(classifier, X, y, cv=3).mean() > 0.7
    assert cross_val_score(regressor, X, np.log(amount), cv=3).mean() > 0.3
    proba = cross_val_predict(classifier, X, y, cv=3, method="predict_proba")
    assert proba.shape == (90, 2)


def test_calibration(table):
    X, y, _ = table
    model = CalibratedClassifierCV(classifier, cv=2).fit(X, y)
    assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.score(X, y) > 0.7


def test_stacking_and_voting(table):
    X, y, amount = table
    final = LogisticRegression()
    model = StackingClassifier([("bnn", classifier)], final, cv=2).fit(X, y)
    assert model.score(X, y) > 0.7
    stack = StackingRegressor([("bnn", regressor)], Ridge(), cv=2).fit(X, amount)
    assert stack.predict(X).shape == (90,)
    vote = VotingRegressor([("one", regressor), ("two", regressor)]).fit(X, amount)
    one = BayesianMLPRegressor(**TINY).fit(X, amount)
    assert_allclose(vote.predict(X), one.predict(X))


def test_transformed_target(table):
    X, _, amount = table
    model = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp)
    prediction = model.fit(X, amount).predict(X)
    assert (prediction > 0).all()
    inner = BayesianMLPRegressor(**TINY).fit(X, np.log(amount))
    assert_allclose(prediction, np.exp(inner.predict(X)))


def test_bagging(table):
    _, y, _ = table
    X = table[0][["size", "age"]].to_numpy()
    model = BaggingClassifier(classifier, n_estimators=2, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.6
    assert {tree.random_state for tree in model.estimators_} != {0}


def test_grid_search_over_nested_parameters(table):
    X, y, _ = table
    search = GridSearchCV(
        make_pipeline(BayesianMLPClassifier(**TINY, encoder=TabularEncoder())),
        {
            "bayesianmlpclassifier__encoder__categorical_features": [
                "from_dtype",
                ["age", "color"],
            ],
            "bayesianmlpclassifier__hidden_layer_sizes": [(4,)],
        },
        cv=2,
        n_jobs=2,
        error_score="raise",
    )
    # Ages unseen in a fold would be a warning.
    X = X.assign(age=X["age"] % 2)
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].coefs_[0].shape[2] == 4
    assert search.predict(X).shape == (90,)


def test_after_a_column_transformer(table):
    X, y, _ = table
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(sparse_output=False), ["color"]),
    )
    for encoder in (None, "passthrough"):
        model = BayesianMLPClassifier(**TINY, encoder=encoder)
        pipeline = make_pipeline(columns, model).fit(X, y)
        assert pipeline.score(X, y) > 0.7
    framed = make_pipeline(columns, classifier).set_output(transform="pandas")
    framed.fit(X, y)
    assert_array_equal(framed[-1].feature_names_in_, framed[0].get_feature_names_out())


def test_set_output_of_an_encoder_inside(table):
    X, y, _ = table
    encoder = TabularEncoder().set_output(transform="pandas")
    framed = BayesianMLPClassifier(**TINY, encoder=encoder).fit(X, y)
    assert isinstance(framed.encoder_.transform(X), pd.DataFrame)
    plain = BayesianMLPClassifier(**TINY).fit(X, y)
    assert_array_equal(framed.predict_proba(X), plain.predict_proba(X))
    with sklearn.config_context(transform_output="pandas"):
        again = BayesianMLPClassifier(**TINY).fit(X, y)
    assert_array_equal(again.predict_proba(X), plain.predict_proba(X))


def test_permutation_importance(table):
    X, y, _ = table
    model = BayesianMLPClassifier(**TINY).fit(X, y)
    importance = permutation_importance(model, X, y, n_repeats=2, random_state=0)
    assert importance.importances_mean.argmax() == 0


def test_sample_weight_is_routed(table):
    X, y, _ = table
    weight = np.where(y == "yes", 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        requesting = BayesianMLPClassifier(**TINY).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(
            TabularEncoder().set_fit_request(sample_weight=False),
            requesting.set_params(encoder="passthrough"),
        )
        pipeline.fit(X, y, sample_weight=weight)
        search = GridSearchCV(
            pipeline,
            {"bayesianmlpclassifier__friction": [0.05]},
            cv=2,
            scoring=get_scorer("accuracy").set_score_request(sample_weight=False),
        )
        search.fit(X, y, sample_weight=weight)
        deaf = BayesianMLPClassifier(**TINY).set_fit_request(sample_weight=False)
        with pytest.raises(TypeError, match="sample_weight"):
            make_pipeline(deaf).fit(X, y, sample_weight=weight)
    encoded = TabularEncoder().fit_transform(X)
    direct = BayesianMLPClassifier(**TINY, encoder="passthrough")
    direct.fit(encoded, y, sample_weight=weight)
    for routed in (pipeline, search.best_estimator_):
        assert_array_equal(routed.predict_proba(X), direct.predict_proba(encoded))
    unweighted = BayesianMLPClassifier(**TINY, encoder="passthrough").fit(encoded, y)
    assert not np.array_equal(
        unweighted.predict_proba(encoded), direct.predict_proba(encoded)
    )


def test_import_costs_little_more_than_its_parts():
    code = (
        "import time, torch, sklearn; start = time.process_time(); "
        "import sklearn_clue; print(time.process_time() - start)"
    )
    # Other work on the machine may disturb one attempt.
    attempts = (subprocess.check_output([sys.executable, "-c", code]) for _ in range(3))
    assert any(float(seconds) < 0.5 for seconds in attempts)
