"""TwoLevelVAEAC: samples, and a density with a known answer."""

import time

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from sklearn_clue import VAEACImputer, VAEEncoder
from sklearn_clue.generative import TwoLevelVAEAC

pytestmark = pytest.mark.filterwarnings(
    "ignore:The validation bound was still rising:sklearn.exceptions.ConvergenceWarning"
)


def _clusters(n, seed):
    """Three clusters on a line, whose latents leave gaps in any prior."""
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=n)
    return pd.DataFrame(
        {
            "x": np.array([-4.0, 0.0, 4.0])[which] + rng.normal(0, 0.3, n),
            "label": np.array(["a", "b", "c"])[which],
        }
    )


@pytest.fixture(scope="module")
def clusters():
    return _clusters(1500, 0)


@pytest.fixture(scope="module")
def model(clusters):
    return TwoLevelVAEAC(
        VAEACImputer(2, (40, 40), learning_rate=5e-3, max_iter=100),
        VAEEncoder(
            2, (40, 40), noise_variance="learned", learning_rate=5e-3, max_iter=40
        ),
        random_state=0,
    ).fit(clusters)


def _auc(real, drawn):
    X = pd.concat([real, drawn]).astype({"label": "category"})
    y = np.repeat([0, 1], [len(real), len(drawn)])
    judge = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    proba = cross_val_predict(judge, X, y, cv=3, method="predict_proba")
    return roc_auc_score(y, proba[:, 1])


def test_samples_are_rows_and_close_to_the_data(model, clusters):
    drawn = model.sample(1500, random_state=0)
    pd.testing.assert_series_equal(drawn.dtypes, clusters.dtypes)
    pd.testing.assert_frame_equal(drawn, model.sample(1500, random_state=0))
    nothing = clusters.mask(np.ones(clusters.shape, dtype=bool))
    (prior,) = model.outer_.sample(nothing, random_state=0)
    assert _auc(clusters, drawn) < _auc(clusters, prior)


def test_the_default_knows_where_rows_are_noisy():
    rng = np.random.default_rng(0)
    loud = rng.random(1000) < 0.5
    x = rng.normal(0, np.where(loud, 3.0, 0.1))
    X = pd.DataFrame({"x": x, "loud": np.where(loud, "yes", "no")})
    model = TwoLevelVAEAC(inner=VAEEncoder(2, (10,), max_iter=2), random_state=0)
    drawn = model.fit(X).sample(1000, random_state=0)
    spread = drawn["x"].abs().groupby(drawn["loud"]).median()
    assert spread["yes"] > 5 * spread["no"]  # 2.5 with one noise for all rows


def test_density_has_a_known_answer(model):
    X = _clusters(300, 1)
    centers = X["label"].map({"a": -4.0, "b": 0.0, "c": 4.0})
    exact = (norm(centers, 0.3).logpdf(X["x"]) + np.log(1 / 3)).mean()
    few, many = (model.score_samples(X, n).mean() for n in (1, 1000))
    assert few < many < exact + 0.05
    assert many > exact - 0.5


def test_density_adds_up_to_one(model):
    grid = np.linspace(-8, 8, 400)
    X = pd.concat([pd.DataFrame({"x": grid, "label": label}) for label in "abc"])
    X = X.reset_index(drop=True)
    density = np.exp(model.score_samples(X, n_importance=500))
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=0.1)


def test_gaps_are_integrated_out(model):
    X = pd.DataFrame({"x": [np.nan] * 3, "label": list("abc")})
    np.testing.assert_allclose(np.exp(model.score_samples(X)), [1 / 3] * 3, atol=0.1)


def test_many_importance_draws_take_bounded_time_and_memory(model, clusters):
    n_rows = []
    decoder = model.outer_.module_.decoder
    handle = decoder.register_forward_hook(
        lambda module, inputs, outputs: n_rows.append(len(outputs))
    )
    start = time.perf_counter()
    assert np.isfinite(model.score_samples(clusters[:200], n_importance=2000)).all()
    assert time.perf_counter() - start < 60  # two seconds on an idle core
    handle.remove()
    assert sum(n_rows) >= 200 * 2000
    assert max(n_rows) * model.module_.bytes_per_row() <= 2**26


def test_joblib(model, clusters, tmp_path):
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(
        loaded.score_samples(clusters[:9], 10), model.score_samples(clusters[:9], 10)
    )


def test_common_noise_cancels_in_differences(model, clusters):
    near = clusters[:100].assign(x=clusters["x"] + 1e-4)
    steps = {
        common: model.score_samples(clusters[:100], 20, common_noise=common)
        - model.score_samples(near, 20, common_noise=common)
        for common in (False, True)
    }
    assert steps[True].std() < 0.1 * steps[False].std()


def test_score_is_the_mean(model, clusters):
    assert model.score(clusters[:50]) == pytest.approx(
        model.score_samples(clusters[:50]).mean()
    )


@pytest.mark.parametrize(
    "X, message",
    [
        (np.ones((1, 2)), "n_samples=1"),
        (np.full((5, 1), np.inf), "infinity"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [None, None]}), "missing values only"),
    ],
)
def test_bad_input(model, X, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X)


def test_constant_data(model):
    X = np.full((20, 2), 3.0)
    fitted = clone(model).fit(X)
    assert np.isfinite(fitted.score(X))
    assert np.isfinite(fitted.sample(5)).all()


def test_counts_are_checked(model, clusters):
    with pytest.raises(ValueError, match="n_importance must be a positive"):
        model.score_samples(clusters, 0)
    with pytest.raises(ValueError, match="n_samples must be a positive"):
        model.sample(0)
