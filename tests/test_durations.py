"""Durations are numbers of days, hours or seconds, and come back as durations."""

import json
import pickle
import re
from datetime import time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import (
    CLUEExplainer,
    GroupExplainer,
    NeighborExplainer,
    TabularEncoder,
    VAEEncoder,
    _durations,
)
from sklearn_clue.plotting import DependenceDisplay

pytest.importorskip("matplotlib.pyplot")  # here: old ones warn as they are loaded

DAYS = [3, 10, 5, 7, 2]
PYTHON = [timedelta(days=days) for days in DAYS]
GAP = [None, *PYTHON[1:]]


def _arrow(values, unit):
    pytest.importorskip("pyarrow")
    return pd.DataFrame({"wait": pd.Series(values, dtype=f"duration[{unit}][pyarrow]")})


TABLES = {
    "nanoseconds": lambda: pd.DataFrame({"wait": np.array(DAYS, "m8[D]")}).astype(
        "timedelta64[ns]"
    ),
    "as pandas likes": lambda: pd.DataFrame({"wait": pd.to_timedelta(DAYS, unit="D")}),
    "with a gap": lambda: pd.DataFrame({"wait": pd.to_timedelta(GAP)}),
    "objects": lambda: pd.DataFrame({"wait": pd.Series(PYTHON, dtype=object)}),
    "pyarrow": lambda: _arrow(PYTHON, "s"),
    "pyarrow with a gap": lambda: _arrow(GAP, "us"),
    "polars": lambda: pl.DataFrame({"wait": PYTHON}),
    "polars with a gap": lambda: pl.DataFrame(
        {"wait": pl.Series(GAP, dtype=pl.Duration("ms"))}
    ),
    "numpy": lambda: np.array(DAYS, dtype="timedelta64[h]")[:, None] * 24,
}


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_durations_come_back_in_their_dtype(make):
    X = make()
    encoder = TabularEncoder().fit(X)
    (column,) = encoder.schema_
    assert (column.kind, column.unit, column.is_integer) == ("number", "days", True)
    assert (column.low, column.high) == (2, 10)
    plain = np.array(DAYS, dtype=float)
    plain = plain[1:] if column.has_gap else plain
    np.testing.assert_allclose(
        encoder.transform(X)[len(DAYS) - len(plain) :, 0],
        (plain - plain.mean()) / plain.std(),
    )
    again = pickle.loads(pickle.dumps(encoder))
    assert again.schema_ == encoder.schema_
    back = again.inverse_transform(again.transform(X))
    if isinstance(X, pd.DataFrame):
        assert_frame_equal(back, X)
    elif isinstance(X, np.ndarray):
        assert back.dtype == X.dtype
        assert_array_equal(back, X)
    else:
        assert back.equals(X) and back.schema == X.schema


@pytest.mark.parametrize(
    "values, unit, numbers",
    [
        (["1 days", "3 days"], "days", [1, 3]),
        (["1 days", "36 h"], "hours", [24, 36]),
        (["90 min", "15 min"], "minutes", [90, 15]),
        (["-30 s", "90 s"], "seconds", [-30, 90]),
        (["1.5 s", "2 s"], "milliseconds", [1500, 2000]),
        (["1 us", "1 days"], "microseconds", [1, 86_400_000_000]),
        (["1 ns", "1 days"], "nanoseconds", [1, 86_400_000_000_000]),
        (["0 days", "0 days"], "seconds", [0, 0]),
    ],
)
def test_the_unit_is_the_largest_that_all_are_multiples_of(values, unit, numbers):
    durations = pd.to_timedelta(values).to_numpy().astype("m8[ns]")
    assert _durations.unit_of(durations) == unit
    assert_array_equal(_durations.as_numbers(durations, unit), numbers)
    assert_array_equal(_durations.from_numbers(numbers, unit), durations)


def test_what_is_no_multiple_is_a_number_all_the_same():
    X = pd.DataFrame({"wait": pd.to_timedelta(DAYS, unit="D")})
    encoder = TabularEncoder().fit(X)
    more = pd.DataFrame({"wait": pd.to_timedelta(["36 h", None])})
    with pytest.warns(UserWarning, match="complete in fit: 'wait'"):
        scores = encoder.transform(more)[:, 0]
    assert scores[0] == pytest.approx((1.5 - np.mean(DAYS)) / np.std(DAYS))
    assert scores[1] == 0
    # And what a network makes of it is a number of days, within what was seen.
    found = encoder.inverse_transform([[0.123], [9.0]])["wait"]
    assert found.tolist() == [pd.Timedelta(days=6), pd.Timedelta(days=10)]


