"""The command line: ``python -m reproduce a9a``, ``python -m reproduce ct --size paper``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from fpdfp.errors import DataSetError

ABOUT = """Run an experiment of the paper; write figures and results, and print a verdict on each claim.

Runs are folders under OUTPUT/runs that `fpdfp report` shows. After Ctrl-C, the same command continues.

examples:
  python -m reproduce breast-cancer
  python -m reproduce a9a --jobs 4 --output reproduced/a9a
  python -m reproduce ct --size paper
"""
EXPERIMENTS = {
    "a9a": "graph-guided logistic regression on a9a",
    "covtype": "the same on covtype",
    "breast-cancer": "the same on a small data set of scikit-learn, which needs no download",
    "ct": "federated cone-beam CT with total variation",
    "theory": "Theorems 1 and 2: what they bound, beside their bounds",
}
SIZES = ("tiny", "small", "paper")


def make_parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m reproduce", description=ABOUT, formatter_class=raw)
    commands = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name, about in EXPERIMENTS.items():
        one = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        one.add_argument("--output", type=Path, help="folder for results; reproduced/... by default")
        one.add_argument("--rounds", type=positive, help="rounds of FPDFP")
        one.add_argument("--seeds", type=positive, help="number of seeds of the runs that claims rest on")
        if name in ("a9a", "covtype"):
            one.add_argument("--data", type=Path, help="folder with the data; by default $FPDFP_DATA, else a download")
        if name == "ct":
            one.add_argument("--size", choices=SIZES, default="small", help="small: minutes on a CPU; paper: for a GPU")
            one.add_argument("--volume", type=Path, help="file with the true volume; by default a phantom")
            one.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
        elif name != "theory":
            one.add_argument("--jobs", type=positive, help="number of processes; by default the number of cores")
    commands.add_parser("page", help="write docs/results/paper.md from the stored results")
    return parser


def positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment; return the exit code: 1 for bad input, 130 for Ctrl-C."""
    options = vars(make_parser().parse_args(arguments))
    if options["experiment"] == "page":
        print(importlib.import_module("reproduce.page").publish())
        return 0
    name, output = options.pop("experiment"), options.pop("output")
    folder = output or Path("reproduced", *([name, options["size"]] if name == "ct" else [name]))
    module = importlib.import_module(f"reproduce.{name if name in ('ct', 'theory') else 'graph_guided'}")
    try:
        module.reproduce(output=folder, **options, **({} if name in ("ct", "theory") else {"name": name}))
    except KeyboardInterrupt:
        print(f"interrupted; results so far are in {folder}, and the same command continues", file=sys.stderr)
        return 130
    except (DataSetError, OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
