"""The command `sklearn-clue`: from a file to a page, without a line of Python."""

import argparse
import csv
import json
import shlex
import sys
import webbrowser
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from sklearn_clue import _intake, _words
from sklearn_clue._files import MISSING, READERS, FileError, TextTable, read_table
from sklearn_clue._report import Report, report
from sklearn_clue._stages import Stages, expected_seconds, say, warnings_as_notes
from sklearn_clue.bayesian import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
)
from sklearn_clue.encoding import TabularEncoder
from sklearn_clue.explainers import CLUEExplainer
from sklearn_clue.generative import VAEEncoder
from sklearn_clue.persistence import replacing
from sklearn_clue.pipeline import make_pipeline

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130

_EXIT_CODES = (
    "exit codes: 0 the file was written; 1 something failed; 2 an option or the\n"
    "table needs a decision, which the message names; 130 interrupted. No file is\n"
    "ever left half written."
)


def _encoded(model):
    return make_pipeline(TabularEncoder(), model)


# What --model means, for classes and for numbers.
MODELS = {
    "bayes": (BayesianMLPClassifier, BayesianMLPRegressor),
    "forest": (
        lambda: _encoded(RandomForestClassifier(200, min_samples_leaf=3)),
        lambda: _encoded(RandomForestRegressor(200, min_samples_leaf=3)),
    ),
    "boosting": (
        lambda: _encoded(HistGradientBoostingClassifier()),
        lambda: _encoded(_boosting_regressor()),
    ),
    "mlp": (DeepEnsembleClassifier, DeepEnsembleRegressor),
}


def _boosting_regressor():
    from sklearn.ensemble import HistGradientBoostingRegressor

    from sklearn_clue._noise import PredictedNoiseRegressor

    return PredictedNoiseRegressor(HistGradientBoostingRegressor())


