"""``fpdfp.report.write``: runs as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fpdfp.report.html import page
from fpdfp.report.reader import Reader
from fpdfp.runs import SavedRun, find
from fpdfp.runs.writing import write as write_whole

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
        The title of the page; by default the name of the folder, or how many runs there are.

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
        raise ValueError(f"runs must be folders of runs or folders that contain some; there are none in {where}")
    reader = Reader(paths, title or title_of(paths, folders))
    found = reader.folders()
    text = page(reader.runs(found), reader.volumes(found), live=False)
    target = Path(path)
    write_whole(target, text.encode("utf-8", "replace"))
    return target


def _list(runs: Runs) -> list[str | Path | SavedRun]:
    if isinstance(runs, str | Path | SavedRun):
        return [runs]
    if not isinstance(runs, Iterable):
        raise TypeError(f"runs must be folders of runs, got {type(runs).__name__}")
    return list(runs)


def title_of(paths: list[Path], folders: list[Path]) -> str:
    """Return the name of the one folder that was given, or else how many runs there are."""
    if len(paths) != 1:
        return f"{len(folders)} runs"
    folder = (paths[0].parent if paths[0].is_file() else paths[0]).resolve()
    # The runs of an experiment are often in a folder of that name in its own folder.
    return folder.parent.name if folder.name == "runs" and folder.parent.name else folder.name
