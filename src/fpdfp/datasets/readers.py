"""Readers of LIBSVM files (scikit-learn), of CSV and TSV files (pandas) and of Parquet files (pyarrow).

The libraries parse; what they would accept in silence, or refuse without naming the place, is checked here.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets import tables
from fpdfp.datasets.files import unpack
from fpdfp.datasets.tables import Choice, Columns, Kind, Table
from fpdfp.errors import ArgumentError, DataSetError

#: How a Parquet file begins.
MAGIC = b"PAR1"
#: The number of rows of a CSV file, and of values of a Parquet file, that are parsed at a time.
ROWS = 1 << 12
VALUES = 1 << 20

# --- LIBSVM: ``label index:value index:value …``, indices from 1 ------------------------------------------------------


def read_libsvm(path: Path, n_features: int | None) -> tuple[Any, Array, str]:
    """Return X, y and the sha256 of the unpacked text."""
    from sklearn.datasets import load_svmlight_file

    digest = hashlib.sha256()
    with unpack(path, digest) as file:
        try:
            X, y, queries = load_svmlight_file(file, zero_based=False, query_id=True)
        except (ValueError, OverflowError) as error:
            raise _libsvm_error(path, error) from None
    if len(queries):
        raise _libsvm_error(path, None)
    if len(y) == 0:
        raise DataSetError(f"{path} holds no rows")
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise DataSetError(f"{path}, row {bad[0] + 1}: the label is {y[bad[0]]}; labels must be finite")
    bad = np.flatnonzero(~np.isfinite(X.data))
    if bad.size:
        row = int(np.searchsorted(X.indptr, bad[0], side="right"))
        raise DataSetError(
            f"{path}, row {row}: feature {X.indices[bad[0]] + 1} is {X.data[bad[0]]}; values must be finite"
        )
    return _with_columns(path, X, n_features), y, digest.hexdigest()


def _with_columns(path: Path, X: Any, n_features: int | None) -> Any:
    """Return X as a CSR array with the smallest indices that fit; by default the largest index is the last column."""
    import scipy.sparse

    largest = int(X.indices.max()) + 1 if X.nnz else 0
    if n_features is None:
        n_features = largest
        if n_features == 0:
            raise DataSetError(f"{path} holds no features: every row is a label alone")
    elif largest > n_features:
        row = int(np.searchsorted(X.indptr, int(X.indices.argmax()), side="right"))
        raise ArgumentError("n_features", f"is {n_features}, but row {row} of {path} has a feature of index {largest}")
    size = np.int32 if max(X.nnz, n_features) <= np.iinfo(np.int32).max else np.int64
    parts = (X.data, X.indices.astype(size), X.indptr.astype(size))
    return scipy.sparse.csr_array(parts, shape=(X.shape[0], n_features))


def _libsvm_error(path: Path, error: Exception | None) -> DataSetError:
    """Return the error for the first line that scikit-learn does not accept."""
    with unpack(path) as file:
        for number, line in enumerate(file, start=1):
            wrong = _libsvm_fault(line)
            if wrong is not None:
                return DataSetError(f"{path}, line {number}: {wrong}")
    return DataSetError(f"{path} cannot be read as a LIBSVM file: {error}")


def _libsvm_fault(line: bytes) -> str | None:
    """Return what is wrong with a line; None if nothing is."""
    label, *entries = [part.decode("utf-8", "replace") for part in line.partition(b"#")[0].split()] or ["0"]
    if "," in label:
        return f"the label {label!r} is a list; files with several labels a row are not supported"
    if not _parses(float, label):
        return f"the label {label!r} is not a number; a line must read 'label index:value index:value …'"
    previous = 0
    for entry in entries:
        index, colon, value = entry.partition(":")
        if index == "qid" and colon:
            return "rows grouped by query (qid) are not supported; remove the qid entries"
        if not colon or not _parses(int, index) or not _parses(float, value):
            return f"{entry!r} is not of the form index:value"
        number = int(index)
        if number < 1:
            return f"{entry!r} has index {number}, but indices count from 1"
        if number <= previous:
            return f"{entry!r} comes after index {previous}, but indices must increase"
        if number > np.iinfo(np.int32).max:
            return f"{entry!r} has an index above {np.iinfo(np.int32).max}"
        previous = number
    return None


def _parses(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


# --- CSV and TSV ------------------------------------------------------------------------------------------------------


def read_csv(path: Path, delimiter: str, choice: Choice) -> dict[str, Array | None]:
    """Return X, y, the sites and the names of the features.

    The first block decides the type of a column. If a later block disagrees, the column is text, and the file is read
    again; this is rare, and the alternative would be to keep the whole file as text.
    """
    lines = csv_rows(path, delimiter)
    _, header = next(lines, (0, None))
    if header is None:
        raise DataSetError(f"{path} is empty: its first line must name the columns")
    columns = tables.choose(path, [name.strip() for name in header], choice)
    rows = sum(1 for _ in lines)
    if rows == 0:
        raise DataSetError(f"{path} holds no rows")
    kinds: dict[int, Kind] = {}
    while True:
        table = _parse_csv(path, delimiter, choice, columns, kinds, rows)
        if table is not None:
            return table.arrays()


def csv_rows(path: Path, delimiter: str, *, strip: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each row and the line on which it ends, the header first; ``strip`` removes leading spaces.

    This refuses what pandas would accept: rows that are too short or too long, and text after a closing quote.
    """
    with unpack(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=strip)
        width = 0
        try:
            for row in reader:
                if not row or (len(row) == 1 and (row[0].isspace() or (strip and not row[0]))):
                    continue  # pandas skips blank lines as well
                width = width or len(row)
                if len(row) != width:
                    raise DataSetError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, but the header names {width} columns"
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise DataSetError(f"{path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise DataSetError(f"{path}, after line {reader.line_num}: not UTF-8 text: {error}") from None


def _parse_csv(
    path: Path, delimiter: str, choice: Choice, columns: Columns, kinds: dict[int, Kind], rows: int
) -> Table | None:
    """Return the table; None if a column turned out to be text, which ``kinds`` then says."""
    import pandas

    def place(row: Array, j: int) -> tuple[int, str]:
        """Return the line of the first marked row of the block, and its field in column j."""
        line, fields = next(itertools.islice(csv_rows(path, delimiter), start + int(row.argmax()) + 1, None))
        return line, fields[j]

    start, table = 0, None
    with (
        unpack(path) as file,
        pandas.read_csv(
            file,
            sep=delimiter,
            header=0,
            names=range(len(columns.names)),
            usecols=columns.wanted,
            # the names of sites are read as text: large integers are not distinct as floats
            dtype={j: str for j in columns.wanted if j == columns.site or kinds.get(j) == "text"},
            na_filter=False,
            chunksize=ROWS,
            low_memory=False,
            # before version 3.1 the last digit may be wrong by default
            float_precision=None if _version(pandas) >= (3, 1) else "round_trip",
            encoding="utf-8-sig",
        ) as frames,
    ):
        for frame in frames:
            found = {j: _parse_column(frame[j], kinds.get(j) == "text", j == columns.site) for j in columns.wanted}
            for j, (kind, values, texts) in found.items():
                kinds.setdefault(j, kind)
                bad = (
                    np.array([t.casefold() in tables.MISSING for t in texts])[values] if texts else ~np.isfinite(values)
                )
                if bad.any():
                    raise _cell_error(path, columns.names[j], *place(bad, j))
            if table is None:
                table = Table(path, columns, kinds, rows)
            for j, (kind, values, texts) in found.items():
                if (kind == "text" or kind != kinds[j]) and j in columns.features and choice.categories == "error":
                    strange = np.array([not _is_plain(text) for text in texts] or [False])[values if texts else [0]]
                    line, field = place(strange, j) if strange.any() else (0, "")
                    example = f"{field.strip()!r} on line {line}" if line else "true or false beside numbers"
                    seen = [texts[code] for code in values] if texts else []
                    raise tables.text_error(path, columns.names[j], example, seen)
                if kind != kinds[j]:
                    kinds[j] = "text"
                    return None
                if kind == "text":
                    table.add_texts(j, start, values, texts)
                else:
                    table.add_numbers(j, start, values)
            start += len(frame)
    if start != rows:
        raise DataSetError(f"{path}: {rows} rows have the right number of fields, but pandas reads {start}")
    return table


def _version(package: Any) -> tuple[int, ...]:
    return tuple(map(int, package.__version__.split(".")[:2]))


def _parse_column(column: Any, is_text: bool, exact: bool) -> tuple[Kind, Array, list[str]]:
    """Return what a column holds, and its numbers, or the codes of its texts and the texts."""
    import pandas

    if column.dtype.kind in "iufb":
        return "boolean" if column.dtype.kind == "b" else "number", column.to_numpy(dtype=np.float64), []
    codes, distinct = pandas.factorize(column)
    texts = [str(text).strip() for text in distinct]
    if is_text or any(text.casefold() in tables.MISSING for text in texts):
        return "text", codes, texts
    numbers = _floats(texts)
    if numbers is not None and not (exact and (abs(numbers) >= tables.LARGEST).any() and np.isfinite(numbers).all()):
        return "number", numbers[codes], []
    if {text.casefold() for text in texts} <= {"true", "false"}:
        return "boolean", np.array([float(text.casefold() == "true") for text in texts])[codes], []
    return "text", codes, texts


def _floats(texts: Sequence[str]) -> Array | None:
    """Return the numbers that texts stand for; None if one is not a number."""
    if any("_" in text for text in texts):  # float() takes 1_000 for a number; in a table it is a name
        return None
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return None


def _is_plain(text: str) -> bool:
    return _floats([text]) is not None or text.casefold() in ("true", "false")


def _cell_error(path: Path, name: str, line: int, field: str) -> DataSetError:
    what = f"holds {field.strip()!r}; values must be finite"
    if field.strip().casefold() in tables.MISSING:
        what = f"has no value ({field!r}); fill in or leave out what is missing"
    return DataSetError(f"{path}, line {line}: column {name!r} {what}")


# --- Parquet ----------------------------------------------------------------------------------------------------------


def read_parquet(path: Path, choice: Choice) -> dict[str, Array | None]:
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
            return _parse_parquet(path, file, choice).arrays()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataSetError(f"{path} cannot be read as a Parquet file: {error}") from error


def _parse_parquet(path: Path, file: Any, choice: Choice) -> Table:
    schema, rows = file.schema_arrow, file.metadata.num_rows
    columns = tables.choose(path, schema.names, choice)
    kinds = {j: _parquet_kind(path, schema.field(j)) for j in columns.wanted}
    for j in columns.features:
        if kinds[j] == "text" and choice.categories == "error":
            batch = next(file.iter_batches(batch_size=VALUES, columns=[columns.names[j]]), None)
            texts = [] if batch is None else [text for text in batch.column(0).to_pylist() if text is not None]
            raise tables.text_error(path, columns.names[j], f"its type is {schema.field(j).type}", texts)
    if rows == 0:
        raise DataSetError(f"{path} holds no rows")
    table = Table(path, columns, kinds, rows)
    together = max(VALUES // rows, 1)
    for first in range(0, len(columns.wanted), together):
        group = {j: columns.names[j] for j in columns.wanted[first : first + together]}
        block = file.read(columns=list(group.values()))
        for j, name in group.items():
            start = 0
            for chunk in block.column(name).chunks:
                # a dictionary may hold texts that no row has
                values = chunk.dictionary_decode() if hasattr(chunk, "dictionary_decode") else chunk
                _refuse(path, name, start, values.is_null().to_numpy(zero_copy_only=False), _NO_VALUE)
                if kinds[j] == "text":
                    _add_texts(path, name, table, j, start, values)
                else:
                    table.add_numbers(j, start, _numbers(path, name, start, values, exact=j == columns.site))
                start += len(chunk)
    return table


_NO_VALUE = "has no value; fill in or leave out what is missing"


def _refuse(path: Path, name: str, start: int, bad: Array, what: str) -> None:
    """Raise an error that names the first of the marked rows, if there is one."""
    if bad.any():
        raise DataSetError(f"{path}, row {start + int(bad.argmax()) + 1}: column {name!r} {what}")


def _parquet_kind(path: Path, field: Any) -> Kind:
    """Return what a column holds, by its type."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    numbers = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(test(kind) for test in numbers):
        return "number"
    if types.is_temporal(kind):
        advice = tables.advice(field.name, "holds dates")
        raise ValueError(f"{path}: column {field.name!r} holds dates or times (its type is {field.type}): {advice}")
    raise ValueError(
        f"{path}: column {field.name!r} has type {field.type}, but numbers, booleans and text are accepted; "
        f"drop=({field.name!r},) leaves it out"
    )


def _numbers(path: Path, name: str, start: int, values: Any, *, exact: bool) -> Array:
    """Return floats; where they must be exact, because they name sites, integers stay integers."""
    from pyarrow import float64, types

    if exact and types.is_integer(values.type):
        whole: Array = values.to_numpy(zero_copy_only=False)
        return whole
    numbers: Array = values.cast(float64(), safe=False).to_numpy(zero_copy_only=False)
    _refuse(path, name, start, np.isnan(numbers), _NO_VALUE)
    _refuse(path, name, start, np.isinf(numbers), "is infinite; values must be finite")
    return numbers


def _add_texts(path: Path, name: str, table: Table, j: int, start: int, values: Any) -> None:
    encoded = values.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    codes: Array = encoded.indices.to_numpy(zero_copy_only=False)
    _refuse(
        path, name, start, np.array([text.strip().casefold() in tables.MISSING for text in texts])[codes], _NO_VALUE
    )
    table.add_texts(j, start, codes, texts)
