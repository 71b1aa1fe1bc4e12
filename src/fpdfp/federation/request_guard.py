"""The gate of a site: it reads a request, has the guard check it, computes, counts, holds and logs.

It knows nothing of how requests arrive. It holds the site's data, and the last few models that were asked about.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import datetime
import hashlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.question import questions
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack
from fpdfp.cohorts.site import Site
from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.federation import guard, outbox
from fpdfp.federation.approvals import Approvals
from fpdfp.federation.audit import Audit
from fpdfp.federation.budget import Budget
from fpdfp.federation.descriptives import group_rows, values_of
from fpdfp.federation.keys import Asker
from fpdfp.federation.policy import IDENTIFIERS, Policy, matches, refuse
from fpdfp.federation.questions import LogRankQuestion
from fpdfp.federation.rollback import say_full
from fpdfp.federation.text import log
from fpdfp.formula.coding import Design, InverseWeights
from fpdfp.formula.parsing import parse_condition
from fpdfp.formula.tree import columns_of
from fpdfp.losses.base import Losses

#: How many models a site keeps ready, and how many seconds it waits for a person to release a reply.
MODELS, WAIT = 4, 3600.0
#: A point at which rows are counted, in the order of their predictions, costs as much as this many others: counts
#: change where one row changes sides, so that a search by points finds where each is.
COUNTED = 1000
#: The mark of a site that answers nothing until a person has looked at it, and the folder of copies.
STOPPED, OUTBOX = "stopped", "outbox"
NOT_RELEASED = "this site did not release its reply"
#: The kinds of the policy that each kind of request is of; that of a solver's request depends on what is in it.
KINDS = {
    "schema": "schema", "sums": "sums", "moments": "moments", "risk": "times", "log_rank": "times",
    "baseline": "times", "concordance": "times", "evaluation": "evaluation", "calibration": "evaluation",
    "request": "fits", "plan": "fits", "budget": "schema",
    "propose": "schema", "description": "sums", "histogram": "sums", "proportionality": "times",
}  # fmt: skip
#: Refusals by these rules reveal nothing of the rows, and do not count.
FREE = ("kinds", "budget", "hours", "places", "columns")
#: The questions that the kind "tests" is about.
TESTS = ("information", "overdispersion", "jeffreys")
#: What is asked, in words, for the log.
WORDS = {
    "schema": "which columns there are",
    "sums": "counts and sums for a design",
    "moments": "means and variances of features",
    "risk": "how many rows are at risk at which times",
    "log_rank": "sums for a log-rank test",
    "baseline": "a baseline hazard",
    "concordance": "sums for the concordance of risks and times",
    "evaluation": "how good the predictions of a model are",
    "calibration": "sums for the calibration of a model",
    "propose": "a variable to be approved, or the states of such",
    "budget": "what is left of the budget",
    "plan": "leave for a declared path or cross-validation",
    "facts": "sizes",
    "bounds": "bounds of the curvature",
    "gather": "what a preconditioner is made of",
    "constants": "constants in other coordinates",
    "at": "losses or gradients at a point",
    "sums_at": "sums for a model",
    "join": "this site's key of a run",
    "meet": "the keys of the other members",
    "release": "a sum with noise",
    "duals": "sums for an error bound",
    "answers": "a certificate",
    "memory": "all that clients remember",
    "update": "a round's work",
}


class Table(Protocol):
    """The interface of a site's table."""

    def answer(self, question: Any, check: Callable[[Array, Array | None], None] | None = None, site: str = "") -> Any:
        """Return the answer to a question; ``check`` may refuse the rows that moments are asked of.

        ``site`` is the name of this site, where a question depends on it.
        """

    def losses(self, spec: Any, site: str) -> Losses:
        """Return the losses of a model, one client; ``site`` is the name of this site."""


