"""The code of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
#: Gaps and residuals of a noisy run vary with the processor's rounding; the rest does so in later digits only.
LOOSE = re.compile(r"gap|residual|relative error|certified")


BLOCKS = re.findall(r"```(?:python|text)\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(("code", "output"), list(zip(BLOCKS[::2], BLOCKS[1::2], strict=True)))
def test_the_examples_print_what_they_say(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    expected, found = output.strip().splitlines(), printed.getvalue().strip().splitlines()
    assert len(expected) == len(found)
    for ours, theirs in zip(expected, found, strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        tolerance = 3.0 if LOOSE.search(ours) else 1e-2
        for a, b in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            assert float(b) == pytest.approx(float(a), rel=tolerance, abs=1e-9)


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/mathematics.md", "docs/methods.md"]
)
def test_links_lead_somewhere(name: str) -> None:
    page = README.parent / name
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
