"""The command line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fpdfp.federation.commands import app as federation

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.add_typer(federation, name="federation", rich_help_panel="Hospitals and scans")
tomography = typer.Typer(no_args_is_help=True, help="Reconstruct cone-beam CT scans.")
app.add_typer(tomography, name="ct", rich_help_panel="Hospitals and scans")

File = Annotated[Path, typer.Argument(help="The file of settings.")]
Output = Annotated[Path | None, typer.Option(help="The folder for the runs; runs/NAME by default.")]
RunFolders = Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold some.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the file; may be repeated."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
Live = Annotated[bool, typer.Option("--live", help="Serve a page that shows the runs in progress.")]


def _version(asked: bool) -> None:
    if asked:
        from fpdfp import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners.

    Example: fpdfp demo
    """


@app.command(rich_help_panel="Start here")
def demo(
    output: Annotated[Path, typer.Option(help="The folder for pictures, runs and the report.")] = Path("demo-output"),
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds of each method.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of split, clients and quantizer.")] = 0,
) -> None:
    """Show the package: a model, a reconstruction, five methods.

    This takes about a minute. Pictures and a report are written into a folder.

    Example: fpdfp demo --output demo-output
    """
    from fpdfp import demo as demonstration

    demonstration.run(output, rounds=rounds, seed=seed)


@contextlib.contextmanager
def report_errors(hint: str = "") -> Iterator[None]:
    """Turn errors into one paragraph and an exit code: 2 for bad input and full disks, 130 for Ctrl-C."""
    from fpdfp.errors import CheckpointError, DataSetError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted{hint}", err=True)
        raise typer.Exit(130) from None
    except (CheckpointError, DataSetError, ImportError, OSError, TypeError, ValueError) as error:
        typer.echo(" ".join(str(error).split()), err=True)
        raise typer.Exit(2) from None


@app.command(rich_help_panel="Experiments")
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write an example of an experiment file.

    It has comments, runs in seconds and needs no download.

    Example: fpdfp init experiment.toml
    """
    with report_errors():
        from fpdfp.runs.folder import write_file

        if file.exists() and not force:
            raise ValueError(f"{file} is there already; --force replaces it")
        example = (Path(__file__).parent / "declarative" / "example.toml").read_text(encoding="utf-8")
        write_file(file, example.replace("NAME", file.name).encode())
    typer.echo(f"{file} is written; fpdfp run {file} runs it")


@app.command(rich_help_panel="Experiments")
def run(
    file: File,
    output: Output = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue where the same command was interrupted.")] = False,
    live: Live = False,
    assignments: Set = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment file.

    All settings and seeds run one after the other.

    Ctrl-C ends it after the round; --resume continues, to the same bits as if it had not been interrupted.

    Example: fpdfp run experiment.toml --set run.rounds=100
    """
    _experiment(file, output, assignments, as_json, live, quiet, resume=resume, jobs=0)


