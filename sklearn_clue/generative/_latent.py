"""Latent Gaussian models as torch modules: their densities, and how they are run."""

import copy
import math
import threading
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch.distributions import Normal

from sklearn_clue._torch import (
    as_tensor,
    even_points,
    make_generator,
    normal_noise,
    pad_rows,
    row_blocks,
    row_uniforms,
    to_numpy,
)
from sklearn_clue._validation import check_count
from sklearn_clue.generative._modules import FeatureGroup, MixedLikelihood

# softplus of this is one: a network that answers zero means a standard normal.
UNIT_SOFTPLUS = math.log(math.e - 1)

_BUILDING = threading.Lock()


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

    @property
    def dtype(self):
        """Precision of the weights."""
        return next(self.parameters()).dtype

    def blank(self, n_columns):
        """One row of zeros, where the weights are."""
        return next(self.parameters()).new_zeros(1, n_columns)

    def encode(self, x):
        return Normal(*self.posterior(x.to(self.dtype), None), validate_args=False)

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
        weights = log_weight(normal_noise((part + shift) % 1).to(x.dtype))
        part = weights.double().logsumexp(1)
        total = part if total is None else torch.logaddexp(total, part)
    return total - math.log(n_importance)


def standard_noise(shape, generator, device):
    return torch.randn(shape, generator=generator, device=device)


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
