"""A cohort whose sites show sums alone: to all that is above it is one site, which has the rows of all of them.

Every question that adds up is asked of all members at once; each answers under a mask that only the sum over all
members removes (:mod:`fpdfp.privacy.masks`). So a fit takes the same way as everywhere: the design of a formula, one
client whose loss is the mean over all rows, and the rounds of any method on it. Everything else is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.collector import Tree
from fpdfp.cohorts.local import Clients, LocalParticipants
from fpdfp.cohorts.losses import Duals, LossBounds, LossFacts, Part, SumsAt, probe
from fpdfp.cohorts.many_points import Evaluations
from fpdfp.cohorts.question import Question, tuple_kind
from fpdfp.cohorts.remote import RemoteEngine, RemoteLosses
from fpdfp.cohorts.requests import write as write_part
from fpdfp.cohorts.serialization import pack
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.cohort import Schemas, TableCohort
from fpdfp.federation.questions import (
    CalibrationQuestion,
    ConcordanceQuestion,
    DescriptionQuestion,
    EvaluationQuestion,
    HistogramQuestion,
    LogRankQuestion,
    ModelSpec,
    MomentsQuestion,
    ProportionalityQuestion,
    RiskQuestion,
    Schema,
    SchemaQuestion,
    SumsQuestion,
    dump,
    read_answer,
    write,
)
from fpdfp.federation.table import ModelRows, make_losses
from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Coded, Level, Survival
from fpdfp.linops import LinOp
from fpdfp.losses import Losses
from fpdfp.methods.base import Method
from fpdfp.precondition.base import full
from fpdfp.privacy.fixed_point import WIDE, from_wide
from fpdfp.privacy.masks import Membership, add_up
from fpdfp.problem import Problem
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws
from fpdfp.survival import Times
from fpdfp.traffic import Carried, payload

if TYPE_CHECKING:
    from fpdfp.engines.run import Run as RunState
    from fpdfp.precondition.cost import Network

#: A gap that is sent for an infinite one, and what is surely at least one of these in a sum.
ENDLESS, BEYOND = 2.0**59, 2.0**58
#: The questions about losses that sites answer, since their answers add up as they are.
ANSWERED = frozenset({
    "sums_at", "duals", "information", "overdispersion", "jeffreys", "spread", "many_points", "dual_sums",
    "held_scores",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class About:
    """The subject of an answer, for the rule that nothing of it varies at fewer than three members.

    Attributes
    ----------
    design, classes
        A design with the classes of its response.
    columns, edges, factors, by
        Columns and factors of a description, edges of histograms, and the column that makes groups.
    response_of, times
        Times of events, and those at which rows are counted; None for a log-rank test.
    combined
        Whether products of columns are sent, so that combinations of them must vary too.
    response
        Whether the response is part of the answer.
    """

    design: Design | None = None
    classes: tuple[Level, ...] = ()
    columns: tuple[str, ...] = ()
    edges: list[Array] = dataclasses.field(default_factory=list)
    factors: tuple[Coded, ...] = ()
    by: Coded | None = None
    response_of: Survival | None = None
    times: Array | None = None
    combined: bool = False
    response: bool = True


def digest(tree: Any) -> bytes:
    """Return a digest of a tree."""
    return hashlib.sha256(pack(tree)).digest()


def about_of(question: Question) -> About:
    """Return what a question about tables is about; refuse one whose answers do not add up."""
    if isinstance(question, SumsQuestion):
        return About(question.design, question.classes)
    if isinstance(question, MomentsQuestion):
        return About(question.design, combined=not question.diagonal, response=False)
    if isinstance(question, DescriptionQuestion):
        return About(columns=question.columns, factors=question.factors, by=question.by)
    if isinstance(question, HistogramQuestion):
        return About(columns=question.columns, edges=question.edges, by=question.by)
    if isinstance(question, RiskQuestion) and question.times is None:
        raise RefusalError("at the level 'sums' rows are counted at given times: times=…")
    if isinstance(question, RiskQuestion):
        return About(by=question.group, response_of=question.response, times=question.times)
    if isinstance(question, LogRankQuestion):
        return About(by=question.group, response_of=question.response)
    if isinstance(question, AT_POINTS):
        return About(question.spec.design, question.spec.classes, combined=True)
    raise RefusalError(
        f"at the level 'sums' sites do not answer {question.name!r}: it is about each site by itself, as its "
        "baseline hazard is"
    )


#: Questions about tables at the coefficients of a model.
AT_POINTS = (ProportionalityQuestion, ConcordanceQuestion, EvaluationQuestion, CalibrationQuestion)


# --- Answers as numbers that add up -----------------------------------------------------------------------------------


def to_sums(question: Question, tree: Tree) -> Tree:
    """Return the tree of an answer as one of numbers that add up; refuse what a site has put together by its rows."""
    if isinstance(question, MomentsQuestion):
        n, mean, scatter = tree["count"], tree["mean"], tree["scatter"]
        square = n * (mean**2 if scatter.ndim == 1 else np.outer(mean, mean))
        return {"count": n, "mean": n * mean, "scatter": scatter + square}
    if isinstance(question, DescriptionQuestion):
        _refuse_hidden(
            bool(tree["withheld"].any()), "few rows of this site have a value of their own, or none, in a column"
        )
        n, mean = tree["known"], tree["means"]
        told = tree | {"means": n * mean, "scatters": tree["scatters"] + n * mean**2}
        return {name: one for name, one in told.items() if name != "withheld"}
    if isinstance(question, HistogramQuestion):
        coarse = any((low != high).any() for low, high in zip(tree["least"], tree["most"], strict=True))
        _refuse_hidden(coarse, "a cell has few rows of this site: use fewer edges")
        return {"least": tree["least"], "totals": tree["totals"]}
    if isinstance(question, RiskQuestion):
        lost = np.zeros(tree["left"].shape) if tree["lost"] is None else tree["lost"]
        flags = {"rounded": int(tree["rounded"]), "halved": int(tree["lost"] is not None)}
        return {name: tree[name] for name in ("start", "entered", "left", "events")} | {"lost": lost} | flags
    if isinstance(question, CalibrationQuestion):
        return {name: one for name, one in tree.items() if one is not None}
    if isinstance(question, EvaluationQuestion):  # cells and calibrations are a site's own
        told = {name: tree[name] for name in ("rows", "sums", "totals")}
        told |= {"cells": len(tree["predictors"]), "hidden": int("accuracy" in tree["withheld"])}
        return told | {"more": [to_sums(question, one) for one in tree["more"]]}
    return tree


def _refuse_hidden(hidden: bool, why: str) -> None:
    if hidden:
        raise RefusalError(f"an answer of this site cannot be added to other sites' answers: {why}")


def from_sums(question: Question, sums: Tree) -> Tree:
    """Return the tree of the answer of all sites together."""
    if isinstance(question, MomentsQuestion):
        n, mean = sums["count"], sums["mean"] / sums["count"]
        square = n * (mean**2 if sums["scatter"].ndim == 1 else np.outer(mean, mean))
        scatter = sums["scatter"] - square
        if scatter.ndim == 2:
            return {"count": n, "mean": mean, "scatter": scatter}
        return {"count": n, "mean": mean, "scatter": np.maximum(scatter, 0.0)}
    if isinstance(question, DescriptionQuestion):
        n = sums["known"]
        mean = np.divide(sums["means"], n, out=np.zeros(n.shape), where=n > 0)
        none = np.zeros(len(question.columns) + len(question.factors), dtype=np.int64)
        return sums | {"means": mean, "scatters": np.maximum(sums["scatters"] - n * mean**2, 0.0), "withheld": none}
    if isinstance(question, HistogramQuestion):
        return {"least": sums["least"], "most": sums["least"], "totals": sums["totals"]}
    if isinstance(question, RiskQuestion):
        found = {name: sums[name] for name in ("start", "entered", "left", "events")}
        lost = sums["lost"] if sums["halved"] else None
        return found | {"times": question.times, "delayed": False, "rounded": sums["rounded"] > 0, "lost": lost}
    if isinstance(question, CalibrationQuestion):
        return sums | {"meat": None, "null_deviance": None}
    if isinstance(question, EvaluationQuestion):
        return {
            "rows": sums["rows"], "sums": sums["sums"], "totals": sums["totals"], "areas": np.zeros((0, 3)),
            "predictors": [], "residuals": [], "own": np.zeros(0), "own_sums": [], "hits": None,
            "withheld": [name for name, one in (("auc", "cells"), ("accuracy", "hidden")) if sums[one]],
            "more": [from_sums(question, one) for one in sums["more"]],
        }  # fmt: skip
    return sums


def split(tree: Any) -> tuple[Any, list[Array]]:
    """Return the form of a tree, the same at all sites, and its numbers in order.

    >>> split({"rows": 3, "sums": np.array([1.0, 2.0])})
    ({'rows': 'i', 'sums': ['<f8', [2]]}, [array([3.]), array([1., 2.])])
    """
    if isinstance(tree, dict):
        pairs = {name: split(one) for name, one in tree.items()}
        return {name: form for name, (form, _) in pairs.items()}, [x for _, numbers in pairs.values() for x in numbers]
    if isinstance(tree, list | tuple):
        parts = [split(one) for one in tree]
        return [["list"], *(form for form, _ in parts)], [x for _, numbers in parts for x in numbers]
    if isinstance(tree, bool) or not isinstance(tree, int | float | np.ndarray):
        raise RefusalError("an answer holds more than numbers, so it cannot be added to other sites' answers")
    if isinstance(tree, np.ndarray):
        return [tree.dtype.str, list(tree.shape)], [tree.astype(np.float64).reshape(-1)]
    return "i" if isinstance(tree, int) else "f", [np.array([tree], dtype=np.float64)]


def merge(form: Any, numbers: Array) -> Any:
    """Return the tree of a form and numbers; raise MessageError where these do not belong together.

    >>> merge({"rows": "i", "sums": ["<f8", [2]]}, np.array([3.0, 1.0, 2.0]))
    {'rows': 3, 'sums': array([1., 2.])}
    """
    taken = 0

    def take(form: Any) -> Any:
        nonlocal taken
        if isinstance(form, dict):
            return {name: take(one) for name, one in form.items()}
        if isinstance(form, list) and form and form[0] == ["list"]:
            return [take(one) for one in form[1:]]
        if form in ("i", "f"):
            taken += 1
            number = float(numbers[taken - 1]) if taken <= len(numbers) else 0.0
            return round(number) if form == "i" else number
        if not (isinstance(form, list) and len(form) == 2 and form[0] in TYPES and isinstance(form[1], list)):
            raise MessageError("a masked sum has an invalid form")
        if not all(type(one) is int and 0 <= one <= len(numbers) for one in form[1]):
            raise MessageError("the form of a masked sum has other numbers than the sum")
        count = int(np.prod(form[1], dtype=np.int64))
        part, taken = numbers[taken : taken + count], taken + count
        kind = np.dtype(form[0])
        if len(part) < count:
            raise MessageError("the form of a masked sum has other numbers than the sum")
        # sums of short integers and of floats in single precision need not fit into their types
        return (np.rint(part).astype(np.int64) if kind.kind in "iub" else part.copy()).reshape(form[1])

    found = take(form)
    if taken != len(numbers):
        raise MessageError("the form of a masked sum has other numbers than the sum")
    return found


#: Types of arrays in answers.
TYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "|u1", "<u2", "|i1", "<i2", "|b1")


def answer_tree(answer: Any) -> Tree:
    """Return the arrays of an answer about losses, without the leading axis of one client, by name."""
    fields = answer._asdict() if hasattr(answer, "_asdict") else vars(answer)
    found = {name: np.asarray(one, dtype=np.float64) for name, one in fields.items() if one is not None}
    if "gap" in found and not isinstance(answer, tuple):
        found["gap"] = np.where(found["gap"] < 0, ENDLESS, found["gap"])  # −1 stands for an infinite one
    return found


# --- The cohort -------------------------------------------------------------------------------------------------------


class Exchanging(Protocol):
    """The transport of requests to sites: :class:`fpdfp.Federation`."""

    @property
    def names(self) -> list[str]:
        """The names of the sites."""

    def exchange(self, run: str, trees: Mapping[str, Tree]) -> dict[str, Any]:
        """Ask sites; return their replies."""


class Members:
    """The sites of a federation at the level ``sums`` or ``private``, in one run.

    Parameters
    ----------
    federation
        The federation; all its sites must have the same level and members.

    Attributes
    ----------
    exchanges, up, down
        How often all sites were asked, and the bits of what was masked and of what was asked.
    """

    def __init__(self, federation: Exchanging) -> None:
        self.federation, self.names = federation, list(federation.names)
        self.run = secrets.token_hex(16)
        self.exchanges = self.up = self.down = 0
        self._membership: Membership | None = None
        self._statements: dict[str, dict[str, Tree]] = {}

    def exchange(self, tree: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask all sites the same, with something of its own for each perhaps; return their replies."""
        self.exchanges += 1
        return self.federation.exchange(self.run, {name: {**tree, **(own or {}).get(name, {})} for name in self.names})

    def meet(self) -> Membership:
        """Have the members make keys of this run with each other; two exchanges, once."""
        if self._membership is None:
            keys = self.exchange({"kind": "join"})
            members = {tuple(reply.get("members", ())) for reply in keys.values()}
            if members != {tuple(sorted(self.names))}:
                raise ArgumentError(
                    "federation", f"must have the members of each site's policy, got {sorted(self.names)}"
                )
            pairs = {name: [reply["public"], reply["signature"]] for name, reply in keys.items()}
            self.exchange({"kind": "meet", "keys": pairs})
            # who they are is the sites' business: for sums it counts that no one is missing
            self._membership = Membership({name: reply["public"] for name, reply in keys.items()})
        return self._membership

    def schemas(self) -> list[Schema]:
        """Return what policies declare."""
        asked = SchemaQuestion()
        replies = self.exchange(write(asked))
        return [read_answer(asked, replies[name]) for name in self.names]

    def add_up(self, replies: Mapping[str, Any], bits: int) -> Any:
        """Return the sum of masked words."""
        width, words = 2 if bits == WIDE else 1, {}
        for name, reply in replies.items():
            found = np.frombuffer(reply["words"], "<u8")
            if len(found) % width:
                raise MessageError(f"the words of {name} are not whole")
            words[name] = found.reshape(-1, 2) if bits == WIDE else found
        self.up += 8 * sum(one.nbytes for one in words.values())
        return add_up(words, self.meet(), bits)

    def sum(self, about: About, ask: Tree) -> Any:
        """Return the tree of numbers that all members together answer."""
        self.meet()
        replies = self.exchange({"kind": "sum", "ask": ask}, self._state(dump(about), ask))
        self.down += len(self.names) * payload(ask)
        forms = [reply.get("form") for reply in replies.values()]
        if any(form != forms[0] for form in forms):
            raise MessageError("sites must answer a question in the same form: have they the same release?")
        numbers = from_wide(self.add_up(replies, WIDE))
        if not len(numbers) or numbers[0] != 0:
            raise RefusalError("a number of some site is too large to be added up exactly: scale the columns")
        return merge(forms[0], numbers[1:])

    def _state(self, about: Tree, ask: Tree) -> dict[str, Tree]:
        """Return for each member what the others have stated to it, asked once for each design."""
        key = digest(about).hex()
        if key not in self._statements:
            told = self.exchange({"kind": "varying", "ask": ask})
            self._statements[key] = {
                name: {"statements": {other: told[other]["statements"][name] for other in self.names if other != name}}
                for name in self.names
            }
        return self._statements[key]


