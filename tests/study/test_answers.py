"""Reading the files of participants: what is kept, left out and refused."""

import csv
import json

import pytest

from sklearn_clue.study import analyse, read_answers

FORMAT = "sklearn_clue study 1"
TRUTH = {"q1": True, "q2": True, "q3": False, "q4": False}
KEY = {
    "format": FORMAT,
    "study": "5ab1",
    "example": {"id": "example", "sure": False},
    "variants": {
        code: {
            "name": name,
            "questions": {
                question: {"method": name, "sure": sure}
                for question, sure in TRUTH.items()
            },
        }
        for code, name in {"1": "CLUE", "2": "none"}.items()
    },
}


def sheet(participant="anna", said="1100", checks="00", seconds=9.5, **changes):
    """A sheet of answers: whether "sure" was said to each question and check."""
    codes = [*TRUTH, "check1", "check2"]
    answers = [
        {
            "question": code,
            "answer": "sure" if each == "1" else "unsure",
            "seconds": seconds,
        }
        for code, each in zip(codes, said.ljust(4) + checks, strict=False)
        if each != " "
    ]
    return {
        "format": FORMAT,
        "study": "5ab1",
        "participant": participant,
        "variant": "1",
        "answers": answers,
    } | changes


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "key.json").write_text(json.dumps(KEY))
    (tmp_path / "answers").mkdir()
    return tmp_path / "answers"


