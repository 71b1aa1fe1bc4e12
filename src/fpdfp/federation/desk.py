"""A site's desk: whatever is asked passes here, is compared with the policy, computed, logged and held.

It knows nothing of how requests arrive. It holds the site's data, and the last few models that were asked about.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import hashlib
import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

from fpdfp._typing import Array
from fpdfp.engines import spec
from fpdfp.engines.parcel import pack
from fpdfp.engines.requests import Request
from fpdfp.engines.site import Site
from fpdfp.engines.traffic import payload
from fpdfp.errors import MessageError
from fpdfp.federation import evaluation_rules, outbox, time_rules
from fpdfp.federation.asked import describe
from fpdfp.federation.asker import Asker
from fpdfp.federation.audit import Audit
from fpdfp.federation.designs import check_design
from fpdfp.federation.exposure import PointRefusedError, watch
from fpdfp.federation.ledger import Ledger
from fpdfp.federation.partitions import Partitions
from fpdfp.federation.points import Earlier
from fpdfp.federation.policy import Policy, RefusedError, matches
from fpdfp.federation.rules import (
    check_names,
    check_request,
    check_rows,
    check_sums,
    check_width,
    hide,
    many_points,
    width_of,
)
from fpdfp.federation.slots import say_full
from fpdfp.federation.text import log
from fpdfp.losses.base import Losses

#: How many models a site keeps ready.
MODELS = 4
#: How many replies of a run must have left before one is compared with them.
BEFORE_GROWTH = 3
#: The mark of a site that answers nothing until a person has looked at it, and the folder of copies.
STOPPED, OUTBOX = "stopped", "outbox"
#: The folders of what earlier points are compared by, and earlier folds.
POINTS, FOLDS = "points", "folds"
NOT_RELEASED = "this site did not release its reply"


class Table(Protocol):
    """What a desk must be able to ask of a site's table."""

    def answer(self, question: Any, check: Callable[[Array], None] | None = None, site: str = "") -> Any:
        """Return the answer to a question; ``check`` may refuse the rows that moments are asked of.

        ``site`` is the name of this site, where a question depends on it.
        """

    def losses(self, spec: Any, site: str) -> Losses:
        """Return the losses of a model, one client; ``site`` is the name of this site."""


class Questions(Protocol):
    """What reads questions and writes answers: :mod:`fpdfp.federation.questions`."""

    def read_question(self, tree: dict[str, Any]) -> Any:
        """Return a question."""

    def write_answer(self, answer: Any) -> dict[str, Any]:
        """Return an answer as a tree."""

    def read_spec(self, tree: Any) -> Any:
        """Return the specification of a model."""


