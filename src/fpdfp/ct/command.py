"""The command ``fpdfp ct reconstruct``: from a scanner's files and a description of the scan to a volume."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._settings import Document, Table
from fpdfp._typing import Array
from fpdfp.ct.calibration import Calibration, calibrate, widened
from fpdfp.ct.files import load_volume, save_volume
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.reconstruction import Reconstruction, reconstruct
from fpdfp.ct.rectify import rectify
from fpdfp.ct.scanners import Scan, binned, fast_length, find_scan, fitted, load_scan
from fpdfp.ct.scans import air, correct_hardening, from_rows, line_integrals, remove_rings
from fpdfp.ct.viewer import write_page

#: The description of a scan, in its folder.
NAME = "scan.toml"
#: A measured scan that comes with the package.
EXAMPLE = Path(__file__).with_name("example")
#: Seconds between two previews.
OFTEN = 10.0


def read_scan(folder: Path) -> Scan:
    """Read the folder of a scan: images, and distances in ``scan.toml``; or a scanner's own files.

    Counts are binned before the logarithm, which keeps noise from becoming a bias.
    """
    if folder.is_file():
        return load_scan(folder)
    own = find_scan(folder) if folder.is_dir() and not (folder / NAME).is_file() else None
    if own is not None:
        return load_scan(own)
    document = Document.read(folder / NAME)
    table = Table(document, (), document.data)
    first = table.text("first", "top", ("top", "bottom"))
    factor = table.integer("bin", 1, at_least=1)
    upright = table.text("axis", "vertical", ("vertical", "horizontal")) == "vertical"

    def images(key: str) -> Array:
        path = table.file(key)
        stack = np.load(path, mmap_mode="r") if path.suffix == ".npy" else load_volume(path, axes="xyz").data
        if stack.ndim == 2:
            stack = stack[None]
        turned = stack if upright else stack.swapaxes(1, 2)[:, ::-1]
        return binned(from_rows(turned, first=first), factor)  # type: ignore[arg-type]

    raw = images("images")
    dark = images("dark") if table.gives("dark") else None
    flat = images("flat") if table.gives("flat") else air(raw, None if dark is None else dark.mean(axis=0))
    data = line_integrals(raw, flat, dark, clip=table.real("clip", 1e-3, above=0.0), dead="interpolate")
    if table.flag("rings", False):
        data = remove_rings(data)
    if table.gives("hardening"):
        data = correct_hardening(data, table.reals("hardening", above=-math.inf))
    geometry = _geometry(table, len(data), (data.shape[1], data.shape[2]), factor)
    table.accept()
    return Scan(data, geometry)


def _geometry(table: Table, views: int, detector: tuple[int, int], factor: int) -> ConeBeam:
    source, panel = table.real("source", above=0.0), table.real("panel", above=0.0)
    pixel = table.real("pixel", above=0.0)
    angles = table.take("angles", None, list) if table.gives("angles") else None
    arc = table.real("arc", 360.0, above=0.0)
    if angles is not None and len(angles) != views:
        table.fail("angles", f"must be as many as there are images, {views}, got {len(angles)}")
    degrees = np.arange(views) * (arc / views) if angles is None else angles
    voxel = table.real("voxel", 0.0, at_least=0.0) or None
    return fitted(degrees, detector, source=source, panel=panel, pixel=pixel, binning=factor, voxel=voxel)


def enlarged(geometry: ConeBeam, extent: float) -> ConeBeam:
    """Return the scan with a volume wide enough for what some views show only."""
    wide = widened(geometry, extent)
    x, y, z = wide.volume
    return dataclasses.replace(wide, volume=(fast_length(x), fast_length(y), z))


def copy_example(folder: Path) -> None:
    """Write the measured scan that comes with the package into a new folder."""
    if folder.exists():
        raise ValueError(f"folder: {folder} is there already")
    shutil.copytree(EXAMPLE, folder)


def run(
    folder: Path, output: Path, *, tv: str, calibrated: bool, device: str, progress: bool | None = None
) -> tuple[Calibration | None, Reconstruction]:
    """Reconstruct the scan of a folder; write the volume, and next to it a report as a page and in JSON.

    Slices are shown in a picture next to it while it runs. After Ctrl-C, or if it is ended otherwise, the same call
    continues from a checkpoint next to the volume.
    """
    weight: Any = "auto"
    if tv != "auto":
        try:
            weight = float(tv)
        except ValueError:
            raise ValueError(f"tv must be a number of at least 0, or 'auto', got {tv!r}") from None
    if not output.parent.is_dir():
        raise ValueError(f"output: {output.parent}: folder not found")
    stem = output.name.removesuffix(".gz").rpartition(".")[0]
    checkpoint, preview = (output.with_name(f"{stem}.{rest}") for rest in ("checkpoint.npz", "preview.png"))
    data, geometry = read_scan(folder)
    found = calibrate(data, geometry) if calibrated else None
    used = geometry if found is None else enlarged(found.geometry, found.extent)
    result = reconstruct(
        data, used, tv=weight, device=device, checkpoint=checkpoint, callback=_Preview(preview), progress=progress
    )
    if result.status != "interrupted":
        preview.unlink(missing_ok=True)
    save_volume(output, result.volume, voxel=None if output.suffix == ".npy" else geometry.voxel)
    report = _report(found, result)
    output.with_name(f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    numbers = {**(report["calibration"] or {}), **report["reconstruction"]}
    curves = _draw_curves(found, result, residuals(result.volume, data, used))
    write_page(output.with_name(f"{stem}.html"), to_host(result.volume), title=stem, numbers=numbers, curves=curves)
    return found, result


def residuals(volume: Array, data: Array, geometry: ConeBeam) -> Array:
    """Return the residual of each view, relative to the view."""
    views, scan = rectify(data, geometry)
    error = to_host(XRayTransform(scan).apply(volume)) - to_host(views)
    square = np.square(to_host(views), dtype=np.float64).sum(axis=(1, 2))
    relative: Array = np.sqrt(np.square(error, dtype=np.float64).sum(axis=(1, 2)) / np.maximum(square, 1e-300))
    return relative


class _Preview:
    """Draws the middle slices from time to time."""

    def __init__(self, path: Path) -> None:
        self.path, self._drawn = path, -math.inf

    def __call__(self, iteration: int, volume: Array) -> None:
        if time.monotonic() - self._drawn < OFTEN:
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 4), layout="constrained")
        volume = to_host(volume)
        top = float(np.quantile(volume, 0.999)) or 1.0
        for axis, (panel, name) in enumerate(zip(figure.subplots(1, 3), ("x", "y", "z"), strict=True)):
            middle = np.take(volume, volume.shape[axis] // 2, axis=axis)
            panel.imshow(middle.T, cmap="gray", origin="lower", vmin=0.0, vmax=top)
            panel.set(title=f"the middle across {name}", xticks=[], yticks=[])
        figure.suptitle(f"iteration {iteration}")
        figure.savefig(self.path, dpi=80)
        self._drawn = time.monotonic()


def _report(found: Calibration | None, result: Reconstruction) -> dict[str, Any]:
    names = ("sense", "offset", "tilt", "extent", "margin", "residual", "given")
    calibration = None if found is None else {name: getattr(found, name) for name in names}
    weights, scores = result.scores.tolist()
    return {
        "calibration": calibration,
        "reconstruction": {
            "tv": result.tv, "weight": result.weight, "finer": result.finer, "status": result.status,
            "iterations": result.iterations, "seconds": round(result.seconds, 2), "objective": result.objective,
            "left_out": None if np.isnan(result.left_out) else result.left_out,
        },
        "curve": [{"tv": tv, "score": score} for tv, score in zip(weights, scores, strict=True)],
    }  # fmt: skip


def _draw_curves(found: Calibration | None, result: Reconstruction, by_view: Array) -> bytes:
    """Draw the curves of the calibration and of the weight, and the residual of each view."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3), layout="constrained")
    axes = figure.subplots(1, 4)
    for name, curve in {} if found is None else found.curves.items():
        axes[1 if name == "tilt" else 0].plot(*curve, "o-", markersize=3, label=name)
    axes[0].set(xlabel="offset, pixels", ylabel="residual of left-out views")
    axes[1].set(xlabel="tilt, degrees")
    if result.scores.size:
        axes[2].loglog(*result.scores, "o-", markersize=3)
    axes[2].set(xlabel="tv", ylabel="score of left-out views")
    axes[3].plot(by_view)
    axes[3].set(xlabel="view", ylabel="residual", ylim=(0, None))
    file = io.BytesIO()
    figure.savefig(file, dpi=100)
    return file.getvalue()
