"""The pages of a study: what is on them, and runs through them in a browser."""

import base64
import http.server
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_clue import NeighborExplainer, TabularEncoder
from sklearn_clue.study import SimulatedParticipant, Study, analyse, read_answers
from sklearn_clue.study._content import gather
from sklearn_clue.study._pages import CONSENT, TITLE
from sklearn_clue.study._pages import write_pages as write_all_pages
from sklearn_clue.study._study import Question, Seen

pytest.importorskip("matplotlib.pyplot")  # here: old ones warn as they are loaded

HOSTILE = "</script><img src=x onerror=alert(1)>"


def write_pages(study, folder, one_page=False, n_checks=2):
    return write_all_pages(
        study,
        folder,
        one_page=one_page,
        title=TITLE,
        consent=CONSENT,
        instructions=None,
        labels=None,
        n_checks=n_checks,
        post_to=None,
    )


class Changed:
    """A study whose questions are changed, and that shows the same rows."""

    def __init__(self, study, change):
        self._study, self._change = study, change

    def __getattr__(self, name):
        return getattr(self._study, name)

    @property
    def variants(self):
        old = self._study.variants
        return {name: tuple(map(self._change, old[name])) for name in old}


@pytest.fixture(scope="module")
def images():
    """A study of small pictures, of which the second method cannot make one sure."""
    rng = np.random.default_rng(0)
    pool = rng.random((8, 36))
    variants = {
        method: tuple(
            Question(f"q{k}", method, method, k, k + 3, bool(k % 2), 0.5)
            for k in range(3)
        )
        for method in ("rows", "weak", "nothing")
    }

    def seen(question):
        shown = None if question.method == "nothing" else 1 - pool[[question.context]]
        return Seen(pool[[question.context]], shown, pool[[question.test]])

    def explanation_of(question):
        is_sure = np.array([question.method == "rows"])
        found = SimpleNamespace(is_sure=is_sure)
        return None if question.method == "nothing" else found

    return SimpleNamespace(
        variants=variants,
        questions=sum(variants.values(), ()),
        example=Question("example", "rows", "rows", 6, 7, True, 0.5),
        feature_names=[f"x{j}" for j in range(36)],
        image_shape=(6, 6),
        seen=seen,
        explanation_of=explanation_of,
    )


def text_of(path):
    return path.read_text("utf-8")


def data_of(path):
    found = re.search(r'id="data">(.*?)</script>', text_of(path), re.DOTALL)
    return json.loads(found[1])


# --- What is on the pages ---


