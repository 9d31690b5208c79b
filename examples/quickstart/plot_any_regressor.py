"""
Intervals for any regressor
===========================

Most regressors predict a number and say nothing about its error, so there is nothing
to explain. :class:`~sklearn_clue.PredictedNoiseRegressor` has a second model learn how
far off the first one is on rows held out from it. This example finds that the intervals
of a boosted regressor follow a noise that is known, and hold the share of new rows that
they promise. Then it asks which change would make a prediction exact.
"""

# %%
# Pumps, drawn at random: the flow depends on speed and valve, and is measured by one of
# two meters. The old meter is bad, and worse the higher the flow.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

from sklearn_clue import CLUEExplainer, PredictedNoiseRegressor

rng = np.random.default_rng(0)
n_rows = 3000
X = pd.DataFrame(
    {
        "speed": rng.uniform(500, 3000, n_rows).round(),
        "valve": rng.uniform(0, 1, n_rows).round(2),
        "meter": pd.Categorical(rng.choice(["new", "old"], n_rows, p=[0.7, 0.3])),
    }
)


def true_flow(X):
    return X["speed"] * (0.02 + 0.04 * X["valve"] ** 2)


def true_noise(X):
    return np.where(X["meter"] == "old", 1 + 0.15 * true_flow(X), 1.0)


y = true_flow(X) + true_noise(X) * rng.normal(size=n_rows)
X_train, X_test, y_train, y_test = X[:2000], X[2000:], y[:2000], y[2000:]

# %%
# Boosting predicts the mean, and a second boosting its noise. Both take the category as
# it is.

boosting = HistGradientBoostingRegressor(
    max_leaf_nodes=8, categorical_features="from_dtype", random_state=0
)
model = PredictedNoiseRegressor(boosting).fit(X_train, y_train)
mean, noise = model.predict(X_test, return_std=True)
correlation = np.corrcoef(noise, true_noise(X_test))[0, 1]
print(f"correlation with the true noise: {correlation:.2f}")
for coverage in (0.5, 0.8, 0.9):
    low, high = model.predict_interval(X_test, coverage=coverage).T
    held = np.mean((low <= y_test) & (y_test <= high))
    print(f"intervals of {coverage:.0%} hold {held:.0%} of {len(X_test)} new rows")

# %%
# One width for all rows would hold as many, and be wrong about both meters.

held_out = cross_val_predict(boosting, X_train, y_train)
half = np.quantile(np.abs(y_train - held_out), 0.9)
low, high = model.predict_interval(X_test, coverage=0.9).T
for meter in ("new", "old"):
    there = (X_test["meter"] == meter).to_numpy()
    inside = ((low <= y_test) & (y_test <= high))[there].mean()
    same = (np.abs(y_test - mean) <= half)[there].mean()
    print(f"{meter} meter: {inside:.0%} inside, with one width for all {same:.0%}")

# %%
# What would make a prediction exact? The explainer fits the same two models. The rows
# are the first ones that it rejects.

clue = CLUEExplainer(PredictedNoiseRegressor(boosting)).fit(X_train, y_train)
unsure = clue.rejects(X_test)
explanation = clue.explain(X_test[unsure])
print(f"rejected: {unsure.sum()} of {len(X_test)} rows")
print(f"made sure: {explanation.is_sure.sum()}")
print(explanation[:4].summary())

# %%
# Valve and speed are what the pump does. If they are to stay, only the meter is left:

clue.set_params(immutable_features=["speed", "valve"])
fixed = clue.explain(X_test[unsure])
print(f"made sure: {fixed.is_sure.sum()} of {len(fixed)}")
print(fixed[:4].summary())

# %%
# Intervals along the speed, for a valve that is half open.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
speed = np.linspace(500, 3000, 101).round()
for ax, meter in zip(axes, ("new", "old"), strict=True):
    line = pd.DataFrame({"speed": speed, "valve": 0.5})
    line["meter"] = pd.Categorical([meter] * len(line), categories=["new", "old"])
    low, high = model.predict_interval(line, coverage=0.9).T
    ax.fill_between(speed, low, high, color="#56b4e9", alpha=0.5, label="predicted")
    for sign in (-1, 1):
        edge = true_flow(line) + sign * 1.645 * true_noise(line)
        ax.plot(speed, edge, "k--", label="in truth" if sign > 0 else None)
    ax.plot(speed, model.predict(line), color="#0072b2")
    ax.set(title=f"{meter} meter", xlabel="speed", xlim=(500, 3000))
axes[0].set_ylabel("flow, with intervals of 90 %")
axes[0].legend(loc="upper left")
path = Path("out") / "any_regressor.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, dpi=110)
print(f"picture: {path}")
plt.show()

# %%
# Dashed: where nine of ten measurements lie in truth. With the old meter the predicted
# interval widens as it should. With the new one it is too wide: a small noise beside a
# large one is overestimated, because the second model learns from all errors, and
# because boosting's own errors count as noise as well.
#
# The nearest sure row turns the valve and the speed down a little, to where even the
# old meter is good enough. With these fixed, the answer is the one a plumber would
# give: another meter.
