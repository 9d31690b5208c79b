"""The command: files as people have them, columns in doubt, and what it writes."""

import fcntl
import gzip
import json
import os
import pty
import subprocess
import sys
import termios
import threading
import time
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression

from sklearn_clue import (
    LocalSensitivityExplainer,
    NeighborExplainer,
    TabularEncoder,
    _cli,
    _files,
    _intake,
)
from sklearn_clue._cli import main
from sklearn_clue._stages import Stages, warnings_as_notes
from sklearn_clue.pipeline import make_pipeline

# --- Reading ---


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


FILES = {
    "semicolons and decimal commas": ("name;size\nÄrger;1,5\nb;2,25\n", "utf-8"),
    "a mark of byte order": ("name,size\nÄrger,1.5\nb,2.25\n", "utf-8-sig"),
    "latin-1": ("name,size\nÄrger,1.5\nb,2.25\n", "latin-1"),
    "UTF-16": ("name\tsize\nÄrger\t1.5\nb\t2.25\n", "utf-16"),
    "line ends of Windows": ("name,size\r\nÄrger,1.5\r\nb,2.25\r\n", "utf-8"),
    "blank lines and blanks": ("name, size\n\nÄrger , 1.5\nb,2.25\n\n", "utf-8"),
    "bars": ("name|size\nÄrger|1.5\nb|2.25\n", "utf-8"),
    "a named separator": ("sep=;\nname;size\nÄrger;1.5\nb;2.25\n", "utf-8"),
    "signs": ("name;size\nÄrger;1,5 €\nb;2,25 €\n", "utf-8"),
    "blanks": ("name size\nÄrger   1.5 \nb 2.25\n", "utf-8"),
}


@pytest.mark.parametrize("kind", FILES)
def test_text_files(kind, tmp_path):
    text, encoding = FILES[kind]
    table, notes = _files.read_table(write(tmp_path / "t.csv", text, encoding))
    assert table.to_dict("list") == {"name": ["Ärger", "b"], "size": [1.5, 2.25]}
    assert table.index.tolist() == [1, 2]
    assert bool(notes) == (kind == "latin-1")


@pytest.mark.parametrize(
    "text, values",
    [
        ('a,b\n"1,234",x\n"12,345.5",y\n', [1234.0, 12345.5]),
        ("a;b\n1.234,5;x\n12.345;y\n", [1234.5, 12345.0]),
        ("a;b\n1,234.5;x\n2;y\n", [1234.5, 2.0]),
        ("a,b\n1e3,x\n-.5,y\n", [1000.0, -0.5]),
        ("a,b\n7,x\n,y\n", [7.0, np.nan]),
        ("a,b\n7,x\nNA,y\n", [7.0, np.nan]),
        ("a,b\n007,x\n12,y\n", [7, 12]),
        ("a;b\n1 234,5;x\n-12\u00a0345;y\n", [1234.5, -12345.0]),
        ("a,b\n5 %,x\n$12.5,y\n", [5, 12.5]),
    ],
)
def test_numbers(text, values, tmp_path):
    table, _ = _files.read_table(write(tmp_path / "t.csv", text))
    np.testing.assert_array_equal(table["a"].to_numpy(), values)


def test_quotes_line_breaks_and_names(tmp_path):
    text = 'a,a,,"b, c"\n"x\ny",1,2,"he said ""no"""\nz,3,4,w\n'
    table, notes = _files.read_table(write(tmp_path / "t.csv", text))
    assert table.columns.tolist() == ["a", "a.2", "column 3", "b, c"]
    assert table["a"].tolist() == ["x\ny", "z"]
    assert table["b, c"].tolist() == ['he said "no"', "w"]
    assert notes == ["columns of the same name were numbered: 'a'"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        ("1,2\n3,4\n", "line 1 holds numbers only: 1, 2"),
        ("Sales of 2020\na,b\n1,2\n3,4\n", "line 1 has 1 field, and most lines have 2"),
        ("a,b\nx,1\ny\n", "line 3 has 1 field, and the first line 2"),
        ('a,b\n"x\ny",1\nz,2,3\n', "line 4 has 3 fields, and the first line 2"),
        ('a,b\nx,1\n"z,2\n', "line 3: unexpected end of data"),
        ("a,b\n" + "x,1\n" * 999 + "x,n.a.\n", "line 1001.*>99 % of the column"),
        (
            "a,b\n" + "1,x\n" * 30 + "2o,x\n",
            "line 32, column 'a': '2o' is not a number",
        ),
        ("a,b\n\0,1\n", "is not a text file"),
    ],
)
def test_what_cannot_be_read_is_told_by_line_and_column(text, message, tmp_path):
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(_files.FileError, match=message):
        _files.read_table(path)


