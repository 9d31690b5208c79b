"""What drives the uncertainty, by data and artists."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sklearn_clue.plotting import DependenceDisplay, DriversDisplay

plt = pytest.importorskip("matplotlib.pyplot")


def as_polars(explanation):
    pl = pytest.importorskip("polars")
    tables = {
        name: pl.DataFrame(
            {
                column: [None if pd.isna(value) else value for value in values]
                for column, values in getattr(explanation, name).items()
            }
        )
        for name in ("X", "counterfactuals")
    }
    return replace(explanation, **tables)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_drivers_hold_the_numbers(sure_explanation, container):
    if container == "polars":
        sure_explanation = as_polars(sure_explanation)
    display = DriversDisplay.from_explanation(sure_explanation)
    assert display.drivers["feature"].tolist() == ["amount", "income", "housing"]
    np.testing.assert_allclose(
        display.contributions, sure_explanation.contributions[:, [0, 2, 1]]
    )
    assert display.percentiles.shape == (8, 3)
    assert np.isnan(display.percentiles[:, 2]).all()  # a category
    assert np.isnan(display.percentiles[2, 1])  # a gap
    assert display.measure == "entropy (nats)"


def test_drivers_are_drawn(sure_explanation):
    display = DriversDisplay.from_explanation(sure_explanation)
    bars, points = display.axes_
    widths = [bar.get_width() for bar in bars.patches]
    np.testing.assert_allclose(
        widths, sure_explanation.contributions.mean(0)[[0, 2, 1]]
    )
    texts = [text.get_text() for text in bars.texts]
    assert texts == ["82 %, down", "14 %, gaps are filled", "4 %, to own"]
    drawn = sum(len(dots.get_offsets()) for dots in points.collections)
    assert drawn == (sure_explanation.contributions != 0).sum()
    labels = [label.get_text() for label in points.get_yticklabels()]
    assert labels == ["6 rows", "1 row", "1 row"]
    figure, axes = plt.subplots(1, 2)
    assert display.plot(ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="draws bars and points and needs 2 axes"):
        display.plot(ax=axes[0])
    display.drivers["direction"] = ["both", "up", "to own"]
    assert display.plot().axes_[0].texts[0].get_text() == "82 %, up or down"


def test_drivers_say_what_they_leave_out(sure_explanation):
    display = DriversDisplay.from_explanation(sure_explanation, max_features=1)
    assert display.note == "2 more features with 18 % of the fall not drawn"
    chosen = sure_explanation[[1, 3]]
    assert DriversDisplay.from_explanation(chosen).note == "2 features never change"


def test_points_do_not_hide_each_other(sure_explanation):
    display = DriversDisplay.from_explanation(sure_explanation)
    dots = np.vstack([dots.get_offsets() for dots in display.axes_[1].collections])
    assert len(np.unique(dots, axis=0)) == len(dots)
    assert np.abs(dots[:, 1] - dots[:, 1].round()).max() < 0.4


@pytest.mark.parametrize("display", [DriversDisplay, DependenceDisplay])
def test_what_cannot_be_drawn_is_refused(
    display, sure_explanation, table_explanation, image_explanation
):
    with pytest.raises(ValueError, match="holds no contributions"):
        display.from_explanation(table_explanation)
    with pytest.raises(ValueError, match="Use ImageExplanationDisplay"):
        display.from_explanation(image_explanation)
    with pytest.raises(ValueError, match="no rows to draw"):
        display.from_explanation(sure_explanation[:0])


def test_drivers_of_nothing(sure_explanation):
    with pytest.raises(ValueError, match="Nothing changes in this explanation"):
        DriversDisplay.from_explanation(sure_explanation[7])


# --- One feature ---


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_dependence_on_a_number(sure_explanation, container):
    explanation = sure_explanation
    if container == "polars":
        explanation = as_polars(sure_explanation)
    display = DependenceDisplay.from_explanation(explanation)
    assert display.feature == "amount" and display.categories is None
    np.testing.assert_array_equal(display.before, sure_explanation.X["amount"])
    np.testing.assert_array_equal(
        display.contributions, sure_explanation.contributions[:, 0]
    )
    assert display.is_changed.tolist() == [
        True,
        True,
        False,
        True,
        True,
        True,
        True,
        False,
    ]
    _, labels = display.ax_.get_legend_handles_labels()
    assert labels == ["its new value", "stays (2 rows)", "changes (6 rows)"]
    figure, ax = plt.subplots()
    assert display.plot(ax=ax).figure_ is figure


def test_dependence_on_a_category(sure_explanation):
    display = DependenceDisplay.from_explanation(sure_explanation, "housing")
    assert display.categories == ["free", "own", "rent"]
    assert display.before.tolist()[:3] == [2, 0, 1] and display.after[0] == 1
    ticks = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert ticks == ["free", "own", "rent"]


@pytest.mark.parametrize("n_categories", [2, 12])
def test_many_categories_do_not_run_into_each_other(n_categories):
    names = [f"furniture of the kind {k}" for k in range(n_categories)]
    display = DependenceDisplay(
        feature="purpose",
        before=np.arange(n_categories),
        after=np.arange(n_categories)[::-1],
        contributions=np.linspace(0.1, 0.3, n_categories),
        is_changed=np.ones(n_categories, dtype=bool),
        categories=names,
    ).plot()
    display.figure_.canvas.draw()
    labels = display.ax_.get_xticklabels()
    assert [label.get_text() for label in labels] == names
    assert {label.get_rotation() for label in labels} == {35 if n_categories > 2 else 0}
    if n_categories == 2:
        first, second = (label.get_window_extent() for label in labels)
        assert not first.overlaps(second)


def test_dependence_with_gaps(sure_explanation):
    display = DependenceDisplay.from_explanation(sure_explanation, 2)
    assert display.feature == "income" and np.isnan(display.before[2])
    (text,) = display.ax_.texts
    assert text.get_text() == "missing"
    places = [line.get_xdata() for line in display.ax_.lines]
    assert all(np.isfinite(place).all() for place in places)


def test_dependence_on_an_unknown_feature(sure_explanation):
    with pytest.raises(ValueError, match="no feature 'x'. The features are: amount"):
        DependenceDisplay.from_explanation(sure_explanation, "x")