def put(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


def as_csv(*sheets, delimiter=","):
    columns = ["study", "participant", "variant", "question", "answer", "seconds"]
    lines = [
        [each[name] for name in columns[:3]] + [line[name] for name in columns[3:]]
        for each in sheets
        for line in each["answers"]
    ]
    if delimiter == ";":  # a spreadsheet of a country with decimal commas
        lines = [[*line[:-1], str(line[-1]).replace(".", ",")] for line in lines]
    rows = [delimiter.join(map(str, line)) for line in [columns, *lines]]
    return "\r\n".join(rows) + "\r\n"


def test_one_sheet(folder):
    put(folder, "answers-anna.json", sheet(said="1001"))
    answers = read_answers(folder)
    table = answers.table
    assert table.columns.tolist() == [
        *("participant", "variant", "method", "question", "position"),
        *("sure", "answer", "seconds", "check"),
    ]
    asked = table[~table["check"]]
    assert asked["sure"].tolist() == [True, True, False, False]  # from the key
    assert asked["answer"].tolist() == [True, False, False, True]
    assert table["position"].tolist() == [1, 2, 3, 4, 5, 6]
    assert set(table["method"]) == set(table["variant"]) == {"CLUE"}
    checks = table[table["check"]]
    assert set(checks["question"]) == {"example"} and not checks["sure"].any()
    assert table["seconds"].tolist() == [9.5] * 6
    assert len(answers.excluded) == 0
    assert "1 participant, 4 answers" in str(answers) and "nobody" in str(answers)
    assert analyse(answers, n_permutations=0).methods["accuracy"].tolist() == [0.5]


@pytest.mark.parametrize(
    "name, content",
    [
        ("one.csv", as_csv(sheet(), sheet("bert", variant="2"))),
        ("one.CSV", "\ufeff" + as_csv(sheet(), sheet("bert", variant="2"))),
        ("one.csv", as_csv(sheet(), sheet("bert", variant="2"), delimiter=";")),
        ("one.json", [sheet(), sheet("bert", variant="2")]),
        ("one.jsonl", f"{json.dumps(sheet())}\n\n{json.dumps(sheet('bert'))}\n"),
    ],
)
def test_formats(folder, name, content):
    put(folder, "two.json", sheet("carl"))
    expected = read_answers(folder).table.drop(columns="participant")
    put(folder, name, content)
    answers = read_answers(folder)
    assert set(answers.table["participant"]) == {"anna", "bert", "carl"}
    for _, one in answers.table.groupby("participant"):
        columns = ["question", "answer", "sure", "seconds", "check", "position"]
        both = (each[columns].reset_index(drop=True) for each in (one, expected))
        assert next(both).equals(next(both))
    alone = read_answers(folder / name)  # one file, with the key above its folder
    assert set(alone.table["participant"]) == {"anna", "bert"}


def test_quoted_codes_in_csv(folder):
    columns = ["study", "participant", "variant", "question", "answer", "seconds"]
    with open(folder / "one.csv", "w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        for line in sheet()["answers"]:
            writer.writerow(["5ab1", "a,\nb", "1", *line.values()])
    assert set(read_answers(folder).table["participant"]) == {"a,\nb"}


def test_exclusions(folder):
    put(folder, "a.json", sheet("slow and right"))
    put(folder, "b.json", sheet("one check wrong", checks="10"))
    put(folder, "c.json", sheet("both wrong", checks="11"))
    put(folder, "d.json", sheet("too fast", seconds=0.5))
    put(folder, "e.json", sheet("gave up", said="11", checks=""))
    put(folder, "f.json", sheet("twice", said="1111"))
    put(folder, "g.json", sheet("twice", said="0000"))
    put(folder, "h.json", sheet("again", said="1", checks=""))
    put(folder, "i.json", sheet("again", said="1100"))
    put(folder, "j.json", sheet("not asked to attend", checks=""))
    answers = read_answers(folder)
    kept = set(answers.table["participant"])
    assert kept == {
        "slow and right",
        "one check wrong",
        "twice",
        "again",
        "not asked to attend",
    }
    log = answers.excluded.set_index("file")
    assert log[["participant", "reason"]].to_dict("index") == {
        "c.json": {"participant": "both wrong", "reason": "failed attention checks"},
        "d.json": {"participant": "too fast", "reason": "too fast"},
        "e.json": {"participant": "gave up", "reason": "incomplete"},
        "g.json": {"participant": "twice", "reason": "duplicate"},
        "h.json": {"participant": "again", "reason": "incomplete"},
    }
    assert log["detail"]["e.json"] == "2 of 4 questions answered"
    assert log["detail"]["g.json"] == "f.json is used"
    twice = answers.table[answers.table["participant"] == "twice"]
    assert twice["answer"][~twice["check"]].all()
    assert "too fast: too fast, " in str(answers) and "(d.json)" in str(answers)
    assert repr(answers) == "<Answers of 5 participants, 5 excluded>"

    strict = read_answers(folder, min_checks_passed=2, min_seconds=60)
    assert len(strict.table) == 0 and len(strict.excluded) == 10
    with pytest.raises(ValueError, match="answers.excluded says why"):
        analyse(strict)
    assert len(read_answers(folder, min_checks_passed=0, min_seconds=0).excluded) == 3


def broken(**changes):
    """A sheet whose second answer is wrong in some way."""
    content = sheet()
    content["answers"][1] |= changes
    return content


@pytest.mark.parametrize(
    "name, content, match",
    [
        ("a.json", "{", "a.json is no JSON.*cut off"),
        ("a.jsonl", json.dumps(sheet()) + "\n{", "a.jsonl, line 2 is no JSON"),
        ("a.json", [1], "a.json holds no answers of a study"),
        ("a.json", sheet(format="2"), "a.json holds no answers of a study"),
        (
            "a.json",
            sheet(study="other"),
            "a.json has answers to another study.*'other'",
        ),
        ("a.json", sheet(variant="7"), "a.json answers variant '7'.*'1', '2'"),
        ("a.json", sheet(answers=None), "a.json has no list of answers"),
        ("a.json", sheet(answers=[3]), "a.json, answer 1: expected an object, got 3"),
        ("a.json", broken(answer="maybe"), "a.json, answer 2: .* got 'maybe'"),
        ("a.json", broken(answer=True), "a.json, answer 2: .* got True"),
        ("a.json", broken(answer=[]), r"a.json, answer 2: .* got \[\]"),
        ("a.json", broken(question="q9"), "a.json, answer 2: .*no question 'q9'"),
        ("a.json", broken(question=[]), r"a.json, answer 2: .*no question \[\]"),
        ("a.json", broken(question="q1"), "answer 2: question 'q1' is answered twice"),
        ("a.json", broken(seconds=-1), "answer 2: seconds must be.*got -1"),
        ("a.json", broken(seconds="NaN"), "answer 2: seconds must be.*got 'NaN'"),
        ("a.csv", "study,answer\n1,sure\n", "a.csv has no column 'participant', "),
        ("a.csv", "", "a.csv has no column 'study', "),
    ],
)
def test_errors_name_the_file(folder, name, content, match):
    put(folder, name, content)
    with pytest.raises(ValueError, match=match):
        read_answers(folder)


def test_not_text(folder):
    (folder / "a.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="a.csv is no text in UTF-8"):
        read_answers(folder)


def test_missing_files(folder, tmp_path):
    with pytest.raises(
        FileNotFoundError, match="no answers in .*answers: no file ends"
    ):
        read_answers(folder)
    with pytest.raises(FileNotFoundError, match="no folder or file .*nowhere"):
        read_answers(tmp_path / "nowhere")
    put(folder, "a.json", sheet())
    (tmp_path / "key.json").write_text("{}")
    with pytest.raises(ValueError, match="key.json is no key of a study"):
        read_answers(folder)
    (tmp_path / "key.json").unlink()
    with pytest.raises(FileNotFoundError, match="no key.json in .* or give study="):
        read_answers(folder)
