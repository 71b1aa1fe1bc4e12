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
from typing import TYPE_CHECKING, Any

import fpdfp
from fpdfp.errors import MessageError
from fpdfp.federation import keys
from fpdfp.federation.framing import (
    LONGEST,
    LONGEST_HEAD,
    METHOD,
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
)
from fpdfp.federation.registry import Member, refuse_used
from fpdfp.federation.study import Study
from fpdfp.federation.text import log, printable, read_release

if TYPE_CHECKING:
    import grpc

#: Seconds between two looks at the registry, and at the hub's own certificate.
LOOK, LOOK_AT_CERTIFICATE = 0.5, 3600.0
#: Bytes that may wait for one who does not take them.
WAITING = 2 * LONGEST


@dataclasses.dataclass(eq=False)
class Peer:
    """Somebody who is connected."""

    member: Member
    fingerprint: str
    invited: bool
    said: dict[str, Any]
    since: float = dataclasses.field(default_factory=time.time)
    queue: collections.deque[list[bytes]] = dataclasses.field(default_factory=collections.deque)
    queued: int = 0
    ready: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    #: Why the connection is ended, once it is.
    ended: str | None = None
    #: What a site was asked and has not answered: by whom, and under which number.
    asked: dict[int, tuple[Peer, Any]] = dataclasses.field(default_factory=dict)

    def send(self, message: Message) -> bool:
        """Send a message as soon as what is before it is out; False if too much waits already."""
        pieces = encode(message)
        length = sum(map(len, pieces))
        if self.ended is not None or self.queued + length > WAITING:
            return False
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
    """

    def __init__(self, study: Study, bind: str = "[::]", protocol: tuple[int, int] = PROTOCOL) -> None:
        self.study, self._bind, self._protocol = study, bind, protocol
        self._sites: dict[str, Peer] = {}
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
            peer.ended = peer.ended or ""
            peer.ready.set()
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

    def _admit(self, fingerprint: str, said: Message) -> Peer:
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
                f"this key is that of the {member.role} {member.name}, and does not serve for "
                f"{printable(said.about.get('role'), 20)} {printable(said.about.get('name'), 64)}"
            )
        if said.about.get("study") != self.study.name:
            raise RefusedError(f"this is the hub of the study {self.study.name}")
        return Peer(member, fingerprint, invited, said.about)

    async def _connect(self, _: AsyncIterator[bytes], context: Any) -> None:
        """Serve one connection until it ends."""
        import grpc

        pem = context.auth_context()["x509_pem_cert"][0]
        fingerprint, decoder = keys.fingerprint(pem), Decoder(LONGEST_HEAD)
        messages: collections.deque[Message] = collections.deque()

        async def read() -> Message | None:
            while not messages:
                part = await context.read()
                if part is grpc.aio.EOF:
                    return None
                messages.extend(decoder.feed(part))
            return messages.popleft()

        try:
            first = await read()
            if first is None:
                return
            peer = self._admit(fingerprint, first)
        except MessageError as error:
            log.warning("a connection is refused: %s", error)
            for part in split(encode(Message("refused", {"why": str(error)}))):
                await context.write(part)
            return
        peer.send(hello(self.study.name, "hub", "hub", self._protocol))
        decoder.limit = LONGEST_HEAD if peer.invited else LONGEST
        self._arrive(peer)
        writer = asyncio.create_task(self._write(peer, context))
        reader = asyncio.create_task(self._read(peer, read))
        try:
            await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(peer)
            for task in (reader, writer):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _write(self, peer: Peer, context: Any) -> None:
        while True:
            await peer.ready.wait()
            peer.ready.clear()
            ready = [piece for pieces in peer.queue for piece in pieces]
            peer.queue.clear()
            peer.queued = 0
            for part in split(ready):
                await context.write(part)
            if peer.ended is not None and not peer.queue:
                return

    async def _read(self, peer: Peer, read: Callable[[], Any]) -> None:
        while (message := await read()) is not None:
            try:
                self._handle(peer, message)
            except MessageError as error:
                log.warning("%s: %s", peer.member.name, error)
                peer.end(str(error))

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
        for asker, number in peer.asked.values():
            self._absent(asker, number, peer.member.name, "its connection was lost before it had answered")
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
        if not isinstance(to, list) or type(number) is not int:
            raise MessageError("a request must say its number and whom it is for")
        about = {"asker": {"name": peer.member.name, "role": peer.member.role, "fingerprint": peer.fingerprint}}
        for entry in to:
            name, length = entry if isinstance(entry, list) and len(entry) == 2 else ("", -1)
            if not isinstance(name, str) or type(length) is not int or not 0 <= length <= len(message.body) - at:
                raise MessageError("a request must say how long it is for each site")
            body = message.body[at : at + length]
            at += length
            site = self._sites.get(name)
            if site is None:
                self._absent(peer, number, name, self._why_absent(name))
                continue
            own = next(self._numbers)
            site.asked[own] = peer, number
            if not site.send(Message("ask", {"id": own, "left": message.about.get("left"), **about}, body)):
                del site.asked[own]
                self._absent(peer, number, name, "it does not take what it was sent")

    def _why_absent(self, name: str) -> str:
        member = self.study.registry.members.get(name)
        if member is None or member.removed:
            return "it was removed from the study" if member else "the study has no site of this name"
        return "it has not joined yet" if not member.certificates else "it is not connected"

    def _absent(self, peer: Peer, number: Any, name: str, why: str) -> None:
        peer.send(Message("absent", {"id": number, "site": name, "why": why}))

    def _reply(self, peer: Peer, message: Message) -> None:
        """Hand a site's reply on to whom it is for."""
        asker, number = peer.asked.pop(message.about.get("id", -1), (None, 0))
        if asker is not None:
            about = {"id": number, "site": peer.member.name, "seconds": message.about.get("seconds")}
            asker.send(Message("reply", about, message.body))

    def _status(self, peer: Peer, message: Message) -> None:
        """Say who is there."""
        sites = []
        for name in self.study.registry.sites():
            site, member = self._sites.get(name), self.study.registry.members[name]
            state: dict[str, Any] = {"name": name, "state": member.state, "online": site is not None}
            if site is not None:
                ends = member.certificates.get(site.fingerprint)
                state |= {"since": site.since, "software": read_release(site.said.get("software")), "ends": ends}
                state |= {"clock": clock_difference(site.said, site.since)}
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
        """Sign a new key for somebody whose certificate ends soon; the old one goes when the new one is used."""
        certificate = keys.sign_request(self.study.authority, _request(message), peer.member.name, peer.member.role)
        self.study.registry.add_certificate(peer.member.name, certificate)
        peer.send(Message("certificate", {"certificate": certificate.decode()}))
        log.info("the certificate of %s was renewed", peer.member.name)


#: What members may send.
KINDS = {"site": ("reply",), "analyst": ("ask", "status")}


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
