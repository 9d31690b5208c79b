"""What the answers of a user study say about the methods."""

import itertools
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu
from sklearn.utils import check_random_state

from sklearn_clue import _words
from sklearn_clue._validation import listing
from sklearn_clue.plotting import StudyDisplay
from sklearn_clue.study import _statistics
from sklearn_clue.study._answers import answers_table

_FRAMES = ("methods", "pairs", "participants")
_COUNTS = ["right_sure", "n_sure", "right_unsure", "n_unsure"]


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """What the answers of a user study say about the methods; `analyse` documents it.

    Parameters
    ----------
    methods, pairs, participants : DataFrame
        One line per method, pair of methods, and participant.

    p_value : float
        Whether the methods differ at all.

    icc : float
        How much the answers of a participant hang together.

    level : float
        The level of the intervals.

    n_permutations : int
        The permutations that p-values rest on.
    """

    methods: pd.DataFrame
    pairs: pd.DataFrame
    participants: pd.DataFrame
    p_value: float
    icc: float
    level: float
    n_permutations: int

    def to_frame(self, what="methods"):
        """Return one of the tables.

        Parameters
        ----------
        what : {"methods", "pairs", "participants"}, default="methods"
            Which one.

        Returns
        -------
        frame : DataFrame
            A copy of it.
        """
        if what not in _FRAMES:
            raise ValueError(f"what must be one of {listing(_FRAMES)}, got {what!r}.")
        return getattr(self, what).copy()

    def plot(self, ax=None):
        """Draw accuracies with their intervals, and d′ against the criterion.

        Parameters
        ----------
        ax : array of two Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        display : StudyDisplay
            The display, drawn.
        """
        return StudyDisplay(self.methods, self.participants, level=self.level).plot(ax)

    def __repr__(self):
        people = self.participants["participant"].nunique()
        return (
            f"<Analysis of {_words.count(len(self.methods), 'method')} by "
            f"{_words.count(people, 'participant')}>"
        )

    def __str__(self):
        people = self.participants["participant"].nunique()
        lines = [
            f"{_words.count(len(self.methods), 'method')}, "
            f"{_words.count(people, 'participant')}, "
            f"{_words.count(int(self.methods['answers'].sum()), 'answer')}. "
            f"Intervals of {_words.percent(self.level)}, for other participants and "
            "questions like these.",
            "",
            *_aligned(_method_cells(self.methods)),
        ]
        if len(self.pairs):
            lines += [
                "",
                "Do the methods differ in accuracy at all? "
                f"{_p_value(self.p_value, '=')}.",
                "",
                *_aligned(_pair_cells(self.pairs)),
            ]
        lines += ["", *_notes(self)]
        return "\n".join(lines)


