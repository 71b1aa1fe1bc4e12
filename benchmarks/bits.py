"""All bits to a relative error: `fpdfp.solve` that is told its target, and the best of tuned rivals at each accuracy.

    python -m benchmarks.bits

Graph-guided logistic regression on a9a and covtype (those that are in --data, $FPDFP_DATA or ../shared/data; else on
breast-cancer data of scikit-learn), N = 100 clients, n = 20 of them a round, rows dealt out at random or sorted by
label, B = [G; I], μ1 = μ2 = 1e-5, full local gradients; and cone-beam CT with total variation, 64 × 64 × 16 voxels, 167
views of 128 × 96 pixels, N = 17 clients, n = 5, μ = 1e-3 (`benchmarks/_cone_beam.py`). All messages have the same codec
and are counted whole, up and down, with all that is sent once.

"automatic" is `fpdfp.solve(problem, accuracy=ε, clients_per_round=n)`, run by itself for each ε, for
`prefer="balanced"` (the default), `"bits"` and `"rounds"`, and with everyone a round. Rivals are FPDFP and, for
regression, FedPAQ, FedProx, FedMiD and FedDualAvg with five local steps ((∂): subgradients of g∘B); they are tuned by
the rule of `fpdfp.tuning`, for CT with γ0 in {0.5, 1, 1.5, 2, 3}/L, c in {0, 0.005}, s in {300, 1000, 3000},
one norm for each slice, 60 rounds and then the best two to the end. The best setting for an accuracy runs again. What
is shown are medians over seeds 1 to 5 (CT: 1 to 3), and ranges; an error is against the optimum of
`fpdfp.minimize`, for CT against the least objective of 300 rounds with everyone and exact messages in
float64. With --certified every automatic run is given `tol=` instead and stops by itself, so that what certificates
cost is counted as well. Runs that are done are kept in --output, and a second call goes on there; --page is written at
the end.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks import _cone_beam, _scores, _tools, _tuning
from benchmarks._problems import DATA, SETS, N, Setting, graph_guided, is_there
from benchmarks._tuning import Spread
from fpdfp import tuning
from fpdfp._numbers import format_bits
from fpdfp.cohorts.record import fingerprint
from fpdfp.declarative import pool
from fpdfp.tuning import Choice, Outcome

LOCAL_STEPS = 5
ROUNDS = 6000
WAYS = ("up", "down")
INNER = fpdfp.InnerSolve(tol=1e-2)
RIVALS: dict[str, Callable[[Any], Any]] = {
    "FPDFP": fpdfp.FPDFP,
    "FedPAQ (∂)": lambda step: fpdfp.FedPAQ(step, LOCAL_STEPS, penalty="subgradient"),
    "FedProx (∂)": lambda step: fpdfp.FedProx(0.1, step, LOCAL_STEPS, penalty="subgradient"),
    "FedMiD": lambda step: fpdfp.FedMiD(step, LOCAL_STEPS, server_prox=True, inner=INNER),
    "FedDualAvg": lambda step: fpdfp.FedDualAvg(step, LOCAL_STEPS, inner=INNER),
}
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
#: What an automatic run, which has nothing to tune, has in the place of a setting.
UNTUNED = Choice(1.0, 0.0, None)


class Kind(NamedTuple):
    """How problems of a kind are run, and what rivals are tuned over."""

    targets: tuple[float, ...]
    rivals: tuple[str, ...]
    per_round: int
    everyone: int
    grid: tuple[Choice, ...]
    stages: tuple[tuple[int, Callable[[int], int]], ...]
    most: int
    every: int
    quantizer: Callable[[int], Any]
    seeds: tuple[int, ...]


REGRESSION = Kind(
    targets=(1e-2, 3e-3, 1e-3, 1e-4, 1e-6),
    rivals=tuple(RIVALS),
    per_round=20,
    everyone=N,
    grid=tuple(tuning.choices()),
    stages=tuning.STAGES,
    most=ROUNDS,
    every=10,
    quantizer=fpdfp.QSGD,
    seeds=(1, 2, 3, 4, 5),
)
TOMOGRAPHY = Kind(
    targets=(1e-2, 4.3e-3, 3e-3, 1.8e-3, 1e-3, 1e-4, 1e-6),
    rivals=("FPDFP",),
    per_round=5,
    everyone=_cone_beam.CLIENTS,
    grid=tuple(tuning.choices(levels=(300, 1000, 3000), gammas=(0.5, 1.0, 1.5, 2.0, 3.0), decays=(0.0, 0.005))),
    stages=((60, lambda _: 2),),
    most=250,
    every=5,
    quantizer=lambda levels: {"x": fpdfp.QSGD(levels, block=(2,)), "v": fpdfp.QSGD(levels, block=(0, 3))},
    seeds=(1, 2, 3),
)


def kind_of(name: str) -> Kind:
    return TOMOGRAPHY if name == "CT" else REGRESSION


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


class Job(NamedTuple):
    """A run: of a rival with a setting, or of ``solve`` with a preference."""

    key: str
    name: str
    split: str
    method: str
    choice: Choice
    n: int
    rounds: int
    target: float
    every: int
    seed: int
    certified: bool = False


_where: dict[tuple[str, str], Setting]
_folders: tuple[Path, Path]


def _start_worker(data: Path, kept: Path) -> None:
    global _where, _folders
    _where, _folders = {}, (data, kept)


def _work(job: Job) -> tuple[str, Any]:
    if (job.name, job.split) not in _where:
        _where.clear()
        _where[job.name, job.split] = setting(_folders[0], job.name, job.split, _folders[1])
    where, kind = _where[job.name, job.split], kind_of(job.name)
    options: dict[str, Any] = {
        "rounds": job.rounds, "clients_per_round": job.n, "evaluate_every": job.every, "seed": job.seed,
    }  # fmt: skip
    if job.method in RIVALS:
        choice = Choice(*job.choice)
        assert choice.levels is not None
        method = RIVALS[job.method](_tuning.schedule(where, choice.gamma, choice.decay))
        options["compressor"] = kind.quantizer(choice.levels)
        result = _tuning.run_until(where, where.federated, method, job.target, **options)
    elif job.certified:
        options |= {"prefer": job.method, "tol": job.target}
        result = fpdfp.solve(where.federated, progress=False, **options)
        last = {name: float(result.history[name][-1]) for name in _tuning.COLUMNS}
        # With what was sent after the last row of the history, but for the certificate of the result.
        last |= {f"total_{way}": getattr(result, f"total_{way}") - getattr(result.traffic["end"], way) for way in WAYS}
        found = _tuning.all_bits(last)
        error = float(result.objective / where.best - 1)
        there = result.status == "converged" and error <= job.target
        return job.key, [error, {f"{job.target:g}": found if there else None}]
    else:
        options |= {"prefer": job.method, "accuracy": job.target}
        result = _tuning.run_until(where, where.federated, None, job.target, **options)
    return job.key, _tuning.outcome(where, result, kind.targets)


class Cell(NamedTuple):
    """What a method needs to an accuracy, over seeds."""

    method: str
    choice: Choice
    rounds: Spread
    up: Spread
    down: Spread
    both: Spread


class Comparison:
    """Everything on one problem."""

    def __init__(self, where: Setting, name: str, split: str, scores: _scores.Scores, rounds: int) -> None:
        self.where, self.name, self.split, self.scores = where, name, split, scores
        self.kind = kind_of(name)
        self.rounds = min(rounds, self.kind.most)
        self.problem = fingerprint(where.federated)

    def job(self, method: str, choice: Choice, n: int, rounds: int, target: float, every: int, seed: int) -> Job:
        """Return a run under a key that says problem, code and settings."""
        code = _scores.code(type(RIVALS[method](1.0))) if method in RIVALS else _scores.package_code()
        key = f"{self.problem} {method} {code} {choice}, {n} a round, {rounds} rounds to {target:g}, {every}, {seed}"
        return Job(key, self.name, self.split, method, choice, n, rounds, target, every, seed)

    def compute(self, title: str, jobs: Sequence[Job]) -> list[Outcome]:
        return [Outcome(*one) for one in self.scores.compute(f"{self.where.name}: {title}", jobs)]

    def rival(self, method: str) -> dict[float, Cell | None]:
        """Tune a rival, and run its best setting for each accuracy again."""
        kind = self.kind

        def outcomes(left: Sequence[Choice], count: int) -> list[Outcome]:
            jobs = [self.job(method, one, kind.per_round, count, kind.targets[-1], kind.every, 0) for one in left]
            return self.compute(method, jobs)

        found = tuning.search(kind.grid, self.rounds, outcomes, kind.stages)
        cells: dict[float, Cell | None] = {}
        for target in kind.targets:
            best = tuning.best(found, target)
            cells[target] = None if best is None else self.cell(method, best, kind.per_round, target, self.rounds)
        return cells

    def automatic(self, prefer: str, n: int, *, certified: bool = False) -> dict[float, Cell | None]:
        """Runs that are told their target."""
        rounds = min(self.rounds, 500)
        return {
            target: self.cell(prefer, UNTUNED, n, target, rounds, certified=certified) for target in self.kind.targets
        }

    def cell(
        self, method: str, choice: Choice, n: int, target: float, rounds: int, *, certified: bool = False
    ) -> Cell | None:
        jobs = [self.job(method, choice, n, rounds, target, 1, seed) for seed in self.kind.seeds]
        if certified:
            jobs = [job._replace(key=f"{job.key} certified", certified=True) for job in jobs]
        runs = [one.totals for one in self.compute(f"{method}, {target:g}", jobs)]
        spreads = [
            _tuning.spread(runs, target, value)
            for value in (
                lambda one: one["round"], lambda one: one["bits_up"], lambda one: one["bits_down"], tuning.bits,
            )
        ]  # fmt: skip
        there = [one for one in spreads if one is not None]
        return Cell(method, choice, *there) if len(there) == len(spreads) else None


def ranged(spread: Spread, write: Callable[[float], str] = format_bits) -> str:
    """Write a median, and the range over seeds."""
    least, largest = (write(value) if math.isfinite(value) else "never" for value in (spread.least, spread.largest))
    return write(spread.median) + (f" ({least} to {largest})" if least != largest else "")


def row(label: str, target: float, cell: Cell | None) -> list[str]:
    if cell is None:
        return [f"{target:g}", label, "not reached", "", "", ""]
    tuned = "" if cell.choice == UNTUNED else f" ({cell.choice})"
    counted = [ranged(cell.both), ranged(cell.up), ranged(cell.down)]
    return [f"{target:g}", label + tuned, *counted, ranged(cell.rounds, "{:,.0f}".format)]


HEADER = ["error", "method", "bits up and down", "up", "down", "rounds"]


def compare(one: Comparison, rivals: Sequence[str], *, certified: bool) -> tuple[list[list[str]], dict[str, Any]]:
    """Run everything on one problem; return the rows of its table, and ratios."""
    kind = one.kind
    ours = {
        f"automatic, prefer={prefer!r}" + ("" if n == kind.per_round else ", everyone"): one.automatic(prefer, n)
        for prefer, n in (
            ("balanced", kind.per_round), ("bits", kind.per_round), ("rounds", kind.per_round),
            ("balanced", kind.everyone), ("rounds", kind.everyone),
        )
    }  # fmt: skip
    if certified:
        ours["automatic, tol= instead"] = one.automatic("balanced", kind.per_round, certified=True)
    theirs = {name: one.rival(name) for name in kind.rivals if name in rivals}
    rows, ratios = [], {}
    for target in kind.targets:
        there = {name: cell for name, cells in theirs.items() if (cell := cells[target]) is not None}
        if there:
            best = min(there, key=lambda name: there[name].both.median)
            rows.append(row(f"best rival: {best}", target, there[best]))
            mine = ours["automatic, prefer='balanced'"][target]
            if mine is not None:
                ratios[f"{target:g}"] = {
                    "best rival": best, "bits": round(there[best].both.median / mine.both.median, 1),
                    "rounds": round(there[best].rounds.median / mine.rounds.median, 1),
                }  # fmt: skip
            if best != "FPDFP":
                rows.append(row("FPDFP", target, there.get("FPDFP")))
        elif theirs:
            rows.append(row("rivals", target, None))
        rows += [row(label, target, cells[target]) for label, cells in ours.items()]
    return rows, ratios


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


INTRODUCTION = """# All bits to an accuracy

