"""The hub: one port to which sites and analysts connect, and which hands on what they send each other.

The hub decides who may connect, and nothing else: it holds no data, computes nothing, and looks into no parcel. Who
connects is known by the fingerprint of the certificate, which the study's registry must list; where it was removed from
there, the connection is dropped within half a second.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import fpdfp
from fpdfp.errors import MessageError
from fpdfp.federation import keys
from fpdfp.federation.framing import (
    LONGEST,
    LONGEST_HEAD,
    METHOD,
    PART,
    PROTOCOL,
    SERVER_OPTIONS,
    Decoder,
    Message,
    RefusedError,
    agree,
    clock_difference,
    encode,
    hello,
    split,
    unpack_together,
)
from fpdfp.federation.keys import Member, Study, refuse_early, refuse_used
from fpdfp.federation.rollback import EVERY, Anchors, read_anchor
from fpdfp.federation.text import log, printable, read_release

if TYPE_CHECKING:
    import grpc

#: Seconds between two looks at the registry, and at the hub's own certificate.
LOOK, LOOK_AT_CERTIFICATE = 0.5, 3600.0
#: What a message takes besides its bytes, and what a request to one site and a question about all of them cost of what
#: a peer may send in a second: the hub's processor is busy for some 20 microseconds for each.
OVERHEAD, STATUS = 512, 100
#: The longest time for which an answer is waited for, in seconds.
LONGEST_WAIT = 24 * 3600.0
#: How many certificates' rates are remembered.
RATES = 4096


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a peer at the hub.

    Attributes
    ----------
    hello
        Seconds until someone has said who it is.
    stalled
        Seconds for which someone may take nothing of what waits for it, or send nothing of a message that has begun.
    streams, streams_in_all
        How many connections there may be with one certificate, and in all.
    memory, memory_in_all
        Bytes that may wait for one, or have come of a message that is not complete; and of all together.
    unanswered, unanswered_in_all
        How many requests a site may owe answers to, to one analyst and in all.
    connections, connections_at_once
        How many connections a certificate may make in a second in the long run, and in a short time.
    messages, messages_at_once
        The same of messages; a request to several sites counts once for each.
    """

    hello: float = 20.0
    stalled: float = 60.0
    streams: int = 32
    streams_in_all: int = 1024
    memory: int = LONGEST
    memory_in_all: int = 2 * LONGEST
    unanswered: int = 256
    unanswered_in_all: int = 1024
    connections: float = 1.0
    connections_at_once: float = 60.0
    messages: float = 5000.0
    messages_at_once: float = 10000.0


class Rate:
    """A rate limit: an amount at once, and an amount a second in the long run."""

    def __init__(self, rate: float, at_once: float) -> None:
        self._rate, self._at_once = rate, at_once
        self._left, self._when = at_once, time.monotonic()

    def take(self, count: float = 1.0) -> float:
        """Take some; return the seconds after which that is within the rate, 0 if it is now."""
        now = time.monotonic()
        self._left = min(self._at_once, self._left + self._rate * (now - self._when)) - count
        self._when = now
        return max(0.0, -self._left / self._rate)


class Open(NamedTuple):
    """A request that a site has not answered: whose it is, under which number, and until when it is waited for."""

    asker: Peer
    number: Any
    until: float


@dataclasses.dataclass(eq=False)
class Peer:
    """Someone who is connected."""

    member: Member
    fingerprint: str
    invited: bool
    said: dict[str, Any]
    limits: Limits
    decoder: Decoder
    since: float = dataclasses.field(default_factory=time.time)
    queue: collections.deque[list[bytes]] = dataclasses.field(default_factory=collections.deque)
    queued: int = 0
    ready: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    #: Set where the connection must end whether or not anything can be sent.
    cut: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    #: When it last took something or had nothing to take, and last sent something or owed nothing.
    took: float = dataclasses.field(default_factory=time.monotonic)
    came: float = dataclasses.field(default_factory=time.monotonic)
    #: Why the connection is ended, once it is.
    ended: str | None = None
    #: What a site was asked and has not answered.
    asked: dict[int, Open] = dataclasses.field(default_factory=dict)
    #: When an analyst received the last line of each site's log.
    told: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def held(self) -> int:
        """The bytes that the hub keeps for it."""
        return self.queued + self.decoder.held

    def send(self, message: Message) -> bool:
        """Send a message as soon as what is before it is out; False if too much waits already."""
        pieces = encode(message)
        length = sum(map(len, pieces)) + OVERHEAD
        if self.ended is not None or (self.queue and self.queued + length > self.limits.memory):
            return False
        if not self.queued:
            self.took = time.monotonic()
        self.queue.append(pieces)
        self.queued += length
        self.ready.set()
        return True

    def end(self, why: str) -> None:
        """End the connection, and say why."""
        if self.ended is None:
            self.send(Message("refused", {"why": why}))
            self.ended = why
            self.ready.set()

    def drop(self, why: str) -> None:
        """End the connection at once; its other side may come back."""
        log.warning("%s is dropped: %s", self.member.name, why)
        self.ended = self.ended or why
        self.cut.set()


