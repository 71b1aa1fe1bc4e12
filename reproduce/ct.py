"""The paper's second experiment: cone-beam CT with total variation among 17 clients that hold views.

:mod:`fpdfp.declarative.scan` has two models: ``printed`` is the paper's, for which claims are judged; ``mean`` has
another scaling of the data term, steps that are tuned, and one seed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.build import build
from fpdfp.declarative.runner import is_done
from fpdfp.declarative.scan import ITERATIONS, BuiltScan, Scan
from fpdfp.declarative.settings import MEAN, PRINTED
from fpdfp.errors import ArgumentError
from reproduce import runs as ties
from reproduce.output import SETTINGS, Panel, braces, curves, draw, fill, format_bits, publish, rows, save
from reproduce.runs import Array, Bench, Case, Line, Planned, Step, declare, line_of, round_numbers, shorten

CLIENTS, NOISE_VARIANCE = 17, 0.02
LEVELS: tuple[int | None, ...] = (500, 1000, 3000, 5000, None)
#: The participants where the levels vary, the levels where participation varies, and the participations.
PER_ROUND, FIXED_LEVELS, PARTICIPATION = 5, 1000, (2, 5, 10, CLIENTS)
#: All cases of FPDFP, each once, and those of them that have several seeds, since claims rest on them.
CASES = [Case(PER_ROUND, s) for s in LEVELS] + [Case(n, FIXED_LEVELS) for n in PARTICIPATION if n != PER_ROUND]
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
#: How levels are coded with the printed model: an entropy coder, the shortest of all codes here.
CODEC = "rans"
#: The number of seeds for the phantom; other volumes have one. Then the seed of the model ``mean``.
SEEDS, SEED = 3, 1
#: The centralised reconstruction.
MINIMUM = "minimum"
#: The grid of FPDFP's steps with the model ``mean``: γ0 in units of 1/L, and c in units of one over the rounds. With
#: c = 0 the γ0 are compared after a part of the rounds; with the best, every c runs to the end.
GAMMAS, DECAYS, FIRST_STAGE = (1.0, 1.5, 1.9), (0.0, 2.0, 8.0), 0.1
#: Parts of the rounds at which runs are compared, and those that are "at first".
HORIZONS = (1 / 8, 1 / 4, 1 / 2, 1.0)
EARLY = (1 / 100, 1 / 32, *HORIZONS[:-1])
#: What the paper calls sufficient may lose this part of what the setting loses that it calls worse.
PART = 0.5
NOT_JUDGED, ONE_SEED = "not judged", "one seed"
#: Columns that are shown; those whose numbers are rounded have their digits.
DIGITS: dict[str, int | None] = {"objective": 9, "psnr": 6, "slice_psnr": 6, "bits_up": None, "bits_down": None}
#: The slope at the end is that of a line fitted to the evaluations of the last part of the rounds, per 1,000 rounds.
LAST, PER = 1 / 8, 1000
#: An objective this near to the lowest, relative to it, is within the accuracy of that.
FLOOR = 1e-6
#: Errors of slices are shown on a scale of this many times the largest of their root mean squares, with one digit.
SPREAD = 4.0
#: What figures show of images, by title.
QUALITIES = {"PSNR of the middle slice": "slice_psnr", "PSNR of the volume": "psnr"}

Lines = Mapping[Case, Line]
#: A verdict and the numbers that it rests on.
Judged = tuple[str, str]


class Size(NamedTuple):
    """A scan by name, and the rounds of FPDFP and of the shifted method."""

    name: str
    scan: Scan
    rounds: int
    few: int

    def declare(self, device: str = "cpu", volume: Path | None = None) -> dict[str, Any]:
        model, shape, detector, views = self.scan
        data = {"model": model, "shape": list(shape), "detector": list(detector), "views": views, "device": device}
        given = {} if volume is None else {"volume": str(volume.expanduser().absolute())}
        return {f"data.{name}": value for name, value in {**data, **given}.items()}

    def build(self, device: str = "cpu", volume: Path | None = None) -> BuiltScan:
        """Make the scan of a volume, of the analytic thorax phantom if none is given, and deal its views out."""
        built = build(declare("ct", self.declare(device, volume)))
        assert isinstance(built, BuiltScan)
        return built


SIZES = {
    (one.scan.model, one.name): one
    for one in (
        Size("tiny", Scan(PRINTED, (16, 16, 8), (24, 16), 34), 64, 20),
        Size("small", Scan(PRINTED, (32, 32, 8), (64, 48), 85), 2400, 60),
        Size("paper", Scan(PRINTED, (256, 256, 64), (512, 384), 668), 5600, 100),
        Size("tiny", Scan(MEAN, (16, 16, 8), (24, 16), 34), 40, 20),
        Size("small", Scan(MEAN, (64, 64, 16), (128, 96), 167), 200, 30),
        Size("paper", Scan(MEAN, (256, 256, 64), (512, 384), 668), 400, 40),
    )
}


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


def evaluations(model: str, rounds: int) -> list[int]:
    """The rounds after which a run is evaluated, at most 56 with the printed model and 32 with the other."""
    return ties.space_out(rounds, 24, 32) if model == PRINTED else ties.space_out(rounds, 12, 20)


def plan(where: BuiltScan, case: Case, seed: int, rounds: int, step: Step | None, suffix: str = "") -> Planned:
    """Return a run of a case; without a step FPDFP has the paper's λ and the constant step of all cases."""
    model = where.scan.model
    run: dict[str, Any] = {
        "run.rounds": rounds, "run.clients_per_round": case.n, "run.checkpoint_every": rounds,
        "run.evaluate_every": evaluations(model, rounds), **messages(case, CODEC if model == PRINTED else "auto"),
    }  # fmt: skip
    if case.method != OURS and step is not None:
        run["method"] = {"kind": "FPDFP", "step": step.declare(where.problem)}
    elif case.method != OURS:
        run["method.step"] = STEP / float(where.problem.lipschitz.mean())
    return Planned(f"{case.name}{suffix}-seed{seed}", run, seed)


