"""The loaders, on files that look like the real ones."""

import csv
import gzip
import hashlib
import io
import re
import zipfile

import numpy as np
import pandas as pd
import pytest

from sklearn_clue import datasets
from sklearn_clue.datasets import _loaders

NAMES = ["compas", "credit", "lsat", "mnist", "wine"]
FETCHERS = {
    "compas": datasets.fetch_compas,
    "credit": datasets.fetch_credit_default,
    "lsat": datasets.fetch_lsat,
    "mnist": datasets.fetch_mnist,
    "wine": datasets.fetch_wine_quality,
}
FILES = [
    _loaders.COMPAS_FILE,
    _loaders.CREDIT_FILE,
    _loaders.WINE_FILE,
    *_loaders.LSAT_FILES,
    *_loaders.MNIST_FILES,
]
# The header of the original, with two names that occur twice.
COMPAS_HEADER = (
    "id,name,first,last,compas_screening_date,sex,dob,age,age_cat,race,juv_fel_count,"
    "decile_score,juv_misd_count,juv_other_count,priors_count,days_b_screening_arrest,"
    "c_jail_in,c_jail_out,c_case_number,c_charge_degree,is_recid,r_case_number,"
    "decile_score,score_text,priors_count,two_year_recid"
).split(",")


def compas_original():
    """A file of the original's form, in which every third score is too late."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COMPAS_HEADER)
    for i in range(60):
        row = {name: f"secret {name}" for name in COMPAS_HEADER}
        row |= {
            "name": f'secret "{i}", name',
            "sex": ["Male", "Female"][i % 2],
            "age": 20 + i,
            "age_cat": ["Less than 25", "25 - 45", "Greater than 45"][i // 20],
            "race": ["Other", "Asian"][i % 2],
            "juv_fel_count": 0,
            "juv_misd_count": 0,
            "juv_other_count": 0,
            "days_b_screening_arrest": ["-1", "30", "31", "", "-30", "-31"][i % 6],
            "c_jail_in": "2013-08-13 06:03:42",
            "c_jail_out": ["2013-08-15 05:41:20", "2013-08-01 00:00:00"][i % 2],
            "c_charge_degree": "FM"[i % 2],
            "is_recid": i % 2,
            "score_text": "Low",
            "two_year_recid": i % 2,
        }
        cells = [row[name] for name in COMPAS_HEADER]
        for name, first, second in (
            ("priors_count", i, "secret"),
            ("decile_score", 1, 9),
        ):
            cells[COMPAS_HEADER.index(name)] = first
            cells[-1 - COMPAS_HEADER[::-1].index(name)] = second
        writer.writerow(cells)
    return out.getvalue().encode()


def credit():
    header = "ID,LIMIT_BAL,SEX,EDUCATION,MARRIAGE,AGE,default payment next month"
    rows = [
        f"{i + 1},{1000 * i},{1 + i % 2},{i % 7},{i % 4},{20 + i},{i % 2}"
        for i in range(70)
    ]
    return "\n".join([",X1,X2,X3,X4,X5,Y", header, *rows, ""]).encode()


def lsat(n_rows):
    columns = ["amerind", "asian", "black", "hisp", "mexican", "other", "puerto"]
    columns = ["UGPA", "LSAT", "ZFYA", *columns, "white", "female", "male"]
    rows = np.zeros((n_rows, len(columns)), dtype=int)
    for i, row in enumerate(rows):
        row[:3] = i, 10 + i, -i
        row[3 + i % 8] = row[11 + i % 2] = 1
    return pd.DataFrame(rows, columns=columns).to_csv(index=False).encode()


def idx(array):
    header = bytes([0, 0, 8, array.ndim])
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + shape + array.astype(np.uint8).tobytes()


def images(n_rows):
    return np.arange(n_rows * 784).reshape(n_rows, 28, 28) % 251


@pytest.fixture
def contents(monkeypatch):
    """What the loaders read in place of the real files, by name."""
    wine = "\n".join(['"pH";"alcohol";"quality"', *(f"3;{i};5" for i in range(41))])
    contents = {
        "compas-scores-two-years.csv.gz": compas_original(),
        "default_of_credit_card_clients.csv.gz": credit(),
        "law_school_cf_train.csv": lsat(40),
        "law_school_cf_test.csv": lsat(10),
        "winequality-red.csv": wine.encode(),
        "train-images-idx3-ubyte.gz": idx(images(6)),
        "train-labels-idx1-ubyte.gz": idx(np.arange(6)),
        "t10k-images-idx3-ubyte.gz": idx(images(9)[6:]),
        "t10k-labels-idx1-ubyte.gz": idx(np.arange(6, 9)),
    }
    monkeypatch.setattr(_loaders, "read", lambda file, *args: contents[file.name])
    return contents


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_frame", [True, False])
def test_answers_agree(contents, name, as_frame):
    fetch = FETCHERS[name]
    bunch = fetch(as_frame=as_frame)
    X, y = fetch(as_frame=as_frame, return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)
    assert isinstance(X, pd.DataFrame if as_frame else np.ndarray)
    assert isinstance(y, pd.Series if as_frame else np.ndarray)
    assert X.shape == (len(y), len(bunch.feature_names))
    assert "data_train" not in bunch
    assert "Origin:" in bunch.DESCR and "Licence:" in bunch.DESCR
    if as_frame:
        assert list(bunch.frame) == [*bunch.feature_names, *bunch.target_names]
        assert list(X) == bunch.feature_names
        for column, categories in bunch.categories.items():
            assert list(X[column].cat.categories) == categories
        assert not X.isna().to_numpy().any()
    else:
        assert bunch.frame is None
        X[0], y[0] = 0, 0  # arrays are the caller's own


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_frame", [True, False])
def test_split_is_a_split_of_the_data(contents, name, as_frame):
    fetch = FETCHERS[name]
    bunch = fetch(as_frame=as_frame, paper_split=True)
    parts = fetch(as_frame=as_frame, paper_split=True, return_X_y=True)
    keys = ["data_train", "data_test", "target_train", "target_test"]
    for key, part in zip(keys, parts, strict=True):
        np.testing.assert_array_equal(bunch[key], part)
    assert len(bunch.data_train) + len(bunch.data_test) == len(bunch.data)
    assert len(bunch.target_train) == len(bunch.data_train)
    if as_frame:
        for part in ("train", "test"):
            rows = bunch[f"data_{part}"]
            pd.testing.assert_frame_equal(rows, bunch.data.loc[rows.index])
            y = bunch[f"target_{part}"]
            pd.testing.assert_series_equal(y, bunch.target.loc[rows.index])
        assert not set(bunch.data_train.index) & set(bunch.data_test.index)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("paper_split", [True, False])
def test_codes_are_positions_in_categories(contents, name, paper_split):
    fetch = FETCHERS[name]
    frame = fetch(as_frame=True, paper_split=paper_split)
    array = fetch(as_frame=False, paper_split=paper_split)
    for column, categories in array.categories.items():
        codes = array.data[:, array.feature_names.index(column)].astype(int)
        named = np.array(categories, dtype=object)[codes]
        np.testing.assert_array_equal(named, frame.data[column].astype(object))


def test_compas_keeps_rows_with_a_timely_score(contents):
    X, y = datasets.fetch_compas(return_X_y=True)
    assert list(X["priors_count"]) == [i for i in range(60) if i % 6 in (0, 1, 4)]
    assert list(X.index) == list(range(30))
    assert list(X["time_served"][:2]) == [1, 0]  # whole days; never negative


def test_compas_has_no_leak_unless_asked(contents):
    X, y = datasets.fetch_compas(return_X_y=True)
    assert "is_recid" not in X
    X, y = datasets.fetch_compas(return_X_y=True, include_is_recid=True)
    assert (X["is_recid"].astype(int) == y).all()
    assert "leaks the target" in datasets.fetch_compas().DESCR


def test_compas_reads_no_personal_data(contents, monkeypatch):
    read_csv, seen = pd.read_csv, []

    def spy(*args, **kwargs):
        seen.append(read_csv(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(_loaders.pd, "read_csv", spy)
    bunch = datasets.fetch_compas(include_is_recid=True)
    for table in (bunch.frame, *seen):
        assert not {"name", "first", "last", "dob", "c_case_number"} & set(table)
        assert "secret" not in table.to_csv()


def test_compas_is_kept_without_personal_data(contents):
    original = contents["compas-scores-two-years.csv.gz"]
    kept = _loaders._without_personal_data(original)
    assert b"secret" in original and b"secret" not in kept and b"\r" not in kept
    assert kept.splitlines()[0].decode().split(",") == list(_loaders._COMPAS_KEPT)
    before = datasets.fetch_compas(include_is_recid=True).frame
    contents["compas-scores-two-years.csv.gz"] = kept
    after = datasets.fetch_compas(include_is_recid=True).frame
    pd.testing.assert_frame_equal(before, after)


def test_credit_names_its_categories(contents):
    bunch = datasets.fetch_credit_default()
    assert bunch.categories["SEX"] == ["male", "female"]
    assert list(bunch.data["EDUCATION"][:7]) == [
        "undocumented 0",
        "graduate school",
        "university",
        "high school",
        "others",
        "undocumented 5",
        "undocumented 6",
    ]
    assert list(bunch.data["MARRIAGE"][:4]) == [
        "undocumented 0",
        "married",
        "single",
        "others",
    ]
    assert "ID" not in bunch.data and bunch.data.index.name == "ID"


def test_credit_has_the_authors_categories_on_request(contents):
    X = datasets.fetch_credit_default(paper_split=True).data
    assert list(X["SEX"][:2]) == [0, 1]
    assert list(X["EDUCATION"][:7]) == [0, 1, 2, 3, 3, 3, 3]
    assert list(X["MARRIAGE"][:4]) == [0, 1, 2, 2]


def test_credit_comes_from_the_workbook_as_well(contents, monkeypatch):
    # pandas needs a further package to read the workbook; here it gets CSV instead.
    content = contents["default_of_credit_card_clients.csv.gz"]

    def read_excel(file, header):
        assert file.read() == b"workbook"
        return pd.read_csv(io.BytesIO(content), header=header, low_memory=False)

    monkeypatch.setattr(_loaders.pd, "read_excel", read_excel)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("default of credit card clients.xls", b"workbook")
    assert _loaders._csv_of_workbook(archive.getvalue()) == content


def test_lsat_finds_its_indicators(contents):
    X, y = datasets.fetch_lsat(return_X_y=True)
    assert list(X) == ["LSAT", "UGPA", "race", "sex"]
    assert list(X["race"][:3]) == ["amerind", "asian", "black"]
    assert list(X["sex"][:3]) == ["female", "male", "female"]
    assert list(y[:3]) == [0, -1, -2]


def test_wine_loses_its_first_row_for_the_authors_only(contents):
    assert list(datasets.fetch_wine_quality().data["alcohol"]) == list(range(41))
    bunch = datasets.fetch_wine_quality(paper_split=True)
    assert list(bunch.data["alcohol"]) == list(range(1, 41))
    assert list(bunch.data.index) == list(range(1, 41))
    assert (len(bunch.data_train), len(bunch.data_test)) == (36, 4)


def test_mnist_keeps_order_and_shape(contents):
    bunch = datasets.fetch_mnist(paper_split=True)
    np.testing.assert_array_equal(bunch.data.reshape(-1, 28, 28), images(9))
    np.testing.assert_array_equal(bunch.target, np.arange(9))
    np.testing.assert_array_equal(bunch.target_test, [6, 7, 8])
    assert bunch.data.dtype == np.uint8
    assert bunch.feature_names[29] == "pixel_1_1"


@pytest.mark.parametrize("n_rows", [1598, 30000, 41])
def test_first_fold_is_that_of_scikit_learn(n_rows):
    from sklearn.model_selection import KFold

    order = np.random.RandomState(42).permutation(n_rows)
    train, test = next(KFold(10).split(order))
    ours = _loaders._first_of_ten_folds(n_rows)
    np.testing.assert_array_equal(ours[0], order[train])
    np.testing.assert_array_equal(ours[1], order[test])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_sources_are_well_formed(file):
    assert file.sources
    for source in file.sources:
        assert re.fullmatch(r"https?://[\w./%+-]+", source.url)
        assert re.fullmatch("[0-9a-f]{64}", source.sha256)
    assert re.fullmatch("[0-9a-f]{64}", file.sha256)


@pytest.mark.parametrize("name", NAMES)
def test_options_reach_the_reader(monkeypatch, tmp_path, name):
    monkeypatch.delenv("SKLEARN_CLUE_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "scikit"))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "home"))):
        FETCHERS[name](data_home=tmp_path / "home", download_if_missing=False)


def test_from_server_to_frame(server, monkeypatch, tmp_path):
    """The whole way of a file whose packing changes on its way."""
    monkeypatch.delenv("SKLEARN_CLUE_DATA", raising=False)
    server.content = compas_original()
    kept = _loaders._without_personal_data(server.content)
    checksums = [
        hashlib.sha256(content).hexdigest() for content in (server.content, kept)
    ]
    source = _loaders.Source(
        server.address, checksums[0], unpack=_loaders._without_personal_data
    )
    file = _loaders.DataFile(_loaders.COMPAS_FILE.name, checksums[1], (source,))
    monkeypatch.setattr(_loaders, "COMPAS_FILE", file)
    X, y = datasets.fetch_compas(data_home=tmp_path, return_X_y=True)
    assert X.shape == (30, 6)
    (path,) = tmp_path.iterdir()  # one file, and nothing that names people
    assert path.name == "compas-scores-two-years.csv.gz"
    assert gzip.decompress(path.read_bytes()) == kept
