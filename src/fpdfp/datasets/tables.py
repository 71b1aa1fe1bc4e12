"""Tables of named columns: which columns are what, which are not features, and the arrays that they become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import ArgumentError, DataSetError, DataWarning

Kind = Literal["number", "boolean", "text"]

#: Texts that stand for a missing value, in lower case.
MISSING = frozenset({"", "na", "nan", "null"})
#: Larger integers are not distinct as floats.
LARGEST = 2.0**53
#: A column with more distinct values does not hold categories but names, dates or the like.
MOST_CATEGORIES = 10_000
#: A column with at most this many distinct values may be categories, however few rows there are.
FEW = 10
#: Words in the names of identifiers.
IDENTIFYING = frozenset(
    {
        *("id", "ids", "uid", "pid", "eid", "sid", "rid", "uuid", "guid", "mrn", "ssn", "identifier", "patid"),
        *("patientid", "subjid", "usubjid", "subjectid", "personid", "caseid", "recordid", "sampleid", "userid"),
    }
)
#: Words in the names of measurements that may increase by one from row to row.
COUNTING = frozenset(
    {"year", "month", "week", "day", "hour", "minute", "second", "time", "date", "age", "dose", "step"}
)

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_TIME = r"(?:[T ]\s*\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:[ap]m|z|[+-]\d{2}:?\d{2})?)?"
_DATE = re.compile(
    r"(?:\d{4}[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])"  # 2024-03-01
    r"|(?:0?[1-9]|[12]\d|3[01])([-/.])(?:0?[1-9]|[12]\d|3[01])\1(?:\d{4}|\d{2})"  # 1.3.2024, 03/01/24
    rf"|\d{{1,2}}(?:st|nd|rd|th)?[-/. ]\s*{_MONTH}[-/. ,]\s*\d{{2,4}}"  # 1 March 2024
    rf"|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}){_TIME}",  # March 1, 2024
    re.IGNORECASE,
)


class Choice(NamedTuple):
    """A user's choices for a table: the columns of labels and of sites, those to drop, how to treat text."""

    target: str
    site: str | None
    drop: tuple[str, ...]
    categories: str


class Columns(NamedTuple):
    """The names of a table's columns, and the numbers of those that are read."""

    names: tuple[str, ...]
    target: int
    site: int | None
    features: tuple[int, ...]

    @property
    def wanted(self) -> list[int]:
        """The numbers of all columns that are read."""
        return sorted({*self.features, self.target, *([] if self.site is None else [self.site])})