@pytest.mark.parametrize(
    "text, step, words",
    [
        ("3 days", 1, "3 days"),
        ("1 days 02:00:00", 1, "1 day 2 h"),
        ("1 days 02:30:05.25", 1, "1 day 2 h 30 min 5.25 s"),
        ("1 days 02:30:05.25", 60 * 10**9, "1 day 2 h 30 min"),
        ("0 days", 1, "0 s"),
        ("-90 s", 1, "-1 min 30 s"),
        ("250 ms", 1, "250 ms"),
        ("1.5 ms", 1, "1.5 ms"),
        ("1200 days", 1, "1,200 days"),
    ],
)
def test_words(text, step, words):
    assert _durations.text_of(pd.Timedelta(text), step) == words
    assert _durations.text_of(pd.Timedelta(text).to_pytimedelta(), step) == words


def test_longer_than_nanoseconds_can_count():
    X = np.array([[10**10], [2 * 10**10]], dtype="m8[s]")
    with pytest.raises(ValueError, match="'x0'.*number of days"):
        TabularEncoder().fit(X)


def test_durations_that_became_numbers_are_refused_and_the_other_way_round():
    durations = pd.DataFrame({"wait": pd.to_timedelta(DAYS, unit="D")})
    numbers = pd.DataFrame({"wait": np.array(DAYS, dtype=float)})
    with pytest.raises(ValueError, match="'wait' holds no durations.*to_timedelta"):
        TabularEncoder().fit(durations).transform(numbers)
    with pytest.raises(ValueError, match="'wait' holds durations.*total_seconds"):
        TabularEncoder().fit(numbers).transform(durations)


@pytest.mark.parametrize(
    "values, line",
    [
        ([time(1), time(2)], r"X\['hour'\] = \[time.hour for time in X\['t'\]\]"),
        (pd.period_range("2020", periods=2, freq="M").tolist(), r"X\['t'\]\.dt\.month"),
        ([time(1), None], r"time.hour"),
    ],
)
@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_times_and_periods_are_refused_with_what_to_write(values, line, container):
    if container is pl.DataFrame and isinstance(values[0], pd.Period):
        pytest.skip("polars has no periods")
    X = container({"t": values})
    if container is pd.DataFrame:
        X = X.astype(object)
    with pytest.raises(TypeError, match=rf"(?s)'t'.*{line}.*drop"):
        TabularEncoder().fit(X)


# Explanations


def _visits(n_rows=160):
    rng = np.random.default_rng(0)
    days = rng.integers(1, 30, n_rows)
    ward = rng.choice(["east", "west"], n_rows)
    y = np.where(
        days + 4 * (ward == "east") + rng.normal(0, 3, n_rows) > 16, "no", "ok"
    )
    return pd.DataFrame({"wait": pd.to_timedelta(days, unit="D"), "ward": ward}), y


def _in(container, X):
    waits = [wait.to_pytimedelta() for wait in X["wait"]]
    if container == "objects":
        return X.assign(wait=pd.Series(waits, dtype=object, index=X.index))
    if container == "polars":
        return pl.DataFrame({"wait": waits, "ward": X["ward"].tolist()})
    return X


@pytest.fixture(scope="module")
def visits():
    X, y = _visits()
    model = make_pipeline(TabularEncoder(), LogisticRegression())
    return X, y, NeighborExplainer(model).fit(X, y)


@pytest.mark.parametrize("container", ["pandas", "objects", "polars"])
def test_counterfactuals_are_durations(visits, container):
    X, _, explainer = visits
    rows = X[explainer.rejects(X)]
    explanation = explainer.explain(_in(container, rows))
    found = explanation.counterfactuals
    expected = explainer.explain(rows).counterfactuals
    assert list(found["wait"]) == list(expected["wait"])
    if container == "polars":
        assert found.schema == _in("polars", rows).schema
    else:
        assert list(found.dtypes) == list(_in(container, rows).dtypes)
    moved = expected["wait"] != rows["wait"]
    assert moved.any()
    assert (expected["wait"].dt.total_seconds() % 86_400 == 0).all()
    assert expected["wait"].between(X["wait"].min(), X["wait"].max()).all()


