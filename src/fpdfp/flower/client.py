"""The sites' side: an app that answers the server's requests with one function of the site's own."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpdfp.engines import files, outbox, spec
from fpdfp.engines.envelope import Envelope, open_envelope, seal
from fpdfp.engines.job import Job
from fpdfp.engines.parcel import pack, unpack
from fpdfp.engines.site import Site
from fpdfp.errors import MessageError
from fpdfp.flower.records import from_record, to_record

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    from fpdfp.losses.base import Losses

log = logging.getLogger("fpdfp.flower")
#: The longest request that a site reads: more than any model that is sent.
LONGEST = 1 << 31

Config = Mapping[str, Any]


class OlderError(MessageError):
    """A request is older than one that was answered."""

    def __init__(self, sequence: int, seen: int) -> None:
        super().__init__(f"a request is older than one that was answered ({sequence}, {seen})")
        self.sequence = seen


def client_app(load: Callable[[str, Config], Losses]) -> ClientApp:
    """Return a site's app.

    Flower starts a new process for every message, so ``load`` should be quick: keep the data in a form that can be
    memory-mapped (``numpy.load(…, mmap_mode="r")``), and compute nothing that can be kept in a file.

    Parameters
    ----------
    load
        A function of the site's name and of its node's configuration (``--node-config``) that returns the site's loss:
        one of :mod:`fpdfp.losses`, with one client or several.

    Notes
    -----
    The node's configuration says who the site is (``site``), where the app keeps what its clients remember between
    messages (``state``, a folder), and, if wanted, where a copy of everything that leaves is kept (``outbox``, a
    folder) and whether it may leave only when it is released (``hold``, seconds to wait for that; see
    ``docs/flower.md``).
    """
    from flwr.app import Message as Reply
    from flwr.clientapp import ClientApp

    if not callable(load):
        raise TypeError(f"load must be a function of the site's name and configuration, got {type(load).__name__}")
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        reply = respond(from_record(message.content, LONGEST), context.node_config, load)
        return Reply(to_record(reply), reply_to=message)

    return app


def respond(parcel: bytes, config: Config, load: Callable[[str, Config], Losses]) -> bytes:
    """Return the reply to a request, having kept what must be kept; an error is a reply that says so.

    Only errors of the protocol are told in words: the text of another might say something of the data.
    """
    site = str(config.get("site", ""))
    run, sequence = "", 0
    try:
        if not site:
            raise MessageError("the node's configuration must say which site it is: --node-config 'site=\"NAME\"'")
        envelope = open_envelope(parcel)
        run, sequence = envelope.run, envelope.sequence
        folder = Path(str(config.get("state", Path.home() / ".fpdfp" / site)))
        with _alone(folder):
            contents = _answer(envelope, site, folder, lambda: _load(load, site, config))
    except OlderError as error:
        log.warning("a request is refused: %s", error)
        contents = {"error": str(error), "sequence": error.sequence}
    except MessageError as error:
        log.warning("a request is refused: %s", error)
        contents = {"error": str(error)}
    except Exception as error:
        log.exception("a request could not be answered")
        contents = {"error": f"{type(error).__name__} at the site; its log says more"}
    reply = seal(Envelope(run, sequence, site, contents))
    try:
        outbox.keep(reply, *_outbox(config))
    except Exception as error:
        # What was not released, or could not be kept for those who want to see it, does not leave.
        why = "its reply was not released" if isinstance(error, outbox.RefusedError) else "its reply could not be kept"
        log.warning("%s: %s", why, error)
        reply = seal(Envelope(run, sequence, site, {"error": why}))
        with contextlib.suppress(OSError):
            outbox.keep(reply, _outbox(config)[0])
    return reply


def _outbox(config: Config) -> tuple[Path | None, float]:
    """Return the folder for copies of what leaves, None for none, and how long replies are held there."""
    folder = config.get("outbox")
    return (Path(str(folder)) if folder else None), float(config.get("hold") or 0.0)


def _load(load: Callable[[str, Config], Losses], site: str, config: Config) -> Losses:
    """Return the site's losses; whatever goes wrong in there is none of the server's business."""
    try:
        return load(site, config)
    except MessageError as error:
        raise RuntimeError("load has failed") from error


def _answer(envelope: Envelope, name: str, folder: Path, load: Callable[[], Losses]) -> dict[str, Any]:
    """Answer a request with what the site remembers, and keep what it remembers then."""
    if envelope.site not in (name, "*"):
        raise MessageError(f"a request is for {envelope.site}, this is {name}")
    if "hello" in envelope.contents:
        return {"hello": {"site": name}}
    kept = folder / "memory.fpdfp"
    saved = _read(kept, envelope.run)
    if saved is not None and envelope.sequence < saved["sequence"]:
        raise OlderError(envelope.sequence, int(saved["sequence"]))
    if "memory" in envelope.contents:
        raise MessageError("what clients remember of their data does not leave this site")
    site = Site(load())
    if saved is not None:
        site.restore(spec.load(saved["job"], Job), saved["site"])
    job = envelope.contents.get("job", None if saved is None else saved["job"])
    reply = site.handle(spec.load(envelope.contents))
    if site.job is not None:
        state = {"run": envelope.run, "sequence": envelope.sequence, "job": job, "site": site.export()}
        files.write_sealed(kept, lambda file: file.write(pack(state)))
    return reply


def _read(path: Path, run: str) -> Any:
    """Return what was kept of a run; None where there is nothing of it, or nothing whole: the server then sends it."""
    try:
        saved = unpack(files.read_sealed(path))
        return saved if saved["run"] == run else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        log.warning("what this site remembered cannot be read (%s): the server is asked for its copy", error)
        return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within this, no other process of the site works on its memory."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        waited = time.monotonic()
        fcntl.flock(lock, fcntl.LOCK_EX)
        if time.monotonic() - waited > 1:
            log.info("waited for another request to be answered")
        yield
