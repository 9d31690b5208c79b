"""Models as explainers see them: read right, or refused by name."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch import (
    NeuralNetBinaryClassifier,
    NeuralNetClassifier,
    NeuralNetRegressor,
)

from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor, TabularEncoder
from sklearn_clue.providers import as_provider, global_sensitivity
from sklearn_clue.uncertainty import Uncertainty, UncertaintyProvider


def _problem(n_classes):
    return make_classification(
        150,
        5,
        n_informative=4,
        n_redundant=0,
        n_classes=n_classes,
        n_clusters_per_class=1,
        random_state=0,
    )


def _mlp(**settings):
    return MLPClassifier((7, 5), max_iter=30, random_state=0, **settings)


CLASSIFIERS = {
    "logistic": LogisticRegression(),
    **{
        name: _mlp(activation=name) for name in ("identity", "logistic", "tanh", "relu")
    },
    "bagging": BaggingClassifier(
        _mlp(), 4, max_features=0.6, max_samples=0.05, random_state=0
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rebuilt_classifiers_say_the_same(name, n_classes):
    X, y = _problem(n_classes)
    model = clone(CLASSIFIERS[name]).fit(X, y)
    provider = as_provider(model)
    assert isinstance(provider, UncertaintyProvider) and provider.is_classification
    x = torch.as_tensor(X, dtype=torch.float64).requires_grad_()
    parts, proba = provider.uncertainty(x)
    assert_allclose(proba.detach().numpy(), model.predict_proba(X), atol=1e-5)
    (gradient,) = torch.autograd.grad(parts.total.sum(), x)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0
    total, aleatoric, epistemic = (part.detach().numpy() for part in parts)
    assert_allclose(total, aleatoric + epistemic, atol=1e-10)
    assert (epistemic.max() > 1e-3) == (name == "bagging")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_ensemble_of_regressors():
    X, y = make_regression(80, 3, random_state=0)
    members = [
        MLPRegressor(hidden_layer_sizes=(6,), max_iter=30, random_state=seed).fit(X, y)
        for seed in range(3)
    ]
    parts, mean = as_provider(members).uncertainty(torch.as_tensor(X))
    said = np.stack([member.predict(X) for member in members])
    assert_allclose(mean[:, 0], said.mean(0))
    assert_allclose(parts.epistemic, said.std(0))
    assert_array_equal(parts.aleatoric, np.zeros(80))
    alone = as_provider(members[0]).uncertainty(torch.as_tensor(X))[0]
    assert_array_equal(alone.total, np.zeros(80))


@pytest.mark.usefixtures("own_process")
def test_torch_modules_may_answer_in_several_ways():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    logits = torch.nn.Linear(3, 4)
    proba = torch.nn.Sequential(logits, torch.nn.Softmax(1))
    a, b = (as_provider(m, n_classes=4).uncertainty(x)[1] for m in (logits, proba))
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert logits.weight.requires_grad  # the user's module is left alone
    assert not a.requires_grad  # but nobody differentiates by its weights here
    one_logit = torch.nn.Linear(3, 1)
    flat = torch.nn.Sequential(one_logit, torch.nn.Flatten(0))
    for module in (one_logit, flat):
        binary = as_provider(module, n_classes=2).uncertainty(x)[1]
        torch.testing.assert_close(
            binary[:, 1], one_logit(x)[:, 0].double().sigmoid().detach()
        )
        torch.testing.assert_close(binary.sum(1), torch.ones(6).double())

    class MeanAndSpread(torch.nn.Module):
        answers_with = "mean_std"

        def forward(self, x):
            return torch.stack([x.sum(1), x.square().sum(1)], 1)

    parts, mean = as_provider(MeanAndSpread()).uncertainty(x)
    torch.testing.assert_close(mean[:, 0], x.double().sum(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        parts.aleatoric, x.double().square().sum(1), atol=1e-5, rtol=1e-5
    )
    # Two columns are two targets, unless the module says otherwise.
    parts, mean = as_provider(torch.nn.Linear(3, 2)).uncertainty(x)
    assert mean.shape == (6, 2) and not parts.aleatoric.any()


@pytest.mark.parametrize(
    "net, n_outputs",
    [
        (NeuralNetRegressor, 1),
        (partial(NeuralNetClassifier, criterion=torch.nn.CrossEntropyLoss), 3),
        (NeuralNetBinaryClassifier, 1),
    ],
    ids=["regressor", "classifier", "binary"],
)
def test_skorch_nets_say_the_same(net, n_outputs, own_process):
    layers = [torch.nn.Linear(4, n_outputs)]
    if net is NeuralNetBinaryClassifier:
        layers.append(torch.nn.Flatten(0))
    net = net(torch.nn.Sequential(*layers)).initialize()
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    provider = as_provider(net)
    parts, prediction = provider.uncertainty(torch.as_tensor(x))
    assert provider.is_classification == is_classifier(net)
    known = net.predict_proba(x) if is_classifier(net) else net.predict(x)
    assert_allclose(prediction, known, atol=1e-6)
    assert (parts.total > 0).all() == is_classifier(net)


@pytest.mark.usefixtures("own_process")
def test_providers_that_make_no_sense():
    with pytest.raises(TypeError, match="KMeans cannot be differentiated"):
        as_provider(KMeans())
    with pytest.raises(ValueError, match="at least one member"):
        as_provider([])
    with pytest.raises(TypeError, match="cannot hold a BayesianMLPClassifier"):
        as_provider([BayesianMLPClassifier()])
    for model in (MLPClassifier(), NeuralNetClassifier(torch.nn.Linear(2, 2))):
        with pytest.raises(NotFittedError):
            as_provider(model)
    X, y = _problem(2)
    mixed = [LogisticRegression().fit(X, y), torch.nn.Linear(5, 1)]
    with pytest.raises(TypeError, match="classifiers only or regressors only"):
        as_provider(mixed)


# Sensitivity ------------------------------------------------------------------------


class _Slopes:
    """A provider that is unsure by a known amount per input."""

    is_classification = False
    scale = 10.0

    def uncertainty(self, x):
        aleatoric = 2 * x[:, 0] - 3 * x[:, 1]
        epistemic = x[:, 1].square()
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic), x[:, :1]


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("aleatoric", [20.0, 30.0]),
        ("epistemic", [0.0, 25.0]),
        ({"aleatoric": 1.0, "epistemic": 2.0}, [20.0, 60.0]),
    ],
)
def test_sensitivity_of_a_known_function(kind, expected):
    # d(epistemic)/db is 1 and -4, of mean size 2.5; with the weights, d/db is -1 and
    # -11. The unit of the target is 10.
    X = pd.DataFrame({"a": [5.0, 7.0], "b": [0.5, -2.0]})
    told = global_sensitivity(_Slopes(), X, uncertainty=kind)
    assert_allclose(told, expected)
    assert list(told.index) == ["a", "b"] and told.name == "sensitivity"


def _entropy_slope(logit):
    proba = 1 / (1 + np.exp(-logit))
    return -logit * proba * (1 - proba)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_sensitivity_is_per_standard_deviation(is_scaled):
    X, y = make_classification(n_features=3, n_redundant=0, random_state=0)
    X = pd.DataFrame(X * [1, 10, 100], columns=["a", "b", "c"])
    model = LogisticRegression(max_iter=1000)
    if is_scaled:
        model = make_pipeline(StandardScaler(), model)
    model.fit(X, y)
    slope = np.abs(_entropy_slope(model.decision_function(X))).mean()
    coef = np.abs(model[-1].coef_[0] if is_scaled else model.coef_[0] * X.std(ddof=0))
    told = global_sensitivity(FrozenEstimator(model), X)
    assert_allclose(told, slope * coef)
    assert list(told.index) == ["a", "b", "c"]
    assert list(global_sensitivity(model, X.to_numpy()).index) == [0, 1, 2]
    few = make_pipeline(SelectKBest(k=2), LogisticRegression()).fit(X, y)
    chosen = X.columns[few[0].get_support()]
    assert list(global_sensitivity(few, X).index) == list(chosen)


def test_sensitivity_of_a_category_is_that_of_a_change():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300), "job": rng.choice(list("xyz"), 300)})
    y = X["a"] + 2 * (X["job"] == "x") + rng.normal(size=300) > 1
    model = make_pipeline(TabularEncoder(), LogisticRegression()).fit(X, y)
    slope = np.abs(_entropy_slope(model.decision_function(X)))
    number, *block = model[-1].coef_[0]
    own = np.array(block)[X["job"].map({"x": 0, "y": 1, "z": 2})]
    change = np.abs(np.array(block) - own[:, None]).sum(1) / 2
    told = global_sensitivity(model, X)
    assert_allclose(told["job"], (slope * change).mean())
    assert_allclose(told["a"], (slope * abs(number)).mean())
    assert told.name == "sensitivity"


def test_sensitivity_of_bayesian_networks():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "noise": rng.uniform(-1, 1, 400),
            "idle": rng.normal(size=400),
            "kind": rng.choice(["p", "q"], 400),
        }
    )
    y = 100 * np.exp(X["noise"]) * rng.normal(size=400)
    model = BayesianMLPRegressor((20,), n_draws=10, burn_in=100, thinning=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(random_state=0).fit(X, y)
    told = global_sensitivity(model, X, uncertainty="aleatoric")
    assert list(told.index) == ["noise", "idle", "kind"]
    assert told.idxmax() == "noise"
    # d(100 exp(u)) per standard deviation of u, which is uniform in [-1, 1].
    assert 0.5 < told["noise"] / (100 * np.sinh(1) / np.sqrt(3)) < 1.5
    piped = make_pipeline(FunctionTransformer(), FrozenEstimator(model))
    assert_allclose(global_sensitivity(piped, X, uncertainty="aleatoric"), told)


@pytest.mark.parametrize("as_list", [False, True])
def test_sensitivity_of_ensembles_and_modules(as_list, own_process):
    X, y = make_classification(n_features=4, random_state=0)
    torch.manual_seed(0)
    nets = [torch.nn.Linear(4, 2) for _ in range(3)]
    model = nets if as_list else nets[0]
    told = global_sensitivity(model, X, n_classes=2, uncertainty="epistemic")
    assert (told > 0).all() == as_list
    bagging = BaggingClassifier(LogisticRegression(), n_estimators=3, random_state=0)
    assert (global_sensitivity(bagging.fit(X, y), X) > 0).all()


def test_sensitivity_errors():
    with pytest.raises(ValueError, match="uncertainty must be 'total'"):
        global_sensitivity(_Slopes(), np.ones((2, 2)), uncertainty="none")
    with pytest.raises(ValueError, match="Input X contains NaN"):
        global_sensitivity(_Slopes(), np.full((2, 2), np.nan))
    with pytest.raises(TypeError, match="KMeans cannot be differentiated"):
        global_sensitivity(KMeans(), np.ones((2, 2)))
