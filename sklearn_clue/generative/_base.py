"""What generative models promise to the rest of the package, and how they train.

The three protocols are the only things that explainers and evaluation know of a
generative model. They speak tensors in encoded space; estimators speak the user's
tables.
"""

import copy
import math
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from skorch import NeuralNet
from skorch.callbacks import Callback
from torch import Tensor
from torch.distributions import Normal

from sklearn_clue._progress import EpochProgress
from sklearn_clue._torch import (
    PRECISE_DTYPE,
    as_tensor,
    make_generator,
    one_thread,
    pad_rows,
    row_blocks,
    row_uniforms,
    to_numpy,
)
from sklearn_clue._validation import (
    CallbackSupportMixin,
    HasMethods,
    Interval,
    StrOptions,
    _safe_indexing,
)
from sklearn_clue.encoding import ColumnSchema, EncoderOwner, FeatureSchema

# Latent units whose posterior mean varies less than this over the training rows carry
# nothing (Burda et al., 2016, Sec. 5.3).
ACTIVE_VARIANCE = 0.01

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

# softplus of this is one: a network that answers zero means a standard normal.
UNIT_SOFTPLUS = math.log(math.e - 1)


@runtime_checkable
class LatentModel(Protocol):
    """A model with a latent space to search in, as CLUE needs it.

    Rows are independent: the answer for one does not depend on the others. Gradients
    reach the argument, and the weights need none.

    See Also
    --------
    VAEEncoder : Its attribute `module_` is one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEEncoder
    >>> from sklearn_clue.generative import LatentModel
    >>> vae = VAEEncoder(2, (5,), max_iter=1).fit(np.eye(4))
    >>> isinstance(vae.module_, LatentModel)
    True
    """

    def encode(self, x: Tensor) -> Normal:
        """Map rows to a Gaussian over their latents.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows.

        Returns
        -------
        posterior : torch.distributions.Normal
            With a mean of shape (n_rows, latent_dim).
        """

    def decode(self, z: Tensor) -> Tensor:
        """Map latents to the rows that they stand for.

        Parameters
        ----------
        z : Tensor of shape (n_rows, latent_dim)
            Latents.

        Returns
        -------
        x : Tensor of shape (n_rows, n_encoded)
            Expected rows, with categories and pixels as probabilities.
        """


@runtime_checkable
class ConditionalModel(Protocol):
    """A model that completes rows from any part of them, as U-FIDO needs it.

    See Also
    --------
    VAEACImputer : Its attribute `module_` is one.

    Examples
    --------
    >>> from sklearn_clue.generative import ConditionalModel
    >>> class Mean:
    ...     def impute(self, x, observed):
    ...         return observed * x  # zero is the mean of encoded numbers
    >>> isinstance(Mean(), ConditionalModel)
    True
    """

    def impute(self, x: Tensor, observed: Tensor) -> Tensor:
        """Replace what is not observed by its expectation, differentiably.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows. What they hold where they are not observed has no influence.

        observed : Tensor of shape (n_rows, n_encoded)
            Ones at what is seen and zeros elsewhere; a category is one as a whole.

        Returns
        -------
        x : Tensor of shape (n_rows, n_encoded)
            The rows, unchanged where observed, with categories as probabilities.
        """


@runtime_checkable
class DensityModel(Protocol):
    """A model that knows how probable rows are, as evaluation needs it.

    See Also
    --------
    VAEEncoder : Its attribute `module_` is one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEEncoder
    >>> from sklearn_clue.generative import DensityModel
    >>> vae = VAEEncoder(2, (5,), max_iter=1).fit(np.eye(4))
    >>> isinstance(vae.module_, DensityModel)
    True
    """

    def log_prob(self, x: Tensor) -> Tensor:
        """Estimate how probable rows are.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows.

        Returns
        -------
        log_density : Tensor of shape (n_rows,)
            In nats, the same in every call.
        """

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw rows.

        Parameters
        ----------
        n : int
            Number of rows.

        generator : torch.Generator
            Source of the draws.

        Returns
        -------
        x : Tensor of shape (n, n_encoded)
            Encoded rows.
        """


# Training -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train; see `BaseGenerative` for the meaning."""

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
    is_converged: bool
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
        if not math.isfinite(figures["train_bound"]):
            raise ValueError(
                f"Training left the finite numbers in epoch {len(self.history)}: the "
                f"bound is {figures['train_bound']}. Lower learning_rate (now "
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
            is_converged=self.is_converged,
            is_interrupted=n_epochs < self.settings.max_iter
            and not (self.is_converged or self.is_stopped),
        )


