"""VAEEncoder: densities with a known answer, manners, and bad input."""

import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklearn_clue import TabularEncoder, VAEEncoder
from sklearn_clue._torch import make_generator
from sklearn_clue.generative import _base, _latent
from sklearn_clue.generative._modules import FeatureGroup, MixedLikelihood

TINY = {"hidden_layer_sizes": (12,), "max_iter": 4, "random_state": 0}

pytestmark = pytest.mark.filterwarnings(
    "ignore:The validation bound was still rising:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def toy():
    """Rows of a linear-Gaussian model, with its exact density."""
    rng = np.random.default_rng(0)
    loadings = np.array([[2.0, 0.0], [1.5, 1.0], [0.0, -3.0], [1.0, 0.5]])
    noise = np.array([0.5, 0.8, 1.0, 0.6])
    center = np.array([10.0, -2.0, 0.0, 3.0])
    density = multivariate_normal(center, loadings @ loadings.T + np.diag(noise**2))

    def draw(n):
        z = rng.normal(size=(n, 2))
        return center + z @ loadings.T + rng.normal(size=(n, 4)) * noise

    return draw(3000), draw(1000), density


@pytest.fixture(scope="module")
def linear_vae(toy):
    """A VAE of the same family: no hidden layers, noise learned per column."""
    X = toy[0]
    return VAEEncoder(
        2, (), noise_variance="learned", learning_rate=1e-2, random_state=0
    ).fit(X)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    n = 120
    age = rng.integers(18, 80, n)
    return pd.DataFrame(
        {
            "age": age,
            "color": np.where(age + rng.normal(0, 9, n) > 45, "red", "blue"),
            "weight": 50 + 0.4 * age + rng.normal(0, 5, n),
            "member": rng.random(n) < 0.4,
        },
        index=[f"row {i}" for i in range(n)],
    )


@pytest.fixture(scope="module")
def frame_vae(frame):
    return VAEEncoder(2, **TINY).fit(frame)


# Density --------------------------------------------------------------------------


def test_log_density_of_linear_gaussian_data(toy, linear_vae):
    _, X, density = toy
    exact = density.logpdf(X)
    estimate = linear_vae.score_samples(X, n_importance=500)
    # The bound of the issue, per row on average; the exact value is in user's units.
    assert abs(estimate.mean() - exact.mean()) < 0.05
    assert np.corrcoef(estimate, exact)[0, 1] > 0.99


def test_log_density_of_the_fitted_linear_model(toy, linear_vae):
    # What the model itself says, in closed form: x = W z + b + noise.
    _, X, _ = toy
    module = linear_vae.module_
    W = module.decoder.output.weight.double().numpy()
    b = module.decoder.output.bias.double().numpy()
    variance = module.likelihood.variance().double().numpy()
    exact = multivariate_normal(b, W @ W.T + np.diag(variance)).logpdf(
        linear_vae.encoder_.transform(X)
    )
    exact -= sum(np.log(column.scale) for column in linear_vae.schema_)
    estimate = linear_vae.score_samples(X, n_importance=2000)
    np.testing.assert_allclose(estimate, exact, atol=0.25)
    assert abs(estimate.mean() - exact.mean()) < 0.01


def test_log_density_rises_with_importance_draws(toy):
    X, X_test, _ = toy
    vae = VAEEncoder(2, (30,), max_iter=10, random_state=0).fit(X)
    scores = [vae.score_samples(X_test, n_importance=n).mean() for n in (1, 10, 100)]
    assert scores == sorted(scores)
    # The first is the bound that training raises, up to noise.
    assert scores[0] < scores[-1]


def test_importance_weighted_training():
    # Two clusters per column: one latent's Gaussian posterior cannot follow them, and
    # the plain bound pays for that.
    X = np.random.default_rng(0).choice([-1.0, 1.0], (1000, 2))
    X += np.random.default_rng(1).normal(0, 0.3, X.shape)
    settings = {"noise_variance": "learned", "learning_rate": 5e-3, "max_iter": 60}
    plain, weighted = (
        VAEEncoder(2, (30,), n_importance=n, tol=0, random_state=0, **settings).fit(X)
        for n in (1, 10)
    )
    assert weighted.score(X) > plain.score(X)
    # The bound of 10 draws lies above that of one, and below the log-density.
    assert weighted.history_[-1]["valid_bound"] > plain.history_[-1]["valid_bound"]


def test_importance_draws_need_bounded_memory(toy, linear_vae, monkeypatch):
    _, X, _ = toy
    expected = linear_vae.score_samples(X[:3], n_importance=1000)
    chunked = _latent.importance_log_prob
    monkeypatch.setattr(
        "sklearn_clue.generative._latent.importance_log_prob",
        lambda *args: chunked(*args, budget=100_000),
    )
    np.testing.assert_allclose(
        linear_vae.score_samples(X[:3], n_importance=1000), expected, rtol=1e-10
    )


def test_density_adds_up_to_one_over_categories():
    X = pd.DataFrame({"a": list("xyzx") * 20, "b": [True, False] * 40})
    vae = VAEEncoder(2, **TINY).fit(X)
    every = pd.DataFrame(
        [(a, b) for a in "xyz" for b in (True, False)], columns=["a", "b"]
    )
    total = np.exp(vae.score_samples(every, n_importance=2000)).sum()
    assert total == pytest.approx(1, abs=0.05)


def test_score_is_the_mean(frame, frame_vae):
    assert frame_vae.score(frame) == pytest.approx(
        frame_vae.score_samples(frame).mean()
    )


# Use ------------------------------------------------------------------------------


def test_the_way_back_returns_the_users_frame(frame, frame_vae):
    for back in (
        frame_vae.reconstruct(frame),
        frame_vae.inverse_transform(
            pd.DataFrame(frame_vae.transform(frame), index=frame.index)
        ),
    ):
        pd.testing.assert_series_equal(back.dtypes, frame.dtypes)
        assert back.index.equals(frame.index)
        assert set(back["color"]) <= {"red", "blue"}
    pd.testing.assert_frame_equal(
        frame_vae.reconstruct(frame),
        frame_vae.inverse_transform(
            pd.DataFrame(frame_vae.transform(frame), index=frame.index)
        ),
    )


def test_folded_normalisation_changes_nothing_but_rounding(frame, frame_vae):
    module, model = frame_vae.module_, frame_vae.latent_model()
    kinds = [type(part) for part in model.modules()]
    assert torch.nn.BatchNorm1d not in kinds
    assert torch.nn.BatchNorm1d in [type(part) for part in module.modules()]
    z = torch.linspace(-2, 2, 10 * module.latent_dim).double().view(10, -1)
    torch.testing.assert_close(model.decode(z), module.decode(z), rtol=1e-4, atol=1e-5)
    x = module.decode(z).detach()
    torch.testing.assert_close(
        model.encode(x).mean, module.encode(x).mean, rtol=1e-4, atol=1e-4
    )


def test_samples_look_like_rows(frame, frame_vae):
    X = frame_vae.sample(50, random_state=0)
    assert list(X.columns) == list(frame.columns)
    pd.testing.assert_series_equal(X.dtypes, frame.dtypes)
    pd.testing.assert_frame_equal(X, frame_vae.sample(50, random_state=0))
    assert not X.equals(frame_vae.sample(50, random_state=1))


def test_samples_have_the_moments_of_the_data(toy, linear_vae):
    X = toy[0]
    drawn = linear_vae.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), X.mean(0), atol=0.2)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(X.T), rtol=0.1, atol=0.3)


