"""The five datasets of the paper, from their original files.

Each dataset has its files, its description and its loader. What they share comes
first: the split of the authors, and the form of the answer.
"""

import csv
import io
import math
import zipfile

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from sklearn_clue.datasets._download import DataFile, Source, read


def _first_of_ten_folds(n_rows):
    """Give the authors' rows: shuffled, the first of ten folds for testing."""
    order = np.random.RandomState(42).permutation(n_rows)
    test, train = np.split(order, [math.ceil(n_rows / 10)])
    return train, test


def _as_array(table):
    """Turn a table into an array of its own, categories into their codes."""
    if isinstance(table, pd.DataFrame):
        categorical = table.select_dtypes("category").columns
        codes = {name: table[name].cat.codes.astype(float) for name in categorical}
        table = table.assign(**codes)
    return table.to_numpy(copy=True)


def _answer(X, y, split, descr, *, as_frame, return_X_y):
    """Give a dataset in the form that was asked for.

    Parameters
    ----------
    X : DataFrame
        Inputs.
    y : Series
        Target.
    split : pair of slices or arrays of row positions, or None
        Rows for training and for testing, if they were asked for.
    descr : str
        Description.
    as_frame, return_X_y : bool
        As in the loaders.

    Returns
    -------
    answer : Bunch or tuple
        As in the loaders.
    """
    names, target_name = list(X.columns), y.name
    categories = {
        name: list(X[name].cat.categories) for name in X.select_dtypes("category")
    }
    frame = pd.concat([X, y], axis=1) if as_frame and not return_X_y else None
    if not as_frame:
        X, y = _as_array(X), _as_array(y)
    parts = {}
    if split is not None:
        for name, rows in zip(("train", "test"), split, strict=True):
            for kind, table in (("data", X), ("target", y)):
                parts[f"{kind}_{name}"] = table.iloc[rows] if as_frame else table[rows]
    if return_X_y:
        wanted = ["data_train", "data_test", "target_train", "target_test"]
        return tuple(parts[name] for name in wanted) if parts else (X, y)
    return Bunch(
        data=X,
        target=y,
        **parts,
        frame=frame,
        feature_names=names,
        target_names=[target_name],
        categories=categories,
        DESCR=descr,
    )


# LSAT ---------------------------------------------------------------------------------

# Pinned to the commit that the checksums were taken from.
_LSAT_URL = (
    "https://raw.githubusercontent.com/throwaway20190523/MonotonicFairness/"
    "e3fb9fdff5897d0b5424be9d173f08b3a63a5c35/data/"
)
LSAT_FILES = tuple(
    DataFile(name, sha256, (Source(_LSAT_URL + name, sha256),))
    for name, sha256 in {
        "law_school_cf_train.csv": (
            "5de46ad1ee149ba8a5df501851a2301b98966534f752fe020ceb1979f843e99e"
        ),
        "law_school_cf_test.csv": (
            "9500bf46a3b569dee3c9adef9688113ab8dfd61c960f545b368cc12d0c7ac0a0"
        ),
    }.items()
)

_LSAT_INDICATORS = {
    "race": [
        "amerind",
        "asian",
        "black",
        "hisp",
        "mexican",
        "other",
        "puerto",
        "white",
    ],
    "sex": ["female", "male"],
}

LSAT_DESCR = """\
Law school students (LSAT)
--------------------------

21790 students of law in the United States. The target `ZFYA` is the average grade of
the first year, standardised. 4 inputs:

- `LSAT`: score in the Law School Admission Test, here a whole number from 11 to 48
- `UGPA`: average grade before law school, from 0 to 4.2
- `race`: amerind, asian, black, hisp, mexican, other, puerto or white, as recorded
- `sex`: female or male, as recorded

The authors' split is that of the two files: 17432 rows to train and 4358 to test.

Origin: files of the code for Cole and Williamson, "Avoiding Resentment Via Monotonic
Fairness", GitHub throwaway20190523/MonotonicFairness, which the paper cites. They come
from the data of Kusner, Loftus, Russell and Silva, "Counterfactual Fairness" (2017),
and those from the LSAC National Longitudinal Bar Passage Study (Wightman, 1998).

Licence: none is stated.

Cautions:

- Race and sex are sensitive. The data were collected to study unequal chances, and are
  here to study explanations of uncertainty. Do not use them to judge applicants.
- Values are coarse: 381 of the 4358 test rows are also in the training file.
- Two students have `UGPA` 0, one in each file, most likely a missing value.
- `LSAT` was cut to whole numbers by those who made the files.
"""


