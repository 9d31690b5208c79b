"""Models without gradients: how their uncertainty splits, and what is refused."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import entr, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
    RidgeClassifier,
)
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sklearn_clue import (
    BayesianMLPClassifier,
    CLUEExplainer,
    NeighborExplainer,
    PredictedNoiseRegressor,
)
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.providers import (
    as_provider,
    as_table_provider,
    check_model,
    decide,
    labels_of,
    read_task,
    unseen_uncertainty,
)
from sklearn_clue.uncertainty import TableProvider

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
LABELS = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0, 1])]
NUMBERS = 3 * X[:, 0] + X[:, 1] ** 2 + 0.5 * RNG.normal(size=150)
NEW = RNG.normal(size=(40, 3))


def entropy(proba):
    return -(proba * np.log(proba.clip(1e-300))).sum(-1)


def encoded(model):
    """What most people do about categories."""
    encoder = make_column_transformer(
        (OneHotEncoder(), ["material", "finish"]), remainder="passthrough"
    )
    return make_pipeline(encoder, model)


# What every one of them keeps ---------------------------------------------------------


CLASSIFIERS = {
    "forest": RandomForestClassifier(20, random_state=0),
    "extra trees": ExtraTreesClassifier(20, min_samples_leaf=4, random_state=0),
    "bagged trees": BaggingClassifier(n_estimators=9, max_features=2, random_state=0),
    "bagged neighbours": BaggingClassifier(
        KNeighborsClassifier(), 5, max_samples=0.1, max_features=2, random_state=0
    ),
    "soft vote": VotingClassifier(
        [("nb", GaussianNB()), ("forest", RandomForestClassifier(5, random_state=0))],
        voting="soft",
        weights=[3, 1],
    ),
    "boosting": HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
    "stack": StackingClassifier([("nb", GaussianNB())], LogisticRegression(), cv=2),
    "search": GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [3]}, cv=2),
    "tree": DecisionTreeClassifier(max_depth=3),
    "pipeline": make_pipeline(StandardScaler(), KNeighborsClassifier()),
}
DRAWS = {"forest", "extra trees", "bagged trees", "bagged neighbours", "soft vote"}


def _check_contract(model, provider):
    assert isinstance(provider, TableProvider) and provider.takes_tables
    assert not provider.is_differentiable
    assert as_provider(provider) is provider
    parts, prediction = provider.uncertainty_of_rows(NEW)
    for part in parts:
        assert part.shape == (40,) and part.dtype == np.float64 and (part >= 0).all()
    for n in (1, 3):
        few, said = provider.uncertainty_of_rows(NEW[:n])
        assert_allclose(said, prediction[:n], rtol=1e-12)
        assert_allclose(np.array(few), np.array(parts)[:, :n], rtol=1e-12, atol=1e-15)
    again = pickle.loads(pickle.dumps(provider)).uncertainty_of_rows(NEW)[0]
    assert_array_equal(np.array(again), np.array(parts))
    return parts, prediction


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    model = CLASSIFIERS[name]
    check_model(model)
    model.fit(X, LABELS)
    provider = as_provider(FrozenEstimator(model))
    assert provider.is_classification and read_task(model, X, LABELS)
    assert_array_equal(labels_of(model, 3), ["a", "b", "c"])
    parts, proba = _check_contract(model, provider)
    assert_allclose(proba, model.predict_proba(NEW), atol=1e-12)
    assert_allclose(parts.total, entropy(proba), atol=1e-12)
    assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-12)
    assert (parts.epistemic.max() > 1e-3) == (name in DRAWS)
    assert provider.has_epistemic == (name in DRAWS)


REGRESSORS = {
    "forest": RandomForestRegressor(20, min_samples_leaf=4, random_state=0),
    "extra trees": ExtraTreesRegressor(20, random_state=0),
    "forest of medians": RandomForestRegressor(
        8, criterion="absolute_error", random_state=0
    ),
    "bagged trees": BaggingRegressor(n_estimators=9, max_features=2, random_state=0),
    "bagged lines": BaggingRegressor(LinearRegression(), 9, random_state=0),
    "vote": VotingRegressor(
        [("a", LinearRegression()), ("b", BayesianRidge())], weights=[3, 1]
    ),
    "process": GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True),
    "Bayesian line": BayesianRidge(),
    "sparse line": ARDRegression(),
    "noise": PredictedNoiseRegressor(LinearRegression()),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    model = REGRESSORS[name]
    check_model(model)
    model.fit(X, NUMBERS)
    provider = as_provider(model)
    assert not provider.is_classification and not read_task(model, X, NUMBERS)
    parts, mean = _check_contract(model, provider)
    assert_allclose(mean[:, 0], model.predict(NEW), rtol=1e-9)
    assert_allclose(parts.total**2, parts.aleatoric**2 + parts.epistemic**2)
    assert (parts.total > 0).all()
    assert provider.has_epistemic == (parts.epistemic > 0).all()


# Known answers -----------------------------------------------------------------------


def test_members_of_a_vote_are_weighted():
    vote = CLASSIFIERS["soft vote"].fit(X, LABELS)
    parts, _ = as_provider(vote).uncertainty_of_rows(NEW)
    naive, forest = (member.predict_proba(NEW) for member in vote.estimators_)
    trees = vote.estimators_[1].estimators_
    of_trees = np.mean([entropy(tree.predict_proba(NEW)) for tree in trees], axis=0)
    assert_allclose(parts.aleatoric, 0.75 * entropy(naive) + 0.25 * of_trees)
    assert_allclose(parts.total, entropy(0.75 * naive + 0.25 * forest))
    vote = REGRESSORS["vote"].fit(X, NUMBERS)
    parts, _ = as_provider(vote).uncertainty_of_rows(NEW)
    line, bayes = vote.estimators_
    _, std = bayes.predict(NEW, return_std=True)
    gap = line.predict(NEW) - bayes.predict(NEW)
    assert_allclose(parts.total**2, 0.25 * std**2 + 0.75 * 0.25 * gap**2)
    assert_allclose(parts.aleatoric**2, 0.25 / bayes.alpha_)


def test_a_process_tells_its_noise():
    kernel = ConstantKernel(4.0, "fixed") * RBF(1.0, "fixed")
    quiet = GaussianProcessRegressor(kernel, alpha=0.09, optimizer=None)
    noisy = GaussianProcessRegressor(kernel + WhiteKernel(0.09), optimizer=None)
    total, aleatoric, epistemic = as_provider(
        noisy.fit(X, NUMBERS)
    ).uncertainty_of_rows(NEW)[0]
    assert_allclose(aleatoric, 0.3)
    known = quiet.fit(X, NUMBERS).predict(NEW, return_std=True)[1]
    assert_allclose(epistemic, known, rtol=1e-6)
    parts, _ = as_provider(quiet).uncertainty_of_rows(NEW)
    assert_allclose(parts.epistemic, known)
    assert not parts.aleatoric.any()
    # Standardised targets are the process's own affair.
    noisy.set_params(normalize_y=True).fit(X, 100 * NUMBERS)
    parts, _ = as_provider(noisy).uncertainty_of_rows(NEW)
    assert_allclose(parts.aleatoric, 0.3 * (100 * NUMBERS).std())


def test_a_bayesian_line_tells_its_noise():
    for model in (BayesianRidge(), ARDRegression()):
        parts, _ = as_provider(model.fit(X, NUMBERS)).uncertainty_of_rows(NEW)
        assert_allclose(parts.aleatoric, 1 / np.sqrt(model.alpha_))
        _, std = model.predict(NEW, return_std=True)
        assert_allclose(parts.total, std)


def test_predicted_noise_is_noise():
    model = PredictedNoiseRegressor(LinearRegression()).fit(X, NUMBERS)
    parts, _ = as_provider(model).uncertainty_of_rows(NEW)
    assert_allclose(parts.aleatoric, model.predict_noise(NEW))
    assert not parts.epistemic.any()


class Boosted(RegressorMixin, BaseEstimator):
    """As NGBoost answers: a distribution with `loc` and `scale`, or of scipy."""

    def __init__(self, is_scipy=False):
        self.is_scipy = is_scipy

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return X[:, 0]

    def pred_dist(self, X):
        class Given:
            loc, scale = X[:, 0], 1 + X[:, 1] ** 2

        class OfScipy:
            def mean(self):
                return Given.loc

            def std(self):
                return Given.scale

        return OfScipy() if self.is_scipy else Given()


class Probabilistic:
    """As skpro answers: variances in a frame, and no tags of scikit-learn."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return pd.DataFrame({"y": X[:, 0]})

    def predict_var(self, X):
        return pd.DataFrame({"y": (1 + X[:, 1] ** 2) ** 2})


