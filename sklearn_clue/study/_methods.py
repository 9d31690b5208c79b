"""What may explain in a study: explainers of one model, rows by people, or nothing."""

from collections.abc import Mapping

import numpy as np

from sklearn_clue import _tables
from sklearn_clue._validation import check_is_fitted, listing

# Explainers that share a model agree about it but for rounding; so many rows tell.
_SAME, _N_COMPARED = 1e-4, 100


def is_random(explainer):
    """Whether a method is named by a word, such as the control."""
    return isinstance(explainer, str)


def is_table(explainer):
    """Whether a method is a table of rows that people have picked."""
    return _tables.is_frame(explainer) or isinstance(
        explainer, np.ndarray | list | tuple
    )


def check_explainers(explainers):
    """Refuse what cannot explain; give those who judge rows, by name."""
    if not isinstance(explainers, Mapping) or not explainers:
        raise TypeError(
            "explainers must be a dict of names to explainers, such as "
            f"{{'CLUE': clue, 'none': None}}, got {explainers!r}."
        )
    judges = {}
    for name, each in explainers.items():
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"Methods are named by strings that are not empty, got {name!r}."
            )
        if is_random(each) and each != "random":
            raise ValueError(
                f"{name!r} is {each!r}, which names no method. Give a fitted "
                "explainer, a table of rows, 'random' or None."
            )
        if each is None or is_random(each) or is_table(each):
            continue
        if not hasattr(each, "explain"):
            raise TypeError(
                f"{name!r} is a {type(each).__name__}, which has no explain method. "
                "Give a fitted explainer, a table of rows, 'random' or None."
            )
        # A GroupExplainer is fitted around the one that knows the model.
        is_group = hasattr(each, "from_explanation")
        check_is_fitted(each, "explainer_" if is_group else "estimator_")
        judge = judges[name] = each.explainer_ if is_group else each
        if not judge._space.is_invertible:
            raise ValueError(
                f"{name!r} cannot show rows in the columns of X_pool: "
                f"{judge._space.note} Leave out those steps, or give a table without "
                "them."
            )
    if not judges:
        raise ValueError(
            "None of the methods is a fitted explainer, so nobody can say which rows "
            f"the model is sure about. Got {listing(list(explainers))}; add an "
            "explainer such as NeighborExplainer(model).fit(X_train, y_train)."
        )
    return judges


def check_same_model(judges, X_pool):
    """Refuse explainers of different models; give the uncertainty of the pool."""
    (first, judge), *others = judges.items()
    total = np.asarray(judge.predict_uncertainty(X_pool).total)
    some = _tables.take(X_pool, slice(_N_COMPARED))
    for name, other in others:
        told = np.append(other.predict_uncertainty(some).total, other.threshold_)
        if not np.allclose(
            told, np.append(total[:_N_COMPARED], judge.threshold_), rtol=_SAME, atol=0
        ):
            raise ValueError(
                f"{first!r} and {name!r} do not explain the same model with the same "
                "threshold: they disagree about how unsure it is. Fit the model once "
                "and pass it to all of them as FrozenEstimator(model), with the same "
                "rejection_rate."
            )
    return total
