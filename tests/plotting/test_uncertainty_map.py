"""Maps of models with known answers."""

import numpy as np
import pandas as pd
import pytest
from fakes import HalfPlanes, Slope

from sklearn_clue._rendering import PART_COLORS
from sklearn_clue.plotting import UncertaintyMapDisplay

plt = pytest.importorskip("matplotlib.pyplot")
to_rgb = pytest.importorskip("matplotlib.colors").to_rgb

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


def test_each_part_has_its_own_colour():
    display = UncertaintyMapDisplay.from_estimator(
        HalfPlanes(), POINTS, responses=["total", "aleatoric", "epistemic"]
    )
    cmaps = [ax.collections[0].get_cmap() for ax in display.axes_]
    assert cmaps[0].name == "cividis"
    # The colours of the bars on the HTML page.
    for cmap, kind in zip(cmaps[1:], ("aleatoric", "epistemic"), strict=True):
        np.testing.assert_allclose(cmap(0.5)[:3], to_rgb(PART_COLORS[kind]), atol=0.01)
        # Lightness alone tells high from low.
        lightness = cmap(np.linspace(0, 1, 20))[:, :3] @ [0.2126, 0.7152, 0.0722]
        assert (np.diff(lightness) > 0).all()
    display.plot(cmap="gray")
    assert display.axes_[1].collections[0].get_cmap().name == "gray"


def test_map_of_several_classes():
    display = UncertaintyMapDisplay.from_estimator(
        HalfPlanes(("a", "b", "c")), POINTS, responses=["prediction"], grid_resolution=4
    )
    assert display.maps["prediction"].tolist() == [["a", "a", "b", "b"]] * 4
    assert display.titles == {"prediction": "predicted class"}
    display.figure_.canvas.draw()


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
