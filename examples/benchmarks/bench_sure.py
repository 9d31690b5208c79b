"""The nearest sure row: CLUE beside the neighbours that anybody could use instead.

Default models, rejected test rows, and for each dataset: how many answers are sure and
plausible, how far away they are, how many columns they change, whether a random forest
agrees that the doubt falls, and what they cost. The bars are printed at the end, each
with what was measured.

    SKLEARN_CLUE_DATA=... python examples/benchmarks/bench_sure.py law wine credit \
        --seeds 0 1 2 --cache FOLDER --output lines.csv

`--cache` keeps the fitted models in a folder, one file per dataset, seed and settings
of the fit: a second run with it only explains, and `--fit` does no more than to fill
it. For experiments with a search, `Bench("credit", 0, 40, FOLDER)` has the models, the
rows to explain and a fitted explainer at once.

`--output` keeps the lines of all runs so far: tables and bars are about all that the
file holds, so datasets can be run one by one, and `--show` runs nothing. `adult`,
`german`, `concrete` and `titanic` are read from the folder `more` beside the paper's
data. Methods, and the demand of plausibility:

- `CLUE` and `neighbors`, with the demand `row` and without;
- `only ...`: CLUE with one of its proposers, without the demand;
- `fixed`: CLUE, where the two columns that it changes most often may not change, and
  two numbers have a range;
- `paper`: the paper's search at the paper's λ (2 where it has none, 25 for images);
- `gradient`: one step against the gradient;
- `u-fido`: cells replaced by what the others suggest. It needs a model of its own that
  takes longer to train than the others, and comes with `--ufido` only, on 20 rows;
- `row`: the nearest sure training row as it is.

`law` is drawn from a known law: there the fall of the true entropy and the change of
the log density are known. `digits` are images: plausibility is told, as of a table of
64 numbers, but not demanded, and pixels may be anything between 0 and 1. `--picture
FILE` draws ten of them before and after.
"""

import argparse
import copy
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _sure_data import (
    IMAGES,
    NAMES,
    PAPER_WEIGHT,
    REGRESSIONS,
    Law,
    load_imputer,
    load_models,
)
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_clue import (
    CLUEExplainer,
    LocalSensitivityExplainer,
    NeighborExplainer,
    UFIDOExplainer,
)
from sklearn_clue.evaluation import plausibility
from sklearn_clue.exceptions import SearchConvergenceWarning

PROPOSERS = ("neighbors", "columns", "noise")
N_ROWS_UFIDO, N_ROWS_ANSWERS, N_ANSWERS = 20, 30, 5
BAR_BOTH, BAR_SURE, BAR_HALF, BAR_SETS = 0.95, 0.99, 0.95, 4.0
# What is printed, with digits; the rest is in the file of `--output`.
DIGITS = {"sure": 2, "both": 2, "l1": 2, "±": 2, "median": 2, "ratio": 3, "columns": 1}
DIGITS |= {"after": 2, "flips": 2, "forest": 3, "asked": 0, "ms": 0}
LAW_DIGITS = {"claimed": 3, "true fall": 3, "log density": 2}
BAR_TRUE_FALL, BAR_LOG_DENSITY, BAR_LAW_DISTANCE = 0.9, -0.5, 2.2


# Methods ---------------------------------------------------------------------------


