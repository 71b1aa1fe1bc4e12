"""The report of a reconstruction: a page with three orthogonal slices, window and level, curves and numbers."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array

#: Voxels of a part of the page: browsers limit the length of a text.
PART = 1 << 24


def write_page(path: Path, volume: Array, *, title: str, numbers: Mapping[str, Any], curves: bytes) -> None:
    """Write a page that shows a volume in 256 shades; ``curves`` is a picture (PNG)."""
    low, high = float(volume.min()), float(volume.max())
    # The window at first: all but a thousandth.
    top = float(np.quantile(volume[:: max(1, len(volume) // 64)], 0.999)) or high or 1.0
    settings = {"shape": volume.shape, "low": low, "high": high, "top": top}
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(_text(value))}</td></tr>" for name, value in numbers.items()
    )
    page = resources.files("fpdfp.ct").joinpath("viewer.html").read_text(encoding="utf-8")
    fields = {
        "title": html.escape(title), "table": rows, "curves": base64.b64encode(curves).decode(),
        "volume": json.dumps(settings),
    }  # fmt: skip
    for name, value in fields.items():
        page = page.replace("{{" + name + "}}", value)
    before, after = page.split("{{parts}}")
    with path.open("w", encoding="utf-8") as file:
        file.write(before)
        for part in _parts(volume, low, high):
            file.write(f'<script type="text/plain" class="part">{part}</script>\n')
        file.write(after)


def _parts(volume: Array, low: float, high: float) -> Iterator[str]:
    """Yield planes across x as bytes, compressed, in base64."""
    planes = max(1, PART // math.prod(volume.shape[1:]))
    factor = 255.0 / ((high - low) or 1.0)
    for first in range(0, len(volume), planes):
        shades = np.rint((volume[first : first + planes] - low) * factor).astype(np.uint8)
        yield base64.b64encode(gzip.compress(shades.tobytes(), compresslevel=1)).decode()


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
