"""
A latent space of MNIST
=======================

A default :class:`~sklearn_clue.VAEEncoder` with ``image_shape=(28, 28)`` learns 20
latents of handwritten digits: rebuilt digits keep their shape, and many draws from the
model are digits as well.

The paper trains on all 60 000 images (Appendix B.3). To be quick, this script uses the
first ``N_IMAGES``; set it to 60 000 for the full size.
:func:`~sklearn_clue.datasets.fetch_mnist` downloads the data once, unless the folder
that ``SKLEARN_CLUE_DATA`` names has them.
"""

# %%
# Data
# ----
# Grey values from 0 to 255 are taken as they are: integers are divided by 255.

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np

from sklearn_clue import VAEEncoder
from sklearn_clue.datasets import fetch_mnist

N_IMAGES = 6_000

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, default=N_IMAGES)
parser.add_argument("--max-iter", type=int, default=None)
parser.add_argument("--save", help="write the picture here instead of showing it")
args, _ = parser.parse_known_args()

X, X_test, _, _ = fetch_mnist(paper_split=True, return_X_y=True)
X = X[: args.images]

# %%
# Training
# --------

start = time.perf_counter()
vae = VAEEncoder(
    20,
    image_shape=(28, 28),
    max_iter=args.max_iter or "auto",
    random_state=0,
    verbose=2,
).fit(X)
print(
    f"{len(X)} images, {vae.n_iter_} epochs, {time.perf_counter() - start:.0f} s, "
    f"validation bound {vae.history_[vae.best_iter_ - 1]['valid_bound']:.1f} nats, "
    f"{vae.active_units_.sum()} latents in use, held-out log-likelihood "
    f"{vae.score(X_test[:500]):.1f} nats per image"
)

# %%
# Rebuilt and drawn digits
# ------------------------


def mosaic(images, n_columns=16):
    rows = images.reshape(-1, n_columns, 28, 28)
    return np.concatenate([np.concatenate(list(row), axis=1) for row in rows])


pairs = np.stack([X_test[:48], vae.reconstruct(X_test[:48])], axis=1)
pairs = pairs.reshape(3, 16, 2, 784).swapaxes(1, 2).reshape(-1, 784)
figure, axes = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
for ax, images, title in (
    (axes[0], pairs, "Test digits, each above the rebuilt one"),
    (axes[1], vae.sample(96, random_state=0), "Draws from the model"),
):
    ax.imshow(mosaic(images), cmap="gray", vmin=0, vmax=255)
    ax.set_title(title)
    ax.set_axis_off()
if args.save:
    figure.savefig(args.save, dpi=100)
else:
    plt.show()

# %%
# Rebuilt digits are smoother than the originals and of the same class; their slant and
# stroke survive. Draws from the prior are digits for the most part, with some in
# between two classes: the latents of real digits leave gaps, see
# :class:`~sklearn_clue.generative.TwoLevelVAEAC`.
