"""Properties that hold for whatever hypothesis, or a seed, comes up with."""

import drawn
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline

from sklearn_clue import (
    CLUEExplainer,
    Explanation,
    NeighborExplainer,
    TabularEncoder,
    Uncertainty,
)
from sklearn_clue.explainers._objectives import Penalty
from sklearn_clue.explainers._search import StoppingRule, evaluate, minimise_rows
from sklearn_clue.explanation import SearchPath
from tests.explainers.conftest import Toy

# The same examples in every run, and no clock: a busy machine is no failure.
quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

# --- The encoder ---

# pandas counts a lone surrogate as text, and nothing can write it down.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
INTEGERS = st.integers(-(2**62), 2**62)


@st.composite
def columns(draw, n_rows):
    """A column of any kind that the encoder takes, as a pandas array."""
    kind = draw(st.sampled_from(["float", "int", "Int64", "bool", "text", "category"]))
    values = {
        "float": FLOATS,
        "int": INTEGERS,
        "Int64": st.integers(-1000, 1000),
        "bool": st.booleans(),
        "text": TEXT,
        "category": st.sampled_from(["low", "", "hôch", "0"]),
    }[kind]
    values = draw(st.lists(values, min_size=n_rows, max_size=n_rows))
    if kind == "category":
        categories = draw(st.permutations(["low", "", "hôch", "0", "never"]))
        return pd.Categorical(values, categories, ordered=draw(st.booleans()))
    if kind == "text":
        return np.array(values, dtype=object)
    return pd.array(values, dtype="Int64") if kind == "Int64" else np.array(values)


@st.composite
def frames(draw):
    n_rows = draw(st.integers(1, 8))
    names = draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    index = draw(
        st.one_of(
            st.none(),
            st.lists(TEXT, min_size=n_rows, max_size=n_rows),
            st.lists(st.integers(-5, 5), min_size=n_rows, max_size=n_rows),
        )
    )
    series = {
        position: pd.Series(
            values := draw(columns(n_rows)), dtype=getattr(values, "dtype", None)
        )
        for position in range(len(names))
    }
    frame = pd.DataFrame(series)
    frame.columns = pd.Index(names, dtype=object)
    return frame if index is None else frame.set_axis(pd.Index(index, dtype=object))


@quick
@given(frames())
def test_encoder_round_trip(X):
    encoder = TabularEncoder().fit(X)
    x = encoder.set_output(transform="default").transform(X)
    assert x.shape == (len(X), encoder.schema_.n_encoded)
    assert np.isfinite(x).all() and np.abs(x).max() <= np.sqrt(len(X)) + 1e-6
    for block in encoder.schema_.blocks:
        np.testing.assert_array_equal(np.sort(x[:, block])[:, :-1], 0)
        np.testing.assert_array_equal(x[:, block].max(axis=1), 1)

    back = encoder.inverse_transform(pd.DataFrame(x, index=X.index))
    assert back.columns.equals(X.columns) and back.index.equals(X.index)
    assert list(back.dtypes) == list(X.dtypes)
    for column, (_, old), (_, new) in zip(
        encoder.schema_, X.items(), back.items(), strict=True
    ):
        if column.kind == "category":
            assert old.tolist() == new.tolist()
            continue
        # The range of the column is what float64 digits are relative to.
        old, new = (np.array(part.tolist(), np.longdouble) for part in (old, new))
        span = max(np.ptp(old), np.abs(old).max())
        assert (np.abs(new - old) <= 8 * np.finfo(float).eps * span).all()
        if column.is_integer:
            assert ((new >= column.low) & (new <= column.high)).all()


@quick
@given(frames(), st.data())
def test_encoding_rows_is_encoding_each_of_them(X, data):
    encoder = TabularEncoder().fit(X)
    rows = data.draw(
        st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=len(X) + 2)
    )
    np.testing.assert_array_equal(
        encoder.transform(X.iloc[rows]), encoder.transform(X)[rows]
    )


# --- Explanations ---


