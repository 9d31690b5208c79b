"""Words from the facts of an explanation, as `Explanation.to_dict` gives them.

Nothing here knows a model, a frame or a schema.
"""

import math

import numpy as np

__all__ = []

# Directions of `Explanation.drivers` that need other words.
DIRECTIONS = {"both": "up or down", "filled": "gaps are filled"}

_MAX_NAMED = 6  # changes that a paragraph names, if not all of them matter


# --- Single values ---


def count(number, noun="row"):
    """Write a number of things: 1 row, 2 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def value(content, decimals=None):
    """Write a value of the user's table; `decimals` are given for numbers only."""
    if content is None:
        return "missing"
    if isinstance(content, bool) or not isinstance(content, int | float):
        return str(content)
    if isinstance(content, int):
        return str(content) if decimals is None else f"{content:,}"
    if abs(content) >= 1e15:
        return f"{content:.6g}"
    if decimals is None:
        return str(int(content)) if content.is_integer() else f"{content:.6g}"
    text = f"{content:,.{decimals}f}"
    return text[1:] if float(text.replace(",", "")) == 0 and text[0] == "-" else text


def two_values(entry, feature):
    """Write a value before and after a change, in digits that tell the two apart."""
    both = entry["before"], entry["after"]
    old, new = (value(content, feature["decimals"]) for content in both)
    if old != new or both[0] == both[1]:
        return old, new
    if all(isinstance(content, float) for content in both):
        for decimals in range((feature["decimals"] or 0) + 1, 16):
            old, new = (f"{content:,.{decimals}f}" for content in both)
            if old != new:
                return old, new
    return repr(both[0]), repr(both[1])


def figure(number):
    """Write a figure of ours, such as an entropy."""
    if number is None or not math.isfinite(number):
        return "–"
    if number == 0 or 0.005 <= abs(number) < 1000:
        return f"{number:.2f}"
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}"


def rounded(number):
    """Write the size of a number with two digits that count."""
    number = float(f"{abs(number):.2g}")
    return f"{number:,.0f}" if number >= 10 else f"{number:g}"


def figures(before, after, *others):
    """Write figures side by side, in digits that tell the first two apart."""
    texts = tuple(map(figure, (before, after, *others)))
    if texts[0] != texts[1] or "–" in texts or before == after:
        return texts
    for decimals in range(3, 7):
        longer = tuple(f"{each:,.{decimals}f}" for each in (before, after, *others))
        if longer[0] != longer[1]:
            return longer
    return texts


def measured(before, after, unit):
    """Write how an uncertainty moves, with its unit."""
    return " → ".join(figures(before, after)) + (f" {unit}" if unit else "")


def percent(part):
    """Write a share; what is not all or nothing never reads as such."""
    if 0.995 <= part < 1:
        return ">99 %"
    return "<1 %" if 0 < part < 0.005 else f"{100 * part:z.0f} %"


def label(row):
    """Write what a row is called; a bare number needs a word with it."""
    name = row["row"]
    if isinstance(name, list):  # of a MultiIndex
        return f"row ({', '.join(map(value, name))})"
    return f"row {name}" if isinstance(name, int) else value(name)


def prediction(content):
    """Write a predicted class, mean, or means of several outputs."""
    if isinstance(content, list):
        return f"({', '.join(prediction(entry) for entry in content)})"
    if isinstance(content, float) and not 1000 <= abs(content) < 1e7:
        return f"{content:.4g}"
    return value(content, 0 if isinstance(content, float) else None)


# --- Parts of sentences ---


def predicted(row, facts):
    """Write what is predicted, before and after, with how likely or how exact it is.

    Classes have their probabilities, and means of a regression their interval or their
    deviation, as far as they are known.
    """
    return tuple(_predicted(row, facts, when) for when in ("before", "after"))


def _predicted(row, facts, when):
    content, text = row["prediction"][when], prediction(row["prediction"][when])
    if row["probability"] is not None:
        return _with_share(text, percent(row["probability"][when]))
    if facts["unit"] or not isinstance(content, float):
        return text
    if row["interval"] is not None:
        low, high = row["interval"][when]
        return f"{text} ({prediction(low)} to {prediction(high)})"
    return plus_minus(content, row["uncertainty"][when]["total"])


