"""The app of the federation in ``test_flower.py``: its problem, its sites, and what they do when they are told to."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fpdfp
import fpdfp.flower
from fpdfp.compress.wire import parse
from fpdfp.engines.envelope import open_envelope, seal
from fpdfp.engines.traffic import FULL
from fpdfp.flower.client import LONGEST, respond
from fpdfp.flower.records import from_record, to_record
from fpdfp.rng import Draws
from tests.helpers import classification, graph_guided

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

#: The sites, and the clients at each.
SITES = {"north": [0, 1], "east": [2], "south": [3]}
D = 12
SEED = 7

PROJECT = """\
[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "trial"
version = "1.0.0"
license = "BSD-3-Clause"
dependencies = []

[tool.setuptools]
packages = ["trial"]

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "trial.apps:server"
clientapp = "trial.apps:client"

[tool.flwr.app.config]
rounds = 4
seed = 7
deadline = 60.0
checkpoint = ""
output = ""
"""


def write_app(folder: Path, **options: Any) -> Path:
    """Write an app whose server has these options."""
    (folder / "trial").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "trial" / "__init__.py").write_text("")
    (folder / "trial" / "apps.py").write_text(
        "from tests import flower_trial\n"
        f"server = flower_trial.server_app(**{options!r})\n"
        "client = flower_trial.client_app()\n"
    )
    return folder


def problem(sites: Iterable[str] = tuple(SITES)) -> fpdfp.Problem:
    """What is solved, with the data of all these sites in one place."""
    whole = graph_guided(clients=4, rows=30, d=D)
    clients = np.array([client for site in sites for client in SITES[site]])
    return fpdfp.Problem(whole.losses.part(clients), whole.penalty, whole.linop, weights="samples")


def rows(site: str) -> Any:
    """The features at a site."""
    X, _, owner = classification(clients=4, rows=30, d=D)
    return X[np.isin(owner, SITES[site])]


def server_app(sites: Sequence[str] = tuple(SITES), **options: Any) -> ServerApp:
    whole = problem()  # its penalty and its map alone

    def confirmed(run: fpdfp.Run) -> None:
        print(f"confirmed {run.round}: {run.memory.version.tolist()}", flush=True)

    return fpdfp.flower.server_app(
        whole.penalty, whole.linop, sites=sites, callbacks=[confirmed], patience=600.0, **options
    )


def load(site: str, config: Mapping[str, Any]) -> Any:
    return problem([site]).losses


def client_app() -> ClientApp:
    """A site's app that says in its folder what it works on, and then does as ``behave`` there says."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Any) -> Message:
        parcel, config = from_record(message.content, LONGEST), context.node_config
        folder = Path(str(config["state"]))
        asked = open_envelope(parcel).contents
        at = asked["update"]["round"] if "update" in asked else -1
        behaviour = told(folder).get(str(at), "")
        note(folder, at)
        if behaviour.startswith("slow"):
            time.sleep(float(behaviour.split()[1]))
        reply = respond(parcel, config, load)
        if behaviour in TAMPERED:
            reply = TAMPERED[behaviour](reply, folder)
        elif at >= 0:
            (folder / "last").write_bytes(reply)
        return Message(to_record(reply), reply_to=message)

    return app


def told(folder: Path) -> dict[str, str]:
    """What a site is to do in which rounds."""
    try:
        return dict(json.loads((folder / "behave").read_text()))
    except FileNotFoundError:
        return {}


def note(folder: Path, at: int) -> None:
    """Say that round ``at`` is being worked on: −1 before the rounds begin."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "worked").open("a") as file:
        file.write(f"{at}\n")


def worked(folder: Path) -> list[int]:
    """The rounds that a site has begun to work on, in order."""
    path = folder / "worked"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def garbage(reply: bytes, folder: Path) -> bytes:
    return os.urandom(len(reply))


def not_finite(reply: bytes, folder: Path) -> bytes:
    return with_frames(reply, [damaged_scale(frame) for frame in frames_of(reply)])


def damaged_scale(frame: bytes) -> bytes:
    """A frame that is whole in every respect, but whose scale (the four bytes after the header) is not a number."""
    header = parse(frame).end
    body = frame[:header] + struct.pack("<f", np.nan) + frame[header + 4 : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def wrong_shape(reply: bytes, folder: Path) -> bytes:
    array = np.zeros((len(frames_of(reply)), D + 1))
    nobody = Draws(0, 0, np.arange(len(array)))
    return with_frames(reply, FULL.encode(FULL.quantize(array, nobody, 0)))


def replayed(reply: bytes, folder: Path) -> bytes:
    return (folder / "last").read_bytes()


def oversized(reply: bytes, folder: Path) -> bytes:
    envelope = open_envelope(reply)
    return seal(envelope._replace(contents=envelope.contents | {"more": bytes(4 << 20)}))


def frames_of(reply: bytes) -> list[bytes]:
    [frames] = open_envelope(reply).contents["update"]["frames"].values()
    return list(frames)


def with_frames(reply: bytes, frames: list[bytes]) -> bytes:
    """A reply with other messages, whose bits are counted as they should be."""
    envelope = open_envelope(reply)
    update = envelope.contents["update"]
    [name] = update["frames"]
    bits = np.array([[8 * len(frame) for frame in frames]])
    return seal(
        envelope._replace(contents=envelope.contents | {"update": update | {"frames": {name: frames}, "bits": bits}})
    )


TAMPERED = {
    "garbage": garbage,
    "nan": not_finite,
    "shape": wrong_shape,
    "replay": replayed,
    "oversized": oversized,
}
