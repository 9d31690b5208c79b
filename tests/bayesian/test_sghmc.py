"""The sampler by itself, on targets whose answer is a formula.

Tolerances: with hundreds of chains the Monte Carlo error of a standard deviation is
about 1 %. What remains is the error of the step size, of the estimated noise, and of
the approximations in the thermostat, to which the asserted bounds belong.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clue._torch import make_generator
from sklearn_clue.bayesian import _sghmc


def _sample_gaussian(
    precision,
    *,
    noise_std=0.0,
    n_chains=200,
    step_size=0.01,
    friction=0.05,
    n_adaptation=1000,
    n_steps=4000,
    start=None,
    seed=0,
):
    """Run chains on Normal(0, precision⁻¹), from gradients with the noise of batches.

    Returns the positions of the second half of the run, of shape (n_draws, n_chains,
    n_weights), and the kinetic temperature over the same steps.
    """
    precision = torch.as_tensor(precision, dtype=torch.float32)
    generator, noise_generator = make_generator(seed), make_generator(seed + 1000)
    shape = (n_chains, len(precision))
    if start is None:
        start = torch.randn(shape, generator=generator) / precision.diagonal().sqrt()
    state = _sghmc.init(start)
    floor = torch.full(shape, 1e-6)
    positions, temperatures = [], []
    for step in range(n_steps):
        gradient = state.position @ precision
        gradient += noise_std * torch.randn(shape, generator=noise_generator)
        if step < n_adaptation:
            state = _sghmc.adapt(
                state,
                gradient,
                floor=floor,
                unit=torch.arange(len(precision)),
                step_size=step_size,
                friction=friction,
                is_exact=noise_std == 0,
            )
        elif step == n_adaptation:
            state = _sghmc.freeze(state)
        state = _sghmc.update(state, gradient, generator)
        if step >= n_steps // 2 and step % 10 == 9:
            positions.append(state.position)
            temperatures.append(_sghmc.temperature(state).mean())
    return (
        torch.stack(positions).double().numpy(),
        float(torch.stack(temperatures).mean()),
    )


# Known targets


@pytest.mark.parametrize("noise_std", [0.0, 2.0])
def test_correlated_gaussian(noise_std):
    covariance = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 1.0]])
    positions, temperature = _sample_gaussian(
        np.linalg.inv(covariance),
        noise_std=noise_std,
        step_size=0.1,
    )
    draws = positions.reshape(-1, 3)
    assert_allclose(temperature, 1, atol=0.03)
    assert_allclose(draws.mean(0), 0, atol=0.1)
    assert_allclose(draws.std(0), 1, rtol=0.05)
    assert_allclose(np.corrcoef(draws.T), covariance, atol=0.05)


def test_badly_scaled_gaussian():
    # Standard deviations from 1 to 0.01: a condition number of 1e4 and more.
    scale = np.logspace(0, -2, 5)
    covariance = np.outer(scale, scale) * (0.5 + 0.5 * np.eye(5))
    assert np.linalg.cond(covariance) > 1e4
    positions, temperature = _sample_gaussian(
        np.linalg.inv(covariance),
        step_size=0.05,
        # From the unit ball, as networks start: hundreds of deviations away in some
        # coordinates.
        start=torch.randn(200, 5, generator=make_generator(1)),
    )
    draws = positions.reshape(-1, 5)
    assert_allclose(temperature, 1, atol=0.05)
    assert_allclose(draws.std(0), scale, rtol=0.25)
    assert_allclose(draws.mean(0) / scale, 0, atol=0.1)


def _published_temperature(curvature, noise_std, *, step_size, friction):
    """Run Springenberg's Eq. 10, with the mass and the noise known exactly."""
    generator, shape = make_generator(0), (200, 1)
    second_moment = curvature + noise_std**2
    h = step_size**2 / second_moment**0.5
    position, velocity = torch.zeros(shape), torch.zeros(shape)
    thermostat = max(2 * h * friction - step_size**4, 1e-16) ** 0.5
    squares = []
    for step in range(4000):
        noise = noise_std * torch.randn(shape, generator=generator)
        gradient = curvature * position + noise
        xi = torch.randn(shape, generator=generator)
        velocity = velocity * (1 - friction) - h * gradient + thermostat * xi
        position = position + velocity
        if step >= 1000:
            squares.append(velocity.square().mean())
    return float(torch.stack(squares).mean()) / h


HOT = 22_627  # rows from which 2 friction < ε² V^(1/2), at the defaults


