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
    calls : list
        Made with `delayed`.

    n_jobs : int or None
        Number of workers.

    verbose : int, default=0
        As in joblib.

    Returns
    -------
    results : list
        In the order of the calls.
    """
    with Parallel(n_jobs=n_jobs, verbose=verbose) as parallel:
        if len(calls) > 1 and effective_n_jobs(n_jobs) > 1:
            # They let interrupts through again when they start: not later, then.
            resource_tracker.ensure_running()
            loky_resource_tracker.ensure_running()
            with _interrupts_on_hold():
                # The first call starts all workers, and they inherit what is blocked.
                parallel([delayed(_nothing)()])
        return parallel(calls)


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