def test_files(study, tmp_path):
    paths = study.to_html(tmp_path)
    assert paths == [tmp_path / "pages" / f"variant-{k}.html" for k in (1, 2, 3, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json", "pages"]
    assert set((tmp_path / "pages").iterdir()) == set(paths)
    key = json.loads(text_of(tmp_path / "key.json"))
    assert [each["name"] for each in key["variants"].values()] == list(study.methods)
    truth = {q.id: q.test_is_sure for q in study.variants["random"]}
    asked = key["variants"]["3"]["questions"]
    assert {name: each["sure"] for name, each in asked.items()} == truth
    assert study.to_html(tmp_path, one_page=True) == [tmp_path / "pages" / "index.html"]


def test_truth_is_not_on_the_page(study, tmp_path):
    """Pages are the same to the last byte if all right answers are turned around."""
    other = Changed(
        study, lambda q: replace(q, test_is_sure=not q.test_is_sure, difficulty=9.0)
    )
    for one_page in (False, True):
        pages = [
            [text_of(p) for p in write_pages(each, tmp_path / name, one_page=one_page)]
            for name, each in (("a", study), ("b", other))
        ]
        assert pages[0] == pages[1]
    keys = [json.loads(text_of(tmp_path / name / "key.json")) for name in "ab"]
    assert keys[0] != keys[1] and keys[0]["study"] == keys[1]["study"]


def test_methods_are_not_on_the_page(study, tmp_path):
    for path in study.to_html(tmp_path):
        assert not re.search("neighbors|sensitivity", text_of(path))


def test_nothing_but_the_page_runs(study, tmp_path):
    text = text_of(study.to_html(tmp_path / "a")[0])
    policy = re.search('Content-Security-Policy" content="(.*?)"', text)[1]
    assert policy.startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert "unsafe" not in policy and "connect-src" not in policy
    text = text_of(study.to_html(tmp_path / "b", post_to="https://x.org:8/y?z=1")[0])
    policy = re.search('Content-Security-Policy" content="(.*?)"', text)[1]
    assert policy.endswith("; connect-src https://x.org:8")


def test_values_are_the_users(study, doses, tmp_path):
    path = study.to_html(tmp_path)[0]
    data = data_of(path)
    assert data["features"] == ["dose", "age", "clinic"]
    question = study.variants["neighbors"][0]
    shown = data["variants"]["1"]["questions"][question.id]
    context = doses[2].iloc[question.context]
    dose, age, clinic = shown["context"]
    assert (float(dose), float(age), clinic) == tuple(context)
    assert age == f"{context['age']:.0f}" and shown["is_sure"] is True
    nothing = data_of(tmp_path / "pages" / "variant-4.html")["variants"]["4"]
    assert nothing["questions"][question.id]["explanation"] is None
    assert nothing["example"]["explanation"] is None


def test_labels(study, tmp_path):
    study.to_html(tmp_path)
    path = study.to_html(tmp_path, labels={"dose": "Dose (mg)"})[0]  # the same study
    assert data_of(path)["features"] == ["Dose (mg)", "age", "clinic"]


def test_pictures(images):
    shown, _ = gather(images)
    rows, weak, nothing = (shown["variants"][k]["questions"]["q1"] for k in "123")
    for name in ("context", "explanation", "difference", "test"):
        assert rows[name].startswith("data:image/png;base64,")
    assert rows["is_sure"] and not weak["is_sure"]
    assert nothing["explanation"] is None and "difference" not in nothing
    assert rows["context"] == nothing["context"] != rows["test"]


def test_the_key_of_other_answers_is_kept(study, images, tmp_path):
    study.to_html(tmp_path)
    study.to_html(tmp_path, title="Once more")
    with pytest.raises(FileExistsError, match="key.json is the key of another study"):
        write_pages(images, tmp_path)
    assert data_of(tmp_path / "pages" / "variant-1.html")["title"] == "Once more"


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"title": 3}, TypeError, "title must be a text, got 3"),
        ({"consent": None}, TypeError, "consent must be a text, got None"),
        ({"labels": ["Dose"]}, TypeError, "labels must be a dict"),
        ({"labels": {"does": "Dose"}}, ValueError, "labels names 'does', .*'dose', "),
        ({"n_checks": -1}, ValueError, "n_checks must be a whole number.*got -1"),
        ({"n_checks": 0.5}, ValueError, "n_checks must be a whole number.*got 0.5"),
        ({"post_to": "example.org"}, ValueError, "post_to must be a whole address"),
        ({"post_to": "file:///x"}, ValueError, "post_to must be a whole address"),
        ({"post_to": 8}, ValueError, "post_to must be a whole address.*got 8"),
        ({"post_to": "https://x.org/; img-src *"}, ValueError, "without spaces"),
        ({"post_to": "https://me:pw@x.org/"}, ValueError, "passwords"),
    ],
)
def test_refuses(study, tmp_path, options, error, match):
    with pytest.raises(error, match=match):
        study.to_html(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


# --- In a browser ---


# A file that is there anyway, to leave a page of the study for.
EMPTY = Path(__file__)


class Address:
    """A page with what stands behind the question mark."""

    def __init__(self, path, **query):
        self._text = (
            path.as_uri() + "?" + "&".join(f"{k}={v}" for k, v in query.items())
        )

    def as_uri(self):
        return self._text


STATE = """JSON.parse(Object.entries(localStorage).filter(
    ([name]) => name.endsWith(%s)).map(([, value]) => value)[0] ?? "null")"""


def state_of(browser, participant):
    return browser.run(STATE % json.dumps(f".{participant}"))


def heading(browser):
    return browser.run("document.querySelector('h1').textContent")


def begin(browser, path, **query):
    browser.open(Address(path, **query))
    browser.click("#agree")
    browser.click("#begin")
    browser.click("#start")


def change_memory(browser, script):
    """Run a script while no page of the study is open, which would keep its answers."""
    browser.open(EMPTY)
    browser.run(script)


def answer(browser, says_sure):
    browser.click(f"input[value={'sure' if says_sure else 'unsure'}]")
    browser.click("#next")


def answer_all(browser, participant, rule):
    """Answer what is left by a rule from the name of a question."""
    state = state_of(browser, participant)
    for code in state["order"][len(state["answers"]) :]:
        answer(browser, rule(code))


def wait_for(path, seconds=10):
    for _ in range(20 * seconds):
        if path.exists() and path.stat().st_size:
            return path
        time.sleep(0.05)
    raise AssertionError(f"no {path.name}")


def test_from_the_page_to_the_analysis(browser, study, tmp_path):
    """All questions of two variants: one by files of JSON, one of CSV."""
    paths = study.to_html(tmp_path)
    answers_folder = tmp_path / "answers"
    answers_folder.mkdir()
    browser.send(
        "Browser.setDownloadBehavior",
        behavior="allow",
        downloadPath=str(answers_folder),
    )
    example = study.example.test_is_sure
    orders = []
    for number, name, suffix in ((0, "anna", "json"), (3, "bert", "csv")):
        begin(browser, paths[number], participant=name)
        assert heading(browser) == "Question 1 of 20"
        orders.append(state_of(browser, name)["order"])

        def rule(code):
            return example if code.startswith("check") else code < "q10"

        answer_all(browser, name, rule)
        assert heading(browser) == "Thank you"
        assert name in browser.run("document.querySelector('main').textContent")
        browser.click(f"#{suffix}")
        wait_for(answers_folder / f"answers-{name}.{suffix}")
        assert browser.complaints == []
        assert all(url.startswith(("file:", "blob:")) for url in browser.requests)
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    for order in orders:  # a check in the second half of each half
        places = [order.index(check) for check in ("check1", "check2")]
        assert 4 <= places[0] <= 9 and 13 <= places[1] - 1 <= 18

    answers = read_answers(answers_folder, min_seconds=0)
    again = read_answers(answers_folder, study, min_seconds=0)
    assert answers.table.equals(again.table) and answers.excluded.empty
    by_person = dict(list(answers.table.groupby("participant")))
    for order, (name, method) in zip(
        orders, [("anna", "neighbors"), ("bert", "none")], strict=True
    ):
        table = by_person[name]
        assert set(table["method"]) == {method}
        assert table["check"].sum() == 2 and (table["seconds"] > 0).all()
        asked = table[~table["check"]]
        truth = {q.id: q.test_is_sure for q in study.variants[method]}
        assert asked["question"].tolist() == [c for c in order if c in truth]
        assert asked["sure"].tolist() == [truth[q] for q in asked["question"]]
        assert asked["answer"].tolist() == [q < "q10" for q in asked["question"]]
    expected = np.mean([(q < "q10") == sure for q, sure in truth.items()])
    found = analyse(answers, n_permutations=9).methods
    assert found["accuracy"].tolist() == pytest.approx([expected] * 2)


def test_learners_take_the_study_on_its_page(browser, explainers, doses, tmp_path):
    """What is read from the files of learners is what they meant to answer."""
    X, _, pool = doses
    methods = {"neighbors": explainers["neighbors"], "none": None}
    study = Study(methods, X, pool[:300], n_questions=9, random_state=0)
    practice = Study(methods, X, pool[300:], n_questions=30, random_state=0)
    meant = SimulatedParticipant(LogisticRegression()).fit(practice).answer(study)
    (path,) = study.to_html(tmp_path, one_page=True)
    browser.send(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path)
    )
    for number, method in enumerate(study.variants, start=1):
        of_method = meant[meant["method"] == method]
        says = dict(zip(of_method["question"], of_method["answer"], strict=True))
        begin(browser, path, participant=method, variant=number)
        answer_all(browser, method, lambda code, says=says: bool(says.get(code)))
        browser.click("#json")
        wait_for(tmp_path / f"answers-{method}.json")
    answers = read_answers(tmp_path, min_seconds=0, min_checks_passed=0)
    columns = ["variant", "method", "question", "sure", "answer"]
    read, meant = (
        table.sort_values(["method", "question"])[columns].reset_index(drop=True)
        for table in (answers.table[~answers.table["check"]], meant)
    )
    assert (read == meant).all().all() and read["answer"].nunique() == 2


