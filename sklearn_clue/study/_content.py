"""What the pages of a study show, as plain values, and the key to its answers.

The two are kept apart: nothing of the key is in what the pages show.
"""

import hashlib
import json
from dataclasses import replace

import numpy as np

from sklearn_clue import _facts, _rendering, _tables, _words

FORMAT = "sklearn_clue study 1"  # of pages, keys and answers
KEY_NAME = "key.json"
CHECK = "check"  # what attention checks are called, before their number


def gather(study):
    """Collect what is shown, and the key.

    Parameters
    ----------
    study : Study
        The study.

    Returns
    -------
    shown : dict
        `study` (a digest of all that is shown), and in `variants` by its code each
        variant: its `questions` by name and its `example`. Codes say nothing about the
        methods.

    key : dict
        By the same codes and names, the names of variants and methods and the right
        answers.
    """
    decimals = _decimals(study)
    variants, keys = {}, {}
    for code, (name, questions) in enumerate(study.variants.items(), start=1):
        methods = {question.method for question in questions}
        example = replace(study.example, variant=name)
        if len(methods) == 1:  # which may be to show nothing
            example = replace(example, method=methods.pop())
        variants[str(code)] = {
            "questions": {q.id: _shown(study, q, decimals) for q in questions},
            "example": _shown(study, example, decimals),
        }
        keys[str(code)] = {
            "name": name,
            "questions": {
                q.id: {"method": q.method, "sure": bool(q.test_is_sure)}
                for q in questions
            },
        }
    shown = {"variants": variants}
    digest = hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]
    example = {"id": study.example.id, "sure": bool(study.example.test_is_sure)}
    key = {"format": FORMAT, "study": digest, "example": example, "variants": keys}
    return shown | {"format": FORMAT, "study": digest}, key


def _decimals(study):
    """The digits after the point of each column, as explanations are written."""
    if study.image_shape is not None:
        return None
    for question in study.questions:
        explanation = study.explanation_of(question)
        if explanation is not None:
            features = explanation.to_dict()["features"]
            return [feature["decimals"] for feature in features]
    return [None] * len(study.feature_names)


def _shown(study, question, decimals):
    """What one question shows: texts, or addresses of pictures."""
    seen = study.seen(question)
    explanation = study.explanation_of(question)
    shown = {"explanation": None}
    if seen.explanation is not None:
        is_sure = True if explanation is None else explanation.is_sure
        # A method may fail, and participants must not be told that it did not.
        shown["is_sure"] = is_sure is None or bool(np.all(is_sure))
    write = _pictures if study.image_shape is not None else _texts
    return shown | write(study, seen, decimals)


def _texts(study, seen, decimals):
    context, test = _values(seen.context), _values(seen.test)
    texts = {
        name: [_words.value(*pair) for pair in zip(values, decimals, strict=True)]
        for name, values in (("context", context), ("test", test))
    }
    if seen.explanation is not None:
        pairs = [
            _words.two_values({"before": old, "after": new}, {"decimals": digits})
            for old, new, digits in zip(
                context, _values(seen.explanation), decimals, strict=True
            )
        ]
        texts["context"], texts["explanation"] = map(list, zip(*pairs, strict=True))
    return texts


def _values(row):
    columns = _tables.arrays(row)
    return [_facts.plain(_tables.as_objects(values)[0]) for values in columns]


def _pictures(study, seen, decimals):
    def pixels(row):
        return np.asarray(row, dtype=float).reshape(study.image_shape)

    context, test = pixels(seen.context), pixels(seen.test)
    after = context if seen.explanation is None else pixels(seen.explanation)
    rows = [
        {"pixels": {"before": before, "after": after}}
        for before, after in ((context, after), (test, test))
    ]
    (context, after, difference), (test, *_) = _rendering.pictures(rows)
    shown = {"context": context, "test": test}
    if seen.explanation is not None:
        shown |= {"explanation": after, "difference": difference}
    return shown