@pytest.mark.parametrize("model", [Boosted(), Boosted(True), Probabilistic()])
def test_others_that_predict_distributions(model):
    check_model(model)
    assert not read_task(model, X, NUMBERS)
    parts, mean = as_provider(model.fit(X, NUMBERS)).uncertainty_of_rows(NEW)
    assert_allclose(mean[:, 0], NEW[:, 0])
    assert_allclose(parts.total, 1 + NEW[:, 1] ** 2)
    assert_allclose(parts.aleatoric, parts.total)
    assert not parts.epistemic.any()


class Foreign:
    """As CatBoost and TabPFN answer: no base class or tags of scikit-learn."""

    _estimator_type = "classifier"

    def get_params(self, deep=True):
        return {}

    def set_params(self, **params):
        return self

    def fit(self, X, y, eval_set=None):
        self.classes_ = np.unique(y)
        self.center_ = np.stack([X[y == label].mean(0) for label in self.classes_])
        return self

    def predict_proba(self, X):
        distance = np.square(np.asarray(X)[:, None] - self.center_).sum(2)
        return softmax(-distance, axis=1).astype(np.float32)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)][:, None]


class Level(RegressorMixin, BaseEstimator):
    """Knows the quantiles of a normal distribution of mean x0 and deviation 2."""

    def __init__(self, quantile=0.5, loss="quantile"):
        self.quantile = quantile
        self.loss = loss

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        from scipy.special import ndtri

        return X[:, 0] + 2 * ndtri(self.quantile)


