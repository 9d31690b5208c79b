"""What the scripts of this folder share: the paper's data, sizes and settings."""

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.frozen import FrozenEstimator

import sklearn_clue
from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor, VAEEncoder
from sklearn_clue.datasets import (
    fetch_compas,
    fetch_credit_default,
    fetch_lsat,
    fetch_wine_quality,
)


class Task(NamedTuple):
    """One dataset with the paper's settings for it (Tables 4 and 5)."""

    fetch: Callable
    is_regression: bool
    latent_dim: int
    distance_weight: float
    options: dict = {}

    def load(self, scale="full"):
        """Give X, X_test, y, y_test of the authors' split, or a part of each."""
        parts = self.fetch(paper_split=True, return_X_y=True, **self.options)
        if scale == "full":
            return parts
        return [part[: 1000 if i % 2 == 0 else 300] for i, part in enumerate(parts)]

    def new_predictor(self, seed):
        kind = BayesianMLPRegressor if self.is_regression else BayesianMLPClassifier
        return kind(random_state=seed)

    def new_generator(self, predictor, seed, latent_dim=None):
        """A VAE in the encoded space of a fitted predictor."""
        return VAEEncoder(
            latent_dim or self.latent_dim,
            encoder=FrozenEstimator(predictor.encoder_),
            random_state=seed,
        )


TASKS = {
    "lsat": Task(fetch_lsat, True, 4, 1.5),
    "compas": Task(fetch_compas, False, 4, 2.0, {"include_is_recid": True}),
    "wine": Task(fetch_wine_quality, True, 6, 2.5),
    "credit": Task(fetch_credit_default, False, 8, 3.0),
}


def add_arguments(parser):
    """Let all scripts be called in the same way."""
    parser.add_argument("--dataset", nargs="+", choices=list(TASKS), default=[*TASKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--cache", metavar="FOLDER", help="keeps what is finished")
    parser.add_argument("--output", metavar="FILE", type=Path, help="a CSV file")


def save(frame, args):
    """Write a table below lines that tell how it was made."""
    if args.output is None:
        return
    packages = [sklearn_clue, torch, sklearn, np]
    versions = ", ".join(f"{each.__name__} {each.__version__}" for each in packages)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    header = f"# python {command}\n# Python {platform.python_version()}, {versions}\n"
    args.output.write_text(header + pd.DataFrame(frame).to_csv(index=False))
