"""The demonstration: a model over three hospitals, a reconstruction of a scan, and a comparison of five methods."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fpdfp
from fpdfp import ct, report
from fpdfp.declarative.build import build
from fpdfp.declarative.runner import Job, run_job
from fpdfp.declarative.settings import declare

#: The methods that are compared, by name, with their settings.
METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "RandProx": {"method.kind": "RandProx"},
    "FedDR": {"method.kind": "FedDR", "method.inner": {"kind": "InnerSolve"}},
    "FedAvg with subgradients": {"method.kind": "FedAvg", "method.penalty": "subgradient"},
    "FPDFP, 20 levels": {"method.kind": "FPDFP", "compressor": {"kind": "QSGD", "levels": 20}},
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#999999", "#1B3A4B")


def run(output: Path, rounds: int = 1000, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """Run the demonstration, print what it finds, and write pictures, runs and a report into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    show_hospitals(output / "hospitals.png", seed)
    show_scan(output / "scan.png", seed)
    return compare_methods(output, rounds, seed, progress)


def show_hospitals(path: Path, seed: int) -> None:
    """Fit a logistic model to the patients of three hospitals, print its summary and draw a forest plot."""
    print("1. Three hospitals: which patients are readmitted?\n")
    patients = fpdfp.datasets.patients(seed=seed)
    # A matrix, since formulas need an optional package.
    features = pd.get_dummies(patients[["age", "stage", "treated"]], columns=["stage"], drop_first=True, dtype=float)
    model = fpdfp.FederatedGLM("binomial").fit(features, patients["readmitted"], groups=patients["hospital"])
    print(model.summary())
    fpdfp.inference.forest_plot(model.heterogeneity("treated", exponentiate=True), path)
    print(f"\nodds ratio of the treatment at each hospital: {path}\n")


def show_scan(path: Path, seed: int) -> None:
    """Reconstruct a small cone-beam scan, print its error and draw a slice."""
    from matplotlib.figure import Figure

    print("2. A cone-beam scan: 45 noisy views of a thorax phantom\n")
    scan = ct.ConeBeam.circular((64, 64, 16), (128, 64), views=45, source=19.2, panel=28.8, voxel=0.075)
    chest = ct.phantoms.thorax(scan)
    noise = 0.05 * np.random.default_rng(seed).standard_normal(scan.data_shape)
    projections = (chest.project(scan) + noise).astype(np.float32)
    truth = chest.volume(scan)
    volumes = {
        "truth": truth,
        "filtered back-projection": ct.fdk(projections, scan),
        "total variation": ct.reconstruct(projections, scan, tv=0.002, device="cpu", progress=False).volume,
    }
    figure = Figure(figsize=(9, 3.3), layout="constrained")
    for axes, (name, volume) in zip(figure.subplots(1, 3), volumes.items(), strict=True):
        quality = "" if name == "truth" else f", {ct.psnr(volume, truth):.1f} dB"
        if quality:
            print(f"{name}{quality}")
        axes.imshow(volume[:, :, 8].T, cmap="gray", vmin=0.0, vmax=float(truth.max()), origin="lower")
        axes.set_title(name + quality, fontsize="medium")
        axes.set_axis_off()
    figure.savefig(path, dpi=120)
    print(f"\nthe middle slice: {path}\n")


def declare_run(name: str, rounds: int, seed: int) -> dict[str, Any]:
    """Return the settings of a run; the split has the same seed."""
    changes = {**METHODS[name], "data.seed": seed, "run.seeds": [seed], "run.rounds": rounds}
    return declare(Path(__file__).with_name("demo.toml"), changes)


def compare_methods(output: Path, rounds: int, seed: int, progress: bool | None) -> dict[str, Any]:
    """Run five methods on one problem, print a table, and write runs, a report, a plot and the numbers."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    built = build(declare_run("default", rounds, seed))
    problem = built.problem
    console.print("3. Five methods on one problem: graph-guided logistic regression\n")
    console.print(
        f"{problem.losses.sizes.sum()} samples with {problem.model.shape[0]} features at {problem.n_clients} clients, "
        f"10 of them in a round"
    )
    best = fpdfp.minimize(problem, tol=1e-10)
    table = Table(title=f"after {rounds} rounds, relative error of the objective")
    table.add_column("method", justify="right", no_wrap=True)
    for column in ("error", "Mbit up", "Mbit down", "accuracy", "seconds"):
        table.add_column(column, justify="right")
    runs: dict[str, Any] = {}
    folders: list[Path] = []
    for name in METHODS:
        folder = output / "runs" / folder_of(name)
        if (folder / "run.json").exists():
            shutil.rmtree(folder)
        folders.append(folder)
        line = run_job(Job(name, declare_run(name, rounds, seed), seed, folder, output, {}), progress, best.objective)
        history = fpdfp.runs.load(folder).history
        runs[name] = {column: history[column].tolist() for column in history}
        runs[name]["relative_error"] = ((history.objective - best.objective) / best.objective).tolist()
        table.add_row(
            name, f"{max(line['relative_error'], 0.0):.0e}",
            f"{line['total_up'] / 1e6:.2f}", f"{line['total_down'] / 1e6:.2f}",
            f"{100 * line['accuracy']:.1f} %", f"{history.seconds[-1]:.1f}",
        )  # fmt: skip
        if line["status"] == "interrupted":
            break
    console.print(table)
    summary = {"reference": best.objective, "relative_gap": best.certificate.relative_gap, "runs": runs}
    (output / "demo.json").write_text(json.dumps(summary))
    plot(output / "methods.png", runs)
    page = report.write(folders, output / "report.html", title="Five methods, one problem")
    console.print(f"plot: {output / 'methods.png'}, numbers: {output / 'demo.json'}", soft_wrap=True)
    console.print(f"report: open {page} in a browser", soft_wrap=True)
    return summary


def folder_of(name: str) -> str:
    """Return the name of a run's folder.

    >>> folder_of("FedAvg with subgradients")
    'fedavg-with-subgradients'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def plot(path: Path, runs: dict[str, Any]) -> None:
    """Draw the relative error against rounds and against bits, all axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    by_round, by_bits = figure.subplots(1, 2, sharey=True)
    for (name, history), colour in zip(runs.items(), COLOURS, strict=False):
        error = np.maximum(history["relative_error"][1:], 1e-9)
        by_round.loglog(history["round"][1:], error, label=name, color=colour)
        sent = np.array(history["total_up"]) - np.array(history["evaluation_up"])
        by_bits.loglog(sent[1:] / 1e6, error, color=colour)
    by_round.set(ylim=(7e-10, 10), xlabel="communication rounds", ylabel="relative error of the objective")
    by_round.set_title("Rounds: 10 of 20 clients take part in each")
    by_bits.set(xlabel="Mbit sent by all clients")
    by_bits.set_title("Bits: everything that clients send")
    for axes in (by_round, by_bits):
        axes.grid(True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    by_round.legend(loc="lower left")
    figure.savefig(path, dpi=120)