class MaskedCohort(TableCohort):
    """The sites of a federation at the level ``sums``, as one site.

    Parameters
    ----------
    federation
        The federation.
    """

    level = "sums"

    def __init__(self, federation: Exchanging) -> None:
        self.members = Members(federation)
        *others, last = self.members.names
        self.title = f"{', '.join(others)} and {last} together"

    def __repr__(self) -> str:
        return f"MaskedCohort({', '.join(self.members.names)})"

    @property
    def names(self) -> list[str]:
        return [self.title]

    def without(self, sites: Collection[str]) -> TableCohort:
        """Refuse: sums over memberships that differ by a site are that site's."""
        raise RefusalError(
            "the members of a masked sum are fixed: two sums over memberships that differ by one site would be that "
            'site\'s numbers, so on_refusal="exclude" is not possible'
        )

    def describe(self) -> Schemas:
        """Return the columns that the policies of all sites declare."""
        return Schemas(self.members.names, self.members.schemas())

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        if isinstance(question, SchemaQuestion):
            return [self._declared(question)]
        tree = from_sums(question, self.members.sum(about_of(question), write(question)))
        return [read_answer(question, tree)]

    def _declared(self, question: SchemaQuestion) -> Schema:
        """Return the schema that all policies declare alike."""
        found = self.members.schemas()
        for name, one in zip(self.members.names, found, strict=True):
            if one != found[0]:
                raise ArgumentError(
                    "federation", "must have sites that declare the same columns, types, units and levels in their "
                    f"policies; {name} and {self.members.names[0]} differ",
                )  # fmt: skip
        wanted = question.columns
        columns = tuple(one for one in found[0].columns if wanted is None or one.name in wanted)
        return Schema(None, columns)

    def losses(self, spec: ModelSpec) -> Losses:
        return MaskedEngine(self, spec).losses()


