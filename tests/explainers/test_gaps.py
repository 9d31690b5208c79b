"""Explanations of rows with gaps, unknown categories and rare values."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from sklearn_clue import (
    CLUEExplainer,
    LocalSensitivityExplainer,
    TabularEncoder,
    UFIDOExplainer,
)
from sklearn_clue._modules import ValidRows
from tests.explainers.conftest import classifier, vae, vaeac


def _table(n_rows=200):
    """Gaps in a number and a category, and a long column of towns."""
    rng = np.random.default_rng(0)
    towns = np.append([f"town {i}" for i in range(4)], "village")
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows).astype(float),
            "income": rng.normal(50, 15, n_rows).round(1),
            "job": rng.choice(["clerk", "cook", "coach"], n_rows),
            "town": rng.choice(towns, n_rows, p=[0.24] * 4 + [0.04]),
        }
    )
    y = (X["income"] + 12 * (X["job"] == "cook") > 54).to_numpy()
    X.loc[rng.random(n_rows) < 0.3, "age"] = np.nan
    X["job"] = X["job"].where(rng.random(n_rows) > 0.2, np.nan)
    return X, y


X, Y = _table()
ENCODER = TabularEncoder(min_frequency=0.1)
METHODS = {
    "CLUE": lambda model: CLUEExplainer(
        model, vae(), distance_weight=0.1, random_state=0
    ),
    "U-FIDO": lambda model: UFIDOExplainer(
        model, vaeac(), mask_weight=0.001, max_iter=20, random_state=0
    ),
    "sensitivity": lambda model: LocalSensitivityExplainer(
        model, step_size=5.0, random_state=0
    ),
}


@pytest.fixture(scope="module")
def model():
    return classifier(encoder=ENCODER).fit(X, Y)


@pytest.fixture(scope="module", params=METHODS)
def explainer(request, model):
    return METHODS[request.param](FrozenEstimator(model)).fit(X)


def test_gaps_stay_and_none_is_made(explainer):
    explanation = explainer.explain(X[:40])
    cf = explanation.counterfactuals
    assert_array_equal(cf.isna(), X[:40].isna())
    assert (cf != X[:40])[X[:40].notna()].to_numpy().any()  # something did change
    assert_array_equal(cf["income"], cf["income"].round(1))
    assert get_tags(explainer).input_tags.allow_nan
    # What is told is about the rows that the user gets.
    after = explainer.predict_uncertainty(cf).total
    np.testing.assert_allclose(after, explanation.uncertainty_after.total)
    json.dumps(explanation.to_dict(), allow_nan=False)
    assert "<table" in explanation._repr_html_()


def test_rare_values_are_never_proposed(explainer):
    assert explainer._space.schema.column("town").pooled == ("village",)
    cf = explainer.explain(X[:60]).counterfactuals
    assert (X["town"][:60] == "village").any()
    was_rare = X["town"][:60] == "village"
    assert not ((cf["town"] == "village") & ~was_rare).any()


def test_what_a_model_cannot_know_comes_back(explainer):
    strange = X[:5].assign(town="nowhere").reset_index(drop=True)
    strange.loc[2, "income"] = np.nan
    with pytest.warns(UserWarning, match="'nowhere'.*complete.*'income'") as caught:
        cf = explainer.explain(strange).counterfactuals
    assert len([w for w in caught if "nowhere" in str(w.message)]) == 1
    assert (cf["town"] == "nowhere").all()
    assert_array_equal(cf.isna(), strange.isna())
    with pytest.warns(UserWarning, match="'nowhere'") as caught:
        explainer.rejects(strange)
    assert len(caught) == 1


def test_gaps_of_polars_are_those_of_pandas(explainer):
    own = pl.DataFrame(
        {name: [None if pd.isna(v) else v for v in X[name]] for name in X}
    )
    for rows in (own[:6], X[:6].convert_dtypes(dtype_backend="numpy_nullable")):
        cf = explainer.explain(rows).counterfactuals
        assert type(cf) is type(rows)
        expected = explainer.explain(X[:6]).counterfactuals
        cells = np.asarray(cf, dtype=object)
        is_gap = expected.isna().to_numpy()
        assert_array_equal(pd.isna(cells), is_gap)
        assert_array_equal(cells[~is_gap], expected.to_numpy(dtype=object)[~is_gap])


def test_limits_of_rows_with_gaps(explainer):
    space = explainer._space
    age, _, job, town = space.schema
    is_rare, no_age, no_job = X["town"] == "village", X["age"].isna(), X["job"].isna()
    kinds = (no_age & ~no_job & ~is_rare, no_job & ~no_age & ~is_rare, is_rare)
    rows = X.iloc[[np.flatnonzero(kind)[0] for kind in kinds]]
    x0 = space.encode(rows)
    blanks = space.blanks(rows, x0)
    assert_array_equal(blanks, rows.isna())
    low, high = space.limits(rows, x0)
    assert_array_equal(low[0, age.block], [0, 1])  # a missing age stays
    assert_array_equal(high[0, age.block], [0, 1])
    assert_array_equal(low[1, job.block], x0[1, job.block])
    assert_array_equal(high[1, job.block], x0[1, job.block])
    assert_array_equal(high[:, town.span[1] - 1], [0, 0, np.inf])
    assert_array_equal(high[1:2, age.gap_position], 0)

    # With leave to fill in, gaps are open, and still none is made.
    low, high = space.constrained(None, None, fill_missing=True).limits(rows, x0)
    assert all((low[:, block] == -np.inf).all() for block in space.schema.blocks)
    assert_array_equal(high[:2, age.gap_position], [np.inf, 0])
    assert_array_equal(high[:2, job.gap_position], [0, np.inf])
    # A row that is filled in costs a changed category, or 1 and the way to the mean.
    valid, filled = ValidRows(space.schema), torch.as_tensor(x0).clone()
    filled[0, age.block] = torch.tensor([0.7, 0.2])
    filled[1, job.block] = torch.tensor([0.0, 0.9, 0.1, 0.2])
    filled = valid(filled, torch.as_tensor(low), torch.as_tensor(high)).numpy()
    decoded = space.decode(filled, rows, x0)
    assert decoded["age"].iloc[0] > X["age"].mean()
    assert decoded["job"].iloc[1] == "coach"  # between clerk and cook
    distance = np.abs(filled - x0).sum(1)
    assert distance[1] == 2 and 1.6 < distance[0] < 1.8
    assert decoded["town"].iloc[2] == "village"


def test_ranges_of_columns_with_gaps(model):
    explainer = METHODS["sensitivity"](FrozenEstimator(model))
    explainer.set_params(feature_ranges={"age": "increase", "income": (40, 60)})
    rows = X[:30]
    cf = explainer.fit(X).explain(rows).counterfactuals
    there = rows["age"].notna()
    assert_array_equal(cf["age"].isna(), ~there)
    assert (cf["age"] >= rows["age"])[there].all()
    assert cf["income"].between(40, 60).all()


def test_gaps_that_a_step_fills_in_stay_as_well():
    numbers = X[["age", "income"]]
    model = make_pipeline(SimpleImputer(), classifier())
    explainer = METHODS["sensitivity"](model).fit(numbers, Y)
    cf = explainer.explain(numbers[:20]).counterfactuals
    assert_array_equal(cf.isna(), numbers[:20].isna())
    assert (cf["income"] != numbers["income"][:20]).any()


def test_gaps_stay_where_steps_mix_columns():
    numbers = X[["age", "income"]]
    model = make_pipeline(SimpleImputer(), PCA(), classifier())
    explainer = METHODS["sensitivity"](model).fit(numbers, Y)
    cf = explainer.explain(numbers[:20]).counterfactuals
    assert_array_equal(cf.isna(), numbers[:20].isna())
    assert (cf["income"] != numbers["income"][:20]).any()
