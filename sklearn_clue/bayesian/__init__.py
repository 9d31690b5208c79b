"""Several networks instead of one: sampled from their posterior, or an ensemble."""

from sklearn_clue.bayesian._ensemble import (
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
)
from sklearn_clue.bayesian._mlp import BayesianMLPClassifier, BayesianMLPRegressor

__all__ = [
    "BayesianMLPClassifier",
    "BayesianMLPRegressor",
    "DeepEnsembleClassifier",
    "DeepEnsembleRegressor",
]
