"""What the parts of the package promise each other, for every implementation."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from torch.distributions import Normal

from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    VAEACImputer,
    VAEEncoder,
)
from sklearn_clue.generative import (
    ConditionalModel,
    DensityModel,
    LatentModel,
    TwoLevelVAEAC,
)
from sklearn_clue.uncertainty import UncertaintyProvider

N_ROWS = 40


def _table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N_ROWS),
            "b": rng.choice(["x", "y", "z"], N_ROWS),
            "c": rng.normal(size=N_ROWS),
        }
    )


def _images():
    return np.random.default_rng(0).random((N_ROWS, 64))


# Name -> how to fit it, in no time, and rows to fit it on.
GENERATIVE = {
    "VAE": (VAEEncoder(2, (8,), max_iter=2, random_state=0), _table()),
    "VAE with learned noise": (
        VAEEncoder(2, (8,), noise_variance="learned", max_iter=2, random_state=0),
        _table(),
    ),
    "VAE of images": (
        VAEEncoder(2, image_shape=(8, 8), max_iter=1, random_state=0),
        _images(),
    ),
    "VAEAC": (VAEACImputer(2, (8,), max_iter=2, random_state=0), _table()),
    "two-level VAEAC": (
        TwoLevelVAEAC(
            VAEACImputer(2, (8,), max_iter=2),
            VAEEncoder(2, (8,), max_iter=2),
            random_state=0,
        ),
        _table(),
    ),
}


class Case:
    def __init__(self, name):
        estimator, X = GENERATIVE[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is in a hurry
            self.estimator = estimator.fit(X)
        self.model = self.estimator.module_
        outer = getattr(self.estimator, "outer_", self.estimator)
        encoder = outer.encoder_
        x = X if encoder is None else encoder.transform(X)
        self.x = torch.as_tensor(np.asarray(x), dtype=torch.float32)
        self.schema = outer.schema_


_CASES = {}


@pytest.fixture(params=GENERATIVE)
def case(request):
    if request.param not in _CASES:
        _CASES[request.param] = Case(request.param)
    return _CASES[request.param]


def needs(case, protocol):
    if not isinstance(case.model, protocol):
        pytest.skip(f"no {protocol.__name__}")


def test_protocols(case):
    assert isinstance(case.model, DensityModel)
    is_two_level = isinstance(case.estimator, TwoLevelVAEAC)
    assert isinstance(case.model, LatentModel) != is_two_level
    is_conditional = isinstance(case.estimator, VAEACImputer)
    assert isinstance(case.model, ConditionalModel) == is_conditional


def test_weights_need_no_gradient_and_norms_are_frozen(case):
    assert not any(weight.requires_grad for weight in case.model.parameters())
    assert not case.model.training


def _check_support(x, schema):
    if schema is None:  # pixels
        assert (x >= 0).all() and (x <= 1).all()
        return
    for block in schema.blocks:
        assert (x[:, block] >= 0).all()
        torch.testing.assert_close(x[:, block].sum(1), torch.ones(len(x)))


@pytest.mark.usefixtures("own_process")
def test_decoding_stays_in_the_support(case):
    needs(case, LatentModel)
    posterior = case.model.encode(case.x)
    assert isinstance(posterior, Normal)
    assert (posterior.scale > 0).all()
    x = case.model.decode(posterior.mean)
    assert x.shape == case.x.shape
    _check_support(x, case.schema)
    # Far out as well: a search may go there.
    _check_support(case.model.decode(100 * torch.randn(9, 2)), case.schema)


@pytest.mark.usefixtures("own_process")
def test_gradients_reach_latents(case):
    needs(case, LatentModel)
    z = torch.randn(5, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(case.model.decode(z).square().sum(), z)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


def test_generators_give_models_that_take_double_precision(case):
    if isinstance(case.model, LatentModel):
        model = case.estimator.latent_model()
        mean = model.encode(case.x.double()).mean
        assert torch.equal(mean, model.encode(case.x).mean)
        torch.testing.assert_close(mean, case.model.encode(case.x).mean)
        assert model.decode(torch.zeros(3, 2).double()).isfinite().all()
    if isinstance(case.model, ConditionalModel):
        model, x = case.estimator.conditional_model(), case.x.double()
        nothing = torch.zeros_like(x)
        imputed = model.impute(x, nothing)
        assert torch.equal(imputed, model.impute(case.x, nothing.float()))
        torch.testing.assert_close(imputed, case.model.impute(case.x, nothing.float()))


def test_rows_are_independent(case):
    answers = [lambda x: case.model.log_prob(x).float()]
    if isinstance(case.model, LatentModel):
        answers += [
            lambda x: case.model.encode(x).mean,
            lambda x: case.model.decode(case.model.encode(x).mean),
        ]
    for answer in answers:
        torch.testing.assert_close(answer(case.x[:3]), answer(case.x)[:3])


def test_density_is_repeatable_and_samples_are_rows(case):
    log_prob = case.model.log_prob(case.x)
    assert log_prob.shape == (N_ROWS,) and log_prob.isfinite().all()
    assert torch.equal(log_prob, case.model.log_prob(case.x))
    draws = [
        case.model.sample(7, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    ]
    assert draws[0].shape == (7, case.x.shape[1])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    _check_support(draws[0], case.schema)


def test_conditional_model(case):
    needs(case, ConditionalModel)
    column = case.schema.column("b")
    observed = torch.ones_like(case.x)
    observed[:, column.block] = 0
    completed = case.model.impute(case.x, observed)
    assert torch.equal(completed[:, 0], case.x[:, 0])
    _check_support(completed, case.schema)
    # What is hidden has no influence.
    other = case.x.clone()
    other[:, column.block] = 1 - other[:, column.block]
    torch.testing.assert_close(case.model.impute(other, observed), completed)
    # All observed is the identity.
    assert torch.equal(case.model.impute(case.x, torch.ones_like(case.x)), case.x)


# Posteriors over networks, as they are and calibrated.

CHAINS = {"n_draws": 6, "burn_in": 20, "thinning": 1, "random_state": 0}
MEMBERS = {"n_members": 3, "max_iter": 20, "random_state": 0}
POSTERIORS = [
    BayesianMLPClassifier((8,), **CHAINS),
    BayesianMLPRegressor((8,), **CHAINS),
    DeepEnsembleClassifier((8,), **MEMBERS),
    DeepEnsembleRegressor((8,), **MEMBERS),
]


@pytest.fixture(scope="module", params=POSTERIORS, ids=lambda p: type(p).__name__)
def posterior(request):
    X = _table()
    y = X["a"] + X["c"]
    model = clone(request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y > 0 if is_classifier(model) else y)


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_posteriors_as_providers(posterior, is_calibrated):
    X = _table()
    model = pickle.loads(pickle.dumps(posterior))
    if is_calibrated:
        y = np.where(np.arange(N_ROWS) % 4 == 0, 3 * X["c"], X["a"] + X["c"])
        model.calibrate(X, y > 0 if is_classifier(model) else y)
    provider = model.uncertainty_provider()
    assert isinstance(provider, UncertaintyProvider)
    assert provider.is_classification == is_classifier(model)
    x = torch.as_tensor(model.encoder_.transform(X)).requires_grad_()
    parts, prediction = provider.uncertainty(x)
    again, few = provider.uncertainty(x)[0], provider.uncertainty(x[:3])[0]
    said = model.predict_uncertainty(X)
    for part, same, part_of_few, known in zip(parts, again, few, said, strict=True):
        assert part.shape == (N_ROWS,) and torch.equal(part, same)
        torch.testing.assert_close(part_of_few, part[:3])
        known = torch.as_tensor(known / provider.scale)
        torch.testing.assert_close(part.detach(), known, rtol=1e-6, atol=1e-9)
    if provider.is_classification:
        told = model.predict_proba(X)
    else:
        told = ((model.predict(X) - provider.center) / provider.scale)[:, None]
    np.testing.assert_allclose(prediction.detach().numpy(), told, rtol=1e-6, atol=1e-9)
    (gradient,) = torch.autograd.grad(parts.total.sum(), x)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0
