"""From the runs of the printed model to numbers, figures and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fpdfp
from fpdfp.experiments import ct_claims, ct_figures, ct_page
from fpdfp.experiments.ct_lines import lines_of
from fpdfp.experiments.ct_units import COLUMNS, LAMBDA, MINIMUM, STEP, Store, Unit

#: Columns whose numbers are rounded, to so many digits.
DIGITS = {"objective": 9, "psnr": 6, "slice_psnr": 6}


def write(store: Store, units: Sequence[Unit], output: Path) -> dict[str, Any]:
    """Write numbers, figures and the page of the runs that are there; say which are missing."""
    setting = store.read("setting")
    found = {unit.name: store.done(unit) for unit in units}
    if setting is None or not any(name != MINIMUM and one for name, one in found.items()):
        raise ValueError(f"output must be a folder with runs of so many rounds; {store.folder} has none")
    runs = {name: one for name, one in found.items() if one is not None}
    missing = [name for name, one in found.items() if one is None]
    summary = summarise(setting, runs, missing, 1 + max(unit.seed for unit in units))
    lines = lines_of(summary["runs"], {name: store.picture(name) for name in runs})
    summary["figures"] = ct_figures.draw(lines, store.picture("setting"), summary["lowest"], output)
    (output / "results.json").write_text(json.dumps(summary, ensure_ascii=False) + "\n")
    (output / "claims.md").write_text(ct_page.write(summary))
    return summary


def summarise(
    setting: Mapping[str, Any], runs: Mapping[str, Any], missing: Sequence[str], seeds: int
) -> dict[str, Any]:
    """Everything in numbers, so that the page and the curves can be made anew from it."""
    kept = {name: rounded(one) for name, one in runs.items()}
    minimum = kept.pop(MINIMUM, None)
    ends = [min(one["objective"]) for one in kept.values()]
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        **{name: setting[name] for name in ("model", "size", "file", "problem")},
        "step_times_L": STEP,
        "lambda": LAMBDA,
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


def rounded(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run with as many digits as matter."""

    def few(name: str, value: Any) -> Any:
        if name not in DIGITS:
            return value
        return [few(name, one) for one in value] if isinstance(value, list) else float(f"{value:.{DIGITS[name]}g}")

    columns = {name: few(name, value) for name, value in run.items() if name in (*COLUMNS, *DIGITS)}
    return {**run, **columns}
