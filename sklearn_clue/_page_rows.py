"""The rows of an explanation as a table to search, which is part of every page.

The script of the page draws it from what `data` gives, and shows whatever comes from
the data as text. Text that is written here passes `escape` on its way into HTML.
"""

import html

from sklearn_clue import _rendering, _words

__all__ = []


def escape(content):
    """Make text safe to stand in HTML, between tags and in attributes."""
    return html.escape(str(content), quote=True)


def swatch(kind):
    """A small field in the colour and pattern of a kind of uncertainty."""
    return f'<span class="swatch {kind}" aria-hidden="true"></span>'


def section(facts):
    """Write the frame of the table, the words it uses, and what stands in for it."""
    terms = "".join(
        f"<div><dt>{name}</dt><dd>{words}</dd></div>" for name, words in _terms(facts)
    )
    sentences = "".join(
        f"<li>{escape(_words.label(row))}: {escape(_sentence(row, facts))}</li>"
        for row in facts["rows"]
    )
    return (
        '<p class="hint">A click on the name of a row shows all about it.</p>'
        '<details id="terms" open><summary>What the words mean</summary>'
        f'<dl class="terms">{terms}</dl></details>'
        '<div id="controls" class="controls"></div>'
        '<p id="status" role="status" aria-live="polite"></p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Rows">'
        '<table id="table"></table></div>'
        '<p><button type="button" id="more" hidden>Show more rows</button></p>'
        "<noscript><p><strong>Scripts are off, so there is no table to search. "
        f"</strong></p><ul>{sentences}</ul></noscript>"
    )


def _terms_of_parts(facts):
    """Explain what the bars are made of, as HTML."""
    bars = "The bar is as long as the uncertainty before. "
    unknown = [row["uncertainty"]["before"]["epistemic"] for row in facts["rows"]]
    if unknown and not any(unknown):
        yield (
            f"{swatch('aleatoric')} aleatoric",
            f"{bars}All of it counts as noise in the data: this model does not tell "
            "noise from a lack of data.",
        )
        return
    yield (
        f"{swatch('aleatoric')} aleatoric",
        f"{bars}This part of it is noise in the data, which stays however many rows "
        "there are.",
    )
    yield (
        f"{swatch('epistemic')} epistemic",
        "The other part is a lack of data nearby, which more rows would cure.",
    )


def _terms(facts):
    """Explain the measures that the table uses, as HTML."""
    if facts["unit"]:
        words = ". 0 nats is certain, and 0.69 a coin toss between two classes."
    else:
        words = (
            ", in the unit of the target. Two of three true values should be nearer to "
            "the prediction than that."
        )
    bound = _words.bound(facts)
    bound = f" A row counts as {bound}." if bound else ""
    yield facts["measure"], f"How unsure the model is{words}{bound}"
    yield from _terms_of_parts(facts)
    if facts["image_shape"] is not None:
        yield (
            "difference",
            "|Δ|·Δ of the pixels on one scale for all rows, from orange (darker) to "
            "purple (brighter).",
        )
    else:
        yield "percentile", "How many of 100 training rows are below the value."
        yield (
            "distance",
            "All changes of a row added up: a number counts in standard deviations of "
            "its column, and another category as 2.",
        )
    if any(row["plausibility"] is not None for row in facts["rows"]):
        yield (
            "plausibility",
            "How well the changed row fits among the training rows: the share of them "
            "that fit no better. 0.5 is usual, and 0 is unlike all of them.",
        )
    if facts["goal"] != "sure" and facts["image_shape"] is None:
        yield (
            "clear change",
            "A category that changes, or a number that moves by 15 percentile points "
            "or more.",
        )
    if any(row["uncertainty"]["reconstructed"] for row in facts["rows"]):
        yield (
            "after auto-encoding",
            "The uncertainty if the generator only writes the row and reads it back.",
        )


# --- What the script draws ---


