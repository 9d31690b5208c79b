"""Networks as torch modules: they see encoded tensors and nothing of scikit-learn."""

import torch
from torch import nn

from sklearn_clue._torch import DTYPE, PRECISE_DTYPE, ROWS_PER_TILE


class MLPStack(nn.Module):
    """Several fully connected networks of one shape, evaluated together.

    All weights live in one parameter of shape (n_stacked, n_weights), a row per
    network, which is what a sampler steps through. Hidden layers are rectified, with
    residual connections between hidden layers of equal width (App. B.3).

    Parameters
    ----------
    layer_sizes : sequence of int
        Widths from the input to the output.

    n_stacked : int
        Number of networks.

    generator : torch.Generator
        Source of the first weights.

    device : torch device, default="cpu"
        Where the weights live.
    """

    def __init__(self, layer_sizes, n_stacked, generator, device="cpu"):
        super().__init__()
        self.shapes = list(zip(layer_sizes[:-1], layer_sizes[1:], strict=True))
        sizes = torch.tensor([(n_in + 1) * n_out for n_in, n_out in self.shapes])
        layer = torch.arange(len(sizes)).repeat_interleave(sizes).to(device)
        self.register_buffer("layer", layer)  # that each weight belongs to
        units = torch.arange(sum(layer_sizes[1:])).split(list(layer_sizes[1:]))
        unit = [
            u.repeat(n_in + 1) for u, (n_in, _) in zip(units, self.shapes, strict=True)
        ]
        self.register_buffer("unit", torch.cat(unit).to(device))  # that it feeds
        # He et al. (2015): rectified layers keep the scale of their input if weights
        # have the precision n_in / 2. It is the unit of the prior, too.
        n_in = torch.tensor([float(n_in) for n_in, _ in self.shapes], dtype=DTYPE)
        self.register_buffer("unit_precision", n_in.to(device)[layer] / 2)
        # The output layer starts near zero: a random one predicts tiny noise for some
        # rows, whose gradients would spoil the estimate of the mass for a hundred
        # iterations.
        scale = self.unit_precision.rsqrt()
        scale[layer == len(sizes) - 1] *= 0.1
        noise = torch.randn(
            n_stacked, len(layer), generator=generator, device=device, dtype=DTYPE
        )
        self.weights = nn.Parameter(noise * scale)

    def forward(self, x):
        """Map x of shape (n_stacked, n_rows, n_in) to outputs of (..., n_out)."""
        return mlp_stack(x, *unflatten(self.weights, self.shapes))


def unflatten(weights, shapes):
    """Cut rows of weights into coefficients and intercepts per layer.

    Parameters
    ----------
    weights : Tensor of shape (n_stacked, n_weights)
        One network per row.

    shapes : list of (int, int)
        Inputs and outputs of each layer.

    Returns
    -------
    coefs, intercepts : lists of Tensor
        Per layer, of shapes (n_stacked, n_in, n_out) and (n_stacked, n_out).
    """
    sizes = [size for n_in, n_out in shapes for size in (n_in * n_out, n_out)]
    parts = weights.split(sizes, dim=1)
    coefs = [
        part.reshape(-1, *shape) for part, shape in zip(parts[::2], shapes, strict=True)
    ]
    return coefs, list(parts[1::2])


def mlp_stack(x, coefs, intercepts):
    """Evaluate stacked networks, each on its own slab of x."""
    last = len(coefs) - 1
    for layer, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
        h = torch.baddbmm(intercept.unsqueeze(1), x, coef)
        if layer == last:
            return h
        h = h.relu_()
        x = h + x if 0 < layer and h.shape == x.shape else h


def mlp_outputs(x, coefs, intercepts):
    """Evaluate stacked networks on the same rows; gradients reach the rows only.

    One network at a time: their activations then stay in the cache, which beats
    batched products.

    Parameters
    ----------
    x : Tensor of shape (n_rows, n_in)
        Encoded rows.

    coefs, intercepts : lists of Tensor
        Weights as `unflatten` returns them.

    Returns
    -------
    outputs : Tensor of shape (n_stacked, n_rows, n_out)
        What each network says of each row.
    """
    dtype = x.dtype
    if any(coef.shape[2] < ROWS_PER_TILE for coef in coefs[:-1]):
        # Narrow products round by the number of rows, whole tiles or not. Such
        # networks are small, and double precision costs them little.
        x = x.to(PRECISE_DTYPE)
        coefs = [coef.to(PRECISE_DTYPE) for coef in coefs]
        intercepts = [intercept.to(PRECISE_DTYPE) for intercept in intercepts]
    return _StackedOutputs.apply(x, coefs, intercepts).to(dtype)