def main(argv=None):
    """Run the command.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments; None means those of the process.

    Returns
    -------
    code : int
        0 if the file was written, 1 if something failed, 2 if an option or the table
        needs a decision, 130 if interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = _parser().parse_args(argv)
    args.command_line = shlex.join(["sklearn-clue", *argv])
    try:
        args.run(args)
    except (FileError, _intake.IntakeError) as error:
        print(f"sklearn-clue: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("sklearn-clue: interrupted; no file is half written.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if args.debug:
            raise
        print(f"sklearn-clue: {type(error).__name__}: {error}", file=sys.stderr)
        print("Pass --debug to see where.", file=sys.stderr)
        return FAILED
    return DONE


# --- Options ---


def _parser():
    parser = argparse.ArgumentParser(
        prog="sklearn-clue",
        description="Why is a model unsure, and what would make it sure?",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="")
    _add_report(commands)
    _add_explain(commands)
    demo = _command(
        commands,
        "demo",
        _demo,
        "make a page about tumours, offline, in about half a minute",
        "sklearn-clue demo",
    )
    demo.add_argument("-o", "--output", default="sklearn-clue-demo.html")
    demo.add_argument("--no-browser", action="store_true", help="do not open the page")
    return parser


def _command(commands, name, run, words, example):
    parser = commands.add_parser(
        name,
        help=words,
        description=f"{words[0].upper()}{words[1:]}.",
        epilog=f"example: {example}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--debug", action="store_true", help="show where errors come up"
    )
    return parser


def _add_report(commands):
    parser = _command(
        commands,
        "report",
        _report,
        "fit a model to a table and write a page about what it knows",
        "sklearn-clue report wine.csv --target quality -o report.html",
    )
    add = parser.add_argument
    add("table", help="a CSV, TSV, Parquet or Excel file")
    add("--target", required=True, help="the column to predict")
    add("-o", "--output", default="report.html", help="the page (default: %(default)s)")
    add("--task", choices=("classify", "regress"), help="what the target is")
    add(
        "--model",
        choices=sorted(MODELS),
        default="bayes",
        help="bayes (default) is a Bayesian MLP, mlp an ensemble of MLPs",
    )
    add(
        "--load", metavar="FILE", help="a fitted model or explainer; trusted files only"
    )
    add("--save", metavar="FILE", help="keep the fitted explainer, for `explain`")
    add("--rows", metavar="FILE", help="report on these rows and not on held-out ones")
    add("--id", metavar="COLUMN", help="the column that names rows")
    add("--names", metavar="COLUMNS", help="names, for a file without a line of them")
    for name, words in (
        ("--drop", "columns to leave out"),
        ("--keep", "columns to use although they look unhelpful"),
        ("--category", "columns of numbers that are categories"),
        ("--immutable", "columns that must not change"),
    ):
        add(name, action="append", default=[], metavar="COLUMNS", help=words)
    add(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW:HIGH",
        help="what a number may become",
    )
    add(
        "--target-uncertainty",
        type=_uncertainty,
        metavar="NUMBER",
        help="up to which rows count as sure: nats for classes, else the target's unit",
    )
    add("--test-size", type=_share, default=0.3, help="rows held out (default: 0.3)")
    add("--max-rows", type=_positive, default=500, help="to explain at most (500)")
    add("--neighbors", action="store_true", help="show the nearest sure training rows")
    add("--json", metavar="FILE", help="write the facts of the page as well")
    add("--csv", metavar="FILE", help="write the explained rows as well")
    add("--seed", type=int, default=0, help="which rows are held out, and all else (0)")
    add("--jobs", type=int, default=None, help="processes to explain with")


def _add_explain(commands):
    parser = _command(
        commands,
        "explain",
        _explain,
        "explain rows by a saved explainer; the file may be of any length",
        "sklearn-clue explain model.joblib new.csv -o out.csv",
    )
    add = parser.add_argument
    add("model", help="what `report --save` wrote; trusted files only")
    add("table", help="a CSV or TSV file")
    add("-o", "--output", required=True, help="a .csv, .json or .html file")
    add("--id", metavar="COLUMN", help="the column that names rows")
    add("--names", metavar="COLUMNS", help="names, for a file without a line of them")
    add("--chunk", type=_positive, default=5000, help="rows in memory at a time")
    add("--max-rows", type=_positive, default=500, help="rows on an .html page")


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def _share(text):
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return number


def _uncertainty(text):
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return number


# --- Saying what happens ---


def _check_writable(*paths):
    """Refuse places that cannot be written to before long work starts."""
    for path in filter(None, paths):
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise FileError(f"{path}: there is no folder {folder}.")
        if Path(path).is_dir():
            raise FileError(f"{path} is a folder. Name a file in it.")


def _load(path):
    say(
        f"Loading {path}: such files run code when they are loaded, so take them only "
        "from people you trust."
    )
    try:
        return joblib.load(path)
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist.") from error
    except Exception as error:
        raise FileError(f"{path} is no model that joblib can load: {error}") from error


# --- report ---


def _report(args):
    _check_writable(args.output, args.save, args.json, args.csv)
    expected = expected_seconds(args.model, 1000, 10, 100)  # until it is read
    expected = {"Reading": 0.5, **expected, "Writing": 0.2}
    with Stages(expected) as stages, warnings_as_notes():
        _made(args, stages)
    print(args.output)


def _made(args, stages):
    """Write all that was asked for."""
    with stages.stage("Reading"):
        table, notes = _read(args, args.table)
        for note in notes:
            say(f"Note: {note}.")
        X, y, task, notes = _prepare(table, args)
        rows = args.rows and _read_rows(args, X)
    for note in notes:
        say(f"Note: {note}.")
    n_test = len(rows[0]) if rows else round(args.test_size * len(X))
    n_explained = min(args.max_rows, round(0.2 * n_test))
    stages.expected |= expected_seconds(args.model, *X.shape, n_explained)
    with stages.stage("Fitting"):
        explainer, X_test, y_test = _fitted(X, y, task, args)
    if rows is not None:
        X_test, y_test = rows
    with stages.stage("Explaining"):
        made = report(
            explainer,
            X_test,
            y_test,
            max_rows=args.max_rows,
            neighbors=args.neighbors,
            title=f"Predicting {args.target}: what the model knows, and what not",
            code=args.command_line,
        )
    with stages.stage("Writing"):
        _write_report(args, explainer, made)


def _write_report(args, explainer, made):
    if args.save:
        with replacing(args.save) as file:
            joblib.dump(explainer, file)
    if args.json:
        with replacing(args.json, "w", encoding="utf-8") as file:
            json.dump(made.to_dict(), file)
    if args.csv and made.explanation is not None:
        with replacing(args.csv, "w", encoding="utf-8", newline="") as file:
            _flat(made.explanation).to_csv(file)
    made.to_html(args.output)


def _read(args, path):
    return read_table(path, as_text=_split(args.category), names=_names(args))


def _names(args):
    return [name.strip() for name in args.names.split(",")] if args.names else None


def _split(texts):
    """All names that a list of options may mean, whether or not commas separate."""
    return {part.strip() for text in texts for part in [text, *text.split(",")]}


def _prepare(table, args):
    """Take target, identifiers and unhelpful columns out of a table."""
    named = {
        option: _intake.columns_named(getattr(args, option), table, f"--{option}")
        for option in ("drop", "keep", "category", "immutable")
    }
    if args.id:
        name = _intake.column_named(args.id, table, "--id")
        table = table.set_index(name)
    X, y, task, notes = _intake.take_target(table, args.target, args.task)
    X = X.drop(columns=named["drop"])
    keep = {*named["keep"], *named["category"]}
    ranges = _ranges(args.range, X)
    if args.load is None:
        X, more = _intake.drop_unhelpful(X, keep)
        notes += more
        _intake.find_leaks(X, y, task, named["keep"])
    args.question = {
        "immutable_features": [n for n in named["immutable"] if n in X] or None,
        "feature_ranges": {n: limits for n, limits in ranges.items() if n in X} or None,
        "target_uncertainty": args.target_uncertainty,
    }
    return X, y, task, notes


def _ranges(texts, X):
    ranges = {}
    for text in texts:
        name, equals, bounds = text.rpartition("=")
        low, colon, high = bounds.partition(":")
        try:
            limits = tuple(float(end) if end.strip() else None for end in (low, high))
        except ValueError:
            limits = None
        if not equals or not colon or limits is None:
            raise _intake.IntakeError(
                f"--range: {text!r} is not of the form COLUMN=LOW:HIGH, for example "
                '"amount=0:5000" or "amount=0:".'
            )
        ranges[_intake.column_named(name.strip(), X, "--range")] = limits
    return ranges


def _read_rows(args, X):
    """Other rows to report on, with their targets where all are known."""
    table, _ = _read(args, args.rows)
    if args.id:
        table = table.set_index(_intake.column_named(args.id, table, "--id"))
    for name in X.columns:
        _intake.column_named(name, table, "--rows")
    y = table[args.target] if args.target in table else None
    if y is not None and y.isna().any():
        y = None
    if y is not None:
        y = y.astype(str) if y.dtype.kind not in "iufb" else y
        y = y.to_numpy()
    return table[list(X.columns)], y


def _fitted(X, y, task, args):
    """A fitted explainer, and the rows to report on."""
    loaded = None if args.load is None else _load(args.load)
    if loaded is not None:
        say("Note: the figures are too good if the model has learned from these rows.")
        X = _known_columns(loaded, X)
    if hasattr(loaded, "explain"):
        return _asked(loaded, args.question), X, y
    stratify = y if task == "classify" else None
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=args.test_size, random_state=args.seed, stratify=stratify
    )
    if loaded is not None:
        model = FrozenEstimator(loaded)
    else:
        model = MODELS[args.model][task == "regress"]()
    explainer = CLUEExplainer(
        model,
        **args.question,
        random_state=args.seed,
        n_jobs=args.jobs,
    )
    return explainer.fit(X_train, y_train), X_test, y_test


def _asked(explainer, question):
    """A loaded explainer, with what options say of the question to ask."""
    given = {name: value for name, value in question.items() if value is not None}
    unknown = sorted(given.keys() - explainer.get_params(deep=False).keys())
    if unknown:
        raise _intake.IntakeError(
            f"--load: the {type(explainer).__name__} in the file has no "
            f"{' and no '.join(unknown)}. Leave out that option."
        )
    return explainer.set_params(**given)


def _known_columns(model, X):
    """The columns that a loaded model was fitted to, in its order."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    return X[[_intake.column_named(name, X, "--load") for name in names]]


