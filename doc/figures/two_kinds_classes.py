"""Two classes that overlap, and nothing around: the two parts for classes."""

from sklearn.datasets import make_moons

from sklearn_clue import BayesianMLPClassifier
from sklearn_clue.plotting import UncertaintyMapDisplay

X, y = make_moons(300, noise=0.25, random_state=0)
model = BayesianMLPClassifier((100, 100), random_state=0).fit(X, y)
UncertaintyMapDisplay.from_estimator(model, X, y, margin=0.9)
