"""Waiting for sites: deadlines, retries, replies that are refused, and the bits of what was sent in vain."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fpdfp import _checks
from fpdfp.engines.replies import Decoded, DivergedError
from fpdfp.engines.requests import Reply, Request
from fpdfp.engines.rounds import Update
from fpdfp.engines.run import DivergenceError, StoppedError
from fpdfp.engines.session import Session
from fpdfp.engines.traffic import NOTHING, Bits, payload
from fpdfp.engines.transport import Transport
from fpdfp.errors import AbsentError, MessageError

log = logging.getLogger("fpdfp.engines")
#: How often a site is sent what it lacks: the job, and then what goes with it.
ATTEMPTS = 3
#: At the end of a run sites are waited for this many deadlines.
LAST = 3.0
#: Says which replies cannot be used besides the others, and why.
Judge = Callable[[Mapping[int, Decoded]], Mapping[int, str]]
#: Refuses a site's reply by raising an error.
Check = Callable[[int, Reply], None]


@dataclasses.dataclass
class Totals:
    """How often replies were refused or did not come, and how often a site was sent what it lacked."""

    refused: int = 0
    absent: int = 0
    healed: int = 0


@dataclasses.dataclass
class SiteRecord:
    """What became of the exchanges with one site; seconds and bytes where the engine notes them."""

    asked: int = 0
    answered: int = 0
    absent: int = 0
    refused: int = 0
    healed: int = 0
    waited: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    last_refusal: str = ""


class Collector:
    """Asks sites, and waits for their replies.

    A reply that is late, damaged, not finite, of the wrong shape or size, or about something else counts as absent, and
    the log names the site and what was wrong.

    Parameters
    ----------
    transport
        What carries requests.
    deadline, min_clients, patience
        As the user gives them to an engine (:class:`fpdfp.engines.remote_engine.RemoteEngine`).

    Attributes
    ----------
    totals, records
        What went wrong so far, and what became of the exchanges with each site in this run.
    upkeep
        The bits of what was sent again, of replies that were of no use, and of copies for checkpoints.
    stopped
        Whether the user wants to stop.
    """

    def __init__(self, transport: Transport, deadline: float | None, min_clients: int, patience: float) -> None:
        self.transport = transport
        self.deadline = None if deadline is None else _checks.real("deadline", deadline, positive=True)
        self.min_clients = _checks.integer("min_clients", min_clients, at_least=1)
        self.patience = _checks.real("patience", patience, positive=True)
        self.totals, self.upkeep = Totals(), NOTHING
        self.records: dict[int, SiteRecord] = collections.defaultdict(SiteRecord)
        self.stopped: Callable[[], bool] = lambda: False
        self._hurried = False

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        """Within this, sites that do not answer by the deadline are not asked again."""
        self._hurried = True
        try:
            yield
        finally:
            self._hurried = False

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Within this, the run is done, and sites that are gone are not waited for as long as they were before."""
        patience = self.patience
        if self.deadline is not None:
            self.patience = min(patience, LAST * self.deadline)
        try:
            yield
        finally:
            self.patience = patience

    def collect_all(self, asked: Mapping[int, Request], session: Session, check: Check) -> dict[int, Reply]:
        """Ask sites until all have answered; raise AbsentError if some do not."""
        replies = self.collect(asked, session, check)
        missing = [self.transport.names[site] for site in asked if site not in replies]
        if missing:
            # A round that was asked for along with it is counted where it is used, or dropped.
            self.waste([one.without(Update.name) for one in replies.values()])
            self.waste_requests([one.without(Update) for one in asked.values()])
            raise AbsentError(f"{', '.join(missing)} did not answer; {len(replies)} of {len(asked)} sites did")
        return replies

    def collect(self, asked: Mapping[int, Request], session: Session, check: Check) -> dict[int, Reply]:
        """Ask sites until all have answered, or patience ends; once only where we are in a hurry."""
        replies: dict[int, Reply] = {}
        started, wait = time.monotonic(), self.deadline
        while True:
            waiting = {site: request for site, request in asked.items() if site not in replies}
            left = max(0.0, self.patience - (time.monotonic() - started))
            limit = self.deadline if self._hurried else left if wait is None else min(wait, left)
            # What is asked before the rounds may take longer than a round; but what a process has taken with it when
            # it died never comes.
            wait = None if wait is None else 2.0 * wait
            for site, reply in self.exchange(waiting, session, limit).items():
                try:
                    check(site, reply)
                    replies[site] = reply
                except Exception as error:
                    self.waste(reply)
                    self.refuse(site, error)
            if len(replies) == len(asked) or self._hurried or time.monotonic() - started > self.patience:
                return replies
            self._pause()
            self.waste_requests([request for site, request in asked.items() if site not in replies])

    def collect_enough(
        self,
        asked: Mapping[int, Request],
        session: Session,
        decode: Callable[[int, Reply], Decoded],
        early: Mapping[int, Reply] | None,
        name: str,
        judge: Judge | None = None,
    ) -> list[Decoded]:
        """Ask the sites of a round, until enough clients have answered; return their replies, decoded.

        ``early`` are replies that came already. ``name`` is that of the round in an error. ``judge`` names which of the
        replies cannot be used besides the others.
        """
        updates = [request.find(Update) for request in asked.values()]
        count = sum(len(update.digests) for update in updates if update is not None)
        needed = min(self.min_clients, count)
        good: dict[int, Decoded] = {}
        started, wait = time.monotonic(), self.deadline
        # Who was asked along with something else, and did not answer, is absent already.
        replies = self.exchange(asked, session, self.deadline) if early is None else early
        while True:
            diverging = set()
            for site, reply in replies.items():
                try:
                    good[site] = decode(site, reply)
                except Exception as error:
                    self.waste(reply)
                    self.refuse(site, error)
                    diverging |= {site} if isinstance(error, DivergedError) else set()
            for site, why in (judge(good) if judge is not None else {}).items():
                self.waste(replies.get(site))
                self.refuse(site, MessageError(why))
                del good[site]
            answered = sum(len(reply.clients) for reply in good.values())
            if answered >= needed:
                return [good[site] for site in sorted(good)]
            if set(asked) - set(good) <= diverging:
                raise DivergenceError("a message holds NaN, infinities or numbers that are too large")
            if time.monotonic() - started > self.patience and not self.stopped():
                raise AbsentError(
                    f"{name}: {answered} of {count} clients have answered within {self.patience:g} s, and {needed} "
                    "are needed"
                )
            self._pause()
            again = {site: request for site, request in asked.items() if site not in good}
            self.waste_requests(list(again.values()))
            # Without them the round cannot continue: a site that is slower than the deadline is given more time, or it
            # would be asked anew for ever.
            wait = None if wait is None else min(2.0 * wait, max(self.deadline or 0.0, self.patience))
            replies = self.exchange(again, session, wait)

    def _pause(self) -> None:
        """Wait before sites are asked again, unless the user wants to stop."""
        if self.stopped():
            raise StoppedError
        time.sleep(self.transport.pause)

    def exchange(self, asked: Mapping[int, Request], session: Session, deadline: float | None) -> dict[int, Reply]:
        """Send requests, give sites what they say they need, and return the replies that can be used."""
        started = time.monotonic()
        deadline = self.patience if deadline is None else deadline
        replies: dict[int, Reply] = {}
        # Who lacked something, and could not be given it in time, gets it with the next request.
        waiting = {site: session.supply(site, one) for site, one in asked.items()}
        for attempt in range(ATTEMPTS):
            if not waiting:
                break
            left = max(0.0, deadline - (time.monotonic() - started))
            addressed = {site: session.address(site, request) for site, request in waiting.items()}
            trees = {site: self.transport.write(request) for site, request in addressed.items()}
            self._waste((), list(trees.values()) if attempt else ())
            answered = self.transport.carry(trees, left)
            again = {}
            for site, request in addressed.items():
                self.records[site].asked += 1
                came = answered.get(site, AbsentError("no reply by the deadline"))
                try:
                    if isinstance(came, Exception):
                        raise came
                    reply = Reply.read(came, request)
                except Exception as error:
                    self.refuse(site, error)
                    continue
                if reply.needs:
                    needs = session.note_needs(site, reply.needs)
                    log.info("%s needs %s", self.transport.names[site], ", ".join(sorted(needs)))
                    self.totals.healed += 1
                    self.records[site].healed += 1
                    again[site] = session.supply(site, waiting[site])
                else:
                    session.note_answer(site, request)
                    self.records[site].answered += 1
                    replies[site] = reply
            waiting = again
        for site in waiting:
            self.refuse(site, MessageError("it still lacks what it was sent"))
        return replies

    def refuse(self, site: int, why: Any) -> None:
        """Count a site as absent, and say why."""
        name, record = self.transport.names[site], self.records[site]
        if isinstance(why, AbsentError):
            self.totals.absent += 1
            record.absent += 1
            log.warning("%s is absent: %s", name, why)
        else:
            self.totals.refused += 1
            what = str(why) if isinstance(why, MessageError) else f"it cannot be read ({type(why).__name__}: {why})"
            record.refused, record.last_refusal = record.refused + 1, what
            log.warning("the reply of %s is refused: %s", name, what)

    def waste(self, replies: Any) -> None:
        """Count what came from sites besides what a run without trouble sends."""
        self._waste(replies, ())

    def waste_requests(self, asked: Sequence[Request]) -> None:
        """Count what was sent to sites besides what a run without trouble sends."""
        self._waste((), [self.transport.write(request) for request in asked])

    def _waste(self, up: Any, down: Any) -> None:
        self.upkeep = Bits(self.upkeep.up + payload(up), self.upkeep.down + payload(down))
