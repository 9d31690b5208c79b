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
    device: str = "cpu"

    @property
    def n_epochs(self):
        return self.burn_in + self.n_draws * self.thinning


class ChainStart(NamedTuple):
    """All that a chain needs to go on where it stopped, as arrays per chain."""

    position: np.ndarray
    step: np.ndarray
    retention: np.ndarray
    noise_scale: np.ndarray
    precision: np.ndarray


class ChainResult(NamedTuple):
    """What a run leaves behind."""

    draws: np.ndarray  # (n_chains, n_draws, n_weights)
    end: ChainStart
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

    start : ChainStart, default=None
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
        with torch.no_grad():
            weights.copy_(self.chains.advance(weights.grad))
        return loss


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
        n_layers = len(module.shapes)
        if start is None:
            self.state = _sghmc.init(module.weights.detach().clone())
            self.precision = torch.ones(n_chains, n_layers, device=settings.device)
        else:
            tensors = [torch.as_tensor(part, device=settings.device) for part in start]
            *state, self.precision = tensors
            position, *kernel = state
            self.state = _sghmc.freeze(
                _sghmc.State(position, torch.zeros_like(position), *kernel)
            )
            self.state = _sghmc.resample_velocity(self.state, generator)
            with torch.no_grad():
                module.weights.copy_(position)
        self._set_prior()
        self.guard = EnergyGuard(n_chains, total_weight)
        self.checkpoints = deque(maxlen=10)
        self._checkpoint()
        self.vouched = self.state.position
        self.iteration = 0
        self.draws, self.energies, self.temperatures = [], [], []
        self.batch_generator = batch_generator
        self.saved = checkpoint
        found = checkpoint and checkpoint.load(settings.device)
        if found:
            self._restore(found)

    def advance(self, gradient):
        """Take one step from the gradient of the data's energy."""
        settings = self.settings
        self.iteration += 1
        gradient = torch.addcmul(gradient, self.prior, self.state.position)
        if self.iteration <= settings.n_adaptation:
            self.state = _sghmc.adapt(
                self.state,
                gradient,
                floor=self.prior,
                unit=self.module.unit,
                step_size=settings.step_size,
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
        is_settled = self.iteration > settings.n_adaptation
        if is_settled and self._is_due(settings.prior_interval):
            self.precision = _sghmc.sample_precision(
                self.state.position,
                self.module.layer,
                self.module.unit_precision,
                settings.prior_shape,
                settings.prior_rate,
                self.rng,
            )
            self._set_prior()
        return self.state.position

    def begin(self, row_energies):
        """Take the energies of all rows at the first weights as the reference."""
        # An epoch sees each row once on average, so that is the variance of its sum.
        n_rows = row_energies.shape[1]
        variance = n_rows * row_energies.var(1, correction=0)
        if self.n_batches == 1:
            variance = torch.zeros_like(variance)
        self.guard.begin(to_numpy(row_energies.sum(1)), to_numpy(variance))

    def on_epoch_begin(self, net, **kwargs):
        self.energy.batches.clear()
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
        accepted = torch.as_tensor(~is_lost, device=self.settings.device)[:, None]
        self.vouched = torch.where(
            accepted, self.checkpoints[-1][0].position, self.vouched
        )
        for chain in np.flatnonzero(is_lost):
            self._return(chain, epoch)
        if is_lost.any():
            self._set_prior()
            with torch.no_grad():
                self.module.weights.copy_(self.state.position)
        self._checkpoint()
        drawing = epoch - self.settings.burn_in
        if drawing > 0 and drawing % self.settings.thinning == 0:
            self.draws.append(self.vouched)
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
        end = ChainStart(
            *(
                to_numpy(part)
                for part in (
                    state.position,
                    state.step,
                    state.retention,
                    state.noise_scale,
                    self.precision,
                )
            )
        )
        draws = (
            torch.stack(self.draws, 1) if self.draws else state.position[:, None][:, :0]
        )
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
            "precision": self.precision,
            "checkpoints": [(tuple(s), precision) for s, precision in self.checkpoints],
            "vouched": self.vouched,
            "iteration": self.iteration,
            "draws": self.draws,
            "energies": _as_tensors(self.energies),
            "temperatures": _as_tensors(self.temperatures),
            "guard": {
                "recent": [_as_tensors(pair) for pair in self.guard.recent],
                "counts": _as_tensors([self.guard.n_rejected, self.guard.n_failures]),
            },
            "noise": self.generator.get_state(),
            "batches": self.batch_generator.get_state(),
            "gibbs": self.rng.bit_generator.state,
        }

    def _restore(self, found):
        """Go back to where `_snapshot` was taken."""
        self.state = _sghmc.State(*found["state"])
        self.precision = found["precision"]
        self.checkpoints.clear()
        for state, precision in found["checkpoints"]:
            self.checkpoints.append((_sghmc.State(*state), precision))
        self.vouched = found["vouched"]
        self.iteration = found["iteration"]
        self.draws = found["draws"]
        self.energies = [to_numpy(part) for part in found["energies"]]
        self.temperatures = [to_numpy(part) for part in found["temperatures"]]
        self.guard.recent.clear()
        for pair in found["guard"]["recent"]:
            self.guard.recent.append(tuple(to_numpy(part) for part in pair))
        self.guard.n_rejected, self.guard.n_failures = (
            to_numpy(part) for part in found["guard"]["counts"]
        )
        # The states of generators live on the CPU, whatever they generate for.
        self.generator.set_state(found["noise"].cpu())
        self.batch_generator.set_state(found["batches"].cpu())
        self.rng.bit_generator.state = found["gibbs"]
        self._set_prior()
        with torch.no_grad():
            self.module.weights.copy_(self.state.position)

    def _is_due(self, interval):
        return interval is not None and self.iteration % interval == 0

    def _set_prior(self):
        # The gradient of -log Normal(w; 0, 1 / p) is p w, and its curvature p.
        self.prior = self.precision[:, self.module.layer] * self.module.unit_precision

    def _checkpoint(self):
        # A chain that returns gets a new velocity, so none is kept.
        self.checkpoints.append((self.state._replace(velocity=None), self.precision))

    def _return(self, chain, epoch):
        """Put a chain back to a checkpoint: the further, the more often in a row."""
        n_failures = self.guard.n_failures[chain]
        if n_failures > self.guard.max_failures:
            raise ChainDivergedError(
                f"Chain {chain} diverged at epoch {epoch} and did not recover in "
                f"{self.guard.max_failures} attempts: its training energy is "
                f"{self.energies[-1][chain]:.3g} nats after "
                f"{self.guard.reference()[chain]:.3g} before. Lower step_size (now "
                f"{self.settings.step_size}), or raise burn_in (now "
                f"{self.settings.burn_in} epochs) so that the mass is estimated longer."
            )
        # The way into an excursion begins before the energy shows it. Each failure
        # has left a checkpoint of its own, hence not the powers of two themselves.
        back = min(2**n_failures - 1, len(self.checkpoints))
        state, precision = self.checkpoints[-back]
        chosen = torch.zeros(len(precision), dtype=bool, device=precision.device)
        chosen[chain] = True
        if self.state.second_moment is None and state.second_moment is not None:
            state = _sghmc.freeze(state)
            if not state.step.any():  # the very start, before there was a kernel
                state = self.state._replace(position=state.position)
        fresh = _sghmc.resample_velocity(state, self.generator)
        self.state = _sghmc.restore(self.state, fresh, chosen)
        self.precision = torch.where(chosen[:, None], precision, self.precision)


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

    max_failures : int, default=10
        Rejections in a row after which a chain counts as diverged.
    """

    def __init__(self, n_chains, total_weight, width=10.0, window=20, max_failures=10):
        self.variance = max(total_weight, 2.0) / 2
        self.width = width
        self.max_failures = max_failures
        self.recent = deque(maxlen=window)
        self.n_rejected = np.zeros(n_chains, dtype=int)
        self.n_failures = np.zeros(n_chains, dtype=int)

    def begin(self, energy, variance=0.0):
        """Take the energy of the first weights as the first reference."""
        self.recent.append((energy, np.broadcast_to(variance, energy.shape)))

    def reference(self):
        """Median of the recent energies, per chain."""
        return np.median([energy for energy, _ in self.recent], axis=0)

    def limit(self):
        """How far above the reference an excursion begins, per chain."""
        variance = np.median([variance for _, variance in self.recent], axis=0)
        return self.width * np.sqrt(self.variance + variance)

    def accept(self, energy, variance=0.0):
        """Say for each chain whether its energy is an ordinary one, and remember it.

        The variance is that of the energy as an estimate.
        """
        reference = self.reference()
        # Not finite is never ordinary, not even after an infinite reference.
        is_ordinary = np.isfinite(energy) & (energy <= reference + self.limit())
        self.n_rejected += ~is_ordinary
        self.n_failures = np.where(is_ordinary, 0, self.n_failures + 1)
        kept = np.where(is_ordinary, energy, reference)
        _, usual = self.recent[-1]
        self.recent.append((kept, np.where(is_ordinary, variance, usual)))
        return is_ordinary
