"""A model that was never shown a style of digits does not know it: modified MNIST.

Of the fours, sevens and nines of MNIST, sevens with a dash through their stem and fours
that are closed at the top are thinned out, as for the paper's user study (App. J.2):
the nearest neighbours of each of forty such digits, found by eye, are left out of
training, twelve or as many as `--neighbors` says. The epistemic uncertainty of the test
digits of these styles, also found by eye, must then be higher than that of the others:
the area under the ROC curve is printed, and beside it that of a model trained on all
digits.

`--figure FILE` draws digits of the two styles beside others, with their epistemic
uncertainty. `--clues FILE` trains a VAE as well, and draws what CLUE makes of those
digits of the two styles that the model is least sure about.

    SKLEARN_CLUE_DATA=... python examples/paper/modified_mnist.py --scale full
"""

import argparse
import warnings

import matplotlib.pyplot as plt
import numpy as np
from joblib import Memory
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.datasets import fetch_mnist
from sklearn_clue.exceptions import SearchConvergenceWarning

# Positions in the training images.
SEEDS = {
    7: [
        *(38, 148, 324, 384, 478, 518, 730, 884, 898, 918, 948, 950, 954, 968, 1088),
        *(1106, 1126, 1154, 1338, 1342, 1499, 1586, 1772, 1944, 2018, 2064, 2102, 2244),
        *(2246, 2376, 2488, 2502, 2522, 2574, 2634, 2658, 2676, 2706, 2852, 2980),
    ],
    4: [
        *(150, 414, 590, 1554, 1580, 1604, 1704, 1812, 1814, 2208, 2338, 2406, 2466),
        *(2490, 2772, 3716, 3828, 3946, 4346, 4438, 4564, 4758, 4780, 5155, 5175, 5195),
        *(5217, 5265, 5287, 5293, 5295, 5313, 5331, 5482, 5720, 5936, 6154, 6260, 6778),
        6794,
    ],
}

# Positions in the test images, of which the first N_SEEN were looked through.
N_SEEN = 2829
STYLE = {
    7: [
        *(36, 41, 64, 75, 97, 114, 133, 144, 243, 282, 301, 307, 328, 468, 510, 522),
        *(550, 551, 554, 605, 617, 684, 810, 832, 841, 898, 930, 950, 960, 987, 1012),
        *(1091, 1143, 1156, 1194, 1226, 1283, 1363, 1500, 1543, 1581, 1754, 1903, 1933),
        *(1941, 2016, 2095, 2325, 2334, 2513, 2539, 2547, 2607, 2622, 2665, 2666, 2730),
        *(2820, 2823),
    ],
    4: [
        *(159, 300, 447, 571, 707, 740, 748, 1242, 1453, 1461, 1465, 1751, 1767, 1865),
        *(1920, 1956, 1989, 2053, 2090, 2130, 2148, 2371, 2394, 2404, 2447, 2709, 2828),
    ],
}


def positions_to_leave_out(X, y, n_neighbors):
    """Find the neighbours of the seeds among the digits of their class."""
    left_out = []
    for digit, seeds in SEEDS.items():
        same = np.flatnonzero(y == digit)
        nearest = NearestNeighbors(n_neighbors=n_neighbors + 1).fit(X[same])
        left_out.append(same[nearest.kneighbors(X[seeds])[1].ravel()])
    return np.unique(np.concatenate(left_out))


def load(scale, n_neighbors):
    """Give training digits, all and modified, and those test digits looked through."""
    X, X_test, y, y_test = fetch_mnist(
        paper_split=True, return_X_y=True, as_frame=False
    )
    y, y_test = y.astype(int), y_test.astype(int)
    left_out = positions_to_leave_out(X.astype(np.float32), y, n_neighbors)
    wanted = np.isin(y, [4, 7, 9])
    if scale == "small":
        wanted[20000:] = False
    modified = wanted.copy()
    modified[left_out] = False
    is_seen = np.isin(y_test[:N_SEEN], [4, 7, 9])
    has_style = np.isin(np.arange(N_SEEN), np.concatenate(list(STYLE.values())))
    return {
        "all": (X[wanted], y[wanted]),
        "modified": (X[modified], y[modified]),
        "test": (X_test[:N_SEEN][is_seen], y_test[:N_SEEN][is_seen]),
        "has_style": has_style[is_seen],
        "n_left_out": int(wanted.sum() - modified.sum()),
    }


def fit_predictor(which, scale, n_neighbors, seed):
    X, y = load(scale, n_neighbors)[which]
    return BayesianMLPClassifier(encoder="passthrough", random_state=seed).fit(
        (X / 255).astype(np.float32), y
    )


def fit_generator(scale, n_neighbors, seed):
    X, _ = load(scale, n_neighbors)["modified"]
    vae = VAEEncoder(20, image_shape=(28, 28), random_state=seed)
    return vae.fit((X / 255).astype(np.float32))


