"""What stands between tables and methods: rows to explain, and what to ask about them.

Methods see tensors of double precision in encoded space, and uncertainty in one unit.
Padding, dtypes, memory, limits and what a valid row is are settled here.
"""

import copy

import numpy as np
import torch

from sklearn_clue._modules import ValidRows
from sklearn_clue._tables import take
from sklearn_clue._torch import PRECISE_DTYPE, pad_rows, row_blocks
from sklearn_clue.generative.protocols import LatentModel
from sklearn_clue.providers import takes_tables
from sklearn_clue.uncertainty import Uncertainty, weighted_sum

# Hidden layers of a hundred networks, or of one for each of some latents.
BYTES_TO_JUDGE = 2**16
BYTES_TO_IMPUTE = 2**15

# Uncertainties that differ by less, in proportion, differ by rounding.
ROUNDING = 1e-9

# Networks that are enough to tell what is worth asking all of them about.
N_ROUGH = 14


def judge(provider, x):
    """Ask a provider about encoded rows.

    Parameters
    ----------
    provider : UncertaintyProvider
        Whom to ask.

    x : Tensor of shape (n_rows, n_encoded)
        Encoded rows. Gradients reach them, if the provider has any.

    Returns
    -------
    parts : Uncertainty
        Of tensors of shape (n_rows,): nats, or standard deviations of the target.

    prediction : Tensor of shape (n_rows, n_outputs)
        Probabilities or means.
    """
    answers = []
    for block in row_blocks(max(len(x), 1), BYTES_TO_JUDGE):
        # Whole tiles, so that answers do not depend on neighbours.
        parts, prediction = provider.uncertainty(pad_rows(x[block]))
        n_rows = len(x[block])
        answers.append(
            [answer[:n_rows].to(PRECISE_DTYPE) for answer in (*parts, prediction)]
        )
    *parts, prediction = map(torch.cat, zip(*answers, strict=True))
    return Uncertainty(*parts), prediction


def usual_level(uncertainty, level, floor=0.0):
    """Give the quantile of the uncertainty of usual rows, and a billionth more.

    Models round a row by its place among others, so that rows which they are equally
    unsure about would lie on either side of the plain quantile by chance. `floor`,
    from `rounding_of`, is the least level that is not zero.
    """
    found = float(np.quantile(uncertainty, level) * (1 + ROUNDING))
    return max(found, floor) if found > 0 else 0.0


def rounding_of(prediction):
    """What predictions may be off by in double precision: no smaller spread counts."""
    return 1e-13 * float(np.abs(np.asarray(prediction)).max())


def as_tensors(parts, prediction):
    """What a provider says of rows of a table, as tensors."""
    return Uncertainty(*map(torch.as_tensor, parts)), torch.as_tensor(prediction)


