"""HTML from the facts of an explanation, as `Explanation.to_dict` gives them.

Nothing here knows a model, a frame or a schema. All that comes from the data passes
`_escape` on its way into HTML.
"""

import base64
import html
import itertools
import struct
import zlib

import numpy as np

from sklearn_clue._words import (
    count,
    figure,
    judged_measure,
    label,
    percent,
    pixel_range,
    pixels,
    predicted,
    predicted_moves,
    sentence,
    share,
    summary,
    two_values,
    value,
    verdicts,
)

__all__ = []

MAX_ROWS = 5  # that a notebook shows
_MAX_LENGTH = 60  # characters of a value that a table shows


# --- HTML ---

# The colours of both parts, here and in all pictures: of Okabe and Ito, apart in
# lightness as well.
PART_COLORS = {"aleatoric": "#e69f00", "epistemic": "#0072b2"}

# Stripes tell the parts apart without any colour. What matters is styled in place,
# since some viewers of notebooks drop style sheets; colours of text and ground are
# those of the theme.
_FILLS = {
    "aleatoric": PART_COLORS["aleatoric"],
    "epistemic": f"repeating-linear-gradient(45deg,{PART_COLORS['epistemic']} 0 3px,"
    "transparent 3px 5px)",
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
.clue-x ul{margin:.3em 0;padding-left:1.4em;max-width:60em}
.clue-x .words{white-space:normal;min-width:22em;max-width:34em}
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
.clue-x table td.words{white-space:normal;max-width:34em}
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
    if rows and facts["goal"] == "sure":
        lines.append(f"<ul>{''.join(_sentence_items(facts))}</ul>")
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
    unit = f" {facts['unit']}" if facts["unit"] else ""
    settings = [
        f"{name}: {figure(facts[key])}{unit}"
        for name, key, unit in (
            ("distance weight", "distance_weight", ""),
            ("sure up to", "target", unit),
            ("rejected above", "threshold", unit),
        )
        if facts[key] is not None
    ]
    paragraphs = [_legend(facts)]
    if settings:
        paragraphs.append(_escape("; ".join(settings).capitalize() + "."))
    if facts["note"]:
        paragraphs.append(f"Note: {_escape(facts['note'])}")
    if facts["goal"] == "sure" and facts["rows"]:
        # The verdict comes first; the table has the sentences beside their rows.
        paragraphs.insert(0, f"<b>{_escape(verdicts(facts).capitalize())}.</b>")
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
    goal = facts["goal"]  # sure, or surer
    return f"{facts['method']}: what would make the model {goal} of {count(n_rows)}"


def _sentence_items(facts):
    for row in facts["rows"]:
        name, text = _escape(label(row)), _escape(sentence(row, facts))
        yield f"<li><strong>{name}</strong>: {text}</li>"


def _legend(facts):
    parts = [f"{_swatch(kind)} {kind} ({_MEANINGS[kind]})" for kind in _FILLS]
    shares = "" if facts["unit"] else " by share of the variance"
    mark = f'<b style="{_MARK}">→</b>'
    if facts["image_shape"] is not None:
        marked = (
            "Difference: |Δ|·Δ of the pixels on one scale for all rows, from orange "
            "(darker) to purple (brighter). "
        )
    elif facts["goal"] == "sure":
        marked = f"{mark} what changes"
        if any(_shares(row) for row in facts["rows"]):
            measure = _escape(judged_measure(facts))
            marked += f", with the share of the fall of the {measure} that it brings"
        marked += ". "
    else:
        marked = (
            f"{mark} a category that changes, or a number that moves "
            "by 15 percentile points of the training data or more. "
        )
    return f"{marked}Bars: {facts['measure']}, {' and '.join(parts)}{shares}."


def _shares(row):
    """The shares of the fall that are known for a row."""
    found = (share(entry, row) for entry in row.get("changes", ()))
    return [part for part in found if part is not None]


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
            new = _new_value_html(entry, feature) + _share_html(entry, row)
            yield f"<td{same}>{new}</td>"
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
        old, new = _predictions_html(row, facts)
        yield f'<td class="first">{old}</td><td>{new}</td>'
    yield "</tr></tbody></table>"


def _listing(facts):
    """One line per row, sortable by the values in `data-sort`."""
    rows = facts["rows"]
    is_image = facts["image_shape"] is not None
    columns = _figure_columns(facts)
    heads = [("row", ""), *((name, more) for name, more, _ in columns)]
    if is_image:
        heads[1:1] = [("original", ""), (facts["method"], ""), ("difference", "")]
    else:
        heads += [(feature["name"], "") for feature in facts["features"]]
    yield '<table class="sortable"><thead><tr>'
    for name, more in heads:
        more = f" <small>{_escape(more)}</small>" if more else ""
        yield f'<th scope="col" class="name">{_escape(name)}{more}</th>'
    yield "</tr></thead><tbody>"
    addresses = pictures(rows) if is_image and rows else itertools.repeat(())
    for position, (row, images) in enumerate(zip(rows, addresses, strict=False)):
        yield "<tr>"
        key, name = _sort_key(row["row"]), _escape(label(row))
        yield f'<th scope="row" data-sort="{key}">{name}</th>'
        for image, what in zip(images, _IMAGES, strict=False):
            yield _cell(position, f'<img src="{image}" alt="{what} of {name}">')
        for _, _, content in columns:
            yield _cell(*content(row))
        if not is_image:
            for entry, feature in zip(row["changes"], facts["features"], strict=True):
                content = _both_values_html(entry, feature) + _share_html(entry, row)
                yield _cell(entry["before"], content)
        yield "</tr>"
    yield "</tbody></table>"


def _figure_columns(facts):
    """What is told of each row besides its features.

    Each column has a head, what is added to it in small letters, and a function from
    the row to the key it sorts by and the content of the cell.
    """
    rows, unit = facts["rows"], facts["unit"] or ""
    largest = _largest_total(rows)

    def bars(row):
        both = (row["uncertainty"][when] for when in ("before", "after"))
        before, after = (_uncertainty_html(parts, largest, facts) for parts in both)
        return row["uncertainty"]["before"]["total"], f"{before}<br>{after}"

    def rebuilt(row):
        total = row["uncertainty"]["reconstructed"]["total"]
        return total, figure(total)

    def predictions(row):
        return row["prediction"]["before"], _escape(predicted_moves(row, facts))

    def single(name, write=figure):
        return lambda row: (row[name], write(row[name]))

    columns = []
    if facts["goal"] == "sure":
        columns += [
            ("verdict", "", single("verdict", _escape)),
            (
                "in words",
                "",
                lambda row: (row["n_changed"], _escape(sentence(row, facts)), "words"),
            ),
        ]
    columns += [
        (_measure_with_unit(facts), "before, after", bars),
        ("explained", unit, single("uncertainty_explained")),
    ]
    if _has_reconstruction(rows):
        columns.append(("auto-encoded", unit, rebuilt))
    columns += [("prediction", "", predictions), ("distance", "", single("distance"))]
    if any(row["plausibility"] is not None for row in rows):
        columns.append(("plausibility", "", single("plausibility")))
    if any(len(row["candidates"]) > 1 for row in rows):
        columns.append(
            (
                "candidates",
                "",
                lambda row: (len(row["candidates"]), _alternatives(row, facts)),
            )
        )
    return columns


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


def _cell(key, content, style=None):
    style = f' class="{style}"' if style else ""
    return f'<td data-sort="{_sort_key(key)}"{style}>{content}</td>'


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
    return _cut(value(content, feature["decimals"]))


def _cut(text):
    if len(text) <= _MAX_LENGTH:
        return _escape(text)
    return f'<span title="{_escape(text)}">{_escape(text[: _MAX_LENGTH - 1])}…</span>'


def _new_value_html(entry, feature):
    if not entry["highlighted"]:
        return _value_html(entry["after"], feature)
    new = _cut(two_values(entry, feature)[1])
    return f'<b style="{_MARK}"{_tooltip(entry)}>{_arrow(entry)}&nbsp;{new}</b>'


def _both_values_html(entry, feature):
    if entry["highlighted"]:
        old, new = map(_cut, two_values(entry, feature))
        return f'<b style="{_MARK}"{_tooltip(entry)}>{old} → {new}</b>'
    old, new = (_value_html(entry[when], feature) for when in ("before", "after"))
    return old if old == new else f"{old} → {new}"


def _share_html(entry, row):
    """The share of the fall that a change brings."""
    part = share(entry, row) if entry["highlighted"] else None
    if part is None:
        return ""
    title = f"lowers the uncertainty by {figure(entry['contribution'])}"
    return f' <small title="{title}">{_escape(percent(part))}</small>'


def _arrow(entry):
    old, new = entry["percentile_before"], entry["percentile_after"]
    return "→" if old is None or new is None else "↑" if new > old else "↓"


def _tooltip(entry):
    old, new = entry["percentile_before"], entry["percentile_after"]
    if old is None or new is None:
        return ""
    return f' title="percentile {old:.0f} → {new:.0f} of the training data"'


def _predictions_html(row, facts):
    return tuple(map(_escape, predicted(row, facts)))


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


def difference(before, after):
    """Return the |Δ|·Δ between two images, of shape (height, width)."""
    # Section 3: a sign-preserving square, so that small noise does not show.
    move = (after - before).mean(axis=0)
    return np.abs(move) * move


def pictures(rows):
    """For each row the addresses of its original, counterfactual and difference."""
    low, high = pixel_range(rows)
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
