"""The methods that the comparisons run, how each is run, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fpdfp
from benchmarks import _scores, _tuning
from benchmarks._problems import Setting, graph_guided
from benchmarks._tuning import Spread
from fpdfp import tuning
from fpdfp._numbers import format_bits
from fpdfp.cohorts.record import fingerprint
from fpdfp.engines.checkpoint import describe
from fpdfp.tuning import Choice, Outcome, Totals

TARGETS = (1e-2, 1e-3, 1e-4, 1e-6)
PER_ROUND, LOCAL_STEPS, BATCH = 20, 5, 50
INNER = fpdfp.InnerSolve(tol=1e-2)
PROX_OF_F = fpdfp.InnerSolve(tol=1e-6, max_steps=10_000)
#: What stands for the one setting of a method that chooses everything itself.
UNTUNED = Choice(1.0, 0.0, None)


def largest(levels: int) -> Any:
    """Quantize by the largest entry."""
    return fpdfp.QSGD(levels, norm="max")


DOWN = largest(31)


class Contender(NamedTuple):
    """A method as it is run here.

    ``make`` gets the schedule of steps, or a constant step where it cannot fall; None where nothing is ``tuned``.
    ``compressor`` gets the levels, for methods that may compress.
    """

    make: Callable[[Any], Any]
    compressor: Callable[[int], Any] = fpdfp.QSGD
    downlink: Any = None
    central: bool = False
    everyone: bool = False
    falling: bool = True
    random: bool = True
    tuned: bool = True


def admm(step: Any) -> fpdfp.FedADMM:
    """ρ is one over the step of the grid, as η of FedDR is the step."""
    return fpdfp.FedADMM(1.0 / step(0), local_steps=LOCAL_STEPS, penalty="subgradient")


CONTENDERS: dict[str, Contender] = {
    "default": Contender(lambda _: None, tuned=False),
    "ShiftedPDFP": Contender(fpdfp.ShiftedPDFP, largest, DOWN, falling=False),
    "ErrorFeedbackPDFP (EF21), top-k": Contender(fpdfp.ErrorFeedbackPDFP, fpdfp.compress.TopK, DOWN, falling=False),
    "StatelessPDFP": Contender(fpdfp.StatelessPDFP, largest),
    "RandProx": Contender(fpdfp.RandProx, largest, DOWN, falling=False),
    "NewtonPDFP, top 2 %": Contender(lambda _: fpdfp.NewtonPDFP(), tuned=False),
    "ProximalNewton": Contender(lambda _: fpdfp.ProximalNewton(), everyone=True, tuned=False),
    "FPDFP": Contender(fpdfp.FPDFP),
    "FPDFP, τ = 5": Contender(lambda step: fpdfp.FPDFP(step, local_steps=LOCAL_STEPS)),
    "FedSGD (∂)": Contender(lambda step: fpdfp.FedSGD(step, penalty="subgradient")),
    "FedAvg (∂), τ = 5": Contender(lambda step: fpdfp.FedAvg(step, LOCAL_STEPS, penalty="subgradient")),
    "FedPAQ (∂), τ = 5": Contender(lambda step: fpdfp.FedPAQ(step, LOCAL_STEPS, penalty="subgradient")),
    "FedProx (∂), τ = 5, ρ = 0.1": Contender(lambda step: fpdfp.FedProx(0.1, step, LOCAL_STEPS, penalty="subgradient")),
    "SCAFFOLD (∂), τ = 5": Contender(lambda step: fpdfp.Scaffold(step, LOCAL_STEPS, penalty="subgradient")),
    "FedADMM (∂), τ = 5": Contender(admm, falling=False),
    "FedMiD, τ = 5": Contender(lambda step: fpdfp.FedMiD(step, LOCAL_STEPS, server_prox=True, inner=INNER)),
    "FedDualAvg, τ = 5": Contender(lambda step: fpdfp.FedDualAvg(step, LOCAL_STEPS, inner=INNER)),
    "Fast-FedDualAvg, τ = 5": Contender(
        lambda step: fpdfp.FastFedDualAvg(step, LOCAL_STEPS, inner=INNER), falling=False
    ),
    "FedDR": Contender(lambda step: fpdfp.FedDR(step, inner=INNER), falling=False),
    "Zhang–Hu–Johansson, τ = 5": Contender(
        lambda step: fpdfp.FedDecoupledProx(step, LOCAL_STEPS, inner=INNER), everyone=True, falling=False, random=False
    ),
    "PDFP": Contender(fpdfp.PDFP, everyone=True, random=False),
    "Condat–Vũ": Contender(fpdfp.CondatVu, everyone=True, falling=False, random=False),
    "SPDFP, batches of 50": Contender(lambda step: fpdfp.SPDFP(step, BATCH), central=True),
    "SVRG-PDFP, batches of 50": Contender(lambda step: fpdfp.SVRGPDFP(step, BATCH), central=True, falling=False),
    "Chambolle–Pock": Contender(
        lambda step: fpdfp.ChambollePock(step, inner=PROX_OF_F), central=True, falling=False, random=False
    ),
}


def grid_of(name: str) -> list[Choice]:
    """The settings of a contender."""
    contender = CONTENDERS[name]
    if not contender.tuned:
        return [UNTUNED]
    compresses = contender.make(fpdfp.steps.Constant(1.0)).traits.compression
    return tuning.choices(falling=contender.falling, levels=tuning.LEVELS if compresses else (None,))


def method_of(where: Setting, name: str, choice: Choice) -> Any:
    """The method of a contender with a setting; None where ``solve`` chooses."""
    return CONTENDERS[name].make(_tuning.schedule(where, choice.gamma, choice.decay))


def run(where: Setting, name: str, choice: Choice, rounds: int, target: float, *, every: int, seed: int = 0) -> Outcome:
    """Run a contender until it is within a relative error, or to the end."""
    contender = CONTENDERS[name]
    options: dict[str, Any] = {}
    if isinstance(method := method_of(where, name, choice), fpdfp.NewtonPDFP):
        options["compressor"] = {"hessian": fpdfp.compress.TopK(0.02)}
    elif contender.tuned and choice.levels is not None:
        options = {"compressor": contender.compressor(choice.levels), "downlink": contender.downlink}
    result = _tuning.run_until(
        where,
        where.central if contender.central else where.federated,
        method,
        target,
        rounds=rounds,
        clients_per_round=None if contender.central or contender.everyone else PER_ROUND,
        seed=seed,
        evaluate_every=every,
        **options,
    )
    return _tuning.outcome(where, result, TARGETS)


Job = tuple[str, str, str, Choice, int, float, int, int]

_data: Path
_where: dict[str, Setting] = {}


def start_worker(folder: Path) -> None:
    """Tell a worker process where data sets are."""
    global _data  # noqa: PLW0603 - a worker process has one folder
    _data = folder


def setting(folder: Path, split: str) -> Setting:
    """The problem on a9a with rows dealt out in some way, kept for the next call."""
    if split not in _where:
        _where.clear()
        _where[split] = graph_guided(folder, "a9a", split)
    return _where[split]


def work(job: Job) -> tuple[str, Any]:
    """Do a job in a worker process."""
    key, split, name, choice, rounds, target, every, seed = job
    return key, run(setting(_data, split), name, Choice(*choice), rounds, target, every=every, seed=seed)


class Comparison:
    """Tuned contenders on one problem."""

    def __init__(self, where: Setting, split: str, scores: _scores.Scores, rounds: int) -> None:
        self.where, self.split, self.scores, self.rounds = where, split, scores, rounds
        self.problem = fingerprint(where.federated)

    def job(self, name: str, choice: Choice, rounds: int, target: float, every: int, seed: int) -> Job:
        """Return a run under a key that says problem, code, method with its hyper-parameters, and how it is run."""
        method = method_of(self.where, name, choice)
        code = _scores.package_code() if method is None else f"{_scores.code(type(method))} {describe(method)}"
        key = f"{self.problem} {name} {code} {choice}, {rounds} rounds to {target:g}, every {every}, seed {seed}"
        return key, self.split, name, choice, rounds, target, every, seed

    def compute(self, title: str, jobs: Sequence[Job]) -> list[Outcome]:
        """Do jobs, or take what is known of them."""
        return [Outcome(*one) for one in self.scores.compute(f"{self.where.name}: {title}", jobs)]

    def best(self, name: str) -> dict[float, Choice | None]:
        """Tune a contender: its best setting for every accuracy, by the rule of ``benchmarks._tuning``."""
        if not CONTENDERS[name].tuned:
            return dict.fromkeys(TARGETS, UNTUNED)

        def outcomes(left: Sequence[Choice], count: int) -> list[Outcome]:
            return self.compute(name, [self.job(name, one, count, TARGETS[-1], 10, 0) for one in left])

        found = tuning.search(grid_of(name), self.rounds, outcomes)
        return {target: tuning.best(found, target) for target in TARGETS}

    def totals(self, name: str, choice: Choice, target: float, seeds: Iterable[int]) -> list[Totals]:
        """What a setting needs with other seeds, looked at after every round."""
        chosen = list(seeds) if CONTENDERS[name].random else [0]
        jobs = [self.job(name, choice, self.rounds, target, 1, seed) for seed in chosen]
        return [one.totals for one in self.compute(f"{name}, seeds", jobs)]


def open_scores(folder: Path, name: str, processes: Any, bar: Any) -> _scores.Scores:
    """The file of what is known."""
    folder.mkdir(parents=True, exist_ok=True)
    return _scores.Scores(folder / f"{name}.jsonl", processes, work, bar)


class Cell(NamedTuple):
    """What a setting needs to an accuracy, over seeds: rounds, bits up, bits down, and both."""

    rounds: Spread
    up: Spread
    down: Spread
    both: Spread
    choice: Choice

    def __str__(self) -> str:
        return f"{ranged(self.rounds, '{:,.0f}'.format)} · {ranged(self.both, format_bits)}"

    @property
    def medians(self) -> str:
        """Rounds and bits without their ranges, for a short table."""
        text = f"{self.rounds.median:,.0f} · {format_bits(self.both.median)}"
        return text if math.isfinite(self.rounds.largest) else f"{text} (not with every seed)"


def ranged(spread: Spread, write: Callable[[float], str]) -> str:
    """Write a median, and the range over seeds where there is one."""
    least, largest = (write(value) if math.isfinite(value) else "never" for value in (spread.least, spread.largest))
    return write(spread.median) + (f" ({least} to {largest})" if least != largest else "")


def cell(runs: Sequence[Totals], target: float, choice: Choice) -> Cell | None:
    """Return medians and ranges over seeds; None where most runs did not get there."""
    rounds = _tuning.spread(runs, target, lambda one: one["round"])
    up = _tuning.spread(runs, target, lambda one: one["bits_up"])
    down = _tuning.spread(runs, target, lambda one: one["bits_down"])
    both = _tuning.spread(runs, target, tuning.bits)
    if rounds is None or up is None or down is None or both is None:
        return None
    return Cell(rounds, up, down, both, choice)


def measure(comparison: Comparison, name: str, seeds: Iterable[int]) -> dict[float, Cell | None]:
    """Tune a contender, and run the best setting for every accuracy with other seeds."""
    found: dict[float, Cell | None] = {}
    for target, choice in comparison.best(name).items():
        if choice is None:
            found[target] = None
            continue
        # One run passes all accuracies where nothing is tuned.
        last = target if CONTENDERS[name].tuned else TARGETS[-1]
        found[target] = cell(comparison.totals(name, choice, last, seeds), target, choice)
    return found


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
