"""What the hub and analysts remember of a site's log, so that a log that was put back is noticed.

A site's log is a chain of hashes (:mod:`fpdfp.federation.audit`), and each line says what the site has spent. Whoever
may write the site's folder can put an older copy of all of it in its place. So others remember the number and the hash
of a line: the hub of each site, and each analyst of those that have answered. A site says the number and hash of its
last line when it connects, and with its answers now and then. A log that has become shorter, or has another line of
that number, is named and refused, until the coordinator accepts it (``fpdfp federation forget``).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from fpdfp.engines import files

FILE = "anchors.json"
FORMAT = 1
#: Seconds between two anchors that are sent on a connection, and between two times at which a file of them is written.
EVERY = 10.0
#: So many digits of a hash are sent and kept: 64 bits.
DIGITS = 16


class Anchor(NamedTuple):
    """A line of a log: its number and the beginning of its hash."""

    number: int
    hash: str


def read_anchor(value: Any) -> Anchor | None:
    """Return what a peer says of its log; None where it says nothing that can be understood."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    number, digest = value
    if type(number) is not int or not 0 <= number < 1 << 53 or re.fullmatch("[0-9a-f]{16}", str(digest)) is None:
        return None
    return Anchor(number, str(digest))


class Anchors:
    """The lines of sites' logs that are remembered, in a file.

    Parameters
    ----------
    folder
        Where the file is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     anchors = Anchors(Path(folder))
    ...     print([anchors.check("north", Anchor(number, "0" * 16), "first") for number in (7, 9, 8)])
    [None, None, 'its log has 8 lines, and had 9: an older one was put in its place']
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._known: dict[str, tuple[Anchor, str]] = {}
        self._saved, self._changed = -EVERY, False
        if self.path.exists():
            try:
                tree = json.loads(self.path.read_bytes())
                written = tree["format"]
                if written == FORMAT:
                    self._known = {site: (Anchor(*anchor), str(era)) for site, (anchor, era) in tree["sites"].items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{self.path} cannot be read: restore it, or remove it if you know why") from None
            if written != FORMAT:
                raise ValueError(f"{self.path} has format {written}; this release reads format {FORMAT}")

    def era(self, site: str) -> str:
        """Return since which beginning of its log a site is remembered; empty for one that is not."""
        return self._known.get(site, (None, ""))[1]

    def of(self, site: str, era: str) -> Anchor | None:
        """Return what is remembered of a site since its log began, or was accepted."""
        anchor, known = self._known.get(site, (None, ""))
        return anchor if known == era else None

    def check(self, site: str, said: Anchor | None, era: str) -> str | None:
        """Remember what a site says of its log; return what is wrong with it, if anything."""
        wrong, known = self.compare(site, said, era), self.of(site, era)
        if wrong is None and said is not None and said != known:
            self._known[site] = said, era
            self._changed = True
        return wrong

    def compare(self, site: str, said: Anchor | None, era: str) -> str | None:
        """Return what is wrong with what a site says of its log, if anything."""
        known = self.of(site, era)
        if said is None:
            return None if known is None else "it does not say how long its log is, and has said so before"
        if known is not None and said.number < known.number:
            return f"its log has {said.number} lines, and had {known.number}: an older one was put in its place"
        if known is not None and said.number == known.number and said.hash != known.hash:
            return f"line {said.number} of its log is another than before: another log was put in its place"
        return None

    def save(self, *, at_once: bool = False) -> None:
        """Write the file if something has changed, and it was not written just now."""
        if not self._changed or (not at_once and time.monotonic() - self._saved < EVERY):
            return
        tree = {"format": FORMAT, "sites": self._known}
        files.write_whole(self.path, json.dumps(tree, indent=1).encode(), private=True)
        self._saved, self._changed = time.monotonic(), False
