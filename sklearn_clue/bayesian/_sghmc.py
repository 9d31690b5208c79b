"""Scale-adapted stochastic gradient Hamiltonian Monte Carlo.

Springenberg et al., "Bayesian Optimization with Robust Bayesian Neural Networks"
(2016), after Chen et al. (2014). A chain moves a position w with a velocity v under
the energy U(w) = -log p(data | w) - log p(w), of which it sees gradients estimated
on minibatches. Convention: U and its gradient are **sums** over all rows, so a
minibatch gradient arrives here already multiplied by n_rows / batch_size.

With the step size ε, the mean square V of each gradient coordinate gives the
coordinate its own step h = ε² V^(-1/2): the inverse mass, in units of squared time.
At rest, v has the variance h. One update is a kick, half a drift, a thermostat, and
the other half of the drift:

    v ← v - h g
    w ← w + v / 2
    v ← a v + sqrt(s) ξ,  ξ standard normal
    w ← w + v / 2

Differs from the paper: Springenberg's Eq. 10 steps v and then w by its new value.
This order costs the same, and its positions have no error in the step size at all
where U is quadratic, so larger steps stay right (Leimkuhler and Matthews 2013).

The gradient noise heats. With its variance σ² per coordinate, v keeps the variance h
if the thermostat puts in that much less:

    s = h (1 - a²) - a² h² σ² κ(a)                                        (1)

Springenberg's Eq. 10 bounds σ² by V, so that h² σ² = ε⁴. With a = 1 - friction held
fixed, s reaches zero where ε² V^(1/2) > 2 friction: large gradients, that is many
rows. It cannot go below, so the chain runs hot from there on. Here a coordinate that
noisy gets more friction instead, as much as it takes for s ≥ 0:

    a = (1 + h σ²)^(-1/2)

and stays at temperature one, with σ² estimated on its own from the differences of
successive gradients. κ is the share of the noise that is left when batches come
without replacement, see `noise_left_by_shuffling`.
"""

from typing import NamedTuple

import torch


class State(NamedTuple):
    """Where chains are, how they move, and what they know about their gradients.

    All tensors have shape (n_chains, n_weights). States are never changed in place,
    so an old one is a checkpoint for free.
    """

    position: torch.Tensor
    velocity: torch.Tensor
    step: torch.Tensor  # h, the squared step per coordinate
    retention: torch.Tensor  # a, the share of the velocity that friction leaves
    noise_scale: torch.Tensor  # sqrt(s)
    # Only while adapting: E[g²], E[(g - last g)²] / 2, and the last gradient.
    second_moment: torch.Tensor | None = None
    noise_variance: torch.Tensor | None = None
    last_gradient: torch.Tensor | None = None
    n_adapted: int = 0


def init(position):
    """Start chains at rest, knowing nothing about their gradients.

    Parameters
    ----------
    position : Tensor of shape (n_chains, n_weights)
        The first weights.

    Returns
    -------
    state : State
        To be passed to `adapt` before the first `update`.
    """
    zeros = torch.zeros_like(position)
    return State(position, zeros, zeros, zeros, zeros, zeros, zeros, zeros)


