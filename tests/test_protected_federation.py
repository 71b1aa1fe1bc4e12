"""Sealed messages, masked sums and sums with noise through a hub that keeps and changes what it hands on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError, RefusalError
from fpdfp.federation import hub as hub_module
from fpdfp.federation.commands import app
from fpdfp.federation.connection import Connection
from fpdfp.federation.framing import Message
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.policy import Policy
from fpdfp.federation.protected import ProtectedGuard
from fpdfp.federation.seal import Pins, Secret
from fpdfp.federation.table import SiteTable
from tests.federation_trial import SITES, AgentThread, HubThread, Trial
from tests.test_protected import COLUMNS, RANGES, patients, pooled, private_model

pytest.importorskip("grpc")


def command(*words: str) -> list[str]:
    """Run a command of the federation; return its lines."""
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return [line for line in found.output.splitlines() if line]


class Study:
    """A study with a hub, three sites behind guards, and an analyst, who know each other's keys or not."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, *, sealed: bool, rows: int = 300, **policy: Any
    ) -> None:
        self.trial, self.tables = Trial(folder), patients(rows, names=SITES)
        self.trial.link.close()
        stack.enter_context(HubThread(self.trial.study))
        identities = {name: self.trial.join(name) for name in SITES}
        keys = {name: Secret.of(identity.folder).public.hex() for name, identity in identities.items()}
        own = self.trial.study.analyst
        self.analyst = Secret.of(own.folder)
        if sealed:
            for name, identity in identities.items():
                assert command("key", str(identity.folder)) == [f'{name} = "{keys[name]}"']
                command("trust", str(self.trial.study.folder), name, keys[name])
                command("trust", str(identity.folder), own.about.name, self.analyst.public.hex())
            assert len(Pins(own.folder).read()) == 3
        members = {"members": keys} if policy.get("level") in ("sums", "private") else {}
        rules = Policy(columns_of_the_table=COLUMNS, **members, **policy)
        kind = RequestGuard if rules.level == "filter" else ProtectedGuard
        for name, identity in identities.items():
            guard = stack.enter_context(
                contextlib.closing(kind(name, SiteTable.read(self.tables[name], COLUMNS), rules, identity.folder))
            )
            stack.enter_context(AgentThread(identity, guard))
        self.federation = stack.enter_context(fpdfp.Federation(self.trial.study.folder, patience=20.0))
        assert isinstance(self.federation._link, Connection)
        self.trial.link = self.federation._link
        self.trial.wait()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Study]]:
    with contextlib.ExitStack() as stack:
        yield lambda **options: Study(tmp_path, stack, **options)


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """All messages that the hub hands on."""
    seen: list[Message] = []
    send = hub_module.Peer.send

    def keep(peer: Any, message: Message) -> bool:
        seen.append(message)
        return send(peer, message)

    monkeypatch.setattr(hub_module.Peer, "send", keep)
    return seen


def readable(messages: list[Message]) -> list[Any]:
    """What the hub can read of the messages that it hands on."""
    found = []
    for message in messages:
        if message.kind in ("ask", "reply"):
            with contextlib.suppress(MessageError):
                found.append(unpack(message.body))
    return found


@pytest.mark.parametrize("sealed", [False, True])
def test_what_the_hub_can_read(begin: Callable[..., Study], handed_on: list[Message], sealed: bool) -> None:
    study = begin(sealed=sealed)
    assert "age" in str(study.federation.describe())
    trees = readable(handed_on)
    names = b"age" in b"".join(message.body for message in handed_on)
    assert (len(trees) > 0, names) == (not sealed, not sealed)


def test_masked_models_through_a_hub(begin: Callable[..., Study], handed_on: list[Message]) -> None:
    study = begin(sealed=True, level="sums")
    model = fpdfp.FederatedGLM("binomial").fit(study.federation, "died ~ age + C(stage)")
    x, errors = pooled(study.tables, "died", "binomial")
    assert np.array(list(model.coefficients_.values())) == pytest.approx(np.roll(x, 1), rel=1e-10)
    assert model.table().frame()["standard error"].to_numpy() == pytest.approx(np.roll(errors, 1), rel=1e-9)
    assert readable(handed_on) == []
    assert model.result_.wire is not None
    assert (study.federation.budget()["left"] == 99).all()


