"""The README shows code that runs, and what it really prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    files = [link for link in links if not link.startswith("https://")]
    assert files
    assert not [
        link for link in files if not (Path(__file__).parents[1] / link).exists()
    ]


@pytest.mark.slow
def test_code_prints_what_is_shown():
    """Half a minute of sampling. Other processors may change last digits."""
    pairs = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", README, flags=re.S)
    assert len(pairs) == README.count("```python")
    names = {}
    for code, shown in pairs:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue().split() == shown.split()
