"""What explainers do with tables of all kinds, plain encoders and ranges of numbers."""

import warnings
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from sklearn_clue import (
    BayesianMLPClassifier,
    CLUEExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.encoding import TabularEncoder
from sklearn_clue.exceptions import EncodingMismatchError
from sklearn_clue.explainers._space import EncodedSpace, unread_columns
from sklearn_clue.providers import global_sensitivity

pl = pytest.importorskip("polars")

N_ROWS = 40
METHODS = {
    "CLUE": (CLUEExplainer, VAEEncoder),
    "U-FIDO": (UFIDOExplainer, VAEACImputer),
}


def numbers():
    X = np.random.default_rng(0).normal(size=(N_ROWS, 3))
    return X, (X[:, 0] > 0).astype(int)


def mixed():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {
            "visits": rng.integers(0, 9, N_ROWS),
            "weight": rng.normal(70, 9, N_ROWS),
            "color": rng.choice(["red", "blue"], N_ROWS),
        }
    )
    return X, (X["weight"] > 70).astype(int).to_numpy()


def tiny(method, predictor=None, generator=None, **settings):
    explainer, generator_class = METHODS[method]
    return explainer(
        BayesianMLPClassifier(
            (5,),
            encoder=predictor,
            n_draws=3,
            burn_in=5,
            thinning=1,
            n_chains=1,
            random_state=0,
        ),
        generator_class(2, (5,), encoder=generator, max_iter=2, random_state=0),
        max_iter=3,
        random_state=0,
        **settings,
    )


def quick(**settings):
    """An explainer without a generator, of a model that is fitted at once."""
    return LocalSensitivityExplainer(LogisticRegression(), step_size=3.0, **settings)


CONTAINERS = {
    "array": lambda X: X,
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b", "c"]),
}


