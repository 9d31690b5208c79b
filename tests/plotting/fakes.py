"""Models with known predictions and uncertainties."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from sklearn_clue import Uncertainty


def split(total):
    return Uncertainty(total, 0.75 * total, 0.25 * total)


class HalfPlanes(ClassifierMixin, BaseEstimator):
    """Probability by the sign of the first feature; uncertainty is the second."""

    def __init__(self, classes=("no", "yes")):
        self.classes = classes

    @property
    def classes_(self):
        return np.array(self.classes)

    def predict_proba(self, X):
        self.X_ = X
        first = np.asarray(X)[:, 0].astype(float)
        proba = np.full((len(first), len(self.classes)), 0.1)
        proba[np.arange(len(first)), (first > 0).astype(int)] = 0.9
        return proba

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_uncertainty(self, X):
        return split(np.asarray(X)[:, 1].astype(float))


class Slope(RegressorMixin, BaseEstimator):
    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float)

    def predict_uncertainty(self, X):
        return split(np.abs(self.predict(X)))
