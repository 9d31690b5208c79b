"""Errors and warnings that callers may want to catch by name."""

from sklearn.exceptions import ConvergenceWarning

__all__ = ["ChainDivergedError", "EncodingMismatchError", "SearchConvergenceWarning"]


class EncodingMismatchError(ValueError):
    """Two parts of one explainer encode the same columns differently.

    An explainer searches in one encoded space. A predictor and a generator that were
    fitted apart may disagree about categories or scaling, and a row moved in the
    space of one would mean something else to the other.

    Examples
    --------
    >>> from sklearn_clue.exceptions import EncodingMismatchError
    >>> issubclass(EncodingMismatchError, ValueError)
    True
    """


class ChainDivergedError(RuntimeError):
    """A sampling chain left the finite numbers, so it has no posterior to offer.

    The message names the epoch, the step size in use and the parameter to lower.

    Examples
    --------
    >>> from sklearn_clue.exceptions import ChainDivergedError
    >>> issubclass(ChainDivergedError, RuntimeError)
    True
    """


class SearchConvergenceWarning(ConvergenceWarning):
    """Some rows ran out of iterations before their search came to rest.

    The rows are returned all the same, flagged by `Explanation.converged`. The
    category is a :class:`sklearn.exceptions.ConvergenceWarning`, so existing filters
    apply.

    Examples
    --------
    >>> from sklearn.exceptions import ConvergenceWarning
    >>> from sklearn_clue.exceptions import SearchConvergenceWarning
    >>> issubclass(SearchConvergenceWarning, ConvergenceWarning)
    True
    """