class Model:
    """A model that a site answers for, with what the guard counts of it."""

    def __init__(
        self, losses: Losses, policy: Policy, budget: Budget, analysis: str, people: Any = None, design: str = ""
    ) -> None:
        self.policy, self._budget, self.analysis, self.people, self._design = policy, budget, analysis, people, design
        data: Any = guard.GuardedData(losses, self, guard.ALL)
        self.site = Site(data, self._offer)

    @staticmethod
    def _offer(question: Any, data: Any) -> Any:
        return data.offer(question)

    def spend_point(self, points: int) -> None:
        """Count points at which it is answered."""
        self._budget.spend_points(self.analysis, points)

    def note_fitted(self, x: Array) -> None:
        """Note coefficients of a fit, for weights by its predictions."""
        if self._design:
            self._budget.note_fitted(self._design, digest_of(x.ravel()))

    def note_outside(self) -> None:
        """Count a point outside the domain: its status reveals where the extreme rows lie."""
        if self._budget.count_refusal():
            raise refuse("outside_often")

    def divide(self, rows: int, key: bytes, folds: int) -> None:
        """Count a division of rows into folds."""
        self._budget.divide(rows, hashlib.sha256(key).hexdigest()[:16], folds)


class RequestGuard:
    """Answers for a site.

    Parameters
    ----------
    name
        The name of the site.
    table
        Its data.
    policy
        What it answers.
    folder
        Where the log, the budget and copies of what leaves are kept; for its owner alone.
    questions
        What reads questions; by default :mod:`fpdfp.federation.questions`.
    """

    #: The kinds of the policy that each kind of request is of.
    kinds: Mapping[str, str] = KINDS

    def __init__(self, name: str, table: Table, policy: Policy, folder: Path, questions: Any = None) -> None:
        self.name, self.policy, self.folder = name, policy, Path(folder)
        #: The table and the policy of the file, to which variables are added that were approved since.
        table = copy.copy(table)
        # Columns are made here by approved definitions alone.
        table.derives = False  # type: ignore[attr-defined]
        self._table, self._policy, self._approved = table, policy, dict[str, str]()
        self.table: Any = table if not policy.variables else table.with_variables(policy.variables)  # type: ignore[attr-defined]
        self.approvals = Approvals(self.folder)
        self.questions: Any = questions or importlib.import_module("fpdfp.federation.questions")
        #: A key that distinguishes the data from others, for runs that continue after a restart of the site.
        self._data = str(getattr(table, "fingerprint", ""))
        self._rows = int(getattr(table, "rows", 0))
        #: The condition of the rows that are asked about.
        self._condition = ""
        names = [*getattr(table, "columns", ()), *policy.variables]
        for pattern in [*policy.columns, *(one for one in policy.never if one not in IDENTIFIERS)]:
            if names and not any(matches(name, [pattern]) for name in names):
                log.warning("the policy names the columns %r, of which the table has none", pattern)
        self.audit = Audit(self.folder)
        try:
            self.budget = Budget(self.folder, policy, None if self.audit.last is None else self.audit.last.spent)
        except BaseException:
            self.audit.close()
            raise
        self._models: collections.OrderedDict[str, Model] = collections.OrderedDict()
        self._lock = threading.Lock()
        #: Whether an analysis began with the request that is being answered.
        self._new = False
        #: Seconds to wait for a person who releases a reply.
        self.wait = WAIT
        #: By this clock the hours of the policy are judged.
        self.clock: Callable[[], datetime.datetime] = datetime.datetime.now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down what is not on the disk yet."""
        with self._lock:
            try:
                self.budget.write(ahead=False)
            finally:
                self.audit.close()

    def answer(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Return the reply to a request: ``reply``, ``refused``, ``error`` or ``needs_model``."""
        with self._lock:
            run, kind, words = str(asked.get("run", ""))[:64], str(asked.get("kind", ""))[:16], describe(asked)
            why, outcome, self._new = "", "answered", False
            try:
                self._admit(asked, kind, run)
                reply = self._propose(asked, asker) if kind == "propose" else self._compute(asked, kind)
                self._release(asked, kind, reply)
            except Refusal as error:
                reply, why = self._refuse(error)
                outcome = "refused"
            except outbox.RefusedError:
                reply, outcome, why = {"refused": NOT_RELEASED}, "not released", NOT_RELEASED
            except MessageError as error:
                reply, outcome, why = {"error": str(error)}, "failed", str(error)
            except OSError as error:
                reply, outcome, why = self._fail_to_write(error), "failed", str(error)
            except Exception as error:
                # The text of other errors might say something of the data, and so does that there is one.
                log.exception("a request could not be answered")
                self._count_refusal()
                reply = {"error": f"{type(error).__name__} at the site; its log says more"}
                outcome, why = "failed", f"{type(error).__name__}: {error}"
            try:
                self.audit.append(
                    sync=self._new or outcome != "answered", asker=asker.name, role=asker.role, study=asker.study,
                    fingerprint=asker.fingerprint, run=run, kind=kind, asked=words + self._formula(asked),
                    left=len(pack(reply)), outcome=outcome, why=why, spent=self._counts(),
                )  # fmt: skip
            except OSError as error:
                return self._fail_to_write(error)
            return reply

    def _counts(self) -> dict[str, float]:
        """Return what the log says was spent; the files that count it must not have less when the site starts again."""
        return self.budget.spent.counts()

    def _refuse(self, error: Refusal) -> tuple[dict[str, Any], str]:
        """Return the analyst's part of a refusal, and what the log is."""
        rule = getattr(error, "rule", "")
        if rule not in FREE:
            self._count_refusal()
        detail = f" ({error.detail})" if error.detail else ""
        told = error.sentence + (detail if self.policy.counts else "")
        return {"refused": told, "rule": rule}, f"{rule}: {error.sentence}{detail}"

    def _count_refusal(self) -> None:
        if self.budget.count_refusal():
            (self.folder / STOPPED).touch(mode=0o600)

    def _fail_to_write(self, error: OSError) -> dict[str, Any]:
        """Return what is said in place of a reply that cannot be written down: it is asked again, until it can."""
        log.error("nothing leaves: %s", error)
        return {"error": say_full(error)}

    def _formula(self, asked: dict[str, Any]) -> str:
        """Return the formula of what is asked, and its digest, where it has one."""
        asked = asked["ask"] if isinstance(asked.get("ask"), dict) else asked
        given = asked.get("spec", asked.get("question"))
        if not isinstance(given, dict) or not ({"design", "spec", "response"} & set(given)):
            return ""
        rows = f", rows with {asked['rows']}"[:500] if asked.get("rows") else ""
        return f": {write_design(given)}{rows} [{digest_of(given)[:16]}]"

    def _admit(self, asked: dict[str, Any], kind: str, run: str) -> None:
        """Refuse what the policy does not allow before anything is computed."""
        self._adopt(self.approvals.approved)
        policy, spent = self.policy, self.budget.spent
        if policy.goes_by("budget") and spent.refusals >= policy.refusals:
            if (self.folder / STOPPED).exists():
                raise refuse("stopped", f"remove the file {self.folder / STOPPED} when you have")
            self.budget.forgive()
        policy.refuse_if(not policy.is_open(self.clock()), "hours", hours=policy.hours)
        if kind not in self.kinds:
            raise refuse("kind", kind=kind)
        policy.refuse_if(self.kinds[kind] not in policy.kinds, "kind", kind=self.kinds[kind])
        policy.refuse_if(asked.get("each") and not policy.single_sites, "single")
        if not run:
            raise MessageError("a request must name its run")
        self.budget.compare_data(run, self._data)

    def _adopt(self, approved: dict[str, str]) -> None:
        """Add variables that were approved to the table and the policy."""
        if approved == self._approved:
            return
        variables = {**approved, **self._policy.variables}
        self.policy = dataclasses.replace(self._policy, variables=variables)
        self.table = self._table.with_variables(variables)  # type: ignore[attr-defined]
        self._approved = approved
        self._models.clear()

    def _propose(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Note a variable that an analyst proposes, if there is one; return the states of all."""
        if asked.get("name") is not None:
            self.approvals.propose(asked.get("name"), asked.get("text"), asker.name, self._table)
        known = {name: one.state for name, one in self.approvals.read().items()}
        return {"reply": dict.fromkeys(self._policy.variables, "yes") | known}

    def _compute(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the reply, about the rows that meet a condition where there is one."""
        if not asked.get("rows"):
            return self._compute_whole(asked, kind)
        table, rows = self.table, self._rows
        try:
            self.table, self._condition = self._filter(asked["rows"]), asked["rows"]
            self._rows = len(self.table)
            return self._compute_whole(asked, kind)
        finally:
            self.table, self._rows, self._condition = table, rows, ""

    def _filter(self, condition: Any) -> Any:
        """Return the rows that meet a condition; refuse one that reveals few rows, alone or with earlier conditions."""
        if not isinstance(condition, str):
            raise MessageError("a condition must be a text")
        try:
            node, found = parse_condition(condition), self.table.where(condition)
        except ArgumentError as error:
            raise MessageError(f"the condition {condition[:100]!a} cannot be used: {error}") from None
        guard.check_condition(node, self.policy)
        # By its definition: what a variable's name means may change.
        text = self.policy.variables.get(condition.strip(), condition)
        known = self._rows_of([one for one in self.budget.spent.conditions if one != text])
        guard.check_parts([*known, found], self.policy)
        self.budget.note_condition(text)
        return self.table.take(found)

    def _rows_of(self, conditions: list[str]) -> Iterator[Array]:
        """Yield the rows of earlier conditions whose columns the table still has."""
        for one in conditions:
            with contextlib.suppress(ArgumentError):
                yield self.table.where(one)

    def _compute_whole(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        if kind == "request":
            return self._answer_request(asked)
        if kind == "budget":
            spent = self.budget.spent
            return {"reply": {"spent": spent.total, "allowed": self.policy.analyses, "refusals": spent.refusals}}
        if kind == "plan":
            return {"reply": _declare(asked)}
        question = self.questions.read_question(asked)
        write, answers = self.questions.write_answer, {
            "schema": self._answer_schema, "sums": self._answer_sums, "moments": self._answer_moments,
            "evaluation": self._answer_predictions, "calibration": self._answer_predictions,
            "description": self._answer_descriptive, "histogram": self._answer_descriptive,
        }  # fmt: skip
        reply: dict[str, Any] = write(answers.get(kind, self._answer_times)(question))
        return {"reply": _shorten(reply) if kind == "risk" else reply}

    def _begin(self, analysis: Any, model: Any = "") -> str:
        """Pay for an analysis, and return its digest."""
        digest = digest_of([analysis, self._condition] if self._condition else analysis)
        self._new = self.budget.begin(digest, digest_of(model) if model else "")
        return digest

    def _answer_schema(self, question: Any) -> Any:
        return guard.hide(self.questions.write_answer(self.table.answer(question)), self.policy)

    def _check_design(self, design: Any, means: Any, centre: Any = None) -> None:
        guard.check_design(design, self.policy, self.budget.spent.edges)
        weights = getattr(design, "weights", None)
        if isinstance(weights, InverseWeights):
            known = self.budget.spent.fitted.get(digest_of(guard.analysis_of(weights.treatment)), [])
            self.policy.refuse_if(digest_of(np.array(weights.coefficients)) not in known, "fitted")
        for spline in guard.knots_of(design, self.policy) if isinstance(design, Design) else ():
            # One set of knots of a kind: others on both sides of few rows would tell these.
            what = f"{len(spline.knots)} knots ({spline.spline} {spline.degree}) of {spline.of}{self._condition}"
            self.budget.fix_times(what, digest_of([spline.lower, *spline.knots, spline.upper]))
        guard.check_size(self._rows or 10**9, design.width, self.policy)
        if isinstance(design, Design):
            guard.check_centres(design, self.table.complete(design)[1], self.policy, means, centre)

    def _answer_sums(self, question: Any) -> Any:
        self._check_design(question.design, np.zeros(len(question.design.filled)))
        answer = self.table.answer(question)
        guard.check_sums(answer, question.design, self.policy)
        if question.design.weights is not None:
            guard.check_weights(self.table.complete(question.design)[1].weigh(question.design.weights), self.policy)
        self._begin(guard.analysis_of(question.design))
        return answer

    def _answer_moments(self, question: Any) -> Any:
        design = question.design
        self._check_design(design, question.means)
        if not question.diagonal:
            guard.check_products(self.policy)

        def check(X: Array, weights: Array | None) -> None:
            X = X if weights is None else X[weights > 0]
            guard.check_size(len(X), X.shape[1], self.policy)
            dense = guard.check_columns(X, design.names, self.policy)
            if weights is not None:
                guard.check_weighted(dense, weights[weights > 0], self.policy)

        answer = self.table.answer(question, check)
        self._begin(guard.analysis_of(design))
        return answer

    def _answer_descriptive(self, question: Any) -> Any:
        """Answer a question about columns by group: groups of few rows are withheld, or refused."""
        factors = [one.coded for one in (*getattr(question, "factors", ()), question.by) if one is not None]
        for name in (*question.columns, *factors):
            guard.check_column(name, self.policy)
        group, groups = group_rows(self.table, question.by)
        guard.check_groups(np.bincount(group + 1, minlength=groups + 1), self.policy)
        for name, edges in zip(question.columns, getattr(question, "edges", ()), strict=False):
            self.budget.fix_times(f"edges of {name}", digest_of(edges))
            self.budget.spent.edges[name] = [float(one) for one in edges]
        self._begin(["description", sorted(question.columns), sorted(factors)], self.questions.dump(question))

        def values(name: str) -> list[Array]:
            return values_of(self.table, name, group, groups)

        return guard.protect_descriptives(self.table.answer(question), question, values, self.policy)

    def _answer_times(self, question: Any) -> Any:
        """Answer a question about times of events."""
        policy = self.policy
        no_times = getattr(question, "times", ()) is None
        policy.refuse_if(no_times and "ranges" not in policy.kinds, "ranges")
        if question.tells_pairs:
            guard.check_products(policy)
        response = question.spec.design.response if hasattr(question, "spec") else question.response
        if hasattr(question, "spec"):
            losses = self._losses(question.spec)
            guard.check_predictions(question, losses, policy)
            analysis = self._begin(guard.analysis_of(question.spec.design), self.questions.dump(question.spec))
            self.budget.spend_points(analysis, 1 if hasattr(question, "times") else COUNTED)
        else:
            columns = [] if question.group is None else [question.group.coded]
            for name in [*columns, *getattr(question, "strata", ()), *columns_of(question.response)]:
                guard.check_column(name, policy)
            guard.check_response(question.response, policy)
            if question.group is not None:  # sums over all rows, less those by group, tell rows without a group
                without = int((group_rows(self.table, question.group)[0] < 0).sum())
                guard.check_cells(without, f"rows without a value of {question.group.coded!a}", policy)
            if isinstance(question, LogRankQuestion):  # a test in one of two rows reveals these
                strata = np.unique(self.table.strata_of(question), return_counts=True)[1]
                guard.check_cells(strata, "strata", policy)
            about = [self.questions.dump(question.response), columns, list(getattr(question, "strata", ()))]
            self._begin(about, [getattr(question, "rho", 0.0)])
        if getattr(question, "times", None) is not None:
            self._fix_times("times", response, question.times)
        return guard.protect_times(self.table.answer(question), policy)

    def _fix_times(self, what: str, response: Any, times: Any) -> None:
        for column in (response.leaves, response.enters):
            if column is not None:
                self.budget.fix_times(f"{what} of {column}", digest_of(np.asarray(times, dtype=np.float64)))

    def _answer_predictions(self, question: Any) -> Any:
        """Answer a question about a model's predictions."""
        losses = self._losses(question.spec)
        rule = guard.check_predictions(question, losses, self.policy)
        analysis = self._begin(guard.analysis_of(question.spec.design), self.questions.dump(question.spec))
        points = COUNTED * (1 + len(question.more)) if hasattr(question, "more") else 1
        self.budget.spend_points(analysis, points)
        answer = self.table.answer(question, site=self.name)
        return guard.protect_scores(answer, question, rule) if hasattr(question, "more") else answer

    def _losses(self, described: Any) -> Losses:
        """Return the losses of a model that the guard allows."""
        design: Any = getattr(described, "design", None)
        if design is not None:
            self._check_design(design, described.means, described.centre)
        if getattr(described, "several_rows", False):
            if described.periods:
                self._fix_times("periods", design.response, described.periods)
            guard.check_model(self.table.losses(described.by_person, self.name, split=False), self.policy)
        losses: Losses = self.table.losses(described, self.name)
        guard.check_model(losses, self.policy)
        return losses

    def _answer_request(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a solver's request."""
        name = asked.get("model")
        if not isinstance(name, str) or not 0 < len(name) <= 64:
            raise MessageError("a request must name its model")
        name += self._condition
        if name not in self._models:
            if "spec" not in asked:
                return {"needs_model": True}
            self._models[name] = self._make(asked["spec"])
            if len(self._models) > MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(name)
        request = Request.read(parcels.load(asked.get("request")))
        self._check_request(request)
        return {"reply": self._models[name].site.handle(request)}

    def _make(self, tree: Any) -> Model:
        described = self.questions.read_spec(tree)
        losses = self._losses(described)
        design = getattr(described, "design", None)
        analysis = self._begin(tree if design is None else guard.analysis_of(design), tree)
        people = self.table.people(described) if getattr(described, "several_rows", False) else None
        # Only coefficients of features as they are can weigh rows.
        plain = isinstance(design, Design) and not described.centre.any() and (described.scale == 1.0).all()
        key = digest_of(guard.analysis_of(design)) if plain and not described.ridge.any() else ""  # type: ignore[arg-type]
        return Model(losses, self.policy, self.budget, analysis, people, key)

    def _check_request(self, request: Request) -> None:
        """Refuse what the policy does not allow of a solver's request."""
        policy = self.policy
        for question in request.questions:
            policy.refuse_if(question.name == "memory", "memory")
            policy.refuse_if(question.name in TESTS and "tests" not in policy.kinds, "tests")
        job = request.about.job
        if job is not None and "hessian" in job.algorithm.reply_shapes():
            guard.check_products(policy)

    def _release(self, asked: dict[str, Any], kind: str, reply: dict[str, Any]) -> None:
        """Keep a copy of what is about to leave, and wait for a person where the policy states it."""
        policy = self.policy
        waits = "reply" in reply and (self.kinds[kind] in policy.hold or (self._new and "analysis" in policy.hold))
        if not waits and not policy.copies:
            return
        number = asked.get("sequence")
        sequence = number if type(number) is int else 0
        envelope = outbox.Envelope(str(asked.get("run", "")), sequence, self.name, reply)
        outbox.keep(outbox.seal(envelope), self.folder / OUTBOX, self.wait if waits else 0.0)


def _declare(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a path or a cross-validation that is declared before it begins, so that the log has it."""
    plan, problems, folds = asked.get("plan"), asked.get("problems"), asked.get("folds", 0)
    if not isinstance(plan, str) or not 0 < len(plan) <= 64 or type(problems) is not int or problems < 1:
        raise MessageError("a plan must have a name of at most 64 letters and a number of problems")
    if type(folds) is not int or folds < 0:
        raise MessageError("folds must be a number of folds")
    return {"price": 1, "problems": problems, "folds": folds}


def _shorten(tree: dict[str, Any]) -> dict[str, Any]:
    """Return counts of rows at risk as integers of few bits."""
    short = dict(tree)
    for name in ("start", "entered", "left"):
        short[name] = tree[name].astype(np.uint8 if tree[name].max(initial=0.0) < 256 else np.int32)
    short["events"] = tree["events"].astype(short["left"].dtype)  # they are among those that leave
    return short


def digest_of(tree: Any) -> str:
    """Return a text that distinguishes questions and models."""
    return hashlib.sha256(pack(tree)).hexdigest()[:32]


# --- What is asked, in words, for the log -----------------------------------------------------------------------------


def describe(asked: dict[str, Any]) -> str:
    """Say in words what is asked.

    >>> describe({"kind": "request", "request": {"update": {"round": 3}, "at": {"parts": ["gradients"]}}})
    "a round's work (round 4); losses or gradients at a point (gradients)"
    """
    kind, request, ask = asked.get("kind"), asked.get("request"), asked.get("ask")
    if kind in ("sum", "varying") and isinstance(ask, dict):
        inner = {"kind": "request", "request": ask.get("question")} if ask.get("kind") == "losses" else ask
        return ("masked: " if kind == "sum" else "what varies, for ") + describe(inner)
    if kind == "plan":
        return f"{WORDS['plan']}: {_counted(asked, 'problems')}, {_counted(asked, 'folds')}"
    if kind != "request" or not isinstance(request, dict):
        return WORDS.get(str(kind), "something unknown")
    said = []
    known = questions()
    for name in (name for name in request if name in known):
        given = request[name] if isinstance(request[name], dict) else {}
        part, detail = name if name in WORDS else "gather", ""
        if part == "update" and type(given.get("round")) is int:
            detail = f" (round {given['round'] + 1})"
        elif part in ("at", "sums_at") and isinstance(given.get("parts"), list):
            detail = f" ({', '.join(str(one)[:16] for one in given['parts'][:2])})"
        elif part == "duals":
            detail = f" ({str(given.get('part'))[:16]})"
        elif part == "gather" and (many := describe_many(name, given)):
            said.append(many)
            continue
        said.append(WORDS[part] + detail)
    return "; ".join(said) or "nothing"


def describe_many(name: str, asked: dict[str, Any]) -> str:
    """Say what a question about many points requests; nothing of another."""
    if name not in ("many_points", "dual_sums", "held_scores"):
        return ""
    if name == "held_scores":
        about = asked.get("about")
        held = about.get("held") if isinstance(about, dict) else None
        count = held.size if isinstance(held, np.ndarray) else "some"
        return f"scores ({str(asked.get('score'))[:16]}) of the rows that are left out, at {count} points"
    held, curved, folds = (asked.get(name) for name in ("held", "curved", "folds"))
    if not (isinstance(held, np.ndarray) and isinstance(curved, np.ndarray) and held.dtype.kind == "i"):
        return ""
    without = int((held >= 0).sum())
    rows = f", at {without} of them without a fold of the rows" if without and folds is not None else ""
    if name == "dual_sums":
        return f"sums for error bounds at {held.size} points{rows}"
    return f"losses and gradients at {held.size} points{rows}; {curved.size} Hessians"


def _counted(asked: dict[str, Any], name: str) -> str:
    count = asked.get(name, 0)
    return f"{count} {name}" if type(count) is int else f"no number of {name}"


def write_design(given: dict[str, Any]) -> str:
    """Write what is asked as a formula, from the trees that are evaluated and not from the names they are given.

    >>> age = {"factors": [{"name": "x", "value": {"column": "age"}}]}
    >>> write_design({"response": {"column": "died"}, "terms": [age]})
    'died ~ age'
    """
    tree = given.get("spec", given)
    tree = tree.get("design", tree) if isinstance(tree, dict) else {}
    terms = [":".join(_write(one) for one in term.get("factors", ())) for term in tree.get("terms", ())]
    more = [f"{name}({_write(tree[name])})" for name in ("offset", "weights", "cluster", "group") if tree.get(name)]
    strata = [f"strata({', '.join(map(str, tree['strata']))})"] if tree.get("strata") else []
    return f"{_write(tree.get('response'))} ~ {' + '.join([*terms, *more, *strata]) or '1'}"[:2000]


def _write(node: Any) -> str:
    """Write a node of a tree."""
    if not isinstance(node, dict):
        return str(node)
    parts = {name: _write(one) for name, one in node.items() if one is not None}
    if "value" in node:
        return parts["value"]
    for name in ("column", "number", "text", "coded"):
        if name in node:
            return parts[name]
    sign = node.get("operator") or node.get("comparison") or node.get("logic")
    if sign:
        return f"({parts.get('left')} {sign} {parts.get('right')})"
    if "function" in node:
        return f"{node['function']}({parts.get('of')})"
    if "leaves" in node:
        return f"Surv({', '.join(parts[name] for name in ('enters', 'leaves', 'event') if name in parts)})"
    if "treatment" in node:
        return f"inverse probability of {write_design(node['treatment'])}"
    if "poly" in node:
        return f"poly({parts['poly']}, {node.get('degree')})"
    return f"{node.get('spline', 'node')}({', '.join(parts.values())})"
