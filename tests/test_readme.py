"""The code of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
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
    compare(output, printed.getvalue())


@pytest.mark.parametrize(("name", "of"), [("hospitals", "estimators"), ("tomography", "ct")])
def test_the_examples_print_what_their_pages_say(name: str, of: str, tmp_path: Path) -> None:
    page = (README.parent / "docs" / f"{of}.md").read_text()
    (output,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    program = [sys.executable, str(README.parent / "examples" / f"{name}.py"), "--output", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    compare(output, done.stdout)
    assert {file.name for file in tmp_path.iterdir()} == set(re.findall(r"images/([\w-]+\.png)", page))


def compare(output: str, printed: str) -> None:
    """Words must agree, and numbers up to what the processor's rounding does to a noisy run."""
    expected, found = output.strip().splitlines(), printed.strip().splitlines()
    assert len(expected) == len(found)
    for ours, theirs in zip(expected, found, strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        tolerance = 3.0 if LOOSE.search(ours) else 1e-2
        for a, b in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            assert float(b) == pytest.approx(float(a), rel=tolerance, abs=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/mathematics.md",
        "docs/methods.md",
        "docs/estimators.md",
        "docs/ct.md",
        "docs/engines.md",
        "docs/deployment.md",
        "docs/threat-model.md",
    ],
)
def test_links_lead_somewhere(name: str) -> None:
    page = README.parent / name
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
