"""The paper's experiment: explain artificial rows, and let their maker judge."""

import copy
import time
import warnings
from numbers import Integral, Real

import joblib
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_memory

import sklearn_clue
from sklearn_clue._fitting import fit_part, fresh, is_fitted_already, seeded
from sklearn_clue._progress import EpochProgress
from sklearn_clue._validation import (
    Interval,
    _safe_indexing,
    check_is_fitted,
    is_pandas_df,
    validate_params,
)
from sklearn_clue.bayesian import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_clue.exceptions import SearchConvergenceWarning
from sklearn_clue.explanation import knee_distances

# From next to no change to next to no restraint, by trade-off parameter.
GRIDS = {
    "distance_weight": np.logspace(-2, 2, 9),
    "mask_weight": np.logspace(-4, 0, 9),
    "step_size": np.logspace(-2, 3, 11),
    "target_uncertainty": None,  # quantiles of the uncertainty that is to fall
}
TARGET_LEVELS = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)

# What an explanation gains: informativeness of Section 4, by what it is to lower.
GAIN_OF_KIND = {
    "total": "uncertainty_explained",
    "aleatoric": "uncertainty_explained",
    "epistemic": "error_explained",
}


@validate_params(
    {
        "explainers": [dict],
        "ground_truth": "no_validation",
        "grids": [dict, None],
        "kinds": [list, tuple],
        "n_train": [Interval(Integral, 2, None, closed="left")],
        "n_test": [Interval(Integral, 1, None, closed="left")],
        "rejection_rate": [Interval(Real, 0, 1, closed="right")],
        "scale_by": [list, tuple, None],
        "random_state": ["random_state"],
        "memory": "no_validation",
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    },
    prefer_skip_nested_validation=False,
)
def evaluate_explainers(
    explainers,
    ground_truth,
    *,
    grids=None,
    kinds=("aleatoric", "epistemic"),
    n_train=5000,
    n_test=1000,
    rejection_rate=0.2,
    scale_by=None,
    random_state=None,
    memory=None,
    n_jobs=None,
    verbose=0,
):
    """Compare explainers on artificial data whose uncertainty is known.

    This is the experiment of Sections 4 and 5.1 of the paper. Training and test rows
    are drawn from the ground truth. One predictor and the generators of the explainers
    are fitted to the training rows. The test rows that the predictor is least sure
    about are explained by each method, with each value of the parameter that trades
    what an explanation gains for what it costs, and the ground truth judges.

    Parameters
    ----------
    explainers : dict of str to explainer
        Explainers by name, for example `{"CLUE": CLUEExplainer()}`. They are cloned and
        fitted. Their estimators must be equal, and are fitted once; None means a
        Bayesian MLP for the kind of target. Parts in a
        :class:`~sklearn.frozen.FrozenEstimator` are used as they are.

    ground_truth : GroundTruth
        Who made the data: fitted, or any object with the methods `sample`,
        `uncertainty`, `predict` and `log_density`, and with `classes_` if targets are
        classes.

    grids : dict of str to dict, default=None
        By name of explainer, the parameter to vary and its values, for example
        `{"CLUE": {"distance_weight": [0.1, 1, 10]}}`. Methods that are not named have
        a logarithmic grid of their own trade-off parameter; `{"target_uncertainty":
        None}` asks for the nearest sure row instead, where a row is sure that has at
        most the uncertainty of the surest training row, or of the surest 2 % to 90 %
        of them, for each kind.

    kinds : sequence of {"aleatoric", "epistemic", "total"}, \
            default=("aleatoric", "epistemic")
        Which uncertainty the explainers are to lower, one comparison for each.

    n_train : int, default=5000
        Number of artificial rows to fit to.

    n_test : int, default=1000
        Number of artificial rows from which those to explain are taken.

    rejection_rate : float, default=0.2
        Share of the test rows to explain: those of the greatest total uncertainty in
        the eyes of the predictor.

    scale_by : sequence of str, default=None
        Methods whose largest gain and cost are the units of the knee-point distances;
        None means all. Leave out those that go ever farther, as steps along a gradient
        do.

    random_state : int, RandomState instance or None, default=None
        Fixes the artificial data, and all fits that are not fixed already.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fits and each explanation. A run that was interrupted then
        goes on where it was; it needs a `random_state` for that.

    n_jobs : int or None, default=None
        Values of a grid to explain in parallel.

    verbose : int, default=0
        1 draws a bar, 2 prints a line per stage, with seconds.

    Returns
    -------
    table : DataFrame
        One row per method, kind and value of the parameter, with means over the
        explained rows:

        - `method`, `kind`, `parameter`, `value`: what was done;
        - `uncertainty_explained`: fall of the true uncertainty, ΔH_gt;
        - `error_explained`: fall of the error of the predictor, Δerr_gt, measured
          against the most probable class (in nats) or the mean (squared) of the truth;
        - `distance`: l1 distance in encoded space;
        - `log_density_change`: Δlog p_gt, where a rise counts as 0;
        - `knee_by_distance`, `knee_by_log_density`: distance from gaining all at no
          cost, by either cost. The gain is `error_explained` for epistemic uncertainty
          and `uncertainty_explained` otherwise. The smallest value of a method is its
          entry in Tables 1 and 2 of the paper;
        - `converged`: share of the searches that came to rest;
        - `n_rows`: number of rows explained.

    See Also
    --------
    GroundTruth : Learns a ground truth from real data.
    knee_point_distance : The distance of one curve.
    sklearn_clue.plotting.TradeOffDisplay : Draws such curves.

    Notes
    -----
    Tables 1 and 2 are
    `table.groupby(["method", "kind"])[["knee_by_distance",
    "knee_by_log_density"]].min()`.

    A method that gains nothing has a distance of at least 1/√2.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Sections 4 and 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> from sklearn_clue.evaluation import evaluate_explainers
    >>> class Coin:  # the farther from 0, the surer
    ...     classes_ = np.array([0, 1])
    ...
    ...     def sample(self, n_samples, random_state):
    ...         X = random_state.normal(size=(n_samples, 2))
    ...         return X, random_state.binomial(1, self.predict(X)[:, 1])
    ...
    ...     def predict(self, X):
    ...         proba = 1 / (1 + np.exp(-3 * X[:, 0]))
    ...         return np.column_stack([1 - proba, proba])
    ...
    ...     def uncertainty(self, X):
    ...         return -(self.predict(X) * np.log(self.predict(X))).sum(axis=1)
    ...
    ...     def log_density(self, X):
    ...         return -0.5 * (X**2).sum(axis=1)
    >>> clue = CLUEExplainer(LogisticRegression(), VAEEncoder(2, (20,), max_iter=20))
    >>> table = evaluate_explainers(
    ...     {"CLUE": clue},
    ...     Coin(),
    ...     grids={"CLUE": {"distance_weight": [0.01, 100]}},
    ...     kinds=["aleatoric"],
    ...     n_train=200,
    ...     n_test=50,
    ...     random_state=0,
    ... )
    >>> cheap, dear = table["uncertainty_explained"]
    >>> cheap > dear
    True
    """
    grids = _check_grids(explainers, grids)
    _check_names("kinds", kinds, GAIN_OF_KIND)
    scale_by = list(explainers) if scale_by is None else list(scale_by)
    _check_names("scale_by", scale_by, explainers)
    _check_ground_truth(ground_truth)
    predictor = _common_estimator(explainers, hasattr(ground_truth, "classes_"))

    rng = check_random_state(random_state)
    train_seed, test_seed, predictor_seed, explainer_seed = rng.randint(
        2**31 - 1, size=4
    )
    # Drawing again takes less time than looking up what was drawn.
    X_train, y_train = ground_truth.sample(n_train, np.random.RandomState(train_seed))
    X_test, _ = ground_truth.sample(n_test, np.random.RandomState(test_seed))
    _check_classes(ground_truth, y_train)
    predictor = seeded(fresh(predictor), predictor_seed)

    recipe = [_fingerprint(table) for table in (X_train, y_train, X_test)]
    recipe += [_settings(ground_truth), joblib.hash(predictor), float(rejection_rate)]
    progress = EpochProgress(
        2 + len(explainers) * (1 + len(kinds)),
        "evaluate_explainers",
        unit="stage",
        verbose=verbose,
    )
    lines = []
    with progress:
        run = _Stages(memory, n_jobs, progress, recipe)
        predictor = run("predictor", [], _fit_predictor, predictor, X_train, y_train)
        fitted, recipes = {}, {}
        for name, explainer in explainers.items():
            explainer = clone(explainer).set_params(estimator=None)
            if getattr(explainer, "random_state", 0) is None:
                explainer.set_params(random_state=int(explainer_seed))
            recipes[name] = ["explainer", joblib.hash(explainer)]
            explainer.set_params(estimator=predictor)
            fitted[name] = run(
                f"fit {name}", recipes[name], _fit, explainer, X_train, y_train
            )
        any_explainer = next(iter(fitted.values()))
        X = _most_uncertain(any_explainer, X_test, rejection_rate)
        before = run("truth", ["truth"], _judge, any_explainer, ground_truth, X)
        for name, (parameter, given) in grids.items():
            for kind in kinds:
                values = given
                if values is None:
                    values = _targets(any_explainer, X_train, kind)
                settings = [{"uncertainty": kind, parameter: value} for value in values]
                scores = run.each(
                    f"explain {kind} by {name}",
                    [[*recipes[name], here] for here in settings],
                    _explain_and_judge,
                    [(fitted[name], s, ground_truth, X, before) for s in settings],
                )
                for value, score in zip(values, scores, strict=True):
                    what = {"method": name, "kind": kind, "parameter": parameter}
                    lines.append({**what, "value": value, **score, "n_rows": len(X)})
    return _add_knees(pd.DataFrame(lines), scale_by)


