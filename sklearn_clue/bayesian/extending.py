"""The door for new posteriors over networks; see the recipes of the developers' page.

Like all that developers build on, these names may change between releases.
"""

from sklearn_clue.bayesian._posterior import PosteriorClassifier, PosteriorRegressor

__all__ = ["PosteriorClassifier", "PosteriorRegressor"]
