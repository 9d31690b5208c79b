"""Models as explainers see them: read right, or refused by name."""

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from skorch import (
    NeuralNetBinaryClassifier,
    NeuralNetClassifier,
    NeuralNetRegressor,
)

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
)
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
    with pytest.raises(TypeError, match="KMeans is neither a classifier with"):
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
    with pytest.raises(TypeError, match="KMeans is neither a classifier with"):
        global_sensitivity(KMeans(), np.ones((2, 2)))


# What an explanation says is what the model says ------------------------------------


X3, Y3 = _problem(3)
X3 = X3.astype(np.float32).astype(np.float64)  # as a net is given them
Y2 = (Y3 > 0).astype(np.int64)
NUMBERS = X3[:, 0] * 3 + X3[:, 1] ** 2
COUNTS = np.random.default_rng(0).poisson(np.exp(X3[:, 0] / 2))


class Heads(torch.nn.Module):
    """A mean and a standard deviation of a target."""

    answers_with = "mean_std"

    def __init__(self, as_pair=False):
        super().__init__()
        self.layer = torch.nn.Linear(5, 2)
        self.as_pair = as_pair

    def forward(self, x):
        mean, raw = self.layer(x).chunk(2, 1)
        std = torch.nn.functional.softplus(raw)
        return (mean, std) if self.as_pair else torch.cat([mean, std], 1)


class TwoLogits(torch.nn.Module):
    def __init__(self, n_outputs=3):
        super().__init__()
        self.layer = torch.nn.Linear(5, n_outputs)

    def forward(self, x):
        return self.layer(x)


