"""Words and HTML from the facts of an explanation, as `Explanation.to_dict` gives them.

Nothing here knows a model, a frame or a schema. All that comes from the data passes
`_escape` on its way into HTML.
"""

import base64
import html
import itertools
import math
import struct
import zlib

import numpy as np

__all__ = []

MAX_ROWS = 5  # that a notebook shows
_MAX_NAMED = 6  # changes that a paragraph names
_MAX_LENGTH = 60  # characters of a value that a table shows


# --- Words ---


def count(number, noun="row"):
    """Write a number of things: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def value(content, decimals=None):
    """Write a value of the user's table."""
    if content is None:
        return "missing"
    if not isinstance(content, float):
        return str(content)
    if abs(content) >= 1e15:
        return f"{content:.6g}"
    if decimals is None:
        return str(int(content)) if content.is_integer() else f"{content:.6g}"
    text = f"{content:.{decimals}f}"
    return text[1:] if float(text) == 0 and text.startswith("-") else text


def figure(number):
    """Write a figure of ours, such as an entropy."""
    if number is None or not math.isfinite(number):
        return "–"
    if number == 0 or 0.005 <= abs(number) < 1000:
        return f"{number:.2f}"
    return f"{number:.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}"


def measured(before, after, unit):
    """Write how an uncertainty moves, with its unit."""
    return f"{figure(before)} → {figure(after)}" + (f" {unit}" if unit else "")


def summary(facts):
    """Write one paragraph per row."""
    # Names and values may hold line breaks.
    text = "\n".join(
        " ".join(_paragraph(row, facts).splitlines()) for row in facts["rows"]
    )
    # And halves of surrogate pairs, which nothing can print.
    return text.encode(errors="backslashreplace").decode()


def _paragraph(row, facts):
    unit, threshold = facts["unit"], facts["threshold"]
    before, after = (_total(row, when) for when in ("before", "after"))
    parts = [_what_changed(row, facts)]

    text = f"{facts['measure']} {measured(before, after, unit)}"
    if threshold is not None and before > threshold:
        side = "below" if after <= threshold else "still above"
        text += f", {side} the threshold of {figure(threshold)}"
    parts.append(text)
    if after > before:
        parts.append("the model is less sure than before")

    rebuilt = _total(row, "reconstructed")
    if before > after and before - rebuilt >= (before - after) / 2:
        share = "most" if rebuilt > after else "all"
        parts.append(
            f"plain auto-encoding alone leads to {figure(rebuilt)}, {share} of the way"
        )
    old, new = row["prediction"]["before"], row["prediction"]["after"]
    if facts["measure"] == "entropy" and old == new:
        parts.append(f"prediction unchanged ({value(old)})")
    else:
        parts.append(f"prediction {prediction(old)} → {prediction(new)}")
    if row["converged"] is False:
        parts.append(f"the search had not settled after {row['n_iter']} steps")
    return f"{label(row)}: {'; '.join(parts)}."


def _total(row, when):
    """A total uncertainty, or NaN, which is neither above nor below anything."""
    parts = row["uncertainty"][when]
    return math.nan if parts is None or parts["total"] is None else parts["total"]


def _what_changed(row, facts):
    if "pixels" in row:
        before, after = pixels(row)
        if np.array_equal(before, after):
            return _why_unchanged(row, facts)
        changed = np.abs(after - before).max(axis=0) > 0.1 * _pixel_range([row])[1]
        verb = "changes" if changed.sum() == 1 else "change"
        return f"{changed.sum()} of {changed.size} pixels {verb} clearly"
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
    if isinstance(content, float) and not 1000 <= abs(content) < 1e7:
        return f"{content:.4g}"
    return value(content, decimals=0)


# --- HTML ---

# Colours of Okabe and Ito, apart in lightness as well; stripes tell the parts apart
# without any colour. What matters is styled in place, since some viewers of notebooks
# drop style sheets; colours of text and ground are those of the theme.
_FILLS = {
    "aleatoric": "#e69f00",
    "epistemic": "repeating-linear-gradient(45deg,#0072b2 0 3px,transparent 3px 5px)",
}
_MEANINGS = {"aleatoric": "noise in the data", "epistemic": "too little data nearby"}
_MARK = "display:inline-block;border:2px solid;border-radius:3px;padding:0 .3em"
_BAR = (
    "display:inline-block;box-sizing:border-box;height:.8em;border:1px solid;"
    "vertical-align:middle;white-space:nowrap;overflow:hidden;line-height:0;"
    "print-color-adjust:exact;-webkit-print-color-adjust:exact"
)
_BAR_WIDTH = 6.0  # em, for the largest uncertainty shown

