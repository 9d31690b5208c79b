"""Proposals from the latent space of a generator, with or without the row's noise."""

import copy

import torch

from sklearn_clue.explainers._yardstick import join

# Points of a row that are judged, steps of Adam between two of them, and their size.
N_POINTS = 4
N_INNER = 5
LEARNING_RATE = 0.1

# What being sure is worth at first, in distance, and how that follows the answers.
WORTH = 3.0
FACTOR = 1.5


class KeptNoise:
    """Decode latents such that those of a row stand for the row itself.

    What the generator misses of a row is taken as its own noise, and kept: a number
    keeps its difference from the decoded one, and a category a bonus in logits with
    which it just wins there (abduction).

    Parameters
    ----------
    problem : SearchProblem
        With latents.

    x0 : Tensor of shape (n_rows, n_encoded)
        The rows.

    z0 : Tensor of shape (n_rows, n_latent)
        Their latents.
    """

    # The category of the row wins by so much, in logits.
    LEAD = 1e-3

    def __init__(self, problem, x0, z0):
        self.problem = problem
        self.blocks = [] if problem.schema is None else problem.schema.blocks
        with torch.no_grad():
            base = problem.decode(z0)
        self.shift = x0 - base
        self.bonus = torch.zeros_like(x0)
        for block in self.blocks:
            logits = _logits(base[:, block])
            own = (logits * x0[:, block]).sum(1)
            lead = (logits.amax(1) - own).clamp_min(0) + self.LEAD
            self.bonus[:, block] = lead[:, None] * x0[:, block]

    def keep(self, rows):
        """The same for some of the rows, each as often as it is named."""
        part = copy.copy(self)
        part.shift, part.bonus = self.shift[rows], self.bonus[rows]
        return part

    def __call__(self, z):
        """Decode latents of the rows, in the same order."""
        decoded = self.problem.decode(z)
        x = decoded + self.shift
        parts, end = [], 0
        for block in self.blocks:
            logits = _logits(decoded[:, block]) + self.bonus[:, block]
            parts += [x[:, end : block.start], logits.softmax(1)]
            end = block.stop
        return torch.cat([*parts, x[:, end:]], 1)


def _logits(probabilities):
    return probabilities.clamp_min(1e-9).log()


class NoiseKept:
    """A problem whose latents stand for the row itself where they begin.

    Parameters
    ----------
    problem : SearchProblem
        With latents, of a table or of images.
    """

    def __init__(self, problem):
        self.problem = problem
        self.noise = KeptNoise(problem, problem.x0, problem.encode(problem.x0))

    def __len__(self):
        return len(self.problem)

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def decode(self, z, rows):
        """The valid rows that latents stand for, with the noise of each row."""
        return self.problem.valid(self.noise.keep(rows)(z), rows)

    def take(self, rows):
        """The problem of some of the rows."""
        part = object.__new__(NoiseKept)
        part.problem, part.noise = self.problem.take(rows), self.noise.keep(rows)
        return part


def propose_latents(yardstick, rows, keep_noise=True, starts=None):
    """Search latents by gradient for sure rows; every point seen is a candidate.

    Parameters
    ----------
    yardstick : Yardstick
        Of a problem with slopes and latents.

    rows : LongTensor of shape (n_open,)
        Rows to propose something for.

    keep_noise : bool, default=True
        Whether to keep what the generator misses of a row.

    starts : Candidates or None, default=None
        Start from the latents of the first of each row; None for those of the row.

    Returns
    -------
    seen : Candidates
        All points.
    """
    problem, x0 = yardstick.problem, yardstick.problem.x0[rows]
    with torch.no_grad():
        z0 = problem.encode(x0)
        z = z0
        if starts is not None:
            first = torch.searchsorted(starts.rows, rows)
            z = problem.encode(starts.x[first])
    decode = KeptNoise(problem, x0, z0) if keep_noise else problem.decode
    target, worth, seen = yardstick.target[rows], None, []
    for _ in range(N_POINTS):
        with torch.no_grad():
            x = decode(z)
        point = yardstick.judge(x, rows, ask=torch.zeros(()).bool())
        point, slope = yardstick.with_slopes(point)
        seen.append(point)
        excess = point.uncertainty - target
        if worth is None:
            worth = WORTH / excess.abs().clamp_min(1e-6)
        else:
            worth = worth * torch.where(excess > 0, FACTOR, 1 / FACTOR)
        z = _descend(decode, z, point.x, x0, slope, excess, worth)
    return join(seen)


def _descend(decode, z, x, x0, slope, excess, worth):
    """Steps of Adam on the distance, plus the tangent above the target at its worth."""
    first_moment, second_moment = torch.zeros_like(z), torch.zeros_like(z)
    for step in range(1, N_INNER + 1):
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            there = decode(z)
            above = excess + (slope * (there - x)).sum(1)
            value = (there - x0).abs().sum(1) + worth * above.clamp_min(0)
            # Sum, not mean: a row must not depend on who shares its batch.
            (gradient,) = torch.autograd.grad(value.sum(), z)
        # Kingma and Ba (2015), Algorithm 1 with its default decay rates.
        first_moment = first_moment.lerp(gradient, 0.1)
        second_moment = second_moment.lerp(gradient.square(), 0.001)
        direction = first_moment / (1 - 0.9**step)
        scale = (second_moment / (1 - 0.999**step)).sqrt() + 1e-8
        z = z.detach() - LEARNING_RATE * direction / scale
    return z