def analyse(
    answers, *, reference=None, level=0.95, n_permutations=9999, random_state=0
):
    """Compare the methods of a user study by the answers of its participants.

    Parameters
    ----------
    answers : Answers or DataFrame
        What :func:`read_answers` or :func:`simulate` gives: one line per answer with
        `participant`, `method`, `question`, `sure` (whether the model is sure about
        the test row) and `answer` (whether the participant said so), and where known
        `seconds` and `check`. Attention checks are left out.

    reference : str, default=None
        A method that the others are compared with. None compares all pairs, and
        corrects for as many.

    level : float, default=0.95
        Level of the intervals.

    n_permutations : int, default=9999
        How often participants are shuffled for the p-values, of which the smallest
        possible is `1 / (n_permutations + 1)`. 0 leaves the permutation tests out.

    random_state : int, RandomState instance or None, default=0
        Fixes the permutations.

    Returns
    -------
    analysis : Analysis
        Print it, or draw it by its `plot()`. It holds, and `to_frame(what)` copies:

        - `methods`, one line per method, by its name: `participants`, `answers`,
          `accuracy` with its interval from `low` to `high`, `accuracy_sure` and
          `accuracy_unsure` (about test rows that the model is sure or unsure about),
          `d_prime` with `d_prime_low` and `d_prime_high`, `criterion`, and `seconds`
          (the median time of an answer);
        - `pairs`, one line per pair of methods, `method` and `other`: the `difference`
          of their accuracies with `low` and `high`, `p_value` and `p_holm`;
          `d_prime_difference`, `d_prime_p_value` and `d_prime_p_holm`;
          `criterion_difference` and `criterion_p_value`; and `mann_whitney_p_value`;
        - `participants`, one line per participant and method: right answers and all
          answers about sure and unsure test rows, and the `accuracy`;
        - `p_value`: whether the methods differ in accuracy at all, by permutation;
        - `icc`: the share of the variance of right and wrong that lies between
          participants of a method, as :func:`simulate` takes it.

    See Also
    --------
    sklearn_clue.study.read_answers : Reads the files of the participants.
    sklearn_clue.study.simulate : Says how many participants a study needs.

    Notes
    -----
    **Intervals** respect that the answers of a participant hang together, and those to
    a question as well. They are those of generalised estimating equations with an
    independent working correlation, both participants and questions as clusters [1]_,
    and the small-sample correction of [2]_, with as many degrees of freedom as there
    are participants of the method (or questions, if fewer), less one. They speak of
    other participants and other questions of the same kind.

    **p-values** come from shuffling the methods among participants, two-sided, and
    speak of these questions. If a method makes no difference to whom it is shown, a
    p-value of at most 0.05 has a probability of at most 0.05, however few the
    participants are and however much their answers hang together. Where participants
    have seen both methods of a pair, the two are swapped within participants instead.
    `p_holm` is corrected for the number of pairs.

    **Signal detection.** Somebody who says "unsure" always is right about all unsure
    rows, and a method that only makes people say so more often will look good where
    there are many of these. `d_prime` is how well people tell both kinds of rows apart
    whatever they prefer to say, and `criterion` what they prefer: above 0 rather
    "unsure". Both are made of the pooled answers of a method with the log-linear
    correction [3]_. Pooling people with different criteria lowers d′ a little.

    **Mann-Whitney** on the pooled answers is the test of the paper [4]_. It takes all
    answers as independent and finds too much: with ten participants per method, 18
    questions and an `icc` of 0.1, it called 24 % of the pairs different at the 5 %
    level in simulated studies where nothing differed. It is here for comparison.

    References
    ----------
    .. [1] A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust Inference With Multiway
       Clustering", Journal of Business & Economic Statistics 29(2), 2011.

    .. [2] L. A. Mancl, T. A. DeRouen, "A Covariance Estimator for GEE with Improved
       Small-Sample Properties", Biometrics 57(1), 2001.

    .. [3] M. J. Hautus, "Corrections for extreme proportions and their biasing effects
       on estimated values of d′", Behavior Research Methods 27(1), 1995.

    .. [4] J. Antorán, U. Bhatt, T. Adel, A. Weller, J. M. Hernández-Lobato, "Getting a
       CLUE: A Method for Explaining Uncertainty Estimates", ICLR 2021, Section 5.2.

    Examples
    --------
    The counts of the paper: right answers of 100 about sure and of 80 about unsure
    rows. Who answered what is not known, so they are spread over ten participants per
    method at random.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_clue.study import analyse
    >>> counts = {
    ...     "CLUE": (71, 77),
    ...     "Human CLUE": (38, 74),
    ...     "Random": (31, 80),
    ...     "Sensitivity": (21, 74),
    ... }
    >>> rng = np.random.default_rng(0)
    >>> answers = pd.DataFrame(
    ...     [
    ...         (f"{method} {place % 10}", method, f"{sure} {place // 10}", sure, right)
    ...         for method, both in counts.items()
    ...         for sure, n, n_right in zip((True, False), (100, 80), both)
    ...         for place, right in enumerate(rng.permutation(n) < n_right)
    ...     ],
    ...     columns=["participant", "method", "question", "sure", "right"],
    ... )
    >>> answers["answer"] = answers["sure"] == answers.pop("right")
    >>> analysis = analyse(answers, reference="CLUE")
    >>> analysis.methods[["accuracy", "low", "high", "d_prime", "criterion"]].round(2)
                 accuracy   low  high  d_prime  criterion
    method
    CLUE             0.82  0.71  0.90     2.26       0.58
    Human CLUE       0.62  0.55  0.69     1.10       0.85
    Random           0.62  0.56  0.67     2.01       1.50
    Sensitivity      0.53  0.47  0.59     0.61       1.10
    >>> analysis.pairs[["other", "p_holm", "d_prime_p_holm"]].round(4)
             other  p_holm  d_prime_p_holm
    0   Human CLUE  0.0012          0.0046
    1       Random  0.0012          0.5714
    2  Sensitivity  0.0003          0.0021

    People are right more often with CLUE than with random rows, but these answers do
    not show that they tell sure from unsure rows any better: with random rows they
    rather say "unsure", as the criterion tells.
    """
    table = answers_table(answers)
    _check_parameters(level, n_permutations)
    names = list(dict.fromkeys(table["method"]))
    pairs = _pairs(names, reference)
    method = pd.Categorical(table["method"], categories=names).codes.astype(np.intp)
    sure = table["sure"].to_numpy(dtype=bool)
    right = (sure == table["answer"].to_numpy(dtype=bool)).astype(float)
    cell = 2 * method + ~sure
    people, _ = pd.factorize(table["participant"])
    questions, _ = pd.factorize(table["question"])
    model = _statistics.CellModel(right, cell, people, questions, 2 * len(names))

    units = _units(table, names, people, method, cell, right)
    n_people = np.bincount(units["code"], minlength=len(names))
    n_questions = np.array(
        [len(np.unique(questions[method == k])) for k in range(len(names))]
    )
    methods = _method_table(table, names, model, n_people, n_questions, level)
    rng = check_random_state(random_state)
    p_value = _omnibus_test(units, n_permutations, rng)
    found = {
        pair: _permutation_tests(units, pair, n_permutations, rng)
        for pair in pairs
        if n_permutations
    }
    lines = []
    for a, b in pairs:
        n_degrees = min(
            n_people[a] + n_people[b] - 2,
            len(np.unique(questions[np.isin(method, (a, b))])) - 1,
        )
        gap = methods["accuracy"].iloc[a] - methods["accuracy"].iloc[b]
        error = model.error(model.accuracy_slope(a) - model.accuracy_slope(b))
        low, high = _statistics.interval(gap, error, n_degrees, level)
        line = {
            "method": names[a],
            "other": names[b],
            "difference": gap,
            "low": np.fmax(low, -1.0) if np.isfinite(low) else np.nan,
            "high": np.fmin(high, 1.0) if np.isfinite(high) else np.nan,
            "p_value": np.nan,
        }
        for what in ("d_prime", "criterion"):
            line[f"{what}_difference"] = methods[what].iloc[a] - methods[what].iloc[b]
            line[f"{what}_p_value"] = np.nan
        line |= found.get((a, b), {})
        both = (right[method == a], right[method == b])
        line["mann_whitney_p_value"] = _mann_whitney(*both)
        lines.append(line)
    return Analysis(
        methods=methods,
        pairs=_with_holm(pd.DataFrame(lines, columns=_PAIR_COLUMNS)),
        participants=_participant_table(units),
        p_value=p_value,
        icc=_statistics.intraclass_correlation(right, cell, people),
        level=float(level),
        n_permutations=int(n_permutations),
    )