_TABLE_STYLE = """
.clue-x{overflow-x:auto}
.clue-x table{border-collapse:collapse;color:inherit;font-variant-numeric:tabular-nums}
.clue-x table th,.clue-x table td{background:transparent;padding:.25em .6em;
text-align:left;vertical-align:middle;border:0;max-width:22em;
overflow-wrap:break-word}
.clue-x tbody th{font-weight:normal}
.clue-x tbody tr{border-top:1px solid rgba(128,128,128,.35)}
.clue-x thead th{white-space:nowrap}
.clue-x thead th.name{white-space:normal}
.clue-x .same{opacity:.65}
.clue-x .first{border-left:2px solid rgba(128,128,128,.5)}
.clue-x .figures{border-top:2px solid rgba(128,128,128,.7)}
.clue-x details{white-space:normal}
.clue-x ol{margin:.3em 0;padding-left:1.4em;width:34em}
.clue-x img{width:84px;image-rendering:pixelated;border:1px solid}
"""

_PAGE_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:1.5em;background:Canvas;
color:CanvasText}
h1{font-size:1.4em;margin:0 0 .3em}
p{max-width:60em;margin:.4em 0}
.clue-x{max-height:88vh;overflow:auto;margin-top:1em}
.clue-x thead th{position:sticky;top:0;background:Canvas;z-index:2;
box-shadow:0 2px CanvasText;vertical-align:bottom}
.clue-x tbody th{position:sticky;left:0;background:Canvas;z-index:1;font-weight:600;
min-width:5em}
.clue-x thead th:first-child{left:0;z-index:3}
.clue-x table td{white-space:nowrap;max-width:none}
.clue-x th button{font:inherit;color:inherit;background:none;border:0;padding:0;
cursor:pointer;text-align:left}
.clue-x th button::after{content:" \\2195";opacity:.45}
.clue-x th[aria-sort=ascending] button::after{content:" \\2191";opacity:1}
.clue-x th[aria-sort=descending] button::after{content:" \\2193";opacity:1}
@media print{.clue-x{max-height:none;overflow:visible}}
"""

# Without it the table stands as it is, in the user's order.
_SORT_SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const keyed = [...table.tBodies[0].rows].map((row) => {
        const text = row.cells[column].dataset.sort;
        return {row, text, number: text === "" ? NaN : Number(text)};
      });
      const numeric = keyed.every((k) => k.text === "" || !Number.isNaN(k.number));
      const now = head.getAttribute("aria-sort");
      const rising = now === null ? !numeric : now === "descending";
      keyed.sort((a, b) => {
        if (a.text === "" || b.text === "") return (a.text === "") - (b.text === "");
        const order = numeric ? a.number - b.number : a.text.localeCompare(b.text);
        return rising ? order : -order;
      });
      table.tBodies[0].append(...keyed.map((k) => k.row));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    });
  });
}
"""


def table(facts, n_rows):
    """Write the table for a notebook; `n_rows` counts those left out as well."""
    rows = facts["rows"]
    lines = [f"<p>{_escape(_heading(facts, n_rows))}."]
    if len(rows) < n_rows:
        lines.append(
            f"The first {len(rows)} are shown: slice the explanation for others, or "
            "write all with <code>to_html(path)</code>."
        )
    lines.append("</p>")
    if facts["note"]:
        lines.append(f"<p>Note: {_escape(facts['note'])}</p>")
    if rows and facts["image_shape"] is not None:
        lines += _listing(facts)
    elif rows:
        lines += _side_by_side(facts)
    if rows:
        lines.append(f"<p>{_legend(facts)}</p>")
    body = "\n".join(lines)
    return f'<div class="clue-x"><style>{_TABLE_STYLE}</style>\n{body}\n</div>'


