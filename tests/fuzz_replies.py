"""Send the server replies that a site has forged, and see that they are refused or taken for what they say.

    python -m tests.fuzz --replies 1000000 --seed 1 --jobs 2

The replies are those to the requests of :mod:`tests.fuzz_requests`, damaged in the same ways. The server refuses one
with MessageError, or reads it: then every number is of the shape that was asked for, and finite.
"""

from __future__ import annotations

import copy
import functools
import math
import random
from typing import Any, NamedTuple

import numpy as np

from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.collector import check_rows, decode_once, decode_update
from fpdfp.cohorts.losses import At, Bounds, LossBounds
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.remote import RemoteLosses
from fpdfp.cohorts.requests import Reply, Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.cohorts.site import Site, Update
from fpdfp.losses.base import Losses
from tests import fuzz_requests
from tests.fuzz import attempt
from tests.fuzz_requests import damage, snapshot
from tests.loopback import Loopback

#: Points of more entries are not made here.
LARGE = 1 << 20


class Answered(NamedTuple):
    """A reply of a run, what was asked, and the site that gave it."""

    name: str
    asked: Request
    site: Site
    tree: Any


@functools.cache
def corpus() -> list[Answered]:
    """Return the replies of sites to all requests."""
    found = []
    for recorded in fuzz_requests.corpus():
        site, request = snapshot(recorded.site), parcels.load(copy.deepcopy(recorded.tree))
        tree = unpack(pack(site.handle(request)))
        if "needs" not in tree:
            found.append(Answered(recorded.name, Request.read(request), site, tree))
    losses = fuzz_requests.problems()["graph"].losses
    facts: dict[str, Any] = {"facts": {}, "bounds": {}}
    found += 20 * [Answered("facts", Request.read(facts), Site(losses), unpack(pack(Site(losses).handle(facts))))]
    return found


def forge(seed: int, index: int) -> tuple[Answered, Any]:
    """Return a reply, and one that was made of it."""
    rng = random.Random(seed << 40 | index)
    answered = rng.choice(corpus())
    return answered, damage(rng, answered.tree, corpus())


def examine(answered: Answered, tree: Any) -> bool:
    """Return whether a reply was taken; raise AssertionError if that did harm."""
    arrays = attempt(lambda: read(answered, copy.deepcopy(tree)))
    for array in () if arrays is None else arrays:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise AssertionError(f"it has {array!r}")
    return arrays is not None


def read(answered: Answered, tree: Any) -> list[Any]:
    """Return the arrays that the server takes from a reply, as engines do."""
    asked, site = answered.asked, answered.site
    reply = Reply.read(tree, asked)
    losses: Losses = site.losses
    rows, found = losses.n_clients, []
    if reply.needs:
        return []
    for ask in asked.questions:
        part = ask.name
        given = reply.part(part)
        if part == "facts" and math.prod(given.shape) > LARGE:
            pass  # the server believes a site that claims so many features, and needs memory for them
        elif part == "facts":
            bounds = LossBounds(np.ones(len(given.sizes)), 0.0)
            away = RemoteLosses(Loopback(fuzz_requests.problems()["graph"], sites=1), [given], [bounds])
            found += [away.sizes, *away.constants()]
        elif ask.answers is Question.answers:
            assert asked.about.clients is not None
            found += decode_once(given, asked.about.clients, ask.messages(losses.shape), ask.sent_dtype).arrays.values()
        elif isinstance(ask, Update):
            assert site.job is not None
            shapes = site.job.algorithm.reply_shapes()
            clients = np.arange(rows) if ask.clients is None else ask.clients
            done = decode_update(given, clients, shapes, site.job.compressors, losses.dtype, "cpu", None)
            if done.shapes != list(shapes.items()) or len(next(iter(done.arrays.values()))) != len(clients):
                raise AssertionError("its arrays have other shapes")
            found += [*done.arrays.values(), np.array(done.work)]
        elif isinstance(ask, Bounds):
            check_rows(given.lipschitz, (rows,))
            found += [given.lipschitz[np.isfinite(given.lipschitz)]]
        elif part == "memory":
            found += given.values()
        elif part == "duals":
            found += [array for array in vars(given).values() if array is not None]
        else:
            taken = given if isinstance(given, dict) else vars(given)
            wanted = {"constants": (), "answers": (2,), "values": (), "gradients": losses.shape}
            for name in ask.parts if isinstance(ask, At) else [part]:
                check_rows(taken.get(name), (rows, *wanted[name]))
                found.append(taken[name])
    return found


def describe(answered: Answered, tree: Any) -> str:
    """Say what a reply was made of."""
    return f"{answered.name}, {tree!r}"


def prepare() -> None:
    """Read every reply as it is, so that kernels are compiled before anything is timed."""
    fuzz_requests.prepare()
    for answered in corpus():
        assert examine(answered, answered.tree), answered.name
