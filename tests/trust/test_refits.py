"""What was fitted belongs together: failed refits and parameters set later."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    CLUEExplainerCV,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.evaluation import GroundTruth
from sklearn_clue.generative import TwoLevelVAEAC

pytestmark = pytest.mark.filterwarnings("ignore")  # nobody expects them to be good

CHAINS = {"n_draws": 4, "burn_in": 5, "thinning": 1, "n_chains": 1, "random_state": 0}
MEMBERS = {"n_members": 2, "max_iter": 3, "random_state": 0}
VAE = VAEEncoder(2, (5,), max_iter=2, random_state=0)
VAEAC = VAEACImputer(2, (5,), max_iter=2, n_draws=3, random_state=0)
LINEAR = LogisticRegression()
ESTIMATORS = {
    "encoder": TabularEncoder(),
    "classifier": BayesianMLPClassifier((5,), **CHAINS),
    "regressor": BayesianMLPRegressor((5,), **CHAINS),
    "ensemble classifier": DeepEnsembleClassifier((5,), **MEMBERS),
    "ensemble regressor": DeepEnsembleRegressor((5,), **MEMBERS),
    "VAE": VAE,
    "VAEAC": VAEAC,
    "two levels": TwoLevelVAEAC(VAEAC, VAE, random_state=0),
    "truth": GroundTruth(TwoLevelVAEAC(VAEAC, VAE), n_importance=5, random_state=0),
    "CLUE": CLUEExplainer(LINEAR, VAE, random_state=0),
    "CLUE with λ": CLUEExplainer(LINEAR, VAE, distance_weight=2.0, random_state=0),
    "neighbors": NeighborExplainer(LINEAR),
    "CLUE CV": CLUEExplainerCV(
        LINEAR, VAE, distance_weights=[1.0, 3.0], cv=2, random_state=0
    ),
    "sensitivity": LocalSensitivityExplainer(LINEAR),
    "U-FIDO": UFIDOExplainer(LINEAR, VAEAC, max_iter=2, random_state=0),
}


def table(n_rows=50, n_columns=3, seed=0):
    """Rows, classes and values; the last column is a word for what takes words."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, n_columns)))
    X.columns = [f"c{i}" for i in range(n_columns)]
    values = X["c0"].to_numpy() + rng.normal(size=n_rows)
    return X, np.where(values > 0, "yes", "no"), values


def rows_and_target(estimator, **size):
    X, labels, values = table(**size)
    if not hasattr(estimator, "estimator"):
        X["word"] = np.where(X["c1"] > 0, "u", "v")
    is_regressor = type(estimator).__name__.endswith("Regressor")
    return X, values if is_regressor else labels


def fitted(name, **size):
    estimator = clone(ESTIMATORS[name])
    return estimator.fit(*rows_and_target(estimator, **size))


def answers(estimator, X):
    """All that a model says of rows, but for explanations."""
    said = {}
    for method in (
        "predict",
        "predict_proba",
        "predict_uncertainty",
        "predict_interval",
        "posterior_predictive",
        "transform",
        "rejects",
        "score_samples",
        "log_density",
        "uncertainty",
        "reconstruct",
    ):
        if callable(getattr(estimator, method, None)):
            said[method] = getattr(estimator, method)(X)
    if hasattr(estimator, "latent_dim_") and hasattr(estimator, "inverse_transform"):
        latents = np.ones((2, estimator.latent_dim_))
        said["inverse_transform"] = estimator.inverse_transform(latents)
    return said


# A failed refit -------------------------------------------------------------------


class Failure(BaseException):
    """As rude as an interrupt."""