# Plain encoders --------------------------------------------------------------------


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("predictor", "generator"),
    [
        ("passthrough", None),
        ("passthrough", "passthrough"),
        (StandardScaler(), None),
        (StandardScaler(), StandardScaler()),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_encoders_without_a_schema(method, predictor, generator, container):
    X, y = numbers()
    X = CONTAINERS[container](X)
    explainer = tiny(method, predictor, generator).fit(X, y)
    explanation = explainer.explain(X[:2])
    assert type(explanation.counterfactuals) is type(X)
    after = explainer.predict_uncertainty(explanation.counterfactuals)
    np.testing.assert_allclose(after.total, explanation.uncertainty_after.total)
    names = list(getattr(X, "columns", ["x0", "x1", "x2"]))
    assert list(explainer.generator_.schema_.names) == names


@pytest.mark.parametrize("method", METHODS)
def test_plain_encoders_that_differ_are_told_apart(method):
    X, y = numbers()
    with pytest.raises(EncodingMismatchError, match="become other numbers"):
        tiny(method, StandardScaler(), MinMaxScaler()).fit(X, y)


def test_frozen_generator_with_a_plain_encoder():
    X, y = numbers()
    scaler = FrozenEstimator(StandardScaler().fit(X))
    generator = tiny("CLUE").generator.set_params(encoder=scaler).fit(X)
    explainer = tiny("CLUE", scaler).set_params(generator=FrozenEstimator(generator))
    assert len(explainer.fit(X, y).explain(X[:2])) == 2


# Containers ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins():
    """The same explanation, of pandas and of polars."""
    X, y = mixed()
    explanations = []
    for table in (X, pl.DataFrame(X.to_dict("list"))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = tiny("CLUE", n_explanations=3).fit(table, y)
            explanations.append(explainer.explain(table[:5]))
    return explanations


def test_polars_has_the_candidates_of_pandas(twins):
    for a, b in zip(*(twin.candidates for twin in twins), strict=True):
        assert b.columns == list(a.columns)
        assert b.to_dict(as_series=False) == a.to_dict("list")


@pytest.mark.parametrize("key", [slice(None), 2, slice(1, 3), [0, 4], [], [True] * 5])
def test_polars_tells_what_pandas_tells(twins, key, tmp_path):
    a, b = (twin[key] for twin in twins)
    a = replace(a, X=a.X.reset_index(drop=True))  # what polars does by itself
    assert a.to_dict() == b.to_dict()
    assert a.summary() == b.summary()
    pd.testing.assert_frame_equal(
        a.changes.reset_index(drop=True), b.changes.reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(a.to_frame(), b.to_frame(), check_dtype=len(a) > 0)
    assert a.to_html(tmp_path / "a.html").read_text() == (
        b.to_html(tmp_path / "b.html").read_text()
    )
    if len(a):
        np.testing.assert_array_equal(*(_drawn(twin.plot()) for twin in (a, b)))


def _drawn(display):
    return [text.get_text() for ax in display.axes_ for text in ax.texts]


@pytest.mark.parametrize("dtype", ["int64", "Int64", "string", "bool"])
def test_fit_on_pandas_and_explain_polars(dtype):
    X, y = mixed()
    X["visits"] = (X["visits"] % 2).astype(dtype)
    other = pl.DataFrame(X.to_dict("list"))
    explainer = tiny("CLUE").fit(X, y)
    ours, theirs = explainer.explain(X[:4]), explainer.explain(other[:4])
    assert theirs.counterfactuals.schema == other.schema
    assert theirs.counterfactuals.to_dict(as_series=False) == (
        ours.counterfactuals.to_dict("list")
    )


@pytest.mark.parametrize("method", ["explain", "predict_uncertainty", "predict"])
@pytest.mark.parametrize("steps", [(), (StandardScaler(),)])
def test_arrays_after_a_frame_are_warned_of_once(method, steps):
    X, y = numbers()
    explainer = tiny("CLUE")
    explainer.set_params(estimator=make_pipeline(*steps, explainer.estimator))
    explainer.fit(CONTAINERS["pandas"](X), y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = getattr(explainer, method)(X[:3])
    named = [w for w in caught if "valid feature names" in str(w.message)]
    assert len(named) == 1
    if method == "explain":
        assert isinstance(answer.counterfactuals, np.ndarray)


def test_array_after_a_frame_is_read_like_the_frame():
    X, y = mixed()
    explainer = tiny("CLUE").fit(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        explanation = explainer.explain(X[:3].to_numpy())
    expected = explainer.explain(X[:3]).counterfactuals.to_numpy()
    np.testing.assert_array_equal(explanation.counterfactuals, expected)


def test_surrogates_in_names(tmp_path):
    X, y = mixed()
    X = X.rename(columns={"weight": "weight\udc80"})
    explanation = tiny("CLUE", memory=str(tmp_path / "cache")).fit(X, y).explain(X[:2])
    assert "weight\\udc80" in explanation.summary()
    explanation.summary().encode()  # as printing does
    page = explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "weight\\udc80" in page  # as JSON writes it
    joblib.dump(explanation, tmp_path / "explanation.joblib")
    explanation.plot().figure_.savefig(tmp_path / "picture.png")


def test_boolean_images_come_back_as_they_are():
    rng = np.random.default_rng(0)
    X = rng.random((N_ROWS, 16)) < 0.2
    y = X[:, 0] | X[:, 1]
    explainer = CLUEExplainer(
        tiny("CLUE").estimator,
        VAEEncoder(2, (5,), image_shape=(4, 4), max_iter=3, random_state=0),
        distance_weight=2.0,
        max_iter=3,
        random_state=0,
    ).fit(X, y)
    explanation = explainer.explain(X[:4])
    assert explanation.counterfactuals.dtype == bool
    assert explanation.counterfactuals.mean() < 0.9
    after = explainer.predict_uncertainty(explanation.counterfactuals)
    np.testing.assert_allclose(after.total, explanation.uncertainty_after.total)


# Ranges ----------------------------------------------------------------------------


def ranged(dtype, allowed, container=pd.DataFrame):
    """What becomes of integers from 0 to 8 that want to rise or fall, in a range."""
    rng = np.random.default_rng(0)
    visits = rng.integers(0, 9, N_ROWS).astype(dtype)
    X = container({"visits": visits, "weight": rng.normal(size=N_ROWS)})
    y = (visits + rng.normal(size=N_ROWS) > 4).astype(int)
    ranges = None if allowed is None else {"visits": allowed}
    explainer = quick(feature_ranges=ranges).fit(X, y)
    return explainer.explain(X[:9]).counterfactuals["visits"].to_numpy()


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "float32", "float64"])
@pytest.mark.parametrize("allowed", [(-np.inf, np.inf), (-1e5, 1e12), (None, 1e12)])
def test_bounds_beyond_the_dtype_are_open(dtype, allowed, container):
    free = ranged(dtype, (None, None), container)
    bounded = ranged(dtype, allowed, container)
    assert bounded.dtype == dtype
    assert len(np.unique(bounded)) > 1
    np.testing.assert_array_equal(bounded, free)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
@pytest.mark.parametrize("low, high", [(2.5, 5.2), (None, 4), (3, np.inf), (0.1, 0.9)])
def test_ranges_hold_in_every_dtype(dtype, low, high):
    if dtype != "float32" and low == 0.1:
        pytest.skip("no whole number")
    values = ranged(dtype, (low, high))
    assert values.dtype == dtype
    if low is not None:
        assert (values.astype(float) >= low).all()
    if high is not None:
        assert (values.astype(float) <= high).all()


class NeverFitted(LogisticRegression):
    def fit(self, X, y):
        raise AssertionError("long work has begun")


@pytest.mark.parametrize(
    "dtype, allowed, message",
    [
        ("int64", (10.2, 10.8), "holds no value that the column, of dtype int64"),
        ("uint8", (300, 400), "holds no value"),
        ("uint8", (-9, -1), "holds no value"),
        ("float64", (np.inf, np.inf), "must be a pair"),
        ("float64", (None, -np.inf), "must be a pair"),
        ("float64", (np.nan, 1), "must be a pair"),
    ],
)
def test_empty_ranges_are_refused_before_anything_is_fitted(dtype, allowed, message):
    X = pd.DataFrame({"visits": np.arange(9).astype(dtype)})
    explainer = LocalSensitivityExplainer(
        NeverFitted(), feature_ranges={"visits": allowed}
    )
    with pytest.raises(ValueError, match=rf"feature_ranges\['visits'\].*{message}"):
        explainer.fit(X, np.arange(9) % 2)


def test_range_that_rows_of_another_dtype_cannot_keep():
    X, y = mixed()
    X = X.drop(columns="color")
    explainer = quick(feature_ranges={"visits": (300, 400)}).fit(X, y)
    with pytest.raises(ValueError, match="of dtype uint8"):
        explainer.explain(X.astype({"visits": "uint8"}))


@pytest.mark.parametrize("steps", [(), (StandardScaler(),)])
def test_ranges_add_no_encoding_per_column(steps, monkeypatch):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N_ROWS, 12))).add_prefix("c")
    y = (X["c0"] > 0).astype(int)
    explainer = LocalSensitivityExplainer(make_pipeline(*steps, LogisticRegression()))
    calls, encode = [], TabularEncoder.transform
    monkeypatch.setattr(
        TabularEncoder, "transform", lambda *args: calls.append(1) or encode(*args)
    )

    def n_encodings(n_columns):
        ranges = {f"c{j}": (-1.0, 1.0) for j in range(n_columns)}
        explainer.set_params(feature_ranges=ranges).fit(X, y)
        calls.clear()
        values = explainer.explain(X).counterfactuals.iloc[:, :n_columns]
        assert values.abs().max(axis=None) <= 1
        return len(calls)

    assert n_encodings(1) == n_encodings(12)


