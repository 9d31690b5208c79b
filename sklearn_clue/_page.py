"""Pages, from the facts that `Report.to_dict` and `Explanation.to_dict` give.

Nothing here knows a model, a frame or a schema. Text from the data passes `escape` on
its way into HTML, or travels as JSON and is shown as text by the script.
"""

import base64
import hashlib
import json
import math
from pathlib import Path

from sklearn_clue import _page_rows, _words
from sklearn_clue._charts import Chart
from sklearn_clue._page_parts import SCRIPT, STYLE
from sklearn_clue._page_rows import escape, swatch
from sklearn_clue.persistence import replacing

__all__ = []

_TOP = 10  # drivers that are shown at once
_ABOUT_THE_MODEL = (
    "A change that would make the model sure is about the model, not about the world: "
    "nobody has shown that acting on it changes the outcome."
)


def write(facts):
    """Write the page of a report."""
    explanation = facts["explanation"]
    data = explanation and _page_rows.data(explanation, facts["groups"])
    header = f"<p>{escape(_headline(facts))}</p>{_nav()}"
    main = [*_knowledge(facts), *_doubts(facts), *_rows(facts), *_limits(facts)]
    return _document(facts["title"], header, main, data)


def write_rows(facts):
    """Write the page of an explanation: the rows alone."""
    title = _words.heading(facts, len(facts["rows"]))
    if not facts["rows"]:
        return _document(title, "", [], None)
    header = []
    if facts["goal"] == "sure":
        header.append(f"{_words.verdicts(facts).capitalize()}.")
    if facts["distance_weight"] is not None:
        header.append(f"Distance weight: {_words.figure(facts['distance_weight'])}.")
    header += [f"Note: {facts['note']}"] if facts["note"] else []
    header = "".join(f"<p>{escape(text)}</p>" for text in header)
    main = ['<section id="rows">', _page_rows.section(facts)]
    main += [f"<p>{_ABOUT_THE_MODEL}</p></section>"]
    return _document(title, header, main, _page_rows.data(facts))


def save(page, path):
    """Write a page to a file, whole or not at all; return the path."""
    path = Path(path)
    # Half a surrogate pair, which a name may hold, is no character of UTF-8.
    with replacing(path, "w", encoding="utf-8", errors="xmlcharrefreplace") as file:
        file.write(page)
    return path


def _document(title, header, main, data):
    body = [
        '<a class="skip" href="#rows">Skip to the rows</a>',
        f"<header><h1>{escape(title)}</h1>{header}</header>",
        "<main>",
        *main,
        "</main>",
    ]
    return document(title, body, data, STYLE, SCRIPT, ["style-src 'unsafe-inline'"])


def document(title, body, data, style, script, policy):
    """Write a page that is all in one file.

    Nothing is fetched but what `policy` adds, and no other script runs, whatever the
    data may hold, which the script finds as JSON in the element `data`.
    """
    policy = [
        "default-src 'none'",
        "img-src data:",
        f"script-src '{source_hash(script)}'",
        *policy,
    ]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        *body,
        f'<script type="application/json" id="data">{_json(data)}</script>',
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(lines) + "\n"


def source_hash(text):
    """The name of a script or style sheet in the policy of its page."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _json(content):
    """JSON that ends no script element and that every browser reads as it is."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _nav():
    parts = (
        ("knows", "What it knows"),
        ("doubts", "What drives its doubts"),
        ("rows", "The rows"),
        ("limits", "What not to conclude"),
    )
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name in parts)
    return f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>'


def _headline(facts):
    n_rows, n_rejected = facts["n_rows"], facts["n_rejected"]
    text = (
        f"Of {_words.count(n_rows)} that it has not learned from, the model is too "
        f"unsure to decide on {n_rejected:,} ({_words.percent(n_rejected / n_rows)})."
    )
    explanation = facts["explanation"]
    if explanation and explanation["goal"] == "sure":
        n_rows = len(explanation["rows"])
        n_sure = sum(row["verdict"].startswith("sure") for row in explanation["rows"])
        some = "each" if n_sure == n_rows else f"{n_sure:,}"
        whom = f"{some} of the {n_rows:,} that are explained here"
        if n_rows == n_rejected:
            whom = f"{some} of them" if n_rows > 1 else "it"
        found = "a change was found" if n_sure else "no change was found"
        whom = whom if n_sure else "them"
        text += f" For {whom}, {found} that would make the model sure."
    return text


