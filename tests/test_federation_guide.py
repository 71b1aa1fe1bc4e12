"""The guides to a federation: every command in them is run, by real processes, in the order in which people would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("formulaic")

import pandas

import fpdfp
from fpdfp.federation.rehearse import free_port
from tests.pages import DOCS, blocks

PAGES = [DOCS / "federation" / f"{name}.md" for name in ("index", "coordinator", "site", "analyst")]
SITES = ("north", "east", "south")
pytestmark = pytest.mark.slow


def commands() -> list[str]:
    """Return the lines of the guides that call fpdfp."""
    lines = [
        line for page in PAGES for block in blocks(page) if block.language == "sh" for line in block.text.split("\n")
    ]
    return [line for line in lines if line.startswith("fpdfp ")]


class Machine:
    """Runs lines of the guides in a folder, and knows which were run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.done, self.started = (
            folder,
            free_port(),
            set[str](),
            list[subprocess.Popen[bytes]](),
        )

    def words(self, line: str, **other: str) -> tuple[list[str], str | None]:
        assert line in commands(), f"{line!r} is not in the guides"
        self.done.add(line)
        for old, new in {"--host hub.example": f"--host 127.0.0.1 --port {self.port}", **other}.items():
            line = line.replace(old, new)
        line, _, target = line.partition(" > ")
        return [sys.executable, "-m", *shlex.split(line)], target or None

    def run(self, line: str, status: int = 0, folder: str = ".", **other: str) -> str:
        words, target = self.words(line, **other)
        found = subprocess.run(
            words, cwd=self.folder / folder, capture_output=True, text=True, timeout=240, check=False
        )
        assert found.returncode == status, found.stdout + found.stderr
        if target is not None:
            (self.folder / folder / target).write_text(found.stdout)
        return found.stdout + found.stderr

    def start(self, line: str, folder: str = ".", **other: str) -> subprocess.Popen[bytes]:
        words, _ = self.words(line, **other)
        with (self.folder / folder / f"{len(self.started)}.log").open("wb") as log:
            self.started.append(subprocess.Popen(words, cwd=self.folder / folder, stdout=log, stderr=subprocess.STDOUT))
        return self.started[-1]

    def wait(self, text: str, times: int) -> None:
        """Wait until the status of the study has a text so often."""
        until = time.monotonic() + 120
        while True:
            said = self.run("fpdfp federation status study") if self.started else ""
            if said.count(text) == times:
                return
            assert time.monotonic() < until, said
            time.sleep(0.5)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Machine(tmp_path)
    yield made
    for process in made.started:
        process.terminate()
    for process in made.started:
        process.wait(30)


def test_every_command_of_the_guides_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine.folder
    # Everybody, on one machine first.
    machine.run("fpdfp federation example patients.csv")
    (rehearsal,) = [line for line in commands() if " rehearse " in line]
    assert "C(stage, ref='I')[T.IV]" in machine.run(rehearsal)

    # The coordinator.
    machine.run("fpdfp federation new study --sites north east south --host hub.example")
    machine.run("fpdfp federation serve study --unit")
    assert (folder / "study" / "hub.service").exists()
    machine.start("fpdfp federation serve study")
    time.sleep(2)

    # Each site, with its own part of the table and one file to edit.
    table = pandas.read_csv(folder / "patients.csv")
    join = "fpdfp federation join invitation-north.zip --data patients.csv --policy policy.toml"
    for site in SITES:
        (folder / site).mkdir()
        shutil.move(folder / "study" / "invitations" / f"invitation-{site}.zip", folder / site)
        table[table["hospital"] == site].drop(columns="hospital").to_csv(folder / site / "patients.csv", index=False)
        machine.run("fpdfp federation policy > policy.toml", folder=site)
        if site == "south":
            path = folder / site / "policy.toml"
            text, copies = re.subn(r"copies = false", "copies = true", path.read_text())
            assert copies == 1
            path.write_text(text)
        machine.start(join, folder=site, **{"invitation-north": f"invitation-{site}"})
    machine.wait("online since", 3)
    assert "pressure" in machine.run("fpdfp federation describe study")

    # The analyst.
    monkeypatch.chdir(folder)
    (code,) = [
        block for block in re.findall(r"(?:^    .*\n|^\n)+", (DOCS / "federation" / "analyst.md").read_text(), re.M)
        if 'fpdfp.Federation("study")\n' in block and "summary" in block
    ]  # fmt: skip
    names: dict[str, object] = {}
    exec(re.sub(r"^    ", "", code, flags=re.M), names)
    fitted = names["model"]
    assert isinstance(fitted, fpdfp.FederatedLogisticRegression)
    here = fpdfp.FederatedLogisticRegression(fpdfp.Graph(0.01), standardize=True)
    here.fit(table, "died ~ age + C(stage, ref='I') + pressure", groups="hospital")
    assert fitted.coef_.tolist() == here.coef_.tolist()
    assert fitted.intercept_.tolist() == here.intercept_.tolist()
    (run,) = (folder / "study" / "runs").iterdir()
    assert fpdfp.runs.load(run).info["status"] == "converged"
    names["federation"].propose("elderly", "age >= 65")  # type: ignore[attr-defined]
    names["federation"].close()  # type: ignore[attr-defined]
    again = machine.run("fpdfp federation repeat study study/runs/first", **{"runs/first": f"runs/{run.name}"})
    assert "same digits" in again

    # A proposal is shown with its counts, and answered.
    assert "age >= 65" in machine.run("fpdfp federation approve north", folder="north")
    assert "yes" in machine.run("fpdfp federation approve north elderly yes", folder="north")

    # What has left a site.
    assert "a round's work" in machine.run("fpdfp federation log north", folder="north")
    assert "the last with the hash" in machine.run("fpdfp federation verify north", folder="north")
    for line in ("inspect", "release", "refuse"):
        assert "nothing waits" in machine.run(f"fpdfp federation {line} north", folder="north")
    kept = sorted((folder / "south" / "south" / "outbox").glob("*.parcel"))
    assert kept

    # People come and go.
    machine.run("fpdfp federation invite study west")
    machine.run("fpdfp federation analyst study ada")
    shutil.move(folder / "study" / "invitations" / "invitation-ada.zip", folder)
    assert "fpdfp.Federation" in machine.run("fpdfp federation join invitation-ada.zip")
    assert "south" in machine.run("fpdfp federation forget study south")
    machine.run("fpdfp federation remove study south")
    machine.wait("online since", 2)
    machine.started[1].terminate()
    machine.started[1].wait(60)
    machine.run(f"{join} --unit", folder="north")
    assert (folder / "north" / "north" / "site.service").exists()

    assert machine.done == set(commands())
