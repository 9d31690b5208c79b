"""The two estimators as their users meet them, at the smallest sizes that say it."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    TabularEncoder,
)
from sklearn_clue.bayesian import _chains, _mlp, _posterior
from sklearn_clue.exceptions import ChainDivergedError

# 120 iterations of burn-in are the least there is; the rest is as short as it gets.
TINY = {
    "hidden_layer_sizes": (8,),
    "n_draws": 6,
    "burn_in": 20,
    "thinning": 1,
    "random_state": 0,
}
# Long enough for the chains to arrive and to agree.
LONG = {"n_draws": 30, "burn_in": 300, "thinning": 20, "step_size": 0.05}


def _classifier(**changes):
    return BayesianMLPClassifier(**{**TINY, **changes})


def _regressor(**changes):
    return BayesianMLPRegressor(**{**TINY, **changes})


BOTH = pytest.mark.parametrize("make", [_classifier, _regressor])


def _data(n_rows=80, seed=0):
    """Inputs, and a target that both estimators take: 0 or 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int)


def _noisy_line(n_rows=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    return X, 3 * X[:, 0] - X[:, 1] + rng.normal(size=n_rows)


def _all_answers(model, X):
    """Everything a model says about rows, in one list of arrays."""
    answers = [model.predict(X), model.posterior_predictive(X)]
    answers += model.predict_uncertainty(X)
    if hasattr(model, "predict_proba"):
        answers.append(model.predict_proba(X))
    else:
        answers += [*model.predict(X, return_std=True), model.predict_interval(X)]
    return answers


def _assert_same_answers(one, other, X):
    for a, b in zip(_all_answers(one, X), _all_answers(other, X), strict=True):
        assert_array_equal(a, b)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(200, noise=0.2, random_state=0)
    settings = {"n_draws": 20, "burn_in": 300, "thinning": 50, "step_size": 0.03}
    return _classifier(hidden_layer_sizes=20, **settings).fit(X, y), X, y


@pytest.fixture(scope="module")
def line():
    X, y = _noisy_line()
    return (
        _regressor(n_draws=30, burn_in=300, thinning=10, step_size=0.05).fit(X, y),
        X,
        y,
    )


@pytest.fixture(scope="module")
def two_targets():
    X, y = _noisy_line()
    Y = np.column_stack([y, 1000 * (y + X[:, 1])])
    return (
        _regressor(n_draws=30, burn_in=300, thinning=10, step_size=0.05).fit(X, Y),
        X,
        Y,
    )


@pytest.fixture
def mixed_table(mixed_frame):
    """The mixed frame, long enough to learn from."""
    rng = np.random.default_rng(0)
    table = mixed_frame.iloc[rng.integers(len(mixed_frame), size=60)]
    return table.reset_index(drop=True), rng.integers(2, size=60)


# Weights of rows and classes


@BOTH
def test_weight_two_is_the_row_twice(make):
    X, y = _data()
    weight = np.where(np.arange(len(X)) < 30, 2.0, 1.0)
    weighted = make().fit(X, y, sample_weight=weight)
    doubled = make().fit(np.concatenate([X, X[:30]]), np.concatenate([y, y[:30]]))
    _assert_same_answers(weighted, doubled, X)
    plain = make().fit(X, y)
    assert not np.array_equal(
        plain.posterior_predictive(X), weighted.posterior_predictive(X)
    )


@BOTH
def test_weight_zero_is_no_row(make):
    X, y = _data()
    weight = np.where(np.arange(len(X)) < 30, 0.0, 1.0)
    _assert_same_answers(
        make().fit(X, y, sample_weight=weight), make().fit(X[30:], y[30:]), X
    )


@BOTH
def test_order_of_rows_does_not_matter(make):
    X, y = _data()
    order = np.random.default_rng(1).permutation(len(X))
    _assert_same_answers(make().fit(X, y), make().fit(X[order], y[order]), X)


def test_balanced_weights_with_rows_twice():
    X, y = _data()
    weight = np.where(np.arange(len(X)) < 30, 2.0, 1.0)
    doubled = np.concatenate([X, X[:30]]), np.concatenate([y, y[:30]])
    _assert_same_answers(
        _classifier(class_weight="balanced").fit(X, y, sample_weight=weight),
        _classifier(class_weight="balanced").fit(*doubled),
        X,
    )


def test_class_weights_multiply_sample_weights():
    X, y = _data()
    counts = np.bincount(y)
    weights = {k: len(y) / (2 * counts[k]) for k in range(2)}
    by_dict = _classifier(class_weight=weights).fit(X, y)
    balanced = _classifier(class_weight="balanced").fit(X, y)
    for a, b in zip(_all_answers(by_dict, X), _all_answers(balanced, X), strict=True):
        assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    # Nothing but the likelihood knows the class weights, so the encoder must be told
    # of neither for the two to be the same.
    scaled = StandardScaler().fit_transform(X)
    by_class = _classifier(class_weight={0: 1.0, 1: 3.0}, encoder="passthrough")
    by_row = _classifier(encoder="passthrough")
    _assert_same_answers(
        by_class.fit(scaled, y),
        by_row.fit(scaled, y, sample_weight=np.where(y == 1, 3.0, 1.0)),
        scaled,
    )


def test_balanced_helps_the_rare_class():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (190, 1)), rng.normal(1, 1, (10, 1))])
    y = np.repeat([0, 1], [190, 10])
    plain = _classifier(**LONG).fit(X, y)
    balanced = _classifier(**LONG, class_weight="balanced").fit(X, y)
    gain = balanced.predict_proba(X)[:, 1].mean() / plain.predict_proba(X)[:, 1].mean()
    assert gain > 3


