"""
Explain the model you already have
==================================

Few people will refit their model to have its doubts explained, and nobody has to. This
example takes four models as other people left them: scikit-learn's ``MLPClassifier``, a
bagging ensemble of ten of them, a skorch net and a bare torch module. It explains each
without touching a weight, and finds that only the ensemble knows a doubt of the second
kind: one network never disagrees with itself.
"""

# %%
# The models, fitted by somebody else.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier

from sklearn_clue import CLUEExplainer, VAEEncoder
from sklearn_clue.plotting import RejectionCurveDisplay

BLUE, ORANGE = "#0072b2", "#e69f00"  # told apart with any colour vision

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X = X.filter(like="mean").astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, random_state=0, stratify=y
)
mlp = MLPClassifier(
    (50,), alpha=0.1, learning_rate_init=0.01, max_iter=500, random_state=0
)
bagging = BaggingClassifier(mlp, n_estimators=10, random_state=0)
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 2)
)
net = NeuralNetClassifier(
    network,
    criterion=torch.nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=0.01,
    max_epochs=40,
    train_split=None,
    verbose=0,
)
models = {
    name: make_pipeline(StandardScaler(), model).fit(X_train, y_train)
    for name, model in (
        ("MLP", mlp),
        ("10 bagged MLPs", bagging),
        ("skorch net", net),
    )
}

# %%
# Frozen, they go into the explainer as they are, Pipeline and all; ``fit`` then trains
# the generator alone. A torch module is never fitted, so it needs no freezing. It has
# no scaler either, so one becomes its first layer.


class Standardise(torch.nn.Module):
    def __init__(self, scaler):
        super().__init__()
        self.register_buffer("center", torch.as_tensor(scaler.mean_))
        self.register_buffer("scale", torch.as_tensor(scaler.scale_))

    def forward(self, x):
        return ((x - self.center) / self.scale).float()


scaler, net = models["skorch net"].named_steps.values()
module = torch.nn.Sequential(Standardise(scaler), net.module_)
frozen = {name: FrozenEstimator(model) for name, model in models.items()}

# %%
# Four explainers, four generators. Does the model stay as it was?

weights_before = [coef.copy() for coef in models["MLP"][-1].coefs_]
explainers = {}
generator = VAEEncoder(4, (50,), learning_rate=0.01, max_iter=200, random_state=0)
for name, model in (frozen | {"torch module": module}).items():
    explainers[name] = CLUEExplainer(
        model, generator, distance_weight=2.0, random_state=0
    )
    explainers[name].fit(X_train, y_train)
moved = max(
    np.abs(before - after).max()
    for before, after in zip(weights_before, models["MLP"][-1].coefs_, strict=True)
)
print(f"largest change of a weight of the MLP: {moved:g}")

# %%
# The same tumours for all: those that any of them rejects.

unsure = np.any([clue.rejects(X_test) for clue in explainers.values()], axis=0)
lines = {}
for name, clue in explainers.items():
    explanation = clue.explain(X_test[unsure])
    before, after = explanation.uncertainty_before, explanation.uncertainty_after
    lines[name] = {
        "accuracy": np.mean(clue.predict(X_test) == y_test),
        "aleatoric before": before.aleatoric.mean(),
        "epistemic before": before.epistemic.mean(),
        "aleatoric after": after.aleatoric.mean(),
        "epistemic after": after.epistemic.mean(),
    }
table = pd.DataFrame(lines).T
print(f"means over {unsure.sum()} of {len(X_test)} tumours, uncertainty in nats")
print(table.round(3).to_string())

# %%
# Bars of doubt, before and after.

figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
positions = np.arange(len(table))
for side, when in ((-0.2, "before"), (0.2, "after")):
    aleatoric, epistemic = table[f"aleatoric {when}"], table[f"epistemic {when}"]
    faint = {"alpha": 1.0 if when == "before" else 0.55, "width": 0.36}
    axes[0].bar(
        positions + side, aleatoric, color=ORANGE, label=f"aleatoric, {when}", **faint
    )
    axes[0].bar(
        positions + side,
        epistemic,
        bottom=aleatoric,
        color=BLUE,
        label=f"epistemic, {when}",
        **faint,
    )
axes[0].set_xticks(positions, list(table.index))
axes[0].set_ylabel("mean entropy (nats)")
axes[0].set_title("Before and after the change", loc="left")
tallest = table[["aleatoric before", "epistemic before"]].sum(axis=1).max()
axes[0].set_ylim(0, 1.45 * tallest)
axes[0].legend(ncols=2, fontsize="small")
axes[0].spines[["top", "right"]].set_visible(False)
for name in ("MLP", "10 bagged MLPs"):
    RejectionCurveDisplay.from_estimator(
        explainers[name], X_test, y_test, name=name, ax=axes[1]
    )
axes[1].set_title("Do they know where they err?", loc="left")
plt.show()

# %%
# Left: all four are explained, and only the ensemble has an epistemic part. Before the
# change, the bars of the skorch net and of the torch module are equal, as they should
# be: it is one network. Right: whatever the model, its errors are among the rows that
# it is least sure of.
