"""Tables of named columns: which columns are what, and rows that arrive block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets import _identifiers
from fpdfp.errors import ArgumentError, DataSetError

Kind = Literal["number", "boolean", "text"]

#: Text that stands for a value that is not there, whatever the case of its letters.
MISSING = frozenset({"", "na", "nan", "null"})
#: Larger integers are not distinct as floats.
LARGEST = 2.0**53
#: A column with more distinct values does not hold categories but names, dates or the like.
MOST_CATEGORIES = 10_000


class Choice(NamedTuple):
    """A user's choices for a table: the columns of labels and of sites, those to drop, how to treat text."""

    target: str
    site: str | None
    drop: tuple[str, ...]
    categories: str


class Columns(NamedTuple):
    """The names of a table's columns, and the numbers of those that are wanted."""

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
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataSetError(f"{path} names more than one column {_list(repeated)}: give every column its own name")
    numbers = {name: i for i, name in enumerate(names)}
    for argument, asked in (("target", [choice.target]), ("site", [choice.site]), ("drop", choice.drop)):
        for name in asked:
            if name is not None and name not in numbers:
                raise ArgumentError(f"{argument}:", f"{path} has no column {name!r}; its columns are {_list(names)}")
    left_out = {*choice.drop, choice.target, choice.site}
    features = tuple(i for i, name in enumerate(names) if name not in left_out)
    if not features:
        raise ValueError(f"{path} has no columns left for the features: its columns are {_list(names)}")
    return Columns(
        tuple(names), numbers[choice.target], None if choice.site is None else numbers[choice.site], features
    )


def refuse_text(path: Path, name: str, example: str, seen: Sequence[str] = ()) -> ValueError:
    """Return the error for a column of features that holds text, of which some values may be known."""
    texts = {text.strip() for text in seen}
    why = _identifiers.reason(name, texts, len(seen)) if seen else None
    if why is None and _identifiers.are_dates(texts):
        why = "holds dates"
    if why is None and _identifiers.identifies(name):
        why = "has the name of an identifier"
    if why is not None:
        return ValueError(
            f"{path}: column {name!r} {why} ({example}), but features must be numbers: "
            + _identifiers.advice(name, why)
        )
    return ValueError(
        f"{path}: column {name!r} holds text ({example}), but features must be numbers: "
        f'categories="onehot" makes 0/1 columns of it, drop=({name!r},) leaves it out'
    )


class Table:
    """Rows that arrive block by block; in the end X, y and sites.

    Numbers are held as floats and text as codes, so that the memory is near that of the numbers.

    Parameters
    ----------
    path
        The file, for messages.
    columns
        The columns of the file.
    kinds
        What each wanted column holds.
    """

    def __init__(self, path: Path, columns: Columns, kinds: Mapping[int, Kind]) -> None:
        self._path = path
        self._columns = columns
        self._kinds = kinds
        self._numbers = [j for j in columns.features if kinds[j] != "text"]
        self._texts = [j for j in columns.features if kinds[j] == "text"]
        self._codes: dict[int, dict[str, int]] = {j: {} for j in columns.wanted if kinds[j] == "text"}
        self._values = np.empty((0, len(self._numbers)))
        self._rows = 0
        self._categories: dict[int, list[Array]] = {j: [] for j in self._texts}
        self._targets: list[Array] = []
        self._sites: list[Array] = []

    def codes(self, j: int, values: Sequence[str]) -> Array:
        """Return the code of each text in column j; texts that are new get new codes."""
        known = self._codes[j]
        codes = np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int32)
        if len(known) > MOST_CATEGORIES and j in self._texts:
            name = self._columns.names[j]
            raise ValueError(
                f"{self._path}: column {name!r} holds more than {MOST_CATEGORIES:,} distinct texts, too many to make "
                f"0/1 columns of; drop=({name!r},) leaves it out"
            )
        return codes

    def add(self, block: Mapping[int, Array]) -> None:
        """Take a block of rows: for every wanted column its numbers or codes."""
        start, end = self._rows, self._rows + len(block[self._columns.target])
        if end > len(self._values):  # a large array grows where it lies, so that no numbers are held twice
            self._values.resize((end + end // 8, len(self._numbers)), refcheck=False)
        for k, j in enumerate(self._numbers):
            self._values[start:end, k] = block[j]
        for j in self._texts:
            self._categories[j].append(block[j])
        self._rows = end
        self._targets.append(block[self._columns.target])
        if self._columns.site is not None:
            self._sites.append(block[self._columns.site])

    def labels(self) -> Array:
        """Return y: floats, or text."""
        if not self._targets:
            raise DataSetError(f"{self._path} holds no rows")
        return self._whole(self._columns.target, self._targets)

    def sites(self) -> Array | None:
        """Return who holds each row: whole numbers, other numbers, or text."""
        if self._columns.site is None:
            return None
        sites = self._whole(self._columns.site, self._sites)
        whole = sites.dtype.kind == "f" and (sites == np.rint(sites)).all() and (abs(sites) < LARGEST).all()
        return sites.astype(np.int64) if whole else sites

    def features(self) -> tuple[Array, tuple[str, ...]]:
        """Return X and the names of its columns."""
        self._values.resize((self._rows, len(self._numbers)), refcheck=False)
        if not self._texts:
            return self._values, tuple(self._columns.names[j] for j in self._numbers)
        names: list[str] = []
        starts: dict[int, int] = {}
        orders: dict[int, list[str]] = {}
        for j in self._columns.features:
            starts[j] = len(names)
            name = self._columns.names[j]
            if j in self._categories:
                why = _identifiers.reason(name, self._codes[j], self._rows)
                if why is not None:
                    raise ValueError(
                        f'{self._path}: column {name!r} {why}, so categories="onehot" does not apply to it: '
                        + _identifiers.advice(name, why)
                    )
                orders[j] = sorted(self._codes[j])
                names += [f"{name}={value}" for value in orders[j]]
            else:
                names.append(name)
        X = np.zeros((self._rows, len(names)))
        X[:, [starts[j] for j in self._numbers]] = self._values
        for j, values in orders.items():
            ranks = np.empty(len(values), dtype=np.int64)
            ranks[[self._codes[j][value] for value in values]] = np.arange(len(values))
            X[np.arange(self._rows), starts[j] + ranks[np.concatenate(self._categories[j])]] = 1.0
        return X, tuple(names)

    def _whole(self, j: int, parts: list[Array]) -> Array:
        whole = np.concatenate(parts)
        if self._kinds[j] != "text":
            return whole
        values: Array = np.array(list(self._codes[j]))  # in the order of their codes
        texts: Array = values[whole]
        return texts


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown + (f", … ({len(names)} in all)" if len(names) > 20 else "")
