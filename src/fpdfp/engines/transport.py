"""What an engine is to the rest: it carries requests to sites, and returns their replies."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from fpdfp.engines import spec
from fpdfp.engines.job import Job
from fpdfp.engines.parcel import pack
from fpdfp.engines.requests import Request
from fpdfp.engines.traffic import Carried
from fpdfp.precondition.cost import Network

#: A request as it is carried: a dictionary of what is asked.
Tree = dict[str, Any]


class Transport(abc.ABC):
    """Carries requests to sites."""

    #: Whether the server may see all that clients remember (inside one organisation), or only what they have sent.
    trusted: bool = False
    #: Whether an exchange takes so long that one is to carry all that can be asked at once.
    slow: bool = False
    #: Seconds before sites that did not answer are asked once more.
    pause: float = 0.2

    @property
    def network(self) -> Network | None:
        """The latency and the bandwidth of the way to the sites, as measured; None where they are not."""
        return None

    @property
    def carried(self) -> Carried | None:
        """The bytes that went over the network so far; None where no one counts them."""
        return None

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the sites, in the order of their clients' numbers."""

    @abc.abstractmethod
    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        """Send each site its request; return the replies by the deadline: dictionaries, or exceptions."""

    def write(self, request: Request) -> Tree:
        """Return a request as it is carried: by default without anything but numbers, texts and arrays."""
        return request.write(spec.dump)

    def key(self, job: Job, run_id: str) -> str:
        """Return what tells a job of a run from others: the same for a server that was restarted."""
        return hashlib.sha256(run_id.encode() + pack(spec.dump(job))).hexdigest()[:32]
