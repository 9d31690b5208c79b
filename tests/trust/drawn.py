"""Tables, pipelines, models and constraints drawn from a seed, and what must hold.

`draw(seed)` gives the same `Case` on any machine, and `check(case)` holds its
explanation to what the package promises. To repeat a failure, in this folder:

>>> import drawn  # doctest: +SKIP
>>> drawn.check(drawn.draw(17))  # doctest: +SKIP
"""

import json
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import entr
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch.distributions import Normal

from sklearn_clue import (
    CLUEExplainer,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    VAEEncoder,
)

try:
    import pyarrow
except ImportError:  # whose dtypes are then replaced by the plain ones
    pyarrow = None

N_EXPLAINED = 3


@dataclass
class Case:
    """One drawn situation."""

    seed: int
    X: Any  # in the container of the user
    y: np.ndarray
    frame: pd.DataFrame  # the same as X, as a frame of pandas
    explainer: BaseEstimator
    container: str
    steps: list = field(default_factory=list)  # before the model
    constraints: dict = field(default_factory=dict)

    def __str__(self):
        dtypes = ", ".join(f"{n!r}: {d}" for n, d in self.frame.dtypes.items())
        return (
            f"seed {self.seed}: {self.container} of {len(self.frame)} rows with "
            f"{{{dtypes}}}, explained by {self.explainer!r}"
        )


# Tables -----------------------------------------------------------------------------


def _numbers(rng, n_rows):
    """A column of numbers of some distribution, some of them on atoms."""
    values = {
        0: lambda: rng.normal(size=n_rows),
        1: lambda: rng.exponential(size=n_rows),
        2: lambda: rng.uniform(-1, 1, n_rows),
        3: lambda: rng.standard_cauchy(n_rows).clip(-50, 50),
    }[rng.integers(4)]()
    values = values * 10.0 ** rng.integers(-3, 5) + rng.choice([0, 0, 1, -1000])
    if rng.random() < 0.3:  # atoms: the same number in many rows
        values[rng.random(n_rows) < 0.4] = rng.choice([0.0, values[0]])
    if rng.random() < 0.3:
        values = values.round(rng.integers(0, 3))
    return values


def _integers(rng, n_rows, dtype):
    limits = np.iinfo(dtype)
    low = max(limits.min, -(10 ** rng.integers(1, 6)))
    high = min(limits.max, 10 ** rng.integers(1, 6))
    if rng.random() < 0.2:
        low, high = limits.max - 20, limits.max
    return rng.integers(low, high, n_rows, dtype=dtype, endpoint=True)


NUMBERS = ["float64", "float64", "float32", "int64", "int8", "uint8", "int16", "uint64"]
NULLABLE = ["Int64", "Int8", "UInt16", "Float64", "Float32"]
DURATIONS = ["duration", "duration objects"]
WORDS = ["object", "string", "category", "ordered", "bool", "boolean"]
ARROW = [
    f"{name}[pyarrow]"
    for name in ("int64", "double", "string", "bool", "duration[us]", "decimal")
]
# What stands in for a dtype of pyarrow where that is not installed.
PLAIN = {"int64": "Int64", "double": "Float64", "string": "string", "bool": "boolean"}
PLAIN |= {"duration[us]": "duration", "decimal": "float64"}


def _column(rng, n_rows, kind):
    if kind in ARROW:
        plain = PLAIN[kind.removesuffix("[pyarrow]")]
        values = pd.Series(_column(rng, n_rows, plain))
        return values if pyarrow is None else values.astype(_arrow_dtype(kind))
    if kind in DURATIONS:
        size = rng.choice([1, 1_000_000, 60_000_000, 86_400_000_000]).item()
        counts = rng.integers(-3, 10 ** rng.integers(1, 5), n_rows) * size
        values = counts.astype("timedelta64[us]")
        values = values.tolist() if kind == "duration objects" else values
        return pd.Series(values, dtype=object if kind != "duration" else "m8[ns]")
    if kind in NUMBERS + NULLABLE:
        plain = kind.lower()
        if "float" in plain:
            values = _numbers(rng, n_rows).astype(plain)
        else:
            values = _integers(rng, n_rows, plain)
        return pd.array(values, dtype=kind) if kind in NULLABLE else values
    if kind in ("bool", "boolean"):
        values = rng.random(n_rows) < 0.4
        return pd.array(values, dtype="boolean") if kind == "boolean" else values
    words = np.array(["red", "", "grün", "a,b", "0", "None"], dtype=object)
    words = rng.permutation(words)[: rng.integers(2, 6)]
    values = rng.choice(words, n_rows)
    if kind == "object":
        return values
    if kind == "string":
        return pd.array(values, dtype="string")
    return pd.Categorical(values, words, ordered=kind == "ordered")