def skewed():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.lognormal([3, 1, 1], [1, 0.5, 1], (300, 3)), columns=[*"abc"])
    return X, np.log(X["a"]) - 3 + rng.normal(0, 0.5, 300) > 0


def explained(step, X, y):
    explainer = LocalSensitivityExplainer(
        make_pipeline(step, LogisticRegression()), step_size=2.0
    ).fit(X, y)
    return explainer.explain(X[:40])


@pytest.mark.parametrize("step", [SelectKBest(k=1), VarianceThreshold(5.0)])
def test_columns_that_no_step_passes_on_keep_their_values(step):
    X, y = skewed()
    explanation = explained(step, X, y)
    kept = step.fit(X, y).get_support()
    after = explanation.counterfactuals
    pd.testing.assert_frame_equal(after.loc[:, ~kept], X[:40].loc[:, ~kept])
    assert (after["a"] != X["a"][:40]).mean() > 0.9
    assert not explanation.n_changed.max() > kept.sum()


def test_array_after_a_frame_is_read_like_the_frame_by_models_of_tables():
    X, y = mixed()
    X["is_new"] = X["visits"] > 4
    one_hot = OneHotEncoder(handle_unknown="ignore")
    chosen = make_column_transformer(
        (one_hot, ["color", "is_new"]), (StandardScaler(), ["weight"])
    )
    explainer = NeighborExplainer(make_pipeline(chosen, LogisticRegression()))
    explainer.fit(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names") as told:
        explanation = explainer.explain(X.to_numpy())
    assert len(told) == 1
    expected = explainer.explain(X)
    np.testing.assert_array_equal(
        explanation.counterfactuals, expected.counterfactuals.to_numpy()
    )
    np.testing.assert_array_equal(
        explanation.uncertainty_before, expected.uncertainty_before
    )


def test_rows_that_are_sure_and_out_of_range_are_said_to_move():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(20, 60, 120).astype(float)})
    y = X["age"] + rng.normal(0, 8, 120) > 40
    explainer = NeighborExplainer(
        LogisticRegression(), feature_ranges={"age": (65.0, 70.0)}
    ).fit(X, y)
    sure = X[X["age"] > 57]
    assert not explainer.rejects(sure).any()
    explanation = explainer.explain(sure)
    assert (explanation.counterfactuals["age"] == 65).all()
    lines = explanation.summary().splitlines()
    moved = "Sure already. Changed only to lie within its ranges: age 65 instead of"
    assert all(moved in line for line in lines)


