"""Deep ensembles: networks from different starts, each trained to its best."""

import math
import warnings
from abc import abstractmethod
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sklearn_clue._modules import MLPStack, unflatten
from sklearn_clue._parallel import run_parallel
from sklearn_clue._progress import EpochProgress
from sklearn_clue._torch import load_optimizers, make_generator, one_thread, to_numpy
from sklearn_clue._validation import HasMethods, Interval, StrOptions
from sklearn_clue.bayesian._posterior import (
    NetworkPosterior,
    PosteriorClassifier,
    PosteriorRegressor,
)

# A member stops when its loss has not fallen for so many epochs, and for so many
# batches: with few rows an epoch is a single one.
EPOCHS_NO_CHANGE = 10
BATCHES_NO_CHANGE = 100
# By less than this it has not fallen, in nats per row.
TOL = 1e-4
# One row in so many is held out for early stopping.
HOLD_OUT_EVERY = 10


class _BaseDeepEnsemble(NetworkPosterior):
    """Training of several networks, whatever the target."""

    _parameter_constraints: dict = {
        "hidden_layer_sizes": [
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "encoder": [
            HasMethods(["fit", "transform"]),
            StrOptions({"passthrough"}),
            None,
        ],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def __init__(
        self,
        hidden_layer_sizes,
        *,
        n_members,
        encoder,
        learning_rate,
        alpha,
        max_iter,
        early_stopping,
        batch_size,
        random_state,
        n_jobs,
        verbose,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_members = n_members
        self.encoder = encoder
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _sample(self, tensors, layer_sizes, go_on):
        settings = TrainingSettings(
            layer_sizes,
            self.learning_rate,
            self.alpha,
            self.max_iter,
            self.early_stopping,
            self.batch_size,
        )
        seeds = check_random_state(self.random_state).randint(
            2**31 - 1, size=self.n_members
        )
        context = self._init_callback_context(max_subtasks=self.n_members)
        if context is not None:
            context.call_on_fit_task_begin(estimator=self)
        calls = []
        for member, seed in enumerate(seeds):
            progress = EpochProgress(
                self.max_iter,
                f"{type(self).__name__} member {member}",
                verbose=int(self.verbose),
                context=context
                and context.subcontext(
                    task_name=f"member {member}", max_subtasks=self.max_iter
                ),
                estimator=self,
            )
            calls.append(
                partial(train_member, tensors, self._nll(), settings, seed, progress)
            )
        members = self._run(calls)
        if context is not None:
            context.call_on_fit_task_end(estimator=self)
        self.n_iter_ = np.array([member.n_epochs for member in members])
        self._warn(members)
        weights = torch.stack([member.weights for member in members])
        shapes = list(zip(layer_sizes[:-1], layer_sizes[1:], strict=True))
        return tuple(list(map(to_numpy, part)) for part in unflatten(weights, shapes))

    def _run(self, calls):
        if effective_n_jobs(self.n_jobs) > 1:
            return run_parallel(calls, self.n_jobs)
        members = []
        for call in calls:
            try:
                members.append(call())
            except KeyboardInterrupt:  # in the first epoch of this one
                if not members:
                    raise
                break
            if members[-1].is_stopped:
                break
        return members

    def _warn(self, members):
        if len(members) < self.n_members or any(m.is_stopped for m in members):
            warnings.warn(
                f"Training stopped early, in member {len(members)} of "
                f"{self.n_members}. The estimator is usable with what was trained "
                "so far.",
                ConvergenceWarning,
                stacklevel=7,
            )
        n_cut = sum(not (m.is_converged or m.is_stopped) for m in members)
        if n_cut:
            warnings.warn(
                f"{n_cut} of {len(members)} members still improved in the last of "
                f"max_iter={self.max_iter} epochs. Raise max_iter or learning_rate "
                f"(now {self.learning_rate}).",
                ConvergenceWarning,
                stacklevel=7,
            )


class DeepEnsembleClassifier(_BaseDeepEnsemble, PosteriorClassifier):
    """Classify by several networks, and be unsure where they disagree.

    The networks have the shape of those of
    :class:`~sklearn_clue.BayesianMLPClassifier`. Each starts from random weights and is
    trained by Adam with early stopping. They agree where the data decide, and often
    disagree elsewhere. It takes less time than sampling and knows less of what it does
    not know, above all far from the data.

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, or int, default=(200, 200)
        Widths of the hidden layers. Between hidden layers of equal width there are
        residual connections. An empty sequence gives a linear model.

    n_members : int, default=5
        Number of networks.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A transformer is cloned
        and fitted; wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator`.

    learning_rate : float, default=0.001
        Step size of Adam.

    alpha : float, default=0.0001
        Strength of the L2 penalty on weights and biases. As in scikit-learn's MLPs,
        it is divided by the number of rows.

    max_iter : int, default=1000
        Most epochs that a member is trained for.

    early_stopping : bool, default=True
        Whether each member holds out a tenth of the rows, another tenth each, and
        stops when its likelihood there no longer rises. Otherwise, and with fewer than
        ten rows, that of its training rows decides.

    batch_size : int, default=64
        Most rows in a batch.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. `"balanced"` gives every class the same total.

    random_state : int, RandomState instance or None, default=None
        Fixes first weights, rows held out and order of batches. The networks do not
        depend on `n_jobs`.

    n_jobs : int or None, default=None
        Members to train in parallel.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.

    coefs_ : list of ndarray of shape (n_members, n_inputs, n_outputs)
        Weights of each layer in all members.

    intercepts_ : list of ndarray of shape (n_members, n_outputs)
        Biases of each layer in all members.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"`.

    n_iter_ : ndarray of shape (n_members,)
        Epochs that each member was trained for.

    calibration_ : Bunch
        What `calibrate` has learned, once it was called: the `temperature`, above 1 if
        the networks were too sure.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    DeepEnsembleRegressor : The same for numbers.
    BayesianMLPClassifier : Samples networks from their posterior.

    Notes
    -----
    Members differ in their first weights, the rows that they hold out and the order of
    their batches. Rows that occur more than once are merged and weighted.

    References
    ----------
    Lakshminarayanan, Pritzel, Blundell, "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import DeepEnsembleClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-1, 1, (50, 1)), rng.normal(1, 1, (50, 1))])
    >>> y = np.repeat(["left", "right"], 50)
    >>> clf = DeepEnsembleClassifier(20, learning_rate=0.01, random_state=0).fit(X, y)
    >>> clf.predict([[-2.0], [2.0]])
    array(['left', 'right'], dtype='<U5')
    >>> between, clear = clf.predict_uncertainty([[0.0], [2.5]]).total
    >>> bool(between > clear)
    True
    """

    _parameter_constraints: dict = {
        **_BaseDeepEnsemble._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        hidden_layer_sizes=(200, 200),
        *,
        n_members=5,
        encoder=None,
        learning_rate=1e-3,
        alpha=1e-4,
        max_iter=1000,
        early_stopping=True,
        batch_size=64,
        class_weight=None,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(
            hidden_layer_sizes,
            n_members=n_members,
            encoder=encoder,
            learning_rate=learning_rate,
            alpha=alpha,
            max_iter=max_iter,
            early_stopping=early_stopping,
            batch_size=batch_size,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight


class DeepEnsembleRegressor(_BaseDeepEnsemble, PosteriorRegressor):
    """Predict numbers with their noise by several networks, unsure where they disagree.

    The networks have the shape of those of
    :class:`~sklearn_clue.BayesianMLPRegressor`: each predicts a Gaussian whose noise
    differs from row to row. Each starts from random weights and is trained by Adam with
    early stopping. They agree where the data decide, and often disagree elsewhere. It
    takes less time than sampling and knows less of what it does not know, above all far
    from the data.

    Raw DataFrames are welcome: numbers are standardised and categories encoded
    inside. So is the target; predictions are in its own unit.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, or int, default=(200, 200)
        Widths of the hidden layers. Between hidden layers of equal width there are
        residual connections. An empty sequence gives a linear model.

    n_members : int, default=5
        Number of networks.

    encoder : transformer, "passthrough" or None, default=None
        How rows become numbers. None means :class:`~sklearn_clue.TabularEncoder`,
        `"passthrough"` that X is numeric and scaled already. A transformer is cloned
        and fitted; wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator`.

    learning_rate : float, default=0.001
        Step size of Adam.

    alpha : float, default=0.0001
        Strength of the L2 penalty on weights and biases. As in scikit-learn's MLPs,
        it is divided by the number of rows.

    max_iter : int, default=1000
        Most epochs that a member is trained for.

    early_stopping : bool, default=True
        Whether each member holds out a tenth of the rows, another tenth each, and
        stops when its likelihood there no longer rises. Otherwise, and with fewer than
        ten rows, that of its training rows decides.

    batch_size : int, default=64
        Most rows in a batch.

    noise_floor : float, default=0.01
        Smallest standard deviation of the noise that a network may predict, in
        standard deviations of the target.

    random_state : int, RandomState instance or None, default=None
        Fixes first weights, rows held out and order of batches. The networks do not
        depend on `n_jobs`.

    n_jobs : int or None, default=None
        Members to train in parallel.

    verbose : int, default=0
        0 is silent, 1 draws a progress bar, 2 prints a line per epoch.

    Attributes
    ----------
    coefs_ : list of ndarray of shape (n_members, n_inputs, n_outputs)
        Weights of each layer in all members.

    intercepts_ : list of ndarray of shape (n_members, n_outputs)
        Biases of each layer in all members.

    encoder_ : transformer or None
        The fitted encoder. None for `"passthrough"`.

    n_iter_ : ndarray of shape (n_members,)
        Epochs that each member was trained for.

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
    DeepEnsembleClassifier : The same for classes.
    BayesianMLPRegressor : Samples networks from their posterior.

    Notes
    -----
    Members differ in their first weights, the rows that they hold out and the order of
    their batches. Rows that occur more than once are merged and weighted.

    References
    ----------
    Lakshminarayanan, Pritzel, Blundell, "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import DeepEnsembleRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-1, 1, 100).reshape(-1, 1)
    >>> y = 100 * X[:, 0] ** 2 + rng.normal(0, 5, 100)
    >>> reg = DeepEnsembleRegressor(20, learning_rate=0.01, random_state=0).fit(X, y)
    >>> low, high = reg.predict_interval([[0.0]], coverage=0.9)[0]
    >>> bool(low < 0 < high)
    True
    """

    _parameter_constraints: dict = {
        **_BaseDeepEnsemble._parameter_constraints,
        "noise_floor": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        hidden_layer_sizes=(200, 200),
        *,
        n_members=5,
        encoder=None,
        learning_rate=1e-3,
        alpha=1e-4,
        max_iter=1000,
        early_stopping=True,
        batch_size=64,
        noise_floor=0.01,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(
            hidden_layer_sizes,
            n_members=n_members,
            encoder=encoder,
            learning_rate=learning_rate,
            alpha=alpha,
            max_iter=max_iter,
            early_stopping=early_stopping,
            batch_size=batch_size,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.noise_floor = noise_floor


class TrainingSettings(NamedTuple):
    """How to train a member; see `DeepEnsembleClassifier` for the meaning."""

    layer_sizes: tuple
    learning_rate: float
    alpha: float
    max_iter: int
    early_stopping: bool
    batch_size: int


class Member(NamedTuple):
    """A trained network, and how its training ended."""

    weights: torch.Tensor  # (n_weights,)
    n_epochs: int
    is_converged: bool
    is_stopped: bool  # by Ctrl-C or a callback


def train_member(tensors, nll, settings, seed, progress):
    """Train one network by Adam, and keep its best epoch.

    Parameters
    ----------
    tensors : tuple of Tensor
        Inputs, targets and weights of the rows.

    nll : callable
        `nll(outputs, y)` gives the negative log-likelihood of each row, from outputs
        of shape (1, n_rows, n_out) to (1, n_rows).

    settings : TrainingSettings
        How to train.

    seed : int
        Fixes first weights, rows held out and order of the batches.

    progress : EpochProgress
        Is told about each epoch.

    Returns
    -------
    member : Member
        The weights of the epoch with the lowest loss. If it was interrupted, those so
        far.
    """
    generator = make_generator(seed)
    module = MLPStack(settings.layer_sizes, 1, generator)
    tensors, held_out = _split(tensors, settings.early_stopping, generator)
    n_rows, total = len(tensors[0]), tensors[2].sum()
    n_batches = math.ceil(n_rows / settings.batch_size)
    patience = max(EPOCHS_NO_CHANGE, math.ceil(BATCHES_NO_CHANGE / n_batches))
    load_optimizers()
    optimizer = torch.optim.Adam(
        [module.weights],
        lr=settings.learning_rate,
        weight_decay=settings.alpha / float(total),
        fused=True,
    )

    def loss_of(part):
        x, y, weight = (tensor.unsqueeze(0) for tensor in part)
        return (weight * nll(module(x), y)).sum()

    best, best_weights, n_epochs, n_waiting = math.inf, None, 0, 0
    reference, is_stopped = math.inf, False
    with one_thread(), progress:
        try:
            while n_epochs < settings.max_iter and n_waiting < patience:
                progress.begin_epoch()
                # Of this epoch, where there are no other rows to ask.
                monitored = 0.0
                order = torch.randperm(n_rows, generator=generator)
                for rows in order.tensor_split(n_batches):
                    optimizer.zero_grad()
                    # An unbiased estimate of the mean over all rows.
                    loss = loss_of([tensor[rows] for tensor in tensors])
                    (loss * n_rows / (len(rows) * total)).backward()
                    optimizer.step()
                    monitored += float(loss.detach()) / float(total)
                if held_out is not None:
                    with torch.no_grad():
                        monitored = float(loss_of(held_out) / held_out[2].sum())
                n_epochs += 1
                n_waiting += 1
                if not math.isfinite(monitored):
                    raise ValueError(
                        f"Training left the finite numbers in epoch {n_epochs}: the "
                        f"loss is {monitored}. Lower learning_rate (now "
                        f"{settings.learning_rate}), or look for extreme values in X."
                    )
                if monitored < reference - TOL:
                    reference, n_waiting = monitored, 0
                if monitored < best:
                    best, best_weights = monitored, module.weights.detach().clone()
                if progress.end_epoch(loss=monitored):
                    is_stopped = True
                    break
        except KeyboardInterrupt:
            if best_weights is None:
                raise
            is_stopped = True
    return Member(best_weights[0], n_epochs, n_waiting >= patience, is_stopped)


def _split(tensors, early_stopping, generator):
    """Hold out every tenth row in the order of the target, if there are ten."""
    _, y, weight = tensors
    tensors = [tensor[weight > 0] for tensor in tensors]  # a class may weigh nothing
    y = tensors[1]
    shuffled = torch.randperm(len(y), generator=generator)
    if not early_stopping or len(y) < HOLD_OUT_EVERY:
        return tensors, None
    # Every class and every size of the target has its share in both parts.
    values = y[shuffled].reshape(len(y), -1)[:, 0]
    order = shuffled[values.argsort(stable=True)]
    first = int(torch.randint(HOLD_OUT_EVERY, (), generator=generator))
    is_held = torch.arange(len(y)) % HOLD_OUT_EVERY == first
    return (
        [tensor[order[~is_held]] for tensor in tensors],
        [tensor[order[is_held]] for tensor in tensors],
    )
