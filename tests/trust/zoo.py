"""One small fitted model of every kind, and all that they have to say.

As a script, `python zoo.py n_jobs` fits them and prints a hash of each result.
"""

import hashlib
import json
import sys
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    CLUEExplainerCV,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    UFIDOExplainer,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.bayesian import _mlp
from sklearn_clue.evaluation import GroundTruth
from sklearn_clue.generative import TwoLevelVAEAC

TINY = {"hidden_layer_sizes": (5,), "n_draws": 4, "burn_in": 20, "thinning": 1}


def table(n_rows=120):
    """Rows of every kind of column, labels and values."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "income": rng.normal(50, 15, n_rows),
            "job": pd.Categorical(rng.choice(["clerk", "coach", "cook"], n_rows)),
            "town": rng.choice(["York", "Bath"], n_rows),
            "smoker": rng.random(n_rows) < 0.4,
        }
    )
    score = X["income"] + 12 * (X["job"] == "cook") + rng.normal(0, 8, n_rows)
    return X, np.where(score > 54, "yes", "no"), score.to_numpy()


def fitted_models(n_jobs=None):
    """Fit a model of every kind to `table`."""
    X, labels, values = table()
    chains = {**TINY, "n_jobs": n_jobs, "random_state": 0}
    members = {"hidden_layer_sizes": (5,), "n_members": 2, "max_iter": 5}
    members |= {"n_jobs": n_jobs, "random_state": 0}
    vae = VAEEncoder(2, (5,), max_iter=3, random_state=0)
    imputer = VAEACImputer(2, (5,), max_iter=3, n_draws=5, random_state=0)
    search = {"n_explanations": 2, "batch_size": 8, "n_jobs": n_jobs, "random_state": 0}
    models = {
        "encoder": TabularEncoder(),
        "classifier": BayesianMLPClassifier(**chains),
        "regressor": BayesianMLPRegressor(**chains),
        "vae": vae,
        "imputer": imputer,
        "two_level": TwoLevelVAEAC(imputer, vae, random_state=0),
        "explainer": CLUEExplainer(BayesianMLPClassifier(**chains), vae, **search),
        "explainer_lambda": CLUEExplainer(
            BayesianMLPClassifier(**chains), vae, distance_weight=2.0, **search
        ),
        "explainer_cv": CLUEExplainerCV(
            BayesianMLPClassifier(**chains),
            vae,
            distance_weights=[1.0, 3.0],
            cv=2,
            **search,
        ),
        "neighbors": NeighborExplainer(BayesianMLPClassifier(**chains), **search),
        "sensitivity": LocalSensitivityExplainer(
            BayesianMLPClassifier(**chains), batch_size=8, n_jobs=n_jobs
        ),
        "ufido": UFIDOExplainer(
            BayesianMLPClassifier(**chains),
            imputer,
            max_iter=3,
            batch_size=8,
            n_jobs=n_jobs,
            random_state=0,
        ),
        "ground_truth": GroundTruth(
            TwoLevelVAEAC(imputer, vae, random_state=0), n_importance=10
        ),
        "explainer_linear": CLUEExplainer(LogisticRegression(), vae, **search),
        "ensemble_classifier": DeepEnsembleClassifier(**members),
        "ensemble_regressor": DeepEnsembleRegressor(**members),
    }
    with warnings.catch_warnings(), patch.object(_mlp, "STACK_BELOW", 0):
        # Each chain on its own, as large ones are, so that `n_jobs` has work to share.
        warnings.simplefilter("ignore")  # nobody expects them to be good
        for name, model in models.items():
            # Only scikit-learn's own models need numbers.
            rows = X[["age", "income"]] if name == "explainer_linear" else X
            y = values if name.endswith("regressor") else labels
            model.fit(rows, y)
            if name.startswith("ensemble"):
                model.calibrate(rows, y)
    return models


def answers(name, model, n_rows=20):
    """All that a model has to say, as arrays."""
    X = table()[0][:n_rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _answers(name, model, X)


def _answers(name, model, X):
    if name == "encoder":
        encoded = model.transform(X)
        return {"encoded": encoded, "decoded": model.inverse_transform(encoded)}
    if name.endswith(("classifier", "regressor")):
        draws = {f"draws {i}": part for i, part in enumerate(model.coefs_)}
        state = getattr(model, "chain_state_", ())
        draws |= {f"state {i}": part for i, part in enumerate(state)}
        return {
            **draws,
            "posterior": model.posterior_predictive(X),
            **model.predict_uncertainty(X)._asdict(),
            "sample": model.sample_y(X, 2, random_state=0),
        }
    if name == "imputer":
        holes = X.mask(np.arange(X.size).reshape(X.shape) % 3 == 0)
        return {
            "filled": model.transform(holes),
            "density": model.score_samples(holes, 10),
            "sample": model.sample(holes, random_state=0)[0],
        }
    if name in ("vae", "two_level"):
        latents = {"latents": model.transform(X)} if name == "vae" else {}
        return {
            **latents,
            "density": model.score_samples(X, 10),
            "sample": model.sample(5, random_state=0),
        }
    if name == "ground_truth":
        return {
            "proba": model.predict(X),
            "density": model.log_density(X),
            "sample": model.sample(5, random_state=0)[0],
        }
    X = X[list(model.feature_names_in_)]
    explanation = model.explain(X)
    path = {} if explanation.path is None else {"path": explanation.path.latents}
    return {
        "proba": model.predict_proba(X),
        "judged": np.stack(model.predict_uncertainty(X)),
        "counterfactuals": explanation.counterfactuals,
        "encoded": explanation.encoded_counterfactuals,
        "distance": explanation.distance,
        **path,
    }


def hashes(models):
    """A hash of each answer of each model."""
    found = {}
    for name, model in models.items():
        for what, answer in answers(name, model).items():
            if isinstance(answer, pd.DataFrame):
                answer = answer.select_dtypes("number").astype(np.float64).to_numpy()
            content = np.ascontiguousarray(answer).tobytes()
            found[f"{name}: {what}"] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(hashes(fitted_models(int(sys.argv[1])))))