@pytest.mark.parametrize("levels", [(0.05, 0.95), (0.9, 0.5, 0.1), (0.2, 0.7)])
def test_quantiles_of_a_normal_distribution(levels):
    models = [Level(level).fit(X, NUMBERS) for level in levels]
    check_model(models)
    parts, mean = as_provider(models).uncertainty_of_rows(NEW)
    assert_allclose(parts.total, 2.0)
    assert_allclose(parts.aleatoric, 2.0)
    assert_allclose(mean[:, 0], NEW[:, 0], atol=1e-12)


def test_quantiles_by_other_names():
    pairs = [
        [GradientBoostingRegressor(loss="quantile", alpha=a) for a in (0.1, 0.9)],
        [
            make_pipeline(StandardScaler(), QuantileRegressor(quantile=q))
            for q in (0.1, 0.9)
        ],
    ]
    for pair in pairs:
        provider = as_provider([model.fit(X, NUMBERS) for model in pair])
        parts, _ = provider.uncertainty_of_rows(NEW)
        assert not parts.epistemic.any() and 0.1 < np.median(parts.total) < 5
    with pytest.raises(TypeError, match="predicts one quantile, 0.1, .* takes two"):
        as_provider(pairs[0][0])


def test_a_list_of_any_models():
    members = [KNeighborsClassifier(), GaussianNB(), LogisticRegression()]
    few = LABELS != "b"
    members = [
        members[0].fit(X[few], LABELS[few]),
        members[1].fit(X, LABELS),
        make_pipeline(StandardScaler(), members[2]).fit(X, LABELS),
    ]
    check_model(members)
    parts, proba = as_provider(members).uncertainty_of_rows(NEW)
    said = [member.predict_proba(NEW) for member in members]
    said[0] = np.insert(said[0], 1, 0, axis=1)
    assert_allclose(proba, np.mean(said, axis=0))
    assert_allclose(parts.aleatoric, np.mean([entropy(p) for p in said], axis=0))
    regressors = [DecisionTreeRegressor(max_depth=d).fit(X, NUMBERS) for d in (2, 4)]
    parts, mean = as_provider(regressors).uncertainty_of_rows(NEW)
    said = np.stack([member.predict(NEW) for member in regressors])
    assert_allclose(mean[:, 0], said.mean(0))
    assert_allclose(parts.epistemic, said.std(0))
    assert not parts.aleatoric.any()


def test_bagging_learns_its_noise_from_rows_left_out():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 2))
    y = rows[:, 0] + 0.7 * rng.normal(size=2000)
    model = BaggingRegressor(LinearRegression(), 15, random_state=0).fit(rows, y)
    provider = as_provider(model)
    assert not provider.uncertainty_of_rows(NEW[:, :2])[0].aleatoric.any()
    assert provider.learn(rows, y)
    parts, _ = provider.uncertainty_of_rows(NEW[:, :2])
    assert_allclose(parts.aleatoric, 0.7, rtol=0.05)
    held_out = provider.out_of_bag(rows, y)
    assert_allclose(held_out.aleatoric, 0.7, rtol=0.05)
    assert not provider.learn(rows[:100], y[:100])


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_thresholds_of_decisions_are_the_models_own(threshold):
    y = X[:, 0] + RNG.normal(size=150) > 0
    model = FixedThresholdClassifier(KNeighborsClassifier(10), threshold=threshold)
    provider = as_provider(model.fit(X, y))
    _, proba = provider.uncertainty_of_rows(NEW)
    assert_array_equal(decide(provider, proba), model.predict(NEW))


# Tables ------------------------------------------------------------------------------


