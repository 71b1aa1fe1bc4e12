"""Formulas in the estimators: sites behind parcels give the bits of one process, and known results come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp import FederatedLinearRegression, FederatedLogisticRegression
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.cohorts.site import Site
from fpdfp.engines.choice import choose_method, name_method
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.questions import (
    ModelSpec,
    dump,
    read_answer,
    read_question,
    read_spec,
    write,
    write_answer,
)
from fpdfp.federation.table import SiteTable
from fpdfp.losses import Losses
from fpdfp.precondition.cost import Network

#: Means that are put in are no concern here.
pytestmark = pytest.mark.filterwarnings("ignore:means were put in")


class SitesEngine(RemoteEngine):
    """Sites made from a model's specification, reached through bytes."""

    def __init__(self, names: Sequence[str], tables: Sequence[SiteTable], spec: ModelSpec) -> None:
        super().__init__(patience=1.0)
        self._names = list(names)
        sent = pack(dump(spec))
        self.losses_there = [
            table.losses(read_spec(unpack(sent)), name) for name, table in zip(names, tables, strict=True)
        ]
        self.sites = [Site(losses) for losses in self.losses_there]
        self.restart_at: int | None = None

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        replies = {}
        for site, request in asked.items():
            if self.restart_at is not None and request.get("update", {}).get("round") == self.restart_at:
                self.sites[site], self.restart_at = Site(self.losses_there[site]), None
            reply = self.sites[site].handle(parcels.load(unpack(pack(request))))
            replies[site] = unpack(pack(reply))
        return replies


class SitesCohort(TableCohort):
    """Sites of their own tables, each asked through bytes, as over a network."""

    names: Sequence[str] = ()

    def __init__(self, frames: Mapping[str, pd.DataFrame], restart_at: int | None = None) -> None:
        self.names = list(frames)
        self.tables = [SiteTable.read(frame) for frame in frames.values()]
        self.restart_at = restart_at
        self.questions = 0

    def gather(self, question: Question, names: Sequence[str], *, each: bool) -> list[Any]:
        self.questions += 1
        sent = pack(write(question))
        answers = [pack(write_answer(table.answer(read_question(unpack(sent))))) for table in self.tables]
        return [read_answer(question, unpack(answer)) for answer in answers]

    def losses(self, spec: ModelSpec) -> Losses:
        self.engine = SitesEngine(self.names, self.tables, spec)
        self.engine.restart_at = self.restart_at
        return self.engine.losses()


def patients(rows: int = 240, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "hospital": np.array(["east", "north", "south"])[rng.integers(0, 3, rows)],
            "age": rng.integers(30, 90, rows).astype(float),
            "pressure": rng.normal(130, 15, rows),
            "stage": np.array(["I", "II", "III"])[rng.integers(0, 3, rows)],
            "smoker": rng.random(rows) < 0.3,
        }
    )
    score = 0.05 * (frame.age - 60) + 0.8 * (frame.stage == "III") - 0.01 * (frame.pressure - 130)
    frame["died"] = (score + rng.logistic(size=rows) > 0).astype(int)
    frame["grade"] = np.array(["a", "b", "c"])[np.clip((score + rng.normal(size=rows)).round(), -1, 1).astype(int) + 1]
    frame["dose"] = 3.0 + score + 0.3 * rng.normal(size=rows)
    frame.loc[rng.random(rows) < 0.1, "pressure"] = np.nan
    frame.loc[rng.random(rows) < 0.05, "stage"] = None
    return frame


