"""Clients in Ray actors: the same bits, and processes that are really killed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.ct import ConeBeam, ProjectionLosses, XRayTransform
from fpdfp.linops import Gradient
from fpdfp.losses.base import Part
from fpdfp.traffic import NOTHING
from tests import helpers

ray = pytest.importorskip("ray")
pytestmark = [
    # Ray leaves sockets and files of its own to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
]
ROOT = Path(__file__).parent.parent
QSGD = fpdfp.QSGD(7, norm="max")
# Trouble comes at the 60th gradient.


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    actors_find = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}}
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, runtime_env=actors_find
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def engine(cluster: None) -> Iterator[fpdfp.cohorts.Ray]:
    """Actors that load what they need themselves."""
    with fpdfp.cohorts.Ray(load, n_clients=6, actors=2) as engine:
        yield engine


def load(clients: Any) -> fpdfp.losses.Losses:
    # By name, as in a program of one's own: actors import it.
    return whole().losses.part(clients)


def whole() -> fpdfp.Problem:
    return helpers.graph_guided(clients=6)


def remote(engine: fpdfp.cohorts.Ray) -> fpdfp.Problem:
    problem = whole()
    return fpdfp.Problem(engine.losses(), problem.penalty, problem.linop)


def same(one: fpdfp.Result, other: fpdfp.Result) -> None:
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.v, other.v)
    # Copies for checkpoints, which this engine takes of what clients remember, are upkeep.
    assert one.traffic.having("upkeep", NOTHING) == other.traffic.having("upkeep", NOTHING)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (None, {}),
        (fpdfp.FPDFP(local_steps=2, batch_size=5), {"compressor": QSGD, "clients_per_round": 3}),
        (fpdfp.ShiftedPDFP(batch_size=7), {"compressor": QSGD, "downlink": fpdfp.QSGD(31, norm="max")}),
    ],
    ids=["automatic", "FPDFP", "shifted"],
)
def test_the_same_bits_as_in_one_process(engine: fpdfp.cohorts.Ray, method: Any, options: dict[str, Any]) -> None:
    there = fpdfp.solve(remote(engine), method, rounds=20, engine=engine, **options)
    same(fpdfp.solve(whole(), method, rounds=20, **options), there)


@pytest.mark.slow
def test_a_problem_with_its_data_is_sent_out(cluster: None) -> None:
    problem = whole()
    engine = fpdfp.cohorts.Ray(actors=3)
    same(fpdfp.solve(problem, rounds=10), fpdfp.solve(problem, rounds=10, engine=engine))
    assert not engine.actors  # those that were started for the run are gone with it


def kill(engine: fpdfp.cohorts.Ray, actor: int) -> None:
    os.kill(ray.get(engine.actors[actor].process.remote()), signal.SIGKILL)


@pytest.mark.slow
def test_killed_workers_come_back(engine: fpdfp.cohorts.Ray, caplog: pytest.LogCaptureFixture) -> None:
    problem = whole()
    before = engine.totals.healed

    def murder(run: fpdfp.Run) -> None:
        if run.round in (20, 61):
            kill(engine, run.round % 2)

    options: dict[str, Any] = {"rounds": 250, "evaluate_every": 125, "compressor": QSGD}
    options["downlink"] = fpdfp.QSGD(31, norm="max")
    result = fpdfp.solve(remote(engine), fpdfp.ShiftedPDFP(), engine=engine, callbacks=[murder], **options)
    assert "its process died" in caplog.text
    assert engine.totals.healed > before
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert problem.objective(result.x) / best - 1 < 1e-7


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_round(cluster: None, tmp_path: Path) -> None:
    """It kills itself while it computes; the round goes on without it, and it comes back for the next."""
    problem = whole()
    marker = tmp_path / "killed"

    def treacherous(clients: Any) -> fpdfp.losses.Losses:
        return Treacherous(whole().losses, clients, marker)

    with fpdfp.cohorts.Ray(treacherous, n_clients=6, actors=2) as engine:
        there = fpdfp.Problem(engine.losses(), problem.penalty, problem.linop)
        taking_part: list[int] = []
        result = fpdfp.solve(
            there, fpdfp.ShiftedPDFP(), rounds=150, evaluate_every=50, engine=engine,
            callbacks=[lambda run: taking_part.append(int((run.memory.version == run.round).sum()))],
        )  # fmt: skip
    assert marker.exists()
    assert engine.totals.absent >= 1
    assert taking_part[0] == 6
    assert taking_part[-1] == 3  # the others missed a round, and no more
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert problem.objective(result.x) / best - 1 < 1e-7


class Treacherous(Part):
    """Losses whose process is killed while it computes gradients."""

    def __init__(self, losses: Any, clients: Any, marker: Path) -> None:
        super().__init__(losses, clients)
        self.marker, self.calls = marker, 0

    def gradients(self, x: Any, clients: Any, batch_size: Any = None, draws: Any = None) -> Any:
        self.calls += 1
        if self.calls == 60 and 0 in self.chosen and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradients(x, clients, batch_size, draws)


class Slow(Part):
    """Losses that take a while now and then."""

    calls = 0

    def gradients(self, x: Any, clients: Any, batch_size: Any = None, draws: Any = None) -> Any:
        self.calls += 1
        if self.calls in (60, 120) and 0 in self.chosen:
            time.sleep(3.0)
        return super().gradients(x, clients, batch_size, draws)


class Broken(Part):
    """Losses whose gradients are no numbers now and then."""

    calls = 0

    def gradients(self, x: Any, clients: Any, batch_size: Any = None, draws: Any = None) -> Any:
        self.calls += 1
        gradients = super().gradients(x, clients, batch_size, draws)
        return gradients * np.nan if self.calls in (60, 80) and 0 in self.chosen else gradients


@pytest.mark.slow
def test_a_slow_worker_is_not_waited_for(cluster: None, caplog: pytest.LogCaptureFixture) -> None:
    problem = whole()
    with fpdfp.cohorts.Ray(lambda clients: Slow(whole().losses, clients), 6, actors=2, deadline=1.0) as engine:
        there = fpdfp.Problem(engine.losses(), problem.penalty, problem.linop)
        with caplog.at_level(logging.INFO, "fpdfp.engines"):
            result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=400, evaluate_every=400, engine=engine)
    assert "actor 0 is absent: no reply by the deadline" in caplog.text
    assert "actor 0 is absent: it is still busy with an earlier request" in caplog.text
    assert "a late reply of actor 0 is dropped" in caplog.text
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert problem.objective(result.x) / best - 1 < 1e-6


@pytest.mark.slow
def test_a_worker_that_sends_no_numbers(cluster: None, caplog: pytest.LogCaptureFixture) -> None:
    problem = whole()
    with fpdfp.cohorts.Ray(lambda clients: Broken(whole().losses, clients), 6, actors=2) as engine:
        there = fpdfp.Problem(engine.losses(), problem.penalty, problem.linop)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=200, evaluate_every=100, engine=engine)
        assert engine.totals.refused == 2
    assert "the reply of actor 0 is refused: its numbers are no longer finite" in caplog.text
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert problem.objective(result.x) / best - 1 < 1e-7


PROGRAM = """
import os, signal, sys
import fpdfp
from tests import helpers
path, at = sys.argv[1], int(sys.argv[2])
def killed(run):
    if run.round == at:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    problem = helpers.graph_guided(clients=6)
    fpdfp.solve(
        problem, fpdfp.ShiftedPDFP(batch_size=7), rounds=30, compressor=fpdfp.QSGD(7, norm="max"),
        checkpoint=path, checkpoint_every=4, callbacks=[killed], engine=fpdfp.cohorts.Ray(actors=2),
    )
