"""Variables that analysts propose and the site's person approves: their definitions, counts and states, in a file."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fpdfp import _files as files
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.formula.evaluation import evaluate
from fpdfp.formula.parsing import parse_variable
from fpdfp.formula.tree import Spline

FILE = "approvals.json"
State = Literal["waiting", "yes", "no", "not yet", "expired"]
ANSWERS: dict[str, State] = {"yes": "yes", "no": "no", "later": "not yet"}
#: The longest definition, how many proposals a site keeps in all and of each analyst, and after how many days one that
#: waits has expired.
LONGEST, MOST, MOST_EACH, DAYS = 500, 100, 20, 30
#: Variables that differ in fewer rows from one that was approved are shown with it: their difference tells these rows.
NEAR = 10
#: So many levels are shown with their rows.
MOST_LEVELS = 20
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A variable that an analyst has proposed.

    Attributes
    ----------
    name, text
        Its name, and its definition as it is written in a policy.
    by, day
        Who proposed it, and when.
    counts
        What the site's person should know of its values; it stays at the site.
    state
        What has become of it.
    """

    name: str
    text: str
    by: str
    day: str
    counts: str
    state: State = "waiting"

    def __str__(self) -> str:
        return f"{self.name} = {self.text}\n    {self.counts}; proposed by {self.by} on {self.day}: {self.state}"


class Approvals:
    """The proposals at a site.

    Parameters
    ----------
    folder
        The site's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def read(self) -> dict[str, Proposal]:
        """Return all proposals by name; those that have waited too long have expired."""
        if not self.path.exists():
            return {}
        found = {name: Proposal(**one) for name, one in json.loads(self.path.read_bytes()).items()}
        oldest = (_today() - datetime.timedelta(days=DAYS)).isoformat()
        return {
            name: dataclasses.replace(one, state="expired")
            if one.state in ("waiting", "not yet") and one.day < oldest
            else one
            for name, one in found.items()
        }

    @property
    def approved(self) -> dict[str, str]:
        """The definitions that were approved, by name."""
        return {name: one.text for name, one in self.read().items() if one.state == "yes"}

    def propose(self, name: Any, text: Any, by: str, table: Any) -> State:
        """Note a proposal, and return its state; one that was answered under the same name stays unchanged."""
        if not isinstance(name, str) or NAME.fullmatch(name) is None or name in table.columns:
            raise MessageError("a variable must have a name of letters, digits and _ that no column has")
        if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable():
            raise MessageError(f"a variable must be defined by a text of at most {LONGEST} letters")
        known = self.read()
        if name in known and known[name].state != "expired":
            if known[name].text != text:
                raise MessageError(f"{name} has another definition here; give the new one another name")
            return known[name].state
        if sum(one.state != "expired" for one in known.values()) >= MOST:
            raise MessageError("this site has as many proposals as it keeps")
        if sum(one.by == by and one.state in ("waiting", "not yet") for one in known.values()) >= MOST_EACH:
            raise MessageError(
                f"{MOST_EACH} proposals of yours wait for an answer here; wait until this site has answered one"
            )
        kept = {other: one for other, one in known.items() if one.state != "expired"}
        try:
            counts = "; ".join([describe(text, table), *compare(text, self.approved, table)])
        except ArgumentError as error:
            raise MessageError(f"{text} cannot be computed here: {error}") from None
        self._write(kept | {name: Proposal(name, text, by, _today().isoformat(), counts)})
        return "waiting"

    def answer(self, name: str, answer: str) -> Proposal:
        """Answer a proposal with yes, no or later."""
        known = self.read()
        if name not in known or answer not in ANSWERS:
            raise ArgumentError("name", f"must be one of {', '.join(known) or 'none'}, with yes, no or later")
        self._write(known | {name: dataclasses.replace(known[name], state=ANSWERS[answer])})
        return known[name]

    def _write(self, proposals: Mapping[str, Proposal]) -> None:
        text = json.dumps({name: dataclasses.asdict(one) for name, one in proposals.items()}, indent=1).encode()
        files.write_whole(self.path, text, flush=True, private=True)


def describe(text: str, table: Any) -> str:
    """Return what the site's person should know of a variable: how many rows it distinguishes."""
    node = parse_variable(text)
    if isinstance(node, Spline):
        values = evaluate(node.of, table, {})
        edges = (node.lower, *node.knots, node.upper)
        counts = np.histogram(values[np.isfinite(values)], edges)[0]
        return f"rows between its knots: {', '.join(map(str, counts.tolist()))}"
    column = _column(text, table)
    known = column.numbers[~column.missing]
    lost = int(column.missing.sum())
    found, counts = np.unique(known, return_counts=True)
    if column.levels is not None:
        rows = {column.levels[int(place)]: int(count) for place, count in zip(found, counts, strict=True)}
        shown = ", ".join(f"{level}: {rows.get(level, 0)}" for level in column.levels[:MOST_LEVELS])
        return f"rows of its {len(column.levels)} levels: {shown}; no value in {lost}"
    if set(found.tolist()) <= {0.0, 1.0}:
        return f"true in {int((known == 1).sum())} of {len(known)} rows, no value in {lost}"
    rarest = int(counts.min(initial=0))
    return f"{len(found)} different values in {len(known)} rows, the rarest in {rarest}, no value in {lost}"


def compare(text: str, approved: Mapping[str, str], table: Any) -> Iterator[str]:
    """Yield from which approved variables one differs in few rows."""
    columns = {
        name: _column(one, table)
        for name, one in {"": text, **approved}.items()
        if not isinstance(parse_variable(one), Spline)
    }
    own = columns.pop("", None)
    for name, other in sorted(columns.items()) if own is not None else ():
        if (own.levels is None) is not (other.levels is None):
            continue
        rows = int(((own.numbers != other.numbers) & ~own.missing & ~other.missing).sum())
        if 0 < rows < NEAR:
            yield f"differs from {name} in {rows} rows, which two models would tell"


def _column(text: str, table: Any) -> Any:
    """Return the column that a definition makes of a site's table."""
    return table.with_variables({"": text}).columns[""]


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()
