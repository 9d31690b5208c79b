"""What every explainer promises, whatever it does between two rows."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

import sklearn_clue.pipeline
from sklearn_clue import (
    CLUEExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    UFIDOExplainer,
)
from sklearn_clue.evaluation import EXPLANATION_SCORERS, knee_point
from sklearn_clue.exceptions import EncodingMismatchError
from tests.explainers.conftest import classifier, make_table, regressor, vae, vaeac

# Name -> class, generator, the parameter that trades, and its values for large changes
# and for small ones.
EXPLAINERS = {
    "CLUE": (CLUEExplainer, vae, "target_uncertainty", 0.1, 0.6),
    "CLUE with λ": (CLUEExplainer, vae, "distance_weight", 0.01, 50.0),
    "neighbors": (NeighborExplainer, None, "target_uncertainty", 0.1, 0.6),
    "sensitivity": (LocalSensitivityExplainer, None, "step_size", 30.0, 1e-3),
    "U-FIDO": (UFIDOExplainer, vaeac, "mask_weight", 0.0, 10.0),
}


class Method:
    """One explainer class, with tiny parts that are fitted at most once."""

    def __init__(self, name):
        self.name = name
        self.cls, self.make_generator, self.trade_off, self.far, self.near = EXPLAINERS[
            name
        ]
        # These ask for the nearest sure row, and need no gradients.
        self.asks_for_sure_rows = self.trade_off == "target_uncertainty"

    def fresh(self, estimator, generator=None, **settings):
        """An explainer whose parts are yet to be fitted."""
        settings = {"random_state": 0, **settings}
        if self.trade_off == "distance_weight":
            settings = {"distance_weight": 2.0, **settings}
        if self.make_generator is None:
            return self.cls(estimator, **settings)
        generator = self.make_generator() if generator is None else generator
        return self.cls(estimator, generator, **settings)

    def far_going(self, estimator, **settings):
        return self.fresh(estimator, **{self.trade_off: self.far, **settings})

    def fit_on(self, table):
        X, y, _ = table
        self.fitted = self.far_going(classifier()).fit(X, y)

    def variant(self, X, y=None, **settings):
        """An explainer with the fitted parts and other settings."""
        parts = [FrozenEstimator(self.fitted.estimator_)]
        if self.make_generator is not None:
            parts.append(FrozenEstimator(self.fitted.generator_))
        settings = {self.trade_off: self.far, "random_state": 0, **settings}
        return self.cls(*parts, **settings).fit(X, y)


_METHODS = {}


@pytest.fixture(params=EXPLAINERS)
def method(request, table):
    if request.param not in _METHODS:
        _METHODS[request.param] = Method(request.param)
        _METHODS[request.param].fit_on(table)
    return _METHODS[request.param]


# Rows ------------------------------------------------------------------------------


def test_what_is_told_is_about_the_rows_that_are_returned(method, table):
    X, _, _ = table
    before = X.copy()
    fitted = method.fitted
    explanation = fitted.explain(X[:20])
    pd.testing.assert_frame_equal(X, before)
    cf = explanation.counterfactuals
    assert not cf.equals(X[:20])
    for rows, told, prediction in (
        (cf, explanation.uncertainty_after, explanation.prediction_after),
        (X[:20], explanation.uncertainty_before, explanation.prediction_before),
    ):
        known = fitted.estimator_.predict_uncertainty(rows)
        for mine, theirs in zip(told, known, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)
        np.testing.assert_array_equal(prediction, fitted.estimator_.predict(rows))
    encoder = fitted.estimator_.encoder_
    gap = np.abs(encoder.transform(cf) - encoder.transform(X[:20]))
    np.testing.assert_allclose(explanation.distance, gap.sum(1))
    assert explanation.method == fitted._name
    assert explanation.n_iter.shape == explanation.converged.shape == (20,)


def test_contributions_sum_to_the_fall(method, table):
    X, _, _ = table
    kind = {"aleatoric": 1.0, "epistemic": 3.0}
    fitted = method.variant(*table[:2], uncertainty=kind)
    explanation = fitted.explain(X[:10], contributions=True)
    ends = explanation.uncertainty_before, explanation.uncertainty_after
    before, after = (parts.aleatoric + 3 * parts.epistemic for parts in ends)
    fall = before - after
    contributions = explanation.contributions
    assert contributions.shape == (10, 4) and np.abs(contributions).max() > 0
    np.testing.assert_allclose(contributions.sum(1), fall, atol=1e-8)
    changed = explanation.X.to_numpy() != explanation.counterfactuals.to_numpy()
    assert not contributions[~changed].any()
    assert explanation.kind == kind
    np.testing.assert_allclose(explanation.drivers()["share"].sum(), 1)
    # Where nobody asks, only the nearest sure row comes with them.
    silent = method.fitted.explain(X[:3]).contributions
    assert (silent is not None) == method.asks_for_sure_rows
    assert method.fitted.explain(X[:3], contributions=False).contributions is None
    with pytest.raises(ValueError, match="contributions must be True, False or None"):
        method.fitted.explain(X[:3], contributions="yes")


def test_returned_rows_are_valid(method, table):
    X, _, _ = table
    cf = method.fitted.explain(X[:20]).counterfactuals
    assert list(cf.columns) == list(X.columns) and list(cf.index) == list(X.index[:20])
    assert (cf.dtypes == X.dtypes).all()  # whole numbers, known categories, booleans
    assert not cf.isna().any(axis=None)
    assert cf["age"].between(X["age"].min(), X["age"].max()).all()


def test_a_row_does_not_depend_on_its_neighbours(method, table):
    X, y, _ = table
    explainer = method.variant(X, y)
    batches = method.variant(X, y, batch_size=17)
    jobs = method.variant(X, y, batch_size=25, n_jobs=2)
    X = X[:50]
    whole = explainer.explain(X)
    order = np.random.default_rng(0).permutation(len(X))
    others = {
        "alone": (explainer.explain(X[7:8]), np.array([7])),
        "shuffled": (explainer.explain(X.iloc[order]), order),
        "batches": (batches.explain(X), slice(None)),
        "jobs": (jobs.explain(X), slice(None)),
    }
    for other, rows in others.values():
        np.testing.assert_array_equal(
            other.encoded_counterfactuals, whole.encoded_counterfactuals[rows]
        )
        np.testing.assert_array_equal(other.n_iter, whole.n_iter[rows])


def test_trade_off_takes_effect_without_another_fit(method, table):
    X, y, _ = table
    explainer = method.variant(X, y)
    far = explainer.explain(X[:30])
    explainer.set_params(**{method.trade_off: method.near})
    near = explainer.explain(X[:30])
    assert near.distance.mean() < 0.5 * far.distance.mean()
    anew = method.variant(X, y, **{method.trade_off: method.near}).explain(X[:30])
    np.testing.assert_array_equal(
        near.encoded_counterfactuals, anew.encoded_counterfactuals
    )
    explainer.set_params(**{method.trade_off: -1.0})
    with pytest.raises(ValueError, match=f"The '{method.trade_off}' parameter"):
        explainer.explain(X[:3])


# Constraints -----------------------------------------------------------------------


def test_constraints_of_all_kinds_at_once(method, table):
    X, y, _ = table
    X = X.assign(height=np.random.default_rng(1).normal(170, 9, len(X)))
    explainer = method.far_going(
        classifier(),
        immutable_features=["job", "height"],
        feature_ranges={"age": "increase", "income": (41.3, 57.9)},
    ).fit(X, y)
    explanation = explainer.explain(X[:40])
    cf, X = explanation.counterfactuals, X[:40]
    np.testing.assert_array_equal(cf["height"].to_numpy(), X["height"].to_numpy())
    assert (cf["job"] == X["job"]).all()
    assert (cf["age"] >= X["age"]).all() and (cf["age"] > X["age"]).any()
    assert cf["income"].between(41.3, 57.9).all()
    told = explainer.predict_uncertainty(cf)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)
    # Without them, the same rows go elsewhere.
    free = method.fitted.explain(X.drop(columns="height")).counterfactuals
    assert (free["age"] < X["age"]).any()
    assert not free["income"].between(41.3, 57.9).all()


def test_immutable_numbers_are_bit_identical(method, table):
    X, y, _ = table
    explainer = method.variant(
        X, y, immutable_features="income", feature_ranges={"age": "decrease"}
    )
    cf = explainer.explain(X).counterfactuals
    np.testing.assert_array_equal(cf["income"].to_numpy(), X["income"].to_numpy())
    assert (cf["age"] <= X["age"]).all() and (cf["age"] < X["age"]).any()


def test_nothing_moves_if_nothing_may(method, table):
    X, y, _ = table
    explainer = method.variant(X, y, immutable_features=list(X.columns))
    pd.testing.assert_frame_equal(explainer.explain(X[:9]).counterfactuals, X[:9])


def test_constraints_through_a_pipeline(method, table):
    X, _, target = table
    X = X[["age", "income"]].astype({"age": float})
    explainer = method.far_going(
        make_pipeline(SimpleImputer(), StandardScaler(), regressor()),
        immutable_features=["age"],
        feature_ranges={"income": (45.0, 50.0)},
    ).fit(X, target)
    cf = explainer.explain(X[:30]).counterfactuals
    np.testing.assert_array_equal(cf["age"], X["age"][:30])
    assert cf["income"].between(45.0, 50.0).all()


def test_ranges_of_numbers_that_are_objects(method, table):
    X, y, _ = table
    X = X.astype({"age": object})
    explainer = method.far_going(
        classifier(), feature_ranges={"age": "increase", "income": (41.3, 57.9)}
    ).fit(X, y)
    cf = explainer.explain(X[:20]).counterfactuals
    assert cf["age"].dtype == object
    assert (cf["age"] >= X["age"][:20]).all()


def test_constraints_may_be_set_after_fit(method, table):
    X, y, _ = table
    constraints = {"immutable_features": ["job"], "feature_ranges": {"age": "increase"}}
    early = method.variant(X, y, **constraints)
    late = method.variant(X, y).set_params(**constraints)
    pd.testing.assert_frame_equal(
        late.explain(X[:20]).counterfactuals, early.explain(X[:20]).counterfactuals
    )
    with pytest.raises(ValueError, match="immutable_features names 'wage'"):
        late.set_params(immutable_features=["wage"]).explain(X[:2])
    free = late.set_params(immutable_features=None, feature_ranges=None)
    after = free.explain(X).counterfactuals
    is_broken = (after["age"] < X["age"]) | (after["job"] != X["job"])
    assert is_broken.any()  # nothing holds them any more


@pytest.mark.parametrize("n_components", [1, 2])
def test_constraints_and_steps_that_mix_columns(method, table, n_components):
    X, y, _ = table
    X = X[["age", "income"]]
    explainer = method.fresh(
        make_pipeline(PCA(n_components), LogisticRegression()),
        immutable_features=["age"],
    )
    if method.asks_for_sure_rows:  # which asks the pipeline about rows of the table
        rows = X[explainer.fit(X, y).rejects(X)]
        after = explainer.explain(rows).counterfactuals
        assert (after["age"] == rows["age"]).all()
        assert (after["income"] != rows["income"]).any()
        return
    with pytest.raises(ValueError, match="the steps that mix columns"):
        explainer.fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"immutable_features": ["wage"]}, r"immutable_features names 'wage'"),
        ({"feature_ranges": {"wage": (0, 1)}}, r"feature_ranges names 'wage'"),
        ({"feature_ranges": {"job": (0, 1)}}, r"'job', which is a category"),
        ({"feature_ranges": {"age": (5, 1)}}, r"must be a pair \(low, high\)"),
        ({"feature_ranges": {"age": "up"}}, r"'increase' or 'decrease', got 'up'"),
        ({"uncertainty": {"total": -1.0}}, r"weights that are at least 0"),
        ({"uncertainty": {"both": 1.0}}, r"uncertainty must be 'total'"),
    ],
)
def test_settings_that_make_no_sense(method, table, settings, message):
    X, y, _ = table
    with pytest.raises(ValueError, match=message):
        method.variant(X, y, **settings)


class NeverFitted(LogisticRegression):
    def fit(self, X, y):
        raise AssertionError("long work has begun")


@pytest.mark.parametrize(
    "settings",
    [
        {"immutable_features": ["wage"]},
        {"feature_ranges": {"age": "up"}},
        {"uncertainty": {"both": 1.0}},
    ],
)
def test_settings_are_read_before_anything_is_fitted(method, table, settings):
    X, y, _ = table
    with pytest.raises(ValueError, match="immutable_features|feature_ranges|uncert"):
        method.fresh(NeverFitted(), **settings).fit(X, y)


# Containers and pipelines ----------------------------------------------------------


def test_polars_comes_back_as_polars(method, table):
    pl = pytest.importorskip("polars")
    X, y, _ = table
    frame = pl.DataFrame(
        {
            "age": X["age"].to_numpy(),
            "income": X["income"].to_numpy(),
            "job": X["job"].astype(str).tolist(),
        }
    )
    explainer = method.far_going(
        classifier(), feature_ranges={"age": "increase"}, immutable_features=["job"]
    ).fit(frame, y)
    cf = explainer.explain(frame[:6]).counterfactuals
    assert cf.schema == frame.schema
    assert (cf["age"] >= frame["age"][:6]).all()
    assert (cf["job"] == frame["job"][:6]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_come_back_as_arrays(method, table, dtype):
    X, y, _ = table
    X = X[["age", "income"]].to_numpy().astype(dtype)
    explainer = method.far_going(classifier(), immutable_features=[1]).fit(X, y)
    cf = explainer.explain(X[:8]).counterfactuals
    assert isinstance(cf, np.ndarray) and cf.dtype == dtype
    np.testing.assert_array_equal(cf[:, 1], X[:8, 1])
    assert (cf[:, 0] != X[:8, 0]).any()


def test_pipeline_comes_back_in_raw_units(method, table):
    X, _, target = table
    X = X[["age", "income"]].astype({"age": float})
    X.iloc[3, 0] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), regressor())
    explainer = method.far_going(model).fit(X, target)
    explanation = explainer.explain(X[:10])
    assert explanation.note is None
    cf = explanation.counterfactuals
    assert list(cf.columns) == ["age", "income"] and cf["age"].mean() > 15
    np.testing.assert_allclose(
        explanation.prediction_after, explainer.estimator_.predict(cf), rtol=1e-4
    )
    assert explanation.schema.column("age").percentiles is not None


def test_pipeline_without_a_way_back_says_so(method, table):
    X, y, _ = table
    prefix = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["job", "smoker"]),
        (StandardScaler(), ["age", "income"]),
    )
    explainer = method.fresh(make_pipeline(prefix, classifier())).fit(X, y)
    explanation = explainer.explain(X[:4])
    assert list(explanation.counterfactuals.index) == list(X.index[:4])
    if method.asks_for_sure_rows:  # which asks the pipeline about rows of the table
        assert explanation.note is None
        assert (explanation.counterfactuals.dtypes == X.dtypes).all()
        return
    assert "after ColumnTransformer" in explanation.note
    assert "standardscaler__age" in explanation.counterfactuals


def test_lossy_steps_are_scored_as_the_user_gets_the_row(method, table):
    X, y, _ = table
    X = X[["age", "income"]]
    model = make_pipeline(StandardScaler(), PCA(1), classifier())
    explainer = method.fresh(model).fit(X, y)
    explanation = explainer.explain(X[:5])
    told = explainer.predict_uncertainty(explanation.counterfactuals)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)


def test_tabular_encoder_as_a_step_is_the_encoded_space(method, table):
    X, y, _ = table
    model = make_pipeline(TabularEncoder(), LogisticRegression())
    explanation = method.fresh(model).fit(X, y).explain(X[:8])
    assert (explanation.counterfactuals.dtypes == X.dtypes).all()


def test_last_step_of_a_pipeline_and_grid_search(method, table):
    X, y, _ = table
    X = X[["age", "income"]]
    pipe = sklearn_clue.pipeline.make_pipeline(
        StandardScaler(), method.far_going(LogisticRegression())
    ).fit(X, y)
    assert len(pipe.explain(X[pipe.rejects(X)][:4])) == 4
    search = GridSearchCV(
        method.fresh(LogisticRegression()),
        {method.trade_off: [method.near, method.far]},
        scoring=EXPLANATION_SCORERS,
        refit=knee_point,
        cv=2,
        n_jobs=2,
    ).fit(X, y)
    assert search.best_params_[method.trade_off] in (method.near, method.far)


# Parts -----------------------------------------------------------------------------


def test_rejects_and_threshold(method, table):
    X, y, _ = table
    explainer = method.variant(X, rejection_rate=0.3)  # frozen parts need no target
    total = explainer.predict_uncertainty(X).total
    np.testing.assert_array_equal(explainer.rejects(X), total > explainer.threshold_)
    assert explainer.rejects(X).sum() == 36
    assert explainer.explain(X[:2]).threshold == explainer.threshold_


def test_frozen_parts_are_not_fitted_again(method, table):
    X, y, _ = table
    explainer = method.variant(X, y)
    assert explainer.estimator_.estimator is method.fitted.estimator_
    if method.make_generator is not None:
        assert explainer.generator_ is method.fitted.generator_
    a, b = explainer.explain(X[:5]), method.fitted.explain(X[:5])
    np.testing.assert_array_equal(a.encoded_counterfactuals, b.encoded_counterfactuals)


def test_generator_of_another_space_is_refused(method, table):
    if method.make_generator is None:
        pytest.skip("no generator")
    X, y, _ = table
    other = X.copy()
    other["job"] = pd.Categorical(
        other["job"].astype(str), categories=["clerk", "coach", "cook", "king"]
    )
    stranger = FrozenEstimator(method.make_generator().fit(other))
    with pytest.raises(EncodingMismatchError, match=r"'job': 4 .* \(extra: 'king'\)"):
        method.fresh(classifier(), stranger).fit(X, y)


def test_same_seed_same_everything(method, table):
    X, y, _ = table
    estimator = classifier(random_state=None)
    generator = method.make_generator and method.make_generator(random_state=None)
    a, b, c = (
        method.fresh(estimator, generator, random_state=seed).fit(X, y)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    np.testing.assert_array_equal(
        *(each.explain(X[:5]).encoded_counterfactuals for each in (a, b))
    )
    assert a.threshold_ == b.threshold_
    assert not np.array_equal(a.predict_proba(X), c.predict_proba(X))
    assert estimator.random_state is None  # the user's objects are left alone


class DrawsGlobally(LogisticRegression):
    """A part without a `random_state` to set, as scikit-learn's TargetEncoder is."""

    def fit(self, X, y):
        torch.rand(1)
        noise = check_random_state(None).normal(size=np.shape(X))
        return super().fit(np.asarray(X) + noise, y)


