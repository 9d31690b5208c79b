"""Three explainers on real data: the tables of Appendix H.2, beside the paper's.

For the test rows that the model should not decide on: how much uncertainty is
explained (ΔH, in nats or the target's unit), how far the counterfactuals are from the
training data (d_NN2), and the mean of the ratios of the two. The step of local
sensitivity and the weight of U-FIDO's mask are those of the knee point of ΔH against
the ℓ1 distance, on training rows that the model rejects. CLUE comes twice: with the
paper's weight of the distance, as in the paper, and with that of its own knee point.
So does the nearest sure and believable row, which the paper does not have: with the
threshold of rejection as its target, and with the target at the knee point of a sweep.
*Usual row* asks for more than to be believable: an answer must be nearer to training
rows than four fifths of the training rows are to each other.

    SKLEARN_CLUE_DATA=... python examples/paper/table_real_data.py --dataset wine
"""

import numpy as np
from _setup import TASKS, run
from sklearn.frozen import FrozenEstimator

from sklearn_clue import (
    CLUEExplainer,
    LocalSensitivityExplainer,
    UFIDOExplainer,
    VAEACImputer,
)
from sklearn_clue.evaluation import (
    informativeness,
    mean_ratio,
    nearest_neighbor_distance,
)
from sklearn_clue.explanation import knee_index

GRIDS = {
    "distance_weight": np.geomspace(0.03, 30, 10),
    "step_size": np.geomspace(0.03, 30, 10),
    "mask_weight": np.geomspace(0.0003, 0.3, 10),
}
# Of the training rows, so many are sure; with 0, the surest of them is.
TARGET_LEVELS = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
N_ROWS_OF_GRID = 100
USUAL = 0.8  # the plausibility of a usual row

# What is chosen for each method.
METHODS = {
    "sensitivity": "step_size",
    "CLUE": None,
    "CLUE, knee": "distance_weight",
    "U-FIDO": "mask_weight",
    "sure row": None,
    "sure row, knee": "target_uncertainty",
    "usual row, knee": "target_uncertainty",
}

# d_NN2, ΔH and their mean ratio in the paper.
PAPER = {
    "lsat": {
        "sensitivity": (0.482, 0.003, 0.0192),
        "CLUE": (0.080, 0.092, 1.664),
        "U-FIDO": (0.085, 0.077, 0.969),
    },
    "compas": {
        "sensitivity": (7.975, 0.265, 0.033),
        "CLUE": (0.067, 0.014, 0.737),
        "U-FIDO": (0.084, 0.022, 0.627),
    },
    "wine": {
        "sensitivity": (3.317, 0.481, 0.154),
        "CLUE": (1.274, 1.409, 1.188),
        "U-FIDO": (1.223, 1.307, 1.241),
    },
    "credit": {
        "sensitivity": (0.770, 0.224, 0.121),
        "CLUE": (1.025, 0.147, 0.293),
        "U-FIDO": (1.863, 0.017, 0.052),
    },
}


def fit_models(name, seed, scale):
    """Fit a predictor, and the generators of CLUE and U-FIDO in its encoded space."""
    task = TASKS[name]
    X, _, y, _ = task.load(scale)
    predictor = task.new_predictor(seed).fit(X, y)
    encoder = FrozenEstimator(predictor.encoder_)
    imputer = VAEACImputer(task.latent_dim, encoder=encoder, random_state=seed)
    return predictor, task.new_generator(predictor, seed).fit(X), imputer.fit(X)


def knee(explainer, parameter, grid, rows):
    """Set the parameter to its best trade-off between ΔH and distance."""
    if isinstance(explainer, UFIDOExplainer):
        # The same as below, and quicker. A path of CLUE starts each search from the
        # last one, and ends elsewhere than `explain` would.
        explanations = explainer.explain_path(rows, grid)
    else:
        explanations = [
            explainer.set_params(**{parameter: value}).explain(rows) for value in grid
        ]
    gain = [informativeness(explanation) for explanation in explanations]
    cost = [explanation.distance.mean() for explanation in explanations]
    return explainer.set_params(**{parameter: grid[knee_index(gain, cost)]})


def explain(name, seed, scale, method, models):
    """Explain the rejected test rows by one method, and give its line of the table."""
    X, X_test, y, _ = TASKS[name].load(scale)
    predictor, generator, imputer = map(FrozenEstimator, models)
    parameter = METHODS[method]
    if method == "sensitivity":
        explainer = LocalSensitivityExplainer(predictor)
    elif method == "U-FIDO":
        explainer = UFIDOExplainer(predictor, imputer, random_state=0)
    else:
        explainer = CLUEExplainer(predictor, generator, random_state=0)
        if "CLUE" in method:
            explainer.set_params(distance_weight=TASKS[name].distance_weight)
        elif "usual" in method:
            explainer.set_params(min_plausibility=USUAL)
    explainer.fit(X, y)
    if parameter is not None:
        unsure = X[explainer.rejects(X)]
        unsure = unsure[:: max(len(unsure) // N_ROWS_OF_GRID, 1)]
        grid = GRIDS.get(parameter)
        if grid is None:
            grid = np.quantile(explainer.predict_uncertainty(X).total, TARGET_LEVELS)
        knee(explainer, parameter, grid, unsure)
    explanation = explainer.explain(X_test[explainer.rejects(X_test)])
    gain = informativeness(explanation, average=False)
    distance = nearest_neighbor_distance(
        explanation.counterfactuals, X, explainer=explainer
    )
    ratio, n_left_out = mean_ratio(gain, distance)
    return {
        "dataset": name,
        "seed": seed,
        "method": method,
        "parameter": float(
            explainer.threshold_
            if method == "sure row"
            else getattr(explainer, parameter or "distance_weight")
        ),
        "rows": len(gain),
        "d_NN2": distance.mean(),
        "gain": gain.mean(),
        "ratio": ratio,
        # Rows that are in the training data, of which there is no ratio.
        "known": n_left_out,
        "l1": explanation.distance.mean(),
        # What the ratio of the means is, which rows near the data do not dominate.
        "ratio of means": gain.mean() / distance.mean(),
    }


def compare(name, seed, scale, memory):
    """Yield a line per method."""
    models = memory.cache(fit_models)(name, seed, scale)
    line = memory.cache(explain, ignore=["models"])
    for method in METHODS:
        yield line(name, seed, scale, method, models)


def main():
    figures = ["d_NN2", "gain", "ratio", "known", "ratio of means"]
    lines = run(__doc__, compare)
    by_method = lines.groupby(["dataset", "method"], sort=False)
    table = by_method[figures].mean()
    table["ratio, error"] = by_method["ratio"].sem()  # NaN for a single seed
    for i, figure in enumerate(figures[:3]):
        table[f"{figure}, paper"] = [
            PAPER[data].get(how.removesuffix(", knee"), [np.nan] * 3)[i]
            for data, how in table.index
        ]
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
