"""Models and questions of a hostile analyst that single out one row: each succeeds where everything is allowed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares as least_squares_fit

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import At, Bounds, Constants, Facts, Informations, Jeffreys, Overdispersions, probe
from fpdfp.cohorts.many_points import ZERO, DualSums, Evaluated, Evaluations, SentDuals
from fpdfp.cohorts.requests import Address, Place, Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress import decode
from fpdfp.compress.fixed import EXACT
from fpdfp.errors import MessageError, Refusal, RefusalError
from fpdfp.federation import audit, questions
from fpdfp.federation.guard import ALL, GuardedData, Model
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import (
    BaselineQuestion,
    Distribution,
    EvaluationQuestion,
    HistogramQuestion,
    LogRankQuestion,
    ModelSpec,
    RiskQuestion,
    SumsQuestion,
)
from fpdfp.federation.table import SiteTable
from fpdfp.folds import Folds
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.evaluation import expand
from fpdfp.formula.tree import Arithmetic, Coded, Column, Comparison, Number, Numeric, Spline, Survival
from fpdfp.losses.linear import form_rounding
from fpdfp.methods.newton import NewtonExchange
from fpdfp.precondition.exchange import FeatureBounds
from fpdfp.rng import Draws
from tests.desks import ANALYST, Desks
from tests.levels import at_all_levels  # noqa: F401 — each question is asked at all levels

#: The row of a person of 101 years, as the models of these attacks have it: two measurements and the intercept.
PERSON = 17
FEATURES = ("pressure", "income")
Ask = Callable[..., Any]
EVERYONE = Address(place=Place(np.array([0]), None, 1.0, 0), clients=np.array([0]))


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    age = rng.integers(30, 90, n)
    age[PERSON] = 101
    return pd.DataFrame(
        {
            "age": age, "income": rng.lognormal(3.0, 0.5, n), "pressure": rng.normal(size=n),
            "died": rng.integers(0, 2, n), "visits": rng.poisson(2.0, n), "time": rng.integers(1, 200, n) * 1.0,
            "cost": rng.gamma(2.0, 3.0, n), "grade": rng.choice(["a", "b", "c"], n),
            "alone": np.arange(n) == PERSON, "score": rng.integers(0, 4, n), "half": np.arange(n) % 2,
        }
    ).assign(tiny=lambda table: table.cost.where(table.index != PERSON, 1e-4))  # fmt: skip


def complete(table: pd.DataFrame) -> pd.DataFrame:
    table["alone"] = table.alone.astype(int)
    table.loc[PERSON, ["time", "score"]] = 199.0, 0
    # A score decides an outcome, but for one person; and all but two are strata of their own.
    table["decided"] = ((table.score >= 2) | (table.index == PERSON)).astype(int)
    # Where the weight is positive an indicator is 1, but for one person; where it is 0 it is any number.
    table["odd"] = (table.index % 2).astype(int)
    table["nearly"] = np.where(table.index == PERSON, 0, table.odd)
    table["units"] = np.where(table.index == PERSON, 7.25, 0.0)
    table["lacking"] = np.where(table.index == PERSON, np.nan, 25.0 + table.pressure + table.odd)
    table["stratum"] = np.where(table.index == PERSON, PERSON - 1, table.index)
    return table


FRAME = complete(frame())
ROWS = np.column_stack([FRAME.pressure, FRAME.income, np.ones(len(FRAME))])
OLD = Comparison("==", Column("age"), Number(101.0))


def times(factor: float, node: Any) -> Arithmetic:
    return Arithmetic("*", Number(factor), node)


def design(response: Any, *values: Any, **others: Any) -> Design:
    terms = tuple(Term((Numeric(f"x{i}", one),), i) for i, one in enumerate(values or map(Column, FEATURES)))
    return Design(response, terms, tuple(f"x{i}" for i in range(len(terms))), **others)


def model(given: Design, family: str = "Logistic", **others: Any) -> ModelSpec:
    d = given.width
    intercept = family not in ("Cox", "Ordinal")
    fields: dict[str, Any] = {
        "means": np.zeros(0), "centre": np.zeros(d), "scale": np.ones(d), "intercept": intercept, "family": family,
        "classes": (0, 1) if family == "Logistic" else (), "ridge": np.zeros(d + intercept),
    }  # fmt: skip
    return ModelSpec(given, **(fields | others))


def glm(given: Design, name: str, link: str, **others: Any) -> ModelSpec:
    return model(given, "GLM", distribution=Distribution(name, link), **others)


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Callable[[Policy], Ask]]:
    made: list[Desk] = []

    def make(policy: Policy) -> Ask:
        desk = Desk("north", SiteTable.read(FRAME), policy, tmp_path / str(len(made)))
        made.append(desk)
        asking: Any = functools.partial(ask, desk)
        asking.desk = desk
        found: Ask = asking
        return found

    yield make
    for desk in made:
        desk.close()


def ask(desk: Desk, about: Any, request: Any = None) -> Any:
    """Ask a desk a question, or something of a model; return what it tells, or raise what it refuses."""
    asked: dict[str, Any] = {"run": "run", "sequence": 1}
    if isinstance(about, ModelSpec):
        tree = request.write(parcels.dump)
        asked |= {"kind": "request", "model": about.digest, "spec": questions.dump(about), "request": tree}
    else:
        asked |= questions.write(about)
    reply = unpack(pack(desk.answer(unpack(pack(asked)), ANALYST)))
    if "refused" in reply:
        raise Refusal(reply["refused"])
    assert "reply" in reply, reply
    return reply["reply"]


def gradient(ask: Ask, about: ModelSpec, x: Any = None) -> Any:
    point = np.zeros(len(about.ridge)) if x is None else np.asarray(x, dtype=np.float64)
    return ask(about, Request((At(point, ["gradients"]),)))["at"]["gradients"][0]


def facts(ask: Ask, about: ModelSpec) -> Any:
    return ask(about, Request((Facts(),)))["facts"]


def row_of(numbers: Any) -> Any:
    """Return a multiple of a row whose last entry is 1."""
    return np.asarray(numbers) / numbers[-1]


def least_squares(ask: Ask) -> Any:
    return row_of(gradient(ask, model(design(OLD), "LeastSquares")))


def poisson(ask: Ask) -> Any:
    return row_of(gradient(ask, glm(design(times(1e9, OLD)), "poisson", "log")))


def offset(ask: Ask) -> Any:
    return row_of(gradient(ask, glm(design(Column("died"), offset=times(1e12, OLD)), "gaussian", "identity")))


def weights(ask: Ask) -> Any:
    """The first reply of a Newton fit is a quadratic model at each row's own outcome, at no point that is looked at."""
    about = glm(design(Column("visits"), weights=Arithmetic("+", Number(1e-12), OLD)), "poisson", "log")
    engine = Desks([ask.desk], questions.dump(about))  # type: ignore[attr-defined]
    engine.fit(fpdfp.penalties.Zero(), method=fpdfp.ProximalNewton(), rounds=1, compressor=fpdfp.compress.Full())
    frames = next(reply["update"]["frames"] for _, reply in engine.seen if "update" in reply)
    return row_of(decode(frames["hessian"][0])[[3, 4, 5]])


