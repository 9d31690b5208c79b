"""From what a method has found to what the user gets."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from sklearn_clue._parallel import run_parallel
from sklearn_clue._tables import take
from sklearn_clue._torch import one_thread
from sklearn_clue.exceptions import SearchConvergenceWarning
from sklearn_clue.explainers._contributions import (
    along_the_way,
    shapley_of_changes,
    up_to_best,
)
from sklearn_clue.explanation import Explanation, SearchPath
from sklearn_clue.uncertainty import Uncertainty, weighted_sum

# Candidates of a row this close to each other, in every position of encoded space
# (standard deviations), tell the same story.
SAME_CANDIDATE = 0.1


class Found(NamedTuple):
    """What the method of an explainer found for some rows, as arrays.

    Candidates of a row are along the second axis.
    """

    x: np.ndarray  # (n_rows, n_candidates, n_encoded)
    n_iter: np.ndarray  # (n_rows, n_candidates)
    converged: np.ndarray  # (n_rows, n_candidates)
    path_z: np.ndarray | None = None  # (n_rows, n_candidates, n_points, n_latent)
    path_value: np.ndarray | None = None  # (n_rows, n_candidates, n_points)
    rebuilt: np.ndarray | None = None  # (n_rows, n_encoded): by the generator alone
    rebuilt_parts: np.ndarray | None = None  # (n_rows, 3): its uncertainty, if known
    floor: np.ndarray | None = None  # (n_rows,): least distance it can rebuild with
    # (n_rows * n_candidates, 3 + n_outputs): what the model has said of x, if known
    said: np.ndarray | None = None
    is_answer: np.ndarray | None = None  # (n_rows, n_candidates): False if it is a copy
    ends_z: np.ndarray | None = None  # (n_rows, n_candidates, 2, n_latent): of a way


class Judged(NamedTuple):
    """Rows as the user gets them, and what the model says of them."""

    table: Any  # in the container of the user
    x: np.ndarray  # (n_rows, n_encoded)
    parts: Uncertainty  # of arrays, in the unit of the search
    prediction: np.ndarray  # (n_rows, n_outputs)

    @classmethod
    def ask(cls, problem, table, x, rows):
        """Judge rows that belong to those of a problem."""
        with one_thread(), torch.no_grad():
            return cls.of(table, x, *problem.judge(torch.as_tensor(x), rows))

    @classmethod
    def of(cls, table, x, parts, prediction):
        """Take what the model has said, as tensors."""
        parts = Uncertainty(*(part.numpy() for part in parts))
        return cls(table, x, parts, prediction.numpy())

    def keep(self, positions):
        """Some of them."""
        return Judged(
            take(self.table, positions),
            self.x[positions],
            Uncertainty(*(part[positions] for part in self.parts)),
            self.prediction[positions],
        )


def run_in_batches(method, problem, batch_size, n_jobs, verbose):
    """Let a method work on the rows of a problem, some at a time.

    Parameters
    ----------
    method : callable
        Picklable, from a problem to a list of `Found`.

    problem : SearchProblem
        All rows.

    batch_size, n_jobs, verbose : int
        See the explainers.

    Returns
    -------
    found : list of Found
        As the method gives them, for all rows.
    """
    calls = [
        partial(_run, method, problem.take(slice(start, start + batch_size)))
        for start in range(0, len(problem), batch_size)
    ]
    batches = run_parallel(calls, n_jobs, max(int(verbose) - 1, 0))
    return [_join(found) for found in zip(*batches, strict=True)]


def _run(method, problem):
    with one_thread():
        return method(problem)


def _join(batches):
    """Put the rows of several batches together; paths may differ in length."""
    joined = {}
    for name in Found._fields:
        pieces = [getattr(found, name) for found in batches]
        if name.startswith("path") and pieces[0] is not None:
            n_steps = max(piece.shape[2] for piece in pieces)
            pieces = [_pad_steps(piece, n_steps) for piece in pieces]
        joined[name] = None if pieces[0] is None else np.concatenate(pieces)
    return Found(**joined)


def _pad_steps(path, n_steps):
    widths = [(0, 0)] * path.ndim
    widths[2] = (0, n_steps - path.shape[2])
    return np.pad(path, widths, constant_values=np.nan)


class Results:
    """Turns what was found for rows into explanations of them.

    Parameters
    ----------
    problem : SearchProblem
        The rows.

    space : EncodedSpace
        The way back to the user's units.

    shown : {ndarray, DataFrame}
        The rows, as explanations show them.

    unit : float
        From the uncertainty of the search to that of the user.

    in_words : callable
        From predictions to labels, or means in the unit of the target.

    about : dict
        What explanations say of the explainer.
    """

    def __init__(self, problem, space, shown, unit, in_words, about):
        self.problem = problem
        self.space = space
        self.unit = unit
        self.in_words = in_words
        self.about = about
        with one_thread():
            self.before = Judged.of(shown, problem.x0.numpy(), *problem.before)

    def in_units(self, parts):
        """Uncertainty in the unit of the user."""
        return Uncertainty(*(self.unit * part for part in parts))

    def judge_candidates(self, found):
        """What the user would get, one `Judged` per `Found`.

        The user gets rows in the user's units. What is reported about them is measured
        on those very rows, encoded again. All at once, because tables have a price per
        call and column.
        """
        n_rows, n_candidates, n_encoded = found[0].x.shape
        rows = np.tile(np.repeat(np.arange(n_rows), n_candidates), len(found))
        x = np.concatenate([each.x.reshape(-1, n_encoded) for each in found])
        table = self.space.decode(x, take(self.before.table, rows), self.before.x[rows])
        shown = self.space.encode_display(table)
        said = np.full((len(x), 1), np.nan)
        if found[0].said is not None:
            # The model need not be asked again about rows that look the same to it.
            said = np.concatenate([each.said for each in found])
            said[~self.problem.is_same(x, shown)] = np.nan
        judged = self._judged(table, shown, rows, said)
        size = n_rows * n_candidates
        return [judged.keep(slice(i * size, (i + 1) * size)) for i in range(len(found))]

    def _judged(self, table, x, rows, said):
        """Ask about rows of which nothing was said."""
        new = np.flatnonzero(np.isnan(said[:, 0]))
        if not len(new):
            return Judged(table, x, Uncertainty(*said[:, :3].T), said[:, 3:])
        asked = Judged.ask(
            self.problem, take(table, new), x[new], torch.as_tensor(rows[new])
        )
        answers = np.column_stack([*asked.parts, asked.prediction])
        if len(new) < len(said):
            said[new] = answers
            answers = said
        return Judged(table, x, Uncertainty(*answers[:, :3].T), answers[:, 3:])

    def explanation(
        self, found, candidates, objective, describe, *, contributions=False, **about
    ):
        """Make an explanation of what was found, the best candidate of each row first.

        Parameters
        ----------
        found : Found
            What the method has found.

        candidates : Judged
            The same as the user gets it, the candidates of each row together.

        objective : Objective or None
            What to rank them by; None if they are in order.

        describe : callable
            From a problem and what is known of its rows before and after to more to
            say of them.

        contributions : bool, default=False
            Whether to divide the fall of the uncertainty between the changes.

        **about : dict
            More to say.

        Returns
        -------
        explanation : Explanation
            About all rows.
        """
        n_rows, n_candidates, _ = found.x.shape
        before, row = self.before, np.repeat(np.arange(n_rows), n_candidates)
        details = pd.DataFrame(
            {
                "row": row,
                "rank": 0,
                "objective": _values(objective, candidates, row),
                **self.in_units(candidates.parts)._asdict(),
                "distance": np.abs(candidates.x - before.x[row]).sum(1),
                "count": 1,
            }
        )
        if objective is None:
            ranked = details[found.is_answer.ravel()]
            ranked = ranked.assign(rank=ranked.groupby("row").cumcount())
        else:
            ranked = _merge_candidates(details, candidates.x)
        chosen = ranked.index.to_numpy()
        best = chosen[ranked["rank"].to_numpy() == 0]
        which = (np.arange(n_rows), best % n_candidates)
        after = candidates.keep(best)
        _warn_unconverged(found.n_iter[which], found.converged[which])
        facts = describe(self.problem, before, after)
        if contributions:
            way = found.path_z if found.ends_z is None else found.ends_z
            facts |= self._contributions(
                after,
                None if way is None else way[which],
                None if found.path_value is None else found.path_value[which],
            )
        rebuilt = None
        if found.rebuilt_parts is not None:
            rebuilt = self.in_units(found.rebuilt_parts.T)
        elif found.rebuilt is not None:
            everyone = torch.arange(n_rows)
            asked = Judged.ask(self.problem, None, found.rebuilt, everyone)
            rebuilt = self.in_units(asked.parts)
        return Explanation(
            X=before.table,
            counterfactuals=after.table,
            candidates=_by_row(take(candidates.table, chosen), ranked["row"], n_rows),
            candidate_details=ranked.reset_index(drop=True),
            uncertainty_before=self.in_units(before.parts),
            uncertainty_after=self.in_units(after.parts),
            uncertainty_reconstructed=rebuilt,
            prediction_before=self.in_words(before.prediction),
            prediction_after=self.in_words(after.prediction),
            distance=details["distance"].to_numpy()[best],
            distance_floor=found.floor,
            objective=None
            if objective is None
            else details["objective"].to_numpy()[best],
            n_iter=found.n_iter[which],
            converged=found.converged[which],
            path=None
            if found.path_z is None
            else SearchPath(found.path_z[which], found.path_value[which]),
            encoded=before.x,
            encoded_counterfactuals=after.x,
            **facts,
            **self.about,
            **about,
        )

    def _contributions(self, after, way, objective):
        """What each change does, by name: of columns, or of pixels along the way."""
        problem, weights = self.problem, self.problem.weights
        ends = [weighted_sum(weights, each.parts) for each in (self.before, after)]
        with one_thread():
            if problem.schema is None:
                way = None if way is None else up_to_best(way, objective)
                values = along_the_way(problem, after.x, way)
                residual = values.sum(1) - (ends[0] - ends[1])
                return {
                    "contributions": self.unit * values,
                    "contributions_residual": self.unit * residual,
                }

            def value(x, rows):
                with torch.no_grad():
                    x, rows = torch.as_tensor(x), torch.as_tensor(rows)
                    return problem.uncertainty(x, rows).numpy()

            shares = shapley_of_changes(
                value,
                self.before.x,
                after.x,
                [column.block for column in problem.schema],
                before=ends[0],
                after=ends[1],
            )
        return {
            "contributions": self.unit * shares.values,
            "contributions_error": self.unit * shares.standard_error,
        }


def _values(objective, candidates, row):
    """Values of the objective, NaN if there is none."""
    if objective is None:
        return np.nan
    rows, x = torch.as_tensor(row), torch.as_tensor(candidates.x)
    parts = Uncertainty(*map(torch.as_tensor, candidates.parts))
    cost = objective.cost_of(parts, torch.as_tensor(candidates.prediction), rows)
    return objective.value(cost, x, rows).numpy()


def _by_row(table, row, n_rows):
    """Cut a table that is sorted by row into pieces, one per row."""
    ends = np.cumsum(np.bincount(row, minlength=n_rows))
    return [
        take(table, slice(start, end))
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def _merge_candidates(details, x):
    """Sort the candidates of each row by objective, and merge those that are alike."""
    if details["row"].is_unique:
        return details
    details = details.sort_values(["row", "objective"], kind="stable")
    kept, counts, ranks = [], [], []
    for _, group in details.groupby("row", sort=False):
        heads = []
        for position in group.index:
            gaps = [np.abs(x[position] - x[head]).max() for head in heads]
            if gaps and min(gaps) < SAME_CANDIDATE:
                counts[len(counts) - len(heads) + int(np.argmin(gaps))] += 1
                continue
            ranks.append(len(heads))
            heads.append(position)
            counts.append(1)
        kept += heads
    details = details.loc[kept]
    details["rank"], details["count"] = ranks, counts
    return details


def _warn_unconverged(n_iter, converged):
    n_open = int((~converged).sum())
    if n_open:
        warnings.warn(
            f"The search of {n_open} of {len(converged)} rows had not come to rest "
            f"after max_iter={n_iter[~converged].max()} steps. Their best step is "
            "returned; raise max_iter for a better one.",
            SearchConvergenceWarning,
            stacklevel=5,
        )
