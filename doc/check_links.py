"""Check the links within built pages: every file and every anchor must exist.

    python doc/check_links.py doc/_build/html

Links to other sites are not followed.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and the anchors that others may link to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)


def broken_links(root):
    """Yield each page and each of its links that lead nowhere."""
    root = root.resolve()
    # The theme keeps its templates among its static files.
    paths = {
        path for path in root.rglob("*.html") if root / "_static" not in path.parents
    }
    pages = {path: Page(path) for path in paths}
    for path, page in sorted(pages.items()):
        for link in page.links:
            # A fragment of text, as scikit-learn's tooltips have it, is no anchor.
            parts = urlsplit(link.partition("#:~:")[0])
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target = target / "index.html"
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file() or (
                anchors is not None and unquote(parts.fragment) not in anchors
            ):
                yield f"{path.relative_to(root)}: {link}"


if __name__ == "__main__":
    root = Path(sys.argv[1])
    n_pages = len(list(root.rglob("*.html")))
    broken = list(broken_links(root))
    print("\n".join(broken))
    if broken or not n_pages:
        sys.exit(f"{len(broken)} broken links in {n_pages} pages")
    print(f"{n_pages} pages, and no broken link within")
