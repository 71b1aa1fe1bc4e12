"""Parcels in Flower's messages: a byte array in an ArrayRecord, which Flower carries fastest.

Every parcel is in an envelope that says of which run it is, which request of it, and from or to which site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fpdfp.engines.parcel import pack, unpack
from fpdfp.errors import MessageError

if TYPE_CHECKING:
    from flwr.app import RecordDict

NAME, KIND = "fpdfp", "fpdfp.parcel"


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


def to_record(parcel: bytes) -> RecordDict:
    """Return bytes as what Flower carries."""
    from flwr.app import Array, ArrayRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(parcel),), stype=KIND, data=parcel)
    return RecordDict({NAME: ArrayRecord({NAME: array})})


def from_record(content: RecordDict, limit: int) -> bytes:
    """Return the bytes of what Flower has carried; raise MessageError if there are none, or too many."""
    if list(content.array_records) != [NAME] or list(content.array_records[NAME]) != [NAME]:
        raise MessageError("a message does not hold one parcel")
    array = content.array_records[NAME][NAME]
    if array.stype != KIND:
        raise MessageError("a message holds an array that is not a parcel")
    if len(array.data) > limit:
        raise MessageError(f"a message of {len(array.data)} bytes is longer than any that was asked for ({limit})")
    return bytes(array.data)