TOY = make_mixed_toy(400, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        encoded(RandomForestClassifier(10, random_state=0)),
        encoded(MLPClassifier((5,), max_iter=5, random_state=0)),
        make_pipeline(TargetEncoder(), SimpleImputer(), GaussianNB()).set_output(
            transform="pandas"
        ),
        HistGradientBoostingClassifier(max_iter=3, random_state=0),
        VotingClassifier(
            [("a", encoded(GaussianNB())), ("b", encoded(KNeighborsClassifier()))],
            voting="soft",
        ),
        [encoded(GaussianNB()), encoded(LogisticRegression())],
    ],
    ids=["forest", "network", "target encoder", "boosting", "vote", "list"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tables_go_through_as_they_are(model):
    check_model(model)
    members = model if isinstance(model, list) else [model]
    for member in members:
        member.fit(TOY.data, TOY.target)
    provider = as_provider(model)
    assert provider.takes_tables
    new = make_mixed_toy(30, random_state=1).data
    _, proba = provider.uncertainty_of_rows(new)
    known = np.mean([member.predict_proba(new) for member in members], axis=0)
    assert_allclose(proba, known, atol=1e-6)
    alone, _ = provider.uncertainty_of_rows(new[:1])
    assert_allclose(
        alone.total, provider.uncertainty_of_rows(new)[0].total[:1], atol=1e-9
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_with_gradients_can_be_asked_about_tables():
    data, target = TOY.data[:100], TOY.target[:100]
    model = BayesianMLPClassifier((5,), n_draws=4, burn_in=20, random_state=0)
    model.fit(data, target)
    provider = as_table_provider(model)
    assert as_provider(model).is_differentiable and not provider.is_differentiable
    parts, proba = provider.uncertainty_of_rows(data)
    assert_allclose(proba, model.predict_proba(data), atol=1e-6)
    assert_allclose(parts.epistemic, model.predict_uncertainty(data).epistemic)
    piped = make_pipeline(FunctionTransformer(), model)
    told, _ = as_table_provider(piped).uncertainty_of_rows(data)
    assert_allclose(told.total, parts.total)
    # A scaler works on the table, and not on what the network's own encoder makes.
    scaled = make_pipeline(StandardScaler(), model).fit(X, LABELS)
    _, proba = as_provider(scaled).uncertainty_of_rows(NEW)
    assert_allclose(proba, scaled.predict_proba(NEW), atol=1e-6)


def test_tensors_of_numbers_are_rows_as_well():
    import torch

    frame = pd.DataFrame(X, columns=list("uvw"))
    forest = RandomForestClassifier(5, random_state=0).fit(frame, LABELS)
    provider = as_provider(forest)
    parts, proba = provider.uncertainty(torch.as_tensor(X))
    known, said = provider.uncertainty_of_rows(frame)
    assert_array_equal(parts.total.numpy(), known.total)
    assert_array_equal(proba.numpy(), said)


# Forests -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    return make_mixed_toy(1000, random_state=0)


@pytest.fixture(scope="module")
def forests(toy):
    """Default leaves, and leaves of a sensible size, with their training rows."""
    learned = []
    for leaf_size in (1, 5):
        forest = RandomForestClassifier(300, min_samples_leaf=leaf_size, random_state=0)
        provider = as_provider(encoded(forest).fit(toy.data, toy.target))
        assert provider.learn(toy.data, toy.target)
        learned.append(provider)
    return learned


def _outside(toy, n_rows, seed):
    """Rows of a box twice as wide as the data, where there are hardly any of these."""
    rng = np.random.default_rng(seed)
    rows = make_mixed_toy(n_rows, random_state=seed).data
    for name in ("length", "weight"):
        low, high = toy.data[name].min(), toy.data[name].max()
        margin = (high - low) / 2
        rows[name] = rng.uniform(low - margin, high + margin, n_rows)
    return rows[toy.log_density(rows) < np.quantile(toy.log_density(toy.data), 0.01)]


def test_forests_split_as_they_should(toy, forests):
    inside, outside = make_mixed_toy(600, random_state=1).data, _outside(toy, 600, 2)
    is_outside = np.repeat([0, 1], [len(inside), len(outside)])
    known = toy.aleatoric(inside)
    for provider in forests:
        here, _ = provider.uncertainty_of_rows(inside)
        there, _ = provider.uncertainty_of_rows(outside)
        # Measured: 0.87 with either leaf size.
        assert np.corrcoef(here.aleatoric, known)[0, 1] > 0.8
        assert abs(here.aleatoric.mean() - known.mean()) < 0.06
        epistemic = np.r_[here.epistemic, there.epistemic]
        assert roc_auc_score(is_outside, epistemic) > 0.95
        assert_allclose(here.total, here.aleatoric + here.epistemic)


def test_what_a_leaf_says_is_drawn_towards_the_nodes_above_it():
    # One tree of 40 rows: 12 of one class come apart first, then the other 28 are told
    # apart.
    rows = np.repeat([[0.0], [1.0], [2.0]], [12, 20, 8], axis=0)
    y = np.repeat([0, 1, 0], [12, 20, 8])
    forest = RandomForestClassifier(1, bootstrap=False, random_state=0).fit(rows, y)
    assert_array_equal(forest[0].tree_.n_node_samples, [40, 12, 28, 20, 8])
    provider = as_provider(forest)
    assert provider.learn(rows, y)
    # Steps from 40 rows count 40 of 46, and those from 28 rows 28 of 34.
    root, middle = 1 / 2, 1 / 2 + 40 / 46 * (20 / 28 - 1 / 2)
    second = [
        root + 40 / 46 * (0 - root),
        middle + 28 / 34 * (1 - 20 / 28),
        middle + 28 / 34 * (0 - 20 / 28),
    ]
    told = provider.uncertainty_of_rows([[0.0], [1.0], [2.0]])[0].total
    assert_allclose(told, [entr(p) + entr(1 - p) for p in second])
    # The prediction stays that of the forest.
    assert_array_equal(
        provider.uncertainty_of_rows(rows)[1], forest.predict_proba(rows)
    )


def test_forests_are_not_sure_of_what_they_know_by_heart(toy, forests):
    known = toy.aleatoric(toy.data)
    for provider, at_most in zip(forests, (0.72, 0.9), strict=True):
        parts, proba = provider.uncertainty_of_rows(toy.data)
        own = entr(proba).sum(1)
        assert np.corrcoef(own, known)[0, 1] < at_most
        assert np.corrcoef(parts.total, known)[0, 1] > 0.84
        assert abs(parts.total.mean() - known.mean()) < 0.1


def test_the_total_of_a_forest_finds_its_errors():
    rows, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(100, random_state=0).fit(rows[::2], y[::2])
    provider = as_provider(forest)
    assert provider.learn(rows[::2], y[::2])
    parts, proba = provider.uncertainty_of_rows(rows[1::2])
    is_wrong = forest.predict(rows[1::2]) != y[1::2]
    assert roc_auc_score(is_wrong, parts.total) > 0.88
    unseen = provider.out_of_bag(rows[::2], y[::2])
    assert 0.15 <= (parts.total > np.quantile(unseen.total, 0.8)).mean() <= 0.25


def test_no_ensemble_is_less_sure_than_a_coin():
    # The forest knows these labels by heart, and its rows tell that they are noise; the
    # other member says so, and the two disagree.
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(100, 2)), rng.integers(2, size=100)
    members = [("nb", GaussianNB()), ("forest", RandomForestClassifier(20))]
    model = VotingClassifier(members, voting="soft").fit(rows, y)
    provider = as_provider(model)
    assert provider.learn(rows, y)
    parts, _ = provider.uncertainty_of_rows(rows)
    assert parts.total.max() <= np.log(2) + 1e-12
    assert_allclose(parts.total, parts.aleatoric + parts.epistemic)


def test_a_tree_that_is_left_with_one_row_says_nothing_of_it():
    # It would have to judge the row without any other, and answered with zeros, which
    # are no probabilities: the entropy of two classes came out above that of a coin.
    rng = np.random.default_rng(4)
    rows, y = rng.normal(size=(5, 2)), np.resize([0, 1], 5)
    forest = RandomForestClassifier(5, random_state=4).fit(rows, y)
    n_unseen = [5 - len(np.unique(seen)) for seen in forest.estimators_samples_]
    assert 1 in n_unseen
    assert as_provider(forest).out_of_bag(rows, y).total.max() <= np.log(2) + 1e-9


def test_thresholds_of_forests_hold_for_new_rows(toy, forests):
    new = make_mixed_toy(2000, random_state=3).data
    for provider in forests:
        told, _ = provider.uncertainty_of_rows(new)
        seen = provider.out_of_bag(toy.data, toy.target)
        for part, part_seen in zip(told, seen, strict=True):
            assert 0.15 <= (part > np.quantile(part_seen, 0.8)).mean() <= 0.25


def test_thresholds_of_others_come_from_folds(toy):
    model = encoded(HistGradientBoostingClassifier(random_state=0))
    model.fit(toy.data, toy.target)
    unseen = unseen_uncertainty(model, toy.data, toy.target, cv=3)
    new = make_mixed_toy(2000, random_state=3).data
    total = as_provider(model).uncertainty_of_rows(new)[0].total
    by_heart = as_provider(model).uncertainty_of_rows(toy.data)[0].total
    assert unseen.total.shape == (1000,)
    assert 0.15 <= (total > np.quantile(unseen.total, 0.8)).mean() <= 0.25
    assert (total > np.quantile(by_heart, 0.8)).mean() > 0.25


def test_thresholds_of_models_that_know_all_rows_by_heart():
    # Neighbours at no distance are sure of every row of the fit.
    model = KNeighborsClassifier(15, weights="distance")
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 200, 3))
    y = rows[:, 0] + rng.normal(size=200) > 0
    provider = as_provider(model.fit(rows, y))
    threshold = np.quantile(unseen_uncertainty(model, rows, y, cv=3).total, 0.8)
    assert 0.12 < (provider.uncertainty_of_rows(new)[0].total > threshold).mean() < 0.28
    at_heart = np.quantile(provider.uncertainty_of_rows(rows)[0].total, 0.8)
    assert (provider.uncertainty_of_rows(new)[0].total > at_heart).mean() > 0.5


