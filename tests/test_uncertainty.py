import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clue.uncertainty import (
    decompose_entropy,
    decompose_variance,
    entropy_parts,
    forest_draws,
    variance_parts,
    weights_of_parts,
)


def _random_proba(n_draws=20, n_samples=50, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_classes, 0.5), size=(n_draws, n_samples))


def test_entropies_are_those_of_the_formula():
    proba = _random_proba()
    total, aleatoric, epistemic = decompose_entropy(proba)
    mean = proba.mean(0)
    assert_allclose(total, -(mean * np.log(mean)).sum(1))
    expected = -np.nansum(proba * np.log(proba), axis=2).mean(0)
    assert_allclose(aleatoric, expected)
    assert_allclose(total, aleatoric + epistemic)


def test_entropies_have_their_bounds():
    total, aleatoric, epistemic = decompose_entropy(_random_proba())
    for part in (total, aleatoric, epistemic):
        assert part.shape == (50,)
        assert (part >= 0).all()
        assert (part <= np.log(4) + 1e-12).all()


@pytest.mark.parametrize(
    "proba, expected",
    [
        ([[[1.0, 0.0]], [[1.0, 0.0]]], (0, 0, 0)),
        ([[[0.5, 0.5]], [[0.5, 0.5]]], (np.log(2), np.log(2), 0)),
        ([[[1.0, 0.0]], [[0.0, 1.0]]], (np.log(2), 0, np.log(2))),
    ],
)
def test_entropies_of_clear_cases(proba, expected):
    parts = decompose_entropy(proba)
    assert_allclose(np.ravel(parts), expected, atol=1e-12)


def test_rounding_makes_no_negative_ignorance():
    proba = np.full((7, 1, 3), [0.1, 0.2, 0.7])
    assert decompose_entropy(proba).epistemic[0] >= 0


def test_variances_are_those_of_the_mixture():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(30, 5, 2)), rng.uniform(0.1, 2, size=(30, 5, 2))
    total, aleatoric, epistemic = decompose_variance(mean, std)
    assert total.shape == (5, 2)
    assert_allclose(epistemic, mean.std(0))
    assert_allclose(aleatoric**2, (std**2).mean(0))
    assert_allclose(total**2, aleatoric**2 + epistemic**2)


def test_variance_does_not_cancel_far_from_zero():
    # E[m²] - E[m]² loses all digits here, and may come out negative.
    mean = np.array([[1e9], [1e9 + 2]])
    assert_array_equal(decompose_variance(mean, np.zeros((2, 1))).epistemic, [1.0])
    same = np.full((3, 1), 1e9 / 3)
    assert_array_equal(decompose_variance(same, np.ones((3, 1))).epistemic, [0.0])


def test_a_single_draw_knows_no_ignorance():
    assert_array_equal(decompose_entropy([[[0.3, 0.7]]]).epistemic, [0.0])
    assert_array_equal(decompose_variance([[3.0]], [[1.0]]), [[1.0], [1.0], [0.0]])


@pytest.mark.usefixtures("own_process")
def test_parts_are_differentiable():
    logits = torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True)
    for part in entropy_parts(logits.softmax(-1)):
        (gradient,) = torch.autograd.grad(part.sum(), logits, retain_graph=True)
        assert gradient.isfinite().all()
    mean = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    parts = variance_parts(mean, torch.ones(5, 3, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(parts.total.sum(), mean)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3, 2), (2, 2, 2, 2)])
def test_entropy_says_what_shape_it_needs(shape):
    with pytest.raises(ValueError, match="proba needs posterior draws .* classes on"):
        decompose_entropy(np.ones(shape))


def test_variance_says_what_shape_it_needs():
    with pytest.raises(ValueError, match="mean needs posterior draws .* got shape"):
        decompose_variance([1.0], [1.0])
    with pytest.raises(ValueError, match="std needs posterior draws .* got shape"):
        decompose_variance([[1.0]], [1.0])
    with pytest.raises(ValueError, match=r"same shape, got \(2, 1\) and \(1, 1\)"):
        decompose_variance([[1.0], [2.0]], [[1.0]])


