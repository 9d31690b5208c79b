"""Bayesian multilayer perceptrons with the manners of scikit-learn."""

import dataclasses
import math
import os
import warnings
from abc import abstractmethod
from functools import partial
from itertools import pairwise
from numbers import Integral, Real

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import (
    Bunch,
    check_random_state,
)

import sklearn_clue
from sklearn_clue._modules import unflatten
from sklearn_clue._parallel import run_parallel
from sklearn_clue._progress import EpochProgress
from sklearn_clue._torch import (
    to_numpy,
)
from sklearn_clue._validation import (
    HasMethods,
    Interval,
    StrOptions,
)
from sklearn_clue.bayesian._chains import (
    MIN_ADAPTATION,
    ChainSettings,
    ChainState,
    run_chains,
)
from sklearn_clue.bayesian._checkpoint import Checkpoint
from sklearn_clue.bayesian._diagnostics import effective_sample_size, split_r_hat
from sklearn_clue.bayesian._posterior import (
    NetworkPosterior,
    PosteriorClassifier,
    PosteriorRegressor,
)
from sklearn_clue.exceptions import ChainDivergedError

# Below this many multiplications per step a chain waits for Python, not for the
# processor, and several at once cost little more than one.
STACK_BELOW = 4_000_000

# Networks with fewer weights are narrow. Their steps cost next to nothing, so their
# chains are long and see all rows at once where these fit into a batch. Wide ones never
# do: see `_chain_settings`.
NARROW_BELOW = 5_000

# What calls for a warning. R-hat is that of training rows, where chains agree a little
# better than on new ones; with wide networks values up to it were false alarms.
# Effective and distinct draws are shares of all draws, rejections one of all epochs.
MAX_R_HAT = 1.1
MIN_EFFECTIVE = 0.1
MIN_DISTINCT = 0.8
MAX_TEMPERATURE = 1.1
MAX_REJECTED = 0.1


