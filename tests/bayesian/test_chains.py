"""Chains of networks: the linear one, whose posterior is a formula, and the guard."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clue._modules import MLPStack
from sklearn_clue._progress import EpochProgress
from sklearn_clue._torch import as_tensor, make_generator
from sklearn_clue.bayesian import _sghmc
from sklearn_clue.bayesian._chains import (
    ChainSettings,
    EnergyGuard,
    LayerScales,
    run_chains,
)
from sklearn_clue.exceptions import ChainDivergedError

NOISE = 0.5


def _nll(outputs, y):
    """Gaussian noise of a known size, without constants."""
    return 0.5 * ((y - outputs[..., 0]) / NOISE) ** 2


def _linear_problem(n_rows=600, n_inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_inputs))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    y = X @ np.linspace(-1, 1, n_inputs) + 0.3 + NOISE * rng.normal(size=n_rows)
    return X, y


def _exact_posterior(X, y, weight):
    """Mean and covariance of the weights and the bias.

    A layer with n inputs has the prior precision n / 2, for the bias as well.
    """
    n_rows, n_inputs = X.shape
    A = np.column_stack([X, np.ones(n_rows)])
    precision = (A.T * weight) @ A / NOISE**2 + n_inputs / 2 * np.eye(n_inputs + 1)
    covariance = np.linalg.inv(precision)
    return covariance @ (A.T @ (weight * y)) / NOISE**2, covariance


def _settings(**changes):
    return ChainSettings(
        **{
            "layer_sizes": (3, 1),
            "batch_size": 128,
            "n_draws": 5,
            "burn_in": 30,
            "thinning": 1,
            "n_adaptation": 120,
            "step_size": 0.02,
            "friction": 0.05,
            "prior_shape": 10.0,
            "prior_rate": 10.0,
            "momentum_interval": 100,
            "prior_interval": None,
            **changes,
        }
    )


def _run(X, y, weight=None, *, n_chains=2, seed=0, start=None, nll=_nll, **changes):
    settings = _settings(**changes)
    weight = np.ones(len(X)) if weight is None else weight
    return run_chains(
        (as_tensor(X), as_tensor(y), as_tensor(weight)),
        nll,
        settings,
        n_chains,
        seed,
        progress=EpochProgress(settings.n_epochs, "test"),
        start=start,
    )


# Known posterior

# 12 000 draws with an effective size of a thousand or more: the Monte Carlo error is
# 0.03 standard deviations in a mean, 3 % in a standard deviation and 0.03 in a
# correlation. The bounds leave the rest to errors of the sampler.
# Gradient noise is known weight by weight only. Its share in what shakes the chain
# falls with the square of the step, and at the default one correlations are right.
LONG = {
    "n_adaptation": 600,
    "burn_in": 300,
    "n_draws": 200,
    "thinning": 6,
    "step_size": 0.01,
}


def _assert_posterior(result, mean, covariance):
    draws = result.draws.reshape(-1, len(mean)).astype(np.float64)
    std = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(0) - mean) / std).mean() < 0.1
    assert_allclose(draws.std(0), std, rtol=0.15)
    correlation = covariance / np.outer(std, std)
    assert_allclose(np.corrcoef(draws.T), correlation, atol=0.1)
    assert_allclose(result.temperature[-100:].mean(), 1, atol=0.1)
    assert result.is_complete
    assert result.n_rejected.sum() == 0


@pytest.mark.parametrize("seed", range(3))
def test_linear_network_has_its_known_posterior(seed):
    X, y = _linear_problem(seed=seed)
    weight = np.ones(len(X))
    result = _run(X, y, n_chains=60, seed=seed, **LONG)
    _assert_posterior(result, *_exact_posterior(X, y, weight))


def test_weights_scale_the_likelihood_of_their_rows():
    # From 0 to 5, related to the target: ignoring them moves the mean by far more than
    # a standard deviation.
    X, y = _linear_problem()
    weight = np.where(y > 0, 5.0, 0.2)
    exact = _exact_posterior(X, y, weight)
    ignored, _ = _exact_posterior(X, y, np.ones(len(X)))
    assert np.abs(exact[0] - ignored).max() > 3 * np.sqrt(np.diag(exact[1])).max()
    _assert_posterior(_run(X, y, weight, n_chains=60, **LONG), *exact)


def test_weight_two_is_the_row_twice_in_distribution():
    X, y = _linear_problem(n_rows=300)
    twice = np.concatenate([X, X[:100]]), np.concatenate([y, y[:100]])
    weight = np.where(np.arange(300) < 100, 2.0, 1.0)
    exact = _exact_posterior(X, y, weight)
    for chains in (
        _run(X, y, weight, n_chains=60, **LONG),
        _run(*twice, n_chains=60, **LONG),
    ):
        _assert_posterior(chains, *exact)


def test_the_precision_of_the_prior_is_sampled():
    # No data to speak of: what is left is the prior, w² n_in / 2 having the mean
    # E[1 / λ] = rate / (shape - 1) over the hyperprior, here 10 / 9.
    X, y = np.zeros((20, 3)), np.zeros(20)
    result = _run(
        X,
        y,
        np.full(20, 1e-6),
        n_chains=100,
        n_draws=60,
        thinning=25,
        burn_in=400,
        n_adaptation=200,
        step_size=0.1,
        prior_interval=5,
    )
    draws = result.draws.reshape(-1, 4).astype(np.float64)
    assert_allclose((draws**2 * 1.5).mean(), 10 / 9, rtol=0.1)
    assert result.end.precision.shape == (100, 1)
    assert_allclose(result.end.precision.mean(), 1, atol=0.15)  # se 0.03


def test_scales_alone_sample_the_precision(monkeypatch):
    # Without the draws given the weights: the scales of layers move by themselves.
    monkeypatch.setattr(LayerScales, "redraw", lambda scales, state, rng: state)
    result = _run(
        np.zeros((20, 3)),
        np.zeros(20),
        np.full(20, 1e-6),
        n_chains=200,
        n_draws=100,
        thinning=25,
        burn_in=400,
        n_adaptation=200,
        step_size=0.1,
        prior_interval=5,
    )
    precision = result.end.precision[:, 0]
    # Gamma(10, 10) has a standard deviation of 0.32, so the error of a mean is 0.02.
    assert_allclose(precision.mean(), 1, atol=0.08)
    assert_allclose(precision.std(), 0.316, rtol=0.25)
    draws = result.draws.reshape(-1, 4).astype(np.float64)
    assert_allclose((draws**2 * 1.5).mean(), 10 / 9, rtol=0.1)


def test_gradient_of_the_scales_is_that_of_their_energy():
    module = MLPStack((3, 4, 2), 2, make_generator(0))
    scales = LayerScales(module, 3.0, 2.0, prior_scale=2.0, is_free=True)
    ones = torch.ones(2, 2)
    position = scales.position(module.weights.detach(), ones) + 0.1
    position = position.double().requires_grad_()
    scales.unit_precision = scales.unit_precision.double()
    slope = torch.randn(2, scales.n_weights, generator=make_generator(1)).double()
    energy = scales.energy(position) + (slope * scales.weights(position)).sum(1)
    (wanted,) = torch.autograd.grad(energy.sum(), position)
    found = scales.gradient(position.detach(), slope)
    assert_allclose(found, wanted, rtol=1e-6)


def test_redraw_leaves_weights_and_velocities_alone():
    module = MLPStack((3, 4, 2), 2, make_generator(0))
    scales = LayerScales(module, 3.0, 2.0, prior_scale=1.0, is_free=True)
    position = scales.position(module.weights.detach(), torch.full((2, 2), 4.0))
    assert_allclose(scales.precision(position), np.full((2, 2), 4.0), rtol=1e-6)
    state = _sghmc.init(position)._replace(velocity=torch.ones_like(position))
    after = scales.redraw(state, np.random.default_rng(0))
    assert not np.allclose(scales.precision(after.position), 4.0)
    weights = scales.weights(position)
    assert_allclose(scales.weights(after.position), weights, rtol=1e-5)
    assert_array_equal(after.velocity, state.velocity)


def test_prior_interval_none_leaves_the_precision_at_one():
    result = _run(*_linear_problem(60))
    assert_array_equal(result.end.precision, np.ones((2, 1), dtype=np.float32))


# What a run leaves behind


def test_shapes_of_the_record():
    X, y = _linear_problem(100)
    result = _run(X, y, n_chains=3, n_draws=4, thinning=2, layer_sizes=(3, 5, 1))
    n_weights = 3 * 5 + 5 + 5 + 1
    assert result.draws.shape == (3, 4, n_weights)
    assert result.energy.shape == result.temperature.shape == (30 + 4 * 2, 3)
    assert result.n_rejected.shape == (3,)
    assert result.end.weights.shape == (3, n_weights)
    assert result.end.step_size.shape == (3, 1)
    assert result.end.precision.shape == (3, 2)


def test_energy_is_that_of_the_data():
    # A chain that cannot move: the energy of an epoch is that of its only weights.
    X, y = _linear_problem(100)
    weight = np.linspace(0.5, 2, 100)
    result = _run(X, y, weight, batch_size=30, step_size=1e-9, n_chains=2)
    for chain in range(2):
        outputs = X @ result.draws[chain, -1, :3] + result.draws[chain, -1, 3]
        energy = weight * 0.5 * ((y - outputs) / NOISE) ** 2
        # Estimated on random batches that see each row once on average.
        error = np.sqrt(len(X) * energy.var() / len(result.energy))
        assert abs(result.energy[:, chain].mean() - energy.sum()) < 4 * error
    whole = _run(X, y, weight, batch_size=100, step_size=1e-9, n_chains=1)
    outputs = X @ whole.draws[0, -1, :3] + whole.draws[0, -1, 3]
    energy = (weight * 0.5 * ((y - outputs) / NOISE) ** 2).sum()
    assert_allclose(whole.energy, energy, rtol=1e-4)


def test_chains_differ_and_seeds_fix_them():
    X, y = _linear_problem(100)
    first, again, other = (_run(X, y, seed=seed) for seed in (0, 0, 1))
    assert_array_equal(first.draws, again.draws)
    assert not np.array_equal(first.draws, other.draws)
    assert not np.array_equal(first.draws[0], first.draws[1])


def test_a_run_goes_on_from_its_end():
    X, y = _linear_problem(100)
    first = _run(X, y)
    # A step size that hardly moves shows where the second run starts.
    still = first.end._replace(
        step=first.end.step * 0, noise_scale=first.end.noise_scale * 0
    )
    second = _run(X, y, start=still, burn_in=0, n_adaptation=0, momentum_interval=None)
    assert_array_equal(second.draws[:, 0], first.end.weights)
    moved = _run(X, y, start=first.end, burn_in=0, n_adaptation=0)
    assert_array_equal(moved.end.step, first.end.step)
    assert not np.array_equal(moved.end.weights, first.end.weights)


# The guard


def test_guard_accepts_descents_and_small_rises():
    guard = EnergyGuard(1, total_weight=200)  # a limit of 10 sqrt(100) = 100 nats
    guard.begin(np.array([1000.0]))
    for energy in (1050.0, 400.0, 450.0, 300.0, 390.0):
        assert guard.accept(np.array([energy])).all()
    assert guard.n_rejected.sum() == guard.n_failures.sum() == 0


def test_guard_rejects_jumps_and_what_is_no_number():
    guard = EnergyGuard(4, total_weight=200)
    guard.begin(np.zeros(4))
    accepted = guard.accept(np.array([99.0, 101.0, np.nan, np.inf]))
    assert_array_equal(accepted, [True, False, False, False])
    assert_array_equal(guard.n_rejected, [0, 1, 1, 1])
    # What was rejected leaves no trace in the reference.
    assert_array_equal(guard.reference(), [49.5, 0, 0, 0])


def test_guard_forgets_failures_after_a_while_only():
    # One accepted epoch may be a step on the way out.
    guard = EnergyGuard(1, total_weight=200, memory=2)
    guard.begin(np.zeros(1))
    counts = []
    for energy in (500, 500, 0, 500, 0, 0, 500):
        guard.accept(np.array([float(energy)]))
        counts.append(int(guard.n_failures[0]))
    assert counts == [1, 2, 2, 3, 3, 0, 1]
    assert_array_equal(guard.n_rejected, [4])


def test_guard_looks_back_over_a_window_only():
    guard = EnergyGuard(1, total_weight=200, window=5)
    guard.begin(np.array([1000.0]))
    for _ in range(5):
        guard.accept(np.array([10.0]))
    assert not guard.accept(np.array([200.0])).any()


def test_guard_limit_grows_with_the_root_of_the_rows():
    limits = []
    for total_weight, variance in ((200, 0), (800, 0), (0, 0), (200, 300)):
        guard = EnergyGuard(1, total_weight)
        guard.begin(np.zeros(1), variance)
        limits.append(guard.limit()[0])
    assert_allclose(limits, [100, 200, 10, 200])


def test_guard_does_not_take_the_word_of_an_excursion():
    guard = EnergyGuard(1, total_weight=200)
    guard.begin(np.zeros(1))
    for _ in range(5):  # enormous energies with an enormous variance
        assert not guard.accept(np.array([1e6]), np.array([1e12])).any()


def test_guard_starts_from_the_energy_of_all_rows(monkeypatch):
    # One batch is no reference: an easy one would make the first epoch an excursion.
    begun, begin = [], EnergyGuard.begin

    def recording(guard, energy, variance):
        begun.append(energy)
        begin(guard, energy, variance)

    monkeypatch.setattr(EnergyGuard, "begin", recording)
    X, y = _linear_problem(2000)
    weight = np.linspace(0.5, 2, 2000)
    result = _run(X, y, weight, batch_size=64, step_size=1e-9, n_adaptation=1)
    # 2000 rows in 32 batches: the estimate of the first epoch is within some per cent.
    assert_allclose(begun, result.energy[:1], rtol=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_start_is_no_excursion(seed):
    # Far from the posterior the energies of batches differ by more than the limit.
    X, y = _linear_problem()
    result = _run(X, y, n_chains=20, seed=seed, step_size=0.005)
    assert result.n_rejected.sum() == 0


def test_infinite_data_energy_is_an_error_too():
    X, y = _linear_problem(100)
    y[0] = np.inf
    with pytest.raises(ChainDivergedError, match="training energy is"):
        _run(X, y, burn_in=120)


def _throw_out(monkeypatch, *, chain, iterations):
    """Make one chain jump far away at some iterations."""
    original = _sghmc.update
    count = iter(range(1, 10**9))

    def update(state, gradient, generator):
        state = original(state, gradient, generator)
        if next(count) in iterations:
            position = state.position.clone()
            position[chain] += 1000.0
            state = state._replace(position=position)
        return state

    monkeypatch.setattr(_sghmc, "update", update)


def test_a_chain_that_is_thrown_out_returns(monkeypatch):
    X, y = _linear_problem(300)  # 3 batches per epoch, 60 epochs
    mean, covariance = _exact_posterior(X, y, np.ones(300))
    settings = {"burn_in": 100, "n_adaptation": 250, "n_draws": 40}
    calm = _run(X, y, **settings)
    _throw_out(monkeypatch, chain=1, iterations={349, 364, 379})
    result = _run(X, y, **settings)
    assert_array_equal(result.n_rejected, [0, 3])
    assert result.is_complete
    # The excursions show in the record, and in no draw.
    assert (result.energy[:, 1] > 1e6).sum() == 3
    distance = np.abs(result.draws - mean) / np.sqrt(np.diag(covariance))
    assert distance.max() < 8
    # A rejected epoch counts as an epoch, and repeats the last good state.
    assert result.draws.shape == calm.draws.shape


def test_a_jump_in_the_last_batch_is_not_stored(monkeypatch):
    # Nothing in the energy of its own epoch shows it.
    X, y = _linear_problem(300)
    _throw_out(monkeypatch, chain=0, iterations={282, 291})
    result = _run(X, y, burn_in=92, n_draws=20)
    assert result.n_rejected[0] >= 2
    assert result.n_rejected[1] == 0
    assert np.abs(result.draws).max() < 100


def test_a_single_batch_per_epoch_is_judged_too(monkeypatch):
    X, y = _linear_problem(100)
    _throw_out(monkeypatch, chain=0, iterations={135, 140, 144})
    result = _run(X, y, burn_in=130, n_draws=30)
    assert result.n_rejected[0] >= 3
    assert np.abs(result.draws).max() < 100
    # Rejected epochs repeat the last good draw.
    assert len(np.unique(result.draws[0, :, 0])) < 30
    assert len(np.unique(result.draws[1, :, 0])) == 30


def test_a_chain_returns_further_the_more_often_it_fails(monkeypatch):
    X, y = _linear_problem(300)
    visited = []
    rescale = _sghmc.rescale

    def recording(state, factor, friction):
        visited.append(tuple(state.position[0].tolist()))
        return rescale(state, factor, friction)

    monkeypatch.setattr(_sghmc, "rescale", recording)
    _throw_out(monkeypatch, chain=0, iterations={238, 241, 244, 247})
    result = _run(X, y, burn_in=90, n_draws=5)
    assert_array_equal(result.n_rejected, [4, 0])
    assert len(set(visited)) == 4
    # Each time with a smaller step, and the other chain goes on with its own.
    assert result.end.step_size[0, 0] < 0.5 * result.end.step_size[1, 0]


def test_an_excursion_in_the_first_epoch_does_not_freeze_the_chain(monkeypatch):
    # 150 batches in an epoch: the adaptation is over before the only checkpoint, which
    # knows nothing of the gradients, is left behind.
    X, y = _linear_problem(300)
    _throw_out(monkeypatch, chain=0, iterations={149})
    result = _run(X, y, batch_size=2, burn_in=1, n_adaptation=120, n_draws=5)
    assert_array_equal(result.n_rejected, [1, 0])
    assert (result.end.step > 0).all()
    assert np.isfinite(result.temperature).all()
    assert len(np.unique(result.draws[0, :, 0])) == 5


def test_an_excursion_while_adapting_returns_too(monkeypatch):
    X, y = _linear_problem(300)
    _throw_out(monkeypatch, chain=0, iterations={59})
    result = _run(X, y, burn_in=60, n_adaptation=120)
    assert_array_equal(result.n_rejected, [1, 0])
    assert np.abs(result.draws).max() < 100


def test_a_run_leaves_threads_and_generators_alone():
    n_threads = torch.get_num_threads()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    _run(*_linear_problem(100))
    assert torch.get_num_threads() == n_threads
    assert_array_equal(torch.get_rng_state(), torch_state)
    for before, after in zip(numpy_state, np.random.get_state(), strict=True):
        assert_array_equal(before, after)
