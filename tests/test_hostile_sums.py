"""A hostile hub, a hostile analyst and colluding sites at the level ``sums``, who know the code.

Each try would give numbers of one site, or of one row; next to some stands a control that shows what a rule or a mask
keeps back.
"""

from __future__ import annotations

import contextlib
import copy
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.keys import Asker
from fpdfp.federation.masked import About, MaskedCohort, Members, digest
from fpdfp.federation.policy import Policy
from fpdfp.federation.protected import LEAST_SHARE, OVERFLOW
from fpdfp.federation.questions import dump
from fpdfp.privacy.fixed_point import WIDE, from_wide
from tests.test_masked_cohort import MORE, TIMES, tables
from tests.test_protected import COLUMNS, NAMES, Sites, masked_glm

pytest.importorskip("cryptography")
ANN = Asker("ann", "analyst", "ab" * 32, "study")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Sites]]:
    with contextlib.ExitStack() as stack:

        def begin(found: Any = None, **policy: Any) -> Sites:
            options = {"level": "sums", "columns_of_the_table": MORE} | policy
            sites = Sites(tmp_path / secrets.token_hex(4), found or tables(), **options)
            stack.callback(sites.close)
            return sites

        yield begin


def record(sites: Sites, call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return what sites were asked during a call."""
    asked: list[dict[str, Any]] = []

    def watch(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if not reply:
            asked.append(tree)
        return tree

    sites.hub = watch
    with contextlib.suppress(RefusalError):
        call()
    sites.hub = lambda name, tree, reply: tree
    sums = [tree for tree in asked if tree["kind"] == "sum"]
    for tree in sums:  # each site has statements of its own from the others
        same = [one for one in sums if one["ask"] is tree["ask"]]
        tree["all"] = {one["site"]: one["statements"] for one in same}
    return asked


def sums_of(asked: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [tree for tree in asked if tree["site"] == name and tree["kind"] == "sum"]


def point_of(sites: Sites, formula: str, family: str = "binomial") -> dict[str, Any]:
    """Return the question about the last point, of all features, that a fit asks."""
    asked = sums_of(record(sites, lambda: masked_glm(sites, formula, family)), "north")
    points = [
        tree for tree in asked
        if "features" not in tree["ask"] and tree["ask"].get("question", {}).get("sums_at", {}).get("x") is not None
    ]  # fmt: skip
    return points[-1]


def ask(sites: Sites, name: str, tree: dict[str, Any]) -> dict[str, Any]:
    own = {key: one for key, one in tree.items() if key != "all"} | {"site": name}
    own |= {"statements": tree["all"][name]} if name in tree.get("all", {}) else {}
    said: dict[str, Any] = unpack(pack(sites.guards[name].answer(unpack(pack(own)), ANN)))
    return said


def numbers_of(replies: list[dict[str, Any]]) -> np.ndarray:
    words = [np.frombuffer(one["reply"]["words"], "<u8").reshape(-1, 2) for one in replies]
    from fpdfp._kernels import fixed

    total = words[0].copy()
    for one in words[1:]:
        fixed.add(total, one)
    return from_wide(total)


# --- the analyst


def test_different_questions_to_different_sites_do_not_add_up(make: Callable[..., Sites]) -> None:
    """The others are asked where their answer is known, so that their part could be subtracted."""
    sites = make()
    point = point_of(sites, "died ~ age")
    whole = numbers_of([ask(sites, name, point) for name in NAMES])
    assert abs(whole[1]) < 1e6  # the control: the same question to all sites is their sum
    other = copy.deepcopy(point)
    other["ask"]["question"]["sums_at"]["x"] = np.zeros(2)
    mixed = numbers_of([ask(sites, "north", point), ask(sites, "east", other), ask(sites, "south", other)])
    assert np.abs(mixed).min() > 1e6  # noise


def test_a_statement_about_one_design_does_not_serve_for_another(make: Callable[..., Sites]) -> None:
    found = tables()
    found["north"] = found["north"].assign(stage=found["north"]["stage"].replace("III", "II"))
    sites = make(found)
    good = sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[-1]
    bad = copy.deepcopy(good)
    cohort = MaskedCohort(sites)
    with pytest.raises(RefusalError, match="varies at fewer than 3 sites"):
        masked_glm(sites, "died ~ age + C(stage)")
    tree = next(t for t in record(sites, lambda: masked_glm(sites, "died ~ age + C(stage)")) if t["kind"] == "sum")
    bad["ask"] = tree["ask"]
    assert "is not sealed by it for this site" in ask(sites, "north", bad)["refused"]
    assert "words" in ask(sites, "north", good)["reply"]
    assert cohort.level == "sums"


def test_a_sum_is_about_what_it_asks(make: Callable[..., Sites]) -> None:
    """Statements are about a harmless design, and the question about another one."""
    sites = make()
    asked = sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")
    other = sums_of(record(sites, lambda: masked_glm(sites, "died ~ months")), "north")
    for mine, theirs in ((asked[0], other[0]), (asked[-1], other[-1])):
        mixed = copy.deepcopy(mine)
        mixed["ask"] = theirs["ask"]
        assert "is not sealed by it for this site" in ask(sites, "north", mixed)["refused"]


def test_points_at_which_the_other_sites_vanish_are_refused(make: Callable[..., Sites]) -> None:
    """Sites differ in a column, so that at some points only one of them has curvature left: the sum is its Hessian."""
    found = tables()
    for place, table in enumerate(found.values()):
        table["months"] = np.random.default_rng(place).normal(1000.0 * place, 50.0, len(table))
    sites = make(found, rows=1, cell=1)
    point = point_of(sites, "died ~ months")
    hostile = copy.deepcopy(point)
    hostile["ask"]["question"]["sums_at"] = {"parts": ["gradient", "hessian"], "x": np.array([0.02, 0.0])}
    said = [ask(sites, name, hostile) for name in NAMES]
    # the rows of the first site have curvature there, those of the others have none
    assert [("its rows would add next to nothing" in one.get("refused", "")) for one in said] == [False, True, True]
    assert LEAST_SHARE > 0


def test_the_size_of_a_sites_number_is_not_told_by_a_refusal(make: Callable[..., Sites]) -> None:
    """Points at which one site's number is too large for 128 bits: a bisection would tell that number."""
    found = tables()
    found["north"] = found["north"].iloc[:200]
    sites = make(found, refusals=1000)
    point = point_of(sites, "months ~ age", "gaussian")
    before = {name: sites.guards[name].budget.spent.refusals for name in NAMES}
    told = []
    for size in np.geomspace(1e8, 1e12, 12):
        tree = copy.deepcopy(point)
        tree["ask"]["question"]["sums_at"] = {"parts": ["value"], "x": np.array([0.0, size])}
        tree["ask"]["rows"] = 1
        replies = [ask(sites, name, tree) for name in NAMES]
        assert all("words" in one["reply"] for one in replies)
        total = numbers_of(replies)
        told.append(int(total[0]))
    # how many sites are above is all that is told, and it counts as a refusal at each of them
    assert set(told) <= {0, 1, 2, 3}
    assert told[-1] == 3
    assert sites.guards["north"].budget.spent.refusals >= before["north"] + OVERFLOW
    # halving a range by this takes one answer a bit: by default a site stops after three
    assert Policy().refusals <= 3 * OVERFLOW


def test_a_histogram_cell_or_a_time_of_one_site_is_refused(make: Callable[..., Sites]) -> None:
    found = tables()
    found["north"].loc[:9, "age"] = 130.0
    found["south"].loc[:9, "time"], found["south"].loc[:9, "event"] = 450.0, 1
    sites = make(found)
    with pytest.raises(RefusalError, match="a cell of 'age' varies at fewer than 3 sites"):
        fpdfp.histogram(sites, "age", edges=[60.0, 120.0])
    with pytest.raises(RefusalError, match="rows that leave or enter between two times"):
        fpdfp.survival_curves(sites, "Surv(time, event) ~ 1", times=[*TIMES[:3], 400.0, 500.0])
    assert fpdfp.histogram(make(), "age", edges=[60.0]).counts.sum() == 900  # the control


def test_groups_that_one_site_has_are_refused(make: Callable[..., Sites]) -> None:
    found = tables()
    for name in ("east", "south"):
        found[name]["arm"] = "old"
    sites = make(found)
    for call in (
        lambda: fpdfp.table_one(sites, ["age"], by="arm"),
        lambda: fpdfp.survival_curves(sites, "Surv(time, event) ~ arm", times=TIMES),
        lambda: fpdfp.log_rank_test(sites, "Surv(time, event) ~ arm"),
        lambda: fpdfp.FederatedCoxRegression().fit(sites, "Surv(time, event) ~ age + arm"),
    ):
        with pytest.raises(RefusalError, match="varies at fewer than 3 sites"):
            call()


def test_events_and_levels_of_one_site_are_refused(make: Callable[..., Sites]) -> None:
    """Without events at the others a log-rank test is one site's, and a level's rows are, also of a reference level."""
    found = tables()
    for name in ("east", "south"):
        found[name]["event"] = 0
        found[name]["stage"] = found[name]["stage"].replace("I", "II")
    sites = make(found)
    with pytest.raises(RefusalError, match=r"events .*varies at fewer than 3 sites"):
        fpdfp.log_rank_test(sites, "Surv(time, event) ~ arm")
    with pytest.raises(RefusalError, match="the level 'I' of 'stage' varies at fewer than 3 sites"):
        masked_glm(sites, "died ~ C(stage)")


def test_a_constant_that_differs_between_sites_is_refused(make: Callable[..., Sites]) -> None:
    """A column with one number at each site is a set of site effects: its sums tell single sites."""
    found = {name: table.assign(months=float(place)) for place, (name, table) in enumerate(tables().items())}
    with pytest.raises(RefusalError, match=r"months.* fewer than 3 sites|few rows|fewer than 3 rows"):
        masked_glm(make(found), "died ~ age + months")


def test_results_of_single_sites_are_never_had(make: Callable[..., Sites]) -> None:
    sites = make()
    model = masked_glm(sites, "died ~ age")
    assert model.fitted_.information is not None
    assert len(model.fitted_.information) == 1
    assert len(model.site_tables()) == 1
    with pytest.raises((ArgumentError, ValueError, RefusalError)):
        model.heterogeneity("age")
    with pytest.raises(ArgumentError, match="at least 5 sites"):
        fpdfp.FederatedLogisticRegression("l1").bootstrap_sites(sites, "died ~ age", draws=20)


@pytest.mark.parametrize(
    "question",
    ["facts", "bounds", "at", "update", "memory", "answers", "local_models", "quantized_moments", "feature_bounds",
     "exact_moments", "newton_start", "sketch", "slopes", "rows", ""],
)  # fmt: skip
def test_other_questions_about_losses_are_refused(make: Callable[..., Sites], question: str) -> None:
    """Powers of two of each site, or its largest entry, would be told by their sum."""
    sites = make()
    tree = copy.deepcopy(sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[-1])
    tree["ask"]["question"] = {question: {}}
    assert "sites do not answer" in ask(sites, "north", tree)["refused"]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0}, {"rows": 1.5}, {"rows": 10**30}, {"features": np.array([0, 0])}, {"features": np.array([5])},
        {"features": np.array([1.0])}, {"features": np.zeros(0, np.int64)}, {"question": {}}, {"question": []},
        {"spec": None}, {"kind": "everything"},
        {"question": {"duals": {"point": b"", "part": "start", "weights": np.ones(1)}}},
    ],
)  # fmt: skip
def test_malformed_sums_are_refused(make: Callable[..., Sites], change: dict[str, Any]) -> None:
    sites = make()
    tree = copy.deepcopy(sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[-1])
    tree["ask"] = tree["ask"] | change
    assert not ask(sites, "north", tree).get("reply")