def test_durations_in_words_pages_and_pictures(visits, tmp_path):
    X, y, explainer = visits
    explanation = explainer.explain(X[explainer.rejects(X)])
    is_moved = explanation.counterfactuals["wait"] != explanation.X["wait"]
    row = explanation[is_moved.to_numpy()][:1]
    old, new = row.X["wait"].iloc[0].days, row.counterfactuals["wait"].iloc[0].days
    days = {n: f"{n} day{'' if n == 1 else 's'}" for n in (old, new)}
    assert f"if wait were {days[new]} instead of {days[old]}" in row.summary()
    changes = row.changes.set_index("feature").loc["wait"]
    assert changes["before"] == pd.Timedelta(days=old)
    ranks = changes[["percentile_before", "percentile_after"]].astype(float)
    assert np.sign(new - old) == np.sign(ranks.iloc[1] - ranks.iloc[0])
    facts = json.loads(json.dumps(row.to_dict()))
    assert facts["rows"][0]["changes"][0]["after"] == days[new]
    assert days[new] in row._repr_html_()
    row.to_html(tmp_path / "page.html")
    explanation.plot()
    assert (
        "wait (days)"
        in DependenceDisplay.from_explanation(
            explanation, feature="wait"
        ).ax_.get_xlabel()
    )
    drivers = explanation.drivers().set_index("feature")
    assert 1 <= abs(drivers.loc["wait", "median_change"]) <= 29
    groups = GroupExplainer(explainer, random_state=0).fit(X, y)
    assert any(re.search(r"wait were \d+ days", text) for text in groups.sentences_)


def test_small_changes_are_told_apart():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"wait": pd.to_timedelta(rng.normal(9, 2, 60), unit="D")})
    encoder = TabularEncoder().fit(X)
    (column,) = encoder.schema_
    assert column.unit in ("microseconds", "nanoseconds")
    # A hundredth of two days.
    step = _durations.step_of(column.scale, column.unit)
    assert step == _durations.UNITS["minutes"][0]
    assert _durations.text_of(X["wait"][0], step).endswith(" min")


@pytest.mark.parametrize(
    "bounds",
    [
        (timedelta(days=5), pd.Timedelta(days=20, hours=7)),
        (np.timedelta64(5, "D"), np.timedelta64(20 * 24, "h")),
        (None, timedelta(days=20)),
        (timedelta(days=5), np.inf),
        "increase",
        "decrease",
    ],
    ids=str,
)
@pytest.mark.parametrize("container", ["pandas", "objects", "polars"])
def test_ranges_of_durations(bounds, container, visits):
    X, y, _ = visits
    model = make_pipeline(TabularEncoder(), LogisticRegression())
    explainer = NeighborExplainer(model, feature_ranges={"wait": bounds})
    explainer.fit(X, y)
    rows = X[explainer.rejects(X)]
    found = explainer.explain(_in(container, rows)).counterfactuals
    found = pd.Series(list(found["wait"]), index=rows.index)
    assert (found != rows["wait"]).any()
    if isinstance(bounds, str):
        assert (
            (found >= rows["wait"]) if bounds == "increase" else found <= rows["wait"]
        ).all()
        return
    low, high = bounds
    assert low is None or (found >= pd.Timedelta(low)).all()
    if high is not np.inf:
        assert (found <= pd.Timedelta(high)).all()


@pytest.mark.parametrize(
    "name, bounds, message",
    [
        ("wait", (3, 5), "does not go with.*durations"),
        ("wait", (timedelta(hours=25), timedelta(hours=30)), "holds no value"),
        ("wait", (timedelta(days=5), timedelta(days=3)), "lower one first"),
        ("wait", (timedelta(days=5), 7), "must be a pair"),
        ("wait", (np.timedelta64("NaT"), None), "must be a pair"),
        ("n", (np.timedelta64(5, "D"), None), "does not go with.*numbers"),
        ("n", (timedelta(days=5), None), "does not go with.*numbers"),
    ],
)
def test_bad_ranges_are_refused_before_the_fit(name, bounds, message):
    X, y = _visits(40)
    explainer = CLUEExplainer(
        make_pipeline(TabularEncoder(), LogisticRegression()),
        VAEEncoder(2, (4,), max_iter=1),
        feature_ranges={name: bounds},
    )
    with pytest.raises(ValueError, match=message):
        explainer.fit(X.assign(n=np.arange(40.0)), y)


def test_one_row_whose_duration_is_missing():
    """An object column that holds nothing but None says nothing about its kind."""
    X, y = _visits(80)
    X = _in("objects", X)
    X.loc[::6, "wait"] = None
    model = make_pipeline(TabularEncoder(), LogisticRegression())
    explainer = NeighborExplainer(model, feature_ranges={"wait": "increase"})
    explainer.fit(X, y)
    for row in (X.iloc[[0]], X.iloc[[1]]):
        found = explainer.explain(row).counterfactuals
        assert found["wait"].isna().equals(row["wait"].isna())
