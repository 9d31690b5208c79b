import signal
import threading

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clue._torch import (
    DTYPE,
    ROWS_PER_TILE,
    RandomBatches,
    as_tensor,
    load_optimizers,
    make_generator,
    on_cpu,
    one_thread,
    pad_rows,
    row_blocks,
    to_numpy,
)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool])
def test_as_tensor_has_one_dtype(dtype):
    tensor = as_tensor(np.ones((2, 3), dtype=dtype))
    assert tensor.dtype == DTYPE
    assert_array_equal(tensor, np.ones((2, 3)))


def test_as_tensor_takes_what_torch_does_not(recwarn):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_array_equal(as_tensor(array[::-1, ::-1]), array[::-1, ::-1])
    array.flags.writeable = False
    as_tensor(array).zero_()
    assert array.sum() == 15
    assert not recwarn.list


def test_to_numpy_owns_its_memory():
    tensor = torch.ones(3, requires_grad=True)
    array = to_numpy(tensor)
    array[0] = 5
    assert tensor[0] == 1


def test_generators_are_their_own():
    state = torch.get_rng_state()
    first, again = (torch.rand(3, generator=make_generator(7)) for _ in range(2))
    assert_array_equal(first, again)
    assert_array_equal(torch.get_rng_state(), state)


@pytest.fixture
def interrupted_import(monkeypatch):
    """Ctrl-C in the middle of what torch does for its first optimizer."""
    steps = []

    def first_optimizer(*args, **kwargs):
        steps.append("begin")
        signal.raise_signal(signal.SIGINT)
        steps.append("end")

    monkeypatch.setattr(torch.optim, "SGD", first_optimizer)
    load_optimizers.cache_clear()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield steps
    signal.signal(signal.SIGINT, handler)
    load_optimizers.cache_clear()


def test_ctrl_c_waits_for_imports(interrupted_import):
    with pytest.raises(KeyboardInterrupt):
        load_optimizers()
    assert interrupted_import == ["begin", "end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_goes_to_whoever_asked_for_it(interrupted_import):
    signal.signal(signal.SIGINT, lambda *args: interrupted_import.append("handled"))
    load_optimizers()
    load_optimizers()
    assert interrupted_import == ["begin", "end", "handled"]


def test_other_threads_leave_ctrl_c_alone(monkeypatch):
    """Only the main thread may set handlers, and no other is interrupted."""
    load_optimizers.cache_clear()
    monkeypatch.setattr(signal, "signal", None)
    thread = threading.Thread(target=load_optimizers)
    thread.start()
    thread.join()
    assert load_optimizers.cache_info().currsize == 1


def test_one_thread_is_given_back_after_errors():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)


@pytest.mark.parametrize("n_rows", [0, 1, 16, 1000, 5000])
@pytest.mark.parametrize("bytes_per_row", [1, 10_000, 10**9])
def test_row_blocks_cover_every_row_once(n_rows, bytes_per_row):
    blocks = row_blocks(n_rows, bytes_per_row)
    rows = [row for block in blocks for row in range(n_rows)[block]]
    assert rows == list(range(n_rows))
    for block in blocks:
        size = block.stop - block.start
        assert size % ROWS_PER_TILE == 0
        assert size == ROWS_PER_TILE or size * bytes_per_row <= 2**25
        assert size <= 1024


@pytest.mark.parametrize("n_rows", [1, 15, 16, 17])
def test_pad_rows_completes_the_last_tile(n_rows):
    padded = pad_rows(torch.ones(n_rows, 3))
    assert len(padded) == (16 if n_rows <= 16 else 32)
    assert padded.sum() == 3 * n_rows


@pytest.mark.parametrize("n_rows, batch_size", [(10, 3), (10, 10), (10, 99), (7, 1)])
def test_batches_are_of_equal_size_without_repetition(n_rows, batch_size):
    rows = torch.arange(n_rows)
    tensors = (rows[:, None].float(), rows, rows * 10)
    batches = RandomBatches(tensors, batch_size, 2, make_generator(0))
    sizes = []
    for x, (y, weight) in batches:
        assert x.shape == (2, y.shape[1], 1)
        assert_array_equal(x[..., 0], y)
        assert_array_equal(weight, 10 * y)
        assert all(len(set(network.tolist())) == y.shape[1] for network in y)
        sizes.append(y.shape[1])
    assert len(sizes) == len(batches) == -(-n_rows // batch_size)
    assert set(sizes) == {-(-n_rows // len(batches))}
    assert sizes[0] <= batch_size


def test_batches_are_independent_within_a_pass():
    # Of shuffled batches, two of the same pass would have the correlation -1/3.
    values = torch.randn(40, 1, generator=make_generator(1))
    batches = RandomBatches((values,), 10, 200, make_generator(0))
    means = [
        torch.stack([x.mean((1, 2)) for x, _ in batches]) - values.mean()
        for _ in range(20)
    ]
    means = torch.cat(means, 1)
    correlation = np.corrcoef(means.numpy())[np.triu_indices(4, 1)]
    # 4000 pairs: a standard error of 0.016.
    assert_allclose(correlation, 0, atol=0.06)
    expected = values.var() / 10 * (1 - 10 / 40)
    assert_allclose(means.var(), expected, rtol=0.05)


def test_batches_differ_from_pass_to_pass_and_between_networks():
    rows = torch.arange(50)
    batches = RandomBatches((rows[:, None],), 50, 2, make_generator(0))
    ((first, _),), ((second, _),) = list(batches), list(batches)
    orders = {tuple(order.flatten().tolist()) for order in (*first, *second)}
    assert len(orders) == 4


def test_modules_are_copied_only_to_move_them(own_process):
    module = torch.nn.Linear(2, 1)
    assert on_cpu(module) is module
    precise = module.double()
    weight = on_cpu(precise).weight
    assert weight.dtype == torch.float32 and precise.weight.dtype == torch.float64
    assert_allclose(weight.detach(), precise.weight.detach(), rtol=1e-6)