def _with_share(text, share):
    """Write a class and its probability; 1 54 % would read as one number."""
    return f"{text} ({share})" if text[-1:].isdigit() else f"{text} {share}"


def plus_minus(mean, deviation):
    """Write a mean and its deviation with the digits that the latter is worth."""
    if not deviation or not 1e-6 < deviation < 1e15:
        return prediction(mean)
    decimals = max(0, 1 - math.floor(math.log10(deviation)))
    return f"{value(mean, decimals)} ± {value(deviation, decimals)}"


def predicted_moves(row, facts):
    """Write what is predicted before and after: good 54 % → 71 %."""
    old, new = predicted(row, facts)
    is_same = (
        facts["unit"] and row["prediction"]["before"] == row["prediction"]["after"]
    )
    if is_same and row["probability"] is not None:
        both = [percent(row["probability"][when]) for when in ("before", "after")]
        moves = both[0] if both[0] == both[1] else " → ".join(both)
        return _with_share(prediction(row["prediction"]["before"]), moves)
    return old if old == new else f"{old} → {new}"


def _prediction_moves(row, facts):
    both = row["prediction"]
    is_same = facts["unit"] and both["before"] == both["after"]
    text = predicted_moves(row, facts)
    if is_same and row["probability"] is None:
        return f"prediction unchanged ({text})"
    return f"prediction {text}"


def judged_measure(facts):
    """Name the uncertainty that was to fall."""
    kind = "" if facts["kind"] == "total" else f"{facts['kind']} "
    return f"{kind}{facts['measure']}"


def fall(row):
    """How far the uncertainty fell that was to fall, or NaN."""
    before, after = row["judged"]["before"], row["judged"]["after"]
    return math.nan if before is None or after is None else before - after


def share(entry, row):
    """The share of the fall that the change of one feature brings, or None."""
    if entry.get("contribution") is None or not fall(row) > 0:
        return None
    return entry["contribution"] / fall(row)


def main_driver(row, facts):
    """Name the change that lowers the uncertainty most: most of it by amount (71 %)."""
    if facts["image_shape"] is not None:
        return None
    pairs = [
        (part, name_of(feature))
        for entry, feature in zip(row["changes"], facts["features"], strict=True)
        if (part := share(entry, row))
    ]
    if len(pairs) < 2:  # a single change has done it all, and needs no words
        return None
    part, name = max(pairs, key=lambda pair: pair[0])
    much = "most of it" if part > 0.505 else "the largest part"
    against = ", others work against it" if part > 1.005 else ""
    return f"{much} by {name} ({percent(part)}{against})"


def name_of(feature):
    """Write the name of a feature; a bare number needs a word with it."""
    name = feature["name"]
    return f"column {name}" if name.isdigit() else name


def change(entry, feature):
    """Write the change of one feature."""
    return f"{name_of(feature)} {' → '.join(two_values(entry, feature))}"


def shift(entry):
    """Measure a change in percentile points; a changed category counts as all of 100.

    What cannot be measured counts as 0.
    """
    old, new = entry["percentile_before"], entry["percentile_after"]
    if old is None or new is None:
        return 100.0 if entry["highlighted"] else 0.0
    return abs(new - old)


def listed(texts):
    """Write an enumeration: a, b and c."""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


# --- Sentences ---


def heading(facts, n_rows):
    """Write what an explanation of some rows is about: sure, or surer."""
    goal = facts["goal"]
    return f"{facts['method']}: what would make the model {goal} of {count(n_rows)}"


def summary(facts):
    """Write one paragraph per row."""
    write = _verdict_paragraph if facts["goal"] == "sure" else _paragraph
    # Names and values may hold line breaks.
    text = "\n".join(" ".join(write(row, facts).splitlines()) for row in facts["rows"])
    # And halves of surrogate pairs, which nothing can print.
    return text.encode(errors="backslashreplace").decode()


