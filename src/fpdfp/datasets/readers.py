"""Readers of LIBSVM files (scikit-learn), of CSV and TSV files (pandas) and of Parquet files (pyarrow).

The libraries parse; what they would accept in silence, or refuse without naming the place, is checked here.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import hashlib
import io
import itertools
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp._warn import warn
from fpdfp.errors import ArgumentError, DataSetError, DataWarning

#: How a Parquet file begins.
MAGIC = b"PAR1"
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

# --- Compressed files -------------------------------------------------------------------------------------------------

_MAGIC: tuple[tuple[bytes, str, Any], ...] = (
    (b"\xfd7zXZ\x00", "xz", lzma.open),
    (b"BZh", "bzip2", bz2.open),
    (b"\x1f\x8b", "gzip", gzip.open),
)
_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, OSError)


class _Digested(io.RawIOBase):
    """A stream that updates a digest with the bytes that are read from it."""

    def __init__(self, stream: Any, digest: Any) -> None:
        self._stream = stream
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._digest.update(memoryview(buffer)[:count])
        return count


@contextlib.contextmanager
def unpack(path: Path, digest: Any = None) -> Iterator[io.BufferedReader]:
    """Open a file for reading, decompressed if necessary; damage raises a ``DataSetError``.

    ``digest``, an object of :mod:`hashlib`, is updated with the decompressed bytes.
    """
    with path.open("rb") as file:
        first = file.read(8)
    kind, opener = next((how for magic, *how in _MAGIC if first.startswith(magic)), (None, open))
    try:
        with opener(path, "rb") as stream:
            # the buffer returns lines without a call into Python for each
            yield io.BufferedReader(stream if digest is None else _Digested(stream, digest), 1 << 20)
    except _DAMAGE as error:
        raise _damaged(path, kind, error) from error
    except (DataSetError, ValueError):
        # an error in the text may be damage that the checksum at the end of the file would have shown
        try:
            with opener(path, "rb") as stream:
                while kind is not None and stream.read(1 << 20):
                    pass
        except _DAMAGE as error:
            raise _damaged(path, kind, error) from error
        raise


def _damaged(path: Path, kind: str | None, error: BaseException) -> BaseException:
    if kind is None or (isinstance(error, OSError) and error.errno is not None):  # of the disk, not of the format
        return error
    return DataSetError(f"{path} is cut off or damaged: it starts as a {kind} file, but {error}")


def sha256(path: Path) -> str:
    """Return the digest of the unpacked file."""
    with unpack(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    """Return X, y, the sites and the names of the features."""
    lines = csv_rows(path, delimiter)
    _, header = next(lines, (0, None))
    if header is None:
        raise DataSetError(f"{path} is empty: its first line must name the columns")
    columns = choose(path, [name.strip() for name in header], choice)
    rows = sum(1 for _ in lines)
    if rows == 0:
        raise DataSetError(f"{path} holds no rows")
    frame = _parse_csv(path, delimiter, columns)
    if len(frame) != rows:
        raise DataSetError(f"{path}: {rows} rows have the right number of fields, but pandas reads {len(frame)}")

    def place(marked: Array, j: int) -> tuple[int, str]:
        """Return the line of the first marked row, and its field in column j."""
        line, fields = next(itertools.islice(csv_rows(path, delimiter), int(marked.argmax()) + 1, None))
        return line, fields[j]

    found = {j: _parse_column(frame.pop(j), exact=j == columns.site) for j in columns.wanted}
    for j, column in found.items():
        if isinstance(column, Texts):
            bad = np.array([text.casefold() in MISSING for text in column.texts])[column.codes]
        else:
            bad = ~np.isfinite(column)
        if bad.any():
            raise _cell_error(path, columns.names[j], *place(bad, j))
    for j in columns.features if choice.categories == "error" else ():
        if isinstance(column := found[j], Texts):
            strange = np.array([not _is_plain(text) for text in column.texts])[column.codes]
            line, field = place(strange, j) if strange.any() else (0, "")
            example = f"{field.strip()!r} on line {line}" if line else "true or false beside numbers"
            raise text_error(path, columns.names[j], example, column.texts, rows)
    return _join_columns(path, columns, found)


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


def _parse_csv(path: Path, delimiter: str, columns: Columns) -> Any:
    """Return the wanted columns as a data frame, by their numbers."""
    import pandas

    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    with unpack(path) as file:
        return pandas.read_csv(
            file,
            sep=delimiter,
            header=0,
            names=range(len(columns.names)),
            usecols=columns.wanted,
            # the names of sites are read as text: large integers are not distinct as floats
            dtype={} if columns.site is None else {columns.site: str},
            na_filter=False,
            low_memory=False,
            # before version 3.1 the last digit may be wrong by default
            float_precision=None if version >= (3, 1) else "round_trip",
            encoding="utf-8-sig",
        )


def _parse_column(column: Any, *, exact: bool) -> Array | Texts:
    """Return the numbers of a column, or its texts; numbers that name sites must be exact."""
    import pandas

    if column.dtype.kind in "iufb":
        numbers: Array = column.to_numpy(dtype=np.float64)
        return numbers
    codes, distinct = pandas.factorize(column)
    found = Texts.of(codes, [str(text).strip() for text in distinct])
    texts = found.texts
    if any(text.casefold() in MISSING for text in texts):
        return found
    values = _floats(texts)
    if values is not None and not (exact and (abs(values) >= LARGEST).any() and np.isfinite(values).all()):
        return values[found.codes]
    if {text.casefold() for text in texts} <= {"true", "false"}:
        return np.array([float(text.casefold() == "true") for text in texts])[found.codes]
    return found


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
    if field.strip().casefold() in MISSING:
        what = f"has no value ({field!r}); fill in or leave out what is missing"
    return DataSetError(f"{path}, line {line}: column {name!r} {what}")


# --- Parquet ----------------------------------------------------------------------------------------------------------

_NO_VALUE = "has no value; fill in or leave out what is missing"


def read_parquet(path: Path, choice: Choice) -> dict[str, Array | None]:
    """Return X, y, the sites and the names of the features."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path} is a Parquet file, and reading those needs pyarrow: pip install pyarrow") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return _parse_parquet(path, file, choice)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataSetError(f"{path} cannot be read as a Parquet file: {error}") from error


