"""The shape of the package: who imports whom, and what is public."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_clue

PACKAGE = Path(sklearn_clue.__file__).parent

# Imports point down this list, never up, and never sideways within a line. The last
# line is the foundation, whose modules may use each other.
LAYERS = [
    {"__main__"},
    {"_cli"},
    {"_report", "study"},
    {"evaluation", "plotting", "datasets"},
    {"pipeline"},
    {"explainers"},
    {"explanation"},
    {"bayesian", "generative", "_fitting", "_noise"},
    {"providers", "_modules"},
    {"uncertainty", "encoding"},
    {"_columns"},
    {"schema"},
    {
        "_parallel",
        "_torch",
        "_validation",
        "_progress",
        "_facts",
        "_charts",
        "_dtypes",
        "_durations",
        "_files",
        "_intake",
        "_knee",
        "_page",
        "_page_parts",
        "_page_rows",
        "_rendering",
        "_rows",
        "_stages",
        "_tables",
        "_words",
        "exceptions",
        "persistence",
    },
]
# Arrows that may point up, if drawn when they are followed: inside a function.
LATE = {("explanation", "plotting")}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _part(module):
    """The part of the package a module belongs to: sklearn_clue.a._b is in a."""
    return module.split(".")[1] if "." in module else None


def _imports(source, *, late=True):
    """Every dotted name a source file imports, at any depth or not within functions."""
    nodes = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if late or not isinstance(node, ast.FunctionDef):
            nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "use absolute imports"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _wrong_arrows(part, source):
    """Imports of a part of the package that its place in LAYERS does not allow."""
    early = set(_imports(source, late=False))
    for imported in _imports(source):
        target = _part(imported) if imported.startswith("sklearn_clue.") else None
        if target not in LEVEL or target == part:
            continue
        if (part, target) in LATE and imported not in early:
            continue
        is_foundation = LEVEL[part] == LEVEL[target] == len(LAYERS) - 1
        if part == "datasets" or (LEVEL[target] <= LEVEL[part] and not is_foundation):
            yield imported


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    if _part(module) is None:  # sklearn_clue/__init__.py gathers the public names
        return
    assert _part(module) in LEVEL, f"{module} has no place in LAYERS"
    assert not list(_wrong_arrows(_part(module), MODULES[module].read_text()))


@pytest.mark.parametrize(
    "part, source, is_wrong",
    [
        ("encoding", "from sklearn_clue.explainers import CLUEExplainer", True),
        ("bayesian", "import sklearn_clue.generative._vae", True),
        ("evaluation", "def f():\n    from sklearn_clue import plotting", True),
        ("datasets", "from sklearn_clue._validation import Interval", True),
        ("explanation", "from sklearn_clue.plotting import TradeOffDisplay", True),
        ("explanation", "def f():\n    from sklearn_clue import plotting", False),
        ("bayesian", "from sklearn_clue.bayesian._sghmc import update", False),
        ("explainers", "from sklearn_clue.schema import FeatureSchema", False),
        ("_torch", "from sklearn_clue.exceptions import ChainDivergedError", False),
    ],
)
def test_wrong_arrows_are_found(part, source, is_wrong):
    assert bool(list(_wrong_arrows(part, source))) == is_wrong


def _is_private(name):
    return name.startswith("_") and not name.endswith("__")


# What scikit-learn keeps private comes through one door, and keeps its names.
FROM_SCIKIT_LEARN = {
    f"sklearn_clue._validation.{name.split('.')[-1]}"
    for name in _imports(MODULES["sklearn_clue._validation"].read_text())
    if name.startswith("sklearn.")
}


def _trespasses(part, source):
    """Private names, and names of private modules, that another part holds."""
    for imported in _imports(source):
        if not imported.startswith("sklearn_clue.") or _part(imported) == part:
            continue
        # Private modules of the package itself are shared ground.
        if any(map(_is_private, imported.split(".")[2:])):
            if imported not in FROM_SCIKIT_LEARN:
                yield imported


@pytest.mark.parametrize("module", MODULES)
def test_no_private_name_crosses_a_package(module):
    if _part(module) is not None:  # sklearn_clue/__init__.py asks public parts only
        assert not list(_trespasses(_part(module), MODULES[module].read_text()))


@pytest.mark.parametrize(
    "part, source, is_wrong",
    [
        ("evaluation", "from sklearn_clue.explainers._clue import balance", True),
        ("evaluation", "import sklearn_clue.explainers._clue", True),
        ("explainers", "def f():\n    from sklearn_clue.generative import _vae", True),
        ("explainers", "from sklearn_clue._torch import _mix", True),
        ("explainers", "from sklearn_clue.uncertainty import _moments", True),
        ("explainers", "from sklearn_clue.explainers._search import adam", False),
        ("explainers", "from sklearn_clue import _rendering", False),
        ("explainers", "from sklearn_clue import __version__", False),
        ("explainers", "from sklearn_clue._validation import _fit_context", False),
        ("explainers", "from sklearn_clue.generative.protocols import A", False),
    ],
)
def test_trespasses_are_found(part, source, is_wrong):
    assert bool(list(_trespasses(part, source))) == is_wrong


@pytest.mark.parametrize("module", MODULES)
def test_one_door_to_private_scikit_learn(module):
    private = [
        name
        for name in _imports(MODULES[module].read_text())
        if name.startswith("sklearn.")
        and any(part.startswith("_") for part in name.split("."))
    ]
    assert not private or module == "sklearn_clue._validation"


@pytest.mark.parametrize("module", MODULES)
def test_only_plotting_imports_matplotlib(module):
    users = [n for n in _imports(MODULES[module].read_text()) if "matplotlib" in n]
    assert not users or _part(module) == "plotting"


PUBLIC_MODULES = ["sklearn_clue"] + [
    f"sklearn_clue.{info.name}"
    for info in pkgutil.iter_modules([str(PACKAGE)])
    if not info.name.startswith("_")
]


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_all_is_sorted_and_resolves(module):
    module = importlib.import_module(module)
    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_import_is_light():
    code = (
        "import sys, sklearn_clue\nprint(*{'matplotlib', 'polars'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""