def explanation_of(n_rows, n_candidates):
    """An explanation whose every figure tells its row; `n_candidates` per row."""
    row = np.arange(n_rows, dtype=float)
    X = pd.DataFrame(
        {"number": row, "word": [f"w{i % 3}" for i in range(n_rows)]},
        index=[f"r{i}" for i in range(n_rows)],
    )
    encoder = TabularEncoder().fit(X)
    counterfactuals = X.assign(number=row + 0.5)
    ranks = np.concatenate([np.arange(n) for n in n_candidates])
    who = np.repeat(np.arange(n_rows), n_candidates)
    parts = Uncertainty(3 * row, row, 2 * row)
    return Explanation(
        X=X,
        counterfactuals=counterfactuals,
        candidates=[
            counterfactuals.iloc[[position] * n]
            for position, n in enumerate(n_candidates)
        ],
        candidate_details=pd.DataFrame(
            {
                "row": who,
                "rank": ranks,
                "objective": who + ranks / 10,
                "total": 3.0 * who,
                "aleatoric": 1.0 * who,
                "epistemic": 2.0 * who,
                "distance": 1.0 * who,
                "count": 1,
            }
        ),
        uncertainty_before=parts,
        uncertainty_after=parts,
        prediction_before=np.array([f"p{i}" for i in range(n_rows)]),
        prediction_after=np.array([f"q{i}" for i in range(n_rows)]),
        distance=row,
        objective=row,
        n_iter=np.arange(n_rows),
        converged=np.arange(n_rows) % 2 == 0,
        path=SearchPath(np.tile(row[:, None, None], (1, 2, 3)), row[:, None]),
        encoded=encoder.transform(X),
        encoded_counterfactuals=encoder.transform(counterfactuals),
        schema=encoder.schema_,
        is_classification=True,
        threshold=0.5,
    )


@st.composite
def explanations(draw):
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    return explanation_of(len(counts), counts)


def keys(n_rows):
    """All ways to choose rows."""
    bounds = st.one_of(st.none(), st.integers(-n_rows - 2, n_rows + 2))
    steps = st.sampled_from([None, 1, 2, -1, -3])
    return st.one_of(
        st.builds(slice, bounds, bounds, steps),
        st.lists(st.booleans(), min_size=n_rows, max_size=n_rows),
        st.lists(st.integers(-n_rows, n_rows - 1), max_size=n_rows + 2).map(
            lambda rows: np.array(rows, dtype=int)
        ),
        st.integers(-n_rows, n_rows - 1),
    )


def facts(explanation):
    return explanation.to_dict()["rows"]


@quick
@given(explanations(), st.data())
def test_slices_hold_the_facts_of_their_rows(explanation, data):
    key = data.draw(keys(len(explanation)))
    where = np.asarray(key) if isinstance(key, list) else key
    positions = np.atleast_1d(np.arange(len(explanation))[where]).tolist()
    chosen = explanation[key]
    assert len(chosen) == len(positions)
    everything = facts(explanation)
    assert facts(chosen) == [everything[position] for position in positions]
    assert chosen.path.latents.shape == (len(positions), 2, 3)
    np.testing.assert_array_equal(chosen.encoded, explanation.encoded[positions])
    # And so do the slices of a slice.
    again = data.draw(keys(len(chosen))) if len(chosen) else slice(None)
    where = np.asarray(again) if isinstance(again, list) else again
    rows = np.atleast_1d(np.array(positions, dtype=int)[where])
    assert facts(chosen[again]) == [everything[row] for row in rows]


@quick
@given(explanations())
def test_iterating_is_slicing(explanation):
    rows = list(explanation)
    assert [facts(row)[0] for row in rows] == facts(explanation)
    lines = pd.concat([row.changes for row in rows], ignore_index=True)
    pd.testing.assert_frame_equal(lines, explanation.changes)
    pd.testing.assert_frame_equal(
        pd.concat([row.to_frame() for row in rows]), explanation.to_frame()
    )


