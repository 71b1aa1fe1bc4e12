"""Switch off one mechanism of the default method at a time, and compare rounds and bits with the whole method.

    python -m benchmarks.ablation
    python -m benchmarks.ablation --mechanism finish --class "few features"
    python -m benchmarks.ablation --sweep

``benchmarks/_ablation_problems.py`` has the problems. Nine classes were named before the first run: few features, many
features, structured penalties, few clients a round, clients that differ, no ridge, several classes, least squares, and
images. Three were added later and are reported apart. Defaults were tuned on none of the problems. Everything is
automatic. Tolerances are 1e-3 and 1e-6, a run has at most 1,500 rounds, and a run that does not end as converged has
failed.

A mechanism is switched off by a patch that is written here; the product has no switch. While the whole method runs it
is watched where each mechanism does something. Where one does nothing it is not switched off: the run would be the
same. Bits are of both directions and of all kinds. A ratio divides a run without by a run with it. A mechanism stays
if switching it off costs at least 10 % of rounds or bits in the median of one class, or makes a run fail.

With --sweep numbers that steer behaviour are halved and doubled instead, on ten problems, or on seven with many
features. Runs are kept in --runs, one line of JSON each, and not repeated. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import pkgutil
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import fpdfp
from benchmarks import _tools
from benchmarks._ablation_problems import CLASSES, LATER, PROBLEMS, build
from benchmarks._ablation_thresholds import THRESHOLDS
from benchmarks._contenders import markdown
from fpdfp._numbers import format_bits
from fpdfp.precondition.agreement import Agreement

TOLERANCES, ROUNDS = (1e-3, 1e-6), 1500
#: A run that takes longer is given up; that it fails is not said then.
SECONDS = 200.0
#: What switching off is to cost.
WORTH = 1.1
RUNS = Path(__file__).resolve().parent / "output" / "ablation.jsonl"

Patches = Iterable[Any]
Test = Callable[[tuple[Any, ...], Any], bool]


class Mechanism(NamedTuple):
    """A mechanism, and how it is switched off.

    Attributes
    ----------
    title
        What it is, in words.
    off
        Returns patches within which it does nothing.
    where
        Functions, and whether a call with these arguments and this result is one in which the mechanism does something.
        Without any it always does.
    options
        Options of ``solve`` with which it is switched off.
    on
        Options with which it is switched on, where it is off by default.
    """

    title: str
    off: Callable[[], Patches] = tuple
    where: tuple[tuple[str, Test], ...] = ()
    options: Mapping[str, Any] = {}
    on: Mapping[str, Any] = {}


def split(place: str) -> tuple[Any, str]:
    """The owner and the name of what stands at a place: ``"engines.run:Run.certify"``."""
    module, _, inside = place.partition(":")
    owner, _, name = inside.rpartition(".")
    return pkgutil.resolve_name(f"fpdfp.{module}:{owner}"), name


def present(place: str) -> Any:
    """Return the object at a place."""
    return getattr(*split(place))


def put(place: str, value: Any) -> Any:
    """A patch."""
    return mock.patch.object(*split(place), value)


def called(arguments: tuple[Any, ...], result: Any) -> bool:
    """Every call counts."""
    return True


def makes(name: str) -> Test:
    """Whether a preconditioner of a kind was chosen."""

    def test(arguments: tuple[Any, ...], result: Any) -> bool:
        made = result.coordinates if isinstance(result, Agreement) else getattr(result, "preconditioner", result)
        return type(made).__name__ == name

    return test


def never(place: str, result: Any) -> Callable[[], Patches]:
    """A function that returns the same whatever it gets."""
    return lambda: [put(place, lambda *arguments, **options: result)]


# -- how each is switched off -------------------------------------------------------------------------------------


def no_working_set() -> Patches:
    """A run begins with all features."""

    def nothing(problem: Any, method: Any, options: Any, start: Any) -> Any:
        return None, present("traffic:Meter")(problem.losses).traffic

    yield put("engines.working_set:choose_features", nothing)


def without(kind: str) -> Callable[[], Patches]:
    """Beyond 256 features some candidates are not considered."""

    def off() -> Patches:
        candidates = present("precondition.partial:PartialMoments.candidates")

        def fewer(self: Any) -> Any:
            return {name: one for name, one in candidates(self).items() if not name.startswith(kind)}

        yield put("precondition.partial:PartialMoments.candidates", fewer)

    return off


def no_diagonal() -> Patches:
    """A diagonal is never predicted best."""
    predicted = present("precondition.quantized:predicted")
    yield from without("diagonal")()
    yield put("precondition.quantized:predicted", lambda *given: predicted(*given) | {"diagonal": 10**9})


def no_fourier() -> Patches:
    """Images have no preconditioner."""
    automatic = present("precondition.agreement:automatic")

    def other(*arguments: Any) -> Any:
        kind = automatic(*arguments)
        return None if kind == "fourier" else kind

    yield put("precondition.agreement:automatic", other)


def with_method(**options: Any) -> Callable[[], Patches]:
    """The automatic method with another option."""
    made = functools.partial(fpdfp.ShiftedPDFP, **options)
    return lambda: [put("engines.choice:ShiftedPDFP", lambda preconditioner: made(preconditioner=preconditioner))]


def no_restart() -> Patches:
    """Momentum grows, whichever way it points."""
    accelerate, momentum = present("_numbers:accelerate"), present("methods.shifted:Momentum")

    def advance(self: Any, moved: Any, step: Any) -> Any:
        beta, following = accelerate(self.theta)
        return min(beta, self.largest), momentum(following, self.largest)

    yield put("methods.shifted:Momentum.advance", advance)


def no_estimate() -> Patches:
    """Looks are in rounds that grow geometrically, whatever the server expects."""

    def is_due(self: Any) -> bool:
        return bool(self.run.round >= min(self.next_round, self.next_thorough))

    yield put("engines.stopping:Stopping.is_due", is_due)
    yield put("engines.stopping:Stopping._is_promising", lambda self: True)


def is_partial(arguments: tuple[Any, ...], result: Any) -> bool:
    """Whether some clients take part at a time."""
    return bool(arguments[0].choices.clients_per_round < arguments[0].problem.n_clients)


#: All of them, in the order of the page.
MECHANISMS: dict[str, Mechanism] = {
    "beyond": Mechanism(
        "any preconditioner beyond 256 features",
        never("precondition.agreement:choose_for_many", Agreement()),
        (("precondition.agreement:choose_for_many", called),),
    ),
    "set_zeros": Mechanism(
        "a last prox in x (set_zeros)", lambda: [put("engines.result:set_zeros", lambda run, x, v: x)],
        (("engines.result:set_zeros", lambda arguments, result: result is not arguments[1]),),
    ),
    "doubt": Mechanism(
        "a full certificate where rounding is suspected (DOUBT)", lambda: [put("engines.stopping:DOUBT", -1.0)],
        (("engines.stopping:Stopping._check", lambda arguments, result: arguments[0].doubted),),
    ),
    "doubt, early": Mechanism(
        "the same, with a first full certificate in round 20 instead of 200",
        lambda: [put("engines.stopping:DOUBT", -1.0), put("engines.stopping:FIRST", 20)],
    ),
    "importance": Mechanism(
        "importance sampling (an option, off by default)", on={"sampling": "importance"},
        where=(("engines.prepare:AskedClients._choose_sampling", is_partial),),
    ),
    "working_set": Mechanism(
        "the working set", no_working_set,
        (("engines.working_set:choose_features", lambda _, result: result[0] is not None),),
    ),
    "finish": Mechanism(
        "the Newton finish", never("engines.finish:Finish.is_due", False),
        (("engines.finish:Finish.take", called),),
    ),
    "growth": Mechanism(
        "steps that grow", lambda: [put("methods.shifted:ShiftedPDFP.may_grow", False)],
        (("methods.shifted:StepControl.grow", lambda arguments, result: result.growth > 1.0),),
    ),
    "alarm": Mechanism(
        "the alarm", lambda: [put("methods.shifted:ALARM", math.inf)],
        (("methods.shifted:StepControl.watch", lambda arguments, result: result[0]),),
    ),
    "settle": Mechanism(
        "zeros where the dual says so (settle)",
        lambda: [put("methods.shifted:ShiftedAlgorithm._settle", lambda self, state, x, v, coordinates: x)],
        (("methods.shifted:ShiftedAlgorithm._settle", lambda arguments, result: result is not arguments[2]),),
    ),
    "certificate": Mechanism(
        "the clients' certificate", never("engines.run:Run.certify", None),
        (("engines.run:Run.certify", lambda arguments, result: result is not None),),
    ),
    "estimate": Mechanism("the server's own estimate of the gap", no_estimate),
    "newton_prox": Mechanism(
        "Newton steps in the server's prox", lambda: [put("methods._preconditioned:ServerProx.matrix", None)],
        (("quadratic.solve:newton_prox", called),),
    ),
    "momentum": Mechanism("momentum", with_method(momentum=False)),
    "restart": Mechanism("the restart of momentum", no_restart),
    "up": Mechanism("compression of what clients send", options={"compressor": None}),
    "down": Mechanism("compression of what the server sends", options={"downlink": None}),
    "preconditioner": Mechanism(
        "every preconditioner", lambda: [put("engines.choice:ShiftedPDFP", lambda preconditioner: fpdfp.ShiftedPDFP())]
    ),
    "whitening": Mechanism(
        "whitening by second moments, up to 256 features", lambda: [put("precondition.agreement:FEW", 0)],
        (("precondition.quantized:QuantizedMoments.build", makes("Whitening")),
         ("precondition.exchange:build", makes("Whitening"))),
    ),
    "exact_moments": Mechanism(
        "exact moments where clients find coarse ones too coarse",
        lambda: [put("precondition.quantized:STRAINED", math.inf)],
        (("precondition.quantized:QuantizedMoments.build",
          lambda arguments, result: isinstance(result.preconditioner, str)),),
    ),
    "low_rank": Mechanism(
        "the preconditioner of low rank", without("rank"),
        (("precondition.agreement:choose_for_many", makes("LowRank")),),
    ),
    "diagonal": Mechanism(
        "the diagonal", no_diagonal,
        (("precondition.agreement:choose_for_many", makes("Scaling")),
         ("precondition.quantized:QuantizedMoments.build", makes("Scaling"))),
    ),
    "fourier": Mechanism(
        "the Fourier transform of images", no_fourier, (("precondition.exchange:build", makes("Fourier")),)
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
            return THRESHOLDS[name].patches(name, float(factor))
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
            for place, test in mechanism.where:
                stack.enter_context(put(place, watched(name, present(place), test)))
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
    kind = "on" if MECHANISMS[name].on else "off"
    return [Job(kind, name, *whole[2:]) for whole in wholes(problems, seeds) if is_active(runs[whole], name)]


def is_active(whole: Mapping[str, Any], name: str) -> bool:
    """Whether a mechanism does something in a run of the whole method."""
    where = MECHANISMS[name].where
    alike = {other for other, one in MECHANISMS.items() if one.where == where}
    return not where or bool(alike & set(whole["active"]))


# -- what comes of them -------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """Median ratios of rounds and bits over seeds, and whether a run fails only without the mechanism.

    ``bare`` is the ratio of bits without evaluations for the history. ``active`` says whether the
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
    """The bits of a run without evaluations."""
    return float(one["bits"] - sum(one.get("sent", {}).get("evaluation", ())))


