"""Fitted models outlive their process, their version and their machine."""

import copy
import faulthandler
import importlib
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
import zoo
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import sklearn_clue
import sklearn_clue.evaluation
from sklearn_clue import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    CLUEExplainer,
    GroupExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    PredictedNoiseRegressor,
    TabularEncoder,
    VAEEncoder,
    persistence,
)
from sklearn_clue.explainers._space import PixelScaler
from sklearn_clue.persistence import STATE_VERSION, TRUSTED_TYPES
from sklearn_clue.pipeline import make_pipeline

TINY = {"hidden_layer_sizes": (8,), "n_draws": 6, "burn_in": 20, "thinning": 1}
REFERENCE = Path(__file__).parents[1] / "reference"

ANSWER_IN_A_FRESH_PROCESS = """
import sys
import joblib

sys.path.insert(0, sys.argv[1])
import zoo

models = joblib.load(sys.argv[2])
answers = {name: zoo.answers(name, model) for name, model in models.items()}
joblib.dump(answers, sys.argv[3])
"""


@pytest.fixture(scope="module")
def expected(models):
    return {name: zoo.answers(name, model) for name, model in models.items()}


def _assert_same(answers, expected):
    assert answers.keys() == expected.keys()
    for what, answer in answers.items():
        if isinstance(answer, pd.DataFrame):
            pd.testing.assert_frame_equal(answer, expected[what])
        else:
            assert_array_equal(answer, expected[what])


# Ways to save


def test_joblib_round_trip_in_a_fresh_process(models, expected, tmp_path):
    paths = [str(tmp_path / name) for name in ("models", "answers")]
    joblib.dump(models, paths[0])
    folder = str(Path(zoo.__file__).parent)
    script = [sys.executable, "-c", ANSWER_IN_A_FRESH_PROCESS, folder, *paths]
    subprocess.run(script, check=True)
    for name, answers in joblib.load(paths[1]).items():
        _assert_same(answers, expected[name])


@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle_round_trip(models, expected, protocol):
    for name, model in models.items():
        again = pickle.loads(pickle.dumps(model, protocol=protocol))
        _assert_same(zoo.answers(name, again), expected[name])


def test_out_of_band_buffers(models, expected):
    """Protocol 5 can hand over arrays without a copy, and read-only."""
    buffers = []
    data = pickle.dumps(
        models["classifier"], protocol=5, buffer_callback=buffers.append
    )
    assert len(buffers) > 4
    again = pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])
    assert not again.coefs_[0].flags.writeable
    _assert_same(zoo.answers("classifier", again), expected["classifier"])


def test_memory_mapped_models_answer(models, expected, tmp_path):
    joblib.dump(models, tmp_path / "models")
    mapped = joblib.load(tmp_path / "models", mmap_mode="r")
    assert isinstance(mapped["classifier"].coefs_[0], np.memmap)
    for name, model in mapped.items():
        _assert_same(zoo.answers(name, model), expected[name])


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_memory_mapped_models_go_on(estimator, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = estimator(**TINY, warm_start=True, random_state=0).fit(X, y)
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    mapped.fit(X, y)
    model.fit(X, y)
    assert_array_equal(mapped.predict(X), model.predict(X))


def test_skops_round_trip(models, expected):
    skops_io = pytest.importorskip("skops.io")
    needed = set()
    for name, model in models.items():
        data = skops_io.dumps(model)
        needed |= set(skops_io.get_untrusted_types(data=data))
        again = skops_io.loads(data, trusted=TRUSTED_TYPES)
        _assert_same(zoo.answers(name, again), expected[name])
    assert needed <= set(TRUSTED_TYPES)


def explained_models():
    """Models that are asked about rows of a table, each of another kind."""
    quantiles = [
        GradientBoostingRegressor(loss="quantile", alpha=alpha, n_estimators=3)
        for alpha in (0.1, 0.9)
    ]
    scaled = make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0))
    trees = DecisionTreeRegressor(max_depth=2, random_state=0)
    return {
        "forest": RandomForestClassifier(3, random_state=0),
        "steps": scaled,
        "bagged": BaggingRegressor(KNeighborsRegressor(3), 3, random_state=0),
        "list": [RandomForestRegressor(2, random_state=0), Ridge()],
        "quantiles": quantiles,
        "noise": PredictedNoiseRegressor(Ridge()),
        "precision": BayesianRidge(),
        "process": GaussianProcessRegressor(),
        "probabilities": GaussianNB(),
        "voting": VotingRegressor([("tree", trees), ("line", Ridge())]),
    }


