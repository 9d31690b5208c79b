"""The page of a whole model: its facts, what it says, and how it behaves."""

import base64
import html
import itertools
import json
import re
import time

import numpy as np
import pandas as pd
import pytest
import sklearn.pipeline
from browser import data_of
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from test_explanation import image_explanation, make_explanation

from sklearn_clue import CLUEExplainer, NeighborExplainer, Report, VAEEncoder, report
from sklearn_clue.pipeline import make_pipeline

HOSTILE = "</script><img src=x onerror=alert(1)>"
FORMULA = "=cmd|'/c calc'!A1"


def make_table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 10, n_rows).round(2),
            "age": rng.normal(50, 9, n_rows).round(),
            HOSTILE: rng.choice(["<b>x</b>", FORMULA, "plain"], n_rows),
        }
    )
    noise = rng.normal(scale=1.5, size=n_rows)
    return X, np.where(X["dose"] + noise > 5, "works", "<i>fails")


@pytest.fixture(scope="module")
def classified():
    X, y = make_table(500)
    encoder = make_column_transformer(
        (OneHotEncoder(), [HOSTILE]), remainder=StandardScaler()
    )
    model = sklearn.pipeline.make_pipeline(encoder, LogisticRegression())
    explainer = NeighborExplainer(model, random_state=0).fit(X[:300], y[:300])
    return explainer, X[300:], y[300:]


@pytest.fixture(scope="module")
def made(classified):
    return report(*classified, neighbors=True, title=f"Doses {HOSTILE}")


# --- Facts ---


def test_errors_are_those_of_the_predictions(made, classified):
    explainer, X, y = classified
    quality = made.to_dict()["quality"]
    wrong = explainer.predict(X) != y
    assert quality["error"] == pytest.approx(wrong.mean())
    counts = np.unique(y, return_counts=True)[1]
    assert quality["baseline"] == pytest.approx(1 - counts.max() / len(y))
    is_rejected = explainer.rejects(X)
    rejection = quality["rejection"]
    assert rejection["error_rejected"] == pytest.approx(wrong[is_rejected].mean())
    assert rejection["error_kept"] == pytest.approx(wrong[~is_rejected].mean())
    surest = np.argsort(explainer.predict_uncertainty(X).total)[:160]
    assert rejection["rate"] == pytest.approx(0.2)
    assert rejection["error_at_rate"] == pytest.approx(wrong[surest].mean())
    assert rejection["share"][0] == 0 and rejection["error"][0] == quality["error"]
    bins = quality["calibration"]["bins"]
    assert sum(group["n_rows"] for group in bins) == len(y)
    for group in bins:
        low, high = group["interval"]
        assert 0 <= low < group["right"] < high + 1e-9 <= 1 + 1e-9


def test_rejected_rows_are_explained_the_least_sure_first(made, classified):
    explainer, X, y = classified
    facts = made.to_dict()
    assert facts["n_rejected"] == facts["n_explained"] == explainer.rejects(X).sum()
    rows = facts["explanation"]["rows"]
    totals = [row["uncertainty"]["before"]["total"] for row in rows]
    assert totals == sorted(totals, reverse=True)
    for row in rows:
        assert row["truth"] == y[row["row"] - 300]
        assert len(row["neighbor"]) == 3
    assert facts["drivers"][0]["feature"] == "dose"
    shares = facts["parts"]["rejected"]
    assert sum(shares.values()) == pytest.approx(1)
    json.dumps(facts, allow_nan=False)


