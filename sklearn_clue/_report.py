"""One page about a whole model: what it knows, what drives its doubts, and its rows.

Facts come first, as plain values that `Report.to_dict` gives; the page is a rendering
of them.
"""

import html
import importlib
import platform
from collections import Counter
from statistics import NormalDist

import numpy as np
from sklearn.utils import check_consistent_length

from sklearn_clue import _facts, _page, _tables, _words, explainers
from sklearn_clue._validation import check_is_fitted, listing
from sklearn_clue.providers import peel

__all__ = ["Report", "report"]

_MAX_BINS = 10
_ROWS_PER_BIN = 15  # a share of fewer rows says little
_COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_PACKAGES = ("sklearn_clue", "sklearn", "numpy", "pandas", "torch")


class Report:
    """What :func:`report` gathered about a model, ready to be read.

    Parameters
    ----------
    facts : dict
        What :meth:`to_dict` returns.

    explanation : Explanation or None
        What would make the model sure of the rows that it rejects; None if it rejects
        none.

    See Also
    --------
    report : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer, report
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> explainer = NeighborExplainer(LogisticRegression()).fit(X, X[:, 0] > 0)
    >>> page = report(explainer, X[:50])
    >>> len(page.explanation) == page.to_dict()["n_rejected"]
    True
    """

    def __init__(self, facts, explanation):
        self._facts = facts
        self.explanation = explanation

    def __repr__(self):
        quality, n_rows = self._facts["quality"], self._facts["n_rows"]
        known = ""
        if quality:
            known = f", {quality['error_name']} {_words.figure(quality['error'])}"
        return (
            f"<Report on {_words.count(n_rows)}: "
            f"{self._facts['n_rejected']:,} rejected{known}>"
        )

    def _repr_html_(self):
        # In a frame of its own: neither styles nor scripts meet those of a notebook.
        page = html.escape(_page.write(self._facts), quote=True)
        return (
            '<iframe title="Report" sandbox="allow-scripts allow-downloads" '
            'style="width:100%;height:80vh;border:1px solid" '
            f'srcdoc="{page}"></iframe>'
        )

    def to_html(self, path):
        """Write the page, to open in any browser.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write. It needs no network and no other file.

        Returns
        -------
        path : pathlib.Path
            The file written.
        """
        return _page.save(_page.write(self._facts), path)

    def to_dict(self):
        """Give the facts as plain Python values, ready for `json.dumps`.

        Returns
        -------
        facts : dict
            - `title`, `n_rows`, `n_rejected`, `n_explained`, `rejection_rate`,
              `threshold`, `measure`, `unit`, `is_classification`;
            - `quality`: errors, calibration and the rejection curve, or None without
              targets;
            - `parts`: mean aleatoric and epistemic shares, of all and of rejected rows;
            - `drivers` and `groups`: what would change most often, and in which rows
              together (empty if not known);
            - `explanation`: what `Explanation.to_dict` gives, and `truth`, `group` and
              `neighbors` of its rows as far as they are known;
            - `settings`, `versions` and `code`: how the page was made.
        """
        return self._facts


