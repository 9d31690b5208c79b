"""Facts of an explanation as plain values: what changed, how far, and what drives it.

Nothing here knows an explainer or a model. Words, pages and pictures are renderings of
what `gather` returns.
"""

import math
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from numbers import Integral, Real

import numpy as np
import pandas as pd

from sklearn_clue import _durations, _tables

__all__ = []

# Section 3, "Showing CLUEs": smaller moves may be noise of the auto-encoding.
_HIGHLIGHT_FROM = 15.0

# Numbers travel through float32 networks: a value this close to a training percentile,
# relative to the range of the column, is that percentile.
_SNAP = 1e-6

# Numbers move in one direction if this share of the moves does.
_MOSTLY = 2 / 3


_GROUPS = {
    "verdict": (
        "is_sure",
        "is_plausible",
        "n_changed",
        "plausibility_before",
        "plausibility",
    ),
    "search": ("distance", "objective", "n_iter", "converged"),
}


_PER_CELL = {
    "contribution": "contributions",
    "contribution_error": "contributions_error",
}


def is_within(uncertainty, bound):
    """Whether an uncertainty is at most a bound, up to the rounding of its unit."""
    return uncertainty <= bound + 1e-9 * abs(bound)


# --- What changed ---


def is_changed(X, counterfactuals):
    """Whether each cell differs, of shape (n_rows, n_features)."""
    changed = np.zeros(X.shape, dtype=bool)
    tables = zip(_tables.arrays(X), _tables.arrays(counterfactuals), strict=True)
    for j, (old, new) in enumerate(tables):
        old_missing, new_missing = pd.isna(old), pd.isna(new)
        known = ~(old_missing | new_missing)
        changed[:, j] = old_missing != new_missing
        changed[known, j] = old[known] != new[known]
    return changed


def changes(explanation):
    """Make the long frame that `Explanation.changes` documents."""
    n_rows, n_features = shape = explanation.X.shape
    before, after = np.empty(shape, dtype=object), np.empty(shape, dtype=object)
    percentiles = np.full((2, *shape), np.nan)
    highlighted = np.zeros(shape, dtype=bool)
    tables = (explanation.X, explanation.counterfactuals)
    columns = zip(explanation.schema, *map(_tables.arrays, tables), strict=True)
    for j, (column, old, new) in enumerate(columns):
        before[:, j], after[:, j] = _tables.as_objects(old), _tables.as_objects(new)
        if column.kind == "category":
            known = ~(pd.isna(before[:, j]) | pd.isna(after[:, j]))
            highlighted[known, j] = before[known, j] != after[known, j]
        elif column.percentiles is not None:
            for side, cells in enumerate((old, new)):
                numbers = column.numbers_of(cells)
                percentiles[side, :, j] = percentile_of(numbers, column.percentiles)
            # False where one of them is NaN.
            moved = np.abs(percentiles[1, :, j] - percentiles[0, :, j])
            highlighted[:, j] = moved >= _HIGHLIGHT_FROM
    if explanation._seeks_sure and explanation.image_shape is None:
        # What was not needed has been put back: each change that is left matters.
        highlighted = is_changed(*tables)
    frame = {
        "row": explanation._labels.repeat(n_features),
        "feature": list(explanation.schema.names) * n_rows,
        "before": before.ravel(),
        "after": after.ravel(),
        "percentile_before": percentiles[0].ravel(),
        "percentile_after": percentiles[1].ravel(),
        "highlighted": highlighted.ravel(),
    }
    for column, name in _PER_CELL.items():
        if (values := getattr(explanation, name)) is not None:
            frame[column] = np.asarray(values).ravel()
    return pd.DataFrame(frame)


