"""Runs as a page: what is in their folders, read and joined into one HTML text."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import html
import json
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fpdfp._sections import FILES
from fpdfp.errors import RunFolderError
from fpdfp.report.describe import describe
from fpdfp.report.pictures import Volumes, pack, volumes_of
from fpdfp.runs import SavedRun, find, load
from fpdfp.runs.folder import natural, write_file

SCRIPTS = (
    "dom.js", "format.js", "scales.js", "series.js", "chart.js", "runs.js", "curves.js", "settings.js", "clients.js",
    "sites.js", "model.js", "sections.js", "forest.js", "inference.js", "selection.js", "evaluation.js", "learning.js",
    "slices.js", "main.js",
)  # fmt: skip
#: The files that a run's numbers come from, and those of its volumes.
SMALL = ("run.json", "history.csv", "history.parquet", "model.json", "final.npz", "best.npz", *FILES)
LARGE = ("run.json", "truth.npz", "final.npz", "best.npz")

Signature = tuple[Any, ...]
Runs = str | Path | SavedRun | Iterable[str | Path | SavedRun]


def write(runs: Runs, path: str | Path, *, title: str | None = None) -> Path:
    """Write a report of runs: tables, curves, clients, models and slices.

    It is one self-contained HTML file, which can be sent, archived and opened anywhere.

    Parameters
    ----------
    runs
        Folders of runs, folders that contain such folders, results of :func:`fpdfp.runs.load`, or a list of these.
    path
        The HTML file; its folder is made if needed.
    title
        The title of the page; by default the name of the only run, of the folder, or how many runs there are.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fpdfp, fpdfp.report
    >>> problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(3), [1.0, 2.0, 0.0]), fpdfp.penalties.L1(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fpdfp.runs.Recorder(f"{folder}/first", problem).solve(fpdfp.PDFP(), rounds=10)
    ...     file = fpdfp.report.write(folder, f"{folder}/report.html")
    ...     "</html>" in file.read_text()
    True
    """
    paths = [one.path if isinstance(one, SavedRun) else Path(one) for one in _list(runs)]
    folders = find(paths)
    if not folders:
        where = ", ".join(map(str, paths)) or "an empty list"
        raise ValueError(f"runs must be folders of runs or folders that contain some; found none in {where}")
    reader = Reader(paths, title or title_of(paths, folders))
    found = reader.folders()
    text = page(reader.runs(found), reader.volumes(found), live=False)
    target = Path(path)
    write_file(target, text.encode("utf-8", "replace"))
    return target


def _list(runs: Runs) -> list[str | Path | SavedRun]:
    if isinstance(runs, str | Path | SavedRun):
        return [runs]
    if not isinstance(runs, Iterable):
        raise TypeError(f"runs must be folders of runs, got {type(runs).__name__}")
    return list(runs)


def title_of(paths: list[Path], folders: list[Path]) -> str:
    """Return the name of the only run, of the one folder that was given, or how many runs there are."""
    if len(folders) == 1 and (name := load(folders[0]).info.get("name")):
        return str(name)
    if len(paths) != 1:
        return f"{len(folders)} runs"
    folder = (paths[0].parent if paths[0].is_file() else paths[0]).resolve()
    # The runs of an experiment are often in a folder of that name in its own folder.
    return folder.parent.name if folder.name == "runs" and folder.parent.name else folder.name


class Reader:
    """Reads the runs under some paths, which may come and go.

    Parameters
    ----------
    paths
        Folders of runs, or folders that hold such folders.
    title
        The title of the page.
    """

    def __init__(self, paths: Iterable[str | Path], title: str) -> None:
        self.paths = [Path(path) for path in paths]
        self.title = title
        self._runs: dict[Path, tuple[Signature, dict[str, Any]]] = {}
        self._volumes: dict[Path, tuple[Signature, Volumes | None]] = {}

    def folders(self) -> dict[Path, str]:
        """Return the present run folders, each with a unique name."""
        found: list[Path] = []
        for path in self.paths:
            # One that is not there yet, or not any more, has no runs.
            with contextlib.suppress(RunFolderError, OSError):
                found += [folder for folder in find(path) if folder not in found]
        found.sort(key=natural)
        return dict(zip(found, identities(found), strict=True))

    def runs(self, folders: dict[Path, str]) -> dict[str, Any]:
        """Return all but the volumes."""
        runs = []
        federations: list[Any] = []
        for folder, identity in folders.items():
            known = self._reread(self._runs, folder, SMALL, describe)
            clients = known["clients"]
            if clients is not None and clients not in federations:
                federations.append(clients)
            place = None if clients is None else federations.index(clients)
            runs.append({**known, "id": identity, "clients": None, "federation": place})
        return {"title": self.title, "runs": runs, "federations": federations}

    def volumes(self, folders: dict[Path, str]) -> dict[str, Any]:
        """Return the volumes of CT runs."""
        found = {}
        for folder, identity in folders.items():
            volumes = self._reread(self._volumes, folder, LARGE, _volumes)
            if volumes is not None:
                found[identity] = volumes
        return pack(found)

    def images_version(self, folders: dict[Path, str]) -> str:
        """Return a text that changes when volumes may have changed; empty without volumes."""
        ct = [folder for folder in folders if (folder / "truth.npz").exists() or self._is_ct(folder)]
        return str(hash(tuple((folder, _signature(folder, LARGE[1:])) for folder in ct))) if ct else ""

    def _is_ct(self, folder: Path) -> bool:
        return folder in self._runs and self._runs[folder][1]["kind"] == "ct"

    def _reread(self, kept: dict[Path, Any], folder: Path, files: Sequence[str], read: Callable[[Path], Any]) -> Any:
        # The signature is from before the reading: what is written meanwhile is read next time.
        signature = _signature(folder, files)
        if folder not in kept or kept[folder][0] != signature:
            kept[folder] = (signature, read(folder))
        return kept[folder][1]


def identities(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that distinguish them.

    >>> identities([Path("a/b/seed-0"), Path("a/c/seed-0")])
    ['b/seed-0', 'c/seed-0']
    >>> identities([Path("a/b/seed-0")])
    ['seed-0']
    """
    resolved = [folder.resolve() for folder in folders]
    if len(resolved) == 1:
        return [resolved[0].name]
    shared = Path(os.path.commonpath(resolved)) if resolved else Path()
    return [str(folder.relative_to(shared)) if folder != shared else folder.name for folder in resolved]


def strict_json(value: Any) -> str:
    r"""Return JSON that may stand inside a script element of HTML: no number that is not finite, no ``<``.

    >>> strict_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _volumes(folder: Path) -> Volumes | None:
    try:
        return volumes_of(load(folder))
    except RunFolderError:
        return None


def _signature(folder: Path, files: Sequence[str]) -> Signature:
    signature: list[Any] = []
    for name in files:
        try:
            status = (folder / name).stat()
        except OSError:
            signature.append(None)
        else:
            signature.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(signature)


@functools.cache
def part(name: str) -> str:
    """Return a file of the page."""
    return resources.files("fpdfp.report").joinpath("page", name).read_text(encoding="utf-8")


@functools.cache
def script() -> str:
    """Return all the program of the page, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(map(part, SCRIPTS)) + "})();\n"


def policy(*, live: bool) -> str:
    """Return the content security policy: this script, this style, and no network but for the data of a live page."""
    rules = [
        "default-src 'none'", f"script-src 'sha256-{_digest(script())}'",
        f"style-src 'sha256-{_digest(part('style.css'))}'", "img-src data:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def page(data: dict[str, Any], volumes: dict[str, Any] | None, *, live: bool) -> str:
    """Return the whole page; names and texts of runs are in it as JSON alone, or escaped."""
    pieces = {
        "policy": html.escape(policy(live=live)),
        "title": html.escape(data["title"]),
        "style": part("style.css"),
        "data": strict_json({**data, "live": live}),
        "volumes": strict_json(volumes),
        "script": script(),
    }
    before, *rest = part("page.html").split("{{")
    text = [before]
    for piece in rest:
        name, after = piece.split("}}", 1)
        text += [pieces[name.strip()], after]
    return "".join(text)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
