"""List the measured figures of the pages with the commands that made them.

    python -m tools.figures

Pages in ``docs/results`` name the commands of their figures, section by section. Where a section links to stored
numbers (``.json``), the numbers of the next table are among them. Other pages repeat figures of pages that they link
to. The tests check all of this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
COMMAND = re.compile(r"`((?:python -m|make|…) ?[^`]+|--[^`]+)`")
NUMBER = re.compile(r"(?<![\w.,])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
UNITS = r"(?:s|ms|µs|min|minutes?|seconds?|rounds(?:/s)?|kB|MB|GB|[kMGT]bit|dB|%|times|exchanges|TB/s)"
#: A number with a unit, or a relative error that is not a power of ten; those are tolerances.
FIGURE = re.compile(rf"(?<![\w.,^])(\d+(?:,\d{{3}})*(?:\.\d+)?) ({UNITS})(?!\w)|(?<![\w.])(\d\.\d+e-\d+)")
#: Not measured: settings, limits of policies, and bounds that are proved, page by page.
GIVEN: dict[str, set[str]] = {
    "docs/federation/analyst.md": {"30 seconds", "50 ms"},
    "docs/federation/site.md": {"20 %"},
    "docs/howto/flower.md": {"600 s"},
    "docs/howto/own-operator.md": {"0.01 %"},
    "docs/mathematics.md": {"1.1 times"},
    "docs/threat-model.md": {"300 rounds", "94 %"},
}


class Figures(NamedTuple):
    """The figures of a section and where they come from."""

    page: str
    section: str
    figures: list[str]
    source: str


def prose(text: str) -> str:
    """Return a page without code, comments and targets of links; tables stay."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the titles and texts of a page's sections; the first is the introduction."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    yield "", parts[0]
    yield from zip(parts[1::2], parts[2::2], strict=True)


def commands(text: str) -> list[str]:
    """Return the commands that a text names, on one line each."""
    return [" ".join(found.split()) for found in COMMAND.findall(text)]


def number(text: str) -> float:
    """Return the value of a number as pages write it."""
    return float(text.replace(",", "").replace("−", "-"))


def numbers(text: str) -> set[float]:
    """Return all numbers of a text."""
    return {abs(number(found)) for found in NUMBER.findall(text)}


def evidence() -> Iterator[Figures]:
    """Yield the sections of the evidence that have figures."""
    for path in sorted(RESULTS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        for title, text in sections(page):
            named = [one for one in commands(text) if one.startswith(("python", "make"))] or commands(page)[:1]
            found = [line for line in text.splitlines() if line.startswith("|") and re.search(r"\d", prose(line))]
            found += ["".join(one) for one in FIGURE.findall(prose(text))]
            if found:
                yield Figures(path.name, title, found, "; ".join(named))


def unknown_commands() -> list[str]:
    """Return the commands on pages of evidence whose module, target or options do not exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    found = []
    for path in sorted(RESULTS.glob("*.md")):
        module = ""
        for command in commands(path.read_text(encoding="utf-8")):
            words = command.split()
            if words[0] == "make":
                if words[1] not in targets:
                    found.append(f"{path.name}: {command}")
                continue
            if words[0] == "python":
                module = words[2]
            source = "".join(file.read_text() for file in files(module)) if module else ""
            missing = [one for one in words if one.startswith("--") and one.split("=")[0] not in source]
            if not source or missing:
                found.append(f"{path.name}: {command} {missing}")
    return found


def files(module: str) -> list[Path]:
    """Return the files of a module of the repository; of a package all of them."""
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return sorted(path.glob("*.py"))
    return [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else []


def repeated() -> Iterator[tuple[str, str, str]]:
    """Yield the figures of all other pages: the page, the figure, and the page of evidence that has it, or nothing."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("docs/results/", "docs/gallery/")):
            continue
        text = path.read_text(encoding="utf-8").replace("95 %", "")  # the level of intervals
        linked = {(path.parent / one).resolve() for one in re.findall(r"\]\(([^)#\s]+\.md)", text)}
        known = {page: numbers(page.read_text(encoding="utf-8")) for page in linked if page.is_relative_to(RESULTS)}
        for value, unit, error in FIGURE.findall(prose(text)):
            figure = error or f"{value} {unit}"
            if figure in GIVEN.get(name, set()):
                continue
            source = next((page.name for page, has in known.items() if abs(number(error or value)) in has), "")
            yield name, figure, source


def stored() -> Iterator[tuple[str, str, bool]]:
    """Yield the numbers of tables that follow a link to stored numbers: the page, the number, and whether it is there.

    A program writes the page of the paper's experiments from its numbers, and another test compares them.
    """
    for path in sorted(set(RESULTS.glob("*.md")) - {RESULTS / "paper.md"}):
        text = path.read_text(encoding="utf-8")
        for link, table in re.findall(r"\]\(([\w/-]+\.json)\)(?:(?!\]\()[^|])*?\n((?:\|.*\n)+)", text):
            values = list(leaves(json.loads((path.parent / link).read_text())))
            for row in table.splitlines()[2:]:
                for cell in row.strip("|").split("|")[1:]:
                    for found in NUMBER.findall(prose(cell).replace("³", "")):
                        yield path.name, found, any(shown(found, value) for value in values)


def leaves(tree: Any) -> Iterator[float]:
    """Yield all numbers of a tree."""
    if isinstance(tree, dict | list):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(one)
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield float(tree)


def shown(text: str, value: float) -> bool:
    """Return whether a number is a value, rounded to its digits, possibly in thousandths or thousands of its unit."""
    digits = len(text.partition(".")[2].partition("e")[0])
    return any(abs(number(text) - value * unit) <= 0.5001 * 10.0**-digits for unit in (1.0, 1e3, 1e-3, 1e-6, 1e-9))


def main() -> None:
    """Print the list: evidence by section, repeated figures by page."""
    for one in evidence():
        where = f"{one.page}, {one.section or 'introduction'}"
        print(f"{where}: {len(one.figures)} lines and figures: {one.source or 'NO COMMAND'}")
    for page, figure, source in repeated():
        print(f"{page}: {figure}: {source or 'NO SOURCE'}")
    for page, text, there in stored():
        if not there:
            print(f"{page}: {text}: not in the stored numbers")
    print(*unknown_commands(), sep="\n")


if __name__ == "__main__":
    main()
