"""The tool that counts how long and how tangled the package is."""

from __future__ import annotations

import ast
import json

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


@pytest.mark.slow
def test_the_last_line_is_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "trace", lambda package: {"engines/solve.py": 1, "problem.py": 3})
    monkeypatch.setattr("sys.argv", ["metrics"])
    metrics.main()
    printed = capsys.readouterr().out
    assert "passes 2 files, entered 4 times" in printed
    found = json.loads(printed.splitlines()[-1])
    assert sum(part["files"] for part in found["parts"].values()) == found["files"]
    assert sum(part["lines"] for part in found["parts"].values()) == found["lines"]