def test_mini_batches_and_directions_of_rows_are_refused(make: Callable[..., Sites]) -> None:
    sites = make()
    tree = copy.deepcopy(sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[-1])
    tree["ask"]["question"] = {"constants": {"batch_size": 1}}
    assert "do not answer 'constants'" in ask(sites, "north", tree)["refused"]


def bounds_of(sites: Sites, formula: str, part: str, family: str = "binomial") -> np.ndarray:
    """Return the sum over sites of a bound of the curvature or of slopes, or of the diagonal that comes with facts."""
    model = fpdfp.FederatedLogisticRegression("none") if family == "binomial" else fpdfp.FederatedGLM(family)
    tree = copy.deepcopy(sums_of(record(sites, lambda: model.fit(sites, formula)), "north")[-1])
    tree["ask"]["question"] = {"sums_at": {"parts": [part], "x": None}}
    replies = [ask(sites, name, tree) for name in NAMES]
    if "refused" in replies[0]:
        raise RefusalError(replies[0]["refused"])
    return numbers_of(replies)[1:]


def test_bounds_of_curvature_are_sums_over_rows(make: Callable[..., Sites]) -> None:
    """A sum of largest eigenvalues in coordinates of the analyst's choice would tell each of them, and more.

    The control: from 36 sums of three largest eigenvalues, the second moments of each site.
    """
    sites = make()
    X = {name: np.column_stack([table["age"], np.ones(len(table))]) for name, table in sites.tables.items()}
    expected = sum(one.T @ one for one in X.values()) / 4 / 900
    found = bounds_of(sites, "died ~ age", "curvature")
    np.testing.assert_allclose(found[1:], expected[np.tril_indices(2)], rtol=1e-10)
    facts = bounds_of(sites, "died ~ age", "facts")
    assert facts[-2:].tolist() == [900.0, 0.0]
    np.testing.assert_allclose(facts[1:3] / 900, np.diag(expected) if facts[1] > 1e5 else np.diag(expected) / 900)

    rng = np.random.default_rng(0)
    parts = []
    for place in range(3):
        Z = rng.standard_normal((300, 2)) @ np.array([[1.0, 0.3 + 0.3 * place], [0.0, 1.0]])
        Z *= np.array([1 + 0.2 * place, 1.3 - 0.25 * place])
        parts.append(Z.T @ Z / 300)
    angles = np.linspace(0.1, 1.5, 12)
    maps = [
        np.array([[np.cos(a) * s, r], [0.0, np.sin(a) * t]])
        for a in angles
        for s, t, r in [(1, 1, 0), (1, 2, 0.5), (2, 1, -0.5)]
    ]

    def matrices(flat: np.ndarray) -> list[np.ndarray]:
        return [np.array([[a, b], [b, c]]) for a, b, c in flat.reshape(3, 3)]

    def sums(found: list[np.ndarray]) -> np.ndarray:
        largest = [sum(np.linalg.eigvalsh(F.T @ M @ F)[-1] for M in found) for F in maps]
        return np.append(largest, np.ravel(sum(found)))

    seen = sums(parts)
    guess = np.ravel([[one[0, 0], one[0, 1], one[1, 1]] for one in [sum(parts) / 3] * 3])
    for _ in range(20):
        start = guess * (1 + 0.5 * rng.standard_normal(9))
        best = least_squares(lambda flat: sums(matrices(flat)) - seen, start, xtol=1e-15, ftol=1e-15)
        if best.cost < 1e-20:
            break
    told = sorted(matrices(best.x), key=lambda one: one[0, 1])
    np.testing.assert_allclose(told, sorted(parts, key=lambda one: one[0, 1]), atol=1e-6)


