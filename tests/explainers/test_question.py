"""The nearest sure and believable row: what explainers that ask for it promise."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_clue import CLUEExplainer, NeighborExplainer, PredictedNoiseRegressor
from sklearn_clue.evaluation import plausibility
from sklearn_clue.explainers import _results
from sklearn_clue.explainers._question import entropy_at_most, likeliest_class
from tests.explainers.conftest import classifier, make_table, regressor, vae

EXPLAINERS = ("CLUE", "neighbors")
_FITTED = {}


def fit_once(name, kind):
    if (name, kind) not in _FITTED:
        X, labels, values = make_table()
        model = classifier() if kind == "classes" else regressor()
        explainer = NeighborExplainer(model, random_state=0)
        if name == "CLUE":
            explainer = CLUEExplainer(model, vae(), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer.fit(X, labels if kind == "classes" else values)
        _FITTED[name, kind] = explainer
    return _FITTED[name, kind]


@pytest.fixture(params=EXPLAINERS)
def fitted(request):
    """An explainer of a classifier with its own settings; tests change them."""
    explainer = fit_once(request.param, "classes")
    settings = explainer.get_params(deep=False)
    yield explainer
    explainer.set_params(**settings)


@pytest.fixture(params=EXPLAINERS)
def of_numbers(request):
    explainer = fit_once(request.param, "numbers")
    settings = explainer.get_params(deep=False)
    yield explainer
    explainer.set_params(**settings)


@pytest.fixture(scope="module")
def X(table):
    return table[0]


# What comes back -------------------------------------------------------------------


def test_sure_rows_come_back_at_no_cost_and_no_row_is_less_sure(fitted, X):
    explanation = fitted.explain(X)
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    is_sure_already = ~fitted.rejects(X)
    pd.testing.assert_frame_equal(
        explanation.counterfactuals[is_sure_already], X[is_sure_already]
    )
    assert (explanation.distance[is_sure_already] == 0).all()
    assert (explanation.n_changed[is_sure_already] == 0).all()
    # All that was asked is how sure the row is itself; a search asks about more.
    assert (explanation.n_iter[is_sure_already] <= 1).all()
    assert (explanation.n_iter[~is_sure_already] > 5).all()
    assert (after.total <= before.total + 1e-9).all()
    np.testing.assert_array_equal(
        explanation.is_sure, after.total <= explanation.target
    )
    assert explanation.is_sure.mean() > 0.95
    for name in ("objective", "path", "distance_floor", "uncertainty_reconstructed"):
        assert getattr(explanation, name) is None


def test_what_is_told_is_what_the_model_says(fitted, X):
    explanation = fitted.explain(X[fitted.rejects(X)])
    after = explanation.counterfactuals
    told = fitted.estimator_.predict_uncertainty(after)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)
    np.testing.assert_array_equal(
        explanation.prediction_after, fitted.estimator_.predict(after)
    )
    np.testing.assert_allclose(
        explanation.probabilities_after, fitted.estimator_.predict_proba(after)
    )


def test_contributions_add_up_to_what_was_explained(fitted, X):
    explanation = fitted.explain(X[fitted.rejects(X)])
    explained = explanation.uncertainty_before.total - (
        explanation.uncertainty_after.total
    )
    total = np.asarray(explanation.contributions).sum(1)
    np.testing.assert_allclose(np.abs(total), np.abs(explained), atol=1e-9)
    changed = explanation.counterfactuals != explanation.X
    assert (np.asarray(explanation.contributions)[~changed.to_numpy()] == 0).all()


def test_the_target_is_the_threshold_for_the_total(fitted, of_numbers, X):
    for explainer in (fitted, of_numbers):
        target = explainer.explain(X[:2]).target
        assert target == pytest.approx(explainer.threshold_, rel=1e-9)
    parts = fitted.predict_uncertainty(X)
    fitted.set_params(uncertainty="epistemic")  # after fit
    explanation = fitted.explain(X)
    assert explanation.target == pytest.approx(np.quantile(parts.epistemic, 0.8))
    np.testing.assert_array_equal(
        explanation.is_sure,
        explanation.uncertainty_after.epistemic <= explanation.target,
    )
    is_sure = parts.epistemic <= explanation.target
    assert (explanation.distance[is_sure] == 0).all()
    assert explanation.is_sure.mean() > is_sure.mean()


def test_target_uncertainty_is_in_the_unit_of_the_target(of_numbers, X):
    before = of_numbers.predict_uncertainty(X).total
    wanted = float(np.quantile(before, 0.5))
    explanation = of_numbers.set_params(target_uncertainty=wanted).explain(X)
    assert explanation.target == pytest.approx(wanted)
    after = explanation.uncertainty_after.total
    assert (after[explanation.is_sure] <= wanted).all()
    assert (after[~explanation.is_sure] > wanted).all()
    assert explanation.is_sure.mean() > 0.9 > (before <= wanted).mean()
    # No farther than it takes.
    assert after[before > wanted].mean() > 0.9 * wanted


# Settings --------------------------------------------------------------------------


def test_min_plausibility(fitted, X):
    rows = X[fitted.rejects(X)]
    as_row = fitted.explain(rows)
    least = np.minimum(as_row.plausibility_before, 0.5)
    np.testing.assert_array_equal(
        as_row.is_plausible, as_row.plausibility >= least - 1e-9
    )
    assert as_row.is_plausible.mean() > 0.9
    free = fitted.set_params(min_plausibility=None).explain(rows)
    assert free.is_plausible is None
    assert free.distance.mean() <= as_row.distance.mean() + 1e-9
    strict = fitted.set_params(min_plausibility=0.6).explain(rows)
    np.testing.assert_array_equal(strict.is_plausible, strict.plausibility >= 0.6)
    assert strict.is_plausible.mean() > (free.plausibility >= 0.6).mean()
    for wrong in (1.5, "column"):
        with pytest.raises(ValueError, match="'min_plausibility' parameter"):
            fitted.set_params(min_plausibility=wrong).explain(rows)


def test_max_distance_is_respected(fitted, X):
    rows = X[fitted.rejects(X)]
    free = fitted.explain(rows).distance
    limit = float(np.median(free))
    near = fitted.set_params(max_distance=limit).explain(rows)
    assert (near.distance <= limit + 1e-9).all()
    before, after = near.uncertainty_before.total, near.uncertainty_after.total
    assert (after <= before + 1e-9).all()
    assert 0 < near.is_sure.mean() < 1


def test_constraints_are_exact(fitted, X):
    rows = X[fitted.rejects(X)]
    fitted.set_params(
        n_explanations=2,
        immutable_features=["job"],
        feature_ranges={"age": "increase", "income": (41.3, 57.9)},
    )
    explanation = fitted.explain(rows)
    for i, candidates in enumerate(explanation.candidates):
        own = rows.iloc[i]
        assert (candidates["job"] == own["job"]).all()
        assert (candidates["age"] >= own["age"]).all()
        assert candidates["income"].between(41.3, 57.9).all()


def test_several_explanations_change_different_columns(fitted, X):
    rows = X[fitted.rejects(X)]
    explanation = fitted.set_params(n_explanations=3).explain(rows)
    counts = [len(candidates) for candidates in explanation.candidates]
    assert max(counts) > 1 and max(counts) <= 3
    for i, candidates in enumerate(explanation.candidates):
        own = rows.iloc[i]
        changed = [
            frozenset(name for name in X if candidate[name] != own[name])
            for _, candidate in candidates.iterrows()
        ]
        assert len(set(changed)) == len(changed)
    pd.testing.assert_frame_equal(
        pd.concat([candidates[:1] for candidates in explanation.candidates]),
        explanation.counterfactuals,
    )
    details = explanation.candidate_details
    assert (details.groupby("row")["rank"].max() + 1).tolist() == counts
    for _, distance in details.groupby("row")["distance"]:
        assert distance.is_monotonic_increasing


def test_prediction_weight_needs_a_distance_weight(X):
    clue = CLUEExplainer(LogisticRegression(), vae(), prediction_weight=1.0)
    with pytest.raises(ValueError, match="prediction_weight=1.0 needs a number"):
        clue.fit(X[["age"]], np.arange(len(X)) % 2)
    fitted = clone(fit_once("CLUE", "classes")).set_params(
        estimator=FrozenEstimator(fit_once("CLUE", "classes").estimator_),
        generator=FrozenEstimator(fit_once("CLUE", "classes").generator_),
    )
    fitted.fit(X).set_params(prediction_weight=1.0)
    with pytest.raises(ValueError, match="distance_weight"):
        fitted.explain(X[:2])
    assert len(fitted.set_params(distance_weight=2.0).explain(X[:2])) == 2


# Scores, stored rows ---------------------------------------------------------------


def test_score_counts_sure_rows_before_distances(fitted, X):
    sure = X[~fitted.rejects(X)]
    with pytest.warns(UserWarning, match="nothing to score: NaN"):
        assert np.isnan(fitted.score(sure))
    score = fitted.score(X)
    assert 0.9 < score <= 1 + 1 / fitted.rejects(X).sum()
    near = fitted.set_params(max_distance=0.05).score(X)
    assert 0 <= near < score
    if isinstance(fitted, CLUEExplainer):
        # No number of the paper's search can be mistaken for one of these.
        assert fitted.set_params(distance_weight=1.0).score(X) <= 0


def test_nearest_sure_gives_sure_training_rows(fitted, X):
    rows = X[fitted.rejects(X)][:4]
    for nearest in fitted.nearest_sure(rows, n_neighbors=3):
        assert len(nearest) == 3 and (nearest.dtypes == X.dtypes).all()
        assert not fitted.rejects(nearest).any()
        for _, row in nearest.iterrows():
            is_same = (X.drop(columns="income") == row.drop("income")).all(axis=1)
            is_same &= np.isclose(X["income"], row["income"])
            assert is_same.any()
    # The first is no farther than any other sure row.
    encoder = fitted.estimator_.encoder_
    sure = encoder.transform(X[~fitted.rejects(X)])
    first = pd.concat([found[:1] for found in fitted.nearest_sure(rows)])
    gaps = np.abs(encoder.transform(first) - encoder.transform(rows)).sum(1)
    least = np.abs(encoder.transform(rows)[:, None] - sure).sum(2).min(1)
    np.testing.assert_allclose(gaps, least, atol=1e-6)


def test_nothing_is_stored_if_no_neighbours_are_wanted(X):
    fitted = fit_once("CLUE", "classes")
    explainer = CLUEExplainer(
        FrozenEstimator(fitted.estimator_),
        FrozenEstimator(fitted.generator_),
        n_neighbors=0,
    ).fit(X)
    with pytest.raises(ValueError, match="No training rows were stored"):
        explainer.nearest_sure(X[:2])
    explanation = explainer.explain(X[explainer.rejects(X)])
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    assert (after.total <= before.total + 1e-9).all()


def test_rows_without_weight_are_not_stored(X, table):
    y = table[1]
    X = X[["age", "income"]]
    weight = np.arange(len(X)) % 2
    explainer = NeighborExplainer(LogisticRegression())
    weighted = clone(explainer).fit(X, y, sample_weight=weight)
    (found,) = weighted.nearest_sure(X[:1], n_neighbors=len(X))
    kept = X[weight == 1]
    assert found["age"].isin(kept["age"]).all() and len(found) <= len(kept)
    alone = clone(explainer).set_params(estimator=FrozenEstimator(weighted.estimator_))
    alone.fit(kept)
    assert weighted.threshold_ == pytest.approx(alone.threshold_)
    for a, b in zip(
        weighted.nearest_sure(X[:5], 4), alone.nearest_sure(X[:5], 4), strict=True
    ):
        # Both encode by rows of their own.
        np.testing.assert_allclose(np.sort(a, axis=0), np.sort(b, axis=0), rtol=1e-6)


def test_contributions_are_paid_for_by_who_wants_them(X, monkeypatch):
    clue = fit_once("CLUE", "classes")
    assert clue.distance_weight is None
    assert clue.explain(X[:5]).contributions is not None
    # The paper's question, and scores, have no use for them.
    for explanation in clue.explain_path(X[:5], [0.5, 2.0]):
        assert explanation.contributions is None

    def refuse(*args, **kwargs):
        raise AssertionError("nobody wants contributions")

    monkeypatch.setattr(_results, "shapley_of_changes", refuse)
    assert np.isfinite(clue.score(X))
    assert np.isfinite(clue._scores(X, (0.5, 2.0))).all()


def test_what_is_stored_survives_joblib(fitted, X, tmp_path):
    joblib.dump(fitted, tmp_path / "explainer.joblib")
    loaded = joblib.load(tmp_path / "explainer.joblib")
    ours, theirs = fitted.explain(X[:30]), loaded.explain(X[:30])
    pd.testing.assert_frame_equal(ours.counterfactuals, theirs.counterfactuals)
    for name in ("target", "plausibility", "contributions", "is_sure"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert fitted.score(X) == loaded.score(X)


# Any model -------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPLAINERS)
def test_a_frozen_forest_on_a_raw_frame_with_gaps(name, table):
    X, y, _ = table
    X = X.astype({"job": object, "age": float})
    X.iloc[::7, 0], X.iloc[3::11, 2] = np.nan, None
    forest = RandomForestClassifier(20, min_samples_leaf=5, random_state=0)
    model = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["job", "smoker"]),
            (SimpleImputer(), ["age", "income"]),
        ),
        forest,
    ).fit(X, y)
    explainer = NeighborExplainer(FrozenEstimator(model))
    if name == "CLUE":
        explainer = CLUEExplainer(FrozenEstimator(model), vae(max_iter=5))
    explainer.fit(X, y)
    rows = X[explainer.rejects(X)]
    explanation = explainer.explain(rows)
    after = explanation.counterfactuals
    assert (after.dtypes == X.dtypes).all() and list(after.index) == list(rows.index)
    # Gaps stay as they are, and no new ones come.
    pd.testing.assert_frame_equal(after.isna(), rows.isna())
    told = explainer.predict_uncertainty(after)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)
    np.testing.assert_array_equal(explanation.prediction_after, model.predict(after))
    assert explanation.is_sure.mean() > 0.8
    assert explanation.note is None


def test_the_papers_search_keeps_within_a_distance_too(X):
    explainer = clone(fit_once("CLUE", "classes")).set_params(
        estimator=FrozenEstimator(fit_once("CLUE", "classes").estimator_),
        generator=FrozenEstimator(fit_once("CLUE", "classes").generator_),
        distance_weight=0.05,
    )
    explainer.fit(X, np.resize(["no", "yes"], len(X)))
    rows = X[explainer.rejects(X)]
    far = explainer.explain(rows)
    near = explainer.set_params(max_distance=1.5).explain(rows)
    assert far.distance.max() > 3 and near.distance.max() <= 1.5
    assert near.uncertainty_explained.mean() > 0
    # A dear distance leaves rows where the generator can rebuild them best: with their
    # own noise that is where they are.
    explainer.set_params(max_distance=None, distance_weight=1e3)
    kept = clone(explainer).set_params(keep_noise=True).fit(X).explain(rows)
    np.testing.assert_allclose(kept.distance_floor, 0, atol=1e-5)
    np.testing.assert_allclose(kept.distance, 0, atol=1e-5)
    lost = explainer.explain(rows)
    assert lost.distance_floor.mean() > 0.1 and lost.distance.mean() > 0.1
    # The search starts at the row itself, so that nothing ends above it.
    kept = explainer.set_params(distance_weight=0.5, keep_noise=True).explain(rows)
    assert (kept.objective <= kept.uncertainty_before.total + 1e-6).all()
    assert kept.uncertainty_explained.mean() > 0.1


@pytest.fixture(scope="module")
def without_rows(X):
    fitted = fit_once("CLUE", "classes")
    return CLUEExplainer(
        FrozenEstimator(fitted.estimator_),
        FrozenEstimator(fitted.generator_),
        n_neighbors=0,
    ).fit(X, np.resize(["no", "yes"], len(X)))


def test_without_stored_rows_the_density_tells_plausibility(without_rows, X):
    # The definition: the share of training rows that are no denser.
    generator = without_rows.generator_.latent_model()
    x = torch.as_tensor(without_rows._space.encode(X)).float()
    with torch.no_grad():
        density = generator.log_prob(x, n_importance=16, common_noise=True).numpy()
    told = plausibility(without_rows, X)
    share = (density[None] <= density[:, None]).mean(1)
    np.testing.assert_allclose(told, share, atol=0.02)
    far = X[:1].assign(age=X["age"].max(), income=X["income"].max())
    assert plausibility(without_rows, far)[0] < 0.05 < told[0]
    # One number per training row is kept, and no row.
    assert without_rows._stored is None
    assert without_rows._usual_density.shape == (len(X),)
    with pytest.raises(ValueError, match="No training rows were stored"):
        without_rows.nearest_sure(X)


def test_without_stored_rows_the_demand_holds(without_rows, X):
    rows = X[without_rows.rejects(X)]
    explanation = without_rows.explain(rows)
    assert explanation.is_sure.mean() > 0.9
    assert explanation.is_plausible.mean() > 0.9
    own = plausibility(without_rows, rows)
    theirs = plausibility(without_rows, explanation.counterfactuals)
    np.testing.assert_allclose(explanation.plausibility, theirs)
    expected = theirs >= np.minimum(own, 0.5) - 1e-9
    np.testing.assert_array_equal(explanation.is_plausible, expected)
    free = clone(without_rows).set_params(min_plausibility=None).fit(X).explain(rows)
    assert free.distance.mean() <= explanation.distance.mean() + 1e-9
    alone = without_rows.explain(rows[3:5])
    pd.testing.assert_frame_equal(
        alone.counterfactuals, explanation.counterfactuals[3:5]
    )


def test_a_generator_without_a_density_tells_no_plausibility(X, monkeypatch):
    monkeypatch.setattr(
        "sklearn_clue.explainers._density.log_density_of", lambda m: None
    )
    fitted = fit_once("CLUE", "classes")
    explainer = CLUEExplainer(
        FrozenEstimator(fitted.estimator_),
        FrozenEstimator(fitted.generator_),
        n_neighbors=0,
    ).fit(X)
    explanation = explainer.explain(X[explainer.rejects(X)][:5])
    assert explanation.plausibility is None and explanation.is_plausible is None
    # A number is a demand that cannot be met.
    explainer.set_params(min_plausibility=0.8)
    with pytest.raises(ValueError, match="min_plausibility=0.8 cannot be judged"):
        explainer.explain(X[:5])
    with pytest.raises(ValueError, match="Fit with n_neighbors above 0"):
        explainer.fit(X)


def test_a_number_of_nearest_rows_is_checked(fitted, X):
    for wrong in (0, -1, 1.5, "all"):
        with pytest.raises(ValueError, match=f"n_neighbors must be.* got {wrong!r}"):
            fitted.nearest_sure(X[:1], wrong)


def test_neighbours_are_needed():
    explainer = NeighborExplainer(LogisticRegression(), n_neighbors=0)
    with pytest.raises(ValueError, match="'n_neighbors' parameter of NeighborExplain"):
        explainer.fit([[0.0], [1.0]], [0, 1])


def test_a_part_that_the_model_does_not_have_is_warned_of(X, table):
    explainer = NeighborExplainer(LogisticRegression(), uncertainty="epistemic")
    with pytest.warns(UserWarning, match="uncertainty='epistemic': it is zero"):
        explainer.fit(X[["age", "income"]], table[1])
    forest = RandomForestClassifier(10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.set_params(estimator=forest).fit(X[["age", "income"]], table[1])


# Near chance --------------------------------------------------------------------------


def test_the_likeliest_class_at_an_entropy():
    # Of two classes, and of three whose others are alike.
    assert likeliest_class(np.log(2), 2) == pytest.approx(0.5, abs=0.02)
    assert likeliest_class(entropy_at_most(0.8, 2), 2) == pytest.approx(0.8, abs=1e-3)
    assert entropy_at_most(0.8, 2) == pytest.approx(0.5004, abs=1e-4)
    proba = np.array([0.6, 0.2, 0.2])
    entropy = -(proba * np.log(proba)).sum()
    assert likeliest_class(entropy, 3) == pytest.approx(0.6, abs=1e-3)
    assert likeliest_class(0.0, 3) == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_target_near_chance_is_warned_of(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    noise, clear = rng.integers(n_classes, size=200), (X[:, 0] > 0).astype(int)
    explainer = NeighborExplainer(LogisticRegression())
    with pytest.warns(UserWarning, match=f"likeliest of {n_classes} classes has .* at"):
        explainer.fit(X, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.fit(X, clear)
        explainer.set_params(target_uncertainty=0.5).fit(X, noise)  # knows better
        # In the paper's search nothing has to be sure.
        CLUEExplainer(LogisticRegression(), vae(), distance_weight=1.0).fit(X, noise)


# --- Targets that leave nothing to ask ---


@pytest.mark.parametrize("target", [3.0, 3.1, 1e6 / 3])
@pytest.mark.parametrize(
    "model",
    [RandomForestRegressor(20, random_state=0), PredictedNoiseRegressor(Ridge())],
    ids=["forest", "noise"],
)
def test_a_constant_target_leaves_nothing_to_reject(model, target):
    """What models say of it is rounding, and rounding is no uncertainty."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    explainer = NeighborExplainer(model)
    with pytest.warns(UserWarning, match="never unsure.*a target that never changes"):
        explainer.fit(X, np.full(80, target))
    assert not explainer.rejects(X).any()
    explanation = explainer.explain(X[:3])
    assert explanation.is_sure.all() and not explanation.n_changed.any()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_single_class_is_refused(is_frozen):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.full(40, "yes")
    model = RandomForestClassifier(3, random_state=0)
    model = FrozenEstimator(model.fit(X, y)) if is_frozen else model
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class: 'yes'"):
        NeighborExplainer(model).fit(X, y)


def test_neighbors_where_no_training_row_is_sure_enough():
    """The least unsure row that was found comes back, and is said to be no more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = X[:, 0] + rng.normal(0, 0.5, 80) > 0
    explainer = NeighborExplainer(LogisticRegression(), target_uncertainty=0.0)
    explainer.fit(X, y)
    rows = X[explainer.rejects(X)]
    explanation = explainer.explain(rows)
    assert not explanation.is_sure.any()
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    assert (after.total < 0.5 * before.total).all()
    assert "no sure row was found" in explanation.summary()
