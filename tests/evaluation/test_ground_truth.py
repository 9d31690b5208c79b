"""GroundTruth: distributions with known answers, in all kinds of tables."""

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import entr
from sklearn.base import clone

from sklearn_clue import VAEACImputer, VAEEncoder
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.evaluation import GroundTruth
from sklearn_clue.generative import TwoLevelVAEAC

pytestmark = pytest.mark.filterwarnings(
    "ignore:The validation bound was still rising:sklearn.exceptions.ConvergenceWarning"
)


def small_truth(max_iter=40, noise_variance="learned", **settings):
    model = TwoLevelVAEAC(
        VAEACImputer(
            3,
            (40, 40),
            learning_rate=5e-3,
            max_iter=max_iter,
            noise_variance=noise_variance,
        ),
        VAEEncoder(3, (20,), noise_variance="learned", max_iter=3),
    )
    return GroundTruth(model, **({"random_state": 0} | settings))


def hasty_truth(**settings):
    model = TwoLevelVAEAC(
        VAEACImputer(2, (5,), max_iter=2), VAEEncoder(2, (5,), max_iter=1)
    )
    return GroundTruth(model, **({"random_state": 0} | settings))


@pytest.fixture(scope="module")
def toy():
    return make_mixed_toy(2000, random_state=0)


@pytest.fixture(scope="module")
def truth(toy):
    return small_truth().fit(toy.data, toy.target)


