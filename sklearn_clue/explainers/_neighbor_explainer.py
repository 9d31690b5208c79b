"""The nearest sure training rows, with their needless changes undone."""

from numbers import Integral

from sklearn_clue._validation import Interval, check_is_fitted
from sklearn_clue.explainers._base import BaseUncertaintyExplainer
from sklearn_clue.explainers._question import AsksForSureRows


class NeighborExplainer(AsksForSureRows, BaseUncertaintyExplainer):
    """Explain why a model is unsure, by sure training rows near by.

    The nearest training rows that the model is sure about are taken, and all of their
    changes that are not needed are undone, as long as the row stays sure and
    believable. There is no generator and no gradient: it is the simplest thing that
    works, and the rival that :class:`CLUEExplainer` has to beat.

    Parameters
    ----------
    estimator : estimator, torch module, list of them, or None, default=None
        The model to explain; see :class:`CLUEExplainer`. None means
        :class:`~sklearn_clue.BayesianMLPClassifier`.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        What to lower: all uncertainty, the part from noise in the data, the part from
        not knowing the model, or a sum with weights.

    target_uncertainty : float or None, default=None
        The uncertainty up to which the model counts as sure; see
        :class:`CLUEExplainer`.

    min_plausibility : "row", float or None, default="row"
        Least plausibility of a counterfactual; see :class:`CLUEExplainer`.

    max_distance : float or None, default=None
        Largest l1 distance of a counterfactual, in encoded space.

    n_neighbors : int, default=10
        Sure training rows to start from. At most 5000 encoded training rows are
        stored.

    n_explanations : int, default=1
        Sure rows to find for each row, as `candidates`, the nearest first: each changes
        other columns than those before it as far as possible, and there are fewer where
        no more are found.

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
    CLUEExplainer : Looks beyond the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 300), "age": rng.normal(50, 9, 300)}
    ... )
    >>> y = np.where(X["dose"] > 5, "works", "fails")
    >>> explainer = NeighborExplainer(LogisticRegression()).fit(X, y)
    >>> explanation = explainer.explain(pd.DataFrame({"dose": [5.2], "age": [50.0]}))
    >>> bool(explanation.is_sure[0]), int(explanation.n_changed[0])
    (True, 1)
    """

    _name = "Neighbors"
    _trade_off = "target_uncertainty"

    _parameter_constraints: dict = {
        **BaseUncertaintyExplainer._parameter_constraints,
        **AsksForSureRows._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator=None,
        *,
        uncertainty="total",
        target_uncertainty=None,
        min_plausibility="row",
        max_distance=None,
        n_neighbors=10,
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
        self.uncertainty = uncertainty
        self.target_uncertainty = target_uncertainty
        self.min_plausibility = min_plausibility
        self.max_distance = max_distance
        self.n_neighbors = n_neighbors
        self.n_explanations = n_explanations
        self.immutable_features = immutable_features
        self.feature_ranges = feature_ranges
        self.rejection_rate = rejection_rate
        self.memory = memory
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def score(self, X, y=None):
        """Tell how good the explanations of the rejected rows are.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows; those above `threshold_` are explained.

        y : None
            Ignored.

        Returns
        -------
        score : float
            The number of rejected rows that got one that is sure and as plausible as
            demanded, plus 1 / (1 + d) of their mean distance d, over the number of
            rejected rows. NaN, with a warning, where no row is rejected.
        """
        check_is_fitted(self, "estimator_")
        return self._score_sure(X)

    def _follows_gradients(self, trade_offs):
        return False

    def _method(self, trade_offs):
        return self._sure_search(proposers=("neighbors",), use_slopes=False)

    def _describe(self, trade_off, problem, before, after):
        facts = super()._describe(trade_off, problem, before, after)
        return facts | self._describe_sure(problem, before, after)