def compare(runs: Runs, kind: str, name: str, problems: Iterable[str]) -> list[Compared]:
    """Compare runs without a mechanism, or with another threshold, with the whole; an idle one changes nothing."""
    best, found = bests(runs), []
    for problem, tol in itertools.product(problems, TOLERANCES):
        ratios, fails, active = [], False, False
        for job in [one for one in runs if (one.kind, one.problem, one.tol) == ("whole", problem, tol)]:
            whole, one = runs[job], runs.get(Job(kind, name, *job[2:]))
            if one is None:
                if kind != "sweep" and not is_active(whole, name):
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
            rounds, bits, least_bits = (statistics.median(part) for part in zip(*ratios, strict=True))
            found.append(Compared(problem, tol, rounds, bits, least_bits, fails, active))
    return found


class Verdict(NamedTuple):
    """The result for a mechanism; medians by class are of rounds, bits, and bits without evaluations."""

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


def pair(rounds: float, bits: float) -> str:
    """Write two ratios."""
    return f"{rounds:.2f} · {bits:.2f}"


def medians_of(found: Verdict) -> str:
    """Write the medians of classes: those that decide, or else the largest."""
    costly = {title: one for title, one in found.medians.items() if max(one[:2]) >= WORTH}
    shown = costly or dict([max(found.medians.items(), key=lambda one: max(one[1][:2]))])
    return "; ".join(f"{title} {pair(*one[:2])}" for title, one in shown.items())