"""


@pytest.mark.slow
def test_a_server_killed_with_its_actors_goes_on(cluster: None, tmp_path: Path) -> None:
    """With mini-batches, so that clients remember more than the server can follow: the checkpoint has it."""
    path = tmp_path / "run.npz"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), "14"], cwd=ROOT, capture_output=True, check=False, timeout=200
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    problem = whole()
    method, options = fpdfp.ShiftedPDFP(batch_size=7), {"rounds": 30, "compressor": QSGD}
    resumed = fpdfp.solve(problem, method, resume=path, engine=fpdfp.cohorts.Ray(actors=3), **options)
    same(fpdfp.solve(problem, method, **options), resumed)


@pytest.mark.slow
def test_tomography_with_views_at_several_actors(cluster: None) -> None:
    geometry = ConeBeam.circular((16, 16, 6), (24, 12), views=24, source=60.0, panel=100.0)
    volume = np.random.default_rng(0).random(geometry.volume)
    views = XRayTransform(geometry).apply(volume).astype(np.float32)
    owner = np.arange(24) % 4

    def some(clients: Any) -> fpdfp.losses.Losses:
        mine = np.flatnonzero(np.isin(owner, clients))
        return ProjectionLosses(views[mine], geometry.subset(mine), clients=owner[mine])

    whole = ProjectionLosses(views, geometry, clients=owner)
    penalty, linop = fpdfp.penalties.GroupL12(1e-3, axis=0), Gradient(geometry.volume)
    options: dict[str, Any] = {"rounds": 10, "compressor": fpdfp.QSGD(500), "clients_per_round": 3}
    here = fpdfp.solve(fpdfp.Problem(whole, penalty, linop), fpdfp.ShiftedPDFP(), **options)
    with fpdfp.cohorts.Ray(some, n_clients=4, actors=2) as engine:
        problem = fpdfp.Problem(engine.losses(), penalty, linop)
        there = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), engine=engine, **options)
    np.testing.assert_array_equal(here.x, there.x)
    assert here.bits_up == there.bits_up


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="load and n_clients belong together"):
        fpdfp.cohorts.Ray(load)
    with pytest.raises(TypeError, match="load must be a function of client numbers, got str"):
        fpdfp.cohorts.Ray("data", n_clients=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="load must be given for losses that are in the actors"):
        fpdfp.cohorts.Ray().losses()
    with pytest.raises(ValueError, match="actors"):
        fpdfp.cohorts.Ray(actors=0)


def test_data_beside_a_load_is_refused(engine: fpdfp.cohorts.Ray) -> None:
    with pytest.raises(ValueError, match=r"problem must have the losses of the engine \(engine.losses\(\)\)"):
        fpdfp.solve(whole(), rounds=3, engine=engine)


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs Ray: pip install ray"):
        fpdfp.solve(whole(), rounds=3, engine=fpdfp.cohorts.Ray())


def test_many_problems_with_folds(engine: fpdfp.cohorts.Ray) -> None:
    def solve(problem: fpdfp.Problem) -> Any:
        weights = (0.1, 0.03)
        problems = [fpdfp.Problem(problem.losses, fpdfp.penalties.L1(one)) for _ in range(3) for one in weights]
        return fpdfp.solve_many(problems, folds=2, held_out=[None, None, 0, 0, 1, 1], progress=False)

    expected, found = solve(whole()), solve(remote(engine))
    for name in ("x", "objective", "held_out_loss", "bits_up", "bits_down"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
