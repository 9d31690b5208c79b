"""Explain why a model is unsure, and what would make it sure."""

from sklearn_clue._noise import PredictedNoiseRegressor
from sklearn_clue._report import Report, report
from sklearn_clue.bayesian import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
)
from sklearn_clue.encoding import TabularEncoder
from sklearn_clue.explainers import (
    CLUEExplainer,
    CLUEExplainerCV,
    GroupExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    UFIDOExplainer,
)
from sklearn_clue.explanation import Explanation
from sklearn_clue.generative import VAEACImputer, VAEEncoder
from sklearn_clue.uncertainty import Uncertainty

__all__ = [
    "BayesianMLPClassifier",
    "BayesianMLPRegressor",
    "CLUEExplainer",
    "CLUEExplainerCV",
    "DeepEnsembleClassifier",
    "DeepEnsembleRegressor",
    "Explanation",
    "GroupExplainer",
    "LocalSensitivityExplainer",
    "NeighborExplainer",
    "PredictedNoiseRegressor",
    "Report",
    "TabularEncoder",
    "UFIDOExplainer",
    "Uncertainty",
    "VAEACImputer",
    "VAEEncoder",
    "__version__",
    "report",
]

__version__ = "0.1.0.dev0"
