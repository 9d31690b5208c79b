"""What networks learn to predict: classes, or numbers with their noise."""

import math

import numpy as np
import torch
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from sklearn_clue._torch import as_tensor
from sklearn_clue._validation import check_labels


class ClassTarget:
    """Classes, of which networks predict the logits.

    A mixin of estimators with the parameter `class_weight`; sets `classes_`.
    """

    def _read_target(self, y, *, go_on):
        y = column_or_1d(y, warn=True)
        check_labels(y)
        check_classification_targets(y)
        if not go_on:
            self.classes_ = np.unique(y)
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strangers = np.unique(y[self.classes_[codes] != y])
        if len(strangers):
            raise ValueError(
                f"y holds the classes {strangers.tolist()}, but only "
                f"{self.classes_.tolist()} are known. Leave those rows out, or fit "
                "anew with them."
            )
        return codes

    def _prepare_target(self, codes, weight, *, go_on):
        codes = codes[:, 0].astype(np.int64)
        n_classes = len(self.classes_)
        totals = np.bincount(codes, weights=weight, minlength=n_classes)
        if np.count_nonzero(totals) < 2 and not go_on:
            only = self.classes_.tolist()[totals.argmax()]
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes to tell apart, got "
                f"1 class: {only!r}. Check how y was built or split, and in which rows "
                "sample_weight is zero."
            )
        if self.class_weight == "balanced":
            # Of the weighted counts, so that a weight of 2 equals the row twice here.
            n_present = np.count_nonzero(totals)
            factors = totals.sum() / (n_present * np.where(totals, totals, 1))
        else:
            factors = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_[codes]
            )
        weight = weight * factors[codes]
        is_weight = np.isfinite(factors).all() and (factors >= 0).all()
        if not (is_weight and weight.any()):
            raise ValueError(
                "class_weight must give each class a finite number that is at least "
                f"0, and some class more, got {self.class_weight!r}."
            )
        return codes, weight

    def _n_network_outputs(self):
        return len(self.classes_)

    def _target_tensor(self, codes):
        return torch.as_tensor(codes, device=self.device)

    def _nll(self):
        return cross_entropy

    def _head(self):
        calibration = getattr(self, "calibration_", None)
        return Softmax(calibration.temperature if calibration else 1.0)

    def _monitored(self, outputs):
        return self._head()(outputs)[..., 1:]


class NumberTarget:
    """Numbers, of which networks predict mean and noise, both standardised.

    A mixin of estimators with the parameter `noise_floor`; sets `target_mean_` and
    `target_scale_`.
    """

    def _read_target(self, y, *, go_on):
        if np.asarray(y).dtype.kind in "mM":
            raise TypeError(
                f"y has dtype {np.asarray(y).dtype}, which is not a number. Convert "
                "it before, for example to the days since a fixed date."
            )
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        if go_on and n_outputs != len(self.target_mean_):
            raise ValueError(
                f"y has {n_outputs} output(s), but the networks have "
                f"{len(self.target_mean_)}. Pass the same outputs, or fit anew."
            )
        self._is_single = y.ndim == 1
        return y

    def _prepare_target(self, y, weight, *, go_on):
        self._noise_floor = self.noise_floor
        if go_on:
            return self._standardised(y), weight
        # By a power of two near the largest value, which costs no digit: squares
        # neither overflow for huge values nor vanish for tiny ones.
        exponent = np.frexp(np.abs(y).max(axis=0))[1]
        y = np.ldexp(y, -exponent)
        mean = np.average(y, axis=0, weights=weight)
        variance = np.average((y - mean) ** 2, axis=0, weights=weight)
        scale = np.where(variance > 0, np.sqrt(variance), 1.0)
        self.target_mean_ = np.ldexp(mean, exponent)
        self.target_scale_ = np.where(variance > 0, np.ldexp(scale, exponent), 1.0)
        return (y - mean) / scale, weight

    def _standardised(self, y):
        return (y - self.target_mean_) / self.target_scale_

    def _n_network_outputs(self):
        return 2 * len(self.target_mean_)

    def _target_tensor(self, y):
        return as_tensor(y, self.device)

    def _nll(self):
        return GaussianNLL(self.noise_floor)

    def _head(self):
        calibration = getattr(self, "calibration_", None)
        return GaussianMoments(self._floor(), calibration and calibration.scale)

    def _floor(self):
        # What the networks were trained with, not what was set since. Files of state
        # version 2 say nothing about it.
        return getattr(self, "_noise_floor", self.noise_floor)

    def _monitored(self, outputs):
        return self._head()(outputs)[0]

    def _in_units(self, values, *, is_spread=False):
        """Undo the standardisation of the target, whose outputs are the last axis."""
        values = values * self.target_scale_
        if not is_spread:
            values = values + self.target_mean_
        return values[..., 0] if self._is_single else values


def cross_entropy(outputs, codes):
    """Negative log-likelihood of class codes under logits, row by row."""
    loss = torch.nn.functional.cross_entropy(
        outputs.flatten(0, 1), codes.flatten(), reduction="none"
    )
    return loss.view(codes.shape)


class Softmax:
    """Class probabilities of each network."""

    def __init__(self, temperature=1.0):
        self.temperature = temperature

    def __call__(self, outputs):
        if self.temperature == 1:
            return outputs.softmax(-1)
        return self.log_proba(outputs, self.temperature).exp()

    @staticmethod
    def log_proba(outputs, temperature):
        """Temper what the networks say together; each deviates from it as before.

        Dividing the logits of each network would also blow up their disagreement, and
        networks that are unsure because they disagree could never become sure.
        """
        own = outputs.log_softmax(-1)
        together = own.logsumexp(0) - math.log(len(own))
        return (own + (1 / temperature - 1) * together).log_softmax(-1)


class GaussianMoments:
    """Mean and standard deviation that each network predicts, standardised."""

    def __init__(self, noise_floor, scale=None):
        self.noise_floor = noise_floor
        self.scale = scale  # of the spread of all networks together, per output

    def __call__(self, outputs):
        mean, raw = outputs.chunk(2, dim=-1)
        std = torch.nn.functional.softplus(raw) + self.noise_floor
        if self.scale is None:
            return mean, std
        return self.rescale(mean, std, torch.as_tensor(self.scale).to(mean))

    @staticmethod
    def rescale(mean, std, scale):
        """Stretch mixtures about their mean, disagreement and noise alike."""
        center = mean.mean(0)
        return center + scale * (mean - center), scale * std


class GaussianNLL(GaussianMoments):
    """Negative log-likelihood of a Gaussian whose noise the network predicts."""

    def __call__(self, outputs, y):
        mean, std = super().__call__(outputs)
        constant = 0.5 * math.log(2 * math.pi)
        return (std.log() + 0.5 * ((y - mean) / std) ** 2 + constant).sum(-1)


def normal_cdf(z):
    """Cumulative standard normal; unlike torch's, it has its digits in the tail."""
    return 0.5 * torch.special.erfc(-z / math.sqrt(2))


def mixture_quantile(mean, std, level):
    """Quantile of an equal mixture of Gaussians along the first axis, by bisection."""
    level = torch.as_tensor(level).to(mean)
    component = mean + std * torch.special.ndtri(level)
    # Below the lowest quantile of a component all of them have less mass than the
    # level, above the highest all have more.
    low, high = component.amin(0), component.amax(0)
    for _ in range(50):
        middle = (low + high) / 2
        is_below = normal_cdf((middle - mean) / std).mean(0) < level
        low, high = (
            torch.where(is_below, middle, low),
            torch.where(is_below, high, middle),
        )
    return (low + high) / 2
