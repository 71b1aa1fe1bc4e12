"""An attack generator: it puts what singles out one row into every slot of every question, and counts what it finds.

    python -m tests.attacks 1000000 --jobs 2 --minutes 60      # what comes first ends it
    python -m tests.attacks 2000 --level sums                  # or private

Budgets are off. A series asks a site of 400 rows some twenty things of one model or table, and succeeds if a number, or
a difference of any two of the same kind, is one person's: a row of the table up to a factor, one of its values, or a
count of fewer rows than a cell has.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import (
    ANYWHERE,
    At,
    Bounds,
    Constants,
    Duals,
    Facts,
    Informations,
    Jeffreys,
    LocalModels,
    Overdispersions,
    Spread,
    SumsAt,
)
from fpdfp.cohorts.many_points import ZERO, DualSums, Evaluated, Evaluations, HeldScores
from fpdfp.cohorts.requests import Address, Place, Request
from fpdfp.compress.fixed import EXACT
from fpdfp.errors import Refusal
from fpdfp.federation import questions
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.masked import digest as digest_of_tree
from fpdfp.federation.masked import from_sums
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import DescriptionQuestion, Distribution, HistogramQuestion, ModelSpec
from fpdfp.federation.table import SiteTable
from fpdfp.folds import Folds
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Arithmetic, Call, Coded, Column, Comparison, Missing, Number, Numeric, Spline, Survival
from fpdfp.methods.newton import NewtonExchange
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import KINDS, Exact, FeatureBounds, Slopes
from fpdfp.precondition.partial import Sketch
from fpdfp.precondition.quantized import QuantizedMoments
from fpdfp.privacy.releases import full_matrix, read_sum
from fpdfp.rng import Draws
from fpdfp.traffic import digest
from tests.desks import ANALYST
from tests.levels import PARTS, PrivateGuard, SumsGuard, releases_asked, sums_asked

INTRODUCTION = """# What the attack generator finds

`make attack` runs `python -m tests.attacks 1000000 docs/results/attack.md --jobs 2 --minutes 60`; what comes first
ends it, and with `--store` runs add up. A site has 400 rows, among them some that are easy to single out, and the
default policy with its budget off. The generator puts expressions of one row into every slot of every question, and
points of every kind into every point. A series asks one model, or the table, up to 24 things: questions, and the
operations that methods request in rounds. A pair asks the same of two models that differ in one thing. A row is found
if an answered vector, or the difference of two, is a multiple of one. It is also found if a number is one person's
value, or if a count is of fewer than three rows. Rows that are zero in a measured column are not compared: differences
along an axis are multiples of them by chance. Then each part of the four rules of the guard is switched off in turn,
until a row is found.

The parts `kinds`, `rows`, `parameters` and `budget` are not in the table: without them rows are found by many questions
together, and other tests carry these attacks out.

"""
ROWS = 400
#: The answers of the default policy come in parts of so many, each with a seed of its own.
PART = 2_000
#: So many things are asked of a model.
SERIES = 24
HUGE = 10**12
MEASURED = ("income", "pressure", "dose")
ALL = Address(place=Place(np.array([0]), None, 1.0, 0), clients=np.array([0]))


def make_table(seed: int = 0) -> pd.DataFrame:
    """Return rows among which one is old, one rich, two are of a rare group, and a few lack a value."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({name: rng.normal(size=ROWS).round(6) for name in MEASURED})
    table["income"] = rng.lognormal(3.0, 0.4, ROWS).round(4)
    table["age"] = rng.integers(30, 90, ROWS)
    table.loc[17, "age"] = 101
    table["rare"] = np.isin(np.arange(ROWS), (5, 9)).astype(int)
    table["peak"] = np.where(np.arange(ROWS) == 23, 1e6, rng.normal(size=ROWS).round(6))
    table["few"] = np.where(np.arange(ROWS) == 31, 1.0, 1e-9)
    table["patient_id"] = rng.permutation(ROWS) + 0.5
    for name, own in (("nine", range(9)), ("four", range(1, 5)), ("others", range(5, 9))):
        table[name] = np.isin(np.arange(ROWS), list(own)).astype(int)
    table["units"] = np.where(np.arange(ROWS) == 17, 7.25, 0.0)
    table["heavy"] = np.where(np.arange(ROWS) == 41, 1e9, 1.0)
    table["alone"] = (np.arange(ROWS) == 17).astype(int)
    table["dose"] = np.where(np.arange(ROWS) == 31, 1e-4, np.abs(table.dose) + 0.1)
    table["score"] = rng.integers(0, 4, ROWS)
    table.loc[17, "score"] = 0
    table["decided"] = ((table.score >= 2) | (np.arange(ROWS) == 17)).astype(int)
    table["pair"] = np.where(np.arange(ROWS) == 17, 16, np.arange(ROWS))
    table["group"] = np.where(np.arange(ROWS) % 100 < 9, "b", "a")
    table["half"] = (np.arange(ROWS) % 2).astype(int)
    table["nearly"] = np.where(np.arange(ROWS) == 3, 1 - table.half, table.half)
    table["died"] = rng.integers(0, 2, ROWS)
    table.loc[[5, 9], "died"] = 1
    table["visits"] = rng.poisson(2.0, ROWS)
    table["time"] = rng.integers(1, 200, ROWS) * 1.0
    table.loc[17, "time"] = 199.0
    table["grade"] = rng.choice(["x", "y", "z"], ROWS)
    return table


FRAME = make_table()


