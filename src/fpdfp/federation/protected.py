"""The gate of a site at the levels ``sums`` and ``private``: a short list of questions, and nothing else.

====================  ======  =======  ==========================================================================
kind                  sums    private  answer
====================  ======  =======  ==========================================================================
``schema``            yes     yes      the columns that the policy declares; nothing is read from the table
``budget``            yes     yes      what is left
``join``, ``meet``    yes     masked   this site's key of a run, signed; the keys of all members
``varying``           yes             which columns of a question vary here, sealed for each other member
``sum``               yes             an answer that adds up (:mod:`fpdfp.federation.masked`), masked (128 bits)
``release``                   yes      a sum with noise (:mod:`fpdfp.privacy.releases`); masked with members
====================  ======  =======  ==========================================================================

At ``sums`` an answer is the one that the filter lets through, with all its rules about rows and points, since a sum in
which only one row differs from zero is that row's. Beside them, what varies at fewer than three members is refused: a
sum over the others is zero or known, so that it is one site's. Sites state to each other what varies, under seals of
pairs of sites: the analyst hands statements on, and can neither read nor change them. They are about questions alone
that the filter lets through at the site that states.

At ``private`` no refusal depends on rows. Rows that a design cannot take, that are too long, or whose outcome is not
one of the classes do not count, each for itself. The ledger is written before a reply leaves. The noise is a function
of this site's secret and the request, so the same request has the same reply and costs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import LARGEST_SIZE, Duals, SumsAt, SumsAtDuals
from fpdfp.cohorts.many_points import Evaluations
from fpdfp.cohorts.question import Points, Question, questions
from fpdfp.cohorts.serialization import pack, validate
from fpdfp.compress.fixed import EXACT
from fpdfp.errors import ArgumentError, MessageError, Refusal, RefusalError
from fpdfp.families.base import link_of
from fpdfp.federation import guard
from fpdfp.federation.guard import ALL, KINDS, TESTS, GuardedData, Model, RequestGuard
from fpdfp.federation.masked import ANSWERED, AT_POINTS, About, about_of, answer_tree, digest, split, to_sums
from fpdfp.federation.policy import MEMBERS, Policy
from fpdfp.federation.questions import (
    CalibrationQuestion,
    ColumnSchema,
    Kind,
    LogRankQuestion,
    ModelSpec,
    RiskQuestion,
    Schema,
    SumsQuestion,
    dump,
)
from fpdfp.federation.seal import Secret
from fpdfp.federation.table import group_rows, values_of
from fpdfp.formula.coding import Design, InverseWeights
from fpdfp.formula.evaluation import codes, evaluate
from fpdfp.formula.tree import Survival, columns_of
from fpdfp.losses.classes import ClassModel, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, Logistic
from fpdfp.losses.responses import FULL_DOMAIN, OutsideError, respond
from fpdfp.privacy.fixed_point import WIDE, WORD, to_wide
from fpdfp.privacy.journal import Journal
from fpdfp.privacy.ledger import Ledger
from fpdfp.privacy.masks import Masker, Membership, RunKey, note_members, pair_keys, run_key
from fpdfp.privacy.noise import Stream
from fpdfp.privacy.releases import Release, Rows, add_noise, bounded, exact_sum
from fpdfp.problem import LocalLosses

if TYPE_CHECKING:
    from fpdfp.federation.table import SiteTable

#: The files of masked sums and of the privacy budget in a site's folder.
MASKS, LEDGER = "masks.journal", "privacy.journal"
#: The least eigenvalue of the correlations of a site's columns and response, for which all combinations vary.
CLEAR = 1e-6
#: The questions about tables whose answers may be added up.
SUMMED = (
    "sums", "moments", "description", "histogram", "risk", "log_rank", "proportionality", "concordance", "evaluation",
    "calibration",
)  # fmt: skip
#: The least curvature of the rows at a point, relative to that where all have the same prediction, and the inverse of
#: the most: at points where other sites' rows add nothing, or one site's very much, a sum is that site's.
LEAST_SHARE = 0.05
#: A number that is too large counts as this many refusals: the number of sites with one is sent, and halving a range
#: finds the size of the largest.
OVERFLOW = 10
#: How many runs a site remembers the keys of, and how many models.
RUNS, MODELS = 16, 16


def refuse(rule: str, sentence: str, detail: str = "") -> Refusal:
    """Return a refusal by a rule of these levels, which have sentences of their own."""
    return Refusal(sentence, detail, rule)


def run_name(run: str) -> bytes:
    """Return a run's name as masks have it."""
    return hashlib.sha256(b"fpdfp run" + run.encode()).digest()


