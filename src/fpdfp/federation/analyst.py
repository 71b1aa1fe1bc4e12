"""An analyst's side of a federation: what asks its sites, carries runs to them, and repeats an analysis later.

A fit of a formula writes ``analysis.json`` into its run folder: the estimator with its parameters, the formula, the
sites, the releases of all sides and a digest of each site's data (:func:`fpdfp.federation.agent.digest_of_data`). So it
can be repeated, with the same digits, or the difference is named.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.collector import Tree, compare_answers
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.record import plan_name
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.requests import Job
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import AbsentError, ArgumentError, MessageError, RefusalError
from fpdfp.federation import keys
from fpdfp.federation.cohort import Schemas, TableCohort
from fpdfp.federation.connection import Connection, Status, Usage
from fpdfp.federation.framing import CONVERSATION, ECHO, NUMBER, UNKNOWN, Sender
from fpdfp.federation.keys import Identity
from fpdfp.federation.questions import ModelSpec, SchemaQuestion, dump, read_answer, write
from fpdfp.federation.text import log, printable, read_name, refuse_unprintable
from fpdfp.losses.base import Losses
from fpdfp.methods.base import Method
from fpdfp.precondition.cost import TYPICAL, Network
from fpdfp.problem import Problem
from fpdfp.runs.folder import SavedRun, load, write_json
from fpdfp.runs.recorder import Recorder, linear_model, versions
from fpdfp.traffic import Carried, count_exchange

if TYPE_CHECKING:
    from fpdfp.federation.private import Privacy


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

    usage: Usage

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = LONGEST) -> dict[str, Any]:
        """Send sites their requests; return by the deadline what came: bytes, or AbsentError."""

    def status(self) -> Status:
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
        latency, bandwidth = self.link.usage.latency, self.link.usage.bandwidth
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
        self.slow = (self.link.usage.latency or 0.0) > SLOW
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


class Federation(TableCohort):
    """The sites of a study, for anyone who may ask them: the coordinator, or an analyst elsewhere.

    ::

        federation = fpdfp.Federation("study")
        model = fpdfp.FederatedLogisticRegression(fpdfp.Graph(0.01)).fit(federation, "died ~ age + C(stage)")

    Parameters
    ----------
    study
        The folder of a study, or the one that ``fpdfp federation join`` has made of an analyst's invitation.
    sites
        The names of the sites to ask, in the order in which their sums are added; by default all of the study, sorted,
        as ``groups=`` sorts them in one table.
    deadline
        Seconds after which a round continues without the sites that have not answered, if there are ``min_sites``
        others.
    min_sites
        How many sites a round needs; by default all.
    patience
        Seconds after which a run gives up that still has too few.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened. ``"auto"`` counts a reply as
        absent that is far larger than all it can be compared with; None for no bound.
    run
        The name of the folder of the next run, under ``runs``; by default the time. Where a run of this name was
        interrupted, the same fit continues with it, to the same bits.
    privacy
        For sites of the level ``private``: what each fit may cost, and what is public (:class:`fpdfp.Privacy`).
    """

    privacy: Privacy | None = None

    def __init__(
        self,
        study: Path | str,
        *,
        sites: Sequence[str] | None = None,
        deadline: float = 60.0,
        min_sites: int | None = None,
        patience: float = 3600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
        run: str | None = None,
        privacy: Privacy | None = None,
    ) -> None:
        inner = Path(study) / "analyst"
        self.identity = Identity(inner if (inner / "identity.toml").is_file() else Path(study))
        if self.identity.about.role != "analyst":
            raise ArgumentError("study", f"must be the folder of a study or an analyst, but {study} belongs to a site")
        self.privacy: Privacy | None = privacy
        self._settle(Connection(self.identity), Path(study), deadline, min_sites, patience, norm_bound, run)
        self._chosen = None if sites is None else list(sites)

    def _settle(
        self, link: Link, folder: Path, deadline: float, min_sites: int | None, patience: float,
        norm_bound: float | Literal["auto"] | None, run: str | None,
    ) -> None:  # fmt: skip
        """Keep the connection to the sites, and how they are asked."""
        self.run = None if run is None else read_name("run", run)
        self.folder = folder
        self._deadline = _checks.real("deadline", deadline, positive=True)
        self._patience = _checks.real("patience", patience, positive=True)
        self._min_sites = None if min_sites is None else _checks.integer("min_sites", min_sites, at_least=1)
        self._norm_bound = norm_bound
        self._link, self._asking = link, Asking(link)
        self._names: list[str] | None = None
        self._level: str | None = None

    def __repr__(self) -> str:
        return f"Federation({str(self.folder)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection to the hub; it is made again when it is needed."""
        self._link.close()

    @property
    def names(self) -> list[str]:
        """The sites that are asked, in the order in which their sums are added."""
        if self._names is None:
            known = [site.name for site in self.status().sites]
            unknown = [name for name in self._chosen or () if name not in known]
            if unknown or (self._chosen is not None and len(set(self._chosen)) < len(self._chosen)):
                raise ArgumentError("sites", f"must be different ones of {', '.join(known)}, got {self._chosen}")
            self._choose(sorted(known) if self._chosen is None else self._chosen)
        return list(self._names or ())

    def _choose(self, names: list[str]) -> None:
        """Ask these sites from now on."""
        self._names = names
        self._asking.sites = tuple(names)

    def without(self, sites: Collection[str]) -> Federation:
        """Return the federation without some sites, over the same connection."""
        made = copy.copy(self)
        made._asking = Asking(self._link)
        made._choose([name for name in self.names if name not in sites])
        made._whole = None if self._whole is None else self._whole.without(sites)
        made.edges = self.edges
        return made

    def _take(self, condition: str) -> Federation:
        made = copy.copy(self)
        made.edges = self.edges
        return made

    def propose(self, name: str | None = None, definition: str | None = None) -> Any:
        """Propose a variable to all sites, and return a data frame with the state of each proposal at each site.

        Comparisons, arithmetic between columns, knots of splines and definitions may be used only where a site has
        approved them: ``federation.propose("elderly", "age >= 65")``, and then ``"died ~ elderly"`` or
        ``federation.filter("elderly")`` once all say yes. Definitions make a column: ``cut(age, [40, 60])`` its
        intervals, ``recode(smoking, {"former": "yes"})`` other values, ``years(birth, visit)`` a duration (also
        ``months`` and ``days``), ``convert(weight, "kg", {"lb": 0.4536})`` one unit. Formulas have them by name, or as
        they were proposed. Without a name nothing is proposed.
        """
        import pandas

        came = self._ask_all({"kind": "propose", "name": name, "text": definition})
        return pandas.DataFrame(came).rename_axis("variable")

    def exchange(self, run: str, trees: Mapping[str, Tree]) -> dict[str, Any]:
        """Ask sites in a run something that is needed of every one of them; return their replies by name."""
        return gather_answers(self._asking, run, trees, self._patience)

    def _ask_all(self, tree: Tree, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Ask some sites the same, by default all; return their replies by name."""
        return self.exchange(secrets.token_hex(8), dict.fromkeys(self.names if names is None else names, tree))

    def budget(self) -> Any:
        """Return a data frame with what each site has spent of its budget, and what is left, in analyses.

        An analysis is a model, a curve, a test, or a path or cross-validation; what belongs to one, such as standard
        errors, a certificate or an evaluation, is free. Sites with ``level = "private"`` say it in ε.
        """
        import pandas

        table = pandas.DataFrame(self._ask_all({"kind": "budget"})).T.infer_objects()
        if "left" not in table:
            table["left"] = table["allowed"] - table["spent"]
        return table.rename_axis("site")

    @property
    def usage(self) -> Usage:
        """The traffic and waiting time so far, with the latency and the bandwidth that were measured."""
        return self._link.usage

    def status(self) -> Status:
        """Return which sites are online, and which certificates end soon."""
        found = self._link.status()
        return found._replace(warnings=[*found.warnings, *self._warnings()])

    def _warnings(self) -> list[str]:
        own = self.identity.warn()
        return [own] if own else []

    def describe(self) -> Schemas:
        """Return the columns of all sites side by side: types, units, levels, as far as each site's policy allows."""
        for line in self.status().warnings:
            log.warning("%s", line)
        return Schemas(self.names, self.ask_each(SchemaQuestion()).answers)

    def at_level(self) -> TableCohort:
        if self._level is None:
            count_exchange("level")
            came = self._ask_all({"kind": "budget"})
            levels = {name: str(one.get("level", "filter")) for name, one in came.items()}
            if len(set(levels.values())) > 1:
                each = ", ".join(f"{level} at {name}" for name, level in levels.items())
                raise ArgumentError("federation", f"must have sites of one level, got {each}")
            self._level = next(iter(levels.values()))
        if self._level == "filter":
            return self
        if self._level == "private":
            from fpdfp.federation.private import PrivateCohort

            return PrivateCohort(self, self.privacy)
        from fpdfp.federation.masked import MaskedCohort

        if self.rows:
            raise ArgumentError("condition", f"must be none: sites of the level {self._level} answer about all rows")
        return MaskedCohort(self)

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        rows = {"rows": self.rows} if self.rows else {}
        came = self._ask_all(write(question) | ({"each": True} if each else {}) | rows, names)
        answers = []
        for name in names:
            try:
                answers.append(read_answer(question, came[name]))
            except MessageError as error:
                raise MessageError(f"the answer of {name} cannot be used: {error}") from None
        compare_answers(names, answers)
        return answers

    def losses(self, spec: ModelSpec) -> Losses:
        """Return the losses of a model, a client for each site, in their order; the data stays where it is."""
        engine = FederationEngine(
            self._asking,
            self.names,
            dump(spec),
            deadline=self._deadline,
            min_clients=self._min_sites,
            patience=self._patience,
            norm_bound=self._norm_bound,
            rows=self.rows,
        )
        names = [*spec.design.names, *(["Intercept"] if spec.intercept else [])]
        model = linear_model(
            names, intercept=len(names) - 1 if spec.intercept else None, classes=spec.classes or None, standardized=None
        )
        engine.recorder = lambda problem: self.record(problem, model=model)
        return engine.losses()

    def record(self, problem: Problem, **options: Any) -> Recorder:
        """Return what writes the folder of a run, under ``runs`` in the study's folder; fits make one themselves.

        Parameters
        ----------
        problem
            The problem, with losses of this federation.
        options
            Those of :class:`fpdfp.runs.Recorder`.
        """
        name = self.run or datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")[:-3]
        keys.make_private_folder(self.folder / "runs")
        return Recorder(self.folder / "runs" / name, problem, **options)


#: The file of a run folder from which a fit can be repeated.
FILE = "analysis.json"
FORMAT = 1


def write_analysis(
    folder: Path, engine: Any, estimator: str, given: Mapping[str, Any], objects: Mapping[str, str], fit: Sequence[str],
    rows: str = "",
) -> None:  # fmt: skip
    """Write down from what a fit of a formula can be repeated, to the rows that meet a condition."""
    try:
        said = {site.name: site for site in engine.link.status().sites}
    except (OSError, MessageError):
        said = {}  # the fit is worth more than this
    tree = {
        "format": FORMAT,
        "estimator": estimator,
        "parameters": {name: given[name] for name in given if name not in fit},
        "fit": {name: given[name] for name in given if name in fit},
        "objects": dict(objects),
        "rows": rows,
        "sites": list(engine.names),
        "versions": versions(),
        "releases": {name: getattr(said.get(name), "software", None) or "unknown" for name in engine.names},
        "data": {name: getattr(said.get(name), "data", None) or "unknown" for name in engine.names},
    }
    write_json(folder / FILE, tree)


class Repetition(NamedTuple):
    """A fit that was repeated.

    Attributes
    ----------
    estimator
        The fitted estimator.
    folder
        The new run folder.
    same
        Whether all coefficients have the same bits.
    differences
        What differs between then and now, in words.
    """

    estimator: Any
    folder: Path
    same: bool
    differences: tuple[str, ...]

    def __str__(self) -> str:
        result = "all coefficients have the same digits" if self.same else "the coefficients differ"
        return "\n".join([f"{self.folder}: {result}", *(f"  {one}" for one in self.differences)])


def repeat(folder: Path | str, federation: Federation, **objects: Any) -> Repetition:
    """Fit again what a run folder is about, and compare.

    Parameters
    ----------
    folder
        The run folder.
    federation
        The federation, or another of the same sites.
    objects
        Parameters of the estimator that are objects, such as ``penalty=fpdfp.Graph(...)``; the error names them.
    """
    import fpdfp

    folder = Path(folder)
    before = read_analysis(folder)
    missing = [f"{name}={text}" for name, text in before["objects"].items() if name not in objects]
    if missing:
        raise ArgumentError("objects", f"must give what was an object then: {', '.join(missing)}")
    fit = dict(before["fit"])
    parameters = {
        name: fpdfp.models.read_parameter(value, name) for name, value in before["parameters"].items()
    } | objects
    if before.get("rows"):
        federation = federation.filter(before["rows"])  # type: ignore[assignment]
    fit |= {name: objects.pop(name) for name in ("weights",) if name in objects}
    parameters = {name: value for name, value in parameters.items() if name not in fit}
    federation.run = f"{folder.name[:48]}-again-{secrets.token_hex(3)}"
    estimator = getattr(fpdfp, before["estimator"])(**parameters)
    estimator.fit(federation, fit.pop("formula"), **fit)
    after = estimator.run_folder_
    differences = compare(folder, after)
    same = np.array_equal(_point(load(folder)), _point(load(after)))
    if not same and not differences:
        differences = ["nothing that is written down differs"]
    return Repetition(estimator, after, same, tuple(differences))


def read_analysis(folder: Path) -> dict[str, Any]:
    """Return what a run folder says about its analysis; refuse one that cannot be repeated, by name."""
    path = folder / FILE
    if not path.is_file():
        raise ArgumentError("folder", f"must hold a finished fit of a formula, but {path} is missing")
    tree: dict[str, Any] = json.loads(path.read_bytes())
    if tree.get("format") != FORMAT:
        raise ArgumentError("folder", f"{path} has format {tree.get('format')}; this release reads format {FORMAT}")
    return tree


def compare(before: Path, after: Path) -> list[str]:
    """Say in what two run folders of an analysis differ: releases, sites, data, the method, and the coefficients."""
    then, now = read_analysis(before), read_analysis(after)
    found = []
    for words, name in (("release", "versions"), ("release at", "releases"), ("data of", "data")):
        for key in sorted({*then[name], *now[name]}):
            old, new = then[name].get(key), now[name].get(key)
            if old != new:
                found.append(f"{words} {key}: {old}, and now {new}")
    if then["sites"] != now["sites"]:
        found.append(f"sites: {', '.join(then['sites'])}, and now {', '.join(now['sites'])}")
    runs = load(before), load(after)
    for name in ("method", "seed", "rounds", "status"):
        old, new = (run.info.get(name) for run in runs)
        if old != new:
            found.append(f"{name}: {old}, and now {new}")
    x, y = map(_point, runs)
    if x.shape != y.shape:
        found.append(f"coefficients: {x.size}, and now {y.size}")
    elif not np.array_equal(x, y):
        scale = max(float(abs(x).max(initial=0.0)), np.finfo(float).tiny)
        found.append(f"coefficients: by up to {float(abs(x - y).max()) / scale:.1e} of the largest")
    return found


def _point(run: SavedRun) -> Array:
    if run.x is None:
        raise ArgumentError("folder", f"must hold a finished run, but {run.path} has no result")
    return run.x
