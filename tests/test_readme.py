"""The code of the README and of the documentation runs and prints what the pages show; links and figures are right."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
from typer.testing import CliRunner

from fpdfp.cli import app
from tests.pages import BLOCK, DOCS, LINK, PAGES, ROOT, WRITTEN, blocks, commands, compare, console

#: The README must stay short enough to be read.
README_WORDS = 600
#: What a reader has already, and a block needs, is in a comment of the page, which readers do not see.
SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)
#: Pages that show what an example prints.
EXAMPLES = {"tomography": DOCS / "ct.md"}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python(page: Path) -> str:
    return "\n".join(block.text for block in blocks(page) if block.language == "python")


#: A cluster of Ray is for a process of its own, and one at a time.
RAY = [page for page in WRITTEN if "cohorts.Ray(" in python(page)]
RUNNABLE = [
    page
    for page in WRITTEN
    if page not in RAY and any(block.language in ("python", "console") for block in blocks(page))
]


def is_output(page: Path, index: int) -> bool:
    """Whether a block of text follows at once on the Python that prints it."""
    found = blocks(page)
    before = found[index - 1]
    lines = page.read_text().splitlines()
    end = before.line + before.text.count("\n")
    return index > 0 and before.language == "python" and not "".join(lines[end : found[index].line - 2]).strip()


def test_the_readme_is_short() -> None:
    words = len((ROOT / "README.md").read_text().split())
    assert words <= README_WORDS, f"README.md has {words} words; move details to a page of docs/"


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_the_code_of_a_page_prints_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for setup in SETUP.findall(page.read_text()):
        exec(compile(setup, str(page), "exec", dont_inherit=True), namespace)
    printed = ""
    for index, block in enumerate(blocks(page)):
        if block.language == "python":
            stream = io.StringIO()
            # Blank lines before the code, so that a traceback names the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(stream):
                exec(code, namespace)
            printed = stream.getvalue()
        elif block.language == "text" and is_output(page, index):
            compare(block.text, printed)
        elif block.language == "toml":
            Path(block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)
        elif block.language == "console":
            for words, output in console(block):
                done = CliRunner().invoke(app, words[1:])
                assert done.exit_code == 0, done.output
                if output:
                    compare(output, done.output)


@pytest.mark.slow
@pytest.mark.parametrize("page", RAY, ids=name)
def test_the_code_of_a_page_with_a_cluster_runs(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    program = tmp_path / "page.py"
    program.write_text("\n".join([*SETUP.findall(page.read_text()), python(page), "print(result.status)"]))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "finished"


def outputs_of_others(page: Path) -> list[str]:
    """Return the blocks of text that no Python of the page prints."""
    return [
        block.text
        for index, block in enumerate(blocks(page))
        if block.language == "text" and not is_output(page, index)
    ]


def test_what_is_printed_is_compared_wherever_it_is_shown() -> None:
    loose = {page for page in WRITTEN if outputs_of_others(page)}
    assert loose == set(EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_print_what_their_pages_say(example: str, tmp_path: Path) -> None:
    page = EXAMPLES[example]
    (output,) = outputs_of_others(page)
    program = [sys.executable, str(ROOT / "examples" / f"{example}.py"), "--output", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    compare(output, done.stdout)
    made = {file.name for file in tmp_path.iterdir()}
    assert made
    assert made <= set(re.findall(r"images/([\w-]+\.png)", page.read_text()))


SHOWN = sorted({tuple(words) for page in WRITTEN for words in commands(page)})


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_the_commands_of_the_pages_exist(words: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(app)
    rest = [word for word in words[1:] if word != "…"]
    path = ["fpdfp"]
    while isinstance(command, typer.core.TyperGroup) and rest:
        if rest[0].startswith("-"):
            break
        assert rest[0] in command.commands, f"fpdfp has no command {' '.join([*path, rest[0]])}"
        path.append(rest[0])
        command = command.commands[rest.pop(0)]
    # Parsed as when it is run, but for whether files are there.
    context = command.context_class(command, info_name=" ".join(path))
    command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


FIGURE = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?:e[-+]?\d+)?|(?<![\w.])\d+e-\d+")


COLLECTIONS = [ROOT / "README.md", DOCS / "choosing.md"]


@pytest.mark.parametrize("page", COLLECTIONS, ids=name)
def test_figures_that_are_collected_are_on_the_pages_that_they_come_from(page: Path) -> None:
    sources = [
        *(DOCS / "results").glob("*.md"), DOCS / "results" / "bits-a9a.txt", DOCS / "results" / "methods-a9a.txt",
    ]  # fmt: skip
    judged = [json.loads(file.read_text()).get("claims", ()) for file in (DOCS / "results").rglob("results.json")]
    texts = [source.read_text() for source in sources] + [one["numbers"] for claims in judged for one in claims]
    known = {number(found) for text in texts for found in FIGURE.findall(text)}
    prose = re.sub(r"Python 3\.\d+", "", BLOCK.sub("", page.read_text()))
    missing = [found for found in FIGURE.findall(prose) if number(found) not in known]
    assert missing == []


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_architecture_names_files_that_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    named = set(re.findall(r"(?<![\w./])((?:[\w.]+/)*[\w.]+\.py)\b", text))
    folders = ("", "compress")  # the section on messages names the files of this folder without it
    roots = [ROOT, *(ROOT / "src" / "fpdfp" / folder for folder in folders)]
    assert {name for name in named if not any((root / name).is_file() for root in roots)} == set()