class Site:
    """A site that is attacked, and what is known of it."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.frame = FRAME
        self.guard: Any = self.open(SiteTable.read(self.frame), policy, folder)
        self.names, self.name = itertools.count(), ""
        self.about: Any = None
        self.described: Any = None
        #: Answers and refusals by the name of what is asked.
        self.answers, self.refusals = collections.Counter[str](), collections.Counter[str]()

    @staticmethod
    def open(table: SiteTable, policy: Policy, folder: Path) -> RequestGuard:
        """Return the guard of the site."""
        return RequestGuard("north", table, policy, folder)

    @property
    def has_model(self) -> bool:
        """Whether the site answers about the model that was asked last."""
        return self.name in self.guard._models

    @property
    def answered(self) -> int:
        """How many questions were answered."""
        return self.answers.total()

    def ask(self, about: Any, *asked: Any) -> Any:
        """Return what is told, None where it is refused or fails; a model is described where the site lacks it."""
        tree: dict[str, Any] = {"run": "run", "sequence": 1}
        name = (asked[0] if isinstance(about, ModelSpec) else about).name
        if isinstance(about, ModelSpec):
            tree |= {"kind": "request", "request": Request(asked, ALL).write(parcels.dump)}
            if about is not self.about:
                self.about, self.name = about, f"{next(self.names)}"
                self.described = questions.dump(about)
            if self.name not in self.guard._models:
                tree["spec"] = self.described
            tree["model"] = self.name
        else:
            tree |= questions.write(about)
        with contextlib.suppress(ValueError):
            reply = self.guard.answer(tree, ANALYST)
            if "reply" in reply and "needs" not in reply["reply"]:
                self.answers[name] += 1
                return reply["reply"]
        self.refusals[name] += 1
        return None

    def compute(self, name: str, *given: Any, **options: Any) -> Any:
        """Return what an operation of an algorithm computes at the site; None where the guard refuses that."""
        with contextlib.suppress(Refusal, ValueError, NotImplementedError, TypeError, KeyError):
            told = getattr(self.guard._models[self.name].whole, name)(*given, **options)
            if told is not None:
                self.answers[f"round: {name}"] += 1
                return told
        self.refusals[f"round: {name}"] += 1
        return None


class SumsSite(Site):
    """A site at the level ``sums`` whose other members collude with the analyst: what is told is what it added."""

    @staticmethod
    def open(table: SiteTable, policy: Policy, folder: Path) -> RequestGuard:
        return SumsGuard(table, folder, off=policy.off)

    @property
    def has_model(self) -> bool:
        return digest_of_tree(self.described) in self.guard._made

    def ask(self, about: Any, *asked: Any) -> Any:
        """Return the numbers that the site adds, None where it refuses or fails."""
        is_model = isinstance(about, ModelSpec)
        question = asked[0] if is_model else about
        told = self.told(self.write(about, asked))
        (self.refusals if told is None else self.answers)[question.name] += 1
        if told is not None and isinstance(question, At):
            return {part: told["sums"][PARTS[part]] for part in question.parts}
        if told is not None and isinstance(question, Evaluations):
            return [*told["sums"]["slopes"], told["sums"].get("hessians", 0.0)]
        return told if is_model or told is None else from_sums(about, told["sums"])

    def write(self, about: Any, asked: Any) -> dict[str, Any]:
        """Return what is asked as of a site at the level ``filter``."""
        if not isinstance(about, ModelSpec):
            return questions.write(about)
        if about is not self.about:
            self.about, self.described = about, questions.dump(about)
        return {"kind": "request", "spec": self.described, "request": Request(asked, ALL).write(parcels.dump)}

    def told(self, asked: dict[str, Any]) -> Any:
        """Return what the site tells of a request, None for nothing."""
        (wanted,) = sums_asked(asked)
        told = None if wanted is None else self.guard.sum(wanted)
        return None if told is None else {"sums": told}

    def compute(self, name: str, *given: Any, **options: Any) -> Any:
        """Return nothing: methods run on sums alone."""
        self.refusals[f"round: {name}"] += 1


class PrivateSite(SumsSite):
    """A site at the level ``private``, where each answer may cost all of the budget."""

    @staticmethod
    def open(table: SiteTable, policy: Policy, folder: Path) -> RequestGuard:
        guard = PrivateGuard(table, folder, off=policy.off)
        assert guard._ledger is not None
        guard._ledger.spend = lambda *_: None  # type: ignore[method-assign, assignment, return-value]
        return guard

    has_model = property(lambda self: True)

    def ask(self, about: Any, *asked: Any) -> Any:
        """Return the release that is nearest to a question."""
        told = self.told(self.write(about, asked))
        (self.refusals if told is None else self.answers)[(asked[0] if asked else about).name] += 1
        return None if told is None or not asked or isinstance(asked[0], Evaluations) else [told["release"]]

    def told(self, asked: dict[str, Any]) -> Any:
        wanted = releases_asked(asked, self.guard._ledger.mu)
        if not wanted:
            return None
        spec, release = wanted[-1]
        reply = self.guard.release(spec, release).get("reply")
        if reply is None:
            return None
        numbers = read_sum(release, np.frombuffer(reply["words"], "<i8"), reply["radius"])
        if release.kind in ("gradient", "statistics"):
            return {"release": numbers}
        return {"release": full_matrix(numbers, round(np.sqrt(2 * len(numbers))))}


#: Sites by their level.
SITES: dict[str, type[Site]] = {"filter": Site, "sums": SumsSite, "private": PrivateSite}


def predicates(rng: np.random.Generator) -> Any:
    """Return an expression that is one row's, or a few rows', in one of many ways."""
    cut = float(rng.choice([101.0, 100.5, 95.0, 60.0]))
    old = Comparison(str(rng.choice(["==", ">", ">="])), Column("age"), Number(cut))  # type: ignore[arg-type]
    return [
        old,
        Arithmetic("*", Number(float(10.0 ** rng.integers(-9, 10))), old),
        Arithmetic("*", old, Column("income")),
        Arithmetic("+", Column("pressure"), Arithmetic("*", Number(1e-6), old)),
        Call("exp", Arithmetic("*", Number(50.0), Arithmetic("-", Column("age"), Number(101.0)))),
        Arithmetic("**", Column("age"), Number(float(rng.choice([2.0, 40.0, 200.0])))),
        Column(str(rng.choice(["rare", "peak", "few", "patient_id", "nearly", "alone"]))),
        Missing("dose"),
        Arithmetic("-", Column("income"), Number(float(rng.lognormal(3.0, 0.4)))),
        Column(str(rng.choice(MEASURED))),
        Column("half"),
    ][rng.integers(11)]


def factors(rng: np.random.Generator) -> Any:
    """Return a factor of a term."""
    kind = rng.integers(12)
    if kind == 0:
        return Coded("group", "group", ("a", "b"), 0)
    if kind == 6:
        shift = float(rng.choice([0.0, 50.0, 1e3, 1e16])) + float(rng.normal())
        centred = Arithmetic("-", Column(str(rng.choice(["age", *MEASURED]))), Number(shift))
        return Numeric("x", Arithmetic("/", centred, Number(10.0 ** float(rng.uniform(-3, 3)))))
    if kind == 1:
        low = float(rng.normal())
        return Spline("s", "bs", Column("pressure"), (low, low + float(rng.choice([1e-6, 0.5]))), -9.0, 9.0)
    if kind < 6:
        return Numeric("x", predicates(rng))
    return Numeric("x", Column(str(rng.choice(MEASURED))))


def designs(rng: np.random.Generator, response: Any, *, plain: bool = False) -> Design:
    """Return a design with something in each slot now and then; a plain one has columns that a policy allows."""
    made = [tuple(factors(rng) for _ in range(int(rng.choice([1, 1, 1, 2])))) for _ in range(int(rng.integers(1, 5)))]
    if plain:
        names = rng.choice([*MEASURED, "half"], int(rng.integers(2, 5)), replace=False)
        made = [(Numeric(str(name), Column(str(name))),) for name in names]
    terms = tuple(Term(one, i) for i, one in enumerate(made))
    given: dict[str, Any] = {}
    for slot in ("weights", "offset"):
        if rng.random() < (0.05 if plain else 0.15):
            given[slot] = Column("pressure" if slot == "offset" else "age") if plain else predicates(rng)
    if isinstance(response, Survival) and rng.random() < 0.2:
        given["strata"] = ("half" if plain else str(rng.choice(["rare", "half", "grade"])),)
    return Design(response, terms, tuple("x" for _ in terms), **given)


FAMILIES = ("Logistic", "LeastSquares", "GLM", "GLM", "Cox", "Ordinal", "Softmax", "Multinomial")


def models(rng: np.random.Generator, families: tuple[str, ...] = FAMILIES, *, plain: bool | None = None) -> ModelSpec:
    """Return a model of some family; every second one is plain, such as an honest analyst's may be."""
    kind = str(rng.choice(families))
    plain = bool(rng.random() < 0.5) if plain is None else plain
    options: dict[str, Any] = {}
    response: Any = Column("died" if plain else str(rng.choice(["died", "died", "decided"])))
    response = predicates(rng) if not plain and rng.random() < 0.25 else response
    if kind == "GLM":
        name, link = [
            ("poisson", "log"), ("poisson", "identity"), ("gamma", "inverse"), ("gamma", "identity"),
            ("inverse gaussian", "identity"), ("binomial", "log"), ("gaussian", "identity"), ("quantile", "identity"),
            ("negative binomial", "log"),
        ][rng.integers(9)]  # fmt: skip
        parameters: Any = {"quantile": (float(rng.choice([0.1, 0.5])), float(10.0 ** rng.uniform(-6, 1))),
                           "negative binomial": (float(10.0 ** rng.uniform(-3, 3)),)}.get(name, ())  # fmt: skip
        options["distribution"] = Distribution(name, link, parameters)
        if isinstance(response, Column):
            columns = {"poisson": "visits", "negative binomial": "visits", "binomial": "died"}
            response = Column(columns.get(name, str(rng.choice(["income", "dose"]))))
        if name == "binomial" and rng.random() < 0.5:
            response, options["periods"] = Survival(Column("time"), Column("died")), (0.0, 20.0, 40.0, 60.0, 80.0)
            options["distribution"] = Distribution("binomial", "logit")
    if kind == "Cox":
        response = Survival(Column("time"), response if rng.random() < 0.3 else Column("died"))
    classes = {"Logistic": (0, 1), "Softmax": ("x", "y", "z"), "Multinomial": ("x", "y", "z"),
               "Ordinal": ("x", "y", "none", "z")}  # fmt: skip
    if kind in ("Softmax", "Multinomial", "Ordinal"):
        response = Column("grade")
    made = designs(rng, response, plain=plain)
    periods = options.get("periods", ())
    d, intercept = made.width, kind not in ("Cox", "Ordinal") and not periods
    scale = np.ones(d) if plain or rng.random() < 0.7 else 10.0 ** rng.uniform(-9, 9, d)
    centre = np.zeros(d) if plain or rng.random() < 0.8 else rng.normal(size=d) * 10.0 ** rng.uniform(0, 17)
    ridge = np.zeros(d + intercept + max(len(periods) - 1, 0))
    return ModelSpec(
        made, np.zeros(0), centre, scale, intercept, kind, classes.get(kind, ()), ridge, **options,
    )  # type: ignore[arg-type]  # fmt: skip


