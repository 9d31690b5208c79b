"""Explainers: why a model is unsure, and what would make it sure."""

from sklearn_clue.explainers._clue import CLUEExplainer, CLUEExplainerCV

__all__ = ["CLUEExplainer", "CLUEExplainerCV"]
