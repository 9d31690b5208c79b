"""VAEACImputer: conditionals with a known answer, manners, and bad input."""

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_clue import TabularEncoder, VAEACImputer
from sklearn_clue._columns import Strangers
from sklearn_clue.generative._latent import ModuleConfig, build
from sklearn_clue.generative._modules import FeatureGroup
from sklearn_clue.generative._vaeac import VAEAC

TINY = {"hidden_layer_sizes": (12,), "max_iter": 3, "random_state": 0}

pytestmark = pytest.mark.filterwarnings(
    "ignore:The validation bound was still rising:sklearn.exceptions.ConvergenceWarning"
)

MEAN = np.array([1.0, -2.0, 5.0])
COV = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])


@pytest.fixture(scope="module")
def gaussian():
    """An imputer of correlated Gaussian columns, some of which were missing."""
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal(MEAN, COV, 3000)
    X[rng.random(X.shape) < 0.1] = np.nan
    imputer = VAEACImputer(2, (40,), learning_rate=3e-3, max_iter=150, random_state=0)
    return imputer.fit(X)


@pytest.fixture(scope="module")
def frame():
    """A table with every kind of column, and gaps in most of them."""
    rng = np.random.default_rng(1)
    n = 60
    age = rng.integers(18, 80, n)
    X = pd.DataFrame(
        {
            "age": age,
            "color": np.where(age + rng.normal(0, 9, n) > 45, "red", "blue"),
            "weight": (50 + 0.4 * age + rng.normal(0, 5, n)).astype(np.float32),
            "member": pd.array(rng.random(n) < 0.4, dtype="boolean"),
            "visits": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], n),
                categories=["low", "middle", "high"],
                ordered=True,
            ),
        },
        index=[f"row {i}" for i in range(n)],
    )
    hidden = rng.random(X.shape) < 0.2
    hidden[:, 0] = False
    return X.mask(pd.DataFrame(hidden, index=X.index, columns=X.columns))


@pytest.fixture(scope="module")
def frame_imputer(frame):
    return VAEACImputer(2, **TINY).fit(frame)


# Known answers --------------------------------------------------------------------


@pytest.mark.parametrize("seen", [(0,), (0, 2), ()])
def test_expected_values_of_a_gaussian(gaussian, seen):
    rng = np.random.default_rng(3)
    X = rng.multivariate_normal(MEAN, COV, 400)
    gaps = np.full_like(X, np.nan)
    gaps[:, seen] = X[:, seen]
    seen = list(seen)
    solved = np.linalg.solve(COV[np.ix_(seen, seen)], (X - MEAN)[:, seen].T)
    exact = MEAN[1] + COV[1, seen] @ solved
    filled = gaussian.transform(gaps)
    assert np.sqrt(np.mean((filled[:, 1] - exact) ** 2)) < 0.12


def test_completions_have_the_spread_of_a_gaussian(gaussian):
    gaps = np.tile([1.5, np.nan, np.nan], (2000, 1))
    (drawn,) = gaussian.sample(gaps, random_state=0)
    assert (drawn[:, 0] == 1.5).all()
    gain = COV[0, 1:]  # of a column with unit variance
    np.testing.assert_allclose(drawn[:, 1:].mean(0), MEAN[1:] + 0.5 * gain, atol=0.15)
    exact = COV[1:, 1:] - np.outer(gain, gain)
    np.testing.assert_allclose(np.cov(drawn[:, 1:].T), exact, atol=0.15)


def test_density_of_complete_and_incomplete_rows(gaussian):
    X = np.random.default_rng(4).multivariate_normal(MEAN, COV, 500)
    exact = multivariate_normal(MEAN, COV).logpdf(X).mean()
    assert gaussian.score(X) == pytest.approx(exact, abs=0.1)
    X[:, 2] = np.nan
    exact = multivariate_normal(MEAN[:2], COV[:2, :2]).logpdf(X[:, :2]).mean()
    assert gaussian.score(X) == pytest.approx(exact, abs=0.1)
    assert gaussian.score_samples(np.full((1, 3), np.nan)) == pytest.approx(0, abs=0.1)