def test_thresholds_of_models_that_know_nothing_by_heart_stay():
    rows = np.random.default_rng(0).normal(size=(600, 2))
    y = rows[:, 0] + np.exp(rows[:, 1] / 2) * np.random.default_rng(1).normal(size=600)
    model = PredictedNoiseRegressor(LinearRegression()).fit(rows, y)
    unseen = unseen_uncertainty(model, rows, y)
    known = np.quantile(model.predict_noise(rows), [0.2, 0.5, 0.8])
    assert_allclose(np.quantile(unseen.total, [0.2, 0.5, 0.8]), known, rtol=0.05)
    forest = RandomForestRegressor(20, random_state=0).fit(X, NUMBERS)
    assert_array_equal(
        unseen_uncertainty(forest, X, NUMBERS).total,
        as_provider(forest).out_of_bag(X, NUMBERS).total,
    )


def test_without_its_rows_a_forest_of_pure_leaves_knows_no_noise(toy):
    pipeline = encoded(RandomForestClassifier(20, random_state=0))
    provider = as_provider(pipeline.fit(toy.data, toy.target))
    parts, _ = provider.uncertainty_of_rows(toy.data)
    assert parts.aleatoric.max() < 1e-12 and parts.epistemic.max() > 0.5
    # Other rows are not taken for those that it was fitted on.
    other = make_mixed_toy(1000, random_state=5)
    assert not provider.learn(other.data, other.target)
    assert provider.out_of_bag(other.data, other.target) is None
    told, _ = provider.uncertainty_of_rows(toy.data)
    assert_array_equal(told.total, parts.total)