def test_latents_are_named_and_framed(frame, frame_vae):
    names = ["vaeencoder0", "vaeencoder1"]
    assert frame_vae.get_feature_names_out().tolist() == names
    Z = clone(frame_vae).set_output(transform="pandas").fit_transform(frame)
    assert Z.columns.tolist() == names
    assert Z.index.equals(frame.index)


def test_float32_is_preserved():
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    assert VAEEncoder(2, **TINY).fit_transform(X).dtype == np.float32


def test_a_row_does_not_know_its_neighbours(frame, frame_vae):
    alone = np.concatenate(
        [frame_vae.score_samples(frame.iloc[i : i + 1]) for i in range(20)]
    )
    together = frame_vae.score_samples(frame)[:20]
    np.testing.assert_allclose(alone, together, rtol=1e-12)


def test_active_units_are_told_from_dead_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1)) * [1.0, 2.0, -1.0] + rng.normal(0, 0.1, (500, 3))
    vae = VAEEncoder(3, (), learning_rate=2e-2, random_state=0).fit(X)
    assert vae.active_units_.sum() == 1  # the data have one degree of freedom


def test_weights_stand_for_copies(frame):
    weight = np.random.default_rng(0).integers(0, 3, len(frame))
    copies = frame.iloc[np.repeat(np.arange(len(frame)), weight)]
    weighted = VAEEncoder(2, **TINY).fit(frame, sample_weight=weight)
    repeated = VAEEncoder(2, **TINY).fit(copies)
    np.testing.assert_array_equal(
        weighted.score_samples(frame), repeated.score_samples(frame)
    )