def fetch_lsat(
    *,
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    paper_split=False,
    n_retries=3,
    delay=1.0,
):
    """Load LSAT: predict first-year grades at law schools (regression).

    21790 rows, 2 numbers and 2 categories: test score, earlier grades, race and sex.
    Race and sex are sensitive; see `DESCR` for what the data should not be used for.

    Parameters
    ----------
    data_home : str, path-like or None, default=None
        Folder to look in first, and to download to. Next come the folder that the
        environment variable `SKLEARN_CLUE_DATA` names, which is only read, and the
        folder `sklearn_clue` of scikit-learn's data home, which takes downloads if
        `data_home` is None.
    download_if_missing : bool, default=True
        If False, raise a `FileNotFoundError` if the data are in none of these folders.
    as_frame : bool, default=True
        If True, give pandas objects, with categories as such. If False, give NumPy
        arrays of floats, in which a category is the code that `categories` explains.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`, or, with
        `paper_split=True`, `data_train`, `data_test`, `target_train` and `target_test`:
        the order of :func:`~sklearn.model_selection.train_test_split`.
    paper_split : bool, default=False
        If True, add the authors' split, that of the files: 17432 rows to train and 4358
        to test.
    n_retries : int, default=3
        How often a broken download is continued before the next address is tried.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : {DataFrame, ndarray} of shape (21790, 4)
            Inputs.
        target : {Series, ndarray} of shape (21790,)
            First-year average, standardised.
        data_train, target_train, data_test, target_test
            Only with `paper_split=True`.
        frame : DataFrame or None
            Inputs and target in one table; None with `as_frame=False`.
        feature_names, target_names : list of str
            Names of the columns.
        categories : dict of str to list
            The categories of each categorical column. Where they are codes in an
            array, a code is a position in this list.
        DESCR : str
            Origin, licence as far as known, and cautions. Please read it.

    Examples
    --------
    >>> from sklearn_clue.datasets import fetch_lsat
    >>> lsat = fetch_lsat(paper_split=True)  # doctest: +SKIP
    >>> lsat.data_train.shape, lsat.data_test.shape  # doctest: +SKIP
    ((17432, 4), (4358, 4))
    """
    tables = [
        pd.read_csv(
            io.BytesIO(read(file, data_home, download_if_missing, n_retries, delay))
        )
        for file in LSAT_FILES
    ]
    table = pd.concat(tables, ignore_index=True)
    X = table[["LSAT", "UGPA"]].copy()
    for name, columns in _LSAT_INDICATORS.items():
        X[name] = pd.Categorical(table[columns].idxmax(axis=1), categories=columns)
    n_train = len(tables[0])
    split = (slice(0, n_train), slice(n_train, None)) if paper_split else None
    return _answer(
        X, table["ZFYA"], split, LSAT_DESCR, as_frame=as_frame, return_X_y=return_X_y
    )


# COMPAS -------------------------------------------------------------------------------

# All that is kept of the 53 columns of the original: not the names, dates of birth and
# case numbers of real people.
_COMPAS_KEPT = (
    "sex",
    "age",
    "age_cat",
    "race",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "decile_score",
    "score_text",
    "priors_count",
    "days_b_screening_arrest",
    "c_jail_in",
    "c_jail_out",
    "c_charge_degree",
    "is_recid",
    "two_year_recid",
)


def _without_personal_data(served):
    """Keep the columns of the original file that may be kept, as they are written."""
    # Any bytes survive latin-1, and the columns that are kept are plain ASCII. Two
    # names occur twice in the header; the first of each is the one that is meant.
    rows = csv.reader(io.StringIO(served.decode("latin-1"), newline=""))
    header = next(rows)
    places = [header.index(name) for name in _COMPAS_KEPT]
    kept = io.StringIO()
    writer = csv.writer(kept, lineterminator="\n")
    writer.writerow(_COMPAS_KEPT)
    writer.writerows([row[place] for place in places] for row in rows if row)
    return kept.getvalue().encode("latin-1")


