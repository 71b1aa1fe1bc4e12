"""Fetching a registered data set into a folder, with a checksum and a progress bar."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from fpdfp.datasets import _packed
from fpdfp.datasets.registry import Registered
from fpdfp.errors import DataSetError


class Bar:
    """A bar of rich on standard error, with the methods that pooch calls."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True, force_terminal=True),
        )
        self._task = self._progress.add_task(label, total=None)
        self._progress.start()

    @property
    def total(self) -> float | None:
        """The number of bytes to come; None if the server does not announce it."""
        return self._progress.tasks[0].total

    @total.setter
    def total(self, total: int) -> None:
        self._progress.update(self._task, total=total or None)

    def update(self, size: int) -> None:
        """Count ``size`` bytes more."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Count from zero again."""
        self._progress.reset(self._task, total=self.total)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


def fetch(entry: Registered, folder: Path, progress: bool | None) -> Path:
    """Download a registered set into a folder and return its path there.

    The file gets its name only after the checksum of its unpacked text fits: whatever goes wrong before, nothing stays.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{entry.file}-", suffix=".part", dir=folder)
    os.close(handle)
    part = Path(name)
    try:
        _stream(entry, part, progress)
        verify(entry, part, entry.url)
        part.chmod(0o600)  # the downloader writes the file anew: tables belong to whoever fetched them
        path = folder / entry.url.rsplit("/", 1)[-1]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def verify(entry: Registered, path: Path, origin: str) -> None:
    """Refuse a file whose unpacked text is not that of the registered set."""
    found = _packed.sha256(path)
    if found != entry.sha256:
        raise wrong_checksum(entry, found, origin)


def wrong_checksum(entry: Registered, found: str, origin: str) -> DataSetError:
    """Return the error that shows both digests."""
    return DataSetError(
        f"{origin} is not data set {entry.name!r}: the sha256 of its unpacked text is {found}, "
        f"but {entry.sha256} is expected"
    )


def _stream(entry: Registered, part: Path, progress: bool | None) -> None:
    import pooch

    shown = sys.stderr.isatty() if progress is None else progress
    bar: Any = Bar(entry.name) if shown else False
    try:
        pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(entry.url, str(part), None)
    finally:
        if bar:
            bar.close()
