"""The only border between numpy arrays and torch tensors.

Dtype, device, seeding, threads and batching are decided here and nowhere else.
"""

import copy
import signal
import threading
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch

# Half the memory traffic of float64, and far more precision than the minibatch noise
# or the Monte Carlo error of a posterior leave room for.
DTYPE = torch.float32

# Where an answer must not depend on the rows it is asked together with, and more than
# matrix products are at work: elementwise kernels round rows at the end of a vector
# otherwise, and here that shows in the sixteenth digit instead of the seventh.
PRECISE_DTYPE = torch.float64

# Matrix products compute rows in tiles, and rows of an incomplete tile take another
# code path with other rounding. Whole tiles only, and the answer for a row does not
# depend on which rows it is asked together with, down to the last bit.
ROWS_PER_TILE = 16


def as_tensor(array, device="cpu", dtype=DTYPE):
    """Turn an array into a tensor of the package's dtype on a device."""
    array = np.asarray(array)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch has no read-only tensors and no negative strides
    return torch.as_tensor(array, dtype=dtype, device=device)


def check_device(device):
    """Refuse a device that this machine cannot compute on."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device={device!r} cannot be used here: {reason}. Choose another, such as "
            "'cpu'."
        ) from error


def to_numpy(tensor):
    """Turn a tensor into an array that owns its memory."""
    return np.array(tensor.detach().cpu().numpy())


def on_cpu(module):
    """Give a module in the package's dtype on the CPU: itself if it is there."""
    is_there = all(
        weight.device.type == "cpu" and weight.dtype == DTYPE
        for weight in module.parameters()
    )
    return module if is_there else copy.deepcopy(module).to("cpu", DTYPE)


def make_generator(seed, device="cpu"):
    """Give a torch generator of its own to whoever holds the seed."""
    return torch.Generator(device=device).manual_seed(int(seed))


@cache
def load_optimizers():
    """Let torch import what its first optimizer needs, and Ctrl-C wait for that.

    It takes seconds, and an import that is cut off leaves half of its modules behind:
    most optimizers that this process makes later would fail.
    """
    with _interrupts_at_the_end():
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@contextmanager
def _interrupts_at_the_end():
    """Note Ctrl-C, and let it happen after all."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # Python interrupts no other thread, and can give back no handler but its own.
    if not is_main or handler is None:
        yield
        return
    noted = []
    try:
        signal.signal(signal.SIGINT, lambda *args: noted.append(args))
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def one_thread():
    """Compute on one thread for a while.

    The order in which threads add up numbers changes their last digits, and a chain
    amplifies last digits: on one thread its draws do not depend on the number of cores
    or of parallel jobs.
    """
    if getattr(_thread, "is_inside", False):
        yield
        return
    # Each thread has a count of its own, but torch remembers the last one that was set
    # anywhere and gives it to threads that come later. So the count before the first
    # of several came in is what all of them must leave behind.
    with _count.lock:
        if not _count.n_inside:
            _count.original = torch.get_num_threads()
        _count.n_inside += 1
        torch.set_num_threads(1)
    _thread.is_inside = True
    try:
        yield
    finally:
        _thread.is_inside = False
        with _count.lock:
            _count.n_inside -= 1
            torch.set_num_threads(_count.original)


class _ThreadCount:
    """What threads in `one_thread` must know of each other."""

    def __init__(self):
        self.lock = threading.Lock()
        self.n_inside = 0
        self.original = None


_count = _ThreadCount()
_thread = threading.local()


def row_blocks(n_rows, bytes_per_row, budget=2**25):
    """Cut rows into consecutive slices whose work fits a memory budget in bytes."""
    size = max(int(budget // max(bytes_per_row, 1)), 1)
    # Beyond a thousand rows a product gains nothing, and falls out of the cache.
    size = min(max(size // ROWS_PER_TILE, 1) * ROWS_PER_TILE, 1024)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def pad_rows(x):
    """Append rows of zeros until the last tile is complete."""
    return torch.nn.functional.pad(x, (0, 0, 0, -len(x) % ROWS_PER_TILE))


def row_uniforms(x, n_numbers):
    """Give every row random numbers of its own, fixed by what the row holds.

    Monte Carlo estimates made with them are independent between rows, and yet the
    same whenever a row is asked again, in whatever company.

    Parameters
    ----------
    x : Tensor of shape (n_rows, n_columns)
        The rows.

    n_numbers : int
        Numbers per row.

    Returns
    -------
    numbers : Tensor of shape (n_rows, n_numbers)
        Uniform in [0, 1), in float64.
    """
    # Adding zero turns a negative zero into the positive one, which equals it.
    bits = (to_numpy(x).astype(np.float32) + np.float32(0)).view(np.uint32)
    state = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        state = _mix(state ^ column)
    # The generator SplitMix64 (Steele et al., 2014), started at the hash of the row.
    steps = np.arange(1, n_numbers + 1, dtype=np.uint64) * _GOLDEN
    numbers = (_mix(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53
    return torch.as_tensor(numbers, device=x.device)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(state):
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) + _GOLDEN


def even_points(n_points, n_dimensions):
    """Scrambled Sobol points, which fill the unit cube evenly; always the same."""
    engine = torch.quasirandom.SobolEngine(n_dimensions, scramble=True, seed=0)
    return engine.draw(n_points, dtype=PRECISE_DTYPE)


def normal_noise(uniform):
    """Turn uniform numbers into standard normal ones, as even as they are."""
    return torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))


class RandomBatches:
    """Independent random batches of rows held in memory, for each of several networks.

    A pass has as many batches of equal size as it takes to cover the rows once, but
    they are drawn independently of each other, each without repetition: what a
    sampler needs, whose theory is about independent errors. Errors of shuffled
    batches cancel over a pass. A data set that fits in one batch comes whole.

    Batches come the way skorch unpacks them: the inputs, and a tuple of all the rest.

    Parameters
    ----------
    tensors : tuple of Tensor
        Inputs, targets, weights, ..., with the rows on their first axis.

    batch_size : int
        Most rows in a batch.

    n_stacked : int
        Number of networks. Each has batches of its own, and they have the shape
        (n_stacked, n_rows, ...).

    generator : torch.Generator
        Source of the batches.
    """

    def __init__(self, tensors, batch_size, n_stacked, generator):
        self.tensors = tensors
        self.n_stacked = n_stacked
        self.generator = generator
        self.n_rows = len(tensors[0])
        self.n_batches = -(-self.n_rows // batch_size)
        self.batch_size = -(-self.n_rows // self.n_batches)

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        # A window at a random place of a random order is a random batch, and costs no
        # new order for each.
        device = self.tensors[0].device
        shape = (self.n_batches, self.n_stacked, 1)
        orders = torch.stack(
            [
                torch.randperm(self.n_rows, generator=self.generator, device=device)
                for _ in range(self.n_stacked)
            ]
        )
        starts = torch.randint(
            self.n_rows, shape, generator=self.generator, device=device
        )
        window = torch.arange(self.batch_size, device=device)
        for start in starts:
            rows = orders.gather(1, (start + window) % self.n_rows)
            x, *rest = (tensor[rows] for tensor in self.tensors)
            yield x, tuple(rest)
