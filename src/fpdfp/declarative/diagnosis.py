"""The state of this machine, and how to install what is missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from fpdfp import __version__
from fpdfp.ct.device import device_name, missing_gpu
from fpdfp.datasets.registry import REGISTRY, find, folders
from fpdfp.declarative import pool

REQUIRED = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "rich", "typer", "matplotlib", "pooch")
#: Packages that some parts need: the module, what it is for, and the packages to install, in the versions that fit.
OPTIONAL = {
    "cupy": ("runs on a GPU", "cupy-cuda12x>=13 (or cupy-cuda13x>=13.6)"),
    "ray": ("clients in the actors of a cluster", "ray>=2.40,<3"),
    "pyarrow": ("Parquet files", "pyarrow>=15"),
    "h5py": ("volumes in MATLAB files of version 7.3", "h5py>=3.10"),
    "polars": ("Polars frames for the estimators", "polars>=1.20"),
    "pylops": ("PyLops operators as B", "pylops>=2.3"),
    "pyproximal": ("PyProximal operators as g", "pyproximal>=0.13,<1"),
    "tensorboard": ("logs for TensorBoard", "tensorboard>=2.17,<3"),
    "mlflow": ("logs for MLflow", "mlflow-skinny>=3.1,<4"),
}
DISTRIBUTIONS = {"cupy": "cupy-cuda12x", "mlflow": "mlflow-skinny"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def diagnose() -> dict[str, Any]:
    """Return everything, for a program."""
    return {
        "fpdfp": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in REQUIRED},
        "cores": {"all": os.cpu_count(), "usable": pool.cores()},
        "memory_bytes": _memory(),
        "gpu": _gpu(),
        "optional": {name: _optional(name) for name in OPTIONAL},
        "data": _data(),
        "browser": next(filter(None, map(shutil.which, BROWSERS)), None),
    }


def _version(distribution: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def _optional(module: str) -> dict[str, Any]:
    what, package = OPTIONAL[module]
    first, _, rest = package.partition(" ")
    command = f"pip install '{first}' {rest}".strip()
    there = importlib.util.find_spec(module) is not None
    version = (_version(module) or _version(DISTRIBUTIONS.get(module, module))) if there else None
    return {"installed": there, "version": version, "for": what, "get": None if there else command}


def _memory() -> dict[str, int | None]:
    """Return the memory of the machine, and what a container may use of it."""
    try:
        whole: int | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        whole = None
    limit = None
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    return {"all": whole, "limit": limit}


def _gpu() -> dict[str, Any]:
    reason = missing_gpu()
    if reason is not None:
        return {"usable": False, "reason": reason}
    import cupy

    return {"usable": True, "name": device_name(cupy)}


def _data() -> dict[str, Any]:
    """Return where data sets are looked for, and which are there."""
    places = folders()
    found = {}
    for name, entry in REGISTRY.items():
        path = next(filter(None, (find(folder, entry.file) for folder in places)), None)
        found[name] = None if path is None else str(path)
    return {"folders": [str(folder) for folder in places], "sets": found}


def show(found: dict[str, Any]) -> None:
    """Print it for a person."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, title="fpdfp doctor")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, text: str) -> None:
        # What is in brackets would be taken for markup.
        table.add_row(Text(name), Text(text))

    memory, gpu = found["memory_bytes"], found["gpu"]
    row("fpdfp", found["fpdfp"])
    row("Python", f"{found['python']['version']}, {found['python']['executable']}")
    row("platform", found["platform"])
    row("packages", ", ".join(f"{name} {version or 'missing'}" for name, version in found["packages"].items()))
    row("cores", f"{found['cores']['usable']} of {found['cores']['all']}")
    limit = "" if memory["limit"] is None else f", of which {_gigabytes(memory['limit'])} may be used"
    row("memory", "unknown" if memory["all"] is None else _gigabytes(memory["all"]) + limit)
    row("GPU", gpu["name"] if gpu["usable"] else f"none: {gpu['reason']}")
    for name, one in found["optional"].items():
        state = one["version"] or "installed" if one["installed"] else f"missing: {one['get']}"
        row(name, f"{state} ({one['for']})")
    row("data", "\n".join(found["data"]["folders"]))
    for name, place in found["data"]["sets"].items():
        row(f"  {name}", place or "not there; it is downloaded when it is needed")
    row("browser", found["browser"] or "none found (Chromium is needed for the tests of the report alone)")
    Console().print(table, highlight=False)


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
