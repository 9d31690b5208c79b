"""How much the uncertainty of a model depends on each feature."""

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_array, gen_batches

from sklearn_clue import _tables
from sklearn_clue._torch import PRECISE_DTYPE, as_tensor, one_thread
from sklearn_clue.providers._models import names_after, peel, thawed
from sklearn_clue.providers._networks import check_gradients, unit_of
from sklearn_clue.providers._registry import as_provider
from sklearn_clue.uncertainty import weighted_sum, weights_of_parts


def global_sensitivity(model, X, *, uncertainty="total", n_classes=None):
    """Tell how much the uncertainty about rows depends on each feature, on average.

    Uncertainty sensitivity analysis: the mean absolute gradient of the uncertainty
    over rows. It is a sum of linear approximations: it says how much the
    uncertainty would move if a feature did by a little, and nothing about where real
    rows are.

    Parameters
    ----------
    model : estimator, torch module, list of them, or UncertaintyProvider
        A fitted model that :func:`as_provider` accepts, also in a
        :class:`~sklearn.frozen.FrozenEstimator` or at the end of a
        :class:`~sklearn.pipeline.Pipeline`; or a provider, which takes the rows as
        they are.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows to average over, as the model takes them.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        Which uncertainty, or weights of several.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    Returns
    -------
    sensitivity : Series of shape (n_features,)
        By feature, in nats or the unit of the target: per standard deviation of a
        number, and per change of a category.

    See Also
    --------
    sklearn_clue.LocalSensitivityExplainer : Takes a step against the gradient, from
        each row.

    Notes
    -----
    The gradient is taken in the encoded space of the model, where numbers are
    standardised. For a model that has no encoder it is multiplied by the standard
    deviations of the columns that it sees in X.

    No row can have a little more of one category and no less of another, so single
    gradients of a one-hot block mean nothing. What counts is the linear
    approximation of a change: the gradient at another category less that at the
    category of the row, its absolute value averaged over the other categories.

    If steps of a pipeline change the number or the names of the columns, the features
    are those that the last step sees.

    References
    ----------
    Depeweg, Hernández-Lobato, Udluft, Runkler, "Sensitivity Analysis for Predictive
    Uncertainty", ESANN 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.providers import global_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["dose", "age"])
    >>> model = LogisticRegression().fit(X, X["dose"] + rng.normal(size=300) > 0)
    >>> global_sensitivity(model, X).idxmax()
    'dose'
    """
    weights = weights_of_parts(uncertainty)
    steps, model = peel(model)
    inputs = X
    for step in steps:
        inputs = step.transform(inputs)
    inputs = _tables.dense(inputs)
    names = _names_of(X, inputs, steps)
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        inputs = encoder.transform(inputs)
        steps = [*steps, encoder]
    x = check_array(inputs, dtype=np.float64, input_name="X")
    provider = as_provider(model, n_classes)
    check_gradients(provider, "global_sensitivity")
    gradient = _gradient(provider, weights, x)
    # A TabularEncoder knows the columns, inside of the model or before it.
    schema = getattr(thawed(steps[-1]), "schema_", None) if steps else None
    if schema is not None:
        return _by_column(schema, x, gradient)
    if not (provider is model or hasattr(model, "encoder_")):
        gradient = gradient * x.std(0)
    return pd.Series(np.abs(gradient).mean(0), index=names, name="sensitivity")


def _names_of(X, inputs, steps):
    if hasattr(inputs, "columns"):
        return list(inputs.columns)
    names = list(X.columns) if hasattr(X, "columns") else None
    if steps and names is not None:
        names = names_after(steps, names)
    return names if names is not None else range(np.shape(inputs)[1])


def _gradient(provider, weights, x):
    """Gradient of the uncertainty of each row, in the unit of the target."""
    pieces = []
    with one_thread():
        for rows in gen_batches(len(x), 1024):
            here = as_tensor(x[rows], dtype=PRECISE_DTYPE).requires_grad_()
            parts, _ = provider.uncertainty(here)
            value = weighted_sum(weights, parts)
            pieces.append(torch.autograd.grad(value.sum(), here)[0].numpy())
    return unit_of(provider) * np.concatenate(pieces)


def _by_column(schema, x, gradient):
    """Reduce encoded positions to the columns of the user."""
    values = {}
    for column in schema:
        here = gradient[:, column.block]
        if column.kind == "category":
            own = (here * x[:, column.block]).sum(1, keepdims=True)
            # That of the category itself is zero, and does not count.
            n_others = max(here.shape[1] - 1, 1)
            values[column.name] = (np.abs(here - own).sum(1) / n_others).mean()
        else:
            values[column.name] = np.abs(here).mean()
    return pd.Series(values, name="sensitivity")
