"""CLUE as in the paper: a number for `distance_weight` (λ)."""

import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier

from sklearn_clue import (
    CLUEExplainer,
    CLUEExplainerCV,
    TabularEncoder,
    Uncertainty,
    VAEEncoder,
)
from sklearn_clue.exceptions import EncodingMismatchError, SearchConvergenceWarning
from sklearn_clue.explainers import _base, _objectives, _problem
from sklearn_clue.explainers._clue import balance
from tests.explainers.conftest import classifier, make_table, regressor, vae


@pytest.fixture(scope="module")
def fitted(table):
    X, y, _ = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = CLUEExplainer(
            classifier(), vae(), distance_weight=2.0, random_state=0
        )
        return explainer.fit(X, y)


def frozen_parts(fitted):
    """The parts of a fitted explainer, for another one that fits nothing."""
    return FrozenEstimator(fitted.estimator_), FrozenEstimator(fitted.generator_)


def variant(fitted, X, y, **settings):
    settings = {"distance_weight": 2.0, "random_state": 0, **settings}
    return CLUEExplainer(*frozen_parts(fitted), **settings).fit(X, y)


# The explanation -------------------------------------------------------------------


def test_explanation_is_about_the_rows_that_are_returned(fitted, table):
    X, _, _ = table
    before = X.copy()
    explanation = fitted.explain(X[:20])
    pd.testing.assert_frame_equal(X, before)
    cf = explanation.counterfactuals
    assert list(cf.columns) == list(X.columns) and list(cf.index) == list(X.index[:20])
    assert (cf.dtypes == X.dtypes).all()
    assert cf["age"].between(X["age"].min(), X["age"].max()).all()

    told = fitted.estimator_.predict_uncertainty(cf)
    for mine, theirs in zip(explanation.uncertainty_after, told, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    told = fitted.estimator_.predict_uncertainty(X[:20])
    np.testing.assert_allclose(explanation.uncertainty_before.total, told.total)
    np.testing.assert_array_equal(
        explanation.prediction_after, fitted.estimator_.predict(cf)
    )
    encoder = fitted.estimator_.encoder_
    gap = np.abs(encoder.transform(cf) - encoder.transform(X[:20]))
    np.testing.assert_allclose(explanation.distance, gap.sum(1))
    rebuilt = fitted.generator_.reconstruct(X[:20])
    np.testing.assert_allclose(
        explanation.uncertainty_reconstructed.total,
        fitted.estimator_.predict_uncertainty(rebuilt).total,
        atol=1e-4,
    )


def test_objective_is_that_of_the_returned_row_and_below_the_start(fitted, table):
    X, _, _ = table
    explanation = fitted.explain(X)
    width = fitted.estimator_.encoder_.schema_.n_encoded
    value = explanation.uncertainty_after.total + 2.0 / width * explanation.distance
    np.testing.assert_allclose(explanation.objective, value, rtol=1e-6)
    path = explanation.path.objective
    assert (explanation.objective <= path[:, 0] + 1e-6).all()
    np.testing.assert_allclose(explanation.objective, np.nanmin(path, 1), atol=1e-5)
    assert explanation.converged.mean() > 0.9


def test_some_networks_search_and_all_of_them_accept(fitted, table, monkeypatch):
    X, _, _ = table
    by_all = fitted.explain(X)
    monkeypatch.setattr(_problem, "N_ROUGH", 4)
    explanation = fitted.explain(X)
    path = explanation.path.objective
    # The ends of the path are what all networks say, and no row ends above its start.
    np.testing.assert_allclose(path[:, 0], by_all.path.objective[:, 0], rtol=1e-6)
    np.testing.assert_allclose(explanation.objective, np.nanmin(path, 1), atol=1e-5)
    np.testing.assert_allclose(
        explanation.uncertainty_reconstructed.total,
        by_all.uncertainty_reconstructed.total,
    )
    assert (explanation.objective < path[:, 0]).mean() > 0.9
    assert explanation.objective.mean() < 1.05 * by_all.objective.mean()
    several = variant(fitted, X, None, n_explanations=3).explain(X[:20])
    assert (several.objective <= path[:20, 0] + 1e-6).all()


def test_networks_that_lie_make_nothing_worse(fitted, table, monkeypatch):
    """Some networks say the opposite, so nearly all ends are worse than starts."""
    X, _, _ = table
    ask = _objectives.Rough.cost
    monkeypatch.setattr(_problem, "N_ROUGH", 4)
    monkeypatch.setattr(_objectives.Rough, "cost", lambda *args: -20 * ask(*args))
    explanation = variant(fitted, X, None, distance_weight=0.0).explain(X[:50])
    path = explanation.path.objective
    assert (explanation.objective <= path[:, 0] + 1e-6).all()
    is_back = np.isnan(path[:, 1:]).all(1)
    assert is_back.mean() > 0.8
    at_start = path[is_back, 0]
    np.testing.assert_allclose(explanation.objective[is_back], at_start, rtol=1e-5)


def test_warnings_point_at_the_line_of_the_user(fitted, table):
    X, y, _ = table
    hasty = variant(fitted, X, y, max_iter=1, min_iter=1)
    with pytest.warns(SearchConvergenceWarning) as caught:
        hasty.explain(X[:10])
        hasty.explain_path(X[:10], [1.0, 2.0])
    assert {warning.filename for warning in caught} == {__file__}


def test_lower_weights_explain_more(fitted, table):
    X, _, _ = table
    X = X[fitted.rejects(X)]
    path = fitted.explain_path(X, [10.0, 0.05, 1.0])
    assert [e.distance_weight for e in path] == [10.0, 0.05, 1.0]
    far, near = path[1], path[0]
    assert far.uncertainty_explained.mean() > near.uncertainty_explained.mean()
    assert far.distance.mean() > near.distance.mean()
    assert (far.uncertainty_explained > 0).mean() > 0.9
    # Warm starts must not be worse than searching anew.
    for explanation in path:
        alone = variant(fitted, X, None, distance_weight=explanation.distance_weight)
        anew = alone.explain(X)
        assert explanation.objective.mean() <= anew.objective.mean() + 0.01


@pytest.mark.parametrize(
    "kind", ["aleatoric", "epistemic", {"aleatoric": 0.5, "epistemic": 2.0}]
)
def test_kinds_of_uncertainty(fitted, table, kind):
    X, y, _ = table
    explainer = variant(fitted, X, y, uncertainty=kind, distance_weight=0.5)
    explanation = explainer.explain(X[:30])
    weights = {kind: 1.0} if isinstance(kind, str) else kind
    after = explanation.uncertainty_after._asdict()
    value = sum(weight * after[name] for name, weight in weights.items())
    width = fitted.estimator_.encoder_.schema_.n_encoded
    np.testing.assert_allclose(
        explanation.objective, value + 0.5 / width * explanation.distance, rtol=1e-6
    )


def test_prediction_weight_keeps_the_prediction(fitted, table):
    X, y, _ = table
    X = X[fitted.rejects(X)]
    free = variant(fitted, X, y[:1].repeat(len(X)), distance_weight=0.1).explain(X)
    tied = variant(
        fitted, X, y[:1].repeat(len(X)), distance_weight=0.1, prediction_weight=5.0
    ).explain(X)

    def moved(explanation):
        before = fitted.predict_proba(explanation.X)
        return np.abs(fitted.predict_proba(explanation.counterfactuals) - before).mean()

    assert moved(tied) < 0.7 * moved(free)


def test_zeros_start_at_the_origin(fitted, table):
    X, y, _ = table
    explanation = variant(fitted, X, y, init="zeros").explain(X[:5])
    np.testing.assert_array_equal(explanation.path.latents[:, 0], 0.0)


def test_several_explanations(fitted, table):
    X, y, _ = table
    explainer = variant(fitted, X, y, n_explanations=6, init_noise=1.0)
    explanation = explainer.explain(X[:15])
    details = explanation.candidate_details
    assert len(explanation.candidates) == 15
    for row, group in details.groupby("row"):
        assert group["objective"].is_monotonic_increasing
        assert list(group["rank"]) == list(range(len(group)))
        assert group["count"].sum() == 6
        assert len(explanation.candidates[row]) == len(group)
        pd.testing.assert_frame_equal(
            explanation.candidates[row].iloc[:1],
            explanation.counterfactuals[row : row + 1],
        )
    assert details["count"].max() > 1 and details["rank"].max() > 0
    # The first start has no noise, so more of them cannot be worse.
    alone = variant(fitted, X, y).explain(X[:15])
    assert (explanation.objective <= alone.objective + 1e-6).all()
    # A row's noise is its own, and fixed.
    again = explainer.explain(X[3:9])
    np.testing.assert_allclose(again.objective, explanation.objective[3:9], atol=1e-5)


def test_rows_that_run_out_of_steps_are_counted(fitted, table):
    X, y, _ = table
    hasty = variant(fitted, X, y, max_iter=1, min_iter=1)
    with pytest.warns(SearchConvergenceWarning, match=r"of 10 rows.*max_iter=1 "):
        explanation = hasty.explain(X[:10])
    assert not explanation.converged.all()
    assert (explanation.n_iter == 1).all()


# Constraints -----------------------------------------------------------------------


@pytest.mark.parametrize("n_explanations", [1, 4])
def test_constraints_hold_in_every_candidate(fitted, table, n_explanations):
    X, y, _ = table
    explainer = variant(
        fitted,
        X,
        y,
        distance_weight=0.01,
        n_explanations=n_explanations,
        init_noise=2.0,
        immutable_features=["job", "smoker"],
        feature_ranges={"age": "increase", "income": (41.3, 57.9)},
    )
    explanation = explainer.explain(X[:40])
    for row, candidates in enumerate(explanation.candidates):
        own = X.iloc[row]
        assert (candidates["job"] == own["job"]).all()
        assert (candidates["smoker"] == own["smoker"]).all()
        assert (candidates["age"] >= own["age"]).all()
        assert candidates["income"].between(41.3, 57.9).all()
    free = variant(fitted, X, y, distance_weight=0.01).explain(X[:40])
    assert (free.counterfactuals["age"] < X["age"][:40]).any()
    assert (free.counterfactuals["job"] != X["job"][:40]).any()


# Models ----------------------------------------------------------------------------


def test_regression_in_the_unit_of_the_target(table):
    X, _, target = table
    clue = CLUEExplainer(regressor(), vae(), distance_weight=2.0, random_state=0)
    dollars, units = clone(clue).fit(X, 1000 * target), clone(clue).fit(X, target)
    a, b = dollars.explain(X[:10]), units.explain(X[:10])
    # λ must not depend on the unit, and reports must.
    np.testing.assert_allclose(a.distance, b.distance, atol=0.05)
    np.testing.assert_allclose(
        a.uncertainty_before.total, 1000 * b.uncertainty_before.total, rtol=0.02
    )
    np.testing.assert_allclose(a.prediction_before, dollars.predict(X[:10]))
    np.testing.assert_allclose(
        dollars.predict_uncertainty(X[:10]).total,
        dollars.estimator_.predict_uncertainty(X[:10]).total,
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)


def small_mlp(seed=0):
    return MLPClassifier((8,), max_iter=60, random_state=seed)


MODELS = {
    "LogisticRegression": lambda: LogisticRegression(),
    "MLPClassifier": small_mlp,
    "scaled MLPClassifier": lambda: make_pipeline(StandardScaler(), small_mlp()),
    "BaggingClassifier": lambda: BaggingClassifier(
        small_mlp(), n_estimators=3, max_features=0.6, random_state=0
    ),
    "list of MLPs": lambda: [small_mlp(seed) for seed in range(3)],
    "torch module": Net,
    "list of torch modules": lambda: [Net(), Net()],
    "skorch": lambda: NeuralNetClassifier(
        Net, criterion=torch.nn.CrossEntropyLoss, max_epochs=3, verbose=0
    ),
}


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("name", MODELS)
def test_other_models(table, name):
    X, y, _ = table
    X, y = X[["age", "income"]], (y == "yes").astype(np.int64)
    torch.manual_seed(0)
    explainer = CLUEExplainer(MODELS[name](), vae(), random_state=0).fit(X, y)
    explanation = explainer.explain(X[:6])
    assert explanation.counterfactuals["age"].dtype == X["age"].dtype
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    assert (after.total <= before.total + 1e-12).all()
    proba = explainer.predict_proba(X)
    parts = explainer.predict_uncertainty(X)
    entropy = -(proba * np.log(proba.clip(1e-12))).sum(1)
    np.testing.assert_allclose(parts.total, entropy, atol=1e-4)
    np.testing.assert_array_equal(explainer.predict(X), proba.argmax(1))
    is_ensemble = "list" in name or "Bagging" in name
    assert (parts.epistemic.max() > 1e-4) == is_ensemble


def test_ensemble_of_regressors_is_unsure_where_it_disagrees(table):
    X, _, target = table
    X = X[["age", "income"]]
    members = [
        MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=seed)
        for seed in range(3)
    ]
    explainer = CLUEExplainer(members, vae(), random_state=0).fit(X, target)
    single = [member.predict(X) for member in explainer.estimator_]
    np.testing.assert_allclose(
        explainer.predict_uncertainty(X).epistemic, np.std(single, axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(explainer.predict(X), np.mean(single, axis=0))
    with pytest.warns(UserWarning, match="never unsure") as caught:
        CLUEExplainer(members[0], vae()).fit(X, target)
    told = [warning for warning in caught if "never unsure" in str(warning.message)]
    assert told[0].filename == __file__


@pytest.mark.parametrize("as_integers", [False, True])
def test_images(as_integers):
    X, y = load_digits(return_X_y=True)
    X = (X[:150] * 15).astype(np.uint8) if as_integers else X[:150] / 16
    explainer = CLUEExplainer(
        classifier(),
        VAEEncoder(3, image_shape=(8, 8), max_iter=2, random_state=0),
        distance_weight=25,
        random_state=0,
    ).fit(X, y[:150])
    explanation = explainer.explain(X[:5])
    cf = explanation.counterfactuals
    assert cf.dtype == X.dtype and cf.shape == (5, 64) and cf.min() >= 0
    assert cf.max() <= (255 if as_integers else 1)
    assert explanation.image_shape == (8, 8)
    told = explainer.estimator_.predict_uncertainty(cf)
    np.testing.assert_allclose(explanation.uncertainty_after.total, told.total)
    # A predictor fitted apart has pixels in units of its own.
    apart = classifier().fit(X, y[:150])
    frozen = FrozenEstimator(explainer.generator_)
    other = CLUEExplainer(FrozenEstimator(apart), frozen).fit(X, y[:150])
    np.testing.assert_allclose(
        other.predict_uncertainty(X[:9]).total,
        apart.predict_uncertainty(X[:9]).total,
        atol=1e-4,
    )


# Parts -----------------------------------------------------------------------------


def test_generator_of_another_space_is_refused(table):
    X, y, _ = table
    other = X.copy()
    other["job"] = pd.Categorical(
        other["job"].astype(str), categories=["clerk", "coach", "cook", "king"]
    )
    stranger = FrozenEstimator(vae().fit(other))
    with pytest.raises(EncodingMismatchError, match=r"'job': 4 .* \(extra: 'king'\)"):
        CLUEExplainer(classifier(), stranger).fit(X, y)
    with pytest.raises(EncodingMismatchError, match=r"4 columns against 1"):
        CLUEExplainer(LogisticRegression(), stranger).fit(X[["age"]], y)


@pytest.mark.parametrize("name", ["Bayesian", "MLP"])
def test_threshold_rejects_about_the_asked_share_of_new_rows(name):
    models = {
        "Bayesian": classifier(burn_in=100, n_draws=30),
        "MLP": make_pipeline(TabularEncoder(), small_mlp()),
    }
    X, y, _ = make_table(600, seed=1)
    X_new, _, _ = make_table(2000, seed=2)
    explainer = CLUEExplainer(
        models[name], vae(max_iter=1), rejection_rate=0.3, random_state=0
    ).fit(X, y)
    # Of 600 rows, a share of 0.3 has a standard error of 0.02.
    assert abs(explainer.rejects(X_new).mean() - 0.3) < 0.05
    # A model that comes fitted is judged by the rows that fit is given.
    parts = frozen_parts(explainer)
    again = CLUEExplainer(*parts, rejection_rate=0.1).fit(X_new)
    assert abs(again.rejects(X_new).mean() - 0.1) < 0.002


N_FITS = {}


class Counted:
    def fit(self, *args, **params):
        N_FITS[type(self)] = N_FITS.get(type(self), 0) + 1
        return super().fit(*args, **params)


class CountedModel(Counted, LogisticRegression):
    pass


class CountedVAE(Counted, VAEEncoder):
    pass


@pytest.mark.parametrize("with_memory", [True, False])
def test_a_sweep_fits_each_part_once_per_fold(tmp_path, table, with_memory):
    X, y, _ = table
    N_FITS.clear()
    weights = np.geomspace(0.1, 30, 8).tolist()
    parts = CountedModel(), CountedVAE(2, (10,), max_iter=5)
    if with_memory:
        clue = CLUEExplainer(*parts, memory=str(tmp_path), random_state=0)
        sweep = GridSearchCV(clue, {"distance_weight": weights}, cv=3)
    else:
        sweep = CLUEExplainerCV(*parts, distance_weights=weights, cv=3, random_state=0)
    sweep.fit(X[["age", "income"]], y)
    # Three folds, and all rows at the end.
    assert N_FITS == {CountedModel: 4, CountedVAE: 4}


def test_a_grid_judges_the_training_rows_once_per_fold(tmp_path, table, monkeypatch):
    X, y, _ = table
    X, judged, ask = X[["age", "income"]], [], _base.judge

    def counted(provider, x):
        judged.append(len(x))
        return ask(provider, x)

    monkeypatch.setattr(_base, "judge", counted)
    parts = LogisticRegression(), VAEEncoder(2, (10,), max_iter=5)
    clue = CLUEExplainer(*parts, memory=str(tmp_path), random_state=0)
    grid = {"distance_weight": [0.1, 1.0, 3.0, 10.0]}
    GridSearchCV(clue, grid, cv=KFold(2), refit=False).fit(X, y)
    half = len(X) // 2
    # `score` asks about the rows held out, for each of 4 weights and 2 folds; each half
    # is asked about once more to learn a threshold.
    assert judged == (4 * 2 + 2) * [half]


def test_what_is_printed_is_no_part_of_the_cache(tmp_path, table, capsys):
    X, y, _ = table
    parts = CountedModel(), CountedVAE(2, (10,), max_iter=2)
    N_FITS.clear()
    for verbose in (0, 2):
        clue = CLUEExplainer(*parts, memory=str(tmp_path), random_state=0)
        clue.set_params(verbose=verbose).fit(X[["age", "income"]], y)
    assert N_FITS == {CountedModel: 1, CountedVAE: 1}
    clue.set_params(memory=None).fit(X[["age", "income"]], y)
    assert "epoch 1/2" in capsys.readouterr().err


def is_past_balance(explanation):
    """Whether the distance outweighs the uncertainty, or rows have stopped moving."""
    weight = explanation.distance_weight / explanation.encoded.shape[1]
    far = weight * explanation.distance.mean()
    moved = explanation.distance > 1.1 * explanation.distance_floor
    return far > explanation.objective.mean() - far or moved.mean() < 0.5


def test_score_peaks_where_the_terms_balance(fitted, table):
    X, _, _ = table
    weights = np.logspace(-3, 2, 21)
    scores = fitted._scores(X, tuple(weights))
    paths = fitted.explain_path(X[fitted.rejects(X)], weights)
    past = [is_past_balance(explanation) for explanation in paths]
    assert not past[0] and past[-1]
    assert abs(np.argmax(scores) - np.argmax(past)) <= 2  # half of a power of ten
    assert -1 <= min(scores) and max(scores) <= 0


def test_rows_that_are_only_rebuilt_are_not_balanced():
    def score(distance, objective, floor=0.0):
        return balance(
            SimpleNamespace(
                distance_weight=4.0,
                distance=np.array(distance),
                distance_floor=np.full(len(distance), floor),
                objective=np.array(objective),
                encoded=np.zeros((len(distance), 8)),
            )
        )

    # λ/d is ½: uncertainty and distance are 1 and 1, and 3 and 1.
    assert score([2.0, 2.0], [2.0, 2.0]) == 0
    assert score([2.0, 2.0], [4.0, 4.0]) == -0.5
    # Rows that stay where they are, and rows that are rebuilt badly and no more.
    assert score([0.0, 0.0], [1.0, 1.0]) == -1
    assert score([2.0, 2.0], [2.0, 2.0], floor=1.9) == -1
    assert score([2.0, 2.0], [2.0, 2.0], floor=1.8) == 0
    # Half of the rows move and balance. One row goes so far that the means over all
    # of them would balance.
    assert score([0.0, 2.0], [1.0, 2.0]) == -0.5
    assert score([0.0, 0.0, 6.0], [1.0, 1.0, 4.0]) == pytest.approx(-5 / 6)


def test_floor_is_what_no_weight_can_avoid(fitted, table):
    X, _, _ = table
    free, bound = fitted.explain_path(X[:20], [0.01, 1e6])
    np.testing.assert_array_equal(free.distance_floor, bound.distance_floor)
    assert (bound.distance <= bound.distance_floor + 1e-6).all()
    assert free.distance.mean() > 1.5 * free.distance_floor.mean()


@pytest.mark.real_data
def test_search_finds_the_balance_on_wine(fetch, tmp_path):
    X, y = fetch("fetch_wine_quality", return_X_y=True)
    X, y = X[::4], y[::4]
    weights = np.geomspace(0.01, 10, 8)
    search = GridSearchCV(
        CLUEExplainer(regressor(), vae(), memory=str(tmp_path), random_state=0),
        {"distance_weight": weights},
        cv=2,
    ).fit(X, y)
    clue = search.best_estimator_
    unsure = X[clue.rejects(X)]

    low, high = np.log(weights[[0, -1]])
    for _ in range(6):
        middle = (low + high) / 2
        clue.set_params(distance_weight=float(np.exp(middle)))
        is_past = is_past_balance(clue.explain(unsure))
        low, high = (low, middle) if is_past else (middle, high)
    assert weights[0] < np.exp(low) and np.exp(high) < weights[-1]
    step = np.log(weights[1] / weights[0])
    assert abs(np.log(search.best_params_["distance_weight"]) - low) <= step


def test_cross_validated_weight(table):
    X, y, _ = table
    explainer = CLUEExplainerCV(
        LogisticRegression(),
        vae(max_iter=10),
        distance_weights=[0.01, 1.0, 100.0],
        cv=2,
        random_state=0,
    ).fit(X[["age", "income"]], y)
    assert explainer.cv_results_["split_scores"].shape == (3, 2)
    best = explainer.cv_results_["mean_score"].argmax()
    assert explainer.distance_weight_ == [0.01, 1.0, 100.0][best]
    assert explainer.explain(X[["age", "income"]][:3]).distance_weight == (
        explainer.distance_weight_
    )
    with pytest.raises(ValueError, match="distance_weights must be a sequence"):
        clone(explainer).set_params(distance_weights=[-1.0]).fit(X[["age"]], y)


def test_cv_takes_groups(table):
    X, y, _ = table
    X, groups = X[["age", "income"]], np.arange(len(X)) % 4
    split = []

    class Watched(GroupKFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                split.append(set(groups[train]) & set(groups[test]))
                yield train, test

    explainer = CLUEExplainerCV(
        LogisticRegression(), vae(max_iter=1), cv=Watched(2), distance_weights=(1.0,)
    )
    explainer.fit(X, y, groups=groups)
    assert split == [set(), set()]


def test_cv_is_not_fitted_without_a_weight(table, monkeypatch):
    X, y, _ = table
    explainer = CLUEExplainerCV(LogisticRegression(), vae(max_iter=1), cv=2)
    X = X[["age", "income"]]

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(CLUEExplainerCV, "_sweep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        explainer.fit(X, y)
    with pytest.raises(NotFittedError):
        explainer.explain(X[:2])


def test_sample_weight_goes_to_the_estimator(table):
    X, y, _ = table
    X = X[["age", "income"]]
    weight = np.where(y == "yes", 5.0, 1.0)
    plain = CLUEExplainer(LogisticRegression(), vae(max_iter=2), random_state=0)
    weighted = clone(plain).fit(X, y, sample_weight=weight)
    expected = LogisticRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(weighted.estimator_.coef_, expected.coef_)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = CLUEExplainer(
            LogisticRegression().set_fit_request(sample_weight=True),
            vae(max_iter=2).set_fit_request(sample_weight=False),
            random_state=0,
        ).fit(X, y, sample_weight=weight)
        both = CLUEExplainer(
            LogisticRegression().set_fit_request(sample_weight=True),
            vae(max_iter=2).set_fit_request(sample_weight=True),
            random_state=0,
        ).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(routed.estimator_.coef_, expected.coef_)
    np.testing.assert_array_equal(
        routed.generator_.transform(X), weighted.generator_.transform(X)
    )
    assert not np.allclose(both.generator_.transform(X), routed.generator_.transform(X))


def test_nested_parameters_and_a_plain_pipeline(table):
    X, y, _ = table
    X = X[["age", "income"]]
    pipe = make_pipeline(
        StandardScaler(), CLUEExplainer(LogisticRegression(), vae(max_iter=5))
    )
    pipe.set_params(clueexplainer__estimator__C=0.5).fit(X, y)
    assert pipe[-1].estimator_.C == 0.5
    assert pipe.predict(X).shape == (len(X),)
    assert 0 <= pipe.score(X, y) <= 2
    assert -1 <= pipe.set_params(clueexplainer__distance_weight=2.0).score(X, y) <= 0


def test_latent_uncertainty_is_that_of_decoded_rows(fitted):
    Z = np.random.default_rng(0).normal(size=(7, 3))
    rows = fitted.generator_.inverse_transform(Z)
    parts = fitted.latent_uncertainty(Z)
    assert isinstance(parts, Uncertainty)
    np.testing.assert_allclose(
        parts.total, fitted.predict_uncertainty(rows).total, atol=1e-4
    )


@pytest.mark.skipif(
    not hasattr(joblib, "parallel_config"), reason="joblib < 1.3 has no parallel_config"
)
@pytest.mark.usefixtures("own_process")
def test_dask_gives_the_same_answers(fitted, table):
    distributed = pytest.importorskip("dask.distributed")
    X, y, _ = table
    explainer = variant(fitted, X, y, batch_size=40, n_jobs=2)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        there = explainer.explain(X)
    np.testing.assert_allclose(there.objective, fitted.explain(X).objective, atol=1e-5)
