"""
What drives the doubts
======================

One explanation tells what would make the model sure of one row. This example explains
all rows that a classifier of tumours rejects, and asks what they have in common. It
finds that a few measurements carry most of the doubt, and that the rejected rows fall
into groups, each of which a single change would settle.
"""

# %%
# A small ensemble of networks on the means of ten measurements. The fifth of the rows
# that it is least sure about is rejected.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_clue import DeepEnsembleClassifier, GroupExplainer, NeighborExplainer
from sklearn_clue.plotting import DriversDisplay

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[[name for name in X if name.startswith("mean")]]
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, random_state=0, stratify=y
)
model = DeepEnsembleClassifier((20,), n_members=5, max_iter=200, random_state=0)
explainer = NeighborExplainer(model, random_state=0).fit(X_train, y_train)
rejected = X_train[explainer.rejects(X_train)]
explanation = explainer.explain(rejected)
print(f"{len(rejected)} of {len(X_train)} rows are rejected")

# %%
# Contributions say how much of the fall of the uncertainty each change brings. Over all
# rows together they show what drives the doubts.

DriversDisplay.from_explanation(explanation, max_features=8)
plt.show()
print(explanation.drivers().head(4).to_string(index=False))

# %%
# On the left, the share of each measurement in the whole fall; on the right, one dot
# per row, coloured by the value that the row has. The measurements at the top are those
# to look at again, or to measure better. Read them as what settles the doubts of this
# model, not as causes of the disease.

# %%
# Drivers are counted column by column. Groups are about whole changes: a few of them,
# learned from the explanations, of which the best one makes a row sure.

groups = GroupExplainer.from_explanation(
    explainer, explanation, n_groups=4, max_columns=2, random_state=0
)
print(groups.summary())

# %%
# New rows need no search of their own: each gets the best of the common changes. What
# it does not need of it is taken back, and a few other numbers move where it would not
# be plausible otherwise.

new = X_test[explainer.rejects(X_test)]
common = groups.explain(new)
alone = explainer.explain(new)
for name, each in (("common changes", common), ("row by row", alone)):
    print(
        f"{name}: {each.is_sure.mean():.0%} of {len(new)} rows become sure, at a mean "
        f"distance of {each.distance.mean():.2f}; "
        f"{each.is_plausible.mean():.0%} are as plausible as demanded"
    )

# %%
# Four changes settle most of the new rows. The price shows in the last figure: a change
# that is made for many is not plausible for each of them. Where that matters, explain
# row by row.