def test_known_coverage_of_a_regression():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = 3 * X[:, 0] + rng.normal(scale=0.2, size=400)
    forest = RandomForestRegressor(30, min_samples_leaf=3, random_state=0)
    explainer = NeighborExplainer(forest).fit(X[:200], y[:200])
    made = report(explainer, X[200:], y[200:], max_rows=5)
    quality = made.to_dict()["quality"]
    error = y[200:] - explainer.predict(X[200:])
    assert quality["error"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert quality["baseline"] == pytest.approx(y[200:].std())
    std = explainer.predict_uncertainty(X[200:]).total
    inside = (np.abs(error) <= 1.6449 * std).mean()
    ninety = next(b for b in quality["coverage"]["bins"] if b["claimed"] == 0.9)
    assert ninety["right"] == pytest.approx(inside)
    assert made.to_dict()["n_explained"] == len(made.explanation) == 5
    page = html.unescape(made._repr_html_())
    assert "5 most uncertain rows are explained" in page and "typical error" in page


def test_without_targets_and_without_rejected_rows(classified):
    explainer, X, _ = classified
    page = report(explainer, X[:20]).to_dict()
    row = page["explanation"]["rows"][0]
    assert page["quality"] is None and "truth" not in row
    assert "neighbor" not in row  # training rows are on the page only if asked for
    sure = X[~explainer.rejects(X)][:10]
    made = report(explainer, sure)
    assert made.explanation is None and made.to_dict()["drivers"] == []
    assert "nothing to explain" in html.unescape(made._repr_html_())
    assert repr(made) == "<Report on 10 rows: 0 rejected>"


def test_a_pipeline_is_reported_by_its_last_step(classified):
    explainer, X, y = classified
    pipeline = make_pipeline(FunctionTransformer(lambda table: table), explainer)
    made = report(pipeline, X[:50], y[:50])
    assert made.to_dict()["n_rows"] == 50


def test_what_cannot_be_is_refused(classified):
    explainer, X, y = classified
    with pytest.raises(
        TypeError, match="report needs an explainer.*LogisticRegression"
    ):
        report(explainer.estimator_, X, y)
    with pytest.raises(ValueError, match="No label of y_test is a class.*'maybe'"):
        report(explainer, X[:2], ["maybe", "maybe"])
    with pytest.raises(ValueError, match="1 missing value, the first at position 1"):
        report(explainer, X[:2], np.array(["works", None], dtype=object))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        report(explainer, X[:2], y[:3])
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        report(explainer, X, y, max_rows=0)


# --- The page as a file ---


def test_page_says_what_a_manager_asks(made, tmp_path):
    path = made.to_html(tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    quality = made.to_dict()["quality"]
    before, after = quality["error"], quality["rejection"]["error_at_rate"]
    write = "{:.1%}" if after < 0.1 else "{:.0%}"
    words = f"if the 20 % least sure go to a person, errors fall from {before:.0%}"
    assert words.replace("%", " %").replace("20  %", "20 %") in page
    assert f"to {write.format(after).replace('%', ' %')}" in page
    for heading in ("What the model knows", "What drives its doubts", "The rows"):
        assert heading in page
    assert "NeighborExplainer(estimator=Pipeline(" in page
    assert "What not to conclude" in page and "Python " in page
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_hostile_names_and_values_stay_text(made, tmp_path):
    page = made.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in page and "<b>x" not in page and "<i>fails" not in page
    data = data_of(page)
    assert HOSTILE in data["features"]
    assert any("<i>fails" in row["prediction"] for row in data["rows"])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_half_a_character_breaks_nothing(classified, tmp_path):
    explainer, X, y = classified
    made = report(explainer, X, y, title="half \ud83d")
    page = made.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "half &#55357;" in page


def test_500_rows_of_40_columns_are_small(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"column number {i}" for i in range(40)]
    X = pd.DataFrame(rng.normal(size=(700, 40)), columns=names)
    y = X.to_numpy()[:, :5].sum(axis=1) > 0
    explainer = NeighborExplainer(
        LogisticRegression(), rejection_rate=0.9, n_neighbors=2
    ).fit(X[:100], y[:100])
    made = report(explainer, X[100:], y[100:], tmp_path / "page.html")
    assert isinstance(made, Report) and made.to_dict()["n_explained"] == 500
    assert (tmp_path / "page.html").stat().st_size < 2e6
    assert made.explanation.to_html(tmp_path / "rows.html").stat().st_size < 2e6


# --- The page in a browser ---

NAMES = """[...document.querySelectorAll("#table tbody [data-row] .name")].map(
    (button) => button.textContent)"""


def test_in_a_browser(browser, made, tmp_path):
    browser.set_width(1200)
    browser.open(made.to_html(tmp_path / "page.html"))
    rows = data_of((tmp_path / "page.html").read_text("utf-8"))["rows"]
    every = [row["name"] for row in rows]
    assert browser.run(NAMES) == every

    browser.click("#search")
    browser.type(every[1])
    assert browser.run(NAMES) == [every[1]]
    status = "document.getElementById('status').textContent"
    assert browser.run(status) == f"1 of {len(every)} rows."
    browser.run("search.value = ''; search.dispatchEvent(new Event('input'))")

    # Filter, and download what is left.
    browser.choose("#filter-flips", "0")
    flips = [row["name"] for row in rows if row["flips"]]
    assert browser.run(NAMES) == flips and 0 < len(flips) < len(every)
    browser.send(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path)
    )
    browser.click("#save")
    table = read_when_there(tmp_path / "rows.csv")
    assert table["row"].tolist() == flips
    assert set(table[HOSTILE]) <= {"<b>x</b>", f"'{FORMULA}", "plain"}
    assert {table["dose"].dtype.kind, table["age (after)"].dtype.kind} <= set("if")
    browser.choose("#filter-flips", "")
    browser.choose("#filter-wrong", "0")
    wrong = [row["name"] for row in rows if row["wrong"]]
    assert browser.run(NAMES) == wrong and 0 < len(wrong) < len(every)
    browser.choose("#filter-wrong", "")
    browser.choose("#filter-group", "0")
    group = [row["name"] for row in rows if row["group"] == 0]
    assert browser.run(NAMES) == group and 0 < len(group) < len(every)
    browser.choose("#filter-group", "")

    # Choose a column.
    browser.run("""[...document.querySelectorAll(".chooser label")].find(
        (label) => label.textContent === "dose").querySelector("input").click()""")
    heads = (
        "[...document.querySelectorAll('#table thead th')].map((h) => h.textContent)"
    )
    assert browser.run(heads)[-1] == "dose"

    # Sort by entropy by the keyboard: the largest first, then the smallest.
    browser.run("document.querySelectorAll('#table thead button')[5].focus()")
    browser.press("Enter", 13)
    assert browser.run(NAMES) == every
    browser.press("Enter", 13)
    totals = {row["name"]: row["before"][0] for row in rows}
    assert [totals[name] for name in browser.run(NAMES)] == sorted(totals.values())
    sorted_by = "document.querySelector('[aria-sort]').getAttribute('aria-sort')"
    assert browser.run(sorted_by) == "ascending"

    browser.click("#table tbody .name")
    first = browser.run(NAMES)[0]
    detail = browser.run("document.querySelector('.detail').textContent")
    row = next(row for row in rows if row["name"] == first)
    assert all(change[2] in detail for change in row["changes"])
    assert "nearest sure training row" in detail and "stay as they are" in detail
    assert HOSTILE in detail  # as text
    browser.click("#table tbody .name")
    assert browser.run("document.querySelector('.detail')") is None

    assert browser.complaints == []
    assert [
        url for url in browser.requests if not url.startswith(("file:", "blob:"))
    ] == []
    assert browser.run("document.querySelectorAll('img').length") == 0


def read_when_there(path, seconds=10):
    for _ in range(10 * seconds):
        if path.exists():
            break
        time.sleep(0.1)
    return pd.read_csv(path, encoding="utf-8-sig")


def test_the_browser_hears_complaints_and_requests(browser, made, tmp_path):
    """Or the tests above could not fail."""
    browser.open(made.to_html(tmp_path / "page.html"))
    assert browser.complaints == []
    browser.run("console.error('heard')")
    assert len(browser.complaints) == 1
    # The page itself lets nothing out, whatever gets into it.
    browser.run("""new Promise((done) => {
        const image = new Image();
        image.onerror = image.onload = () => done(true);
        image.src = "https://example.invalid/picture.png";
        document.body.append(image);
    })""")
    assert "Content Security Policy" in str(browser.complaints[1:])
    assert any(url.startswith("https:") for url in browser.requests)
    blocked = [event["params"].get("blockedReason") for event in browser.events]
    assert "csp" in blocked


def test_phone_and_dark(browser, made, tmp_path):
    browser.set_width(360)
    browser.set_dark(True)
    browser.open(made.to_html(tmp_path / "page.html"))
    browser.click("#table tbody .name")
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert browser.run(fits)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert max(map(int, re.findall(r"\d+", browser.run(ground))[:3])) < 60
    browser.set_dark(False)
    assert min(map(int, re.findall(r"\d+", browser.run(ground))[:3])) > 200
    assert browser.complaints == []
    browser.run("document.querySelector('h1').style.width = '500px'")
    assert not browser.run(fits)  # so it can fail


def forest_report():
    """Of a model that knows both kinds of uncertainty."""
    X, y = make_table(200)
    X = X[["dose", "age"]]
    forest = RandomForestClassifier(20, random_state=0)
    return report(NeighborExplainer(forest).fit(X[:150], y[:150]), X[150:], y[150:])


def test_parts_are_explained_where_the_model_knows_them(made, tmp_path):
    pages = [
        page.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
        for page in (made, forest_report(), made.explanation)
    ]
    knows_noise_only = ["does not tell noise from a lack of data" in p for p in pages]
    knows_both = ["The other part is a lack of data nearby" in p for p in pages]
    assert knows_noise_only == [True, False, True]
    assert knows_both == [False, True, False]


def test_parts_differ_without_colour(browser, tmp_path):
    browser.open(forest_report().to_html(tmp_path / "page.html"))
    for place in (".swatch", ".bars span"):
        pattern, plain = (
            browser.run(
                f"getComputedStyle(document.querySelector('{place}.{kind}'))"
                ".backgroundImage"
            )
            for kind in ("epistemic", "aleatoric")
        )
        assert "gradient" in pattern and plain == "none"


def test_print_shows_all_rows_and_no_controls(browser, made, tmp_path):
    X = np.arange(240.0).reshape(120, 2)
    path = make_explanation(X, X + 1, target=0.15).to_html(tmp_path / "page.html")
    browser.open(path)
    shown = "document.querySelectorAll('#table tbody [data-row]').length"
    assert browser.run(shown) == 50
    browser.run(
        "addEventListener('beforeprint', () => { window.printed = " + shown + "})"
    )
    pdf = base64.b64decode(browser.send("Page.printToPDF")["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 2
    assert browser.run("window.printed") == 120
    assert browser.run(shown) == 50  # again, after it was printed
    browser.set_dark(False, media="print")
    for selector in ("#controls", "#more"):
        display = f"getComputedStyle(document.querySelector('{selector}')).display"
        assert browser.run(display) == "none"
    assert browser.complaints == []
    # Nothing is cut off on paper, where nobody scrolls.
    browser.set_width(720)
    browser.open(made.to_html(tmp_path / "report.html"))
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_accessible(browser, axe, tmp_path):
    X, y = load_breast_cancer(as_frame=True, return_X_y=True)
    model = sklearn.pipeline.make_pipeline(StandardScaler(), LogisticRegression())
    explainer = NeighborExplainer(model).fit(X[:400], y[:400])
    page = report(explainer, X[400:], y[400:], neighbors=True)
    paths = [page.to_html(tmp_path / "report.html")]
    paths.append(page.explanation.to_html(tmp_path / "rows.html"))
    for path, width, is_dark in itertools.product(paths, (1200, 360), (False, True)):
        browser.set_width(width)
        browser.set_dark(is_dark)
        browser.open(path)
        browser.click("#table tbody .name")
        browser.run(
            "document.querySelectorAll('details').forEach((d) => d.open = true)"
        )
        assert browser.violations(axe) == [], (path.name, width, is_dark)
    browser.run("document.getElementById('search').parentElement.replaceWith(search)")
    assert "label" in [name for name, _ in browser.violations(axe)]  # so it can fail


@pytest.mark.slow
def test_5000_rows_of_40_columns_open_and_filter_in_a_second(browser, tmp_path):
    rng = np.random.default_rng(0)
    names = [f"column number {i}" for i in range(40)]
    X = pd.DataFrame(rng.normal(size=(5000, 40)), columns=names)
    after = X.where(rng.random(X.shape) > 0.1, X + 1)
    path = make_explanation(X, after, target=0.15).to_html(tmp_path / "page.html")
    browser.open(path)
    seconds = [browser.script_seconds()]
    browser.click("#search")
    for act in (
        lambda: browser.type("number 7 were"),
        lambda: browser.choose("#filter-column", "12"),
        lambda: browser.click("#table thead th:nth-child(5) button"),
    ):
        before = browser.script_seconds()
        act()
        seconds.append(browser.script_seconds() - before)
    status = browser.run("document.getElementById('status').textContent")
    assert re.match(r"\d+ of 5,000 rows", status)
    assert max(seconds) < 1 and min(seconds) > 0, seconds


def test_a_notebook_shows_it_in_a_frame(browser, made, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(made._repr_html_(), encoding="utf-8")
    browser.open(path)
    assert browser.run("frames.length") == 1 and browser.complaints == []


# --- Other kinds of explanations ---


def test_images_have_pictures(browser, made, tmp_path):
    images = image_explanation()
    facts = made.to_dict() | {"drivers": [], "groups": [], "n_explained": len(images)}
    page = Report(facts | {"explanation": images.to_dict()}, images)
    browser.open(page.to_html(tmp_path / "page.html"))
    browser.click("#table tbody .name")
    assert browser.run("document.images.length") == 6
    assert browser.complaints == []


def test_an_explanation_with_a_weight_says_what_changed(classified):
    X, y = make_table(200)
    clue = CLUEExplainer(
        LogisticRegression(), VAEEncoder(2, (8,), max_iter=5), distance_weight=0.5
    ).fit(X.iloc[:100, :2], y[:100])
    made = report(clue, X.iloc[100:, :2], y[100:], max_rows=3)
    rows = data_of(html.unescape(made._repr_html_()))["rows"]
    assert len(rows) == 3 and all("entropy" in row["words"] for row in rows)
    assert made.to_dict()["groups"] == []