# Gaussian latents -----------------------------------------------------------------


def as_normal(outputs):
    """Read mean and standard deviation of latents from the outputs of a network."""
    mean, raw = outputs.chunk(2, dim=-1)
    return mean, torch.nn.functional.softplus(raw + UNIT_SOFTPLUS) + 1e-4


def kl_to_standard(mean, std):
    """KL divergence of diagonal Gaussians from the standard normal, per row."""
    return (0.5 * (mean.square() + std.square() - 1) - std.log()).sum(-1)


def kl_normal(mean, std, prior_mean, prior_std):
    """KL divergence of diagonal Gaussians from others, per row."""
    ratio = (std / prior_std).square()
    shift = ((mean - prior_mean) / prior_std).square()
    return (0.5 * (ratio + shift - 1 - ratio.log())).sum(-1)


def normal_log_prob(z, mean, std):
    """Log-density of diagonal Gaussians, per row."""
    constant = 0.5 * math.log(2 * math.pi)
    return -(0.5 * ((z - mean) / std).square() + std.log() + constant).sum(-1)


def importance_log_prob(
    log_weight, x, n_noise, n_importance, bytes_per_draw, budget=2**26
):
    """Estimate log-densities as the log of the mean of importance weights.

    Parameters
    ----------
    log_weight : callable
        `log_weight(noise)` gives log-weights of shape (n_rows, n_draws) for standard
        normal noise of shape (n_rows, n_draws, n_noise).

    x : Tensor of shape (n_rows, n_columns)
        The rows. They fix their noise: the answer for a row is always the same, and
        the errors of different rows are independent.

    n_noise : int
        Numbers in a draw.

    n_importance : int
        Draws per row.

    bytes_per_draw : int
        Memory that one draw takes for one row.

    budget : int, default=2**26
        Memory to use at most, in bytes.

    Returns
    -------
    log_density : Tensor of shape (n_rows,)
        In nats and float64. Its expectation rises towards the true value with the
        number of draws (Burda et al., 2016, Theorem 1).
    """
    # Points that fill the cube evenly, shifted at random for each row (Cranley and
    # Patterson, 1976): every point is uniform on its own, and together they vary
    # less than independent ones, so fewer are needed.
    points = even_points(n_importance, n_noise)
    shift = row_uniforms(x, n_noise).unsqueeze(1)
    total = None
    for part in points.to(x.device).split(max(budget // (bytes_per_draw * len(x)), 1)):
        uniform = ((part + shift) % 1).clamp(1e-12, 1 - 1e-12)
        weights = log_weight(torch.special.ndtri(uniform).to(x.dtype))
        part = weights.double().logsumexp(1)
        total = part if total is None else torch.logaddexp(total, part)
    return total - math.log(n_importance)


def even_points(n_points, n_dimensions):
    """Scrambled Sobol points, which fill the unit cube evenly; always the same."""
    engine = torch.quasirandom.SobolEngine(n_dimensions, scramble=True, seed=0)
    return engine.draw(n_points, dtype=torch.float64)


def even_noise(n_points, n_dimensions):
    """Standard normal draws that are more even than independent ones."""
    return torch.special.ndtri(
        even_points(n_points, n_dimensions).clamp(1e-12, 1 - 1e-12)
    )


def standard_noise(shape, generator, device):
    return torch.randn(shape, generator=generator, device=device)


# Estimators -----------------------------------------------------------------------


class ModuleState(NamedTuple):
    """A module on its way to disk: how to build it, and its weights as arrays."""

    config: object
    weights: dict


class BaseGenerative(
    EncoderOwner, CallbackSupportMixin, TransformerMixin, BaseEstimator
):
    """What estimators around a generative module share.

    A subclass has `module_`, a module whose `config.build()` gives one like it.
    """

    _parameter_constraints: dict = {
        "latent_dim": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "hidden_layer_sizes": [
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "encoder": [
            HasMethods(["fit", "transform"]),
            StrOptions({"passthrough"}),
            None,
        ],
        "noise_variance": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"learned"}),
        ],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "module_" in state:
            module = state["module_"]
            weights = {
                name: to_numpy(value) for name, value in module.state_dict().items()
            }
            state["module_"] = ModuleState(module.config, weights)
        return state

    def __setstate__(self, state):
        state = dict(state)
        packed = state.get("module_")
        if isinstance(packed, ModuleState):
            module = build(packed.config, seed=0)
            module.load_state_dict(
                {
                    # A copy: arrays may be memory-mapped, and read-only then.
                    name: torch.as_tensor(np.array(value))
                    for name, value in packed.weights.items()
                }
            )
            state["module_"] = module.requires_grad_(False).eval()
        super().__setstate__(state)

    # Data -------------------------------------------------------------------------

    def _learn_schema(self, n_encoded):
        """The encoder's schema, or one of plain numbers where it has none."""
        schema = getattr(self.encoder_, "schema_", None)
        if isinstance(schema, FeatureSchema):
            return schema
        return FeatureSchema(
            tuple(
                ColumnSchema(
                    name=f"x{position}",
                    kind="number",
                    span=(position, position + 1),
                    dtype=np.dtype(np.float64),
                    center=0.0,
                    scale=1.0,
                )
                for position in range(n_encoded)
            )
        )

    def _decode_rows(self, x, index=None):
        """Turn encoded rows into the user's table."""
        if self.encoder_ is None:
            return x.astype(np.float64)
        if not hasattr(self.encoder_, "inverse_transform"):
            raise AttributeError(
                f"The encoder {self.encoder_!r} has no inverse_transform, so there is "
                "no way back to the user's rows. Use TabularEncoder."
            )
        if index is not None:
            import pandas as pd

            x = pd.DataFrame(x, index=index)
        return self.encoder_.inverse_transform(x)

    # Training ---------------------------------------------------------------------

    def _train(self, config, inputs, weight, draw, all_threads=False):
        """Build a module and train it on distinct rows; set the fitted attributes."""
        device = str(self.device)
        if len(weight) == 1:
            # Constant data: batch normalisation still wants two rows.
            inputs = {
                name: np.repeat(array, 2, axis=0) for name, array in inputs.items()
            }
            weight = np.repeat(weight, 2)
        rng = check_random_state(self.random_state)
        seeds = rng.randint(2**31 - 1, size=4)
        module = build(config, seed=seeds[0]).to(device)
        tensors = {name: as_tensor(array, device) for name, array in inputs.items()}
        weight = as_tensor(weight / weight.mean(), device)
        seen = weight[:, None] * tensors.get("present", torch.ones_like(tensors["x"]))
        mean = (seen * tensors["x"]).sum(0) / seen.sum(0).clamp_min(1e-12)
        with torch.no_grad():
            module.decoder.set_bias(module.likelihood.outputs_for(mean))

        n_rows = len(weight)
        n_valid = round(self.validation_fraction * n_rows)
        validation = None
        train_rows = torch.arange(n_rows, device=device)
        if self.early_stopping and n_rows >= 4:
            n_valid = min(max(n_valid, 1), n_rows - 2)
            generator = make_generator(seeds[1], device)
            order = torch.randperm(n_rows, generator=generator, device=device)
            valid_rows, train_rows = order[:n_valid], order[n_valid:]
            # The noise of the bound is drawn once, so that epochs are compared on
            # the same; small splits draw several times per row to keep it low.
            n_repeats = min(max(1000 // n_valid, 1), 10)
            valid_rows = valid_rows.repeat(n_repeats)
            validation = list(
                RowBatches(
                    {name: tensor[valid_rows] for name, tensor in tensors.items()},
                    weight[valid_rows],
                    1024,
                    draw,
                    make_generator(seeds[2], device),
                )
            )
        batches = RowBatches(
            {name: tensor[train_rows] for name, tensor in tensors.items()},
            weight[train_rows],
            self.batch_size,
            draw,
            make_generator(seeds[3], device),
        )
        settings = TrainingSettings(
            learning_rate=self.learning_rate,
            max_iter=self._resolve_max_iter(len(batches)),
            # Few rows make epochs of few batches, in which nothing can happen yet.
            n_iter_no_change=max(
                self.n_iter_no_change, math.ceil(MIN_PATIENCE / len(batches))
            ),
            tol=self.tol,
            device=device,
            all_threads=all_threads,
        )
        context = self._init_callback_context(max_subtasks=settings.max_iter)
        progress = EpochProgress(
            settings.max_iter,
            type(self).__name__,
            verbose=int(self.verbose),
            context=context,
            estimator=self,
        )
        result = train(module, batches, validation, settings, progress)
        self.module_ = module
        self.history_ = result.history
        self.n_iter_ = len(result.history)
        self.best_iter_ = result.best_epoch
        if result.is_interrupted:
            warnings.warn(
                f"Training was interrupted after {self.n_iter_} of at most "
                f"{settings.max_iter} epochs. The model is usable, with the best "
                "weights so far.",
                ConvergenceWarning,
                stacklevel=5,
            )
        elif validation is not None and result.best_epoch == settings.max_iter > 1:
            warnings.warn(
                f"The validation bound was still rising after max_iter="
                f"{settings.max_iter} epochs. Raise max_iter or learning_rate (now "
                f"{self.learning_rate}) for a better model.",
                ConvergenceWarning,
                stacklevel=5,
            )

    # Use --------------------------------------------------------------------------

    def _by_rows(self, function, *arrays, n_copies=1):
        """Apply a function of the module and of tensors to rows; see `by_rows`."""
        return by_rows(
            self.module_,
            function,
            *arrays,
            n_copies=n_copies,
            device=self.device,
            dtype=self._inference_dtype(),
        )

    def _inference_dtype(self):
        return PRECISE_DTYPE


def by_rows(module, function, *arrays, n_copies, device, dtype):
    """Apply a function of a module and of tensors to rows, block by block.

    Parameters
    ----------
    module : nn.Module
        Is copied to the device and dtype.

    function : callable
        `function(module, *tensors)` gives a tensor with the rows on its first axis.

    *arrays : ndarrays
        Rows, in encoded space or wherever the function starts.

    n_copies : int
        How often the function repeats each row, for the memory of a block.

    device : torch device
        Where to compute.

    dtype : torch dtype
        How to compute.

    Returns
    -------
    values : ndarray
        The values of all blocks, in the precision that they were computed with.
    """
    module = copy.deepcopy(module).to(device, dtype)
    blocks = []
    with torch.inference_mode():
        for rows in row_blocks(len(arrays[0]), n_copies * module.bytes_per_row()):
            tensors = [as_tensor(array[rows], device, dtype) for array in arrays]
            outputs = function(module, *(pad_rows(tensor) for tensor in tensors))
            blocks.append(to_numpy(outputs[: len(tensors[0])]))
    return np.concatenate(blocks)


def build(config, seed):
    """Build the module that a config describes, with first weights from a seed."""
    # torch initialises layers from its global generator: fork it, seed the fork, and
    # leave the caller's as it was.
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(int(seed))
        module = config.build()
    module.config = config
    return module


def check_widths(hidden_layer_sizes):
    """Read the widths of hidden layers; an empty sequence means a linear model."""
    widths = np.atleast_1d(np.asarray(hidden_layer_sizes))
    if widths.size and (
        widths.ndim != 1 or widths.dtype.kind not in "iu" or widths.min() < 1
    ):
        raise ValueError(
            "hidden_layer_sizes must hold the widths of the hidden layers, all at "
            f"least 1, got {hidden_layer_sizes!r}."
        )
    return tuple(int(width) for width in widths)


def auto_latent_dim(n_features):
    """Latent size for so many columns: near those that the paper chose by hand.

    Table 4 has 4 for 4 and for 7 columns, 6 for 11 and 8 for 23; a multiple of the
    square root follows them.
    """
    return max(round(1.7 * math.sqrt(n_features)), 2)


def drop_weightless_rows(estimator, X, weight):
    """Leave out rows of weight zero, and check that some are left to learn from."""
    if not weight.all():
        present = np.flatnonzero(weight)
        if len(present) == 0:
            raise ValueError(
                "All sample weights are zero, so no row is left to learn from. Give at "
                "least some rows a positive weight."
            )
        X, weight = _safe_indexing(X, present), weight[present]
    if len(weight) < 2:
        raise ValueError(
            f"{type(estimator).__name__} learns how rows differ and needs at least 2, "
            "got n_samples=1 (with a positive weight). Pass more rows."
        )
    return X, weight


def merge_repeated_rows(x, weight):
    """Merge equal rows, adding up their weights, and put them in a canonical order.

    A row of weight 2 then is the row twice, the order of the rows leaves no trace,
    and copies of a training row cannot sit in the validation split.
    """
    x, position = np.unique(x, axis=0, return_inverse=True)
    return x, np.bincount(position.ravel(), weights=weight)
