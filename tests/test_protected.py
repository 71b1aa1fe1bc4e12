"""Sites at the levels ``sums`` and ``private``: models, refusals and attacks, through the guards of the sites."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.keys import Asker
from fpdfp.federation.masked import MaskedCohort, Members
from fpdfp.federation.policy import Policy
from fpdfp.federation.private import Privacy, PrivateCohort
from fpdfp.federation.protected import ProtectedGuard, run_name
from fpdfp.federation.questions import read_answer, write
from fpdfp.federation.seal import Secret
from fpdfp.federation.table import SiteTable
from fpdfp.privacy.fixed_point import from_wide

pytest.importorskip("cryptography")
EXACT = fpdfp.RunOptions(rounds=100, tol=1e-15, progress=False)
NAMES = ("east", "north", "south")
COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"type": "number"},
    "stage": {"type": "category", "levels": ["I", "II", "III"]},
    "died": {"type": "truth"},
    "visits": {"type": "integer"},
    "months": {"type": "number"},
}


def patients(rows: int = 300, seed: int = 0, names: tuple[str, ...] = NAMES) -> dict[str, pd.DataFrame]:
    tables = {}
    for place, name in enumerate(names):
        rng = np.random.default_rng([seed, place])
        age = rng.normal(60 + 3 * place, 10, rows).round()
        stage = rng.choice(["I", "II", "III"], rows, p=[0.5, 0.3, 0.2])
        eta = -4 + 0.05 * age + np.where(stage == "III", 1.0, 0.0)
        tables[name] = pd.DataFrame(
            {
                "age": age,
                "stage": stage,
                "died": (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int),
                "visits": rng.poisson(np.exp(0.2 * eta)),
                "months": 10 + 0.3 * age + rng.normal(0, 4, rows),
                "patient_id": np.arange(rows),
            }
        )
    return tables


class Sites(TableCohort):
    """Sites behind their guards, in this process; all that is said goes through parcels."""

    def __init__(self, folder: Path, tables: Mapping[str, pd.DataFrame], masked: bool = True, **policy: Any) -> None:
        self.folder, self.tables = folder, dict(tables)
        self.privacy: Privacy | None = None
        keys = {name: Secret.of(folder / name).public.hex() for name in tables}
        self.policy = Policy(**({"members": keys if masked else {}, "columns_of_the_table": COLUMNS} | policy))
        self.guards: dict[str, ProtectedGuard] = {}
        self.sequence = itertools.count(1)
        #: Changes what a site is asked, and what it has answered: a hub that reads and writes everything.
        self.hub: Callable[[str, dict[str, Any], bool], dict[str, Any]] = lambda name, tree, reply: tree
        self.seen: list[tuple[str, dict[str, Any]]] = []
        for name in tables:
            self.start(name)

    def start(self, name: str) -> None:
        table = SiteTable.read(self.tables[name], self.policy.columns_of_the_table)
        self.guards[name] = ProtectedGuard(name, table, self.policy, self.folder / name)

    def close(self) -> None:
        for guard in self.guards.values():
            guard.close()

    @property
    def names(self) -> list[str]:
        return sorted(self.tables)

    def exchange(self, run: str, trees: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        found = {}
        for name, tree in trees.items():
            asked = self.hub(name, {**tree, "run": run, "sequence": next(self.sequence), "site": name}, False)
            asker = Asker("ann", "analyst", "ab" * 32, "study")
            said = unpack(pack(self.guards[name].answer(unpack(pack(asked)), asker)))
            said = self.hub(name, said, True)
            if "refused" in said:
                raise RefusalError(f"{name}: {said['refused']}", {name: said["refused"]})
            if "error" in said:
                raise MessageError(f"{name}: {said['error']}")
            self.seen.append((name, said["reply"]))
            found[name] = said["reply"]
        return found

    def gather(self, question: Any, names: Any, *, each: bool) -> list[Any]:
        trees = {name: write(question) | ({"each": True} if each else {}) for name in names}
        return [read_answer(question, one) for one in self.exchange(secrets.token_hex(8), trees).values()]

    def losses(self, spec: Any) -> Any:
        raise AssertionError("no losses at this level")

    def at_level(self) -> TableCohort:
        return PrivateCohort(self, self.privacy) if self.policy.level == "private" else MaskedCohort(self)


def masked_glm(sites: Sites, formula: str, family: str = "binomial") -> fpdfp.FederatedGLM:
    return fpdfp.FederatedGLM(family, run=EXACT).fit(sites, formula)


def private_model(sites: Any, formula: str, **privacy: Any) -> Any:
    """The model of a response of two classes, or of a number, for a price."""
    sites.privacy = Privacy(**privacy)
    family = "gaussian" if formula.startswith("months") else "binomial"
    return fpdfp.FederatedGLM(family).fit(sites, formula)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Sites]]:
    with contextlib.ExitStack() as stack:

        def begin(tables: Mapping[str, pd.DataFrame] | None = None, **policy: Any) -> Sites:
            sites = Sites(tmp_path, tables or patients(), **({"level": "sums"} | policy))
            stack.callback(sites.close)
            return sites

        yield begin


def pooled(tables: Mapping[str, pd.DataFrame], response: str, family: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors of all rows in one place, by Newton steps in float64."""
    frame = pd.concat(tables.values())
    X = np.column_stack([frame["age"], frame["stage"] == "II", frame["stage"] == "III", np.ones(len(frame))])
    y, x = frame[response].to_numpy(float), np.zeros(4)
    for _ in range(60):
        eta = X @ x
        if family == "binomial":
            mu, w = 1 / (1 + np.exp(-eta)), np.exp(-eta) / (1 + np.exp(-eta)) ** 2
        elif family == "poisson":
            mu = w = np.exp(eta)
        else:
            mu, w = eta, np.ones(len(y))
        H = (X * w[:, None]).T @ X
        x = x + np.linalg.solve(H, X.T @ (y - mu))
    dispersion = float(((y - mu) ** 2).sum() / (len(y) - 4)) if family == "gaussian" else 1.0
    return x, np.sqrt(dispersion * np.diag(np.linalg.inv(H)))


