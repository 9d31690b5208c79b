"""CLUE beside DiCE, a library of counterfactual explanations, on Credit.

DiCE (Mothilal et al., 2020) looks for rows that a model puts into another class. Asked
about a model whose two classes are "sure" and "unsure", it answers the question of
CLUE. All explain the same frozen predictor, for the same rejected test rows, and are
measured as in `bench_sure.py`. Rows for which DiCE finds nothing stay as they are, and
count.

DiCE is no dependency of this package, and wants older versions of others. In an
environment of its own:

    pip install dice-ml --no-deps && pip install raiutils --no-deps jsonschema
    SKLEARN_CLUE_DATA=... python examples/benchmarks/bench_dice.py --cache FOLDER
"""

import argparse
import contextlib
import functools
import io
import time
import warnings
from importlib import metadata

import dice_ml
import numpy as np
import pandas as pd
import torch
from _sure_data import PAPER_WEIGHT, made_once
from bench_sure import Bench, show
from raiutils.exceptions import UserConfigValidationException

NAME = "credit"


class Spelling:
    """Categories as strings, which DiCE wants, and back.

    Parameters
    ----------
    X : DataFrame
        Gives the columns and their dtypes.
    """

    def __init__(self, X):
        self.dtypes = X.dtypes
        self.categories = {
            name: {str(value): value for value in dtype.categories}
            for name, dtype in X.dtypes.items()
            if isinstance(dtype, pd.CategoricalDtype)
        }

    def to_strings(self, X):
        names = list(self.categories)
        return X.assign(**{name: X[name].astype(str).astype(object) for name in names})

    def from_strings(self, X):
        back = {name: X[name].map(known) for name, known in self.categories.items()}
        return X.assign(**back)[list(self.dtypes.index)].astype(self.dtypes)


class SureOrNot:
    """A predictor as DiCE sees it: a classifier of rows into unsure (0) and sure (1).

    Parameters
    ----------
    judge : explainer
        Knows the predictor.

    target : float
        The uncertainty up to which it is sure.

    spelling : Spelling
        Between the rows of DiCE and those of the predictor.
    """

    classes_ = np.array([0, 1])

    def __init__(self, judge, target, spelling):
        self.judge = judge
        self.target = target
        self.spelling = spelling

    def predict_proba(self, X):
        total = self.judge.predict_uncertainty(self.spelling.from_strings(X)).total
        # DiCE counts 0.5 and above as the class; the slope guides its search.
        sure = 1 / (1 + np.exp((total - self.target) / 0.05))
        return np.column_stack([1 - sure, sure])

    def predict(self, X):
        return (self.predict_proba(X)[:, 1] >= 0.5).astype(int)


def run_dice(bench, method):
    """Give a counterfactual of each row, or the row where none is found, and seconds.

    Of CPU, and per row.
    """
    start = time.process_time()
    X, rows = bench.models.X, bench.rows
    spelling = Spelling(X)
    plain, queries = spelling.to_strings(X), spelling.to_strings(rows)
    judge = SureOrNot(bench.neighbors, bench.target, spelling)
    data = dice_ml.Data(
        dataframe=plain.assign(is_sure=judge.predict(plain)),
        continuous_features=[name for name in plain if name not in spelling.categories],
        outcome_name="is_sure",
    )
    model = dice_ml.Model(model=judge, backend="sklearn", model_type="classifier")
    dice = dice_ml.Dice(data, model, method=method)
    settings = {"random_seed": 0} if method == "random" else {}
    answers = []
    for position in range(len(rows)):
        query = queries.iloc[[position]]
        answer = None
        # Where there is none, it raises or gives nothing.
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(UserConfigValidationException),
        ):
            answer = (
                dice.generate_counterfactuals(
                    query, total_CFs=1, desired_class=1, verbose=False, **settings
                )
                .cf_examples_list[0]
                .final_cfs_df
            )
        is_found = answer is not None and len(answer)
        answers.append(answer.iloc[:1][list(rows)] if is_found else query)
    seconds = (time.process_time() - start) / len(rows)
    return spelling.from_strings(pd.concat(answers).set_index(rows.index)), seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cache", metavar="FOLDER", help="keeps models, and what DiCE found"
    )
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument(
        "--methods", nargs="*", default=["random", "genetic"], help="of DiCE"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    bench = Bench(NAME, 0, args.rows, args.cache)
    for demand in ("row", None):
        bench.explain("CLUE", demand, bench.clue)
        bench.explain("neighbors", demand, bench.neighbors)
    bench.explain("paper", None, bench.clue, distance_weight=PAPER_WEIGHT[NAME])
    for method in args.methods:
        name = f"dice-{metadata.version('dice-ml')}-{method}-{len(bench.rows)}"
        run = functools.partial(run_dice, bench, method)
        found, seconds = made_once(args.cache, name, run)
        bench.add(f"DiCE, {method}", None, bench.rows, found, seconds=seconds)
    show(pd.DataFrame(bench.lines))
