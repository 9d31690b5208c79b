"""Bayesian multilayer perceptrons with the manners of scikit-learn."""

import dataclasses
import math
import os
import warnings
from abc import abstractmethod
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import (
    Bunch,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
    gen_batches,
)
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

import sklearn_clue
from sklearn_clue._modules import mlp_outputs, unflatten
from sklearn_clue._parallel import run_parallel
from sklearn_clue._progress import EpochProgress
from sklearn_clue._torch import (
    as_tensor,
    check_device,
    pad_rows,
    row_blocks,
    to_numpy,
)
from sklearn_clue._validation import (
    CallbackSupportMixin,
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    _fit_context,
    _safe_indexing,
    check_count,
    check_is_fitted,
    check_labels,
    check_weights,
    check_widths,
    drop_weightless_rows,
    merge_repeated_rows,
    naming,
    with_callbacks,
)
from sklearn_clue.bayesian._chains import (
    MIN_ADAPTATION,
    ChainSettings,
    ChainStart,
    run_chains,
)
from sklearn_clue.bayesian._checkpoint import Checkpoint
from sklearn_clue.bayesian._diagnostics import effective_sample_size, split_r_hat
from sklearn_clue.encoding import EncoderOwner
from sklearn_clue.exceptions import ChainDivergedError
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import EnsembleProvider
from sklearn_clue.uncertainty import Uncertainty, entropy_parts, variance_parts

# Below this many multiplications per step a chain waits for Python, not for the
# processor, and several at once cost little more than one.
STACK_BELOW = 4_000_000

# Rows encoded at a time for prediction.
ROWS_PER_CHUNK = 8192

# What calls for a warning. R-hat is that of training rows, where chains agree a little
# better than on new ones; rejections are a share of all epochs, of which a healthy
# chain has one in hundreds.
MAX_R_HAT = 1.04
MAX_TEMPERATURE = 1.1
MAX_REJECTED = 0.1