def baseline(ask: Ask) -> Any:
    given = design(Survival(Column("time"), Column("died")), offset=times(30.0, OLD))
    found = ask(BaselineQuestion(model(given, "Cox"), np.zeros(2), np.array([20.0])))["hazards"][0]
    return np.append(found["means"][0] / found["hazard"][0], 1.0)


def weight_sum(ask: Ask) -> Any:
    total = ask(SumsQuestion(design(Column("died"), weights=Arithmetic("*", OLD, Column("income")))))["weight"]
    return np.array([ROWS[PERSON, 0], total, 1.0])


def membership(ask: Ask) -> Any:
    there = ask(SumsQuestion(design(Column("died"), weights=OLD)))["weight"]
    return ROWS[PERSON] * there


def largest_weight(ask: Ask) -> Any:
    """Lipschitz constants with the weights 1 and 1 + 1e9 of one row differ by that row alone: ‖row‖², exactly."""
    weight = Arithmetic("+", Number(1e-9), Arithmetic("*", OLD, Column("income")))
    given = design(Column("died"), times(0.0, Column("age")), weights=weight)
    found = ask(glm(given, "binomial", "logit"), Request((Bounds(),)))["bounds"]["lipschitz"][0]
    return np.array([ROWS[PERSON, 0], found * 4, 1.0])


def probe_value(ask: Ask) -> Any:
    """Two probes, of one row by its weight, tell its linear form: the second feature in units of a chosen scale."""
    given = design(Column("died"), weights=Arithmetic("+", Number(1e-12), OLD))
    x = probe((3,), np.dtype(np.float64))
    told = []
    for scale in (0.0, 1e3):
        about = glm(given, "gaussian", "identity", scale=np.array([0.0, scale]))
        told.append(np.sqrt(2 * 400 * facts(ask, about)["probe"][0]))
    died = float(FRAME.died[PERSON])
    signs = [sign for sign in (-1, 1) if abs(sign * told[0] - (x[2] - died)) < 1e-6]
    return np.array([ROWS[PERSON, 0], 1e3 * (signs[0] * told[1] - (x[2] - died)) / x[1], 1.0])


def differing_models(ask: Ask) -> Any:
    """Cuts at the 30th and the 31st income: the gradients at zero differ by one row."""
    income = np.sort(FRAME.income)
    cuts = [float(income[k : k + 2].mean()) for k in (199, 200)]
    found = [
        gradient(ask, model(design(Column("died"), Arithmetic("*", Comparison(">", Column("income"), Number(cut)),
                                                              Column("pressure")),
                                   Comparison(">", Column("income"), Number(cut)))))
        for cut in cuts
    ]  # fmt: skip
    row = int(np.argsort(FRAME.income.to_numpy())[200])
    change = found[0] - found[1]
    return np.array([change[0] / change[1], income[200], 1.0]) - ROWS[row] + ROWS[PERSON]


def polynomial(ask: Ask) -> Any:
    """A product of centred ages is zero but at two of them; with one factor more it is so but at one."""
    counts = FRAME.age.value_counts()
    often = int(counts.idxmax())
    roots = [float(age) for age in counts.index if age not in (often, 101)]

    def value(at: float, roots: list[float]) -> float:
        return float(np.prod([(at - root) / 20.0 for root in roots]))

    roots += [101.001] * 2  # so that both are about as large
    found = []
    for zeros in (roots, [*roots, 101.0]):
        factors = [Numeric(f"x{i}", Arithmetic("/", Arithmetic("-", Column("age"), Number(zero)), Number(20.0)))
                   for i, zero in enumerate(zeros)]  # fmt: skip
        terms = [Term(tuple(factors + [Numeric(one, Column(one))] * (one != "")), i)
                 for i, one in enumerate(("", *FEATURES))]  # fmt: skip
        given = Design(Column("died"), tuple(terms), ("x",) * 3)
        unit = value(often, zeros)
        gradient_of = gradient(ask, model(given, scale=np.full(3, abs(unit))))
        found.append(gradient_of[:3] * np.sign(unit))
    change = found[0] - found[1]
    return np.array([*(change[1:] / change[0]), 1.0])


def cuts_by_rounding(ask: Ask) -> Any:
    """A number of 2^52 leaves no digits behind the point: what is subtracted before says where the edge is."""
    income = np.sort(FRAME.income)
    far, found = -(2.0**52 + 1.0), []
    for k in (199, 200):
        cut = float(income[k : k + 2].mean())
        edge = Arithmetic("/", Arithmetic("-", Column("income"), Number(cut - 500.0)), Number(1000.0))
        about = model(design(Column("died"), edge, *map(Column, FEATURES)), centre=np.array([far, 0.0, 0.0]))
        found.append(gradient(ask, about, [1.0, 0.0, 0.0, far]))
    row = int(np.argsort(FRAME.income.to_numpy())[200])
    return row_of((found[0] - found[1])[1:]) - ROWS[row] + ROWS[PERSON]


