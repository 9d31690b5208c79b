"""The paper's datasets, and one whose uncertainty is known exactly."""

from sklearn_clue.datasets._loaders import (
    fetch_compas,
    fetch_credit_default,
    fetch_lsat,
    fetch_mnist,
    fetch_wine_quality,
)
from sklearn_clue.datasets._synthetic import make_mixed_toy

__all__ = [
    "fetch_compas",
    "fetch_credit_default",
    "fetch_lsat",
    "fetch_mnist",
    "fetch_wine_quality",
    "make_mixed_toy",
]
