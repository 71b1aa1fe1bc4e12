"""Models and questions of a hostile analyst that single out one row: each succeeds where everything is allowed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts import spec
from fpdfp.cohorts.losses import At, Bounds, Constants, Facts, probe
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress import decode
from fpdfp.errors import Refusal, RefusalError
from fpdfp.federation import questions
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import (
    BaselineQuestion,
    Distribution,
    EvaluationQuestion,
    ModelSpec,
    RiskQuestion,
    SumsQuestion,
)
from fpdfp.federation.request_guard import RequestGuard as Desk
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Arithmetic, Column, Comparison, Number, Numeric, Survival
from tests.desks import ANALYST, Desks

#: The row of a person of 101 years, as the models of these attacks have it: two measurements and the intercept.
PERSON = 17
FEATURES = ("pressure", "income")
Ask = Callable[..., Any]


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
        }
    )  # fmt: skip


FRAME = frame()
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
        tree = request.write(spec.dump)
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


SINGLED_OUT: dict[str, Callable[[Ask], Any]] = {
    "the response of least squares": least_squares, "the response of a Poisson model": poisson,
    "an offset": offset, "weights at the start of a Newton fit": weights, "an offset, and baseline means": baseline,
    "the sum of weights": weight_sum, "the sum of weights as a test of membership": membership,
    "a Lipschitz constant with the largest weight": largest_weight, "the value at the probe": probe_value,
    "two models that differ in one row": differing_models,
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


def test_constants_along_a_direction_are_second_moments(desks: Any) -> None:
    about = model(design(Column("died")))

    def attack(ask: Ask) -> Any:
        factor = fpdfp.linops.Matrix(np.outer([1.0, 0, 0], [1.0, 0, 0]))
        return ask(about, Request((Constants(factor),)))["constants"]["constants"][0] * 4

    assert attack(desks(Policy.allowing_everything())) == pytest.approx(np.square(ROWS[:, 0]).mean(), rel=1e-6)
    with pytest.raises(Refusal, match="second moments"):
        attack(desks(Policy(kinds=tuple(kind for kind in Policy().kinds if kind != "products"))))


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
    with pytest.raises(Refusal, match="only at those that were asked for first"):
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