def points(rng: np.random.Generator, shape: tuple[int, ...], table: pd.DataFrame) -> Any:
    """Return a point: zero, mild, a cut between two rows or at one, a small combination of features, or anything."""
    x: Any = np.zeros(shape)
    kind = rng.integers(6)
    if kind == 1:
        x = rng.normal(size=shape) * 0.3
    if kind in (2, 3):
        steep = 10.0 ** rng.uniform(0, 17)
        values = np.sort(table[str(rng.choice(MEASURED))])
        place = int(rng.integers(1, ROWS - 1))
        cut = (
            float(values[place : place + 2].mean()) if kind == 2 else float(values[place]) + 1e-9 * rng.choice([-1, 1])
        )
        x.flat[0], x.flat[-1] = steep, -steep * cut
    if kind == 4:
        x = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 20)
    if kind == 5:
        x = rng.integers(-1, 2, size=shape) * 1e-2
    return x


def shape_of(about: ModelSpec) -> tuple[int, ...]:
    """Return the shape of the points of a model."""
    columns = about.columns
    return {"Softmax": (3, columns), "Multinomial": (2 * columns,), "Ordinal": (columns + 3,)}.get(
        about.family, (columns,)
    )


def many_at(rng: np.random.Generator, x: Any, kind: type[Any] = Evaluations, **more: Any) -> Any:
    """Return a question at a point with all rows, and without a fold."""
    units, held = np.full(x.size, ZERO, dtype=np.uint8), np.array([-1, int(rng.integers(-1, 3))])
    folds = Folds(int(rng.choice([2, 5, 40, 100, 400])), int(rng.integers(5)))
    about = Evaluations.of(
        np.stack([x.ravel(), x.ravel()]), np.ones((2, x.size), dtype=bool), (EXACT, EXACT), held,
        np.zeros(0, dtype=np.int64), units=units, folds=folds,
    )  # fmt: skip
    if kind is DualSums:
        away = rng.normal(size=(2, x.size)) * 10.0 ** rng.uniform(-3, 3)
        shared, steps = np.zeros((0, x.size)), np.zeros((2, 0))
        return DualSums.along(about, away, shared=shared, steps=steps, **more)
    return about if kind is Evaluations else HeldScores(dataclasses.replace(about, held=np.maximum(held, 0)), **more)


