"""Chains of networks: skorch runs the loop, SG-HMC takes the steps.

What lives here is everything between the two: batches, energies, the check that a
chain is still where its posterior is, and the collection of draws.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback

from sklearn_clue._modules import MLPStack
from sklearn_clue._torch import (
    RandomBatches,
    load_optimizers,
    make_generator,
    one_thread,
    to_numpy,
)
from sklearn_clue.bayesian import _sghmc
from sklearn_clue.exceptions import ChainDivergedError

# With fewer, the mass still holds the transient of the first iterations, and the
# chain diverges as soon as it is frozen.
MIN_ADAPTATION = 120

# The step size is learned from the energy error of single steps, tried every so many
# iterations of the adaptation, after the first ones. With steps that a Metropolis test
# would accept nine times in ten, no bias could be told from the Monte Carlo error of a
# hundred draws on the posteriors of tests/reference.
TRIAL_INTERVAL = 4
FIRST_TRIAL = 20
ACCEPTANCE = 0.9

# What an excursion leaves of the step size, the nth in a row its nth power; how far
# apart checkpoints are and how long failures are remembered, in iterations.
SHRINKAGE = 0.8
CHECKPOINT_INTERVAL = 10
FAILURE_MEMORY = 200


@dataclass(frozen=True, kw_only=True)
class ChainSettings:
    """How to run chains; lengths in epochs unless they say otherwise."""

    layer_sizes: tuple
    batch_size: int
    n_draws: int  # per chain
    burn_in: int
    thinning: int
    n_adaptation: int  # iterations
    step_size: float
    friction: float
    prior_shape: float
    prior_rate: float
    momentum_interval: int | None  # iterations
    prior_interval: int | None  # iterations; None leaves the precisions at one
    prior_scale: float = 1.0  # standard deviations of weights at a precision of one
    max_growth: float = 1.0  # of the step size while it is adapted
    device: str = "cpu"

    @property
    def n_epochs(self):
        return self.burn_in + self.n_draws * self.thinning


class ChainState(NamedTuple):
    """All that a chain needs to go on where it stopped, as arrays per chain."""

    weights: np.ndarray
    precision: np.ndarray  # per layer
    step: np.ndarray  # the kernel, of weights and then scales of layers
    retention: np.ndarray
    noise_scale: np.ndarray
    step_size: np.ndarray


class ChainResult(NamedTuple):
    """What a run leaves behind."""

    draws: np.ndarray  # (n_chains, n_draws, n_weights)
    end: ChainState
    energy: np.ndarray  # (n_epochs, n_chains), nats
    temperature: np.ndarray  # (n_epochs, n_chains)
    n_rejected: np.ndarray  # (n_chains,), epochs
    is_complete: bool


def run_chains(
    tensors, nll, settings, n_chains, seed, *, progress, start=None, checkpoint=None
):
    """Sample networks from their posterior, several chains at once.

    Parameters
    ----------
    tensors : tuple of Tensor
        Inputs, targets and weights of the rows. A weight scales the likelihood of
        its row.

    nll : callable
        `nll(outputs, y)` gives the negative log-likelihood of each row, from outputs
        of shape (n_chains, n_rows, n_out) to (n_chains, n_rows).

    settings : ChainSettings
        How to run.

    n_chains : int
        Number of chains.

    seed : int
        Fixes the run.

    progress : EpochProgress
        Is told about each epoch.

    start : ChainState, default=None
        Where to go on. None starts anew.

    checkpoint : Checkpoint, default=None
        Where to save the run now and then, and to look for it first.

    Returns
    -------
    result : ChainResult
        Draws and the record of the run. If it was interrupted, those so far.
    """
    device = settings.device
    # The order of the rows has a source of its own: the thermostat's noise must not
    # depend on how many rows there are.
    init_seed, batch_seed, noise_seed, gibbs_seed = np.random.SeedSequence(
        int(seed)
    ).generate_state(4)
    module = MLPStack(
        settings.layer_sizes, n_chains, make_generator(init_seed, device), device
    )
    batches = RandomBatches(
        tensors,
        settings.batch_size,
        n_chains,
        make_generator(batch_seed, device),
    )
    energy = _Energy(nll, len(tensors[0]))
    chains = _Chains(
        module,
        energy,
        settings,
        n_batches=len(batches),
        total_weight=float(tensors[2].sum()),
        generator=make_generator(noise_seed, device),
        rng=np.random.default_rng(gibbs_seed),
        progress=progress,
        start=start,
        batch_generator=batches.generator,
        checkpoint=checkpoint,
    )
    n_done = len(chains.energies)
    net = NeuralNet(
        module,
        criterion=energy,
        optimizer=_Sampler,
        optimizer__chains=chains,
        lr=settings.step_size,
        max_epochs=settings.n_epochs - n_done,
        # skorch's default loader collates row by row, which costs as much as the
        # network itself.
        iterator_train=lambda dataset, **kwargs: batches,
        train_split=None,
        callbacks=[("chains", chains)],
        callbacks__epoch_timer=None,
        callbacks__train_loss=None,
        callbacks__valid_loss=None,
        callbacks__print_log=None,
        verbose=0,
        device=device,
    )
    load_optimizers()
    with one_thread(), progress:
        # Not the energy of a batch: from an easy one, the first epoch would look like
        # an excursion, and so would every attempt to repeat it.
        if not n_done:
            chains.begin(energy.of_all_rows(module, tensors))
        progress.skip(n_done)
        try:
            net.fit(*tensors[:2])  # returns early on KeyboardInterrupt
        except _StopSampling:
            pass
    return chains.result()


class _StopSampling(Exception):
    """A callback of the user's asked to stop."""


