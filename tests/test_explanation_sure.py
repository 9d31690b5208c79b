"""Explanations that answer what would make the model sure: verdicts and drivers."""

import json
import os
import pickle
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browser import data_of
from test_explanation import Cells, image_explanation, make_explanation, parts

from sklearn_clue import TabularEncoder, _words

# Each row has another verdict: sure, sure of another class, less believable, a gap
# filled, still unsure with and without a change, and sure already.
ROWS = {
    "amount": [8400.0, 8400.0, 8400.0, 5000.0, 9000.0, 9000.0, 1000.0],
    "housing": ["rent", "rent", "rent", "own", "free", "free", "own"],
    "income": [2500.5, 2500.5, 2500.5, None, 2500.5, 2500.5, 2500.5],
}
NEW = {
    "amount": [2100.0, 8400.0, 2100.0, 5000.0, 8000.0, 9000.0, 1000.0],
    "housing": ["own", "own", "rent", "own", "free", "free", "own"],
    "income": [2500.5, 2500.5, 2500.5, 3200.0, 2500.5, 2500.5, 2500.5],
}
BEFORE = [0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.1]
AFTER = [0.2, 0.2, 0.2, 0.2, 0.5, 0.6, 0.1]


def tables(container):
    if container == "polars":
        pl = pytest.importorskip("polars")
        return [pl.DataFrame(rows) for rows in (ROWS, NEW)]
    return [pd.DataFrame(rows) for rows in (ROWS, NEW)]


@pytest.fixture(scope="module")
def schema():
    train = pd.DataFrame(
        {
            "amount": np.linspace(500, 10000, 200),
            "housing": ["rent", "own", "free", "own"] * 50,
            "income": np.linspace(1000, 6000, 200),
        }
    )
    return TabularEncoder().fit(train).schema_


def sure_explanation(schema, container="pandas", **kwargs):
    X, new = tables(container)
    contributions = np.zeros((7, 3))
    contributions[[0, 1, 2, 3, 4], [0, 1, 0, 2, 0]] = [0.284, 0.4, 0.4, 0.4, 0.1]
    contributions[0, 1] = 0.116
    probabilities = np.tile([0.46, 0.54], (7, 1))
    after = np.tile([0.29, 0.71], (7, 1))
    after[1] = [0.8, 0.2]
    kwargs = {
        "uncertainty_before": parts(BEFORE),
        "uncertainty_after": parts(AFTER),
        "prediction_before": np.array(["good"] * 7),
        "prediction_after": np.array(["good", "bad"] + ["good"] * 5),
        "target": 0.25,
        "is_plausible": np.array([True, True, False, True, True, True, True]),
        "plausibility": np.array([0.5, 0.5, 0.03, 0.5, 0.5, 0.5, 0.5]),
        "plausibility_before": np.full(7, 0.4),
        "contributions": contributions,
        "classes": np.array(["bad", "good"]),
        "probabilities_before": probabilities,
        "probabilities_after": after,
    } | kwargs
    return make_explanation(X, new, new, schema=schema, **kwargs)


@pytest.fixture
def explanation(schema):
    return sure_explanation(schema)


# --- Fields ---


def test_what_can_be_derived_is(explanation):
    assert explanation.is_sure.tolist() == [True] * 4 + [False] * 2 + [True]
    assert explanation.n_changed.tolist() == [2, 1, 1, 1, 1, 0, 0]


def test_sure_is_what_the_chosen_uncertainty_says(schema):
    after = parts([0.4] * 7, share=0.75)  # 0.1 of it epistemic
    for kind, is_sure in (
        ("total", False),
        ("epistemic", True),
        ({"epistemic": 2.0, "aleatoric": 0.1}, True),
    ):
        explanation = sure_explanation(schema, uncertainty_after=after, kind=kind)
        assert explanation.is_sure.tolist() == [is_sure] * 7
    with pytest.raises(ValueError, match="uncertainty must be 'total'"):
        sure_explanation(schema, kind="all")


