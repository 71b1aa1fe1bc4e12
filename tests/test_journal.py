"""Journals: intact after a crash at any byte, and any change is noticed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpdfp.privacy.journal import START, Journal

RECORDS = [b"", b"one", b"x" * 300, b"last"]


def written(path: Path) -> bytes:
    with Journal(path) as journal:
        for record in RECORDS:
            journal.append(record)
    return path.read_bytes()


def test_a_file_that_is_cut_off_at_any_byte_keeps_every_whole_record(tmp_path: Path) -> None:
    data = written(tmp_path / "whole")
    ends = [len(START)]
    for record in RECORDS:
        ends.append(ends[-1] + 4 + len(record) + 32)
    for length in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        with Journal(path) as journal:
            assert journal.records == RECORDS[: max(sum(end <= length for end in ends) - 1, 0)]
            journal.append(b"more")
            expected = [*journal.records]
        with Journal(path) as journal:
            assert journal.records == expected


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = written(tmp_path / "whole")
    path = tmp_path / "flipped"
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with contextlib.suppress(RuntimeError), Journal(path) as journal:
            # a length that reaches beyond the end looks like a record that was cut off
            assert journal.records == RECORDS[: len(journal.records)]
            assert len(journal.records) < len(RECORDS)


def test_records_cannot_be_exchanged(tmp_path: Path) -> None:
    data = written(tmp_path / "whole")
    first, second = len(START), len(START) + 36
    third = second + 4 + 3 + 32
    path = tmp_path / "exchanged"
    path.write_bytes(data[:first] + data[second:third] + data[first:second] + data[third:])
    with pytest.raises(RuntimeError, match="damaged at byte"):
        Journal(path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "one"), pytest.raises(RuntimeError, match="open in another process"):
        Journal(tmp_path / "one")
    Journal(tmp_path / "one").close()


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    """A process appends and acknowledges; it is killed at once, at ten different moments."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom fpdfp.privacy.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\nn = len(journal.records)\n"
        "while True:\n    journal.append(b'%d ' % n + b'x' * 2000)\n    print(n, flush=True)\n    n += 1\n"
    )
    path, before = tmp_path / "killed", 0
    for attempt in range(10):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.003 * attempt)
            os.kill(process.pid, signal.SIGKILL)
            lines = process.stdout.read().split()
        with Journal(path) as journal:
            assert [int(record.split()[0]) for record in journal.records] == list(range(len(journal.records)))
            acknowledged = int(lines[-1]) + 1 if lines else before + 1
            assert len(journal.records) >= acknowledged
            before = len(journal.records)


def test_an_error_leaves_the_journal_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "full") as journal:
        journal.append(b"one")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                journal.append(b"a long record that is lost")
        assert journal.records == [b"one"]
        journal.append(b"two")
    with Journal(tmp_path / "full") as journal:
        assert journal.records == [b"one", b"two"]


def test_long_records_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "long") as journal, pytest.raises(ValueError, match="at most 1048576 bytes"):
        journal.append(bytes((1 << 20) + 1))
