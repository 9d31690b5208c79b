"""Pictures of explanations, by their data and artists."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clue.plotting import (
    DriversDisplay,
    ExplanationDisplay,
    ImageExplanationDisplay,
)

plt = pytest.importorskip("matplotlib.pyplot")


def test_bars_hold_the_changes(table_explanation):
    display = ExplanationDisplay.from_explanation(table_explanation)
    first, second = display.changes
    assert first["feature"].tolist()[:2] == ["charge", "$x_1$"]
    assert first["values"].tolist()[:2] == ["felony → misdemeanour", "10 → 60"]
    np.testing.assert_allclose(first["shift"], [np.nan, 50, 0], atol=1)
    assert first["highlighted"].tolist() == [True, True, False]
    np.testing.assert_allclose(second["shift"], [5, np.nan, 0], atol=1)
    assert display.titles[0] == ("first: predicted yes → no\nentropy 0.60 → 0.20 nats")


def test_bars_are_drawn(table_explanation):
    display = ExplanationDisplay.from_explanation(table_explanation)
    assert len(display.axes_) == 2
    ax = display.axes_[0]
    assert ax.figure is display.figure_
    *bars, band = ax.patches
    widths = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(widths, [0, 50, 0], atol=1)
    # The category has a band from edge to edge in place of a bar of no length, and the
    # axis says what it means.
    assert band.get_hatch() and band.get_y() < 0 < band.get_y() + band.get_height()
    assert (band.get_x(), band.get_x() + band.get_width()) == ax.get_xlim()
    assert "hatched: category or gap" in ax.get_xlabel()
    assert "hatched" not in display.axes_[1].get_xlabel()
    assert len(display.axes_[1].patches) == 3
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
    assert "1 row not drawn, see max_rows" in display.axes_[0].get_xlabel()


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


# --- Where every change was needed ---


def test_titles_tell_verdict_prediction_and_target(sure_explanation):
    display = sure_explanation[:2].plot()
    assert display.titles[0] == (
        "row 0: sure; predicted good 54 % → 71 %\n"
        "entropy 0.60 → 0.20 nats (sure up to 0.25 nats)"
    )
    assert display.axes_[0].get_title(loc="left") == display.titles[0]


def test_all_changes_are_drawn_and_nothing_else(sure_explanation):
    display = sure_explanation[:4].plot(max_features=1)
    assert [frame["feature"].tolist() for frame in display.changes] == [
        ["housing", "amount"],
        ["amount"],
        ["income"],
        ["amount"],
    ]
    assert "1 feature stays" in display.axes_[0].get_xlabel()
    assert "2 features stay" in display.axes_[1].get_xlabel()
    # No lines at 15 percentile points, which mean nothing here.
    assert "±15" not in display.axes_[0].get_xlabel()
    # A gap that is filled has a band as well.
    assert display.axes_[2].patches[-1].get_hatch()


def test_waterfall_goes_from_before_to_after(sure_explanation):
    display = sure_explanation[:2].plot(kind="waterfall")
    ax = display.axes_[0]
    assert display.changes[0]["feature"].tolist() == ["amount", "housing"]
    starts = [bar.get_x() for bar in ax.patches]
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(starts, [0.6, 0.3])
    np.testing.assert_allclose(widths, [-0.3, -0.1])
    assert "sure up to here" in ax.get_xlabel()
    assert ax.get_xlabel().startswith("entropy (nats)")
    low, high = ax.get_xlim()
    assert low < 0.2 and high > 0.6


def test_levels_of_a_waterfall_do_not_run_into_each_other(sure_explanation):
    """A small fall from a large uncertainty has levels of many digits."""
    first = sure_explanation[:1]
    before, after = first.uncertainty_before, first.uncertainty_after
    fall = before.total - after.total
    high = [part + 100 for part in (after.total + 0.01 * fall, after.total)]
    small = replace(
        first,
        uncertainty_before=before._replace(total=high[0]),
        uncertainty_after=after._replace(total=high[1]),
        contributions=0.01 * first.contributions,
        kind="total",
        target=float(high[1][0]),
    )
    display = small.plot(kind="waterfall")
    display.figure_.canvas.draw()
    ax = display.axes_[0]
    low, high = ax.get_xlim()
    labels = [
        label.get_window_extent()
        for label in ax.get_xticklabels()
        if low <= label.get_position()[0] <= high
    ]
    assert len(labels) > 1
    for one, other in zip(labels, labels[1:], strict=False):
        assert one.x1 < other.x0


def test_waterfall_gathers_what_it_leaves_out(sure_explanation):
    weighed = replace(sure_explanation, distance_weight=1.0)[0]
    display = weighed.plot(kind="waterfall", max_features=1)
    ax = display.axes_[0]
    assert ax.get_yticklabels()[-1].get_text() == "all others"
    assert ax.patches[-1].get_x() + ax.patches[-1].get_width() == pytest.approx(0.2)


def test_waterfall_needs_contributions(table_explanation):
    with pytest.raises(ValueError, match="A waterfall shows contributions"):
        table_explanation.plot(kind="waterfall")
    with pytest.raises(ValueError, match="kind must be one of changes, waterfall"):
        table_explanation.plot(kind="bars")


def test_many_rows_are_drawn_together(sure_explanation):
    assert len(sure_explanation) == 8
    assert isinstance(sure_explanation.plot(), DriversDisplay)
    assert isinstance(sure_explanation.plot(max_rows=2), ExplanationDisplay)
    assert isinstance(sure_explanation.plot(kind="waterfall"), ExplanationDisplay)
    assert len(sure_explanation[:6].plot().axes_) == 6
    without = replace(sure_explanation, contributions=None).plot()
    assert len(without.axes_) == 6
    assert "2 rows not drawn" in without.axes_[-1].get_xlabel()
