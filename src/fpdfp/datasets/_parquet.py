"""Reading Parquet files through pyarrow, a batch of rows at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets import _identifiers, _table
from fpdfp.datasets._table import Choice, Kind, Table
from fpdfp.errors import DataSetError

#: How a Parquet file begins.
MAGIC = b"PAR1"
#: So many values are decoded at a time.
VALUES = 1 << 20


class Column(NamedTuple):
    """The values of one column in one batch, and where they are, for messages."""

    path: Path
    name: str
    start: int
    values: Any

    def refuse(self, bad: Array, what: str) -> None:
        """Raise an error that names the first of the rows that are marked, if any is."""
        where = np.flatnonzero(bad)
        if where.size:
            row = self.start + int(where[0]) + 1
            raise DataSetError(f"{self.path}, row {row}: column {self.name!r} {what}")


def read(path: Path, choice: Choice) -> tuple[Array, Array, Array | None, tuple[str, ...]]:
    """Return X, y, the sites and the names of the features."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"{path} is a Parquet file, and reading those needs pyarrow: pip install fpdfp[parquet]"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = _fill(path, file, choice)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataSetError(f"{path} cannot be read as a Parquet file: {error}") from error
    y, sites = table.labels(), table.sites()
    X, names = table.features()
    return X, y, sites, names


def _fill(path: Path, file: Any, choice: Choice) -> Table:
    schema = file.schema_arrow
    columns = _table.choose(path, schema.names, choice)
    kinds = {j: _kind(path, schema.field(j)) for j in columns.wanted}
    rows = max(VALUES // len(columns.wanted), 1)
    for j in columns.features:
        if kinds[j] == "text" and choice.categories == "error":
            name = columns.names[j]
            seen = next(file.iter_batches(batch_size=rows, columns=[name]), None)
            texts = [] if seen is None else [text for text in seen.column(0).to_pylist() if text is not None]
            raise _table.refuse_text(path, name, f"its type is {schema.field(j).type}", texts)
    table = Table(path, columns, kinds)
    start = 0
    for batch in file.iter_batches(batch_size=rows, columns=[columns.names[j] for j in columns.wanted]):
        block: dict[int, Array] = {}
        for j in columns.wanted:
            column = Column(path, columns.names[j], start, _plain(batch.column(columns.names[j])))
            column.refuse(_marks(column.values.is_null()), _MISSING)
            if kinds[j] == "text":
                block[j] = _codes(column, table, j)
            else:
                block[j] = _numbers(column, exact=j == columns.site)
        table.add(block)
        start += batch.num_rows
    return table


_MISSING = "has no value; fill in or leave out what is missing"


def _kind(path: Path, field: Any) -> Kind:
    """Say what a column holds by its type."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    numbers = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(test(kind) for test in numbers):
        return "number"
    if types.is_temporal(kind):
        advice = _identifiers.advice(field.name, "holds dates")
        raise ValueError(f"{path}: column {field.name!r} holds dates or times (its type is {field.type}): {advice}")
    raise ValueError(
        f"{path}: column {field.name!r} has type {field.type}, but numbers, booleans and text are accepted; "
        f"drop=({field.name!r},) leaves it out"
    )


def _plain(values: Any) -> Any:
    """Return the values themselves where they are stored by way of a dictionary, which may hold more than are used."""
    return values.dictionary_decode() if hasattr(values, "dictionary_decode") else values


def _marks(values: Any) -> Array:
    marks: Array = values.to_numpy(zero_copy_only=False)
    return marks


def _numbers(column: Column, *, exact: bool) -> Array:
    """Return floats; where they must be exact, because they are names, whole numbers stay whole."""
    from pyarrow import float64, types

    if exact and types.is_integer(column.values.type):
        whole: Array = column.values.to_numpy(zero_copy_only=False)
        return whole
    numbers: Array = column.values.cast(float64(), safe=False).to_numpy(zero_copy_only=False)
    column.refuse(np.isnan(numbers), _MISSING)
    column.refuse(np.isinf(numbers), "is infinite; values must be finite")
    return numbers


def _codes(column: Column, table: Table, j: int) -> Array:
    """Return the code of each text; the texts themselves are looked at once each."""
    encoded = column.values.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    places: Array = encoded.indices.to_numpy(zero_copy_only=False)
    missing = np.array([text.strip().casefold() in _table.MISSING for text in texts], dtype=bool)
    column.refuse(missing[places], _MISSING)
    codes: Array = table.codes(j, texts)[places]
    return codes
