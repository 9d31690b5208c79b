"""Numbers stay numbers: mixed scales, far-off targets, many classes, many columns."""

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    VAEACImputer,
    VAEEncoder,
)

SMALL = {
    "hidden_layer_sizes": (8,),
    "n_draws": 6,
    "burn_in": 20,
    "thinning": 1,
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def in_a_hurry():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


def wild(X, factor=1e6):
    """Rows far beyond the ones given, in both directions and in each column."""
    far = [
        X.assign(**{name: sign * factor * X[name].abs().max()})
        for name in X.select_dtypes("number")
        for sign in (1, -1)
    ]
    return pd.concat([X, *far])


def gradients(estimator, X):
    """Gradients of all parts of the uncertainty by the encoded rows."""
    provider = estimator.uncertainty_provider()
    x = torch.as_tensor(estimator.encoder_.transform(X)).double().requires_grad_()
    parts, _ = provider.uncertainty(x)
    return [torch.autograd.grad(part.sum(), x, retain_graph=True)[0] for part in parts]


def check_entropies(classifier, X):
    n_classes = len(classifier.classes_)
    total, aleatoric, epistemic = classifier.predict_uncertainty(X)
    for part in (total, aleatoric, epistemic):
        assert np.isfinite(part).all()
        assert (part >= 0).all() and (part <= np.log(n_classes) * (1 + 1e-12)).all()
    np.testing.assert_allclose(total, aleatoric + epistemic, rtol=1e-9, atol=1e-12)
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-9)
    assert all(gradient.isfinite().all() for gradient in gradients(classifier, X))


def check_variances(regressor, X):
    total, aleatoric, epistemic = regressor.predict_uncertainty(X)
    unit = regressor.target_scale_
    for part in (total, aleatoric, epistemic):
        assert np.isfinite(part).all() and (part >= 0).all()
    np.testing.assert_allclose(
        (total / unit) ** 2,
        (aleatoric / unit) ** 2 + (epistemic / unit) ** 2,
        rtol=1e-9,
    )
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(std, total, rtol=1e-12)
    low, high = regressor.predict_interval(X).T
    assert np.isfinite([low, high]).all() and (low < high).all()
    # Of a mixture, both tails together hold a tenth: the mean is not far outside.
    assert (low <= mean + 3 * std).all() and (mean - 3 * std <= high).all()
    assert all(gradient.isfinite().all() for gradient in gradients(regressor, X))


