"""Rankers of columns that people would use instead of an explainer."""

import warnings
from functools import partial
from math import factorial
from numbers import Integral

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state, gen_batches

from sklearn_clue import _tables
from sklearn_clue._torch import PRECISE_DTYPE, one_thread
from sklearn_clue._validation import check_is_fitted
from sklearn_clue.providers import (
    as_provider,
    as_table_provider,
    check_gradients,
    peel,
    thawed,
    unit_of,
)
from sklearn_clue.uncertainty import weighted_sum, weights_of_parts

METHODS = ("shapley", "shap", "integrated_gradients", "covariance")

# Rows judged at once, and the number of columns up to which all subsets are counted.
BLOCK = 8192
MAX_EXACT = 8


def attribute_uncertainty(
    model,
    X,
    *,
    method="shapley",
    background=None,
    uncertainty="total",
    n_classes=None,
    n_permutations=10,
    n_steps=50,
    max_background=20,
    random_state=0,
):
    """Divide the uncertainty about rows between the columns of the table.

    These are the attributions that people know, for the uncertainty instead of the
    prediction. They compare rows with a background, and not with what would make the
    model sure: they are here to be compared with explanations.

    Parameters
    ----------
    model : estimator, torch module, list of them, provider or explainer
        A fitted model that :func:`~sklearn_clue.providers.as_provider` accepts, or a
        fitted explainer, whose model is asked.

    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows, as the model takes them.

    method : str, default="shapley"
        One of

        - `"shapley"`: Shapley values of the uncertainty, columns that are absent
          having the values of background rows; all subsets of up to eight columns,
          permutations beyond;
        - `"shap"`: the same by the `PermutationExplainer` of the package shap, which
          was tried with version 0.51; by our own code where it is not installed;
        - `"integrated_gradients"`: gradients along the line from the mean of the
          background; for models with gradients;
        - `"covariance"`: covariances over posterior draws of what the columns do to
          the prediction of each draw [1]_, which divide the epistemic variance; for
          networks with several draws or members.

    background : {array-like, DataFrame} or None, default=None
        Rows to compare with; None means X.

    uncertainty : {"total", "aleatoric", "epistemic"} or dict, default="total"
        Which uncertainty, or weights of several. `"covariance"` is about the epistemic
        one always.

    n_classes : int or None, default=None
        Number of classes; None for regression. Only torch modules need to be told.

    n_permutations : int, default=10
        Orders of the columns drawn for each row, each with its reverse.

    n_steps : int, default=50
        Points on the line of integrated gradients.

    max_background : int, default=20
        Background rows that are drawn if there are more.

    random_state : int, RandomState instance or None, default=0
        Draws background rows and orders.

    Returns
    -------
    attributions : ndarray or DataFrame of shape (n_samples, n_features)
        A DataFrame of pandas if X is a DataFrame. In nats or the unit of the target;
        each row sums to its uncertainty less the mean uncertainty about the
        background (`"shapley"`, `"shap"`), less that about its mean row
        (`"integrated_gradients"`), or to the variance over draws of the difference
        between its prediction and that of the mean row (`"covariance"`), in the
        squared unit and added up over outputs or classes.

    See Also
    --------
    sklearn_clue.Explanation.drivers : What has to change for the model to be sure.
    sklearn_clue.providers.global_sensitivity : The mean absolute gradient.

    References
    ----------
    .. [1] F. Bley, S. Lapuschkin, W. Samek, G. Montavon, "Explaining Predictive
       Uncertainty by Exposing Second-Order Effects", arXiv 2401.17441.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue.evaluation import attribute_uncertainty
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> model = LogisticRegression().fit(X, X[:, 0] + 0.1 * rng.normal(size=200) > 0)
    >>> values = attribute_uncertainty(model, X)
    >>> np.abs(values).mean(0).argmax()
    np.int64(0)
    """
    weights = weights_of_parts(uncertainty)
    for name, value in (
        ("n_permutations", n_permutations),
        ("n_steps", n_steps),
        ("max_background", max_background),
    ):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number above 0, got {value!r}.")
    if method not in METHODS:
        raise ValueError(
            f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}."
        )
    rng = check_random_state(random_state)
    X = X if _tables.is_frame(X) else np.asarray(X)
    background = X if background is None else background
    background = background if _tables.is_frame(background) else np.asarray(background)
    if np.ndim(X) != 2 or np.shape(X)[1] != np.shape(background)[1]:
        raise ValueError(
            "X and background must be tables with the same columns, got the shapes "
            f"{np.shape(X)} and {np.shape(background)}."
        )
    if method in ("shapley", "shap"):
        judge = partial(_judge_rows, _table_provider(model, n_classes), weights)
        if len(background) > max_background:
            drawn = rng.choice(len(background), max_background, replace=False)
            background = _tables.take(background, np.sort(drawn))
        run = _by_shap if method == "shap" and _has_shap() else _by_shapley
        values = run(judge, X, background, n_permutations, rng)
    else:
        network = _Network(model, n_classes, np.shape(X)[1])
        if method == "covariance":
            values = _covary(network, X, background, n_permutations, rng)
        else:
            values = _integrate(network, X, background, weights, n_steps)
    if not _tables.is_frame(X):
        return values
    return pd.DataFrame(values, columns=_tables.names(X), index=_tables.index_of(X))


