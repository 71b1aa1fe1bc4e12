"""The outbox of a site: copies of what leaves, held back until a person releases them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _files as files
from fpdfp.cohorts.question import questions
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress import decode
from fpdfp.errors import MessageError
from fpdfp.federation.text import LONGEST, printable

#: What the names of files end in: a copy, the mark of one that is held, and a copy of what did not leave.
KEPT, WAITING, REFUSED = ".parcel", ".waiting", ".refused"
#: What the parts of a reply are, in words.
WORDS = {
    "facts": "the number of rows, what kind of loss there is, and the mean loss at two points",
    "bounds": "bounds of the curvature of the loss",
    "gather": "what a preconditioner is made of, second moments of the features or parts of them; the mean loss, its "
    "gradient or its second derivatives at a point, rounded; or for a path or a "
    "cross-validation mean losses and gradients at many points, also without a fold of the rows, and Hessians",
    "price": "nothing of the data: that a path or a cross-validation of so many problems and folds may begin, and its "
    "price in runs",
    "constants": "bounds of the curvature in given coordinates",
    "at": "the mean loss, or its gradient, at a point that was sent",
    "duals": "sums over rows for a bound of the error: a gradient, mean squares of features, a gap or a Hessian",
    "answers": "the mean loss, and how far the gradient is from what was sent before",
    "memory": "all that clients remember of the run",
    "update": "a round's work: mostly a gradient, or its difference to an earlier one, in few levels",
    "needs": "what is lacking to answer, and nothing of the data",
    "error": "that a request could not be answered, and nothing of the data",
    "refused": "that a request was refused, and by which rule",
    "answer": "columns, counts, sums or moments, as listed below",
}
#: How often a reply that is held looks whether it may go.
PAUSE = 0.2


class RefusedError(Exception):
    """A reply that was held was refused, or no one released it in time: it must not leave."""


class Envelope(NamedTuple):
    """A reply as it is kept.

    Attributes
    ----------
    run
        The name of the run that it belongs to.
    sequence
        The number of the request that it answers.
    site
        The site that it is from.
    contents
        The reply itself.
    """

    run: str
    sequence: int
    site: str
    contents: dict[str, Any]


def seal(envelope: Envelope) -> bytes:
    """Return an envelope as bytes."""
    return pack(envelope._asdict())


def open_envelope(parcel: bytes) -> Envelope:
    """Return the envelope of some bytes; raise MessageError otherwise."""
    tree = unpack(parcel)
    kinds = {"run": str, "sequence": int, "site": str, "contents": dict}
    if not isinstance(tree, dict) or any(type(tree.get(name)) is not kind for name, kind in kinds.items()):
        raise MessageError("a message is not an envelope of fpdfp")
    return Envelope(**{name: tree[name] for name in kinds})


def keep(parcel: bytes, folder: Path, hold: float = 0.0) -> Path:
    """Write what is about to leave into the outbox, and wait up to ``hold`` seconds for its release.

    Return where its copy is. Raise RefusedError for a reply that may not leave; its copy then ends in ``.refused``.
    """
    path = _write(parcel, folder)
    if not hold:
        return path
    until = time.monotonic() + hold
    waiting = path.with_suffix(WAITING)
    waiting.touch(mode=0o600)
    while waiting.exists():
        if time.monotonic() > until:
            # Anyone who takes the mark away decides: it may have been released at this very moment.
            with contextlib.suppress(FileNotFoundError):
                refuse(path)
            break
        time.sleep(PAUSE)
    if not path.exists():
        raise RefusedError("it was not released")
    return path


def _write(parcel: bytes, folder: Path) -> Path:
    """Write a copy that its owner alone can read, in a folder that no one else can look into."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)  # it may be older than this rule
    path = folder / f"{time.time_ns()}{KEPT}"
    files.write_whole(path, parcel, private=True)
    return path


def waiting(folder: Path) -> list[Path]:
    """Return the copies of what is held, the oldest first."""
    return sorted(mark.with_suffix(KEPT) for mark in folder.glob(f"*{WAITING}"))


def release(path: Path) -> None:
    """Let a reply go that is held."""
    try:
        path.with_suffix(WAITING).unlink()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not waiting to be released") from None


def refuse(path: Path) -> None:
    """Keep a reply from leaving that is held; the server learns that it was not released, and nothing else."""
    refused = path.with_suffix(REFUSED)
    if path.exists():
        path.rename(refused)
    try:
        release(path)
    except FileNotFoundError:
        if refused.exists():
            refused.rename(path)
        raise


def lines(parcel: bytes) -> Iterator[str]:
    """Say what a message holds: every number, text, array and message in it, and its bytes, a line for each."""
    for line in _lines(parcel):
        yield printable(line, LONGEST)


def _lines(parcel: bytes) -> Iterator[str]:
    envelope = open_envelope(parcel)
    yield f"{len(parcel)} bytes from {envelope.site}: request {envelope.sequence} of run {envelope.run}"
    reply = envelope.contents.get("reply")
    for name in reply if isinstance(reply, dict) else envelope.contents:
        words = WORDS.get(name) or (WORDS["gather"] if name in questions() else "")
        if words:
            yield f"  it tells {words}"
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
