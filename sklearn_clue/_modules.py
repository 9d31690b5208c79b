"""Networks as torch modules: they see encoded tensors and nothing of scikit-learn."""

import torch
from torch import nn

from sklearn_clue._torch import DTYPE


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
    """Evaluate stacked networks on the same rows, without gradients.

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
    n_stacked, last = len(coefs[0]), len(coefs) - 1
    outputs = x.new_empty(n_stacked, len(x), coefs[-1].shape[2])
    with torch.inference_mode():
        for network, output in enumerate(outputs):
            h = x
            for layer in range(last):
                g = torch.addmm(
                    intercepts[layer][network], h, coefs[layer][network]
                ).relu_()
                h = g.add_(h) if 0 < layer and g.shape == h.shape else g
            torch.addmm(intercepts[last][network], h, coefs[last][network], out=output)
    return outputs
