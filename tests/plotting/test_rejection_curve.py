"""Rejection curves of known predictions."""

import numpy as np
import pytest
from fakes import HalfPlanes, Slope

from sklearn_clue.plotting import RejectionCurveDisplay

plt = pytest.importorskip("matplotlib.pyplot")


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