def tune(bench: Bench, where: BuiltScan, rounds: int) -> dict[int, Step]:
    """Return the step of the grid with the least objective at the end for each number of clients, in two stages."""

    def best(title: str, grids: Mapping[int, Sequence[Step]], count: int) -> dict[int, Step]:
        def run(n: int, step: Step, seed: int) -> Planned:
            return plan(where, Case(n, FIXED_LEVELS), seed, count, step, f"-{step.gamma:g}-{step.decay:g}-{count}")

        return {n: steps[0] for n, steps in ties.rank(bench, title, grids, [SEED], run).items()}

    grids = {n: [Step(gamma) for gamma in GAMMAS] for n in PARTICIPATION}
    first = best("tuning of γ0", grids, max(1, round(FIRST_STAGE * rounds)))
    return best("tuning of c", {n: [Step(one.gamma, c / rounds) for c in DECAYS] for n, one in first.items()}, rounds)


def reproduce(
    size: str, output: Path, model: str = PRINTED, volume: Path | None = None, device: str = "auto",
    rounds: int | None = None, seeds: int | None = None, only: Sequence[str] = (), page: bool = False,
    tune_at: str | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """Do the runs that are not done yet, and write a page of those that are there.

    With ``only`` just the runs of these cases are done, no page is written, and None is returned. With ``page`` no run
    is done. A run is a folder in ``runs``, or in short a file of JSON with its numbers and one of NumPy with its slice.
    The steps of the model ``mean`` are tuned at the size ``tune_at``, by default the small one: in units of 1/L they
    carry over.
    """
    if tune_at is not None and model == PRINTED:
        raise ArgumentError("tune_at", "is for the model mean: nothing is tuned with the model printed")
    names = [*(case.name for case in [*CASES, *OUR_CASES]), MINIMUM]
    for name in only:
        if name not in names:
            raise ArgumentError("only", f"must be one of {', '.join(names)}, got {name!r}")
    chosen, file, folder = SIZES[model, size], "" if volume is None else volume.name, output / "runs"
    check_folder(output, {"model": model, "size": size, "file": file})
    rounds, where = rounds or chosen.rounds, chosen.build(device, volume)
    count = seeds or (SEEDS if volume is None and model == PRINTED else 1)
    first, steps, tuning = 0 if model == PRINTED else SEED, dict[int, Step](), {}
    with pool.bar() as bar:
        bench = Bench("ct", folder, chosen.declare(device, volume), bar)
        if model == MEAN:
            smaller = SIZES[MEAN, tune_at or ("tiny" if size == "tiny" else "small")]
            there, tuned_rounds = smaller.build(device, volume), min(rounds, smaller.rounds)
            tuned = tune(Bench("ct", folder / "tuning", smaller.declare(device, volume), bar), there, tuned_rounds)
            # c is in units of one over the rounds, and so carries over to other numbers of them.
            steps = {n: step._replace(decay=step.decay * tuned_rounds / rounds) for n, step in tuned.items()}
            tuning = {
                "levels": FIXED_LEVELS, "size": smaller.name, "gamma0_times_L": GAMMAS, "c_times_rounds": DECAYS,
                "rounds": [max(1, round(FIRST_STAGE * tuned_rounds)), tuned_rounds],
                "steps": {n: [step.gamma, float(f"{step.decay * tuned_rounds:.6g}")] for n, step in tuned.items()},
            }  # fmt: skip
        units = [
            (case, plan(where, case, seed, rounds, steps.get(case.n)))
            for case in CASES
            for seed in range(first, first + (count if case in SEVERAL else 1))
        ]
        units += [(case, plan(where, case, first, min(rounds, chosen.few), None)) for case in OUR_CASES]
        known = {run.name: kept for _, run in units if (kept := read(folder, run.name, run.changes["run.rounds"]))}
        if not page:
            wanted = [run for case, run in units if run.name not in known and (not only or case.name in only)]
            bench.compute("runs", wanted)
            if not only or MINIMUM in only:
                find_minimum(where, folder)
    if only:
        return None
    for case, run in units:
        if run.name not in known and is_done(job := bench.job(run)):
            step = None if case.method == OURS else job.settings["method"]["step"]
            case_of = {"levels": case.levels, "method": case.method, "step": step, "device": device_name(where)}
            known[run.name] = {**shorten(job), **case_of}
    if not known:
        raise ValueError(f"output must be a folder with runs of {rounds} rounds; {folder} has none")
    missing = [run.name for _, run in units if run.name not in known]
    summary = summarise(where, known, read(folder, MINIMUM, ITERATIONS), missing)
    summary |= {"size": size, "file": file, "rounds": rounds, "seeds": count, **({"tuning": tuning} if tuning else {})}
    lines = lines_of(summary["runs"], {name: read_slice(folder, name) for name in known})
    summary["figures"] = draw_all(lines, slice_of(where.truth), summary["lowest"], output)
    publish(output, summary, write(summary), summary["claims"], indent=None)
    return summary


def check_folder(output: Path, what: Mapping[str, str]) -> None:
    file = output / "results.json"
    known = json.loads(file.read_text()) if file.is_file() else what
    different = [
        f"{name} {known.get(name)!r}, not {value!r}" for name, value in what.items() if known.get(name) != value
    ]
    if different:
        raise ValueError(f"output must be another folder: {output} has results with {' and '.join(different)}")


def read(folder: Path, name: str, rounds: int) -> dict[str, Any] | None:
    """Return a run that is there in short and has the same number of rounds."""
    file = folder / f"{name}.json"
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.is_file() else None
    return found if found is None or found["asked"] == rounds else None


def read_slice(folder: Path, name: str) -> Array:
    if (folder / f"{name}.npz").is_file():
        with np.load(folder / f"{name}.npz") as file:
            return np.asarray(file["picture"], dtype=np.float32)
    return slice_of(fpdfp.runs.load(folder / name).x)


def slice_of(volume: Any) -> Array:
    return np.asarray(volume[:, :, volume.shape[2] // 2])


def find_minimum(where: BuiltScan, folder: Path) -> None:
    """Minimise with all views in one place, unless that was done."""
    if not (folder / f"{MINIMUM}.json").is_file():
        started, found = time.perf_counter(), where.reconstruct()
        contents = {
            "unit": MINIMUM, "asked": ITERATIONS, "version": fpdfp.__version__, "device": device_name(where),
            "seconds": time.perf_counter() - started, "objective": where.problem.objective(found.volume),
            "psnr": where.psnr(found.volume), "slice_psnr": where.slice_psnr(found.volume),
            "iterations": found.iterations, "seconds_in_rounds": found.seconds,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{MINIMUM}.json").write_text(json.dumps(contents) + "\n")


def device_name(where: BuiltScan) -> str:
    module: Any = sys.modules[type(where.projections).__module__.partition(".")[0]]
    if module is np:
        return f"CPU, {os.cpu_count()} cores"
    return str(module.cuda.runtime.getDeviceProperties(0)["name"].decode())


def summarise(
    where: BuiltScan, runs: Mapping[str, Any], minimum: dict[str, Any] | None, missing: Sequence[str]
) -> dict[str, Any]:
    """Everything in numbers, so that the page and the curves can be made anew from it."""

    def few(run: Mapping[str, Any]) -> dict[str, Any]:
        rounded = {name: round_numbers(np.atleast_1d(run[name]), digits) for name, digits in DIGITS.items() if digits}
        return {**run, **{name: some if "round" in run else some[0] for name, some in rounded.items()}}

    scan, geometry, kept = where.scan, where.geometry, {name: few(one) for name, one in runs.items()}
    least = None if minimum is None else few(minimum)
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        "model": scan.model,
        "problem": {
            "volume": scan.volume, "detector": scan.detector, "views": scan.views, "voxel": scan.voxel,
            "source": scan.distances[0], "panel": scan.distances[1],
            "pixel": round_numbers([np.linalg.norm(geometry.u[0]), np.linalg.norm(geometry.v[0])]),
            "clients": CLIENTS, "mu": where.tv, "noise_variance": NOISE_VARIANCE, "truth": where.source,
            "projections": where.kind, "largest_line_integral": float(f"{float(where.projections.max()):.3g}"),
            "L": float(where.problem.lipschitz.mean()), "rho_max": where.problem.linop.squared_norm,
            "noise_floor": 0.5 * NOISE_VARIANCE * where.projections.size,
            **({} if scan.model == PRINTED else {"weight_of_a_ray": scan.pixel_area}),
        },
        "step_times_L": STEP,
        "lambda": LAMBDA,
        "devices": sorted({one["device"] for one in kept.values()}),
        "codes": sorted({one.get("code", one["version"]) for one in kept.values()}),
        "minimum": least,
        "lowest": min(min(np.atleast_1d(one["objective"])) for one in (*kept.values(), least) if one is not None),
        "missing": [*missing, *([MINIMUM] if least is None else [])],
        "runs": kept,
        "claims": judge(lines_of(kept), scan.model),
    }  # fmt: skip


def lines_of(runs: Mapping[str, Mapping[str, Any]], pictures: Mapping[str, Array] | None = None) -> dict[Case, Line]:
    """Put the runs of each case together, by seeds; the picture is that of the first seed."""
    by_case: dict[Case, list[Mapping[str, Any]]] = {case: [] for case in [*CASES, *OUR_CASES]}
    for one in sorted(runs.values(), key=lambda one: int(one["seed"])):
        by_case[Case(one["clients_per_round"], one["levels"], one["method"])].append(one)
    return {
        case: line_of(case, some, list(DIGITS), picture=(pictures or {}).get(some[0]["unit"]))
        for case, some in by_case.items()
        if some
    }


class Comparison(NamedTuple):
    """How much worse one case is than another: relative in the objective, and in dB."""

    objective: ties.Comparison
    slice_psnr: ties.Comparison
    psnr: ties.Comparison

    @property
    def outcomes(self) -> list[str]:
        """On the measures that claims are judged on: the objective, and the PSNR of the slice, as in the paper."""
        return [outcome(self.objective), outcome(self.slice_psnr)]

    def __str__(self) -> str:
        objective = write_loss(self.objective, " %", 4, 100.0)
        drops = [write_loss(one, " dB", 3) for one in (self.slice_psnr, self.psnr)]
        return f"objective {objective}, slice {drops[0]}, volume {drops[1]}"


def compare(one: Line, other: Line, part: float = 1.0) -> Comparison:
    one, other = one.with_seeds_of(other), other.with_seeds_of(one)
    mine, theirs = ({name: line[name][:, line.at(part)] for name in DIGITS} for line in (one, other))
    drops = (ties.compare(theirs[name], mine[name]) for name in ("slice_psnr", "psnr"))
    return Comparison(ties.compare_ratio(mine["objective"], theirs["objective"]), *drops)


def outcome(loss: ties.Comparison) -> str:
    if loss.seeds < 2:
        return ONE_SEED
    return "tie" if loss.tied else "worse" if loss.more else "better"


def write_loss(loss: ties.Comparison, unit: str, digits: int, factor: float = 1.0) -> str:
    zone = ONE_SEED if loss.seeds < 2 else f"tie zone ±{factor * loss.zone:.{digits}f}, {outcome(loss)}"
    return f"{round(factor * loss.difference, digits) + 0.0:+.{digits}f}{unit} ({zone})"


def judge(lines: Lines, model: str = PRINTED) -> list[dict[str, str]]:
    """Return every claim with its verdict, which the printed model has alone; without its runs it is not judged."""
    s, n, judged = FIXED_LEVELS, PER_ROUND, []
    claims: dict[str, Callable[[Lines], Judged]] = {
        f"Claim 3: a smaller s ends at a higher objective and a worse image (n = {n}).": coarser_is_worse,
        f"Claim 3: a smaller s converges faster (n = {n}).": coarser_is_faster,
        f"Claim 3: s = {s} is sufficient (it costs 0.08 dB in the paper).": lambda lines: suffices(
            lines, EXACT, COARSE, "exact messages"
        ),
        f"Claim 3: s = {LEVELS[0]} is not (1.02 dB below s = {s} in the paper).": lambda lines: worse(
            lines, {f"with s = {LEVELS[0]} instead of s = {s}": (COARSE, ENOUGH)}
        ),
        f"Claim 4: n = {n} is enough (it costs 0.04 dB in the paper).": lambda lines: suffices(
            lines, EVERYONE, FEW, "everyone", [case for case in CASES if PER_ROUND < case.n < CLIENTS]
        ),
        f"Claim 4: n = {FEW.n} is not (0.68 dB below n = {n} in the paper).": lambda lines: worse(
            lines, {f"with n = {FEW.n} instead of n = {n}": (FEW, ENOUGH)}
        ),
        "Claim 5: bits grow with the rounds in proportion, and quantized messages are shorter.": bits_are_saved,
        "Claim 5: quantization and partial participation need the fewest bits for an image.": fewest_bits,
        "Beyond the paper: what the shifted method needs, with nothing tuned.": beyond,
    }
    for text, of in claims.items():
        try:
            verdict, numbers = of(lines)
        except KeyError as missing:
            verdict, numbers = NOT_JUDGED, f"runs are missing: {missing.args[0].label}."
        judged.append({"claim": text, "verdict": verdict if model == PRINTED else "measured", "numbers": numbers})
    return judged


def worse(lines: Lines, pairs: Mapping[str, tuple[Case, Case]], others: Mapping[str, Any] | None = None) -> Judged:
    """Judge whether the first of each pair is worse than the second, in the objective and in the slice."""
    found = {name: compare(lines[one], lines[other]) for name, (one, other) in pairs.items()}
    texts = [f"{name}: {one}" for name, one in {**found, **(others or {})}.items()]
    return sum_up([each for one in found.values() for each in one.outcomes], "worse", "better"), f"{'; '.join(texts)}."


def sum_up(outcomes: Sequence[str], claimed: str, opposite: str) -> str:
    if ONE_SEED in outcomes:
        return NOT_JUDGED
    if claimed in outcomes:
        return "confirmed" if set(outcomes) == {claimed} else "confirmed in part"
    return "refuted" if opposite in outcomes else "a tie"


def coarser_is_worse(lines: Lines) -> Judged:
    pairs = {
        f"with s = {LEVELS[0]} instead of s = {FIXED_LEVELS}": (COARSE, ENOUGH),
        f"with s = {FIXED_LEVELS} instead of exact messages": (ENOUGH, EXACT),
    }
    finer = [case for case in CASES if case.n == PER_ROUND and case not in (COARSE, ENOUGH, EXACT) and case in lines]
    others = {f"with s = {one.levels} instead of exact messages": compare(lines[one], lines[EXACT]) for one in finer}
    return worse(lines, pairs, others)


def coarser_is_faster(lines: Lines) -> Judged:
    """Claim 3, the speed: against rounds, and against bits."""
    coarse, exact = lines[COARSE], lines[EXACT]
    by_rounds = [compare(coarse, exact, part).objective for part in EARLY]
    by_bits = [for_the_same_bits(coarse, exact, part) for part in EARLY]
    faster = [sum_up(list(map(outcome, some)), "better", "worse") for some in (by_rounds, by_bits)]
    verdict = f"{faster[0]} against rounds, {faster[1]} against bits" if NOT_JUDGED not in faster else NOT_JUDGED
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
    shown = [ENOUGH, *(case for case in others if case in lines), few]
    losses = {case: compare(lines[case], lines[best]) for case in shown}
    each = "; ".join(f"{case.beside(best)}: {loss}" for case, loss in losses.items())
    ours, full = (float(lines[case]["bits_up"][:, -1].mean()) for case in (ENOUGH, best))
    sent = f"{ENOUGH.beside(best)} sends {100 * (ours / full):.1f} % of the bits of {name}."
    return judge_loss(losses[ENOUGH], losses[few]), f"against {name}, {each}. {sent}"


def judge_loss(enough: Comparison, little: Comparison) -> str:
    """Judge whether nothing is lost beyond the tie zone; in part, if far less is lost than by something else."""
    if ONE_SEED in enough.outcomes:
        return NOT_JUDGED
    if "worse" not in enough.outcomes:
        return "confirmed"
    far_less = all(one.difference <= PART * other.difference for one, other in zip(enough[:2], little[:2], strict=True))
    return "confirmed in part" if far_less else "refuted"


def bits_are_saved(lines: Lines) -> Judged:
    rates = {one.case: one.mean("bits_up")[1:] / one.rounds[1:] for one in of_the_paper(lines, EXACT, ENOUGH)}
    proportional = all((abs(rate[len(rate) // 3 :] / rate[-1] - 1) < 0.1).all() for rate in rates.values())
    quantized = [rate[-1] for case, rate in rates.items() if case.n == PER_ROUND and case != EXACT]
    each = ", ".join(f"{case.label} {format_bits(rate[-1])}" for case, rate in rates.items())
    holds = proportional and max(quantized) < rates[EXACT][-1]
    return "confirmed" if holds else "refuted", f"bits up a round: {each}."


def fewest_bits(lines: Lines) -> Judged:
    theirs = of_the_paper(lines, EXACT, ENOUGH, EVERYONE)
    target = min(one.mean("slice_psnr").max() for one in theirs)
    needed = {one.case: find_reached(one, target) for one in theirs}
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
        (rounds, bits), middle = find_reached(one, target), one.mean("slice_psnr")
        sent = f"{format_bits(bits + one.once_up)} up in all ({format_bits(one.once_up)} of them once)"
        image = f"{rounds:.0f} rounds and {sent}" if np.isfinite(rounds) else "not reached"
        below = np.flatnonzero(one.mean("objective") <= goal)
        least = f"{one.rounds[below[0]]:.0f} rounds" if len(below) else "not reached"
        texts.append(
            f"{one.case.label}: that image {image}, that objective {least}; after {one.rounds[-1]:.0f} rounds "
            f"{one['objective'][:, -1].mean():.6g} and {middle[-1]:.2f} dB, at best {middle.max():.2f} dB"
        )
    rounds, bits = find_reached(best, target)
    return "measured", (
        f"FPDFP's best slice has {target:.2f} dB ({best.case.label}, {rounds:.0f} rounds, {format_bits(bits)} up), "
        f"its least objective is {goal:.6g} ({lowest.case.label}, {lowest.rounds[-1]:.0f} rounds). {'; '.join(texts)}."
    )


def of_the_paper(lines: Lines, *needed: Case) -> list[Line]:
    """The cases of the paper's method that are there; some must be."""
    return [lines[case] for case in CASES if case in lines or case in needed]


def find_reached(one: Line, target: float) -> tuple[float, float]:
    """The rounds and bits up to the first evaluation with such a PSNR of the slice; infinite if there is none."""
    there = np.flatnonzero(one.mean("slice_psnr") >= target)
    return (float(one.rounds[there[0]]), float(one.mean("bits_up")[there[0]])) if len(there) else (np.inf, np.inf)


def draw_all(lines: Lines, truth: Array, lowest: float, folder: Path) -> list[str]:
    """Draw all figures into a folder; return their names. Objectives are shown above ``lowest``."""
    shown = {case: one.change(excess=one["objective"] / lowest - 1.0) for case, one in lines.items()}
    theirs, ours = of_the_paper(shown), [shown[case] for case in OUR_CASES if case in shown]
    by_levels = [one for one in theirs if one.case.n == PER_ROUND]
    by_clients = [shown[case] for n in PARTICIPATION if (case := Case(n, FIXED_LEVELS)) in shown]
    groups = {"levels": (f"n = {PER_ROUND}", by_levels), "participation": (f"s = {FIXED_LEVELS}", by_clients)}
    low, sent = "(F(x) − F_low) / F_low", "bits sent by clients, with what is sent once"
    figures = {
        name: [
            Panel(curves([*some, *ours], "excess", floor=FLOOR), "round", low, f"{title}: objective", "xy"),
            *(Panel(curves([*some, *ours], of), "round", "dB", quality, "x") for quality, of in QUALITIES.items()),
        ]
        for name, (title, some) in groups.items()
    }
    figures["bits"] = [
        Panel(curves(some, "bits_up", scale=1e9), "round", "Gbit sent by clients", title)
        for title, some in groups.values()
    ]
    figures["against-bits"] = [
        Panel(curves([*theirs, *ours], "excess", sent, floor=FLOOR), sent, low, "", "xy"),
        Panel(curves([*theirs, *ours], "slice_psnr", sent), sent, "PSNR of the middle slice (dB)", "", "x"),
    ]
    draw(folder, figures, beside=("against-bits",), width=4.2)
    slices = {"slices-levels": [*by_levels, *ours], "slices-participation": by_clients}
    for name, some in slices.items():
        draw_slices(some, truth, folder / name)
    return [*figures, *slices]


def draw_slices(lines: Sequence[Line], truth: Array, path: Path) -> None:
    """Draw the slice of every case with its PSNR, and below it its error; x to the right and y upwards."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=(1.7 * (len(lines) + 1), 3.9), layout="constrained")
        panels = figure.subplots(2, len(lines) + 1, squeeze=False)
        errors = [0.0 * truth, *(line.picture - truth for line in lines if line.picture is not None)]
        most = float(f"{SPREAD * max(float(np.sqrt(np.mean(one**2))) for one in errors):.0e}") or 1.0
        titles = [f"{one.case.label.removeprefix('FPDFP, ')}\n{one['slice_psnr'][0, -1]:.2f} dB" for one in lines]
        for (above, below), error, title in zip(panels.T, errors, ["truth", *titles], strict=True):
            above.set_title(title, fontsize=7)
            above.imshow((truth + error).T, cmap="gray", vmin=0.0, vmax=1.0, origin="lower")
            below.set_title("error", fontsize=7)
            image = below.imshow(error.T, cmap="RdBu_r", vmin=-most, vmax=most, origin="lower")
            above.axis("off")
            below.axis("off")
        figure.colorbar(image, ax=panels[1, :].tolist(), shrink=0.8)
        save(figure, path, ("png",))


def write(summary: dict[str, Any]) -> str:
    """Return the page in Markdown, from the results; its command has the options that are not the usual ones."""
    lines, model, size, file = lines_of(summary["runs"]), summary["model"], summary["size"], summary["file"]
    problem, tuning = summary["problem"], summary.get("tuning")
    fewer, best = 256**2 / np.prod(problem["volume"][:2]), max(one.mean("slice_psnr").max() for one in lines.values())
    usual = {"rounds": SIZES[model, size].rounds, "seeds": SEEDS if model == PRINTED and not file else 1}
    options = {**({} if model == PRINTED else {"model": model}), "size": size}
    options |= {name: summary[name] for name, value in usual.items() if summary[name] != value}
    options |= {"volume": file} if file else {}
    more: dict[str, Any] = {} if tuning is None else {
        "ratio": problem["views"] / problem["weight_of_a_ray"] / problem["voxel"] ** 2,
        "smaller": 1 / problem["voxel"], "gammas": braces(tuning["gamma0_times_L"]),
        "decays": braces(tuning["c_times_rounds"]),
        "steps": ", ".join(f"n = {n}: {g:g}/L and {c:g}/rounds" for n, (g, c) in tuning["steps"].items()),
    }  # fmt: skip
    header = [
        f"case ({summary['rounds']:,} rounds unless said)", "seeds", "objective", "slice, dB", "volume, dB",
        "in the paper, dB", "best slice, after", "bits up a round", "bits up", "bits down",
    ]  # fmt: skip
    sides = {name: " × ".join(map("{:.4g}".format, problem[name])) for name in ("volume", "detector", "pixel")}
    return fill(
        "ct" if model == PRINTED else "ct-mean", summary, summary["figures"], **more, **sides,
        command=f"python -m reproduce ct {' '.join(f'--{name} {value}' for name, value in options.items())}",
        name=size + (f", {file}" if file else ""), missing=", ".join(summary["missing"]),
        states=len(summary["codes"]) if len(summary["codes"]) > 1 else "", devices=" and ".join(summary["devices"]),
        small=fewer != 1, fewer=fewer, finer=fewer**0.5, per=f"{PER:,}", last=100 * LAST, part=100 * PART,
        better=summary["minimum"] is not None and best > summary["minimum"]["slice_psnr"], dual_steps=DUAL_STEPS,
        levels_up=LEVELS_UP, levels_down=LEVELS_DOWN, horizons=horizons(lines),
        table=rows(header, [row(one, summary["rounds"]) for one in lines.values()]),
    )  # fmt: skip


def row(one: Line, rounds: int) -> list[str]:
    done, middle, paper = one.rounds[-1], one.mean("slice_psnr"), PAPER.get(one.case)
    best, up, down = int(np.argmax(middle)), one.mean("bits_up")[-1], one.mean("bits_down")[-1]

    def spread(name: str, form: str) -> str:
        values = one[name][:, -1]
        several = f" ({values.min():{form}} to {values.max():{form}})" if len(values) > 1 else ""
        return f"{values.mean():{form}}{several}"

    once = [f" and {format_bits(bits)} once" if bits else "" for bits in (one.once_up, one.once_down)]
    return [
        one.case.label + ("" if done == rounds else f", {done:.0f} rounds"), str(len(one.seeds)),
        spread("objective", ".7g"), spread("slice_psnr", ".2f"), spread("psnr", ".2f"),
        "" if paper is None else f"{paper:.2f}", f"{middle[best]:.2f}, {one.rounds[best]:.0f}",
        format_bits(up / done), format_bits(up) + once[0], format_bits(down) + once[1],
    ]  # fmt: skip


def horizons(lines: Lines) -> str:
    cells, at = [], list[str]()
    for one in of_the_paper(lines):
        late, middle = one.rounds >= (1 - LAST) * one.rounds[-1], one.mean("slice_psnr")
        slice_slope, slope, fall = (
            PER * float(np.polyfit(one.rounds[late], one.mean(name)[late], 1)[0])
            for name in ("slice_psnr", "psnr", "objective")
        )
        relative = fall / one["objective"][:, -1].mean()
        cells.append([one.case.label, *(f"{middle[one.at(part)]:.2f}" for part in HORIZONS),
                      f"{slice_slope:+.3f}", f"{slope:+.3f}", f"{relative:+.1e}"])  # fmt: skip
        at = at or [f"{one.rounds[one.at(part)]:,.0f}" for part in HORIZONS]
    return rows(["case", *at, "slope of the slice, dB", "of the volume, dB", "of the objective, relative"], cells)