def test_rounding_costs_no_sureness(schema):
    target = 0.1 + 0.2
    after = parts(np.full(7, np.nextafter(target, 1)))
    explanation = sure_explanation(schema, target=target, uncertainty_after=after)
    assert explanation.is_sure.all()


def test_without_a_target_the_threshold_decides():
    X = np.arange(4.0).reshape(2, 2)
    explanation = make_explanation(
        X, X, threshold=0.15, uncertainty_after=parts([0.1, 0.2])
    )
    assert explanation.is_sure.tolist() == [True, False]
    assert make_explanation(X, X).is_sure is None


@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("key", [2, slice(1, 5), [3, 0]])
def test_new_fields_are_sliced(schema, container, key):
    explanation = sure_explanation(schema, container)
    rows = np.atleast_1d(np.arange(7)[key])
    chosen = explanation[key]
    for name in (
        "is_sure",
        "is_plausible",
        "n_changed",
        "plausibility",
        "plausibility_before",
        "contributions",
        "probabilities_before",
        "probabilities_after",
    ):
        np.testing.assert_array_equal(
            getattr(chosen, name), getattr(explanation, name)[rows]
        )
    assert chosen.target == 0.25 and chosen.classes.tolist() == ["bad", "good"]
    words = explanation.summary().splitlines()
    # A row of a table without names is called by its position.
    kept = [line.split(": ", 1)[1] for line in chosen.summary().splitlines()]
    assert kept == [words[row].split(": ", 1)[1] for row in rows]
    assert pickle.loads(pickle.dumps(chosen)).summary() == chosen.summary()


def test_contributions_need_one_entry_per_cell(explanation):
    with pytest.raises(ValueError, match=r"contributions has shape \(7, 2\), but X"):
        replace(explanation, contributions=np.zeros((7, 2)))
    errors = replace(explanation, contributions_error=np.full((7, 3), 0.01))
    assert errors[2:4].contributions_error.shape == (2, 3)
    assert (errors.changes["contribution_error"] == 0.01).all()
    with pytest.raises(ValueError, match="is_sure has 2 rows"):
        replace(explanation, is_sure=np.zeros(2))


def test_a_row_costs_the_same_in_a_long_explanation():
    rng = np.random.default_rng(0)

    def seconds(n_rows):
        X = np.zeros((n_rows, 1))
        explanation = replace(
            make_explanation(X[:1], X[:1]),
            X=X,
            counterfactuals=X,
            candidates=list(X[:, np.newaxis]),
            candidate_details=pd.DataFrame(
                # In no order, so that a search for the lines of a row shows.
                {"row": rng.permutation(n_rows), "rank": 0, "objective": 0, "count": 1}
            ),
            **{
                name: np.zeros(n_rows)
                for name in ("prediction_before", "prediction_after", "distance")
            },
            **{
                f"uncertainty_{when}": parts(np.zeros(n_rows))
                for when in ("before", "after")
            },
            n_changed=None,
        )
        rows = iter(explanation)
        next(rows)
        times = []
        for _ in range(3):
            start = time.process_time()
            for _ in range(60):
                next(rows)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(50_000) < 3 * seconds(500)


# --- Words ---


def test_words_start_with_the_verdict(explanation):
    lines = explanation.summary().splitlines()
    assert lines == [
        "row 0: Would be sure if amount were 2,100 instead of 8,400 and housing own "
        "instead of rent. Prediction good 54 % → 71 %; entropy 0.60 → 0.20 nats (sure "
        "up to 0.25), most of it by amount (71 %).",
        "row 1: Would be sure of bad instead of good if housing were own instead of "
        "rent. Prediction good 54 % → bad 80 %; entropy 0.60 → 0.20 nats (sure up to "
        "0.25).",
        "row 2: Would be sure if amount were 2,100 instead of 8,400. But such a row is "
        "less believable than asked (plausibility 0.03). Prediction good 54 % → 71 %; "
        "entropy 0.60 → 0.20 nats (sure up to 0.25).",
        "row 3: Would be sure if income were known to be 3,200. Prediction good 54 % → "
        "71 %; entropy 0.60 → 0.20 nats (sure up to 0.25).",
        "row 4: Still unsure: no sure row was found. Least unsure if amount were 8,000 "
        "instead of 9,000. Prediction good 54 % → 71 %; entropy 0.60 → 0.50 nats (sure "
        "up to 0.25).",
        "row 5: Still unsure: no surer row was found. Prediction good 54 % → 71 %; "
        "entropy 0.60 → 0.60 nats (sure up to 0.25).",
        "row 6: Sure already: nothing needs to change. Prediction good 54 %; entropy "
        "0.10 nats (sure up to 0.25).",
    ]


