"""The worked study of the first tutorial: every block gives the same digits with hub, sites and policies as without."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import fpdfp
from fpdfp.federation.approvals import Approvals
from fpdfp.federation.rehearse import Rehearsal
from tests.pages import DOCS, blocks

PAGE = DOCS / "tutorials" / "hospitals.md"
SITES = ("east", "north", "south")


def run(code: list[str], sites: Any) -> list[str]:
    """Run blocks with some sites, and return what each prints."""
    names: dict[str, Any] = {"fpdfp": fpdfp, "sites": sites}
    printed = []
    for block in code:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            exec(block, names)
        printed.append(text.getvalue())
    return printed


@pytest.mark.slow
def test_the_same_digits_with_processes_and_default_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(PAGE)
    first, propose, *rest = [block.text for block in found if block.language == "python"]
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(first, names)
        run([propose], names["sites"])
    local = run(rest, names["sites"])
    shown = [block.text for block in found if block.language == "text"][1:]
    assert len(rest) == len(shown) > 7
    tables = {name: tmp_path / f"{name}.csv" for name in SITES}
    with Rehearsal(tmp_path, tables) as study, fpdfp.Federation(study.study.folder) as federation:
        run([propose], federation)
        for name in SITES:
            for variable in ("age_group", "older"):
                Approvals(tmp_path / name).answer(variable, "yes")
        assert (federation.propose() == "yes").all(axis=None)
        remote = run(rest, federation)
        budget = federation.budget()
    for here, there in zip(local, remote, strict=True):
        assert there == here
    assert budget["spent"].tolist() == [12, 12, 12]
