"""U-FIDO: the features that must be filled in anew for the model to be sure."""

from numbers import Integral, Real

import torch
from sklearn.utils import check_random_state

from sklearn_clue._torch import load_optimizers, row_uniforms
from sklearn_clue._validation import HasMethods, Interval, check_is_fitted
from sklearn_clue.explainers._base import BaseUncertaintyExplainer, read_weights
from sklearn_clue.explainers._objectives import MaskPenalty
from sklearn_clue.explainers._problem import with_slope
from sklearn_clue.explainers._results import Found
from sklearn_clue.explainers._search import ROUNDING
from sklearn_clue.generative import VAEACImputer

# Of the relaxed Bernoulli distribution: how far from 0 and 1 a relaxed entry may be.
TEMPERATURE = 0.5


class MaskSearch:
    """Find the features to replace (Eq. 5 and 6), for many rows.

    Each row has a log-odds per feature of being replaced. Masks are drawn from a
    relaxed Bernoulli distribution (Maddison et al., 2017; Jang et al., 2017) with
    straight-through gradients: a relaxed entry is rounded before it is used, so only
    valid rows are ever judged, and its gradient passes as if it had not been.

    Parameters
    ----------
    mask_weights : sequence of float
        λ_b, one search for each.

    n_masks : int
        Masks per row and step.

    learning_rate : float
        Step size of Adam on the log-odds.

    max_iter, n_iter_no_change : int
        Most steps, and steps without news after which a row is done.

    seed : int
        Fixes the masks, together with what the row holds.
    """

    def __init__(
        self,
        *,
        mask_weights,
        n_masks,
        learning_rate,
        max_iter,
        n_iter_no_change,
        seed,
    ):
        self.mask_weights = mask_weights
        self.n_masks = n_masks
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.seed = seed

    def objective(self, problem, mask_weight):
        """What is minimised, and candidates are ranked by."""
        # Table of decisions: replaced features are penalised, not kept ones.
        return MaskPenalty(problem, mask_weight)

    def __call__(self, problem):
        """Search for all rows of a problem; one `Found` per weight."""
        rows = FilledRows(problem)
        found = []
        for mask_weight in self.mask_weights:
            objective = self.objective(problem, float(mask_weight))
            best, n_iter, converged = self._settle(rows, objective)
            x, _ = rows.fill(torch.arange(len(problem)), best)
            found.append(
                Found(
                    x=x[:, None].numpy(),
                    n_iter=n_iter[:, None].numpy(),
                    converged=converged[:, None].numpy(),
                )
            )
        return found

    def _settle(self, rows, objective):
        """Give the best mask of each row, the steps taken and who came to rest."""
        n_rows, n_features = rows.is_free.shape
        active = torch.arange(n_rows)
        # A feature that may not change is never replaced.
        log_odds = torch.zeros(n_rows, n_features, dtype=torch.float64)
        log_odds[~rows.is_free] = -torch.inf
        load_optimizers()
        optimiser = torch.optim.Adam([log_odds], lr=self.learning_rate)
        # The first mask to be judged replaces nothing, so no answer is worse.
        best = torch.zeros(n_rows, n_features, dtype=torch.bool)
        value = objective.value(*rows.judge(active, best)[:2], active)
        likely = log_odds > 0
        n_still = torch.zeros(n_rows, dtype=torch.long)
        n_iter = torch.zeros(n_rows, dtype=torch.long)
        converged = ~rows.is_free.any(1)
        active = active[~converged]
        for step in range(self.max_iter):
            if not len(active):
                break
            relaxed = self._relaxed_masks(rows.x0[active], log_odds[active], step)
            # The most likely mask comes along.
            masks = torch.cat([relaxed > 0.5, likely[active][:, None]], 1)
            asked = active.repeat_interleave(masks.shape[1])
            cost, x, slope = rows.judge(asked, masks.flatten(0, 1))
            proposed, which = (
                objective.value(cost, x, asked).unflatten(0, masks.shape[:2]).min(1)
            )
            slope = slope.unflatten(0, masks.shape[:2])
            is_better = value[active] - proposed > ROUNDING * value[active].abs()
            better = active[is_better]
            value[better] = proposed[is_better]
            best[better] = masks[is_better, which[is_better]]

            # Straight-through: ∂L/∂b at the rounded mask, times ∂b/∂(log-odds) of the
            # relaxed one.
            price = objective.weight[active, None, None]
            slope = (slope[:, :-1] + price) * relaxed * (1 - relaxed)
            log_odds.grad = torch.zeros_like(log_odds)
            log_odds.grad[active] = slope.mean(1) / TEMPERATURE
            optimiser.step()
            log_odds[~rows.is_free] = -torch.inf

            is_new = is_better | ((log_odds[active] > 0) != likely[active]).any(1)
            likely[active] = log_odds[active] > 0
            n_still[active] = torch.where(is_new, 0, n_still[active] + 1)
            n_iter[active] += 1
            converged[active] = n_still[active] >= self.n_iter_no_change
            active = active[~converged[active]]
        return best, n_iter, converged

    def _relaxed_masks(self, x0, log_odds, step):
        """Draw relaxed masks of shape (n_rows, n_masks, n_features)."""
        # The noise of a row comes from the row, so neighbours have no influence.
        salt = torch.tensor([[self.seed, step]], dtype=x0.dtype).expand(len(x0), 2)
        shape = (len(x0), self.n_masks, log_odds.shape[1])
        uniform = row_uniforms(torch.cat([x0, salt], 1), shape[1] * shape[2])
        uniform = uniform.view(shape)
        noise = torch.logit(uniform.clamp(1e-12, 1 - 1e-12))
        return torch.sigmoid((log_odds[:, None] + noise) / TEMPERATURE)


