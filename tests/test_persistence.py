"""Fitted models outlive their process."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor

TINY = {"hidden_layer_sizes": (8,), "n_draws": 6, "burn_in": 20, "thinning": 1}

IN_A_FRESH_PROCESS = """
import sys
import joblib
import numpy as np

models, X = joblib.load(sys.argv[1])
answers = []
for model in models:
    answers += [model.predict(X), *model.predict_uncertainty(X)]
    answers += [model.posterior_predictive(X), model.sample_y(X, 2, random_state=0)]
joblib.dump(answers, sys.argv[2])
"""


def test_joblib_round_trip_in_a_fresh_process(mixed_frame, tmp_path):
    X, y = mixed_frame, np.arange(len(mixed_frame)) % 2
    models = [
        estimator(**TINY, random_state=0).fit(X, y)
        for estimator in (BayesianMLPClassifier, BayesianMLPRegressor)
    ]
    paths = [str(tmp_path / name) for name in ("models", "answers")]
    joblib.dump((models, X), paths[0])
    subprocess.run([sys.executable, "-c", IN_A_FRESH_PROCESS, *paths], check=True)
    expected = []
    for model in models:
        expected += [model.predict(X), *model.predict_uncertainty(X)]
        expected += [model.posterior_predictive(X)]
        expected += [model.sample_y(X, 2, random_state=0)]
    for answer, known in zip(joblib.load(paths[1]), expected, strict=True):
        assert_array_equal(answer, known)


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_memory_mapped_models_predict(estimator, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = estimator(**TINY, random_state=0).fit(X, y)
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    assert isinstance(mapped.coefs_[0], np.memmap)
    assert_array_equal(mapped.predict(X), model.predict(X))
    mapped.partial_fit(X, y)
    model.partial_fit(X, y)
    assert_array_equal(mapped.predict(X), model.predict(X))


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_pickles_are_little_more_than_their_draws(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 10)), np.arange(100) % 2
    # The chains and draws of the defaults, and networks of nearly their size.
    model = estimator((100, 100), burn_in=20, thinning=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="chains disagree"):  # too short
        model.fit(X, y)
    draws = sum(part.nbytes for part in (*model.coefs_, *model.intercepts_))
    assert len(pickle.dumps(model)) <= 1.1 * draws


def test_clones_are_unfitted_and_alike():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = BayesianMLPClassifier(**TINY, random_state=0).fit(X, y)
    copy = clone(model)
    assert not hasattr(copy, "coefs_")
    assert copy.get_params() == model.get_params()
    assert_array_equal(copy.fit(X, y).predict_proba(X), model.predict_proba(X))


def test_fitted_attributes_are_no_tensors():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = BayesianMLPRegressor(**TINY, random_state=0).fit(X, y)
    assert b"torch" not in pickle.dumps(model)
