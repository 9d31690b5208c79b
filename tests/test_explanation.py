"""The result of an explainer: a sequence of rows, and the facts about them."""

import base64
import html
import json
import pickle
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from browser import data_of

from sklearn_clue import Explanation, TabularEncoder, Uncertainty, _words
from sklearn_clue.explanation import SearchPath, knee_distances, knee_index
from sklearn_clue.schema import ColumnSchema, FeatureSchema

HOSTILE = "<script>alert('né')</script>"


def parts(total, share=0.5):
    total = np.asarray(total, dtype=float)
    return Uncertainty(total, share * total, (1 - share) * total)


def make_explanation(X, counterfactuals, train=None, encoder=None, **kwargs):
    """An explanation with made-up figures, around a real schema."""
    encoder = TabularEncoder() if encoder is None else encoder
    encoder.fit(X if train is None else train)
    n_rows = len(X)
    kwargs = {
        "uncertainty_before": parts(np.linspace(0.4, 0.6, n_rows)),
        "uncertainty_after": parts(np.linspace(0.1, 0.2, n_rows)),
        "prediction_before": np.array(["no", "yes"])[np.arange(n_rows) % 2],
        "prediction_after": np.full(n_rows, "yes"),
        "distance": np.arange(n_rows, dtype=float),
        "schema": encoder.schema_,
        "is_classification": True,
    } | kwargs
    return Explanation(X=X, counterfactuals=counterfactuals, **kwargs)


@pytest.fixture
def explanation():
    """Four rows of mixed columns, with everything an explainer can tell."""
    train = pd.DataFrame(
        {
            "priors": range(101),
            HOSTILE: ["felony", "misdemeanour <b>"] * 50 + ["felony"],
            "pH": np.linspace(3.0, 4.0, 101),
        }
    )
    index = ["a", "b", "c", "d"]
    X = train.iloc[[90, 20, 50, 50]].set_axis(index)
    counterfactuals = X.copy()
    counterfactuals["priors"] = [20, 30, 50, 50]
    counterfactuals[HOSTILE] = ["felony", "misdemeanour <b>", "felony", "felony"]
    counterfactuals["pH"] = [3.9, 3.45, 3.5, 3.64]
    candidates = [counterfactuals.iloc[[i] * (1 + i % 2)] for i in range(4)]
    details = pd.DataFrame(
        {
            "row": [0, 1, 1, 2, 3, 3],
            "rank": [0, 0, 1, 0, 0, 1],
            "objective": [0.1, 0.2, 0.3, 0.4, 0.5, np.nan],
            **parts(np.linspace(0.1, 0.2, 6))._asdict(),
            "distance": np.arange(6.0),
            "count": [1, 2, 1, 1, 3, 1],
        }
    )
    return make_explanation(
        X,
        counterfactuals,
        train,
        candidates=candidates,
        candidate_details=details,
        uncertainty_reconstructed=parts([0.35, 0.2, 0.5, 0.6]),
        objective=np.arange(4.0),
        n_iter=np.array([5, 6, 7, 35]),
        converged=np.array([True, True, True, False]),
        path=SearchPath(np.zeros((4, 3, 2)), np.zeros((4, 3))),
        encoded=np.zeros((4, 4)),
        encoded_counterfactuals=np.ones((4, 4)),
        distance_weight=2.0,
        threshold=0.45,
        note="units & <i>",
    )


# --- A sequence ---


def test_length_and_iteration(explanation):
    rows = list(explanation)
    assert len(explanation) == len(rows) == 4
    assert [row.X.index.tolist() for row in rows] == [["a"], ["b"], ["c"], ["d"]]
    assert all(isinstance(row, Explanation) and len(row) == 1 for row in rows)


