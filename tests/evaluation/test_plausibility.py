import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from sklearn_clue import LocalSensitivityExplainer
from sklearn_clue.evaluation._plausibility import plausibility
from sklearn_clue.explainers._neighbors import StoredRows


@pytest.fixture(scope="module")
def explainer():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(5, 2, 200), "b": rng.normal(0, 1, 200)})
    y = np.where(X["a"] + rng.normal(size=200) > 5, "yes", "no")
    fitted = LocalSensitivityExplainer(LogisticRegression()).fit(X, y)
    return fitted, X


def test_rows_like_the_data_are_plausible(explainer):
    fitted, X = explainer
    with pytest.raises(ValueError, match="stores no training rows.*n_neighbors"):
        plausibility(fitted, X)
    fitted._stored = StoredRows(fitted._space.encode(X), np.zeros(len(X)))
    rng = np.random.default_rng(1)
    new = pd.DataFrame({"a": rng.normal(5, 2, 200), "b": rng.normal(0, 1, 200)})
    assert 0.4 < plausibility(fitted, new).mean() < 0.6
    odd = pd.DataFrame({"a": [5.0, 50.0], "b": [0.0, 0.0]})
    common, strange = plausibility(fitted, odd)
    assert common > 0.6 and strange == 0
    del fitted._stored
