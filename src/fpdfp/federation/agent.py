"""A site's process: it dials out to the hub, answers what analysts ask with the site's desk, and stays.

It opens no port. Where the connection is lost, or the hub is not there, it tries again, ever more seldom. Requests are
answered in the order in which they come, and those for which no one waits any longer are excluded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import queue
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fpdfp import _files as files
from fpdfp._numbers import one_thread
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError
from fpdfp.federation import keys
from fpdfp.federation.audit import Audit
from fpdfp.federation.connection import Arrived, Stream, renew, take_certificate
from fpdfp.federation.framing import (
    CONVERSATION,
    NUMBER,
    UNKNOWN,
    Backoff,
    Inbox,
    LostError,
    Message,
    Receiver,
    RefusedError,
    clock_difference,
)
from fpdfp.federation.keys import About, Asker, Identity
from fpdfp.federation.rollback import EVERY, FILE, OlderError, ReplayGuard, read_anchor
from fpdfp.federation.seal import Pins, Secret, Unsealer
from fpdfp.federation.text import log, printable, read_name, refuse_unprintable

if TYPE_CHECKING:
    from fpdfp.federation.guard import RequestGuard

#: The file of a secret that is mixed into the digest of the data.
SALT = "salt"
#: Seconds between two looks at the certificate.
LOOK_AT_CERTIFICATE = 3600.0


class Desk(Protocol):
    """Answers requests: what they ask is checked, computed and logged here."""

    @property
    def audit(self) -> Audit | None:
        """The log of the site."""

    def answer(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Return the reply to a request: ``reply``, ``refused``, ``error`` or ``needs_model``."""


class Agent:
    """A site's process.

    Parameters
    ----------
    identity
        Who the site is.
    desk
        What answers.
    backoff
        How long to wait between attempts to connect.
    data
        A digest of the site's data, for analyses that are repeated later.

    Attributes
    ----------
    connected
        Whether there is a connection now.
    """

    def __init__(self, identity: Identity, desk: Desk, backoff: Backoff | None = None, data: str = "") -> None:
        self.identity, self._desk, self._data = identity, desk, data
        self._backoff = backoff or Backoff()
        self._ended = threading.Event()
        self._seen, self._heads = ReplayGuard(identity.folder), Receiver()
        pins = Pins(identity.folder).read()
        self._unsealer = Unsealer(identity.about.study, Secret.of(identity.folder), pins) if pins else None
        last = None if desk.audit is None else desk.audit.last
        if last is not None and not self._seen.knows(last.run, last.asker):
            self._seen.close()
            raise RuntimeError(
                f"{identity.folder / FILE} does not know the run {last.run} of {last.asker}, which is in the log: an "
                "older file was put in its place, or it was removed; look into it, and move the log elsewhere if that "
                "was on purpose"
            )
        self._stream: Stream | None = None
        #: When the last line of the log was sent last.
        self._anchored = 0.0
        self.connected = threading.Event()

    def stop(self) -> None:
        """End after the request that is being answered."""
        self._ended.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def run(self) -> None:
        """Answer until :meth:`stop`; raise RefusedError where the hub does not want this site."""
        try:
            with one_thread():  # as all that answers needs it: to set it again for every request takes longer
                self._stay()
        finally:
            self._seen.close()

    def _stay(self) -> None:
        """Connect again and again, ever more seldom while that fails."""
        said = ""
        while not self._ended.is_set():
            try:
                self._attend()
                continue
            except RefusedError:
                raise
            except (LostError, MessageError) as error:  # nothing that a hub sends ends a site but a refusal
                if str(error) != said:  # once, not at every attempt
                    log.warning("%s; trying again", error)
                said = str(error)
            finally:
                if self.connected.is_set():
                    self.connected.clear()
                    said = ""
            self._ended.wait(self._backoff.seconds())

    def _attend(self) -> None:
        """Connect once, and answer until the connection ends."""
        audit = self._desk.audit
        said = {"data": self._data} if self._data else {}
        more: dict[str, Any] = said if audit is None else {**said, "log": list(audit.anchor)}
        with Stream(self.identity.about, self.identity.credentials, more=more) as stream:
            self._stream, self._anchored = stream, -EVERY
            remembered = read_anchor(stream.said.get("log"))
            if audit is not None and remembered is not None and not audit.has(remembered):
                raise RefusedError(
                    f"the log of this site has no line {remembered.number} with the hash {remembered.hash}…, which the "
                    "hub remembers: an older log or another was put in its place; look into it, and tell the "
                    f"coordinator, who can accept it: fpdfp federation forget STUDY {self.identity.about.name}"
                )
            if self._ended.is_set():
                return
            self._backoff.succeed()
            self.connected.set()
            log.info("%s is connected to %s", self.identity.about.name, self.identity.about.address)
            difference = clock_difference(stream.said)
            if difference is not None:
                log.warning("the clock of the hub is %s", difference)
            # What comes in is noted at once, so that it is known how long it has waited.
            arrived, reader = stream.read()
            try:
                self._work(stream, arrived)
            finally:
                stream.close()
                arrived.close()
                reader.join(5.0)

    def _work(self, stream: Stream, arrived: Inbox[Arrived]) -> None:
        look = 0.0
        while True:
            if time.monotonic() >= look:
                look = time.monotonic() + LOOK_AT_CERTIFICATE
                self._check_certificate(stream)
            try:
                came = arrived.get(timeout=max(0.0, look - time.monotonic()))
            except queue.Empty:
                continue
            if came is None:
                return
            if isinstance(came, Exception):
                raise came
            when, message = came
            if message.kind == "certificate":
                take_certificate(self.identity, message)
                return  # and connect anew, with it
            if message.kind == "ask":
                self._answer(stream, when, message)

    def _check_certificate(self, stream: Stream) -> None:
        if self.identity.validity.is_due():
            log.warning("%s; it is being renewed", self.identity.warn())
            renew(self.identity, stream)

    def _answer(self, stream: Stream, when: float, message: Message) -> None:
        left, number = message.about.get("left"), message.about.get("id")
        if isinstance(left, int | float) and time.monotonic() - when > left:
            log.warning("a request is left out: nobody waits for it any longer")
            return
        started = time.monotonic()
        reply = self._respond(message)
        said: dict[str, Any] = {"id": number, "seconds": round(time.monotonic() - started, 4)}
        if self._desk.audit is not None and time.monotonic() - self._anchored > EVERY:
            self._anchored = time.monotonic()
            said["log"] = list(self._desk.audit.anchor)
        stream.send(Message("reply", said, reply))

    def _respond(self, message: Message) -> bytes:
        """Return the reply to a request, under seal where this site knows keys of analysts."""

        def answer(body: bytes) -> bytes:
            opened = message._replace(body=body)
            return respond(opened, self.identity.about, self._desk, self._seen, self._heads)

        if self._unsealer is None:
            return answer(message.body)
        try:
            asker = _asker(message, self.identity.about)
            return self._unsealer.respond(asker.name, b"" if message.dropped else message.body, answer)
        except MessageError as error:
            log.warning("a request is refused: %s", error)
            return pack({"error": str(error)})


