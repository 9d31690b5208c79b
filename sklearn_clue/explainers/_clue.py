"""CLUE: the nearest row on the manifold of the data that the model is sure about."""

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import check_array, check_random_state

from sklearn_clue._tables import take
from sklearn_clue._torch import (
    PRECISE_DTYPE,
    as_tensor,
    even_points,
    normal_noise,
    row_uniforms,
)
from sklearn_clue._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
)
from sklearn_clue.encoding import as_float32
from sklearn_clue.explainers._base import BaseUncertaintyExplainer, read_weights
from sklearn_clue.explainers._images import SureImages
from sklearn_clue.explainers._latents import NoiseKept
from sklearn_clue.explainers._neighbors import MAX_ROWS
from sklearn_clue.explainers._objectives import Bounded, Penalty, Rough
from sklearn_clue.explainers._question import AsksForSureRows
from sklearn_clue.explainers._results import Found
from sklearn_clue.explainers._search import (
    LONGER,
    StoppingRule,
    adam,
    evaluate,
    minimise_rows,
)
from sklearn_clue.explanation import balance
from sklearn_clue.generative import VAEEncoder
from sklearn_clue.providers import takes_tables
from sklearn_clue.uncertainty import weights_of_parts

# Looks around the start, and steps of Adam towards the row itself, before the search
# for a surer one.
N_LOOKS = 8
N_NEAREST = 10


