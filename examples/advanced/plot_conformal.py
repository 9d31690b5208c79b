"""
Intervals that keep their promise
=================================

A Bayesian interval is as honest as the model behind it, and
:class:`~sklearn_clue.BayesianMLPRegressor` believes in Gaussian noise. This example
gives it noise with one long tail, and finds that its intervals are too wide: they reach
to where nothing is, and cover more than they promise. A few hundred rows set aside
repair that: :meth:`~sklearn_clue.BayesianMLPRegressor.calibrate` makes the intervals
conformal, so that they hold their coverage on average whatever the noise, about as well
on either side. The simplest conformal interval, of one width for all rows, covers
nearly all rows where the noise is small, and too few where it is large.
"""

# %%
# One input, and noise that is skewed and grows from left to right.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_clue import BayesianMLPRegressor

COVERAGE = 0.9
rng = np.random.default_rng(0)


def draw(n_rows):
    X = rng.uniform(0, 10, size=(n_rows, 1))
    noise = rng.standard_exponential(n_rows) - 1
    return X, np.sin(X[:, 0]) + (0.05 + 0.1 * X[:, 0]) * noise


X_train, y_train = draw(600)
X_calibrate, y_calibrate = draw(500)
X_test, y_test = draw(5000)

# %%
# The regressor, and its own intervals: quantiles of the posterior predictive. Noise
# that is next to nothing on the left asks for shorter steps than the default, and more
# of them.

regressor = BayesianMLPRegressor(
    (100,), step_size=0.005, burn_in=400, thinning=60, random_state=0
)
regressor.fit(X_train, y_train)
intervals = {"Bayesian": regressor.predict_interval(X_test, coverage=COVERAGE)}

# %%
# The simplest conformal interval: as far around every prediction as nine of ten errors
# reach on the rows set aside. It needs no idea of uncertainty at all.

errors = np.sort(np.abs(y_calibrate - regressor.predict(X_calibrate)))
rank = int(np.ceil(COVERAGE * (len(errors) + 1))) - 1
mean = regressor.predict(X_test)
intervals["one width"] = np.column_stack([mean - errors[rank], mean + errors[rank]])

# %%
# And ours: the same rows tell at which levels of its own predictive distribution the
# regressor has to cut for the tails to hold what they should.

regressor.calibrate(X_calibrate, y_calibrate)
intervals["calibrated"] = regressor.predict_interval(X_test, coverage=COVERAGE)

# %%
# Coverage of new rows: all of them, and by the third of the axis that they are in.

thirds = np.digitize(X_test[:, 0], [10 / 3, 20 / 3])
print(f"{'':12}{'coverage':>9}{'left':>7}{'middle':>8}{'right':>7}{'mean width':>12}")
for name, (low, high) in ((name, bounds.T) for name, bounds in intervals.items()):
    is_inside = (low <= y_test) & (y_test <= high)
    by_third = [is_inside[thirds == third].mean() for third in range(3)]
    print(
        f"{name:12}{is_inside.mean():9.3f}{{:7.3f}}{{:8.3f}}{{:7.3f}}".format(*by_third)
        + f"{(high - low).mean():12.2f}"
    )

# %%
# And drawn, with every tenth row.

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained"
)
order = np.argsort(X_test[:, 0])
for ax, (name, bounds) in zip(axes, intervals.items(), strict=True):
    ax.plot(X_test[::10, 0], y_test[::10], ".", color="0.45", markersize=3)
    ax.fill_between(
        X_test[order, 0], *bounds[order].T, color="#56b4e9", alpha=0.6, linewidth=0
    )
    ax.plot(X_test[order, 0], mean[order], color="#0072b2")
    is_inside = (bounds[:, 0] <= y_test) & (y_test <= bounds[:, 1])
    ax.set_title(f"{name}: {is_inside.mean():.1%} inside", loc="left", fontsize=10)
    ax.set_xlabel("x")
axes[0].set_ylabel("y")
axes[0].set_ylim(np.quantile(y_test, [0.0005, 0.997]) + [-0.5, 0.5])
plt.show()

# %%
# Left: a Gaussian has two equal sides, so the band reaches down to where nothing is.
# Middle: one width for all rows covers too many of them on the left, where the noise is
# small, and too few on the right. Right: the coverage that was asked for, up to what
# 500 rows can tell (about a hundredth), with the narrowest band of the three.
