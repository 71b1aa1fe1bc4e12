"""The in-process engine: reproducible, resumable, interruptible."""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.engines import checkpoint as checkpoints
from fpdfp.engines.result import COLUMNS
from fpdfp.errors import CheckpointError, DivergenceWarning, StepTooLargeWarning
from tests import helpers

NOISY: dict[str, Any] = {"clients_per_round": 3, "compressor": fpdfp.QSGD(levels=5), "seed": 7}


def noisy(rounds: int = 60, **changes: Any) -> fpdfp.Result:
    method = fpdfp.FPDFP(step=fpdfp.steps.Decreasing(0.4, 0.02), batch_size=6)
    return fpdfp.solve(helpers.graph_guided(), method, rounds=rounds, **(NOISY | changes))


def same(a: fpdfp.Result, b: fpdfp.Result) -> None:
    """Everything but the time taken is equal, to the last bit."""
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.v, b.v)
    assert (a.rounds, a.traffic, a.objective) == (b.rounds, b.traffic, b.objective)
    assert list(a.history) == list(b.history)
    for name in set(a.history) - {"seconds"}:
        np.testing.assert_array_equal(a.history[name], b.history[name])


def test_what_a_user_writes() -> None:
    X, y, site = helpers.classification(clients=25, rows=30)
    B = helpers.graph(12)
    problem = fpdfp.Problem(
        losses=fpdfp.losses.Logistic(X, y, clients=site, l2=1e-5),
        penalty=fpdfp.penalties.L1(1e-5),
        linop=B,
    )
    result = fpdfp.solve(
        problem,
        fpdfp.FPDFP(step=fpdfp.steps.Decreasing(2.0, 0.01), batch_size=None),
        rounds=800, clients_per_round=20, compressor=fpdfp.QSGD(levels=20), seed=0,
    )  # fmt: skip
    best = fpdfp.minimize(problem, tol=1e-10)
    assert result.x.shape == (12,)
    assert result.v.shape == (24,)
    assert set(result.history) == set(COLUMNS)
    assert 0 <= result.objective - best.objective < 1e-2 * best.objective
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap <= 1e-10


def test_same_seed_same_bits() -> None:
    same(noisy(), noisy())
    assert (noisy().x != noisy(seed=8).x).any()