def names_of(some: Iterable[Compared]) -> str:
    """Write problems and tolerances."""
    return ", ".join(f"`{one.problem}` {one.tol:g}" for one in some) or "none"


def table_of(runs: Runs, names: Iterable[str], problems: Sequence[str]) -> list[list[str]]:
    """The lines of the table of mechanisms; classes that were added later are apart."""
    later = [name for name in problems if any(PROBLEMS[name] in CLASSES[kind] for kind in LATER)]
    before = [name for name in problems if name not in later]
    lines = []
    for name in names:
        kind = "on" if MECHANISMS[name].on else "off"
        found, added = (judge(runs, kind, name, some) for some in (before, later))
        line = [f"`{name}`", MECHANISMS[name].title, f"{found.active} of {found.of}", "", "", "", "", "idle"]
        if found.runs:
            line[3:] = [
                medians_of(found), str(max(found.runs, key=lambda one: one.most)),
                str(min(found.runs, key=lambda one: min(one.rounds, one.bits))), names_of(found.failures),
                "stays" if found.stays else "goes",
            ]  # fmt: skip
        if added.failures and line[7] != "stays":
            line[7] += ", but runs of later classes fail"
        apart = f"{added.active} of {added.of}"
        if added.runs:
            apart += f"; {medians_of(added)}; worst {max(added.runs, key=lambda one: one.most)}"
            apart += f"; fails: {names_of(added.failures)}" if added.failures else ""
        lines.append([*line, apart])
    return lines


