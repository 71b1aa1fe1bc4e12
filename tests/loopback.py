"""Sites in this process that exchange real parcels with the server, and that fail when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.cohorts.site import Site
from fpdfp.errors import AbsentError

#: Called with the site's number, the request and the reply as bytes; returns what arrives, None for nothing.
Trouble = Callable[[int, dict[str, Any], bytes], bytes | None]


class Loopback(RemoteEngine):
    """A site for each group of clients of a problem, reached through bytes as over a network."""

    def __init__(self, problem: fpdfp.Problem, sites: int = 2, trouble: Trouble | None = None, **options: Any) -> None:
        super().__init__(**{"patience": 1.0, **options})
        self.parts = [problem.losses.part(part) for part in np.array_split(np.arange(problem.n_clients), sites)]
        self.sites = [Site(part) for part in self.parts]
        self.trouble = trouble
        self.requests: list[dict[str, Any]] = []
        self.up: list[Any] = []
        self.bytes_down = self.bytes_up = 0
        self.rounds_done = 0
        #: Whether requests come twice.
        self.twice = False
        #: Whether a request does not arrive.
        self.deaf: Callable[[int, dict[str, Any]], bool] | None = None
        #: For tests that kill the server.
        self.quiet = self.dead = False

    @property
    def names(self) -> Sequence[str]:
        return [f"site {number}" for number in range(len(self.parts))]

    def restart(self, site: int) -> None:
        """A site's process dies, and is started again with nothing but its data."""
        self.sites[site] = Site(self.parts[site])

    def _handled(self, site: int, parcel: bytes) -> bytes:
        return pack(self.sites[site].handle(parcels.load(unpack(parcel))))

    def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        for site, request in asked.items():
            parcel = pack(request)
            if self.deaf is not None and self.deaf(site, request):
                replies[site] = AbsentError("no reply by the deadline")
                continue
            self.bytes_down += len(parcel)
            self.requests.append(request)
            self.rounds_done = max(self.rounds_done, request.get("update", {}).get("round", 0))
            reply: bytes | None = self._handled(site, parcel)
            assert reply is not None
            if self.twice:
                assert reply == self._handled(site, parcel)
            self.bytes_up += len(reply)
            self.up.append(unpack(reply))
            if self.trouble is not None:
                reply = self.trouble(site, request, reply)
            if reply is None:
                replies[site] = AbsentError("no reply by the deadline")
                continue
            try:
                replies[site] = unpack(reply)
            except fpdfp.errors.MessageError as error:
                replies[site] = error
        return replies