class Bench:
    """One dataset and seed: the rows to explain, and lines of the table about them.

    Parameters
    ----------
    name : str
        The dataset.

    seed : int
        Of the models, and of the choice of rows.

    n_rows : int
        Most rows to explain.

    folder : str or None
        Where models are kept.
    """

    def __init__(self, name, seed, n_rows, folder):
        self.name, self.seed, self.folder = name, seed, folder
        self.models = load_models(name, seed, folder)
        X, y = self.models.X, self.models.y
        parts = map(FrozenEstimator, (self.models.predictor, self.models.generator))
        self.clue = CLUEExplainer(*parts).fit(X, y)
        # Also tells plausibility and distances: it has no image mode.
        self.neighbors = NeighborExplainer(self.clue.estimator).fit(X, y)
        rows = self.models.X_test[self.neighbors.rejects(self.models.X_test)]
        self.rows = rows.sample(min(n_rows, len(rows)), random_state=seed)
        # Of the law the sure rows are the 40 % that are surest, as the formulas are
        # known.
        level = 0.4 if name == "law" else 0.8
        total = self.neighbors.predict_uncertainty(X).total
        self.target = float(np.quantile(total, level))
        self.witness = Witness(X, y, name not in REGRESSIONS)
        self.lines, self.found = [], {}

    def run(self, with_ufido):
        """All lines of the dataset."""
        demands = ("row", None) if self.name != IMAGES else (None,)
        for demand in demands:
            self.explain("CLUE", demand, self.clue)
            self.explain("neighbors", demand, self.neighbors)
        if self.name != IMAGES:
            for proposer in PROPOSERS:
                self.explain(f"only {proposer}", None, alone(self.clue, proposer))
            self.explain_constrained()
        weight = PAPER_WEIGHT.get(self.name, 2.0)
        self.explain("paper", None, self.clue, distance_weight=weight)
        gradient = LocalSensitivityExplainer(self.clue.estimator)
        self.explain("gradient", None, gradient.fit(self.models.X, self.models.y))
        if with_ufido and self.name != IMAGES:
            imputer = load_imputer(self.name, self.seed, self.models, self.folder)
            ufido = UFIDOExplainer(
                self.clue.estimator, FrozenEstimator(imputer), random_state=0
            ).fit(self.models.X, self.models.y)
            self.explain("u-fido", None, ufido, rows=self.rows[:N_ROWS_UFIDO])
        self.add("row", None, self.rows, self.nearest_sure())
        self.compare()
        return self.lines

    def explain(self, method, demand, explainer, rows=None, **settings):
        """Explain rows, and add a line."""
        rows = self.rows if rows is None else rows
        explainer = copy.copy(explainer).set_params(**settings)
        if hasattr(explainer, "min_plausibility"):
            explainer.set_params(
                target_uncertainty=self.target, min_plausibility=demand
            )
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchConvergenceWarning)
            explanation = explainer.explain(rows)
        seconds = (time.process_time() - start) / len(rows)
        self.found[method, demand] = explanation
        after = explanation.counterfactuals
        self.add(method, demand, rows, after, explanation.n_iter.mean(), seconds)
        return explanation

    def nearest_sure(self):
        """The nearest sure training rows as they are."""
        told = copy.copy(self.neighbors).set_params(target_uncertainty=self.target)
        nearest = [each[:1] for each in told.nearest_sure(self.rows)]
        return pd.concat(nearest).set_axis(self.rows.index)

    def explain_constrained(self):
        """Forbid what was changed most, and count what is not kept."""
        free = self.found["CLUE", "row"]
        constraints = constraints_for(self.models.X, free)
        explanation = self.explain("fixed", "row", self.clue, **constraints)
        self.lines[-1]["broken"] = n_broken(explanation, constraints)
        if self.name == "credit":
            rows = self.rows[:N_ROWS_ANSWERS]
            several = copy.copy(self.clue).set_params(
                n_explanations=N_ANSWERS, target_uncertainty=self.target
            )
            sets = n_sets_of_columns(several.explain(rows))
            self.line("CLUE", "row")["sets"] = sets

    def line(self, method, demand):
        (line,) = (
            line
            for line in self.lines
            if (line["method"], line["demand"]) == (method, str(demand))
        )
        return line

    def add(self, method, demand, rows, after, n_asked=np.nan, seconds=np.nan):
        """Add the line of some answers."""
        line = {"dataset": self.name, "seed": self.seed, "method": method}
        line |= {"demand": str(demand), "rows": len(rows)}
        line |= figures(self.neighbors, self.target, rows, after)
        if self.name == IMAGES:
            line["outside"] = int(((after < 0) | (after > 1)).to_numpy().sum())
        line |= {"asked": n_asked, "ms": 1e3 * seconds}
        line["forest"] = self.witness.fall(rows, after)
        if self.name == "law":
            judge, law = self.neighbors.predict_uncertainty, Law()
            line["claimed"] = (judge(rows).total - judge(after).total).mean()
            line["true fall"] = (law.entropy(rows) - law.entropy(after)).mean()
            line["log density"] = (
                law.log_density(after) - law.log_density(rows)
            ).mean()
        self.lines.append(line)

    def compare(self):
        """Distances over those of others, where both have a good answer."""
        for demand in ("row", None):
            if ("CLUE", demand) in self.found and self.name != IMAGES:
                line = self.line("CLUE", demand)
                line["ratio"] = self.ratio(("CLUE", demand), ("neighbors", demand))
        if self.name != IMAGES:
            others = [("neighbors", None), *((f"only {p}", None) for p in PROPOSERS)]
            ratios = [self.ratio(("CLUE", None), other) for other in others]
            self.line("CLUE", None)["to best"] = np.nanmax(ratios)

    def ratio(self, one, other):
        pair = [self.found[key] for key in (one, other)]
        good = np.logical_and.reduce([self.is_good(each) for each in pair])
        ours, theirs = (each.distance[good].sum() for each in pair)
        return ours / theirs if theirs else np.nan

    @staticmethod
    def is_good(explanation):
        is_plausible = explanation.is_plausible
        return explanation.is_sure & (True if is_plausible is None else is_plausible)


