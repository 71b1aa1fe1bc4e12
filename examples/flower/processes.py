"""Processes that are started, watched and ended whole: with everything that they have started in their turn.

Flower's SuperLink and SuperNode start helpers which start the apps, partly in sessions of their own, so that neither
the parent's id nor the process group finds them all. The environment does: every process inherits it, and
a mark in it says to whom the process belongs. Reading others' environments is Linux's ``/proc``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Found(NamedTuple):
    """A running process: its id, its parent's, and its command line."""

    pid: int
    parent: int
    command: tuple[str, ...]

    @property
    def program(self) -> str:
        """The name of the program; of the script, where an interpreter runs one."""
        for part in self.command[:2]:
            name = Path(part).name
            if not name.startswith("python"):
                return name
        return self.command[0] if self.command else ""


class Child:
    """One process that we start, log and end.

    Parameters
    ----------
    command
        The command line.
    log
        The file that takes what it prints; a process that is started again adds to it.
    environment
        Its whole environment.
    mark
        A variable and value in ``environment`` by which the process and its descendants are found.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], mark: tuple[str, str]
    ) -> None:
        self.command = tuple(command)
        self.log = log
        self.environment = {**environment, mark[0]: mark[1]}
        self.mark = mark
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; nothing happens where it runs."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal reaches us, and we end the rest in order.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
                umask=0o077,
            )

    @property
    def pid(self) -> int | None:
        """The process's id, None where it has not been started."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the process itself runs; helpers may outlive it for a moment."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How the process ended, None while it runs or before it has been started."""
        return self._process.poll() if self._process is not None else None

    def family(self) -> list[Found]:
        """The process and all that descend from it, as far as they run now."""
        return find_marked(*self.mark)

    def kill(self, *, family: bool = True) -> None:
        """End the process with SIGKILL, as a power cut would: with its descendants, or alone."""
        if family:
            kill_marked(*self.mark)
        elif self.running and self._process is not None:
            self._process.kill()
        self._wait(10.0)

    def stop(self, patience: float = 10.0) -> None:
        """Ask the process to end, as systemd does, and kill what is left of it when patience is over."""
        if self.running and self._process is not None:
            self._process.terminate()
            self._wait(patience)
        deadline = time.monotonic() + 0.5
        while self.family() and time.monotonic() < deadline:
            time.sleep(0.05)
        kill_marked(*self.mark)
        self._wait(10.0)

    def _wait(self, timeout: float) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)

    def text(self) -> str:
        """All that the process has printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def find_marked(variable: str, value: str) -> list[Found]:
    """The running processes whose environment began with the variable at that value, by id."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile, or is another user's
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state in "ZX":
                continue
            command = tuple(part.decode(errors="replace") for part in (entry / "cmdline").read_bytes().split(b"\0"))
            found.append(Found(int(entry.name), int(parent), command[:-1]))
    return sorted(found)


def kill_marked(variable: str, value: str, patience: float = 5.0) -> None:
    """Kill every process that is marked so, and those that they start meanwhile, until there are none."""
    deadline = time.monotonic() + patience
    while found := find_marked(variable, value):
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes do not end: {', '.join(str(process.pid) for process in found)}")
        time.sleep(0.02)
