"""Two-level VAEAC: a second model of the first one's latents (App. I)."""

from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from sklearn_clue._torch import DTYPE, make_generator
from sklearn_clue._validation import HasMethods, _fit_context, check_is_fitted
from sklearn_clue.generative._base import (
    as_normal,
    by_rows,
    importance_log_prob,
    normal_log_prob,
    standard_noise,
)
from sklearn_clue.generative._vae import VAEEncoder
from sklearn_clue.generative._vaeac import VAEACImputer

# Rows that the second model should at least see; small tables draw latents of each
# row several times.
MIN_LATENT_ROWS = 5000


class TwoLevel(torch.nn.Module):
    """p(x, z, u) = p(x | z) p(z | u) p(u), on tensors in encoded space.

    Parameters
    ----------
    outer : VAEAC
        Between rows x and latents z.

    inner : VAE
        Between standardised latents z and inner latents u.

    center, scale : Tensor of shape (latent_dim,)
        The inner model sees (z - center) / scale.
    """

    def __init__(self, outer, inner, center, scale):
        super().__init__()
        self.outer = outer
        self.inner = inner
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def sample(self, n, generator):
        """Draw rows from the inner latents up."""
        z = self.inner.sample(n, generator) * self.scale + self.center
        nothing = z.new_zeros(n, self.outer.config.n_encoded)
        outputs = self.outer.outputs(z, nothing, nothing)
        return self.outer.likelihood.sample(outputs, generator)

    def impute(self, x, observed):
        """Complete rows, by the outer model."""
        return self.outer.impute(x, observed)

    def log_prob(self, x, n_importance=1000, present=None):
        """Importance-weighted log-density of what is present in each row, in nats."""
        # Differs from the paper: Eq. 21 puts p(z | u) at its mean to stay tractable.
        # Drawing z from q(z | x) and u from q(u | z) keeps all three terms,
        #     p(x | z) p(z | u) p(u) / (q(z | x) q(u | z)),
        # costs the same, and is the density that `sample` draws from.
        present = torch.ones_like(x) if present is None else present
        nothing = torch.zeros_like(x)
        posterior = self.outer.posterior(x, present, nothing)
        mean, std = (part.unsqueeze(1) for part in posterior)
        n_z, n_u = self.outer.latent_dim, self.inner.latent_dim
        log_volume = self.scale.log().sum()

        def log_weight(noise):
            shape = noise.shape[:2]
            z = mean + std * noise[..., :n_z]
            log_q_z = normal_log_prob(z, mean, std)
            z = z.flatten(0, 1)
            blank = z.new_zeros(len(z), x.shape[1])
            outputs = self.outer.outputs(z, blank, blank).unflatten(0, shape)
            terms = self.outer.likelihood.log_prob(outputs, x.unsqueeze(1))
            log_p_x = (present.unsqueeze(1) * terms).sum(-1)
            z = (z - self.center) / self.scale
            u_mean, u_std = as_normal(self.inner.recognition(z))
            u = u_mean + u_std * noise[..., n_z:].flatten(0, 1)
            inner = self.inner.likelihood.log_prob(self.inner.decoder(u), z).sum(-1)
            inner = inner + normal_log_prob(u, torch.zeros_like(u), torch.ones_like(u))
            inner = inner - normal_log_prob(u, u_mean, u_std) - log_volume
            return log_p_x + inner.unflatten(0, shape) - log_q_z

        return importance_log_prob(
            log_weight,
            torch.cat([present * x, present], -1),
            n_z + n_u,
            n_importance,
            self.bytes_per_row(),
        )

    def bytes_per_row(self):
        """Memory that the activations of one row take, roughly."""
        return self.outer.bytes_per_row() + self.inner.bytes_per_row()


