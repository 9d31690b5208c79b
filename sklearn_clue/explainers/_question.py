"""The question for the nearest believable row that the model is sure about."""

import copy
import warnings
from numbers import Integral, Real

import numpy as np
import torch
from scipy.special import entr

from sklearn_clue._tables import take
from sklearn_clue._torch import one_thread
from sklearn_clue._validation import (
    Interval,
    StrOptions,
    check_count,
    check_is_fitted,
)
from sklearn_clue.explainers._density import UsualDensity, usual_densities
from sklearn_clue.explainers._neighbors import StoredRows
from sklearn_clue.explainers._problem import rounding_of, usual_level
from sklearn_clue.explainers._results import Found
from sklearn_clue.explainers._sure import find_sure_rows
from sklearn_clue.providers import unit_of
from sklearn_clue.uncertainty import weights_of_parts

# What is called sure is near chance if its likeliest class is above chance by at most
# this share of the way to 1: six out of ten, of two classes.
NEAR = 0.2


class SureSearch:
    """Find the nearest sure rows, for many rows.

    Parameters
    ----------
    target : float
        Largest uncertainty of a sure row, in the unit of the search.

    stored : StoredRows, UsualDensity or None
        What is kept of the training rows.

    n_explanations : int
        Answers per row.

    **settings : dict
        See `find_sure_rows`.
    """

    def __init__(self, target, stored, n_explanations, **settings):
        self.target = target
        self.stored = stored
        self.n_explanations = n_explanations
        self.settings = settings

    def objective(self, problem, trade_off):
        """None: candidates come in their order."""
        return None

    def __call__(self, problem):
        """Search for all rows of a problem."""
        found = find_sure_rows(
            problem,
            self.target,
            stored=self.stored,
            n_explanations=self.n_explanations,
            **self.settings,
        )
        n_asked = found.n_judged[:, None].expand(-1, self.n_explanations)
        is_answer = torch.arange(self.n_explanations) < found.n_found[:, None]
        return [
            Found(
                x=found.x.numpy(),
                n_iter=n_asked.numpy(),
                converged=np.ones(n_asked.shape, dtype=bool),
                is_answer=is_answer.numpy(),
            )
        ]


def entropy_at_most(probability, n_classes):
    """The largest entropy with which a class can have a probability, in nats."""
    rest = (1 - probability) / (n_classes - 1)
    return entr(probability) + (n_classes - 1) * entr(rest)


def likeliest_class(entropy, n_classes):
    """The largest probability that a class can have at an entropy in nats.

    All others share the rest evenly then.
    """
    probability = np.linspace(1, 1 / n_classes, 1001)
    entropies = entropy_at_most(probability, n_classes)
    return float(np.interp(entropy, entropies, probability))


