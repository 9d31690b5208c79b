"""UFIDOExplainer: which features are replaced, and what stays as it was."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_clue import UFIDOExplainer
from sklearn_clue.exceptions import SearchConvergenceWarning
from sklearn_clue.explainers._objectives import MaskPenalty
from sklearn_clue.explainers._ufido import FilledRows
from tests.explainers.conftest import classifier, vae, vaeac


class OneCulprit(torch.nn.Module):
    """Regression whose noise comes from column 1 alone: its distance from zero."""

    answers_with = "mean_std"

    def forward(self, x):
        return torch.stack([x[:, 0], 0.1 + x[:, 1].abs()], 1)


@pytest.fixture(scope="module")
def culprit():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 4)), columns=[*"abcd"])
    explainer = UFIDOExplainer(OneCulprit(), vaeac(), random_state=0)
    return explainer.fit(X, X["a"].to_numpy()), X


def test_the_feature_behind_the_uncertainty_is_replaced_and_no_other(culprit):
    explainer, X = culprit
    rows = X.assign(b=np.where(X["b"] > 0, 3.0, -3.0))[:30]
    explainer.set_params(mask_weight=0.5)
    explanation = explainer.explain(rows)
    cf = explanation.counterfactuals
    pd.testing.assert_frame_equal(
        cf[["a", "c", "d"]], rows[["a", "c", "d"]], check_exact=True
    )
    # Columns are independent, so what is filled in is near the mean.
    assert cf["b"].abs().max() < 1.0
    np.testing.assert_allclose(
        explanation.objective, explanation.uncertainty_after.total + 0.5
    )
    assert explanation.converged.all()


def test_no_price_is_worth_paying_if_it_is_huge(culprit):
    explainer, X = culprit
    explanation = explainer.set_params(mask_weight=1e6).explain(X[:30])
    pd.testing.assert_frame_equal(explanation.counterfactuals, X[:30], check_exact=True)
    np.testing.assert_array_equal(explanation.distance, 0.0)


@pytest.fixture(scope="module")
def mixed(table):
    X, y, _ = table
    return UFIDOExplainer(classifier(), vaeac(), random_state=0).fit(X, y)


def test_lower_prices_explain_more(mixed, table):
    X, _, _ = table
    X = X[mixed.rejects(X)]
    after, n_replaced = [], []
    for mask_weight in (0.0, 0.05, 0.3):
        explanation = mixed.set_params(mask_weight=mask_weight).explain(X)
        assert (explanation.objective <= explanation.uncertainty_before.total).all()
        is_changed = explanation.counterfactuals != X
        after.append(explanation.uncertainty_after.total.mean())
        n_replaced.append(is_changed.to_numpy().sum(1).mean())
        np.testing.assert_allclose(
            explanation.objective,
            explanation.uncertainty_after.total + mask_weight * is_changed.sum(axis=1),
        )
    assert after[0] < after[1] < after[2]
    assert n_replaced[0] > n_replaced[1] > n_replaced[2]


def every_mask(explainer, X):
    """Uncertainty and number of changes for all masks, of shape (n_masks, n_rows)."""
    x0 = torch.as_tensor(explainer._space.encode(X))
    problem = explainer._problem_of(x0)
    rows, objective = FilledRows(problem), MaskPenalty(problem, 1.0)
    masks = torch.tensor(list(itertools.product([False, True], repeat=X.shape[1])))
    everyone = torch.arange(len(X))
    answers = [rows.judge(everyone, mask.expand(len(X), -1)) for mask in masks]
    uncertainty = torch.stack([cost for cost, _, _ in answers])
    n_changed = torch.stack([objective.n_changed(x, everyone) for _, x, _ in answers])
    return uncertainty.numpy(), n_changed.numpy()


@pytest.mark.parametrize("mask_weight", [0.0, 0.03, 0.1])
def test_best_of_all_masks_is_found(mixed, table, mask_weight):
    X, _, _ = table
    X = X[mixed.rejects(X)]
    uncertainty, n_changed = every_mask(mixed, X)
    best = (uncertainty + mask_weight * n_changed).min(0)
    found = mixed.set_params(mask_weight=mask_weight).explain(X).objective
    assert (found >= best - 1e-6).all()
    # Of 16 masks, a search that draws several per step misses the best one rarely.
    assert (found - best).mean() < 0.02


def test_filled_rows_are_what_the_imputer_fills_in(mixed, table):
    X, _, _ = table
    x0 = torch.as_tensor(mixed._space.encode(X[:30]))
    rows = FilledRows(mixed._problem_of(x0))
    masks = torch.tensor([True, False, True, False]).expand(30, -1)  # age and job
    x, _ = rows.fill(torch.arange(30), masks)
    mine = mixed._space.decode(x.numpy(), X[:30], x0.numpy())
    theirs = mixed.generator_.transform(
        X[:30].assign(age=np.nan, job=pd.Categorical([None] * 30, dtype=X["job"].dtype))
    )
    assert (mine["job"] == theirs["job"]).mean() > 0.9
    # Both average over latents, and one of them over fewer.
    assert (mine["age"] - theirs["age"]).abs().max() <= 2


def test_rows_that_start_outside_of_the_range_are_brought_in(mixed, table):
    X, y, _ = table
    explainer = UFIDOExplainer(
        FrozenEstimator(mixed.estimator_),
        FrozenEstimator(mixed.generator_),
        mask_weight=1e6,
        feature_ranges={"income": (45.0, 55.0)},
        random_state=0,
    ).fit(X, y)
    cf = explainer.explain(X[:20]).counterfactuals
    np.testing.assert_allclose(cf["income"], X["income"][:20].clip(45.0, 55.0))
    others = ["age", "job", "smoker"]
    pd.testing.assert_frame_equal(cf[others], X[others][:20])


def test_rows_that_run_out_of_steps_are_counted(mixed, table):
    X, _, _ = table
    hasty = UFIDOExplainer(
        FrozenEstimator(mixed.estimator_),
        FrozenEstimator(mixed.generator_),
        max_iter=2,
        random_state=0,
    ).fit(X)
    with pytest.warns(SearchConvergenceWarning, match=r"10 of 10 rows.*max_iter=2 "):
        explanation = hasty.explain(X[:10])
    assert (explanation.n_iter == 2).all()


def test_other_generators_are_refused_before_long_work(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="'conditional_model'.* Got VAEEncoder"):
        UFIDOExplainer(LogisticRegression(), vae()).fit(X[["age"]], y)


def test_a_path_gives_what_separate_calls_give_and_asks_less(culprit, monkeypatch):
    explainer, X = culprit
    weights = [0.5, 0.01, 0.1]
    n_asked = []
    ask = FilledRows._ask

    def counted(self, rows, masks):
        n_asked.append(len(rows))
        return ask(self, rows, masks)

    monkeypatch.setattr(FilledRows, "_ask", counted)
    path = explainer.explain_path(X[:20], weights)
    n_along = sum(n_asked)
    n_asked.clear()
    for explanation, weight in zip(path, weights, strict=True):
        alone = explainer.set_params(mask_weight=weight).explain(X[:20])
        pd.testing.assert_frame_equal(
            explanation.counterfactuals, alone.counterfactuals, check_exact=True
        )
        np.testing.assert_array_equal(explanation.objective, alone.objective)
    assert n_along < 0.7 * sum(n_asked)
    with pytest.raises(ValueError, match=r"mask_weights .* got \[-1\]"):
        explainer.explain_path(X[:20], [-1])