def adapt(state, gradient, *, floor, unit, step_size, friction, n_batches, window=50):
    """Learn mass and gradient noise from one more gradient, and set the kernel by it.

    Parameters
    ----------
    state : State
        The chains.

    gradient : Tensor of shape (n_chains, n_weights)
        Gradient of the energy at `state.position`, on the next minibatch.

    floor : Tensor of shape (n_chains, n_weights)
        Curvature of the prior. At rest E[g²] = E[∂²U], of which it is a part, so less
        cannot be right: it is what a unit shows that happens to be silent now, and
        the step would be too large for it once it speaks.

    unit : int Tensor of shape (n_weights,)
        The unit of the network that each weight feeds. All weights into a unit act
        through one sum, so their curvatures act together: see `_limit_stiffness`.

    step_size : float
        The step ε.

    friction : float
        Share of the velocity lost per update, unless the noise demands more.

    n_batches : int
        Batches in an epoch, which visits every row once.

    window : int, default=50
        Iterations that the moving averages look back; fewer at the start, so that
        the first transient is forgotten.

    Returns
    -------
    state : State
        The same position and velocity, with a new kernel.
    """
    n_adapted = state.n_adapted + 1
    rate = max(1 / n_adapted, 1 / window)
    second_moment = torch.lerp(state.second_moment, gradient.square(), rate)
    noise_variance = state.noise_variance
    if n_adapted > 1:
        jump = (gradient - state.last_gradient).square_().mul_(0.5)
        rate = max(1 / (n_adapted - 1), 1 / window)
        noise_variance = torch.lerp(noise_variance, jump, rate)
    step = step_size**2 * torch.maximum(second_moment, floor).rsqrt()
    noise = _noise_of_a_batch(noise_variance, n_batches)
    step = _limit_stiffness(step, torch.maximum(second_moment - noise, floor), unit)
    retention, noise_scale = _thermostat(step, noise, friction, n_batches)
    return state._replace(
        step=step,
        retention=retention,
        noise_scale=noise_scale,
        second_moment=second_moment,
        noise_variance=noise_variance,
        last_gradient=gradient.clone(),
        n_adapted=n_adapted,
    )


def freeze(state):
    """End the adaptation: from here on the kernel is fixed and the chain Markovian."""
    return state._replace(second_moment=None, noise_variance=None, last_gradient=None)


def update(state, gradient, generator):
    """Move the chains by one step.

    Parameters
    ----------
    state : State
        The chains, with a kernel from `adapt`.

    gradient : Tensor of shape (n_chains, n_weights)
        Gradient of the energy at `state.position`, on a minibatch.

    generator : torch.Generator
        Source of the thermostat's noise.

    Returns
    -------
    state : State
        The chains after the step.
    """
    velocity = torch.addcmul(state.velocity, state.step, gradient, value=-1)
    position = torch.add(state.position, velocity, alpha=0.5)
    velocity.mul_(state.retention).addcmul_(state.noise_scale, _noise(state, generator))
    position.add_(velocity, alpha=0.5)
    return state._replace(position=position, velocity=velocity)


def resample_velocity(state, generator):
    """Draw new velocities from their distribution at rest, Normal(0, h)."""
    return state._replace(velocity=state.step.sqrt() * _noise(state, generator))


def restore(state, earlier, chains):
    """Put some chains back to where they were, and leave the others alone.

    Parameters
    ----------
    state, earlier : State
        The chains now and at the checkpoint.

    chains : bool Tensor of shape (n_chains,)
        Which chains to put back.

    Returns
    -------
    state : State
        The mixture of both.
    """
    pick = chains[:, None]
    return state._replace(
        **{
            name: torch.where(pick, getattr(earlier, name), now)
            for name, now in state._asdict().items()
            if isinstance(now, torch.Tensor)
        }
    )


def temperature(state):
    """Mean kinetic energy per coordinate over its value at rest; one if all is well."""
    return (state.velocity.square() / state.step).mean(1)


def sample_precision(position, layer, unit_precision, shape, rate, generator):
    """Draw the prior precision of each layer given its weights (a Gibbs step).

    With the prior w ~ Normal(0, 1 / (λ u)), u being the unit of precision, and
    λ ~ Gamma(shape, rate), the conditional is Gamma(shape + n / 2,
    rate + Σ u w² / 2), n being the number of weights and biases in the layer.

    Differs from the paper: u is 1 there, whatever the width of a layer. Sums over a
    layer's inputs then grow with its width, so that at λ = 1 a network of width 200
    has outputs in the hundreds where targets are of order one, and a chain that
    starts at a sensible scale never reaches the posterior it is to sample.

    Parameters
    ----------
    position : Tensor of shape (n_chains, n_weights)
        The weights.

    layer : int Tensor of shape (n_weights,)
        The layer of each weight.

    unit_precision : Tensor of shape (n_weights,)
        What λ = 1 means for each weight.

    shape, rate : float
        Parameters of the Gamma hyperprior.

    generator : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    precision : Tensor of shape (n_chains, n_layers)
        One λ per chain and layer.
    """
    n_layers = int(layer[-1]) + 1
    squares = position.new_zeros(len(position), n_layers)
    squares.index_add_(1, layer, position.square() * unit_precision)
    counts = torch.bincount(layer, minlength=n_layers)
    draws = generator.gamma(
        shape + counts.cpu().numpy() / 2,
        1 / (rate + squares.double().cpu().numpy() / 2),
    )
    return torch.as_tensor(draws, dtype=position.dtype, device=position.device)


