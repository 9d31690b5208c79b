"""Small fitted explainers that several tests look at."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    VAEACImputer,
    VAEEncoder,
)

TINY = {"hidden_layer_sizes": (10, 10), "n_draws": 8, "burn_in": 40, "thinning": 2}


@pytest.fixture(autouse=True)
def in_a_hurry():
    """Tiny models say that they are not done; here they need not be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def make_table(n_rows=120, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "income": rng.normal(50, 15, n_rows),
            "job": pd.Categorical(rng.choice(["clerk", "cook", "coach"], n_rows)),
            "smoker": rng.random(n_rows) < 0.4,
        },
        index=[f"r{i}" for i in range(n_rows)],
    )
    score = X["income"] + 12 * (X["job"] == "cook") + rng.normal(0, 8, n_rows)
    return X, np.where(score > 54, "yes", "no"), score.to_numpy()


@pytest.fixture(scope="session")
def table():
    return make_table()


def classifier(**settings):
    return BayesianMLPClassifier(**{**TINY, "random_state": 0, **settings})


def regressor(**settings):
    return BayesianMLPRegressor(**{**TINY, "random_state": 0, **settings})


def vae(**settings):
    settings = {"max_iter": 30, "random_state": 0, **settings}
    return VAEEncoder(3, (20,), **settings)


def vaeac(**settings):
    settings = {"max_iter": 30, "learning_rate": 5e-3, "random_state": 0, **settings}
    return VAEACImputer(3, (20,), **settings)


class Toy:
    """A problem whose uncertainty is a formula, and latents are rows."""

    def __init__(self, uncertainty, x0, decode=None):
        self.x0 = x0.double()
        self._uncertainty, self._decode = uncertainty, decode

    def __len__(self):
        return len(self.x0)

    def judge(self, x, rows):
        return self._uncertainty(x, rows), None

    def weigh(self, parts):
        return parts

    def decode(self, z, rows):
        return z if self._decode is None else self._decode(z, rows)