class Hub:
    """The server of a study.

    Parameters
    ----------
    study
        The study.
    bind
        The address to listen at.
    protocol
        The versions of the protocol that are spoken.
    limits
        What those who connect may take.
    """

    def __init__(
        self, study: Study, bind: str = "[::]", protocol: tuple[int, int] = PROTOCOL, limits: Limits | None = None
    ) -> None:
        self.study, self._bind, self._protocol = study, bind, protocol
        self.limits = limits or Limits()
        #: How many streams there are with each certificate, and how fast each connects and sends.
        self._streams: collections.Counter[str] = collections.Counter()
        self._rates: collections.OrderedDict[str, tuple[Rate, Rate]] = collections.OrderedDict()
        self._sites: dict[str, Peer] = {}
        self._anchors = Anchors(study.folder)
        self._peers: set[Peer] = set()
        self._numbers = itertools.count(1)
        self._server: grpc.aio.Server | None = None
        self._presented: bytes = b""
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen."""
        import grpc

        self.study.registry.reread()
        self.study.renew_hub()
        first = self._configuration()
        secure = grpc.dynamic_ssl_server_credentials(first, self._renewed, require_client_authentication=True)
        server = grpc.aio.server(options=SERVER_OPTIONS, compression=grpc.Compression.NoCompression)
        handler = grpc.stream_stream_rpc_method_handler(self._connect)
        service, method = METHOD.strip("/").split("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        address = keys.join_address(self._bind.strip("[]"), self.study.port)
        try:
            server.add_secure_port(address, secure)
        except RuntimeError:
            raise OSError(f"the hub cannot listen at {address}: is another one running there?") from None
        await server.start()
        self._server = server
        self._watch = asyncio.create_task(self._look())
        log.info("%s listens at %s", self.study.name, address)

    async def stop(self) -> None:
        """End all connections; those who were connected come back when there is a hub again."""
        if self._watch is not None:
            self._watch.cancel()
        for peer in list(self._peers):
            peer.ended = peer.ended or "the hub ends"
            peer.cut.set()
        self._anchors.save(at_once=True)
        if self._server is not None:
            await self._server.stop(0.2)

    def _configuration(self) -> Any:
        import grpc

        own = self.study.credentials()
        self._presented = own.certificate
        return grpc.ssl_server_certificate_configuration([(own.key, own.certificate)], own.authority)

    def _renewed(self) -> Any:
        """Return the hub's certificate for a new connection where it has changed; None where it has not."""
        try:
            return None if self.study.credentials().certificate == self._presented else self._configuration()
        except OSError:
            return None

    async def _look(self) -> None:
        """Drop those who were removed, and renew the hub's certificate."""
        next_look = 0.0
        while True:
            try:
                self._drop_stalled()
                self._anchors.save()
                if self.study.registry.reread():
                    self._drop()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + LOOK_AT_CERTIFICATE
                    if self.study.renew_hub():
                        log.info("the hub's certificate was renewed")
                    for line in self.study.warnings():
                        log.warning("%s", line)
            except (OSError, ValueError) as error:
                log.error("the registry cannot be read, and the last one counts: %s", error)
            await asyncio.sleep(LOOK)

    def _drop_stalled(self) -> None:
        now = time.monotonic()
        for peer in list(self._peers):
            if peer.queued and now - peer.took > self.limits.stalled:
                peer.drop(f"it has taken nothing for {self.limits.stalled:g} s")
            elif peer.decoder.held and now - peer.came > self.limits.stalled:
                peer.drop(f"it has not gone on with a message for {self.limits.stalled:g} s")

    def _make_room(self) -> None:
        """Drop those for whom most is kept until it is no more than there may be in all."""
        while sum(peer.held for peer in self._peers) > self.limits.memory_in_all:
            most = max(self._peers, key=lambda peer: peer.held)
            self._leave(most)
            most.drop(f"of {self.limits.memory_in_all} bytes that may wait in all, it has {most.held}")

    def _drop(self) -> None:
        registry = self.study.registry
        for peer in list(self._peers):
            find = registry.find_invitation if peer.invited else registry.find
            member = find(peer.fingerprint)
            if member is None or member.removed:
                peer.end(self._why_not(peer.fingerprint))
                log.warning("%s is no longer allowed, and was dropped", peer.member.name)

    def _why_not(self, fingerprint: str) -> str:
        """Say why a certificate is refused."""
        was = self.study.registry.was_of(fingerprint)
        if was is not None:
            return f"{was.name} was removed from the study {self.study.name} on {was.removed[:10]}"
        return (
            f"this certificate ({fingerprint[:16]}…) is not, or no longer, one of the study {self.study.name}: ask the "
            "coordinator for a new invitation"
        )

    def _admit(self, fingerprint: str, said: Message, decoder: Decoder) -> Peer:
        """Return who connects, or say why he may not."""
        if said.kind != "hello":
            raise RefusedError("the first message must be a hello")
        registry = self.study.registry
        member, invited = registry.find(fingerprint), False
        if member is None:
            member, invited = registry.find_invitation(fingerprint), True
        if member is None or member.removed:
            raise RefusedError(self._why_not(fingerprint))
        agree(said.about, member.name, "the hub", self._protocol)
        if (said.about.get("name"), said.about.get("role")) != (member.name, member.role):
            raise RefusedError(
                f"this key belongs to the {member.role} {member.name}, and does not serve for "
                f"{printable(said.about.get('role'), 20)} {printable(said.about.get('name'), 64)}"
            )
        if said.about.get("study") != self.study.name:
            raise RefusedError(f"this is the hub of the study {self.study.name}")
        if not invited and member.role == "site":
            # It is remembered when the site has seen what is remembered, and answers still.
            _refuse_log(member, self._anchors.compare(member.name, read_anchor(said.about.get("log")), member.era))
        said_of_itself = {name: said.about.get(name) for name in ("software", "time")}
        said_of_itself["data"] = read_release(said.about.get("data"))
        return Peer(member, fingerprint, invited, said_of_itself, self.limits, decoder)

    async def _connect(self, _: AsyncIterator[bytes], context: Any) -> None:
        """Serve one connection until it ends, if there are not too many."""
        import grpc

        fingerprint = keys.fingerprint(context.auth_context()["x509_pem_cert"][0])
        connections, messages = self._rates_of(fingerprint)
        many = self._streams[fingerprint] >= self.limits.streams or self._streams.total() >= self.limits.streams_in_all
        if many or connections.take() > 0:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "there are too many connections: try again later")
        self._streams[fingerprint] += 1
        try:
            await self._serve(fingerprint, context, messages)
        finally:
            self._streams[fingerprint] -= 1
            if not self._streams[fingerprint]:
                del self._streams[fingerprint]

    def _rates_of(self, fingerprint: str) -> tuple[Rate, Rate]:
        """Return how fast a certificate may connect and send; those that were not used for long are forgotten."""
        if fingerprint not in self._rates:
            limits = self.limits
            connections = Rate(limits.connections, limits.connections_at_once)
            self._rates[fingerprint] = connections, Rate(limits.messages, limits.messages_at_once)
        self._rates.move_to_end(fingerprint)
        if len(self._rates) > RATES:
            self._rates.popitem(last=False)
        return self._rates[fingerprint]

    async def _serve(self, fingerprint: str, context: Any, rate: Rate) -> None:
        import grpc

        decoder, messages = Decoder(LONGEST_HEAD), collections.deque[Message]()

        async def read() -> Message | None:
            while not messages:
                part = await context.read()
                if part is grpc.aio.EOF:
                    return None
                messages.extend(decoder.feed(part))
                if peer is not None:
                    peer.came = time.monotonic()
                    self._make_room()
            return messages.popleft()

        peer: Peer | None = None
        try:
            async with asyncio.timeout(self.limits.hello):
                first = await read()
            if first is None:
                return
            peer = self._admit(fingerprint, first, decoder)
        except TimeoutError:
            log.warning("a connection with the certificate %s has not said who it is", fingerprint[:16])
            return
        except MessageError as error:
            log.warning("a connection is refused: %s", error)
            for part in split(encode(Message("refused", {"why": str(error)}))):
                await context.write(part)
            return
        known = self._anchors.of(peer.member.name, peer.member.era) if peer.member.role == "site" else None
        more = {} if known is None else {"log": list(known)}
        peer.send(hello(self.study.name, "hub", "hub", self._protocol, more))
        decoder.limit = LONGEST_HEAD if peer.invited else min(LONGEST, self.limits.memory)
        self._arrive(peer)
        writer = asyncio.create_task(self._write(peer, context))
        reader = asyncio.create_task(self._read(peer, read, rate))
        cut = asyncio.create_task(peer.cut.wait())
        try:
            await asyncio.wait((writer, reader, cut), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(peer)
            for task in (reader, writer, cut):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _write(self, peer: Peer, context: Any) -> None:
        while True:
            await peer.ready.wait()
            peer.ready.clear()
            while peer.queue:
                # Short messages that are ready go out together; a long one alone. What is under way still counts.
                ready = list(peer.queue.popleft())
                length = sum(map(len, ready)) + OVERHEAD
                while peer.queue and length < PART:
                    more = peer.queue.popleft()
                    ready += more
                    length += sum(map(len, more)) + OVERHEAD
                for part in split(ready):
                    await context.write(part)
                    peer.took = time.monotonic()
                peer.queued -= length
            if peer.ended is not None:
                return

    async def _read(self, peer: Peer, read: Callable[[], Any], rate: Rate) -> None:
        while (message := await read()) is not None:
            try:
                wait = rate.take(cost(message))
                self._handle(peer, message)
                self._make_room()
            except MessageError as error:
                log.warning("%s: %s", peer.member.name, error)
                peer.end(str(error))
                await peer.cut.wait()  # nothing more is read; the writer ends the connection when it has said why
            # Others have their turn between any two messages; what comes too fast is not read.
            await asyncio.sleep(wait)

    def _arrive(self, peer: Peer) -> None:
        self._peers.add(peer)
        name = peer.member.name
        difference = clock_difference(peer.said)
        if difference is not None:
            log.warning("the clock of %s is %s", name, difference)
        if peer.invited:
            return
        self.study.registry.keep_only(name, peer.fingerprint)
        if peer.member.role == "site":
            old = self._sites.get(name)
            if old is not None:
                self._leave(old)
                old.end(f"another process has connected as {name}")
            self._sites[name] = peer
        log.info("%s %s is connected, with release %s", peer.member.role, name, read_release(peer.said.get("software")))

    def _leave(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        if self._sites.get(peer.member.name) is peer:
            del self._sites[peer.member.name]
        for one in peer.asked.values():
            self._absent(one.asker, one.number, peer.member.name, "its connection was lost before it had answered")
        peer.asked.clear()
        if not peer.invited:
            log.info("%s %s is gone", peer.member.role, peer.member.name)

    def _handle(self, peer: Peer, message: Message) -> None:
        """Do what a message asks, if its sender may ask it."""
        allowed = ("enrol",) if peer.invited else ("renew", *KINDS[peer.member.role])
        if message.kind not in allowed:
            raise MessageError(f"a message of the kind {message.kind[:20]!r} is not accepted from {peer.member.name}")
        if message.dropped:
            raise MessageError(f"a message of {message.dropped} bytes is too long")
        getattr(self, f"_{message.kind}")(peer, message)

    def _ask(self, peer: Peer, message: Message) -> None:
        """Hand an analyst's requests on to sites."""
        number, to, at = message.about.get("id"), message.about.get("to"), 0
        if not isinstance(to, list) or type(number) is not int or not 0 <= number < 1 << 63:
            raise MessageError("a request must say its number and whom it is for")
        about = {"asker": {"name": peer.member.name, "role": peer.member.role, "fingerprint": peer.fingerprint}}
        left = message.about.get("left")
        left = min(max(left, 0.0), LONGEST_WAIT) if isinstance(left, int | float) else LONGEST_WAIT
        whole = unpack_together(message)
        for entry in to:
            name, length = entry if isinstance(entry, list) and len(entry) == 2 else ("", -1)
            if not isinstance(name, str) or type(length) is not int or not 0 <= length <= len(whole) - at:
                raise MessageError("a request must state its length for each site")
            body = whole[at : at + length]
            at += length
            site = self._sites.get(name)
            if site is None:
                self._absent(peer, number, name, self._why_absent(name))
                continue
            if not self._may_ask(site, peer):
                self._absent(peer, number, name, "it owes too many answers")
                continue
            own = next(self._numbers)
            site.asked[own] = Open(peer, number, time.monotonic() + left)
            if not site.send(Message("ask", {"id": own, "left": left, **about}, body)):
                del site.asked[own]
                self._absent(peer, number, name, "it does not take what it was sent")

    def _may_ask(self, site: Peer, asker: Peer) -> bool:
        """Whether a site can be asked one thing more; what no one waits for any longer does not count."""
        if len(site.asked) >= self.limits.unanswered:
            now = time.monotonic()
            site.asked = {number: one for number, one in site.asked.items() if now < one.until}
        own = sum(one.asker.member.name == asker.member.name for one in site.asked.values())
        return own < self.limits.unanswered and len(site.asked) < self.limits.unanswered_in_all

    def _why_absent(self, name: str) -> str:
        member = self.study.registry.members.get(name)
        if member is None or member.removed:
            return "it was removed from the study" if member else "the study has no site of this name"
        return "it has not joined yet" if not member.certificates else "it is not connected"

    def _absent(self, peer: Peer, number: Any, name: str, why: str) -> None:
        peer.send(Message("absent", {"id": number, "site": name, "why": why}))

    def _reply(self, peer: Peer, message: Message) -> None:
        """Hand a site's reply on to whom it is for."""
        if "log" in message.about:
            member, said = peer.member, read_anchor(message.about["log"])
            _refuse_log(member, self._anchors.check(member.name, said, member.era))
        number = message.about.get("id")
        one = peer.asked.pop(number, None) if type(number) is int else None
        if one is not None:
            about = {"id": one.number, "site": peer.member.name, "seconds": message.about.get("seconds")}
            about |= self._tell_log(peer, one.asker)
            one.asker.send(Message("reply", about, message.body))

    def _tell_log(self, site: Peer, asker: Peer) -> dict[str, Any]:
        """Return the last line of a site's log that is known, unless the analyst received it just now."""
        name, now = site.member.name, time.monotonic()
        known = self._anchors.of(name, site.member.era)
        if known is None or now - asker.told.get(name, -EVERY) < EVERY:
            return {}
        asker.told[name] = now
        return {"log": list(known), "era": site.member.era}

    def _status(self, peer: Peer, message: Message) -> None:
        """Say who is there."""
        sites = []
        for name in self.study.registry.sites():
            site, member = self._sites.get(name), self.study.registry.members[name]
            state: dict[str, Any] = {"name": name, "state": member.state, "online": site is not None}
            if site is not None:
                ends = member.certificates.get(site.fingerprint)
                state |= {"since": site.since, "software": read_release(site.said.get("software")), "ends": ends}
                state |= {"data": site.said["data"], "clock": clock_difference(site.said, site.since)}
            sites.append(state)
        about = {"id": message.about.get("id"), "software": fpdfp.__version__, "study": self.study.name}
        body = json.dumps({"sites": sites, "warnings": self.study.warnings()}).encode()
        peer.send(Message("status", about, body))

    def _enrol(self, peer: Peer, message: Message) -> None:
        """Sign a key for an invitation, which is of no use then."""
        request = _request(message)
        digest = keys.request_digest(request)
        refuse_used(self.study.registry.named(peer.member.name), digest)
        certificate = keys.sign_request(self.study.authority, request, peer.member.name, peer.member.role)
        self.study.registry.enrol(peer.fingerprint, digest, certificate)
        peer.send(Message("certificate", {"certificate": certificate.decode()}))
        log.info("%s has enrolled with the certificate %s", peer.member.name, keys.fingerprint(certificate)[:16])

    def _renew(self, peer: Peer, message: Message) -> None:
        """Sign a new key for someone whose certificate ends soon; the old one goes when the new one is used."""
        refuse_early(self.study.registry.named(peer.member.name), peer.fingerprint)
        certificate = keys.sign_request(self.study.authority, _request(message), peer.member.name, peer.member.role)
        self.study.registry.add_certificate(peer.member.name, certificate)
        peer.send(Message("certificate", {"certificate": certificate.decode()}))
        log.info("the certificate of %s was renewed", peer.member.name)


#: What members may send.
KINDS = {"site": ("reply",), "analyst": ("ask", "status")}


def cost(message: Message) -> int:
    """Return how many messages one counts for."""
    to = message.about.get("to")
    return STATUS if message.kind == "status" else max(1, len(to)) if isinstance(to, list) else 1


def _refuse_log(member: Member, wrong: str | None) -> None:
    """Refuse a site with whose log something is wrong."""
    if wrong is not None:
        raise RefusedError(
            f"{member.name} cannot take part: {wrong}; if it has told you why, fpdfp federation forget STUDY "
            f"{member.name} accepts that"
        )


def _request(message: Message) -> bytes:
    request = message.about.get("request")
    if not isinstance(request, str):
        raise MessageError("a signing request must be a text")
    return request.encode()


def serve(study: Study, bind: str = "[::]") -> None:
    """Run the hub of a study until it is interrupted or terminated."""

    async def run() -> None:
        hub, ended = Hub(study, bind), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        await hub.start()
        await ended.wait()
        log.info("%s ends", study.name)
        await hub.stop()

    asyncio.run(run())
