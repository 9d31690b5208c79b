"""Explain why a model is unsure, and what would make it sure."""

from sklearn_clue.encoding import TabularEncoder

__all__ = ["TabularEncoder", "__version__"]

__version__ = "0.1.0.dev0"
