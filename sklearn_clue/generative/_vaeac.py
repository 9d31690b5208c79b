"""Variational auto-encoder with arbitrary conditioning, as an imputer."""

from numbers import Integral

import numpy as np
import torch
from sklearn.base import OneToOneFeatureMixin, clone
from sklearn.utils import check_array, check_random_state, get_tags

from sklearn_clue import _tables
from sklearn_clue._columns import Strangers
from sklearn_clue._torch import even_points, make_generator, normal_noise
from sklearn_clue._validation import (
    StrOptions,
    _check_feature_names_in,
    check_count,
    check_is_fitted,
    check_widths,
    fit_context,
    merge_repeated_rows,
    with_callbacks,
)
from sklearn_clue.encoding import TabularEncoder, as_float32, unfrozen
from sklearn_clue.generative._base import COUNT, POSITIVE, BaseGenerative
from sklearn_clue.generative._latent import (
    LatentModule,
    ModuleConfig,
    as_normal,
    kl_normal,
    standard_noise,
)
from sklearn_clue.generative._modules import ResidualMLP, feature_groups

# Share of the rows that are hidden as a whole in training.
HIDDEN_SHARE = 0.2

# Share of the rows that are shown with additional gaps in training.
GAP_SHARE = 0.1

# Latents over which explainers average what they fill in. They are spread evenly, so
# few do.
N_FILLS = 8


class VAEAC(LatentModule):
    """Latent Gaussian model of some columns given any others (Ivanov et al., 2019).

    A prior network sees the observed values and which they are, a recognition network
    sees everything, and one decoder gives the rest of the row from the latents and
    what is observed. With nothing observed it is a VAE; with something, a
    ConditionalModel.

    Masks have one entry per encoded position, 1.0 or 0.0. Without a mask of what is
    observed, nothing is. Rows may say themselves that values are missing, or nothing of
    a category: such columns are never present, and what is filled in is a value.
    """

    def __init__(self, config):
        super().__init__(config)
        n_encoded, latent_dim = config.n_encoded, config.latent_dim
        widths = config.widths
        self.prior_network = ResidualMLP((2 * n_encoded, *widths, 2 * latent_dim))
        self.recognition = ResidualMLP((3 * n_encoded, *widths, 2 * latent_dim))
        self.decoder = ResidualMLP(
            (latent_dim + 2 * n_encoded, *widths[::-1], self.likelihood.n_outputs)
        )
        # Two networks with random outputs disagree wildly about the latents. With
        # zeros both say a standard normal, and the KL divergence starts at zero.
        for network in (self.prior_network, self.recognition):
            torch.nn.init.zeros_(network.output.weight)
            torch.nn.init.zeros_(network.output.bias)
        self._gaps = [group.stop - 1 for group in config.groups if group.has_gap]

    def forward(self, x, present, observed, noise):
        """Lower bound on log p(what is present but not observed | observed), in nats.

        What `x` holds where it is not present has no influence.
        """
        mean, std = self.posterior(x, present, observed)
        prior_mean, prior_std = self.prior(x, observed)
        outputs = self.outputs(mean + std * noise, x, observed)
        hidden = present - observed
        likelihood = (hidden * self.likelihood.log_prob(outputs, x)).sum(-1)
        return likelihood - kl_normal(mean, std, prior_mean, prior_std)

    def present(self, x):
        """Where encoded rows have values: ones, and zeros in columns without."""
        present = torch.ones_like(x)
        for kind, start, stop, has_gap in self.config.groups:
            if kind == "categorical":
                present[..., start:stop] *= x[..., start:stop].any(-1, keepdim=True)
            if has_gap:
                present[..., start:stop] *= x[..., stop - 1 : stop] == 0
        return present

    def prior(self, x=None, observed=None):
        """Mean and standard deviation of p(z | observed)."""
        if observed is None:
            x = observed = self.blank(self.config.n_encoded)
        return as_normal(self.prior_network(torch.cat([observed * x, observed], -1)))

    def posterior(self, x, present=None, observed=None):
        """Mean and standard deviation of q(z | everything present, observed)."""
        present = self.present(x) if present is None else present
        observed = torch.zeros_like(x) if observed is None else observed
        inputs = torch.cat([present * x, present, observed], -1)
        return as_normal(self.recognition(inputs))

    def outputs(self, z, x=None, observed=None):
        """Outputs of the decoder for latents and what is observed."""
        if observed is None:
            x = observed = z.new_zeros(len(z), self.config.n_encoded)
        return self.decoder(torch.cat([z, observed * x, observed], -1))

    def impute(self, x, observed, n_draws=N_FILLS):
        x = x.to(self.dtype)
        observed = observed.to(x) * self.present(x)
        outputs = self._output_draws(x, observed, n_draws)
        return self._filled(x, observed, self.likelihood.mean(outputs).mean(1))

    def _filled(self, x, observed, values):
        """Rows with values where nothing is observed, and never with a gap."""
        values[:, self._gaps] = 0
        return observed * x + (1 - observed) * values

    def moments(self, x, observed, n_draws):
        """Mean and variance of each column given what is observed.

        Returns
        -------
        moments : Tensor of shape (n_rows, 2, n_encoded)
            Variances are those of numbers: what the decoder leaves open, and how much
            its means differ between latents.
        """
        outputs = self._output_draws(x, observed, n_draws)
        expected = self.likelihood.mean(outputs)
        noise = self.likelihood.variance(outputs).expand_as(expected).mean(1)
        spread = expected.var(1, unbiased=False)
        return torch.stack([expected.mean(1), noise + spread], 1)

    def _output_draws(self, x, observed, n_draws):
        """Outputs of the decoder for latents drawn given what is observed."""
        mean, std = (part.unsqueeze(1) for part in self.prior(x, observed))
        z = mean + std * normal_noise(even_points(n_draws, self.latent_dim)).to(x)
        x_draws, observed_draws = (
            part.unsqueeze(1).expand(-1, n_draws, -1).flatten(0, 1)
            for part in (x, observed)
        )
        outputs = self.outputs(z.flatten(0, 1), x_draws, observed_draws)
        return outputs.unflatten(0, (len(x), n_draws))

    def complete(self, x, observed, generator):
        """Draw what is not observed."""
        mean, std = self.prior(x, observed)
        z = mean + std * standard_noise(mean.shape, generator, x.device)
        drawn = self.likelihood.sample(self.outputs(z, x, observed), generator)
        return self._filled(x, observed, drawn)


