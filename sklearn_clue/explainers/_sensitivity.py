"""Local sensitivity: one step against the gradient of the uncertainty."""

from numbers import Integral, Real

import numpy as np
import torch

from sklearn_clue._validation import Interval
from sklearn_clue.explainers._base import BaseUncertaintyExplainer
from sklearn_clue.explainers._objectives import Objective
from sklearn_clue.explainers._problem import with_slope
from sklearn_clue.explainers._results import Found


class GradientStep:
    """Take one step down the uncertainty in encoded space (Sec. 4), for many rows.

    Parameters
    ----------
    step_sizes : sequence of float
        η, one step for each.
    """

    def __init__(self, step_sizes):
        self.step_sizes = step_sizes

    def objective(self, problem, step_size):
        """What candidates are ranked by."""
        return Objective(problem)

    def __call__(self, problem):
        """Step from all rows of a problem; one `Found` per size."""
        everyone = torch.arange(len(problem))
        _, slope = with_slope(lambda x: problem.uncertainty(x, everyone), problem.x0)
        done = np.ones((len(problem), 1), dtype=np.int64)
        found = []
        for step_size in self.step_sizes:
            x = problem.valid(problem.x0 - step_size * slope, everyone)
            found.append(
                Found(x=x[:, None].numpy(), n_iter=done, converged=done.astype(bool))
            )
        return found


class LocalSensitivityExplainer(BaseUncertaintyExplainer):
    """Explain why a model is unsure, by one step against the gradient.

    The uncertainty of the model has a gradient at each row, and a step against it
    leads to a row that the model is surer about, if the step is small. It is the
    local form of uncertainty sensitivity analysis, and the simplest baseline for
    :class:`CLUEExplainer`: nothing is searched, and there is no model of the data,
    so nothing keeps the result near real rows.

    Parameters
    ----------
    estimator : estimator, torch module, list of them, or None, default=None
        The model to explain; see :class:`CLUEExplainer`. None means
        :class:`~sklearn_clue.BayesianMLPClassifier`.

    step_size : float, default=1.0
        Length of the step, η in the paper, in multiples of the gradient: in nats, or
        standard deviations of the target, per standard deviation of a number. Larger
        values change more.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        What to lower: all uncertainty, the part from noise in the data, the part from
        not knowing the model, or a sum with weights.

    image_shape : tuple of int or None, default=None
        `(height, width)` or `(channels, height, width)` if rows are images: pixels
        then stay between 0 and 1, or 0 and 255 for integers.

    immutable_features : list, str or None, default=None
        Columns that keep their value: names, or positions if X is an array.

    feature_ranges : dict or None, default=None
        What numbers may become; see :class:`CLUEExplainer`.

    rejection_rate : float, default=0.2
        Share of new rows that :meth:`rejects` should pick.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fit of the estimator.

    batch_size : int, default=256
        Rows explained together. It bounds the memory and has no influence on the
        result.

    n_jobs : int or None, default=None
        Batches of rows to explain in parallel.

    random_state : int, RandomState instance or None, default=None
        Fixes the fit of an estimator that has no `random_state` of its own.

    verbose : int, default=0
        1 shows bars while parts are fitted that are not verbose themselves; 2 or more
        prints lines instead, and reports on the batches explained.

    Attributes
    ----------
    estimator_ : estimator, torch module or list
        The fitted model.

    threshold_ : float
        Total uncertainty above which :meth:`rejects` picks a row, in nats or the unit
        of the target.

    classes_ : ndarray of shape (n_classes,)
        The class labels, for a classifier.

    is_classification_ : bool
        Whether the model predicts classes.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    CLUEExplainer : Searches among rows that look like real ones.
    UFIDOExplainer : Replaces as few features as possible.
    sklearn_clue.providers.global_sensitivity : The mean over rows, by feature.

    Notes
    -----
    The step is taken in encoded space. What it leads to is made a valid row: a category
    becomes the one with the largest indicator, so it changes where the step closes
    the gap of one between two indicators, and whole numbers are rounded into the range
    of the training data.

    A long step leaves the neighbourhood where the gradient means something, and the
    uncertainty may rise. The row at the end of the step is returned all the same,
    and `uncertainty_after` says how sure the model is about it.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021.

    Depeweg, Hernández-Lobato, Udluft, Runkler, "Sensitivity Analysis for Predictive
    Uncertainty", ESANN 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import LocalSensitivityExplainer
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 300), "age": rng.normal(50, 9, 300)}
    ... )
    >>> y = np.where(X["dose"] > 5, "works", "fails")
    >>> explainer = LocalSensitivityExplainer(LogisticRegression()).fit(X, y)
    >>> explanation = explainer.explain(pd.DataFrame({"dose": [5.2], "age": [50.0]}))
    >>> bool(explanation.counterfactuals["dose"][0] > 5.5)
    True
    """

    _name = "Local Sensitivity"
    _trade_off = "step_size"

    _parameter_constraints: dict = {
        **BaseUncertaintyExplainer._parameter_constraints,
        "step_size": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    def __init__(
        self,
        estimator=None,
        *,
        step_size=1.0,
        uncertainty="total",
        image_shape=None,
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
        self.step_size = step_size
        self.uncertainty = uncertainty
        self.image_shape = image_shape
        self.immutable_features = immutable_features
        self.feature_ranges = feature_ranges
        self.rejection_rate = rejection_rate
        self.memory = memory
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, y, fit_params):
        shape = self.image_shape
        if shape is not None and not (
            np.ndim(shape) == 1
            and len(shape) in (2, 3)
            and all(isinstance(n, Integral) and n > 0 for n in shape)
            and np.prod(shape) == np.shape(X)[1]
        ):
            raise ValueError(
                "image_shape must be (height, width) or (channels, height, width) and "
                f"hold as many pixels as X has columns, got {shape!r} and "
                f"{np.shape(X)[1]} columns."
            )
        return super()._fit(X, y, fit_params)

    def _method(self, trade_offs):
        return GradientStep(trade_offs)
