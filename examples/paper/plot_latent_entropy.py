"""
Gaps in a latent space, seen by a classifier
============================================

Images that a VAE decodes from between its clusters are no digits. The paper shows it
(Appendix I) by the entropy of a Bayesian classifier over the two latents of a VAE of
MNIST. This example repeats that on small digits, and finds low entropy where one class
has its latents, and ridges of high entropy where classes meet. Draws from the prior of
the VAE fall on these ridges as well, and are less certain than real digits.

From the command line, ``--mnist`` uses MNIST instead, and as many images as
``--images`` says. With 1500 of them the classes are not apart yet, and the finding does
not show.
"""

# %%
# Two latents, so that the picture is the whole latent space.

import argparse

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from sklearn_clue import BayesianMLPClassifier, VAEEncoder
from sklearn_clue.datasets import fetch_mnist

parser = argparse.ArgumentParser()
parser.add_argument("--mnist", action="store_true")
parser.add_argument("--images", type=int, default=6_000, help="of MNIST, to train on")
parser.add_argument("--save", help="write the picture here instead of showing it")
args, _ = parser.parse_known_args()

if args.mnist:
    X_train, X_test, y_train, y_test = fetch_mnist(
        paper_split=True, return_X_y=True, as_frame=False
    )
    X_train, y_train = X_train[: args.images] / 255, y_train[: args.images].astype(int)
    X_test, y_test = X_test[:2000] / 255, y_test[:2000].astype(int)
    shape = (28, 28)
else:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X / 16, y, test_size=0.4, random_state=0, stratify=y
    )
    shape = (8, 8)
classifier = BayesianMLPClassifier((100,), encoder="passthrough", random_state=0)
classifier.fit(X_train, y_train)
vae = VAEEncoder(
    2, image_shape=shape, learning_rate=3e-3, max_iter=60, random_state=0
).fit(X_train)

# %%
# Decode a grid over the latent space, and ask the classifier about each image.

latents = vae.transform(X_test)
reach = 1.1 * np.abs(latents).max(0)
axis_0, axis_1 = (np.linspace(-end, end, 70) for end in reach)
grid = np.stack(np.meshgrid(axis_0, axis_1), axis=-1).reshape(-1, 2)
entropy = classifier.predict_uncertainty(vae.inverse_transform(grid)).total

# %%
# Is it the borders between clusters? For each place of the grid, look at the labels of
# the ten training digits whose latents are nearest.

nearest = NearestNeighbors(n_neighbors=10).fit(vae.transform(X_train))
labels = np.asarray(y_train)[nearest.kneighbors(grid)[1]]
is_pure = (labels == labels[:, :1]).all(1)
draws = vae.sample(1000, random_state=0)
rebuilt = vae.reconstruct(X_test)
means = {
    "grid, neighbours of one class": entropy[is_pure].mean(),
    "grid, neighbours of several": entropy[~is_pure].mean(),
    "test digits": classifier.predict_uncertainty(X_test).total.mean(),
    "test digits, rebuilt": classifier.predict_uncertainty(rebuilt).total.mean(),
    "draws from the prior": classifier.predict_uncertainty(draws).total.mean(),
}
for name, mean in means.items():
    print(f"{name:30} mean entropy {mean:.2f} nats")

# %%
# The map, with the test digits at the places that the encoder gives them.

COLORS = "#0072b2", "#d55e00"  # even and odd, told apart with any colour vision
figure, ax = plt.subplots(figsize=(7.4, 6), layout="constrained")
image = ax.pcolormesh(axis_0, axis_1, entropy.reshape(70, 70), cmap="Greys", vmin=0)
figure.colorbar(image, label="entropy of the decoded image (nats)", shrink=0.8)
for digit in np.unique(y_test):
    # The digits are their own marks, which need no colour to be told apart.
    style = {"linestyle": "none", "marker": f"${digit}$", "markersize": 5}
    style |= {"color": COLORS[digit % 2], "label": str(digit)}
    ax.plot(*latents[y_test == digit].T, **style)
ax.legend(
    title="test digit", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=10,
    columnspacing=0.8, handletextpad=0.1, markerscale=1.5,
)  # fmt: skip
ax.set(xlabel="latent 0", ylabel="latent 1")
if args.save:
    figure.savefig(args.save, dpi=100)
else:
    plt.show()

# %%
# Dark ridges are the borders between clusters: the VAE decodes mixtures of two digits
# there. In the middle several classes share one place, because two latents are too few
# to keep them apart, and rebuilt digits are uncertain as well. CLUE would explain such
# a digit by what the VAE cannot rebuild, so it should have more latents. Samples of a
# one-level model fall on the ridges; see
# :ref:`sphx_glr_auto_examples_paper_plot_two_level_samples.py` for a remedy.
