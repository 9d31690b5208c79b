"""What comes from data or from the network stays what it is: text and bytes."""

import gzip
import hashlib
import io
import json
import warnings
import zipfile
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from sklearn_clue import Explanation, TabularEncoder, Uncertainty
from sklearn_clue._page_parts import SCRIPT
from sklearn_clue.datasets import _download, _loaders
from sklearn_clue.datasets._download import DataFile, Source, read

pytest.importorskip("matplotlib.pyplot")  # here: old ones warn as they are loaded

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style></title></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "{{ constructor.constructor('alert(1)')() }}",
    "{% include 'secret' %} ${7*7} <%= 7*7 %>",
    "javascript:alert(1)",
    "line\nbreak\r\n\u2028\u2029\x0b\x0cend",
    "<!-- comment",
    "]]><![CDATA[",
    "&lt;b&gt; &amp;",
    "null\x00byte \x1b[31mred",
    "right\u202eto left",
    "half a pair \ud83d",
    "$\\frac{1",
    "a" * 500 + "<b>",
]


def explain(texts):
    """An explanation in which names, values, labels and notes are the given texts."""
    n_rows = 3
    X = pd.DataFrame({position: [text] * n_rows for position, text in enumerate(texts)})
    counterfactuals = X.copy()
    # Some change and some do not, by text from either side of it.
    counterfactuals[0] = [texts[-1]] * n_rows
    table = pd.concat([X, counterfactuals])
    X.columns = counterfactuals.columns = table.columns = pd.Index(texts, dtype=object)
    X.index = counterfactuals.index = pd.Index(texts[:n_rows], dtype=object)
    parts = Uncertainty(
        np.full(n_rows, 0.5), np.full(n_rows, 0.2), np.full(n_rows, 0.3)
    )
    return Explanation(
        X=X,
        counterfactuals=counterfactuals,
        candidates=[
            pd.concat([X.iloc[[i]], counterfactuals.iloc[[i]]]) for i in range(3)
        ],
        candidate_details=pd.DataFrame(
            {
                "row": np.repeat(np.arange(n_rows), 2),
                "rank": [0, 1] * n_rows,
                "objective": 0.1,
                "total": 0.5,
                "aleatoric": 0.2,
                "epistemic": 0.3,
                "distance": 1.0,
                "count": 1,
            }
        ),
        uncertainty_before=parts,
        uncertainty_after=parts,
        uncertainty_reconstructed=parts,
        prediction_before=np.array(texts[:n_rows], dtype=object),
        prediction_after=np.array(texts[1 : n_rows + 1], dtype=object),
        distance=np.ones(n_rows),
        schema=TabularEncoder().fit(table).schema_,
        is_classification=True,
        method=texts[0],
        note=texts[1],
    )


class Skeleton(HTMLParser):
    """All that a page has besides text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.texts, self.data = [], [], [], None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        # Texts too long to show are from the data, quoted.
        shown = [(key, "" if key == "title" else value) for key, value in attributes]
        self.tags.append((tag, shown))

    def handle_data(self, data):
        last = self.tags[-1] if self.tags else None
        if last == ("script", [("type", "application/json"), ("id", "data")]):
            self.data = self.data or json.loads(data)
        elif last and last[0] == "script" and data.strip():
            self.scripts.append(data)
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data!r}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data!r}")

    def handle_pi(self, data):
        raise AssertionError(f"an instruction: {data!r}")


def pages(explanation, folder):
    path = explanation.to_html(folder / "page.html")
    return explanation._repr_html_(), path.read_text(encoding="utf-8")


def harmless(text):
    """Letters, as many as the text has and the same each time."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return (digest[: len(text)]).ljust(len(text), "x")


def test_text_from_the_data_adds_nothing_to_a_page(tmp_path):
    plain = [harmless(text) for text in HOSTILE]
    for ours, theirs in zip(
        pages(explain(plain), tmp_path), pages(explain(HOSTILE), tmp_path), strict=True
    ):
        expected, found = Skeleton(ours), Skeleton(theirs)
        # The same elements and attributes as around harmless text.
        assert found.tags == expected.tags
        assert found.scripts == expected.scripts
        assert found.scripts in ([], [SCRIPT])
    # And the text is all there, as it was.
    assert found.data["features"] == HOSTILE
    assert [row["name"] for row in found.data["rows"]] == HOSTILE[:3]
    assert all(row["values"] == HOSTILE for row in found.data["rows"])


@pytest.mark.parametrize("text", HOSTILE)
def test_each_text_alone(text, tmp_path):
    names = ["a", "b", "c", "d"]
    for place in (0, len(names)):
        ours, theirs = (
            pages(explain([*names[:place], new, *names[place:]]), tmp_path)
            for new in (harmless(text), text)
        )
        for expected, found in zip(ours, theirs, strict=True):
            assert Skeleton(found).tags == Skeleton(expected).tags