class _BaseBayesianMLP(NetworkPosterior):
    """Stochastic gradient Hamiltonian Monte Carlo, whatever the target."""

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
        "temperature": [Interval(Real, 0, None, closed="neither")],
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
        temperature,
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
        self.temperature = temperature
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

    def _check_settings(self):
        if self.checkpoint_dir is not None and self.random_state is None:
            raise ValueError(
                f"checkpoint_dir={str(self.checkpoint_dir)!r} needs a random_state, "
                "got None: chains that start at random cannot be found again. Set "
                "random_state to a number."
            )

    # Sampling ---------------------------------------------------------------------

    def _sample(self, tensors, layer_sizes, go_on):
        starts = self._starts(layer_sizes) if go_on else None
        n_chains = min(self.n_chains, self.n_draws)
        settings = self._chain_settings(layer_sizes, len(tensors[0]), n_chains, go_on)
        # A weight scales the likelihood of its row, and so does a temperature.
        x, y, weight = tensors
        tensors = x, y, weight / self.temperature
        results = self._run(tensors, settings, n_chains, starts)
        self._keep(results, settings, n_chains)
        self._diagnose(results, settings, tensors[0])
        return self.coefs_, self.intercepts_

    def _chain_settings(self, layer_sizes, n_rows, n_chains, go_on):
        is_narrow = _count_weights(layer_sizes) < NARROW_BELOW
        # Gradients of a single batch are exact, and say nothing about how much rows
        # disagree. Where a few rows of tiny predicted noise pull hard, the step of a
        # wide network is then that of calm places, and its chain is thrown out. In
        # several batches the disagreement is gradient noise, and the thermostat slows
        # such weights.
        n_batches = max(
            math.ceil(n_rows / self.batch_size), 1 if is_narrow else min(n_rows, 3)
        )
        burn_in, thinning = self.burn_in, self.thinning
        # A chain needs iterations, and the fewer rows the fewer of them an epoch has.
        if burn_in == "auto":
            n_steps = 1000 if is_narrow else 240
            enough = min(math.ceil(480 / n_batches), 80)
            burn_in = max(40, math.ceil(n_steps / n_batches), enough)
        if thinning == "auto":
            n_steps = 60 if is_narrow else 15 if n_rows <= self.batch_size else 9
            least = 3 if n_batches <= 3 else min(3 + 5600 // n_rows, 4)
            thinning = max(least, math.ceil(n_steps / n_batches))
        n_adaptation = max(
            math.ceil(self.adaptation_fraction * burn_in * n_batches), MIN_ADAPTATION
        )
        if go_on:
            burn_in = n_adaptation = 0
        # What limits the step is its energy error where gradients are exact. Else it is
        # their noise, which the energy error on one batch does not show. Short chains
        # of wide networks gain more by a longer step than they lose.
        if is_narrow:
            max_growth = 10.0 if n_batches == 1 else 1.0
        else:
            max_growth = 2.0 if n_batches <= 3 else 1.0
        return ChainSettings(
            layer_sizes=layer_sizes,
            batch_size=math.ceil(n_rows / n_batches),
            n_draws=math.ceil(self.n_draws / n_chains),
            burn_in=max(burn_in, math.ceil(n_adaptation / n_batches)),
            thinning=thinning,
            n_adaptation=n_adaptation,
            step_size=self.step_size,
            friction=self.friction,
            prior_shape=self.prior_shape,
            prior_rate=self.prior_rate,
            prior_scale=self._prior_scale,
            max_growth=max_growth,
            momentum_interval=self.momentum_interval,
            prior_interval=self.prior_interval,
            device=str(self.device),
        )

    def _run(self, tensors, settings, n_chains, starts):
        """Run the chains in groups, one after the other or in parallel."""
        work = _count_weights(settings.layer_sizes) * settings.batch_size
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
            start = starts and ChainState(*(part[list(group)] for part in starts))
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
                stacklevel=7,
            )
        shapes = list(
            zip(settings.layer_sizes[:-1], settings.layer_sizes[1:], strict=True)
        )
        coefs, intercepts = unflatten(torch.as_tensor(draws), shapes)
        self.coefs_ = [to_numpy(coef) for coef in coefs]
        self.intercepts_ = [to_numpy(intercept) for intercept in intercepts]
        self.chain_state_ = ChainState(
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
        n_chains = len(self.chain_state_.weights)
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
            step_size=self.chain_state_.step_size[:, 0],
            n_distinct=np.array([len(np.unique(chain, axis=0)) for chain in chains]),
            n_rejected_epochs=np.concatenate([r.n_rejected for r in results]),
            energy=[e for result in results for e in result.energy.T],
        )
        for problem in self._problems(settings, n_draws):
            warnings.warn(problem, ConvergenceWarning, stacklevel=7)

    def _problems(self, settings, n_draws):
        """Say what is wrong with the chains, and what to change."""
        found = self.diagnostics_
        hottest = found.temperature.max()
        # The mean over n weights of a χ² with one degree of freedom strays that far.
        n_weights = self.chain_state_.weights.shape[1]
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
                f"{self.n_iter_} epochs. Lower step_size (now {self.step_size}), or "
                "raise the noise_floor of a regressor whose target has next to no "
                "noise."
            )
        if n_draws < 10:  # of a few draws the rest says nothing
            return
        thinning, burn_in = (
            getattr(settings if getattr(self, name) == "auto" else self, name)
            for name in ("thinning", "burn_in")
        )
        n_distinct = found.n_distinct.min()
        if n_distinct < MIN_DISTINCT * n_draws:
            yield (
                f"A chain stood still: {n_distinct} of its {n_draws} draws differ. "
                f"Lower step_size (now {self.step_size}), or raise thinning (now "
                f"{thinning})."
            )
        if np.isnan(found.r_hat).all():  # where y is constant, nothing may move
            return
        r_hat = np.nanmedian(found.r_hat)
        n_effective = np.nanmedian(found.effective_sample_size)
        n_all = n_draws * len(found.n_distinct)
        if r_hat > MAX_R_HAT or n_effective < MIN_EFFECTIVE * n_all:
            yield (
                "The chains are too short: at the median training row, R-hat of the "
                f"predictive mean is {r_hat:.3f} (should be at most {MAX_R_HAT}), and "
                f"{n_all} draws are worth {n_effective:.0f} independent ones (should "
                f"be at least {MIN_EFFECTIVE * n_all:.0f}). Raise thinning (now "
                f"{thinning}) so that they run longer, or burn_in (now {burn_in}) if "
                "they have not arrived yet; see diagnostics_."
            )


def _count_weights(layer_sizes):
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(layer_sizes))