class _Energy(torch.nn.Module):
    """Energy of the data as a criterion: a sum over all rows, estimated on a batch."""

    def __init__(self, nll, n_rows):
        super().__init__()
        self.nll = nll
        self.n_rows = n_rows
        self.batches = []  # of this epoch so far, per chain

    def forward(self, outputs, targets):
        y, weight = targets
        energy = (weight * self.nll(outputs, y)).sum(1)
        energy = self.n_rows / weight.shape[1] * energy
        self.batches.append(energy.detach())
        # Chains do not touch each other: the gradient of the sum is that of each.
        return energy.sum()

    def of_all_rows(self, module, tensors, block_size=1024):
        """Energy of each row per chain."""
        parts = []
        with torch.no_grad():
            for blocks in zip(*(t.split(block_size) for t in tensors), strict=True):
                x, y, weight = (
                    block.expand(len(module.weights), *block.shape) for block in blocks
                )
                parts.append(weight * self.nll(module(x), y))
        return torch.cat(parts, 1)


class _Sampler(torch.optim.Optimizer):
    """Lets skorch take SG-HMC for an optimizer."""

    def __init__(self, params, lr, chains):
        super().__init__(params, {"lr": lr})
        self.chains = chains

    def step(self, closure):
        loss = closure()
        (weights,) = self.param_groups[0]["params"]
        gradient = self.chains.gradient(weights.grad)
        if self.chains.is_trial_due():
            with torch.no_grad():
                weights.copy_(self.chains.begin_trial(gradient))
            closure()  # on the same batch
            self.chains.end_trial(weights.grad)
        with torch.no_grad():
            weights.copy_(self.chains.advance(gradient))
        return loss