@pytest.mark.parametrize(
    "key, positions",
    [
        (-1, [3]),
        (np.int64(1), [1]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([True, False, False, True], [0, 3]),
        (pd.Series([False, True, False, True], index=list("wxyz")), [1, 3]),
        (np.array([3, 3, 0]), [3, 3, 0]),
        ([], []),
    ],
)
def test_everything_is_sliced_alike(explanation, key, positions):
    chosen = explanation[key]
    assert len(chosen) == len(positions)
    pd.testing.assert_frame_equal(chosen.X, explanation.X.iloc[positions])
    pd.testing.assert_frame_equal(
        chosen.counterfactuals, explanation.counterfactuals.iloc[positions]
    )
    for name in ("objective", "n_iter", "converged", "distance", "encoded"):
        np.testing.assert_array_equal(
            getattr(chosen, name), getattr(explanation, name)[positions]
        )
    for name in ("before", "after", "reconstructed"):
        name = f"uncertainty_{name}"
        for part, whole in zip(
            getattr(chosen, name), getattr(explanation, name), strict=True
        ):
            np.testing.assert_array_equal(part, whole[positions])
    assert chosen.path.latents.shape == (len(positions), 3, 2)
    assert chosen.threshold == explanation.threshold

    old, new = explanation.candidate_details, chosen.candidate_details
    for row, position in enumerate(positions):
        pd.testing.assert_frame_equal(
            new[new["row"] == row].drop(columns="row").reset_index(drop=True),
            old[old["row"] == position].drop(columns="row").reset_index(drop=True),
        )
        assert len(chosen.candidates[row]) == (new["row"] == row).sum()
    assert len(new) == sum(len(candidates) for candidates in chosen.candidates)


def test_index_out_of_range(explanation):
    with pytest.raises(IndexError, match="row 4 of an explanation of 4 rows"):
        explanation[4]
    with pytest.raises(TypeError, match="a boolean mask or an array of positions"):
        explanation[["a"]]
    with pytest.raises(IndexError):
        explanation[[True, False]]


def test_empty_explanation_says_so(explanation):
    empty = explanation[:0]
    assert repr(empty) == "<Explanation of 0 rows by CLUE>"
    assert empty.summary() == "" and empty.to_dict()["rows"] == []
    assert len(empty.changes) == len(empty.to_frame()) == 0


def test_lengths_must_agree(explanation):
    with pytest.raises(ValueError, match="distance has 2 rows, but X has 4"):
        make_explanation(explanation.X, explanation.X, distance=np.zeros(2))
    with pytest.raises(ValueError, match="X has 3 columns, but the schema describes 2"):
        schema = FeatureSchema(explanation.schema.columns[:2])
        make_explanation(explanation.X, explanation.X, schema=schema)
    with pytest.raises(ValueError, match="give both or none"):
        make_explanation(explanation.X, explanation.X, candidates=[])


def test_counterfactuals_are_the_only_candidates_by_default(explanation):
    plain = make_explanation(explanation.X, explanation.counterfactuals)
    assert plain.candidate_details["rank"].tolist() == [0] * 4
    pd.testing.assert_frame_equal(plain.candidates[2], plain.counterfactuals.iloc[[2]])


def test_pickles(explanation):
    copy = pickle.loads(pickle.dumps(explanation))
    assert copy.summary() == explanation.summary()


# --- Changes ---


def test_changes_list_all_features(explanation):
    changes = explanation.changes
    assert changes.columns.tolist() == [
        "row",
        "feature",
        "before",
        "after",
        "percentile_before",
        "percentile_after",
        "highlighted",
    ]
    assert changes["row"].tolist() == [label for label in "abcd" for _ in range(3)]
    assert changes["feature"].tolist() == ["priors", HOSTILE, "pH"] * 4
    highlighted = changes.query("highlighted")
    assert list(zip(highlighted["row"], highlighted["feature"], strict=True)) == [
        ("a", "priors"),
        ("b", HOSTILE),
        ("b", "pH"),
    ]
    first = changes.iloc[0]
    assert (first["before"], first["after"]) == (90, 20)
    assert first["percentile_before"] == pytest.approx(90, abs=0.6)
    assert first["percentile_after"] == pytest.approx(20, abs=0.6)
    assert changes.loc[changes["feature"] == HOSTILE, "percentile_after"].isna().all()


def percentile_of(value, train):
    X = pd.DataFrame({"x": train})
    row = pd.DataFrame({"x": [value]})
    return make_explanation(row, row, X).changes["percentile_before"].item()


@pytest.mark.parametrize(
    "value, expected",
    [(0, 30), (1, 70), (2, 90), (-1, 0), (3, 100), (1.5, 80)],
)
def test_percentiles_are_mid_ranks(value, expected):
    train = [0.0] * 60 + [1.0] * 20 + [2.0] * 20
    assert percentile_of(float(value), train) == pytest.approx(expected, abs=0.5)


def test_percentile_survives_rounding_at_the_ends():
    train = [0.1] * 60 + [0.7] * 40
    for value, expected in ((0.1, 30), (0.7, 80)):
        for rounding in (-1e-8, 0, 1e-8):
            assert percentile_of(value + rounding, train) == pytest.approx(expected)


def test_percentile_of_a_constant_column():
    assert percentile_of(5.0, [5.0] * 4) == 50
    assert percentile_of(6.0, [5.0] * 4) == 100


def test_percentiles_with_inner_ties_take_their_middle():
    grid = np.linspace(0, 100, 101)
    column = ColumnSchema(
        name="x",
        kind="number",
        span=(0, 1),
        dtype=np.dtype(float),
        percentiles=tuple(np.clip(grid, 0, 30) + np.clip(grid - 70, 0, None)),
    )
    X = np.array([[30.0]])
    explanation = make_explanation(X, X, schema=FeatureSchema((column,)))
    assert explanation.changes["percentile_before"].item() == pytest.approx(50)


def test_missing_values_are_never_highlighted():
    train = pd.DataFrame({"n": range(100), "c": ["u", "v"] * 50}, dtype=object)
    train["n"] = train["n"].astype(float)
    X = pd.DataFrame({"n": [np.nan, 90.0], "c": pd.Series([None, "u"], dtype=object)})
    filled = pd.DataFrame({"n": [50.0, 10.0], "c": ["v", "u"]})
    explanation = make_explanation(X, filled, train)
    assert explanation.changes["highlighted"].tolist() == [False, False, True, False]
    assert np.isnan(explanation.changes["percentile_before"][0])
    json.dumps(explanation.to_dict(), allow_nan=False)
    assert "90 → 10" in explanation.summary()


def test_nullable_columns():
    X = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "b": pd.array([True, None], dtype="boolean"),
        }
    )
    full = pd.DataFrame(
        {
            "n": pd.array([1, 2], dtype="Int64"),
            "b": pd.array([False, True], dtype="boolean"),
        }
    )
    explanation = make_explanation(X, full, full)
    assert explanation.changes["highlighted"].tolist() == [False, True, False, False]
    assert explanation.to_dict()["rows"][1]["changes"][0]["before"] is None
    assert explanation.to_frame()["original"]["n"].dtype == "Int64"