@pytest.mark.parametrize(("response", "family"), [("died", "binomial"), ("visits", "poisson"), ("months", "gaussian")])
def test_masked_models_are_those_of_all_rows(make: Callable[..., Sites], response: str, family: str) -> None:
    sites = make()
    model = masked_glm(sites, f"{response} ~ age + C(stage)", family)
    x, errors = pooled(sites.tables, response, family)
    table = model.table().frame()
    assert [*table.index] == ["Intercept", "age", "C(stage)[T.II]", "C(stage)[T.III]"]
    assert np.array(list(model.coefficients_.values())) == pytest.approx(np.roll(x, 1), rel=1e-10, abs=1e-11)
    assert table["standard error"].to_numpy() == pytest.approx(np.roll(errors, 1), rel=1e-9)
    assert model.rows_ == {"east, north and south together": 900}


def test_no_reply_has_a_sites_own_numbers(make: Callable[..., Sites]) -> None:
    sites = make()
    masked_glm(sites, "died ~ age")
    words = list(dict.fromkeys(reply["words"] for _, reply in sites.seen if "words" in reply))  # some are asked twice
    assert len(words) >= 9
    counts = np.bincount(np.frombuffer(b"".join(words), np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-6
    # without masks the first number would be 300 rows, and its high word 300
    assert all(from_wide(np.frombuffer(one, "<u8").reshape(-1, 2))[0] != 300.0 for one in words)
    for _, reply in sites.seen:
        assert set(reply) <= {"words", "form", "public", "signature", "members", "statements", "rows", "columns"}
        assert reply.get("rows") is None


def spec_of(sites: Sites, formula: str = "died ~ age") -> Any:
    """What a run asks for the first information of a model, after its members have met."""
    asked: list[dict[str, Any]] = []
    before = sites.hub

    def watch(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if not reply and tree.get("kind") == "sum" and tree["ask"]["kind"] == "losses":
            asked.append(tree)
        return before(name, tree, reply)

    sites.hub = watch
    masked_glm(sites, formula)
    sites.hub = before
    return next(tree for tree in asked if tree["site"] == "north")


def test_the_same_request_has_the_same_reply_after_a_restart(make: Callable[..., Sites]) -> None:
    sites = make()
    asked = spec_of(sites)
    asker = Asker("ann", "analyst", "ab" * 32, "study")
    before = sites.guards["north"].answer(asked, asker)
    assert sites.guards["north"].answer(asked, asker) == before
    sites.guards["north"].close()
    sites.start("north")
    assert "have not met" in sites.guards["north"].answer(asked, asker)["error"]
    keys = sites.exchange(asked["run"], {n: {"kind": "join"} for n in NAMES})
    pairs = {name: [reply["public"], reply["signature"]] for name, reply in keys.items()}
    sites.exchange(asked["run"], {"north": {"kind": "meet", "keys": pairs}})
    assert sites.guards["north"].answer(asked, asker) == before


def test_data_that_have_changed_do_not_get_the_same_mask(make: Callable[..., Sites]) -> None:
    """The difference of two replies to the same request would be the row that was removed."""
    sites = make()
    asked = spec_of(sites)
    sites.guards["north"].close()
    sites.tables["north"] = sites.tables["north"].iloc[1:]
    sites.start("north")
    asker = Asker("ann", "analyst", "ab" * 32, "study")
    keys = sites.exchange("other", {n: {"kind": "join"} for n in NAMES})
    pairs = {name: [reply["public"], reply["signature"]] for name, reply in keys.items()}
    said = sites.guards["north"].answer({**asked, "kind": "meet", "keys": pairs}, asker)
    assert "refused" in said
    assert "have changed since this run began" in said["refused"]


def test_a_level_that_one_of_three_sites_lacks_is_refused(make: Callable[..., Sites]) -> None:
    tables = patients()
    tables["north"] = tables["north"].assign(stage=tables["north"]["stage"].replace("III", "II"))
    with pytest.raises(RefusalError, match=r"C\(stage\)\[T.III\].* varies at fewer than 3 sites"):
        masked_glm(make(tables), "died ~ age + C(stage)")


@pytest.mark.parametrize(("response", "family"), [("died", "binomial"), ("visits", "poisson")])
def test_a_response_that_varies_at_one_site_is_refused(make: Callable[..., Sites], response: str, family: str) -> None:
    """Where the response is 0 at two sites, the score at 0 and the known sums of columns are the third site's Σ ay."""
    tables = {name: one.assign(**({} if name == "north" else {response: 0})) for name, one in patients().items()}
    with pytest.raises(RefusalError, match="the response varies at fewer than 3 sites"):
        masked_glm(make(tables), f"{response} ~ age", family)


def test_a_combination_that_varies_at_one_site_is_refused(make: Callable[..., Sites]) -> None:
    """Visits are 0 and 1 at two sites, where visits² is visits; the difference of the two is the third site's."""
    tables = {
        name: one.assign(visits=one["visits"].clip(0, 4 if name == "north" else 1)) for name, one in patients().items()
    }
    with pytest.raises(RefusalError, match="a combination of columns varies at fewer than 3 sites"):
        masked_glm(make(tables), "months ~ visits + I(visits**2)", "gaussian")


def test_a_statement_of_varying_columns_cannot_be_forged(make: Callable[..., Sites]) -> None:
    """The analyst or the hub says that a column varies everywhere, so that one site's sums would come out."""
    tables = patients()
    tables["north"] = tables["north"].assign(stage=tables["north"]["stage"].replace("III", "II"))
    sites = make(tables)

    def change(how: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
        def everywhere(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
            if reply and name == "north" and "statements" in tree.get("reply", {}):
                return {"reply": {"statements": how(tree["reply"]["statements"])}}
            return tree

        sites.hub = everywhere

    for how in (
        lambda told: {name: one[:-1] + bytes([one[-1] ^ 1]) for name, one in told.items()},
        lambda told: dict(zip(told, reversed(told.values()), strict=True)),  # those for another site
        lambda told: dict.fromkeys(told, b""),
        lambda told: dict.fromkeys(told, None),
    ):
        change(how)  # type: ignore[arg-type]
        with pytest.raises(RefusalError, match="statement of north is not sealed by it for this site"):
            masked_glm(sites, "died ~ age + C(stage)")


def test_a_hub_cannot_swap_keys_or_invent_members(make: Callable[..., Sites]) -> None:
    sites = make()
    mallory = Secret(b"m" * 32)
    from fpdfp.privacy.masks import run_key

    def swap(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if not reply and tree.get("kind") == "meet":
            guard = sites.guards["south"]
            assert guard.membership is not None
            own = run_key(mallory.derive(b"x"), mallory.identity, guard.membership, run_name(tree["run"]))
            return tree | {"keys": tree["keys"] | {"south": [own.public, own.signature]}}
        return tree

    sites.hub = swap
    with pytest.raises(RefusalError, match="run key of south is not signed by the identity that this site knows"):
        masked_glm(sites, "died ~ age")

    def invent(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if not reply and tree.get("kind") == "meet":
            return tree | {"keys": tree["keys"] | {"west": tree["keys"]["south"]}}
        return tree

    sites.hub = invent
    with pytest.raises(RefusalError, match="must match its membership"):
        masked_glm(sites, "died ~ age")


def test_a_sum_without_a_site_or_over_other_members_is_impossible(make: Callable[..., Sites]) -> None:
    """Sums over memberships that differ by one site would be that site's: the policy names one membership."""
    sites = make(patients(names=("east", "north", "south", "west")))
    some = Members(sites)
    some.names = ["east", "north", "south"]
    with pytest.raises(ArgumentError, match="must have the members of each site's policy"):
        some.meet()


@pytest.mark.parametrize(
    "kind",
    ["sums", "moments", "request", "evaluation", "calibration", "risk", "log_rank", "baseline", "concordance", "plan",
     "propose", "release", "rows", ""],
)  # fmt: skip
def test_everything_else_is_refused_at_sums(make: Callable[..., Sites], kind: str) -> None:
    with pytest.raises(RefusalError, match="does not answer"):
        make().exchange("run", {"north": {"kind": kind, "question": {}, "spec": {}}})


@pytest.mark.parametrize("kind", ["sums", "moments", "request", "evaluation", "sum", "varying", "plan", "propose"])
def test_everything_else_is_refused_at_private(make: Callable[..., Sites], kind: str) -> None:
    with pytest.raises(RefusalError, match="does not answer"):
        make(level="private").exchange("run", {"north": {"kind": kind, "question": {}, "spec": {}}})


def test_rules_of_the_filter_stay_at_sums(make: Callable[..., Sites]) -> None:
    with pytest.raises(ArgumentError, match="does not allow the column 'patient_id'"):
        masked_glm(make(columns_of_the_table=COLUMNS | {"patient_id": {"type": "number"}}), "died ~ I(patient_id)")


def test_few_rows_are_refused_at_sums(make: Callable[..., Sites]) -> None:
    with pytest.raises(RefusalError, match="rows"):
        masked_glm(make(patients(rows=9)), "died ~ age")


def test_policies_that_protect_nobody_are_refused(tmp_path: Path) -> None:
    key = {name: (name * 16).encode().hex()[:64] for name in ("aaaa", "bbbb", "cccc")}
    with pytest.raises(ArgumentError, match="members must be at least 3 sites"):
        Policy(level="sums")
    with pytest.raises(ArgumentError, match=r"members must be at least 3 sites.*of two"):
        Policy(level="private", members=dict(itertools.islice(key.items(), 2)))
    with pytest.raises(ArgumentError, match="64 digits"):
        Policy(level="sums", members=dict.fromkeys(key, "ab"))
    with pytest.raises(ArgumentError, match="different keys"):
        Policy(level="sums", members=dict.fromkeys(key, "ab" * 32))
    with pytest.raises(ArgumentError, match="colluding must leave two"):
        Policy(level="private", members=key, colluding=2)
    for bad in ({"epsilon": 0.0}, {"epsilon": 101.0}, {"delta": 1.0}, {"radius": 0.0}):
        with pytest.raises(ArgumentError):
            Policy(level="private", **bad)
    with pytest.raises(ArgumentError, match="must have this site's own key"):
        ProtectedGuard(
            "aaaa", SiteTable.read(patients()["north"], COLUMNS), Policy(level="sums", members=key), tmp_path
        )
    with pytest.raises(ArgumentError, match="must declare the type of 'age'"):
        ProtectedGuard(
            "aaaa", SiteTable.read(patients()["north"], {}),
            Policy(level="private", columns_of_the_table={"age": {"unit": "years"}}), tmp_path,
        )  # fmt: skip


# ---------------------------------------------------------------- private

RANGES = {"age": (20, 100)}


@pytest.mark.parametrize("masked", [True, False])
def test_a_private_model(make: Callable[..., Sites], masked: bool) -> None:
    sites = make(patients(10_000), level="private", epsilon=8.0, radius=2.0, masked=masked)
    model = private_model(sites, "died ~ age + C(stage)", rows=30_000, epsilon=8.0, ranges=RANGES)
    x, _ = pooled(sites.tables, "died", "binomial")
    assert model.coefficients_["age"] == pytest.approx(x[0], abs=0.02)
    assert model.coefficients_["C(stage)[T.III]"] == pytest.approx(x[2], abs=0.3)
    assert model.privacy_.epsilon == pytest.approx(8.0, abs=1e-6)
    table = model.table().frame()
    x = np.roll(x, 1)
    assert ((table["2.5 %"] < x) & (x < table["97.5 %"])).sum() >= 2
    shown = str(model.summary())
    assert "epsilon = 8, delta = 1e-06" in shown
    for known in ("deviance", "AIC", "with the event", "nan"):
        assert known not in shown
    with pytest.raises(RuntimeError, match="no likelihood"):
        model.compare(model)
    for budget in Members(sites).exchange({"kind": "budget"}).values():
        assert budget["spent"] == pytest.approx(8.0, abs=1e-6)
        assert budget["shares"] == (2 if masked else 1)
    with pytest.raises(RefusalError, match="privacy budget of this site is spent"):
        private_model(sites, "died ~ age", rows=30_000, epsilon=0.1, ranges=RANGES)


def test_least_squares_are_in_the_range_of_the_response(make: Callable[..., Sites]) -> None:
    sites = make(patients(4000), level="private", epsilon=20.0, radius=2.0)
    options: dict[str, Any] = {"rows": 12_000, "epsilon": 4.0}
    with pytest.raises(ArgumentError, match="must have the range of the response 'months'"):
        private_model(sites, "months ~ age", ranges=RANGES, **options)
    model = private_model(sites, "months ~ age", ranges=RANGES | {"months": (10, 50)}, **options)
    assert model.coefficients_["age"] == pytest.approx(0.3, abs=0.01)
    assert model.coefficients_["Intercept"] == pytest.approx(10.0, abs=1.0)
    assert "standard errors are not available" in str(model.summary())
    model.save(sites.folder / "model.json")
    back = fpdfp.load_model(sites.folder / "model.json")
    assert back.privacy_ == model.privacy_
    assert str(model.privacy_.releases[0][0]) == "statistics"
    with pytest.raises(ArgumentError, match="cv must be None"):
        fpdfp.FederatedLogisticRegressionCV("l1").fit(sites, "died ~ age")
    with pytest.raises(ArgumentError, match="must be logistic or linear"):
        fpdfp.FederatedGLM("poisson").fit(sites, "visits ~ age")
    sites.privacy = None
    with pytest.raises(ArgumentError, match="privacy must state the budget of a fit"):
        fpdfp.FederatedGLM("binomial").fit(sites, "died ~ age")


def release_tree(
    sites: Sites, run: str = "run", formula: str = "died ~ age + C(stage)", ranges: Any = RANGES, **more: Any
) -> dict[str, Any]:
    """A release of a site that adds all of its noise itself, as it is asked for."""
    asked: list[dict[str, Any]] = []

    def watch(name: str, tree: dict[str, Any], reply: bool) -> dict[str, Any]:
        if not reply and tree.get("kind") == "release":
            asked.append(tree)
            raise StopIteration
        return tree

    sites.hub = watch
    with contextlib.suppress(StopIteration):
        private_model(sites, formula, rows=900, epsilon=0.5, ranges=ranges)
    sites.hub = lambda name, tree, reply: tree
    return asked[0] | more


def integers(sites: Sites, tree: dict[str, Any]) -> np.ndarray:
    reply = sites.exchange(tree["run"], {"north": tree})["north"]
    return np.frombuffer(reply["words"], "<i8")


def test_repeated_releases_average_nothing_out_and_cost_nothing(make: Callable[..., Sites]) -> None:
    sites = make(level="private", masked=False, radius=2.0)
    tree = release_tree(sites)
    first = integers(sites, tree)
    assert all((integers(sites, {**tree, "run": run}) == first).all() for run in ("a", "b"))
    spent = sites.exchange("c", {"north": {"kind": "budget"}})["north"]["spent"]
    sites.guards["north"].close()
    sites.start("north")
    assert (integers(sites, tree) == first).all()
    assert sites.exchange("c", {"north": {"kind": "budget"}})["north"]["spent"] == spent


def test_no_row_changes_what_becomes_of_another_or_of_a_refusal(make: Callable[..., Sites], tmp_path: Path) -> None:
    """Rows that a design cannot take, added to a table: the sum stays as it is, and nothing is refused."""
    from fpdfp.federation.protected import private_rows
    from fpdfp.federation.questions import read_spec

    sites = make(level="private", masked=False, radius=2.0)
    spec = read_spec(release_tree(sites)["spec"])
    table = sites.tables["north"]
    base = private_rows(SiteTable.read(table, COLUMNS), spec, "logistic")
    bad = pd.DataFrame(
        {"age": [np.nan, np.inf, -np.inf, 50.0, 50.0], "stage": ["I", "I", "II", None, "III"],
         "died": [1, 0, 1, 1, np.nan], "visits": 0, "months": 0.0, "patient_id": 0}
    )  # fmt: skip
    with_bad = private_rows(SiteTable.read(pd.concat([table, bad]), COLUMNS), spec, "logistic")
    finite = np.isfinite(with_bad.X).all(axis=1) & np.isfinite(with_bad.y)
    assert (with_bad.X[finite] == base.X).all()
    assert (with_bad.y[finite] == base.y).all()
    # a level that the model does not know drops its rows alone
    fewer = dataclasses.replace(spec.design, terms=spec.design.terms)
    unknown = table.assign(stage=table["stage"].replace("III", "IV"))
    loose = COLUMNS | {"stage": {"type": "category"}}
    some = private_rows(SiteTable.read(unknown, loose), dataclasses.replace(spec, design=fewer), "logistic")
    assert len(some.y) == int((table["stage"] != "III").sum())


STRANGE = pd.DataFrame(
    {"age": [np.nan, np.inf, -np.inf, -5.0, 0.0, 1e308, 5e-324], "stage": ["I", "I", "II", None, "III", "I", "II"],
     "died": [1, 0, 1, 1, np.nan, 0, 1], "visits": [0, -3, 10**15, 1, 2, 3, 0],
     "months": [np.nan, 1e308, -1e308, 0, 1, 2, np.inf], "patient_id": 0}
)  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    ["died ~ log(age)", "died ~ age * C(stage)", "died ~ I(age/months)", "months ~ log(visits)",
     "died ~ visits + I(visits**2)", "died ~ bs(age, knots=(50, 60), lower_bound=20, upper_bound=100)"],
)  # fmt: skip
def test_no_strange_row_is_noticed_but_by_its_own_part(make: Callable[..., Sites], formula: str) -> None:
    """Each is added by itself: the release has as many numbers, no error, and the other rows are to the last bit."""
    from fpdfp.federation.protected import private_rows
    from fpdfp.federation.questions import read_spec

    sites = make(level="private", masked=False, radius=2.0)
    ranges = {"months": (0, 60)} if formula.startswith("months") else {}
    tree = release_tree(sites, formula=formula, ranges=ranges)
    spec, loss = read_spec(tree["spec"]), tree["release"]["loss"]

    def finite(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        X, y = private_rows(SiteTable.read(table, COLUMNS), spec, loss)
        kept = np.isfinite(X).all(axis=1) & np.isfinite(y)
        return X[kept], y[kept]

    X, y = finite(sites.tables["north"])
    for row in range(len(STRANGE)):
        more, outcomes = finite(pd.concat([sites.tables["north"], STRANGE.iloc[[row]]], ignore_index=True))
        assert len(outcomes) - len(y) in (0, 1)
        assert (more[: len(X)] == X).all()
        assert (outcomes[: len(y)] == y).all()


def test_what_hardly_differs_is_paid_for_again_and_has_other_noise(make: Callable[..., Sites]) -> None:
    """Otherwise an average over questions that differ in the last bit would be without noise."""
    sites = make(level="private", masked=False, radius=2.0, epsilon=3.0)
    tree = release_tree(sites)
    tree["release"] = tree["release"] | {"kind": "gradient", "mu": 0.01, "x": np.zeros(4)}
    near = copy.deepcopy(tree)
    near["release"]["x"] = np.array([np.nextafter(0.0, 1.0), 0, 0, 0])
    for tiny in (near, {**copy.deepcopy(tree), "release": tree["release"] | {"mu": float(np.nextafter(0.01, 1.0))}}):
        first, second = integers(sites, tree), integers(sites, tiny)
        # Noise has some 10⁸ steps: one of 8 differences is so small by chance in 3 of 100,000 runs.
        assert np.abs(first - second).min() > 2**10
    ledger = sites.guards["north"]._ledger
    assert ledger is not None
    assert len(ledger.entries) == 3


def test_other_members_have_other_noise_that_is_paid_for(tmp_path: Path) -> None:
    """With the same noise of the sites that stay, a difference over two memberships has that of two sites alone."""
    found, spent = patients(names=("east", "north", "south", "west")), []
    for names in (("east", "north", "south"), ("east", "north", "south"), ("east", "north", "west")):
        tables = {name: found[name] for name in names}
        with contextlib.closing(Sites(tmp_path, tables, level="private", radius=2.0, epsilon=3.0)) as sites:
            tree = release_tree(sites)
            sites.exchange(tree["run"], {"north": tree})
            spent.append(sites.exchange("c", {"north": {"kind": "budget"}})["north"]["spent"])
    assert spent[0] == spent[1]  # the control: the same members, after a restart and in another run
    assert spent[2] > spent[1]


def test_noise_under_masks_is_the_same_in_every_run(make: Callable[..., Sites]) -> None:
    sites = make(level="private", radius=2.0, epsilon=3.0)
    found = []
    for _ in range(2):
        model = private_model(sites, "died ~ age", rows=900, epsilon=0.5, ranges=RANGES)
        found.append(list(model.coefficients_.values()))
    assert found[0] == found[1]
    assert sites.exchange("c", {"north": {"kind": "budget"}})["north"]["spent"] == pytest.approx(0.5, abs=1e-6)


def test_a_mechanism_that_the_budget_pays_for(make: Callable[..., Sites]) -> None:
    sites = make(patients(2000), level="private", epsilon=20.0, radius=2.0)
    options: dict[str, Any] = {"rows": 6000, "ranges": RANGES}
    kinds = {
        (epsilon, mechanism): {
            kind for kind, _ in private_model(
                sites, "died ~ age", epsilon=epsilon, mechanism=mechanism, **options
            ).privacy_.releases
        }
        for epsilon, mechanism in ((0.01, "newton"), (2.0, "newton"), (2.0, "gradients"), (2.0, "statistics"))
    }  # fmt: skip
    # with 0.01 fewer than three Newton steps would be taken
    assert list(kinds.values()) == [{"statistics"}, {"moments", "gradient", "hessian"}, {"gradient"}, {"statistics"}]


def test_one_row_is_answered_at_private(tmp_path: Path) -> None:
    """At the filter fewer than ten rows are refused; here a refusal would tell, and noise protects instead."""
    for rows in (1, 2, 9):
        tables = patients() | {"north": patients()["north"].iloc[:rows]}
        sites = Sites(tmp_path / f"{rows}", tables, masked=False, level="private", radius=2.0)
        with contextlib.closing(sites):
            assert np.abs(integers(sites, release_tree(sites))).max() > 2**20


def test_the_budget_is_one_for_all_designs_and_analysts(make: Callable[..., Sites]) -> None:
    sites = make(patients(2000), level="private", epsilon=1.0, radius=2.0, masked=False)
    options: dict[str, Any] = {"rows": 6000, "ranges": RANGES}
    private_model(sites, "died ~ age", epsilon=0.5, **options)
    private_model(sites, "died ~ age + C(stage)", epsilon=0.5, mechanism="statistics", **options)
    options["ranges"] = options["ranges"] | {"months": (0, 60)}
    squares = private_model(sites, "months ~ age", epsilon=0.3, **options)
    assert squares.privacy_.releases[0][0] == "statistics"
    with pytest.raises(RefusalError, match=r"spent: epsilon 0\.97"):
        private_model(sites, "died ~ age", epsilon=0.9, **options)
    sites.guards["north"].close()
    sites.tables["north"] = sites.tables["north"].iloc[1:]
    sites.start("north")
    with pytest.raises(RefusalError, match="a person at the site must open an account"):
        private_model(sites, "died ~ age", epsilon=0.1, **options)


@pytest.mark.parametrize("level", ["sums", "private"])
def test_an_older_file_in_the_place_of_a_ledger_or_of_masks_is_noticed(make: Callable[..., Sites], level: str) -> None:
    """With it, a budget would come back, and a mask could be used for other numbers."""
    sites = make(level=level, radius=2.0)
    file = sites.folder / "north" / {"sums": "masks.journal", "private": "privacy.journal"}[level]
    old = file.read_bytes()
    if level == "sums":
        masked_glm(sites, "died ~ age")
    else:
        private_model(sites, "died ~ age", rows=900, epsilon=0.5, ranges=RANGES)
    sites.guards["north"].close()
    new = file.read_bytes()
    for put in (old, new[: len(new) // 2]):
        file.write_bytes(put)
        with pytest.raises(RuntimeError, match="has less than the log of this site"):
            sites.start("north")
    file.unlink()
    with pytest.raises(RuntimeError, match="has less than the log of this site"):
        sites.start("north")
    file.write_bytes(new)
    sites.start("north")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"release": {"kind": "moments", "mu": 1e9}}, "mu must be between"),
        ({"release": {"kind": "rows", "mu": 0.1}}, "kind: must be"),
        ({"release": None}, "release"),
        ({"spec": None}, "a model"),
    ],
)
def test_releases_that_are_no_releases(make: Callable[..., Sites], change: dict[str, Any], message: str) -> None:
    sites = make(level="private", masked=False)
    tree = release_tree(sites) | change
    with pytest.raises((MessageError, RefusalError), match=message):
        sites.exchange("run", {"north": tree})


def test_shares_of_colluders_leave_the_noise_that_is_promised(make: Callable[..., Sites]) -> None:
    """With one of three colluding, the noise of the other two has the whole variance; shared by three it has 2/3."""
    sites = make(patients(50), level="private", radius=2.0, epsilon=100.0)
    tree = release_tree(sites)
    guards = sites.guards.values()
    assert {guard._shares for guard in guards} == {2}
    from fpdfp.cohorts.serialization import validate
    from fpdfp.privacy.releases import Release

    release = validate(tree["release"], Release, "a release")
    whole, share = release.scale(4, 1), release.scale(4, 2)
    assert 2 * share**2 >= whole**2
    assert 2 * release.scale(4, 3) ** 2 < whole**2


# ---------------------------------------------------------------- what other tools expect

PEERS = Path(__file__).parents[1] / ".." / "shared" / "peers" / "v6-glm-py"
CASES: dict[str, tuple[str, str, dict[str, dict[str, Any]], dict[str, float]]] = {
    "gaussian": (
        "Volume ~ Girth", "gaussian", {"Volume": {"type": "number"}, "Girth": {"type": "number"}},
        {"Intercept": -36.94346, "Girth": 5.0658564},
    ),
    "binomial": (
        "admit ~ gre + gpa + C(rank)", "binomial",
        {"admit": {"type": "truth"}, "gre": {"type": "number"}, "gpa": {"type": "number"},
         "rank": {"type": "category", "levels": ["1", "2", "3", "4"]}},
        {"Intercept": -3.989979, "gre": 0.002264, "gpa": 0.804038, "C(rank)[T.2]": -0.675442,
         "C(rank)[T.4]": -1.551464},
    ),
    "poisson": (
        "num_awards ~ C(prog, ref='General') + math", "poisson",
        {"num_awards": {"type": "number"}, "math": {"type": "number"},
         "prog": {"type": "category", "levels": ["Academic", "General", "Vocational"]}},
        {"Intercept": -5.24712, "math": 0.07015},
    ),
}  # fmt: skip


def peers(family: str) -> dict[str, pd.DataFrame]:
    if not PEERS.is_dir():
        pytest.skip("the peers' data are not there")
    return {name: pd.read_csv(PEERS / f"{family}-{name}.csv") for name in "abc"}


@pytest.mark.parametrize("family", CASES)
def test_masked_models_of_peers(tmp_path: Path, family: str) -> None:
    formula, kind, columns, expected = CASES[family]
    with contextlib.closing(Sites(tmp_path, peers(family), level="sums", columns_of_the_table=columns)) as sites:
        fit = masked_glm(sites, formula, kind)
    for name, value in expected.items():  # as printed: to a unit of the last digit
        digits = len(f"{value:f}".rstrip("0").split(".")[1])
        assert fit.coefficients_[name] == pytest.approx(value, abs=1.01 * 10.0**-digits), name
    plain = fpdfp.FederatedGLM(kind, run=EXACT).fit(peers(family), formula)
    for name, value in plain.coefficients_.items():
        assert fit.coefficients_[name] == pytest.approx(value, rel=1e-10), name


def test_the_peers_case_with_a_level_that_one_site_lacks_is_refused(tmp_path: Path) -> None:
    """Vantage6's GLM answers it; a masked sum over two sites that have rank 4 is known to each of the two."""
    tables = peers("binomial")
    tables["a"] = tables["a"][tables["a"]["rank"] != 4]
    formula, kind, columns, _ = CASES["binomial"]
    with (
        contextlib.closing(Sites(tmp_path, tables, level="sums", columns_of_the_table=columns)) as sites,
        pytest.raises(RefusalError, match=r"C\(rank\)\[T.4\].* varies at fewer than 3 sites"),
    ):
        masked_glm(sites, formula, kind)