# The stages ------------------------------------------------------------------------


class _Stages:
    """Do each piece of work once, and tell of it.

    Results are found again by their recipe, not by the objects they are made from:
    fitted models that are equal need not have equal bytes.
    """

    def __init__(self, memory, n_jobs, progress, recipe):
        self.cached = check_memory(memory).cache(_call, ignore=["function", "args"])
        self.n_jobs = n_jobs
        self.progress = progress
        self.recipe = [sklearn_clue.__version__, *recipe]

    def __call__(self, label, recipe, function, *args):
        return self.each(label, [recipe], function, [args])[0]

    def each(self, label, recipes, function, arguments):
        """Call a function with several arguments, in parallel if there is a use."""
        start = time.perf_counter()
        self.progress.begin_epoch()
        results = Parallel(n_jobs=self.n_jobs if len(recipes) > 1 else None)(
            delayed(self.cached)(
                [function.__name__, *self.recipe, *recipe], function, args
            )
            for recipe, args in zip(recipes, arguments, strict=True)
        )
        seconds = time.perf_counter() - start
        self.progress.end_epoch(**{f"{label}, seconds": seconds})
        return results


def _call(recipe, function, args):
    return function(*args)


def _fit_predictor(estimator, X, y):
    return _frozen(fit_part(estimator, X, y, {}))