# --- Frames and facts ---


def test_to_frame_puts_both_side_by_side(explanation):
    frame = explanation.to_frame()
    pd.testing.assert_frame_equal(
        frame["original"], explanation.X, check_column_type=False
    )
    pd.testing.assert_frame_equal(
        frame["counterfactual"], explanation.counterfactuals, check_column_type=False
    )
    assert frame["prediction"].columns.tolist() == ["before", "after"]
    assert frame["uncertainty"].shape[1] == 9
    np.testing.assert_array_equal(
        frame["uncertainty", "epistemic_after"], explanation.uncertainty_after.epistemic
    )
    assert frame["search"].columns.tolist() == [
        "distance",
        "objective",
        "n_iter",
        "converged",
    ]


def test_labels_of_any_kind():
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])
    X = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=index, columns=[("a", 0), 7])
    explanation = make_explanation(X, X)
    assert explanation.changes["row"].tolist() == [("x", 1)] * 2 + [("y", 2)] * 2
    frame = explanation.to_frame()
    assert frame.index.equals(index)
    assert frame.columns.tolist()[:2] == [("original", ("a", 0)), ("original", 7)]
    json.dumps(explanation.to_dict(), allow_nan=False)


def test_to_dict_is_json(explanation):
    facts = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert facts == explanation.to_dict()
    assert facts["unit"] == "nats" and facts["threshold"] == 0.45
    assert [feature["decimals"] for feature in facts["features"]] == [0, None, 2]
    row = facts["rows"][0]
    assert row["row"] == "a"
    assert row["changes"][0] == {
        "feature": "priors",
        "before": 90,
        "after": 20,
        "percentile_before": pytest.approx(90, abs=0.6),
        "percentile_after": pytest.approx(20, abs=0.6),
        "highlighted": True,
    }
    assert row["uncertainty"]["before"]["total"] == pytest.approx(0.4)
    assert row["uncertainty_explained"] == pytest.approx(0.3)
    assert row["prediction"] == {"before": "no", "after": "yes"}
    last = facts["rows"][3]["candidates"]
    assert [candidate["rank"] for candidate in last] == [0, 1]
    assert last[1]["objective"] is None
    assert last[1]["values"] == [50, "felony", 3.64]


