"""Sites in this process that exchange real parcels with the server, and that fail when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import fpdfp
from fpdfp.engines.crew import Crew
from fpdfp.engines.parcel import pack, unpack
from fpdfp.engines.portable import portable, request_of
from fpdfp.engines.site import Site
from fpdfp.errors import AbsentError

#: Called with the site's number, the request and the reply as bytes; returns what arrives, None for nothing.
Trouble = Callable[[int, dict[str, Any], bytes], bytes | None]


class Loopback(Crew):
    """A site for each group of clients of a problem, reached through bytes as over a network."""

    def __init__(self, problem: fpdfp.Problem, sites: int = 2, trouble: Trouble | None = None, **options: Any) -> None:
        super().__init__(**{"patience": 1.0, **options})
        self.parts = [problem.losses.part(part) for part in np.array_split(np.arange(problem.n_clients), sites)]
        self.sites = [Site(part) for part in self.parts]
        self.trouble = trouble
        self.requests: list[dict[str, Any]] = []
        self.bytes_down = self.bytes_up = 0

    @property
    def names(self) -> Sequence[str]:
        return [f"site {number}" for number in range(len(self.parts))]

    def portable(self, value: Any) -> Any:
        return portable(value)

    def restart(self, site: int) -> None:
        """A site's process dies, and is started again with nothing but its data."""
        self.sites[site] = Site(self.parts[site])

    def post(self, requests: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        for site, request in requests.items():
            parcel = pack(request)
            self.bytes_down += len(parcel)
            self.requests.append(request)
            reply: bytes | None = pack(self.sites[site].handle(request_of(unpack(parcel))))
            assert reply is not None
            self.bytes_up += len(reply)
            if self.trouble is not None:
                reply = self.trouble(site, request, reply)
            if reply is None:
                replies[site] = AbsentError("no reply by the deadline")
                continue
            try:
                replies[site] = unpack(reply)
            except fpdfp.MessageError as error:
                replies[site] = error
        return replies