def _frozen(part):
    """A fitted part that explainers take as it is."""
    if isinstance(part, list):
        return [_frozen(member) for member in part]
    return part if is_fitted_already(part) else FrozenEstimator(part)


def _fit(explainer, X, y):
    return explainer.fit(X, y)


def _most_uncertain(explainer, X, share):
    total = explainer.predict_uncertainty(X).total
    n_rows = max(round(share * len(total)), 1)
    rows = np.argsort(-total, kind="stable")[:n_rows]
    return _safe_indexing(X, np.sort(rows))


def _targets(explainer, X, kind):
    """Quantiles of an uncertainty over rows, from few sure ones to most of them."""
    values = getattr(explainer.predict_uncertainty(X), kind)
    return np.quantile(values, TARGET_LEVELS).tolist()


def _judge(explainer, ground_truth, X):
    """What the truth says about rows, and how wrong the predictor is about them."""
    truth = np.asarray(ground_truth.predict(X))
    if hasattr(ground_truth, "classes_"):
        # d_y of Section 4: cross-entropy to the class that is most probable in truth.
        likely = ground_truth.classes_[truth.argmax(axis=1)]
        column = np.searchsorted(explainer.classes_, likely)
        proba = explainer.predict_proba(X)[np.arange(len(column)), column]
        error = -np.log(np.maximum(proba, np.finfo(float).tiny))
    else:
        error = (np.asarray(explainer.predict(X)) - truth) ** 2
    return {
        "uncertainty": np.asarray(ground_truth.uncertainty(X)),
        "error": error,
        "log_density": np.asarray(ground_truth.log_density(X)),
    }


def _explain_and_judge(explainer, settings, ground_truth, X, before):
    explainer = copy.copy(explainer).set_params(**settings)
    with warnings.catch_warnings():
        # Grids go to extremes. `converged` says how it went.
        warnings.simplefilter("ignore", SearchConvergenceWarning)
        explanation = explainer.explain(X)
    after = _judge(explainer, ground_truth, explanation.counterfactuals)
    change = np.minimum(after["log_density"] - before["log_density"], 0)
    return {
        "uncertainty_explained": float(
            (before["uncertainty"] - after["uncertainty"]).mean()
        ),
        "error_explained": float((before["error"] - after["error"]).mean()),
        "distance": float(np.mean(explanation.distance)),
        "log_density_change": float(change.mean()),
        "converged": float(np.mean(explanation.converged)),
    }