def test_polars(explanation):
    pl = pytest.importorskip("polars")
    tables = [
        pl.DataFrame({"n": [1, 2], "c": ["u", "v"]}),
        pl.DataFrame({"n": [2, 2], "c": ["v", "v"]}),
    ]
    explanation = make_explanation(*tables)
    assert isinstance(explanation[1].X, pl.DataFrame)
    assert explanation[1].X.rows() == [(2, "v")]
    assert isinstance(explanation.candidates[0], pl.DataFrame)
    assert explanation.changes["row"].tolist() == [0, 0, 1, 1]
    assert explanation.to_frame()["counterfactual"]["c"].tolist() == ["v", "v"]
    assert "c u → v" in explanation.summary()
    json.dumps(explanation.to_dict(), allow_nan=False)


def test_arrays():
    X = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    explanation = make_explanation(X, X + 1)
    assert explanation[[1]].X.tolist() == [[3.0, 4.0]]
    assert explanation.changes["feature"].tolist() == ["x0", "x1"] * 2
    assert explanation.to_frame()["original"].to_numpy().tolist() == X.tolist()
    json.dumps(explanation.to_dict(), allow_nan=False)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_regression(n_outputs):
    X = np.arange(6.0).reshape(3, 2)
    shape = 3 if n_outputs is None else (3, n_outputs)
    explanation = make_explanation(
        X,
        X[::-1],
        is_classification=False,
        prediction_before=np.full(shape, 5.25),
        prediction_after=np.full(shape, 5.25),
    )
    means = "5.25" if n_outputs is None else "(5.25, 5.25)"
    assert f"prediction {means} → {means}" in explanation.summary()
    assert "standard deviation 0.40 → 0.10;" in explanation.summary()
    assert explanation.to_dict()["unit"] is None
    width = 1 if n_outputs is None else n_outputs
    assert explanation.to_frame()["prediction"].shape == (3, 2 * width)


def image_explanation(shape=(4, 4), n_rows=2):
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, int(np.prod(shape))))
    counterfactuals = X.copy()
    counterfactuals[0, :3] = 1 - X[0, :3].round()
    columns = tuple(
        ColumnSchema(
            name=f"x{j}", kind="number", span=(j, j + 1), dtype=np.dtype(float)
        )
        for j in range(X.shape[1])
    )
    return make_explanation(
        X, counterfactuals, schema=FeatureSchema(columns), image_shape=shape
    )


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 4), (3, 2, 5)])
def test_images(shape):
    explanation = image_explanation(shape)
    facts = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    pixels = np.array(facts["rows"][0]["pixels"]["after"])
    np.testing.assert_array_equal(pixels, explanation.counterfactuals[0].reshape(shape))
    assert "changes" not in facts["rows"][0]
    assert not explanation.changes["highlighted"].any()
    first, second = explanation.summary().splitlines()
    assert first.startswith(f"row 0: 3 of {np.prod(shape[-2:])} pixels change clearly;")
    assert second.startswith("row 1: nothing changes")


# --- Words ---


def test_summary(explanation):
    first, second, third, fourth = explanation.summary().splitlines()
    assert first == (
        "a: priors 90 → 20; entropy 0.40 → 0.10 nats; prediction no → yes."
    )
    assert second == (
        f"b: {HOSTILE} felony → misdemeanour <b> and pH 3.20 → 3.45; entropy 0.47 → "
        "0.13 nats, below the threshold of 0.45; plain auto-encoding alone leads to "
        "0.20, most of the way; prediction unchanged (yes)."
    )
    assert third.startswith("c: nothing changes, no surer row was found nearby;")
    assert fourth.startswith(
        "d: no feature moves by 15 percentile points or more (most: pH 3.50 → 3.64, "
        "14 points);"
    )
    assert fourth.endswith("; the search had not settled after 35 steps.")