# --- 1. What the model knows ---


def _knowledge(facts):
    yield '<section id="knows"><h2>1. What the model knows</h2>'
    quality = facts["quality"]
    if quality is None:
        yield "<p>The true answers were not given, so errors are not known.</p>"
    else:
        yield f'<ul class="key">{"".join(_key_figures(facts))}</ul>'
        yield '<div class="charts">'
        yield _rejection_chart(facts)
        yield _calibration_chart(facts)
        yield "</div>"
    yield from _sources(facts)
    yield "</section>"


def _written(facts, error):
    """An error as people say it: a share of rows, or a figure in the target's unit."""
    if error is None:
        return "–"
    return _share(error) if facts["is_classification"] else _words.figure(error)


def _share(part):
    """A share with a digit after the point where it is small."""
    return f"{100 * part:.1f} %" if 0 < part < 0.1 else _words.percent(part)


def _key_figures(facts):
    quality = facts["quality"]
    is_rate = facts["is_classification"]
    name = "wrong" if is_rate else "typical error (root mean squared)"
    better = quality["baseline"] > quality["error"]
    yield _key(
        _written(facts, quality["error"]),
        f"{name}, against {_written(facts, quality['baseline'])} for the simplest "
        f"model ({quality['baseline_name']})"
        + ("" if better else ". It is no better than that: do not use it"),
    )
    rejection = quality["rejection"]
    yield _key(
        _written(facts, rejection["error_at_rate"]),
        f"{name}, if the {_words.percent(rejection['rate'])} that it is least sure of "
        "go to a person",
    )
    if quality["calibration"]:
        claimed, right = (quality["calibration"][key] for key in ("claimed", "right"))
        low, high = quality["calibration"]["interval"]
        verdict = "about as often as it claims"
        if not low <= claimed <= high:
            verdict = "too sure" if claimed > high else "more careful than it needs"
        yield _key(
            _words.percent(right),
            f"right, where it claims {_words.percent(claimed)}: {verdict}",
        )
    if quality["coverage"]:
        ninety = next(b for b in quality["coverage"]["bins"] if b["claimed"] == 0.9)
        low, high = ninety["interval"]
        verdict = "about right"
        if not low <= 0.9 <= high:
            verdict = "they are too narrow" if high < 0.9 else "they are too wide"
        yield _key(
            _words.percent(ninety["right"]),
            "of the true values are in intervals that should hold 90 % of them: "
            f"{verdict}. Half of the intervals are at most "
            f"{_words.figure(ninety['width'])} wide",
        )


def _key(figure, words):
    return f"<li><strong>{escape(figure)}</strong> {escape(words)}.</li>"


def _rejection_words(facts):
    rejection, quality = facts["quality"]["rejection"], facts["quality"]
    errors = quality["error"], rejection["error_at_rate"]
    before, after = (_written(facts, error) for error in errors)
    verb = "fall" if errors[1] < errors[0] else "rise" if errors[1] > errors[0] else ""
    moves = f"{verb} from {before} to {after}" if verb else f"stay at {before}"
    return (
        f"if the {_words.percent(rejection['rate'])} least sure go to a person, errors "
        f"{moves}"
    )


def _rejection_chart(facts):
    quality, rejection = facts["quality"], facts["quality"]["rejection"]
    top = max([*rejection["error"], quality["error"]]) * 1.15 or 1.0
    factor = 100 if facts["is_classification"] else 1
    points = [
        (100 * share, factor * error)
        for share, error in zip(rejection["share"], rejection["error"], strict=True)
    ]
    mark = (100 * rejection["rate"], factor * rejection["error_at_rate"])
    name = quality["error_name"] + (" (%)" if facts["is_classification"] else "")
    chart = Chart((0, 100), (0, factor * top), "rows given to a person (%)", name)
    everywhere = factor * quality["error"]
    chart.line([(0, everywhere), (100, everywhere)], "dashed")
    chart.line(points, "curve")
    chart.dot(*mark)
    kept, rejected = rejection["error_kept"], rejection["error_rejected"]
    words = (
        f"Errors among the rows that the model keeps: {_rejection_words(facts)}. "
        "Dashed: if rows were given away at random. At the threshold used here the "
        f"error is {_written(facts, rejected)} among rejected rows and "
        f"{_written(facts, kept)} among the others."
    )
    return chart.figure("Rejection curve", words)


