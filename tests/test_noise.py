"""Noise that a second model predicts."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_clue import PredictedNoiseRegressor


def _draw(n_rows, seed, spread=lambda X: np.exp(X[:, 0] - 1)):
    """A linear mean with noise of a known size."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, size=(n_rows, 2))
    return X, 5 * X[:, 0] + X[:, 1] + spread(X) * rng.normal(size=n_rows)


def test_noise_that_grows_is_found():
    X, y = _draw(5000, 0)
    model = PredictedNoiseRegressor(LinearRegression()).fit(X, y)
    new, target = _draw(4000, 1)
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, 5 * new[:, 0] + new[:, 1], atol=0.6)
    # The logarithm of 5000 squares has a standard error of 2.2 / sqrt(5000) = 0.03,
    # and at the ends of the line twice that, for a deviation half of it.
    assert_allclose(std, np.exp(new[:, 0] - 1), rtol=0.1)
    assert model.noise_trust_ > 0.9
    assert_array_equal(model.predict_noise(new), std)
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(new, coverage).T
        assert abs(((low <= target) & (target <= high)).mean() - coverage) < 0.03


def test_noise_that_is_the_same_everywhere_is_found_to_be():
    # A model of many neighbours sees patterns in pure noise; rows that it has not seen
    # tell that there are none.
    X, y = _draw(1000, 0, spread=lambda X: 2.0)
    noise = KNeighborsRegressor(5)
    model = PredictedNoiseRegressor(LinearRegression(), noise).fit(X, y)
    std = model.predict_noise(_draw(500, 1)[0])
    assert model.noise_trust_ < 0.2
    assert_allclose(std, 2.0, rtol=0.2)
    assert std.std() < 0.1


def test_intervals_hold_for_errors_that_are_not_normal():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 1))
    y = X[:, 0] + rng.standard_t(2, size=3000)
    model = PredictedNoiseRegressor(LinearRegression()).fit(X[:1500], y[:1500])
    low, high = model.predict_interval(X[1500:]).T
    assert abs(((low <= y[1500:]) & (y[1500:] <= high)).mean() - 0.9) < 0.03


def test_few_rows_give_wide_intervals():
    X, y = _draw(8, 0)
    model = PredictedNoiseRegressor(LinearRegression(), DummyRegressor()).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X, coverage=0.99).T
    # No 8 rows can vouch for 99 %.
    assert ((high - mean) / std > 2.57).all()


def test_tables_reach_the_estimator_as_they_are():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"size": rng.normal(size=400), "kind": rng.choice(["calm", "loud"], 400)}
    )
    y = X["size"] + np.where(X["kind"] == "loud", 3.0, 0.5) * rng.normal(size=400)
    encode = make_column_transformer(
        (OneHotEncoder(), ["kind"]), remainder="passthrough"
    )
    model = PredictedNoiseRegressor(make_pipeline(encode, Ridge())).fit(X, y)
    kinds = pd.DataFrame({"size": [0.0, 0.0], "kind": ["calm", "loud"]})
    assert_allclose(model.predict_noise(kinds), [0.5, 3.0], rtol=0.2)
    assert_array_equal(model.feature_names_in_, ["size", "kind"])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"kind": "sort"}))


def test_missing_values_are_up_to_the_estimator():
    X, y = _draw(200, 0)
    X[::7, 1] = np.nan
    model = PredictedNoiseRegressor(HistGradientBoostingRegressor(max_iter=5), cv=2)
    assert np.isfinite(model.fit(X, y).predict_interval(X)).all()
    with pytest.raises(ValueError, match="contains NaN"):
        PredictedNoiseRegressor(Ridge()).fit(X, y)


def test_a_frozen_regressor_is_not_fitted_again():
    X, y = _draw(1000, 0)
    ridge = Ridge().fit(X, y)
    new, target = _draw(3000, 1)
    model = PredictedNoiseRegressor(FrozenEstimator(ridge)).fit(new, target)
    assert_array_equal(model.predict(X), ridge.predict(X))
    assert isinstance(model.noise_estimator_, Ridge)
    assert_allclose(model.predict_noise(X), np.exp(X[:, 0] - 1), rtol=0.15)