def page(facts):
    """Write a page of its own with all rows."""
    title = _heading(facts, len(facts["rows"]))
    settings = [
        f"{name}: {figure(facts[key])}{unit}"
        for name, key, unit in (
            ("distance weight", "distance_weight", ""),
            ("rejected above", "threshold", f" {facts['unit'] or ''}"),
        )
        if facts[key] is not None
    ]
    paragraphs = [_legend(facts)]
    if settings:
        paragraphs.append(_escape("; ".join(settings).capitalize() + "."))
    if facts["note"]:
        paragraphs.append(f"Note: {_escape(facts['note'])}")
    words = "".join(f"<p>{_escape(line)}</p>" for line in summary(facts).splitlines())
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        # Nothing is fetched, whatever the data may hold.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">",
        f"<title>{_escape(title)}</title>",
        f"<style>{_TABLE_STYLE}{_PAGE_STYLE}</style></head><body>",
        f"<h1>{_escape(title)}</h1>",
        *(f"<p>{paragraph}</p>" for paragraph in paragraphs),
        f"<details><summary>In words</summary>{words}</details>",
        '<div class="clue-x">',
        *_listing(facts),
        "</div>",
        f"<script>{_SORT_SCRIPT}</script></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _escape(content):
    return html.escape(str(content), quote=True)


def _heading(facts, n_rows):
    return f"{facts['method']}: what would make the model surer of {count(n_rows)}"


def _legend(facts):
    parts = [f"{_swatch(kind)} {kind} ({_MEANINGS[kind]})" for kind in _FILLS]
    shares = "" if facts["unit"] else " by share of the variance"
    marked = ""
    if facts["image_shape"] is None:
        marked = (
            f'<b style="{_MARK}">→</b> a category that changes, or a number that moves '
            "by 15 percentile points of the training data or more. "
        )
    else:
        marked = (
            "Difference: |Δ|·Δ of the pixels on one scale for all rows, from orange "
            "(darker) to purple (brighter). "
        )
    return f"{marked}Bars: {facts['measure']}, {' and '.join(parts)}{shares}."


def _swatch(kind):
    return f'<span style="{_BAR};width:1.2em;background:{_FILLS[kind]}"></span>'


def _side_by_side(facts):
    """Features down, and for each row a column before and a column after."""
    rows = facts["rows"]
    yield "<table><thead><tr><th></th>"
    for row in rows:
        yield f'<th colspan="2" class="first name">{_escape(label(row))}</th>'
    yield "</tr><tr><th>feature</th>"
    for _ in rows:
        yield '<th class="first">original</th><th>counterfactual</th>'
    yield "</tr></thead><tbody>"
    for position, feature in enumerate(facts["features"]):
        yield f"<tr><th>{_escape(feature['name'])}</th>"
        for row in rows:
            entry = row["changes"][position]
            old = _value_html(entry["before"], feature)
            same = "" if entry["highlighted"] else ' class="same"'
            yield f'<td class="first">{old}</td>'
            yield f"<td{same}>{_new_value_html(entry, feature)}</td>"
        yield "</tr>"
    largest = _largest_total(rows)
    yield f'<tr class="figures"><th>{_escape(_measure_with_unit(facts))}</th>'
    for row in rows:
        before, after = (row["uncertainty"][when] for when in ("before", "after"))
        yield f'<td class="first">{_uncertainty_html(before, largest, facts)}</td>'
        yield f"<td>{_uncertainty_html(after, largest, facts)}</td>"
    if _has_reconstruction(rows):
        yield "</tr><tr><th>after plain auto-encoding</th>"
        for row in rows:
            rebuilt = _uncertainty_html(
                row["uncertainty"]["reconstructed"], largest, facts
            )
            yield f'<td class="first"></td><td>{rebuilt}</td>'
    yield "</tr><tr><th>prediction</th>"
    for row in rows:
        old, new = _predictions_html(row)
        yield f'<td class="first">{old}</td><td>{new}</td>'
    yield "</tr></tbody></table>"


