"""The package as a whole: import and command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import typer.main
from typer.testing import CliRunner

import fpdfp
from fpdfp import demo
from fpdfp.cli import app
from fpdfp.declarative.build import build

HEAVY = (
    "numba",
    "scipy",
    "sklearn",
    "matplotlib",
    "rich",
    "typer",
    "pooch",
    "pyarrow",
    "requests",
    "cupy",
    "ray",
)


def test_import_is_light() -> None:
    program = f"import sys, fpdfp; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_is_that_of_the_installed_package() -> None:
    assert metadata.version("fpdfp") == fpdfp.__version__
    assert CliRunner().invoke(app, ["--version"]).output.strip() == fpdfp.__version__


def test_the_package_is_a_command_too() -> None:
    called = [sys.executable, "-m", "fpdfp", "--version"]
    assert subprocess.run(called, capture_output=True, text=True, check=True).stdout.strip() == fpdfp.__version__


def test_the_demonstration(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "out"), "--rounds", "150"])
    assert done.exit_code == 0, done.output
    for word in ("treated", "odds ratio", "total variation", "Mbit up", *demo.METHODS):
        assert word in done.output
    for picture in ("hospitals", "scan", "methods"):
        assert (tmp_path / "out" / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    saved = [fpdfp.runs.load(folder) for folder in fpdfp.runs.find(tmp_path / "out")]
    assert {run.info["name"] for run in saved} == set(demo.METHODS)
    assert all(run.model is not None and run.model["edges"] and run.info["reference"] for run in saved)
    runs = json.loads((tmp_path / "out" / "demo.json").read_text())["runs"]
    assert list(runs) == list(demo.METHODS)
    assert runs["default"]["bits_up"][-1] < min(runs[name]["bits_up"][-1] for name in runs if name != "default")
    assert runs["default"]["relative_error"][-1] < 1e-5
    for run in runs.values():
        assert run["relative_error"][-1] < 0.05 * run["relative_error"][0]
        assert run["accuracy"][-1] > 0.9


def test_the_demonstration_leaves_the_intercept_alone() -> None:
    chosen = build(demo.declare_run("default", 60, 0))
    intercept = np.zeros(31)
    intercept[-1] = 1.0
    assert chosen.problem.penalty.value(chosen.problem.linop.apply(intercept)) == 0.0


def test_compiling_is_not_counted_as_the_time_of_a_run() -> None:
    import numba

    from fpdfp._kernels.jit import working_time

    def slow_to_compile(x: float) -> float:
        for _ in range(3):
            x = np.sin(x) + np.cos(x)
        return x

    began, before = time.perf_counter(), working_time()
    numba.njit(slow_to_compile)(1.0)
    assert working_time() - before < 0.2 * (time.perf_counter() - began)


def test_machine_code_of_other_sources_is_forgotten(tmp_path: Path) -> None:
    from fpdfp._kernels.jit import forget_stale_code

    cache = tmp_path / "__pycache__"
    (tmp_path / "a.py").write_text("1")
    forget_stale_code(tmp_path)
    (cache / "b.f-1.nbi").write_text("code")
    (cache / "b.f-1.1.nbc").write_text("code")
    (cache / "a.pyc").write_text("code")
    forget_stale_code(tmp_path)
    assert len(list(cache.iterdir())) == 4
    (tmp_path / "a.py").write_text("12")
    forget_stale_code(tmp_path)
    assert sorted(f.name for f in cache.iterdir()) == ["a.pyc", "sources.txt"]


def test_docstrings_have_no_tables_that_the_reference_shows_as_rows_of_signs() -> None:
    sources = Path(fpdfp.__file__).parent.rglob("*.py")
    assert [str(path) for path in sources if "\n    =====" in path.read_text(encoding="utf-8")] == []


def test_the_reference_of_the_command_line_has_every_command_and_option() -> None:
    from tools import commands

    page, found = commands.page(), list(leaves(typer.main.get_command(app), "fpdfp"))
    assert len(found) > 25
    for path, command in found:
        part = page.split(f"## `{path}`\n", 1)[1].split("\n## ")[0]
        for one in command.params:
            name = ", ".join(one.opts) if one.param_type_name == "option" else one.name.upper()
            assert one.name == "help" or one.hidden or f"* `{name}`" in part


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group, with their paths."""
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command
