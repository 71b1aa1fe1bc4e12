"""Sites that answer through their desks, in this process, and a table of rows that stands for a site's."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import At
from fpdfp.cohorts.record import plan_name
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.datasets import Moments
from fpdfp.errors import Refusal
from fpdfp.federation.analyst import refusal
from fpdfp.federation.guard import ALL, GuardedData, Model, digest_of
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.keys import Asker
from fpdfp.federation.policy import Policy

ANALYST = Asker("ann", "analyst", "ab" * 32, "study")
#: The desks that are open.
MADE: list[Desk] = []
#: Questions and models of these tests are plain trees.
PLAIN = types.SimpleNamespace(
    read_question=lambda tree: types.SimpleNamespace(**tree), write_answer=lambda answer: answer, read_spec=dict
)


class Rows:
    """A table whose features and classes are there already."""

    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = X, y

    def losses(self, given: dict[str, Any], site: str = "") -> fpdfp.losses.base.Losses:
        """Return the losses of the family that is asked for."""
        family: Any = getattr(fpdfp.losses, given.get("family", "Logistic"))
        made: fpdfp.losses.base.Losses = family(self.X, self.y, l2=given.get("l2", 0.0))
        return made

    def answer(self, question: Any, check: Any = None, site: str = "") -> dict[str, Any]:
        """Return what is asked, as a tree."""
        if question.kind == "moments":
            check(self.X, None)
            found = Moments.of(self.X, diagonal=question.diagonal)
            return {"count": found.count, "mean": found.mean, "scatter": found.scatter}
        if question.kind == "sums":
            counts = np.unique(self.y, return_counts=True)[1]
            return {"rows": len(self.y), "used": len(self.y), "known": [], "levels": [], "classes": counts}
        columns = [
            {"name": "stage", "levels": ["I", "II", "III"], "counts": [50, 7, 2], "missing": 1, "least": None},
            {"name": "age", "levels": [], "counts": [], "missing": 0, "least": 18.0, "largest": 104.0},
            {"name": "patient_id", "levels": [], "counts": [], "missing": 0},
        ]
        return {"rows": len(self.y), "columns": columns}


def guarded(losses: Any) -> Any:
    """Return losses as the questions of a site with the default policy get them, with all operations."""
    return GuardedData(Model(losses, Policy()), ALL)


def make_desk(X: Any, y: Any, folder: Path, policy: Policy | None = None, name: str = "north") -> Desk:
    """Return the desk of a site with these rows."""
    MADE.append(Desk(name, Rows(X, y), policy or Policy(), folder / name, PLAIN))
    return MADE[-1]


def close_all() -> None:
    """Close all desks that were made."""
    while MADE:
        MADE.pop().close()


def ask(
    desk: Desk, request: Request | None = None, *, run: str = "run", model: Any = (), **others: Any
) -> dict[str, Any]:
    """Ask a desk what a solver asks, as bytes like over a network; return the reply, or raise what it refuses."""
    asked: dict[str, Any] = {"kind": "request", "run": run, "sequence": 1} | others
    if request is not None:
        given = dict(model)
        tree = request.write(parcels.dump)
        asked |= {"model": f"model {sorted(given.items())}", "spec": given, "request": tree}
    reply = unpack(pack(desk.answer(unpack(pack(asked)), ANALYST)))
    if "refused" in reply:
        raise Refusal(reply["refused"])
    assert "reply" in reply, reply
    found: dict[str, Any] = reply["reply"]
    return found


def gradient(desk: Desk, x: Any, **others: Any) -> Any:
    """Ask a desk for a gradient at any point."""
    return ask(desk, Request((At(np.asarray(x), ["gradients"]),)), **others)["at"]["gradients"][0]


class Desks(RemoteEngine):
    """An engine whose sites are desks."""

    def __init__(self, desks: Sequence[Desk], model: Any = (), rows: str = "", **options: Any) -> None:
        super().__init__(**{"patience": 1.0, **options})
        self.desks, self.model = list(desks), dict(model)
        self.plan = ""
        #: Models are told apart by their names.
        self.model_name = digest_of(self.model)
        self.rows = {"rows": rows} if rows else {}
        #: All that the coordinator has sent and got: requests, and replies.
        self.seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        #: A reply may be changed on its way.
        self.change: Any = None

    @property
    def names(self) -> Sequence[str]:
        return [desk.name for desk in self.desks]

    def declare(self, problems: int, folds: int) -> None:
        self.plan = plan_name()
        for desk in self.desks:
            ask(desk, kind="plan", plan=self.plan, problems=problems, folds=folds)

    def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        refused: dict[str, Any] = {}
        for site, tree in asked.items():
            envelope = {"kind": "request", "run": self.run_id, "sequence": 1, "model": self.model_name, "request": tree}
            envelope["plan"] = self.plan
            envelope |= {"each": True} if tree.get("each") else {}
            envelope |= self.rows
            reply = self.desks[site].answer(unpack(pack(envelope)), ANALYST)
            if "needs_model" in reply:
                reply = self.desks[site].answer(unpack(pack(envelope | {"spec": self.model})), ANALYST)
            if "refused" in reply:
                refused[self.names[site]] = reply["refused"]
                continue
            assert "reply" in reply, reply
            came = unpack(pack(reply["reply"]))
            replies[site] = came if self.change is None else self.change(site, tree, came)
            self.seen.append((tree, came))
        if refused:
            raise refusal(refused)
        return replies

    def fit(self, penalty: Any = None, **options: Any) -> Any:
        """Solve a problem with these sites."""
        problem = fpdfp.Problem(self.losses(), penalty or fpdfp.penalties.L1(0.01))
        return fpdfp.solve(problem, engine=self, progress=False, **options)
