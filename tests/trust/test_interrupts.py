"""Ctrl-C and kill -9 at any moment: nothing is left behind, and little is lost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import interruptible
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    LocalSensitivityExplainer,
)
from sklearn_clue._progress import EpochProgress
from sklearn_clue.bayesian import _mlp
from sklearn_clue.bayesian._checkpoint import Checkpoint
from sklearn_clue.exceptions import ChainDivergedError
from sklearn_clue.persistence import replacing


class Killed(BaseException):
    """Passes through everything, as the end of a process does."""


@pytest.fixture
def save_each_epoch(monkeypatch):
    monkeypatch.setattr(Checkpoint, "min_seconds", 0.0)
    monkeypatch.setattr(Checkpoint, "max_share", 1e9)


def _count_epochs(patch, kill_at=None):
    """Count the epochs that run from here on, and die at the end of one of them."""
    epochs = []
    end_epoch = EpochProgress.end_epoch

    def end_or_die(self, **figures):
        epochs.append(None)
        if len(epochs) == kill_at:
            raise Killed
        return end_epoch(self, **figures)

    patch.setattr(EpochProgress, "end_epoch", end_or_die)
    return epochs


def _assert_same_run(model, expected):
    for name in ("coefs_", "intercepts_", "chain_state_"):
        parts = zip(getattr(model, name), getattr(expected, name), strict=True)
        for part, known in parts:
            assert_array_equal(part, known)
    assert_array_equal(model.diagnostics_.energy, expected.diagnostics_.energy)
    assert_array_equal(model.diagnostics_.r_hat, expected.diagnostics_.r_hat)


# Checkpoints

TINY = {"hidden_layer_sizes": (6,), "n_draws": 8, "burn_in": 65, "thinning": 2}
TINY |= {"batch_size": 30, "prior_interval": 30, "momentum_interval": 35}
N_EPOCHS = 65 + 4 * 2  # of two batches each, of which the first 120 adapt


def _target(estimator):
    X, y = interruptible.data()
    return X, y if estimator is BayesianMLPClassifier else X[:, 0] + y


@pytest.mark.parametrize(
    "estimator, stack_below",
    [(BayesianMLPClassifier, 1e9), (BayesianMLPRegressor, 0)],
    ids=["together", "apart"],
)
# While the mass adapts, after, before the last draw, and after all is done but said.
@pytest.mark.parametrize("kill_at", [1, 30, 62, 70, N_EPOCHS])
def test_killed_fits_go_on(
    estimator, stack_below, kill_at, save_each_epoch, monkeypatch, tmp_path
):
    monkeypatch.setattr(_mlp, "STACK_BELOW", stack_below)
    X, y = _target(estimator)
    expected = estimator(**TINY, random_state=0).fit(X, y)
    model = estimator(**TINY, random_state=0, checkpoint_dir=tmp_path / "new")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        _count_epochs(patch, kill_at)
        model.fit(X, y)
    assert not hasattr(model, "coefs_")
    assert list((tmp_path / "new").iterdir())
    with monkeypatch.context() as patch:
        epochs = _count_epochs(patch)
        model.fit(X, y)
    n_groups = 2 if stack_below == 0 else 1
    assert len(epochs) == n_groups * N_EPOCHS - kill_at
    _assert_same_run(model, expected)
    assert not list((tmp_path / "new").iterdir())


def test_killed_again_and_again(save_each_epoch, monkeypatch, tmp_path):
    X, y = interruptible.data()
    expected = BayesianMLPClassifier(**TINY, random_state=0).fit(X, y)
    model = BayesianMLPClassifier(**TINY, random_state=0, checkpoint_dir=str(tmp_path))
    n_kills = 0
    while not hasattr(model, "coefs_"):
        with monkeypatch.context() as patch:
            _count_epochs(patch, kill_at=20)
            try:
                model.fit(X, y)
            except Killed:
                n_kills += 1
    assert n_kills == N_EPOCHS // 20
    _assert_same_run(model, expected)


def test_going_on_with_chains_can_be_killed_too(save_each_epoch, monkeypatch, tmp_path):
    X, y = interruptible.data()
    settings = {**TINY, "warm_start": True, "random_state": 0}
    expected = BayesianMLPClassifier(**settings).fit(X, y).fit(X, y)
    model = BayesianMLPClassifier(**settings).fit(X, y)
    model.set_params(checkpoint_dir=tmp_path)
    n_runs = model._n_runs
    with monkeypatch.context() as patch, pytest.raises(Killed):
        _count_epochs(patch, kill_at=4)
        model.fit(X, y)
    model._n_runs = n_runs  # as in a new process, with the model from its file
    with monkeypatch.context() as patch:
        epochs = _count_epochs(patch)
        model.fit(X, y)
    assert len(epochs) == 8 - 4
    _assert_same_run(model, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"random_state": 1},
        {"step_size": 0.011},
        {"n_draws": 10},
        {"hidden_layer_sizes": (7,)},
        {"batch_size": 29},
        {"class_weight": {False: 1.0, True: 2.0}},
        {"X": 1e-6},
        {"version": "99.0"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_fits_do_not_meet(changes, save_each_epoch, monkeypatch, tmp_path):
    """A checkpoint of another run is left alone, and waits for its own."""
    X, y = interruptible.data()
    model = BayesianMLPClassifier(**TINY, random_state=0, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        _count_epochs(patch, kill_at=10)
        model.fit(X, y)
    waiting = list(tmp_path.iterdir())
    changes = dict(changes)
    other_X = X + changes.pop("X", 0.0) * np.arange(60)[:, None]
    if "version" in changes:
        monkeypatch.setattr("sklearn_clue.__version__", changes.pop("version"))
    other = BayesianMLPClassifier(**TINY, random_state=0).set_params(**changes)
    expected = BayesianMLPClassifier(**other.get_params()).fit(other_X, y)
    with monkeypatch.context() as patch:
        epochs = _count_epochs(patch)
        other.set_params(checkpoint_dir=tmp_path).fit(other_X, y)
    assert len(epochs) == other.n_iter_
    _assert_same_run(other, expected)
    assert list(tmp_path.iterdir()) == waiting


def test_ctrl_c_keeps_the_checkpoint(save_each_epoch, monkeypatch, tmp_path):
    X, y = interruptible.data()
    expected = BayesianMLPClassifier(**TINY, random_state=0).fit(X, y)
    model = BayesianMLPClassifier(**TINY, random_state=0, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.Killed", KeyboardInterrupt)
        _count_epochs(patch, kill_at=70)
        with pytest.warns(match="Sampling stopped early, after 4 of 8 draws"):
            model.fit(X, y)
    _assert_same_run(model.fit(X, y), expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error, is_kept",
    [(ChainDivergedError, False), (MemoryError, True), (OSError, True)],
)
def test_what_would_fail_again_leaves_no_checkpoint(
    error, is_kept, save_each_epoch, monkeypatch, tmp_path
):
    X, y = interruptible.data()
    expected = BayesianMLPClassifier(**TINY, random_state=0).fit(X, y)
    model = BayesianMLPClassifier(**TINY, random_state=0, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(f"{__name__}.Killed", error)
        _count_epochs(patch, kill_at=10)
        model.fit(X, y)
    assert len(list(tmp_path.iterdir())) == is_kept
    with monkeypatch.context() as patch:
        epochs = _count_epochs(patch)
        _assert_same_run(model.fit(X, y), expected)
    assert (len(epochs) < N_EPOCHS) == is_kept


def test_chance_cannot_be_repeated(tmp_path):
    model = BayesianMLPClassifier(**TINY, checkpoint_dir=tmp_path / "new")
    with pytest.raises(ValueError, match="new' needs a random_state, got None"):
        model.fit(*interruptible.data())
    assert not (tmp_path / "new").exists()


def test_damaged_checkpoints_are_named(save_each_epoch, monkeypatch, tmp_path):
    model = BayesianMLPClassifier(**TINY, random_state=0, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        _count_epochs(patch, kill_at=3)
        model.fit(*interruptible.data())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"\.checkpoint' is damaged.*Delete it"):
        model.fit(*interruptible.data())
    assert path.exists()  # that is for the user to do


def test_saving_is_rare_enough(tmp_path, monkeypatch):
    """One save takes a second here, so that the next comes no sooner than in twenty."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path, ["a run"])
    assert checkpoint.is_due()
    checkpoint.save({"epoch": 1})
    assert not checkpoint.is_due()
    now[0] += 5.0
    assert checkpoint.is_due()

    def slow(*args):
        now[0] += 1.0
        os.rename(*args)

    monkeypatch.setattr(os, "replace", slow)
    checkpoint.save({"epoch": 2})
    now[0] += 19.0
    assert not checkpoint.is_due()
    now[0] += 1.5
    assert checkpoint.is_due()
    assert checkpoint.load("cpu") == {"epoch": 2}