def test_figures_tell_before_from_after(schema):
    totals = np.array([[0.6926, 0.6926], [0.6921, 0.6926]])
    before, after = map(parts, totals)
    explanation = replace(
        sure_explanation(schema)[:2],
        uncertainty_before=before,
        uncertainty_after=after,
        target=0.6924,
        threshold=0.6924,
        is_sure=np.array([True, False]),
    )
    moved, stays = explanation.summary().splitlines()
    assert "entropy 0.693 → 0.692 nats (sure up to 0.692)" in moved
    assert "entropy 0.69 → 0.69 nats (sure up to 0.69)" in stays
    picture = _words.title(explanation.to_dict()["rows"][0], explanation.to_dict())
    assert "entropy 0.693 → 0.692 nats (sure up to 0.692 nats)" in picture
    weighed = replace(explanation, distance_weight=1.0, target=None)
    assert "0.692 nats, below the threshold of 0.692" in weighed.summary()


def test_classes_and_columns_that_are_numbers_stay_apart_from_figures():
    shares = np.array([[0.46, 0.54], [0.5, 0.5]])
    explanation = make_explanation(
        pd.DataFrame({0: [1.0, 2.0], 1: [5.0, 7.0]}),
        pd.DataFrame({0: [1.0, 3.0], 1: [8.0, 9.0]}),
        target=0.3,
        classes=np.array([0, 1]),
        prediction_before=np.array([1, 1]),
        prediction_after=np.array([1, 0]),
        probabilities_before=shares,
        probabilities_after=np.array([[0.2, 0.8], [0.9, 0.1]]),
    )
    stays, flips = explanation.summary().splitlines()
    assert "if column 1 were 8 instead of 5. Prediction 1 (54 % → 80 %);" in stays
    assert "instead of 2" in flips and "column 0 " in flips
    assert "Prediction 1 (50 %) → 0 (90 %);" in flips
    same = replace(explanation, probabilities_after=shares)
    assert "Prediction 1 (54 %);" in same.summary()


def test_rows_of_several_names():
    X = pd.DataFrame({"a": [1.0, 2.0]})
    X.index = pd.MultiIndex.from_tuples([("north", 1), ("south", 2)])
    summary = make_explanation(X, X + 1, target=0.3).summary()
    assert summary.startswith("row (north, 1): Would be sure")


def test_polars_says_the_same(schema, explanation):
    other = sure_explanation(schema, "polars")
    assert other.summary() == explanation.summary()
    assert other.to_dict() == explanation.to_dict()


def test_a_weight_keeps_the_words_of_the_paper(explanation):
    weighed = replace(explanation, distance_weight=2.0)
    first = weighed.summary().splitlines()[0]
    assert first == (
        "row 0: housing rent → own and amount 8,400 → 2,100; entropy 0.60 → 0.20 nats, "
        "most of it by amount (71 %); prediction unchanged (good)."
    )
    # Marking by 15 percentile points: 9,000 to 8,000 is less than that.
    assert not weighed[4].changes["highlighted"].any()
    assert explanation[4].changes["highlighted"].tolist() == [True, False, False]


def test_a_filled_gap_is_a_change(explanation):
    changes = explanation[3].changes
    assert changes["highlighted"].tolist() == [False, False, True]
    assert changes["contribution"].tolist() == [0, 0, 0.4]


def test_words_name_every_change():
    X = np.vstack([np.arange(9.0), np.arange(9.0) + 50])
    explanation = make_explanation(X, X[::-1], target=0.3)
    first = explanation.summary().splitlines()[0]
    assert all(f"x{j}" in first for j in range(9)) and "more" not in first


