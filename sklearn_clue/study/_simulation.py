"""Studies that did not take place: how often would an effect be found?"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import pandas as pd
from scipy.stats import beta, norm

from sklearn_clue._validation import Interval, listing, validate_params
from sklearn_clue.study._analysis import analyse

# A p-value is a multiple of 1 / (n + 1): with so many, 0.05 is one.
_N_PERMUTATIONS = 199


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """What became of simulated studies; :func:`simulate` makes it.

    Parameters
    ----------
    power : float
        Share of the studies in which methods differ significantly, by the one test of
        them all.

    pairs : DataFrame
        One line per pair of methods, `method` and `other`: the `planted` difference of
        their accuracies, the mean `difference` that was found, and the `power`: the
        share of the studies in which it is significant after the correction for the
        number of pairs.

    methods : DataFrame
        One line per method: the `planted` accuracy, the mean `accuracy` found, and the
        share of the intervals that hold the planted one, `coverage`.

    answers : DataFrame
        The answers of the first study, as :func:`analyse` takes them.

    n_studies : int
        How many studies were simulated.

    alpha : float
        Level of significance.
    """

    power: float
    pairs: pd.DataFrame
    methods: pd.DataFrame
    answers: pd.DataFrame
    n_studies: int
    alpha: float

    @property
    def power_error(self):
        """Standard error of `power`, by the number of studies."""
        return float(np.sqrt(self.power * (1 - self.power) / self.n_studies))

    def __repr__(self):
        people = self.answers["participant"].nunique()
        return (
            f"<Simulation of {self.n_studies:,} studies with "
            f"{people} participants: methods differ in {self.power:.0%}>"
        )


@validate_params(
    {
        "study": "no_validation",
        "effect": "no_validation",
        "n_participants": [Interval(Integral, 2, None, closed="left")],
        "icc": [Interval(Real, 0, 1, closed="left")],
        "question_spread": [Interval(Real, 0, None, closed="left")],
        "n_studies": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "reference": [str, None],
        "random_state": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def simulate(
    study,
    effect,
    n_participants=10,
    icc=0.1,
    *,
    question_spread=0.5,
    n_studies=200,
    alpha=0.05,
    reference=None,
    random_state=None,
):
    """Simulate studies with a known effect, to see how often it is found.

    This is how to choose the number of participants before there are any: plant the
    smallest effect that would matter, and see in which share of the studies
    :func:`analyse` finds it.

    Parameters
    ----------
    study : Study
        The questions.

    effect : float or dict of str to float or pair
        The share of right answers with each method, for example
        `{"CLUE": 0.8, "random": 0.6}`; one number plants no effect. A pair holds the
        shares among test rows that the model is sure and unsure about.

    n_participants : int, default=10
        Participants per variant.

    icc : float, default=0.1
        Intraclass correlation of right answers: that of any two answers of one
        participant. 0 means that people are all alike.

    question_spread : float, default=0.5
        How much questions differ: standard deviation of their difficulty, in units of
        the noise of a single answer (of a probit model). It is that of a question, for
        all methods alike.

    n_studies : int, default=200
        Studies to simulate.

    alpha : float, default=0.05
        Level of significance.

    reference : str or None, default=None
        The method that others are compared with; None compares all pairs.

    random_state : int or None, default=None
        Fixes the answers.

    Returns
    -------
    simulation : Simulation
        `power`, `pairs`, `methods`, and the `answers` of one of the studies.

    See Also
    --------
    analyse : Also estimates the `icc`, for example in a pilot.

    Notes
    -----
    The ability of a participant has a beta distribution, whose mean is the planted
    share and whose spread gives the intraclass correlation. Given the ability, answers
    are independent, but for the difficulty of the question.

    Permutation tests of simulated studies use 199 permutations, which costs a little
    power in comparison to the 9,999 of :func:`analyse`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer
    >>> from sklearn_clue.study import Study, simulate
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> neighbors = NeighborExplainer(LogisticRegression()).fit(X, X[:, 0] > 0)
    >>> study = Study({"neighbors": neighbors, "none": None}, X, X, random_state=0)
    >>> effect = {"neighbors": 0.8, "none": 0.65}
    >>> few, many = (
    ...     simulate(study, effect, n_participants=n, n_studies=20, random_state=0)
    ...     for n in (5, 20)
    ... )
    >>> few.power, many.power
    (0.1, 0.75)
    """
    shares = _read_effect(study, effect)
    rng = np.random.default_rng(random_state)
    analyses = []
    for _ in range(n_studies):
        answers = _draw_answers(
            study, shares, n_participants, icc, question_spread, rng
        )
        analyses.append(
            analyse(
                answers,
                reference=reference,
                n_permutations=_N_PERMUTATIONS,
                random_state=int(rng.integers(2**31)),
            )
        )
        if len(analyses) == 1:
            first = answers
    return Simulation(
        power=float(np.mean([each.p_value <= alpha for each in analyses])),
        pairs=_pairs(analyses, _planted(study, shares), alpha),
        methods=_methods(analyses, _planted(study, shares)),
        answers=first,
        n_studies=int(n_studies),
        alpha=float(alpha),
    )


def _read_effect(study, effect):
    """Shares of right answers about sure and unsure rows, by variant."""
    if not isinstance(effect, Mapping):
        effect = dict.fromkeys(study.methods, effect)
    if set(effect) != set(study.methods):
        raise ValueError(
            f"effect must say how many answers are right with each of "
            f"{listing(study.methods)}, got {listing(list(effect))}."
        )
    shares = {}
    for name, share in effect.items():
        both = np.asarray(share, dtype=float)
        if both.shape not in ((), (2,)) or not ((both > 0) & (both < 1)).all():
            raise ValueError(
                f"The effect of {name!r} must be a share of right answers between 0 "
                "and 1, or a pair of them for sure and unsure test rows, got "
                f"{share!r}."
            )
        shares[name] = np.broadcast_to(both, 2)
    return shares


def _draw_answers(study, shares, n_participants, icc, question_spread, rng):
    """The answers of one simulated study."""
    first = next(iter(study.variants.values()))
    ease = dict(zip([q.id for q in first], rng.normal(size=len(first)), strict=True))
    tables = []
    for variant, questions in study.variants.items():
        sure = np.array([question.test_is_sure for question in questions])
        mean = np.where(sure, *np.array([shares[q.method] for q in questions]).T)
        # One quantile per participant: who is good at one kind of row is at the other.
        ability = rng.uniform(size=(n_participants, 1))
        if icc > 0:
            # The shares of a beta distribution with a + b = 1/icc - 1 have the variance
            # icc * mean * (1 - mean), which is the covariance of two answers.
            total = 1 / icc - 1
            chance = beta.ppf(ability, mean * total, (1 - mean) * total)
        else:
            chance = np.broadcast_to(mean, (n_participants, len(mean)))
        # Averaged over questions this is the chance again: if b is standard normal,
        # the mean of Φ(c √(1 + s²) + s b) is Φ(c).
        level = norm.ppf(chance) * np.hypot(1, question_spread)
        level += question_spread * np.array([ease[q.id] for q in questions])
        right = rng.uniform(size=chance.shape) < norm.cdf(level)
        shape = right.shape
        tables.append(
            pd.DataFrame(
                {
                    "participant": np.repeat(
                        [f"{variant} {k + 1}" for k in range(n_participants)], shape[1]
                    ),
                    "variant": variant,
                    "method": [q.method for q in questions] * n_participants,
                    "question": [q.id for q in questions] * n_participants,
                    "position": np.tile(np.arange(shape[1]), n_participants),
                    "sure": np.tile(sure, n_participants),
                    "answer": (right == sure).ravel(),
                    "seconds": np.nan,
                    "check": False,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _planted(study, shares):
    """The share of right answers that was planted, by method."""
    planted = {}
    for name, (of_sure, of_unsure) in shares.items():
        sure = np.mean([q.test_is_sure for q in study.questions if q.method == name])
        planted[name] = sure * of_sure + (1 - sure) * of_unsure
    return planted


def _methods(analyses, planted):
    found = pd.concat([each.methods for each in analyses])
    truth = found.index.map(planted)
    found["coverage"] = (found["low"] <= truth) & (truth <= found["high"])
    by_method = found.groupby(level=0, sort=False)
    frame = by_method[["accuracy", "coverage"]].mean()
    frame.insert(0, "planted", frame.index.map(planted))
    return frame


def _pairs(analyses, planted, alpha):
    found = pd.concat([each.pairs for each in analyses])
    found["power"] = found["p_holm"] <= alpha
    by_pair = found.groupby(["method", "other"], sort=False)
    frame = by_pair[["difference", "power"]].mean().reset_index()
    gap = frame["method"].map(planted) - frame["other"].map(planted)
    frame.insert(2, "planted", gap)
    return frame
