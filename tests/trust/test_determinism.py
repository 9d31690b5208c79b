"""The same seed gives the same bits, and what belongs to the user stays untouched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest
import zoo

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture(scope="module")
def expected(models):
    return zoo.hashes(models)


def test_same_seed_same_bits(expected):
    assert zoo.hashes(zoo.fitted_models()) == expected


@pytest.mark.filterwarnings("ignore:The validation bound")
def test_another_seed_changes_the_hashes(models, expected):
    """Hashes that could not tell would prove nothing."""
    other = models["vae"].__class__(2, (5,), max_iter=3, random_state=1)
    other.fit(zoo.table()[0])
    for what, found in zoo.hashes({"vae": other}).items():
        assert found != expected[what]


def test_same_bits_in_parallel_and_in_another_process(expected):
    run = subprocess.run(
        # Hashes of strings differ from process to process, and must not matter.
        [sys.executable, zoo.__file__, "2"],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == expected


def test_same_bits_after_a_round_trip(models, expected, tmp_path):
    joblib.dump(models, tmp_path / "models")
    assert zoo.hashes(joblib.load(tmp_path / "models")) == expected


@pytest.mark.filterwarnings("ignore:The validation bound")
def test_refit_after_a_round_trip_gives_the_same_bits(models, expected, tmp_path):
    joblib.dump(models["vae"], tmp_path / "vae")
    again = joblib.load(tmp_path / "vae").fit(zoo.table()[0])
    for what, found in zoo.hashes({"vae": again}).items():
        assert found == expected[what]


# The fixture around the whole suite.


VIOLATIONS = {
    "numpy's generator": "np.random.rand()",
    "torch's generator": "torch.rand(1)",
    "Python's generator": "random.random()",
    "torch's number of threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's deterministic mode": "torch.use_deterministic_algorithms(True)",
    "torch's recording of gradients": "torch.set_grad_enabled(False)",
    "numpy's handling of errors": "np.seterr(all='raise')",
    "the warning filters": "warnings.simplefilter('ignore')",
    "the environment": "os.environ['PLANTED'] = '1'",
    "the working directory": "os.chdir('/')",
}


def test_every_change_of_the_process_is_caught(pytester):
    """A test that changes something fails, under the name of what it changed."""
    pytester.makeconftest(CONFTEST.read_text())
    tests = "\n".join(
        f"def test_{position}():\n    {violation}\n"
        for position, violation in enumerate(VIOLATIONS.values())
    )
    imports = "import os, random, warnings\nimport numpy as np\nimport torch\n"
    pytester.makepyfile(f"{imports}\n{tests}\ndef test_good():\n    pass\n")
    result = pytester.runpytest_subprocess()
    # A test passes, and its teardown does not.
    result.assert_outcomes(passed=len(VIOLATIONS) + 1, errors=len(VIOLATIONS))
    result.stdout.fnmatch_lines(
        [f"The test changed {name}*" for name in VIOLATIONS], consecutive=False
    )