def test_bounds_of_slopes_and_levels_are_not_of_single_sites(make: Callable[..., Sites]) -> None:
    """Roots of a site's mean squares, and its mean outcome times its columns, do not add up over rows."""
    sites = make()
    found = bounds_of(sites, "died ~ age", "slopes")
    squares = np.concatenate([table["age"].to_numpy() ** 2 for table in sites.tables.values()])
    assert found[1] == pytest.approx(squares.mean(), rel=1e-9)
    with pytest.raises(RefusalError, match="a mean outcome of its own"):
        bounds_of(sites, "visits ~ age", "level", "poisson")


def test_bounds_of_weighted_rows_are_not_sent(make: Callable[..., Sites]) -> None:
    """They go by the largest weight of a site, so that those of several weights would be sums of other shares."""
    sites = make()
    tree = sums_of(
        record(sites, lambda: fpdfp.FederatedGLM("binomial").fit(sites, "died ~ age", weights="weight")), "north"
    )[-1]
    for part in ("curvature", "slopes"):
        other = copy.deepcopy(tree)
        other["ask"]["question"] = {"sums_at": {"parts": [part], "x": None}}
        assert "largest weight of each site" in ask(sites, "north", other)["refused"]
    other["ask"]["question"] = {"sums_at": {"parts": ["facts"], "x": None}}
    found = numbers_of([ask(sites, name, other) for name in NAMES])[1:]
    assert found[-2:].tolist() == [900.0, 3.0]  # rows, and three sites without a bound
    assert not found[:-2].any()
    with pytest.raises((ArgumentError, RefusalError)):
        fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), method=fpdfp.PDFP()).fit(
            sites, "died ~ age", weights="weight"
        )


