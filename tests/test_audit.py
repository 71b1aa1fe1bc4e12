"""A site's log and budget: edits, deletions and cuts are noticed, and budgets survive restarts."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fpdfp import _files as files
from fpdfp.errors import Refusal
from fpdfp.federation import audit
from fpdfp.federation.audit import HEAD, LOG, Audit, verify
from fpdfp.federation.budget import AHEAD, MODELS, POINTS, RUNS, Budget
from fpdfp.federation.policy import Policy

FIELDS: dict[str, Any] = {
    "asker": "ann", "role": "analyst", "fingerprint": "ab", "study": "s", "run": "r", "kind": "request",
    "asked": "losses at a point", "left": 10, "outcome": "answered", "why": "", "spent": {"runs": 1},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = Audit(tmp_path)
    for number in range(5):
        log.append(**FIELDS | {"left": number})
    log.close()
    return tmp_path


def lines(folder: Path) -> list[bytes]:
    return (folder / LOG).read_bytes().splitlines(keepends=True)


def test_a_log_that_is_whole(folder: Path) -> None:
    verdict = verify(folder)
    assert (verdict.entries, verdict.faults) == (5, ())
    assert [entry.left for entry in audit.entries(folder)] == [0, 1, 2, 3, 4]
    assert "ann (analyst, key ab)  losses at a point  answered  4 bytes left" in str(audit.last_entry(folder))
    assert [(folder / name).stat().st_mode & 0o777 for name in (LOG, HEAD)] == [0o600, 0o600]
    log = Audit(folder)
    assert log.append(**FIELDS).number == 6
    log.close()
    assert verify(folder, verdict.hash).faults == ()
    assert verify(folder / "nothing").entries == 0


def edit(folder: Path, where: int, name: str, value: Any) -> None:
    changed = lines(folder)
    entry = json.loads(changed[where]) | {name: value}
    changed[where] = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
    (folder / LOG).write_bytes(b"".join(changed))


@pytest.mark.parametrize(
    ("name", "value"), [("left", 99), ("why", "no"), ("outcome", "refused"), ("spent", {}), ("time", "2020-01-01")]
)
def test_a_changed_line_is_noticed(name: str, value: Any, folder: Path) -> None:
    edit(folder, 2, name, value)
    assert verify(folder).faults == ("line 3 was changed",)
    with pytest.raises(RuntimeError, match="the log of this site is damaged"):
        Audit(folder)


@pytest.mark.parametrize("where", [0, 2, 3])
def test_a_removed_line_is_noticed(where: int, folder: Path) -> None:
    kept = lines(folder)
    del kept[where]
    (folder / LOG).write_bytes(b"".join(kept))
    assert "does not follow" in verify(folder).faults[0]


def test_a_cut_is_noticed(folder: Path) -> None:
    (folder / LOG).write_bytes(b"".join(lines(folder)[:3]))
    assert verify(folder).faults == ("there are 3 lines, and there were 5: the end was cut off",)
    (folder / LOG).write_bytes(b"".join(lines(folder))[:-7])
    assert "cut off" in verify(folder).faults[0]
    (folder / LOG).unlink()
    assert "the end was cut off" in verify(folder).faults[0]


def test_lines_are_forced_to_the_disk_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where that fails, nothing is written that cannot be forced to the disk at once."""
    monkeypatch.setattr(audit, "EVERY", 0.02)
    monkeypatch.setattr(audit, "HEAD_EVERY", 0.0)
    written, real, full = threading.Event(), files.write_whole, [False]

    def write(*given: Any, **options: Any) -> None:
        written.set()
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*given, **options)

    monkeypatch.setattr("fpdfp.federation.audit.files.write_whole", write)
    site = Audit(tmp_path)
    for full[0] in (False, True):
        written.clear()
        site.append(**FIELDS)
        assert written.wait(5)
    until = time.monotonic() + 5
    while not caplog.messages and time.monotonic() < until:
        time.sleep(0.01)
    assert caplog.messages == ["the log of this site cannot be forced to the disk: [Errno 28] No space left on device"]
    assert json.loads((tmp_path / HEAD).read_bytes())["number"] == 1
    with pytest.raises(OSError, match="No space left"):
        site.append(**FIELDS)
    full[0] = False
    site.append(**FIELDS)
    assert json.loads((tmp_path / HEAD).read_bytes())["number"] == 4
    site.close()
    assert verify(tmp_path).faults == ()


