"""The smallest generators that the protocols allow pass through the real explainers."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch.distributions import Normal

from sklearn_clue import (
    CLUEExplainer,
    CLUEExplainerCV,
    TabularEncoder,
    UFIDOExplainer,
)
from sklearn_clue.generative import ConditionalModel, LatentModel


class Latents:
    """Half of the encoded row is its latents."""

    def encode(self, x):
        assert x.dtype == torch.float64
        return Normal(x / 2, torch.ones_like(x))

    def decode(self, z):
        assert z.dtype == torch.float64
        return 2 * z


class Means:
    """What is hidden has the mean of the training rows."""

    def __init__(self, means):
        self.means = means

    def impute(self, x, observed):
        assert x.dtype == observed.dtype == torch.float64
        return observed * x + (1 - observed) * self.means


class LatentGenerator(BaseEstimator):
    def fit(self, X, y=None):
        self.n_encoded_ = X.shape[1]
        return self

    def latent_model(self):
        return Latents()


class ConditionalGenerator(BaseEstimator):
    def fit(self, X, y=None):
        self.means_ = np.asarray(X).mean(0)
        return self

    def conditional_model(self):
        return Means(torch.as_tensor(self.means_))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.integers(18, 80, 200), "job": rng.choice(["clerk", "cook"], 200)}
    )
    y = X["age"] + 20 * (X["job"] == "cook") + rng.normal(0, 12, 200) > 59
    return X, y


def _model():
    return make_pipeline(TabularEncoder(), LogisticRegression())


@pytest.mark.parametrize(
    "explainer",
    [
        CLUEExplainer(_model(), LatentGenerator(), distance_weight=0.3),
        CLUEExplainerCV(_model(), LatentGenerator(), distance_weights=[0.3, 3.0], cv=2),
        UFIDOExplainer(_model(), ConditionalGenerator(), random_state=0),
    ],
    ids=lambda explainer: type(explainer).__name__,
)
def test_smallest_generators(explainer, table, tmp_path):
    X, y = table
    explainer.fit(X, y)
    assert explainer.n_iter_ is None
    unsure = X[explainer.rejects(X)]
    explanation = explainer.explain(unsure)
    assert explanation.uncertainty_explained.mean() > 0.1  # nats
    pd.testing.assert_series_equal(explanation.counterfactuals.dtypes, X.dtypes)
    assert set(explanation.counterfactuals["job"]) <= {"clerk", "cook"}
    frozen = FrozenEstimator(explainer.generator_)
    joblib.dump(explainer.set_params(generator=frozen), tmp_path / "explainer")
    again = joblib.load(tmp_path / "explainer").explain(unsure)
    pd.testing.assert_frame_equal(again.counterfactuals, explanation.counterfactuals)


def test_they_are_fitted_to_encoded_rows(table):
    X, y = table
    clue = CLUEExplainer(_model(), LatentGenerator()).fit(X, y)
    assert clue.generator_.n_encoded_ == 3
    ufido = UFIDOExplainer(_model(), ConditionalGenerator()).fit(X, y)
    share = (X["job"] == "clerk").mean()
    np.testing.assert_allclose(
        ufido.generator_.means_, [0, share, 1 - share], atol=1e-9
    )


def test_latents_of_a_small_generator_are_judged(table):
    X, y = table
    clue = CLUEExplainer(_model(), LatentGenerator()).fit(X, y)
    Z = clue.estimator_[:-1].transform(X) / 2
    np.testing.assert_allclose(
        clue.latent_uncertainty(Z).total, clue.predict_uncertainty(X).total, rtol=1e-5
    )
    with pytest.raises(ValueError, match="Z has 2 columns, but .* has 3 latents"):
        clue.latent_uncertainty(Z[:, :2])


def test_small_generators_keep_the_protocols():
    assert isinstance(Latents(), LatentModel)
    assert isinstance(Means(0.0), ConditionalModel)


def test_generators_of_the_other_kind_are_refused_by_what_they_lack(table):
    X, y = table
    with pytest.raises(ValueError, match="implementing.*'latent_model'"):
        CLUEExplainer(_model(), ConditionalGenerator()).fit(X, y)
    with pytest.raises(ValueError, match="implementing.*'conditional_model'"):
        UFIDOExplainer(_model(), LatentGenerator()).fit(X, y)