class BayesianMLPClassifier(_BaseBayesianMLP, PosteriorClassifier):
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
        Epochs that each chain runs before its first draw. `"auto"` means 40, or as many
        as it takes for 240 iterations, and for 1000 of a network with fewer than 5000
        weights. An epoch is as many batches as it takes to see every row once on
        average; an iteration is one batch.

    thinning : int or "auto", default="auto"
        Epochs from one draw of a chain to the next. `"auto"` means 3, or as many as it
        takes for 9 iterations, for 15 if the rows would fit into one batch, and for
        60 of a network with fewer than 5000 weights.

    step_size : float, default=0.01
        Step of the sampler in its adapted scale, ε, to begin with. It is adapted while
        the mass is: lowered where the energy error of steps is large, else raised. It
        becomes at most twice as large where there are no more than three batches, and
        ten times where all rows are one and gradients are exact. Excursions lower it
        at any time.
        `diagnostics_.step_size` has what it became.

    friction : float, default=0.05
        Share of the velocity that a step loses.

    batch_size : int, default=512
        Most rows in a batch. Networks with 5000 weights or more get at least three
        batches, because their chains are unstable where gradients are exact.

    prior_shape : float, default=10.0
        Shape of the Gamma hyperprior on the precision λ of each layer's weights and
        biases, which have the prior Normal(0, 8 / (λ n_inputs)).

    prior_rate : float, default=10.0
        Rate of that hyperprior.

    temperature : float, default=1.0
        Temperature of the likelihood, whose logarithm is divided by it. Below 1 the
        posterior is cold: as if every row had been seen several times. Worth a try
        where labels hold no noise, such as those of clear pictures.

    n_chains : int, default=2
        Number of independent chains. More than one shows whether they agree.

    adaptation_fraction : float, default=0.8
        Share of the burn-in in which mass, gradient noise and step size are learned, at
        least 120 iterations; they are frozen after.

    momentum_interval : int or None, default=100
        Iterations after which velocities are drawn anew. None leaves that to the
        friction.

    prior_interval : int or None, default=50
        Iterations after which the precisions of the layers are drawn anew given the
        weights; in between they move together with them. None leaves them at one.

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
        gradient noise or too large a step heats the chain; `step_size`, what
        the step became per chain; `n_distinct`, how many draws of a chain differ;
        `n_rejected_epochs`, the excursions taken back per chain; `energy`, the negative
        log-likelihood of the training data per chain and epoch, in nats.

    chain_state_ : tuple of ndarray
        Where the chains stopped, for `warm_start`.

    n_draws_per_chain_ : list of int
        Number of draws from each chain.

    n_iter_ : int
        Epochs run by each chain in the last `fit`.

    calibration_ : Bunch
        What `calibrate` has learned, once it was called: the `temperature`, above 1 if
        the networks were too sure.

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
    thinning=20, n_chains=1, adaptation_fraction=0.3`, so that 120 epochs adapt. The
    defaults need a quarter of its work or less.

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

    # Standard deviations of weights in units of He's: probabilities of networks at his
    # scale are too cautious where classes are clearly apart.
    _prior_scale = 2.0

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
        temperature=1.0,
        n_chains=2,
        adaptation_fraction=0.8,
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
            temperature=temperature,
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


class BayesianMLPRegressor(_BaseBayesianMLP, PosteriorRegressor):
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
        Epochs that each chain runs before its first draw. `"auto"` means 40, or as many
        as it takes for 240 iterations, and for 1000 of a network with fewer than 5000
        weights. An epoch is as many batches as it takes to see every row once on
        average; an iteration is one batch.

    thinning : int or "auto", default="auto"
        Epochs from one draw of a chain to the next. `"auto"` means 3, or as many as it
        takes for 9 iterations, for 15 if the rows would fit into one batch, and for
        60 of a network with fewer than 5000 weights.

    step_size : float, default=0.01
        Step of the sampler in its adapted scale, ε, to begin with. It is adapted while
        the mass is: lowered where the energy error of steps is large, else raised. It
        becomes at most twice as large where there are no more than three batches, and
        ten times where all rows are one and gradients are exact. Excursions lower it
        at any time.
        `diagnostics_.step_size` has what it became.

    friction : float, default=0.05
        Share of the velocity that a step loses.

    batch_size : int, default=512
        Most rows in a batch. Networks with 5000 weights or more get at least three
        batches, because their chains are unstable where gradients are exact.

    prior_shape : float, default=10.0
        Shape of the Gamma hyperprior on the precision λ of each layer's weights and
        biases, which have the prior Normal(0, 2 / (λ n_inputs)).

    prior_rate : float, default=10.0
        Rate of that hyperprior.

    temperature : float, default=1.0
        Temperature of the likelihood, whose logarithm is divided by it. Below 1 the
        posterior is cold: as if every row had been seen several times. Worth a try
        where labels hold no noise, such as those of clear pictures.

    n_chains : int, default=2
        Number of independent chains. More than one shows whether they agree.

    adaptation_fraction : float, default=0.8
        Share of the burn-in in which mass, gradient noise and step size are learned, at
        least 120 iterations; they are frozen after.

    momentum_interval : int or None, default=100
        Iterations after which velocities are drawn anew. None leaves that to the
        friction.

    prior_interval : int or None, default=50
        Iterations after which the precisions of the layers are drawn anew given the
        weights; in between they move together with them. None leaves them at one.

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
        gradient noise or too large a step heats the chain; `step_size`, what
        the step became per chain; `n_distinct`, how many draws of a chain differ;
        `n_rejected_epochs`, the excursions taken back per chain; `energy`, the negative
        log-likelihood of the training data per chain and epoch, in nats
        (of the standardised target).

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

    calibration_ : Bunch
        What `calibrate` has learned, once it was called: `scale`, the factor on the
        spread of each output, and `scores`, how far out in its distribution each
        held-out target lay, as absolute normal scores.

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
    thinning=20, n_chains=1, adaptation_fraction=0.3`, so that 120 epochs adapt. The
    defaults need a quarter of its work or less.

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

    _prior_scale = 1.0

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
        temperature=1.0,
        n_chains=2,
        adaptation_fraction=0.8,
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
            temperature=temperature,
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