@pytest.mark.parametrize("as_list", [False, True])
def test_columns_that_a_table_model_never_sees_keep_their_values(as_list):
    """Their change would make no row sure, and some of them more believable."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 3)), columns=[*"abc"])
    X["d"] = rng.choice(["u", "v"], 150)
    X["e"] = np.where(np.arange(150) < 149, "rare", "other")
    y = X["a"] + X["b"] + rng.normal(0, 0.6, 150) > 0
    chosen = make_column_transformer((StandardScaler(), ["a", "b"]))
    model = make_pipeline(chosen, LogisticRegression())
    explainer = NeighborExplainer([model, clone(model)] if as_list else model)
    explanation = explainer.fit(X, y).explain(X[:60])
    assert explanation.n_changed.max() == 2
    unread = ["c", "d", "e"]
    pd.testing.assert_frame_equal(explanation.counterfactuals[unread], X[:60][unread])


@pytest.mark.parametrize("container", ["pandas", "polars", "numpy"])
def test_unread_columns(container):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (40, 120)).astype(float)
    X[:, 3] = 1.0  # one value only: no other can be tried
    X[:, 4] = np.arange(40) == 39  # rare
    read = [*range(0, 120, 7), 4]
    if container == "pandas":
        X = pd.DataFrame(X)
    elif container == "polars":
        X = pl.DataFrame(X)
    unread = unread_columns(lambda rows: np.asarray(rows)[:, read], X)
    assert unread == sorted(set(range(120)) - {3, *read})
    as_sparse = unread_columns(lambda rows: csr_array(np.asarray(rows)[:, read]), X)
    assert as_sparse == unread


def lower_below_zero(X):
    return np.where(X < 0, X - 5, X)


def test_sorted_tables_do_not_hide_what_a_step_does():
    """It changes nothing in the first hundred rows, which are positive."""
    rng = np.random.default_rng(0)
    X = -np.sort(-rng.normal(size=(400, 1)), axis=0)
    explanation = explained(FunctionTransformer(lower_below_zero), X, X[:, 0] > 0.5)
    assert "FunctionTransformer" in explanation.note


def test_an_inverse_counts_only_if_values_come_back():
    X, y = skewed()
    by_itself = explained(FunctionTransformer(np.log), X, y)
    # Its inverse_transform does nothing, so the way back is unknown.
    np.testing.assert_allclose(by_itself.X, np.log(X[:40]))
    assert "FunctionTransformer" in by_itself.note
    with_inverse = explained(FunctionTransformer(np.log, inverse_func=np.exp), X, y)
    pd.testing.assert_frame_equal(with_inverse.X, X[:40])
    np.testing.assert_allclose(
        np.log(with_inverse.counterfactuals), by_itself.counterfactuals, rtol=1e-6
    )


@pytest.mark.parametrize("method", METHODS)
def test_numbers_stay_where_training_values_are(method):
    X, y = mixed()
    explainer = tiny(method).fit(X, y)
    for name, value in (("distance_weight", 0.0), ("mask_weight", 0.0)):
        if name in explainer.get_params():
            explainer.set_params(**{name: value})
    rows = X.assign(weight=X["weight"].where(X["weight"] < 80, 200.0))
    after = explainer.explain(rows).counterfactuals["weight"]
    limit = np.where(
        rows["weight"] > X["weight"].max(), rows["weight"], X["weight"].max()
    )
    assert (after <= limit).all() and (after >= X["weight"].min()).all()
    # A range of their own takes the place of that.
    wider = explainer.set_params(feature_ranges={"weight": (90.0, 95.0)})
    assert wider.explain(X).counterfactuals["weight"].between(90, 95).all()


# Ranges wider than those of the training rows ---------------------------------------

EXPLAINERS = {
    "CLUE": (CLUEExplainer, VAEEncoder, {}),
    "CLUE by values": (CLUEExplainer, VAEEncoder, {"search": "values"}),
    "CLUE with λ": (
        CLUEExplainer,
        VAEEncoder,
        {"distance_weight": 0.01, "learning_rate": 0.5},
    ),
    "neighbors": (NeighborExplainer, None, {}),
    "sensitivity": (LocalSensitivityExplainer, None, {"step_size": 9.0}),
    "U-FIDO": (UFIDOExplainer, VAEACImputer, {"mask_weight": 0.0}),
}


def of_dtype(numbers, dtype):
    if dtype == "days":
        return pd.to_timedelta(numbers, unit="D")
    return pd.array(numbers, dtype=dtype)


def visits_table(dtype="int64"):
    """Visits from 10 to 19 decide about the class, the other column does not."""
    rng = np.random.default_rng(0)
    visits = rng.integers(10, 20, 300)
    X = pd.DataFrame({"visits": of_dtype(visits, dtype), "w": rng.normal(size=300)})
    return X, rng.random(300) < 1 / (1 + np.exp(-0.4 * (visits - 14.5)))


def slope():
    return make_pipeline(TabularEncoder(), LogisticRegression())


class UnsureAbove30(ClassifierMixin, BaseEstimator):
    """Sure of rows with at most 30 visits, and of no other ones."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X):
        visits = np.asarray(X, dtype=float)[:, 0]
        share = np.where(visits > 30, 0.5, 0.98 + visits / 2000)
        return np.column_stack([1 - share, share])


