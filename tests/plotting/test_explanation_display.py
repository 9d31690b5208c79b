"""Pictures of explanations, by their data and artists."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clue.plotting import ExplanationDisplay, ImageExplanationDisplay

plt = pytest.importorskip("matplotlib.pyplot")


def test_bars_hold_the_changes(table_explanation):
    display = ExplanationDisplay.from_explanation(table_explanation)
    first, second = display.changes
    assert first["feature"].tolist()[:2] == ["charge", "$x_1$"]
    assert first["values"].tolist()[:2] == ["felony → misdemeanour", "10 → 60"]
    np.testing.assert_allclose(first["shift"], [np.nan, 50, 0], atol=1)
    assert first["highlighted"].tolist() == [True, True, False]
    np.testing.assert_allclose(second["shift"], [5, np.nan, 0], atol=1)
    assert display.titles[0] == "first: entropy 0.60 → 0.20 nats"


def test_bars_are_drawn(table_explanation):
    display = ExplanationDisplay.from_explanation(table_explanation)
    assert len(display.axes_) == 2
    ax = display.axes_[0]
    assert ax.figure is display.figure_
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, [0, 50, 0], atol=1)
    # The category has a diamond in place of a bar, and the axis says what it means.
    markers = [line for line in ax.lines if line.get_marker() == "D"]
    assert [line.get_ydata().tolist() for line in markers] == [[0]]
    assert "category changes" in ax.get_xlabel()
    assert "category changes" not in display.axes_[1].get_xlabel()
    # Highlighting does not rest on colour alone.
    labels = ax.get_yticklabels()
    assert [label.get_fontweight() for label in labels] == ["bold", "bold", "normal"]
    # Text of the user's stays text, and is wrapped.
    assert labels[1].get_text() == r"\$x_1\$"
    assert "\n" in labels[2].get_text()
    assert display.axes_[0].get_xlim() == display.axes_[1].get_xlim()
    display.figure_.canvas.draw()


def test_rows_and_features_are_limited(table_explanation):
    display = ExplanationDisplay.from_explanation(
        table_explanation, max_rows=1, max_features=2
    )
    assert len(display.changes) == 1 and len(display.changes[0]) == 2
    assert display.n_left_out == [1]
    assert "1 feature not shown" in display.axes_[0].get_xlabel()


def test_plots_again_on_given_axes(table_explanation):
    display = ExplanationDisplay.from_explanation(table_explanation[:1])
    figure, ax = plt.subplots()
    assert display.plot(ax=ax) is display
    assert display.figure_ is figure and display.axes_[0] is ax
    with pytest.raises(ValueError, match="draws 1 row and needs 1 axes, got 2"):
        display.plot(ax=plt.subplots(2)[1])


def test_missing_values_are_drawn(table_explanation):
    X = table_explanation.X.astype({"charge": object}).copy()
    X.iloc[0, 1:] = [None, np.nan]
    display = replace(table_explanation, X=X)[0].plot()
    values = display.changes[0].set_index("feature")["values"]
    assert values["charge"] == "missing → misdemeanour"
    assert not display.changes[0].set_index("feature")["highlighted"]["charge"]


def test_explanation_chooses_its_display(table_explanation, image_explanation):
    assert isinstance(table_explanation.plot(), ExplanationDisplay)
    assert isinstance(image_explanation.plot(max_rows=1), ImageExplanationDisplay)
    with pytest.raises(ValueError, match="Use ImageExplanationDisplay"):
        ExplanationDisplay.from_explanation(image_explanation)
    with pytest.raises(ValueError, match="image_shape is None"):
        ImageExplanationDisplay.from_explanation(table_explanation)
    for explanation in (table_explanation, image_explanation):
        with pytest.raises(ValueError, match="no rows"):
            explanation[:0].plot()
