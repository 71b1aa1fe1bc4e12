"""Times of events as they are given: entry, time, and whether the event happened."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError


class Times(NamedTuple):
    """When rows enter, when they leave, and whether they leave with an event.

    A row is at risk at the times t with ``entry`` < t ≤ ``time``. A subject may have several rows that follow each
    other, as covariates change; at most the last one has an event.

    Attributes
    ----------
    time
        When each row leaves.
    event
        Whether that is an event; else the row is censored.
    entry
        When each row enters; minus infinity if it was there from the start.
    """

    time: Array
    event: Array
    entry: Array

    @classmethod
    def of(cls, time: Any, event: Any, entry: Any = None) -> Self:
        """Return checked times.

        >>> Times.of([2.0, 3.0], [1, 0]).event
        array([ True, False])
        >>> Times.of([2.0, 3.0], [1, 0], entry=[0.0, 3.0])
        Traceback (most recent call last):
          ...
        fpdfp.errors.ArgumentError: entry must be less than time in every row, but it is not in 1 of 2 rows; the first
        is row 1, which enters at 3 and leaves at 3
        """
        times = _checks.float_array("time", time, dtype=np.float64)
        if times.ndim != 1 or not times.size:
            raise ArgumentError("time", f"must be one-dimensional and not empty, got shape {times.shape}")
        happened = _checks.float_array("event", event, dtype=np.float64)
        if happened.shape != times.shape:
            raise ArgumentError(
                "event", f"must have one entry for each of the {len(times)} times, got {happened.shape}"
            )
        if not np.isin(happened, (0.0, 1.0)).all():
            odd = happened[~np.isin(happened, (0.0, 1.0))][0]
            raise ArgumentError("event", f"must hold 1 or True for an event and 0 or False for none, got {odd:g}")
        entries = np.full(len(times), -np.inf)
        if entry is not None:
            given = _checks.host_array("entry", entry)
            entries = np.where(
                given == -np.inf, -np.inf, _checks.float_array("entry", np.where(given == -np.inf, 0, given))
            )
            if entries.shape != times.shape:
                raise ArgumentError(
                    "entry", f"must have one entry for each of the {len(times)} times, got {entries.shape}"
                )
            wrong = np.flatnonzero(entries >= times)
            if wrong.size:
                row = int(wrong[0])
                raise ArgumentError(
                    "entry",
                    f"must be less than time in every row, but it is not in {wrong.size} of {len(times)} rows; the "
                    f"first is row {row}, which enters at {entries[row]:g} and leaves at {times[row]:g}",
                )
        return cls(times, happened > 0, entries)

    def split(self) -> tuple[IntArray, Self]:
        """Return the stretches of rows between the events of any row: the row of each, and its times.

        The partial likelihood does not change: risk sets are the same. The last stretch of a row has its event.

        >>> row, times = Times.of([2.0, 3.0, 1.0], [1, 0, 1]).split()
        >>> row, times.time, times.event
        (array([0, 0, 1, 1, 1, 2]), array([1., 2., 1., 2., 3., 1.]), array([False,  True, False, False, False,  True]))
        """
        cuts = np.unique(self.time[self.event])
        first, last = np.searchsorted(cuts, self.entry, "right"), np.searchsorted(cuts, self.time, "left")
        lengths = np.maximum(last - first, 0) + 1
        row = np.repeat(np.arange(len(lengths)), lengths)
        ends = np.cumsum(lengths)
        within = np.arange(len(row)) - np.repeat(ends - lengths, lengths)
        time = np.append(cuts, np.inf)[np.minimum(first[row] + within, len(cuts))]
        time[ends - 1] = self.time
        entry = np.append(-np.inf, time[:-1])
        entry[ends - lengths] = self.entry
        event = np.zeros(len(row), dtype=bool)
        event[ends - 1] = self.event
        return row.astype(np.int64), type(self)(time, event, entry)

    @classmethod
    def read(cls, y: Any) -> Self:
        """Return the times of a response of one argument.

        A matrix with the columns (time, event) or (start, stop, event), in the order of R's ``Surv``. Or a structured
        array whose first field states whether there is an event, and whose second has the time, as in scikit-survival,
        with a third field for the entry where there is one.

        >>> Times.read([[2.0, 1], [3.0, 0]]).time
        array([2., 3.])
        """
        array = _checks.host_array("y", y)
        if array.dtype.names is not None:
            names = array.dtype.names
            if len(names) not in (2, 3) or array.dtype[0] != np.bool_:
                raise ArgumentError(
                    "y", f"must have a field of truth values for the event, then one for the time, got {array.dtype}"
                )
            return cls.of(array[names[1]], array[names[0]], array[names[2]] if len(names) == 3 else None)
        if array.ndim != 2 or array.shape[1] not in (2, 3):
            raise ArgumentError(
                "y",
                "must be a matrix with the columns (time, event) or (start, stop, event), or a structured array of "
                f"events and times, got shape {array.shape}",
            )
        given = _checks.float_array("y", array, dtype=np.float64)
        return cls.of(given[:, -2], given[:, -1], given[:, 0] if given.shape[1] == 3 else None)