def noise_left_by_shuffling(retention, n_batches):
    """Share of the gradient noise that still heats when batches are shuffled.

    Batches drawn without replacement sum up to the whole data set, so their errors
    sum up to zero over an epoch, and a velocity that remembers many steps feels
    little of them. For errors ξ_j of variance σ² with that constraint and weights
    c_j = a^(S - j), j = 1 ... S, the velocity collects

        Var(Σ c_j ξ_j) = σ² S / (S - 1) · (Σ c_j² - (Σ c_j)² / S)

    per epoch, against σ² Σ c_j² from independent ones. The function is the ratio.

    Parameters
    ----------
    retention : Tensor
        The share a of the velocity that a step keeps, in (0, 1).

    n_batches : int
        Batches per epoch, S.

    Returns
    -------
    share : Tensor of the shape of `retention`
        κ, between 0 (no noise, as for a single batch) and 1.
    """
    if n_batches == 1:
        return torch.zeros_like(retention)
    a, n = retention.double(), n_batches
    squares = (1 - a ** (2 * n)) / (1 - a**2)
    square_of_sum = ((1 - a**n) / (1 - a)) ** 2
    share = n / (n - 1) * (1 - square_of_sum / (n * squares))
    return share.clamp_(0, 1).to(retention.dtype)


def _limit_stiffness(step, curvature, unit):
    """Shorten the steps into units that would turn by more than a radian per update.

    The weights w_i into a unit matter through the sum Σ x_i w_i over inputs that are
    positive together, so the energy has one stiff direction per unit, whose curvature
    is about the sum of all of theirs. With the step h the dynamics turns by
    sqrt(Σ h_i ∂²_i U) radians per update there. It is unstable beyond 2 and wrong well
    before, which is where an output unit of the published update lives: its inputs
    are many.
    """
    turn = step.new_zeros(len(step), int(unit.max()) + 1)
    turn.index_add_(1, unit, step * curvature)  # squared
    return step * (1 / turn).clamp_max_(1)[:, unit]


def _noise_of_a_batch(noise_variance, n_batches):
    """Correct the variance of successive differences for shuffling."""
    if n_batches == 1:  # a full gradient: the differences are the chain's own moves
        return torch.zeros_like(noise_variance)
    # Batches of one epoch are a little more different than independent ones:
    # E[(ξ_i - ξ_j)²] / 2 = σ² S / (S - 1), in S - 1 of S pairs.
    return noise_variance * (n_batches / (n_batches + 1))


def _thermostat(step, noise, friction, n_batches):
    """Friction and noise that keep the velocities at temperature one, Eq. (1)."""
    usual = torch.full_like(step, 1 - friction)
    heat = step * noise
    kappa = noise_left_by_shuffling(usual[:1, :1], n_batches)
    is_noisy = usual**2 * (1 + heat * kappa) > 1
    retention = torch.where(is_noisy, (1 + heat).rsqrt(), usual)
    kappa = noise_left_by_shuffling(retention, n_batches)
    variance = step * (1 - retention**2 * (1 + heat * kappa))
    return retention, variance.clamp_min_(0).sqrt_()


def _noise(state, generator):
    return torch.randn(
        state.position.shape,
        generator=generator,
        dtype=state.position.dtype,
        device=state.position.device,
    )