def data(facts, groups=()):
    """Give what the table is made of, as plain values."""
    rows, features, pictures = facts["rows"], facts["features"], None
    if facts["image_shape"] is not None and rows:
        pictures = _rendering.pictures(rows)
        features = []  # its pixels are no columns to read
    totals = [row["uncertainty"]["before"]["total"] or 0 for row in rows]
    return {
        "features": [feature["name"] for feature in features],
        "numeric": [feature["kind"] != "category" for feature in features],
        "groups": list(groups),
        "goal": facts["goal"],
        "measure": facts["measure"],
        "unit": facts["unit"] or "",
        "hasTruth": any("truth" in row for row in rows),
        "largest": _short(max(totals, default=0)) or 1,
        "rows": [
            _row_data(row, facts, pictures and pictures[position])
            for position, row in enumerate(rows)
        ],
    }


def _row_data(row, facts, pictures):
    both = row["prediction"]["before"], row["prediction"]["after"]
    rebuilt = row["uncertainty"]["reconstructed"]
    entry = {
        "name": _words.label(row),
        "verdict": row["verdict"] or "",
        "words": _sentence(row, facts),
        "prediction": _words.predicted_moves(row, facts),
        "flips": bool(facts["unit"]) and both[0] != both[1],
        "before": _parts(row["uncertainty"]["before"]),
        "after": _parts(row["uncertainty"]["after"]),
        "rebuilt": rebuilt and _short(rebuilt["total"]),
        "distance": _short(row["distance"]),
        "plausibility": _short(row["plausibility"]),
        "nChanged": row["n_changed"],
    }
    if "group" in row:
        entry["group"] = row["group"]
    if "truth" in row:
        entry["truth"] = _words.prediction(row["truth"])
        if facts["unit"]:
            entry["wrong"] = row["truth"] != both[0]
    if pictures:
        return entry | {"pictures": pictures, "values": [], "changes": []}
    features = facts["features"]
    pairs = list(zip(row["changes"], features, strict=True))
    entry["values"] = [_words.value(e["before"], f["decimals"]) for e, f in pairs]
    entry["changes"] = [
        _change_data(position, change, feature, row)
        for position, (change, feature) in enumerate(pairs)
        if change["before"] != change["after"]
    ]
    entry["others"] = [
        _other_answer(candidate, row, facts) for candidate in row["candidates"][1:]
    ]
    if "neighbor" in row:
        values = zip(row["neighbor"], features, strict=True)
        entry["neighbor"] = [_words.value(value, f["decimals"]) for value, f in values]
    return entry


def _sentence(row, facts):
    """What would make it sure, or what changed if that was not the question."""
    if facts["goal"] == "sure":
        return _words.sentence(row, facts)
    paragraph = _words.summary(facts | {"rows": [row]})
    return paragraph.removeprefix(f"{_words.label(row)}: ")


def _change_data(position, change, feature, row):
    """Column, both values, both percentiles, share of the fall, whether it is clear."""
    part = _words.share(change, row)
    percentiles = [change[f"percentile_{when}"] for when in ("before", "after")]
    return [
        position,
        *_words.two_values(change, feature),
        *(None if value is None else round(value) for value in percentiles),
        None if part is None else round(100 * part, 1),
        int(change["highlighted"]),
    ]


def _other_answer(candidate, row, facts):
    """Another counterfactual of a row, in words."""
    changed = [
        f"{feature['name']} {new}"
        for entry, feature, after in zip(
            row["changes"], facts["features"], candidate["values"], strict=True
        )
        if (new := _words.value(after, feature["decimals"]))
        != _words.value(entry["before"], feature["decimals"])
    ]
    what = _words.listed(changed) if changed else "nothing changes"
    often = f", found {candidate['count']} times" if candidate["count"] > 1 else ""
    return (
        f"{what} ({facts['measure']} {_words.figure(candidate['total'])}, "
        f"distance {_words.figure(candidate['distance'])}{often})"
    )


def _parts(parts):
    return [_short(parts[kind]) for kind in ("total", "aleatoric", "epistemic")]


def _short(number):
    return None if number is None else float(f"{number:.4g}")
