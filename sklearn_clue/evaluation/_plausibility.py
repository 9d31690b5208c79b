"""How plausible rows are, beside the training rows of an explainer."""

from sklearn_clue.evaluation._scores import _encode, _to_explainer


def plausibility(explainer, X):
    """Tell how plausible rows are: the share of training rows that are no more so.

    A row is plausible if there are training rows near by. This is the share of
    training rows whose mean l1 distance to their five nearest other training rows, in
    encoded space, is at least that of the given row to its five nearest. Ties count
    half, and a training row that equals the given one is one of its five.

    With `n_neighbors=0` an explainer stores no rows. It is then the share of training
    rows that are no denser than the given row, by the density of the generator.

    Parameters
    ----------
    explainer : explainer or Pipeline
        A fitted explainer that stores training rows or has a generator with a density,
        or a pipeline that ends in one.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows, as the explainer takes them.

    Returns
    -------
    plausibility : ndarray of shape (n_samples,)
        Between 0, farther from the training rows than any of them, and 1. New rows of
        the same origin have 0.5 on average.

    See Also
    --------
    relevance : Distances between rows and counterfactuals, or to the data.

    Notes
    -----
    Of very many training rows the explainer keeps some thousands, and all distances
    are to these. In many dimensions a row with one impossible value can be as near to
    others as most rows are: plausibility says that a row looks like the data, not that
    nothing is wrong with it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer
    >>> from sklearn_clue.evaluation import plausibility
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> explainer = NeighborExplainer(LogisticRegression()).fit(X, X[:, 0] > 0)
    >>> plausibility(explainer, [[0.0, 0.0], [9.0, 9.0]]).round(1)
    array([0.6, 0. ])
    """
    inner, _ = _to_explainer(explainer, X)
    measure = getattr(inner, "_measure", lambda: None)()
    if measure is None:
        raise ValueError(
            f"This {type(inner).__name__} stores no training rows, beside which rows "
            "could be judged. Fit it with n_neighbors above 0."
        )
    return measure.plausibility(_encode(explainer, X))
