"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        from fpdfp import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="The folder for the plot and the numbers.")] = Path("demo-output"),
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds of each run.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of split, clients and quantizer.")] = 0,
) -> None:
    """Graph-guided logistic regression among 20 clients: a table and a plot.

    Example: fpdfp demo --output demo-output
    """
    from fpdfp.experiments.demo import run

    run(output, rounds=rounds, seed=seed)


def main() -> None:
    """Run the command line."""
    app()