def report(
    explainer,
    X_test,
    y_test=None,
    path=None,
    *,
    max_rows=500,
    neighbors=False,
    title=None,
    code=None,
):
    """Tell the story of a model on one page: what it knows and what makes it unsure.

    The page holds how often the model is right and whether it knows when it is not,
    what drives its doubts, each row that it should not decide on with what would make
    it sure, and what not to conclude. It is a single file without any network.

    Parameters
    ----------
    explainer : explainer or Pipeline
        A fitted explainer such as :class:`CLUEExplainer` or :class:`NeighborExplainer`,
        or a pipeline that ends in one.

    X_test : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows that the model was not fitted on. Those that it rejects are explained.

    y_test : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
        Their targets. Without them the page says nothing about errors.

    path : str or os.PathLike, default=None
        Where to write the page; None writes none.

    max_rows : int, default=500
        Rejected rows to explain at most, the most uncertain first. The page says how
        many were left out.

    neighbors : bool, default=False
        Whether the page shows the nearest training row of each row that the model is
        sure about. A page that is passed on holds what it shows.

    title : str, default=None
        Title of the page.

    code : str, default=None
        What reproduces the page, in place of Python code made from the explainer.

    Returns
    -------
    report : Report
        The page, shown in a notebook as it is.

    See Also
    --------
    Explanation.to_html : A page of the rows alone.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer, report
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 400), "age": rng.normal(50, 9, 400)}
    ... )
    >>> y = np.where(X["dose"] + rng.normal(size=400) > 5, "works", "fails")
    >>> explainer = NeighborExplainer(LogisticRegression()).fit(X[:300], y[:300])
    >>> page = report(explainer, X[300:], y[300:])
    >>> page
    <Report on 100 rows: 19 rejected, error rate 0.09>
    >>> page.to_dict()["drivers"][0]["feature"]
    'dose'
    """
    asked = explainer
    explainer, X = _to_explainer(explainer, X_test)
    _check_request(explainer, X, y_test, max_rows, neighbors)
    parts = explainer.predict_uncertainty(X)
    rejected = np.flatnonzero(parts.total > explainer.threshold_)
    chosen = rejected[np.argsort(-parts.total[rejected], kind="stable")][:max_rows]
    explanation = explainer.explain(_tables.take(X, chosen)) if len(chosen) else None
    quality = None if y_test is None else _quality(explainer, X, y_test, parts.total)
    measure = ("entropy", "nats") if explainer.is_classification_ else (_SPREAD, None)
    facts = {
        "title": "What the model knows, and what it does not" if not title else title,
        "is_classification": bool(explainer.is_classification_),
        "n_rows": len(parts.total),
        "n_rejected": len(rejected),
        "n_explained": len(chosen),
        "rejection_rate": _facts.plain(explainer.rejection_rate),
        "threshold": float(explainer.threshold_),
        "measure": measure[0],
        "unit": measure[1],
        "quality": quality,
        "parts": {
            "all": _shares(parts, slice(None), measure[1]),
            "rejected": _shares(parts, rejected, measure[1]),
        },
        "drivers": _drivers(explanation),
        "groups": [],
        "explanation": explanation and explanation.to_dict(),
        "settings": _settings(explainer),
        "versions": _versions(),
        "code": _code(asked) if code is None else code,
    }
    if explanation is not None:
        _add_groups(facts, explainer, explanation)
        _add_truth(facts, y_test, chosen)
        if neighbors:
            _add_neighbors(facts, explainer, explanation)
    made = Report(facts, explanation)
    if path is not None:
        made.to_html(path)
    return made


_SPREAD = "standard deviation"


def _to_explainer(explainer, X):
    steps, last = peel(explainer)
    if not hasattr(last, "explain") or not hasattr(last, "rejects"):
        raise TypeError(
            "report needs an explainer, or a pipeline that ends in one, got "
            f"{type(last).__name__}. Wrap the model: "
            f"CLUEExplainer({type(last).__name__}(...)).fit(X_train, y_train)."
        )
    check_is_fitted(last, "estimator_")
    for step in steps:
        X = step.transform(X)
    return last, X


def _check_request(explainer, X, y_test, max_rows, neighbors):
    """Refuse what cannot be, before long work starts."""
    if max_rows < 1:
        raise ValueError(f"max_rows must be at least 1, got {max_rows!r}.")
    if neighbors and not hasattr(explainer, "nearest_sure"):
        raise ValueError(
            f"neighbors=True needs an explainer that stores training rows, and "
            f"{type(explainer).__name__} stores none. Use CLUEExplainer or "
            "NeighborExplainer, or leave neighbors=False."
        )
    if y_test is None:
        return
    check_consistent_length(X, y_test)
    y = _tables.as_objects(np.asarray(y_test).ravel())
    missing = np.flatnonzero([_facts.plain(value) is None for value in y])
    if len(missing):
        raise ValueError(
            f"y_test holds {_words.count(len(missing), 'missing value')}, the first at "
            f"position {missing[0]}. Drop these rows, or pass y_test=None."
        )
    if explainer.is_classification_:
        known = set(np.asarray(explainer.classes_).tolist())
        if known.isdisjoint(np.asarray(y_test).tolist()):
            raise ValueError(
                f"No label of y_test is a class of the model: got "
                f"{listing(sorted(set(map(str, y))))}, and the classes are "
                f"{listing(explainer.classes_.tolist())}. Pass y_test in the words of "
                "the y of fit."
            )


# --- What the model knows ---


