"""The default method without one of its mechanisms at a time: rounds and bits beside those of the whole.

    python -m benchmarks.ablation
    python -m benchmarks.ablation --mechanism finish --class "few features"
    python -m benchmarks.ablation --sweep

The classes and problems are those of ``benchmarks/_ablation_problems.py``, named before the first run: few features,
many features, structured penalties, few clients a round, clients that differ, no ridge, several classes, least squares,
and images. None is one that defaults were tuned on. Everything is automatic. Tolerances are 1e-3 and 1e-6, a run has
at most 1,500 rounds, and a run that does not end as converged has failed.

A mechanism is switched off by a patch that is written here; the product has no switch. While the whole method runs it
is watched where each mechanism does something. Where one does nothing it is not switched off: the run would be the
same. Bits are those of both directions, of all kinds. A ratio is that of a run without to one with. A mechanism stays
if switching it off costs at least 10 % of rounds or bits in the median of one class, or makes a run fail.

With --sweep numbers that steer behaviour are halved and doubled instead, on one problem of each class. Runs are kept
in --runs, one line of JSON each, and not done again. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import fpdfp
from benchmarks import _tools
from benchmarks._ablation_problems import CLASSES, PROBLEMS, build, class_of
from fpdfp.engines import finish, prepare, run, screening, slopes, solve, stopping, traffic, working_set
from fpdfp.methods import _acceleration, _dual_prox, inner, shifted
from fpdfp.precondition import banded, cost, exchange, low_rank, quantized, seen, structure

TOLERANCES, ROUNDS = (1e-3, 1e-6), 1500
#: What switching off is to cost.
WORTH = 1.1
RUNS = Path(__file__).resolve().parents[1] / "reports" / "ablation.jsonl"

Patches = Iterable[Any]
Test = Callable[[tuple[Any, ...], Any], bool]


class Mechanism(NamedTuple):
    """What is switched off.

    Attributes
    ----------
    title
        What it is, in words.
    off
        Returns patches within which it does nothing.
    where
        Functions, by their owner and name, and whether a call with these arguments and this result is one in which the
        mechanism does something. Without any it always does.
    options
        Options of ``solve`` with which it is switched off.
    on
        Options with which it is switched on, where it is off by default.
    """

    title: str
    off: Callable[[], Patches] = tuple
    where: tuple[tuple[Any, str, Test], ...] = ()
    options: Mapping[str, Any] = {}
    on: Mapping[str, Any] = {}


def put(owner: Any, name: str, value: Any) -> Any:
    """A patch."""
    return mock.patch.object(owner, name, value)


def called(arguments: tuple[Any, ...], result: Any) -> bool:
    """Every call counts."""
    return True


def makes(kind: Any) -> Test:
    """Whether a preconditioner of a kind was chosen."""
    return lambda arguments, result: isinstance(getattr(result, "preconditioner", result), kind)


# -- how each is switched off -------------------------------------------------------------------------------------


def no_screening() -> Patches:
    """Neither before the first round nor between rounds."""

    def nothing(problem: Any, method: Any, options: Any) -> Any:
        return None, traffic.Meter(problem.losses).traffic

    return put(screening, "screen_start", nothing), put(solve._Stages, "is_screened", lambda self, run: False)


def no_working_set() -> Patches:
    """A run begins with what screening has left."""

    def nothing(problem: Any, method: Any, options: Any, start: Any, left: Any) -> Any:
        return left, traffic.Meter(problem.losses).traffic

    return (put(working_set, "begin", nothing),)


def no_blocks() -> Patches:
    """What few clients send is a sketch and a diagonal; nothing, a diagonal or a low rank is predicted best."""
    candidates = seen.Seen.candidates

    def without(self: Any, rows: Any) -> Any:
        return {name: one for name, one in candidates(self, rows).items() if name != "blocks"}

    defaults = (1,) + structure.Structure.__init__.__defaults__[1:]
    return (
        put(structure.Structure.__init__, "__defaults__", defaults),
        put(structure, "by_structure", lambda model, size: None),
        put(seen.Seen, "candidates", without),
        put(banded.Banded, "of", classmethod(lambda cls, model, coordinates: None)),
    )


def diagonal_of_everyone() -> Patches:
    """Beyond 256 features everyone sends powers of two for the diagonal, and that is taken."""
    plan = exchange.plan

    def other(losses: Any, model: Any, given: Any) -> Any:
        planned = plan(losses, model, given)
        return quantized.QuantizedMoments(0) if isinstance(planned, structure.Structure) else planned

    return put(exchange, "plan", other), put(banded.Banded, "of", classmethod(lambda cls, model, coordinates: None))


def nothing_beyond() -> Patches:
    """Beyond 256 features nobody is asked."""
    plan = exchange.plan

    def other(losses: Any, model: Any, given: Any) -> Any:
        planned = plan(losses, model, given)
        return None if isinstance(planned, structure.Structure) else planned

    return (put(exchange, "plan", other),)


def no_rank() -> Patches:
    return (put(seen.Seen, "_low_ranks", lambda self, rows: {}),)


def no_diagonal() -> Patches:
    """A diagonal is never predicted best."""
    predict, predicted = seen.Seen.predict, quantized.predicted

    def of_parts(self: Any, candidates: Any, given: Any) -> Any:
        return predict(self, candidates, given) | ({"diagonal": 1e9} if "diagonal" in candidates else {})

    def of_all(*arguments: Any) -> Any:
        return predicted(*arguments) | {"diagonal": 10**9}

    return put(seen.Seen, "predict", of_parts), put(quantized, "predicted", of_all)


def no_whitening() -> Patches:
    """Any number of features is asked for what many are: parts of second moments."""
    return put(exchange, "FEW", 0), put(exchange, "consider_all", lambda losses, given, seen: None)


def no_exact_moments() -> Patches:
    return (put(quantized, "STRAINED", math.inf),)


def no_probe() -> Patches:
    return (put(cost, "probe", cost.choose),)


def no_fourier() -> Patches:
    automatic = exchange.automatic

    def other(losses: Any, most: int = exchange.MOMENTS) -> Any:
        kind = automatic(losses, most)
        return None if kind == "fourier" else kind

    return (put(exchange, "automatic", other),)


def with_method(**options: Any) -> Callable[[], Patches]:
    """The automatic method with another option."""
    return lambda: (put(prepare, "ShiftedPDFP", functools.partial(shifted.ShiftedPDFP, **options)),)


def no_preconditioner() -> Patches:
    return (put(prepare, "ShiftedPDFP", lambda preconditioner: shifted.ShiftedPDFP()),)


def no_restart() -> Patches:
    def advance(self: Any, moved: Any, step: Any) -> Any:
        beta, following = _acceleration.accelerate(self.theta)
        return min(beta, self.largest), _acceleration.Momentum(following, self.largest)

    return (put(_acceleration.Momentum, "advance", advance),)


def no_estimate() -> Patches:
    """Looks are in rounds that grow geometrically, whatever the server expects."""

    def is_due(self: Any) -> bool:
        return bool(self.run.round >= min(self.next_round, self.next_thorough))

    return put(stopping.Stopping, "is_due", is_due), put(stopping.Stopping, "_is_promising", lambda self: True)


def never(owner: Any, name: str, result: Any) -> Callable[[], Patches]:
    """A function that returns the same whatever it gets."""
    return lambda: (put(owner, name, lambda *arguments, **options: result),)


def asks_bounds(arguments: tuple[Any, ...], result: Any) -> bool:
    return isinstance(arguments[1], exchange.FeatureBounds)


#: All of them, in the order of the page.
MECHANISMS: dict[str, Mechanism] = {
    "blocks": Mechanism(
        "blocks, layout and banded Newton steps: beyond 256 features nothing, a diagonal or a low rank is chosen",
        no_blocks, ((structure.Structure, "build", called),),
    ),
    "structure": Mechanism(
        "parts of second moments: beyond 256 features a diagonal from everyone is taken",
        diagonal_of_everyone, ((structure.Structure, "build", called),),
    ),
    "beyond": Mechanism(
        "any preconditioner beyond 256 features", nothing_beyond, ((structure.Structure, "build", called),),
    ),
    "screening": Mechanism("screening", no_screening, ((prepare.AskedClients, "add_up", asks_bounds),)),
    "consider_all": Mechanism(
        "all moments where parts of them miss much (consider_all)", never(exchange, "consider_all", None),
        ((exchange, "consider_all", lambda arguments, result: result is not None),),
    ),
    "polish": Mechanism(
        "a last prox in x (polish)", lambda: (put(run.Run, "polish", lambda self, x, v: x),),
        ((run.Run, "polish", lambda arguments, result: result is not arguments[1]),),
    ),
    "doubt": Mechanism(
        "a full certificate where rounding is suspected (DOUBT)", lambda: (put(stopping, "DOUBT", -1.0),),
        ((stopping.Stopping, "_look", lambda arguments, result: arguments[0].doubted),),
    ),
    "importance": Mechanism(
        "importance sampling (an option, off by default)", on={"sampling": "importance"},
        where=((prepare.AskedClients, "_choose_sampling",
                lambda arguments, result: arguments[0].choices.clients_per_round < arguments[0].problem.n_clients),),
    ),
    "working_set": Mechanism(
        "the working set", no_working_set,
        ((working_set, "begin", lambda arguments, result: result[0] is not None and not result[0].is_certain),),
    ),
    "finish": Mechanism(
        "the Newton finish", never(finish.Finish, "is_affordable", False), ((finish.Finish, "step", called),)
    ),
    "growth": Mechanism(
        "steps that grow", lambda: (put(shifted.ShiftedPDFP, "may_grow", False),),
        ((_acceleration.StepControl, "grow", lambda arguments, result: result.growth > 1.0),),
    ),
    "alarm": Mechanism(
        "the alarm", lambda: (put(_acceleration, "ALARM", math.inf),),
        ((_acceleration.StepControl, "watch", lambda arguments, result: result[0]),),
    ),
    "settle": Mechanism(
        "zeros where the dual says so (settle)",
        lambda: (put(shifted.ShiftedAlgorithm, "_settle", lambda self, state, x, v, coordinates: x),),
        ((shifted.ShiftedAlgorithm, "_settle", lambda arguments, result: result is not arguments[2]),),
    ),
    "certificate": Mechanism(
        "the clients' certificate", never(run.Run, "certify", None),
        ((run.Run, "certify", lambda arguments, result: result is not None),),
    ),
    "estimate": Mechanism("the server's own estimate of the gap", no_estimate),
    "newton_prox": Mechanism(
        "Newton steps in the server's prox", lambda: (put(_dual_prox.DualProx, "matrix", None),),
        ((inner._NewtonSteps, "run", called),),
    ),
    "momentum": Mechanism("momentum", with_method(momentum=False)),
    "restart": Mechanism("the restart of momentum", no_restart),
    "shifts": Mechanism("shifts: gradients are sent instead of differences", with_method(shift_step=0.0)),
    "up": Mechanism("compression of what clients send", options={"compressor": None}),
    "down": Mechanism("compression of what the server sends", options={"downlink": None}),
    "preconditioner": Mechanism("every preconditioner", no_preconditioner),
    "whitening": Mechanism(
        "whitening by second moments up to 256 features", no_whitening,
        ((quantized.QuantizedMoments, "build", makes(fpdfp.precondition.Whitening)),
         (exchange, "build", makes(fpdfp.precondition.Whitening))),
    ),
    "exact_moments": Mechanism(
        "exact moments where clients find coarse ones too coarse", no_exact_moments,
        ((quantized.QuantizedMoments, "build", lambda arguments, result: result.preconditioner == "moments"),),
    ),
    "probe": Mechanism(
        "a first question for few moments", no_probe,
        ((cost, "probe", lambda arguments, result: result != cost.choose(*arguments)),),
    ),
    "low_rank": Mechanism(
        "the preconditioner of low rank", no_rank,
        ((structure.Structure, "build", makes(fpdfp.precondition.LowRank)),),
    ),
    "diagonal": Mechanism(
        "the diagonal", no_diagonal,
        ((structure.Structure, "build", makes(fpdfp.precondition.Scaling)),
         (quantized.QuantizedMoments, "build", makes(fpdfp.precondition.Scaling))),
    ),
    "fourier": Mechanism(
        "the Fourier transform of images", no_fourier,
        ((exchange, "build", makes(fpdfp.precondition.Fourier)),),
    ),
}  # fmt: skip


# -- runs ---------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A run: of the whole method, without a mechanism, or with another value of a threshold."""

    kind: str
    name: str
    problem: str
    tol: float
    seed: int

    @property
    def patches(self) -> Patches:
        """Patches within which it is run."""
        if self.kind == "off":
            return MECHANISMS[self.name].off()
        if self.kind == "sweep":
            name, _, factor = self.name.rpartition("*")
            return THRESHOLDS[name].patches(float(factor))
        return ()

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of ``solve``."""
        if self.kind == "off":
            return MECHANISMS[self.name].options
        return MECHANISMS[self.name].on if self.kind == "on" else {}


@contextlib.contextmanager
def watching() -> Iterator[dict[str, int]]:
    """Within this, count the calls in which mechanisms do something."""
    counts = dict.fromkeys(MECHANISMS, 0)

    def watched(name: str, original: Any, test: Test) -> Any:
        @functools.wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            counts[name] += test(arguments, result)
            return result

        return call

    with contextlib.ExitStack() as stack:
        for name, mechanism in MECHANISMS.items():
            for owner, attribute, test in mechanism.where:
                stack.enter_context(put(owner, attribute, watched(name, getattr(owner, attribute), test)))
        yield counts


def do(job: Job) -> dict[str, Any]:
    """Run, and return what came of it."""
    case = build(job.problem, job.seed)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for patch in job.patches:
            stack.enter_context(patch)
        counts = stack.enter_context(watching()) if job.kind == "whole" else {}
        try:
            result = fpdfp.solve(
                case.problem, rounds=ROUNDS, tol=job.tol, seed=job.seed, clients_per_round=case.clients_per_round,
                progress=False, **job.options,
            )  # fmt: skip
        except Exception as error:
            return job._asdict() | {"status": f"{type(error).__name__}: {error}", "rounds": ROUNDS, "bits": math.inf}
    coordinates = getattr(result.algorithm, "coordinates", None)
    return job._asdict() | {
        "status": result.status,
        "rounds": result.rounds,
        "bits": result.traffic.up + result.traffic.down,
        "sent": {kind: list(bits) for kind, bits in result.traffic.items() if any(bits)},
        "objective": result.objective,
        "gap": result.certificate.relative_gap,
        "preconditioner": "none" if coordinates is None else type(coordinates).__name__,
        "features": None if result.left is None else len(result.left.numbers),
        "active": [name for name, count in counts.items() if count],
        "seconds": round(time.perf_counter() - started, 2),
    }


Runs = dict[Job, dict[str, Any]]


def load(file: Path) -> Runs:
    """Return the runs of a file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {Job(*(one[name] for name in Job._fields)): one for one in map(json.loads, lines)}