class TwoLevelVAEAC(BaseEstimator):
    """Generate rows by a model of rows and a second model of its latents.

    Latents of an auto-encoder do not fill its prior: drawing from the prior gives
    rows from the gaps as well. The second, smaller auto-encoder learns where the
    latents of real rows are (Dai and Wipf, 2019), so that :meth:`sample` stays there
    and :meth:`score_samples` knows about it.

    Parameters
    ----------
    outer : VAEACImputer or None, default=None
        The model of rows. None means the default one.

    inner : VAEEncoder or None, default=None
        The model of latents. None means one with two hidden layers of 150 and as many
        latents as the outer model.

    random_state : int, RandomState instance or None, default=None
        Fixes both fits, where the two models do not say otherwise.

    Attributes
    ----------
    outer_ : VAEACImputer
        The fitted model of rows. It completes rows and predicts columns.

    inner_ : VAEEncoder
        The fitted model of its latents.

    See Also
    --------
    VAEACImputer : The model of rows.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Appendix I.

    Dai, Wipf, "Diagnosing and Enhancing VAE Models", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEACImputer, VAEEncoder
    >>> from sklearn_clue.generative import TwoLevelVAEAC
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = TwoLevelVAEAC(
    ...     VAEACImputer(2, (10,), max_iter=5), VAEEncoder(2, (10,), max_iter=5)
    ... )
    >>> model.fit(X).sample(3).shape
    (3, 2)
    """

    _parameter_constraints: dict = {
        "outer": [HasMethods(["fit", "score_samples"]), None],
        "inner": [HasMethods(["fit", "score_samples"]), None],
        "random_state": ["random_state"],
    }

    def __init__(self, outer=None, inner=None, *, random_state=None):
        self.outer = outer
        self.inner = inner
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, sample_weight=None):
        """Train the model of rows, and then that of its latents.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows, complete or not.

        y : None
            Ignored.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : object
            The fitted model.
        """
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=3)
        self.outer_ = VAEACImputer() if self.outer is None else clone(self.outer)
        if self.outer_.random_state is None:
            self.outer_.set_params(random_state=int(seeds[0]))
        self.outer_.fit(X, sample_weight=sample_weight)

        _, x, present = self.outer_._read(X)
        n_repeats = -(-MIN_LATENT_ROWS // len(x))
        rows = np.tile(np.arange(len(x)), n_repeats)
        generator = make_generator(seeds[1], self.outer_.device)

        def draw(module, x, present):
            mean, std = module.posterior(x, present, torch.zeros_like(x))
            return mean + std * standard_noise(mean.shape, generator, x.device)

        z = self.outer_._by_rows(draw, x[rows], present[rows])
        self.inner_ = (
            VAEEncoder(self.outer_.latent_dim_, (150, 150))
            if self.inner is None
            else clone(self.inner)
        )
        if self.inner_.random_state is None:
            self.inner_.set_params(random_state=int(seeds[2]))
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        self.inner_.fit(z, sample_weight=weight)
        return self

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the inner latents up.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Rows in the user's units.
        """
        return self._decode(self._draw(self.module(), n_samples, random_state))

    def sample_prior(self, n_samples=1, random_state=None):
        """Draw rows by the outer model alone, from its prior; to compare.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Rows in the user's units.
        """
        return self._decode(self._draw(self.module().outer, n_samples, random_state))

    def score_samples(self, X, n_importance=1000):
        """Estimate the log-density of what is observed in each row.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge. Missing cells are integrated out.

        n_importance : int, default=1000
            Pairs of latents drawn per row. On average the estimate is too low, and the
            less so the more draws.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats: log-probability of categories, log-density of numbers in the
            user's units. The draws are the same in every call.
        """
        module = self.module()
        if not isinstance(n_importance, Integral) or n_importance < 1:
            raise ValueError(
                f"n_importance must be a positive whole number, got {n_importance!r}."
            )
        _, x, present = self.outer_._read(X)
        log_density = by_rows(
            module,
            lambda module, x, present: module.log_prob(x, n_importance, present),
            x,
            present,
            n_copies=min(n_importance, 100),
            device=self.outer_.device,
            dtype=DTYPE,
        )
        return log_density - self.outer_._log_scale(present)

    def module(self):
        """Put the two models together, on tensors in encoded space.

        Returns
        -------
        module : torch.nn.Module
            With the methods `log_prob`, `sample` and `impute`.
        """
        check_is_fitted(self, "inner_")
        outer, inner = self.outer_.module_, self.inner_.module_
        center, scale = np.zeros(outer.latent_dim), np.ones(outer.latent_dim)
        if self.inner_.encoder_ is not None:
            columns = self.inner_.schema_.columns
            center = np.array([column.center for column in columns])
            scale = np.array([column.scale for column in columns])
        module = TwoLevel(
            outer,
            inner,
            torch.as_tensor(center, dtype=DTYPE),
            torch.as_tensor(scale, dtype=DTYPE),
        )
        return module.to(self.outer_.device).eval()

    def _draw(self, module, n_samples, random_state):
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(
                f"n_samples must be a positive whole number, got {n_samples!r}."
            )
        device = self.outer_.device
        seed = check_random_state(random_state).randint(2**31 - 1)
        generator = make_generator(seed, device)
        with torch.inference_mode():
            blocks = [
                module.sample(min(4096, n_samples - start), generator).cpu().numpy()
                for start in range(0, n_samples, 4096)
            ]
        return np.concatenate(blocks)

    def _decode(self, x):
        encoder = self.outer_.encoder_
        return x.astype(np.float64) if encoder is None else encoder.inverse_transform(x)