@pytest.mark.parametrize("n_rows", [2_000, 50_000, 200_000, 1_000_000])
def test_many_rows_leave_the_spread_right(n_rows):
    # As a linear model with unit noise on inputs of variance 1, 0.1 and 0.01: every row
    # adds that to the curvature, and batches of 512 give a gradient noise of
    # n_rows / sqrt(512), here in all coordinates.
    scale = np.array([1, 0.1, 0.01])
    positions, temperature = _sample_gaussian(
        n_rows * np.diag(scale),
        noise_std=n_rows * (1 / 512 - 1 / n_rows) ** 0.5,
        n_chains=100,
        n_steps=20_000,
    )
    draws = positions.reshape(-1, 3) * (n_rows * scale) ** 0.5
    assert_allclose(temperature, 1, atol=0.05)
    assert_allclose(draws.std(0), 1, rtol=0.15)


@pytest.mark.parametrize("n_rows", [2_000, 50_000, 200_000])
def test_the_published_update_runs_hot_with_many_rows(n_rows):
    published = _published_temperature(
        n_rows,
        n_rows * (1 / 512 - 1 / n_rows) ** 0.5,
        step_size=0.01,
        friction=0.05,
    )
    assert (published > 1.5) == (n_rows > HOT)
    if n_rows < HOT:
        assert_allclose(published, 1, atol=0.1)


# One step at a time


def _state(**changes):
    shape = (2, 3)
    state = _sghmc.freeze(
        _sghmc.State(
            position=torch.arange(6.0).reshape(shape),
            velocity=torch.full(shape, 0.5),
            step=torch.full(shape, 0.04),
            retention=torch.full(shape, 0.9),
            noise_scale=torch.full(shape, 0.2),
        )
    )
    return state._replace(**changes)


def test_update_by_hand():
    state, gradient = _state(), torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]])
    xi = torch.randn(2, 3, generator=make_generator(3))
    after = _sghmc.update(state, gradient, make_generator(3))
    kicked = 0.5 - 0.04 * gradient
    velocity = 0.9 * kicked + 0.2 * xi
    assert_allclose(after.velocity, velocity, rtol=1e-6)
    assert_allclose(
        after.position, state.position + kicked / 2 + velocity / 2, rtol=1e-6
    )
    assert_array_equal(after.step, state.step)


def test_states_are_never_changed_in_place():
    state, gradient = _state(), torch.ones(2, 3)
    before = [None if part is None else part.clone() for part in state[:5]]
    _sghmc.update(state, gradient, make_generator(0))
    _sghmc.resample_velocity(state, make_generator(0))
    _sghmc.restore(state, _state(position=gradient), torch.tensor([True, False]))
    _sghmc.rescale(state, torch.full((2, 1), 0.5), 0.05)
    _sghmc.trial(state, gradient, make_generator(0))
    for part, copy in zip(state[:5], before, strict=True):
        assert_array_equal(part, copy)
    adapting = _sghmc.init(gradient)
    settings = {"step_size": 0.1, "friction": 0.05, "is_exact": False}
    settings["unit"] = torch.arange(3)
    once = _sghmc.adapt(adapting, gradient, floor=gradient, **settings)
    moment = once.second_moment.clone()
    _sghmc.adapt(once, 5 * gradient, floor=gradient, **settings)
    assert_array_equal(adapting.second_moment, torch.zeros(2, 3))
    assert_array_equal(once.second_moment, moment)
    frozen = _sghmc.freeze(once)  # and what was only for the adaptation is gone
    assert {name for name, part in frozen._asdict().items() if part is None} == {
        "first_moment",
        "second_moment",
        "noise_variance",
        "last_gradient",
    }


def test_adapt_sets_the_step_and_the_thermostat_by_hand():
    gradient = torch.tensor([[2.0, 0.1]])
    state = _sghmc.adapt(
        _sghmc.init(torch.zeros(1, 2)),
        gradient,
        floor=torch.full((1, 2), 0.25),
        unit=torch.arange(2),
        step_size=0.1,
        friction=0.05,
        is_exact=True,
    )
    # ε² / sqrt(max(g², floor)), and h (1 - a²) of noise as full gradients have none.
    step = np.array([[0.01 / 2, 0.01 / 0.5]])
    assert_allclose(state.step, step, rtol=1e-6)
    assert_allclose(state.retention, 0.95, rtol=1e-6)
    assert_allclose(state.noise_scale**2, step * (1 - 0.95**2), rtol=1e-5)
    assert state.n_adapted == 1


