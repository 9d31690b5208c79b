"""CLUE beside DiCE, a library of counterfactual explanations, on Credit.

DiCE (Mothilal et al., 2020) looks for rows that a model puts into another class. Asked
about a model whose two classes are "sure" and "unsure", it answers the question of
CLUE. Both explain the same frozen predictor, for the same test rows: those above its
threshold. Printed are the uncertainty explained (ΔH, in nats), the l1 distance and the
distance to the nearest training row (encoded space), the shares of rows that keep
their prediction, that end below the threshold and that hold only values the columns
can have, and the CPU seconds per row. Rows for which nothing was found stay as they
are, and count.

DiCE is no dependency of this package, and wants older versions of others. In an
environment of its own:

    pip install dice-ml --no-deps && pip install raiutils --no-deps jsonschema
    SKLEARN_CLUE_DATA=... python examples/benchmarks/bench_dice.py --models FOLDER
"""

import argparse
import contextlib
import io
import time
import warnings

import dice_ml
import numpy as np
import pandas as pd
import torch
from bench_clue import (
    PAPER_WEIGHT,
    SMALL_WEIGHT,
    explainer_of,
    invalid_rows,
    load_models,
)
from raiutils.exceptions import UserConfigValidationException

from sklearn_clue.evaluation import nearest_neighbor_distance

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
    clue : CLUEExplainer
        Knows the predictor and its threshold.

    spelling : Spelling
        Between the rows of DiCE and those of the predictor.
    """

    classes_ = np.array([0, 1])

    def __init__(self, clue, spelling):
        self.clue = clue
        self.spelling = spelling

    def predict_proba(self, X):
        total = self.clue.predict_uncertainty(self.spelling.from_strings(X)).total
        # DiCE counts 0.5 and above as the class; the slope guides its search.
        sure = 1 / (1 + np.exp((total - self.clue.threshold_) / 0.05))
        return np.column_stack([1 - sure, sure])

    def predict(self, X):
        return (self.predict_proba(X)[:, 1] >= 0.5).astype(int)


def run_dice(models, clue, rows, method):
    """Give one counterfactual per row; rows without one stay as they are."""
    spelling = Spelling(models.X)
    plain, queries = spelling.to_strings(models.X), spelling.to_strings(rows)
    judge = SureOrNot(clue, spelling)
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
    return spelling.from_strings(pd.concat(answers).set_index(rows.index))


def figures(models, clue, rows, found, seconds):
    schema = models.predictor.encoder_.schema_
    before, after = (clue.predict_uncertainty(X).total for X in (rows, found))
    x0, x = (models.predictor.encoder_.transform(X) for X in (rows, found))
    return {
        "rows": len(rows),
        "ΔH": (before - after).mean(),
        "l1": np.abs(x - x0).sum(1).mean(),
        "d_NN2": nearest_neighbor_distance(found, models.X, explainer=clue).mean(),
        "keeps prediction": (clue.predict(found) == clue.predict(rows)).mean(),
        "becomes sure": (after <= clue.threshold_).mean(),
        "valid": 1 - invalid_rows(rows, found, schema) / len(rows),
        "unchanged": (np.abs(x - x0).sum(1) == 0).mean(),
        "seconds per row": seconds / len(rows),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", metavar="FOLDER", required=True)
    parser.add_argument("--rows", type=int, default=100)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models = load_models(NAME, args.models)
    clue = explainer_of(models, PAPER_WEIGHT[NAME])
    rows = models.X_test[clue.rejects(models.X_test)][: args.rows]
    ways = {
        f"CLUE, λ = {weight}": lambda weight=weight: (
            clue.set_params(distance_weight=weight).explain(rows).counterfactuals
        )
        for weight in (PAPER_WEIGHT[NAME], 1.0, SMALL_WEIGHT)
    }
    for method in ("random", "genetic"):
        ways[f"DiCE, {method}"] = lambda method=method: run_dice(
            models, clue, rows, method
        )
    table = {}
    for name, way in ways.items():
        start = time.process_time()
        found = way()
        seconds = time.process_time() - start
        table[name] = figures(models, clue, rows, found, seconds)
        print(pd.DataFrame(table).T.round(3).to_string(), flush=True)