class ClueSearch:
    """Minimise uncertainty plus distance in latent space (Eq. 4), for many rows.

    Parameters
    ----------
    kind : type
        Of the objective, such as `Penalty`.

    distance_weights : sequence of float
        λ_x·d, one search for each.

    prediction_weight : float
        λ_y.

    max_distance : float or None
        Largest l1 distance; rows that stay beyond it come back as they are.

    rule : StoppingRule
        When a row is done.

    learning_rate : float
        Step size of Adam.

    init : {"encode", "zeros"}
        Where to start.

    init_noise : float
        Standard deviation of the noise on all starts of a row but its first.

    n_starts : int
        Starts per row.

    seed : int
        Fixes the noise, together with what the row holds.

    keep_noise : bool, default=False
        Whether to keep what the generator misses of a row.
    """

    def __init__(
        self,
        kind,
        *,
        distance_weights,
        prediction_weight,
        max_distance,
        rule,
        learning_rate,
        init,
        init_noise,
        n_starts,
        seed,
        keep_noise=False,
    ):
        self.kind = kind
        self.distance_weights = distance_weights
        self.prediction_weight = prediction_weight
        self.max_distance = max_distance
        self.rule = rule
        self.learning_rate = learning_rate
        self.init = init
        self.init_noise = init_noise
        self.n_starts = n_starts
        self.seed = seed
        self.keep_noise = keep_noise

    def objective(self, problem, distance_weight):
        """What is minimised, and candidates are ranked by."""
        # Table 5 lists λ_x · d, so divide: the weight must not grow with the number of
        # columns.
        weight = distance_weight / problem.x0.shape[1]
        objective = self.kind(problem, weight, self.prediction_weight)
        if self.max_distance is None:
            return objective
        return Bounded(objective, self.max_distance)

    def __call__(self, problem):
        """Search for all rows of a problem; one `Found` per weight."""
        problem = NoiseKept(problem) if self.keep_noise else problem
        n_rows = len(problem)
        z0 = problem.encode(problem.x0)
        start = self._starts(problem.x0, z0)
        nearest = self._nearest(problem, z0)
        # All starts of all rows in one batch. Each search may also start where the one
        # with the next smaller weight ended, as along the path of a lasso: most of the
        # way is behind it then.
        n_legs, n_searches = len(self.distance_weights), len(start)
        row = torch.arange(n_rows).repeat_interleave(self.n_starts)
        weights, order = torch.as_tensor(self.distance_weights).sort()
        searches = problem.take(row.repeat(n_legs))
        objective = self.objective(searches, weights.repeat_interleave(n_searches))
        rough, points, said = self._first_points(searches, objective, start, nearest)
        result = minimise_rows(
            searches,
            rough,
            points,
            learning_rate=self.learning_rate,
            rule=self.rule,
            n_legs=n_legs,
        )
        result, said_of_ends = self._accepted(objective, result, points[0])
        if self.init == "encode":
            rebuilt = points[0].x[:: self.n_starts]
            said = said and [part[:: self.n_starts] for part in said]
        else:
            with torch.no_grad():
                rebuilt, said = problem.decode(z0, torch.arange(n_rows)), None
        about = {
            "rebuilt": rebuilt.numpy(),
            "rebuilt_parts": said and torch.stack(said, 1).numpy(),
            "floor": (nearest[1] - problem.x0).abs().sum(1).numpy(),
        }
        found = [None] * n_legs
        if self.max_distance is not None:
            is_far = objective.distance(result.best.x, torch.arange(len(searches)))
            is_far = is_far > self.max_distance
            result.best.x[is_far] = searches.x0[is_far]
            said_of_ends[is_far] = torch.nan
        for leg, position in enumerate(order.tolist()):
            ours = slice(leg * n_searches, (leg + 1) * n_searches)
            about["said"] = said_of_ends[ours].numpy()
            found[position] = self._as_found(result.keep(ours), n_rows, about)
        return found

    def _accepted(self, objective, result, start):
        """Ask all networks about the ends, and take the starts where they are better.

        What they say comes second: the three parts of the uncertainty and the
        prediction, NaN where the start was taken. Values on the way are those of some
        of the networks, which agree with all of them at the start. They are stretched
        to agree at the end as well.
        """
        everyone = torch.arange(len(result.value))
        with torch.no_grad():
            parts, prediction = objective.problem.judge(result.best.x, everyone)
            cost = objective.cost_of(parts, prediction, everyone)
            end = objective.value(cost, result.best.x, everyone)
        first, path = result.path_value[:, :1], result.path_value
        stretch = (first - end[:, None]) / (first - result.value[:, None])
        path[:] = torch.where(path < first, first - (first - path) * stretch, path)
        is_worse = end > first[:, 0]
        result.best.x[is_worse] = start.x[everyone[is_worse] % len(start.x)]
        result.path_z[is_worse, 1:] = path[is_worse, 1:] = torch.nan
        said = torch.cat([torch.stack(parts, 1), prediction], 1)
        said[is_worse] = torch.nan
        return result, said

    def _nearest(self, problem, z):
        """Go from latents to such as decode to nearer rows, by the generator alone."""
        rows, distance = torch.arange(len(problem)), Penalty(problem, 1.0)
        start = z
        with torch.no_grad():
            least = distance.distance(problem.decode(z, rows), rows)
            # Gradients do not lead out of a wrong category that the decoder is sure of:
            # look around first.
            spread = torch.linspace(0.1, 2.0, N_LOOKS)[:, None]
            for look in spread * normal_noise(even_points(N_LOOKS, z.shape[1])):
                there = distance.distance(problem.decode(start + look, rows), rows)
                z = torch.where((there < least)[:, None], start + look, z)
                least = torch.minimum(there, least)
        return adam(
            problem,
            distance,
            z,
            rows,
            n_steps=N_NEAREST,
            learning_rate=LONGER * self.learning_rate,
        )[:2]

    def _first_points(self, searches, objective, start, nearest):
        """The starts, and for the first of each row the point nearest to the row.

        Differs from the paper: what the encoder gives decodes to a row that is some
        way off, and the search would spend most of its steps on coming nearer. That
        needs the generator alone, so it is done before the predictor is asked.

        Differs from the paper: the objective to search by, which comes first, is told
        by some of the networks, and agrees with that by all of them at the starts.
        What all of them say of the starts comes last; None if none was left out.
        """
        everyone = torch.arange(len(start))
        rough = Rough(objective, torch.zeros_like(searches.x0[:, 0]))
        first, parts = evaluate(searches, rough, start, everyone), None
        if searches.has_rough:
            with torch.no_grad():
                parts, prediction = searches.judge(first.x, everyone)
                cost = objective.cost_of(parts, prediction, everyone)
            rough.offset = (cost - first.cost).repeat(len(self.distance_weights))
            first = first._replace(cost=cost)
        points = [first]
        if self.init == "encode":
            # Starts with noise are there to end elsewhere.
            z, x = start.clone(), first.x.clone()
            z[:: self.n_starts], x[:: self.n_starts] = nearest
            points.append(evaluate(searches, rough, z, everyone, x))
        return rough, points, parts

    def _starts(self, x0, z0):
        """Starts of all rows, row by row, of shape (n_rows * n_starts, n_latent)."""
        z0 = torch.zeros_like(z0) if self.init == "zeros" else z0
        if self.n_starts == 1:
            return z0
        # Appendix C. The noise of a row must not depend on its neighbours, so it comes
        # from the row. The first start has none.
        seed = torch.full((len(x0), 1), float(self.seed))
        uniform = row_uniforms(
            torch.cat([x0, seed], 1), (self.n_starts - 1) * z0.shape[1]
        )
        noise = normal_noise(uniform).view(len(z0), self.n_starts - 1, z0.shape[1])
        noise = torch.nn.functional.pad(noise, (0, 0, 1, 0))
        return (z0[:, None] + self.init_noise * noise).flatten(0, 1)

    def _as_found(self, result, n_rows, about):
        shape = (n_rows, self.n_starts)
        return Found(
            x=result.best.x.unflatten(0, shape).numpy(),
            n_iter=result.n_iter.view(shape).numpy(),
            converged=result.converged.view(shape).numpy(),
            path_z=result.path_z.unflatten(0, shape).numpy(),
            path_value=result.path_value.unflatten(0, shape).numpy(),
            **about,
        )