def sentence(row, facts):
    """Say what would make the model sure of a row; the verdict comes first."""
    what = _conditions(row, facts)
    if row["verdict"] == "already sure":
        if what is not None and facts["goal"] == "sure":
            moved = _conditions(row, facts, verb=" ")
            return f"Sure already. Changed only to lie within its ranges: {moved}."
        return "Sure already: nothing needs to change."
    if not row["is_sure"]:
        if what is None:
            return "Still unsure: no surer row was found."
        return f"Still unsure: no sure row was found. Least unsure if {what}."
    if what is None:
        return "Sure, and nothing changes."
    old, new = (prediction(row["prediction"][when]) for when in ("before", "after"))
    other = f" of {new} instead of {old}" if "another class" in row["verdict"] else ""
    text = f"Would be sure{other} if {what}."
    if row["is_plausible"] is False:
        text += f" But such a row is less believable than asked{_plausibility(row)}."
    return text


def _plausibility(row):
    found = row["plausibility"]
    return "" if found is None else f" (plausibility {figure(found)})"


def _verdict_paragraph(row, facts):
    before, after = row["judged"]["before"], row["judged"]["after"]
    unit = f" {facts['unit']}" if facts["unit"] else ""
    old, new, target = figures(before, after, facts["target"])
    text = f"{judged_measure(facts)} {old} → {new}{unit} (sure up to {target})"
    driver = main_driver(row, facts)
    parts = [_prediction_moves(row, facts), f"{text}, {driver}" if driver else text]
    if row["verdict"] == "already sure":
        old = predicted(row, facts)[0]
        parts = [
            f"prediction {old}",
            f"{judged_measure(facts)} {figure(before)}{unit} (sure up to "
            f"{figure(facts['target'])})",
        ]
    more = "; ".join(parts)
    return f"{label(row)}: {sentence(row, facts)} {more[0].upper()}{more[1:]}."


def _conditions(row, facts, verb=" were "):
    """Write what would have to be otherwise, or None if nothing is."""
    if "pixels" in row:
        return _pixels_changed(row, "changed clearly")
    pairs = zip(row["changes"], facts["features"], strict=True)
    changed = [pair for pair in pairs if pair[0]["highlighted"]]
    if not changed:
        return None
    changed.sort(key=lambda pair: (-(share(pair[0], row) or 0), -shift(pair[0])))
    first, *others = [_condition(*pair) for pair in changed]
    # One verb serves them all: amount were 2,100 ... and housing own ...
    texts = [verb.join(first), *(" ".join(other) for other in others)]
    return listed(texts)


def _condition(entry, feature):
    old, new = two_values(entry, feature)
    if isinstance(entry["after"], float) and feature["decimals"]:
        old, new = _without_zeros(old, new)
    if entry["before"] is None:
        return name_of(feature), f"known to be {new}"
    return name_of(feature), f"{new} instead of {old}"


def _without_zeros(old, new):
    """Drop digits after the point that are zero in both numbers."""
    known = [text for text in (old, new) if text != "missing"]
    while all("." in text and text[-1] in "0." for text in known):
        known = [text[:-1] for text in known]
    return old if len(known) == 1 else known[0], known[-1]


def _pixels_changed(row, verb):
    before, after = pixels(row)
    if np.array_equal(before, after):
        return None
    changed = np.abs(after - before).max(axis=0) > 0.1 * pixel_range([row])[1]
    if callable(verb):
        verb = verb(changed.sum())
    return f"{changed.sum()} of {changed.size} pixels {verb}"


def _paragraph(row, facts):
    """Say what changed in a row, where the distance was weighed against the fall."""
    unit, threshold = facts["unit"], facts["threshold"]
    before, after = (_total(row, when) for when in ("before", "after"))
    parts = [_what_changed(row, facts)]

    text = f"{facts['measure']} {measured(before, after, unit)}"
    if threshold is not None and before > threshold:
        side = "below" if after <= threshold else "still above"
        level = figures(before, after, threshold)[-1]
        text += f", {side} the threshold of {level}"
    if driver := main_driver(row, facts):
        text += f", {driver}"
    parts.append(text)
    if after > before:
        parts.append("the model is less sure than before")

    rebuilt = _total(row, "reconstructed")
    if before > after and before - rebuilt >= (before - after) / 2:
        much = "most" if rebuilt > after else "all"
        parts.append(
            f"plain auto-encoding alone leads to {figure(rebuilt)}, {much} of the way"
        )
    old, new = (prediction(row["prediction"][when]) for when in ("before", "after"))
    is_same = facts["measure"] == "entropy" and old == new
    parts.append(
        f"prediction unchanged ({old})" if is_same else f"prediction {old} → {new}"
    )
    if row["converged"] is False:
        parts.append(f"the search had not settled after {row['n_iter']} steps")
    return f"{label(row)}: {'; '.join(parts)}."