def _parse_parquet(path: Path, file: Any, choice: Choice) -> dict[str, Array | None]:
    schema, rows = file.schema_arrow, file.metadata.num_rows
    columns = choose(path, schema.names, choice)
    are_text = {j: _is_text(path, schema.field(j)) for j in columns.wanted}

    def read(j: int) -> Any:
        return file.read(columns=[columns.names[j]]).column(0)

    for j in columns.features if choice.categories == "error" else ():
        if are_text[j]:
            texts = {text.strip() for text in read(j).unique().to_pylist() if text is not None}
            raise text_error(path, columns.names[j], f"its type is {schema.field(j).type}", texts, rows)
    if rows == 0:
        raise DataSetError(f"{path} holds no rows")
    found: dict[int, Array | Texts] = {
        j: _parquet_texts(path, columns.names[j], read(j))
        if are_text[j]
        else _parquet_numbers(path, columns.names[j], read(j), exact=j == columns.site)
        for j in columns.wanted
    }
    return _join_columns(path, columns, found)


def _refuse(path: Path, name: str, bad: Array, what: str) -> None:
    """Raise an error that names the first of the marked rows, if there is one."""
    if bad.any():
        raise DataSetError(f"{path}, row {int(bad.argmax()) + 1}: column {name!r} {what}")


