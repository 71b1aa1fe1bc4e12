"""A site's policy and desk: every rule refuses in a sentence that tells nothing of the data, and honest runs pass."""

from __future__ import annotations

import dataclasses
import datetime
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import fpdfp
from fpdfp._settings import SettingsError
from fpdfp.cohorts.losses import At
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.site import Memory
from fpdfp.errors import ArgumentError, Refusal
from fpdfp.federation import audit, outbox
from fpdfp.federation.guard import (
    OUTBOX,
    STOPPED,
    TOO_FEW,
    RequestGuard,
    check_columns,
    check_model,
    effective,
    leverages,
    uncommon,
)
from fpdfp.federation.policy import Policy, template
from fpdfp.federation.table import SiteTable
from tests.desks import ANALYST, Desks, ask, close_all, gradient, guarded, make_desk

ZERO = Request((At(np.zeros(4), ["values"]),))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all desks."""
    yield
    close_all()


def rows(n: int = 200, d: int = 4, seed: int = 0) -> tuple[Any, Any]:
    """Return rows and classes of a made-up site."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(n, d - 1)), np.ones((n, 1))], axis=1)
    return X, (X @ rng.normal(size=d) + rng.logistic(size=n) > 0).astype(float)


class TestFile:
    def test_the_template_has_all_defaults(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.toml"
        path.write_text(template())
        assert Policy.read(path) == Policy()
        keys = [line.partition("=")[0].strip() for line in template().splitlines() if "=" in line and line[0] != "#"]
        tables = {"variables", "members", "columns_of_the_table", "off"}
        assert keys == [field.name for field in dataclasses.fields(Policy) if field.name not in tables]
        assert len(keys) <= 19
        path.write_text("rows = 25\n[variables]\nold = 'age > 80'\n[columns_of_the_table.age]\nunit = 'years'")
        found = Policy.read(path)
        assert (found.rows, found.variables) == (25, {"old": "age > 80"})
        assert found.columns_of_the_table == {"age": {"unit": "years"}}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("\nrow = 3", "line 2: the file has no key 'row'; did you mean 'rows'?"),
            ("rows = 'x'", "line 1: rows must be an integer of at least 1, got 'x'"),
            ("hours = 'mon-fri 25:00-26:00'", "line 1: hours must be days and times"),
            ("kinds = ['moment']", "line 1: kinds must hold any of"),
            ("level = 'none'", "line 1: level must be one of 'filter'"),
            ("variables = 1", "line 1: variables must be a section, [variables], got 1"),
            ("[variables]\nold = 'age >'", "'old' cannot be read"),
            ("off = ['points']", "line 1: the file has no key 'off'"),
            ("parameters = 0", "line 1: parameters must be a finite number greater than 0"),
            ("[data", "at the end: this is not TOML"),
        ],
    )
    def test_mistakes_are_told_with_their_line(self, text: str, words: str, tmp_path: Path) -> None:
        path = tmp_path / "policy.toml"
        path.write_text(text)
        with pytest.raises(SettingsError) as error:
            Policy.read(path)
        assert words in str(error.value)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="join` without --policy writes one"):
            Policy.read(tmp_path / "policy.toml")

    @pytest.mark.parametrize(
        "given",
        [
            {"rows": 0}, {"cell": 0}, {"parameters": 0.0}, {"columns": ["a"]}, {"counts": 1}, {"hold": ("x",)},
            {"hours": "mon-fri 08:00-08:00"}, {"hours": "mon-fre 08:00-09:00"}, {"analyses": -1}, {"refusals": 0},
            {"variables": {"old": "center(age)"}},
        ],
    )  # fmt: skip
    def test_every_field_is_checked(self, given: Any) -> None:
        with pytest.raises(ArgumentError):
            Policy(**given)