def test_two_processes_save_at_the_same_time(tmp_path, monkeypatch):
    one, other = (Checkpoint(tmp_path, ["a run"]) for _ in range(2))
    write = torch.save

    def write_while_another_does(state, file):
        monkeypatch.setattr(torch, "save", write)
        write(state, file)
        other.save({"epoch": 2})

    monkeypatch.setattr(torch, "save", write_while_another_does)
    one.save({"epoch": 1})
    assert other.load("cpu") == {"epoch": 1}  # the last to be whole
    one.remove()
    assert other.load("cpu") is None  # the other goes on, and saves again
    other.save({"epoch": 3})
    other.remove()
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_dead_process_are_removed(tmp_path):
    checkpoint = Checkpoint(tmp_path, ["a run"])
    with pytest.raises(Killed), replacing(checkpoint.path):
        (left,) = tmp_path.iterdir()
        raise Killed
    left.touch()  # as if nobody had been there any more to tidy up
    other = Checkpoint(tmp_path, ["another run"])
    other.save({"epoch": 1})
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == [other.path]


@contextmanager
def full_disk(n_bytes):
    """Let no file grow beyond a size; the system refuses, as it does on a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_costs_the_checkpoint_and_not_the_fit(save_each_epoch, tmp_path):
    expected = BayesianMLPClassifier(**TINY, random_state=0)
    model = clone(expected).set_params(checkpoint_dir=tmp_path)
    X, y = interruptible.data()
    expected.fit(X, y)
    with full_disk(1000), pytest.warns(UserWarning, match="could not be saved") as told:
        model.fit(X, y)
    assert sum("could not be saved" in str(warning.message) for warning in told) == 1
    _assert_same_run(model, expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:The checkpoint")
def test_a_disk_that_fills_up_leaves_the_earlier_checkpoint(tmp_path):
    checkpoint = Checkpoint(tmp_path, ["a run"])
    checkpoint.save({"epoch": 1})
    with full_disk(500):
        checkpoint.save({"epoch": 2, "weights": torch.zeros(1000)})
    assert checkpoint.load("cpu") == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [checkpoint.path]


def test_what_cannot_be_removed_costs_no_fit(tmp_path, monkeypatch):
    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    checkpoint = Checkpoint(tmp_path, ["a run"])
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.warns(UserWarning, match="could not be removed.*by hand"):
        checkpoint.remove()


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    X, y = interruptible.data()
    explainer = LocalSensitivityExplainer(LogisticRegression()).fit(X, y)
    explanation = explainer.explain(X[:2])
    path = explanation.to_html(tmp_path / "page.html")
    before = path.read_bytes()
    with full_disk(1000), pytest.raises(OSError):
        explainer.explain(X[:9]).to_html(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    # A link goes on to lead to the page, and a device is written to.
    link = tmp_path / "link.html"
    link.symlink_to(path)
    explainer.explain(X[:9]).to_html(link)
    assert link.is_symlink() and path.read_bytes() != before
    if os.path.exists(os.devnull):
        explanation.to_html(os.devnull)


# Signals


def _start(tmp_path, *arguments):
    """Start `interruptible` in a process group of its own, with its own temp folder."""
    folder = tmp_path / "temp"
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, interruptible.__file__, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            **dict.fromkeys(("TMPDIR", "JOBLIB_TEMP_FOLDER"), str(folder)),
        },
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def _wait_for_group(pid, seconds=60):
    """Wait for all processes of a group to end; say whether they did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    return False


