"""Connections to the hub: a stream, as every site and analyst has it, and an analyst's connection, which comes back.

A site or an analyst opens a :class:`Stream`, on which both sides have said hello. An analyst sends all sites' requests
in one message, waits for the replies, and connects anew where the stream is lost (:class:`Connection`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import itertools
import json
import queue
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from fpdfp.errors import AbsentError, MessageError, RefusalError
from fpdfp.federation import keys
from fpdfp.federation.framing import (
    CLIENT_OPTIONS,
    LONGEST,
    LONGEST_HEAD,
    METHOD,
    PART,
    PROTOCOL,
    Backoff,
    Decoder,
    Inbox,
    LostError,
    Message,
    RefusedError,
    agree,
    clock_difference,
    encode,
    hello,
    pack_together,
    split,
)
from fpdfp.federation.keys import PENDING, STATES, About, Credentials, Identity, Invitation, pending_key
from fpdfp.federation.rollback import Anchors, read_anchor
from fpdfp.federation.seal import Pins, Sealer, Secret
from fpdfp.federation.text import log, printable, read_name, read_release, refuse_unprintable

#: Seconds to wait for a connection and the hub's hello.
PATIENCE = 20.0
#: Seconds after which a connection is given up whose other side takes nothing.
STALLED = 60.0
#: How often sites are greeted that do not know a session any more.
GREETINGS = 3


#: A message with the time at which it came; or what ended the stream, None where this side has closed it.
Arrived = tuple[float, Message] | Exception | None


class Stream:
    """A stream to the hub and back, on which both sides have said hello.

    Parameters
    ----------
    about, credentials
        Who connects, where to, and with what.
    limit
        The longest body that is taken.
    protocol
        The versions of the protocol that are spoken.
    more
        What the hello says next to who connects: of a site's log and its data.

    Attributes
    ----------
    said
        What the hub's hello says.
    sent, received
        Bytes so far, with all that is around messages but HTTP/2 and TLS.
    """

    def __init__(
        self,
        about: About,
        credentials: Credentials,
        limit: int = LONGEST,
        protocol: tuple[int, int] = PROTOCOL,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        import grpc

        problem = keys.validity(credentials.certificate).problem()
        if problem is not None:
            raise RefusedError(
                f"{about.name} cannot connect: {problem}; set the clock, or ask the coordinator for a new invitation"
            )
        self.about = about
        self.sent = self.received = 0
        self._unsent: Inbox[list[bytes]] = Inbox()
        self._decoder = Decoder(LONGEST_HEAD)
        self._closed = False
        secure = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate)
        self._channel = grpc.secure_channel(
            about.address, secure, options=CLIENT_OPTIONS, compression=grpc.Compression.NoCompression
        )
        try:
            self._call = self._channel.stream_stream(METHOD)(self._outgoing())
            self.send(hello(about.study, about.role, about.name, protocol, more))
            self._messages = self._incoming()
            # Someone who takes the connection and says nothing is not waited for.
            alarm = threading.Timer(PATIENCE, self._call.cancel)
            alarm.daemon = True
            alarm.start()
            try:
                first = next(self._messages)
            except LostError as error:
                # Where the hub has answered, it has said why.
                said = self._call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                raise LostError(str(error) if said else explain(about, credentials)) from None
            finally:
                alarm.cancel()
            self._decoder.limit = limit
            agree(first.about, "the hub", about.name, protocol)
            self.said = first.about
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, message: Message) -> None:
        """Send a message; it goes out as soon as those before it are out. Raise LostError if the hub takes nothing."""
        pieces = encode(message)
        if not self._unsent.put(pieces, sum(map(len, pieces)), STALLED):
            raise LostError(f"the hub has taken nothing for {STALLED:g} s")

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the connection ends; raise LostError if that was not requested."""
        return self._messages

    def read(self) -> tuple[Inbox[Arrived], threading.Thread]:
        """Read in a thread; return that and its inbox: messages with the time, and at last what ended the stream."""
        arrived: Inbox[Arrived] = Inbox()

        def read() -> None:
            with contextlib.suppress(GeneratorExit):
                try:
                    for message in self:
                        arrived.put((time.monotonic(), message), len(message.body))
                    arrived.put(None)
                except Exception as error:
                    arrived.put(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return arrived, reader

    def limit(self, length: int) -> None:
        """Set the longest body that is taken from now on."""
        self._decoder.limit = length

    def close(self) -> None:
        """End the connection; what gRPC does not end within ``LAST_WORDS`` is left to the end of the process."""
        self._closed = True
        self._unsent.close()
        if hasattr(self, "_call"):
            self._call.cancel()
        # A channel waits, without a limit, until its thread has delivered the end of each call.
        ending = threading.Thread(target=self._channel.close, daemon=True)
        ending.start()
        ending.join(timeout=LAST_WORDS)

    def _outgoing(self) -> Iterator[bytes]:
        while True:
            try:
                ready = list(self._unsent.get())
            except queue.Empty:
                return  # it was closed
            # What is ready by now goes out together.
            with contextlib.suppress(queue.Empty):
                while True:
                    ready += self._unsent.get(0.0)
            for part in split(ready):
                self.sent += len(part)
                yield part

    def _incoming(self) -> Iterator[Message]:
        import grpc

        try:
            for part in self._call:
                self.received += len(part)
                for message in self._decoder.feed(part):
                    if message.kind == "refused":
                        raise RefusedError(printable(message.about.get("why")))
                    yield message
        except grpc.RpcError as error:
            if not self._closed:
                details: Any = getattr(error, "details", lambda: "")()
                raise LostError(f"the connection to the hub was lost ({printable(details, 200)})") from None
        if not self._closed:
            raise LostError("the hub has closed the connection")


def explain(about: About, credentials: Credentials) -> str:
    """Explain a missing connection: no name, no route, no one there, or a certificate that is not believed."""
    host, port = keys.split_address("address", about.address)
    start = f"{about.name} cannot reach the hub at {about.address}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "own.pem"
            keys.write_private(own, credentials.key + credentials.certificate)
            context = ssl.create_default_context(cadata=credentials.authority.decode())
            context.load_cert_chain(own)
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, port), timeout=5.0) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            connection.settimeout(1.0)
            # With TLS 1.3 it is only now that the hub describes what it thinks of our certificate.
            with contextlib.suppress(TimeoutError):
                connection.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"{start}: this machine does not believe its certificate ({error.verify_message}); is the clock right?"
    except ssl.SSLError as error:
        return f"{start}: it does not believe this side's certificate ({error.reason}); is a clock wrong?"
    except OSError as error:
        return f"{start}: {error}"
    return f"{start}: no answer within {PATIENCE:g} s"


