"""The probabilities at points that a site has answered, in files that outlive the process."""

from __future__ import annotations

import collections
import struct
from pathlib import Path

import numpy as np

from fpdfp._typing import Array
from fpdfp.federation.slots import Slots

#: Of how many different numbers of rows points are kept.
SIZES = 8
NUMBER = struct.Struct("<q")
SUFFIX = ".points"


class Earlier:
    """Probabilities at the points that were answered, for each number of rows.

    A site has one of these for all models: else points could be compared by asking for each under another model's
    name, or with another choice of features. Files are written before an answer leaves.

    Parameters
    ----------
    most
        How many points are kept, the newest.
    folder
        Where they are kept; None for memory alone.
    data
        What tells the site's data from others: points of other data are removed.
    sizes
        Of how many different numbers of rows points are kept.
    """

    def __init__(self, most: int, folder: Path | None = None, data: str = "", sizes: int = SIZES) -> None:
        self._sizes = sizes
        self._most, self._folder, self._data = most, folder if most else None, data[:16] or "data"
        self._kept: collections.OrderedDict[int, Ring] = collections.OrderedDict()
        if self._folder is None or not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime):
            data_of, _, size = path.stem.rpartition("-")
            if data_of == self._data:
                self._ring(int(size))
            else:
                path.unlink()

    def of(self, size: int) -> collections.deque[Array]:
        """Return what is known of points with so many probabilities, the newest last."""
        return self._ring(size).points

    def add(self, p: Array) -> None:
        """Keep the probabilities at a point; raise OSError where there is no room for them."""
        self._ring(p.size).add(p)

    def close(self) -> None:
        """Close the files."""
        for ring in self._kept.values():
            if ring.slots is not None:
                ring.slots.close()

    def _ring(self, size: int) -> Ring:
        if size not in self._kept:
            path = None if self._folder is None else self._folder / f"{self._data}-{size}{SUFFIX}"
            self._kept[size] = Ring(size, self._most, path)
        self._kept.move_to_end(size)
        if len(self._kept) > self._sizes:
            oldest = self._kept.popitem(last=False)[1]
            if oldest.slots is not None:
                oldest.slots.remove()
        return self._kept[size]


class Ring:
    """The newest points of one number of rows; in a file, each with its number in front, in the place of the oldest."""

    def __init__(self, size: int, most: int, path: Path | None) -> None:
        self.points: collections.deque[Array] = collections.deque(maxlen=most)
        self.slots = None if path is None else Slots(path, NUMBER.size + 8 * size)
        # A place that was never written has the number 0.
        found = sorted((NUMBER.unpack_from(one)[0], one[NUMBER.size :]) for one in self.slots or ())
        self.points.extend(np.frombuffer(one, "<f8") for number, one in found if number)
        self._last = found[-1][0] if found else 0

    def add(self, p: Array) -> None:
        """Add a point: to the file first."""
        if self.slots is not None:
            content = NUMBER.pack(self._last + 1) + np.ascontiguousarray(p, "<f8").tobytes()
            self.slots.write(self._last % (self.points.maxlen or 1), content)
        self._last += 1
        self.points.append(p)
