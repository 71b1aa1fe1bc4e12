"""The engine of a federation: it carries the requests of a run to the sites, and returns their replies."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from fpdfp.cohorts.collector import Tree
from fpdfp.cohorts.record import plan_name
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.requests import Job
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.engines.options import RunOptions
from fpdfp.errors import AbsentError, ArgumentError, MessageError, RefusalError
from fpdfp.federation.connection import Measured, Usage
from fpdfp.federation.framing import CONVERSATION, ECHO, NUMBER, UNKNOWN, Sender
from fpdfp.federation.repeat import write_analysis
from fpdfp.federation.text import printable, refuse_unprintable
from fpdfp.methods.base import Method
from fpdfp.precondition.cost import TYPICAL, Network
from fpdfp.problem import Problem
from fpdfp.runs.recorder import Recorder
from fpdfp.traffic import Carried

#: The longest reply before the rounds begin: second moments of 2,000 features, and room to spare.
LONGEST = 1 << 28
#: What a reply may be longer than the arrays that it was requested.
ROOM = 1 << 20
#: How far a clock may have gone back, in nanoseconds: a year.
AHEAD = 365 * 24 * 3600 * 10**9
#: An exchange that takes longer than this carries all that can be asked at once, in seconds.
SLOW = 0.03


class Link(Protocol):
    """The way to the sites: a connection to a hub, or Flower's grid."""

    measured: Measured
    usage: Usage

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = LONGEST) -> dict[str, Any]:
        """Send sites their requests; return by the deadline what came: bytes, or AbsentError."""

    def status(self) -> dict[str, Any]:
        """Return what is known of the sites."""

    def close(self) -> None:
        """End it; the next exchange begins anew."""


class Asking:
    """Asks sites, and numbers its requests so that sites recognise new ones.

    Parameters
    ----------
    link
        The way to the sites.

    Attributes
    ----------
    sites
        The sites whose answers are added up, which each of them receives; none for all that are asked.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sites: tuple[str, ...] = ()
        #: The models that sites were told, by site and digest; one that has forgotten a model is told again.
        self.models: set[tuple[str, str]] = set()
        self._sequence = 0
        self._sender = Sender()

    def ask(
        self, run: str, trees: Mapping[str, Mapping[str, Any]], timeout: float, limit: int = LONGEST
    ) -> dict[str, Any]:
        """Ask sites by name; return the replies of those that have answered in time: dictionaries, or exceptions."""
        until, envelope = time.monotonic() + timeout, {"run": run, "sites": len(self.sites) or len(trees)}
        whole = {name: {**tree, **envelope, "site": name} for name, tree in trees.items()}
        replies = self._ask_once(whole, timeout, limit)
        unknown = [name for name, one in replies.items() if isinstance(one, dict) and one.get(UNKNOWN)]
        if unknown:
            for name in unknown:
                self._sender.forget(name, whole[name])
            again = self._ask_once({name: whole[name] for name in unknown}, max(0.0, until - time.monotonic()), limit)
            replies = {name: one for name, one in replies.items() if name not in unknown} | again
        return replies

    def _ask_once(self, whole: Mapping[str, dict[str, Any]], timeout: float, limit: int) -> dict[str, Any]:
        # A number higher than all before it, of this process and, as long as the clock continues, of those before it.
        self._sequence = sequence = (self._sequence or time.time_ns()) + 1
        asked = {name: self._sender.shorten(name, tree, sequence) for name, tree in whole.items()}
        came = self.link.exchange({name: pack(tree) for name, tree in asked.items()}, timeout, limit)
        replies = {name: self._open(parcel, asked[name], name) for name, parcel in came.items()}
        for name, reply in replies.items():
            if isinstance(reply, dict | RefusalError) and "sequence" in asked[name]:
                self._sender.note_answer(name, whole[name], sequence)
        return replies

    def _open(self, parcel: Any, asked: Mapping[str, Any], site: str) -> Any:
        """Return a site's reply, or what is wrong with it."""
        if isinstance(parcel, Exception):
            return parcel
        try:
            tree = unpack(parcel)
            refuse_unprintable(tree)
            echo = ECHO if "sequence" in asked else (CONVERSATION, NUMBER)
            if not isinstance(tree, dict) or any(tree.get(name) != asked[name] for name in echo):
                raise MessageError(f"it is not about request {asked[echo[1]]} of {asked[echo[0]]!r} at {site}")
            if "error" in tree:
                self._catch_up(tree.get("seen"))
                raise MessageError(printable(tree["error"]))
            if "refused" in tree:
                return RefusalError(printable(tree["refused"]))
            return tree
        except MessageError as error:
            return error
        except Exception as error:
            return MessageError(f"it cannot be read ({type(error).__name__})")

    def _catch_up(self, seen: Any) -> None:
        """Continue the numbering from the latest request that a site has seen."""
        if type(seen) is int and self._sequence < seen < time.time_ns() + AHEAD:
            self._sequence = seen