def _total(row, when):
    """A total uncertainty, or NaN, which is neither above nor below anything."""
    parts = row["uncertainty"][when]
    return math.nan if parts is None or parts["total"] is None else parts["total"]


def _what_changed(row, facts):
    if "pixels" in row:
        text = _pixels_changed(
            row, lambda n: "changes clearly" if n == 1 else "change clearly"
        )
        return _why_unchanged(row, facts) if text is None else text
    pairs = zip(row["changes"], facts["features"], strict=True)
    highlighted = [pair for pair in pairs if pair[0]["highlighted"]]
    if highlighted:
        highlighted.sort(key=lambda pair: -shift(pair[0]))
        texts = [change(*pair) for pair in highlighted[:_MAX_NAMED]]
        if (more := len(highlighted) - len(texts)) > 0:
            texts.append(f"{more} more")
        return listed(texts)
    if all(entry["before"] == entry["after"] for entry in row["changes"]):
        return _why_unchanged(row, facts)
    moves = zip(row["changes"], facts["features"], strict=True)
    moves = [pair for pair in moves if shift(pair[0]) > 0]
    if not moves:
        return "no feature moves far"
    largest = max(moves, key=lambda pair: shift(pair[0]))
    points = min(round(shift(largest[0])), 14)  # it is less than 15
    return (
        "no feature moves by 15 percentile points or more (most: "
        f"{change(*largest)}, {points} points)"
    )


def _why_unchanged(row, facts):
    threshold = facts["threshold"]
    if threshold is not None and _total(row, "before") <= threshold:
        return "nothing needs to change, the model does not reject this row"
    return "nothing changes, no surer row was found nearby"


def verdicts(facts):
    """Count the verdicts of all rows: 4 sure, 1 still unsure."""
    found = [row["verdict"] for row in facts["rows"]]
    return ", ".join(f"{found.count(name):,} {name}" for name in sorted(set(found)))


def bound(facts, text=None):
    """Write up to where the model counts as sure, if that is known."""
    name = "target" if facts["target"] is not None else "threshold"
    if facts[name] is None:
        return None
    words = "sure up to" if name == "target" else "rejected above"
    unit = f" {facts['unit']}" if facts["unit"] else ""
    return f"{words} {text or figure(facts[name])}{unit}"


def title(row, facts):
    """Write what a picture of a row is called, in two lines.

    First its name, the verdict and the prediction, then the uncertainty and its bound.
    """
    verdict = f"{row['verdict']}; " if row["verdict"] else ""
    first = f"{label(row)}: {verdict}predicted {predicted_moves(row, facts)}"
    judged = row["judged"]["before"], row["judged"]["after"]
    second = f"{judged_measure(facts)} {measured(*judged, facts['unit'])}"
    known = [facts[name] for name in ("target", "threshold") if facts[name] is not None]
    limit = bound(facts, figures(*judged, *known[:1])[-1])
    return f"{first}\n{second}" + (f" ({limit})" if limit else "")


# --- Pixels ---


def pixels(row):
    """Return both images of a row, of shape (n_channels, height, width)."""
    images = (np.asarray(row["pixels"][when]) for when in ("before", "after"))
    return [image[None] if image.ndim == 2 else image for image in images]


def pixel_range(rows):
    """Darkest and brightest value: 0 and 1 unless the pixels leave that range."""
    images = [image for row in rows for image in pixels(row)]
    low = min(0.0, *(image.min() for image in images))
    high = max(image.max() for image in images)
    return low, high if high > 1 else 1.0