def _arrow_dtype(kind):
    if kind.startswith("decimal"):
        return pd.ArrowDtype(pyarrow.decimal128(30, 6))
    return kind


def _with_gaps(rng, cells):
    """A column some of whose values are missing, if its dtype knows of that."""
    if cells.dtype.kind in "iub" and isinstance(cells.dtype, np.dtype):
        return cells
    is_gap = rng.random(len(cells)) < rng.choice([0.1, 0.5])
    is_gap[:2] = False, True
    if cells.dtype != object:
        return cells.mask(is_gap)
    blank = [None, np.nan, pd.NA][rng.integers(3)]
    return cells.astype(object).mask(is_gap, blank)


def is_duration(cells):
    """Whether a column of pandas holds durations, by dtype or as objects."""
    objects = ("timedelta", "timedelta64")
    return cells.dtype.kind == "m" or (
        cells.dtype == object
        and pd.api.types.infer_dtype(cells, skipna=True) in objects
    )


def is_number(cells):
    """Whether a column of pandas holds numbers, of which durations are some."""
    return (
        cells.dtype.kind in "iuf"
        or str(cells.dtype).startswith("decimal")
        or is_duration(cells)
    )


def as_floats(values):
    """Numbers and durations as floats, with NaN for what is missing."""
    nanosecond = pd.Timedelta(1, "ns")
    numbers = [
        np.nan if pd.isna(v) else pd.Timedelta(v) / nanosecond
        if isinstance(v, timedelta) else float(v)
        for v in values
    ]  # fmt: skip
    return np.array(numbers, dtype=float)


NAMES = ["age", "income in €", "x0", "x1", "0", "", "a__b", "Größe", "<b>"]


def _index(rng, n_rows):
    return {
        0: lambda: pd.RangeIndex(n_rows),
        1: lambda: pd.Index([f"r{i}" for i in range(n_rows)]),
        2: lambda: pd.Index(rng.integers(0, 5, n_rows)),  # with repetitions
        3: lambda: pd.date_range("2020", periods=n_rows),
        4: lambda: pd.MultiIndex.from_arrays(
            [rng.integers(0, 3, n_rows), range(n_rows)]
        ),
    }[rng.integers(5)]()


def _table(rng, container, only_numbers, may_have_gaps):
    n_rows, n_columns = rng.integers(25, 50), rng.integers(2, 6)
    if container == "numpy":
        dtype = rng.choice(["float64", "float32", "int64", "int16"])
        values = [_column(rng, n_rows, dtype) for _ in range(n_columns)]
        frame = pd.DataFrame(dict(enumerate(values))).add_prefix("x").astype(dtype)
    else:
        kinds = NUMBERS + (NULLABLE if container == "pandas" else [])
        if not only_numbers:
            others = WORDS if container == "pandas" else ["object", "bool"]
            spans = DURATIONS if container == "pandas" else DURATIONS[:1]
            kinds = kinds + others * 2 + spans * 2
            kinds = kinds + (ARROW if container == "pandas" else [])
        frame = pd.DataFrame(
            {
                j: pd.Series(_column(rng, n_rows, rng.choice(kinds)))
                for j in range(n_columns)
            }
        )
        frame.columns = rng.permutation(NAMES)[:n_columns].tolist()
    if may_have_gaps and rng.random() < 0.5:
        for j in range(n_columns):
            if rng.random() < 0.6:
                frame.isetitem(j, _with_gaps(rng, frame.iloc[:, j]))
    if container == "pandas":
        frame.index = _index(rng, n_rows)
    return frame


def in_container(frame, container):
    """The same rows as another table."""
    if container == "numpy":
        return frame.to_numpy()
    if container == "polars":
        import polars as pl

        return pl.DataFrame({name: _for_polars(cells) for name, cells in frame.items()})
    return frame


def _for_polars(cells):
    if cells.dtype.kind in "iufb" and not cells.isna().any():
        return cells.to_numpy()
    if cells.dtype.kind == "m":
        return cells.to_numpy().astype("timedelta64[ns]")
    import polars as pl

    values = [None if pd.isna(value) else value for value in cells.tolist()]
    dtypes = {"float64": pl.Float64, "float32": pl.Float32}
    return pl.Series(values, dtype=dtypes.get(str(cells.dtype)))