def test_packed_files(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress("name;size\nÄrger;1,5\n".encode("latin-1")))
    table, _ = _files.read_table(path)
    assert table.to_dict("list") == {"name": ["Ärger"], "size": [1.5]}
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(_files.FileError, match="cannot be read: Compressed file ended"):
        _files.read_table(path)


def test_a_file_without_names(tmp_path):
    path = write(tmp_path / "t.data", "540 0.0 162\n332.5  142.5 228\n")
    with pytest.raises(_files.FileError, match="numbers only: 540, 0.0, .*--names"):
        _files.read_table(path)
    table, notes = _files.read_table(path, names=["cement", "slag", "water"])
    assert table["cement"].tolist() == [540, 332.5] and notes == []
    with pytest.raises(_files.FileError, match="line 1 has 3 fields, and --names 2"):
        _files.read_table(path, names=["cement", "slag"])
    write(path, "A11,6\nA12,48\n")
    assert "such as '6'; if it is a row, pass --names" in _files.read_table(path)[1][0]


def test_other_readers(tmp_path, monkeypatch):
    with pytest.raises(_files.FileError, match="cannot be read: No such file"):
        _files.read_table(tmp_path / "none.csv")

    def lack(path):
        raise ImportError("Missing optional dependency 'a reader'.")

    monkeypatch.setattr(pd, "read_excel", lack)
    with pytest.raises(_files.FileError, match=".xlsx files needs one more package"):
        _files.read_table(tmp_path / "t.xlsx")


PACKAGES = {".parquet": "pyarrow", ".xlsx": "openpyxl"}


@pytest.mark.parametrize("ending", PACKAGES)
def test_parquet_and_excel(ending, tmp_path):
    pytest.importorskip(PACKAGES[ending])
    table = pd.DataFrame(
        {
            "name": ["Ärger", "b", None],
            "size": [1.5, np.nan, 2.0],
            "zip": [7, 12, 7],
            "since": pd.to_datetime(["2020-01-02", "2021-03-04", "2022-05-06"]),
            "kind": pd.Categorical(["x", "y", "x"]),
        }
    )
    path = tmp_path / f"table{ending}"
    getattr(table, {".parquet": "to_parquet", ".xlsx": "to_excel"}[ending])(
        path, index=False
    )
    read, notes = _files.read_table(path, as_text={"zip"})
    assert notes == [] and read.index.tolist() == [1, 2, 3]
    assert read["zip"].tolist() == ["7", "12", "7"]
    assert read["name"].isna().tolist() == [False, False, True]
    np.testing.assert_array_equal(read["size"], [1.5, np.nan, 2.0])
    assert _intake._reason("since", read["since"]) == "a date"
    write(path, "something else")
    with pytest.raises(_files.FileError, match="cannot be read"):
        _files.read_table(path)


def test_chunks_are_the_whole(tmp_path):
    text = "a,b\n" + "".join(f"{i},x\n" for i in range(10))
    table = _files.TextTable(write(tmp_path / "t.csv", text))
    chunks = list(table.chunks(4))
    assert [len(chunk) for chunk in chunks] == [4, 4, 2]
    pd.testing.assert_frame_equal(pd.concat(chunks), next(table.chunks()))


# --- Columns ---


def test_the_nearest_name():
    table = pd.DataFrame({"Quality": [1], "alcohol": [2]})
    with pytest.raises(_intake.IntakeError, match="Did you mean 'Quality'"):
        _intake.column_named("qualty", table, "--target")
    with pytest.raises(_intake.IntakeError) as error:
        _intake.column_named("zzz", table, "--drop")
    assert "Did you mean" not in str(error.value)
    names = pd.DataFrame(columns=["a,b", "c", "d"])
    assert _intake.columns_named(["a,b", "c,d"], names, "--drop") == ["a,b", "c", "d"]