def test_what_is_shown(browser, study, tmp_path):
    path = study.to_html(
        tmp_path, title="T & <T>", consent="One.\n\nTwo.", instructions="Look."
    )[0]
    data = data_of(path)["variants"]["1"]
    browser.open(Address(path, participant="shown"))
    assert heading(browser) == browser.run("document.title") == "T & <T>"
    words = browser.run("document.querySelector('main').innerText")
    assert "One.\n\nTwo." in words and "nothing is sent over the network" in words
    browser.click("#begin")  # without a tick it does not begin
    assert heading(browser) == "T & <T>" and state_of(browser, "shown") is None
    browser.click("#agree")
    browser.click("#begin")
    assert heading(browser) == "What you will be asked"
    words = browser.run("document.querySelector('main').innerText")
    solution = "sure" if study.example.test_is_sure else "unsure"
    assert "Look." in words and f"The right answer is: {solution}." in words
    assert browser.run("document.activeElement.tagName") == "H1"  # so that it is read
    browser.click("#start")
    shown = data["questions"][state_of(browser, "shown")["order"][0]]
    rows = browser.run(
        "[...document.querySelectorAll('tbody tr')].map((row) =>"
        "[...row.cells].map((cell) => cell.lastElementChild?.lastChild.textContent"
        "?? cell.textContent))"
    )
    columns = [shown[key] for key in ("context", "explanation", "test")]
    assert rows == [
        list(r) for r in zip(["dose", "age", "clinic"], *columns, strict=True)
    ]
    marked = browser.run("document.querySelectorAll('mark').length")
    assert marked == sum(map(str.__ne__, *columns[:2])) > 0
    assert browser.run("document.querySelector('progress').value") == 0
    answer(browser, True)
    assert browser.run("document.querySelector('progress').value") == 1