Made by `python -m benchmarks.bits{options}`, whose help says what is run; rivals have at most {rounds:,} rounds.
Bits are all that clients and server send, up and down, facts and what is sent once for a preconditioner included;
medians over seeds, and ranges. "automatic" is `fpdfp.solve` that is told its target (`accuracy=`); the best rival is
that of the fewest bits among {rivals}, each with its best setting for that accuracy.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--page", type=Path, help="file for the tables; by default bits-SETS.txt in docs/results")
    parser.add_argument("--rounds", type=_tuning.positive, default=ROUNDS, help="at most so many for any problem")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "CT"], default=[*SETS, "CT"])
    parser.add_argument("--rivals", nargs="*", choices=list(RIVALS), default=list(RIVALS))
    parser.add_argument("--certified", action="store_true", help="also runs that stop by tol=")
    parser.add_argument("--jobs", type=_tuning.positive, default=None, help="processes; by default one for each core")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    there = [name for name in SETS if name in arguments.sets and is_there(arguments.data, name)]
    regressions = there or (["breast cancer"] if set(SETS) & set(arguments.sets) else [])
    tasks = [(name, split) for name in regressions for split in ("iid", "label")]
    tasks += [("CT", "iid")] if "CT" in arguments.sets else []
    parts, results = [], {}
    try:
        with (
            pool.bar() as bar,
            pool.workers(_start_worker, arguments.data, arguments.output, jobs=arguments.jobs) as processes,
        ):
            scores = _scores.Scores(arguments.output / "bits.jsonl", processes, _work, bar)
            for name, split in tasks:
                where = setting(arguments.data, name, split, arguments.output)
                comparison = Comparison(where, name, split, scores, arguments.rounds)
                rows, results[where.name] = compare(comparison, arguments.rivals, certified=arguments.certified)
                _tools.show(where.name, HEADER, rows)
                parts.append(f"## {where.name}\n\n{markdown(rows)}")
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is done is in {arguments.output}, and the same command goes on") from None
    options = "".join(
        f" --{name} {' '.join(map(shlex.quote, given))}".rstrip()
        for name, given, usual in (
            ("sets", arguments.sets, [*SETS, "CT"]), ("rivals", arguments.rivals, list(RIVALS)),
        )
        if given != usual
    )  # fmt: skip
    options += f" --rounds {arguments.rounds}" if arguments.rounds != ROUNDS else ""
    options += " --certified" if arguments.certified else ""
    rivals = ", ".join(arguments.rivals) or "none"
    page = arguments.page or RESULTS / f"bits-{'-'.join(arguments.sets)}.txt"
    page.write_text("\n".join([INTRODUCTION.format(options=options, rivals=rivals, rounds=arguments.rounds), *parts]))
    _tools.finish({"ratios": results, "page": str(page)})


if __name__ == "__main__":
    main()