def _unwrapped(model):
    """The model of an explainer, or the model itself."""
    if hasattr(model, "explain") and hasattr(model, "fit"):
        check_is_fitted(model, "estimator_")
        return model.estimator_
    return model


def _table_provider(model, n_classes):
    return as_table_provider(_unwrapped(model), n_classes)


def _judge_rows(provider, weights, X):
    with one_thread():
        parts, _ = provider.uncertainty_of_rows(X)
    return unit_of(provider) * weighted_sum(weights, parts)


# Shapley values ----------------------------------------------------------------------


def _by_shapley(judge, X, background, n_permutations, rng):
    """Shapley values against background rows, row by row."""
    n_columns = np.shape(X)[1]
    subsets, weigh = _subsets(n_columns, n_permutations, rng)
    worth = np.empty((len(X), len(subsets)))
    for i in range(len(X)):
        worth[i] = _worth(judge, _tables.take(X, np.array([i])), background, subsets)
    return weigh(worth)


def _worth(judge, row, background, subsets):
    """Mean value of a row over the background, where only some columns are its own."""
    n_rows = len(background)
    values = np.empty(len(subsets))
    for block in gen_batches(len(subsets), max(1, BLOCK // n_rows)):
        some = subsets[block]
        numbers = np.tile(np.arange(n_rows), len(some))
        is_own = np.repeat(some, n_rows, axis=0)
        own, table = _tables.arrays(row), _tables.take(background, numbers)
        cells = {
            j: np.where(is_own[:, j], own[j], others)
            for j, others in enumerate(_tables.arrays(table))
        }
        answers = judge(_tables.with_columns(table, cells))
        values[block] = answers.reshape(len(some), n_rows).mean(1)
    return values


def _subsets(n_columns, n_permutations, rng):
    if n_columns <= MAX_EXACT:
        return _all_subsets(n_columns)
    return _drawn_subsets(n_columns, n_permutations, rng)


def _all_subsets(n_columns):
    """All subsets, numbered by their bits, and what makes Shapley values of them."""
    number = np.arange(2**n_columns)
    subsets = number[:, None] >> np.arange(n_columns) & 1 == 1
    size = subsets.sum(1)
    weight = np.array(
        [factorial(s) * factorial(n_columns - s - 1) for s in range(n_columns)]
    ) / factorial(n_columns)

    def weigh(worth):
        values = np.empty((len(worth), n_columns))
        for j in range(n_columns):
            without = number[~subsets[:, j]]
            rise = worth[:, without | 1 << j] - worth[:, without]
            values[:, j] = rise @ weight[size[without]]
        return values

    return subsets, weigh


def _drawn_subsets(n_columns, n_permutations, rng):
    """The subsets that drawn orders and their reverses build up, and the way back."""
    drawn = [rng.permutation(n_columns) for _ in range(n_permutations)]
    orders = np.array([order for one in drawn for order in (one, one[::-1])])
    rank = np.argsort(orders, axis=1)
    reached = rank[:, None, :] < np.arange(n_columns + 1)[:, None]
    subsets, steps = np.unique(
        reached.reshape(-1, n_columns), axis=0, return_inverse=True
    )
    steps = steps.reshape(len(orders), n_columns + 1)

    def weigh(worth):
        rises = np.diff(worth[:, steps], axis=2)
        values = np.zeros((len(worth), n_columns))
        for k, order in enumerate(orders):
            values[:, order] += rises[:, k] / len(orders)
        return values

    return subsets, weigh


def _has_shap():
    try:
        _import_shap()
    except ImportError:
        return False
    return True


def _import_shap():
    with warnings.catch_warnings():
        # It prepares pictures on import, by calls that matplotlib will give up.
        warnings.simplefilter("ignore")
        import shap

    return shap


def _by_shap(judge, X, background, n_permutations, rng):
    """The same by the package shap, which takes arrays: of positions in columns."""
    shap = _import_shap()
    tables = [_tables.arrays(table) for table in (X, background)]
    known = [np.concatenate(pair) for pair in zip(*tables, strict=True)]
    template = _tables.take(background, np.array([0]))

    def judge_codes(codes):
        rows = _tables.take(template, np.zeros(len(codes), dtype=int))
        cells = {j: cells[codes[:, j].astype(int)] for j, cells in enumerate(known)}
        return judge(_tables.with_columns(rows, cells))

    n_columns = np.shape(X)[1]
    codes = np.repeat(np.arange(len(X) + len(background))[:, None], n_columns, axis=1)
    # Its masker would take a hundred rows of a larger background.
    masker = shap.maskers.Independent(
        codes[len(X) :].astype(float), max_samples=len(background)
    )
    state = np.random.get_state()  # it draws from the generator of everybody
    try:
        explained = shap.PermutationExplainer(
            judge_codes, masker, seed=int(rng.randint(2**31 - 1))
        )(
            codes[: len(X)].astype(float),
            max_evals=n_permutations * (2 * n_columns + 1),
            silent=True,
        )
    finally:
        np.random.set_state(state)
    return np.asarray(explained.values)


# Networks ----------------------------------------------------------------------------


class _Network:
    """A model with gradients, and the way from the table to its inputs.

    Parameters
    ----------
    model : object
        The fitted model, possibly after steps.

    n_classes : int or None
        Number of classes, if the model has to be told.

    n_columns : int
        Columns of the table.
    """

    def __init__(self, model, n_classes, n_columns):
        self.steps, model = peel(_unwrapped(model))
        encoder = getattr(model, "encoder_", None)
        if encoder is not None:
            self.steps = [*self.steps, encoder]
        self.provider = as_provider(model, n_classes)
        check_gradients(self.provider, "A method other than 'shapley'")
        schema = (
            getattr(thawed(self.steps[-1]), "schema_", None) if self.steps else None
        )
        blocks = range(n_columns) if schema is None else [c.block for c in schema]
        self.blocks = [slice(b, b + 1) if isinstance(b, int) else b for b in blocks]
        self.unit = unit_of(self.provider)

    def encode(self, X):
        """Inputs of the model, as a tensor."""
        for step in self.steps:
            X = step.transform(X)
        x = torch.as_tensor(np.array(X, dtype=np.float64), dtype=PRECISE_DTYPE)
        if x.shape[1] != max(block.stop for block in self.blocks):
            raise ValueError(
                f"The steps before the model make {x.shape[1]} columns of "
                f"{len(self.blocks)}, so gradients cannot be told by column. Use "
                "method='shapley'."
            )
        return x

    def by_column(self, values):
        """Add up the positions of each column."""
        return np.stack([values[:, block].sum(1) for block in self.blocks], axis=1)


def _integrate(network, X, background, weights, n_steps):
    """Integrated gradients from the mean of the background, by the midpoint rule."""
    x, base = network.encode(X), network.encode(background).mean(0)
    total = torch.zeros_like(x)
    with one_thread():
        for step in range(n_steps):
            where = base + (step + 0.5) / n_steps * (x - base)
            for rows in gen_batches(len(x), 1024):
                here = where[rows].clone().requires_grad_()
                parts, _ = network.provider.uncertainty(here)
                value = weighted_sum(weights, parts).sum()
                (slope,) = torch.autograd.grad(value, here)
                total[rows] += slope.nan_to_num(0.0, 0.0, 0.0) / n_steps
    return network.unit * network.by_column((total * (x - base)).numpy())


def _covary(network, X, background, n_permutations, rng):
    """Covariances over draws of what columns do to the prediction of each draw.

    Of a draw these are Shapley values against the mean row of the background, which
    add up exactly, and are those of the paper where the draw is linear.
    """
    if not hasattr(network.provider, "members"):
        raise TypeError(
            "method='covariance' compares the members of an ensemble, or draws of a "
            "posterior, and the model has none. Use method='shapley'."
        )
    x, base = network.encode(X), network.encode(background).mean(0)
    n_columns = len(network.blocks)
    subsets, weigh = _subsets(n_columns, n_permutations, rng)
    owner = np.zeros(x.shape[1], dtype=int)
    for j, block in enumerate(network.blocks):
        owner[block] = j
    is_own = torch.as_tensor(subsets[:, owner])
    values = np.empty((len(x), n_columns))
    for i, row in enumerate(x):
        said = _said_by_draws(network.provider, torch.where(is_own, row, base))
        per_draw = np.stack([weigh(output) for output in said])
        spread = per_draw - per_draw.mean(1, keepdims=True)
        # Σ_j R_ij: the covariance of a column with the sum of all.
        values[i] = (spread * spread.sum(2, keepdims=True)).mean(1).sum(0)
    return network.unit**2 * values


def _said_by_draws(provider, x):
    """Predictions of each draw, of shape (n_outputs, n_draws, n_rows)."""
    pieces = []
    with one_thread(), torch.no_grad():
        for rows in x.split(1024):
            said = provider.members(rows)
            said = said if provider.is_classification else said[0]
            pieces.append(said.permute(2, 0, 1).numpy())
    return np.concatenate(pieces, axis=2).astype(np.float64)