def test_classes_of_few_rows_are_never_held_out():
    # Boosting refuses to learn a single class, and so would copies of it for folds.
    boosting = GradientBoostingClassifier(n_estimators=2, random_state=0)
    rare = np.where(np.arange(150) == 3, "rare", "usual")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as "has only 1 members"
        explainer = CLUEExplainer(boosting).fit(X, rare)
        assert np.isfinite(explainer.threshold_)
        parts = unseen_uncertainty(boosting.fit(X[:8], LABELS[:8]), X[:8], LABELS[:8])
    assert len(parts.total) == 6  # of classes of 3, 3 and 2 rows
    each = GaussianNB().fit(X[:3], ["a", "b", "c"])
    assert unseen_uncertainty(each, X[:3], ["a", "b", "c"]) is None


@pytest.mark.parametrize("is_list", [False, True])
def test_forests_of_an_ensemble_look_at_their_rows(toy, is_list):
    labels = np.where(toy.target, "kept", "sent back")
    members = [
        encoded(RandomForestClassifier(20, random_state=seed)) for seed in range(2)
    ]
    if is_list:
        model = [member.fit(toy.data, labels) for member in members]
    else:
        model = VotingClassifier(list(zip("ab", members, strict=True)), voting="soft")
        model.fit(toy.data, labels)
    provider = as_provider(model)
    before, proba = provider.uncertainty_of_rows(toy.data)
    assert before.aleatoric.max() < 1e-12
    assert provider.learn(toy.data, labels)
    after, same = provider.uncertainty_of_rows(toy.data)
    assert_array_equal(same, proba)
    assert np.corrcoef(after.aleatoric, toy.aleatoric(toy.data))[0, 1] > 0.8
    assert_allclose(after.total, after.aleatoric + after.epistemic)


def test_a_single_row_is_judged_to_the_last_digit(toy, forests):
    # Members are added up in one order, however many rows are asked about together.
    members = [GaussianNB().fit(X[i:], LABELS[i:]) for i in range(20)]
    regressor = RandomForestRegressor(50, random_state=0).fit(X, NUMBERS)
    asked = [(provider, toy.data) for provider in forests]
    asked += [(as_provider(model), NEW) for model in (members, regressor)]
    for provider, rows in asked:
        parts, prediction = provider.uncertainty_of_rows(rows[:7])
        alone, said = provider.uncertainty_of_rows(rows[:1])
        assert_array_equal(np.array(alone), np.array(parts)[:, :1])
        assert_array_equal(said, prediction[:1])


def test_who_wants_the_total_gets_the_same_total(toy, forests):
    regressor = RandomForestRegressor(20, random_state=0).fit(X, NUMBERS)
    of_numbers = as_provider(regressor)
    asked = [(provider, toy.data) for provider in forests]
    asked += [(as_provider(GaussianNB().fit(X, LABELS)), X), (of_numbers, X)]
    asked += [(as_provider(regressor), X)]
    assert of_numbers.learn(X, NUMBERS)
    for provider, rows in asked:
        for some in (rows[:1], rows[:7]):
            known = provider.uncertainty_of_rows(some)[0].total
            assert_array_equal(provider.total_of_rows(some), known)


def test_columns_that_a_forest_does_not_use_do_not_make_it_unsure():
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 300, 30))
    # The first column alone says what it is, up to noise.
    y = rows[:, 0] + 0.5 * rng.normal(size=300) > 0
    told = []
    for columns in (slice(None), slice(1)):
        forest = RandomForestClassifier(50, max_features=None, max_depth=2)
        forest.set_params(random_state=0).fit(rows[:, columns], y)
        provider = as_provider(forest)
        assert provider.learn(rows[:, columns], y)
        told.append(provider.uncertainty_of_rows(new[:, columns])[0])
    # In one of 30 columns nearly all of them are outside of the rows of a leaf.
    wide, narrow = told
    assert abs(wide.total.mean() - narrow.total.mean()) < 0.05
    assert abs(wide.epistemic.mean() - narrow.epistemic.mean()) < 0.05