@pytest.fixture(scope="module")
def of_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(0, 0.3, 60)
    fitted = {}
    for name, model in explained_models().items():
        is_classes = name in ("forest", "steps", "probabilities")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted[name] = NeighborExplainer(model).fit(X, y > 0 if is_classes else y)
    return X, fitted


@pytest.mark.parametrize("name", explained_models())
def test_skops_keeps_explainers_of_any_model(name, of_tables):
    """Types of scikit-learn are those that it would be asked about anyway."""
    skops_io = pytest.importorskip("skops.io")
    X, fitted = of_tables
    data = skops_io.dumps(fitted[name])
    unknown = set(skops_io.get_untrusted_types(data=data)) - set(TRUSTED_TYPES)
    assert not [each for each in unknown if not each.startswith("sklearn.")]
    again = skops_io.loads(data, trusted=[*TRUSTED_TYPES, *unknown])
    assert_array_equal(
        again.explain(X[:9]).counterfactuals,
        fitted[name].explain(X[:9]).counterfactuals,
    )


def test_trusted_types_are_as_few_as_can_be(models, of_tables):
    skops_io = pytest.importorskip("skops.io")
    pixels = PixelScaler().fit(np.zeros((1, 4), dtype=np.uint8))
    everything = [*models.values(), pixels, make_pipeline(models["classifier"])]
    everything.append(GroupExplainer(models["explainer"]))
    data = skops_io.dumps([*everything, *of_tables[1].values()])
    needed = set(skops_io.get_untrusted_types(data=data))
    bunch = "sklearn.utils._bunch.Bunch"
    own = {each for each in needed if each.startswith("sklearn_clue.")}
    assert own | {bunch} == set(TRUSTED_TYPES)
    assert list(TRUSTED_TYPES) == sorted(TRUSTED_TYPES)


@pytest.mark.parametrize("container", ["array", "pandas", "polars"])
def test_encoders_restore_every_container(container):
    """Containers and dtypes are written as plain values, and come back as they were."""
    frame = pd.DataFrame(
        {
            "count": [1, 2, 3],
            "share": np.array([0.1, 0.2, 0.3], dtype=np.float32),
            "name": ["a", "b", "a"],
            "flag": [True, False, True],
        }
    )
    if container == "array":
        X = frame[["count", "share"]].to_numpy()
    elif container == "polars":
        pl = pytest.importorskip("polars")
        kind = pl.Series("kind", ["x", "y", "x"], dtype=pl.Enum(["x", "y", "z"]))
        X = pl.DataFrame(frame.to_dict("list")).with_columns(kind)
    else:
        X = frame.assign(
            whole=pd.array([4, 5, 6], dtype="Int16"),
            text=pd.array(["u", "v", "u"], dtype="string"),
            maybe=pd.array([True, False, True], dtype="boolean"),
            level=pd.Categorical([2, 1, 2], categories=[2, 1, 0], ordered=True),
            when=pd.cut([1.0, 5.0, 9.0], [0, 3, 6, 10]),
        )
        X.columns = pd.Index(X.columns, name="fields")
    encoder = TabularEncoder().fit(X)
    again = pickle.loads(pickle.dumps(encoder))
    assert again.schema_ == encoder.schema_
    assert hash(again.schema_) == hash(encoder.schema_)
    decoded = [e.inverse_transform(e.transform(X)) for e in (encoder, again)]
    if container == "array":
        assert_array_equal(*decoded)
        assert decoded[0].dtype == decoded[1].dtype
    elif container == "polars":
        assert decoded[0].equals(decoded[1]) and decoded[0].schema == decoded[1].schema
    else:
        pd.testing.assert_frame_equal(*decoded)


