"""A federation whose sites answer in this process: real guards, real parcels, and every request written down."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import fpdfp
from fpdfp.cohorts.serialization import unpack
from fpdfp.federation.agent import respond
from fpdfp.federation.cohort import LocalCohort
from fpdfp.federation.connection import SiteStatus, Status, Usage
from fpdfp.federation.framing import Message, Receiver
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.keys import About
from fpdfp.federation.policy import Policy
from fpdfp.federation.rollback import ReplayGuard

ASKER = {"name": "ann", "role": "analyst", "fingerprint": "ab" * 32}


class LinkHere:
    """The way to sites in this process, in place of a connection to a hub; ``seen`` has what each exchange asked."""

    def __init__(self, table: Any, folder: Path, policy: Policy | None, by: str) -> None:
        self.usage = Usage()
        #: The requests of each exchange, to the first site, in words.
        self.seen: list[str] = []
        self.sites: dict[str, tuple[About, RequestGuard, ReplayGuard, Receiver]] = {}
        local = LocalCohort(table, by)
        for name, one in zip(local.names, local.tables, strict=True):
            home = folder / name
            home.mkdir(parents=True)
            guard = RequestGuard(name, one, policy or Policy(), home)
            self.sites[name] = About("study", "site", name, ""), guard, ReplayGuard(home), Receiver()

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = 0) -> dict[str, Any]:
        """Have the sites answer, one after the other."""
        found: dict[str, Any] = {}
        self.usage.exchanges += 1
        asked = unpack(next(iter(parcels.values())))
        request = asked.get("request", {})
        self.seen.append(" ".join(request) if isinstance(request, dict) and request else str(asked.get("kind")))
        for name, parcel in parcels.items():
            about, guard, replays, heads = self.sites[name]
            found[name] = respond(Message("ask", {"asker": ASKER}, parcel), about, guard, replays, heads)
            self.usage.down, self.usage.up = self.usage.down + len(parcel), self.usage.up + len(found[name])
        return found

    def status(self) -> Status:
        """Return who is there: everyone."""
        now = datetime.datetime.now(datetime.UTC)
        return Status("study", fpdfp.__version__, [SiteStatus(name, "joined", True, now) for name in self.sites], [])

    def close(self) -> None:
        """Do nothing: there is no connection."""


class FederationHere(fpdfp.Federation):
    """The sites of a table, each behind a guard with a policy of its own, by default the default one."""

    def __init__(self, table: Any, folder: Path, policy: Policy | None = None, by: str = "hospital") -> None:
        self.link = LinkHere(table, folder / "sites", policy, by)
        self._settle(self.link, folder, 60.0, None, 10.0, "auto", None)
        self._chosen = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for site in self.link.sites.values():
            site[1].close()

    def _warnings(self) -> list[str]:
        return []
