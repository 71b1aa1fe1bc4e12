"""The runs of the second experiment: cone-beam CT with total variation among 17 clients that hold views.

A file for each run, which any process may make and another pick up. :mod:`fpdfp.declarative.scan` has the models.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp.ct.device import device_name
from fpdfp.declarative import pool
from fpdfp.declarative.build import build, solve_options
from fpdfp.declarative.scan import BuiltScan, Scan
from fpdfp.declarative.settings import MEAN, PRINTED, Settings
from fpdfp.experiments.cases import Case, Step, declare, name_levels, round_numbers, solve, space_out

CLIENTS = 17
NOISE_VARIANCE = 0.02
LEVELS: tuple[int | None, ...] = (500, 1000, 3000, 5000, None)
#: The participants where the levels vary, the levels where participation varies, and the participations.
PER_ROUND, FIXED_LEVELS, PARTICIPATION = 5, 1000, (2, 5, 10, CLIENTS)
#: PSNR as the paper reports it, in dB.
PAPER = {
    Case(5, 500): 44.76, Case(5, 1000): 45.78, Case(5, 3000): 45.83, Case(5, 5000): 45.86, Case(5, None): 45.86,
    Case(2, 1000): 45.10, Case(10, 1000): 45.92, Case(17, 1000): 45.82,
}  # fmt: skip
#: λ as the paper and the file of settings have it, and the step in units of 1/L with L the mean of the clients'
#: constants: constant, and the same for all cases.
LAMBDA, STEP = 1 / 20, 1.0
#: Ours: the method and the messages of fpdfp.solve with default settings, but with a few dual steps a round, which is
#: enough for images.
OURS = "ours"
DUAL_STEPS, LEVELS_UP, LEVELS_DOWN = 10, 5, 31
#: How levels are coded: an entropy coder. Of all codes it is the shortest here, and the others need not be counted.
CODEC = "rans"
#: So many seeds for the phantom; other volumes have one.
SEEDS = 3
#: The centralised reconstruction.
MINIMUM = "minimum"
#: Seconds that a run may take beside its rounds.
BESIDE = 10.0
COLUMNS = ("round", "objective", "psnr", "slice_psnr", "bits_up", "bits_down")


class Size(NamedTuple):
    """A scan by name, and the rounds of FPDFP and of the shifted method."""

    name: str
    scan: Scan
    rounds: int
    few: int

    def declare(self, device: str = "cpu", volume: Path | None = None) -> dict[str, Any]:
        """Return what differs from the file of settings."""
        model, shape, detector, views = self.scan
        data = {"model": model, "shape": list(shape), "detector": list(detector), "views": views, "device": device}
        given = {} if volume is None else {"volume": str(volume.expanduser().absolute())}
        return {f"data.{name}": value for name, value in {**data, **given}.items()}

    def build(self, device: str = "cpu", volume: Path | None = None) -> BuiltScan:
        """Make the scan of a volume, of the analytic thorax phantom if none is given, and deal its views out."""
        return build_scan(declare("ct", self.declare(device, volume)))


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


def build_scan(settings: Settings) -> BuiltScan:
    """Make the problem of a scan."""
    built = build(settings)
    assert isinstance(built, BuiltScan)
    return built


def cases() -> list[Case]:
    """All cases of FPDFP, each once."""
    by_levels = [Case(PER_ROUND, levels) for levels in LEVELS]
    return [*by_levels, *(Case(n, FIXED_LEVELS) for n in PARTICIPATION if n != PER_ROUND)]


def our_cases() -> list[Case]:
    """The shifted method with as many clients, and with everyone."""
    return [Case(n, LEVELS_UP, OURS) for n in (PER_ROUND, CLIENTS)]


def short(case: Case, some: Sequence[Case]) -> str:
    """What tells a case apart from the others of a list."""
    return f"n = {case.n}" if len({one.n for one in some}) > 1 else name_levels(case.levels)


def name_of(case: Case) -> str:
    """The name of a case in files and on the command line."""
    if case.method == OURS:
        return f"ours-n{case.n}"
    return f"n{case.n}-" + ("exact" if case.levels is None else f"s{case.levels}")


def ours() -> dict[str, Any]:
    """What a file of settings has for the shifted method."""
    return {
        "method": {"kind": "ShiftedPDFP", "preconditioner": "fourier", "dual_steps": DUAL_STEPS},
        "compressor": {"kind": "QSGD", "levels": LEVELS_UP, "norm": "max"},
        "downlink": {"kind": "QSGD", "levels": LEVELS_DOWN, "norm": "max"},
    }


def messages(case: Case, codec: str = "auto") -> dict[str, Any]:
    """What it has for the messages of FPDFP: one norm for each slice of x, one for each slice and component of v."""
    if case.levels is None:
        return {"kind": "none"}
    blocks = {"x": [2], "v": [0, 3]}
    return {
        name: {"kind": "QSGD", "levels": case.levels, "block": block, "codec": codec} for name, block in blocks.items()
    }


def compressors(case: Case, codec: str = "auto") -> Any:
    """The same as ``fpdfp.solve`` takes it."""
    return solve_options(declare("ct", {"compressor": messages(case, codec)}))["compressor"]


def digest(size: Size, where: BuiltScan) -> str:
    """A digest of everything that a run's data comes from; the last bits of the truth may differ between machines."""
    truth, scan = to_host(where.there).astype(np.float64), size.scan
    moments = [f"{float(np.mean(truth**power)):.6e}" for power in (1, 2)]
    known = (
        scan.model, size.name, scan.volume, scan.detector, scan.views, f"{scan.weight:.9g}", where.tv, NOISE_VARIANCE,
        0, where.source, moments, where.owner.tolist(),
    )  # fmt: skip
    return hashlib.sha256(repr(known).encode()).hexdigest()[:12]