@BOTH
@pytest.mark.parametrize(
    "weight, match",
    [
        (np.full(80, -1.0), "Negative values"),
        (np.zeros(80), "nothing but zeros|at least one non-zero"),
        (np.ones(79), r"sample_weight.shape == \(79,\)"),
        (np.full(80, np.nan), "sample_weight contains NaN"),
    ],
    ids=["negative", "zero", "short", "nan"],
)
def test_bad_weights(make, weight, match):
    with pytest.raises(ValueError, match=match):
        make().fit(*_data(), sample_weight=weight)


# Targets


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([False, True]),
        np.array([-5, 7]),
        np.array([1.0, 2.0]),
    ],
    ids=["str", "object", "bool", "int", "float"],
)
def test_any_label_type(labels):
    X, y = _data()
    model = _classifier().fit(X, labels[y])
    assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.predict(X).dtype == labels.dtype
    assert set(model.sample_y(X, random_state=0).ravel()) <= set(labels)
    assert model.score(X, labels[y]) > 0.5
    codes = _classifier().fit(X, y)
    assert_array_equal(model.predict_proba(X), codes.predict_proba(X))


def test_labels_in_a_series():
    X, y = _data()
    names = pd.Series(np.array(["no", "yes"])[y], dtype="category")
    assert_array_equal(_classifier().fit(X, names).classes_, ["no", "yes"])


def test_three_classes():
    X, _ = _data()
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = _classifier().fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (80, 3)
    assert_allclose(proba.sum(1), 1)
    total = model.predict_uncertainty(X).total
    assert (total >= 0).all() and (total <= np.log(3) + 1e-9).all()


@pytest.mark.parametrize("unit, origin", [(1e9, 0.0), (1e-6, 0.0), (1.0, 1e6)])
def test_units_of_the_target_do_not_matter(unit, origin):
    X, y = _noisy_line()
    plain, other = _regressor().fit(X, y), _regressor().fit(X, unit * y + origin)
    mean, std = plain.predict(X, return_std=True)
    other_mean, other_std = other.predict(X, return_std=True)
    # The standardised targets differ in their last digits, which the chain amplifies.
    tolerance = 0.02 * y.std()
    assert_allclose((other_mean - origin) / unit, mean, atol=tolerance)
    assert_allclose(other_std / unit, std, atol=tolerance)
    assert_allclose(
        (other.predict_interval(X) - origin) / unit,
        plain.predict_interval(X),
        atol=3 * tolerance,
    )
    assert_allclose(
        other.predict_uncertainty(X).epistemic / unit,
        plain.predict_uncertainty(X).epistemic,
        atol=tolerance,
    )


def test_constant_target():
    X, _ = _noisy_line()
    model = _regressor().fit(X, np.full(len(X), 5.0))
    assert_allclose(model.predict(X), 5, atol=0.5)
    assert_array_equal(model.target_scale_, [1.0])


def test_several_outputs(two_targets):
    model, X, Y = two_targets
    n_rows = len(X)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (n_rows, 2)
    assert model.predict_interval(X).shape == (n_rows, 2, 2)
    assert model.sample_y(X, 3).shape == (n_rows, 2, 3)
    assert model.posterior_predictive(X).shape == (30, n_rows, 2, 2)
    for part in model.predict_uncertainty(X):
        assert part.shape == (n_rows, 2)
    # Each output in its own unit.
    assert_allclose(model.target_scale_, Y.std(0))
    residual = (Y - mean).std(0) / Y.std(0)
    assert (residual < 0.8).all()


