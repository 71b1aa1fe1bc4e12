"""Sections of reports: what results beside a run are written as, and what the page has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
import fpdfp.report
from fpdfp import inference
from fpdfp._sections import FILES, SECTIONS, Section, plain
from fpdfp.engines.loop import Iterates
from fpdfp.errors import ArgumentError, StorageError
from fpdfp.inference.heterogeneity import HeterogeneityTable
from fpdfp.report.describe import describe
from fpdfp.runs import Recorder, load
from fpdfp.selection.curves import Curve

EVIL = "<img src=x onerror=alert(1)></script>"


def draw(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"site": rng.choice(["east", EVIL, "south"], rows), "stage": rng.choice(["I", "II"], rows)})
    for name in ("age", "dose"):
        table[name] = rng.normal(size=rows)
    table["died"] = (0.8 * table.age - 0.6 * table.dose + rng.logistic(size=rows) > 0).astype(int)
    return table


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fpdfp.FederatedGLM("binomial").fit(draw(), "died ~ age + dose + stage", groups="site")


@pytest.fixture(scope="module")
def chosen() -> Any:
    estimator = fpdfp.FederatedLogisticRegressionCV(
        fpdfp.ElasticNet(l1_ratio=[0.5, 1.0]), cv=fpdfp.CrossValidation(3, alphas=12, rule="1se")
    )
    return estimator.fit(draw(), "died ~ age + dose + stage", groups="site")


def test_the_folder_of_a_fit_has_its_table_and_its_sites(fitted: Any, tmp_path: Path) -> None:
    folder = fitted.write_run(tmp_path / "fit", name="a fit", level=0.9, ratios=True)
    run = load(folder)
    assert (run.info["name"], run.info["status"], run.info["rounds"]) == ("a fit", "converged", fitted.n_iter_)
    assert run.history.rows == fitted.history_.rows
    assert [one["samples"] for one in run.info["clients"]] == list(fitted.rows_.values())
    found = describe(folder)
    assert found["trouble"] == []
    table, said = fitted.summary(level=0.9).table, found["summary"]
    assert (said["names"], said["level"], said["of"]) == (list(table.names), 0.9, 4)
    for column in said["columns"]:
        np.testing.assert_array_equal(np.array(column["values"], dtype=float), table.columns()[column["name"]])
    facts = dict(said["facts"])
    assert facts["deviance"].startswith(f"{fitted.deviance_:.7g} on ")
    assert facts["family"] == "binomial, link logit"
    assert said["notes"] == ["standard errors of the model (expected information); z"]
    sites = {one["name"]: one for one in found["heterogeneity"]["coefficients"]}
    one = fitted.heterogeneity("dose", level=0.9, exponentiate=True)
    assert (sites["dose"]["q"], sites["dose"]["p"]) == (one.test.statistic, one.test.p)
    assert sites["dose"]["i_squared"] == one.i_squared
    assert [site[0] for site in sites["dose"]["sites"]] == list(fitted.rows_)
    np.testing.assert_allclose(sites["dose"]["sites"][0][1], np.exp(one.estimates[0]), rtol=1e-5)
    np.testing.assert_allclose(sites["dose"]["random"][0], np.exp(one.random.estimate), rtol=1e-5)
    np.testing.assert_allclose(found["model"]["values"][0], fitted.coef_, rtol=1e-12)
    with pytest.raises(ArgumentError, match=r"^folder must be a folder: the model was not fitted by a federation"):
        fitted.write_run()
    # Once more, the sections are renewed and the run stays.
    before = (folder / "run.json").read_bytes()
    fitted.write_run(folder)
    assert (folder / "run.json").read_bytes() == before
    assert describe(folder)["summary"]["level"] == 0.95


def test_penalised_fits_have_the_sentence_and_no_errors(chosen: Any, tmp_path: Path) -> None:
    found = describe(chosen.write_run(tmp_path / "run"))
    assert found["heterogeneity"] is None
    said = found["summary"]
    assert said["refused"]
    assert (
        dict(said["facts"])["penalty"] == f"elasticnet, weight={chosen.alpha_:g}, l1_ratio={chosen.penalty_.l1_ratio:g}"
    )
    assert said["notes"] == [inference.PENALISED]
    assert [column["name"] for column in said["columns"]] == ["coefficient"]
    assert dict(zip(said["names"], said["columns"][0]["values"], strict=True)) == chosen.coefficients_


def test_paths_and_curves_of_a_cross_validation(chosen: Any, tmp_path: Path) -> None:
    found = describe(chosen.write_run(tmp_path / "run"))
    path, curves = found["path"], found["cross_validation"]
    np.testing.assert_array_equal(path["alphas"], chosen.path_.alphas)
    for line in path["lines"]:
        place = chosen.path_.names.index(line["name"])
        np.testing.assert_allclose(line["values"], chosen.path_.coef[:, place], rtol=1e-5, atol=1e-300)
    assert path["nonzero"] == np.count_nonzero(chosen.path_.coef, axis=1).tolist()
    assert path["chosen"] == curves["alpha"] == chosen.alpha_
    assert (curves["folds"], curves["rule"], curves["greater_is_better"]) == (3, "1se", False)
    assert [curve["name"] for curve in curves["curves"]] == ["l1_ratio=0.5", "l1_ratio=1"]
    (best,) = [curve for curve in curves["curves"] if curve["chosen"]]
    assert best["name"] == f"l1_ratio={chosen.penalty_.l1_ratio:g}"
    assert (best["alpha_min"], best["alpha_1se"]) == (chosen.alpha_min_, chosen.alpha_1se_)
    np.testing.assert_allclose(best["mean"], chosen.mean_score_, rtol=1e-5)
    np.testing.assert_allclose(best["error"], chosen.score_error_, rtol=1e-5)


def test_curves_are_tables_and_pictures(chosen: Any) -> None:
    frame = chosen.curves_.to_frame()
    assert list(frame.columns) == ["l1_ratio", "alpha", "mean", "error"]
    assert len(frame) == 24
    best = frame[frame.l1_ratio == chosen.penalty_.l1_ratio]
    np.testing.assert_array_equal(best["mean"], chosen.mean_score_)
    ax = chosen.curves_.plot()
    marked = sorted(line.get_xdata()[0] for line in ax.get_lines() if line.get_linestyle() in ("--", ":"))
    assert marked == sorted([chosen.alpha_min_, chosen.alpha_1se_])
    assert ax.get_legend_handles_labels()[1] == ["l1_ratio=0.5", "l1_ratio=1"]
    assert f"{chosen.alpha_:.4g}" in repr(chosen.curves_)
    assert any(line.get_xdata()[0] == chosen.alpha_ for line in chosen.path_.plot().get_lines())


def test_large_models_do_not_bloat_the_page(tmp_path: Path) -> None:
    weights, d = 300, 2000
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(weights, d)) * (np.arange(d) % 10 == 0)
    alphas = np.geomspace(1, 1e-3, weights)
    found = fpdfp.Path(
        alphas, coef, np.zeros(weights), np.zeros(weights), np.zeros(weights), ("converged",) * weights, 9, 1, 1,
        tuple(f"a rather long name of a feature {j}" for j in range(d)), chosen=float(alphas[101]),
    )  # fmt: skip
    file = found.save(tmp_path)
    assert file.stat().st_size < 200_000
    said = json.loads(file.read_text())
    assert (len(said["names"]), said["of"], said["weights"]) == (40, d, weights)
    assert len(said["alphas"]) <= 202
    assert found.chosen in said["alphas"]
    largest = np.argsort(-np.abs(coef).max(axis=0))[:40]
    assert said["names"] == [found.names[j] for j in largest]
    table = inference.Table([f"x{j}" for j in range(d)], coef[0], np.eye(d))
    given = {"sites": ["a"], "rows": [9], "left_out": [0], "deviance": 1.0, "penalty": "none", "status": "converged"}
    summary = inference.Summary(
        title="GLM", formula=None, coefficients={}, rounds=1, bits_up=0, bits_down=0, table=table, **given
    )
    said = summary.to_dict()
    assert (len(said["names"]), said["of"]) == (400, d)
    kept = {int(name[1:]) for name in said["names"]}
    assert min(abs(coef[0, j]) for j in kept) >= max(abs(coef[0, j]) for j in set(range(d)) - kept)
    tables = {f"site {k}": inference.Table(table.names[:300], coef[k, :300], np.eye(300)) for k in range(4)}
    written = HeterogeneityTable.of_tables(tables).to_dict()
    assert (len(written["coefficients"]), written["of"]) == (100, 300)


def test_classes_have_a_column_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    y = np.array(["a", "b", "c"])[rng.integers(0, 3, 200)]
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(X, y, groups=np.arange(200) % 2)
    found = describe(model.write_run(tmp_path / "run"))
    assert [column["name"] for column in found["summary"]["columns"]] == ["a", "b", "c"]
    assert found["summary"]["names"] == ["Intercept", "x0", "x1"]
    assert found["summary"]["columns"][1]["values"] == list(model.coefficients_["b"].values())
    assert found["model"]["classes"] == ["a", "b", "c"]
    assert found["trouble"] == []


@pytest.mark.parametrize("kind", ["ordinal", "multinomial", "cox"])
def test_other_models_have_a_folder_too(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, site = rng.normal(size=(240, 2)), np.arange(240) % 2
    model: Any
    if kind == "cox":
        time = rng.exponential(np.exp(-X[:, 0]))
        model = fpdfp.FederatedCoxRegression(baseline=False).fit(X, np.stack([time, np.ones(240)], axis=1), groups=site)
    else:
        estimator = fpdfp.FederatedOrdinalRegression if kind == "ordinal" else fpdfp.FederatedMultinomialRegression
        model = estimator().fit(X, np.digitize(X[:, 0] + rng.logistic(size=240), [-1, 1]), groups=site)
    found = describe(model.write_run(tmp_path / "run"))
    assert found["trouble"] == []
    assert found["summary"]["names"] == list(model.table().names)
    assert found["heterogeneity"]["of"] == len(model.table().names)


def test_heterogeneity_of_all_coefficients_is_a_table(fitted: Any) -> None:
    found = fitted.heterogeneity_table()
    frame = found.frame()
    assert list(frame.index) == ["Intercept", "age", "dose", "stage[T.II]"]
    one = fitted.heterogeneity("age")
    assert tuple(frame.loc["age"]) == (3, one.test.statistic, 2, one.test.p, one.i_squared, one.tau_squared)
    assert "<table>" in found._repr_html_()
    lonely = inference.Table(["x"], np.zeros(1), np.eye(1))
    with pytest.raises(ArgumentError, match=r"^tables must be of at least two sites"):
        HeterogeneityTable.of_tables({"a": lonely, "b": None})


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize(
    "damaged", ["{", "[]", '{"names": 3, "columns": {"a": [1]}, "curves": [1, {}], "sites": [[1]]}']
)
def test_damaged_sections_are_trouble_or_empty(name: str, damaged: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "name": "n", "status": "finished"}))
    (tmp_path / f"{name}.json").write_text(damaged)
    found = describe(tmp_path)
    assert (found[name] is None) == bool(found["trouble"])
    fpdfp.report.write(tmp_path, tmp_path / "report.html")


def test_a_new_run_in_a_folder_has_no_sections_of_the_old_one(fitted: Any, tmp_path: Path) -> None:
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(2), [1.0, 2.0]), fpdfp.penalties.L1(0.1))
    for file in FILES:
        (tmp_path / file).write_text("{}")
    Recorder(tmp_path, problem).solve(rounds=2)
    assert not any((tmp_path / file).exists() for file in FILES)
    # Results are added to the folder of a simulation by their own save.
    fitted.summary().save(tmp_path)
    fpdfp.path(problem, alphas=5).save(tmp_path)
    found = describe(tmp_path)
    assert found["summary"]["title"] == "FederatedGLM"
    assert len(found["path"]["alphas"]) == 5
    assert found["path"]["chosen"] is None


def test_a_folder_that_cannot_be_written(fitted: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        fitted.summary().save(tmp_path / "file")


def test_results_of_runs_are_written_once(tmp_path: Path) -> None:
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(2), [1.0, 2.0]), fpdfp.penalties.L1(0.1))
    result = fpdfp.solve(problem, rounds=3)
    fpdfp.runs.write_result(tmp_path / "a", result, name="once")
    np.testing.assert_array_equal(load(tmp_path / "a").x, result.x)
    with pytest.raises(FileExistsError, match="already holds a run"):
        fpdfp.runs.write_result(tmp_path / "a", result)


def test_curves_without_a_best_score_are_kept(tmp_path: Path) -> None:
    nothing = Curve(np.full(3, np.nan), np.full(3, np.nan), 0, 0)
    curves = fpdfp.selection.Curves("auc", True, "min", 5, ({},), (np.geomspace(1, 0.1, 3),), (nothing,), 0)
    said = json.loads(curves.save(tmp_path).read_text())
    assert said["curves"][0]["mean"] == [None] * 3


def test_all_sections_have_a_writer() -> None:
    assert sorted(kind.section for kind in Section.__subclasses__()) == sorted(SECTIONS)
    assert plain({"a": np.array([1.0, np.inf])}) == {"a": [1.0, None]}


def test_iterates_are_kept_ever_more_rarely() -> None:
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(2), [4.0, 2.0]), fpdfp.penalties.L1(0.1))
    kept = Iterates()
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=300, callbacks=[kept])
    rounds = [one.round for one in kept.kept]
    assert rounds[:13] == list(range(13))
    assert len(rounds) < 60
    assert rounds[-1] == 300
    assert kept.kept[-1].bits_up == result.traffic.before_the_end.up - result.traffic["evaluation"].up
    np.testing.assert_array_equal(kept.kept[-1].x, result.x)
    again = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5, callbacks=[kept])
    assert kept.kept[-1].round == 305
    np.testing.assert_array_equal(kept.kept[-1].x, again.x)


def test_many_large_iterates_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fpdfp.engines.loop.ROOM", 40)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(4), np.ones(4)), fpdfp.penalties.L1(0.1))
    kept = Iterates()
    fpdfp.solve(problem, fpdfp.FPDFP(), rounds=300, callbacks=[kept])
    rounds = [one.round for one in kept.kept]
    assert rounds[0] == 0
    assert rounds[-1] == 300
    assert 4 <= len(rounds) <= 11
    assert rounds == sorted(set(rounds))
