"""An analysis that has ended is repeated from its run folder, and releases that differ are fine or named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import fpdfp
from fpdfp.errors import ArgumentError
from fpdfp.federation import agent, analyst, commands, keys
from fpdfp.federation.agent import digest_of_data
from fpdfp.federation.analyst import FILE, compare, read_analysis
from fpdfp.federation.audit import LOG, Audit, entries
from fpdfp.federation.connection import SiteStatus, Status
from fpdfp.federation.keys import Identity, Registry, Study
from fpdfp.federation.policy import Policy, template
from fpdfp.federation.rehearse import Rehearsal, split, write_patients
from fpdfp.models.saving import write_parameter


def test_a_digest_of_data_is_salted(tmp_path: Path) -> None:
    for name in ("north", "east"):
        (tmp_path / name).mkdir()
    north = [digest_of_data(tmp_path / "north", data) for data in ("a", "a", "b")]
    assert north[0] == north[1] != north[2]
    assert digest_of_data(tmp_path / "east", "a") != north[0]
    assert (tmp_path / "north" / agent.SALT).stat().st_mode & 0o777 == 0o600


class Fitted:
    """What writes an analysis down: an estimator, and an engine."""

    names = ("north", "east")

    def __init__(self, data: str = "aa", software: str = "0.1.0") -> None:
        self.link = self
        self._site: dict[str, Any] = {"software": software, "data": data}

    def status(self) -> Status:
        return Status("study", "0.1.0", [SiteStatus(name, "joined", True, **self._site) for name in self.names], [])


def written(folder: Path, shift: float = 0.0, **options: Any) -> Path:
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(40, 3)), generator.normal(size=40) + shift
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, np.arange(40) % 2, l2=0.1), fpdfp.penalties.L1(0.01))
    fpdfp.runs.Recorder(folder, problem).solve(fpdfp.FPDFP(), rounds=5, seed=0)
    given = {"penalty": write_parameter(fpdfp.L1(0.1)), "formula": "y ~ x", "missing": "drop"}
    fit = ("formula", "missing")
    analyst.write_analysis(folder, Fitted(**options), "FederatedLinearRegression", given, {}, fit)
    return folder


def test_what_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = written(tmp_path / "a"), written(tmp_path / "b")
    assert compare(first, again) == []
    other = compare(first, written(tmp_path / "c", data="bb", software="0.2.0"))
    assert other == [
        "release at east: 0.1.0, and now 0.2.0", "release at north: 0.1.0, and now 0.2.0",
        "data of east: aa, and now bb", "data of north: aa, and now bb",
    ]  # fmt: skip
    [shifted] = compare(first, written(tmp_path / "d", shift=0.01))
    assert shifted.startswith("coefficients: by up to ")
    monkeypatch.setattr(analyst, "versions", lambda: {"fpdfp": "9.0"})
    assert "release fpdfp: 0.1.0, and now 9.0" in compare(first, written(tmp_path / "e"))


def test_a_folder_that_cannot_be_repeated_is_refused_by_name(tmp_path: Path) -> None:
    folder = written(tmp_path / "a")
    tree = read_analysis(folder)
    assert (tree["fit"], tree["sites"]) == ({"formula": "y ~ x", "missing": "drop"}, ["north", "east"])
    (folder / FILE).write_text(json.dumps({**tree, "format": 2}))
    with pytest.raises(ArgumentError, match=r"analysis\.json has format 2; this release reads format 1"):
        read_analysis(folder)
    (folder / FILE).write_text(json.dumps({**tree, "objects": {"penalty": "Graph()"}}))
    with pytest.raises(ArgumentError, match=r"must give what was an object then: penalty=Graph\(\)"):
        analyst.repeat(folder, None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"analysis\.json is missing"):
        read_analysis(tmp_path)


def from_format(name: str, path: Callable[[Study, Path], Path], read: Callable[[Path], Any]) -> Any:
    return pytest.param(path, read, id=name)


@pytest.mark.parametrize(("path", "read"), [
    from_format("study.toml", lambda study, _: study.folder / "study.toml", lambda path: Study(path.parent)),
    from_format("registry.json", lambda study, _: study.folder / "registry.json", lambda path: Registry(path).members),
    from_format("identity.toml", lambda study, _: study.folder / "analyst" / "identity.toml",
                lambda path: Identity(path.parent)),
])  # fmt: skip
def test_files_of_another_release_are_refused_by_name(tmp_path: Path, path: Any, read: Any) -> None:
    """With the format of this release they are read; of another they are not guessed at."""
    made = Study.create(tmp_path / "study", ["north"])
    file: Path = path(made, tmp_path)
    read(file)
    assert {keys.FORMAT, analyst.FORMAT} == {1}
    for old, new in (("format = 1", "format = 9"), ('"format": 1', '"format": 9')):
        file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=f"{file.name} has format 9; this release reads format 1"):
        read(file)


def test_the_policy_of_another_release_is_read_or_its_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(template())
    Policy.read(path)
    path.write_text(template() + "\n[novelty]\nkey = 1\n")
    with pytest.raises(ValueError, match="novelty"):
        Policy.read(path)


def test_a_log_of_another_release_is_refused_by_line_and_nothing_is_overwritten(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    for _ in range(3):
        log.append(asker="ann", role="analyst", fingerprint="ab", study="s", run="r", kind="x", asked="", left=0,
                   outcome="answered", why="", spent={})  # fmt: skip
    log.close()
    lines = (tmp_path / LOG).read_text().splitlines()
    tree = json.loads(lines[1]) | {"novelty": 1}
    (tmp_path / LOG).write_text("\n".join([lines[0], json.dumps(tree), lines[2]]) + "\n")
    before = (tmp_path / LOG).read_bytes()
    with pytest.raises(ValueError, match="line 2 cannot be read"):
        list(entries(tmp_path))
    with pytest.raises(RuntimeError, match=r"the log of this site is damaged \(line 2 cannot be read\)"):
        Audit(tmp_path)
    assert (tmp_path / LOG).read_bytes() == before


@pytest.mark.slow
def test_an_analysis_is_repeated_with_the_same_digits_and_changed_data_are_named(tmp_path: Path) -> None:
    patients = write_patients(tmp_path / "patients.csv")
    tables = split(patients, "hospital", tmp_path / "tables")
    with Rehearsal(tmp_path, tables) as rehearsal:
        with fpdfp.Federation(rehearsal.study.folder, run="first") as federation:
            fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(federation, "died ~ age + C(stage)")
        first = rehearsal.study.folder / "runs" / "first"
        analysis = read_analysis(first)
        assert set(analysis["data"]) == {"north", "east", "south"}
        assert "unknown" not in {*analysis["data"].values(), *analysis["releases"].values()}
        command = ["repeat", str(rehearsal.study.folder), str(first)]
        done = CliRunner().invoke(commands.app, command)
        assert done.exit_code == 0, done.output
        assert "all coefficients have the same digits" in done.output
        assert len(done.output.splitlines()) == 1
        # Somebody corrects a value: the site is named, and so is what it has changed.
        table = fpdfp.datasets.patients()
        changed = table[table["hospital"] == "north"].drop(columns="hospital")
        changed.iloc[0, changed.columns.get_loc("age")] += 1
        rehearsal.sites["north"].stop()
        changed.to_csv(tables["north"], index=False)
        rehearsal.start_site("north")
        rehearsal.wait()
        shutil.copytree(first, tmp_path / "kept")
        done = CliRunner().invoke(commands.app, command)
        assert done.exit_code == 1
        assert "data of north: " in done.output
        assert "data of east" not in done.output
        assert "coefficients: by up to " in done.output
