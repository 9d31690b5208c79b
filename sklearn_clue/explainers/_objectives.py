"""What searches minimise and explanations are ranked by, written once.

An objective is a function of a cost and of the row. The cost is what only the model can
tell: its uncertainty, and how far its prediction has moved. A search asks for it as
seldom as it can, and for the objective as often as it likes.
"""

import torch

# A coordinate this close to where it would like to be, in standard deviations, has
# arrived: longer steps would only take it to the other side and back.
AT_HOME = 1e-3


class Objective:
    """The uncertainty alone; the base of the others.

    Parameters
    ----------
    problem : SearchProblem
        The rows, and whom to ask about them.

    weight : float or Tensor of shape (n_rows,), default=0.0
        What the objective weighs, for each row; not used here.

    prediction_weight : float, default=0.0
        λ_y, the price of another prediction.
    """

    def __init__(self, problem, weight=0.0, prediction_weight=0.0):
        self.problem = problem
        self.x0 = problem.x0
        self.weight = torch.zeros_like(problem.x0[:, 0]) + weight
        self.prediction_weight = prediction_weight
        self.prediction = problem.before[1] if prediction_weight else None

    def cost(self, x, rows):
        """Ask the model about rows; gradients reach x."""
        return self.cost_of(*self.problem.judge(x, rows), rows)

    def cost_of(self, parts, prediction, rows):
        """The cost of what the model has said."""
        cost = self.problem.weigh(parts)
        if self.prediction is None:
            return cost
        before = self.prediction[rows]
        if self.problem.provider.is_classification:  # cross-entropy (Sec. 3)
            tiny = torch.finfo(prediction.dtype).tiny
            shift = -(before * prediction.clamp_min(tiny).log()).sum(1)
        else:
            shift = (prediction - before).square().mean(1)
        return cost + self.prediction_weight * shift

    def value(self, cost, x, rows):
        """The objective of rows whose cost is known.

        Parameters
        ----------
        cost : Tensor of shape (n_proposals,)
            Their cost.

        x : Tensor of shape (n_proposals, n_encoded)
            Valid rows.

        rows : Tensor of int of shape (n_proposals,)
            The rows they are for.

        Returns
        -------
        value : Tensor of shape (n_proposals,)
            The objective.
        """
        return cost

    def gradient(self, cost, slope, x, rows):
        """The gradient of the objective by x, where that of the cost is `slope`."""
        return slope

    def distance(self, x, rows):
        """How far rows have moved: l1 distance in encoded space."""
        return (x - self.x0[rows]).abs().sum(1)


class Penalty(Objective):
    """Uncertainty plus weighted l1 distance (Eq. 4)."""

    def value(self, cost, x, rows):
        """See `Objective`."""
        return cost + self.weight[rows] * self.distance(x, rows)

    def gradient(self, cost, slope, x, rows):
        """See `Objective`."""
        return l1_gradient(x - self.x0[rows], self.weight[rows], slope)


class Threshold(Objective):
    """The l1 distance, and a weight on uncertainty above a target.

    Parameters
    ----------
    problem : SearchProblem
        The rows, and whom to ask about them.

    target : float
        The uncertainty to reach.

    weight : float or Tensor of shape (n_rows,), default=100.0
        The price of uncertainty above the target, in units of distance.
    """

    def __init__(self, problem, target, weight=100.0):
        super().__init__(problem, weight)
        self.target = target

    def value(self, cost, x, rows):
        """See `Objective`."""
        excess = (cost - self.target).clamp_min(0)
        return self.weight[rows] * excess + self.distance(x, rows)

    def gradient(self, cost, slope, x, rows):
        """See `Objective`."""
        price = self.weight[rows] * (cost > self.target)
        ones = torch.ones_like(price)
        return l1_gradient(x - self.x0[rows], ones, price[:, None] * slope)


class Ball(Objective):
    """The uncertainty of rows within some distance; infinite outside.

    Parameters
    ----------
    problem : SearchProblem
        The rows, and whom to ask about them.

    radius : float or Tensor of shape (n_rows,)
        Largest l1 distance in encoded space.
    """

    def __init__(self, problem, radius):
        super().__init__(problem, radius)

    def value(self, cost, x, rows):
        """See `Objective`."""
        is_inside = self.distance(x, rows) <= self.weight[rows]
        return torch.where(is_inside, cost, torch.inf)


class Bounded:
    """Another objective, and a steep price for going beyond some distance.

    Parameters
    ----------
    objective : Objective
        What to minimise within the distance.

    radius : float
        Largest l1 distance in encoded space.
    """

    STEEP = 100.0

    def __init__(self, objective, radius):
        self.objective, self.radius = objective, radius

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def value(self, cost, x, rows):
        """See `Objective`."""
        excess = (self.objective.distance(x, rows) - self.radius).clamp_min(0)
        return self.objective.value(cost, x, rows) + self.STEEP * excess

    def gradient(self, cost, slope, x, rows):
        """See `Objective`."""
        gradient = self.objective.gradient(cost, slope, x, rows)
        is_far = self.objective.distance(x, rows) > self.radius
        price = torch.where(is_far, self.STEEP, 0.0).to(x)
        return gradient + price[:, None] * (x - self.objective.x0[rows]).sign()


class Rough:
    """Another objective, with the cost that some of the networks tell.

    Parameters
    ----------
    objective : Objective
        What to minimise.

    offset : Tensor of shape (n_rows,)
        What is added to the cost of each row.
    """

    def __init__(self, objective, offset):
        self.objective, self.offset = objective, offset

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def cost(self, x, rows):
        """See `Objective`."""
        said = self.objective.problem.judge(x, rows, roughly=True)
        return self.objective.cost_of(*said, rows) + self.offset[rows]


class MaskPenalty(Objective):
    """Uncertainty plus a price for each feature that changed (Eq. 6)."""

    def __init__(self, problem, weight):
        super().__init__(problem, weight)
        # What the limits demand is no change that the search could save.
        self.x0 = problem.within_limits(problem.x0, torch.arange(len(problem)))

    def value(self, cost, x, rows):
        """See `Objective`."""
        return cost + self.weight[rows] * self.n_changed(x, rows)

    def n_changed(self, x, rows):
        """Number of features in which rows differ from those they are for."""
        differs = x != self.x0[rows]
        return sum(differs[:, column.block].any(1) for column in self.problem.schema)


def l1_gradient(gap, weight, slope):
    """Gradient of a weighted l1 distance plus a function with a given slope.

    At the kink it is the subgradient of least length: a coordinate that is where it
    would like to be stays there unless the slope outweighs the distance.

    Parameters
    ----------
    gap : Tensor of shape (n_rows, n_encoded)
        Where each coordinate is, seen from where it would like to be.

    weight : Tensor of shape (n_rows,)
        What a unit of distance costs.

    slope : Tensor of shape (n_rows, n_encoded)
        Slope of the function.

    Returns
    -------
    gradient : Tensor of shape (n_rows, n_encoded)
        Of the sum.
    """
    weight = weight[:, None]
    excess = slope.sign() * (slope.abs() - weight).clamp_min(0)
    return torch.where(gap.abs() < AT_HOME, excess, slope + weight * gap.sign())
