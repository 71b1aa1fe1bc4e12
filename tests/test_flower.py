"""Flower carries the questions: the same site, guard and log, and the bits of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.federation import audit
from fpdfp.federation.agent import open_guard
from fpdfp.federation.cohort import LocalCohort
from fpdfp.federation.flower import SOCKET, FlowerFederation, GridLink, SiteServer, client_app, pass_on
from fpdfp.federation.questions import SchemaQuestion

flwr = pytest.importorskip("flwr")
FORMULA = "died ~ age + dose"


def patients(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, dose = rng.integers(30, 80, rows).astype(float), rng.normal(3.0, 1.0, rows).round(2)
    died = (0.05 * (age - 55) - 0.5 * (dose - 3) + rng.logistic(size=rows) > 0).astype(int)
    hospital = np.array(["east", "north", "south"])[np.arange(rows) % 3]
    return pd.DataFrame({"hospital": hospital, "age": age, "dose": dose, "died": died})


class Grid:
    """Flower's grid, whose nodes run their app in this process."""

    def __init__(self, folders: dict[int, Path]) -> None:
        self.folders, self.app = folders, client_app()
        self.messages = 0
        #: Nodes whose replies do not come.
        self.absent: set[int] = set()

    def get_node_ids(self) -> Iterable[int]:
        return list(self.folders)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        for message in messages:
            self.messages += 1
            node = message.metadata.dst_node_id
            if node not in self.absent:
                reply = self.app(message, SimpleNamespace(node_config={"folder": str(self.folders[node])}))
                yield SimpleNamespace(
                    metadata=SimpleNamespace(src_node_id=node), has_error=lambda: False, content=reply.content
                )


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Grid]]:
    task = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(task, f"_{name}", 1)  # as the process of a ServerApp has them
    servers: list[tuple[SiteServer, threading.Thread, Any]] = []

    def start(policy: str = "") -> Grid:
        folders = {}
        for node, (name, part) in enumerate(patients().groupby("hospital"), 1):
            folder = folders[node] = tmp_path / str(name)
            folder.mkdir(mode=0o700)
            part.drop(columns="hospital").to_csv(folder / "data.csv", index=False)
            given = None
            if policy:
                given = folder / "policy.toml"
                given.write_text(policy)
            guard = open_guard(str(name), folder, folder / "data.csv", given)
            server = SiteServer(str(name), "heart", guard, folder)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            servers.append((server, thread, guard))
            while not (folder / SOCKET).exists():
                thread.join(0.01)
        return Grid(folders)

    yield start
    for server, thread, guard in servers:
        server.stop()
        thread.join(10)
        guard.close()


def test_the_bits_of_one_process(sites: Callable[..., Grid], tmp_path: Path) -> None:
    grid = sites()
    federation = FlowerFederation(grid, tmp_path / "analyst")
    assert federation.names == ["east", "north", "south"]
    there = fpdfp.FederatedGLM("binomial").fit(federation, FORMULA)
    here = fpdfp.FederatedGLM("binomial").fit(patients(), FORMULA, groups="hospital")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.result_.traffic == here.result_.traffic
    assert str(there.summary()).splitlines()[-3:] == str(here.summary()).splitlines()[-3:]
    assert [site.name for site in federation.status().sites if site.online] == federation.names
    # Three hellos, each to all nodes; otherwise every message is one of an exchange.
    assert federation.usage.exchanges * 3 + 9 == grid.messages


def test_rounds_that_are_many_have_the_same_bits(sites: Callable[..., Grid], tmp_path: Path) -> None:
    federation = FlowerFederation(sites(), tmp_path / "analyst")
    model = fpdfp.FederatedLinearRegression(
        penalty=fpdfp.L1(0.01), method=fpdfp.ShiftedPDFP(), standardize=True, run=fpdfp.RunOptions(rounds=200),
    )  # fmt: skip
    there = model.fit(federation, "dose ~ age + died")
    kept = there.coef_.copy(), there.result_.traffic
    here = model.fit(patients(), "dose ~ age + died", groups="hospital")
    np.testing.assert_array_equal(kept[0], here.coef_)
    assert kept[1] == here.result_.traffic


def test_a_site_refuses_and_logs(sites: Callable[..., Grid], tmp_path: Path) -> None:
    grid = sites('kinds = ["schema", "fits"]\nsingle_sites = false\n')
    federation = FlowerFederation(grid, tmp_path / "analyst")
    assert len(federation.ask_each(SchemaQuestion()).answers) == 3
    with pytest.raises(RefusalError, match="does not answer"):
        fpdfp.survival_curves(federation, "Surv(age, died) ~ 1", times=[40.0, 60.0])
    lines = list(audit.entries(tmp_path / "north"))
    assert {line.asker for line in lines} == {"flower"}
    assert {line.outcome for line in lines} == {"answered", "refused"}


def test_a_request_that_comes_again_later_is_refused(sites: Callable[..., Grid], tmp_path: Path) -> None:
    grid = sites()
    link = GridLink(grid)
    assert [site.name for site in link.status().sites] == ["east", "north", "south"]

    def ask(sequence: int) -> Any:
        tree = {"kind": "schema", "question": {"columns": None}, "run": "r", "sequence": sequence, "site": "north"}
        return unpack(link.exchange({"north": pack(tree)}, 10.0)["north"])

    assert "reply" in ask(5)
    assert "older" in ask(4)["error"]
    assert (
        "is for 'north', this is east"
        in unpack(pass_on(tmp_path / "east", pack({"run": "r", "sequence": 1, "site": "north"})))["error"]
    )


def test_nodes_that_do_not_answer_are_absent(sites: Callable[..., Grid], tmp_path: Path) -> None:
    grid = sites()
    federation = FlowerFederation(grid, tmp_path / "analyst", patience=0.5, deadline=0.2)
    grid.absent = {2}
    with pytest.raises(Exception, match="north: Flower has brought no reply"):
        federation.ask_each(SchemaQuestion())
    with pytest.raises(ArgumentError, match="different ones of east, south"):
        FlowerFederation(grid, tmp_path / "analyst", sites=["north"])
    local = LocalCohort(patients(), "hospital").ask_each(SchemaQuestion())
    assert len(local.answers) == 3


def test_the_socket_is_for_its_owner(sites: Callable[..., Grid], tmp_path: Path) -> None:
    sites()
    assert (tmp_path / "north" / SOCKET).stat().st_mode & 0o077 == 0