_PAIR_COLUMNS = [
    "method",
    "other",
    "difference",
    "low",
    "high",
    "p_value",
    "p_holm",
    "d_prime_difference",
    "d_prime_p_value",
    "d_prime_p_holm",
    "criterion_difference",
    "criterion_p_value",
    "mann_whitney_p_value",
]


def _check_parameters(level, n_permutations):
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95, got {level!r}.")
    if not isinstance(n_permutations, Integral) or n_permutations < 0:
        raise ValueError(
            f"n_permutations must be a whole number of at least 0, got "
            f"{n_permutations!r}."
        )


def _pairs(names, reference):
    """Positions of the methods that are compared."""
    if reference is None:
        return list(itertools.combinations(range(len(names)), 2))
    if reference not in names:
        raise ValueError(
            f"reference is {reference!r}, which is none of the methods that were "
            f"answered: {listing(names)}."
        )
    first = names.index(reference)
    return [(first, k) for k in range(len(names)) if k != first]


def _units(table, names, people, method, cell, right):
    """Counts of each participant with each method: what permutations move."""
    n_methods = len(names)
    n_cells = 2 * n_methods
    shape = (people.max() + 1, n_methods, 2)
    place = people * n_cells + cell
    n = np.bincount(place, minlength=np.prod(shape)).reshape(shape)
    n_right = np.bincount(place, right, np.prod(shape)).reshape(shape)
    person, code = np.nonzero(n.sum(axis=2))
    counts = np.stack([n_right, n], axis=-1)[person, code].reshape(-1, 4)
    _, participants = pd.factorize(table["participant"])
    return {
        "person": person,
        "code": code,
        "counts": counts,
        "participant": np.asarray(participants, dtype=object)[person],
        "method": np.asarray(names, dtype=object)[code],
    }