@pytest.mark.parametrize(
    "columns",
    [
        ["a", "b"],
        [0, 1],
        pd.RangeIndex(2),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"]),
        pd.to_datetime(["2020-01-01", "2021-01-01"]),
    ],
    ids=["strings", "numbers", "range", "levels", "dates"],
)
def test_encoders_restore_every_label(columns):
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=columns)
    encoder = TabularEncoder().fit(X)
    again = pickle.loads(pickle.dumps(encoder))
    pd.testing.assert_frame_equal(again.inverse_transform(encoder.transform(X)), X)


TEXT = {
    "default": lambda: pd.Series(["u"]).dtype,
    "python": lambda: "string[python]",
    "pyarrow": lambda: "string[pyarrow]",
    "arrow": lambda: pd.ArrowDtype(pytest.importorskip("pyarrow").string()),
    "large": lambda: pd.ArrowDtype(pytest.importorskip("pyarrow").large_string()),
}


@pytest.mark.parametrize("kind", TEXT)
def test_skops_restores_every_kind_of_text(kind):
    """As values, as categories and as labels: pyarrow's types are not to be trusted."""
    sio = pytest.importorskip("skops.io")
    if kind == "pyarrow":
        pytest.importorskip("pyarrow")
    dtype = TEXT[kind]()
    words = pd.Series(["u", "v", "u"]).astype(dtype)
    X = pd.DataFrame({"word": words, "level": words.astype("category")})
    X.columns = pd.Index(["word", "level"]).astype(dtype)
    encoder = TabularEncoder().fit(X)
    again = sio.loads(sio.dumps(encoder), trusted=list(TRUSTED_TYPES))
    assert again.schema_ == encoder.schema_
    pd.testing.assert_frame_equal(again.inverse_transform(encoder.transform(X)), X)


def test_skops_restores_numbers_of_pyarrow():
    sio = pytest.importorskip("skops.io")
    pytest.importorskip("pyarrow")
    X = zoo.table()[0].convert_dtypes(dtype_backend="pyarrow")
    encoder = TabularEncoder().fit(X)
    again = sio.loads(sio.dumps(encoder), trusted=list(TRUSTED_TYPES))
    expected = encoder.inverse_transform(encoder.transform(X))
    pd.testing.assert_frame_equal(again.inverse_transform(again.transform(X)), expected)


def test_an_encoder_that_was_loaded_looks_the_same_to_a_cache():
    X = pd.DataFrame({"age": [1.0, 2.5, 4.0], "job": ["cook", "smith", "cook"]})
    encoder = TabularEncoder().fit(X)
    loaded = pickle.loads(pickle.dumps(encoder))
    assert joblib.hash(loaded) == joblib.hash(encoder)


def test_skops_restores_devices_and_paths(tmp_path):
    sio = pytest.importorskip("skops.io")
    X, y, _ = zoo.table()
    vae = VAEEncoder(2, (5,), max_iter=2, device=torch.device("cpu"), random_state=0)
    chains = BayesianMLPClassifier(
        **TINY, device=torch.device("cpu"), checkpoint_dir=tmp_path, random_state=0
    )
    model = LocalSensitivityExplainer(chains)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vae.fit(X), model.fit(X, y)
    for fitted, method in ((vae, "transform"), (model, "predict_proba")):
        again = sio.loads(sio.dumps(fitted), trusted=list(TRUSTED_TYPES))
        assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))
    assert again.estimator.checkpoint_dir == str(tmp_path)
    assert pickle.loads(pickle.dumps(vae)).device == "cpu"


# What the state holds


def test_states_hold_no_torch(models):
    """What was made on a GPU loads anywhere: there is nothing but numpy on board."""
    for name, model in models.items():
        assert b"torch" not in pickle.dumps(model), name
        assert not list(_tensors(model.__getstate__())), name