def _flat(explanation):
    """A table with one head line: rows, figures, words."""
    frame = explanation.to_frame()
    frame.columns = [f"{group}: {name}" for group, name in frame.columns]
    facts = explanation.to_dict()
    words = [_in_words(row, facts) for row in facts["rows"]]
    frame.insert(0, "what would make it sure", words)
    frame.insert(0, "verdict", [row["verdict"] for row in facts["rows"]])
    return frame


def _in_words(row, facts):
    if facts["goal"] == "sure":
        return _words.sentence(row, facts)
    return _words.summary(facts | {"rows": [row]})


# --- explain ---


def _explain(args):
    kind = Path(args.output).suffix.lower()
    writers = {".csv": _write_csv, ".json": _write_json, ".html": _write_page}
    if kind not in writers:
        raise FileError(
            f"--output: {args.output} must end in .csv, .json or .html, which says "
            "what to write."
        )
    _check_writable(args.output)
    explainer = _load(args.model)
    if not hasattr(explainer, "explain"):
        raise FileError(
            f"{args.model} holds a {type(explainer).__name__}, which cannot explain. "
            "Make an explainer: sklearn-clue report ... --load MODEL --save FILE."
        )
    if Path(args.table).suffix.lower() in READERS:
        raise FileError(
            f"{args.table}: `explain` reads text files only, piece by piece. Save the "
            "table as CSV."
        )
    text = TextTable(args.table, _names(args))
    for note in text.notes:
        say(f"Note: {note}.")
    # Line breaks within fields count as rows here: for a bar that is near enough.
    bar = tqdm(total=text.n_lines, unit=" rows", disable=None, leave=False)
    with bar, warnings_as_notes():
        writers[kind](args, explainer, _chunks(text, explainer, args, bar))
    print(args.output)


