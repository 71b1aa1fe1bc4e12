"""Detection of columns that are not features: identifiers, names and dates."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import DataWarning

#: A column with at most this many distinct values may be categories, however few rows there are.
FEW = 10
#: Words in the names of identifiers.
IDENTIFYING = frozenset(
    {
        *("id", "ids", "uid", "pid", "eid", "sid", "rid", "uuid", "guid", "mrn", "ssn", "identifier", "patid"),
        *("patientid", "subjid", "usubjid", "subjectid", "personid", "caseid", "recordid", "sampleid", "userid"),
    }
)
#: Words of the name of a column that may count upwards row by row and be a measurement nevertheless.
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


def identifies(name: str) -> bool:
    """Whether a column has the name of an identifier.

    >>> [identifies(name) for name in ("patient_id", "PatientID", "MRN", "steroid", "idle time")]
    [True, True, True, False, False]
    """
    return not IDENTIFYING.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word.lower() for word in re.split(r"[^A-Za-z]+", apart)]


def are_dates(texts: Collection[str]) -> bool:
    """Whether every text is a date, with or without a time of day."""
    return bool(texts) and all(_DATE.fullmatch(text.strip()) for text in texts)


def reason(name: str, texts: Collection[str], rows: int) -> str | None:
    """Return why the distinct texts of a column are not categories; None if they may be.

    Categories are values that many rows share. If there are at least half as many values as rows, or the column has the
    name of an identifier and all values differ, a 0/1 column for each value would describe single rows.
    """
    count = len(texts)
    if count > min(FEW, rows / 2) and are_dates(texts):
        return f"holds dates ({count:,} distinct ones in {rows:,} rows)"
    if (count > FEW and count >= rows / 2) or (identifies(name) and count == rows > 2):
        how_many = "a different value in every row" if count == rows else f"{count:,} distinct values in {rows:,} rows"
        return f"has {how_many}, as identifiers, names and free text have"
    return None


def advice(name: str, why: str) -> str:
    """Return what can be done with a column that is not accepted."""
    if why.startswith("holds dates"):
        return f"make a number of it, such as the days since some date or an age, or leave it out by drop=({name!r},)"
    return f"leave it out by drop=({name!r},)"


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
    words = _words(name)
    if (np.diff(column) == 1).all() and COUNTING.isdisjoint(words):
        return "counts the rows"
    if not (identifies(name) or column[0] > 18_000_000) or not (column == np.rint(column)).all():
        return None
    if identifies(name) and len(np.unique(column)) > FEW:
        return "looks like an identifier"
    years, months, days = column // 10_000, column // 100 % 100, column % 100
    dates = (years >= 1800) & (years < 2200) & (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)
    return f"looks like dates ({column[0]:.0f})" if dates.all() else None
