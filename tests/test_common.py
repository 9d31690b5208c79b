"""scikit-learn's own conformance checks, for every estimator of the package."""

import inspect

from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import sklearn_clue
from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    CLUEExplainerCV,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    GroupExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    PredictedNoiseRegressor,
    TabularEncoder,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.evaluation import GroundTruth
from sklearn_clue.generative import TwoLevelVAEAC

# One entry per estimator and way of working that the checks should see, with settings
# small enough for a few hundred fits.
TINY = {"hidden_layer_sizes": (10,), "n_draws": 8, "burn_in": 120, "thinning": 2}
TINY_VAE = VAEEncoder(2, (5,), max_iter=2)
TINY_VAEAC = VAEACImputer(2, (5,), max_iter=2)
TINY_TWO_LEVEL = TwoLevelVAEAC(TINY_VAEAC, TINY_VAE)
# Networks that check what they are given, for fewer seconds than chains.
TINY_ENSEMBLE = {"hidden_layer_sizes": (10,), "n_members": 2, "max_iter": 20}
TINY_ENSEMBLE["learning_rate"] = 0.05
INSTANCES = [
    BayesianMLPClassifier(**TINY),
    BayesianMLPRegressor(**TINY),
    CLUEExplainer(LogisticRegression(), TINY_VAE),
    CLUEExplainer(LogisticRegression(), TINY_VAE, distance_weight=2.0),
    CLUEExplainer(BayesianMLPClassifier(**TINY), TINY_VAE),
    CLUEExplainer(BayesianMLPRegressor(**TINY), TINY_VAE),
    CLUEExplainerCV(LogisticRegression(), TINY_VAE, distance_weights=[1.0], cv=2),
    CLUEExplainerCV(
        DeepEnsembleClassifier(**TINY_ENSEMBLE),
        TINY_VAE,
        distance_weights=[1.0],
        cv=2,
    ),
    DeepEnsembleClassifier((10,), n_members=2, learning_rate=0.02, max_iter=60),
    DeepEnsembleRegressor((10,), n_members=2, learning_rate=0.02, max_iter=60),
    GroundTruth(TINY_TWO_LEVEL, n_importance=10),
    GroupExplainer(NeighborExplainer(LogisticRegression()), n_groups=2),
    LocalSensitivityExplainer(LogisticRegression()),
    LocalSensitivityExplainer(BayesianMLPRegressor(**TINY)),
    LocalSensitivityExplainer(DeepEnsembleClassifier(**TINY_ENSEMBLE)),
    NeighborExplainer(LogisticRegression()),
    NeighborExplainer(BayesianMLPRegressor(**TINY)),
    PredictedNoiseRegressor(Ridge(), cv=3),
    TabularEncoder(),
    UFIDOExplainer(LogisticRegression(), TINY_VAEAC),
    UFIDOExplainer(DeepEnsembleClassifier(**TINY_ENSEMBLE), TINY_VAEAC, max_iter=3),
    UFIDOExplainer(DeepEnsembleRegressor(**TINY_ENSEMBLE), TINY_VAEAC, max_iter=3),
    VAEACImputer(2, (10,), max_iter=5, n_draws=10),
    VAEACImputer(2, (10,), max_iter=5, n_draws=10, add_indicator=True),
    VAEEncoder(2, (10,), max_iter=5),
    TINY_TWO_LEVEL,
]

# Class -> {check: cause and cure}. Meant to stay empty.
EXPECTED_FAILED_CHECKS = {}


@parametrize_with_checks(
    INSTANCES,
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS.get(
        type(estimator), {}
    ),
)
def test_scikit_learn_contract(estimator, check, own_process):
    check(estimator)  # some of them draw from numpy's generator


def test_every_public_estimator_is_checked():
    public = {
        value
        for module in (sklearn_clue, sklearn_clue.evaluation, sklearn_clue.generative)
        for value in (getattr(module, name) for name in module.__all__)
        if inspect.isclass(value) and issubclass(value, BaseEstimator)
    }
    assert public == {type(instance) for instance in INSTANCES}
