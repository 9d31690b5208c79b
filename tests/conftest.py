"""Fixtures shared by the whole suite."""

import os
import sys

import numpy as np
import pandas as pd
import pytest

from sklearn_clue import datasets

# They hold no tests, and share a name that doctests must not import twice.
collect_ignore_glob = ["*/conftest.py"]

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are drawn in memory


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
