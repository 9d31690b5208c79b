"""Progress on stderr, and through scikit-learn's callbacks where it has them."""

import contextlib
import io
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor
from sklearn_clue._progress import EpochProgress
from sklearn_clue.bayesian import _mlp

TINY = {
    "hidden_layer_sizes": (8,),
    "n_draws": 6,
    "burn_in": 20,
    "thinning": 1,
    "random_state": 0,
}
N_EPOCHS = 120 + 3  # one batch per epoch, two chains


def _data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), np.arange(60) % 2


# Lines and bars


def test_silence(capfd):
    with EpochProgress(2, "work") as progress:
        progress.begin_epoch()
        assert progress.end_epoch(energy=1.0) is False
    assert capfd.readouterr() == ("", "")


def test_a_bar(capfd):
    with EpochProgress(2, "work", verbose=1) as progress:
        for _ in range(2):
            progress.begin_epoch()
            progress.end_epoch(energy=1.23456)
    out, err = capfd.readouterr()
    assert out == ""
    assert "work: 100%" in err
    assert "2/2" in err
    assert "energy 1.235" in err


def test_a_line_per_epoch(capfd):
    with EpochProgress(2, "work", verbose=2) as progress:
        for epoch in range(2):
            progress.begin_epoch()
            progress.end_epoch(energy=epoch + 0.5, temperature=1.0)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "work: epoch 1/2, energy 0.5, temperature 1",
        "work: epoch 2/2, energy 1.5, temperature 1",
    ]


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_verbose_of_the_estimators(estimator, capfd):
    X, y = _data()
    estimator(**TINY).fit(X, y)
    assert capfd.readouterr() == ("", "")
    estimator(**TINY, verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{estimator.__name__} chain 0-1: 100%" in err
    assert f"{N_EPOCHS}/{N_EPOCHS}" in err
    estimator(**TINY, verbose=2).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == N_EPOCHS
    assert re.match(
        rf"{estimator.__name__} chain 0-1: epoch 1/{N_EPOCHS}, energy \S+, temper",
        err,
    )


def test_verbose_changes_no_draw():
    X, y = _data()
    quiet = BayesianMLPClassifier(**TINY).fit(X, y)
    with contextlib.redirect_stderr(io.StringIO()):
        loud = BayesianMLPClassifier(**TINY, verbose=2).fit(X, y)
    assert_array_equal(quiet.predict_proba(X), loud.predict_proba(X))


# scikit-learn's callbacks


class Recorder:
    """Remembers the tasks it is told of, and asks to stop after some epochs."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.begun, self.ended = [], []
        self.n_set_up = 0

    def setup(self, estimator, context):
        self.n_set_up += 1

    def teardown(self, estimator, context):
        self.n_set_up -= 1

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        self.ended.append(context.task_name)
        is_epoch = context.task_name == "epoch"
        return is_epoch and self.ended.count("epoch") == self.stop_after


@pytest.fixture
def callback():
    return pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")


def test_callbacks_see_the_epochs(callback):
    recorder = Recorder()
    assert isinstance(recorder, callback.FitCallback)
    BayesianMLPClassifier(**TINY).set_callbacks(recorder).fit(*_data())
    assert recorder.begun.count("epoch") == recorder.ended.count("epoch") == N_EPOCHS
    assert recorder.begun[1] == "chain 0-1"
    assert recorder.ended[-2] == "chain 0-1"
    assert recorder.begun[0] == recorder.ended[-1]
    assert len(recorder.begun) == len(recorder.ended) == N_EPOCHS + 2
    assert recorder.n_set_up == 0


def test_callbacks_see_separate_chains(callback, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", 0)
    recorder = Recorder()
    BayesianMLPClassifier(**TINY).set_callbacks(recorder).fit(*_data())
    assert recorder.ended.count("epoch") == 2 * N_EPOCHS
    assert [task for task in recorder.begun if "chain" in task] == [
        "chain 0",
        "chain 1",
    ]


def test_a_callback_may_end_the_fit(callback):
    X, y = _data()
    recorder = Recorder(stop_after=N_EPOCHS - 1)
    model = BayesianMLPClassifier(**TINY).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="after 4 of 6 draws"):
        model.fit(X, y)
    assert model.n_iter_ == N_EPOCHS - 1
    assert model.predict_proba(X).shape == (60, 2)
    assert recorder.n_set_up == 0
    assert len(recorder.begun) == len(recorder.ended)


@pytest.fixture
def show(callback, monkeypatch):
    """Fit under scikit-learn's bar: the text it leaves, and how many epochs it saw."""
    rich = pytest.importorskip("rich")
    console = pytest.importorskip("rich.console")
    module = pytest.importorskip("sklearn.callback._progressbar")
    text, depths = io.StringIO(), []
    end = module.RichProgressMonitor._on_task_end

    def recording(monitor, task_info):
        depths.append(len(task_info["path"]))
        end(monitor, task_info)

    monkeypatch.setattr(module.RichProgressMonitor, "_on_task_end", recording)
    terminal = console.Console(file=text, force_terminal=True, width=160)
    monkeypatch.setattr(rich, "_console", terminal)

    def fit(model):
        model.set_callbacks(callback.ProgressBar()).fit(*_data())
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
        return shown, depths.count(max(depths))

    return fit


def test_progress_bar_of_one_fit(show):
    shown, n_epochs = show(BayesianMLPClassifier(**TINY))
    assert "BayesianMLPClassifier - chain 0-1" in shown
    assert "100%" in shown
    assert n_epochs == N_EPOCHS


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_bar_inside_a_grid_search(show, n_jobs):
    search = GridSearchCV(
        BayesianMLPClassifier(**TINY), {"friction": [0.05, 0.1]}, cv=2, n_jobs=n_jobs
    )
    shown, n_epochs = show(search)
    assert "GridSearchCV" in shown
    assert "BayesianMLPClassifier - chain 0-1" in shown
    # Two candidates on two folds. The refit is a level higher in the tree.
    assert n_epochs == 4 * N_EPOCHS


def test_progress_bar_of_parallel_chains(show, monkeypatch):
    monkeypatch.setattr(_mlp, "STACK_BELOW", 0)
    shown, n_epochs = show(BayesianMLPClassifier(**TINY, n_jobs=2))
    assert "chain 0" in shown
    assert "chain 1" in shown
    assert n_epochs == 2 * N_EPOCHS
