"""The nearest sure image: known answers of a toy, and promises on small digits."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_clue import CLUEExplainer, LocalSensitivityExplainer, VAEEncoder
from sklearn_clue.explainers._contributions import along_the_way, up_to_best
from sklearn_clue.explainers._images import SureImages
from sklearn_clue.explainers._latents import NoiseKept
from sklearn_clue.explainers._problem import SearchProblem
from sklearn_clue.explainers._search import StoppingRule
from sklearn_clue.uncertainty import Uncertainty


class Dark:
    """Sure where the first pixel is bright."""

    is_classification = True

    def uncertainty(self, x):
        value = 1 - x[:, 0]
        proba = torch.stack([value, 1 - value], 1)
        return Uncertainty(value, value, 0 * value), proba


class Halves:
    """The latent moves two of three pixels, and cannot rebuild the third."""

    def encode(self, x):
        return torch.distributions.Normal(x[:, :1], torch.ones_like(x[:, :1]))

    def decode(self, z):
        return torch.cat([z, z, torch.full_like(z, 0.5)], 1)


@pytest.mark.parametrize("keep_noise", [True, False])
def test_the_first_sure_point_of_a_line_is_found(keep_noise):
    x0 = torch.tensor([[0.2, 0.2, 0.9], [0.7, 0.6, 0.1]], dtype=torch.float64)
    problem = SearchProblem(Dark(), None, x0, model=Halves())
    search = SureImages(
        0.4,
        keep_noise=keep_noise,
        max_distance=None,
        rule=StoppingRule(max_iter=60),
        learning_rate=0.1,
    )
    (found,) = search(problem)
    first, second = found.x[:, 0]
    assert first[0] == pytest.approx(0.6, abs=0.01) and first[0] >= 0.6
    # What the generator misses of the image stays, or gives way to what it makes.
    assert first[2] == pytest.approx(0.9 if keep_noise else 0.5)
    # An image that is sure already comes back as it is, and costs nothing.
    np.testing.assert_array_equal(second, x0[1])
    assert found.n_iter[1, 0] == 0


def test_kept_pixels_begin_at_the_image():
    x0 = torch.tensor([[0.2, 0.3, 0.9]], dtype=torch.float64)
    kept = NoiseKept(SearchProblem(Dark(), None, x0, model=Halves()))
    rows = torch.arange(1)
    torch.testing.assert_close(kept.decode(kept.encode(x0), rows), x0)
    twice = kept.take(torch.tensor([0, 0]))
    torch.testing.assert_close(
        twice.decode(kept.encode(x0).repeat(2, 1), torch.arange(2)), x0.repeat(2, 1)
    )


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = X[:500] / 16
    clue = CLUEExplainer(
        LogisticRegression(max_iter=200),
        VAEEncoder(6, (40,), image_shape=(8, 8), max_iter=25),
        random_state=0,
    ).fit(X, y[:500])
    return clue, X[clue.rejects(X)][:20]


def test_digits_become_sure_and_change_little(digits):
    clue, unsure = digits
    nearest = clue.explain(unsure)
    assert nearest.is_sure.mean() >= 0.9  # a weak generator misses some
    assert (nearest.uncertainty_after.total <= nearest.uncertainty_before.total).all()
    assert nearest.counterfactuals.min() >= 0 and nearest.counterfactuals.max() <= 1
    as_in_the_paper = copy.copy(clue).set_params(distance_weight=25.0).explain(unsure)
    assert nearest.distance.mean() < 0.6 * as_in_the_paper.distance.mean()
    bounded = copy.copy(clue).set_params(max_distance=0.5).explain(unsure)
    assert bounded.distance.max() <= 0.5


# Contributions -----------------------------------------------------------------------


class Product:
    """Unsure where two pixels are bright together."""

    is_classification = True

    def uncertainty(self, x):
        value = x[:, 0] * x[:, 1]
        return Uncertainty(value, value, 0 * value), torch.stack([value, 1 - value], 1)


class Bent:
    """One latent, whose two pixels are t and t²."""

    def encode(self, x):
        return torch.distributions.Normal(x[:, :1], torch.ones_like(x[:, :1]))

    def decode(self, z):
        return torch.cat([z, z**2, torch.full_like(z, 0.3)], 1)


def test_contributions_are_integrals_along_the_way():
    """With x = t, y = t²: ∫ y dx = t³/3 and ∫ x dy = 2t³/3. Straight: half each."""
    x0 = torch.tensor([[0.9, 0.81, 0.2]], dtype=torch.float64)
    x = np.array([[0.3, 0.09, 0.2]])
    problem = SearchProblem(Product(), None, x0, model=Bent())
    cubes = 0.9**3 - 0.3**3
    way = np.array([[[0.9], [0.5], [0.3], [np.nan]]])
    values = along_the_way(problem, x, way)
    np.testing.assert_allclose(values, [[cubes / 3, 2 * cubes / 3, 0]], atol=1e-3)
    straight = along_the_way(problem, x)
    # ∫ y dx along the chord from (0.9, 0.81) to (0.3, 0.09) is its mean height.
    np.testing.assert_allclose(straight, [[0.6 * 0.45, 0.72 * 0.6, 0]], atol=1e-9)
    assert straight.sum() == pytest.approx(cubes)
    # An image that stays has gone no way, whatever the search has tried.
    assert not along_the_way(problem, x0.numpy(), way).any()


def test_a_way_ends_at_its_best_point():
    way = np.arange(10.0).reshape(1, 5, 2)
    way[0, 1] = np.nan
    cut = up_to_best(way, np.array([[3.0, np.nan, 1.0, 2.0, np.nan]]))
    np.testing.assert_array_equal(cut[0, :2], way[0, [0, 2]])
    assert np.isnan(cut[0, 2:]).all()
    assert up_to_best(way, None) is way


@pytest.mark.parametrize("distance_weight", [None, 10.0])
def test_contributions_of_digits_are_complete(digits, distance_weight):
    clue, unsure = digits
    assert clue.explain(unsure[:1]).contributions is None  # unless they are asked for
    clue = copy.copy(clue).set_params(distance_weight=distance_weight)
    found = clue.explain(unsure[:6], contributions=True)
    fall = found.uncertainty_before.total - found.uncertainty_after.total
    assert np.abs(fall).min() > 0.01
    missed = found.contributions.sum(1) - fall
    np.testing.assert_allclose(found.contributions_residual, missed, atol=1e-8)
    assert (np.abs(missed) <= 0.01 * np.abs(fall)).all()
    drawn = found[:2].plot()
    assert drawn.axes_.shape == (2, 4)
    shown = drawn.axes_[1, 3].images[0].get_array()
    np.testing.assert_allclose(shown, found.contributions[1].reshape(8, 8))
    told = found.to_dict()["rows"][0]
    pixels = np.ravel(told["pixels"]["contributions"])
    np.testing.assert_allclose(pixels, found.contributions[0])
    assert told["contributions_residual"] == pytest.approx(missed[0])


def test_a_step_by_the_gradient_has_contributions_too(digits):
    clue, unsure = digits
    explainer = LocalSensitivityExplainer(
        FrozenEstimator(clue.estimator_), image_shape=(8, 8), step_size=0.5
    ).fit(unsure, None)
    found = explainer.explain(unsure, contributions=True)
    fall = found.uncertainty_before.total - found.uncertainty_after.total
    assert np.abs(fall).max() > 0.05
    assert (np.abs(found.contributions.sum(1) - fall) <= 0.01 * np.abs(fall)).all()