PROGRAM = """
import hashlib
import numpy as np
import fpdfp
from tests import test_engine
result = test_engine.noisy(25)
print(hashlib.sha256(result.x.tobytes() + result.v.tobytes()).hexdigest(), result.bits_up)
# automatic steps come from LAPACK, which has threads of its own
generator = np.random.default_rng(0)
X = generator.standard_normal((1500, 300))
losses = fpdfp.losses.LeastSquares(X, X @ generator.standard_normal(300), clients=np.arange(1500) % 3, l2=0.1)
result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), rounds=10)
print(hashlib.sha256(result.x.tobytes()).hexdigest(), result.history.step.tolist())
# and so do the Newton steps of the server
graph = fpdfp.datasets.feature_graph(X[:, :100], alpha=0.05)
losses = fpdfp.losses.Logistic(X[:, :100], X[:, 0] > 0, clients=np.arange(1500) % 3, l2=0.001)
result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.001), graph.stacked()), rounds=10)
print(hashlib.sha256(result.x.tobytes()).hexdigest(), result.history.inner_server.tolist())
"""


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits() -> None:
    seen = set()
    for threads in ("1", "5"):
        environment = os.environ | {"NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        root = Path(__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def test_replies_do_not_depend_on_who_else_takes_part() -> None:
    """client_update over a batch gives each client the bits of a call for that client alone."""
    problem = helpers.graph_guided()
    algorithm = helpers.prepare(problem, fpdfp.FPDFP(step=0.3, batch_size=6, lam=0.1))
    state = algorithm.init(np.ones(12))
    clients = np.arange(5)
    together = algorithm.client_update(problem.local(clients), state, 3, fpdfp.rng.Draws(1, 3, clients))
    for i in clients:
        only = np.array([i])
        alone = algorithm.client_update(problem.local(only), state, 3, fpdfp.rng.Draws(1, 3, only))
        np.testing.assert_array_equal(alone.reply.x[0], together.reply.x[i])
        np.testing.assert_array_equal(alone.reply.v[0], together.reply.v[i])


def test_bits_are_counted_for_every_message() -> None:
    full = noisy(10, compressor=None)
    frame = 8 * (6 + 4)  # header and checksum of a message
    assert full.bits_up == full.bits_down == 10 * 3 * ((12 + 24) * 64 + 2 * frame)
    fixed = noisy(10, compressor={"x": fpdfp.QSGD(4, codec="fixed"), "v": None})
    parameters = 8 * (1 + 2 + 1)
    assert fixed.bits_up == 10 * 3 * (32 + 12 * 4 + parameters + 24 * 64 + 2 * frame)
    assert 0 < noisy(10).bits_up < fixed.bits_up
    np.testing.assert_array_equal(np.diff(full.history.bits_up), 3 * (36 * 64 + 2 * frame))


def test_history_has_a_row_for_every_evaluation_and_a_column_for_every_metric(tmp_path: Path) -> None:
    result = noisy(25, evaluate_every=10, metrics={"zeros": lambda x: np.sum(x == 0), "size": np.linalg.norm})
    history = result.history
    assert history["round"].tolist() == [0, 10, 20, 25]
    assert list(history) == [*COLUMNS, "zeros", "size"]
    assert history.objective[-1] == result.objective
    assert history.size[-1] == np.linalg.norm(result.x)
    assert (np.diff(history.seconds) > 0).all()
    assert history.step[-1] == pytest.approx(0.4 / (1 + 0.02 * 24))
    with pytest.raises(AttributeError, match="history has no column 'loss'; it has round, objective"):
        _ = history.loss
    history.to_csv(tmp_path / "history.csv")
    table = np.genfromtxt(tmp_path / "history.csv", delimiter=",", names=True)
    np.testing.assert_allclose(table["objective"], history.objective)


def test_rounds_to_evaluate_after_can_be_listed(tmp_path: Path) -> None:
    problem = helpers.graph_guided()
    arguments: dict[str, Any] = {"rounds": 30, "evaluate_every": [1, 2, 10, 99]}
    whole = fpdfp.solve(problem, fpdfp.FPDFP(), **arguments)
    assert whole.history.round.tolist() == [0, 1, 2, 10, 30]
    file = tmp_path / "run.npz"
    fpdfp.solve(problem, fpdfp.FPDFP(), checkpoint=file, callbacks=[lambda run: run.round == 7], **arguments)
    resumed = fpdfp.solve(problem, fpdfp.FPDFP(), checkpoint=file, resume=True, **arguments)
    assert resumed.history.round.tolist() == [0, 1, 2, 10, 30]
    np.testing.assert_array_equal(resumed.x, whole.x)


def test_evaluation_is_off_the_clock() -> None:
    import time

    def dawdle(x: Any) -> float:
        time.sleep(0.1)
        return 0.0

    slow = noisy(5, evaluate_every=1, metrics={"sleep": dawdle})
    assert slow.history.seconds[-1] < 0.3


def test_callbacks_see_the_run_and_can_stop_it() -> None:
    rounds: list[int] = []

    def watch(run: fpdfp.Run) -> bool:
        rounds.append(run.round)
        return run.round == 4

    result = noisy(callbacks=[watch])
    assert result.status == "stopped"
    assert rounds == [1, 2, 3, 4]
    assert result.history.round[-1] == 4
    named = noisy(callbacks=[lambda run: run.stop("seen enough")])
    assert named.message == "seen enough"
    assert named.rounds == 1


def test_numpy_booleans_stop_too_and_other_values_do_not() -> None:
    assert noisy(callbacks=[lambda run: run.x.max() > -np.inf]).rounds == 1
    assert noisy(9, callbacks=[lambda run: "carry on"]).rounds == 9


@pytest.mark.parametrize("error", [RuntimeError("no"), FloatingPointError("no")])
def test_what_was_done_before_a_callback_failed_is_kept(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "run.npz"

    def fail_late(run: fpdfp.Run) -> None:
        if run.round == 13:
            raise error

    with pytest.raises(type(error), match="no"):
        noisy(60, callbacks=[fail_late], checkpoint=path)
    assert checkpoints.load(path).round == 13
    same(noisy(60, resume=path), noisy(60))


def test_a_tolerance_ends_the_run_with_a_certificate() -> None:
    problem = helpers.graph_guided()
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=5000, tol=1e-6, evaluate_every=10)
    best = fpdfp.minimize(problem)
    assert result.status == "converged"
    assert result.rounds < 5000
    assert result.objective - best.objective <= 1e-6 * result.objective
    assert result.certificate.relative_gap is not None
    assert result.certificate.relative_gap <= 1e-6


def test_a_tolerance_on_the_residual_where_no_gap_is_known() -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner), fpdfp.penalties.L1(0.05))
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=5000, tol=1e-6, evaluate_every=10)
    assert result.status == "converged"
    assert problem.residual(result.x, result.v).norm <= 1e-6