def test_resume(browser, study, tmp_path):
    path = study.to_html(tmp_path)[1]
    begin(browser, path, participant="carl")
    for _ in range(3):
        answer(browser, True)
    before = state_of(browser, "carl")
    table = "document.querySelector('table').innerText"
    seen = browser.run(table)
    browser.click("input[value=sure]")
    browser.open(EMPTY)  # the tab is closed before "Next"
    browser.open(Address(path, participant="carl"))
    assert heading(browser) == "Question 4 of 20" and browser.run(table) == seen
    after = state_of(browser, "carl")
    assert after["order"] == before["order"] and after["answers"] == before["answers"]
    assert after["spent"] > 0  # the time before is not lost
    assert not browser.run("document.querySelector('input[value=sure]').checked")
    answer(browser, False)
    assert state_of(browser, "carl")["answers"][3]["seconds"] >= after["spent"] / 1000

    browser.open(Address(path, participant="dora"))  # somebody else
    assert heading(browser) == "When is the model sure?"

    browser.open(Address(path, participant="carl"))
    answer_all(browser, "carl", lambda code: True)
    browser.open(Address(path, participant="carl"))
    assert heading(browser) == "Thank you"  # nobody takes part twice by mistake
    browser.click("#delete")
    assert heading(browser) == "Deleted" and state_of(browser, "carl") is None
    assert browser.complaints == []


def test_damaged_memory_begins_anew(browser, study, tmp_path):
    path = study.to_html(tmp_path)[0]
    begin(browser, path, participant="eve")
    for broken in ("{", '{"variant":"1"}', '{"variant":"9","order":[],"answers":[]}'):
        change_memory(
            browser,
            "Object.keys(localStorage).filter((name) => name.endsWith('.eve'))"
            f".forEach((name) => localStorage.setItem(name, {json.dumps(broken)}))",
        )
        browser.open(Address(path, participant="eve"))
        assert heading(browser) == "When is the model sure?"
        assert browser.complaints == []
        begin(browser, path, participant="eve")


