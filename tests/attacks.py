"""An attack generator: it puts what singles out one row into every slot of every question, and counts what it finds.

    python -m tests.attacks 100000        # so many answered tries with the default policy, and fewer without each rule

Budgets are off. A try asks a site of 400 rows one or two things, and succeeds if a number or a difference of two that
it is told is one person's: a row of the table up to a factor, or one of its values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fpdfp
from fpdfp.cohorts import spec
from fpdfp.cohorts.losses import At, Bounds, Constants, Facts, Informations
from fpdfp.cohorts.many_points import ZERO, Evaluated, Evaluations
from fpdfp.cohorts.requests import Address, Place, Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress.fixed import EXACT
from fpdfp.federation import questions
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import Distribution, ModelSpec
from fpdfp.federation.request_guard import RequestGuard
from fpdfp.federation.table import SiteTable
from fpdfp.folds import Folds
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Arithmetic, Call, Coded, Column, Comparison, Missing, Number, Numeric, Spline, Survival
from fpdfp.methods.newton import NewtonExchange
from fpdfp.precondition.exchange import Exact, FeatureBounds
from tests.desks import ANALYST

ROWS = 400
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
    table["heavy"] = np.where(np.arange(ROWS) == 41, 1e9, 1.0)
    table["group"] = np.where(np.arange(ROWS) % 100 < 9, "b", "a")
    table["half"] = (np.arange(ROWS) % 2).astype(int)
    table["nearly"] = np.where(np.arange(ROWS) == 3, 1 - table.half, table.half)
    table["died"] = rng.integers(0, 2, ROWS)
    table["visits"] = rng.poisson(2.0, ROWS)
    table["time"] = rng.integers(1, 200, ROWS) * 1.0
    table["grade"] = rng.choice(["x", "y", "z"], ROWS)
    return table


class Site:
    """A site that is attacked, and what is known of it."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.frame = make_table()
        self.guard = RequestGuard("north", SiteTable.read(self.frame), policy, folder)
        self.names = itertools.count()
        self.answered = self.refused = 0

    def ask(self, about: Any, *asked: Any) -> Any:
        """Return what is told, None where it is refused or fails."""
        tree: dict[str, Any] = {"run": "run", "sequence": 1}
        if isinstance(about, ModelSpec):
            request = Request(asked, ALL).write(spec.dump)
            tree |= {
                "kind": "request",
                "model": f"{next(self.names)}",
                "spec": questions.dump(about),
                "request": request,
            }
        else:
            tree |= questions.write(about)
        with contextlib.suppress(ValueError):
            reply = self.guard.answer(unpack(pack(tree)), ANALYST)
            if "reply" in reply and "needs" not in reply["reply"]:
                self.answered += 1
                return reply["reply"]
        self.refused += 1
        return None


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
        Column(str(rng.choice(["rare", "peak", "few", "patient_id", "nearly"]))),
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
    if kind == 1:
        low = float(rng.normal())
        return Spline("s", "bs", Column("pressure"), (low, low + float(rng.choice([1e-6, 0.5]))), -9.0, 9.0)
    if kind < 6:
        return Numeric("x", predicates(rng))
    return Numeric("x", Column(str(rng.choice(MEASURED))))


def designs(rng: np.random.Generator, response: Any) -> Design:
    """Return a design with something in each slot now and then."""
    terms = tuple(Term((factors(rng),), i) for i in range(int(rng.integers(1, 5))))
    given: dict[str, Any] = {}
    for slot in ("weights", "offset"):
        if rng.random() < 0.15:
            given[slot] = predicates(rng)
    if isinstance(response, Survival) and rng.random() < 0.2:
        given["strata"] = (str(rng.choice(["rare", "half", "grade"])),)
    return Design(response, terms, tuple("x" for _ in terms), **given)