class SearchProblem:
    """Rows to explain, and all that a method may ask about rows like them.

    Every method takes `rows`, the numbers of the rows in `x0` that what it is asked
    about belongs to: there may be many proposals for a row, in any order.

    Parameters
    ----------
    provider : UncertaintyProvider
        The predictor, on encoded rows.

    schema : FeatureSchema or None
        The columns of encoded space; None if they are pixels between 0 and 1.

    x0 : array-like of shape (n_rows, n_encoded)
        The rows to explain, encoded.

    weights : sequence of 3 floats, default=(1.0, 0.0, 0.0)
        Weights of total, aleatoric and epistemic uncertainty.

    model : LatentModel or ConditionalModel, default=None
        What the method needs of the generator.

    limits : pair of arrays of the shape of x0, default=None
        Lowest and highest values of what may become of each row.

    before : pair, default=None
        What `judge` says of the rows, if that is known.

    lattices : dict of int to ndarray, default=None
        By position, the sorted values that a number can take, besides those of the
        schema.

    tables : pair, default=None
        The `EncodedSpace` and the rows as explanations show them, for a provider that
        is asked about rows of a table.

    Attributes
    ----------
    x0, low, high : Tensor of shape (n_rows, n_encoded)
        Rows and limits; `low` and `high` are None if there are no limits.
    """

    def __init__(
        self,
        provider,
        schema,
        x0,
        *,
        weights=(1.0, 0.0, 0.0),
        model=None,
        limits=None,
        before=None,
        lattices=None,
        tables=None,
    ):
        self.provider = provider
        self.schema = schema
        self.weights = weights
        self.model = model
        self.x0 = torch.as_tensor(x0, dtype=PRECISE_DTYPE)
        self.low, self.high = (
            (None, None) if limits is None else map(torch.as_tensor, limits)
        )
        self._rough = getattr(provider, "thinned", lambda n_members: None)(N_ROUGH)
        self._before = before
        self._tables = tables if takes_tables(provider) else None
        self._valid = _clip_pixels if schema is None else ValidRows(schema)
        self._lattices = {
            at: torch.as_tensor(values, dtype=PRECISE_DTYPE)
            for at, values in (lattices or {}).items()
        }
        self._is_number = torch.zeros(self.x0.shape[1:], dtype=torch.bool)
        for column in () if schema is None else schema.numbers:
            self._is_number[column.span[0]] = True

    def __len__(self):
        return len(self.x0)

    @property
    def is_differentiable(self):
        """Whether gradients of the uncertainty reach rows."""
        return getattr(self.provider, "is_differentiable", True)

    @property
    def has_latents(self):
        """Whether there is a latent space to search in."""
        return isinstance(self.model, LatentModel)

    def take(self, rows):
        """The problem of some of the rows, each as often as it is named."""
        part = copy.copy(self)
        part.x0 = self.x0[rows]
        if self._before is not None:
            parts, prediction = self._before
            parts = Uncertainty(*(values[rows] for values in parts))
            part._before = parts, prediction[rows]
        if self._tables is not None:
            space, shown = self._tables
            numbers = np.arange(len(self))[rows]
            part._tables = space, take(shown, numbers)
        if self.low is not None:
            part.low, part.high = self.low[rows], self.high[rows]
        return part

    @property
    def before(self):
        """Uncertainty and prediction of the rows themselves."""
        if self._before is None and self._tables is not None:
            # As they are, though they may lie outside of the ranges they may move in.
            _, shown = self._tables
            self._before = as_tensors(*self.provider.uncertainty_of_rows(shown))
        elif self._before is None:
            with torch.no_grad():
                self._before = self.judge(self.x0, torch.arange(len(self)))
        return self._before

    def judge(self, x, rows, *, roughly=False):
        """Ask about valid rows.

        Parameters
        ----------
        x : Tensor of shape (n_proposals, n_encoded)
            Encoded rows.

        rows : Tensor of int of shape (n_proposals,)
            The rows they are for.

        roughly : bool, default=False
            Whether to ask some of the networks only, where that is a saving.

        Returns
        -------
        parts : Uncertainty
            Of tensors of shape (n_proposals,): nats, or standard deviations of the
            target.

        prediction : Tensor of shape (n_proposals, n_outputs)
            Probabilities or means.
        """
        if roughly and self.has_rough:
            return judge(self._rough, x)
        if self._tables is None:
            return judge(self.provider, x)
        return as_tensors(*self.provider.uncertainty_of_rows(self._table_of(x, rows)))

    def _table_of(self, x, rows):
        """The very rows that the user would get."""
        space, shown = self._tables
        return space.decode(x.numpy(), take(shown, rows.numpy()), self.x0[rows].numpy())

    def is_same(self, x, other):
        """Which of some encoded rows the model cannot tell from others: booleans."""
        dtype = getattr(self.provider, "input_dtype", np.float64)
        return (x.astype(dtype) == other.astype(dtype)).all(1)

    def weigh(self, parts):
        """The uncertainty to lower, a weighted sum of its parts."""
        return weighted_sum(self.weights, parts)

    def uncertainty(self, x, rows):
        """Ask about valid rows for the uncertainty to lower."""
        # Who wants the total need not pay for its parts.
        if self._tables is not None and tuple(self.weights) == (1, 0, 0):
            total = self.provider.total_of_rows(self._table_of(x, rows))
            return torch.as_tensor(total)
        return self.weigh(self.judge(x, rows)[0])

    @property
    def has_rough(self):
        """Whether some of the networks can be asked instead of all of them."""
        return self._rough is not None

    @property
    def rough(self):
        """Like `uncertainty`, by some of the networks; there if that is a saving."""
        if not self.has_rough:
            raise AttributeError("There are too few networks to ask some of them.")
        return self._ask_roughly

    def _ask_roughly(self, x, rows):
        return self.weigh(self.judge(x, rows, roughly=True)[0])

    def valid(self, x, rows):
        """Make rows that the user could have, within the limits."""
        if self.low is None:
            return self._exact(x, self._valid(x), rows)
        low, high = self.low[rows], self.high[rows]
        return self._exact(x, self._valid(x, low, high), rows)

    def _exact(self, x, valid, rows):
        """Put numbers on their lattices, but for those of the row itself."""
        with torch.no_grad():
            exact = valid.detach().clone() if self._lattices else valid.detach()
            for at, values in self._lattices.items():
                exact[:, at] = _nearest(values, exact[:, at])
            if self._lattices:
                exact = self.within_limits(exact, rows)
            # A value of the row may have more decimals than there were in training.
            x0 = self.x0[rows]
            is_own = (x == x0) & self._is_number
            exact = torch.where(is_own, self.within_limits(x0, rows), exact)
            if not valid.requires_grad:
                return exact
            changed = exact != valid
        return torch.where(changed, exact + (valid - valid.detach()), valid)

    def within_limits(self, x, rows):
        """Move what is outside of the limits to their edge."""
        return x if self.low is None else x.clamp(self.low[rows], self.high[rows])

    def encode(self, x):
        """Latents of rows: the mean of what the generator thinks of them."""
        # A search would amplify what elementwise kernels round differently from batch
        # to batch, so it works in double precision from here on.
        with torch.no_grad():
            return self.model.encode(pad_rows(x)).mean[: len(x)].to(PRECISE_DTYPE)

    def decode(self, z, rows=None):
        """The valid rows that latents stand for; gradients reach the latents.

        Without `rows`, as the generator gives them: with probabilities for categories.
        """
        x = self.model.decode(pad_rows(z))[: len(z)].to(PRECISE_DTYPE)
        return x if rows is None else self.valid(x, rows)

    def impute(self, x, observed, rows):
        """Replace what is not observed by what the generator expects, as valid rows."""
        pieces = [x[:0]]
        with torch.no_grad():
            for block in row_blocks(len(x), BYTES_TO_IMPUTE):
                seen = pad_rows(observed[block].to(x))
                filled = self.model.impute(pad_rows(x[block]), seen)
                pieces.append(filled[: len(x[block])].to(PRECISE_DTYPE))
        return self.valid(torch.cat(pieces), rows)


def _nearest(values, x):
    """The nearest of sorted values; what lies outside of them stays."""
    above = torch.searchsorted(values, x.contiguous()).clamp(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    nearest = torch.where(x - low <= high - x, low, high)
    return torch.where((x < values[0]) | (x > values[-1]), x, nearest)


def _clip_pixels(x, low=0.0, high=1.0):
    return x.clamp(0, 1).clamp(low, high)


def with_slope(function, x):
    """Give the values of a function of each row, and their gradients.

    Parameters
    ----------
    function : callable
        From x to values of shape (n_rows,), each of its own row alone.

    x : Tensor of shape (n_rows, n_encoded)
        Where.

    Returns
    -------
    value : Tensor of shape (n_rows,)
        The values.

    slope : Tensor of shape (n_rows, n_encoded)
        The gradients; zero where they are no numbers.
    """
    there = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = function(there)
        if not value.requires_grad:  # the same everywhere, such as no noise at all
            return value, torch.zeros_like(x)
        # Sum, not mean: each row's slope must not depend on who shares its batch.
        (slope,) = torch.autograd.grad(value.sum(), there)
    # A row without a slope (an overflow far out) must not move to nowhere.
    return value.detach(), slope.nan_to_num(0.0, 0.0, 0.0)