def test_without_memory(browser, study, tmp_path):
    """A browser that keeps nothing says so, and takes the answers all the same."""
    page = base64.b64encode(study.to_html(tmp_path)[0].read_bytes()).decode()
    browser.open(SimpleNamespace(as_uri=lambda: f"data:text/html;base64,{page}"))
    browser.click("#agree")
    browser.click("#begin")
    words = browser.run("document.querySelector('main').textContent")
    assert "This browser does not keep your answers" in words
    browser.click("#start")
    for _ in range(20):
        answer(browser, True)
    assert heading(browser) == "Thank you" and browser.complaints == []


def test_declined(browser, study, tmp_path):
    path = study.to_html(tmp_path)[0]
    browser.open(Address(path, participant="fred"))
    browser.click("#decline")
    assert heading(browser) == "Thank you" and state_of(browser, "fred") is None


def test_codes(browser, study, tmp_path):
    path = study.to_html(tmp_path)[0]
    change_memory(browser, "localStorage.clear()")
    begin(browser, path)  # without a code from the address
    (name,) = browser.run("Object.keys(localStorage)")
    state = browser.run("JSON.parse(Object.values(localStorage)[0])")
    assert re.fullmatch("[0-9a-f]{12}", state["participant"]) and name.count(".") == 2
    answer(browser, True)
    browser.open(Address(path))
    assert heading(browser) == "Question 2 of 20"
    # A code goes into a spreadsheet and the name of a file.
    change_memory(browser, "localStorage.clear()")
    begin(browser, path, participant="%3D1%2B1,%3Cb%3E%0A../x" + "y" * 99)
    (state,) = browser.run("Object.values(localStorage).map((v) => JSON.parse(v))")
    assert state["participant"].startswith("_1_1__b__.._xy")
    assert len(state["participant"]) == 64


def test_one_page_draws_variants(browser, study, tmp_path):
    (path,) = study.to_html(tmp_path, one_page=True)
    browser.open(Address(path, participant="v", variant="3"))
    browser.click("#agree")
    browser.click("#begin")
    assert state_of(browser, "v")["variant"] == "3"
    drawn = []
    for k in range(12):
        browser.open(Address(path, participant=f"w{k}"))
        browser.run("agree.click(), begin.click()")
        drawn.append(state_of(browser, f"w{k}")["variant"])
    assert set(drawn) <= set("1234") and len(set(drawn)) > 1  # fails once in 4 million
    browser.open(Address(path, participant="w0"))
    assert state_of(browser, "w0")["variant"] == drawn[0]