def _tensors(value):
    """Walk everything within reach that is not code."""
    if type(value).__module__.startswith("torch"):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from _tensors(value.__getstate__())


def test_a_model_made_on_a_gpu_loads_without_one(models, expected):
    """As far as can be told here: only the name of the device is different."""
    model = copy.deepcopy(models["classifier"]).set_params(device="cuda")
    again = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
    _assert_same(zoo.answers("classifier", again), expected["classifier"])


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_pickles_are_little_more_than_their_draws(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 10)), np.arange(100) % 2
    # The chains and draws of the defaults, and networks of nearly their size.
    model = estimator((100, 100), burn_in=20, thinning=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="chains are too short"):
        model.fit(X, y)
    draws = sum(part.nbytes for part in (*model.coefs_, *model.intercepts_))
    assert len(pickle.dumps(model)) <= 1.1 * draws


def test_explainers_hold_their_draws_once(models):
    classifier = models["explainer"].estimator_
    classifier = copy.deepcopy(classifier)
    size = len(pickle.dumps(models["explainer"]))
    classifier.coefs_ = [np.zeros((1000, *c.shape[1:])) for c in classifier.coefs_]
    explainer = copy.copy(models["explainer"])
    explainer.estimator_ = classifier
    grown = len(pickle.dumps(explainer)) - size
    assert grown < 1.1 * sum(coef.nbytes for coef in classifier.coefs_)


def test_clones_are_unfitted_and_alike():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = BayesianMLPClassifier(**TINY, random_state=0).fit(X, y)
    copied = clone(model)
    assert not hasattr(copied, "coefs_")
    assert copied.get_params() == model.get_params()
    assert_array_equal(copied.fit(X, y).predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore:The validation bound")
def test_explainers_of_images_round_trip():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(40, 64)).astype(np.uint8)
    explainer = CLUEExplainer(
        BayesianMLPClassifier(**TINY),
        VAEEncoder(2, (5,), image_shape=(8, 8), max_iter=1),
        random_state=0,
    ).fit(X, np.arange(40) % 2)
    again = pickle.loads(pickle.dumps(explainer))
    for before, after in zip(
        explainer.predict_uncertainty(X), again.predict_uncertainty(X), strict=True
    ):
        assert_array_equal(before, after)


# Versions


@pytest.mark.filterwarnings("ignore:Trying to unpickle estimator")
@pytest.mark.parametrize(
    "path", sorted(REFERENCE.glob("models_v*.joblib")), ids=lambda p: p.stem
)
def test_files_of_every_version_load(path):
    saved = joblib.load(path)
    public = {
        value
        for module in (sklearn_clue, sklearn_clue.generative, sklearn_clue.evaluation)
        for value in (getattr(module, name) for name in module.__all__)
        if isinstance(value, type) and issubclass(value, BaseEstimator)
    }
    assert {type(model) for model in saved["models"].values()} <= public
    for name, known in saved["answers"].items():
        answers = zoo.answers(name, saved["models"][name], n_rows=5)
        for what, value in known.items():
            if what in ("counterfactuals", "encoded", "distance", "path", "sample"):
                continue  # the last digit may lead elsewhere on another machine
            # Networks work in float32, and processors round it differently.
            assert_allclose(answers[what], value, rtol=1e-3, atol=1e-4, err_msg=what)


def test_this_version_has_a_file():
    assert (REFERENCE / f"models_v{STATE_VERSION}.joblib").exists()
    assert all(path.stat().st_size < 100_000 for path in REFERENCE.glob("models_v*"))


def test_saved_tuples_keep_their_fields():
    """They are made anew before any version is read, so that no message would help.

    Whoever changes one raises `STATE_VERSION`, and gives it another name.
    """
    saved = {}
    for path in TRUSTED_TYPES:
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        if isinstance(kind, type) and issubclass(kind, tuple):
            saved[name] = " ".join(kind._fields)
    assert saved == {
        "ChainState": "weights precision step retention noise_scale step_size",
        "Nodes": "trusted parent low high mean spread",
        "TreeMember": "tree columns",
    }