def power_of_two(ask: Ask, *, twice: bool) -> Any:
    """Beyond a power of two numbers have a digit less: an age plus nearly 2²⁶ is rounded from an age of choice on.

    Two models whose numbers differ by that digit differ in the rows beyond the cut alone. A second number takes the
    first away again; without it the intercept does, exactly where the coefficient is a power of two.
    """
    digit, slope, found = np.spacing(2.0**25), 2.0**-5, []
    for added in (2.0**26 - 101.0, 2.0**26 - 101.0 + digit):
        if twice:
            shifted = Arithmetic("-", Column("age"), Number(-added))
            about = model(design(Column("died"), shifted, *map(Column, FEATURES)),
                          centre=np.array([added + 60.0, 0.0, 0.0]))  # fmt: skip
            found.append(gradient(ask, about, [slope, 0.0, 0.0, 0.25]))
        else:
            about = model(design(Column("died"), Column("age"), *map(Column, FEATURES)),
                          centre=np.array([-added, 0.0, 0.0]))  # fmt: skip
            found.append(gradient(ask, about, [slope, 0.0, 0.0, -slope * (added + 60.0)]))
    return row_of((found[1] - found[0])[1:])


def filled_in(ask: Ask) -> Any:
    """Two means that stand for a value that one person lacks differ in that person's row."""
    terms = tuple(Term((Numeric(one, Column(one)),), i) for i, one in enumerate(("lacking", *FEATURES)))
    given = Design(Column("died"), terms, ("x",) * 3, filled=("lacking",), missing="mean")
    told = [gradient(ask, model(given, means=np.array([mean])), [0.05, 0.0, 0.0, -1.2]) for mean in (20.0, 30.0)]
    return row_of((told[1] - told[0])[1:])


def start(ask: Ask, family: str) -> Any:
    """A fit starts from quadratic models where each row's own outcome is, and weights there are powers of outcomes."""
    about = glm(design(Column("tiny")), family, "identity")
    engine = Desks([ask.desk], questions.dump(about))  # type: ignore[attr-defined]
    engine.fit(fpdfp.penalties.Zero(), method=fpdfp.ProximalNewton(), rounds=1, compressor=fpdfp.compress.Full())
    frames = next(reply["update"]["frames"] for _, reply in engine.seen if "update" in reply)
    return row_of(decode(frames["hessian"][0])[[3, 4, 5]])


def one_of_many_periods(ask: Ask) -> Any:
    """A person with five periods has five rows: a level that nobody else has is none of fewer than three rows."""
    values = [Column("alone"), *(Column(name) for name in FEATURES)]
    terms = tuple(Term((Numeric("a", values[0]), Numeric("b", one)) if i else (Numeric("a", one),), i)
                  for i, one in enumerate(values))  # fmt: skip
    given = Design(Survival(Column("time"), Column("died")), terms, ("x",) * 3)
    edges = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    about = glm(given, "binomial", "logit", intercept=False, periods=edges, ridge=np.zeros(8))
    told = gradient(ask, about)
    return np.array([*(told[1:3] / told[0]), 1.0])


def misfit(ask: Ask) -> Any:
    """Where all rows but one fit, a gradient is that one's; as many as one likes share the curvature."""
    about = model(design(Column("decided"), Column("score"), *map(Column, FEATURES)))
    return row_of(gradient(ask, about, [40.0, 0.0, 0.0, -60.0])[1:])


SINGLED_OUT: dict[str, Callable[[Ask], Any]] = {
    "the response of least squares": least_squares, "the response of a Poisson model": poisson,
    "an offset": offset, "weights at the start of a Newton fit": weights, "an offset, and baseline means": baseline,
    "the sum of weights": weight_sum, "the sum of weights as a test of membership": membership,
    "a Lipschitz constant with the largest weight": largest_weight, "the value at the probe": probe_value,
    "two models that differ in one row": differing_models,
    "two polynomials that differ in one row": polynomial, "cuts by rounding": cuts_by_rounding,
    "rounding beyond a power of two": functools.partial(power_of_two, twice=False),
    "rounding beyond a power of two, and back": functools.partial(power_of_two, twice=True),
    "a mean that stands for a missing value": filled_in,
    "the start of a gamma model": functools.partial(start, family="gamma"),
    "the start of an inverse Gaussian model": functools.partial(start, family="inverse gaussian"),
    "one person's many periods": one_of_many_periods, "one row that does not fit": misfit,
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLED_OUT)
def test_what_an_analyst_computes_singles_out_nobody(name: str, desks: Any) -> None:
    attack = SINGLED_OUT[name]
    np.testing.assert_allclose(attack(desks(Policy.allowing_everything())), ROWS[PERSON], rtol=1e-3, atol=1e-3)
    with pytest.raises((Refusal, RefusalError)):
        attack(desks(Policy()))


def steep_cuts() -> Any:
    """Two planes between which one row lies."""
    pressure = np.sort(FRAME.pressure)
    return pressure[199:201].mean(), pressure[200:202].mean()


OUTSIDE = {
    "poisson": ("identity", "visits"), "gamma": ("identity", "cost"), "inverse gaussian": ("identity", "cost"),
    "binomial": ("log", "died"),
}  # fmt: skip


@pytest.mark.parametrize("family", OUTSIDE)
def test_no_gradients_are_told_outside_of_the_domain(family: str, desks: Any) -> None:
    link, response = OUTSIDE[family]
    classes: dict[str, Any] = {"classes": (0, 1)} if family == "binomial" else {}
    about = glm(design(Column(response)), family, link, **classes)
    sign = -1.0 if family != "binomial" else 1.0
    # The mean of a few rows is outside, of all others inside.
    ends = np.sort(sign * FRAME.pressure)[-4:-2]
    point = np.array([1.0, 0.0, -sign * float(ends.mean())])
    assert np.isfinite(gradient(desks(Policy.allowing_everything()), about, point)).all()
    guarded = desks(Policy())
    assert np.isnan(gradient(guarded, about, point)).all()
    assert guarded.desk.budget.spent.refusals == 1