def test_a_tolerance_where_constraints_are_met_up_to_rounding() -> None:
    """Bx is outside the box by a rounding error, so there is no gap; the residual decides."""
    problem = fpdfp.Problem(
        helpers.fused_regression().losses, fpdfp.penalties.Box(-0.1, 0.1), fpdfp.linops.Difference(8)
    )
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=20_000, tol=1e-6, evaluate_every=50)
    assert result.status == "converged"
    assert result.certificate.violation <= 1e-6


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_automatic_steps_know_mini_batches(batch_size: int, rng: np.random.Generator) -> None:
    """One row is 30 times larger than the others: a step from the mean alone would diverge."""
    X = rng.standard_normal((200, 20))
    X[7] *= 30
    y = X @ rng.standard_normal(20) + 0.1 * rng.standard_normal(200)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, clients=np.arange(200) % 4), fpdfp.penalties.L1(0.01))
    result = fpdfp.solve(problem, fpdfp.FPDFP(batch_size=batch_size), rounds=500, clients_per_round=2)
    assert result.status == "finished"
    assert result.objective < 0.9 * result.history.objective[0]


def test_users_functions_see_x_and_cannot_change_it() -> None:
    def spoil(x: Any) -> float:
        x[:] = 0
        return 1.0

    with pytest.raises(ValueError, match="read-only"):
        noisy(5, metrics={"spoil": spoil})
    with pytest.raises(ValueError, match="read-only"):
        noisy(5, callbacks=[lambda run: spoil(run.x)])


def test_a_forked_child_is_told_and_does_not_hang() -> None:
    program = (
        "import multiprocessing\nfrom tests import test_engine\n"
        "from fpdfp._kernels import glm, jit\n"
        "import numpy as np\n"
        "X = np.ones((2, jit.SMALL))\n"
        "where = np.arange(2), np.arange(3), np.arange(2), None\n"
        "def work(seed):\n"
        "    jit.use.one_thread = False\n"
        "    form = glm.squared_slope.address, 0.0, 0.0, None, None\n"
        "    glm.gradients(*form, X, None, None, None, np.ones(2), *where, X[:1], X[0], np.empty_like(X))\n"
        "def small(seed):\n    return test_engine.noisy(5, seed=seed).rounds\n"
        "print('small', small(0), multiprocessing.get_context('fork').Pool(1).map(small, [1]))\n"
        "work(0)\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    try:\n        pool.map(work, [1])\n"
        "    except RuntimeError as error:\n        print(error)\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True, timeout=120
    )
    assert "small 5 [5]" in done.stdout
    assert "start worker processes with the 'spawn' or 'forkserver' method" in done.stdout


@pytest.mark.parametrize("name", helpers.zoo())
def test_nothing_set_converges(name: str) -> None:
    """The default step brings every problem of the zoo close to its optimum, with all kinds of noise."""
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-9)
    batch = 10 if problem.losses.supports_batches else None
    result = fpdfp.solve(
        problem,
        fpdfp.FPDFP(batch_size=batch),
        rounds=3000 if name == "TV and non-negative" else 1000,
        clients_per_round=2,
        compressor=fpdfp.QSGD(levels=10),
        evaluate_every=50,
    )
    start = result.history.objective[0] - best.objective
    assert abs(result.objective - best.objective) < 0.12 * start
    exact = fpdfp.solve(problem, rounds=300, evaluate_every=300)
    assert abs(exact.objective - best.objective) < 0.01 * start


