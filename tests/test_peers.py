"""What the test suites of vantage6 and of DataSHIELD expect of their own data, through sites behind parcels.

What their sites refuse is tested with the policy of a site (tests/test_policy.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from tests.test_cohort import SitesCohort

PEERS = Path(__file__).parents[2] / "shared" / "peers"
pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="the peers' data are not here")


def read(folder: str, pattern: str, sites: str) -> dict[str, pd.DataFrame]:
    return {site: pd.read_csv(PEERS / folder / pattern.format(site)).rename(columns=str.strip) for site in sites}


#: Family, formula, coefficients, standard errors, deviance, null deviance, rows, iterations, and p values by name.
VANTAGE6: dict[str, tuple[str, str, list[float], list[float], float, float, int, int, dict[str, float]]] = {
    "gaussian": (
        "gaussian", "Volume ~ Girth", [-36.94346, 5.0658564], [2.339522, 0.171981], 1048.6051, 16212.1677, 62, 2, {},
    ),
    "binomial": (
        "binomial", "admit ~ gre + gpa + C(rank, ref=1)",
        [-3.989979, 0.002264, 0.804038, -0.675442, -1.340204, -1.551464],
        [1.139950, 0.00109399, 0.331819, 0.31648, 0.34530, 0.41783],
        458.51749, 499.9765, 400, 4, {"gre": 0.038465, "gpa": 0.01538789},
    ),
    "a comparison": (
        "binomial", "admit ~ gre + gpa + I(rank == 3)", [-5.03136, 0.0024847, 0.8674160, -0.65508],
        [1.092117, 0.0010685, 0.3255194, 0.258222], 473.571245, 499.9765, 400, 4, {},
    ),
    "a sum of columns": (
        "binomial", "admit ~ C(rank) + I(log(gre) + gpa)", [-9.10991938, -0.67615, -1.35706, -1.55692, 0.942246],
        [], 458.8201016, 499.9765, 400, 4, {},
    ),
    "poisson": (
        "poisson", "num_awards ~ C(prog, ref='General') + math", [-5.24712, 1.08385, 0.36980, 0.07015],
        [0.6584, 0.3583, 0.44107, 0.010599], 189.4496, 287.67223, 200, 5, {"math": 3.625e-11},
    ),
}  # fmt: skip


def make(kind: str, family: str) -> Any:
    """A generalised linear model, or the estimator that people know by name."""
    if kind == "glm":
        return fpdfp.FederatedGLM(family, run=fpdfp.RunOptions(tol=1e-08))
    named = {"binomial": fpdfp.FederatedLogisticRegression, "gaussian": fpdfp.FederatedLinearRegression}
    return named[family]("none", run=fpdfp.RunOptions(tol=1e-8))


KINDS = [
    (name, kind)
    for name, case in VANTAGE6.items()
    for kind in ("glm", "named")
    if (kind, case[0]) != ("named", "poisson")
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_vantage6(name: str, kind: str) -> None:
    family, formula, coefficients, errors, deviance, null, rows, iterations, p = VANTAGE6[name]
    cohort = SitesCohort(read("v6-glm-py", f"{family}-{{}}.csv", "abc"))
    model = make(kind, family).fit(cohort, formula)
    summary = model.summary()
    table = model.table()
    np.testing.assert_allclose(table.coefficients, coefficients, rtol=1e-3)
    if errors:
        np.testing.assert_allclose(table.standard_errors, errors, rtol=1e-3)
    assert summary.deviance == pytest.approx(deviance, rel=1e-6)
    assert summary.null_deviance == pytest.approx(null, rel=1e-6)
    assert sum(summary.rows) == rows
    assert model.n_iter_ <= iterations
    for column, value in p.items():
        assert table.p_values[list(table.names).index(column)] == pytest.approx(value, rel=1e-3)
    if family == "gaussian":
        assert summary.dispersion == pytest.approx(17.47675, rel=1e-6)


def test_vantage6_with_a_level_that_one_site_lacks() -> None:
    frames = read("v6-glm-py", "binomial-{}.csv", "abc")
    frames["a"] = frames["a"][frames["a"]["rank"] != 4]
    model = fpdfp.FederatedGLM(family="binomial").fit(SitesCohort(frames), "admit ~ gre + gpa + C(rank, ref=1)")
    summary = model.summary()
    np.testing.assert_allclose(model.table().coefficients, [-3.89, 0.00232, 0.765, -0.677, -1.34, -1.57], rtol=4e-3)
    np.testing.assert_allclose(model.table().standard_errors, [1.15, 0.00113, 0.337, 0.316, 0.345, 0.476], rtol=4e-3)
    assert (round(summary.deviance), round(summary.null_deviance), sum(summary.rows)) == (439, 478, 379)


def test_relative_survival_of_vantage6() -> None:
    """Deaths are Poisson around an expected number that is known of each row plus an excess exp(η).

    In its documents the family "survival" is the generalised linear model of relative survival with Poisson errors: the
    link is log(μ − d*), where d* is the column ``survival_sensor_column`` (the deaths that population tables expect of
    the row), so μ = d* + exp(η), dμ/dη = exp(η), the variance is μ, and the weights are exp(2η)/μ. It starts from
    μ = max(y, d*) + 0.1. The deviance is Poisson's; its null deviance is the one at the mean of the outcome.

    Of y/d*, with weights d* and offsets −log d*, this is the Poisson family with the link log(μ − 1). Here d* is 0 or
    1; instead of 0 stands a number that is small beside exp(η).

    With expected weights iterations converge linearly, and vantage6 stops at the ninth, when the deviance changes by
    less than 1e-8: its coefficients are four digits from the maximum, to which they are compared by :func:`climb` too.
    """
    frames = read("v6-glm-py", "survival-{}.csv", "abc")
    for frame in frames.values():
        frame["expected"] = frame["survival_sensor_column"].clip(lower=1e-12)
    model = fpdfp.FederatedGLM("poisson", link="log(mu-1)", run=fpdfp.RunOptions(tol=1e-14))
    formula = "I(status / expected) ~ C(sex, ref=0) + age + offset(-log(expected))"
    summary = model.fit(SitesCohort(frames), formula, weights="expected").summary()
    np.testing.assert_allclose(model.table().coefficients, [-1.29697, 0.0215628, 0.0102645], rtol=1e-3)
    np.testing.assert_allclose(model.table().standard_errors, [0.31420694, 0.121785, 0.007110791], rtol=1e-3)
    assert summary.deviance == pytest.approx(407.594184, rel=1e-8)
    assert sum(summary.rows) == 1000
    coefficients, errors, deviance = climb(pd.concat(frames.values()), 60)
    np.testing.assert_allclose(model.table().coefficients, coefficients, rtol=1e-6)
    np.testing.assert_allclose(model.table().standard_errors, errors, rtol=1e-6)
    assert summary.deviance == pytest.approx(deviance, rel=1e-9)
    # The figures of vantage6 are those of its ninth iteration, to all their digits.
    coefficients, errors, deviance = climb(pd.concat(frames.values()), 9)
    np.testing.assert_allclose(coefficients, [-1.29697, 0.0215628, 0.0102645], rtol=3e-6)
    np.testing.assert_allclose(errors, [0.31420694, 0.121785, 0.007110791], rtol=1e-6)
    assert deviance == pytest.approx(407.594184, rel=3e-9)


def climb(table: pd.DataFrame, iterations: int) -> tuple[Any, Any, float]:
    """The iterations of the documents, on all rows; errors are from the weights of the last one."""
    X = np.column_stack([np.ones(len(table)), table["sex"] == 1, table["age"]]).astype(float)
    y, d = table["status"].to_numpy(float), table["survival_sensor_column"].to_numpy(float)
    eta = np.log(np.maximum(y, d) + 0.1 - d)
    for _ in range(iterations):
        excess, mu = np.exp(eta), d + np.exp(eta)
        weights = excess**2 / mu
        information = X.T @ (weights[:, None] * X)
        x = np.linalg.solve(information, X.T @ (weights * (eta + (y - mu) / excess)))
        eta = X @ x
    mu = d + np.exp(eta)
    deviance = 2.0 * float((np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / mu), 0.0) - (y - mu)).sum())
    return x, np.sqrt(np.diag(np.linalg.inv(information))), deviance


@pytest.mark.parametrize("kind", ["glm", "named"])
def test_cnsim(kind: str) -> None:
    cohort = SitesCohort(read("cnsim", "CNSIM{}.csv", "123"))
    formula = "DIS_DIAB ~ GENDER * PM_BMI_CONTINUOUS + LAB_HDL"
    model = make(kind, "binomial").fit(cohort, formula)
    summary = model.summary()
    assert isinstance(model.result_.method, fpdfp.ProximalNewton)
    assert (sum(summary.rows), sum(summary.left_out)) == (7485, 1894)
    assert sum(summary.rows) + sum(summary.left_out) == 9379
    assert round(summary.deviance, 3) == 1036.031
    assert summary.df_residual == 7480
    assert model.n_iter_ <= 9
    linear = make(kind, "gaussian").fit(cohort, "LAB_TSC ~ LAB_TRIG")
    summary = linear.summary()
    assert list(summary.rows) == [1801, 2526, 3473]
    assert (sum(summary.rows), summary.df_residual) == (7800, 7798)
    assert round(summary.deviance, 2) == 8936.32
    assert linear.n_iter_ <= 3


@pytest.mark.parametrize(
    ("site", "rows", "aic", "dispersion", "digits"),
    [
        ("1", 1801, 5460.549, 1.211496, (1e-3, 1e-6)),
        ("2", 2526, 7490.0, 1.13414, (1.0, 1e-5)),
        ("3", 3473, 10256.0, 1.12, (1.0, 1e-2)),
    ],
)
def test_each_study_of_cnsim_by_itself(
    site: str, rows: int, aic: float, dispersion: float, digits: tuple[float, float]
) -> None:
    cohort = SitesCohort(read("cnsim", "CNSIM{}.csv", site))
    summary = fpdfp.FederatedGLM(family="gaussian").fit(cohort, "LAB_TSC ~ LAB_TRIG").summary()
    assert sum(summary.rows) == rows
    assert summary.aic == pytest.approx(aic, abs=digits[0], rel=0)
    assert summary.dispersion == pytest.approx(dispersion, abs=digits[1], rel=0)