class TestDesk:
    def test_an_honest_run_has_the_bits_of_a_simulation(self, tmp_path: Path) -> None:
        parts = [rows(400, seed=seed) for seed in range(3)]
        engine = Desks([make_desk(*part, tmp_path, name=f"s{i}") for i, part in enumerate(parts)], {"l2": 1e-3})
        there = engine.fit(tol=1e-6, rounds=500)
        losses = fpdfp.losses.Logistic.from_clients([X for X, _ in parts], [y for _, y in parts], l2=1e-3)
        here = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), tol=1e-6, rounds=500, progress=False)
        assert there.status == here.status == "converged"
        assert there.x.tobytes() == here.x.tobytes()
        first = engine.desks[0]
        assert first.budget.spent.total == 1
        first.close()
        verdict = audit.verify(first.folder)
        assert (verdict.faults, verdict.entries > 5) == ((), True)
        entry = audit.last_entry(first.folder)
        assert entry is not None
        assert (entry.asker, entry.fingerprint, entry.outcome) == ("ann", "ab" * 32, "answered")

    @pytest.mark.parametrize(
        ("policy", "asked", "words"),
        [
            (Policy(kinds=("schema",)), {}, "of the kind 'fits'"),
            (Policy(single_sites=False), {"each": True}, "by themselves"),
            (Policy(rows=201), {}, "at least 201 rows"),
            (Policy(parameters=0.01), {}, "0.01 coefficients"),
            (Policy(analyses=0), {}, "the 0 analyses that it allows"),
        ],
    )
    def test_rules(self, policy: Policy, asked: dict[str, Any], words: str, tmp_path: Path) -> None:
        desk = make_desk(*rows(), tmp_path, policy)
        with pytest.raises(Refusal, match=words):
            ask(desk, ZERO, **asked)
        desk.close()
        entry = audit.last_entry(desk.folder)
        assert entry is not None
        assert (entry.outcome, entry.left < 200) == ("refused", True)

    def test_hours(self, tmp_path: Path) -> None:
        desk = make_desk(*rows(), tmp_path, Policy(hours="mon-sun 08:00-18:00"))
        desk.clock = lambda: datetime.datetime(2026, 1, 5, 12)
        ask(desk, ZERO)
        desk.clock = lambda: datetime.datetime(2026, 1, 5, 19)
        with pytest.raises(Refusal, match="at this hour"):
            ask(desk, ZERO)

    def test_memory_is_not_told(self, tmp_path: Path) -> None:
        none = np.zeros(0, dtype=np.int64)
        with pytest.raises(Refusal, match="'memory'"):
            ask(make_desk(*rows(), tmp_path), Request((Memory(none, [], clients=none),)))

    def test_what_goes_wrong_says_nothing_of_the_data(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        desk = make_desk(*rows(), tmp_path)
        table: Any = desk.table
        table.losses = lambda spec, site: 1 / 0
        reply = desk.answer({"kind": "request", "run": "r", "model": "m", "spec": {}, "request": {}}, ANALYST)
        assert reply == {"error": "ZeroDivisionError at the site; its log says more"}
        assert desk.answer({"kind": "request", "run": "r", "model": "m"}, ANALYST) == {"needs_model": True}
        assert "run" in desk.answer({"kind": "request"}, ANALYST)["error"]

    def test_requests_at_once_wait_for_each_other(self, tmp_path: Path) -> None:
        desk = make_desk(*rows(), tmp_path)
        table: Any = desk.table
        at_once, most, replies = 0, 0, list[Any]()
        counting = threading.Lock()
        answer = table.answer

        def slowly(*given: Any, **options: Any) -> Any:
            nonlocal at_once, most
            with counting:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.02)
            with counting:
                at_once -= 1
            return answer(*given, **options)

        table.answer = slowly
        threads = [
            threading.Thread(target=lambda: replies.append(ask(desk, kind="schema", question={}))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1
        assert replies == [replies[0]] * 4

    def test_the_schema_hides_rare_levels_and_single_values(self, tmp_path: Path) -> None:
        desk = make_desk(*rows(), tmp_path)
        stage, age, patient = ask(desk, kind="schema", question={})["columns"]
        assert patient == {"name": "patient_id", "kind": "hidden"}
        assert (stage["levels"], stage["counts"], stage["missing"]) == (["I", "II"], [50, 7], 3)
        assert (age["least"], age["largest"]) == (None, None)

    def test_rare_classes(self, tmp_path: Path) -> None:
        X, y = rows()
        y[:] = 0.0
        y[0] = 1.0
        with pytest.raises(Refusal, match="classes of at least 3 rows"):
            ask(make_desk(X, y, tmp_path), ZERO)

    def test_too_many_refused_points_stop_everything_until_a_person_looks(self, tmp_path: Path) -> None:
        X, y = rows()
        desk = make_desk(X, y, tmp_path, Policy(refusals=3))
        for _ in range(3):
            with pytest.raises(Refusal, match=TOO_FEW):
                gradient(desk, np.full(4, 1e6))
        with pytest.raises(Refusal, match="until its owner has looked"):
            gradient(desk, np.zeros(4))
        desk.close()
        desk = make_desk(X, y, tmp_path, Policy(refusals=3))
        with pytest.raises(Refusal, match="until its owner has looked"):
            gradient(desk, np.zeros(4))
        (desk.folder / STOPPED).unlink()
        gradient(desk, np.zeros(4))

    @pytest.mark.parametrize(("decide", "outcome"), [(outbox.release, "answered"), (outbox.refuse, "not released")])
    def test_a_person_releases(self, decide: Any, outcome: str, tmp_path: Path) -> None:
        desk = make_desk(*rows(), tmp_path, Policy(hold=("fits",)))
        told: list[Any] = []

        def person() -> None:
            while not (waiting := outbox.waiting(desk.folder / OUTBOX)):
                time.sleep(0.01)
            told.extend(outbox.lines(waiting[0].read_bytes()))
            decide(waiting[0])

        helper = threading.Thread(target=person)
        helper.start()
        try:
            reply = ask(desk, ZERO)
        except Refusal as error:
            reply = {"refused": str(error)}
        helper.join()
        assert any("reply/at/values: float64 of shape (1,): [" in line for line in told)
        assert any("byte by byte" in line for line in told)
        assert ("at" in reply) == (outcome == "answered")
        desk.close()
        entry = audit.last_entry(desk.folder)
        assert entry is not None
        assert entry.outcome == outcome


def test_a_pattern_that_no_column_fits_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = SiteTable.read(pd.DataFrame({"age": np.arange(20.0), "income": np.arange(20.0)}))
    with RequestGuard("north", table, Policy(never=("incme", "age*", "*_id"), columns=("*",)), tmp_path / "north"):
        assert [one.getMessage() for one in caplog.records] == [
            "the policy names the columns 'incme', of which the table has none"
        ]


class TestExposure:
    def test_columns(self) -> None:
        X = np.zeros((20, 3))
        X[:, 0] = np.arange(20)
        X[:5, 1] = 1.0
        X[:5, 2] = 1.0
        policy, names = Policy(), ["a", "b", "c"]
        check_columns(X, names, policy)
        assert np.asarray(uncommon(X).sum(axis=0)).tolist() == [19, 5, 5]
        X[5, 2] = 1.0
        with pytest.raises(
            Refusal, match="the difference of the column 'b' and the column 'c' at this site tells fewer"
        ):
            check_columns(X, names, policy)
        with pytest.raises(Refusal, match="the difference of the column 'c' and the response"):
            check_columns(X[:, [0, 2]], ["a", "c"], policy, {"the response": X[:, 1]})
        X[2:, 1:] = 0.0
        with pytest.raises(Refusal, match="the column 'b' at this site tells fewer than 3 rows") as error:
            check_columns(X, names, policy)
        assert error.value.detail == "2.0 effective rows share its deviations from the middle"
        assert error.value.rule == "cells"
        # 1 + 4 rows, and those 4 in two halves: only a combination of three columns tells the one row.
        X = np.zeros((60, 4))
        X[:9, 0] = X[1:5, 1] = X[5:9, 2] = 1.0
        X[:, 3] = np.random.default_rng(0).normal(size=60)
        with pytest.raises(Refusal, match="a combination of the columns of the model is nearly one row's"):
            check_columns(X, [], policy)
        q = np.linalg.qr(X)[0]
        np.testing.assert_allclose(leverages(X), np.square(q).sum(axis=1), atol=1e-9)

    def test_effective_rows(self) -> None:
        assert effective(np.array([1e-200, 1e-200, 0.0])) == pytest.approx(2.0)
        assert effective(np.zeros(4)) == 0.0

    def test_what_is_watched_answers_with_the_same_bits(self) -> None:
        X, y = rows()
        for kind, targets in (("Logistic", y), ("LeastSquares", y), ("Softmax", (np.arange(200) % 3).astype(float))):
            plain = getattr(fpdfp.losses, kind)(X, targets)
            seen = guarded(plain)
            x, one = np.full(plain.shape, 0.1), np.arange(1)
            assert seen.family == plain.family
            assert seen.gradients(x, one).tobytes() == plain.gradients(x, one).tobytes()
            assert seen.values(x, one).tobytes() == plain.values(x, one).tobytes()
            kept = np.array([0, 2])
            some, short = seen.restrict(kept), x[..., :2]
            assert some.gradients(short, one).tobytes() == plain.restrict(kept).gradients(short, one).tobytes()
            if kind == "LeastSquares":
                continue
            steep = 1e9 * np.arange(1.0, 1.0 + x.size).reshape(x.shape)
            for asked, point in ((seen.values, steep), (seen.gradients, steep), (some.gradients, steep[..., :2])):
                with pytest.raises(Refusal, match=TOO_FEW):
                    asked(point, one)

    def test_honest_fits_of_nearly_separable_data(self) -> None:
        """The paths of breast cancer are answered to where fewer rows than coefficients decide."""
        X, y = load_breast_cancer(return_X_y=True)
        X = np.concatenate([(X - X.mean(axis=0)) / X.std(axis=0), np.ones((len(y), 1))], axis=1)
        seen = guarded(fpdfp.losses.Logistic(X, y))
        check_model(fpdfp.losses.Logistic(X, y), Policy())
        answered = {}
        for weight in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 0.0):
            problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=1e-6), fpdfp.penalties.L1(weight))
            x = fpdfp.minimize(problem).x
            try:
                seen.values(x, np.arange(1))
                answered[weight] = True
            except Refusal:
                answered[weight] = False
        assert answered == dict.fromkeys((0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4), True) | {0.0: False}

    @pytest.mark.slow
    @pytest.mark.parametrize("split", ["at random", "by label"])
    def test_honest_runs_on_a9a(self, split: str, tmp_path: Path) -> None:
        """Three sites, the columns that each has in 20 rows: the path is answered, and no reply is an outlier."""
        try:
            data = fpdfp.datasets.load("a9a", download=False)
        except fpdfp.errors.DataSetError:
            pytest.skip("a9a is not on this machine")
        X, y, rng = data.X, data.y, np.random.default_rng(0)
        order = rng.permutation(len(y)) if split == "at random" else np.argsort(y + 8.0 * rng.random(len(y)))
        parts = np.array_split(order, 3)
        for part in parts:
            with pytest.raises(Refusal):
                check_model(fpdfp.losses.Logistic(X[part], y[part]), Policy())
        often = np.min([np.asarray((X[part] != 0).sum(axis=0)).ravel() for part in parts], axis=0) >= 20
        X = X[:, np.flatnonzero(often)]
        desks = [make_desk(X[part], y[part], tmp_path, name=f"site {i}") for i, part in enumerate(parts)]
        for weight in (1e-2, 1e-3, 1e-4):
            engine = Desks(desks, {"l2": 1e-5})
            assert engine.fit(fpdfp.penalties.L1(weight), tol=1e-3, rounds=300).status == "converged"
            assert engine.totals.refused == 0

    @pytest.mark.parametrize(("name", "answered"), [("wine", 0.1), ("iris", 0.1)])
    def test_classes_that_are_well_separated(self, name: str, answered: float) -> None:
        from sklearn import datasets
        from sklearn.linear_model import LogisticRegression

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        X = np.concatenate([(X - X.mean(axis=0)) / X.std(axis=0), np.ones((len(y), 1))], axis=1)
        seen = guarded(fpdfp.losses.Softmax(X, y))
        for strength in (answered, 1.0):
            x = LogisticRegression(C=strength, max_iter=10_000, fit_intercept=False).fit(X, y).coef_
            if strength == answered:
                seen.values(x, np.arange(1))
            else:
                with pytest.raises(Refusal, match=TOO_FEW):
                    seen.values(x, np.arange(1))
