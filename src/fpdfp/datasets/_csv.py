"""Reading CSV and TSV files, a block of lines at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets import _packed, _table
from fpdfp.datasets._table import Choice, Kind, Table
from fpdfp.errors import DataSetError

#: The number of fields that are held as text at a time.
FIELDS = 1 << 15


class Lines(NamedTuple):
    """A block of rows: the fields of each column, and the line that each row ends on."""

    columns: list[tuple[str, ...]]
    numbers: list[int]


class _FoundTextError(Exception):
    """A column that held numbers, or true and false, so far holds text after all."""


def read(path: Path, delimiter: str, choice: Choice) -> tuple[Array, Array, Array | None, tuple[str, ...]]:
    """Return X, y, the sites and the names of the features.

    The type of a column is that of its first block. If a later block disagrees, the column is text, and the file is
    read again; this is rare, and the alternative would be to keep the whole file as text.
    """
    kinds: dict[int, Kind] = {}
    while True:
        try:
            table = _attempt(path, delimiter, choice, kinds)
        except _FoundTextError:
            continue
        y, sites = table.labels(), table.sites()
        X, names = table.features()
        return X, y, sites, names


def _attempt(path: Path, delimiter: str, choice: Choice, kinds: dict[int, Kind]) -> Table:
    with _packed.unpack(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            return _fill(path, reader, choice, kinds)
        except csv.Error as error:
            raise DataSetError(f"{path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise DataSetError(f"{path}, after line {reader.line_num}: not UTF-8 text: {error}") from None


def _fill(path: Path, reader: Any, choice: Choice, kinds: dict[int, Kind]) -> Table:
    header = next((row for row in reader if row), None)
    if header is None:
        raise DataSetError(f"{path} is empty: its first line must name the columns")
    columns = _table.choose(path, [name.strip() for name in header], choice)
    table: Table | None = None
    for lines in _blocks(path, reader, len(header)):
        parsed = {j: _parse(path, columns.names[j], lines, j) for j in columns.wanted}
        if columns.site is not None:
            parsed[columns.site] = _exact(*parsed[columns.site])
        if table is None:
            for j, (kind, _) in parsed.items():
                kinds.setdefault(j, kind)
            table = Table(path, columns, kinds)
        block: dict[int, Array] = {}
        for j, (kind, numbers) in parsed.items():
            if kind == kinds[j] != "text":
                block[j] = numbers
                continue
            if j in columns.features and choice.categories == "error":
                raise _table.refuse_text(path, columns.names[j], _example(lines, j), lines.columns[j])
            if kinds[j] != "text":
                kinds[j] = "text"
                raise _FoundTextError
            block[j] = table.codes(j, [field.strip() for field in lines.columns[j]])
        table.add(block)
    if table is None:
        table = Table(path, columns, dict.fromkeys(columns.wanted, "number"))
    return table


def _blocks(path: Path, reader: Any, width: int) -> Iterator[Lines]:
    """Yield the rows after the header, so many at a time; blank lines do not count."""
    most = max(FIELDS // width, 1)
    rows: list[list[str]] = []
    numbers: list[int] = []
    for row in reader:
        if len(row) != width:
            if not row:
                continue
            raise DataSetError(
                f"{path}, line {reader.line_num}: {len(row)} fields, but the header names {width} columns"
            )
        rows.append(row)
        numbers.append(reader.line_num)
        if len(rows) == most:
            yield Lines(list(zip(*rows, strict=True)), numbers)
            rows, numbers = [], []
    if rows:
        yield Lines(list(zip(*rows, strict=True)), numbers)


def _parse(path: Path, name: str, lines: Lines, j: int) -> tuple[Kind, Array]:
    """Return what a column holds, and its numbers, none for text; refuse what is missing or infinite."""
    fields = lines.columns[j]
    numbers = _floats(fields)
    if numbers is None:
        _refuse_missing(path, name, fields, lines.numbers)
        if {field.strip().casefold() for field in set(fields)} <= {"true", "false"}:
            return "boolean", np.array([field.strip().casefold() == "true" for field in fields], dtype=np.float64)
        return "text", np.empty(0)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        _refuse_missing(path, name, fields, lines.numbers)
        raise DataSetError(
            f"{path}, line {lines.numbers[bad[0]]}: column {name!r} holds {fields[bad[0]].strip()!r}; "
            "values must be finite"
        )
    return "number", numbers


def _exact(kind: Kind, names: Array) -> tuple[Kind, Array]:
    """Return names that are numbers, unless they are so large that two could become one: those stay text."""
    return ("text" if (abs(names) >= _table.LARGEST).any() else kind), names


def _floats(fields: Sequence[str]) -> Array | None:
    if "_" in "".join(fields):  # float() takes 1_000 for a number; in a table it is a name
        return None
    try:
        return np.fromiter(map(float, fields), dtype=np.float64, count=len(fields))
    except ValueError:
        return None


def _refuse_missing(path: Path, name: str, fields: Sequence[str], numbers: Sequence[int]) -> None:
    words = {field for field in set(fields) if field.strip().casefold() in _table.MISSING}
    if words:
        where = next(i for i, field in enumerate(fields) if field in words)
        raise DataSetError(
            f"{path}, line {numbers[where]}: column {name!r} has no value ({fields[where]!r}); "
            "fill in or leave out what is missing"
        )


def _example(lines: Lines, j: int) -> str:
    """Return the first field of a column that is neither a number nor true or false, and its line."""
    for field, number in zip(lines.columns[j], lines.numbers, strict=True):
        if _floats([field]) is None and field.strip().casefold() not in ("true", "false"):
            return f"{field.strip()!r} on line {number}"
    return f"true or false beside numbers, by line {lines.numbers[-1]}"