def split(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of the hospitals; columns are in another order at each."""
    parts = {str(name): part.drop(columns="hospital") for name, part in frame.groupby("hospital")}
    return {name: part[np.roll(part.columns, i)] for i, (name, part) in enumerate(parts.items())}


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "unpenalised": (FederatedLogisticRegression("none"), "died ~ age + C(stage, ref='II') + pressure", {}),
    "linear": (FederatedLinearRegression("none"), "log(dose + 5) ~ age * stage + smoker - 1", {"missing": "mean"}),
    "l1": (
        FederatedLinearRegression(fpdfp.L1(0.01), standardize=True),
        "dose ~ age*stage + pressure",
        {"missing": "indicator"},
    ),
    "graph": (
        FederatedLogisticRegression(fpdfp.Graph(0.01), standardize=True, run=fpdfp.RunOptions(prefer='bits')),
        "died ~ age + stage + pressure + smoker",
        {"missing": "indicator"},
    ),
    "softmax": (
        FederatedLogisticRegression(fpdfp.ElasticNet(0.01), standardize=True),
        "grade ~ scale(age) + stage",
        {},
    ),
    "group": (
        FederatedLogisticRegression(fpdfp.Group(0.02), standardize=True),
        "died ~ age + stage + pressure",
        {},
    ),
    "fused": (FederatedLinearRegression(fpdfp.Fused(0.01), standardize=True), "dose ~ age + stage", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sites_give_the_bits_of_one_process(name: str) -> None:
    model, formula, options = CASES[name]
    frame = patients()
    here = model.fit(frame, formula, groups="hospital", **options)
    kept = here.coef_.copy(), here.intercept_, here.n_iter_, here.bits_up_, here.bits_down_, here.deviance_
    cohort = SitesCohort(split(frame), restart_at=2)
    assert isinstance(cohort, TableCohort)
    there = model.fit(cohort, formula, **options)
    np.testing.assert_array_equal(kept[0], there.coef_)
    np.testing.assert_array_equal(kept[1], there.intercept_)
    assert kept[2] == there.n_iter_
    assert kept[5] == there.deviance_
    # What a site that was restarted is sent again is upkeep.
    upkeep = there.result_.traffic["upkeep"]
    assert kept[3:5] == (there.bits_up_ - upkeep.up, there.bits_down_ - upkeep.down)
    assert there.result_.status == "converged"


def dense(frame: pd.DataFrame, formula: str) -> Any:
    from formulaic import model_matrix

    return model_matrix(formula, frame.dropna())


def test_coefficients_are_those_of_the_pooled_table() -> None:
    frame = patients()
    matrices = dense(frame, "dose ~ age * stage + smoker")
    wanted = np.linalg.lstsq(matrices.rhs.to_numpy(dtype=float), matrices.lhs.to_numpy(dtype=float)[:, 0], rcond=None)[
        0
    ]
    model = FederatedLinearRegression("none", run=fpdfp.RunOptions(tol=1e-10)).fit(
        frame.dropna(), "dose ~ age * stage + smoker", groups="hospital"
    )
    assert list(model.coefficients_) == list(matrices.rhs.columns)
    np.testing.assert_allclose(list(model.coefficients_.values()), wanted, rtol=1e-5, atol=1e-7)
    assert model.feature_names_in_.tolist() == list(matrices.rhs.columns[1:])


def test_standardised_terms_and_scaled_features_change_nothing() -> None:
    frame = patients().dropna()
    plain = FederatedLinearRegression("none", run=fpdfp.RunOptions(tol=1e-10)).fit(
        frame, "dose ~ age + pressure", groups="hospital"
    )
    scaled = FederatedLinearRegression("none", run=fpdfp.RunOptions(tol=1e-10)).fit(
        frame, "dose ~ scale(age) + center(pressure)", groups="hospital"
    )
    np.testing.assert_allclose(scaled.coef_, plain.coef_ * [frame.age.std(), 1.0], rtol=1e-5)
    np.testing.assert_allclose(scaled.predict(frame), plain.predict(frame), rtol=1e-5)
    other = FederatedLinearRegression("none", standardize=True, run=fpdfp.RunOptions(tol=1e-10)).fit(
        frame, "dose ~ age + pressure"
    )
    np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-4)


def test_prediction_codes_new_rows() -> None:
    frame = patients()
    model = FederatedLogisticRegression("none").fit(frame, "died ~ age + stage + pressure", groups="hospital")
    new = frame.dropna().drop(columns=["died", "grade", "dose", "hospital"])
    chance = model.predict_proba(new)
    score = model.intercept_[0] + sum(
        value * column for value, column in zip(
            model.coef_[0], [new.age, new.stage == "II", new.stage == "III", new.pressure], strict=True
        )
    )  # fmt: skip
    np.testing.assert_allclose(chance[:, 1], 1 / (1 + np.exp(-score)), rtol=1e-10)
    assert set(model.predict(new)) <= {0, 1}
    assert model.score(new, frame.dropna().died) > 0.6
    # One row of one stage is coded as among all others.
    np.testing.assert_allclose(model.predict_proba(new.iloc[[3]]), chance[[3]], rtol=1e-14)
    with pytest.raises(ArgumentError, match="'stage' has the level 'IV', which the model does not know"):
        model.predict(new.assign(stage="IV"))
    with pytest.raises(ArgumentError, match=r"X must have a value.* lack one of .*'pressure'"):
        model.predict(frame)
    with pytest.raises(ArgumentError, match="'pressure' is not in the table"):
        model.predict(new.drop(columns="pressure"))
    for missing in ("mean", "indicator"):
        model.fit(frame, "died ~ age + pressure", groups="hospital", missing=missing)
        filled = model.predict_proba(frame)
        assert np.isfinite(filled).all()
        assert list(model.left_out_.values()) == [0, 0, 0]
    assert model.feature_names_in_.tolist() == ["age", "pressure", "missing(pressure)"]
    row = frame[frame.pressure.isna()].iloc[[0]]
    at_mean = model.predict_proba(row.assign(pressure=frame.pressure.mean()))[0, 1]
    odds = np.log(model.predict_proba(row)[0, 1] / (1 - model.predict_proba(row)[0, 1])) - np.log(
        at_mean / (1 - at_mean)
    )
    np.testing.assert_allclose(odds, model.coefficients_["missing(pressure)"], rtol=1e-6, atol=1e-9)


def test_classes_of_texts_and_a_site_with_one_class() -> None:
    frame = patients().assign(outcome=lambda rows: np.where(rows.died == 1, "dead", "alive"))
    by_text = FederatedLogisticRegression("none").fit(frame, "outcome ~ age", groups="hospital")
    by_number = FederatedLogisticRegression("none").fit(frame, "died ~ age", groups="hospital")
    assert by_text.classes_.tolist() == ["alive", "dead"]
    np.testing.assert_array_equal(by_text.coef_, by_number.coef_)
    compared = FederatedLogisticRegression("none").fit(frame, "I(outcome == 'dead') ~ age", groups="hospital")
    np.testing.assert_array_equal(compared.coef_, by_number.coef_)
    # A site where nobody died.
    frame = frame[(frame.hospital != "south") | (frame.died == 0)]
    here = FederatedLogisticRegression("none").fit(frame, "died ~ age", groups="hospital")
    there = FederatedLogisticRegression("none").fit(SitesCohort(split(frame)), "died ~ age")
    np.testing.assert_array_equal(here.coef_, there.coef_)


def test_groups_of_features_are_terms_by_default() -> None:
    frame = patients().dropna()
    model = FederatedLinearRegression(fpdfp.Group(0.3), standardize=True, run=fpdfp.RunOptions(tol=1e-08))
    model.fit(frame, "dose ~ age + stage + smoker", groups="hospital")
    stages = [value for name, value in model.coefficients_.items() if name.startswith("stage")]
    assert [value == 0 for value in stages] in ([True, True], [False, False])
    model.set_params(penalty=fpdfp.Group(0.3, groups={"stage": "one", "age": "one"})).fit(
        frame, "dose ~ age + stage + smoker"
    )
    with pytest.raises(ArgumentError, match="groups: 'stag' is neither a feature"):
        model.set_params(penalty=fpdfp.Group(groups={"stag": "one"})).fit(frame, "dose ~ age + stage + smoker")


def test_intercept_alone_and_refits() -> None:
    frame = patients()
    model = FederatedLogisticRegression("none", run=fpdfp.RunOptions(tol=1e-12)).fit(
        frame, "died ~ 1", groups="hospital"
    )
    share = frame.died.mean()
    np.testing.assert_allclose(model.coefficients_["Intercept"], np.log(share / (1 - share)), rtol=1e-5)
    X, y = frame[["age"]].to_numpy(), frame.died.to_numpy()
    model.fit(X, y, groups=frame.hospital)
    assert model.predict(X).shape == y.shape
    assert model.summary().formula is None
    assert list(model.coefficients_) == ["Intercept", "x0"]


@pytest.mark.parametrize(
    ("change", "formula", "options", "said"),
    [
        ({}, "died ~ agee", {}, "no site has the column 'agee'; did you mean 'age'"),
        ({}, "stage ~ age", {"regression": True}, "holds texts; regression needs numbers"),
        ({}, "dose ~ age", {}, "classification needs two or more"),
        ({}, "died ~ log(age - 50)", {}, r"the term 'log\(age - 50\)' is not finite in .* at east"),
        ({}, "died ~ age", {"missing": "median"}, "missing must be one of 'drop', 'mean', 'indicator'"),
        ({}, "died ~ age", {"groups": "clinic"}, "'clinic' is not in the table"),
        ({"pressure": np.nan}, "died ~ pressure", {}, "none of the .* rows of east"),
        ({"pressure": np.nan}, "died ~ pressure", {"missing": "mean"}, "'pressure' has no value at any site"),
        ({}, "died ~ log(stage)", {}, "'stage' holds texts"),
        ({}, "died ~ I(age == 'x')", {}, "cannot be compared with 'x'"),
        ({}, "died ~ center(scale(age))", {}, "inside of each other"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], formula: str, options: dict[str, Any], said: str) -> None:
    options = dict(options)
    kind: Any = FederatedLinearRegression if options.pop("regression", False) else FederatedLogisticRegression
    options.setdefault("groups", "hospital")
    with pytest.raises(ArgumentError, match=said):
        kind("none").fit(patients().assign(**change), formula, **options)


def test_summary_shows_what_happened() -> None:
    frame = patients()
    model = FederatedLogisticRegression("none").fit(frame, "died ~ age + stage", groups="hospital")
    text, table = str(model.summary()), model.summary().frame()
    for part in (
        "died ~ age + stage",
        "penalty        none",
        "converged after",
        "left out",
        "stage[T.III]",
        "deviance",
    ):
        assert part in text
    assert list(table.index) == ["Intercept", "age", "stage[T.II]", "stage[T.III]"]
    left = model.summary()
    assert sum(left.rows) + sum(left.left_out) == len(frame)
    assert sum(left.left_out) == frame.stage.isna().sum()
    # The deviance is that of the likelihood.
    used = frame.dropna(subset="stage")
    chance = model.predict_proba(used)[np.arange(len(used)), used.died]
    np.testing.assert_allclose(model.deviance_, -2 * np.log(chance).sum(), rtol=1e-9)
    several = FederatedLogisticRegression(fpdfp.L1(0.01)).fit(frame, "grade ~ smoker", groups="hospital").summary()
    assert several.frame().shape == (2, 3)


def test_the_order_of_sites_can_be_given() -> None:
    frame = patients()
    cohort = LocalCohort(frame, "hospital", order=["south", "east", "north"])
    there = SitesCohort({name: split(frame)[name] for name in cohort.names})
    model = FederatedLogisticRegression(fpdfp.L1(0.01))
    here = model.fit(cohort, "died ~ age + stage").coef_.copy()
    np.testing.assert_array_equal(here, model.fit(there, "died ~ age + stage").coef_)
    with pytest.raises(ArgumentError, match="order must name the sites"):
        LocalCohort(frame, "hospital", order=["south"])
    with pytest.raises(ArgumentError, match="groups must be None"):
        model.fit(cohort, "died ~ age", groups="hospital")


def test_the_method_is_chosen_by_time(rng: np.random.Generator) -> None:
    def choose(
        coefficients: int, clients: int, purpose: Any = "fit", loss: Any = fpdfp.losses.Logistic, **options: Any
    ) -> type:
        owner = np.arange(500 * clients) % clients
        X = rng.standard_normal((len(owner), coefficients))
        losses = loss(X, np.arange(len(owner)) // 2 % 2 * 1.0, clients=owner)
        problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
        return type(choose_method(problem, RunOptions(rounds=10, **options), purpose))

    newton, default = fpdfp.ProximalNewton, fpdfp.ShiftedPDFP
    assert choose(6, 3) is newton
    assert choose(400, 3) is default
    assert choose(30, 200) is default
    assert choose(6, 3, prefer="bits") is default
    assert choose(6, 3, clients_per_round=2) is default
    assert choose(6, 3, compressor=fpdfp.QSGD(5)) is default
    assert choose(6, 3, loss=fpdfp.losses.Softmax) is default  # which knows no Hessians
    # Far apart with a wide connection, or near with a narrow one.
    assert choose(100, 20, prefer=Network(0.3, 1e9, 1e9)) is newton
    assert choose(100, 20, prefer=Network(0.001, 1e6, 1e6)) is default
    assert choose(400, 3, prefer="rounds") is newton
    # Estimates whose standard errors are wanted, and runs of ``solve``.
    assert choose(400, 200, "exact") is newton
    assert choose(1001, 3, "exact") is default
    assert choose(6, 3, "solve") is default  # which nothing would end
    assert choose(6, 3, "solve", stateless=True) is fpdfp.StatelessPDFP


def test_a_run_to_a_tolerance_takes_the_cheapest_method() -> None:
    def choose(coefficients: int, clients: int, loss: Any = fpdfp.losses.LeastSquares, **options: Any) -> str:
        owner = np.arange(50 * clients) % clients
        X = np.random.default_rng(0).standard_normal((len(owner), coefficients))
        problem = fpdfp.Problem(loss(X, np.arange(len(owner)) // 2 % 2 * 1.0, clients=owner), fpdfp.penalties.L1(0.1))
        return name_method(choose_method(problem, RunOptions(rounds=10, **({"tol": 1e-3} | options)), "solve"))

    steps, rounds, logistic = "NewtonSteps", "ShiftedPDFP", fpdfp.losses.Logistic
    # Where f is quadratic the server knows all of it once clients have sent their second moments.
    assert choose(10, 20) == choose(10, 20, clients_per_round=5) == choose(10, 20, prefer="bits") == steps
    assert choose(500, 20) == rounds
    assert choose(6, 10, logistic) == choose(6, 10, logistic, clients_per_round=5) == steps
    assert choose(100, 20, logistic) == rounds
    assert choose(100, 20, logistic, prefer="rounds") == choose(500, 20, prefer="rounds") == steps
    assert choose(10, 20, tol=None) == rounds  # which nothing would end
    # The choice does not depend on the tolerance, so that a looser one ends the same run earlier.
    for tol in (1e-1, 1e-9):
        assert choose(10, 20, tol=tol) == choose(6, 10, logistic, tol=tol) == steps
        assert choose(100, 20, logistic, tol=tol) == rounds


@pytest.mark.parametrize("purpose", ["solve", "fit", "exact"])
def test_losses_without_lipschitz_constants_take_newtons_method(purpose: Any) -> None:
    def choose(coefficients: int, **options: Any) -> Any:
        X, y = np.ones((4, coefficients)), np.arange(4.0)
        losses = fpdfp.losses.GLM(X, y, clients=np.arange(4), family="poisson")
        return choose_method(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1)), RunOptions(rounds=10, **options), purpose)

    assert isinstance(choose(5), fpdfp.ProximalNewton)
    with pytest.raises(ArgumentError, match=r"losses must have Lipschitz continuous gradients, or at most 1,000"):
        choose(1001)
    with pytest.raises(
        ArgumentError, match=r"clients_per_round must be None, .* has no Lipschitz continuous gradients"
    ):
        choose(5, clients_per_round=2)
    assert isinstance(choose(5, stateless=True), fpdfp.ProximalNewton)  # whose clients keep nothing


@pytest.mark.parametrize(("first", "then"), [(None, 1e-6), (1e-3, 1e-6), (1e-3, None)])
def test_a_resumed_run_keeps_its_method(first: float | None, then: float | None, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((200, 6))
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, X[:, 0] > 0.3, np.arange(200) % 4), fpdfp.penalties.L1(0.01))
    given = {"checkpoint": tmp_path / "run", "resume": True}
    begun = fpdfp.solve(problem, rounds=6, tol=first, **given)
    done = fpdfp.solve(problem, rounds=60, tol=then, **given)
    assert begun.method is not None
    assert done.method is not None
    assert name_method(begun.method) == name_method(done.method) == ("ShiftedPDFP" if first is None else "NewtonSteps")
    assert done.certificate.relative_gap is not None
    assert done.certificate.relative_gap <= 1e-6
