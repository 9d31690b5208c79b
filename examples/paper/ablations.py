"""What CLUE owes to each of its parts: the ablations of Appendix H.1.

On the test rows that the model should not decide on, with the paper's weight of the
distance, this prints for each dataset

* *start*: the search from the encoding of the row, as always, or from zeros;
* *latents*: generators with few or many latents, the uncertainty that plain
  auto-encoding leaves, and what CLUE makes of it;
* *predictions*: growing weights of keeping the prediction (λ_y);
* *network*: the Bayesian MLP, and a plain network whose noise is explained.

    SKLEARN_CLUE_DATA=... python examples/paper/ablations.py --dataset wine --seeds 0
"""

import numpy as np
import torch
from _setup import TASKS, run
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EarlyStopping

from sklearn_clue import CLUEExplainer, TabularEncoder

MAX_ROWS = 200  # of those that are rejected
LATENT_DIMS = [1, 2, 4, 8, 16]
PREDICTION_WEIGHTS = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0]


class PlainNetwork(torch.nn.Module):
    """Two hidden layers of 200, as the paper's; logits, or a mean and a deviation."""

    def __init__(self, n_inputs, n_outputs, is_regression):
        super().__init__()
        widths = [n_inputs, 200, 200]
        layers = []
        for before, after in zip(widths, widths[1:], strict=False):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(200, n_outputs))
        self.is_regression = is_regression

    def forward(self, x):
        out = self.layers(x)
        if not self.is_regression:
            return out
        mean, width = out.unbind(1)
        return torch.stack([mean, torch.nn.functional.softplus(width) + 1e-3], dim=1)


class GaussianLoss(torch.nn.Module):
    """Negative log-likelihood of a target under a mean and a deviation."""

    def forward(self, output, target):
        mean, std = output.unbind(1)
        return torch.nn.functional.gaussian_nll_loss(mean, target.flatten(), std**2)


def fit_predictor(name, seed, scale):
    X, _, y, _ = TASKS[name].load(scale)
    return TASKS[name].new_predictor(seed).fit(X, y)


def fit_generator(name, seed, scale, predictor, latent_dim):
    X, _, _, _ = TASKS[name].load(scale)
    return TASKS[name].new_generator(predictor, seed, latent_dim).fit(X)


def fit_plain(name, seed, scale):
    """A plain network behind an encoder, stopped early on a split of its rows."""
    X, _, y, _ = TASKS[name].load(scale)
    is_regression = TASKS[name].is_regression
    encoder = TabularEncoder().set_output(transform="default").fit(X)
    x = encoder.transform(X).astype(np.float32)
    y = np.asarray(y)
    kind = NeuralNetRegressor if is_regression else NeuralNetClassifier
    torch.manual_seed(seed)
    net = kind(
        PlainNetwork,
        module__n_inputs=x.shape[1],
        module__n_outputs=2 if is_regression else len(np.unique(y)),
        module__is_regression=is_regression,
        criterion=GaussianLoss if is_regression else torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        batch_size=512,
        max_epochs=200,
        callbacks=[EarlyStopping(patience=20, load_best=True)],
        verbose=0,
    )
    if is_regression:
        y = ((y - y.mean()) / y.std()).astype(np.float32)[:, None]
    net.fit(x, y)
    return make_pipeline(FrozenEstimator(encoder), FrozenEstimator(net))


def explain(name, predictor, generator, X, y, rows, **settings):
    """One line of the table, about the rows of `rows` that `predictor` rejects."""
    clue = CLUEExplainer(
        FrozenEstimator(predictor),
        FrozenEstimator(generator),
        distance_weight=TASKS[name].distance_weight,
        random_state=0,
        **settings,
    ).fit(X, y)
    explanation = clue.explain(rows[clue.rejects(rows)][:MAX_ROWS])
    before = explanation.uncertainty_before.total
    change = explanation.prediction_after != explanation.prediction_before
    if TASKS[name].is_regression:
        change = np.abs(explanation.prediction_after - explanation.prediction_before)
    return {
        "rows": len(explanation),
        "before": before.mean(),
        "rebuilt": explanation.uncertainty_reconstructed.total.mean(),
        "after": explanation.uncertainty_after.total.mean(),
        "l1": explanation.distance.mean(),
        # Larger changes for more uncertain rows, the paper finds.
        "corr. of before and l1": np.corrcoef(before, explanation.distance)[0, 1],
        # Share of other classes, or mean distance of means in the target's unit.
        "prediction change": np.mean(change),
    }


def ablate(name, seed, scale, memory):
    """Yield all lines of a dataset and a seed."""
    X, X_test, y, _ = TASKS[name].load(scale)
    predictor = memory.cache(fit_predictor)(name, seed, scale)

    def generator_of(latent_dim, predictor=predictor):
        fit = memory.cache(fit_generator, ignore=["predictor"])
        return fit(name, seed, scale, predictor, latent_dim)

    def line(ablation, setting, generator, predictor=predictor, **settings):
        figures = explain(name, predictor, generator, X, y, X_test, **settings)
        heading = {"dataset": name, "seed": seed, "ablation": ablation}
        return heading | {"setting": setting} | figures

    usual = generator_of(TASKS[name].latent_dim)
    for init in ["encode", "zeros"]:
        yield line("start", init, usual, init=init)
    for latent_dim in LATENT_DIMS:
        yield line("latents", latent_dim, generator_of(latent_dim))
    for weight in PREDICTION_WEIGHTS:
        yield line("predictions", weight, usual, prediction_weight=weight)
    plain = memory.cache(fit_plain)(name, seed, scale)
    yield line("network", "Bayesian", usual, uncertainty="aleatoric")
    yield line("network", "plain", usual, plain)


if __name__ == "__main__":
    table = run(__doc__, ablate).drop(columns="seed")
    keys = ["dataset", "ablation", "setting"]
    print(table.groupby(keys, sort=False).mean().round(3).to_string())
