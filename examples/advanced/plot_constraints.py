"""
Explanations that respect what cannot change
============================================

An explanation that makes a patient younger is of no use to anyone. This example keeps
age and sex as they are, lets the body mass index only fall and the blood pressure stay
in a range. It finds that every explanation obeys, to the last bit, and measures the
price: little, unless hardly anything may move.
"""

# %%
# Diabetes patients, and a score of how their disease went on for a year. The table is
# the unscaled one, with sex as a category.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sklearn_clue import BayesianMLPRegressor, CLUEExplainer, VAEEncoder

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1.0: "one", 2.0: "two"}).astype("category")
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
clue = CLUEExplainer(
    BayesianMLPRegressor((200,)),
    VAEEncoder(6, (50, 50), learning_rate=3e-3),
    distance_weight=0.5,
    random_state=0,
).fit(X_train, y_train)

# %%
# Models do not depend on constraints, so these may be set on the fitted explainer.

constraints = {
    "free": {},
    "age, sex fixed": {"immutable_features": ["age", "sex"]},
    "age, sex fixed, ranges": {
        "immutable_features": ["age", "sex"],
        "feature_ranges": {"bmi": "decrease", "bp": (70, 110)},
    },
    "bmi falls, rest fixed": {
        "immutable_features": [name for name in X if name != "bmi"],
        "feature_ranges": {"bmi": "decrease"},
    },
}
unsure = clue.rejects(X_test) & X_test["bp"].between(70, 110).to_numpy()
patients = X_test[unsure]
explanations = {}
for name, settings in constraints.items():
    clue.set_params(immutable_features=None, feature_ranges=None)
    explanations[name] = clue.set_params(**settings).explain(patients)

# %%
# Do they obey? And what do they cost?

print(f"{len(patients)} patients; of their counterfactuals, how many have")
print(f"{'':24}{'other age or sex':>18}{'higher bmi':>12}{'bp off range':>14}")
for name, explanation in explanations.items():
    found = explanation.counterfactuals
    other = (found["age"] != patients["age"]) | (found["sex"] != patients["sex"])
    higher = found["bmi"] > patients["bmi"]
    off = ~found["bp"].between(70, 110)
    print(f"{name:24}{other.sum():18}{higher.sum():12}{off.sum():14}")

before = explanations["free"].uncertainty_before.total
falls = {name: e.uncertainty_explained for name, e in explanations.items()}
print()
for name, fall in falls.items():
    print(
        f"{name:24} standard deviation {before.mean():.1f} → "
        f"{(before - fall).mean():.1f} points, "
        f"{fall.mean() / falls['free'].mean():4.0%} of the free fall"
    )

# %%
# All patients in boxes, and one of them under each set of constraints.

plt.style.use("tableau-colorblind10")
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
axes[0].boxplot(list(falls.values()), widths=0.6, medianprops={"linewidth": 2})
axes[0].set_xticks(
    range(1, len(falls) + 1), [name.replace(", ", ",\n") for name in falls]
)
axes[0].set_ylabel("fall of the standard deviation (points of progression)")
axes[0].set_title(f"What constraints cost, {len(patients)} patients", loc="left")
row = int(np.argmax(falls["free"]))
for lane, (name, marker) in enumerate(zip(falls, "o^sD", strict=True)):
    changes = explanations[name][row].changes.query("feature != 'sex'")
    shift = changes["percentile_after"] - changes["percentile_before"]
    height = np.arange(len(changes)) + 0.2 * (lane - 1.5)
    axes[1].plot(shift, height, marker, label=name)
axes[1].axvline(0, color="black", linewidth=1, zorder=0)
axes[1].set_yticks(range(len(changes)), changes["feature"])
axes[1].invert_yaxis()
axes[1].set_xlabel("change (percentile points)")
axes[1].set_title(f"One patient (row {patients.index[row]})", loc="left")
axes[1].legend(fontsize="small")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Left: what other measurements can stand in for costs little. With age and sex fixed
# the mean fall is about the same. It may even be larger: the search weighs doubt
# against distance, and may end elsewhere. With a single measurement left to move, most
# of the doubt stays. Right: what may not move lies on the line, and the others move by
# other amounts. That is no advice: the model says what it would be sure about, not what
# would happen to the patient.