def test_a_private_model_through_a_hub(begin: Callable[..., Study]) -> None:
    study = begin(sealed=True, level="private", rows=3000, epsilon=4.0, radius=2.0)
    model = private_model(study.federation, "died ~ age", rows=9000, epsilon=3.0, ranges=RANGES)
    assert model.fitted_.privacy.epsilon == pytest.approx(3.0, abs=1e-6)
    budget = study.federation.budget()
    assert budget["spent"].tolist() == pytest.approx([3.0] * 3, abs=1e-6)
    with pytest.raises(RefusalError, match="privacy budget of this site is spent"):
        private_model(study.federation, "died ~ C(stage)", rows=9000, epsilon=3.0)


def test_the_ledger_of_a_site_is_shown_and_an_account_is_opened(tmp_path: Path) -> None:
    folder, tables = tmp_path / "north", patients(50)
    Secret.of(folder)
    columns = "".join(f"[columns_of_the_table.{name}]\ntype = '{one['type']}'\n" for name, one in COLUMNS.items())
    (folder / "policy.toml").write_text("level = 'private'\nepsilon = 2.0\n" + columns)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    tables["north"].to_csv(first, index=False)
    tables["north"].iloc[1:].to_csv(second, index=False)
    assert command("budget", str(folder)) == []
    assert len(command("budget", str(folder), "--data", str(first))) == 1
    lines = command("budget", str(folder), "--data", str(second))
    assert len(lines) == 2
    assert all("epsilon 0 of 2 spent in 0 releases, 2 left" in line for line in lines)


def change(monkeypatch: pytest.MonkeyPatch, kind: str, alter: Callable[[Message], Message]) -> None:
    """Have the hub change what it hands on."""
    send = hub_module.Peer.send

    def altered(peer: Any, message: Message) -> bool:
        return send(peer, alter(message) if message.kind == kind else message)

    monkeypatch.setattr(hub_module.Peer, "send", altered)


def flip(message: Message) -> Message:
    return message._replace(body=message.body[:-1] + bytes([message.body[-1] ^ 1]))


@pytest.mark.parametrize("kind", ["ask", "reply"])
def test_a_hub_that_changes_messages_is_noticed(
    begin: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    study = begin(sealed=True)
    study.federation.describe()
    change(monkeypatch, kind, flip)
    with pytest.raises(MessageError, match=r"changed on its way|not sealed"):
        study.federation.describe()


def test_a_hub_cannot_ask_in_an_analysts_name(begin: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts a question of its own in the place of the analyst's; a site without the analyst's key answers it."""
    own = pack({"kind": "schema", "question": {"columns": None}, "run": "mine", "sequence": 1, "site": "north"})
    study = begin(sealed=True)
    change(monkeypatch, "ask", lambda message: message._replace(body=own))
    with pytest.raises(MessageError, match=r"does not answer a greeting|not sealed"):
        study.federation.describe()


def test_a_hub_cannot_replay_a_reply(begin: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
    study, old = begin(sealed=True), list[bytes]()

    def replay(message: Message) -> Message:
        if message.body[:1] == b"S":
            old.append(message.body)
            return message._replace(body=old[0])
        return message

    study.federation.describe()
    change(monkeypatch, "reply", replay)
    with pytest.raises(MessageError, match="changed on its way"):
        study.federation.describe()
    assert len(old) >= 3


def test_an_unsealed_analyst_is_refused_by_a_site_that_knows_analysts(begin: Callable[..., Study]) -> None:
    study = begin(sealed=True)
    study.trial.link.sealer = None
    with pytest.raises(MessageError):
        study.federation.describe()
