"""Imports go down only: every module of the package has its layer, and those in functions count too."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fpdfp

SOURCE = Path(fpdfp.__file__).parent
ROOT = Path(__file__).parents[1]
#: The layers, from the highest. A row may import itself and every row below it; a name stands for a module, or for a
#: package with all its modules, unless these have a row of their own.
LAYERS = {
    "applications": [
        "__main__",
        "cli",
        "demo",
        "report",
        "federation",
        "models ct.command",
        "federation.private",
        "federation.masked",
        "federation.cohort",
        "federation.table",
        "federation.questions",
    ],
    "running": [
        "tuning",
        "declarative",
        "ct.reconstruction ct.together",
        "loggers",
        "runs",
        "selection",
        "engines",
        "cohorts",
    ],
    "algorithms": ["methods", "precondition", "pooled traffic", "privacy.fit", "steps"],
    "questions": ["cohorts.question"],
    "mathematics": [
        "problem",
        "scores folds",
        "_verify bounds ct datasets linops losses penalties quadratic survival",
        "families formula inference",
    ],
    "messages": ["cohorts.serialization", "compress", "privacy sampling", "rng"],
    "kernels": ["_cuda", "_kernels", "_array"],
    "basics": [("_checks _files _lazy _naming _numbers _plotting _progress _sections _settings _typing _warn errors")],
}
RANKS = {name: rank for rank, row in enumerate(itertools.chain(*LAYERS.values())) for name in row.split()}


@functools.cache
def modules() -> dict[str, Path]:
    """Every module by its name in the package; the package itself has an empty one."""
    names = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def row_of(module: str) -> str | None:
    """Return the name under which a module is ranked."""
    parts = module.split(".")
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in RANKS), None)


@functools.cache
def homes(package: str) -> dict[str, str]:
    """Return the modules that the names of a package come from, also those that are loaded when they are asked for."""
    path = modules()[package]
    found: dict[str, str] = {}
    if path.name != "__init__.py":
        return {}
    prefix = f"{package}." if package else ""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("fpdfp."):
            found |= {alias.asname or alias.name: node.module.removeprefix("fpdfp.") for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "attach":
            for home, names in ast.literal_eval(node.args[1]).items():
                found |= {name: prefix + (home or name) for name in names.split()}
    return found


def resolve(name: str) -> str:
    """Return the module of the package in which a dotted name is at home."""
    module, rest = "", name.split(".") if name else []
    while rest:
        part, *rest = rest
        inner = f"{module}.{part}" if module else part
        # A name of a package hides a module of the same name.
        home = homes(module).get(part)
        if home is not None and home != module:
            module = resolve(f"{home}.{part}") if f"{home}.{part}" in modules() else home
        elif inner in modules():
            module = inner
        else:
            break
    return module


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of the package that a tree imports, anywhere but for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                yield from imported(ast.Module([other], []))
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            first, _, rest = (node.module or "").partition(".")
            if first == "fpdfp":
                for alias in node.names:
                    exact = f"{rest}.{alias.name}" if rest else alias.name
                    yield resolve(exact) if exact in modules() or rest in modules() else rest
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == "fpdfp":
                    yield resolve(rest)
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.startswith("fpdfp.") and dotted.replace(".", "").isidentifier():
                yield resolve(dotted.removeprefix("fpdfp."))
        yield from imported(node)


def goes_up(module: str, other: str) -> bool:
    above, below = row_of(other), row_of(module)
    return above is not None and below is not None and RANKS[above] < RANKS[below]


def test_every_module_has_a_layer() -> None:
    assert [name for name in modules() if name and row_of(name) is None] == []
    assert [name for name in RANKS if name not in modules()] == []


def test_imports_go_down() -> None:
    imports = {name: set(imported(ast.parse(path.read_text()))) for name, path in modules().items()}
    assert imports[""] == {"_lazy"}, "the package itself loads its names when they are asked for"
    assert {(name, other) for name in imports if name for other in imports[name] if goes_up(name, other)} == set()
    # Compression is the business of engines.
    methods = {name for name in imports if name.startswith("methods.")}
    assert {name for name in methods if any(row_of(other) == "compress" for other in imports[name])} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from fpdfp.engines.loop import Loop", {"engines"}),
        ("def f():\n    from fpdfp import solve", {"engines"}),
        ("def f():\n    if x:\n        import fpdfp.cli", {"cli"}),
        ("import fpdfp\nfpdfp.losses.Logistic(X, y)", {"losses"}),
        ("import fpdfp\nclass A:\n    def f(self):\n        return fpdfp.solve(p)", {"engines"}),
        ("from fpdfp.ct import ConeBeam, reconstruct", {"ct", "ct.reconstruction"}),
        ("import fpdfp\nfpdfp.ct.reconstruct(data)", {"ct", "ct.reconstruction"}),
        ("from fpdfp import ct, errors", {"ct", "errors"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fpdfp import cli", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from fpdfp import cli", {"cli"}),
        ("import numpy\nnumpy.fpdfp.solve", set()),
    ],
)
def test_imports_are_found(text: str, found: set[str]) -> None:
    assert {row_of(name) for name in imported(ast.parse(text)) if name} == found


@pytest.mark.parametrize("path", [*(ROOT / "reproduce").glob("*.py"), SOURCE / "demo.py"], ids=lambda path: path.stem)
def test_the_paper_s_experiments_use_the_public_interface_alone(path: Path) -> None:
    """The modules of the reference, and no name that begins with an underscore."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: (fpdfp[\w.]*)", pages, flags=re.MULTILINE))
    public = shown | {name.rpartition(".")[0] for name in shown}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fpdfp"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            assert not {name for name in names if "._" in name}
            assert {name for name in names if name not in public and node.module not in public} == set()
        elif isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_") or node.attr.startswith("__") or node.attr == "_replace", node.attr