class FirstOfPair(torch.nn.Module):
    """A logit, and something else that skorch lets nets return."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.layer(x)[:, 0], x


def _hot(outputs):
    return (3 * outputs).softmax(-1)


def _net(kind, module, **settings):
    return kind(module, max_epochs=2, lr=0.1, verbose=0, train_split=None, **settings)


def _scaled(seed, scaler=None, **settings):
    mlp = MLPClassifier((6,), max_iter=40, random_state=seed)
    return make_pipeline(scaler or StandardScaler(), mlp)


def _regressor(**settings):
    return MLPRegressor(hidden_layer_sizes=(6,), max_iter=40, **settings)


def _known_probabilities(model, X):
    if isinstance(model, list):
        return np.mean([_known_probabilities(member, X) for member in model], axis=0)
    X = X.astype(np.float32) if hasattr(model, "module") else X
    return model.predict_proba(X)


LABELS3 = np.array(["a", "b", "c"])[Y3]

# Name -> the model, and the targets it is fitted to.
CONTRACTED = {
    "logistic": (LogisticRegression, Y2),
    "logistic of three": (LogisticRegression, LABELS3),
    "MLP": (lambda: _mlp(learning_rate_init=0.02), LABELS3),
    "MLP of two": (lambda: _mlp(learning_rate_init=0.02), Y2),
    "pipeline": (lambda: _scaled(0), LABELS3),
    "pipeline that reduces": (
        lambda: make_pipeline(PCA(3, random_state=0), _mlp()),
        LABELS3,
    ),
    "bagging": (lambda: BaggingClassifier(_mlp(), 3, random_state=0), LABELS3),
    "bagging of pipelines": (
        lambda: BaggingClassifier(_scaled(0), 3, max_features=0.6, random_state=0),
        LABELS3,
    ),
    "list": (lambda: [_mlp(), LogisticRegression()], LABELS3),
    "list of pipelines": (lambda: [_scaled(seed) for seed in range(3)], LABELS3),
    "list of pipelines that prepare alike": (
        lambda: [make_pipeline(PCA(3), _mlp()) for _ in range(2)],
        LABELS3,
    ),
    "list of pipelines of other scalers": (
        lambda: [
            _scaled(0, StandardScaler(with_mean=False)),
            _scaled(1, MinMaxScaler()),
            make_pipeline(MaxAbsScaler(), RobustScaler(), _mlp()),
            _scaled(2, RobustScaler(with_centering=False, with_scaling=False)),
        ],
        LABELS3,
    ),
    "net": (
        lambda: _net(
            NeuralNetClassifier, TwoLogits, criterion=torch.nn.CrossEntropyLoss
        ),
        Y3,
    ),
    "net with a nonlinearity": (
        lambda: _net(
            NeuralNetClassifier,
            TwoLogits,
            criterion=torch.nn.CrossEntropyLoss,
            predict_nonlinearity=_hot,
        ),
        Y3,
    ),
    "net with more outputs than labels": (
        lambda: _net(
            NeuralNetClassifier, TwoLogits, criterion=torch.nn.CrossEntropyLoss
        ),
        2 * Y2,
    ),
    "binary net": (
        lambda: _net(NeuralNetBinaryClassifier, FirstOfPair, criterion=_FirstLoss),
        Y2.astype(np.float32),
    ),
    "binary net with a threshold": (
        lambda: _net(
            NeuralNetBinaryClassifier, FirstOfPair, criterion=_FirstLoss, threshold=0.6
        ),
        Y2.astype(np.float32),
    ),
    "list of binary nets": (
        lambda: [
            _net(NeuralNetBinaryClassifier, FirstOfPair, criterion=_FirstLoss)
            for _ in range(2)
        ],
        Y2.astype(np.float32),
    ),
    "MLP regressor": (
        lambda: MLPRegressor(hidden_layer_sizes=(6,), max_iter=40),
        NUMBERS,
    ),
    "MLP regressor of two targets": (
        _regressor,
        np.stack([NUMBERS, X3[:, 2]], 1),
    ),
    "Poisson regressor": (
        lambda: _regressor(loss="poisson"),
        COUNTS.astype(float),
    ),
    "list of regressors": (
        lambda: [
            MLPRegressor(hidden_layer_sizes=(6,), max_iter=40, random_state=seed)
            for seed in range(2)
        ],
        NUMBERS,
    ),
    "net for numbers": (
        lambda: _net(NeuralNetRegressor, torch.nn.Linear(5, 1)),
        NUMBERS[:, None].astype(np.float32),
    ),
    "net for two numbers": (
        lambda: _net(NeuralNetRegressor, torch.nn.Linear(5, 2)),
        np.stack([NUMBERS, X3[:, 2]], 1).astype(np.float32),
    ),
    "net of a mean and a deviation": (
        lambda: _net(NeuralNetRegressor, Heads(as_pair=True), criterion=_GaussianLoss),
        NUMBERS[:, None].astype(np.float32),
    ),
}


class _FirstLoss(torch.nn.BCEWithLogitsLoss):
    def forward(self, outputs, y):
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        return super().forward(outputs, y)


class _GaussianLoss(torch.nn.Module):
    def forward(self, outputs, y):
        mean, std = outputs
        return (std.log() + ((y - mean) / std).square() / 2).mean()


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:The estimator is never"
)
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", CONTRACTED)
def test_an_explanation_says_what_the_model_says(name, is_frozen, own_process):
    make, y = CONTRACTED[name]
    torch.manual_seed(0)
    model = make()
    if is_frozen:
        members = model if isinstance(model, list) else [model]
        for position, member in enumerate(members):
            # Members of an ensemble may have seen other rows, and prepare differently.
            is_own = isinstance(model, list) and "alike" not in name
            kept = np.arange(len(y)) % 7 != position if is_own else slice(None)
            X = X3.astype(np.float32) if hasattr(member, "module") else X3
            member.fit(X[kept], y[kept])
        frozen = [FrozenEstimator(member) for member in members]
        model = frozen if isinstance(model, list) else frozen[0]
    explainer = LocalSensitivityExplainer(model, random_state=0).fit(X3, y)
    fitted = explainer.estimator_
    told = explainer.explain(X3)
    assert_allclose(
        told.uncertainty_before.total, explainer.predict_uncertainty(X3).total
    )
    if not explainer.is_classification_:
        members = fitted if isinstance(fitted, list) else [fitted]
        known = np.mean([_predict(member) for member in members], axis=0)
        assert_allclose(told.prediction_before, known, rtol=1e-5, atol=1e-5)
        assert_allclose(explainer.predict(X3), known, rtol=1e-5, atol=1e-5)
        return
    proba = _known_probabilities(fitted, X3)
    assert_allclose(explainer.predict_proba(X3), proba, atol=1e-5)
    entropy = -(proba * np.log(proba.clip(1e-12))).sum(1)
    assert_allclose(told.uncertainty_before.total, entropy, atol=1e-4)
    if isinstance(fitted, list):
        known = fitted[0].classes_[proba.argmax(1)]
    else:
        known = _predict(fitted)
    assert len(set(known)) > 1
    assert_array_equal(told.prediction_before, known)
    assert_array_equal(explainer.predict(X3), known)


def _predict(model):
    is_net = hasattr(model, "module")
    prediction = model.predict(X3.astype(np.float32) if is_net else X3)
    return prediction[:, 0] if prediction.shape[1:] == (1,) else prediction


class Cautious(LogisticRegression):
    """Probabilities that are not those of the coefficients."""

    def predict_proba(self, X):
        return 0.25 + 0.5 * super().predict_proba(X)


def test_subclasses_may_have_probabilities_of_their_own():
    explainer = NeighborExplainer(Cautious()).fit(X3, Y2)
    proba = explainer.estimator_.predict_proba(X3)
    assert proba.max() < 0.75 < LogisticRegression().fit(X3, Y2).predict_proba(X3).max()
    entropy = -(proba * np.log(proba)).sum(1)
    assert_allclose(explainer.predict_uncertainty(X3).total, entropy)


def test_a_threshold_is_the_models_own(own_process):
    torch.manual_seed(0)
    module = FirstOfPair()
    explainers = []
    for threshold in (0.5, 0.8):
        net = _net(NeuralNetBinaryClassifier, module, threshold=threshold).initialize()
        explainers.append(LocalSensitivityExplainer(FrozenEstimator(net)).fit(X3))
    low, high = (explainer.explain(X3).prediction_before for explainer in explainers)
    assert low.sum() > high.sum()
    nets = [explainer.estimator for explainer in explainers]
    with pytest.raises(ValueError, match=r"thresholds \['0.5', '0.8'\]. Give them one"):
        LocalSensitivityExplainer(nets).fit(X3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_members_are_matched_by_label():
    few = LABELS3 != "b"
    members = [_mlp().fit(X3[few], LABELS3[few]), _mlp().fit(X3, LABELS3)]
    explainer = LocalSensitivityExplainer([FrozenEstimator(m) for m in members])
    explainer.fit(X3)
    assert_array_equal(explainer.classes_, ["a", "b", "c"])
    first, second = (member.predict_proba(X3) for member in members)
    expected = (np.insert(first, 1, 0, axis=1) + second) / 2
    assert_allclose(explainer.predict_proba(X3), expected)
    again = pickle.loads(pickle.dumps(explainer))
    assert_allclose(again.predict_proba(X3), expected)
    members.append(_mlp().fit(X3, Y3))
    with pytest.raises(TypeError, match=r"of different types, got .*\[0, 1, 2\]"):
        as_provider(members)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prepare", [StandardScaler, PCA])
def test_an_ensemble_of_pipelines_is_kept(prepare):
    explainer = LocalSensitivityExplainer(
        [make_pipeline(prepare(), _mlp()) for _ in range(2)], random_state=0
    ).fit(X3, LABELS3)
    again = pickle.loads(pickle.dumps(explainer))
    assert_array_equal(
        again.explain(X3[:9]).counterfactuals, explainer.explain(X3[:9]).counterfactuals
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prepare", [PCA(3), MinMaxScaler(clip=True)])
def test_pipelines_that_prepare_in_their_own_ways_are_asked_for_values(prepare):
    members = [
        make_pipeline(clone(prepare), _mlp()).fit(X3[half], LABELS3[half])
        for half in (slice(70), slice(70, None))
    ]
    provider = as_provider(members)
    assert not provider.is_differentiable
    _, proba = provider.uncertainty_of_rows(X3)
    assert_allclose(proba, np.mean([m.predict_proba(X3) for m in members], axis=0))


# Refused by name ---------------------------------------------------------------------


def _fit(model, y):
    return LocalSensitivityExplainer(model).fit(X3, y)


@pytest.mark.parametrize("y", [Y3, Y2, Y3.astype(float)], ids=["three", "two", "float"])
def test_the_task_of_a_module_is_asked_for(y, own_process):
    module = torch.nn.Linear(5, 1)
    with pytest.raises(ValueError, match="Linear does not say whether it classifies"):
        _fit([module] * 3, y)
    module.answers_with = "mean"
    assert not _fit(module, y).is_classification_
    module.answers_with = "classes"
    if len(set(y)) == 2:
        assert _fit(module, y).is_classification_
    else:
        with pytest.raises(ValueError, match=r"1 column\(s\) for 3 classes"):
            _fit(module, y)
    module.answers_with = "class"
    with pytest.raises(ValueError, match="answers_with of Linear must be one of"):
        _fit(module, y)


def test_the_task_of_a_module_may_be_plain(own_process):
    assert _fit(torch.nn.Linear(5, 3), Y3).is_classification_
    assert _fit(torch.nn.Linear(5, 1), Y2 > 0).is_classification_
    assert _fit(torch.nn.Linear(5, 3), LABELS3).is_classification_
    assert not _fit(torch.nn.Linear(5, 1), NUMBERS).is_classification_
    with pytest.raises(ValueError, match="does not say whether .* got no y"):
        _fit(torch.nn.Linear(5, 1), None)
    module = torch.nn.Linear(5, 3)
    module.answers_with = "classes"
    assert_array_equal(_fit(module, None).classes_, [0, 1, 2])


def test_logits_must_be_as_many_as_classes(own_process):
    module = torch.nn.Linear(5, 3)
    with pytest.raises(ValueError, match="does not say whether .* 3 column"):
        _fit(module, 2 * Y2)
    module.answers_with = "classes"
    with pytest.raises(ValueError, match=r"3 column\(s\) for 2 classes"):
        _fit(module, 2 * Y2)
    nets = [
        _net(NeuralNetClassifier, TwoLogits, module__n_outputs=n).initialize()
        for n in (2, 3)
    ]
    with pytest.raises(ValueError, match=r"same classes or targets, got \[2, 3\]"):
        _fit([FrozenEstimator(net) for net in nets], None)
    with pytest.raises(ValueError, match="answer with probabilities.*nonlinearity"):
        _fit(FrozenEstimator(nets[0]), None)  # logits, and a criterion for log(p)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_several_labels_per_row_are_refused(own_process):
    y = np.stack([Y2, X3[:, 0] > 0, X3[:, 1] > 0], 1).astype(int)
    with pytest.raises(
        ValueError, match="several labels per row .* Explain one column"
    ):
        _fit(NeverFitted(), y)
    with pytest.raises(ValueError, match="fitted to 3 labels per row"):
        as_provider(_mlp().fit(X3, y))
    net = _net(NeuralNetClassifier, TwoLogits, criterion=torch.nn.BCEWithLogitsLoss)
    with pytest.raises(ValueError, match="must predict one label per row"):
        _fit(FrozenEstimator(net.initialize()), None)


class NeverFitted(MLPClassifier):
    def fit(self, X, y):
        raise AssertionError("It should have been refused before.")


def test_means_and_deviations_are_declared(own_process):
    module = torch.nn.Sequential(torch.nn.Linear(5, 2), torch.nn.Softplus())
    with pytest.raises(ValueError, match=r"2 columns for 1 target.* 'mean_std'"):
        _fit(module, NUMBERS)
    net = _net(NeuralNetRegressor, module).initialize()
    with pytest.raises(ValueError, match="2 columns for 1 target"):
        _fit(FrozenEstimator(net), NUMBERS)
    several = _fit(module, np.stack([NUMBERS, NUMBERS], 1))
    assert several.predict(X3).shape == (len(X3), 2)
    x = torch.as_tensor(X3, dtype=torch.float32)
    mean, std = module(x).detach().numpy().T
    module.answers_with = net.module_.answers_with = "mean_std"
    for model in (module, FrozenEstimator(net), [module, module]):
        explainer = _fit(model, NUMBERS)
        assert_allclose(explainer.predict_uncertainty(X3).aleatoric, std, rtol=1e-5)
        assert_allclose(explainer.predict(X3), mean, rtol=1e-5)
        assert_allclose(explainer.explain(X3).prediction_before, mean, rtol=1e-5)


@pytest.mark.parametrize(
    "module, message",
    [
        (torch.nn.Linear(5, 3), "even number of columns, got 3"),
        (torch.nn.Sequential(torch.nn.Linear(5, 2), torch.nn.LogSigmoid()), "negative"),
    ],
    ids=["odd", "negative"],
)
def test_deviations_that_make_no_sense(module, message):
    module.answers_with = "mean_std"
    with pytest.raises(ValueError, match=message):
        _fit(module, NUMBERS)


def test_a_pair_must_be_declared(own_process):
    module = Heads(as_pair=True)
    assert (_fit(module, NUMBERS).predict_uncertainty(X3).aleatoric > 0).all()
    module.answers_with = "mean"
    with pytest.raises(ValueError, match="got tuple. A pair of means and standard"):
        _fit(module, NUMBERS)


def test_classifiers_and_regressors_do_not_mix():
    with pytest.raises(TypeError, match="classifiers only or regressors only"):
        _fit([NeverFitted(), MLPRegressor()], Y2)


# Providers of others -----------------------------------------------------------------


class _Bowl:
    """The smallest provider: it says neither unit nor whether it has gradients."""

    is_classification = False

    def uncertainty(self, x):
        spread = x.square().sum(1)
        return Uncertainty(spread, spread, 0 * spread), x[:, :1]


class _Speaker(RegressorMixin, BaseEstimator):
    """An estimator that speaks for itself."""

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]

    def uncertainty_provider(self):
        return _Bowl()


@pytest.mark.parametrize("model", [_Bowl(), _Speaker(), FrozenEstimator(_Speaker())])
def test_the_smallest_provider_is_explained(model):
    explainer = LocalSensitivityExplainer(model, step_size=0.1).fit(X3, NUMBERS)
    told = explainer.explain(X3)
    assert_allclose(told.prediction_before, X3[:, 0], atol=1e-9)
    assert_allclose(told.uncertainty_before.total, (X3**2).sum(1))
    assert told.uncertainty_after.total.mean() < told.uncertainty_before.total.mean()
    assert_allclose(explainer.predict(X3), X3[:, 0], atol=1e-9)


def test_a_provider_may_say_its_unit():
    provider = _Bowl()
    provider.center, provider.scale = 7.0, 10.0
    told = LocalSensitivityExplainer(provider).fit(X3, NUMBERS).explain(X3[:5])
    assert_allclose(told.prediction_before, 7 + 10 * X3[:5, 0])
    assert_allclose(told.uncertainty_before.total, 10 * (X3[:5] ** 2).sum(1))


def test_rows_are_judged_without_gradients():
    class Steps(_Bowl):
        is_differentiable = False

        def uncertainty(self, x):
            assert not x.requires_grad and not torch.is_grad_enabled()
            spread = torch.as_tensor(np.floor(np.abs(x.numpy()).sum(1)))
            return Uncertainty(spread, 0 * spread, spread), x[:, :1]

    explainer = LocalSensitivityExplainer(Steps()).fit(X3, NUMBERS)
    assert_array_equal(
        explainer.predict_uncertainty(X3).total, np.floor(np.abs(X3).sum(1))
    )
    assert 0 < explainer.rejects(X3).mean() < 0.5
    for ask in (explainer.explain, partial(global_sensitivity, Steps())):
        with pytest.raises(TypeError, match="follows gradients .* by predict_uncert"):
            ask(X3)
