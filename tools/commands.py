"""The reference of the command line as a page of the site: every command with its options. Run it to see the page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.core
import typer.main

from fpdfp.cli import app


def page() -> str:
    """Return the page."""
    command: Any = typer.main.get_command(app)
    return "\n".join(["# Command line", "", *sections(command, "fpdfp")]).rstrip() + "\n"


def sections(command: Any, path: str) -> Iterator[str]:
    """Yield the lines of a command and of its subcommands."""
    if isinstance(command, typer.core.TyperGroup):
        for name, one in command.commands.items():
            yield from sections(one, f"{path} {name}")
        return
    yield from (f"## `{path}`", "")
    yield from (inspect.cleandoc(command.help or "").replace("\b", ""), "")
    rows = [row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    if rows:
        yield from (*rows, "")


def row(parameter: Any) -> str:
    """Return the line of an argument or an option."""
    name = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()
    default = parameter.default
    shown = not (default is None or default is False or parameter.required or callable(default))
    text = getattr(parameter, "help", "") or ""
    return f"* `{name}`{f' (default `{default}`)' if shown else ''}: {text}"


if __name__ == "__main__":
    print(page(), end="")
