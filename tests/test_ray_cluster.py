"""A Ray cluster of several nodes, each with a raylet of its own, all on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fpdfp
from tests.test_ray import load, remote, same, whole

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Ray leaves sockets, files and processes of its own to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def nodes() -> Iterator[tuple[Any, list[Any]]]:
    """A head without CPUs, and two nodes on which actors run; each has room for the actor of the other."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        workers = [cluster.add_node(num_cpus=2) for _ in range(2)]
        actors_find = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}}
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=actors_find)
        yield cluster, workers
    finally:
        ray.shutdown()
        cluster.shutdown()


def place_of(actor: Any) -> str:
    """The node on which an actor runs."""
    return str(ray.get(actor.node.remote()))


def test_a_node_that_is_lost(nodes: tuple[Any, list[Any]], caplog: pytest.LogCaptureFixture) -> None:
    """The bits are those of a simulation; when a node is lost, its actor is started anew on the other, and is told
    what its clients remembered."""
    cluster, workers = nodes
    problem = whole()
    with fpdfp.cohorts.Ray(load, n_clients=6, actors=2) as engine:
        assert len({place_of(actor) for actor in engine.actors}) == 2
        there = fpdfp.solve(remote(engine), fpdfp.ShiftedPDFP(), rounds=20, engine=engine)
        same(fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20), there)

        def lose(run: fpdfp.Run) -> None:
            if run.round == 20:
                cluster.remove_node(workers[1], allow_graceful=False)

        result = fpdfp.solve(
            remote(engine), fpdfp.ShiftedPDFP(), rounds=200, evaluate_every=100, engine=engine, callbacks=[lose]
        )
        assert len({place_of(actor) for actor in engine.actors}) == 1
        assert engine.totals.absent >= 1
        assert engine.totals.healed >= 1
    assert "its process died" in caplog.text
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert problem.objective(result.x) / best - 1 < 1e-6