def _chunks(text, explainer, args, bar):
    """Tables that the explainer takes, with the names of the rows as index."""
    schema = explainer._space.display_schema
    n_read = 0
    for frame in text.chunks(args.chunk):
        names = [
            _intake.column_named(str(column.name), frame, "the model needs")
            for column in schema
        ]
        rows = {
            column.name: _read_column(frame[name], column, text)
            for column, name in zip(schema, names, strict=True)
        }
        index = pd.RangeIndex(n_read + 1, n_read + len(frame) + 1)
        if args.id:
            index = frame[_intake.column_named(args.id, frame, "--id")].to_numpy()
        n_read += len(frame)
        yield pd.DataFrame(rows).set_axis(index, axis=0)
        bar.update(len(frame))


def _read_column(values, column, text):
    """Text as the model knows the column: numbers, or its own categories."""
    lines = values.index
    if column.kind == "category":
        own = {str(category): category for category in column.categories or ()}
        return [None if v in MISSING else own.get(v, v) for v in values]
    values = values[~values.isin(MISSING)]
    forms = text.number_forms(values)
    if None in forms:
        wrong = forms.index(None)
        raise FileError(
            f"{text.path}, line {values.index[wrong]}, column {column.name!r}: "
            f"{values.iloc[wrong]!r} is not a number, which the model needs. Correct "
            "it, or leave it empty if it is missing."
        )
    return pd.Series(forms, index=values.index, dtype=float).reindex(lines).to_numpy()


