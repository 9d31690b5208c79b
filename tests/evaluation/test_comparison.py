"""evaluate_explainers: tables with known answers, and runs that go on."""

from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, Uncertainty, VAEEncoder
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.evaluation import (
    GroundTruth,
    evaluate_explainers,
    knee_point_distance,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
TOY = make_mixed_toy(2, random_state=0)
LOG = []  # what the fakes did


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


class ToyTruth:
    """The toy knows everything about itself."""

    classes_ = np.array([0, 1])
    predict = staticmethod(TOY.predict_proba)
    uncertainty = staticmethod(TOY.aleatoric)
    log_density = staticmethod(TOY.log_density)

    def sample(self, n_samples, random_state):
        X, y = make_mixed_toy(n_samples, random_state=random_state, return_X_y=True)
        return X, y.to_numpy()


class Timid(ClassifierMixin, BaseEstimator):
    """The true probabilities, halfway to a coin."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        LOG.append("fit")
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return 0.5 * TOY.predict_proba(X) + 0.25


class Lengthen(BaseEstimator):
    """Explains whatever it is shown by a greater length."""

    _trade_off = "step_size"

    def __init__(self, estimator=None, step_size=1.0, uncertainty="total"):
        self.estimator = estimator
        self.step_size = step_size
        self.uncertainty = uncertainty

    def fit(self, X, y):
        LOG.append("explainer")
        self.estimator_ = self.estimator.fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self

    def predict_proba(self, X):
        return self.estimator_.predict_proba(X)

    def predict_uncertainty(self, X):
        total = TOY.aleatoric(X)
        return Uncertainty(total, total, np.zeros(len(X)))

    def explain(self, X):
        LOG.append((self.uncertainty, self.step_size))
        return SimpleNamespace(
            counterfactuals=X.assign(length=X["length"] + self.step_size),
            distance=np.full(len(X), abs(self.step_size) / 5),
            converged=np.ones(len(X), dtype=bool),
        )


class Stumble(Lengthen):
    """Is interrupted once, at a certain step."""

    def explain(self, X):
        if self.step_size == 2.0 and "interrupt" not in LOG:
            LOG.append("interrupt")
            raise KeyboardInterrupt
        return super().explain(X)


SMALL = {"n_train": 60, "n_test": 50, "random_state": 0}
GRID = {"steps": {"step_size": [-3.0, 1.0, 2.0]}}


def run(explainer=None, **settings):
    explainers = {"steps": Lengthen(Timid()) if explainer is None else explainer}
    return evaluate_explainers(
        explainers, ToyTruth(), **({"grids": GRID} | SMALL | settings)
    )


def rejected_rows(n_test, share, seed=0):
    test_seed = np.random.RandomState(seed).randint(2**31 - 1, size=4)[1]
    X, _ = ToyTruth().sample(n_test, np.random.RandomState(test_seed))
    return X[TOY.aleatoric(X) >= np.sort(TOY.aleatoric(X))[-round(share * n_test)]]


def test_known_answers():
    table = run()
    assert list(table["method"]) == ["steps"] * 6
    assert list(table["kind"]) == ["aleatoric"] * 3 + ["epistemic"] * 3
    assert list(table["parameter"]) == ["step_size"] * 6
    assert list(table["value"]) == [-3.0, 1.0, 2.0] * 2
    assert (table["n_rows"] == 10).all() and (table["converged"] == 1).all()

    X = rejected_rows(50, 0.2)
    assert len(X) == 10

    def error(rows):
        best = TOY.predict_proba(rows).argmax(axis=1)
        return -np.log(Timid().predict_proba(rows)[np.arange(10), best])

    for _, line in table.iterrows():
        moved = X.assign(length=X["length"] + line["value"])
        fall = TOY.aleatoric(X) - TOY.aleatoric(moved)
        assert line["uncertainty_explained"] == pytest.approx(fall.mean())
        assert line["error_explained"] == pytest.approx(
            (error(X) - error(moved)).mean()
        )
        assert line["distance"] == pytest.approx(abs(line["value"]) / 5)
        rise = TOY.log_density(moved) - TOY.log_density(X)
        assert rise.max() > 0  # and does not count
        assert line["log_density_change"] == pytest.approx(np.minimum(rise, 0).mean())


@pytest.mark.parametrize("scale_by", [None, ["b"]])
def test_knees_are_those_of_the_tables(scale_by):
    table = evaluate_explainers(
        {"a": Lengthen(Timid()), "b": Lengthen(Timid())},
        ToyTruth(),
        grids={
            "a": {"step_size": [-8.0, -4.0, -2.0]},
            "b": {"step_size": [1.0, 3.0, 6.0]},
        },
        scale_by=scale_by,
        **SMALL,
    )
    gains = {"aleatoric": "uncertainty_explained", "epistemic": "error_explained"}
    for (kind, method), lines in table.groupby(["kind", "method"]):
        unit = table[(table["kind"] == kind)]
        if scale_by is not None:
            unit = unit[unit["method"].isin(scale_by)]
        for knee, cost, sign in [
            ("knee_by_distance", "distance", 1),
            ("knee_by_log_density", "log_density_change", -1),
        ]:
            assert unit[gains[kind]].max() > 0
            assert lines[knee].min() == pytest.approx(
                knee_point_distance(
                    lines[gains[kind]],
                    sign * lines[cost],
                    max_gain=unit[gains[kind]].max(),
                    max_cost=(sign * unit[cost]).max(),
                )
            )
        assert method in "ab"


def test_nothing_gained_is_no_success():
    class Useless(ToyTruth):
        uncertainty = staticmethod(lambda X: np.asarray(X["length"]))

    table = evaluate_explainers(
        {"steps": Lengthen(Timid())},
        Useless(),
        grids={"steps": {"step_size": [1.0, 2.0]}},
        kinds=["aleatoric"],
        **SMALL,
    )
    assert (table["uncertainty_explained"] < 0).all()
    assert (table["knee_by_distance"] > np.sqrt(0.5)).all()


def test_same_seed_same_table(tmp_path):
    table = run()
    pd.testing.assert_frame_equal(run(), table)
    pd.testing.assert_frame_equal(run(memory=str(tmp_path)), table)
    pd.testing.assert_frame_equal(run(memory=str(tmp_path)), table)
    pd.testing.assert_frame_equal(run(n_jobs=2), table)
    other = run(random_state=1)
    assert (other["uncertainty_explained"] != table["uncertainty_explained"]).all()


def test_goes_on_after_an_interrupt(tmp_path):
    settings = {"memory": str(tmp_path), "kinds": ["aleatoric"]}
    with pytest.raises(KeyboardInterrupt):
        run(Stumble(Timid()), **settings)
    done = [("aleatoric", -3.0), ("aleatoric", 1.0)]
    assert LOG == ["fit", "explainer", *done, "interrupt"]
    table = run(Stumble(Timid()), **settings)
    assert LOG[5:] == [("aleatoric", 2.0)]
    pd.testing.assert_frame_equal(table, run(Stumble(Timid()), kinds=["aleatoric"]))


def test_the_cache_knows_what_has_changed(tmp_path):
    first = run(memory=str(tmp_path), kinds=["aleatoric"])
    LOG.clear()
    # A value more explains once more. Other data make everything new.
    run(
        memory=joblib.Memory(str(tmp_path), verbose=0),
        kinds=["aleatoric"],
        grids={"steps": {"step_size": [1.0, 5.0]}},
    )
    assert LOG == [("aleatoric", 5.0)]
    other = run(memory=str(tmp_path), kinds=["aleatoric"], random_state=3)
    assert not other.equals(first)
    assert LOG.count("fit") == 1
    more = run(memory=str(tmp_path), kinds=["aleatoric"], rejection_rate=0.5)
    assert (more["n_rows"] == 25).all()


def test_one_predictor_for_all():
    evaluate_explainers(
        {"a": Lengthen(Timid()), "b": Lengthen(Timid())},
        ToyTruth(),
        grids=dict.fromkeys("ab", GRID["steps"]),
        **SMALL,
    )
    assert LOG.count("fit") == 1
    frozen = FrozenEstimator(Timid().fit(None, [0, 1]))
    LOG.clear()
    run(Lengthen(frozen))
    assert LOG.count("fit") == 0


def test_explainers_are_left_alone():
    explainer = Lengthen(Timid())
    run(explainer)
    assert not hasattr(explainer, "estimator_")
    assert explainer.uncertainty == "total" and explainer.step_size == 1.0


def test_clue():
    bnn = BayesianMLPClassifier((10,), n_draws=8, burn_in=120, thinning=2)
    table = evaluate_explainers(
        {"CLUE": CLUEExplainer(bnn, VAEEncoder(2, (20,), max_iter=10), max_iter=3)},
        ToyTruth(),
        n_train=150,
        n_test=30,
        random_state=0,
    )
    assert table.groupby("kind").size().to_dict() == {"aleatoric": 9, "epistemic": 9}
    assert (table["parameter"] == "distance_weight").all()
    aleatoric = table[table["kind"] == "aleatoric"]
    cheap, *_, dear = aleatoric["uncertainty_explained"]
    assert cheap > dear and cheap > 0
    assert np.isfinite(table.select_dtypes(float)).all(axis=None)


class UpTo(Lengthen):
    """Is told how unsure a row may be."""

    def __init__(self, estimator=None, target_uncertainty=None, uncertainty="total"):
        self.estimator = estimator
        self.target_uncertainty = target_uncertainty
        self.uncertainty = uncertainty

    def explain(self, X):
        return SimpleNamespace(counterfactuals=X, distance=0.0, converged=True)


def test_targets_are_quantiles_of_the_training_rows():
    table = evaluate_explainers(
        {"sure": UpTo(Timid())},
        ToyTruth(),
        grids={"sure": {"target_uncertainty": None}},
        **SMALL,
    )
    seed = np.random.RandomState(0).randint(2**31 - 1, size=4)[0]
    X, _ = ToyTruth().sample(60, np.random.RandomState(seed))
    values = table.groupby("kind")["value"].agg(list)
    assert values["aleatoric"][0] == pytest.approx(TOY.aleatoric(X).min())
    assert values["aleatoric"][1] == pytest.approx(np.quantile(TOY.aleatoric(X), 0.02))
    assert values["aleatoric"][-1] == pytest.approx(np.quantile(TOY.aleatoric(X), 0.9))
    assert np.diff(values["aleatoric"]).min() > 0
    assert values["epistemic"] == [0.0] * 10


class Wide(RegressorMixin, BaseEstimator):
    """Says 3, come what may."""

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return np.full(len(X), 3.0)


class LineTruth:
    """y is x, with standard deviation 1 + |x|."""

    def sample(self, n_samples, random_state):
        X = random_state.normal(size=(n_samples, 1))
        return X, X[:, 0] + (1 + np.abs(X[:, 0])) * random_state.normal(size=len(X))

    def predict(self, X):
        return X[:, 0]

    def uncertainty(self, X):
        return 1 + np.abs(X[:, 0])

    def log_density(self, X):
        return -0.5 * X[:, 0] ** 2


class Shrink(Lengthen):
    _trade_off = None

    def fit(self, X, y):
        self.estimator_ = self.estimator.fit(X, y)
        return self

    def predict(self, X):
        return self.estimator_.predict(X)

    def predict_uncertainty(self, X):
        return Uncertainty(*[np.abs(X[:, 0])] * 3)

    def explain(self, X):
        return SimpleNamespace(
            counterfactuals=X * self.step_size, distance=0.0, converged=True
        )


def test_numbers_have_squared_errors():
    table = evaluate_explainers(
        {"shrink": Shrink(Wide())},
        LineTruth(),
        grids={"shrink": {"step_size": [0.5]}},
        kinds=["total"],
        **SMALL,
    )
    seed = np.random.RandomState(0).randint(2**31 - 1, size=4)[1]
    x = LineTruth().sample(50, np.random.RandomState(seed))[0][:, 0]
    x = x[np.argsort(-np.abs(x))[:10]]
    (line,) = table.to_dict("records")
    assert line["uncertainty_explained"] == pytest.approx(np.abs(x).mean() / 2)
    errors = (x - 3) ** 2 - (x / 2 - 3) ** 2
    assert line["error_explained"] == pytest.approx(errors.mean())
    assert line["log_density_change"] == 0


def test_progress(capsys):
    run(verbose=2, kinds=["aleatoric"])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", seconds")[0] for line in lines] == [
        "evaluate_explainers: stage 1/4, predictor",
        "evaluate_explainers: stage 2/4, fit steps",
        "evaluate_explainers: stage 3/4, truth",
        "evaluate_explainers: stage 4/4, explain aleatoric by steps",
    ]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"explainers": {}}, "no explainers to compare"),
        ({"explainers": {"a": Timid()}, "grids": None}, "no explain method"),
        ({"grids": {"b": {}}}, r"grids must hold some of \['steps'\], got \['b'\]"),
        ({"grids": {"steps": [1, 2]}}, "dict of one parameter"),
        ({"grids": {"steps": {"eta": [1]}}}, "has no parameter 'eta'"),
        ({"grids": {"steps": {"step_size": 1}}}, "sequence of values"),
        ({"grids": {"steps": {"uncertainty": None}}}, "sequence of values"),
        ({"kinds": ["alien"]}, r"kinds must hold some of .* got \['alien'\]"),
        ({"kinds": []}, "kinds must hold some of"),
        ({"scale_by": ["b"]}, "scale_by must hold some of"),
        ({"n_train": 1}, "'n_train' parameter"),
        ({"rejection_rate": 0.0}, "'rejection_rate' parameter"),
        ({"ground_truth": Timid()}, "no method 'sample'"),
        ({"ground_truth": GroundTruth()}, "not fitted"),
        (
            {
                "explainers": {
                    "steps": Lengthen(Timid()),
                    "b": Lengthen(Timid(random_state=3)),
                }
            },
            "must explain the same model",
        ),
        ({"explainers": {"steps": Shrink(Timid())}, "grids": None}, "dict of one"),
    ],
)
def test_bad_input_costs_nothing(settings, message):
    arguments = {
        "explainers": {"steps": Lengthen(Timid())},
        "ground_truth": ToyTruth(),
        "grids": GRID,
    }
    with pytest.raises((ValueError, TypeError, NotFittedError), match=message):
        evaluate_explainers(**(arguments | settings))
    assert not LOG


def test_absent_class():
    class Rare(ToyTruth):
        classes_ = np.array([0, 1, 2])

    with pytest.raises(ValueError, match=r"is of class .*2.*Raise n_train"):
        evaluate_explainers({"steps": Lengthen(Timid())}, Rare(), **SMALL)
