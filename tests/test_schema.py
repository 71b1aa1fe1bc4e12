"""Tables of sites: types, what sites say of their columns, and differences that are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import questions
from fpdfp.federation.cohort import Schemas
from fpdfp.federation.questions import (
    ColumnSchema,
    ModelSpec,
    MomentsQuestion,
    SchemaQuestion,
    Sums,
    SumsQuestion,
    read_answer,
    read_question,
    read_spec,
    write,
    write_answer,
)
from fpdfp.federation.table import SiteTable
from fpdfp.formula import Design, code, parse


def schema(frame: Any, **columns: Any) -> dict[str, ColumnSchema]:
    found: Any = SiteTable.read(frame, columns).answer(SchemaQuestion())
    return {column.name: column for column in found.columns}


def test_types_are_found() -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2, 3],
            "with gaps": [1.0, None, 3.0],
            "number": [0.5, 1.0, 2.0],
            "coded": [1.0, 2.0, 1.0],
            "truth": [True, False, True],
            "text": ["b", "a", None],
            "mixed": [True, None, False],
            "date": pd.to_datetime(["2020-01-01"] * 3),
            "span": pd.to_timedelta([1, 2, 3], unit="D"),
            "empty": [None, None, None],
            "category": pd.Categorical(["x", "y", "x"]),
            "numbered": pd.Categorical([3, 4, 3]),
        }
    )
    found = schema(frame)
    kinds = {name: column.kind for name, column in found.items()}
    assert kinds == {
        "whole": "integer", "with gaps": "integer", "number": "number", "coded": "integer",
        "truth": "truth", "text": "category",
        "mixed": "truth", "date": "date", "span": "other",
        "empty": "empty", "category": "category", "numbered": "integer",
    }  # fmt: skip
    assert (found["text"].levels, found["text"].counts, found["text"].missing) == (("a", "b"), (1, 1), 1)
    assert found["truth"].levels == (False, True)
    assert (found["number"].least, found["number"].largest) == (0.5, 2.0)
    assert found["numbered"].levels == (3, 4)
    # Whole floating-point numbers of many values are measurements, not identifiers.
    assert schema(pd.DataFrame({"dose": np.arange(60.0)}))["dose"].kind == "number"


def test_files_and_frames_are_read_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age ": [50, 61, None], " stage": ["I", "II", None], "x": [0.1, 0.2, 0.3]})
    frame.to_csv(tmp_path / "rows.csv")  # with a column without a name
    frame.to_parquet(tmp_path / "rows.parquet")
    tables = [SiteTable.read(source) for source in (frame, tmp_path / "rows.csv", str(tmp_path / "rows.parquet"))]
    for table in tables:
        assert list(table.columns) == ["age", "stage", "x"]
        assert table.answer(SchemaQuestion()) == tables[0].answer(SchemaQuestion())
    polars = pytest.importorskip("polars")
    table = SiteTable.read(polars.DataFrame({"age": [50, 61, None], "stage": ["I", "II", None], "x": [0.1, 0.2, 0.3]}))
    assert table.answer(SchemaQuestion()) == tables[0].answer(SchemaQuestion())


def test_columns_are_declared() -> None:
    frame = pd.DataFrame({"dose": ["low", "high", "mid"], "code": [1, 2, 1], "flag": [0, 1, 1]})
    found = schema(
        frame, dose={"levels": ["low", "mid", "high"]}, code={"type": "category"}, flag={"type": "truth", "unit": "-"}
    )
    assert found["dose"].levels == ("low", "mid", "high")
    assert (found["code"].kind, found["code"].levels) == ("category", ("1", "2"))
    assert (found["flag"].kind, found["flag"].unit) == ("truth", "-")
    for wrong, said in [
        ({"does": {}}, "did you mean 'dose'"),
        ({"dose": {"type": "number"}}, "declared as number"),
        ({"dose": {"type": "colour"}}, "type must be one of"),
        ({"dose": {"units": "mg"}}, "takes unit, type, levels"),
        ({"dose": {"levels": ["low"]}}, "levels must be all"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            SiteTable.read(frame, wrong)
    with pytest.raises(ArgumentError, match="twice"):
        SiteTable.read(pd.DataFrame([[1, 2]], columns=["a", "a "]))
    with pytest.raises(ArgumentError, match="file that is there"):
        SiteTable.read("nowhere.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a\n1,2\n", "one column of each name, got 'a' twice"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2: 3 fields, but the header names 2 columns"),
        ("a,b\n1,2,\n3,4,\n", "line 2: 3 fields, but the header names 2 columns"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but the header names 2 columns"),
        ('a,b\n"1"3,4\n', "line 2: .*expected after"),
    ],
)
def test_files_whose_rows_do_not_fit_the_header_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ArgumentError, match=f"table .*rows.csv' cannot be read: .*{message}"):
        SiteTable.read(tmp_path / "rows.csv")


def test_spaces_and_columns_without_a_name_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(',,a, b\n1,x,2, "p, q"\n  \n\n2,y,3, r\n')
    found = SiteTable.read(tmp_path / "rows.csv").columns
    assert found["b"].levels == ("p, q", "r")
    assert list(found) == ["a", "b"]


FRAMES = {
    "north": pd.DataFrame({"y": [0, 1] * 15, "age": range(30, 60), "stage": ["I", "II", "III"] * 10}),
    "east": pd.DataFrame({"stage": ["I", "II", "III"] * 10, "age": [40.5] * 30, "y": [0, 1] * 15}),
    "south": pd.DataFrame({"y": [0, 1] * 15, "age": [50, 51, 52] * 10, "stage": ["I", "II"] * 15}),
}


def schemas(frames: dict[str, pd.DataFrame] = FRAMES, **columns: Any) -> Schemas:
    tables = [SiteTable.read(frame, columns.get(site)) for site, frame in frames.items()]
    return Schemas(list(frames), [table.answer(SchemaQuestion()) for table in tables])  # type: ignore[misc]


def test_what_sites_agree_on() -> None:
    agreed = schemas().agree(parse("y ~ age + stage"))
    assert agreed.kinds == {"y": "integer", "age": "number", "stage": "category"}
    assert agreed.levels["stage"] == ("I", "II", "III")  # south lacks one, which is no error
    frame = schemas().frame()
    assert list(frame.index) == ["y", "age", "stage"]
    assert frame.loc["age", "levels or range"] == "30 to 59"
    assert "3 sites: north (30 rows), east (30 rows), south (30 rows)" in str(schemas())


@pytest.mark.parametrize(
    ("formula", "site", "change", "said"),
    [
        ("y ~ agee", "north", {}, "no site has the column 'agee'; did you mean 'age'"),
        ("y ~ age", "east", {"age": None, "aage": 1}, "'age' is missing at east; did you mean 'aage'"),
        ("y ~ age", "east", {"age": "old"}, "different types: integer at north, category at east, integer at south"),
        (
            "y ~ stage",
            "east",
            {"stage": ["I", "II", "III"] * 9 + ["I", "II", "IV"]},
            "the level 'IV' only at east .*'I', 'II'.*levels=\"any\"",
        ),
        (
            "y ~ ident",
            None,
            {"ident": [f"p{i}" for i in range(30)]},
            "'ident' are different, like an identifier",
        ),
        ("y ~ ident", None, {"ident": list(range(1000, 1030))}, r"write I\(ident\)"),
        ("y ~ when", None, {"when": pd.Timestamp("2020-01-01")}, "holds dates at north, east, south; write years"),
        ("y ~ when", None, {"when": pd.Timedelta(days=1)}, "neither numbers nor texts"),
        ("y ~ C(many)", None, {"many": [i % 29 * 1000 + i // 29 for i in range(30)]}, "identifier|too many"),
    ],
)
def test_differences_are_refused_by_name(formula: str, site: str | None, change: dict[str, Any], said: str) -> None:
    frames = {name: frame.copy() for name, frame in FRAMES.items()}
    for name in frames if site is None else [site]:
        for column, value in change.items():
            frames[name] = (
                frames[name].drop(columns=column) if value is None else frames[name].assign(**{column: value})
            )
    with pytest.raises(ArgumentError, match=said):
        schemas(frames).agree(parse(formula))


def test_what_is_accepted_by_an_option() -> None:
    frames = FRAMES | {"east": FRAMES["east"].assign(stage="IV")}
    assert schemas(frames).agree(parse("y ~ stage"), "any").levels["stage"] == ("I", "II", "III", "IV")
    given = {"stage": ["IV", "I", "II", "III"]}
    assert schemas(frames).agree(parse("y ~ stage"), given).levels["stage"] == ("IV", "I", "II", "III")
    with pytest.raises(ArgumentError, match=r"levels\['stage'\] must have all levels, but 'III' at north"):
        schemas(frames).agree(parse("y ~ stage"), {"stage": ["IV", "I", "II"]})
    with pytest.raises(ArgumentError, match="levels must be 'shared'"):
        schemas(frames).agree(parse("y ~ stage"), "all")  # type: ignore[arg-type]
    # An integer that is a measurement.
    frames = {name: frame.assign(cells=range(2000, 2030)) for name, frame in FRAMES.items()}
    schemas(frames).agree(parse("y ~ I(cells)"))


def test_units() -> None:
    units = {"north": {"age": {"unit": "years"}}, "east": {"age": {"unit": "months"}}}
    with pytest.raises(ArgumentError, match="different units: years at north, months at east; convert"):
        schemas(**units).agree(parse("y ~ age"))
    assert "unit: years at north, months at east" in str(schemas(**units))


def design(missing: Any = "drop") -> Design:
    kinds = {"y": "integer", "age": "number", "stage": "category"}
    return code(parse("y ~ log(age) * stage + center(age)"), kinds, {"stage": ["I", "II"]}, missing=missing)


def test_questions_and_answers_survive_the_wire() -> None:
    plain = code(parse("y ~ log(age) * stage"), {"stage": "category"}, {"stage": ["I", "II", "III"]}, missing="mean")
    table = SiteTable.read(FRAMES["north"].assign(age=lambda frame: frame.age.where(frame.age > 33)))
    asked: list[Any] = [
        SchemaQuestion(), SchemaQuestion(("age",)), SumsQuestion(plain, (0, 1)), SumsQuestion(design()),
        MomentsQuestion(plain, np.array([45.0]), False),
    ]  # fmt: skip
    for question in asked:
        there = read_question(unpack(pack(write(question))))
        assert questions.dump(there).__repr__() == questions.dump(question).__repr__()
        if question is not asked[3]:
            answer = table.answer(there)
            back = read_answer(question, unpack(pack(write_answer(answer))))
            assert questions.dump(back).__repr__() == questions.dump(answer).__repr__()
    spec = ModelSpec(plain, np.array([45.0]), np.zeros(5), np.ones(5), True, "Logistic", (0, 1), np.zeros(6))
    arrived = read_spec(unpack(pack(questions.dump(spec))))
    assert arrived.digest == spec.digest
    X, y = table.features(arrived)[:2]
    assert X.shape == (30, 6)
    assert set(y) == {0.0, 1.0}


def test_sums() -> None:
    frame = pd.DataFrame({"y": [1, 0, None, 1], "age": [50.0, None, 60.0, 0.0], "stage": ["I", "II", "II", None]})
    kinds = {"stage": "category"}
    for missing, used in (("drop", 1), ("mean", 2), ("indicator", 3)):
        made = code(
            parse("y ~ age + stage"),
            kinds,
            {"stage": ["I", "II"]},
            missing=missing,
            absent=["age", "stage"],  # type: ignore[arg-type]
        )
        found = SiteTable.read(frame).answer(SumsQuestion(made, (0, 1)))
        assert isinstance(found, Sums)
        assert (found.rows, found.used) == (4, used)
        assert found.classes.sum() == used
        if missing != "drop":
            assert (found.known.tolist(), found.sums.tolist()) == ([3], [110.0])
    assert made.names == ["age", "stage[T.II]", "stage[T.missing]", "missing(age)"]
    made = code(parse("y ~ log(age)"), {}, {})
    found = SiteTable.read(frame).answer(SumsQuestion(made))
    assert isinstance(found, Sums)
    assert found.invalid.tolist() == [0, 1]


EVAL = {
    "response": {"column": "y"},
    "terms": [{"factors": [{"name": "a", "value": {"function": "eval", "of": {"column": "a"}}}], "term": 0}],
    "titles": ["a"],
}


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"kind": "rows"},
        {"kind": "schema", "question": {"columns": "age"}},
        {"kind": "schema", "question": {"columns": None, "more": 1}},
        {"kind": "sums", "question": {"design": "y ~ age", "classes": []}},
        {"kind": "sums", "question": {"design": {"response": {"code": "import os"}, "terms": [], "titles": []}}},
        {"kind": "moments", "question": {"design": EVAL, "means": np.zeros(0)}},
    ],
)  # fmt: skip
def test_forged_questions_are_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        read_question(tree)


def test_forged_models_are_refused() -> None:
    plain = code(parse("y ~ age"), {}, {})
    good: dict[str, Any] = questions.dump(
        ModelSpec(plain, np.zeros(0), np.zeros(1), np.ones(1), True, "Logistic", (0, 1), np.zeros(2))
    )
    read_spec(good)
    changes: list[dict[str, Any]] = [
        {"family": "Custom"}, {"classes": []}, {"centre": np.zeros(3)}, {"scale": -np.ones(1)}, {"ridge": -np.ones(2)},
        {"means": np.ones(2)}, {"scale": np.array([np.nan])}, {"scale": np.ones(1, dtype=np.float32)},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(MessageError):
            read_spec(good | change)


def test_codes_of_missing_values_and_values_in_place_of_others() -> None:
    frame = pd.DataFrame({"age": ["61", "?", "48", "-9"], "stage": ["1", "2", "II", None], "x": [1.0, -9.0, 2.0, 3.0]})
    declared = {
        "age": {"missing": ["?", -9]}, "stage": {"recode": {"1": "I", "2": "II"}, "levels": ["II", "I"]},
        "x": {"missing": [-9], "recode": {3: 30}},
    }  # fmt: skip
    found = {one.name: one for one in SiteTable.read(frame, declared).answer(SchemaQuestion()).columns}
    assert (found["age"].kind, found["age"].missing, found["age"].levels) == ("integer", 2, (48, 61))
    assert (found["stage"].levels, found["stage"].counts, found["stage"].missing) == (("II", "I"), (2, 1), 1)
    assert (found["x"].largest, found["x"].missing) == (30.0, 1)
    for wrong, says in (({"missing": "?"}, "missing must be a list"), ({"recode": ["a"]}, "recode must be a table")):
        with pytest.raises(ArgumentError, match=says):
            SiteTable.read(frame, {"age": wrong})