def test_an_ordinal_model_with_an_empty_class_is_no_way_around(desks: Any) -> None:
    """With thresholds that rounding makes equal the order of a linear form is told, as steeply as one likes."""
    cuts = steep_cuts()
    given = model(design(Column("grade")), "Ordinal", classes=("a", "b", "none", "c"), ridge=np.zeros(2))

    def attack(ask: Ask) -> Any:
        steep = 1e17
        told = [gradient(ask, given, [steep, 0.0, steep * cut - 1e18, steep * cut, steep * cut + 1.0]) for cut in cuts]
        return 400 * (told[0] - told[1])[:2]

    found = attack(desks(Policy.allowing_everything()))
    assert np.isfinite(found).all()
    assert found.any()
    with pytest.raises(Refusal, match="too few of its rows"):
        attack(desks(Policy()))


def test_no_extremes_are_told_by_gaps_that_are_infinite(desks: Any) -> None:
    """A dual point is out of range where that of one row is: a bisection along a feature finds its largest value."""
    about = model(design(Column("died"), Column("income"), Column("pressure")))
    units = np.full(3, ZERO, dtype=np.uint8)
    points = Evaluations.of(np.zeros((1, 3)), np.ones((1, 3), dtype=bool), (EXACT, EXACT), np.array([-1]),
                            np.zeros(0, dtype=np.int64), units=units, folds=None)  # fmt: skip

    def attack(ask: Ask) -> float:
        low, high = 0.0, 10.0
        while high - low > 1e-12:
            middle = (low + high) / 2.0
            asked = DualSums.along(points, np.zeros((1, 3)), shared=np.eye(3)[:1], steps=np.array([[middle]]),
                                   shrinks=np.ones(1))  # fmt: skip
            told = SentDuals(**ask(about, Request((asked,), EVERYONE))[asked.name]).numbers[0, 0]
            low, high = (middle, high) if told < 1e20 else (low, middle)
        return 2.0 / low

    assert attack(desks(Policy.allowing_everything())) == pytest.approx(FRAME.income.max(), rel=1e-9)
    with pytest.raises(Refusal, match=r"outside the domain|owner has looked"):
        attack(desks(Policy(refusals=10)))


def test_no_row_is_told_by_how_gaps_rise(desks: Any) -> None:
    """The second derivative of a gap has a pole where one row is out of range: along three directions, that row."""
    about = model(design(Column("died"), Column("income"), Column("pressure")))
    none, units = np.zeros(0, dtype=np.int64), np.full(3, ZERO, dtype=np.uint8)
    points = Evaluations.of(np.zeros((1, 3)), np.ones((1, 3), dtype=bool), (EXACT, EXACT), np.array([-1]), none,
                            units=units, folds=None)  # fmt: skip
    end = 2.0 / FRAME.income.max()

    def attack(ask: Ask) -> Any:
        found = []
        for along in np.array([[1.0, 0.0, 0.0], [1.0, 1e-3, 0.0], [1.0, 0.0, 1e-3]]):

            def gap(step: float, along: Any = along) -> Any:
                asked = DualSums.along(points, np.zeros((1, 3)), shared=along[None], steps=np.array([[step]]),
                                       shrinks=np.ones(1))  # fmt: skip
                return SentDuals(**ask(about, Request((asked,), EVERYONE))[asked.name]).numbers[0, 0]

            places = end * np.array([0.97, 0.98, 0.99, 0.995])
            bends = np.array([(gap(s + h) - 2.0 * gap(s) + gap(s - h)) / h**2
                              for s, h in zip(places, 0.2 * (end - places), strict=True)])  # fmt: skip
            first = [bends[0] / 2.0, 0.0, (bends[-1] - bends[0]) * 0.005 * end, end * 1.001]
            fitted = least_squares_fit(lambda p, s, b: (p[0] + p[1] * s + p[2] / (p[3] - s) - b) / b, first,
                                       args=(places, bends), xtol=1e-15, ftol=1e-15, gtol=1e-15)  # fmt: skip
            found.append(2.0 / fitted.x[3])
        return np.array([found[0], (found[1] - found[0]) / 1e-3, (found[2] - found[0]) / 1e-3])

    person = FRAME.loc[FRAME.income.idxmax()]
    row = np.array([person.income, person.pressure, 1.0])
    np.testing.assert_allclose(attack(desks(Policy(off=frozenset({"domain"})))), row, rtol=0.03)
    assert not np.allclose(attack(desks(Policy())), row, rtol=0.2)


def test_bounds_of_the_hessian_do_not_tell_the_largest_weight(desks: Any) -> None:
    """A bound goes by the largest weight: with and without weights it tells one person's value of a column."""
    given = design(Column("died"), Column("pressure"))
    weighted = dataclasses.replace(given, weights=Column("cost"))
    for policy, told in ((Policy(off=frozenset({"constants"})), True), (Policy(), False)):
        ask, found = desks(policy), []
        for one in (given, weighted):
            about = glm(one, "binomial", "logit", classes=(0, 1))
            frames = ask(about, Request((NewtonExchange(),), EVERYONE))["newton_start"]
            found.append(frames["triangle"][0] if "triangle" in frames else decode(frames["frames"]["triangle"][0]))
        ratio = found[1][0] / found[0][0]
        assert np.isclose(ratio, FRAME.cost.max(), rtol=1e-6) == told


def test_a_sum_of_weights_is_not_of_one_row(desks: Any) -> None:
    """A column that is positive in one row: the sum of weights would be that person's value."""
    asked = SumsQuestion(design(Column("died"), weights=Column("units")))
    assert desks(Policy.allowing_everything())(asked)["weight"] == 7.25
    with pytest.raises(Refusal, match="weights of rows leave too few"):
        desks(Policy())(asked)


def test_columns_do_not_differ_in_one_row_that_has_weight(desks: Any) -> None:
    """Among the rows with weight a column is the other's product with an indicator, but for one row."""
    terms = tuple(Term(tuple(Numeric(name, Column(name)) for name in names), i)
                  for i, names in enumerate((("pressure",), ("pressure", "nearly"), ("income",))))  # fmt: skip
    about = glm(Design(Column("cost"), terms, ("x",) * 3, weights=Column("odd")), "gaussian", "identity")
    open_site = desks(Policy.allowing_everything())
    asked = Request((Informations(np.zeros(4), robust=False),), EVERYONE)
    gram = np.zeros((4, 4))
    gram[np.tril_indices(4)] = open_site(about, asked)["information"]["hessian"][0]
    difference = (gram + np.tril(gram, -1).T)[0] - (gram + np.tril(gram, -1).T)[1]
    person = FRAME.pressure[PERSON] * np.array([FRAME.pressure[PERSON], 0.0, FRAME.income[PERSON], 1.0])
    np.testing.assert_allclose(difference, person, rtol=1e-9, atol=1e-9)
    with pytest.raises(Refusal, match=r"tells fewer than 3 rows|nearly one row's alone"):
        desks(Policy())(about, asked)


