"""Saving fitted estimators: versioned state that is plain data, and whom to trust."""

import os
import zlib
from contextlib import contextmanager
from numbers import Number
from pathlib import Path
from secrets import token_hex

import numpy as np
import torch

__all__ = ["TRUSTED_TYPES"]

#: Types that `skops.io.load` must be told to trust, for all estimators of the package.
TRUSTED_TYPES = (
    "sklearn.utils._bunch.Bunch",
    "sklearn_clue._noise.PredictedNoiseRegressor",
    "sklearn_clue.bayesian._chains.ChainState",
    "sklearn_clue.bayesian._ensemble.DeepEnsembleClassifier",
    "sklearn_clue.bayesian._ensemble.DeepEnsembleRegressor",
    "sklearn_clue.bayesian._mlp.BayesianMLPClassifier",
    "sklearn_clue.bayesian._mlp.BayesianMLPRegressor",
    "sklearn_clue.encoding.TabularEncoder",
    "sklearn_clue.evaluation._ground_truth.GroundTruth",
    "sklearn_clue.explainers._clue.CLUEExplainer",
    "sklearn_clue.explainers._clue.CLUEExplainerCV",
    "sklearn_clue.explainers._groups.GroupExplainer",
    "sklearn_clue.explainers._neighbor_explainer.NeighborExplainer",
    "sklearn_clue.explainers._neighbors.StoredRows",
    "sklearn_clue.explainers._sensitivity.LocalSensitivityExplainer",
    "sklearn_clue.explainers._space.EncodedSpace",
    "sklearn_clue.explainers._space.PixelScaler",
    "sklearn_clue.explainers._ufido.UFIDOExplainer",
    "sklearn_clue.generative._two_level.TwoLevelVAEAC",
    "sklearn_clue.generative._vae.VAEEncoder",
    "sklearn_clue.generative._vaeac.VAEACImputer",
    "sklearn_clue.pipeline.Pipeline",
    "sklearn_clue.providers._leaves.Leaves",
    "sklearn_clue.providers._leaves.Nodes",
    "sklearn_clue.providers._leaves.TreeMember",
    "sklearn_clue.providers._row_ensembles.BaggedRows",
    "sklearn_clue.providers._row_ensembles.MembersRows",
    "sklearn_clue.providers._row_ensembles.TreesRows",
    "sklearn_clue.providers._rows.ProbabilityRows",
    "sklearn_clue.providers._rows.QuantileRows",
    "sklearn_clue.providers._rows.SpreadRows",
    "sklearn_clue.providers._rows.StepsRows",
    "sklearn_clue.providers._rows.read_gaussian_process",
    "sklearn_clue.providers._rows.read_mean",
    "sklearn_clue.providers._rows.read_precision",
    "sklearn_clue.providers._rows.read_return_std",
    "sklearn_clue.schema.ColumnSchema",
    "sklearn_clue.schema.FeatureSchema",
)

# The form of what `__getstate__` returns, of all estimators together. Whoever changes
# it raises this number, teaches `_unpack_state` to read the older forms as well, and
# adds a file of the new form to tests/reference. Named tuples within a state are made
# before its version is read, so one with other fields needs another name.
STATE_VERSION = 4

# Older forms than this were never released.
OLDEST_VERSION = 4

_STAMP = "_sklearn_clue_state"


class VersionedState:
    """Stamp the state of an estimator with a version and a checksum.

    A mixin left of `BaseEstimator`. States hold numpy arrays and plain Python values,
    so that files outlive releases of torch and pandas, map into memory, and load
    where there is no GPU. A subclass with other things on board overrides
    `_pack_state` and `_unpack_state`.
    """

    def __getstate__(self):
        from sklearn_clue import __version__

        state = self._pack_state(dict(super().__getstate__()))
        # Sorted: a model that was loaded must not look different to a cache.
        state = {name: _as_text(value) for name, value in sorted(state.items())}
        state[_STAMP] = {
            "version": STATE_VERSION,
            "written_by": __version__,
            "checksum": checksum(state),
        }
        return state

    def __setstate__(self, state):
        from sklearn_clue import __version__

        name = type(self).__name__
        state = dict(state)
        stamp = state.pop(_STAMP, None)
        if not isinstance(stamp, dict):
            raise ValueError(
                f"The saved {name} holds no state version, so sklearn_clue cannot have "
                "written it as it is. Fit the model again, and save it with joblib, "
                "pickle or skops."
            )
        if stamp["version"] > STATE_VERSION:
            raise ValueError(
                f"The saved {name} has state version {stamp['version']}, written by "
                f"sklearn_clue {stamp['written_by']}, and sklearn_clue {__version__} "
                f"reads versions up to {STATE_VERSION}. Install sklearn_clue "
                f"{stamp['written_by']} or newer to load it."
            )
        if stamp["version"] < OLDEST_VERSION:
            raise ValueError(
                f"The saved {name} has state version {stamp['version']}, which was "
                f"written before the first release, and sklearn_clue {__version__} "
                f"reads versions from {OLDEST_VERSION}. Fit the model again."
            )
        if stamp["checksum"] != checksum(state):
            raise ValueError(
                f"The saved {name} is damaged: its contents do not match their "
                "checksum. Copy the file again, or fit the model again."
            )
        super().__setstate__(self._unpack_state(state))

    def _pack_state(self, state):
        """Turn attributes into arrays and plain values."""
        return state

    def _unpack_state(self, state):
        """Undo `_pack_state`."""
        return state


def _as_text(value):
    """Write a parameter that text says as well; the types are of other projects."""
    if isinstance(value, torch.device):
        return str(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def checksum(value, start=0):
    """Sum up arrays, plain values and objects of the package; of others the type.

    Parameters
    ----------
    value : object
        What to sum up.

    start : int, default=0
        The checksum of what came before.

    Returns
    -------
    checksum : int
        A CRC-32.
    """
    if isinstance(value, np.ndarray) and value.dtype != object:
        start = zlib.crc32(f"{value.dtype.str}{value.shape}".encode(), start)
        return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8), start)
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    if isinstance(value, np.ndarray | list | tuple):
        start = zlib.crc32(f"{len(value)} parts".encode(), start)
        for part in value:
            start = checksum(part, start)
        return start
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Number | str | bytes | None):
        return zlib.crc32(f"{type(value).__name__}{value!r}".encode(), start)
    start = zlib.crc32(type(value).__name__.encode(), start)
    is_ours = type(value).__module__.startswith("sklearn_clue.")
    if is_ours and not isinstance(value, VersionedState):  # these check themselves
        return checksum(value.__getstate__(), start)
    return start


@contextmanager
def replacing(path, mode="wb", **options):
    """Open a file that takes the place of another one once it is whole.

    Nobody ever sees half of it, whatever ends the writing, and two processes that write
    at the same time do not meet: one of them is the last.

    Parameters
    ----------
    path : path-like
        The file to replace, or to make.

    mode : str, default="wb"
        How to open it.

    **options : dict
        What `open` takes besides.

    Yields
    ------
    file : file object
        Where to write.
    """
    path = Path(os.path.realpath(path))  # a link goes on to lead there
    if path.exists() and not path.is_file():  # a terminal or a pipe, to write to
        with open(path, mode, **options) as file:
            yield file
        return
    unfinished = path.with_name(f"{path.stem[:100]}.{token_hex(4)}.unfinished")
    try:
        with open(unfinished, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
