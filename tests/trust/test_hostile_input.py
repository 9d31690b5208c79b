"""Hostile input: a correct result, or an error that names the thing before training.

The tables below are the test. Each line is a name, how to make the input, and, if it
must be refused, the words that the message holds.
"""

import operator
import warnings
from datetime import datetime, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sklearn_clue.bayesian._mlp
import sklearn_clue.generative._base
from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    CLUEExplainerCV,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.generative import TwoLevelVAEAC

N_ROWS = 16

TINY = {
    "hidden_layer_sizes": (4,),
    "n_draws": 4,
    "burn_in": 0,
    "thinning": 1,
    "n_chains": 1,
    "random_state": 0,
}
MEMBERS = {"hidden_layer_sizes": (4,), "n_members": 2, "max_iter": 2, "random_state": 0}
CLASSIFIER = BayesianMLPClassifier(**TINY)
REGRESSOR = BayesianMLPRegressor(**TINY)
VAE = VAEEncoder(2, (4,), max_iter=1, random_state=0)
VAEAC = VAEACImputer(2, (4,), max_iter=1, n_draws=2, random_state=0)
ESTIMATORS = {
    "encoder": TabularEncoder(),
    "classifier": CLASSIFIER,
    "regressor": REGRESSOR,
    "vae": VAE,
    "vaeac": VAEAC,
    "two-level": TwoLevelVAEAC(VAEAC, VAE, random_state=0),
    "clue": CLUEExplainer(CLASSIFIER, VAE, max_iter=2, random_state=0),
    "clue-lambda": CLUEExplainer(
        CLASSIFIER, VAE, distance_weight=2.0, max_iter=2, random_state=0
    ),
    "clue-cv": CLUEExplainerCV(
        CLASSIFIER, VAE, distance_weights=[1.0], cv=2, max_iter=2, random_state=0
    ),
    "ensemble-classifier": DeepEnsembleClassifier(**MEMBERS),
    "ensemble-regressor": DeepEnsembleRegressor(**MEMBERS),
    "neighbors": NeighborExplainer(REGRESSOR, random_state=0),
    "sensitivity": LocalSensitivityExplainer(REGRESSOR, random_state=0),
    "ufido": UFIDOExplainer(REGRESSOR, VAEAC, max_iter=2, n_masks=2, random_state=0),
}
CLASSIFIERS = {
    "classifier",
    "ensemble-classifier",
    "clue",
    "clue-lambda",
    "clue-cv",
}
REGRESSORS = {"regressor", "ensemble-regressor", "neighbors", "sensitivity", "ufido"}
EXPLAINERS = {"clue", "clue-lambda", "clue-cv", "neighbors", "sensitivity", "ufido"}
FILLERS = {"vaeac", "two-level"}  # of missing values


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    """Short chains; tiny models say that they are not done, and need not be."""
    monkeypatch.setattr(sklearn_clue.bayesian._mlp, "MIN_ADAPTATION", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.fixture
def no_training(monkeypatch):
    """Whatever is wrong must be found out before the work begins."""

    def fail(*args, **kwargs):
        raise AssertionError("training was reached")

    monkeypatch.setattr(sklearn_clue.bayesian._mlp, "run_chains", fail)
    monkeypatch.setattr(sklearn_clue.bayesian._ensemble, "train_member", fail)
    monkeypatch.setattr(sklearn_clue.generative._base, "train", fail)


# --- Good rows, and ways to spoil them ---


def good(n_rows=N_ROWS):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "weight": rng.normal(70, 12, n_rows),
            "color": np.resize(["red", "green", "blue"], n_rows),
            "member": np.resize([True, False], n_rows),
        },
        index=[f"row {i}" for i in range(n_rows)],
    )


def numbers(dtype=np.float64, n_rows=N_ROWS):
    return (10 * np.random.default_rng(0).normal(size=(n_rows, 3))).astype(dtype)


def labels(n_rows):
    return np.resize(["no", "yes"], n_rows)


def with_column(values, name="strange"):
    return good().assign(**{name: values})


def with_cell(value, name="weight"):
    X = good()
    X[name] = X[name].astype(object)
    X.loc["row 3", name] = value
    return X if isinstance(value, str) or name == "color" else X.infer_objects()


def renamed(names):
    X = good()
    X.columns = names
    return X


def frozen(array):
    array.flags.writeable = False
    return array


def strings(*values):
    return np.resize(np.array(values, dtype=object), N_ROWS)


# --- Rows to fit on: name -> how to make them ---