def _is_text(path: Path, field: Any) -> bool:
    """Whether a column holds text and not numbers, by its type; other types are refused."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    numbers = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(test(kind) for test in numbers):
        return False
    if types.is_temporal(kind):
        advised = advice(field.name, "holds dates")
        raise ValueError(f"{path}: column {field.name!r} holds dates or times (its type is {field.type}): {advised}")
    raise ValueError(
        f"{path}: column {field.name!r} has type {field.type}, but numbers, booleans and text are accepted; "
        f"exclude it with drop=({field.name!r},)"
    )


def _parquet_numbers(path: Path, name: str, column: Any, *, exact: bool) -> Array:
    """Return floats; where they must be exact, because they name sites, integers stay integers."""
    from pyarrow import float64, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    _refuse(path, name, column.is_null().to_numpy(), _NO_VALUE)
    if exact and types.is_integer(column.type):
        whole: Array = column.to_numpy()
        return whole
    numbers: Array = column.cast(float64(), safe=False).to_numpy()
    _refuse(path, name, np.isnan(numbers), _NO_VALUE)
    _refuse(path, name, np.isinf(numbers), "is infinite; values must be finite")
    return numbers


def _parquet_texts(path: Path, name: str, column: Any) -> Texts:
    import pandas

    # a dictionary may hold texts that no row has
    codes, texts = pandas.factorize(column.to_pandas())
    missing = np.array([True, *(text.strip().casefold() in MISSING for text in texts)])
    _refuse(path, name, missing[codes + 1], _NO_VALUE)
    return Texts(codes, [str(text) for text in texts])


# --- Tables: which columns are what, and the arrays that they become --------------------------------------------------


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


class Texts(NamedTuple):
    """A column of texts: ``texts[code]`` for the code of each row."""

    codes: IntArray
    texts: list[str]

    @classmethod
    def of(cls, codes: IntArray, texts: Sequence[str]) -> Texts:
        """Return a column whose texts may be given more than once."""
        known: dict[str, int] = {}
        code_of = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
        return cls(code_of[codes], list(known))


def _join_columns(path: Path, columns: Columns, found: dict[int, Array | Texts]) -> dict[str, Array | None]:
    """Return X, y, the sites and the names of the features; X has a 0/1 column for each text of a column of texts."""
    names: list[str] = []
    parts: list[tuple[int, Array | Texts]] = []
    for j in columns.features:
        name, column = columns.names[j], found[j]
        parts.append((len(names), column))
        if isinstance(column, Texts):
            _check_categories(path, name, column)
            names += [f"{name}={text}" for text in sorted(column.texts)]
        else:
            names.append(name)
    X = np.zeros((len(_values(found[columns.target])), len(names)))
    for first, column in parts:
        if isinstance(column, Texts):
            rank = {text: i for i, text in enumerate(sorted(column.texts))}
            X[np.arange(len(X)), first + np.array([rank[text] for text in column.texts])[column.codes]] = 1.0
        else:
            X[:, first] = column
    site = None
    if columns.site is not None:
        site = _values(found[columns.site])
        if site.dtype.kind == "f" and (site == np.rint(site)).all() and (abs(site) < LARGEST).all():
            site = site.astype(np.int64)
    return {"X": X, "y": _values(found[columns.target]), "site": site, "feature_names": np.array(names)}


def _values(column: Array | Texts) -> Array:
    return np.array(column.texts)[column.codes] if isinstance(column, Texts) else column


def _check_categories(path: Path, name: str, column: Texts) -> None:
    """Refuse texts that are not categories."""
    if len(column.texts) > MOST_CATEGORIES:
        raise ValueError(
            f"{path}: column {name!r} holds more than {MOST_CATEGORIES:,} distinct texts, too many to make "
            f"0/1 columns of; drop=({name!r},) leaves it out"
        )
    why = not_categories(name, column.texts, len(column.codes))
    if why is not None:
        advised = advice(name, why)
        raise ValueError(f'{path}: column {name!r} {why}, so categories="onehot" does not apply to it: {advised}')


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


def text_error(path: Path, name: str, example: str, texts: Collection[str], rows: int) -> ValueError:
    """Return the error for a column of features that holds text; ``texts`` are its distinct values."""
    why = not_categories(name, texts, rows) if rows else None
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