def test_encoders(frame):
    X = frame[["age", "weight"]].to_numpy(dtype=float)
    X = (X - X.mean(0)) / X.std(0)
    ours = VAEEncoder(2, **TINY).fit(X)
    passed = VAEEncoder(2, encoder="passthrough", **TINY).fit(X)
    np.testing.assert_allclose(ours.transform(X), passed.transform(X), atol=1e-4)
    np.testing.assert_allclose(passed.score_samples(X), ours.score_samples(X), 1e-4)
    encoder = TabularEncoder().fit(frame)
    frozen = VAEEncoder(2, encoder=FrozenEstimator(encoder), **TINY).fit(frame[:50])
    assert frozen.schema_ == encoder.schema_


def test_grid_search_by_held_out_likelihood(toy):
    X = toy[0][:600]
    search = GridSearchCV(
        VAEEncoder(
            hidden_layer_sizes=(), noise_variance="learned", learning_rate=2e-2
        ).set_params(random_state=0, max_iter=40),
        {"latent_dim": [1, 2]},
        cv=2,
        n_jobs=2,
    ).fit(X)
    assert search.best_params_ == {"latent_dim": 2}


def test_feature_extractor_in_a_pipeline():
    X, y = load_digits(return_X_y=True)
    model = make_pipeline(
        VAEEncoder(8, (64,), max_iter=40, random_state=0),
        LogisticRegression(max_iter=1000),
    )
    assert model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.75


# Training -------------------------------------------------------------------------