def test_kernels_load_nothing_above_them() -> None:
    kernels = sorted(name for name in modules() if row_of(name) in ("_kernels", "_array"))
    program = "import sys\n" + "".join(f"import fpdfp.{name}\n" for name in kernels) + "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [name.removeprefix("fpdfp.") for name in done.stdout.split() if name.startswith("fpdfp.")]
    assert set(kernels) <= set(loaded)
    assert [name for name in loaded if RANKS[str(row_of(name))] < RANKS["_kernels"]] == []


#: What only runs with clients elsewhere pass through.
WIRE = (
    "compress/wire.py", "cohorts/collector.py", "cohorts/remote.py", "cohorts/requests.py", "cohorts/serialization.py",
    "cohorts/site.py",
)  # fmt: skip
LOCAL = """
import sys, threading
import numpy as np
import fpdfp

package = fpdfp.__path__[0] + "/"
entered = set()

def follow(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(package) and frame.f_code.co_name != "<module>":
        entered.add(name.removeprefix(package))

def run(features, weight, linop, **given):
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((60, features)), generator.choice([-1.0, 1.0], 60)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(60) % 3, l2=0.1)
    fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(weight), linop), progress=False, **given)

# Classes and functions that are made while modules are loaded do not count.
fpdfp.solve, fpdfp.engines.History, fpdfp.Problem
sys.setprofile(follow)
threading.setprofile(follow)
run(6, 0.01, fpdfp.linops.Difference(6), rounds=10)
run(6, 0.01, None, rounds=100, tol=1e-6)
run(200, 0.1, None, rounds=100, tol=1e-6)
run(6, 0.01, None, rounds=10, method=fpdfp.FPDFP(), compressor=fpdfp.QSGD(5))
sys.setprofile(None)
print(*sorted(entered))
"""


def test_a_local_run_does_not_enter_the_wire_code() -> None:
    done = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, text=True, check=True)
    entered = done.stdout.split()
    assert "engines/working_set.py" in entered
    assert [name for name in entered if name.startswith(WIRE)] == []
