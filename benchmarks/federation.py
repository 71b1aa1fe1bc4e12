"""Rounds per second of a federation over mutual TLS on one machine: 3 sites, 20 sites, and 200 connections.

    python -m benchmarks.federation [--rounds 200]

The problem is that of ``benchmarks.engines``: 26,053 rows of 123 features, graph-guided logistic regression, everyone
takes part in every round. The hub is a process of its own, as ``fpdfp federation serve`` starts it; sites are agents
with the real desk (audit log and ledger on the disk, a policy that refuses nothing), 3 in a process each, 20 and 200 in
4 processes. For each: rounds per second with FPDFP (20 levels) and with the default method, without evaluations; bytes
a round between the analyst and the hub against the bits that the method counts; and with 3 sites the time to relative
errors of 1e-3 and (default method) 1e-6, evaluations included, beside the same in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from benchmarks import _federation as trial
from benchmarks import _tools
from fpdfp.federation.agent import Agent
from fpdfp.federation.analyst import Asking, FederationEngine
from fpdfp.federation.connection import Connection, enrol
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.hub import serve
from fpdfp.federation.keys import Study, read_invitation
from fpdfp.federation.policy import Policy
from fpdfp.federation.rehearse import free_port

RUNS = 3
#: Sites, and processes that they are in.
SIZES = {3: 3, 20: 4, 200: 4}
MODEL = {"benchmark": 1}


def clients_of(sites: int) -> int:
    """20 clients, or one for each site where there are more."""
    return max(sites, trial.CLIENTS)


def losses_of(sites: int) -> fpdfp.losses.Losses:
    """The losses of all clients; with 200, each of the 20 is ten."""
    X, y, owner = trial.data()
    if sites > trial.CLIENTS:
        owner = np.sort(np.random.default_rng(2).integers(0, sites, trial.ROWS))
    return fpdfp.losses.Logistic(X, y, clients=owner, l2=trial.L2)


class Table:
    """A site's table that has but one model."""

    def __init__(self, losses: Any) -> None:
        self._losses = losses

    def losses(self, spec: Any, site: str = "") -> Any:
        return self._losses

    def answer(self, question: Any, check: Any = None, site: str = "") -> Any:
        raise ValueError("nothing but requests of runs is measured")


class Questions:
    """Reads the only model that there is."""

    def read_spec(self, tree: Any) -> Any:
        return tree

    def read_question(self, tree: Any) -> Any:
        return tree

    def write_answer(self, answer: Any) -> Any:
        return answer


