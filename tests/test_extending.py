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
