"""What generative models promise to the rest of the package, and what they share.

The three protocols are the only things that explainers and evaluation know of a
generative model. They speak tensors in encoded space; estimators speak the user's
tables.
"""

import copy
import math
import threading
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor
from torch.distributions import Normal

from sklearn_clue._modules import FeatureGroup, MixedLikelihood
from sklearn_clue._progress import EpochProgress
from sklearn_clue._tables import names
from sklearn_clue._torch import (
    PRECISE_DTYPE,
    as_tensor,
    check_device,
    make_generator,
    pad_rows,
    row_blocks,
    row_uniforms,
    to_numpy,
)
from sklearn_clue._validation import (
    CallbackSupportMixin,
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    check_count,
    check_is_fitted,
    check_weights,
    drop_weightless_rows,
)
from sklearn_clue.encoding import EncoderOwner
from sklearn_clue.generative._training import (
    MIN_PATIENCE,
    RowBatches,
    TrainingSettings,
    train,
)
from sklearn_clue.persistence import VersionedState
from sklearn_clue.schema import plain_schema

# Latent units whose posterior mean varies less than this over the training rows carry
# nothing (Burda et al., 2016, Sec. 5.3).
ACTIVE_VARIANCE = 0.01

# softplus of this is one: a network that answers zero means a standard normal.
UNIT_SOFTPLUS = math.log(math.e - 1)

_BUILDING = threading.Lock()