def _participant_table(units):
    frame = pd.DataFrame({name: units[name] for name in ("participant", "method")})
    frame[_COUNTS] = units["counts"].astype(int)
    frame["accuracy"] = _statistics.accuracy(units["counts"])
    return frame


def _method_table(table, names, model, n_people, n_questions, level):
    lines = []
    seconds = table.groupby("method", sort=False, observed=True)["seconds"].median()
    for k, name in enumerate(names):
        pair = slice(2 * k, 2 * k + 2)
        counts = np.stack([model.n_right[pair], model.n[pair]], axis=-1).ravel()
        share = _statistics.accuracy(counts)
        n_degrees = min(n_people[k], n_questions[k]) - 1
        slope = model.accuracy_slope(k)
        smoothed = np.nansum(slope * model.smoothed)
        low, high = _statistics.share_interval(
            share, smoothed, model.error(slope), n_degrees, level
        )
        d_prime, criterion = _statistics.signal_detection(counts)
        d_error = model.error(model.signal_slopes(k)[0])
        d_low, d_high = _statistics.interval(d_prime, d_error, n_degrees, level)
        lines.append(
            {
                "method": name,
                "participants": int(n_people[k]),
                "answers": int(counts[[1, 3]].sum()),
                "accuracy": float(share),
                "low": low,
                "high": high,
                "accuracy_sure": model.shares[2 * k],
                "accuracy_unsure": model.shares[2 * k + 1],
                "d_prime": float(d_prime),
                "d_prime_low": d_low,
                "d_prime_high": d_high,
                "criterion": float(criterion),
                "seconds": float(seconds[name]),
            }
        )
    return pd.DataFrame(lines).set_index("method")


# --- Tests ---


def _blocks(person):
    """Between whom methods may be shuffled.

    Participants of one method each are one block. Whoever has seen several is a block
    of his or her own.
    """
    n_seen = np.bincount(person)[person]
    return np.where(n_seen == 1, 0, person + 1)


def _sorted_by_block(units, chosen):
    blocks = _blocks(units["person"][chosen])
    order = np.argsort(blocks, kind="stable")
    return blocks[order], units["code"][chosen][order], units["counts"][chosen][order]


def _statistics_of(counts):
    return np.stack(
        [_statistics.accuracy(counts), *_statistics.signal_detection(counts)]
    )


def _permutation_tests(units, pair, n_permutations, rng):
    """p-values of the differences of a pair in accuracy, d' and criterion."""
    blocks, codes, counts = _sorted_by_block(units, np.isin(units["code"], pair))
    is_first = (codes == pair[0]).astype(float)
    whole = counts.sum(axis=0)

    def gaps(is_first):
        first = is_first @ counts
        return np.abs(_statistics_of(first) - _statistics_of(whole - first))

    observed = gaps(is_first)
    drawn = _statistics.permuted(gaps, is_first, blocks, n_permutations, rng)
    names = ("p_value", "d_prime_p_value", "criterion_p_value")
    return {
        name: _statistics.permutation_p_value(one, many)
        for name, one, many in zip(names, observed, drawn, strict=True)
    }


def _mann_whitney(right, other):
    """The p-value of the paper's test, on answers that are taken as independent."""
    if np.ptp(np.concatenate([right, other])) == 0:  # all are right, or none is
        return 1.0
    test = mannwhitneyu(right, other, alternative="two-sided", method="asymptotic")
    return float(test.pvalue)


