"""Compare the networks of `sklearn_clue`, at their defaults, with NUTS.

    PYTHONPATH=. python tests/reference/compare_with_nuts.py
    PYTHONPATH=. python tests/reference/compare_with_nuts.py diabetes_400.json --seeds 0

Prints one line per reference and seed. References on concrete are passed over unless
SKLEARN_CLUE_DATA leads to the table.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from nuts_summaries import CLASSIFICATION, agreement, split

from sklearn_clue import BayesianMLPClassifier, BayesianMLPRegressor

HERE = Path(__file__).parent
COLUMNS = (
    "epistemic_std_correlation",
    "epistemic_std_ratio",
    "log_density_difference",
    "r_hat",
    "effective_draws",
    "distinct_draws",
    "seconds",
)


def compare(reference, **params):
    """Fit a network as that of a reference, and tell how far they agree.

    Parameters
    ----------
    reference : dict
        A file of make_nuts_reference.py.
    **params : dict
        Parameters of the network other than their defaults.

    Returns
    -------
    found : dict of float
        What `agreement` finds, and the diagnostics of the chains.
    """
    settings = reference["recipe"]["settings"]
    dataset = settings["dataset"]
    X_train, X_test, y_train, y_test = split(dataset, settings["rows"])
    is_class = dataset in CLASSIFICATION
    network = BayesianMLPClassifier if is_class else BayesianMLPRegressor
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they warn of is printed
        model = network(settings["hidden"], **params).fit(X_train, y_train)
    seconds = time.perf_counter() - start
    draws = model.posterior_predictive(X_test)
    return {
        **agreement(draws, y_test, reference),
        "r_hat": np.median(model.diagnostics_.r_hat),
        "effective_draws": np.median(model.diagnostics_.effective_sample_size),
        "distinct_draws": len(np.unique(draws, axis=0)),
        "seconds": seconds,
    }


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "references",
        nargs="*",
        default=sorted(path.name for path in HERE.glob("*_400.json")),
        help="file names; those of 400 rows by default",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    print(" | ".join(["reference", "seed", *COLUMNS]))
    for name in args.references:
        reference = json.loads((HERE / name).read_text())
        for seed in args.seeds:
            try:
                found = compare(reference, random_state=seed)
            except FileNotFoundError as err:
                print(f"{name} | {err}")
                break
            row = [f"{found[column]:.4g}" for column in COLUMNS]
            print(" | ".join([name, str(seed), *row]), flush=True)


if __name__ == "__main__":
    main()