@runtime_checkable
class LatentModel(Protocol):
    """A model with a latent space to search in, as CLUE needs it.

    Rows are independent: the answer for one does not depend on the others. Gradients
    reach the argument, and the weights need none.

    See Also
    --------
    sklearn_clue.VAEEncoder : Its attribute `module_` is one.

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
    sklearn_clue.VAEACImputer : Its attribute `module_` is one.

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
    sklearn_clue.VAEEncoder : Its attribute `module_` is one.

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


# Modules --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ModuleConfig:
    """All that it takes to build a module, but for its weights."""

    groups: tuple
    latent_dim: int
    widths: tuple
    noise_variance: float | str
    image_shape: tuple | None = None

    @property
    def n_encoded(self):
        return self.groups[-1].stop

    def to_dict(self):
        """Give all fields as plain values."""
        return {**vars(self), "groups": tuple(tuple(group) for group in self.groups)}

    @classmethod
    def from_dict(cls, fields):
        groups = tuple(FeatureGroup(*group) for group in fields["groups"])
        return cls(**{**fields, "groups": groups})


class LatentModule(torch.nn.Module):
    """Latent Gaussian model with networks both ways; a LatentModel and DensityModel.

    A subclass builds its networks and says, by three methods, how they are called
    when nothing is known of a row but itself: `prior()` and `posterior(x, present)`
    give mean and standard deviation of the latents, and `outputs(z)` what the decoder
    makes of them. `present` is one where a row has a value, and None where it is
    complete.

    Parameters
    ----------
    config : ModuleConfig
        Shapes and distributions.
    """

    kl_weight = 1.0  # lower in the first batches of training only

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.likelihood = MixedLikelihood(config.groups, config.noise_variance)

    @property
    def latent_dim(self):
        return self.config.latent_dim

    def blank(self, n_columns):
        """One row of zeros, where the weights are."""
        return next(self.parameters()).new_zeros(1, n_columns)

    def encode(self, x):
        return Normal(*self.posterior(x, None), validate_args=False)

    def decode(self, z):
        return self.likelihood.mean(self.outputs(z))

    def sample(self, n, generator):
        mean, std = self.prior()
        noise = standard_noise((n, self.latent_dim), generator, mean.device)
        return self.likelihood.sample(self.outputs(mean + std * noise), generator)

    def log_prob(
        self,
        x,
        n_importance=100,
        present=None,
        log_prior=None,
        n_extra=0,
        common_noise=False,
    ):
        """Importance-weighted estimate of the log-density of each row, in nats.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows.

        n_importance : int, default=100
            Latents drawn per row.

        present : Tensor of shape (n_rows, n_encoded) or None, default=None
            Ones where there are values. The others are integrated out.

        log_prior : callable or None, default=None
            `log_prior(z, noise)` estimates the log-density of latents, where it is
            not that of `prior`.

        n_extra : int, default=0
            Columns of the noise that `log_prior` uses up.

        common_noise : bool, default=False
            Whether all rows have the same noise.

        Returns
        -------
        log_density : Tensor of shape (n_rows,)
            The same in every call.
        """
        mean, std = (part.unsqueeze(1) for part in self.posterior(x, present))
        rows = x if present is None else torch.cat([present * x, present], -1)
        if common_noise:
            rows = torch.zeros_like(rows)
        prior = self.prior()

        def log_weight(noise):
            z = mean + std * noise[..., : self.latent_dim]
            outputs = self.outputs(z.flatten(0, 1)).unflatten(0, z.shape[:2])
            terms = self.likelihood.log_prob(outputs, x.unsqueeze(1))
            if present is not None:
                terms = present.unsqueeze(1) * terms
            if log_prior is None:
                log_p = normal_log_prob(z, *prior)
            else:
                log_p = log_prior(z, noise[..., self.latent_dim :])
            return terms.sum(-1) + log_p - normal_log_prob(z, mean, std)

        return importance_log_prob(
            log_weight,
            rows,
            self.latent_dim + n_extra,
            n_importance,
            self.bytes_per_row(),
        )

    def bytes_per_row(self):
        """Memory that the activations of one row take, roughly."""
        n_encoded = self.config.n_encoded
        if self.config.image_shape is not None:
            return 200 * n_encoded
        return 24 * max(3 * n_encoded, *self.config.widths, 1)


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


class BaseGenerative(
    DocLinkMixin,
    EncoderOwner,
    CallbackSupportMixin,
    VersionedState,
    TransformerMixin,
    BaseEstimator,
):
    """What estimators around a `LatentModule` share.

    A subclass names the class of its module in `_module_class`, and encodes rows to
    the inputs of the module in `_encode_inputs`.
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
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def _pack_state(self, state):
        if "module_" in state:
            module = state["module_"]
            state["module_"] = {
                "config": module.config.to_dict(),
                "weights": {
                    name: to_numpy(value) for name, value in module.state_dict().items()
                },
            }
        return state

    def _unpack_state(self, state):
        if "module_" in state:
            packed = state["module_"]
            config = ModuleConfig.from_dict(packed["config"])
            module = build(self._module_class, config, seed=0)
            module.load_state_dict(
                {
                    # A copy: arrays may be memory-mapped, and read-only then.
                    name: torch.as_tensor(np.array(value))
                    for name, value in packed["weights"].items()
                }
            )
            state["module_"] = module.requires_grad_(False).eval()
        return state

    def score_samples(self, X, n_importance=100):
        """Estimate the log-density of rows by importance sampling.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge. Missing cells, where they are allowed, are integrated out.

        n_importance : int, default=100
            Latents drawn per row. On average the estimate is too low, and the less so
            the more draws.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats: log-probability of categories, log-density of numbers in the
            user's units, and for pixels their cross-entropy, which is a
            log-probability if they are black or white. The draws are the same in
            every call.
        """
        check_count("n_importance", n_importance)
        _, *inputs = self._read(X)
        log_density = self._by_rows(
            lambda module, x, present=None: module.log_prob(x, n_importance, present),
            *inputs,
            n_copies=min(n_importance, 100),
        )
        return log_density - self._log_scale(*inputs)

    def score(self, X, y=None):
        """Estimate the mean log-density of rows.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        y : None
            Ignored.

        Returns
        -------
        log_density : float
            Mean of :meth:`score_samples`, in nats per row.
        """
        return float(self.score_samples(X).mean())

    # Data -------------------------------------------------------------------------

    def _check_training_rows(self, X, sample_weight):
        """Check rows to fit, and leave out those of weight zero."""
        check_device(self.device)
        X = self._check_rows(X, reset=True)
        weight = check_weights(sample_weight, X)
        weight, X = drop_weightless_rows(weight, X)
        if len(weight) < 2:
            raise ValueError(
                f"{type(self).__name__} learns how rows differ and needs at least 2, "
                "got n_samples=1 (with a positive weight). Pass more rows."
            )
        return X, weight

    def _read(self, X):
        """Check rows to use; return them as they are, and the inputs they make."""
        check_is_fitted(self, "module_")
        X = self._check_rows(X, reset=False)
        return X, *self._encode_inputs(X)

    def _log_scale(self, x, present=None):
        """Log of the volume of a unit cube of encoded space, in the user's units."""
        if self.schema_ is None:
            return 0.0
        log_scale = np.log([column.scale for column in self.schema_.numbers])
        if present is None:
            return log_scale.sum()
        return present[:, self.schema_.numeric_index] @ log_scale

    def _auto_latent_dim(self):
        # Near those that the paper chose by hand (Table 4): 4 for 4 and for 7 columns,
        # 6 for 11 and 8 for 23.
        return max(round(1.7 * math.sqrt(self.n_features_in_)), 2)

    def _resolve_latent_dim(self, n_encoded):
        if self.latent_dim == "auto":
            return self._auto_latent_dim()
        if self.latent_dim > n_encoded:
            warnings.warn(
                f"latent_dim={self.latent_dim} is more than the {n_encoded} encoded "
                "columns, so some latents will carry nothing. Lower it.",
                UserWarning,
                stacklevel=5,
            )
        return int(self.latent_dim)

    def _learn_schema(self, X, n_encoded):
        """The encoder's schema, or one of plain numbers where it has none."""
        schema = getattr(self.encoder_, "schema_", None)
        return plain_schema(names(X), n_encoded) if schema is None else schema

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
        """Build a module and train it on distinct rows; set the fitted attributes.

        Copies of a row are merged before, so none can sit in the validation split of
        another.
        """
        device = str(self.device)
        if len(weight) == 1:
            # Constant data: batch normalisation still wants two rows.
            inputs = {
                name: np.repeat(array, 2, axis=0) for name, array in inputs.items()
            }
            weight = np.repeat(weight, 2)
        rng = check_random_state(self.random_state)
        seeds = rng.randint(2**31 - 1, size=4)
        module = build(self._module_class, config, seed=seeds[0]).to(device)
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

    def _resolve_max_iter(self, n_batches):
        return self.max_iter

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


def draw_rows(module, n_samples, random_state, device):
    """Draw encoded rows from a DensityModel, block by block.

    Parameters
    ----------
    module : DensityModel
        Is moved to the device.

    n_samples : int
        Number of rows, as the user gave it.

    random_state : int, RandomState instance or None
        Fixes the draws.

    device : torch device
        Where to compute.

    Returns
    -------
    x : ndarray of shape (n_samples, n_encoded)
        The rows.
    """
    check_count("n_samples", n_samples)
    module = module.to(device)
    generator = make_generator(
        check_random_state(random_state).randint(2**31 - 1), device
    )
    with torch.inference_mode():
        blocks = [
            to_numpy(module.sample(min(4096, n_samples - start), generator))
            for start in range(0, n_samples, 4096)
        ]
    return np.concatenate(blocks)


def build(module_class, config, seed):
    """Build the module that a config describes, with first weights from a seed."""
    # torch initialises layers from its global generator: fork it, seed the fork, and
    # leave the caller's as it was. One thread at a time, or they would draw from each
    # other's seeds.
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(int(seed))
        return module_class(config)
