"""What an explainer returns: the rows, what would make the model sure, and the facts.

Facts come first: `Explanation.to_dict` gathers them as plain Python values, and the
summary, the HTML and the JSON are renderings of it.
"""

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sklearn_clue import _rendering, _tables
from sklearn_clue.persistence import replacing
from sklearn_clue.schema import FeatureSchema
from sklearn_clue.uncertainty import Uncertainty

__all__ = ["Explanation", "SearchPath", "knee_distances", "knee_index"]

# Section 3, "Showing CLUEs": smaller moves may be noise of the auto-encoding.
_HIGHLIGHT_FROM = 15.0

# Numbers travel through float32 networks: a value this close to a training percentile,
# relative to the range of the column, is that percentile.
_SNAP = 1e-6

# A counterfactual that is hardly farther from its row than the nearest row that the
# generator can make explains nothing: it is the row, rebuilt.
_MOVED_FROM = 1.1


class SearchPath(NamedTuple):
    """The way a search took through latent space, step by step.

    Parameters
    ----------
    latents : ndarray of shape (n_rows, n_points, latent_dim)
        Latents of each row, from the start on; NaN where it stood still or was done.

    objective : ndarray of shape (n_rows, n_points)
        Value of the objective there.

    See Also
    --------
    sklearn_clue.plotting.LatentPathDisplay : Draws the path of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.explanation import SearchPath
    >>> path = SearchPath(
    ...     latents=np.array([[[0.0, 0.0], [0.1, 0.0], [np.nan, np.nan]]]),
    ...     objective=np.array([[0.9, 0.7, np.nan]]),
    ... )
    >>> int(np.isfinite(path.objective[0]).sum())  # the start and one step
    2
    """

    latents: np.ndarray
    objective: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """Rows a model is unsure about, and nearby rows about which it is surer.

    Explainers build explanations; users read them. An explanation is also a sequence
    of its rows: it has a length, iterates over one-row explanations, and takes an
    integer, a slice, a boolean mask or an array of positions in square brackets.

    Parameters
    ----------
    X : {ndarray, DataFrame} of shape (n_rows, n_features)
        The rows that are explained, as the user passed them.

    counterfactuals : {ndarray, DataFrame} of shape (n_rows, n_features)
        The best counterfactual of each row, in the container, dtypes and index of `X`.

    uncertainty_before : Uncertainty of ndarrays of shape (n_rows,)
        Uncertainty about the rows of `X`: entropies in nats for classes; for
        regression, standard deviations in the unit of the target.

    uncertainty_after : Uncertainty of ndarrays of shape (n_rows,)
        Uncertainty about the counterfactuals.

    prediction_before : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Class labels or means predicted for the rows of `X`.

    prediction_after : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Class labels or means predicted for the counterfactuals.

    distance : ndarray of shape (n_rows,)
        L1 distance of each counterfactual from its row, in encoded space.

    schema : FeatureSchema
        What the columns of `X` are, and the percentiles of their training
        distribution.

    is_classification : bool
        Whether the model predicts classes, so that uncertainty is measured in nats.

    candidates : list of {ndarray, DataFrame}, default=None
        For each row its distinct counterfactuals, best objective first. None means
        that `counterfactuals` holds all there are.

    candidate_details : DataFrame, default=None
        One line per candidate: `row` (the position of its row), `rank` (0 is the
        best), `objective`, `total`, `aleatoric`, `epistemic`, `distance` and `count`
        (how many near-duplicates it stands for).

    uncertainty_reconstructed : Uncertainty of ndarrays of shape (n_rows,), default=None
        Uncertainty about the plain auto-encoding of each row: what the generator alone
        explains away, before any search. None where there is no generator.

    distance_floor : ndarray of shape (n_rows,), default=None
        L1 distance of each row from the nearest row that the generator was found to
        make: the part of `distance` that no search can avoid. None where there is no
        generator.

    objective : ndarray of shape (n_rows,), default=None
        Value of the objective at the counterfactual.

    n_iter : ndarray of shape (n_rows,), default=None
        Steps taken by the search of each row.

    converged : ndarray of shape (n_rows,), default=None
        Whether the search of each row stopped by itself.

    path : SearchPath, default=None
        The way the search took.

    encoded : ndarray of shape (n_rows, n_encoded), default=None
        The rows of `X` in encoded space.

    encoded_counterfactuals : ndarray of shape (n_rows, n_encoded), default=None
        The counterfactuals in encoded space.

    image_shape : tuple of int, default=None
        `(height, width)` or `(channels, height, width)` if each row is an image.

    distance_weight : float, default=None
        Weight of the distance in the objective, λ_x·d in the paper.

    threshold : float, default=None
        Total uncertainty above which the model rejects a row.

    method : str, default="CLUE"
        Name of the method, for titles.

    note : str, default=None
        Something the reader should know, for example the units of the columns.

    See Also
    --------
    sklearn_clue.plotting.ExplanationDisplay : The picture of it.

    Notes
    -----
    `changes` follows Section 3 of [1]_: a number is highlighted if it moves by 15
    percentile points of its training distribution or more, a category if it changes at
    all. The percentile of a value is the share of training rows below it plus half of
    the share equal to it.

    References
    ----------
    .. [1] J. Antorán, U. Bhatt, T. Adel, A. Weller, J. M. Hernández-Lobato, "Getting a
       CLUE: A Method for Explaining Uncertainty Estimates", ICLR 2021.

    Examples
    --------
    Explainers do this for you; here by hand, to see what goes in.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_clue import Explanation, TabularEncoder, Uncertainty
    >>> train = pd.DataFrame({"priors": range(10), "charge": ["minor", "major"] * 5})
    >>> encoder = TabularEncoder().fit(train)
    >>> X = pd.DataFrame({"priors": [9], "charge": ["major"]}, index=["case 4"])
    >>> closer = pd.DataFrame({"priors": [2], "charge": ["minor"]}, index=["case 4"])
    >>> explanation = Explanation(
    ...     X=X,
    ...     counterfactuals=closer,
    ...     uncertainty_before=Uncertainty(*np.array([[0.61], [0.41], [0.20]])),
    ...     uncertainty_after=Uncertainty(*np.array([[0.18], [0.15], [0.03]])),
    ...     prediction_before=np.array(["yes"]),
    ...     prediction_after=np.array(["yes"]),
    ...     distance=np.abs(encoder.transform(X) - encoder.transform(closer)).sum(1),
    ...     schema=encoder.schema_,
    ...     is_classification=True,
    ... )
    >>> print(explanation.summary())
    case 4: charge major → minor and priors 9 → 2; entropy 0.61 → 0.18 nats; prediction
    unchanged (yes).
    >>> explanation.changes.query("highlighted")[["feature", "before", "after"]]
      feature before  after
    0  priors      9      2
    1  charge  major  minor
    """

    X: Any
    counterfactuals: Any
    uncertainty_before: Uncertainty
    uncertainty_after: Uncertainty
    prediction_before: np.ndarray
    prediction_after: np.ndarray
    distance: np.ndarray
    schema: FeatureSchema
    is_classification: bool
    candidates: list | None = None
    candidate_details: pd.DataFrame | None = None
    uncertainty_reconstructed: Uncertainty | None = None
    distance_floor: np.ndarray | None = None
    objective: np.ndarray | None = None
    n_iter: np.ndarray | None = None
    converged: np.ndarray | None = None
    path: SearchPath | None = None
    encoded: np.ndarray | None = None
    encoded_counterfactuals: np.ndarray | None = None
    image_shape: tuple | None = None
    distance_weight: float | None = None
    threshold: float | None = None
    method: str = "CLUE"
    note: str | None = None

    def __post_init__(self):
        if (self.candidates is None) != (self.candidate_details is None):
            raise ValueError(
                "candidates and candidate_details belong together: give both or none."
            )
        for name in _PER_ROW:
            for value in _arrays(getattr(self, name)):
                if len(value) != len(self.X):
                    raise ValueError(
                        f"{name} has {len(value)} rows, but X has {len(self.X)}. An "
                        "explanation needs one entry per row of X."
                    )
        if self.X.shape[1] != len(self.schema):
            raise ValueError(
                f"X has {self.X.shape[1]} columns, but the schema describes "
                f"{len(self.schema)}. Give the schema of the columns of X."
            )
        if self.candidates is None:
            self._derive_candidates()

    def _derive_candidates(self):
        n_rows = len(self.X)
        objective = (
            np.full(n_rows, np.nan) if self.objective is None else self.objective
        )
        details = {
            "row": np.arange(n_rows),
            "rank": np.zeros(n_rows, dtype=int),
            "objective": objective,
            **self.uncertainty_after._asdict(),
            "distance": self.distance,
            "count": np.ones(n_rows, dtype=int),
        }
        candidates = [
            _tables.take(self.counterfactuals, [row]) for row in range(n_rows)
        ]
        object.__setattr__(self, "candidates", candidates)
        object.__setattr__(self, "candidate_details", pd.DataFrame(details))

    def __len__(self):
        return len(self.X)

    def __iter__(self):
        return (self[row] for row in range(len(self)))

    def __getitem__(self, key):
        if isinstance(key, Integral) and not isinstance(key, bool | np.bool_):
            if not -len(self) <= key < len(self):
                raise IndexError(
                    f"row {key} of an explanation of {_rendering.count(len(self))}"
                )
            key = [key]
        elif not isinstance(key, slice):
            key = np.asarray(key)
            if key.size == 0:
                key = key.astype(np.intp)
            if key.ndim != 1 or key.dtype.kind not in "biu":
                raise TypeError(
                    "The rows of an explanation are chosen by an integer, a slice, a "
                    "boolean mask or an array of positions, got "
                    f"{key.ndim}-dimensional values of type {key.dtype}."
                )
        positions = np.arange(len(self))[key]
        chosen = {
            name: _take_each(getattr(self, name), positions)
            for name in _PER_ROW
            if name != "candidates"
        }
        chosen["candidates"] = [self.candidates[position] for position in positions]
        chosen["candidate_details"] = _take_details(self.candidate_details, positions)
        return replace(self, **chosen)

    def __repr__(self):
        if len(self) == 0:
            return f"<Explanation of 0 rows by {self.method}>"
        before = self.uncertainty_before.total.mean()
        after = self.uncertainty_after.total.mean()
        measure, unit = self._measure
        shift = _rendering.measured(before, after, unit)
        mean = "mean " if len(self) > 1 else ""
        rows = _rendering.count(len(self))
        return f"<Explanation of {rows} by {self.method}: {mean}{measure} {shift}>"

    @property
    def _measure(self):
        """Name and unit of the uncertainty; the unit of a target is not known."""
        return ("entropy", "nats") if self.is_classification else (_SPREAD, None)

    @property
    def _labels(self):
        """What the user calls the rows: a pandas index, or else positions."""
        return self._index.to_flat_index()

    @property
    def _index(self):
        index = _tables.index_of(self.X)
        return pd.RangeIndex(len(self)) if index is None else index

    @property
    def uncertainty_explained(self):
        """Fall of the total uncertainty of each row, an array of shape (n_rows,)."""
        return np.asarray(self.uncertainty_before.total) - np.asarray(
            self.uncertainty_after.total
        )

    @property
    def changes(self):
        """What differs between each row and its counterfactual, as a long frame.

        All features of all rows are listed, changed or not, in the order of `X`;
        `changes.query("highlighted")` gives those to look at. The columns are

        - `row`: the label of the row in the index of a pandas DataFrame, else its
          position in this explanation;
        - `feature`, `before`, `after`: the name of the column, and its two values;
        - `percentile_before`, `percentile_after`: where the values of a number stand in
          the training distribution, from 0 to 100; NaN for categories, missing values,
          and numbers whose distribution is not known, such as pixels;
        - `highlighted`: whether a number moved by 15 percentile points or more, or a
          category changed. A missing value is never highlighted.
        """
        n_rows, n_features = self.X.shape
        shape = (n_rows, n_features)
        before, after = np.empty(shape, dtype=object), np.empty(shape, dtype=object)
        percentiles = np.full((2, *shape), np.nan)
        highlighted = np.zeros(shape, dtype=bool)
        tables = _tables.arrays(self.X), _tables.arrays(self.counterfactuals)
        for j, (column, old, new) in enumerate(zip(self.schema, *tables, strict=True)):
            before[:, j], after[:, j] = _tables.as_objects(old), _tables.as_objects(new)
            if column.kind == "category":
                known = ~(pd.isna(before[:, j]) | pd.isna(after[:, j]))
                highlighted[known, j] = before[known, j] != after[known, j]
            elif column.percentiles is not None:
                percentiles[0, :, j] = _percentile_of(before[:, j], column.percentiles)
                percentiles[1, :, j] = _percentile_of(after[:, j], column.percentiles)
                # False where one of them is NaN.
                moved = np.abs(percentiles[1, :, j] - percentiles[0, :, j])
                highlighted[:, j] = moved >= _HIGHLIGHT_FROM
        return pd.DataFrame(
            {
                "row": self._labels.repeat(n_features),
                "feature": list(self.schema.names) * n_rows,
                "before": before.ravel(),
                "after": after.ravel(),
                "percentile_before": percentiles[0].ravel(),
                "percentile_after": percentiles[1].ravel(),
                "highlighted": highlighted.ravel(),
            }
        )

    def to_frame(self):
        """Put rows, counterfactuals and figures side by side in one wide frame.

        Returns
        -------
        frame : pandas.DataFrame
            One line per row, under the index of `X`. The columns have two levels. The
            groups `"original"` and `"counterfactual"` hold the features, so that
            `frame["counterfactual"]` is a frame like `X`; the group `"prediction"`
            holds `before` and `after`, the group `"uncertainty"` for example
            `total_before` and `epistemic_after`, and the group `"search"` `distance`,
            `objective`, `n_iter` and `converged` as far as they are known.

        See Also
        --------
        Explanation.changes : The same values as a long frame.
        """
        columns = {}
        for group, table in (
            ("original", self.X),
            ("counterfactual", self.counterfactuals),
        ):
            for name, values in zip(
                self.schema.names, _tables.pandas_arrays(table), strict=True
            ):
                columns[group, name] = values
        for when in ("before", "after"):
            prediction = np.asarray(getattr(self, f"prediction_{when}"))
            if prediction.ndim == 1:
                columns["prediction", when] = prediction
            else:
                for output, values in enumerate(prediction.T):
                    columns["prediction", f"{when}_{output}"] = values
        for when in ("before", "reconstructed", "after"):
            parts = getattr(self, f"uncertainty_{when}")
            if parts is not None:
                for kind, values in parts._asdict().items():
                    columns["uncertainty", f"{kind}_{when}"] = values
        for name in ("distance", "objective", "n_iter", "converged"):
            if (values := getattr(self, name)) is not None:
                columns["search", name] = values
        # Built under positions: a feature may be called anything, even by a tuple.
        frame = pd.DataFrame(
            {position: values for position, values in enumerate(columns.values())},
            index=self._index,
        )
        frame.columns = pd.MultiIndex.from_arrays(
            [
                [group for group, _ in columns],
                pd.Index(
                    [name for _, name in columns], dtype=object, tupleize_cols=False
                ),
            ],
            names=[None, None],
        )
        return frame

    def to_dict(self):
        """Gather the facts as plain Python values, ready for `json.dumps`.

        Returns
        -------
        facts : dict
            - `method`, `measure`, `unit` (None for the unit of the target),
              `distance_weight`, `threshold`, `note`, `image_shape`;
            - `features`: for each column its `name`, `kind` and `decimals`, the
              digits after the point worth showing (None if not known);
            - `rows`: for each row its `row` label; `changes`, a list with the columns
              of :attr:`changes`, one entry per feature; `prediction`, with `before` and
              `after`; `uncertainty`, with `before`, `after` and `reconstructed`, each
              with `total`, `aleatoric` and `epistemic`; `uncertainty_explained`,
              `distance`, `objective`, `n_iter`, `converged`; and `candidates`, a list
              of all counterfactuals with their `values` and figures. An image has
              nested lists of `pixels`, `before` and `after`, in place of `changes`.

            What is missing or not finite is None.
        """
        measure, unit = self._measure
        features = [
            {
                "name": str(column.name),
                "kind": column.kind,
                "decimals": _decimals(column),
            }
            for column in self.schema
        ]
        facts = {
            "method": self.method,
            "measure": measure,
            "unit": unit,
            "distance_weight": _plain(self.distance_weight),
            "threshold": _plain(self.threshold),
            "note": self.note,
            "image_shape": _plain(self.image_shape),
            "features": features,
            "rows": [{"row": _plain(label)} for label in self._labels],
        }
        contents = self._image_facts() if self.image_shape else self._change_facts()
        candidates = self._candidate_facts()
        for position, row in enumerate(facts["rows"]):
            row |= contents[position]
            row["prediction"] = {
                "before": _plain(_item(self.prediction_before, position)),
                "after": _plain(_item(self.prediction_after, position)),
            }
            row["uncertainty"] = {
                when: None
                if (parts := getattr(self, f"uncertainty_{when}")) is None
                else {
                    kind: _plain(_item(values, position))
                    for kind, values in parts._asdict().items()
                }
                for when in ("before", "reconstructed", "after")
            }
            for name in (
                "uncertainty_explained",
                "distance",
                "objective",
                "n_iter",
                "converged",
            ):
                values = getattr(self, name)
                row[name] = None if values is None else _plain(_item(values, position))
            row["candidates"] = candidates[position]
        return facts

    def _change_facts(self):
        n_features = len(self.schema)
        columns = {
            name: [_plain(value) for value in values.tolist()]
            for name, values in self.changes.drop(columns="row").items()
        }
        columns["feature"] = [str(name) for name in columns["feature"]]
        entries = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        return [
            {"changes": entries[row * n_features : (row + 1) * n_features]}
            for row in range(len(self))
        ]

    def _image_facts(self):
        shape = (len(self), *self.image_shape)
        before = np.asarray(self.X, dtype=float).reshape(shape).tolist()
        after = np.asarray(self.counterfactuals, dtype=float).reshape(shape).tolist()
        return [
            {"pixels": {"before": _plain(a), "after": _plain(b)}}
            for a, b in zip(before, after, strict=True)
        ]

    def _candidate_facts(self):
        facts = [[] for _ in range(len(self))]
        if not facts:
            return facts
        details = self.candidate_details
        names = [name for name in details.columns if name != "row"]
        records = zip(*(details[name].tolist() for name in names), strict=True)
        together = _tables.stack(self.candidates)
        columns = [_tables.as_objects(values) for values in _tables.arrays(together)]
        # The candidates of a row stand together, in the order of their ranks.
        starts = np.cumsum([0, *(len(table) for table in self.candidates)])
        for row, record in zip(details["row"].tolist(), records, strict=True):
            entry = {
                name: _plain(value) for name, value in zip(names, record, strict=True)
            }
            position = starts[row] + entry["rank"]
            entry["values"] = [_plain(column[position]) for column in columns]
            facts[row].append(entry)
        return facts

    def summary(self):
        """Say in plain words what changed in each row, and what it did.

        Returns
        -------
        text : str
            One paragraph per row: the highlighted changes, the uncertainty before and
            after, and whether the prediction stays. It also says when nothing had to
            change, and when the plain auto-encoding of the row did most of it, so that
            the changes explain little.
        """
        return _rendering.summary(self.to_dict())

    def _repr_html_(self):
        shown = self[: _rendering.MAX_ROWS]
        return _rendering.table(shown.to_dict(), n_rows=len(self))

    def to_html(self, path):
        """Write one page with all rows, to open in any browser.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write. It needs no network and no other file. A click on the
            head of a column sorts the rows by it.

        Returns
        -------
        path : pathlib.Path
            The file written.
        """
        path = Path(path)
        # Half a surrogate pair, which a name may hold, is no character of UTF-8.
        page = _rendering.page(self.to_dict())
        with replacing(path, "w", encoding="utf-8", errors="xmlcharrefreplace") as file:
            file.write(page)
        return path

    def plot(self, **kwargs):
        """Draw the explanation.

        Parameters
        ----------
        **kwargs : dict
            Passed on to `from_explanation` of the display.

        Returns
        -------
        display : ExplanationDisplay or ImageExplanationDisplay
            The picture drawn; of images if `image_shape` is given.
        """
        from sklearn_clue.plotting import ExplanationDisplay, ImageExplanationDisplay

        display = (
            ExplanationDisplay
            if self.image_shape is None
            else (ImageExplanationDisplay)
        )
        return display.from_explanation(self, **kwargs)