def _calibration_chart(facts):
    quality = facts["quality"]
    found = quality["calibration"] or quality["coverage"]
    if not found:
        return ""
    bins = found["bins"]
    if quality["calibration"]:
        # Few classes are never claimed with less than half.
        low = min(50, *(100 * point["right"] for point in bins))
        low = 10 * math.floor(low / 10)
        labels = ("how sure it claims to be (%)", "right (%)")
        words = (
            "Calibration: rows in groups of equal size by how sure the model claims to "
            "be. On the dashed line claims come true; below it the model is too sure. "
            "Bars hold the true share in 9 of 10 cases."
        )
    else:
        low, labels = 0, ("coverage that is claimed (%)", "true values inside (%)")
        whose = "the model's own" if found["is_own"] else "of a normal distribution"
        words = (
            "Coverage: how many of the true values lie in intervals around the "
            "predictions, against how many should. Below the dashed line intervals "
            f"are too narrow, above it too wide. The intervals are {whose}."
        )
    chart = Chart((low, 100), (low, 100), *labels)
    chart.line([(low, low), (100, 100)], "dashed")
    for point in bins:
        x = 100 * point["claimed"]
        ends = [(x, 100 * max(end, low / 100)) for end in point["interval"]]
        chart.line(ends, "whisker")
        chart.dot(x, 100 * point["right"])
    return chart.figure(words.split(":")[0], words)


def _sources(facts):
    """Where the uncertainty comes from, and whether more rows would help."""
    shares = facts["parts"]["rejected"] or facts["parts"]["all"]
    if shares is None:
        return
    whose = "the rejected rows" if facts["parts"]["rejected"] else "all rows"
    noise, unknown = shares["aleatoric"], shares["epistemic"]
    yield "<h3>Noise, or too little data?</h3>"
    if unknown == 0:
        yield (
            "<p>This model does not tell noise in the data from a lack of data, so it "
            "cannot say whether more rows would help.</p>"
        )
        return
    if unknown >= 0.5:
        verdict = "More rows like these would help"
    elif unknown >= 0.15:
        verdict = "More rows like these would help with a part of it"
    else:
        verdict = "More rows would hardly help; other columns might"
    bars = "".join(
        f'<span class="{kind}" style="width:{100 * shares[kind]:.1f}%"></span>'
        for kind in ("aleatoric", "epistemic")
    )
    words = (
        f"aleatoric {_words.percent(noise)}, epistemic {_words.percent(unknown)} of "
        f"the uncertainty about {whose}"
    )
    yield f'<div class="split" role="img" aria-label="{words}">{bars}</div>'
    yield (
        f"<p><strong>{verdict}.</strong> Of the uncertainty about {whose}, "
        f"{swatch('aleatoric')} {_words.percent(noise)} is <dfn>aleatoric</dfn> "
        f"(noise in the data, which stays however many rows there are) and "
        f"{swatch('epistemic')} {_words.percent(unknown)} <dfn>epistemic</dfn> (too "
        "little data nearby).</p>"
    )


# --- 2. What drives its doubts ---


def _doubts(facts):
    yield '<section id="doubts"><h2>2. What drives its doubts</h2>'
    drivers, n_rows = facts["drivers"], facts["n_explained"]
    if not drivers:
        why = "No row was explained"
        if n_rows:
            why = "Nothing changes in any of the explained rows"
            if facts["explanation"]["image_shape"] is not None:
                why = "The rows are images, whose pixels are no drivers by themselves"
        yield f"<p>{why}.</p></section>"
        return
    if facts["groups"]:
        yield "<h3>Groups of rows with one change in common</h3><ol>"
        yield from (f"<li>{escape(sentence)}</li>" for sentence in facts["groups"])
        yield "</ol><h3>Columns</h3>"
    has_share = any(driver.get("share") is not None for driver in drivers)
    measure = "its share in the fall of the uncertainty, over all of these rows"
    measure = measure if has_share else "in how many rows it changes"
    yield (
        f"<p>What would have to be otherwise in the {_words.count(n_rows)} that are "
        f"explained, column by column. The importance of a column is {measure}.</p>"
    )
    rows = list(_driver_rows(drivers, n_rows, has_share))
    yield _driver_table(rows[:_TOP])
    if len(rows) > _TOP:
        more = f"<summary>{len(rows) - _TOP} more columns</summary>"
        yield f"<details>{more}{_driver_table(rows[_TOP:])}</details>"
    yield "</section>"


