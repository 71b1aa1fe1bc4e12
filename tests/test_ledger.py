"""Clients' memories agree with the server's copies, whatever is lost on the way and whoever crashes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.site import ClientLedger, Stamp
from fpdfp.rng import Draws
from fpdfp.traffic import digest
from tests import helpers

QUANTIZE = int(fpdfp.rng.Purpose.QUANTIZE)


class ServerLedger:
    """The server's side in its simplest form: a copy of what every client remembers of its messages."""

    def __init__(self, method: Any, n_clients: int) -> None:
        self.method = method
        memory = method.init_memory(n_clients)
        self.copies = {name: getattr(memory, name) for name in method.shared_memory}
        self.versions: Any = np.zeros(n_clients, dtype=np.int64)

    def stamp(self, client: int) -> Stamp:
        """Return what a client's stamp should be."""
        return Stamp(int(self.versions[client]), digest(copy[client] for copy in self.copies.values()))

    def copy(self, client: int) -> dict[str, Any]:
        """Return what a client should remember, to be sent to one that does not."""
        return {name: copy[client].copy() for name, copy in self.copies.items()}

    def confirm(self, client: int, sent: Any, k: int) -> None:
        """Take note of a client's message of round k, as it was decoded (with a client axis of length one)."""
        before = {name: copy[client][None] for name, copy in self.copies.items()}
        after = self.method.remember(before, sent, k)
        for name, known in self.copies.items():
            known[client] = after[name][0]
        self.versions[client] += 1


class Network:
    """A server and clients that exchange real messages, some of which are lost, and that crash now and then."""

    def __init__(self, method: Any, *, seed: int, trouble: float) -> None:
        self.problem = helpers.fused_regression(spread=0.3)
        self.model, self.count = self.problem.model, self.problem.n_clients
        self.quantizer = fpdfp.QSGD(5, norm="max")
        self.method = helpers.prepare(self.problem, method, compressor=self.quantizer, clients_per_round=3)
        self.state = self.method.init(np.zeros(self.model.shape))
        self.server = ServerLedger(self.method, self.count)
        self.clients = [ClientLedger(self.method) for _ in range(self.count)]
        self.backups = copy.deepcopy(self.clients)
        self.checkpoint = copy.deepcopy((self.state, self.server))
        self.chance = np.random.default_rng(seed)
        self.trouble, self.healed = trouble, 0

    def lost(self) -> bool:
        return bool(self.chance.random() < self.trouble)

    def round(self, k: int) -> None:
        chosen = [int(i) for i in fpdfp.rng.choose_clients(0, k, self.count, 3)]
        message = self.method.broadcast(self.state)
        arrived = []
        for i in chosen:
            ledger = self.clients[i]
            if self.lost():
                continue  # the question
            if not ledger.agrees(self.server.stamp(i)):
                ledger.adopt(self.server.copy(i), self.server.stamp(i))
                self.healed += 1
            who = np.array([i])
            local = self.problem.local(who, ledger.memory)
            update = self.method.client_update(local, message, k, Draws(0, k, who))
            packed = self.quantizer.encode(self.quantizer.quantize(update.reply[0], Draws(0, k, who), QUANTIZE))
            decoded = type(update.reply)(self.quantizer.decode(packed, self.model.shape, np.float64))
            ledger.hold(update.memory, decoded, k)
            if self.lost():
                continue  # the answer
            self.server.confirm(i, decoded, k)
            arrived.append(decoded)
            if not self.lost():
                ledger.confirm()
        if arrived:
            replies = type(arrived[0])(np.concatenate([one[0] for one in arrived]))
            self.state = self.method.server_update(
                self.state, helpers.mean_of(replies, self.method.double), k, len(arrived)
            )

    def crash(self, k: int) -> None:
        """A client is restored from an old backup, or starts anew; the server goes back to its last checkpoint."""
        i = int(self.chance.integers(self.count))
        self.clients[i] = copy.deepcopy(self.backups[i]) if k % 2 else ClientLedger(self.method)
        if k % 100 == 50:
            self.state, self.server = copy.deepcopy(self.checkpoint)
        if k % 30 == 0:
            self.backups[i] = copy.deepcopy(self.clients[i])
            self.checkpoint = copy.deepcopy((self.state, self.server))

    def shared(self) -> Any:
        name = self.method.shared_memory[0]
        return np.stack([getattr(ledger.memory, name)[0] for ledger in self.clients])


