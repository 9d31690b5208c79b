"""Pipelines that explain: scikit-learn's own, plus what explainers can do."""

from sklearn import pipeline as sklearn_pipeline
from sklearn.utils.metaestimators import available_if

from sklearn_clue._validation import DocLinkMixin, check_is_fitted

__all__ = ["Pipeline", "make_pipeline"]


def _last_step_has(method):
    def check(self):
        # Let the AttributeError of the last step speak.
        getattr(self._final_estimator, method)
        return True

    return check


class Pipeline(DocLinkMixin, sklearn_pipeline.Pipeline):
    """A scikit-learn Pipeline that explains, if its last step does.

    All that :class:`sklearn.pipeline.Pipeline` does, and `explain`, `explain_path`,
    `rejects` and `predict_uncertainty` when the last step has them: an explainer, or,
    for the last of these, a Bayesian MLP.

    Parameters
    ----------
    steps : list of tuples
        `(name, estimator)` pairs, in the order in which they are applied. All but the
        last must transform.

    transform_input : list of str, default=None
        Metadata to transform by the steps before the one that requests it; needs
        metadata routing.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fitted transformers. The last step is never cached; an
        explainer has a `memory` of its own for its parts.

    verbose : bool, default=False
        Whether to print the time that each step takes to fit.

    Attributes
    ----------
    named_steps : Bunch
        The steps by name.

    classes_ : ndarray of shape (n_classes,)
        The class labels, if the last step is a classifier.

    n_features_in_ : int
        Number of features seen by the first step during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen by the first step during `fit`.

    See Also
    --------
    make_pipeline : Names the steps by itself.
    sklearn_clue.CLUEExplainer : May also be put around a Pipeline.

    Notes
    -----
    Explanations are in the space that the last step is given: after a
    :class:`~sklearn.preprocessing.StandardScaler`, in standard deviations. For
    explanations in your own units, put the explainer around the Pipeline instead of
    into it: `CLUEExplainer(make_pipeline(SimpleImputer(), BayesianMLPClassifier()))`.
    It finds its way back through steps that have an `inverse_transform`.

    Examples
    --------
    Here a step before the explainer drops a column that nobody could act upon.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import CLUEExplainer, VAEEncoder
    >>> from sklearn_clue.pipeline import Pipeline
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["dose", "age", "id"])
    >>> y = X["dose"] + rng.normal(size=200) > 0
    >>> keep = make_column_transformer(
    ...     ("passthrough", ["dose", "age"]), verbose_feature_names_out=False
    ... ).set_output(transform="pandas")
    >>> clue = CLUEExplainer(
    ...     LogisticRegression(), VAEEncoder(2, (20,), max_iter=20), random_state=0
    ... )
    >>> pipeline = Pipeline([("keep", keep), ("clue", clue)]).fit(X, y)
    >>> explanation = pipeline.explain(X[pipeline.rejects(X)])
    >>> list(explanation.counterfactuals.columns)
    ['dose', 'age']
    """

    def _to_last_step(self, X):
        """Take rows through all steps but the last."""
        check_is_fitted(self)
        for _, _, step in self._iter(with_final=False):
            X = step.transform(X)
        return X

    @available_if(_last_step_has("explain"))
    def explain(self, X, **kwargs):
        """Transform rows, and explain them by the last step.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain, as the first step takes them.

        **kwargs : dict
            What `explain` of the last step takes besides, such as `contributions`.

        Returns
        -------
        explanation : Explanation
            The explanation, in the space that the last step is given.
        """
        return self._final_estimator.explain(self._to_last_step(X), **kwargs)

    @available_if(_last_step_has("explain_path"))
    def explain_path(self, X, *args, **kwargs):
        """Transform rows, and explain them with several values of a parameter.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to explain, as the first step takes them.

        *args : tuple
            What `explain_path` of the last step takes: `distance_weights` of
            :class:`~sklearn_clue.CLUEExplainer`, `mask_weights` of
            :class:`~sklearn_clue.UFIDOExplainer`.

        **kwargs : dict
            The same, by name.

        Returns
        -------
        explanations : list of Explanation
            One per value, in the space that the last step is given.
        """
        return self._final_estimator.explain_path(
            self._to_last_step(X), *args, **kwargs
        )

    @available_if(_last_step_has("rejects"))
    def rejects(self, X):
        """Transform rows, and tell which ones the last step should not decide on.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge, as the first step takes them.

        Returns
        -------
        is_rejected : ndarray of bool of shape (n_samples,)
            Whether the total uncertainty is above the threshold of the last step.
        """
        return self._final_estimator.rejects(self._to_last_step(X))

    @available_if(_last_step_has("predict_uncertainty"))
    def predict_uncertainty(self, X):
        """Transform rows, and tell how unsure the last step is about them.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows to judge, as the first step takes them.

        Returns
        -------
        parts : Uncertainty
            `total`, `aleatoric` and `epistemic`, each of shape (n_samples,): nats for
            classes, the unit of the target for regression.
        """
        return self._final_estimator.predict_uncertainty(self._to_last_step(X))


def make_pipeline(*steps, memory=None, transform_input=None, verbose=False):
    """Build a Pipeline whose steps are named after their types.

    Parameters
    ----------
    *steps : estimators
        What to chain, in the order in which it is applied.

    memory : str, joblib.Memory or None, default=None
        Where to cache the fitted transformers.

    transform_input : list of str, default=None
        Metadata to transform by the steps before the one that requests it; needs
        metadata routing.

    verbose : bool, default=False
        Whether to print the time that each step takes to fit.

    Returns
    -------
    pipeline : Pipeline
        The steps under the lowercase names of their types.

    See Also
    --------
    Pipeline : Takes names.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_clue import BayesianMLPClassifier, CLUEExplainer
    >>> from sklearn_clue.pipeline import make_pipeline
    >>> pipeline = make_pipeline(StandardScaler(), CLUEExplainer())
    >>> hasattr(pipeline, "explain")
    True
    >>> pipeline = make_pipeline(StandardScaler(), BayesianMLPClassifier())
    >>> hasattr(pipeline, "explain"), hasattr(pipeline, "predict_uncertainty")
    (False, True)
    """
    return Pipeline(
        sklearn_pipeline.make_pipeline(*steps).steps,
        memory=memory,
        transform_input=transform_input,
        verbose=verbose,
    )