class AsksForSureRows:
    """What explainers that ask for the nearest sure row share.

    A mixin left of `BaseUncertaintyExplainer`, with the parameters
    `target_uncertainty`, `min_plausibility`, `max_distance`, `n_neighbors` and
    `n_explanations`.
    """

    _parameter_constraints: dict = {
        "target_uncertainty": [Interval(Real, 0, None, closed="left"), None],
        "min_plausibility": [
            StrOptions({"row"}),
            Interval(Real, 0, 1, closed="both"),
            None,
        ],
        "max_distance": [Interval(Real, 0, None, closed="neither"), None],
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "n_explanations": [Interval(Integral, 1, None, closed="left")],
    }

    _least_level = 0.0  # of explainers that were saved before there was one

    def _fit_method(self, problem, usual):
        self._least_level = rounding_of(problem.before[1])
        self._usual_parts = np.stack(usual, axis=1)
        self._sure_level = 1 - self.rejection_rate
        parts = np.stack([part.numpy() for part in problem.before[0]], axis=1)
        self._stored = self._usual_density = None
        if self._image_shape is None and self.n_neighbors:
            self._stored = StoredRows(problem.x0.numpy(), parts)
        elif self._image_shape is None:
            with one_thread():
                self._usual_density = usual_densities(problem.model, problem.x0.numpy())
        if getattr(self, "distance_weight", None) is not None:
            return
        self._check_demand()
        if self.is_classification_ and self.uncertainty == "total":
            self._warn_of_chance(problem.before[1].shape[1])
        else:
            self._warn_of_nothing()

    def _warn_of_chance(self, n_classes):
        """Say so where rows count as sure that are hardly better than a guess."""
        target, chance = self._target(), 1 / n_classes
        best = likeliest_class(target, n_classes)
        if self.target_uncertainty is not None or best > chance + NEAR * (1 - chance):
            return
        wished = 0.8
        warnings.warn(
            f"This model is unsure of most rows. At rejection_rate="
            f"{self.rejection_rate}, rows count as sure up to an entropy of "
            f"{target:.3g} nats, where the likeliest of {n_classes} classes has a "
            f"probability of {best:.2g} at most (chance: {chance:.2g}). Set "
            f"target_uncertainty for explanations that are sure of something, for "
            f"example {entropy_at_most(wished, n_classes):.2f} for a probability of "
            f"{wished}.",
            UserWarning,
            stacklevel=7,
        )

    def _warn_of_nothing(self):
        """Say so where the model has none of the uncertainty that is asked about."""
        weights = weights_of_parts(self.uncertainty)
        levels = self._usual_parts.max(axis=0)
        if levels @ weights > self._least_level or levels[0] <= self._least_level:
            return
        warnings.warn(
            f"This model is unsure, and has none of the uncertainty that is asked "
            f"about, uncertainty={self.uncertainty!r}: it is zero for all training "
            "rows, so all of them count as sure. A single model has no epistemic "
            "part; ask for the total, or take an ensemble or a BayesianMLPClassifier.",
            UserWarning,
            stacklevel=7,
        )

    def _check_demand(self):
        """Refuse a level of plausibility that nothing here can tell."""
        is_number = isinstance(self.min_plausibility, Real)
        if is_number and self._image_shape is None and self._measure() is None:
            raise ValueError(
                f"min_plausibility={self.min_plausibility} cannot be judged: with "
                f"n_neighbors={self.n_neighbors} no training rows are stored, and "
                "there is no generator with a density. Fit with n_neighbors above 0, "
                "or set min_plausibility=None."
            )

    def _takes_values(self):
        return True

    def _target(self):
        """The uncertainty to reach, in the unit of the search."""
        if self.target_uncertainty is not None:
            return self.target_uncertainty / unit_of(self._provider)
        weights = weights_of_parts(self.uncertainty)
        return usual_level(
            self._usual_parts @ weights, self._sure_level, self._least_level
        )

    def _sure_search(self, **settings):
        self._check_demand()
        return SureSearch(
            self._target(),
            self._measure(),
            self.n_explanations,
            demand=self.min_plausibility,
            max_distance=self.max_distance,
            n_neighbors=self.n_neighbors,
            **settings,
        )

    def _stored_rows(self):
        """Training rows with the uncertainty that is asked about."""
        if self._stored is None:
            return None
        stored = copy.copy(self._stored)
        stored.uncertainty = stored.uncertainty @ weights_of_parts(self.uncertainty)
        return stored

    def _measure(self):
        """What tells plausibility: stored rows, the generator's density, or None."""
        usual = getattr(self, "_usual_density", None)
        if self._stored is None and usual is not None:
            return UsualDensity(usual, self._model())
        return self._stored_rows()

    def _describe_sure(self, problem, before, after):
        """What an explanation says of sure rows."""
        unit, measure = unit_of(self._provider), self._measure()
        facts = {"target": unit * self._target()}
        if measure is not None:
            own, theirs = (measure.plausibility(rows.x) for rows in (before, after))
            facts |= {"plausibility_before": own, "plausibility": theirs}
            least = self.min_plausibility
            if least is not None:
                least = np.minimum(own, 0.5) if least == "row" else least
                facts["is_plausible"] = theirs >= least - 1e-9
        return facts

    def _gives_contributions(self, trade_offs):
        return self._image_shape is None

    def _score_sure(self, X):
        """See `CLUEExplainer.score`."""
        X = self._check_rows(X, reset=False)
        rejected = np.flatnonzero(self.rejects(X))
        if not len(rejected):
            warnings.warn(
                f"None of the {X.shape[0]} rows is rejected, so there is nothing to "
                "score: NaN. Pass more rows, or raise rejection_rate.",
                UserWarning,
                stacklevel=3,
            )
            return np.nan
        explanation = self.explain(take(X, rejected), contributions=False)
        is_good = explanation.is_sure
        if explanation.is_plausible is not None:
            is_good = is_good & explanation.is_plausible
        nearness = 0.0
        if is_good.any():
            nearness = 1 / (1 + explanation.distance[is_good].mean())
        return float((is_good.sum() + nearness) / len(rejected))

    def nearest_sure(self, X, n_neighbors=1):
        """Give the nearest training rows that the model is sure about.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to compare with.

        n_neighbors : int, default=1
            Rows wanted for each.

        Returns
        -------
        rows : list of {ndarray, DataFrame}
            For each row of X the nearest first, in the container of X. What was stored
            is encoded, so numbers come back within rounding.
        """
        check_is_fitted(self, "estimator_")
        check_count("n_neighbors", n_neighbors)
        stored = self._stored_rows()
        if stored is None:
            raise ValueError(
                "No training rows were stored, so there are none to give. Fit with "
                "n_neighbors above 0, and not on images."
            )
        X = self._check_rows(X, reset=False)
        shown = self._space.display(X)
        x0 = self._space.encode_display(shown)
        found, *_ = stored.nearest_sure(x0, self._target(), n_neighbors)
        return [
            self._space.decode(
                rows,
                take(shown, np.full(len(rows), i)),
                np.repeat(x0[i : i + 1], len(rows), axis=0),
            )
            for i, rows in enumerate(found)
        ]
