"""A federation of real processes on this machine: the commands of the guide, and processes that are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("formulaic")

import pandas
from benchmarks import _federation_soak

import fpdfp
from fpdfp.federation.analyst import FederationEngine
from fpdfp.federation.rehearse import Rehearsal, split
from fpdfp.report.describe import describe

PEERS = Path(__file__).parents[2] / "shared" / "peers"
FORMULA = "died ~ age + C(stage)"
#: What is measured here is the transport; budgets have tests of their own.
POLICY = "analyses = 1000000\nrefusals = 1000000\n"


def run(*arguments: Any, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fpdfp", "federation", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    n = 600
    age, stage = generator.normal(60, 10, n).round(1), generator.choice(["I", "II", "III"], n)
    odds = 0.05 * (age - 60) + np.select([stage == "II", stage == "III"], [0.5, 1.0], 0.0) - 0.5
    died = (generator.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    hospital = generator.choice(["east", "north", "south"], n)
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    pandas.DataFrame({"age": age, "stage": stage, "died": died, "hospital": hospital}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory, patients: Path) -> Iterator[Rehearsal]:
    folder = tmp_path_factory.mktemp("federation")
    (folder / "policy.toml").write_text(POLICY)
    with Rehearsal(folder, split(patients, "hospital", folder / "tables"), folder / "policy.toml") as running:
        yield running


def model(**options: Any) -> Any:
    return fpdfp.FederatedLogisticRegression(fpdfp.L1(0.001), **options)


def here(patients: Path, **options: Any) -> Any:
    return model(**options).fit(patients, FORMULA, groups="hospital")


@pytest.mark.slow
def test_same_coefficients_as_on_one_machine(rehearsal: Rehearsal, patients: Path) -> None:
    expected = here(patients)
    with fpdfp.Federation(rehearsal.study.folder, run="first") as federation:
        assert federation.names == ["east", "north", "south"]
        assert [site.online for site in federation.status().sites] == [True] * 3
        assert "stage" in str(federation.describe())
        found = model().fit(federation, FORMULA)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)
    assert found.result_.traffic == expected.result_.traffic
    folder = rehearsal.study.folder / "runs" / "first"
    saved = fpdfp.runs.load(folder)
    assert saved.info["status"] == "converged"
    assert [site["name"] for site in saved.info["sites"]] == ["east", "north", "south"]
    assert all(site["bytes_up"] > 0 and site["bytes_down"] > 0 and site["waited"] > 0 for site in saved.info["sites"])


@pytest.mark.slow
def test_a_model_is_evaluated_at_sites(rehearsal: Rehearsal, patients: Path) -> None:
    fitted = here(patients)
    expected = fitted.evaluate(patients, groups="hospital")
    with fpdfp.Federation(rehearsal.study.folder) as federation:
        found = fitted.evaluate(federation)
    for name in ("accuracy", "brier", "deviance"):
        assert found.overall[name] == expected.overall[name]
        assert all(found.by_site[site][name] == expected.by_site[site][name] for site in federation.names)
    assert found.overall["calibration slope"] == expected.overall["calibration slope"]
    # Counts are in wider cells there, and the bound says what that hides.
    area, exact = found.overall["auc"], expected.overall["auc"]
    assert abs(area.value - exact.value) <= area.bound + exact.bound


@pytest.mark.slow
def test_a_named_fit_without_a_penalty_has_its_table_in_the_report(rehearsal: Rehearsal, patients: Path) -> None:
    plain: Any = fpdfp.FederatedLogisticRegression("none")
    expected = plain.fit(patients, "died ~ age + stage", groups="hospital")
    curve = expected.learning_curve(patients, groups="hospital", points=3)
    with fpdfp.Federation(rehearsal.study.folder, run="plain") as federation:
        fitted: Any = fpdfp.FederatedLogisticRegression("none").fit(federation, "died ~ age + stage")
        found = fitted.learning_curve(federation, points=3)
    assert fitted.run_folder_ == rehearsal.study.folder / "runs" / "plain"
    found.save(fitted.run_folder_)
    shown = describe(fitted.run_folder_)
    assert shown["trouble"] == []
    assert shown["summary"]["names"] == list(expected.table().names)
    assert shown["heterogeneity"]["of"] == len(expected.table().names)
    assert shown["learning_curve"]["rounds"] == curve.rounds.tolist()
    for name in ("accuracy", "brier", "deviance"):
        assert list(found.overall[name]) == list(curve.overall[name])


FPDFP: dict[str, Any] = {
    "method": fpdfp.FPDFP(), "run": fpdfp.RunOptions(compressor=fpdfp.QSGD(20), rounds=40, tol=0, progress=False)
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("who", ["site", "hub"])
def test_a_process_is_killed_in_the_middle(
    rehearsal: Rehearsal, patients: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, not asked to end; what is started again has nothing but its folder, and the bits are the same."""
    expected = here(patients, **FPDFP)
    killed: list[int] = []
    carry = FederationEngine.carry

    def disturbed(engine: Any, asked: Any, deadline: Any) -> Any:
        if not killed and any(tree.get("update", {}).get("round") == 10 for tree in asked.values()):
            killed.append(10)
            if who == "site":
                rehearsal.sites["north"].kill()
                rehearsal.start_site("north")
            else:
                assert rehearsal.hub is not None
                rehearsal.hub.kill()
                rehearsal.start_hub()
        return carry(engine, asked, deadline)

    monkeypatch.setattr(FederationEngine, "carry", disturbed)
    with fpdfp.Federation(rehearsal.study.folder, deadline=20.0) as federation:
        found = model(**FPDFP).fit(federation, FORMULA)
    assert killed == [10]
    np.testing.assert_array_equal(found.coef_, expected.coef_)


