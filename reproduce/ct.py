"""The paper's second experiment: cone-beam CT with total variation among 17 clients that hold views."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.runner import Job
from fpdfp.declarative.scan import ITERATIONS, BuiltScan
from reproduce import runs as ties
from reproduce.output import draw_cases, format_bits, publish
from reproduce.runs import Bench, Case, Line, declare, line_of, of_the_paper, round_numbers

CLIENTS, NOISE_VARIANCE = 17, 0.02
LEVELS: tuple[int | None, ...] = (500, 1000, 3000, 5000, None)
#: The participants where the levels vary, the levels where participation varies, and the participations.
PER_ROUND, FIXED_LEVELS, PARTICIPATION = 5, 1000, (2, 5, 10, CLIENTS)
#: All cases of FPDFP, each once, and those of them that have several seeds, since claims rest on them.
BY_LEVELS, BY_CLIENTS = [Case(PER_ROUND, s) for s in LEVELS], [Case(n, FIXED_LEVELS) for n in PARTICIPATION]
CASES = list(dict.fromkeys([*BY_LEVELS, *BY_CLIENTS]))
COARSE, ENOUGH, EXACT = (Case(PER_ROUND, levels) for levels in (LEVELS[0], FIXED_LEVELS, None))
FEW, EVERYONE = (Case(n, FIXED_LEVELS) for n in (PARTICIPATION[0], CLIENTS))
SEVERAL = (EXACT, ENOUGH, COARSE, FEW, EVERYONE)
#: PSNR as the paper reports it, in dB.
PAPER = dict(zip(CASES, (44.76, 45.78, 45.83, 45.86, 45.86, 45.10, 45.92, 45.82), strict=True))
#: λ as the paper and the experiment file have it, and the step in units of 1/L with L the mean of the clients'
#: constants: constant, and the same for all cases.
LAMBDA, STEP = 1 / 20, 1.0
#: Ours: the method and the messages of fpdfp.solve with default settings, but with a few dual steps a round, which is
#: enough for images; with the same number of clients, and with all clients.
OURS, DUAL_STEPS, LEVELS_UP, LEVELS_DOWN = "ours", 10, 5, 31
OUR_CASES = [Case(n, LEVELS_UP, OURS) for n in (PER_ROUND, CLIENTS)]
#: How levels are coded: an entropy coder, the shortest of all codes here.
CODEC = "rans"
#: The number of seeds for the phantom; other volumes have one. The rounds of the shifted method, by size.
SEEDS, FEW_ROUNDS = 3, {"tiny": 20, "small": 60, "paper": 100}
#: The centralised reconstruction.
MINIMUM = "minimum"
#: "At first": after these parts of the rounds.
EARLY = (1 / 100, 1 / 32, 1 / 8, 1 / 4, 1 / 2)
#: What the paper calls sufficient may lose this part of what the setting loses that it calls worse.
PART = 0.5
#: Columns that are shown; those whose numbers are rounded have their digits.
DIGITS: dict[str, int | None] = {"objective": 9, "psnr": 6, "slice_psnr": 6, "bits_up": None, "bits_down": None}
#: An objective this near to the lowest, relative to it, is within the accuracy of that.
FLOOR = 1e-6
#: What figures show of images: columns, axes, which are logarithmic, and the scale.
QUALITIES = [("slice_psnr", "PSNR of the middle slice, dB", "x", 1.0), ("psnr", "PSNR of the volume, dB", "x", 1.0)]

Lines = Mapping[Case, Line]
#: A verdict and the numbers that it rests on.
Judged = tuple[str, str]


def messages(case: Case, codec: str = "auto") -> dict[str, Any]:
    """Method and messages of a case in the experiment file; QSGD has a norm for each slice (and component) of x (v)."""
    if case.method == OURS:
        return {
            "method": {"kind": "ShiftedPDFP", "preconditioner": "fourier", "dual_steps": DUAL_STEPS},
            "compressor": {"kind": "QSGD", "levels": LEVELS_UP, "norm": "max"},
            "downlink": {"kind": "QSGD", "levels": LEVELS_DOWN, "norm": "max"},
        }
    if case.levels is None:
        return {"compressor": {"kind": "none"}}
    quantized = {"kind": "QSGD", "levels": case.levels, "codec": codec}
    return {"compressor": {name: {**quantized, "block": block} for name, block in (("x", [2]), ("v", [0, 3]))}}


def reproduce(
    size: str, output: Path, volume: Path | None = None, device: str = "auto", rounds: int | None = None,
    seeds: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Do the runs that are not done yet, and write the page.

    A run is a folder in ``runs`` or, in short, a file with its numbers.
    """
    file, folder, changes = "" if volume is None else volume.name, output / "runs", {"data.device": device}
    check_folder(output, {"size": size, "file": file})
    changes |= {} if volume is None else {"data.volume": str(volume.expanduser().absolute())}
    rounds, where = rounds or declare(f"ct-{size}", {})["run"]["rounds"], ties.build_case(f"ct-{size}", changes)
    count, runs, todo = seeds or (1 if volume else SEEDS), dict[str, Any](), dict[str, tuple[Case, Job]]()
    with pool.bar() as bar:
        bench = Bench(f"ct-{size}", folder, changes, bar)
        for case in [*CASES, *OUR_CASES]:
            for seed in range(count if case in SEVERAL else 1):
                job = plan(bench, where, case, seed, min(rounds, FEW_ROUNDS[size]) if case.method == OURS else rounds)
                runs[job.name] = read(folder, job.name, job.settings["run"]["rounds"])
                todo |= {job.name: (case, job)} if runs[job.name] is None else {}
        done = bench.compute("runs", [job for _, job in todo.values()])
    for one, (case, job) in zip(done, todo.values(), strict=True):
        step = None if case.method == OURS else job.settings["method"]["step"]
        runs[job.name] = {**one, "levels": case.levels, "method": case.method, "step": step, "device": where.device}
    summary = summarise(where, runs, find_minimum(where, folder))
    summary |= {"size": size, "file": file, "rounds": rounds, "seeds": count}
    summary["figures"] = draw_all(lines_of(summary["runs"]), summary["lowest"], output)
    publish(output, summary, summary["claims"], indent=None)
    return summary