def _quality(explainer, X, y, total):
    """How good the predictions are, and whether the model knows which ones are."""
    y, prediction = np.asarray(y), np.asarray(explainer.predict(X))
    if explainer.is_classification_:
        # As Python compares: numpy would cut long labels to the length of others.
        pairs = zip(y.tolist(), prediction.tolist(), strict=True)
        wrong = np.array([truth != said for truth, said in pairs], dtype=float)
        (usual, n_usual), *_ = Counter(y.tolist()).most_common(1)
        facts = {
            "error_name": "error rate",
            "error": wrong.mean(),
            "baseline": 1 - n_usual / len(y),
            "baseline_name": f"always saying {usual}",
            "calibration": _reliability(explainer, X, wrong),
            "coverage": None,
        }
        losses, average = wrong, np.mean
    else:
        y = np.asarray(y, dtype=float).reshape(prediction.shape)
        rows = (len(y), -1)
        losses = ((y - prediction).reshape(rows) ** 2).sum(axis=1)
        around_mean = ((y - y.mean(axis=0)).reshape(rows) ** 2).sum(axis=1)
        facts = {
            "error_name": "root mean squared error",
            "error": np.sqrt(losses.mean()),
            "baseline": np.sqrt(around_mean.mean()),
            "baseline_name": "always saying the mean",
            "calibration": None,
            "coverage": _coverage(explainer, X, y, prediction, total),
        }
        average = _root_mean
    facts["rejection"] = _rejection(losses, total, explainer, average)
    return _plain_dict(facts)


def _root_mean(losses):
    return np.sqrt(np.mean(losses))


