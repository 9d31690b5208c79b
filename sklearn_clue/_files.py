"""Tables from files as people have them: separators, encodings, and numbers as text.

All values of a text file are read as text, with the line that they stand on, and turned
into numbers column by column. What cannot be read is told with its line and column.
"""

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_clue import _words

__all__ = []

MISSING = {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A", "?"}
_SEPARATORS = (",", ";", "\t", "|")
READERS = {".parquet": "read_parquet", ".xlsx": "read_excel", ".xls": "read_excel"}
_SAMPLE = 1 << 16  # characters that tell the separator
_MOSTLY = 0.9  # numbers in a column above which the rest are mistakes

_NAMED = re.compile(r'"?sep=(.)"?\r?\n')  # what Excel writes above the names
_SIGNS = "$€£%"  # of currencies and shares, around a number
_BLANK_THOUSANDS = re.compile(  # 1 234 567,8
    r"[+-]?\d{1,3}([ '\u00a0\u202f]\d{3})+([.,]\d+)?"
)
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")  # 3,14
_COMMA_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")  # 1,234.5
_POINT_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")  # 1.234,5


class FileError(ValueError):
    """A file that cannot be read as a table."""


class TextTable:
    """A text file with one line of names and one record per row.

    Parameters
    ----------
    path : path-like
        The file, which gzip may have packed.

    names : list of str, default=None
        Names of the columns of a file that has no line of names.

    Attributes
    ----------
    names : list of str
        Names of the columns, made unique.

    n_lines : int or None
        Line ends in the file, if they were counted.

    notes : list of str
        What the user should know of how it was read.
    """

    def __init__(self, path, names=None):
        self.path, self.notes, self.n_lines = Path(path), [], None
        self._has_names = names is None
        self.encoding = self._find_encoding()
        with self._open() as file:
            sample = file.read(_SAMPLE)
        if not sample.strip():
            raise FileError(f"{self.path} is empty: a line of names is needed.")
        named = _NAMED.match(sample)
        self._n_skipped = 0 if named is None else 1
        self.separator, n_usual = _find_separator(
            sample[named.end() :] if named else sample
        )
        if named:
            self.separator = named[1]
        records = self._records()
        self.names = list(names) if names else self._read_names(next(records)[1])
        if self._has_names and len(self.names) < n_usual:
            raise FileError(
                f"{self.path}, line 1 has {_words.count(len(self.names), 'field')}, "
                f"and most lines have {n_usual}. The first line must hold the names "
                "of the columns: remove what stands above them."
            )
        # By the first rows for all of the file, so that pieces of it agree.
        some = [field for _, record in islice(records, 200) for field in record]
        has_commas = any(_has_decimal_comma(field.strip()) for field in some)
        self.has_commas = self.separator != "," and has_commas

    def _open(self):
        return io.TextIOWrapper(self._open_bytes(), encoding=self.encoding, newline="")

    def _open_bytes(self):
        with open(self.path, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        return (gzip.open if is_packed else open)(self.path, "rb")

    def _find_encoding(self):
        """UTF-8 where the bytes are that, by a mark UTF-16, and else Western."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            with self._open_bytes() as file:
                start = file.read(4)
                if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                file.seek(0)
                n_lines = 0
                while block := file.read(1 << 20):
                    if b"\0" in block:
                        raise FileError(
                            f"{self.path} is not a text file. Save it as CSV, or as "
                            ".parquet or .xlsx."
                        )
                    decoder.decode(block)
                    n_lines += block.count(b"\n")
                decoder.decode(b"", final=True)
                self.n_lines = n_lines
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"{self.path} cannot be read: {reason}.") from error
        except UnicodeDecodeError:
            self.notes.append("the file is not UTF-8 and was read as Windows-1252")
            return "cp1252"
        return "utf-8-sig"

    def _records(self):
        """Line on which each record begins, and its fields."""
        with self._open() as file:
            for _ in range(self._n_skipped):
                file.readline()
            blanks = self.separator == " "  # of which several separate like one
            reader = csv.reader(
                file, delimiter=self.separator, skipinitialspace=blanks, strict=True
            )
            line = 1 + self._n_skipped
            try:
                for record in reader:
                    if blanks and record and not record[-1]:
                        record.pop()  # after blanks at the end of a line
                    if any(field.strip() for field in record):
                        yield line, record
                    line = reader.line_num + 1 + self._n_skipped
            except (csv.Error, UnicodeError) as error:
                raise FileError(
                    f"{self.path}, line {line}: {error}. Look for a quotation mark "
                    "that is not closed."
                ) from error

    def _read_names(self, first):
        if all(_PLAIN.fullmatch(name.strip()) for name in first):
            raise FileError(
                f"{self.path}, line 1 holds numbers only: {', '.join(first[:4])}. Put "
                "a line with the names of the columns above it, or pass --names."
            )
        if values := [name for name in map(str.strip, first) if _PLAIN.fullmatch(name)]:
            self.notes.append(
                f"line 1 was read as the names of the columns, such as {values[0]!r}; "
                "if it is a row, pass --names"
            )
        names, repeated = [], []
        for position, name in enumerate(first, start=1):
            name = name.strip() or f"column {position}"
            count = 2
            if name in names:
                repeated.append(name)
            unique = name
            while unique in names:
                unique, count = f"{name}.{count}", count + 1
            names.append(unique)
        if repeated:
            again = ", ".join(map(repr, dict.fromkeys(repeated)))
            self.notes.append(f"columns of the same name were numbered: {again}")
        return names

    def chunks(self, size=None):
        """Read frames of text, whose index says on which line each row begins.

        Parameters
        ----------
        size : int, default=None
            Rows of a frame; None reads all at once.

        Yields
        ------
        frame : DataFrame of str
            Some of the rows, without blanks around values.
        """
        lines, rows, records = [], [], self._records()
        if self._has_names:
            next(records)
        for line, record in records:
            if len(record) != len(self.names):
                others = "the first line" if self._has_names else "--names"
                raise FileError(
                    f"{self.path}, line {line} has "
                    f"{_words.count(len(record), 'field')}, and {others} "
                    f"{len(self.names)}. Put quotation marks around fields that "
                    f"hold {self.separator!r}."
                )
            lines.append(line)
            rows.append([field.strip() for field in record])
            if len(rows) == size:
                yield pd.DataFrame(rows, index=lines, columns=self.names, dtype=object)
                lines, rows = [], []
        if rows or size is None:
            yield pd.DataFrame(rows, index=lines, columns=self.names, dtype=object)

    def number_forms(self, values):
        """Each value as Python writes numbers, or None where it is none."""
        forms = []
        has_other = self.separator == ","  # so a comma within a number is no point
        for value in values:
            if value and (value[0] in _SIGNS or value[-1] in _SIGNS):
                value = value.strip(_SIGNS + " \u00a0")
            if _BLANK_THOUSANDS.fullmatch(value):
                value = re.sub("[ '\u00a0\u202f]", "", value)
            if self.has_commas and _POINT_THOUSANDS.fullmatch(value):
                value = value.replace(".", "").replace(",", ".")
            elif _COMMA_THOUSANDS.fullmatch(value) and (has_other or "." in value):
                value = value.replace(",", "")
            elif not has_other and _COMMA.fullmatch(value):
                value = value.replace(",", ".")
            forms.append(value if _PLAIN.fullmatch(value) else None)
        return forms


def _find_separator(sample):
    """The separator that splits most lines alike, and into how many fields."""
    best, best_score = ",", (0, 1)
    lines = sample.splitlines(keepends=True)
    if len(sample) == _SAMPLE:
        lines = lines[:-1] or lines  # the last one may be cut
    for separator in (*_SEPARATORS, " "):
        if separator == " " and best_score[0] > 0:
            break  # blanks may be part of the text
        lengths = []
        try:
            for record in csv.reader(
                lines, delimiter=separator, skipinitialspace=separator == " "
            ):
                if record:
                    lengths.append(len(record))
        except csv.Error:
            continue
        (usual, n_alike), *_ = Counter(lengths).most_common(1)
        score = (round(n_alike / len(lengths), 2) if usual > 1 else 0, usual)
        if score > best_score:
            best, best_score = separator, score
    return best, best_score[1]


def read_table(path, as_text=(), names=None):
    """Read a whole table from a CSV, TSV, Parquet or Excel file.

    Parameters
    ----------
    path : path-like
        The file; its ending tells what it is, and whatever is not known is text.

    as_text : collection of str
        Columns that are categories even if they look like numbers.

    names : list of str, default=None
        Names of the columns of a text file that has no line of names.

    Returns
    -------
    table : DataFrame
        Numbers as numbers; the index counts rows from 1.

    notes : list of str
        What the user should know of how it was read.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        text = TextTable(path, names)
        (frame,) = text.chunks()
        table = typed(frame, text, as_text)
        notes = text.notes
    else:
        table, notes = _read_by_pandas(path, reader), []
        table = table.astype({name: str for name in as_text if name in table})
    table.index = pd.RangeIndex(1, len(table) + 1)
    return table, notes


def _read_by_pandas(path, reader):
    try:
        table = getattr(pd, reader)(path)
    except ImportError as error:
        raise FileError(
            f"Reading {path.suffix} files needs one more package: {error} Or save the "
            "table as CSV."
        ) from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    table.columns = [str(name) for name in table.columns]
    return table


def typed(frame, text, as_text=()):
    """Turn text into numbers, column by column.

    Parameters
    ----------
    frame : DataFrame of str
        The index says on which line each row begins.

    text : TextTable
        Where it comes from, which tells how numbers are written.

    as_text : collection of str
        Columns that stay text.

    Returns
    -------
    table : DataFrame
        Of floats, integers and text, with None or NaN where a value is missing.
    """
    columns = {}
    for name, values in frame.items():
        values = values.to_numpy(dtype=object)
        known = np.array([value not in MISSING for value in values], dtype=bool)
        forms = [] if name in as_text else text.number_forms(values[known])
        share = np.mean([form is not None for form in forms]) if forms else 0
        if share == 1:
            columns[name] = _numbers(forms, known)
        elif share >= _MOSTLY:
            wrong = next(i for i, form in enumerate(forms) if form is None)
            line = frame.index[np.flatnonzero(known)[wrong]]
            raise FileError(
                f"{text.path}, line {line}, column {name!r}: {values[known][wrong]!r} "
                f"is not a number, and {_words.percent(share)} of the column are. "
                "Correct it, leave it empty if it is missing, or pass "
                f"--category {name!r} if the column is text."
            )
        else:
            columns[name] = np.where(known, values, None)
    return pd.DataFrame(columns, index=frame.index, columns=frame.columns)


def _has_decimal_comma(value):
    """Whether a comma can be nothing else, or most likely is that: 3,14 or 1.234,5."""
    is_thousands = _POINT_THOUSANDS.fullmatch(value) and "," in value
    return bool(_COMMA.fullmatch(value) or is_thousands)


def _numbers(forms, known):
    numbers = np.full(len(known), np.nan)
    numbers[known] = np.array(forms, dtype=float)
    is_whole = known.all() and not any(set(form) & set(".eE") for form in forms)
    if is_whole and (np.abs(numbers) < 2**53).all():
        return numbers.astype(np.int64)
    return numbers
