"""The ledger of a site: what its data have been spent on, across runs and analysts.

Squares of μ add up (:mod:`fpdfp.privacy.accounting`). What a release costs is on disk before the reply leaves, so a
crash costs budget and never gives any back. A release that is requested again has the same reply, and costs nothing.

Budgets belong to data, which are known by a digest. Data that have changed are not new people: their rows were paid for
already. So a ledger with one table's account refuses another table's, until a person at the site has opened an account
for it (:meth:`Ledger.open`). That person confirms that no patient is in both, or accepts that budgets add up.
"""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import NamedTuple

from fpdfp.errors import Refusal
from fpdfp.privacy.accounting import epsilon_of, mu_of
from fpdfp.privacy.journal import Journal


class Entry(NamedTuple):
    """One release: the data, the digest of the request, μ², what was requested, by whom, and when."""

    data: str
    tag: str
    squared: float
    what: str
    analyst: str
    time: str


class Account(NamedTuple):
    """The budget of one table: spent and left.

    Attributes
    ----------
    data
        The digest of the data.
    spent, total
        ε that was spent and that may be, at the δ of the policy.
    delta
        δ.
    left
        ε of one more release that takes all that is left: squares of μ add up, so ε spent and left add up to more.
    releases
        The number of releases.
    """

    data: str
    spent: float
    total: float
    delta: float
    left: float
    releases: int

    def __str__(self) -> str:
        return (
            f"data {self.data[:16]}: epsilon {self.spent:.3g} of {self.total:g} spent in {self.releases} releases, "
            f"{self.left:.3g} left, at delta {self.delta:g}"
        )


class Ledger:
    """The spent budget, in a journal; one process at a time has it open.

    Parameters
    ----------
    path
        The journal.
    epsilon, delta
        What may be spent of each table.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "privacy.journal", 1.0, 1e-6)
    >>> ledger.spend("table", "first request", ledger.mu / 2, "gradient", "ana")
    >>> round(ledger.account("table").spent, 3)
    0.475
    >>> ledger.spend("table", "second request", ledger.mu, "gradient", "ana")
    Traceback (most recent call last):
      ...
    fpdfp.errors.Refusal: the privacy budget of this site is spent: epsilon 0.475 of 1 at delta 1e-06, and this needs \
more than is left
    >>> ledger.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.mu = mu_of(epsilon, delta)
        self._journal = Journal(path)
        self.entries: dict[tuple[str, str], Entry] = {}
        self._opened: dict[str, None] = {}
        for record in self._journal.records:
            try:
                kind, *fields = json.loads(record)
                if kind == "open":
                    self._opened[str(*fields)] = None
                else:
                    self._add(Entry(*fields))
            except (ValueError, TypeError):
                self.close()
                raise RuntimeError(f"{path} is not a ledger of privacy budgets") from None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def head(self) -> bytes:
        """The digest of all that was written: who keeps it elsewhere notices an older ledger in its place."""
        return self._journal.head

    def open(self, data: str) -> None:
        """Begin an account for a table: a person at the site decides that."""
        if data not in self._opened:
            self._journal.append(json.dumps(["open", data]).encode())
            self._opened[data] = None

    def spend(self, data: str, tag: str, mu: float, what: str, analyst: str) -> None:
        """Write down a release before its reply leaves; refuse one that the budget does not cover.

        Parameters
        ----------
        data
            The digest of the data.
        tag
            The digest of the whole request: what was asked before costs nothing.
        mu
            The price.
        what, analyst
            What is released and who asked.
        """
        if (data, tag) in self.entries:
            return
        if not self._opened:
            self.open(data)
        if data not in self._opened:
            raise Refusal(
                "the data of this site do not match its privacy budget; a person at the site must open an account "
                "for them", rule="privacy",
            )  # fmt: skip
        if not mu > 0 or self._squared(data) + mu**2 > self.mu**2 * (1 + 1e-12):
            spent = self.account(data).spent
            raise Refusal(
                f"the privacy budget of this site is spent: epsilon {spent:.3g} of {self.epsilon:g} at delta "
                f"{self.delta:g}, and this needs more than is left", rule="privacy",
            )  # fmt: skip
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = Entry(data, tag, mu**2, what, analyst, now)
        self._journal.append(json.dumps(["spend", *entry]).encode())
        self._add(entry)

    def account(self, data: str) -> Account:
        """Return what was spent of a table."""
        releases = sum(entry.data == data for entry in self.entries.values())
        spent = epsilon_of(math.sqrt(self._squared(data)), self.delta)
        left = epsilon_of(self.left(data), self.delta)
        return Account(data, spent, self.epsilon, self.delta, left, releases)

    def left(self, data: str) -> float:
        """Return the μ that one more release may cost."""
        return math.sqrt(max(self.mu**2 - self._squared(data), 0.0))

    def accounts(self) -> list[Account]:
        """Return the accounts of all tables."""
        return [self.account(data) for data in self._opened]

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _squared(self, data: str) -> float:
        return math.fsum(entry.squared for entry in self.entries.values() if entry.data == data)

    def _add(self, entry: Entry) -> None:
        if not (isinstance(entry.squared, float) and entry.squared >= 0):
            raise ValueError
        self.entries[entry.data, entry.tag] = entry