class _BaseBayesianMLP(
    DocLinkMixin, EncoderOwner, CallbackSupportMixin, VersionedState, BaseEstimator
):
    """What the two estimators share: all but the target."""

    _parameter_constraints: dict = {
        "hidden_layer_sizes": [
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "encoder": [
            HasMethods(["fit", "transform"]),
            StrOptions({"passthrough"}),
            None,
        ],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "burn_in": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "thinning": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "friction": [Interval(Real, 0, 1, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "prior_shape": [Interval(Real, 0, None, closed="neither")],
        "prior_rate": [Interval(Real, 0, None, closed="neither")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "adaptation_fraction": [Interval(Real, 0, 1, closed="both")],
        "momentum_interval": [Interval(Integral, 1, None, closed="left"), None],
        "prior_interval": [Interval(Integral, 1, None, closed="left"), None],
        "warm_start": ["boolean"],
        "checkpoint_dir": [str, os.PathLike, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def __init__(
        self,
        hidden_layer_sizes,
        *,
        encoder,
        n_draws,
        burn_in,
        thinning,
        step_size,
        friction,
        batch_size,
        prior_shape,
        prior_rate,
        n_chains,
        adaptation_fraction,
        momentum_interval,
        prior_interval,
        warm_start,
        checkpoint_dir,
        random_state,
        device,
        n_jobs,
        verbose,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.encoder = encoder
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.step_size = step_size
        self.friction = friction
        self.batch_size = batch_size
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate
        self.n_chains = n_chains
        self.adaptation_fraction = adaptation_fraction
        self.momentum_interval = momentum_interval
        self.prior_interval = prior_interval
        self.warm_start = warm_start
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Sample networks from their posterior given the data.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows: numbers and categories as they are.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: a weight of 2 equals the row twice.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        go_on = self.warm_start and hasattr(self, "coefs_")
        return self._fit(X, y, sample_weight, go_on=go_on)

    def _fit(self, X, y, sample_weight, *, go_on, classes=None):
        widths = check_widths(self.hidden_layer_sizes)
        check_device(self.device)
        if self.checkpoint_dir is not None and self.random_state is None:
            raise ValueError(
                f"checkpoint_dir={str(self.checkpoint_dir)!r} needs a random_state, "
                "got None: chains that start at random cannot be found again. Set "
                "random_state to a number."
            )
        X = self._check_rows(X, reset=not go_on)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        with naming("y"):
            y = self._read_target(y, go_on=go_on, classes=classes)
            check_consistent_length(X, y)
        weight = check_weights(sample_weight, X)
        weight, X, y = drop_weightless_rows(weight, X, y)
        if not go_on:
            # An interrupt from here on must not leave old draws with a new encoder.
            vars(self).pop("coefs_", None)
            self._fit_encoder(X, weight)
        # The posterior sees no difference between a row of weight 2 and the row twice,
        # nor in the order of rows. After this, neither does the sampler.
        weight, x, y = merge_repeated_rows(weight, self._encode(X), y)
        y, weight = self._prepare_target(y, weight, go_on=go_on)
        layer_sizes = (x.shape[1], *widths, self._n_network_outputs())
        starts = self._starts(layer_sizes) if go_on else None

        n_chains = min(self.n_chains, self.n_draws)
        settings = self._chain_settings(layer_sizes, len(x), n_chains, go_on)
        tensors = (
            as_tensor(x, self.device),
            self._target_tensor(y),
            as_tensor(weight, self.device),
        )
        results = self._run(tensors, settings, n_chains, starts)
        self._keep(results, settings, n_chains)
        self._diagnose(results, settings, tensors[0])
        return self

    # Sampling ---------------------------------------------------------------------

    def _chain_settings(self, layer_sizes, n_rows, n_chains, go_on):
        n_batches = math.ceil(n_rows / self.batch_size)
        burn_in, thinning = self.burn_in, self.thinning
        # A chain needs iterations, and the fewer rows the fewer of them an epoch has.
        # On small data more epochs cost little.
        if burn_in == "auto":
            enough = min(math.ceil(480 / n_batches), 80)
            burn_in = max(40, math.ceil(300 / n_batches), enough)
        if thinning == "auto":
            thinning = max(min(3 + 5600 // n_rows, 4), math.ceil(12 / n_batches))
            thinning = 20 if n_batches == 1 else thinning
        n_adaptation = max(
            math.ceil(self.adaptation_fraction * burn_in * n_batches), MIN_ADAPTATION
        )
        if go_on:
            burn_in = n_adaptation = 0
        return ChainSettings(
            layer_sizes=layer_sizes,
            batch_size=self.batch_size,
            n_draws=math.ceil(self.n_draws / n_chains),
            burn_in=max(burn_in, math.ceil(n_adaptation / n_batches)),
            thinning=thinning,
            n_adaptation=n_adaptation,
            step_size=self.step_size,
            friction=self.friction,
            prior_shape=self.prior_shape,
            prior_rate=self.prior_rate,
            momentum_interval=self.momentum_interval,
            prior_interval=self.prior_interval,
            device=str(self.device),
        )

    def _run(self, tensors, settings, n_chains, starts):
        """Run the chains in groups, one after the other or in parallel."""
        shapes = zip(settings.layer_sizes[:-1], settings.layer_sizes[1:], strict=True)
        n_weights = sum((n_in + 1) * n_out for n_in, n_out in shapes)
        work = n_weights * min(self.batch_size, len(tensors[0]))
        # The grouping must not depend on n_jobs, nor must the draws.
        size = n_chains if work <= STACK_BELOW else 1
        groups = [
            range(first, min(first + size, n_chains))
            for first in range(0, n_chains, size)
        ]
        # Chains that go on need new noise: the same again would drive them the same way
        # once more, out of their posterior.
        self._n_runs = 1 if starts is None else self._n_runs + 1
        seeds = check_random_state(self.random_state).randint(
            2**31 - 1, size=(self._n_runs, len(groups))
        )[-1]
        nll = self._nll()
        context = self._init_callback_context(max_subtasks=len(groups))
        if context is not None:
            context.call_on_fit_task_begin(estimator=self)
        jobs = []
        for group, seed in zip(groups, seeds, strict=True):
            label = f"chain {group[0]}" + (f"-{group[-1]}" if len(group) > 1 else "")
            task = context and context.subcontext(
                task_name=label, max_subtasks=settings.n_epochs
            )
            progress = EpochProgress(
                settings.n_epochs,
                f"{type(self).__name__} {label}",
                verbose=int(self.verbose),
                context=task,
                estimator=self,
            )
            start = starts and ChainStart(*(part[list(group)] for part in starts))
            arguments = (tensors, nll, settings, len(group), seed)
            checkpoint = self._checkpoint(*arguments, start)
            jobs.append(
                (
                    arguments,
                    {"progress": progress, "start": start, "checkpoint": checkpoint},
                )
            )
        checkpoints = [k["checkpoint"] for _, k in jobs if k["checkpoint"]]
        try:
            results = self._run_jobs(jobs)
        except ChainDivergedError:
            # It would happen again, unlike an interrupt or a lack of memory.
            for checkpoint in checkpoints:
                checkpoint.remove()
            raise
        if all(result.is_complete for result in results):
            for checkpoint in checkpoints:
                checkpoint.remove()
        if context is not None:
            context.call_on_fit_task_end(estimator=self)
        return results

    def _run_jobs(self, jobs):
        if len(jobs) > 1 and effective_n_jobs(self.n_jobs) > 1:
            calls = [
                partial(run_chains, *arguments, **keywords)
                for arguments, keywords in jobs
            ]
            return run_parallel(calls, self.n_jobs)
        results = []
        for arguments, keywords in jobs:
            results.append(run_chains(*arguments, **keywords))
            if not results[-1].is_complete:
                break
        return results

    def _checkpoint(self, tensors, nll, settings, n_chains, seed, start):
        """Where to save a run, by all that its draws depend on."""
        if self.checkpoint_dir is None:
            return None
        run = [
            sklearn_clue.__version__,
            type(self).__name__,
            getattr(nll, "noise_floor", None),
            dataclasses.astuple(settings),
            n_chains,
            int(seed),
            *tensors,
            *(start or ()),
        ]
        return Checkpoint(self.checkpoint_dir, run)

    def _keep(self, results, settings, n_chains):
        """Turn the results of all groups into fitted attributes."""
        n_epochs = max(len(result.energy) for result in results)
        is_complete = all(result.is_complete for result in results)
        # A chain interrupted in its burn-in has nothing to say, and no kernel to go on.
        results[:] = [result for result in results if result.draws.size]
        if not results:
            raise KeyboardInterrupt(
                f"Interrupted after {n_epochs} of {settings.n_epochs} epochs, before "
                "the first draw."
            )
        chains = [draws for result in results for draws in result.draws]
        # n_draws in all, not per chain: some chains give one less.
        n_surplus = settings.n_draws * n_chains - self.n_draws
        chains = [
            draws[: settings.n_draws - (chain >= n_chains - n_surplus)]
            for chain, draws in enumerate(chains)
        ]
        draws = np.concatenate(chains)
        if not is_complete:
            alone = f", n_chains={len(chains)}" if len(chains) < n_chains else ""
            warnings.warn(
                f"Sampling stopped early, after {len(draws)} of {self.n_draws} draws. "
                f"The estimator is usable, and warm_start=True{alone} goes on from "
                "here.",
                ConvergenceWarning,
                stacklevel=6,
            )
        shapes = list(
            zip(settings.layer_sizes[:-1], settings.layer_sizes[1:], strict=True)
        )
        coefs, intercepts = unflatten(torch.as_tensor(draws), shapes)
        self.coefs_ = [to_numpy(coef) for coef in coefs]
        self.intercepts_ = [to_numpy(intercept) for intercept in intercepts]
        self.chain_state_ = ChainStart(
            *(
                np.concatenate(parts)
                for parts in zip(*(r.end for r in results), strict=True)
            )
        )
        self.n_draws_per_chain_ = [len(chain) for chain in chains]
        self.n_iter_ = n_epochs

    def _starts(self, layer_sizes):
        """Where the chains of an earlier fit stopped."""
        known = (
            *(coef.shape[1] for coef in self.coefs_),
            self.coefs_[-1].shape[2],
        )
        n_chains = len(self.chain_state_.position)
        if layer_sizes != known or min(self.n_chains, self.n_draws) != n_chains:
            raise ValueError(
                f"Cannot go on sampling {n_chains} chain(s) of networks with the layer "
                f"sizes {known} as {self.n_chains} of {layer_sizes}. Leave "
                "hidden_layer_sizes and n_chains as they were, or set "
                "warm_start=False to start anew."
            )
        return self.chain_state_

    # Diagnostics ------------------------------------------------------------------

    def _diagnose(self, results, settings, x):
        """Fill `diagnostics_`, and warn if the chains disagree."""
        # Any rows would do, and a few hundred are enough to tell.
        rows = torch.linspace(0, len(x) - 1, min(len(x), 256)).long()
        outputs = self._outputs([to_numpy(x[rows])], self._monitored, axis=1)
        n_draws = min(self.n_draws_per_chain_)
        ends = np.cumsum(self.n_draws_per_chain_)
        chains = np.stack(
            [
                outputs[end - n : end][:n_draws]
                for end, n in zip(ends, self.n_draws_per_chain_, strict=True)
            ]
        )
        r_hat, ess = split_r_hat(chains), effective_sample_size(chains)
        self.diagnostics_ = Bunch(
            r_hat=r_hat,
            effective_sample_size=ess,
            temperature=np.concatenate(
                [result.temperature[settings.burn_in :].mean(0) for result in results]
            ),
            n_rejected_epochs=np.concatenate([r.n_rejected for r in results]),
            energy=[e for result in results for e in result.energy.T],
        )
        for problem in self._problems(settings, n_draws):
            warnings.warn(problem, ConvergenceWarning, stacklevel=6)

    def _problems(self, settings, n_draws):
        """Say what is wrong with the chains, and what to change."""
        found = self.diagnostics_
        hottest = found.temperature.max()
        # The mean over n weights of a χ² with one degree of freedom strays that far.
        n_weights = self.chain_state_.position.shape[1]
        if hottest > MAX_TEMPERATURE + 5 * math.sqrt(2 / n_weights):
            yield (
                f"A chain ran hot: its kinetic temperature is {hottest:.3f} and should "
                f"be 1, so its draws spread too far. Lower step_size (now "
                f"{self.step_size})."
            )
        n_rejected = found.n_rejected_epochs.max()
        if n_rejected > MAX_REJECTED * self.n_iter_:
            yield (
                f"A chain was thrown out and taken back in {n_rejected} of "
                f"{self.n_iter_} epochs, and may not move at all. Lower step_size (now "
                f"{self.step_size}), or raise the noise_floor of a regressor whose "
                "target has next to no noise."
            )
        # Of a few draws R-hat says nothing.
        r_hat = found.r_hat[~np.isnan(found.r_hat) & (n_draws >= 10)]
        if r_hat.size and np.median(r_hat) > MAX_R_HAT:
            thinning, burn_in = (
                getattr(settings if getattr(self, name) == "auto" else self, name)
                for name in ("thinning", "burn_in")
            )
            yield (
                "The chains disagree: R-hat of the predictive mean is "
                f"{np.median(r_hat):.3f} at the median training row, and should be at "
                f"most {MAX_R_HAT}. Raise thinning (now {thinning}) so that "
                f"they run longer, or burn_in (now {burn_in}) if they have not "
                "arrived yet; see diagnostics_."
            )

    # Prediction -------------------------------------------------------------------

    def uncertainty_provider(self):
        """View the posterior as a differentiable function of encoded rows.

        Returns
        -------
        provider : UncertaintyProvider
            Takes tensors in the space of `encoder_`. The unit of regression is that
            of the standardised target.
        """
        check_is_fitted(self, "coefs_")
        return self._provider(*self._weights())

    def _weights(self):
        """Coefficients and intercepts as tensors."""
        return (
            [as_tensor(coef, self.device) for coef in self.coefs_],
            [as_tensor(intercept, self.device) for intercept in self.intercepts_],
        )

    def _read_rows(self, X):
        """Check rows to predict, and encode them chunk by chunk as asked for."""
        check_is_fitted(self, "coefs_")
        X = self._check_rows(X, reset=False)
        return (
            self._encode(_safe_indexing(X, rows))
            for rows in gen_batches(len(X), ROWS_PER_CHUNK)
        )

    def _outputs(self, chunks, reduce, axis=0):
        """Run encoded rows through all draws, in blocks that bound the memory.

        Parameters
        ----------
        chunks : iterable of ndarray of shape (n_samples, n_encoded)
            Encoded rows.

        reduce : callable
            Turns outputs of shape (n_draws, n_rows, n_out) into a tensor with the rows
            on `axis`.

        axis : int, default=0
            Axis of the rows.

        Returns
        -------
        values : ndarray
            The reduced blocks put together.
        """
        coefs, intercepts = self._weights()
        n_draws, _, n_out = coefs[-1].shape
        # Reductions work in float64 and hold two or three copies of the outputs.
        n_bytes = 32 * n_draws * n_out + 12 * max(c.shape[2] for c in coefs)
        answers = []
        for x in chunks:
            blocks = []
            for rows in row_blocks(len(x), n_bytes):
                block = as_tensor(x[rows], self.device)
                outputs = mlp_outputs(pad_rows(block), coefs, intercepts)
                # Padding comes off last: incomplete tiles round differently here, too.
                reduced = reduce(outputs.double()).narrow(axis, 0, len(block))
                blocks.append(to_numpy(reduced))
            # Many small arrays that stay would keep the memory between them in use.
            answers.append(np.concatenate(blocks, axis=axis))
        return np.concatenate(answers, axis=axis)


class BayesianMLPClassifier(ClassifierMixin, _BaseBayesianMLP):
    """Classify by a posterior over neural networks, and know what is not known.

    Instead of one network, `n_draws` of them are sampled from the posterior given the
    data, by scale-adapted stochastic gradient Hamiltonian Monte Carlo. Where the data
    leave open which network is right the draws disagree, and the classifier says so.

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, or int, default=(200, 200)
        Widths of the hidden layers. Between hidden layers of equal width there are
        residual connections. An empty sequence gives a linear model.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A transformer is cloned
        and fitted; wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator`.

    n_draws : int, default=100
        Number of networks kept, over all chains.

    burn_in : int or "auto", default="auto"
        Epochs that each chain runs before its first draw. `"auto"` means 40, and more
        the fewer distinct rows there are, up to 300. An epoch is as many batches as it
        takes to see every row once on average; an iteration is one batch.

    thinning : int or "auto", default="auto"
        Epochs from one draw of a chain to the next. `"auto"` means 3, and more
        the fewer distinct rows there are, up to 20 if they fit in one batch.

    step_size : float, default=0.01
        Step of the sampler in its adapted scale, ε. Lower it if chains diverge.

    friction : float, default=0.05
        Share of the velocity that a step loses.

    batch_size : int, default=512
        Most rows in a batch.

    prior_shape : float, default=10.0
        Shape of the Gamma hyperprior on the precision λ of each layer's weights and
        biases, which have the prior Normal(0, 2 / (λ n_inputs)).

    prior_rate : float, default=10.0
        Rate of that hyperprior.

    n_chains : int, default=2
        Number of independent chains. More than one shows whether they agree.

    adaptation_fraction : float, default=0.3
        Share of the burn-in in which mass and gradient noise are estimated, at least
        120 iterations; they are frozen after.

    momentum_interval : int or None, default=100
        Iterations after which velocities are drawn anew. None leaves that to the
        friction.

    prior_interval : int or None, default=50
        Iterations after which the precisions of the layers are drawn anew. None
        leaves them at one.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. `"balanced"` gives every class the same total.

    warm_start : bool, default=False
        Whether `fit` goes on with the chains of the last `fit`, from where they
        stopped and without burn-in, instead of starting anew. The draws are replaced.

    checkpoint_dir : str, path or None, default=None
        A folder to save running chains in, every few seconds. A `fit` with the same
        data and parameters, in a new process after the first one was killed, goes on
        from there, and its draws are those of an undisturbed run to the last bit. With
        any other data, parameters or version of the package the chains start anew; the
        folder may be shared. Needs a `random_state`. A `fit` that runs to its end, or
        diverges, removes what it has saved.

    random_state : int, RandomState instance or None, default=None
        Fixes first weights, order of batches and noise. The draws do not depend on
        `n_jobs`.

    device : str or torch.device, default="cpu"
        Where to compute. Fitted attributes are numpy arrays anyway.

    n_jobs : int or None, default=None
        Chains to run in parallel. Small networks run all chains together in one
        process, which is faster.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.

    coefs_ : list of ndarray of shape (n_draws, n_inputs, n_outputs)
        Weights of each layer in all draws, chain after chain.

    intercepts_ : list of ndarray of shape (n_draws, n_outputs)
        Biases of each layer in all draws.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"`.

    diagnostics_ : Bunch
        Whether the chains can be trusted. `r_hat` (split R-hat) and
        `effective_sample_size` of the predicted probabilities of up to 256 training
        rows; `temperature`, the mean kinetic temperature per chain, which is 1 unless
        gradient noise or too large a step heats the chain; `n_rejected_epochs`, the
        excursions taken back per chain; `energy`, the negative log-likelihood of the
        training data per chain and epoch, in nats.

    chain_state_ : tuple of ndarray
        Where the chains stopped, for `warm_start`.

    n_draws_per_chain_ : list of int
        Number of draws from each chain.

    n_iter_ : int
        Epochs run by each chain in the last `fit`.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    BayesianMLPRegressor : The same for numbers.
    TabularEncoder : What rows go through first.

    Notes
    -----
    The recipe of the paper for tabular data is one chain with `burn_in=400,
    thinning=20, n_chains=1`, of which 120 epochs adapt. The defaults need a quarter of
    its work or less.

    Rows that occur more than once are merged and weighted, which gives the same
    posterior for less work.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Springenberg, Klein, Falkner, Hutter, "Bayesian Optimization with Robust Bayesian
    Neural Networks", NeurIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import BayesianMLPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-1, 1, (50, 1)), rng.normal(1, 1, (50, 1))])
    >>> y = np.repeat(["left", "right"], 50)
    >>> clf = BayesianMLPClassifier(20, n_draws=40, random_state=0).fit(X, y)
    >>> clf.predict([[-2.0], [2.0]])
    array(['left', 'right'], dtype='<U5')
    >>> between, clear = clf.predict_uncertainty([[0.0], [2.5]]).total
    >>> bool(between > clear)
    True
    """

    _parameter_constraints: dict = {
        **_BaseBayesianMLP._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        hidden_layer_sizes=(200, 200),
        *,
        encoder=None,
        n_draws=100,
        burn_in="auto",
        thinning="auto",
        step_size=0.01,
        friction=0.05,
        batch_size=512,
        prior_shape=10.0,
        prior_rate=10.0,
        n_chains=2,
        adaptation_fraction=0.3,
        momentum_interval=100,
        prior_interval=50,
        class_weight=None,
        warm_start=False,
        checkpoint_dir=None,
        random_state=None,
        device="cpu",
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(
            hidden_layer_sizes,
            encoder=encoder,
            n_draws=n_draws,
            burn_in=burn_in,
            thinning=thinning,
            step_size=step_size,
            friction=friction,
            batch_size=batch_size,
            prior_shape=prior_shape,
            prior_rate=prior_rate,
            n_chains=n_chains,
            adaptation_fraction=adaptation_fraction,
            momentum_interval=momentum_interval,
            prior_interval=prior_interval,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            random_state=random_state,
            device=device,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Go on sampling from where the chains stopped, with these rows as the data.

        The first call is a `fit`. Each further one runs `n_draws` draws on without a
        new burn-in, and they replace the earlier ones. Rows of earlier calls are not
        remembered: pass all rows that the posterior should know of.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Class labels.

        classes : array-like of shape (n_classes,), default=None
            All labels that may ever occur, for the first call. None means those in y.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        go_on = hasattr(self, "coefs_")
        return self._fit(X, y, sample_weight, go_on=go_on, classes=classes)

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        proba = self.predict_proba(X)  # first, so an unfitted call fails clearly
        return self.classes_[proba.argmax(axis=1)]

    def predict_proba(self, X):
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities in the order of `classes_`.
        """
        return self._outputs(
            self._read_rows(X), lambda outputs: outputs.softmax(-1).mean(0)
        )

    def predict_uncertainty(self, X):
        """Tell how unsure the predictions are, and why.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        parts : Uncertainty
            Entropies in nats, each of shape (n_samples,): `total` is the sum of
            `aleatoric` (classes overlap here) and `epistemic` (the draws disagree).
        """
        parts = self._outputs(
            self._read_rows(X),
            lambda outputs: torch.stack(entropy_parts(outputs.softmax(-1))),
            axis=1,
        )
        return Uncertainty(*parts)

    def _provider(self, coefs, intercepts):
        return EnsembleProvider(
            _Members(coefs, intercepts, _softmax), is_classification=True
        )

    def posterior_predictive(self, X):
        """Predict class probabilities by each draw from the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        proba : ndarray of shape (n_draws, n_samples, n_classes)
            Probabilities in the order of `classes_`.
        """
        return self._outputs(
            self._read_rows(X), lambda outputs: outputs.softmax(-1), axis=1
        )

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw classes from the posterior predictive distribution.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows to classify.

        n_samples : int, default=1
            Draws per row.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        y : ndarray of shape (n_rows, n_samples)
            Class labels.
        """
        check_count("n_samples", n_samples)
        # Averaging before drawing or after is the same for a categorical.
        cumulative = self.predict_proba(X).cumsum(axis=1)
        rng = check_random_state(random_state)
        points = rng.uniform(size=(len(cumulative), n_samples, 1))
        codes = (points > cumulative[:, None, :-1]).sum(axis=2)
        return self.classes_[codes]

    def _read_target(self, y, *, go_on, classes=None):
        y = column_or_1d(y, warn=True)
        check_labels(y)
        check_classification_targets(y)
        if not go_on:
            self.classes_ = np.unique(y if classes is None else classes)
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strangers = np.unique(y[self.classes_[codes] != y])
        if len(strangers):
            raise ValueError(
                f"y holds the classes {strangers.tolist()}, but only "
                f"{self.classes_.tolist()} are known. Name all of them in the first "
                "call of partial_fit, or fit anew."
            )
        return codes

    def _prepare_target(self, codes, weight, *, go_on):
        codes = codes[:, 0].astype(np.int64)
        n_classes = len(self.classes_)
        totals = np.bincount(codes, weights=weight, minlength=n_classes)
        if np.count_nonzero(totals) < 2 and not go_on:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes to tell apart, got "
                f"1 class with a positive weight: {self.classes_[totals.argmax()]!r}. "
                "Check how y was built or split."
            )
        if self.class_weight == "balanced":
            # Of the weighted counts, so that a weight of 2 equals the row twice here.
            n_present = np.count_nonzero(totals)
            factors = totals.sum() / (n_present * np.where(totals, totals, 1))
        else:
            factors = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_[codes]
            )
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise ValueError(
                "class_weight must give each class a finite number that is at least "
                f"0, got {self.class_weight!r}."
            )
        return codes, weight * factors[codes]

    def _n_network_outputs(self):
        return len(self.classes_)

    def _target_tensor(self, codes):
        return torch.as_tensor(codes, device=self.device)

    def _nll(self):
        return _cross_entropy

    def _monitored(self, outputs):
        return outputs.softmax(-1)[..., 1:]


class BayesianMLPRegressor(RegressorMixin, _BaseBayesianMLP):
    """Predict numbers with their noise, by a posterior over neural networks.

    Instead of one network, `n_draws` of them are sampled from the posterior given the
    data, by scale-adapted stochastic gradient Hamiltonian Monte Carlo. Where the data
    leave open which network is right the draws disagree, and the regressor says so.
    Each network predicts a Gaussian whose noise differs from row to row.

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside. So is the target; predictions are in its own unit.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, or int, default=(200, 200)
        Widths of the hidden layers. Between hidden layers of equal width there are
        residual connections. An empty sequence gives a linear model.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A transformer is cloned
        and fitted; wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator`.

    n_draws : int, default=100
        Number of networks kept, over all chains.

    burn_in : int or "auto", default="auto"
        Epochs that each chain runs before its first draw. `"auto"` means 40, and more
        the fewer distinct rows there are, up to 300. An epoch is as many batches as it
        takes to see every row once on average; an iteration is one batch.

    thinning : int or "auto", default="auto"
        Epochs from one draw of a chain to the next. `"auto"` means 3, and more
        the fewer distinct rows there are, up to 20 if they fit in one batch.

    step_size : float, default=0.01
        Step of the sampler in its adapted scale, ε. Lower it if chains diverge.

    friction : float, default=0.05
        Share of the velocity that a step loses.

    batch_size : int, default=512
        Most rows in a batch.

    prior_shape : float, default=10.0
        Shape of the Gamma hyperprior on the precision λ of each layer's weights and
        biases, which have the prior Normal(0, 2 / (λ n_inputs)).

    prior_rate : float, default=10.0
        Rate of that hyperprior.

    n_chains : int, default=2
        Number of independent chains. More than one shows whether they agree.

    adaptation_fraction : float, default=0.3
        Share of the burn-in in which mass and gradient noise are estimated, at least
        120 iterations; they are frozen after.

    momentum_interval : int or None, default=100
        Iterations after which velocities are drawn anew. None leaves that to the
        friction.

    prior_interval : int or None, default=50
        Iterations after which the precisions of the layers are drawn anew. None
        leaves them at one.

    noise_floor : float, default=0.01
        Smallest standard deviation of the noise that a network may predict, in
        standard deviations of the target.

    warm_start : bool, default=False
        Whether `fit` goes on with the chains of the last `fit`, from where they
        stopped and without burn-in, instead of starting anew. The draws are replaced.

    checkpoint_dir : str, path or None, default=None
        A folder to save running chains in, every few seconds. A `fit` with the same
        data and parameters, in a new process after the first one was killed, goes on
        from there, and its draws are those of an undisturbed run to the last bit. With
        any other data, parameters or version of the package the chains start anew; the
        folder may be shared. Needs a `random_state`. A `fit` that runs to its end, or
        diverges, removes what it has saved.

    random_state : int, RandomState instance or None, default=None
        Fixes first weights, order of batches and noise. The draws do not depend on
        `n_jobs`.

    device : str or torch.device, default="cpu"
        Where to compute. Fitted attributes are numpy arrays anyway.

    n_jobs : int or None, default=None
        Chains to run in parallel. Small networks run all chains together in one
        process, which is faster.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    coefs_ : list of ndarray of shape (n_draws, n_inputs, n_outputs)
        Weights of each layer in all draws, chain after chain.

    intercepts_ : list of ndarray of shape (n_draws, n_outputs)
        Biases of each layer in all draws.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"`.

    diagnostics_ : Bunch
        Whether the chains can be trusted. `r_hat` (split R-hat) and
        `effective_sample_size` of the predicted mean of up to 256 training rows;
        `temperature`, the mean kinetic temperature per chain, which is 1 unless
        gradient noise or too large a step heats the chain; `n_rejected_epochs`, the
        excursions taken back per chain; `energy`, the negative log-likelihood of the
        training data per chain and epoch, in nats (of the standardised target).

    chain_state_ : tuple of ndarray
        Where the chains stopped, for `warm_start`.

    n_draws_per_chain_ : list of int
        Number of draws from each chain.

    n_iter_ : int
        Epochs run by each chain in the last `fit`.

    target_mean_ : ndarray of shape (n_outputs,)
        Mean of the target, taken off inside.

    target_scale_ : ndarray of shape (n_outputs,)
        Standard deviation of the target, by which it is divided inside.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    BayesianMLPClassifier : The same for classes.
    TabularEncoder : What rows go through first.

    Notes
    -----
    The recipe of the paper for tabular data is one chain with `burn_in=400,
    thinning=20, n_chains=1`, of which 120 epochs adapt. The defaults need a quarter of
    its work or less.

    Rows that occur more than once are merged and weighted, which gives the same
    posterior for less work.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Springenberg, Klein, Falkner, Hutter, "Bayesian Optimization with Robust Bayesian
    Neural Networks", NeurIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import BayesianMLPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-1, 1, 100).reshape(-1, 1)
    >>> y = 100 * X[:, 0] ** 2 + rng.normal(0, 5, 100)
    >>> reg = BayesianMLPRegressor(20, n_draws=40, random_state=0).fit(X, y)
    >>> inside, outside = reg.predict_uncertainty([[0.5], [3.0]]).epistemic
    >>> bool(outside > inside)  # there were no data
    True
    """

    _parameter_constraints: dict = {
        **_BaseBayesianMLP._parameter_constraints,
        "noise_floor": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        hidden_layer_sizes=(200, 200),
        *,
        encoder=None,
        n_draws=100,
        burn_in="auto",
        thinning="auto",
        step_size=0.01,
        friction=0.05,
        batch_size=512,
        prior_shape=10.0,
        prior_rate=10.0,
        n_chains=2,
        adaptation_fraction=0.3,
        momentum_interval=100,
        prior_interval=50,
        noise_floor=0.01,
        warm_start=False,
        checkpoint_dir=None,
        random_state=None,
        device="cpu",
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(
            hidden_layer_sizes,
            encoder=encoder,
            n_draws=n_draws,
            burn_in=burn_in,
            thinning=thinning,
            step_size=step_size,
            friction=friction,
            batch_size=batch_size,
            prior_shape=prior_shape,
            prior_rate=prior_rate,
            n_chains=n_chains,
            adaptation_fraction=adaptation_fraction,
            momentum_interval=momentum_interval,
            prior_interval=prior_interval,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            random_state=random_state,
            device=device,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.noise_floor = noise_floor

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, sample_weight=None):
        """Go on sampling from where the chains stopped, with these rows as the data.

        The first call is a `fit`. Each further one runs `n_draws` draws on without a
        new burn-in, and they replace the earlier ones. Rows of earlier calls are not
        remembered: pass all rows that the posterior should know of.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit(X, y, sample_weight, go_on=hasattr(self, "coefs_"))

    def predict(self, X, return_std=False):
        """Predict the mean of the target, and on request its spread.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        return_std : bool, default=False
            Whether to return the standard deviation of the predictive distribution as
            well: noise and ignorance together.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Mean of the predictive distribution.

        y_std : ndarray of the shape of `y_mean`
            Its standard deviation. Only returned if `return_std` is true.
        """
        x = self._read_rows(X)
        if not return_std:
            return self._in_units(
                self._outputs(x, lambda o: self._moments(o)[0].mean(0))
            )
        mean, std = self._outputs(
            x,
            lambda outputs: torch.stack(
                [
                    self._moments(outputs)[0].mean(0),
                    variance_parts(*self._moments(outputs)).total,
                ]
            ),
            axis=1,
        )
        return self._in_units(mean), self._in_units(std, is_spread=True)

    def predict_interval(self, X, coverage=0.9):
        """Predict central intervals that hold the target with a given probability.

        The bounds are quantiles of the mixture of all draws, not of a Gaussian with
        its moments.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        coverage : float, default=0.9
            Probability of the interval, between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper bounds.
        """
        if not 0 < coverage < 1:
            raise ValueError(
                f"coverage must be between 0 and 1, both excluded, got {coverage!r}."
            )
        levels = (0.5 - coverage / 2, 0.5 + coverage / 2)
        bounds = self._outputs(
            self._read_rows(X),
            lambda outputs: torch.stack(
                [_mixture_quantile(*self._moments(outputs), level) for level in levels]
            ),
            axis=1,
        )
        return np.stack([self._in_units(bound) for bound in bounds], axis=-1)

    def predict_uncertainty(self, X):
        """Tell how unsure the predictions are, and why.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        parts : Uncertainty
            Standard deviations in the unit of the target, each of the shape of
            `predict(X)`. The square of `total` is the sum of the squares of
            `aleatoric` (noise) and `epistemic` (the draws disagree).
        """
        parts = self._outputs(
            self._read_rows(X),
            lambda outputs: torch.stack(variance_parts(*self._moments(outputs))),
            axis=1,
        )
        return Uncertainty(*(self._in_units(part, is_spread=True) for part in parts))

    def posterior_predictive(self, X):
        """Predict mean and noise by each draw from the posterior.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        moments : ndarray of shape (n_draws, n_samples, 2) or \
                (n_draws, n_samples, n_outputs, 2)
            Mean and standard deviation of the Gaussian that each draw predicts, in the
            unit of the target.
        """
        mean, std = np.moveaxis(
            self._outputs(
                self._read_rows(X),
                lambda outputs: torch.stack(self._moments(outputs), -1),
                axis=1,
            ),
            -1,
            0,
        )
        return np.stack(
            [self._in_units(mean), self._in_units(std, is_spread=True)], axis=-1
        )

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw targets from the posterior predictive distribution.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_rows, n_features)
            Rows to predict.

        n_samples : int, default=1
            Draws per row.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        y : ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            Draws in the unit of the target.
        """
        check_count("n_samples", n_samples)
        x = self._read_rows(X)
        rng = check_random_state(random_state)

        def draw(outputs):
            mean, std = self._moments(outputs)
            n_draws, n_rows, n_outputs = mean.shape
            # One network speaks for all outputs of a row, so they stay correlated.
            who = torch.as_tensor(rng.randint(n_draws, size=(n_samples, n_rows)))
            row = torch.arange(n_rows)
            noise = torch.as_tensor(rng.standard_normal((n_samples, n_rows, n_outputs)))
            sample = mean[who, row] + std[who, row] * noise.to(mean.device)
            return sample.movedim(0, -1)

        drawn = np.moveaxis(self._outputs(x, draw), -1, 0)
        return np.moveaxis(self._in_units(drawn), 0, -1)

    def _read_target(self, y, *, go_on, classes=None):
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
                f"y has {n_outputs} output(s), but the chains were started with "
                f"{len(self.target_mean_)}. Pass the same outputs, or fit anew."
            )
        self._is_single = y.ndim == 1
        return y

    def _prepare_target(self, y, weight, *, go_on):
        if go_on:
            return (y - self.target_mean_) / self.target_scale_, weight
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

    def _n_network_outputs(self):
        return 2 * len(self.target_mean_)

    def _target_tensor(self, y):
        return as_tensor(y, self.device)

    def _nll(self):
        return _GaussianNLL(self.noise_floor)

    def _moments(self, outputs):
        """Mean and standard deviation of the standardised target."""
        return _gaussian_moments(outputs, self.noise_floor)

    def _monitored(self, outputs):
        return self._moments(outputs)[0]

    def _provider(self, coefs, intercepts):
        return EnsembleProvider(
            _Members(coefs, intercepts, _Moments(self.noise_floor)),
            is_classification=False,
            center=self.target_mean_,
            scale=self.target_scale_,
        )

    def _in_units(self, values, *, is_spread=False):
        """Undo the standardisation of the target, whose outputs are the last axis."""
        values = values * self.target_scale_
        if not is_spread:
            values = values + self.target_mean_
        return values[..., 0] if self._is_single else values


class _Members:
    """What all draws say of encoded rows, differentiably."""

    def __init__(self, coefs, intercepts, read):
        self.coefs = coefs
        self.intercepts = intercepts
        self.read = read

    def __call__(self, x):
        x = x.to(self.coefs[0].dtype)
        # Whole tiles, and reductions in double precision: as in prediction.
        outputs = mlp_outputs(pad_rows(x), self.coefs, self.intercepts).double()
        return self.read(outputs[:, : len(x)])


def _softmax(outputs):
    return outputs.softmax(-1)


class _Moments:
    def __init__(self, noise_floor):
        self.noise_floor = noise_floor

    def __call__(self, outputs):
        return _gaussian_moments(outputs, self.noise_floor)


def _cross_entropy(outputs, codes):
    loss = torch.nn.functional.cross_entropy(
        outputs.flatten(0, 1), codes.flatten(), reduction="none"
    )
    return loss.view(codes.shape)


def _gaussian_moments(outputs, noise_floor):
    mean, raw = outputs.chunk(2, dim=-1)
    return mean, torch.nn.functional.softplus(raw) + noise_floor


class _GaussianNLL:
    """Negative log-likelihood of a Gaussian whose noise the network predicts."""

    def __init__(self, noise_floor):
        self.noise_floor = noise_floor

    def __call__(self, outputs, y):
        mean, std = _gaussian_moments(outputs, self.noise_floor)
        constant = 0.5 * math.log(2 * math.pi)
        return (std.log() + 0.5 * ((y - mean) / std) ** 2 + constant).sum(-1)


def _mixture_quantile(mean, std, level):
    """Quantile of an equal mixture of Gaussians along the first axis, by bisection."""
    component = mean + std * torch.special.ndtri(mean.new_tensor(level))
    # Below the lowest quantile of a component all of them have less mass than the
    # level, above the highest all have more.
    low, high = component.amin(0), component.amax(0)
    for _ in range(50):
        middle = (low + high) / 2
        is_below = torch.special.ndtr((middle - mean) / std).mean(0) < level
        low, high = (
            torch.where(is_below, middle, low),
            torch.where(is_below, high, middle),
        )
    return (low + high) / 2