def test_a_single_column_is_a_single_output():
    X, y = _noisy_line()
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        model = _regressor().fit(X, y[:, None])
    assert model.predict(X).shape == (len(X),)


# Answers of the classifier


def test_classifier_answers_agree(moons):
    model, X, _ = moons
    proba, draws = model.predict_proba(X), model.posterior_predictive(X)
    assert draws.shape == (20, len(X), 2)
    assert_allclose(draws.sum(2), 1)
    assert_allclose(draws.mean(0), proba, atol=1e-12)
    assert_array_equal(model.predict(X), model.classes_[proba.argmax(1)])
    total, aleatoric, epistemic = model.predict_uncertainty(X)
    assert_allclose(total, aleatoric + epistemic, atol=1e-9)
    assert_allclose(total, -(proba * np.log(proba)).sum(1), atol=1e-9)
    assert_allclose(aleatoric, -(draws * np.log(draws)).sum(2).mean(0), atol=1e-9)
    for part in (total, aleatoric, epistemic):
        assert (part >= 0).all() and (part <= np.log(2) + 1e-9).all()


def test_classes_are_drawn_by_their_probabilities(moons):
    model, X, _ = moons
    drawn = model.sample_y(X[:20], n_samples=4000, random_state=0)
    assert drawn.shape == (20, 4000)
    # The standard error is 0.008.
    assert_allclose((drawn == 1).mean(1), model.predict_proba(X[:20])[:, 1], atol=0.04)
    assert_array_equal(drawn, model.sample_y(X[:20], 4000, random_state=0))
    assert not np.array_equal(drawn, model.sample_y(X[:20], 4000, random_state=1))
    assert model.sample_y(X[:20]).shape == (20, 1)


def test_epistemic_uncertainty_grows_away_from_the_data(moons):
    model, X, _ = moons
    angle = np.linspace(0, 2 * np.pi, 200)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    epistemic = [
        model.predict_uncertainty(X.mean(0) + radius * ring).epistemic.mean()
        for radius in (0.5, 2, 4, 8)
    ]
    inside = model.predict_uncertainty(X).epistemic.mean()
    assert (np.diff(epistemic) > 0).all()
    assert epistemic[-1] > 2 * inside


# Answers of the regressor


def test_regressor_answers_agree(line):
    model, X, y = line
    mean, std = model.predict(X, return_std=True)
    assert_array_equal(model.predict(X), mean)
    draws = model.posterior_predictive(X)
    assert draws.shape == (30, len(X), 2)
    assert (draws[..., 1] > 0).all()
    assert_allclose(draws[..., 0].mean(0), mean)
    total, aleatoric, epistemic = model.predict_uncertainty(X)
    assert_allclose(total, std)
    assert_allclose(total**2, aleatoric**2 + epistemic**2)
    assert_allclose(epistemic, draws[..., 0].std(0))
    assert_allclose(aleatoric**2, (draws[..., 1] ** 2).mean(0))
    # The noise has a standard deviation of one.
    assert 0.6 < np.median(aleatoric) < 1.5
    assert np.sqrt(np.mean((mean - y) ** 2)) < 1.3


@pytest.mark.parametrize("coverage", [0.1, 0.9, 0.999])
def test_intervals_are_quantiles_of_the_mixture(line, coverage):
    model, X, _ = line
    rows = np.concatenate([X[:5], [[8.0, 8.0]]])  # the last is far from a Gaussian
    mean, std = np.moveaxis(model.posterior_predictive(rows), -1, 0)
    interval = model.predict_interval(rows, coverage=coverage)
    assert interval.shape == (6, 2)
    for row in range(6):
        for bound, level in enumerate([0.5 - coverage / 2, 0.5 + coverage / 2]):
            quantile = brentq(
                lambda t, row=row, level=level: (
                    norm.cdf(t, mean[:, row], std[:, row]).mean() - level
                ),
                -1e4,
                1e4,
                xtol=1e-10,
            )
            assert_allclose(interval[row, bound], quantile, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 90, np.nan])
def test_bad_coverage(line, coverage):
    model, X, _ = line
    with pytest.raises(ValueError, match=f"between 0 and 1.*got {coverage}"):
        model.predict_interval(X, coverage=coverage)


def test_intervals_hold_what_they_promise(line):
    model, _, _ = line
    X, y = _noisy_line(2000, seed=1)
    low, high = model.predict_interval(X, coverage=0.8).T
    # Trained on 80 rows, so not exact; a Gaussian of half the width covers 0.48.
    assert 0.7 < ((low < y) & (y < high)).mean() < 0.93


