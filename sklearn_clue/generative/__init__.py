"""Generative models: what rows look like, and how probable they are."""

from sklearn_clue.generative._base import ConditionalModel, DensityModel, LatentModel
from sklearn_clue.generative._vae import VAEEncoder

__all__ = ["ConditionalModel", "DensityModel", "LatentModel", "VAEEncoder"]
