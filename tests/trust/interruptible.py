"""Do one long thing that a test interrupts, and say what is left of it.

`python interruptible.py task n_jobs [folder]` prints `ready` before it begins.
"""

import signal
import sys
import time
import warnings
from unittest.mock import patch

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue._progress import EpochProgress
from sklearn_clue.bayesian import _mlp
from sklearn_clue.bayesian._checkpoint import Checkpoint

# Each chain on its own, saved after each epoch.
CHAINS = {"hidden_layer_sizes": (10,), "n_draws": 10, "burn_in": 20, "thinning": 2}


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X[:, 0] + rng.normal(size=60) > 0


def chains(folder=None, **settings):
    settings = {**CHAINS, "random_state": 0, "checkpoint_dir": folder, **settings}
    return BayesianMLPClassifier(**settings)


def fit_chains(model):
    with (
        warnings.catch_warnings(),
        patch.object(_mlp, "STACK_BELOW", 0),
        patch.object(Checkpoint, "min_seconds", 0.0),
        patch.object(Checkpoint, "max_share", 1e9),
    ):
        warnings.simplefilter("ignore")
        return model.fit(*data())


def main(task, n_jobs, folder=None):
    # Shells let what they start in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    X, y = data()
    vae = VAEEncoder(2, (10,), max_iter=5, random_state=0)
    explainer = CLUEExplainer(LogisticRegression(), vae, batch_size=4, n_jobs=n_jobs)
    if task == "chains":  # long enough for any moment to fall into
        model, short = chains(folder, n_draws=100_000, n_jobs=n_jobs), {"n_draws": 2}
        work, use = lambda: fit_chains(model), model.predict_proba
    elif task == "killed_chains":  # slowly, so that it is not done before the end
        end_epoch = EpochProgress.end_epoch

        def wait(self, **figures):
            time.sleep(0.05)
            return end_epoch(self, **figures)

        EpochProgress.end_epoch = wait
        model, short = chains(folder, n_jobs=n_jobs), {}
        work, use = lambda: fit_chains(model), model.predict_proba
    elif task == "vae":
        model, short = vae, {"max_iter": 2}
        model.set_params(max_iter=100_000, early_stopping=False)
        work, use = lambda: model.fit(X), model.transform
    elif task == "explain":
        explainer.fit(X, y)
        rows = np.tile(X, (200, 1))
        work, use = lambda: explainer.explain(rows), explainer.explain
    else:
        raise ValueError(task)
    print("ready", flush=True)
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    if any(name.startswith("torch._dynamo") for name in sys.modules):
        # An import that is cut off takes back the package, but not its modules.
        assert "torch._dynamo" in sys.modules
    try:
        use(X[:8])
        print("usable", flush=True)
    except NotFittedError:
        print("unfitted", flush=True)
    if task != "explain":
        model.set_params(**short)
        work()
    use(X[:8])
    print("usable again", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
