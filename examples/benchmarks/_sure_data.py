"""Data and fitted models of `bench_sure.py` and `bench_dice.py`."""

import os
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

import sklearn_clue
from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.datasets import (
    fetch_compas,
    fetch_credit_default,
    fetch_lsat,
    fetch_wine_quality,
)

PAPER = {
    "wine": (fetch_wine_quality, 6),
    "lsat": (fetch_lsat, 4),
    "compas": (fetch_compas, 4),
    "credit": (fetch_credit_default, 8),
}
PAPER_WEIGHT = {"wine": 2.5, "lsat": 1.5, "compas": 2.0, "credit": 3.0, "digits": 25.0}
MORE = {
    "adult": (
        "adult.csv.gz",
        "age workclass fnlwgt education education_num marital occupation relationship "
        "race sex gain loss hours country income",
        {"skipinitialspace": True, "na_values": "?", "nrows": 4000},
    ),
    "german": (
        "german.csv",
        "checking duration history purpose amount savings employment rate status "
        "debtors residence property age plans housing n_credits job n_dependents phone "
        "foreign risk",
        {},
    ),
    "concrete": (
        "concrete.data",
        "cement slag ash water plasticizer coarse fine age strength",
        {"sep": r"\s+"},
    ),
}
NAMES = ["law", *PAPER, "cancer", "diabetes", "german", "concrete", "titanic", "adult"]
IMAGES = "digits"
REGRESSIONS = ("wine", "lsat", "diabetes", "concrete")


class Law:
    """Correlated rows: density and probabilities of the classes are formulas."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.loadings = rng.normal(size=(5, 14)) / np.sqrt(5)
        covariance = self.loadings.T @ self.loadings + 0.35**2 * np.eye(14)
        slope = rng.normal(size=14) * (rng.random(14) < 0.5)
        sharpness = rng.normal(size=14) * (rng.random(14) < 0.4)
        self.slope = slope / np.sqrt(slope @ covariance @ slope)
        self.sharpness = sharpness / np.sqrt(sharpness @ covariance @ sharpness)
        self.precision = np.linalg.inv(covariance)

    def probability(self, X):
        X = np.asarray(X)
        return 1 / (1 + np.exp(-3 * (X @ self.slope) * self.gate(X)))

    def gate(self, X):
        """Sharp in one half of space, flat in the other."""
        return 1 / (1 + np.exp(-2 * (X @ self.sharpness) - 1))

    def entropy(self, X):
        p = self.probability(X)
        return -(p * np.log(p + 1e-300) + (1 - p) * np.log(1 - p + 1e-300))

    def log_density(self, X):
        X = np.asarray(X)
        return -0.5 * np.einsum("ij,jk,ik->i", X, self.precision, X)

    def draw(self, n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_rows, 5)) @ self.loadings
        X = X + 0.35 * rng.normal(size=X.shape)
        y = np.where(rng.random(n_rows) < self.probability(X), "yes", "no")
        return pd.DataFrame(X, columns=[f"c{j}" for j in range(14)]), y


def load_data(name):
    """Training and test rows, targets of the first, and the number of latents."""
    if name == "law":
        (X, y), (X_test, _) = Law().draw(2000, 1), Law().draw(1500, 2)
        return X, X_test, y, 6
    if name in PAPER:
        fetch, n_latent = PAPER[name]
        X, X_test, y, _ = fetch(paper_split=True, return_X_y=True)
        return X, X_test, y, n_latent
    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    elif name == IMAGES:
        X, y = load_digits(return_X_y=True, as_frame=True)
        X = X / 16
    else:
        X, y = read_table(name)
    X, X_test, y, _ = train_test_split(X, y, test_size=0.3, random_state=0)
    return X, X_test, y, min(8, X.shape[1] // 2)


def read_table(name):
    """A raw table, with its gaps: rows and targets."""
    folder = Path(os.environ["SKLEARN_CLUE_DATA"]) / "more"
    if name == "titanic":
        table = pd.read_csv(folder / "titanic.csv").drop(columns="alive")
        return table.drop(columns="survived"), table["survived"]
    file, columns, options = MORE[name]
    table = pd.read_csv(folder / file, names=columns.split(), **options)
    return table.iloc[:, :-1], table.iloc[:, -1]


class Models(NamedTuple):
    """Fitted models and the data they were fitted to."""

    X: pd.DataFrame
    X_test: pd.DataFrame
    y: np.ndarray
    predictor: object
    generator: object


def load_models(name, seed, folder=None):
    """Default models, fitted or from the folder where they are kept."""
    X, X_test, y, n_latent = load_data(name)
    kind = BayesianMLPRegressor if name in REGRESSIONS else BayesianMLPClassifier
    predictor = kind(random_state=seed)
    generator = VAEEncoder(n_latent, random_state=seed)
    if name == IMAGES:  # pixels between 0 and 1 need no encoding
        predictor.set_params(encoder="passthrough")
        generator.set_params(image_shape=(8, 8))

    def fit():
        predictor.fit(X, y)
        if name != IMAGES:
            generator.set_params(encoder=FrozenEstimator(predictor.encoder_))
        return predictor, generator.fit(X)

    return Models(X, X_test, y, *kept(folder, name, [predictor, generator], fit))


def load_imputer(name, seed, models, folder=None):
    """The model of U-FIDO."""
    imputer = VAEACImputer(load_data(name)[3], random_state=seed)

    def fit():
        encoder = FrozenEstimator(models.predictor.encoder_)
        return imputer.set_params(encoder=encoder).fit(models.X)

    return kept(folder, f"{name}-imputer", [models.predictor, imputer], fit)


def kept(folder, name, estimators, fit):
    """What a function fits, once if there is a folder to keep it in.

    A file is of the settings of these estimators and of this version of the package
    and of torch. Within a version under development the folder is yours to empty.
    """
    settings = [each.get_params() for each in estimators]
    key = joblib.hash([settings, sklearn_clue.__version__, torch.__version__])
    return made_once(folder, f"{name}-{estimators[-1].random_state}-{key[:8]}", fit)


def made_once(folder, name, make):
    """What a function makes, from a file if there is a folder that has it."""
    if folder is None:
        return make()
    path = Path(folder) / f"{name}.joblib"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        joblib.dump(make(), path)
    return joblib.load(path)
