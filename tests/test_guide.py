"""The user guide has no code that nobody runs."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "doc" / "user_guide"
PAGES = sorted(GUIDE.glob("*.rst"))


def _literal_blocks(text):
    """Blocks that are shown as they are, except those that say they are no code."""
    pattern = r"^(.*)::(.*)\n((?:\s*:\w.*\n)*)\n((?:[ ]{3,}.*\n|\n)+)"
    for opening, argument, _, block in re.findall(pattern, text + "\n", flags=re.M):
        directive = re.match(r"\s*\.\. ([\w-]+)$", opening)
        if directive is None or directive[1] in {"code", "code-block"}:
            yield argument.strip(), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_is_a_doctest(page):
    """Doctests are run as tests; a literal block of Python would not be."""
    for language, block in _literal_blocks(page.read_text()):
        assert language in {"text", "bash"}, f"nobody runs this:\n{block}"


@pytest.mark.parametrize(
    "text, is_run",
    [
        ("Fit it::\n\n    model.fit(X)\n", False),
        (".. code-block:: python\n\n   model.fit(X)\n", False),
        (".. code-block:: text\n\n   x -> y\n", True),
        (".. math::\n\n   x^2\n", True),
        (">>> model.fit(X)\n", True),
    ],
)
def test_code_that_is_not_run_is_found(text, is_run):
    languages = [language for language, _ in _literal_blocks(text)]
    assert all(language == "text" for language in languages) == is_run


def test_no_doctest_is_skipped():
    assert not [page.name for page in PAGES if "+SKIP" in page.read_text()]
