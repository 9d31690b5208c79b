"""Trade-offs of known gains and costs."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clue import Uncertainty
from sklearn_clue.plotting import TradeOffDisplay


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
        room = box.padded(2)  # more than a touch apart
        assert not any(room.overlaps(other) for other in boxes[position + 1 :])


def test_labels_of_several_curves_keep_clear_of_the_knees(table_explanation):
    weights = np.geomspace(0.01, 100, 9)
    distances, falls = 4 / (1 + weights), 0.5 * (1 + weights) ** -0.3
    display = TradeOffDisplay.from_explanations(
        {
            name: sweep(table_explanation, weights, far * distances, falls)
            for name, far in (("a", 1.0), ("b", 1.02), ("c", 1.2))
        }
    )
    knees = np.vstack(
        [
            curve.loc[curve["is_knee"], ["distance", "explained"]]
            for curve in display.curves.values()
        ]
    )
    radius = 15 / 2 * display.figure_.dpi / 72
    for text in display.ax_.texts:
        box = text.get_window_extent()
        for center in display.ax_.transData.transform(knees):
            nearest = np.clip(center, box.min, box.max)
            assert np.hypot(*(nearest - center)) > 0.9 * radius


def test_trade_off_errors():
    with pytest.raises(ValueError, match="at least one explanation per method"):
        TradeOffDisplay.from_explanations([])
    with pytest.raises(ValueError, match="got none for 'CLUE'"):
        TradeOffDisplay.from_explanations({"CLUE": []})