# Models -----------------------------------------------------------------------------


class Plane:
    """A LatentModel: rows of a plane, by their whitened principal components."""

    def __init__(self, center, axes):
        self.center, self.axes = torch.as_tensor(center), torch.as_tensor(axes)

    def encode(self, x):
        z = (x - self.center) @ torch.linalg.pinv(self.axes)
        return Normal(z, torch.ones_like(z))

    def decode(self, z):
        return self.center + z @ self.axes


class PCAGenerator(BaseEstimator):
    """The cheapest generator there is: a few principal components."""

    def fit(self, X, y=None):
        """Learn from encoded rows."""
        X = np.asarray(X, dtype=float)
        self.pca_ = PCA(min(3, X.shape[1])).fit(X)
        return self

    def latent_model(self):
        """Give what was learned."""
        spread = np.sqrt(self.pca_.explained_variance_)[:, None] + 1e-9
        return Plane(self.pca_.mean_, spread * self.pca_.components_)


def _steps(rng):
    """Transformers of numbers that can be undone, to some precision at least."""
    choice = [
        StandardScaler(),
        StandardScaler(with_mean=False),
        MinMaxScaler(),
        RobustScaler(),
        MaxAbsScaler(),
        SimpleImputer(),
        FunctionTransformer(np.arcsinh, np.sinh, validate=True, check_inverse=False),
        QuantileTransformer(n_quantiles=9),
        PCA(),
    ]
    return [choice[i] for i in rng.permutation(len(choice))[: rng.choice([0, 0, 1, 2])]]


def one_way_steps():
    """Transformers that lose something for good."""
    return [
        FunctionTransformer(np.arctan, validate=True),
        FunctionTransformer(np.abs, validate=True),
        PolynomialFeatures(2),
        SelectKBest(k=1),
        VarianceThreshold(1e-3),
        PCA(1),
    ]


def pass_gaps(steps):
    """Whether missing values survive the steps, or are filled by one."""
    for step in steps:
        if isinstance(step, SimpleImputer):
            return True
        if isinstance(step, PCA | FunctionTransformer):
            return False
    return True


def _model(rng, frame, only_numbers, is_classification, steps):
    seed = int(rng.integers(1000))
    kind = rng.integers(4)
    settings = {"hidden_layer_sizes": (4,), "random_state": seed}
    if kind == 0 and not steps:  # has an encoder of its own
        ensemble = (
            DeepEnsembleClassifier if is_classification else DeepEnsembleRegressor
        )
        return ensemble(**settings, n_members=2, max_iter=2, learning_rate=0.05)
    if is_classification:
        model = (
            LogisticRegression() if kind < 2 else MLPClassifier(**settings, max_iter=3)
        )
        if kind == 3:
            model = RandomForestClassifier(5, max_depth=3, random_state=seed)
    else:
        model = MLPRegressor(**settings, max_iter=3)
    has_gaps = frame.isna().to_numpy().any()
    may_be_bare = only_numbers and not has_gaps
    encoder = [] if may_be_bare and rng.random() < 0.5 else [TabularEncoder()]
    parts = [*(clone(step) for step in steps), *encoder, model]
    model = make_pipeline(*parts) if len(parts) > 1 else model
    if not is_classification:
        other = clone(model)
        return [model, _reseeded(other, seed + 1)]
    return model


def has_slope(model):
    """Whether a model, or the last step of a pipeline, is no forest."""
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    return not isinstance(last, RandomForestClassifier)


def parts_of(model):
    """Parts of the uncertainty of a model that an explainer can reduce."""
    if isinstance(model, list):  # of means without noise
        return ("total", "epistemic")
    return ("total", "aleatoric", "epistemic")


def _reseeded(model, seed):
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    last.set_params(random_state=seed)
    return model


def _target(rng, frame, is_classification):
    score = rng.normal(size=len(frame))
    for _, cells in frame.items():
        codes = as_floats(cells) if is_number(cells) else pd.factorize(cells)[0]
        codes = np.nan_to_num(np.asarray(codes, dtype=float))
        score += rng.normal() * (codes - codes.mean()) / (codes.std() + 1e-9)
    if not is_classification:
        return score * 10.0 ** rng.integers(-2, 4) + rng.choice([0, 50])
    n_classes = rng.integers(2, 4)
    codes = np.searchsorted(
        np.quantile(score, np.arange(1, n_classes) / n_classes), score
    )
    labels = [np.array(["no", "yes", "perhaps"]), np.array([0, 1, 7]), None][
        rng.integers(3)
    ]
    if labels is None:
        return codes > 0
    return labels[codes]