HEADER = [
    "name", "switched off", "at work in", "medians of classes", "worst", "best", "fails without", "by the rule",
    "classes added later",
]  # fmt: skip


def baseline_table(runs: Runs, problems: Iterable[str]) -> list[list[str]]:
    """The lines of the table of problems, with what the whole method takes."""
    lines = []
    for title, members in CLASSES.items():
        for member in members:
            cells = []
            for tol in TOLERANCES:
                own = [one for job, one in runs.items() if job[:4] == ("whole", "", member.__name__, tol)]
                if own and member.__name__ in problems:
                    bits = statistics.median(one["bits"] for one in own)
                    cells.append(f"{statistics.median(one['rounds'] for one in own):g} · {format_bits(bits)}")
                    kinds = sorted({one["preconditioner"] for one in own})
                    odd = sorted({one["status"] for one in own} - {"converged"})
                    cells[-1] += f" ({', '.join([*kinds, *odd])})"
            words = " ".join((member.__doc__ or "").split())
            if cells:
                lines.append([title, f"`{member.__name__}`: {words}", *cells])
    return lines


# -- thresholds -----------------------------------------------------------------------------------------------------

#: Thresholds are swept on these problems of most classes, which take little time.
SWEPT = (
    "digit_zero", "sparse_counts", "dense_solution", "piecewise", "no_ridge_wide", "three_wines", "far_means",
    "few_sorted_digits", "one_logistic", "one_means",
)  # fmt: skip
#: Those that are for many features, on these.
WIDE = (
    "heavy_tails", "dense_solution", "fused_signals", "heavy_groups", "map_variation", "wide_classes", "piecewise",
)  # fmt: skip
FACTORS = (0.5, 2.0)


def swept_on(name: str) -> tuple[str, ...]:
    """The problems that a threshold is swept on."""
    return WIDE if name.startswith("precondition/partial") else SWEPT


def factors_of(name: str) -> list[float]:
    """The factors of a threshold: half, double, and the one with which it does nothing."""
    last = THRESHOLDS[name].without
    return [*FACTORS, *([] if last is None else [last])]


