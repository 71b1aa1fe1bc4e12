"""Runs for the tests of reports and for their pictures: a graph-guided model, and a small reconstruction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp import demo
from fpdfp.declarative.build import build
from fpdfp.runs import Recorder, linear_model
from reproduce.runs import build_case


def small(folder: Path, runs: Mapping[str, Mapping[str, Any]], seeds: tuple[int, ...] = (0,)) -> Path:
    """Record runs of a problem that is solved at once: 40 features in a ring, 160 samples at 8 clients."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((160, 40)), np.ones(160)])
    truth = np.where(np.arange(41) % 10 < 4, 1.0, 0.0)
    y = np.where(X @ truth + rng.standard_normal(160) > 0, 1.0, -1.0)
    graph = fpdfp.datasets.as_graph([(i, (i + 1) % 40, 1.0) for i in range(40)], 40)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(160) % 8, l2=1e-2)
    B = graph.stacked()
    B.resize(B.shape[0], 41)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-2), B)
    best = fpdfp.minimize(problem)
    names = [*(f"feature {i}" for i in range(40)), "intercept"]
    model = linear_model(names, intercept=40, graph=graph, classes=["no", "yes"])
    for name, arguments in runs.items():
        for seed in seeds:
            recorder = Recorder(
                folder / f"{len(list(folder.iterdir()))}", problem, name=name, reference=best, model=model
            )
            metrics = {"accuracy": lambda x: float(np.mean((X @ x > 0) == (y > 0)))}
            recorder.solve(clients_per_round=4, seed=seed, metrics=metrics, progress=False, **arguments)
    return folder


def graph_guided(folder: Path, runs: Mapping[str, Mapping[str, Any]], seeds: tuple[int, ...] = (0,)) -> Path:
    """Record runs of the demonstration's problem, each by name with its arguments and every seed."""
    chosen = build(demo.declare_run("default", 60, 0))
    best = fpdfp.minimize(chosen.problem, tol=1e-10)
    for name, arguments in runs.items():
        for seed in seeds:
            recorder = Recorder(
                folder / name / f"seed-{seed}", chosen.problem, name=name, reference=best, model=chosen.model
            )
            metrics = {"accuracy": chosen.metrics["accuracy"]}
            recorder.solve(clients_per_round=10, seed=seed, metrics=metrics, progress=False, **arguments)
    return folder


def reconstruction(folder: Path, size: str, runs: Mapping[str, Mapping[str, Any]]) -> Path:
    """Record reconstructions of the thorax phantom among 17 clients, each by name with its arguments."""
    side = {"tiny": 16, "small": 64}[size]
    scan = {"data.shape": [side, side, max(side // 4, 8)], "data.detector": [3 * side // 2, max(3 * side // 2, 16)]}
    chosen = build_case(f"ct-{size}", {**scan, "data.model": "mean"})
    for name, arguments in runs.items():
        recorder = Recorder(folder / name, chosen.problem, name=name, truth=chosen.truth, voxel=chosen.scan.voxel)
        recorder.solve(clients_per_round=5, metrics={"psnr": chosen.psnr}, progress=False, **arguments)
    return folder