def describe_scan(size: Size, where: BuiltScan) -> dict[str, Any]:
    """The problem in numbers."""
    scan, geometry = size.scan, where.geometry
    return {
        "volume": scan.volume, "detector": scan.detector, "views": scan.views, "voxel": scan.voxel,
        "source": scan.distances[0], "panel": scan.distances[1],
        "pixel": round_numbers([np.linalg.norm(geometry.u[0]), np.linalg.norm(geometry.v[0])]),
        "clients": CLIENTS, "mu": where.tv, "noise_variance": NOISE_VARIANCE, "truth": where.source,
        "projections": where.kind, "largest_line_integral": float(f"{float(where.projections.max()):.3g}"),
        "L": float(where.problem.lipschitz.mean()), "rho_max": where.problem.linop.squared_norm,
    }  # fmt: skip


def evaluations(model: str, rounds: int) -> list[int]:
    """The rounds after which a run is evaluated, at most 56 with the printed model and 32 with the other."""
    return space_out(rounds, 24, 32) if model == PRINTED else space_out(rounds, 12, 20)


class Unit(NamedTuple):
    """A run: its name, its case (None: the centralised reconstruction), its seed, its rounds and its steps.

    The steps of the paper's rule are None: the same constant one for all cases, with the paper's λ.
    """

    name: str
    case: Case | None
    seed: int
    rounds: int
    step: Step | None = None

    @property
    def cost(self) -> int:
        """What it costs: gradients of clients."""
        return self.rounds * (CLIENTS if self.case is None else self.case.n)