def choose(path: Path, names: Sequence[str], choice: Choice) -> Columns:
    """Find the wanted columns in the header; raise an error for missing ones."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataSetError(f"{path} names more than one column {_list(repeated)}: give every column its own name")
    numbers = {name: i for i, name in enumerate(names)}
    for argument, asked in (("target", [choice.target]), ("site", [choice.site]), ("drop", choice.drop)):
        for name in asked:
            if name is not None and name not in numbers:
                raise ArgumentError(f"{argument}:", f"{path} has no column {name!r}; its columns are {_list(names)}")
    excluded = {*choice.drop, choice.target, choice.site}
    features = tuple(i for i, name in enumerate(names) if name not in excluded)
    if not features:
        raise ValueError(f"{path} has no columns left for the features: its columns are {_list(names)}")
    site = None if choice.site is None else numbers[choice.site]
    return Columns(tuple(names), numbers[choice.target], site, features)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown + (f", … ({len(names)} in all)" if len(names) > 20 else "")


class Table:
    """The rows of a table, filled column by column and block by block.

    Parameters
    ----------
    path
        The file, for messages.
    columns
        The columns of the file.
    kinds
        What each wanted column holds.
    rows
        The number of rows.
    """

    def __init__(self, path: Path, columns: Columns, kinds: Mapping[int, Kind], rows: int) -> None:
        self._path = path
        self._columns = columns
        self._place = {j: k for k, j in enumerate(j for j in columns.features if kinds[j] != "text")}
        self._values = np.empty((rows, len(self._place)))
        self._others: dict[int, list[Array]] = {j: [] for j in columns.wanted if j not in columns.features}
        self._codes = {j: np.empty(rows, dtype=np.int32) for j in columns.wanted if kinds[j] == "text"}
        self._texts: dict[int, dict[str, int]] = {j: {} for j in self._codes}

    def add_numbers(self, j: int, start: int, numbers: Array) -> None:
        """Set the numbers of column j from a row on."""
        if j in self._others:
            self._others[j].append(numbers)
        else:
            self._values[start : start + len(numbers), self._place[j]] = numbers

    def add_texts(self, j: int, start: int, codes: Array, texts: Sequence[str]) -> None:
        """Set the texts of column j from a row on: ``texts[code]`` for each code."""
        known = self._texts[j]
        code_of = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int32)
        if len(known) > MOST_CATEGORIES and j in self._columns.features:
            name = self._columns.names[j]
            raise ValueError(
                f"{self._path}: column {name!r} holds more than {MOST_CATEGORIES:,} distinct texts, too many to make "
                f"0/1 columns of; drop=({name!r},) leaves it out"
            )
        self._codes[j][start : start + len(codes)] = code_of[codes]

    def arrays(self) -> dict[str, Array | None]:
        """Return X, y, the sites and the names of the features."""
        y, site = self._column(self._columns.target), None
        if self._columns.site is not None:
            site = self._column(self._columns.site)
            if site.dtype.kind == "f" and (site == np.rint(site)).all() and (abs(site) < LARGEST).all():
                site = site.astype(np.int64)
        X, names = self._features()
        return {"X": X, "y": y, "site": site, "feature_names": np.array(names)}

    def _column(self, j: int) -> Array:
        if j not in self._codes:
            return np.concatenate(self._others[j])
        values: Array = np.array(list(self._texts[j]))[self._codes[j]]
        return values

    def _features(self) -> tuple[Array, list[str]]:
        """Return X, with a 0/1 column for each text of a column of texts, and the names of its columns."""
        columns = self._columns
        names: list[str] = []
        first: dict[int, int] = {}
        for j in columns.features:
            first[j], name = len(names), columns.names[j]
            if j in self._place:
                names.append(name)
                continue
            why = not_categories(name, self._texts[j], len(self._codes[j]))
            if why is not None:
                raise ValueError(
                    f'{self._path}: column {name!r} {why}, so categories="onehot" does not apply to it: '
                    + advice(name, why)
                )
            names += [f"{name}={text}" for text in sorted(self._texts[j])]
        if len(self._place) == len(columns.features):
            return self._values, names
        X = np.zeros((len(self._values), len(names)))
        X[:, [first[j] for j in self._place]] = self._values
        for j in first.keys() - self._place.keys():
            texts = self._texts[j]  # in the order of their codes
            rank = {text: i for i, text in enumerate(sorted(texts))}
            X[np.arange(len(X)), first[j] + np.array([rank[text] for text in texts])[self._codes[j]]] = 1.0
        return X, names


def has_identifier_name(name: str) -> bool:
    """Whether a column has the name of an identifier.

    >>> [has_identifier_name(name) for name in ("patient_id", "PatientID", "MRN", "steroid", "idle time")]
    [True, True, True, False, False]
    """
    return not IDENTIFYING.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word.lower() for word in re.split(r"[^A-Za-z]+", apart)]


def _are_dates(texts: Collection[str]) -> bool:
    """Whether every text is a date, with or without a time of day."""
    return bool(texts) and all(_DATE.fullmatch(text.strip()) for text in texts)


def not_categories(name: str, texts: Collection[str], rows: int) -> str | None:
    """Return why the distinct texts of a column are not categories; None if they may be.

    Categories are values that many rows share. If there are at least half as many values as rows, or the column has the
    name of an identifier and all values differ, a 0/1 column for each value would describe single rows.
    """
    count = len(texts)
    if count > min(FEW, rows / 2) and _are_dates(texts):
        return f"holds dates ({count:,} distinct ones in {rows:,} rows)"
    if (count > FEW and count >= rows / 2) or (has_identifier_name(name) and count == rows > 2):
        how_many = "a different value in every row" if count == rows else f"{count:,} distinct values in {rows:,} rows"
        return f"has {how_many}, as identifiers, names and free text have"
    return None


def advice(name: str, why: str) -> str:
    """Return what can be done with a column that is not accepted."""
    if why.startswith("holds dates"):
        return f"make a number of it, such as the days since some date or an age, or leave it out by drop=({name!r},)"
    return f"leave it out by drop=({name!r},)"


def text_error(path: Path, name: str, example: str, seen: Sequence[str] = ()) -> ValueError:
    """Return the error for a column of features that holds text; ``seen`` are its values, if they are known."""
    texts = {text.strip() for text in seen}
    why = not_categories(name, texts, len(seen)) if seen else None
    if why is None and _are_dates(texts):
        why = "holds dates"
    if why is None and has_identifier_name(name):
        why = "has the name of an identifier"
    what = (
        f"holds text ({example}), but features must be numbers: "
        f'categories="onehot" makes 0/1 columns of it, drop=({name!r},) leaves it out'
        if why is None
        else f"{why} ({example}), but features must be numbers: {advice(name, why)}"
    )
    return ValueError(f"{path}: column {name!r} {what}")


def warn_of_numbers(path: Path, names: Sequence[str], X: Array) -> None:
    """Warn of integer columns that count the rows, identify them, or are dates written as 20240301."""
    for j, name in enumerate(names):
        why = _suspicious(name, X[:, j])
        if why is not None:
            warn(
                f"{path}: column {name!r} {why}, and is used as a number; if it is not a measurement, leave it out by "
                f"drop=({name!r},)",
                DataWarning,
            )


def _suspicious(name: str, column: Array) -> str | None:
    if len(column) <= FEW or not (column[:100] == np.rint(column[:100])).all():
        return None
    if (np.diff(column) == 1).all() and COUNTING.isdisjoint(_words(name)):
        return "counts the rows"
    identifies = has_identifier_name(name)
    if not (identifies or column[0] > 18_000_000) or not (column == np.rint(column)).all():
        return None
    if identifies and len(np.unique(column)) > FEW:
        return "looks like an identifier"
    years, months, days = column // 10_000, column // 100 % 100, column % 100
    dates = (years >= 1800) & (years < 2200) & (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)
    return f"looks like dates ({column[0]:.0f})" if dates.all() else None
