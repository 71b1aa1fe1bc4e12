"""Rounds and bits to a relative error: FPDFP as well as it can be tuned, and `fpdfp.solve` with nothing given.

    python -m benchmarks.bits

Graph-guided logistic regression on a9a and covtype (those that are in --data, $FPDFP_DATA or ../shared/data; else on
breast-cancer data of scikit-learn), N = 100 clients, rows dealt out at random or sorted by label, B = [G; I],
μ1 = μ2 = 1e-5, full local gradients; and cone-beam CT with total variation, 64 × 64 × 16 voxels, 167 views of 128 × 96
pixels, N = 17 clients, μ = 1e-3 (`benchmarks/_cone_beam.py`). All messages have the same codec and are counted whole.

FPDFP takes n = 20 clients a round (5 for CT), γ_k = γ0/(1 + ck) with γ0 in {1/2, 1, 2, 4, 8, 16, 32}/L, c in {0, 0.001,
0.005, 0.02}, and QSGD messages with s in {2, 5, 20} levels (l2 norm); for CT γ0 in {0.5, 1, 1.5, 2, 3}/L, c in {0,
0.005}, s in {300, 1000, 3000}, one norm for each slice. For each s all settings run 250 rounds (CT: 60), the best third
goes on to 1,000, the best four of those to the end (CT: the best two to the end, 250 rounds); of what is left the best
in rounds and the best in bits to the smallest error that any reaches are shown.

`fpdfp.solve(problem, clients_per_round=…)` chooses everything itself; it is run with the same n and with everyone. One
seed. The optimum is that of `fpdfp.reference_solution`, for CT the least objective of 300 rounds with everyone and
exact messages in float64. Settings that are done are kept in --output, and a second call goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks import _cone_beam, _tools, _tuning
from benchmarks._problems import DATA, SETS, N, Setting, graph_guided, is_there
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.engines.progress import format_bits
from fpdfp.experiments import pool


class Grid(NamedTuple):
    """What FPDFP is tuned over, and how many clients take part."""

    gammas: tuple[float, ...]
    decays: tuple[float, ...]
    levels: tuple[int, ...]
    per_round: int
    everyone: int
    stages: tuple[tuple[int, Callable[[int], int]], ...]
    most: int
    every: int
    quantizer: Callable[[int], Any]
    targets: tuple[float, ...]


REGRESSION = Grid(
    gammas=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    decays=(0.0, 0.001, 0.005, 0.02),
    levels=(2, 5, 20),
    per_round=20,
    everyone=N,
    stages=((250, lambda count: math.ceil(count / 3)), (1000, lambda _: 4)),
    most=6000,
    every=10,
    quantizer=fpdfp.QSGD,
    targets=(1e-2, 3e-3, 1e-3, 1e-4, 1e-6),
)
TOMOGRAPHY = Grid(
    gammas=(0.5, 1.0, 1.5, 2.0, 3.0),
    decays=(0.0, 0.005),
    levels=(300, 1000, 3000),
    per_round=5,
    everyone=_cone_beam.CLIENTS,
    stages=((60, lambda _: 2),),
    most=250,
    every=5,
    quantizer=lambda levels: {"x": fpdfp.QSGD(levels, block=(2,)), "v": fpdfp.QSGD(levels, block=(0, 3))},
    targets=(1e-2, 4.3e-3, 3e-3, 1.8e-3, 1e-3, 1e-4, 1e-6),
)

Totals = dict[str, dict[str, float] | None]


def setting(folder: Path, name: str, split: str, kept: Path) -> Setting:
    """The problem and its optimum; that of CT is computed once and kept."""
    if name != "CT":
        return graph_guided(folder, name, split)
    problem, file = _cone_beam.tomography(), kept / f"ct-{fingerprint(_cone_beam.tomography())}.json"
    if not file.is_file():
        exact = _cone_beam.tomography(np.float64)
        result = fpdfp.solve(exact, fpdfp.ShiftedPDFP(preconditioner="fourier"), rounds=300, evaluate_every=10)
        file.write_text(json.dumps(float(result.history.objective.min())))
    return Setting("CT 64 × 64 × 16", problem, problem, json.loads(file.read_text()))


def grid_of(name: str) -> Grid:
    return TOMOGRAPHY if name == "CT" else REGRESSION


def totals(where: Setting, grid: Grid, result: fpdfp.Result) -> Totals:
    """Rounds and bits at the first evaluation within each relative error."""
    names = ("round", "bits_up", "bits_down")
    return {f"{target:g}": _tuning.first_within(where, result.history, target, names) for target in grid.targets}


_where: dict[tuple[str, str], Setting]
_folders: tuple[Path, Path]


def _start_worker(data: Path, kept: Path) -> None:
    global _where, _folders
    _where, _folders = {}, (data, kept)


def _work(job: tuple[Any, ...]) -> tuple[str, Any]:
    key, name, split, gamma, decay, levels, rounds = job
    if (name, split) not in _where:
        _where.clear()
        _where[name, split] = setting(_folders[0], name, split, _folders[1])
    where, grid = _where[name, split], grid_of(name)
    result = _tuning.run_until(
        where, where.federated, fpdfp.FPDFP(_tuning.schedule(where, gamma, decay)), grid.targets[-1], rounds=rounds,
        clients_per_round=grid.per_round, compressor=grid.quantizer(levels), evaluate_every=grid.every,
    )  # fmt: skip
    error = float(result.history.objective[-1] / where.best - 1)
    return key, [math.inf if result.status == "diverged" else error, totals(where, grid, result)]


def tuned(where: Setting, name: str, split: str, scores: pool.Scores, rounds: int) -> dict[str, Any]:
    """Return the best of FPDFP in rounds and in bits."""
    grid, code, problem = grid_of(name), pool.code(fpdfp.FPDFP), fingerprint(where.federated)
    stages = [*(stage for stage in grid.stages if stage[0] < rounds), (rounds, lambda count: count)]
    ended: dict[tuple[float, float, int], Any] = {}
    for levels in grid.levels:

        def score(settings: Sequence[tuple[float, float]], count: int, levels: int = levels) -> list[Any]:
            jobs = [
                (f"{problem} {code} {gamma:g} {decay:g} {levels} {count}", name, split, gamma, decay, levels, count)
                for gamma, decay in settings
            ]
            found = scores.compute(f"{where.name}: FPDFP, s = {levels}, {count} rounds", jobs)
            if count == rounds:
                ended.update({(*one, levels): value for one, value in zip(settings, found, strict=True)})
            return [error for error, _ in found]

        pool.halve([(gamma, decay) for gamma in grid.gammas for decay in grid.decays], stages, score)
    reached = [f"{target:g}" for target in grid.targets if any(found[f"{target:g}"] for _, found in ended.values())]
    if not reached:
        least = min(ended, key=lambda one: ended[one][0])
        return {"FPDFP": (least, ended[least][1])}
    last = reached[-1]

    def best(kind: str) -> tuple[float, float, int]:
        return min((one for one in ended if ended[one][1][last]), key=lambda one: ended[one][1][last][kind])

    return {
        f"FPDFP, best in {label}": (best(kind), ended[best(kind)][1])
        for label, kind in (("rounds", "round"), ("bits", "bits_up"))
    }


def ours(where: Setting, grid: Grid, n: int, rounds: int) -> tuple[fpdfp.Result, Totals]:
    """Nothing given."""
    result = _tuning.run_until(
        where, where.federated, None, grid.targets[-1], rounds=min(rounds, 500), clients_per_round=n, evaluate_every=1
    )
    return result, totals(where, grid, result)


def compare(where: Setting, name: str, split: str, scores: pool.Scores, rounds: int) -> dict[str, Any]:
    """Run everything on one problem, print its table, and return the numbers."""
    rows, results, grid = [], {}, grid_of(name)
    rounds = min(rounds, grid.most)
    for label, ((gamma, decay, levels), found) in tuned(where, name, split, scores, rounds).items():
        results[label] = {"gamma_times_L": gamma, "decay": decay, "levels": levels, **found}
        rows += write(f"{label}: {gamma:g}/L, c = {decay:g}, s = {levels}", grid, found, "")
    for n in (grid.per_round, grid.everyone):
        result, found = ours(where, grid, n, rounds)
        once = {"bits_once_up": result.bits_once_up, "bits_once_down": result.bits_once_down}
        results[f"automatic, n = {n}"] = {**once, **found}
        each = f"{format_bits(result.bits_once_up)} up, {format_bits(result.bits_once_down)} down"
        rows += write(f"automatic, n = {n}", grid, found, each)
    header = ["method", "once", "error", "rounds", "bits up", "bits up and down"]
    _tools.show(f"{where.name}: at most {rounds} rounds", header, rows)
    return {"optimum": where.best, "methods": results, "ratios": ratios(grid, results)}


def write(label: str, grid: Grid, found: Totals, once: str) -> list[list[str]]:
    rows = []
    for target in grid.targets:
        one = found[f"{target:g}"]
        numbers = ["not reached", "", ""]
        if one is not None:
            both = one["bits_up"] + one["bits_down"]
            numbers = [f"{one['round']:,.0f}", format_bits(one["bits_up"]), format_bits(both)]
        first = target == grid.targets[0]
        rows.append([label if first else "", once if first else "", f"{target:g}", *numbers])
    return rows


def ratios(grid: Grid, results: dict[str, Any]) -> dict[str, Any]:
    """Rounds and recurring bits up of FPDFP, the best of them, over those of the automatic runs, to each error."""
    theirs = [one for label, one in results.items() if label.startswith("FPDFP")]
    found: dict[str, Any] = {}
    for label, one in results.items():
        if label.startswith("FPDFP"):
            continue
        found[label] = {
            f"{target:g}": {
                kind: round(min(other[f"{target:g}"][kind] for other in theirs if other[f"{target:g}"])
                            / one[f"{target:g}"][kind], 1)
                for kind in ("round", "bits_up")
            }
            for target in grid.targets
            if one[f"{target:g}"] and any(other[f"{target:g}"] for other in theirs)
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--rounds", type=_tuning.positive, default=6000, help="at most so many for any problem")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "CT"], default=[*SETS, "CT"])
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    there = [name for name in SETS if name in arguments.sets and is_there(arguments.data, name)]
    regressions = there or (["breast cancer"] if set(SETS) & set(arguments.sets) else [])
    tasks = [(name, split) for name in regressions for split in ("iid", "label")]
    tasks += [("CT", "iid")] if "CT" in arguments.sets else []
    results = {}
    try:
        for name, split in tasks:  # optima first, so that workers find them
            setting(arguments.data, name, split, arguments.output)
        with pool.bar() as bar, pool.workers(_start_worker, arguments.data, arguments.output) as processes:
            scores = pool.Scores(arguments.output / "bits.jsonl", processes, _work, bar)
            for name, split in tasks:
                where = setting(arguments.data, name, split, arguments.output)
                results[where.name] = compare(where, name, split, scores, arguments.rounds)
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is tuned is in {arguments.output}, and the same command goes on") from None
    _tools.finish({"problems": results})


if __name__ == "__main__":
    main()
