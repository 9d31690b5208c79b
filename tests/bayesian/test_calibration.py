"""Calibration on held-out rows, by models whose error is known."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
)
from sklearn_clue.bayesian import _calibration

CHAINS = {"n_draws": 6, "burn_in": 20, "thinning": 1, "random_state": 0}
MEMBERS = {"n_members": 3, "max_iter": 40, "learning_rate": 0.01, "random_state": 0}


def _fitted(estimator, target, **changes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    settings = CHAINS if estimator.__name__.startswith("Bayesian") else MEMBERS
    y = X[:, 0] + 0.3 * rng.normal(size=80)
    if target == "classes":
        y = np.where(y > 0, "high", "low")
    elif target == "two numbers":
        y = np.column_stack([y, 1000 - 500 * y])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as short as it gets
        return estimator((8,), **settings, **changes).fit(X, y)


REGRESSORS = pytest.mark.parametrize(
    "estimator", [BayesianMLPRegressor, DeepEnsembleRegressor]
)
CLASSIFIERS = pytest.mark.parametrize(
    "estimator", [BayesianMLPClassifier, DeepEnsembleClassifier]
)
ALL = pytest.mark.parametrize(
    "estimator, target",
    [
        (BayesianMLPClassifier, "classes"),
        (BayesianMLPRegressor, "numbers"),
        (DeepEnsembleClassifier, "classes"),
        (DeepEnsembleRegressor, "numbers"),
    ],
)


def _rows(n_rows, seed=1):
    return np.random.default_rng(seed).normal(size=(n_rows, 2))


def _own_targets(model, X, factor=1.0, seed=0):
    """Targets by the model itself, but that much further from its mean."""
    y = model.sample_y(X, random_state=seed)[..., 0]
    if hasattr(model, "predict_proba"):
        return y
    mean = model.predict(X)
    return mean + factor * (y - mean)


def _all_answers(model, X):
    answers = [model.posterior_predictive(X), *model.predict_uncertainty(X)]
    answers.append(model.sample_y(X, 3, random_state=0))
    if hasattr(model, "predict_proba"):
        return [*answers, model.predict_proba(X)]
    return [*answers, *model.predict(X, return_std=True), model.predict_interval(X)]


# Known answers


@REGRESSORS
@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_scale_of_a_wrong_spread_is_found(estimator, factor):
    model = _fitted(estimator, "numbers")
    X = _rows(4000)
    before = model.predict(X, return_std=True)
    parts = model.predict_uncertainty(X)
    model.calibrate(X, _own_targets(model, X, factor))
    assert_allclose(model.calibration_.scale, factor, rtol=0.04)
    mean, std = model.predict(X, return_std=True)
    scale = model.calibration_.scale[0]
    assert_allclose(mean, before[0])
    assert_allclose(std, scale * before[1])
    for part, known in zip(model.predict_uncertainty(X), parts, strict=True):
        assert_allclose(part, scale * known, atol=1e-12)


def test_each_output_has_its_own_scale():
    model = _fitted(DeepEnsembleRegressor, "two numbers")
    X = _rows(4000)
    Y = _own_targets(model, X, np.array([0.5, 2.0]))
    model.calibrate(X, Y)
    assert_allclose(model.calibration_.scale, [0.5, 2.0], rtol=0.04)
    X, coverage = _rows(4000, seed=2), 0.8
    vars(model).pop("calibration_")
    Y_test = _own_targets(model, X, np.array([0.5, 2.0]), seed=1)
    low, high = np.moveaxis(
        model.calibrate(_rows(4000), Y).predict_interval(X, coverage), -1, 0
    )
    inside = ((low <= Y_test) & (Y_test <= high)).mean(axis=0)
    assert_allclose(inside, coverage, atol=0.02)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_temperature_of_wrong_logits_is_found(temperature):
    model = _fitted(DeepEnsembleClassifier, "classes").set_params(n_members=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(_rows(80), _own_targets(model, _rows(80)))
    X = _rows(8000)
    y, right = _own_targets(model, X), model.predict_proba(X)
    for part in (model.coefs_[-1], model.intercepts_[-1]):
        part *= temperature
    wrong = model.predict_proba(X)
    assert_allclose(model.calibrate(X, y).calibration_.temperature, temperature, 0.08)
    assert np.abs(model.predict_proba(X) - right).max() < 0.03
    assert np.abs(wrong - right).max() > 0.1


def test_temperature_reaches_networks_that_disagree():
    """Each is sure and most are right: no temperature of each alone would help."""
    rng = np.random.default_rng(0)
    codes = torch.as_tensor(rng.integers(2, size=2000))
    says_right = torch.as_tensor(rng.random((20, 2000)) < 0.8)
    says = torch.where(says_right, codes, 1 - codes)
    logits = 4.0 * torch.nn.functional.one_hot(says, 2).double()
    alone = min(
        -float((logits / t).softmax(-1).mean(0)[torch.arange(2000), codes].log().mean())
        for t in np.exp(_calibration.LOG_RANGE)
    )
    temperature = _calibration.find_temperature(logits, codes)
    proba = _calibration.Softmax(temperature)(logits)
    together = -float(proba.mean(0)[torch.arange(2000), codes].log().mean())
    assert temperature < 0.5
    assert together < 0.1 * alone
    assert_allclose(proba.sum(-1), 1)


def test_a_few_right_rows_do_not_make_a_model_infinitely_sure():
    logits = torch.tensor([[[2.0, 0.0]] * 20], dtype=torch.float64)
    temperature = _calibration.find_temperature(logits, torch.zeros(20).long())
    assert 0.2 < temperature < 0.9


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_intervals_of_the_wrong_shape_get_their_coverage(coverage):
    """Laplace noise: one factor cannot mend both the middle and the tails."""
    model = _fitted(DeepEnsembleRegressor, "numbers")
    rng = np.random.default_rng(0)
    X, X_test = _rows(4000), _rows(4000, seed=2)
    y, y_test = (
        model.predict(rows) + rng.laplace(scale=0.5, size=4000) for rows in (X, X_test)
    )
    model.calibrate(X, y)
    low, high = model.predict_interval(X_test, coverage).T
    assert_allclose(((low <= y_test) & (y_test <= high)).mean(), coverage, atol=0.02)


def test_conformal_ranks():
    scores = torch.arange(1.0, 20.0, dtype=torch.float64)[:, None] / 10  # 19 rows
    for coverage, rank in ((0.5, 10), (0.9, 18), (0.901, 19), (0.95, 19)):
        tail = float(_calibration.conformal_tail(scores, coverage))
        assert_allclose(-ndtri(tail), rank / 10)


def test_more_coverage_than_the_rows_can_promise():
    scores = torch.arange(1.0, 20.0, dtype=torch.float64)[:, None] / 10
    with pytest.warns(UserWarning, match="19 calibration rows .* 0.95 at most"):
        tail = float(_calibration.conformal_tail(scores, 0.96))
    assert_allclose(-ndtri(tail), 2.0537, atol=1e-3)  # the model's own, beyond 1.9
    with pytest.warns(UserWarning, match="Calibrate with more rows"):
        tail = float(_calibration.conformal_tail(10 * scores, 0.96))
    assert_allclose(-ndtri(tail), 19.0)  # never less than what was seen


def test_far_tails_do_not_saturate():
    model = _fitted(DeepEnsembleRegressor, "numbers")
    X = _rows(200)
    y = model.predict(X)
    y[:3] += [1e6, -1e6, 1e6]
    model.calibrate(X, y)
    narrow, wide = (model.predict_interval(X, coverage) for coverage in (0.9, 0.99))
    assert np.isfinite(wide).all()
    assert (wide[:, 1] - wide[:, 0] > narrow[:, 1] - narrow[:, 0]).all()
    assert (wide[:, 1] - wide[:, 0] > 1e6).all()


# All that is said of a row agrees


@CLASSIFIERS
def test_probabilities_of_the_networks_agree(estimator):
    model = _fitted(estimator, "classes")
    X = _rows(200)
    raw = model.predict_uncertainty(X)
    model.calibrate(X, np.roll(_own_targets(model, X), 3))  # some are wrong
    total, aleatoric, epistemic = model.predict_uncertainty(X)
    assert (total > raw.total).all()
    assert_allclose(total, aleatoric + epistemic, atol=1e-12)
    draws = model.posterior_predictive(X)
    assert_allclose(draws.sum(-1), 1)
    assert_allclose(draws.mean(0), model.predict_proba(X))


@REGRESSORS
def test_samples_have_the_calibrated_spread(estimator):
    model = _fitted(estimator, "numbers")
    X = _rows(300)
    model.calibrate(X, _own_targets(model, X, 3.0))
    drawn = model.sample_y(X, 500, random_state=0)
    assert_allclose(drawn.std(axis=1), model.predict(X, return_std=True)[1], rtol=0.25)


# Manners


@ALL
def test_calibrating_again_replaces_and_fit_undoes(estimator, target):
    model = _fitted(estimator, target)
    X = _rows(200)
    y = _own_targets(model, X, 2.0)
    fitted = _all_answers(model, X)
    attributes = set(vars(model))
    assert model.calibrate(X, y[::-1]) is model
    first = model.calibrate(X, y).calibration_
    again = model.calibrate(X, y).calibration_
    for name in first:
        assert_array_equal(first[name], again[name])
    assert set(vars(model)) == attributes | {"calibration_"}
    rng = np.random.default_rng(0)
    X_train = rng.normal(size=(80, 2))
    y_train = X_train[:, 0] + 0.3 * rng.normal(size=80)
    if target == "classes":
        y_train = np.where(y_train > 0, "high", "low")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X_train, y_train)
    for answer, known in zip(_all_answers(model, X), fitted, strict=True):
        assert_array_equal(answer, known)


def test_warm_start_undoes_it_as_well():
    model = _fitted(BayesianMLPRegressor, "numbers", warm_start=True)
    X = _rows(50)
    y = _own_targets(model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.calibrate(X, y).fit(X, y)
    assert not hasattr(model, "calibration_")


@ALL
def test_files_keep_it(estimator, target):
    model = _fitted(estimator, target)
    X = _rows(60)
    model.calibrate(X, _own_targets(model, X, 2.0))
    expected = _all_answers(model, X)
    copies = [pickle.loads(pickle.dumps(model))]
    skops_io = pytest.importorskip("skops.io")
    from sklearn_clue.persistence import TRUSTED_TYPES

    copies.append(skops_io.loads(skops_io.dumps(model), trusted=list(TRUSTED_TYPES)))
    for again in copies:
        for answer, known in zip(_all_answers(again, X), expected, strict=True):
            assert_array_equal(answer, known)


@ALL
def test_bad_input_is_refused(estimator, target):
    model = _fitted(estimator, target)
    X = _rows(30)
    y = _own_targets(model, X)
    with pytest.raises(NotFittedError):
        estimator().calibrate(X, y)
    with pytest.raises(ValueError, match="at least 20 rows, got 19"):
        model.calibrate(X[:19], y[:19])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.calibrate(X, y[:25])
    with pytest.raises(ValueError, match="3 features, but .* expecting 2"):
        model.calibrate(np.hstack([X, X[:, :1]]), y)
    if target == "classes":
        with pytest.raises(ValueError, match=r"the classes \['medium'\]"):
            model.calibrate(X, np.where(np.arange(30) == 3, "medium", y))
    else:
        with pytest.raises(ValueError, match="2 output.*networks have 1"):
            model.calibrate(X, np.column_stack([y, y]))
        with pytest.raises(ValueError, match="NaN"):
            model.calibrate(X, np.where(np.arange(30) == 3, np.nan, y))
    assert not hasattr(model, "calibration_")