def percentile_of(values, percentiles):
    """Where values stand in a distribution: the share below and half of the equal."""
    values = np.array(
        [math.nan if pd.isna(value) else float(value) for value in values], dtype=float
    )
    known, rank = np.unique(np.asarray(percentiles), return_inverse=True)
    if len(known) == 1:
        middle = np.array([50.0])
    else:
        grid = np.linspace(0, 100, len(percentiles))
        middle = np.bincount(rank, weights=grid) / np.bincount(rank)
        # The schema's percentiles put a value at the middle of its own weight and stay
        # on the smallest and the largest value beyond: there the inner end is it.
        middle[0], middle[-1] = grid[rank == 0][-1], grid[rank == len(known) - 1][0]
    # In a range of one, or differences of huge and of tiny values are no numbers.
    low, high = np.longdouble(known[0]), np.longdouble(known[-1])
    span = high - low or np.longdouble(1)
    values, known = ((part - low) / span for part in (values, known))
    result = np.interp(values.astype(float), known.astype(float), middle)
    result[values < known[0] - _SNAP] = 0.0
    result[values > known[-1] + _SNAP] = 100.0
    return result


def wide_frame(explanation):
    """Make the frame that `Explanation.to_frame` documents."""
    columns = {}
    for group, table in (
        ("original", explanation.X),
        ("counterfactual", explanation.counterfactuals),
    ):
        for name, values in zip(
            explanation.schema.names, _tables.pandas_arrays(table), strict=True
        ):
            columns[group, name] = values
    for when in ("before", "after"):
        prediction = np.asarray(getattr(explanation, f"prediction_{when}"))
        if prediction.ndim == 1:
            columns["prediction", when] = prediction
        else:
            for output, values in enumerate(prediction.T):
                columns["prediction", f"{when}_{output}"] = values
    for when in ("before", "reconstructed", "after"):
        parts = getattr(explanation, f"uncertainty_{when}")
        if parts is not None:
            for kind, values in parts._asdict().items():
                columns["uncertainty", f"{kind}_{when}"] = values
    for group, names in _GROUPS.items():
        for name in names:
            if (values := getattr(explanation, name)) is not None:
                columns[group, name] = values
    if explanation.contributions is not None:
        parts = np.asarray(explanation.contributions).T
        for name, values in zip(explanation.schema.names, parts, strict=True):
            columns["contribution", name] = values
    # Built under positions: a feature may be called anything, even by a tuple.
    frame = pd.DataFrame(
        {position: values for position, values in enumerate(columns.values())},
        index=explanation._index,
    )
    frame.columns = pd.MultiIndex.from_arrays(
        [
            [group for group, _ in columns],
            pd.Index([name for _, name in columns], dtype=object, tupleize_cols=False),
        ],
        names=[None, None],
    )
    return frame


# --- What drives the uncertainty ---