FINE_ROWS = {
    "a mixed frame": good,
    "two rows": lambda: good(2),
    "values around 1e30": lambda: good().assign(weight=1e30 * numbers()[:, 0]),
    "values around 1e-30": lambda: good().assign(weight=1e-30 * numbers()[:, 0]),
    "values from 1e-30 to 1e30": lambda: with_column(np.logspace(-30, 30, N_ROWS)),
    "values around 1e300": lambda: with_column(1e300 * numbers()[:, 0]),
    "values up to the largest": lambda: with_column(
        np.resize([1.2e308, np.finfo(float).max, -1e308, 0.0], N_ROWS)
    ),
    "denormal values": lambda: with_column(5e-324 * np.arange(N_ROWS)),
    "a constant number": lambda: with_column(7.5),
    "a constant category": lambda: with_column("always"),
    "nothing but constants": lambda: good()[["color"]].assign(color="red"),
    "equal columns": lambda: with_column(good()["weight"]),
    "equal rows": lambda: good().iloc[np.resize([0, 1], N_ROWS)],
    "one column": lambda: good()[["weight"]],
    "more columns than rows": lambda: pd.DataFrame(numbers(n_rows=60).reshape(4, 45)),
    "10 000 declared categories": lambda: with_column(
        pd.Categorical(np.arange(N_ROWS).astype(str), map(str, range(10_000)))
    ),
    "a name in every row": lambda: with_column([f"id {i}" for i in range(N_ROWS)]),
    "names in other scripts": lambda: renamed(["年齢", "βάρος", "färg", "🙂"]),
    "names with markup": lambda: renamed(["<b>", "a\nb", "{{ x }}", "'\""]),
    "empty and blank names": lambda: renamed(["", " ", "\t", "  "]),
    "names that are numbers": lambda: renamed([3, 1, 4, 15]),
    "names of two levels": lambda: renamed(
        pd.MultiIndex.from_product([["a", "b"], [0, 1]])
    ),
    "names of our own encoding": lambda: renamed(["age", "age_red", "x0", "color_red"]),
    "repeated index": lambda: good().set_axis([0] * N_ROWS),
    "an index of two levels": lambda: good().set_axis(
        pd.MultiIndex.from_arrays([np.arange(N_ROWS)[::-1], labels(N_ROWS)])
    ),
    "an index of dates": lambda: good().set_axis(
        pd.date_range("2020-01-01", periods=N_ROWS)
    ),
    "categories in other scripts": lambda: good().assign(color=strings("å", "ø", "🙂")),
    "categories that are numbers": lambda: with_column(
        pd.Categorical(np.resize([3, 1, 2], N_ROWS))
    ),
    "categories that nobody has": lambda: good().assign(
        color=pd.Categorical(good()["color"], ["blue", "red", "none", "green"])
    ),
    "an empty string among categories": lambda: good().assign(color=strings("", " ")),
    "the word nan as a category": lambda: good().assign(color=strings("nan", "None")),
    "nullable dtypes": lambda: good().astype(
        {"age": "Int64", "weight": "Float64", "color": "string", "member": "boolean"}
    ),
    "durations": lambda: with_column(pd.to_timedelta(np.arange(N_ROWS), unit="h")),
    "durations in polars": lambda: pl.DataFrame(
        {"wait": [timedelta(hours=n % 7) for n in range(N_ROWS)]}
    ),
    "durations in an array": lambda: (
        np.arange(N_ROWS * 2).reshape(-1, 2).astype("timedelta64[m]")
    ),
    "sparse columns": lambda: pd.DataFrame(numbers()).astype(pd.SparseDtype(float)),
    "small dtypes": lambda: good().astype({"age": "int8", "weight": "float16"}),
    "unsigned integers beyond int64": lambda: with_column(
        np.uint64(2**63) + np.arange(N_ROWS).astype(np.uint64)
    ),
    "polars": lambda: pl.DataFrame(good().to_dict("list")),
    "float16": lambda: numbers(np.float16),
    "float32": lambda: numbers(np.float32),
    "long double": lambda: numbers(np.longdouble),
    "int8": lambda: numbers(np.int8),
    "an array of booleans": lambda: numbers() > 0,
    "objects that are numbers": lambda: numbers().astype(object),
    "digits as strings": lambda: numbers(np.int8).astype(str),
    "big-endian": lambda: numbers(">f8"),
    "read-only": lambda: frozen(numbers()),
    "Fortran order": lambda: np.asfortranarray(numbers()),
    "every other cell": lambda: np.repeat(np.repeat(numbers(), 2, 0), 2, 1)[::2, ::2],
    "upside down": lambda: numbers()[::-1, ::-1],
    "a list of lists": lambda: numbers().tolist(),
    "a subnormal spread": lambda: numbers() * 1e-310,
    "NaN in a number": lambda: with_cell(np.nan),
    "None in a category": lambda: with_cell(None, "color"),
    "NaN in a category": lambda: with_cell(np.nan, "color"),
    "pd.NA in an integer": lambda: with_column(
        pd.array([None, *range(1, N_ROWS)], dtype="Int64")
    ),
    "pd.NA in a boolean": lambda: with_column(
        pd.array([None, *[True] * (N_ROWS - 1)], dtype="boolean")
    ),
    "null in polars": lambda: pl.DataFrame(
        {"strange": [None, *map(float, range(1, N_ROWS))]}
    ),
    "NaN in an array": lambda: np.where(numbers() > 5, np.nan, numbers()),
}