def _constraints(rng, frame):
    """Columns that must stay, and ranges, some of which the rows are not in."""
    names = list(frame.columns)
    immutable, ranges = [], {}
    if rng.random() < 0.5:
        return {}
    for name in names:
        cells = frame[name]
        chance = rng.random()
        if chance < 0.25:
            immutable.append(name)
        elif chance < 0.6 and is_number(cells):
            known = cells.dropna()
            low, high = sorted(known.iloc[rng.integers(len(known), size=2)].tolist())
            if isinstance(low, Decimal):
                low, high = float(low), float(high)
            ranges[name] = [
                (low, high),
                (None, high),
                (low, None),
                (low, np.inf),
                "increase",
                "decrease",
            ][rng.integers(6)]
    found = {"immutable_features": immutable or None, "feature_ranges": ranges or None}
    return {name: value for name, value in found.items() if value}


def draw(seed, *, one_way=False):
    """Draw a case.

    Parameters
    ----------
    seed : int
        Decides about everything.

    one_way : bool, default=False
        Whether the pipeline holds a step that cannot be undone.

    Returns
    -------
    case : Case
        The case, unfitted.
    """
    rng = np.random.default_rng([seed, one_way])
    container = rng.choice(["pandas", "pandas", "polars", "numpy"])
    steps = _steps(rng)
    if one_way:
        lossy = one_way_steps()
        steps.insert(rng.integers(len(steps) + 1), lossy[rng.integers(len(lossy))])
    only_numbers = container == "numpy" or bool(steps) or rng.random() < 0.3
    may_have_gaps = not one_way and pass_gaps(steps)
    frame = _table(rng, container, only_numbers, may_have_gaps)
    is_classification = rng.random() < 0.7
    y = _target(rng, frame, is_classification)
    # Where columns are mixed, constraints on single ones are refused.
    mixing = PCA | PolynomialFeatures | SelectKBest | VarianceThreshold
    is_mixed = any(isinstance(step, mixing) for step in steps)
    # What cannot be undone is shown as it comes out, under other names.
    is_mixed |= any(
        isinstance(step, FunctionTransformer) and step.inverse_func is None
        for step in steps
    )
    # Nor can steps that work in doubles be undone for integers that are none of these.
    is_mixed |= bool(steps) and any(
        values.dtype.kind in "iu" and abs(values.dropna().astype(float)).max() > 2**53
        for _, values in frame.items()
    )
    constraints = {} if is_mixed else _constraints(rng, frame)
    settings = {
        "uncertainty": rng.choice(["total", "total", "aleatoric", "epistemic"]).item(),
        "batch_size": int(rng.integers(1, 9)),
        **constraints,
    }
    model = _model(rng, frame, only_numbers, is_classification, steps)
    if settings["uncertainty"] not in parts_of(model):
        settings["uncertainty"] = "total"  # see `test_a_part_that_is_always_zero`
    chance = rng.random()
    if chance < 0.2 and has_slope(model):
        explainer = LocalSensitivityExplainer(
            model, step_size=float(rng.choice([0.1, 1.0])), **settings
        )
    elif chance < 0.4:
        explainer = NeighborExplainer(model, **settings)
    else:
        weights = [None, 0.1, 1.0, 5.0] if has_slope(model) else [None]
        explainer = CLUEExplainer(
            model,
            VAEEncoder(2, (4,), max_iter=1) if rng.random() < 0.3 else PCAGenerator(),
            distance_weight=weights[rng.integers(len(weights))],
            max_iter=3,
            n_explanations=int(rng.integers(1, 3)),
            fill_missing=bool(rng.random() < 0.3),
            random_state=seed,
            **settings,
        )
    X = in_container(frame, container)
    return Case(seed, X, y, frame, explainer, container, steps, constraints)


# Promises ---------------------------------------------------------------------------


def take(X, rows):
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def as_frame(X):
    """Any table as objects of pandas, cell by cell."""
    if isinstance(X, pd.DataFrame):
        cells = [X.iloc[:, j].tolist() for j in range(X.shape[1])]
    elif isinstance(X, np.ndarray):
        cells = [X[:, j].tolist() for j in range(X.shape[1])]
    else:
        cells = [series.to_list() for series in X.iter_columns()]
    return pd.DataFrame({j: pd.Series(c, dtype=object) for j, c in enumerate(cells)})