def test_summary_of_a_row_that_is_sure(explanation):
    row = make_explanation(explanation.X, explanation.X, threshold=0.9)[0]
    assert row.summary().startswith("a: nothing needs to change, the model does not")


def test_summary_says_when_auto_encoding_did_it_all(explanation):
    explanation = replace(explanation, uncertainty_reconstructed=parts([0.1] * 4))
    assert "alone leads to 0.10, all of the way;" in explanation.summary()


def test_summary_says_when_the_model_is_less_sure(explanation):
    explanation = replace(explanation, uncertainty_after=parts([0.8] * 4))
    assert "0.80 nats; the model is less sure than before; " in explanation.summary()


def test_summary_does_not_round_up_to_what_it_denies(explanation):
    rows = explanation.counterfactuals.copy()
    rows.loc["d", "pH"] = 3.648
    summary = replace(explanation, counterfactuals=rows).summary()
    assert "(most: pH 3.50 → 3.65, 14 points)" in summary


def test_summary_of_many_changes():
    X = np.vstack([np.arange(9.0), np.arange(9.0) + 50])
    explanation = make_explanation(X, X[::-1])
    assert "x5 5 → 55 and 3 more; entropy" in explanation.summary()


@pytest.mark.parametrize(
    "content, decimals, text",
    [
        (None, 2, "missing"),
        (True, None, "True"),
        (3, 0, "3"),
        (3.14159, 2, "3.14"),
        (-0.001, 2, "0.00"),
        (2019.0, None, "2019"),  # a category of floats
        (0.125, None, "0.125"),
        (1e20, 0, "1e+20"),
    ],
)
def test_values_are_written_in_the_digits_that_matter(content, decimals, text):
    assert _words.value(content, decimals) == text


def test_figures_are_written_in_the_digits_that_matter():
    numbers = (0.0, 0.614, 0.00312, 12345.6, 1.5e9, None, -0.25)
    assert [_words.figure(number) for number in numbers] == [
        "0.00",
        "0.61",
        "0.00312",
        "12,346",
        "1.5e+09",
        "–",
        "-0.25",
    ]
    assert _words.prediction([5.25, 23456.7]) == "(5.25, 23,457)"


def test_unknown_uncertainty_breaks_nothing(explanation, tmp_path):
    explanation = replace(
        explanation,
        uncertainty_before=parts(np.full(4, np.nan)),
        uncertainty_reconstructed=None,
    )
    assert "entropy – → 0.10 nats; prediction" in explanation.summary()
    explanation.to_html(tmp_path / "page.html")
    explanation._repr_html_()


def test_repr_is_short(explanation):
    assert repr(explanation) == (
        "<Explanation of 4 rows by CLUE: mean entropy 0.50 → 0.15 nats>"
    )
    assert repr(explanation[0]) == (
        "<Explanation of 1 row by CLUE: entropy 0.40 → 0.10 nats>"
    )


# --- Knee ---


def test_knee_of_known_curves():
    cost = np.linspace(0, 1, 101)
    # On a quarter circle around the ideal point all points are equally far, ...
    np.testing.assert_allclose(
        knee_distances(1 - np.sqrt(1 - cost**2), cost), np.sqrt(0.5)
    )
    # ... for gain = sqrt(cost), (1 - sqrt(c))² + c² is least where 2c + 1 = c^(-1/2).
    assert cost[knee_index(np.sqrt(cost), cost)] == pytest.approx(0.35, abs=0.011)
    # Units do not matter.
    assert knee_index(9 * np.sqrt(cost), 7 * cost) == knee_index(np.sqrt(cost), cost)


def test_knee_at_given_maxima():
    distances = knee_distances([0.5, 1.0], [0.0, 2.0], max_gain=2.0, max_cost=4.0)
    np.testing.assert_allclose(distances, np.hypot([0.75, 0.5], [0, 0.5]) / 2**0.5)
    assert knee_index([0.0, 0.0], [0.0, 0.0]) == 0
    assert knee_index([np.nan, 1.0], [1.0, 1.0]) == 1


# --- HTML ---


