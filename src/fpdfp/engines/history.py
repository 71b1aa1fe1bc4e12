"""What happened, evaluation by evaluation."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array

#: What was sent so far: all of it, what evaluations have to do with it, and the rounds alone.
SENT = ("total_up", "total_down", "evaluation_up", "evaluation_down", "bits_up", "bits_down")
COLUMNS = ("round", "objective", *SENT, "step", "seconds")
#: The columns of methods that solve problems inside a round.
INNER = ("inner_clients", "inner_server", "inner_unsolved")
#: The names that metrics cannot have.
RESERVED = frozenset({*COLUMNS, *INNER, "violation"})
INTEGERS = frozenset({"round", *SENT, *INNER})


class History(Mapping[str, Array]):
    """The table of a run: a row for each evaluation, a column for each quantity.

    ``round`` is the number of rounds done. ``total_up`` and ``total_down`` are all bits that were sent so far, by all
    clients and to them, without those of the end; ``evaluation_up`` and ``evaluation_down`` are what evaluations have
    taken of them, which a run without a history would not send; ``bits_up`` and ``bits_down`` are those of the rounds
    alone. ``step`` is the step of the last round done; ``seconds`` is the time that the rounds took, without
    evaluations. Where g is infinite at Bx, ``objective`` takes g at the nearest point of its domain, and ``violation``
    is the largest distance of an entry of Bx from there. Where a method solves problems inside a round,
    ``inner_clients`` and ``inner_server`` are the steps that this took all clients and the server so far, and
    ``inner_unsolved`` counts the solves that did not reach their tolerance. Any metric that was asked for has a column
    of its own.

    Columns are arrays, by key or by name:

    >>> history = History()
    >>> history.append(dict.fromkeys(history, 0) | {"objective": 1.5, "step": 0.1})
    >>> history.objective
    array([1.5])
    >>> history["round"]
    array([0])
    >>> len(history), history.rows
    (10, 1)
    """

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        self._columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
        for name, values in (columns or {}).items():
            self._columns[name] = list(values)

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; every row has the same columns."""
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)

    @property
    def rows(self) -> int:
        """The number of evaluations."""
        return len(self._columns["round"])

    def last(self) -> dict[str, float]:
        """Return the latest row."""
        return {name: values[-1] for name, values in self._columns.items()}

    def __getitem__(self, name: str) -> Array:
        dtype = np.int64 if name in INTEGERS else np.float64
        return np.array(self._columns[name], dtype=dtype)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"history has no column {name!r}; it has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"History({self.rows} rows: {', '.join(self)})"

    def as_csv(self) -> str:
        """Return the table as CSV with a header line."""
        lines = io.StringIO(newline="")
        writer = csv.writer(lines)
        writer.writerow(self)
        writer.writerows(zip(*(self[name].tolist() for name in self), strict=True))
        return lines.getvalue()

    def to_csv(self, path: str | Path) -> None:
        """Write the table as a CSV file with a header line."""
        Path(path).write_text(self.as_csv(), newline="")
