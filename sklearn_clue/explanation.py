"""What an explainer returns: the rows, what would make the model sure, and the facts.

Facts come first: `Explanation.to_dict` gathers them as plain Python values, and the
summary, the HTML and the JSON are renderings of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sklearn_clue import _facts, _page, _rendering, _rows, _tables, _words
from sklearn_clue._knee import knee_distances, knee_index
from sklearn_clue.schema import FeatureSchema
from sklearn_clue.uncertainty import Uncertainty, weighted_sum, weights_of_parts

__all__ = ["Explanation", "SearchPath", "knee_distances", "knee_index"]

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
        Value of the objective there. A search asks twenty of the networks, where there
        are more, and all of them at the start and the best point: values in between are
        estimates.

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
        For each row its distinct counterfactuals, the best first: the nearest sure row,
        or that of the lowest objective. None means that `counterfactuals` holds all
        there are.

    candidate_details : DataFrame, default=None
        One line per candidate: `row` (the position of its row), `rank` (0 is the
        best), `objective` (NaN if there is none), `total`, `aleatoric`, `epistemic`,
        `distance` and `count` (how many near-duplicates it stands for).

    uncertainty_reconstructed : Uncertainty of ndarrays of shape (n_rows,), default=None
        Uncertainty about the plain auto-encoding of each row: what the generator alone
        explains away, before any search. None without a generator, and for the nearest
        sure row.

    distance_floor : ndarray of shape (n_rows,), default=None
        L1 distance of each row from the nearest row that the generator was found to
        make: the part of `distance` that no search can avoid. None without a generator,
        and for the nearest sure row.

    objective : ndarray of shape (n_rows,), default=None
        Value of the objective at the counterfactual. None for the nearest sure row.

    n_iter : ndarray of shape (n_rows,), default=None
        Steps taken by the search of each row; for the nearest sure row, how often the
        model was asked about a candidate.

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
        Weight of the distance in the objective, λ_x·d in the paper. None where the
        question is another one; with a `target` it is that for the nearest sure row.

    threshold : float, default=None
        Total uncertainty above which the model rejects a row.

    target : float, default=None
        The uncertainty up to which the model counts as sure, in the unit of the
        uncertainty. With it and without a `distance_weight`, the question was for the
        nearest row about which the model is sure, from which needless changes are put
        back: every change that is left is highlighted and told.

    kind : {"total", "aleatoric", "epistemic"} or dict, default="total"
        The uncertainty that was to fall, which `target` and `contributions` are about;
        or the weights of several.

    is_sure : ndarray of shape (n_rows,), default=None
        Whether the model is sure of each counterfactual. None is derived: whether the
        uncertainty is at most the `target`, or the `threshold` if there is no target.

    is_plausible : ndarray of shape (n_rows,), default=None
        Whether each counterfactual is as plausible as was demanded; None if nothing
        was demanded.

    n_changed : ndarray of shape (n_rows,), default=None
        The number of columns that change in each row. None is derived.

    plausibility : ndarray of shape (n_rows,), default=None
        The plausibility of the counterfactuals, from 0 to 1.

    plausibility_before : ndarray of shape (n_rows,), default=None
        The plausibility of the rows of `X`.

    contributions : ndarray of shape (n_rows, n_features), default=None
        What the change of each column contributes to the fall of the uncertainty, in
        its unit: positive where it lowers the uncertainty, zero where the column does
        not change. Each row sums to the fall from row to counterfactual.

        For images they are integrals of the gradient along the way from image to
        counterfactual, and sum to the fall up to `contributions_residual`.

    contributions_error : ndarray of shape (n_rows, n_features), default=None
        Standard errors of the contributions, where not all orders of the changes were
        counted.

    contributions_residual : ndarray of shape (n_rows,), default=None
        What the contributions of an image sum to, less the fall of its uncertainty:
        the error of the integral.

    classes : ndarray of shape (n_classes,), default=None
        The labels that the columns of the probabilities belong to.

    probabilities_before : ndarray of shape (n_rows, n_classes), default=None
        Class probabilities of the rows of `X`.

    probabilities_after : ndarray of shape (n_rows, n_classes), default=None
        Class probabilities of the counterfactuals.

    interval_before : ndarray of shape (n_rows, 2), default=None
        Predictive intervals of a regression. Without them words tell the mean and its
        standard deviation.

    interval_after : ndarray of shape (n_rows, 2), default=None
        Predictive intervals for the counterfactuals.

    method : str, default="CLUE"
        Name of the method, for titles.

    note : str, default=None
        Something the reader should know, for example the units of the columns.

    See Also
    --------
    sklearn_clue.plotting.ExplanationDisplay : The picture of it.

    Notes
    -----
    With a `distance_weight`, `changes` follows Section 3 of [1]_: a number is
    highlighted if it moves by 15 percentile points of its training distribution or
    more, a category if it changes at all. The percentile of a value is the share of
    training rows below it plus half of the share equal to it.

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
    ...     target=0.2,
    ...     contributions=np.array([[0.32, 0.11]]),
    ... )
    >>> print(explanation.summary())
    case 4: Would be sure if priors were 2 instead of 9 and charge minor instead of
    major. Prediction unchanged (yes); entropy 0.61 → 0.18 nats (sure up to 0.20), most
    of it by priors (74 %).
    >>> explanation.drivers()[["feature", "n_changed", "share", "direction"]]
      feature  n_changed     share direction
    0  priors          1  0.744186      down
    1  charge          1  0.255814  to minor
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
    target: float | None = None
    kind: str | Mapping = "total"
    is_sure: np.ndarray | None = None
    is_plausible: np.ndarray | None = None
    n_changed: np.ndarray | None = None
    plausibility: np.ndarray | None = None
    plausibility_before: np.ndarray | None = None
    contributions: np.ndarray | None = None
    contributions_error: np.ndarray | None = None
    contributions_residual: np.ndarray | None = None
    classes: np.ndarray | None = None
    probabilities_before: np.ndarray | None = None
    probabilities_after: np.ndarray | None = None
    interval_before: np.ndarray | None = None
    interval_after: np.ndarray | None = None
    method: str = "CLUE"
    note: str | None = None

    def __post_init__(self):
        if (self.candidates is None) != (self.candidate_details is None):
            raise ValueError(
                "candidates and candidate_details belong together: give both or none."
            )
        _rows.check_shapes(self, _PER_ROW)
        weights_of_parts(self.kind)  # which refuses what is no kind of uncertainty
        if self.candidates is None:
            candidates, details = _rows.only_candidates(self)
            object.__setattr__(self, "candidates", candidates)
            object.__setattr__(self, "candidate_details", details)
        if self.is_sure is None and self._bound is not None:
            is_sure = _facts.is_within(self._bounded[1], self._bound)
            object.__setattr__(self, "is_sure", is_sure)
        if self.n_changed is None:
            changed = _facts.is_changed(self.X, self.counterfactuals)
            object.__setattr__(self, "n_changed", changed.sum(axis=1))

    def __len__(self):
        return len(self.X)

    def __iter__(self):
        return (self[row] for row in range(len(self)))

    @cached_property
    def _lines_of_rows(self):
        # Once for all rows: whoever iterates asks for them one by one.
        return _rows.lines_of_rows(self.candidate_details["row"], len(self))

    def __getitem__(self, key):
        positions = _rows.positions_of(key, len(self))
        chosen = {
            name: _rows.take_each(getattr(self, name), positions) for name in _PER_ROW
        }
        details = _rows.take_lines(
            self.candidate_details, self._lines_of_rows, positions
        )
        return replace(self, **chosen, candidate_details=details)

    def __repr__(self):
        if len(self) == 0:
            return f"<Explanation of 0 rows by {self.method}>"
        before = self.uncertainty_before.total.mean()
        after = self.uncertainty_after.total.mean()
        measure, unit = self._measure
        shift = _words.measured(before, after, unit)
        mean = "mean " if len(self) > 1 else ""
        rows = _words.count(len(self))
        return f"<Explanation of {rows} by {self.method}: {mean}{measure} {shift}>"

    @property
    def _measure(self):
        """Name and unit of the uncertainty; the unit of a target is not known."""
        return ("entropy", "nats") if self.is_classification else (_SPREAD, None)

    @property
    def _seeks_sure(self):
        """Whether the question was for the nearest sure row."""
        return self.distance_weight is None and self.target is not None

    @property
    def _judged(self):
        """The uncertainty that was to fall, before and after."""
        weights = weights_of_parts(self.kind)
        both = (self.uncertainty_before, self.uncertainty_after)
        return [np.asarray(weighted_sum(weights, parts)) for parts in both]

    @property
    def _bound(self):
        """The uncertainty up to which the model counts as sure, if that is known."""
        return self.threshold if self.target is None else self.target

    @property
    def _bounded(self):
        """What the bound is about, before and after: the threshold is for the total."""
        if self.target is not None:
            return self._judged
        both = (self.uncertainty_before, self.uncertainty_after)
        return [np.asarray(parts.total) for parts in both]

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
          category changed; a missing value is not highlighted. Where the nearest sure
          row was asked for (`target` without a `distance_weight`), whatever changed,
          gaps that are filled as well;
        - `contribution`, `contribution_error`: what the change contributes to the fall
          of the uncertainty, and the standard error of it, if they are known.
        """
        return _facts.changes(self)

    def to_frame(self):
        """Put rows, counterfactuals and figures side by side in one wide frame.

        Returns
        -------
        frame : pandas.DataFrame
            One line per row, under the index of `X`. The columns have two levels. The
            groups `"original"` and `"counterfactual"` hold the features, so that
            `frame["counterfactual"]` is a frame like `X`; the group `"prediction"`
            holds `before` and `after`, the group `"uncertainty"` for example
            `total_before` and `epistemic_after`, the group `"verdict"` `is_sure`,
            `is_plausible`, `n_changed`, `plausibility_before` and `plausibility`, the
            group `"contribution"` one column per feature, and the group `"search"`
            `distance`, `objective`, `n_iter` and `converged`, all of them as far as
            they are known.

        See Also
        --------
        Explanation.changes : The same values as a long frame.
        """
        return _facts.wide_frame(self)

    def to_dict(self):
        """Gather the facts as plain Python values, ready for `json.dumps`.

        Returns
        -------
        facts : dict
            - `method`, `goal` (`"sure"` if the nearest sure row was asked for, else
              `"surer"`), `measure`, `unit` (None for the unit of the target), `kind`,
              `target`, `distance_weight`, `threshold`, `note`, `image_shape`,
              `classes`;
            - `features`: for each column its `name`, `kind` and `decimals`, the
              digits after the point worth showing (None if not known);
            - `rows`: for each row its `row` label; `changes`, a list with the columns
              of :attr:`changes`, one entry per feature; `prediction`, with `before` and
              `after`, and likewise `probabilities` of all classes, `probability` of the
              predicted one, `interval`, and `judged`, the uncertainty that was to fall;
              `uncertainty`, with `before`, `after` and `reconstructed`, each
              with `total`, `aleatoric` and `epistemic`; `uncertainty_explained`,
              `distance`, `objective`, `n_iter`, `converged`; `is_sure`,
              `is_plausible`, `n_changed`, `plausibility_before`, `plausibility`;
              `verdict`, such as `"sure"` or `"still unsure"`; and `candidates`, a list
              of all counterfactuals with their `values` and figures. An image has
              nested lists of `pixels`, `before` and `after`, in place of `changes`.

            What is missing or not finite is None.
        """
        return _facts.gather(self)

    def summary(self):
        """Say in plain words what changed in each row, and what it did.

        Returns
        -------
        text : str
            One paragraph per row. If the nearest sure row was asked for, the verdict
            and the changes come first, then the prediction, how far the uncertainty
            falls and which change brings most of it; it says when no sure row was
            found, and when the one found is less plausible than was demanded.
            Otherwise the highlighted changes, the uncertainty and whether the
            prediction stays; also when nothing had to change, or when the plain
            auto-encoding of the row did most of it.
        """
        return _words.summary(self.to_dict())

    def _repr_html_(self):
        shown = self[: _rendering.MAX_ROWS]
        return _rendering.table(shown.to_dict(), n_rows=len(self))

    def to_html(self, path):
        """Write one page with all rows, to open in any browser.

        It is the part of a :func:`report` that holds the rows: a table that can be
        searched, sorted and filtered, with what would make the model sure in words
        first and the figures of a row at a click.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write. It needs no network and no other file.

        Returns
        -------
        path : pathlib.Path
            The file written.
        """
        return _page.save(_page.write_rows(self.to_dict()), path)

    def drivers(self):
        """Tell for each column how much of the uncertainty it drives, over all rows.

        Returns
        -------
        frame : DataFrame
            One line per column of `X`, of polars if `X` is and of pandas otherwise,
            with the most important one first:

            - `feature`: its name;
            - `n_changed`: in how many rows it changes;
            - `mean_contribution`: what it contributes on average to the fall of the
              uncertainty, over all rows, in the unit of the uncertainty;
            - `share`: its share of the whole fall; missing if there is none;
            - `direction`: where it goes where it changes: `"up"` or `"down"` if two
              thirds of the moves do, else `"both"`, `"filled"` if all that happens is
              that gaps are filled, the most frequent new category after `"to"`, or
              `"stays"`;
            - `median_change`: by how much a number moves where it changes, in the units
              of `X`, and a duration in the unit that its column is counted in.

            Without `contributions`, `mean_contribution` and `share` are left out, and
            the column that changes most often comes first.

        See Also
        --------
        sklearn_clue.plotting.DriversDisplay : The picture of it.
        """
        if self.image_shape is not None:
            raise ValueError(
                "The rows of this explanation are images, whose pixels are no drivers "
                "by themselves. Look at explanation.plot(), or at the mean of "
                "explanation.contributions."
            )
        return _tables.frame(_facts.drivers(self), like=self.X)

    def plot(self, **kwargs):
        """Draw the explanation.

        Parameters
        ----------
        **kwargs : dict
            Passed on to `from_explanation` of the display. With `max_rows` or `kind`
            single rows are drawn, however many there are.

        Returns
        -------
        display : DriversDisplay, ExplanationDisplay or ImageExplanationDisplay
            The picture drawn: what drives the uncertainty if there are more than six
            rows and `contributions` are known, and else single rows; images if
            `image_shape` is given. The picture says how many rows it leaves out.
        """
        from sklearn_clue import plotting

        is_many = len(self) > _MANY and kwargs.keys().isdisjoint(("max_rows", "kind"))
        if self.image_shape is not None:
            display = plotting.ImageExplanationDisplay
        elif is_many and self.contributions is not None:
            display = plotting.DriversDisplay
        else:
            display = plotting.ExplanationDisplay
        return display.from_explanation(self, **kwargs)


_MANY = 6  # rows above which a picture shows them together
_SPREAD = "standard deviation"
_NOT_PER_ROW = {
    "schema",
    "is_classification",
    "candidate_details",
    "image_shape",
    "distance_weight",
    "threshold",
    "target",
    "kind",
    "classes",
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