class FederationEngine(RemoteEngine):
    """Sites of a federation, reached through its hub.

    Parameters
    ----------
    asking
        What asks the sites.
    sites
        Their names, in the order of their clients' numbers.
    model
        What sites make their losses from, as a tree of a parcel; it is sent to a site once.
    rows
        The condition of the rows that are asked about; empty for all rows.
    deadline, patience, norm_bound
        See :class:`fpdfp.cohorts.remote.RemoteEngine`.
    min_clients
        How many clients' replies a round needs; by default the clients of all sites.

    Attributes
    ----------
    refusals
        What sites have refused in this run: their names and what they said.
    recorder
        What makes the recorder of a run, None for no run folders.
    run_folder
        The folder of the run that began last, None before there was one.
    """

    pause = 1.0

    def __init__(
        self,
        asking: Asking,
        sites: Sequence[str],
        model: Mapping[str, Any],
        *,
        deadline: float | None = 60.0,
        min_clients: int | None = None,
        patience: float = 3600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
        rows: str = "",
    ) -> None:
        if not sites:
            raise ArgumentError("sites", "must be names, at least one")
        super().__init__(deadline, len(sites) if min_clients is None else min_clients, patience, norm_bound)
        self._asking, self._sites, self._model = asking, list(sites), dict(model)
        self._rows = {"rows": rows} if rows else {}
        self._digest = hashlib.sha256(pack({**self._model, **self._rows})).hexdigest()[:32]
        self._longest, self._run = LONGEST, ""
        #: The name of the path or cross-validation that was declared last.
        self._plan = ""
        self.refusals: list[tuple[str, str]] = []
        self.slow = False
        self.recorder: Callable[[Problem], Recorder] | None = None
        self.run_folder: Path | None = None

    @property
    def names(self) -> Sequence[str]:
        return self._sites

    @property
    def link(self) -> Link:
        """The way to the sites, which knows what was sent, and how long it took."""
        return self._asking.link

    @property
    def carried(self) -> Carried:
        return Carried(self.link.usage.up, self.link.usage.down)

    @property
    def network(self) -> Network | None:
        # To powers of two, so that a run that continues later is likely to choose the same.
        latency, bandwidth = self.link.measured.latency, self.link.measured.bandwidth
        if latency is None:
            return None
        bits = TYPICAL.up if bandwidth is None else _round(8.0 * bandwidth)
        return Network(_round(latency), bits, TYPICAL.down if bandwidth is None else bits)

    def key(self, job: Job, run_id: str) -> str:
        # A reply is as long as its arrays at full precision, at most, and what is around them; so are gradients. Of all
        # sites the largest counts.
        shapes = [job.algorithm.model.shape, *job.algorithm.reply_shapes().values()]
        length = ROOM + 4 * 8 * len(job.place.numbers) * sum(map(math.prod, shapes))
        self._longest, self._run = max(length, self._longest if run_id == self._run else 0), run_id
        return super().key(job, run_id)

    def add_options(self, problem: Problem, options: RunOptions, method: Method | None) -> RunOptions:
        if self.recorder is None or any(isinstance(one, Recorder) for one in options.callbacks):
            return options
        if getattr(problem.losses, "features", b""):
            return options  # of some columns alone, as the null model: no run of its own, and not that of this name
        recorder = self.recorder(problem)
        self.run_folder = recorder.folder
        added: dict[str, Any] = {"callbacks": [*options.callbacks, recorder]}
        if options.checkpoint is None:
            # A name that is given again continues with the run that it is the name of.
            added |= {"checkpoint": recorder.checkpoint, "resume": True}
        return dataclasses.replace(options, **added)

    def note_fit(
        self, estimator: str, given: Mapping[str, Any], objects: Mapping[str, str], fit: Sequence[str]
    ) -> None:
        """Write into the folder of the run that has ended from what its fit can be repeated.

        ``given`` are the parameters of the estimator, and the arguments of ``fit``, which it names; ``objects`` are
        those that JSON cannot have, in words.
        """
        if self.run_folder is not None:
            write_analysis(self.run_folder, self, estimator, given, objects, fit, **self._rows)

    def declare(self, problems: int, folds: int) -> None:
        self._plan = plan_name()
        tree = {"kind": "plan", "plan": self._plan, "problems": problems, "folds": folds}
        gather_answers(self._asking, self.run_id, dict.fromkeys(self._sites, tree), self.collector.patience)

    def begin(self, *args: Any, **options: Any) -> None:
        # By now there was at least one exchange.
        self.slow = (self.link.measured.latency or 0.0) > SLOW
        super().begin(*args, **options)

    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        until = time.monotonic() + (self.collector.patience if deadline is None else deadline)
        trees = {}
        for site, request in asked.items():
            tree = {"kind": "request", "model": self._digest, "plan": self._plan, "request": request}
            # A sum over one site is the result of that site.
            alone = request.get("each") or len(self._sites) == 1
            trees[self._sites[site]] = tree | ({"each": True} if alone else {}) | self._rows
        before = {name: dataclasses.astuple(self.link.usage.sites[name]) for name in trees}
        told = self._asking.models
        for name in trees:
            trees[name] |= {} if (name, self._digest) in told else {"spec": self._model}
        came = self._asking.ask(self.run_id, trees, until - time.monotonic(), self._longest)
        told |= {(name, self._digest) for name, reply in came.items() if isinstance(reply, dict)}
        lacking = [name for name, reply in came.items() if isinstance(reply, dict) and reply.get("needs_model")]
        if lacking:
            whole = {name: trees[name] | {"spec": self._model} for name in lacking}
            again = self._asking.ask(self.run_id, whole, max(0.0, until - time.monotonic()), self._longest)
            came = {name: reply for name, reply in came.items() if name not in lacking} | again
        for site, name in self._numbered(asked):
            used, (waited, up, down) = self.link.usage.sites[name], before[name]
            record = self.collector.records[site]
            record.waited += used.waited - waited
            record.bytes_up, record.bytes_down = record.bytes_up + used.up - up, record.bytes_down + used.down - down
        replies = {site: self._reply(came[name]) for site, name in self._numbered(asked) if name in came}
        self._heed_refusals(asked, replies)
        return replies

    def _numbered(self, asked: Mapping[int, Tree]) -> list[tuple[int, str]]:
        return [(site, self._sites[site]) for site in asked]

    def _reply(self, came: Any) -> Any:
        if isinstance(came, dict):
            reply = came.get("reply")
            return reply if isinstance(reply, dict) else MessageError("it is not a reply to a request of a run")
        return came

    def _heed_refusals(self, asked: Mapping[int, Tree], replies: dict[int, Any]) -> None:
        """Note what sites refuse, and end the run if it cannot continue without them: to ask again is of no use."""
        refused = {site: reply for site, reply in replies.items() if isinstance(reply, RefusalError)}
        if not refused:
            return
        self.refusals += [(self._sites[site], str(reply)) for site, reply in refused.items()]
        rounds_only = all(set(asked[site]) <= {"key", "job", "features", "mask", "epoch", "update"} for site in refused)
        if not rounds_only or len(self._sites) - len(refused) < min(self.collector.min_clients, len(self._sites)):
            raise refusal({self._sites[site]: reply for site, reply in refused.items()})
        for site, reply in refused.items():
            replies[site] = MessageError(str(reply))


def refusal(refused: Mapping[str, Exception]) -> RefusalError:
    """Return the error that names which sites refuse, and why."""
    said = {name: str(why) for name, why in refused.items()}
    return RefusalError("; ".join(f"{name} refuses: {why}" for name, why in said.items()), said)


def gather_answers(asking: Asking, run: str, trees: Mapping[str, Tree], timeout: float) -> dict[str, Any]:
    """Ask all sites something that is needed of every one; return their replies, or raise an error that names some."""
    came = asking.ask(run, trees, timeout)
    refused = {name: reply for name, reply in came.items() if isinstance(reply, RefusalError)}
    if refused:
        raise refusal(refused)
    missing = {
        name: came.get(name, AbsentError(f"no reply within {timeout:g} s"))
        for name in trees
        if not isinstance(came.get(name), dict)
    }
    if missing:
        kind = MessageError if all(isinstance(one, MessageError) for one in missing.values()) else AbsentError
        raise kind("; ".join(f"{name}: {why}" for name, why in missing.items()))
    return {name: came[name].get("reply") for name in trees}


def _round(number: float) -> float:
    """Return the nearest power of two."""
    return float(2.0 ** round(math.log2(max(number, 1e-9))))
