r"""Reference posterior of a Bayesian MLP on diabetes, sampled with NUTS.

An exact method (the No-U-Turn Sampler on the full data) to compare approximate
samplers with. The result is a small JSON file of predictions for the test rows.

Notes
-----
Data: ``load_diabetes``, ``train_test_split(test_size=0.25, random_state=0)``,
inputs and target standardised with the mean and standard deviation (ddof=0) of
the training rows.

Network: ``h = relu(x W + b)`` for each hidden layer, with a residual connection
``h + relu(h W + b)`` between hidden layers of equal width; two linear outputs
``(mu, raw)``; ``y ~ Normal(mu, 0.01 + softplus(raw))`` in standardised units.

Prior: weights and biases of layer l are
``Normal(0, sqrt(2 / (lambda_l * fan_in_l)))`` with ``lambda_l ~ Gamma(10, rate=10)``,
one ``lambda_l`` per layer, and ``fan_in_l`` the number of inputs of the layer.

Sampler: NUTS in float64, lambda non-centred (unit normal variables are scaled),
diagonal mass matrix, target acceptance 0.8, maximal tree depth 10, chains run
one after the other from independent starts drawn uniformly in (-2, 2) in the
unconstrained space. Chain c uses ``fold_in(PRNGKey(seed), c)``.

Versions: Python 3.11.7, numpyro 0.22.0, jax and jaxlib 0.10.2, numpy 2.4.6,
scikit-learn 1.9.1, on one CPU core.

Examples
--------
The reference of one hidden layer (seed 0, about 5 minutes)::

    python make_nuts_reference.py --hidden 50 --warmup 1000 --draws 2000 \
        --chains 4 --out diabetes_50.json

Two hidden layers (seed 0, about 5 minutes)::

    python make_nuts_reference.py --hidden 50 50 --warmup 400 --draws 400 \
        --chains 4 --out diabetes_50_50.json
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
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

SIGMA_MIN = 0.01
GAMMA_SHAPE = 10.0
GAMMA_RATE = 10.0
MAX_TREE_DEPTH = 10
TARGET_ACCEPT = 0.8


def load_data():
    """Split and standardise the diabetes data.

    Returns
    -------
    dict
        Standardised ``X_train``, ``y_train``, ``X_test``, ``y_test`` and the
        ``y_mean`` and ``y_std`` that map targets back to original units.
    """
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=0
    )
    X_mean, X_std = X_train.mean(axis=0), X_train.std(axis=0)
    y_mean, y_std = y_train.mean(), y_train.std()
    return {
        "X_train": (X_train - X_mean) / X_std,
        "y_train": (y_train - y_mean) / y_std,
        "X_test": (X_test - X_mean) / X_std,
        "y_test": (y_test - y_mean) / y_std,
        "y_mean": y_mean,
        "y_std": y_std,
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
    mu, sigma : array of shape (n,)
        Mean and standard deviation of the target, in standardised units.
    """
    h = X
    for W, b in layers[:-1]:
        activation = jax.nn.relu(h @ W + b)
        h = h + activation if h is not X and h.shape == activation.shape else activation
    W, b = layers[-1]
    out = h @ W + b
    return out[:, 0], SIGMA_MIN + jax.nn.softplus(out[:, 1])


def scale_layers(params, sizes):
    """Turn standard normal variables into weights and biases.

    Parameters
    ----------
    params : dict
        ``z_l`` of shape (fan_in + 1, fan_out), whose last row holds the
        biases, and ``lambda_l`` for every layer l.
    sizes : list of int
        Widths of all layers, the inputs and the two outputs included.

    Returns
    -------
    list of tuple
        ``(weights, biases)`` of each layer.
    """
    layers = []
    for i, fan_in in enumerate(sizes[:-1]):
        theta = params[f"z_{i}"] / jnp.sqrt(params[f"lambda_{i}"] * fan_in / 2)
        layers.append((theta[:-1], theta[-1]))
    return layers


def model(X, y, sizes):
    """Declare the Bayesian MLP, non-centred in the layer precisions."""
    params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"lambda_{i}"] = numpyro.sample(
            f"lambda_{i}", dist.Gamma(GAMMA_SHAPE, GAMMA_RATE)
        )
        unit_normal = dist.Normal().expand([fan_in + 1, fan_out]).to_event(2)
        params[f"z_{i}"] = numpyro.sample(f"z_{i}", unit_normal)
    mu, sigma = forward(scale_layers(params, sizes), X)
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def sample(data, sizes, warmup, draws, chains, seed):
    """Run NUTS, one chain after the other.

    Returns
    -------
    dict
        Arrays with leading axes (chain, draw): ``mu`` and ``sigma`` of the
        test rows, ``lambda``, ``diverging`` and ``num_steps``.
    """
    kernel = NUTS(
        model, max_tree_depth=MAX_TREE_DEPTH, target_accept_prob=TARGET_ACCEPT
    )
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        progress_bar=False,
    )
    X_test = jnp.asarray(data["X_test"])
    X_train, y_train = jnp.asarray(data["X_train"]), jnp.asarray(data["y_train"])

    @jax.jit
    def predict(params):
        return jax.lax.map(lambda p: forward(scale_layers(p, sizes), X_test), params)

    results = []
    for chain in range(chains):
        start = time.perf_counter()
        key = jax.random.fold_in(jax.random.PRNGKey(seed), chain)
        mcmc.run(key, X_train, y_train, sizes, extra_fields=("diverging", "num_steps"))
        params = mcmc.get_samples()
        extra = mcmc.get_extra_fields()
        mu, sigma = predict(params)
        lambdas = [params[f"lambda_{i}"] for i in range(len(sizes) - 1)]
        results.append(
            {
                "mu": np.asarray(mu, dtype=np.float64),
                "sigma": np.asarray(sigma, dtype=np.float64),
                "lambda": np.stack(lambdas, axis=1).astype(np.float64),
                "diverging": np.asarray(extra["diverging"]),
                "num_steps": np.asarray(extra["num_steps"]),
            }
        )
        print(
            f"chain {chain}: {time.perf_counter() - start:.0f} s, "
            f"{extra['num_steps'].mean():.0f} leapfrog steps per draw, "
            f"{extra['diverging'].sum()} divergences",
            flush=True,
        )
    return {name: np.stack([r[name] for r in results]) for name in results[0]}


