"""Distance against plausibility, of known figures."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_clue.plotting import FrontDisplay

plt = pytest.importorskip("matplotlib.pyplot")


def test_front_of_two_explainers(sure_explanation):
    near = replace(sure_explanation, distance=np.arange(8.0))
    far = [
        replace(
            sure_explanation,
            distance=np.full(8, distance),
            plausibility=np.full(8, 0.1 * distance),
            is_sure=np.arange(8) < 6,
        )
        for distance in (4.0, 5.0)
    ]
    display = FrontDisplay.from_explanations({"near": near, "far": far})
    (line,) = display.fronts["near"].to_dict("records")
    assert line["distance"] == 3.5 and line["plausibility"] == pytest.approx(0.5)
    assert line["distance_error"] == pytest.approx(
        np.std(np.arange(8), ddof=1) / 8**0.5
    )
    assert line["share_sure"] == 1
    assert display.fronts["far"]["distance"].tolist() == [4, 5]
    assert display.fronts["far"]["share_sure"].tolist() == [0.75, 0.75]
    assert display.plausibility_before == pytest.approx(0.4)
    _, labels = display.ax_.get_legend_handles_labels()
    assert sorted(labels) == ["far", "near", "the rows themselves"]
    assert {text.get_text() for text in display.ax_.texts} == {
        "100 % sure",
        "75 % sure",
    }
    figure, ax = plt.subplots()
    assert display.plot(ax=ax).figure_ is figure


def test_texts_do_not_overlap(sure_explanation):
    rng = np.random.default_rng(0)
    many = [
        replace(sure_explanation, distance=np.full(8, x), plausibility=np.full(8, y))
        for x, y in rng.random((40, 2))
    ]
    texts = FrontDisplay.from_explanations({"many": many}).ax_.texts
    boxes = [text.get_window_extent() for text in texts]
    for position, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[position + 1 :])


def test_front_errors(sure_explanation, table_explanation):
    with pytest.raises(ValueError, match="'CLUE' holds no plausibility"):
        FrontDisplay.from_explanations({"CLUE": table_explanation})
    with pytest.raises(ValueError, match="needs a dict of names to explanations"):
        FrontDisplay.from_explanations([sure_explanation])
    with pytest.raises(ValueError, match="no explanation for 'CLUE'"):
        FrontDisplay.from_explanations({"CLUE": []})
    with pytest.raises(TypeError, match="as explain.X. gives them, got str for 'CLUE'"):
        FrontDisplay.from_explanations({"CLUE": "CLUE"})
    with pytest.raises(ValueError, match="no rows to draw"):
        FrontDisplay.from_explanations({"CLUE": sure_explanation[:0]})