@app.command(rich_help_panel="Experiments")
def sweep(
    file: File,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores by default.")] = None,
    output: Output = None,
    live: Live = False,
    assignments: Set = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment file on all cores.

    Settings and seeds run side by side. After an interruption, the same command continues.

    Example: fpdfp sweep experiment.toml --jobs 4
    """
    _experiment(file, output, assignments, as_json, live, quiet, resume=True, jobs=jobs)


def _experiment(
    file: Path, output: Path | None, assignments: list[str] | None, as_json: bool, live: bool, quiet: bool, *,
    resume: bool, jobs: int | None,
) -> None:  # fmt: skip
    from fpdfp.declarative import runner

    again = "; the same command with --resume goes on" if jobs == 0 else "; the same command goes on"
    watch = _serve_page if live else lambda _: contextlib.nullcontext()
    with report_errors(again), runner.show_warnings():
        outcome = runner.run_file(file, output, assignments or [], quiet=quiet, resume=resume, jobs=jobs, watch=watch)
    if as_json:
        _print_json(outcome.document())
    else:
        outcome.show()
    if outcome.interrupted:
        typer.echo(f"interrupted; what is done is in {outcome.output}{again}", err=True)
        raise typer.Exit(130)


@contextlib.contextmanager
def _serve_page(folder: Path) -> Iterator[None]:
    """Serve the live page meanwhile."""
    from fpdfp.report.live import serve

    with serve([folder]) as page:
        typer.echo(f"live: {page.url}", err=True)
        yield
    typer.echo(f"the live page is closed; fpdfp watch {folder} shows it again", err=True)


@app.command(rich_help_panel="Look at runs")
def compare(
    first: Annotated[Path, typer.Argument(help="The folder of a run.")],
    second: Annotated[Path, typer.Argument(help="The folder of another.")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs.

    The table shows different settings, accuracy and cost.

    Example: fpdfp compare runs/breast-cancer/seed-0 runs/other/seed-0
    """
    with report_errors():
        from fpdfp.declarative import results

        found = results.compare(first, second)
    if as_json:
        _print_json(found)
    else:
        results.show_comparison(found)


@app.command(rich_help_panel="Start here")
def doctor(as_json: AsJson = False) -> None:
    """Show versions, cores, GPU and optional packages.

    Memory, data sets and a browser are listed too.

    Example: fpdfp doctor
    """
    from fpdfp.declarative import diagnosis

    found = diagnosis.diagnose()
    if as_json:
        _print_json(found)
    else:
        diagnosis.show(found)


@app.command(rich_help_panel="Look at runs")
def report(
    runs: RunFolders,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
) -> None:
    """Write a report of runs as one HTML file.

    It has tables, curves, models and slices, and loads nothing from elsewhere.

    Example: fpdfp report results/ --output report.html --open
    """
    from fpdfp.report.writing import write

    with report_errors():
        path = write(runs, output, title=title)
    typer.echo(path)
    if open_it:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            typer.echo(f"no browser was found; open {path} yourself", err=True)


@app.command(rich_help_panel="Look at runs")
def watch(
    runs: RunFolders,
    host: Annotated[
        str, typer.Option(help="The address to listen on; anyone who can reach it can read the page.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 means one that is free.")] = 0,
) -> None:
    """Follow runs in progress in a browser.

    The page is served until Ctrl-C.

    Example: fpdfp watch results/ --port 8000
    """
    import threading

    from fpdfp.report.live import serve

    with report_errors():
        for path in runs:
            if not path.exists():
                raise ValueError(f"{path} does not exist; RUNS must be folders of runs, or folders that contain some")
        page = serve(runs, host, port, title=", ".join(path.resolve().name for path in runs))
    with page:
        typer.echo(f"{page.url}  (Ctrl-C stops it)")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo("closed", err=True)


@tomography.callback()
def tomography_options() -> None:
    """Cone-beam CT: from a scanner's files to a volume.

    Example: fpdfp ct reconstruct scan/ -o volume.nii.gz
    """


@tomography.command("reconstruct")
def reconstruct_scan(
    folder: Annotated[Path, typer.Argument(help="The folder of a scan, with a description in scan.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The volume: .nii.gz, .nii or .npy.")],
    tv: Annotated[str, typer.Option(help="The weight of the total variation, relative to the data, or auto.")] = "auto",
    calibrate: Annotated[
        bool, typer.Option(help="Find the sense of rotation, the offset and the tilt of the panel first.")
    ] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quiet: Quiet = False,
) -> None:
    """Reconstruct a scan.

    Calibrate it, choose the weight by held-out views, and write volume, report and picture.

    Example: fpdfp ct reconstruct scan/ -o volume.nii.gz
    """
    from fpdfp.declarative.runner import show_warnings

    with report_errors(), show_warnings():
        from fpdfp.ct import command

        found, result = command.run(
            folder, output, tv=tv, calibrated=calibrate, device=device, progress=False if quiet else None
        )
    if found is not None:
        typer.echo(found)
    typer.echo(f"tv {result.tv:.3g}: {result}")
    typer.echo(f"{output} is written")


@tomography.command("example")
def copy_scan(folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Write an example scan into a new folder.

    It is a measured scan of 1.8 MB.

    Example: fpdfp ct example scan/
    """
    with report_errors():
        from fpdfp.ct import command

        command.copy_example(folder)
    typer.echo(f"{folder} is written; reconstruct it: fpdfp ct reconstruct {folder} -o volume.nii.gz")


def _print_json(value: Any) -> None:
    import json

    from fpdfp._sections import plain

    sys.stdout.write(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def main() -> None:
    """Run the command line.

    A process that has used gRPC ends at once when its command is done. Python would wait for threads, and a thread of
    gRPC that delivers the end of a call just then waits for Python.
    """
    try:
        app()
    except BaseException as error:
        if "grpc" not in sys.modules:
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(code, int | None):
            code = 1
        if not isinstance(error, SystemExit):
            sys.excepthook(*sys.exc_info())
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
