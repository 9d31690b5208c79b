"""The only door to names that scikit-learn keeps private or has moved, and our checks.

Everything else in the package imports validation helpers from here, so a new
scikit-learn release can break one file at most.
"""
# ruff: noqa: F401  (names are imported here to be imported from here)

import functools
import re
import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, metadata
from numbers import Integral
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._metadata_requests import _routing_enabled
from sklearn.utils._param_validation import (
    HasMethods,
    Hidden,
    Interval,
    StrOptions,
    validate_params,
)
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

try:
    from sklearn.utils._dataframe import is_pandas_df, is_polars_df
except ImportError:  # scikit-learn < 1.9
    from sklearn.utils.validation import _is_pandas_df as is_pandas_df
    from sklearn.utils.validation import _is_polars_df as is_polars_df

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:
        """Stands in for callbacks where scikit-learn has none."""

        def _init_callback_context(self, **kwargs):
            return None

    def with_callbacks(method):
        return method


def fit_context(*, prefer_skip_nested_validation):
    """Decorate `fit` as scikit-learn does, and let it happen whole or not at all.

    A `fit` that raises, or is interrupted, leaves the estimator as it was before: an
    earlier model with all that belongs to it, or none.
    """
    checked = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)

    def decorate(fit):
        fit = checked(fit)

        @functools.wraps(fit)
        def whole_fit(estimator, *args, **kwargs):
            before = dict(vars(estimator))
            try:
                return fit(estimator, *args, **kwargs)
            except BaseException:
                # Callbacks are torn down after this, by what they have stored.
                now = {k: v for k, v in vars(estimator).items() if "callback" in k}
                vars(estimator).clear()
                vars(estimator).update(before, **now)
                raise

        return whole_fit

    return decorate


def documentation_address():
    """Where the documentation is: published, or built in this checkout, or nowhere."""
    try:
        urls = metadata("sklearn-clue").get_all("Project-URL") or []
    except PackageNotFoundError:  # used from a folder, without being installed
        urls = []
    for url in urls:
        label, _, address = url.partition(", ")
        if label == "Documentation":
            return address.rstrip("/")
    built = Path(__file__).parents[1] / "doc" / "_build" / "html"
    return built.as_uri() if (built / "generated").is_dir() else ""


class DocLinkMixin:
    """Link what a notebook shows of an estimator to its page of our documentation.

    Without a link, scikit-learn shows no tooltips of parameters either.
    """

    _doc_link_module = "sklearn_clue"

    @property
    def _doc_link_template(self):
        address = documentation_address()
        return f"{address}/generated/{{page}}.html" if address else ""

    def _doc_link_url_param_generator(self):
        name, module = type(self).__name__, type(self).__module__
        if hasattr(sys.modules["sklearn_clue"], name):
            return {"page": f"sklearn_clue.{name}"}
        return {"page": f"{module.partition('._')[0]}.{name}"}


@contextmanager
def naming(argument):
    """Let errors of scikit-learn and numpy say which argument they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"\b{argument}\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{argument} cannot be used: {error}") from error


def check_count(name, value):
    """Check an argument of a method that counts something."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(
            f"{name} must be a positive whole number, got {value!r}. Give at least 1."
        )


def listing(values, limit=5):
    """The first few values, for a message."""
    shown = ", ".join(repr(value) for value in list(values)[:limit])
    more = len(values) - limit
    return f"{shown} and {more} more" if more > 0 else shown


# Networks compute in float32. Standard scores and weights up to here leave room for the
# squares that gradients and variances are made of.
MAX_MAGNITUDE = 1e18


def check_weights(sample_weight, X):
    """Read the weights of rows: none is negative, and some row has one.

    Parameters
    ----------
    sample_weight : array-like of shape (n_samples,), float or None
        The weights as the user gave them; None means one each.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        The rows.

    Returns
    -------
    weight : ndarray of shape (n_samples,)
        As float64.
    """
    check_unmasked("sample_weight", sample_weight)
    with naming("sample_weight"):
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    if not weight.any():  # scikit-learn < 1.9 lets this pass
        raise ValueError(
            "sample_weight holds nothing but zeros, so there is no row to learn "
            "from. Give some rows a positive weight."
        )
    if weight.max() > MAX_MAGNITUDE:
        raise ValueError(
            f"sample_weight holds {weight.max():.3g}, which is more than networks can "
            f"add up. A row of weight 2 counts as the row twice: keep weights below "
            f"{MAX_MAGNITUDE:.0e}."
        )
    return weight


def check_unmasked(name, values):
    """Refuse masked entries, for numpy would take what lies under the mask."""
    if np.ma.is_masked(values):
        n_masked = np.ma.count_masked(values)
        raise ValueError(
            f"{name} is a masked array in which {n_masked} of {np.size(values)} "
            "values are masked. Leave out those rows, or fill in the values."
        )


def check_labels(y):
    """Refuse class labels that are missing, or that cannot be put in an order."""
    if y.dtype != object:
        return
    missing = pd.isna(y)
    if missing.any():
        raise ValueError(
            f"Input y contains NaN or None: {missing.sum()} of {len(y)} labels are "
            "missing. Leave out those rows, or give them a label of their own."
        )
    types = sorted({type(label).__name__ for label in y})
    try:
        np.unique(y)
    except TypeError as error:
        raise TypeError(
            f"The labels in y mix the types {', '.join(types)}, which have no common "
            "order. Convert them, for example with astype(str)."
        ) from error


def check_widths(hidden_layer_sizes):
    """Read the widths of hidden layers; an empty sequence means a linear model."""
    widths = np.atleast_1d(np.asarray(hidden_layer_sizes))
    if widths.size and (
        widths.ndim != 1 or widths.dtype.kind not in "iu" or widths.min() < 1
    ):
        raise ValueError(
            "hidden_layer_sizes must hold the widths of the hidden layers, all at "
            f"least 1, got {hidden_layer_sizes!r}."
        )
    return tuple(int(width) for width in widths)


def drop_weightless_rows(weight, *tables):
    """Leave out rows of weight zero; return the weights and tables of the others."""
    if weight.all():
        return weight, *tables
    present = np.flatnonzero(weight)
    return weight[present], *(_safe_indexing(table, present) for table in tables)


def merge_repeated_rows(weight, *arrays):
    """Merge equal rows, adding up their weights, and put them in a canonical order.

    A row of weight 2 then is the row twice, and the order of the rows leaves no trace.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,)
        Weights of the rows.

    *arrays : ndarrays of shape (n_rows, ...)
        What makes up the rows, side by side.

    Returns
    -------
    weight : ndarray of shape (n_distinct,)
        Weights of the distinct rows.

    *arrays : ndarrays of shape (n_distinct, ...)
        The distinct rows, cut as they came, in two dimensions.
    """
    arrays = [array.reshape(len(array), -1) for array in arrays]
    ends = np.cumsum([array.shape[1] for array in arrays])
    rows, position = np.unique(np.hstack(arrays), axis=0, return_inverse=True)
    weight = np.bincount(position.ravel(), weights=weight)
    return weight, *np.split(rows, ends[:-1], axis=1)
