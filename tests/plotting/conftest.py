"""Small explanations to draw."""

import numpy as np
import pandas as pd
import pytest

from sklearn_clue import Explanation, TabularEncoder, Uncertainty
from sklearn_clue.schema import ColumnSchema, FeatureSchema


def _figures(n_rows, before=0.6, after=0.2):
    return {
        "uncertainty_before": Uncertainty(
            *np.outer([1, 0.75, 0.25], [before] * n_rows)
        ),
        "uncertainty_after": Uncertainty(*np.outer([1, 0.5, 0.5], [after] * n_rows)),
        "prediction_before": np.array(["yes"] * n_rows),
        "prediction_after": np.array(["no"] * n_rows),
        "distance": np.ones(n_rows),
        "is_classification": True,
    }


@pytest.fixture
def table_explanation():
    """Two rows of a table with a name that looks like a formula, and a long one."""
    train = pd.DataFrame(
        {
            "$x_1$": np.arange(101),
            "charge": ["felony", "misdemeanour"] * 50 + ["felony"],
            "a name that is so long that no axis has room for it": np.arange(101.0),
        }
    )
    X = train.iloc[[10, 20]].set_axis(["first", "second"])
    counterfactuals = X.assign(**{"$x_1$": [60, 25]})
    counterfactuals["charge"] = ["misdemeanour", "felony"]
    return Explanation(
        X=X,
        counterfactuals=counterfactuals,
        schema=TabularEncoder().fit(train).schema_,
        **_figures(2),
    )


@pytest.fixture
def image_explanation():
    """Two images of 3 by 4 pixels; one of them changes."""
    X = np.full((2, 12), 0.5)
    counterfactuals = X.copy()
    counterfactuals[0, :2] = [1.0, 0.25]
    columns = tuple(
        ColumnSchema(
            name=f"x{j}", kind="number", span=(j, j + 1), dtype=np.dtype(float)
        )
        for j in range(12)
    )
    return Explanation(
        X=X,
        counterfactuals=counterfactuals,
        schema=FeatureSchema(columns),
        image_shape=(3, 4),
        **_figures(2),
    )


@pytest.fixture
def sure_explanation():
    """Eight rows that a change of amount, housing or income would make sure."""
    train = pd.DataFrame(
        {
            "amount": np.linspace(500, 10000, 200),
            "housing": ["rent", "own", "free", "own"] * 50,
            "income": np.linspace(1000, 6000, 200),
        }
    )
    X = pd.DataFrame(
        {
            "amount": [8400.0, 9000.0, 5000.0, 7000.0, 6000.0, 5500.0, 5250.0, 900.0],
            "housing": ["rent", "free", "own", "own", "rent", "own", "own", "own"],
            "income": [2500.0, 2500.0, None, *[2500.0] * 5],
        }
    )
    counterfactuals = X.assign(income=[2500.0, 2500.0, 3200.0, *[2500.0] * 5])
    counterfactuals["amount"] = [2100.0, 2100, 5000, 2100, 2100, 2100, 2100, 900]
    counterfactuals["housing"] = ["own", "free", *["own"] * 2, "rent", *["own"] * 3]
    contributions = np.zeros((8, 3))
    contributions[:, 0] = [0.3, 0.4, 0.0, 0.4, 0.4, 0.4, 0.4, 0.0]
    contributions[0, 1], contributions[2, 2] = 0.1, 0.4
    figures = _figures(8) | {
        "uncertainty_before": Uncertainty(*np.outer([1, 0.5, 0.5], [*[0.6] * 7, 0.2])),
        "prediction_before": np.array(["good"] * 8),
        "prediction_after": np.array(["good"] * 8),
    }
    return Explanation(
        X=X,
        counterfactuals=counterfactuals,
        schema=TabularEncoder().fit(train).schema_,
        target=0.25,
        contributions=contributions,
        plausibility=np.linspace(0.3, 0.7, 8),
        plausibility_before=np.full(8, 0.4),
        probabilities_before=np.tile([0.46, 0.54], (8, 1)),
        probabilities_after=np.tile([0.29, 0.71], (8, 1)),
        **figures,
    )