def asked_at(rng: np.random.Generator, x: Any) -> Any:
    """Return a question about a model, at a point where it has one; every question about losses is one of these."""
    direction = np.zeros(x.shape)
    direction.flat[int(rng.integers(x.size))] = 1.0
    factor = fpdfp.linops.Matrix(np.outer(direction, direction)) if x.ndim == 1 else None
    some = np.sort(rng.choice(x.size, int(rng.integers(1, x.size + 1)), replace=False)) if x.ndim == 1 else np.zeros(1)
    wide = x.astype(np.float64)
    few = np.where(np.isin(np.arange(x.size).reshape(x.shape), some), wide, 0.0)
    parts: Any = [("value", "gradient"), ("gradient", "hessian"), ("information",), ("start",), ("facts",)][
        rng.integers(5)
    ]
    third = (
        np.outer(direction, direction).ravel()[: x.size**2].reshape(x.size, x.size) if x.ndim == 1 else np.eye(x.size)
    )
    return [
        lambda: At(x, ["values", "gradients"]), lambda: At(x, ["values", "gradients"]),
        lambda: At(x, ["values", "gradients"]), lambda: Informations(wide, bool(rng.random() < 0.5)), Facts, Bounds,
        lambda: Exact(str(rng.choice(KINDS))), NewtonExchange, lambda: Constants(factor),  # type: ignore[arg-type]
        lambda: Constants(factor, None, int(rng.choice([1, 10]))), lambda: many_at(rng, x), lambda: many_at(rng, x),
        lambda: FeatureBounds("slopes" if rng.random() < 0.5 else "curvatures"),
        lambda: LocalModels(Announced.plain(few), Announced.mask(some.astype(np.int64), wide.size)),
        lambda: Overdispersions(wide, float(10.0 ** rng.uniform(-6, 6))), lambda: Spread(wide),
        lambda: Jeffreys(wide, third + 10.0 ** rng.uniform(-9, 0) * np.eye(x.size)),
        lambda: Slopes(Announced.rounded(fpdfp.compress.Full(), x), 127, values=bool(rng.random() < 0.5)),
        lambda: QuantizedMoments(2000),
        lambda: Sketch(1),
        lambda: many_at(rng, x, HeldScores, score=str(rng.choice(["brier", "deviance", "accuracy", "moments"]))),
        lambda: many_at(rng, x, DualSums, wants="gradient"),
        lambda: many_at(rng, x, DualSums, wants="gap", shrinks=np.ones(2)),
        lambda: Duals(digest([wide]), str(rng.choice(["start", "gradient", "curvature", "gap", "hessian"])), np.ones(1),
                      direction if rng.random() < 0.7 else None, 1.0, wide),
        lambda: SumsAt(parts, None if parts[0] in ANYWHERE else wide),
    ][rng.integers(25)]()  # fmt: skip


def compute_at(site: Site, rng: np.random.Generator, x: Any) -> Any:
    """Return the result of an operation that a job of an analyst's choice may ask of the data."""
    one, draws, vectors = np.arange(1), Draws(int(rng.integers(99)), 0, np.array([0])), np.eye(x.size)[:1]
    batch = int(rng.choice([1, 5, 10, 50, ROWS]))
    return [
        lambda: site.compute("gradients", x, one, batch_size=batch, draws=draws),
        lambda: site.compute("values", x, one), lambda: site.compute("gradients", x, one),
        lambda: site.compute("hessians", x, one), lambda: site.compute("informations", x, one),
        lambda: site.compute("start_model", one), lambda: site.compute("start_model", one, level=True),
        lambda: site.compute("curvatures", one), lambda: site.compute("curvature_diagonals", one),
        lambda: site.compute("curvature_products", one, vectors), lambda: site.compute("lipschitz"),
    ][rng.integers(11)]()  # fmt: skip


def arrays_in(tree: Any, asked: Any) -> Iterator[Any]:
    """Yield all arrays of numbers in a reply."""
    if isinstance(asked, Evaluations) and not isinstance(asked, DualSums) and tree and isinstance(tree, dict):
        sent = Evaluated(**tree[asked.name])
        with contextlib.suppress(ValueError):  # numbers outside of a domain
            yield from asked.add_up(sent, np.arange(len(sent.numbers))).slopes
    elif isinstance(tree, dict):
        for one in tree.values():
            yield from arrays_in(one, None)
    elif isinstance(tree, list | tuple):
        for one in tree:
            yield from arrays_in(one, None)
    elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f" and tree.size:
        yield tree


def vectors_of(array: Any, width: int) -> Any:
    """Return the rows of an array that are as long as those of a model; of triangles those of the whole matrix."""
    if not array.ndim:
        return np.zeros((0, width))
    if array.shape[-1] == width * (width + 1) // 2 and width > 1:
        flat = array.reshape(-1, array.shape[-1])
        whole = np.zeros((len(flat), width, width))
        whole[:, *np.tril_indices(width)] = flat
        array = np.where(whole == 0, whole.transpose(0, 2, 1), whole)
    return array.reshape(-1, width) if array.shape[-1] == width else np.zeros((0, width))


class Rows:
    """The rows of a model as an attacker looks for them: which of many vectors are multiples of one.

    Also of the sum over the two rows of the rare group, which no answer may be about; or of a row without its last
    entry, since that of the intercept is the same in two models.
    """

    def __init__(self, X: Any) -> None:
        self.width, self._known = X.shape[1], list[Any]()
        for end in (X.shape[1], X.shape[1] - 1):
            own = X[:, :end]
            spread = own.std(axis=0)
            units = np.where(spread > 0, spread, 1.0)  # else small columns would count for nothing
            measured = [len(np.unique(column)) > len(X) / 2 for column in own.T]
            centred = (own - own.mean(axis=0)) / units
            numbers = int(np.linalg.matrix_rank(centred[:, measured], tol=1e-4)) if any(measured) else 0
            far = (np.abs(own.mean(axis=0)) > 5.0 * spread) & (spread > 0)
            free = numbers - (spread > 0).all()  # directions have one number less where none is the same in all rows
            if free < 2 or far.any() or np.linalg.matrix_rank(own / units, tol=1e-4) < end:
                continue  # too many vectors are near to one of the rows
            # A row that is zero in some measured columns is along an axis, as many a difference is.
            there = (own[:, measured] != 0).all(axis=1)
            rows = np.concatenate([own[there], own[[5]] + own[[9]]] if len(own) == ROWS else [own[there]]) / units
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
            # So near to a row that none of a hundred million vectors at random is.
            self._known.append((end, units, rows, min((3e-15) ** (1.0 / free), 1e-2)))

    def told(self, kinds: dict[str, list[Any]]) -> bool:
        """Whether a vector, or the difference of two of one kind, is a multiple of a row."""
        for found in kinds.values():
            vectors = np.concatenate(found)
            first, second = np.triu_indices(len(vectors), 1)
            largest = float(np.abs(vectors).max(initial=0.0))
            with np.errstate(all="ignore"):
                differences = np.concatenate([vectors, vectors[first] - vectors[second]])
                if any(self._is_row(differences[:, :end] / units, rows, near, largest / float(units.min()))
                       for end, units, rows, near in self._known):  # fmt: skip
                    return True
        return False

    @staticmethod
    def _is_row(vectors: Any, rows: Any, near: float, largest: float) -> bool:
        sizes = np.linalg.norm(vectors, axis=1)
        # What is left of a difference by rounding is no row.
        some = np.isfinite(sizes) & (sizes > 1e-14 / near * largest)
        if not some.any():
            return False
        return bool(np.abs(vectors[some] / sizes[some, None] @ rows.T).max() > 1.0 - near**2 / 2.0)


