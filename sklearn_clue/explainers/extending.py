"""The doors for new objectives and methods; see the recipes of the developers' page.

Like all that developers build on, these names may change between releases.
"""

from sklearn_clue.explainers._base import BaseUncertaintyExplainer
from sklearn_clue.explainers._objectives import Ball, Objective, Penalty, Threshold
from sklearn_clue.explainers._problem import SearchProblem, with_slope
from sklearn_clue.explainers._results import Found
from sklearn_clue.explainers._search import StoppingRule, evaluate, minimise_rows

__all__ = [
    "Ball",
    "BaseUncertaintyExplainer",
    "Found",
    "Objective",
    "Penalty",
    "SearchProblem",
    "StoppingRule",
    "Threshold",
    "evaluate",
    "minimise_rows",
    "with_slope",
]