class InTurn:
    """The desk of one of several sites in a process: they answer one after the other.

    All at once they would hand Python's interpreter to each other at every kernel, which costs more than the answers.
    """

    turn = threading.Lock()

    def __init__(self, desk: RequestGuard) -> None:
        self._desk, self.audit = desk, desk.audit

    def answer(self, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
        with self.turn:
            reply: dict[str, Any] = self._desk.answer(asked, asker)
            return reply


def attend(folder: Path, sites: int, first: int, last: int) -> None:
    """Run some of the sites in this process until it is ended."""
    losses = losses_of(sites)
    parts = np.array_split(np.arange(clients_of(sites)), sites)
    for site in range(first, last):
        name = f"site{site}"
        invitation = read_invitation(folder / "study" / "invitations" / f"invitation-{name}.zip")
        identity = enrol(invitation, folder / name)
        table = Table(losses.part(parts[site]))
        desk = RequestGuard(name, table, Policy.allowing_everything(), folder / name / "desk", Questions())
        threading.Thread(target=Agent(identity, InTurn(desk)).run, daemon=True).start()
    threading.Event().wait()


@contextlib.contextmanager
def running(sites: int) -> Iterator[tuple[Connection, list[str]]]:
    """Within this, a hub and its sites run."""
    processes: list[subprocess.Popen[bytes]] = []
    names = [f"site{site}" for site in range(sites)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = Study.create(folder / "study", names, hosts=["127.0.0.1"], port=free_port())
        link = Connection(study.analyst)

        def start(what: str, *arguments: Any) -> None:
            program = f"import sys; from pathlib import Path; from benchmarks.federation import {what}; {what}"
            program += f"({', '.join(map(str, arguments))})"
            processes.append(subprocess.Popen([sys.executable, "-c", program]))

        try:
            start("run_hub", repr(str(study.folder)))
            edges = np.linspace(0, sites, SIZES[sites] + 1).astype(int)
            time.sleep(2.0)
            for first, last in itertools.pairwise(edges):
                start("attend", f"Path({name!r})", sites, first, last)
            until = time.monotonic() + 300
            while sum(site.online for site in link.status(60.0).sites) < sites:
                if time.monotonic() > until or any(process.poll() is not None for process in processes):
                    raise RuntimeError("not all sites have come")
                time.sleep(0.2)
            yield link, names
        finally:
            link.close()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)


def run_hub(folder: str) -> None:
    """Run the hub in this process."""
    serve(Study(folder), "127.0.0.1")


def at_sites(link: Connection, names: list[str]) -> tuple[FederationEngine, fpdfp.Problem]:
    """Return an engine, and the problem whose losses are at its sites."""
    engine = FederationEngine(Asking(link), names, MODEL)
    return engine, fpdfp.Problem(engine.losses(), trial.penalty(), trial.graph())


def measure(link: Connection, names: list[str], rounds: int) -> dict[str, Any]:
    """Rounds per second of each method, and bytes a round."""
    found: dict[str, Any] = {}
    for method in trial.METHODS:
        engine, there = at_sites(link, names)
        seconds: list[float] = []
        wire: list[float] = []
        counted: list[float] = []
        for run in range(RUNS + 1):
            count = rounds if run else max(5, rounds // 10)
            before, marks = link.usage.up + link.usage.down, list[Any]()

            def mark(run: fpdfp.Run, marks: list[Any] = marks) -> None:
                marks.append((time.perf_counter(), link.usage.up + link.usage.down, run.traffic.up + run.traffic.down))

            fpdfp.solve(
                there, rounds=count, evaluate_every=count, engine=engine, callbacks=[mark], **trial.options(method)
            )
            # From the end of the first round to the end of the last but one: nothing but rounds.
            (t0, w0, c0), (t1, w1, c1) = marks[0], marks[-2]
            seconds.append((t1 - t0) / (len(marks) - 2))
            wire.append((w1 - w0) / (len(marks) - 2))
            counted.append((c1 - c0) / 8 / (len(marks) - 2))
            assert before < w0
        found[method] = {
            "seconds": statistics.median(seconds[1:]),
            "rounds_per_second": 1.0 / statistics.median(seconds[1:]),
            "wire_bytes": statistics.median(wire[1:]),
            "counted_bytes": statistics.median(counted[1:]),
            "absent": engine.totals.absent,
        }
    found["latency"] = link.usage.latency
    return found


def say(what: str) -> None:
    """Say what is measured now."""
    print(f"{time.strftime('%H:%M:%S')} {what} …", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each run with 3 sites; fewer with more")
    parser.add_argument("--sites", type=int, choices=list(SIZES), action="append", help="only these numbers of sites")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    times: dict[str, Any] = {}
    for sites in arguments.sites or list(SIZES):
        say(f"{sites} sites")
        with running(sites) as (link, names):
            found[str(sites)] = measure(link, names, max(20, arguments.rounds * 3 // sites))
            say(f"{found[str(sites)]}")
            if sites == 3:
                here = trial.problem()
                best = fpdfp.minimize(here, tol=1e-10).objective
                for method in trial.METHODS:
                    say(f"time to an error, {method}")
                    engine, there = at_sites(link, names)
                    times[method] = {
                        "in-process": trial.times_to(here, method, best),
                        "federation": trial.times_to(there, method, best, engine),
                    }
    header = ["sites", "method", "ms a round", "rounds/s", "bytes a round on the wire", "counted bytes", "ratio"]
    rows = [
        [
            sites, method, f"{1e3 * one['seconds']:.2f}", f"{one['rounds_per_second']:.1f}", f"{one['wire_bytes']:.0f}",
            f"{one['counted_bytes']:.0f}", f"{one['wire_bytes'] / one['counted_bytes']:.2f}",
        ]
        for sites, each in found.items() for method, one in each.items() if method in trial.METHODS
    ]  # fmt: skip
    _tools.show("A federation over mutual TLS on one machine", header, rows)
    if times:
        header = ["method", "error", "rounds", "s in one process", "s in the federation"]
        rows = [
            [
                method, error, str(one["rounds"]), f"{one['seconds']:.3g}",
                f"{each['federation'][error]['seconds']:.3g}" if error in each["federation"] else "not reached",
            ]
            for method, each in times.items() for error, one in each["in-process"].items()
        ]  # fmt: skip
        _tools.show("Time to an error, with an evaluation after every round; 3 sites", header, rows)
    _tools.finish({"federation": found, "federation_times": times})


if __name__ == "__main__":
    main()
