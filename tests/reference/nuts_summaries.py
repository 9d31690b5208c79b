"""What the maker of a NUTS reference and its readers share: rows and summaries.

It needs neither numpyro nor torch, so that each side runs in its own environment.
"""

import os
from pathlib import Path

import numpy as np
from scipy.special import entr, logsumexp
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split

MAX_TEST_ROWS = 300


def load_concrete():
    """Read the table of concrete strengths: eight numbers and the target, no header."""
    folder = Path(os.environ.get("SKLEARN_CLUE_DATA", "."))
    table = np.loadtxt(folder / "more" / "concrete.data")
    return table[:, :-1], table[:, -1]


LOADERS = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "concrete": load_concrete,
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
}
CLASSIFICATION = {"breast_cancer"}


def split(dataset, n_train):
    """Draw training rows, and test rows from the rest.

    Parameters
    ----------
    dataset : {"diabetes", "concrete", "breast_cancer"}
        The last asks for classes. Concrete is read from `more/concrete.data` in the
        folder that SKLEARN_CLUE_DATA names.
    n_train : int
        Number of training rows.

    Returns
    -------
    X_train, X_test, y_train, y_test : ndarray
        In their own units.
    """
    X, y = LOADERS[dataset]()
    return train_test_split(
        X,
        y,
        train_size=n_train,
        test_size=min(len(X) - n_train, MAX_TEST_ROWS),
        random_state=0,
        stratify=y if dataset in CLASSIFICATION else None,
    )


def summarise(draws, dataset):
    """Summarise posterior draws per row.

    Parameters
    ----------
    draws : ndarray of shape (n_draws, n_rows, 2)
        What each draw predicts: mean and standard deviation of a number, or the
        probabilities of two classes.
    dataset : str
        Tells which of the two.

    Returns
    -------
    summary : dict of ndarray of shape (n_rows,)
        For numbers `mean` and standard deviations. For classes the `mean` probability
        of class 1, its `epistemic_std` over draws, and entropies in nats.
    """
    if dataset in CLASSIFICATION:
        total = entr(draws.mean(axis=0)).sum(axis=-1)
        aleatoric = entr(draws).sum(axis=-1).mean(axis=0)
        return {
            "mean": draws[..., 1].mean(axis=0),
            "epistemic_std": draws[..., 1].std(axis=0),
            "total": total,
            "aleatoric": aleatoric,
            "epistemic": total - aleatoric,
        }
    aleatoric = np.sqrt(np.mean(draws[..., 1] ** 2, axis=0))
    epistemic = draws[..., 0].std(axis=0)
    return {
        "mean": draws[..., 0].mean(axis=0),
        "total_std": np.hypot(aleatoric, epistemic),
        "aleatoric_std": aleatoric,
        "epistemic_std": epistemic,
    }


def log_density(draws, y, dataset):
    """Mean over rows of the log of the predictive density of what was observed."""
    if dataset in CLASSIFICATION:
        each = np.log(draws[:, np.arange(len(y)), y])
    else:
        each = norm.logpdf(y, draws[..., 0], draws[..., 1])
    return float(np.mean(logsumexp(each, axis=0) - np.log(len(draws))))


def agreement(draws, y, reference):
    """Compare posterior draws with a reference.

    Parameters
    ----------
    draws : ndarray of shape (n_draws, n_rows, 2)
        As for `summarise`, for the test rows of the reference.
    y : ndarray of shape (n_rows,)
        Targets of these rows.
    reference : dict
        Summaries of `summarise` and the `log_density`, such as a file of
        make_nuts_reference.py holds.

    Returns
    -------
    found : dict of float
        Per summary the correlation over rows and the ratio of means; the log density
        minus that of the reference.
    """
    dataset = reference["recipe"]["settings"]["dataset"]
    found = {}
    for name, ours in summarise(draws, dataset).items():
        theirs = np.asarray(reference[name])
        found[f"{name}_correlation"] = float(np.corrcoef(ours, theirs)[0, 1])
        found[f"{name}_ratio"] = float(ours.mean() / theirs.mean())
    found["log_density_difference"] = (
        log_density(draws, y, dataset) - reference["log_density"]
    )
    return found
