"""Envelopes: of which run a parcel is, which request of it, and from or to which site."""

from __future__ import annotations

from typing import Any, NamedTuple

from fpdfp.engines.parcel import pack, unpack
from fpdfp.errors import MessageError


class Envelope(NamedTuple):
    """What a parcel is about.

    Attributes
    ----------
    run
        The run's name, kept through restarts of the server.
    sequence
        The number of the request, higher than all before it.
    site
        Whom it is for, or from.
    contents
        The request or the reply.
    """

    run: str
    sequence: int
    site: str
    contents: dict[str, Any]


def seal(envelope: Envelope) -> bytes:
    """Return an envelope as bytes."""
    return pack(envelope._asdict())


def open_envelope(parcel: bytes) -> Envelope:
    """Return the envelope of some bytes; raise MessageError if they are none."""
    tree = unpack(parcel)
    kinds = {"run": str, "sequence": int, "site": str, "contents": dict}
    if not isinstance(tree, dict) or any(type(tree.get(name)) is not kind for name, kind in kinds.items()):
        raise MessageError("a message is not an envelope of fpdfp")
    return Envelope(**{name: tree[name] for name in kinds})
