"""Messages on a stream of bytes: framing in parts, limits, versions, and how long to wait before trying again.

A message is a short head (JSON) and a body (any bytes, mostly a parcel of :mod:`fpdfp.cohorts.serialization`)::

    "FPD1"  length of the head (4 bytes)  length of the body (8 bytes)  head  body

gRPC carries the stream in parts of at most 1 MiB, whatever the length of messages: a long message takes many parts, and
short ones that are ready at the same time share one. The first message each way is a hello that names which versions of
the protocol its sender speaks.

The head of a *request* says whom it is for, of which run, model and plan it is, and what its questions are about. A
site that has answered a request keeps this head by a digest of six bytes, for anyone who has sent it; later requests
have the digest in its place, and their number since then. A site that does not know a digest (any more) states it, and
is sent the head again. So a round costs a few dozen bytes besides its messages.
"""

from __future__ import annotations

import collections
import hashlib
import json
import queue
import random
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import fpdfp
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import MessageError
from fpdfp.federation.text import read_release

T = TypeVar("T")
#: The least and the newest version of the protocol that this release speaks.
PROTOCOL = (1, 1)
MAGIC, HEAD = b"FPD1", struct.Struct("<4sIQ")
#: The longest part, head, and body, in bytes; a body before the hello is as short as a head.
PART, LONGEST_HEAD, LONGEST = 1 << 20, 1 << 16, 1 << 29
METHOD = "/fpdfp.Federation/Connect"
#: Connections that carry nothing are kept open by a ping every this many seconds; firewalls drop them after minutes.
PING, PING_ANSWER = 20, 20
#: Seconds by which clocks can differ: one that says more says nothing.
LONGEST_DIFFERENCE = 1e10