class _BaseCLUE(BaseUncertaintyExplainer):
    """What the explainer and its cross-validated form share."""

    _name = "CLUE"
    _trade_off = "distance_weight"
    _objective = Penalty

    _parameter_constraints: dict = {
        **BaseUncertaintyExplainer._parameter_constraints,
        "generator": [HasMethods(["fit", "latent_model"]), None],
        "prediction_weight": [Interval(Real, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "min_iter": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"encode", "zeros"})],
        "init_noise": [Interval(Real, 0, None, closed="left")],
        "n_explanations": [Interval(Integral, 1, None, closed="left")],
    }

    def _default_generator(self):
        return VAEEncoder()

    def explain_path(self, X, distance_weights):
        """Explain rows with several weights of the distance, in one search.

        Like the path of a lasso: from the smallest weight up, each search may start
        from the end of the one before. That costs less than separate calls of
        :meth:`explain`, and their objectives are as low or lower on average.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain.

        distance_weights : array-like of float
            Values of `distance_weight`.

        Returns
        -------
        explanations : list of Explanation
            One per weight, in the given order.
        """
        check_is_fitted(self, "estimator_")
        weights = read_weights("distance_weights", distance_weights)
        return self._explain(X, tuple(weights.tolist()))

    def score(self, X, y=None):
        """Tell how well the two terms of the objective are balanced.

        The paper chooses λ such that uncertainty and distance are of similar size
        (Sec. 3). This is 0 where their means over the rejected rows of X are equal and
        -1 where one of them vanishes, so that a search over `distance_weight` finds
        the balance. Rows that come back as near as the generator can rebuild them
        count as -1: what it cannot avoid is a distance as well, and a large weight
        would make it as large as the uncertainty, with nothing explained.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows; those above `threshold_` are explained, or all if there are none.

        y : None
            Ignored.

        Returns
        -------
        score : float
            `-|H - D| / (H + D)` of the mean uncertainty H and the mean weighted
            distance D of the rows that moved, averaged with the -1 of those that did
            not: `distance` at most 1.1 times `distance_floor` of the explanation.
        """
        return float(self._scores(X, (self._trade_off_value(),))[0])

    def _scores(self, X, distance_weights):
        check_is_fitted(self, "estimator_")
        X = self._check_rows(X, reset=False)
        rejected = np.flatnonzero(self.rejects(X))
        if len(rejected):
            X = take(X, rejected)
        return [
            balance(explanation) for explanation in self._explain(X, distance_weights)
        ]

    def latent_uncertainty(self, Z):
        """Tell how unsure the model is about the rows that latents stand for.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_latent)
            Latents of `generator_`.

        Returns
        -------
        parts : Uncertainty
            As :meth:`predict_uncertainty` gives it.
        """
        check_is_fitted(self, "estimator_")
        self._check_generator()
        Z = check_array(Z, dtype=np.float64, input_name="Z")
        problem = self._problem_of(np.zeros((1, self._space.schema.n_encoded)))
        n_latent = problem.encode(problem.x0).shape[1]
        if Z.shape[1] != n_latent:
            raise ValueError(
                f"Z has {Z.shape[1]} columns, but the generator has {n_latent} "
                "latents. Pass rows as its transform returns them."
            )
        z = as_tensor(as_float32(Z), dtype=PRECISE_DTYPE)
        with torch.no_grad():
            blocks = [
                problem.decode(block, torch.zeros(len(block), dtype=torch.long))
                for block in z.split(1024)
            ]
        return self._judge_encoded(torch.cat(blocks).numpy())[0]

    # Parts ------------------------------------------------------------------------

    def _check_generator(self):
        """Refuse to search latents that are not there."""

    def _model(self):
        generator = getattr(self, "generator_", None)
        return None if generator is None else generator.latent_model()

    def _rule(self):
        return StoppingRule(
            min_iter=self.min_iter,
            max_iter=self.max_iter,
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
        )

    def _method(self, trade_offs):
        return ClueSearch(
            self._objective,
            distance_weights=trade_offs,
            prediction_weight=self.prediction_weight,
            max_distance=getattr(self, "max_distance", None),
            rule=self._rule(),
            learning_rate=self.learning_rate,
            init=self.init,
            init_noise=self.init_noise,
            n_starts=self.n_explanations,
            seed=check_random_state(self.random_state).randint(2**24),
            keep_noise=bool(getattr(self, "keep_noise", False)),
        )