def test_words_of_a_regression(schema):
    means = {"prediction_before": [5.25] * 7, "prediction_after": [1234.5] * 7}
    means = {name: np.array(values) for name, values in means.items()}
    explanation = sure_explanation(
        schema,
        is_classification=False,
        probabilities_before=None,
        probabilities_after=None,
        kind="epistemic",
        **means,
    )[0]
    assert (
        "Prediction 5.25 ± 0.60 → 1,234.50 ± 0.20; epistemic standard deviation 0.30 → "
        "0.10 (sure up to 0.25)"
    ) in explanation.summary()
    assert explanation.to_dict()["rows"][0]["verdict"] == "sure"
    intervals = replace(
        explanation,
        interval_before=np.array([[4.0, 6.5]]),
        interval_after=np.array([[1200.0, 1300.0]]),
    )
    assert "5.25 (4 to 6.5) → 1,234 (1,200 to 1,300)" in intervals.summary()


@pytest.mark.parametrize(
    "contributions, words",
    [
        ([0.4, 0.0, 0.0], None),
        ([0.2, 0.1, 0.1], "the largest part by amount (50 %)"),
        ([0.5, -0.1, 0.0], "most of it by amount (125 %, others work against it)"),
        ([0.399, 0.001, 0.0], "most of it by amount (>99 %)"),
    ],
)
def test_the_largest_contribution_is_named(explanation, contributions, words):
    row = replace(explanation[0], contributions=np.array([contributions]))
    assert row.summary().endswith(f"0.25), {words}." if words else "0.25).")


def test_digits_tell_values_apart():
    feature = {"name": "x", "decimals": 1}
    values = [(1.04, 1.01), (1.0, 1.0), (None, 2.0), (0.1, 0.1 + 1e-15), (9999.0, 1e4)]
    texts = [
        _words.two_values({"before": old, "after": new}, feature) for old, new in values
    ]
    assert texts == [
        ("1.04", "1.01"),
        ("1.0", "1.0"),
        ("missing", "2.0"),
        ("0.100000000000000", "0.100000000000001"),
        ("9,999.0", "10,000.0"),
    ]


def test_years_that_are_categories_have_no_separators():
    assert _words.value(2019) == _words.value(2019.0) == "2019"
    assert _words.value(2019, 0) == "2,019"


def test_words_of_images(tmp_path):
    explanation = replace(image_explanation(), target=0.15, is_sure=None)
    page = explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    row = data_of(page)["rows"][0]
    assert row["verdict"] == "sure of another class" and len(row["pictures"]) == 3
    assert explanation._repr_html_().count("<img") == 6
    first, second = explanation.summary().splitlines()
    assert first.startswith(
        "row 0: Would be sure of yes instead of no if 3 of 16 pixels"
    )
    assert second.startswith("row 1: Still unsure: no surer row was found.")
    assert not explanation.changes["highlighted"].any()


# --- Facts, frames and pages ---


def test_facts(explanation):
    facts = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert (facts["goal"], facts["target"], facts["kind"]) == ("sure", 0.25, "total")
    assert [row["verdict"] for row in facts["rows"]] == [
        "sure",
        "sure of another class",
        "sure, less believable",
        "sure",
        "still unsure",
        "still unsure",
        "already sure",
    ]
    first = facts["rows"][0]
    assert first["probability"] == {"before": 0.54, "after": 0.71}
    assert first["judged"] == {"before": 0.6, "after": 0.2}
    assert first["changes"][0]["contribution"] == 0.284
    assert (first["is_sure"], first["n_changed"], first["plausibility"]) == (
        True,
        2,
        0.5,
    )


def test_frame_has_verdicts_and_contributions(explanation):
    frame = explanation.to_frame()
    assert frame["verdict"].columns.tolist() == [
        "is_sure",
        "is_plausible",
        "n_changed",
        "plausibility_before",
        "plausibility",
    ]
    np.testing.assert_array_equal(frame["contribution"], explanation.contributions)
    assert frame["contribution"].columns.tolist() == ["amount", "housing", "income"]