def test_newer_states_are_refused_by_name(models, monkeypatch):
    for model in models.values():
        with monkeypatch.context() as future:
            future.setattr(persistence, "STATE_VERSION", STATE_VERSION + 1)
            future.setattr(sklearn_clue, "__version__", "99.0")
            data = pickle.dumps(model)
        message = (
            f"state version {STATE_VERSION + 1}, written by sklearn_clue 99.0, and "
            f"sklearn_clue {sklearn_clue.__version__} reads versions up to "
            f"{STATE_VERSION}"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            pickle.loads(data)


def test_states_from_before_the_first_release_are_refused(models, monkeypatch):
    with monkeypatch.context() as past:
        past.setattr(persistence, "STATE_VERSION", 2)
        data = pickle.dumps(models["encoder"])
    with pytest.raises(ValueError, match="state version 2, .* Fit the model again"):
        pickle.loads(data)


def test_states_without_a_version_are_refused(models):
    state = models["encoder"].__getstate__()
    del state["_sklearn_clue_state"]
    with pytest.raises(ValueError, match="saved TabularEncoder holds no state version"):
        TabularEncoder().__setstate__(state)


# Damage


def _dump_joblib(model):
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    return buffer.getvalue()


def _skops(name):
    skops_io = pytest.importorskip("skops.io")
    if name == "dump":
        return skops_io.dumps
    return lambda data: skops_io.loads(data, trusted=TRUSTED_TYPES)


FORMATS = {
    "pickle": lambda: (pickle.dumps, pickle.loads),
    "joblib": lambda: (_dump_joblib, lambda data: joblib.load(io.BytesIO(data))),
    "skops": lambda: (_skops("dump"), _skops("load")),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["classifier", "vae", "explainer"])
def test_truncated_files_raise(models, form, name):
    dump, load = FORMATS[form]()
    data = dump(models[name])
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        with pytest.raises(Exception):  # noqa: B017  each format has its own
            load(data[: int(share * len(data))])
    with pytest.raises(Exception):  # noqa: B017
        load(data[:-1])


def _verdicts(judge, positions):
    """What a child process says of each position: a letter, or x where it dies.

    Damaged strides of an array make numpy itself read beyond it, and crash.
    """
    verdicts = b""
    while len(verdicts) < len(positions):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            faulthandler.disable()
            for position in positions[len(verdicts) :]:
                os.write(writer, judge(position))
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as stream:
            verdicts += stream.read()
        _, status = os.waitpid(child, 0)
        assert status != signal.SIGALRM, "a damaged file is read for ever"
        verdicts += b"x" if status else b""
    return verdicts.decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="crashes would end the tests")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_never_give_another_model(models, expected, form):
    """Wherever a bit flips, the file does not load, or it was no bit that matters."""
    dump, load = FORMATS[form]()
    model = models["classifier"]
    data = dump(model)

    def judge(position):
        damaged = bytearray(data)
        damaged[position] ^= 4
        try:
            loaded = load(bytes(damaged))
            answers = zoo.answers("classifier", loaded)
        except Exception:  # noqa: BLE001
            return b"r"  # refused
        try:
            assert loaded.get_params() == model.get_params()
            _assert_same(answers, expected["classifier"])
        except AssertionError:
            return b"o"  # another model
        return b"s"  # the same

    positions = np.random.default_rng(1).permutation(len(data))[:150]
    verdicts = _verdicts(judge, positions)
    assert "o" not in verdicts, positions[verdicts.index("o")]
    assert verdicts.count("r") > 0.6 * len(positions)
    assert verdicts.count("x") <= 3


def test_verdicts_survive_a_crash():
    def judge(position):
        if position == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return b"s"

    assert _verdicts(judge, [0, 1, 2, 3]) == "ssxs"


def test_damage_is_named(models):
    model = copy.deepcopy(models["vae"])
    state = model.__getstate__()
    state["module_"]["weights"]["encoder.0.weight"] = None
    with pytest.raises(ValueError, match="saved VAEEncoder is damaged"):
        VAEEncoder().__setstate__(state)
