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
from benchmarks._ablation_problems import CLASSES, PROBLEMS, build
from fpdfp.engines import finish, prepare, run, screening, slopes, stopping, traffic, working_set
from fpdfp.engines.solve import _Stages
from fpdfp.methods import _acceleration, _dual_prox, inner, shifted
from fpdfp.precondition import banded, cost, exchange, low_rank, quantized, seen, structure

TOLERANCES, ROUNDS = (1e-3, 1e-6), 1500
#: A run that takes longer is given up; that it fails is not said then.
SECONDS = 200.0
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

    return put(screening, "screen_start", nothing), put(_Stages, "is_screened", lambda self, run: False)


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

    defaults = (1, *structure.Structure.__init__.__defaults__[1:])
    return (
        put(structure.Structure.__init__, "__defaults__", defaults),
        put(structure, "by_structure", lambda model, size: None),
        put(seen.Seen, "candidates", without),
        put(banded.Banded, "of", classmethod(lambda cls, model, coordinates: None)),
    )


def everyones_diagonal() -> Patches:
    """The same, but everyone sends the diagonal, as powers of two."""
    add_up = prepare.AskedClients.add_up

    def other(self: Any, question: Any) -> Any:
        sums, count = add_up(self, question)
        if not isinstance(question, structure.Structure):
            return sums, count
        all_sizes, everyone = add_up(self, quantized.QuantizedMoments(0))
        mean = all_sizes.sizes / everyone
        halves = np.array([(count + 1) // 2, count // 2])[:, None]
        blocks = halves * mean[None]
        return sums._replace(sizes=count * mean, blocks=blocks, variance=np.zeros_like(blocks)), count

    return *no_blocks(), put(prepare.AskedClients, "add_up", other)


def moments_instead() -> Patches:
    """The same as without blocks, but up to 1,000 features all second moments may be asked for."""
    return *no_blocks(), put(exchange, "FEW", 1000), put(quantized, "FEW", 1000)


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
    "blocks, everyone": Mechanism(
        "the same; the diagonal is everyone's", everyones_diagonal, ((structure.Structure, "build", called),),
    ),
    "blocks, moments": Mechanism(
        "the same; all second moments may be asked for up to 1,000 features", moments_instead,
        ((structure.Structure, "build", called),),
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
                drop_out=case.drop_out, progress=False,
                callbacks=[lambda run: time.perf_counter() > started + SECONDS], **job.options,
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
    return [Job(kind, name, *whole[2:]) for whole in wholes(problems, seeds) if always or name in runs[whole]["active"]]


# -- what comes of them -------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """Runs without beside runs with: median ratios of rounds and bits over seeds, and whether one without fails alone.

    ``bare`` is the ratio of bits without those of evaluations, which are for the history. ``active`` says whether the
    mechanism does anything.
    """

    problem: str
    tol: float
    rounds: float
    bits: float
    bare: float
    fails: bool
    active: bool

    @property
    def most(self) -> float:
        """The larger ratio."""
        return max(self.rounds, self.bits)

    def __str__(self) -> str:
        return f"{self.rounds:.2f} · {self.bits:.2f} (`{self.problem}`, {self.tol:g})"


def converged(one: Mapping[str, Any], best: float) -> bool:
    """Whether a run has ended as it should: no other may be better by more than the tolerance."""
    if one["status"] != "converged":
        return False
    return bool(one["objective"] - best <= 1.01 * one["tol"] * abs(one["objective"]))


def bests(runs: Runs) -> dict[tuple[str, int], float]:
    """The least objective of each problem that any run has found."""
    found: dict[tuple[str, int], float] = {}
    for job, one in runs.items():
        key = job.problem, job.seed
        found[key] = min(found.get(key, math.inf), one["objective"] if one["status"] == "converged" else math.inf)
    return found


def bare(one: Mapping[str, Any]) -> float:
    """The bits of a run but for those of evaluations."""
    return float(one["bits"] - sum(one.get("sent", {}).get("evaluation", ())))


def compare(runs: Runs, kind: str, name: str, problems: Iterable[str]) -> list[Compared]:
    """Compare the runs of a mechanism or a threshold with those of the whole; where it does nothing nothing changes."""
    best, found = bests(runs), []
    for problem, tol in itertools.product(problems, TOLERANCES):
        ratios, fails, active = [], False, False
        for job in [one for one in runs if (one.kind, one.problem, one.tol) == ("whole", problem, tol)]:
            whole, one = runs[job], runs.get(Job(kind, name, *job[2:]))
            if one is None:
                ratios.append((1.0, 1.0, 1.0))
                continue
            active = True
            without, beside = (whole, one) if kind == "on" else (one, whole)
            least = best[problem, job.seed]
            ended = without["status"] != "stopped"
            fails |= ended and converged(beside, least) and not converged(without, least)
            pairs = [(each["rounds"], each["bits"], bare(each)) for each in (without, beside)]
            ratios.append(tuple(a / max(b, 1) for a, b in zip(*pairs, strict=True)))
        if ratios:
            found.append(Compared(problem, tol, *map(statistics.median, zip(*ratios, strict=True)), fails, active))
    return found


class Verdict(NamedTuple):
    """What is to be said of a mechanism; medians by class are those of rounds, bits and bits but for evaluations."""

    active: int
    of: int
    medians: dict[str, tuple[float, float, float]]
    runs: list[Compared]

    @property
    def failures(self) -> list[Compared]:
        """The runs that fail without it."""
        return [one for one in self.runs if one.fails]

    @property
    def stays(self) -> bool:
        """Whether it is to stay, by the rule."""
        return bool(self.failures) or any(max(some[:2]) >= WORTH for some in self.medians.values())


def judge(runs: Runs, kind: str, name: str, problems: Iterable[str]) -> Verdict:
    """Judge a mechanism, or another value of a threshold."""
    some = compare(runs, kind, name, problems)
    medians: dict[str, tuple[float, float, float]] = {}
    for title, members in CLASSES.items():
        own = [one for one in some if PROBLEMS[one.problem] in members]
        if any(one.active for one in own):
            medians[title] = tuple(statistics.median(part) for part in zip(*(one[2:5] for one in own), strict=True))
    active = [one for one in some if one.active]
    return Verdict(len({one.problem for one in active}), len({one.problem for one in some}), medians, active)


def table_of(runs: Runs, names: Iterable[str], problems: Sequence[str]) -> list[list[str]]:
    """The lines of the table of mechanisms."""
    lines = []
    for name in names:
        kind = "on" if MECHANISMS[name].on else "off"
        found = judge(runs, kind, name, problems)
        if not found.runs:
            lines.append([name, MECHANISMS[name].title, f"0 of {found.of}", "", "", "", "", "goes: never at work"])
            continue
        costly = {title: one for title, one in found.medians.items() if max(one[:2]) >= WORTH}
        shown = costly or dict([max(found.medians.items(), key=lambda one: max(one[1][:2]))])
        lines.append([
            name, MECHANISMS[name].title, f"{found.active} of {found.of}",
            "; ".join(f"{title} {one[0]:.2f} · {one[1]:.2f}" for title, one in shown.items()),
            str(max(found.runs, key=lambda one: one.most)),
            str(min(found.runs, key=lambda one: min(one.rounds, one.bits))),
            ", ".join(f"`{one.problem}` {one.tol:g}" for one in found.failures) or "none",
            "stays" if found.stays else "goes",
        ])  # fmt: skip
    return lines


HEADER = ["name", "switched off", "at work", "medians of classes", "worst", "best", "fails without", "by the rule"]


# -- thresholds ---------------------------------------------------------------------------------------------------


def scaled(value: Any, factor: float) -> Any:
    """A number times a factor; whole ones stay whole, and some numbers are changed together."""
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def below_one(value: float, factor: float) -> float:
    """A part of 1, its distance to 1 times a factor."""
    return 1.0 - (1.0 - value) * factor


def above_one(value: float, factor: float) -> float:
    """A factor of at least 1, its distance to 1 times another."""
    return 1.0 + (value - 1.0) * factor


class Threshold(NamedTuple):
    """A number that steers behaviour, where it stands, and how it is changed."""

    places: tuple[tuple[Any, str], ...]
    change: Callable[[Any, float], Any] = scaled

    def patches(self, factor: float) -> Patches:
        """Patches within which it is another."""
        return [put(owner, name, self.change(getattr(owner, name), factor)) for owner, name in self.places]


def floors(owner: Any, factor: float) -> Any:
    """Circumstances whose exponent of digits is another."""

    def floor(self: Any) -> float:
        return math.sqrt(self.n_clients / self.clients_per_round) * math.pow(self.digits, 1.4 * math.sqrt(factor))

    return property(floor)


def group(owner: Any, *names: str, change: Callable[[Any, float], Any] = scaled) -> dict[str, Threshold]:
    """The thresholds of a module."""
    file = owner.__name__.removeprefix("fpdfp.").replace(".", "/")
    return {f"{file}.{name}": Threshold(((owner, name),), change) for name in names}


#: The numbers that are swept, by file and name.
THRESHOLDS: dict[str, Threshold] = {
    **group(prepare, "SHORT", "LEVELS", "LEVELS_OF_SHORT", "LEVELS_DOWN"),
    **group(_acceleration, "GROWTH", change=above_one),
    **group(_acceleration, "LARGEST", "ALARM", "LOOSE"),
    **group(_acceleration, "PAST", "SAFE", "FORGET", change=below_one),
    **group(_dual_prox, "TOLERANCE", "FINE_TOLERANCE", "DUAL_STEPS", "MOST_DUAL_STEPS", "MEAN_DUAL_STEPS"),
    **group(stopping, "PATIENCE", "THOROUGH", "AGAIN", "WATCH", change=above_one),
    **group(stopping, "FIRST", "FIRST_OF_FEW", "LESS", "DOUBT", "FINE", "RESTING", "SURE", "AT_LEAST", "EVERYONE"),
    **group(finish, "BITS", "EXCHANGES", "CHEAPER", "MOST", "PROMISING", "COARSE", "EPS", "SQUARED"),
    **group(finish, "NEARLY", change=below_one),
    **group(working_set, "FEWEST", "MOST", "ROOT", "FIRST", "LOOSE", "TIGHTER", "TIGHTEST", "WORTH"),
    **group(working_set, "NEAR", "NEARLY", change=below_one),
    **group(slopes, "LEVELS", "POINT_LEVELS", "FINE"),
    **group(cost, "UPLINK", "ENOUGH", "CHEAPER", "DEAR", "MOST", "LEVELS"),
    "precondition/cost.floor": Threshold(((cost.Circumstances, "floor"),), floors),
    **group(quantized, "SLOPE_LEVELS", "FLOORS", "STRAINED", "UNEVEN", "ROOT_STEP"),
    "precondition/quantized.FEW": Threshold(((quantized, "FEW"), (exchange, "FEW"))),
    **group(quantized, "NEARLY", "UNSEEN", change=above_one),
    **group(structure, "CLIENTS", "ENOUGH", "WORTHWHILE"),
    "precondition/seen.RANK": Threshold(((seen, "RANK"), (structure, "RANK"))),
    "precondition/seen.SKETCH_LEVELS": Threshold(((seen, "SKETCH_LEVELS"), (structure, "SKETCH_LEVELS"))),
    **group(seen, "STEEPEST", "ACTIVE", "LEAST", "MOST_OF_THEM"),
    **group(seen, "STRETCHED", change=above_one),
    **group(low_rank, "LEVELS"),
    **group(exchange, "MOMENTS"),
}
#: The problems that they are swept on: those of most classes that take least time.
SWEPT = (
    "digit_zero", "sparse_counts", "dense_solution", "piecewise", "some_of_forty", "sorted_digits", "no_ridge_wide",
    "three_wines", "far_means", "few_sorted_digits",
)  # fmt: skip
FACTORS = (0.5, 2.0)


def sweeps(names: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """The runs with other thresholds."""
    changed = [f"{name}*{factor:g}" for name, factor in itertools.product(names, FACTORS)]
    return [Job("sweep", *one) for one in itertools.product(changed, SWEPT, TOLERANCES, seeds)]


def sweep_table(runs: Runs, names: Iterable[str]) -> list[list[str]]:
    """The lines of the table of thresholds: half, double."""
    lines = []
    for name in names:
        cells = []
        for factor in FACTORS:
            some = [one for one in compare(runs, "sweep", f"{name}*{factor:g}", SWEPT) if one.active]
            if not some:
                cells += ["", ""]
                continue
            rounds, bits = (statistics.median([one[place] for one in some]) for place in (2, 3))
            fails = sum(one.fails for one in some)
            text = f"{rounds:.2f} · {bits:.2f}, {min(one.rounds for one in some):.2f}–"
            text += f"{max(one.rounds for one in some):.2f} · {min(one.bits for one in some):.2f}–"
            cells += [f"{text}{max(one.bits for one in some):.2f}" + (f", {fails} fail" if fails else ""),
                      str(sum(one.rounds != 1 or one.bits != 1 for one in some))]  # fmt: skip
        lines.append([name, *cells])
    return lines


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
    if arguments.sweep:
        complete(runs, wholes(SWEPT, arguments.seeds), arguments.runs, arguments.processes)
        complete(runs, sweeps(THRESHOLDS, arguments.seeds), arguments.runs, arguments.processes)
        return
    complete(runs, wholes(problems, arguments.seeds), arguments.runs, arguments.processes)
    names = [name for name in arguments.mechanism if name != "none"]
    jobs = [job for name in names for job in offs(runs, name, problems, arguments.seeds)]
    complete(runs, jobs, arguments.runs, arguments.processes)
    _tools.finish({})


if __name__ == "__main__":
    main()
