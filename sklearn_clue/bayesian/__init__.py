"""Bayesian neural networks whose weights are sampled, not optimised."""

from sklearn_clue.bayesian._mlp import BayesianMLPClassifier, BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
