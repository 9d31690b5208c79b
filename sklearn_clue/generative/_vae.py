"""Variational auto-encoder of tables and images, as a transformer."""

import math

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_array

from sklearn_clue._tables import index_of
from sklearn_clue._torch import DTYPE
from sklearn_clue._validation import (
    StrOptions,
    check_is_fitted,
    check_widths,
    fit_context,
    merge_repeated_rows,
    validate_data,
    with_callbacks,
)
from sklearn_clue.generative._base import COUNT, BaseGenerative
from sklearn_clue.generative._latent import (
    LatentModule,
    ModuleConfig,
    as_normal,
    draw_rows,
    kl_to_standard,
    standard_noise,
)
from sklearn_clue.generative._modules import (
    ConvDecoder,
    ConvEncoder,
    FeatureGroup,
    ResidualMLP,
    feature_groups,
)

# Latent units whose posterior mean varies less than this over the training rows carry
# nothing (Burda et al., 2016, Sec. 5.3).
ACTIVE_VARIANCE = 0.01

IMAGE_LATENT_DIM = 20

# Threads wait for each other after each convolution. For images this small the waiting
# costs more than they save, and where cores are shared it takes nearly all of the time.
SMALL_IMAGE = 16 * 16


class VAE(LatentModule):
    """Latent Gaussian model with a standard normal prior."""

    def __init__(self, config):
        super().__init__(config)
        n_encoded, latent_dim = config.n_encoded, config.latent_dim
        if config.image_shape is None:
            self.recognition = ResidualMLP((n_encoded, *config.widths, 2 * latent_dim))
            self.decoder = ResidualMLP((latent_dim, *config.widths[::-1], n_encoded))
        else:
            self.recognition = ConvEncoder(config.image_shape, 2 * latent_dim)
            self.decoder = ConvDecoder(latent_dim, config.image_shape)
            self.to(memory_format=torch.channels_last)

    def forward(self, x, noise):
        """Lower bound on the log-density of each row, in nats.

        Noise of shape (n_rows, latent_dim) gives the ELBO, noise of shape (n_rows,
        n_importance, latent_dim) the importance-weighted bound.
        """
        mean, std = self.posterior(x)
        if noise.ndim == 2:
            outputs = self.decoder(mean + std * noise)
            likelihood = self.likelihood.log_prob(outputs, x).sum(-1)
            return likelihood - self.kl_weight * kl_to_standard(mean, std)
        mean, std = mean.unsqueeze(1), std.unsqueeze(1)
        z = mean + std * noise
        outputs = self.decoder(z.flatten(0, 1)).unflatten(0, z.shape[:2])
        likelihood = self.likelihood.log_prob(outputs, x.unsqueeze(1)).sum(-1)
        # log p(z) - log q(z | x): the constants cancel.
        ratio = (0.5 * (noise.square() - z.square()) + std.log()).sum(-1)
        weights = likelihood + self.kl_weight * ratio
        return weights.logsumexp(1) - math.log(noise.shape[1])

    def prior(self):
        mean = self.blank(self.latent_dim)
        return mean, torch.ones_like(mean)

    def posterior(self, x, present=None):
        """Mean and standard deviation of q(z | x); rows must be complete."""
        return as_normal(self.recognition(x))

    def outputs(self, z):
        return self.decoder(z)


