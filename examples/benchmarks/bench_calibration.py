"""Coverage and calibration error before and after `calibrate`, pooled over splits.

    SKLEARN_CLUE_DATA=... python examples/benchmarks/bench_calibration.py
    SKLEARN_CLUE_DATA=... python examples/benchmarks/bench_calibration.py --bayesian

Three fifths of the rows are for training, one for calibration and one for testing. The
second line samples Bayesian MLPs, which takes longer. Ends with the bars, and exits
with 1 if one is missed.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import KFold, StratifiedKFold

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
)
from sklearn_clue.datasets import fetch_lsat, fetch_wine_quality

COVERAGES = (0.5, 0.8, 0.9, 0.95)
MAX_GAP = 0.02  # between the stated coverage and that of all test rows
MAX_ECE = 0.03
N_LSAT = 2000


def load_lsat():
    """Give some rows of LSAT."""
    X, y = fetch_lsat(return_X_y=True)
    rows = np.random.default_rng(0).choice(len(X), N_LSAT, replace=False)
    return X.iloc[rows], y.iloc[rows]


def load_concrete():
    """Give the strength of concrete by its mixture and age."""
    path = Path(os.environ["SKLEARN_CLUE_DATA"]) / "more" / "concrete.data"
    table = pd.read_csv(path, header=None, sep=r"[\s,]+", engine="python")
    table.columns = [f"column {column}" for column in table]
    return table.iloc[:, :-1], table.iloc[:, -1]


REGRESSION = {
    "wine": lambda: fetch_wine_quality(return_X_y=True),
    "lsat": load_lsat,
    "concrete": load_concrete,
    "diabetes": lambda: load_diabetes(return_X_y=True, as_frame=True),
}
CLASSIFICATION = {
    "digits": lambda: load_digits(return_X_y=True, as_frame=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True, as_frame=True),
}


def splits(X, y, n_splits, *, stratify):
    """Yield rows and targets for training, calibration and testing.

    Five parts of the rows change roles until each was tested and calibrated with once:
    what one part has too much of as a test, it has as a calibration.
    """
    kind = StratifiedKFold if stratify else KFold
    for seed in range(n_splits):
        folds = kind(5, shuffle=True, random_state=seed // 5).split(X, y)
        parts = [test for _, test in folds]
        test, held, *train = parts[seed % 5 :] + parts[: seed % 5]
        pairs = [
            (X.iloc[rows], y.to_numpy()[rows])
            for rows in (np.concatenate(train), held, test)
        ]
        yield seed, *pairs


def regression_figures(model, X, y):
    """How far out each target lies, its log-likelihood, and whether intervals hold it.

    The first goes by the predictive distribution alone, without the conformal step.
    """
    mean, std = np.moveaxis(model.posterior_predictive(X), -1, 0)
    level = np.abs(2 * norm.cdf(y, mean, std).mean(0) - 1)
    density = logsumexp(norm.logpdf(y, mean, std), axis=0) - np.log(len(mean))
    figures = {"NLL": -density}
    for coverage in COVERAGES:
        low, high = model.predict_interval(X, coverage).T
        figures[f"distribution {coverage:.0%}"] = level <= coverage
        figures[f"interval {coverage:.0%}"] = (low <= y) & (y <= high)
    return pd.DataFrame(figures)


def classification_figures(model, X, y):
    """Confidence, correctness and log-loss of each row."""
    proba = model.predict_proba(X)
    own = proba[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return pd.DataFrame(
        {
            "confidence": proba.max(1),
            "is_right": model.predict(X) == y,
            "NLL": -np.log(own.clip(1e-12)),
        }
    )


def calibration_error(confidence, is_right, n_bins=15):
    """Mean gap between confidence and accuracy over bins of equal width."""
    bins = np.clip((confidence * n_bins).astype(int), 0, n_bins - 1)
    gaps = np.bincount(bins, confidence - is_right, n_bins)
    return np.abs(gaps).sum() / len(confidence)


def run(name, kind, settings, n_splits):
    """Fit, calibrate and test on every split; give the pooled figures of both."""
    is_regression = name in REGRESSION
    X, y = (REGRESSION | CLASSIFICATION)[name]()
    of_rows = regression_figures if is_regression else classification_figures
    before, after, factors = [], [], []
    for seed, train, held, test in splits(X, y, n_splits, stratify=not is_regression):
        model = kind(random_state=seed, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of chains that are short on purpose
            model.fit(*train)
        before.append(of_rows(model, *test))
        model.calibrate(*held)
        after.append(of_rows(model, *test))
        found = model.calibration_
        factors.append(found.scale[0] if is_regression else found.temperature)
    table = pd.DataFrame(
        {
            "as fitted": summary(pd.concat(before)),
            "calibrated": summary(pd.concat(after)),
        }
    )
    factor = "scale" if is_regression else "temperature"
    print(f"\n{name}, {n_splits} splits, median {factor} {np.median(factors):.3f}")
    print(table.round(4).to_string(), flush=True)
    return table["calibrated"]


def summary(figures):
    """Pool the figures of all rows."""
    if "confidence" not in figures:
        return figures.mean()
    ece = calibration_error(figures["confidence"], figures["is_right"])
    return pd.Series({"NLL": figures["NLL"].mean(), "ECE": ece})


def main():
    """Run one kind of model over the datasets."""
    names = [*REGRESSION, *CLASSIFICATION]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=names, default=names)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--bayesian", action="store_true", help="sample Bayesian MLPs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = (DeepEnsembleRegressor, DeepEnsembleClassifier)
    if options.bayesian:
        kinds = (BayesianMLPRegressor, BayesianMLPClassifier)
    settings = {"hidden_layer_sizes": (50, 50)}
    bars = []
    for name in options.datasets:
        kind = kinds[name in CLASSIFICATION]
        figures = run(name, kind, settings, options.splits)
        if name in REGRESSION:
            for coverage in COVERAGES:
                gap = abs(figures[f"interval {coverage:.0%}"] - coverage)
                bars.append((f"{name} gap at {coverage:.0%}", gap, MAX_GAP))
        else:
            bars.append((f"{name} ECE", figures["ECE"], MAX_ECE))
    print("\nBars")
    for what, value, bar in bars:
        is_met = value <= bar
        print(f"  {'met   ' if is_met else 'MISSED'}  {what}: {value:.4f} (<= {bar})")
    sys.exit(0 if all(value <= bar for _, value, bar in bars) else 1)


if __name__ == "__main__":
    main()
