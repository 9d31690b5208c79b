"""A model of real data that plays the truth, so that explanations can be judged."""

from numbers import Integral

import numpy as np
import pandas as pd
from scipy.special import entr
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_memory

from sklearn_clue import _dtypes, _tables
from sklearn_clue._validation import (
    DocLinkMixin,
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
)
from sklearn_clue.generative import TwoLevelVAEAC, VAEACImputer
from sklearn_clue.persistence import VersionedState


class GroundTruth(DocLinkMixin, VersionedState, BaseEstimator):
    """Learn a distribution of inputs and targets, and take it for the truth.

    Nobody knows the true uncertainty of real data. A generative model of them has one
    that can be asked: draw artificial rows and targets from the model, train on them
    whatever is to be judged, and compare with what the model says (Section 4 of the
    paper).

    Parameters
    ----------
    model : TwoLevelVAEAC or None, default=None
        The model of inputs and target, side by side. None means
        :class:`~sklearn_clue.generative.TwoLevelVAEAC` with its defaults, but for
        classes with a default :class:`~sklearn_clue.VAEACImputer` as its outer model:
        only the noise of a target that is a number has to be told row by row.

    task : {"auto", "classification", "regression"}, default="auto"
        Whether targets are classes or numbers. `"auto"` takes numbers with a
        fractional part for numbers and all else for classes.

    n_importance : int, default=200
        Latents drawn per row for :meth:`log_density`. May be set after `fit`.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fitted model, as in :class:`~sklearn.pipeline.Pipeline`.

    random_state : int, RandomState instance or None, default=None
        Fixes the fit, where the model does not say otherwise.

    Attributes
    ----------
    model_ : TwoLevelVAEAC
        The fitted model.

    task_ : {"classification", "regression"}
        What targets are.

    classes_ : ndarray of shape (n_classes,)
        The class labels, for classification.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all of them are strings.

    See Also
    --------
    evaluate_explainers : Judges explainers by it.
    sklearn_clue.datasets.make_mixed_toy : Data whose truth is a formula.

    Notes
    -----
    The distribution is `p(x) p(y | x)`. Inputs come from the two-level model, whose
    samples stay where the data are, and the target given the inputs from its outer
    model, which was trained to predict any column from any others. The paper draws both
    at once. On `make_mixed_toy`, 4000 rows, targets drawn so say less about the inputs
    than real ones, and their entropy correlates with the true one by 0.86 instead of
    0.95.

    It is a model, and no better than what it learned from.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Section 4 and Appendix I.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue import VAEACImputer, VAEEncoder
    >>> from sklearn_clue.evaluation import GroundTruth
    >>> from sklearn_clue.generative import TwoLevelVAEAC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> y = np.where(X[:, 0] + 0.1 * rng.normal(size=200) > 0, "yes", "no")
    >>> model = TwoLevelVAEAC(
    ...     VAEACImputer(2, (20,), learning_rate=1e-2, max_iter=60),
    ...     VAEEncoder(2, (5,), max_iter=1),
    ... )
    >>> truth = GroundTruth(model, random_state=0).fit(X, y)
    >>> unclear, clear = truth.uncertainty([[0.0], [1.5]])
    >>> bool(unclear > clear)
    True
    >>> X_artificial, y_artificial = truth.sample(500, random_state=0)
    >>> X_artificial.shape, y_artificial.shape
    ((500, 1), (500,))
    """

    _parameter_constraints: dict = {
        "model": [HasMethods(["fit", "sample", "score_samples"]), None],
        "task": [StrOptions({"auto", "classification", "regression"})],
        "n_importance": [Interval(Integral, 1, None, closed="left")],
        "memory": [str, HasMethods("cache"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        model=None,
        *,
        task="auto",
        n_importance=200,
        memory=None,
        random_state=None,
    ):
        self.model = model
        self.task = task
        self.n_importance = n_importance
        self.memory = memory
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y):
        """Learn the joint distribution of inputs and target.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Inputs, complete or not.

        y : array-like of shape (n_samples,)
            Class labels or numbers.

        Returns
        -------
        self : object
            The fitted ground truth.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        X = _tables.check_rows(self, X, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        self.task_ = self.task
        if self.task == "auto":
            is_number = type_of_target(y, input_name="y") == "continuous"
            self.task_ = "regression" if is_number else "classification"
        if self.task_ == "classification":
            type_of_target(y, input_name="y", raise_unknown=True)
            self.classes_, target = np.unique(y, return_inverse=True)
        else:
            target = y.astype(np.float64)
            if not np.isfinite(target).all():
                raise ValueError(
                    "The target y holds NaN or infinity. Leave those rows out."
                )
            vars(self).pop("classes_", None)
        self._template = _tables.take(X, slice(0))
        self._names, self._dtypes = _tables.names(X), _tables.dtypes(X)
        self._inputs, self._target = _joint_names(X)

        model = self._default_model() if self.model is None else clone(self.model)
        if model.random_state is None and self.random_state is not None:
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            model.set_params(random_state=int(seed))
        fit_model = check_memory(self.memory).cache(_fit_model)
        self.model_ = fit_model(model, self._join(X, target))
        return self

    def sample(self, n_samples=1, random_state=None):
        """Draw artificial rows and their targets.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        random_state : int, RandomState instance or None, default=None
            Fixes the draws.

        Returns
        -------
        X : {ndarray, DataFrame} of shape (n_samples, n_features)
            Rows like those of `fit`: the same container, columns, dtypes and units.

        y : ndarray of shape (n_samples,)
            Their targets, drawn from p(y | x).
        """
        check_is_fitted(self, "model_")
        rng = check_random_state(random_state)
        joint = self.model_.sample(n_samples, rng)
        X = self._split(joint)
        # Differs from the paper: targets come from the p(y | x) that `uncertainty` is
        # about, and not along with the inputs. See Notes.
        (joint,) = self.model_.outer_.sample(self._join(X), random_state=rng)
        target = np.asarray(joint[self._target])
        if self.task_ == "classification":
            target = self.classes_[target.astype(int)]
        return X, target

    def predict(self, X):
        """Tell the true distribution of the target, or its mean.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        prediction : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Probabilities in the order of `classes_`, or means.
        """
        joint = self._joint(X)
        if self.task_ == "regression":
            return self.model_.outer_.number_moments(joint, self._target)[0]
        proba = self.model_.outer_.category_proba(joint, self._target)
        column = self.model_.outer_.schema_.column(self._target)
        return proba[:, np.argsort([int(code) for code in column.categories])]

    def uncertainty(self, X):
        """Tell the true uncertainty of the target, H_gt in the paper.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples,)
            Entropy of p(y | x) in nats for classes, its standard deviation in the unit
            of the target for numbers. All of it is aleatoric.
        """
        if getattr(self, "task_", None) == "regression":
            joint = self._joint(X)
            return self.model_.outer_.number_moments(joint, self._target)[1]
        return entr(self.predict(X)).sum(axis=1)

    def log_density(self, X):
        """Estimate how probable rows are, whatever their target.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge. Missing cells are integrated out.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats, by importance sampling: log-probability of categories, log-density
            of numbers in the user's units. The draws are the same in every call.
        """
        joint = self._joint(X)
        # It is asked for differences between a row and one that is like it.
        return self.model_.score_samples(joint, self.n_importance, common_noise=True)

    def _default_model(self):
        if self.task_ == "classification":
            return TwoLevelVAEAC(VAEACImputer())
        return TwoLevelVAEAC()

    # Tables -----------------------------------------------------------------------

    def _joint(self, X):
        """Check rows, and put a missing target beside them."""
        check_is_fitted(self, "model_")
        return self._join(_tables.check_rows(self, X, reset=False))

    def _join(self, X, target=None):
        """Put a target beside rows: codes of classes, numbers, or None if missing."""
        cells = [column.values for column in _tables.columns(X)]
        joint = pd.DataFrame(dict(zip(self._inputs, cells, strict=True)))
        if self.task_ == "classification":
            codes = np.full(len(joint), -1) if target is None else target
            target = pd.Categorical.from_codes(codes, range(len(self.classes_)))
        joint[self._target] = np.nan if target is None else target
        return joint

    def _split(self, joint):
        """Take the target away, and give rows the form that the user knows."""
        cells = _tables.arrays(joint[self._inputs])
        columns = list(map(_tables.Column, self._names, cells, self._dtypes))
        return _tables.assemble(columns, self._template)

    def _pack_state(self, state):
        if "_template" in state:
            state["_template"] = _dtypes.pack_template(state["_template"])
            state["_dtypes"] = [_dtypes.pack_dtype(each) for each in state["_dtypes"]]
        return state

    def _unpack_state(self, state):
        if "_template" in state:
            state["_template"] = _dtypes.unpack_template(state["_template"])
            dtypes = state["_dtypes"]
            state["_dtypes"] = [_dtypes.unpack_dtype(each, None) for each in dtypes]
        return state


def _fit_model(model, joint):
    return model.fit(joint)


def _joint_names(X):
    """Names of the columns of X that a model takes, and one of a target beside them."""
    inputs = _tables.names(X)
    if not all(isinstance(name, str) for name in inputs):
        inputs = [f"x{position}" for position in range(len(inputs))]
    target = "target"
    while target in inputs:
        target += "_"
    return inputs, target
