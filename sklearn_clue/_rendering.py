"""Words and HTML from the facts of an explanation, as `Explanation.to_dict` gives them.

Nothing here knows a model, a frame or a schema. All that comes from the data passes
`_text` on its way into HTML.
"""

import math

import numpy as np

__all__ = []

MAX_ROWS = 5  # that a notebook shows
_MAX_NAMED = 6  # changes that a paragraph names


# --- Words ---


def count(number, noun="row"):
    """Write a number of things: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def value(content, decimals=None):
    """Write a value of the user's table."""
    if content is None:
        return "missing"
    if isinstance(content, bool) or not isinstance(content, int | float):
        return str(content)
    if isinstance(content, int):
        return str(content)
    if decimals is None or abs(content) >= 1e15:
        return f"{content:.3g}"
    text = f"{content:.{decimals}f}"
    return text[1:] if float(text) == 0 and text.startswith("-") else text


def figure(number):
    """Write a figure of ours, such as an entropy."""
    if number is None or not math.isfinite(number):
        return "–"
    if number == 0 or 0.005 <= abs(number) < 1000:
        return f"{number:.2f}"
    return f"{number:.3g}"


def measured(before, after, unit):
    """Write how an uncertainty moves, with its unit."""
    return f"{figure(before)} → {figure(after)}" + (f" {unit}" if unit else "")


def summary(facts):
    """Write one paragraph per row."""
    return "\n".join(_paragraph(row, facts) for row in facts["rows"])


def _paragraph(row, facts):
    unit, threshold = facts["unit"], facts["threshold"]
    before = row["uncertainty"]["before"]["total"]
    after = row["uncertainty"]["after"]["total"]
    parts = [_what_changed(row, facts)]

    text = f"{facts['measure']} {measured(before, after, unit)}"
    if threshold is not None and before > threshold:
        side = "below" if after <= threshold else "still above"
        text += f", {side} the threshold of {figure(threshold)}"
    parts.append(text)

    rebuilt = row["uncertainty"]["reconstructed"]
    fall = before - after
    if rebuilt is not None and fall > 0 and before - rebuilt["total"] >= fall / 2:
        parts.append(
            f"plain auto-encoding alone leads to {figure(rebuilt['total'])}, most of "
            "the way"
        )
    old, new = row["prediction"]["before"], row["prediction"]["after"]
    if facts["measure"] == "entropy" and old == new:
        parts.append(f"prediction unchanged ({value(old)})")
    else:
        parts.append(f"prediction {prediction(old)} → {prediction(new)}")
    if row["converged"] is False:
        parts.append(f"the search had not settled after {row['n_iter']} steps")
    return f"{label(row)}: {'; '.join(parts)}."


def _what_changed(row, facts):
    if "pixels" in row:
        before, after = _pixels(row)
        if np.array_equal(before, after):
            return _why_unchanged(row, facts)
        changed = np.abs(after - before).max(axis=0) > 0.1 * _pixel_range([row])[1]
        return f"{count(int(changed.sum()), 'pixel')} of {changed.size} clearly change"
    pairs = zip(row["changes"], facts["features"], strict=True)
    highlighted = [pair for pair in pairs if pair[0]["highlighted"]]
    if highlighted:
        highlighted.sort(key=lambda pair: -shift(pair[0]))
        texts = [change(*pair) for pair in highlighted[:_MAX_NAMED]]
        if (more := len(highlighted) - len(texts)) > 0:
            texts.append(f"{more} more")
        *most, last = texts
        return f"{', '.join(most)} and {last}" if most else last
    if all(entry["before"] == entry["after"] for entry in row["changes"]):
        return _why_unchanged(row, facts)
    moves = zip(row["changes"], facts["features"], strict=True)
    moves = [pair for pair in moves if shift(pair[0]) > 0]
    if not moves:
        return "no feature moves far"
    largest = max(moves, key=lambda pair: shift(pair[0]))
    return (
        "no feature moves by 15 percentile points or more (most: "
        f"{change(*largest)}, {shift(largest[0]):.0f} points)"
    )


def _why_unchanged(row, facts):
    threshold = facts["threshold"]
    if threshold is not None and row["uncertainty"]["before"]["total"] <= threshold:
        return "nothing needs to change, the model does not reject this row"
    return "nothing changes, no surer row was found nearby"


def change(entry, feature):
    """Write the change of one feature."""
    old = value(entry["before"], feature["decimals"])
    new = value(entry["after"], feature["decimals"])
    return f"{feature['name']} {old} → {new}"


def shift(entry):
    """Measure a change in percentile points; a changed category counts as all of 100.

    What cannot be measured counts as 0.
    """
    old, new = entry["percentile_before"], entry["percentile_after"]
    if old is None or new is None:
        return 100.0 if entry["highlighted"] else 0.0
    return abs(new - old)


def label(row):
    """Write what a row is called; a bare number needs a word with it."""
    name = row["row"]
    return f"row {name}" if isinstance(name, int) else value(name)


def prediction(content):
    """Write a predicted class, mean, or means of several outputs."""
    if isinstance(content, list):
        return f"({', '.join(prediction(entry) for entry in content)})"
    return f"{content:.3g}" if isinstance(content, float) else value(content)


# --- Images ---


def _pixels(row):
    """Both images of a row, as arrays of shape (n_channels, height, width)."""
    images = (np.asarray(row["pixels"][when]) for when in ("before", "after"))
    return [image[None] if image.ndim == 2 else image for image in images]


def _pixel_range(rows):
    """Darkest and brightest value: 0 and 1 unless the pixels leave that range."""
    images = [image for row in rows for image in _pixels(row)]
    low = min(0.0, *(image.min() for image in images))
    high = max(image.max() for image in images)
    return low, high if high > 1 else 1.0