def test_a_regressor_that_is_always_right():
    X = np.arange(30.0)[:, None]
    model = PredictedNoiseRegressor(LinearRegression(), DummyRegressor())
    model.fit(X, np.zeros(30))
    interval = model.predict_interval(X)
    assert_allclose(interval, 0, atol=1e-100)
    assert (model.predict_noise(X) < 1e-100).all()


def test_weights_reach_both_models():
    X, y = _draw(300, 0)
    bad = np.arange(300) % 3 == 0
    y[bad] += 1000 * np.sin(np.arange(300))[bad]
    model = PredictedNoiseRegressor(LinearRegression(), cv=3)
    weighted = clone(model).fit(X, y, sample_weight=(~bad).astype(float))
    clean = clone(model).fit(X[~bad], y[~bad])
    # Folds differ, and what is held out with them.
    assert_allclose(weighted.predict(X), clean.predict(X), rtol=1e-6)
    assert_allclose(weighted.predict_noise(X), clean.predict_noise(X), rtol=0.3)
    assert_allclose(
        weighted.predict_interval(X), clean.predict_interval(X), rtol=0.3, atol=2
    )
    plain = PredictedNoiseRegressor(LinearRegression(), KNeighborsRegressor())
    plain.fit(X, y, sample_weight=np.ones(300))  # of which neighbours know nothing


def test_weights_are_routed():
    X, y = _draw(60, 0)
    weight = np.linspace(0, 1, 60)
    with sklearn.config_context(enable_metadata_routing=True):
        ridge = Ridge().set_fit_request(sample_weight=True)
        deaf = Ridge().set_fit_request(sample_weight=False)
        model = PredictedNoiseRegressor(ridge, deaf).fit(X, y, sample_weight=weight)
    known = Ridge().fit(X, y, sample_weight=weight)
    assert_allclose(model.predict(X), known.predict(X))


def test_folds_can_be_chosen_and_searched():
    X, y = _draw(90, 0)
    grid = {"estimator__alpha": [0.1, 100.0], "cv": [KFold(2), 3]}
    search = GridSearchCV(PredictedNoiseRegressor(Ridge()), grid, cv=2).fit(X, y)
    assert search.best_params_["estimator__alpha"] == 0.1
    sorted_rows = np.argsort(X[:, 0])
    shuffled = PredictedNoiseRegressor(KNeighborsRegressor(3)).fit(
        X[sorted_rows], y[sorted_rows]
    )
    ordered = PredictedNoiseRegressor(KNeighborsRegressor(3), cv=KFold(5)).fit(
        X[sorted_rows], y[sorted_rows]
    )
    # Folds of neighbours would have to extrapolate.
    assert shuffled.scores_.max() * shuffled.predict_noise(X).mean() < (
        ordered.scores_.max() * ordered.predict_noise(X).mean()
    )


def test_it_is_kept():
    X, y = _draw(90, 0)
    model = PredictedNoiseRegressor(HistGradientBoostingRegressor(max_iter=3)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_what_makes_no_sense_is_refused():
    X, y = _draw(30, 0)
    with pytest.raises(ValueError, match=r"noise of one target, got y of shape"):
        PredictedNoiseRegressor(Ridge()).fit(X, np.stack([y, y], 1))
    model = PredictedNoiseRegressor(Ridge()).fit(X, y)
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        model.predict_interval(X, coverage=1.0)
    with pytest.raises(ValueError, match="'estimator' parameter"):
        PredictedNoiseRegressor("ridge").fit(X, y)
    # Whole numbers could pass for classes.
    with pytest.raises(TypeError, match="estimator must be a regressor, got KNeigh"):
        PredictedNoiseRegressor(KNeighborsClassifier()).fit(X, y.round())
    with pytest.raises(ValueError, match="hold out every row once, got ShuffleSplit"):
        PredictedNoiseRegressor(Ridge(), cv=ShuffleSplit(3)).fit(X, y)


@pytest.mark.parametrize("inner", [None, Ridge()])
def test_targets_that_are_transformed(inner):
    # Logarithms of squared errors are negative, and have no square root.
    X, y = _draw(300, 0, lambda X: np.full(len(X), 0.1))
    model = TransformedTargetRegressor(inner, func=np.sqrt, inverse_func=np.square)
    fitted = PredictedNoiseRegressor(model).fit(X, y.clip(min=0.1))
    mean, std = fitted.predict(X, return_std=True)
    assert_allclose(mean, fitted.estimator_.predict(X))
    assert np.isfinite(std).all() and (std > 0).all()
