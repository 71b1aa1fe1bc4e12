"""The data of several runs for the page; only changed files are read again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fpdfp._sections import FILES
from fpdfp.errors import RunFolderError
from fpdfp.report.describe import describe
from fpdfp.report.pictures import Volumes, pack, volumes_of
from fpdfp.runs import find, load
from fpdfp.runs.saved import natural

SMALL = ("run.json", "history.csv", "history.parquet", "model.json", "final.npz", "best.npz", *FILES)
LARGE = ("run.json", "truth.npz", "final.npz", "best.npz")

Signature = tuple[Any, ...]


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