def test_adapt_averages_the_noise_by_hand():
    state = _sghmc.init(torch.zeros(1, 1))
    for gradient in (1.0, 3.0, 2.0):
        state = _sghmc.adapt(
            state,
            torch.tensor([[gradient]]),
            floor=torch.tensor([[1e-6]]),
            unit=torch.tensor([0]),
            step_size=10.0,
            friction=0.05,
            is_exact=False,
        )
    assert_allclose(state.first_moment, 2, rtol=1e-6)
    assert_allclose(state.second_moment, 14 / 3, rtol=1e-6)
    # Half of the squared differences 2 and -1.
    assert_allclose(state.noise_variance, (2 + 0.5) / 2, rtol=1e-6)
    # 1 / σ² instead of ε² / sqrt(14 / 3); r = 1 / 4, and no noise is needed on top.
    assert_allclose(state.step, 0.8, rtol=1e-6)
    assert_allclose(state.retention, 0.6, rtol=1e-6)
    assert_allclose(state.noise_scale, 0, atol=1e-3)


def test_weights_into_one_unit_share_its_stiffness():
    # 400 weights that act through their sum: U = 50 (Σ w)², so that each alone has the
    # curvature 100 and all together 40 000. With the step of a single weight, ε² / 10,
    # the sum would turn by sqrt(0.04 * 40 000 / 10) = 12 radians per update.
    def steps(unit, step_size, mean=0.0):
        state = _sghmc.init(torch.zeros(1, 400))
        for sign in (1, -1):  # at rest, the gradient has the variance 100
            state = _sghmc.adapt(
                state,
                mean + sign * torch.full((1, 400), 10.0),
                floor=torch.full((1, 400), 1e-6),
                unit=unit,
                step_size=step_size,
                friction=0.05,
                is_exact=True,
            )
        return state.step

    apart, together = torch.arange(400), torch.zeros(400, dtype=int)
    assert_allclose(steps(apart, 0.2).sum() * 100, 160, rtol=1e-5)
    assert_allclose(steps(together, 0.2).sum() * 100, 1, rtol=1e-5)
    # Where nothing is stiff, nothing changes, nor does a drift count as stiffness.
    assert_allclose(steps(together, 0.01), 0.01**2 / 10, rtol=1e-5)
    drifting = steps(together, 0.01, mean=1e4)
    assert_allclose(drifting, 0.01**2 / 1e4, rtol=1e-4)


def test_adapt_estimates_the_noise_apart_from_the_gradient():
    # A gradient far from zero with little noise: the mass sees both, the noise one.
    generator = make_generator(0)
    state = _sghmc.init(torch.zeros(1, 2000))
    for _ in range(500):
        state = _sghmc.adapt(
            state,
            10 + 2 * torch.randn(1, 2000, generator=generator),
            floor=torch.ones(1, 2000),
            unit=torch.arange(2000),
            step_size=0.1,
            friction=0.05,
            is_exact=False,
        )
    assert_allclose(state.second_moment.mean(), 104, rtol=0.01)
    assert_allclose(state.noise_variance.mean(), 4, rtol=0.02)


@pytest.mark.parametrize("heat", [0.0, 1e-3, 0.05, 0.2, 1.0])
def test_thermostat_obeys_einsteins_relation(heat):
    # Without force: positions must diffuse as they would without gradient noise, and
    # velocities have the variance that `rest_variance` says.
    step = torch.full((20_000, 1), 0.01)
    noise = torch.full((20_000, 1), heat / 0.01)
    retention, noise_scale = _sghmc._thermostat(step, noise, 0.05)
    assert 0 < retention[0].item() <= 0.95 + 1e-6
    zeros = torch.zeros(20_000, 1)
    state = _sghmc.State(zeros, zeros, step, retention, noise_scale)
    generator, n_steps = make_generator(0), 600
    state = _sghmc.resample_velocity(state, generator)
    for _ in range(n_steps):
        gradient = noise.sqrt() * torch.randn(20_000, 1, generator=generator)
        state = _sghmc.update(state, gradient, generator)
    a = retention[0].item()
    expected = n_steps * 0.01 * (1 + a) / (1 - a)
    # The start and the end of a path of 600 steps are worth a few per cent at a = 0.95.
    assert_allclose(state.position.var().item(), expected, rtol=0.08)
    # The relative error of a variance from 20 000 values is 1 %.
    assert_allclose(_sghmc.temperature(state).mean().item(), 1, rtol=0.04)