def tells_one_row(told: list[Any], X: Any) -> bool:
    """Whether an array, or the difference of two, is a multiple of a row."""
    found = [one for one in (vectors_of(array, X.shape[1]) for array in told) if len(one)]
    return bool(found) and Rows(X).told({"": found})


def tells_a_length(told: list[Any], X: Any) -> bool:
    """Whether a constant is the squared length of one row, by the curvature of a family, and of no other row."""
    lengths = np.square(X).sum(axis=1)
    lengths = lengths[np.abs(lengths - 1.0) > 1e-6]  # that of an intercept alone
    found = [int(np.isclose(share * lengths, told[0].flat[0], rtol=1e-9, atol=0.0).sum()) for share in (0.25, 0.5, 1.0)]
    return 1 in found


def matrix_of(site: Site, about: ModelSpec) -> Any:
    """Return the rows as a model has them, None where there are none."""
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        X = site.guard.table.features(about, "north").X
        return X if np.isfinite(X).all() else None
    return None


def attack(site: Site, rng: np.random.Generator) -> bool:
    """Ask many things of one model, at points that are near each other; return whether a row was told."""
    try:
        about = models(rng)
    except ValueError:
        return False
    told = dict[str, list[Any]]()
    first = points(rng, shape_of(about), site.frame)
    rows: Rows | None = None
    asked: Any = None
    for number in range(SERIES):
        x = first.copy()
        if number % 3 and first.any():
            values = np.sort(site.frame[str(rng.choice(MEASURED))])
            place = int(rng.integers(1, ROWS - 2))
            x.flat[-1] = -first.flat[0] * float(values[place : place + 2].mean())
        elif number % 3 == 1:
            x[...] = 0.0
        elif number % 6 == 3:
            first = points(rng, shape_of(about), site.frame)
        if number and rng.random() < 0.25:
            asked, reply = None, compute_at(site, rng, x)
        else:
            try:
                asked = At(x, ["values", "gradients"]) if not number else asked_at(rng, x)
            except ValueError:
                continue
            reply = site.ask(about, asked)
        if rows is None:
            if not site.has_model:
                return False  # the model is refused
            if "patient_id" in about.design.columns:
                return True
            X = matrix_of(site, about)
            if X is None:
                return False
            rows = Rows(X)
        if isinstance(asked, Constants) and reply is not None and tells_a_length(list(arrays_in(reply, asked)), X):
            return True
        for array in arrays_in(reply, asked):
            found = vectors_of(array, rows.width)
            if len(found):
                told.setdefault(getattr(asked, "name", ""), []).append(found)
    return rows is not None and rows.told(told)


def vary(rng: np.random.Generator, about: ModelSpec) -> ModelSpec:
    """Return a model that differs from another in one thing."""
    design, d = about.design, about.design.width
    kind = rng.integers(6)
    if kind == 0:
        return dataclasses.replace(about, centre=about.centre + rng.normal(size=d) * 10.0 ** rng.uniform(-9, 17))
    if kind == 1:
        return dataclasses.replace(about, scale=about.scale * 10.0 ** rng.uniform(-9, 9, d))
    if kind == 2:
        place = int(rng.integers(len(design.terms)))
        terms = [*design.terms]
        terms[place] = dataclasses.replace(terms[place], factors=(factors(rng), *terms[place].factors[1:]))
        return dataclasses.replace(about, design=dataclasses.replace(design, terms=tuple(terms)))
    slots: dict[str, Any] = {"weights": predicates(rng)} if kind == 3 else {"offset": predicates(rng)}
    if kind == 5:
        slots = {"response": predicates(rng)}
    return dataclasses.replace(about, design=dataclasses.replace(design, **slots))


def attack_a_pair(site: Site, rng: np.random.Generator) -> bool:
    """Ask the same of two models that differ in one thing; return whether a row is in the difference."""
    try:
        about = models(rng)
        other = vary(rng, about)
    except ValueError:
        return False
    x, told = points(rng, shape_of(about), site.frame), dict[str, list[Any]]()
    X = matrix_of(site, about)
    if X is None:
        return False
    for one in (about, other):
        for asked in (
            At(x, ["values", "gradients"]),
            At(np.zeros_like(x), ["gradients"]),
            Informations(x.astype(float)),
        ):
            for array in arrays_in(site.ask(one, asked), None):
                found = vectors_of(array, X.shape[1])
                if len(found):
                    told.setdefault(asked.name, []).append(found)
    return Rows(X).told(told)


def responses(rng: np.random.Generator) -> Survival:
    """Return times of events."""
    leaves = predicates(rng) if rng.random() < 0.2 else Column(str(rng.choice(["time", "income", "age"])))
    enters = None if rng.random() < 0.7 else predicates(rng)
    return Survival(leaves, predicates(rng) if rng.random() < 0.1 else Column("died"), enters)


