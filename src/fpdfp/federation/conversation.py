"""Heads of requests: the common part of a run's requests is sent once, and then named.

The head of a request says whom it is for, of which run, model and plan it is, and what its questions are about. A site
that has answered a request keeps its head by a digest of six bytes, for anyone who has sent it; later requests have the
digest in its place, and their number since then. A site that does not know a digest (any more) states it, and is sent
the head again. So a round costs a few dozen bytes besides its messages.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fpdfp.cohorts.serialization import pack
from fpdfp.errors import MessageError

#: What stays the same from one request to the next: of the envelope, and of what questions are about.
ENVELOPE = ("run", "sites", "site", "kind", "model", "plan")
ADDRESS = ("key", "features", "epoch")
#: How many heads a site keeps, and the longest.
MOST, LONGEST = 256, 1024
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


def split(tree: Mapping[str, Any]) -> Split:
    """Return a request, without its number, as its head and the rest.

    >>> split({"run": "r", "site": "north", "request": {"key": "k", "at": {}}})
    Split(head={'run': 'r', 'site': 'north', 'request': {'key': 'k'}}, rest={'request': {'at': {}}})
    """
    head = {name: tree[name] for name in ENVELOPE if name in tree}
    rest = {name: one for name, one in tree.items() if name not in ENVELOPE and name != "sequence"}
    asked = tree.get("request")
    if isinstance(asked, dict):
        head["request"] = {name: asked[name] for name in ADDRESS if name in asked}
        rest["request"] = {name: one for name, one in asked.items() if name not in ADDRESS}
    return Split(head, rest)


def join(head: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
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
        parts = split(tree)
        first = self._known.get((site, parts.digest))
        if first is None:
            return {**tree, "sequence": sequence}
        return {CONVERSATION: parts.digest, NUMBER: sequence - first, **parts.rest}

    def note_answer(self, site: str, tree: Mapping[str, Any], sequence: int) -> None:
        """Take note that a site has answered a request that was sent in full."""
        while len(self._known) >= MOST * 64:
            self._known.pop(next(iter(self._known)))
        self._known[site, split(tree).digest] = sequence

    def forget(self, site: str, tree: Mapping[str, Any]) -> None:
        """Take note that a site does not know the head of a request."""
        self._known.pop((site, split(tree).digest), None)


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
        return join(found[0], rest) | {"sequence": found[1] + number}

    def _keep(self, asked: dict[str, Any], fingerprint: str) -> None:
        sequence, parts = asked.get("sequence"), split(asked)
        if type(sequence) is not int or len(pack(parts.head)) > LONGEST:
            return
        self._heads[fingerprint, parts.digest] = parts.head, sequence
        if len(self._heads) > MOST:
            self._heads.popitem(last=False)
