"""Each figure on a page was made by a command that the page names, or is on a page of evidence that it links to."""

from __future__ import annotations

import pytest
from tools import figures


def test_sections_of_evidence_name_their_commands() -> None:
    found = list(figures.evidence())
    assert len(found) > 20
    assert [one[:2] for one in found if not one.source] == []


def test_the_commands_exist_with_their_options() -> None:
    assert figures.unknown_commands() == []


def test_other_pages_repeat_figures_of_evidence_that_they_link_to() -> None:
    found = list(figures.repeated())
    assert len(found) >= 5
    assert [one for one in found if not one[2]] == []


def test_tables_have_the_stored_numbers() -> None:
    found = list(figures.stored())
    assert len(found) > 40
    assert [one for one in found if not one[2]] == []


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("0.0954", 0.09537, True),
        ("8.3", 0.0083, True),
        ("8.4", 0.0083, False),
        ("1.11", 1.1149, True),
        ("12.1", 12.16e9, False),
    ],
)
def test_rounded_numbers_are_recognised(text: str, value: float, same: bool) -> None:
    assert figures.shown(text, value) is same


@pytest.mark.parametrize("text", ["It takes 3.1 s.", "an error of 2.5e-7", "7,873 rounds/s", "| 4 | 12 % |"])
def test_figures_are_found(text: str) -> None:
    assert len(figures.FIGURE.findall(figures.prose(text))) == 1


@pytest.mark.parametrize("text", ["`sleep 3 s`", "a bound of 1e-3", "s = 20", "```text\n3 s\n```", "Figure 4"])
def test_settings_are_not_figures(text: str) -> None:
    assert figures.FIGURE.findall(figures.prose(text)) == []
