"""What is fitted and counted at the level ``sums`` equals what plain sites give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import fpdfp
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.federation.masked import from_sums, merge, split, to_sums
from tests.test_protected import COLUMNS, Sites, patients

pytest.importorskip("cryptography")
RUN = fpdfp.RunOptions(rounds=400, tol=1e-12, progress=False)
MORE: dict[str, dict[str, Any]] = COLUMNS | {
    "time": {"type": "number"},
    "event": {"type": "truth"},
    "arm": {"type": "category", "levels": ["new", "old"]},
    "exposure": {"type": "number"},
    "weight": {"type": "number"},
    "good": {"type": "integer"},
    "bad": {"type": "integer"},
    "ward": {"type": "category", "levels": ["a", "b"]},
}
TIMES = [5.0, 10.0, 20.0, 40.0, 500.0]


def tables(rows: int = 300) -> dict[str, pd.DataFrame]:
    found = patients(rows)
    for place, table in enumerate(found.values()):
        rng = np.random.default_rng(place)
        table["time"] = np.ceil(4 * rng.exponential(20 / np.exp(0.02 * (table["age"] - 60)))) / 4
        table["event"], table["arm"] = rng.integers(0, 2, rows), rng.choice(["new", "old"], rows)
        table["exposure"], table["weight"] = np.log(rng.uniform(1, 20, rows)), rng.uniform(0.5, 2, rows)
        trials = rng.integers(4, 9, rows)
        table["good"], table["ward"] = rng.binomial(trials, 0.3), rng.choice(["a", "b"], rows)
        table["bad"] = trials - table["good"]
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, pd.DataFrame]:
    return tables()


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, plain: dict[str, pd.DataFrame]) -> Any:
    folder = tmp_path_factory.mktemp("sites")
    with contextlib.closing(Sites(folder, plain, level="sums", columns_of_the_table=MORE, analyses=1000)) as sites:
        yield sites


def coefficients(model: Any) -> list[float]:
    return list(model.coefficients_.values())


def errors(model: Any, kind: str = "model") -> Any:
    return model.table(errors=kind).frame()["standard error"].to_numpy()


def multinomial(penalty: Any = "none", reference: Any = "I") -> Any:
    return fpdfp.FederatedMultinomialRegression(reference=reference, penalty=penalty, run=RUN)


def ordinal() -> Any:
    return fpdfp.FederatedOrdinalRegression(order=["I", "II", "III"], penalty="none", run=RUN)


CASES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "logistic": (
        lambda s: coefficients(fpdfp.FederatedLogisticRegression("none", run=RUN).fit(s, "died ~ age + C(stage)")), 1e-9
    ),
    "l1 with weights": (
        lambda s: coefficients(
            fpdfp.FederatedGLM("binomial", penalty=fpdfp.L1(0.01), run=RUN).fit(s, "died ~ age", weights="weight")
        ),
        1e-6,
    ),
    "l1": (
        lambda s: coefficients(
            fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), run=RUN).fit(s, "died ~ age + months + C(stage)")
        ),
        1e-7,
    ),
    "mcp": (
        lambda s: coefficients(fpdfp.FederatedLogisticRegression("mcp", run=RUN).fit(s, "died ~ age + months")), 1e-7
    ),
    "linear": (lambda s: coefficients(fpdfp.FederatedLinearRegression("ridge", run=RUN).fit(s, "months ~ age")), 1e-9),
    "gamma": (lambda s: coefficients(fpdfp.FederatedGLM("gamma", "log", run=RUN).fit(s, "months ~ age")), 1e-9),
    "standardised": (
        lambda s: coefficients(
            fpdfp.FederatedGLM("binomial", standardize=True, run=RUN).fit(s, "died ~ scale(age) + C(stage)")
        ),
        1e-9,
    ),
    "robust errors": (
        lambda s: errors(fpdfp.FederatedGLM("poisson", run=RUN).fit(s, "visits ~ age"), "HC0"), 1e-9
    ),
    "shifted method": (
        lambda s: coefficients(
            fpdfp.FederatedLogisticRegression(
                fpdfp.L1(0.01), method=fpdfp.ShiftedPDFP(preconditioner="auto"), run=RUN
            ).fit(s, "died ~ age + months + C(stage)")
        ),
        1e-5,
    ),
    "Cox": (
        lambda s: coefficients(fpdfp.FederatedCoxRegression(run=RUN).fit(s, "Surv(time, event) ~ age + arm")), 1e-9
    ),
    "Cox errors": (
        lambda s: errors(fpdfp.FederatedCoxRegression(run=RUN).fit(s, "Surv(time, event) ~ age + arm")), 1e-9
    ),
    "Kaplan–Meier": (
        lambda s: fpdfp.survival_curves(s, "Surv(time, event) ~ arm", times=TIMES)["new"].survival, 1e-12
    ),
    "log-rank": (lambda s: [fpdfp.log_rank_test(s, "Surv(time, event) ~ arm").statistic], 1e-9),
    "log-rank of counts": (
        lambda s: [fpdfp.log_rank_test(s, "Surv(time, event) ~ arm", stratify=False, times=TIMES).statistic], 1e-9
    ),
    "table one": (lambda s: fpdfp.table_one(s, ["age", "months", "stage"], by="arm").columns[0].deviations, 1e-10),  # type: ignore[union-attr]
    "levels of table one": (lambda s: fpdfp.table_one(s, ["age", "stage"], by="arm").columns[1].counts.ravel(), 0),  # type: ignore[union-attr]
    "histogram": (lambda s: fpdfp.histogram(s, "age", edges=[50, 60, 70]).counts.ravel(), 0),
    "correlations": (lambda s: fpdfp.correlations(s, ["age", "months"]).matrix.ravel(), 1e-10),
    "offset": (
        lambda s: coefficients(fpdfp.FederatedGLM("poisson", run=RUN).fit(s, "visits ~ age + offset(exposure)")), 1e-10
    ),
    "weights": (
        lambda s: coefficients(fpdfp.FederatedGLM("binomial", run=RUN).fit(s, "died ~ age", weights="weight")), 1e-10
    ),
    "trials": (
        lambda s: coefficients(fpdfp.FederatedGLM("binomial", run=RUN).fit(s, "cbind(good, bad) ~ age")), 1e-10
    ),
    "multinomial": (lambda s: multinomial().fit(s, "stage ~ age + months").coef_.ravel(), 1e-10),
    "multinomial errors": (lambda s: errors(multinomial().fit(s, "stage ~ age + months")), 1e-10),
    "multinomial with l1": (
        lambda s: multinomial(fpdfp.L1(0.01), None).fit(s, "stage ~ age + months").coef_.ravel(), 1e-9
    ),
    "ordinal": (lambda s: ordinal().fit(s, "stage ~ age + months").coef_.ravel(), 1e-10),
    "ordinal errors": (lambda s: errors(ordinal().fit(s, "stage ~ age + months")), 1e-10),
    "Firth": (lambda s: coefficients(fpdfp.FederatedLogisticRegression("firth", run=RUN).fit(s, "died ~ age")), 1e-10),
    "cross-validation": (
        lambda s: coefficients(
            fpdfp.FederatedLogisticRegressionCV("l1", cv=fpdfp.CrossValidation(folds=3, alphas=5), run=RUN).fit(
                s, "died ~ age + months + C(stage)"
            )
        ),
        1e-6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_plain_sites(masked: Sites, plain: dict[str, pd.DataFrame], name: str) -> None:
    call, tolerance = CASES[name]
    np.testing.assert_allclose(call(masked), call(plain), rtol=tolerance, atol=tolerance)


def test_a_path_is_that_of_plain_sites(masked: Sites, plain: dict[str, pd.DataFrame]) -> None:
    model = fpdfp.FederatedLogisticRegression("l1")
    found, expected = (model.path(s, "died ~ age + months + C(stage)", alphas=6, tol=1e-10) for s in (masked, plain))
    np.testing.assert_allclose(found.coef, expected.coef, atol=5e-5)


@pytest.mark.parametrize(
    ("model", "formula"),
    [
        (fpdfp.FederatedGLM("binomial", run=RUN), "died ~ age + C(stage)"),
        (fpdfp.FederatedGLM("binomial", run=RUN), "cbind(good, bad) ~ age"),
        (fpdfp.FederatedGLM("poisson", run=RUN), "visits ~ age + offset(exposure)"),
        (fpdfp.FederatedGLM("gaussian", run=RUN), "months ~ age"),
        (multinomial(), "stage ~ age"),
        (ordinal(), "stage ~ age"),
        (fpdfp.FederatedCoxRegression(run=RUN), "Surv(time, event) ~ age"),
    ],
)
def test_evaluation_is_that_of_plain_sites(
    masked: Sites, plain: dict[str, pd.DataFrame], model: Any, formula: str, tmp_path: Path
) -> None:
    """Areas under curves are counts in cells that differ between sites, and absolute errors are blurred at a site."""
    import fpdfp.report

    fitted = model.fit(masked, formula)
    found = fitted.evaluate(masked)
    run = fitted.write_run(tmp_path / "run")
    found.save(run)
    assert fpdfp.report.write(run, tmp_path / "report.html").exists()
    expected = model.fit(plain, formula).evaluate(plain)
    assert len(found.by_site) == 1
    for name, one in expected.overall.items():
        if name == "auc":
            assert name not in found.overall
            assert "withholds auc" in str(found)
            continue
        tolerance = 1e-3 if name == "mae" else 1e-7
        assert found.overall[name].value == pytest.approx(one.value, rel=tolerance, abs=1e-7), name
        if name != "concordance":
            assert found.overall[name].lower == pytest.approx(one.lower, rel=tolerance, abs=1e-7, nan_ok=True), name


def test_intervals_by_profiles_are_those_of_plain_sites(masked: Sites, plain: dict[str, pd.DataFrame]) -> None:
    model = fpdfp.FederatedGLM("binomial", run=RUN)
    first, second = (model.fit(s, "died ~ age").profile_intervals(s).frame() for s in (masked, plain))
    np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: fpdfp.FederatedGLM("binomial", site_effects="fixed").fit(s, "died ~ age"), "site_effects must be"),
        (lambda s: fpdfp.FederatedGLM("binomial").fit(s, "died ~ age", missing="mean"), "missing values are dropped"),
        (
            lambda s: fpdfp.FederatedCoxRegression().fit(s, "Surv(time, event) ~ age + strata(ward)"),
            "no strata and clusters at this level: one may belong to a single site",
        ),
        (
            lambda s: fpdfp.FederatedGLM("binomial").fit(s, "died ~ age + cluster(ward)"),
            "no strata and clusters at this level",
        ),
        (
            lambda s: fpdfp.FederatedGLM("binomial").fit(
                s, "died ~ age",
                weights=fpdfp.InverseProbability(fpdfp.FederatedGLM("binomial").fit(s, "died ~ age")),
            ),
            "no inverse probabilities",
        ),
        (
            lambda s: fpdfp.FederatedLogisticRegression("ridge", class_weight="balanced").fit(s, "died ~ age"),
            "weights of classes",
        ),
        (lambda s: fpdfp.FederatedGLM("poisson").fit(s, "visits ~ age + offset(age)"), "a combination of columns"),
        (lambda s: fpdfp.fit_sites(fpdfp.FederatedGLM("binomial"), s, "died ~ age"), "members of a masked sum"),
        (lambda s: fpdfp.survival_curves(s, "Surv(time, event) ~ 1"), "rows are counted at given times"),
        (
            lambda s: fpdfp.FederatedGLM("poisson", run=fpdfp.RunOptions(compressor=fpdfp.QSGD(5))).fit(
                s, "visits ~ age"
            ),
            "compressor must be None",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_with_the_reason(masked: Sites, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((ArgumentError, RefusalError), match=message):
        call(masked)


def test_times_and_edges_with_few_rows_between_are_refused(plain: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    with contextlib.closing(Sites(tmp_path, plain, level="sums", columns_of_the_table=MORE)) as sites:
        with pytest.raises(RefusalError, match="counted where 3 of this site or none are in each cell"):
            fpdfp.survival_curves(sites, "Surv(time, event) ~ 1", times=np.arange(0.25, 30, 0.25))
        with pytest.raises(RefusalError, match="a cell has few rows of this site"):
            fpdfp.histogram(sites, "age", edges=np.arange(20, 110))


def test_what_is_counted_is_what_is_sent(masked: Sites) -> None:
    """A round of Newton's method: 128 bits from each of three sites for each number, and a flag of large ones."""
    masked.seen.clear()
    model = fpdfp.FederatedGLM("binomial", inference=False, run=RUN).fit(masked, "died ~ age")
    sent = [len(reply["words"]) for _, reply in masked.seen if "words" in reply]
    rounds = [length for length in sent if length == 16 * (1 + 1 + 1 + 2 + 3)]
    assert len(rounds) >= 3 * (model.n_iter_ - 1)
    assert model.result_.traffic["rounds"].up % (3 * 128) == 0