def test_probabilities_of_a_category():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    probability = 1 / (1 + np.exp(-2 * x))
    X = pd.DataFrame({"x": x, "b": rng.random(2000) < probability})
    imputer = VAEACImputer(2, (30,), learning_rate=5e-3, max_iter=30, random_state=0)
    proba = imputer.fit(X).category_proba(X, "b")
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-6)
    assert np.abs(proba[:, 1] - probability).mean() < 0.05
    np.testing.assert_array_equal(imputer.category_proba(X, 1), proba)
    with pytest.raises(ValueError, match="Column 'x' is a number"):
        imputer.category_proba(X, "x")


@pytest.mark.usefixtures("own_process")
def test_training_starts_without_divergence_between_the_networks():
    config = ModuleConfig(
        groups=(FeatureGroup("gaussian", 0, 6),),
        latent_dim=4,
        widths=(50, 50),
        noise_variance=0.5,
    )
    module = build(VAEAC, config, seed=0)
    x = 5 * torch.randn(32, 6)
    observed = (torch.rand(32, 6) < 0.5).float()
    ones, noise = torch.ones_like(x), torch.randn(32, 4)
    bound = module(x, ones, observed, noise)
    outputs = module.outputs(noise, x, observed)
    reconstruction = ((1 - observed) * module.likelihood.log_prob(outputs, x)).sum(1)
    # So the KL divergence is zero, up to rounding.
    torch.testing.assert_close(bound, reconstruction, rtol=1e-4, atol=1e-4)


# Manners --------------------------------------------------------------------------