def alone(clue, proposer):
    """CLUE with one of its proposers, and all that follows."""

    class Alone(CLUEExplainer):
        def _method(self, trade_offs):
            return self._sure_search(proposers=[proposer], use_slopes=True)

    only = copy.copy(clue)
    only.__class__ = Alone
    return only


# Figures ---------------------------------------------------------------------------


class Witness:
    """A forest that was not asked in the search: does its doubt fall as well?"""

    def __init__(self, X, y, is_class):
        forest = RandomForestClassifier if is_class else RandomForestRegressor
        columns = make_column_transformer(
            (
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                make_column_selector(dtype_exclude="number"),
            ),
            (SimpleImputer(), make_column_selector(dtype_include="number")),
        )
        model = make_pipeline(
            columns, forest(100, min_samples_leaf=5, random_state=0)
        ).fit(X, y)
        # Frozen: what it would reject is not asked, so some rows are enough to fit to.
        self.explainer = NeighborExplainer(FrozenEstimator(model)).fit(X[:500], y[:500])

    def fall(self, before, after):
        judge = self.explainer.predict_uncertainty
        return (judge(before).total - judge(after).total).mean()


def figures(judge, target, rows, after):
    """What a fitted explainer says of answers."""
    total, was = (judge.predict_uncertainty(table).total for table in (after, rows))
    likely, were = (plausibility(judge, table) for table in (after, rows))
    x, x0 = (judge._space.encode(table) for table in (after, rows))
    is_sure = total <= target * (1 + 1e-9)
    distance = np.abs(x - x0).sum(1)
    is_moved = [
        (x[:, column.block] != x0[:, column.block]).any(1)
        for column in judge._space.schema
    ]
    flips = np.nan
    if judge.is_classification_:
        flips = np.mean(judge.predict(after) != judge.predict(rows))
    return {
        "sure": is_sure.mean(),
        "both": (is_sure & (likely >= np.minimum(were, 0.5) - 1e-9)).mean(),
        "l1": distance.mean(),
        "median": np.median(distance),
        "columns": np.sum(is_moved, axis=0).mean(),
        "plausible": were.mean(),
        "after": likely.mean(),
        "less sure": int((total > was + 1e-6).sum()),
        "outside": n_outside(judge._space.display_schema, rows, after),
        "flips": flips,
    }


def n_outside(schema, rows, after):
    """Values beyond those of the training column and beyond that of the row."""
    count = 0
    for column in schema.numbers:
        old, new = rows[column.name].to_numpy(), after[column.name].to_numpy()
        low, high = np.fmin(column.low, old), np.fmax(column.high, old)
        count += int(((new < low) | (new > high)).sum())
    return count


def changed(before, after):
    """Which cells differ: a table of booleans. Gaps are equal."""
    return (before != after) & ~(before.isna() & after.isna())


def constraints_for(X, explanation):
    """The two columns that change most are kept; two numbers that change get ranges."""
    is_changed = changed(explanation.X, explanation.counterfactuals)
    often = list(is_changed.sum().sort_values(ascending=False, kind="stable").index)
    numbers = [name for name in often[2:] if pd.api.types.is_numeric_dtype(X[name])]
    ranges = {name: tuple(X[name].quantile([0.1, 0.9])) for name in numbers[:1]}
    ranges |= dict.fromkeys(numbers[1:2], "increase")
    return {"immutable_features": often[:2], "feature_ranges": ranges}