def test_a_page_fetches_nothing(tmp_path):
    _, page = pages(explain(HOSTILE), tmp_path)
    policy = [
        dict(attributes)["content"]
        for tag, attributes in Skeleton(page).tags
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attributes
    ]
    assert policy and policy[0].startswith("default-src 'none'")


def test_a_paragraph_per_row_whatever_the_names():
    assert len(explain(HOSTILE).summary().splitlines()) == 3


def test_pictures_show_text_as_text():
    texts = [text for text in HOSTILE if "\ud83d" not in text and "\x00" not in text]
    display = explain(texts).plot()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fonts lack line breaks
        display.figure_.canvas.draw()


# --- Files ---


@pytest.fixture
def homes(monkeypatch, tmp_path):
    monkeypatch.delenv("SKLEARN_CLUE_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "scikit"))
    monkeypatch.setattr(_download.time, "sleep", lambda seconds: None)
    (tmp_path / "home").mkdir()
    return tmp_path


def data_file(content, served=None, unpack=None):
    served = content if served is None else served
    checksum, of_served = (hashlib.sha256(c).hexdigest() for c in (content, served))
    source = Source("http://example.invalid/table.csv", of_served, unpack)
    return DataFile("table.csv", checksum, (source,))


def serve(monkeypatch, served):
    """Answer every request with the given bytes, without any network."""

    def receive(url, part):
        part.write_bytes(served)

    monkeypatch.setattr(_download, "_receive_rest", receive)


@pytest.mark.parametrize(
    "name",
    ["../table.csv", "/etc/table.csv", "a/b.csv", "..", "", "a\\b.csv", "C:x.csv"],
)
def test_names_that_leave_the_folder(name):
    with pytest.raises(ValueError, match="must not lead out of its folder"):
        DataFile(name, "0" * 64, ())


def test_links_do_not_lead_downloads_astray(monkeypatch, homes):
    """Neither a planted part nor a planted file redirects what is written."""
    content, victim = b"a,b\n1,2\n", homes / "victim"
    victim.write_bytes(b"precious")
    file = data_file(content)
    stem = f"{file.name}.{file.sources[0].sha256[:8]}"
    part = homes / "home" / f"{stem}.0000.part"
    part.symlink_to(victim)
    monkeypatch.setattr(_download, "ABANDONED", -1.0)
    (homes / "home" / "table.csv").symlink_to(homes / "nowhere")
    serve(monkeypatch, content)
    assert read(file, homes / "home") == content
    assert victim.read_bytes() == b"precious"
    assert not (homes / "nowhere").exists()
    kept = homes / "home" / "table.csv"
    assert kept.read_bytes() == content and not kept.is_symlink()


def test_other_content_of_a_link_is_refused(homes):
    (homes / "secret").write_bytes(b"secret")
    (homes / "home" / "table.csv").symlink_to(homes / "secret")
    with pytest.raises(OSError, match="should have SHA256"):
        read(data_file(b"a,b\n"), homes / "home", download_if_missing=False)


def archive(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        {"other.xls": b"workbook"},
        {},
        {"../default of credit card clients.xls": b"workbook"},
        {"default of credit card clients.xls/": b""},
    ],
)
def test_archives_without_the_expected_member(monkeypatch, homes, members):
    served = archive(**members)
    serve(monkeypatch, served)
    file = data_file(b"a,b\n", served, _loaders._csv_of_workbook)
    with pytest.raises(OSError, match="cannot be unpacked"):
        read(file, homes / "home")
    assert sorted(homes.rglob("*.xls")) == []
    assert list((homes / "home").iterdir()) == []


def test_other_members_of_an_archive_are_never_written(monkeypatch, homes):
    served = archive(
        **{
            "../../evil.py": b"evil",
            str(homes / "evil.py"): b"evil",
            "default of credit card clients.xls": b"workbook",
        }
    )
    table = pd.DataFrame([[1, 2]])
    monkeypatch.setattr(_loaders.pd, "read_excel", lambda *args, **kwargs: table)
    serve(monkeypatch, served)
    file = data_file(b"1,2\n", served, _loaders._csv_of_workbook)
    assert read(file, homes / "home") == b"1,2\n"
    names = [path.name for path in homes.rglob("*") if path.is_file()]
    assert names == ["table.csv"]


def test_nothing_unpacked_before_its_checksum(monkeypatch, homes):
    """Bytes that nobody vouches for reach no decompressor."""
    serve(monkeypatch, gzip.compress(b"something else"))

    def unpack(served):
        raise AssertionError("unpacked")

    file = data_file(b"a,b\n", gzip.compress(b"a,b\n"), unpack)
    with pytest.raises(OSError, match="SHA256"):
        read(file, homes / "home")
    assert list((homes / "home").iterdir()) == []
