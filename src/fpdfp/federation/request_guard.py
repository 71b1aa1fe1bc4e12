"""The gate of a site: it reads a request, has the guard check it, computes, counts, holds and logs.

It knows nothing of how requests arrive. It holds the site's data, and the last few models that were asked about.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
import importlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack
from fpdfp.cohorts.site import Site
from fpdfp.errors import MessageError, Refusal
from fpdfp.federation import guard, outbox
from fpdfp.federation.approvals import Approvals
from fpdfp.federation.asked import describe, write_design
from fpdfp.federation.audit import Audit
from fpdfp.federation.budget import Budget
from fpdfp.federation.descriptives import group_rows, values_of
from fpdfp.federation.keys import Asker
from fpdfp.federation.policy import Policy, refuse
from fpdfp.federation.questions import LogRankQuestion
from fpdfp.federation.rollback import say_full
from fpdfp.federation.text import log
from fpdfp.formula.coding import Design
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


class Table(Protocol):
    """The interface of a site's table."""

    def answer(self, question: Any, check: Callable[[Array], None] | None = None, site: str = "") -> Any:
        """Return the answer to a question; ``check`` may refuse the rows that moments are asked of.

        ``site`` is the name of this site, where a question depends on it.
        """

    def losses(self, spec: Any, site: str) -> Losses:
        """Return the losses of a model, one client; ``site`` is the name of this site."""


class Model:
    """A model that a site answers for, with what the guard counts of it."""

    def __init__(self, losses: Losses, policy: Policy, budget: Budget, analysis: str, people: Any = None) -> None:
        self.policy, self._budget, self.analysis, self.people = policy, budget, analysis, people
        data: Any = guard.GuardedData(losses, self, guard.ALL)
        self.site = Site(data, self._offer)

    @staticmethod
    def _offer(question: Any, data: Any) -> Any:
        return data.offer(question)

    def spend_point(self, points: int) -> None:
        """Count points at which it is answered."""
        self._budget.spend_points(self.analysis, points)

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
        self._table, self._policy, self._approved = table, policy, dict[str, str]()
        self.table: Any = table if not policy.variables else table.with_variables(policy.variables)  # type: ignore[attr-defined]
        self.approvals = Approvals(self.folder)
        self.questions: Any = questions or importlib.import_module("fpdfp.federation.questions")
        #: A key that distinguishes the data from others, for runs that continue after a restart of the site.
        self._data = str(getattr(table, "fingerprint", ""))
        self._rows = int(getattr(table, "rows", 0))
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
        given = asked.get("spec", asked.get("question"))
        if not isinstance(given, dict) or not ({"design", "spec", "response"} & set(given)):
            return ""
        return f": {write_design(given)} [{digest_of(given)[:16]}]"

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
        """Return the reply."""
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
        digest = digest_of(analysis)
        self._new = self.budget.begin(digest, digest_of(model) if model else "")
        return digest

    def _answer_schema(self, question: Any) -> Any:
        return guard.hide(self.questions.write_answer(self.table.answer(question)), self.policy)

    def _check_design(self, design: Any, means: Any, centre: Any = None) -> None:
        guard.check_design(design, self.policy)
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

        def check(X: Array) -> None:
            guard.check_size(len(X), X.shape[1], self.policy)
            guard.check_columns(X, design.names, self.policy)

        answer = self.table.answer(question, check)
        self._begin(guard.analysis_of(design))
        return answer

    def _answer_descriptive(self, question: Any) -> Any:
        """Answer a question about columns by group: rows that tell few are withheld, or refused."""
        factors = [one.coded for one in (*getattr(question, "factors", ()), question.by) if one is not None]
        for name in (*question.columns, *factors):
            guard.check_column(name, self.policy)
        group, groups = group_rows(self.table, question.by)
        guard.check_groups(np.bincount(group + 1, minlength=groups + 1), self.policy)
        for name, edges in zip(question.columns, getattr(question, "edges", ()), strict=False):
            self.budget.fix_times(f"edges of {name}", digest_of(edges))
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
        return Model(losses, self.policy, self.budget, analysis, people)

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