class LayerScales:
    """The hierarchical prior, in coordinates in which a chain can move.

    Weights of a layer are w = exp(u) z, with z ~ Normal(0, 1 / unit precision) and the
    precision λ = exp(-2 u) ~ Gamma(shape, rate). The chain moves z and u together.

    Differs from the paper, where w moves and λ is drawn given w from time to time. The
    thousands of weights of a layer leave λ a few per cent to move in, so it takes
    thousands of draws to get to where the data want it. We do both: `redraw` is that
    draw, and helps where the data know the weights of a layer well.

    Parameters
    ----------
    module : MLPStack
        The networks.

    shape, rate : float
        Parameters of the hyperprior.

    prior_scale : float
        What λ = 1 means, in standard deviations of He's initial weights.

    is_free : bool
        Whether there is a hyperprior. If not λ stays at one, and positions hold no u.
    """

    def __init__(self, module, shape, rate, prior_scale, is_free):
        self.layer = module.layer
        self.n_weights = len(module.layer)
        self.sizes = [(n_in + 1) * n_out for n_in, n_out in module.shapes]
        self.n_layers = len(self.sizes)
        self.unit_precision = module.unit_precision / prior_scale**2
        self.shape, self.rate, self.is_free = shape, rate, is_free
        n_scales = self.n_layers if is_free else 0
        # Curvature of the prior: p for a weight with the precision p, and 4 λ rate at
        # the mode of u, where that is 4 shape.
        scales = self.unit_precision.new_full((n_scales,), 4.0 * shape)
        self.curvature = torch.cat([self.unit_precision, scales])
        scales = torch.arange(n_scales, device=self.layer.device)
        self.unit = torch.cat([module.unit, int(module.unit.max()) + 1 + scales])

    def position(self, weights, precision):
        """Coordinates of weights, given the precision of each layer."""
        if not self.is_free:
            return weights.clone()
        return torch.cat(
            [weights * self._by_weight(precision.sqrt()), -0.5 * precision.log()], 1
        )

    def weights(self, position):
        """Weights at a position."""
        return position[:, : self.n_weights] * self._scale(position)

    def precision(self, position):
        """The precision λ of each layer."""
        if not self.is_free:
            return position.new_ones(len(position), self.n_layers)
        return (-2 * position[:, self.n_weights :]).exp()

    def gradient(self, position, gradient):
        """Gradient of the whole energy, from that of the data's by the weights."""
        gradient = gradient * self._scale(position)
        z = position[:, : self.n_weights]
        total = torch.addcmul(gradient, self.unit_precision, z)
        if not self.is_free:
            return total
        # dU/du = Σ w dU/dw = Σ z dU/dz over the layer, and of the prior of u, whose
        # density is that of λ times dλ/du, so λ^shape exp(-rate λ).
        by_scale = 2 * (self.shape - self.rate * self.precision(position))
        of_data = [part.sum(1) for part in (gradient * z).split(self.sizes, 1)]
        return torch.cat([total, by_scale + torch.stack(of_data, 1)], 1)

    def energy(self, position):
        """Energy of the prior, up to a constant."""
        z = position[:, : self.n_weights]
        energy = 0.5 * (self.unit_precision * z.square()).sum(1, dtype=torch.float64)
        if not self.is_free:
            return energy
        u = position[:, self.n_weights :].double()
        return energy + (2 * self.shape * u + self.rate * (-2 * u).exp()).sum(1)

    def redraw(self, state, rng):
        """Draw the precisions given the weights, which stay where they are."""
        weights = self.weights(state.position)
        precision = _sghmc.sample_precision(
            weights, self.layer, self.unit_precision, self.shape, self.rate, rng
        )
        # Velocities are those of z, at rest independent of all positions: they stay.
        return state._replace(position=self.position(weights, precision))

    def _scale(self, position):
        if not self.is_free:
            return 1.0
        return self._by_weight(position[:, self.n_weights :].exp())

    def _by_weight(self, values):
        """Repeat a value per layer for all of its weights."""
        parts = zip(values.split(1, 1), self.sizes, strict=True)
        return torch.cat([value.expand(-1, size) for value, size in parts], 1)


