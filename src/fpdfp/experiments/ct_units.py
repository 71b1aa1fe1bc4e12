"""The runs of the printed model: a file for each case and seed, which any process may make and another pick up."""

from __future__ import annotations

import contextlib
import io
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp.ct.device import device_name
from fpdfp.ct.reconstruction import reconstruct
from fpdfp.engines.files import write_whole
from fpdfp.experiments import pool
from fpdfp.experiments.ct_cases import FIXED_LEVELS, OURS, PER_ROUND, cases, compressors, our_cases, ours
from fpdfp.experiments.ct_setting import CLIENTS, TV, Setting
from fpdfp.experiments.runs import Case

#: λ as the paper has it for this experiment, and the step in units of 1/L with L the mean of the clients' constants:
#: constant, and the same for all cases.
LAMBDA, STEP = 1 / 20, 1.0
#: The cases that claims rest on have several seeds.
SEVERAL = (
    Case(PER_ROUND, None), Case(PER_ROUND, FIXED_LEVELS), Case(PER_ROUND, 500), Case(2, FIXED_LEVELS),
    Case(CLIENTS, FIXED_LEVELS),
)  # fmt: skip
#: So many for the phantom; other volumes have one.
SEEDS = 3
#: How levels are coded: an entropy coder. Of all codes it is the shortest here, and the others need not be counted.
CODEC = "rans"
#: The centralised reconstruction: iterations, and the relative change at which they end.
MINIMUM, ITERATIONS, ENOUGH = "minimum", 100, 1e-6
#: Seconds that a run may take beside its rounds.
BESIDE = 10.0
COLUMNS = ("round", "objective", "psnr", "slice_psnr", "bits_up", "bits_down")


class Unit(NamedTuple):
    """A run: its name, its case (None: the centralised reconstruction), its seed and its rounds."""

    name: str
    case: Case | None
    seed: int
    rounds: int

    @property
    def cost(self) -> int:
        """What it costs: gradients of clients."""
        return self.rounds * (CLIENTS if self.case is None else self.case.n)


def name_of(case: Case) -> str:
    """The name of a case in files and on the command line."""
    if case.method == OURS:
        return f"ours-n{case.n}"
    return f"n{case.n}-" + ("exact" if case.levels is None else f"s{case.levels}")


def names() -> list[str]:
    """All names that ``--only`` takes."""
    return [*(name_of(case) for case in [*cases(), *our_cases()]), MINIMUM]