class MaskedClients(Clients):
    """All rows of a masked cohort as one client."""

    at_once = 1 << 26

    def __init__(self, engine: MaskedEngine, problem: Problem) -> None:
        super().__init__(problem)
        self._engine = engine

    @property
    def names(self) -> Sequence[str]:
        return self._engine.names

    def take_part(self, run: RunState) -> LocalParticipants:
        return MaskedParticipants(run)

    def _add_up(self, question: Question, clients: IntArray, seed: int, times: Array | None) -> tuple[Any, int]:
        if times is not None and not (times == 1).all():
            raise RefusalError("at the level 'sums' no site is excluded from a sum, or counted more than once")
        before = self._engine.members.up
        if question.name in ANSWERED:
            tree = self._engine.ask(question, getattr(self.problem.losses, "features", b""))
            if isinstance(question, Evaluations) and tree.get("slopes", np.zeros(0)).size:
                tree["slopes"][~question.sent_entries(tree["slopes"].shape[-1])] = np.nan
            sums = tuple_kind("Sums", tuple(tree))(**tree)
        else:  # what is no sum of what sites know is made of sums, as by one client that has all rows
            sums = question.add_up(question.answer(self.problem.local(clients)), np.arange(1))
        return sums, self._engine.members.up - before

    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        raise RefusalError("at the level 'sums' no site shows results of its own")


