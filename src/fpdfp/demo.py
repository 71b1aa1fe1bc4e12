"""The demonstration: graph-guided logistic regression among 20 clients, with default settings and by the paper."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp import report
from fpdfp.declarative.build import build
from fpdfp.declarative.runner import Job, run_job
from fpdfp.declarative.settings import declare

#: What is run, by name: default settings, and FPDFP with so many levels or with exact messages.
AUTOMATIC = "automatic"
RUNS: dict[str, dict[str, Any]] = {
    AUTOMATIC: {},
    "FPDFP, s = 5": {"method.kind": "FPDFP", "compressor": {"kind": "QSGD", "levels": 5}},
    "FPDFP, s = 20": {"method.kind": "FPDFP", "compressor": {"kind": "QSGD", "levels": 20}},
    "FPDFP, exact": {"method.kind": "FPDFP", "compressor": {"kind": "none"}},
}
#: Rounds that are plenty with default settings.
FEW = 60


def declare_run(name: str, rounds: int, seed: int) -> dict[str, Any]:
    """Return the settings of a run; the seed is that of the split as well."""
    count = min(rounds, FEW) if name == AUTOMATIC else rounds
    changes = {**RUNS[name], "data.seed": seed, "run.seeds": [seed], "run.rounds": count}
    return declare(Path(__file__).with_name("demo.toml"), changes)


def run(output: Path, rounds: int = 4000, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """Run the demonstration, print its table, and write its runs, a report, a plot and the numbers into a folder."""
    from rich.console import Console
    from rich.table import Table

    console, settings = Console(), declare_run(AUTOMATIC, rounds, seed)
    built = build(settings)
    problem, model = built.problem, built.model or {}
    console.print(
        f"{problem.losses.sizes.sum()} samples with {problem.model.shape[0]} features at {problem.n_clients} clients, "
        f"{settings['run']['clients_per_round']} of them in a round; a graph of {len(model['edges'])} edges"
    )
    best = fpdfp.minimize(problem, tol=1e-10)
    console.print(f"reference solution: {best}\n")

    table = Table(title="default settings compared with FPDFP")
    table.add_column("method", justify="right", no_wrap=True)
    for name in ("rounds", "Mbit up", "for evaluations", "objective", "relative error", "test accuracy"):
        table.add_column(name, justify="right")
    runs: dict[str, Any] = {}
    folders: list[Path] = []
    for name in RUNS:
        folder = output / "runs" / folder_of(name)
        if (folder / "run.json").exists():
            shutil.rmtree(folder)
        folders.append(folder)
        line = run_job(Job(name, declare_run(name, rounds, seed), seed, folder, output, {}), progress, best.objective)
        history = fpdfp.runs.load(folder).history
        runs[name] = {column: history[column].tolist() for column in history}
        runs[name]["relative_error"] = ((history.objective - best.objective) / best.objective).tolist()
        table.add_row(
            name, str(line["rounds"]), *(f"{line[bits] / 1e6:.3g}" for bits in ("total_up", "evaluation_up")),
            f"{line['objective']:.8f}", f"{line['relative_error']:.2e}", f"{100 * line['accuracy']:.1f} %",
        )  # fmt: skip
        if line["status"] == "interrupted":
            break
    console.print(table)

    output.mkdir(parents=True, exist_ok=True)
    summary = {"reference": best.objective, "relative_gap": best.certificate.relative_gap, "runs": runs}
    (output / "demo.json").write_text(json.dumps(summary))
    plot(output / "demo.png", runs)
    page = report.write(folders, output / "report.html", title="Graph-guided logistic regression")
    console.print(
        f"plot: {output / 'demo.png'}, numbers: {output / 'demo.json'}, runs: {output / 'runs'}", soft_wrap=True
    )
    console.print(f"report: {page}, to be opened in a browser", soft_wrap=True)
    return summary


def folder_of(name: str) -> str:
    """Return the name of a run's folder.

    >>> folder_of("FPDFP, s = 5")
    'fpdfp-s-5'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def plot(path: Path, runs: dict[str, Any]) -> None:
    """Draw the relative error against rounds and against bits."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    by_round, by_bits = figure.subplots(1, 2, sharey=True)
    for name, history in runs.items():
        by_round.semilogy(history["round"], history["relative_error"], label=name)
        sent = np.array(history["total_up"]) - np.array(history["evaluation_up"])
        by_bits.loglog(sent, history["relative_error"], label=name)
    by_round.set(xlabel="round", ylabel="(F(x) − F*) / F*", title="graph-guided logistic regression, 20 clients")
    by_bits.set(xlabel="all bits sent by clients, but for evaluations", title="the same, against bits")
    for axes in (by_round, by_bits):
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