def test_targets_are_drawn_from_the_mixture(line):
    model, X, _ = line
    drawn = model.sample_y(X[:10], n_samples=4000, random_state=0)
    assert drawn.shape == (10, 4000)
    mean, std = model.predict(X[:10], return_std=True)
    # Standard errors: 0.016 standard deviations, and about 1.5 % of one.
    assert_allclose((drawn.mean(1) - mean) / std, 0, atol=0.08)
    assert_allclose(drawn.std(1), std, rtol=0.08)
    low, high = model.predict_interval(X[:10], coverage=0.5).T
    inside = (drawn > low[:, None]) & (drawn < high[:, None])
    assert_allclose(inside.mean(1), 0.5, atol=0.04)
    assert_array_equal(drawn, model.sample_y(X[:10], 4000, random_state=0))
    assert not np.array_equal(drawn, model.sample_y(X[:10], 4000, random_state=1))


def test_one_draw_speaks_for_all_outputs_of_a_row(two_targets):
    model, X, _ = two_targets
    far = np.array([[30.0, -30.0]])
    drawn = model.sample_y(far, 4000, random_state=0)[0]
    means = model.posterior_predictive(far)[:, 0, :, 0]
    expected = np.cov(means.T)[0, 1]
    assert_allclose(np.cov(drawn)[0, 1], expected, rtol=0.2)


# Rows are independent, and memory is bounded


def _assert_rows_are_independent(model, n_rows=1100):
    rng = np.random.default_rng(0)
    X, order = rng.normal(size=(n_rows, 2)), rng.permutation(n_rows)
    together = _all_answers(model, X)
    for rows in (order, [0], [777], [n_rows - 1], slice(3, 60)):
        rows = np.arange(n_rows)[rows]
        for a, b in zip(together, _all_answers(model, X[rows]), strict=True):
            axis = 0 if len(a) == n_rows else 1
            assert_array_equal(np.take(a, rows, axis), b)


def test_a_row_is_answered_the_same_in_any_company(moons, line, two_targets):
    for model, _, _ in (moons, line, two_targets):
        _assert_rows_are_independent(model)


def test_predictions_work_in_blocks_of_bounded_size(moons, monkeypatch):
    model, _, _ = moons
    sizes = []
    original = _posterior.mlp_outputs

    def recording(x, coefs, intercepts):
        outputs = original(x, coefs, intercepts)
        sizes.append(outputs.numel() * outputs.element_size())
        return outputs

    monkeypatch.setattr(_posterior, "mlp_outputs", recording)
    largest = []
    for n_rows in (5_000, 20_000):
        sizes.clear()
        model.predict_proba(np.zeros((n_rows, 2)))
        largest.append(max(sizes))
    assert largest[0] == largest[1] <= 2**25


@BOTH
def test_rows_are_encoded_chunk_by_chunk(make, mixed_table, monkeypatch):
    X, y = mixed_table
    model = make().fit(X, y)
    whole = _all_answers(model, X)
    sizes, encode = [], TabularEncoder._encode

    def recording(encoder, X, strangers):
        sizes.append(len(X))
        return encode(encoder, X, strangers)

    monkeypatch.setattr(_posterior, "ROWS_PER_CHUNK", 16)
    monkeypatch.setattr(TabularEncoder, "_encode", recording)
    for a, b in zip(_all_answers(model, X), whole, strict=True):
        assert_array_equal(a, b)
    assert sizes[:4] == [16, 16, 16, 12]


# Chains and draws


@pytest.mark.parametrize("n_draws, per_chain", [(6, [3, 3]), (7, [4, 3]), (1, [1])])
def test_draws_are_divided_among_chains(n_draws, per_chain):
    X, y = _data()
    model = _classifier(n_draws=n_draws).fit(X, y)
    assert model.n_draws_per_chain_ == per_chain
    assert len(model.coefs_[0]) == len(model.posterior_predictive(X)) == n_draws


def test_more_chains_than_draws():
    X, y = _data()
    model = _classifier(n_draws=3, n_chains=5).fit(X, y)
    assert model.n_draws_per_chain_ == [1, 1, 1]


def test_epochs_are_counted():
    X, y = _data()
    model = _classifier(burn_in=130, thinning=4, n_draws=6, n_chains=2).fit(X, y)
    assert model.n_iter_ == 130 + 3 * 4
    # Too short a burn-in is raised to 120 iterations, here of 2 batches each.
    model = _classifier(burn_in=1, n_draws=6, n_chains=2, batch_size=40).fit(X, y)
    assert model.n_iter_ == 60 + 3


