"""Pipelines that end in an explainer, ours and scikit-learn's."""

import inspect

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn import pipeline as sklearn_pipeline
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_clue import (
    BayesianMLPClassifier,
    CLUEExplainer,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.pipeline import Pipeline, make_pipeline

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_clue.exceptions.SearchConvergenceWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

ADDED = {"explain", "explain_path", "rejects", "predict_uncertainty"}


def tiny_explainer():
    generator = VAEEncoder(2, (20,), max_iter=20, random_state=0)
    return CLUEExplainer(LogisticRegression(), generator, max_iter=5, random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(3, 5, size=(120, 3)), columns=["a", "b", "c"])
    y = np.where(X["a"] + rng.normal(size=120) > 3, "yes", "no")
    return X, y


@pytest.fixture(scope="module")
def fitted(data):
    scaler = StandardScaler().set_output(transform="pandas")
    return make_pipeline(scaler, tiny_explainer()).fit(*data)


def test_steps_before_the_explainer_are_applied(fitted, data):
    X = data[0][:8]
    scaled = fitted[0].transform(X)
    alone = fitted[-1]
    np.testing.assert_array_equal(fitted.rejects(X), alone.rejects(scaled))
    for ours, its in zip(
        fitted.predict_uncertainty(X), alone.predict_uncertainty(scaled), strict=True
    ):
        np.testing.assert_array_equal(ours, its)
    explanation = fitted.explain(X)
    pd.testing.assert_frame_equal(explanation.X, scaled)
    pd.testing.assert_frame_equal(
        explanation.counterfactuals, alone.explain(scaled).counterfactuals
    )
    path = fitted.explain_path(X, [0.1, 10.0])
    assert [explanation.distance_weight for explanation in path] == [0.1, 10.0]
    pd.testing.assert_frame_equal(path[0].X, scaled)


def test_it_is_still_a_pipeline(fitted, data):
    X, y = data
    assert is_classifier(fitted)
    assert set(fitted.predict(X)) <= set(y)
    assert fitted.predict_proba(X).shape == (len(X), 2)
    assert fitted.score(X, y) == fitted[-1].score(fitted[0].transform(X))
    np.testing.assert_array_equal(fitted.classes_, ["no", "yes"])
    assert isinstance(fitted[:-1], Pipeline)


def test_nested_parameters_and_clone(fitted):
    copy = clone(fitted).set_params(
        clueexplainer__distance_weight=7.0, clueexplainer__generator__latent_dim=3
    )
    assert type(copy) is Pipeline
    assert copy.get_params()["clueexplainer__distance_weight"] == 7.0
    assert copy[-1].generator.latent_dim == 3
    assert fitted[-1].distance_weight is None
    with pytest.raises(NotFittedError):
        copy.explain(np.zeros((1, 3)))


def test_joblib_round_trip(fitted, data, tmp_path):
    joblib.dump(fitted, tmp_path / "pipeline.joblib")
    loaded = joblib.load(tmp_path / "pipeline.joblib")
    X = data[0][:5]
    np.testing.assert_array_equal(
        loaded.explain(X).counterfactuals, fitted.explain(X).counterfactuals
    )


@pytest.mark.parametrize(
    "last, added",
    [
        (CLUEExplainer(), ADDED),
        (BayesianMLPClassifier(), {"predict_uncertainty"}),
        (LogisticRegression(), set()),
        ("passthrough", set()),
    ],
)
def test_only_what_the_last_step_has(last, added):
    pipeline = make_pipeline(StandardScaler(), last)
    assert {name for name in ADDED if hasattr(pipeline, name)} == added


def test_absent_methods_say_who_lacks_them():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.raises(AttributeError, match="'Pipeline' has no attribute 'explain'"):
        pipeline.explain(np.zeros((1, 3)))


def test_passthrough_and_dropped_steps(data):
    X, y = data
    pipeline = Pipeline(
        [("first", "passthrough"), ("second", None), ("clue", tiny_explainer())]
    ).fit(X, y)
    pd.testing.assert_frame_equal(pipeline.explain(X[:3]).X, X[:3])
    alone = make_pipeline(tiny_explainer()).fit(X, y)
    np.testing.assert_array_equal(pipeline.rejects(X), alone.rejects(X))


def test_with_metadata_routing(data):
    X, y = data
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), tiny_explainer()).fit(X, y)
        assert len(pipeline.explain(X[:3])) == 3
        assert pipeline.rejects(X).dtype == bool


def test_make_pipeline_takes_what_scikit_learn_takes(tmp_path):
    assert inspect.signature(make_pipeline) == inspect.signature(
        sklearn_pipeline.make_pipeline
    )
    pipeline = make_pipeline(
        StandardScaler(),
        StandardScaler(),
        CLUEExplainer(),
        memory=str(tmp_path),
        transform_input=["X_val"],
        verbose=True,
    )
    names = ["standardscaler-1", "standardscaler-2", "clueexplainer"]
    assert list(pipeline.named_steps) == names
    assert pipeline.memory == str(tmp_path)
    assert pipeline.transform_input == ["X_val"]
    assert pipeline.verbose is True


def test_plain_pipeline_predicts_and_scores(fitted, data):
    X, y = data
    plain = sklearn_pipeline.make_pipeline(StandardScaler(), tiny_explainer())
    plain.fit(X, y)
    np.testing.assert_array_equal(plain.predict(X), fitted.predict(X))
    assert plain.score(X, y) == pytest.approx(fitted.score(X, y))
    assert plain.set_params(clueexplainer__max_iter=3)[-1].max_iter == 3
    assert not hasattr(plain, "explain")


def test_explainer_around_our_pipeline_returns_to_raw_units(data):
    X, y = data
    inner = make_pipeline(StandardScaler(), FunctionTransformer(), LogisticRegression())
    outer = clone(tiny_explainer()).set_params(estimator=inner)
    with_sklearn = clone(outer).set_params(
        estimator=sklearn_pipeline.Pipeline(inner.steps)
    )
    ours, its = (clue.fit(X, y).explain(X[:4]) for clue in (outer, with_sklearn))
    pd.testing.assert_frame_equal(ours.counterfactuals, its.counterfactuals)
    pd.testing.assert_frame_equal(ours.X, X[:4])


def test_arguments_are_those_of_the_last_step(data):
    X, y = data
    fill = UFIDOExplainer(
        LogisticRegression(), VAEACImputer(2, (10,), max_iter=2), max_iter=2
    )
    pipeline = make_pipeline(StandardScaler(), fill).fit(X, y)
    path = pipeline.explain_path(X[:3], mask_weights=[0.1, 10.0])
    assert len(path) == len(pipeline.explain_path(X[:3], [0.1, 10.0])) == 2
    with pytest.raises(TypeError, match="distance_weights"):
        pipeline.explain_path(X[:3], distance_weights=[0.1])


def test_columns_may_be_dropped_before(data):
    X, y = data
    keep = make_column_transformer(
        ("passthrough", ["c", "a"]), verbose_feature_names_out=False
    ).set_output(transform="pandas")
    explanation = make_pipeline(keep, tiny_explainer()).fit(X, y).explain(X[:3])
    pd.testing.assert_frame_equal(explanation.X, X.loc[:2, ["c", "a"]])
