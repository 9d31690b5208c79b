"""What all explainers share: fitting the parts, predicting, and telling the user."""

import warnings
from abc import abstractmethod
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_memory

from sklearn_clue._parallel import run_parallel
from sklearn_clue._tables import take
from sklearn_clue._torch import ROWS_PER_TILE, one_thread
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    _fit_context,
    _routing_enabled,
    check_is_fitted,
    check_labels,
    naming,
)
from sklearn_clue.bayesian import BayesianMLPClassifier
from sklearn_clue.encoding import EncoderOwner, TabularEncoder
from sklearn_clue.exceptions import SearchConvergenceWarning
from sklearn_clue.explainers._space import (
    EncodedSpace,
    PixelScaler,
    check_constraints,
    check_same_space,
)
from sklearn_clue.explanation import Explanation, SearchPath
from sklearn_clue.persistence import VersionedState
from sklearn_clue.providers import (
    AffineInputs,
    as_provider,
    check_gradients,
    check_model,
    check_prediction,
    decide,
    is_net,
    labels_of,
    peel,
    read_task,
    same_steps,
    thawed,
    unit_of,
)
from sklearn_clue.uncertainty import (
    Uncertainty,
    UncertaintyProvider,
    weights_of_parts,
)

# Candidates of a row this close to each other, in every position of encoded space
# (standard deviations), tell the same story.
SAME_CANDIDATE = 0.1


class Found(NamedTuple):
    """What the method of an explainer found for some rows, as arrays.

    Candidates of a row are along the second axis.
    """

    x: np.ndarray  # (n_rows, n_candidates, n_encoded)
    n_iter: np.ndarray  # (n_rows, n_candidates)
    converged: np.ndarray  # (n_rows, n_candidates)
    path_z: np.ndarray | None = None  # (n_rows, n_candidates, n_points, n_latent)
    path_value: np.ndarray | None = None  # (n_rows, n_candidates, n_points)
    reconstructed: np.ndarray | None = None  # (n_rows, n_encoded)
    floor: np.ndarray | None = None  # (n_rows,)


class Candidates(NamedTuple):
    """Rows that explain others, as the user gets them."""

    rows: Any  # in the container of the user
    x: np.ndarray  # (n_candidates, n_encoded): encoded again
    parts: Uncertainty
    prediction: np.ndarray  # (n_candidates, n_outputs)

    def keep(self, positions):
        """Some of them."""
        return Candidates(
            take(self.rows, positions),
            self.x[positions],
            Uncertainty(*(part[positions] for part in self.parts)),
            self.prediction[positions],
        )


class BaseUncertaintyExplainer(
    DocLinkMixin, VersionedState, MetaEstimatorMixin, BaseEstimator
):
    """Fit a predictor and a generator, and explain why the predictor is unsure.

    A subclass sets `_method`, its name; `_trade_off`, the name of the parameter that
    trades the uncertainty explained for the size of the change; `_search`, which
    changes rows in encoded space; `_objective`, which judges the result; and
    `_default_generator` if it needs a generator. Everything around it happens here.
    """

    _method: str
    _trade_off: str

    _parameter_constraints: dict = {
        "estimator": [
            HasMethods("fit"),
            HasMethods("uncertainty"),
            torch.nn.Module,
            list,
            tuple,
            None,
        ],
        "uncertainty": [StrOptions(set(Uncertainty._fields)), dict],
        "memory": [str, HasMethods("cache"), None],
        "immutable_features": ["array-like", str, None],
        "feature_ranges": [dict, None],
        "rejection_rate": [Interval(Real, 0, 1, closed="both")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    _check_rows = EncoderOwner._check_rows

    # Fitting ----------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **fit_params):
        """Fit the estimator, and the generator if there is one.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values. May be None if the estimator is frozen.

        **fit_params : dict
            Metadata such as `sample_weight`: for the estimator, or routed as requested
            if metadata routing is enabled.

        Returns
        -------
        self : object
            The fitted explainer.
        """
        return self._fit(X, y, fit_params)

    def _read(self, X, y):
        """Check rows and targets as far as they concern no part in particular."""
        X = self._check_rows(X, reset=True)
        with naming("y"):
            if not (y is None or hasattr(y, "__getitem__")):
                y = np.asarray(y)
            check_consistent_length(X, y)
            if y is not None and is_classifier(self):
                check_labels(np.asarray(y))
                check_classification_targets(y)
        return X, y

    def _fit(self, X, y, fit_params):
        weights_of_parts(self.uncertainty)
        X, y = self._read(X, y)
        params = self._route(fit_params)
        rng = check_random_state(self.random_state)
        estimator_seed, generator_seed = rng.randint(2**31 - 1, size=2)
        generator = self._seeded(self._resolve_generator(), generator_seed)
        knows_images = self if generator is None else thawed(generator)
        image_shape = getattr(knows_images, "image_shape", None)
        estimator = self._resolve_estimator()
        check_model(estimator)
        if image_shape is not None:
            estimator = _see_pixels(estimator)
        estimator = self._seeded(estimator, estimator_seed)
        if y is None and not _is_fitted_already(estimator):
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        self.is_classification_ = read_task(estimator, X, y)
        if not isinstance(thawed(estimator), Pipeline):
            # Before long work. Steps of a pipeline may rename columns.
            check_constraints(X, self.immutable_features, self.feature_ranges)

        # What is printed makes no difference to what is fitted.
        fit_part = check_memory(self.memory).cache(_fit_part, ignore=["verbose"])
        fit_part = partial(fit_part, verbose=self.verbose)
        self.estimator_ = fit_part(estimator, X, y, params["estimator"])
        predictor = PredictorView(
            self.estimator_, X, image_shape, self._n_classes(self.estimator_, y)
        )
        space = EncodedSpace(
            predictor.steps,
            predictor.encoder,
            X,
            self.immutable_features,
            self.feature_ranges,
        )
        self._read_answers(predictor, space, X, y)
        if generator is not None:
            inputs = space.to_inputs(X)
            if _is_frozen(generator):
                check_same_space(space, thawed(generator), inputs)
            elif image_shape is None and getattr(generator, "encoder", "") is None:
                encoder = predictor.encoder
                generator.set_params(
                    encoder="passthrough"
                    if encoder is None
                    else FrozenEstimator(thawed(encoder))
                )
            # One without an encoder lives in encoded space from the start.
            rows = inputs if hasattr(generator, "encoder") else space.encode(X)
            generator = fit_part(generator, rows, None, params["generator"])
            self.generator_ = thawed(generator)
            check_same_space(space, self.generator_, inputs)
            self.n_iter_ = getattr(self.generator_, "n_iter_", None)
        self._provider, self._space = predictor.provider, space
        self._shares_steps = predictor.shares_steps
        self._image_shape = image_shape
        self.threshold_ = self._learn_threshold(X)
        return self

    def _learn_threshold(self, X):
        """Find the uncertainty above which `rejection_rate` of new rows will lie.

        It is a quantile over the rows of `fit`, whose targets play no part in it. A
        model may still be surer about rows that it has seen. Rows held out from a
        second fit would tell, but they are few and that model has seen less: over
        networks and Bayesian ones, on 200 and 600 rows, such thresholds missed the
        share of new rows by more than this one did.
        """
        total = self._judge(X)[0].total
        if not total.any():
            warnings.warn(
                "The estimator is never unsure, so there is nothing to explain. A "
                "single regressor that predicts nothing but a mean is of that kind: "
                "pass several as a list, or a BayesianMLPRegressor.",
                UserWarning,
                stacklevel=5,
            )
        return float(np.quantile(total, 1 - self.rejection_rate))

    def _n_classes(self, model, y):
        labels = labels_of(model, None, y) if self.is_classification_ else None
        return None if labels is None else len(labels)

    def _read_answers(self, predictor, space, X, y):
        """Learn the class labels, and refuse answers that do not fit the targets."""
        x = space.encode(take(X, np.arange(min(X.shape[0], 100))))
        _, prediction = _judge(predictor.provider, x)
        if self.is_classification_:
            n_classes = prediction.shape[1]
            self.classes_ = labels_of(self.estimator_, n_classes, y)
            check_prediction(self.estimator_, prediction, None)
            return
        if "classes_" in vars(self):
            del self.classes_
        if y is not None:
            check_prediction(self.estimator_, prediction, y)

    def _resolve_estimator(self):
        """A fresh copy of the estimator, or the thing itself if it is fitted."""
        estimator = self.estimator
        if estimator is None:
            return BayesianMLPClassifier()
        if isinstance(estimator, list | tuple):
            return [_fresh(member) for member in estimator]
        return _fresh(estimator)

    def _resolve_generator(self):
        """A fresh copy of the generator; None for a method without one."""
        generator = getattr(self, "generator", None)
        return self._default_generator() if generator is None else _fresh(generator)

    def _default_generator(self):
        return None

    def _seeded(self, part, seed):
        """Fix what a part leaves to chance, if this explainer leaves nothing to it."""
        if self.random_state is None or part is None:
            return part
        if isinstance(part, list):
            return [
                self._seeded(member, seed + position)
                for position, member in enumerate(part)
            ]
        return _hand_down(part, "random_state", None, int(seed) % (2**31 - 1))

    def get_metadata_routing(self):
        """Get the metadata routing of this object.

        Returns
        -------
        routing : MetadataRouter
            `fit` passes metadata to the parts that request it.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self)
        for name in ("estimator", "generator"):
            part = getattr(self, f"_resolve_{name}")()
            if hasattr(part, "get_metadata_routing"):
                router.add(**{name: part}, method_mapping=mapping)
        return router

    def _route(self, fit_params):
        if not fit_params:
            return {"estimator": {}, "generator": {}}
        if _routing_enabled():
            routed = process_routing(self, "fit", **fit_params)
            return {
                name: dict(routed[name].fit) if name in routed else {}
                for name in ("estimator", "generator")
            }
        # Without routing it goes to the one that predicts, as in scikit-learn.
        return {"estimator": fit_params, "generator": {}}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        estimator = self.estimator
        if estimator is None:
            estimator = BayesianMLPClassifier()
        elif isinstance(estimator, list | tuple):
            estimator = estimator[0] if estimator else None
        if hasattr(estimator, "__sklearn_tags__"):
            inner = get_tags(estimator)
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags = inner.classifier_tags
            tags.regressor_tags = inner.regressor_tags
            if tags.regressor_tags is not None:
                tags.regressor_tags.poor_score = True  # `score` judges explanations
            tags.target_tags = inner.target_tags
            tags.input_tags = inner.input_tags
        tags.input_tags.sparse = False
        return tags

    def _pack_state(self, state):
        provider = state.pop("_provider", None)
        if provider is not None:
            # All of it comes from the estimator, but for the unit of its inputs.
            is_affine = isinstance(provider, AffineInputs)
            unit = (provider.offset, provider.factor) if is_affine else None
            state["_unit_of_inputs"] = unit
        return state

    def _unpack_state(self, state):
        if "_unit_of_inputs" in state:
            unit = state.pop("_unit_of_inputs")
            classes = state.get("classes_")
            provider = as_provider(
                _steps_and_model(state["estimator_"], state["_shares_steps"])[1],
                None if classes is None else len(classes),
            )
            state["_provider"] = provider if not unit else AffineInputs(provider, *unit)
        return state

    # Predicting -------------------------------------------------------------------

    def predict(self, X):
        """Predict by the fitted estimator.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Class labels, or means.
        """
        check_is_fitted(self, "estimator_")
        if self._speaks_tables("predict"):
            return self.estimator_.predict(X)
        return self._in_words(self._judge(X)[1])

    @available_if(lambda self: self._has_classes())
    def predict_proba(self, X):
        """Predict class probabilities by the fitted estimator.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self, "estimator_")
        if self._speaks_tables("predict_proba"):
            return self.estimator_.predict_proba(X)
        return self._judge(X)[1]

    def _speaks_tables(self, method):
        """Whether the estimator answers itself; a skorch net wants float32 arrays."""
        is_table = not is_net(peel(self.estimator_)[1])
        return is_table and hasattr(self.estimator_, method)

    def _has_classes(self):
        if hasattr(self, "is_classification_"):
            return self.is_classification_
        return get_tags(self).estimator_type != "regressor"

    def predict_uncertainty(self, X):
        """Tell how unsure the predictions are, and why.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        parts : Uncertainty
            `total`, `aleatoric` and `epistemic`, each of shape (n_samples,): nats for
            classes, the unit of the target for regression. Of several outputs, the
            length of the vector of their standardised deviations.
        """
        check_is_fitted(self, "estimator_")
        return self._judge(X)[0]

    def rejects(self, X):
        """Tell which rows the model should not decide on.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        is_rejected : ndarray of bool of shape (n_samples,)
            Whether the total uncertainty is above `threshold_`.
        """
        return self.predict_uncertainty(X).total > self.threshold_

    def _judge(self, X):
        """Uncertainty and prediction for the user's rows, in the user's units."""
        X = self._check_rows(X, reset=False)
        return self._judge_encoded(self._space.encode(X))

    def _judge_encoded(self, x):
        parts, prediction = _judge(self._provider, x)
        unit = unit_of(self._provider)
        return Uncertainty(*(unit * part for part in parts)), prediction

    def _in_words(self, prediction):
        """Class labels, or means in the unit of the target."""
        decided = decide(self._provider, prediction)
        return self.classes_[decided] if self.is_classification_ else decided

    # Explaining -------------------------------------------------------------------

    def explain(self, X):
        """Find, for each row, another one that the model is surer about.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain, of any length; those that :meth:`rejects` picks are the
            ones worth explaining.

        Returns
        -------
        explanation : Explanation
            Counterfactuals in the units and the container of X, and what they did to
            the uncertainty.
        """
        check_is_fitted(self, "estimator_")
        self._validate_params()  # they may have been set since `fit`
        return self._explain(X, (self._trade_off_value(),))[0]

    def _trade_off_value(self):
        return getattr(self, self._trade_off)

    @abstractmethod
    def _search(self, trade_offs):
        """Give a picklable function from `(x0, limits)` to one `Found` per value."""

    @abstractmethod
    def _objective(self, judged, before, x, x0, trade_off):
        """Give the value that ranks candidates; arrays in and out.

        `judged` and `before` are pairs of standardised parts of the uncertainty and
        predictions, for the encoded candidates x and the rows x0 they are for.
        """

    def _explain(self, X, trade_offs):
        """Explain rows, once per value of the parameter `_trade_off`."""
        check_is_fitted(self, "estimator_")
        check_gradients(self._provider, type(self).__name__)
        X = self._check_rows(X, reset=False)
        # The models do not depend on constraints, so these may be set after `fit`.
        space = self._space.constrained(self.immutable_features, self.feature_ranges)
        shown = space.display(X)
        x0 = space.encode_display(shown)
        limits = space.limits(shown, x0)
        search = self._search(trade_offs)
        chunks = [
            slice(start, start + self.batch_size)
            for start in range(0, len(x0), self.batch_size)
        ]
        calls = [
            partial(_run, search, x0[rows], limits and limits.take(rows))
            for rows in chunks
        ]
        found = run_parallel(calls, self.n_jobs, max(int(self.verbose) - 1, 0))
        found = [_join(chunks) for chunks in zip(*found, strict=True)]
        before = _judge(self._provider, x0)
        reconstructed = None
        if found[0].reconstructed is not None:
            reconstructed = self._judge_encoded(found[0].reconstructed)[0]
        # The user gets rows in the user's units. What is reported about them is
        # measured on those very rows, encoded again. All values at once, because
        # tables have a price per call and column.
        n_rows, n_candidates, n_encoded = found[0].x.shape
        repeats = np.repeat(np.arange(n_rows), n_candidates)
        all_repeats = np.tile(repeats, len(found))
        rows = space.decode(
            np.concatenate([each.x.reshape(-1, n_encoded) for each in found]),
            take(shown, all_repeats),
            x0[all_repeats],
        )
        x = space.encode_display(rows)
        candidates = Candidates(rows, x, *_judge(self._provider, x))
        explanations = []
        for i, (each, value) in enumerate(zip(found, trade_offs, strict=True)):
            its_own = candidates.keep(slice(i * len(repeats), (i + 1) * len(repeats)))
            told = self._tell(shown, x0, before, reconstructed, each, its_own, value)
            explanations.append(told)
        return explanations

    def _tell(self, X, x0, before, reconstructed, found, candidates, trade_off):
        """Turn what was found into an `Explanation`."""
        n_rows, n_candidates, _ = found.x.shape
        repeats = np.repeat(np.arange(n_rows), n_candidates)
        rows, x, parts, prediction = candidates
        distance = np.abs(x - x0[repeats]).sum(1)
        objective = self._objective(
            (parts, prediction),
            (Uncertainty(*(part[repeats] for part in before[0])), before[1][repeats]),
            x,
            x0[repeats],
            trade_off,
        )
        unit = unit_of(self._provider)
        details = pd.DataFrame(
            {
                "row": repeats,
                "rank": 0,
                "objective": objective,
                **{name: unit * part for name, part in parts._asdict().items()},
                "distance": distance,
                "count": 1,
            }
        )
        details = _merge_candidates(details, x)
        details.index.name = None
        chosen = details.index.to_numpy()
        best = chosen[details["rank"].to_numpy() == 0]
        which = (np.arange(n_rows), best % n_candidates)
        # Slices of a sorted frame cost far less than picking rows out for each.
        ordered = take(rows, chosen)
        ends = np.cumsum(np.bincount(details["row"], minlength=n_rows))
        candidates = [
            take(ordered, slice(start, end))
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        _warn_unconverged(found.converged[which], self)
        return Explanation(
            X=X,
            counterfactuals=take(rows, best),
            candidates=candidates,
            candidate_details=details.reset_index(drop=True),
            uncertainty_before=Uncertainty(*(unit * part for part in before[0])),
            uncertainty_after=Uncertainty(*(unit * part[best] for part in parts)),
            uncertainty_reconstructed=reconstructed,
            prediction_before=self._in_words(before[1]),
            prediction_after=self._in_words(prediction[best]),
            distance=distance[best],
            distance_floor=found.floor,
            objective=objective[best],
            n_iter=found.n_iter[which],
            converged=found.converged[which],
            path=None
            if found.path_z is None
            else SearchPath(found.path_z[which], found.path_value[which]),
            encoded=x0,
            encoded_counterfactuals=x[best],
            schema=self._space.display_schema,
            image_shape=self._image_shape,
            is_classification=self.is_classification_,
            distance_weight=trade_off if self._trade_off == "distance_weight" else None,
            threshold=self.threshold_,
            method=self._method,
            note=self._space.note,
        )


class PredictorView:
    """A fitted estimator as explainers see it.

    Attributes
    ----------
    steps : list of transformers
        What comes before the encoder.

    encoder : transformer or None
        From the input of the predictor to encoded space.

    provider : UncertaintyProvider
        Takes encoded rows.

    shares_steps : bool
        Whether `steps` are those that all members of an ensemble have in common.
    """

    def __init__(self, estimator, X, image_shape, n_classes):
        is_list = isinstance(estimator, list)
        self.shares_steps = is_list and same_steps(estimator, X)
        self.steps, model = _steps_and_model(estimator, self.shares_steps)
        self.provider = as_provider(model, n_classes)
        inputs = X
        for step in self.steps:
            inputs = step.transform(inputs)
        if image_shape is not None:
            self._read_images(model, inputs)
        elif hasattr(model, "encoder_"):
            self.encoder = model.encoder_
        elif self.steps and isinstance(thawed(self.steps[-1]), TabularEncoder):
            self.encoder = thawed(self.steps.pop())
        else:
            # Models without an encoder take numbers as they are. Distances need them
            # on one scale, so encoded space is standardised all the same.
            self.encoder = TabularEncoder(categorical_features=None).fit(inputs)
            columns = self.encoder.schema_.columns
            self.provider = AffineInputs(
                self.provider,
                [column.center for column in columns],
                [column.scale for column in columns],
            )

    def _read_images(self, model, inputs):
        """Encoded space is that of pixels; the model may have another of its own."""
        self.encoder = PixelScaler().fit(inputs)
        full = 255.0 if self.encoder.dtype_.kind in "iu" else 1.0
        own = getattr(model, "encoder_", None)
        if isinstance(own, PixelScaler):
            return
        center, scale = np.zeros(1), np.full(1, full)
        if isinstance(thawed(own), TabularEncoder):
            columns = thawed(own).schema_.columns
            spread = np.array([column.scale for column in columns])
            center = -np.array([column.center for column in columns]) / spread
            scale = full / spread
        elif own is not None:
            raise ValueError(
                "A predictor of images must take pixels as they are, or encode them "
                f"by TabularEncoder, got the encoder {own!r}. Use "
                "encoder='passthrough'."
            )
        self.provider = AffineInputs(self.provider, center, scale)


# Parts -----------------------------------------------------------------------------


def _is_frozen(part):
    return isinstance(part, FrozenEstimator)


def _steps_and_model(estimator, shares_steps):
    """What comes before the model, and the model itself or a list of them."""
    if not shares_steps:
        return peel(estimator)
    peeled = [peel(member) for member in estimator]
    return peeled[0][0], [model for _, model in peeled]


def _fresh(part):
    """A copy to fit; what is fitted already is taken as it is."""
    return part if _is_fitted_already(part) else clone(part)


def _hand_down(part, parameter, default, value):
    """Set a parameter of a part, and of its own parts, wherever it is the default."""
    if not hasattr(part, "get_params") or _is_frozen(part):
        return part
    names = [
        name
        for name, own in part.get_params(deep=True).items()
        if name.split("__")[-1] == parameter
        # False is no 0: a Pipeline takes nothing but a boolean.
        and type(own) is type(default)
        and own == default
    ]
    return part.set_params(**dict.fromkeys(names, value))


def _is_fitted_already(part):
    if isinstance(part, list):
        return all(_is_fitted_already(member) for member in part)
    return isinstance(part, FrozenEstimator | torch.nn.Module | UncertaintyProvider)


def _see_pixels(estimator):
    """Let a predictor of ours see pixels between 0 and 1, and not standardise them."""
    # A pixel that is black in all training images has no scale.
    if not _is_frozen(estimator) and getattr(estimator, "encoder", "") is None:
        return estimator.set_params(encoder=PixelScaler())
    return estimator


def _fit_part(part, X, y, params, verbose=0):
    if isinstance(part, list):
        return [_fit_part(member, X, y, params, verbose) for member in part]
    if _is_fitted_already(part):
        return part
    # Parts that are silent themselves report as the explainer should.
    part = _hand_down(clone(part), "verbose", 0, verbose)
    if is_net(part):  # it takes the columns of frames apart
        X = np.asarray(X, dtype=np.float32)
    return part.fit(X, y, **params)


def read_weights(name, values):
    """Check values of a trade-off and give them as an array."""
    weights = np.asarray(values)
    if (
        weights.ndim != 1
        or not len(weights)
        or weights.dtype.kind not in "iuf"
        or not ((weights >= 0) & (weights < np.inf)).all()
    ):
        raise ValueError(
            f"{name} must be a sequence of finite numbers that are at least 0, got "
            f"{values!r}."
        )
    return weights.astype(np.float64)


# Numbers ---------------------------------------------------------------------------


def _judge(provider, x, block=1024):
    """Ask a provider about many rows without gradients; arrays in and out."""
    answers = []
    with one_thread(), torch.no_grad():
        for start in range(0, max(len(x), 1), block):
            # Whole tiles, so that answers do not depend on neighbours.
            rows = torch.as_tensor(x[start : start + block])
            missing = -len(rows) % ROWS_PER_TILE
            padded = torch.nn.functional.pad(rows, (0, 0, 0, missing))
            parts, prediction = provider.uncertainty(padded)
            answers.append([a[: len(rows)].numpy() for a in (*parts, prediction)])
    *parts, prediction = (
        np.concatenate(pieces).astype(np.float64)
        for pieces in zip(*answers, strict=True)
    )
    return Uncertainty(*parts), prediction


def _run(search, x0, limits):
    with one_thread():
        return search(x0, limits)


def _join(chunks):
    """Put the rows of several chunks together; paths may differ in length."""
    joined = {}
    for name in Found._fields:
        pieces = [getattr(chunk, name) for chunk in chunks]
        if name.startswith("path") and pieces[0] is not None:
            n_steps = max(piece.shape[2] for piece in pieces)
            pieces = [_pad_steps(piece, n_steps) for piece in pieces]
        joined[name] = None if pieces[0] is None else np.concatenate(pieces)
    return Found(**joined)


def _pad_steps(path, n_steps):
    widths = [(0, 0)] * path.ndim
    widths[2] = (0, n_steps - path.shape[2])
    return np.pad(path, widths, constant_values=np.nan)


def _merge_candidates(details, x):
    """Sort the candidates of each row by objective, and merge those that are alike."""
    if details["row"].is_unique:
        return details
    details = details.sort_values(["row", "objective"], kind="stable")
    kept, counts, ranks = [], [], []
    for _, group in details.groupby("row", sort=False):
        heads = []
        for position in group.index:
            gaps = [np.abs(x[position] - x[head]).max() for head in heads]
            if gaps and min(gaps) < SAME_CANDIDATE:
                counts[len(counts) - len(heads) + int(np.argmin(gaps))] += 1
                continue
            ranks.append(len(heads))
            heads.append(position)
            counts.append(1)
        kept += heads
    details = details.loc[kept]
    details["rank"], details["count"] = ranks, counts
    return details


def _warn_unconverged(converged, explainer):
    n_open = int((~converged).sum())
    if n_open:
        warnings.warn(
            f"The search of {n_open} of {len(converged)} rows had not come to rest "
            f"after max_iter={explainer.max_iter} steps. Their best step is returned; "
            "raise max_iter for a better one.",
            SearchConvergenceWarning,
            stacklevel=5,
        )
