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

from fpdfp.declarative import pool
from fpdfp.declarative.runner import Job
from reproduce import graph_guided, output, runs
from reproduce.__main__ import main
from reproduce.graph_guided import (
    AUTOMATIC,
    GAMMAS,
    SWEPT,
    TASKS,
    Findings,
    comparisons,
    evaluations,
    faster,
    judge,
    larger_steps,
    reproduce,
    small_levels_fail,
)
from reproduce.runs import Case, Line, Step, at_the_end, build_case

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FIGURES = ("levels", "participation", "bits", "against-bits", "steps")
FILES = ["results.json", *(f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png"))]
SMALL: dict[str, Any] = {"rounds": 30, "seeds": 2, "jobs": 1}
#: Steps that are tried here: each is some fifty runs.
STEPS = (2.0, 3.0, 6.0)


def run_small(folder: Path) -> None:
    """Run the experiment with few rounds, seeds and steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_guided, "GAMMAS", STEPS)
        reproduce("breast-cancer", folder, **SMALL)


@pytest.fixture(scope="module")
def results(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("small")
    run_small(folder)
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
    assert len(summary["claims"]) == 11
    assert all(claim["verdict"] and claim["numbers"] for claim in summary["claims"])
    # One step for all, and beside it each case with its own.
    common = {(case["gamma0_times_L"], case["c"]) for case in summary["cases"] if case["method"] == "FPDFP"}
    assert len(common) == 1
    assert len(summary["each_tuned_for_itself"]) == 7
    assert len(summary["sweep"]["errors"]) == len(SWEPT) * len(STEPS)


@pytest.mark.slow
def test_the_same_call_gives_the_same_files(results: Path, tmp_path: Path) -> None:
    run_small(tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (results / name).read_bytes(), name


def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(results, tmp_path / "copy")
    folders = sorted(path for path in (tmp_path / "copy" / "runs").iterdir() if (path / "run.json").is_file())
    for folder in folders[::40]:
        shutil.rmtree(folder)
    for name in FILES:
        (tmp_path / "copy" / name).unlink()
    done: list[str] = []
    work = runs.work

    def record(job: Job) -> tuple[str, str]:
        done.append(job.name)
        return work(job)

    monkeypatch.setattr(runs, "work", record)
    run_small(tmp_path / "copy")
    assert sorted(done) == [folder.name for folder in folders[::40]]
    for name in FILES:
        assert (tmp_path / "copy" / name).read_bytes() == (results / name).read_bytes(), name


PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from reproduce import graph_guided
from reproduce.__main__ import main

graph_guided.GAMMAS = {STEPS}
sys.exit(main())
"""


@pytest.mark.slow
def test_an_interrupted_command_goes_on(results: Path, tmp_path: Path) -> None:
    for attempt in range(3):
        output = tmp_path / str(attempt)
        command = [sys.executable, "-c", PROGRAM, "breast-cancer"]
        command += ["--output", str(output), "--rounds", "30", "--seeds", "2", "--jobs", "2"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        folder, deadline = output / "runs", time.monotonic() + 120
        while len(list(folder.glob("*/run.json"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        # On a busy machine the signal may come when all is done.
        if running.returncode != 0:
            break
    assert running.returncode == 130
    assert "the same command continues" in errors
    assert "Traceback" not in errors
    assert 5 <= len(list(folder.glob("*/run.json"))) < len(list(results.glob("runs/*/run.json")))
    subprocess.run(command, check=True, capture_output=True)
    assert (output / "results.json").read_bytes() == (results / "results.json").read_bytes()


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(graph_guided, "reproduce", interrupted)
    assert main(["breast-cancer", "--output", str(tmp_path)]) == 130
    assert f"results so far are in {tmp_path}, and the same command continues" in capsys.readouterr().err


def test_an_optimum_that_is_none_is_found_anew(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(results, tmp_path / "copy")
    with np.load(results / "optimum.npz") as kept:
        np.savez(tmp_path / "copy" / "optimum.npz", x=1.1 * kept["x"], v=kept["v"])
    # Figures take longer than all else, and are those of the numbers.
    monkeypatch.setattr(output, "draw", lambda *_: None)
    run_small(tmp_path / "copy")
    assert (tmp_path / "copy" / "results.json").read_bytes() == (results / "results.json").read_bytes()


def test_without_data_it_says_where_to_put_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a9a", "--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path) in said
    assert "a9a" in said


def test_rows_can_be_dealt_out_in_other_ways() -> None:
    """The smaller the concentration, the more clients differ; the pooled problem is the same."""
    made = build_case("breast-cancer")
    x = np.linspace(-0.1, 0.1, made.problem.model.shape[0])
    spreads = []
    for concentration in (10.0, 0.1, None):
        given = {} if concentration is None else {"concentration": concentration}
        kind = "by_label" if concentration is None else "dirichlet"
        split = {"kind": kind, "clients": 20, "weights": "samples", **given}
        problem = build_case("breast-cancer", {"split": split}).problem
        assert problem.objective(x) == pytest.approx(made.problem.objective(x), rel=1e-12)
        own = problem.losses.gradients(x, np.arange(problem.n_clients))
        spreads.append(float(problem.weights @ np.square(own - problem.gradient(x)).sum(axis=1)))
    assert spreads == sorted(spreads)


def test_evaluations_are_dense_at_first_and_before_each_halving() -> None:
    at = evaluations(4000)
    assert at[:5] == [1, 2, 3, 4, 5]
    assert at[-1] == 4000
    assert len(at) < 120
    for end in (250, 500, 1000, 2000, 4000):
        assert end in at
        assert sum(0.8 * end < one <= end for one in at) >= 5
    assert evaluations(7) == [1, 2, 3, 4, 5, 6, 7]


TASK = TASKS["a9a"]


def lines_with(late: float = 0.0, **ends: float) -> dict[Case, Line]:
    """Five seeds of every case, whose error falls to what is given by name, else to 1e-3, plus ``late``/k."""
    rounds, made = np.array([0, *evaluations(4000)]), {}
    for case in [*TASK.cases, *TASK.automatic_cases]:
        name = f"s{case.levels}" if case.n == TASK.per_round else f"n{case.n}"
        end = ends.get(AUTOMATIC if case.method == AUTOMATIC else name, 1e-3)
        falling = 2 * np.exp(-rounds / 30) + late / np.maximum(rounds, 1)
        error = falling + end * (1 + 0.01 * np.arange(5))[:, None]
        bits = np.tile(rounds * case.n * (64.0 if case.levels is None else float(case.levels)), (5, 1))
        flat = np.full(error.shape, 0.8)
        step = None if case.method == AUTOMATIC else Step(3.0, 0.0)
        columns = {"error": error, "accuracy": flat, "test_error": 1 - flat, "bits_up": bits, "bits_down": bits}
        made[case] = Line(case, rounds, columns, once_up=1e3, step=step)
    return made


Sweep = dict[tuple[int | None, float], np.ndarray]


def sweep_with(best: dict[int | None, float], diverge_from: float = 99.0, coarsest: float = 1e-3) -> Sweep:
    """Errors that are least at a step for each number of levels."""
    return {
        (levels, gamma): np.full(5, np.inf) if gamma >= diverge_from
        else (coarsest if levels == SWEPT[0] else 1e-3) * (1 + abs(gamma - best[levels])) * (1 + 0.01 * np.arange(5))
        for levels in SWEPT for gamma in GAMMAS
    }  # fmt: skip


def findings(lines: dict[Case, Line], own: dict[Case, Line] | None = None, sweep: Sweep | None = None) -> Findings:
    return Findings(TASK, lines, own or {}, sweep or {})


def verdicts(late: float = 0.0, **ends: float) -> dict[str, str]:
    """The verdicts on the objective, by the claims; the accuracies of all cases are equal."""
    lines = lines_with(late, **ends)
    return {one.claim: one.judge(lines).objective for one in comparisons(TASK)}


FINER = "A larger s gives a better solution (n = 20)."
LEVELS_ENOUGH = "s = 20 is as good as no quantization (n = 20)."
CLIENTS_ENOUGH = "n = 20 is about as good as everyone (s = 20)."


def test_claims_follow_the_numbers() -> None:
    good = verdicts(s5=3e-3, s10=2e-3, s20=1e-3, sNone=1e-3, n10=2e-3, n50=1e-3, n100=1e-3)
    assert set(good.values()) == {"confirmed"}
    bad = verdicts(s5=1e-3, s10=2e-3, s20=3e-3, sNone=2e-3, n10=5e-4, n100=8e-4)
    assert set(bad.values()) == {"refuted"}
    assert verdicts(s5=3e-3, s10=1e-3, s20=2e-3)[FINER] == "confirmed in part"
    even = verdicts()
    assert even[FINER] == "tied"
    assert even[LEVELS_ENOUGH] == "confirmed"


def test_the_accuracy_is_judged_beside_the_objective() -> None:
    lines = lines_with(n100=5e-4)
    some, everyone = Case(20, 20), Case(100, 20)
    *_, less_accurate, as_good = comparisons(TASK)
    judged = as_good.judge(lines)
    assert judged.verdict == "refuted on the objective, confirmed on the accuracy"
    worse = 0.79 + 0.001 * np.arange(5)[:, None] * np.ones_like(lines[some]["accuracy"])
    judged = as_good.judge({**lines, some: lines[some].change(test_error=1.1 - worse)})
    assert judged.verdict == "refuted"
    judged = less_accurate.judge({**lines, everyone: lines[everyone].change(test_error=1 - worse)})
    assert judged.accuracy == "refuted"


def test_cases_that_fall_together_decide_nothing() -> None:
    """A transient of 20/k is 5e-3 after 4,000 rounds and falls by 5e-4 in the last tenth."""
    falling = {"s20": 1.1e-3, "sNone": 1.0e-3, "n100": 0.9e-3}
    assert verdicts(late=20.0, **falling)[CLIENTS_ENOUGH] == "undecided"
    assert verdicts(late=20.0, **falling)[LEVELS_ENOUGH] == "undecided"
    assert verdicts(late=0.0, **falling)[CLIENTS_ENOUGH] == "refuted"


def test_each_case_tuned_for_itself_has_a_verdict_of_its_own() -> None:
    (*_, claim) = [one for one in judge(findings(lines_with(), lines_with(n100=5e-4))) if "everyone (s" in one["claim"]]
    assert claim["verdict"] == "confirmed"
    assert claim["own"] == "refuted on the objective, confirmed on the accuracy"
    (same, *_) = judge(findings(lines_with(), lines_with()))
    assert "the same steps" in same["numbers"]


def test_faster_at_first_is_judged_against_rounds_and_bits() -> None:
    lines = lines_with()
    few, everyone = Case(10, 20), Case(100, 20)

    def verdict(error: np.ndarray) -> str:
        given = findings({**lines, few: lines[few].change(error=error)})
        return faster(given, "", few, everyone)[1]

    assert verdict(0.1 * lines[few]["error"]) == "confirmed against rounds, confirmed against bits"
    assert verdict(1.1 * lines[few]["error"]) == "refuted against rounds, confirmed against bits"
    assert verdict(np.full_like(lines[few]["error"], 9.0)) == "refuted against rounds, refuted against bits"
    assert verdict(lines[few]["error"]).startswith("tied against rounds")


def test_larger_steps_are_allowed_or_not() -> None:
    def judged(best: dict[int | None, float], **others: float) -> tuple[str, ...]:
        return larger_steps(findings(lines_with(), sweep=sweep_with(best, **others)))

    assert judged(dict.fromkeys(SWEPT, 3.0))[1] == "refuted"
    assert judged({**dict.fromkeys(SWEPT, 2.0), None: 4.0})[1] == "confirmed"
    assert judged({**dict.fromkeys(SWEPT, 4.0), 1: 2.0})[1] == "confirmed for s = 1, refuted for s = 2, 5, 10, 20"
    assert judged(dict.fromkeys(SWEPT, GAMMAS[-1]))[1] == "undecided"
    assert "s = 5 3 and 4" in judged(dict.fromkeys(SWEPT, 3.0), diverge_from=6.0)[2]


def test_too_few_levels_converge_or_not() -> None:
    def verdict(sweep: Sweep) -> str:
        return small_levels_fail(findings(lines_with(), sweep=sweep))[1]

    assert verdict(sweep_with(dict.fromkeys(SWEPT, 3.0))) == "refuted"
    assert verdict(sweep_with(dict.fromkeys(SWEPT, 3.0), coarsest=0.5)) == "confirmed"
    only_small = verdict(sweep_with({**dict.fromkeys(SWEPT, 3.0), 1: 1.0}, coarsest=0.1))
    assert only_small == "confirmed with the common step, refuted with its own"


def test_the_end_is_the_last_fifth() -> None:
    rounds, values = np.array([0, 50, 80, 90, 100]), np.array([9.0, 8.0, 9.0, 1.0, 3.0])
    assert at_the_end(rounds, values) == 2.0
    assert at_the_end(rounds, values, horizon=50) == 8.0


def test_a_folder_with_runs_of_other_settings_is_refused(results: Path) -> None:
    bench = runs.Bench("breast-cancer", results / "runs", {"loss.l2": 0.1}, pool.bar())
    name = next((results / "runs").glob("n10-*-seed0")).name
    with pytest.raises(ValueError, match="holds a run with other settings"):
        bench.compute("again", [bench.plan(name, 0, {})])


@pytest.mark.parametrize("name", ["a9a", "covtype"])
class TestCommitted:
    def test_the_stored_optimum_is_certified(self, name: str) -> None:
        summary = json.loads((RESULTS / name / "results.json").read_text())
        assert summary["optimum"]["relative_gap"] <= 1e-9

    def test_the_optimum_is_certified(self, name: str, data_dir: Path) -> None:
        """x and v prove F* to 1e-9 by the duality gap, from the data alone."""
        where = build_case(name, {"data.directory": str(data_dir)})
        summary = json.loads((RESULTS / name / "results.json").read_text())
        with np.load(RESULTS / name / "optimum.npz") as kept:
            gap = where.problem.duality_gap(kept["x"], kept["v"])
            objective = where.problem.objective(kept["x"])
        assert gap is not None
        assert gap <= 1e-9 * objective
        assert objective == pytest.approx(summary["optimum"]["objective"], rel=1e-12)
        assert where.problem.losses.sizes.sum() == {"a9a": 26_053, "covtype": 464_809}[name]
        assert len(where.test_labels) == {"a9a": 6508, "covtype": 116_203}[name]
