"""Two-level VAEAC: a second model of the first one's latents (App. I)."""

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from sklearn_clue._torch import PRECISE_DTYPE, as_tensor, make_generator
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    check_count,
    check_is_fitted,
    check_weights,
    fit_context,
)
from sklearn_clue.generative._latent import (
    by_rows,
    draw_rows,
    normal_log_prob,
    standard_noise,
)
from sklearn_clue.generative._vae import VAEEncoder
from sklearn_clue.generative._vaeac import VAEACImputer
from sklearn_clue.persistence import VersionedState

# Rows that the second model should at least see; small tables draw latents of each
# row several times.
MIN_LATENT_ROWS = 5000


class TwoLevel(torch.nn.Module):
    """p(x, z, u) = p(x | z) p(z | u) p(u), on tensors in encoded space.

    A DensityModel.

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
        return self.outer.likelihood.sample(self.outer.outputs(z), generator)

    def log_prob(self, x, n_importance=1000, present=None, common_noise=False):
        """Importance-weighted log-density of what is present in each row, in nats."""
        # Differs from the paper: Eq. 21 puts p(z | u) at its mean to stay tractable.
        # Drawing z from q(z | x) and u from q(u | z) keeps all three terms,
        #     p(x | z) p(z | u) p(u) / (q(z | x) q(u | z)),
        # costs the same, and is the density that `sample` draws from.
        return self.outer.log_prob(
            x,
            n_importance,
            present,
            self._log_prior,
            self.inner.latent_dim,
            common_noise,
        )

    def _log_prior(self, z, noise):
        """Log of p(z | u) p(u) / q(u | z) for one u per z, an estimate of p(z)."""
        shape = z.shape[:2]
        z = ((z - self.center) / self.scale).flatten(0, 1)
        mean, std = self.inner.posterior(z)
        u = mean + std * noise.flatten(0, 1)
        log_p_z = self.inner.likelihood.log_prob(self.inner.outputs(u), z).sum(-1)
        log_p_u = normal_log_prob(u, *self.inner.prior())
        log_p = log_p_z + log_p_u - normal_log_prob(u, mean, std)
        return log_p.unflatten(0, shape) - self.scale.log().sum()

    def bytes_per_row(self):
        """Memory that the activations of one row take, roughly."""
        return self.outer.bytes_per_row()


class TwoLevelVAEAC(DocLinkMixin, VersionedState, BaseEstimator):
    """Generate rows by a model of rows and a second model of its latents.

    Latents of an auto-encoder do not fill its prior: drawing from the prior gives
    rows from the gaps as well. The second, smaller auto-encoder learns where the
    latents of real rows are (Dai and Wipf, 2019), so that :meth:`sample` stays there
    and :meth:`score_samples` knows about it.

    Parameters
    ----------
    outer : VAEACImputer or None, default=None
        The model of rows. None means the default one, but with
        `noise_variance="predicted"`: a noise that is the same for all rows shows in
        samples, where columns have spikes and long tails.

    inner : VAEEncoder or None, default=None
        The model of latents. None means one with two hidden layers of 150, as many
        latents as the outer model, learned noise and `n_importance=10`.

    random_state : int, RandomState instance or None, default=None
        Fixes both fits, where the two models do not say otherwise.

    Attributes
    ----------
    outer_ : VAEACImputer
        The fitted model of rows. It completes rows and predicts columns.

    inner_ : VAEEncoder
        The fitted model of its latents.

    module_ : torch.nn.Module
        The two together, on tensors in encoded space: `log_prob` and `sample`.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    sklearn_clue.VAEACImputer : The model of rows.

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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @fit_context(prefer_skip_nested_validation=False)
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
        self.outer_ = (
            VAEACImputer(noise_variance="predicted")
            if self.outer is None
            else clone(self.outer)
        )
        if self.outer_.random_state is None:
            self.outer_.set_params(random_state=int(seeds[0]))
        self.outer_.fit(X, sample_weight=sample_weight)

        _, x, present = self.outer_._read(X)
        rows = np.tile(np.arange(len(x)), -(-MIN_LATENT_ROWS // len(x)))
        generator = make_generator(seeds[1], self.outer_.device)

        def draw(module, x, present):
            mean, std = module.posterior(x, present)
            return mean + std * standard_noise(mean.shape, generator, x.device)

        # Draws, not means: the aggregate posterior is what p(z) must match.
        z = self.outer_._by_rows(draw, x[rows], present[rows])
        # A fixed variance would blur all that the latents have to say below it. The
        # latents differ from a Gaussian by a tenth of a nat or less, which the plain
        # bound trades for a smaller KL divergence: it ends at the Gaussian.
        self.inner_ = (
            VAEEncoder(
                self.outer_.latent_dim_,
                (150, 150),
                noise_variance="learned",
                n_importance=10,
            )
            if self.inner is None
            else clone(self.inner)
        )
        if self.inner_.random_state is None:
            self.inner_.set_params(random_state=int(seeds[2]))
        weight = check_weights(sample_weight, x)[rows]
        self.inner_.fit(z, sample_weight=weight)
        return self

    @property
    def module_(self):
        check_is_fitted(self, "inner_")
        outer, inner = self.outer_.module_, self.inner_.module_
        center, scale = np.zeros(outer.latent_dim), np.ones(outer.latent_dim)
        if self.inner_.encoder_ is not None:
            columns = self.inner_.schema_.columns
            center = np.array([column.center for column in columns])
            scale = np.array([column.scale for column in columns])
        module = TwoLevel(outer, inner, as_tensor(center), as_tensor(scale))
        return module.to(self.outer_.device).eval()

    @property
    def n_features_in_(self):
        check_is_fitted(self, "inner_")
        return self.outer_.n_features_in_

    @property
    def feature_names_in_(self):
        check_is_fitted(self, "inner_")
        return self.outer_.feature_names_in_

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
        check_is_fitted(self, "inner_")
        x = draw_rows(self.module_, n_samples, random_state, self.outer_.device)
        return self.outer_._decode_rows(x)

    def score_samples(self, X, n_importance=1000, *, common_noise=False):
        """Estimate the log-density of what is observed in each row.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge. Missing cells are integrated out.

        n_importance : int, default=1000
            Pairs of latents drawn per row. On average the estimate is too low, and the
            less so the more draws.

        common_noise : bool, default=False
            Whether all rows share the noise of their draws. Errors of rows that are
            alike are then alike, and cancel in differences; but they no longer cancel
            in means.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats: log-probability of categories, log-density of numbers in the
            user's units. The draws are the same in every call.
        """
        check_is_fitted(self, "inner_")
        check_count("n_importance", n_importance)
        _, x, present = self.outer_._read(X)
        log_density = by_rows(
            self.module_,
            lambda module, x, present: module.log_prob(
                x, n_importance, present, common_noise
            ),
            x,
            present,
            n_copies=min(n_importance, 100),
            device=self.outer_.device,
            dtype=PRECISE_DTYPE,
        )
        return log_density - self.outer_._log_scale(x, present)

    def score(self, X, y=None):
        """Estimate the mean log-density of rows.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge, complete or not.

        y : None
            Ignored.

        Returns
        -------
        log_density : float
            Mean of :meth:`score_samples`, in nats per row.
        """
        return float(self.score_samples(X).mean())