def test_trees_that_have_seen_all_rows_are_judged_by_them(toy):
    pipeline = encoded(ExtraTreesClassifier(50, random_state=0))
    provider = as_provider(pipeline.fit(toy.data, toy.target))
    assert provider.learn(toy.data, toy.target)
    new = make_mixed_toy(500, random_state=1).data
    told = provider.uncertainty_of_rows(new)[0].aleatoric
    assert np.corrcoef(told, toy.aleatoric(new))[0, 1] > 0.8
    assert provider.out_of_bag(toy.data, toy.target) is None


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("kind", [RandomForestRegressor, BaggingRegressor])
def test_forests_of_numbers_find_noise_and_ends(kind, n_outputs):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(2000, 2))
    noise = np.exp(rows[:, :1])
    y = rows[:, 1:] + noise * rng.normal(size=(2000, n_outputs))
    y = y if n_outputs > 1 else y[:, 0]
    provider = as_provider(kind(n_estimators=40, random_state=0).fit(rows, y))
    assert provider.learn(rows, y)
    new = rng.uniform(-1, 1, size=(300, 2))
    inside, _ = provider.uncertainty_of_rows(new)
    # Several targets have the length of the vector of deviations.
    known = np.exp(new[:, 0]) * n_outputs**0.5
    assert np.corrcoef(inside.aleatoric, known)[0, 1] > 0.9
    assert abs(inside.aleatoric.mean() / known.mean() - 1) < 0.1
    outside, _ = provider.uncertainty_of_rows(new + [0, 3])
    assert np.median(outside.epistemic / inside.epistemic) > 1.5
    assert_allclose(inside.total**2, inside.aleatoric**2 + inside.epistemic**2)


def test_forests_take_sparse_and_missing_values():
    from scipy import sparse

    dense = np.where(X > 0.5, X, 0)
    forest = RandomForestClassifier(8, random_state=0)
    provider = as_provider(forest.fit(sparse.csr_array(dense), LABELS))
    assert provider.learn(sparse.csr_array(dense), LABELS)
    parts, _ = provider.uncertainty_of_rows(sparse.csr_array(dense[:9]))
    assert_array_equal(parts.total, provider.uncertainty_of_rows(dense[:9])[0].total)
    gaps = np.where(X > 1.5, np.nan, X)
    provider = as_provider(forest.fit(gaps, LABELS))
    provider.learn(gaps, LABELS)  # scikit-learn 1.6.0 sends gaps elsewhere afterwards
    assert np.isfinite(provider.uncertainty_of_rows(gaps)[0].total).all()


def test_an_explainer_takes_models_of_other_libraries():
    # With their manners: no tags, labels of their own, answers in single precision.
    explainer = CLUEExplainer(Foreign()).fit(X, LABELS)
    found = explainer.explain(NEW[explainer.rejects(NEW)])
    assert found.is_sure.all() and len(found)
    assert set(explainer.classes_) == set(LABELS)
    numbers = CLUEExplainer(Boosted()).fit(X, NUMBERS)
    found = numbers.explain(NEW[numbers.rejects(NEW)])
    assert found.is_sure.all() and (found.uncertainty_after.epistemic == 0).all()


# Refused by name ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, message",
    [
        (RidgeClassifier(), "RidgeClassifier has no predict_proba.*Calibrate it"),
        (SVC(), "SVC has no predict_proba"),
        (OneVsRestClassifier(LinearSVC()), "OneVsRestClassifier has no"),
        (make_pipeline(StandardScaler(), LinearSVC()), "LinearSVC has no"),
        (BaggingClassifier(LinearSVC()), "LinearSVC has no predict_proba"),
        ([GaussianNB(), RidgeClassifier()], "RidgeClassifier has no predict_proba"),
        (GridSearchCV(RidgeClassifier(), {}), "RidgeClassifier has no"),
        (VotingClassifier([("a", GaussianNB())]), "voting='hard' answers with labels"),
        (
            LinearRegression(),
            r"how far off .*BaggingRegressor\(LinearRegression\(\)\).*"
            r"PredictedNoiseRegressor\(LinearRegression\(\)\)",
        ),
        (encoded(DecisionTreeRegressor()), "DecisionTreeRegressor predicts a number"),
    ],
    ids=str,
)
def test_models_that_do_not_say_how_sure_they_are(model, message):
    with pytest.raises(TypeError, match=message):
        check_model(model)  # before any of them is fitted


class Answers(ClassifierMixin, BaseEstimator):
    """A classifier that answers with what it is told to."""

    def __init__(self, answer):
        self.answer = answer

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return self.answer(len(X))


@pytest.mark.parametrize(
    "answer, message",
    [
        (lambda n: np.zeros(n, dtype=int), r"one probability per row .* shape \(40,\)"),
        (lambda n: [np.ones((n, 2))] * 2, "got a list.*several labels per row"),
        (lambda n: np.full((n, 3), 0.5), r"add up to 1, got \[0.5, 0.5, 0.5\]"),
        (lambda n: np.tile([1.5, -0.5], (n, 1)), "Answers must answer with probab"),
        (lambda n: np.full((n, 2), np.nan), "not finite for 40 of 40 rows"),
        (lambda n: np.full((n - 4, 2), 0.5), "about 36 rows when asked about 40"),
    ],
    ids=["labels", "two targets", "sum", "negative", "NaN", "fewer"],
)
def test_answers_that_make_no_sense(answer, message):
    provider = as_provider(Answers(answer).fit(X, LABELS))
    with pytest.raises(ValueError, match=message):
        provider.uncertainty_of_rows(NEW)


