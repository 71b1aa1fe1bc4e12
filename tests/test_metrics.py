"""The tool that counts how long and how tangled the package is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tools import metrics

LINES = [f"total = compute(first[{n}], second, scale={n}) + offset" for n in range(8)]


def function(name: str, lines: list[str]) -> str:
    return "\n".join([f"def {name}(first, second, offset):", *(f"    {line}" for line in lines), ""])


def test_pairs_are_the_same_lines_or_lines_of_the_same_shape() -> None:
    other = [line.replace("first", "left").replace("second", "right") for line in LINES]
    texts = {"a.py": function("one", LINES[:7]), "b.py": "import numpy\n\n" + function("two", LINES[:7])}
    assert metrics.find_pairs(texts) == ["a.py:1-8 b.py:3-10"]
    assert metrics.find_pairs({**texts, "b.py": function("two", other[:7])}) == ["a.py:1-8 b.py:1-8"]
    assert metrics.find_pairs({**texts, "b.py": function("two", LINES[:3])}) == []
    # Twice in one file; and too common to say anything.
    assert metrics.find_pairs({"a.py": function("one", LINES[:7]) + function("two", LINES[:7])}) == [
        "a.py:1-8 a.py:9-16"
    ]
    assert metrics.find_pairs({f"{n}.py": texts["a.py"] for n in range(9)}) == []


def test_fields_are_no_pair() -> None:
    fields = "class {}:\n" + "".join(f"    field_{n}: int\n" for n in range(8))
    named = fields.replace("field_", "other_")
    assert metrics.find_pairs({"a.py": fields.format("A"), "b.py": named.format("B")}) == []


def test_options_lazy_imports_and_members() -> None:
    texts = {
        "engines/solve.py": "def solve(problem, method, *, rounds, seed, tol, x0): ...\n"
        "def _solve(rounds, seed, tol): ...",
        "estimators/base.py": "class Base:\n    seed: int\n    tol: float\n    rounds: int = 3\n    other: int",
        "methods/base.py": "class Method:\n    step: int\n    a, b = 1, 2\n    c = 3\n"
        "    def init(self):\n        import fpdfp\n        from fpdfp.engines import solve\n        import numpy",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    found = metrics.find_options(trees)
    assert (found["parameters_of_solve"], found["places"], found["declarations"]) == (6, 3, 10)
    assert found["declared_more_than_once"] == 3
    assert [*metrics.find_lazy_imports("m.py", trees["methods/base.py"])] == ["m.py:6", "m.py:7"]
    assert metrics.count_members(trees, "Method") == 3
    assert metrics.count_members(trees, "Algorithm") is None


def test_functions_and_classes_are_counted_by_folder() -> None:
    long = "\n".join(["class A:", "    class B:", "        pass", "", *("    " + line for line in (
        "@property", "def long(self):", '    """Two', '    lines."""', *(f"    x{n} = {n}" for n in range(9)),
    )), ""])  # fmt: skip
    texts = {"solve.py": "def short():\n    return 1\n", "methods/a.py": long, "methods/b.py": "X = 1\n"}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    functions = metrics.find_functions(trees)
    assert functions == [("methods/a.py", 6, "long", 10), ("solve.py", 1, "short", 2)]
    parts = metrics.count_by_part(texts, trees, functions, ["methods/a.py", "solve.py"])
    assert parts == {
        "(top)": {"files": 1, "lines": 2, "classes": 0, "functions": 1, "longest": 2, "entered": 1},
        "methods": {"files": 2, "lines": 18, "classes": 2, "functions": 1, "longest": 10, "entered": 1},
    }


def test_folders_of_a_commit_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    metrics.extract("HEAD", tmp_path)
    assert (tmp_path / "src" / "fpdfp" / "__init__.py").is_file()
    assert metrics.read(tmp_path / "nowhere") == {}


@pytest.mark.slow
def test_the_last_line_is_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = {"engines/solve.py": 1, "problem.py": 3}, {"coordinator": ["engines/run.py"], "site": []}
    monkeypatch.setattr(metrics, "trace", lambda package, program: local if program == metrics.TRACED else remote)
    monkeypatch.setattr("sys.argv", ["metrics"])
    metrics.main()
    printed = capsys.readouterr().out
    assert "enters 2 files, 4 times" in printed
    assert "a round at sites enters 1 files at a coordinator" in printed
    found = json.loads(printed.splitlines()[-1])
    assert sum(part["files"] for part in found["parts"].values()) == found["files"]
    assert sum(part["lines"] for part in found["parts"].values()) == found["lines"]
    assert sum(part["entered"] for part in found["parts"].values()) == 2
    assert found["longest_functions"][0][3] == max(part["longest"] for part in found["parts"].values())
    assert {"benchmarks", "tools", "tests"} <= set(found["outside"])
