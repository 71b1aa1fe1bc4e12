"""Models whose losses end somewhere, weights of classes and intercepts of sites, behind the desks of sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.question import questions
from fpdfp.errors import RefusalError
from fpdfp.federation.guard import TESTS
from fpdfp.federation.policy import Policy
from fpdfp.methods import proximal_newton
from tests.test_cox_estimator import DeskCohort


def study(rows: int = 900, sites: int = 3) -> pd.DataFrame:
    """Outcomes with means that are linear in x, and with effects of hospitals."""
    rng = np.random.default_rng(0)
    place = np.arange(rows) % sites
    table = pd.DataFrame({"x": rng.uniform(size=rows), "z": rng.choice(["u", "v", "w"], rows)})
    table["hospital"] = np.array(list("abcdef"))[place]
    table["events"] = rng.poisson(0.4 + 4.0 * table["x"] ** 2)
    table["healed"] = (rng.random(rows) < np.exp(-0.3 - 1.3 * table["x"])).astype(int)
    level = -1.0 + 0.7 * table["x"] + 0.5 * (table["z"] == "v") + rng.normal(0.0, 0.6, sites)[place]
    table["died"] = rng.random(rows) < 1.0 / (1.0 + np.exp(-level))
    table["visits"] = rng.poisson(np.exp(level))
    table["grade"] = np.array(["a", "b", "c"])[np.digitize(level + rng.logistic(size=rows), [-1.0, 1.0])]
    return table


TABLE = study()


@pytest.fixture
def cohorts(tmp_path: Path) -> Iterator[Any]:
    made: list[DeskCohort] = []

    def make(table: pd.DataFrame, policy: Policy | None = None) -> DeskCohort:
        made.append(DeskCohort(table, tmp_path / str(len(made)), policy))
        return made[-1]

    yield make
    for cohort in made:
        for desk in cohort.desks:
            desk.close()


@pytest.mark.parametrize(
    ("family", "link", "outcome"), [("poisson", "identity", "events"), ("binomial", "log", "healed")]
)
def test_points_outside_the_domain_are_no_alarm(
    family: str, link: str, outcome: str, cohorts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that leave the domain are halved, also after replies enough for sites to tell what is too large."""
    nowhere: list[int] = []
    update = proximal_newton.ProximalNewtonAlgorithm.client_update

    def watch(self: Any, local: Any, message: Any, k: int, draws: Any) -> Any:
        found = update(self, local, message, k, draws)
        nowhere.extend([k] * int((found.reply.value[:, 1] == proximal_newton.NOWHERE).any()))
        return found

    monkeypatch.setattr(proximal_newton.ProximalNewtonAlgorithm, "client_update", watch)
    here = fpdfp.FederatedGLM(family, link).fit(TABLE, f"{outcome} ~ x + C(z)", groups="hospital")
    if family == "poisson":
        assert max(nowhere) >= 3  # sites compare replies with those before from then on
    there = fpdfp.FederatedGLM(family, link).fit(cohorts(TABLE), f"{outcome} ~ x + C(z)")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.n_iter_ == here.n_iter_


MODELS: dict[str, Any] = {
    "balanced": (fpdfp.FederatedLogisticRegression("none", class_weight="balanced"), "died ~ x + C(z)"),
    "by class": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), class_weight={True: 3.0}), "died ~ x + C(z)"),
    "fixed": (fpdfp.FederatedGLM("poisson", site_effects="fixed"), "visits ~ x + C(z)"),
    "fixed, classes": (fpdfp.FederatedMultinomialRegression(site_effects="fixed"), "grade ~ x"),
    "fixed, order": (fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"], site_effects="fixed"), "grade ~ x"),
    "three classes": (fpdfp.FederatedLogisticRegression("none"), "grade ~ x"),
    "overdispersed": (fpdfp.FederatedGLM("negative binomial"), "visits ~ x + C(z)"),
}


@pytest.mark.parametrize("name", MODELS)
def test_sites_with_default_policies_give_the_bits_of_a_table(name: str, cohorts: Any) -> None:
    model, formula = MODELS[name]
    known = model.fit(TABLE, formula, groups="hospital").coef_.copy()
    np.testing.assert_array_equal(model.fit(cohorts(TABLE), formula).coef_, known)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_random_intercepts(family: str, cohorts: Any) -> None:
    """They take several fits: of six sites with 150 rows each, more than the default budget lets each of them tell."""
    table, outcome = study(sites=6), "died" if family == "binomial" else "visits"
    model = fpdfp.FederatedGLM(family, site_effects="random")
    here = model.fit(table, f"{outcome} ~ x + C(z)", groups="hospital")
    known = np.append(here.coef_, here.site_variance_)
    there = model.fit(cohorts(table), f"{outcome} ~ x + C(z)")
    np.testing.assert_array_equal(np.append(there.coef_, there.site_variance_), known)


def test_the_width_of_a_quantile_is_found_at_desks(cohorts: Any) -> None:
    rng = np.random.default_rng(4)
    table = TABLE.assign(cost=1e3 * (1.0 + TABLE["x"] + rng.standard_t(3, len(TABLE))))
    whole = fpdfp.FederatedGLM("quantile").fit(table, "cost ~ x", groups="hospital")
    apart = fpdfp.FederatedGLM("quantile").fit(cohorts(table), "cost ~ x")
    assert apart.family_ == whole.family_
    assert apart.exchanges_ == whole.exchanges_
    assert apart.coefficients_ == pytest.approx(whole.coefficients_, rel=1e-9)


def test_a_site_without_tests_tells_no_errors(cohorts: Any) -> None:
    policy = Policy(kinds=tuple(kind for kind in Policy().kinds if kind != "tests"))
    with pytest.raises(RefusalError, match="does not send what standard errors need"):
        fpdfp.FederatedGLM("poisson").fit(cohorts(TABLE, policy), "visits ~ x")
    assert set(TESTS) <= set(questions())