class FailsAt:
    """Let the nth assignment to attributes of an estimator fail."""

    def __init__(self, estimator, n):
        kind = type(estimator)
        self.count = 0

        def assign(owner, name, value):
            if owner is estimator and "callback" not in name:
                self.count += 1
                if self.count == n:
                    raise Failure
            super(kind, owner).__setattr__(name, value)

        self.kind, self.estimator = kind, estimator
        self.trap = type(kind.__name__, (kind,), {"__setattr__": assign})

    def __enter__(self):
        self.estimator.__class__ = self.trap
        return self

    def __exit__(self, *error):
        object.__setattr__(self.estimator, "__class__", self.kind)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_failed_refit_leaves_the_old_model_or_none(name):
    """Wherever it fails, nothing is left that is half old and half new."""
    model = fitted(name)
    X, _ = rows_and_target(model)
    other = rows_and_target(model, n_rows=40, n_columns=2, seed=1)
    copy = pickle.loads(pickle.dumps(model))
    with FailsAt(copy, None) as trap:
        copy.fit(*other)
    assert trap.count >= 2  # else the trap would catch nothing
    before, said = joblib.hash(model), answers(model, X)
    n_steps = trap.count
    for n in sorted({1, 2, n_steps // 2, n_steps - 2, n_steps - 1, n_steps} - {0}):
        with pytest.raises(Failure), FailsAt(model, n):
            model.fit(*other)
        if joblib.hash(model) == before:
            assert joblib.hash(answers(model, X)) == joblib.hash(said)
            continue
        with pytest.raises(NotFittedError):
            model.rejects(X) if hasattr(model, "rejects") else answers(model, X)
        model = pickle.loads(pickle.dumps(model)).fit(*rows_and_target(model))
        before = joblib.hash(model)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_failed_first_fit_leaves_nothing(name):
    model = clone(ESTIMATORS[name])
    with FailsAt(model, 2), pytest.raises(Failure):
        model.fit(*rows_and_target(model))
    assert set(vars(model)) == set(vars(clone(model)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_refit_is_a_first_fit(name):
    """Nothing of an earlier fit stays, neither names nor what was learned."""
    model = fitted(name)
    if hasattr(model, "calibrate"):
        model.calibrate(*rows_and_target(model))
    X, y = rows_and_target(model, n_rows=40, n_columns=2, seed=1)
    X = X.drop(columns="word", errors="ignore").to_numpy()
    again, first = model.fit(X, y), clone(model).fit(X, y)
    assert set(vars(again)) == set(vars(first))
    assert joblib.hash(answers(again, X)) == joblib.hash(answers(first, X))


def test_interrupted_chains_keep_the_callbacks_tidy():
    """What callbacks have stored for their own end is still there after a failure."""
    pytest.importorskip("sklearn.callback")
    from sklearn.callback import ProgressBar

    model = fitted("VAE")
    before = joblib.hash(model)
    model.set_callbacks(ProgressBar())
    X, _ = rows_and_target(model)
    with pytest.raises(Failure), FailsAt(model, 8):
        model.fit(X)
    model.set_callbacks()
    assert joblib.hash(model) == before


# Parameters set after fit -----------------------------------------------------------

# Another value of each parameter, valid and far from the first.
OTHER = {
    "adaptation_fraction": 0.1,
    "add_indicator": True,
    "alpha": 10.0,
    "batch_size": 7,
    "burn_in": 99,
    "categorical_features": None,
    "checkpoint_dir": "elsewhere",
    "class_weight": "balanced",
    "cv": 3,
    "device": "cpu",
    "distance_weight": 9.0,
    "distance_weights": [9.0],
    "early_stopping": False,
    "encoder": "passthrough",
    "estimator": BayesianMLPRegressor(),
    "feature_ranges": {"c0": (0, 1)},
    "friction": 0.5,
    "generator": None,
    "hidden_layer_sizes": (3, 3),
    "image_shape": (8, 8),
    "immutable_features": ["c0"],
    "inner": None,
    "latent_dim": 1,
    "learning_rate": 7.0,
    "likelihood": "bernoulli",
    "max_iter": 1,
    "memory": "elsewhere",
    "model": None,
    "momentum_interval": None,
    "n_chains": 3,
    "n_draws": 2,
    "n_importance": 2,
    "n_iter_no_change": 3,
    "n_members": 7,
    "noise_floor": 3.0,
    "noise_variance": 9.0,
    "outer": None,
    "prior_interval": None,
    "prior_rate": 1.0,
    "prior_shape": 1.0,
    "random_state": 5,
    "rejection_rate": 0.9,
    "step_size": 5.0,
    "task": "regression",
    "temperature": 9.0,
    "thinning": 9,
    "tol": 9.0,
    "uncertainty": "epistemic",
    "validation_fraction": 0.5,
    "verbose": 1,
    "warm_start": True,
}

# What is read when a model is asked, and says so in its documentation.
READ_LATER = {
    ("VAEACImputer", "n_draws"),
    ("VAEACImputer", "add_indicator"),
    ("GroundTruth", "n_importance"),
}


def other_value(estimator, parameter):
    """A valid value that differs from the one in use; None if none is known."""
    constraint = estimator._parameter_constraints
    if isinstance(constraint.get(parameter), list) and constraint[parameter] == [
        "boolean"
    ]:
        return not getattr(estimator, parameter)
    return OTHER.get(parameter, 3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_set_after_fit_change_no_prediction(name):
    model = fitted(name)
    X, _ = rows_and_target(model)
    X = X[:8]
    expected = joblib.hash(answers(model, X))
    moved = set()
    for parameter in model.get_params(deep=False):
        later = pickle.loads(pickle.dumps(model))
        later.set_params(**{parameter: other_value(model, parameter)})
        if joblib.hash(answers(later, X)) != expected:
            moved.add((type(model).__name__, parameter))
    assert moved <= READ_LATER
    for kind, parameter in moved:
        text = type(model).__doc__.partition(f"    {parameter} : ")[2]
        assert "May be set after `fit`" in text.partition("\n\n")[0], (kind, parameter)


def test_images_stay_images():
    X = np.random.default_rng(0).random((20, 64))
    vae = VAEEncoder(2, image_shape=(8, 8), max_iter=1, random_state=0).fit(X)
    expected = joblib.hash(answers(vae, X))
    for shape in (None, (4, 16)):
        assert joblib.hash(answers(vae.set_params(image_shape=shape), X)) == expected


def test_chosen_categories_stay_chosen():
    X = pd.DataFrame({"code": [1, 2, 3, 2], "size": [0.5, 0.25, 1.0, 2.0]})
    encoder = TabularEncoder(categorical_features=["code"]).fit(X)
    expected = encoder.transform(X)
    encoder.set_params(categorical_features="from_dtype")
    np.testing.assert_array_equal(encoder.transform(X), expected)


def test_calibration_goes_by_the_networks_that_were_fitted():
    model = fitted("regressor")
    X, y = rows_and_target(model)
    later = pickle.loads(pickle.dumps(model)).set_params(noise_floor=3.0)
    model.calibrate(X, y), later.calibrate(X, y)
    assert later.calibration_.scale == model.calibration_.scale


def test_files_of_before_know_their_noise_floor():
    """A state without the stored floor goes by the parameter, as it did."""
    model = fitted("regressor")
    X, _ = rows_and_target(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        expected = model.predict_uncertainty(X)
    del model._noise_floor
    np.testing.assert_array_equal(model.predict_uncertainty(X), expected)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    "estimator",
    [
        BayesianMLPClassifier((5,), **CHAINS | {"step_size": 100.0, "n_draws": 20}),
        DeepEnsembleClassifier((5,), **MEMBERS),
        VAEEncoder(20, (5,), max_iter=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_warnings_of_fits_point_to_who_called(estimator):
    pytest.importorskip("sklearn.callback")  # which stands between, from 1.9 on
    with pytest.warns(UserWarning) as caught:
        estimator.fit(*rows_and_target(estimator))
    assert {warning.filename for warning in caught} == {__file__}