def scores(epistemic, data, digit):
    """Give the uncertainty of digits of the style, of others, and the AUC."""
    _, y = data["test"]
    has_style, is_digit = data["has_style"], y == digit
    auc = roc_auc_score(has_style[is_digit], epistemic[is_digit])
    return epistemic[is_digit & has_style], epistemic[is_digit & ~has_style], auc


def judge(predictor, data):
    """Print how well epistemic uncertainty tells the styles that were left out."""
    X, y = data["test"]
    X = (X / 255).astype(np.float32)
    epistemic = predictor.predict_uncertainty(X).epistemic
    for digit in STYLE:
        style, rest, auc = scores(epistemic, data, digit)
        print(
            f"  {digit}: {len(style)} of the style, {len(rest)} others, "
            f"mean epistemic {style.mean():.4f} and {rest.mean():.4f} nats, "
            f"AUC {auc:.3f}"
        )
    auc = roc_auc_score(data["has_style"], epistemic)
    accuracy = (predictor.predict(X) == y).mean()
    print(f"  against all other fours, sevens and nines: AUC {auc:.3f}")
    print(f"  accuracy {accuracy:.4f}", flush=True)
    return epistemic


def draw(data, epistemic, path, n_shown=6):
    """Draw digits with and without the style, and how uncertain all of them are."""
    X, y = data["test"]
    figure = plt.figure(figsize=(11, 6), layout="constrained")
    images, curves = figure.subfigures(1, 2, width_ratios=(3, 2))
    axes = images.subplots(4, n_shown + 1, width_ratios=(1.6, *[1] * n_shown))
    plots = curves.subplots(2, 1, sharex=True)
    names = {7: ("dashed sevens", "other sevens"), 4: ("closed fours", "other fours")}
    bins = np.linspace(0, epistemic.max(), 30)
    for number, digit in enumerate(STYLE):
        for line, has_style, name in zip(
            axes[2 * number :], (True, False), names[digit], strict=False
        ):
            line[0].text(1, 0.5, name.replace(" ", "\n"), ha="right", va="center")
            # The first ones, whatever the model thinks of them.
            first = np.flatnonzero((y == digit) & (data["has_style"] == has_style))
            for ax, row in zip(line[1:], first, strict=False):
                ax.imshow(X[row].reshape(28, 28), cmap="gray")
                ax.set_title(f"{epistemic[row]:.2f}", fontsize=9)
        style, rest, auc = scores(epistemic, data, digit)
        for values, name in zip((style, rest), names[digit], strict=True):
            plots[number].hist(values, bins, density=True, alpha=0.6, label=name)
        plots[number].set_title(f"AUC {auc:.2f}", loc="left")
        plots[number].set(ylabel="density", yscale="log")
        plots[number].legend()
    for ax in axes.flat:
        ax.set_axis_off()
    plots[1].set_xlabel("epistemic uncertainty (nats)")
    figure.savefig(path, dpi=100)


def draw_clues(predictor, generator, data, epistemic, path):
    """Draw the least certain digits of the styles, their CLUEs and the difference."""
    X, y = data["test"]
    unsure = [
        np.flatnonzero(data["has_style"] & (y == digit))[
            np.argsort(-epistemic[data["has_style"] & (y == digit)])[:4]
        ]
        for digit in (7, 4)
    ]
    rows = (X[np.concatenate(unsure)] / 255).astype(np.float32)
    X_train, y_train = data["modified"]
    clue = CLUEExplainer(
        FrozenEstimator(predictor),
        FrozenEstimator(generator),
        distance_weight=1.0,
        random_state=0,
    ).fit((X_train / 255).astype(np.float32), y_train)
    clue.explain(rows).plot()
    plt.gcf().savefig(path, dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--neighbors", type=int, default=12, help="of each seed")
    parser.add_argument("--cache", metavar="FOLDER", help="keeps what is finished")
    parser.add_argument("--figure", metavar="FILE")
    parser.add_argument("--clues", metavar="FILE")
    args = parser.parse_args()
    for category in (ConvergenceWarning, SearchConvergenceWarning):
        warnings.simplefilter("ignore", category)
    memory = Memory(args.cache, verbose=0)
    data = load(args.scale, args.neighbors)
    n_digits, n_left_out = len(data["modified"][0]), data["n_left_out"]
    print(f"{n_digits} digits, {n_left_out} fours and sevens left out")
    for seed in args.seeds:
        for which in ("modified", "all"):
            print(f"seed {seed}, trained on {which}:", flush=True)
            predictor = memory.cache(fit_predictor)(
                which, args.scale, args.neighbors, seed
            )
            epistemic = judge(predictor, data)
            if which == "all" or seed != args.seeds[0]:
                continue
            if args.figure:
                draw(data, epistemic, args.figure)
            if args.clues:
                generator = memory.cache(fit_generator)(
                    args.scale, args.neighbors, seed
                )
                draw_clues(predictor, generator, data, epistemic, args.clues)