def _judged(explainer, chunks):
    """Each chunk with what the model says, and explanations of rejected rows."""
    for X in chunks:
        parts = explainer.predict_uncertainty(X)
        rejected = np.flatnonzero(parts.total > explainer.threshold_)
        found = explainer.explain(X.iloc[rejected]) if len(rejected) else None
        facts = found and found.to_dict()
        details = (
            {} if facts is None else dict(zip(rejected, facts["rows"], strict=True))
        )
        prediction = np.asarray(explainer.predict(X)).tolist()
        for position, label in enumerate(X.index):
            row = details.get(position)
            yield {
                "row": label if isinstance(label, str) else int(label),
                "prediction": prediction[position],
                **{kind: float(v[position]) for kind, v in parts._asdict().items()},
                "rejected": row is not None,
                "verdict": row and row["verdict"],
                "what would make it sure": row and _in_words(row, facts),
                "changes": {}
                if row is None
                else {
                    entry["feature"]: entry["after"]
                    for entry in row.get("changes", ())
                    if entry["before"] != entry["after"]
                },
            }


def _write_csv(args, explainer, chunks):
    heads = ["row", "prediction", "total", "aleatoric", "epistemic", "rejected"]
    heads += ["verdict", "what would make it sure", "changes"]
    with replacing(args.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, heads)
        writer.writeheader()
        for row in _judged(explainer, chunks):
            changes = json.dumps(row["changes"], ensure_ascii=False)
            writer.writerow(row | {"changes": changes if row["changes"] else ""})


def _write_json(args, explainer, chunks):
    with replacing(args.output, "w", encoding="utf-8") as file:
        file.write("[")
        for position, row in enumerate(_judged(explainer, chunks)):
            file.write(",\n" if position else "\n")
            json.dump(row, file, ensure_ascii=True)
        file.write("\n]\n")


def _write_page(args, explainer, chunks):
    """A page of the most uncertain rows; no more are ever kept in memory."""
    kept, totals, n_rows, n_rejected = None, np.empty(0), 0, 0
    for X in chunks:
        total = explainer.predict_uncertainty(X).total
        n_rows += len(total)
        n_rejected += int((total > explainer.threshold_).sum())
        both = np.concatenate([totals, total])
        best = np.argsort(-both, kind="stable")[: args.max_rows]
        X = X if kept is None else pd.concat([kept, X])
        kept, totals = X.iloc[best], both[best]
    if kept is None:
        raise FileError(f"{args.table} holds names and no rows.")
    title = f"{Path(args.table).name}: the {len(kept):,} least sure rows"
    made = report(explainer, kept, title=title, code=args.command_line)
    # It speaks of all rows, not of those that are kept because they are the worst.
    facts = made.to_dict() | {"n_rows": n_rows, "n_rejected": n_rejected}
    Report(facts, made.explanation).to_html(args.output)


# --- demo ---


def _demo(args):
    from sklearn.datasets import load_breast_cancer

    _check_writable(args.output)
    X, y = load_breast_cancer(as_frame=True, return_X_y=True)
    X, y = X.filter(like="mean"), y.map({0: "malignant", 1: "benign"})
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, random_state=0, stratify=y
    )
    model = BayesianMLPClassifier((50,), n_draws=50)
    explainer = CLUEExplainer(model, VAEEncoder(max_iter=100), random_state=0)
    with Stages({"Fitting": 9.0, "Explaining": 5.0}) as stages:
        with stages.stage("Fitting"):
            explainer.fit(X_train, y_train)
        with stages.stage("Explaining"):
            title = "Tumours: what the model knows, and what it does not"
            made = report(explainer, X_test, y_test, title=title)
    path = made.to_html(args.output)
    print(path)
    if sys.stdout.isatty() and not args.no_browser:
        webbrowser.open(path.resolve().as_uri())
