"""The recipes of doc/developers.rst, as programs that touch nothing in the package."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch.distributions import Normal

from sklearn_clue import CLUEExplainer


def test_a_provider_with_gradients():
    # begin: provider with gradients
    import torch

    from sklearn_clue import LocalSensitivityExplainer
    from sklearn_clue.uncertainty import Uncertainty

    class KernelMeans:
        """Nearby targets averaged: unsure where they differ, or are far away."""

        is_classification = False

        def __init__(self, X, y):
            self.x, self.y = torch.as_tensor(X), torch.as_tensor(y)

        def uncertainty(self, x):
            near = torch.exp(-(torch.cdist(x, self.x) ** 2))
            weight = near / (near.sum(1, keepdim=True) + 1e-9)
            mean = weight @ self.y
            noise = (weight @ self.y**2 - mean**2).clamp_min(1e-9)
            ignorance = 1 / (1 + near.sum(1))
            parts = noise + ignorance, noise, ignorance
            return Uncertainty(*(part.sqrt() for part in parts)), mean[:, None]

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + X[:, 1] * rng.normal(size=200)
    explainer = LocalSensitivityExplainer(KernelMeans(X, y), step_size=0.3).fit(X, y)
    unsure = X[explainer.rejects(X)]
    explanation = explainer.explain(unsure)
    # end: provider with gradients
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    assert (after.total < before.total).mean() > 0.9
    assert 30 <= len(unsure) <= 50


def test_a_provider_without_gradients():
    # begin: provider without gradients
    import torch
    from sklearn.ensemble import RandomForestClassifier

    from sklearn_clue import LocalSensitivityExplainer
    from sklearn_clue.uncertainty import Uncertainty, decompose_entropy

    class Forest(RandomForestClassifier):
        """A forest that speaks for itself."""

        def uncertainty_provider(self):
            return ForestProvider(self)

    class ForestProvider:
        is_classification = True
        is_differentiable = False  # it is asked for values only

        def __init__(self, forest):
            self.forest = forest

        def uncertainty(self, x):
            rows = x.numpy()
            trees = self.forest.estimators_
            proba = np.stack([tree.predict_proba(rows) for tree in trees])
            parts = decompose_entropy(proba)
            tensors = Uncertainty(*(torch.as_tensor(part) for part in parts))
            return tensors, torch.as_tensor(proba.mean(0))

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] + rng.normal(size=200) > 0, "yes", "no")
    explainer = LocalSensitivityExplainer(Forest(20, random_state=0)).fit(X, y)
    parts = explainer.predict_uncertainty(X)
    unsure = explainer.rejects(X)
    # end: provider without gradients
    forest = explainer.estimator_
    np.testing.assert_array_equal(explainer.predict(X), forest.predict(X))
    proba = forest.predict_proba(X).clip(1e-300)
    np.testing.assert_allclose(parts.total, -(proba * np.log(proba)).sum(1), atol=1e-9)
    assert (parts.epistemic > 0.1).any() and 0 < unsure.mean() < 0.5
    with pytest.raises(TypeError, match="follows gradients"):
        explainer.explain(X[:3])


# A generator ----------------------------------------------------------------------


class Plane:
    """A LatentModel: rows of a plane, by their whitened principal components."""

    def __init__(self, center, axes):
        self.center, self.axes = torch.as_tensor(center), torch.as_tensor(axes)

    def encode(self, x):
        z = (x - self.center) @ torch.linalg.pinv(self.axes)
        return Normal(z, torch.ones_like(z))

    def decode(self, z):
        return self.center + z @ self.axes


class PCAGenerator(BaseEstimator):
    """Search among rows that differ along a few principal components."""

    def __init__(self, n_components=2):
        self.n_components = n_components

    def fit(self, X, y=None):
        """Learn from encoded rows."""
        self.pca_ = PCA(self.n_components).fit(X)
        return self

    def latent_model(self):
        """Give what was learned."""
        spread = np.sqrt(self.pca_.explained_variance_)[:, None]
        return Plane(self.pca_.mean_, spread * self.pca_.components_)


def test_a_generator():
    rng = np.random.default_rng(0)
    t = rng.normal(size=300)
    X = pd.DataFrame({"a": t, "b": 3 * t + 5, "c": 9 - t})
    X += rng.normal(0, 0.1, X.shape)
    y = t + rng.normal(0, 0.3, 300) > 0
    clue = CLUEExplainer(LogisticRegression(), PCAGenerator(1), distance_weight=0.5)
    explanation = clue.fit(X, y).explain(X[clue.rejects(X)])
    assert explanation.uncertainty_explained.mean() > 0.1  # nats
    # What explains the uncertainty lies on the line, and columns move together.
    found = explanation.encoded_counterfactuals
    line = clue.generator_.latent_model()
    rebuilt = line.decode(line.encode(torch.as_tensor(found)).mean)
    np.testing.assert_allclose(rebuilt, found, atol=1e-6)
    assert np.abs(np.corrcoef(found.T)).min() > 0.999


# Objectives, methods and posteriors -----------------------------------------------


def test_an_objective():
    # begin: objective
    from sklearn_clue import CLUEExplainer
    from sklearn_clue.explainers.extending import Objective

    class SquaredPenalty(Objective):
        """Uncertainty plus squared distance: many small changes, not a few large."""

        def value(self, cost, x, rows):
            return cost + self.weight[rows] * (x - self.x0[rows]).square().sum(1)

        def gradient(self, cost, slope, x, rows):
            return slope + 2 * self.weight[rows, None] * (x - self.x0[rows])

    class RidgeCLUE(CLUEExplainer):
        _objective = SquaredPenalty

    # end: objective
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X.sum(1) + rng.normal(0, 0.5, 300) > 0
    unsure = X[np.abs(X.sum(1)) < 0.2]
    lasso, ridge = (
        explainer(LogisticRegression(), PCAGenerator(4), distance_weight=1.0)
        .fit(X, y)
        .explain(unsure)
        for explainer in (CLUEExplainer, RidgeCLUE)
    )
    moves = ridge.encoded_counterfactuals - ridge.encoded
    expected = ridge.uncertainty_after.total + (moves**2).sum(1) / 4
    np.testing.assert_allclose(ridge.objective, expected)
    # All four columns count alike, so the squared distance spreads the change.
    largest = [
        np.abs(e.encoded_counterfactuals - e.encoded).max(1).sum() / e.distance.sum()
        for e in (lasso, ridge)
    ]
    assert largest[1] < 0.4 < largest[0]


def test_a_method():
    # begin: method
    import torch

    from sklearn_clue.explainers.extending import (
        BaseUncertaintyExplainer,
        Found,
        Objective,
    )

    class Towards:
        """Walks to the middle of the sure rows, a part of the way."""

        def __init__(self, middle, shares):
            self.middle, self.shares = middle, shares

        def __call__(self, problem):
            everyone = torch.arange(len(problem))
            done = np.ones((len(problem), 1), dtype=int)
            found = []
            for share in self.shares:
                x = problem.x0 + share * (self.middle - problem.x0)
                x = problem.valid(x, everyone)
                found.append(Found(x[:, None].numpy(), done, done > 0))
            return found

        def objective(self, problem, share):
            return Objective(problem)

    class MiddleExplainer(BaseUncertaintyExplainer):
        _name = "Middle"
        _trade_off = "share"

        def __init__(self, estimator=None, *, share=0.5, uncertainty="total",
                     immutable_features=None, feature_ranges=None,
                     rejection_rate=0.2, memory=None, batch_size=256, n_jobs=None,
                     random_state=None, verbose=0):  # fmt: skip
            self.estimator, self.share = estimator, share
            self.uncertainty, self.rejection_rate = uncertainty, rejection_rate
            self.immutable_features = immutable_features
            self.feature_ranges, self.memory = feature_ranges, memory
            self.batch_size, self.n_jobs = batch_size, n_jobs
            self.random_state, self.verbose = random_state, verbose

        def _fit_method(self, problem, usual):
            with torch.no_grad():
                value = problem.uncertainty(problem.x0, torch.arange(len(problem)))
            self.middle_ = problem.x0[value < value.median()].mean(0).numpy()

        def _method(self, trade_offs):
            return Towards(torch.as_tensor(self.middle_), trade_offs)

    # end: method
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300)})
    y = rng.random(300) < 1 / (1 + np.exp(-4 * X["a"] - 3))
    explainer = MiddleExplainer(LogisticRegression(), immutable_features=["b"])
    explainer.fit(X, y)
    unsure = X[explainer.rejects(X)]
    explanation = explainer.explain(unsure)
    fall = explanation.uncertainty_before.total - explanation.uncertainty_after.total
    assert fall.mean() > 0.05 and explanation.method == "Middle"
    np.testing.assert_array_equal(explanation.counterfactuals["b"], unsure["b"])


def test_a_posterior():
    # begin: posterior
    from sklearn.linear_model import LogisticRegression

    from sklearn_clue.bayesian.extending import PosteriorClassifier

    class BootstrapLogistic(PosteriorClassifier):
        """Logistic models of tables drawn with replacement."""

        hidden_layer_sizes, class_weight = (), None
        _parameter_constraints: dict = {}

        def __init__(self, n_draws=20, encoder=None, random_state=None):
            self.n_draws = n_draws
            self.encoder = encoder
            self.random_state = random_state

        def _sample(self, tensors, layer_sizes, go_on):
            x, codes, weight = (tensor.numpy() for tensor in tensors)
            rng = np.random.default_rng(self.random_state)
            coefs, intercepts = [], []
            for _ in range(self.n_draws):
                drawn = weight * rng.poisson(1, len(x))  # of two classes
                model = LogisticRegression().fit(x, codes, drawn)
                coefs.append(model.coef_.T * [-0.5, 0.5])
                intercepts.append(model.intercept_ * [-0.5, 0.5])
            return [np.stack(coefs)], [np.stack(intercepts)]

    # end: posterior
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "job": rng.choice(["x", "y"], 200)})
    y = np.where(X["a"] + (X["job"] == "x") + rng.normal(size=200) > 0, "yes", "no")
    model = BootstrapLogistic(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.7
    x = model.encoder_.transform(X)
    proba = model.predict_proba(X)[:, 1]
    plain = LogisticRegression().fit(x, y).predict_proba(x)[:, 1]
    assert np.abs(proba - plain).max() < 0.05
    assert model.predict_uncertainty(X).epistemic.mean() > 1e-3
    explanation = (
        CLUEExplainer(model, PCAGenerator(2), distance_weight=0.5)
        .fit(X, y)
        .explain(X[:20])
    )
    assert explanation.uncertainty_explained.mean() > 0
