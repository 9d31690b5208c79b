"""`python -m sklearn_clue` is the command `sklearn-clue`."""

import sys

from sklearn_clue._cli import main

if __name__ == "__main__":
    sys.exit(main())
