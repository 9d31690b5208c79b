"""Minimise a function of each row on its own, by its values; knows no model.

For models without gradients. Points are drawn around each row on shells of growing
radius, and the best of them is refined by CMA-ES (Hansen, "The CMA Evolution Strategy:
A Tutorial", 2016), for all rows in one batch. What a row finds depends on nothing but
itself and the seed.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sklearn_clue._torch import (
    PRECISE_DTYPE,
    as_tensor,
    normal_noise,
    row_uniforms,
    to_numpy,
)

# A mean step after the shells, as a share of the way from the row to the best point on
# them: shells are as far apart as chance has put them.
FIRST_STEP = 0.3

# What a step grows by while no value at all is finite.
GROWTH = 1.5


class Seen(NamedTuple):
    """All points that a search has asked about, in the order of asking.

    Attributes
    ----------
    z : Tensor of shape (n_rows, n_points, n_latent)
        The first point of each row is where it started.

    x : Tensor of shape (n_rows, n_points, n_encoded)
        What they decode to.

    value : Tensor of shape (n_rows, n_points)
        Their values, infinite where they were not numbers.
    """

    z: Tensor
    x: Tensor
    value: Tensor

    def best(self):
        """The best point of each row: its z, x and value."""
        at = self.value.argmin(1)
        rows = torch.arange(len(at))
        return self.z[rows, at], self.x[rows, at], self.value[rows, at]


def search_by_values(
    value, decode, z0, *, n_samples=16, n_rounds=8, radius=None, seed=0
):
    """Look for low values of a function around rows, in a latent space.

    Parameters
    ----------
    value : callable
        `value(x, rows)` gives the value of decoded points, a tensor of shape
        (n_points,); `rows` are the positions of the rows that they belong to. Values
        that are infinite or no numbers mark points that will not do.

    decode : callable
        `decode(z)` gives the points that latents of shape (n_points, n_latent) stand
        for, each on its own.

    z0 : Tensor of shape (n_rows, n_latent)
        Where to start.

    n_samples : int, default=16
        Points per row and round, at least 2.

    n_rounds : int, default=8
        Rounds: one on shells, and the others refine what it found.

    radius : float or None, default=None
        Radius of the last shell. None means the mean distance of two draws of a
        standard normal prior.

    seed : int, default=0
        Determines the points. Rows that are the same look at the same points.

    Returns
    -------
    seen : Seen
        All `1 + n_samples * n_rounds` points per row.
    """
    start = to_numpy(z0).astype(np.float64)
    n_rows, n_latent = start.shape
    radius = np.sqrt(2.0 * n_latent) if radius is None else float(radius)
    noise = _noise(start, (n_rounds, n_samples, n_latent), seed)
    judge = _Judge(value, decode)
    z = start[:, None]
    points = [judge(z)]
    shells = start[:, None] + _on_shells(noise[:, 0], radius)
    points.append(judge(shells))
    seen = _joined(points)
    first = seen.value.argmin(1)
    state = _begin(
        to_numpy(seen.z)[np.arange(n_rows), first],
        start,
        radius / n_samples,
    )
    for step in range(1, n_rounds):
        y = _drawn(state, noise[:, step])
        z = state.mean[:, None] + state.step[:, None, None] * y
        points.append(judge(z))
        state = _updated(state, y, to_numpy(points[-1].value), step)
    return _joined(points)


class _Judge:
    """Ask about points of all rows at once, of shape (n_rows, n_points, n_latent)."""

    def __init__(self, value, decode):
        self.value = value
        self.decode = decode

    def __call__(self, z):
        n_rows, n_points, _ = z.shape
        flat = as_tensor(z.reshape(n_rows * n_points, -1), dtype=PRECISE_DTYPE)
        rows = torch.arange(n_rows).repeat_interleave(n_points)
        x = self.decode(flat)
        value = self.value(x, rows).to(PRECISE_DTYPE)
        value = torch.where(value.isnan(), torch.inf, value)
        shape = (n_rows, n_points)
        return Seen(flat.reshape(*shape, -1), x.reshape(*shape, -1), value.view(shape))


def _joined(points):
    return Seen(*(torch.cat(parts, 1) for parts in zip(*points, strict=True)))


def _noise(start, shape, seed):
    """Standard normal numbers of each row's own: (n_rows, *shape)."""
    # Two halves, because rows are hashed in single precision.
    halves = np.array([seed % 2**24, seed // 2**24], dtype=np.float64)
    named = np.hstack([start, np.tile(halves, (len(start), 1))])
    uniform = row_uniforms(torch.as_tensor(named), int(np.prod(shape)))
    return to_numpy(normal_noise(uniform)).reshape(len(start), *shape)


def _on_shells(noise, radius):
    """Points in random directions, each farther away than the one before."""
    n_samples = noise.shape[1]
    direction = noise / np.sqrt(np.square(noise).sum(2, keepdims=True))
    return radius * np.arange(1, n_samples + 1)[:, None] / n_samples * direction


# CMA-ES ------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where each row is looking: all arrays have the rows on their first axis."""

    mean: np.ndarray  # (n_rows, n_latent)
    step: np.ndarray  # (n_rows,): the size of steps, sigma in the tutorial
    shape: np.ndarray  # (n_rows, n_latent, n_latent): their covariance, C
    path_step: np.ndarray  # (n_rows, n_latent): evolution paths
    path_shape: np.ndarray


def _begin(mean, start, least):
    n_rows, n_latent = mean.shape
    way = np.sqrt(np.square(mean - start).sum(1))
    # In each coordinate, so that the length of a step is a share of the way.
    step = np.maximum(FIRST_STEP * way, least) / np.sqrt(n_latent)
    shape = np.tile(np.eye(n_latent), (n_rows, 1, 1))
    return _State(mean, step, shape, np.zeros_like(mean), np.zeros_like(mean))


def _roots(shape):
    """The root of a covariance, and its inverse.

    By numpy, matrix by matrix: products of torch round by the size of the batch.
    """
    values, vectors = np.linalg.eigh(shape)
    values = np.sqrt(np.maximum(values, 1e-20))
    root = np.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    inverse = np.einsum("nij,nj,nkj->nik", vectors, 1 / values, vectors)
    return root, inverse


def _drawn(state, noise):
    root, _ = _roots(state.shape)
    return np.einsum("nij,nkj->nki", root, noise)


class _Rates:
    """The constants of the tutorial, for a number of points and of dimensions."""

    def __init__(self, n_samples, n_latent):
        d = n_latent
        raw = np.log((n_samples + 1) / 2) - np.log(np.arange(1, n_samples + 1))
        good, bad = np.maximum(raw, 0), np.maximum(-raw, 0)
        self.mass = mass = good.sum() ** 2 / np.square(good).sum()
        self.step = (mass + 2) / (d + mass + 5)
        self.damping = 1 + 2 * max(0, np.sqrt((mass - 1) / (d + 1)) - 1) + self.step
        self.path = (4 + mass / d) / (d + 4 + 2 * mass / d)
        self.rank_one = 2 / ((d + 1.3) ** 2 + mass)
        self.rank_many = min(
            1 - self.rank_one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass)
        )
        # Mean length of a standard normal vector.
        self.length = np.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
        self.good = good / good.sum()
        # Points that are worse than most make the shape narrower in their direction,
        # by as much as leaves it positive definite.
        bad_mass = bad.sum() ** 2 / np.square(bad).sum()
        kept = 1 - self.rank_one - self.rank_many
        share = min(
            1 + self.rank_one / max(self.rank_many, 1e-12),
            1 + 2 * bad_mass / (mass + 2),
            kept / max(d * self.rank_many, 1e-12),
        )
        self.bad = share * bad / bad.sum()


def _learned_shape(rates, shape, path, unlearned, weights, y):
    """The covariance, by the path and by single steps."""
    kept = 1 - rates.rank_one * (1 - unlearned)
    kept = kept - rates.rank_many * (1 - rates.bad.sum())
    return (
        kept[:, None, None] * shape
        + rates.rank_one * np.einsum("ni,nj->nij", path, path)
        + rates.rank_many * np.einsum("nk,nki,nkj->nij", weights, y, y)
    )


def _updated(state, y, value, n_steps):
    """Learn from the values at steps y, of shape (n_rows, n_samples, n_latent)."""
    rates = _Rates(y.shape[1], y.shape[2])
    order = np.argsort(value, axis=1, kind="stable")
    y = np.take_along_axis(y, order[:, :, None], 1)
    weights = rates.good * np.isfinite(np.take_along_axis(value, order, 1))
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1)
    move = np.einsum("nk,nki->ni", weights, y)
    _, inverse = _roots(state.shape)
    path_step = (1 - rates.step) * state.path_step + np.sqrt(
        rates.step * (2 - rates.step) * rates.mass
    ) * np.einsum("nij,nj->ni", inverse, move)
    length = np.sqrt(np.square(path_step).sum(1))
    # A path that is long already says nothing new about the shape.
    decay = np.sqrt(1 - (1 - rates.step) ** (2 * n_steps))
    is_short = length / decay < (1.4 + 2 / (y.shape[2] + 1)) * rates.length
    path_shape = (1 - rates.path) * state.path_shape + np.where(
        is_short, np.sqrt(rates.path * (2 - rates.path) * rates.mass), 0.0
    )[:, None] * move
    # Bad points count by their direction alone, however far away they are.
    own_length = np.square(np.einsum("nij,nkj->nki", inverse, y)).sum(2)
    weights = weights - rates.bad * y.shape[2] / np.maximum(own_length, 1e-12)
    unlearned = np.where(is_short, 0.0, rates.path * (2 - rates.path))
    shape = _learned_shape(rates, state.shape, path_shape, unlearned, weights, y)
    growth = np.exp(rates.step / rates.damping * (length / rates.length - 1))
    found = _State(
        state.mean + state.step[:, None] * move,
        state.step * np.minimum(growth, np.e),
        shape,
        path_step,
        path_shape,
    )
    is_lost = total[:, 0] == 0
    wider = state._replace(step=GROWTH * state.step)
    return _State(
        *(
            np.where(is_lost.reshape(-1, *[1] * (new.ndim - 1)), old, new)
            for old, new in zip(wider, found, strict=True)
        )
    )