def test_a_run_is_continued_from_a_checkpoint(masked: Sites, plain: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    found = []
    for number, source in enumerate((masked, plain)):
        for rounds in (2, 30):
            file = tmp_path / f"{number}.npz"
            run = fpdfp.RunOptions(rounds=rounds, tol=1e-12, checkpoint=file, resume=True, progress=False)
            model = fpdfp.FederatedGLM("binomial", inference=False, run=run)
            warns = pytest.warns(ConvergenceWarning, match="may not have")
            with contextlib.nullcontext() if rounds == 30 else warns:
                model.fit(source, "died ~ age")
        found.append(coefficients(model))
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_forms_that_do_not_belong_to_their_numbers() -> None:
    tree = {"rows": 3, "levels": [np.array([1, 2]), np.array([[0.5]])]}
    form, numbers = split(tree)
    back = merge(form, np.concatenate(numbers))
    assert back["rows"] == 3
    assert back["levels"][0].tolist() == [1, 2]
    for bad in ("x", ["<f8", [9]], ["<f8", [-1]], ["O", [1]], {"a": "i", "b": "i", "c": "i", "d": "i", "e": "i"}):
        with pytest.raises(fpdfp.errors.MessageError):
            merge(bad, np.concatenate(numbers))
    with pytest.raises(RefusalError, match="more than numbers"):
        split({"name": "north"})


def test_moments_add_up_and_come_back() -> None:
    from fpdfp.datasets import Moments
    from fpdfp.federation.questions import MomentsQuestion, dump

    rng = np.random.default_rng(0)
    parts = [Moments.of(rng.normal(100, 3, (20, 3))) for _ in range(3)]
    question = MomentsQuestion.__new__(MomentsQuestion)
    sums = [to_sums(question, dump(one)) for one in parts]
    total = from_sums(question, {name: sum(one[name] for one in sums) for name in sums[0]})
    whole = parts[0] + parts[1] + parts[2]
    np.testing.assert_allclose(total["mean"], whole.mean, rtol=1e-13)
    np.testing.assert_allclose(total["scatter"], whole.scatter, rtol=1e-8, atol=1e-8)
