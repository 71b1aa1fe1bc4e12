"""Rounds in batches, memory in files, and checkpoints of both: the same bits as with all at once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts import local as runs
from fpdfp.errors import ArgumentError
from fpdfp.methods._forms import PrimalDual
from tests import helpers
from tests.test_remote import away

N, D = 7, 40


def problem_of(dtype: Any = np.float64) -> fpdfp.Problem:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((6 * N, D)).astype(dtype)
    y = (X[:, 0] + generator.standard_normal(6 * N) > 0).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(6 * N) % N, l2=0.1)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))


METHODS = [
    fpdfp.ShiftedPDFP(),
    fpdfp.ShiftedPDFP(batch_size=2),
    fpdfp.FPDFP(local_steps=2, batch_size=3),
    fpdfp.StatelessPDFP(),
    fpdfp.Scaffold(penalty="ignore"),
    fpdfp.FedDR(),
    fpdfp.SVRGPDFP(batch_size=2),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize(("dtype", "participants"), [(np.float64, N), (np.float32, 4)])
def test_batches_of_clients_change_no_bit(
    method: Any, dtype: Any, participants: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(dtype)
    n = participants if method.traits.partial_participation else N
    compressor = fpdfp.QSGD(5) if method.traits.compression else None
    options: dict[str, Any] = {"rounds": 6, "clients_per_round": n, "compressor": compressor, "seed": 3}
    whole = fpdfp.solve(problem, method, **options)
    monkeypatch.setattr(runs, "BATCH", 2 * D)
    monkeypatch.setattr(runs, "LONG", 1)
    assert len(runs.divide(np.arange(N), D)) == 4
    parts = fpdfp.solve(problem, method, **options)
    assert parts.x.tobytes() == whole.x.tobytes()
    assert parts.bits_up == whole.bits_up


def test_threads_that_each_have_a_batch_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"rounds": 5, "compressor": fpdfp.QSGD(5)}
    whole = fpdfp.solve(problem_of(), fpdfp.ShiftedPDFP(), **options)
    monkeypatch.setattr(runs, "BATCH", D)
    monkeypatch.setattr(runs, "LONG", 1)
    asked = []

    def three(run: fpdfp.Run, count: int) -> int:
        asked.append(count)
        return 3

    monkeypatch.setattr(runs.LocalParticipants, "_threads", three)
    parts = fpdfp.solve(problem_of(), fpdfp.ShiftedPDFP(), **options)
    assert asked
    assert set(asked) == {N}
    assert parts.x.tobytes() == whole.x.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mean_of_batches_is_that_of_all(dtype: Any) -> None:
    generator = np.random.default_rng(1)
    sent = PrimalDual(*(generator.standard_normal((50, *shape)).astype(dtype) for shape in ((4099,), (64, 65))))
    total = runs.RunningMean(("v",))
    for rows in (slice(0, 1), slice(1, 18), slice(18, 50)):
        total.add(PrimalDual(sent.x[rows], sent.v[rows]))
    for part, whole in zip(total.mean(), helpers.mean_of(sent, ("v",)), strict=True):
        assert part.tobytes() == whole.tobytes()
    # In the order of clients, one after the other.
    expected = np.zeros((64, 65))
    for row in sent.v:
        expected += row
    assert (helpers.mean_of(sent, ("v",)).v == expected / 50).all()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_memory_in_files_changes_no_bit_and_survives_a_checkpoint(
    elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(rounds: int, **options: Any) -> fpdfp.Result:
        problem = problem_of()
        if elsewhere:
            _, problem = away(problem, sites=2)
        return fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=rounds, compressor=fpdfp.QSGD(5), **options)

    plain = solve(8)
    monkeypatch.setattr(runs, "SPILLED", 8)
    monkeypatch.setattr(runs, "SPILLED_COPIES", 8)
    spilled = []

    def look(run: fpdfp.Run) -> None:
        spilled.append(runs.is_spilled(run.memory.shift))

    # With clients elsewhere the folder is that of the checkpoint if none is given.
    folder: dict[str, Any] = {} if elsewhere else {"scratch": tmp_path / "scratch"}
    solve(4, checkpoint=tmp_path / "c.npz", callbacks=[look], **folder)
    resumed = solve(8, checkpoint=tmp_path / "c.npz", resume=True, callbacks=[look], **folder)
    assert len(spilled) == 8
    assert all(spilled)
    assert resumed.x.tobytes() == plain.x.tobytes()
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ["c.npz"]


def test_scratch_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="scratch must be a folder, got the file"):
        fpdfp.solve(problem_of(), rounds=1, scratch=tmp_path / "file")
    with pytest.raises(ArgumentError, match="scratch must be the name of a folder or None, got int"):
        fpdfp.solve(problem_of(), rounds=1, scratch=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="scratch must be the name of a folder or None, got ''"):
        fpdfp.solve(problem_of(), rounds=1, scratch="")
    with pytest.raises(ArgumentError, match="scratch must be a folder, got the file"):
        fpdfp.solve(problem_of(), rounds=1, scratch=tmp_path / "file" / "within")
    fpdfp.solve(problem_of(), rounds=1, scratch=tmp_path / "to" / "be" / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # not where it is not needed


def test_scratch_must_be_a_folder_that_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(ArgumentError, match=r"scratch must be a folder that can be written to, got .*: Permission d"):
        fpdfp.solve(problem_of(), rounds=1, scratch=tmp_path / "missing")
