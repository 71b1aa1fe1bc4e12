"""Loading data sets: formats, registered sets, downloads, the cache of parsed files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fpdfp.datasets import DataSet, load, loading, readers, registry
from fpdfp.errors import DataSetError, DataWarning

LIBSVM = b"2 1:0.5 3:1\n# a comment\n\n1 2:-2e1 # another, qid:1\n2\n"
CSV = "age,smokes,job,ward,ill\n34,true,nurse,A,no\n51,False,clerk,B,yes\n47,TRUE,nurse,B,no\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test, which keeps small files too."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FPDFP_CACHE", str(folder))
    monkeypatch.delenv("FPDFP_DATA", raising=False)
    monkeypatch.setattr(loading, "SMALL", 0)
    return folder


def dense(data: DataSet) -> Any:
    return data.X if isinstance(data.X, np.ndarray) else data.X.toarray()


def same(a: DataSet, b: DataSet) -> None:
    """Two data sets are equal to the last bit."""
    assert type(a.X) is type(b.X)
    np.testing.assert_array_equal(dense(a), dense(b))
    for first, second in ((a.y, b.y), (a.site, b.site)):
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
    assert (a.name, a.feature_names, a.source) == (b.name, b.feature_names, b.source)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- LIBSVM files -----------------------------------------------------------------------------------------------------


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "gz": gzip.compress,
}


@pytest.mark.parametrize("packer", list(PACKERS))
@pytest.mark.parametrize("name", ["rows.libsvm", "rows.svm", "rows.svmlight", "rows.txt", "rows", "rows.of.things"])
def test_libsvm_files_are_read_whatever_their_name(packer: str, name: str, tmp_path: Path) -> None:
    data = load(write(tmp_path / name, PACKERS[packer](LIBSVM)))
    assert isinstance(data.X, scipy.sparse.csr_array)
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0, 1], [0, -20, 0], [0, 0, 0]])
    np.testing.assert_array_equal(data.y, [2.0, 1.0, 2.0])
    assert (data.site, data.feature_names, data.source) == (None, None, str(tmp_path / name))
    assert data.name == ("rows.of.things" if name == "rows.of.things" else "rows")
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.X.indices.dtype == np.int32


def test_the_number_of_features_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.svm", LIBSVM)
    assert load(path, n_features=7).X.shape == (3, 7)
    with pytest.raises(ValueError, match=r"n_features is 2, but row 1 of .*rows.svm has a feature of index 3"):
        load(path, n_features=2)
    only_labels = write(tmp_path / "labels.svm", b"1\n2\n")
    assert load(only_labels, n_features=4).X.shape == (2, 4)


@given(data=st.data())
def test_sparse_data_come_back_from_a_libsvm_file(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    row = st.dictionaries(st.integers(1, 30), numbers, max_size=5)
    rows = data.draw(st.lists(st.tuples(numbers, row), min_size=1, max_size=8))
    packer = data.draw(st.sampled_from(list(PACKERS.values())))
    lines = [f"{y!r} " + " ".join(f"{j}:{x[j]!r}" for j in sorted(x)) + "\n" for y, x in rows]
    path = write(tmp_path_factory.mktemp("round") / "rows.svm", packer("".join(lines).encode()))
    expected = np.zeros((len(rows), 30))
    for i, (_, x) in enumerate(rows):
        for j, value in x.items():
            expected[i, j - 1] = value
    for found in (load(path, n_features=30), load(path, n_features=30)):
        np.testing.assert_array_equal(found.X.toarray(), expected)
        np.testing.assert_array_equal(found.y, [y for y, _ in rows])


BAD_LIBSVM: list[tuple[bytes, str]] = [
    (b"1 1:2\n1 2\n", "line 2: '2' is not of the form index:value"),
    (b"1 1:2\n\n1 2:x\n", "line 3: '2:x' is not of the form index:value"),
    (b"1 a:2\n", "line 1: 'a:2' is not of the form index:value"),
    (b"1 0:2\n", "line 1: '0:2' has index 0, but indices count from 1"),
    (b"1 -3:2\n", "'-3:2' has index -3, but indices count from 1"),
    (b"1 2:1 1:1\n", "'1:1' comes after index 2, but indices must increase"),
    (b"1 2:1 2:1\n", "'2:1' comes after index 2, but indices must increase"),
    (b"1 99999999999:1\n", "line 1: '99999999999:1' has an index above 2147483647"),
    (b"yes 1:2\n", "line 1: the label 'yes' is not a number; a line must read"),
    (b"1:2 2:2\n", "the label '1:2' is not a number"),
    (b"\xff\xfe1 1:2\n", "the label .* is not a number"),
    (b"1,2 1:2\n", "the label '1,2' is a list; files with several labels a row are not supported"),
    (b"1 1:2\n1 qid:3 1:2\n", r"line 2: rows grouped by query \(qid\) are not supported"),
    (b"1 1:2\n1 1:1 2:nan\n", "row 2: feature 2 is nan; values must be finite"),
    (b"1 1:2\n1 1:-1e999\n", "row 2: feature 1 is -inf; values must be finite"),
    (b"1 1:2\ninf 1:1\n", "row 2: the label is inf; labels must be finite"),
    (b"", "holds no rows"),
    (b"# nothing\n\n", "holds no rows"),
    (b"1\n-1\n", "holds no features: every row is a label alone"),
]


@pytest.mark.parametrize(("content", "message"), BAD_LIBSVM)
def test_what_is_wrong_with_a_libsvm_file_is_said(content: bytes, message: str, tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "rows.svm", content)
    with pytest.raises(DataSetError, match=f"rows.svm.*{message}"):
        load(path)
    assert not (cache / "parsed").exists()


@pytest.mark.parametrize("packer", ["xz", "bz2", "gz"])
@pytest.mark.parametrize("name", ["rows.svm", "rows.csv"])
def test_compressed_files_that_are_cut_off_or_damaged(packer: str, name: str, tmp_path: Path) -> None:
    options: Any = {} if name == "rows.svm" else {"target": "y"}
    if name == "rows.svm":
        content = b"".join(b"1 1:%d 2:%d\n" % (i, i * i) for i in range(2000))
    else:
        content = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))
    packed = PACKERS[packer](content)
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 20] = bytes(20)
    for content in (packed[: len(packed) // 2], bytes(damaged)):
        path = write(tmp_path / name, content)
        with pytest.raises(DataSetError, match=f"{name} is cut off or damaged: it starts as a"):
            load(path, **options)


# --- CSV and TSV files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packer", list(PACKERS))
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_csv_files(packer: str, start: str, ending: str, tmp_path: Path) -> None:
    content = start + CSV.replace("\n", ending)
    data = load(
        write(tmp_path / "people.csv", PACKERS[packer](content.encode())),
        target="ill",
        site="ward",
        categories="onehot",
    )
    assert data.name == "people"
    assert data.feature_names == ("age", "smokes", "job=clerk", "job=nurse")
    np.testing.assert_array_equal(data.X, [[34, 1, 0, 1], [51, 0, 1, 0], [47, 1, 0, 1]])
    assert data.X.flags.c_contiguous
    assert data.X.dtype == np.float64
    assert data.y.tolist() == ["no", "yes", "no"]
    assert data.site is not None
    assert data.site.tolist() == ["A", "B", "B"]
    assert repr(data) == "DataSet('people': 3 rows, 4 features, dense, 2 labels, 2 sites)"


def test_tsv_files_quotes_blank_lines_and_spaces(tmp_path: Path) -> None:
    content = 'x\t"the\nname"\ty\n\n  \n 1 \t2e-1\t"a ""b"""\n3\t 4\tc \n'
    data = load(write(tmp_path / "rows.tsv.gz", gzip.compress(content.encode())), target="y")
    assert (data.name, data.feature_names, data.y.tolist()) == ("rows", ("x", "the\nname"), ['a "b"', "c"])
    np.testing.assert_array_equal(data.X, [[1, 0.2], [3, 4]])


