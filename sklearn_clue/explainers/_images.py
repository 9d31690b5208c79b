"""The nearest sure image: a walk through latent space, and back as far as possible.

Single pixels mean nothing, so nothing is put back one by one.
"""

import numpy as np
import torch

from sklearn_clue.explainers._latents import NoiseKept
from sklearn_clue.explainers._objectives import Penalty
from sklearn_clue.explainers._results import Found
from sklearn_clue.explainers._search import StoppingRule, evaluate, minimise_rows

# Prices of the distance that are tried, over the number of pixels: from dear to cheap,
# each search starts where the one before has ended.
WEIGHTS = (50.0, 15.0, 5.0, 1.5, 0.5)

# Halvings of the way back.
N_HALVINGS = 10

# Sure training images to go to where the search finds nothing.
N_NEIGHBORS = 5


class SureImages:
    """Find the nearest sure images, for many rows.

    Parameters
    ----------
    target : float
        Largest uncertainty of a sure image, in the unit of the search.

    keep_noise : bool
        Whether to keep what the generator misses of an image.

    max_distance : float or None
        Largest l1 distance.

    rule, learning_rate : StoppingRule, float
        See `minimise_rows`.

    sure : Tensor of shape (n_sure, n_latent) or None, default=None
        Latents of training images that are sure, to go to where the search finds none.
    """

    def __init__(
        self, target, *, keep_noise, max_distance, rule, learning_rate, sure=None
    ):
        self.target = target
        self.sure = sure
        self.keep_noise = keep_noise
        self.max_distance = np.inf if max_distance is None else max_distance
        self.rule = StoppingRule() if rule is None else rule
        self.learning_rate = learning_rate

    def objective(self, problem, trade_off):
        """None: there is one candidate."""
        return None

    def __call__(self, problem):
        """Search for all rows of a problem."""
        everyone = torch.arange(len(problem))
        before = problem.weigh(problem.before[0])
        x, n_iter = problem.x0.clone(), torch.zeros_like(everyone)
        # Both ends of the way through latents.
        ends = problem.encode(x)[:, None].repeat(1, 2, 1)
        rows = everyone[before > self.target]
        if len(rows):
            part = problem.take(rows)
            part = NoiseKept(part) if self.keep_noise else part
            x[rows], n_iter[rows], ends[rows, 1] = self._search(part, before[rows])
            with torch.no_grad():
                still = problem.uncertainty(x[rows], rows) > self.target
            if self.sure is not None and still.any():
                self._go_to_sure_images(problem, rows[still], x, n_iter, ends)
        return [
            Found(
                x=x[:, None].numpy(),
                n_iter=n_iter[:, None].numpy(),
                converged=np.ones((len(x), 1), dtype=bool),
                is_answer=np.ones((len(x), 1), dtype=bool),
                ends_z=ends[:, None].numpy(),
            )
        ]

    def _search(self, problem, before):
        n_rows, n_legs = len(problem), len(WEIGHTS)
        z0 = problem.encode(problem.x0)
        searches = problem.take(torch.arange(n_rows).repeat(n_legs))
        weights = torch.tensor(WEIGHTS, dtype=z0.dtype) / problem.x0.shape[1]
        objective = Penalty(searches, weights.repeat_interleave(n_rows))
        start = evaluate(searches, objective, z0, torch.arange(n_rows))
        result = minimise_rows(
            searches,
            objective,
            [start],
            rule=self.rule,
            learning_rate=self.learning_rate,
            n_legs=n_legs,
        )
        distance = objective.distance(result.best.x, torch.arange(n_legs * n_rows))
        cost = result.best.cost
        # The nearest sure point; else the least uncertain one.
        is_good = (cost <= self.target) & (distance <= self.max_distance)
        rank = torch.where(is_good, distance, 1e9 + cost)
        rank[distance > self.max_distance] = torch.inf
        best = rank.view(n_legs, n_rows).argmin(0) * n_rows + torch.arange(n_rows)
        x, z, n_extra = self._walk_back(problem, z0, result.best.z[best])
        is_worse = ~rank[best].isfinite() | (cost[best] >= before)
        found = []
        for there, seen, start in (
            (x, result.best.x, problem.x0),
            (z, result.best.z, z0),
        ):
            there = torch.where(is_good[best, None], there, seen[best])
            found.append(torch.where(is_worse[:, None], start, there))
        x, z = found
        return x, result.n_iter.view(n_legs, n_rows).sum(0) + n_extra, z

    def _go_to_sure_images(self, problem, rows, x, n_iter, ends):
        """Walk towards the nearest sure training images, where there is no other."""
        part = problem.take(rows)
        here, everyone = part.encode(part.x0), torch.arange(len(rows))
        order = torch.cdist(here, self.sure).argsort(1)[:, :N_NEIGHBORS]
        least = torch.full((len(rows),), torch.inf).to(here)
        ways = [NoiseKept(part), part] if self.keep_noise else [part]
        for way in ways:
            for nearest in order.T:
                there, z, n_asked = self._walk_back(way, here, self.sure[nearest])
                with torch.no_grad():
                    is_sure = part.uncertainty(there, everyone) <= self.target
                distance = (there - part.x0).abs().sum(1)
                is_better = is_sure & (distance < least)
                is_better &= distance <= self.max_distance
                x[rows[is_better]] = there[is_better]
                ends[rows[is_better], 1] = z[is_better]
                least[is_better] = distance[is_better]
                n_iter[rows] += n_asked + 1

    def _walk_back(self, problem, near, far):
        """The first sure point on the way from one latent to another."""
        rows = torch.arange(len(problem))
        low, high = torch.zeros(len(rows)).to(near), torch.ones(len(rows)).to(near)
        with torch.no_grad():
            for _ in range(N_HALVINGS):
                middle = (low + high) / 2
                z = near + middle[:, None] * (far - near)
                cost = problem.uncertainty(problem.decode(z, rows), rows)
                is_sure = cost <= self.target
                low = torch.where(is_sure, low, middle)
                high = torch.where(is_sure, middle, high)
            z = near + high[:, None] * (far - near)
            return problem.decode(z, rows), z, N_HALVINGS