def test_points_at_which_one_site_is_nearly_all_of_a_sum_are_refused(make: Callable[..., Sites]) -> None:
    """A Poisson model's curvature grows without bounds, first at the site whose values are largest."""
    found = tables()
    for place, table in enumerate(found.values()):
        table["months"] = np.random.default_rng(place).normal(50.0 * (place == 0), 1.0, len(table))
    sites = make(found, rows=1, cell=1)
    point = point_of(sites, "visits ~ months", "poisson")
    hostile = copy.deepcopy(point)
    hostile["ask"]["question"]["sums_at"] = {"parts": ["gradient", "hessian"], "x": np.array([0.2, 0.0])}
    said = [ask(sites, name, hostile).get("refused", "") for name in NAMES]
    assert "would add nearly all of the sum" in said[0]
    assert said[1:] == ["", ""]
    # with an intercept that keeps the first site's part usual the others' are next to nothing
    hostile["ask"]["question"]["sums_at"]["x"] = np.array([0.2, -10.0])
    assert ["next to nothing" in ask(sites, name, hostile).get("refused", "") for name in NAMES[1:]] == [True, True]


def test_what_varies_is_sealed_between_sites_and_asked_by_the_rules_of_the_filter(make: Callable[..., Sites]) -> None:
    """Whether a site has rows between two edges would tell all of its values, edge by edge."""
    sites = make()
    told: list[dict[str, Any]] = []

    def watch(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        told.append(tree)
        return tree

    sites.hub = watch
    fpdfp.histogram(sites, "age", edges=[60.0])
    asked = next(one for one in told if one.get("kind") == "varying")
    sealed = [one["reply"]["statements"] for one in told if "statements" in one.get("reply", {})]
    assert len(sealed) == 3
    bodies = [body for one in sealed for body in one.values()]
    # what varies at the sites is the same three bytes, and nothing of what is handed on shows it
    assert len(set(bodies)) == 6
    assert all(b"\1\1\1" not in body and len(body) == 12 + 3 + 16 for body in bodies)
    fine = copy.deepcopy(asked)
    fine["ask"]["question"]["edges"] = [np.arange(40.25, 80.0, 0.5)]
    before = sites.guards["north"].budget.spent.refusals
    said = ask(sites, "north", fine)
    assert "statements" not in said.get("reply", {})
    assert sites.guards["north"].budget.spent.refusals == before + 1
    times = {"kind": "risk", "question": None}
    with contextlib.suppress(RefusalError):
        fpdfp.survival_curves(sites, "Surv(time, event) ~ 1", times=TIMES)
    risk = [one for one in told if one.get("kind") == "varying" and one["ask"]["kind"] == times["kind"]][-1]
    risk["ask"]["question"]["times"] = np.arange(0.25, 30, 0.25)
    assert "statements" not in ask(sites, "north", risk).get("reply", {})


def test_members_that_differ_by_one_or_two_are_refused(make: Callable[..., Sites], tmp_path: Path) -> None:
    """A hospital joins a study: the new sum without the old one is its own."""
    from tests.test_protected import patients

    names = ("east", "north", "south", "west", "x", "y")
    found = patients(names=names)
    for count, refused in ((4, True), (5, True), (6, False)):
        folder = tmp_path / str(count)
        with contextlib.closing(Sites(folder, {name: found[name] for name in names[:3]}, level="sums")) as sites:
            masked_glm(sites, "died ~ age")
        with contextlib.closing(Sites(folder, {name: found[name] for name in names[:count]}, level="sums")) as sites:
            expected = (
                pytest.raises(RefusalError, match=f"members that differ by {count - 3}")
                if refused
                else contextlib.nullcontext()
            )
            with expected:
                masked_glm(sites, "died ~ age")


def test_gradients_that_are_rounded_to_a_sites_own_step_are_not_sent(make: Callable[..., Sites]) -> None:
    """With two bits every entry of a gradient is −1, 0 or 1 times its largest one: few sums tell that of each site."""
    sites = make()
    asked = [
        tree
        for tree in record(
            sites, lambda: fpdfp.FederatedLogisticRegression("l1").path(sites, "died ~ age + months", alphas=3)
        )
        if tree["kind"] == "sum" and "many_points" in tree["ask"].get("question", {})
    ]
    tree = next(one for one in asked if one["site"] == "east")
    coarse = copy.deepcopy(tree)
    coarse["ask"]["question"]["many_points"] |= {"slope_bits": 2, "rest_bits": 2}
    fine = copy.deepcopy(tree)
    fine["ask"]["question"]["many_points"] |= {"slope_bits": 64, "rest_bits": 64}
    found = [numbers_of([ask(sites, name, one) for name in NAMES]) for one in (coarse, fine)]
    assert (found[0] == found[1]).all()


# --- the hub


def test_a_hub_cannot_leave_a_site_out_or_count_one_twice(make: Callable[..., Sites]) -> None:
    sites = make()
    tree = sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[-1]
    replies = [ask(sites, name, tree) for name in NAMES]
    assert abs(numbers_of(replies)[1]) < 1e6
    for wrong in (replies[:2], [replies[0], *replies], [replies[0], replies[0], replies[1]]):
        assert np.abs(numbers_of(wrong)).min() > 1e6


def test_a_hub_that_mixes_replies_of_two_rounds_gets_noise(make: Callable[..., Sites]) -> None:
    """Points hardly move between rounds, so a sum with one site's reply of the round before would be its change."""
    sites = make()
    tree = point_of(sites, "died ~ age")
    trees = [copy.deepcopy(tree), tree]
    trees[0]["ask"]["question"]["sums_at"]["x"] = trees[1]["ask"]["question"]["sums_at"]["x"] * (1 + 1e-9)
    first, last = [[ask(sites, name, tree) for name in NAMES] for tree in trees]
    assert np.abs(numbers_of(first) - numbers_of(last)).max() < 1.0  # the control: whole sums hardly differ
    assert np.abs(numbers_of([first[0], *last[1:]])).min() > 1e6


def test_a_hub_that_claims_a_lower_level_gets_nothing(make: Callable[..., Sites]) -> None:
    """An analyst's software that takes the sites for plain ones asks what they refuse."""
    sites = make()
    plain = copy.copy(sites)
    plain.at_level = lambda: plain  # type: ignore[method-assign]
    with pytest.raises(RefusalError, match="does not answer"):
        masked_glm(plain, "died ~ age")


# --- colluding sites


def test_a_colluding_site_cannot_vouch_for_two(make: Callable[..., Sites]) -> None:
    """It states that a column varies at its rows, and subtracts its own part: two honest sites must be left."""
    names = ("east", "north", "south", "west")
    from tests.test_protected import patients

    found = patients(names=names)
    for name in ("east", "south"):
        found[name]["stage"] = found[name]["stage"].replace("III", "II")
    for colluding, refused in ((1, False), (2, True)):
        sites = make(found, colluding=colluding, columns_of_the_table=COLUMNS)
        with contextlib.suppress(RefusalError):
            masked_glm(sites, "died ~ age + C(stage)")
        members = Members(sites)
        members.meet()
        about = dump(About(by=None, columns=("age",)))
        # three members vary by the statements; with two colluding sites that leaves one honest one
        guard = sites.guards["north"]
        real = guard._states
        guard._states = lambda about: (["the column"], b"\1")  # type: ignore[method-assign]
        told = {
            name: sites.guards[name]._maskers[members.run].seal("north", state, digest(about))
            for name, state in {"west": b"\1", "east": b"\1", "south": b"\0"}.items()
        }
        asked = {"statements": told, "run": members.run}
        from fpdfp.cohorts.serialization import validate
        from fpdfp.errors import Refusal

        with pytest.raises(Refusal, match="fewer than 4 sites") if refused else contextlib.nullcontext():
            guard._check_varying(asked, validate(about, About, "about"))
        guard._states = real  # type: ignore[method-assign]


def test_members_that_could_all_but_one_collude_are_refused() -> None:
    members = {name: secrets.token_hex(32) for name in "abc"}
    with pytest.raises(ArgumentError, match="colluding must leave two of 3 members"):
        Policy(level="sums", members=members, colluding=2)


def test_what_colluders_know_leaves_the_sum_of_the_others(make: Callable[..., Sites]) -> None:
    """With one of three colluding, the rest is the sum of two; with two of three it is one site's, as the page says."""
    sites = make()
    tree = sums_of(record(sites, lambda: masked_glm(sites, "died ~ age")), "north")[0]
    total = numbers_of([ask(sites, name, tree) for name in NAMES])
    rows = {name: len(table) for name, table in sites.tables.items()}
    assert round(total[1]) == sum(rows.values())
    own = sites.guards["south"]
    masked = np.frombuffer(ask(sites, "south", tree)["reply"]["words"], "<u8").reshape(-1, 2)
    assert abs(from_wide(masked)[1]) > 1e6
    assert own.membership is not None
    assert MaskedCohort(sites).members._membership is None


def test_an_unmasked_member_is_noticed(make: Callable[..., Sites]) -> None:
    """A site that sends numbers of another length, or without masks, spoils the sum and learns nothing."""
    sites = make()

    def spoil(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if reply and name == "south" and "words" in tree.get("reply", {}):
            return {"reply": tree["reply"] | {"words": tree["reply"]["words"][16:]}}
        return tree

    sites.hub = spoil
    with pytest.raises(MessageError, match="same layout"):
        masked_glm(sites, "died ~ age")
    assert WIDE == 128


def test_the_log_says_what_was_summed(make: Callable[..., Sites]) -> None:
    from fpdfp.federation.audit import entries

    sites = make()
    masked_glm(sites, "died ~ age")
    lines = [entry.asked for entry in entries(sites.folder / "north")]
    assert any("masked: sums for a model (value, gradient)" in line and "died ~ age" in line for line in lines)
    assert any("what varies, for counts and sums for a design: died ~ age" in line for line in lines)
    assert not any("something unknown" in line for line in lines)
