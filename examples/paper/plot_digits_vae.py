"""
A latent space of digits
========================

A :class:`~sklearn_clue.VAEEncoder` with ``image_shape=(8, 8)`` learns latents of the
handwritten digits that come with scikit-learn: rebuilt digits keep their class and
slant, and many draws from the model are digits as well.

The paper trains on the 60 000 images of MNIST (Appendix B.3). The same script does so
with ``--mnist``, in an hour or more on two cores;
:func:`~sklearn_clue.datasets.fetch_mnist` downloads the data once, unless the folder
that ``SKLEARN_CLUE_DATA`` names has them.
"""

# %%
# Integers are taken as they are: those of MNIST go up to 255, and those of scikit-learn
# up to 16, so these are stretched.

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from sklearn_clue import VAEEncoder
from sklearn_clue.datasets import fetch_mnist

parser = argparse.ArgumentParser()
parser.add_argument("--mnist", action="store_true")
parser.add_argument("--images", type=int, default=60_000, help="of MNIST")
args, _ = parser.parse_known_args()

if args.mnist:
    X, X_test, _, _ = fetch_mnist(paper_split=True, return_X_y=True)
    X, side, n_latents = X[: args.images], 28, 20
else:
    images = (load_digits().data * 255 / 16).astype(np.uint8)
    X, X_test = train_test_split(images, test_size=300, random_state=0)
    side, n_latents = 8, 10

# %%
# Training stops by itself when held-out images are not described better any more.

start = time.process_time()
vae = VAEEncoder(n_latents, image_shape=(side, side), random_state=0).fit(X)
print(f"{len(X)} images, {vae.n_iter_} epochs, {time.process_time() - start:.0f} s CPU")
print(f"validation bound {vae.history_[vae.best_iter_ - 1]['valid_bound']:.1f} nats")
print(f"{vae.active_units_.sum()} of {n_latents} latents are in use")

# %%
# How well are digits rebuilt? The simplest rival is the mean image, and principal
# components of the same number are a better one.

pca = PCA(n_latents, random_state=0).fit(X)
rivals = {
    "mean image": np.broadcast_to(X.mean(axis=0), X_test.shape),
    f"{n_latents} principal components": pca.inverse_transform(pca.transform(X_test)),
    f"{n_latents} latents": vae.reconstruct(X_test),
}
for name, rebuilt in rivals.items():
    error = np.sqrt(np.square(rebuilt.astype(float) - X_test).mean())
    print(f"{name}: off by {error:.0f} of 255 grey values")

# %%
# Rebuilt and drawn digits.


def mosaic(images, n_columns=16):
    rows = images.reshape(-1, n_columns, side, side)
    return np.concatenate([np.concatenate(list(row), axis=1) for row in rows])


pairs = np.stack([X_test[:48], vae.reconstruct(X_test[:48])], axis=1)
pairs = pairs.reshape(3, 16, 2, -1).swapaxes(1, 2).reshape(96, -1)
figure, axes = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
for ax, images, title in (
    (axes[0], pairs, "Test digits, each above the rebuilt one"),
    (axes[1], vae.sample(96, random_state=0), "Draws from the model"),
):
    ax.imshow(mosaic(images), cmap="gray", vmin=0, vmax=255)
    ax.set_title(title)
    ax.set_axis_off()
plt.show()

# %%
# Rebuilt digits are smoother than the originals. Draws from the prior are digits for
# the most part, with some in between two classes: the latents of real digits leave
# gaps, see :class:`~sklearn_clue.generative.TwoLevelVAEAC`.