def of_visits(name, X, y, model, **settings):
    """An explainer whose rows may change their visits only."""
    explainer, generator, more = EXPLAINERS[name]
    settings = {"immutable_features": ["w"], **more, **settings}
    if explainer in (CLUEExplainer, NeighborExplainer):
        settings["min_plausibility"] = None
        if "distance_weight" not in settings:
            settings["target_uncertainty"] = 0.25
    parts = [model]
    if generator is not None:
        parts.append(generator(2, (10,), max_iter=20, random_state=0))
        settings["random_state"] = 0
    return explainer(*parts, **settings).fit(X, y)


def explained_visits(explainer, X):
    """Visits of counterfactuals as plain numbers; what is told is about these rows."""
    explanation = explainer.explain(X)
    rows = explanation.counterfactuals
    told = explainer.predict_uncertainty(rows).total
    np.testing.assert_allclose(told, explanation.uncertainty_after.total)
    assert rows["visits"].dtype == X["visits"].dtype
    is_duration = rows["visits"].dtype.kind == "m"
    visits = rows["visits"].dt.days if is_duration else rows["visits"]
    return visits.to_numpy(dtype=float)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "Int64", "float64", "days"])
@pytest.mark.parametrize("name", ["CLUE", "CLUE with λ", "sensitivity"])
def test_numbers_leave_the_training_range_where_theirs_is_wider(name, dtype):
    X, y = visits_table(dtype)
    wider = {"visits": tuple(of_dtype([1, 28], dtype))}
    explainer = of_visits(name, X, y, slope(), feature_ranges=wider)
    visits = explained_visits(explainer, X[:30])
    assert ((1 <= visits) & (visits <= 28)).all()
    assert (visits < 10).any() and (visits > 19).any()
    explainer.set_params(feature_ranges=None)
    visits = explained_visits(explainer, X[:30])
    assert ((10 <= visits) & (visits <= 19)).all()