def _rejection(losses, total, explainer, average):
    """The error of the rows that are kept, as the least sure ones are given away."""
    order = np.argsort(total, kind="stable")
    n_rows = len(order)
    fewest = max(1, n_rows // 20)  # the error of a handful of rows is noise
    n_kept = np.unique(np.linspace(fewest, n_rows, 60).round().astype(int))[::-1]
    rate = explainer.rejection_rate
    at = max(fewest, round((1 - rate) * n_rows))
    is_rejected = total > explainer.threshold_

    def error_of(rows):
        return average(losses[rows]) if np.any(rows) else None

    return {
        "share": 1 - n_kept / n_rows,
        "error": [average(losses[order[:n]]) for n in n_kept],
        "rate": 1 - at / n_rows,
        "error_at_rate": average(losses[order[:at]]),
        "error_rejected": error_of(is_rejected),
        "error_kept": error_of(~is_rejected),
    }


def _reliability(explainer, X, wrong):
    """How often the model is right where it says so, by how sure it says to be."""
    confidence = np.asarray(explainer.predict_proba(X)).max(axis=1)
    n_bins = int(np.clip(len(wrong) // _ROWS_PER_BIN, 1, _MAX_BINS))
    bins = np.array_split(np.argsort(confidence, kind="stable"), n_bins)
    return {
        "claimed": confidence.mean(),
        "right": 1 - wrong.mean(),
        "interval": _wilson(len(wrong) - wrong.sum(), len(wrong)),
        "bins": [
            {
                "claimed": confidence[rows].mean(),
                "right": 1 - wrong[rows].mean(),
                "interval": _wilson(len(rows) - wrong[rows].sum(), len(rows)),
                "n_rows": len(rows),
            }
            for rows in bins
        ],
    }


def _wilson(n_right, n_rows):
    """A 90 % interval of a share, which holds for shares near 0 and 1 as well."""
    z = NormalDist().inv_cdf(0.95)
    share, weight = n_right / n_rows, z**2 / n_rows
    middle = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt(share * (1 - share) / n_rows + weight / (4 * n_rows))
    half /= 1 + weight
    return [max(0.0, middle - half), min(1.0, middle + half)]


def _coverage(explainer, X, y, prediction, total):
    """How many targets intervals hold, against how many they should."""
    if y.ndim > 1 and y.shape[1] > 1:
        return None  # their uncertainty is one figure for all outputs
    own = getattr(explainer.estimator_, "predict_interval", None)
    y = y.ravel()
    points = []
    for coverage in _COVERAGES:
        if own is None:
            half = NormalDist().inv_cdf(0.5 + coverage / 2) * total
            low, high = prediction.ravel() - half, prediction.ravel() + half
        else:
            low, high = np.asarray(own(X, coverage=coverage)).reshape(len(y), 2).T
        held = int(((low <= y) & (y <= high)).sum())
        points.append(
            {
                "claimed": coverage,
                "right": held / len(y),
                "interval": _wilson(held, len(y)),
                "width": np.median(high - low),
            }
        )
    return {"is_own": own is not None, "bins": points}


def _shares(parts, rows, unit):
    """The shares of both sources in the uncertainty; None if there is none at all."""
    both = [np.asarray(part)[rows] for part in (parts.aleatoric, parts.epistemic)]
    if not unit:  # of standard deviations it is the squares that add up
        both = [part**2 for part in both]
    sums = [float(part.sum()) for part in both]
    if not sum(sums) > 0:
        return None
    return {"aleatoric": sums[0] / sum(sums), "epistemic": sums[1] / sum(sums)}


# --- What drives its doubts, and the rows ---


def _drivers(explanation):
    """The columns that change, most important first."""
    if explanation is None or explanation.image_shape is not None:
        return []
    columns = _facts.drivers(explanation)
    columns = {name: _facts.plain(values) for name, values in columns.items()}
    rows = zip(*columns.values(), strict=True)
    rows = [dict(zip(columns, values, strict=True)) for values in rows]
    return [
        row | {"feature": str(row["feature"])} for row in rows if row["n_changed"] > 0
    ]


def _add_groups(facts, explainer, explanation):
    """Say which rows one common change would make sure, if that can be asked."""
    grouping = getattr(explainers, "GroupExplainer", None)
    asks_for_sure = hasattr(explainer, "nearest_sure") and explanation.target
    if grouping is None or not asks_for_sure or explanation.image_shape is not None:
        return
    if len(explanation) < 2 or explanation.distance_weight is not None:
        return
    groups = grouping.from_explanation(explainer, explanation, random_state=0)
    told = zip(groups.sentences_, groups.still_unsure_, strict=True)
    facts["groups"] = [_group_words(*group) for group in told]
    for row, group in zip(facts["explanation"]["rows"], groups.labels_, strict=True):
        row["group"] = int(group)


def _group_words(sentence, unsure):
    what = f"{sentence.rpartition(';')[0]}."
    if unsure == 0:
        return what
    return f"{what} For {_words.percent(unsure)} of them this is not enough."


def _add_truth(facts, y_test, chosen):
    if y_test is None:
        return
    truth = _facts.plain(np.asarray(_tables.take(y_test, chosen)))
    for row, value in zip(facts["explanation"]["rows"], truth, strict=True):
        row["truth"] = value


def _add_neighbors(facts, explainer, explanation):
    """The values of the nearest training row that the model is sure about."""
    nearest = explainer.nearest_sure(explanation.X, n_neighbors=1)
    for row, table in zip(facts["explanation"]["rows"], nearest, strict=True):
        if len(table):
            cells = _facts.cells_as_facts(explanation.schema, table)
            row["neighbor"] = [values[0] for values in cells]


# --- How it was made ---


def _settings(explainer):
    """Parameters of the explainer and its model as text, by name."""
    params = {"explainer": type(explainer).__name__}
    params["model"] = _represent(explainer.estimator_)
    for name, value in sorted(explainer.get_params(deep=False).items()):
        if name not in ("estimator", "verbose", "n_jobs", "memory"):
            params[name.replace("_", " ")] = _represent(value)
    return params


def _represent(value):
    """The text of a value; that of scikit-learn's estimators without cuts."""
    try:
        return value.__repr__(N_CHAR_MAX=5000)
    except TypeError:
        text = repr(value)
        return text if len(text) <= 5000 else f"{text[:5000]}…"


def _versions():
    versions = {"Python": platform.python_version()}
    for name in _PACKAGES:
        module = importlib.import_module(name)
        versions[module.__name__] = str(module.__version__)
    return versions


def _code(explainer):
    return (
        "from sklearn_clue import report\n\n"
        "# X_train, y_train, X_test and y_test are your tables.\n"
        f"explainer = {_represent(explainer)}\n"
        "explainer.fit(X_train, y_train)\n"
        'report(explainer, X_test, y_test, path="report.html")\n'
    )


def _plain_dict(value):
    """Nested facts as JSON knows them."""
    if isinstance(value, dict):
        return {key: _plain_dict(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain_dict(entry) for entry in value]
    return _facts.plain(value)
