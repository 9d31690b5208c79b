"""Generative models: what rows look like, and how probable they are."""

from sklearn_clue.generative._two_level import TwoLevelVAEAC
from sklearn_clue.generative._vae import VAEEncoder
from sklearn_clue.generative._vaeac import VAEACImputer
from sklearn_clue.generative.protocols import (
    ConditionalModel,
    DensityModel,
    LatentModel,
)

__all__ = [
    "ConditionalModel",
    "DensityModel",
    "LatentModel",
    "TwoLevelVAEAC",
    "VAEACImputer",
    "VAEEncoder",
]