@pytest.mark.parametrize("allowed", [(2, 4), (30, 40)])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("name", EXPLAINERS)
def test_ranges_may_lie_beside_the_training_range(name, dtype, allowed):
    X, y = visits_table(dtype)
    explainer = of_visits(name, X, y, slope(), feature_ranges={"visits": allowed})
    visits = explained_visits(explainer, X[:10])
    assert ((allowed[0] <= visits) & (visits <= allowed[1])).all()


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("name", EXPLAINERS)
def test_a_value_of_the_row_outside_of_the_training_range_may_stay(name, dtype):
    X, y = visits_table(dtype)
    explainer = of_visits(name, X, y, slope())
    rows = X[:10].assign(visits=of_dtype(np.repeat([4, 26], 5), dtype))
    visits = explained_visits(explainer, rows)
    if name == "U-FIDO":  # replaces values by usual ones
        assert (visits[:5] >= 4).all() and (visits[5:] <= 26).all()
    else:  # the model is surest there
        np.testing.assert_array_equal(visits, rows["visits"])


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("name", ["CLUE", "neighbors"])
def test_a_value_of_the_row_comes_nearer_to_the_training_range_as_needed(name, dtype):
    X, y = visits_table(dtype)
    explainer = of_visits(name, X, y, UnsureAbove30())
    rows = X[:10].assign(visits=of_dtype(np.full(10, 40), dtype))
    visits = explained_visits(explainer, rows)
    assert ((20 <= visits) & (visits <= 30)).all()


def test_names_behind_steps_without_a_way_back_say_so():
    pl = pytest.importorskip("polars")
    debt = np.arange(60) - 30
    X = pl.DataFrame({"age": 2**63 - 1 - np.arange(60), "debt": debt})
    model = make_pipeline(SimpleImputer(), LogisticRegression())
    explainer = LocalSensitivityExplainer(model, immutable_features=["age"])
    with pytest.raises(ValueError, match="'age', which is not .* no inverse_transform"):
        explainer.fit(X, debt > 0)


def possible_values():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.integers(18, 80, 200), "income": rng.gamma(2, 1500, 200).round(1)}
    )
    score = (X["age"] - 45) / 15 + (X["income"] - 3000) / 2000
    return X, score + rng.normal(0, 0.6, 200) > 0


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [RobustScaler(), SimpleImputer()],
        [PowerTransformer()],
        [FunctionTransformer(np.log1p, np.expm1)],
    ],
    ids=lambda steps: type(steps[0]).__name__,
)
@pytest.mark.parametrize("method", ["CLUE", "neighbors", "sensitivity"])
def test_numbers_behind_steps_are_possible_and_still_sure(method, steps):
    """Rounding on the way back to the table must not undo what was found."""
    X, y = possible_values()
    model = make_pipeline(*steps, LogisticRegression())
    explainer = {
        "CLUE": CLUEExplainer(model, VAEEncoder(2, (8,), max_iter=2), random_state=0),
        "neighbors": NeighborExplainer(model),
        "sensitivity": LocalSensitivityExplainer(model, step_size=0.3),
    }[method].fit(X, y)
    rows = X[explainer.rejects(X)]
    explanation = explainer.explain(rows)
    found = explanation.counterfactuals
    np.testing.assert_array_equal(found["income"], found["income"].round(1))
    if method != "sensitivity":
        assert explanation.is_sure.all()
        assert not explainer.rejects(found).any()


@pytest.mark.parametrize("steps", [[], [StandardScaler()], [PowerTransformer()]])
def test_values_with_more_decimals_than_in_training_stay(steps):
    X, y = possible_values()
    model = make_pipeline(*steps, LogisticRegression())
    explainer = NeighborExplainer(model).fit(X, y)
    rows = X[explainer.rejects(X)].astype(float) + 0.123
    found = explainer.explain(rows).counterfactuals
    is_same = found == rows
    assert is_same.any().all() and not is_same.all().any()
    possible = found.round(1) == found
    assert (is_same | possible).all().all()
    # A column that need not change is not rounded on the side.
    assert is_same.any(axis=1).mean() > 0.5