def test_columns_are_left_out(tmp_path: Path) -> None:
    data = load(write(tmp_path / "people.csv", CSV), target="age", drop=["job", "ill", "ward"])
    assert data.feature_names == ("smokes",)
    np.testing.assert_array_equal(data.y, [34.0, 51.0, 47.0])
    assert data.site is None


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        (["3", "10", "3"], np.array([3, 10, 3])),
        (["3.0", "1e1", "-3"], np.array([3, 10, -3])),
        (["0.5", "1", "2"], np.array([0.5, 1.0, 2.0])),
        (["a", "1", "2"], np.array(["a", "1", "2"])),
        (["1_0", "10", "2"], np.array(["1_0", "10", "2"])),
        (["9007199254740993", "9007199254740992", "1"], np.array(["9007199254740993", "9007199254740992", "1"])),
        (["true", "false", "true"], np.array([1, 0, 1])),
    ],
)
def test_sites_are_whole_numbers_numbers_or_text(sites: list[str], expected: Any, tmp_path: Path) -> None:
    rows = "".join(f"{i},{site},{i % 2}\n" for i, site in enumerate(sites))
    found = load(write(tmp_path / "rows.csv", "x,s,y\n" + rows), target="y", site="s").site
    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_numbers_are_those_of_python_however_they_are_written(tmp_path: Path) -> None:
    texts = ["0.1", "1e23", " 7 ", '"8"', "+5", "1.", "007", "99999999999999999999999", "18446744073709551615", "٣"]
    texts += [repr(float(value)) for value in np.random.default_rng(0).integers(0, 2**62, 200).view(np.float64)]
    path = write(tmp_path / "rows.csv", "a,y\n" + "".join(f"{text},{i}\n" for i, text in enumerate(texts)))
    found = load(path, target="y").X[:, 0]
    np.testing.assert_array_equal(found, [float(text.strip('"')) for text in texts])


def test_columns_that_turn_out_to_be_text_late(tmp_path: Path) -> None:
    """Numbers first, text later, in the target, the sites and the features."""
    rows = ["1,1,true,7", "2,2,false,007", "3,3,true,8", "4,u,maybe,8", "v,w,true,x"]
    path = write(tmp_path / "rows.csv", "a,y,b,s\n" + "\n".join(rows))
    data = load(path, target="y", site="s", categories="onehot")
    assert data.y.tolist() == ["1", "2", "3", "u", "w"]
    assert data.site is not None
    assert data.site.tolist() == ["7", "007", "8", "8", "x"]
    assert data.feature_names == ("a=1", "a=2", "a=3", "a=4", "a=v", "b=false", "b=maybe", "b=true")
    np.testing.assert_array_equal(data.X[:, :5], np.eye(5))
    np.testing.assert_array_equal(data.X[:, 6], [0, 0, 0, 1, 0])
    with pytest.raises(ValueError, match="column 'a' holds text \\('v' on line 6\\)"):
        load(path, target="y", site="s")


def test_true_and_false_among_numbers_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "a,y\ntrue,1\n0,2\n")
    assert load(path, target="y", categories="onehot").feature_names == ("a=0", "a=true")
    with pytest.raises(ValueError, match=r"column 'a' holds text \(true or false beside numbers\)"):
        load(path, target="y")