def respond(message: Message, about: About, desk: Desk, seen: ReplayGuard, heads: Receiver | None = None) -> bytes:
    """Return the reply to a request; an error is a reply that states it.

    ``heads`` come from earlier requests, which a request may name; none of them by default.

    Only errors of the protocol are described: the text of another might say something of the data.
    """
    echo: dict[str, Any] = {"run": "", "sequence": 0, "site": about.name}
    try:
        if message.dropped:
            raise MessageError(f"a request of {message.dropped} bytes is too long")
        asked = unpack(message.body)
        refuse_unprintable(asked)
        asker = _asker(message, about)
        if isinstance(asked, dict):
            echo = {name: asked[name] for name in (CONVERSATION, NUMBER) if name in asked} or echo
            asked = (heads or Receiver()).read(asked, asker.fingerprint)
        if asked is None:
            return pack({UNKNOWN: True, **echo})
        if not isinstance(asked, dict) or type(asked.get("run")) is not str or type(asked.get("sequence")) is not int:
            raise MessageError("a request must say its run and its number")
        if CONVERSATION not in echo:
            echo |= {"run": asked["run"], "sequence": asked["sequence"]}
        if asked.get("site") != about.name:
            raise MessageError(f"a request is for '{printable(asked.get('site'), 64)}', this is {about.name}")
        seen.check(asked["run"], asked["sequence"], asker.name)
        return pack({**desk.answer(asked, asker), **echo})
    except MessageError as error:
        log.warning("a request is refused: %s", error)
        known = {"seen": error.seen} if isinstance(error, OlderError) else {}
        return pack({"error": str(error), **known, **echo})
    except Exception as error:
        log.exception("a request could not be answered")
        return pack({"error": f"{type(error).__name__} at the site; its log says more", **echo})


def _asker(message: Message, about: About) -> Asker:
    said = message.about.get("asker")
    if not isinstance(said, dict):
        raise MessageError("the hub must say who asks")
    role, fingerprint = str(said.get("role")), str(said.get("fingerprint"))
    if role not in ("site", "analyst") or re.fullmatch("[0-9a-f]{1,64}", fingerprint) is None:
        raise MessageError("the hub must state the role and the certificate of the requester")
    try:
        return Asker(read_name("the asker's name", said.get("name")), role, fingerprint, about.study)
    except ValueError as error:
        raise MessageError(str(error)) from None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within this, no other process is this site."""
    keys.make_private_folder(folder)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusedError(f"another process is running with {folder}") from None
        yield


def digest_of_data(folder: Path, fingerprint: str) -> str:
    """Return a digest of a site's data that shows others whether it has changed, and nothing else.

    It is salted with a secret of the site, in its folder: no one can compare it with a table of their own.
    """
    path = folder / SALT
    if not path.exists():
        files.write_whole(path, secrets.token_bytes(32), flush=True, private=True)
    return hashlib.sha256(path.read_bytes() + fingerprint.encode()).hexdigest()[:16]


def open_guard(name: str, folder: Path, data: Path, policy: Path | None) -> RequestGuard:
    """Return what answers for a site: its table behind its policy, which is written if it is missing."""
    from fpdfp.federation.guard import RequestGuard
    from fpdfp.federation.policy import Policy, template
    from fpdfp.federation.protected import ProtectedGuard
    from fpdfp.federation.table import SiteTable

    if policy is None:
        policy = folder / "policy.toml"
        if not policy.exists():
            policy.write_text(template())
            log.warning("%s is the policy: read it, and change what does not fit", policy)
    rules = Policy.read(policy)
    kind = RequestGuard if rules.level == "filter" else ProtectedGuard
    return kind(name, SiteTable.read(data, rules.columns_of_the_table), rules, folder)


def attend(identity: Identity, desk: Desk, data: str = "") -> None:
    """Run a site until it is interrupted or terminated."""
    agent = Agent(identity, desk, data=data)

    def end(*_: Any) -> None:
        # In a thread: what stop() waits for may be held by the code that the signal has interrupted.
        threading.Thread(target=agent.stop, daemon=True).start()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        agent.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    log.info("%s ends", identity.about.name)