class FilledRows:
    """Rows with some features replaced, and what the predictor says of them.

    What a mask makes of a row is always the same, so it is asked about once: as the
    masks of a row settle, most of them have been seen before.

    Parameters
    ----------
    problem : SearchProblem
        The rows, and whom to ask about them.
    """

    def __init__(self, problem):
        self.problem = problem
        widths = [column.span[1] - column.span[0] for column in problem.schema]
        # The feature of each encoded position.
        self.feature = torch.arange(len(widths)).repeat_interleave(torch.tensor(widths))
        everyone = torch.arange(len(problem))
        # A row may start outside of what is allowed.
        self.x0 = problem.within_limits(problem.x0, everyone)
        n_free = torch.zeros(len(problem), len(widths), dtype=torch.long)
        may_move = torch.ones_like(self.x0, dtype=torch.bool)
        if problem.low is not None:
            may_move = problem.low < problem.high
        n_free.index_add_(1, self.feature, may_move.long())
        self.is_free = n_free > 0
        self.alone = self._filled_alone()
        self._position = {}
        self._answers = None

    def fill(self, rows, masks):
        """Replace the masked features of some rows by what the others suggest.

        Parameters
        ----------
        rows : Tensor of shape (n_masks,)
            Numbers of the rows.

        masks : Tensor of bool of shape (n_masks, n_features)
            Which features to replace.

        Returns
        -------
        x : Tensor of shape (n_masks, n_encoded)
            Valid rows; what is kept is kept to the last bit.

        is_replaced : Tensor of bool of shape (n_masks, n_encoded)
            Which positions were masked.
        """
        x0 = self.x0[rows]
        is_replaced = masks[:, self.feature]
        filled = self.problem.impute(x0, ~is_replaced, rows)
        return torch.where(is_replaced, filled, x0), is_replaced

    def _filled_alone(self):
        """What each feature would become if it was the only one to be replaced."""
        n_rows, n_features = self.is_free.shape
        filled = self.x0.clone()
        for number in range(n_features):
            masks = torch.zeros(n_rows, n_features, dtype=torch.bool)
            masks[:, number] = True
            x, is_replaced = self.fill(torch.arange(n_rows), masks & self.is_free)
            filled = torch.where(is_replaced, x, filled)
        return filled

    def judge(self, rows, masks):
        """Ask about rows with masks.

        Parameters
        ----------
        rows, masks : Tensor
            As in `fill`.

        Returns
        -------
        uncertainty : Tensor of shape (n_masks,)
            Of the filled rows.

        x : Tensor of shape (n_masks, n_encoded)
            These rows.

        slope : Tensor of shape (n_masks, n_features)
            Derivative of the uncertainty by the entries of the mask.
        """
        keys = [
            (row, mask.tobytes())
            for row, mask in zip(rows.tolist(), masks.numpy(), strict=True)
        ]
        new = []
        for number, key in enumerate(keys):
            if key not in self._position:
                self._position[key] = len(self._position)
                new.append(number)
        if new:
            answers = self._ask(rows[new], masks[new])
            if self._answers is not None:
                answers = map(torch.cat, zip(self._answers, answers, strict=True))
            self._answers = tuple(answers)
        positions = torch.tensor([self._position[key] for key in keys])
        return tuple(answer[positions] for answer in self._answers)

    def _ask(self, rows, masks):
        x, is_replaced = self.fill(rows, masks)
        cost, slope = with_slope(lambda there: self.problem.uncertainty(there, rows), x)
        # Eq. 6 is linear in the mask once it is known what features are filled with.
        # Differs from the paper: the gradient takes that as given. A network that fills
        # in what is hidden says nothing about what is observed, so for a feature that
        # is kept it is what the others say when it alone is hidden.
        shift = torch.where(is_replaced, x, self.alone[rows]) - self.x0[rows]
        by_feature = torch.zeros(masks.shape, dtype=x.dtype)
        by_feature.index_add_(1, self.feature, slope * shift)
        return cost, x, by_feature