@pytest.mark.parametrize("container", ["array", "frame"])
def test_tables_of_floats_are_decoded_at_once(container, monkeypatch):
    # Decimals, long numbers, and rows outside of the training range.
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=60).round(2), 1e6 * rng.normal(size=60), rng.poisson(3, 60)]
    ).astype(float)
    X = pd.DataFrame(X, columns=list("abc")) if container == "frame" else X
    ranges = [None, {0: (-0.5, 0.25)}, {1: "increase", 2: "decrease"}]
    for immutable, allowed in zip([None, [2], [0]], ranges, strict=True):
        allowed = allowed and {list("abc")[j]: v for j, v in allowed.items()}
        immutable = immutable and [list("abc")[j] for j in immutable]
        if container == "array":
            allowed = allowed and {"abc".index(name): v for name, v in allowed.items()}
            immutable = immutable and ["abc".index(name) for name in immutable]
        encoder = TabularEncoder().fit(X[:40])
        space = EncodedSpace([], encoder, X[:40], immutable, allowed)
        x0 = space.encode(X)
        x = np.where(rng.random(x0.shape) < 0.3, x0, x0 + rng.normal(size=x0.shape))
        at_once = space.decode(x, X, x0)
        with monkeypatch.context() as patch:
            patch.setattr(EncodedSpace, "_is_plain", lambda self, X: False)
            one_by_one = space.decode(x, X, x0)
        assert type(at_once) is type(one_by_one) is type(X)
        np.testing.assert_array_equal(at_once, one_by_one)
        if container == "frame":
            pd.testing.assert_frame_equal(at_once, one_by_one)
    # A gap, or whole numbers, take the long way.
    assert space._is_plain(X) and not space._is_plain(X.astype(int))
    X[:1] = np.nan
    assert not space._is_plain(X)


# Sparse steps ------------------------------------------------------------------------


def behind_one_hot(model, sparse_output):
    one_hot = OneHotEncoder(sparse_output=sparse_output, handle_unknown="ignore")
    steps = make_column_transformer(
        (one_hot, ["code"]), (StandardScaler(), ["x"]), sparse_threshold=1.0
    )
    return make_pipeline(steps, model)


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(0)
    code = rng.choice([f"k{i}" for i in range(20)], 200)
    X = pd.DataFrame({"code": code, "x": rng.normal(size=200)})
    return X, (X["x"] + rng.normal(size=200) > 0).astype(int)


@pytest.mark.parametrize("explainer", [NeighborExplainer, LocalSensitivityExplainer])
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        MLPClassifier((5,), max_iter=20, random_state=0),
        BaggingClassifier(LogisticRegression(), 3, random_state=0),
    ],
)
def test_sparse_steps_are_like_dense_ones(model, explainer, codes):
    X, y = codes
    explained = []
    for is_sparse in (False, True):
        pipeline = behind_one_hot(clone(model), is_sparse).fit(X, y)
        assert issparse(pipeline[0].transform(X)) == is_sparse
        fitted = explainer(FrozenEstimator(pipeline)).fit(X, y)
        explained.append(fitted.explain(X[:8]))
    dense, sparse = explained
    pd.testing.assert_frame_equal(sparse.counterfactuals, dense.counterfactuals)
    np.testing.assert_allclose(sparse.uncertainty_after, dense.uncertainty_after)


def test_lists_of_pipelines_and_global_sensitivity_with_sparse_steps(codes):
    X, y = codes
    by_kind = []
    for is_sparse in (False, True):
        members = [
            behind_one_hot(LogisticRegression(C=c), is_sparse).fit(X, y)
            for c in (0.1, 1.0)
        ]
        explanation = NeighborExplainer(members).fit(X, y).explain(X[:4])
        by_kind.append((explanation.counterfactuals, global_sensitivity(members[0], X)))
    pd.testing.assert_frame_equal(by_kind[1][0], by_kind[0][0])
    pd.testing.assert_series_equal(by_kind[1][1], by_kind[0][1])
