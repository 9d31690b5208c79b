"""One fitted object serves many threads, and parallel fits share the machine."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import watched
from joblib.externals.loky import get_reusable_executor
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue._torch import one_thread

N_THREADS = 8


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X[:, 0] + rng.normal(size=80) > 0
    explainer = CLUEExplainer(
        BayesianMLPClassifier((10,), n_draws=8, burn_in=20, thinning=1),
        VAEEncoder(2, (10,), max_iter=5),
        n_explanations=2,
        random_state=0,
    )
    return explainer.fit(X, y), X


@pytest.fixture
def four_threads():
    """As on a machine with cores to spare, whatever this one has."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def own_filters():
    """Undo what overlapping calls of `check_array` leave behind.

    It enters `warnings.catch_warnings` to refuse complex numbers. Before Python 3.14
    those filters belong to the process: of two threads inside, the first to leave
    restores the user's and the second what the first had set.
    """
    with warnings.catch_warnings():
        yield


def _answers(explainer, X):
    explanation = explainer.explain(X[:20])
    return [
        explainer.predict_proba(X),
        *explainer.predict_uncertainty(X),
        explainer.estimator_.predict_proba(X),
        *explainer.estimator_.predict_uncertainty(X),
        explainer.generator_.transform(X),
        explanation.counterfactuals,
        explanation.distance,
        *explanation.uncertainty_after,
        np.concatenate(explanation.candidates),
    ]


@pytest.mark.filterwarnings("ignore:The search of")
def test_threads_answer_as_one_alone(fitted, four_threads, own_filters):
    explainer, X = fitted
    # Each thread asks about rows of its own, so that answers cannot be mixed up.
    questions = [np.roll(X, shift, axis=0) for shift in range(N_THREADS)]
    expected = [_answers(explainer, rows) for rows in questions]
    together = threading.Barrier(N_THREADS)

    def ask(rows):
        together.wait(60)
        return _answers(explainer, rows), torch.get_num_threads()

    with ThreadPoolExecutor(N_THREADS) as pool:
        for known, (answers, n_left) in zip(
            expected, pool.map(ask, questions), strict=True
        ):
            for answer, value in zip(answers, known, strict=True):
                assert_array_equal(answer, value)
            assert n_left == 4
    assert torch.get_num_threads() == 4
    assert _count_in_a_new_thread() == 4


@pytest.mark.parametrize("first_out", [0, 1])
def test_thread_count_survives_overlaps(first_out, four_threads):
    """Whoever leaves first, one thread inside and the old count outside."""
    inside = [threading.Event(), threading.Event()]
    leave = [threading.Event(), threading.Event()]
    seen = [None, None]

    def visit(who):
        with one_thread():
            before = torch.get_num_threads()
            inside[who].set()
            assert leave[who].wait(60)
            with one_thread():  # within itself
                pass
            seen[who] = before, torch.get_num_threads()
        seen[who] += (torch.get_num_threads(),)

    threads = [threading.Thread(target=visit, args=(who,)) for who in (0, 1)]
    for who in (0, 1):
        threads[who].start()
        assert inside[who].wait(60)
    for who in (first_out, 1 - first_out):
        leave[who].set()
        threads[who].join(60)
    assert seen == [(1, 1, 4), (1, 1, 4)]
    assert torch.get_num_threads() == 4
    assert _count_in_a_new_thread() == 4


def test_threads_fit_what_one_alone_fits(own_filters):
    X = np.random.default_rng(0).normal(size=(40, 3))

    def fit(seed):
        return VAEEncoder(2, (50, 50), max_iter=2, random_state=seed).fit(X)

    state = torch.get_rng_state()
    expected = [fit(seed).transform(X) for seed in range(N_THREADS)]
    with ThreadPoolExecutor(N_THREADS) as pool:
        for known, vae in zip(expected, pool.map(fit, range(N_THREADS)), strict=True):
            assert_array_equal(vae.transform(X), known)
    assert_array_equal(torch.get_rng_state(), state)


def _count_in_a_new_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


# Nested parallelism

CHAINS = {"n_draws": 4, "burn_in": 5, "thinning": 1}


def _grid(estimator, n_jobs, **options):
    steps = {"step_size": [0.008, 0.01]}
    return GridSearchCV(estimator, steps, cv=2, n_jobs=n_jobs, refit=False, **options)


def _many_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    return X, X[:, 0] + rng.normal(size=240) > 0


def test_nested_parallelism_is_bounded(monkeypatch):
    """Two searches at a time, of two chains at a time: four threads, on any machine."""
    get_reusable_executor().shutdown(wait=True)  # new workers, with these variables
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    estimator = watched.WatchedClassifier((5,), **CHAINS, n_jobs=2, random_state=0)
    search = _grid(estimator, n_jobs=2, scoring=watched.n_threads)
    search.fit(*_many_rows())
    get_reusable_executor().shutdown(wait=True)
    counts = [search.cv_results_[f"split{k}_test_score"] for k in (0, 1)]
    assert 1 <= np.min(counts) and np.max(counts) <= 2  # in each of two workers


@pytest.mark.slow
def test_nested_parallelism_costs_little():
    """On a single free core, at least 0.8 times the speed of one job after another."""
    X, y = _many_rows()
    wide = (220, 200)  # enough for one chain per job
    estimator = BayesianMLPClassifier(wide, **{**CHAINS, "n_draws": 200}, n_jobs=2)
    _grid(BayesianMLPClassifier(5, n_draws=2), n_jobs=2).fit(X, y)  # start workers
    seconds = {}
    for n_jobs in (1, 2):
        alone = clone(estimator).set_params(n_jobs=None if n_jobs == 1 else 2)
        begin = time.perf_counter()
        _grid(alone.set_params(random_state=0), n_jobs).fit(X, y)
        seconds[n_jobs] = time.perf_counter() - begin
    print(f"Two jobs have {seconds[1] / seconds[2]:.2f} times the speed of one")
    assert seconds[2] <= seconds[1] / 0.8
