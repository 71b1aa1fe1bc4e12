"""Count what makes the package long or hard to follow.

    python -m tools.metrics [--ref REF] [--list]

Prints a table of the folders of the package: Python files, lines, classes, functions, the lines of the longest
function, and how many files a default ``solve`` enters. Below it are the longest functions, other counts, and the
files and lines that are not part of the wheel. The last line is the same as JSON.

With ``--ref`` the files of a commit, a tag or a branch are counted, from a temporary folder; ``--list`` adds the places
behind the numbers. A default ``solve`` is run and traced in a process of its own, so the package must be importable
with the dependencies of this environment. Lines are all lines of a file; those of a function are without its docstring
and decorators.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: So many lines that stand in two places make a pair, unless they stand in more places than ``COMMON``.
SHARED, COMMON = 6, 8
#: Lines of more words and signs than this are more than a keyword, a name and a colon.
WORDY = 3
#: Folders beside the package, which are not part of the wheel.
OUTSIDE = ("reproduce", "benchmarks", "tools", "tests")
#: How many of the longest functions are shown.
LONGEST = 15
#: A function is long if it has more lines than this.
LONG = 40
#: A function declares the options of ``solve`` again where it has so many parameters of the same names.
OPTIONS = 3

TRACED = """
import collections, json, sys, threading
import numpy as np
import fpdfp

package = fpdfp.__path__[0] + "/"
entered = collections.Counter()

def follow(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(package):
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(package):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != name:
            entered[name.removeprefix(package)] += 1

def run():
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((60, 6)), generator.choice([-1.0, 1.0], 60)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(60) % 3, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01), fpdfp.linops.Difference(6))
    follower = follow if traced else None
    sys.setprofile(follower)
    threading.setprofile(follower)
    fpdfp.solve(problem, rounds=10, tol=None, progress=False)
    sys.setprofile(None)
    threading.setprofile(None)

for traced in (False, True):  # compiled first
    run()
print(json.dumps(dict(entered.most_common())))
"""

REMOTE = """
import json, logging, pathlib, sys, tempfile
import fpdfp
from fpdfp.engines.run import Run
from tests import sites_here
from tests.honest_study import SIZES, make_patients

package = fpdfp.__path__[0] + "/"
entered = {"coordinator": set(), "site": set()}
side = []

def follow(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(package) and frame.f_code.co_name != "<module>":
        entered[side[-1]].add(name.removeprefix(package))

def within(who, function):
    def call(*given, **named):
        if who == "site" and not side:  # not a round
            return function(*given, **named)
        side.append(who)
        sys.setprofile(follow)
        try:
            return function(*given, **named)
        finally:
            side.pop()
            sys.setprofile(follow if side else None)
    return call

logging.disable(logging.WARNING)
advance, respond = Run.advance, sites_here.respond
method, run = fpdfp.ShiftedPDFP(), fpdfp.RunOptions(rounds=10)
with tempfile.TemporaryDirectory() as folder:
    with sites_here.FederationHere(make_patients(SIZES), pathlib.Path(folder)) as sites:
        for traced in (False, True):  # compiled first
            if traced:
                Run.advance, sites_here.respond = within("coordinator", advance), within("site", respond)
            fpdfp.FederatedLogisticRegression("none", method=method, run=run).fit(sites, "disease ~ age + female")
print(json.dumps({who: sorted(names) for who, names in entered.items()}))
"""


def main() -> None:
    """Count what is in the working tree or in a commit, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ref", help="a commit, a tag or a branch; what is in the working tree if left out")
    parser.add_argument("--list", action="store_true", help="show the places behind the numbers")
    chosen = parser.parse_args()
    if chosen.ref is None:
        found = measure(ROOT)
    else:
        with tempfile.TemporaryDirectory() as folder:
            extract(chosen.ref, Path(folder))
            found = measure(Path(folder))
    show(found, places=chosen.list)
    print(json.dumps(found))


def extract(ref: str, folder: Path) -> None:
    """Write what is counted of a commit into a folder."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout

    there = git("ls-tree", "--name-only", ref).decode().split()
    wanted = [name for name in ("src", *OUTSIDE) if name in there]
    with tarfile.open(fileobj=io.BytesIO(git("archive", ref, *wanted))) as packed:
        packed.extractall(folder, filter="data")


def read(folder: Path) -> dict[str, str]:
    """Return the Python files of a folder by their names in it; none if there is no such folder."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.py"))}