@pytest.fixture
def server():
    """Collects what is posted; the first time it fails."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            received.append((self.path, self.rfile.read(length).decode()))
            self.send_response(503 if len(received) == 1 else 204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/answers?for=1", received
    server.shutdown()
    server.server_close()
    thread.join()


def test_post(browser, study, tmp_path, server):
    address, received = server
    path = study.to_html(tmp_path, post_to=address, n_checks=0)[2]
    browser.open(Address(path, participant="gina"))
    assert address in browser.run("document.querySelector('main').textContent")
    begin(browser, path, participant="gina")
    assert heading(browser) == "Question 1 of 18"
    answer_all(browser, "gina", lambda code: code < "q05")
    status = "document.getElementById('status').textContent"
    wait_until(browser, f"{status}.includes('could not be sent')")
    assert "the server says 503" in browser.run(status)
    browser.click("#send")
    wait_until(browser, f"{status}.includes('were sent')")
    browser.open(Address(path, participant="gina"))
    assert "were sent" in browser.run(status)
    posts = [url for url in browser.requests if url.startswith("http")]
    assert posts == [] and len(received) == 2  # and not a third time
    assert {where for where, _ in received} == {"/answers?for=1"}
    (tmp_path / "stored.jsonl").write_text(received[1][1] + "\n")
    answers = read_answers(tmp_path, min_seconds=0)
    assert set(answers.table["participant"]) == {"gina"} and len(answers.table) == 18
    assert set(answers.table["method"]) == {"random"}
    assert (answers.table["answer"] == (answers.table["question"] < "q05")).all()


def wait_until(browser, condition, seconds=10):
    for _ in range(20 * seconds):
        if browser.run(condition):
            return
        time.sleep(0.05)
    raise AssertionError(condition)


def test_by_the_keyboard(browser, study, tmp_path):
    path = study.to_html(tmp_path)[0]
    browser.open(Address(path, participant="hugo"))

    def tab_to(selector):
        for _ in range(10):
            browser.press("Tab", 9)
            if browser.run(f"document.activeElement.matches('{selector}')"):
                return
        raise AssertionError(selector)

    def space():
        for kind, text in (("keyDown", " "), ("keyUp", "")):
            browser.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=" ",
                code="Space",
                windowsVirtualKeyCode=32,
                text=text,
            )

    tab_to("#agree")
    space()
    tab_to("#begin")
    browser.press("Enter", 13)
    tab_to("#start")
    browser.press("Enter", 13)
    tab_to("input[type=radio]")
    browser.press("ArrowDown", 40)  # from "Sure" to "Unsure"
    browser.press("Enter", 13)
    assert heading(browser) == "Question 2 of 20"
    assert state_of(browser, "hugo")["answers"][0]["answer"] == "unsure"
    tab_to("input[type=radio]")
    space()
    tab_to("#next")
    browser.press("Enter", 13)
    assert state_of(browser, "hugo")["answers"][1]["answer"] == "sure"


@pytest.fixture(scope="module")
def hostile():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=[HOSTILE, "long_name_" * 12])
    values = ["<b>bold</b>", "=1+1", "${x}", "value" * 30]
    X["kind"] = rng.choice(values, 300)
    y = X[HOSTILE] + rng.normal(0, 0.5, 300) > 0
    model = make_pipeline(TabularEncoder(), LogisticRegression())
    neighbors = NeighborExplainer(model).fit(X[:150], y[:150])
    return Study({HOSTILE: neighbors}, X[:150], X[150:], n_questions=4, random_state=0)


def test_hostile_names_and_values_stay_text(browser, hostile, tmp_path):
    (path,) = hostile.to_html(tmp_path, title=HOSTILE, consent=HOSTILE)
    browser.set_width(360)
    begin(browser, path, participant="ivo")
    assert HOSTILE in browser.run("document.querySelector('tbody').textContent")
    while heading(browser) != "Thank you":
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.run("document.querySelectorAll('img, b, u').length") == 0
        answer(browser, True)
    assert browser.complaints == []
    key = json.loads(text_of(tmp_path / "key.json"))
    assert key["variants"]["1"]["name"] == HOSTILE


def test_pictures_in_dark_on_a_phone(browser, images, tmp_path):
    paths = write_pages(images, tmp_path, n_checks=0)
    browser.set_width(360)
    browser.set_dark(True)
    captions = "[...document.querySelectorAll('figcaption')].map((c) => c.textContent)"
    for path, expected in zip(paths, (4, 4, 2), strict=True):
        browser.open(Address(path, participant="jo"))
        browser.run("agree.click(), begin.click()")
        words = browser.run("document.querySelector('main').textContent")
        assert ("Beside it is" in words) == (expected == 4)
        assert ("At times none was found" in words) == (path == paths[1])
        browser.click("#start")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert len(browser.run(captions)) == expected
        widths = "[...document.images].map((image) => image.naturalWidth)"
        assert browser.run(widths) == [6] * expected
        if path == paths[1]:
            assert browser.run(captions)[1] == "The model is still unsure"
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground)[:3])) < 60
        assert browser.complaints == []
        change_memory(browser, "localStorage.clear()")


@pytest.mark.slow
@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [1200, 360])
def test_accessible(browser, axe, study, images, tmp_path, width, is_dark):
    """Every screen, of tables and of pictures."""
    browser.set_width(width)
    browser.set_dark(is_dark)
    paths = study.to_html(tmp_path / "tables")[:1] + write_pages(images, tmp_path)[:1]
    for name, path in zip(("tables", "pictures"), paths, strict=True):
        name += f"{width}{is_dark}"
        browser.open(Address(path, participant=name))
        assert browser.violations(axe) == []
        for selector in ("#begin", "#start"):
            browser.run("document.getElementById('agree')?.click()")
            browser.click(selector)
            assert browser.violations(axe) == []
        answer_all(browser, name, lambda code: True)
        assert heading(browser) == "Thank you"
        assert browser.violations(axe) == []
