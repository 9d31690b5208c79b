"""Models as explainers see them: sources of uncertainty.

Names that are not in `__all__` are for other parts of the package.
"""
# ruff: noqa: F401  (names are imported here to be imported from here)

from sklearn_clue.providers._models import (
    check_prediction,
    is_net,
    labels_of,
    names_after,
    peel,
    read_task,
    same_steps,
    thawed,
)
from sklearn_clue.providers._networks import (
    AffineInputs,
    EnsembleProvider,
    check_gradients,
    decide,
    unit_of,
)
from sklearn_clue.providers._registry import (
    as_provider,
    as_table_provider,
    check_model,
    takes_tables,
)
from sklearn_clue.providers._sensitivity import global_sensitivity
from sklearn_clue.providers._unseen import unseen_uncertainty

__all__ = ["as_provider", "global_sensitivity"]
