"""A classifier that counts the threads it computes on; workers import it by name."""

import threading

import torch

from sklearn_clue import BayesianMLPClassifier


class WatchedClassifier(BayesianMLPClassifier):
    def _nll(self):
        return Watch(super()._nll(), self)


class Watch:
    seen = {}  # of this process: torch's threads by thread

    def __init__(self, nll, model):
        self.nll = nll

    def __call__(self, outputs, y):
        Watch.seen[threading.get_ident()] = torch.get_num_threads()
        return self.nll(outputs, y)


def n_threads(model, X, y):
    """Score: threads that computed the chains in this process; forget them after."""
    count = sum(Watch.seen.values())
    Watch.seen.clear()
    return count
