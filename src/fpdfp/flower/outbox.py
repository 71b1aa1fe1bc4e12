"""What leaves a site, kept for those who must be able to see it, and held back until they have."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp.compress import decode
from fpdfp.engines.parcel import unpack
from fpdfp.errors import MessageError
from fpdfp.flower.records import open_envelope

#: How often a reply that is held looks whether it may go.
PAUSE = 0.2


def keep(parcel: bytes, config: Mapping[str, Any]) -> None:
    """Write what is about to leave into the outbox, if there is one, and wait for its release if it is to be held."""
    if not config.get("outbox"):
        return
    folder = Path(str(config["outbox"]))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.time_ns()}.parcel"
    path.write_bytes(parcel)
    until = time.monotonic() + float(config.get("hold", 0.0))
    if not config.get("hold"):
        return
    waiting = path.with_suffix(".waiting")
    waiting.touch()
    while waiting.exists():
        if time.monotonic() > until:
            waiting.unlink(missing_ok=True)
            path.rename(path.with_suffix(".refused"))
            raise TimeoutError("nobody has released the reply in time")
        time.sleep(PAUSE)


def release(path: Path) -> None:
    """Let a reply go that is held."""
    waiting = path.with_suffix(".waiting")
    if not waiting.exists():
        raise FileNotFoundError(f"{path} is not waiting to be released")
    waiting.unlink()


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
        yield f"  {name}: {value.dtype} of shape {value.shape}: {_shown(value)}"
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
    return f"which stand for {array.dtype} of shape {array.shape}: {_shown(array)}"


def _shown(array: Any) -> str:
    return np.array2string(array, threshold=8, edgeitems=3, precision=6).replace("\n", "")


def read(path: Path) -> bytes:
    """Return a kept message, if the file is one."""
    parcel = path.read_bytes()
    unpack(parcel)
    return parcel
