"""The toy against its own formulas, integrated and counted."""

import pickle

import numpy as np
import pandas as pd
import pytest

from sklearn_clue.datasets import make_mixed_toy


@pytest.fixture(scope="module")
def toy():
    """Enough rows for every frequency to be known to about half a percent."""
    return make_mixed_toy(40_000, random_state=0)


def grid(material, finish, n_steps=161):
    """Rows of one kind on a grid that reaches far into all tails, and a cell's area."""
    length = np.linspace(-5, 65, n_steps)
    weight = np.linspace(-2, 6, n_steps)
    rows = np.stack(np.meshgrid(length, weight), axis=-1).reshape(-1, 2)
    X = pd.DataFrame(rows, columns=["length", "weight"])
    area = (length[1] - length[0]) * (weight[1] - weight[0])
    return X.assign(material=material, finish=finish), area


def kinds(toy):
    return [
        (m, f) for m in toy.categories["material"] for f in toy.categories["finish"]
    ]


def test_density_integrates_to_the_share_of_each_kind(toy):
    shares = toy.data.groupby(["material", "finish"], observed=True).size() / 40_000
    masses = {}
    for kind in kinds(toy):
        X, area = grid(*kind)
        masses[kind] = np.exp(toy.log_density(X)).sum() * area
    assert np.isclose(sum(masses.values()), 1, atol=1e-9)
    for kind, mass in masses.items():  # four standard deviations of a share
        assert abs(shares[kind] - mass) <= 4 * np.sqrt(mass * (1 - mass) / 40_000)


def test_density_has_the_moments_of_the_rows(toy):
    for kind in kinds(toy):
        X, area = grid(*kind)
        weights = np.exp(toy.log_density(X)) * area
        weights /= weights.sum()
        numbers = X[["length", "weight"]].to_numpy()
        mean = weights @ numbers
        covariance = (weights[:, None] * (numbers - mean)).T @ (numbers - mean)
        is_kind = (toy.data["material"] == kind[0]) & (toy.data["finish"] == kind[1])
        rows = toy.data.loc[is_kind, ["length", "weight"]].to_numpy()
        error = np.sqrt(np.diag(covariance) / len(rows))
        assert (np.abs(rows.mean(axis=0) - mean) <= 4 * error).all()
        ratio = np.cov(rows.T) / covariance
        # A correlation of 0.3 makes the relative error of the covariance the largest:
        # sqrt((1 + 0.3**2) / 0.3**2 / n), here with four of them.
        assert (np.abs(ratio - 1) <= 4 * 3.5 / np.sqrt(len(rows))).all()


def test_mean_log_density_is_minus_the_entropy(toy):
    # The entropy of the kinds, and that of a Gaussian, which is the same for all.
    grids = [grid(*kind) for kind in kinds(toy)]
    masses = [np.exp(toy.log_density(X)).sum() * area for X, area in grids]
    covariance = np.array([[5**2, 0.3 * 5 * 0.5], [0.3 * 5 * 0.5, 0.5**2]])
    gaussian = np.log(2 * np.pi * np.e) + 0.5 * np.log(np.linalg.det(covariance))
    entropy = gaussian - np.sum(masses * np.log(masses))
    log_density = toy.log_density(toy.data)
    error = log_density.std() / np.sqrt(len(log_density))
    assert abs(log_density.mean() + entropy) <= 4 * error


def test_frequencies_are_the_probabilities(toy):
    proba = toy.predict_proba(toy.data)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    bins = np.minimum((proba[:, 1] * 10).astype(int), 9)
    for kind in toy.categories["material"]:
        for b in range(10):
            rows = (bins == b) & (toy.data["material"] == kind)
            if rows.sum() >= 50:
                p = proba[rows, 1]
                error = np.sqrt((p * (1 - p)).sum()) / rows.sum()
                assert abs(toy.target[rows].mean() - p.mean()) <= 4 * error


def test_aleatoric_is_the_entropy_of_the_target(toy):
    proba, entropy = toy.predict_proba(toy.data), toy.aleatoric(toy.data)
    np.testing.assert_allclose(entropy, -(proba * np.log(proba)).sum(axis=1))
    assert entropy.min() >= 0 and entropy.max() <= np.log(2)
    # It is the mean loss of who knows the truth.
    loss = -np.log(proba[np.arange(len(proba)), toy.target])
    assert abs(loss.mean() - entropy.mean()) <= 4 * loss.std() / np.sqrt(len(loss))


def test_uncertainty_has_both_causes(toy):
    """Glass is always unsure; wood is unsure near the boundary, and sure elsewhere."""
    entropy = toy.aleatoric(toy.data)
    is_wood = toy.data["material"] == "wood"
    assert np.quantile(entropy[toy.data["material"] == "glass"], 0.1) > 0.5
    assert np.quantile(entropy[is_wood], 0.4) < 0.2
    assert np.quantile(entropy[is_wood], 0.9) > 0.6


def test_far_rows_stay_finite(toy):
    X = toy.data[:3].assign(length=[1e6, -1e6, 30.0])
    assert np.isfinite(toy.log_density(X)).all()
    assert toy.aleatoric(X)[:2].max() < 1e-6
    np.testing.assert_array_equal(toy.predict_proba(X)[:2].max(axis=1), 1)


def test_draws_are_repeatable():
    first, second = (make_mixed_toy(50, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(first.frame, second.frame)
    X, y = make_mixed_toy(50, random_state=3, return_X_y=True)
    pd.testing.assert_frame_equal(X, first.data)
    pd.testing.assert_series_equal(y, first.target)
    assert not X.equals(make_mixed_toy(50, random_state=4).data)


def test_functions_take_rows_as_people_have_them():
    toy = make_mixed_toy(20, random_state=0)
    expected = toy.log_density(toy.data)
    strings = toy.data.astype({"material": object, "finish": object})
    shuffled = strings[["finish", "weight", "material", "length"]].assign(more=1)
    shuffled.index = [f"row {i}" for i in range(20)]
    np.testing.assert_array_equal(toy.log_density(shuffled), expected)
    again = pickle.loads(pickle.dumps(toy))
    np.testing.assert_array_equal(again.log_density(again.data), expected)


def test_functions_name_what_they_cannot_use():
    toy = make_mixed_toy(20, random_state=0)
    with pytest.raises(ValueError, match=r"lack the columns \['weight'\]"):
        toy.aleatoric(toy.data.drop(columns="weight"))
    with pytest.raises(ValueError, match="'material' has 'steel', which never occurs"):
        toy.log_density(toy.data.assign(material="steel"))
