r"""Reference posterior of a Bayesian MLP, sampled with NUTS.

An exact method (the No-U-Turn Sampler on all rows) to compare approximate samplers
with. The result is a small JSON file of predictions for the test rows.

Notes
-----
Data: see `nuts_summaries.split`. Inputs, and the target of a regression, are
standardised with the mean and standard deviation (ddof=0) of the training rows.

Network: ``h = relu(x W + b)`` for each hidden layer, with a residual connection
``h + relu(h W + b)`` between hidden layers of equal width, and two linear outputs.
Regression reads them as ``(mu, raw)`` with ``y ~ Normal(mu, 0.01 + softplus(raw))`` in
standardised units, classification as the logits of two classes.

Prior: weights and biases of layer l are ``Normal(0, sqrt(2 / (lambda_l * fan_in_l)))``
with ``lambda_l ~ Gamma(10, rate=10)``, one ``lambda_l`` per layer, and ``fan_in_l`` the
number of inputs of the layer. ``--gamma`` sets shape and rate, ``--output-scale``
multiplies the standard deviations of the last layer, and ``--temperature`` divides the
log-likelihood: below 1 the posterior is cold. Predictions are never tempered.

Sampler: NUTS in float64, lambda non-centred (unit normal variables are scaled),
diagonal mass matrix, target acceptance 0.8, maximal tree depth 10, chains run one
after the other from independent starts drawn uniformly in (-2, 2) in the unconstrained
space. Chain c uses ``fold_in(PRNGKey(seed), c)``.

Before you trust a file, look at the split R-hat of the predictions and at
``half_agreement``: narrow networks have several modes, and chains must visit them all.
``subset_of_100`` is the best that 100 independent draws can do.

Versions: Python 3.11.7, numpyro 0.22.0, jax and jaxlib 0.10.2, numpy 2.4.6,
scikit-learn 1.9.1, on one CPU core.

Examples
--------
With ``pip install jax numpyro pandas scikit-learn scipy``. Numbers by a narrow network
(seed 0, about 3 minutes of one core)::

    python make_nuts_reference.py --dataset diabetes --warmup 500 --draws 1500 \
        --out diabetes_400.json

Classes (about 3 minutes)::

    python make_nuts_reference.py --dataset breast_cancer --hidden 16 \
        --warmup 500 --draws 1500 --out breast_cancer_400.json

A wider network (about 5 minutes)::

    python make_nuts_reference.py --rows 331 --hidden 50 --out diabetes_50.json

Low noise gives a narrow network many modes, and every chain stays in its own. Concrete
takes many chains (about 15 minutes), and even so halves may differ::

    SKLEARN_CLUE_DATA=... python make_nuts_reference.py --dataset concrete \
        --warmup 500 --draws 500 --chains 16 --out concrete_400.json
"""

import argparse
import json
import platform
import time
from importlib.metadata import version
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from nuts_summaries import (
    CLASSIFICATION,
    LOADERS,
    agreement,
    log_density,
    split,
    summarise,
)

SIGMA_MIN = 0.01
TARGET_ACCEPT = 0.8


def load_data(dataset, n_train):
    """Split the rows and standardise inputs and targets.

    Returns
    -------
    dict
        Standardised ``X_train``, ``y_train`` and ``X_test``, ``y_test`` as it is, and
        the ``center`` and ``scale`` of the target.
    """
    X_train, X_test, y_train, y_test = split(dataset, n_train)
    X_mean, X_std = X_train.mean(axis=0), X_train.std(axis=0)
    center, scale = y_train.mean(), y_train.std()
    is_class = dataset in CLASSIFICATION
    return {
        "X_train": (X_train - X_mean) / X_std,
        "y_train": y_train if is_class else (y_train - center) / scale,
        "X_test": (X_test - X_mean) / X_std,
        "y_test": y_test,
        "center": center,
        "scale": scale,
    }


def forward(layers, X):
    """Evaluate the network.

    Parameters
    ----------
    layers : list of tuple
        ``(weights, biases)`` of each layer.
    X : array of shape (n, n_features)
        Standardised inputs.

    Returns
    -------
    array of shape (n, 2)
        The outputs.
    """
    h = X
    for W, b in layers[:-1]:
        activation = jax.nn.relu(h @ W + b)
        h = h + activation if h is not X and h.shape == activation.shape else activation
    W, b = layers[-1]
    return h @ W + b


