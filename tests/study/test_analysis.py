"""What is made of the answers of a study: known answers, and the paper's own counts."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sklearn_clue.study import _statistics, analyse
from sklearn_clue.study._statistics import CellModel, holm

plt = pytest.importorskip("matplotlib.pyplot")

# Section 5.2 and Appendix: right answers of 100 about rows that the model is sure
# about, and of 80 about others.
PAPER = {
    "CLUE": (71, 77),
    "Human CLUE": (38, 74),
    "Random": (31, 80),
    "Sensitivity": (21, 74),
}


def table(right, sure, methods):
    """Answers from right or wrong, of shape (n_participants, n_questions)."""
    people, questions = np.indices(right.shape).reshape(2, -1)
    sure = np.asarray(sure)[questions]
    return pd.DataFrame(
        {
            "participant": [f"p{p}" for p in people],
            "method": np.asarray(methods, dtype=object)[people],
            "question": [f"q{q}" for q in questions],
            "sure": sure,
            "answer": right.ravel() == sure,
        }
    )


def drawn(rng, n_people=40, n_methods=4, icc=0.1, n_questions=18, effect=0.0):
    """A study whose answers hang together, with an effect of the first method."""
    methods = np.array([f"m{k}" for k in range(n_methods)]).repeat(
        n_people // n_methods
    )
    # Beta-distributed shares have this correlation of the answers of one person.
    mean = np.where(methods == "m0", 0.6 + effect, 0.6)
    concentration = (1 - icc) / icc
    shares = rng.beta(mean * concentration, (1 - mean) * concentration)
    right = rng.random((n_people, n_questions)) < shares[:, np.newaxis]
    return table(right, np.arange(n_questions) < 10, methods)


@pytest.fixture(scope="module")
def paper():
    """The paper's counts, spread at random over ten participants of each method."""
    rng = np.random.default_rng(0)
    tables = [
        table(
            np.hstack(
                [
                    rng.permutation(np.arange(10 * n) < right).reshape(10, n)
                    for n, right in zip((10, 8), counts, strict=True)
                ]
            ),
            np.arange(18) < 10,
            [method] * 10,
        ).assign(participant=lambda t, m=method: m + t["participant"])
        for method, counts in PAPER.items()
    ]
    return pd.concat(tables)


def test_the_counts_of_the_paper(paper):
    analysis = analyse(paper, reference="CLUE")
    found = analysis.methods
    assert (100 * found["accuracy"]).round(1).to_dict() == {
        "CLUE": 82.2,
        "Human CLUE": 62.2,
        "Random": 61.7,
        "Sensitivity": 52.8,
    }
    assert found["accuracy_sure"].tolist() == [0.71, 0.38, 0.31, 0.21]
    assert found["accuracy_unsure"].tolist() == [77 / 80, 74 / 80, 1, 74 / 80]
    assert found["d_prime"].round(2).tolist() == [2.26, 1.10, 2.01, 0.61]
    assert (found["participants"] == 10).all() and (found["answers"] == 180).all()

    # The paper's p-values are those of a Mann-Whitney test on the pooled answers.
    p_values = analysis.pairs.set_index("other")["mann_whitney_p_value"]
    assert {name: f"{p:.2e}" for name, p in p_values.items()} == {
        "Human CLUE": "2.34e-05",
        "Random": "1.47e-05",
        "Sensitivity": "2.60e-09",
    }
    # CLUE is right more often than random rows because people dare to say "sure"; how
    # well they tell the rows apart does not differ clearly.
    pairs = analysis.pairs.set_index("other")
    assert pairs.loc["Random", "p_holm"] < 0.01 < 0.3 < pairs.d_prime_p_holm["Random"]
    assert pairs.loc["Random", "criterion_p_value"] < 0.01
    assert pairs.loc["Sensitivity", "d_prime_p_holm"] < 0.01


def test_words(paper):
    text = str(analyse(paper, reference="CLUE"))
    assert "4 methods, 40 participants, 720 answers" in text
    line = next(line for line in text.splitlines() if line.startswith("Random"))
    for part in ("61.7 %", "31.0 %", "100.0 %", "2.01", "+1.50"):
        assert part in line
    assert "CLUE − Human CLUE" in text and "-0.00" not in text
    assert max(map(len, text.splitlines())) < 120
    one = analyse(paper[paper["method"] == "CLUE"])
    assert len(one.pairs) == 0 and np.isnan(one.p_value)
    assert "differ" not in str(one) and "1 method, 10 participants" in str(one)
    assert repr(one) == "<Analysis of 1 method by 10 participants>"