class Cells(HTMLParser):
    """Collects the text of the cells of a table, line by line, and all tags."""

    def __init__(self, page):
        super().__init__()
        self.lines, self.tags, self.is_open = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.is_open = True
            self.lines[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.is_open = False

    def handle_data(self, data):
        if self.is_open:
            self.lines[-1][-1] += data


def test_notebook_table_is_side_by_side(explanation):
    page = explanation._repr_html_()
    lines = Cells(page).lines
    assert lines[0] == ["", "a", "b", "c", "d"]
    assert lines[1] == ["feature"] + ["original", "counterfactual"] * 4
    assert lines[2][:5] == ["priors", "90", "↓\xa020", "20", "30"]
    assert lines[3][:5] == [
        HOSTILE,
        "felony",
        "felony",
        "felony",
        "→\xa0misdemeanour <b>",
    ]
    assert lines[4][3:5] == ["3.20", "↑\xa03.45"]
    assert lines[5][:3] == ["entropy (nats)", " 0.40", " 0.10"]
    assert lines[6][:3] == ["after plain auto-encoding", "", " 0.35"]
    assert lines[7][:3] == ["prediction", "no", "yes"]
    # Marks do not rest on colour: bold, in a frame.
    assert page.count("<b style") == 3 + 1  # and one in the legend
    assert "units &amp; &lt;i&gt;" in page


def test_everything_from_the_data_is_escaped(explanation, tmp_path):
    for page in (
        explanation._repr_html_(),
        explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8"),
    ):
        assert "<script>alert" not in page and "<b>" not in page and "<i>" not in page
        assert "&lt;script&gt;alert(&#x27;né&#x27;)&lt;/script&gt;" in page
    index = pd.Index(["<img src=x onerror=alert(1)>"])
    X = pd.DataFrame({"x": [1.0]}, index=index)
    hostile = make_explanation(
        X, X, method="<u>", note="<u>", prediction_before=np.array(['"><u>'])
    )
    assert "<u>" not in hostile._repr_html_() + hostile.to_html(
        tmp_path / "page.html"
    ).read_text(encoding="utf-8")
    assert "<img" not in hostile._repr_html_()


def test_notebook_table_is_limited():
    X = np.arange(40.0).reshape(20, 2)
    explanation = make_explanation(X, X)
    page = explanation._repr_html_()
    assert "surer of 20 rows" in page and "The first 5 are shown" in page
    assert len(Cells(page).lines[0]) == 6
    assert "are shown" not in explanation[:5]._repr_html_()


def test_long_values_are_cut():
    X = pd.DataFrame({"text": ["<" * 100, "b"]})
    page = make_explanation(X, X[::-1])._repr_html_()
    assert Cells(page).lines[2][1] == "<" * 59 + "…"
    assert f'title="{"&lt;" * 100}"' in page


def test_bars_show_the_split():
    X = np.array([[1.0], [2.0]])
    kwargs = {
        "uncertainty_before": Uncertainty(*np.array([[5.0, 5.0], [4.0, 0], [3.0, 5]])),
        "uncertainty_after": Uncertainty(*np.array([[2.5, 0.0], [1.5, 0], [2.0, 0]])),
    }
    page = make_explanation(X, X, is_classification=False, **kwargs)._repr_html_()
    assert 'aria-label="aleatoric 4.00, epistemic 3.00"' in page
    assert "width:6.00em" in page and "width:3.00em" in page
    assert "width:64.0%" in page and "width:36.0%" in page  # 16 and 9 of 25
    assert "by share of the variance" in page

    kwargs["uncertainty_before"] = parts([0.4, 0.4], share=0.25)
    page = make_explanation(X, X, **kwargs)._repr_html_()
    assert "width:25.0%" in page and "width:75.0%" in page


def test_page_lists_all_rows(tmp_path, explanation):
    path = explanation.to_html(str(tmp_path / "page.html"))
    page = path.read_text(encoding="utf-8")
    data = data_of(page)
    assert [row["name"] for row in data["rows"]] == ["a", "b", "c", "d"]
    assert data["features"] == ["priors", HOSTILE, "pH"]
    first, second, *_ = data["rows"]
    assert first["before"][0] == 0.4 and first["after"][0] == 0.1
    assert first["rebuilt"] == 0.35 and first["distance"] == 0
    assert first["prediction"] == "no → yes" and first["flips"]
    assert first["values"] == ["90", "felony", "3.90"]
    assert [change[:3] for change in first["changes"]] == [[0, "90", "20"]]
    assert [change[6] for change in second["changes"]] == [0, 1, 1]  # clear ones
    assert first["words"].startswith("priors 90 → 20; entropy 0.40 → 0.10 nats")
    assert first["others"] == [] and second["others"] == [
        f"priors 30, {HOSTILE} misdemeanour <b> and pH 3.45 (entropy 0.14, "
        "distance 2.00)"
    ]
    text = html.unescape(page)
    assert "Distance weight: 2.00." in text and "rejected above 0.45 nats" in text
    assert "Note: units & <i>" in text and "15 percentile points" in text
    # Without scripts there are still the sentences.
    assert text.count("<li>") == 4 and f"<li>a: {first['words']}</li>" in text
    # Self-contained.
    assert not any(
        value and ("//" in value or value.endswith((".js", ".css")))
        for _, attributes in Cells(page).tags
        for name, value in attributes.items()
        if name in ("src", "href")
    )


def read_png(address):
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    position, chunks = 8, {}
    while position < len(content):
        (size,) = struct.unpack(">I", content[position : position + 4])
        kind = content[position + 4 : position + 8]
        data = content[position + 8 : position + 8 + size]
        (check,) = struct.unpack(">I", content[position + 8 + size :][:4])
        assert check == zlib.crc32(kind + data)
        chunks[kind] = data
        position += 12 + size
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8)
    lines = lines.reshape(height, 1 + width * {0: 1, 2: 3}[colour_type])
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, -1)


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 4), (3, 2, 5), (2, 2, 5)])
def test_images_are_pictures(shape, tmp_path):
    explanation = image_explanation(shape)
    page = explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    addresses = [row["pictures"] for row in data_of(page)["rows"]]
    pictures = [read_png(address) for row in addresses for address in row]
    assert len(pictures) == 6 and data_of(page)["features"] == []
    pixels = explanation.X[0].reshape(-1, *shape[-2:])
    if len(pixels) == 2:
        pixels = pixels.mean(axis=0, keepdims=True)
    np.testing.assert_allclose(pictures[0], 255 * np.moveaxis(pixels, 0, -1), atol=0.51)
    # Nothing changes in the second row: its difference is grey all over.
    assert (pictures[5] == 247).all() and not (pictures[2] == 247).all()
    shown = [a for tag, a in Cells(explanation._repr_html_()).tags if tag == "img"]
    assert {image["src"] for image in shown} == {a for row in addresses for a in row}
    assert [image["alt"] for image in shown[:2]] == [
        "original of row 0",
        "counterfactual of row 0",
    ]