# The checksum of the original is the recorded one. It was not at hand when this was
# written, so `_without_personal_data` was tried on a file of its shape; the checksum of
# what it must give is that of a file made from the original.
_COMPAS_ORIGINAL = "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d"
COMPAS_FILE = DataFile(
    "compas-scores-two-years.csv.gz",
    "9dbdc3486a2e8fd972114cee95ec3320040d5c81bdbf0d817a585ca9132afaa7",
    (
        Source(
            "https://raw.githubusercontent.com/propublica/compas-analysis/"
            "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
            _COMPAS_ORIGINAL,
            unpack=_without_personal_data,
        ),
    ),
    also=(_COMPAS_ORIGINAL,),  # a copy that someone put there by hand
)

COMPAS_DESCR = """\
Recidivism in Broward County (COMPAS)
-------------------------------------

Defendants in Broward County, Florida, 2013 and 2014. The target `two_year_recid` says
whether a new charge was recorded within two years: 1 for 2809 and 0 for 3363 of 6172
rows. 6 inputs, or 7:

- `age_cat`: 25 - 45, Greater than 45 or Less than 25 years
- `race`: African-American, Asian, Caucasian, Hispanic, Native American or Other, as
  recorded
- `sex`: Female or Male, as recorded
- `c_charge_degree`: F for felony or M for misdemeanour
- `priors_count`: earlier charges
- `time_served`: whole days in jail; 183 negative spans are set to 0
- `is_recid`, only with `include_is_recid=True`: see below

Rows: as in the analysis of ProPublica and in the paper, those whose COMPAS score dates
from within 30 days of the arrest, 6172 of 7214. The authors' split has 5554 rows to
train and 618 to test.

Origin: GitHub propublica/compas-analysis, compas-scores-two-years.csv, published with
the article "Machine Bias" (2016). From public records.

Licence: none is stated.

Cautions:

- `is_recid` leaks the target: it is 0 for 3182 rows, all of target 0, and 1 for 2990
  rows, of which 2809 have target 1. Alone it predicts with an accuracy of 0.97; without
  it, models reach about 0.67. The paper uses it as an input. It is left out unless
  asked for, and results with it say little about predicting recidivism.
- Race and sex are sensitive, and the target records arrest and prosecution, not crime:
  who is policed more is charged more. The data became known as an example of a biased
  score. Do not use them, or models of them, to decide about people.
- The original file names people, with their dates of birth and cases. The loader drops
  these columns before it keeps the file, and reads no column but those above.
"""