def _omnibus_test(units, n_permutations, rng):
    """The p-value of the spread of the accuracies of all methods."""
    blocks, codes, counts = _sorted_by_block(units, np.full(len(units["code"]), True))
    n_methods = codes.max() + 1
    if n_methods < 2 or not n_permutations:
        return np.nan
    right, n = counts[:, 0] + counts[:, 2], counts[:, 1] + counts[:, 3]

    def spread(codes):
        is_method = [(codes == k).astype(float) for k in range(n_methods)]
        # The sum of squares between methods, up to what no permutation changes.
        return sum((one @ right) ** 2 / (one @ n) for one in is_method)

    drawn = _statistics.permuted(spread, codes, blocks, n_permutations, rng)
    return _statistics.permutation_p_value(spread(codes), drawn)


def _with_holm(pairs):
    for name in ("", "d_prime_"):
        pairs[f"{name}p_holm"] = _statistics.holm(pairs[f"{name}p_value"])
    return pairs


# --- Words ---


def _method_cells(methods):
    yield (
        "",
        "people",
        "answers",
        "right",
        "interval",
        "if sure",
        "if unsure",
        "d′",
        "interval",
        "criterion",
        "seconds",
    )
    for name, line in methods.iterrows():
        yield (
            str(name),
            f"{line['participants']:.0f}",
            f"{line['answers']:.0f}",
            _share(line["accuracy"]),
            _range(100 * line["low"], 100 * line["high"], 0, " %"),
            _share(line["accuracy_sure"]),
            _share(line["accuracy_unsure"]),
            _number(line["d_prime"]),
            _range(line["d_prime_low"], line["d_prime_high"], 2),
            _number(line["criterion"], "+"),
            _words.figure(line["seconds"]) if line["seconds"] >= 0 else "–",
        )


def _pair_cells(pairs):
    yield "", "right", "interval", "p", "Holm", "d′", "p", "Holm", "criterion", "p"
    for line in pairs.itertuples():
        yield (
            f"{line.method} − {line.other}",
            f"{100 * line.difference:+.1f} points",
            _range(100 * line.low, 100 * line.high, 0, sign="+"),
            *map(_p_value, (line.p_value, line.p_holm)),
            _number(line.d_prime_difference, "+"),
            *map(_p_value, (line.d_prime_p_value, line.d_prime_p_holm)),
            _number(line.criterion_difference, "+"),
            _p_value(line.criterion_p_value),
        )


def _notes(analysis):
    yield (
        "right: share of right answers; if sure, if unsure: about test rows that the "
        "model is sure or unsure about."
    )
    yield (
        "d′: how well people tell the two apart; criterion: above 0 they rather say "
        '"unsure".'
    )
    if len(analysis.pairs):
        yield (
            f"p: {analysis.n_permutations:,} permutations of participants, for these "
            "questions; Holm: corrected for the number of pairs."
        )
    if np.isfinite(analysis.icc):
        yield f"Correlation of the answers of a participant: {analysis.icc:z.2f}."


def _aligned(rows):
    """Lines with columns of equal width, the first flush left."""
    rows = [tuple(" ".join(text.split()) for text in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        texts = [first.ljust(widths[0])]
        texts += [t.rjust(w) for t, w in zip(others, widths[1:], strict=True)]
        yield "  ".join(texts).rstrip()


def _share(share):
    return f"{100 * share:.1f} %" if np.isfinite(share) else "–"


def _number(number, sign=""):
    return f"{number:{sign}z.2f}" if np.isfinite(number) else "–"


def _range(low, high, decimals, unit="", sign=""):
    if not (np.isfinite(low) and np.isfinite(high)):
        return "–"
    return f"{low:{sign}.{decimals}f} to {high:{sign}.{decimals}f}{unit}"


def _p_value(p_value, sign=""):
    """A p-value in as many digits as matter."""
    if not np.isfinite(p_value):
        return "–"
    text = f"{p_value:.4f}" if p_value < 0.01 else f"{p_value:.3f}"
    return f"p {sign} {text}" if sign else text
