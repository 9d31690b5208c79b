"""Take the picture of a report for the user guide.

    python doc/figures/report_page.py

Makes the page of `sklearn-clue demo`, opens it in Chromium without a window, and writes
doc/_static/report.png.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from sklearn_clue._cli import main

STATIC = Path(__file__).parents[1] / "_static"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def take(browser, page, picture, folder):
    """Write what a window of 1000 × 1250 pixels shows of a page."""
    subprocess.run(
        [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1000,1250",
            f"--user-data-dir={folder}/profile",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )


if __name__ == "__main__":
    found = [path for name in NAMES if (path := shutil.which(name))]
    if not found:
        raise SystemExit(f"No browser: none of {', '.join(NAMES)} is on the path.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        main(["demo", "-o", str(page), "--no-browser"])
        take(found[0], page, STATIC / "report.png", folder)
