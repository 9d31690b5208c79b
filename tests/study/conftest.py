"""A small model and its study, fitted once."""

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import LocalSensitivityExplainer, NeighborExplainer, TabularEncoder
from sklearn_clue.study import Study


def make_table(n_rows, seed=0):
    """Doses that work or not: the model is unsure where the dose is near 5."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 10, n_rows).round(1),
            "age": rng.normal(50, 9, n_rows).round(),
            "clinic": rng.choice(["north", "south"], n_rows),
        },
        index=[f"patient {i}" for i in range(n_rows)],
    )
    y = np.where(X["dose"] + rng.normal(size=n_rows) > 5, "works", "fails")
    return X, y


@pytest.fixture(scope="session")
def doses():
    """Training rows and the pool."""
    X, y = make_table(900)
    return X[:300], y[:300], X[300:]


@pytest.fixture(scope="session")
def explainers(doses):
    """Explainers of one model, fitted, by name."""
    X, y, _ = doses
    model = make_pipeline(TabularEncoder(), LogisticRegression()).fit(X, y)
    model = FrozenEstimator(model)
    return {
        "neighbors": NeighborExplainer(model).fit(X, y),
        "sensitivity": LocalSensitivityExplainer(model, step_size=0.1).fit(X, y),
    }


@pytest.fixture(scope="session")
def study(doses, explainers):
    """A study of four variants."""
    X, _, pool = doses
    methods = {**explainers, "random": "random", "none": None}
    return Study(methods, X, pool, random_state=0)