@given(
    n_rows=st.integers(1, 40),
    n_columns=st.integers(1, 4),
    random=st.randoms(use_true_random=False),
)
def test_tables_come_back(n_rows: int, n_columns: int, random: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = [random.choice(["number", "text"]) for _ in range(n_columns)]
    table = [[random.gauss(0, 1e3) if k == "number" else random.choice("pqr") for k in kinds] for _ in range(n_rows)]
    names = [f"c{i}" for i in range(n_columns)]
    text = ",".join([*names, "y"]) + "\n" + "".join(",".join(map(str, [*row, i])) + "\n" for i, row in enumerate(table))
    path = write(tmp_path_factory.mktemp("table") / "rows.csv", text)
    data = load(path, target="y", categories="onehot")
    columns = []
    for j, kind in enumerate(kinds):
        values = [row[j] for row in table]
        if kind == "number":
            columns.append((names[j], values))
        else:
            columns += [(f"{names[j]}={v}", [float(u == v) for u in values]) for v in sorted(set(values))]
    assert data.feature_names == tuple(name for name, _ in columns)
    np.testing.assert_array_equal(data.X, np.array([values for _, values in columns]).T)
    np.testing.assert_array_equal(data.y, np.arange(n_rows))


BAD_CSV: list[tuple[str | bytes, dict[str, Any], type[Exception], str]] = [
    (
        CSV,
        {"target": "ill"},
        ValueError,
        "column 'job' holds text \\('nurse' on line 2\\).*categories=\"onehot\".*drop",
    ),
    (CSV, {"target": "sick"}, ValueError, "target: .*no column 'sick'; its columns are 'age', 'smokes', 'job', 'ward'"),
    (CSV, {"target": "ill", "site": "town"}, ValueError, "site: .*no column 'town'; its columns are 'age'"),
    (CSV, {"target": "ill", "drop": ("x",)}, ValueError, "drop: .*no column 'x'; its columns are 'age'"),
    (
        CSV,
        {"target": "ill", "site": "ward", "drop": ("age", "job", "smokes")},
        ValueError,
        "has no columns left for the features",
    ),
    ("a,b,a,b\n1,2,3,4\n", {"target": "a"}, DataSetError, "more than one column 'a', 'b'"),
    ("a, a,y\n1,2,3\n", {"target": "y"}, DataSetError, "more than one column 'a'"),
    ("", {"target": "y"}, DataSetError, "rows.csv is empty: its first line must name the columns"),
    ("\n\n", {"target": "y"}, DataSetError, "rows.csv is empty"),
    ("a,y\n", {"target": "y"}, DataSetError, "rows.csv holds no rows"),
    ("a,y\n1,2\n3\n", {"target": "y"}, DataSetError, "line 3: 1 fields, but the header names 2 columns"),
    ("a,y\n1,2\n\n3,4,5\n", {"target": "y"}, DataSetError, "line 4: 3 fields, but the header names 2 columns"),
    ("a,y\n1,2,3\n4,5,6\n", {"target": "y"}, DataSetError, "line 2: 3 fields, but the header names 2 columns"),
    ("a,y\n1,2,\n4,5,\n", {"target": "y"}, DataSetError, "line 2: 3 fields, but the header names 2 columns"),
    ("a,y\n1\n4\n", {"target": "y"}, DataSetError, "line 2: 1 fields, but the header names 2 columns"),
    ('a,y\n1,2\n""\n', {"target": "y"}, DataSetError, "line 3: 1 fields, but the header names 2 columns"),
    ("a,b,y\n1,2\n", {"target": "a", "drop": ("y",)}, DataSetError, "line 2: 2 fields, but the header names 3"),
    ("a,y\n1,2\n,4\n", {"target": "y"}, DataSetError, "line 3: column 'a' has no value \\(''\\); fill in"),
    ("a,y\n1,2\nNA,4\n", {"target": "y"}, DataSetError, "line 3: column 'a' has no value \\('NA'\\)"),
    ("a,y\n1,2\n\n2,2\n nan ,4\n", {"target": "y"}, DataSetError, "line 5: column 'a' has no value \\(' nan '\\)"),
    ("a,y\n1,2\n1,NULL\n", {"target": "y"}, DataSetError, "line 3: column 'y' has no value \\('NULL'\\)"),
    ("a,y\n1,p\n1,\n", {"target": "y"}, DataSetError, "line 3: column 'y' has no value"),
    ("a,s,y\n1,p,1\n1,null,1\n", {"target": "y", "site": "s"}, DataSetError, "line 3: column 's' has no value"),
    ("a,y\np,1\nna,1\n", {"target": "y", "categories": "onehot"}, DataSetError, "line 3: column 'a' has no value"),
    ("a,y\n1,2\n-Inf,4\n", {"target": "y"}, DataSetError, "line 3: column 'a' holds '-Inf'; values must be finite"),
    ("a,y\n1,2\n1e999,4\n", {"target": "y"}, DataSetError, "line 3: column 'a' holds '1e999'; values must be finite"),
    ("a,y\n1,2\n1,inf\n", {"target": "y"}, DataSetError, "line 3: column 'y' holds 'inf'"),
    ('a,y\n1,2\n"1"3,4\n', {"target": "y"}, DataSetError, "line 3: .*expected after"),
    ('a,y\n1,2\n"1,4\n', {"target": "y"}, DataSetError, "rows.csv, line 3: unexpected end of data"),
    (b"a,y\n1,2\n\xff,4\n", {"target": "y"}, DataSetError, "rows.csv, after line .*: not UTF-8 text"),
    ("a,y\n1_000,2\n", {"target": "y"}, ValueError, "column 'a' holds text \\('1_000' on line 2\\)"),
    (CSV, {}, ValueError, "target must name the column of a table that becomes y, got None"),
    (CSV, {"target": "ill", "site": "ill"}, ValueError, "target and site must be different columns"),
    (CSV, {"target": "ill", "drop": ["ill"]}, ValueError, "drop must not name 'ill'"),
    (CSV, {"target": "ill", "site": "ward", "drop": ["ward"]}, ValueError, "drop must not name 'ward'"),
    (CSV, {"target": "ill", "n_features": 3}, ValueError, "n_features=3 does not apply: .*is read as a table"),
]


@pytest.mark.parametrize(("content", "options", "kind", "message"), BAD_CSV)
def test_what_is_wrong_with_a_csv_file_is_said(
    content: str | bytes, options: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path, cache: Path
) -> None:
    path = write(tmp_path / "rows.csv", content)
    with pytest.raises(kind, match=message):
        load(path, **options)
    assert not (cache / "parsed").exists()


def test_lines_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "a,y\n" + "1,2\n" * 9 + ",3\n")
    with pytest.raises(DataSetError, match="line 11: column 'a' has no value"):
        load(path, target="y")