def test_same_seed_same_model_and_global_state_untouched(frame):
    n_threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()
    first, second = (VAEEncoder(2, **TINY).fit(frame) for _ in range(2))
    np.testing.assert_array_equal(first.transform(frame), second.transform(frame))
    np.testing.assert_array_equal(
        first.fit(frame).transform(frame), second.transform(frame)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert torch.get_num_threads() == n_threads


@pytest.mark.parametrize(("side", "all_threads"), [(8, False), (28, True)])
def test_small_images_are_trained_on_one_thread(side, all_threads, monkeypatch):
    class Seen(Exception):
        pass

    def look(module, batches, validation, settings, progress):
        raise Seen(settings.all_threads)

    monkeypatch.setattr(_base, "train", look)
    X = np.random.default_rng(0).random((8, side * side))
    with pytest.raises(Seen, match=str(all_threads)):
        VAEEncoder(2, image_shape=(side, side), **TINY).fit(X)


def test_best_epoch_is_kept(toy):
    X = toy[0][:300]
    vae = VAEEncoder(
        2, (30,), learning_rate=0.05, n_iter_no_change=3, batch_size=8, random_state=0
    ).fit(X)
    bounds = [epoch["valid_bound"] for epoch in vae.history_]
    assert len(bounds) == vae.n_iter_ < 500  # it stopped
    assert np.argmax(bounds) == vae.best_iter_ - 1


def test_without_early_stopping_all_rows_and_epochs_count(frame):
    vae = VAEEncoder(2, early_stopping=False, **TINY).fit(frame)
    assert vae.n_iter_ == vae.best_iter_ == 4
    assert "valid_bound" not in vae.history_[0]


def test_interruption_leaves_a_usable_model(frame, monkeypatch):
    end_epoch = _base.EpochProgress.end_epoch

    def interrupt(self, **figures):
        end_epoch(self, **figures)
        if self._epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_base.EpochProgress, "end_epoch", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 of at most 4"):
        vae = VAEEncoder(2, **TINY).fit(frame)
    assert vae.n_iter_ == 2
    assert np.isfinite(vae.score(frame))


def test_warns_when_epochs_run_out(toy):
    with pytest.warns(ConvergenceWarning, match="still rising after max_iter=2"):
        VAEEncoder(2, (), learning_rate=1e-2, max_iter=2, random_state=0).fit(toy[0])


def test_progress(frame, capsys):
    VAEEncoder(2, verbose=2, **TINY).fit(frame)
    err = capsys.readouterr().err
    assert "VAEEncoder: epoch 4/4, train_bound" in err


def test_scikit_learn_callbacks(frame):
    callback = pytest.importorskip("sklearn.callback")
    vae = VAEEncoder(2, **TINY)
    vae.set_callbacks(callback.ProgressBar())
    vae.fit(frame)
    assert vae.n_iter_ == 4


def test_joblib_round_trip_in_a_fresh_process(frame, frame_vae, tmp_path):
    joblib.dump((frame_vae, frame), tmp_path / "vae.joblib")
    np.save(tmp_path / "z.npy", frame_vae.transform(frame))
    code = (
        "import joblib, numpy as np, sys\n"
        "vae, X = joblib.load(sys.argv[1] + '/vae.joblib')\n"
        "Z = np.load(sys.argv[1] + '/z.npy')\n"
        "np.testing.assert_array_equal(vae.transform(X), Z)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    mapped, _ = joblib.load(tmp_path / "vae.joblib", mmap_mode="r")
    np.testing.assert_array_equal(mapped.transform(frame), frame_vae.transform(frame))


# Images ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)[0] / 16


@pytest.fixture(scope="module")
def digits_vae(digits):
    return VAEEncoder(
        6,
        image_shape=(8, 8),
        learning_rate=3e-3,
        batch_size=32,
        max_iter=10,
        random_state=0,
    ).fit(digits)


def test_images_are_rebuilt(digits, digits_vae):
    rebuilt = digits_vae.reconstruct(digits)
    assert rebuilt.shape == digits.shape
    assert rebuilt.min() >= 0 and rebuilt.max() <= 1
    error = np.mean((rebuilt - digits) ** 2)
    assert error < 0.8 * np.mean((digits.mean(0) - digits) ** 2)
    assert digits_vae.sample(3, random_state=0).shape == (3, 64)
    np.testing.assert_allclose(
        digits_vae.transform(digits[:5]), digits_vae.transform(digits)[:5], atol=1e-5
    )


def test_integer_pixels_are_scaled_and_come_back(digits):
    X = np.rint(digits[:200] * 255).astype(np.uint8)
    settings = {"image_shape": (8, 8), "max_iter": 1, "random_state": 0}
    vae = VAEEncoder(2, **settings).fit(X)
    assert vae.reconstruct(X).dtype == np.uint8
    np.testing.assert_allclose(vae.transform(X), vae.transform(X / 255), atol=1e-6)


def test_channels_and_odd_sides():
    X = np.random.default_rng(0).random((20, 3 * 9 * 13))
    vae = VAEEncoder(2, image_shape=(3, 9, 13), max_iter=1).fit(X)
    assert vae.reconstruct(X).shape == X.shape


def test_six_blocks_for_mnist_and_three_for_digits():
    from sklearn_clue.generative._modules import BLOCKS_PER_STAGE, image_stages

    assert BLOCKS_PER_STAGE * (len(image_stages((1, 28, 28))) - 1) == 6
    assert BLOCKS_PER_STAGE * (len(image_stages((1, 8, 8))) - 1) == 3


# Bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X, settings, message",
    [
        (np.ones((9, 60)), {"image_shape": (8, 8)}, "60 pixels per row.*has 64"),
        (np.full((9, 64), 16.0), {"image_shape": (8, 8)}, "between 0 and 1, got 16"),
        (np.full((9, 64), 300), {"image_shape": (8, 8)}, "between 0 and 255"),
        (np.eye(64, dtype=int), {"image_shape": (8, 8)}, "all 0 or 1.*booleans"),
        (np.ones((9, 64)), {"image_shape": (64,)}, "image_shape must be"),
        (np.ones((9, 4)), {"image_shape": (2, 2)}, "at least 4 pixels"),
        (
            np.ones((9, 64)),
            {"image_shape": (8, 8), "encoder": TabularEncoder()},
            "Images are not encoded",
        ),
        (np.ones((9, 2)) * 3, {"likelihood": "bernoulli"}, None),
        (np.eye(9), {"likelihood": "bernoulli"}, "between 0 and 1.*passthrough"),
        (np.ones((1, 2)), {}, "n_samples=1"),
        (np.full((5, 2), np.nan), {"encoder": "passthrough"}, "contains NaN"),
        (np.full((9, 64), np.nan), {"image_shape": (8, 8)}, "contains NaN"),
        (np.eye(9), {"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
    ],
)
def test_bad_input(X, settings, message):
    vae = VAEEncoder(2, max_iter=2, random_state=0).set_params(**settings)
    if message is None:
        assert np.isfinite(vae.fit(X).score(X))
    else:
        with pytest.raises(ValueError, match=message):
            vae.fit(X)


def test_unseen_category_is_named(frame, frame_vae):
    with pytest.warns(UserWarning, match="'color' holds 'green'") as caught:
        latents = frame_vae.transform(frame.assign(color="green"))
    assert len(caught) == 1 and np.isfinite(latents).all()


def test_category_that_is_declared_and_never_observed(frame):
    X = frame.astype({"color": pd.CategoricalDtype(["blue", "green", "red"])})
    vae = VAEEncoder(2, **TINY).fit(X)
    assert "green" in vae.schema_.column("color").categories
    drawn = vae.sample(2000, random_state=0)
    # Possible, and as improbable as its start leaves it.
    assert (drawn["color"] == "green").mean() < 0.01
    green = X.assign(color="green").astype(X.dtypes)
    assert np.isfinite(vae.score_samples(green)).all()
    assert vae.score(green) < vae.score(X) - 2


def test_constant_data():
    X = np.full((20, 3), 7.0)
    for noise_variance in (0.5, "learned"):
        vae = VAEEncoder(2, noise_variance=noise_variance, **TINY).fit(X)
        assert np.isfinite(vae.score(X))
        assert not vae.active_units_.any()


def test_too_many_latents_are_reported():
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(UserWarning, match="latent_dim=10 is more than the 3 encoded"):
        vae = VAEEncoder(10, **TINY).fit(X)
    assert vae.transform(X).shape == (50, 10)


def test_wrong_number_of_latents(frame_vae):
    with pytest.raises(ValueError, match="X has 3 columns, but there are 2 latents"):
        frame_vae.inverse_transform(np.zeros((1, 3)))


@pytest.mark.parametrize("method", ["sample", "score_samples"])
def test_counts_are_checked(frame, frame_vae, method):
    arguments = (frame, 0) if method == "score_samples" else (0,)
    with pytest.raises(ValueError, match="must be a positive whole number, got 0"):
        getattr(frame_vae, method)(*arguments)


def test_divergence_is_reported():
    X = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ValueError, match="Lower learning_rate"):
        VAEEncoder(2, (), learning_rate=1e6, random_state=0).fit(X)


# Gaps


def test_a_gapped_number_is_missing_or_gaussian():
    likelihood = MixedLikelihood((FeatureGroup("gapped", 0, 2, True),), 0.5)
    outputs = torch.tensor([[1.5, 0.3]])
    gone = torch.tensor([[0.0, 1.0]])
    there = torch.tensor([[1.0, 0.0]])
    p = torch.tensor(0.3).sigmoid()
    normal = torch.distributions.Normal(1.5, 0.5**0.5).log_prob(torch.tensor(1.0))
    torch.testing.assert_close(
        likelihood.log_prob(outputs, gone), torch.stack([0 * p, p.log()])[None]
    )
    torch.testing.assert_close(
        likelihood.log_prob(outputs, there),
        torch.stack([normal, (1 - p).log()])[None],
    )
    torch.testing.assert_close(likelihood.mean(outputs), torch.tensor([[1.5, p]]))
    drawn = likelihood.sample(outputs.expand(4000, 2), make_generator(0))
    is_gap = drawn[:, 1] == 1
    assert abs(is_gap.float().mean() - p) < 0.03
    assert (drawn[is_gap, 0] == 0).all()
    assert abs(drawn[~is_gap, 0].mean() - 1.5) < 0.05
    start = likelihood.outputs_for(torch.tensor([0.2, 0.25]))
    torch.testing.assert_close(likelihood.mean(start), torch.tensor([0.2, 0.25]))


def test_rows_with_gaps_are_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.normal(5, 2, 300), "c": rng.choice(["a", "b"], 300)})
    X["n"] = X["n"].where(X["c"] == "a")  # missing wherever the category is b
    X["d"] = X["c"]
    settings = {"max_iter": 100, "learning_rate": 1e-2, "early_stopping": False}
    vae = VAEEncoder(2, (20,), **settings, random_state=0).fit(X)
    drawn = vae.sample(500, random_state=0)
    assert abs(drawn["n"].isna().mean() - X["n"].isna().mean()) < 0.1
    assert abs(drawn["n"].mean() - X["n"].mean()) < 0.5
    rebuilt = vae.reconstruct(X)
    assert (rebuilt["n"].isna() == X["n"].isna()).mean() > 0.95
    # A gap has a probability and no density: the unit of the number plays no part.
    scaled = clone(vae).fit(X.assign(n=1000 * X["n"]))
    gone, there = X[X["n"].isna()][:5], X[X["n"].notna()][:5]
    np.testing.assert_allclose(
        vae.score_samples(gone),
        scaled.score_samples(gone.assign(n=1000 * gone["n"])),
        atol=0.05,
    )
    difference = vae.score_samples(there) - scaled.score_samples(
        there.assign(n=1000 * there["n"])
    )
    np.testing.assert_allclose(difference, np.log(1000), atol=0.05)