def test_resample_velocity_has_the_variance_at_rest():
    step = torch.tensor([[0.01], [4.0]]).expand(2, 50_000)
    zeros, retention = torch.zeros(2, 50_000), torch.full((2, 50_000), 0.9)
    noise_scale = (step * (1 - 0.9**2)).sqrt()
    state = _sghmc.State(zeros, zeros, step, retention, noise_scale)
    velocity = _sghmc.resample_velocity(state, make_generator(0)).velocity
    # The relative error of a variance from 50 000 values is 0.6 %.
    assert_allclose(velocity.var(1), [0.01, 4.0], rtol=0.03)
    assert_allclose(velocity.mean(1), [0, 0], atol=0.03)
    resampled = state._replace(velocity=velocity)
    assert_allclose(_sghmc.temperature(resampled), [1, 1], rtol=0.03)


def test_restore_picks_chains():
    now, earlier = _state(), _state(position=-torch.ones(2, 3), step=torch.ones(2, 3))
    mixed = _sghmc.restore(now, earlier, torch.tensor([False, True]))
    assert_array_equal(mixed.position, [[0, 1, 2], [-1, -1, -1]])
    assert_allclose(mixed.step, [[0.04] * 3, [1.0] * 3])
    assert mixed.second_moment is None


def test_rescale_is_a_kernel_of_another_step_size():
    # Step, friction and noise as if the step had been that from the start: one
    # coordinate with the least friction, one that its gradient noise slows.
    def kernel(step_size):
        step = step_size**2 * torch.tensor([[0.5, 0.5]])
        noise = torch.tensor([[1.0, 100.0]])
        zeros = torch.zeros(1, 2)
        return _sghmc.State(zeros, zeros, step, *_sghmc._thermostat(step, noise, 0.05))

    wanted = kernel(0.1)
    assert wanted.retention[0, 1] < wanted.retention[0, 0] == 0.95
    found = _sghmc.rescale(kernel(0.15), torch.full((1, 1), 0.1 / 0.15), 0.05)
    for name in ("step", "retention", "noise_scale"):
        # Where noise does all the shaking, what is left to add is rounding.
        assert_allclose(
            getattr(found, name), getattr(wanted, name), rtol=1e-3, atol=1e-4
        )


def test_energy_error_of_a_trial_by_hand():
    # One step of Verlet in the bowl k w² / 2. With ω² = h k, the drift and both half
    # kicks give H' - H = ω⁴ / 8 · (...), worked out here step by step in numpy.
    curvature, step = 3.0, 0.2
    state = _state(step=torch.full((2, 3), step))
    w = state.position.double().numpy()
    v = np.sqrt(step) * torch.randn(2, 3, generator=make_generator(1)).double().numpy()
    half = v - step / 2 * curvature * w
    after = w + half
    full = half - step / 2 * curvature * after

    def energy(w, v):
        return (curvature * w**2 / 2 + v**2 / (2 * step)).sum(1)

    position, *motion = _sghmc.trial(
        state, curvature * state.position, make_generator(1)
    )
    assert_allclose(position, after, rtol=1e-5)
    gain = _sghmc.energy_gain(state, *motion, curvature * position)
    error = gain.numpy() + curvature * ((after**2 - w**2) / 2).sum(1)
    assert_allclose(error, energy(after, full) - energy(w, v), rtol=1e-3, atol=1e-4)
    assert (np.abs(error) > 1e-2).all()  # there is something to compare


# Prior and noise


def test_gibbs_step_is_the_conjugate_gamma():
    # Two chains, two layers of 2 and 3 weights, with units of 1 and 2.
    position = torch.tensor([[1.0, -1.0, 0.5, 0.5, 0.5], [3.0, 0.0, 0.0, 0.0, 2.0]])
    layer = torch.tensor([0, 0, 1, 1, 1])
    unit = torch.tensor([1.0, 1.0, 2.0, 2.0, 2.0])
    rng = np.random.default_rng(0)
    one = _sghmc.sample_precision(position, layer, unit, 3.0, 2.0, rng)
    assert one.dtype == position.dtype
    draws = np.stack(
        [
            _sghmc.sample_precision(position, layer, unit, 3.0, 2.0, rng).numpy()
            for _ in range(4_000)
        ]
    )
    shape = 3 + np.array([2, 3]) / 2
    rate = 2 + np.array([[2.0, 1.5], [9.0, 8.0]]) / 2
    # Standard errors: 0.8 % of the mean and 3 % of the variance.
    assert draws.shape == (4_000, 2, 2)
    assert_allclose(draws.mean(0), shape / rate, rtol=0.03)
    assert_allclose(draws.var(0), shape / rate**2, rtol=0.15)
    flat = draws.reshape(len(draws), -1)
    assert_allclose(np.corrcoef(flat.T), np.eye(4), atol=0.06)