def _take(value, rows, n_rows):
    is_per_row = np.ndim(value) > 0 and len(value) == n_rows
    return take(value, rows) if is_per_row else value


class CLUEExplainer(AsksForSureRows, _BaseCLUE):
    """Explain why a model is unsure, by the smallest change that makes it sure.

    For a row that the model is unsure about, find the nearest row that it is sure about
    and that is as believable as rows of the training table are: "would be sure if
    amount were 2,100 instead of 8,400". With a number for `distance_weight`, search as
    the paper does instead: Counterfactual Latent Uncertainty Explanations (CLUE)
    minimise uncertainty plus weighted distance in the latent space of a generative
    model.

    Raw DataFrames are welcome, and explanations come back in the same columns and
    units.

    Parameters
    ----------
    estimator : estimator, torch module, list of them, or None, default=None
        The model to explain: any classifier with `predict_proba`, any regressor that
        tells how far off it may be (see
        :class:`~sklearn_clue.PredictedNoiseRegressor` for others), a whole
        :class:`~sklearn.pipeline.Pipeline`, a torch module or skorch net, or a list of
        models as an ensemble. None means
        :class:`~sklearn_clue.BayesianMLPClassifier`. It is cloned and fitted, unless it
        is wrapped in :class:`~sklearn.frozen.FrozenEstimator`; torch modules are taken
        as they are. A number for `distance_weight` needs a model with gradients:
        Bayesian MLPs, deep ensembles, torch modules, skorch nets, MLPs and logistic
        regression of scikit-learn, and lists and bagging ensembles of them.

    generator : estimator or None, default=None
        The model of the data whose latent space is searched: any estimator with a
        method `latent_model`, see :class:`~sklearn_clue.generative.LatentModel`. None
        means :class:`~sklearn_clue.VAEEncoder`, or none where latents are not searched:
        see `generator_`. It is fitted in the encoded space of the estimator.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        What to lower: all uncertainty, the part from noise in the data, the part from
        not knowing the model, or a sum with weights such as `{"aleatoric": 0.2,
        "epistemic": 1.0}`.

    distance_weight : float or None, default=None
        None asks for the nearest sure and believable row. A number is λ_x·d of the
        paper: the l1 distance in encoded space counts by this weight over the number
        of encoded columns, and the latents of the generator alone are searched. Larger
        values change less and explain less. Uncertainty of regression counts in
        standard deviations of the target. 2 suits many tables, and 25 images.

    target_uncertainty : float or None, default=None
        The uncertainty up to which the model counts as sure, in nats or the unit of
        the target. None means the quantile of `uncertainty` over the rows of `fit`
        that leaves `rejection_rate` of them above it: `threshold_` for the total. Not
        used with a number for `distance_weight`.

    min_plausibility : "row", float or None, default="row"
        Least plausibility of a counterfactual, from 0 to 1: the share of training rows
        that are at least as far from their five nearest neighbours as it is. `"row"`
        demands that of the row itself, and at most 0.5; None demands nothing. Not
        used with a number for `distance_weight`.

    max_distance : float or None, default=None
        Largest l1 distance of a counterfactual, in encoded space.

    keep_noise : bool or None, default=None
        Whether latents stand for the row itself where they begin: what the generator
        cannot rebuild of it is added to all that is decoded. None means True for the
        nearest sure row and False with a number for `distance_weight`, as in the paper.

    n_neighbors : int, default=10
        Sure training rows to start from. For them, and to tell plausibility, at most
        5000 encoded training rows are stored, none without weight. 0 stores none:
        latents and columns are searched alone, and plausibility is the share of
        training rows that are no denser by the density of the generator, if it has one.

    search : {"auto", "gradient", "values"}, default="auto"
        Whether to follow gradients of the model, or to ask for values only. `"auto"`
        follows them where there are any.

    fill_missing : bool, default=False
        Whether a counterfactual may fill in a missing value: "would be sure if income
        were known to be 3,200".

    prediction_weight : float, default=0.0
        Price of another prediction, λ_y: cross-entropy for classes, squared error in
        standard deviations of the target for regression. It needs a number for
        `distance_weight`.

    learning_rate : float, default=0.1
        Step size of Adam in latent space.

    min_iter : int, default=3
        Fewest steps of a row.

    max_iter : int, default=35
        Most steps of a row.

    tol : float, default=0.01
        A step that lowers the objective by less than this share of its first value is
        a small one.

    n_iter_no_change : int, default=3
        A row is done after so many small steps in a row. Two that do not even promise a
        decrease count for three.

    init : {"encode", "zeros"}, default="encode"
        Where the search starts: at the latents of the row, or at the origin.

    init_noise : float, default=0.15
        Standard deviation of the noise on the starts of further explanations.

    n_explanations : int, default=1
        Sure rows to find for each row, as `candidates`, the nearest first: each changes
        other columns than those before it as far as possible, and there are fewer where
        no more are found. With a number for `distance_weight`, searches per row from
        different starts, near-duplicates merged.

    immutable_features : list, str or None, default=None
        Columns that keep their value: names, or positions if X is an array.

    feature_ranges : dict or None, default=None
        What numbers may become: `{"texture": (10, 25), "age": "increase"}` by column
        name, or by position if X is an array. `"increase"` and `"decrease"` refer to
        the value that the row has; a bound of None or infinity is none. Numbers
        without a range stay between the least and the largest value seen in `fit`, and
        all have as many decimals as there.

    rejection_rate : float, default=0.2
        Share of new rows that :meth:`rejects` should pick.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fits of estimator and generator, as in
        :class:`~sklearn.pipeline.Pipeline`: a search over `distance_weight` then fits
        each fold once.

    batch_size : int, default=256
        Rows searched together. It bounds the memory and has no influence on the
        result.

    n_jobs : int or None, default=None
        Batches of rows to explain in parallel.

    random_state : int, RandomState instance or None, default=None
        Fixes the noise of further explanations, and the fits of parts that have no
        `random_state` of their own.

    verbose : int, default=0
        1 shows bars while parts are fitted that are not verbose themselves; 2 or more
        prints lines instead, and reports on the batches explained.

    Attributes
    ----------
    estimator_ : estimator, torch module or list
        The fitted model.

    generator_ : estimator
        The fitted generator. There is none if the nearest sure row is asked for, the
        model has no gradients and no generator was given: latents are not searched
        then.

    threshold_ : float
        Total uncertainty above which :meth:`rejects` picks a row, in nats or the unit
        of the target.

    classes_ : ndarray of shape (n_classes,)
        The class labels, for a classifier.

    is_classification_ : bool
        Whether the model predicts classes.

    n_iter_ : int or None
        Epochs that the generator was trained for, if it says so.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    NeighborExplainer : Answers the same question from training rows alone.
    CLUEExplainerCV : Chooses `distance_weight` by cross-validation.
    LocalSensitivityExplainer : Takes one step against the gradient instead.
    UFIDOExplainer : Replaces as few features as possible.
    Explanation : What :meth:`explain` returns.

    Notes
    -----
    `threshold_` is the quantile of the total uncertainty over the rows of `fit` that
    leaves `rejection_rate` above it. No target enters it. Models without gradients,
    such as forests and boosting, are judged as if these rows were new. A network that
    has learned its rows by heart is surer about them than about new ones and will
    reject more; freeze it, and call `fit` with rows that it has not seen.

    A counterfactual is not a cause: it shows what the model would be sure about, not
    what would happen if someone changed a value in the world.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 300), "age": rng.normal(50, 9, 300)}
    ... )
    >>> y = np.where(X["dose"] > 5, "works", "fails")
    >>> clue = CLUEExplainer(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=60), random_state=0
    ... ).fit(X, y)
    >>> explanation = clue.explain(pd.DataFrame({"dose": [5.2], "age": [50.0]}))
    >>> bool(explanation.is_sure[0])
    True
    """

    _parameter_constraints: dict = {
        **_BaseCLUE._parameter_constraints,
        **AsksForSureRows._parameter_constraints,
        "distance_weight": [Interval(Real, 0, None, closed="left"), None],
        "keep_noise": ["boolean", None],
        "search": [StrOptions({"auto", "gradient", "values"})],
        "fill_missing": ["boolean"],
    }

    def __init__(
        self,
        estimator=None,
        generator=None,
        *,
        uncertainty="total",
        distance_weight=None,
        target_uncertainty=None,
        min_plausibility="row",
        max_distance=None,
        keep_noise=None,
        n_neighbors=10,
        search="auto",
        fill_missing=False,
        prediction_weight=0.0,
        learning_rate=0.1,
        min_iter=3,
        max_iter=35,
        tol=0.01,
        n_iter_no_change=3,
        init="encode",
        init_noise=0.15,
        n_explanations=1,
        immutable_features=None,
        feature_ranges=None,
        rejection_rate=0.2,
        memory=None,
        batch_size=256,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.generator = generator
        self.uncertainty = uncertainty
        self.distance_weight = distance_weight
        self.target_uncertainty = target_uncertainty
        self.min_plausibility = min_plausibility
        self.max_distance = max_distance
        self.keep_noise = keep_noise
        self.n_neighbors = n_neighbors
        self.search = search
        self.fill_missing = fill_missing
        self.prediction_weight = prediction_weight
        self.learning_rate = learning_rate
        self.min_iter = min_iter
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.init = init
        self.init_noise = init_noise
        self.n_explanations = n_explanations
        self.immutable_features = immutable_features
        self.feature_ranges = feature_ranges
        self.rejection_rate = rejection_rate
        self.memory = memory
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def explain(self, X, *, contributions=None):
        """Find, for each row, another one that the model is sure about.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain, of any length; those that :meth:`rejects` picks are the
            ones worth explaining. Rows that are sure already come back as they are,
            if the nearest sure row is asked for.

        contributions : bool or None, default=None
            Whether to tell how much each change lowers the uncertainty, see
            `contributions` of :class:`~sklearn_clue.Explanation`. None means where
            the nearest sure row of a table is asked for: with a `distance_weight` all
            columns change, and for images it takes gradients all along the way.

        Returns
        -------
        explanation : Explanation
            Counterfactuals in the units and the container of X, and what they did to
            the uncertainty.
        """
        # As in the base class, and not by it: warnings count the calls in between.
        check_is_fitted(self, "estimator_")
        self._validate_params()
        return self._explain(X, (self.distance_weight,), contributions)[0]

    def score(self, X, y=None):
        """Tell how good the explanations of the rejected rows are.

        For the nearest sure row it is the number of rejected rows that got one that is
        sure and as plausible as demanded, plus 1 / (1 + d) of their mean distance d,
        over the number of rejected rows: one row more outweighs any distance. Where no
        row is rejected it is NaN, with a warning.

        With a number for `distance_weight` it tells how well the two terms of the
        objective are balanced. The paper chooses λ such that uncertainty and distance
        are of similar size (Sec. 3): it is 0 where their means over the rejected rows
        are equal and -1 where one of them vanishes. Rows that come back as near as the
        generator can rebuild them count as -1.

        The two scores cannot be compared, and `score` cannot see the other candidates
        of a grid: the first is never below 0 and the second never above, so that a
        grid which mixes None and numbers would always take None. Search over one kind
        at a time.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows; those above `threshold_` are explained.

        y : None
            Ignored.

        Returns
        -------
        score : float
            Higher is better.
        """
        check_is_fitted(self, "estimator_")
        if self.distance_weight is not None:
            return super().score(X)
        return self._score_sure(X)

    def _check_generator(self):
        if not hasattr(self, "generator_"):
            raise ValueError(
                "There are no latents to search: with distance_weight=None and a model "
                "without gradients, fit trains no generator. Call fit again with "
                "distance_weight set, or with a generator."
            )

    def _validate_params(self):
        """Refuse settings that do not go together, too."""
        super()._validate_params()
        if self.distance_weight is None and self.prediction_weight > 0:
            raise ValueError(
                f"prediction_weight={self.prediction_weight} needs a number for "
                "distance_weight: the nearest sure row may predict what it likes. Set "
                "distance_weight=2.0, for example, or prediction_weight=0."
            )

    def _method(self, trade_offs):
        if trade_offs[0] is not None:
            self._check_generator()
            return super()._method(trade_offs)
        if self._image_shape is not None:
            return SureImages(
                self._target(),
                keep_noise=self.keep_noise is not False,
                max_distance=self.max_distance,
                rule=self._rule(),
                learning_rate=self.learning_rate,
                sure=self._sure_latents(),
            )
        proposers = ["neighbors", "columns"]
        use_slopes = self._provider_has_slopes()
        if use_slopes and hasattr(self, "generator_"):
            proposers.append("latents" if self.keep_noise is False else "noise")
        return self._sure_search(
            proposers=proposers, use_slopes=use_slopes, fit_slopes=True
        )

    def _fit_method(self, problem, usual):
        super()._fit_method(problem, usual)
        self._latents = None
        if self._image_shape is not None and self.n_neighbors:
            kept = np.random.RandomState(0).permutation(len(problem))[:MAX_ROWS]
            some = problem.take(np.sort(kept))
            parts = torch.stack(list(some.before[0]), 1)
            self._latents = some.encode(some.x0).numpy(), parts.numpy()

    def _sure_latents(self):
        if self._latents is None:
            return None
        z, parts = self._latents
        weights = weights_of_parts(self.uncertainty)
        return torch.as_tensor(z[parts @ weights <= self._target()])

    def _provider_has_slopes(self):
        is_differentiable = getattr(self._provider, "is_differentiable", True)
        return self.search != "values" and is_differentiable

    def _uses_generator(self, predictor):
        # Latents are searched by gradients; training rows and columns need none.
        if self.generator is not None or self.distance_weight is not None:
            return True
        is_slow = self.search == "values" or takes_tables(predictor.provider)
        return predictor.is_image or not is_slow

    def _follows_gradients(self, trade_offs):
        return trade_offs[0] is not None or self.search == "gradient"

    def _takes_values(self):
        return self.distance_weight is None and self.search != "gradient"

    def _gives_contributions(self, trade_offs):
        return None in trade_offs and super()._gives_contributions(trade_offs)

    def _describe(self, trade_off, problem, before, after):
        facts = super()._describe(trade_off, problem, before, after)
        if trade_off is None:
            facts |= self._describe_sure(problem, before, after)
        return facts

    def _constrained_space(self):
        return self._space.constrained(
            self.immutable_features, self.feature_ranges, self.fill_missing
        )


class CLUEExplainerCV(_BaseCLUE):
    """CLUE with the weight of the distance chosen by cross-validation.

    The sweep over `distance_weights` happens inside, as in
    :class:`~sklearn.linear_model.LassoCV`: estimator and generator are fitted once
    per fold, and all weights are searched along one path.

    Parameters
    ----------
    estimator : estimator, torch module, list of them, or None, default=None
        The model to explain; see :class:`CLUEExplainer`.

    generator : estimator or None, default=None
        The model of the data whose latent space is searched; see
        :class:`CLUEExplainer`.

    distance_weights : array-like of float, default=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
        Values of `distance_weight` to compare.

    cv : int, cross-validation generator or iterable, default=3
        How to split; see :func:`sklearn.model_selection.check_cv`.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        What to lower.

    prediction_weight : float, default=0.0
        Price of another prediction, λ_y.

    learning_rate : float, default=0.1
        Step size of Adam in latent space.

    min_iter : int, default=3
        Fewest steps of a row.

    max_iter : int, default=35
        Most steps of a row.

    tol : float, default=0.01
        Share of the first objective below which a step is a small one.

    n_iter_no_change : int, default=3
        A row is done after so many small steps in a row. Two that do not even promise a
        decrease count for three.

    init : {"encode", "zeros"}, default="encode"
        Where the search starts.

    init_noise : float, default=0.15
        Standard deviation of the noise on the starts of further explanations.

    n_explanations : int, default=1
        Searches per row.

    immutable_features : list, str or None, default=None
        Columns that keep their value.

    feature_ranges : dict or None, default=None
        What numbers may become.

    rejection_rate : float, default=0.2
        Share of new rows that :meth:`rejects` should pick.

    memory : str, joblib.Memory or None, default=None
        Where to cache fits.

    batch_size : int, default=256
        Rows searched together.

    n_jobs : int or None, default=None
        Batches of rows to explain in parallel.

    random_state : int, RandomState instance or None, default=None
        Fixes all that is left to chance.

    verbose : int, default=0
        1 shows bars while parts are fitted that are not verbose themselves; 2 or more
        prints lines instead, and reports on the batches explained.

    Attributes
    ----------
    distance_weight_ : float
        The chosen weight.

    cv_results_ : dict
        `distance_weight`, `mean_score` and `split_scores` of shape (n_weights,
        n_splits): how well the two terms balance, see :meth:`score`.

    estimator_ : estimator, torch module or list
        The model, fitted to all rows.

    generator_ : estimator
        The generator, fitted to all rows.

    threshold_ : float
        Total uncertainty above which :meth:`rejects` picks a row.

    classes_ : ndarray of shape (n_classes,)
        The class labels, for a classifier.

    is_classification_ : bool
        Whether the model predicts classes.

    n_iter_ : int or None
        Epochs that the generator was trained for, if it says so.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    CLUEExplainer : With a given weight; works in GridSearchCV over anything.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainerCV, VAEEncoder
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=200) > 0
    >>> clue = CLUEExplainerCV(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=20), random_state=0
    ... ).fit(X, y)
    >>> clue.distance_weight_ in clue.distance_weights
    True
    """

    _parameter_constraints: dict = {
        **_BaseCLUE._parameter_constraints,
        "distance_weights": ["array-like"],
        "cv": ["cv_object"],
    }

    def __init__(
        self,
        estimator=None,
        generator=None,
        *,
        distance_weights=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        cv=3,
        uncertainty="total",
        prediction_weight=0.0,
        learning_rate=0.1,
        min_iter=3,
        max_iter=35,
        tol=0.01,
        n_iter_no_change=3,
        init="encode",
        init_noise=0.15,
        n_explanations=1,
        immutable_features=None,
        feature_ranges=None,
        rejection_rate=0.2,
        memory=None,
        batch_size=256,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.generator = generator
        self.distance_weights = distance_weights
        self.cv = cv
        self.uncertainty = uncertainty
        self.prediction_weight = prediction_weight
        self.learning_rate = learning_rate
        self.min_iter = min_iter
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.init = init
        self.init_noise = init_noise
        self.n_explanations = n_explanations
        self.immutable_features = immutable_features
        self.feature_ranges = feature_ranges
        self.rejection_rate = rejection_rate
        self.memory = memory
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **fit_params):
        """Choose the weight of the distance, and fit the parts to all rows.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values.

        **fit_params : dict
            `groups` for the splitter. Metadata such as `sample_weight`: for the
            estimator, or routed as requested if metadata routing is enabled.

        Returns
        -------
        self : object
            The fitted explainer.
        """
        weights = read_weights("distance_weights", self.distance_weights)
        X, y = self._check_table(X, y)
        groups = fit_params.pop("groups", None)  # for the splitter
        cv = check_cv(self.cv, y, classifier=is_classifier(self))
        settings = self.get_params(deep=False)
        del settings["distance_weights"], settings["cv"]
        # All rows first: a fold may lack the one that something is wrong with.
        self._fit(X, y, fit_params)
        folds = cv.split(X, y, groups)
        scores = self._sweep(X, y, fit_params, folds, settings, weights)
        best = int(scores.mean(1).argmax())
        self.distance_weight_ = float(weights[best])
        self.cv_results_ = {
            "distance_weight": weights,
            "mean_score": scores.mean(1),
            "split_scores": scores,
        }
        return self

    def _sweep(self, X, y, fit_params, folds, settings, weights):
        """Score all weights of the distance on all folds."""
        scores = []
        for train, test in folds:
            fold = CLUEExplainer(**settings)
            params = {
                name: _take(value, train, len(X)) for name, value in fit_params.items()
            }
            target = None if y is None else take(y, train)
            fold.fit(take(X, train), target, **params)
            scores.append(fold._scores(take(X, test), tuple(weights)))
        return np.transpose(scores)

    def _trade_off_value(self):
        return self.distance_weight_