def asked_of_a_table(rng: np.random.Generator) -> Any:
    """Return a question about the table."""
    kind, plain = int(rng.integers(12)), bool(rng.random() < 0.7)
    about = models(rng, ("Cox",) if kind in (4, 5, 6) else FAMILIES, plain=plain)
    shape = shape_of(about)
    x = rng.normal(size=shape) * 0.1 if plain else points(rng, shape, FRAME).astype(np.float64)
    group = Coded("g", *[("grade", ("x", "y", "z")), ("half", (0, 1)), ("rare", (0, 1))][rng.integers(3)])
    other = Coded("h", *[("half", (0, 1)), ("rare", (0, 1)), ("group", ("a", "b"))][rng.integers(3)])
    columns = tuple(
        map(str, rng.choice([*MEASURED, "age", "rare", "peak", "few", "alone", "patient_id"], 2, replace=False))
    )
    number, strata = int(rng.integers(2)), [(), ("half",), ("rare",), ("pair",)][rng.integers(4)]
    times = np.sort(rng.uniform(0, 200, int(rng.integers(1, 9)))) if rng.random() < 0.8 else None
    return [
        lambda: questions.SumsQuestion(about.design, about.classes),
        lambda: questions.MomentsQuestion(about.design, np.zeros(0), bool(rng.random() < 0.5), bool(number)),
        lambda: questions.RiskQuestion(responses(rng), group if rng.random() < 0.7 else None, times),
        lambda: questions.LogRankQuestion(responses(rng), group, strata, float(rng.choice([0.0, 1.0, 50.0]))),
        lambda: questions.BaselineQuestion(about, x, times),
        lambda: questions.ProportionalityQuestion(about, x), lambda: questions.ConcordanceQuestion(about, x),
        lambda: questions.EvaluationQuestion(about, x, [points(rng, shape, FRAME).astype(np.float64)]),
        lambda: questions.CalibrationQuestion(about, x, rng.random(1 if about.family == "Cox" else 2)),
        lambda: DescriptionQuestion(columns, (group,), other if number else None),
        lambda: HistogramQuestion(columns[:1], [np.sort(rng.normal(20.0, 30.0, 5))], other if number else None),
        questions.SchemaQuestion,
    ][kind]()  # fmt: skip


def attack_a_table(site: Site, rng: np.random.Generator) -> bool:
    """Ask a table something; return whether a row, a value of one or a count of too few was told."""
    try:
        asked = asked_of_a_table(rng)
    except ValueError:
        return False
    site.guard.budget.spent.times.clear()  # in place of a site that was not asked yet
    reply = site.ask(asked)
    if reply is None:
        return False
    policy = site.guard.policy
    if isinstance(asked, questions.SumsQuestion):
        singles = np.isclose(reply["weight"], site.frame[[*MEASURED]].to_numpy(), rtol=1e-9, atol=0.0).any()
        return bool(asked.design.weights is not None and singles) or any(
            ((np.asarray(one) > 0) & (np.asarray(one) < policy.cell)).any()
            for one in [*reply["levels"], reply["classes"]]
        )
    if isinstance(asked, questions.MomentsQuestion):
        X = site.guard.table.complete(asked.design)[1].matrix_of(asked.design, asked.means)
        return tells_one_row(list(arrays_in(reply, None)), X)
    if isinstance(asked, questions.BaselineQuestion):
        X = matrix_of(site, asked.spec)
        return any(tells_one_row([one["means"]], X) for one in reply["hazards"] if len(one["means"]))
    if isinstance(asked, questions.ProportionalityQuestion):
        return tells_one_row(list(arrays_in(reply, None)), matrix_of(site, asked.spec))
    if isinstance(asked, questions.LogRankQuestion):
        return asked.strata == ("pair",) or asked.rho > 1.0 or few(reply, ("rows", "events"), policy)
    if isinstance(asked, DescriptionQuestion):
        single = [i for i, name in enumerate(asked.columns) if name in ("rare", "peak", "few", "alone", "patient_id")]
        told = any(np.asarray(reply["scatters"])[i].any() for i in single)
        return told or few(reply, ("rows", "ungrouped", "known", "counts"), policy)
    if isinstance(asked, HistogramQuestion):
        exact = [np.diff(low[low == high]) for one in zip(reply["least"], reply["most"], strict=True)
                 for low, high in zip(*one, strict=True)]  # fmt: skip
        return "patient_id" in asked.columns or any(((one > 0) & (one < policy.cell)).any() for one in exact)
    if isinstance(asked, questions.RiskQuestion):
        return few(reply, ("start", "entered", "events", "left"), policy)
    if isinstance(asked, questions.EvaluationQuestion):
        cells = [reply, *reply["more"]]
        return any(few(one, ("events", "others"), policy) for cell in cells for one in cell["predictors"])
    return False


def few(reply: Any, names: tuple[str, ...], policy: Policy) -> bool:
    """Whether counts are of fewer rows than a cell has by default."""
    counts = [np.asarray(one) for name in names for one in (reply[name] if name == "counts" else [reply[name]])]
    return any(((one > 0) & (one < Policy().cell)).any() for one in counts)


def attack_by_cuts(site: Site, rng: np.random.Generator) -> bool:
    """Ask for the gradients of two models at zero that differ by a cut on both sides of one row."""
    column = str(rng.choice(MEASURED))
    values = np.sort(site.frame[column])
    place, told, asked = int(rng.integers(100, ROWS - 100)), list[Any](), list[ModelSpec]()
    for cut in (values[place : place + 2].mean(), values[place + 1 : place + 3].mean()):
        beyond = Comparison(">", Column(column), Number(float(cut)))
        inside = [Numeric("x", Arithmetic("*", beyond, Column(one))) for one in MEASURED]
        factors = [*inside, Numeric("x", beyond)]
        design = Design(Column("died"), tuple(Term((one,), i) for i, one in enumerate(factors)), ("x",) * 4)
        asked.append(ModelSpec(design, np.zeros(0), np.zeros(4), np.ones(4), True, "Logistic", (0, 1), np.zeros(5)))
        told += arrays_in(site.ask(asked[-1], At(np.zeros(5), ["gradients"])), None)
    return len(told) == 2 and tells_one_row(told, site.guard.table.features(asked[0], "north").X)


def attack_by_combination(site: Site, rng: np.random.Generator) -> bool:
    """Ask for two gradients whose difference is along a combination of columns that is one row's, or few rows'."""
    names = ("nine", "four", "others") if rng.random() < 0.5 else ("half", "nearly")
    signs = {"nine": 1.0, "four": -1.0, "others": -1.0, "half": 1.0, "nearly": -1.0}
    factors = [*names, *MEASURED[:2]]
    design = Design(Column("died"), tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(factors)),
                    tuple(factors))  # fmt: skip
    d = len(factors)
    about = ModelSpec(design, np.zeros(0), np.zeros(d), np.ones(d), True, "Logistic", (0, 1), np.zeros(d + 1))
    along = np.array([*(signs[name] for name in names), 0.0, 0.0, 0.0])
    told = list[Any]()
    for x in (np.zeros(d + 1), 1e-2 * along):
        told += arrays_in(site.ask(about, At(x, ["gradients"])), None)
    return len(told) == 2 and tells_one_row(told, site.guard.table.features(about, "north").X)


