"""What a notebook shows of an explanation, from what `Explanation.to_dict` gives.

Nothing here knows a model, a frame or a schema. All that comes from the data passes
`_escape` on its way into HTML.
"""

import base64
import html
import struct
import zlib

import numpy as np

from sklearn_clue._words import (
    figure,
    heading,
    judged_measure,
    label,
    percent,
    pixel_range,
    pixels,
    predicted,
    sentence,
    share,
    two_values,
    value,
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
.clue-x ul{margin:.3em 0;padding-left:1.4em;max-width:60em}
.clue-x img{width:84px;image-rendering:pixelated;border:1px solid}
"""


def table(facts, n_rows):
    """Write the table for a notebook; `n_rows` counts those left out as well."""
    rows = facts["rows"]
    lines = [f"<p>{_escape(heading(facts, n_rows))}."]
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
    if rows:
        lines += _side_by_side(facts)
    if rows:
        lines.append(f"<p>{_legend(facts)}</p>")
    body = "\n".join(lines)
    return f'<div class="clue-x"><style>{_TABLE_STYLE}</style>\n{body}\n</div>'


def _escape(content):
    return html.escape(str(content), quote=True)


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
    yield from (_pictures if facts["image_shape"] is not None else _values)(facts)
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


def _values(facts):
    """A line per feature."""
    for position, feature in enumerate(facts["features"]):
        yield f"<tr><th>{_escape(feature['name'])}</th>"
        for row in facts["rows"]:
            entry = row["changes"][position]
            old = _value_html(entry["before"], feature)
            same = "" if entry["highlighted"] else ' class="same"'
            yield f'<td class="first">{old}</td>'
            new = _new_value_html(entry, feature) + _share_html(entry, row)
            yield f"<td{same}>{new}</td>"
        yield "</tr>"


def _pictures(facts):
    """A line of the images, and one of their differences."""
    lines = ["<tr><th>image</th>", "<tr><th>difference</th>"]
    for row, addresses in zip(facts["rows"], pictures(facts["rows"]), strict=True):
        name = _escape(label(row))
        before, after, move = (
            f'<img src="{address}" alt="{what} of {name}">'
            for address, what in zip(addresses, _IMAGES, strict=True)
        )
        lines[0] += f'<td class="first">{before}</td><td>{after}</td>'
        lines[1] += f'<td class="first" colspan="2">{move}</td>'
    yield "</tr>".join([*lines, ""])


def _has_reconstruction(rows):
    return any(row["uncertainty"]["reconstructed"] is not None for row in rows)


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
