import pytest
import torch
from explainers.analytic import AnalyticProblem, bowl, category, number, plane

from sklearn_clue.explainers._polish import polish, put_back, put_back_by_slope
from sklearn_clue.explainers._yardstick import Yardstick
from sklearn_clue.schema import FeatureSchema


def judged(problem, target, x, **more):
    yardstick = Yardstick(problem, target, **more)
    x = torch.as_tensor(x, dtype=torch.float64)
    return yardstick, yardstick.judge(x, torch.arange(len(x)))


@pytest.mark.parametrize("take_back", [put_back, put_back_by_slope, polish])
def test_needless_columns_are_put_back(take_back):
    problem = AnalyticProblem(torch.ones(2, 6), plane)
    yardstick, candidates = judged(problem, 0.5, [[-1.0] * 6, [0, 1, 1, 3, 1, 3]])
    polished = take_back(yardstick, candidates)
    torch.testing.assert_close(polished.x[:, 1:], torch.ones(2, 5).double())
    assert (polished.x[:, 0] <= 0.5).all()


def test_numbers_are_drawn_back_until_just_sure():
    problem = AnalyticProblem([[2.0, 0.0]], plane)
    yardstick, candidates = judged(problem, 1.0, [[-2.0, 0.0]])
    polished = polish(yardstick, candidates)
    assert 0.9 < polished.x[0, 0] <= 1.0


def test_numbers_of_few_values_are_drawn_back_as_well():
    class WholeNumbers(AnalyticProblem):
        def valid(self, x, rows):
            return super().valid(x, rows).round()

    asked = []
    problem = WholeNumbers([[3.0, 0.0]], lambda x: asked.extend(x[:, 0]) or plane(x))
    yardstick, candidates = judged(problem, 1.0, [[-1.0, 0.0]])
    polished = polish(yardstick, candidates)
    assert polished.x.tolist() == [[1.0, 0.0]]
    # A little of the way is rounded away: nobody is asked about the same row again.
    assert asked.count(-1.0) == 1


def test_categories_and_atoms():
    schema = FeatureSchema((number("rain", 0), category("soil", 1, "abc")))
    object.__setattr__(schema.columns[0], "atoms", (0.0,))
    problem = AnalyticProblem(
        [[2.0, 1, 0, 0]], lambda x: x[:, 0] - 0.1 - x[:, 2], schema
    )
    # The category is needed with rain at 1, and rain next to its atom is put on it.
    yardstick, candidates = judged(problem, 0.0, [[0.0, 0, 0, 1], [1.0, 0, 1, 0]][:1])
    polished = polish(yardstick, candidates)
    torch.testing.assert_close(polished.x, torch.tensor([[0.0, 1, 0, 0]]).double())


@pytest.mark.parametrize("seed", range(3))
def test_nothing_good_is_lost_and_nothing_gets_dearer(seed):
    generator = torch.Generator().manual_seed(seed)
    x0 = 1 + torch.rand(20, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(20, 5, generator=generator, dtype=torch.float64) - 0.5
    problem = AnalyticProblem(x0, lambda x: bowl(x) + x[:, 0] * x[:, 1])
    yardstick, candidates = judged(problem, 3.0, x, max_distance=9.0)
    candidates = candidates.keep(yardstick.is_good(candidates))
    assert len(candidates.x) > 10
    polished = polish(yardstick, candidates)
    assert yardstick.is_good(polished).all()
    before, after = (yardstick.cost(c.x, c.rows) for c in (candidates, polished))
    assert (after <= before).all()
    assert (after < before - 0.5).any()
    fresh = problem.uncertainty(polished.x, polished.rows)
    torch.testing.assert_close(polished.uncertainty, fresh)
    assert yardstick.n_judged.sum() < problem.n_asked


def test_dear_columns_are_put_back_first():
    problem = AnalyticProblem([[1.0, 1.0]], lambda x: x.sum(1))
    yardstick, candidates = judged(problem, 1.0, [[0.0, 0.0]])
    for dear, cheap in ((0, 1), (1, 0)):
        yardstick.price = torch.ones(1, 2).double()
        yardstick.price[0, dear] = 5.0
        polished = polish(yardstick, candidates)
        assert polished.x[0, dear] == 1.0
        assert polished.x[0, cheap] <= 0.0 + 1e-9


@pytest.mark.parametrize("wave", [0.0, 0.3])
def test_rough_judgements_save_questions_and_decide_nothing(wave):
    generator = torch.Generator().manual_seed(0)
    x0 = 1 + torch.rand(20, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(20, 5, generator=generator, dtype=torch.float64) - 0.5
    exact, helped = AnalyticProblem(x0, bowl), AnalyticProblem(x0, bowl)
    # Wrong everywhere, and where there is a wave not even by a constant.
    helped.rough = lambda x, rows: bowl(x) + 5 + wave * (9 * x).sin().sum(1)
    polished = []
    for problem in (exact, helped):
        yardstick, candidates = judged(problem, 3.0, x)
        polished.append(polish(yardstick, candidates))
        assert yardstick.is_good(polished[-1]).all()
        fresh = bowl(polished[-1].x)
        torch.testing.assert_close(polished[-1].uncertainty, fresh)
    assert helped.n_asked < 0.7 * exact.n_asked
    if not wave:
        torch.testing.assert_close(polished[0].x, polished[1].x)


def test_the_best_candidates_change_different_things():
    problem = AnalyticProblem([[1.0, 1.0]], lambda x: x.sum(1) - 10)
    x = [[0.9, 1], [0.8, 1], [1.3, 1], [1, 0.6], [1, 0.5], [0.5, 0.5]]
    yardstick = Yardstick(problem, 1.0)
    x = torch.tensor(x, dtype=torch.float64)
    candidates = yardstick.judge(x, torch.zeros(len(x), dtype=torch.long))
    # Each column down, the first one up, and both down: the nearest of each kind.
    assert yardstick.best(candidates, 9).tolist() == [0, 2, 3, 5]
    assert yardstick.best(candidates, 2).tolist() == [0, 2]