_COMMON = [
    ("grpc.max_receive_message_length", 2 * PART),
    ("grpc.max_send_message_length", 2 * PART),
    ("grpc.keepalive_time_ms", 1000 * PING),
    ("grpc.keepalive_timeout_ms", 1000 * PING_ANSWER),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
CLIENT_OPTIONS = [*_COMMON, ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
SERVER_OPTIONS = [
    *_COMMON,
    # A stranger may keep a connection for so long without a certificate, and anyone without a stream.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000 * PING // 2),
    ("grpc.http2.max_ping_strikes", 100),
]


class RefusedError(MessageError):
    """The other side does not speak with us, and says why; to try again is of no use."""


class LostError(ConnectionError):
    """The connection is missing or was lost; to try again may help."""


class Message(NamedTuple):
    """A message: its kind, its head, and its body.

    A body that is longer than the receiver takes is dropped while it comes in; ``dropped`` is its length.
    """

    kind: str
    about: dict[str, Any]
    body: bytes = b""
    dropped: int = 0


def encode(message: Message) -> list[bytes]:
    """Return a message as pieces of bytes."""
    head = json.dumps({"kind": message.kind, **message.about}, separators=(",", ":")).encode()
    if len(head) > LONGEST_HEAD:
        raise ValueError(f"the head of a message may have {LONGEST_HEAD} bytes, this one has {len(head)}")
    return [HEAD.pack(MAGIC, len(head), len(message.body)) + head, message.body]


def pack_together(message: Message) -> Message:
    """Return a message with its body deflated, if that is shorter: what several sites are sent is much the same."""
    if len(message.about["to"]) < 2 or len(message.body) > PART:
        return message
    body = zlib.compress(message.body, 1)
    if len(body) >= len(message.body):
        return message
    return message._replace(about={**message.about, "whole": len(message.body)}, body=body)


def unpack_together(message: Message) -> bytes:
    """Return the body of a message, inflated where it is not sent unchanged; raise MessageError if it cannot be."""
    length = message.about.get("whole")
    if length is None:
        return message.body
    if type(length) is not int or not 0 <= length <= PART:
        raise MessageError(f"a body may be deflated from at most {PART} bytes")
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(message.body, length + 1)
    except zlib.error:
        raise MessageError("a body cannot be inflated") from None
    if len(body) != length or not inflate.eof or inflate.unused_data:
        raise MessageError(f"a body must be deflated from {length} bytes")
    return body


def split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return pieces as parts of at most 1 MiB; short ones are joined, and what is long is not copied twice."""
    waiting: list[bytes] = []
    length = 0
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            taken = view[: PART - length]
            waiting.append(taken)  # type: ignore[arg-type]  # join takes it
            length += len(taken)
            view = view[len(taken) :]
            if length == PART:
                yield b"".join(waiting)
                waiting, length = [], 0
    if length:
        yield b"".join(waiting)


class Decoder:
    """Reads messages from parts.

    Parameters
    ----------
    limit
        The longest body that is kept; a longer one is dropped as it comes in, and its message states it.

    Examples
    --------
    >>> decoder = Decoder()
    >>> parts = list(split(encode(Message("ask", {"id": 1}, b"body")) + encode(Message("end", {}))))
    >>> len(parts), [message.kind for part in parts for message in decoder.feed(part)]
    (1, ['ask', 'end'])
    """

    def __init__(self, limit: int = LONGEST) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._head: tuple[dict[str, Any], int] | None = None
        self._dropping = 0

    @property
    def held(self) -> int:
        """The bytes of a message that is not complete."""
        return len(self._buffer)

    def feed(self, part: bytes) -> Iterator[Message]:
        """Yield the messages that are complete with a part."""
        if self._dropping:
            taken = min(self._dropping, len(part))
            self._dropping -= taken
            part = part[taken:]
            if self._dropping:
                return
            yield self._finish(b"")
        self._buffer += part
        while True:
            if self._head is None and not self._read_head():
                return
            assert self._head is not None
            length = self._head[1]
            if length > self.limit:
                here = min(length, len(self._buffer))
                del self._buffer[:here]
                self._dropping = length - here
                if self._dropping:
                    return
                yield self._finish(b"")
            elif len(self._buffer) < length:
                return
            else:
                body = bytes(memoryview(self._buffer)[:length])
                del self._buffer[:length]
                yield self._finish(body)

    def _finish(self, body: bytes) -> Message:
        assert self._head is not None
        about, length = self._head
        self._head = None
        return Message(about.pop("kind"), about, body, length - len(body))

    def _read_head(self) -> bool:
        """Read the head of the next message, if all of it is there."""
        if len(self._buffer) < HEAD.size:
            return False
        magic, length, body = HEAD.unpack_from(self._buffer)
        if magic != MAGIC:
            raise MessageError("this is not a message of a federation: its first bytes are wrong")
        if length > LONGEST_HEAD:
            raise MessageError(f"the head of a message may have {LONGEST_HEAD} bytes, this one has {length}")
        if len(self._buffer) < HEAD.size + length:
            return False
        try:
            about = json.loads(bytes(memoryview(self._buffer)[HEAD.size : HEAD.size + length]))
        except (ValueError, RecursionError) as error:
            raise MessageError(f"the head of a message cannot be read ({error})") from None
        if not isinstance(about, dict) or not isinstance(about.get("kind"), str):
            raise MessageError("the head of a message must name its kind")
        del self._buffer[: HEAD.size + length]
        self._head = about, body
        return True


class Inbox(Generic[T]):
    """A queue of received messages: of limited length, so that a peer is read no faster than it is served.

    Parameters
    ----------
    most, length
        How many may wait, and how many bytes in all; one may always wait, however long it is.
    """

    def __init__(self, most: int = 1024, length: int = LONGEST) -> None:
        self._most, self._length = most, length
        self._waiting: collections.deque[tuple[T, int]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        #: The bytes that wait.
        self.held = 0

    def put(self, one: T, length: int = 0, timeout: float | None = None) -> bool:
        """Add something as soon as there is room; return False if room was missing in time, or no one takes it."""
        with self._changed:
            fits = self._changed.wait_for(lambda: self._closed or self._has_room(length), timeout)
            if self._closed or not fits:
                return False
            self._waiting.append((one, length))
            self.held += length
            self._changed.notify_all()
            return True

    def _has_room(self, length: int) -> bool:
        return not self._waiting or (len(self._waiting) < self._most and self.held + length <= self._length)

    def get(self, timeout: float | None = None) -> T:
        """Return what has waited longest; raise queue.Empty if nothing came in time, or nothing comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, timeout)
            if not self._waiting:
                raise queue.Empty
            one, length = self._waiting.popleft()
            self.held -= length
            self._changed.notify_all()
            return one

    def close(self) -> None:
        """Take nothing any more: who waits for room continues."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def hello(
    study: str, role: str, name: str, protocol: tuple[int, int] = PROTOCOL, more: Mapping[str, Any] | None = None
) -> Message:
    """Return the first message of a connection; ``more`` is what else it says, of a site's log and its data."""
    about: dict[str, Any] = {"study": study, "role": role, "name": name, "protocol": list(protocol)}
    about |= more or {}
    return Message("hello", {**about, "software": fpdfp.__version__, "time": time.time()})


def agree(said: dict[str, Any], other: str, me: str, protocol: tuple[int, int] = PROTOCOL) -> int:
    """Return the newest version that both sides speak, or name which side to upgrade.

    >>> agree({"protocol": [1, 3], "software": "0.9"}, "the hub", "north")
    1
    >>> agree({"protocol": [2, 3], "software": "0.9"}, "the hub", "north")
    Traceback (most recent call last):
      ...
    fpdfp.federation.framing.RefusedError: upgrade fpdfp at north: it has release 0.1.0 and speaks versions 1 to 1 of \
the protocol, and the hub has release 0.9 and speaks versions 2 to 3
    """
    theirs = said.get("protocol")
    if (
        not isinstance(theirs, list)
        or len(theirs) != 2
        or not all(type(one) is int and 0 < one < 1 << 16 for one in theirs)
    ):
        raise RefusedError(f"{other} does not state the versions of its protocol")
    newest: int = min(protocol[1], theirs[1])
    if newest >= max(protocol[0], theirs[0]):
        return newest
    software = read_release(said.get("software"))
    sides = {
        me: f"has release {fpdfp.__version__} and speaks versions {protocol[0]} to {protocol[1]}",
        other: f"has release {software} and speaks versions {theirs[0]} to {theirs[1]}",
    }
    old, new = (me, other) if protocol[1] < theirs[0] else (other, me)
    raise RefusedError(f"upgrade fpdfp at {old}: it {sides[old]} of the protocol, and {new} {sides[new]}")


def clock_difference(said: dict[str, Any], when: float | None = None) -> str | None:
    """Say by how much the other side's clock differs from this one's, if by more than a minute.

    ``when`` is the time of this clock at which it was said, by default now. Nothing depends on clocks but the validity
    of certificates.
    """
    theirs = said.get("time")
    seconds = theirs - (time.time() if when is None else when) if isinstance(theirs, int | float) else 0.0
    if not 60 <= abs(seconds) < LONGEST_DIFFERENCE:
        return None
    hours = abs(seconds) / 3600
    amount = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    return f"{amount} {'ahead of' if seconds > 0 else 'behind'} this machine's"


class Backoff:
    """The wait before the next attempt: twice as long each time, with chance so that not all come at once.

    Parameters
    ----------
    first, longest
        Seconds, before the chance.
    """

    def __init__(self, first: float = 0.2, longest: float = 30.0) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def succeed(self) -> None:
        """Begin anew: there was a connection."""
        self._next = self._first

    def seconds(self) -> float:
        """Return how long to wait now."""
        wait, self._next = self._next, min(2 * self._next, self._longest)
        return wait * random.uniform(0.5, 1.0)


#: What stays the same from one request to the next: of the envelope, and of what questions are about.
ENVELOPE = ("run", "sites", "site", "kind", "model", "plan")
ADDRESS = ("key", "features", "epoch")
#: How many heads a site keeps, and the longest.
MOST, LONGEST_KEPT = 256, 1024
#: What a reply repeats of a request that came in full; of another it repeats the two names below.
ECHO = ("run", "sequence", "site")
#: The name that stands for a head, and the number of a request since the head came.
CONVERSATION, NUMBER = "conversation", "number"
#: What a site says that does not know a head.
UNKNOWN = "needs_head"


class Split(NamedTuple):
    """A request in two parts: what it has in common with others, and the rest."""

    head: dict[str, Any]
    rest: dict[str, Any]

    @property
    def digest(self) -> bytes:
        """A key that distinguishes the head from others."""
        return hashlib.blake2b(pack(self.head), digest_size=6).digest()


def split_head(tree: Mapping[str, Any]) -> Split:
    """Return a request, without its number, as its head and the rest.

    >>> split_head({"run": "r", "site": "north", "request": {"key": "k", "at": {}}})
    Split(head={'run': 'r', 'site': 'north', 'request': {'key': 'k'}}, rest={'request': {'at': {}}})
    """
    head = {name: tree[name] for name in ENVELOPE if name in tree}
    rest = {name: one for name, one in tree.items() if name not in ENVELOPE and name != "sequence"}
    asked = tree.get("request")
    if isinstance(asked, dict):
        head["request"] = {name: asked[name] for name in ADDRESS if name in asked}
        rest["request"] = {name: one for name, one in asked.items() if name not in ADDRESS}
    return Split(head, rest)


def join_head(head: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of a head and the rest."""
    whole = {**head, **rest}
    if "request" in head and isinstance(rest.get("request"), dict):
        whole["request"] = {**head["request"], **rest["request"]}
    return whole


class Sender:
    """An analyst's side: which heads sites know, and the number of the request that sent them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], int] = {}

    def shorten(self, site: str, tree: Mapping[str, Any], sequence: int) -> dict[str, Any]:
        """Return a request to a site as it is sent."""
        parts = split_head(tree)
        first = self._known.get((site, parts.digest))
        if first is None:
            return {**tree, "sequence": sequence}
        return {CONVERSATION: parts.digest, NUMBER: sequence - first, **parts.rest}

    def note_answer(self, site: str, tree: Mapping[str, Any], sequence: int) -> None:
        """Take note that a site has answered a request that was sent in full."""
        while len(self._known) >= MOST * 64:
            self._known.pop(next(iter(self._known)))
        self._known[site, split_head(tree).digest] = sequence

    def forget(self, site: str, tree: Mapping[str, Any]) -> None:
        """Take note that a site does not know the head of a request."""
        self._known.pop((site, split_head(tree).digest), None)


class Receiver:
    """A site's side: the heads of those who ask, with the numbers of the requests that they came with."""

    def __init__(self) -> None:
        self._heads: collections.OrderedDict[tuple[str, bytes], tuple[dict[str, Any], int]] = collections.OrderedDict()

    def read(self, asked: dict[str, Any], fingerprint: str) -> dict[str, Any] | None:
        """Return a request in full, None if its head is not known; keep the head of one that came in full."""
        digest, number = asked.get(CONVERSATION), asked.get(NUMBER)
        if digest is None:
            self._keep(asked, fingerprint)
            return asked
        if not isinstance(digest, bytes) or type(number) is not int or number < 0:
            raise MessageError("a request must name its conversation, and its number there")
        found = self._heads.get((fingerprint, digest))
        if found is None:
            return None
        self._heads.move_to_end((fingerprint, digest))
        rest = {name: one for name, one in asked.items() if name not in (CONVERSATION, NUMBER)}
        return join_head(found[0], rest) | {"sequence": found[1] + number}

    def _keep(self, asked: dict[str, Any], fingerprint: str) -> None:
        sequence, parts = asked.get("sequence"), split_head(asked)
        if type(sequence) is not int or len(pack(parts.head)) > LONGEST_KEPT:
            return
        self._heads[fingerprint, parts.digest] = parts.head, sequence
        if len(self._heads) > MOST:
            self._heads.popitem(last=False)
