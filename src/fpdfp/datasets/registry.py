"""The data sets that are known by name: their sources and checksums, where they lie, and how they are downloaded."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpdfp.datasets.readers import sha256
from fpdfp.errors import DataSetError

#: The name endings of compressed files; whether a file is compressed is decided by its first bytes.
ENDINGS = (".xz", ".bz2", ".gz")

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_ADULT = (
    "B. Becker and R. Kohavi, Adult, UCI Machine Learning Repository (1996), as prepared by J. Platt, "
    '"Fast training of support vector machines using sequential minimal optimization" (1999), '
    "and distributed by C.-C. Chang and C.-J. Lin, LIBSVM"
)
_COVTYPE = (
    "J. A. Blackard, Covertype, UCI Machine Learning Repository (1998), copyright Jock A. Blackard and Colorado State "
    'University; two classes after R. Collobert, S. Bengio and Y. Bengio, "A parallel mixture of SVMs for very large '
    'scale problems" (2002); distributed by C.-C. Chang and C.-J. Lin, LIBSVM'
)


@dataclass(frozen=True)
class Registered:
    """A LIBSVM file that is known by name.

    Attributes
    ----------
    name
        The name for ``fpdfp.datasets.load``.
    file
        The name of the unpacked file.
    url
        Where it is fetched from.
    sha256
        The digest of the unpacked text.
    rows, features
        The shape of X.
    positive
        The label in the file that becomes +1; every other one becomes −1.
    citation
        The source to cite.
    """

    name: str
    file: str
    url: str
    sha256: str
    rows: int
    features: int
    positive: float
    citation: str


REGISTRY: dict[str, Registered] = {
    entry.name: entry
    for entry in (
        Registered(
            "a9a", "a9a", f"{_LIBSVM}/a9a", "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            rows=32_561, features=123, positive=1.0, citation=_ADULT,
        ),
        Registered(
            "a9a.t", "a9a.t", f"{_LIBSVM}/a9a.t", "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            rows=16_281, features=123, positive=1.0, citation=_ADULT,
        ),
        Registered(
            "covtype", "covtype.libsvm.binary.scale", f"{_LIBSVM}/covtype.libsvm.binary.scale.bz2",
            "05de16391cecc69f170b1a235453e5183629c1b0e95a68d71938ebbcb05d3150",
            rows=581_012, features=54, positive=2.0, citation=_COVTYPE,
        ),
    )
}  # fmt: skip


def cache_folder() -> Path:
    """Return the user's cache of this package; ``FPDFP_CACHE`` names another."""
    chosen = os.environ.get("FPDFP_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("fpdfp"))


def folders() -> list[Path]:
    """Return where registered sets are searched: the folder of ``FPDFP_DATA``, if set, and the user's cache."""
    chosen = os.environ.get("FPDFP_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), cache_folder()]


def find(folder: Path, file: str) -> Path | None:
    """Return the path of a file in a folder, plain or compressed; None if it is not there."""
    places = (folder / (file + ending) for ending in ("", *ENDINGS))
    return next((path for path in places if path.is_file()), None)


def locate(entry: Registered, directory: Any, download: bool, progress: bool | None) -> Path:
    """Return the file of a registered set; download it if it is in none of the folders."""
    if directory is not None:
        folder = Path(directory).expanduser()
        found = find(folder, entry.file)
        if found is None:
            what = "a folder" if folder.is_dir() else "no folder"
            names = ", ".join(entry.file + ending for ending in ("", *ENDINGS))
            raise DataSetError(
                f"directory: {folder} is {what}, and data set {entry.name!r} is not in it; looked for {names}. "
                f"Fetch {entry.url} and put it there, or leave directory out"
            )
        return found
    found = next(filter(None, (find(folder, entry.file) for folder in folders())), None)
    if found is not None:
        return found
    if not download:
        raise _by_hand(entry, "download is False")
    try:
        return _download(entry, cache_folder(), progress)
    except OSError as error:  # of the network (requests' errors are of this kind) or of the disk
        raise _by_hand(entry, f"downloading it failed: {error}") from error


def _by_hand(entry: Registered, why: str) -> DataSetError:
    packed = Path(entry.url).name
    places = " or ".join(str(folder / packed) for folder in folders())
    unpacked = "" if packed == entry.file else f" (unpacked, without {packed.removeprefix(entry.file)}, is as good)"
    return DataSetError(
        f"data set {entry.name!r} is not on this machine, and {why}. Download {entry.url} yourself and put it at "
        f"{places}{unpacked}, or into a folder that you name by directory= or by the environment variable FPDFP_DATA"
    )


def verify(entry: Registered, found: str, origin: str) -> None:
    """Refuse a file whose unpacked text does not have the digest of the registered set."""
    if found != entry.sha256:
        raise DataSetError(
            f"{origin} is not data set {entry.name!r}: the sha256 of its unpacked text is {found}, "
            f"but {entry.sha256} is expected"
        )


def _download(entry: Registered, folder: Path, progress: bool | None) -> Path:
    """Download a registered set into a folder and return its path there.

    The file gets its name only after its checksum was verified: if anything fails before, nothing is left.
    """
    import pooch

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{entry.file}-", suffix=".part", dir=folder)
    os.close(handle)
    part = Path(name)
    bar: Any = Bar(entry.name) if (sys.stderr.isatty() if progress is None else progress) else False
    try:
        pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(entry.url, str(part), None)
        verify(entry, sha256(part), entry.url)
        part.chmod(0o600)  # the downloader writes the file anew: tables belong to anyone who fetched them
        path = folder / entry.url.rsplit("/", 1)[-1]
        part.replace(path)
    finally:
        if bar:
            bar.close()
        part.unlink(missing_ok=True)
    return path


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
        """Leave the bar unchanged."""
        self._progress.stop()