def test_frames(paper):
    analysis = analyse(paper, n_permutations=9)
    assert analysis.to_frame().equals(analysis.methods)
    assert len(analysis.to_frame("pairs")) == 6
    people = analysis.to_frame("participants")
    assert len(people) == 40
    rates = people.groupby("method")[["right_sure", "right_unsure"]].sum()
    assert rates.loc["CLUE"].tolist() == [71, 77]
    with pytest.raises(ValueError, match="what must be one of 'methods', .*'people'"):
        analysis.to_frame("people")


# --- Intervals ---


def test_variances_are_those_of_generalised_estimating_equations():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(1)
    answers = drawn(rng, icc=0.3).sample(frac=0.8, random_state=0)  # unequal clusters
    right = (answers["sure"] == answers["answer"]).to_numpy(dtype=float)
    cell = 2 * pd.factorize(answers["method"])[0] + ~answers["sure"]
    people, questions = (
        pd.factorize(answers[name])[0] for name in ("participant", "question")
    )
    model = CellModel(right, cell.to_numpy(), people, questions, 8)
    design = (cell.to_numpy()[:, np.newaxis] == np.arange(8)).astype(float)
    covariances = []
    for groups in (people, questions, np.arange(len(right))):
        fitted = sm.GEE(
            right,
            design,
            groups=groups,
            family=sm.families.Binomial(),
            cov_struct=sm.cov_struct.Independence(),
        ).fit(cov_type="bias_reduced")
        assert np.allclose(1 / (1 + np.exp(-fitted.params)), model.shares)
        slope = np.diag(model.shares * (1 - model.shares))  # from log odds to shares
        covariances.append(slope @ fitted.cov_params() @ slope)
    by_person, by_question, by_answer = covariances
    both = by_person + by_question - by_answer
    for slope in (np.eye(8)[3], model.accuracy_slope(0) - model.accuracy_slope(2)):
        expected = max(slope @ each @ slope for each in (both, by_person, by_answer))
        assert model.error(slope) == pytest.approx(np.sqrt(expected), rel=1e-6)


def test_slopes_of_signal_detection():
    rng = np.random.default_rng(0)
    answers = drawn(rng)
    right = (answers["sure"] == answers["answer"]).to_numpy(dtype=float)
    cell = (2 * pd.factorize(answers["method"])[0] + ~answers["sure"]).to_numpy()
    codes = [pd.factorize(answers[name])[0] for name in ("participant", "question")]
    model = CellModel(right, cell, *codes, 8)

    def signals(shares):
        z = norm.ppf((shares * model.n + 0.5) / (model.n + 1))[2:4]
        return np.array([z.sum(), (z[1] - z[0]) / 2])

    steps = 1e-6 * np.eye(8)
    numeric = [
        (signals(model.shares + h) - signals(model.shares - h)) / 2e-6 for h in steps
    ]
    assert np.allclose(np.transpose(numeric), model.signal_slopes(1), atol=1e-6)


def test_answers_that_hang_together_are_worth_less():
    alone = drawn(np.random.default_rng(0), icc=1e-6)
    together = drawn(np.random.default_rng(0), icc=0.5)
    lines = [analyse(each, n_permutations=0).methods for each in (alone, together)]
    widths = [(each["high"] - each["low"]).mean() for each in lines]
    assert widths[1] > 1.5 * widths[0]
    assert analyse(alone, n_permutations=0).icc == pytest.approx(0, abs=0.05)
    assert analyse(together, n_permutations=0).icc == pytest.approx(0.5, abs=0.12)


def test_questions_count_as_well():
    """Hard questions make everybody fail: ten people do not know other questions."""
    hard = np.arange(18) % 2 == 0
    rng = np.random.default_rng(0)
    right = rng.random((10, 18)) < np.where(hard, 0.1, 0.9)
    answers = table(right, np.arange(18) < 10, ["CLUE"] * 10)
    fixed = answers.assign(question=np.arange(len(answers)))  # nobody shares one
    both, alone = (
        analyse(each, n_permutations=0).methods.iloc[0] for each in (answers, fixed)
    )
    assert both["high"] - both["low"] > 1.8 * (alone["high"] - alone["low"])


@pytest.mark.parametrize("is_right", [True, False])
def test_all_or_nothing(is_right):
    right = np.full((10, 18), is_right)
    line = analyse(table(right, np.arange(18) < 10, ["CLUE"] * 10)).methods.iloc[0]
    ends = (line["high"], line["low"]) if is_right else (line["low"], line["high"])
    assert ends[0] == line["accuracy"] == float(is_right)
    assert 0.02 < abs(ends[1] - ends[0]) < 0.15
    assert np.isfinite(line[["d_prime", "d_prime_low", "d_prime_high"]]).all()