def drivers(explanation):
    """Make the columns that `Explanation.drivers` documents, as a dict of arrays."""
    changed = is_changed(explanation.X, explanation.counterfactuals)
    tables = (explanation.X, explanation.counterfactuals)
    cells = zip(explanation.schema, *map(_tables.arrays, tables), strict=True)
    moves = [
        _direction(
            column,
            *(_tables.as_objects(column.numbers_of(side[rows])) for side in (old, new)),
        )
        for (column, old, new), rows in zip(cells, changed.T, strict=True)
    ]
    columns = {
        "feature": _tables.as_objects(list(explanation.schema.names)),
        "n_changed": changed.sum(axis=0),
    }
    order = -columns["n_changed"]
    if explanation.contributions is not None:
        contributions = np.asarray(explanation.contributions, dtype=float)
        whole = contributions.sum()
        columns["mean_contribution"] = (
            contributions.mean(axis=0) if len(contributions) else contributions.sum(0)
        )
        # Shares of nothing, or of a rise, would have no meaning.
        columns["share"] = contributions.sum(axis=0) / (whole if whole > 0 else np.nan)
        order = -columns["mean_contribution"]
    columns["direction"] = _tables.as_objects([direction for direction, _ in moves])
    columns["median_change"] = np.array([change for _, change in moves], dtype=float)
    order = np.argsort(order, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _direction(column, before, after):
    """Where a column goes where it changes, and by how much in the middle."""
    if len(before) == 0:
        return "stays", math.nan
    if column.kind == "category":
        most = Counter(value for value in after if not pd.isna(value)).most_common(1)
        return (f"to {most[0][0]}" if most else "to missing"), math.nan
    known = ~(pd.isna(before) | pd.isna(after))
    moves = after[known].astype(float) - before[known].astype(float)
    if len(moves) == 0:
        return ("to missing" if pd.isna(after).all() else "filled"), math.nan
    rising = (moves > 0).mean()
    names = ((rising >= _MOSTLY, "up"), (rising <= 1 - _MOSTLY, "down"), (True, "both"))
    return next(name for holds, name in names if holds), float(np.median(moves))


# --- Facts ---


def gather(explanation):
    """Make the dict that `Explanation.to_dict` documents."""
    measure, unit = explanation._measure
    facts = {
        "method": explanation.method,
        "goal": "sure" if explanation._seeks_sure else "surer",
        "measure": measure,
        "unit": unit,
        "kind": explanation.kind if isinstance(explanation.kind, str) else "weighted",
        "target": plain(explanation.target),
        "distance_weight": plain(explanation.distance_weight),
        "threshold": plain(explanation.threshold),
        "note": explanation.note,
        "image_shape": plain(explanation.image_shape),
        "classes": plain(explanation.classes),
        "features": [
            {
                "name": str(column.name),
                "kind": column.kind,
                "decimals": decimals_of(column),
            }
            for column in explanation.schema
        ],
        "rows": [{"row": plain(label)} for label in explanation._labels],
    }
    is_image = explanation.image_shape is not None
    contents = (_image_facts if is_image else _change_facts)(explanation)
    candidates = _candidate_facts(explanation)
    for position, row in enumerate(facts["rows"]):
        row |= contents[position]
        row |= _row_facts(explanation, position)
        row["candidates"] = candidates[position]
        row["verdict"] = _verdict(row, facts)
    return facts


_PAIRS = ("prediction", "probabilities", "interval")
_SINGLE = (
    "uncertainty_explained",
    "distance",
    "objective",
    "n_iter",
    "converged",
    "is_sure",
    "is_plausible",
    "n_changed",
    "plausibility_before",
    "plausibility",
    "contributions_residual",
)


def _row_facts(explanation, position):
    def at(values):
        return None if values is None else plain(np.asarray(values)[position])

    row = {}
    for name in _PAIRS:
        pair = {
            when: at(getattr(explanation, f"{name}_{when}"))
            for when in ("before", "after")
        }
        row[name] = None if None in pair.values() and name != "prediction" else pair
    row["probability"] = _probability(row, explanation.classes)
    row["uncertainty"] = {}
    for when in ("before", "reconstructed", "after"):
        parts = getattr(explanation, f"uncertainty_{when}")
        row["uncertainty"][when] = parts and {
            kind: at(values) for kind, values in parts._asdict().items()
        }
    judged = zip(("before", "after"), explanation._judged, strict=True)
    row["judged"] = {when: at(values) for when, values in judged}
    return row | {name: at(getattr(explanation, name)) for name in _SINGLE}


def _probability(row, classes):
    """The probability of the class that is predicted, before and after."""
    if row["probabilities"] is None:
        return None
    classes = None if classes is None else plain(classes)
    found = {}
    for when, proba in row["probabilities"].items():
        label = row["prediction"][when]
        # Without the names of the classes, the likeliest is the one predicted.
        known = classes is not None and label in classes
        found[when] = proba[classes.index(label)] if known else max(proba)
    return found


def _verdict(row, facts):
    """What the explanation comes to, in two or three words."""
    if row["is_sure"] is None:
        return None
    if not row["is_sure"]:
        return "still unsure"
    bound, before = facts["target"], row["judged"]["before"]
    if bound is None:  # the threshold is for the total
        bound, before = facts["threshold"], row["uncertainty"]["before"]["total"]
    if None not in (bound, before) and is_within(before, bound):
        return "already sure"
    verdict = "sure"
    if facts["unit"] and row["prediction"]["before"] != row["prediction"]["after"]:
        verdict = "sure of another class"
    return f"{verdict}, less believable" if row["is_plausible"] is False else verdict


def _change_facts(explanation):
    n_features = len(explanation.schema)
    columns = {
        name: [plain(value) for value in values.tolist()]
        for name, values in changes(explanation).drop(columns="row").items()
        if name not in ("before", "after")
    }
    tables = {"before": explanation.X, "after": explanation.counterfactuals}
    cells = [cells_as_facts(explanation.schema, table) for table in tables.values()]
    changed = is_changed(*tables.values())
    for j, column in enumerate(explanation.schema):
        pairs = zip(changed[:, j], *(side[j] for side in cells), strict=True)
        if column.unit is not None and any(moved and a == b for moved, a, b in pairs):
            for side, table in zip(cells, tables.values(), strict=True):
                side[j] = [
                    plain(d) for d in _tables.as_objects(_tables.arrays(table)[j])
                ]
    for name, side in zip(tables, cells, strict=True):
        columns[name] = [value for row in zip(*side, strict=True) for value in row]
    columns["feature"] = [str(name) for name in columns["feature"]]
    entries = [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]
    return [
        {"changes": entries[row * n_features : (row + 1) * n_features]}
        for row in range(len(explanation))
    ]


def cells_as_facts(schema, table):
    """The cells of a table as JSON knows them, column by column.

    Durations are written in words, in steps that show a hundredth of their spread.
    """
    columns = []
    for column, cells in zip(schema, _tables.arrays(table), strict=True):
        cells = _tables.as_objects(cells)
        if column.unit is not None:
            step = _durations.step_of(column.scale, column.unit)
            texts = [
                pd.NA if pd.isna(d) else _durations.text_of(d, step) for d in cells
            ]
            cells = texts
        columns.append([plain(value) for value in cells])
    return columns


def _image_facts(explanation):
    shape = (len(explanation), *explanation.image_shape)
    before, after = (
        np.asarray(table, dtype=float).reshape(shape).tolist()
        for table in (explanation.X, explanation.counterfactuals)
    )
    facts = [
        {"pixels": {"before": plain(a), "after": plain(b)}}
        for a, b in zip(before, after, strict=True)
    ]
    if explanation.contributions is not None:
        parts = np.asarray(explanation.contributions, dtype=float).reshape(shape)
        for row, values in zip(facts, parts.tolist(), strict=True):
            row["pixels"]["contributions"] = plain(values)
    return facts


def _candidate_facts(explanation):
    facts = [[] for _ in range(len(explanation))]
    if not facts:
        return facts
    details = explanation.candidate_details
    names = [name for name in details.columns if name != "row"]
    records = zip(*(details[name].tolist() for name in names), strict=True)
    together = _tables.stack(explanation.candidates)
    columns = cells_as_facts(explanation.schema, together)
    # The candidates of a row stand together, in the order of their ranks.
    starts = np.cumsum([0, *(len(table) for table in explanation.candidates)])
    for row, record in zip(details["row"].tolist(), records, strict=True):
        entry = {name: plain(value) for name, value in zip(names, record, strict=True)}
        position = starts[row] + entry["rank"]
        entry["values"] = [column[position] for column in columns]
        facts[row].append(entry)
    return facts


def decimals_of(column):
    """Digits after the point that show a hundredth of the spread of a number."""
    if column.kind == "category" or column.scale is None or column.unit is not None:
        return None
    if column.is_integer:
        return 0
    if not 1e-6 < column.scale < 1e15:
        return None
    digits = max(0, 2 - math.floor(math.log10(column.scale)))
    # A schema may know how many digits the column has at all.
    known = getattr(column, "decimals", None)
    return digits if known is None else min(digits, max(known, 0))


_JSON_TYPES = {type(None), bool, int, str}


def plain(value):
    """A value as JSON knows it; what is missing or not finite as None."""
    if type(value) in _JSON_TYPES:  # nearly all values, and quickly told
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, float | Real | Decimal):
        return float(value) if math.isfinite(value) else None
    if value is pd.NA or value is pd.NaT:
        return None
    return _durations.text_of(value) if isinstance(value, timedelta) else str(value)
