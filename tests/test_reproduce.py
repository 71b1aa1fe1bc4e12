"""The first experiment: its results, its claims, going on after an interruption."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fpdfp.cli import app
from fpdfp.experiments import claims, page, pool
from fpdfp.experiments.graph_guided import TASKS, setting
from fpdfp.experiments.reproduce import reproduce
from fpdfp.experiments.runs import AUTOMATIC, Case, Line, at_the_end, automatic_cases, cases, evaluations

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FIGURES = ("levels", "participation", "bits", "against-bits")
SMALL: dict[str, Any] = {"rounds": 30, "seeds": 2, "jobs": 1}


@pytest.fixture(scope="module")
def results(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("small")
    reproduce("breast-cancer", folder, **SMALL)
    return folder


def test_everything_is_there(results: Path) -> None:
    summary = json.loads((results / "results.json").read_text())
    assert [case["label"] for case in summary["cases"]][:4] == [
        "FPDFP, n = 10, s = 5", "FPDFP, n = 10, s = 10", "FPDFP, n = 10, s = 20", "FPDFP, n = 10, exact",
    ]  # fmt: skip
    assert len(summary["cases"]) == 9
    assert summary["optimum"]["relative_gap"] <= 1e-9
    for case in summary["cases"]:
        assert case["round"][0] == 0
        assert case["round"][-1] == 30
        assert case["error"]["least"][-1] <= case["error"]["median"][-1] <= case["error"]["largest"][-1]
        assert case["bits_up"]["median"] == sorted(case["bits_up"]["median"])
        assert 0.5 < case["accuracy"]["median"][-1] <= 1.0
    for name in FIGURES:
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (results / f"{name}.svg").read_text().startswith("<?xml")
    text = (results / "claims.md").read_text()
    assert len(summary["claims"]) == 7
    for claim in summary["claims"]:
        assert claim["claim"] in text
        assert claim["verdict"] in text


def test_the_same_call_gives_the_same_files(results: Path, tmp_path: Path) -> None:
    reproduce("breast-cancer", tmp_path, **SMALL)
    names = ["results.json", "claims.md", *(f"{name}.svg" for name in FIGURES), *(f"{name}.png" for name in FIGURES)]
    for name in names:
        assert (tmp_path / name).read_bytes() == (results / name).read_bytes(), name


def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    runs = tmp_path / "copy" / "runs" / "runs.jsonl"
    lines = runs.read_text().splitlines(keepends=True)
    # A crash cuts the last line off; a few more runs are missing.
    runs.write_text("".join(lines[:-4]) + lines[-4][:50])
    reproduce("breast-cancer", tmp_path / "copy", **SMALL)
    assert (tmp_path / "copy" / "results.json").read_bytes() == (results / "results.json").read_bytes()
    assert len(runs.read_text().splitlines()) == len(lines)


def test_an_interrupted_command_goes_on(results: Path, tmp_path: Path) -> None:
    for attempt in range(3):
        output = tmp_path / str(attempt)
        command = [sys.executable, "-c", "from fpdfp.cli import main; main()", "reproduce", "breast-cancer"]
        command += ["--output", str(output), "--rounds", "30", "--seeds", "2", "--jobs", "1"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        runs, deadline = output / "runs" / "runs.jsonl", time.monotonic() + 120
        while (not runs.is_file() or len(runs.read_text().splitlines()) < 5) and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        # On a busy machine the signal may come when all is done.
        if running.returncode != 0:
            break
    assert running.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    assert 5 <= len(runs.read_text().splitlines()) < 300
    subprocess.run(command, check=True, capture_output=True)
    assert (output / "results.json").read_bytes() == (results / "results.json").read_bytes()


def test_an_optimum_that_is_none_is_found_anew(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    with np.load(results / "optimum.npz") as kept:
        np.savez(tmp_path / "copy" / "optimum.npz", x=1.1 * kept["x"], v=kept["v"])
    reproduce("breast-cancer", tmp_path / "copy", **SMALL)
    assert (tmp_path / "copy" / "results.json").read_bytes() == (results / "results.json").read_bytes()


def test_without_data_it_says_where_to_put_it(tmp_path: Path) -> None:
    arguments = ["reproduce", "a9a", "--data", str(tmp_path), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert str(tmp_path) in done.output
    assert "a9a" in done.output


def test_rows_can_be_dealt_out_in_other_ways() -> None:
    """The smaller the concentration, the more clients differ; the pooled problem is the same."""
    made = setting(TASKS["breast-cancer"])
    x = np.linspace(-0.1, 0.1, made.problem.model.shape[0])
    spreads = []
    for split in ("dirichlet 10", "dirichlet 0.1", "label"):
        problem = made.dealt(split)
        assert problem.objective(x) == pytest.approx(made.problem.objective(x), rel=1e-12)
        own = problem.losses.gradients(x, np.arange(problem.n_clients))
        spreads.append(float(problem.weights @ np.square(own - problem.gradient(x)).sum(axis=1)))
    assert spreads == sorted(spreads)
    np.testing.assert_array_equal(made.dealt("iid").losses.sizes, made.problem.losses.sizes)


def test_evaluations_are_dense_at_first() -> None:
    at = evaluations(3000)
    assert at[:5] == [1, 2, 3, 4, 5]
    assert at[-1] == 3000
    assert len(at) < 80


TASK = TASKS["a9a"]


def lines_with(**errors: float) -> dict[Case, Line]:
    """Five seeds of every case, whose error falls in rounds to what is given by name, else to 1e-3."""
    rounds, made = np.array([0, 9, 90, 900, 2500, 3000]), {}
    for case in [*cases(TASK), *automatic_cases(TASK)]:
        name = f"s{case.levels}" if case.n == TASK.per_round else f"n{case.n}"
        end = errors.get(AUTOMATIC if case.method == AUTOMATIC else name, 1e-3)
        error = np.array([2.0, 1.0, 0.1, 2 * end, end, end]) * (1 + 0.01 * np.arange(5))[:, None]
        bits = np.tile(rounds * case.n * (64.0 if case.levels is None else float(case.levels)), (5, 1))
        flat = np.full((5, 6), 0.8)
        made[case] = Line(case, None, rounds, error, flat, flat, bits, bits, 1e3)
    return made


def verdicts(**errors: float) -> list[str]:
    return [claim.verdict for claim in claims.judge(lines_with(**errors), TASK)]


def test_claims_follow_the_numbers() -> None:
    good = verdicts(s5=3e-3, s10=2e-3, s20=1e-3, sNone=1e-3, n10=2e-3, n50=1e-3, n100=1e-3)
    assert good[:2] == ["confirmed", "confirmed"]
    assert good[3:] == ["confirmed", "confirmed", "confirmed", "measured"]
    assert verdicts(s5=1e-3, s10=2e-3, s20=3e-3, sNone=1e-3)[:2] == ["refuted", "refuted"]
    assert verdicts(s5=3e-3, s10=1e-3, s20=2e-3)[0] == "confirmed in part"
    assert verdicts(n10=5e-4)[3] == "refuted"
    assert verdicts(n100=5e-4)[4] == "refuted"


def test_faster_at_first_is_judged_against_rounds_and_bits() -> None:
    lines = lines_with()
    few, everyone = Case(10, 20), Case(100, 20)
    quick = lines[few]._replace(error=0.1 * lines[few].error)
    assert claims.few_are_faster_at_first({**lines, few: quick}, TASK).verdict == "confirmed"
    slow = lines[few]._replace(error=1.1 * lines[few].error)
    assert claims.few_are_faster_at_first({**lines, few: slow}, TASK).verdict.startswith("refuted against rounds")
    never = lines[few]._replace(error=np.full((5, 6), 9.0))
    assert claims.few_are_faster_at_first({**lines, few: never}, TASK).verdict == "refuted against rounds and bits"
    assert lines[everyone].case.label == "FPDFP, n = 100, s = 20"


def test_the_end_is_the_last_fifth() -> None:
    assert at_the_end(np.array([0, 50, 80, 90, 100]), np.array([9.0, 9.0, 9.0, 1.0, 3.0])) == 2.0


def test_runs_of_other_code_are_not_taken() -> None:
    import fpdfp

    assert pool.code(fpdfp.FPDFP) != pool.code(fpdfp.ShiftedPDFP)


@pytest.mark.parametrize("name", ["a9a", "covtype"])
class TestCommitted:
    def test_pages_say_what_the_numbers_are(self, name: str) -> None:
        summary = json.loads((RESULTS / name / "results.json").read_text())
        assert page.write(name, summary, FIGURES) == (RESULTS / name / "claims.md").read_text()
        assert summary["optimum"]["relative_gap"] <= 1e-9

    def test_the_optimum_is_certified(self, name: str, data_dir: Path) -> None:
        """x and v prove F* to 1e-9 by the duality gap, from the data alone."""
        where = setting(TASKS[name], data_dir)
        summary = json.loads((RESULTS / name / "results.json").read_text())
        with np.load(RESULTS / name / "optimum.npz") as kept:
            gap = where.problem.duality_gap(kept["x"], kept["v"])
            objective = where.problem.objective(kept["x"])
        assert gap is not None
        assert gap <= 1e-9 * objective
        assert objective == pytest.approx(summary["optimum"]["objective"], rel=1e-12)
        assert where.problem.losses.sizes.sum() == TASKS[name].training
        assert len(where.test_labels) == {"a9a": 6508, "covtype": 116_203}[name]