# --- Explanations of drawn tables, pipelines, models and constraints: see drawn.py ---


def blocks(start, stop, size, marks=()):
    return [
        pytest.param(range(first, first + size), marks=marks, id=f"from {first}")
        for first in range(start, stop, size)
    ]


def hold(seeds, **options):
    """Check cases one by one; what fails says how to repeat it."""
    for seed in seeds:
        case = drawn.draw(seed, **options)
        try:
            drawn.check(case)
        except Exception as error:
            raise AssertionError(
                f"{type(error).__name__}: {error}\n{case}\nRepeat it with "
                f"drawn.check(drawn.draw({seed}, **{options}))."
            ) from error


@pytest.mark.parametrize(
    "seeds", blocks(0, 140, 10) + blocks(200, 10_000, 100, pytest.mark.slow)
)
def test_explanations_keep_their_promises(seeds):
    hold(seeds)


@pytest.mark.parametrize(
    "seeds", blocks(0, 20, 10) + blocks(100, 1000, 100, pytest.mark.slow)
)
def test_explanations_behind_steps_that_lose_something(seeds):
    hold(seeds, one_way=True)


def test_drawn_cases_differ_and_can_be_repeated():
    """All containers, kinds of explainers, models and constraints come up."""
    cases = [drawn.draw(seed) for seed in range(140)]
    assert {case.container for case in cases} == {"numpy", "pandas", "polars"}
    assert len({type(case.explainer) for case in cases}) == 3
    goals = [getattr(case.explainer, "distance_weight", 0) for case in cases]
    assert {goal is None for goal in goals} == {True, False}
    models = [case.explainer.estimator for case in cases]
    assert len({type(getattr(m, "steps", [[m]])[-1][-1]) for m in models}) >= 6
    dtypes = {str(dtype) for case in cases for dtype in case.frame.dtypes}
    assert len(dtypes) >= 15
    has_gaps = [case.frame.isna().to_numpy().any() for case in cases]
    has_durations = [case.frame.apply(drawn.is_duration).any() for case in cases]
    assert sum(has_gaps) >= 25 and sum(has_durations) >= 15
    assert any(gaps and case.steps for gaps, case in zip(has_gaps, cases, strict=True))
    constraints = [tuple(sorted(case.constraints)) for case in cases]
    assert len(set(constraints)) == 4
    again = drawn.draw(17)
    assert str(again) == str(cases[17])
    pd.testing.assert_frame_equal(again.frame, cases[17].frame)


