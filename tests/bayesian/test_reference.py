"""The posterior against an exact method, and against real data."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor

REFERENCES = Path(__file__).parents[1] / "reference"
sys.path.insert(0, str(REFERENCES))

from compare_with_nuts import compare  # noqa: E402


def test_predictions_agree_with_nuts():
    # tests/reference/make_nuts_reference.py made the file: four chains of full-batch
    # NUTS on the same model, which agree with each other to 0.9999 (means) and 0.9997
    # (standard deviations). Our Monte Carlo error is that of 100 draws.
    reference = json.loads((REFERENCES / "diabetes_50.json").read_text())
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, _ = train_test_split(X, y, test_size=0.25, random_state=0)
    model = BayesianMLPRegressor((50,), burn_in=500, thinning=40, random_state=0)
    model.fit(X_train, y_train)
    mean, std = model.predict(X_test, return_std=True)
    assert np.corrcoef(mean, reference["mean"])[0, 1] >= 0.98
    assert np.corrcoef(std, reference["total_std"])[0, 1] >= 0.85
    assert 0.8 <= np.mean(std / reference["total_std"]) <= 1.25
    parts = model.predict_uncertainty(X_test)
    assert np.corrcoef(parts.epistemic, reference["epistemic_std"])[0, 1] >= 0.85
    assert 0.8 <= np.mean(parts.epistemic / reference["epistemic_std"]) <= 1.25


@pytest.mark.parametrize("name", ["diabetes_400", "breast_cancer_400"])
def test_narrow_networks_agree_with_nuts_by_default(name):
    reference = json.loads((REFERENCES / f"{name}.json").read_text())
    found = compare(reference, random_state=0)
    # 100 independent draws reach it in 95 of 100 cases: see `subset_of_100`.
    assert found["epistemic_std_correlation"] >= 0.95
    assert 0.9 <= found["epistemic_std_ratio"] <= 1.1
    assert abs(found["log_density_difference"]) <= 0.03


@pytest.mark.real_data
@pytest.mark.parametrize("seed", [0, 1])
def test_wine_is_stable_by_default(fetch, seed):
    X, X_test, y, y_test = fetch(
        "fetch_wine_quality", paper_split=True, return_X_y=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R-hat may be just above its limit
        model = BayesianMLPRegressor(random_state=seed).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)) <= 0.65
    assert 0.95 <= model.diagnostics_.temperature.min()
    assert model.diagnostics_.temperature.max() <= 1.05
    interval = model.predict_interval(X_test, coverage=0.9)
    is_inside = (interval[:, 0] <= y_test) & (y_test <= interval[:, 1])
    # Three standard deviations of a share of 160 rows.
    assert abs(is_inside.mean() - 0.9) <= 3 * np.sqrt(0.9 * 0.1 / 160)


@pytest.mark.real_data
def test_wines_unlike_the_training_data_are_more_uncertain(fetch):
    X, X_test, y, _ = fetch("fetch_wine_quality", paper_split=True, return_X_y=True)
    limit = X["alcohol"].quantile(0.9)
    is_weak = X["alcohol"] <= limit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianMLPRegressor((50, 50), random_state=0)
        model.fit(X[is_weak], y[is_weak])
    strong = model.predict_uncertainty(X[~is_weak]).epistemic.mean()
    ordinary = model.predict_uncertainty(X_test[X_test["alcohol"] <= limit]).epistemic
    assert strong > 1.2 * ordinary.mean()


@pytest.mark.real_data
def test_rejecting_uncertain_defendants_lowers_the_error(fetch):
    X, X_test, y, y_test = fetch("fetch_compas", paper_split=True, return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianMLPClassifier((50, 50), n_draws=40, random_state=0).fit(X, y)
    is_wrong = model.predict(X_test) != y_test
    total = model.predict_uncertainty(X_test).total
    assert is_wrong[total <= np.quantile(total, 0.8)].mean() < is_wrong.mean()
