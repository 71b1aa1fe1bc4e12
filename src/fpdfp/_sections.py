"""Sections of a report: what is known of a run next to its rounds, a file of JSON for each in the folder of the run."""

from __future__ import annotations

import abc
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from fpdfp.errors import StorageError

#: All sections that there are; the file of each is its name with ``.json``.
SECTIONS = ("summary", "heterogeneity", "path", "cross_validation", "evaluation", "learning_curve")
FILES = tuple(f"{name}.json" for name in SECTIONS)


class Section(abc.ABC):
    """A result that a report can show.

    Attributes
    ----------
    section
        One of ``SECTIONS``.
    """

    section: ClassVar[str]

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows as plain numbers, texts and lists; limited to what is drawn."""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write what a report shows to a file of JSON in a folder; the report of a run shows what is in its own.

        Parameters
        ----------
        folder
            The folder of the run, or any other; it is made if needed.
        """
        path = Path(folder) / f"{self.section}.json"
        text = json.dumps(plain(self.to_dict()), indent=1, ensure_ascii=False, allow_nan=False)
        # Beside the old one, and then in its place: a page may be reading.
        new = path.with_name(f".{path.name}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(text + "\n", encoding="utf-8")
            new.replace(path)
        except OSError as error:
            raise StorageError(f"{path} could not be written ({error.strerror or error})") from error
        return path


def plain(value: Any) -> Any:
    """Return a value as JSON has it: plain numbers, lists, texts, and null for numbers that are not finite.

    >>> plain({"a": float("nan"), "b": (1, 2)})
    {'a': None, 'b': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shorten(values: Any, digits: int = 6) -> list[float | None]:
    """Return numbers with a given number of digits, enough to draw them.

    >>> shorten([0.123456789, 1 / 3 * 1e-9])
    [0.123457, 3.33333e-10]
    """
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in map(float, values)]
