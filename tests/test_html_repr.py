"""What a notebook shows of an estimator: a link, tooltips, and no flood."""

import re
from email.message import Message
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from test_common import INSTANCES, TINY

from sklearn_clue import BayesianMLPClassifier, TabularEncoder, _validation
from sklearn_clue.pipeline import make_pipeline

API = Path(__file__).parents[1] / "doc" / "api.rst"
ESTIMATORS = [*INSTANCES, make_pipeline(TabularEncoder(), INSTANCES[0])]


def listed_names():
    """The names in the API reference, in full: those of its pages."""
    module, names = None, []
    for line in API.read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w[\w.]*", line):
            names.append(f"{module}.{line.strip()}")
    return names


@pytest.fixture
def published(monkeypatch):
    monkeypatch.setattr(
        _validation, "documentation_address", lambda: "https://docs.example"
    )


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_links_to_its_page(estimator, published):
    link = estimator._get_doc_link()
    match = re.fullmatch(r"https://docs.example/generated/([\w.]+)\.html", link)
    assert f'href="{link}"' in estimator._repr_html_()
    assert match[1] in listed_names()


def test_a_subclass_of_a_user_has_no_page_here(published):
    class Mine(TabularEncoder):
        pass

    Mine.__module__ = "elsewhere"
    assert Mine()._get_doc_link() == ""


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_every_parameter_has_a_tooltip(estimator, published):
    pytest.importorskip(
        "sklearn.utils._repr_html.params", reason="scikit-learn has no tooltips"
    )
    html = estimator._repr_html_()
    for name in estimator.get_params(deep=False):
        assert re.search(rf"--doc-link-{name};\">\s*{name}: ", html), name


def test_no_address_no_link(monkeypatch):
    monkeypatch.setattr(_validation, "documentation_address", lambda: "")
    encoder = TabularEncoder()
    assert encoder._get_doc_link() == ""
    assert "href=" not in encoder._repr_html_()


def test_the_address_is_that_of_the_package(monkeypatch):
    package = Message()
    package["Project-URL"] = "Source, https://source.example"
    package["Project-URL"] = "Documentation, https://docs.example/stable/"
    monkeypatch.setattr(_validation, "metadata", lambda name: package)
    assert _validation.documentation_address() == "https://docs.example/stable"


def test_a_checkout_has_the_pages_that_were_built(monkeypatch, tmp_path):
    def metadata(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(_validation, "metadata", metadata)
    monkeypatch.setattr(_validation, "__file__", str(tmp_path / "package" / "file"))
    assert _validation.documentation_address() == ""
    built = tmp_path / "doc" / "_build" / "html"
    (built / "generated").mkdir(parents=True)
    assert _validation.documentation_address() == built.as_uri()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fitted_attributes_do_not_flood_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    small = BayesianMLPClassifier(**TINY, random_state=0)
    large = clone(small).set_params(hidden_layer_sizes=(60, 60), n_draws=20)
    sizes = [len(model.fit(X, X[:, 0] > 0)._repr_html_()) for model in (small, large)]
    assert sum(coef.size for coef in large.coefs_) > 50_000
    assert abs(sizes[1] - sizes[0]) < 300
