"""``fpdfp reproduce ct``: the paper's second experiment as it is printed, from its runs to figures and claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp.ct.device import module_for
from fpdfp.experiments import ct_results
from fpdfp.experiments.ct_setting import CLIENTS, NOISE_VARIANCE, PRINTED, SCANS, TV, Scan, Setting, setting
from fpdfp.experiments.ct_units import SEEDS, Store, Unit, names, plan, run_all
from fpdfp.experiments.reproduce import rounded


def reproduce(
    size: str,
    output: Path,
    *,
    volume: Path | None = None,
    device: str = "auto",
    rounds: int | None = None,
    seeds: int | None = None,
    only: Sequence[str] = (),
    seed: int | None = None,
    minutes: float | None = None,
) -> dict[str, Any] | None:
    """Do the runs that are not done yet, and write a page of those that are there.

    Each run is a file in the folder ``runs``, so that the same call goes on where another was interrupted, and several
    processes may work on the same folder. With ``only`` or ``seed`` just those runs are done and no page is written,
    and None is returned. With ``minutes`` no run is started that would not fit, by the time of those that are done;
    ``minutes=0`` starts none, and writes the page.
    """
    from rich.console import Console

    console, started = Console(), time.monotonic()
    chosen, store = SCANS[PRINTED, size], Store(output / "runs")
    count = (SEEDS if volume is None else 1) if seeds is None else _checks.integer("seeds", seeds, at_least=1)
    rounds = chosen.rounds if rounds is None else rounds
    units = plan(rounds, min(rounds, chosen.few), count)
    wanted = selected(units, only, seed)
    deadline = None if minutes is None else started + 60 * _checks.real("minutes", minutes, at_least=0.0)
    check_folder(store, described(chosen, volume))
    todo = [unit for unit in wanted if store.done(unit) is None]
    if todo and minutes != 0:
        module = module_for(device)
        where = setting(chosen, module, volume)
        keep_setting(store, where, module)
        console.print(f"{where.problem}; {where.source}; {len(todo)} of {len(wanted)} runs to do", highlight=False)
        run_all(store, where, wanted, deadline, lambda text: console.print(text, highlight=False))
    if only or seed is not None:
        return None
    summary = ct_results.write(store, units, output)
    for claim in summary["claims"]:
        console.print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}")
    console.print(f"results, figures and claims: {output}", highlight=False)
    return summary


def selected(units: Sequence[Unit], only: Sequence[str], seed: int | None) -> list[Unit]:
    """Return the units of some cases and of a seed."""
    for name in only:
        _checks.choice("only", name, tuple(names()))
    chosen = [unit for unit in units if not only or unit.name.removesuffix(f"-seed{unit.seed}") in only]
    found = [unit for unit in chosen if seed in (None, unit.seed)]
    if not found:
        raise ValueError(f"seed must be one that the runs have, {sorted({unit.seed for unit in chosen})}, got {seed}")
    return found


def described(chosen: Scan, volume: Path | None) -> dict[str, str]:
    """What a folder is for."""
    return {"model": chosen.model, "size": chosen.name, "file": "" if volume is None else volume.name}


def check_folder(store: Store, what: dict[str, str]) -> None:
    """Refuse a folder with the runs of another setting."""
    known = store.read("setting")
    different = [
        f"{name} {known[name]!r}, not {value!r}" for name, value in what.items() if known and known[name] != value
    ]
    if different:
        raise ValueError(f"output must be another folder: {store.folder} has runs with {' and '.join(different)}")


def keep_setting(store: Store, where: Setting, module: ModuleType) -> None:
    """Write down what the runs are of, and the truth's slice; refuse a folder where something else is written."""
    scanned, geometry = where.scan, where.geometry
    file = None if where.file == "" else Path(where.file)
    problem = {
        "volume": scanned.volume, "detector": scanned.detector, "views": scanned.views, "voxel": scanned.voxel,
        "source": scanned.distances[0], "panel": scanned.distances[1],
        "pixel": rounded([np.linalg.norm(geometry.u[0]), np.linalg.norm(geometry.v[0])]),
        "clients": CLIENTS, "mu": TV, "noise_variance": NOISE_VARIANCE, "truth": where.source,
        "projections": where.kind, "largest_line_integral": float(f"{float(where.projections.max()):.3g}"),
        "noise_floor": 0.5 * NOISE_VARIANCE * where.projections.size,
        "L": float(where.problem.lipschitz.mean()), "rho_max": where.problem.linop.squared_norm,
    }  # fmt: skip
    known = store.read("setting")
    if known is None:
        contents = {**described(scanned, file), "digest": where.digest, "problem": problem}
        store.write("setting", contents, to_host(where.truth[:, :, where.middle]))
    elif known["digest"] != where.digest:
        raise ValueError(
            f"output must be another folder: {store.folder} has runs of another setting ({known['digest']}, now "
            f"{where.digest}): the volume or the scan has changed"
        )