def test_pages_of_nothing(tmp_path, explanation):
    for empty in (explanation[:0], image_explanation()[:0]):
        assert "0 rows" in empty._repr_html_()
        assert "0 rows" in empty.to_html(tmp_path / "page.html").read_text("utf-8")


def test_page_in_a_browser(browser, explanation, tmp_path):
    names = """[...document.querySelectorAll("#table tbody [data-row] .name")].map(
        (button) => button.textContent).join("")"""
    browser.open(explanation[[1, 0, 3, 2]].to_html(tmp_path / "page.html"))
    orders = [browser.run(names)]
    heads = browser.run("""[...document.querySelectorAll("#table thead button")].map(
        (button) => button.textContent)""")
    assert heads == ["row", "verdict", "what changes", "prediction", "entropy (nats)"]
    for head in (0, 0, 4, 4):
        browser.click(f"#table thead th:nth-child({head + 1}) button")
        orders.append(browser.run(names))
    assert orders == [
        "badc",  # as given
        "abcd",  # by the name of the row
        "dcba",
        "dcba",  # by uncertainty, the largest first
        "abcd",
    ]
    browser.run("""(() => { const select = document.getElementById("filter-column");
        select.value = "1"; select.dispatchEvent(new Event("change")); })()""")
    assert browser.run(names) == "b"  # whose category changes
    assert browser.complaints == []


def test_pictures_in_a_browser(browser, tmp_path):
    browser.open(image_explanation().to_html(tmp_path / "page.html"))
    shown = "[...document.images].map((i) => [i.alt, i.naturalWidth])"
    assert browser.run(shown) == [
        [f"{what} of row {row}", 4]
        for row in range(2)
        for what in ("before", "after", "difference")
    ]
    assert browser.complaints == []