class MaskedParticipants(LocalParticipants):
    """One client in a run, whose numbers are sums over sites: a reply is exact, and is counted as sites send it."""

    rehearses = False

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        run.downlink = run.kept = None  # the server's messages do not leave it but as points

    def _transmit(self, reply: Any, draws: Draws) -> tuple[Any, int]:
        return reply, 0

    def work(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        members = self.run.problem.losses.engine.members  # type: ignore[attr-defined]
        before = members.up
        clients, state, memory, work, _ = super().work(k, clients, message)
        return clients, state, memory, work, members.up - before


class MaskedEngine(RemoteEngine):
    """The way from the losses of a model to the members of a masked cohort.

    Parameters
    ----------
    cohort
        The members.
    spec
        The model.
    """

    def __init__(self, cohort: MaskedCohort, spec: ModelSpec) -> None:
        super().__init__()
        self.cohort, self.members, self.spec = cohort, cohort.members, spec
        self._tree, self._about = dump(spec), About(spec.design, spec.classes, combined=True)
        self._rows = 0

    @property
    def names(self) -> Sequence[str]:
        return self.cohort.names

    @property
    def carried(self) -> Carried | None:
        usage = getattr(self.members.federation, "usage", None)
        return None if usage is None else Carried(usage.up, usage.down)

    @property
    def network(self) -> Network | None:
        return None

    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        raise NotImplementedError("at the level 'sums' sites are asked questions whose answers add up")

    def add_options(self, problem: Problem, options: RunOptions, method: Method | None) -> RunOptions:
        for name, usual in (("compressor", "auto"), ("downlink", "auto")):
            if getattr(options, name) not in (usual, None):
                raise ArgumentError(name, "must be None at the level 'sums', where sums are exact")
        if options.clients_per_round not in (None, 1) or options.drop_out > 0:
            raise ArgumentError("clients_per_round", "must be None at the level 'sums': all members take part")
        assert isinstance(problem.losses, MaskedLosses)
        problem.losses.exact = method is not None and not method.traits.needs_hessians
        return options

    def ask(self, question: Question, features: bytes = b"") -> Tree:
        """Return the sums that a question about losses needs, of some features or of all."""
        ask: Tree = {
            "kind": "losses",
            "spec": self._tree,
            "question": {question.name: write_part(question, parcels.dump)},
        }
        ask |= {"rows": self._rows} if self._rows else {}
        ask |= {"features": np.frombuffer(features, np.int64)} if features else {}
        found: Tree = self.members.sum(self._about, ask)
        return found

    def clients(self, problem: Problem) -> Any:
        return MaskedClients(self, problem)

    def ask_facts(self, features: bytes = b"") -> MaskedLosses:
        found = self.ask(SumsAt(("facts",)))
        rows, unknown = found["facts"]
        self._rows = round(float(rows))
        return MaskedLosses(self, self._rows, None if unknown else found["gradient"] / self._rows)

    def at(self, x: Array, parts: Sequence[Any], features: bytes = b"") -> dict[str, Array]:
        raise NotImplementedError

    def constants(self, factor: LinOp | None, batch_size: int | None, features: bytes = b"") -> Array:
        raise NotImplementedError

    def duals(
        self, x: Array, ask: Mapping[str, Any], weights: Array, shapes: Mapping[str, Shape], parts: Sequence[Any] = (),
        features: bytes = b"",
    ) -> tuple[dict[str, Array], dict[str, Array]]:  # fmt: skip
        found = self.ask(Duals(b"", weights=weights, x=x, **ask), features)
        if set(found) != set(shapes) or any(found[name].shape != shape for name, shape in shapes.items()):
            raise MessageError(f"sums near a point must be {sorted(shapes)}")
        if "gap" in found and float(found["gap"]) >= BEYOND:
            found["gap"] = np.array(np.inf)
        return found, {}


class MaskedLosses(RemoteLosses):
    """The mean loss over the rows of all members, as the loss of one client.

    Parameters
    ----------
    engine, rows, features
        The way to the members, the number of rows, and the features, all by default.
    diagonal
        The diagonal of a bound of the Hessian; None if there is no such bound.
    """

    engine: MaskedEngine
    #: Whether a method's steps depend on the Lipschitz constant: then the whole bound of the Hessian is asked for.
    exact = False

    def __init__(self, engine: MaskedEngine, rows: int, diagonal: Array | None, features: bytes = b"") -> None:
        like = _like(engine.spec)
        like = like.restrict(np.frombuffer(features, np.int64)) if features else like
        zero = np.zeros(1)
        facts = LossFacts(
            like.family, like.shape, "<f8", np.array([rows]), like.form, False,
            like.hessians(np.zeros(like.shape), np.arange(0)) is not None, like.has_duals, like.can_restrict,
            like.is_convex, like.feature_digests, [np.asarray(one, np.float64) for one in like.constants()], zero, zero,
        )  # fmt: skip
        # a trace is at least the largest eigenvalue
        largest = np.array([np.inf if diagonal is None else diagonal.sum()])
        super().__init__(engine, [facts], [LossBounds(largest, like.least_convexity)], features)
        self.answers._facts.clear()  # values at the probe were not asked
        self._diagonal = diagonal
        #: What was asked at the last point: a run that has needed a Hessian needs one at the next point too.
        self._wanted: tuple[Part, ...] = ("value", "gradient")
        self._known: dict[tuple[str, bytes], Array] = {}
        self._started: dict[str, Tree] = {}

    def lipschitz(self) -> Array:
        if self.exact and self.smooth:
            return np.linalg.eigvalsh(self._bound())[-1:]
        return self._lipschitz

    def lipschitz_in(self, factor: LinOp) -> Array:
        if not self.smooth or len(self.shape) > 1:
            return self.lipschitz() * factor.squared_norm
        bound = self._bound()
        columns = np.stack([factor.adjoint(bound @ factor.apply(one)) for one in np.eye(len(bound))])
        return np.linalg.eigvalsh((columns + columns.T) / 2)[-1:]

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        raise RefusalError("at the level 'sums' mini-batches are not available")

    def _bound(self) -> Array:
        """Return the matrix that bounds the Hessian everywhere, or its diagonal times the number of features."""
        try:
            found: Array = full(self._begin("curvature")["matrix"])
        except RefusalError:  # sites do not tell products of two columns
            assert self._diagonal is not None
            found = np.diag(self._diagonal * len(self._diagonal))
        return found

    def _ask(self, part: Part, x: Array) -> Array:
        """Return a sum at a point; with it comes what was asked at the point before."""
        point = np.ascontiguousarray(x, np.float64)
        key = point.tobytes()
        if (part, key) not in self._known:
            new = not any(one == key for _, one in self._known)
            parts = tuple(dict.fromkeys([*(self._wanted if new else ()), part]))
            matrices = [one for one in parts if one in ("hessian", "information")]
            parts = tuple(one for one in parts if one not in matrices) + tuple(matrices[-1:])
            self._wanted = parts if new else tuple(dict.fromkeys([*self._wanted, part]))
            found = self.engine.ask(SumsAt(parts, point), self.features)
            outside = bool(found["outside"][0])
            given = {"value": found["value"], "gradient": found["gradient"].reshape(-1, *self.shape)}
            told: dict[tuple[str, bytes], Array] = {}
            for one in parts:
                array = given[one][0] if one in given else full(found["matrix"])
                if outside:
                    array = np.full_like(array, np.inf if one == "value" else np.nan)
                told[one, key] = array
            self._known = dict([*self._known.items(), *told.items()][-16:])
        return self._known[part, key]

    def _begin(self, part: Part) -> Tree:
        """Return sums that are about no point, asked once."""
        if part not in self._started:
            self._started[part] = self.engine.ask(SumsAt((part,)), self.features)
        return self._started[part]

    def values(self, x: Array, clients: IntArray) -> Array:
        return np.array([float(self._ask("value", x))] * len(clients))

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        if batch_size is not None:
            raise RefusalError("at the level 'sums' mini-batches are not available")
        point = x if x.shape == self.shape else x[0]
        return np.repeat(self._ask("gradient", point)[None], len(clients), axis=0)

    def rows_at(self, x: Array, *, gradients: bool) -> Array:
        self.check(x, np.arange(0), shared=True)
        if np.array_equal(x, probe(self.shape, self.dtype)):
            x = np.zeros_like(x)  # as at the filter: at a point that no one has looked at nothing is sent
        return self._ask("gradient" if gradients else "value", x)[None]

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        if not len(clients):
            return super().hessians(x, clients)
        return self._ask("hessian", x)[None]

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        if not len(clients):
            return super().hessians(x, clients)
        return self._ask("information", x)[None]

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array] | None:
        if level:  # each site would be at a level of its own
            return None
        try:
            found = self._begin("start")
        except RefusalError:  # too few rows of a site decide about it: the fit starts at zero
            return None
        if found["outside"][0]:
            return None
        return found["gradient"].reshape(1, *self.shape), full(found["matrix"])[None]

    def curvatures(self, clients: IntArray) -> Array | None:
        return full(self._begin("curvature")["matrix"])[None]

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        return None if self._diagonal is None else self._diagonal[None]

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        bounds = self.curvatures(clients)
        return None if bounds is None else np.asarray(vectors @ bounds)

    def slope_bounds(self, clients: IntArray) -> Array | None:
        if not len(clients):
            return super().slope_bounds(clients)
        squares: Array = self._begin("slopes")["gradient"][None]
        return np.sqrt(squares)

    def restrict(self, features: IntArray) -> MaskedLosses:
        whole = np.frombuffer(self.features, np.int64) if self.features else np.arange(self.shape[-1])
        diagonal = None if self._diagonal is None else self._diagonal[features]
        made = MaskedLosses(self.engine, int(self.sizes.sum()), diagonal, whole[features].tobytes())
        made.exact = self.exact
        return made


def _like(spec: ModelSpec) -> Any:
    """Return losses of the model on invented rows, which have its public attributes."""
    width = len(spec.design.names) + int(spec.intercept)
    X, y = np.ones((2, width)), np.array([0.0, 1.0]) if spec.classes else np.ones(2)
    if spec.family != "Cox":
        return make_losses(spec, [ModelRows(X, y)])
    times = Times(np.array([1.0, 2.0]), np.ones(2, dtype=bool), np.full(2, -np.inf))
    return make_losses(spec, [ModelRows(X, y, times=times, strata=np.zeros(2, dtype=np.int64))])
