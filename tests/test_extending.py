"""The recipes of doc/developers.rst, as programs that touch nothing in the package."""

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch.distributions import Normal

from sklearn_clue import CLUEExplainer

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
