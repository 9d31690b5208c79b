"""Progress of long work: a bar, lines, or scikit-learn's callbacks."""

import sys

from tqdm import tqdm


class EpochProgress:
    """Tell whoever listens about each epoch, or other step, of one run.

    Parameters
    ----------
    n_epochs : int
        Epochs in the run.

    label : str
        What is running.

    unit : str, default="epoch"
        What the run consists of.

    verbose : int, default=0
        0 is silent, 1 draws a bar, 2 prints a line per epoch; both on stderr.

    context : sklearn.callback.CallbackContext, default=None
        The scikit-learn task whose subtasks the epochs are.

    estimator : estimator, default=None
        Who is being fitted; goes with `context`.
    """

    def __init__(
        self,
        n_epochs,
        label,
        *,
        unit="epoch",
        verbose=0,
        context=None,
        estimator=None,
    ):
        self.n_epochs = n_epochs
        self.label = label
        self.unit = unit
        self.verbose = verbose
        self.context = context
        self.estimator = estimator
        self._epoch = 0
        self._bar = None

    def __enter__(self):
        if self.verbose == 1:
            self._bar = tqdm(total=self.n_epochs, desc=self.label, unit=self.unit)
        if self.context is not None:
            self.context.call_on_fit_task_begin(estimator=self.estimator)
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()
        if self.context is not None and exception[0] is None:
            self.context.call_on_fit_task_end(estimator=self.estimator)

    def skip(self, n_epochs):
        """Count epochs that an earlier process has run."""
        self._epoch += n_epochs
        if self._bar is not None and n_epochs:
            self._bar.update(n_epochs)

    def begin_epoch(self):
        """Announce an epoch."""
        if self.context is not None:
            self._task = self.context.subcontext(task_name="epoch")
            self._task.call_on_fit_task_begin(estimator=self.estimator)

    def end_epoch(self, **figures):
        """Report the figures of an epoch; return whether a callback asks to stop."""
        self._epoch += 1
        text = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()
        elif self.verbose > 1:
            position = f"{self.unit} {self._epoch}/{self.n_epochs}"
            print(f"{self.label}: {position}, {text}", file=sys.stderr)
        if self.context is None:
            return False
        return bool(self._task.call_on_fit_task_end(estimator=self.estimator))