class Bench:
    """The runs of a setting: where they are kept, and what they are of."""

    def __init__(self, folder: Path, size: Size, device: str = "cpu", volume: Path | None = None) -> None:
        self.store, self.size, self.changes = pool.Store(folder), size, size.declare(device, volume)

    @property
    def where(self) -> BuiltScan:
        """The problem, made when it is first needed."""
        return build_scan(declare("ct", self.changes))

    def done(self, unit: Unit) -> dict[str, Any] | None:
        """Return a unit's result if it is there, of this setting and of as many rounds."""
        found, setting = self.store.read(unit.name), self.store.read("setting")
        if found is None or setting is None or found["setting"] != setting["digest"] or found["asked"] != unit.rounds:
            return None
        kept: dict[str, Any] = found
        return kept

    def keep_setting(self, what: dict[str, Any]) -> None:
        """Write down what the runs are of, and the truth's slice; refuse a folder where something else is written."""
        known, now = self.store.read("setting"), digest(self.size, self.where)
        if known is None:
            noise = 0.5 * NOISE_VARIANCE * self.where.projections.size
            problem = {**describe_scan(self.size, self.where), "noise_floor": noise}
            picture = to_host(self.where.there[:, :, self.where.middle])
            self.store.write("setting", {**what, "digest": now, "problem": problem}, picture)
        elif known["digest"] != now:
            raise ValueError(
                f"output must be another folder: {self.store.folder} has runs of another setting ({known['digest']}, "
                f"now {now}): the volume or the scan has changed"
            )

    def expected(self, unit: Unit, units: Sequence[Unit]) -> float | None:
        """Return the seconds that a unit should take, from those that are done, rather too many; None if none is."""
        rates: dict[bool, list[float]] = {True: [], False: []}
        for one in units:
            found = self.done(one)
            if found is not None and (one.case is None) == (unit.case is None):
                rates[one.case == unit.case].append(found["seconds_in_rounds"] / one.cost)
        known = rates[True] or rates[False]
        return 1.1 * max(known) * unit.cost + BESIDE if known else None

    def run_all(self, units: Sequence[Unit], deadline: float | None, say: Callable[[str], Any]) -> None:
        """Do the units that are not done, one after the other; start none that would end after the deadline."""
        for unit in units:
            with self.store.claim(unit.name) as mine:
                if not mine or self.done(unit) is not None:
                    continue
                expected = self.expected(unit, units)
                if deadline is not None and time.monotonic() + (expected or 0.0) > deadline:
                    say(f"{unit.name}: not started, the time is short")
                    continue
                say(f"{unit.name}: {self.run(unit, deadline)}")

    def run(self, unit: Unit, deadline: float | None) -> str:
        """Do a unit, going on from its checkpoint if there is one, and say what became of it."""
        started, where = time.perf_counter(), self.where
        made = self.solve_centrally() if unit.case is None else self.solve_federated(unit, unit.case, deadline)
        if made is None:
            return "stopped; the same command goes on"
        contents, x = made
        head = {
            "unit": unit.name, "setting": digest(self.size, where), "asked": unit.rounds,
            "version": fpdfp.__version__, "code": pool.package_code(), "device": device_name(namespace(where.there)),
            "seconds": time.perf_counter() - started,
        }  # fmt: skip
        self.store.write(unit.name, head | contents, to_host(x[:, :, where.middle]))
        self.store.checkpoint(unit.name).unlink(missing_ok=True)
        ends = {name: np.ravel(contents[name])[-1] for name in ("objective", "psnr", "slice_psnr")}
        return (
            f"objective {ends['objective']:.6g}, volume {ends['psnr']:.2f} dB, slice {ends['slice_psnr']:.2f} dB, "
            f"{head['seconds']:.0f} s"
        )

    def declare(self, unit: Unit, case: Case) -> Settings:
        """Return the settings of a run."""
        problem = self.where.problem
        method: dict[str, Any] = {"compressor": messages(case, CODEC if unit.step is None else "auto")}
        if case.method == OURS:
            method = ours()
        elif unit.step is None:
            method["method.step"] = float(Step(STEP).schedule(problem)(0))
        else:
            method["method"] = {"kind": "FPDFP", "step": unit.step.declare(problem)}
        run = {
            "run.rounds": unit.rounds, "run.clients_per_round": case.n, "run.checkpoint_every": unit.rounds,
            "run.evaluate_every": evaluations(self.size.scan.model, unit.rounds),
        }  # fmt: skip
        return declare("ct", {**self.changes, **method, **run})

    def solve_federated(self, unit: Unit, case: Case, deadline: float | None) -> tuple[dict[str, Any], Array] | None:
        """Do a run of a federated method; None if it was stopped before its end."""
        settings, where = self.declare(unit, case), self.where
        result = solve(
            settings,
            unit.seed,
            metrics={"psnr": where.psnr, "slice_psnr": where.slice_psnr},
            callbacks=[lambda _: deadline is not None and time.monotonic() > deadline],
            checkpoint=self.store.checkpoint(unit.name),
            resume=True,
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if result.status == "stopped":
            return None
        history, step = result.history, settings["method"]["step"] if case.method != OURS else None
        contents = {
            "clients_per_round": case.n, "levels": case.levels, "method": case.method, "seed": unit.seed, "step": step,
            "status": result.status, "messages": list(result.compression),
            "seconds_in_rounds": float(history.seconds[-1]),
            "bits_once_up": result.bits_once_up, "bits_once_down": result.bits_once_down,
            **{name: history[name].tolist() for name in COLUMNS},
        }  # fmt: skip
        return contents, result.x

    def solve_centrally(self) -> tuple[dict[str, Any], Array]:
        """Minimise with all views in one place."""
        found = self.where.reconstruct()
        x, where = found.volume, self.where
        contents = {
            "objective": where.problem.objective(x), "psnr": where.psnr(x), "slice_psnr": where.slice_psnr(x),
            "iterations": found.iterations, "seconds_in_rounds": found.seconds,
        }  # fmt: skip
        return contents, x
