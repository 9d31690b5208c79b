"""Running chains on disk, so that a process that dies takes seconds of work with it."""

import os
import time
from pathlib import Path

import joblib
import torch

from sklearn_clue._torch import to_numpy


class Checkpoint:
    """Keep the latest state of a run in a file, and find it again.

    The name of the file tells what the run is a function of: a run with other data,
    parameters or seeds never meets it, and any number of them share a folder.

    Parameters
    ----------
    folder : str or path
        Where to keep the file; is made if it is not there.

    run : object
        All that determines the run, as plain values, arrays and tensors.
    """

    # Writing costs the run a twentieth of its time at most.
    min_seconds = 5.0
    max_share = 0.05

    def __init__(self, folder, run):
        run = [to_numpy(part) if torch.is_tensor(part) else part for part in run]
        self.path = Path(folder) / f"chains-{joblib.hash(run)}.checkpoint"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._next = 0.0

    @property
    def _unfinished(self):
        return self.path.with_suffix(".unfinished")

    def load(self, device):
        """Give the state that was saved last, or None."""
        if not self.path.exists():
            return None
        try:
            # Tensors and plain values only: no file can run code from here.
            return torch.load(self.path, map_location=device, weights_only=True)
        except Exception as err:
            raise ValueError(
                f"The checkpoint {str(self.path)!r} is damaged and cannot be read. "
                "Delete it to start the chains anew."
            ) from err

    def save(self, state):
        """Replace the file, in one step that happens or does not."""
        begin = time.monotonic()
        with open(self._unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._unfinished, self.path)
        end = time.monotonic()
        self._next = end + max(self.min_seconds, (end - begin) / self.max_share)

    def is_due(self):
        """Say whether it is time to save again."""
        return time.monotonic() >= self._next

    def remove(self):
        """Delete all that was saved."""
        for path in (self.path, self._unfinished):
            path.unlink(missing_ok=True)
