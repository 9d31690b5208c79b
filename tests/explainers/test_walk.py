"""The walk of a row through an explainer, as doc/developers.rst tells it."""

from sklearn_clue import CLUEExplainer, TabularEncoder, _tables
from tests.explainers.conftest import classifier, vae


def test_rows_are_checked_once_and_encoded_twice(table, monkeypatch):
    """The walk of doc/developers.rst: once on the way in, once to judge the answer."""
    X, y, _ = table
    explainer = CLUEExplainer(classifier(), vae(), random_state=0).fit(X, y)
    calls = []

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*args, **params):
            calls.append(name)
            return original(*args, **params)

        monkeypatch.setattr(owner, name, counted)

    count(_tables, "check_rows")
    count(TabularEncoder, "_encode")
    count(TabularEncoder, "_decode")
    explainer.explain(X[:9])
    assert calls == ["check_rows", "_encode", "_decode", "_encode"]
    calls.clear()
    explainer.rejects(X)
    assert calls == ["check_rows", "_encode"]
    # Both ends of all ranges at once, however many there are.
    ranges = {"age": (20, 60), "income": (0.0, 90.0)}
    calls.clear()
    explainer.set_params(feature_ranges=ranges).explain(X[:9])
    assert calls.count("_encode") == 4
