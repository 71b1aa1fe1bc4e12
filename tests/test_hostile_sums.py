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

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.keys import Asker
from fpdfp.federation.masked import About, MaskedCohort, Members, digest
from fpdfp.federation.policy import Policy
from fpdfp.federation.protected import LEAST_SHARE, run_name, varying_statement
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
    said: dict[str, Any] = unpack(pack(sites.guards[name].answer(unpack(pack(tree | {"site": name})), ANN)))
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
    bad["about"], bad["ask"] = tree["about"], tree["ask"]
    assert "is not signed by it" in ask(sites, "north", bad)["refused"]
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
        assert "must be about what it asks" in ask(sites, "north", mixed)["error"]


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
    sites = make(found)
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
    assert sites.guards["north"].budget.spent.refusals > before["north"]


def test_a_histogram_cell_or_a_time_of_one_site_is_refused(make: Callable[..., Sites]) -> None:
    found = tables()
    found["north"].loc[:9, "age"] = 130.0
    found["south"].loc[:9, "time"], found["south"].loc[:9, "event"] = 450.0, 1
    sites = make(found)
    with pytest.raises(RefusalError, match="a cell of 'age' varies at fewer than 3 sites"):
        fpdfp.histogram(sites, "age", edges=[60.0, 120.0])
    with pytest.raises(RefusalError, match="rows that leave between two times"):
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
    assert "mini-batches" in ask(sites, "north", tree)["refused"]


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
        liar = sites.guards["west"]
        assert liar.membership is not None
        # three members vary by the statements; with two colluding sites that leaves one honest one
        guard = sites.guards["north"]
        real = guard._states
        guard._states = lambda about: (["the column"], b"\1")  # type: ignore[method-assign]
        short = {
            n: [s[:1], sites.guards[n].secret.identity.sign(  # type: ignore[union-attr]
                varying_statement(liar.membership, run_name(members.run), digest(about), s[:1]))]
            for n, s in {"north": b"\1", "west": b"\1", "east": b"\1", "south": b"\0"}.items()
        }  # fmt: skip
        asked = {"statements": short, "run": members.run}
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