def attack_by_weights(site: Site, rng: np.random.Generator) -> bool:
    """Ask for the sum of weights of one row, or for gradients of an outcome of two rows."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    if rng.random() < 0.5:
        told = site.ask(questions.SumsQuestion(Design(Column("died"), terms, MEASURED, weights=Column("units"))))
        return told is not None and told["weight"] == 7.25
    about = ModelSpec(Design(Column("rare"), terms, MEASURED), np.zeros(0), np.zeros(3), np.ones(3), True, "GLM", (),
                      np.zeros(4), Distribution("gaussian", "identity"))  # fmt: skip
    found = list(arrays_in(site.ask(about, At(np.zeros(4), ["gradients"])), None))
    return bool(found) and tells_one_row(found, site.guard.table.features(about, "north").X)


def attack_by_levels(site: Site, rng: np.random.Generator) -> bool:
    """Ask for a gradient by products with the indicator of two rows that have the same outcome."""
    rare = Numeric("rare", Column("rare"))
    terms = tuple(Term((rare, Numeric(one, Column(one))) if one else (rare,), i)
                  for i, one in enumerate(("", *MEASURED)))  # fmt: skip
    about = ModelSpec(Design(Column("died"), terms, ("x",) * 4), np.zeros(0), np.zeros(4), np.ones(4), False,
                      "GLM", (), np.zeros(4), Distribution("gaussian", "identity"))  # fmt: skip
    told = list(arrays_in(site.ask(about, At(np.zeros(4), ["gradients"])), None))
    frame = site.frame[list(MEASURED)].to_numpy()
    return bool(told) and tells_one_row(told, np.column_stack([np.ones(ROWS), frame]))


def attack_by_domain(site: Site, rng: np.random.Generator) -> bool:
    """Ask for a gradient where the mean of one row is a little outside of the domain: that row has nearly all of it."""
    row = int(rng.choice(np.flatnonzero(site.frame.visits > 0)))
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    about = ModelSpec(
        Design(Column("visits"), terms, MEASURED), np.zeros(0), np.zeros(3), np.ones(3), True, "GLM", (), np.zeros(4),
        Distribution("poisson", "identity"),
    )  # fmt: skip
    x = np.array([0.0, 1.0, 0.0, -float(site.frame.pressure[row]) - 1e-9])
    told = list(arrays_in(site.ask(about, At(x, ["gradients"])), None))
    return bool(told) and tells_one_row(told, site.guard.table.features(about, "north").X)


def attack_by_folds(site: Site, rng: np.random.Generator) -> bool:
    """Ask for gradients without each of a hundred folds, five times: with as many folds as rows each row is known."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    design = Design(Column("died"), terms, MEASURED)
    about = ModelSpec(design, np.zeros(0), np.zeros(3), np.ones(3), True, "Logistic", (0, 1), np.zeros(4))
    masks, sums = list[Any](), list[Any]()
    for seed in range(5):
        folds = Folds(100, seed)
        asked = Evaluations.of(
            np.zeros((101, 4)), np.ones((101, 4), dtype=bool), (EXACT, EXACT), np.arange(-1, 100),
            np.zeros(0, dtype=np.int64), units=np.full(4, ZERO, dtype=np.uint8), folds=folds,
        )  # fmt: skip
        told = np.array(list(arrays_in(site.ask(about, asked), asked)))
        if not len(told):
            return False
        labels = folds.draw(site.frame.died.to_numpy(dtype=float))
        masks += [labels == fold for fold in range(100)]
        sums += [ROWS * (told[0] - one) for one in told[1:]]
    found = np.linalg.lstsq(np.array(masks, dtype=float), np.array(sums), rcond=None)[0]
    return tells_one_row([found], site.guard.table.features(about, "north").X)


def attack_by_constants(site: Site, rng: np.random.Generator) -> bool:
    """Ask for constants of batches of one row: they are of the longest row."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    design = Design(Column("died"), terms, MEASURED)
    about = ModelSpec(design, np.zeros(0), np.zeros(3), np.ones(3), False, "Logistic", (0, 1), np.zeros(3))
    told = list(arrays_in(site.ask(about, Constants(fpdfp.linops.Identity((3,)), None, 1)), None))
    return bool(told) and tells_a_length(told, site.guard.table.features(about, "north").X)


def attack_by_rounding(site: Site, rng: np.random.Generator) -> bool:
    """Ask for gradients of two models whose ages are rounded from that of one person on."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(("age", *MEASURED)))
    design, told, digit = Design(Column("died"), terms, ("age", *MEASURED)), list[Any](), np.spacing(2.0**39)
    for added in (2.0**40 - 101.0, 2.0**40 - 101.0 + digit):
        centre = np.array([-added, 0.0, 0.0, 0.0])
        about = ModelSpec(design, np.zeros(0), centre, np.ones(4), True, "Logistic", (0, 1), np.zeros(5))
        x = np.array([1.0, 0.0, 0.0, 0.0, -(added + 60.0)]) / 32.0
        told += [one[..., 1:] for one in arrays_in(site.ask(about, At(x, ["gradients"])), None)]
    return len(told) == 2 and tells_one_row(told, np.column_stack([site.frame[list(MEASURED)], np.ones(ROWS)]))


def attack_by_schema(site: Site, rng: np.random.Generator) -> bool:
    """Ask for the extremes of columns."""
    told = site.ask(questions.SchemaQuestion())
    return bool(told) and any(one.get("least") is not None or one.get("counts", ()) for one in told["columns"]
                              if one["name"] in ("patient_id", *MEASURED))  # fmt: skip


#: Attacks of one idea each; most tries are made of anything.
SINGLE = (
    attack_by_cuts, attack_by_combination, attack_by_weights, attack_by_levels, attack_by_domain, attack_by_folds,
    attack_by_constants, attack_by_rounding,
    attack_by_schema,
)  # fmt: skip
#: Rules without which a row must be found by this generator. Without the others ("kinds", "rows", "parameters",
#: "budget") rows are found by many questions together: see tests/test_attacks.py, tests/test_many_policy.py.
NEEDED = (
    "columns",
    "places",
    "values",
    "cells",
    "leverage",
    "weights",
    "points",
    "domain",
    "folds",
    "constants",
    "hiding",
)