class _StackedOutputs(torch.autograd.Function):
    """The function behind `mlp_outputs`.

    Autograd would record a graph of all networks at once; this keeps their hidden
    activations and walks back through one network at a time. What need not be kept is
    written to the same few arrays by all networks, which then stay in the cache.
    """

    @staticmethod
    def forward(ctx, x, coefs, intercepts):
        ctx.coefs, ctx.hidden = coefs, []
        spare = [x.new_empty(len(x), coef.shape[2]) for coef in coefs[:-1]]
        # Few outputs: a product is fast if the rows are on its wide side.
        heads = coefs[-1].mT.contiguous()
        outputs = x.new_empty(len(heads), heads.shape[1], len(x))
        for network, output in enumerate(outputs):
            h, hidden = x, []
            for layer, out in enumerate(spare):
                coef, intercept = coefs[layer][network], intercepts[layer][network]
                if ctx.needs_input_grad[0]:
                    g = torch.addmm(intercept, h, coef).relu_()
                    hidden.append(g)
                    h = torch.add(g, h, out=out) if _adds(coef, layer) else g
                else:
                    g = torch.addmm(intercept, h, coef, out=out).relu_()
                    h = g.add_(h) if _adds(coef, layer) else g
            intercept = intercepts[-1][network].unsqueeze(1)
            torch.addmm(intercept, heads[network], h.T, out=output)
            ctx.hidden.append(hidden)
        return outputs.mT.contiguous()

    @staticmethod
    def backward(ctx, gradients):
        n_rows, coefs = gradients.shape[1], ctx.coefs
        total = gradients.new_zeros(coefs[0].shape[1], n_rows)
        after = [gradients.new_empty(n_rows, coef.shape[2]) for coef in coefs[:-1]]
        inside = [torch.empty_like(out) for out in after]
        for network, (inner, hidden) in enumerate(
            zip(gradients, ctx.hidden, strict=True)
        ):
            gradient = inner
            for layer in reversed(range(len(coefs))):
                coef = coefs[layer][network]
                if layer < len(hidden):
                    # What autograd does for relu, and ten times faster than a mask.
                    inner = torch.ops.aten.threshold_backward.grad_input(
                        gradient, hidden[layer], 0, grad_input=inside[layer]
                    )
                if layer == 0:  # on its wide side again
                    total.addmm_(coef, inner.T)
                elif layer < len(hidden) and _adds(coef, layer):
                    gradient.addmm_(inner, coef.T)
                else:
                    gradient = torch.mm(inner, coef.T, out=after[layer - 1])
        return total.T, None, None


def _adds(coef, layer):
    """Whether a hidden layer adds its inputs to what it gives."""
    return layer > 0 and coef.shape[0] == coef.shape[1]


class ValidRows(nn.Module):
    """Make valid rows of decoded ones, with gradients as if nothing had happened.

    A category becomes its most probable value and a number is rounded to the decimals
    of its column, as when the row is decoded for the user. In the backward pass both
    are the identity (straight-through, App. B.3): a category then has the gradient of
    its softmax.

    No row becomes one with a missing or a pooled value, unless its bounds allow that.

    Parameters
    ----------
    schema : FeatureSchema
        The columns.
    """

    def __init__(self, schema):
        super().__init__()
        self.blocks = schema.blocks
        gapped = [column for column in schema.numbers if column.has_gap]
        # Files from before there were decimals know of whole numbers only.
        rounded = [
            column
            for column in schema.numbers
            if column.is_integer or column.decimals is not None
        ]
        for name, positions in (
            ("described", schema.described_index),
            ("gaps", [column.gap_position for column in gapped]),
            ("gapped", [column.span[0] for column in gapped]),
            ("positions", [column.span[0] for column in rounded]),
        ):
            self.register_buffer(name, torch.as_tensor(positions).long())
        infinity = float("inf")
        for name, values in (
            ("center", [column.center for column in rounded]),
            ("scale", [column.scale for column in rounded]),
            ("steps", [10.0 ** (column.decimals or 0) for column in rounded]),
            ("low", [c.low if c.is_integer else -infinity for c in rounded]),
            ("high", [c.high if c.is_integer else infinity for c in rounded]),
        ):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, x, low=None, high=None):
        """Map decoded rows of shape (n_rows, n_encoded) to valid ones.

        With bounds of the same shape, inside of these: positions of missing and pooled
        values are open to the rows whose upper bound is above zero there. Without,
        whole numbers stay in the range that was seen in `fit`.
        """
        if low is not None:
            x = x.clamp(low, high)
        with torch.no_grad():
            closed = torch.zeros_like(x, dtype=torch.bool)
            closed[:, self.described] = True
            if high is not None:
                closed = high <= 0
            valid = x.clone()
            for block in self.blocks:
                indicators = x[:, block].masked_fill(closed[:, block], -torch.inf)
                most_probable = indicators.argmax(1, keepdim=True)
                valid[:, block] = 0
                valid[:, block].scatter_(1, most_probable, 1)
            if len(self.positions):
                numbers = x[:, self.positions] * self.scale + self.center
                numbers = (numbers * self.steps).round() / self.steps
                if low is None:
                    numbers = numbers.clamp(self.low, self.high)
                valid[:, self.positions] = ((numbers - self.center) / self.scale).to(
                    x.dtype
                )
            if len(self.gaps):
                is_gap = (x[:, self.gaps] > 0.5) & ~closed[:, self.gaps]
                valid[:, self.gaps] = is_gap.to(x.dtype)
                valid[:, self.gapped] *= ~is_gap
            if low is not None:
                valid = valid.clamp(low, high)
            # Values that did not change are kept exactly.
            changed = valid != x
        if not x.requires_grad:
            return torch.where(changed, valid, x)
        return torch.where(changed, valid + (x - x.detach()), x)