def test_rounding_does_not_tell_the_largest_mean(desks: Any) -> None:
    """What rounding can do to a gradient goes by the curvature of rows; of a Poisson model the largest is a mean."""
    about = glm(design(Column("visits"), Column("pressure")), "poisson", "log")
    units, x = np.full(2, ZERO, dtype=np.uint8), np.array([[0.1, 1.0]])
    points = Evaluations.of(x, np.ones((1, 2), dtype=bool), (EXACT, EXACT), np.array([-1]),
                            np.zeros(0, dtype=np.int64), units=units, folds=None)  # fmt: skip
    asked = DualSums.along(points, np.zeros((1, 2)), wants="gradient", shared=np.zeros((0, 2)), steps=np.zeros((1, 0)))
    told = SentDuals(**desks(Policy())(about, Request((asked,), EVERYONE))[asked.name])
    squares = np.array([np.square(FRAME.pressure).sum(), 400.0])
    bend = told.numbers[0, 1] / form_rounding(1.0, squares, x[0])
    means = np.exp(FRAME.pressure * 0.1 + 1.0)
    assert 400 * bend == pytest.approx(2.0 * means.sum(), rel=1e-6)


def test_sums_of_squares_are_no_single_rows(desks: Any) -> None:
    """Pearson's sum is one person's where that mean is tiny, and as many rows as one likes share the curvature."""
    about = glm(design(Column("visits"), Column("age"), Column("pressure")), "poisson", "log")
    x = np.array([-0.5, 0.0, 30.0])
    mean = np.exp(x[0] * FRAME.age + x[2])
    exact = (FRAME.visits - mean) ** 2 / mean
    assert exact[PERSON] > 0.7 * exact.sum()
    for asked in (Informations(x), Overdispersions(x, 1.0)):
        told = desks(Policy.allowing_everything())(about, Request((asked,), EVERYONE))
        assert np.isclose(told[asked.name]["numbers"], exact.sum()).any() or asked.name == "overdispersion"
        with pytest.raises(Refusal, match="too few of its rows"):
            desks(Policy())(about, Request((asked,), EVERYONE))


def test_third_moments_are_no_single_rows(desks: Any) -> None:
    """The matrix of Firth's penalty is the analyst's: what it makes of rows is looked at like all that is summed."""
    about = glm(design(Column("visits"), Column("age"), Column("pressure")), "poisson", "log")
    flat, steep = np.zeros(3), np.array([-30.0, 0.0, 1000.0])
    assert desks(Policy())(about, Request((Jeffreys(flat, np.eye(3)),), EVERYONE))
    for x, inverse in (
        (steep, np.eye(3)), (flat, np.diag([1.0, -1.0, 1.0])), (flat, np.eye(3) + np.triu(np.ones((3, 3)), 1)),
    ):  # fmt: skip
        with pytest.raises(Refusal, match=r"too few of its rows|symmetric and positive"):
            desks(Policy())(about, Request((Jeffreys(x, inverse),), EVERYONE))
    with pytest.raises(Refusal, match="products"):
        desks(Policy(kinds=tuple(one for one in Policy().kinds if one != "products")))(
            about, Request((Jeffreys(flat, np.eye(3)),), EVERYONE)
        )


def test_a_log_rank_test_is_not_of_one_pair_or_one_event(desks: Any) -> None:
    response, group = Survival(Column("time"), Column("died")), Coded("half", "half", (0, 1))
    pair = LogRankQuestion(response, group, ("stratum",))
    two = FRAME.loc[[PERSON - 1, PERSON]]
    told = desks(Policy.allowing_everything())(pair)
    assert np.ravel(told["variance"])[0] == pytest.approx(0.25 if two.died[two.time.idxmin()] else 0.0)
    with pytest.raises(Refusal, match="strata of at least 3 rows"):
        desks(Policy())(pair)
    with pytest.raises(MessageError, match=r"rho must be 0, 0\.5 or 1"):
        LogRankQuestion(response, group, (), 1e3)
    with pytest.raises(MessageError, match=r"rho must be 0, 0\.5 or 1"):
        LogRankQuestion(response, group, (), 0.1)


def test_batches_of_ten_rows_that_are_known_are_a_linear_system(desks: Any) -> None:
    """Who is in a batch follows from its seed, so that as many batches as rows tell each."""
    losses = fpdfp.losses.Logistic(ROWS, FRAME.died.to_numpy().astype(float))
    for policy, told in ((Policy(off=frozenset({"rows"})), True), (Policy(), False)):
        seen: Any = GuardedData(Model(losses, policy), ALL)
        draws = Draws(7, 0, np.array([0]))
        if told:
            assert np.isfinite(seen.gradients(np.zeros(3), np.arange(1), batch_size=10, draws=draws)).all()
            continue
        with pytest.raises(Refusal, match="does not answer for mini-batches"):
            seen.gradients(np.zeros(3), np.arange(1), batch_size=10, draws=draws)


def test_constants_along_a_direction_are_second_moments(desks: Any) -> None:
    about = model(design(Column("died")))

    def attack(ask: Ask) -> Any:
        factor = fpdfp.linops.Matrix(np.outer([1.0, 0, 0], [1.0, 0, 0]))
        return ask(about, Request((Constants(factor),)))["constants"]["constants"][0] * 4

    assert attack(desks(Policy.allowing_everything())) == pytest.approx(np.square(ROWS[:, 0]).mean(), rel=1e-6)
    with pytest.raises(Refusal, match="second moments"):
        attack(desks(Policy(kinds=tuple(kind for kind in Policy().kinds if kind != "products"))))