def test_a_head_that_is_gone_or_wrong_is_noticed(folder: Path) -> None:
    (folder / HEAD).write_text('{"number": 5, "hash": "ff"}')
    assert verify(folder).faults == ("line 5 is not the one that was written last",)
    (folder / HEAD).write_text("{")
    assert verify(folder).faults == ("the file audit.head cannot be read",)
    (folder / HEAD).unlink()
    assert verify(folder).faults == ("the file audit.head is missing",)


def test_a_log_that_was_written_anew_is_noticed_by_a_hash_that_was_noted(folder: Path) -> None:
    noted = verify(folder).hash
    for name in (LOG, HEAD):
        (folder / name).unlink()
    log = Audit(folder)
    log.append(**FIELDS)
    log.close()
    assert verify(folder).faults == ()
    assert "was written anew" in verify(folder, noted).faults[0]


def test_a_power_cut_in_a_line(folder: Path) -> None:
    with (folder / LOG).open("ab") as file:
        file.write(b'{"number": 6, "ti')
    log = Audit(folder)
    assert log.append(**FIELDS).number == 6
    log.close()
    assert verify(folder).faults == ()


def test_one_process_writes(folder: Path) -> None:
    log = Audit(folder)
    with pytest.raises(RuntimeError, match="another process answers for this site already"):
        Audit(folder)
    log.close()
    Audit(folder).close()


class TestBudget:
    def test_limits(self, tmp_path: Path) -> None:
        budget = Budget(tmp_path, Policy(analyses=3))
        assert [budget.begin(name, "m") for name in "aabc"] == [True, False, True, True]
        with pytest.raises(Refusal, match="the 3 analyses that it allows"):
            budget.begin("d")
        with pytest.raises(Refusal, match="the 3 analyses that it allows"):
            budget.spend_points("a", POINTS)
        budget.spend_points("a", POINTS - 1)
        assert [budget.begin("a", f"{k}") for k in range(MODELS - 1)] == [False] * (MODELS - 1)
        with pytest.raises(Refusal, match="the 3 analyses that it allows"):
            budget.begin("a", "one more")

    def test_it_survives_restarts_and_crashes(self, tmp_path: Path) -> None:
        budget = Budget(tmp_path, Policy())
        budget.begin("a", "m")
        for _ in range(AHEAD + 5):
            budget.spend_points("a", 1)
        assert Budget(tmp_path, Policy()).spent.points["a"] >= AHEAD + 5  # a crash costs budget, and gives none back
        budget.divide(100, "seed 1", 5)
        budget.count_refusal()
        budget.write(ahead=False)
        assert Budget(tmp_path, Policy()).spent == budget.spent
        assert not Budget(tmp_path, Policy()).begin("a", "m")

    def test_an_older_one_in_its_place_is_noticed(self, tmp_path: Path) -> None:
        budget = Budget(tmp_path, Policy())
        budget.write(ahead=False)
        old = budget.path.read_bytes()
        budget.begin("a")
        logged = budget.spent.counts()
        Budget(tmp_path, Policy(), logged)
        budget.path.write_bytes(old)
        with pytest.raises(RuntimeError, match="fewer analyses than the log"):
            Budget(tmp_path, Policy(), logged)
        budget.path.unlink()
        with pytest.raises(RuntimeError, match="fewer analyses than the log"):
            Budget(tmp_path, Policy(), logged)

    def test_runs_of_other_data(self, tmp_path: Path) -> None:
        budget = Budget(tmp_path, Policy())
        budget.compare_data("run", "first")
        with pytest.raises(Refusal, match="have changed since this run began"):
            budget.compare_data("run", "second")
        for k in range(2 * RUNS):
            budget.compare_data(f"{k}", "first")
        assert len(budget.spent.data) == RUNS

    def test_one_that_is_damaged(self, tmp_path: Path) -> None:
        budget = Budget(tmp_path, Policy())
        budget.write()
        contents = bytearray(budget.path.read_bytes())
        contents[10] ^= 1
        budget.path.write_bytes(bytes(contents))
        with pytest.raises(RuntimeError, match="cannot be used: it is cut off or damaged"):
            Budget(tmp_path, Policy())


def test_the_head_follows_the_lines_without_another_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "EVERY", 0.02)
    monkeypatch.setattr(audit, "HEAD_EVERY", 0.3)
    log = Audit(tmp_path)
    for _ in range(3):
        log.append(**FIELDS)
    time.sleep(0.1)
    assert json.loads((tmp_path / HEAD).read_bytes())["number"] == 1  # lines are forced to the disk more often
    until = time.monotonic() + 10
    while json.loads((tmp_path / HEAD).read_bytes())["number"] < 3 and time.monotonic() < until:
        time.sleep(0.02)
    assert json.loads((tmp_path / HEAD).read_bytes())["number"] == 3
    log.close()
