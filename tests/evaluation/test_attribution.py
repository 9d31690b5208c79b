"""Attributions of the uncertainty: known answers."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor

from sklearn_clue import BayesianMLPRegressor, LocalSensitivityExplainer, Uncertainty
from sklearn_clue.evaluation import attribute_uncertainty

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
SLOPES = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64)


class Formula:
    """A model whose uncertainty is a function of its inputs."""

    is_classification = False

    def __init__(self, function):
        self.function = function

    def uncertainty(self, x):
        value = self.function(x)
        return Uncertainty(value, value, 0 * value), x[:, :1]


LINEAR = Formula(lambda x: 9 + x.double() @ SLOPES)
ADDITIVE = Formula(lambda x: x[:, 0] ** 2 + torch.exp(x[:, 1]))
PRODUCT = Formula(lambda x: 5 + x[:, 0] * x[:, 1])


@pytest.mark.parametrize("method", ["shapley", "shap", "integrated_gradients"])
def test_linear_uncertainty_is_exact(method):
    values = attribute_uncertainty(LINEAR, X, method=method, max_background=30)
    expected = (X - X.mean(0)) * SLOPES.numpy()
    np.testing.assert_allclose(values, expected, atol=1e-9)


def test_additive_uncertainty_is_exact():
    values = attribute_uncertainty(ADDITIVE, X, max_background=30)
    alone = np.stack([X[:, 0] ** 2, np.exp(X[:, 1]), np.zeros(30)], axis=1)
    np.testing.assert_allclose(values, alone - alone.mean(0), atol=1e-9)


def test_permutations_are_exact_for_pairs():
    """An order and its reverse share a product evenly, as Shapley values do."""
    wide = RNG.normal(size=(6, 12))  # too many columns for all subsets
    base = np.zeros((1, 12))
    values = attribute_uncertainty(PRODUCT, wide, background=base, n_permutations=1)
    half = wide[:, 0] * wide[:, 1] / 2
    np.testing.assert_allclose(values[:, :2], np.stack([half, half], 1), atol=1e-9)
    np.testing.assert_allclose(values[:, 2:], 0, atol=1e-9)


def test_integrated_gradients_are_complete():
    values = attribute_uncertainty(
        ADDITIVE, X, method="integrated_gradients", n_steps=400
    )
    ends = [
        ADDITIVE.function(torch.as_tensor(rows)).numpy()
        for rows in (X, X.mean(0, keepdims=True))
    ]
    np.testing.assert_allclose(values.sum(1), ends[0] - ends[1], atol=1e-4)


def test_shap_agrees_with_our_own_code(capfd):
    """The package draws orders, which a value of few columns hardly depends on."""
    pytest.importorskip("shap", exc_type=ImportError)
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=range(7, 37)).assign(
        job=pd.Categorical(np.where(X[:, 2] > 0, "cook", "clerk"))
    )
    # More rows than the package takes unless it is told to.
    rows = RNG.integers(0, 30, 150)
    background = frame.iloc[rows].reset_index(drop=True)
    model = BayesianMLPRegressor(
        (10,), n_draws=8, burn_in=40, thinning=2, random_state=0
    )
    model.fit(frame, X[:, 0])
    ours, theirs = (
        attribute_uncertainty(
            model,
            frame[:5],
            method=method,
            background=background,
            max_background=150,
            n_permutations=20,
        )
        for method in ("shapley", "shap")
    )
    assert theirs.index.equals(frame.index[:5])
    np.testing.assert_allclose(theirs.sum(axis=1), ours.sum(axis=1), atol=1e-8)
    np.testing.assert_allclose(theirs, ours, atol=0.1 * ours.abs().max(axis=None))
    assert capfd.readouterr().err == ""  # no bar


@pytest.fixture(scope="module")
def members():
    y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=30)
    nets = [
        MLPRegressor(hidden_layer_sizes=(), solver="lbfgs", alpha=0, max_iter=500)
        for _ in range(4)
    ]
    return [
        net.fit(X[k::2], y[k::2] + k) for k, net in zip([0, 1, 0, 1], nets, strict=True)
    ]


def test_covariances_of_linear_members_are_known(members):
    values = attribute_uncertainty(members, X, method="covariance")
    slopes = np.stack([net.coefs_[0][:, 0] for net in members])
    per_draw = slopes[:, None] * (X - X.mean(0))  # draws, rows, columns
    spread = per_draw - per_draw.mean(0)
    expected = (spread * spread.sum(2, keepdims=True)).mean(0)
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_covariances_sum_to_the_variance():
    y = X[:, 0] ** 2 + RNG.normal(size=30)
    model = BayesianMLPRegressor(
        (10,), n_draws=8, burn_in=40, thinning=2, random_state=0
    )
    model.fit(X, y)
    values = attribute_uncertainty(model, X, method="covariance")
    provider = model.uncertainty_provider()
    x = torch.as_tensor(model.encoder_.transform(X))
    with torch.no_grad():
        rows = torch.cat([x, x.mean(0, keepdim=True)])
        mean = provider.members(rows)[0][:, :, 0].numpy()
    gap = model.target_scale_[0] * (mean[:, :-1] - mean[:, -1:])
    np.testing.assert_allclose(values.sum(1), gap.var(0), rtol=1e-4)


def test_a_frame_gives_a_frame_in_the_unit_of_the_target():
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        job=pd.Categorical(np.where(X[:, 2] > 0, "cook", "clerk"))
    )
    y = 1000 * (X[:, 0] + RNG.normal(size=30))
    model = BayesianMLPRegressor(
        (10,), n_draws=8, burn_in=40, thinning=2, random_state=0
    )
    model.fit(frame, y)
    total = model.predict_uncertainty(frame).total
    values = attribute_uncertainty(model, frame, max_background=30)
    assert list(values) == list(frame) and values.index.equals(frame.index)
    np.testing.assert_allclose(values.sum(axis=1), total - total.mean(), rtol=1e-3)
    slopes = attribute_uncertainty(model, frame, method="integrated_gradients")
    assert slopes.shape == values.shape and np.isfinite(slopes).all(axis=None)


def test_models_without_gradients_and_explainers():
    y = X[:, 0] * RNG.normal(size=30)
    forest = RandomForestRegressor(5, min_samples_leaf=5, random_state=0).fit(X, y)
    values = attribute_uncertainty(forest, X, max_background=30)
    assert values.shape == X.shape
    explainer = LocalSensitivityExplainer(LogisticRegression()).fit(X, X[:, 0] > 0)
    total = explainer.predict_uncertainty(X).total
    values = attribute_uncertainty(explainer, X, max_background=30)
    np.testing.assert_allclose(values.sum(1), total - total.mean(), atol=1e-8)
    slopes = attribute_uncertainty(explainer, X, method="integrated_gradients")
    assert np.abs(slopes).mean(0).argmax() == np.abs(values).mean(0).argmax() == 0


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"method": "lime"}, ValueError, "method must be one of 'shapley'"),
        ({"n_steps": 0}, ValueError, "n_steps must be a whole number"),
        ({"background": X[:, :2]}, ValueError, "same columns"),
        ({"uncertainty": "much"}, ValueError, "uncertainty must be"),
        ({"method": "covariance"}, TypeError, "the model has none"),
    ],
)
def test_refuses(settings, error, message):
    with pytest.raises(error, match=message):
        attribute_uncertainty(LINEAR, X, **settings)


def test_gradients_are_asked_for_early():
    bag = BaggingRegressor(Ridge(), 3).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="follows gradients"):
        attribute_uncertainty(bag, X, method="integrated_gradients")
