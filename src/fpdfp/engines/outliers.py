"""Replies that are far larger than all others: an adaptive bound where the replies of single sites are seen.

One absurd reply in a mean is enough to end a run. A reply counts as absent if its norm is more than a thousand times
everything there is to compare it with: the median of the other clients' in the round, the largest of any field that was
accepted in the run, and what the server knows of the clients' memory. Where there are no others in the round, three
rounds must have been accepted. Clients may differ for good reasons, by their weights and by the size of their features,
so it must be that large in three units: unchanged, for its client's weight, and for weight and Lipschitz constant.
A run in which nothing is refused has the same bits as without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.engines.replies import Decoded

#: This many times what there is to compare it with a reply may be.
FACTOR = 1e3
#: A reply is judged by earlier ones alone after this many rounds: at first, differences may be nothing but rounding.
ROUNDS = 3


class Outliers:
    """Tells replies that are far too large, from what was accepted before.

    Parameters
    ----------
    scaling, lipschitz
        N w_i of all clients, None where all are 1, and their Lipschitz constants.
    """

    def __init__(self, scaling: Array | None, lipschitz: Array) -> None:
        ones = np.ones(len(lipschitz))
        weights = ones if scaling is None else np.asarray(scaling, dtype=np.float64)
        usable = np.isfinite(lipschitz) & (lipschitz > 0)
        constants = np.where(usable, lipschitz, 1.0) if usable.all() else ones
        #: For each unit and client, the size of one.
        self._units = np.stack([ones, weights, weights * constants])
        #: The largest norm of each field in each unit.
        self._largest: dict[str, Array] = {}
        self._rounds = 0

    def find(self, replies: Mapping[int, Decoded], memory: Any = ()) -> dict[int, str]:
        """Return which sites' replies are far too large, and what is wrong with each."""
        found: dict[int, str] = {}
        if not replies:
            return found
        for field, name in enumerate(next(iter(replies.values())).fields):
            norms = {site: self._norms(reply, field) for site, reply in replies.items()}
            # Of any field: one that is nothing but rounding at first may grow a thousandfold.
            known = np.max([*self._largest.values(), np.zeros(3)], axis=0)
            for site, own in norms.items():
                # Mostly what was accepted before settles it, and nothing else has to be looked at.
                if not (own.max(axis=1) > FACTOR * known).all():
                    continue
                others = [one for other, one in norms.items() if other != site]
                if not others and self._rounds < ROUNDS:
                    continue
                beside = np.median(np.concatenate(others, axis=1), axis=1) if others else np.zeros(3)
                scale = np.maximum(np.maximum(known, self._memory_norms(memory)), beside)
                if (scale > 0).all() and (own.max(axis=1) > FACTOR * scale).all():
                    found[site] = (
                        f"the norm of {name!r} is {own[0].max():.3g}, more than {FACTOR:g} times what others send and "
                        f"what was sent before ({scale[0]:.3g})"
                    )
        return found

    def accept(self, replies: Sequence[Decoded]) -> None:
        """Take note of the replies of a round."""
        self._rounds += 1
        for reply in replies:
            for field, name in enumerate(reply.fields):
                largest = self._norms(reply, field).max(axis=1)
                self._largest[name] = np.maximum(self._largest.get(name, largest), largest)

    def _norms(self, reply: Decoded, field: int) -> Array:
        """Return the norm of a field for each unit and client of a site."""
        rows = to_host(reply.arrays[field]).reshape(len(reply.clients), -1)
        norms: Array = np.linalg.norm(rows.astype(np.float64, copy=False), axis=1)
        return norms / self._units[:, reply.clients]

    def _memory_norms(self, memory: Any) -> Array:
        """Return the largest norm of what the server knows that clients remember, in each unit."""
        largest = np.zeros(3)
        for name in getattr(memory, "_fields", ()):
            array = to_host(getattr(memory, name))
            if name != "version" and array.dtype.kind == "f" and array.ndim > 1 and len(array) == self._units.shape[1]:
                rows = np.linalg.norm(array.reshape(len(array), -1).astype(np.float64), axis=1)
                largest = np.maximum(largest, (rows / self._units).max(axis=1))
        return largest