def _driver_table(rows):
    heads = ("column", "importance", "rows", "where it goes")
    heads = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Columns that '
        f'drive the uncertainty"><table class="drivers"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _driver_rows(drivers, n_rows, has_share):
    key = "share" if has_share else "n_changed"
    largest = max([driver[key] or 0 for driver in drivers]) or 1
    for driver in drivers:
        size = max(0.0, (driver[key] or 0) / largest)
        part = _words.percent(driver["share"]) if has_share else ""
        bar = f'<span class="bar" style="--size:{size:.3f}"></span> {part}'
        moves = escape(_where(driver))
        yield (
            f'<tr><th scope="row">{escape(driver["feature"])}</th><td>{bar}</td>'
            f"<td>{driver['n_changed']:,} of {n_rows:,}</td><td>{moves}</td></tr>"
        )


def _where(driver):
    change, direction = driver["median_change"], driver["direction"]
    text = _words.DIRECTIONS.get(direction, f"mostly {direction}")
    if change is None or direction == "both":  # a middle of ups and downs says little
        return text
    return f"{text}, by about {_words.rounded(change)}"


# --- 3. The rows ---


def _rows(facts):
    yield '<section id="rows"><h2>3. The rows</h2>'
    if not facts["explanation"]:
        yield (
            f"<p>None of the {_words.count(facts['n_rows'])} is rejected, so there is "
            "nothing to explain.</p></section>"
        )
        return
    left_out = facts["n_rejected"] - facts["n_explained"]
    if left_out:
        yield (
            f"<p>The {facts['n_explained']:,} most uncertain rows are explained, and "
            f"{left_out:,} rejected ones left out (<code>max_rows</code>).</p>"
        )
    explanation = facts["explanation"]
    is_usual = explanation["target"] == explanation["threshold"] is not None
    if explanation["goal"] == "sure" and is_usual:
        yield (
            f"<p>Sure means: as sure as the model is about "
            f"{_words.percent(1 - facts['rejection_rate'])} of rows like those that "
            "it learned from. It does not mean right.</p>"
        )
    yield _page_rows.section(facts["explanation"]) + "</section>"


# --- 4. What not to conclude ---


def _limits(facts):
    yield '<section id="limits"><h2>4. What not to conclude</h2><ul>'
    yield from (f"<li>{escape(text)}</li>" for text in _warnings(facts))
    yield "</ul><h3>How this page was made</h3>"
    yield f'<pre tabindex="0"><code>{escape(facts["code"])}</code></pre>'
    yield "<details><summary>Settings and versions</summary>"
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Settings"><table>'
    yield "<tbody>"
    for name, value in facts["settings"].items():
        yield (
            f'<tr><th scope="row">{escape(name)}</th>'
            f"<td><code>{escape(value)}</code></td></tr>"
        )
    yield "</tbody></table></div>"
    versions = ", ".join(f"{name} {v}" for name, v in facts["versions"].items())
    yield f"<p>Versions: {escape(versions)}.</p></details></section>"


def _warnings(facts):
    yield _ABOUT_THE_MODEL
    yield (
        "Sure is not right. The model can be sure and wrong; part 1 says how often it "
        "is."
    )
    explanation = facts["explanation"]
    if explanation:
        rows = explanation["rows"]
        unsure = sum(row["is_sure"] is False for row in rows)
        if unsure:
            yield (
                f"{_words.count(unsure)} of {len(rows):,} got no answer: no sure and "
                "believable row was found nearby. This does not mean that there is "
                "none."
            )
        odd = sum(row["is_plausible"] is False for row in rows)
        if odd:
            yield (
                f"{_words.count(odd)} got an answer that is less believable than "
                "asked: few training rows look like it."
            )
        flips = sum(
            row["prediction"]["before"] != row["prediction"]["after"] for row in rows
        )
        if explanation["unit"] and flips:
            yield (
                f"In {_words.count(flips)} the answer is sure of another class. Where "
                "the model hesitates between classes, it may become sure of either."
            )
        yield (
            "Contributions say what lowers the uncertainty of this model. They are no "
            "causes, and columns that belong together share them."
        )
        if explanation["note"]:
            yield explanation["note"]
    if facts["quality"] and facts["n_rows"] < 200:
        yield (
            f"The figures of part 1 rest on {_words.count(facts['n_rows'])}. With "
            "so few they may be off by several points."
        )
    yield (
        "The simplest model of part 1 knows the rows that it is compared on, which is "
        "a small advantage for it."
    )