@pytest.mark.parametrize(
    "values, task",
    [
        (["yes", "no"] * 20, "classify"),
        ([0, 1] * 20, "classify"),
        ([0.5, 1.5] * 20, "regress"),
        (list(range(40)), "regress"),
        ([1] * 37 + [2, 3, 4], "regress"),  # hardly any rows per value
    ],
)
def test_task(values, task):
    table = pd.DataFrame({"x": np.arange(40.0), "y": values})
    assert _intake.take_target(table, "y")[2] == task


def test_targets_that_say_nothing():
    table = pd.DataFrame({"x": np.arange(40.0), "y": ["a"] * 40})
    with pytest.raises(_intake.IntakeError, match="is a in all rows"):
        _intake.take_target(table, "y")
    table["y"] = [f"case {i}" for i in range(40)]
    with pytest.raises(_intake.IntakeError, match="40 different values in 40 rows"):
        _intake.take_target(table, "y")
    with pytest.raises(_intake.IntakeError, match="too few to fit"):
        _intake.take_target(table[:5], "y")
    table["y"] = ["a", None, "b", "b"] * 10
    X, y, _, notes = _intake.take_target(table, "y")
    assert len(X) == len(y) == 30 and "10 rows without 'y'" in notes[0]


def test_rare_classes_are_left_out():
    table = pd.DataFrame({"x": np.arange(40.0), "y": ["a", "b"] * 19 + ["c", "d"]})
    X, y, _, notes = _intake.take_target(table, "y")
    assert set(y) == {"a", "b"} and len(X) == 38
    assert "2 rows were left out whose 'y' has fewer than 5 rows: 'c', 'd'" in notes[-1]
    table["y"] = ["a"] * 38 + ["c", "d"]
    with pytest.raises(_intake.IntakeError, match="fewer than two values of 'y'"):
        _intake.take_target(table, "y")


def test_unhelpful_columns_are_named():
    n_rows = 60
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "customer_id": rng.permutation(n_rows) * 7,
            "line": np.arange(n_rows),
            "mail": [f"{i}@example.org" for i in range(n_rows)],
            "since": [f"2020-01-{1 + i % 28:02d}" for i in range(n_rows)],
            "empty": [None] * n_rows,
            "country": ["NL"] * n_rows,
            "income": rng.permutation(n_rows) * 1000 + rng.integers(0, 99, n_rows),
            "city": rng.choice(["a", "b"], n_rows),
        }
    )
    left, notes = _intake.drop_unhelpful(X)
    assert left.columns.tolist() == ["income", "city"]
    notes = "\n".join(notes)
    for words in ("identifier or free text: 'customer_id', 'line', 'mail'", "'since'"):
        assert words in notes
    assert "constant: 'country'" in notes and "empty: 'empty'" in notes
    assert "mail" in _intake.drop_unhelpful(X, keep=["mail"])[0]
    with pytest.raises(_intake.IntakeError, match="No column is left"):
        _intake.drop_unhelpful(X[["line", "empty"]])


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_leaks_are_refused(task):
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    X = pd.DataFrame({"fair": y + rng.normal(size=200), "leak": 2 * y + 1})
    y = np.where(y > 0, "up", "down") if task == "classify" else y
    with pytest.raises(_intake.IntakeError, match="'leak' alone.*--drop 'leak'"):
        _intake.find_leaks(X, y, task)
    _intake.find_leaks(X, y, task, keep=["leak"])
    _intake.find_leaks(X[["fair"]], y, task)


# --- Commands ---


