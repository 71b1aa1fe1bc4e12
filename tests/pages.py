"""The pages of the documentation as data: their blocks of code, what these print, their commands and their links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Pages a person reads; those that a program writes from runs (results, the gallery) have tests of their own.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.parent != DOCS / "gallery"]

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
#: Gaps and residuals of a noisy run vary with the processor's rounding; the rest does so in later digits only.
LOOSE = re.compile(r"gap|residual|relative error|certified")
#: So does, by some rounds, when such a run reaches its tolerance, and with it all that was sent: the first example of
#: estimators.md took 31 rounds and 0.24 Mbit on one kind of processor, and 36 and 0.30 on another.
COUNTED = re.compile(r"rounds|sent|bits?\b")
#: Lines of a terminal: in a fence of its own, or indented.
SHELL = ("console", "sh", "shell", "bash")
LINK = re.compile(r"\]\(([^)#\s]+)\)")


class Block(NamedTuple):
    """A block of code of a page: its language, its text, and the line that it begins on."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in BLOCK.finditer(text)]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands of this package that a page shows, each as a list of words."""
    text = page.read_text()
    shell = [block.text.replace("\\\n", " ") for block in blocks(page) if block.language in SHELL]
    lines = [line for text in shell for line in text.splitlines()]
    lines += [line for line in BLOCK.sub("", text).splitlines() if line.startswith("    ")]
    lines += [span.replace("\n", " ") for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", BLOCK.sub("", text))]
    for line in lines:
        words = shlex.split(line.strip().removeprefix("$ "), comments=True) if "fpdfp " in line else []
        if words and words[0] == "fpdfp":
            yield words


def console(block: Block) -> Iterator[tuple[list[str], str]]:
    """Yield the commands of a session in a terminal, each with what it prints as far as it is shown."""
    for part in block.text.split("$ ")[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command), output


def compare(output: str, printed: str) -> None:
    """Words must agree, and numbers up to what the processor's rounding does to a noisy run."""
    expected, found = output.strip().splitlines(), printed.strip().splitlines()
    assert len(expected) == len(found), printed
    for ours, theirs in zip(expected, found, strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        tolerance = 3.0 if LOOSE.search(ours) else 0.25 if COUNTED.search(ours) else 1e-2
        for a, b in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            assert float(b) == pytest.approx(float(a), rel=tolerance, abs=1e-9)