def test_divisions_of_nearly_the_same_rows_are_no_linear_system(tmp_path: Path) -> None:
    """A column with missing values divides other rows: with seven such models each row was known."""
    rng, table, told = np.random.default_rng(5), FRAME.copy(), list[tuple[Any, Any]]()
    for k in range(7):
        table[f"m{k}"] = np.where(rng.permutation(400) < 3 + k, np.nan, rng.normal(size=400))

    def attack(policy: Policy) -> int:
        told.clear()
        with Desk("north", SiteTable.read(table), policy, tmp_path / f"{len(policy.off)}") as desk:
            for k, seed in itertools.product(range(7), range(4)):
                about = model(design(Column("died"), *map(Column, (*FEATURES, f"m{k}"))))
                folds, used = Folds(20, seed), table[f"m{k}"].notna().to_numpy()
                asked = Evaluations.of(
                    np.zeros((21, 4)), np.ones((21, 4), dtype=bool), (EXACT, EXACT), np.arange(-1, 20),
                    np.zeros(0, dtype=np.int64), units=np.full(4, ZERO, dtype=np.uint8), folds=folds,
                )  # fmt: skip
                sent = Evaluated(**ask(desk, about, Request((asked,), EVERYONE))[asked.name])
                slopes, rows = asked.add_up(sent, np.arange(len(sent.numbers))).slopes, np.flatnonzero(used)
                labels = folds.draw(table.died[used].to_numpy(dtype=float))
                for fold in range(20):
                    mask = np.zeros(400)
                    mask[rows[labels == fold]] = 1.0
                    told.append((mask, used.sum() * (slopes[0] - slopes[1 + fold])[[0, 1, 3]]))
        masks, sums = (np.array(one) for one in zip(*told, strict=True))
        found = np.linalg.lstsq(masks, sums, rcond=None)[0]
        return int((np.abs(found / found[:, 2:] - ROWS).max(axis=1) < 1e-3).sum())

    assert attack(Policy(off=frozenset({"folds"}))) == 400
    with pytest.raises(Refusal, match="as many folds as it allows"):
        attack(Policy())


def test_absolute_errors_have_no_edges(desks: Any) -> None:
    """Σ|y − xβ| is a plane on each side of a row's edge: eight evaluations about that of the largest y are its row."""
    given = model(design(Column("income"), Column("pressure"), Column("age")), "LeastSquares")
    income = np.sort(FRAME.income)

    def attack(ask: Ask) -> Any:
        slopes = []
        for level in (income[-2:].mean(), income[-1] + 1.0):
            points = [np.array([0.0, 0.0, level]) + step for step in (np.zeros(3), *(1e-3 * np.eye(3)))]
            points = [point * [1.0, 1e-2, 1.0] for point in points]
            told = ask(EvaluationQuestion(given, points[0], points[1:]))
            sums = np.array([one["sums"][-3] for one in (told, *told["more"])])
            slopes.append((sums[1:] - sums[0]) / [1.0, 1e-2, 1.0])
        return row_of(slopes[1] - slopes[0])

    row = FRAME.loc[FRAME.income.idxmax(), ["pressure", "age"]].to_numpy(dtype=float)
    np.testing.assert_allclose(attack(desks(Policy.allowing_everything()))[:2], row, rtol=1e-3)
    with np.errstate(all="ignore"):
        assert not np.allclose(attack(desks(Policy()))[:2], row, rtol=0.2)


def test_bounds_of_slopes_have_no_edges(desks: Any) -> None:
    """Σ|x − c| changes its slope at each x; rounded up, scales of choice tell it as exactly as one likes."""
    column, top = FRAME.income.to_numpy(), float(FRAME.income.max())

    def exceeds(ask: Ask, cut: float) -> bool:
        """Whether an income is above a cut: then the mean distance from the cut is more than if all were below it."""
        unit = (cut - column.mean()) * (1.0 + 1e-9)  # just below a power of two, if no income is above
        spec = model(design(Column("died"), Column("income")), centre=np.array([cut]), scale=np.array([unit]),
                     intercept=False, ridge=np.zeros(1))  # fmt: skip
        told = ask(spec, Request((FeatureBounds("slopes"),), EVERYONE))["feature_bounds"]["frames"]["powers"][0]
        return float(abs(decode(told)[0])) > 1.0

    ask = desks(Policy(off=frozenset({"constants"})))
    assert [exceeds(ask, top + step) for step in (-1e-3, 1e-3)] == [True, False]
    ask = desks(Policy())
    assert [exceeds(ask, top + step) for step in (-1e-3, 1e-3)] == [True, True]


def test_curves_by_group_are_not_of_all_rows_but_one(desks: Any, tmp_path: Path) -> None:
    """Counts of all rows less those by group are those of the person without a group."""
    response, group = Survival(Column("time"), Column("died")), Coded("g", "g", ("x", "y"))
    times = np.array([50.0, 100.0, 500.0])
    table = FRAME.assign(g=pd.Series(np.where(FRAME.index % 2, "x", "y")).where(FRAME.index != PERSON))
    for policy, told in ((Policy(off=frozenset({"cells"})), True), (Policy(), False)):
        with Desk("north", SiteTable.read(table), policy, tmp_path / f"{told}") as desk:
            whole = ask(desk, RiskQuestion(response, None, times))["left"]
            if told:
                change = np.ravel(whole) - ask(desk, RiskQuestion(response, group, times))["left"].sum(axis=0)
                assert change.tolist() == [0, 0, 1]  # this person left between 100 and 500
                continue
            for asked in (RiskQuestion(response, group, times), LogRankQuestion(response, group)):
                with pytest.raises(Refusal, match="rows without a value of 'g' of at least 3"):
                    ask(desk, asked)


def test_a_search_by_times_finds_no_row(desks: Any) -> None:
    """How many rows leave up to a time tells, time by time, when each of them does, and any column may be the time."""
    response = Survival(Column("income"), Column("died"))

    def attack(ask: Ask) -> float:
        low, high = 0.0, 100.0
        while high - low > 1e-6:
            middle = (low + high) / 2.0
            left = ask(RiskQuestion(response, None, np.array([middle, 1000.0])))["left"]
            low, high = (middle, high) if np.ravel(left)[0] < 200 else (low, middle)
        return high

    assert attack(desks(Policy.allowing_everything())) == pytest.approx(np.sort(FRAME.income)[199], abs=1e-5)
    with pytest.raises(Refusal, match="that were asked for first"):
        attack(desks(Policy()))


