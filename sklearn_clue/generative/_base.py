"""What estimators of generative models share: rows in, training, densities out."""

import math
import warnings
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sklearn_clue._progress import EpochProgress
from sklearn_clue._tables import names
from sklearn_clue._torch import (
    PRECISE_DTYPE,
    as_tensor,
    check_device,
    make_generator,
    on_cpu,
    to_numpy,
)
from sklearn_clue._validation import (
    CallbackSupportMixin,
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    check_count,
    check_is_fitted,
    check_weights,
    drop_weightless_rows,
)
from sklearn_clue.encoding import EncoderOwner
from sklearn_clue.generative._latent import ModuleConfig, build, by_rows
from sklearn_clue.generative._modules import folded
from sklearn_clue.generative._training import (
    MIN_PATIENCE,
    RowBatches,
    TrainingSettings,
    train,
)
from sklearn_clue.persistence import VersionedState
from sklearn_clue.schema import plain_schema

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")


class BaseGenerative(
    DocLinkMixin,
    EncoderOwner,
    CallbackSupportMixin,
    VersionedState,
    TransformerMixin,
    BaseEstimator,
):
    """What estimators around a `LatentModule` share.

    A subclass names the class of its module in `_module_class`, and encodes rows to
    the inputs of the module in `_encode_inputs`.
    """

    _parameter_constraints: dict = {
        "latent_dim": [COUNT, StrOptions({"auto"})],
        "hidden_layer_sizes": ["array-like", COUNT],
        "encoder": [
            HasMethods(["fit", "transform"]),
            StrOptions({"passthrough"}),
            None,
        ],
        "noise_variance": [POSITIVE, StrOptions({"learned"})],
        "learning_rate": [POSITIVE],
        "batch_size": [COUNT],
        "max_iter": [COUNT],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [COUNT],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def _pack_state(self, state):
        if "module_" in state:
            module = state["module_"]
            state["module_"] = {
                "config": module.config.to_dict(),
                "weights": {
                    name: to_numpy(value) for name, value in module.state_dict().items()
                },
            }
        return state

    def _unpack_state(self, state):
        if "module_" in state:
            packed = state["module_"]
            config = ModuleConfig.from_dict(packed["config"])
            module = build(self._module_class, config, seed=0)
            module.load_state_dict(
                {
                    # A copy: arrays may be memory-mapped, and read-only then.
                    name: torch.as_tensor(np.array(value))
                    for name, value in packed["weights"].items()
                }
            )
            state["module_"] = module.requires_grad_(False).eval()
        return state

    def latent_model(self):
        """Give the fitted model as explainers search it.

        Returns
        -------
        model : LatentModel
            `encode` and `decode` on tensors in encoded space, on the CPU.
        """
        check_is_fitted(self, "module_")
        return folded(on_cpu(self.module_))

    def score_samples(self, X, n_importance=100):
        """Estimate the log-density of rows by importance sampling.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge. Missing cells, where they are allowed, are integrated out.

        n_importance : int, default=100
            Latents drawn per row. On average the estimate is too low, and the less so
            the more draws.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats: log-probability of categories, log-density of numbers in the
            user's units, and for pixels their cross-entropy, which is a
            log-probability if they are black or white. The draws are the same in
            every call.
        """
        check_count("n_importance", n_importance)
        _, *inputs = self._read(X)
        log_density = self._by_rows(
            lambda module, x, present=None: module.log_prob(x, n_importance, present),
            *inputs,
            n_copies=min(n_importance, 100),
        )
        return log_density - self._log_scale(*inputs)

    def score(self, X, y=None):
        """Estimate the mean log-density of rows.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        y : None
            Ignored.

        Returns
        -------
        log_density : float
            Mean of :meth:`score_samples`, in nats per row.
        """
        return float(self.score_samples(X).mean())

    # Data -------------------------------------------------------------------------

    def _check_training_rows(self, X, sample_weight):
        """Check rows to fit, and leave out those of weight zero."""
        check_device(self.device)
        X = self._check_rows(X, reset=True)
        weight = check_weights(sample_weight, X)
        weight, X = drop_weightless_rows(weight, X)
        if len(weight) < 2:
            raise ValueError(
                f"{type(self).__name__} learns how rows differ and needs at least 2, "
                "got n_samples=1 (with a positive weight). Pass more rows."
            )
        return X, weight

    def _read(self, X):
        """Check rows to use; return them as they are, and the inputs they make."""
        check_is_fitted(self, "module_")
        X = self._check_rows(X, reset=False)
        return X, *self._encode_inputs(X)

    def _log_scale(self, x, present=None):
        """Log of the volume of a unit cube of encoded space, in the user's units."""
        if self.schema_ is None:
            return 0.0
        log_scale = np.log([column.scale for column in self.schema_.numbers])
        if present is None:
            present = np.ones_like(x)
            for column in self.schema_.numbers:
                if column.has_gap:
                    present[:, column.span[0]] -= x[:, column.gap_position]
        return present[:, self.schema_.numeric_index] @ log_scale

    def _auto_latent_dim(self):
        # Near those that the paper chose by hand (Table 4): 4 for 4 and for 7 columns,
        # 6 for 11 and 8 for 23.
        return max(round(1.7 * math.sqrt(self.n_features_in_)), 2)

    def _resolve_latent_dim(self, n_encoded):
        if self.latent_dim == "auto":
            return self._auto_latent_dim()
        if self.latent_dim > n_encoded:
            warnings.warn(
                f"latent_dim={self.latent_dim} is more than the {n_encoded} encoded "
                "columns, so some latents will carry nothing. Lower it.",
                UserWarning,
                stacklevel=6,
            )
        return int(self.latent_dim)

    def _learn_schema(self, X, n_encoded):
        """The encoder's schema, or one of plain numbers where it has none."""
        schema = getattr(self.encoder_, "schema_", None)
        return plain_schema(names(X), n_encoded) if schema is None else schema

    def _decode_rows(self, x, index=None):
        """Turn encoded rows into the user's table."""
        if self.encoder_ is None:
            return x.astype(np.float64)
        if not hasattr(self.encoder_, "inverse_transform"):
            raise AttributeError(
                f"The encoder {self.encoder_!r} has no inverse_transform, so there is "
                "no way back to the user's rows. Use TabularEncoder."
            )
        if index is not None:
            import pandas as pd

            x = pd.DataFrame(x, index=index)
        return self.encoder_.inverse_transform(x)

    # Training ---------------------------------------------------------------------

    def _train(self, config, inputs, weight, draw, all_threads=False):
        """Build a module and train it on distinct rows; set the fitted attributes.

        Copies of a row are merged before, so none can sit in the validation split of
        another.
        """
        device = str(self.device)
        if len(weight) == 1:
            # Constant data: batch normalisation still wants two rows.
            inputs = {
                name: np.repeat(array, 2, axis=0) for name, array in inputs.items()
            }
            weight = np.repeat(weight, 2)
        rng = check_random_state(self.random_state)
        seeds = rng.randint(2**31 - 1, size=4)
        module = build(self._module_class, config, seed=seeds[0]).to(device)
        tensors = {name: as_tensor(array, device) for name, array in inputs.items()}
        weight = as_tensor(weight / weight.mean(), device)
        seen = weight[:, None] * tensors.get("present", torch.ones_like(tensors["x"]))
        mean = (seen * tensors["x"]).sum(0) / seen.sum(0).clamp_min(1e-12)
        with torch.no_grad():
            module.decoder.set_bias(module.likelihood.outputs_for(mean))

        batches, validation = self._split(tensors, weight, draw, seeds[1:])
        settings = TrainingSettings(
            learning_rate=self.learning_rate,
            max_iter=self._resolve_max_iter(len(batches)),
            # Few rows make epochs of few batches, in which nothing can happen yet.
            n_iter_no_change=max(
                self.n_iter_no_change, math.ceil(MIN_PATIENCE / len(batches))
            ),
            tol=self.tol,
            device=device,
            all_threads=all_threads,
        )
        context = self._init_callback_context(max_subtasks=settings.max_iter)
        progress = EpochProgress(
            settings.max_iter,
            type(self).__name__,
            verbose=int(self.verbose),
            context=context,
            estimator=self,
        )
        result = train(module, batches, validation, settings, progress)
        self.module_ = module
        self.history_ = result.history
        self.n_iter_ = len(result.history)
        self.best_iter_ = result.best_epoch
        if result.is_interrupted:
            warnings.warn(
                f"Training was interrupted after {self.n_iter_} of at most "
                f"{settings.max_iter} epochs. The model is usable, with the best "
                "weights so far.",
                ConvergenceWarning,
                stacklevel=6,
            )
        elif validation is not None and result.best_epoch == settings.max_iter > 1:
            warnings.warn(
                f"The validation bound was still rising after max_iter="
                f"{settings.max_iter} epochs. Raise max_iter or learning_rate (now "
                f"{self.learning_rate}) for a better model.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _split(self, tensors, weight, draw, seeds):
        """Batches to train on, and those to validate on or None."""
        n_rows, device = len(weight), weight.device
        train_rows = torch.arange(n_rows, device=device)
        validation = None
        if self.early_stopping and n_rows >= 4:
            n_valid = round(self.validation_fraction * n_rows)
            n_valid = min(max(n_valid, 1), n_rows - 2)
            generator = make_generator(seeds[0], device)
            order = torch.randperm(n_rows, generator=generator, device=device)
            valid_rows, train_rows = order[:n_valid], order[n_valid:]
            # The noise of the bound is drawn once, so that epochs are compared on
            # the same; small splits draw several times per row to keep it low.
            n_repeats = min(max(1000 // n_valid, 1), 10)
            valid_rows = valid_rows.repeat(n_repeats)
            validation = list(
                RowBatches(
                    {name: tensor[valid_rows] for name, tensor in tensors.items()},
                    weight[valid_rows],
                    1024,
                    draw,
                    make_generator(seeds[1], device),
                )
            )
        batches = RowBatches(
            {name: tensor[train_rows] for name, tensor in tensors.items()},
            weight[train_rows],
            self.batch_size,
            draw,
            make_generator(seeds[2], device),
        )
        return batches, validation

    def _resolve_max_iter(self, n_batches):
        return self.max_iter

    # Use --------------------------------------------------------------------------

    def _by_rows(self, function, *arrays, n_copies=1):
        """Apply a function of the module and of tensors to rows; see `by_rows`."""
        return by_rows(
            self.module_,
            function,
            *arrays,
            n_copies=n_copies,
            device=self.device,
            dtype=self._inference_dtype(),
        )

    def _inference_dtype(self):
        return PRECISE_DTYPE
