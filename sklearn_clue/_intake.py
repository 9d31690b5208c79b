"""What a table needs before a model is fitted: the target, and columns that help.

Identifiers, dates, constants and leaks are found and named. All of it can be overruled.
"""

import difflib
import re

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

__all__ = []

_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|\d{4}/\d+/\d+"
)
_IS_ID = re.compile(r"(^|[_ ])(id|no|nr|number|key|uuid|index)$|^unnamed", re.I)
_MAX_CLASSES = 10  # of whole numbers
_ROWS_PER_CLASS = 5
_LEAK = 0.99


class IntakeError(ValueError):
    """A table that needs a decision of the user."""


def column_named(name, table, option):
    """Give a name back if the table has it, or raise with the nearest one."""
    names = [str(known) for known in table.columns]
    if name in names:
        return name
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    shown = ", ".join(map(repr, names[:8]))
    shown += f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    raise IntakeError(
        f"{option}: there is no column {name!r}.{hint} The columns are {shown}."
    )


def columns_named(texts, table, option):
    """Names out of option values, each of which may list several with commas."""
    names = []
    for text in texts or ():
        parts = [text] if text in table.columns else text.split(",")
        names += [column_named(part.strip(), table, option) for part in parts]
    return names


def take_target(table, target, task=None):
    """Separate the target, and find out whether it is a class or a number.

    Returns
    -------
    X, y : DataFrame and ndarray
        Rows whose target is known.

    task : {"classify", "regress"}
        What to do with it.

    notes : list of str
        What was decided.
    """
    target = column_named(target, table, "--target")
    known = table[target].notna().to_numpy()
    notes = []
    if not known.all():
        notes.append(f"{(~known).sum():,} rows without {target!r} were left out")
    y, X = table.loc[known, target].to_numpy(), table.loc[known].drop(columns=target)
    if len(y) < 20:
        raise IntakeError(
            f"{len(y)} rows have a {target!r}, which is too few to fit a model and "
            "test it. At least 20 are needed."
        )
    is_number = np.issubdtype(y.dtype, np.number) and y.dtype != bool
    values, counts = np.unique(y if is_number else y.astype(str), return_counts=True)
    if len(values) == 1:
        raise IntakeError(
            f"--target: {target!r} is {values[0]!s} in all rows, so there is nothing "
            "to learn."
        )
    if task is None:
        few = len(values) <= _MAX_CLASSES and counts.min() >= _ROWS_PER_CLASS
        is_class = not is_number or (few and (values == np.round(values)).all())
        task = "classify" if is_class else "regress"
        notes.append(
            f"{target!r} has {len(values):,} values and is taken for "
            + ("a class" if is_class else "a number")
            + f" (--task {'regress' if is_class else 'classify'} if it is not)"
        )
    if task == "regress":
        if not is_number:
            raise IntakeError(
                f"--task regress: {target!r} holds text such as {str(values[0])!r}."
            )
        return X, y.astype(float), task, notes
    if len(values) > len(y) / 2:
        raise IntakeError(
            f"--target: {target!r} has {len(values):,} different values in {len(y):,} "
            "rows, so it cannot be learned as a class. Choose another column, or pass "
            "--task regress if it is a number."
        )
    y = y if is_number else y.astype(str)
    rare = values[counts < _ROWS_PER_CLASS]
    if len(rare):
        if len(values) - len(rare) < 2:
            raise IntakeError(
                f"--target: fewer than two values of {target!r} have "
                f"{_ROWS_PER_CLASS} rows or more. Choose another column."
            )
        common = ~np.isin(y, rare)
        shown = ", ".join(map(repr, rare.tolist()[:5]))
        notes.append(
            f"{(~common).sum():,} rows were left out whose {target!r} has fewer than "
            f"{_ROWS_PER_CLASS} rows: {shown}"
        )
        X, y = X.loc[common], y[common]
    return X, y, task, notes


def drop_unhelpful(X, keep=()):
    """Leave out columns that no model should use, unless they are to be kept.

    Returns
    -------
    X : DataFrame
        The columns that are left.

    notes : list of str
        What was left out, and why.
    """
    why = {}
    for name, values in X.items():
        reason = _reason(str(name), values)
        if reason and (name not in keep or reason == "a date"):
            why.setdefault(reason, []).append(name)
    dropped = [name for names in why.values() for name in names]
    if len(dropped) == X.shape[1]:
        raise IntakeError(
            "No column is left to learn from: all are empty, constant, dates or "
            "identifiers. Pass --keep with those to use."
        )
    notes = [
        f"left out, {reason}: {', '.join(map(repr, names))}"
        + ("" if reason == "a date" else " (--keep uses it)")
        for reason, names in why.items()
    ]
    return X.drop(columns=dropped), notes


def _reason(name, values):
    known = values.dropna()
    n_values = known.nunique()
    if not len(known):
        return "empty"
    if n_values == 1 and len(known) == len(values):
        return "constant"
    if pd.api.types.is_datetime64_any_dtype(values):
        return "a date"
    is_number = pd.api.types.is_numeric_dtype(values)
    if not is_number:
        if all(_DATE.fullmatch(str(value)) for value in known.head(100)):
            return "a date"
        if n_values > max(20, len(known) / 2):
            return "an identifier or free text"
        return None
    is_unique = n_values == len(values) and pd.api.types.is_integer_dtype(values)
    is_counted = is_unique and values.max() - values.min() == len(values) - 1
    if is_unique and len(values) > 20 and (is_counted or _IS_ID.search(name)):
        return "an identifier or free text"
    return None


def find_leaks(X, y, task, keep=(), max_rows=2000):
    """Refuse columns that predict the target alone, and almost perfectly."""
    rows = np.random.default_rng(0).permutation(len(y))[:max_rows]
    is_class = task == "classify"
    if is_class and np.unique(y[rows], return_counts=True)[1].min() < 3:
        return  # too few to tell
    make = DecisionTreeClassifier if is_class else DecisionTreeRegressor
    scoring = "balanced_accuracy" if is_class else "r2"
    # A tree that must not learn rows by heart, and has a leaf for every class.
    tree = make(min_samples_leaf=3, max_leaf_nodes=64, random_state=0)
    for name in X.columns:
        values = X[name].iloc[rows]
        if not pd.api.types.is_numeric_dtype(values):
            values = pd.Series(pd.factorize(values)[0])
        single = values.to_numpy(dtype=float).reshape(-1, 1)
        score = cross_val_score(tree, single, y[rows], cv=3, scoring=scoring).mean()
        if score >= _LEAK and name not in keep:
            raise IntakeError(
                f"Column {name!r} alone predicts the target almost perfectly "
                f"({scoring.replace('_', ' ')} {score:.3f}). If it is known only "
                f"afterwards, pass --drop {name!r}; if it is known in time, pass "
                f"--keep {name!r}."
            )