def test_columns_of_names_are_no_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_CATEGORIES", 3)
    path = write(tmp_path / "rows.csv", "id,y\n" + "".join(f"n{i},t{i}\n" for i in range(5)))
    with pytest.raises(ValueError, match="column 'id' holds more than 3 distinct texts, too many"):
        load(path, target="y", categories="onehot")


def table(path: Path, columns: dict[str, Any]) -> Path:
    lines = [",".join([*columns, "y"])] + [
        ",".join([*map(str, row), str(i % 2)]) for i, row in enumerate(zip(*columns.values(), strict=True))
    ]
    return write(path, "\n".join(lines) + "\n")


DAYS = [f"2023-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(60)]
NO_CATEGORIES: dict[str, tuple[str, list[str], str]] = {
    "identifiers": ("patient", [f"P{i:05d}" for i in range(60)], "has a different value in every row, as identifiers"),
    "two visits each": ("patient", [f"P{i // 2}" for i in range(60)], "has 30 distinct values in 60 rows, as identi"),
    "few rows": ("Patient_ID", [f"P{i}" for i in range(6)], "has a different value in every row, as identifiers"),
    "dates": ("admitted", DAYS, "holds dates"),
    "dates of some days": (
        "admitted",
        [f"{i % 15 + 1}.3.2024" for i in range(60)],
        r"holds dates \(15 distinct ones in",
    ),
    "times": ("seen", [f"{day}T{i % 24}:05:00Z" for i, day in enumerate(DAYS)], "holds dates"),
    "words": ("seen", [f"{i % 28 + 1} Mar 20{i % 20 + 10}" for i in range(60)], "holds dates"),
    "American": ("seen", [f"12/{i % 28 + 1}/{i % 20 + 2000}" for i in range(60)], "holds dates"),
}


@pytest.mark.parametrize(("name", "values", "why"), NO_CATEGORIES.values(), ids=list(NO_CATEGORIES))
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_identifiers_and_dates_are_no_categories(
    name: str, values: list[str], why: str, kind: str, tmp_path: Path
) -> None:
    if kind == "csv":
        path = table(tmp_path / "rows.csv", {"age": range(0, 2 * len(values), 2), name: values})
    else:
        columns = {"age": list(range(0, 2 * len(values), 2)), name: values, "y": [0.0, 1.0] * (len(values) // 2)}
        path = parquet(tmp_path / "rows.parquet", columns)
    for categories in ("onehot", "error"):
        with pytest.raises(ValueError, match=f"column '{name}' ({why})") as caught:
            load(path, target="y", categories=categories)
        assert ("onehot" in str(caught.value)) == (categories == "onehot")
        assert f"drop=('{name}',)" in str(caught.value)
        assert ("days since" in str(caught.value)) == ("dates" in why)
    assert load(path, target="y", drop=(name,)).feature_names == ("age",)


def test_ordinary_categories_are_kept(tmp_path: Path) -> None:
    columns = {
        "ward": [f"ward {i % 12}" for i in range(60)],
        "wave": [("2020-01-01", "2021-01-01", "2022-01-01")[i % 3] for i in range(60)],
        "site_id": [f"S{i % 20}" for i in range(60)],
        "version": [f"1.{i % 4}.{i % 3}" for i in range(60)],
    }
    data = load(table(tmp_path / "rows.csv", columns), target="y", categories="onehot")
    assert data.X.shape[1] == 12 + 3 + 20 + 12


def test_dates_of_parquet_are_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = parquet(tmp_path / "rows.parquet", {"when": pyarrow.array([0, 1], pyarrow.date32()), "y": [0, 1]})
    with pytest.raises(ValueError, match=r"column 'when' holds dates or times \(its type is date32.*days since"):
        load(path, target="y")


NUMBERS: dict[str, tuple[list[int], str | None]] = {
    "patient_id": ([i * 7919 % 100_003 for i in range(60)], "looks like an identifier"),
    "PatientID": ([5000 + i // 3 for i in range(60)], "looks like an identifier"),
    "Unnamed: 0": (list(range(60)), "counts the rows"),
    "admitted": ([20230100 + 100 * (i % 12) + i % 28 + 1 for i in range(60)], r"looks like dates \(20230101\)"),
    "year": (list(range(1950, 2010)), None),
    "cells": ([19_876_543 + 1_234_567 * (i * 37 % 60) for i in range(60)], None),
    "group_id": ([i % 5 for i in range(60)], None),
    "steroid": ([i * 7919 % 100_003 for i in range(60)], None),
    "rank": ([i * 37 % 60 for i in range(60)], None),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_identify_are_warned_of(name: str, tmp_path: Path) -> None:
    values, why = NUMBERS[name]
    path = table(tmp_path / "rows.csv", {"age": [i % 50 + 0.5 for i in range(60)], name: values})
    if why is None:
        load(path, target="y")
    else:
        with pytest.warns(DataWarning, match=f"column '{name}' {why}, and is used as a number"):
            load(path, target="y")


def test_long_lists_of_columns_are_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ",".join(f"c{i}" for i in range(40)) + "\n")
    with pytest.raises(ValueError, match=r"'c19', … \(40 in all\)"):
        load(path, target="y")


# --- Parquet files ----------------------------------------------------------------------------------------------------


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize("name", ["people.parquet", "people"])
def test_parquet_files(name: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    columns = {
        "age": pyarrow.array([34, 51, 47], pyarrow.int16()),
        "price": pyarrow.array([1, 2, 3], pyarrow.int64()).cast(pyarrow.decimal128(20, 1)),
        "smokes": [True, False, True],
        "job": pyarrow.DictionaryArray.from_arrays([2, 0, 2], ["clerk", "never used", "nurse"]),
        "town": ["X", "Y", "Y"],
        "code": pyarrow.DictionaryArray.from_arrays([0, 1, 0], [1.5, 2.5]),
        "ward": [2**53, 2**53 + 1, 2**53],
        "when": pyarrow.array([0, 1, 2], pyarrow.timestamp("s")),
        "ill": ["no", "yes", "no"],
    }
    path = parquet(tmp_path / name, columns)
    data = load(path, target="ill", site="ward", drop=("when",), categories="onehot")
    assert data.name == "people"
    assert data.feature_names == (*("age", "price", "smokes", "job=clerk", "job=nurse", "town=X", "town=Y", "code"),)
    expected = [[34, 1, 1, 0, 1, 1, 0, 1.5], [51, 2, 0, 1, 0, 0, 1, 2.5], [47, 3, 1, 0, 1, 0, 1, 1.5]]
    np.testing.assert_array_equal(data.X, expected)
    assert data.X.flags.c_contiguous
    assert data.y.tolist() == ["no", "yes", "no"]
    assert data.site is not None
    assert data.site.tolist() == [2**53, 2**53 + 1, 2**53]
    again = load(path, target="ill", site="ward", drop=("when",), categories="onehot")
    same(data, again)


def test_the_same_table_as_csv_and_as_parquet(tmp_path: Path) -> None:
    options: Any = {"target": "ill", "site": "ward", "categories": "onehot"}
    from_csv = load(write(tmp_path / "people.csv", CSV), **options)
    columns = {"age": [34, 51, 47], "smokes": [True, False, True], "job": ["nurse", "clerk", "nurse"]}
    columns |= {"ward": ["A", "B", "B"], "ill": ["no", "yes", "no"]}
    from_parquet = load(parquet(tmp_path / "people.parquet", columns), **options)
    np.testing.assert_array_equal(from_csv.X, from_parquet.X)
    np.testing.assert_array_equal(from_csv.y, from_parquet.y)
    assert from_csv.feature_names == from_parquet.feature_names


def test_sites_that_are_large_floats_stay_floats(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", {"a": [1, 2], "s": [1e300, 2.0], "y": [1, 2]})
    site = load(path, target="y", site="s").site
    assert site is not None
    assert site.tolist() == [1e300, 2.0]


BAD_PARQUET: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({"a": [1, 2, None], "y": [1, 2, 3]}, {}, DataSetError, "row 3: column 'a' has no value"),
    ({"a": [1.0, 2.0, float("nan")], "y": [1, 2, 3]}, {}, DataSetError, "row 3: column 'a' has no value"),
    ({"a": [1.0, 2.0, float("inf")], "y": [1, 2, 3]}, {}, DataSetError, "row 3: column 'a' is infinite"),
    ({"a": [1, 2, 3], "y": ["p", "q", None]}, {}, DataSetError, "row 3: column 'y' has no value"),
    ({"a": [1, 2, 3], "y": ["p", "NA", "q"]}, {}, DataSetError, "row 2: column 'y' has no value"),
    ({"a": [None, None], "y": [1, 2]}, {}, DataSetError, "row 1: column 'a' has no value"),
    ({"a": ["p", "q"], "y": [1, 2]}, {}, ValueError, "column 'a' holds text \\(its type is string\\)"),
    ({"a": [[1], [2]], "y": [1, 2]}, {}, ValueError, "column 'a' has type list<.*numbers, booleans and text.*drop"),
    ({"a": [1, 2], "y": [1, 2]}, {"target": "z"}, ValueError, "target: .*no column 'z'; its columns are 'a', 'y'"),
    ({"y": [1, 2]}, {}, ValueError, "no columns left for the features"),
    ({"a": [], "y": []}, {}, DataSetError, "holds no rows"),
]


@pytest.mark.parametrize(("columns", "options", "kind", "message"), BAD_PARQUET)
def test_what_is_wrong_with_a_parquet_file_is_said(
    columns: dict[str, Any],
    options: dict[str, Any],
    kind: type[Exception],
    message: str,
    tmp_path: Path,
) -> None:
    path = parquet(tmp_path / "rows.parquet", columns)
    with pytest.raises(kind, match=message):
        load(path, **{"target": "y", **options})


def test_damaged_parquet_files_and_repeated_names(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    table = pyarrow.table([pyarrow.array([1]), pyarrow.array([2]), pyarrow.array([3])], names=["a", "a", "y"])
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    with pytest.raises(DataSetError, match="more than one column 'a'"):
        load(path, target="y")
    for content in (b"no such thing", path.read_bytes()[:-20], b""):
        write(path, content)
        with pytest.raises(DataSetError, match=r"rows.parquet cannot be read as a Parquet file"):
            load(path, target="y")


def test_parquet_files_need_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "rows.parquet", b"PAR1")
    with pytest.raises(ImportError, match=r"pip install pyarrow"):
        load(path, target="y")


# --- arguments --------------------------------------------------------------------------------------------------------


BAD_ARGUMENTS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (3, {}, TypeError, "source must be a registered name or a path, got int"),
    ("a9b", {}, ValueError, "source must be one of 'a9a', 'a9a.t', 'covtype' or a file, got 'a9b'"),
    ("no/such/file.csv", {}, FileNotFoundError, "source: no/such/file.csv: file not found"),
    (Path("a9b"), {}, FileNotFoundError, "source: a9b: file not found"),
    ("a9a", {"target": "y"}, ValueError, "target='y' does not apply: a9a is read as a LIBSVM file"),
    ("a9a", {"site": "s"}, ValueError, "site='s' does not apply"),
    ("a9a", {"drop": ["s"]}, ValueError, "drop=\\('s',\\) does not apply"),
    ("a9a", {"categories": "onehot"}, ValueError, "categories is for tables"),
    ("a9a", {"categories": "no"}, ValueError, "categories must be one of 'error', 'onehot', got 'no'"),
    ("a9a", {"n_features": 0}, ValueError, "n_features must be an integer of at least 1"),
    ("a9a", {"n_features": 122}, ValueError, "n_features of 'a9a' is 123, got 122: leave it out"),
    ("a9a", {"download": 1}, TypeError, "download must be True or False"),
    ("a9a", {"progress": "yes"}, TypeError, "progress must be True or False"),
    ("a9a", {"directory": 3}, TypeError, "directory must be the path of a folder, got int"),
    ("a9a", {"target": 3}, TypeError, "target must be the name of a column, got 3"),
    ("a9a", {"site": 3}, TypeError, "site must be the name of a column, got 3"),
    ("a9a", {"drop": "age"}, TypeError, "drop must be a tuple or list of names of columns, got 'age'"),
    ("a9a", {"drop": [1]}, TypeError, "drop must be a tuple or list of names of columns"),
]


@pytest.mark.parametrize(("source", "options", "kind", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_named(source: Any, options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(source, **options)


def test_paths_as_text_and_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rows", LIBSVM)
    write(tmp_path / "a9a", LIBSVM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source in ("rows", "./a9a", str(tmp_path / "rows"), Path("rows"), Path("a9a"), "~/rows"):
        assert load(source).X.shape == (3, 3)
    with pytest.raises(DataSetError, match="data set 'a9a' is not on this machine"):
        load("a9a", download=False)
    with pytest.raises(ValueError, match="directory is for registered names"):
        load("rows", directory=tmp_path)
    with pytest.raises(ValueError, match="target='y' does not apply: rows is read as a LIBSVM file"):
        load("rows", target="y")


# --- the cache of parsed files ----------------------------------------------------------------------------------------


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "parsed").iterdir())


def test_a_file_is_parsed_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = {"target": "ill", "site": "ward", "categories": "onehot"}
    table, rows = write(tmp_path / "people.csv", CSV), write(tmp_path / "rows.svm", LIBSVM)
    first = load(table, **options), load(rows)
    assert [path.suffix for path in kept(cache)] == [".npz", ".npz"]
    with monkeypatch.context() as patch:
        patch.setattr("fpdfp.datasets.readers.read_csv", None)
        patch.setattr("fpdfp.datasets.readers.read_libsvm", None)
        same(first[0], load(table, **options))
        same(first[1], load(rows))
        moved = load(write(tmp_path / "other.svm", LIBSVM))  # the same content under another name
        assert (moved.name, moved.source) == ("other", str(tmp_path / "other.svm"))
    assert load(rows, n_features=5).X.shape == (3, 5)
    assert load(table, target="ill", drop=["job", "ward"]).X.shape == (3, 2)
    assert load(table, target="ill", drop=["ward", "job"]).X.shape == (3, 2)
    assert len(kept(cache)) == 4
    write(rows, b"1 1:1\n")
    assert load(rows).X.shape == (1, 1)


def test_nothing_in_the_cache_is_a_pickle(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "people.csv", CSV), target="ill", site="ward", categories="onehot")
    (path,) = kept(cache)
    with np.load(path, allow_pickle=False) as arrays:
        assert {arrays[name].dtype.kind for name in arrays.files} == {"f", "U"}


def test_damaged_files_in_the_cache_are_replaced(tmp_path: Path, cache: Path) -> None:
    rows = write(tmp_path / "rows.svm", LIBSVM)
    first = load(rows)
    (path,) = kept(cache)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[good.index(first.X.data.tobytes())] ^= 1
    pickled = io.BytesIO()
    np.savez(pickled, y=np.array([{}], dtype=object))
    shorter = io.BytesIO()
    with np.load(path) as arrays:
        np.savez(shorter, **{name: arrays[name] for name in arrays.files if name != "y"}, y=first.y[:-1])
    alone = io.BytesIO()
    np.save(alone, first.y)
    damaged = [b"", b"no zip", b"PK\x03\x04", good[: len(good) // 2], good[:-5], bytes(flipped)]
    for content in (*damaged, pickled.getvalue(), shorter.getvalue(), alone.getvalue()):
        write(path, content)
        same(first, load(rows))
        assert kept(cache) == [path]
        assert path.read_bytes()[:2] == b"PK"
        same(first, load(rows))


def test_no_cache_where_none_can_be_written(tmp_path: Path, cache: Path) -> None:
    write(cache, b"a file where the folder should be")
    assert load(write(tmp_path / "rows.svm", LIBSVM)).X.shape == (3, 3)
    assert cache.read_bytes() == b"a file where the folder should be"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert load(write(tmp_path / "rows.svm", LIBSVM)).X.shape == (3, 3)
    assert kept(cache) == []


def test_small_files_are_not_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("FPDFP_CACHE", str(cache))
    load(write(tmp_path / "rows.svm", LIBSVM))
    assert not cache.exists()


# --- registered sets --------------------------------------------------------------------------------------------------

TINY = b"1 1:0.5 3:1\n2 2:1\n2 1:1\n"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> registry.Registered:
    """A registered set that no server has."""
    entry = registry.Registered(
        "tiny", "tiny.scale", "http://127.0.0.1:9/tiny.scale.bz2", hashlib.sha256(TINY).hexdigest(), 3, 4, 2.0, "no one"
    )
    monkeypatch.setitem(registry.REGISTRY, "tiny", entry)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return entry


def check_tiny(data: DataSet, path: Path) -> None:
    assert (data.name, data.source, data.site, data.feature_names) == ("tiny", str(path), None, None)
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(data.y, [-1.0, 1.0, 1.0])


@pytest.mark.parametrize("ending", ["", ".xz", ".bz2", ".gz"])
@pytest.mark.parametrize("how", ["argument", "variable", "cache"])
@pytest.mark.usefixtures("tiny")
def test_where_registered_sets_are_looked_for(
    ending: str, how: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache if how == "cache" else tmp_path / "data"
    folder.mkdir()
    path = write(folder / f"tiny.scale{ending}", PACKERS[ending[1:] or "plain"](TINY))
    if how == "variable":
        monkeypatch.setenv("FPDFP_DATA", str(folder))
    options: Any = {"directory": str(folder)} if how == "argument" else {}
    check_tiny(load("tiny", download=False, **options), path)
    check_tiny(load("tiny", n_features=4, **options), path)


@pytest.mark.usefixtures("tiny")
def test_compression_is_recognised_by_content(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.scale.bz2", gzip.compress(TINY))
    check_tiny(load("tiny", directory=tmp_path), path)


def test_a_named_folder_without_the_set_is_an_error(tiny: registry.Registered, tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    write(cache / "tiny.scale", TINY)
    message = "is a folder, .*looked for tiny.scale, tiny.scale.xz, tiny.scale.bz2, tiny.scale.gz. Fetch http"
    with pytest.raises(DataSetError, match=message):
        load("tiny", directory=tmp_path)
    with pytest.raises(DataSetError, match="nowhere is no folder"):
        load("tiny", directory=tmp_path / "nowhere")


@pytest.mark.usefixtures("tiny")
def test_the_cache_stands_in_for_the_folder_of_the_variable(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    path = write(cache / "tiny.scale", TINY)
    for folder in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("FPDFP_DATA", str(folder))
        check_tiny(load("tiny"), path)


def test_what_to_do_by_hand_is_said(
    tiny: registry.Registered, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FPDFP_DATA", str(tmp_path / "data"))
    for options, why in (({"download": False}, "download is False"), ({}, "downloading it failed: ")):
        with pytest.raises(DataSetError) as caught:
            load("tiny", **options)
        said = str(caught.value)
        assert f"data set 'tiny' is not on this machine, and {why}" in said
        assert f"Download {tiny.url} yourself" in said
        assert f"{tmp_path / 'data' / 'tiny.scale.bz2'} or {cache / 'tiny.scale.bz2'}" in said
        assert "unpacked, without .bz2, is as good" in said
    assert not cache.exists() or list(cache.iterdir()) == []


@pytest.mark.usefixtures("tiny")
def test_copies_that_are_not_the_set_are_refused(tmp_path: Path, cache: Path) -> None:
    for content in (TINY + b"\n", b"not even LIBSVM", b"1 9:1\n", b""):
        path = write(tmp_path / "tiny.scale", content)
        found = hashlib.sha256(content).hexdigest()
        expected = hashlib.sha256(TINY).hexdigest()
        with pytest.raises(DataSetError, match=f"tiny.scale is not data set 'tiny': .*{found}, but {expected} is"):
            load("tiny", directory=tmp_path)
        assert path.read_bytes() == content  # it is the user's own
    assert not (cache / "parsed").exists()


def test_the_checksum_is_not_computed_again(tiny: registry.Registered, tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "tiny.scale", TINY)
    first = load("tiny", directory=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fpdfp.datasets.readers.read_libsvm", None)
        same(first, load("tiny", directory=tmp_path))
        check_tiny(first, path)
    # the same file under another checksum is not what was verified
    registry.REGISTRY["tiny"] = registry.Registered(**{**vars(tiny), "sha256": "0" * 64})
    with pytest.raises(DataSetError, match="is not data set 'tiny'"):
        load("tiny", directory=tmp_path)


# --- downloads --------------------------------------------------------------------------------------------------------


class Server:
    """A server on this machine that says what it is told to."""

    def __init__(self) -> None:
        self.content = bz2.compress(TINY)
        self.announced: int | None = None
        self.status = 200
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(outer.announced or len(outer.content)))
                self.end_headers()
                self.wfile.write(outer.content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server(tiny: registry.Registered, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    running = Server()
    url = f"http://127.0.0.1:{running.server.server_port}/sets/tiny.scale.bz2"
    monkeypatch.setitem(registry.REGISTRY, "tiny", registry.Registered(**{**vars(tiny), "url": url}))
    try:
        yield running
    finally:
        running.close()


def test_a_set_is_downloaded_once(server: Server, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = cache / "tiny.scale.bz2"
    check_tiny(load("tiny"), path)
    assert path.read_bytes() == server.content
    check_tiny(load("tiny"), path)
    check_tiny(load("tiny", download=False), path)
    assert server.asked == ["/sets/tiny.scale.bz2"]
    assert sorted(file.name for file in cache.iterdir()) == ["parsed", "tiny.scale.bz2"]
    assert capfd.readouterr() == ("", "")


def test_downloads_are_their_owners_whatever_the_umask(server: Server, cache: Path) -> None:
    before = os.umask(0)
    try:
        load("tiny")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in cache.rglob("*") if path.is_file()} == {0o600}
    assert cache.stat().st_mode & 0o077 == 0 or cache.stat().st_uid != os.getuid()


def test_the_bar_of_a_download(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    load("tiny", progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "tiny" in err
    size = len(server.content)
    assert f"{size}/{size} bytes" in err
    assert len(server.asked) == 1


@pytest.mark.parametrize(("announced", "total"), [(0, None), (10, 10)])
def test_the_bar_counts_whether_or_not_the_server_announces(announced: int, total: int | None) -> None:
    bar = registry.Bar("set")
    bar.total = announced
    bar.update(4)
    bar.reset()
    bar.update(10)
    assert bar.total == total
    bar.close()
    bar.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content": bz2.compress(TINY + b"1 1:1\n")}, "is not data set 'tiny': the sha256 of its unpacked text is"),
        ({"content": b"<html>not found</html>"}, "is not data set 'tiny'"),
        ({"content": bz2.compress(TINY)[:-9]}, "is cut off or damaged"),
        (
            {"content": bz2.compress(TINY)[:-9], "announced": len(bz2.compress(TINY))},
            "downloading it failed: .*Incomplete",
        ),
        ({"status": 404}, "downloading it failed: 404 .*Download http.* yourself and put it at .*cache/tiny.scale.bz2"),
        ({"status": 500}, "downloading it failed: 500"),
    ],
)
def test_downloads_that_go_wrong_leave_nothing(
    server: Server, cache: Path, change: dict[str, Any], message: str
) -> None:
    vars(server).update(change)
    with pytest.raises(DataSetError, match=message):
        load("tiny", progress=True)
    assert list(cache.iterdir()) == []
    vars(server).update({"content": bz2.compress(TINY), "announced": None, "status": 200})
    check_tiny(load("tiny"), cache / "tiny.scale.bz2")


def test_a_wrong_checksum_names_both(server: Server, tiny: registry.Registered) -> None:
    server.content = b"1 1:1\n"
    with pytest.raises(DataSetError, match=f"{hashlib.sha256(b'1 1:1' + bytes([10])).hexdigest()}, but {tiny.sha256}"):
        load("tiny")


def test_downloads_to_where_nothing_can_be_written(server: Server, cache: Path) -> None:
    write(cache, b"a file where the folder should be")
    with pytest.raises(DataSetError, match=r"downloading it failed: .*Download http"):
        load("tiny")
    assert server.asked == []


# --- the real sets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "positive"),
    [("a9a", 7_841), ("a9a.t", 3_846), pytest.param("covtype", 283_301, marks=pytest.mark.slow)],
)
def test_the_real_sets(name: str, positive: int, data_dir: Path, cache: Path) -> None:
    entry = registry.REGISTRY[name]
    first = load(name, directory=data_dir)
    assert first.X.shape == (entry.rows, entry.features)
    assert first.y.shape == (entry.rows,)
    assert set(first.y) == {-1.0, 1.0}
    assert np.count_nonzero(first.y == 1) == positive
    assert len(kept(cache)) == 1
    start = time.perf_counter()
    again = load(name, directory=data_dir)
    assert time.perf_counter() - start < 5  # a fifth of a second where the machine has nothing else to do
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(first.X, part), getattr(again.X, part))
    np.testing.assert_array_equal(first.y, again.y)
    assert first.X.shape == again.X.shape


def test_a9a_is_what_the_benchmarks_read(data_dir: Path) -> None:
    from sklearn.datasets import load_svmlight_file

    with lzma.open(data_dir / "a9a.xz") as file:
        X, y = load_svmlight_file(file, n_features=123)
    data = load("a9a", directory=data_dir)
    assert (scipy.sparse.csr_array(X) != data.X).nnz == 0
    np.testing.assert_array_equal(np.where(y == 1, 1.0, -1.0), data.y)
    assert repr(data) == "DataSet('a9a': 32,561 rows, 123 features, 451,592 entries stored (11.3%), 2 labels)"


def test_the_registry_is_whole() -> None:
    assert list(registry.REGISTRY) == ["a9a", "a9a.t", "covtype"]
    for name, entry in registry.REGISTRY.items():
        assert entry.name == name
        assert len(entry.sha256) == 64
        assert entry.url.startswith("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/")
        assert Path(entry.url).name in (entry.file, entry.file + ".bz2")
        assert entry.citation


def test_import_stays_light() -> None:
    heavy = ("scipy", "sklearn", "pooch", "requests", "matplotlib", "rich", "pyarrow", "pandas")
    program = "import sys, fpdfp.datasets.loading, fpdfp.datasets.splits; "
    program += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