@pytest.mark.slow
def test_the_analysts_process_is_killed_and_goes_on(rehearsal: Rehearsal, patients: Path) -> None:
    expected = here(patients, **FPDFP)
    program = f"""
import os, signal, fpdfp
from fpdfp.federation.analyst import FederationEngine
carry = FederationEngine.carry
def end(engine, asked, deadline):
    if any(tree.get("update", {{}}).get("round") == 15 for tree in asked.values()):
        os.kill(os.getpid(), signal.SIGKILL)
    return carry(engine, asked, deadline)
FederationEngine.carry = end
run = fpdfp.RunOptions(compressor=fpdfp.QSGD(20), rounds=40, tol=0, progress=False)
with fpdfp.Federation({str(rehearsal.study.folder)!r}, run="killed") as federation:
    fpdfp.FederatedLogisticRegression(fpdfp.L1(0.001), method=fpdfp.FPDFP(), run=run).fit(federation, {FORMULA!r})
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=300)
    assert done.returncode == -9
    with fpdfp.Federation(rehearsal.study.folder, run="killed") as federation:
        found = model(**FPDFP).fit(federation, FORMULA)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert fpdfp.runs.load(rehearsal.study.folder / "runs" / "killed").info["rounds"] == 40


@pytest.mark.slow
def test_a_short_soak(tmp_path: Path) -> None:
    """A site every 20 rounds, the hub and the analyst's process are killed in one run: ``make soak`` in small."""
    found = _federation_soak.run(tmp_path, 60, 20, hub=1, analyst=1)
    assert found["killed"] == {"site": 2, "hub": 1, "analyst": 1}
    assert found["rounds"] == 60
    assert found["same_bits"]
    assert found["damaged_logs"] == []
    # Two sites that came back. Those that the second process of the analyst found may have been where it went on.
    assert found["healed"] >= 2


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.is_dir(), reason="the peers' data are not here")
def test_cnsim(tmp_path: Path) -> None:
    """DataSHIELD's own figures, with real processes over mutual TLS and the policy of the package."""
    tables = {f"study{number}": PEERS / "cnsim" / f"CNSIM{number}.csv" for number in (1, 2, 3)}
    with (
        Rehearsal(tmp_path / "trial", tables) as rehearsal,
        fpdfp.Federation(rehearsal.study.folder) as federation,
    ):
        binomial = fpdfp.FederatedLogisticRegression("none").fit(
            federation, "DIS_DIAB ~ GENDER * PM_BMI_CONTINUOUS + LAB_HDL"
        )
        assert (sum(binomial.rows_.values()), sum(binomial.left_out_.values())) == (7485, 1894)
        assert round(binomial.deviance_, 3) == 1036.031
        assert binomial.n_iter_ <= 9
        gaussian = fpdfp.FederatedLinearRegression("none").fit(federation, "LAB_TSC ~ LAB_TRIG")
        assert list(gaussian.rows_.values()) == [1801, 2526, 3473]
        assert round(gaussian.deviance_, 2) == 8936.32
        assert gaussian.n_iter_ <= 9