def enrol(invitation: Invitation, folder: Path) -> Identity:
    """Make a key in a folder, and have it signed with an invitation, which is of no use then; return who one is."""
    key = pending_key(folder)
    request = keys.make_request(key, invitation.about.name)
    with Stream(invitation.about, invitation.credentials) as stream:
        stream.send(Message("enrol", {"request": request.decode()}))
        certificate = _certificate(next(iter(stream)), key)
    identity = Identity.write(folder, invitation.about, invitation.credentials.authority, key + certificate)
    (folder / PENDING).unlink(missing_ok=True)
    return identity


def renew(identity: Identity, stream: Stream) -> None:
    """Ask for a new certificate, with a new key; what comes back is taken by :func:`take_certificate`."""
    request = keys.make_request(pending_key(identity.folder), identity.about.name)
    stream.send(Message("renew", {"request": request.decode()}))


def take_certificate(identity: Identity, message: Message) -> None:
    """Take a new certificate that was requested, which the next connection uses."""
    if not (identity.folder / PENDING).exists():
        raise MessageError("the hub has sent a certificate that was not requested")
    key = pending_key(identity.folder)
    identity.replace(key, _certificate(message, key))
    log.info("the certificate of %s was renewed, until %s", identity.about.name, f"{identity.validity.ends:%Y-%m-%d}")


def _certificate(message: Message, key: bytes) -> bytes:
    """Return the certificate that the hub has sent for a key; refuse anything else."""
    if message.kind != "certificate":
        raise MessageError(f"the hub has sent {message.kind[:20]!r} in place of a certificate")
    return keys.read_certificate(message.about.get("certificate"), key)


