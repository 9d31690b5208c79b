"""
Why plain sensitivity looks like noise
======================================

The gradient of the uncertainty by the pixels says which of them matter, one by one and
for tiny steps. The paper finds that on images the result is noise. This example repeats
that on small digits, and finds that steps along the gradient can lower the entropy
about as much as CLUE does, and that their results are further from real digits than
before, while those of CLUE are nearer.
"""

# %%
# The ten digits about which a Bayesian classifier is least sure.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPClassifier, CLUEExplainer, VAEEncoder
from sklearn_clue.evaluation import nearest_neighbor_distance
from sklearn_clue.providers import as_provider

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, random_state=0, stratify=y
)
classifier = BayesianMLPClassifier((100,), encoder="passthrough", random_state=0)
classifier.fit(X_train, y_train)
entropy = classifier.predict_uncertainty(X_test).total
rows = X_test[np.argsort(-entropy)[:10]]

clue = CLUEExplainer(
    FrozenEstimator(classifier),
    VAEEncoder(8, image_shape=(8, 8), learning_rate=3e-3, max_iter=60, random_state=0),
    distance_weight=10.0,
    n_explanations=10,
    init_noise=0.5,
    random_state=0,
).fit(X_train, y_train)
by_clue = clue.explain(rows).counterfactuals

# %%
# A provider is the differentiable face of a model: tensors in, uncertainty out. One
# backward pass gives the sensitivity of each pixel. The sum over rows is no mixture:
# each row has a gradient of its own.

provider = as_provider(classifier)
x = torch.tensor(rows, requires_grad=True)
parts, _ = provider.uncertainty(x)
(gradient,) = torch.autograd.grad(parts.total.sum(), x)
gradient = gradient.numpy()

# %%
# Step against the gradient, within the range of pixels, until each digit is as sure as
# CLUE made it, or as sure as the best step of a hundred gets.

target = classifier.predict_uncertainty(by_clue).total
by_gradient, found = rows.copy(), np.full(len(rows), np.inf)
for step in np.geomspace(0.01, 100, 100):
    stepped = np.clip(rows - step * gradient, 0, 1)
    reached = classifier.predict_uncertainty(stepped).total
    # The first step that is good enough stays.
    is_better = (reached < found) & (found > target)
    by_gradient[is_better], found[is_better] = stepped[is_better], reached[is_better]

print(f"{'':10}{'entropy (nats)':>15}{'l1 change':>11}{'distance to real digits':>25}")
for name, images in {
    "original": rows,
    "gradient": by_gradient,
    "CLUE": by_clue,
}.items():
    print(
        f"{name:10}{classifier.predict_uncertainty(images).total.mean():15.2f}"
        f"{np.abs(images - rows).sum(1).mean():11.1f}"
        f"{nearest_neighbor_distance(images, X_train).mean():25.2f}"
    )

# %%
# Five of the digits.

figure, axes = plt.subplots(5, 5, figsize=(8, 8), layout="constrained")
columns = {
    "original": rows,
    "after gradient": by_gradient,
    "change": by_gradient - rows,
    "after CLUE": by_clue,
    "change ": by_clue - rows,
}
for line, (title, images) in zip(axes.T, columns.items(), strict=True):
    for ax, image in zip(line, images, strict=False):
        is_change = title.startswith("change")
        style = (
            {"cmap": "PuOr", "vmin": -1, "vmax": 1}
            if is_change
            else {"cmap": "gray", "vmin": 0, "vmax": 1}
        )
        shown = ax.imshow(image.reshape(8, 8), **style)
        ax.set(xticks=[], yticks=[])
        if is_change:
            bar = shown
    line[0].set_title(title)
figure.colorbar(
    bar,
    ax=axes,
    location="bottom",
    shrink=0.5,
    label="change of ink per pixel (full range: 1)",
)
plt.show()

# %%
# Left of the middle, specks all over the image that no pen would make; right of it, a
# stroke that comes or goes. Both make the model sure. Only one says why it was not.
