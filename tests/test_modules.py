import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_clue import TabularEncoder
from sklearn_clue._modules import (
    MLPStack,
    ValidRows,
    mlp_outputs,
    mlp_stack,
    unflatten,
)
from sklearn_clue._torch import make_generator


def _by_hand(x, weights, sizes):
    """One network in numpy."""
    start, h = 0, x
    for layer, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        coef = weights[start : start + n_in * n_out].reshape(n_in, n_out)
        start += n_in * n_out
        intercept = weights[start : start + n_out]
        start += n_out
        out = h @ coef + intercept
        if layer == len(sizes) - 2:
            return out
        out = np.maximum(out, 0)
        h = out + h if layer > 0 and n_in == n_out else out


SIZES = [(3, 2), (3, 5, 2), (5, 5, 5), (3, 4, 4, 4, 1), (3, 4, 6, 6, 2)]


@pytest.mark.parametrize("sizes", SIZES)
def test_stack_is_the_networks_one_by_one(sizes):
    stack = MLPStack(sizes, 3, make_generator(0))
    x = torch.randn(3, 7, sizes[0], generator=make_generator(1))
    outputs = stack(x).detach().numpy()
    assert outputs.shape == (3, 7, sizes[-1])
    for network in range(3):
        weights = stack.weights[network].detach().numpy()
        expected = _by_hand(x[network].numpy(), weights, sizes)
        assert_allclose(outputs[network], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES)
def test_prediction_agrees_with_training(sizes):
    stack = MLPStack(sizes, 4, make_generator(0))
    x = torch.randn(9, sizes[0], generator=make_generator(1))
    trained = stack(x.expand(4, *x.shape)).detach()
    coefs, intercepts = unflatten(stack.weights.detach(), stack.shapes)
    assert_allclose(mlp_outputs(x, coefs, intercepts), trained, rtol=1e-4, atol=1e-5)


def test_first_hidden_layer_has_no_residual_connection():
    # Equal widths of input and first hidden layer are a coincidence.
    stack = MLPStack((2, 2, 1), 1, make_generator(0))
    with torch.no_grad():
        stack.weights.zero_()
        stack.weights[0, 6:8] = 1.0  # the output adds up the hidden units
    assert_array_equal(stack(torch.ones(1, 1, 2)).detach(), [[[0.0]]])


def test_networks_do_not_touch_each_other():
    stack = MLPStack((3, 4, 1), 2, make_generator(0))
    stack(torch.ones(2, 5, 3))[0].sum().backward()
    assert stack.weights.grad[0].any()
    assert not stack.weights.grad[1].any()


def test_layers_and_units_of_the_prior():
    stack = MLPStack((3, 4, 2), 1, make_generator(0))
    assert_array_equal(stack.layer, [0] * 16 + [1] * 10)
    assert_array_equal(stack.unit_precision, [1.5] * 16 + [2.0] * 10)


def test_first_weights_have_the_scale_of_the_prior():
    stack = MLPStack((100, 200, 50), 2, make_generator(0))
    is_last = stack.layer == 1
    weights = stack.weights.detach()
    assert_allclose(weights[:, ~is_last].std(), (2 / 100) ** 0.5, rtol=0.03)
    assert_allclose(weights[:, is_last].std(), 0.1 * (2 / 200) ** 0.5, rtol=0.03)
    assert not torch.equal(weights[0], weights[1])


def test_unflatten_cuts_in_order():
    weights = torch.arange(2 * 11.0).reshape(2, 11)
    coefs, intercepts = unflatten(weights, [(2, 2), (2, 1), (1, 1)])
    assert_array_equal(coefs[0][0], [[0, 1], [2, 3]])
    assert_array_equal(intercepts[0][1], [15, 16])
    assert_array_equal(coefs[1][0], [[6], [7]])
    assert_array_equal(intercepts[2], [[10], [21]])


@pytest.mark.parametrize("sizes", SIZES)
def test_gradient_of_outputs_is_that_of_autograd(sizes):
    stack = MLPStack(sizes, 4, make_generator(0))
    shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = unflatten(stack.weights.detach(), shapes)
    x = torch.randn(9, sizes[0], generator=make_generator(1), requires_grad=True)
    gradients = []
    for outputs in (
        mlp_outputs(x, *weights),
        mlp_stack(x.expand(4, *x.shape), *weights),
    ):
        value = outputs.softmax(-1).mean(0).square().sum() + outputs.sum()
        gradients += torch.autograd.grad(value, x)
    torch.testing.assert_close(*gradients)


def _encoded_table():
    table = pd.DataFrame(
        {"n": [1, 4, 9, 12], "x": [0.5, 1.0, -2.0, 1 / 3], "c": list("abca")}
    )
    return TabularEncoder().fit(table)


def test_valid_rows_are_those_that_decoding_gives():
    encoder = _encoded_table()
    x = torch.randn(50, 5, generator=make_generator(0), dtype=torch.float64) * 2
    valid = ValidRows(encoder.schema_)(x)
    # Decoding for the user and encoding again changes nothing any more.
    again = encoder.transform(encoder.inverse_transform(valid.numpy()))
    assert_allclose(valid, again, atol=1e-12)
    assert_array_equal(
        encoder.inverse_transform(valid.numpy()), encoder.inverse_transform(x.numpy())
    )
    assert torch.equal(valid[:, 1], x[:, 1])  # floats are left alone


def test_valid_rows_pass_gradients_straight_through():
    encoder = _encoded_table()
    x = torch.randn(6, 5, generator=make_generator(0), dtype=torch.float64)
    x.requires_grad_()
    factor = torch.arange(30.0, dtype=torch.float64).view(6, 5)
    (gradient,) = torch.autograd.grad((ValidRows(encoder.schema_)(x) * factor).sum(), x)
    assert torch.equal(gradient, factor)