def test_gradients_stay_finite_at_certainty():
    logits = torch.tensor([[[2000.0, 0.0]], [[2000.0, 0.0]]]).double().requires_grad_()
    for part in entropy_parts(logits.softmax(-1)):
        (gradient,) = torch.autograd.grad(part.sum(), logits, retain_graph=True)
        assert gradient.isfinite().all()
    mean = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    for part in variance_parts(mean, 0 * mean):
        (gradient,) = torch.autograd.grad(part.sum(), mean, retain_graph=True)
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "kind",
    [
        "none",
        {},
        {"total": 0.0},
        {"total": -1.0},
        {"total": np.inf},
        {"total": "1"},
        {"total": 1.0, "none": 1.0},
        {"total": 1.0, "epistemic": -1.0},
    ],
    ids=str,
)
def test_parts_that_make_no_sense(kind):
    with pytest.raises(ValueError, match="uncertainty must be 'total'.* got ") as error:
        weights_of_parts(kind)
    assert repr(kind) in str(error.value)


# Forests -----------------------------------------------------------------------------


ROWS = np.random.default_rng(0).normal(size=(80, 3))


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_draws_of_a_forest_are_its_trees(kind):
    y = np.array(["a", "b", "c"])[np.digitize(ROWS[:, 0], [-0.5, 0.5])]
    forest = kind(7, min_samples_leaf=5, class_weight="balanced", random_state=0)
    draws = forest_draws(forest.fit(ROWS, y), ROWS)
    known = [tree.predict_proba(ROWS) for tree in forest.estimators_]
    assert_allclose(draws, known)
    assert_allclose(draws.mean(0), forest.predict_proba(ROWS))
    assert_array_equal(forest_draws(forest, sparse.csr_array(ROWS)), draws)
    assert_array_equal(forest_draws(forest, ROWS.tolist()), draws)
    # Each tree is walked once, however many rows are asked.
    assert_array_equal(forest_draws(forest, ROWS[:2]), draws[:, :2])


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_draws_of_a_forest_of_numbers(n_outputs):
    y = ROWS[:, :n_outputs] + np.random.default_rng(1).normal(size=(80, n_outputs))
    forest = RandomForestRegressor(
        6, min_samples_leaf=8, bootstrap=False, random_state=0
    ).fit(ROWS, y if n_outputs > 1 else y[:, 0])
    mean, std = forest_draws(forest, ROWS)
    assert mean.shape == std.shape == (6, 80, n_outputs)
    assert_allclose(mean.mean(0).squeeze(), forest.predict(ROWS))
    leaf = forest.apply(ROWS)[:, 2]
    mates = y[leaf == leaf[0]]
    assert_allclose(mean[2, 0], mates.mean(0))
    assert_allclose(std[2, 0], np.sqrt(mates.var(0).mean()))
    total, _, epistemic = decompose_variance(mean, std)
    assert (total > epistemic).all()
    forest.set_params(criterion="absolute_error").fit(ROWS, y[:, 0])
    assert not forest_draws(forest, ROWS)[1].any()


def test_draws_of_what_is_no_forest_are_refused():
    boosted = GradientBoostingClassifier(n_estimators=2).fit(ROWS, ROWS[:, 0] > 0)
    with pytest.raises(TypeError, match="or extra trees, got GradientBoostingClass"):
        forest_draws(boosted, ROWS)
    forest = RandomForestClassifier(3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), forest).fit(ROWS, ROWS[:, 0] > 0)
    with pytest.raises(TypeError, match=r"got Pipeline.*forest_draws\(pipeline\[-1\]"):
        forest_draws(pipeline, ROWS)
    rows = pipeline[:-1].transform(ROWS)
    draws = forest_draws(pipeline[-1], rows)
    assert_array_equal(forest_draws(FrozenEstimator(pipeline[-1]), rows), draws)


def test_forests_of_several_labels_are_refused():
    forest = RandomForestClassifier(2).fit(ROWS, ROWS[:, :2] > 0)
    with pytest.raises(ValueError, match="2 labels per row. Fit one forest per label"):
        forest_draws(forest, ROWS)