def membership_of(policy: Policy) -> Membership:
    """Return the members that a policy names."""
    return Membership({name: bytes.fromhex(key) for name, key in policy.members.items()})


class ProtectedGuard(RequestGuard):
    """Answers for a site whose policy has the level ``sums`` or ``private``.

    Parameters
    ----------
    name, table, policy, folder
        As in :class:`RequestGuard`.
    """

    kinds: Mapping[str, str] = {
        "schema": "schema", "budget": "schema", "join": "fits", "meet": "fits", "release": "fits",
        "losses": "fits", **{kind: KINDS[kind] for kind in SUMMED},
    }  # fmt: skip

    def __init__(self, name: str, table: SiteTable, policy: Policy, folder: Path) -> None:
        if policy.level == "filter":
            raise ArgumentError("level", "must be 'sums' or 'private' for what protects beyond a filter")
        for column, declared in policy.columns_of_the_table.items():
            if "type" not in declared:
                raise ArgumentError("columns_of_the_table", f"must declare the type of {column!r} at this level")
        super().__init__(name, table, policy, folder)
        self._maskers: dict[str, Masker] = {}
        self._made: dict[bytes, Model] = {}
        #: What varies here, by what an answer is about; a table with other variables has another.
        self._varying: tuple[Any, dict[bytes, tuple[list[str], bytes]]] = None, {}
        self._journal: Journal | None = None
        self._ledger: Ledger | None = None
        try:
            self.secret = Secret.of(self.folder)
            self.membership = membership_of(policy) if policy.members else None
            if self.membership is not None and self.membership.identities.get(name) != self.secret.public:
                own = f'{name} = "{self.secret.public.hex()}"'
                raise ArgumentError("members", f"must have this site's own key: {own}")
            self._journal = Journal(self.folder / MASKS)
            if policy.level == "private":
                self._ledger = Ledger(self.folder / LEDGER, policy.epsilon, policy.delta)
            self._compare_with_log()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for one in (self._journal, self._ledger):
            if one is not None:
                one.close()
        super().close()

    def _counts(self) -> dict[str, float]:
        masked = 0 if self._journal is None else len(self._journal.records)
        releases = 0 if self._ledger is None else len(self._ledger.entries)
        return super()._counts() | {"masked": masked, "releases": releases}

    def _compare_with_log(self) -> None:
        """Refuse to start with files that have less than the log: masks would be used again, and budgets come back."""
        logged = {} if self.audit.last is None else self.audit.last.spent
        for what, file in (("masked", MASKS), ("releases", LEDGER)):
            if self._counts()[what] < logged.get(what, 0):
                raise RuntimeError(
                    f"{self.folder / file} has less than the log of this site: an older one was put in its place, or "
                    "it was removed; look into it, and move the log elsewhere if that was on purpose"
                )

    def _admit(self, asked: dict[str, Any], kind: str, run: str) -> None:
        super()._admit(asked, self._inner(asked, kind), run)

    def _release(self, asked: dict[str, Any], kind: str, reply: dict[str, Any]) -> None:
        super()._release(asked, self._inner(asked, kind), reply)

    @staticmethod
    def _inner(asked: dict[str, Any], kind: str) -> str:
        """Return what is asked inside of a sum; sums alone are of what is summed."""
        if kind not in ("sum", "varying"):
            return kind if kind not in (*SUMMED, "losses") else ""
        ask = asked.get("ask")
        inner = ask.get("kind") if isinstance(ask, dict) else None
        return inner if inner in (*SUMMED, "losses") else ""

    def _compute(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        if asked.get("rows"):
            raise refuse("places", f"this site answers about all of its rows only (level {self.policy.level})")
        level = self.policy.level
        if kind == "schema":
            return {"reply": dump(declared_schema(self.policy))}
        if kind == "budget":
            return {"reply": self._tell_budget()}
        if kind in ("join", "meet"):
            return {"reply": self._join(asked) if kind == "join" else self._meet(asked)}
        if kind == "release" and level == "private":
            return {"reply": self._release_sum(asked)}
        if kind in ("varying", "sum") and level == "sums":
            return {"reply": self._tell_varying(asked) if kind == "varying" else self._answer_sum(asked)}
        raise refuse("kinds", f"this site does not answer {kind!a} at the level {level!a}")

    def _refuse(self, error: Refusal) -> tuple[dict[str, Any], str]:
        if self.policy.level == "private":  # no refusal depends on rows: they are not counted
            return {"refused": error.sentence, "rule": error.rule}, f"{error.rule}: {error.sentence}"
        return super()._refuse(error)

    def _tell_budget(self) -> dict[str, Any]:
        if self._ledger is None:
            spent = self.budget.spent
            return {"level": "sums", "spent": spent.total, "allowed": self.policy.analyses}
        account = self._ledger.account(self._data)
        return {
            "level": "private", "spent": account.spent, "allowed": account.total, "left": account.left,
            "delta": account.delta,
            "radius": self.policy.radius, "shares": self._shares,
        }  # fmt: skip

    @property
    def _shares(self) -> int:
        """Over how many sites the variance of the noise is shared out."""
        return 1 if self.membership is None else len(self.membership.identities) - self.policy.colluding

    # ------------------------------------------------------------ masks

    def _members(self) -> Membership:
        if self.membership is None:
            raise Refusal("this site adds all of its noise itself: its policy names no members", rule="kinds")
        return self.membership

    def _private_key(self, run: bytes) -> bytes:
        """Return this site's key of a run: the same again after a restart."""
        return self.secret.derive(b"run" + run + self._members().digest)

    def _join(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = run_name(str(asked["run"]))
        key = run_key(self._private_key(run), self.secret.identity, self._members(), run)
        return {"public": key.public, "signature": key.signature, "members": list(self._members().identities)}

    def _meet(self, asked: dict[str, Any]) -> dict[str, Any]:
        keys = read_pairs(asked.get("keys"), RunKey)
        run = run_name(str(asked["run"]))
        pairs = pair_keys(self.name, self._private_key(run), keys, self._members(), run)
        assert self._journal is not None
        self._maskers[str(asked["run"])] = Masker(self.name, pairs, run, self._journal)
        while len(self._maskers) > RUNS:
            self._maskers.pop(next(iter(self._maskers)))
        return {}

    def _masker(self, asked: dict[str, Any]) -> Masker:
        found = self._maskers.get(str(asked["run"]))
        if found is None:
            raise MessageError("the members of this run have not met: send their keys first")
        return found

    # ------------------------------------------------------------ sums

    def _read_model(self, asked: dict[str, Any]) -> tuple[ModelSpec, bytes]:
        spec: ModelSpec = self.questions.read_spec(asked.get("spec"))
        check_plain(spec, self.policy.level)
        return spec, digest(dump(spec))

    def _model(self, spec: ModelSpec, digest: bytes) -> Model:
        if digest not in self._made:
            self._made[digest] = self._make(dump(spec))
            while len(self._made) > MODELS:
                self._made.pop(next(iter(self._made)))
        return self._made[digest]

    def _states(self, about: About) -> tuple[list[str], bytes]:
        """Return what :meth:`_find_states` finds, kept for the last few designs."""
        if self._varying[0] is not self.table:
            self._varying = self.table, {}
        key, known = digest(dump(about)), self._varying[1]
        if key not in known:
            known[key] = self._find_states(about)
            while len(known) > MODELS:
                known.pop(next(iter(known)))
        return known[key]

    def _find_states(self, about: About) -> tuple[list[str], bytes]:
        """Return names of all that must vary at three members, and how it does here.

        0 is for what is zero in all rows, 1 for what varies or is there, 2 for what has another number in all rows.
        """
        names, states = list[str](), list[int]()

        def note(name: str, values: Array) -> None:
            names.append(name)
            varies = len(values) > 0 and values.max() > values.min()
            states.append(1 if varies else 2 * int(bool(values.any())))

        if about.design is not None:
            design = about.design
            rows = self.table.complete(design)[1]
            X = rows.matrix_of(design, np.zeros(0))
            columns = list(zip(design.names, X.T, strict=True))
            if about.response and not isinstance(design.response, Survival):
                y = np.asarray(rows.response(design.response, about.classes), np.float64)
                outcomes = [
                    (f"the class {level!r} of the response", y == code) for code, level in enumerate(about.classes)
                ]
                columns += outcomes[1:] or [("the response", y)]
                for name, rest in outcomes[:1]:
                    note(name, rest)
            if design.offset is not None:
                columns.append(("the offset", rows.number("the offset", design.offset)))
            if design.weights is not None:
                columns.append(("the weight", rows.weigh(design.weights)))
            for name, column in columns:
                note(name if name.startswith("the ") else f"the column {name!r}", column)
            if about.combined:
                names.append("a combination of columns")
                states.append(int(_combined(np.column_stack([column for _, column in columns]))))
        group, groups = group_rows(self.table, about.by)
        coded = () if about.design is None else about.design.coded
        for factor in (*about.factors, *coded, *([] if about.by is None else [about.by])):
            found = codes(factor.coded, factor.levels, self.table)
            for code, one in enumerate(factor.levels):
                note(f"the level {one!r} of {factor.coded!r}", np.append(found == code, False))
            if factor in about.factors and about.by is not None:
                for cell in np.ndindex(len(factor.levels), groups):
                    note(f"a cell of {factor.coded!r}", np.append((found == cell[0]) & (group == cell[1]), False))
        for place, name in enumerate(about.columns):
            for values in values_of(self.table, name, group, groups):
                note(f"the column {name!r}", values)
                for edges in about.edges[place : place + 1]:
                    cells = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
                    for count in cells:
                        note(f"a cell of {name!r}", np.array([0, count]))
        if about.response_of is not None and about.times is not None:
            counts = self.table.answer(RiskQuestion(about.response_of, about.by, about.times))
            for cells in (counts.events, counts.left - counts.events, counts.entered):
                for count in cells.ravel():
                    note("a number of rows that leave or enter between two times", np.array([0.0, count]))
        elif about.response_of is not None and about.by is not None:
            tested = self.table.answer(LogRankQuestion(about.response_of, about.by))
            for cells in (tested.events, tested.rows - tested.events):
                for count in cells.ravel():
                    note("a number of rows with or without events", np.array([0.0, count]))
        return names, bytes(states)

    def _read_ask(self, ask: Any) -> tuple[Question | None, About]:
        """Return the question of a sum, None if it is about losses, and its subject, by the rules of the filter."""
        if not isinstance(ask, dict):
            raise MessageError("a sum must be of a question")
        question: Question | None = None
        if ask["kind"] == "losses":
            spec = self._read_model(ask)[0]
            about = About(spec.design, spec.classes, combined=True)
        else:
            question = self.questions.read_question({"kind": ask["kind"], "question": ask.get("question")})
            try:
                about = about_of(question)
            except RefusalError as error:
                raise refuse("kinds", str(error)) from None
        if about.design is not None:
            check_design(about.design, self.policy.level)
            self._check_design(about.design, np.zeros(0))
        named = [one.coded for one in (*about.factors, about.by) if one is not None]
        for name in (*about.columns, *named, *columns_of(about.response_of)):
            guard.check_column(name, self.policy)
        return question, about

    def _tell_varying(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return for each other member what varies here, if this site may answer the question at all."""
        masker, ask = self._masker(asked), asked["ask"]
        question, about = self._read_ask(ask)
        guard.check_size(len(self.table), 0, self.policy)
        if question is None:
            spec, of = self._read_model(ask)
            guard.check_sums(self.table.answer(SumsQuestion(spec.design, spec.classes)), spec.design, self.policy)
            self._model(spec, of)
        else:
            self._answer_table(question, ask)
        states, of = self._states(about)[1], digest(dump(about))
        return {"statements": {name: masker.seal(name, states, of) for name in masker.others}}

    def _check_varying(self, asked: dict[str, Any], about: About) -> None:
        """Refuse an answer about anything that varies at fewer than three members."""
        masker, of, given = self._masker(asked), digest(dump(about)), asked.get("statements")
        if not isinstance(given, dict) or set(given) != set(masker.others):
            raise Refusal("a masked sum needs the statement of every member", rule="members")
        names, own = self._states(about)
        told = [own, *(masker.unseal(name, one, of) for name, one in given.items())]
        if any(len(one) != len(own) or not set(one) <= {0, 1, 2} for one in told):
            raise MessageError("a statement must have 0, 1 or 2 for each of what must vary")
        states = np.array([list(one) for one in told])
        # colluding sites may state what they like, and know their part of a sum
        least = max(MEMBERS, self.policy.colluding + 2)
        for name, column in zip(names, states.T, strict=True):
            # zero everywhere says nothing of a site; a combination that varies nowhere is known everywhere
            if (column == 1).sum() < least and (column.any() or name.startswith("a comb")):
                raise Refusal(
                    f"{name} varies at fewer than {least} sites, so that its sums would be sums of single sites: "
                    "leave columns out, or join levels", rule="members",
                )  # fmt: skip

    def _answer_sum(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return an answer that adds up, under this site's masks."""
        ask, masker = asked["ask"], self._masker(asked)
        question, about = self._read_ask(ask)
        self._check_varying(asked, about)
        tree = self._sum_losses(ask) if question is None else self._answer_table(question, ask)
        try:
            form, numbers = split(tree)
        except RefusalError as error:
            raise refuse("kinds", str(error)) from None
        assert self._journal is not None
        note_members(self._journal, self._members(), self.policy.colluding)
        request = pack({"kind": "sum", "ask": ask})
        return {"words": masker.mask(self._encode(numbers), WIDE, request).tobytes(), "form": form}

    def _answer_table(self, question: Question, ask: Any) -> Any:
        """Return the numbers of an answer about tables that add up, by all rules of the filter."""
        if isinstance(question, AT_POINTS):
            self._check_predictions(question)
        tree = super()._compute(ask, ask["kind"])["reply"]
        try:
            return to_sums(question, self._count(question) if isinstance(question, RiskQuestion) else tree)
        except RefusalError as error:
            raise refuse("kinds", str(error)) from None

    def _check_predictions(self, question: Any) -> None:
        """Check the model of a question about predictions, and its points."""
        check_plain(question.spec, "sums")
        losses = self._losses(question.spec)
        for x in (question.x, *getattr(question, "more", ())):
            check_share(losses, x)
        if isinstance(question, CalibrationQuestion) and isinstance(losses, Cox):
            check_share(losses, question.point[-1] * question.x)
        elif isinstance(question, CalibrationQuestion) and losses.form != "quadratic":
            compare_curvatures(losses, curvatures(guard.along(losses, question.x), question.point))

    def _encode(self, numbers: list[Array]) -> Any:
        """Return wide integers: whether a number is too large, then all of them, or zeros.

        A refusal would reveal whose number it is, and so its size; the sum reveals that there is one.
        """
        told, sites = np.concatenate([np.zeros(1), *numbers]), len(self._members().identities)
        try:
            return to_wide(told, sites)
        except Refusal:
            for _ in range(OVERFLOW):
                self._count_refusal()
            return to_wide(np.append(1.0, np.zeros(len(told) - 1)), sites)

    def _count(self, question: RiskQuestion) -> dict[str, Any]:
        """Return counts at given times, if no rows had to be moved to other times."""
        if question.times is None:
            raise refuse("cells", "at the level 'sums' rows are counted at given times: times=…")
        counts = self.table.answer(question)
        moved = counts.coarsen(self.policy.cell)
        some = np.isin(counts.times, moved.times)
        pairs = [(getattr(counts, name), getattr(moved, name)) for name in ("entered", "left", "events")]
        if any((one[:, some] != other).any() or one[:, ~some].any() for one, other in pairs):
            raise refuse(
                "cells", f"at the level 'sums' rows are counted where {self.policy.cell} of this site or none are in "
                "each cell: use fewer times",
            )  # fmt: skip
        tree: dict[str, Any] = dump(counts)
        return tree

    @staticmethod
    def _check_points(losses: Any, about: Points | None, features: Any) -> None:
        """Check the points of a question about all features, or about some."""
        for given in () if about is None else about.x:
            x = np.zeros(losses.shape)
            x[..., slice(None) if features is None else features] = given
            check_share(losses, x)

    def _sum_losses(self, ask: Any) -> dict[str, Any]:
        """Return this site's part of the sums of a question about the losses of a model."""
        spec, of = self._read_model(ask)
        asked: Any = ask.get("question")
        (name,) = asked if isinstance(asked, dict) and len(asked) == 1 else ("",)
        if name not in ANSWERED:
            raise refuse("kinds", f"at the level 'sums' sites do not answer {name!a} about losses")
        question: Any = validate(parcels.load(asked[name]), questions()[name], f"a question for {name}")
        if name in TESTS and "tests" not in self.policy.kinds:
            raise refuse("kinds", "this site does not send what standard errors need (tests)")
        model = self._model(spec, of)
        losses: Any = GuardedData(model, ALL)
        if "features" in ask:
            features = ask["features"]
            if not isinstance(features, np.ndarray) or features.dtype != np.int64 or features.ndim != 1 or not (
                len(features) and features[0] >= 0 and features[-1] < losses.shape[-1] and (np.diff(features) > 0).all()
            ):  # fmt: skip
                raise MessageError("features must be numbers of features, in ascending order")
            losses = losses.restrict(features)
        rows, total = float(losses.sizes[0]), ask.get("rows", 1)
        if type(total) is not int or not 1 <= total <= LARGEST_SIZE:
            raise MessageError("rows must be a number of rows")
        self._check_points(model.losses, question.points_at(losses.shape), ask.get("features"))
        share = np.array([rows / total])
        if isinstance(question, Duals):
            if question.x is None:
                raise MessageError("a question about dual points must have its point")
            question = dataclasses.replace(question, weights=share)
        if isinstance(question, SumsAt) and question.parts == ("level",):
            raise refuse("kinds", "each site has a mean outcome of its own, so that models from there do not add up")
        bounds = isinstance(question, SumsAt) and question.parts[0] in ("facts", "curvature", "slopes")
        if bounds and spec.design.weights is not None and question.parts != ("facts",):
            raise refuse("kinds", "bounds for weighted rows go by the largest weight of each site, and do not add up")
        if isinstance(question, Evaluations):
            # multiples of a step that is a site's own would be known from few sums of them
            question = dataclasses.replace(question, slope_bits=EXACT, rest_bits=EXACT)
        local = LocalLosses(losses.offer(question), np.arange(1), share, (), 1.0)
        answer = question.answer(local)
        if isinstance(answer, SumsAtDuals):
            return answer_tree(answer)
        tree = answer_tree(question.add_up(answer, np.arange(1)))
        if bounds and question.parts == ("slopes",):  # squares add up over rows, and their roots do not
            tree["gradient"] = tree["gradient"] ** 2 / share
        if bounds and spec.design.weights is not None:
            tree["facts"][1], tree["gradient"] = 1.0, 0.0 * tree["gradient"]
        if isinstance(question, Evaluations):
            if len(question.curved):
                points = question.points(math.prod(losses.shape))
                whole = [local.weigh(question.curvature(local, points[place]))[0] for place in question.curved]
                tree["hessians"] = np.where(np.isfinite(whole), whole, 0.0)
            if "slopes" in tree:  # those that are not sent are not numbers
                tree["slopes"] = np.nan_to_num(tree["slopes"])
        return tree

    # ------------------------------------------------------------ noise

    def _release_sum(self, asked: dict[str, Any]) -> dict[str, Any]:
        spec, digest = self._read_model(asked)
        try:
            release = validate(asked.get("release"), Release, "a release")
        except ArgumentError as error:
            raise MessageError(f"a release: {error}") from None
        guard.check_design(spec.design, self.policy)
        if spec.family != ("Logistic" if release.loss == "logistic" else "LeastSquares") or spec.ridge.any():
            raise Refusal("a release is of a logistic model, or of squares, without a ridge", rule="kinds")
        declared = self.policy.columns_of_the_table
        missing = [name for name in spec.design.columns if name not in declared]
        if missing:
            raise Refusal(f"this site does not declare the type of the column {missing[0]!r}", rule="columns")
        if release.x is not None and len(release.x) != spec.columns:
            raise MessageError(f"x must have {spec.columns} entries, got {len(release.x)}")
        assert self._ledger is not None
        radius, shares = self.policy.radius, self._shares
        masker = None if self.membership is None else self._masker(asked)
        X, y = private_rows(self.table, spec, release.loss)
        rows = bounded(X, (y - release.middle) / release.reach, radius, release.loss, release.long_rows)
        total = exact_sum(release, rows, radius)
        # with other members other sites share the noise: the same again would leave less in a difference
        members = b"" if self.membership is None else self.membership.digest
        request = pack({
            "kind": "release", "spec": digest, "release": dump(release), "radius": radius, "shares": shares,
            "members": members,
        })  # fmt: skip
        tag = hmac.digest(self._data.encode(), request, "sha256")
        self._ledger.spend(self._data, tag.hex(), release.mu, release.kind, self._asker)
        stream = Stream(self.secret.derive(b"noise"), tag)
        integers = add_noise(release, total, radius, spec.columns, stream, shares)
        words = integers.view(np.uint64) if masker is None else masker.mask(integers, WORD, request)
        return {"words": words.tobytes(), "radius": radius, "shares": shares}

    def answer(self, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
        self._asker = asker.name
        return super().answer(asked, asker)


def declared_schema(policy: Policy) -> Schema:
    """Return the columns that a policy declares; values may be missing in any."""
    columns = []
    for name, given in policy.columns_of_the_table.items():
        kind: Any = given.get("type") if policy.allows(name) else "hidden"
        levels: tuple[Any, ...] = (False, True) if kind == "truth" else tuple(given.get("levels") or ())
        columns.append(ColumnSchema(name, kind, given.get("unit"), 1, levels, (1,) * len(levels)))
    if any(column.kind not in get_args(Kind) for column in columns):
        raise MessageError("a declared column has an unknown type")
    return Schema(None, tuple(columns))


def check_plain(spec: ModelSpec, level: str) -> None:
    """Refuse models that have more than columns of rows: sites, periods, strata, and weights of classes."""
    if level == "private" and spec.family not in ("Logistic", "LeastSquares"):
        raise refuse("kinds", f"models of the family {spec.family} are not available at this level")
    if spec.effects or spec.several_rows or spec.class_weights:
        raise refuse("kinds", "models have no site effects, periods and weights of classes at this level")
    if not spec.intercept and spec.family not in ("Cox", "Ordinal"):
        raise refuse("kinds", "models have an intercept at this level")
    check_design(spec.design, level)
    if isinstance(spec.design.response, Survival) and level == "private":
        raise refuse("kinds", "the response is a column at this level, and not times of events")


def check_design(design: Design, level: str) -> None:
    """Refuse designs whose sums may be of few sites, or of few rows."""
    if design.strata or design.cluster:
        raise refuse("kinds", "models have no strata and clusters at this level: one may belong to a single site")
    if isinstance(design.weights, InverseWeights):
        raise refuse("kinds", "rows have no inverse probabilities as weights at this level: few rows may have them all")
    if level == "private" and (design.weights is not None or design.offset is not None):
        raise refuse(
            "kinds", "models have no weights and offsets at this level: rows would have no bounded part in sums"
        )
    if design.filled:
        raise refuse("kinds", 'rows with missing values are dropped at this level: missing="drop"')


def check_share(losses: Any, x: Array) -> None:
    """Refuse a point at which a site's rows have next to no curvature, or very much, unless all sites have it there.

    Curvature is compared with that where all rows have the same prediction, for every pair of classes by itself.
    """
    slopes = x if isinstance(losses, Cox) else x.reshape(-1, losses.n_features)[:, :-1]
    if isinstance(losses, Ordinal):
        slopes = x[: losses.n_features]
    if losses.form == "quadratic" or not slopes.any():
        return
    compare_curvatures(losses, curvatures(losses, x))


def compare_curvatures(losses: Any, found: list[float]) -> None:
    """Refuse a curvature of a site's rows that is next to nothing or very large, relative to the usual one."""
    usual = usual_curvatures(losses)
    unbounded = isinstance(losses, GLM) and losses.distribution.link not in FULL_DOMAIN
    for here, there in zip(found or [0.0] * len(usual), usual, strict=True):
        if not here >= LEAST_SHARE * there:
            raise refuse(
                "points", "this site does not answer at this point: its rows would add next to nothing, so that the "
                "sum would be the sum of other sites",
            )  # fmt: skip
        if unbounded and here * LEAST_SHARE > there:
            raise refuse("points", "this site does not answer at this point: its rows would add nearly all of the sum")


def curvatures(losses: Any, x: Array) -> list[float]:
    """Return the curvature of all rows at a point, for each pair of classes; none outside the domain."""
    try:
        return [float(one.bend.sum()) for one in respond(losses, x, 0) if one.bend is not None and not one.observed]
    except OutsideError:
        return []


def usual_curvatures(losses: Any) -> list[float]:
    """Return the curvatures where all rows have the same prediction, which fits them."""
    if isinstance(losses, Cox):
        return curvatures(losses, np.zeros(losses.shape))
    y, weights = losses._rows.y, losses.weights_of_rows
    total = float(weights.sum())
    if isinstance(losses, Softmax | ClassModel):
        classes = np.bincount(y.astype(np.int64), weights, minlength=losses.n_classes)
        if isinstance(losses, Ordinal):
            below = np.cumsum(classes)[:-1]
            return [float(one) for one in below * (total - below) / total]
        present = classes[np.bincount(y.astype(np.int64), minlength=losses.n_classes) > 0]
        return [float(a * b / total) for i, a in enumerate(present) for b in present[:i]]
    x, family = np.zeros(losses.shape), (losses._as_glm if isinstance(losses, Logistic) else losses).distribution
    outcomes = y > 0 if isinstance(losses, Logistic) else y
    shifts = np.zeros(len(y)) if losses._rows.shifts is None else losses._rows.shifts
    if family.link == "log":
        x[-1] = math.log(float(weights @ outcomes / (weights @ np.exp(shifts))))
    else:
        x[-1] = link_of(family.link, np.array([np.average(outcomes, weights=weights)]))[0] - np.average(shifts)
    return curvatures(losses, x)


def _combined(columns: Array) -> bool:
    """Whether all combinations of columns vary."""
    if not (columns.max(axis=0) > columns.min(axis=0)).all():
        return False
    unit = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return bool(np.linalg.eigvalsh(unit.T @ unit / len(unit))[0] > CLEAR)


def private_rows(table: SiteTable, spec: ModelSpec, loss: str) -> Rows:
    """Return the rows that a design can take, each judged by itself: no row changes what becomes of another."""
    design = spec.design
    assert not isinstance(design.response, Survival)
    used = design.complete(table)
    for factor in design.coded:
        used &= known_levels(table, factor.coded, factor.levels)
    column = getattr(design.response, "column", None)
    if spec.classes and column is not None:
        used &= known_levels(table, column, spec.classes)
    rows = table.take(used, design.columns)
    with np.errstate(all="ignore"):
        X = design.matrix(rows, spec.means)
        X = np.where(spec.scale > 0, (X - spec.centre) / np.where(spec.scale > 0, spec.scale, 1.0), 0.0)
        y = (
            rows.response(design.response, spec.classes)
            if spec.classes and column is not None
            else np.broadcast_to(np.asarray(evaluate(design.response, rows, {}), np.float64), len(rows))
        )
    if loss == "logistic":
        y = np.where(np.isin(y, (0.0, 1.0)), 2.0 * y - 1.0, np.nan)
    return Rows(np.column_stack([X, np.ones(len(X))]), np.array(y))


def known_levels(table: SiteTable, column: str, levels: tuple[Any, ...]) -> Array:
    """Return in which rows a column has one of some levels."""
    found = table.values(column)
    own = found.levels
    texts = {level for level in levels if isinstance(level, str)}
    numbers = {float(level) for level in levels if not isinstance(level, str)}
    if own is None:
        known = np.isin(found.numbers, list(numbers))
    else:
        known = np.isin(found.numbers, [i for i, level in enumerate(own) if level in texts or level in numbers])
    return np.asarray(known & ~found.missing)


def read_pairs(tree: Any, kind: Any) -> dict[str, Any]:
    """Return pairs of bytes by name."""
    if not isinstance(tree, dict) or not all(isinstance(name, str) for name in tree):
        raise MessageError("keys and statements must be by the names of sites")
    for pair in tree.values():
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, bytes) for one in pair)):
            raise MessageError("keys and statements must be pairs of bytes")
    return {name: kind(*pair) for name, pair in tree.items()}