_SPREAD = "standard deviation"
_NOT_PER_ROW = {
    "schema",
    "is_classification",
    "candidate_details",
    "image_shape",
    "distance_weight",
    "threshold",
    "method",
    "note",
}
_PER_ROW = [
    field.name for field in fields(Explanation) if field.name not in _NOT_PER_ROW
]


def balance(explanation):
    """Score of `CLUEExplainer.score` for one explanation."""
    has_moved = explanation.distance > _MOVED_FROM * explanation.distance_floor
    total = explanation.objective[has_moved].mean() if has_moved.any() else 0.0
    if total <= 0:
        return -1.0
    weight = explanation.distance_weight / explanation.encoded.shape[1]
    distance = weight * explanation.distance[has_moved].mean()
    uncertainty = total - distance
    share = has_moved.mean()
    return float(-share * abs(uncertainty - distance) / total - (1 - share))


def knee_distances(gain, cost, *, max_gain=None, max_cost=None):
    """Measure how far each point of a trade-off is from gaining all at no cost.

    Parameters
    ----------
    gain : array-like of shape (n_points,)
        What is to be large, for example the uncertainty explained.

    cost : array-like of shape (n_points,)
        What is to be small, for example the distance from the original rows.

    max_gain : float, default=None
        What counts as all of the gain; None means the largest one given. To compare
        methods, pass the largest one of all of them.

    max_cost : float, default=None
        What counts as all of the cost, likewise.

    Returns
    -------
    distances : ndarray of shape (n_points,)
        0 for all of the gain at no cost, 1 for no gain at all of the cost.

    See Also
    --------
    knee_index : The nearest point.

    Notes
    -----
    Section 5.1 of the paper: both axes are scaled to [0, 1/√2], and the gain is turned
    round so that its best value is 0.

    Examples
    --------
    >>> from sklearn_clue.explanation import knee_distances
    >>> knee_distances([0.0, 0.8, 1.0], [0.0, 0.1, 1.0]).round(2)
    array([0.71, 0.16, 0.71])
    """
    gain, cost = np.asarray(gain, dtype=float), np.asarray(cost, dtype=float)
    # A curve without any gain or cost has no scale of its own.
    max_gain = max(np.nanmax(gain) if max_gain is None else max_gain, 0.0) or 1.0
    max_cost = max(np.nanmax(cost) if max_cost is None else max_cost, 0.0) or 1.0
    return np.hypot(1 - gain / max_gain, cost / max_cost) / np.sqrt(2)


