"""The mechanisms of the level ``private`` without tables, policies and masks: sites in one process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.privacy.fit import NoisySum
from fpdfp.privacy.ledger import Ledger
from fpdfp.privacy.noise import Stream
from fpdfp.privacy.releases import Release, add_noise, bounded, exact_sum, read_sum


def request_digest(release: Release, about: bytes = b"") -> bytes:
    """Return a digest of all that a release says, and of what it is about: its design, and who shares the noise."""
    told = {
        field.name: getattr(release, field.name) for field in dataclasses.fields(release) if field.name != "x"
    } | {"mu": release.mu.hex()}  # fmt: skip
    summary = hashlib.sha256(json.dumps(told, sort_keys=True).encode() + b"\0" + hashlib.sha256(about).digest())
    if release.x is not None:
        summary.update(np.ascontiguousarray(release.x, np.float64).tobytes())
    return summary.digest()


def data_digest(X: Array, y: Array) -> str:
    """Return a digest of a table of numbers."""
    summary = hashlib.sha256(repr(X.shape).encode())
    for array in (X, y):
        summary.update(np.ascontiguousarray(array, np.float64).tobytes())
    return summary.hexdigest()


class PrivateSite:
    """Answers releases from rows that never leave.

    Parameters
    ----------
    X, y
        The rows.
    radius
        The length of the longest row that counts.
    key
        A secret of 32 bytes, from which the noise is drawn.
    ledger
        Where it is written down what was spent, before a reply leaves; None for no limit, in simulations.
    """

    def __init__(self, X: Array, y: Array, radius: float, key: bytes, ledger: Ledger | None = None) -> None:
        self._X, self._y, self.radius, self._key, self._ledger = X, y, radius, key, ledger
        self._digest = data_digest(X, y)
        self._bounded: dict[tuple[str, str], Any] = {}

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self._X.shape[1])

    def answer(self, release: Release, shares: int = 1, about: bytes = b"", analyst: str = "") -> Any:
        """Return the sum over rows with noise, as integers.

        Parameters
        ----------
        release
            What is requested.
        shares
            Over how many sites the variance is shared out.
        about
            Anything else that the request says; the same request has the same noise.
        analyst
            Who asks, for the ledger.
        """
        digest = request_digest(release, about + b"\0%d" % shares)
        which = (release.loss, release.long_rows)
        if which not in self._bounded:
            self._bounded[which] = bounded(self._X, self._y, self.radius, *which)
        total = exact_sum(release, self._bounded[which], self.radius)
        if self._ledger is not None:
            self._ledger.spend(self._digest, digest.hex(), release.mu, release.kind, analyst)
        # noise depends on the data too: a table that has changed must not have the old noise under its new sum
        stream = Stream(self._key, b"noise" + digest + bytes.fromhex(self._digest))
        return add_noise(release, total, self.radius, self.features, stream, shares)


class LocalSites:
    """Sites of one process, whose replies are added up: what :mod:`fpdfp.privacy.fit` asks in a simulation.

    Parameters
    ----------
    sites
        The sites.
    colluding
        The number of them that may share all they know with the analyst; None where every site adds all of the noise.

    Examples
    --------
    >>> from fpdfp.privacy.fit import Goal, newton
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(-1, 1, (30_000, 3)), np.ones(30_000)])
    >>> y = np.where(rng.random(30_000) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.0, 0.5])), 1.0, -1.0)
    >>> sites = [PrivateSite(X[i::3], y[i::3], 2.0, bytes([i]) * 32) for i in range(3)]
    >>> fit = newton(LocalSites(sites, colluding=1), Goal(30_000, 4, 2.0, mu=0.5, delta=1e-6))
    >>> print(fit.privacy)
    differential privacy: epsilon = 2.25, delta = 1e-06 for one row more or less at one site; released with noise: \
1 × moments, 8 × gradient, 1 × hessian
    >>> bool((abs(fit.x - [1.0, -1.0, 0.0, 0.5]) < 0.2).all())
    True
    """

    def __init__(self, sites: Sequence[PrivateSite], colluding: int | None = None) -> None:
        if colluding is not None and not 0 <= colluding < len(sites) - 1:
            raise ArgumentError("colluding", f"must leave at least two of {len(sites)} sites, got {colluding}")
        self.sites = list(sites)
        self.shares = 1 if colluding is None else len(sites) - colluding

    def __call__(self, release: Release) -> NoisySum:
        """Return the noisy sum over all sites."""
        first = self.sites[0]
        total = np.sum([site.answer(release, self.shares) for site in self.sites], axis=0)
        deviation = release.standard_deviation(first.radius, first.features, len(self.sites), self.shares)
        return NoisySum(read_sum(release, total, first.radius), deviation)
