"""Noise that grows, and a gap in the data: the two parts of uncertainty of numbers."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_clue import BayesianMLPRegressor

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -1, 150), rng.uniform(1, 3, 150)])


def noise(x):
    return 0.15 + 0.06 * (x + 3)


y = np.sin(1.5 * x) + noise(x) * rng.normal(size=len(x))
model = BayesianMLPRegressor((50, 50), random_state=0).fit(x[:, None], y)
grid = np.linspace(-4.5, 4.5, 241)
mean, std = model.predict(grid[:, None], return_std=True)
parts = model.predict_uncertainty(grid[:, None])

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharex=True)
axes[0].fill_between(grid, mean - 2 * std, mean + 2 * std, alpha=0.25, lw=0)
axes[0].plot(grid, mean)
axes[0].scatter(x, y, s=6, c="0.3")
axes[0].set(title="prediction ± 2 standard deviations", xlabel="x", ylabel="y")
axes[0].set_ylim(-3.5, 3.5)
axes[1].plot(grid, parts.aleatoric, label="aleatoric")
axes[1].plot(grid, parts.epistemic, label="epistemic")
inside = grid[abs(grid) <= 3]
axes[1].plot(inside, noise(inside), "--", c="0.3", label="noise of the data")
axes[1].plot(x, np.zeros_like(x), "|", c="0.3", ms=8)
axes[1].set(title="its two parts", xlabel="x", ylabel="standard deviation")
axes[1].set_ylim(0, 0.7)
axes[1].legend()