@pytest.mark.parametrize(
    "model, part",
    [
        (LogisticRegression(), "epistemic"),
        (
            [
                MLPRegressor(hidden_layer_sizes=(3,), max_iter=2, random_state=i)
                for i in range(2)
            ],
            "aleatoric",
        ),
    ],
    ids=["one model", "means"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_part_that_is_always_zero(model, part):
    """A part that a model does not have is nothing to explain, and no error."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    explainer = CLUEExplainer(model, drawn.PCAGenerator(), uncertainty=part, max_iter=3)
    y = X[:, 0] if isinstance(model, list) else X[:, 0] > 0
    explanation = explainer.fit(X, y).explain(X[:3])
    assert not getattr(explanation.uncertainty_after, part).any()


def test_rows_outside_of_their_ranges_are_judged_as_they_are():
    """A model that is asked about rows of the table gets the user's own."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=120), "b": rng.normal(size=120)})
    model = RandomForestClassifier(10, random_state=0)
    explainer = NeighborExplainer(model, feature_ranges={"a": (5.0, 6.0)})
    explainer.fit(X, X["a"] + X["b"] > 0)
    explanation = explainer.explain(X[:20])
    before, after = (
        explainer.predict_uncertainty(rows)
        for rows in (X[:20], explanation.counterfactuals)
    )
    np.testing.assert_allclose(explanation.uncertainty_before, before)
    np.testing.assert_allclose(explanation.uncertainty_after, after)
    assert explanation.counterfactuals["a"].between(5, 6).all()


class RoundsByPlace(RegressorMixin, BaseEstimator):
    """Equally unsure about all rows, up to rounding by their places in a batch."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X, return_std=False):
        std = 3.0 * (1 + 2.0**-52 * (np.arange(len(X)) % 3))
        return (np.zeros(len(X)), std) if return_std else np.zeros(len(X))


def test_rounding_does_not_decide_who_is_rejected():
    """As in a table with one huge column, which drowns all others (seed 8415)."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    explainer = NeighborExplainer(RoundsByPlace())
    with pytest.warns(UserWarning, match="equally unsure about all") as caught:
        explainer.fit(X, X[:, 0])
    assert caught[0].filename == __file__
    assert not explainer.rejects(X).any()
    explanation = explainer.explain(X)
    assert explanation.is_sure.all() and not explanation.n_changed.any()


def test_a_table_without_numbers_is_explained():
    """By a model without slopes, whose numbers would be moved in the end."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.choice(list("uvw"), 120) for name in "ab"})
    y = (X["a"] == "u") ^ (rng.random(120) < 0.1)
    model = make_pipeline(TabularEncoder(), RandomForestClassifier(5, random_state=0))
    explainer = CLUEExplainer(model, drawn.PCAGenerator(), random_state=0).fit(X, y)
    explanation = explainer.explain(X[:20])
    assert set(explanation.counterfactuals.to_numpy().ravel()) <= set("uvw")


# --- The search ---


def _search(z, targets, weight, max_iter):
    """Minimise bumps of different heights and places; rows know only themselves."""

    def decode(z, rows):
        return torch.stack([z.sum(1), z[:, 0] - z[:, 1].square()], 1)

    def costly(x, rows):
        return (1 + (x - targets[rows]).square().sum(1)).log() + x[:, 0].sin()

    rows = torch.arange(len(z))
    problem = Toy(costly, decode(z, rows) + 0.3, decode)
    objective = Penalty(problem, weight)
    return minimise_rows(
        problem,
        objective,
        [evaluate(problem, objective, z, rows)],
        learning_rate=0.2,
        rule=StoppingRule(max_iter=max_iter),
    )


@quick
@given(
    seed=st.integers(0, 2**16),
    n_rows=st.integers(1, 9),
    weight=st.sampled_from([0.0, 0.1, 1.0, 50.0]),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    max_iter=st.integers(1, 12),
    data=st.data(),
)
def test_rows_are_searched_independently(seed, n_rows, weight, scale, max_iter, data):
    rng = np.random.default_rng(seed)
    z = torch.as_tensor(scale * rng.normal(size=(n_rows, 2)))
    targets = torch.as_tensor(rng.normal(size=(n_rows, 2)))
    together = _search(z, targets, weight, max_iter)
    assert together.value.isfinite().all()
    # Never worse than the start.
    assert (together.value <= together.path_value[:, 0]).all()
    assert (together.n_iter <= max_iter).all()

    rows = data.draw(st.lists(st.integers(0, n_rows - 1), min_size=1, max_size=4))
    some = _search(z[rows], targets[rows], weight, max_iter)
    torch.testing.assert_close(some.best.z, together.best.z[rows], rtol=0, atol=1e-12)
    torch.testing.assert_close(some.value, together.value[rows], rtol=1e-12, atol=0)
    assert torch.equal(some.n_iter, together.n_iter[rows])
    assert torch.equal(some.converged, together.converged[rows])


def test_a_row_without_a_number_stays_alone():
    """A row whose objective is NaN everywhere spoils no other."""
    z = torch.tensor([[1.0, 0.5], [np.nan, np.nan], [-1.0, 2.0]], dtype=torch.float64)
    targets = torch.zeros(3, 2, dtype=torch.float64)
    together = _search(z, targets, 0.1, 10)
    alone = _search(z[[0, 2]], targets[[0, 2]], 0.1, 10)
    assert together.value[1].isnan()
    torch.testing.assert_close(alone.value, together.value[[0, 2]])