def round_significant(values, digits=4):
    """Round a number or an array to significant digits, as a list."""
    return [float(f"{v:.{digits}g}") for v in np.atleast_1d(values)]


def predictive_moments(mu, sigma):
    """Mean, aleatoric, epistemic and total standard deviation per test row.

    Parameters
    ----------
    mu, sigma : array of shape (n_chains, n_draws, n_rows)
        Mean and standard deviation of the target for each posterior draw.

    Returns
    -------
    mean, aleatoric, epistemic, total : array of shape (n_rows,)
        ``total ** 2 == aleatoric ** 2 + epistemic ** 2``.
    """
    aleatoric = np.sqrt(np.mean(sigma**2, axis=(0, 1)))
    epistemic = np.std(mu, axis=(0, 1))
    return mu.mean(axis=(0, 1)), aleatoric, epistemic, np.hypot(aleatoric, epistemic)


def convergence(draws):
    """Summarise split R-hat and effective sample size of each quantity."""
    rhat, ess = {}, {}
    for name in ("mu", "sigma", "lambda"):
        r = split_gelman_rubin(draws[name])
        n = effective_sample_size(draws[name])
        rhat[name] = {
            "median": round(float(np.median(r)), 4),
            "max": round(float(np.max(r)), 4),
        }
        ess[name] = {"median": round(float(np.median(n))), "min": round(float(n.min()))}
    return rhat, ess


def half_agreement(draws):
    """Compare predictions of the first and the second half of the chains."""
    half = len(draws["mu"]) // 2
    first = predictive_moments(draws["mu"][:half], draws["sigma"][:half])
    second = predictive_moments(draws["mu"][half:], draws["sigma"][half:])
    result = {}
    names = ("mean", "aleatoric_std", "epistemic_std", "total_std")
    for name, a, b in zip(names, first, second, strict=True):
        result[name] = {"correlation": round(float(np.corrcoef(a, b)[0, 1]), 5)}
        if name != "mean":
            result[name]["mean_ratio"] = round(float(np.mean(a / b)), 4)
    difference = np.abs(first[0] - second[0]) / first[3]
    result["mean"]["max_difference_over_total_std"] = round(float(difference.max()), 4)
    return result


def main():
    """Sample, summarise and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, nargs="+", default=[50])
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="diabetes_50.json")
    args = parser.parse_args()
    if args.chains < 2:
        parser.error("--chains must be at least 2, to compare halves")

    numpyro.enable_x64()
    data = load_data()
    sizes = [data["X_train"].shape[1], *args.hidden, 2]
    start = time.perf_counter()
    draws = sample(data, sizes, args.warmup, args.draws, args.chains, args.seed)
    seconds = time.perf_counter() - start

    # Back to the original target units.
    mu = data["y_mean"] + data["y_std"] * draws["mu"]
    sigma = data["y_std"] * draws["sigma"]
    y_test = data["y_mean"] + data["y_std"] * data["y_test"]
    mean, aleatoric, epistemic, total = predictive_moments(mu, sigma)
    log_density = logsumexp(norm.logpdf(y_test, mu, sigma), axis=(0, 1)) - np.log(
        args.chains * args.draws
    )
    rhat, ess = convergence(draws)

    result = {
        "recipe": {
            "text": (
                "NUTS posterior of a Bayesian MLP on load_diabetes, "
                "train_test_split(test_size=0.25, random_state=0), inputs and target "
                "standardised on the training rows; relu hidden layers (residual "
                "between equal widths), outputs (mu, raw), "
                "y ~ Normal(mu, 0.01 + softplus(raw)); weights and biases of layer l "
                "~ Normal(0, sqrt(2 / (lambda_l * fan_in_l))), "
                "lambda_l ~ Gamma(10, rate=10). Written by make_nuts_reference.py."
            ),
            "settings": {
                "hidden_layer_sizes": args.hidden,
                "warmup": args.warmup,
                "draws": args.draws,
                "chains": args.chains,
                "seed": args.seed,
                "max_tree_depth": MAX_TREE_DEPTH,
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
            "units": "original target units; rows in the order of X_test",
        },
        "mean": round_significant(mean),
        "total_std": round_significant(total),
        "aleatoric_std": round_significant(aleatoric),
        "epistemic_std": round_significant(epistemic),
        "lambda_mean": round_significant(draws["lambda"].mean(axis=(0, 1))),
        "lambda_sd": round_significant(draws["lambda"].std(axis=(0, 1))),
        "test_rmse": round_significant(np.sqrt(np.mean((mean - y_test) ** 2)), 5)[0],
        "test_log_likelihood": round_significant(log_density.mean(), 5)[0],
        "rhat": rhat,
        "ess": ess,
        "half_agreement": half_agreement(draws),
        "divergences": int(draws["diverging"].sum()),
        "mean_leapfrog_steps": round(float(draws["num_steps"].mean()), 1),
    }
    with open(args.out, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    shown = {k: v for k, v in result.items() if np.size(v) < 10 and k != "recipe"}
    print(json.dumps(shown, indent=1))
    print(f"run time: {seconds:.0f} s")


if __name__ == "__main__":
    main()