@pytest.mark.slow
def test_commands_of_coordinator_and_site(rehearsal: Rehearsal, tmp_path: Path) -> None:
    study = rehearsal.study.folder
    assert run("status", study).stdout.count("online since") == 3
    assert "age" in run("describe", study).stdout
    assert "answered" in run("log", rehearsal.folder / "north", "--last", 2).stdout
    assert "the last with the hash" in run("verify", rehearsal.folder / "north").stdout
    assert run("inspect", rehearsal.folder / "north").stdout == "nothing waits\n"
    copied = study / "invitations" / "invitation-north.zip"
    again = run("join", copied, "--data", "x.csv", "--folder", tmp_path / "copy", status=2)
    assert "the invitation of north was used on" in again.stderr
    # Another process of the site on the same machine.
    table = rehearsal.folder / "tables" / "north.csv"
    twice = run("join", copied, "--data", table, "--folder", rehearsal.folder / "north", status=2)
    assert "another process is running with" in twice.stderr
    ada = run("analyst", study, "ada").stdout.strip()
    assert "ada has joined" in run("join", ada, "--folder", tmp_path / "ada").stdout
    assert run("status", tmp_path / "ada").stdout.count("online since") == 3
    run("remove", study, "ada")
    assert "ada was removed from the study" in run("status", tmp_path / "ada", status=2).stderr
    units = run("serve", study, "--unit").stdout.split()
    assert "ExecStart=" in Path(units[0]).read_text()
    units = run("join", copied, "--data", table, "--folder", rehearsal.folder / "north", "--unit").stdout.split()
    assert "@" not in Path(units[0]).read_text().replace("@system-service", "")


@pytest.mark.slow
def test_a_site_ends_cleanly(rehearsal: Rehearsal) -> None:
    site = rehearsal.sites["south"]
    site.stop()
    assert site.ended == 0
    assert "south ends" in site.text()
    rehearsal.start_site("south")
    rehearsal.wait()


@pytest.mark.slow
def test_a_rehearsal_cleans_up(patients: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    options = [
        "--data",
        patients,
        "--by",
        "hospital",
        "--policy",
        tmp_path / "policy.toml",
        "--keep",
        tmp_path / "kept",
    ]
    out = run("rehearse", *options, "--model", FORMULA).stdout
    assert any(line.startswith("column ") for line in out.splitlines()), "the schema is a table"
    assert "C(stage)[T.II]" in out
    command = [sys.executable, "-m", "fpdfp", "federation", "rehearse", *map(str, options[:-1]), str(tmp_path / "two")]
    process = subprocess.Popen([*command, "--model", FORMULA], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 100
    while not (tmp_path / "two" / "north" / "identity.toml").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(2)
    process.communicate(timeout=60)
    assert process.returncode == 130
    mine = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert mine == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_cross_validation_has_the_bits_of_one_machine(rehearsal: Rehearsal, patients: Path) -> None:
    def fit(*data: Any, **options: Any) -> Any:
        chosen: Any = fpdfp.FederatedLogisticRegressionCV
        return chosen("graph", cv=fpdfp.CrossValidation(3, alphas=10), standardize=True).fit(*data, **options)

    expected = fit(patients, FORMULA, groups="hospital")
    with fpdfp.Federation(rehearsal.study.folder, run="choice") as federation:
        found = fit(federation, FORMULA)
    for name in ("alphas_", "scores_", "coef_", "intercept_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.alpha_ == expected.alpha_
    shown = describe(rehearsal.study.folder / "runs" / "choice")
    assert shown["trouble"] == []
    assert shown["cross_validation"]["alpha"] == shown["path"]["chosen"] == found.alpha_
    assert shown["summary"]["refused"]


@pytest.mark.slow
def test_a_cross_validation_is_rehearsed_with_one_command(tmp_path: Path) -> None:
    """A graph-guided logistic model, 100 weights and 5 folds, three site processes with the default policy."""
    run("example", tmp_path / "patients.csv", "--rows", 6000)
    given = ["--data", tmp_path / "patients.csv", "--by", "hospital", "--penalty", "graph", "--cv", 5]
    said = run("rehearse", *given, "--model", "died ~ age + C(stage) + sex + pressure").stdout
    assert "600 problems (100 weights, all rows and 5 folds) in" in said
    assert "the chosen weight is" in said
    assert "bytes up and" in said
