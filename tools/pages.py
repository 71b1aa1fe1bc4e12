"""Run the code of the documentation's pages, and write what it prints into them.

    python -m tools.pages [PAGE …]

Only blocks that are compared by the tests are rewritten: text that follows at once on Python, and the output of
commands as far as it is shown. Look at the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from tests.pages import BLOCK, blocks, console
from tests.test_readme import RUNNABLE, SETUP, is_output
from typer.testing import CliRunner

from fpdfp.cli import app


def refreshed(page: Path) -> str:
    """Return the text of a page with what its code prints now."""
    text, found = page.read_text(), blocks(page)
    namespace: dict[str, object] = {"__name__": "page"}
    for setup in SETUP.findall(text):
        exec(compile(setup, str(page), "exec", dont_inherit=True), namespace)
    printed, new = "", []
    for index, block in enumerate(found):
        body = block.text
        if block.language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(block.text, str(page), "exec", dont_inherit=True), namespace)
            printed = stream.getvalue()
        elif block.language == "text" and is_output(page, index):
            body = printed.strip("\n") + "\n"
        elif block.language == "toml":
            Path(block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)
        elif block.language == "console":
            for words, output in console(block):
                done = CliRunner().invoke(app, words[1:])
                if output.strip():
                    body = body.replace(output.strip("\n"), done.output.strip("\n"), 1)
        new.append(body)
    texts = iter(new)
    return BLOCK.sub(lambda match: match[0].replace(match[2], next(texts), 1), text)


def main() -> None:
    """Refresh the pages that are named, or all."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or RUNNABLE
    for page in chosen:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = refreshed(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"{page.name}: written anew")


if __name__ == "__main__":
    main()