class Spread(RegressorMixin, BaseEstimator):
    def __init__(self, std=np.nan):
        self.std = std

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X, return_std=False):
        std = np.where(np.arange(len(X)) == 3, self.std, 1.0)
        return (X[:, 0], std) if return_std else X[:, 0]


@pytest.mark.parametrize(
    "std, message",
    [
        (np.nan, "uncertainty that is not finite for 1 of 40 .* row 3: got nan"),
        (-1.0, "cannot be negative, got -1 from Spread"),
    ],
)
def test_deviations_that_make_no_sense(std, message):
    provider = as_provider(Spread(std).fit(X, NUMBERS))
    with pytest.raises(ValueError, match=message):
        provider.uncertainty_of_rows(NEW)


class Counted(RidgeClassifier):
    n_fits = 0

    def fit(self, X, y):
        type(self).n_fits += 1
        return super().fit(X, y)


def test_explainers_refuse_by_name_before_long_work():
    drop = FunctionTransformer(lambda rows: rows[np.asarray(rows)[:, 0] > 0])
    pipeline = make_pipeline(drop, KNeighborsClassifier())
    pipeline.steps[-1][1].fit(X, LABELS)
    models = {
        "Counted has no predict_proba": Counted(),
        "one probability per row": Answers(lambda n: np.zeros(n, dtype=int)),
        "FunctionTransformer turns 150 rows into": pipeline,
        "add up to 1": Answers(lambda n: np.full((n, 3), 0.5)),
        "not finite": Spread(),
    }
    for message, model in models.items():
        y = NUMBERS if model is models["not finite"] else LABELS
        if message != "Counted has no predict_proba" and model is not pipeline:
            model = FrozenEstimator(model.fit(X, y))
        model = FrozenEstimator(model) if model is pipeline else model
        with pytest.raises((TypeError, ValueError), match=message):
            CLUEExplainer(model).fit(X, y)
    assert Counted.n_fits == 0


def test_pipelines_that_drop_rows():
    drop = FunctionTransformer(lambda rows: rows[rows[:, 0] > 0])
    model = make_pipeline(drop, KNeighborsClassifier())
    model.steps[-1][1].fit(X, LABELS)
    with pytest.raises(ValueError, match="FunctionTransformer turns 40 rows into"):
        as_provider(model).uncertainty_of_rows(NEW)
    # And one that is not fitted yet.
    model = make_pipeline(drop, KNeighborsClassifier())
    with pytest.raises(ValueError, match="A step before KNeighborsClassifier does not"):
        CLUEExplainer(model).fit(X, LABELS)


def test_probabilities_of_classes_that_nobody_knows_are_refused():
    model = Answers(lambda n: np.full((n, 4), 0.25))
    message = "Answers answers with 4 probabilities per row and knows 3 classes: 'a'"
    with pytest.raises(ValueError, match=message):
        CLUEExplainer(model).fit(X, LABELS)


def test_dates_are_refused_before_a_model_is_fitted():
    class Never(GaussianNB):
        def fit(self, X, y):
            raise AssertionError("long work")

    rows = pd.DataFrame(X[:, :2], columns=["a", "b"])
    rows["when"] = pd.date_range("2020", periods=len(rows))
    with pytest.raises(TypeError, match="Column 'when' has dtype datetime64"):
        CLUEExplainer(Never()).fit(rows, LABELS)


def test_forests_of_several_labels_are_refused():
    y = np.stack([X[:, 0] > 0, X[:, 1] > 0], 1)
    with pytest.raises(ValueError, match="fitted to 2 labels per row"):
        as_provider(RandomForestClassifier(3).fit(X, y))


def test_what_cannot_be_fitted_again_has_no_folds():
    provider = as_provider(GaussianNB().fit(X, LABELS))
    assert unseen_uncertainty(provider, X, LABELS) is None  # a provider alone
    parts = unseen_uncertainty(FrozenEstimator(GaussianNB().fit(X, LABELS)), X, LABELS)
    assert parts.total.shape == (150,)


def test_variances_of_a_forest_do_not_depend_on_the_zero_of_the_target():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + rng.normal(size=200)
    total = []
    for shift in (0.0, 1e7):
        forest = RandomForestRegressor(20, random_state=0).fit(X, y)
        for tree in forest.estimators_:  # the same trees, about shifted targets
            tree.tree_.value[:] += shift
        explainer = NeighborExplainer(FrozenEstimator(forest)).fit(X, y + shift)
        total.append(explainer.predict_uncertainty(X).total)
    np.testing.assert_allclose(total[1], total[0], rtol=1e-6)