def models(rng: np.random.Generator) -> ModelSpec:
    """Return a model of some family."""
    kind = str(rng.choice(["Logistic", "LeastSquares", "GLM", "GLM", "Cox", "Ordinal", "Softmax", "Multinomial"]))
    options: dict[str, Any] = {}
    response: Any = predicates(rng) if rng.random() < 0.25 else Column("died")
    if kind == "GLM":
        name, link = [
            ("poisson", "log"), ("poisson", "identity"), ("gamma", "inverse"), ("gamma", "identity"),
            ("inverse gaussian", "identity"), ("binomial", "log"), ("gaussian", "identity"),
        ][rng.integers(7)]  # fmt: skip
        options["distribution"] = Distribution(name, link)
        if isinstance(response, Column):
            response = Column({"poisson": "visits", "binomial": "died"}.get(name, "income"))
    if kind == "Cox":
        response = Survival(Column("time"), response if rng.random() < 0.3 else Column("died"))
    classes = {"Logistic": (0, 1), "Softmax": ("x", "y", "z"), "Multinomial": ("x", "y", "z"),
               "Ordinal": ("x", "y", "none", "z")}  # fmt: skip
    if kind in ("Softmax", "Multinomial", "Ordinal"):
        response = Column("grade")
    made = designs(rng, response)
    d, intercept = made.width, kind not in ("Cox", "Ordinal")
    scale = np.ones(d) if rng.random() < 0.7 else 10.0 ** rng.uniform(-9, 9, d)
    return ModelSpec(
        made, np.zeros(0), np.zeros(d), scale, intercept, kind, classes.get(kind, ()), np.zeros(d + intercept),
        **options,
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


def asked_at(rng: np.random.Generator, x: Any) -> Any:
    """Return a question about a model, at a point where it has one."""
    shape = x.shape
    units = np.full(x.size, ZERO, dtype=np.uint8)
    held = np.array([-1, int(rng.integers(-1, 2))])
    folds = Folds(int(rng.choice([2, 5, 40, 400])), int(rng.integers(5)))
    many = Evaluations.of(
        np.stack([x.ravel(), x.ravel()]), np.ones((2, x.size), dtype=bool), (EXACT, EXACT), held,
        np.zeros(0, dtype=np.int64), units=units, folds=folds,
    )  # fmt: skip
    direction = np.zeros(x.size)
    direction[int(rng.integers(x.size))] = 1.0
    factor = fpdfp.linops.Matrix(np.outer(direction, direction)) if len(shape) == 1 else None
    return [
        At(x, ["values", "gradients"]), At(x, ["values", "gradients"]), At(x, ["values", "gradients"]),
        Informations(x.astype(np.float64)), Facts(), Bounds(), Exact("moments"), NewtonExchange(),
        FeatureBounds("slopes"),
        Constants(factor), Constants(factor, None, 1), many, many,
    ][rng.integers(13)]  # fmt: skip


def arrays_in(tree: Any, asked: Any) -> Iterator[Any]:
    """Yield all arrays of numbers in a reply."""
    if isinstance(asked, Evaluations) and tree:
        sent = Evaluated(*tree[asked.name]["arrays"])
        slopes = asked.add_up(sent, np.arange(len(sent.numbers))).slopes
        yield from slopes
    elif isinstance(tree, dict):
        for one in tree.values():
            yield from arrays_in(one, None)
    elif isinstance(tree, list | tuple):
        for one in tree:
            yield from arrays_in(one, None)
    elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f" and tree.size:
        yield tree


def tells_one_row(told: list[Any], X: Any) -> bool:
    """Whether an array, or the difference of two at the same place, is a multiple of a row of a model.

    Or of the sum over the two rows of the rare group, which no answer may be about; or of a row without its last entry,
    since that of the intercept is the same in two models.
    """
    # Triangles of matrices have other lengths: pieces of these are no rows.
    found = [one for one in told if one.ndim and one.shape[-1] == X.shape[1]]
    found += [one - other for one, other in itertools.combinations(found, 2) if one.shape == other.shape]
    for end in (X.shape[1], X.shape[1] - 1):
        own = X[:, :end]
        if end < 3 or np.linalg.matrix_rank(own) < end:
            continue
        units = np.where(own.std(axis=0) > 0, own.std(axis=0), 1.0)  # else small columns would count for nothing
        rows = np.concatenate([own, own[[5]] + own[[9]]]) / units
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        for flat in found:
            for vector in flat.reshape(-1, X.shape[1]):
                scaled = vector[:end] / units
                size = float(np.linalg.norm(scaled))
                # What is left of a difference by rounding is no row.
                noise = 1e-11 * max(float(np.abs(one).max()) for one in found)
                if np.isfinite(size) and size > noise and np.abs(rows @ (scaled / size)).max() > 1 - 1e-7:
                    return True
    return False


def tells_a_length(told: list[Any], X: Any) -> bool:
    """Whether a constant is the squared length of one row, by the curvature of a family, and of no other row."""
    lengths = np.square(X).sum(axis=1)
    found = [int(np.isclose(share * lengths, told[0].flat[0], rtol=1e-9).sum()) for share in (0.25, 0.5, 1.0)]
    return 1 in found


def matrix_of(site: Site, about: ModelSpec) -> Any:
    """Return the rows as a model has them, None where there are none."""
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        X = site.guard.table.features(about, "north").X
        return X if np.isfinite(X).all() else None
    return None


def attack(site: Site, rng: np.random.Generator) -> bool:
    """Ask one model something at two points that are near each other; return whether a row was told."""
    try:
        about = models(rng)
    except ValueError:
        return False
    first = points(rng, shape_of(about), site.frame)
    again = first.copy()
    if rng.random() < 0.5 and first.any():
        values = np.sort(site.frame[str(rng.choice(MEASURED))])
        place = int(rng.integers(1, ROWS - 2))
        again.flat[-1] = -first.flat[0] * float(values[place : place + 2].mean())
    else:
        again[...] = 0.0
    asked = asked_at(rng, first)
    told = list(arrays_in(site.ask(about, asked), asked))
    if isinstance(asked, At) and told:
        told += arrays_in(site.ask(about, At(again, ["gradients"])), None)
    if told and "patient_id" in about.design.columns:
        return True
    X = matrix_of(site, about) if told else None
    if X is None:
        return False
    if isinstance(asked, Constants):
        return tells_a_length(told, X)
    return tells_one_row(told, X)


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
    """Ask for sums in which one row has nearly all of the weight, or of an outcome that is a group of two rows."""
    heavy = rng.random() < 0.5
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    response, weights = ("time", Column("heavy")) if heavy else ("rare", None)
    design = Design(Column(response), terms, MEASURED, weights=weights)
    about = ModelSpec(design, np.zeros(0), np.zeros(3), np.ones(3), True, "GLM", (), np.zeros(4),
                      Distribution("gaussian", "identity"))  # fmt: skip
    told = list(arrays_in(site.ask(about, At(np.zeros(4), ["gradients"])), None))
    return bool(told) and tells_one_row(told, site.guard.table.features(about, "north").X)


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
    """Ask for a gradient with all rows, and without one of as many folds as rows."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    design = Design(Column("died"), terms, MEASURED)
    about = ModelSpec(design, np.zeros(0), np.zeros(3), np.ones(3), True, "Logistic", (0, 1), np.zeros(4))
    asked = Evaluations.of(
        np.zeros((2, 4)), np.ones((2, 4), dtype=bool), (EXACT, EXACT), np.array([-1, int(rng.integers(ROWS))]),
        np.zeros(0, dtype=np.int64), units=np.full(4, ZERO, dtype=np.uint8), folds=Folds(ROWS, int(rng.integers(9))),
    )  # fmt: skip
    told = list(arrays_in(site.ask(about, asked), asked))
    return bool(told) and tells_one_row(told, site.guard.table.features(about, "north").X)


def attack_by_constants(site: Site, rng: np.random.Generator) -> bool:
    """Ask for constants of batches of one row: they are of the longest row."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(MEASURED))
    design = Design(Column("died"), terms, MEASURED)
    about = ModelSpec(design, np.zeros(0), np.zeros(3), np.ones(3), False, "Logistic", (0, 1), np.zeros(3))
    told = list(arrays_in(site.ask(about, Constants(fpdfp.linops.Identity((3,)), None, 1)), None))
    return bool(told) and tells_a_length(told, site.guard.table.features(about, "north").X)


def attack_by_schema(site: Site, rng: np.random.Generator) -> bool:
    """Ask for the extremes of columns."""
    told = site.ask(questions.SchemaQuestion())
    return bool(told) and any(one.get("least") is not None or one.get("counts", ()) for one in told["columns"]
                              if one["name"] in ("patient_id", *MEASURED))  # fmt: skip


#: Attacks of one idea each; most tries are made of anything.
SINGLE = (
    attack_by_cuts, attack_by_combination, attack_by_weights, attack_by_domain, attack_by_folds, attack_by_constants,
    attack_by_schema,
)  # fmt: skip
#: Rules without which a row must be found by this generator. Without the others ("kinds", "rows", "parameters",
#: "budget") rows are found by many questions together: see tests/test_attacks.py, tests/test_many_policy.py.
NEEDED = ("columns", "places", "cells", "leverage", "weights", "points", "domain", "folds", "constants", "hiding")


def run(policy: Policy, answered: int, tries: int, seed: int = 0, *, until_found: bool = False) -> tuple[int, int, int]:
    """Attack a site until so much was answered or tried; return tries, answers and rows found."""
    loose = dataclasses.replace(policy, analyses=HUGE, refusals=HUGE)
    rng, found, made = np.random.default_rng(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), loose)
        site.guard.budget.write = lambda **_: None  # type: ignore[method-assign]
        site.guard.audit.append = lambda **_: None  # type: ignore[assignment, method-assign, return-value]
        while made < tries and site.answered < answered and not (until_found and found):
            made += 1
            with np.errstate(all="ignore"):
                found += (attack if rng.random() < 0.8 else SINGLE[rng.integers(len(SINGLE))])(site, rng)
        site.guard.audit.close()
    return made, site.answered, found


def main(answered: int) -> None:
    """Print what was found by default, and without each rule."""
    started = time.monotonic()
    print("default policy: {} tries, {} answered, {} rows found".format(*run(Policy(), answered, 10**9)), flush=True)
    for rule in NEEDED:
        made, told, found = run(Policy(off=frozenset({rule})), 10**9, max(answered, 2000), until_found=True)
        print(f"without {rule}: {made} tries, {told} answered, {found} rows found", flush=True)
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
