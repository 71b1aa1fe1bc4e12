"""From the runs of the printed model to numbers, figures and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpdfp.experiments.ct_units import Store, Unit


def write(store: Store, units: Sequence[Unit], output: Path) -> dict[str, Any]:
    """Write results.json."""
    found = {unit.name: store.done(unit) for unit in units}
    summary = {
        "setting": store.read("setting"),
        "runs": {name: one for name, one in found.items() if one is not None},
        "missing": [name for name, one in found.items() if one is None],
        "claims": [],
    }
    (output / "results.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    return summary