class SiteStatus(NamedTuple):
    """The state of a site at the hub; ``data`` is a digest of its data."""

    name: str
    state: str
    online: bool
    since: datetime.datetime | None = None
    software: str | None = None
    certificate_ends: datetime.datetime | None = None
    clock: str | None = None
    data: str | None = None

    def __str__(self) -> str:
        if not self.online:
            return f"{self.name}: {'not connected' if self.state == 'joined' else self.state}"
        clock = f", its clock is {self.clock}" if self.clock else ""
        ends = f", certificate until {self.certificate_ends:%Y-%m-%d}" if self.certificate_ends else ""
        return f"{self.name}: online since {self.since:%Y-%m-%d %H:%M} UTC, release {self.software}{ends}{clock}"


class Status(NamedTuple):
    """The state of all sites at the hub, with certificates that end soon."""

    study: str
    software: str
    sites: list[SiteStatus]
    warnings: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.study}, release {self.software}", *map(str, self.sites), *self.warnings])


def read_status(message: Message) -> Status:
    """Return what the hub says about the sites, checked; raise MessageError where it cannot be that."""
    try:
        said = {**message.about, **json.loads(message.body)}
        refuse_unprintable(said)
        sites = [_read_site(site) for site in said["sites"]]
        warnings = [printable(one, 200) for one in said["warnings"][:1000]]
        return Status(read_name("study", said["study"]), read_release(said.get("software")), sites, warnings)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError) as error:
        raise MessageError(f"the hub's status cannot be read ({type(error).__name__})") from None


def _read_site(site: Mapping[str, Any]) -> SiteStatus:
    since, ends, clock, data = (site.get(name) for name in ("since", "ends", "clock", "data"))
    if site["state"] not in STATES or (site["online"] and since is None):
        raise ValueError("a site must be invited, joined or removed, and online since some time")
    return SiteStatus(
        name=read_name("site", site["name"]),
        state=site["state"],
        online=bool(site["online"]),
        since=None if since is None else datetime.datetime.fromtimestamp(since, datetime.UTC),
        software=None if since is None else read_release(site.get("software")),
        certificate_ends=None if ends is None else datetime.datetime.fromisoformat(ends),
        clock=None if clock is None else printable(clock, 100),
        data=None if data is None else read_release(data),
    )


#: The longest list of sites, in bytes.
LONGEST_STATUS = 1 << 22
#: Requests to several sites go in one message of at most this many bytes, if there are more than one.
TOGETHER = 1 << 26
#: Seconds in which the end of a connection is delivered.
LAST_WORDS = 2.0
#: Exchanges that the latency is the median of; those with at most this many bytes, and with at least this many.
RECENT, SHORT, LONG = 50, 1 << 14, 1 << 18


@dataclasses.dataclass
class SiteUsage:
    """The cost of the exchanges with one site so far."""

    waited: float = 0.0
    up: int = 0
    down: int = 0


