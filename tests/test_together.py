"""Sweeps over penalties that are solved in the same exchanges."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.local import Clients
from fpdfp.declarative import runner
from fpdfp.declarative.build import build
from fpdfp.declarative.settings import read
from fpdfp.linops import Matrix
from fpdfp.problem import Model
from fpdfp.runs import load
from fpdfp.selection.task import flatten
from tests.test_declarative import error_of, invoke, written

SWEEP = """
name = "weights"

[data]
name = "breast-cancer"

[split]
clients = 6
weights = "samples"

[loss]
l2 = 0.0

[run]
rounds = 60
tol = 1e-7
together = true

[sweep]
penalty.weight = [0.001, 0.01, 0.1]
"""


def run(tmp_path: Path, text: str = SWEEP, *more: str, name: str = "out", command: str = "run") -> list[dict[str, Any]]:
    result = invoke(command, written(tmp_path, text), "--output", tmp_path / name, "--json", "--quiet", *more)
    assert result.exit_code == 0, result.output
    lines: list[dict[str, Any]] = json.loads(result.stdout)["runs"]
    return lines


def test_each_setting_has_its_folder(tmp_path: Path) -> None:
    lines = run(tmp_path)
    assert [line["setting"]["penalty.weight"] for line in lines] == [0.001, 0.01, 0.1]
    cases = read(written(tmp_path, SWEEP))
    whole = fpdfp.solve_many([build(case.settings).problem for case in cases][::-1], tol=1e-7)
    for place, (line, case) in enumerate(zip(lines, cases, strict=True)):
        saved = load(line["folder"])
        assert (line["status"], line["rounds"]) == ("converged", whole.rounds)
        assert 0.0 <= line["relative_error"] + 1e-12 <= 3e-7
        assert line["accuracy"] > (0.6 if place == 2 else 0.9)
        np.testing.assert_array_equal(saved.x, whole.x[2 - place])
        assert saved.info["together"]["total_up"] == whole.bits_up
        assert saved.info["estimated_gap"] <= 1e-7
        assert saved.config == case.settings
        assert saved.best is not None
        assert saved.best.objective == line["objective"]
        assert saved.history.rows == 2
    for name, total in (("total_up", whole.bits_up), ("total_down", whole.bits_down)):
        assert sum(line[name] for line in lines) == total
    with (tmp_path / "out" / "results.csv").open() as table:
        assert [float(row["penalty.weight"]) for row in csv.DictReader(table)] == [0.001, 0.01, 0.1]
    assert not list((tmp_path / "out" / "together").iterdir())
    report = invoke("report", tmp_path / "out", "--output", tmp_path / "report.html")
    assert report.exit_code == 0, report.output


@pytest.mark.slow
def test_what_differs_in_more_than_the_penalty_is_another_group(tmp_path: Path) -> None:
    text = SWEEP.replace("[0.001, 0.01, 0.1]", "[0.01, 0.1]") + "loss.l2 = [0.0, 0.1]\n"
    lines = run(tmp_path, text, "--jobs", "2", command="sweep")
    assert [load(line["folder"]).info["together"]["runs"] for line in lines] == [2] * 4
    again = run(tmp_path, text.replace("[0.01, 0.1]", "[0.01, 0.1, 0.03]", 1), "--resume")
    ones = [load(line["folder"]).info["together"]["runs"] for line in again]
    assert sorted(ones) == [1, 1, 2, 2, 2, 2]  # what is done is not done again


def test_classes_and_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4))
    codes = (X @ rng.standard_normal((4, 3)) + rng.gumbel(size=(150, 3))).argmax(axis=1)
    lines = [",".join(f"{one:.4f}" for one in row) + f",k{code}" for row, code in zip(X, codes, strict=True)]
    (tmp_path / "rows.csv").write_text("a,b,c,d,kind\n" + "\n".join(lines) + "\n")
    text = SWEEP.replace('name = "breast-cancer"', 'file = "rows.csv"\nlabel = "kind"')
    text = text.replace("l2 = 0.0", 'kind = "softmax"\nl2 = 0.01') + '\n[penalty]\nkind = "group"\n'
    done = run(tmp_path, text)
    assert [line["status"] for line in done] == ["converged"] * 3
    assert all(line["relative_error"] < 3e-7 for line in done)
    x = load(done[0]["folder"]).x
    assert x is not None
    assert x.shape == (3, 5)


def test_ctrl_c_and_resume_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path, name="whole")
    plain, seen = Clients.ask, [0]

    def press(*given: Any, **more: Any) -> Any:
        seen[0] += 1
        if seen[0] == 4:
            signal.raise_signal(signal.SIGINT)
        return plain(*given, **more)

    monkeypatch.setattr(Clients, "ask", press)
    stopped = invoke("run", written(tmp_path, SWEEP), "--output", tmp_path / "out", "--json", "--quiet")
    assert stopped.exit_code == 130
    assert {line["status"] for line in json.loads(stopped.stdout)["runs"]} == {"interrupted"}
    again = run(tmp_path, SWEEP, "--resume")
    for one, other in zip(again, whole, strict=True):
        assert (Path(one["folder"]) / "final.npz").read_bytes() == (Path(other["folder"]) / "final.npz").read_bytes()
        for name in ("status", "rounds", "objective", "total_up", "total_down"):
            assert one[name] == other[name]


def test_too_few_rounds_go_on_with_more(tmp_path: Path) -> None:
    short = run(tmp_path, SWEEP.replace("rounds = 60", "rounds = 3"))
    assert "finished" in {line["status"] for line in short}
    longer = run(tmp_path, SWEEP, "--resume")
    assert {line["status"] for line in longer} == {"converged"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tol = 1e-7", ""), "run.tol must be above 0 with run.together"),
        (("tol = 1e-7", "tol = 1e-7\nseeds = [0, 1]"), "run.seeds must be one with run.together"),
        (("tol = 1e-7", "tol = 1e-7\nclients_per_round = 3"), "run.clients_per_round must be left out with"),
        (("tol = 1e-7", "tol = 1e-7\ndrop_out = 0.1"), "run.drop_out must be left out with run.together"),
        (("[sweep]", '[method]\nkind = "FPDFP"\n[sweep]'), "method.kind must be 'automatic' with run.together"),
        (("[sweep]", '[compressor]\nkind = "none"\n[sweep]'), "compressor.kind must be 'automatic' with run.together"),
        (('name = "breast-cancer"', 'kind = "quadratics"'), "run.together is for tables"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    text = SWEEP.replace(*change)
    if "quadratics" in text:
        text = text.replace('weights = "samples"\n', "").replace("[loss]\nl2 = 0.0\n", "")
    assert words in error_of(tmp_path, text)


def test_shares_add_up() -> None:
    for bits in (0, 1, 17, 10**9 + 7):
        shares = runner.share(bits, np.array([3, 1, 4, 1, 5]))
        assert shares.sum() == bits
        assert (shares >= 0).all()


def test_l1_norms_of_single_entries_have_weights() -> None:
    rows = np.array([[0.0, -2.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    model = Model(fpdfp.penalties.L1(np.array([1.0, 2.0, 3.0, 4.0])), Matrix(rows), (3,), np.dtype(np.float64))
    found, x = flatten(model), np.array([1.0, -2.0, 3.0])
    assert found.linop.is_identity
    assert found.penalty.value(x) == model.penalty.value(rows @ x)
    chain = model._replace(linop=Matrix(np.eye(4, 3) - np.eye(4, 3, k=1)))
    assert flatten(chain) is chain