def fetch_compas(
    *,
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    paper_split=False,
    include_is_recid=False,
    n_retries=3,
    delay=1.0,
):
    """Load COMPAS: predict recidivism within two years (binary classification).

    6172 rows, 2 numbers and 4 categories. Race and sex are sensitive; see `DESCR` for
    what the data should not be used for. Names and dates of birth are never read.

    Parameters
    ----------
    data_home : str, path-like or None, default=None
        Folder to look in first, and to download to. Next come the folder that the
        environment variable `SKLEARN_CLUE_DATA` names, which is only read, and the
        folder `sklearn_clue` of scikit-learn's data home, which takes downloads if
        `data_home` is None.
    download_if_missing : bool, default=True
        If False, raise a `FileNotFoundError` if the data are in none of these folders.
    as_frame : bool, default=True
        If True, give pandas objects, with categories as such. If False, give NumPy
        arrays of floats, in which a category is the code that `categories` explains.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`, or, with
        `paper_split=True`, `data_train`, `data_test`, `target_train` and `target_test`:
        the order of :func:`~sklearn.model_selection.train_test_split`.
    paper_split : bool, default=False
        If True, add the authors' split: 5554 rows to train and 618 to test.
    include_is_recid : bool, default=False
        If True, add the column `is_recid`, which makes up the seven inputs of the
        paper. It nearly is the target: alone it predicts with an accuracy of 0.97.
    n_retries : int, default=3
        How often a broken download is continued before the next address is tried.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : {DataFrame, ndarray} of shape (6172, 6) or (6172, 7)
            Inputs.
        target : {Series, ndarray} of shape (6172,)
            1 if a new charge was recorded within two years, else 0.
        data_train, target_train, data_test, target_test
            Only with `paper_split=True`.
        frame : DataFrame or None
            Inputs and target in one table; None with `as_frame=False`.
        feature_names, target_names : list of str
            Names of the columns.
        categories : dict of str to list
            The categories of each categorical column. Where they are codes in an
            array, a code is a position in this list.
        DESCR : str
            Origin, licence as far as known, and cautions. Please read it.

    Examples
    --------
    >>> from sklearn_clue.datasets import fetch_compas
    >>> compas = fetch_compas(include_is_recid=True)  # doctest: +SKIP
    >>> (compas.data["is_recid"] == compas.target).mean().round(2)  # doctest: +SKIP
    0.97
    """
    categorical = ["age_cat", "race", "sex", "c_charge_degree"]
    others = ["priors_count", "is_recid", "two_year_recid"]
    spans = ["days_b_screening_arrest", "c_jail_in", "c_jail_out"]
    content = read(COMPAS_FILE, data_home, download_if_missing, n_retries, delay)
    # By name, and no other column: the file may be the original, with names in it.
    table = pd.read_csv(io.BytesIO(content), usecols=categorical + others + spans)
    # The authors also drop `is_recid` -1, `c_charge_degree` O and missing scores, none
    # of which occurs in the rows that are left here.
    is_near = table["days_b_screening_arrest"].between(-30, 30)
    table = table[is_near].reset_index(drop=True)
    X = table[categorical].astype("category")
    X["priors_count"] = table["priors_count"]
    served = pd.to_datetime(table["c_jail_out"]) - pd.to_datetime(table["c_jail_in"])
    X["time_served"] = served.dt.days.clip(lower=0)
    if include_is_recid:
        X["is_recid"] = table["is_recid"].astype("category")
    split = None
    if paper_split:
        split = train_test_split(np.arange(len(X)), test_size=0.1, random_state=42)
    return _answer(
        X,
        table["two_year_recid"],
        split,
        COMPAS_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


# Wine ---------------------------------------------------------------------------------

WINE_FILE = DataFile(
    "winequality-red.csv",
    "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
    (
        Source(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/"
            "winequality-red.csv",
            "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
        ),
    ),
)

WINE_DESCR = """\
Quality of red wine
-------------------

1599 red vinho verde wines from Portugal. The target `quality` is the score that tasters
gave, a whole number from 3 to 8, mostly 5 or 6. 11 inputs, all of them measurements:
`fixed acidity`, `volatile acidity`, `citric acid`, `residual sugar`, `chlorides`, `free
sulfur dioxide`, `total sulfur dioxide`, `density`, `pH`, `sulphates` and `alcohol`.

With `paper_split=True` there are 1598 rows, 1438 to train and 160 to test: the authors'
reader takes the first wine for a header and loses it. The rows keep their numbers.

Origin: UCI Machine Learning Repository, dataset 186, file winequality-red.csv. Cortez,
Cerdeira, Almeida, Matos and Reis, "Modeling wine preferences by data mining from
physicochemical properties", Decision Support Systems (2009). DOI 10.24432/C56S3T.

Licence: CC BY 4.0 according to projects that cite the page of the repository, which was
not consulted. The authors of the data ask to be cited.

Cautions:

- 240 rows repeat an earlier row exactly. A random split puts twins on both sides: of
  the 160 test rows above, 36 are also in the training set.
- The target is an ordered grade of few steps. The paper treats it as continuous.
"""


def fetch_wine_quality(
    *,
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    paper_split=False,
    n_retries=3,
    delay=1.0,
):
    """Load Wine: predict how tasters like a red wine (regression).

    1599 rows, 11 measurements.

    Parameters
    ----------
    data_home : str, path-like or None, default=None
        Folder to look in first, and to download to. Next come the folder that the
        environment variable `SKLEARN_CLUE_DATA` names, which is only read, and the
        folder `sklearn_clue` of scikit-learn's data home, which takes downloads if
        `data_home` is None.
    download_if_missing : bool, default=True
        If False, raise a `FileNotFoundError` if the data are in none of these folders.
    as_frame : bool, default=True
        If True, give pandas objects. If False, give NumPy arrays.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`, or, with
        `paper_split=True`, `data_train`, `data_test`, `target_train` and `target_test`:
        the order of :func:`~sklearn.model_selection.train_test_split`.
    paper_split : bool, default=False
        If True, add the authors' split: 1438 rows to train and 160 to test. Their
        reader loses the first row, so it is missing from `data` as well.
    n_retries : int, default=3
        How often a broken download is continued before the next address is tried.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : {DataFrame, ndarray} of shape (1599, 11)
            Inputs.
        target : {Series, ndarray} of shape (1599,)
            Quality, a whole number from 3 to 8.
        data_train, target_train, data_test, target_test
            Only with `paper_split=True`.
        frame : DataFrame or None
            Inputs and target in one table; None with `as_frame=False`.
        feature_names, target_names : list of str
            Names of the columns.
        DESCR : str
            Origin, licence as far as known, and cautions. Please read it.

    Examples
    --------
    >>> from sklearn_clue.datasets import fetch_wine_quality
    >>> X, y = fetch_wine_quality(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (1599, 11)
    """
    content = read(WINE_FILE, data_home, download_if_missing, n_retries, delay)
    table = pd.read_csv(io.BytesIO(content), sep=";")
    split = None
    if paper_split:
        table = table.iloc[1:]
        split = _first_of_ten_folds(len(table))
    return _answer(
        table.drop(columns="quality"),
        table["quality"],
        split,
        WINE_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


# Credit -------------------------------------------------------------------------------


def _csv_of_workbook(served):
    """Write the workbook in the archive of the repository as the export is written."""
    with zipfile.ZipFile(io.BytesIO(served)) as archive:
        workbook = archive.read("default of credit card clients.xls")
    table = pd.read_excel(io.BytesIO(workbook), header=None)
    return table.to_csv(header=False, index=False, lineterminator="\n").encode()


CREDIT_FILE = DataFile(
    "default_of_credit_card_clients.csv.gz",
    "bf15b02eb5a2c34f01f6d071083ecb7b8f4e803a4280a7ef497903d84c791c48",
    (
        # An export of the workbook comes first, since pandas reads the original, of a
        # format from 1997, only with a further package.
        Source(
            "https://raw.githubusercontent.com/wangzongyan/"
            "Default-of-credit-card-clients-Data-Project/"
            "eb452709ebc4a75eb535ecc854ea3cc5fd58f0b1/"
            "default%20of%20credit%20card%20clients.csv",
            "bf15b02eb5a2c34f01f6d071083ecb7b8f4e803a4280a7ef497903d84c791c48",
        ),
        # The original, with the checksum that other projects recorded. The archive was
        # not at hand when this was written: the content decides.
        Source(
            "https://archive.ics.uci.edu/static/public/350/"
            "default+of+credit+card+clients.zip",
            "56c885f84457f6680f8438f02bfcdac9579323d8a94465ee5f26e32baa727602",
            unpack=_csv_of_workbook,
            requires="xlrd",
        ),
    ),
)

# The documentation names all but the undocumented codes, which stay apart: nobody knows
# whether they mean the same.
_CREDIT_CODES = {
    "SEX": {1: "male", 2: "female"},
    "EDUCATION": {
        1: "graduate school",
        2: "university",
        3: "high school",
        4: "others",
        0: "undocumented 0",
        5: "undocumented 5",
        6: "undocumented 6",
    },
    "MARRIAGE": {1: "married", 2: "single", 3: "others", 0: "undocumented 0"},
}
_CREDIT_N_LEVELS = {"SEX": 2, "EDUCATION": 4, "MARRIAGE": 3}  # of the authors

CREDIT_DESCR = """\
Default of credit card clients
------------------------------

30000 holders of credit cards in Taiwan, 2005. The target `default payment next month`
is 1 for the 6636 who did not pay in October, else 0. 23 inputs, amounts in New Taiwan
dollars; the number of the client, `ID`, is the index:

- `LIMIT_BAL`: credit given, family included
- `SEX`, `EDUCATION`, `MARRIAGE`: categories, see below
- `AGE`: in years
- `PAY_0`, `PAY_2` to `PAY_6`: state of repayment in September back to April; -1 is paid
  duly, 1 to 9 are months of delay (9: or more). -2 and 0 are not documented. There is
  no `PAY_1`.
- `BILL_AMT1` to `BILL_AMT6`: bills from September back to April
- `PAY_AMT1` to `PAY_AMT6`: payments from September back to April

Categories: `SEX` male, female; `EDUCATION` graduate school, university, high school,
others; `MARRIAGE` married, single, others. The data have codes that the documentation
does not name: 0, 5 and 6 in `EDUCATION` (14, 280 and 51 rows) and 0 in `MARRIAGE` (54
rows). They are categories of their own, "undocumented 0" and so on.

With `paper_split=True` the three columns hold the authors' numbered categories, which
come from subtracting the lowest code and clipping. `SEX`: 0 male, 1 female.
`EDUCATION`: 0 undocumented, 1 graduate school, 2 university, 3 all others, high school
included. `MARRIAGE`: 0 undocumented, 1 married, 2 single or others. The authors' split
has 27000 rows to train and 3000 to test.

Origin: UCI Machine Learning Repository, dataset 350. Yeh and Lien, "The comparisons of
data mining techniques for the predictive accuracy of probability of default of credit
card clients", Expert Systems with Applications (2009). DOI 10.24432/C55S3H. Read from a
CSV export of the workbook, which was found equal to three others in every cell.

Licence: CC BY 4.0 according to projects that cite the page of the repository, which was
not consulted.

Cautions:

- Sex, age and marital status are sensitive, and in many places it is illegal to base
  credit on them. The clients of one bank in 2005 tell little about others. Do not use
  the data, or models of them, to decide about people.
- 35 rows repeat an earlier row.
"""


def fetch_credit_default(
    *,
    data_home=None,
    download_if_missing=True,
    as_frame=True,
    return_X_y=False,
    paper_split=False,
    n_retries=3,
    delay=1.0,
):
    """Load Credit: predict default on a credit card (binary classification).

    30000 rows, 20 numbers and 3 categories. See `DESCR` for what the data should not be
    used for.

    Parameters
    ----------
    data_home : str, path-like or None, default=None
        Folder to look in first, and to download to. Next come the folder that the
        environment variable `SKLEARN_CLUE_DATA` names, which is only read, and the
        folder `sklearn_clue` of scikit-learn's data home, which takes downloads if
        `data_home` is None.
    download_if_missing : bool, default=True
        If False, raise a `FileNotFoundError` if the data are in none of these folders.
    as_frame : bool, default=True
        If True, give pandas objects, with categories as such. If False, give NumPy
        arrays of floats, in which a category is the code that `categories` explains.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`, or, with
        `paper_split=True`, `data_train`, `data_test`, `target_train` and `target_test`:
        the order of :func:`~sklearn.model_selection.train_test_split`.
    paper_split : bool, default=False
        If True, add the authors' split, 27000 rows to train and 3000 to test, with
        their numbered categories in place of the documented ones. They merge high
        school with other education and single with other marital status.
    n_retries : int, default=3
        How often a broken download is continued before the next address is tried.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : {DataFrame, ndarray} of shape (30000, 23)
            Inputs.
        target : {Series, ndarray} of shape (30000,)
            1 if the client did not pay in the next month, else 0.
        data_train, target_train, data_test, target_test
            Only with `paper_split=True`.
        frame : DataFrame or None
            Inputs and target in one table; None with `as_frame=False`.
        feature_names, target_names : list of str
            Names of the columns.
        categories : dict of str to list
            The categories of each categorical column. Where they are codes in an
            array, a code is a position in this list.
        DESCR : str
            Origin, licence as far as known, and cautions. Please read it.

    Examples
    --------
    >>> from sklearn_clue.datasets import fetch_credit_default
    >>> credit = fetch_credit_default()  # doctest: +SKIP
    >>> credit.categories["MARRIAGE"]  # doctest: +SKIP
    ['married', 'single', 'others', 'undocumented 0']
    """
    content = read(CREDIT_FILE, data_home, download_if_missing, n_retries, delay)
    table = pd.read_csv(io.BytesIO(content), header=1, index_col="ID")
    y = table.pop("default payment next month")
    split = None
    if paper_split:
        split = _first_of_ten_folds(len(table))
        for name, n_levels in _CREDIT_N_LEVELS.items():
            codes = (table[name] - table[name].min()).clip(upper=n_levels - 1)
            table[name] = codes.astype("category")
    else:
        for name, meanings in _CREDIT_CODES.items():
            table[name] = pd.Categorical(
                table[name].map(meanings), categories=list(meanings.values())
            )
    return _answer(
        table, y, split, CREDIT_DESCR, as_frame=as_frame, return_X_y=return_X_y
    )


# MNIST --------------------------------------------------------------------------------

# The mirrors first, since the original address does not always answer. All of them
# serve the same bytes.
_MNIST_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
# Name, checksum of the content, checksum of the gzipped file as served.
MNIST_FILES = tuple(
    DataFile(name, content, tuple(Source(url + name, served) for url in _MNIST_URLS))
    for name, content, served in (
        (
            "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
)

_MNIST_PIXELS = [f"pixel_{row}_{column}" for row in range(28) for column in range(28)]

MNIST_DESCR = """\
Handwritten digits (MNIST)
--------------------------

70000 images of 28 x 28 pixels, grey values from 0 (paper) to 255 (ink), one row each,
line after line of the image. The target is the digit. The first 60000 rows are the
training set and the last 10000 the test set, in the order of the files.

The paper divides the grey values by 255 and takes them for probabilities. They are left
as they are here; `VAEEncoder(image_shape=(28, 28))` does the same with them.

Origin: LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/. Made from digits of
the National Institute of Standards and Technology.

Licence: CC BY-SA 3.0, copyright LeCun and Cortes, according to the documentation of
Keras. Some catalogues list other terms.

Cautions:

- Some labels are wrong or a matter of taste: part of the uncertainty is the data's own.
- Writers of the test set are others than those of the training set, so both are kept
  apart. A new random split would be easier than the usual one.
"""


def fetch_mnist(
    *,
    data_home=None,
    download_if_missing=True,
    as_frame=False,
    return_X_y=False,
    paper_split=False,
    n_retries=3,
    delay=1.0,
):
    """Load MNIST: tell handwritten digits apart (classification).

    70000 images of 28 x 28 pixels. `data.reshape(-1, 28, 28)` gives them their shape.

    Parameters
    ----------
    data_home : str, path-like or None, default=None
        Folder to look in first, and to download to. Next come the folder that the
        environment variable `SKLEARN_CLUE_DATA` names, which is only read, and the
        folder `sklearn_clue` of scikit-learn's data home, which takes downloads if
        `data_home` is None.
    download_if_missing : bool, default=True
        If False, raise a `FileNotFoundError` if the data are in none of these folders.
    as_frame : bool, default=False
        If True, give pandas objects. If False, give NumPy arrays.
    return_X_y : bool, default=False
        If True, return `data` and `target` instead of a `Bunch`, or, with
        `paper_split=True`, `data_train`, `data_test`, `target_train` and `target_test`:
        the order of :func:`~sklearn.model_selection.train_test_split`.
    paper_split : bool, default=False
        If True, add the usual split: the first 60000 rows to train and the last 10000
        to test.
    n_retries : int, default=3
        How often a broken download is continued before the next address is tried.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With these attributes:

        data : {DataFrame, ndarray} of shape (70000, 784)
            Grey values from 0 to 255, of dtype uint8.
        target : {Series, ndarray} of shape (70000,)
            Digits.
        data_train, target_train, data_test, target_test
            Only with `paper_split=True`.
        frame : DataFrame or None
            Inputs and target in one table; None with `as_frame=False`.
        feature_names, target_names : list of str
            Names of the columns.
        DESCR : str
            Origin, licence as far as known, and cautions. Please read it.

    Examples
    --------
    >>> from sklearn_clue.datasets import fetch_mnist
    >>> mnist = fetch_mnist(paper_split=True)  # doctest: +SKIP
    >>> mnist.data_train.shape, mnist.data_test.shape  # doctest: +SKIP
    ((60000, 784), (10000, 784))
    """
    train_images, test_images, train_digits, test_digits = (
        np.frombuffer(
            read(file, data_home, download_if_missing, n_retries, delay), np.uint8
        )
        for file in MNIST_FILES
    )
    # The header of an IDX file is 4 bytes and 4 more for each axis.
    images = np.concatenate([train_images[16:], test_images[16:]]).reshape(-1, 784)
    digits = np.concatenate([train_digits[8:], test_digits[8:]]).astype(np.int64)
    n_train = len(train_digits) - 8
    return _answer(
        pd.DataFrame(images, columns=_MNIST_PIXELS, copy=False),
        pd.Series(digits, name="digit"),
        (slice(0, n_train), slice(n_train, None)) if paper_split else None,
        MNIST_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )
