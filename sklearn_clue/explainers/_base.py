"""What all explainers share: fitting the parts, predicting, and telling the user."""

import copy
import warnings
from abc import abstractmethod
from functools import partial
from numbers import Integral, Real

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
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

from sklearn_clue import _fitting
from sklearn_clue._tables import columns, is_frame, kind_of
from sklearn_clue._torch import one_thread
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    _routing_enabled,
    check_is_fitted,
    check_labels,
    fit_context,
    listing,
    naming,
)
from sklearn_clue.bayesian import BayesianMLPClassifier
from sklearn_clue.encoding import EncoderOwner
from sklearn_clue.explainers import _parts
from sklearn_clue.explainers._problem import (
    ROUNDING,
    SearchProblem,
    as_tensors,
    judge,
    rounding_of,
    usual_level,
)
from sklearn_clue.explainers._results import Results, run_in_batches
from sklearn_clue.explainers._space import EncodedSpace, check_constraints
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
    takes_tables,
    thawed,
    unit_of,
    unseen_uncertainty,
)
from sklearn_clue.uncertainty import (
    Uncertainty,
    decompose_entropy,
    weights_of_parts,
)


class BaseUncertaintyExplainer(
    DocLinkMixin, VersionedState, MetaEstimatorMixin, BaseEstimator
):
    """Fit a predictor and a generator, and explain why the predictor is unsure.

    A subclass sets `_name`; `_trade_off`, the name of the parameter that trades the
    uncertainty explained for the size of the change; and `_method`, which changes rows
    in encoded space. It may set `_default_generator`, `_model`, what it needs of the
    fitted generator, and `_fit_method`, if it learns something itself. Everything
    around it happens here.
    """

    _name: str
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

    @fit_context(prefer_skip_nested_validation=False)
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

    def _check_table(self, X, y):
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
        # Nothing of an earlier fit may be mistaken for this one's; `fit_context` brings
        # it back should this one fail.
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        X, y = self._check_table(X, y)
        params = self._route(fit_params)
        estimator, generator, image_shape = self._resolve_parts()
        self._check_before_fitting(estimator, X, y)
        # What is printed makes no difference to what is fitted.
        memory = check_memory(self.memory)
        fit_part = memory.cache(_fitting.fit_part, ignore=["verbose"])
        fit_of = (estimator, X, y, params["estimator"])
        with self._seeded():
            estimator = fit_part(*fit_of, verbose=self.verbose)
        labels = labels_of(estimator, None, y) if self.is_classification_ else None
        n_classes = None if labels is None else len(labels)
        predictor, space = self._see(estimator, X, image_shape, n_classes)
        inputs = space.to_inputs(X)
        x = space.encode_inputs(inputs)
        judge_once = memory.cache(_judge_training, ignore=["provider", "rows"])
        is_table = takes_tables(predictor.provider)
        if is_table and y is not None:
            predictor.provider.learn(X, y)
        rows = X if is_table else x
        parts, prediction = judge_once(fit_of, is_table, predictor.provider, rows)
        self._check_answers(estimator, prediction, y)
        if generator is not None and self._uses_generator(predictor):
            self.generator_ = _parts.fit_generator(
                generator,
                predictor,
                space,
                inputs,
                x,
                lambda part, rows: fit_part(
                    part, rows, None, params["generator"], verbose=self.verbose
                ),
            )
            self.n_iter_ = getattr(self.generator_, "n_iter_", None)
        self._provider, self._space = predictor.provider, space
        self._shares_steps = predictor.shares_steps
        self._image_shape = image_shape
        # Rows without weight are no rows.
        weight = params["estimator"].get("sample_weight")
        kept = slice(None) if weight is None else np.flatnonzero(np.asarray(weight))
        usual = Uncertainty(*(part[kept] for part in parts))
        if is_table and y is not None:
            unseen = memory.cache(_judge_unseen, ignore=["provider"])
            with self._seeded():
                usual = unseen(fit_of, self.random_state, predictor.provider) or usual
        self.threshold_ = self._learn_threshold(usual.total, prediction)
        before = as_tensors(parts, prediction)
        self._fit_method(self._problem_of(x, before=before).take(kept), usual)
        self.estimator_ = estimator
        return self

    def _see(self, estimator, X, image_shape, n_classes):
        """The fitted estimator, and the space that rows are explained in."""
        is_image = image_shape is not None
        for as_whole in (False, True):
            predictor = _parts.PredictorView(
                estimator, X, is_image, n_classes, as_whole
            )
            space = EncodedSpace(
                predictor.steps, predictor.encoder, X, None, None, predictor.unread
            )
            is_table = space.is_invertible and space.is_columnwise
            if is_table or is_image or not self._takes_values():
                break
        return predictor, space.constrained(
            self.immutable_features, self.feature_ranges
        )

    def _resolve_parts(self):
        """Copies of estimator and generator to fit, and the shape of images."""
        rng = check_random_state(self.random_state)
        estimator_seed, generator_seed = rng.randint(2**31 - 1, size=2)
        estimator, generator = self._resolve_estimator(), self._resolve_generator()
        check_model(estimator)
        knows_images = self if generator is None else thawed(generator)
        image_shape = getattr(knows_images, "image_shape", None)
        if image_shape is not None:
            estimator = _parts.see_pixels(estimator)
        if self.random_state is not None:
            estimator = _fitting.seeded(estimator, estimator_seed)
            generator = _fitting.seeded(generator, generator_seed)
        return estimator, generator, image_shape

    def _check_before_fitting(self, estimator, X, y):
        if y is None and not _fitting.is_fitted_already(estimator):
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        self.is_classification_ = read_task(estimator, X, y)
        if self.is_classification_ and not _fitting.is_fitted_already(estimator):
            self._check_number_of_classes(pd.unique(np.asarray(y).ravel()))
        if not isinstance(thawed(estimator), Pipeline):
            # Before long work. Steps of a pipeline may rename columns.
            check_constraints(X, self.immutable_features, self.feature_ranges)
            if is_frame(X):
                for column in columns(X):
                    kind_of(column)  # which refuses what is neither of the two

    def _check_number_of_classes(self, labels):
        if len(labels) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes, got 1 class: "
                f"{labels.tolist()[0]!r}. Check how y was built or split."
            )

    def _check_answers(self, estimator, prediction, y):
        """Learn the class labels, and refuse answers that do not fit the targets."""
        if self.is_classification_:
            self.classes_ = labels_of(estimator, prediction.shape[1], y)
            self._check_number_of_classes(self.classes_)
            if len(self.classes_) != prediction.shape[1]:
                raise ValueError(
                    f"{type(peel(estimator)[1]).__name__} answers with "
                    f"{prediction.shape[1]} probabilities per row and knows "
                    f"{len(self.classes_)} classes: {listing(self.classes_.tolist())}. "
                    "Mend its predict_proba, or its classes_."
                )
            check_prediction(estimator, prediction, None)
        elif y is not None:
            check_prediction(estimator, prediction, y)

    def _learn_threshold(self, total, prediction):
        """Find the uncertainty above which `rejection_rate` of new rows will lie.

        It is a quantile over the rows of `fit`, whose targets play no part in it. A
        model may still be surer about rows that it has seen. Rows held out from a
        second fit would tell, but they are few and that model has seen less: over
        networks and Bayesian ones, on 200 and 600 rows, such thresholds missed the
        share of new rows by more than this one did.
        """
        least = rounding_of(prediction)
        if total.max() <= least:
            warnings.warn(
                "The estimator is never unsure, so there is nothing to explain. A "
                "single regressor that predicts nothing but a mean is of that kind: "
                "pass several as a list, or a BayesianMLPRegressor. So is one that was "
                "fitted to a target that never changes.",
                UserWarning,
                stacklevel=6,
            )
        elif np.ptp(total) <= ROUNDING * total.max():
            warnings.warn(
                "The estimator is equally unsure about all training rows, so it "
                "rejects none of them and there is nothing to explain. Take a model "
                "whose uncertainty depends on the row, or scale columns of very "
                "different sizes first.",
                UserWarning,
                stacklevel=6,
            )
        level = usual_level(total, 1 - self.rejection_rate, least)
        return unit_of(self._provider) * level

    def _seeded(self):
        """Fix what is drawn from the generators of everybody, if `random_state` is."""
        seed = self.random_state
        if seed is not None:
            seed = check_random_state(copy.deepcopy(seed)).randint(2**31 - 1)
        return _fitting.seeded_globally(seed)

    def _resolve_estimator(self):
        """A fresh copy of the estimator, or the thing itself if it is fitted."""
        if self.estimator is None:
            return BayesianMLPClassifier()
        return _fitting.fresh(self.estimator)

    def _resolve_generator(self):
        """A fresh copy of the generator; None for a method without one."""
        generator = getattr(self, "generator", None)
        if generator is None:
            return self._default_generator()
        return _fitting.fresh(generator)

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
        if takes_tables(state.get("_provider")):
            return state  # it has learned from rows that are gone
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
            _, model = _parts.steps_and_model(
                state["estimator_"], state["_shares_steps"]
            )
            provider = as_provider(model, None if classes is None else len(classes))
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
        return self._in_words(self._judge_table(X)[1])

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
        return self._judge_table(X)[1]

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
        return self._judge_table(X)[0]

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

    def _judge_table(self, X):
        """Uncertainty and prediction for the user's rows, in the user's units."""
        X = self._check_rows(X, reset=False)
        if takes_tables(self._provider):
            return self._provider.uncertainty_of_rows(X)
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

    def explain(self, X, *, contributions=None):
        """Find, for each row, another one that the model is surer about.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain, of any length; those that :meth:`rejects` picks are the
            ones worth explaining.

        contributions : bool or None, default=None
            Whether to tell how much each change lowers the uncertainty, see
            `contributions` of :class:`~sklearn_clue.Explanation`. None means only
            where the nearest sure row is asked for: there few columns change, and it
            costs less than the search.

        Returns
        -------
        explanation : Explanation
            Counterfactuals in the units and the container of X, and what they did to
            the uncertainty.
        """
        check_is_fitted(self, "estimator_")
        self._validate_params()  # they may have been set since `fit`
        return self._explain(X, (self._trade_off_value(),), contributions)[0]

    def _trade_off_value(self):
        return getattr(self, self._trade_off)

    # What a subclass is about -----------------------------------------------------

    def _default_generator(self):
        """The generator where the user gives none; None for a method without one."""
        return None

    def _uses_generator(self, predictor):
        """Whether the method needs a generator for such a predictor."""
        return True

    def _model(self):
        """What the method needs of the fitted generator."""
        return None

    def _follows_gradients(self, trade_offs):
        """Whether the method needs gradients of the model."""
        return True

    def _takes_values(self):
        """Whether the method can do with values, and ask about rows of the table."""
        return False

    def _fit_method(self, problem, usual):
        """Learn from the training rows, once the parts are fitted.

        Parameters
        ----------
        problem : SearchProblem
            The training rows.

        usual : Uncertainty
            Of rows like these that the model has not learned by heart, as arrays.
        """

    def _gives_contributions(self, trade_offs):
        """Whether explanations tell what each change does, if nobody says."""
        return False

    def _describe(self, trade_off, problem, before, after):
        """Give what explanations say of rows before and after, by name."""
        if not self.is_classification_:
            return {}
        # Forests judge by rows that a tree has not seen, and predict by those it has:
        # such probabilities would contradict the entropy beside them.
        own = decompose_entropy(before.prediction[None])
        if not np.allclose(own.total, before.parts.total, atol=0.01):
            return {}
        return {
            "classes": self.classes_,
            "probabilities_before": before.prediction,
            "probabilities_after": after.prediction,
        }

    @abstractmethod
    def _method(self, trade_offs):
        """Give what changes rows, for some values of the parameter `_trade_off`.

        It is picklable. Called with a `SearchProblem` it gives one `Found` per value;
        its method `objective(problem, trade_off)` gives the `Objective` that ranks
        candidates.
        """

    # ------------------------------------------------------------------------------

    def _constrained_space(self):
        return self._space.constrained(self.immutable_features, self.feature_ranges)

    def _problem_of(self, x, limits=None, before=None, tables=None):
        """The problem to explain encoded rows."""
        return SearchProblem(
            self._provider,
            None if self._image_shape is not None else self._space.search_schema,
            x,
            weights=weights_of_parts(self.uncertainty),
            model=self._model(),
            limits=limits,
            before=before,
            lattices=self._space.lattices,
            tables=tables,
        )

    def _explain(self, X, trade_offs, contributions=None):
        """Explain rows, once per value of the parameter `_trade_off`."""
        check_is_fitted(self, "estimator_")
        if contributions is None:
            contributions = self._gives_contributions(trade_offs)
        elif not isinstance(contributions, bool | np.bool_):
            raise ValueError(
                f"contributions must be True, False or None, got {contributions!r}."
            )
        if self._follows_gradients(trade_offs):
            check_gradients(self._provider, type(self).__name__)
        X = self._check_rows(X, reset=False)
        # The models do not depend on constraints, so these may be set after `fit`.
        space = self._constrained_space()
        shown = space.display(X)
        x0 = space.encode_display(shown)
        limits = space.limits(shown, x0)
        problem = self._problem_of(x0, limits, tables=(space, shown))
        unit = unit_of(self._provider)
        results = Results(problem, space, shown, unit, self._in_words, self._about())
        method = self._method(trade_offs)
        found = run_in_batches(
            method, problem, self.batch_size, self.n_jobs, self.verbose
        )
        candidates = results.judge_candidates(found)
        explanations = []
        for value, *each in zip(trade_offs, found, candidates, strict=True):
            weight = value if self._trade_off == "distance_weight" else None
            explanations.append(
                results.explanation(
                    *each,
                    method.objective(problem, value),
                    partial(self._describe, value),
                    contributions=contributions,
                    distance_weight=weight,
                )
            )
        return explanations

    def _about(self):
        """What explanations say of this explainer."""
        return {
            "schema": self._space.display_schema,
            "image_shape": self._image_shape,
            "is_classification": self.is_classification_,
            "threshold": self.threshold_,
            "kind": self.uncertainty,
            "method": self._name,
            "note": self._space.note,
        }


def _judge(provider, rows):
    """Ask about many rows without gradients; arrays in and out."""
    if takes_tables(provider):
        return provider.uncertainty_of_rows(rows)
    with one_thread(), torch.no_grad():
        parts, prediction = judge(provider, torch.as_tensor(rows))
    return Uncertainty(*(part.numpy() for part in parts)), prediction.numpy()


def _judge_training(fit_of, is_table, provider, rows):
    # For a cache: provider and rows follow from what was fitted to which table, and
    # from the units, which are those of a table or not.
    return _judge(provider, rows)


def _judge_unseen(fit_of, random_state, provider):
    """How unsure a model is about its training rows as if they were new, or None."""
    estimator, X, y, params = fit_of
    if params or _fitting.is_fitted_already(estimator):
        return provider.out_of_bag(X, y)
    return unseen_uncertainty(estimator, X, y, provider=provider)


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