class _Chains(Callback):
    """State of the running chains, and what happens to it between steps."""

    def __init__(
        self,
        module,
        energy,
        settings,
        *,
        n_batches,
        total_weight,
        generator,
        rng,
        progress,
        start,
        batch_generator,
        checkpoint,
    ):
        self.module = module
        self.energy = energy
        self.settings = settings
        self.n_batches = n_batches
        self.generator = generator
        self.rng = rng
        self.progress = progress
        n_chains = len(module.weights)
        self.scales = LayerScales(
            module,
            settings.prior_shape,
            settings.prior_rate,
            settings.prior_scale,
            is_free=settings.prior_interval is not None,
        )
        self.step_size = module.weights.new_full((n_chains, 1), settings.step_size)
        if start is None:
            weights = module.weights.detach()
            ones = weights.new_ones(n_chains, self.scales.n_layers)
            self.state = _sghmc.init(self.scales.position(weights, ones))
        else:
            weights, precision, *kernel, self.step_size = (
                torch.as_tensor(part, device=settings.device) for part in start
            )
            position = self.scales.position(weights, precision)
            self.state = _sghmc.freeze(
                _sghmc.State(position, torch.zeros_like(position), *kernel)
            )
            self.state = _sghmc.resample_velocity(self.state, generator)
            self._show_weights()
        self.guard = EnergyGuard(
            n_chains, total_weight, memory=-(-FAILURE_MEMORY // n_batches)
        )
        self.checkpoints = deque(maxlen=40)  # positions and energies
        self.first = self.vouched = self.state
        self.iteration = 0
        self.draws, self.energies, self.temperatures = [], [], []
        self.batch_generator = batch_generator
        self.saved = checkpoint
        found = checkpoint and checkpoint.load(settings.device)
        if found:
            self._restore(found)

    def gradient(self, gradient):
        """Gradient of the whole energy, from that of the data's by the weights."""
        return self.scales.gradient(self.state.position, gradient)

    def is_trial_due(self):
        """Say whether the energy error of a step is to be measured now."""
        iteration = self.iteration + 1
        return (
            FIRST_TRIAL < iteration <= self.settings.n_adaptation
            and iteration % TRIAL_INTERVAL == 0
        )

    def begin_trial(self, gradient):
        """Take a step that nobody will see, and give the weights that it leads to."""
        position, *motion = _sghmc.trial(self.state, gradient, self.generator)
        before = self.energy.batches[-1] + self.scales.energy(self.state.position)
        self._trial = position, motion, before
        return self.scales.weights(position)

    def end_trial(self, gradient):
        """Learn the step size from the error of the trial, chain by chain."""
        position, motion, before = self._trial
        gradient = self.scales.gradient(position, gradient)
        after = self.energy.batches.pop() + self.scales.energy(position)
        error = after - before + _sghmc.energy_gain(self.state, *motion, gradient)
        accepted = torch.exp(-error).clamp_max_(1).nan_to_num_(0.0)
        # Robbins and Monro, with a rate that does not vanish: the chain may still be on
        # its way, to where the energy bends more.
        n_trials = (self.iteration + 1) // TRIAL_INTERVAL
        rate = max(0.4 / (1 + n_trials / 20) ** 0.7, 0.02)
        change = (rate * (accepted - ACCEPTANCE)).exp()[:, None]
        longest = self.settings.max_growth * self.settings.step_size
        self.step_size = (self.step_size * change).clamp_max_(longest)
        self.step_size = self.step_size.to(self.state.position.dtype)

    def advance(self, gradient):
        """Take one step from the gradient of the whole energy."""
        settings = self.settings
        self.iteration += 1
        if self.iteration <= settings.n_adaptation:
            self.state = _sghmc.adapt(
                self.state,
                gradient,
                floor=self.scales.curvature,
                unit=self.scales.unit,
                step_size=self.step_size,
                friction=settings.friction,
                is_exact=self.n_batches == 1,
            )
            if self.iteration == settings.n_adaptation:
                self.state = _sghmc.freeze(self.state)
        self.state = _sghmc.update(self.state, gradient, self.generator)
        if self._is_due(settings.momentum_interval):
            self.state = _sghmc.resample_velocity(self.state, self.generator)
        # Not before the weights have found their scale: the output layer starts small,
        # and a precision drawn to fit that would hold it there.
        if self.iteration > MIN_ADAPTATION and self._is_due(settings.prior_interval):
            self.state = self.scales.redraw(self.state, self.rng)
        if self._is_due(max(CHECKPOINT_INTERVAL, self.n_batches)):
            self._checkpoint()
        return self.scales.weights(self.state.position)

    def begin(self, row_energies):
        """Take the energies of all rows at the first weights as the reference."""
        # An epoch sees each row once on average, so that is the variance of its sum.
        n_rows = row_energies.shape[1]
        variance = n_rows * row_energies.var(1, correction=0)
        if self.n_batches == 1:
            variance = torch.zeros_like(variance)
        self.guard.begin(to_numpy(row_energies.sum(1)), to_numpy(variance))
        self._checkpoint()

    def on_epoch_begin(self, net, **kwargs):
        self.energy.batches.clear()
        self.first = self.state
        self.progress.begin_epoch()

    def on_epoch_end(self, net, **kwargs):
        epoch = len(self.energies) + 1
        batches = torch.stack(self.energy.batches)
        energy = to_numpy(batches.mean(0))
        variance = to_numpy(batches.var(0, correction=0) / max(self.n_batches - 1, 1))
        self.energies.append(energy)
        self.temperatures.append(to_numpy(_sghmc.temperature(self.state)))
        is_lost = ~self.guard.accept(energy, variance)
        # A step shows in the energy of the next batch only: an epoch that was accepted
        # vouches for the position it began at, not for the one it ended at.
        lost = torch.as_tensor(is_lost, device=self.settings.device)
        self.vouched = _sghmc.restore(self.first, self.vouched, lost)
        if is_lost.any():
            self._return(is_lost, epoch)
        drawing = epoch - self.settings.burn_in
        if drawing > 0 and drawing % self.settings.thinning == 0:
            self.draws.append(self.scales.weights(self.vouched.position))
        if self.saved is not None:
            if epoch == self.settings.n_epochs or self.saved.is_due():
                self.saved.save(self._snapshot())
        stop = self.progress.end_epoch(
            energy=float(energy.mean()) / self.energy.n_rows,
            temperature=float(self.temperatures[-1].mean()),
        )
        if stop:
            raise _StopSampling

    def result(self):
        """Collect what the run has so far."""
        state = self.state
        weights = self.scales.weights(state.position)
        end = ChainState(
            *(
                to_numpy(part)
                for part in (
                    weights,
                    self.scales.precision(state.position),
                    state.step,
                    state.retention,
                    state.noise_scale,
                    self.step_size,
                )
            )
        )
        draws = torch.stack(self.draws, 1) if self.draws else weights[:, None][:, :0]
        return ChainResult(
            draws=to_numpy(draws),
            end=end,
            energy=np.array(self.energies),
            temperature=np.array(self.temperatures),
            n_rejected=self.guard.n_rejected.copy(),
            is_complete=len(self.energies) == self.settings.n_epochs,
        )

    def _snapshot(self):
        """All that the rest of the run depends on, after an epoch."""
        return {
            "state": tuple(self.state),
            "step_size": self.step_size,
            "checkpoints": [
                (position, *_as_tensors([energy]))
                for position, energy in self.checkpoints
            ],
            "vouched": tuple(self.vouched),
            "iteration": self.iteration,
            "draws": self.draws,
            "energies": _as_tensors(self.energies),
            "temperatures": _as_tensors(self.temperatures),
            "guard": {
                "recent": [_as_tensors(pair) for pair in self.guard.recent],
                "counts": _as_tensors(self.guard.counts()),
            },
            "noise": self.generator.get_state(),
            "batches": self.batch_generator.get_state(),
            "gibbs": self.rng.bit_generator.state,
        }

    def _restore(self, found):
        """Go back to where `_snapshot` was taken."""
        self.state = _sghmc.State(*found["state"])
        self.step_size = found["step_size"]
        self.checkpoints.clear()
        self.checkpoints.extend(
            (position, to_numpy(energy)) for position, energy in found["checkpoints"]
        )
        self.vouched = _sghmc.State(*found["vouched"])
        self.iteration = found["iteration"]
        self.draws = found["draws"]
        self.energies = [to_numpy(part) for part in found["energies"]]
        self.temperatures = [to_numpy(part) for part in found["temperatures"]]
        self.guard.recent.clear()
        for pair in found["guard"]["recent"]:
            self.guard.recent.append(tuple(to_numpy(part) for part in pair))
        self.guard.set_counts([to_numpy(part) for part in found["guard"]["counts"]])
        # The states of generators live on the CPU, whatever they generate for.
        self.generator.set_state(found["noise"].cpu())
        self.batch_generator.set_state(found["batches"].cpu())
        self.rng.bit_generator.state = found["gibbs"]
        self._show_weights()

    def _is_due(self, interval):
        return interval is not None and self.iteration % interval == 0

    def _show_weights(self):
        with torch.no_grad():
            self.module.weights.copy_(self.scales.weights(self.state.position))

    def _checkpoint(self):
        energy = self.guard.recent[-1][0].copy()
        self.checkpoints.append((self.state.position.clone(), energy))

    def _return(self, is_lost, epoch):
        """Put chains back to a checkpoint, the further the more often, and slow them.

        An excursion says that the step is too long for where the chain goes. That the
        step shrinks while draws are taken is an adaptation that comes to its end.
        """
        position = self.state.position.clone()
        for chain in np.flatnonzero(is_lost):
            n_failures = self.guard.n_failures[chain]
            if n_failures > self.guard.max_failures:
                raise ChainDivergedError(
                    f"Chain {chain} diverged at epoch {epoch} and did not recover in "
                    f"{self.guard.max_failures} attempts: its training energy is "
                    f"{self.energies[-1][chain]:.3g} nats after "
                    f"{self.guard.reference()[chain]:.3g} before. Its step_size was "
                    f"lowered from {self.settings.step_size:.3g} to "
                    f"{self.step_size[chain].item():.3g} on the way. Look for values "
                    "in the data that are no numbers, or enormous."
                )
            # The way into an excursion begins before the energy shows it. Later
            # checkpoints may be on that way, and are not to be returned to again.
            back = min(2 * n_failures, len(self.checkpoints))
            there, energy = self.checkpoints[-back]
            for later, later_energy in list(self.checkpoints)[-back + 1 :]:
                later[chain], later_energy[chain] = there[chain], energy[chain]
            position[chain] = there[chain]
            self.guard.go_back(chain, energy[chain])
        lost = torch.as_tensor(is_lost, device=position.device)
        # What the adaptation learned from gradients on the way out is not to be kept.
        # If it has ended since, there may be no other kernel.
        was_adapting = self.vouched.second_moment is not None
        is_adapting = self.state.second_moment is not None
        if was_adapting and (is_adapting or self.vouched.step.any()):
            self.state = _sghmc.restore(self.state, self.vouched, lost)
        self.state = self.state._replace(position=position)
        factor = np.where(is_lost, SHRINKAGE**self.guard.n_failures, 1.0)
        factor = torch.as_tensor(factor[:, None]).to(position)
        self.step_size = self.step_size * factor
        self.state = _sghmc.rescale(self.state, factor, self.settings.friction)
        fresh = _sghmc.resample_velocity(self.state, self.generator)
        self.state = _sghmc.restore(self.state, fresh, lost)
        self._show_weights()


def _as_tensors(arrays):
    return [torch.tensor(np.array(array)) for array in arrays]


class EnergyGuard:
    """Tells from the training energy alone when a chain has left its typical set.

    Networks that predict their own noise have narrow passages in their posterior:
    where the noise predicted for some rows is tiny, gradients are enormous, and a step
    of fixed size may throw the chain out to where no draw would ever come from. A
    chain that did so in an epoch returns to where it was before.

    This leaves the posterior as it is. The energy of n rows concentrates: for a
    Gaussian with d ≤ n parameters determined by the data it is its minimum plus half
    a χ² of d degrees of freedom, so its standard deviation is at most sqrt(n / 2)
    nats. Rejecting moves to energies ten times that above the recent median is a
    Metropolis step for the posterior restricted to all lower energies, and the part
    cut off has a probability of about exp(-50). Energies of an epoch are estimates
    from random batches; the variance of those of late widens the limit.

    Parameters
    ----------
    n_chains : int
        Number of chains.

    total_weight : float
        Sum of the rows' weights.

    width : float, default=10.0
        Standard deviations above the median where an excursion begins.

    window : int, default=20
        Accepted epochs that the median looks back.

    max_failures : int, default=25
        Rejections in a row after which a chain counts as diverged.

    memory : int, default=20
        Accepted epochs after which earlier rejections are forgotten. One is not
        enough: it may be a step on the way out.
    """

    def __init__(
        self,
        n_chains,
        total_weight,
        width=10.0,
        window=20,
        max_failures=25,
        memory=20,
    ):
        self.variance = max(total_weight, 2.0) / 2
        self.width = width
        self.max_failures = max_failures
        self.recent = deque(maxlen=window)
        self.n_rejected = np.zeros(n_chains, dtype=int)
        self.n_failures = np.zeros(n_chains, dtype=int)
        self.memory = memory
        self.n_accepted = np.zeros(n_chains, dtype=int)  # since the last rejection

    def counts(self):
        """All counts, for `set_counts`."""
        return [self.n_rejected, self.n_failures, self.n_accepted]

    def set_counts(self, counts):
        """Go on from earlier counts."""
        self.n_rejected, self.n_failures, self.n_accepted = counts

    def begin(self, energy, variance=0.0):
        """Take the energy of the first weights as the first reference."""
        self.recent.append((energy.copy(), np.broadcast_to(variance, energy.shape)))

    def reference(self):
        """Median of the recent energies, per chain."""
        return np.median([energy for energy, _ in self.recent], axis=0)

    def limit(self):
        """How far above the reference an excursion begins, per chain."""
        variance = np.median([variance for _, variance in self.recent], axis=0)
        return self.width * np.sqrt(self.variance + variance)

    def go_back(self, chain, energy):
        """Expect the energy of an earlier time of a chain, where it was higher."""
        for kept, _ in self.recent:
            kept[chain] = max(kept[chain], energy)

    def accept(self, energy, variance=0.0):
        """Say for each chain whether its energy is an ordinary one, and remember it.

        The variance is that of the energy as an estimate.
        """
        reference = self.reference()
        # Not finite is never ordinary, not even after an infinite reference.
        is_ordinary = np.isfinite(energy) & (energy <= reference + self.limit())
        self.n_rejected += ~is_ordinary
        self.n_accepted = np.where(is_ordinary, self.n_accepted + 1, 0)
        self.n_failures = np.where(
            self.n_accepted >= self.memory, 0, self.n_failures + ~is_ordinary
        )
        kept = np.where(is_ordinary, energy, reference)
        _, usual = self.recent[-1]
        self.recent.append((kept, np.where(is_ordinary, variance, usual)))
        return is_ordinary
