"""How generative modules are trained: skorch's loop, RAdam, early stopping."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback

from sklearn_clue._torch import load_optimizers, one_thread

# Steps of constant size end in a cloud around the optimum, and its radius costs more
# than most choices of architecture: when the validation bound comes to rest, the
# learning rate is divided by this, and so often, before training stops.
DECAY = 4.0
N_DECAYS = 2

# Batches to wait at least for the validation bound to rise.
MIN_PATIENCE = 100

# Batches over which the KL divergence gains its full weight. With it from the start,
# latents are punished before the decoder has learned to use them, and images of
# digits stay at their mean for longer.
KL_WARM_UP = 300


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train; see `VAEEncoder` for the meaning."""

    learning_rate: float
    max_iter: int
    n_iter_no_change: int
    tol: float
    device: str = "cpu"
    all_threads: bool = False


class TrainingResult(NamedTuple):
    """What a training leaves behind, besides the weights in the module."""

    history: list  # of one dict per epoch
    best_epoch: int
    is_interrupted: bool


class RowBatches:
    """Batches of rows held in memory, each with random inputs of its own.

    They come the way skorch unpacks them: the inputs of the module by name, and the
    weights of the rows. The noise is part of the input, so modules are functions.

    Parameters
    ----------
    inputs : dict of str to Tensor
        Inputs of the module, with the rows on their first axis.

    weight : Tensor of shape (n_rows,)
        Weights of the rows.

    batch_size : int
        Most rows in a batch.

    draw : callable
        `draw(rows, generator)` gives the random inputs for a batch, as a dict.

    generator : torch.Generator
        Source of the order of rows and of the random inputs.
    """

    def __init__(self, inputs, weight, batch_size, draw, generator):
        self.inputs = inputs
        self.weight = weight
        self.draw = draw
        self.generator = generator
        n_rows = len(weight)
        # Batch normalisation needs two rows to tell a mean from a value.
        self.n_batches = max(min(-(-n_rows // batch_size), n_rows // 2), 1)

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        order = torch.randperm(
            len(self.weight), generator=self.generator, device=self.weight.device
        )
        for batch in range(self.n_batches):
            rows = order[batch :: self.n_batches]
            inputs = {name: tensor[rows] for name, tensor in self.inputs.items()}
            yield (
                {**inputs, **self.draw(inputs, self.generator)},
                self.weight[rows],
            )


def train(module, batches, validation, settings, progress):
    """Raise the bound of a module on its data, by skorch's loop and torch's RAdam.

    Parameters
    ----------
    module : nn.Module
        `module(**inputs)` gives the bound on the log-likelihood of each row. Ends
        with the weights of the best epoch, in evaluation mode.

    batches : iterable
        Training batches: inputs by name, and weights.

    validation : sequence or None
        Batches whose bound decides which epoch is the best and when to stop. None
        runs all epochs and keeps the last.

    settings : TrainingSettings
        How to train.

    progress : EpochProgress
        Is told about each epoch.

    Returns
    -------
    result : TrainingResult
        The record. If it was interrupted, the one so far.
    """
    bound = _Bound()
    monitor = _Monitor(module, bound, settings, progress, validation is not None)
    net = NeuralNet(
        module,
        criterion=bound,
        optimizer=torch.optim.RAdam,
        # Many small tensors: one call for all of them instead of a loop over them.
        optimizer__foreach=True,
        lr=settings.learning_rate,
        max_epochs=settings.max_iter,
        # skorch's default loader collates row by row, which costs as much as the
        # network itself.
        iterator_train=lambda dataset, **kwargs: batches,
        iterator_valid=lambda dataset, **kwargs: validation,
        train_split=lambda dataset, y: (dataset, None if validation is None else y),
        callbacks=[("monitor", monitor)],
        callbacks__epoch_timer=None,
        callbacks__train_loss=None,
        callbacks__valid_loss=None,
        callbacks__print_log=None,
        verbose=0,
        device=settings.device,
    )
    load_optimizers()
    with nullcontext() if settings.all_threads else one_thread(), progress:
        try:
            net.fit(batches.inputs, batches.weight)  # returns on KeyboardInterrupt
        except _StopTraining:
            pass
    return monitor.finish()


class _StopTraining(Exception):
    """Patience is at its end, or a callback of the user's asked to stop."""


class _Bound(torch.nn.Module):
    """Negative bound as a criterion, summed up over an epoch."""

    def forward(self, bound, weight):
        weighted = (weight * bound).mean()
        if self.training:
            self.train_sum += weighted.detach() * len(weight)
            self.train_rows += len(weight)
        else:
            self.valid_sum += (weight * bound).sum()
            self.valid_weight += weight.sum()
        return -weighted

    def reset(self):
        self.train_sum = self.train_rows = 0.0
        self.valid_sum = self.valid_weight = 0.0


class _Monitor(Callback):
    """Keeps the record and the best weights, and says when to stop."""

    def __init__(self, module, bound, settings, progress, has_validation):
        self.module = module
        self.bound = bound
        self.settings = settings
        self.progress = progress
        self.has_validation = has_validation
        self.history = []
        self.best, self.best_epoch, self.best_weights = -math.inf, 0, None
        self.reference, self.n_waiting = -math.inf, 0
        self.n_decays = self.n_batches = 0
        self.is_converged = self.is_stopped = False

    def on_epoch_begin(self, net, **kwargs):
        self.bound.reset()
        self.progress.begin_epoch()

    def on_batch_begin(self, net, batch, training, **kwargs):
        self.n_batches += training
        weight = self.n_batches / KL_WARM_UP
        self.module.kl_weight = min(weight, 1.0) if training else 1.0

    def on_epoch_end(self, net, **kwargs):
        bound = self.bound
        figures = {"train_bound": float(bound.train_sum / bound.train_rows)}
        if self.has_validation:
            figures["valid_bound"] = float(bound.valid_sum / bound.valid_weight)
        self.history.append({"epoch": len(self.history) + 1, **figures})
        latest = list(figures.values())[-1]
        if not all(math.isfinite(figure) for figure in figures.values()):
            raise ValueError(
                f"Training left the finite numbers in epoch {len(self.history)}: the "
                f"bound is {latest}. Lower learning_rate (now "
                f"{self.settings.learning_rate}), or look for extreme values in X."
            )
        if latest > self.best or not self.has_validation:
            self.best, self.best_epoch = latest, len(self.history)
            if self.has_validation:
                self.best_weights = {
                    name: value.clone()
                    for name, value in self.module.state_dict().items()
                }
        if latest > self.reference + self.settings.tol:
            self.reference, self.n_waiting = latest, 0
        elif self.n_batches > KL_WARM_UP:  # else the bound may fall for a while
            self.n_waiting += 1
        if self.has_validation and self.n_waiting >= self.settings.n_iter_no_change:
            self._lower_learning_rate(net.optimizer_)
        self.is_stopped = self.progress.end_epoch(**figures)
        if self.is_converged or self.is_stopped:
            raise _StopTraining

    def _lower_learning_rate(self, optimizer):
        """Go back to the best weights with smaller steps, or be done."""
        self.n_decays += 1
        self.is_converged = self.n_decays > N_DECAYS
        if self.is_converged:
            return
        self.n_waiting = 0
        self.module.load_state_dict(self.best_weights)
        for group in optimizer.param_groups:
            group["lr"] /= DECAY

    def finish(self):
        if not self.history:
            raise KeyboardInterrupt("Interrupted before the first epoch was complete.")
        if self.best_weights is not None:
            self.module.load_state_dict(self.best_weights)
        # Whoever differentiates through the model differentiates its inputs.
        self.module.requires_grad_(False).eval()
        n_epochs = len(self.history)
        return TrainingResult(
            history=self.history,
            best_epoch=self.best_epoch,
            is_interrupted=n_epochs < self.settings.max_iter
            and not (self.is_converged or self.is_stopped),
        )