@pytest.mark.parametrize(
    "widths, shapes",
    [
        (5, [(3, 5), (5, 2)]),
        ((), [(3, 2)]),
        ([4, 6], [(3, 4), (4, 6), (6, 2)]),
        (np.array([4]), [(3, 4), (4, 2)]),
    ],
)
def test_hidden_layer_sizes(widths, shapes):
    X, y = _data()
    model = _classifier(hidden_layer_sizes=widths).fit(X, y)
    assert [coef.shape[1:] for coef in model.coefs_] == shapes
    assert [b.shape for b in model.intercepts_] == [(6, n) for _, n in shapes]
    assert all(coef.dtype == np.float32 for coef in model.coefs_)


@pytest.mark.parametrize("widths", [(0,), (-3, 4), (2.5,), ("a",), [[3, 4]]])
def test_bad_hidden_layer_sizes(widths):
    with pytest.raises(ValueError, match="hidden_layer_sizes must hold the widths"):
        _classifier(hidden_layer_sizes=widths).fit(*_data())


def test_diagnostics_of_a_fit(moons):
    model, X, _ = moons
    figures = model.diagnostics_
    assert figures.r_hat.shape == figures.effective_sample_size.shape == (200, 1)
    assert np.isfinite(figures.r_hat).all()
    assert (figures.effective_sample_size <= 20).all()
    assert_allclose(figures.temperature, 1, atol=0.3)
    assert figures.temperature.shape == figures.n_rejected_epochs.shape == (2,)
    assert len(figures.energy) == 2
    assert all(len(energy) == model.n_iter_ for energy in figures.energy)
    assert figures.energy[0][-1] < figures.energy[0][0]


def test_chains_that_disagree_are_reported():
    X, y = _noisy_line(200)
    # Without time to move from where they start, chains cannot agree.
    model = _regressor(n_draws=20, step_size=1e-4)
    with pytest.warns(ConvergenceWarning) as record:
        model.fit(X, y)
    (message,) = (str(w.message) for w in record)
    assert re.search(r"R-hat of the predictive mean is \d+\.\d+ \(should", message)
    assert re.search(r"20 draws are worth \d+ independent ones", message)
    assert "Raise thinning (now 1)" in message
    assert "burn_in (now 20)" in message
    assert np.median(model.diagnostics_.r_hat) > 1.05


def test_reports_say_what_auto_amounts_to():
    X, y = _noisy_line(200)
    model = _regressor(n_draws=20, step_size=1e-6, burn_in="auto", thinning="auto")
    with pytest.warns(ConvergenceWarning, match=r"thinning \(now \d+\).*\(now \d+\)"):
        model.fit(X, y)


def test_a_chain_that_no_smaller_step_helps_is_an_error(monkeypatch):
    def reject(guard, energy, variance):
        guard.n_failures += 1
        return np.zeros(len(energy), dtype=bool)

    monkeypatch.setattr(_chains.EnergyGuard, "accept", reject)
    with pytest.raises(
        ChainDivergedError, match=r"(?s)recover in 25 .*lowered from 0.01 to \d"
    ):
        _regressor(burn_in=40).fit(*_noisy_line())


