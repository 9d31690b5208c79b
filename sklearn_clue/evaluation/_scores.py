"""Figures of merit of explanations, and scorers for searches over settings.

Good explanations are informative: the uncertainty is gone. And they are relevant: they
stay near the row that they explain, and near the data. One comes at the price of the
other, and the knee point is where the price is best.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_consistent_length

from sklearn_clue._validation import _safe_indexing, check_is_fitted
from sklearn_clue.explanation import balance, knee_distances, knee_index
from sklearn_clue.providers import peel
from sklearn_clue.uncertainty import Uncertainty

# Columns of `cv_results_` that `EXPLANATION_SCORERS` fill and `knee_point` reads.
GAIN_SCORE, COST_SCORE = "uncertainty_explained", "neg_distance"


def informativeness(explanation, *, uncertainty="total", average=True):
    """Measure how much uncertainty an explanation explains away.

    This is ΔH of the paper: the fall from each row to its counterfactual, in the eyes
    of the model itself. Greater is better.

    Parameters
    ----------
    explanation : Explanation
        What an explainer returned.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        Which part should fall, or weights of several, as in
        :class:`~sklearn_clue.CLUEExplainer`.

    average : bool, default=True
        Whether to give the mean over the rows, or the fall of each row.

    Returns
    -------
    fall : float or ndarray of shape (n_rows,)
        Nats for classes, the unit of the target for regression. Negative where the
        model is less sure about the counterfactual than about the row.

    See Also
    --------
    relevance : What it costs.

    Notes
    -----
    A model has weak spots where it is sure without reason, and an explainer that finds
    them looks informative by this measure. Look at :func:`relevance` with the training
    rows as well: weak spots are off the data.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Section 4 and Appendix H.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> from sklearn_clue.evaluation import informativeness, relevance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=200) > 0
    >>> clue = CLUEExplainer(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=20), random_state=0
    ... ).fit(X, y)
    >>> cheap, dear = clue.explain_path(X[clue.rejects(X)], [0.1, 10.0])
    >>> informativeness(cheap) > informativeness(dear)  # changes cost less ...
    True
    >>> relevance(cheap) > relevance(dear)  # ... and so they are larger
    True
    """
    _check_has_rows(explanation)
    weights = _kind_weights(uncertainty)
    fall = sum(
        weight
        * (
            np.asarray(getattr(explanation.uncertainty_before, kind))
            - np.asarray(getattr(explanation.uncertainty_after, kind))
        )
        for kind, weight in weights.items()
    )
    return float(fall.mean()) if average else fall


def relevance(explanation, X_train=None, *, explainer=None, average=True):
    """Measure how far an explanation goes: from its rows, or from the training data.

    Smaller is more relevant. Without training rows this is the l1 distance of each
    counterfactual from the row that it explains; with them, the Euclidean distance
    from the nearest training row (d_NN2 of the paper), which is large for rows that
    look like no data. Both are in encoded space, where numbers are in standard
    deviations.

    Parameters
    ----------
    explanation : Explanation
        What an explainer returned.

    X_train : {array-like, DataFrame} of shape (n_train, n_features), default=None
        Training rows, as `explainer` takes them. Without an explainer, rows of encoded
        space.

    explainer : explainer or Pipeline, default=None
        The fitted explainer that `explanation` comes from, or a pipeline that ends in
        it; it encodes `X_train`.

    average : bool, default=True
        Whether to give the mean over the rows, or the distance of each row.

    Returns
    -------
    distance : float or ndarray of shape (n_rows,)
        The distance.

    See Also
    --------
    informativeness : What it is good for.
    nearest_neighbor_distance : The same for any rows.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Section 4 and Appendix H.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> from sklearn_clue.evaluation import relevance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=200) > 0
    >>> clue = CLUEExplainer(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=20), random_state=0
    ... ).fit(X, y)
    >>> explanation = clue.explain(X[clue.rejects(X)])
    >>> from_rows = relevance(explanation)
    >>> from_data = relevance(explanation, X, explainer=clue)
    >>> from_data < from_rows
    True
    """
    _check_has_rows(explanation)
    if X_train is None:
        distance = np.asarray(explanation.distance)
    else:
        if explanation.encoded_counterfactuals is None:
            raise ValueError(
                "The explanation does not hold its counterfactuals in encoded space, "
                "where distances are measured. Use one that an explainer returned, or "
                "encode the rows and call nearest_neighbor_distance."
            )
        rows = explanation.encoded_counterfactuals
        if explainer is not None:
            X_train = _encode(explainer, X_train)
        elif np.shape(X_train)[1:] != rows.shape[1:]:
            raise ValueError(
                f"X_train is of shape {np.shape(X_train)}, but encoded space has "
                f"{rows.shape[1]} columns. Pass explainer= to have X_train encoded."
            )
        distance = nearest_neighbor_distance(rows, X_train)
    return float(distance.mean()) if average else distance


def nearest_neighbor_distance(X, reference, *, explainer=None):
    """Measure how far rows are from their nearest neighbours among others.

    Parameters
    ----------
    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows.

    reference : {array-like, DataFrame} of shape (n_reference, n_features)
        Rows to find neighbours among, for example the training data.

    explainer : explainer or Pipeline, default=None
        A fitted explainer whose encoded space to measure in, or a pipeline that ends
        in one: both tables are then as it takes them, with categories as well as
        numbers. None takes numbers as they are.

    Returns
    -------
    distance : ndarray of shape (n_samples,)
        Euclidean distance to the nearest row of `reference`: d_NN2 of the paper.

    See Also
    --------
    relevance : The same for the counterfactuals of an explanation.

    Notes
    -----
    The 2 of d_NN2 is that of L2. There is one neighbour.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Appendix H.2.

    Examples
    --------
    >>> from sklearn_clue.evaluation import nearest_neighbor_distance
    >>> nearest_neighbor_distance([[3, 4], [9, 9]], [[0, 0], [9, 8], [-9, 0]])
    array([5., 1.])
    """
    if explainer is not None:
        X, reference = _encode(explainer, X), _encode(explainer, reference)
    X = check_array(X, dtype=np.float64, input_name="X")
    reference = check_array(reference, dtype=np.float64, input_name="reference")
    if X.shape[1] != reference.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and reference has {reference.shape[1]}: they "
            "must hold the same columns."
        )
    neighbours = NearestNeighbors(n_neighbors=1).fit(reference)
    nearest = neighbours.kneighbors(X, return_distance=False)[:, 0]
    # Not the distances of the search: fast ones are a little off, and 0 must be 0.
    return np.linalg.norm(X - reference[nearest], axis=1)


def mean_ratio(gain, cost):
    """Average what is gained per unit of cost, row by row.

    Parameters
    ----------
    gain : array-like of shape (n_rows,)
        For example the uncertainty explained of each row.

    cost : array-like of shape (n_rows,)
        For example the distance of each row from its nearest neighbour.

    Returns
    -------
    ratio : float
        Mean of the ratios of the rows whose cost is not 0; NaN if there are none.

    n_left_out : int
        Number of rows whose cost is 0. Their ratio is not a number, and they may be
        the best ones: report how many they are.

    See Also
    --------
    knee_point_distance : Another way to one figure from two.

    Examples
    --------
    >>> from sklearn_clue.evaluation import mean_ratio
    >>> mean_ratio([1.0, 3.0, 0.5], [2.0, 1.0, 0.0])
    (1.75, 1)
    """
    gain, cost = np.asarray(gain, dtype=float), np.asarray(cost, dtype=float)
    check_consistent_length(gain, cost)
    counts = cost != 0
    ratio = float((gain[counts] / cost[counts]).mean()) if counts.any() else np.nan
    return ratio, int((~counts).sum())


def knee_point_distance(gain, cost, *, max_gain=None, max_cost=None):
    """Measure how close a trade-off comes to gaining all at no cost.

    This is the figure by which Tables 1 and 2 of the paper compare methods: the
    distance of the best point of a curve, its knee point, from the ideal. Smaller is
    better.

    Parameters
    ----------
    gain : array-like of shape (n_points,)
        What is to be large, for example the uncertainty explained, one entry per
        setting of an explainer.

    cost : array-like of shape (n_points,)
        What is to be small, for example the distance from the original rows.

    max_gain : float, default=None
        What counts as all of the gain; None means the largest one given. To compare
        methods, pass the largest one of all of them.

    max_cost : float, default=None
        What counts as all of the cost, likewise.

    Returns
    -------
    distance : float
        0 for all of the gain at no cost. A curve that contains the setting that
        changes nothing has at most 1/√2.

    See Also
    --------
    knee_point : Chooses the setting in a search.
    sklearn_clue.explanation.knee_distances : The distance of each point.
    sklearn_clue.plotting.TradeOffDisplay : Draws the curves.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Section 5.1.

    Examples
    --------
    >>> from sklearn_clue.evaluation import knee_point_distance
    >>> cost = [0.0, 0.1, 1.0]
    >>> steep = knee_point_distance([0.0, 0.9, 1.0], cost)
    >>> straight = knee_point_distance([0.0, 0.1, 1.0], cost)
    >>> round(steep, 2), round(straight, 2)
    (0.1, 0.64)
    """
    distances = knee_distances(gain, cost, max_gain=max_gain, max_cost=max_cost)
    return float(np.nanmin(distances))


def knee_point(cv_results):
    """Choose the knee point of a search, for use as `refit=knee_point`.

    Parameters
    ----------
    cv_results : dict
        `cv_results_` of a search with `scoring=EXPLANATION_SCORERS`.

    Returns
    -------
    best_index : int
        Position of the candidate that explains most for its distance: the one nearest
        to all of the gain at no cost, both relative to the largest mean scores in the
        search.

    See Also
    --------
    EXPLANATION_SCORERS : The scores it needs, with an example.
    sklearn_clue.explanation.knee_index : The same on arrays.

    Notes
    -----
    The knee depends on which values are in the search: they set what counts as all of
    the gain and all of the cost. Let them cover the range from changing nearly nothing
    to changing nearly everything.

    Examples
    --------
    >>> from sklearn_clue.evaluation import knee_point
    >>> knee_point(
    ...     {
    ...         "mean_test_uncertainty_explained": [0.0, 0.8, 1.0],
    ...         "mean_test_neg_distance": [0.0, -0.1, -1.0],
    ...     }
    ... )
    1
    """
    columns = [f"mean_test_{name}" for name in (GAIN_SCORE, COST_SCORE)]
    missing = [column for column in columns if column not in cv_results]
    if missing:
        raise ValueError(
            f"knee_point needs {' and '.join(map(repr, missing))} in the results of "
            "the search. Use scoring=EXPLANATION_SCORERS; if you do, all scores "
            "failed, and error_score='raise' tells why."
        )
    gain, cost = (np.asarray(cv_results[column], dtype=float) for column in columns)
    if not np.isfinite(gain + cost).any():
        raise ValueError(
            "No candidate of the search could be scored in all splits. Use "
            "error_score='raise' to see why."
        )
    return knee_index(gain, -cost)


class _ExplanationScorers:
    """Score an explainer on new rows, for use as `scoring=EXPLANATION_SCORERS`.

    Explains the rows that the explainer rejects once, and gives all scores of these
    explanations. Greater is better for each of them.

    Parameters
    ----------
    estimator : explainer or Pipeline
        A fitted explainer, or a pipeline that ends in one.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows; those that the explainer rejects are explained, or all if it rejects
        none.

    y : None
        Ignored.

    Returns
    -------
    scores : dict of str to float
        - `uncertainty_explained`: mean fall of the uncertainty that the explainer is
          set to lower, see :func:`informativeness`;
        - `neg_distance`: minus the mean distance, see :func:`relevance`;
        - `balance`: what the `score` method of the explainer gives, for explainers
          with a weight of the distance.

    See Also
    --------
    knee_point : Chooses by the first two.

    Notes
    -----
    `refit="balance"` chooses as a search without `scoring` does. With a `memory`, the
    explainer fits its parts once per split and not for each value of
    `distance_weight`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> from sklearn_clue.evaluation import EXPLANATION_SCORERS, knee_point
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=200) > 0
    >>> clue = CLUEExplainer(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=10), random_state=0
    ... )
    >>> search = GridSearchCV(
    ...     clue,
    ...     {"distance_weight": [0.01, 0.5, 100.0]},
    ...     scoring=EXPLANATION_SCORERS,
    ...     refit=knee_point,
    ...     cv=2,
    ... ).fit(X, y)
    >>> search.best_params_
    {'distance_weight': 0.5}
    >>> explained = search.cv_results_["mean_test_uncertainty_explained"]
    >>> bool(explained[0] > explained[1] > explained[2])
    True
    """

    def __call__(self, estimator, X, y=None):
        explainer, X = _to_explainer(estimator, X)
        rejected = np.flatnonzero(explainer.rejects(X))
        explanation = explainer.explain(
            _safe_indexing(X, rejected) if len(rejected) else X
        )
        # The explainer may be after one part of the uncertainty only.
        kind = getattr(explainer, "uncertainty", "total")
        scores = {
            GAIN_SCORE: informativeness(explanation, uncertainty=kind),
            COST_SCORE: -relevance(explanation),
        }
        if explanation.distance_weight is not None:
            scores["balance"] = balance(explanation)
        return scores

    def __repr__(self):
        return "EXPLANATION_SCORERS"

    def __reduce__(self):
        return "EXPLANATION_SCORERS"  # there is one, and copies are the same


EXPLANATION_SCORERS = _ExplanationScorers()


def _check_has_rows(explanation):
    if not len(explanation):
        raise ValueError("The explanation has no rows, so there is nothing to measure.")


def _kind_weights(uncertainty):
    weights = uncertainty if isinstance(uncertainty, dict) else {uncertainty: 1.0}
    if not weights or not set(weights) <= set(Uncertainty._fields):
        raise ValueError(
            f"uncertainty must be one of {', '.join(map(repr, Uncertainty._fields))}, "
            f"or a mapping of some of them to weights, got {uncertainty!r}."
        )
    return weights


def _to_explainer(estimator, X):
    """Find the explainer, and take rows through the steps that come before it."""
    steps, explainer = peel(estimator)
    if not hasattr(explainer, "explain"):
        raise TypeError(
            "An explainer is needed, or a pipeline that ends in one, got "
            f"{type(explainer).__name__}, which has no explain method."
        )
    check_is_fitted(explainer, "estimator_")
    for step in steps:
        X = step.transform(X)
    return explainer, X


def _encode(explainer, X):
    """Take rows of the user to the encoded space of a fitted explainer."""
    explainer, X = _to_explainer(explainer, X)
    return explainer._space.encode(explainer._check_rows(X, reset=False))