class VAEACImputer(BaseGenerative):
    """Fill in missing values by a deep generative model of all columns.

    A variational auto-encoder with arbitrary conditioning: it learns the distribution
    of every set of columns given every other, from rows that may themselves be
    incomplete. :meth:`transform` fills a gap by its expected value or its most likely
    category, :meth:`sample` draws plausible completions.

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside. Missing is what pandas calls so: NaN, None, NaT or `pandas.NA`.

    Parameters
    ----------
    latent_dim : int or "auto", default="auto"
        Number of latents. `"auto"` means 1.7 times the square root of the number of
        columns, at least 2.

    hidden_layer_sizes : array-like of int, or int, default=(200, 200)
        Widths of the hidden layers of each of the three networks. An empty sequence
        gives a linear model.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A scaler of scikit-learn
        will do for numbers, since it leaves missing values where they are. A fitted
        encoder is kept as it is if wrapped in
        :class:`~sklearn.frozen.FrozenEstimator`.

    noise_variance : float, "learned" or "predicted", default="learned"
        Variance of the numbers given latents and observed values, in units of the
        standardised columns. `"learned"` finds one per column, `"predicted"` one for
        each cell, for numbers that are noisier in some rows than in others.

    n_draws : int, default=50
        Latents over which :meth:`transform` averages. May be set after `fit`.

    add_indicator : bool, default=False
        Whether :meth:`transform` appends a column for each feature that had missing
        values in `fit`, telling where they are. May be set after `fit`.

    learning_rate : float, default=1e-3
        First step size of the RAdam optimiser. Early stopping lowers it.

    batch_size : int, default=128
        Most rows in a batch.

    max_iter : int, default=500
        Most epochs, passes over the training rows.

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
        Fixes first weights, split, order of batches, masks and noise.

    device : str or torch.device, default="cpu"
        Where to compute.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained networks, on tensors in encoded space: `impute`, `complete`,
        `encode`, `decode`, `log_prob` and `sample`.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"`.

    schema_ : FeatureSchema
        What the encoded columns are.

    latent_dim_ : int
        Number of latents.

    indicator_features_ : ndarray of int
        Positions of the features that had missing values in `fit`.

    history_ : list of dict
        Training and validation bound of each epoch, in nats per row of encoded space:
        of the cells that were hidden, given the others.

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
    VAEEncoder : Learns latents of complete rows.
    sklearn.impute.IterativeImputer : Regresses each column on the others, linearly
        by default; faster, and hard to beat where columns are linear in each other.
    sklearn.impute.KNNImputer : Averages similar rows.

    Notes
    -----
    Filled values are right on average and thus vary less than real ones. Use
    :meth:`sample` where the spread matters.

    Values are taken to be missing for reasons that the observed ones explain. If being
    missing itself says something about the value, no imputer can know.

    References
    ----------
    Ivanov, Figurnov, Vetrov, "Variational Autoencoder with Arbitrary Conditioning",
    ICLR 2019.

    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_clue import VAEACImputer
    >>> rng = np.random.default_rng(0)
    >>> hot = rng.random(300) < 0.5
    >>> X = pd.DataFrame({"degrees": np.where(hot, 30.0, 5.0) + rng.normal(0, 3, 300)})
    >>> X["season"] = np.where(hot, "summer", "winter")
    >>> imputer = VAEACImputer(2, (20,), learning_rate=1e-2, random_state=0).fit(X)
    >>> gaps = pd.DataFrame({"degrees": [28.0, np.nan], "season": [None, "winter"]})
    >>> imputer.transform(gaps).round()
       degrees  season
    0     28.0  summer
    1      5.0  winter
    """

    _module_class = VAEAC
    _parameter_constraints: dict = {
        **BaseGenerative._parameter_constraints,
        "n_draws": [COUNT],
        "add_indicator": ["boolean"],
        "noise_variance": [POSITIVE, StrOptions({"learned", "predicted"})],
    }

    def __init__(
        self,
        latent_dim="auto",
        hidden_layer_sizes=(200, 200),
        *,
        encoder=None,
        noise_variance="learned",
        n_draws=50,
        add_indicator=False,
        learning_rate=1e-3,
        batch_size=128,
        max_iter=500,
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
        self.noise_variance = noise_variance
        self.n_draws = n_draws
        self.add_indicator = add_indicator
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
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Train the networks on the rows of X.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows, complete or not.

        y : None
            Ignored.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: a weight of 2 equals the row twice.

        Returns
        -------
        self : object
            The fitted imputer.
        """
        widths = check_widths(self.hidden_layer_sizes)
        X, weight = self._check_training_rows(X, sample_weight)
        self._fit_encoder(X, weight)
        x, present = self._encode_inputs(X)
        self.schema_ = self._learn_schema(X, x.shape[1])
        self.indicator_features_ = np.flatnonzero(_tables.gaps(X).any(axis=0))
        self.latent_dim_ = self._resolve_latent_dim(x.shape[1])
        config = ModuleConfig(
            groups=feature_groups(self.schema_),
            latent_dim=self.latent_dim_,
            widths=widths,
            noise_variance=self.noise_variance,
        )
        weight, x, present = merge_repeated_rows(weight, x, present)
        self._train(config, {"x": x, "present": present}, weight, self._draw_masks())
        return self

    def conditional_model(self):
        """Give the fitted model as explainers fill in features with it.

        Returns
        -------
        model : ConditionalModel
            `impute` on tensors in encoded space, on the CPU.
        """
        return self.latent_model()  # one module does both

    def transform(self, X):
        """Fill in what is missing.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to complete.

        Returns
        -------
        X_filled : {ndarray, DataFrame} of shape (n_samples, n_features_out)
            The same table with nothing missing: expected values of numbers, and the
            most likely categories. Observed cells are untouched.
        """
        X, x, present = self._read(X)
        is_gap = _tables.gaps(X)
        if is_gap.any():
            filled = self._fill(X, self._expected(x, present), is_gap)
        else:
            filled = _tables.with_columns(X, {})  # a copy
        if not self.add_indicator:
            return filled
        names = self.get_feature_names_out()[len(self.schema_) :]
        indicators = is_gap[:, self.indicator_features_].T
        return _tables.append_columns(filled, dict(zip(names, indicators, strict=True)))

    def sample(self, X, n_samples=1, random_state=None):
        """Draw completions of rows.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows to complete.

        n_samples : int, default=1
            Number of completions.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        completions : list of {ndarray, DataFrame} of shape (n_rows, n_features)
            `n_samples` tables like X, with nothing missing. Columns that are missing
            together are drawn together.
        """
        check_count("n_samples", n_samples)
        X, x, present = self._read(X)
        is_gap = _tables.gaps(X)
        generator = make_generator(
            check_random_state(random_state).randint(2**31 - 1), self.device
        )
        completions = []
        for _ in range(n_samples):
            drawn = self._by_rows(
                lambda module, x, present: module.complete(x, present, generator),
                x,
                present,
            )
            completions.append(self._fill(X, drawn, is_gap))
        return completions

    def category_proba(self, X, feature):
        """Predict the probabilities of a category from the other columns.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows, complete or not. Their values of the feature are not looked at.

        feature : str or int
            Name of the feature, or its position.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_categories)
            In the order of `schema_.column(feature).categories`; then, if rare values
            were pooled, of all these together.
        """
        column, x, present = self._hide(X, feature)
        if column.kind != "category":
            raise ValueError(
                f"Column {column.name!r} is a number. Only categories have "
                "probabilities; ask number_moments, or draw numbers with sample."
            )
        return self._expected(x, present)[:, column.block]

    def number_moments(self, X, feature):
        """Predict mean and standard deviation of a number from the other columns.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows, complete or not. Their values of the feature are not looked at.

        feature : str or int
            Name of the feature, or its position.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,)
            Moments of the distribution that :meth:`sample` draws from, in the unit of
            the feature.
        """
        column, x, present = self._hide(X, feature)
        if column.kind != "number":
            raise ValueError(
                f"Column {column.name!r} is a category, which has no mean. Ask "
                "category_proba for its probabilities."
            )
        moments = self._by_rows(
            lambda module, x, present: module.moments(x, present, self.n_draws),
            x,
            present,
            n_copies=self.n_draws,
        )
        mean, variance = moments[:, :, column.span[0]].T
        return column.center + column.scale * mean, column.scale * np.sqrt(variance)

    def _hide(self, X, feature):
        """Find a column, and encode rows in which it is missing."""
        _, x, present = self._read(X)
        names = list(self.schema_.names)
        if feature in names:
            column = self.schema_.column(feature)
        elif isinstance(feature, Integral) and 0 <= feature < len(names):
            column = self.schema_.columns[feature]
        else:
            raise ValueError(
                f"feature={feature!r} is neither the name of a column nor a position. "
                f"The columns are: {', '.join(map(repr, names[:20]))}."
            )
        present = present.copy()
        present[:, column.block] = 0
        return column, x, present

    def get_feature_names_out(self, input_features=None):
        """Get the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; only needed to check them against those seen in
            `fit`, or to name the columns of a bare array.

        Returns
        -------
        feature_names_out : ndarray of str
            The names of the features, then `missingindicator_<name>` for each
            indicator.
        """
        check_is_fitted(self, "module_")
        names = _check_feature_names_in(self, input_features)
        if not self.add_indicator:
            return names
        indicators = [
            f"missingindicator_{name}" for name in names[self.indicator_features_]
        ]
        return np.concatenate([names, np.asarray(indicators, dtype=object)])

    # Data -------------------------------------------------------------------------

    def _fit_encoder(self, X, weight):
        if isinstance(self.encoder, str):  # "passthrough"
            self.encoder_ = None
            return
        encoder = TabularEncoder() if self.encoder is None else clone(self.encoder)
        if isinstance(encoder, TabularEncoder):
            # What is missing is not observed: there is no need of indicators.
            self.encoder_ = encoder._fit(X, weight, ignore_gaps=True)
            return
        inner = unfrozen(encoder)
        if isinstance(inner, TabularEncoder):
            check_is_fitted(inner, "schema_")
            self.encoder_ = inner
            return
        by_column = isinstance(inner, OneToOneFeatureMixin)
        if not (by_column and get_tags(inner).input_tags.allow_nan):
            raise ValueError(
                "encoder must leave missing values where they are, as TabularEncoder "
                f"and the scalers of scikit-learn do, got {encoder!r}. Use one of "
                "these, alone or in a FrozenEstimator, or 'passthrough'."
            )
        super()._fit_encoder(X, weight)

    def _encode_inputs(self, X):
        """Encode rows: values with zeros where they are missing, and where not."""
        if self.encoder_ is not None:
            X = _tables.named(X, getattr(self, "feature_names_in_", None))
        if isinstance(self.encoder_, TabularEncoder):
            strangers = Strangers()
            encoded = self.encoder_._encode(X, strangers, hide_gaps=True)
            strangers.tell()
        else:
            encoded = check_array(
                X if self.encoder_ is None else self.encoder_.transform(X),
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                input_name="X",
            )
        present = ~np.isnan(encoded)
        x = as_float32(np.where(present, encoded, 0))
        return x, present.astype(np.float32)

    def _fill(self, X, x, is_gap):
        """Put decoded values into the gaps of X, and leave the rest alone."""
        decoded = x if self.encoder_ is None else self.encoder_.inverse_transform(x)
        columns = zip(is_gap.T, _tables.arrays(decoded), _tables.arrays(X), strict=True)
        filled = {
            position: np.where(gaps, new, old)
            for position, (gaps, new, old) in enumerate(columns)
            if gaps.any()
        }
        return _tables.with_columns(X, filled)

    # Networks ---------------------------------------------------------------------

    def _expected(self, x, present):
        """Fill gaps of encoded rows by expectations and probabilities."""
        return self._by_rows(
            lambda module, x, present: module.impute(x, present, self.n_draws),
            x,
            present,
            n_copies=self.n_draws,
        )

    def _draw_masks(self):
        """Make the random inputs of training: what is observed, and noise."""
        n_features, latent_dim = len(self.schema_), self.latent_dim_
        # One mask entry per feature: a category is hidden as a whole.
        feature = torch.as_tensor(
            np.repeat(
                np.arange(n_features),
                [column.span[1] - column.span[0] for column in self.schema_],
            ),
            device=self.device,
        )

        def draw(inputs, generator):
            present = inputs["present"]
            size = {"generator": generator, "device": present.device}
            # A rate per row, uniform, makes all numbers of hidden features equally
            # frequent. A share of rows is hidden as a whole, for densities and samples
            # start from nothing.
            rate = torch.rand(len(present), 1, **size) / (1 - HIDDEN_SHARE)
            hidden = torch.rand(len(present), n_features, **size) < rate
            # Some rows also lose features for good, so that the recognition network
            # knows gaps even if the training rows have none.
            rate = 1 - torch.rand(len(present), 1, **size) / GAP_SHARE
            lost = torch.rand(len(present), n_features, **size) < rate
            present = present * ~lost[:, feature]
            return {
                "present": present,
                "observed": present * ~hidden[:, feature],
                "noise": torch.randn(len(present), latent_dim, **size),
            }

        return draw