def scales(n_rows=60):
    """Numbers of the sizes 1e-6, 1 and 1e6 side by side, and a category."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "small": 1e-6 * (signal + 0.1 * rng.normal(size=n_rows)),
            "plain": rng.normal(size=n_rows),
            "large": 1e6 * (signal + 0.1 * rng.normal(size=n_rows)),
            "kind": rng.choice(["a", "b"], n_rows),
        }
    ), signal


def test_classes_from_mixed_scales():
    X, signal = scales()
    classifier = BayesianMLPClassifier(**SMALL).fit(
        X, np.where(signal > 0, "up", "down")
    )
    check_entropies(classifier, wild(X))
    assert classifier.score(X, np.where(signal > 0, "up", "down")) > 0.9


@pytest.mark.parametrize("center, scale", [(1e9, 1.0), (-1e9, 1e-3), (0, 1e-9)])
def test_targets_far_from_zero(center, scale):
    X, signal = scales()
    y = center + scale * signal
    regressor = BayesianMLPRegressor(**SMALL).fit(X, y)
    check_variances(regressor, wild(X))
    # The unit and the origin of the target make no difference to what is learned.
    plain = BayesianMLPRegressor(**SMALL).fit(X, signal)
    np.testing.assert_allclose(
        (regressor.predict(X) - center) / scale, plain.predict(X), atol=0.01
    )
    np.testing.assert_allclose(
        regressor.predict_uncertainty(X).total / scale,
        plain.predict_uncertainty(X).total,
        rtol=0.01,
    )


def test_generative_models_of_mixed_scales():
    X, _ = scales()
    vae = VAEEncoder(2, (10,), max_iter=5, random_state=0).fit(X)
    assert np.isfinite(vae.score_samples(X)).all()
    assert np.isfinite(vae.transform(wild(X))).all()
    rebuilt = vae.reconstruct(X)
    for name in ("small", "plain", "large"):
        assert np.isfinite(rebuilt[name]).all()
        assert rebuilt[name].abs().max() < 100 * X[name].abs().max()
    imputer = VAEACImputer(2, (10,), max_iter=5, n_draws=5, random_state=0).fit(X)
    gaps = X.assign(large=X["large"].where(X["plain"] > 0), kind="a")
    filled = imputer.transform(gaps)
    assert np.isfinite(filled["large"]).all()
    assert filled["large"].abs().max() < 100 * X["large"].abs().max()
    assert np.isfinite(imputer.score_samples(gaps)).all()


def test_explanations_of_mixed_scales():
    X, signal = scales()
    explainer = CLUEExplainer(
        BayesianMLPRegressor(**SMALL),
        VAEEncoder(2, (10,), max_iter=5),
        max_iter=5,
        random_state=0,
    ).fit(X, 1e9 + signal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explanation = explainer.explain(wild(X.iloc[:5], factor=10.0))
    assert np.isfinite(explanation.distance).all()
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    assert np.isfinite(after.total).all() and (after.total <= before.total).all()
    # A wide range of 1e6 lets no digit of the one of 1e-6 vanish.
    changes = explanation.counterfactuals["small"] - explanation.X["small"]
    assert np.isfinite(changes).all() and changes.abs().max() > 0
    assert changes.abs().max() < 1e-3


def test_a_thousand_classes():
    n_classes = 1000
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n_classes, 3)), columns=list("abc"))
    y = np.arange(n_classes)
    classifier = BayesianMLPClassifier(**SMALL | {"batch_size": 250}).fit(X, y)
    assert len(classifier.classes_) == n_classes
    X = X.iloc[:20]
    check_entropies(classifier, wild(X))
    assert np.isin(classifier.predict(X), y).all()
    assert classifier.sample_y(X, 3, random_state=0).shape == (20, 3)


def test_five_hundred_features():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 500))).add_prefix("f")
    y = X["f0"].to_numpy() > 0
    check_entropies(BayesianMLPClassifier(**SMALL).fit(X, y), X)
    check_variances(BayesianMLPRegressor(**SMALL).fit(X, X["f0"]), X)
    vae = VAEEncoder("auto", (10,), max_iter=2, random_state=0).fit(X)
    assert np.isfinite(vae.score_samples(X.iloc[:10], n_importance=5)).all()


def test_extreme_probabilities_have_gradients():
    """Where a class is certain to the last bit, the slope is zero and not NaN."""
    X = pd.DataFrame({"x": np.linspace(-1, 1, 40)})
    classifier = BayesianMLPClassifier(**SMALL).fit(X, X["x"] > 0)
    far = pd.DataFrame({"x": [0.0, 1e3, -1e6, 1e12, -1e15]})
    check_entropies(classifier, far)
    regressor = BayesianMLPRegressor(**SMALL).fit(X, X["x"])
    check_variances(regressor, far)


# Prediction of many rows works block by block: beyond input and output, memory does
# not grow with their number.
MANY = """
import resource, warnings
import numpy as np
from sklearn_clue import BayesianMLPClassifier

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 10))
classifier = BayesianMLPClassifier(
    (50, 50), n_draws=50, burn_in=0, thinning=1, random_state=0
).fit(X, X[:, 0] > 0)
many = np.tile(X, ({n_rows} // 200, 1))
classifier.predict_uncertainty(many[:20_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = classifier.predict_uncertainty(many).total
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert total.shape == ({n_rows},) and np.isfinite(total).all()
print(before, after)
"""


def peak_memory(n_rows):
    """Peak memory before and after the prediction of so many rows, in MB."""
    script = textwrap.dedent(MANY.format(n_rows=n_rows))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    unit = 1024 if sys.platform != "darwin" else 1024**2
    return [int(peak) / unit for peak in run.stdout.split()]


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory():
    # The answer is three columns of 8 MB, held once in blocks and once whole. All draws
    # at once would be 800 MB.
    before, after = peak_memory(1_000_000)
    print(f"Peak of {after:.0f} MB, {after - before:.0f} MB of them for the prediction")
    assert after - before < 100