def test_gaps_are_filled_and_the_rest_is_untouched(frame, frame_imputer):
    before = frame.copy()
    filled = frame_imputer.transform(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert not filled.isna().any(axis=None)
    pd.testing.assert_series_equal(filled.dtypes, frame.dtypes)
    assert filled.index.equals(frame.index)
    for name in frame:
        present = frame[name].notna()
        pd.testing.assert_series_equal(filled[name][present], frame[name][present])


def test_completions_differ_only_in_the_gaps(frame, frame_imputer):
    first, second = frame_imputer.sample(frame, 2, random_state=0)
    again = frame_imputer.sample(frame, 2, random_state=0)
    pd.testing.assert_frame_equal(first, again[0])
    assert not first.equals(second)
    for name in frame:
        present = frame[name].notna()
        pd.testing.assert_series_equal(first[name][present], frame[name][present])
        assert first[name].notna().all()


def test_complete_rows_come_back_as_a_copy():
    X = np.random.default_rng(0).normal(size=(30, 2))
    filled = VAEACImputer(2, **TINY).fit_transform(X)
    np.testing.assert_array_equal(filled, X)
    assert not np.shares_memory(filled, X)
    frame = pd.DataFrame(X)
    filled = VAEACImputer(2, **TINY).fit_transform(frame)
    assert filled is not frame
    pd.testing.assert_frame_equal(filled, frame)


def test_polars(frame):
    plain = frame[["age", "color", "weight"]]
    table = pl.DataFrame(
        {
            "age": plain["age"].tolist(),
            "color": [None if v != v else v for v in plain["color"]],
            "weight": plain["weight"].to_numpy(),
        }
    )
    imputer = VAEACImputer(2, **TINY).fit(table)
    filled = imputer.transform(table)
    assert isinstance(filled, pl.DataFrame)
    assert filled.schema == table.schema
    assert filled.null_count().to_numpy().sum() == 0
    assert not filled["weight"].is_nan().any()
    expected = VAEACImputer(2, **TINY).fit(plain).transform(plain)
    assert filled["color"].to_list() == expected["color"].tolist()


def test_objects_in_arrays():
    X = np.array([["a", 1.0], [None, 2.0], ["b", np.nan], ["a", 4.0]] * 5, dtype=object)
    imputer = VAEACImputer(2, encoder=TabularEncoder([0]), **TINY)
    filled = imputer.fit_transform(X)
    assert set(filled[:, 0]) <= {"a", "b"}
    assert all(np.isfinite(value) for value in filled[:, 1])


def test_indicators(frame):
    imputer = VAEACImputer(2, add_indicator=True, **TINY).fit(frame)
    filled = imputer.transform(frame)
    names = [f"missingindicator_{name}" for name in frame.columns[1:]]
    assert filled.columns.tolist() == [*frame.columns, *names]
    assert imputer.get_feature_names_out().tolist() == filled.columns.tolist()
    np.testing.assert_array_equal(
        filled["missingindicator_color"], frame["color"].isna()
    )
    X = frame[["age", "weight"]].to_numpy(dtype=float)
    imputer = VAEACImputer(2, add_indicator=True, **TINY).fit(X)
    np.testing.assert_array_equal(imputer.transform(X)[:, 2], np.isnan(X[:, 1]))


def test_set_output(frame):
    X = frame[["age", "weight"]].to_numpy(dtype=float)
    imputer = VAEACImputer(2, **TINY).set_output(transform="pandas")
    assert imputer.fit_transform(X).columns.tolist() == ["x0", "x1"]


def test_gaps_in_columns_that_had_none_in_fit(frame, frame_imputer):
    X = frame.assign(age=frame["age"].where(frame["age"] > 40))  # floats now
    filled = frame_imputer.transform(X)
    assert filled["age"].notna().all()
    assert (filled["age"] == filled["age"].round()).all()


def test_a_row_does_not_know_its_neighbours(frame, frame_imputer):
    together = frame_imputer.transform(frame)
    alone = pd.concat(
        [frame_imputer.transform(frame.iloc[i : i + 1]) for i in range(len(frame))]
    )
    pd.testing.assert_frame_equal(alone, together, rtol=1e-6)


def test_same_seed_same_imputer(frame, frame_imputer):
    state = torch.random.get_rng_state()
    again = clone(frame_imputer).fit(frame)
    pd.testing.assert_frame_equal(
        again.transform(frame), frame_imputer.transform(frame)
    )
    assert torch.equal(torch.random.get_rng_state(), state)


def test_joblib(frame, frame_imputer, tmp_path):
    joblib.dump(frame_imputer, tmp_path / "imputer.joblib")
    loaded = joblib.load(tmp_path / "imputer.joblib", mmap_mode="r")
    pd.testing.assert_frame_equal(
        loaded.transform(frame), frame_imputer.transform(frame)
    )


def test_pipeline(frame):
    X = frame[["age", "weight"]].to_numpy(dtype=float)
    y = np.arange(len(X)) % 2
    model = make_pipeline(
        VAEACImputer(2, **TINY), StandardScaler(), LogisticRegression()
    )
    assert model.fit(X, y).predict(X).shape == y.shape


def test_encoders(frame):
    encoder = TabularEncoder().fit(frame.dropna())
    imputer = VAEACImputer(2, encoder=FrozenEstimator(encoder), **TINY).fit(frame)
    assert imputer.encoder_ is encoder
    X = frame[["age", "weight"]].to_numpy(dtype=float)
    for plain in ("passthrough", StandardScaler()):
        filled = VAEACImputer(2, encoder=plain, **TINY).fit_transform(X)
        there = ~np.isnan(X)
        assert np.isfinite(filled).all()
        np.testing.assert_array_equal(filled[there], X[there])
    for lossy in (OneHotEncoder(), PCA()):
        with pytest.raises(ValueError, match="must leave missing values where"):
            VAEACImputer(2, encoder=lossy, **TINY).fit(X)


# Bad input ------------------------------------------------------------------------


def test_column_without_any_value(frame):
    with pytest.raises(ValueError, match="'color' holds missing values only"):
        VAEACImputer(2, **TINY).fit(frame.assign(color=None))


def test_category_never_observed(frame, frame_imputer):
    # "middle" is declared and never seen: possible, and next to never drawn.
    assert "middle" in frame_imputer.schema_.column("grade").categories
    assert "middle" not in set(frame_imputer.transform(frame)["grade"])
    # What was never seen says nothing, and is no gap to fill in.
    with pytest.warns(UserWarning, match="'color' holds 'green'"):
        filled = frame_imputer.transform(frame.assign(color="green"))
    assert (filled["color"] == "green").all()
    with pytest.warns(UserWarning, match="'color' holds 'green'"):
        density = frame_imputer.score_samples(frame.assign(color="green"), 5)
    assert_array_equal(
        density, frame_imputer.score_samples(frame.assign(color=None), 5)
    )


def test_row_without_any_value(frame_imputer, frame):
    blank = frame.iloc[:3].where(frame.iloc[:3].isna())
    assert blank.isna().all(axis=None)
    assert frame_imputer.transform(blank).notna().all(axis=None)


@pytest.mark.parametrize(
    "X, message",
    [(np.ones((1, 2)), "n_samples=1"), (np.full((5, 1), np.inf), "infinity")],
)
def test_bad_input(X, message):
    with pytest.raises(ValueError, match=message):
        VAEACImputer(2, **TINY).fit(X)


def test_too_many_latents_are_reported():
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(UserWarning, match="latent_dim=10 is more than the 3 encoded"):
        VAEACImputer(10, **TINY).fit(X)


def test_constant_data():
    X = np.full((20, 2), 3.0)
    X[3, 1] = np.nan
    filled = VAEACImputer(2, **TINY).fit_transform(X)
    assert filled[3, 1] == pytest.approx(3, abs=2)


def test_counts_are_checked(frame, frame_imputer):
    with pytest.raises(ValueError, match="n_samples must be a positive whole number"):
        frame_imputer.sample(frame, 0)
    with pytest.raises(ValueError, match="n_importance must be a positive"):
        frame_imputer.score_samples(frame, 0)


def test_number_moments_are_those_of_the_draws():
    rng = np.random.default_rng(0)
    a = rng.normal(5, 2, size=800)
    noise = np.where(a > 5, 3.0, 0.3)
    X = pd.DataFrame({"a": a, "b": 100 + 4 * a + noise * rng.normal(size=800)})
    X["c"] = np.where(a > 5, "x", "y")
    imputer = VAEACImputer(
        2,
        (30, 30),
        noise_variance="predicted",
        learning_rate=1e-2,
        max_iter=40,
        n_draws=500,
        random_state=0,
    ).fit(X)
    rows = pd.DataFrame({"a": [3.0, 7.0], "b": np.nan, "c": ["y", "x"]})
    mean, std = imputer.number_moments(rows, "b")
    np.testing.assert_allclose(mean, [112, 128], atol=2)
    assert std[0] < 1.8 < std[1]
    copies = rows.loc[np.tile(rows.index, 2000)].reset_index(drop=True)
    (drawn,) = imputer.sample(copies, random_state=0)
    draws = drawn["b"].to_numpy().reshape(2000, 2)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4 * std.max() / 2000**0.5)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)
    # What is asked for is not looked at.
    told = imputer.number_moments(rows.assign(b=0.0), 1)
    np.testing.assert_array_equal(told, (mean, std))
    with pytest.raises(ValueError, match="'c' is a category"):
        imputer.number_moments(rows, "c")


