"""The only door to names that scikit-learn keeps private or has moved.

Everything else in the package imports validation helpers from here, so a new
scikit-learn release can break one file at most.
"""

from sklearn.base import _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._metadata_requests import _routing_enabled
from sklearn.utils._param_validation import (
    HasMethods,
    Hidden,
    Interval,
    Options,
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
    from sklearn.utils.validation import (
        _is_pandas_df as is_pandas_df,
    )
    from sklearn.utils.validation import (
        _is_polars_df as is_polars_df,
    )

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:
        """Stands in for callbacks where scikit-learn has none."""

        def _init_callback_context(self, **kwargs):
            return None

    def with_callbacks(method):
        return method


__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "Hidden",
    "Interval",
    "Options",
    "StrOptions",
    "_check_feature_names_in",
    "_check_sample_weight",
    "_fit_context",
    "_routing_enabled",
    "_safe_indexing",
    "check_is_fitted",
    "is_pandas_df",
    "is_polars_df",
    "validate_data",
    "validate_params",
    "with_callbacks",
]
