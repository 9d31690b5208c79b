"""The paper's datasets and splits, read from the raw files in $SKLEARN_CLUE_DATA.

Every function returns `X_train, y_train, X_test, y_test` as DataFrames and Series with
the dtypes that the package goes by: numbers are floats, or integers where the file has
them, and categories are pandas categoricals.
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, train_test_split


def _path(name):
    folder = os.environ.get("SKLEARN_CLUE_DATA")
    if not folder:
        raise SystemExit("Set SKLEARN_CLUE_DATA to the folder of the raw data files.")
    return Path(folder) / name


def _split(X, y, train, test):
    parts = (X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test])
    return tuple(part.reset_index(drop=True) for part in parts)


def _first_fold(X, y):
    # The authors permute with this seed and test on the first of ten folds.
    order = np.random.RandomState(42).permutation(len(X))
    train, test = next(KFold(10).split(order))
    return _split(X, y, order[train], order[test])


def wine():
    """Red wine: 11 numbers; the score is the target. 1438 and 160 rows."""
    table = pd.read_csv(_path("winequality-red.csv"), sep=";")
    table = table.iloc[1:]  # the authors' reader loses the first row
    return _first_fold(table.drop(columns="quality"), table["quality"].astype(float))


def lsat():
    """Law school students: 2 numbers and 2 categories. 17432 and 4358 rows."""
    parts = []
    races = ["amerind", "mexican", "other", "black", "asian", "puerto", "hisp", "white"]
    for part in ("train", "test"):
        table = pd.read_csv(_path(f"law_school_cf_{part}.csv"))
        X = pd.DataFrame(
            {
                "LSAT": table["LSAT"].astype(int),
                "UGPA": table["UGPA"],
                "race": pd.Categorical(
                    np.array(races)[table[races].to_numpy().argmax(axis=1)],
                    categories=races,
                ),
                "sex": pd.Categorical(np.where(table["male"], "male", "female")),
            }
        )
        parts += [X, table["ZFYA"]]
    return tuple(parts)


def compas(is_recid=True):
    """COMPAS: 2 numbers and 4 or 5 categories. 5554 and 618 rows.

    Parameters
    ----------
    is_recid : bool, default=True
        Whether the column is included, as in the paper. It nearly is the target.
    """
    table = pd.read_csv(
        _path("compas-scores-two-years.csv.gz"),
        usecols=[
            "age_cat",
            "race",
            "sex",
            "c_charge_degree",
            "is_recid",
            "priors_count",
            "days_b_screening_arrest",
            "c_jail_in",
            "c_jail_out",
            "two_year_recid",
        ],
    )
    table = table[table["days_b_screening_arrest"].between(-30, 30)]
    served = pd.to_datetime(table["c_jail_out"]) - pd.to_datetime(table["c_jail_in"])
    categories = ["age_cat", "race", "sex", "c_charge_degree"]
    X = table[categories + ["is_recid"] * is_recid].astype("category")
    X["priors_count"] = table["priors_count"]
    X["time_served"] = served.dt.days.clip(lower=0).astype(int)
    train, test = train_test_split(
        np.arange(len(X)), test_size=0.1, random_state=42, shuffle=True
    )
    return _split(X, table["two_year_recid"], train, test)


def credit():
    """Credit card clients: 20 numbers and 3 categories. 27000 and 3000 rows."""
    table = pd.read_csv(_path("default_of_credit_card_clients.csv.gz"), header=1)
    y = table.pop("default payment next month")
    X = table.drop(columns="ID")
    for name, n_levels in (("SEX", 2), ("EDUCATION", 4), ("MARRIAGE", 3)):
        codes = table[name] - table[name].min()
        X[name] = codes.clip(upper=n_levels - 1).astype("category")
    return _first_fold(X, y)


def mnist(part="train"):
    """MNIST: rows of 784 grey values from 0 to 255, and the digits.

    Parameters
    ----------
    part : {"train", "test"}, default="train"
        60000 or 10000 rows.
    """
    stem = {"train": "train", "test": "t10k"}[part]
    images = gzip.open(_path(f"{stem}-images-idx3-ubyte.gz")).read()
    labels = gzip.open(_path(f"{stem}-labels-idx1-ubyte.gz")).read()
    return (
        np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784),
        np.frombuffer(labels, np.uint8, offset=8),
    )
