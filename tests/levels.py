"""A site at the levels ``sums`` and ``private`` that is asked what attacks ask of one at the level ``filter``.

At ``sums`` three other members collude with the analyst: they add zeros, so that a sum is this site's numbers, and
state that everything varies, so that only the rules about this site's rows are left. Privately the analyst asks for
the releases that are nearest to a question.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import At, Informations, SumsAt
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.requests import write as write_part
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError, Refusal
from fpdfp.federation import questions
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.masked import ANSWERED, digest, merge
from fpdfp.federation.policy import Policy
from fpdfp.federation.protected import ProtectedGuard, private_rows, run_name
from fpdfp.federation.questions import ModelSpec, dump
from fpdfp.federation.seal import Secret
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Column, Numeric
from fpdfp.privacy.fixed_point import WIDE, from_wide
from fpdfp.privacy.masks import Masker, RunKey, add_up, pair_keys, run_key
from fpdfp.privacy.releases import GRID, Release, bounded, exact_sum
from tests.desks import ANALYST

RUN, SITE, OTHERS = "run", "north", ("east", "south", "west")
#: Attacks on what one site tells, not on how much: refusals and analyses are not limited.
LOOSE: dict[str, Any] = {"refusals": 10**9, "analyses": 10**9}
#: So many of the further points of one question are asked, and so many questions of one site.
FEW, MOST = 4, 40
PARTS = {"values": "value", "gradients": "gradient"}


class InMemory:
    """A journal of a colluding member, who need not remember anything."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.append = self.records.append


class SumsGuard(ProtectedGuard):
    """A site at the level ``sums`` all of whose other members collude."""

    def __init__(self, table: SiteTable, folder: Path, **policy: Any) -> None:
        own = {name: Secret.of(folder / name) for name in (SITE, *OTHERS)}
        members = {name: secret.public.hex() for name, secret in own.items()}
        super().__init__(SITE, table, Policy(level="sums", members=members, **LOOSE | policy), folder / SITE)
        assert self.membership is not None
        run, keys = run_name(RUN), dict[str, RunKey]()
        privates = {name: one.derive(b"run" + run + self.membership.digest) for name, one in own.items()}
        for name, one in own.items():
            keys[name] = run_key(privates[name], one.identity, self.membership, run)
        self.colluders = {
            name: Masker(name, pair_keys(name, privates[name], keys, self.membership, run), run, InMemory())  # type: ignore[arg-type]
            for name in OTHERS
        }
        told = {name: [*key] for name, key in keys.items()}
        assert super().answer({"kind": "meet", "run": RUN, "keys": told}, ANALYST) == {"reply": {}}

    def sum(self, ask: dict[str, Any]) -> Any:
        """Return this site's numbers, or None where it refuses; they leave it under masks alone."""
        try:
            about = dump(self._read_ask(ask)[1])
            varies = b"\1" * len(self._states(self._read_ask(ask)[1])[1])
            told = {name: one.seal(SITE, varies, digest(about)) for name, one in self.colluders.items()}
        except Exception:  # the site finds out by itself
            told = {}
        asked = {"kind": "sum", "run": RUN, "ask": ask, "statements": told}
        said = unpack(pack(super().answer(unpack(pack(asked)), ANALYST)))
        if "reply" not in said:
            return None
        words = {SITE: np.frombuffer(said["reply"]["words"], "<u8").reshape(-1, 2)}
        request = pack({"kind": "sum", "ask": ask})
        words |= {name: one.mask(np.zeros_like(words[SITE]), WIDE, request) for name, one in self.colluders.items()}
        assert self.membership is not None
        numbers = from_wide(add_up(words, self.membership, WIDE))
        assert numbers[0] == 0 or not numbers[1:].any()  # a number that is too large is not sent
        found = merge(said["reply"]["form"], numbers[1:])
        masked = from_wide(words[SITE])
        assert len(masked) < 2 or not np.isclose(masked, numbers, rtol=1e-6).all()
        return found


class PrivateGuard(ProtectedGuard):
    """A site at the level ``private`` that adds all of its noise itself."""

    def __init__(self, table: SiteTable, folder: Path, **policy: Any) -> None:
        declared = {name: {"type": "number"} for name in table.columns}
        options: dict[str, Any] = {"level": "private", "radius": 1e3, "columns_of_the_table": declared} | LOOSE | policy
        super().__init__(SITE, table, Policy(**options), folder / SITE)

    def release(self, spec: Any, release: Release) -> dict[str, Any]:
        """Return what leaves the site."""
        asked = {"kind": "release", "run": RUN, "spec": spec, "release": dump(release)}
        said: dict[str, Any] = unpack(pack(super().answer(unpack(pack(asked)), ANALYST)))
        return said

    def noise(self, spec: Any, release: Release, reply: dict[str, Any]) -> Any:
        """Return how far a reply is from the sum, in standard deviations of the stated noise."""
        model: ModelSpec = questions.read_spec(spec)
        X, y = private_rows(self.table, model, release.loss)
        rows = bounded(X, (y - release.middle) / release.reach, self.policy.radius, release.loss, release.long_rows)
        exact = exact_sum(release, rows, self.policy.radius) / (release.sensitivity(self.policy.radius) / GRID)
        return (np.frombuffer(reply["words"], "<i8") - np.rint(exact)) / release.scale(model.columns)