def test_encoded_gaps_are_not_observed():
    """In a space with indicators, which explainers share with a predictor."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.normal(size=80), "c": rng.choice(["a", "b"], 80)})
    X.loc[::4, "n"] = np.nan
    X.loc[1::4, "c"] = None
    encoder = TabularEncoder().fit(X)
    imputer = VAEACImputer(2, encoder=FrozenEstimator(encoder), **TINY).fit(X)
    module = imputer.module_
    x = torch.as_tensor(encoder.transform(X), dtype=module.dtype)
    present = ~np.isnan(imputer.encoder_._encode(X, Strangers(), hide_gaps=True))
    assert_array_equal(module.present(x), present)
    # Nobody fills in a gap, and what a gap holds plays no part.
    filled = module.impute(x, torch.ones_like(x))
    assert (filled[:, encoder.schema_.described_index] == 0).all()
    assert torch.equal(filled[present], x[present])
    other = torch.where(torch.as_tensor(present), x, 7.0)
    with torch.no_grad():
        for row in (x, other):
            mean, _ = module.posterior(row, torch.as_tensor(present).to(x))
            torch.testing.assert_close(mean, module.posterior(x)[0])
    for table in (imputer.transform(X), *imputer.sample(X, 3, random_state=0)):
        assert not table.isna().any(axis=None)
    # Of itself it has no use for indicators.
    assert VAEACImputer(2, **TINY).fit(X).schema_.n_encoded == 3
