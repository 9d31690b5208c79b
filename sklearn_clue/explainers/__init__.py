"""Explainers: why a model is unsure, and what would make it sure."""

from sklearn_clue.explainers._clue import CLUEExplainer, CLUEExplainerCV
from sklearn_clue.explainers._groups import GroupExplainer
from sklearn_clue.explainers._neighbor_explainer import NeighborExplainer
from sklearn_clue.explainers._sensitivity import LocalSensitivityExplainer
from sklearn_clue.explainers._ufido import UFIDOExplainer

__all__ = [
    "CLUEExplainer",
    "CLUEExplainerCV",
    "GroupExplainer",
    "LocalSensitivityExplainer",
    "NeighborExplainer",
    "UFIDOExplainer",
]