@pytest.mark.parametrize("batch_size", [20, 512])
@pytest.mark.parametrize("step_size", [1.0, 100.0, 1e10])
def test_too_large_a_step_is_lowered(batch_size, step_size):
    X, y = _noisy_line()
    model = _regressor(
        step_size=step_size, batch_size=batch_size, burn_in=400, n_draws=20
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert (model.diagnostics_.step_size < step_size).all()
    assert model.score(X, y) > 0.5


def test_chains_that_stand_still_are_reported(monkeypatch):
    # Nothing moves within a chain, so R-hat is infinite.
    monkeypatch.setattr(_mlp, "split_r_hat", lambda chains: np.full((80, 1), np.inf))
    with pytest.warns(ConvergenceWarning, match="R-hat of the predictive mean is inf"):
        _regressor(n_draws=20).fit(*_noisy_line())


# Encoders and frames


def test_encoder_none_is_a_tabular_encoder(mixed_table):
    X, y = mixed_table
    model = _classifier().fit(X, y)
    assert isinstance(model.encoder_, TabularEncoder)
    assert_array_equal(model.feature_names_in_, X.columns)
    assert model.coefs_[0].shape[1] == model.encoder_.schema_.n_encoded == 10


def test_passthrough_takes_numbers_as_they_are():
    X, y = _data()
    scaled = StandardScaler().fit_transform(X)
    through = _classifier(encoder="passthrough").fit(scaled, y)
    assert through.encoder_ is None
    assert_array_equal(
        through.predict_proba(scaled), _classifier().fit(X, y).predict_proba(X)
    )


def test_frozen_encoder_is_left_alone(mixed_table):
    X, y = mixed_table
    encoder = TabularEncoder().fit(X)
    model = _classifier(encoder=FrozenEstimator(encoder)).fit(X[:30], y[:30])
    assert model.encoder_.estimator is encoder
    assert model.predict(X).shape == (60,)


def test_any_transformer_is_an_encoder(mixed_table):
    X, y = mixed_table
    encoder = make_column_transformer(
        (StandardScaler(), ["age", "weight"]),
        (OneHotEncoder(sparse_output=False), ["color", "member", "grade"]),
    )
    model = _classifier(encoder=encoder).fit(X, y)
    assert model.coefs_[0].shape[1] == 2 + 3 + 2 + 2
    assert not hasattr(encoder, "transformers_")
    assert model.predict(X).shape == (60,)


def test_parameters_of_the_encoder_are_in_reach():
    X, y = _data()
    X[:, 2] = np.arange(80) % 3
    model = _classifier(encoder=TabularEncoder())
    model.set_params(encoder__categorical_features=[2]).fit(X, y)
    assert model.coefs_[0].shape[1] == 2 + 3


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_mixed_columns(make, library, mixed_table):
    X, y = mixed_table
    expected = make().fit(X, y)
    if library == "polars":
        polars = pytest.importorskip("polars")
        X = polars.DataFrame(
            {name: X[name].astype(object).to_list() for name in X.columns}
        )
        grade = polars.col("grade").cast(polars.Enum(["low", "middle", "high"]))
        X = X.with_columns(grade)
    model = make().fit(X, y)
    assert_array_equal(model.predict(X), expected.predict(mixed_table[0]))
    assert_array_equal(model.feature_names_in_, mixed_table[0].columns)


@BOTH
def test_missing_values_name_their_column(make, mixed_table):
    X, y = mixed_table
    X.loc[3, "weight"] = np.nan
    model = make(encoder=TabularEncoder(missing="refuse"))
    with pytest.raises(ValueError, match="weight"):
        model.fit(X, y)
    assert not get_tags(model).input_tags.allow_nan


def test_what_was_not_there_in_fit_is_named_once(mixed_table, monkeypatch):
    X, y = mixed_table
    model = _classifier().fit(X, y)
    monkeypatch.setattr("sklearn_clue.bayesian._posterior.ROWS_PER_CHUNK", 2)
    strange = X.astype({"color": object})
    strange.loc[[3, 30], "color"] = ["mauve", "teal"]
    strange.loc[50, "weight"] = np.nan
    with pytest.warns(UserWarning, match="'mauve', 'teal'.*complete.*'wei") as caught:
        proba = model.predict_proba(strange)
    assert len(caught) == 1
    changed = (proba != model.predict_proba(X)).any(axis=1)
    assert_array_equal(np.flatnonzero(changed), [3, 30, 50])
    with pytest.raises(ValueError, match="'mauve'"):
        model.encoder_.set_params(handle_unknown="error")
        model.predict(strange)


@BOTH
def test_gaps_are_something_to_learn_from(make, mixed_table):
    X, y = mixed_table
    X.loc[::2, "weight"] = np.nan
    X.loc[::3, "color"] = None
    model = make().fit(X, y)
    assert model.encoder_.schema_.column("weight").has_gap
    assert np.isfinite(model.predict_uncertainty(X).total).all()
    assert get_tags(model).input_tags.allow_nan


def test_passthrough_refuses_what_is_no_number(mixed_table):
    X, y = mixed_table
    with pytest.raises(ValueError, match="could not convert|Cannot"):
        _classifier(encoder="passthrough").fit(X, y)
    bad = np.full((80, 3), np.nan)
    with pytest.raises(ValueError, match="contains NaN"):
        _classifier(encoder="passthrough").fit(bad, _data()[1])


def test_order_of_columns_is_checked(mixed_table):
    X, y = mixed_table
    model = _classifier().fit(X, y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="(?s)missing.*weight"):
        model.predict(X.drop(columns="weight"))


def test_one_class_is_an_error():
    X, _ = _data()
    with pytest.raises(ValueError, match="at least 2 classes.*1 class.*'only'"):
        _classifier().fit(X, np.full(80, "only"))
    y = np.arange(80) % 2
    with pytest.raises(ValueError, match="1 class: .*0.*sample_weight is zero"):
        _classifier().fit(X, y, sample_weight=1 - y)


def test_continuous_target_is_no_class():
    X, y = _noisy_line()
    with pytest.raises(ValueError, match="Unknown label type"):
        _classifier().fit(X, y)


@BOTH
def test_missing_target(make):
    X, _ = _data()
    with pytest.raises(ValueError, match="requires y to be passed"):
        make().fit(X, None)


@BOTH
def test_unfitted(make):
    for method in (
        "predict",
        "predict_uncertainty",
        "posterior_predictive",
        "sample_y",
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(make(), method)(np.zeros((2, 3)))


@pytest.mark.parametrize(
    "name, value",
    [
        ("n_draws", 0),
        ("burn_in", "long"),
        ("step_size", 0.0),
        ("friction", 1.0),
        ("n_chains", 0),
        ("encoder", "none"),
        ("adaptation_fraction", 1.5),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        _classifier(**{name: value}).fit(*_data())


# Going on


def _recorded_runs(monkeypatch):
    """Record the start and the settings of every run of chains."""
    runs = []
    original = _mlp.run_chains

    def recording(tensors, nll, settings, n_chains, seed, *, start, **options):
        runs.append((start, settings))
        return original(tensors, nll, settings, n_chains, seed, start=start, **options)

    monkeypatch.setattr(_mlp, "run_chains", recording)
    return runs


@BOTH
@pytest.mark.parametrize("stack_below", [4_000_000, 0], ids=["stacked", "separate"])
def test_going_on_starts_where_the_chains_stopped(make, stack_below, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", stack_below)
    runs = _recorded_runs(monkeypatch)
    X, y = _data()
    model = make(warm_start=True).fit(X, y)
    first = model.chain_state_, model.coefs_[0]
    assert all(start is None for start, _ in runs)
    n_first = len(runs)
    model.fit(X, y)
    starts = [start for start, _ in runs[n_first:]]
    for part, known in enumerate(first[0]):
        assert_array_equal(np.concatenate([start[part] for start in starts]), known)
    assert runs[-1][1].burn_in == runs[-1][1].n_adaptation == 0
    assert model.n_iter_ == 3
    assert len(model.coefs_[0]) == 6
    assert not np.array_equal(model.coefs_[0], first[1])
    assert_array_equal(model.chain_state_.step, first[0].step)


def test_without_warm_start_fit_starts_anew():
    X, y = _data()
    model = _classifier().fit(X, y)
    expected = _all_answers(model, X)
    for a, b in zip(_all_answers(model.fit(X, y), X), expected, strict=True):
        assert_array_equal(a, b)


def test_going_on_brings_new_noise():
    # The noise of the first run once more would drive the chains out.
    X, y = _noisy_line()
    model = _regressor(warm_start=True, n_draws=20, thinning=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
        early = np.mean((model.predict(X) - y) ** 2)
        for _ in range(20):
            model.fit(X, y)
    assert np.mean((model.predict(X) - y) ** 2) < early


@BOTH
@pytest.mark.parametrize(
    "changes", [{"hidden_layer_sizes": (9,)}, {"n_chains": 3}], ids=str
)
def test_going_on_with_other_sizes_is_an_error(make, changes):
    X, y = _data()
    model = make(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="(?s)Cannot go on.*warm_start=False"):
        model.set_params(**changes).fit(X, y)


def test_going_on_with_new_classes_is_an_error():
    X, y = _data()
    model = _classifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"the classes \[2\].*\[0, 1\] are known"):
        model.fit(X, y + 1)


def test_going_on_with_fewer_classes_keeps_them_all():
    X, y = _data()
    model = _classifier(warm_start=True).fit(X, y)
    model.fit(X[y == 1], y[y == 1])
    assert_array_equal(model.classes_, [0, 1])


def test_going_on_with_other_outputs_or_columns_is_an_error():
    X, y = _noisy_line()
    model = _regressor(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="2 output.*networks have 1"):
        model.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="1 features, but .* expecting 2 features"):
        model.fit(X[:, :1], y)


# Interruptions


def _interrupt(monkeypatch, epoch, error=KeyboardInterrupt):
    """Press Ctrl-C at the end of some epoch, counted over all chains run."""
    original = _chains._Chains.on_epoch_end
    count = iter(range(1, 10**9))

    def on_epoch_end(self, net, **kwargs):
        original(self, net, **kwargs)
        if next(count) == epoch:
            raise error

    monkeypatch.setattr(_chains._Chains, "on_epoch_end", on_epoch_end)


@BOTH
def test_interrupt_after_some_draws(make, monkeypatch):
    X, y = _data()
    with monkeypatch.context() as patch:
        _interrupt(patch, epoch=122)
        with pytest.warns(ConvergenceWarning, match="after 4 of 6 draws"):
            model = make().fit(X, y)
    assert model.n_draws_per_chain_ == [2, 2]
    assert model.n_iter_ == 122
    assert len(model.posterior_predictive(X)) == 4
    whole = make().fit(X, y)
    assert_array_equal(model.coefs_[0][:2], whole.coefs_[0][:2])
    model.set_params(warm_start=True).fit(X, y)
    assert len(model.coefs_[0]) == 6


@BOTH
@pytest.mark.parametrize("stack_below", [4_000_000, 0], ids=["stacked", "separate"])
def test_interrupt_before_the_first_draw(make, stack_below, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", stack_below)
    _interrupt(monkeypatch, epoch=50)
    model, (X, y) = make(), _data()
    with pytest.raises(KeyboardInterrupt, match="50 of 123 epochs, before the first"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_interrupted_refit_leaves_no_mixture(monkeypatch):
    X, y = _data()
    model = _classifier().fit(X, y)
    expected = model.predict_proba(X)
    _interrupt(monkeypatch, epoch=50)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y)
    np.testing.assert_array_equal(model.predict_proba(X), expected)


@pytest.mark.parametrize("epoch, n_draws", [(122, [2]), (125, [3]), (245, [3, 2])])
def test_interrupt_of_separate_chains(epoch, n_draws, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", 0)
    X, y = _data()
    with monkeypatch.context() as patch:
        _interrupt(patch, epoch=epoch)
        with pytest.warns(ConvergenceWarning, match=f"after {sum(n_draws)} of 6"):
            model = _classifier().fit(X, y)
    assert model.n_draws_per_chain_ == n_draws
    assert model.predict_proba(X).shape == (80, 2)
    assert len(model.diagnostics_.energy) == len(n_draws)


def test_interrupted_separate_chains_go_on(monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", 0)
    X, y = _data()
    for epoch, changes in ((125, {"n_chains": 1}), (245, {})):
        model = _classifier(warm_start=True)
        with monkeypatch.context() as patch:
            _interrupt(patch, epoch=epoch)
            how = ", n_chains=1" if changes else ""
            with pytest.warns(
                ConvergenceWarning, match=f"warm_start=True{how} goes on from here"
            ):
                model.fit(X, y)
        model.set_params(**changes).fit(X, y)
        assert sum(model.n_draws_per_chain_) == 6
        assert np.isfinite(model.predict_proba(X)).all()


# Randomness


@BOTH
def test_seeds_fix_everything(make):
    X, y = _data()
    _assert_same_answers(make().fit(X, y), make().fit(X, y), X)
    _assert_same_answers(
        make(random_state=np.random.RandomState(3)).fit(X, y),
        make(random_state=3).fit(X, y),
        X,
    )
    other = make(random_state=1).fit(X, y)
    assert not np.array_equal(
        make().fit(X, y).posterior_predictive(X), other.posterior_predictive(X)
    )


@pytest.mark.parametrize("stack_below", [4_000_000, 0], ids=["stacked", "separate"])
def test_jobs_do_not_change_the_draws(stack_below, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", stack_below)
    X, y = _data()
    alone = _classifier(n_chains=3).fit(X, y)
    _assert_same_answers(alone, _classifier(n_chains=3, n_jobs=2).fit(X, y), X)


def test_large_networks_run_as_separate_jobs(monkeypatch):
    runs = _recorded_runs(monkeypatch)
    monkeypatch.setattr(_mlp, "STACK_BELOW", 1_000_000)
    X, y = _data()
    _classifier(hidden_layer_sizes=(300, 200), n_draws=2).fit(X, y)
    assert len(runs) == 2


@BOTH
def test_global_generators_and_threads_stay(make):
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
        model = make().fit(*_data())
        _all_answers(model, _data()[0])
        model.sample_y(_data()[0], 2, random_state=0)
        assert torch.get_num_threads() == 2
        assert_array_equal(torch.get_rng_state(), torch_state)
        for before, after in zip(numpy_state, np.random.get_state(), strict=True):
            assert_array_equal(before, after)
    finally:
        torch.set_num_threads(n_threads)


@BOTH
def test_fit_leaves_its_input_and_parameters_alone(make, mixed_table):
    X, y = mixed_table
    before = X.copy(), y.copy()
    model = make(encoder=TabularEncoder())
    parameters = clone(model).get_params(deep=True)
    model.fit(X, y)
    pd.testing.assert_frame_equal(X, before[0])
    assert_array_equal(y, before[1])
    assert not hasattr(model.encoder, "schema_")
    after = model.get_params(deep=True)
    parameters.pop("encoder"), after.pop("encoder")
    assert after == parameters