def choose(rng: np.random.Generator) -> Callable[[Site, np.random.Generator], bool]:
    """Return an attack: a series about a model, two models, the table, or an attack of a single idea."""
    share = rng.random()
    attacks = (attack, attack_a_pair, attack_a_table, SINGLE[rng.integers(len(SINGLE))])
    return attacks[int(np.searchsorted((0.55, 0.75, 0.9), share))]


class Found(NamedTuple):
    """How many series there were, how many found a row, and the answers and refusals by the name of what was asked."""

    series: int
    rows: int
    answers: collections.Counter[str]
    refusals: collections.Counter[str]

    def __add__(self, other: Any) -> Found:
        """Return the sums of both."""
        return Found(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Found(0, 0, collections.Counter(), collections.Counter())


def run(
    policy: Policy, answered: int, tries: int, seed: int = 0, *, until_found: bool = False, level: str = "filter"
) -> Found:
    """Attack a site until so much was answered or tried, or a row was found."""
    loose = dataclasses.replace(policy, analyses=HUGE, refusals=HUGE)
    rng, found, made = np.random.default_rng(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        site = SITES[level](Path(folder), loose)
        site.guard.budget.write = lambda **_: None  # type: ignore[method-assign]
        site.guard.audit.append = lambda **_: None  # type: ignore[assignment, method-assign, return-value]
        while made < tries and site.answered < answered and not (until_found and found):
            made += 1
            site.guard.budget.spent.columns.clear()  # in place of a site that was not asked yet
            with np.errstate(all="ignore"):
                found += choose(rng)(site, rng)
        site.guard.close()
    return Found(made, found, site.answers, site.refusals)


def run_part(seed: int) -> tuple[int, Found]:
    """Attack a site with the default policy until a part of the answers is there."""
    logging.disable(logging.CRITICAL)
    return seed, run(Policy(), PART, HUGE, seed)


def run_without(rule: str) -> tuple[str, Found]:
    """Attack a site without a rule until a row is found."""
    logging.disable(logging.CRITICAL)
    return rule, run(Policy(off=frozenset({rule})), HUGE, 20_000, until_found=True)


def digest_of_sources() -> str:
    """Return a digest of the guard, of the losses, and of this file: runs of others are not added to those of this."""
    package = Path(fpdfp.__file__).parent
    files = [*sorted(package.glob("federation/*.py")), *sorted(package.glob("losses/*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()[:16]


def read_parts(stores: list[Path]) -> dict[int, Found]:
    """Return what earlier runs have found, by seed; refuse those of another guard."""
    parts = dict[int, Found]()
    for tree in (json.loads(store.read_text()) for store in stores if store.exists()):
        if tree["sources"] != digest_of_sources():
            raise SystemExit("an earlier run was of another guard: it cannot be added")
        for seed, (series, rows, answers, refusals) in tree["parts"].items():
            parts[int(seed)] = Found(series, rows, collections.Counter(answers), collections.Counter(refusals))
    return parts


def attack_the_defaults(parts: dict[int, Found], answered: int, pool: Any, minutes: float, first: int) -> None:
    """Attack the default policy with seeds that are not in ``parts``, until so much is answered or time is over."""
    started, wanted = time.monotonic(), -(-answered // PART)
    made = pool.imap_unordered(run_part, [seed for seed in range(first, first + wanted) if seed not in parts])
    with contextlib.suppress(KeyboardInterrupt, StopIteration):
        while time.monotonic() - started < 60.0 * minutes:
            with contextlib.suppress(multiprocessing.TimeoutError):
                seed, found = made.next(timeout=1.0)
                parts[seed] = found
                total = sum(parts.values(), start=NOTHING)
                print(f"{total.answers.total():,} answers, {total.rows} rows; {time.monotonic() - started:.0f} s",
                      flush=True)  # fmt: skip


def write_page(parts: dict[int, Found], without: dict[str, Found]) -> str:
    """Return the tables of what was found by default, by each kind of question, and without each rule."""
    total, row = sum(parts.values(), start=NOTHING), "| {} | {:,} | {:,} | {} |"
    lines = ["| policy | series | answers | rows found |", "| --- | --- | --- | --- |"]
    lines.append(row.format("the defaults", total.series, total.answers.total(), total.rows))
    for rule, found in without.items():
        name = f"without `{rule}`, until a row is found"
        lines.append(row.format(name, found.series, found.answers.total(), found.rows))
    lines += ["", "| question, with the defaults | answered | refused |", "| --- | --- | --- |"]
    names = sorted({*total.answers, *total.refusals})
    lines += [f"| {name} | {total.answers[name]:,} | {total.refusals[name]:,} |" for name in names]
    return "\n".join(lines) + "\n"


def main(answered: int, page: Path | None, jobs: int, minutes: float, stores: list[Path], first: int) -> None:
    """Print what was found by default, and without each rule; write a page of it."""
    parts, without = read_parts(stores), dict[str, Found]()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        attack_the_defaults(parts, answered, pool, minutes, first)
    if stores:
        stores[0].write_text(json.dumps({"sources": digest_of_sources(), "parts": parts}))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for rule, found in pool.imap(run_without, NEEDED):
            without[rule] = found
            print(f"without {rule}: {found.rows} rows after {found.answers.total():,} answers", flush=True)
    print(write_page(parts, without))
    if page is not None:
        last = f"Answers come in parts of {PART:,}, each with a seed of its own: here {len(parts)} parts.\n\n"
        page.write_text(INTRODUCTION + last + write_page(parts, without))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answered", type=int, nargs="?", default=PART, help="stop after so many answers")
    parser.add_argument("page", type=Path, nargs="?", help="the file for the table")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so many minutes")
    parser.add_argument(
        "--store", type=Path, nargs="*", default=[], help="files of runs: the first is written, all add"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--level", choices=SITES, default="filter", help="of the site; only its totals are printed")
    given = parser.parse_args()
    if given.level != "filter":
        print(run(Policy(), given.answered, HUGE, given.first, level=given.level))
        raise SystemExit
    main(given.answered, given.page, given.jobs, given.minutes, given.store, given.first)