def check(case):
    """Fit, explain, and hold the explanation to what is promised.

    Returns
    -------
    note : str or None
        What the explanation says about units, if rows are not the user's own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = case.explainer.fit(case.X, case.y)
        rows = np.random.default_rng(case.seed).permutation(len(case.frame))
        rows = rows[:N_EXPLAINED]
        given = take(case.X, rows)
        explanation = explainer.explain(given)
        if explanation.note is not None:  # the predictor's rows, not the user's
            return explanation.note
        check_rows(case, given, explanation)
        check_words(explanation)
        check_constraints(case, given, explanation)
        check_answers(case, given, explanation)
        check_order_and_batch(case, given, explanation)
        check_containers(case, rows, explanation)
    return None


def check_rows(case, given, explanation):
    """Rows that are shown are the user's; those found could stand in the table."""
    found = explanation.counterfactuals
    assert type(found) is type(given)
    if isinstance(given, np.ndarray):
        assert found.dtype == given.dtype and found.shape == given.shape
    elif isinstance(given, pd.DataFrame):
        assert found.columns.equals(given.columns)
        assert found.index.equals(given.index)
        assert list(found.dtypes) == list(given.dtypes)
    else:
        assert found.schema == given.schema and found.shape == given.shape
    old, shown, new = (as_frame(X) for X in (given, explanation.X, found))
    assert identical(old, shown).all()
    was_gap, is_gap = pd.isna(old).to_numpy(), pd.isna(new).to_numpy()
    assert not (is_gap & ~was_gap).any(), "a gap was made"
    if not getattr(case.explainer, "fill_missing", False):
        assert (is_gap == was_gap).all(), "a gap was filled"
    everything = as_frame(case.X)
    for j in new:
        values = case.frame.iloc[:, j]
        if is_number(values):
            assert np.isfinite(as_floats(new[j].dropna())).all()
        else:
            known = set(everything[j].dropna())
            if isinstance(values.dtype, pd.CategoricalDtype):
                known |= set(values.cat.categories)
            if values.dtype.kind == "b":
                known |= {False, True}
            assert set(new[j].dropna()) <= known
    # A column whose encoded cells did not move is the same to the last bit. Steps
    # before the encoder may round, and encoded cells in single precision hide moves.
    is_double = not case.steps and "float32" not in map(str, case.frame.dtypes)
    if is_double and explanation.schema.n_encoded == explanation.encoded.shape[1]:
        moved = explanation.encoded != explanation.encoded_counterfactuals
        for j, column in enumerate(explanation.schema):
            still = ~moved[:, column.block].any(axis=1)
            assert identical(old, new)[still, j].all(), f"column {j} was rounded"


def identical(old, new):
    """Which cells of two frames of objects are equal to the last bit."""
    same = np.empty(old.shape, dtype=bool)
    for j in range(old.shape[1]):
        pairs = zip(old.iloc[:, j], new.iloc[:, j], strict=True)
        same[:, j] = [repr(a) == repr(b) for a, b in pairs]
    return same


def check_constraints(case, given, explanation):
    """To the last bit, in the user's units."""
    old, new = as_frame(given), as_frame(explanation.counterfactuals)
    names = list(case.frame.columns)
    for name in case.constraints.get("immutable_features", ()):
        j = names.index(name)
        assert identical(old, new)[:, j].all(), f"{name!r} moved"
    for name, allowed in case.constraints.get("feature_ranges", {}).items():
        j = names.index(name)
        for before, after in zip(old[j], new[j], strict=True):
            if pd.isna(after) or (isinstance(allowed, str) and pd.isna(before)):
                continue
            if allowed == "increase":
                assert after >= before, f"{name!r} fell"
            elif allowed == "decrease":
                assert after <= before, f"{name!r} rose"
            else:
                low, high = allowed
                assert low is None or after >= low, f"{name!r} = {after} < {low}"
                high = None if high == np.inf else high
                assert high is None or after <= high, f"{name!r} = {after} > {high}"


def check_words(explanation):
    """Whatever is in the rows can be told, and the verdict is that of the figures."""
    json.dumps(explanation.to_dict(), allow_nan=False)
    assert len(explanation.summary().splitlines()) == len(explanation)
    if explanation.target is None:  # the paper's question, which has no verdict
        return
    before, after = (np.asarray(judged) for judged in explanation._judged)
    target = explanation.target
    np.testing.assert_array_equal(explanation.is_sure, after <= target * (1 + 1e-9))
    old, new = as_frame(explanation.X), as_frame(explanation.counterfactuals)
    np.testing.assert_array_equal(explanation.n_changed, (~identical(old, new)).sum(1))
    np.testing.assert_allclose(
        explanation.contributions.sum(1), before - after, rtol=1e-5, atol=1e-6
    )
    assert not explanation.contributions[identical(old, new)].any()