# Name -> how to make them, what the error must say.
BAD_ROWS = {
    "nothing but NaN": (lambda: with_column(np.nan), "'strange'"),
    "a category without values": (lambda: with_column(None), "'strange'"),
    "infinity": (lambda: with_cell(np.inf), "infinity.*'weight'"),
    "minus infinity": (lambda: with_cell(-np.inf), "infinity.*'weight'"),
    "infinity in float16": (
        lambda: np.array([[1.0], [np.inf]] * 8, dtype=np.float16),
        "infinity",
    ),
    "numbers and words in one column": (
        lambda: with_column(strings(1, "one")),
        "'strange'.*int, str",
    ),
    "a word among numbers": (lambda: with_cell("heavy"), "'weight'.*float, str"),
    "booleans and words": (lambda: with_column(strings(True, "no")), "'strange'"),
    "dates": (
        lambda: with_column(pd.date_range("2020-01-01", periods=N_ROWS)),
        "'strange'.*datetime64",
    ),
    "dates with a zone": (
        lambda: with_column(pd.date_range("2020-01-01", periods=N_ROWS, tz="UTC")),
        "'strange'.*datetime64",
    ),
    "times of day": (
        lambda: with_column([time(n % 24) for n in range(N_ROWS)]),
        "(?s)'strange'.*time.*hour",
    ),
    "periods as objects": (
        lambda: with_column(
            pd.period_range("2020", periods=N_ROWS).astype(object).to_numpy()
        ),
        "(?s)'strange'.*period.*month",
    ),
    "periods": (
        lambda: with_column(pd.period_range("2020", periods=N_ROWS, freq="D")),
        "'strange'.*period",
    ),
    "dates in an array": (
        lambda: np.arange(N_ROWS).astype("datetime64[D]")[:, None],
        "datetime64",
    ),
    "dates in polars": (
        lambda: pl.DataFrame(
            {"strange": [datetime(2020, 1, 1 + day) for day in range(N_ROWS)]}
        ),
        "'strange'.*Datetime",
    ),
    "complex numbers": (lambda: numbers() * 1j, "[Cc]omplex"),
    "a complex column": (lambda: with_column(numbers()[:, 0] * 1j), "'strange'"),
    "lists in cells": (lambda: with_column([[1, 2]] * N_ROWS), "'strange'.*list"),
    "dicts in cells": (lambda: with_column([{"a": 1}] * N_ROWS), "'strange'.*dict"),
    "arrays in cells": (
        lambda: with_column([np.zeros(2)] * N_ROWS),
        "'strange'.*ndarray",
    ),
    "words in an array": (lambda: np.full((N_ROWS, 2), "word"), "word"),
    "a sparse matrix": (lambda: scipy.sparse.csr_matrix(numbers()), "[Ss]parse"),
    "no rows": (lambda: good().iloc[:0], "0 sample"),
    "no columns": (lambda: good()[[]], "0 feature"),
    "an array without rows": (lambda: numbers()[:0], "0 sample"),
    "an array without columns": (lambda: numbers()[:, :0], "0 feature"),
    "polars without rows": (lambda: pl.DataFrame({"a": []}), "0 sample"),
    "one dimension": (lambda: numbers()[0], "2D array, got 1D array"),
    "three dimensions": (lambda: numbers()[None], "dim 3"),
    "a series": (lambda: good()["weight"], "2-dimensional.*Series"),
    "a number": (lambda: 3.0, "scalar"),
    "None": (lambda: None, "None"),
    "a word": (lambda: "table.csv", "table.csv"),
    "repeated names": (lambda: renamed(["a", "a", "b", "c"]), "unique.*'a'"),
    "names of several types": (
        lambda: renamed(["a", 1, "b", 2]),
        r"\['int', 'str'\]",
    ),
}


def target_of(name, X):
    n_rows = np.shape(X)[0] if np.ndim(X) else N_ROWS
    if name in CLASSIFIERS:
        return labels(n_rows)
    return np.linspace(0, 1, n_rows) if name in REGRESSORS else None


def head(X, n_rows=3):
    return X.iloc[:n_rows] if isinstance(X, pd.DataFrame) else X[:n_rows]


def is_finite(*arrays):
    return all(np.isfinite(np.asarray(array, dtype=float)).all() for array in arrays)


def check_container(got, X):
    """Rows come back as they went in: container, names, index and dtypes."""
    assert type(got) is type(X if hasattr(X, "shape") else np.empty(0))
    if isinstance(X, pd.DataFrame):
        assert got.columns.equals(X.columns) and got.index.equals(X.index)
        assert list(got.dtypes) == list(X.dtypes)
    elif isinstance(X, pl.DataFrame):
        assert got.schema == X.schema
    assert np.shape(got) == np.shape(X)
    # Nothing is missing that was there.
    was, now = (pd.isna(np.asarray(rows, dtype=object)) for rows in (X, got))
    assert not (now & ~was).any()


def check_encoder(encoder, X):
    x = encoder.transform(X)
    assert x.shape == (len(X), encoder.schema_.n_encoded) and is_finite(x)
    assert np.abs(x).max() <= np.sqrt(len(X)) + 1e-6  # of standard scores


def check_predictor(estimator, X):
    parts = estimator.predict_uncertainty(X)
    assert all(part.shape == (len(X),) for part in parts) and is_finite(*parts)
    assert all((part >= 0).all() for part in parts)
    if hasattr(estimator, "classes_"):
        proba = estimator.predict_proba(X)
        assert proba.shape == (len(X), len(estimator.classes_)) and is_finite(proba)
        np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
        assert np.isin(estimator.predict(X), estimator.classes_).all()
    else:
        assert is_finite(estimator.predict(X))


def check_vae(vae, X):
    z = vae.transform(X)
    assert z.shape == (len(X), vae.latent_dim_) and is_finite(z)
    assert is_finite(vae.score_samples(X, n_importance=2))


def check_vaeac(imputer, X):
    filled = imputer.transform(X)
    check_container(filled, X)
    assert not pd.isna(np.asarray(filled, dtype=object)).any()
    observed = ~pd.isna(np.asarray(X, dtype=object))
    cells = (np.asarray(table, dtype=object)[observed] for table in (filled, X))
    assert all(map(operator.eq, *cells))
    assert is_finite(imputer.score_samples(X, n_importance=2))


