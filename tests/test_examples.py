"""The scripts of the gallery: their form. Running them is for the documentation."""

import ast
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ROOMS = ("quickstart", "advanced", "paper")
SCRIPTS = sorted(path for room in ROOMS for path in (EXAMPLES / room).glob("plot_*.py"))

per_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)


def test_there_are_enough():
    assert len(SCRIPTS) >= 10
    for room in ROOMS:
        assert any(path.parent.name == room for path in SCRIPTS)


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_each_room_has_a_header(room):
    # The name that sphinx-gallery looks for; without it the room is left out silently.
    title, underline, *_ = (
        (EXAMPLES / room / "GALLERY_HEADER.rst").read_text().split("\n")
    )
    assert set(underline) <= set("=-") and len(underline) == len(title)


@per_script
def test_starts_with_a_title_and_a_finding(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    title, underline, blank, *paragraphs = text.split("\n")
    assert title and underline == "=" * len(title) and not blank
    finding = " ".join(paragraphs).split()
    assert len(finding) >= 20, "The first paragraph promises a finding."


@per_script
def test_draws_and_tells_what_to_see(path):
    text = path.read_text()
    *_, last = text.split("\n# %%\n")
    assert "plt.show()" in text
    assert last.startswith("# "), "Each cell starts with prose."
    # Prose sits between the cells, so no cell is long.
    cells = re.split(r"^# %%\n", text, flags=re.MULTILINE)
    assert len(cells) >= 3
    assert all(cell.startswith("# ") for cell in cells[1:])


@per_script
def test_runs_anywhere(path):
    # Neither paths of one machine nor names that are private to the package.
    text = path.read_text()
    strings = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [value for value in strings if re.match(r"(/|~|[A-Za-z]:\\)\w", value)]
    assert not re.search(r"sklearn_clue(\.\w+)*\._", text)


def test_files_of_rooms_are_scripts_of_the_gallery():
    # sphinx-gallery runs what starts with plot_ and shows the rest unrun. The paper's
    # room may hold scripts that take hours.
    others = [
        path.name
        for room in ("quickstart", "advanced")
        for path in (EXAMPLES / room).glob("*.py")
        if not path.name.startswith("plot_")
    ]
    assert not others
