"""The command line: ``python -m reproduce a9a``, ``python -m reproduce ct --size paper``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Output = Annotated[Path | None, typer.Option(help="The folder for results; reproduced/NAME by default.")]
Rounds = Annotated[int | None, typer.Option(min=10, help="Rounds of FPDFP.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="The number of seeds of the runs that claims rest on.")]
Data = Annotated[
    Path | None, typer.Option(help="A folder with the data; by default $FPDFP_DATA, else it is downloaded.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="The number of processes; by default the number of cores.")]
Sizes = Literal["tiny", "small", "paper"]


@app.callback()
def describe() -> None:
    """Run the paper's experiments; write figures and a verdict on each claim.

    The first is graph-guided logistic regression (a9a, covtype, breast-cancer), the second cone-beam CT (ct); theory
    compares Theorems 1 and 2 with measurements. Runs are folders under runs/ that `fpdfp report` shows. After Ctrl-C,
    the same command continues.
    """


@contextmanager
def report_errors(folder: Path) -> Iterator[None]:
    """Turn errors into one paragraph and an exit code: 1 for bad input, 130 for Ctrl-C."""
    from fpdfp.errors import DataSetError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted; results so far are in {folder}, and the same command continues", err=True)
        raise typer.Exit(130) from None
    except (DataSetError, OSError, RuntimeError, ValueError) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(1) from None


def graph_guided(name: str, output: Path | None, data: Path | None, rounds: int | None, seeds: int | None,
                 jobs: int | None) -> None:  # fmt: skip
    folder = output or Path("reproduced") / name
    with report_errors(folder):
        from reproduce import graph_guided

        graph_guided.reproduce(name, folder, data, rounds, seeds, jobs)


@app.command()
def a9a(
    output: Output = None, data: Data = None, rounds: Rounds = None, seeds: Seeds = None, jobs: Jobs = None
) -> None:
    """Graph-guided logistic regression on a9a.

    Example: python -m reproduce a9a --output reproduced/a9a
    """
    graph_guided("a9a", output, data, rounds, seeds, jobs)


@app.command()
def covtype(
    output: Output = None, data: Data = None, rounds: Rounds = None, seeds: Seeds = None, jobs: Jobs = None
) -> None:
    """The same on covtype.

    Example: python -m reproduce covtype --jobs 4
    """
    graph_guided("covtype", output, data, rounds, seeds, jobs)


@app.command("breast-cancer")
def breast_cancer(output: Output = None, rounds: Rounds = None, seeds: Seeds = None, jobs: Jobs = None) -> None:
    """The same on a small data set of scikit-learn, which needs no download.

    Example: python -m reproduce breast-cancer
    """
    graph_guided("breast-cancer", output, None, rounds, seeds, jobs)


@app.command()
def ct(
    size: Annotated[Sizes, typer.Option(help="small (minutes on a CPU) or paper (256×256×64, for a GPU).")] = "small",
    output: Annotated[Path | None, typer.Option(help="The folder; reproduced/ct/SIZE by default.")] = None,
    model: Annotated[
        Literal["printed", "mean"],
        typer.Option(help="printed is the paper's objective; mean is scaled by views, pixels and voxels."),
    ] = "printed",
    volume: Annotated[Path | None, typer.Option(help="A file with the true volume; by default a phantom.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="auto uses a GPU if there is one.")] = "auto",
    rounds: Rounds = None,
    seeds: Seeds = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Do just the runs of this case (n5-s1000, n5-exact, minimum, …); may be repeated."),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Do no run; write the page of those that are there.")] = False,
    tune_at: Annotated[
        Sizes | None, typer.Option(help="With the model mean, the size at which steps are tuned; small by default.")
    ] = None,
) -> None:
    """Federated cone-beam CT with total variation.

    Example: python -m reproduce ct --size paper --only n5-s1000
    """
    folder = output or Path("reproduced/ct") / (size if model == "printed" else f"mean-{size}")
    if tune_at is not None and model == "printed":
        raise typer.BadParameter("the model printed has no such option: nothing is tuned", param_hint="--tune-at")
    with report_errors(folder):
        from reproduce import ct as experiment

        experiment.reproduce(size, folder, model, volume, device, rounds, seeds, only or (), page, tune_at)


@app.command()
def theory(output: Output = None, rounds: Rounds = None, seeds: Seeds = None) -> None:
    """Theorems 1 and 2: what they bound, beside their bounds.

    Example: python -m reproduce theory
    """
    folder = output or Path("reproduced/theory")
    with report_errors(folder):
        from reproduce import theory as experiment

        experiment.reproduce(folder, rounds, seeds)


if __name__ == "__main__":
    app()
