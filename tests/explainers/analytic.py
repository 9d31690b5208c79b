"""Search problems whose answers are formulas, shared by the tests of the sure row."""

import numpy as np
import torch

from sklearn_clue.schema import ColumnSchema, FeatureSchema


def number(name, position, **more):
    return ColumnSchema(
        name=name,
        kind="number",
        span=(position, position + 1),
        dtype=np.dtype(float),
        center=0.0,
        scale=1.0,
        **more,
    )


def category(name, start, categories):
    return ColumnSchema(
        name=name,
        kind="category",
        span=(start, start + len(categories)),
        dtype=np.dtype(object),
        categories=tuple(categories),
    )


class AnalyticProblem:
    """A function of encoded rows in the place of a model."""

    has_latents = True

    def __init__(
        self, x0, function, schema=None, low=-10.0, high=10.0, is_differentiable=True
    ):
        self.x0 = torch.as_tensor(x0, dtype=torch.float64)
        n_encoded = self.x0.shape[1]
        if schema is None:
            schema = FeatureSchema(tuple(number(f"x{j}", j) for j in range(n_encoded)))
        self.schema, self.function = schema, function
        self.low, self.high = (torch.as_tensor(end).double() for end in (low, high))
        self.is_differentiable = is_differentiable
        self.n_asked = 0

    def valid(self, x, rows):
        hard = x.clone()
        for block in self.schema.blocks:
            choice = x[:, block].argmax(1)
            hard[:, block] = torch.nn.functional.one_hot(
                choice, block.stop - block.start
            ).double()
        return torch.minimum(torch.maximum(hard, self.low), self.high)

    def uncertainty(self, x, rows):
        self.n_asked += len(x)
        value = self.function(x)
        return value if self.is_differentiable else value.detach()

    def encode(self, x):
        return x

    def decode(self, z):
        return z


def bowl(x):
    """Least uncertain at the origin."""
    return x.square().sum(1)


def plane(x):
    """Only the first column matters, and less of it is better."""
    return x[:, 0]
