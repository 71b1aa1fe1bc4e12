"""Models evaluated at sites: against scikit-learn and textbook refits; sites give the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.base
from scipy import stats
from sklearn import metrics

import fpdfp
from fpdfp import scores
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.scores import Evaluation
from fpdfp.scores.counts import PredictorCounts, ResidualCounts
from fpdfp.scores.evaluation import Measure
from tests.test_cohort import SitesCohort, patients, split
from tests.test_cox_estimator import TABLE as TIMES
from tests.textbook_glm import FAMILIES, fit


def rows(seed: int = 0, count: int = 900) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    y = (X @ [1.0, -0.5, 0.0] - 0.5 + rng.logistic(size=count) > 0).astype(int)
    return X, y, np.array(["east", "north", "south"])[rng.integers(0, 3, count)]


def check_calibration(
    found: dict[str, Measure], family: str, eta: Array, y: Array, weights: Array | None = None
) -> None:
    """Compare with the regression of outcomes on the linear predictor, by textbook code on all rows."""
    X, w, known = (
        np.stack([np.ones(len(eta)), eta], axis=1),
        np.ones(len(y)) if weights is None else weights,
        FAMILIES[family],
    )
    x = fit(family, X, y.astype(float), w)
    m, d = known.mean(X @ x), known.slope(X @ x)
    inverse = np.linalg.inv(X.T @ (X * (w * d**2 / known.variance(m))[:, None]))
    dispersion = (w * (y - m) ** 2 / known.variance(m)).sum() / (len(y) - 2) if known.has_dispersion else 1.0
    errors = np.sqrt(dispersion * np.diag(inverse))
    z = stats.t(len(y) - 2).isf(0.025) if known.has_dispersion else stats.norm.isf(0.025)
    for place, name in enumerate(("calibration intercept", "calibration slope")):
        one = found[name]
        assert one.value == pytest.approx(x[place], rel=1e-7, abs=1e-8)
        assert one.standard_error == pytest.approx(errors[place], rel=1e-6)
        limits = (x[place] - z * errors[place], x[place] + z * errors[place])
        assert (one.lower, one.upper) == pytest.approx(limits, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes(weighted: bool) -> None:
    X, y, site = rows()
    train, test = np.arange(len(y)) < 400, np.arange(len(y)) >= 400
    weights = np.random.default_rng(1).exponential(size=len(y)) if weighted else np.ones(len(y))
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(X[train], y[train], groups=site[train])
    given = {"sample_weight": weights[test]} if weighted else {}
    found = model.evaluate(X[test], y[test], groups=site[test], **given)
    assert isinstance(found, Evaluation)
    assert found.exchanges <= 6
    parts = [(test, found.overall)] + [(test & (site == name), one) for name, one in found.by_site.items()]
    for own, said in parts:
        eta, w = model.decision_function(X[own]), weights[own]
        chance = 1 / (1 + np.exp(-eta))
        exact = metrics.roc_auc_score(y[own], eta, sample_weight=w)
        assert abs(said["auc"].value - exact) <= said["auc"].bound + 1e-12 < 1e-3
        assert said["accuracy"].value == pytest.approx(metrics.accuracy_score(y[own], chance > 0.5, sample_weight=w))
        assert said["brier"].value == pytest.approx(metrics.brier_score_loss(y[own], chance, sample_weight=w))
        assert said["deviance"].value == pytest.approx(2 * metrics.log_loss(y[own], chance, sample_weight=w))
        check_calibration(said, "binomial", eta, y[own], w)
        for one in said.values():
            assert one.lower < one.value < one.upper
    assert sum(found.rows.values()) == test.sum()
    assert found.roc is not None
    assert found.roc.area == found.overall["auc"].value
    assert set(found.site_roc) == set(found.site_calibration) == {"east", "north", "south"}
    assert found.calibration_table is not None
    assert found.calibration_table.rows.sum() == test.sum()
    assert found.residuals is not None
    assert found.residuals.counts.sum() == test.sum()


def test_deviance_residuals_are_in_their_cells() -> None:
    X, y, site = rows(2)
    model = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site)
    found = model.evaluate(X, y, groups=site)
    x = fit("binomial", np.concatenate([X, np.ones((len(y), 1))], axis=1), y.astype(float))
    chance = 1 / (1 + np.exp(-X @ x[:-1] - x[-1]))
    exact = np.where(y == 1, 1, -1) * np.sqrt(-2 * np.log(np.where(y == 1, chance, 1 - chance)))
    assert found.residuals is not None
    for name, (lower, upper) in found.residuals.summary().items():
        assert lower - 1e-6 <= np.quantile(exact, float(name[:-2]) / 100, method="inverted_cdf") <= upper + 1e-6
    # A fit is calibrated on its own rows.
    assert found.overall["calibration slope"].value == pytest.approx(1.0, abs=1e-5)
    assert found.overall["calibration intercept"].value == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("family", ["poisson", "gaussian"])
def test_numbers_with_offsets_and_weights(family: str) -> None:
    X, _, site = rows(3, 500)
    rng = np.random.default_rng(4)
    shift, weights = 0.3 * rng.normal(size=500), rng.exponential(size=500)
    mean = X @ [0.4, 0.2, 0.0] + shift
    y = rng.poisson(np.exp(mean)).astype(float) if family == "poisson" else rng.normal(mean)
    model = fpdfp.FederatedGLM(family).fit(X[:200], y[:200], groups=site[:200], offset=shift[:200])
    own = slice(200, None)
    found = model.evaluate(X[own], y[own], groups=site[own], offset=shift[own], sample_weight=weights[own])
    said, mu = found.overall, model.predict(X[own], offset=shift[own])
    kind = metrics.mean_poisson_deviance if family == "poisson" else metrics.mean_squared_error
    assert said["deviance"].value == pytest.approx(kind(y[own], mu, sample_weight=weights[own]))
    assert said["mse"].value == pytest.approx(metrics.mean_squared_error(y[own], mu, sample_weight=weights[own]))
    assert said["mae"].value == pytest.approx(metrics.mean_absolute_error(y[own], mu, sample_weight=weights[own]))
    explained = model.score(X[own], y[own], weights[own], offset=shift[own])
    assert said["explained deviance"].value == pytest.approx(explained)
    eta = model.decision_function(X[own], offset=shift[own])
    check_calibration(said, family, eta, y[own], weights[own])
    assert found.roc is None
    assert "explained deviance" in str(found)


def test_linear_regression_and_one_site() -> None:
    X, _, _ = rows(5, 300)
    y = X @ [1.0, 0.0, 2.0] + np.random.default_rng(5).normal(size=300)
    model = fpdfp.FederatedLinearRegression(fpdfp.L1(0.1)).fit(X, y)
    found = model.evaluate(X, y)
    assert found.overall["explained deviance"].value == pytest.approx(model.score(X, y))
    check_calibration(found.overall, "gaussian", model.predict(X), y)
    assert "site  rows" not in str(found)


@pytest.mark.parametrize("kind", ["softmax", "multinomial", "ordinal", "probit"])
def test_several_classes(kind: str) -> None:
    X, _, site = rows(6, 400)
    rng = np.random.default_rng(7)
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + rng.logistic(size=400), [-1.0, 1.0])]
    model: Any = {
        "softmax": fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)),
        "multinomial": fpdfp.FederatedMultinomialRegression(reference="mid"),
        "ordinal": fpdfp.FederatedOrdinalRegression(order=["low", "mid", "top"]),
        "probit": fpdfp.FederatedOrdinalRegression("probit", order=["low", "mid", "top"]),
    }[kind]
    model.fit(X[:200], y[:200], groups=site[:200])
    found = model.evaluate(X[200:], y[200:], groups=site[200:])
    chances, real = model.predict_proba(X[200:]), y[200:]
    assert list(model.classes_) == ["low", "mid", "top"]
    said = found.overall
    assert said["deviance"].value == pytest.approx(2 * metrics.log_loss(real, chances))
    assert said["accuracy"].value == pytest.approx(metrics.accuracy_score(real, model.predict(X[200:])))
    wanted = ((chances - (real[:, None] == model.classes_)) ** 2).sum(axis=1).mean()
    assert said["brier"].value == pytest.approx(wanted)
    exact = metrics.roc_auc_score(real, chances, multi_class="ovr")
    assert abs(said["auc"].value - exact) <= said["auc"].bound + 1e-12 < 1e-3
    assert found.calibration is None
    if kind == "softmax":
        with pytest.raises(ArgumentError, match="offset must be None for more than two classes"):
            model.evaluate(X[200:], y[200:], offset=1.0)
    else:
        effects = sklearn.base.clone(model).set_params(site_effects="fixed").fit(X, y, groups=site)
        shift = 0.1 * X[:, 1]
        wanted = metrics.log_loss(y, effects.predict_proba(X, site=site, offset=shift))
        found = effects.evaluate(X, y, groups=site, offset=shift)
        assert found.overall["deviance"].value == pytest.approx(2 * wanted)
    with pytest.raises(ArgumentError, match="y must be classes that the model knows, low, mid, top, got 'high'"):
        model.evaluate(X[:1], ["high"])


def test_times_of_events() -> None:
    frame = TIMES.dropna()
    X, site = frame[["age"]].to_numpy(float), frame.hospital.to_numpy()
    y = frame[["time", "died"]].to_numpy(float)
    half = np.arange(len(frame)) % 2 == 0
    model = fpdfp.FederatedCoxRegression().fit(X[half], y[half], groups=site[half])
    found = model.evaluate(X[~half], y[~half], groups=site[~half])
    strata = site[~half]
    known = model.concordance(X[~half], y[~half], strata=strata)
    assert found.overall["concordance"].value == pytest.approx(known.index)
    assert found.overall["concordance"].standard_error == pytest.approx(known.error)
    again = fpdfp.FederatedCoxRegression().fit(model.predict(X[~half])[:, None], y[~half], groups=strata)
    assert found.overall["calibration slope"].value == pytest.approx(again.coef_[0], rel=1e-6)
    error = again.table().standard_errors[0]
    assert found.overall["calibration slope"].standard_error == pytest.approx(error, rel=1e-6)
    assert "calibration intercept" not in found.overall


CASES: dict[str, tuple[Any, str]] = {
    "logistic": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), standardize=True), "died ~ age + stage + pressure"),
    "no intercept": (fpdfp.FederatedLogisticRegression("none"), "died ~ 0 + age + pressure"),
    "weights": (fpdfp.FederatedLogisticRegression("none"), "died ~ age + stage"),
    "softmax": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), standardize=True), "grade ~ age + stage"),
    "multinomial": (fpdfp.FederatedMultinomialRegression(), "grade ~ age"),
    "ordinal": (fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"], standardize=True), "grade ~ age + stage"),
    "shifted": (fpdfp.FederatedMultinomialRegression(), "grade ~ age + offset(pressure / 500)"),
    "multinomial effects": (fpdfp.FederatedMultinomialRegression(site_effects="fixed"), "grade ~ age"),
    "ordinal effects": (
        fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"], site_effects="fixed"),
        "grade ~ age + stage",
    ),
    "linear": (fpdfp.FederatedLinearRegression("none"), "dose ~ age * stage"),
    "glm": (fpdfp.FederatedGLM("gamma", "log"), "I(dose + 5) ~ age + offset(pressure / 1000)"),
    "cloglog": (fpdfp.FederatedGLM("binomial", "cloglog"), "died ~ age"),
    "fixed": (fpdfp.FederatedGLM("binomial", site_effects="fixed"), "died ~ age"),
    "random": (fpdfp.FederatedGLM("gaussian", site_effects="random"), "dose ~ age"),
}


class NamedSites(SitesCohort):
    """Sites that know their names, as those of a federation do."""

    def gather(self, question: Any, names: Any, *, each: bool) -> list[Any]:
        from fpdfp.cohorts.serialization import pack, unpack
        from fpdfp.federation.questions import read_answer, read_question, write, write_answer

        sent = pack(write(question))
        return [
            read_answer(question, unpack(pack(write_answer(table.answer(read_question(unpack(sent)), site=name)))))
            for name, table in zip(self.names, self.tables, strict=True)
        ]


@pytest.mark.parametrize("case", CASES)
def test_sites_give_the_bits_of_one_process(case: str, tmp_path: Path) -> None:
    estimator, formula = CASES[case]
    options = {"weights": "age / 60"} if case == "weights" else {}
    train, test = patients(300), patients(240, seed=1)
    model = estimator.fit(train, formula, groups="hospital", **options)
    here = model.evaluate(test, groups="hospital")
    there = model.evaluate(NamedSites(split(test)))
    pd.testing.assert_frame_equal(here.to_frame(), there.to_frame(), check_exact=True)
    assert (here.bits_up, here.bits_down, here.exchanges) == (there.bits_up, there.bits_down, there.exchanges)
    assert str(here) == str(there)
    # Over all rows the measures are those that the estimator itself has of predictions.
    columns = [name for name in ("pressure", "stage") if name in formula]
    used = test.dropna(subset=columns) if columns else test
    if case in ("logistic", "no intercept", "softmax"):
        column = "grade" if case == "softmax" else "died"
        assert here.overall["accuracy"].value == pytest.approx((model.predict(used) == used[column]).mean())
    if case in ("fixed", "random"):
        guess = model.predict(used, site=used.hospital)
        wanted = ((guess - used["died" if case == "fixed" else "dose"]) ** 2).mean()
        assert here.overall["brier" if case == "fixed" else "mse"].value == pytest.approx(wanted)
    if case.endswith("effects") or case == "shifted":
        given = {} if case == "shifted" else {"site": used.hospital}
        loss = metrics.log_loss(used.grade, model.predict_proba(used, **given), labels=model.classes_)
        assert here.overall["deviance"].value == pytest.approx(2 * loss)
    if case == "weights":
        left = (model.predict_proba(used)[:, 1] - used.died) ** 2
        assert here.overall["brier"].value == pytest.approx(np.average(left, weights=used.age))
    model.save(tmp_path / "model.json")
    again = fpdfp.load_model(tmp_path / "model.json").evaluate(test, groups="hospital")
    pd.testing.assert_frame_equal(here.to_frame(), again.to_frame(), check_exact=True)


def test_sites_that_had_no_part_in_the_fit() -> None:
    table = patients(400)
    west = patients(100, seed=2).assign(hospital="west")
    model = fpdfp.FederatedLogisticRegression("none").fit(table, "died ~ age + stage", groups="hospital")
    found = model.evaluate(west, groups="hospital")
    assert list(found.by_site) == ["west"]
    # Without a column of sites they are one.
    assert model.evaluate(west.drop(columns="hospital")).overall == found.overall
    fixed = fpdfp.FederatedGLM("binomial", site_effects="fixed").fit(table, "died ~ age", groups="hospital")
    with pytest.raises(ArgumentError, match=r"X must be of sites that had part in the fit.*got west \(site_effects"):
        fixed.evaluate(west, groups="hospital")
    random = fpdfp.FederatedGLM("binomial", site_effects="random").fit(table, "died ~ age", groups="hospital")
    guess = random.predict(west)
    assert random.evaluate(west, groups="hospital").overall["brier"].value == pytest.approx(
        ((guess - west.died) ** 2).mean()
    )
    X, y, site = rows(8, 300)
    fixed.fit(X, y, groups=site)
    found = fixed.evaluate(X, y, groups=site)
    assert found.overall["brier"].value == pytest.approx(((fixed.predict(X, site=site) - y) ** 2).mean())


def test_hazards_of_periods() -> None:
    model = fpdfp.FederatedGLM("binomial", "cloglog", standardize=True)
    edges = [0.0, 5.0, 12.0, 30.0]
    model.fit(TIMES, "Surv(time, died) ~ age", groups="hospital", periods=edges)
    found = model.evaluate(TIMES, groups="hospital")
    assert found.overall["calibration slope"].value == pytest.approx(1.0, abs=1e-4)
    assert found.overall["deviance"].value * sum(found.rows.values()) == pytest.approx(model.deviance_, rel=1e-6)


def test_outcomes_of_one_class_at_a_site() -> None:
    X, y, site = rows(9, 300)
    model = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site)
    kept = (site != "east") | (y == 1)
    found = model.evaluate(X[kept], y[kept], groups=site[kept])
    assert np.isnan(found.by_site["east"]["auc"].value)
    assert np.isnan(found.by_site["east"]["calibration slope"].value)
    assert "–" in str(found)
    eta = model.decision_function(X[kept])
    assert abs(found.overall["auc"].value - metrics.roc_auc_score(y[kept], eta)) <= found.overall["auc"].bound
    check_calibration(found.overall, "binomial", eta, y[kept])
    alone = model.evaluate(X[y == 1], y[y == 1])
    assert np.isnan(alone.overall["auc"].value)
    assert any("no calibration" in line for line in alone.notes)


def test_predictions_that_are_all_the_same() -> None:
    X, y, site = rows(10, 200)
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(100.0)).fit(X, y, groups=site)
    assert not model.coef_.any()
    found = model.evaluate(X, y, groups=site)
    assert found.overall["auc"].value == 0.5
    assert any("no calibration" in line for line in found.notes)


def test_what_is_shown() -> None:
    X, y, site = rows(11, 400)
    model = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site)
    found = model.evaluate(X, y, groups=site, level=0.9)
    text = str(found)
    for said in ("all sites", "95 %", "auc", "calibration slope", "north", "400 rows at 3 sites", "exchanges", "± 0.0"):
        assert said in text
    assert "<table>" in found._repr_html_()
    frame = found.to_frame()
    assert list(frame.columns) == ["site", "measure", "value", "lower", "upper", "bound", "standard_error"]
    assert len(frame) == 4 * 6
    narrow = model.evaluate(X, y, groups=site, level=0.5).overall["brier"]
    assert narrow.upper < found.overall["brier"].upper
    import json

    tree = found.to_dict()
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert len(tree["roc"]["all sites"]["true"]) <= 200


def test_pictures(tmp_path: Path) -> None:
    X, y, site = rows(13, 300)
    found = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site).evaluate(X, y, groups=site)
    figure = scores.plot_roc(found, tmp_path / "roc.png")
    assert (tmp_path / "roc.png").stat().st_size > 1000
    assert len(figure.axes[0].lines) == 5, "the diagonal, three sites, and all"
    figure = scores.plot_calibration(found)
    assert "slope 1.00" in figure.axes[0].get_title("left")
    for measure in found.overall:
        figure = scores.plot_sites(found, measure, tmp_path / "sites.svg")
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert labels == ["east", "north", "south", "all sites"]
    with pytest.raises(ArgumentError, match="measure must be one of 'auc', 'accuracy'"):
        scores.plot_sites(found, "f1")
    counts = fpdfp.FederatedGLM("poisson").fit(X, y, groups=site).evaluate(X, y, groups=site)
    scores.plot_sites(counts, "explained deviance")
    with pytest.raises(ArgumentError, match="must have a ROC curve"):
        scores.plot_roc(counts)
    with pytest.raises(ArgumentError, match="must have a table of calibration"):
        scores.plot_calibration(counts)


def test_arguments_are_checked() -> None:
    X, y, site = rows(12, 120)
    model = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"y": None}, "y must be the outcomes of rows"),
        ({"y": y[:3]}, "y must have an outcome for each of the 120 rows"),
        ({"groups": site[:3]}, "groups must name the site of each of the 120 rows"),
        ({"sample_weight": -y}, "sample_weight must be at least 0"),
        ({"strata": site}, "strata must be None for models of other outcomes"),
        ({"level": 95}, "level must be between 0 and 1"),
        ({"X": SitesCohort(split(patients(60)))}, "X must be rows"),
    ]
    for change, said in cases:
        with pytest.raises(ArgumentError, match=said):
            model.evaluate(**({"X": X, "y": y, "groups": site} | change))
    formula = fpdfp.FederatedLogisticRegression("none").fit(patients(), "died ~ age", groups="hospital")
    with pytest.raises(ArgumentError, match="y must be None for a model with a formula"):
        formula.evaluate(patients(), "died ~ age", groups="hospital")
    with pytest.raises(ArgumentError, match="groups must be None for a federation"):
        formula.evaluate(SitesCohort(split(patients())), groups="hospital")
    counts = fpdfp.FederatedGLM("poisson").fit(X, y, groups=site)
    with pytest.raises(ArgumentError, match="y must be"):
        counts.evaluate(X, y - 5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [2, 3, 10])
def test_small_counts_are_put_together(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 400))
    eta = rng.normal(size=n) * rng.exponential(3.0)
    y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    weights = rng.exponential(size=n) if seed % 2 else None
    w = np.ones(n) if weights is None else weights
    exact = metrics.roc_auc_score(y, eta, sample_weight=w)
    from fpdfp.inference.roc import find_area

    total: Any = 0
    for own in (slice(0, n // 2), slice(n // 2, None)):
        part = None if weights is None else weights[own]
        made = PredictorCounts.of(eta[own], y[own], part, 1 / (1 + np.exp(-eta[own])))
        try:
            wide = made.coarsen(least)
        except RefusalError:
            return
        for counts in (wide.events, wide.others):
            assert ((counts == 0) | (counts >= least)).all()
        assert wide.histogram().weight.sum() == pytest.approx(w[own].sum())
        assert wide.histogram().predicted.sum() == pytest.approx(float(made.predicted.sum()), rel=1e-6)
        total = wide.histogram() + total if total else wide.histogram()
        residuals = ResidualCounts.of(eta[own]).coarsen(least)
        assert (residuals.counts >= least).all()
        assert residuals.counts.sum() == len(eta[own])
    area, error, _ = find_area(total)
    assert abs(area - exact) <= error