def _listing(facts):
    """One line per row, sortable by the values in `data-sort`."""
    rows = facts["rows"]
    is_image = facts["image_shape"] is not None
    heads = [("row", ""), (_measure_with_unit(facts), "before, after")]
    heads += [("explained", facts["unit"] or "")]
    if has_reconstruction := _has_reconstruction(rows):
        heads.append(("auto-encoded", facts["unit"] or ""))
    heads += [("prediction", ""), ("distance", "")]
    if has_choice := any(len(row["candidates"]) > 1 for row in rows):
        heads.append(("candidates", ""))
    if is_image:
        heads[1:1] = [("original", ""), (facts["method"], ""), ("difference", "")]
    else:
        heads += [(feature["name"], "") for feature in facts["features"]]
    yield '<table class="sortable"><thead><tr>'
    for name, more in heads:
        more = f" <small>{_escape(more)}</small>" if more else ""
        yield f'<th scope="col" class="name">{_escape(name)}{more}</th>'
    yield "</tr></thead><tbody>"
    largest = _largest_total(rows)
    pictures = _pictures(rows) if is_image and rows else itertools.repeat(())
    for position, (row, images) in enumerate(zip(rows, pictures, strict=False)):
        yield "<tr>"
        key, name = _sort_key(row["row"]), _escape(label(row))
        yield f'<th scope="row" data-sort="{key}">{name}</th>'
        for image, what in zip(images, _IMAGES, strict=False):
            yield _cell(position, f'<img src="{image}" alt="{what} of {name}">')
        before, after = (
            _uncertainty_html(row["uncertainty"][when], largest, facts)
            for when in ("before", "after")
        )
        yield _cell(row["uncertainty"]["before"]["total"], f"{before}<br>{after}")
        explained = row["uncertainty_explained"]
        yield _cell(explained, figure(explained))
        if has_reconstruction:
            rebuilt = row["uncertainty"]["reconstructed"]["total"]
            yield _cell(rebuilt, figure(rebuilt))
        old, new = _predictions_html(row)
        yield _cell(
            row["prediction"]["before"], old if old == new else f"{old} → {new}"
        )
        yield _cell(row["distance"], figure(row["distance"]))
        if has_choice:
            yield _cell(len(row["candidates"]), _alternatives(row, facts))
        if not is_image:
            for entry, feature in zip(row["changes"], facts["features"], strict=True):
                yield _cell(entry["before"], _both_values_html(entry, feature))
        yield "</tr>"
    yield "</tbody></table>"


def _has_reconstruction(rows):
    return any(row["uncertainty"]["reconstructed"] is not None for row in rows)


def _alternatives(row, facts):
    """All counterfactuals of a row, to unfold."""
    candidates = row["candidates"]
    if len(candidates) == 1:
        return "1"
    lines = []
    for candidate in candidates:
        texts = [
            f"{facts['measure']} {figure(candidate['total'])}",
            f"distance {figure(candidate['distance'])}",
        ]
        if candidate["count"] > 1:
            texts.append(f"found {candidate['count']} times")
        if facts["image_shape"] is None:
            texts += [
                f"{feature['name']} {new}"
                for entry, feature, after in zip(
                    row["changes"], facts["features"], candidate["values"], strict=True
                )
                if (new := value(after, feature["decimals"]))
                != value(entry["before"], feature["decimals"])
            ]
        lines.append(f"<li>{_escape(', '.join(texts))}</li>")
    return (
        f"<details><summary>{len(candidates)}</summary>"
        f"<ol>{''.join(lines)}</ol></details>"
    )


def _cell(key, content):
    return f'<td data-sort="{_sort_key(key)}">{content}</td>'


def _measure_with_unit(facts):
    return facts["measure"] + (f" ({facts['unit']})" if facts["unit"] else "")


def _largest_total(rows):
    """The largest uncertainty shown, which the bars are drawn to."""
    totals = [
        parts["total"] or 0.0
        for row in rows
        for parts in row["uncertainty"].values()
        if parts is not None
    ]
    return max(totals, default=0.0) or 1.0


def _uncertainty_html(parts, largest, facts):
    """A bar as long as the total, divided between its sources, and the figure."""
    shares = {kind: parts[kind] or 0.0 for kind in _FILLS}
    if not facts["unit"]:  # of standard deviations it is the squares that add up
        shares = {kind: part**2 for kind, part in shares.items()}
    whole = sum(shares.values()) or 1.0
    words = ", ".join(f"{kind} {figure(parts[kind])}" for kind in _FILLS)
    pieces = "".join(
        f'<span style="display:inline-block;height:100%;width:{100 * share / whole:.1f}'
        f'%;background:{_FILLS[kind]}"></span>'
        for kind, share in shares.items()
    )
    width = max(_BAR_WIDTH * (parts["total"] or 0.0) / largest, 0.15)
    return (
        f'<span style="white-space:nowrap"><span role="img" aria-label="{words}" '
        f'title="{words}" style="{_BAR};width:{width:.2f}em">{pieces}</span> '
        f"{figure(parts['total'])}</span>"
    )


