"""Attacks of a coordinator on the rows of a site: each succeeds where everything is allowed, and fails by default."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares
from scipy.special import expit

import fpdfp
from fpdfp.cohorts.losses import Constants
from fpdfp.cohorts.requests import Address, Place, Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress import decode
from fpdfp.errors import Refusal, RefusalError
from fpdfp.federation import questions
from fpdfp.federation.guard import TOO_FEW
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import MomentsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Column, Numeric
from fpdfp.precondition.exchange import Exact
from tests.desks import ANALYST, Desks, ask, close_all, gradient, make_desk
from tests.levels import at_all_levels  # noqa: F401 — each question is asked at all levels

#: The features of all attacks, the last of which is one for everybody.
D = 31
OPEN = Policy.allowing_everything()
#: The defaults, but for the rules on rows, so that those on points and on what is released are seen alone.
FEW_ROWS = Policy(rows=1, cell=1, parameters=1e9, off=frozenset({"leverage"}))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all desks."""
    yield
    close_all()


def make_rows(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of a made-up site, and its classes."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(n, D - 1)), np.ones((n, 1))], axis=1)
    y = X @ rng.normal(size=D) * 0.5 + rng.logistic(size=n) > 0
    y[:2] = [False, True]  # both classes are there
    return X, y.astype(float)


def found(rows: list[Any], X: Any, close: float = 1e-4) -> int:
    """Return how many of the rows of a site are among those that an attacker thinks it has."""
    return sum(bool((np.abs(X - row).max(axis=1) < close).any()) for row in rows)


Oracle = Callable[[Any], Any]


class Bisection:
    """Isolates rows with steep planes along a direction, whose gradients differ by the rows between two planes.

    The entry of the intercept counts these rows, and their sum tells where to cut next: a cut at their mean leaves some
    on each side, so every gradient is of use.
    """

    def __init__(self, oracle: Oracle, rows: int, steepness: float = 1e9, seed: int = 1) -> None:
        self.oracle, self.rows, self.steepness = oracle, rows, steepness
        self.asked = 0
        self.direction = np.random.default_rng(seed).normal(size=D)
        self.direction[-1] = 0.0

    def beyond(self, cut: float) -> Any:
        """Return the sum of the rows beyond a cut, up to what does not depend on it."""
        point = self.steepness * self.direction
        point[-1] = -self.steepness * cut
        self.asked += 1
        return self.rows * self.oracle(point)

    def isolate(self, wanted: int, most: int) -> list[Any]:
        """Return so many single rows, or as many as that many gradients give."""
        far = 1e3
        low, high = self.beyond(-far), self.beyond(far)
        heap: list[Any] = []
        ticket = itertools.count()

        def add(a: float, at_a: Any, b: float, at_b: Any) -> None:
            total = at_a - at_b
            count = round(total[-1])
            if count == 1:
                single.append(total)
            elif count > 1:
                heapq.heappush(heap, (count, next(ticket), a, at_a, b, at_b))

        single: list[Any] = []
        add(-far, low, far, high)
        while heap and len(single) < wanted and self.asked < most:
            count, _, a, at_a, b, at_b = heapq.heappop(heap)
            cut = float(self.direction @ (at_a - at_b)) / count
            at_cut = self.beyond(cut)
            add(a, at_a, cut, at_cut)
            add(cut, at_cut, b, at_b)
        return single


class TestChosenPoints:
    @pytest.mark.parametrize(("n", "most"), [(5, 12), (50, 82)])
    def test_few_gradients_tell_all_rows_of_a_small_site(self, n: int, most: int, tmp_path: Path) -> None:
        X, y = make_rows(n)
        open_desk = make_desk(X, y, tmp_path / "open", OPEN)
        attack = Bisection(lambda x: gradient(open_desk, x), n)
        assert found(attack.isolate(n, most), X) == n
        assert attack.asked == n + 1

        with pytest.raises(Refusal, match="at least 10 rows" if n < 10 else "coefficients"):
            gradient(make_desk(X, y, tmp_path / "default"), np.zeros(D))
        # The rule on points stops the first steep one, also where so few rows are allowed.
        desk = make_desk(X, y, tmp_path / "points", FEW_ROWS)
        with pytest.raises(Refusal, match=TOO_FEW):
            Bisection(lambda x: gradient(desk, x), n).isolate(n, most)

    def test_the_bisection_of_a_large_site(self, tmp_path: Path) -> None:
        X, y = make_rows(50_000)
        open_desk = make_desk(X, y, tmp_path / "open", OPEN)
        attack = Bisection(lambda x: gradient(open_desk, x), len(y))
        assert found(attack.isolate(20, 31), X) >= 15
        assert attack.asked <= 31

        desk = make_desk(X, y, tmp_path / "default")
        with pytest.raises(Refusal, match=TOO_FEW):
            Bisection(lambda x: gradient(desk, x), len(y)).isolate(20, 31)

    def test_sums_over_sites_do_not_stop_the_bisection_and_sites_do(self, tmp_path: Path) -> None:
        parts = [make_rows(4000, seed) for seed in range(3)]
        X = np.concatenate([part[0] for part in parts])

        def total(desks: list[Desk]) -> Oracle:
            return lambda x: np.mean([gradient(desk, x) for desk in desks], axis=0)

        open_desks = [make_desk(*part, tmp_path / f"open {i}", OPEN) for i, part in enumerate(parts)]
        assert found(Bisection(total(open_desks), len(X)).isolate(20, 40), X) >= 20
        desks = [make_desk(*part, tmp_path / f"default {i}") for i, part in enumerate(parts)]
        with pytest.raises(Refusal, match=TOO_FEW):
            Bisection(total(desks), len(X)).isolate(20, 40)

    @pytest.mark.parametrize("steepness", [3.0, 30.0, 300.0, 3e3])
    def test_no_steepness_that_is_answered_isolates_a_row(self, steepness: float, tmp_path: Path) -> None:
        X, y = make_rows(2000)
        desk = make_desk(X, y, tmp_path, Policy(refusals=10**6))
        rows: list[Any] = []
        with contextlib.suppress(Refusal):
            rows = Bisection(lambda x: gradient(desk, x), len(y), steepness).isolate(20, 60)
        assert found(rows, X, close=0.5) == 0

    @pytest.mark.slow
    def test_smooth_planes_cannot_be_undone(self, tmp_path: Path) -> None:
        """An attacker who knows where rows are along the direction, and asks as steeply as is answered, gets noise."""
        X, y = make_rows(2000)

        def resolve(desk: Desk, steepness: float, cuts: int) -> tuple[int, int]:
            attack = Bisection(lambda x: gradient(desk, x), len(y), steepness)
            forms = X @ attack.direction
            order = np.argsort(np.abs(forms))[:40]
            span = float(np.abs(forms[order]).max())
            asked = np.linspace(-span, span, cuts)
            sums = []
            for cut in asked:
                try:
                    sums.append((cut, attack.beyond(float(cut))))
                except Refusal:
                    continue
            if len(sums) < 40:
                return 0, len(sums)
            known = np.array([cut for cut, _ in sums])
            changes = np.diff([total for _, total in sums], axis=0)
            weights = np.diff(expit(steepness * (forms - known[:, None])), axis=0)
            left, sizes, right = np.linalg.svd(weights, full_matrices=False)
            best = 0
            for precision in 10.0 ** -np.arange(2, 15):
                kept = sizes > precision * sizes[0]
                rows = right[kept][:, order].T @ (left[:, kept].T @ changes / sizes[kept, None])
                best = max(best, int((np.abs(rows - X[order]).max(axis=1) < 0.1).sum()))
            return best, len(sums)

        loose = Policy(refusals=10**6, analyses=10**6)
        assert resolve(make_desk(X, y, tmp_path / "open", OPEN), 3000.0, 160)[0] >= 30
        answered = {s: resolve(make_desk(X, y, tmp_path / f"s{s}", loose), s, 160) for s in (10.0, 30.0, 100.0)}
        assert answered[10.0][1] > 100
        assert answered[100.0][1] < 40
        assert max(rows for rows, _ in answered.values()) == 0

    def test_a_plane_that_is_steep_for_some_rows_alone(self, tmp_path: Path) -> None:
        """With an indicator and its product with a measurement, z is 0 for all other rows, whose curvature is full."""
        rng = np.random.default_rng(0)
        inside = np.arange(1000) < 60
        X = np.stack([inside, inside * rng.normal(size=1000), np.ones(1000)], axis=1)
        y = (rng.random(1000) < 0.5).astype(float)

        def steep(cut: float) -> Any:
            return np.array([-cut, 1.0, 0.0]) * 1e6

        values = np.sort(X[inside, 1])
        cuts = (values[30] + values[31]) / 2, (values[31] + values[32]) / 2
        open_desk = make_desk(X, y, tmp_path / "open", OPEN)
        row = 1000 * (gradient(open_desk, steep(cuts[0])) - gradient(open_desk, steep(cuts[1])))
        assert found([row], X) == 1
        desk = make_desk(X, y, tmp_path / "default")
        with pytest.raises(Refusal, match=TOO_FEW):
            gradient(desk, steep(cuts[0]))

    def test_a_change_of_one_row_alone_is_refused(self, tmp_path: Path) -> None:
        """Two indicators of many rows that differ in a few: a point may move these few alone."""
        rng = np.random.default_rng(0)
        first = np.arange(500) < 100
        second = np.arange(500) < 96
        X = np.stack([first, second, rng.normal(size=500), np.ones(500)], axis=1).astype(float)
        X[96:100, 2] = [0.0, 0.0, 0.0, 1.0]
        y = (rng.random(500) < 0.5).astype(float)
        points = np.zeros((2, 4))
        points[1] = [1e-3, -1e-3, 0.0, 0.0]
        desk = make_desk(X, y, tmp_path / "four rows")
        for point in points:
            gradient(desk, point)
        X[97:100, :2] = 1.0
        both = make_desk(X, y, tmp_path / "neither rule", Policy(off=frozenset({"cells", "leverage"})))
        change = gradient(both, points[1]) - gradient(both, points[0])
        np.testing.assert_allclose(change[1:] / change[-1], X[96, 1:], atol=1e-6)
        for off, words in ((), "fewer than 3 rows"), (("cells",), "nearly one row's alone"):
            with pytest.raises(Refusal, match=words):
                gradient(make_desk(X, y, tmp_path / f"without {off}", Policy(off=frozenset(off))), points[0])


class TestSmallBatches:
    def test_single_rows_of_a_large_site(self, tmp_path: Path) -> None:
        X, y = make_rows(20_000)
        method = fpdfp.FedSGD(batch_size=1, step=1e-9)

        def attack(desk: Desk) -> list[Any]:
            engine = Desks([desk], {"l2": 0.0})
            full = fpdfp.compress.Full()
            engine.fit(fpdfp.penalties.Zero(), method=method, rounds=300, compressor=full, seed=7, evaluate_every=300)
            replies = [reply["update"]["frames"] for _, reply in engine.seen if "update" in reply]
            gradients = [decode(frame) for frames in replies for frame in next(iter(frames.values()))]
            # At zero a gradient is half the row, with the sign of its class; the last feature is 1.
            return [np.append(g[:-1] / g[-1], 1.0) for g in gradients]

        rows = attack(make_desk(X, y, tmp_path / "open", OPEN))
        assert (len(rows), found(rows, X, close=1e-3)) == (300, 300)
        with pytest.raises(RefusalError, match="mini-batches"):
            attack(make_desk(X, y, tmp_path / "default"))

    def test_constants_for_batches_tell_the_longest_row(self, tmp_path: Path) -> None:
        X, y = make_rows(400)
        request = Request((Constants(fpdfp.linops.Diagonal(np.eye(D)[3]), None, 1),))
        told = ask(make_desk(X, y, tmp_path / "open", OPEN), request)["constants"]["constants"][0]
        assert told * 4 == pytest.approx(np.abs(X[:, 3]).max() ** 2)
        with pytest.raises(Refusal, match="constants for mini-batches"):
            ask(make_desk(X, y, tmp_path / "default"), request)


class TestMoments:
    def test_of_one_row(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(1, 6))
        request = Request((Exact("moments"),), Address(place=Place(np.array([0]), None, 1.0, 0), clients=np.array([0])))

        def attack(desk: Desk) -> Any:
            triangle = ask(desk, request, model={"family": "LeastSquares"})["exact_moments"]["triangle"][0]
            gram = np.zeros((6, 6))
            gram[np.tril_indices(6)] = triangle
            values, vectors = np.linalg.eigh(gram + np.tril(gram, -1).T)
            row = vectors[:, -1] * np.sqrt(values[-1])
            return row * np.sign(row[0] * X[0, 0])

        assert found([attack(make_desk(X, [1.5], tmp_path / "open", OPEN))], X) == 1
        with pytest.raises(Refusal, match="at least 10 rows"):
            attack(make_desk(X, [1.5], tmp_path / "default"))
        design = Design(Column("x0"), tuple(Term((Numeric(f"x{i}", Column(f"x{i}")),), i) for i in range(6)), ())
        table = SiteTable.read(pd.DataFrame(X, columns=[f"x{i}" for i in range(6)]))
        for policy in (OPEN, Policy()):
            with Desk("north", table, policy, tmp_path / f"asked {policy.rows}") as site:
                asked = questions.write(MomentsQuestion(design, np.zeros(0))) | {"run": "run", "sequence": 1}
                reply = site.answer(unpack(pack(asked)), ANALYST)
                if policy is OPEN:
                    assert reply["reply"]["mean"] == pytest.approx(X[0])
                else:
                    assert "at least 10 rows" in reply["refused"]

    def test_of_few_rows_for_each_feature(self, tmp_path: Path) -> None:
        """Products of pairs of 31 features of 150 rows are a third of what the rows are; a fifth is the most."""
        request = Request((Exact("moments"),), Address(place=Place(np.array([0]), None, 1.0, 0), clients=np.array([0])))
        for model in ({}, {"family": "LeastSquares"}):
            ask(make_desk(*make_rows(160), tmp_path, name=f"enough {model}"), request, model=model)
            with pytest.raises(Refusal, match=r"at most 0\.2 coefficients"):
                ask(make_desk(*make_rows(150), tmp_path, name=f"few {model}"), request, model=model)


class TestWatching:
    """A coordinator that follows the protocol, and keeps what it sees."""

    @staticmethod
    def watch(desk: Desk, penalties: list[float], rounds: int = 30) -> list[tuple[Any, Any]]:
        """Return all points at which exact gradients were told, and these."""
        told = []
        for number, weight in enumerate(penalties):
            engine = Desks([desk], {"l2": 1e-3})
            _ = engine.fit(fpdfp.penalties.L1(weight), rounds=rounds, seed=number).certificate  # with all it asks for
            for request, reply in engine.seen:
                if reply.get("at", {}).get("gradients") is not None:
                    told.append((request["at"]["x"], reply["at"]["gradients"][0]))
                if reply.get("duals", {}).get("gradient") is not None and request["duals"].get("x") is not None:
                    told.append((request["duals"]["x"], reply["duals"]["gradient"]))
        return told

    @staticmethod
    def solve(told: list[tuple[Any, Any]], n: int, starts: int, ridge: float = 1e-3) -> list[Any]:
        """Return the rows and classes that fit all gradients, if there is one solution that is found.

        Gradients without the ridge are combinations of the rows: their span is known, and in it n² numbers are not.
        """
        points = [np.zeros(D), *(x for x, _ in told)]
        slopes = np.array([g - ridge * x for x, g in told])
        span = np.linalg.svd(slopes)[2][:n]
        where, seen = np.array(points[1:]) @ span.T, slopes @ span.T
        ones = span[:, -1]

        def misfit(unknown: Any) -> Any:
            rows, classes = unknown[: n * n].reshape(n, n), unknown[n * n :]
            errors = (expit(where @ rows.T) - classes) @ rows / n - seen
            return np.concatenate([errors.ravel() / np.abs(seen).max(), rows @ ones - 1.0])

        def slopes_of(unknown: Any) -> Any:
            rows, classes = unknown[: n * n].reshape(n, n), unknown[n * n :]
            p = expit(where @ rows.T)
            by_row = np.einsum("ki,kj,il->klij", p * (1 - p), where, rows)
            by_row += np.einsum("ki,jl->klij", p - classes, np.eye(n))
            by_class = np.broadcast_to(-rows.T, (len(where), n, n))
            errors = np.concatenate([by_row.reshape(-1, n * n), by_class.reshape(-1, n)], axis=1) / n
            sums = np.concatenate([np.kron(np.eye(n), ones), np.zeros((n, n))], axis=1)
            return np.concatenate([errors / np.abs(seen).max(), sums])

        rng = np.random.default_rng(0)
        for _ in range(starts):
            start = np.concatenate([(ones + rng.normal(size=(n, n)) * 3).ravel(), rng.random(n)])
            fit = least_squares(misfit, start, slopes_of, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200)
            if np.abs(fit.fun).max() < 1e-9:
                rows = fit.x[: n * n].reshape(n, n) @ span
                return [np.append(row, label) for row, label in zip(rows, fit.x[n * n :], strict=True)]
        return []

    def test_runs_on_the_same_five_rows(self, tmp_path: Path) -> None:
        X, y = make_rows(5)
        whole = np.column_stack([X, y])
        one = self.watch(make_desk(X, y, tmp_path / "one", OPEN), [0.01])
        assert found(self.solve(one, 5, 40), whole, close=0.05) == 0
        six = self.watch(make_desk(X, y, tmp_path / "six", OPEN), [0.1, 0.05, 0.02, 0.01, 0.005, 0.001])
        assert found(self.solve(six, 5, 40), whole, close=0.05) == 5
        with pytest.raises(RefusalError, match="at least 10 rows"):
            self.watch(make_desk(X, y, tmp_path / "default"), [0.01])
