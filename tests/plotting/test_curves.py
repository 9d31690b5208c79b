"""Landscapes and curves, computed from fakes with known answers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from sklearn_clue import Uncertainty
from sklearn_clue.explanation import SearchPath
from sklearn_clue.plotting import (
    LatentPathDisplay,
    RejectionCurveDisplay,
    TradeOffDisplay,
    UncertaintyMapDisplay,
)

plt = pytest.importorskip("matplotlib.pyplot")


def split(total):
    return Uncertainty(total, 0.75 * total, 0.25 * total)


# --- Latent path ---


class BowlExplainer:
    """Uncertainty is the squared length of the latents."""

    def latent_uncertainty(self, Z):
        self.Z = Z
        return split((Z**2).sum(axis=1))


def with_path(explanation, latents, objective=None):
    """The first row, with a path that stops one step early."""
    n_steps, dim = latents.shape
    if objective is None:
        objective = np.linspace(1, 0, n_steps)
    path = SearchPath(
        np.vstack([latents, np.full((1, dim), np.nan)])[np.newaxis],
        np.append(objective, np.nan)[np.newaxis],
    )
    return replace(explanation[:1], path=path)


def test_path_in_two_latents(table_explanation):
    latents = np.array([[1.0, 1.0], [0.6, 0.5], [0.2, 0.1], [0.3, 0.0]])
    explanation = with_path(table_explanation, latents, [1.0, 0.5, 0.1, 0.2])
    display = LatentPathDisplay.from_explainer(
        BowlExplainer(), explanation, grid_resolution=11
    )
    np.testing.assert_allclose(display.path, latents)
    assert display.best == 2
    x, y = np.meshgrid(display.grid_x, display.grid_y)
    np.testing.assert_allclose(display.uncertainty, x**2 + y**2)
    assert display.grid_x.min() < 0.2 and display.grid_x.max() > 1.0
    assert display.labels == ("latent 0", "latent 1", "entropy (nats)")
    assert display.ax_.get_title(loc="left") == "first"
    (star,) = [line for line in display.ax_.lines if line.get_marker() == "*"]
    assert (*star.get_xdata(), *star.get_ydata()) == (0.2, 0.1)
    figure, ax = plt.subplots()
    assert display.plot(ax=ax).figure_ is figure


def test_path_of_rows_to_explain(table_explanation):
    class Explainer(BowlExplainer):
        def explain(self, X):
            assert X is table_explanation.X
            return with_path(table_explanation, np.eye(2))

    display = LatentPathDisplay.from_explainer(
        Explainer(), table_explanation.X, grid_resolution=3
    )
    np.testing.assert_array_equal(display.path, np.eye(2))


def test_path_in_many_latents_lies_in_its_plane(table_explanation):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    flat = np.array([[0.0, 0.0], [1.0, 0.8], [2.0, 1.0], [3.0, 0.0]])
    latents = flat @ basis[:2] + 7 * basis[2]
    explainer = BowlExplainer()
    display = LatentPathDisplay.from_explainer(
        explainer,
        with_path(table_explanation, latents),
        kind="epistemic",
        grid_resolution=5,
    )
    np.testing.assert_allclose(np.abs(display.path), flat, atol=1e-12)
    # The landscape is that of the same plane, 7 away from the origin.
    x, y = np.meshgrid(display.grid_x, display.grid_y)
    np.testing.assert_allclose(display.uncertainty, 0.25 * (x**2 + y**2 + 49))
    assert explainer.Z.shape == (25, 5)
    assert "5 latents, projected" in display.ax_.get_xlabel()


@pytest.mark.parametrize(
    "latents",
    [np.zeros((3, 4)), np.outer([0.0, 1.0, 2.0], [1.0, 0.0, 1.0, 0.0])],
    ids=["no move", "straight"],
)
def test_degenerate_paths(table_explanation, latents):
    display = LatentPathDisplay.from_explainer(
        BowlExplainer(), with_path(table_explanation, latents), grid_resolution=4
    )
    assert np.isfinite(display.path).all() and np.isfinite(display.uncertainty).all()
    assert np.ptp(display.grid_x) > 0 and np.ptp(display.grid_y) > 0


@pytest.mark.filterwarnings("error")
def test_flat_landscape(table_explanation):
    class Flat:
        def latent_uncertainty(self, Z):
            return split(np.ones(len(Z)))

    explanation = with_path(table_explanation, np.eye(2))
    display = LatentPathDisplay.from_explainer(Flat(), explanation, grid_resolution=3)
    assert (display.uncertainty == 1).all()


def test_path_errors(table_explanation):
    with pytest.raises(ValueError, match="holds no path"):
        LatentPathDisplay.from_explainer(BowlExplainer(), table_explanation)
    explanation = with_path(table_explanation, np.zeros((3, 1)))
    with pytest.raises(ValueError, match="at least 2 latents, got 1"):
        LatentPathDisplay.from_explainer(BowlExplainer(), explanation)
    with pytest.raises(ValueError, match="kind must be one of total, aleatoric"):
        LatentPathDisplay.from_explainer(BowlExplainer(), explanation, kind="all")


# --- Maps ---


class HalfPlanes(ClassifierMixin, BaseEstimator):
    """Probability by the sign of the first feature; uncertainty is the second."""

    def __init__(self, classes=("no", "yes")):
        self.classes = classes

    @property
    def classes_(self):
        return np.array(self.classes)

    def predict_proba(self, X):
        self.X_ = X
        first = np.asarray(X)[:, 0].astype(float)
        proba = np.full((len(first), len(self.classes)), 0.1)
        proba[np.arange(len(first)), (first > 0).astype(int)] = 0.9
        return proba

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_uncertainty(self, X):
        return split(np.asarray(X)[:, 1].astype(float))


POINTS = np.array([[-1.0, 0.0], [1.0, 2.0], [0.5, 1.0]])


def test_maps_of_a_classifier():
    display = UncertaintyMapDisplay.from_estimator(
        HalfPlanes(), POINTS, ["no", "yes", "yes"], grid_resolution=5, margin=0.5
    )
    np.testing.assert_allclose(display.grid_x, [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(display.grid_y, [-1, 0, 1, 2, 3])
    np.testing.assert_allclose(
        display.maps["prediction"], np.tile([0.1, 0.1, 0.1, 0.9, 0.9], (5, 1))
    )
    np.testing.assert_allclose(
        display.maps["epistemic"], np.tile(0.25 * display.grid_y, (5, 1)).T
    )
    titles = [ax.get_title() for ax in display.axes_]
    assert titles == ["P(y = yes)", "aleatoric (nats)", "epistemic (nats)"]
    assert display.axes_[0].get_ylabel() == "x1"
    _, labels = display.axes_[0].get_legend_handles_labels()
    assert labels == ["no", "yes"]
    figure, axes = plt.subplots(1, 3)
    assert display.plot(ax=axes).figure_ is figure


def test_map_of_several_classes():
    display = UncertaintyMapDisplay.from_estimator(
        HalfPlanes(("a", "b", "c")), POINTS, responses=["prediction"], grid_resolution=4
    )
    assert display.maps["prediction"].tolist() == [["a", "a", "b", "b"]] * 4
    assert display.titles == {"prediction": "predicted class"}
    display.figure_.canvas.draw()


class Slope(RegressorMixin, BaseEstimator):
    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float)

    def predict_uncertainty(self, X):
        return split(np.abs(self.predict(X)))


def test_map_of_a_regressor():
    display = UncertaintyMapDisplay.from_estimator(
        Slope(), POINTS, [0.0, 1.0, 2.0], responses=["prediction", "total"]
    )
    assert [ax.get_title() for ax in display.axes_] == [
        "mean",
        "total (unit of the target)",
    ]


@pytest.mark.parametrize("container", ["pandas", "polars", "array"])
def test_other_features_are_held(container):
    frame = pd.DataFrame(
        {
            "count": [1, 2, 9],
            "x": [0.0, 1.0, 2.0],
            "flag": [True, True, False],
            "y": [0.0, 1.0, 5.0],
        }
    )
    X, features = frame, ("x", "y")
    if container == "polars":
        X = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    elif container == "array":
        X, features = frame.drop(columns="flag").to_numpy(), (1, 2)
    model = HalfPlanes()
    display = UncertaintyMapDisplay.from_estimator(
        model, X, features=features, grid_resolution=3
    )
    assert type(model.X_) is type(X) and model.X_.shape == (9, X.shape[1])
    if container == "array":
        assert (model.X_[:, 0] == 2).all()
        assert display.feature_names == ("x1", "x2")
    else:
        assert list(model.X_["count"]) == [2] * 9 and list(model.X_["flag"]) == [1] * 9
        assert model.X_["count"].dtype == X["count"].dtype
        assert display.feature_names == ("x", "y")
    assert "held at their median" in display.note


def test_map_errors():
    class TwoOutputs(Slope):
        def predict(self, X):
            return np.asarray(X)

    with pytest.raises(ValueError, match="one output, but the estimator has 2"):
        UncertaintyMapDisplay.from_estimator(TwoOutputs(), POINTS)
    frame = pd.DataFrame({"x": [0.0, 1.0], "c": ["u", "v"]})
    with pytest.raises(ValueError, match="numbers, but 'c' is not"):
        UncertaintyMapDisplay.from_estimator(HalfPlanes(), frame)
    with pytest.raises(ValueError, match=r"responses must be out of .* got \['sum'\]"):
        UncertaintyMapDisplay.from_estimator(HalfPlanes(), POINTS, responses=["sum"])


# --- Trade-off ---


def sweep(explanation, weights, distances, falls):
    return [
        replace(
            explanation,
            distance_weight=weight,
            distance=np.full(2, distance),
            uncertainty_after=Uncertainty(
                *(part - fall for part in explanation.uncertainty_before)
            ),
        )
        for weight, distance, fall in zip(weights, distances, falls, strict=True)
    ]


def test_trade_off_of_one_method(table_explanation):
    explanations = sweep(
        table_explanation, [0.1, 1, 10], [4.0, 1.0, 0.1], [0.5, 0.4, 0.1]
    )
    display = TradeOffDisplay.from_explanations(explanations)
    (curve,) = display.curves.values()
    assert list(display.curves) == ["CLUE"]
    np.testing.assert_allclose(curve["distance"], [4, 1, 0.1])
    np.testing.assert_allclose(curve["explained"], [0.5, 0.4, 0.1])
    assert curve["is_knee"].tolist() == [False, True, False]
    assert display.ax_.get_ylabel() == "mean fall of entropy (nats)"
    texts = {text.get_text(): text for text in display.ax_.texts}
    assert set(texts) == {"0.1", "1", "10"}
    assert texts["1"].get_fontweight() == "bold"


def test_trade_off_of_methods_shares_its_scale(table_explanation):
    far = sweep(table_explanation, [1, 2], [10.0, 1.0], [0.5, 0.3])
    near = sweep(table_explanation, [1, 2], [1.0, 0.5], [0.2, 0.15])
    alone = TradeOffDisplay.from_explanations({"near": near})
    assert alone.curves["near"]["is_knee"].tolist() == [False, True]
    # At the scale of the other method its distances hardly differ, its gains do.
    together = TradeOffDisplay.from_explanations({"far": far, "near": near})
    assert together.curves["near"]["is_knee"].tolist() == [True, False]
    assert together.curves["far"]["is_knee"].tolist() == [False, True]
    _, labels = together.ax_.get_legend_handles_labels()
    assert labels == ["far", "near", "knee point"]


def test_trade_off_without_weights(table_explanation):
    explanations = sweep(table_explanation, [None] * 2, [2.0, 0.5], [0.2, 0.1])
    display = TradeOffDisplay.from_explanations(explanations)
    assert len(display.ax_.texts) == 0
    assert "distance weight" not in display.ax_.get_xlabel()


def test_labels_do_not_overlap(table_explanation):
    n_points = 40
    explanations = sweep(
        table_explanation,
        np.geomspace(0.01, 100, n_points),
        np.linspace(4, 0.1, n_points),
        0.5 * np.sqrt(np.linspace(1, 0.01, n_points)),
    )
    display = TradeOffDisplay.from_explanations(explanations)
    boxes = [text.get_window_extent() for text in display.ax_.texts]
    assert 5 < len(boxes) < n_points
    for position, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[position + 1 :])


def test_trade_off_errors():
    with pytest.raises(ValueError, match="at least one explanation per method"):
        TradeOffDisplay.from_explanations([])
    with pytest.raises(ValueError, match="got none for 'CLUE'"):
        TradeOffDisplay.from_explanations({"CLUE": []})


# --- Rejection ---


def test_rejection_curve_of_known_predictions():
    y_true = np.zeros(20, dtype=int)
    y_pred = np.repeat([0, 1], [15, 5])  # the five least sure are wrong
    display = RejectionCurveDisplay.from_predictions(y_true, y_pred, np.arange(20))
    assert display.error[0] == 0.25
    at = dict(zip(display.share_rejected.round(2), display.error, strict=True))
    assert at[0.25] == 0 and at[0.05] == pytest.approx(4 / 19)
    np.testing.assert_allclose(display.line_.get_ydata(), display.error)
    assert display.random_line_.get_ydata()[0] == 0.25
    assert display.ax_.get_ylabel() == "error rate among the rows kept"
    assert display.share_rejected.max() == 0.95


def test_rejection_curve_of_estimators():
    X = np.column_stack([np.linspace(-1, 1, 50), np.linspace(0, 1, 50)])
    y = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
    y[-10:] = "no"
    display = RejectionCurveDisplay.from_estimator(HalfPlanes(), X, y)
    assert display.error[0] == 0.2 and display.error[-1] == 0
    assert display.name == "HalfPlanes"
    other = RejectionCurveDisplay.from_estimator(
        Slope(), X, X[:, 0] + 1, name="$a$", ax=display.ax_, kind="aleatoric"
    )
    assert other.metric_name == "root mean squared error"
    np.testing.assert_allclose(other.error, 1)
    assert other.line_.get_color() != display.line_.get_color()
    assert other.line_.get_label() == r"\$a\$"


def test_rejection_curves_share_a_legend_that_hides_nothing():
    figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
    for name, wrong in {"one": 3, "two": 4, "three": 2}.items():
        y_true = np.arange(20) >= 20 - wrong
        RejectionCurveDisplay.from_predictions(
            y_true, np.zeros(20, bool), np.arange(20), name=name, ax=ax
        )
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["one", "rejecting at random", "two", "three"]
    figure.canvas.draw()
    top = ax.transData.transform([0, 4 / 20])[1]
    assert ax.get_legend().get_window_extent().y0 > top


def test_rejection_curve_with_a_metric_and_outputs():
    def largest_error(y_true, y_pred):
        return np.abs(y_true - y_pred).max()

    y_pred = np.column_stack([np.arange(8.0), np.zeros(8)])
    display = RejectionCurveDisplay.from_predictions(
        np.zeros((8, 2)), y_pred, y_pred, metric=largest_error
    )
    assert display.metric_name == "largest error"
    assert display.error.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    figure, ax = plt.subplots()
    assert display.plot(ax=ax).figure_ is figure


def test_rejection_curve_errors():
    with pytest.raises(ValueError, match="one entry per row, got 2, 2 and 3"):
        RejectionCurveDisplay.from_predictions([0, 1], [0, 1], [1, 2, 3])
