"""The demonstration: graph-guided logistic regression among 20 clients, with nothing given and by the paper."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp._units import format_bits
from fpdfp.datasets import FeatureGraph, feature_graph
from fpdfp.runs import Recorder, linear_model

CLIENTS = 20
CLIENTS_PER_ROUND = 10
L2 = 1e-2
WEIGHT = 2e-3
#: What is run, by name: nothing given, and FPDFP with so many levels or with exact messages.
AUTOMATIC = "automatic"
RUNS: dict[str, dict[str, Any]] = {
    AUTOMATIC: {},
    "FPDFP, s = 5": {"method": fpdfp.FPDFP(), "compressor": fpdfp.QSGD(levels=5)},
    "FPDFP, s = 20": {"method": fpdfp.FPDFP(), "compressor": fpdfp.QSGD(levels=20)},
    "FPDFP, exact": {"method": fpdfp.FPDFP()},
}
#: Rounds that are plenty where nothing is given.
FEW = 60


class Setting(NamedTuple):
    """The problem of the demonstration and the data to test on."""

    problem: fpdfp.Problem
    graph: FeatureGraph
    test_features: Any
    test_labels: Any
    names: list[str]
    classes: list[str]

    @property
    def model(self) -> dict[str, Any]:
        """What the numbers of x mean."""
        return linear_model([*self.names, "intercept"], intercept=30, graph=self.graph, classes=self.classes)

    def accuracy(self, x: Any) -> float:
        """The share of test samples that x classifies rightly."""
        return float(np.mean((self.test_features @ x > 0) == (self.test_labels > 0)))


def setting(seed: int) -> Setting:
    """Breast-cancer samples of scikit-learn, standardised, dealt out to 20 clients; a fifth kept for testing."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    features, labels = found.data, found.target
    order = np.random.default_rng(seed).permutation(len(labels))
    features, labels = features[order], labels[order]
    cut = int(0.8 * len(labels))
    features = (features - features[:cut].mean(axis=0)) / features[:cut].std(axis=0)
    features = np.column_stack([features, np.ones(len(labels))])
    graph = feature_graph(features[:cut, :-1], alpha=0.1)
    losses = fpdfp.losses.Logistic(features[:cut], labels[:cut], clients=np.arange(cut) % CLIENTS, l2=L2)
    # The last column is the intercept: it has no place in the graph and is not penalised.
    B = graph.stacked()
    B.resize(B.shape[0], features.shape[1])
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(WEIGHT), B)
    names, classes = ([str(name) for name in given] for given in (found.feature_names, found.target_names))
    return Setting(problem, graph, features[cut:], labels[cut:], names, classes)


def run(output: Path, rounds: int = 4000, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """Run the demonstration, print its table, and write its runs, a report, a plot and the numbers into a folder."""
    from rich.console import Console
    from rich.table import Table

    from fpdfp import report

    console = Console()
    chosen = setting(seed)
    problem = chosen.problem
    console.print(
        f"{problem.losses.sizes.sum()} samples with {problem.model.shape[0]} features at {CLIENTS} clients, "
        f"{CLIENTS_PER_ROUND} of them in a round; a graph of {chosen.graph.edges} edges"
    )
    best = fpdfp.reference_solution(problem, tol=1e-10)
    console.print(f"reference solution: {best}\n")

    table = Table(title="nothing given, and the paper's method")
    table.add_column("method", justify="right", no_wrap=True)
    for name in ("rounds", "total bits up", "evaluations of it", "objective", "relative error", "test accuracy"):
        table.add_column(name, justify="right")
    runs: dict[str, Any] = {}
    folders: list[Path] = []
    for name, arguments in RUNS.items():
        folder = output / "runs" / folder_of(name)
        if (folder / "run.json").exists():
            shutil.rmtree(folder)
        recorder = Recorder(folder, problem, name=name, reference=best, model=chosen.model)
        folders.append(folder)
        result = recorder.solve(
            rounds=min(rounds, FEW) if name == AUTOMATIC else rounds,
            clients_per_round=CLIENTS_PER_ROUND,
            seed=seed,
            metrics={"accuracy": chosen.accuracy},
            progress=progress,
            **arguments,
        )
        error = (result.history.objective - best.objective) / best.objective
        runs[name] = {column: result.history[column].tolist() for column in result.history}
        runs[name]["relative_error"] = error.tolist()
        accuracy = f"{100 * result.history.accuracy[-1]:.1f} %"
        table.add_row(
            name,
            str(result.rounds),
            format_bits(result.total_up),
            format_bits(result.traffic["evaluation"].up),
            f"{result.objective:.8f}",
            f"{error[-1]:.2e}",
            accuracy,
        )
        if result.status == "interrupted":
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
