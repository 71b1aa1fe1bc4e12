"""What a site must remember cannot be put back unnoticed: its log, its budget, and the numbers of requests."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from fpdfp.errors import MessageError, RefusalError
from fpdfp.federation import commands, rollback
from fpdfp.federation.analyst import Asking
from fpdfp.federation.audit import HEAD, LOG, Audit
from fpdfp.federation.connection import Connection
from fpdfp.federation.rollback import AHEAD, FILE, Anchor, Anchors, ReplayGuard, read_anchor
from tests.federation_trial import AgentThread, HubThread, Trial, TrialDesk

DAY = 24 * 3600 * 10**9


class LoggingDesk(TrialDesk):
    """Answers as a desk does that writes a log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self.audit: Any = Audit(folder)

    def answer(self, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
        reply = super().answer(asked, asker)
        self.audit.append(
            asker=asker.name, role=asker.role, fingerprint=asker.fingerprint, study=asker.study, run=asked["run"],
            kind="echo", asked="", left=1, outcome="answered", why="", spent={},
        )  # fmt: skip
        return reply


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors come with every answer, and are written at once."""
    for module in ("rollback", "agent", "hub"):
        monkeypatch.setattr(f"fpdfp.federation.{module}.EVERY", -1.0)


class Site:
    """A site with a log, which is started and stopped, and whose folder is copied and put back."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.folder = trial, trial.join("north").folder

    @contextlib.contextmanager
    def running(self) -> Iterator[AgentThread]:
        desk = LoggingDesk(self.folder)
        try:
            with AgentThread(self.trial.join("north"), desk) as agent:
                yield agent
        finally:
            desk.audit.close()

    def ask(self, times: int = 1, run: str = "r") -> Any:
        for _ in range(times):
            came = self.trial.asking.ask(run, {"north": {"kind": "echo", "body": 1}}, 5.0)["north"]
        return came

    def answers(self, times: int, run: str = "r") -> None:
        with self.running():
            self.trial.wait(["north"])
            assert self.ask(times, run)["reply"] == {"body": 1}
        self.trial.wait([])

    def refuses(self) -> str:
        """Start it; return why it ends."""
        with self.running() as agent:
            agent.thread.join(10.0)
            assert not agent.thread.is_alive()
            return str(agent.error)


@pytest.fixture
def site(tmp_path: Path, often: None) -> Iterator[Site]:
    trial = Trial(tmp_path, ["north"])
    with HubThread(trial.study), contextlib.closing(trial.link):
        yield Site(trial)


def restore(site: Site, copy: Path) -> None:
    shutil.rmtree(site.folder)
    shutil.copytree(copy, site.folder)


def test_a_folder_that_is_put_back_is_refused_and_named_until_the_coordinator_accepts_it(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Log, budget and numbers of requests together: they agree with each other, and only others can notice."""
    site.answers(3)
    shutil.copytree(site.folder, tmp_path / "copy")
    site.answers(4)
    restore(site, tmp_path / "copy")
    said = site.refuses()
    assert "north cannot take part: its log has 3 lines, and had 7: an older one was put in its place" in said
    assert "fpdfp federation forget STUDY north" in said
    assert "its log has 3 lines" in caplog.text
    assert CliRunner().invoke(commands.app, ["forget", str(site.trial.study.folder), "north"]).exit_code == 0
    site.answers(1)
    assert "the coordinator has accepted that the log of north begins anew" in caplog.text


def test_an_older_log_that_has_grown_again_is_noticed_by_the_site_itself(site: Site, tmp_path: Path) -> None:
    """It has more lines than the hub remembers, but not the one."""
    site.answers(2)
    shutil.copytree(site.folder, tmp_path / "copy")
    site.answers(3)
    restore(site, tmp_path / "copy")
    with contextlib.closing(LoggingDesk(site.folder).audit) as log:
        for _ in range(9):
            log.append(asker="ann", role="analyst", fingerprint="ab", study="s", run="r", kind="x", asked="", left=0,
                       outcome="answered", why="", spent={})  # fmt: skip
    with numbers_of(site.folder) as numbers:
        numbers.check("r", 1, "ann")
    for _ in range(2):  # that it has tried does not make the hub forget
        assert "the log of this site has no line 5 with the hash" in site.refuses()


@contextlib.contextmanager
def numbers_of(folder: Path) -> Iterator[ReplayGuard]:
    guard = ReplayGuard(folder)
    try:
        yield guard
    finally:
        guard.close()


def test_a_log_that_was_removed_is_noticed(site: Site) -> None:
    site.answers(2)
    for name in (LOG, HEAD):
        (site.folder / name).unlink()
    assert "its log has 0 lines, and had 2" in site.refuses()


def test_a_hub_remembers_when_it_is_started_again(tmp_path: Path, often: None) -> None:
    trial = Trial(tmp_path, ["north"])
    with contextlib.closing(trial.link):
        with HubThread(trial.study):
            site = Site(trial)
            site.answers(3)
        for name in (LOG, HEAD):
            (site.folder / name).unlink()
        with HubThread(trial.study):
            assert "its log has 0 lines, and had 3" in site.refuses()


def test_an_analyst_notices_where_the_hub_does_not(tmp_path: Path, often: None) -> None:
    """The hub was put back as well, or helps the site: each analyst remembers by itself, in its own folder."""
    trial = Trial(tmp_path, ["north"])
    with contextlib.closing(trial.link):
        with HubThread(trial.study):
            site = Site(trial)
            site.answers(3)
        (trial.study.folder / rollback.ANCHORS).unlink()
        for name in (LOG, HEAD):
            (site.folder / name).unlink()
        trial.link.close()
        trial.link = trial.asking.link = Connection(trial.study.analyst)
        with HubThread(trial.study), site.running():
            trial.wait(["north"])
            came = site.ask()
        assert isinstance(came, RefusalError)
        assert str(came) in (
            "its log has 0 lines, and had 3: an older one was put in its place",
            "its log has 1 lines, and had 3: an older one was put in its place",
        )


def test_a_site_that_says_nothing_of_its_log_any_more_is_refused(site: Site) -> None:
    site.answers(1)
    with AgentThread(site.trial.join("north"), TrialDesk(None)) as agent:
        agent.thread.join(10.0)
        assert "it does not say how long its log is, and has said so before" in str(agent.error)


def test_a_new_invitation_begins_a_new_log(site: Site, tmp_path: Path) -> None:
    site.answers(2)
    site.trial.study.invite("north", "site")
    shutil.rmtree(site.folder)
    site.answers(1)


@pytest.mark.parametrize("how", ["removed", "older"])
def test_numbers_of_requests_that_were_put_back_are_noticed(site: Site, tmp_path: Path, how: str) -> None:
    site.answers(1, "first")
    kept = (site.folder / FILE).read_bytes()
    site.answers(1, "second")
    if how == "removed":
        (site.folder / FILE).unlink()
    else:
        (site.folder / FILE).write_bytes(kept)
    with pytest.raises(RuntimeError, match=r"seen\.fpdfp does not know the run second of coordinator"), site.running():
        pass


@pytest.mark.parametrize("said", [None, [], [1], [1, "x"], [-1, "0" * 16], [1 << 60, "0" * 16], ["1", "0" * 16], "x",
                                  [True, "0" * 16], [1, "0" * 17]])  # fmt: skip
def test_what_is_no_anchor_is_none(said: Any) -> None:
    assert read_anchor(said) is None


def test_anchors_are_kept_in_a_file_and_another_format_is_refused_by_name(tmp_path: Path) -> None:
    first = Anchors(tmp_path)
    assert first.check("north", Anchor(5, "a" * 16), "era") is None
    first.save()
    again = Anchors(tmp_path)
    assert again.check("north", Anchor(5, "a" * 16), "era") is None
    assert again.check("north", Anchor(5, "b" * 16), "era") is not None
    assert again.check("north", Anchor(4, "a" * 16), "era") is not None
    assert again.check("north", None, "era") is not None
    assert again.check("north", Anchor(1, "b" * 16), "another era") is None
    (tmp_path / rollback.ANCHORS).write_text('{"format": 7}')
    with pytest.raises(ValueError, match=r"anchors\.json has format 7"):
        Anchors(tmp_path)


class TestBlockedRuns:
    def test_a_number_far_ahead_is_refused(self) -> None:
        guard = ReplayGuard()
        for number in (time.time_ns() + AHEAD + DAY, (1 << 63) - 1):
            with pytest.raises(MessageError, match=r"days ahead of this site's clock"):
                guard.check("run", number, "ann")
        guard.check("run", time.time_ns(), "ann")

    def test_nobody_can_block_the_run_of_another(self) -> None:
        guard = ReplayGuard()
        guard.check("run", time.time_ns() + AHEAD - DAY, "mallory")
        guard.check("run", 7, "ann")
        with pytest.raises(MessageError, match="older than one that was answered"):
            guard.check("run", 7, "mallory")

    def test_a_run_goes_on_after_the_largest_number(self, site: Site) -> None:
        """An analyst that has sent it itself, by a clock that was wrong, goes on from there."""
        with site.running():
            site.trial.wait(["north"])
            site.trial.asking._sequence = time.time_ns() + AHEAD - DAY
            assert site.ask()["reply"]
            site.trial.asking = Asking(site.trial.link)  # another process, by a clock that is right
            assert isinstance(site.ask(), MessageError)
            assert site.ask()["reply"]


@pytest.mark.parametrize("contents", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "sites": {"north": [1]}}'])
def test_damaged_anchors_are_named(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / rollback.ANCHORS).write_bytes(contents)
    with pytest.raises(ValueError, match=r"anchors\.json cannot be read"):
        Anchors(tmp_path)