@pytest.fixture
def quick(monkeypatch):
    """Tiny models in place of those that take a minute."""
    models = (
        lambda: make_pipeline(TabularEncoder(), LogisticRegression()),
        lambda: make_pipeline(TabularEncoder(), RandomForestRegressor(20)),
    )
    monkeypatch.setitem(_cli.MODELS, "bayes", models)
    monkeypatch.setattr(_cli, "CLUEExplainer", NeighborExplainer)


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A file with a bit of everything: 1 % missing, text, and unknown targets."""
    rng = np.random.default_rng(0)
    n_rows = 300
    table = pd.DataFrame(
        {
            "patient": [f"P{i:04d}" for i in range(n_rows)],
            "dose": rng.uniform(0, 10, n_rows).round(2),
            "age": rng.normal(50, 9, n_rows).round(),
            "ward": rng.choice(["north", 'the "old", one'], n_rows),
        }
    )
    works = table["dose"] + rng.normal(scale=1.5, size=n_rows) > 5
    table["outcome"] = np.where(works, "works", "fails")
    table["cost"] = (10 * table["dose"] + rng.normal(size=n_rows) * 9).round(3)
    table.loc[rng.choice(n_rows, 3), "age"] = np.nan
    table.loc[rng.choice(n_rows, 5), "outcome"] = None
    path = tmp_path_factory.mktemp("files") / "patients.csv"
    table.to_csv(path, index=False)
    return path


def test_report(quick, patients, tmp_path, capsys):
    out = {name: tmp_path / f"out.{name}" for name in ("html", "json", "csv", "joblib")}
    code = main(
        ["report", str(patients), "--target", "outcome", "--id", "patient"]
        + ["--drop", "cost", "--immutable", "age,ward", "--range", "dose=1:"]
        + ["-o", str(out["html"]), "--json", str(out["json"]), "--csv", str(out["csv"])]
        + ["--save", str(out["joblib"])]
    )
    printed = capsys.readouterr()
    assert code == 0 and printed.out.strip() == str(out["html"])
    assert "rows without 'outcome' were left out" in printed.err
    facts = json.loads(out["json"].read_text())
    assert facts["is_classification"] and facts["n_explained"] > 5
    page = out["html"].read_text(encoding="utf-8")
    assert "--target outcome --id patient" in page and "P0" in page
    table = pd.read_csv(out["csv"], index_col=0)
    assert len(table) == facts["n_explained"] and table.index[0].startswith("P0")
    for name in ("age", "ward"):  # which must not change
        pd.testing.assert_series_equal(
            table[f"original: {name}"],
            table[f"counterfactual: {name}"],
            check_names=False,
        )
    changed = table["original: dose"] != table["counterfactual: dose"]
    assert changed.any() and table.loc[changed, "counterfactual: dose"].min() >= 1

    # The explainer goes on to explain new files, in pieces that make no difference.
    written = []
    for chunk in ("7", "5000"):
        path = tmp_path / f"{chunk}.csv"
        args = ["explain", str(out["joblib"]), str(patients), "-o", str(path)]
        assert main([*args, "--id", "patient", "--chunk", chunk]) == 0
        written.append(pd.read_csv(path))
    pd.testing.assert_frame_equal(*written)
    assert len(written[0]) == 300
    explained = written[0].query("rejected")
    assert explained["what would make it sure"].str.contains("ure").all()
    explainer = joblib.load(out["joblib"])
    X = pd.read_csv(patients)[["dose", "age", "ward"]]
    np.testing.assert_array_equal(written[0]["rejected"], explainer.rejects(X))
    assert "only from people you trust" in capsys.readouterr().err

    path = tmp_path / "rows.json"
    assert main(["explain", str(out["joblib"]), str(patients), "-o", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert [row["row"] for row in rows[:2]] == [1, 2]
    path = tmp_path / "rows.html"
    args = ["explain", str(out["joblib"]), str(patients), "-o", str(path)]
    assert main([*args, "--max-rows", "20"]) == 0
    page = path.read_text(encoding="utf-8")
    n_rejected = written[0]["rejected"].sum()
    assert "the 20 least sure rows" in page and "Of 300 rows that" in page
    assert f"decide on {n_rejected} (" in page
    assert f"{n_rejected - 20} rejected ones left out" in page

    # And reports on other rows.
    args = ["report", str(patients), "--target", "outcome", "--load"]
    assert main([*args, str(out["joblib"]), "-o", str(path)]) == 0
    assert "outcome: what the model knows" in path.read_text(encoding="utf-8")


def test_what_counts_as_sure_is_an_option(quick, patients, tmp_path, capsys):
    page, saved, facts = (tmp_path / name for name in ("p.html", "m.joblib", "f.json"))
    args = ["report", str(patients), "--target", "outcome", "--id", "patient"]
    args += ["--drop", "cost", "-o", str(page), "--json", str(facts)]

    def told(*more):
        assert main([*args, *more]) == 0
        return json.loads(facts.read_text())["explanation"]["target"]

    assert told("--target-uncertainty", "0.25", "--save", str(saved)) == 0.25
    # An explainer that was saved is asked what the options say, or as before.
    load = ["--load", str(saved)]
    assert told(*load) == 0.25
    assert told(*load, "--target-uncertainty", "0.4", "--immutable", "age") == 0.4
    explained = json.loads(facts.read_text())["explanation"]["rows"]
    changed = {
        change["feature"]
        for row in explained
        for change in row["changes"]
        if change["before"] != change["after"]
    }
    assert "dose" in changed and "age" not in changed

    with pytest.raises(SystemExit):
        main([*args, "--target-uncertainty", "-1"])
    assert "must be at least 0, got -1" in capsys.readouterr().err
    X = pd.read_csv(patients)[["dose"]]
    sensitivity = LocalSensitivityExplainer(LogisticRegression())
    joblib.dump(sensitivity.fit(X, X["dose"] > 5), saved)
    assert main([*args, *load, "--target-uncertainty", "0.4"]) == 2
    assert "has no target_uncertainty. Leave out" in capsys.readouterr().err


def test_report_of_a_number(quick, patients, tmp_path, capsys):
    path = tmp_path / "page.html"
    args = ["report", str(patients), "--target", "cost", "--drop", "outcome"]
    assert main([*args, "-o", str(path), "--max-rows", "3"]) == 0
    assert "'patient' (--keep uses it)" in capsys.readouterr().err
    assert "typical error" in path.read_text(encoding="utf-8")


def test_report_on_other_rows(quick, patients, tmp_path, capsys):
    lines = patients.read_text(encoding="utf-8").splitlines(keepends=True)
    new = write(tmp_path / "new.csv", "".join(lines[:41]))
    path, facts = tmp_path / "page.html", tmp_path / "facts.json"
    args = ["report", str(patients), "--target", "cost", "--drop", "outcome"]
    args += ["-o", str(path), "--json", str(facts), "--rows", str(new), "--neighbors"]
    assert main(args) == 0
    facts = json.loads(facts.read_text())
    assert facts["n_rows"] == 40 and facts["quality"] is not None
    assert all("neighbor" in row for row in facts["explanation"]["rows"])
    write(new, "dose,age\n1,2\n")
    assert main(args) == 2
    assert "--rows: there is no column 'ward'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--target", "outcom"], "no column 'outcom'. Did you mean 'outcome'?"),
        (["--target", "outcome", "--immutable", "Age"], "Did you mean 'age'?"),
        (["--target", "outcome", "--range", "dose=low"], "is not of the form COLUMN="),
        (["--target", "outcome", "-o", "nowhere/page.html"], "there is no folder"),
        (["--target", "outcome", "--load", "none.joblib"], "does not exist"),
        (["--target", "patient", "--task", "regress"], "holds text such as 'P0000'"),
    ],
)
def test_decisions_are_asked_for(options, message, quick, patients, tmp_path, capsys):
    output = [] if "-o" in options else ["-o", str(tmp_path / "page.html")]
    assert main(["report", str(patients), *options, *output]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_explain_refuses(quick, patients, tmp_path, capsys):
    model = tmp_path / "model.joblib"
    explainer = NeighborExplainer(LogisticRegression())
    X = pd.DataFrame({"dose": np.arange(40.0), "years": np.arange(40) % 7})
    joblib.dump(explainer.fit(X, X["dose"] > 20), model)
    args = ["explain", str(model), str(patients), "-o"]
    assert main([*args, str(tmp_path / "out.txt")]) == 2
    assert "must end in .csv, .json or .html" in capsys.readouterr().err
    assert main([*args, str(tmp_path / "out.csv")]) == 2
    assert "there is no column 'years'" in capsys.readouterr().err
    other = ["explain", str(model), "t.parquet", "-o", str(tmp_path / "out.csv")]
    assert main(other) == 2
    assert "reads text files only" in capsys.readouterr().err
    bare = write(tmp_path / "bare.csv", "1,1\n2,2\n")
    other = ["explain", str(model), str(bare), "-o", str(tmp_path / "bare.json")]
    assert main([*other, "--names", "years,dose"]) == 0
    assert len(json.loads((tmp_path / "bare.json").read_text())) == 2
    new = write(tmp_path / "new.csv", "dose,years\n1,1\n2,two\n")
    assert main(["explain", str(model), str(new), "-o", str(tmp_path / "o.csv")]) == 2
    assert "line 3, column 'years': 'two' is not a number" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists() and not (tmp_path / "o.csv").exists()
    joblib.dump(LogisticRegression(), model)
    assert main([*args, str(tmp_path / "out.csv")]) == 2
    assert "which cannot explain" in capsys.readouterr().err


def test_interrupts_and_failures(quick, patients, tmp_path, capsys, monkeypatch):
    path = tmp_path / "page.html"
    args = ["report", str(patients), "--target", "outcome", "-o", str(path)]

    def fail(error):
        def fit(*args, **kwargs):
            raise error

        monkeypatch.setattr(NeighborExplainer, "fit", fit)

    fail(KeyboardInterrupt())
    assert main(args) == 130
    fail(RuntimeError("out of luck"))
    assert main(args) == 1
    assert "RuntimeError: out of luck" in capsys.readouterr().err
    with pytest.raises(RuntimeError):
        main([*args, "--debug"])
    assert not list(tmp_path.iterdir())


def test_an_interrupt_between_pieces_leaves_no_file(
    patients, tmp_path, monkeypatch, capsys
):
    model, path = tmp_path / "model.joblib", tmp_path / "out.csv"
    X = pd.read_csv(patients)[["dose"]]
    joblib.dump(NeighborExplainer(LogisticRegression()).fit(X, X["dose"] > 5), model)
    pieces = []

    def predict(self, X):
        pieces.append(X)
        if len(pieces) == 3:
            raise KeyboardInterrupt
        return np.zeros(len(X))

    monkeypatch.setattr(NeighborExplainer, "predict", predict)
    args = ["explain", str(model), str(patients), "-o", str(path), "--chunk", "20"]
    assert main(args) == 130 and len(pieces) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.joblib"]
    assert "interrupted" in capsys.readouterr().err


def test_a_file_with_all_that_goes_wrong(quick, patients, tmp_path, capsys):
    """Semicolons, decimal commas, thousands, marks, breaks, gaps and twins at once."""
    table = pd.read_csv(patients)
    lines = ["Dose;Dose;Größe;leer;Notiz;Ergebnis"]
    for position, row in table.iterrows():
        dose = str(row["dose"]).replace(".", ",")
        note = '"ein ""Wort"";\nzwei"' if position % 2 else "kurz"
        age = "" if position % 97 == 0 else f"{1000 + position:,}".replace(",", ".")
        outcome = row["outcome"] if isinstance(row["outcome"], str) else ""
        lines.append(f"{dose};{position % 7};{age};;{note};{outcome}")
    path, facts = tmp_path / "t.csv", tmp_path / "facts.json"
    write(path, "\r\n".join(lines), "utf-8-sig")
    args = ["report", str(path), "--target", "Ergebnis", "--json", str(facts)]
    assert main([*args, "-o", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().err
    assert "columns of the same name were numbered: 'Dose'" in said
    assert "left out, empty: 'leer'" in said and "rows without 'Ergebnis'" in said
    explained = json.loads(facts.read_text())["explanation"]
    names = [feature["name"] for feature in explained["features"]]
    assert names == ["Dose", "Dose.2", "Größe", "Notiz"]
    values = [change["before"] for change in explained["rows"][0]["changes"]]
    assert 0 <= values[0] <= 10 and 1000 <= values[2] < 1300
    assert values[3] in ("kurz", 'ein "Wort";\nzwei')


# --- On a terminal ---


def test_stages_tell_what_is_left():
    now = [0.0]
    stages = Stages({"one": 2.0, "two": 6.0, "three": 2.0}, clock=lambda: now[0])
    with stages.stage("one"):
        now[0] = 1.0
        assert stages.progress() == (0.1, 9.0)
        now[0] = 4.0  # it takes twice as long, ...
        assert stages.progress()[1] is None
    with stages.stage("two"):
        # ... so the others will as well.
        assert stages.progress()[1] == pytest.approx(16)
        now[0] = 10.0
        share, left = stages.progress()
        assert (share, left) == (0.5, 10.0)
        stages.expected["three"] = 20.0  # which lengthens what is left
        assert stages.progress() == (0.5, 46.0)
        now[0] = 16.0
    with stages.stage("three"):
        pass


def run_on_a_terminal(args, monkeypatch):
    """Run the command with a terminal for stderr; return its code and what it drew."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    shown = []

    def read():
        try:
            while piece := os.read(ours, 1 << 16):
                shown.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", terminal)
            code = main(args)
    reader.join()
    os.close(ours)
    return code, b"".join(shown).decode()