def scale_layers(params, sizes, output_scale):
    """Turn standard normal variables into weights and biases.

    Parameters
    ----------
    params : dict
        ``z_l`` of shape (fan_in + 1, fan_out), whose last row holds the
        biases, and ``lambda_l`` for every layer l.
    sizes : list of int
        Widths of all layers, the inputs and the two outputs included.
    output_scale : float
        Factor on the weights and biases of the last layer.

    Returns
    -------
    list of tuple
        ``(weights, biases)`` of each layer.
    """
    layers = []
    for i, fan_in in enumerate(sizes[:-1]):
        theta = params[f"z_{i}"] / jnp.sqrt(params[f"lambda_{i}"] * fan_in / 2)
        if i == len(sizes) - 2:
            theta = output_scale * theta
        layers.append((theta[:-1], theta[-1]))
    return layers


def predict(params, X, args, sizes):
    """Mean and standard deviation of each row, or its class probabilities."""
    outputs = forward(scale_layers(params, sizes, args.output_scale), X)
    if args.dataset in CLASSIFICATION:
        return jax.nn.softmax(outputs)
    sigma = SIGMA_MIN + jax.nn.softplus(outputs[:, 1])
    return jnp.stack([outputs[:, 0], sigma], axis=1)


def model(X, y, args, sizes):
    """Declare the Bayesian MLP, non-centred in the layer precisions."""
    params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"lambda_{i}"] = numpyro.sample(f"lambda_{i}", dist.Gamma(*args.gamma))
        unit_normal = dist.Normal().expand([fan_in + 1, fan_out]).to_event(2)
        params[f"z_{i}"] = numpyro.sample(f"z_{i}", unit_normal)
    if args.dataset in CLASSIFICATION:
        logits = forward(scale_layers(params, sizes, args.output_scale), X)
        likelihood = dist.Categorical(logits=logits)
    else:
        likelihood = dist.Normal(*predict(params, X, args, sizes).T)
    with numpyro.handlers.scale(scale=1 / args.temperature):
        numpyro.sample("y", likelihood, obs=y)


def sample(data, args, sizes):
    """Run NUTS, one chain after the other.

    Returns
    -------
    dict
        Arrays with leading axes (chain, draw): the ``predictions`` for the test rows
        in original units, ``lambda``, ``diverging`` and ``num_steps``.
    """
    kernel = NUTS(
        lambda X, y: model(X, y, args, sizes),
        max_tree_depth=args.max_tree_depth,
        target_accept_prob=TARGET_ACCEPT,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=args.warmup,
        num_samples=args.draws,
        progress_bar=False,
    )
    X_test = jnp.asarray(data["X_test"])
    X_train, y_train = jnp.asarray(data["X_train"]), jnp.asarray(data["y_train"])

    @jax.jit
    def predict_all(params):
        return jax.lax.map(lambda p: predict(p, X_test, args, sizes), params)

    results = []
    for chain in range(args.chains):
        start = time.perf_counter()
        key = jax.random.fold_in(jax.random.PRNGKey(args.seed), chain)
        mcmc.run(key, X_train, y_train, extra_fields=("diverging", "num_steps"))
        params = mcmc.get_samples()
        extra = mcmc.get_extra_fields()
        predictions = np.asarray(predict_all(params), dtype=np.float64)
        if args.dataset not in CLASSIFICATION:
            predictions = predictions * data["scale"] + [data["center"], 0.0]
        lambdas = [params[f"lambda_{i}"] for i in range(len(sizes) - 1)]
        results.append(
            {
                "predictions": predictions,
                "lambda": np.stack(lambdas, axis=1).astype(np.float64),
                "diverging": np.asarray(extra["diverging"]),
                "num_steps": np.asarray(extra["num_steps"]),
            }
        )
        print(
            f"chain {chain}: {time.perf_counter() - start:.0f} s, "
            f"{extra['num_steps'].mean():.0f} leapfrog steps per draw, "
            f"{extra['diverging'].sum()} divergences, log density "
            f"{log_density(predictions, data['y_test'], args.dataset):.4f}",
            flush=True,
        )
    return {name: np.stack([r[name] for r in results]) for name in results[0]}


def round_significant(values, digits=4):
    """Round an array to significant digits, as a list."""
    return [float(f"{v:.{digits}g}") for v in values]


