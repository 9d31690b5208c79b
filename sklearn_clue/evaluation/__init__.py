"""Evaluation: how much explanations explain, and how far they go for it."""

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
    "informativeness",
    "knee_point",
    "knee_point_distance",
    "mean_ratio",
    "nearest_neighbor_distance",
    "relevance",
]