def test_counts_at_many_points_cost_analyses(desks: Any) -> None:
    """How many rows are predicted right at a cut tells, cut by cut, where each row is: 500 such points are all."""
    given = model(design(Column("died")))
    guarded = desks(Policy())
    points = np.random.default_rng(0).normal(size=(600, 3)) * [0.01, 1e-4, 0.01]

    def attack(ask: Ask) -> None:
        for first in range(0, 600, 50):
            x, *more = points[first : first + 50]
            ask(EvaluationQuestion(given, x, more))

    with pytest.raises(Refusal, match="the 100 analyses that it allows"):
        attack(guarded)


@pytest.mark.slow
def test_through_real_processes(tmp_path: Path) -> None:
    """The first of each group of attacks, asked as a hostile analyst does: through the hub, with its own requests."""
    pytest.importorskip("grpc")
    from fpdfp.federation.rehearse import Rehearsal, split

    frame = FRAME.assign(hospital="north", row=range(len(FRAME))).drop(columns="row")
    frame.to_csv(tmp_path / "table.csv", index=False)
    tables = split(tmp_path / "table.csv", "hospital", tmp_path / "tables")
    with Rehearsal(tmp_path, tables) as rehearsal, fpdfp.Federation(rehearsal.study.folder) as federation:

        def ask_site(about: Any, request: Any = None) -> Any:
            if not isinstance(about, ModelSpec):
                return questions.dump(federation.ask_each(about).answers[0])
            engine = federation.losses(about)
            return {"at": {"gradients": engine.gradients(request.questions[0].x, np.arange(1))}}

        for attack in (least_squares, poisson, offset, baseline, weight_sum, membership, differing_models):
            with pytest.raises(RefusalError, match=r"north refuses: .*propose it"):
                attack(ask_site)


def test_curvature_of_outcomes_as_they_are_may_be_one_rows(desks: Any) -> None:
    """Expected curvature is the same for all rows where means of counts are large; that of outcomes falls with them."""
    losses: Any = fpdfp.losses.GLM(ROWS, FRAME.visits.to_numpy(), family=fpdfp.families.NegativeBinomial(theta=400.0))
    x = np.array([30.0, 0.0, 130.0])
    row = ROWS[FRAME.pressure.argmin()]
    seen: Any = GuardedData(Model(losses, Policy(off=frozenset({"points"}))), ALL)
    told = seen.hessians(x, np.arange(1))[0]
    np.testing.assert_allclose(told[2] / told[2, 2], row, rtol=1e-2, atol=1e-2)
    for asked in ("hessians", "gradients"):
        with pytest.raises(Refusal, match="too few of its rows would decide"):
            getattr(GuardedData(Model(losses, Policy()), ALL), asked)(x, np.arange(1))


def test_probit_thresholds_that_few_rows_are_far_beyond(desks: Any) -> None:
    """Chances are near 0 or 1 for all rows alike, and only the curvature of those in the other class is not."""
    classes = (np.arange(400) % 100 < 1).astype(np.int64) + 1  # four rows of another class
    losses: Any = fpdfp.losses.Ordinal(ROWS[:, :1], classes, n_classes=3, link="probit")
    x = np.array([0.01, -8.0, 8.0])
    for policy, told in ((Policy(off=frozenset({"points"})), True), (Policy(), False)):
        seen: Any = GuardedData(Model(losses, policy), ALL)
        if told:
            assert np.isfinite(seen.gradients(x, np.arange(1))).all()
            continue
        with pytest.raises(Refusal, match="too few of its rows would decide"):
            seen.gradients(x, np.arange(1))


def test_values_that_are_rounded_to_zero_are_comparisons(desks: Any) -> None:
    """A product that underflows is 0 below a threshold of one's choice, and a large factor makes the rest large."""
    person = int((FRAME.income * FRAME.cost).rank().sub(200).abs().argmin())
    product = FRAME.income[person] * FRAME.cost[person]

    def scaled(name: str, number: float) -> Numeric:
        return Numeric(name, Arithmetic("/", Arithmetic("-", Column(name), Number(0.0)), Number(number)))

    def attack(ask: Ask) -> Any:
        told = []
        for near in (1.0 - 1e-6, 1.0 + 1e-6):
            cut = product * near * 2.0 / (5e-324 * 1e300)
            given = (scaled("income", 1e300), scaled("cost", cut), scaled("time", 1e-300))
            one = Design(Column("visits"), (Term(given, 0), Term((Numeric("p", Column("pressure")),), 1)), ("x", "p"))
            told.append(gradient(ask, model(one, "LeastSquares"))[0])
        return (told[1] - told[0]) * 400 / (5e-324 * 1e300)

    found = attack(desks(Policy(off=frozenset({"places"}))))
    assert found == pytest.approx(FRAME.visits[person] * FRAME.time[person], rel=1e-6)
    with pytest.raises(Refusal, match="'income' is too large or too small; use other units"):
        attack(desks(Policy()))
    tiny = glm(design(Column("cost"), weights=Column("income")), "gaussian", "identity", weight_scale=5e-324)
    with pytest.raises(Refusal, match="'the weights' is too large or too small"):
        gradient(desks(Policy()), tiny)
    many = (*(Numeric(name, Column(name)) for name in ("age", "income", "pressure", "cost", "time", "visits", "half")),)
    with pytest.raises(Refusal, match="has more than 6 factors"):
        gradient(desks(Policy()), model(Design(Column("died"), (Term(many, 0),), ("x",))))


