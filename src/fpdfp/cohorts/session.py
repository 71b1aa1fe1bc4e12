"""The server's record of what each site knows of a run, and of what to send next."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.losses import Duals
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.requests import Job, Reply, Request
from fpdfp.cohorts.rounds import Message, Stamped, Update
from fpdfp.cohorts.site import shared_memory
from fpdfp.precondition.base import Announced
from fpdfp.rng import Draws
from fpdfp.traffic import FULL, digest

#: How many of the server's differences are kept for sites that missed some.
LOG = 64
#: What a site may say that it needs.
NEEDS = {"features", "job", "memory", "model", "point"}
NO_DRAWS = Draws(0, 0, np.zeros(1, dtype=np.int64))


class Ask(NamedTuple):
    """The server's requests to the clients of a round.

    Attributes
    ----------
    round, clients
        k, and the numbers of the clients.
    memory
        The server's copies of what all clients remember, and their versions.
    message
        What the clients are to compute with: a named tuple of arrays.
    step
        The difference that leads to it, a frame for each field; None where the message goes out unchanged.
    """

    round: int
    clients: IntArray
    memory: Any
    message: Any
    step: list[bytes] | None


class Early(NamedTuple):
    """Replies of a round that came along with something else, and what was requested them."""

    round: int
    replies: dict[int, Reply]
    asked: list[Update]


class Masks:
    """The features that the sites of an engine know.

    A set of features is distinguished from others by its digest, which is empty for all of them.
    """

    def __init__(self) -> None:
        self._masks: dict[bytes, Announced] = {}
        self._told: dict[int, bytes] = {}

    def keep(self, numbers: IntArray, mask: Announced) -> bytes:
        """Keep a mask for sites that need it, and return its digest."""
        self._masks[found := digest([numbers])] = mask
        return found

    def for_site(self, site: int, features: bytes) -> Announced | None:
        """Return the mask of some features, None if a site knows them."""
        return None if not features or self._told.get(site) == features else self._masks[features]

    def note(self, site: int, features: bytes) -> None:
        """Take note that a site knows some features."""
        if features:
            self._told[site] = features

    def forget(self, site: int) -> None:
        """Take note that a site does not know them."""
        self._told.pop(site, None)


class Session:
    """The state of sites in a run: its job, the model that differences refer to, and the point that was asked about.

    Parameters
    ----------
    jobs, keys
        What each site must know of the run, and what distinguishes it from other runs; none before a run.
    masks
        The features that sites know.
    trusted
        Whether clients that lost what they remember are sent all of it, or only what they have sent themselves.
    from_zero
        Whether differences begin at zero, which all sites know.

    Attributes
    ----------
    features
        The digest of the features that the run is about, empty for all.
    point
        The point that all sites received last.
    coming
        What will be asked next, if it is to be asked along with something else.
    early
        What came of that.
    """

    def __init__(
        self,
        jobs: Sequence[Job] = (),
        keys: Sequence[str] = (),
        *,
        masks: Masks,
        features: bytes = b"",
        trusted: bool = False,
        from_zero: bool = False,
    ) -> None:
        self.features, self._masks = features, masks
        self.point: Array | None = None
        self.coming: Ask | None = None
        self.early: Early | None = None
        self._jobs, self._keys, self._trusted = list(jobs), list(keys), trusted
        self._shared = shared_memory(jobs[0].algorithm) if jobs else ()
        self._epoch = secrets.token_hex(8)
        self._positions: dict[int, int] = dict.fromkeys(range(len(jobs)), 0) if from_zero else {}
        self._told: dict[int, str] = {}
        self._lacking: dict[int, set[str]] = {}
        self._steps: list[tuple[int, list[bytes]]] = []
        self._whole: tuple[Any, list[bytes]] | None = None
        self._asked: Ask | None = None
        self._memory: Any = ()

    def address(self, site: int, request: Request) -> Request:
        """Return a request with its features and the key of its job, and these themselves for a site without them."""
        told: dict[str, Any] = {}
        features = self.features if request.needs_job else request.about.features
        if features:
            told |= {"features": features, "mask": self._masks.for_site(site, features)}
        if request.needs_job:
            key = self._keys[site]
            told |= {"key": key, "job": None if self._told.get(site) == key else self._jobs[site]}
            told |= {"epoch": self._epoch if request.find(Update) is not None else ""}
        return request.concerning(**told)

    def note_answer(self, site: int, request: Request) -> None:
        """Take note that a site has answered a request: it knows what was in it."""
        self._lacking.pop(site, None)
        self._masks.note(site, request.about.features)
        if request.about.key:
            self._told[site] = request.about.key

    def note_needs(self, site: int, said: Sequence[str]) -> set[str]:
        """Take note of what a site says it needs."""
        self._lacking[site] = NEEDS & set(said)
        return self._lacking[site]

    def supply(self, site: int, request: Request) -> Request:
        """Return a request with what the site has said it needs."""
        needs = self._lacking.get(site, set())
        if "features" in needs:
            self._masks.forget(site)
        if "job" in needs:
            self._told.pop(site, None)
        changed: dict[str, Question] = {}
        duals, update = request.find(Duals), request.find(Update)
        if "point" in needs and duals is not None:
            changed[duals.name] = dataclasses.replace(duals, x=self.point)
        if needs & {"model", "job"} and update is not None and self._asked is not None:
            self._positions.pop(site, None)
            changed[update.name] = dataclasses.replace(update, message=self._message(site, self._asked))
        if needs & {"memory", "job"}:
            for one in (changed.get(one.name, one) for one in request.questions):
                if isinstance(one, Stamped):
                    changed[one.name] = dataclasses.replace(one, copies=self._copies(site, one))
        return request.replace(*changed.values()) if changed else request

    def _copies(self, site: int, asked: Stamped) -> dict[str, dict[str, Array]]:
        """Return what clients should remember: all of it where the server may know, else what they have sent."""
        clients = self._jobs[site].place.numbers if asked.clients is None else asked.clients
        names = [name for name in self._memory._fields if name != "version" and (self._trusted or name in self._shared)]
        return {str(i): {name: getattr(self._memory, name)[i, ...] for name in names} for i in map(int, clients)}

    def stamp(self, memory: Any, site: int, clients: IntArray) -> dict[str, Any]:
        """Return the stamps of a site's clients for a request; clients that disagree are sent their memory."""
        self._memory = memory
        shared = [getattr(memory, name) for name in self._shared]
        digests = [digest(copy[client] for copy in shared) for client in clients]
        versions = memory.version[clients]
        same = int(versions[0]) if (versions == versions[0]).all() else versions
        everyone = len(clients) == len(self._jobs[site].place.numbers)
        return {"clients": None if everyone else clients, "versions": same, "digests": digests}

    def updates(self, ask: Ask) -> dict[int, Update]:
        """Return what each site of a round is asked."""
        self._asked = ask
        parts = {}
        for site, job in enumerate(self._jobs):
            clients = among(ask.clients, job.place.numbers)
            if len(clients):
                message = self._message(site, ask)
                parts[site] = Update(round=ask.round, message=message, **self.stamp(ask.memory, site, clients))
        return parts

    def keep_step(self, ask: Ask) -> None:
        """Keep the difference of a round, for sites that miss it."""
        if ask.step is not None:
            self._steps = [*((k, step) for k, step in self._steps if k != ask.round), (ask.round, ask.step)][-LOG:]

    def _message(self, site: int, ask: Ask) -> Message:
        """Return the server's message to a site: the differences that it lacks, or all of it if that is shorter."""
        position = self._positions.get(site)
        self._positions[site] = ask.round + 1
        if ask.step is not None and position is not None and position <= ask.round:
            steps = {k: step for k, step in [*self._steps, (ask.round, ask.step)] if k >= position}
            length = sum(len(frame) for step in steps.values() for frame in step)
            if len(steps) == ask.round + 1 - position and length <= sum(array.nbytes for array in ask.message):
                lacking = [steps[k] for k in sorted(steps)]
                return Message(steps=lacking, zero=position == 0)
        if self._whole is None or self._whole[0] is not ask.message:
            frames = [FULL.encode(FULL.quantize(array[None], NO_DRAWS, 0))[0] for array in ask.message]
            self._whole = ask.message, frames
        return Message(whole=self._whole[1])


def among(clients: IntArray, numbers: IntArray) -> IntArray:
    """Return those of some clients that are of a site, whose clients have consecutive numbers."""
    own: IntArray = clients[(clients >= numbers[0]) & (clients <= numbers[-1])]
    return own
