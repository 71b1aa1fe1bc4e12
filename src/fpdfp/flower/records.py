"""Parcels in Flower's messages: a byte array in an ArrayRecord, which Flower carries fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpdfp.errors import MessageError

if TYPE_CHECKING:
    from flwr.app import RecordDict

NAME, KIND = "fpdfp", "fpdfp.parcel"


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