@dataclasses.dataclass
class Usage:
    """The cost of a federation so far.

    Attributes
    ----------
    exchanges
        How often sites were asked.
    up, down
        Bytes from the hub to this process, and from here to the hub: sites' replies, and requests.
    waited
        Seconds for which this process has waited, in all.
    sites
        The same for each site: seconds until its replies came, and the bytes of requests and replies.
    """

    exchanges: int = 0
    up: int = 0
    down: int = 0
    waited: float = 0.0
    sites: dict[str, SiteUsage] = dataclasses.field(default_factory=lambda: collections.defaultdict(SiteUsage))
    #: Of the latest exchanges: seconds under way of short messages, and bytes a second of long ones.
    _latencies: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=RECENT))
    _rates: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=RECENT))

    def note(self, site: str, elapsed: float, busy: Any, up: int, down: int) -> None:
        """Take note of a reply: seconds until it came, those that its site took, and the bytes there and back."""
        one = self.sites[site]
        one.waited, one.up, one.down = one.waited + elapsed, one.up + up, one.down + down
        if not (isinstance(busy, int | float) and 0 <= busy <= elapsed):
            return
        if up + down <= SHORT:
            self._latencies.append(elapsed - busy)
        elif up + down >= LONG:
            self._rates.append((up + down) / max(elapsed - busy - (self.latency or 0.0), 1e-6))

    @property
    def latency(self) -> float | None:
        """Seconds there and back for a short message, without computing; None before there was one."""
        return statistics.median(self._latencies) if self._latencies else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second; None before there was a long message."""
        return statistics.median(self._rates) if self._rates else None


class Connection:
    """A connection of an analyst to the hub, made when it is needed and again when it is lost.

    Parameters
    ----------
    identity
        Who the analyst is.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.usage = Usage()
        self._anchors = Anchors(identity.folder)
        self._stream: Stream | None = None
        self._reader: threading.Thread | None = None
        self._certificate = b""
        self._arrived: Inbox[Arrived] = Inbox()
        self._numbers = itertools.count(1)
        self._alone = threading.RLock()
        pins = Pins(identity.folder).read()
        #: Puts all that is said under seal, where this analyst knows keys of sites.
        self.sealer = Sealer(identity.about.study, Secret.of(identity.folder), pins) if pins else None

    def close(self) -> None:
        """End the connection; the next exchange makes another."""
        self._anchors.save(at_once=True)
        stream, self._stream = self._stream, None
        self._arrived.close()
        if stream is not None:
            stream.close()
        # A process that ends while threads of gRPC deliver the end of a call may wait for ever.
        if self._reader is not None:
            self._reader.join(timeout=LAST_WORDS)
            self._reader = None

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = LONGEST) -> dict[str, Any]:
        """Send sites their requests; return by the deadline what came: bytes, or AbsentError.

        Where the connection is lost meanwhile, what was not answered is sent again. ``limit`` is the longest reply that
        is taken. With a sealer all that is said goes under seal.
        """
        if self.sealer is None:
            return self._carry(parcels, timeout, limit)
        until, found = time.monotonic() + timeout, dict[str, Any]()
        for _ in range(GREETINGS):
            strangers = [name for name in parcels if name not in found and not self.sealer.knows(name)]
            if strangers:
                greetings = {name: self.sealer.greet(name) for name in strangers}
                found |= self._meet(self._carry(greetings, until - time.monotonic(), LONGEST_HEAD))
            known = [name for name in parcels if name not in found and self.sealer.knows(name)]
            asked = {name: self.sealer.seal(name, parcels[name]) for name in known}
            came = self._carry(asked, until - time.monotonic(), limit + LONGEST_HEAD) if asked else {}
            opened = {name: self._open(name, asked[name], one) for name, one in came.items()}
            found |= {name: one for name, one in opened.items() if one is not None}
            if len(found) == len(parcels) or time.monotonic() > until:
                break
        return found

    def _meet(self, came: Mapping[str, Any]) -> dict[str, Any]:
        """Take answers to greetings; return what failed."""
        assert self.sealer is not None
        failed: dict[str, Any] = {}
        for name, one in came.items():
            try:
                self.sealer.meet(name, one if isinstance(one, bytes) else b"")
            except MessageError as error:
                failed[name] = error if isinstance(one, bytes) else one
        return failed

    def _open(self, name: str, asked: bytes, came: Any) -> Any:
        """Return a reply without its seal, or why it is missing; None if the site does not know the session."""
        assert self.sealer is not None
        if not isinstance(came, bytes):
            return came
        try:
            opened = self.sealer.open(name, asked, came)
        except MessageError as error:
            return error
        if opened is None:
            self.sealer.forget(name)
        return opened

    def _carry(self, parcels: Mapping[str, bytes], timeout: float, limit: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with self._alone:
            started = time.monotonic()
            until = started + timeout
            try:
                while len(found) < len(parcels):
                    waiting = {name: parcel for name, parcel in parcels.items() if name not in found}
                    try:
                        stream = self._connect(until)
                    except LostError as error:
                        found |= {name: AbsentError(str(error)) for name in waiting}
                        break
                    before = stream.sent, stream.received
                    try:
                        if self._ask(stream, waiting, found, until, limit):
                            break
                    except LostError as error:
                        log.warning("%s", error)
                        self.close()
                    finally:
                        self.usage.down += stream.sent - before[0]
                        self.usage.up += stream.received - before[1]
            finally:
                self.usage.exchanges += 1
                self.usage.waited += time.monotonic() - started
                self._anchors.save()
        return found

    def status(self, timeout: float = 20.0) -> Status:
        """Return what the hub says about the sites."""
        with self._alone:
            until = time.monotonic() + timeout
            stream = self._connect(until)
            stream.limit(LONGEST_STATUS)
            number = next(self._numbers)
            stream.send(Message("status", {"id": number}))
            while True:
                message = self._next(until)
                if message is None:
                    raise LostError(f"the hub has not answered within {timeout:g} s")
                if message.kind == "status" and message.about.get("id") == number:
                    return read_status(message)

    def _ask(self, stream: Stream, waiting: dict[str, bytes], found: dict[str, Any], until: float, limit: int) -> bool:
        """Ask once; return whether the time is over."""
        stream.limit(max(limit, PART))
        numbers = set()
        started = time.monotonic()
        for group in _groups(waiting):
            number = next(self._numbers)
            numbers.add(number)
            to = [[name, len(waiting[name])] for name in group]
            about = {"id": number, "to": to, "left": round(max(0.0, until - started), 3)}
            stream.send(pack_together(Message("ask", about, b"".join(waiting[name] for name in group))))
        while any(name not in found for name in waiting):
            message = self._next(until)
            if message is None:
                return True
            site = message.about.get("site")
            if message.about.get("id") not in numbers or site not in waiting or site in found:
                continue  # late, or about something else
            if message.kind == "absent":
                found[site] = AbsentError(printable(message.about.get("why"), 200))
            elif message.kind == "reply":
                elapsed = time.monotonic() - started
                self.usage.note(site, elapsed, message.about.get("seconds"), len(message.body), len(waiting[site]))
                found[site] = message.body
                if message.dropped:
                    found[site] = MessageError(
                        f"it has {message.dropped} bytes, more than any that was asked for ({limit})"
                    )
                wrong = self._check_log(message)
                if wrong is not None:
                    found[site] = RefusalError(wrong)
        return False

    def _check_log(self, message: Message) -> str | None:
        """Compare what the hub says about a site's log with what is remembered; return what is wrong with it."""
        site, era = str(message.about.get("site")), printable(message.about.get("era"), 100)
        if "log" not in message.about:
            return None
        if self._anchors.era(site) not in ("", era):
            log.warning("the coordinator has accepted that the log of %s begins anew", site)
        return self._anchors.check(site, read_anchor(message.about["log"]), era)

    def _next(self, until: float) -> Message | None:
        """Return the next message; None when the time is over. Raise LostError where the connection is lost."""
        try:
            came = self._arrived.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        if came is None:
            raise LostError("the connection was closed")
        if isinstance(came, RefusedError) and self.identity.credentials.certificate != self._certificate:
            raise LostError("the certificate was renewed by another process")
        if isinstance(came, Exception):
            self.close()
            raise came
        _, message = came
        if message.kind == "certificate":
            take_certificate(self.identity, message)
        return message

    def _connect(self, until: float) -> Stream:
        """Return the connection, or make one; raise LostError if it cannot be made in time."""
        backoff = Backoff(longest=5.0)
        while self._stream is None:
            credentials = self.identity.credentials
            try:
                stream = Stream(self.identity.about, credentials)
            except LostError as error:
                wait = backoff.seconds()
                if time.monotonic() + wait > until:
                    raise
                log.warning("%s; trying again", error)
                time.sleep(wait)
                continue
            self._certificate = credentials.certificate
            self._arrived, self._reader = stream.read()
            self._stream = stream
            difference = clock_difference(stream.said)
            if difference is not None:
                log.warning("the clock of the hub is %s", difference)
            if self.identity.validity.is_due():
                log.warning("%s; it is being renewed", self.identity.warn())
                renew(self.identity, stream)
        return self._stream


def _groups(parcels: Mapping[str, bytes]) -> list[list[str]]:
    """Return the names in groups whose parcels go in one message."""
    groups: list[list[str]] = []
    length = 0
    for name, parcel in parcels.items():
        if not groups or length + len(parcel) > TOGETHER:
            groups.append([])
            length = 0
        groups[-1].append(name)
        length += len(parcel)
    return groups
