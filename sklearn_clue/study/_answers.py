"""Reading what participants of a user study have answered."""

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_clue import _words
from sklearn_clue._validation import listing
from sklearn_clue.study._content import CHECK, FORMAT, KEY_NAME, gather

_COLUMNS = {
    "participant": str,
    "variant": str,
    "method": str,
    "question": str,
    "position": int,
    "sure": bool,
    "answer": bool,
    "seconds": float,
    "check": bool,
}
_WORDS = {"sure": True, "unsure": False}
_SUFFIXES = (".json", ".jsonl", ".csv")


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Answers of the participants of a user study, as `read_answers` documents them.

    Parameters
    ----------
    table : DataFrame
        One line per answer.

    excluded : DataFrame
        One line per sheet of answers that was left out.
    """

    table: pd.DataFrame
    excluded: pd.DataFrame

    def __repr__(self):
        return (
            f"<Answers of {_words.count(self._n_participants, 'participant')}, "
            f"{len(self.excluded)} excluded>"
        )

    def __str__(self):
        n_answers = int((~self.table["check"]).sum())
        lines = [
            f"{_words.count(self._n_participants, 'participant')}, "
            f"{_words.count(n_answers, 'answer')}"
        ]
        shown = self.table[~self.table["check"]].groupby("method", sort=False)
        for method, answers in shown:
            people = _words.count(answers["participant"].nunique(), "participant")
            lines.append(
                f"  {method}: {people}, {_words.count(len(answers), 'answer')}"
            )
        lines.append(f"Excluded: {len(self.excluded) or 'nobody'}")
        for line in self.excluded.itertuples():
            lines.append(
                f"  {line.participant}: {line.reason}, {line.detail} ({line.file})"
            )
        return "\n".join(lines)

    @property
    def _n_participants(self):
        return self.table["participant"].nunique()


def read_answers(folder, study=None, *, min_seconds=2.0, min_checks_passed=1):
    """Read the answers of all participants of a user study.

    Parameters
    ----------
    folder : path
        A folder with the files that participants have downloaded or a server has
        stored, or one such file: JSON, JSON lines or CSV, one or more participants in
        each. Folders inside are not searched.

    study : Study, default=None
        The study that was answered. None reads the right answers from the file
        `key.json` that :meth:`Study.to_html` has written, in `folder` or the folder
        above it. Pages do not hold the right answers.

    min_seconds : float, default=2.0
        Participants whose median answer took fewer seconds are left out as too fast.

    min_checks_passed : int, default=1
        Participants who got fewer attention checks right are left out. The default is
        the rule of the paper, where one of two was enough.

    Returns
    -------
    answers : Answers
        Print it for a summary. It holds

        - `table`, one line per answer: `participant`, `variant`, `method`, `question`,
          `position` (from 1, in the order in which it was asked), `sure` (the truth:
          whether the model is sure about the test row), `answer` (whether the
          participant said so), `seconds` that it was visible, and `check` (whether it
          is an attention check);
        - `excluded`, one line per sheet of answers that was left out: `participant`,
          `file`, `reason` (`"incomplete"`, `"failed attention checks"`, `"too fast"` or
          `"duplicate"`) and `detail`. Of several complete sheets under one code, the
          first by the name of its file is used.

    See Also
    --------
    sklearn_clue.study.analyse : Compares the methods.

    Examples
    --------
    A participant who answered one question of two:

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from sklearn_clue.study import read_answers
    >>> asked = {"method": "CLUE", "sure": True}
    >>> key = {
    ...     "format": "sklearn_clue study 1",
    ...     "study": "5ab1",
    ...     "example": {"id": "example", "sure": False},
    ...     "variants": {
    ...         "1": {"name": "CLUE", "questions": {"q1": asked, "q2": asked}}
    ...     },
    ... }
    >>> sheet = {
    ...     "format": "sklearn_clue study 1",
    ...     "study": "5ab1",
    ...     "participant": "anna",
    ...     "variant": "1",
    ...     "answers": [{"question": "q1", "answer": "sure", "seconds": 12.5}],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, content in {"key": key, "answers-anna": sheet}.items():
    ...         _ = Path(folder, f"{name}.json").write_text(json.dumps(content))
    ...     answers = read_answers(folder)
    >>> print(answers)
    0 participants, 0 answers
    Excluded: 1
      anna: incomplete, 1 of 2 questions answered (answers-anna.json)
    """
    folder = Path(folder)
    key = _read_key(folder) if study is None else gather(study)[1]
    sheets = []
    for path in _files(folder):
        for sheet in _sheets(path):
            sheets.append((path.name, _checked_sheet(sheet, key, path.name)))
    lines, excluded, used = [], [], {}
    for name, sheet in sheets:
        reason = _why_excluded(sheet, key, min_seconds, min_checks_passed)
        if reason is None and sheet["participant"] in used:
            reason = "duplicate", f"{used[sheet['participant']]} is used"
        if reason is None:
            used[sheet["participant"]] = name
            lines += _lines(sheet, key)
        else:
            excluded.append((sheet["participant"], name, *reason))
    table = pd.DataFrame(lines, columns=list(_COLUMNS)).astype(_COLUMNS)
    columns = ["participant", "file", "reason", "detail"]
    return Answers(table, pd.DataFrame(excluded, columns=columns))


def answers_table(answers):
    """The answers that are analysed, checked: attention checks are left out.

    Parameters
    ----------
    answers : Answers or DataFrame
        As `analyse` takes them.

    Returns
    -------
    table : DataFrame
        With bool `sure` and `answer`, and `seconds`, NaN where not known.
    """
    table = getattr(answers, "table", answers)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            "answers must be what read_answers returns, or a DataFrame with one line "
            f"per answer, got {type(answers).__name__}."
        )
    needed = ["participant", "method", "question", "sure", "answer"]
    if missing := [name for name in needed if name not in table.columns]:
        raise ValueError(
            f"The table of answers has no column {listing(missing)}. It has "
            f"{listing(list(table.columns), limit=12)}."
        )
    table = table.reset_index(drop=True)
    if "check" in table.columns:
        table = table[~_as_bools(table, "check")]
    if table.empty:
        raise ValueError(
            "There is no answer to analyse. If participants were left out, "
            "answers.excluded says why."
        )
    gaps = table[needed].isna().any()
    if gaps.any():
        raise ValueError(f"Column {listing(list(gaps.index[gaps]))} has gaps.")
    twice = table.duplicated(["participant", "method", "question"])
    if twice.any():
        first = table[twice].iloc[0]
        raise ValueError(
            f"Participant {first['participant']!r} has answered question "
            f"{first['question']!r} of {first['method']!r} more than once. Keep one "
            "line of each."
        )
    seconds = table["seconds"] if "seconds" in table.columns else np.nan
    return table[needed].assign(
        sure=_as_bools(table, "sure"),
        answer=_as_bools(table, "answer"),
        seconds=seconds,
    )


def _as_bools(table, name):
    values = table[name]
    if not values.isin([True, False]).all():
        wrong = values[~values.isin([True, False])].unique()
        raise ValueError(
            f"Column {name!r} must hold True and False, got {listing(list(wrong))}."
        )
    return values.astype(bool)


# --- Files ---


def _read_key(folder):
    near = folder if folder.is_dir() else folder.parent
    for place in (near, near.parent):
        path = place / KEY_NAME
        if path.is_file():
            key = _json(path.read_text("utf-8"), path.name)
            if not isinstance(key, dict) or key.get("format") != FORMAT:
                raise ValueError(
                    f"{path} is no key of a study that this version can read: it needs "
                    f'"format": "{FORMAT}".'
                )
            return key
    raise FileNotFoundError(
        f"There is no {KEY_NAME} in {near} or the folder above. Study.to_html writes "
        "it beside the folder of the pages. Put it there, or give study=."
    )


def _files(folder):
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder or file {folder}.")
    paths = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES and path.name != KEY_NAME
    ]
    if not paths:
        raise FileNotFoundError(
            f"There are no answers in {folder}: no file ends in {', '.join(_SUFFIXES)}."
        )
    return paths


def _sheets(path):
    """The sheets of answers in a file, as they are."""
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is no text in UTF-8: {error}.") from error
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _sheets_of_csv(text, path.name)
    if suffix == ".jsonl":
        lines = enumerate(text.splitlines(), start=1)
        return [_json(t, f"{path.name}, line {n}") for n, t in lines if t.strip()]
    content = _json(text, path.name)
    return content if isinstance(content, list) else [content]


def _json(text, name):
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{name} is no JSON ({error}). It may have been cut off on its way."
        ) from error


def _sheets_of_csv(text, name):
    # Spreadsheets of some countries write semicolons.
    first = text.split("\n", 1)[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    needed = ["study", "participant", "variant", "question", "answer", "seconds"]
    missing = [column for column in needed if column not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{name} has no column {listing(missing)}.")
    sheets = {}
    for line in reader:
        who = tuple(line[column] for column in needed[:3])
        sheet = dict(zip(needed[:3], who, strict=True)) | {
            "format": FORMAT,
            "answers": [],
        }
        sheets.setdefault(who, sheet)["answers"].append(line)
    return list(sheets.values())


# --- Sheets ---


def _checked_sheet(sheet, key, name):
    """A sheet of answers with its values read, or an error that names the file."""
    if not isinstance(sheet, dict) or sheet.get("format") != FORMAT:
        raise ValueError(
            f'{name} holds no answers of a study: "format": "{FORMAT}" is missing.'
        )
    if sheet.get("study") != key["study"]:
        raise ValueError(
            f"{name} has answers to another study: it says {sheet.get('study')!r}, and "
            f"the key {key['study']!r}. Take the file away, or give its own key."
        )
    variant = str(sheet.get("variant"))
    if variant not in key["variants"]:
        raise ValueError(
            f"{name} answers variant {variant!r}, and the study has "
            f"{listing(list(key['variants']))}."
        )
    if not isinstance(sheet.get("answers"), list):
        raise ValueError(f"{name} has no list of answers.")
    questions = key["variants"][variant]["questions"]
    answers = []
    for position, answer in enumerate(sheet["answers"], start=1):
        where = f"{name}, answer {position}"
        if not isinstance(answer, dict):
            raise ValueError(f"{where}: expected an object, got {answer!r}.")
        question, said = answer.get("question"), answer.get("answer")
        is_check = isinstance(question, str) and question.startswith(CHECK)
        if not is_check and question not in list(questions):
            raise ValueError(f"{where}: the study has no question {question!r}.")
        if any(question == other["question"] for other in answers):
            raise ValueError(f"{where}: question {question!r} is answered twice.")
        if said not in list(_WORDS):
            raise ValueError(f'{where}: an answer is "sure" or "unsure", got {said!r}.')
        answers.append(
            {
                "question": question,
                "answer": _WORDS[said],
                "seconds": _seconds(answer.get("seconds"), where),
                "check": is_check,
            }
        )
    return {
        "participant": str(sheet.get("participant")),
        "variant": variant,
        "answers": answers,
    }


def _seconds(value, where):
    try:
        seconds = float(str(value).replace(",", "."))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{where}: seconds must be a number from 0 on, got {value!r}.")
    return seconds


def _why_excluded(sheet, key, min_seconds, min_checks_passed):
    """The reason to leave out a sheet, and its figure; None to keep it."""
    asked = [answer for answer in sheet["answers"] if not answer["check"]]
    checks = [answer for answer in sheet["answers"] if answer["check"]]
    n_questions = len(key["variants"][sheet["variant"]]["questions"])
    if len(asked) < n_questions:
        return "incomplete", f"{len(asked)} of {n_questions} questions answered"
    truth = key["example"]["sure"]
    passed = sum(answer["answer"] == truth for answer in checks)
    if checks and passed < min_checks_passed:
        return "failed attention checks", f"{passed} of {len(checks)} right"
    median = float(np.median([answer["seconds"] for answer in asked]))
    if median < min_seconds:
        return "too fast", f"half of the answers in less than {median:.1f} s"
    return None


def _lines(sheet, key):
    variant = key["variants"][sheet["variant"]]
    method = next(iter(variant["questions"].values()))["method"]
    example = key["example"] | {"method": method}
    for position, answer in enumerate(sheet["answers"], start=1):
        is_check = answer["check"]
        asked = example if is_check else variant["questions"][answer["question"]]
        yield (
            sheet["participant"],
            variant["name"],
            asked["method"],
            key["example"]["id"] if is_check else answer["question"],
            position,
            asked["sure"],
            answer["answer"],
            answer["seconds"],
            is_check,
        )
