"""The nearest sure image: known answers of a toy, and promises on small digits."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from sklearn_clue import CLUEExplainer, VAEEncoder
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


def test_digits_become_sure_and_change_little():
    X, y = load_digits(return_X_y=True)
    X = X[:500] / 16
    clue = CLUEExplainer(
        LogisticRegression(max_iter=200),
        VAEEncoder(6, (40,), image_shape=(8, 8), max_iter=25),
        random_state=0,
    ).fit(X, y[:500])
    unsure = X[clue.rejects(X)][:20]
    nearest = clue.explain(unsure)
    assert nearest.is_sure.mean() >= 0.9  # a weak generator misses some
    assert (nearest.uncertainty_after.total <= nearest.uncertainty_before.total).all()
    assert nearest.counterfactuals.min() >= 0 and nearest.counterfactuals.max() <= 1
    as_in_the_paper = clue.set_params(distance_weight=25.0).explain(unsure)
    assert nearest.distance.mean() < 0.6 * as_in_the_paper.distance.mean()
    bounded = clue.set_params(distance_weight=None, max_distance=0.5).explain(unsure)
    assert bounded.distance.max() <= 0.5