def knee_index(gain, cost, *, max_gain=None, max_cost=None):
    """Find the point of a trade-off that gains most for its cost.

    Parameters
    ----------
    gain : array-like of shape (n_points,)
        What is to be large, for example the uncertainty explained.

    cost : array-like of shape (n_points,)
        What is to be small, for example the distance from the original rows.

    max_gain : float, default=None
        What counts as all of the gain; None means the largest one given.

    max_cost : float, default=None
        What counts as all of the cost, likewise.

    Returns
    -------
    index : int
        Position of the knee point: the one of the smallest knee distance.

    See Also
    --------
    knee_distances : The distance of each point.

    Examples
    --------
    >>> from sklearn_clue.explanation import knee_index
    >>> knee_index([0.0, 0.8, 1.0], [0.0, 0.1, 1.0])
    1
    """
    distances = knee_distances(gain, cost, max_gain=max_gain, max_cost=max_cost)
    return int(np.nanargmin(distances))


def _arrays(value):
    """The arrays, frames or lists with one entry per row that a field holds."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Uncertainty | SearchPath) else (value,)


def _take_each(value, positions):
    if value is None:
        return None
    if isinstance(value, Uncertainty | SearchPath):
        return type(value)(*(np.asarray(part)[positions] for part in value))
    is_frame = _tables.is_frame(value)
    return _tables.take(value, positions) if is_frame else np.asarray(value)[positions]


def _take_details(details, positions):
    """Lines of the chosen rows, in their new order and under their new positions."""
    rows = details["row"].to_numpy()
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], positions, side="left")
    stops = np.searchsorted(rows[order], positions, side="right")
    counts = stops - starts
    lines = [order[a:b] for a, b in zip(starts, stops, strict=True)]
    taken = details.iloc[np.concatenate([*lines, np.empty(0, dtype=np.intp)])]
    return taken.assign(row=np.repeat(np.arange(len(positions)), counts)).reset_index(
        drop=True
    )


def _item(values, position):
    return np.asarray(values)[position]


def _percentile_of(values, percentiles):
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


def _decimals(column):
    """Digits after the point that show a hundredth of the spread of a number."""
    if column.kind == "category" or column.scale is None:
        return None
    if column.is_integer:
        return 0
    if not 1e-6 < column.scale < 1e15:
        return None
    return max(0, 2 - math.floor(math.log10(column.scale)))


_JSON_TYPES = {type(None), bool, int, str}


def _plain(value):
    """A value as JSON knows it; what is missing or not finite as None."""
    if type(value) in _JSON_TYPES:  # nearly all values, and quickly told
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, float | Real):
        return float(value) if math.isfinite(value) else None
    return None if value is pd.NA or value is pd.NaT else str(value)
