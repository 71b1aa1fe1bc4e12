"""The server's side: an app that solves a problem whose losses are at the sites."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._progress import format_duration
from fpdfp._units import format_bits
from fpdfp.engines.envelope import Envelope, open_envelope, seal
from fpdfp.engines.job import Job
from fpdfp.engines.options import RunOptions
from fpdfp.engines.remote_engine import RemoteEngine
from fpdfp.engines.result import Result
from fpdfp.engines.run import Run
from fpdfp.engines.solve import run as solve
from fpdfp.engines.transport import Tree
from fpdfp.errors import AbsentError, MessageError
from fpdfp.flower.records import from_record, to_record
from fpdfp.precondition.cost import Prefer
from fpdfp.problem import Problem

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    from fpdfp.compress import Compressor
    from fpdfp.methods.base import Method
    from fpdfp.penalties.base import Penalty

log = logging.getLogger("fpdfp.flower")
#: Seconds between two looks for replies.
PAUSE = 0.1
#: The longest reply before the rounds begin: second moments of 2,000 features, and room to spare.
LONGEST = 1 << 28
#: How far a clock may have gone back, in nanoseconds: a year.
AHEAD = 365 * 24 * 3600 * 10**9
#: What a reply may be longer than the arrays that it was asked for.
ROOM = 1 << 20


class FlowerEngine(RemoteEngine):
    """Sites that are SuperNodes of a Flower federation.

    A site is known by the name with which its key was registered at SuperLink; where nodes have no such names (in
    Flower's simulation) they are asked. A request is dropped by SuperLink when the deadline is over, so a node that was
    away does not work through what nobody waits for.

    Parameters
    ----------
    grid
        Flower's way to the nodes.
    sites
        The names of the sites, in the order of their clients' numbers.
    deadline, min_clients, patience, norm_bound
        See :class:`fpdfp.engines.remote_engine.RemoteEngine`.
    """

    slow = True
    pause = 3.0

    def __init__(
        self,
        grid: Grid,
        sites: Sequence[str],
        deadline: float | None = 60.0,
        min_clients: int = 1,
        patience: float = 3600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
    ) -> None:
        super().__init__(deadline, min_clients, patience, norm_bound)
        self._grid = grid
        self._sites = list(sites)
        self._nodes: dict[str, int] = {}
        self._named = False
        self._sequence = 0
        self.bytes_up = self.bytes_down = 0
        self.longest = LONGEST
        self._run = ""  # the run that this is the longest reply of, of any site
        self._began = time.monotonic()

    @property
    def names(self) -> Sequence[str]:
        return self._sites

    @property
    def elapsed(self) -> float:
        """Seconds by the clock since the server's app began, waiting and evaluations included."""
        return time.monotonic() - self._began

    def key(self, job: Job, run_id: str) -> str:
        # A reply is as long as its arrays at full precision, at most, and what is around them; so are gradients.
        shapes = [job.algorithm.model.shape, *job.algorithm.reply_shapes().values()]
        length = ROOM + 4 * 8 * len(job.place.numbers) * sum(map(math.prod, shapes))
        self._run, self.longest = run_id, max(length, self.longest if run_id == self._run else 0)
        return super().key(job, run_id)

    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        from flwr.app import Message

        until = time.monotonic() + (self.collector.patience if deadline is None else deadline)
        replies: dict[int, Any] = {}
        nodes = self._find({self._sites[site] for site in asked})
        messages, sites = [], []
        for site, request in asked.items():
            name = self._sites[site]
            if name not in nodes:
                replies[site] = AbsentError("no node of this name is online")
                continue
            self._sequence = max(self._sequence + 1, time.time_ns())
            parcel = seal(Envelope(self.run_id, self._sequence, name, request))
            self.bytes_down += len(parcel)
            left = max(1.0, until - time.monotonic())
            messages.append(Message(to_record(parcel), dst_node_id=nodes[name], message_type="query", ttl=left))
            sites.append((site, self._sequence))
        sent = dict(zip(self._grid.push_messages(messages), sites, strict=True)) if messages else {}
        for found, (site, sequence) in self._pull(sent, until):
            replies[site] = found if isinstance(found, Exception) else self._open(found, site, sequence)
        return replies

    def _pull(self, sent: dict[str, tuple[int, int]], until: float) -> list[tuple[Any, tuple[int, int]]]:
        """Return what came back by the deadline, for each of the messages that it answers."""
        arrived: list[tuple[Any, tuple[int, int]]] = []
        waiting = dict(sent)
        while waiting and time.monotonic() < until:
            for reply in self._grid.pull_messages(list(waiting)):
                about = waiting.pop(reply.metadata.reply_to_message_id, None)
                if about is None:
                    log.warning("a reply to nothing that was asked is dropped")
                elif reply.has_error():
                    arrived.append((AbsentError(f"Flower says: {reply.error.reason} (code {reply.error.code})"), about))
                else:
                    arrived.append((reply.content, about))
            time.sleep(PAUSE)
        return arrived

    def _open(self, content: Any, site: int, sequence: int) -> Any:
        """Return a site's reply, or why it is none."""
        try:
            parcel = from_record(content, self.longest)
            self.bytes_up += len(parcel)
            envelope = open_envelope(parcel)
            if (envelope.run, envelope.sequence, envelope.site) != (self.run_id, sequence, self._sites[site]):
                raise MessageError(
                    f"it is from {quote(envelope.site)} about request {envelope.sequence} of run "
                    f"{quote(envelope.run)}, not about request {sequence} of run {self.run_id}"
                )
            if "error" in envelope.contents:
                self._catch_up(envelope.contents.get("sequence"))
                raise MessageError(quote(envelope.contents["error"]))
            return envelope.contents
        except MessageError as error:
            return error
        except Exception as error:
            return MessageError(f"it cannot be read ({type(error).__name__})")

    def _catch_up(self, sequence: Any) -> None:
        """Where a site has seen later requests than this clock gives, go on from there."""
        if type(sequence) is int and self._sequence < sequence < time.time_ns() + AHEAD:
            self._sequence = sequence

    def _find(self, names: set[str]) -> dict[str, int]:
        """Return the nodes that are online, by the names of their sites."""
        nodes = list(self._grid.get_nodes())
        online = {str(node.name): int(node.node_id) for node in nodes if node.name}
        # What SuperLink says counts. A node is asked only where no node has a name: else one that was registered under
        # another could say that it is a site which happens to be offline.
        self._named = self._named or bool(online)
        if not self._named:
            return self._ask_names()
        return {name: online[name] for name in names & online.keys()}

    def _ask_names(self) -> dict[str, int]:
        """Ask nodes without registered names which sites they are."""
        from flwr.app import Message

        ids = [node for node in self._grid.get_node_ids() if node not in self._nodes.values()]
        parcel = seal(Envelope(self.run_id, 0, "*", {"hello": {}}))
        messages = [Message(to_record(parcel), dst_node_id=node, message_type="query") for node in ids]
        if messages:
            for reply in self._grid.send_and_receive(messages, timeout=self.collector.deadline):
                if not reply.has_error():
                    with contextlib.suppress(MessageError):
                        name = open_envelope(from_record(reply.content, ROOM)).site
                        self._nodes.setdefault(name, reply.metadata.src_node_id)
        return self._nodes


def quote(text: Any) -> str:
    """Return what a site says as it can stand in a log: one short line."""
    return ascii(str(text)[:200])


def server_app(
    penalty: Penalty,
    linop: Any = None,
    *,
    sites: Sequence[str],
    rounds: int = 30,
    method: Method | None = None,
    clients_per_round: int | None = None,
    compressor: Compressor | Mapping[str, Compressor | None] | Literal["auto"] | None = "auto",
    downlink: Compressor | Literal["auto"] | None = "auto",
    sampling: Literal["uniform", "importance"] | Sequence[float] = "uniform",
    weights: Any = "samples",
    seed: int = 0,
    tol: float | None = None,
    prefer: Prefer = "balanced",
    evaluate_every: int = 1,
    deadline: float = 60.0,
    min_clients: int | None = None,
    patience: float = 3600.0,
    norm_bound: float | Literal["auto"] | None = "auto",
    checkpoint: str | Path | None = None,
    output: str | Path | None = None,
    callbacks: Sequence[Callable[[Run], Any]] = (),
) -> ServerApp:
    """Return the server's app, which minimises f(x) + g(Bx) with f the mean loss of clients at the sites.

    An exchange over Flower takes seconds, so the objective is asked for along with the next round. The state is saved
    after every round: a server that is killed goes on from there when the app is run again, to the same bits.

    Parameters
    ----------
    penalty, linop
        g and B, as for :class:`fpdfp.Problem`; both must be objects of this package, or matrices, since sites are told
        about them.
    sites
        The names of the sites, which are those of their registered keys.
    rounds, method, clients_per_round, compressor, downlink, sampling, seed, tol, prefer, evaluate_every, callbacks
        As for :func:`fpdfp.solve`.
    weights
        As for :class:`fpdfp.Problem`, but ``"samples"`` by default: the pooled loss.
    deadline
        Seconds after which a round goes on without the sites that have not answered.
    min_clients
        How many clients' replies a round needs; by default more than half.
    patience
        Seconds after which a run gives up that still has too few.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened. By default a reply that is a
        thousand times larger than all it can be compared with counts as absent. None for no bound.
    checkpoint
        The file with the state of the run, with an absolute path; the app goes on from it where it is there.
    output
        A ``.npz`` file for x, the dual, the objective and the history.

    Notes
    -----
    ``flwr run --run-config`` may set ``rounds``, ``seed``, ``deadline``, ``checkpoint`` and ``output`` for one run,
    where the app's ``pyproject.toml`` names them.
    """
    from flwr.serverapp import ServerApp

    names = [str(site) for site in sites]
    if not names or len(set(names)) < len(names) or isinstance(sites, str):
        raise ValueError(f"sites must be different names, at least one, got {sites!r}")
    bound = None if norm_bound == "auto" else norm_bound
    for name, value in (("deadline", deadline), ("patience", patience), ("norm_bound", bound)):
        if value is not None:
            _checks.real(name, value, positive=True)
    if min_clients is not None:
        _checks.integer("min_clients", min_clients, at_least=1)
    options = RunOptions(
        rounds=rounds, clients_per_round=clients_per_round, compressor=compressor, downlink=downlink,
        sampling=sampling, seed=seed, tol=tol, prefer=prefer, evaluate_every=evaluate_every, callbacks=callbacks,
        checkpoint_every=1, progress=False,
    )  # fmt: skip
    # What may be set for one run.
    given: dict[str, Any] = {
        "rounds": rounds, "seed": seed, "deadline": deadline, "checkpoint": checkpoint, "output": output,
    }  # fmt: skip
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = given | {name: value for name, value in context.run_config.items() if name in given and value != ""}
        wait = float(chosen["deadline"] or deadline)
        engine = FlowerEngine(grid, names, wait, min_clients or 1, patience, norm_bound)
        problem = Problem(engine.losses(), penalty, linop, weights=weights)
        if min_clients is None:
            engine.collector.min_clients = (clients_per_round or problem.n_clients) // 2 + 1
        changed = dataclasses.replace(
            options, rounds=int(chosen["rounds"] or rounds), seed=int(chosen["seed"] or 0),
            checkpoint=chosen["checkpoint"], resume=bool(chosen["checkpoint"]),
            callbacks=[*options.callbacks, lambda run: say(run, engine)],
        )  # fmt: skip
        result = solve(problem, method, changed, engine)
        print(result, flush=True)
        print(
            f"time          {format_duration(engine.elapsed)} since the start, waiting for sites included", flush=True
        )
        print(
            f"parcels       {engine.bytes_up} bytes up, {engine.bytes_down} bytes down; {engine.totals.absent} absent, "
            f"{engine.totals.refused} refused, {engine.totals.healed} healed",
            flush=True,
        )
        if chosen["output"]:
            write(Path(str(chosen["output"])), result, engine)

    return app


def say(run: Run, engine: FlowerEngine) -> None:
    """Write a line for a round."""
    last, sent = run.history.last(), run.traffic
    objective = f"{last['objective']:.10g}" if last["round"] == run.round else "not evaluated"
    print(
        f"round {run.round}: objective {objective}, {format_bits(sent.up)} up, {format_bits(sent.down)} down in all, "
        f"{format_duration(engine.elapsed)} since the start",
        flush=True,
    )


def write(path: Path, result: Result, engine: FlowerEngine) -> None:
    """Write the outcome of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = {
        "status": result.status, "message": result.message, "rounds": result.rounds, "objective": result.objective,
        **result.traffic.totals, "traffic": dict(result.traffic), "bytes_up": engine.bytes_up,
        "bytes_down": engine.bytes_down, "absent": engine.totals.absent, "refused": engine.totals.refused,
        "healed": engine.totals.healed, "relative_gap": result.certificate.relative_gap, "elapsed": engine.elapsed,
    }  # fmt: skip
    columns = {f"history/{name}": column for name, column in result.history.items()}
    arrays: dict[str, Any] = {"x": result.x, "v": result.v, "summary": np.array(json.dumps(summary)), **columns}
    np.savez(path, **arrays)