class UFIDOExplainer(BaseUncertaintyExplainer):
    """Explain why a model is unsure, by the fewest features to fill in anew.

    FIDO for uncertainty: search for a set of features such that the model becomes sure
    when they are replaced by what the remaining ones suggest, according to a
    generative model of the data. Features outside of the set come back untouched.

    Raw DataFrames are welcome, and explanations come back in the same columns and
    units.

    Parameters
    ----------
    estimator : estimator, torch module, list of them, or None, default=None
        The model to explain; see :class:`CLUEExplainer`. None means
        :class:`~sklearn_clue.BayesianMLPClassifier`.

    generator : estimator or None, default=None
        The model of the data that fills in what is replaced: any estimator with a
        method `conditional_model`, see
        :class:`~sklearn_clue.generative.ConditionalModel`. None means
        :class:`~sklearn_clue.VAEACImputer`. It is fitted in the encoded space of the
        estimator.

    mask_weight : float, default=0.05
        Price of each replaced feature, λ_b in the paper: in nats, or standard
        deviations of the target. Larger values change less and explain less.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        What to lower: all uncertainty, the part from noise in the data, the part from
        not knowing the model, or a sum with weights.

    n_masks : int, default=16
        Masks drawn per row and step. More of them give a steadier search.

    learning_rate : float, default=0.1
        Step size of Adam on the log-odds of being replaced.

    max_iter : int, default=60
        Most steps.

    n_iter_no_change : int, default=10
        A row is done after so many steps in which neither its best objective nor its
        most likely mask has changed.

    immutable_features : list, str or None, default=None
        Columns that keep their value: names, or positions if X is an array.

    feature_ranges : dict or None, default=None
        What numbers may become; see :class:`CLUEExplainer`.

    rejection_rate : float, default=0.2
        Share of new rows that :meth:`rejects` should pick.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fits of estimator and generator.

    batch_size : int, default=256
        Rows searched together. It bounds the memory and has no influence on the
        result.

    n_jobs : int or None, default=None
        Batches of rows to explain in parallel.

    random_state : int, RandomState instance or None, default=None
        Fixes the masks, and the fits of parts that have no `random_state` of their
        own.

    verbose : int, default=0
        1 shows bars while parts are fitted that are not verbose themselves; 2 or more
        prints lines instead, and reports on the batches explained.

    Attributes
    ----------
    estimator_ : estimator, torch module or list
        The fitted model.

    generator_ : estimator
        The fitted generator.

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
    CLUEExplainer : Searches among rows that look like real ones.
    LocalSensitivityExplainer : Takes one step against the gradient.

    Notes
    -----
    `objective` is the uncertainty plus `mask_weight` times the number of features that
    changed. It is never above the uncertainty of the row itself, if that keeps the
    constraints.

    The paper's formula puts the price on features that are kept; it is on those that
    are replaced here, as in the authors' code. There is one entry of the mask per
    feature, whereas that code has one per indicator of a category.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Chang, Creager, Goldenberg, Duvenaud, "Explaining Image Classifiers by
    Counterfactual Generation", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import UFIDOExplainer, VAEACImputer
    >>> rng = np.random.default_rng(0)
    >>> hot = rng.random(300) < 0.5
    >>> degrees = np.where(hot, 30.0, 5.0) + rng.normal(0, 3, 300)
    >>> X = pd.DataFrame({"degrees": degrees, "sales": 9 * hot + rng.normal(size=300)})
    >>> explainer = UFIDOExplainer(
    ...     LogisticRegression(),
    ...     VAEACImputer(2, (20,), learning_rate=1e-2, max_iter=30),
    ...     random_state=0,
    ... ).fit(X, hot)
    >>> odd = pd.DataFrame({"degrees": [17.0], "sales": [9.0]})  # a broken sensor?
    >>> degrees, sales = explainer.explain(odd).counterfactuals.iloc[0]
    >>> bool(degrees > 25), bool(sales == 9.0)
    (True, True)
    """

    _name = "U-FIDO"
    _trade_off = "mask_weight"

    _parameter_constraints: dict = {
        **BaseUncertaintyExplainer._parameter_constraints,
        "generator": [HasMethods(["fit", "conditional_model"]), None],
        "mask_weight": [Interval(Real, 0, None, closed="left")],
        "n_masks": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator=None,
        generator=None,
        *,
        mask_weight=0.05,
        uncertainty="total",
        n_masks=16,
        learning_rate=0.1,
        max_iter=60,
        n_iter_no_change=10,
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
        self.mask_weight = mask_weight
        self.uncertainty = uncertainty
        self.n_masks = n_masks
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.immutable_features = immutable_features
        self.feature_ranges = feature_ranges
        self.rejection_rate = rejection_rate
        self.memory = memory
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _default_generator(self):
        return VAEACImputer()

    def explain_path(self, X, mask_weights):
        """Explain rows with several weights of the mask, in one search.

        The answers are those of separate calls of :meth:`explain`. It costs less, as
        the model is asked once about a mask that comes up with several weights.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain.

        mask_weights : array-like of float
            Values of `mask_weight`.

        Returns
        -------
        explanations : list of Explanation
            One per weight, in the given order.
        """
        check_is_fitted(self, "estimator_")
        weights = read_weights("mask_weights", mask_weights)
        return self._explain(X, tuple(weights.tolist()))

    def _model(self):
        return self.generator_.conditional_model()

    def _method(self, trade_offs):
        return MaskSearch(
            mask_weights=trade_offs,
            n_masks=self.n_masks,
            learning_rate=self.learning_rate,
            max_iter=self.max_iter,
            n_iter_no_change=self.n_iter_no_change,
            seed=check_random_state(self.random_state).randint(2**24),
        )
