"""The commands ``fpdfp report`` and ``fpdfp watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

RunFolders = Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold some.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(report)
    app.command()(watch)


def report(
    runs: RunFolders,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
) -> None:
    """Write a report of runs: one self-contained HTML file with tables, curves, models and slices.

    Example: fpdfp report results/ --output report.html --open
    """
    from fpdfp.report.writing import write

    try:
        path = write(runs, output, title=title)
    except (OSError, ValueError) as error:
        _leave(error)
    typer.echo(path)
    if open_it:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            typer.echo(f"no browser was found; open {path} yourself", err=True)


def watch(
    runs: RunFolders,
    host: Annotated[
        str, typer.Option(help="The address to listen on; everybody who can reach it can read the page.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 means one that is free.")] = 0,
) -> None:
    """Serve a page that follows runs in progress, until Ctrl-C.

    Example: fpdfp watch results/ --port 8000
    """
    import threading

    from fpdfp.report.live import serve

    for path in runs:
        if not path.exists():
            _leave(ValueError(f"{path} does not exist; RUNS must be folders of runs, or folders that contain some"))
    try:
        page = serve(runs, host, port, title=", ".join(path.resolve().name for path in runs))
    except (OSError, ValueError) as error:
        _leave(error)
    with page:
        typer.echo(f"{page.url}  (Ctrl-C stops it)")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo("closed", err=True)


def _leave(error: Exception) -> NoReturn:
    typer.echo(str(error), err=True)
    raise typer.Exit(2) from None