def n_broken(explanation, constraints):
    """Cells that do not keep a constraint."""
    old, new = explanation.X, explanation.counterfactuals
    fixed = constraints["immutable_features"]
    count = int(changed(old[fixed], new[fixed]).to_numpy().sum())
    for name, allowed in constraints["feature_ranges"].items():
        before, after = old[name].to_numpy(), new[name].to_numpy()
        low, high = (before, np.inf) if allowed == "increase" else allowed
        count += int(((after < low) | (after > high)).sum())
    return count


def n_sets_of_columns(explanation):
    """How many different sets of columns the answers to a row change, on average."""
    counts = []
    for i, answers in enumerate(explanation.candidates):
        row = pd.concat([explanation.X.iloc[[i]]] * len(answers))
        counts.append(len(np.unique(changed(row, answers).to_numpy(), axis=0)))
    return np.mean(counts)


def draw_digits(explanation, path, n_rows=10):
    """Draw the first images before and after, with what they are taken for."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        3, n_rows, figsize=(1.1 * n_rows, 4), layout="constrained"
    )
    before = explanation.X.to_numpy()[:n_rows].reshape(-1, 8, 8)
    after = explanation.counterfactuals.to_numpy()[:n_rows].reshape(-1, 8, 8)
    drawn = [(before, "gray", 0, 1), (after, "gray", 0, 1)]
    drawn.append((after - before, "PuOr", -1, 1))
    for line, (images, cmap, low, high) in zip(axes, drawn, strict=True):
        for ax, image in zip(line, images, strict=True):
            ax.imshow(image, cmap=cmap, vmin=low, vmax=high)
            ax.set_xticks([])
            ax.set_yticks([])
    for line, name in zip(axes, ("before", "after"), strict=False):
        entropy = getattr(explanation, f"uncertainty_{name}").total
        labels = getattr(explanation, f"prediction_{name}")
        for ax, label, value in zip(line, labels, entropy, strict=False):
            ax.set_xlabel(f"{label}: {value:.2f}")
    for ax, name in zip(axes[:, 0], ("digit", "sure", "change"), strict=True):
        ax.set_ylabel(name)
    figure.savefig(path, dpi=90)


# Tables and bars -------------------------------------------------------------------


def keep(lines, path):
    """Put lines into a file, in the place of earlier ones of the same runs."""
    table = pd.DataFrame(lines)
    if path is None:
        return table
    if path.exists():
        old = pd.read_csv(path, keep_default_na=False, na_values=[""])
        runs = pd.MultiIndex.from_frame(table[["dataset", "seed"]])
        is_kept = ~pd.MultiIndex.from_frame(old[["dataset", "seed"]]).isin(runs)
        table = pd.concat([old[is_kept], table], ignore_index=True)
    order = [*NAMES, IMAGES]
    table = table.sort_values(
        ["dataset", "seed"],
        key=lambda key: key.map(order.index) if key.name == "dataset" else key,
        kind="stable",
    )
    table.to_csv(path, index=False)
    return table


def show(table):
    """Print means over the seeds, with the spread of the distance over them."""
    by = table.groupby(["dataset", "method", "demand"], sort=False)
    means = by.mean(numeric_only=True).assign(**{"±": by["l1"].std()}).reset_index()
    is_asked = means.pop("demand") == "row"
    means["method"] = means["method"].where(~is_asked, means["method"] + ", demand")
    print(as_text(means, DIGITS))
    if "true fall" in means:
        print("\nWhat is true under the law:")
        print(as_text(means[means["dataset"] == "law"], LAW_DIGITS))


def as_text(means, digits):
    """A table of some columns, each with its digits; what is not known is empty."""
    columns = {
        name: [f"{value:.{n}f}" if value == value else "" for value in means[name]]
        for name, n in digits.items()
        if name in means
    }
    return means[["dataset", "method"]].assign(**columns).to_string(index=False)


def bars(table):
    """Yield what was demanded, what was measured, and whether that is enough."""
    tables = table[table["dataset"] != IMAGES]
    ours = tables[tables["method"] == "CLUE"]
    with_demand, free = ours[ours["demand"] == "row"], ours[ours["demand"] == "None"]
    every = table[table["method"].isin(["CLUE", "fixed"])]
    images = table[(table["dataset"] == IMAGES) & (table["method"] == "CLUE")]

    def worst(figure, low=True):
        figure = figure.groupby(table["dataset"]).mean()
        where = figure.idxmin() if low else figure.idxmax()
        return figure[where], f"{figure[where]:.3f} ({where})"

    for name in ("less sure", "outside"):
        n_wrong = int(every[name].sum())
        yield f"no answer {name}", f"{n_wrong}", n_wrong == 0
    if len(images):
        value, text = worst(images["sure"])
        yield "images: sure for 99 %", text, value >= BAR_SURE
    if not len(tables):
        return
    value, text = worst(with_demand["both"])
    yield "sure and plausible for 95 % with the demand", text, value >= BAR_BOTH
    value, text = worst(free["sure"])
    yield "sure for 99 % without", text, value >= BAR_SURE
    n_wrong = table["broken"].sum()
    yield "constraints kept", f"{n_wrong:.0f} cells broken", n_wrong == 0
    value, text = worst(with_demand["ratio"], low=False)
    yield "no farther than the neighbours, with the demand", text, value <= 1
    ratio = with_demand.groupby("dataset")["ratio"].mean()
    share = (ratio <= BAR_HALF).mean()
    text = f"{(ratio <= BAR_HALF).sum()} of {len(ratio)} (mean {ratio.mean():.3f})"
    yield "at most 0.95 of their distance on half", text, share >= 0.5
    value, text = worst(free["to best"], low=False)
    text += f", above 1 on {(free.groupby('dataset')['to best'].mean() > 1).sum()}"
    yield "without: no farther than the best proposer alone", text, value <= 1
    law = with_demand[with_demand["dataset"] == "law"]
    if len(law):
        claimed, true = law["claimed"].mean(), law["true fall"].mean()
        text = f"{true:.3f} of {claimed:.3f}"
        yield "law: 0.9 of the fall is true", text, true >= BAR_TRUE_FALL * claimed
        value = law["log density"].mean()
        yield "law: log density -0.5", f"{value:+.2f}", value >= BAR_LOG_DENSITY
        value = law["l1"].mean()
        yield "law: l1 at most 2.2", f"{value:.2f}", value <= BAR_LAW_DISTANCE
    if table.get("sets", pd.Series(dtype=float)).notna().any():
        value = table["sets"].mean()
        text = f"{value:.1f} of {N_ANSWERS}"
        yield "Credit: answers change 4 sets of columns", text, value >= BAR_SETS


def check(table):
    """Print all bars, and tell whether they are met."""
    print()
    met = []
    for demanded, measured, is_met in bars(table):
        print(f"{'met' if is_met else 'NOT MET':8} {demanded}: {measured}")
        met.append(is_met)
    return all(met)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="datasets; none means all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--cache", metavar="FOLDER", help="keeps fitted models")
    parser.add_argument("--fit", action="store_true", help="only fill the folder")
    parser.add_argument("--output", metavar="FILE", type=Path, help="keeps lines")
    parser.add_argument("--ufido", action="store_true", help="U-FIDO as well")
    parser.add_argument("--picture", metavar="FILE", help="of ten digits")
    parser.add_argument("--show", action="store_true", help="what --output holds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for category in (ConvergenceWarning, SearchConvergenceWarning):
        warnings.simplefilter("ignore", category)
    lines = []
    for name in [] if args.show else args.names or [*NAMES, IMAGES]:
        for seed in args.seeds:
            if args.fit:
                models = load_models(name, seed, args.cache)
                if args.ufido and name != IMAGES:
                    load_imputer(name, seed, models, args.cache)
                continue
            bench = Bench(name, seed, args.rows, args.cache)
            lines += bench.run(args.ufido)
            if args.picture and name == IMAGES:
                draw_digits(bench.found["CLUE", None], args.picture)
            table = keep(lines, args.output)
            print(f"{name}, seed {seed}: done", flush=True)
    if args.fit:
        return
    if args.show:
        table = pd.read_csv(args.output, keep_default_na=False, na_values=[""])
    show(table)
    raise SystemExit(not check(table))


if __name__ == "__main__":
    main()