def test_same_seed_same_fit_of_parts_without_one(table):
    X, y, _ = table
    X = X[["age", "income"]]
    everybody = check_random_state(None)
    before = everybody.get_state()[1].copy(), torch.random.get_rng_state()
    a, b, c = (
        NeighborExplainer(DrawsGlobally(), random_state=seed).fit(X, y)
        for seed in (0, 0, 1)
    )
    assert a.threshold_ == b.threshold_ != c.threshold_
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    # The generators of everybody are left as they were.
    np.testing.assert_array_equal(everybody.get_state()[1], before[0])
    assert torch.equal(torch.random.get_rng_state(), before[1])


def test_parts_report_if_the_explainer_should(method, table, capsys):
    X, y, _ = table
    estimator = classifier()
    method.fresh(make_pipeline("passthrough", estimator), verbose=2).fit(X, y)
    printed = capsys.readouterr()
    assert type(estimator).__name__ in printed.out + printed.err
    assert estimator.verbose == 0  # the user's objects are left alone
    method.fresh(estimator).fit(X, y)
    assert capsys.readouterr() == ("", "")


def test_explainer_survives_joblib(method, table, tmp_path):
    X, _, _ = table
    joblib.dump(method.fitted, tmp_path / "explainer.joblib")
    loaded = joblib.load(tmp_path / "explainer.joblib")
    a, b = loaded.explain(X[:6]), method.fitted.explain(X[:6])
    np.testing.assert_array_equal(a.encoded_counterfactuals, b.encoded_counterfactuals)
    np.testing.assert_array_equal(a.uncertainty_after, b.uncertainty_after)
    assert not hasattr(clone(loaded), "estimator_")


def test_unfitted_and_missing_target(method):
    X, _, _ = make_table(30)
    with pytest.raises(NotFittedError):
        method.cls().explain(X)
    with pytest.raises(ValueError, match="requires y to be passed"):
        method.cls().fit(X)


def test_models_without_gradients(method, table):
    X, y, _ = table
    X = X[["age", "income"]]
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    explainer = method.fresh(tree).fit(X, y)
    assert explainer.rejects(X).any()
    if not method.asks_for_sure_rows:
        with pytest.raises(TypeError, match="follows gradients.*NeighborExplainer"):
            explainer.explain(X[:2])
        return
    explanation = explainer.explain(X)
    told = explainer.predict_uncertainty(explanation.counterfactuals)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)
    assert explanation.is_sure.mean() > 0.9