def plan(bench: Bench, where: BuiltScan, case: Case, seed: int, rounds: int) -> Job:
    """Return a run of a case; FPDFP has the paper's λ and the constant step of all cases."""
    run: dict[str, Any] = {
        "run.rounds": rounds, "run.clients_per_round": case.n, "run.checkpoint_every": rounds,
        "run.evaluate_every": ties.space_out(rounds, 24, 32), **messages(case, CODEC),
    }  # fmt: skip
    if case.method != OURS:
        run["method.step"] = STEP / float(where.problem.lipschitz.mean())
    return bench.plan(f"{case.name}-seed{seed}", seed, run)


def check_folder(output: Path, what: Mapping[str, str]) -> None:
    file = output / "results.json"
    known = json.loads(file.read_text()) if file.is_file() else what
    if different := [f"{key} {known.get(key)!r}, not {one!r}" for key, one in what.items() if known.get(key) != one]:
        raise ValueError(f"output must be another folder: {output} has results with {' and '.join(different)}")


def read(folder: Path, name: str, rounds: int) -> dict[str, Any] | None:
    """Return a run that is there in short and has the same number of rounds."""
    file = folder / f"{name}.json"
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.is_file() else None
    return found if found is None or found["asked"] == rounds else None


def find_minimum(where: BuiltScan, folder: Path) -> dict[str, Any]:
    """Minimise with all views in one place, unless that was done."""
    if (known := read(folder, MINIMUM, ITERATIONS)) is not None:
        return known
    started, found = time.perf_counter(), where.reconstruct()
    contents = {
        "unit": MINIMUM, "asked": ITERATIONS, "version": fpdfp.__version__, "device": where.device,
        "seconds": time.perf_counter() - started, "objective": where.problem.objective(found.volume),
        "psnr": where.psnr(found.volume), "slice_psnr": where.slice_psnr(found.volume),
        "iterations": found.iterations, "seconds_in_rounds": found.seconds,
    }  # fmt: skip
    (folder / f"{MINIMUM}.json").write_text(json.dumps(contents) + "\n")
    return contents


