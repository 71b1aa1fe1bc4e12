"""The first table of a study: as R describes public data, at sites with default policies, and closed to single rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fpdfp
from fpdfp.cohorts.question import questions
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.guard import KINDS
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import (
    DescriptionQuestion,
    HistogramQuestion,
    Histograms,
    SchemaQuestion,
    SumsQuestion,
    read_answer,
    write_answer,
)
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design
from fpdfp.formula.tree import Coded, Column
from fpdfp.inference.table_one import LevelRows, NumberRow, _standardise
from tests import r_cases
from tests.test_cox_estimator import DeskCohort

STUDY = r_cases.cases("study")
CASES = [name for name in STUDY if name.startswith("table one")]


def ask(source: Any, case: dict[str, Any], **options: Any) -> Any:
    columns = [*case["numbers"], *(f"C({name})" for name in case["factors"])]
    return fpdfp.table_one(source, columns, by=case["by"], **options)


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_that_of_r(name: str) -> None:
    case, table = STUDY[name], r_cases.study(STUDY[name]["data"])
    found, r = ask(table, case, groups=np.arange(len(table)) % 3, quartiles=True), case["r"]
    assert list(map(str, found.groups)) == r["groups"]
    assert found.rows.tolist() == r["rows"]
    by_name = {one.name: one for one in found.columns}
    for column, told in r["numbers"].items():
        row = by_name[column]
        assert isinstance(row, NumberRow)
        assert row.known.tolist() == told["known"]
        np.testing.assert_allclose(row.means, told["means"], rtol=1e-12)
        np.testing.assert_allclose(row.deviations, told["deviations"], rtol=1e-12)
        assert row.test()[1] == pytest.approx(told["p"], rel=1e-8)
        assert row.ranks is not None
        assert row.ranks.least * (1 - 1e-3) <= told["ranks"] <= row.ranks.largest * (1 + 1e-3) + 1e-9
        # Whole numbers have a cell each where there are not too many, as there are of bwt and time.
        whole = column in ("age", "lwt", "karno", "Days")
        statistic, exact = stats.chi2.isf([row.ranks.p, told["ranks"]], len(r["groups"]) - 1)
        assert statistic == pytest.approx(exact, rel=1e-9 if whole else 0.02)
        if len(r["groups"]) == 2:
            assert row.ranks.name == "Wilcoxon"
            assert row.ranks.p == pytest.approx(told["wilcoxon"], rel=1e-9 if whole else 0.05)
        else:
            assert row.ranks.name == "Kruskal-Wallis"
        assert row.quartiles is not None
        for exact, bounds, deviation in zip(told["quartiles"], row.quartiles, row.deviations, strict=True):
            for value, (low, high) in zip(exact, bounds, strict=True):
                assert low <= value <= high
                assert high - low <= deviation  # at most a tenth of the pooled one, with no policy
    for column, told in r["factors"].items():
        row = by_name[column]
        assert isinstance(row, LevelRows)
        np.testing.assert_array_equal(row.counts, told["counts"])
        assert row.test()[1] == pytest.approx(told["p"], rel=1e-8)
    assert list(found.frame().columns)[: len(found.groups)] == list(map(str, found.groups))
    assert found.to_latex().startswith(r"\begin{tabular}")
    assert found.to_csv().startswith(case["by"])
    assert "<table>" in found._repr_html_()


def test_standardised_differences() -> None:
    """Of a factor with two levels as of its indicator, and by hand."""
    p, q = 0.3, 0.5
    two = LevelRows("arm", ("a", "b"), np.array([[70.0, 50.0], [30.0, 50.0]]))
    assert two.difference() == pytest.approx(abs(p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2), rel=1e-12)
    row = NumberRow("age", np.array([10, 10, 0]), np.array([1.0, 3.0, 0.0]), np.array([2.0, 2.0, np.nan]))
    assert row.difference() == pytest.approx(1.0)
    assert row.test()[0] == "Welch's t"
    assert _standardise(1.0, 0.0) == np.inf


def test_correlations_are_those_of_r() -> None:
    table, r = r_cases.study("birthwt"), STUDY["correlation"]["r"]
    found = fpdfp.correlations(table, ["age", "lwt", "bwt"], groups=np.arange(len(table)) % 3)
    assert found.matrix[0, 1] == pytest.approx(r["r"]["cor"], rel=1e-10)
    assert found.p_value("age", "lwt") == pytest.approx(r["p"], rel=1e-8)
    np.testing.assert_allclose(found.interval("lwt", "age"), r["ends"], rtol=1e-8)
    (axes,) = found.plot().axes
    assert [one.get_text() for one in axes.get_yticklabels()] == ["age", "lwt", "bwt"]
    assert [one.get_text() for one in axes.texts][:2] == ["1.00", f"{r['r']['cor']:.2f}"]
    with pytest.raises(ArgumentError, match="at least two columns of numbers"):
        fpdfp.correlations(table, ["age", "race"])


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


def study(rows: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"age": rng.normal(60, 9, rows).round(1), "dose": rng.gamma(2.0, 3.0, rows)})
    table["hospital"] = np.array(list("abc"))[np.arange(rows) % 3]
    table["arm"], table["stage"] = rng.choice(["new", "old"], rows), rng.choice(["I", "II", "III"], rows)
    table.loc[rng.choice(rows, 60, replace=False), "dose"] = np.nan
    return table


def test_sites_with_default_policies_give_the_same_table(cohorts: Any) -> None:
    table = study()
    columns: list[str] = ["age", "dose", "stage"]
    whole = fpdfp.table_one(table, columns, by="arm", groups="hospital")
    apart = fpdfp.table_one(cohorts(table), columns, by="arm")
    assert str(apart) == str(whole)
    told = fpdfp.table_one(cohorts(table), columns, by="arm", quartiles=True)
    for row in told.columns[:2]:
        assert isinstance(row, NumberRow)
        for g, arm in enumerate(told.groups):
            values = table.loc[table["arm"] == arm, row.name]
            exact = np.nanquantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
            assert row.quartiles is not None
            assert all(low <= value <= high for value, (low, high) in zip(exact, row.quartiles[g], strict=True))
    drawn = fpdfp.histogram(cohorts(table), "age", by="arm")
    assert drawn.counts.sum() == pytest.approx(len(table))
    assert len(drawn.plot().axes[0].patches) == 2


def test_few_rows_are_not_told(cohorts: Any) -> None:
    table = study()
    one = table.assign(rare=(table.index == 4) * 1.0, stage=np.where(table.index == 5, "IV", table["stage"]))
    found = fpdfp.table_one(cohorts(one), ["age", "rare"], by="arm")
    assert set(found.withheld) == {"rare"}
    assert "rare: without the rows of 1 site, which" in str(found)
    # Levels of fewer rows than a cell are not even named, and a table that asks for them has none of that site.
    asked = Coded("stage", "stage", ("I", "II", "III", "IV"))
    answers = cohorts(one).ask_each(DescriptionQuestion(("age",), (asked,))).answers
    assert [one.withheld.tolist() for one in answers] == [[0, 0], [0, 0], [0, 1]]
    assert not answers[2].counts[0].any()
    few = table.assign(arm=np.where(table.index < 9, "none", table["arm"]))
    with pytest.raises(RefusalError, match="groups of at least 10 rows only"):
        fpdfp.table_one(cohorts(few), ["age"], by="C(arm, levels=['new', 'old', 'none'])")
    # A group of all rows but two tells the two, with the table of all rows.
    gap = table.assign(arm=np.where(table.index.isin([0, 3]), None, table["arm"]))
    with pytest.raises(RefusalError, match="no value in fewer than 3 rows"):
        fpdfp.table_one(cohorts(gap), ["age"], by="arm")
    with pytest.raises(RefusalError, match="does not allow the column 'age'"):
        cohorts(table, Policy(never=("age",))).ask(DescriptionQuestion(("age",)))


def test_a_search_by_edges_finds_no_row(cohorts: Any) -> None:
    """Counts below two edges differ by the rows between them."""
    cohort = cohorts(study())
    cohort.ask(HistogramQuestion(("age",), [np.arange(30.0, 90.0)]))
    cohort.ask(HistogramQuestion(("age",), [np.arange(30.0, 90.0)], Coded("arm", "arm", ("new", "old"))))
    with pytest.raises(RefusalError, match="edges, that were asked for first"):
        cohort.ask(HistogramQuestion(("age",), [np.arange(30.0, 90.0) + 0.05]))


def test_a_histogram_is_one_of_all_sites(cohorts: Any) -> None:
    cohort, question = (
        cohorts(study(), Policy(single_sites=False)),
        HistogramQuestion(("age",), [np.arange(30.0, 90.0)]),
    )
    with pytest.raises(RefusalError, match="results by themselves"):
        cohort.ask_each(question)
    assert cohort.ask(question).asked == len(cohort.names)


def test_everything_but_the_schema_is_a_result_of_a_site_that_is_asked_alone(cohorts: Any) -> None:
    assert [name for name, one in questions().items() if one.plain] == ["schema"]
    closed = cohorts(study(), Policy(single_sites=False))
    columns: list[str] = ["age", "stage"]
    assert str(fpdfp.table_one(closed, columns, "arm")) == str(fpdfp.table_one(study(), columns, "arm", "hospital"))
    assert fpdfp.FederatedLinearRegression().fit(closed, "dose ~ age + stage").rows_ == {"a": 183, "b": 181, "c": 176}
    assert len(closed.ask_each(SchemaQuestion()).answers) == 3
    alone = cohorts(study().query("hospital == 'a'"), Policy(single_sites=False))
    for asked in (DescriptionQuestion(("age",)), SumsQuestion(Design(Column("age"), (), ()))):
        for one in (alone.ask, closed.ask_each):
            with pytest.raises(RefusalError, match="results by themselves"):
                one(asked)


def test_coarse_counts_hide_fewer_rows_than_a_cell() -> None:
    rng = np.random.default_rng(0)
    for fewest in (2, 3, 7):
        below = np.sort(rng.integers(0, 60, (2, 40)), axis=1)
        coarse = Histograms([below], [below], np.array([[60, 60]])).coarsen(fewest)
        for low, high, row in zip(coarse.least[0], coarse.most[0], below, strict=True):
            assert (low <= row).all()
            assert (row <= high).all()
            told = row[low == high]
            gaps = np.diff(np.concatenate([[0], told, [60]]))
            assert ((gaps == 0) | (gaps >= fewest)).all()


def test_forged_answers_and_questions_are_refused() -> None:
    table = SiteTable.read(study())
    question = DescriptionQuestion(("age",), (Coded("stage", "stage", ("I", "II", "III")),))
    tree = write_answer(table.answer(question))
    assert read_answer(question, tree).rows.tolist() == [600]
    changes: list[dict[str, Any]] = [
        {"rows": np.array([10])}, {"means": np.array([[np.nan]])}, {"known": np.zeros((2, 1), dtype=np.int64)},
        {"scatters": np.array([[-1.0]])}, {"counts": []}, {"ungrouped": -1}, {"withheld": np.array([2, 0])},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(MessageError):
            read_answer(question, tree | change)
    asked = HistogramQuestion(("age",), [np.array([50.0, 60.0])])
    tree = write_answer(table.answer(asked))
    counts: list[dict[str, Any]] = [{"totals": np.array([[5]])}, {"least": [np.array([[9, 3]])]}, {"most": []}]
    for change in counts:
        with pytest.raises(MessageError):
            read_answer(asked, tree | change)
    wrong: list[Any] = [[np.array([2.0, 1.0])], [np.array([np.nan])], [], [np.arange(900.0)]]
    for edges in wrong:
        with pytest.raises(MessageError):
            HistogramQuestion(("age",), edges)


def test_all_questions_about_tables_have_a_kind() -> None:
    """A question without a kind of the policy would be answered by nobody, and one of another by mistake."""
    assert {name for name, one in questions().items() if one.reveals.of == "table"} <= set(KINDS)


@pytest.mark.parametrize(
    ("columns", "by", "says"),
    [
        ("age", None, "must be a list of names"),
        ([], None, "must be a list of names"),
        (["age", "age"], None, "must be different columns"),
        (["age"], "age", "must be different columns"),
        (["log(age)"], None, "must be names of columns, or C"),
        (["agee"], None, "no site has the column 'agee'; did you mean 'age'"),
        (["C(dose)"], None, "no site lists levels"),
    ],
)
def test_what_cannot_be_described_is_named(columns: Any, by: str | None, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        fpdfp.table_one(study(), columns, by=by)