class TestResume:
    def test_gives_the_bits_of_an_uninterrupted_run(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        whole = noisy(60, evaluate_every=7)
        noisy(60, evaluate_every=7, checkpoint=path, callbacks=[lambda run: run.round == 33])
        same(noisy(60, evaluate_every=7, resume=path), whole)

    def test_from_every_round(self, tmp_path: Path) -> None:
        whole = noisy(12)
        for stop in range(1, 12):
            path = tmp_path / f"{stop}.npz"
            noisy(12, checkpoint=path, callbacks=[lambda run, stop=stop: run.round == stop])
            same(noisy(12, resume=path), whole)

    def test_after_being_killed(self, tmp_path: Path) -> None:
        """A process that dies without warning leaves a checkpoint to go on from."""
        path = tmp_path / "run.npz"
        program = (
            "import os\nfrom tests import test_engine\n"
            "def die(run):\n    if run.round == 47: os.kill(os.getpid(), 9)\n"
            f"test_engine.noisy(60, checkpoint={str(path)!r}, checkpoint_every=10, callbacks=[die])\n"
        )
        root = Path(__file__).parents[1]
        died = subprocess.run([sys.executable, "-c", program], cwd=root, check=False)
        assert died.returncode == -signal.SIGKILL
        assert checkpoints.load(path).round == 40
        same(noisy(60, resume=path), noisy(60))

    def test_true_means_the_checkpoint_if_there_is_one(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "run.npz"
        whole = noisy(30)
        noisy(30, checkpoint=path, resume=True, callbacks=[lambda run: run.round == 11])
        same(noisy(30, checkpoint=path, resume=True), whole)
        # it is finished: nothing more is done
        same(noisy(30, checkpoint=path, resume=True), whole)

    def test_can_go_further_than_first_planned(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        noisy(20, checkpoint=path, evaluate_every=5)
        further, whole = noisy(40, resume=path, evaluate_every=5), noisy(40, evaluate_every=5)
        np.testing.assert_array_equal(further.x, whole.x)
        np.testing.assert_array_equal(further.history.objective, whole.history.objective)
        # What was asked for the first plan's end is in the result of that plan.
        assert further.traffic == whole.traffic
        np.testing.assert_array_equal(further.history.total_up, whole.history.total_up)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"seed": 8}, "seed was 7 and is now 8"),
            ({"clients_per_round": 2}, "clients_per_round was 3 and is now 2"),
            ({"compressor": None}, "compressor was"),
            ({"x0": np.ones(12)}, "x0 was"),
        ],
    )
    def test_of_a_different_run_is_refused(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        path = tmp_path / "run.npz"
        noisy(10, checkpoint=path)
        with pytest.raises(CheckpointError, match=message):
            noisy(10, resume=path, **change)

    def test_of_different_data_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        fpdfp.solve(helpers.graph_guided(seed=0), rounds=2, checkpoint=path)
        with pytest.raises(CheckpointError, match="problem was"):
            fpdfp.solve(helpers.graph_guided(seed=1), rounds=2, resume=path)
        with pytest.raises(CheckpointError, match="problem was"):
            fpdfp.solve(helpers.graph_guided(weight=0.021), rounds=2, resume=path)

    def test_corrupt_files_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        noisy(5, checkpoint=path)
        whole = path.read_bytes()
        for broken in (b"", b"not a checkpoint", whole[: len(whole) // 2], whole[:-1]):
            path.write_bytes(broken)
            with pytest.raises(CheckpointError, match="not a readable checkpoint"):
                noisy(5, resume=path)
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 0xFF
        path.write_bytes(bytes(flipped))
        with pytest.raises(CheckpointError, match=r"not a readable checkpoint|of a different run"):
            noisy(5, resume=path)
        with pytest.raises(CheckpointError, match="checkpoint not found"):
            noisy(5, resume=tmp_path / "absent.npz")

    def test_of_a_later_format_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "run.npz"
        monkeypatch.setattr(checkpoints, "FORMAT", 99)
        noisy(5, checkpoint=path)
        monkeypatch.undo()
        with pytest.raises(CheckpointError, match="has format 99, but this version reads format 5"):
            noisy(5, resume=path)

    def test_a_full_disk_leaves_the_old_checkpoint(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "run.npz"
        noisy(10, checkpoint=path)
        before = path.read_bytes()

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"could not be written .*No space left.*the old one is intact"):
            noisy(10, checkpoint=path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_survives_a_new_process_for_every_kind_of_problem(self, tmp_path: Path) -> None:
        """Problems built anew are recognised: nothing of where they lie in memory is compared."""
        for number, name in enumerate(helpers.zoo()):
            path = tmp_path / f"{number}.npz"
            whole = fpdfp.solve(helpers.zoo()[name], rounds=8)
            fpdfp.solve(helpers.zoo()[name], rounds=8, checkpoint=path, callbacks=[lambda run: run.round == 3])
            same(fpdfp.solve(helpers.zoo()[name], rounds=8, resume=path), whole)

    def test_knows_a_schedule_without_a_text_by_its_steps(self, tmp_path: Path) -> None:
        class Halving(fpdfp.steps.Schedule):
            def __init__(self, first: float) -> None:
                self.first = first

            def __call__(self, k: int) -> float:
                return float(self.first / 2 ** min(k, 10))

        def run(first: float, **arguments: Any) -> fpdfp.Result:
            return fpdfp.solve(helpers.graph_guided(), fpdfp.FPDFP(step=Halving(first)), rounds=4, **arguments)

        run(0.5, checkpoint=tmp_path / "run.npz")
        assert run(0.5, resume=tmp_path / "run.npz").rounds == 4
        with pytest.raises(CheckpointError, match="method was"):
            run(0.25, resume=tmp_path / "run.npz")

    def test_with_other_metrics_or_fewer_rounds_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        noisy(10, checkpoint=path, metrics={"size": np.linalg.norm})
        with pytest.raises(CheckpointError, match=r"records the metrics \['size'\], but now there are \[\]"):
            noisy(20, resume=path)
        with pytest.raises(ValueError, match="rounds must be at least the 10 that the checkpoint"):
            noisy(7, resume=path, metrics={"size": np.linalg.norm})

    def test_a_metric_that_failed_leaves_no_hole_in_the_history(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"
        calls: list[int] = []

        def flaky(x: Any) -> float:
            calls.append(1)
            if len(calls) == 4:
                raise RuntimeError("no")
            return float(np.linalg.norm(x))

        with pytest.raises(RuntimeError, match="no"):
            noisy(12, evaluate_every=2, checkpoint=path, metrics={"size": flaky})
        resumed = noisy(12, evaluate_every=2, resume=path, metrics={"size": flaky})
        same(resumed, noisy(12, evaluate_every=2, metrics={"size": lambda x: float(np.linalg.norm(x))}))

    def test_a_path_that_cannot_be_written_is_named_before_the_first_round(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for path, message in ((tmp_path, "is a directory"), (tmp_path / "file" / "run.npz", "cannot be written")):
            with pytest.raises(CheckpointError, match=message):
                noisy(5, checkpoint=path, callbacks=[fail])


class TestInterrupt:
    def test_ctrl_c_returns_the_result_so_far(self, tmp_path: Path) -> None:
        path = tmp_path / "run.npz"

        def press(run: fpdfp.Run) -> None:
            if run.round == 17:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        result = noisy(60, callbacks=[press], checkpoint=path, evaluate_every=10)
        assert signal.getsignal(signal.SIGINT) is before
        assert result.status == "interrupted"
        assert result.rounds == 17
        assert result.history.round[-1] == 17
        same(noisy(60, resume=path, evaluate_every=10), noisy(60, evaluate_every=10))

    def test_a_second_ctrl_c_acts_at_once(self) -> None:
        def press_twice(run: fpdfp.Run) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            noisy(60, callbacks=[press_twice])

    def test_runs_in_other_threads_too(self) -> None:
        results: list[fpdfp.Result] = []
        thread = threading.Thread(target=lambda: results.append(noisy(10)))
        thread.start()
        thread.join()
        same(results[0], noisy(10))


class TestDivergence:
    def test_stops_keeps_the_last_good_iterate_and_says_what_to_lower(self) -> None:
        problem = helpers.fused_regression()
        with (
            pytest.warns(StepTooLargeWarning, match="the largest safe one is 0"),
            pytest.warns(DivergenceWarning, match=r"lower the step \(it was 50; .*or quantize more finely"),
        ):
            result = fpdfp.solve(problem, fpdfp.FPDFP(step=50.0), rounds=500, compressor=fpdfp.QSGD(3))
        assert result.status == "diverged"
        assert np.isfinite(result.x).all()
        assert np.isfinite(result.objective)
        assert result.rounds < 500
        assert "kept the iterate of round" in result.message

    def test_by_overflow_between_evaluations(self) -> None:
        problem = helpers.fused_regression()
        with pytest.warns(StepTooLargeWarning), pytest.warns(DivergenceWarning):
            result = fpdfp.solve(problem, fpdfp.PDFP(step=1e30), rounds=500, evaluate_every=500)
        assert result.status == "diverged"
        assert result.rounds == 0

    def test_of_a_loss_that_gives_nan(self) -> None:
        losses = fpdfp.losses.Custom(
            lambda i, x: float(np.sum(x)), lambda i, x: np.full(2, np.nan), n_clients=2, shape=2, lipschitz=1.0
        )
        problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
        for compressor in (None, fpdfp.QSGD(4)):
            with pytest.warns(DivergenceWarning):
                assert fpdfp.solve(problem, rounds=5, compressor=compressor).status == "diverged"

    def test_found_after_the_last_round_keeps_the_last_good_iterate(self) -> None:
        problem = helpers.fused_regression()
        with pytest.warns(StepTooLargeWarning), pytest.warns(DivergenceWarning):
            result = fpdfp.solve(
                problem, fpdfp.PDFP(step=1e3), rounds=50, evaluate_every=50, callbacks=[lambda run: run.round == 3]
            )
        assert result.status == "diverged"
        assert result.rounds == 0

    def test_an_objective_that_falls_below_zero_is_none(self) -> None:
        b = np.array([3.0, 1.0, 2.0])
        losses = fpdfp.losses.Custom(
            lambda i, x: 0.5 * x @ x - b @ x,
            lambda i, x: x - b,
            n_clients=1, shape=3, lipschitz=1.0, strong_convexity=1.0,
        )  # fmt: skip
        result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), rounds=50)
        assert result.status == "finished"
        np.testing.assert_allclose(result.x, b - 0.01, atol=1e-6)

    def test_a_warm_start_at_the_optimum_is_no_divergence(self) -> None:
        losses = fpdfp.losses.LeastSquares(np.eye(3), [1.0, 2.0, 3.0])
        problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
        result = fpdfp.solve(problem, fpdfp.FPDFP(step=1.0), rounds=20, x0=[1.0, 2.0, 3.0])
        assert result.status == "finished"


def test_a_large_lambda_is_warned_of() -> None:
    problem = helpers.graph_guided()
    with pytest.warns(StepTooLargeWarning, match="the largest safe lam is"):
        fpdfp.solve(problem, fpdfp.FPDFP(step=0.1, lam=5 * problem.model.largest_lambda), rounds=1)


def test_a_decreasing_step_that_becomes_safe_is_not_warned_of() -> None:
    problem = helpers.graph_guided()
    limit = 2 / problem.lipschitz.mean()
    fpdfp.solve(problem, fpdfp.FPDFP(step=fpdfp.steps.Decreasing(1.5 * limit, 0.1)), rounds=20)
    with pytest.warns(StepTooLargeWarning):
        fpdfp.solve(problem, fpdfp.FPDFP(step=fpdfp.steps.Decreasing(1.5 * limit, 0.001)), rounds=20)


def test_progress_is_silent_unless_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    noisy(5)
    assert capfd.readouterr() == ("", "")
    noisy(5, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "round" in shown.err
    assert "objective" in shown.err
    assert "bit up" in shown.err


def test_the_result_says_how_far_it_is_from_optimal() -> None:
    text = str(noisy())
    for word in ("finished after 60 rounds", "objective", "bits", "duality gap", "relative", "residual"):
        assert word in text
    constrained = fpdfp.solve(helpers.zoo()["TV and non-negative"], rounds=2, x0=-np.ones((4, 6)))
    assert "violation" in str(constrained)
    unknown = dataclasses.replace(constrained, _certify=constrained.certificate._replace(gap=None))
    assert "duality gap   not known" in str(unknown)
    large = constrained.certificate._replace(gap=2 * constrained.certificate.scale)
    assert "a bound this loose says little" in str(dataclasses.replace(constrained, _certify=large))


def test_violation_is_recorded_for_constraints() -> None:
    result = fpdfp.solve(helpers.zoo()["TV and non-negative"], rounds=60)
    assert result.history.violation.shape == result.history.round.shape
    assert result.history.violation[-1] <= 0.05
    assert np.isfinite(result.history.objective).all()


def test_float32_problems_stay_float32() -> None:
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.Logistic(X.astype(np.float32), y, clients=owner, l2=0.05)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.02), helpers.graph(12))  # B is float64
    for method in (None, fpdfp.FPDFP()):
        result = fpdfp.solve(problem, method, rounds=20, compressor=fpdfp.QSGD(10), clients_per_round=2)
        assert result.x.dtype == result.v.dtype == np.float32
    assert fpdfp.solve(problem, fpdfp.FPDFP(), rounds=1).bits_up == 5 * (36 * 32 + 2 * 8 * 10)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"rounds": 0}, "rounds must be an integer of at least 1"),
    ({"rounds": 2.5}, "rounds must be an integer"),
    ({"clients_per_round": 0}, "clients_per_round must be an integer of at least 1"),
    ({"clients_per_round": 6}, "clients_per_round must be at most the number of clients, 5, got 6"),
    ({"seed": -1}, "seed must be an integer of at least 0"),
    ({"seed": 2**64}, "seed must be an integer"),
    ({"seed": "x"}, "seed must be an integer"),
    ({"x0": np.ones(3)}, r"x0 must have shape \(12,\)"),
    ({"x0": np.full(12, np.inf)}, "x0 must be finite"),
    ({"compressor": 20}, "compressor must be a compressor, a mapping, 'auto' or None, got int"),
    ({"compressor": fpdfp.QSGD}, r"got the class QSGD: make one, as QSGD\("),
    ({"compressor": {"x": fpdfp.QSGD}}, r"compressor\['x'\] must be a compressor or None, got the class QSGD"),
    (
        {"compressor": fpdfp.QSGD(3, block=(1,))},
        r"compressor\['x'\] cannot send an array of shape \(12,\): block: axis",
    ),
    ({"compressor": {"w": None}}, r"the fields of a reply are \['x', 'v'\]"),
    ({"compressor": {"x": 4}}, r"compressor\['x'\] must be a compressor or None"),
    ({"evaluate_every": 0}, "evaluate_every must be an integer of at least 1"),
    ({"evaluate_every": [1, -2]}, "evaluate_every: a round must be an integer of at least 0, got -2"),
    ({"checkpoint_every": 0}, "checkpoint_every must be an integer of at least 1"),
    ({"metrics": {"objective": np.sum}}, "metrics: 'objective' is a name that histories have already"),
    ({"x0": np.full(12, 1e200)}, "x0 must be a point where the objective is finite"),
    ({"metrics": {"violation": np.sum}}, "metrics: 'violation' is a name"),
    ({"metrics": {"a": 1}}, r"metrics\['a'\] must be a function of x"),
    ({"callbacks": [1]}, "callbacks must be functions"),
    ({"tol": -1.0}, "tol must be a finite number greater than 0"),
    ({"resume": True}, "resume requires checkpoint=FILE"),
    ({"method": "FPDFP"}, "method must be one of fpdfp.methods"),
    ({"method": fpdfp.PDFP(), "clients_per_round": 2}, "clients_per_round must be None for PDFP"),
    ({"method": fpdfp.PDFP(), "compressor": fpdfp.QSGD(3)}, "compressor must be None for PDFP"),
    ({"method": fpdfp.FPDFPIdentity()}, "linop must be the identity for FPDFPIdentity"),
    ({"method": fpdfp.FPDFP}, r"method must be .* got the class FPDFP: make one, as FPDFP\(…\)"),
    ({"metrics": {"rows": np.sum}}, "metrics: 'rows' is a name that histories have already"),
    ({"metrics": {"inner_clients": np.sum}}, "metrics: 'inner_clients' is a name that histories have already"),
    ({"metrics": {3: np.sum}}, "metrics: a name must be a text, got 3"),
    ({"metrics": [np.sum]}, "metrics must map names to functions of x, got list"),
    ({"callbacks": print}, "callbacks must be a list of functions of the run"),
    ({"metrics": {"a": lambda x: "s"}}, r"metrics\['a'\] must return a number, got str"),
    ({"metrics": {"a": lambda x: None}}, r"metrics\['a'\] must return a number, got NoneType"),
    ({"metrics": {"a": lambda x: x}}, r"metrics\['a'\] must return a number, got ndarray"),
    ({"checkpoint": 1}, "checkpoint must be the name of a file or None, got int"),
    ({"checkpoint": ""}, "checkpoint must be the name of a file or None, got ''"),
    ({"resume": 1}, "resume must be the name of a checkpoint, True or False, got int"),
    ({"progress": "yes"}, "progress must be True, False or None, got 'yes'"),
    ({"progress": 1}, "progress must be True, False or None, got 1"),
    ({"method": fpdfp.FedMiD(inner=fpdfp.InnerSolve()), "compressor": {"v": None}}, r"fields of a reply are \['x'\]"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_are_named_before_the_first_round(change: dict[str, Any], message: str) -> None:
    arguments = {"rounds": 5} | change
    method = arguments.pop("method", fpdfp.FPDFP())
    with pytest.raises(fpdfp.errors.ArgumentError, match=message) as caught:
        fpdfp.solve(helpers.graph_guided(), method, callbacks=arguments.pop("callbacks", [fail]), **arguments)
    assert caught.value.argument in {*change, "linop"}


def fail(run: fpdfp.Run) -> None:
    raise AssertionError("a round was run")


@pytest.mark.parametrize("kind", [fpdfp.errors.ArgumentError, fpdfp.errors.ArgumentTypeError])
def test_errors_about_arguments_survive_a_process(kind: Any) -> None:
    error = pickle.loads(pickle.dumps(kind("metrics['a']", "must be a function of x, got int")))
    assert (type(error), error.argument) == (kind, "metrics")
    assert str(error) == "metrics['a'] must be a function of x, got int"
    assert isinstance(error, ValueError)
    assert isinstance(error, TypeError) == (kind is fpdfp.errors.ArgumentTypeError)


def test_bad_hyper_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1 and at most"):
        fpdfp.FPDFP(batch_size=2**70)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        fpdfp.FPDFP(batch_size=0)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        fpdfp.FPDFPIdentity(batch_size=-1)
    values: list[tuple[Any, str]] = [
        (-1.0, "step must be a finite number greater than 0"),
        (np.nan, "step must be a finite number greater than 0"),
        ("fast", "step must be a number greater than 0, a schedule of fpdfp.steps or 'auto', got 'fast'"),
    ]
    for step, message in values:
        with pytest.raises(ValueError, match=message):
            fpdfp.FPDFP(step=step)
    wrong: list[tuple[Any, str]] = [
        (None, "step must be a number greater than 0, a schedule of fpdfp.steps or 'auto', got NoneType"),
        (fpdfp.steps.Constant, "or 'auto', got the class Constant: make one"),
        (True, "step must be a finite number greater than 0, got True"),
        (np.True_, "step must be a finite number greater than 0"),
    ]
    for step, message in wrong:
        with pytest.raises(TypeError, match=message):
            fpdfp.FPDFP(step=step)
    with pytest.raises(ValueError, match="lam must be a finite number greater than 0"):
        fpdfp.FPDFP(lam=0.0)
    with pytest.raises(TypeError, match="lam must be a finite number greater than 0"):
        fpdfp.FPDFP(lam=True)
    with pytest.raises(TypeError, match=r"problem must be an fpdfp\.Problem"):
        fpdfp.solve(None, rounds=1)
    with pytest.raises(ValueError, match="batch_size must be None: OperatorLeastSquares cannot draw"):
        fpdfp.solve(helpers.zoo()["isotropic TV"], fpdfp.FPDFP(batch_size=2), rounds=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fpdfp.steps.Constant(0.0), "gamma must be"),
        (lambda: fpdfp.steps.Decreasing(-1.0, 0.1), "gamma0 must be"),
        (lambda: fpdfp.steps.Decreasing(1.0, -0.1), "c must be"),
        (lambda: fpdfp.steps.Decreasing(1.0, 0.1, power=2.0), "power must be at most 1"),
        (lambda: fpdfp.steps.Theorem2(0.0), "d1 must be"),
    ],
)
def test_bad_schedules_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_compressor_for_the_dual_is_no_mistake_where_no_dual_is_sent() -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), fpdfp.penalties.L1(0.02))
    both = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5, compressor={"x": fpdfp.QSGD(5), "v": fpdfp.QSGD(5)})
    one = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5, compressor=fpdfp.QSGD(5))
    np.testing.assert_array_equal(both.x, one.x)