class Desk:
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
        Where the log, the ledger and copies of what leaves are kept; for its owner alone.
    questions
        What reads questions; by default :mod:`fpdfp.federation.questions`.
    """

    def __init__(
        self, name: str, table: Table, policy: Policy, folder: Path, questions: Questions | None = None
    ) -> None:
        self.name, self.table, self.policy, self.folder = name, table, policy, Path(folder)
        self.questions: Any = questions or importlib.import_module("fpdfp.federation.questions")
        #: What tells the data from others, for runs that go on after a restart of the site.
        self._data = str(getattr(table, "fingerprint", ""))
        self._rows = int(getattr(table, "rows", 0))
        self.audit = Audit(self.folder)
        try:
            self.ledger = Ledger(self.folder, None if self.audit.last is None else self.audit.last.spent)
        except BaseException:
            self.audit.close()
            raise
        self._models: collections.OrderedDict[str, Site] = collections.OrderedDict()
        #: What tells these models apart: a coordinator may call any two by one name.
        self._digests: dict[str, str] = {}
        #: The points that were answered, whichever model they were of.
        self._earlier = Earlier(policy.points.compared_points, self.folder / POINTS, self._data)
        #: The ways in which rows were divided into folds, whichever model it was for.
        self._partitions = Partitions(
            policy.points.most_divisions, policy.data.least_rows, self.folder / FOLDS, self._data
        )  # fmt: skip
        #: Of each run, how many replies left, and the largest norm among them.
        self._norms: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        #: By this clock the hours of the policy are judged.
        self.clock: Callable[[], datetime.datetime] = datetime.datetime.now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down what is not on the disk yet."""
        with self._lock:
            self._earlier.close()
            self._partitions.close()
            try:
                self.ledger.write(ahead=False)
            finally:
                self.audit.close()

    def answer(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Return the reply to a request: ``reply``, ``refused``, ``error`` or ``needs_model``."""
        with self._lock:
            run, kind, words = str(asked.get("run", ""))[:64], str(asked.get("kind", ""))[:16], describe(asked)
            why, outcome, new = "", "answered", False
            try:
                new = self._admit(asked, kind, run)
                with self._counting():
                    reply = self._compute(asked, kind)
                self._spend(asked, kind, reply)
                self._release(asked, kind, reply, new)
            except RefusedError as error:
                reply, outcome = {"refused": error.sentence}, "refused"
                why = f"{error.sentence} ({error.detail})" if error.detail else error.sentence
            except outbox.RefusedError:
                reply, outcome, why = {"refused": NOT_RELEASED}, "not released", NOT_RELEASED
            except MessageError as error:
                reply, outcome, why = {"error": str(error)}, "failed", str(error)
            except OSError as error:
                reply, outcome, why = self._fail_to_write(error), "failed", str(error)
            except Exception as error:
                # The text of other errors might say something of the data.
                log.exception("a request could not be answered")
                reply = {"error": f"{type(error).__name__} at the site; its log says more"}
                outcome, why = "failed", f"{type(error).__name__}: {error}"
            try:
                self.audit.append(
                    sync=new or outcome != "answered", asker=asker.name, role=asker.role, study=asker.study,
                    fingerprint=asker.fingerprint, run=run, kind=kind, asked=words, left=len(pack(reply)),
                    outcome=outcome, why=why, spent=self.ledger.spent.counts(),
                )  # fmt: skip
            except OSError as error:
                return self._fail_to_write(error)
            return reply

    def _fail_to_write(self, error: OSError) -> dict[str, Any]:
        """Return what is said in place of a reply that cannot be written down: it is asked again, until it can."""
        log.error("nothing leaves: %s", error)
        return {"error": say_full(error)}

    def _admit(self, asked: dict[str, Any], kind: str, run: str) -> bool:
        """Refuse what the policy does not allow before anything is computed; return whether a run begins."""
        policy, requests = self.policy, self.policy.requests
        self._check_stopped()
        if not policy.hours.allows(self.clock()):
            raise RefusedError("this site does not answer at this hour")
        if kind != "plan" and kind not in requests.kinds:
            raise RefusedError(f"this site does not answer requests of the kind {kind!a}")
        sites = asked.get("sites", 1)
        if type(sites) is not int or sites < requests.least_sites:
            raise RefusedError(f"this site answers only in sums over at least {requests.least_sites} sites")
        if not run:
            raise MessageError("a request must say which run it is of")
        self.ledger.count_request(policy.budget)
        self.ledger.compare_data(run, self._data)
        # What a solver asks before its rounds has another run's name: requests and bits limit it.
        rounds, digest = asked.get("request"), self._digest(asked)
        if kind != "request" or not isinstance(rounds, dict) or rounds.get("update") is None or not digest:
            return False
        # Another model under the name of a run is another run.
        return self.ledger.begin_run(policy.budget, run, self._data, digest)

    def _digest(self, asked: dict[str, Any]) -> str:
        """Return what tells the model of a request apart, empty if the site does not have it."""
        known = self._digests.get(str(asked.get("model")))
        if known is not None or "spec" not in asked:
            return known or ""
        return digest_of(asked["spec"])

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Count what is refused or fails within this: that it did may tell something of single rows."""
        try:
            yield
        except (MessageError, PointRefusedError, OSError):
            raise
        except Exception:
            self.ledger.count_miss()
            if self.ledger.spent.misses >= self.policy.budget.refusals:
                (self.folder / STOPPED).touch(mode=0o600)
            raise

    def _check_stopped(self) -> None:
        """Refuse everything after too many refusals, until a person has taken the mark away."""
        spent, policy = self.ledger.spent, self.policy
        if spent.refusals < policy.points.most_refusals and spent.misses < policy.budget.refusals:
            return
        if (self.folder / STOPPED).exists():
            raise RefusedError(
                "this site answers nothing until its owner has looked at what it refused",
                f"remove the file {self.folder / STOPPED} when you have",
            )
        self.ledger.forgive()

    def _note_refused_point(self) -> None:
        self.ledger.count_refusal()
        if self.ledger.spent.refusals >= self.policy.points.most_refusals:
            (self.folder / STOPPED).touch(mode=0o600)

    def _compute(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the reply, without regard to how much has left already."""
        if kind == "plan":
            return {"reply": self._declare(asked)}
        if kind == "request":
            try:
                return self._answer_request(asked)
            except PointRefusedError:
                self._note_refused_point()
                raise
        return {"reply": self._answer_question(asked, kind, self.questions.read_question(asked))}

    def _answer_question(self, asked: dict[str, Any], kind: str, question: Any) -> dict[str, Any]:
        """Answer a question about the table."""
        policy, write = self.policy, self.questions.write_answer
        if kind == "schema":
            return hide(write(self.table.answer(question)), policy)
        check_names(asked.get("question"), policy)
        check_width(question, self._rows, policy)
        if kind in time_rules.KINDS:
            return self._answer_times(asked, question)
        if kind in evaluation_rules.KINDS:
            return self._answer_evaluation(asked, question)
        diagonal = bool(getattr(question, "diagonal", False))
        answer: dict[str, Any] = write(self.table.answer(question, lambda X: check_rows(X, policy, diagonal=diagonal)))
        if kind == "sums":
            check_sums(answer, question, policy)
        # Two questions may differ in one row as two models may.
        self.ledger.count_model(policy.budget, digest_of([kind, asked.get("question")]))
        return answer

    def _answer_times(self, asked: dict[str, Any], question: Any) -> dict[str, Any]:
        """Answer a question about times of events."""
        time_rules.check_question(question, self.policy)
        if hasattr(question, "spec"):
            check_width(question.spec, self._rows, self.policy)
            try:
                losses = self.table.losses(question.spec, self.name)
                time_rules.check_model(losses, question, self.policy, self._earlier)
            except PointRefusedError:
                self._note_refused_point()
                raise
        answer = time_rules.protect(self.table.answer(question), self.policy)
        self.ledger.count_model(self.policy.budget, digest_of([asked.get("kind"), asked.get("question")]))
        return time_rules.shorten(self.questions.write_answer(answer))

    def _answer_evaluation(self, asked: dict[str, Any], question: Any) -> dict[str, Any]:
        """Answer a question about a model's predictions."""
        check_width(question.spec, self._rows, self.policy)
        try:
            losses = self.table.losses(question.spec, self.name)
            watched = evaluation_rules.check_model(losses, question, self.policy, self._earlier)
        except PointRefusedError:
            self._note_refused_point()
            raise
        answer = self.table.answer(question, site=self.name)
        if asked.get("kind") == "evaluation":
            answer = evaluation_rules.protect(answer, question, watched, self.policy)
        tree = asked["question"]
        # Several points in one question count as one question for each.
        for x in (question.x, *getattr(question, "more", ())):
            about = {name: value for name, value in tree.items() if name != "more"} | {"x": x}
            self.ledger.count_model(self.policy.budget, digest_of([asked.get("kind"), about]))
        written: dict[str, Any] = self.questions.write_answer(answer)
        return written

    def _declare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take note of a path or a cross-validation before it begins."""
        plan, problems, folds = asked.get("plan"), asked.get("problems"), asked.get("folds", 0)
        if not isinstance(plan, str) or not 0 < len(plan) <= 64 or type(problems) is not int or problems < 1:
            raise MessageError("a plan must have a name of at most 64 letters and a number of problems")
        if type(folds) is not int or folds < 0:
            raise MessageError("folds must be a number of folds")
        return {"price": self.ledger.declare(self.policy.budget, plan, problems), "problems": problems, "folds": folds}

    def _answer_request(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a solver's request."""
        model = asked.get("model")
        if not isinstance(model, str) or not 0 < len(model) <= 64:
            raise MessageError("a request must name its model")
        if model not in self._models:
            if "spec" not in asked:
                return {"needs_model": True}
            digest = self._digest(asked)
            self._models[model] = self._make(asked["spec"], digest)
            self._digests[model] = digest
            if len(self._models) > MODELS:
                self._digests.pop(self._models.popitem(last=False)[0])
        self._models.move_to_end(model)
        site, request = self._models[model], Request.read(spec.load(asked.get("request")))
        for about in filter(None, map(many_points, request.questions)):
            self.ledger.count_points(self.policy.budget, str(asked.get("plan", ""))[:64], len(about.held))
        check_request(site, request, self.policy)
        reply = site.handle(request)
        if (reply.get("update") or {}).get("frames"):
            self._check_growth(str(asked.get("run")), site.largest)
        return {"reply": reply}

    def _make(self, tree: Any, digest: str) -> Site:
        """Return what answers for a model, if the policy allows it."""
        check_names(tree, self.policy)
        described = self.questions.read_spec(tree)
        check_width(described, self._rows, self.policy)
        losses = self.table.losses(described, self.name)
        if not matches(losses.family.split("(")[0], self.policy.requests.families):
            raise RefusedError(f"this site does not answer for models of the family {losses.family}")
        check_design(losses, self.policy)
        self.ledger.count_model(self.policy.budget, digest)
        return Site(watch(losses, self.policy, self._earlier, self._partitions))

    def _check_growth(self, run: str, norm: float) -> None:
        """Refuse to send a reply that is far larger than all before it in its run: something went wrong."""
        count, largest = self._norms.get(run, (0, 0.0))
        if count >= BEFORE_GROWTH and 0 < largest < norm / self.policy.replies.most_growth:
            raise RefusedError("this site does not send a reply so much larger than those before", f"norm {norm:.3g}")
        self._norms[run] = count + 1, max(largest, norm)
        if len(self._norms) > 16 * MODELS:
            self._norms.pop(next(iter(self._norms)))

    def _spend(self, asked: dict[str, Any], kind: str, reply: dict[str, Any]) -> None:
        """Count the bits that are about to leave against the numbers in the data."""
        site = self._models.get(str(asked.get("model"))) if kind == "request" else None
        if site is not None:
            values = int(site.whole.sizes.sum()) * (int(site.whole.shape[-1]) + 1)
            self.ledger.count_bits(self.policy.budget, payload(reply), values)
        elif kind in (*time_rules.KINDS, *evaluation_rules.KINDS):
            values = time_rules.count_values(self.questions.read_question(asked), self._rows)
            self.ledger.count_bits(self.policy.budget, payload(reply), values)
        elif kind in ("sums", "moments") and self._rows:
            width = width_of(self.questions.read_question(asked))
            self.ledger.count_bits(self.policy.budget, payload(reply), self._rows * (width + 1))

    def _release(self, asked: dict[str, Any], kind: str, reply: dict[str, Any], new: bool) -> None:
        """Keep a copy of what is about to leave, and wait for a person where the policy says so."""
        hold = self.policy.hold
        waits = "reply" in reply and (kind in hold.kinds or (new and "run" in hold.kinds))
        if not waits and not hold.keep_copies:
            return
        number = asked.get("sequence")
        sequence = number if type(number) is int else 0
        envelope = outbox.Envelope(str(asked.get("run", "")), sequence, self.name, reply)
        outbox.keep(outbox.seal(envelope), self.folder / OUTBOX, hold.seconds if waits else 0.0)


def digest_of(tree: Any) -> str:
    """Return a text that tells questions and models apart."""
    return hashlib.sha256(pack(tree)).hexdigest()[:32]
