"""Deep ensembles: how they are trained, in which they differ from Bayesian MLPs."""

import re
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_clue import (
    CLUEExplainer,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    VAEEncoder,
)
from sklearn_clue._modules import mlp_outputs, unflatten
from sklearn_clue._progress import EpochProgress
from sklearn_clue.bayesian import _ensemble
from sklearn_clue.bayesian._targets import GaussianNLL, cross_entropy

TINY = {
    "hidden_layer_sizes": (8,),
    "n_members": 2,
    "learning_rate": 0.02,
    "max_iter": 30,
    "random_state": 0,
}
BOTH = pytest.mark.parametrize(
    "estimator", [DeepEnsembleClassifier, DeepEnsembleRegressor]
)
pytestmark = pytest.mark.filterwarnings("ignore:.*still improved:UserWarning")


def _data(n_rows=80, seed=0):
    """Inputs, and a target that both estimators take: 0 or 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int)


def _wave(n_rows=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n_rows, 1))
    noise = 0.05 + 0.2 * (X[:, 0] > 0)
    return X, np.sin(2 * X[:, 0]) + noise * rng.normal(size=n_rows)


# What is learned


def test_regressor_learns_mean_and_noise():
    X, y = _wave()
    model = DeepEnsembleRegressor((50,), learning_rate=0.01, random_state=0).fit(X, y)
    at = np.array([[-1.0], [1.0]])
    assert_allclose(model.predict(at), np.sin(2 * at[:, 0]), atol=0.1)
    assert_allclose(model.predict_uncertainty(at).aleatoric, [0.05, 0.25], rtol=0.4)
    inside, outside = model.predict_uncertainty([[0.5], [6.0]]).epistemic
    assert outside > 3 * inside


def test_classifier_learns_probabilities():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    truth = 1 / (1 + np.exp(-2 * X[:, 0]))
    y = (rng.random(600) < truth).astype(int)
    model = DeepEnsembleClassifier((20,), learning_rate=0.01, random_state=0).fit(X, y)
    assert np.abs(model.predict_proba(X)[:, 1] - truth).mean() < 0.08


@BOTH
def test_members_differ_and_answer_together(estimator):
    X, y = _data()
    model = estimator(**TINY).fit(X, y)
    assert not np.allclose(*model.coefs_[0])
    draws = model.posterior_predictive(X)
    assert len(draws) == 2
    if estimator is DeepEnsembleClassifier:
        assert_allclose(draws.mean(0), model.predict_proba(X))
    else:
        assert_allclose(draws[..., 0].mean(0), model.predict(X))
    assert model.n_iter_.shape == (2,)


def test_alpha_shrinks_the_weights():
    X, y = _data()
    sizes = [
        np.abs(DeepEnsembleClassifier(**TINY, alpha=alpha).fit(X, y).coefs_[0]).mean()
        for alpha in (0.0, 100.0)
    ]
    assert sizes[1] < 0.7 * sizes[0]


def test_class_weight_moves_the_boundary():
    X, y = _data()
    even, moved = (
        DeepEnsembleClassifier(**TINY, class_weight=weight).fit(X, y).predict(X)
        for weight in (None, {0: 1.0, 1: 20.0})
    )
    assert moved.mean() > even.mean()
    only = DeepEnsembleClassifier(**TINY, class_weight={0: 1.0, 1: 0.0}).fit(X, y)
    assert (only.predict(X) == 0).all()
    with pytest.raises(ValueError, match="and some class more"):
        DeepEnsembleClassifier(**TINY, class_weight={0: 0.0, 1: 0.0}).fit(X, y)


@BOTH
def test_n_jobs_and_verbose_change_nothing(estimator, capfd):
    X, y = _data()
    expected = estimator(**TINY).fit(X, y)
    assert capfd.readouterr() == ("", "")
    for changes in ({"n_jobs": 2}, {"verbose": 2}):
        model = estimator(**TINY, **changes).fit(X, y)
        assert_array_equal(model.coefs_[0], expected.coefs_[0])
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == expected.n_iter_.sum()
    assert re.match(rf"{estimator.__name__} member 0: epoch 1/30, loss \S+\n", err)


def test_clue_explains_an_ensemble():
    X, y = _data()
    explainer = CLUEExplainer(
        DeepEnsembleClassifier(**TINY),
        VAEEncoder(2, (8,), max_iter=5, random_state=0),
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        explainer.fit(X, y)
    explanation = explainer.explain(X[:5])
    after = explainer.estimator_.predict_uncertainty(explanation.counterfactuals)
    assert_allclose(explanation.uncertainty_after.total, after.total, rtol=1e-5)
    before = explainer.estimator_.predict_uncertainty(X[:5])
    assert_allclose(explanation.uncertainty_before.total, before.total, rtol=1e-5)


# Early stopping


@pytest.mark.parametrize("n_rows", [10, 95, 200])
def test_every_tenth_row_is_held_out_of_every_class(n_rows):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n_rows) % 3
    tensors = torch.arange(n_rows)[:, None], y, torch.ones(n_rows)
    train, held = _ensemble._split(tensors, True, generator)
    assert abs(len(held[0]) - n_rows / 10) < 1
    rows = torch.cat([train[0], held[0]]).flatten()
    assert_array_equal(rows.sort().values, np.arange(n_rows))
    for part in (train, held):
        assert_array_equal(part[1], y[part[0][:, 0]])
    shares = torch.bincount(held[1], minlength=3) / (n_rows / 30)
    assert n_rows == 10 or (shares > 0.6).all()


def test_nothing_is_held_out_of_few_rows_or_on_request():
    for n_rows, early_stopping in ((9, True), (50, False)):
        tensors = torch.zeros(n_rows, 1), torch.zeros(n_rows), torch.ones(n_rows)
        train, held = _ensemble._split(tensors, early_stopping, torch.Generator())
        assert len(train[0]) == n_rows and held is None


class Losses(EpochProgress):
    """Remembers the losses that it is told of."""

    def __init__(self):
        super().__init__(0, "")
        self.losses = []

    def end_epoch(self, *, loss):
        self.losses.append(loss)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_the_best_epoch_is_kept(task):
    X, y = _data(200)
    nll = cross_entropy if task == "classes" else GaussianNLL(0.01)
    y = torch.as_tensor(y) if task == "classes" else torch.as_tensor(X[:, :1]).float()
    tensors = torch.as_tensor(X).float(), y, torch.ones(200)
    settings = _ensemble.TrainingSettings((3, 20, 2), 0.05, 0.0, 200, True, 64)
    progress = Losses()
    member = _ensemble.train_member(tensors, nll, settings, 3, progress)
    generator = torch.Generator().manual_seed(3)
    _ensemble.MLPStack(settings.layer_sizes, 1, generator)  # draws its weights first
    _, held = _ensemble._split(tensors, True, generator)
    outputs = mlp_outputs(held[0], *unflatten(member.weights[None], [(3, 20), (20, 2)]))
    loss = nll(outputs, held[1][None]).mean()
    assert_allclose(float(loss), min(progress.losses), rtol=1e-4)
    assert member.is_converged and member.n_epochs == len(progress.losses) < 200
    assert min(progress.losses) < progress.losses[-1]


def test_patience_counts_batches_of_few_rows():
    """One batch per epoch: ten of them would end a training that has just begun."""
    X, y = _data(40)
    model = DeepEnsembleClassifier((8,), n_members=1, random_state=0).fit(X, y)
    assert model.n_iter_[0] > _ensemble.BATCHES_NO_CHANGE


@pytest.mark.filterwarnings("default:.*still improved")
def test_too_few_epochs_are_warned_of():
    X, y = _data()
    with pytest.warns(ConvergenceWarning, match="2 of 2 members.*max_iter=3") as caught:
        DeepEnsembleClassifier(**{**TINY, "max_iter": 3}).fit(X, y)
    assert caught[0].filename == __file__


# When something goes wrong


def test_training_that_leaves_the_numbers_says_what_to_lower():
    X, y = _data()
    model = DeepEnsembleRegressor(**{**TINY, "learning_rate": 1e30})
    with pytest.raises(ValueError, match=r"(?s)left the finite numbers.*now 1e\+30"):
        model.fit(X, y)


def _interrupt(monkeypatch, epoch):
    """Press Ctrl-C in some epoch, counted over all members."""
    original = EpochProgress.begin_epoch
    count = iter(range(1, 10**9))

    def begin_epoch(self):
        original(self)
        if next(count) == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(EpochProgress, "begin_epoch", begin_epoch)


@pytest.mark.parametrize("epoch, n_members", [(5, 1), (31, 1), (34, 2)])
def test_an_interrupt_keeps_what_was_trained(epoch, n_members, monkeypatch):
    X, y = _data()
    _interrupt(monkeypatch, epoch)
    settings = {**TINY, "n_members": 3, "learning_rate": 1e-3}  # no early stop
    with pytest.warns(
        ConvergenceWarning, match=f"stopped early, in member {n_members}"
    ):
        model = DeepEnsembleClassifier(**settings).fit(X, y)
    assert len(model.coefs_[0]) == n_members
    assert model.predict_proba(X).shape == (80, 2)


@pytest.mark.parametrize("is_fitted", [False, True])
def test_an_interrupt_before_the_first_epoch_changes_nothing(is_fitted, monkeypatch):
    X, y = _data()
    model = DeepEnsembleClassifier(**TINY)
    before = model.fit(X, y).predict_proba(X) if is_fitted else None
    _interrupt(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:40], y[:40])
    assert hasattr(model, "coefs_") == is_fitted
    if is_fitted:
        assert_array_equal(model.predict_proba(X), before)


def test_callbacks_see_the_epochs_and_may_stop():
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

    class Recorder:
        begun, ended = [], []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            self.begun.append(context.task_name)

        def on_fit_task_end(self, estimator, context):
            self.ended.append(context.task_name)
            return context.task_name == "epoch" and self.ended.count("epoch") == 35

    X, y = _data()
    recorder = Recorder()
    settings = {**TINY, "n_members": 3, "learning_rate": 1e-3}
    model = DeepEnsembleClassifier(**settings).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="stopped early, in member 2 of 3"):
        model.fit(X, y)
    assert [name for name in recorder.begun if "member" in name] == [
        "member 0",
        "member 1",
    ]
    assert recorder.begun.count("epoch") == recorder.ended.count("epoch") == 35
    assert_array_equal(model.n_iter_, [30, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(X)
