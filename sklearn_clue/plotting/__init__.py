"""Pictures of uncertainty and of its explanations.

Each display holds the numbers it shows. A class method that starts with `from_`
computes them and draws; `plot` draws them again.
"""

from sklearn_clue.plotting._curves import (
    LatentPathDisplay,
    RejectionCurveDisplay,
    TradeOffDisplay,
    UncertaintyMapDisplay,
)
from sklearn_clue.plotting._explanation import (
    ExplanationDisplay,
    ImageExplanationDisplay,
)

__all__ = [
    "ExplanationDisplay",
    "ImageExplanationDisplay",
    "LatentPathDisplay",
    "RejectionCurveDisplay",
    "TradeOffDisplay",
    "UncertaintyMapDisplay",
]
