import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_clue.bayesian._diagnostics import effective_sample_size, split_r_hat


def _autoregressive(rho, n_chains, n_draws, n_quantities, seed=0):
    """Chains at rest whose effective size is n (1 - ρ) / (1 + ρ)."""
    rng = np.random.default_rng(seed)
    shape = (n_chains, n_quantities)
    values = [rng.normal(size=shape) / np.sqrt(1 - rho**2)]
    for _ in range(n_draws - 1):
        values.append(rho * values[-1] + rng.normal(size=shape))
    return np.stack(values, axis=1)


def test_independent_draws_agree_and_count_in_full():
    values = _autoregressive(0.0, 4, 500, 50)
    assert_allclose(split_r_hat(values), 1, atol=0.02)
    size = effective_sample_size(values)
    assert size.shape == (50,)
    assert (size <= 2000).all()
    # The estimate scatters by some percent, and is cut off at the number of draws.
    assert_allclose(np.median(size), 2000, rtol=0.1)


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.9])
def test_autoregressive_chains_have_their_known_size(rho):
    # The mean over 40 quantities has a standard error of about 3 %; cutting the sum at
    # the first negative pair adds a few percent of bias.
    size = effective_sample_size(_autoregressive(rho, 4, 2000, 40))
    assert_allclose(size.mean(), 8000 * (1 - rho) / (1 + rho), rtol=0.15)


def test_shifted_chains_disagree():
    values = _autoregressive(0.0, 2, 200, 3)
    values[1, :, 0] += 3.0
    values[1, :, 1] += 1.0
    far, near, same = split_r_hat(values)
    # With two chains at ± 1.5 in four halves: B / n = 3, so sqrt(1 + 3).
    assert_allclose(far, 2, rtol=0.1)
    assert far > near > 1.05 > same
    size = effective_sample_size(values)
    assert size[0] < 10 < size[2]


def test_a_trend_within_one_chain_shows():
    values = _autoregressive(0.0, 1, 200, 1)
    values[0, :, 0] += np.linspace(-3, 3, 200)
    assert split_r_hat(values) > 1.5


def test_units_do_not_matter():
    values = _autoregressive(0.5, 2, 100, 2)
    assert_allclose(split_r_hat(1e6 * values + 5), split_r_hat(values))
    assert_allclose(
        effective_sample_size(1e6 * values + 5), effective_sample_size(values)
    )


def test_float32_is_computed_in_double():
    values = (_autoregressive(0.0, 2, 100, 1) * 1e-3 + 1).astype(np.float32)
    assert_allclose(
        split_r_hat(values), split_r_hat(values.astype(np.float64)), rtol=1e-12
    )


@pytest.mark.parametrize("n_draws", [0, 1, 2, 3])
def test_too_few_draws_are_nan(n_draws):
    values = np.zeros((2, n_draws, 5, 3))
    assert np.isnan(split_r_hat(values)).all()
    assert np.isnan(effective_sample_size(values)).all()
    assert split_r_hat(values).shape == (5, 3)


def test_what_does_not_move_is_nan(recwarn):
    values = _autoregressive(0.0, 2, 50, 2)
    values[:, :, 1] = 7.0
    for figure in (split_r_hat(values), effective_sample_size(values)):
        assert np.isfinite(figure[0])
        assert np.isnan(figure[1])
    assert not recwarn.list


def test_an_odd_draw_in_the_middle_is_left_out():
    values = _autoregressive(0.0, 2, 21, 1)
    changed = values.copy()
    changed[:, 10] = 1e6
    assert_allclose(split_r_hat(changed), split_r_hat(values))