def _value_html(content, feature):
    """A value of the user's, cut if long; its tooltip holds all of it."""
    text = value(content, feature["decimals"])
    if len(text) <= _MAX_LENGTH:
        return _escape(text)
    return f'<span title="{_escape(text)}">{_escape(text[: _MAX_LENGTH - 1])}…</span>'


def _new_value_html(entry, feature):
    new = _value_html(entry["after"], feature)
    if not entry["highlighted"]:
        return new
    return f'<b style="{_MARK}"{_tooltip(entry)}>{_arrow(entry)}&nbsp;{new}</b>'


def _both_values_html(entry, feature):
    old, new = (_value_html(entry[when], feature) for when in ("before", "after"))
    if entry["highlighted"]:
        return f'<b style="{_MARK}"{_tooltip(entry)}>{old} → {new}</b>'
    return old if old == new else f"{old} → {new}"


def _arrow(entry):
    old, new = entry["percentile_before"], entry["percentile_after"]
    return "→" if old is None or new is None else "↑" if new > old else "↓"


def _tooltip(entry):
    old, new = entry["percentile_before"], entry["percentile_after"]
    if old is None or new is None:
        return ""
    return f' title="percentile {old:.0f} → {new:.0f} of the training data"'


def _predictions_html(row):
    both = row["prediction"]
    return _escape(prediction(both["before"])), _escape(prediction(both["after"]))


def _sort_key(content):
    """What a column sorts by: a number, or text; nothing if missing."""
    if isinstance(content, list):
        content = content[0] if len(content) == 1 else None
    return "" if content is None else _escape(content)


# --- Images ---

_IMAGES = ("original", "counterfactual", "difference")

# The diverging colours PuOr of ColorBrewer, from darker over unchanged to brighter.
_DIVERGING = np.array(
    [[179, 88, 6], [253, 184, 99], [247, 247, 247], [178, 171, 210], [84, 39, 136]]
)


def pixels(row):
    """Return both images of a row, of shape (n_channels, height, width)."""
    images = (np.asarray(row["pixels"][when]) for when in ("before", "after"))
    return [image[None] if image.ndim == 2 else image for image in images]


def difference(before, after):
    """Return the |Δ|·Δ between two images, of shape (height, width)."""
    # Section 3: a sign-preserving square, so that small noise does not show.
    move = (after - before).mean(axis=0)
    return np.abs(move) * move


def _pixel_range(rows):
    """Darkest and brightest value: 0 and 1 unless the pixels leave that range."""
    images = [image for row in rows for image in pixels(row)]
    low = min(0.0, *(image.min() for image in images))
    high = max(image.max() for image in images)
    return low, high if high > 1 else 1.0


def _pictures(rows):
    """For each row the addresses of its original, counterfactual and difference."""
    low, high = _pixel_range(rows)
    pairs = [pixels(row) for row in rows]
    moves = [difference(before, after) for before, after in pairs]
    limit = max(np.abs(move).max() for move in moves) or 1.0
    stops = np.linspace(-1, 1, len(_DIVERGING))
    addresses = []
    for (before, after), move in zip(pairs, moves, strict=True):
        colours = [np.interp(move / limit, stops, band) for band in _DIVERGING.T]
        images = [
            _as_bytes((image - low) / (high - low) * 255) for image in (before, after)
        ]
        images.append(_as_bytes(np.stack(colours)))
        addresses.append([_png(image) for image in images])
    return addresses


def _as_bytes(image):
    """Channels last: three of them are colours, any other number is shown as grey."""
    image = image if len(image) == 3 else image.mean(axis=0, keepdims=True)
    return np.clip(np.rint(image), 0, 255).astype(np.uint8).transpose(1, 2, 0)


def _png(image):
    """Encode 8-bit pixels of shape (height, width, 1 or 3) as a data address."""
    height, width, n_channels = image.shape
    colour_type = {1: 0, 3: 2}[n_channels]
    lines = b"".join(b"\0" + line.tobytes() for line in image)  # 0: no filter
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()