def check_two_level(model, X):
    assert is_finite(model.score_samples(X, n_importance=2))
    assert np.shape(model.sample(2)) == (2, np.shape(X)[1])


def check_explainer(explainer, X):
    X = head(X)
    check_predictor(explainer, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explanation = explainer.explain(X)
    check_container(explanation.counterfactuals, X)
    gaps = pd.isna(np.asarray(X, dtype=object))
    kept = pd.isna(np.asarray(explanation.counterfactuals, dtype=object))
    assert (kept == gaps).all()
    assert is_finite(explanation.distance)
    assert explanation.objective is None or is_finite(explanation.objective)
    assert is_finite(*explanation.uncertainty_before, *explanation.uncertainty_after)
    assert len(explanation.changes) == np.size(explanation.encoded) // (
        explanation.encoded.shape[1]
    ) * len(explanation.schema)


CHECKS = {
    "encoder": check_encoder,
    "classifier": check_predictor,
    "regressor": check_predictor,
    "ensemble-classifier": check_predictor,
    "ensemble-regressor": check_predictor,
    "vae": check_vae,
    "vaeac": check_vaeac,
    "two-level": check_two_level,
    **dict.fromkeys(EXPLAINERS, check_explainer),
}


def fit(name, X, y=None, **params):
    y = target_of(name, X) if y is None else y
    return clone(ESTIMATORS[name]).fit(X, y, **params)


# The sweep fits each fold as CLUEExplainer does: refusals are enough.
FITTED = sorted(set(ESTIMATORS) - {"clue-cv"})


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("rows", FINE_ROWS)
def test_strange_rows_that_are_fine(rows, name):
    X = FINE_ROWS[rows]()
    CHECKS[name](fit(name, X), X)


def refuses(words):
    return pytest.raises((ValueError, TypeError), match=f"(?s){words}")


# Only those that must fill it in mind a column without a value.
EMPTY = {"nothing but NaN", "a category without values"}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("rows", BAD_ROWS)
def test_rows_that_are_refused(rows, name, no_training):
    make, words = BAD_ROWS[rows]
    if rows in EMPTY and name not in FILLERS:
        pytest.skip("gaps are no mistake")
    with refuses(words):
        fit(name, make())


@pytest.mark.parametrize("name", sorted(set(FITTED) - FILLERS))
@pytest.mark.parametrize("rows", sorted(EMPTY))
def test_columns_without_values_do_no_harm(rows, name):
    X = BAD_ROWS[rows][0]()
    CHECKS[name](fit(name, X), X)


# --- Targets ---

