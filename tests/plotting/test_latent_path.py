"""Paths through latent space, over a landscape with a known formula."""

from dataclasses import replace

import numpy as np
import pytest
from fakes import split

from sklearn_clue.explanation import SearchPath
from sklearn_clue.plotting import LatentPathDisplay

plt = pytest.importorskip("matplotlib.pyplot")


class BowlExplainer:
    """Uncertainty is the squared length of the latents."""

    def latent_uncertainty(self, Z):
        self.Z = Z
        return split((Z**2).sum(axis=1))


def with_path(explanation, latents, objective=None):
    """The first row, with a path that stops one step early."""
    n_steps, dim = latents.shape
    if objective is None:
        objective = np.linspace(1, 0, n_steps)
    path = SearchPath(
        np.vstack([latents, np.full((1, dim), np.nan)])[np.newaxis],
        np.append(objective, np.nan)[np.newaxis],
    )
    return replace(explanation[:1], path=path)


def test_path_in_two_latents(table_explanation):
    latents = np.array([[1.0, 1.0], [0.6, 0.5], [0.2, 0.1], [0.3, 0.0]])
    explanation = with_path(table_explanation, latents, [1.0, 0.5, 0.1, 0.2])
    display = LatentPathDisplay.from_explainer(
        BowlExplainer(), explanation, grid_resolution=11
    )
    np.testing.assert_allclose(display.path, latents)
    assert display.best == 2
    x, y = np.meshgrid(display.grid_x, display.grid_y)
    np.testing.assert_allclose(display.uncertainty, x**2 + y**2)
    assert display.grid_x.min() < 0.2 and display.grid_x.max() > 1.0
    assert display.labels == ("latent 0", "latent 1", "entropy (nats)")
    title = "first: predicted yes → no\nentropy 0.60 → 0.20 nats"
    assert display.ax_.get_title(loc="left") == title
    (star,) = [line for line in display.ax_.lines if line.get_marker() == "*"]
    assert (*star.get_xdata(), *star.get_ydata()) == (0.2, 0.1)
    figure, ax = plt.subplots()
    assert display.plot(ax=ax).figure_ is figure


def test_path_of_rows_to_explain(table_explanation):
    class Explainer(BowlExplainer):
        def explain(self, X):
            assert X is table_explanation.X
            return with_path(table_explanation, np.eye(2))

    display = LatentPathDisplay.from_explainer(
        Explainer(), table_explanation.X, grid_resolution=3
    )
    np.testing.assert_array_equal(display.path, np.eye(2))


def test_path_in_many_latents_lies_in_its_plane(table_explanation):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    flat = np.array([[0.0, 0.0], [1.0, 0.8], [2.0, 1.0], [3.0, 0.0]])
    latents = flat @ basis[:2] + 7 * basis[2]
    explainer = BowlExplainer()
    display = LatentPathDisplay.from_explainer(
        explainer,
        with_path(table_explanation, latents),
        kind="epistemic",
        grid_resolution=5,
    )
    np.testing.assert_allclose(np.abs(display.path), flat, atol=1e-12)
    # The landscape is that of the same plane, 7 away from the origin.
    x, y = np.meshgrid(display.grid_x, display.grid_y)
    np.testing.assert_allclose(display.uncertainty, 0.25 * (x**2 + y**2 + 49))
    assert explainer.Z.shape == (25, 5)
    assert "5 latents, projected" in display.ax_.get_xlabel()


@pytest.mark.parametrize(
    "latents",
    [np.zeros((3, 4)), np.outer([0.0, 1.0, 2.0], [1.0, 0.0, 1.0, 0.0])],
    ids=["no move", "straight"],
)
def test_degenerate_paths(table_explanation, latents):
    display = LatentPathDisplay.from_explainer(
        BowlExplainer(), with_path(table_explanation, latents), grid_resolution=4
    )
    assert np.isfinite(display.path).all() and np.isfinite(display.uncertainty).all()
    assert np.ptp(display.grid_x) > 0 and np.ptp(display.grid_y) > 0


@pytest.mark.filterwarnings("error")
def test_flat_landscape(table_explanation):
    class Flat:
        def latent_uncertainty(self, Z):
            return split(np.ones(len(Z)))

    explanation = with_path(table_explanation, np.eye(2))
    display = LatentPathDisplay.from_explainer(Flat(), explanation, grid_resolution=3)
    assert (display.uncertainty == 1).all()


def test_path_errors(table_explanation):
    with pytest.raises(ValueError, match="holds no path"):
        LatentPathDisplay.from_explainer(BowlExplainer(), table_explanation)
    explanation = with_path(table_explanation, np.zeros((3, 1)))
    with pytest.raises(ValueError, match="at least 2 latents, got 1"):
        LatentPathDisplay.from_explainer(BowlExplainer(), explanation)
    with pytest.raises(ValueError, match="kind must be one of total, aleatoric"):
        LatentPathDisplay.from_explainer(BowlExplainer(), explanation, kind="all")