def test_page_has_verdict_and_sentence_first(explanation, tmp_path):
    page = explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    data = data_of(page)
    first, second, third, *_ = data["rows"]
    assert data["goal"] == "sure" and first["verdict"] == "sure"
    assert first["words"] == (
        "Would be sure if amount were 2,100 instead of 8,400 and housing own instead "
        "of rent."
    )
    column, old, new, *_, share, clear = first["changes"][0]
    assert data["features"][column] == "amount" and (old, new) == ("8,400", "2,100")
    assert (share, clear) == (71.0, 1)
    assert second["prediction"] == "good 54 % → bad 80 %" and second["flips"]
    assert third["plausibility"] == 0.03
    assert "2 still unsure" in page and "sure up to 0.25 nats" in page
    assert page.index("still unsure") < page.index("<table")


def test_polars_has_pages_and_pictures(schema, tmp_path):
    pytest.importorskip("matplotlib")
    explanation = sure_explanation(schema, "polars")
    for rows in (explanation, explanation[np.int64(1) :], explanation[:3]):
        page = rows.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
        assert len(data_of(page)["rows"]) == len(rows)
        assert len(Cells(rows._repr_html_()).lines[0]) == 1 + min(len(rows), 5)
        assert rows.plot().figure_ is not None
        assert rows.to_frame().shape[0] == len(rows)


def test_notebook_has_sentences_above_the_table(explanation):
    page = explanation._repr_html_()
    assert page.index("Would be sure of bad instead of good") < page.index("<table")
    assert (
        "what changes, with the share of the fall" in page
        and "15 percentile points" not in page
    )


def test_sentences_are_escaped(tmp_path):
    X = pd.DataFrame({"<u>": ["<i>", "b"]})
    explanation = make_explanation(X, X[::-1], target=0.3)
    page = explanation.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, explanation._repr_html_()):
        assert "<u>" not in text and "<i>" not in text
        assert "&lt;u&gt; were b instead of &lt;i&gt;" in text


def test_an_older_page_survives_a_full_disk(explanation, tmp_path, monkeypatch):
    path = explanation.to_html(tmp_path / "page.html")
    before = path.read_text(encoding="utf-8")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        explanation[:1].to_html(path)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


# --- Drivers ---


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_drivers(schema, container):
    explanation = sure_explanation(schema, container)
    frame = explanation.drivers()
    assert type(frame) is type(explanation.X)
    assert list(frame.columns) == [
        "feature",
        "n_changed",
        "mean_contribution",
        "share",
        "direction",
        "median_change",
    ]
    assert list(frame["feature"]) == ["amount", "housing", "income"]
    assert list(frame["n_changed"]) == [3, 2, 1]
    np.testing.assert_allclose(
        frame["mean_contribution"], np.array([0.784, 0.516, 0.4]) / 7
    )
    np.testing.assert_allclose(frame["share"], np.array([0.784, 0.516, 0.4]) / 1.7)
    assert list(frame["direction"]) == ["down", "to own", "filled"]
    assert frame["median_change"][0] == -6300
    assert pd.isna(frame["median_change"][1]) and pd.isna(frame["median_change"][2])


def test_drivers_of_an_array():
    X = np.zeros((3, 3))
    new = X.copy()
    new[:, 1], new[:2, 0] = [1, 2, 6], [-1, 1]
    frame = make_explanation(X, new).drivers()
    # Without contributions, what changes most often comes first.
    assert list(frame.columns) == ["feature", "n_changed", "direction", "median_change"]
    assert frame["feature"].tolist() == ["x1", "x0", "x2"]
    assert frame["direction"].tolist() == ["up", "both", "stays"]
    assert frame["median_change"].tolist()[:2] == [2.0, 0.0]


def test_drivers_of_a_rise_have_no_share(explanation):
    worse = replace(explanation, contributions=-explanation.contributions)
    assert worse.drivers()["share"].isna().all()


def test_drivers_of_nothing_and_of_images(explanation):
    assert explanation[:0].drivers()["n_changed"].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="images, whose pixels are no drivers"):
        image_explanation().drivers()
