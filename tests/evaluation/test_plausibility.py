import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from sklearn_clue import CLUEExplainer, LocalSensitivityExplainer, NeighborExplainer
from sklearn_clue.evaluation import plausibility


def draw(seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"a": rng.normal(5, 2, 200), "b": rng.normal(0, 1, 200)})


def test_rows_like_the_data_are_plausible():
    X = draw(0)
    explainer = NeighborExplainer(LogisticRegression()).fit(X, X["a"] > 5)
    assert 0.4 < plausibility(explainer, draw(1)).mean() < 0.6
    odd = pd.DataFrame({"a": [5.0, 50.0], "b": [0.0, 0.0]})
    common, strange = plausibility(explainer, odd)
    assert common > 0.6 and strange == 0


def test_an_explainer_without_rows_and_density_cannot_tell():
    X = draw(0)
    for explainer in (
        LocalSensitivityExplainer(LogisticRegression()),
        CLUEExplainer(LogisticRegression(), search="values", n_neighbors=0),
    ):
        explainer.fit(X, X["a"] > 5)
        with pytest.raises(ValueError, match="stores no training rows.*n_neighbors"):
            plausibility(explainer, X)