def sweeps(names: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """The runs with other thresholds."""
    return [
        Job("sweep", f"{name}*{factor:g}", *one)
        for name in names if THRESHOLDS[name].change is not None
        for factor in factors_of(name)
        for one in itertools.product(swept_on(name), TOLERANCES, seeds)
    ]  # fmt: skip


#: How much medians may change where a curve is flat.
FLAT = 0.1


class Swept(NamedTuple):
    """The effect of another value: medians of the ratios that change, ranges, how many change, and how many fail."""

    rounds: float
    bits: float
    least: float
    most: float
    changed: int
    of: int
    fails: int

    def __str__(self) -> str:
        if not self.changed:
            return "no change"
        text = f"{pair(self.rounds, self.bits)} ({self.least:.2f} to {self.most:.2f}; {self.changed} of {self.of})"
        return text + (f", {self.fails} fail" if self.fails else "")


def swept(runs: Runs, name: str, factor: float) -> Swept | None:
    """Return what another value of a threshold does."""
    some = [one for one in compare(runs, "sweep", f"{name}*{factor:g}", swept_on(name)) if one.active]
    if not some:
        return None
    changed = [one for one in some if (one.rounds, one.bits) != (1.0, 1.0)]
    ratios = [each for one in some for each in (one.rounds, one.bits)]
    rounds, bits = [one.rounds for one in changed] or [1.0], [one.bits for one in changed] or [1.0]
    return Swept(
        statistics.median(rounds), statistics.median(bits), min(ratios), max(ratios), len(changed), len(some),
        sum(one.fails for one in some),
    )  # fmt: skip


def conclude(pairs: Sequence[Swept | None], why: str) -> str:
    """Say what comes of a threshold."""
    some = [one for one in pairs[:2] if one is not None]
    if not some:
        return why or "not swept"
    last = pairs[2]
    idle = last is not None and not last.fails and max(last.rounds, last.bits) <= 1 + FLAT
    if idle:
        return "could go: no worse without"
    if not any(one.changed for one in some):
        return "no effect here"
    if any(one.fails for one in some):
        return "needed: another value makes a run fail"
    gains = min(min(one.rounds, one.bits) for one in some)
    losses = max(max(one.rounds, one.bits) for one in some)
    if gains >= 1 - FLAT and losses <= 1 + FLAT:
        return "flat"
    return "steep, near its best" if gains >= 1 - FLAT else "a trade of rounds and bits, or better elsewhere"


def sweep_table(runs: Runs, names: Iterable[str]) -> list[list[str]]:
    """The lines of the table of thresholds."""
    lines = []
    for name in names:
        one = THRESHOLDS[name]
        pairs = [swept(runs, name, factor) for factor in factors_of(name)]
        pairs += [None] * (3 - len(pairs))
        cells = ["" if found is None else str(found) for found in pairs]
        lines.append([f"`{name}`", one.value(name), one.steers, *cells, conclude(pairs, one.why)])
    return lines


SWEEP_HEADER = ["threshold", "value", "steers", "half", "double", "without", "verdict"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mechanism", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS), metavar="NAME")
    parser.add_argument("--class", dest="kinds", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--sweep", action="store_true", help="change thresholds instead")
    parser.add_argument("--threshold", nargs="+", default=list(THRESHOLDS), choices=list(THRESHOLDS), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tables", type=Path, help="a file that tables are written to as Markdown")
    arguments = parser.parse_args()
    problems = [one.__name__ for kind in arguments.kinds for one in CLASSES[kind]]
    if arguments.sweep:
        problems = sorted({one for name in arguments.threshold for one in swept_on(name)})
    runs = load(arguments.runs)
    complete(runs, wholes(problems, arguments.seeds), arguments.runs, arguments.processes)
    if arguments.sweep:
        jobs = sweeps(arguments.threshold, arguments.seeds)
    else:
        jobs = [job for name in arguments.mechanism for job in offs(runs, name, problems, arguments.seeds)]
    complete(runs, jobs, arguments.runs, arguments.processes)
    if arguments.sweep:
        tables = {"Thresholds": (SWEEP_HEADER, sweep_table(runs, arguments.threshold))}
    else:
        header = ["class", "problem", *(f"to {tol:g}" for tol in TOLERANCES)]
        tables = {
            "Problems": (header, baseline_table(runs, problems)),
            "Mechanisms": (HEADER, table_of(runs, arguments.mechanism, problems)),
        }
    for title, (header, lines) in tables.items():
        _tools.show(title, header, lines)
    if arguments.tables is not None:
        text = [f"## {title}\n\n{markdown(header, lines)}" for title, (header, lines) in tables.items()]
        arguments.tables.write_text("\n".join(text))
    verdicts = {line[0].strip("`"): line[-1] if arguments.sweep else line[7] for line in [*tables.values()][-1][1]}
    _tools.finish({"seeds": arguments.seeds, "runs": len(runs), "verdicts": verdicts})


if __name__ == "__main__":
    main()
