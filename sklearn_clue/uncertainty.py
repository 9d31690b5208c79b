"""What uncertainty is, and how it splits into its two sources."""

from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["Uncertainty", "decompose_entropy", "decompose_variance"]


class Uncertainty(NamedTuple):
    """Uncertainty of predictions, in total and by source.

    Parameters
    ----------
    total : array of shape (n_samples,)
        All that keeps the model from being sure.

    aleatoric : array of shape (n_samples,)
        The part that comes from noise in the data: more of the same data would not
        lower it.

    epistemic : array of shape (n_samples,)
        The part that comes from not knowing the model: more data nearby would lower
        it.

    See Also
    --------
    decompose_entropy : For class probabilities, in nats; the parts add up.
    decompose_variance : For regression, as standard deviations; their squares add up.

    Examples
    --------
    >>> from sklearn_clue import Uncertainty
    >>> total, aleatoric, epistemic = Uncertainty(0.69, 0.5, 0.19)
    >>> total
    0.69
    """

    total: Any
    aleatoric: Any
    epistemic: Any


def decompose_entropy(proba):
    """Split predictive entropy into its aleatoric and epistemic parts.

    Parameters
    ----------
    proba : array-like of shape (n_draws, n_samples, n_classes)
        Class probabilities, one slab per posterior draw.

    Returns
    -------
    parts : Uncertainty
        `total`, `aleatoric` and `epistemic`, each of shape (n_samples,), in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.uncertainty import decompose_entropy
    >>> coin = [[0.5, 0.5], [0.5, 0.5]]  # both draws: could be either class
    >>> feud = [[1.0, 0.0], [0.0, 1.0]]  # each draw is sure, of opposite classes
    >>> parts = decompose_entropy(np.stack([coin, feud], axis=1))
    >>> parts.epistemic.round(2)
    array([0.  , 0.69])
    """
    return _as_arrays(entropy_parts(_as_draws(proba, "proba", n_axes=3)))


def decompose_variance(mean, std):
    """Split predictive spread into its aleatoric and epistemic parts.

    Parameters
    ----------
    mean : array-like of shape (n_draws, n_samples) or (n_draws, n_samples, n_outputs)
        Predictive mean, one slab per posterior draw.

    std : array-like of the shape of `mean`
        Standard deviation of the noise, one slab per posterior draw.

    Returns
    -------
    parts : Uncertainty
        `total`, `aleatoric` and `epistemic` standard deviations in the unit of `mean`,
        each of its shape without the first axis. The squares of the parts add up to
        the square of the total.

    Examples
    --------
    >>> from sklearn_clue.uncertainty import decompose_variance
    >>> parts = decompose_variance([[3.0], [-3.0]], [[4.0], [4.0]])
    >>> parts.total, parts.aleatoric, parts.epistemic
    (array([5.]), array([4.]), array([3.]))
    """
    mean, std = _as_draws(mean, "mean"), _as_draws(std, "std")
    if mean.shape != std.shape:
        raise ValueError(
            "mean and std must have the same shape, got "
            f"{tuple(mean.shape)} and {tuple(std.shape)}."
        )
    return _as_arrays(variance_parts(mean, std))


def entropy_parts(proba):
    """Do the work of `decompose_entropy`, on tensors and differentiably."""
    # Appendix B.2 prints this entropy without its minus sign; it is positive here.
    total = torch.special.entr(proba.mean(0)).sum(-1)
    aleatoric = torch.special.entr(proba).sum(-1).mean(0)
    # Jensen's inequality bounds the difference below by zero, rounding does not.
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def variance_parts(mean, std):
    """Do the work of `decompose_variance`, on tensors and differentiably."""
    # Appendix B.2, as a mean of squared deviations: E[m²] - E[m]² cancels digits and
    # can come out negative.
    epistemic = mean.var(0, correction=0)
    aleatoric = std.square().mean(0)
    total = epistemic + aleatoric
    return Uncertainty(total.sqrt(), aleatoric.sqrt(), epistemic.sqrt())


def _as_draws(values, name, n_axes=None):
    values = torch.as_tensor(np.asarray(values, dtype=np.float64))
    if values.ndim < 2 or n_axes not in (None, values.ndim) or len(values) == 0:
        raise ValueError(
            f"{name} needs posterior draws on its first axis and samples on its "
            f"second{', classes on its third' if n_axes == 3 else ''}, got shape "
            f"{tuple(values.shape)}."
        )
    return values


def _as_arrays(parts):
    return Uncertainty(*(part.cpu().numpy() for part in parts))
