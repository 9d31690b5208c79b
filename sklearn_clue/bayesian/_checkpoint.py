"""Running chains on disk, so that a process that dies takes seconds of work with it."""

import time
import warnings
from pathlib import Path

import joblib
import torch

from sklearn_clue._torch import to_numpy
from sklearn_clue.persistence import replacing


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
        self._has_failed = False

    def load(self, device):
        """Give the state that was saved last, or None."""
        try:
            # Tensors and plain values only: no file can run code from here.
            return torch.load(self.path, map_location=device, weights_only=True)
        except FileNotFoundError:  # not yet, or another process has just finished
            return None
        except Exception as err:
            raise ValueError(
                f"The checkpoint {str(self.path)!r} is damaged and cannot be read. "
                "Delete it to start the chains anew."
            ) from err

    def save(self, state):
        """Replace the file, in one step that happens or does not.

        A disk that is full or gone is worth a warning, and not the run.
        """
        begin = time.monotonic()
        try:
            with replacing(self.path) as file:
                torch.save(state, file)
        except (OSError, RuntimeError) as err:  # torch makes either of a full disk
            self._warn("be saved", err, "what was saved before stays, if anything")
        end = time.monotonic()
        self._next = end + max(self.min_seconds, (end - begin) / self.max_share)

    def is_due(self):
        """Say whether it is time to save again."""
        return time.monotonic() >= self._next

    def remove(self):
        """Delete all that was saved, and what a process that died was about to."""
        leftovers = self.path.parent.glob(f"{self.path.stem}.*.unfinished")
        try:
            for path in (self.path, *leftovers):
                path.unlink(missing_ok=True)
        except OSError as err:
            self._warn("be removed", err, "delete it by hand")

    def _warn(self, what, err, outcome):
        if not self._has_failed:
            warnings.warn(
                f"The checkpoint {str(self.path)!r} could not {what}: {err}. The fit "
                f"goes on without it; {outcome}.",
                stacklevel=2,
            )
        self._has_failed = True
