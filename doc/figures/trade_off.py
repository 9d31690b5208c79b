"""What a smaller weight of the distance brings, and what it costs."""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_clue import CLUEExplainer, VAEEncoder
from sklearn_clue.plotting import TradeOffDisplay

X, y = load_breast_cancer(as_frame=True, return_X_y=True)
X = X[["mean radius", "mean texture", "mean smoothness"]]
clue = CLUEExplainer(
    make_pipeline(StandardScaler(), LogisticRegression()),
    VAEEncoder(3, (32,), learning_rate=0.005, max_iter=200),
    random_state=0,
).fit(X[:400], y[:400])
rows = X[400:][clue.rejects(X[400:])]
weights = [0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 10.0, 30.0]
TradeOffDisplay.from_explanations(clue.explain_path(rows, weights))
