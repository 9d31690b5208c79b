"""What the scripts of this folder share: the paper's data, sizes and settings."""

import argparse
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
import sklearn
import torch
from joblib import Memory
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

import sklearn_clue
from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor, VAEEncoder
from sklearn_clue.datasets import (
    fetch_compas,
    fetch_credit_default,
    fetch_lsat,
    fetch_wine_quality,
)
from sklearn_clue.exceptions import SearchConvergenceWarning


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


def run(description, lines_of):
    """Make a table from the command line, line by line.

    Parameters
    ----------
    description : str
        What the script does; its first line is shown as help.

    lines_of : callable
        `lines_of(name, seed, scale, memory)` yields the lines of a dataset and a seed,
        as dicts.

    Returns
    -------
    table : DataFrame
        All lines. They were printed and saved as they came.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--dataset", nargs="+", choices=list(TASKS), default=[*TASKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--cache", metavar="FOLDER", help="keeps what is finished")
    parser.add_argument("--output", metavar="FILE", type=Path, help="a CSV file")
    args = parser.parse_args()
    for category in (ConvergenceWarning, SearchConvergenceWarning):
        warnings.simplefilter("ignore", category)
    memory = Memory(args.cache, verbose=0)
    lines = []
    for name in args.dataset:
        for seed in args.seeds:
            for line in lines_of(name, seed, args.scale, memory):
                lines.append(line)
                print(", ".join(f"{key} {value}" for key, value in line.items()))
                sys.stdout.flush()
                if args.output is not None:
                    save(lines, args.output)
    return pd.DataFrame(lines)


def save(lines, path):
    """Write a table below lines that tell how it was made."""
    header = f"# {command()}\n# {versions()}\n"
    path.write_text(header + pd.DataFrame(lines).to_csv(index=False))


def command():
    """What was typed, without folders: they say where, and not what."""
    words = [Path(word).name if os.sep in word else word for word in sys.argv]
    return shlex.join(["python", *words])


def versions():
    """What it ran on."""
    packages = [sklearn_clue, sklearn, torch, np, scipy, pd]
    numbers = [f"{each.__name__} {each.__version__}" for each in packages]
    return ", ".join([f"python {platform.python_version()}", *numbers])
