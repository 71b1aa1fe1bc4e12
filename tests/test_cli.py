"""The command line as a process: Ctrl-C, exit codes, what goes to which stream, what is loaded."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fpdfp.cli import app
from fpdfp.errors import RunFolderError
from fpdfp.runs import load
from tests.test_declarative import SMALL

FPDFP = [sys.executable, "-c", "from fpdfp.cli import main; main()"]
LONG = (
    SMALL.replace("rounds = 12", "rounds = 2000\nevaluate_every = 100")
    + '[method]\nkind = "FPDFP"\n[compressor]\nkind = "QSGD"\nlevels = 3\n'
)


def process(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*FPDFP, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def rounds_of(folder: Path) -> int:
    """The rounds that a run has told of so far."""
    try:
        return int(load(folder).info["rounds"])
    except RunFolderError:
        return 0


def test_ctrl_c_and_resume_give_the_bits_of_a_run_that_was_not_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(LONG)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    started = subprocess.Popen(
        [*FPDFP, "run", str(file), "--output", str(parts), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        while rounds_of(parts / "seed-0") < 200 and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        started.send_signal(signal.SIGINT)
        output, errors = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 130, errors
    assert "Traceback" not in errors
    assert "--resume goes on" in errors
    assert json.loads(output)["status"] == "interrupted"
    interrupted = load(parts / "seed-0")
    assert interrupted.info["status"] == "interrupted"
    assert 200 <= interrupted.info["rounds"] < 2000
    for folder, options in ((parts, ["--resume"]), (whole, [])):
        done = CliRunner().invoke(app, ["run", str(file), "--output", str(folder), "--quiet", *options])
        assert done.exit_code == 0, done.output
    for name in ("final.npz", "best.npz"):
        assert (parts / "seed-0" / name).read_bytes() == (whole / "seed-0" / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 12", "roundz = 12", "line 14: [run] has no key 'roundz'; did you mean 'rounds'?"),
        ("rounds = 12", 'rounds = "12"', "line 14: run.rounds must be a whole number, got '12'"),
        ('name = "breast-cancer"', 'file = "no.csv"', "line 5: data.file must be a file that is there"),
    ],
)
def test_a_mistake_is_one_paragraph_and_exit_code_2(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SMALL.replace(old, new, 1))
    done = process("run", file, "--output", tmp_path / "out", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_one_paragraph_and_leaves_the_old_files(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SMALL)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2200, resource.RLIM_INFINITY))

    done = process("run", file, "--output", tmp_path / "out", preexec_fn=small_files)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "could not be written" in done.stderr
    assert "intact" in done.stderr
    assert not list((tmp_path / "out").rglob("*.tmp"))
    again = CliRunner().invoke(app, ["run", str(file), "--output", str(tmp_path / "out"), "--resume", "--quiet"])
    assert again.exit_code == 0, again.output


def test_json_is_all_that_goes_to_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(SMALL)
    done = process("run", file, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == "done"
    assert document["folder"] == os.path.join("runs", "small")  # noqa: PTH118 - as it is printed
    assert (tmp_path / document["runs"][0]["folder"] / "run.json").is_file()


def test_help_loads_neither_numba_nor_scipy() -> None:
    program = """
import sys
sys.argv = ["fpdfp", "--help"]
from fpdfp.cli import main
try:
    main()
except SystemExit:
    pass
heavy = ("numba", "scipy", "sklearn", "matplotlib", "ray", "pandas")
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "sweep" in done.stdout


def commands() -> list[list[str]]:
    """All commands, those of groups with the group's name before them."""
    top: Any = typer.main.get_command(app)
    found = []
    for name, command in top.commands.items():
        found += [[name, inner] for inner in command.commands] if hasattr(command, "commands") else [[name]]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"], terminal_width=200)
    assert done.exit_code == 0
    assert f"Example: fpdfp {' '.join(command)}" in " ".join(done.output.split())


WAITING = """
import sys, threading, types
sys.modules["grpc"] = types.ModuleType("grpc")
threading.Thread(target=threading.Event().wait).start()
sys.argv = ["fpdfp", *sys.argv[1:]]
from fpdfp.cli import main
main()
"""


@pytest.mark.parametrize(("arguments", "status"), [(["federation", "policy"], 0), (["federation", "no"], 2)])
def test_a_command_that_has_used_grpc_ends_whatever_its_threads_do(arguments: list[str], status: int) -> None:
    """Once the status of a study was printed, and the process waited for a thread of gRPC for 300 s."""
    done = subprocess.run(
        [sys.executable, "-c", WAITING, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status
    assert ("level = " in done.stdout) if status == 0 else done.stderr


def test_the_end_of_a_connection_is_not_waited_for_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel of gRPC waits for the end of its calls, which may never be delivered."""
    import types

    from fpdfp.federation import connection
    from fpdfp.federation.framing import Inbox

    monkeypatch.setattr(connection, "LAST_WORDS", 0.1)
    stream = connection.Stream.__new__(connection.Stream)
    stream._unsent = Inbox()
    stream._channel = types.SimpleNamespace(close=lambda: time.sleep(1000))
    started = time.monotonic()
    stream.close()
    assert time.monotonic() - started < 10