def test_few_participants_or_one_kind_of_rows():
    answers = drawn(np.random.default_rng(0), n_people=2, n_methods=2)
    analysis = analyse(answers)
    assert analysis.methods[["low", "high"]].isna().all().all()  # one person each
    assert analysis.p_value == 1 and "–" in str(analysis)
    only_sure = drawn(np.random.default_rng(0))[lambda t: t["sure"]]
    analysis = analyse(only_sure, n_permutations=99)
    assert analysis.methods["d_prime"].isna().all()
    assert analysis.methods[["accuracy", "low", "high"]].notna().all().all()
    assert analysis.pairs["p_value"].notna().all()
    assert analysis.pairs["d_prime_p_value"].isna().all()


@pytest.mark.slow
def test_intervals_hold_the_truth():
    """Of 95 % intervals about 95 % do; with few people and shared questions."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        people = rng.normal(0, 0.5, (40, 1))
        questions = rng.normal(0, 0.5, 18)
        right = rng.random((40, 18)) < 1 / (1 + np.exp(-0.5 - people - questions))
        answers = table(right, np.arange(18) < 10, np.repeat(list("abcd"), 10))
        found = analyse(answers, n_permutations=0).methods
        held.append((found["low"] < 0.6134) & (0.6134 < found["high"]))
    # E expit(0.5 + N(0, 0.5)) = 0.6134. Four methods share questions, so the standard
    # error is that of somewhat more than 400 independent intervals.
    assert 0.94 < np.mean(held) < 0.985


# --- Tests ---


def test_permutations_are_all_counted():
    """Against the test by hand, over all ways to share six people between methods."""
    rng = np.random.default_rng(0)
    right = rng.random((6, 18)) < np.array([0.9] * 3 + [0.5] * 3)[:, np.newaxis]
    answers = table(right, np.arange(18) < 10, ["a"] * 3 + ["b"] * 3)
    scores = right.mean(axis=1)
    gaps = [
        abs(scores[list(group)].mean() - np.delete(scores, group).mean())
        for group in itertools.combinations(range(6), 3)
    ]
    exact = np.mean(np.array(gaps) >= abs(scores[:3].mean() - scores[3:].mean()) - 1e-9)
    found = analyse(answers, n_permutations=20_000)
    assert found.pairs["p_value"][0] == pytest.approx(exact, abs=0.012)
    assert found.p_value == pytest.approx(exact, abs=0.012)  # two methods: the same


@pytest.mark.slow
def test_level_without_an_effect():
    """A test at 5 % finds something in about 5 % of studies without an effect."""
    rng = np.random.default_rng(0)
    found = [
        analyse(drawn(rng), reference="m0", n_permutations=999, random_state=seed)
        for seed in range(500)
    ]
    # Two standard errors of a share of 5 % in 500 are 2 %.
    assert 0.03 <= np.mean([each.p_value <= 0.05 for each in found]) <= 0.07
    single = np.array([each.pairs["p_value"] <= 0.05 for each in found])
    assert 0.03 <= single.mean() <= 0.07
    family = [each.pairs["p_holm"].min() <= 0.05 for each in found]
    assert np.mean(family) <= 0.07
    # Answers taken as independent find twice as much.
    naive = np.array([each.pairs["mann_whitney_p_value"] <= 0.05 for each in found])
    assert naive.mean() > 0.1


def test_effects_are_found():
    rng = np.random.default_rng(0)
    found = [
        analyse(drawn(rng, effect=0.25), reference="m0", n_permutations=199)
        for _ in range(15)
    ]
    assert np.mean([each.pairs["p_value"] <= 0.05 for each in found]) > 0.7
    gaps = [each.pairs["difference"].mean() for each in found]
    assert np.mean(gaps) == pytest.approx(0.25, abs=0.03)


def test_within_participants():
    """Where everybody has seen both methods, differences between people cancel."""
    rng = np.random.default_rng(0)
    skill = np.linspace(0.3, 0.8, 10)[:, np.newaxis]
    gain = np.repeat([0.15, 0.0], 50)
    right = rng.random((10, 100)) < skill + gain
    sure = np.arange(100) % 2 == 0
    answers = table(right, sure, ["a"] * 10)
    answers["method"] = np.where(answers["question"].str[1:].astype(int) < 50, "a", "b")
    within = analyse(answers)
    assert within.methods["participants"].tolist() == [10, 10]
    assert within.p_value < 0.05 and within.pairs["p_value"][0] < 0.05
    apart = answers.assign(participant=answers["participant"] + answers["method"])
    assert analyse(apart).pairs["p_value"][0] > 2 * within.pairs["p_value"][0]


def test_nothing_differs():
    right = np.full((8, 6), True)
    analysis = analyse(table(right, np.arange(6) < 3, ["a"] * 4 + ["b"] * 4))
    assert analysis.p_value == 1
    assert (analysis.pairs.filter(regex="p_value|p_holm") == 1).all().all()


def test_many_participants_are_shuffled_in_parts(monkeypatch, paper):
    whole = analyse(paper, n_permutations=50)
    monkeypatch.setattr(_statistics, "_MAX_AT_ONCE", 7 * 20)  # draws at once: 7, or 3
    parts = analyse(paper, n_permutations=50)
    assert parts.pairs.equals(whole.pairs) and parts.p_value == whole.p_value


def test_same_seed_same_answer(paper):
    first, again = (analyse(paper, n_permutations=99) for _ in range(2))
    assert first.pairs.equals(again.pairs) and first.p_value == again.p_value
    shuffled = analyse(paper.sample(frac=1, random_state=1), n_permutations=99)
    assert np.allclose(
        shuffled.methods.loc[first.methods.index, ["accuracy", "low", "d_prime"]],
        first.methods[["accuracy", "low", "d_prime"]],
    )


def test_holm():
    # Holm (1979): 3 × 0.01, then at least that, 2 × 0.02 = 0.04, and at least 0.04.
    assert holm([0.01, 0.03, 0.02]).tolist() == pytest.approx([0.03, 0.04, 0.04])
    found = holm([np.nan, 0.6, 0.01])
    assert np.isnan(found[0]) and found[1:].tolist() == [0.6, 0.02]


# --- Input ---


def test_checks_and_seconds(paper):
    check = paper.iloc[:40].assign(check=True, question="example", answer=True)
    check = check.drop_duplicates("participant")
    both = pd.concat([paper.assign(check=False, seconds=3.0), check])
    both["method"] = both["method"].astype("category")
    found = analyse(both, n_permutations=0).methods
    assert found["answers"].tolist() == [180] * 4
    assert (found["seconds"] == 3).all()


@pytest.mark.parametrize(
    "change, error, match",
    [
        (lambda t: t.drop(columns="method"), ValueError, "no column 'method'"),
        (lambda t: t.to_numpy(), TypeError, "got ndarray"),
        (lambda t: t.iloc[:0], ValueError, "no answer to analyse"),
        (lambda t: t.assign(answer="sure"), ValueError, "'answer' must hold.*'sure'"),
        (lambda t: t.assign(method=None), ValueError, "Column 'method' has gaps"),
        (lambda t: pd.concat([t, t]), ValueError, "'CLUEp0'.*'q0'.*more than once"),
    ],
)
def test_refuses_tables(paper, change, error, match):
    with pytest.raises(error, match=match):
        analyse(change(paper))


@pytest.mark.parametrize(
    "parameters, match",
    [
        ({"reference": "clue"}, "reference is 'clue', .*'CLUE'"),
        ({"level": 95}, "level must be between 0 and 1, such as 0.95, got 95"),
        ({"n_permutations": -1}, "n_permutations must be a whole number"),
        ({"n_permutations": 1e3}, "n_permutations must be a whole number.*1000.0"),
    ],
)
def test_refuses_parameters(paper, parameters, match):
    with pytest.raises(ValueError, match=match):
        analyse(paper, **parameters)


# --- The picture ---


def test_picture(paper):
    analysis = analyse(paper, n_permutations=0)
    display = analysis.plot()
    left, right = display.ax_
    assert [t.get_text() for t in left.get_yticklabels()] == list(PAPER)
    dots = [line for line in left.lines if line.get_marker() == "."]
    assert [len(line.get_xdata()) for line in dots] == [10] * 4
    assert np.mean(dots[0].get_xdata()) == pytest.approx(100 * 148 / 180)
    points = [line for line in right.lines if line.get_markersize() == 9]
    assert [float(line.get_ydata()[0]) for line in points] == pytest.approx(
        analysis.methods["d_prime"].tolist()
    )
    assert {text.get_text() for text in right.texts} == set(PAPER)
    again = analysis.plot(ax=plt.subplots(1, 2)[1])
    assert again.figure_ is not display.figure_
    with pytest.raises(ValueError, match="needs 2 axes, got 1"):
        analysis.plot(ax=plt.subplots()[1])
    plt.close("all")


def test_picture_of_hostile_names(paper):
    names = {"CLUE": "$x^", "Random": "<b>\ud800" + "long " * 20}
    analysis = analyse(paper.replace({"method": names}), n_permutations=0)
    display = analysis.plot()
    display.figure_.canvas.draw()
    assert r"\$x^" in [t.get_text() for t in display.ax_[0].get_yticklabels()]
    plt.close("all")
