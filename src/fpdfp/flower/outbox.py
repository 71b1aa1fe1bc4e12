"""What leaves a site, kept for those who must be able to see it, and held back until they have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp.compress import decode
from fpdfp.engines.parcel import unpack
from fpdfp.errors import MessageError
from fpdfp.flower.records import open_envelope

#: What the names of files end in: a copy, the mark of one that is held, and a copy of what did not leave.
KEPT, WAITING, REFUSED = ".parcel", ".waiting", ".refused"
#: How often a reply that is held looks whether it may go.
PAUSE = 0.2


class RefusedError(Exception):
    """A reply that was held was refused, or nobody released it in time: it must not leave."""


def keep(parcel: bytes, config: Mapping[str, Any]) -> None:
    """Write what is about to leave into the outbox, if there is one, and wait for its release if it is to be held.

    Raises RefusedError for a reply that may not leave; its copy then ends in ``.refused``.
    """
    if not config.get("outbox"):
        return
    path = _write(parcel, config)
    if not config.get("hold"):
        return
    until = time.monotonic() + float(config["hold"])
    waiting = path.with_suffix(WAITING)
    waiting.touch()
    while waiting.exists():
        if time.monotonic() > until:
            # Whoever takes the mark away decides: it may have been released at this very moment.
            with contextlib.suppress(FileNotFoundError):
                refuse(path)
            break
        time.sleep(PAUSE)
    if not path.exists():
        raise RefusedError("it was not released")


def note(parcel: bytes, config: Mapping[str, Any]) -> None:
    """Write what leaves into the outbox, if there is one, without holding it: it says only that nothing is sent."""
    if config.get("outbox"):
        _write(parcel, config)


def _write(parcel: bytes, config: Mapping[str, Any]) -> Path:
    folder = Path(str(config["outbox"]))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.time_ns()}{KEPT}"
    path.write_bytes(parcel)
    return path


def release(path: Path) -> None:
    """Let a reply go that is held."""
    _decide(path)


def refuse(path: Path) -> None:
    """Keep a reply from leaving that is held; the server is told that it was not released, and nothing else."""
    refused = path.with_suffix(REFUSED)
    if path.exists():
        path.rename(refused)
    try:
        _decide(path)
    except FileNotFoundError:
        if refused.exists():
            refused.rename(path)
        raise


def _decide(path: Path) -> None:
    """Take away the mark of a reply that is held."""
    try:
        path.with_suffix(WAITING).unlink()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not waiting to be released") from None


def lines(parcel: bytes) -> Iterator[str]:
    """Say what a message holds: every number, text, array and message in it, and its bytes."""
    envelope = open_envelope(parcel)
    yield f"{len(parcel)} bytes from {envelope.site}: request {envelope.sequence} of run {envelope.run}"
    yield from _part("", envelope.contents)
    yield "byte by byte:"
    for at in range(0, len(parcel), 16):
        row = parcel[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<47}  {text}"


def _part(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _part(f"{name}/{key}" if name else key, one)
    elif isinstance(value, list) and any(isinstance(one, dict | list | bytes | np.ndarray) for one in value):
        for number, one in enumerate(value):
            yield from _part(f"{name}[{number}]", one)
    elif isinstance(value, np.ndarray):
        yield f"  {name}: {value.dtype} of shape {value.shape}: {_show(value)}"
    elif isinstance(value, bytes):
        yield f"  {name}: {len(value)} bytes, {_message(value)}"
    else:
        yield f"  {name}: {value!r}"


def _message(data: bytes) -> str:
    """Say what an encoded message stands for."""
    try:
        array = decode(data)
    except MessageError:
        return data.hex() if len(data) <= 16 else f"{data[:16].hex()}…"
    return f"which stand for {array.dtype} of shape {array.shape}: {_show(array)}"


def _show(array: Any) -> str:
    return np.array2string(array, threshold=8, edgeitems=3, precision=6).replace("\n", "")


def read(path: Path) -> bytes:
    """Return a kept message, if the file is one."""
    parcel = path.read_bytes()
    unpack(parcel)
    return parcel