class VAEEncoder(ClassNamePrefixFeaturesOutMixin, BaseGenerative):
    """Learn a few latent numbers that rows can be rebuilt from.

    A variational auto-encoder: one network maps a row to a Gaussian over latents,
    another maps latents back to a row. It is at once a feature extractor
    (:meth:`transform`), a generator of rows like those it has seen (:meth:`sample`)
    and a density (:meth:`score_samples`).

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside, and everything that comes back has the user's columns and units. Missing
    values may be part of a row: that a number is missing is learned like a category,
    and nothing is learned of its value there.

    Parameters
    ----------
    latent_dim : int or "auto", default="auto"
        Number of latents. `"auto"` means 20 for images, and for tables 1.7 times the
        square root of the number of columns, at least 2.

    hidden_layer_sizes : array-like of int, or int, default=(300, 300, 300)
        Widths of the hidden layers of the encoding network; the decoding one has them
        in reverse. An empty sequence gives a linear model. Not used for images.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A transformer is cloned
        and fitted; wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator`. Not
        used for images.

    image_shape : tuple of int or None, default=None
        Shape of the images in the rows of X: (height, width), or (channels, height,
        width). The networks are residual convolutional bottleneck blocks then, six
        for 28 x 28 pixels and three for 8 x 8. Pixels are numbers between 0 and 1, or
        integers between 0 and 255.

    likelihood : {"auto", "gaussian", "bernoulli"}, default="auto"
        Distribution of numbers given the latents. `"auto"` means Gaussian for tables
        and Bernoulli for pixels. Bernoulli takes encoded numbers between 0 and 1.
        Categories always have a categorical distribution.

    noise_variance : float or "learned", default=0.5
        Variance of the Gaussians, in units of the standardised columns. One value for
        all weighs all columns alike, which explanations want. `"learned"` finds one
        per column, which gives better densities and samples.

    n_importance : int, default=1
        Latents drawn per row in each step of training. More than one raise the
        importance-weighted bound instead of the plain one (Burda et al., 2016), which
        makes better densities and samples, and longer steps.

    learning_rate : float, default=1e-3
        First step size of the RAdam optimiser. Early stopping lowers it.

    batch_size : int, default=128
        Most rows in a batch.

    max_iter : int or "auto", default="auto"
        Most epochs, passes over the training rows. `"auto"` means 500 for tables,
        and for images 20 or as many as it takes for 5000 batches.

    early_stopping : bool, default=True
        Whether to set rows aside, to stop when the bound on their log-likelihood no
        longer rises, and to keep the weights of the best epoch. If false, all epochs
        are run on all rows.

    validation_fraction : float, default=0.1
        Share of the distinct rows that is set aside.

    n_iter_no_change : int, default=10
        Epochs without a rise by `tol` after which training goes back to its best
        weights with a quarter of the learning rate; the third time it stops. It waits
        for 100 batches at least.

    tol : float, default=1e-3
        Smallest rise of the validation bound that counts, in nats per row.

    random_state : int, RandomState instance or None, default=None
        Fixes first weights, split, order of batches and noise.

    device : str or torch.device, default="cpu"
        Where to compute.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained networks, on tensors in encoded space: `encode`, `decode`,
        `log_prob` and `sample`.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"` and for images.

    schema_ : FeatureSchema or None
        What the encoded columns are. None for images.

    latent_dim_ : int
        Number of latents.

    active_units_ : ndarray of bool of shape (latent_dim,)
        Which latents are in use: their mean varies over the training rows. The others
        have fallen back to the prior, and a smaller `latent_dim` would do.

    history_ : list of dict
        Training and validation bound of each epoch, in nats per row of encoded space.
        The KL divergence gains its full weight over the first 300 batches, so the
        training figure is no bound before.

    n_iter_ : int
        Epochs run.

    best_iter_ : int
        Epoch whose weights were kept.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    VAEACImputer : Completes rows from any part of them.
    sklearn.decomposition.PCA : The linear way.
    sklearn.mixture.GaussianMixture : Densities of few numbers.

    Notes
    -----
    The Gaussian of the paper is said to have unit variance; its code has one of 1/2,
    which is the default here. The paper's recipe is `learning_rate=1e-4` (3e-4 for
    MNIST) with thousands of epochs.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Kingma, Welling, "Auto-Encoding Variational Bayes", ICLR 2014.

    Burda, Grosse, Salakhutdinov, "Importance Weighted Autoencoders", ICLR 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEEncoder
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1, 1, 200)
    >>> X = np.column_stack([t, t**2, -t]) + rng.normal(0, 0.05, (200, 3))
    >>> vae = VAEEncoder(2, (20,), max_iter=50, random_state=0).fit(X)
    >>> vae.transform(X).shape
    (200, 2)
    >>> on, off = vae.score_samples([[0.9, 0.8, -0.9], [0.9, -0.8, 0.9]])
    >>> bool(on > off)  # the second row contradicts what was seen
    True
    """

    _module_class = VAE
    _parameter_constraints: dict = {
        **BaseGenerative._parameter_constraints,
        "image_shape": ["array-like", None],  # its size is checked in fit
        "likelihood": [StrOptions({"auto", "gaussian", "bernoulli"})],
        "n_importance": [COUNT],
        "max_iter": [COUNT, StrOptions({"auto"})],
    }

    def __init__(
        self,
        latent_dim="auto",
        hidden_layer_sizes=(300, 300, 300),
        *,
        encoder=None,
        image_shape=None,
        likelihood="auto",
        noise_variance=0.5,
        n_importance=1,
        learning_rate=1e-3,
        batch_size=128,
        max_iter="auto",
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-3,
        random_state=None,
        device="cpu",
        verbose=0,
    ):
        self.latent_dim = latent_dim
        self.hidden_layer_sizes = hidden_layer_sizes
        self.encoder = encoder
        self.image_shape = image_shape
        self.likelihood = likelihood
        self.noise_variance = noise_variance
        self.n_importance = n_importance
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan &= self.image_shape is None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Train the networks on the rows of X.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows: numbers and categories as they are, or pixels.

        y : None
            Ignored.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: a weight of 2 equals the row twice.

        Returns
        -------
        self : object
            The fitted model.
        """
        widths = check_widths(self.hidden_layer_sizes)
        shape = self._image_shape = self._check_image_shape()
        X, weight = self._check_training_rows(X, sample_weight)
        if shape is None:
            self._fit_encoder(X, weight)
            x = self._encode(X)
            self.schema_ = self._learn_schema(X, x.shape[1])
            groups = self._tabular_groups(x)
        else:
            self.encoder_ = self.schema_ = None
            self._pixel_dtype = _pixel_dtype(X)
            x = self._encode(X)
            kind = "gaussian" if self.likelihood == "gaussian" else "bernoulli"
            groups = (FeatureGroup(kind, 0, x.shape[1]),)
        self.latent_dim_ = self._resolve_latent_dim(x.shape[1])
        config = ModuleConfig(
            groups=groups,
            latent_dim=self.latent_dim_,
            widths=widths,
            noise_variance=self.noise_variance,
            image_shape=shape,
        )
        weight, x = merge_repeated_rows(weight, x)
        self._train(
            config,
            {"x": x},
            weight,
            self._draw_noise,
            all_threads=shape is not None and math.prod(shape[-2:]) > SMALL_IMAGE,
        )
        means = self._latent_means(x)
        average = np.average(means, axis=0, weights=weight)
        variance = np.average((means - average) ** 2, axis=0, weights=weight)
        self.active_units_ = variance > ACTIVE_VARIANCE
        return self

    def transform(self, X):
        """Map rows to the means of their latents.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to map.

        Returns
        -------
        Z : ndarray of shape (n_samples, `latent_dim_`)
            Latent means; float32 if X is a float32 array, else float64.
        """
        X, x = self._read(X)
        is_float32 = getattr(X, "dtype", None) == np.float32
        means = self._latent_means(x)
        return means.astype(np.float32 if is_float32 else np.float64)

    def inverse_transform(self, X):
        """Map latents to the rows that they stand for.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, `latent_dim_`)
            Latents.

        Returns
        -------
        X_original : {ndarray, DataFrame} of shape (n_samples, n_features)
            Expected rows in the user's units; the most probable value of a category.
        """
        check_is_fitted(self, "module_")
        index = index_of(X)
        z = check_array(X, dtype=np.float64, input_name="X")
        if z.shape[1] != self.latent_dim_:
            raise ValueError(
                f"X has {z.shape[1]} columns, but there are {self.latent_dim_} "
                "latents. Pass rows as transform returns them."
            )
        x = self._by_rows(lambda module, z: module.decode(z), z)
        return self._decode_rows(x, index)

    def reconstruct(self, X):
        """Map rows to their latents and back.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to rebuild.

        Returns
        -------
        X_rebuilt : {ndarray, DataFrame} of shape (n_samples, n_features)
            The rows as the model sees them, in the user's units.
        """
        X, x = self._read(X)
        x = self._by_rows(lambda module, x: module.decode(module.posterior(x)[0]), x)
        return self._decode_rows(x, index_of(X))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the model.

        Latents are drawn from their prior and rows given the latents, noise included.
        Pixels come as their expected values.

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
        check_is_fitted(self, "module_")
        x = draw_rows(self.module_, n_samples, random_state, self.device)
        return self._decode_rows(x)

    @property
    def _n_features_out(self):
        return self.latent_dim_

    # Data -------------------------------------------------------------------------

    def _encode_inputs(self, X):
        return (self._encode(X),)

    def _encode(self, X):
        if self._image_shape is None:
            return super()._encode(X)
        return _scale_pixels(X)

    def _decode_rows(self, x, index=None):
        if self._image_shape is None:
            return super()._decode_rows(x, index)
        if self._pixel_dtype.kind in "iu":
            return np.rint(255 * x).astype(self._pixel_dtype)
        return x.astype(np.float64)

    def _check_rows(self, X, *, reset):
        if self._image_shape is None:
            return super()._check_rows(X, reset=reset)
        X = validate_data(self, X, reset=reset, dtype="numeric")
        n_pixels = math.prod(self._image_shape)
        if X.shape[1] != n_pixels:
            raise ValueError(
                f"X has {X.shape[1]} pixels per row, but an image of the shape "
                f"{self._image_shape} has {n_pixels}. Give the shape of one image as "
                "image_shape, and one image per row of X."
            )
        return X

    def _check_image_shape(self):
        """Channels, height and width of images; None for tables."""
        if self.image_shape is None:
            return None
        shape = tuple(np.atleast_1d(np.asarray(self.image_shape)).tolist())
        is_shape = len(shape) in (2, 3) and all(
            isinstance(size, int) and size > 0 for size in shape
        )
        if not is_shape or min(shape[-2:]) < 4:
            raise ValueError(
                "image_shape must be (height, width) or (channels, height, width) "
                f"with at least 4 pixels either way, got {self.image_shape!r}."
            )
        if not (self.encoder is None or isinstance(self.encoder, str)):
            raise ValueError(
                "Images are not encoded: with image_shape, encoder must be None or "
                f"'passthrough', got {self.encoder!r}."
            )
        return shape if len(shape) == 3 else (1, *shape)

    def _tabular_groups(self, x):
        if self.likelihood != "bernoulli":
            return feature_groups(self.schema_)
        numbers = x[:, self.schema_.numeric_index]
        if numbers.size and (numbers.min() < 0 or numbers.max() > 1):
            raise ValueError(
                "likelihood='bernoulli' takes encoded numbers between 0 and 1, got "
                f"{numbers.min():.3g} to {numbers.max():.3g}. Scale X to this range "
                "and set encoder='passthrough', or use likelihood='gaussian'."
            )
        return feature_groups(self.schema_, "bernoulli")

    def _auto_latent_dim(self):
        if self._image_shape is None:
            return super()._auto_latent_dim()
        return IMAGE_LATENT_DIM

    def _resolve_max_iter(self, n_batches):
        if self.max_iter != "auto":
            return self.max_iter
        if self._image_shape is None:
            return 500
        # Convolutions take long; few images need more epochs for as many steps.
        return min(max(20, math.ceil(5000 / n_batches)), 500)

    # Networks ---------------------------------------------------------------------

    def _inference_dtype(self):
        # There are no fast convolutions in double precision.
        return super()._inference_dtype() if self._image_shape is None else DTYPE

    def _draw_noise(self, inputs, generator):
        x = inputs["x"]
        draws = () if self.n_importance == 1 else (self.n_importance,)
        shape = (len(x), *draws, self.latent_dim_)
        return {"noise": standard_noise(shape, generator, x.device)}

    def _latent_means(self, x):
        return self._by_rows(lambda module, x: module.posterior(x)[0], x)


def _pixel_dtype(X):
    """The dtype that pixels come back in, after a look at what they seem to be."""
    dtype = np.asarray(X).dtype
    if dtype.kind in "iu" and X.max() == 1:
        raise ValueError(
            "X holds integers that are all 0 or 1, and integer pixels are read as "
            "grey values from 0 to 255. Pass black and white images as booleans or "
            "floats."
        )
    return dtype


def _scale_pixels(X):
    """Turn pixels into numbers between 0 and 1: integers are divided by 255."""
    X = np.asarray(X)
    low, high = X.min(), X.max()
    if X.dtype.kind in "iu":
        if low < 0 or high > 255:
            raise ValueError(
                f"Integer pixels must lie between 0 and 255, got {low} to {high}. "
                "Divide other scales by their largest value."
            )
        return (X / 255).astype(np.float32)
    if low < 0 or high > 1:
        raise ValueError(
            f"Pixels must lie between 0 and 1, got {low:.3g} to {high:.3g}. Divide X "
            "by its largest possible value, or pass integers between 0 and 255."
        )
    return X.astype(np.float32)