def check_answers(case, given, explanation):
    """What is said about rows is what the model itself says about them."""
    explainer, found = case.explainer, explanation.counterfactuals
    for rows, parts, prediction in (
        (given, explanation.uncertainty_before, explanation.prediction_before),
        (found, explanation.uncertainty_after, explanation.prediction_after),
    ):
        said = explainer.predict_uncertainty(rows)
        for part, known in zip(parts, said, strict=True):
            np.testing.assert_allclose(part, known, rtol=1e-9, atol=1e-12)
        models = explainer.estimator_
        if isinstance(models, list):
            means = np.array([model.predict(rows) for model in models])
            tolerance = {"rtol": 1e-6, "atol": 1e-6 * (np.abs(means).max() + 1e-12)}
            np.testing.assert_allclose(prediction, means.mean(0), **tolerance)
            np.testing.assert_allclose(parts.total, means.std(0), **tolerance)
            continue
        own = models.predict(rows)
        if not explanation.is_classification:
            np.testing.assert_allclose(prediction, own, rtol=1e-5, atol=1e-8)
            continue
        proba = models.predict_proba(rows)
        if has_slope(models):  # forests tell more than their probabilities
            # Some models work in the precision of the table, and explainers in double.
            atol = 1e-4 if proba.dtype == np.float32 else 1e-6
            entropy = entr(proba).sum(1)
            np.testing.assert_allclose(parts.total, entropy, rtol=1e-5, atol=atol)
        ordered = np.sort(proba, axis=1)
        is_tie = ordered[:, -1] - ordered[:, -2] < 1e-5
        assert ((prediction == own) | is_tie).all()


def assert_alike(one, other, case):
    """The same explanations, in whatever containers.

    Words are equal, and numbers up to what rounding does to a search: little in double
    precision; more in single, and behind steps (numpy's functions round by the place
    in an array, and scikit-learn reads frames of pandas and polars differently).
    """
    tables = [as_frame(e.counterfactuals) for e in (one, other)]
    same = identical(*tables)
    digits = 1e-5 if case.steps or is_single(case.explainer) else 1e-9
    for j in range(case.frame.shape[1]):
        if not is_number(case.frame.iloc[:, j]):
            assert same[:, j].all(), f"column {j}: {[t[j].tolist() for t in tables]}"
            continue
        numbers = [as_floats(table[j]) for table in tables]
        span = np.nanmax(np.abs([*as_floats(case.frame.iloc[:, j]), *numbers[0]]))
        np.testing.assert_allclose(*numbers, rtol=0, atol=digits * span)
    for a, b in (
        (one.distance, other.distance),
        (one.uncertainty_after.total, other.uncertainty_after.total),
    ):
        # Both are of the order of one, or sums of such numbers that cancel.
        np.testing.assert_allclose(a, b, rtol=10 * digits, atol=max(1e-7, digits))


def is_single(explainer):
    """Whether networks in single precision are part of the search."""
    ensembles = DeepEnsembleClassifier | DeepEnsembleRegressor
    generator = getattr(explainer, "generator", None)
    return isinstance(explainer.estimator, ensembles) or isinstance(
        generator, VAEEncoder
    )


def check_order_and_batch(case, given, explanation):
    """A row gets its explanation, whoever is explained with it."""
    backwards = np.arange(N_EXPLAINED)[::-1]
    other = clone(case.explainer).set_params(batch_size=2)
    vars(other).update(
        {k: v for k, v in vars(case.explainer).items() if k != "batch_size"}
    )
    turned = other.explain(take(given, backwards))
    assert_alike(turned[backwards], explanation, case)


def check_containers(case, rows, explanation):
    """Polars says what pandas says, whichever was fitted."""
    if case.container == "numpy":
        return
    if not all(isinstance(d, np.dtype) for d in case.frame.dtypes):
        return  # dtypes that polars does not have
    if case.steps and min(d.itemsize for d in case.frame.dtypes) < 8:
        return  # scikit-learn reads them in another precision
    other = "polars" if case.container == "pandas" else "pandas"
    again = case.explainer.explain(take(in_container(case.frame, other), rows))
    assert_alike(again, explanation, case)
