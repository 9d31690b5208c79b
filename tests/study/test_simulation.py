"""Simulated studies: planted effects come back, and none is found where none is."""

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_clue.study import analyse, simulate

EFFECT = {"neighbors": 0.85, "sensitivity": 0.7, "random": 0.6, "none": 0.6}


def test_planted_effects_are_recovered(study):
    made = simulate(study, EFFECT, 20, n_studies=20, random_state=0)
    np.testing.assert_allclose(made.methods["planted"], list(EFFECT.values()))
    # An accuracy of 20 participants with ICC 0.1 has a standard error of about 0.04.
    np.testing.assert_allclose(
        made.methods["accuracy"], made.methods["planted"], atol=4 * 0.04 / np.sqrt(20)
    )
    np.testing.assert_allclose(
        made.pairs["difference"], made.pairs["planted"], atol=6 * 0.04 / np.sqrt(20)
    )
    power = made.pairs.set_index(["method", "other"])["power"]
    assert made.power >= 0.95
    assert power["neighbors", "none"] >= 0.9
    assert power["random", "none"] <= 0.2


def test_no_effect_is_rarely_found(study):
    """The bar is 5 % +- 2 % of the studies, which the slow test holds."""
    made = simulate(study, 0.65, 10, 0.1, n_studies=30, random_state=0)
    # More than 6 of 30 have a probability of 0.001 at a rate of 0.05.
    assert made.power <= 6 / 30
    assert made.pairs["planted"].eq(0).all()


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", [0.65, (0.4, 0.9)])
def test_five_percent_without_an_effect(study, accuracy):
    """The bar of 5 % +- 2 %; of 500 studies, the standard error would be 1 %."""
    made = simulate(study, accuracy, 10, 0.1, n_studies=1000, random_state=0)
    assert 0.03 <= made.power <= 0.07
    # Intervals are about other questions as well.
    assert made.methods["coverage"].between(0.9, 0.99).all()


@pytest.mark.parametrize("icc", [0.0, 0.1, 0.4])
def test_answers_of_a_participant_hang_together_as_asked(study, icc):
    made = simulate(
        study, 0.7, 400, icc, question_spread=0, n_studies=1, random_state=0
    )
    assert analyse(made.answers, n_permutations=0).icc == pytest.approx(icc, abs=0.02)


def test_questions_differ_as_asked(study):
    spread = 1.0
    made = simulate(
        study, 0.5, 500, 0.0, question_spread=spread, n_studies=1, random_state=0
    )
    answers = made.answers.assign(right=made.answers["sure"] == made.answers["answer"])
    share = answers.groupby(["question", "method"])["right"].mean().unstack()
    # Easy for one method, easy for all.
    assert share.corr().to_numpy().min() > 0.97
    # At a chance of 1/2 the shares are Φ(s b) with standard normal b.
    ease = norm.ppf(share.mean(axis=1)) / spread
    assert ease.std() == pytest.approx(1, abs=0.4)


def test_pairs_of_shares_are_about_sure_and_unsure_rows(study):
    """People who always say "unsure" are right about unsure rows alone."""
    made = simulate(study, (0.2, 0.9), 100, n_studies=1, random_state=0)
    methods = analyse(made.answers, n_permutations=0).methods
    np.testing.assert_allclose(methods["accuracy_sure"], 0.2, atol=0.15)
    np.testing.assert_allclose(methods["accuracy_unsure"], 0.9, atol=0.15)
    np.testing.assert_allclose(made.methods["planted"], (10 * 0.2 + 8 * 0.9) / 18)


def test_answers_are_a_table_of_answers(study):
    made = simulate(study, 0.7, 3, n_studies=2, random_state=0)
    assert len(made.answers) == 4 * 3 * 18
    assert made.answers["participant"].nunique() == 12
    assert list(made.answers) == [
        *("participant", "variant", "method", "question", "position"),
        *("sure", "answer", "seconds", "check"),
    ]
    assert made.power_error == np.sqrt(made.power * (1 - made.power) / 2)
    assert repr(made).startswith("<Simulation of 2 studies with 12 participants")


def test_same_seed_same_studies(study):
    one, again, other = (
        simulate(study, 0.7, 3, n_studies=1, random_state=seed).answers["answer"]
        for seed in (0, 0, 1)
    )
    assert one.equals(again) and not one.equals(other)


def test_reference_leaves_fewer_pairs(study):
    made = simulate(study, 0.7, 3, n_studies=1, reference="none", random_state=0)
    assert set(made.pairs["method"]) == {"none"}
    assert len(made.pairs) == 3


@pytest.mark.parametrize(
    "effect, message",
    [
        ({"neighbors": 0.7}, "with each of 'neighbors', 'sensitivity', 'random'"),
        (1.2, "share of right answers between 0 and 1"),
        ((0.1, 0.2, 0.3), "or a pair of them"),
    ],
)
def test_wrong_effects_are_refused(study, effect, message):
    with pytest.raises(ValueError, match=message):
        simulate(study, effect)


def test_wrong_parameters_are_refused(study):
    with pytest.raises(ValueError, match="'icc' parameter"):
        simulate(study, 0.7, icc=1.0)
    with pytest.raises(ValueError, match="'n_participants' parameter"):
        simulate(study, 0.7, n_participants=1)