def test_the_automatic_step_follows_clients_noise_and_participation() -> None:
    def constants(**changes: Any) -> fpdfp.steps.Constants:
        base = {
            "lipschitz_mean": 2.0,
            "lipschitz_max": 10.0,
            "strong_convexity": 0.0,
            "n_clients": 10,
            "clients_per_round": 10,
            "omega": 0.0,
            "batch_smoothness": 0.0,
            "own_lipschitz_max": 10.0,
            "typical_omega": 0.0,
            "least_convexity": 0.0,
            "unbiased": True,
            "client_spread": 10.0,
            "lipschitz_rms": 10.0,
        }
        return fpdfp.steps.Constants(**(base | changes))

    assert constants().largest_safe_step == 1.0
    assert constants().noisy_smoothness == 2.0
    assert constants(clients_per_round=1).noisy_smoothness == 10.0
    assert constants(omega=3.0).noisy_smoothness == 5.0
    assert constants(batch_smoothness=10.0).noisy_smoothness == 3.0
    assert fpdfp.steps.resolve("auto", constants(), noisy=False) == fpdfp.steps.Constant(0.5)
    assert fpdfp.steps.resolve("auto", constants(), noisy=True)(0) == 0.75


@dataclasses.dataclass(frozen=True)
class OverTheWire(fpdfp.compress.QSGD):
    """What QSGD gives after its messages have been made and read."""

    def compress(self, arrays: Any, draws: Any, purpose: int) -> Any:
        messages = self.encode(self.quantize(arrays, draws, purpose))
        values = self.decode(messages, arrays.shape[1:], arrays.dtype)
        return fpdfp.compress.Compressed(values, np.array([8 * len(message) for message in messages]))


def test_a_simulation_is_what_messages_give() -> None:
    """Iterates are the same to the last bit, and so are the bits but for the padding of a byte."""
    problem = helpers.graph_guided()
    seen = [
        fpdfp.solve(problem, rounds=30, clients_per_round=3, compressor=kind(levels=5), seed=1)
        for kind in (fpdfp.QSGD, OverTheWire)
    ]
    np.testing.assert_array_equal(seen[0].x, seen[1].x)
    np.testing.assert_array_equal(seen[0].v, seen[1].v)
    assert 0 <= seen[1].bits_up - seen[0].bits_up <= 7 * 30 * 3 * 2