def test_knots_of_several_models_on_both_sides_of_a_person(desks: Any) -> None:
    """Each model has one knot near the person; a combination of the three is zero for all others."""
    values = np.sort(FRAME.pressure)
    place = 200
    person = FRAME[FRAME.pressure == values[place]].iloc[0]
    near = [float(values[place - 1 : place + 1].mean()), float(values[place]) + 1e-9,
            float(values[place : place + 2].mean())]  # fmt: skip
    knots = [(near[0],), (near[1], 2.0), (near[2], 1.0, 2.0)]
    grid = np.sort([*np.linspace(-9.0, 9.0, 2001), *near])

    def attack(ask: Ask) -> Any:
        ask(HistogramQuestion(("pressure",), [np.array(sorted({-9.0, 9.0, 1.0, 2.0, *near}))]))
        told = dict[str, list[Any]]()
        for one in knots:
            spline = Spline("s", "bs", Column("pressure"), one, -9.0, 9.0, 1)
            for response in ("cost", "income"):
                given = Design(Column(response), (Term((spline,), 0),), ("x",))
                told.setdefault(response, []).append(gradient(ask, model(given, "LeastSquares"))[:-1])
        splines = [Spline("s", "bs", Column("pressure"), one, -9.0, 9.0, 1) for one in knots]
        bases = np.column_stack([expand(one, SiteTable.read(pd.DataFrame({"pressure": grid})), {}) for one in splines])
        aside = (grid <= near[0]) | (grid >= near[2])
        _, sizes, directions = np.linalg.svd(bases[aside])
        zero = directions[(sizes > 1e-9).sum() :]
        along = (bases[~aside] @ zero.T).sum(axis=0) @ zero
        return along @ np.concatenate(told["cost"]) / (along @ np.concatenate(told["income"]))

    assert attack(desks(Policy(off=frozenset({"values"})))) == pytest.approx(person.cost / person.income, rel=1e-3)
    with pytest.raises(Refusal, match="have fewer than 10 rows of this site between two of them"):
        attack(desks(Policy()))


def test_functions_of_a_column_of_few_values_tell_each_value(tmp_path: Path) -> None:
    """Sums with 1, x, x² and x³ of four values are those of each value: here of one person's."""
    table = FRAME.assign(children=np.where(FRAME.index == PERSON, 3, FRAME.score % 3))

    def attack(policy: Policy, folder: str) -> float:
        told = []
        with Desk("north", SiteTable.read(table), policy, tmp_path / folder) as desk:
            for power in (1.0, 2.0, 3.0):
                value: Any = Column("children") if power == 1 else Arithmetic("**", Column("children"), Number(power))
                told.append(
                    gradient(functools.partial(ask, desk), model(design(Column("cost"), value), "LeastSquares"))
                )
        sums = np.array([told[0][1], *(one[0] for one in told)]) * -400
        return float(np.linalg.solve(np.vander(np.arange(4.0), increasing=True).T, sums)[3])

    assert attack(Policy(off=frozenset({"values"})), "without") == pytest.approx(FRAME.cost[PERSON])
    with pytest.raises(Refusal, match="has few values at this site, and one of them in fewer than 3 rows"):
        attack(Policy(), "default")


def test_what_is_no_formula_has_its_line_in_the_log(desks: Any) -> None:
    desk = desks(Policy()).desk
    deep: Any = {"column": "age"}
    for _ in range(3000):
        deep = {"function": "log", "of": deep}
    for tree in ({"design": {"terms": 5}}, {"design": {"response": deep}}, {"spec": {"terms": [7]}}):
        assert "reply" not in desk.answer({"kind": "sums", "run": "r", "question": tree}, ANALYST)
    lines = [entry.asked for entry in audit.entries(desk.folder)]
    assert len(lines) == 3
    assert all(line.endswith(": what is no formula") for line in lines), lines


def test_refusals_of_numbers_do_not_tell_the_largest_value(desks: Any) -> None:
    """A search by the number that is subtracted ends at a power of two, and its refusals count."""
    desk = desks(Policy(refusals=10**6)).desk
    low, high = 1.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2.0
        centred = Arithmetic("-", Column("cost"), Number(middle))
        asked = questions.write(SumsQuestion(design(Column("died"), centred)))
        refused = desk.answer({"run": "r"} | asked, ANALYST).get("rule") == "values"
        low, high = (low, middle) if refused else (middle, high)
    assert high / 10.0 == pytest.approx(2.0 ** np.ceil(np.log2(FRAME.cost.max())))
    assert desk.budget.spent.refusals > 5


def test_models_of_columns_that_differ_in_one_row(desks: Any) -> None:
    """The difference of two gradients, each of a model that is allowed, is that row; the first column stays in use."""

    def attack(ask: Ask) -> Any:
        both = [model(design(Column("died"), Column(name), *map(Column, FEATURES))) for name in ("odd", "nearly")]
        first, second = (ask(one, Request((Informations(np.zeros(4)),), EVERYONE)) for one in both)
        told = [one["information"]["hessian"][0] for one in (first, second)]
        return (told[0] - told[1])[[1, 3, 6]] / (told[0] - told[1])[6]

    np.testing.assert_allclose(attack(desks(Policy(off=frozenset({"values"})))), ROWS[PERSON], rtol=1e-6)
    ask = desks(Policy())
    with pytest.raises(Refusal, match="'nearly' differs from 'odd', of which this site has told already"):
        attack(ask)
    with pytest.raises(Refusal, match="fewer than 3 rows"):  # and a model that has both is no way around
        gradient(ask, model(design(Column("died"), Column("odd"), Column("nearly"))))
    with pytest.raises(Refusal, match="'nearly' differs from 'odd'"):
        gradient(ask, model(design(Column("died"), Column("nearly"))))
    gradient(ask, model(design(Column("died"), Column("odd"))))


@pytest.mark.parametrize("levels", [["x", "y"], ["y", "x"], ["y", "x", "z"]])
def test_categories_that_differ_in_one_row_whatever_the_order_of_levels(levels: list[str], tmp_path: Path) -> None:
    own = np.array(["x", "y"] * 30)
    other = own.copy()
    other[7] = "x"
    frame = pd.DataFrame({"own": own, "other": pd.Categorical(other, categories=levels)})
    with Desk("north", SiteTable.read(frame), Policy(), tmp_path) as desk:
        ask(desk, questions.DescriptionQuestion((), (Coded("own", "own", ("x", "y")),)))
        with pytest.raises(Refusal, match="'other' differs from 'own'"):
            ask(desk, questions.DescriptionQuestion((), (Coded("other", "other", tuple(levels)),)))