def _add_knees(table, scale_by):
    """Measure how far each line is from gaining all at no cost, by either cost."""
    costs = {
        "knee_by_distance": table["distance"],
        "knee_by_log_density": -table["log_density_change"],
    }
    for name, cost in costs.items():
        for kind, lines in table.groupby("kind"):
            gain = lines[GAIN_OF_KIND[kind]]
            is_unit = lines["method"].isin(scale_by)
            table.loc[lines.index, name] = knee_distances(
                gain,
                cost[lines.index],
                max_gain=gain[is_unit].max(),
                max_cost=cost[lines.index][is_unit].max(),
            )
    return table


# What comes in ---------------------------------------------------------------------


def _check_grids(explainers, grids):
    """Find, for each explainer, the parameter to vary and its values."""
    if not explainers:
        raise ValueError(
            "There are no explainers to compare. Pass a dict such as "
            "{'CLUE': CLUEExplainer()}."
        )
    grids = {} if grids is None else grids
    _check_names("grids", grids, explainers)
    checked = {}
    for name, explainer in explainers.items():
        if not (hasattr(explainer, "explain") and hasattr(explainer, "get_params")):
            raise TypeError(
                f"The explainer {name!r} is of type {type(explainer).__name__}, which "
                "has no explain method or no parameters. Pass an explainer such as "
                "CLUEExplainer()."
            )
        own = getattr(explainer, "_trade_off", None)
        grid = grids.get(name, {own: GRIDS.get(own)} if own in GRIDS else {})
        if not (isinstance(grid, dict) and len(grid) == 1):
            raise ValueError(
                f"The grid of {name!r} must be a dict of one parameter to its values, "
                f"got {grid!r}. Pass for example "
                "grids={'CLUE': {'distance_weight': [0.1, 1, 10]}}."
            )
        ((parameter, values),) = grid.items()
        unknown = {parameter, "estimator", "uncertainty"} - set(explainer.get_params())
        if unknown:
            raise ValueError(
                f"The explainer {name!r}, {explainer!r}, has no parameter "
                f"{sorted(unknown)[0]!r}. It has {sorted(explainer.get_params())}."
            )
        values = GRIDS.get(parameter) if values is None else values
        if values is None and parameter in GRIDS:
            checked[name] = parameter, None
            continue
        values = np.asarray(values)
        if values.ndim != 1 or not len(values):
            raise ValueError(
                f"The grid of {name!r} must hold a sequence of values of "
                f"{parameter!r}, got {grid[parameter]!r}."
            )
        checked[name] = parameter, values.tolist()
    return checked


def _check_names(argument, names, known):
    unknown = [name for name in names if name not in known]
    if unknown or (argument != "grids" and not len(names)):
        raise ValueError(
            f"{argument} must hold some of {list(known)}, got {list(names)}."
        )


def _check_ground_truth(ground_truth):
    methods = ("sample", "uncertainty", "predict", "log_density")
    missing = [name for name in methods if not hasattr(ground_truth, name)]
    if missing:
        raise TypeError(
            f"The ground truth has no method {missing[0]!r}, got "
            f"{type(ground_truth).__name__}. Pass a fitted GroundTruth."
        )
    if hasattr(ground_truth, "fit"):
        check_is_fitted(ground_truth)


def _common_estimator(explainers, is_classification):
    """The model that all explainers are to explain."""
    default = BayesianMLPClassifier if is_classification else BayesianMLPRegressor
    estimators = {
        name: default() if explainer.estimator is None else explainer.estimator
        for name, explainer in explainers.items()
    }
    (first, estimator), *others = estimators.items()
    for name, other in others:
        if other is not estimator and joblib.hash(other) != joblib.hash(estimator):
            raise ValueError(
                "All explainers must explain the same model, for their explanations to "
                f"be comparable, but {first!r} has {estimator!r} and {name!r} has "
                f"{other!r}. Give them equal estimators, or leave them at None."
            )
    return estimator


def _check_classes(ground_truth, y):
    absent = set(getattr(ground_truth, "classes_", ())) - set(y)
    if absent:
        raise ValueError(
            f"None of the {len(y)} artificial training rows is of class "
            f"{sorted(absent)[0]!r}, so no predictor can know it. Raise n_train."
        )


def _fingerprint(table):
    """A hash of what a table holds, the same in every process."""
    if is_pandas_df(table):
        cells = pd.util.hash_pandas_object(table, index=False).to_numpy()
        return joblib.hash([list(table.columns), cells])
    return joblib.hash(np.asarray(table))


def _settings(ground_truth):
    """A hash of what a ground truth was told besides its data."""
    if not hasattr(ground_truth, "get_params"):
        return type(ground_truth).__qualname__
    params = ground_truth.get_params(deep=False)
    params.pop("memory", None)  # a place is no setting
    return joblib.hash(params)
