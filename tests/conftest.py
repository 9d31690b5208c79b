"""Fixtures shared by the whole suite."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from unittest.mock import patch

# Threads that wait for each other's part of a tiny tensor take most of the time, and
# all of it where cores are shared. One works; torch still counts what the machine has,
# so that a changed count shows. Set before torch is imported, and for children as well.
os.environ.setdefault("OMP_THREAD_LIMIT", "1")

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble._hist_gradient_boosting import binning
from sklearn.utils.parallel import Parallel

from sklearn_clue import datasets

# They hold no tests, and share a name that doctests must not import twice.
collect_ignore_glob = ["*/conftest.py"]

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are drawn in memory


# What others leave in the environment: pytest the name of the test, and polars the
# settings of its allocator when it is imported.
OTHERS = ("PYTEST_CURRENT_TEST", "_RJEM_MALLOC_CONF")


def process_state():
    """All that every call shares with the rest of the process, by name."""
    environment = {name: os.environ[name] for name in os.environ if name not in OTHERS}
    numpy_state = np.random.get_state()
    return {
        "numpy's generator": (numpy_state[1].tobytes(), *numpy_state[2:]),
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "Python's generator": random.getstate(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "torch's recording of gradients": torch.is_grad_enabled(),
        "numpy's handling of errors": np.geterr(),
        "the warning filters": list(warnings.filters),
        "the environment": environment,
        "the working directory": os.getcwd(),
        "the handler of Ctrl-C": signal.getsignal(signal.SIGINT),
    }


def changed_state(before, after):
    """Names of what differs between two states of the process."""
    return [name for name, value in before.items() if after[name] != value]


@pytest.fixture(scope="session", autouse=True)
def torch_is_set_up():
    """The first optimizer of a process makes torch set variables and filters."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@pytest.fixture(scope="session", autouse=True)
def boosting_bins_in_one_thread():
    """scikit-learn's threads restore the warning filters in any order."""
    with patch.object(binning, "Parallel", lambda **settings: Parallel(n_jobs=1)):
        yield


@pytest.fixture(autouse=True)
def untouched_process(torch_is_set_up):
    """Fail whoever changes what belongs to the user and not to the package."""
    # Where scikit-learn's `random_state=None` draws from. That is what it is for, so
    # it gets one of its own; `numpy.random.rand` and the like keep the global one.
    with patch.object(np.random.mtrand, "_rand", np.random.RandomState(0)):
        before = process_state()
        yield
    changed = changed_state(before, process_state())
    if changed:
        pytest.fail(f"The test changed {', '.join(changed)}.", pytrace=False)


@pytest.fixture
def own_process(untouched_process):
    """Let a test draw from the global generators itself, or start what does."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]), patch.dict(os.environ):
        yield
    np.random.set_state(numpy_state)
    random.setstate(python_state)


@pytest.fixture(autouse=True)
def close_figures():
    """Close what a test drew; do not load matplotlib for tests that draw nothing."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def mixed_frame():
    """A tiny table with every kind of column, and an index worth keeping."""
    rng = np.random.default_rng(0)
    n_rows = 12
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "color": rng.permutation(["red", "green", "blue"] * 4),
            "weight": rng.normal(70, 12, n_rows),
            "member": rng.permutation([True, False] * 6),
            "grade": pd.Categorical(
                rng.permutation(["low", "high", "low"] * 4),
                categories=["low", "middle", "high"],
                ordered=True,
            ),
        },
        index=[f"row {i}" for i in range(n_rows)],
    )


@pytest.fixture
def fetch():
    """A dataset that is on this machine; the test skips if it is not."""

    def fetch_by_name(name, **options):
        try:
            return getattr(datasets, name)(download_if_missing=False, **options)
        except FileNotFoundError as err:
            pytest.skip(f"{err}".partition(",")[0])

    return fetch_by_name


@pytest.fixture(scope="session")
def browser_of_all(tmp_path_factory):
    """One browser for all tests, since it takes seconds to start."""
    from browser import Browser, find_browser

    path = find_browser()
    if path is None:
        pytest.skip("no browser is on the path")
    with Browser(path, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(browser_of_all):
    """A window as most people have it."""
    browser_of_all.set_width(1200)
    browser_of_all.set_dark(False)
    return browser_of_all


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core: of the copy that AXE_CORE names, or fetched by npm."""
    path = os.environ.get("AXE_CORE")
    if path is not None:
        return Path(path).read_text(encoding="utf-8")
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("npm, which fetches axe-core, is not on the path")
    fetched = subprocess.run(
        [npm, "pack", "axe-core@4"], cwd=folder, capture_output=True, timeout=120
    )
    if fetched.returncode:
        pytest.skip("npm could not fetch axe-core")
    with tarfile.open(next(folder.glob("*.tgz"))) as package:
        return package.extractfile("package/axe.min.js").read().decode()
