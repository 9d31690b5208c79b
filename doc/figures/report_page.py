"""Take the pictures of reports for the user guide.

    python doc/figures/report_page.py

Makes the page of `sklearn-clue demo` and one about Credit, opens them in Chromium
without a window, and writes to doc/_static:

- report.png: the first parts of the page about tumours;
- report_credit.png: the rows of Credit, with one of them open;
- report_phone.png: the page about Credit on a dark phone.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder, report
from sklearn_clue._cli import main
from sklearn_clue.datasets import fetch_credit_default

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "doc" / "_static"

sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, find_browser  # noqa: E402


def write_credit(path):
    """Write a report on clients who may not pay, from 3,000 of them."""
    X, y = fetch_credit_default(return_X_y=True)
    X, y = X[:3000], np.where(y[:3000] == 1, "defaults", "pays")
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=y
    )
    explainer = CLUEExplainer(
        BayesianMLPClassifier((50,)),
        VAEEncoder(max_iter=50),
        immutable_features=["SEX", "AGE", "EDUCATION", "MARRIAGE"],
        random_state=0,
    )
    explainer.fit(X_train, y_train)
    title = "Credit: who will not pay, and when the model cannot tell"
    report(explainer, X_test, y_test, path, max_rows=100, title=title)


def take(browser, page, picture, *, width, height, is_dark=False, part=None):
    """Write what a window shows of a page, from its top or from a part of it."""
    browser.set_width(width)
    browser.set_dark(is_dark)
    browser.open(page)
    top = 0
    if part is not None:
        browser.click("#table tbody .name")
        top = browser.run(f"document.querySelector('{part}').offsetTop")
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    browser.screenshot(STATIC / picture, clip=clip, captureBeyondViewport=True)


if __name__ == "__main__":
    if find_browser() is None:
        raise SystemExit("No browser is on the path.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tumours, credit = Path(folder, "tumours.html"), Path(folder, "credit.html")
        main(["demo", "-o", str(tumours), "--no-browser"])
        write_credit(credit)
        with Browser(find_browser(), f"{folder}/profile") as browser:
            take(browser, tumours, "report.png", width=1000, height=1250)
            take(
                browser,
                credit,
                "report_credit.png",
                width=1100,
                height=1000,
                part="#rows",
            )
            take(
                browser,
                credit,
                "report_phone.png",
                width=380,
                height=1000,
                is_dark=True,
            )
