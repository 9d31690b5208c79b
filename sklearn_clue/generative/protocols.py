"""What explainers and evaluation know of a generative model, and nothing else.

A generator is an estimator with a method that gives what `fit` has learned:
`latent_model()` for CLUE, `conditional_model()` for U-FIDO. What they give speaks
tensors in encoded space, of double precision and on the CPU, and pickles.

An explainer fits a generator to encoded rows. Three attributes that a generator may
have are respected:

- `encoder`, a parameter: it is fitted to rows as the predictor gets them, and None is
  replaced by the predictor's own encoder. The `schema_` that results must be the
  predictor's.
- `image_shape`, a parameter: rows are pixels, between 0 and 1 in encoded space.
- `n_iter_`: the explainer passes it on.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Normal

__all__ = ["ConditionalModel", "DensityModel", "LatentModel"]


@runtime_checkable
class LatentModel(Protocol):
    """A model with a latent space to search in, as CLUE needs it.

    The method `latent_model` of a fitted generator gives one. An explainer fits its
    generator to encoded rows, unless that has a parameter `encoder`.

    Rows are independent: the answer for one does not depend on the others. Gradients
    of what `decode` gives reach the latents, and the weights need none. Steps of a
    search suit latents that are about standard normal over the training rows.

    See Also
    --------
    sklearn_clue.VAEEncoder : A generator with networks both ways.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEEncoder
    >>> from sklearn_clue.generative import LatentModel
    >>> vae = VAEEncoder(2, (5,), max_iter=1).fit(np.eye(4))
    >>> isinstance(vae.latent_model(), LatentModel)
    True
    """

    def encode(self, x: Tensor) -> Normal:
        """Map rows to a Gaussian over their latents.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows, in float64.

        Returns
        -------
        posterior : torch.distributions.Normal
            With a mean of shape (n_rows, latent_dim).
        """

    def decode(self, z: Tensor) -> Tensor:
        """Map latents to the rows that they stand for.

        Parameters
        ----------
        z : Tensor of shape (n_rows, latent_dim)
            Latents, in float64.

        Returns
        -------
        x : Tensor of shape (n_rows, n_encoded)
            Expected rows, with categories and pixels as probabilities.
        """


@runtime_checkable
class ConditionalModel(Protocol):
    """A model that completes rows from any part of them, as U-FIDO needs it.

    The method `conditional_model` of a fitted generator gives one. An explainer fits
    its generator to encoded rows, unless that has a parameter `encoder`. Rows are
    independent: the answer for one does not depend on the others.

    See Also
    --------
    sklearn_clue.VAEACImputer : A generator with networks for all three tasks.

    Examples
    --------
    >>> from sklearn_clue.generative import ConditionalModel
    >>> class Mean:
    ...     def impute(self, x, observed):
    ...         return observed * x  # zero is the mean of encoded numbers
    >>> isinstance(Mean(), ConditionalModel)
    True
    """

    def impute(self, x: Tensor, observed: Tensor) -> Tensor:
        """Replace what is not observed by its expectation.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows, in float64. What they hold where they are not observed has
            no influence.

        observed : Tensor of shape (n_rows, n_encoded)
            Ones at what is seen and zeros elsewhere; a category is one as a whole.

        Returns
        -------
        x : Tensor of shape (n_rows, n_encoded)
            The rows, unchanged where observed, with categories as probabilities.
        """


@runtime_checkable
class DensityModel(Protocol):
    """A model that knows how probable rows are, as evaluation needs it.

    See Also
    --------
    sklearn_clue.VAEEncoder : Its attribute `module_` is one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEEncoder
    >>> from sklearn_clue.generative import DensityModel
    >>> vae = VAEEncoder(2, (5,), max_iter=1).fit(np.eye(4))
    >>> isinstance(vae.module_, DensityModel)
    True
    """

    def log_prob(self, x: Tensor) -> Tensor:
        """Estimate how probable rows are.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_encoded)
            Encoded rows.

        Returns
        -------
        log_density : Tensor of shape (n_rows,)
            In nats, the same in every call.
        """

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw rows.

        Parameters
        ----------
        n : int
            Number of rows.

        generator : torch.Generator
            Source of the draws.

        Returns
        -------
        x : Tensor of shape (n, n_encoded)
            Encoded rows.
        """
