"""Pages, docstrings and errors are in plain words: few stilted phrases, short sentences, narrow code."""

from __future__ import annotations

import re

import pytest
from tools import words

#: Phrases per 1,000 words.
MOST = 1.0
#: Characters of a line of code on a page.
WIDEST = 88


@pytest.mark.parametrize("kind", ["pages", "docstrings", "errors"])
def test_stilted_phrases_are_rare(kind: str) -> None:
    rates, places = words.count()
    assert rates[kind] <= MOST, "\n".join(places)


def test_sentences_of_pages_and_docstrings_are_short() -> None:
    assert words.long_sentences() == []


def test_the_changelog_is_short() -> None:
    assert len((words.ROOT / "CHANGELOG.md").read_text().split()) <= 600


def test_lines_of_code_fit_a_page() -> None:
    wide = [
        f"{page.name}: {line}"
        for page in words.pages()
        for code in re.findall(r"^```(?:python|toml)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for line in code.splitlines()
        if len(line) > WIDEST
    ]
    assert wide == []


@pytest.mark.parametrize(
    ("text", "count"), [("One. Two words.", 2), ("* a\n* b", 2), ("It is short: yes.", 1), ("## Title\n\nText.", 2)]
)
def test_sentences_are_found(text: str, count: int) -> None:
    assert len(list(words.sentences(text))) == count


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("First, and\nstill first.\n\nParameters\n----------\nx\n    What it is\n    for.",
         ["First, and still first.", "Parameters ---------- x", "What it is for."]),
        ("A list:\n\n* one\n  and more\n* two", ["A list:", "one and more", "two"]),
        ("Do it.\n\n>>> f(x)\n3\n\nServer:\n\n    sends   x\n    to all", ["Do it.", "Server:"]),
    ],
)  # fmt: skip
def test_sentences_of_docstrings_are_found(text: str, found: list[str]) -> None:
    assert [one.removeprefix("* ") for one in words.sentences(words.docstring(text))] == found
