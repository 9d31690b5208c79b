"""Evaluation: how much explanations explain, and how far they go for it."""

from sklearn_clue.evaluation._attribution import attribute_uncertainty
from sklearn_clue.evaluation._comparison import evaluate_explainers
from sklearn_clue.evaluation._ground_truth import GroundTruth
from sklearn_clue.evaluation._plausibility import plausibility
from sklearn_clue.evaluation._scores import (
    EXPLANATION_SCORERS,
    informativeness,
    knee_point,
    knee_point_distance,
    mean_ratio,
    nearest_neighbor_distance,
    relevance,
)

__all__ = [
    "EXPLANATION_SCORERS",
    "GroundTruth",
    "attribute_uncertainty",
    "evaluate_explainers",
    "informativeness",
    "knee_point",
    "knee_point_distance",
    "mean_ratio",
    "nearest_neighbor_distance",
    "plausibility",
    "relevance",
]