def plan(rounds: int, few: int, seeds: int) -> list[Unit]:
    """Return all units, the most important first; those with everyone take longest, and their other seeds come late."""
    runs = [(case, seed) for seed in range(seeds) for case in SEVERAL if seed == 0 or case.n < CLIENTS]
    runs += [(case, 0) for case in cases() if case not in SEVERAL]
    runs += [(case, seed) for case in SEVERAL if case.n == CLIENTS for seed in range(1, seeds)]
    return [
        *(Unit(f"{name_of(case)}-seed{seed}", case, seed, rounds) for case, seed in runs),
        Unit(MINIMUM, None, 0, ITERATIONS),
        *(Unit(f"{name_of(case)}-seed0", case, 0, few) for case in our_cases()),
    ]


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated, at most 56: the 32nd parts, and closer at first."""
    spaced = np.concatenate([np.geomspace(1, rounds, 24), np.linspace(0, rounds, 33)[1:]])
    return sorted(set(spaced.round().astype(int).tolist()))


class Store:
    """The files of the units of a setting, in the folder ``runs``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what a file holds; None if it is not there."""
        path = self.folder / f"{name}.json"
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
        return found

    def write(self, name: str, contents: dict[str, Any], picture: Array) -> None:
        """Write a unit, its picture first, so that a unit which is there is whole."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, picture=picture.astype(np.float16))
        write_whole(self.folder / f"{name}.npz", buffer.getvalue())
        write_whole(self.folder / f"{name}.json", (json.dumps(contents, ensure_ascii=False) + "\n").encode())

    def picture(self, name: str) -> Array:
        """Return the middle slice of a unit."""
        with np.load(self.folder / f"{name}.npz") as file:
            picture: Array = file["picture"].astype(np.float32)
        return picture

    def done(self, unit: Unit) -> dict[str, Any] | None:
        """Return a unit's result if it is there, of this setting and of as many rounds."""
        found, setting = self.read(unit.name), self.read("setting")
        if found is None or setting is None or found["setting"] != setting["digest"] or found["asked"] != unit.rounds:
            return None
        return found

    def checkpoint(self, unit: Unit) -> Path:
        """Where a unit that was stopped is kept until it goes on."""
        return self.folder / f"{unit.name}.checkpoint"

    @contextlib.contextmanager
    def claimed(self, unit: Unit) -> Iterator[bool]:
        """Within the context no other process works on a unit; False where one does. A claim ends with its process."""
        try:
            import fcntl
        except ImportError:  # no such locks: two processes need --only
            yield True
            return
        with (self.folder / f".{unit.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def expected(self, unit: Unit, units: Sequence[Unit]) -> float | None:
        """Return the seconds that a unit should take, from those that are done, rather too many; None if none is."""
        rates: dict[bool, list[float]] = {True: [], False: []}
        for one in units:
            found = self.done(one)
            if found is not None and (one.case is None) == (unit.case is None):
                rates[one.case == unit.case].append(found["seconds_in_rounds"] / one.cost)
        known = rates[True] or rates[False]
        return 1.1 * max(known) * unit.cost + BESIDE if known else None


def run_all(store: Store, where: Setting, units: Sequence[Unit], deadline: float | None, say: Any) -> None:
    """Do the units that are not done, one after the other; start none that would end after the deadline."""
    for unit in units:
        with store.claimed(unit) as mine:
            if not mine or store.done(unit) is not None:
                continue
            expected = store.expected(unit, units)
            if deadline is not None and time.monotonic() + (expected or 0.0) > deadline:
                say(f"{unit.name}: not started, the time is short")
                continue
            say(f"{unit.name}: {run(store, where, unit, deadline)}")


def run(store: Store, where: Setting, unit: Unit, deadline: float | None) -> str:
    """Do a unit, going on from its checkpoint if there is one, and say what became of it."""
    started = time.perf_counter()
    made = centralised(where) if unit.case is None else federated(store, where, unit, unit.case, deadline)
    if made is None:
        return "stopped; the same command goes on"
    contents, x = made
    module = namespace(where.truth)
    head = {
        "unit": unit.name, "setting": where.digest, "asked": unit.rounds, "version": fpdfp.__version__,
        "code": pool.package_code(), "device": device_name(module), "seconds": time.perf_counter() - started,
    }  # fmt: skip
    store.write(unit.name, head | contents, to_host(x[:, :, where.middle]))
    store.checkpoint(unit).unlink(missing_ok=True)
    ends = {name: np.ravel(contents[name])[-1] for name in ("objective", "psnr", "slice_psnr")}
    return (
        f"objective {ends['objective']:.6g}, volume {ends['psnr']:.2f} dB, slice {ends['slice_psnr']:.2f} dB, "
        f"{head['seconds']:.0f} s"
    )


def federated(
    store: Store, where: Setting, unit: Unit, case: Case, deadline: float | None
) -> tuple[dict[str, Any], Array] | None:
    """Do a run of a federated method; None if it was stopped before its end."""
    how, step = ours(), None
    if case.method != OURS:
        step = STEP / float(where.problem.lipschitz.mean())
        how = {"method": fpdfp.FPDFP(step, lam=LAMBDA), "compressor": compressors(case, CODEC)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fpdfp.errors.DivergenceWarning)  # it is in the result
        result = fpdfp.solve(
            where.problem,
            **how,
            rounds=unit.rounds,
            clients_per_round=case.n,
            seed=unit.seed,
            evaluate_every=evaluations(unit.rounds),
            metrics={"psnr": where.psnr, "slice_psnr": where.slice_psnr},
            callbacks=[lambda _: deadline is not None and time.monotonic() > deadline],
            checkpoint=store.checkpoint(unit),
            checkpoint_every=unit.rounds,
            resume=True,
            progress=False,
        )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "stopped":
        return None
    history = result.history
    contents = {
        "clients_per_round": case.n, "levels": case.levels, "method": case.method, "seed": unit.seed, "step": step,
        "status": result.status, "messages": list(result.messages), "seconds_in_rounds": float(history.seconds[-1]),
        "bits_once_up": result.bits_once_up, "bits_once_down": result.bits_once_down,
        **{name: history[name].tolist() for name in COLUMNS},
    }  # fmt: skip
    return contents, result.x


def centralised(where: Setting) -> tuple[dict[str, Any], Array]:
    """Minimise with all views in one place."""
    module, scan = namespace(where.truth), where.scan
    found = reconstruct(
        where.projections,
        where.geometry,
        tv=TV / (scan.views * scan.weight),
        nonnegative=False,
        iterations=ITERATIONS,
        tol=ENOUGH,
        device="cpu" if module is np else "cuda",
        progress=False,
    )
    if found.status == "interrupted":
        raise KeyboardInterrupt
    x = found.volume
    contents = {
        "objective": where.problem.objective(x), "psnr": where.psnr(x), "slice_psnr": where.slice_psnr(x),
        "iterations": found.iterations, "seconds_in_rounds": found.seconds,
    }  # fmt: skip
    return contents, x