@pytest.fixture(scope="module")
def numbers():
    """y is a line, with noise that grows to the right."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1500, 2))
    std = np.where(X[:, 0] > 0, 1.0, 0.1)
    return X, 20 + 5 * X[:, 1] + std * rng.normal(size=len(X))


@pytest.fixture(scope="module")
def number_truth(numbers):
    return small_truth(60, "predicted").fit(*numbers)


def test_agrees_with_the_formula(truth):
    test = make_mixed_toy(400, random_state=1)
    rows = test.data
    exact = test.aleatoric(rows)
    # A small model of few rows; the bars of a full one are in the next test.
    assert np.corrcoef(truth.uncertainty(rows), exact)[0, 1] > 0.85
    assert np.corrcoef(truth.log_density(rows), test.log_density(rows))[0, 1] > 0.9
    gaps = truth.predict(rows) - test.predict_proba(rows)
    assert np.abs(gaps).mean() < 0.1


@pytest.mark.slow
def test_default_model_agrees_with_the_formula():
    toy, test = (make_mixed_toy(n, random_state=n) for n in (10_000, 500))
    truth = GroundTruth(random_state=0).fit(toy.data, toy.target)
    for estimate, exact in [
        (truth.uncertainty(test.data), test.aleatoric(test.data)),
        (truth.log_density(test.data), test.log_density(test.data)),
    ]:
        assert np.corrcoef(estimate, exact)[0, 1] >= 0.95
        assert abs((estimate - exact).mean()) < 0.06  # 0.03 nats was measured


def test_artificial_rows_look_like_the_users(truth, toy):
    X, y = truth.sample(300, random_state=0)
    pd.testing.assert_series_equal(X.dtypes, toy.data.dtypes)
    assert set(y) == {0, 1}
    again = truth.sample(300, random_state=0)
    pd.testing.assert_frame_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not truth.sample(300, random_state=1)[0].equals(X)


def test_targets_are_drawn_from_what_is_predicted(truth):
    X, y = truth.sample(8000, random_state=0)
    proba = truth.predict(X)[:, 1]
    for low, high in [(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)]:
        here = (low <= proba) & (proba < high)
        spread = np.sqrt(proba[here].mean() * (1 - proba[here].mean()) / here.sum())
        assert abs(y[here].mean() - proba[here].mean()) < 4 * spread


def test_uncertainty_is_the_entropy(truth, toy):
    proba = truth.predict(toy.data[:20])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(
        truth.uncertainty(toy.data[:20]), entr(proba).sum(axis=1)
    )


def test_numbers(number_truth, numbers):
    X, y = numbers
    assert number_truth.task_ == "regression"
    assert not hasattr(number_truth, "classes_")
    grid = np.array([[-0.6, -0.5], [-0.6, 0.5], [0.6, -0.5], [0.6, 0.5]])
    np.testing.assert_allclose(
        number_truth.predict(grid), 20 + 5 * grid[:, 1], atol=0.5
    )
    quiet, _, loud, _ = number_truth.uncertainty(grid)
    assert quiet < 0.7 < loud < 1.3  # 0.1 and 1 in truth, and 2.9 without inputs
    X_drawn, y_drawn = number_truth.sample(4000, random_state=0)
    assert isinstance(X_drawn, np.ndarray)
    z = (y_drawn - number_truth.predict(X_drawn)) / number_truth.uncertainty(X_drawn)
    assert z.mean() == pytest.approx(0, abs=0.05)
    assert z.std() == pytest.approx(1, abs=0.05)


def test_whole_numbers_can_be_numbers():
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.arange(30) % 5
    assert hasty_truth().fit(X, y).task_ == "classification"
    truth = hasty_truth(task="regression").fit(X, y)
    assert truth.predict(X).shape == (30,)


def test_missing_cells_are_integrated_out(truth, toy):
    rows = toy.data[:10].copy()
    rows["weight"] = np.nan
    assert np.isfinite(truth.log_density(rows)).all()
    assert np.isfinite(truth.uncertainty(rows)).all()


def test_any_labels_in_their_order():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.array(["small", "big", "middle"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    truth = small_truth(30).fit(X, y)
    assert list(truth.classes_) == ["big", "middle", "small"]
    rows = np.array([[0.0], [-1.5], [1.5]])
    assert list(truth.classes_[truth.predict(rows).argmax(axis=1)]) == [
        "big",
        "small",
        "middle",
    ]
    assert set(truth.sample(50, random_state=0)[1]) <= set(truth.classes_)


def test_names_of_columns():
    rng = np.random.default_rng(0)
    taken = pd.DataFrame(rng.normal(size=(30, 2)), columns=["target", "target_"])
    numbered = pd.DataFrame(rng.normal(size=(30, 2)), columns=[3, 1])
    for X in (taken, numbered):
        before = X.copy()
        drawn, _ = hasty_truth().fit(X, rng.integers(2, size=30)).sample(4)
        assert list(drawn) == list(X)
        pd.testing.assert_frame_equal(X, before)


def test_polars():
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    X = polars.DataFrame({"a": rng.normal(size=40), "b": ["x", "y"] * 20})
    for y in (rng.integers(2, size=40), rng.normal(size=40)):
        truth = hasty_truth().fit(X, y)
        drawn, target = truth.sample(5, random_state=0)
        assert drawn.schema == X.schema
        assert target.dtype == y.dtype
        assert np.isfinite(truth.log_density(X)).all()
        assert np.isfinite(truth.uncertainty(X)).all()


def test_memory_fits_once(toy, tmp_path, monkeypatch):
    fits = []
    fit = TwoLevelVAEAC.fit
    monkeypatch.setattr(
        TwoLevelVAEAC, "fit", lambda *args: fits.append(1) or fit(*args)
    )
    answers = [
        hasty_truth(memory=str(tmp_path))
        .fit(toy.data[:50], toy.target[:50])
        .log_density(toy.data[:5])
        for _ in range(2)
    ]
    assert len(fits) == 1
    np.testing.assert_array_equal(*answers)


def test_joblib(truth, toy, tmp_path):
    joblib.dump(truth, tmp_path / "truth.joblib")
    loaded = joblib.load(tmp_path / "truth.joblib")
    np.testing.assert_array_equal(
        loaded.predict(toy.data[:9]), truth.predict(toy.data[:9])
    )


@pytest.mark.parametrize(
    "y, settings, message",
    [
        (None, {}, "requires y"),
        (np.zeros((10, 2)), {}, "1d array"),
        (np.zeros(9), {}, "inconsistent numbers of samples"),
        (np.r_[np.nan, np.ones(9)], {"task": "regression"}, "NaN or infinity"),
        (np.arange(10), {"task": "ranking"}, "'task' parameter"),
    ],
)
def test_bad_input(y, settings, message):
    with pytest.raises(ValueError, match=message):
        clone(hasty_truth(**settings)).fit(np.ones((10, 1)), y)
