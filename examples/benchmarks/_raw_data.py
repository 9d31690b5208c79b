"""The paper's tabular datasets from raw files, on the paper's splits.

Reads the folder that the environment variable SKLEARN_CLUE_DATA names. Each function
returns X_train, y_train, X_test, y_test with X as a raw DataFrame.
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, train_test_split


def folder():
    """Return the folder of raw files, or say what is missing."""
    path = os.environ.get("SKLEARN_CLUE_DATA")
    if not path or not Path(path).is_dir():
        raise SystemExit(
            "Set SKLEARN_CLUE_DATA to the folder that holds the raw data files "
            f"(now: {path!r})."
        )
    return Path(path)


def wine():
    """Red wine quality (regression); the authors' reader loses the first row."""
    table = pd.read_csv(folder() / "winequality-red.csv", sep=";").iloc[1:]
    return _first_of_ten_folds(table.drop(columns="quality"), table["quality"])


def lsat():
    """First-year average of law students (regression)."""
    parts = []
    for name in ("train", "test"):
        table = pd.read_csv(folder() / f"law_school_cf_{name}.csv")
        race = ["amerind", "mexican", "other", "black", "asian", "puerto", "hisp"]
        X = table[["LSAT", "UGPA"]].copy()
        X["race"] = pd.Categorical(table[[*race, "white"]].idxmax(axis=1))
        X["sex"] = pd.Categorical(table[["female", "male"]].idxmax(axis=1))
        parts += [X, table["ZFYA"]]
    return tuple(parts)


def compas(include_is_recid=True):
    """Two-year recidivism (binary); `is_recid` nearly is the target."""
    columns = ["age_cat", "race", "sex", "c_charge_degree", "priors_count"]
    helpers = ["is_recid", "days_b_screening_arrest", "c_jail_in", "c_jail_out"]
    table = pd.read_csv(
        folder() / "compas-scores-two-years.csv.gz",
        usecols=[*columns, *helpers, "two_year_recid"],
    )
    table = table[table["days_b_screening_arrest"].between(-30, 30)]
    jail = pd.to_datetime(table["c_jail_out"]) - pd.to_datetime(table["c_jail_in"])
    X = table[columns].astype(dict.fromkeys(columns[:4], "category"))
    X["time_served"] = jail.dt.days.clip(lower=0)
    if include_is_recid:
        X["is_recid"] = table["is_recid"].astype("category")
    X_train, X_test, y_train, y_test = train_test_split(
        X, table["two_year_recid"], test_size=0.1, random_state=42
    )
    return X_train, y_train, X_test, y_test


def credit():
    """Default on credit card payments (binary), with the authors' categories."""
    table = pd.read_csv(
        folder() / "default_of_credit_card_clients.csv.gz", header=1, index_col="ID"
    )
    y = table.pop("default payment next month")
    for column, n_levels in {"SEX": 2, "EDUCATION": 4, "MARRIAGE": 3}.items():
        codes = (table[column] - table[column].min()).clip(upper=n_levels - 1)
        table[column] = codes.astype("category")
    return _first_of_ten_folds(table, y)


def mnist(part="train"):
    """MNIST: rows of 784 grey values from 0 to 255, and the digits.

    Parameters
    ----------
    part : {"train", "test"}, default="train"
        60000 or 10000 rows.
    """
    stem = {"train": "train", "test": "t10k"}[part]
    images = gzip.open(folder() / f"{stem}-images-idx3-ubyte.gz").read()
    labels = gzip.open(folder() / f"{stem}-labels-idx1-ubyte.gz").read()
    return (
        np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784),
        np.frombuffer(labels, np.uint8, offset=8),
    )


def _first_of_ten_folds(X, y):
    order = np.random.RandomState(42).permutation(len(X))
    X, y = X.iloc[order], y.iloc[order]
    train, test = next(KFold(10).split(X))
    return X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test]