def complete(runs: Runs, jobs: Iterable[Job], file: Path, processes: int) -> None:
    """Do the runs that are missing, and write each to the file."""
    missing = [job for job in dict.fromkeys(jobs) if job not in runs]
    if not missing:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(processes) as pool, file.open("a") as lines:
        for one in pool.imap_unordered(do, missing):
            runs[Job(*(one[name] for name in Job._fields))] = one
            lines.write(json.dumps(one) + "\n")
            lines.flush()
            print(one["kind"], one["name"], one["problem"], one["tol"], one["seed"], one["status"][:60], one["rounds"],
                  f"{one['bits']:.3g}", f"{one.get('seconds', 0):.1f} s", flush=True)  # fmt: skip


def wholes(problems: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """The runs of the whole method."""
    return [Job("whole", "", *one) for one in itertools.product(problems, TOLERANCES, seeds)]


def offs(runs: Runs, name: str, problems: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """The runs with a mechanism switched off (on, where it is off by default), where it does something."""
    always = not MECHANISMS[name].where
    kind = "on" if MECHANISMS[name].on else "off"
    return [
        Job(kind, name, *whole[2:]) for whole in wholes(problems, seeds) if always or name in runs[whole]["active"]
    ]


# -- what comes of them -------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """A run without beside one with: ratios of rounds and bits, and whether only the one without fails."""

    problem: str
    tol: float
    rounds: float
    bits: float
    fails: bool


def converged(one: Mapping[str, Any], best: float) -> bool:
    """Whether a run has ended as it should: no other may be better by more than the tolerance."""
    if one["status"] != "converged":
        return False
    return bool(one["objective"] - best <= 1.01 * one["tol"] * abs(one["objective"]))


def bests(runs: Runs) -> dict[tuple[str, int], float]:
    """The least objective of each problem that any run has found."""
    found: dict[tuple[str, int], float] = {}
    for job, one in runs.items():
        if one["status"] == "converged":
            key = job.problem, job.seed
            found[key] = min(found.get(key, math.inf), one["objective"])
    return found


def compare(runs: Runs, kind: str, name: str) -> list[Compared]:
    """Compare the runs of a mechanism or a threshold with those of the whole; a problem's seeds by their medians."""
    best, found = bests(runs), []
    jobs = [job for job in runs if (job.kind, job.name) == (kind, name)]
    for (problem, tol), some in itertools.groupby(sorted(jobs, key=lambda one: one[2:]), key=lambda one: one[2:4]):
        pairs = []
        for job in some:
            one, whole = runs[job], runs[Job("whole", "", *job[2:])]
            without, beside = (one, whole) if kind != "on" else (whole, one)
            key = job.problem, job.seed
            fails = converged(beside, best[key]) and not converged(without, best[key]) if key in best else False
            pairs.append((without["rounds"] / max(beside["rounds"], 1), without["bits"] / beside["bits"], fails))
        rounds, bits, failing = zip(*pairs, strict=True)
        found.append(Compared(problem, tol, statistics.median(rounds), statistics.median(bits), any(failing)))
    return found


class Verdict(NamedTuple):
    """What is to be said of a mechanism."""

    active: int
    medians: dict[str, tuple[float, float]]
    worst: Compared | None
    best: Compared | None
    failures: list[Compared]

    @property
    def stays(self) -> bool:
        """Whether it is to stay, by the rule."""
        return bool(self.failures) or any(max(pair) >= WORTH for pair in self.medians.values())


def judge(runs: Runs, name: str) -> Verdict:
    """Judge a mechanism; a problem in which it does nothing counts as a ratio of 1."""
    some = compare(runs, "on" if MECHANISMS[name].on else "off", name)
    medians: dict[str, tuple[float, float]] = {}
    for kind, problems in CLASSES.items():
        own = [one for one in some if PROBLEMS[one.problem] in problems]
        if own:
            silent = [1.0] * (len(problems) * len(TOLERANCES) - len(own))
            medians[kind] = (
                statistics.median([*(one.rounds for one in own), *silent]),
                statistics.median([*(one.bits for one in own), *silent]),
            )
    worst = max(some, key=lambda one: max(one.rounds, one.bits), default=None)
    best = min(some, key=lambda one: min(one.rounds, one.bits), default=None)
    return Verdict(len({one.problem for one in some}), medians, worst, best, [one for one in some if one.fails])


THRESHOLDS: dict[str, Any] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mechanism", nargs="+", default=list(MECHANISMS), choices=[*MECHANISMS, "none"])
    parser.add_argument("--class", dest="kinds", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    problems = [one.__name__ for kind in arguments.kinds for one in CLASSES[kind]]
    runs = load(arguments.runs)
    complete(runs, wholes(problems, arguments.seeds), arguments.runs, arguments.processes)
    for name in arguments.mechanism:
        if name != "none":
            complete(runs, offs(runs, name, problems, arguments.seeds), arguments.runs, arguments.processes)
            print(name, judge(runs, name))
    _tools.finish({})


if __name__ == "__main__":
    main()