METHODS = [fpdfp.ShiftedPDFP(), fpdfp.ShiftedPDFP(preconditioner="moments", batch_size=5), fpdfp.RandProx()]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_memories_agree_through_losses_and_crashes(method: Any) -> None:
    network = Network(method, seed=1, trouble=0.2)
    best = fpdfp.minimize(network.problem, tol=1e-12).objective
    for k in range(900):
        network.round(k)
        if k < 500 and k % 7 == 3:
            network.crash(k)
    assert network.healed > 10
    x = network.method.solution(network.state)[0]
    assert abs(network.problem.objective(x) / best - 1) < 1e-8
    # What the method's own mean of the memories is rests on the copies, to rounding.
    mean = getattr(network.state, "shift" if hasattr(network.state, "shift") else "control")
    (name,) = network.method.shared_memory
    np.testing.assert_allclose(mean, network.server.copies[name].mean(axis=0), atol=1e-12)
    for i, ledger in enumerate(network.clients):
        if not ledger.agrees(network.server.stamp(i)):
            ledger.adopt(network.server.copy(i), network.server.stamp(i))
    np.testing.assert_array_equal(network.shared(), network.server.copies[name])


def test_without_healing_the_same_crashes_leave_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: clients that believe themselves spoil the server's mean for good."""
    monkeypatch.setattr(ClientLedger, "agrees", lambda self, stamp: True)
    network = Network(fpdfp.ShiftedPDFP(), seed=1, trouble=0.2)
    best = fpdfp.minimize(network.problem, tol=1e-12).objective
    for k in range(900):
        network.round(k)
        if k < 500 and k % 7 == 3:
            network.crash(k)
    assert abs(network.problem.objective(network.method.solution(network.state)[0]) / best - 1) > 1e-6


def exchange() -> tuple[Network, ClientLedger, Any]:
    network = Network(fpdfp.ShiftedPDFP(), seed=0, trouble=0.0)
    ledger, who = network.clients[0], np.array([0])
    message = network.method.broadcast(network.state)
    local = network.problem.local(who, ledger.memory)
    update = network.method.client_update(local, message, 0, Draws(0, 0, who))
    ledger.hold(update.memory, update.reply, 0)
    return network, ledger, update.reply


def test_a_message_that_was_lost_is_forgotten() -> None:
    network, ledger, _ = exchange()
    assert ledger.agrees(network.server.stamp(0))
    assert ledger.version == 0
    assert not ledger.memory.shift.any()
    with pytest.raises(RuntimeError, match="nothing was sent"):
        ledger.confirm()


def test_a_lost_confirmation_is_made_up_for() -> None:
    network, ledger, reply = exchange()
    network.server.confirm(0, reply, 0)
    assert ledger.stamp() != network.server.stamp(0)
    assert ledger.agrees(network.server.stamp(0))
    assert ledger.version == 1
    np.testing.assert_array_equal(ledger.memory.shift[0], network.server.copies["shift"][0])


def test_what_cannot_be_made_up_for_is_seen() -> None:
    network, ledger, reply = exchange()
    network.server.confirm(0, reply._replace(difference=reply.difference + 1e-12), 0)
    assert not ledger.agrees(network.server.stamp(0))
    assert ledger.version == 0  # the attempt is undone
    ledger.adopt(network.server.copy(0), network.server.stamp(0))
    assert ledger.stamp() == network.server.stamp(0)
    with pytest.raises(ValueError, match="copy must match the server's stamp"):
        ledger.adopt(network.server.copy(0), Stamp(7, b"12345678"))