def sums_asked(asked: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Return the questions of a request as members of a sum are asked; None for what these have no question for."""
    if asked.get("kind") != "request":
        return [{"kind": str(asked.get("kind")), "question": asked.get("question")}]
    found = list[dict[str, Any] | None]()
    request = Request.read(parcels.load(asked["request"]))
    for one in request.questions:
        own: Any = one
        if isinstance(one, At):
            own = SumsAt(tuple(PARTS[part] for part in one.parts), np.asarray(one.x, np.float64))  # type: ignore[misc]
        tree = {own.name: write_part(own, parcels.dump)}
        found.append({"kind": "losses", "spec": asked["spec"], "question": tree} if own.name in ANSWERED else None)
    return found if request.about.job is None else [None]


def releases_asked(asked: dict[str, Any], mu: float = 0.01) -> list[tuple[Any, Release]]:
    """Return the releases that are nearest to a request about a model."""
    if asked.get("kind") != "request":
        return []
    loss: Any = "logistic" if asked["spec"].get("family") == "Logistic" else "squares"
    spec = asked["spec"] | {"ridge": np.zeros_like(asked["spec"]["ridge"])}
    found = [(spec, Release("moments", mu, loss)), (spec, Release("statistics", mu, loss))]
    for one in Request.read(parcels.load(asked["request"])).questions if loss == "logistic" else ():
        x = getattr(one, "x", None)
        if x is not None and np.ndim(x) == 1 and np.isfinite(x).all() and np.abs(x).max(initial=0) <= 1e100:
            kind: Any = "hessian" if isinstance(one, Informations) else "gradient"
            found.append((spec, Release(kind, mu, x=np.asarray(x, np.float64))))
    return found


def as_table(X: Any, y: Any) -> SiteTable:
    """Return the columns x0, x1, …, without one that is 1 in all rows, and the response y."""
    X = np.asarray(X, np.float64)
    return SiteTable.read(pd.DataFrame(X[:, : width_of(X)], columns=columns_of(X)).assign(y=np.asarray(y)))


def width_of(X: Any) -> int:
    """Return the number of columns but for the intercept, which is the last one."""
    return int(X.shape[1] - (X[:, -1] == 1.0).all())


def columns_of(X: Any) -> list[str]:
    """Return the names of columns."""
    return [f"x{place}" for place in range(width_of(X))]


def as_spec(X: Any, given: dict[str, Any]) -> Any:
    """Return the model of all columns of a table of numbers."""
    names, family = columns_of(X), given.get("family", "Logistic")
    made = Design(Column("y"), tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(names)), (*names,))
    d, intercept = len(names), len(names) < X.shape[1]
    ridge = np.full(X.shape[1], float(given.get("l2", 0.0)))
    classes = (0, 1) if family == "Logistic" else ()
    return dump(ModelSpec(made, np.zeros(0), np.zeros(d), np.ones(d), intercept, family, classes, ridge))


class Levels:
    """The site of a desk at all three levels, with the default policy: what the filter refuses, both others refuse."""

    def __init__(self, desk: RequestGuard, folder: Path) -> None:
        self.X = getattr(desk.table, "X", None)
        table = desk._table if self.X is None else as_table(self.X, desk.table.y)
        options = LOOSE | {"variables": desk.policy.variables}
        self.filter = RequestGuard(SITE, desk._table, Policy(**options), folder / "filter", desk.questions)
        self.sums = SumsGuard(table, folder / "sums", variables=desk.policy.variables)
        kept = np.arange(len(table)) != min(17, len(table) - 1)
        self.privates = [
            PrivateGuard(one, folder / name) for one, name in ((table, "private"), (table.take(kept), "without a row"))
        ]
        self.specs, self.seen = dict[str, Any](), set[bytes]()
        #: How many questions were asked, and answered, at each level.
        self.asked, self.answered = collections.Counter[str](), collections.Counter[str]()
        self.deviations = list[Any]()

    def close(self) -> None:
        """Close all sites."""
        for one in (self.filter, self.sums, *self.privates):
            one.close()

    def check_noise(self) -> None:
        """Fail unless whatever noise was seen is as large as stated."""
        squares = np.square(np.concatenate([*self.deviations, np.zeros(0)]))
        if squares.size:
            assert abs(squares.mean() - 1.0) < 6.0 * np.sqrt(2.0 / squares.size), squares.mean()

    def ask(self, asked: dict[str, Any]) -> None:
        """Ask at all levels, and compare."""
        try:
            key = digest({name: one for name, one in asked.items() if name not in ("run", "sequence", "plan", "model")})
        except (RecursionError, MessageError, TypeError, ValueError):  # no parcel has it
            return
        if key in self.seen or not isinstance(asked.get("kind"), str) or self.asked["in all"] >= MOST:
            return
        self.asked["in all"] += 1
        self.seen.add(key)
        if asked["kind"] == "request":
            given = asked.get("spec", self.specs.get(asked.get("model", "")))
            if given is None:
                return
            self.specs[asked["model"]] = given
            asked = asked | {"spec": given}
        if isinstance(asked.get("question"), dict) and len(asked["question"].get("more", ())) > FEW:
            # each point is looked at by itself
            asked = asked | {"question": asked["question"] | {"more": asked["question"]["more"][:FEW]}}
        told = self.filter.answer(asked, ANALYST)
        if asked["kind"] == "request" and self.X is not None:
            asked = asked | {"spec": as_spec(self.X, asked["spec"])}
        for guard in (self.sums, *self.privates):  # as it is
            said = guard.answer(asked | {"run": RUN}, ANALYST)
            assert "reply" not in said or asked["kind"] in ("schema", "budget"), (asked["kind"], said)
        try:
            sums, releases = sums_asked(asked), releases_asked(asked)
        except (Refusal, MessageError, KeyError, TypeError, AttributeError):  # nothing that can be asked
            return
        self._ask_sums(asked, sums if not asked.get("rows") else [None], told)
        for spec, release in releases:
            self._ask_privates(spec, release)

    def _ask_sums(self, asked: dict[str, Any], wanted: list[Any], told: dict[str, Any]) -> None:
        found: list[Any] = [None if one is None else self.sums.sum(one) for one in wanted]
        self.asked["sums"] += 1
        if any(one is None for one in found):
            return
        self.answered["sums"] += 1
        assert "reply" in told, f"refused by the filter and answered at sums: {told}, {asked}"
        for one, question in zip(found, wanted, strict=True):
            slope = told["reply"].get("at", {}).get("gradients")
            if slope is not None and "sums_at" in question["question"]:  # the control: these are the site's numbers
                own = slope[0] + 0.0
                np.testing.assert_allclose(np.ravel(one["gradient"]) / len(self.sums.table), own.ravel(), 1e-4, 1e-9)

    def _ask_privates(self, spec: Any, release: Release) -> None:
        key = digest([spec, dump(release)])
        if key in self.seen:  # the same release has the same noise
            return
        self.seen.add(key)
        said = [guard.release(spec, release) for guard in self.privates]
        self.asked["private"] += 1
        assert [*said[0]] == [*said[1]], said
        if "reply" not in said[0]:
            assert said[0] == said[1]  # a refusal says nothing of a row
            return
        self.answered["private"] += 1
        for guard, one in zip(self.privates, said, strict=True):
            assert set(one["reply"]) == {"words", "radius", "shares"}
            self.deviations.append(guard.noise(spec, release, one["reply"]))


@pytest.fixture(autouse=True)
def at_all_levels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Ask whatever a test asks of a desk also of sites at the two levels, where ``FPDFP_ALL_LEVELS`` is set."""
    if "FPDFP_ALL_LEVELS" not in os.environ:
        yield
        return
    pytest.importorskip("cryptography")
    levels, answer = dict[int, tuple[RequestGuard, Levels]](), RequestGuard.answer

    def ask_all(desk: RequestGuard, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
        said = answer(desk, asked, asker)
        if type(desk) is RequestGuard and desk not in own:
            if id(desk) not in levels:
                levels[id(desk)] = desk, Levels(desk, tmp_path / f"levels {len(levels)}")
                own.append(levels[id(desk)][1].filter)
            levels[id(desk)][1].ask(asked)
        return said

    own = list[RequestGuard]()
    monkeypatch.setattr(RequestGuard, "answer", ask_all)
    yield
    for _, one in levels.values():
        one.close()
        COUNTED[0].update(one.asked)
        COUNTED[1].update(one.answered)
    for _, one in levels.values():
        one.check_noise()


#: How many questions of attacks were asked at each level, and answered, in this process.
COUNTED = collections.Counter[str](), collections.Counter[str]()
