"""The pages of a study that participants open."""

import json
import re
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from urllib.parse import urlsplit

from sklearn_clue._page import document, source_hash
from sklearn_clue._validation import listing
from sklearn_clue.persistence import replacing
from sklearn_clue.study._content import KEY_NAME, gather
from sklearn_clue.study._page_parts import SCRIPT, STYLE

TITLE = "When is the model sure?"
CONSENT = (
    "You are asked to take part in a study about how people understand a computer "
    "model. You will see some short questions and answer each of them by a click. "
    "Taking part is voluntary."
)


def write_pages(
    study, folder, *, one_page, title, consent, instructions, labels, n_checks, post_to
):
    """Write what `Study.to_html` documents."""
    _check_parameters(title, consent, instructions, n_checks, post_to)
    names = _names(study, labels)
    folder = Path(folder)
    shown, key = gather(study)
    key_path = folder / KEY_NAME
    _check_key(key_path, key)
    variants = shown.pop("variants")
    if one_page:
        contents = {"index.html": variants}
    else:
        contents = {
            f"variant-{c}.html": {c: content} for c, content in variants.items()
        }
    texts = {
        "features": names,
        "title": title,
        "consent": consent,
        "instructions": instructions,
        "checks": int(n_checks),
        "post_to": post_to,
        # The worked example is shown with its answer: no other answer is on the page.
        "solution": "sure" if study.example.test_is_sure else "unsure",
    }
    pages = folder / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        _write(pages / name, _page(shown | texts | {"variants": content}))
    _write(key_path, json.dumps(key, indent=1) + "\n")
    return [pages / name for name in contents]


def _write(path, text):
    with replacing(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _check_parameters(title, consent, instructions, n_checks, post_to):
    texts = {"title": title, "consent": consent, "instructions": instructions}
    for name, text in texts.items():
        if not isinstance(text, str) and (text is not None or name != "instructions"):
            raise TypeError(f"{name} must be a text, got {text!r}.")
    if not isinstance(n_checks, Integral) or n_checks < 0:
        raise ValueError(
            f"n_checks must be a whole number of at least 0, got {n_checks!r}."
        )
    if post_to is None:
        return
    parts = urlsplit(post_to) if isinstance(post_to, str) else None
    if not parts or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            "post_to must be a whole address such as "
            f"'https://example.org/answers', got {post_to!r}."
        )
    # Nothing else may enter the policy of the page.
    if re.search(r"[\s;,'\"<>\\]", post_to) or parts.username is not None:
        raise ValueError(
            f"post_to must be an address without spaces, quotes, commas, semicolons or "
            f"passwords, got {post_to!r}."
        )


def _names(study, labels):
    """What the columns are called; None for images."""
    if labels is None:
        labels = {}
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels must be a dict of columns to texts, got {labels!r}.")
    names = list(study.feature_names)
    if unknown := [name for name in labels if name not in names]:
        raise ValueError(
            f"labels names {listing(unknown)}, and the study has the columns "
            f"{listing(names)}."
        )
    if study.image_shape is not None:
        return None
    return [str(labels.get(name, name)) for name in names]


def _check_key(path, key):
    """Refuse to take the place of the key that other answers need."""
    if not path.exists():
        return
    try:
        other = json.loads(path.read_text("utf-8")).get("study")
    except (ValueError, AttributeError):
        other = None
    if other != key["study"]:
        raise FileExistsError(
            f"{path} is the key of another study, whose answers could not be read "
            "without it. Choose another folder, or take the file away."
        )


def _page(data):
    policy = [
        f"style-src '{source_hash(STYLE)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if data["post_to"] is not None:
        # The host, since a policy cannot hold what stands after a question mark.
        parts = urlsplit(data["post_to"])
        policy.append(f"connect-src {parts.scheme}://{parts.netloc}")
    body = [
        "<main><noscript><p><strong>This page needs scripts, which are off in this "
        "browser.</strong></p></noscript></main>"
    ]
    # Half a surrogate pair cannot be written; the heading shows it as the data has it.
    title = data["title"].encode("utf-8", "replace").decode()
    return document(title, body, data, STYLE, SCRIPT, policy)