def _interrupt(tmp_path, task, n_jobs, delay):
    process = _start(tmp_path, task, str(n_jobs))
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
    out, err = process.communicate(timeout=120)
    assert _wait_for_group(process.pid), "a worker was left behind"
    assert process.returncode == 0, err
    assert "Traceback" not in err
    files = [path for path in (tmp_path / "temp").rglob("*") if path.is_file()]
    assert not files
    *interrupted, left, again = out.splitlines()
    if task == "explain":
        assert left == "usable"
    elif not interrupted:  # it came back with what it had
        assert left == "usable"
    else:
        assert left == "unfitted"
    assert again == "usable again"


@pytest.mark.parametrize(
    "task, n_jobs, delay",
    [
        ("chains", 1, 0.5),  # while torch imports what an optimizer needs
        ("explain", 2, 1.0),
        *(
            pytest.param(task, n_jobs, delay, marks=pytest.mark.slow)
            for task in ("chains", "vae", "explain")
            for n_jobs in (1, 2)
            for delay in np.random.default_rng(0).uniform(0, 6, 10).round(2)
        ),
    ],
)
def test_ctrl_c(task, n_jobs, delay, tmp_path):
    _interrupt(tmp_path, task, n_jobs, delay)


def _kill_and_go_on(tmp_path, n_jobs, delay):
    """Kill a fit that would take forever, and let a finite one take up its chains."""
    folder = tmp_path / "chains"
    process = _start(tmp_path, "killed_chains", str(n_jobs), str(folder))
    deadline = time.monotonic() + 120
    while not list(folder.glob("*.checkpoint")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, "it was done before it was killed"
    return folder


@pytest.mark.parametrize(
    "n_jobs, delay",
    [
        (1, 0.5),
        *(
            pytest.param(n_jobs, delay, marks=pytest.mark.slow)
            for n_jobs in (1, 2)
            for delay in np.random.default_rng(1).uniform(0, 3, 10).round(2)
        ),
    ],
)
def test_kill_9(n_jobs, delay, tmp_path, monkeypatch):
    folder = _kill_and_go_on(tmp_path, n_jobs, delay)
    expected = interruptible.fit_chains(interruptible.chains())
    with monkeypatch.context() as patch:
        epochs = _count_epochs(patch)
        model = interruptible.fit_chains(interruptible.chains(folder))
    assert len(epochs) < 2 * model.n_iter_
    _assert_same_run(model, expected)
    assert not list(folder.iterdir())
