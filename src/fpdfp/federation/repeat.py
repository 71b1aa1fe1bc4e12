"""An analysis that has ended, repeated later from its run folder: with the same digits, or the difference is named.

A fit of a formula writes ``analysis.json`` into its run folder: the estimator with its parameters, the formula, the
sites, the releases of all sides and a digest of each site's data (:func:`digest_of_data`).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp import _files as files
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.runs.folder import SavedRun, load, write_json
from fpdfp.runs.recorder import versions

if TYPE_CHECKING:
    from fpdfp.federation.analyst import Federation

FILE, SALT = "analysis.json", "salt"
FORMAT = 1


def digest_of_data(folder: Path, fingerprint: str) -> str:
    """Return a digest of a site's data that shows others whether it has changed, and nothing else.

    It is salted with a secret of the site, in its folder: no one can compare it with a table of their own.
    """
    path = folder / SALT
    if not path.exists():
        files.write_whole(path, secrets.token_bytes(32), flush=True, private=True)
    return hashlib.sha256(path.read_bytes() + fingerprint.encode()).hexdigest()[:16]


def write_analysis(
    folder: Path, engine: Any, estimator: str, given: Mapping[str, Any], objects: Mapping[str, str], fit: Sequence[str],
    rows: str = "",
) -> None:  # fmt: skip
    """Write down from what a fit of a formula can be repeated, to the rows that meet a condition."""
    try:
        said = {site["name"]: site for site in engine.link.status()["sites"]}
    except (OSError, MessageError):
        said = {}  # the fit is worth more than this
    tree = {
        "format": FORMAT,
        "estimator": estimator,
        "parameters": {name: given[name] for name in given if name not in fit},
        "fit": {name: given[name] for name in given if name in fit},
        "objects": dict(objects),
        "rows": rows,
        "sites": list(engine.names),
        "versions": versions(),
        "releases": {name: said.get(name, {}).get("software", "unknown") for name in engine.names},
        "data": {name: said.get(name, {}).get("data", "unknown") for name in engine.names},
    }
    write_json(folder / FILE, tree)


class Repetition(NamedTuple):
    """A fit that was repeated.

    Attributes
    ----------
    estimator
        The fitted estimator.
    folder
        The new run folder.
    same
        Whether all coefficients have the same bits.
    differences
        What differs between then and now, in words.
    """

    estimator: Any
    folder: Path
    same: bool
    differences: tuple[str, ...]

    def __str__(self) -> str:
        result = "all coefficients have the same digits" if self.same else "the coefficients differ"
        return "\n".join([f"{self.folder}: {result}", *(f"  {one}" for one in self.differences)])


def repeat(folder: Path | str, federation: Federation, **objects: Any) -> Repetition:
    """Fit again what a run folder is about, and compare.

    Parameters
    ----------
    folder
        The run folder.
    federation
        The federation, or another of the same sites.
    objects
        Parameters of the estimator that are objects, such as ``penalty=fpdfp.Graph(...)``; the error names them.
    """
    import fpdfp

    folder = Path(folder)
    before = read_analysis(folder)
    missing = [f"{name}={text}" for name, text in before["objects"].items() if name not in objects]
    if missing:
        raise ArgumentError("objects", f"must give what was an object then: {', '.join(missing)}")
    fit = dict(before["fit"])
    parameters = {
        name: fpdfp.models.read_parameter(value, name) for name, value in before["parameters"].items()
    } | objects
    if before.get("rows"):
        federation = federation.filter(before["rows"])  # type: ignore[assignment]
    fit |= {name: objects.pop(name) for name in ("weights",) if name in objects}
    parameters = {name: value for name, value in parameters.items() if name not in fit}
    federation.run = f"{folder.name[:48]}-again-{secrets.token_hex(3)}"
    estimator = getattr(fpdfp, before["estimator"])(**parameters)
    estimator.fit(federation, fit.pop("formula"), **fit)
    after = estimator.run_folder_
    differences = compare(folder, after)
    same = np.array_equal(_point(load(folder)), _point(load(after)))
    if not same and not differences:
        differences = ["nothing that is written down differs"]
    return Repetition(estimator, after, same, tuple(differences))


def read_analysis(folder: Path) -> dict[str, Any]:
    """Return what a run folder says about its analysis; refuse one that cannot be repeated, by name."""
    path = folder / FILE
    if not path.is_file():
        raise ArgumentError("folder", f"must hold a finished fit of a formula, but {path} is missing")
    tree: dict[str, Any] = json.loads(path.read_bytes())
    if tree.get("format") != FORMAT:
        raise ArgumentError("folder", f"{path} has format {tree.get('format')}; this release reads format {FORMAT}")
    return tree


def compare(before: Path, after: Path) -> list[str]:
    """Say in what two run folders of an analysis differ: releases, sites, data, the method, and the coefficients."""
    then, now = read_analysis(before), read_analysis(after)
    found = []
    for words, name in (("release", "versions"), ("release at", "releases"), ("data of", "data")):
        for key in sorted({*then[name], *now[name]}):
            old, new = then[name].get(key), now[name].get(key)
            if old != new:
                found.append(f"{words} {key}: {old}, and now {new}")
    if then["sites"] != now["sites"]:
        found.append(f"sites: {', '.join(then['sites'])}, and now {', '.join(now['sites'])}")
    runs = load(before), load(after)
    for name in ("method", "seed", "rounds", "status"):
        old, new = (run.info.get(name) for run in runs)
        if old != new:
            found.append(f"{name}: {old}, and now {new}")
    x, y = map(_point, runs)
    if x.shape != y.shape:
        found.append(f"coefficients: {x.size}, and now {y.size}")
    elif not np.array_equal(x, y):
        scale = max(float(abs(x).max(initial=0.0)), np.finfo(float).tiny)
        found.append(f"coefficients: by up to {float(abs(x - y).max()) / scale:.1e} of the largest")
    return found


def _point(run: SavedRun) -> Array:
    if run.x is None:
        raise ArgumentError("folder", f"must hold a finished run, but {run.path} has no result")
    return run.x