def test_one_bar_on_a_terminal_and_none_elsewhere(
    quick, patients, tmp_path, monkeypatch, capsys
):
    args = ["report", str(patients), "--target", "outcome", "--max-rows", "3"]
    args += ["-o", str(tmp_path / "page.html")]
    code, shown = run_on_a_terminal(args, monkeypatch)
    assert code == 0
    stages = ["Reading (1 of 4)", "Fitting (2 of 4)", "Explaining (3 of 4)"]
    places = [shown.index(stage) for stage in [*stages, "Writing (4 of 4)"]]
    assert places == sorted(places) and "s left" in shown
    assert "Note: 'outcome' has 2 values" in shown
    assert main(args) == 0
    assert "Fitting" not in capsys.readouterr().err


def test_warnings_are_notes(capsys):
    with warnings_as_notes():
        for _ in range(2):
            warnings.warn("'zip' may be a code", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "Note: 'zip' may be a code\n"


def test_notes_advise_options(quick, tmp_path, capsys):
    rng = np.random.default_rng(0)
    noise = pd.DataFrame({"a": rng.normal(size=200), "zip": rng.integers(0, 5, 200)})
    noise["y"] = rng.choice(["yes", "no"], 200)
    noise.to_csv(tmp_path / "noise.csv", index=False)
    args = ["report", str(tmp_path / "noise.csv"), "--target", "y"]
    assert main([*args, "-o", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().err
    assert "This model is unsure of most rows." in shown
    for option, advice in (
        ("--target-uncertainty", "Pass --target-uncertainty for explanations"),
        ("--category", "pass --category)"),
    ):
        assert advice in shown
        assert option in _help_of("report", capsys)
    assert "target_uncertainty" not in shown and "categorical_features" not in shown


def _help_of(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_in_a_terminal(patients, tmp_path):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    command = [sys.executable, "-m", "sklearn_clue", "report", str(patients)]
    process = subprocess.Popen(
        [*command, "--target", "outcome", "-o", "page.html", "--save", "model.joblib"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(theirs)
    shown = b""
    try:
        while b"Fitting" not in shown:
            shown += os.read(ours, 1 << 16)
        time.sleep(0.5)
        os.write(ours, b"\x03")  # as the key does
        while True:
            shown += os.read(ours, 1 << 16)
    except OSError:  # the other end is closed
        pass
    assert process.wait(timeout=60) == 130
    assert b"interrupted; no file is half written" in shown and b"left" in shown
    assert list(tmp_path.iterdir()) == []
    os.close(ours)


def test_help_shows_an_example(capsys):
    for command in ("report", "explain", "demo"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert f"example: sklearn-clue {command}" in shown and "exit codes" in shown


def test_as_a_module(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "sklearn_clue", "report", "none.csv", "--target", "y"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("sklearn-clue: none.csv cannot be read")


@pytest.mark.slow
def test_demo(tmp_path, capsys):
    path = tmp_path / "demo.html"
    assert main(["demo", "-o", str(path)]) == 0
    assert "malignant" in path.read_text(encoding="utf-8")
