"""Three tumours, and what would make a classifier sure about them."""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clue import CLUEExplainer, VAEEncoder

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X = X[["mean radius", "mean texture", "mean smoothness"]]
y = y.map({0: "malignant", 1: "benign"})
clue = CLUEExplainer(
    make_pipeline(StandardScaler(), LogisticRegression()),
    VAEEncoder(3, (32,), learning_rate=0.005, max_iter=200),
    random_state=0,
).fit(X[:400], y[:400])
explanation = clue.explain(X[400:][clue.rejects(X[400:])])
explanation[:3].plot()  # as they come
