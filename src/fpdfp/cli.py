"""The command line."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from fpdfp.experiments.commands import register as register_experiments
from fpdfp.federation.commands import app as federation
from fpdfp.report.commands import register as register_reports

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.add_typer(federation, name="federation")


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
    """Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners.

    Example: fpdfp init experiment.toml, then fpdfp run experiment.toml, then fpdfp report runs
    """


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="The folder for the plot and the numbers.")] = Path("demo-output"),
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds of each run.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of split, clients and quantizer.")] = 0,
) -> None:
    """Run graph-guided logistic regression with 20 clients; print a table, draw a plot and write a report.

    Example: fpdfp demo --output demo-output
    """
    from fpdfp.experiments.demo import run

    run(output, rounds=rounds, seed=seed)


class Experiment(enum.StrEnum):
    """What can be reproduced."""

    A9A = "a9a"
    COVTYPE = "covtype"
    BREAST_CANCER = "breast-cancer"
    CT = "ct"
    THEORY = "theory"
    ALL = "all"


class Size(enum.StrEnum):
    """How large the CT experiment is."""

    SMALL = "small"
    PAPER = "paper"


class CTModel(enum.StrEnum):
    """The objective of the CT experiment."""

    PRINTED = "printed"
    MEAN = "mean"


class Device(enum.StrEnum):
    """Where the CT experiment runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def refuse(options: dict[str, object], experiment: str) -> None:
    """Raise an error for options that an experiment does not have."""
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{experiment} has no such option", param_hint=name)


@app.command()
def reproduce(
    experiment: Annotated[
        Experiment,
        typer.Argument(
            help="A data set (breast-cancer comes with scikit-learn), ct or theory (no data needed), or all: a9a, "
            "covtype, ct and theory."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder for results; reproduced/NAME by default, reproduced/ct/SIZE for ct, reproduced for all."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with the data; by default $FPDFP_DATA, else it is downloaded.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=10, help="Rounds of FPDFP.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of seeds, in addition to those of the tuning; for ct, of the cases that claims rest on: 3 "
            "for the phantom, 1 for a file.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="The number of processes; by default the number of cores; not for ct.")
    ] = None,
    size: Annotated[
        Size, typer.Option(help="ct: small (minutes on a CPU) or paper (256×256×64, for a GPU).")
    ] = Size.SMALL,
    device: Annotated[Device, typer.Option(help="ct: auto uses a GPU if there is one.")] = Device.AUTO,
    volume: Annotated[
        Path | None, typer.Option(help="ct: a file with the true volume; by default an analytic phantom of a thorax.")
    ] = None,
    model: Annotated[
        CTModel,
        typer.Option(help="ct: printed is the paper's objective; mean a variant scaled by views, pixels and voxels."),
    ] = CTModel.PRINTED,
    only: Annotated[
        list[str] | None,
        typer.Option(help="ct: do just the runs of this case (n5-s1000, n5-exact, minimum, …); may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="ct: do just the runs with this seed.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="ct: start no run that would not fit into this time; 0 only writes the page."),
    ] = None,
    tune_at: Annotated[
        Size | None, typer.Option(help="ct, model mean: the size at which steps are tuned; small by default.")
    ] = None,
) -> None:
    """Run the paper's experiments; write figures and a verdict on each claim.

    The first is graph-guided logistic regression (a9a, covtype, breast-cancer), the second cone-beam CT (ct); theory
    compares Theorems 1 and 2 with measurements. After Ctrl-C, the same command continues.

    Example: fpdfp reproduce a9a --output reproduced/a9a

    Example: fpdfp reproduce ct --size small

    Example: fpdfp reproduce ct --size paper --only n5-s1000 --seed 0 --minutes 9

    Example: fpdfp reproduce theory

    Example: fpdfp reproduce all
    """
    from fpdfp.errors import DataSetError

    printed: dict[str, object] = {"--only": only or None, "--seed": seed, "--minutes": minutes}
    if experiment is Experiment.CT:
        refuse({"--jobs": jobs, "--data": data}, "ct")
        if model is CTModel.PRINTED:
            refuse({"--tune-at": tune_at}, "ct with the model printed")
        else:
            refuse(printed | {"--seeds": seeds}, "ct with the model mean")
    else:
        refuse(printed | {"--tune-at": tune_at}, experiment.value)
    if experiment is Experiment.THEORY:
        refuse({"--jobs": jobs, "--data": data}, "theory")
    all_of_them = experiment is Experiment.ALL
    every_one = (Experiment.A9A, Experiment.COVTYPE, Experiment.CT, Experiment.THEORY)
    wanted = every_one if all_of_them else (experiment,)
    folder = output or Path("reproduced")
    try:
        for one in wanted:
            if output is None or all_of_them:
                folder = (output or Path("reproduced")) / one.value / (size.value if one is Experiment.CT else "")
            if one is Experiment.CT and model is CTModel.MEAN:
                from fpdfp.experiments import ct_mean

                ct_mean.reproduce(
                    size.value,
                    folder,
                    volume=volume,
                    device=device.value,
                    rounds=rounds,
                    tune_at=None if tune_at is None else tune_at.value,
                )
            elif one is Experiment.CT:
                from fpdfp.experiments import ct

                ct.reproduce(
                    size.value,
                    folder,
                    volume=volume,
                    device=device.value,
                    rounds=rounds,
                    seeds=None if all_of_them else seeds,
                    only=only or (),
                    seed=seed,
                    minutes=minutes,
                )
            elif one is Experiment.THEORY:
                from fpdfp.experiments import theory_page

                given = {} if all_of_them else {"rounds": rounds, "seeds": seeds}
                theory_page.reproduce(folder, **{name: value for name, value in given.items() if value is not None})
            else:
                from fpdfp.experiments.reproduce import reproduce as run

                run(one.value, folder, data=data, rounds=rounds, seeds=seeds, jobs=jobs)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; results so far are in {folder}, and the same command continues", err=True)
        raise typer.Exit(130) from None
    except (DataSetError, OSError, RuntimeError, ValueError) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(1) from None


register_experiments(app)
register_reports(app)


def main() -> None:
    """Run the command line."""
    app()
