"""LocalSensitivityExplainer: the step lands where a formula says."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import LocalSensitivityExplainer, TabularEncoder
from tests.explainers.conftest import classifier


def entropy_slope(logit):
    """Derivative of the entropy of a coin by the log-odds: -l p (1 - p)."""
    proba = 1 / (1 + np.exp(-logit))
    return -logit * proba * (1 - proba)


@pytest.mark.parametrize("step_size", [0.5, 3.0])
def test_step_from_a_model_with_a_known_gradient(step_size):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(5, 2, 200), "b": rng.normal(0, 0.1, 200)})
    y = X["a"] + 20 * X["b"] + rng.normal(size=200) > 5
    explainer = LocalSensitivityExplainer(
        LogisticRegression(),
        step_size=step_size,
        feature_ranges={"a": (None, None), "b": (None, None)},
    ).fit(X, y)
    model = explainer.estimator_
    spread = X.std(ddof=0).to_numpy()
    slope = entropy_slope(model.decision_function(X))[:, None] * model.coef_ * spread
    explanation = explainer.explain(X)
    expected = X.to_numpy() - step_size * slope * spread
    np.testing.assert_allclose(explanation.counterfactuals, expected)
    np.testing.assert_allclose(
        explanation.distance, step_size * np.abs(slope).sum(1), rtol=1e-6
    )
    np.testing.assert_allclose(
        explanation.objective, explanation.uncertainty_after.total
    )
    assert explanation.path is None and explanation.uncertainty_reconstructed is None


class Ramp(torch.nn.Module):
    """Regression with noise that grows by known amounts per encoded position."""

    answers_with = "mean_std"

    def __init__(self, slopes):
        super().__init__()
        self.slopes = torch.tensor(slopes)

    def forward(self, x):
        return torch.stack([x.sum(1), 50 + x @ self.slopes], 1)


@pytest.mark.parametrize(
    "kind, moves",
    [("total", True), ("aleatoric", True), ("epistemic", False)],
)
def test_kinds_of_uncertainty(kind, moves):
    X = np.random.default_rng(0).normal(3, 2, (100, 2))
    explainer = LocalSensitivityExplainer(
        Ramp([0.5, -1.5]),
        uncertainty=kind,
        feature_ranges={0: (None, None), 1: (None, None)},
    )
    explanation = explainer.fit(X, X[:, 0]).explain(X[:5])
    spread = X.std(0)
    expected = X[:5] - moves * spread * spread * [0.5, -1.5]
    np.testing.assert_allclose(explanation.counterfactuals, expected, rtol=1e-5)


@pytest.mark.parametrize("step_size, flips", [(0.5, False), (20.0, True)])
def test_categories_flip_where_the_step_closes_the_gap(step_size, flips):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "job": rng.choice(list("xyz"), 200)})
    y = X["a"] + 2 * (X["job"] == "x") + rng.normal(size=200) > 1
    explainer = LocalSensitivityExplainer(
        make_pipeline(TabularEncoder(), LogisticRegression()),
        step_size=step_size,
        feature_ranges={"a": (None, None)},
    ).fit(X, y)
    encoder, model = explainer.estimator_.named_steps.values()
    x = encoder.transform(X)
    slope = entropy_slope(model.decision_function(x))[:, None] * model.coef_
    moved = x - step_size * slope
    expected = np.array(list("xyz"))[moved[:, 1:].argmax(1)]
    cf = explainer.explain(X).counterfactuals
    np.testing.assert_array_equal(cf["job"], expected)
    assert (cf["job"] != X["job"]).any() == flips
    np.testing.assert_allclose(encoder.transform(cf)[:, 0], moved[:, 0])


@pytest.mark.parametrize("as_integers", [False, True])
def test_images_stay_images(as_integers):
    X, y = load_digits(return_X_y=True)
    X = (X[:150] * 15).astype(np.uint8) if as_integers else X[:150] / 16
    explainer = LocalSensitivityExplainer(
        classifier(), image_shape=(8, 8), step_size=5.0
    ).fit(X, y[:150])
    explanation = explainer.explain(X[:5])
    cf = explanation.counterfactuals
    assert explanation.image_shape == (8, 8)
    assert cf.dtype == X.dtype and cf.min() >= 0
    assert cf.max() <= (255 if as_integers else 1)
    assert not np.array_equal(cf, X[:5])
    with pytest.raises(ValueError, match=r"got \(8, 9\) and 64 columns"):
        LocalSensitivityExplainer(image_shape=(8, 9)).fit(X, y[:150])