def measure(root: Path) -> dict[str, Any]:
    """Return every number of a checkout, and the places behind them."""
    package = root / "src" / "fpdfp"
    texts = read(package)
    trees = {name: ast.parse(text) for name, text in texts.items()}
    functions = find_functions(trees)
    entered: dict[str, int] = trace(package, TRACED)
    remote = trace(package, REMOTE) if (root / "tests" / "sites_here.py").is_file() else {}
    parts = count_by_part(texts, trees, functions, entered)
    declared = find_options(trees)
    lazy = [place for name, tree in trees.items() for place in find_lazy_imports(name, tree)]
    pairs = find_pairs(texts)
    return {
        **{name: sum(part[name] for part in parts.values()) for name in ("files", "lines", "classes", "functions")},
        "parts": parts,
        "outside": {name: count(read(root / name)) for name in OUTSIDE if (root / name).is_dir()},
        "longest_functions": functions[:LONGEST],
        "long_functions": sum(function.lines > LONG for function in functions),
        "median_function": functions[len(functions) // 2].lines if functions else 0,
        "members": {name: count_members(trees, name) for name in ("Method", "Algorithm")},
        "options_declared_again": declared,
        "lazy_imports": len(lazy),
        "lazy_import_places": lazy,
        "entered": entered,
        "entered_by_a_remote_round": remote,
        "pairs": len(pairs),
        "pair_places": pairs,
    }


class Function(NamedTuple):
    """A function or a method: its place, its name, and its lines."""

    file: str
    line: int
    name: str
    lines: int


def find_functions(trees: dict[str, ast.Module]) -> list[Function]:
    """Return all functions, the longest first; one inside another counts in both."""
    found = []
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
                length = (node.end_lineno or 0) - node.lineno + 1
                if docstring is not None:
                    length -= (docstring.end_lineno or 0) - docstring.lineno + 1
                found.append(Function(file, node.lineno, node.name, length))
    return sorted(found, key=lambda function: (-function.lines, function.file, function.line))


def part_of(file: str) -> str:
    """Return the folder of the package that a file belongs to."""
    return file.split("/")[0] if "/" in file else "(top)"


def count(texts: dict[str, str]) -> dict[str, int]:
    """Return the number of files and of their lines."""
    return {"files": len(texts), "lines": sum(len(text.splitlines()) for text in texts.values())}


def count_by_part(
    texts: dict[str, str], trees: dict[str, ast.Module], functions: list[Function], entered: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Return the counts of each folder of the package, and of the files beside them."""
    parts = {}
    for part in sorted(set(map(part_of, texts))):
        own = {file: text for file, text in texts.items() if part_of(file) == part}
        lengths = [function.lines for function in functions if function.file in own]
        parts[part] = {
            **count(own),
            "classes": sum(isinstance(node, ast.ClassDef) for file in own for node in ast.walk(trees[file])),
            "functions": len(lengths),
            "longest": max(lengths, default=0),
            "entered": sum(file in own for file in entered),
        }
    return parts


def count_members(trees: dict[str, ast.Module], name: str) -> int | None:
    """Return the number of fields and methods that a class of ``methods`` declares; None where there is no such one."""
    for file, tree in trees.items():
        for node in tree.body:
            if file.startswith("methods/") and isinstance(node, ast.ClassDef) and node.name == name:
                return len(set(_fields(node)) | {part.name for part in node.body if isinstance(part, ast.FunctionDef)})
    return None


def find_options(trees: dict[str, ast.Module]) -> dict[str, Any]:
    """Return where parameters of ``solve`` are declared: functions and classes that have several of them."""
    declarations = [
        (f"{file}:{node.lineno} {node.name}", _parameters(node))
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    public = [names for place, names in declarations if re.search(r"\bsolve\.py:\d+ solve$", place)]
    names: list[str] = max(public, key=len)
    options = set(names) - {"problem", "method"}
    again = {
        place: sorted(options & set(names)) for place, names in declarations if len(options & set(names)) >= OPTIONS
    }
    counts = Counter(name for names in again.values() for name in names)
    return {
        "parameters_of_solve": len(options) + 2,
        "places": len(again),
        "declared_more_than_once": sum(count > 1 for count in counts.values()),
        "declarations": sum(counts.values()),
        "where": {place: len(names) for place, names in again.items()},
    }


def _parameters(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return _fields(node)
    given = node.args
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _fields(node: ast.ClassDef) -> list[str]:
    named = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
    named += [target for part in node.body if isinstance(part, ast.Assign) for target in part.targets]  # type: ignore[misc]
    return [target.id for target in named if isinstance(target, ast.Name)]


def find_lazy_imports(file: str, tree: ast.AST, inside: bool = False) -> Iterator[str]:
    """Yield the imports of the package's own modules that are in functions."""
    for node in ast.iter_child_nodes(tree):
        if inside and isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.split(".")[0] == "fpdfp" for name in names):
                yield f"{file}:{node.lineno}"
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from find_lazy_imports(file, node, inside or function)


def trace(package: Path, program: str) -> Any:
    """Return what a program says about the files of the package that it enters.

    A small default ``solve`` of ten rounds: how often it enters each file from another one. Rounds at sites: which
    files are entered at the coordinator, and at a site.
    """
    paths = os.pathsep.join(map(str, (package.parent, package.parents[1])))
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=package, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def find_pairs(texts: dict[str, str]) -> list[str]:
    """Return the pairs of places that share lines, to the letter or in all but names, strings and numbers.

    A pair of files counts once, with its longest run; so does a file with itself. A run that is alike in shape alone
    counts if more than half of its lines say something: not fields, brackets and keywords alone.
    """
    lines = {name: _shapes(text) for name, text in texts.items()}
    longest: dict[tuple[str, str], tuple[int, str]] = {}
    for kind in ("text", "shape"):
        keys = {name: [getattr(line, kind) for line in found] for name, found in lines.items()}
        for a, i, b, j, length in _runs(keys):
            first, second = lines[a][i : i + length], lines[b][j : j + length]
            if kind == "shape" and 2 * sum(line.says_much for line in first) <= length:
                continue
            place = f"{a}:{first[0].number}-{first[-1].number} {b}:{second[0].number}-{second[-1].number}"
            longest[a, b] = max(longest.get((a, b), (0, "")), (length, place))
    return [place for _, place in sorted(longest.values(), reverse=True)]


def _runs(keys: dict[str, list[str]]) -> Iterator[tuple[str, int, str, int, int]]:
    """Yield where two runs of the same keys begin, and their length."""
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, found in keys.items():
        for i in range(len(found) - SHARED + 1):
            windows[tuple(found[i : i + SHARED])].append((name, i))
    starts = {
        (a, i, b, j)
        for places in windows.values()
        if len(places) <= COMMON
        for (a, i) in places
        for (b, j) in places
        if (a, i) < (b, j) and (a != b or j - i >= SHARED)
    }
    for a, i, b, j in starts:
        if (a, i - 1, b, j - 1) in starts:
            continue
        more = 0
        while (a, i + more + 1, b, j + more + 1) in starts:
            more += 1
        yield a, i, b, j, SHARED + more


class Line(NamedTuple):
    """A line that counts: its number, what it says, and its shape."""

    number: int
    text: str
    shape: str

    @property
    def says_much(self) -> bool:
        return len(self.shape.split()) > WORDY


def _shapes(text: str) -> list[Line]:
    """Return the lines that count: no blank ones, comments, imports or lone signs."""
    shapes: dict[int, list[str]] = defaultdict(list)
    source = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row = token.start[0]
        if token.type == tokenize.STRING and token.end[0] > row:
            for number in range(row, token.end[0] + 1):
                shapes[number].append(source[number - 1].strip())  # prose is compared to the letter
        elif token.type == tokenize.NAME:
            shapes[row].append(token.string if token.string in _KEYWORDS else "n")
        elif token.type in (tokenize.STRING, tokenize.NUMBER):
            shapes[row].append("v")
        elif token.type == tokenize.OP:
            shapes[row].append(token.string)
    kept = []
    for number, shape in sorted(shapes.items()):
        line = source[number - 1].strip()
        if re.search(r"\w", line) and not re.match(r"(from|import)\b", line):
            kept.append(Line(number, line, " ".join(shape)))
    return kept


_KEYWORDS = {
    "and", "as", "assert", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for", "if",
    "in", "is", "lambda", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "self", "None",
}  # fmt: skip


def show(found: dict[str, Any], *, places: bool) -> None:
    """Print the numbers for a person."""
    columns = ("files", "lines", "classes", "functions", "longest", "entered")
    print(f"{'part':<14}" + "".join(f"{name:>11}" for name in columns))
    for name, part in found["parts"].items():
        print(f"{name:<14}" + "".join(f"{part[column]:>11,}" for column in columns))
    longest = max((part["longest"] for part in found["parts"].values()), default=0)
    total = [*(found[name] for name in columns[:4]), longest, len(found["entered"])]
    print(f"{'all':<14}" + "".join(f"{number:>11,}" for number in total))
    print("\noutside the wheel")
    for name, part in found["outside"].items():
        print(f"{name:<14}{part['files']:>11,}{part['lines']:>11,}")
    print(f"\nfunctions: median {found['median_function']} lines; longer than {LONG}: {found['long_functions']}")
    for file, line, name, lines in found["longest_functions"]:
        print(f"    {lines:>4}  {name}  {file}:{line}")
    print()
    for name, members in found["members"].items():
        print(f"members of {name}: {'no such class' if members is None else members}")
    again = found["options_declared_again"]
    print(
        f"parameters of solve: {again['parameters_of_solve']}; declared more than once: "
        f"{again['declared_more_than_once']}, {again['declarations']} times in {again['places']} places"
    )
    print(f"lazy internal imports: {found['lazy_imports']}")
    entered = found["entered"]
    print(f"a default solve of 10 rounds enters {len(entered)} files, {sum(entered.values())} times")
    if places:
        for name, times in entered.items():
            print(f"    {times:>6}  {name}")
    for who, names in found["entered_by_a_remote_round"].items():
        print(f"a round at sites enters {len(names)} files at a {who}")
        if places:
            print(*(f"            {name}" for name in names), sep="\n")
    print(f"pairs of places that share {SHARED} lines or more: {found['pairs']}")
    if places:
        for place in (*found["pair_places"], *found["lazy_import_places"], *again["where"]):
            print(f"    {place}")


if __name__ == "__main__":
    main()