def convergence(draws, dataset):
    """Summarise split R-hat and effective sample size of each quantity."""
    predictions = draws["predictions"]
    quantities = {"lambda": draws["lambda"]}
    if dataset in CLASSIFICATION:
        quantities["probability"] = predictions[..., 1]
        # Where a class is all but certain the probability has a heavy tail.
        quantities["logit"] = np.log(predictions[..., 1] / predictions[..., 0])
    else:
        quantities["mean"], quantities["sigma"] = np.moveaxis(predictions, -1, 0)
    rhat, ess = {}, {}
    for name, values in quantities.items():
        r, n = split_gelman_rubin(values), effective_sample_size(values)
        rhat[name] = {
            "median": round(float(np.median(r)), 4),
            "max": round(float(np.max(r)), 4),
        }
        ess[name] = {"median": round(float(np.median(n))), "min": round(float(n.min()))}
    return rhat, ess


def pooled(chains):
    """Draws of several chains in one row."""
    return chains.reshape(-1, *chains.shape[2:])


def reference_of(predictions, y, settings):
    """Summarise draws as a file does."""
    return {
        "recipe": {"settings": settings},
        **summarise(predictions, settings["dataset"]),
        "log_density": log_density(predictions, y, settings["dataset"]),
    }


def half_agreement(predictions, y, settings):
    """Compare the second half of the chains with the first."""
    half = len(predictions) // 2
    first = reference_of(pooled(predictions[:half]), y, settings)
    found = agreement(pooled(predictions[half:]), y, first)
    return {name: round(value, 5) for name, value in found.items()}


def subset_agreement(predictions, y, settings, size=100, n_repeats=200):
    """Quantiles of the agreement of a few independent draws with all of them."""
    predictions = pooled(predictions)
    reference = reference_of(predictions, y, settings)
    rng = np.random.default_rng(0)
    found = [
        agreement(predictions[rng.choice(len(predictions), size)], y, reference)
        for _ in range(n_repeats)
    ]
    return {
        name: round_significant(
            np.quantile([f[name] for f in found], [0.05, 0.5, 0.95])
        )
        for name in found[0]
    }


def write(result, path):
    """Write JSON with one line per entry."""
    lines = [f"{json.dumps(name)}: {json.dumps(x)}" for name, x in result.items()]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    """Sample, summarise and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=LOADERS, default="diabetes")
    parser.add_argument("--rows", type=int, default=400, help="for training")
    parser.add_argument("--hidden", type=int, nargs="+", default=[10])
    parser.add_argument(
        "--gamma", type=float, nargs=2, default=[10.0, 10.0], metavar=("SHAPE", "RATE")
    )
    parser.add_argument("--output-scale", type=float, default=1.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--max-tree-depth", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.chains < 2:
        parser.error("--chains must be at least 2, to compare halves")

    numpyro.enable_x64()
    data = load_data(args.dataset, args.rows)
    sizes = [data["X_train"].shape[1], *args.hidden, 2]
    start = time.perf_counter()
    draws = sample(data, args, sizes)
    seconds = time.perf_counter() - start

    predictions, y_test = draws["predictions"], data["y_test"]
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    summary = reference_of(pooled(predictions), y_test, settings)
    del summary["recipe"]
    rhat, ess = convergence(draws, args.dataset)
    result = {
        "recipe": {
            "text": "NUTS posterior of a Bayesian MLP, by make_nuts_reference.py",
            "settings": {
                **settings,
                "target_accept": TARGET_ACCEPT,
                "dtype": "float64",
            },
            "versions": {
                "python": platform.python_version(),
                **{
                    name: version(name)
                    for name in ("numpyro", "jax", "jaxlib", "numpy", "scikit-learn")
                },
            },
            "run_time_seconds": round(seconds),
            "units": "those of the target, or probabilities of class 1 and nats; rows "
            "in the order of X_test of nuts_summaries.split",
        },
        **{
            name: round(value, 4) if name == "log_density" else round_significant(value)
            for name, value in summary.items()
        },
        "lambda_mean": round_significant(draws["lambda"].mean(axis=(0, 1))),
        "lambda_std": round_significant(draws["lambda"].std(axis=(0, 1))),
        "rhat": rhat,
        "ess": ess,
        "half_agreement": half_agreement(predictions, y_test, settings),
        "subset_of_100": subset_agreement(predictions, y_test, settings),
        "divergences": int(draws["diverging"].sum()),
        "mean_leapfrog_steps": round(float(draws["num_steps"].mean()), 1),
    }
    write(result, args.out)
    shown = {k: v for k, v in result.items() if np.size(v) < 10 and k != "recipe"}
    print(json.dumps(shown, indent=1))
    print(f"run time: {seconds:.0f} s")


if __name__ == "__main__":
    main()
