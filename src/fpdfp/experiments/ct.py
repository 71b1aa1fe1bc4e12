"""``fpdfp reproduce ct``: the paper's second experiment as it is printed, from its runs to figures and claims."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fpdfp
from fpdfp import _checks
from fpdfp.declarative.pool import Store
from fpdfp.declarative.scan import ITERATIONS
from fpdfp.declarative.settings import PRINTED
from fpdfp.errors import ArgumentError
from fpdfp.experiments import ct_claims, ct_figures, ct_page, page
from fpdfp.experiments import ct_runs as scans
from fpdfp.experiments.cases import Case
from fpdfp.experiments.ct_lines import lines_of
from fpdfp.experiments.ct_runs import Bench, Unit, cases, name_of, our_cases

#: The cases that claims rest on have several seeds.
SEVERAL = (Case(5, None), Case(5, 1000), Case(5, 500), Case(2, 1000), Case(scans.CLIENTS, 1000))
#: Columns whose numbers are rounded, to so many digits.
DIGITS = {"objective": 9, "psnr": 6, "slice_psnr": 6}


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

    console, started, chosen = Console(), time.monotonic(), scans.SIZES[PRINTED, size]
    bench = Bench(output / "runs", chosen, device, volume)
    count = (scans.SEEDS if volume is None else 1) if seeds is None else _checks.integer("seeds", seeds, at_least=1)
    rounds = chosen.rounds if rounds is None else rounds
    units = plan(rounds, min(rounds, chosen.few), count)
    wanted = select(units, only, seed)
    deadline = None if minutes is None else started + 60 * _checks.real("minutes", minutes, at_least=0.0)
    what = {"model": PRINTED, "size": size, "file": "" if volume is None else volume.name}
    check_folder(bench.store, what)
    todo = [unit for unit in wanted if bench.done(unit) is None]
    if todo and minutes != 0:
        bench.keep_setting(what)
        where = bench.where
        console.print(f"{where.problem}; {where.source}; {len(todo)} of {len(wanted)} runs to do", highlight=False)
        bench.run_all(wanted, deadline, lambda text: console.print(text, highlight=False))
    if only or seed is not None:
        return None
    return write(bench, units, output)


def plan(rounds: int, few: int, seeds: int) -> list[Unit]:
    """Return all units, the most important first; those with everyone take longest, and their other seeds come late."""
    runs = [(case, seed) for seed in range(seeds) for case in SEVERAL if seed == 0 or case.n < scans.CLIENTS]
    runs += [(case, 0) for case in cases() if case not in SEVERAL]
    runs += [(case, seed) for case in SEVERAL if case.n == scans.CLIENTS for seed in range(1, seeds)]
    return [
        *(Unit(f"{name_of(case)}-seed{seed}", case, seed, rounds) for case, seed in runs),
        Unit(scans.MINIMUM, None, 0, ITERATIONS),
        *(Unit(f"{name_of(case)}-seed0", case, 0, few) for case in our_cases()),
    ]


def select(units: Sequence[Unit], only: Sequence[str], seed: int | None) -> list[Unit]:
    """Return the units of some cases and of a seed."""
    names = (*map(name_of, [*cases(), *our_cases()]), scans.MINIMUM)
    for name in only:
        _checks.choice("only", name, names)
    chosen = [unit for unit in units if not only or unit.name.removesuffix(f"-seed{unit.seed}") in only]
    found = [unit for unit in chosen if seed in (None, unit.seed)]
    if not found:
        raise ArgumentError(
            "seed", f"must be one that the runs have, {sorted({unit.seed for unit in chosen})}, got {seed}"
        )
    return found


def check_folder(store: Store, what: Mapping[str, str]) -> None:
    """Refuse a folder with the runs of another setting."""
    known = store.read("setting")
    different = [
        f"{name} {known[name]!r}, not {value!r}" for name, value in what.items() if known and known[name] != value
    ]
    if different:
        raise ValueError(f"output must be another folder: {store.folder} has runs with {' and '.join(different)}")


def write(bench: Bench, units: Sequence[Unit], output: Path) -> dict[str, Any]:
    """Write numbers, figures and the page of the runs that are there; say which are missing."""
    store, found = bench.store, {unit.name: bench.done(unit) for unit in units}
    setting = store.read("setting")
    if setting is None or not any(name != scans.MINIMUM and one for name, one in found.items()):
        raise ValueError(f"output must be a folder with runs of so many rounds; {store.folder} has none")
    runs = {name: one for name, one in found.items() if one is not None}
    missing = [name for name, one in found.items() if one is None]
    summary = summarise(setting, runs, missing, 1 + max(unit.seed for unit in units))
    lines = lines_of(summary["runs"], {name: store.picture(name) for name in runs})
    summary["figures"] = ct_figures.draw(lines, store.picture("setting"), summary["lowest"], output)
    page.publish(output, summary, ct_page.write(summary), indent=None)
    return summary


def summarise(
    setting: Mapping[str, Any], runs: Mapping[str, Any], missing: Sequence[str], seeds: int
) -> dict[str, Any]:
    """Everything in numbers, so that the page and the curves can be made anew from it."""
    kept = {name: drop_digits(one) for name, one in runs.items()}
    minimum = kept.pop(scans.MINIMUM, None)
    ends = [min(one["objective"]) for one in kept.values()]
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        **{name: setting[name] for name in ("model", "size", "file", "problem")},
        "step_times_L": scans.STEP,
        "lambda": scans.LAMBDA,
        "rounds": max(one["asked"] for one in kept.values()),
        "seeds": seeds,
        "devices": sorted({one["device"] for one in runs.values()}),
        "codes": sorted({one["code"] for one in runs.values()}),
        "minimum": minimum,
        "lowest": min(ends if minimum is None else [*ends, minimum["objective"]]),
        "missing": list(missing),
        "runs": kept,
        "claims": [claim._asdict() for claim in ct_claims.judge(lines_of(kept, {}))],
    }


def drop_digits(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run with as many digits as matter."""

    def few(name: str, value: Any) -> Any:
        if name not in DIGITS:
            return value
        return [few(name, one) for one in value] if isinstance(value, list) else float(f"{value:.{DIGITS[name]}g}")

    columns = {name: few(name, value) for name, value in run.items() if name in (*scans.COLUMNS, *DIGITS)}
    return {**run, **columns}
