"""Fit, explain, save and load for a long time: nothing piles up."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="memory and files are read from /proc"
)

# In a process of its own: what other tests left behind is no part of the slope.
ROUNDS = """
import json, os, resource, sys, tempfile, warnings

import joblib
import numpy as np
import pandas as pd

import sklearn_clue.bayesian._mlp
from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder

warnings.simplefilter("ignore")
sklearn_clue.bayesian._mlp.MIN_ADAPTATION = 10
rng = np.random.default_rng(0)
X = pd.DataFrame({"a": rng.normal(size=40), "b": rng.choice(list("xyz"), 40)})
y = X["a"] > 0
memory, n_files, answers = [], [], []
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "explainer.joblib")
    for _ in range(int(sys.argv[1])):
        explainer = CLUEExplainer(
            BayesianMLPClassifier((5,), n_draws=4, burn_in=0, thinning=1, n_chains=1),
            VAEEncoder(2, (5,), max_iter=2),
            max_iter=3,
            random_state=0,
        ).fit(X, y)
        joblib.dump(explainer, path)
        explanation = joblib.load(path).explain(X[:4])
        explanation._repr_html_()
        explanation.to_html(os.path.join(folder, "page.html"))
        answers.append(float(explanation.distance.sum()))
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        memory.append(pages * resource.getpagesize() / 2**20)
        n_files.append(len(os.listdir("/proc/self/fd")))
print(json.dumps([memory, n_files, answers]))
"""


def run(n_rounds):
    """Memory in MB, open files and an answer after each round."""
    process = subprocess.run(
        [sys.executable, "-c", ROUNDS, str(n_rounds)],
        capture_output=True,
        text=True,
        check=True,
    )
    return map(np.array, json.loads(process.stdout))


def check(n_rounds, n_warm):
    """Look at the rounds after the first ones, in which caches fill."""
    memory, n_files, answers = run(n_rounds)
    slope = np.polyfit(np.arange(n_rounds - n_warm), memory[n_warm:], 1)[0]
    print(f"Memory grows by {slope:.3f} MB per round")
    assert slope < 0.1
    assert (n_files[n_warm:] == n_files[n_warm]).all()
    assert (answers == answers[0]).all()


def test_thirty_rounds():
    check(30, n_warm=15)


@pytest.mark.slow
def test_two_hundred_rounds():
    check(200, n_warm=50)