FINE_TARGETS = {
    "booleans": labels(N_ROWS) == "yes",
    "whole numbers": np.resize([-7, 2**60], N_ROWS),
    "whole floats": np.resize([1.0, 2.0], N_ROWS),
    "int8": np.resize([-128, 127], N_ROWS).astype(np.int8),
    "a list": [0, 1] * (N_ROWS // 2),
    "read-only": frozen(np.resize([0, 1], N_ROWS)),
    "upside down": np.resize([0, 1], N_ROWS)[::-1],
    "a series with another index": pd.Series(
        np.resize([0, 1], N_ROWS), index=np.arange(N_ROWS) + 100
    ),
    "nullable integers": pd.Series([0, 1] * (N_ROWS // 2), dtype="Int64"),
    "a polars series": pl.Series("y", [0, 1] * (N_ROWS // 2)),
    "a column": np.resize([0, 1], N_ROWS)[:, None],
}
FINE_CLASSES = {
    "strings in other scripts": strings("ja 🙂", "nej"),
    "objects": strings("no", "yes"),
    "a categorical": pd.Series(pd.Categorical(labels(N_ROWS), ["yes", "no", "never"])),
    "nullable booleans": pd.Series([True, False] * (N_ROWS // 2), dtype="boolean"),
    "nullable strings": pd.Series(labels(N_ROWS), dtype="string"),
    "a class per row": np.arange(N_ROWS),
    "a class of one row": np.arange(N_ROWS) == 0,
}
FINE_NUMBERS = {
    "float16": np.linspace(-1, 1, N_ROWS).astype(np.float16),
    "a constant": np.full(N_ROWS, 3.5),
    "values around 1e9": 1e9 + np.arange(N_ROWS),
    "values around 1e30": np.linspace(-1e30, 1e30, N_ROWS),
    "values around 1e-30": np.linspace(-1e-30, 1e-30, N_ROWS),
    "values around 1e300": np.linspace(-1e300, 1e300, N_ROWS),
    "values around 1e-300": np.linspace(-1e-300, 1e-300, N_ROWS),
}
GOOD_TARGETS = {
    **{("any", key): (y, CLASSIFIERS | REGRESSORS) for key, y in FINE_TARGETS.items()},
    **{("class", key): (y, CLASSIFIERS) for key, y in FINE_CLASSES.items()},
    **{("number", key): (y, REGRESSORS) for key, y in FINE_NUMBERS.items()},
}


def in_turn(table):
    """Each line of a table with each estimator that it is for."""
    return [
        pytest.param(line, name, id=f"{line}-{name}")
        for line, (_, names) in table.items()
        for name in sorted(names)
        if name in FITTED
    ]


@pytest.mark.parametrize("line, name", in_turn(GOOD_TARGETS))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_strange_targets_that_are_fine(line, name):
    y, _ = GOOD_TARGETS[line]
    estimator = fit(name, good(), y)
    CHECKS[name](estimator, good())
    values = np.asarray(y).ravel()
    if name in CLASSIFIERS:
        np.testing.assert_array_equal(estimator.classes_, np.unique(values))
    else:
        # In the unit of the target, and not far out: the target has a scale of its own.
        span = float(np.ptp(values.astype(float) / 2)) or 1.0
        middle = float(values.astype(float).mean())
        assert (np.abs(estimator.predict(good()) - middle) < 100 * span).all()
        spread = estimator.predict_uncertainty(good()).total
        assert (spread > 1e-3 * span).all() and (spread < 100 * span).all()


ALL = CLASSIFIERS | REGRESSORS
BAD_TARGETS = {
    "None": (None, ALL, "requires y"),
    "too few": (np.resize([0, 1], N_ROWS - 1), ALL, "inconsistent numbers of samples"),
    "none at all": ([], ALL, r"\by\b.*(inconsistent|0 sample)"),
    "a number": (1.0, ALL, r"\by\b.*(scalar|1d array)"),
    "three dimensions": (
        np.zeros((N_ROWS, 2, 2)),
        ALL,
        r"\by\b.*(dim 3|Unknown label)",
    ),
    "NaN": (np.where(np.arange(N_ROWS) == 3, np.nan, 1.0), ALL, "y.* NaN"),
    "infinity": (np.where(np.arange(N_ROWS) == 3, np.inf, 1.0), ALL, "y.* infinity"),
    "complex numbers": (np.arange(N_ROWS) * 1j, ALL, r"\by\b.*Complex"),
    "strings with NaN": (strings("no", "yes", np.nan), CLASSIFIERS, "y.* NaN"),
    "strings with None": (strings("no", "yes", None), CLASSIFIERS, "y.* (NaN|None)"),
    "nullable with NA": (
        pd.Series([None, *[0, 1, 1] * 5], dtype="Int64"),
        ALL,
        "y.* (NaN|NA)",
    ),
    "strings and numbers": (strings("no", 1), CLASSIFIERS, "y .*int.*str"),
    "lists": ([[0]] * (N_ROWS - 1) + [[0, 1]], ALL, r"\by\b.*sequence"),
    "one class": (np.full(N_ROWS, "only"), CLASSIFIERS, "1 class.*'only'"),
    "fractions as classes": (np.linspace(0, 1, N_ROWS), CLASSIFIERS, "continuous"),
    "two labels per row": (
        np.zeros((N_ROWS, 2)),
        CLASSIFIERS,
        "y should be a 1d|several labels per row",
    ),
    "words": (labels(N_ROWS), REGRESSORS, r"\by\b.*string to float.*'no'"),
    "dates": (
        pd.date_range("2020-01-01", periods=N_ROWS).to_numpy(),
        REGRESSORS,
        "y.*datetime64",
    ),
}


@pytest.mark.parametrize(
    "line, name",
    [(line, name) for line, entry in BAD_TARGETS.items() for name in sorted(entry[1])],
)
def test_targets_that_are_refused(line, name, no_training):
    y, _, words = BAD_TARGETS[line]
    with refuses(words):
        ESTIMATORS[name].fit(good(), y)


# --- Weights ---

FINE_WEIGHTS = {
    "zeros among ones": np.r_[0.0, 0.0, np.ones(N_ROWS - 2)],
    "one number for all": 2.0,
    "whole numbers": np.arange(1, N_ROWS + 1),
    "booleans": np.arange(N_ROWS) > 2,
    "a series with another index": pd.Series(
        np.arange(1.0, N_ROWS + 1), index=np.arange(N_ROWS) + 100
    ),
    "tiny": np.full(N_ROWS, 1e-30),
}
BAD_WEIGHTS = {
    "one negative": (np.r_[-1.0, np.ones(N_ROWS - 1)], "Negative.*sample_weight"),
    "zeros": (np.zeros(N_ROWS), "sample_weight.*zero"),
    "NaN": (np.r_[np.nan, np.ones(N_ROWS - 1)], "sample_weight.*NaN"),
    "infinity": (np.r_[np.inf, np.ones(N_ROWS - 1)], "sample_weight.*infinity"),
    "too few": (np.ones(N_ROWS - 1), "sample_weight"),
    "two dimensions": (np.ones((N_ROWS, 2)), "sample_weight.*1D array"),
    "words": (labels(N_ROWS), "sample_weight.*'no'"),
    "beyond float32": (np.full(N_ROWS, 1e300), "sample_weight.*1e\\+300"),
}


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("weights", FINE_WEIGHTS)
def test_strange_weights_that_are_fine(weights, name):
    X = good()
    CHECKS[name](fit(name, X, sample_weight=FINE_WEIGHTS[weights]), X)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("weights", BAD_WEIGHTS)
def test_weights_that_are_refused(weights, name, no_training):
    weight, words = BAD_WEIGHTS[weights]
    with refuses(words):
        fit(name, good(), sample_weight=weight)


# --- New rows, after a fit on good ones ---

BAD_NEW_ROWS = {
    "another order of columns": (lambda: good()[good().columns[::-1]], "order"),
    "a missing column": (lambda: good().drop(columns="age"), "missing.*age"),
    "an extra column": (lambda: with_column(1.0), "unseen.*strange"),
    "another name": (lambda: good().rename(columns={"age": "Age"}), "unseen.*Age"),
    "a number that became a word": (
        lambda: good().astype({"age": str}),
        "'age' was a number",
    ),
    "a category that became a number": (
        lambda: good().assign(color=1.5),
        "'color' was a category",
    ),
    "dates": (
        lambda: good().assign(age=pd.date_range("2020-01-01", periods=N_ROWS)),
        "'age'.*datetime64",
    ),
    "infinity": (lambda: with_cell(np.inf), "infinity.*'weight'"),
    "a number without end": (lambda: with_cell(1e300), "'weight'.*1e\\+300"),
    "a sparse matrix": (lambda: scipy.sparse.csr_matrix(numbers()), "[Ss]parse"),
    "an array with fewer columns": (lambda: numbers(), "3 features.*4"),
    "no rows": (lambda: good().iloc[:0], "0 sample"),
    "one row without brackets": (lambda: good().iloc[0], "1D|2D|Series"),
    "nothing": (lambda: None, "None"),
}
VERBS = {
    "encoder": ["transform"],
    "classifier": ["predict", "predict_proba", "predict_uncertainty", "sample_y"],
    "regressor": ["predict", "predict_interval", "predict_uncertainty", "sample_y"],
    "ensemble-classifier": ["predict_proba", "predict_uncertainty"],
    "ensemble-regressor": ["predict_interval", "predict_uncertainty"],
    "vae": ["transform", "reconstruct", "score_samples"],
    "vaeac": ["transform", "sample", "score_samples"],
    "two-level": ["score_samples"],
    "clue": ["predict", "predict_proba", "predict_uncertainty", "rejects", "explain"],
    "clue-lambda": ["explain"],
    "neighbors": ["predict", "rejects", "explain"],
    "sensitivity": ["predict", "rejects", "explain"],
    "ufido": ["predict", "rejects", "explain"],
}
_FITTED = {}


def fitted(name):
    """An estimator fitted on good rows, once for all tests."""
    if name not in _FITTED:
        _FITTED[name] = fit(name, good())
    return _FITTED[name]


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("rows", BAD_NEW_ROWS)
def test_new_rows_that_are_refused(rows, name):
    make, words = BAD_NEW_ROWS[rows]
    for verb in VERBS[name]:
        with refuses(words):
            getattr(fitted(name), verb)(make())


FINE_NEW_ROWS = {
    "one row": lambda: good().iloc[:1],
    "the rows again": lambda: good(),
    "repeated rows": lambda: good().iloc[[0] * 5],
    "another index": lambda: good().set_axis(np.arange(N_ROWS)[::-1]),
    "wider dtypes": lambda: good().astype({"age": float}),
    "nullable dtypes": lambda: good().astype({"age": "Int64", "weight": "Float64"}),
    "far out": lambda: good().assign(weight=1e12),
    "very far out": lambda: good().assign(weight=-1e15),
    "one category only": lambda: good().assign(color="red"),
    "NaN": lambda: with_cell(np.nan).iloc[[3, 1]],
    "None": lambda: with_cell(None, "color").iloc[[3, 1]],
    "nothing but gaps": lambda: good().astype(object).mask(good().notna()),
    "an unknown category": lambda: good().assign(color="purple"),
}


@pytest.mark.parametrize("name", sorted(set(FITTED) - {"encoder"}))
@pytest.mark.parametrize("rows", FINE_NEW_ROWS)
def test_strange_new_rows_that_are_fine(rows, name):
    CHECKS[name](fitted(name), FINE_NEW_ROWS[rows]())


# --- Parameters: estimator, settings, what the error must say ---


def explainer(**settings):
    return CLUEExplainer(CLASSIFIER, VAE).set_params(**settings)


class NeverFitted(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities, which must be refused for that at once."""

    def fit(self, X, y):
        raise AssertionError("fitted")


NEVER_FITTED = NeverFitted()

BAD_PARAMETERS = [
    (CLASSIFIER, {"n_draws": 0}, "n_draws.*0"),
    (CLASSIFIER, {"n_draws": 2.5}, "n_draws.*2.5"),
    (CLASSIFIER, {"n_draws": "ten"}, "n_draws.*'ten'"),
    (CLASSIFIER, {"n_chains": -1}, "n_chains.*-1"),
    (CLASSIFIER, {"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes.*0"),
    (CLASSIFIER, {"hidden_layer_sizes": ("a",)}, "hidden_layer_sizes.*'a'"),
    (CLASSIFIER, {"hidden_layer_sizes": (2.5,)}, "hidden_layer_sizes.*2.5"),
    (CLASSIFIER, {"hidden_layer_sizes": [[4], [4]]}, "hidden_layer_sizes"),
    (CLASSIFIER, {"step_size": np.nan}, "step_size.*nan"),
    (CLASSIFIER, {"step_size": np.inf}, "step_size.*inf"),
    (CLASSIFIER, {"step_size": -0.1}, "step_size.*-0.1"),
    (CLASSIFIER, {"friction": 1.0}, "friction.*1.0"),
    (CLASSIFIER, {"batch_size": 0}, "batch_size.*0"),
    (CLASSIFIER, {"prior_rate": np.inf}, "prior_rate.*inf"),
    (CLASSIFIER, {"prior_shape": 0}, "prior_shape.*0"),
    (CLASSIFIER, {"class_weight": "fair"}, "class_weight.*'fair'"),
    (CLASSIFIER, {"class_weight": {"maybe": 1.0}}, "class_weight"),
    (CLASSIFIER, {"class_weight": {"no": -1.0}}, "class_weight.*-1"),
    (CLASSIFIER, {"class_weight": {"no": np.nan}}, "class_weight.*nan"),
    (CLASSIFIER, {"random_state": "seed"}, "random_state.*'seed'"),
    (CLASSIFIER, {"device": "quantum"}, "device.*'quantum'"),
    (CLASSIFIER, {"device": "cuda:99"}, "device.*'cuda:99'"),
    (CLASSIFIER, {"n_jobs": 1.5}, "n_jobs.*1.5"),
    (CLASSIFIER, {"verbose": "loud"}, "verbose.*'loud'"),
    (CLASSIFIER, {"warm_start": "yes"}, "warm_start.*'yes'"),
    (CLASSIFIER, {"encoder": "onehot"}, "encoder.*'onehot'"),
    (CLASSIFIER, {"encoder": 3}, "encoder.*3"),
    (CLASSIFIER, {"encoder": "passthrough"}, "X .*'red'"),
    (REGRESSOR, {"noise_floor": -1.0}, "noise_floor.*-1"),
    (REGRESSOR, {"noise_floor": np.inf}, "noise_floor.*inf"),
    (VAE, {"latent_dim": 0}, "latent_dim.*0"),
    (VAE, {"latent_dim": "many"}, "latent_dim.*'many'"),
    (VAE, {"learning_rate": np.inf}, "learning_rate.*inf"),
    (VAE, {"learning_rate": np.nan}, "learning_rate.*nan"),
    (VAE, {"noise_variance": 0.0}, "noise_variance.*0.0"),
    (VAE, {"noise_variance": np.inf}, "noise_variance.*inf"),
    (VAE, {"likelihood": "poisson"}, "likelihood.*'poisson'"),
    (VAE, {"max_iter": 0}, "max_iter.*0"),
    (VAE, {"validation_fraction": 1.5}, "validation_fraction.*1.5"),
    (VAE, {"image_shape": "square"}, "image_shape.*square"),
    (VAE, {"device": "quantum"}, "device.*'quantum'"),
    (VAEAC, {"n_draws": 0}, "n_draws.*0"),
    (VAEAC, {"encoder": OneHotEncoder()}, "encoder.*OneHotEncoder"),
    (VAEAC, {"add_indicator": 2}, "add_indicator.*2"),
    (TwoLevelVAEAC(), {"outer": KMeans()}, "outer.*KMeans"),
    (TwoLevelVAEAC(), {"inner": "vae"}, "inner.*'vae'"),
    (explainer(), {"estimator": KMeans()}, "KMeans"),
    (explainer(), {"estimator": NEVER_FITTED}, "NeverFitted has no predict_proba"),
    (explainer(), {"estimator": [NEVER_FITTED]}, "NeverFitted has no"),
    (explainer(), {"estimator": make_pipeline(NEVER_FITTED)}, "NeverFitted has no"),
    (explainer(), {"estimator": BaggingClassifier(NEVER_FITTED)}, "NeverFitted has no"),
    (explainer(), {"estimator": 3}, "estimator.*3"),
    (explainer(), {"estimator": []}, "estimator is an empty list"),
    (explainer(), {"estimator": "bnn"}, "estimator.*'bnn'"),
    (explainer(), {"generator": LogisticRegression()}, "generator.*LogisticRegression"),
    (explainer(), {"distance_weight": np.nan}, "distance_weight.*nan"),
    (explainer(), {"distance_weight": np.inf}, "distance_weight.*inf"),
    (explainer(), {"distance_weight": -1}, "distance_weight.*-1"),
    (explainer(), {"learning_rate": np.inf}, "learning_rate.*inf"),
    (explainer(), {"uncertainty": "doubt"}, "uncertainty.*'doubt'"),
    (explainer(), {"uncertainty": {"doubt": 1.0}}, "uncertainty.*doubt"),
    (explainer(), {"uncertainty": {}}, "uncertainty.*{}"),
    (explainer(), {"uncertainty": {"total": np.nan}}, "uncertainty.*nan"),
    (explainer(), {"uncertainty": {"total": "much"}}, "uncertainty.*much"),
    (explainer(), {"uncertainty": {"total": -1.0}}, "uncertainty.*-1"),
    (explainer(), {"init": "middle"}, "init.*'middle'"),
    (explainer(), {"n_explanations": 0}, "n_explanations.*0"),
    (explainer(), {"rejection_rate": 2}, "rejection_rate.*2"),
    (explainer(), {"immutable_features": ["height"]}, "immutable.*'height'.*'age'"),
    (explainer(), {"immutable_features": [99]}, "immutable.*99"),
    (explainer(), {"immutable_features": 5}, "immutable_features.*5"),
    (explainer(), {"feature_ranges": {"height": (1, 2)}}, "feature_ranges.*'height'"),
    (explainer(), {"feature_ranges": {"age": (2, 1)}}, "feature_ranges.*'age'.*2, 1"),
    (explainer(), {"feature_ranges": {"age": "up"}}, "feature_ranges.*'age'.*'up'"),
    (explainer(), {"feature_ranges": {"age": 5}}, "feature_ranges.*'age'.*5"),
    (explainer(), {"feature_ranges": {"age": (np.nan, 5)}}, "feature_ranges.*nan"),
    (explainer(), {"feature_ranges": {"age": ("a", "b")}}, "feature_ranges.*'a', 'b'"),
    (explainer(), {"feature_ranges": {"color": (1, 2)}}, "feature_ranges.*'color'"),
    (explainer(), {"memory": 3}, "memory.*3"),
    (explainer(), {"batch_size": 0}, "batch_size.*0"),
    (ESTIMATORS["clue-cv"], {"distance_weights": []}, "distance_weights.*\\[\\]"),
    (ESTIMATORS["clue-cv"], {"distance_weights": [-1]}, "distance_weights.*-1"),
    (ESTIMATORS["clue-cv"], {"distance_weights": [np.inf]}, "distance_weights.*inf"),
    (ESTIMATORS["clue-cv"], {"distance_weights": ["a"]}, "distance_weights.*'a'"),
    (ESTIMATORS["clue-cv"], {"cv": 1}, "'cv'.*1"),
    (ESTIMATORS["clue-cv"], {"cv": "five"}, "cv.*'five'"),
    (ESTIMATORS["sensitivity"], {"step_size": np.inf}, "step_size.*inf"),
    (ESTIMATORS["sensitivity"], {"image_shape": (2, 3)}, "image_shape.*2, 3"),
    (ESTIMATORS["ufido"], {"mask_weight": np.inf}, "mask_weight.*inf"),
    (ESTIMATORS["ufido"], {"n_masks": 0}, "n_masks.*0"),
    (ESTIMATORS["ufido"], {"generator": VAE}, "generator.*VAEEncoder"),
    (TabularEncoder(), {"categorical_features": "from_type"}, "'from_type'"),
    (TabularEncoder(), {"categorical_features": ["height"]}, "'height'.*'age'"),
    (TabularEncoder(), {"categorical_features": [7]}, "categorical_features.*7"),
    (TabularEncoder(), {"categorical_features": [True]}, "categorical_features.*1"),
    (TabularEncoder(), {"categorical_features": 5}, "categorical_features.*5"),
]


@pytest.mark.parametrize(
    "estimator, settings, words",
    BAD_PARAMETERS,
    ids=[f"{type(line[0]).__name__}-{line[1]}" for line in BAD_PARAMETERS],
)
def test_parameters_that_are_refused(estimator, settings, words, no_training):
    estimator = clone(estimator).set_params(**settings)
    y = np.linspace(0, 1, N_ROWS)
    if isinstance(estimator, BayesianMLPClassifier | CLUEExplainer | CLUEExplainerCV):
        y = labels(N_ROWS)
    with refuses(words):
        estimator.fit(good(), y)


BAD_ARGUMENTS = [
    ("regressor", "predict_interval", {"coverage": 1.0}, "coverage.*1.0"),
    ("regressor", "predict_interval", {"coverage": np.nan}, "coverage.*nan"),
    ("regressor", "sample_y", {"n_samples": 0}, "n_samples.*0"),
    ("classifier", "sample_y", {"n_samples": -1}, "n_samples.*-1"),
    ("classifier", "sample_y", {"random_state": "seed"}, "seed"),
    ("vae", "score_samples", {"n_importance": 0}, "n_importance.*0"),
    ("vaeac", "sample", {"n_samples": 1.5}, "n_samples.*1.5"),
    ("vaeac", "category_proba", {"feature": "age"}, "'age' is a number"),
    ("vaeac", "category_proba", {"feature": "height"}, "'height'"),
    ("vaeac", "category_proba", {"feature": 9}, "9"),
    ("two-level", "score_samples", {"n_importance": -3}, "n_importance.*-3"),
    ("clue", "explain_path", {"distance_weights": []}, "distance_weights.*\\[\\]"),
    ("clue", "explain_path", {"distance_weights": [np.nan]}, "distance_weights.*nan"),
    ("clue", "explain_path", {"distance_weights": [np.inf]}, "distance_weights.*inf"),
]


@pytest.mark.parametrize("name, verb, arguments, words", BAD_ARGUMENTS)
def test_arguments_that_are_refused(name, verb, arguments, words):
    with refuses(words):
        getattr(fitted(name), verb)(good(), **arguments)


def test_latents_that_are_refused():
    with refuses("3 columns.*2 latents"):
        fitted("vae").inverse_transform(np.zeros((2, 3)))
    with refuses("NaN"):
        fitted("vae").inverse_transform([[np.nan, 0.0]])
    with refuses("n_samples.*0"):
        fitted("vae").sample(0)
    with refuses("3.*2 latents"):
        fitted("clue").latent_uncertainty(np.zeros((2, 3)))
    with refuses("NaN"):
        fitted("clue").latent_uncertainty([[np.nan, 0.0]])
    with refuses("1e\\+300"):
        fitted("clue").latent_uncertainty([[1e300, 0.0]])


@pytest.mark.parametrize("estimator", [CLASSIFIER, REGRESSOR, VAE, VAEAC])
def test_unscaled_numbers_that_pass_through(estimator, no_training):
    estimator = clone(estimator).set_params(encoder="passthrough")
    with refuses("column 2 holds 1e\\+30.*TabularEncoder"):
        estimator.fit(numbers() * [1, 1, 0] + [0, 0, 1e30], np.resize([0, 1], N_ROWS))


def test_the_table_is_long_enough():
    tables = [FINE_ROWS, BAD_ROWS, GOOD_TARGETS, BAD_TARGETS, FINE_WEIGHTS]
    tables += [BAD_WEIGHTS, FINE_NEW_ROWS, BAD_NEW_ROWS]
    assert sum(map(len, tables)) >= 80
