"""Parallel work that Ctrl-C ends without a word from the workers."""

import signal
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker

from joblib import effective_n_jobs
from joblib.externals.loky.backend import resource_tracker as loky_resource_tracker
from sklearn.utils.parallel import Parallel, delayed


def run_parallel(calls, n_jobs, verbose=0):
    """Run calls by joblib, in workers that leave interrupts to this process.

    A terminal sends Ctrl-C to all processes at once. This one stops the others; they
    would only add their tracebacks.

    Parameters
    ----------
    calls : list of functools.partial
        What to run.

    n_jobs : int or None
        Number of workers.

    verbose : int, default=0
        As in joblib, where there are several workers.

    Returns
    -------
    results : list
        In the order of the calls.
    """
    if len(calls) < 2 or effective_n_jobs(n_jobs) < 2:
        # Not by scikit-learn's `delayed`: it sets the warning filters for a moment,
        # and threads that do so at once leave them changed.
        return [call() for call in calls]
    with Parallel(n_jobs=n_jobs, verbose=verbose) as parallel:
        # They let interrupts through again when they start: not later, then.
        resource_tracker.ensure_running()
        loky_resource_tracker.ensure_running()
        with _interrupts_on_hold():
            # The first call starts all workers, and they inherit what is blocked.
            parallel([delayed(_nothing)()])
        return parallel(delayed(call)() for call in calls)


def _nothing():
    pass


@contextmanager
def _interrupts_on_hold():
    """Hold Ctrl-C back for a moment; it arrives at the end."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
