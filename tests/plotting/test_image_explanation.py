"""Images beside their counterfactuals, by their data and artists."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clue.plotting import ImageExplanationDisplay

plt = pytest.importorskip("matplotlib.pyplot")


def test_images(image_explanation):
    display = ImageExplanationDisplay.from_explanation(image_explanation)
    assert display.originals.shape == display.differences.shape == (2, 3, 4)
    # |Δ|·Δ keeps the sign.
    np.testing.assert_allclose(display.differences[0, 0, :3], [0.25, -0.0625, 0])
    assert not display.differences[1].any()
    assert display.captions[0] == (
        "0.60 nats\npredicts yes",
        "0.20 nats\npredicts no",
    )


def test_images_are_drawn_on_one_scale(image_explanation):
    display = ImageExplanationDisplay.from_explanation(image_explanation)
    assert display.axes_.shape == (2, 3)
    assert [ax.get_title() for ax in display.axes_[0]] == ["original", "CLUE", "|Δ|·Δ"]
    assert display.axes_[0, 1].get_xlabel() == "0.20 nats\npredicts no"
    limits = [ax.images[0].get_clim() for ax in display.axes_[:, 2]]
    assert limits == [(-0.25, 0.25)] * 2
    assert [ax.images[0].get_clim() for ax in display.axes_[0, :2]] == [(0, 1)] * 2
    np.testing.assert_array_equal(
        display.axes_[0, 2].images[0].get_array(), display.differences[0]
    )
    figure, axes = plt.subplots(2, 3)
    assert display.plot(ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="needs 6 axes, got 1"):
        display.plot(ax=axes[0, 0])


def test_images_say_what_they_leave_out(image_explanation):
    explanation = replace(image_explanation, threshold=0.5, is_sure=None)
    display = ImageExplanationDisplay.from_explanation(explanation, max_rows=1)
    assert display.note == ("rejected above 0.50 nats; 1 row not drawn, see max_rows")
    assert display.figure_._suptitle.get_text() == display.note
    # Large values are bright, as on the HTML page.
    assert display.axes_[0, 0].images[0].get_cmap().name == "gray"


@pytest.mark.parametrize("shape, drawn", [((3, 2, 2), (2, 2, 3)), ((2, 3, 2), (3, 2))])
def test_images_with_channels(image_explanation, shape, drawn):
    explanation = replace(image_explanation, image_shape=shape)
    display = ImageExplanationDisplay.from_explanation(explanation)
    assert display.originals.shape[1:] == drawn
    assert display.differences.shape[1:] == shape[1:]
