"""Networks and likelihoods of generative models, on encoded tensors."""

import copy
import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval


class CastingLinear(nn.Linear):
    """Linear layer that computes in the precision of its input.

    So a network of single precision takes latents of double precision. The gradient
    with respect to a few latents is a narrow matrix product, whose rounding depends on
    the number of rows, and a search would amplify that.
    """

    def forward(self, x):
        """Map x of any precision to outputs in that of the weights."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return nn.functional.linear(x, weight, bias).to(self.weight.dtype)


class ResidualMLP(nn.Module):
    """A fully connected network with batch normalisation at every hidden layer.

    Hidden layers of equal width have residual connections between them (App. B.3).

    Parameters
    ----------
    layer_sizes : sequence of int
        Widths from the input to the output. Two of them make a linear map.
    """

    def __init__(self, layer_sizes):
        super().__init__()
        *sizes, n_out = layer_sizes
        self.hidden = nn.ModuleList(
            nn.Sequential(CastingLinear(n_in, width), nn.BatchNorm1d(width), nn.ReLU())
            for n_in, width in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.output = CastingLinear(sizes[-1], n_out)

    def set_bias(self, bias):
        """Set what is added to the outputs, of shape (n_out,)."""
        self.output.bias.copy_(bias)

    def forward(self, x):
        """Map x of shape (n_rows, n_in) to outputs of shape (n_rows, n_out)."""
        for layer, hidden in enumerate(self.hidden):
            h = hidden(x)
            x = h + x if 0 < layer and h.shape == x.shape else h
        return self.output(x)


def folded(module):
    """Make batch normalisation a part of the linear layers before it.

    It is one in a fitted model, which is searched a little faster this way.

    Parameters
    ----------
    module : Module
        A fitted model.

    Returns
    -------
    module : Module
        A copy that can be asked but not trained; the module itself if there is
        nothing to fold.
    """

    def layers(module):
        return [part for part in module.modules() if _is_normalised(part)]

    if layers(module):
        # All weights but those of the layers are shared.
        tensors = [*module.parameters(), *module.buffers()]
        module = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
        for part in layers(module.eval()):
            part[0] = fuse_linear_bn_eval(part[0], part[1])
            part[1] = nn.Identity()
    return module


def _is_normalised(part):
    kinds = (nn.Linear, nn.BatchNorm1d)
    is_sequence = isinstance(part, nn.Sequential) and len(part) >= len(kinds)
    return is_sequence and all(map(isinstance, part, kinds))


class _Bottleneck(nn.Module):
    """Residual block that convolves in a quarter of its channels (He et al., 2016)."""

    def __init__(self, n_channels):
        super().__init__()
        n_inner = max(n_channels // 4, 4)
        self.layers = nn.Sequential(
            nn.Conv2d(n_channels, n_inner, 1, bias=False),
            nn.BatchNorm2d(n_inner),
            nn.ReLU(),
            nn.Conv2d(n_inner, n_inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_inner),
            nn.ReLU(),
            nn.Conv2d(n_inner, n_channels, 1, bias=False),
            nn.BatchNorm2d(n_channels),
        )

    def forward(self, x):
        return torch.relu(x + self.layers(x))


BLOCKS_PER_STAGE = 3


def image_stages(image_shape):
    """Plan the halvings of an image: channels and side lengths after each of them.

    Images are halved until no side is longer than 8, at least once, and every halving
    is followed by three blocks: two stages for 28 x 28, so six blocks as in App. B.3,
    and one for 8 x 8.

    Parameters
    ----------
    image_shape : tuple of (int, int, int)
        Channels, height and width.

    Returns
    -------
    stages : list of (int, int, int)
        Channels, height and width; the image itself comes first.
    """
    stages = [tuple(image_shape)]
    n_channels = 32
    while len(stages) == 1 or max(stages[-1][1:]) > 8:
        _, height, width = stages[-1]
        stages.append((n_channels, -(-height // 2), -(-width // 2)))
        n_channels *= 2
    return stages


class ConvEncoder(nn.Module):
    """Residual convolutional network from rows of pixels to outputs.

    Parameters
    ----------
    image_shape : tuple of (int, int, int)
        Channels, height and width.

    n_out : int
        Number of outputs.
    """

    def __init__(self, image_shape, n_out):
        super().__init__()
        self.image_shape = tuple(image_shape)
        stages = image_stages(image_shape)
        layers = []
        for (n_in, _, _), (n_channels, _, _) in zip(
            stages[:-1], stages[1:], strict=True
        ):
            layers += [
                nn.Conv2d(n_in, n_channels, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(n_channels),
                nn.ReLU(),
                *(_Bottleneck(n_channels) for _ in range(BLOCKS_PER_STAGE)),
            ]
        self.layers = nn.Sequential(*layers)
        n_channels, height, width = stages[-1]
        self.output = nn.Linear(n_channels * height * width, n_out)

    def forward(self, x):
        """Map pixels of shape (n_rows, n_pixels) to outputs of (n_rows, n_out)."""
        x = x.unflatten(1, self.image_shape)
        # A third faster on a processor, where channels are few and products small.
        x = x.contiguous(memory_format=torch.channels_last)
        return self.output(self.layers(x).flatten(1))


class ConvDecoder(nn.Module):
    """The way back of `ConvEncoder`, from inputs to one output per pixel.

    Parameters
    ----------
    n_in : int
        Number of inputs.

    image_shape : tuple of (int, int, int)
        Channels, height and width.
    """

    def __init__(self, n_in, image_shape):
        super().__init__()
        stages = image_stages(image_shape)[::-1]
        self.first_shape = stages[0]
        n_channels, height, width = stages[0]
        self.first = CastingLinear(n_in, n_channels * height * width)
        layers = []
        for (n_channels, height, width), (n_out, *size) in zip(
            stages[:-1], stages[1:], strict=True
        ):
            # 2 n outputs from n inputs, or one less where the halving rounded up.
            missing = (2 * height - size[0], 2 * width - size[1])
            layers += [
                *(_Bottleneck(n_channels) for _ in range(BLOCKS_PER_STAGE)),
                nn.ConvTranspose2d(
                    n_channels, n_out, 4, stride=2, padding=1, bias=False
                ),
                _Crop(*missing) if any(missing) else nn.Identity(),
            ]
            if len(layers) // (BLOCKS_PER_STAGE + 2) < len(stages) - 1:
                layers[-1] = nn.Sequential(layers[-1], nn.BatchNorm2d(n_out), nn.ReLU())
        self.layers = nn.Sequential(*layers)
        self.bias = nn.Parameter(torch.zeros(math.prod(image_shape)))

    def set_bias(self, bias):
        """Set what is added to the outputs, of shape (n_pixels,)."""
        self.bias.copy_(bias)

    def forward(self, z):
        """Map inputs of shape (n_rows, n_in) to pixels of (n_rows, n_pixels)."""
        h = torch.relu(self.first(z)).unflatten(1, self.first_shape)
        h = h.contiguous(memory_format=torch.channels_last)
        return self.layers(h).flatten(1) + self.bias


class _Crop(nn.Module):
    def __init__(self, n_rows, n_columns):
        super().__init__()
        self.n_rows, self.n_columns = n_rows, n_columns

    def forward(self, x):
        height, width = x.shape[-2:]
        return x[..., : height - self.n_rows, : width - self.n_columns]


# A variance that is learned stops here, in units of the encoded column: a constant
# column would drive it to zero and its density to infinity.
VARIANCE_FLOOR = 1e-4


# An adaptive optimiser moves every parameter by about its learning rate. The logarithm
# of a variance has further to go than weights have.
VARIANCE_PACE = 10.0


class FeatureGroup(NamedTuple):
    """Neighbouring positions of encoded space with one kind of distribution."""

    kind: str  # "gaussian", "bernoulli", "categorical" or "gapped"
    start: int
    stop: int
    has_gap: bool = False  # whether the last position says that a value is missing


def feature_groups(schema, number_kind="gaussian"):
    """Say which distribution each stretch of encoded space has.

    Parameters
    ----------
    schema : FeatureSchema
        The columns.

    number_kind : {"gaussian", "bernoulli"}, default="gaussian"
        The distribution of the numbers.

    Returns
    -------
    groups : tuple of FeatureGroup
        Neighbouring numbers make one group; each category makes its own, and so does
        a `"gapped"` number, which is missing or has a Gaussian.
    """
    groups = []
    for column in schema:
        if column.kind == "category" or column.has_gap:
            kind = "categorical" if column.kind == "category" else "gapped"
            groups.append(FeatureGroup(kind, *column.span, column.has_gap))
        elif groups and groups[-1].kind == number_kind:
            groups[-1] = groups[-1]._replace(stop=column.span[1])
        else:
            groups.append(FeatureGroup(number_kind, *column.span))
    return tuple(groups)


class MixedLikelihood(nn.Module):
    """Distributions of all columns given one output of a decoder per position.

    The output is the mean of a Gaussian, the logit of a Bernoulli, or one of the
    logits of a category. A gapped number has the mean of its value if there is one, and
    the logit of being missing. With predicted variances there are as many outputs
    again, for the logarithms of the variances.

    Parameters
    ----------
    groups : sequence of FeatureGroup
        What lives where.

    noise_variance : float, "learned" or "predicted"
        Variance of the Gaussians; `"learned"` makes it a parameter per position, and
        `"predicted"` reads it from the outputs.
    """

    def __init__(self, groups, noise_variance):
        super().__init__()
        self.groups = tuple(groups)
        self.n_encoded = n_encoded = self.groups[-1].stop
        self.is_predicted = noise_variance == "predicted"
        self.n_outputs = 2 * n_encoded if self.is_predicted else n_encoded
        if self.is_predicted:
            return
        is_learned = noise_variance == "learned"
        first = 0.0 if is_learned else math.log(noise_variance) / VARIANCE_PACE
        raw = torch.full((n_encoded,), first)
        if is_learned:
            self.raw_variance = nn.Parameter(raw)
        else:
            self.register_buffer("raw_variance", raw)

    def variance(self, outputs=None):
        """Variance of the Gaussian at each position."""
        if self.is_predicted:
            # A network may promise too much far from its rows: above, the data end.
            log_variance = outputs[..., self.n_encoded :]
            return log_variance.clamp(math.log(VARIANCE_FLOOR), 2.0).exp()
        return (VARIANCE_PACE * self.raw_variance).exp().clamp_min(VARIANCE_FLOOR)

    def log_prob(self, outputs, x):
        """Log-density of x, as one term per position.

        A category has its log-probability at the position that is one, and zeros at
        the others, so sums over the positions of some columns are those columns'
        log-density.
        """
        terms, variances = [], self.variance(outputs)
        for kind, start, stop, _ in self.groups:
            output, target = outputs[..., start:stop], x[..., start:stop]
            if kind == "gaussian":
                term = _log_normal(target, output, variances[..., start:stop])
            elif kind == "bernoulli":
                term = _log_bernoulli(target, output)
            elif kind == "gapped":
                score = _log_normal(target, output, variances[..., start:stop])
                is_there = 1 - target[..., 1:]
                term = torch.cat(
                    torch.broadcast_tensors(
                        is_there * score[..., :1],
                        _log_bernoulli(target[..., 1:], output[..., 1:]),
                    ),
                    -1,
                )
            else:
                term = target * output.log_softmax(-1)
            terms.append(term)
        return torch.cat(terms, -1)

    def outputs_for(self, mean):
        """Outputs that stand for given means of the encoded columns.

        A decoder that starts from those of the data need not learn them, and holds
        categories that never occur for improbable from the start.
        """
        pieces = []
        for kind, start, stop, _ in self.groups:
            piece = mean[start:stop]
            if kind == "bernoulli":
                piece = piece.clamp(0.01, 0.99).logit()
            elif kind == "gapped":
                piece = torch.cat([piece[:1], piece[1:].clamp(1e-3, 0.999).logit()])
            elif kind == "categorical":
                piece = piece.clamp_min(1e-4).log()
            pieces.append(piece)
        pieces.append(mean.new_zeros(self.n_outputs - self.n_encoded))
        return torch.cat(pieces)

    def mean(self, outputs):
        """Expected x: numbers, and probabilities of pixels and categories."""
        return torch.cat(
            [
                _MEANS[kind](outputs[..., start:stop])
                for kind, start, stop, _ in self.groups
            ],
            -1,
        )

    def sample(self, outputs, generator):
        """Draw numbers and categories; pixels come as their probabilities.

        The Bernoulli is a model of grey values as the probability of ink (App. B.3),
        so a drawn image is grey, too.
        """
        pieces, variances = [], self.variance(outputs)
        for kind, start, stop, _ in self.groups:
            output = outputs[..., start:stop]
            if kind in ("gaussian", "gapped"):
                noise = torch.randn(
                    output.shape,
                    generator=generator,
                    device=output.device,
                    dtype=output.dtype,
                )
                piece = output + variances[..., start:stop].sqrt() * noise
                if kind == "gapped":
                    is_gap = output[..., 1:].sigmoid().bernoulli(generator=generator)
                    piece = torch.cat([(1 - is_gap) * piece[..., :1], is_gap], -1)
            elif kind == "bernoulli":
                piece = output.sigmoid()
            else:
                proba = output.softmax(-1).reshape(-1, stop - start)
                drawn = torch.multinomial(proba, 1, generator=generator)[:, 0]
                piece = nn.functional.one_hot(drawn, stop - start).to(output.dtype)
                piece = piece.view(output.shape)
            pieces.append(piece)
        return torch.cat(pieces, -1)


def _log_normal(x, mean, variance):
    return -0.5 * ((x - mean).square() / variance + (2 * math.pi * variance).log())


def _log_bernoulli(x, logit):
    return x * logit - nn.functional.softplus(logit)


_MEANS = {
    "gaussian": lambda output: output,
    "bernoulli": torch.sigmoid,
    "categorical": lambda output: output.softmax(-1),
    "gapped": lambda output: torch.cat(
        [output[..., :1], output[..., 1:].sigmoid()], -1
    ),
}
