"""Pictures of uncertainty and of its explanations.

Each display holds the numbers it shows. A class method that starts with `from_`
computes them and draws; `plot` draws them again.
"""

from sklearn_clue.plotting._dependence import DependenceDisplay
from sklearn_clue.plotting._drivers import DriversDisplay
from sklearn_clue.plotting._explanation import ExplanationDisplay
from sklearn_clue.plotting._front import FrontDisplay
from sklearn_clue.plotting._image_explanation import ImageExplanationDisplay
from sklearn_clue.plotting._latent_path import LatentPathDisplay
from sklearn_clue.plotting._rejection_curve import RejectionCurveDisplay
from sklearn_clue.plotting._study import StudyDisplay
from sklearn_clue.plotting._trade_off import TradeOffDisplay
from sklearn_clue.plotting._uncertainty_map import UncertaintyMapDisplay

__all__ = [
    "DependenceDisplay",
    "DriversDisplay",
    "ExplanationDisplay",
    "FrontDisplay",
    "ImageExplanationDisplay",
    "LatentPathDisplay",
    "RejectionCurveDisplay",
    "StudyDisplay",
    "TradeOffDisplay",
    "UncertaintyMapDisplay",
]