def summarise(where: BuiltScan, runs: Mapping[str, Any], minimum: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in numbers, so that the page and the curves can be made anew from it."""

    def few(run: Mapping[str, Any]) -> dict[str, Any]:
        rounded = {name: round_numbers(np.atleast_1d(run[name]), digits) for name, digits in DIGITS.items() if digits}
        return {**run, **{name: some if "round" in run else some[0] for name, some in rounded.items()}}

    scan, geometry, least = where.scan, where.geometry, few(minimum)
    kept = {name: few(one) for name, one in runs.items()}
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        "problem": {
            "volume": scan.volume, "detector": scan.detector, "views": scan.views, "voxel": scan.voxel,
            "source": scan.distances[0], "panel": scan.distances[1],
            "pixel": round_numbers([np.linalg.norm(geometry.u[0]), np.linalg.norm(geometry.v[0])]),
            "clients": CLIENTS, "mu": where.tv, "noise_variance": NOISE_VARIANCE, "truth": where.source,
            "projections": where.kind, "largest_line_integral": float(f"{float(where.projections.max()):.3g}"),
            "L": float(where.problem.lipschitz.mean()), "rho_max": where.problem.linop.squared_norm,
            "noise_floor": 0.5 * NOISE_VARIANCE * where.projections.size,
        },
        "step_times_L": STEP,
        "lambda": LAMBDA,
        "devices": sorted({one["device"] for one in kept.values()}),
        "codes": sorted({one.get("code", one["version"]) for one in kept.values()}),
        "minimum": least,
        "lowest": min(min(np.atleast_1d(one["objective"])) for one in (*kept.values(), least)),
        "runs": kept,
        "claims": judge(lines_of(kept)),
    }  # fmt: skip


def lines_of(runs: Mapping[str, Mapping[str, Any]]) -> dict[Case, Line]:
    """Put the runs of each case together, by seeds."""
    by_case: dict[Case, list[Mapping[str, Any]]] = {case: [] for case in [*CASES, *OUR_CASES]}
    for one in sorted(runs.values(), key=lambda one: int(one["seed"])):
        by_case[Case(one["clients_per_round"], one["levels"], one["method"])].append(one)
    return {case: line_of(case, some, list(DIGITS)) for case, some in by_case.items() if some}


class Comparison(NamedTuple):
    """How much worse one case is than another: relative in the objective, and in dB."""

    objective: ties.Comparison
    slice_psnr: ties.Comparison
    psnr: ties.Comparison

    @property
    def outcomes(self) -> list[str]:
        """On the measures that claims are judged on: the objective, and the PSNR of the slice, as in the paper."""
        return [ties.decide(self.objective), ties.decide(self.slice_psnr)]

    def __str__(self) -> str:
        objective = write_loss(self.objective, " %", 4, 100.0)
        drops = [write_loss(one, " dB", 3) for one in (self.slice_psnr, self.psnr)]
        return f"objective {objective}, slice {drops[0]}, volume {drops[1]}"


def compare(one: Line, other: Line, part: float = 1.0) -> Comparison:
    one, other = one.with_seeds_of(other), other.with_seeds_of(one)
    mine, theirs = ({name: line[name][:, line.at(part)] for name in DIGITS} for line in (one, other))
    drops = (ties.compare(theirs[name], mine[name]) for name in ("slice_psnr", "psnr"))
    return Comparison(ties.compare_ratio(mine["objective"], theirs["objective"]), *drops)


def write_loss(loss: ties.Comparison, unit: str, digits: int, factor: float = 1.0) -> str:
    zone = ties.ONE_SEED if loss.seeds < 2 else f"tie zone ±{factor * loss.zone:.{digits}f}, {ties.decide(loss)}"
    return f"{round(factor * loss.difference, digits) + 0.0:+.{digits}f}{unit} ({zone})"


def judge(lines: Lines) -> list[dict[str, str]]:
    """Return every claim with its verdict."""
    s, n = FIXED_LEVELS, PER_ROUND
    few_levels = {f"with s = {LEVELS[0]} instead of s = {s}": (COARSE, ENOUGH)}
    few_clients = {f"with n = {FEW.n} instead of n = {n}": (FEW, ENOUGH)}
    between = [case for case in CASES if PER_ROUND < case.n < CLIENTS]
    claims: dict[str, Callable[[Lines], Judged]] = {
        f"Claim 3: a smaller s ends at a higher objective and a worse image (n = {n}).": coarser_is_worse,
        f"Claim 3: a smaller s converges faster (n = {n}).": coarser_is_faster,
        f"Claim 3: s = {s} is sufficient (it costs 0.08 dB in the paper).": partial(
            suffices, best=EXACT, few=COARSE, name="exact messages"
        ),
        f"Claim 3: s = {LEVELS[0]} is not (1.02 dB below s = {s} in the paper).": partial(worse, pairs=few_levels),
        f"Claim 4: n = {n} is enough (it costs 0.04 dB in the paper).": partial(
            suffices, best=EVERYONE, few=FEW, name="everyone", others=between
        ),
        f"Claim 4: n = {FEW.n} is not (0.68 dB below n = {n} in the paper).": partial(worse, pairs=few_clients),
        "Claim 5: bits grow with the rounds in proportion, and quantized messages are shorter.": bits_are_saved,
        "Claim 5: quantization and partial participation need the fewest bits for an image.": fewest_bits,
        "Beyond the paper: what the shifted method needs, with nothing tuned.": beyond,
    }
    judged = [(text, *of(lines)) for text, of in claims.items()]
    return [{"claim": text, "verdict": verdict, "numbers": numbers} for text, verdict, numbers in judged]


def worse(lines: Lines, pairs: Mapping[str, tuple[Case, Case]], others: Mapping[str, Any] | None = None) -> Judged:
    """Judge whether the first of each pair is worse than the second, in the objective and in the slice."""
    found = {name: compare(lines[one], lines[other]) for name, (one, other) in pairs.items()}
    texts = [f"{name}: {one}" for name, one in {**found, **(others or {})}.items()]
    return ties.sum_up(
        [each for one in found.values() for each in one.outcomes], "worse", "better"
    ), f"{'; '.join(texts)}."


def coarser_is_worse(lines: Lines) -> Judged:
    pairs = {
        f"with s = {LEVELS[0]} instead of s = {FIXED_LEVELS}": (COARSE, ENOUGH),
        f"with s = {FIXED_LEVELS} instead of exact messages": (ENOUGH, EXACT),
    }
    finer = [case for case in CASES if case.n == PER_ROUND and case not in (COARSE, ENOUGH, EXACT)]
    others = {f"with s = {one.levels} instead of exact messages": compare(lines[one], lines[EXACT]) for one in finer}
    return worse(lines, pairs, others)


def coarser_is_faster(lines: Lines) -> Judged:
    """Claim 3, the speed: against rounds, and against bits."""
    coarse, exact = lines[COARSE], lines[EXACT]
    by_rounds = [compare(coarse, exact, part).objective for part in EARLY]
    by_bits = [for_the_same_bits(coarse, exact, part) for part in EARLY]
    faster = [ties.sum_up(list(map(ties.decide, some))) for some in (by_rounds, by_bits)]
    verdict = f"{faster[0]} against rounds, {faster[1]} against bits"
    texts = [
        f"after {coarse.rounds[coarse.at(part)]:.0f} rounds {write_loss(rounds, ' %', 3, 100.0)}, for the same bits "
        f"{write_loss(bits, ' %', 3, 100.0)}"
        for part, rounds, bits in zip(EARLY, by_rounds, by_bits, strict=True)
    ]
    return verdict, f"the objective of s = {LEVELS[0]} against exact messages: {'; '.join(texts)}."


def for_the_same_bits(one: Line, other: Line, part: float) -> ties.Comparison:
    """The relative difference of the objective of one case to that which another has for the same bits."""
    one, other = one.with_seeds_of(other), other.with_seeds_of(one)
    logs = [
        np.interp(sent, bits, np.log(objective))
        for sent, bits, objective in zip(
            one["bits_up"][:, one.at(part)], other["bits_up"], other["objective"], strict=True
        )
    ]
    return ties.compare_ratio(one["objective"][:, one.at(part)], np.exp(logs))


def suffices(lines: Lines, best: Case, few: Case, name: str, others: Sequence[Case] = ()) -> Judged:
    """Judge whether the common case loses nothing to the best; in part, if far less than with few levels or clients."""
    losses = {case: compare(lines[case], lines[best]) for case in (ENOUGH, *others, few)}
    each = "; ".join(f"{case.beside(best)}: {loss}" for case, loss in losses.items())
    ours, full = (float(lines[case]["bits_up"][:, -1].mean()) for case in (ENOUGH, best))
    sent = f"{ENOUGH.beside(best)} sends {100 * (ours / full):.1f} % of the bits of {name}."
    lost = zip(losses[ENOUGH][:2], losses[few][:2], strict=True)
    far_less = all(one.difference <= PART * other.difference for one, other in lost)
    outcomes = losses[ENOUGH].outcomes
    verdict = "confirmed" if "worse" not in outcomes else "confirmed in part" if far_less else "refuted"
    return "not judged" if ties.ONE_SEED in outcomes else verdict, f"against {name}, {each}. {sent}"


def bits_are_saved(lines: Lines) -> Judged:
    theirs = of_the_paper(lines)
    each = ", ".join(f"{one.case.label} {format_bits(one.rate)}" for one in theirs)
    quantized = max(lines[case].rate for case in BY_LEVELS if case != EXACT)
    holds = all(one.proportional for one in theirs) and quantized < lines[EXACT].rate
    return "confirmed" if holds else "refuted", f"bits up a round: {each}."


def fewest_bits(lines: Lines) -> Judged:
    theirs = of_the_paper(lines)
    target = min(one.mean("slice_psnr").max() for one in theirs)
    needed = {one.case: one.reach(one.mean("slice_psnr") >= target) for one in theirs}
    least = min(needed, key=lambda case: needed[case][1])
    each = ", ".join(f"{one.label} {rounds:.0f} rounds, {format_bits(bits)}" for one, (rounds, bits) in needed.items())
    holds = least.levels is not None and least.n < CLIENTS
    return "confirmed" if holds else "refuted", f"bits up to {target:.2f} dB in the slice, which all reach: {each}."


def beyond(lines: Lines) -> Judged:
    """What the shifted method needs for the best objective and image of FPDFP."""
    theirs, texts = of_the_paper(lines), []
    best = max(theirs, key=lambda one: one.mean("slice_psnr").max())
    lowest = min(theirs, key=lambda one: one["objective"][:, -1].mean())
    target, goal = best.mean("slice_psnr").max(), lowest["objective"][:, -1].mean()
    for one in (lines[case] for case in OUR_CASES):
        middle = one.mean("slice_psnr")
        rounds, bits = one.reach(middle >= target)
        sent = f"{format_bits(bits + one.once_up)} up in all ({format_bits(one.once_up)} of them once)"
        image = f"{rounds:.0f} rounds and {sent}" if np.isfinite(rounds) else "not reached"
        below, _ = one.reach(one.mean("objective") <= goal)
        least = f"{below:.0f} rounds" if np.isfinite(below) else "not reached"
        texts.append(
            f"{one.case.label}: that image {image}, that objective {least}; after {one.rounds[-1]:.0f} rounds "
            f"{one['objective'][:, -1].mean():.6g} and {middle[-1]:.2f} dB, at best {middle.max():.2f} dB"
        )
    rounds, bits = best.reach(best.mean("slice_psnr") >= target)
    return "measured", (
        f"FPDFP's best slice has {target:.2f} dB ({best.case.label}, {rounds:.0f} rounds, {format_bits(bits)} up), "
        f"its least objective is {goal:.6g} ({lowest.case.label}, {lowest.rounds[-1]:.0f} rounds). {'; '.join(texts)}."
    )


def draw_all(lines: Lines, lowest: float, folder: Path) -> list[str]:
    """Draw all figures into a folder; return their names. Objectives are shown above ``lowest``."""
    shown = {case: one.change(error=one["objective"] / lowest - 1.0) for case, one in lines.items()}
    by_levels, by_clients = ([shown[case] for case in cases] for cases in (BY_LEVELS, BY_CLIENTS))
    return draw_cases(
        folder, {"levels": (f"n = {PER_ROUND}", by_levels), "participation": (f"s = {FIXED_LEVELS}", by_clients)},
        [shown[case] for case in OUR_CASES], "(F(x) − F_low) / F_low", QUALITIES, floor=FLOOR, unit="Gbit", more={},
    )  # fmt: skip


def row(one: Line, rounds: int) -> list[str]:
    done, paper = one.rounds[-1], PAPER.get(one.case)
    up, down, objective, in_slice, in_volume = (
        one.mean(name)[-1] for name in ("bits_up", "bits_down", "objective", "slice_psnr", "psnr")
    )
    once = [f" + {format_bits(bits)} once" if bits else "" for bits in (one.once_up, one.once_down)]
    label = one.case.label.removeprefix("FPDFP, ")
    return [
        label + ("" if done == rounds else f", {done:.0f} rounds"), str(len(one.seeds)),
        f"{objective:.7g}", f"{in_slice:.2f}", f"{in_volume:.2f}", "" if paper is None else f"{paper:.2f}",
        format_bits(up) + once[0], format_bits(down) + once[1],
    ]  # fmt: skip
