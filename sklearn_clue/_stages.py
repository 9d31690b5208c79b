"""One bar over all stages of a command, with the time that is left."""

import sys
import threading
import time
import warnings
from contextlib import contextmanager

from tqdm import tqdm

__all__ = []

_EVERY = 0.25  # seconds between two drawings
_TELLS = 1.0  # expected seconds from which a stage tells how fast the machine is


def say(text):
    """Write a line on stderr, above a bar if there is one."""
    tqdm.write(text, file=sys.stderr)


# What warnings advise those who write Python, and the options that do the same.
_OPTIONS = {
    "use astype('category') or categorical_features": "pass --category",
    "Set target_uncertainty": "Pass --target-uncertainty",
}


@contextmanager
def warnings_as_notes():
    """Say each warning once, in a line, without where in the code it came up."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    told = [w for w in caught if issubclass(w.category, UserWarning)]
    for text in dict.fromkeys(str(warning.message) for warning in told):
        for in_python, option in _OPTIONS.items():
            text = text.replace(in_python, option)
        say(f"Note: {text}")


class Stages:
    """Draw how far a command is, where stderr is a terminal, and nothing elsewhere.

    Parameters
    ----------
    expected : dict of str to float
        The stages in their order, with the seconds that each is expected to take. They
        may be corrected as more is known. What the stages so far have taken corrects
        them as well.

    clock : callable, default=time.monotonic
        What tells the time.
    """

    def __init__(self, expected, clock=time.monotonic):
        self.expected = dict(expected)
        self._clock = clock
        self._taken = {}
        self._stage, self._start, self._share = None, clock(), 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
        self._bar = None

    def __enter__(self):
        if sys.stderr.isatty():
            self._bar = tqdm(
                total=1.0,
                bar_format="{desc} |{bar}|",
                file=sys.stderr,
                dynamic_ncols=True,
                leave=False,
            )
            self._thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        if self._bar is not None:
            self._thread.join()
            self._bar.close()

    @contextmanager
    def stage(self, name):
        """Time a stage."""
        with self._lock:
            self._stage, self._start = name, self._clock()
        self._draw()
        yield
        with self._lock:
            self._taken[name] = self._clock() - self._start
            self._stage = None

    def progress(self):
        """Tell which share is done, and the seconds that are left.

        Returns
        -------
        share : float
            Between 0 and 1. It never falls.

        seconds : float or None
            None where a stage takes longer than was expected.
        """
        done = [name for name in self._taken if self.expected[name] >= _TELLS]
        pace = 1.0
        if done:
            wanted = sum(self.expected[name] for name in done)
            pace = sum(self._taken[name] for name in done) / wanted
        now = 0.0 if self._stage is None else self._clock() - self._start
        later = sum(
            pace * seconds
            for name, seconds in self.expected.items()
            if name not in self._taken and name != self._stage
        )
        current = pace * self.expected.get(self._stage, 0.0)
        spent = sum(self._taken.values()) + now
        # What is late may take another tenth of what it took.
        left = max(current - now, 0.1 * now) + later
        self._share = max(self._share, spent / (spent + left) if spent else 0.0)
        return self._share, None if now > current + 1 else left

    def _keep_drawing(self):
        while not self._over.wait(_EVERY):
            self._draw()

    def _draw(self):
        with self._lock:
            if self._bar is None or self._stage is None:
                return
            share, left = self.progress()
            position = 1 + list(self.expected).index(self._stage)
            words = "longer than expected"
            if left is not None:
                words = f"about {_duration(left)} left"
            self._bar.n = share
            self._bar.set_description_str(
                f"{self._stage} ({position} of {len(self.expected)}), {words}"
            )


def _duration(seconds):
    """Seconds as people say them."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"


# Seconds of a core for 700 rows of 8 columns, and for each row that is explained.
_SECONDS = {
    "forest": (0.9, 0.1),
    "bayes": (15.0, 0.08),
    "boosting": (3.0, 0.03),
    "mlp": (12.0, 0.02),
}


def expected_seconds(model, n_rows, n_columns, n_explained):
    """Guess what fitting and explaining take; times of stages correct it later."""
    fit, explain = _SECONDS[model]
    return {
        "Fitting": fit * (1 + n_rows * n_columns / 5600) / 2,
        "Explaining": 1 + explain * n_explained,
    }
