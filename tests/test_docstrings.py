"""What is public is documented: all of it, in the order of its signature."""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pandas as pd
import pytest
from numpydoc.docscrape import ClassDoc
from numpydoc.validate import validate
from sklearn.base import BaseEstimator, clone
from test_common import INSTANCES
from test_html_repr import listed_names

import sklearn_clue
from sklearn_clue.pipeline import Pipeline
from sklearn_clue.study import SimulatedParticipant

PUBLIC_MODULES = ["sklearn_clue"] + [
    f"sklearn_clue.{info.name}"
    for info in pkgutil.iter_modules(sklearn_clue.__path__)
    if not info.name.startswith("_")
]

# What numpydoc asks for and we do not.
NOT_ASKED = {
    "ES01",  # an extended summary,
    "EX01",  # an example of every method: classes and functions have them,
    "SA01",  # a "See Also" section everywhere,
    "RT02",  # no name for what is returned.
}


def _public_objects():
    """Public objects by name, each once, at its shortest name."""
    found = {}
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if not any(value is other for other in found.values()):
                found[f"{name}.{public}"] = value
    del found["sklearn_clue.__version__"]
    return found


LISTED = _public_objects()
PUBLIC = {name: value for name, value in LISTED.items() if callable(value)}
# Nobody constructs a protocol, and exceptions take a message.
ABSTRACT = {
    name
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False))
}
METHODS = [
    f"{name}.{attribute}"
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    for attribute, member in inspect.getmembers(value)
    if not attribute.startswith("_")
    and inspect.isroutine(member)
    and getattr(member, "__module__", "").startswith("sklearn_clue")
]


def _errors(name):
    return [
        f"{code}: {message}"
        for code, message in validate(name)["errors"]
        if code not in NOT_ASKED
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_and_functions(name):
    """Summary, every parameter in its order, what is returned, and an example."""
    errors = _errors(name)
    if name in ABSTRACT:
        errors = [error for error in errors if not error.startswith("PR01")]
    assert not errors
    doc = inspect.getdoc(PUBLIC[name])
    assert ">>> " in doc, f"{name} shows no example"
    # One name to a line: notebooks look parameters up by their name.
    assert not re.search(r"^\w+, \w+.* : ", doc, flags=re.M)
    if not inspect.isclass(PUBLIC[name]):
        assert re.search(r"^(Returns|Yields)\n---", doc, flags=re.M)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    assert not _errors(name)
    assert re.search(
        r"^(Returns|Yields)\n---", inspect.getdoc(_resolve(name)), flags=re.M
    )


def _resolve(name):
    owner, _, attribute = name.rpartition(".")
    return getattr(PUBLIC[owner], attribute)


def test_wrong_docstrings_are_found(monkeypatch):
    """numpydoc does look: at a parameter that is new, and at one that is gone."""

    def decompose_entropy(proba, base):
        pass

    decompose_entropy.__doc__ = sklearn_clue.uncertainty.decompose_entropy.__doc__
    monkeypatch.setattr(
        sklearn_clue.uncertainty, "decompose_entropy", decompose_entropy
    )
    errors = _errors("sklearn_clue.uncertainty.decompose_entropy")
    assert any(error.startswith("PR01") and "base" in error for error in errors)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", INSTANCES, ids=lambda e: type(e).__name__)
def test_fitted_attributes_are_documented(estimator):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    fitted = clone(estimator).set_params(**_seeded(estimator)).fit(X, X["a"] > 0)
    documented = {entry.name for entry in ClassDoc(type(fitted))["Attributes"]}
    learned = {
        name
        for name in [*vars(fitted), *dir(type(fitted))]
        if name.endswith("_") and not name.startswith("_")
    }
    assert learned  # the fit has left something to look at
    assert not {name for name in learned - documented if hasattr(fitted, name)}


def _seeded(estimator):
    return {"random_state": 0} if "random_state" in estimator.get_params() else {}


def test_every_estimator_documents_its_attributes():
    """The table of instances is complete, so the test above has seen them all."""
    estimators = {
        value
        for name, value in PUBLIC.items()
        if inspect.isclass(value) and issubclass(value, BaseEstimator)
    }
    # One has the attributes of its last step, the other is fitted to studies.
    estimators -= {Pipeline, SimulatedParticipant}
    assert estimators == {type(instance) for instance in INSTANCES}


def test_the_api_reference_lists_every_public_name_once():
    listed = listed_names()
    assert len(listed) == len(set(listed))
    assert set(listed) == set(LISTED)
