"""Few features first: a guess may be wrong, the result is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fpdfp
from fpdfp import losses, penalties
from fpdfp.cohorts.site import Site
from fpdfp.compress import Natural
from fpdfp.engines import checkpoint, working_set
from fpdfp.engines.prepare import RunOptions
from fpdfp.engines.working_set import Slopemeter
from fpdfp.errors import MessageError
from fpdfp.linops import Difference
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import FeatureBounds, Slopes
from fpdfp.rng import Draws
from fpdfp.traffic import digest
from tests.loopback import Loopback


def draw(rows: int = 240, d: int = 600, **given: Any) -> fpdfp.Problem:
    """Least squares with features that are alike, of which few matter, at three clients; one has no weight."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, d)) + np.repeat(rng.standard_normal((rows, d // 10)), 10, axis=1)
    y = X[:, :80:10] @ np.array([3.0, -2, 2, -3, 1, 1, -1, 2]) + 0.1 * rng.standard_normal(rows)
    smooth = losses.LeastSquares(X, y, clients=np.arange(rows) % 3, **{"l2": 0.01, **given})
    return fpdfp.Problem(smooth, penalties.L1(np.where(np.arange(d) == 5, 0.0, 1.0)))


@pytest.fixture(scope="module")
def problem() -> fpdfp.Problem:
    return draw()


@pytest.fixture(scope="module")
def best(problem: fpdfp.Problem) -> Any:
    return fpdfp.minimize(problem, tol=1e-9)


def check(result: fpdfp.Result, problem: fpdfp.Problem, best: Any, tol: float) -> None:
    """What a result says of the whole problem is so."""
    gap = result.certificate.gap
    assert gap is not None
    assert -1e-9 * best.objective <= result.objective - best.objective <= gap
    assert gap <= tol * abs(result.objective)
    assert np.isclose(problem.objective(result.x), result.objective, rtol=1e-12)
    assert result.x.shape == result.v.shape == result.certificate.v.shape == problem.model.shape
    assert problem.penalty.conjugate(result.v) == 0


def test_few_features_are_enough(problem: fpdfp.Problem, best: Any) -> None:
    result = fpdfp.solve(problem, rounds=600, tol=1e-6)
    assert result.status == "converged"
    assert result.features is not None
    assert len(result.features.numbers) < 200
    check(result, problem, best, 1e-6)
    quantizers: Any = {"compressor": fpdfp.QSGD(5, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner="auto"), rounds=600, tol=1e-6, **quantizers)
    assert result.bits_up < whole.bits_up / 2


@pytest.mark.parametrize("tightest", [0.1, 2.0])
def test_a_wrong_guess_is_found_out(
    problem: fpdfp.Problem, best: Any, tightest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one feature first and none added to it, the certificate of all features adds them, or takes all."""
    monkeypatch.setattr(working_set, "_steepest", lambda ratios, least, most: np.array([int(np.argmax(ratios))]))
    monkeypatch.setattr(working_set, "TIGHTEST", tightest)
    result = fpdfp.solve(problem, rounds=2000, tol=1e-5)
    assert result.status == "converged"
    check(result, problem, best, 1e-5)
    assert (result.features is None) == (tightest > 1)


@pytest.mark.parametrize("kind", ["logistic", "squares", "float32", "no ridge"])
def test_few_levels_certify_all_features(kind: str) -> None:
    """Where all features have a penalty, no exact gradient of all features is sent, and the gap is a bound."""
    rng = np.random.default_rng(5)
    rows, d = 300, 2000
    X = rng.standard_normal((rows, d)).astype(np.float32 if kind == "float32" else np.float64)
    y = (X[:, :5] @ np.array([2.0, -2, 1, 1, -1]) + rng.standard_normal(rows) > 0).astype(float)
    given: Any = {"clients": np.arange(rows) % 3, "l2": 0.0 if kind == "no ridge" else 0.01}
    smooth = losses.LeastSquares(X, y, **given) if kind == "squares" else losses.Logistic(X, y, **given)
    problem = fpdfp.Problem(smooth, penalties.L1(0.3 * float(np.abs(X.T @ (y - y.mean())).max()) / rows))
    tol = 1e-4 if kind == "float32" else 1e-6
    result = fpdfp.solve(problem, rounds=2000, tol=tol)
    assert result.status == "converged"
    assert result.features is not None
    exact = fpdfp.Problem(
        type(smooth)(X.astype(np.float64), y, **given),
        penalties.L1(problem.penalty.weight),  # type: ignore[attr-defined]
    )
    best = fpdfp.minimize(exact, tol=1e-10)
    gap = result.certificate.gap
    assert gap is not None
    error = exact.objective(result.x.astype(np.float64)) - best.objective
    assert -1e-9 <= error <= gap <= tol * abs(result.objective)
    assert problem.penalty.conjugate(result.certificate.v) == 0
    # 4,095 levels and a sign take thirteen bits, or somewhat more where few numbers are large; an exact number 64.
    assert result.traffic["certificate"].up < 3 * 18 * d + 3 * 64 * 20 * len(result.features.numbers)
    # A dual point of the whole problem that is made of exact gradients says the same.
    again = exact.certificate(result.x.astype(np.float64), thorough=False)
    assert again.gap is not None
    assert error <= again.gap <= 1.5 * gap + 1e-9


def test_steep_features_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was guessed: a feature whose slope may exceed its weight is added before a run ends."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 600))
    y = X[:, :30] @ rng.standard_normal(30) + rng.standard_normal(200)
    problem = fpdfp.Problem(losses.LeastSquares(X, y, clients=np.arange(200) % 4), penalties.L1(0.5))
    monkeypatch.setattr(working_set, "_steepest", lambda ratios, least, most: np.array([int(np.argmax(ratios))]))
    result = fpdfp.solve(problem, rounds=3000, tol=1e-6)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert result.status == "converged"
    assert result.objective - best.objective <= 1e-6 * best.objective
    assert len(np.flatnonzero(best.x)) > 20


def test_a_run_that_ends_early_is_certified_with_all_features(problem: fpdfp.Problem, best: Any) -> None:
    result = fpdfp.solve(problem, rounds=2, tol=1e-6)
    assert result.status == "finished"
    check(result, problem, best, np.inf)


@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_where_the_penalty_is_too_heavy_zero_is_the_solution(ridge: float) -> None:
    """At zero no slope is near its weight, so that a guess has no feature at all."""
    smooth = draw(d=200, l2=ridge).losses
    steepest = np.abs(smooth.gradient(np.zeros(200), np.full(3, 1 / 3))).max()
    for share in (1.01, 20.0):
        result = fpdfp.solve(fpdfp.Problem(smooth, penalties.L1(share * steepest)), rounds=50, tol=1e-6)
        assert result.status == "converged"
        assert not result.x.any()


def test_sites_begin_with_the_same_features(problem: fpdfp.Problem) -> None:
    here = fpdfp.solve(problem, rounds=600, tol=1e-6, evaluate_every=50)
    there = fpdfp.Problem(Loopback(problem).losses(), problem.penalty)
    result = fpdfp.solve(there, rounds=600, tol=1e-6, evaluate_every=50)
    np.testing.assert_array_equal(result.x, here.x)
    assert result.traffic == here.traffic


def test_a_run_goes_on_to_the_same_bits(problem: fpdfp.Problem, tmp_path: Path) -> None:
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "checkpoint_every": 1, "evaluate_every": 50}
    whole = fpdfp.solve(problem, checkpoint=tmp_path / "whole", **given)
    seen: dict[int, float] = {}
    for cut in (2, whole.features.since if whole.features else 0, whole.rounds - 1):
        file = tmp_path / str(cut)

        def stop(run: fpdfp.Run, cut: int = cut) -> bool:
            return run.round == cut

        fpdfp.solve(problem, checkpoint=file, callbacks=[stop], **given)
        saved = checkpoint.load(file).features
        assert saved is not None
        seen[cut] = saved.until
        again = fpdfp.solve(problem, checkpoint=file, resume=True, **given)
        np.testing.assert_array_equal(again.x, whole.x)
        assert again.traffic == whole.traffic
        assert str(again) == str(whole)
    assert seen[2] == working_set.FIRST
    finer = fpdfp.solve(problem, checkpoint=tmp_path / "whole", resume=True, rounds=2000, tol=1e-8)
    assert finer.status == "converged"
    assert finer.certificate.relative_gap is not None
    assert finer.certificate.relative_gap <= 1e-8


def test_slopes_are_those_at_a_point(problem: fpdfp.Problem) -> None:
    everyone = np.arange(3)
    x = np.zeros(600)
    x[[3, 80]] = 1.0, -2.0
    for point, told in ((np.zeros(600), None), (x, Announced.plain(x.astype(np.float32)))):
        question = Slopes(told)
        sent = question.answer(problem.local(everyone))
        [(compressor, shape)] = question.messages(problem.model.shape).values()
        assert sent.slope.shape[1:] == shape
        decoded = compressor.compress(sent.slope, Draws(0, 0, everyone), 0).values
        mean = question.add_up(type(sent)(decoded), everyone)[0] / 3
        np.testing.assert_allclose(mean, problem.gradient(point), atol=np.abs(sent.slope).max() / 255)
    with pytest.raises(ValueError, match=r"x must have shape \(600,\), got \(2,\)"):
        Slopes(Announced.plain(np.ones(2, dtype=np.float32))).answer(problem.local(everyone))


def test_slopes_of_some_features() -> None:
    """They are those of all, in the places of a mask; a mask that is none is refused."""
    problem, everyone = draw(), np.arange(3)
    mask = np.zeros(600, dtype=np.float32)
    mask[[2, 80, 599]] = 1.0
    x = Announced.plain(np.linspace(-1, 1, 600).astype(np.float32))
    question = Slopes(x, 4095, Announced.plain(mask))
    sent = question.answer(problem.local(everyone))
    whole = Slopes(x, 4095).answer(problem.local(everyone))
    np.testing.assert_array_equal(sent.slope, whole.slope[:, [2, 80, 599]])
    assert question.messages(problem.model.shape)["slope"][1] == (3,)
    for wrong in (np.zeros(600), np.full(600, 2.0), np.ones(3)):
        with pytest.raises(ValueError, match="a zero or a one for each of the 600 features"):
            Slopes(None, 63, Announced.plain(wrong.astype(np.float32))).messages(problem.model.shape)


@pytest.mark.parametrize("scale", [1.0, 0.999])
def test_bounds_of_slopes_hold_and_are_fine_where_it_matters(problem: fpdfp.Problem, best: Any, scale: float) -> None:
    """No bound is below the slope; features that coarse levels leave in doubt are known to a part in a thousand."""
    x = scale * best.x
    known = np.flatnonzero(x)
    options = RunOptions(rounds=1, tol=1e-6)
    clients = Slopemeter(problem, None, options)
    looked = clients.bound(x, known)
    others = np.setdiff1d(np.arange(600), np.append(known, 5))
    exact = np.abs(problem.gradient(x))
    assert (looked.ratios[others] >= exact[others]).all()
    doubtful = others[looked.ratios[others] > 0.99]
    np.testing.assert_allclose(looked.ratios[doubtful], exact[doubtful], atol=0.05)
    assert looked.up < 3 * (600 * 10 + 100 * 16)


KINDS = {"logistic": losses.Logistic, "least squares": losses.LeastSquares, "softmax": losses.Softmax}


def draw_problem(kind: str, seed: int) -> fpdfp.Problem:
    """A small problem: features of different sizes, correlated, with an intercept, with or without a ridge."""
    rng = np.random.default_rng(seed)
    n, d = 60, 24
    X = rng.standard_normal((n, d)) + rng.uniform(0, 1.5) * rng.standard_normal((n, 1))
    X *= 10.0 ** rng.uniform(-1.5, 0.5, d) * rng.binomial(1, rng.uniform(0.1, 1.0, d), (n, d))
    X[:, 0] = 1.0
    z = X @ (rng.standard_normal(d) * (rng.random(d) < 0.3))
    y: Any = z + 0.1 * rng.standard_normal(n)
    if kind != "least squares":
        y = np.digitize(y, np.quantile(y, [0.5] if kind == "logistic" else [0.3, 0.6]))
    smooth = KINDS[kind](X, y, clients=np.arange(n) % 3, l2=float(rng.choice([0.0, 1e-3, 0.1])))
    slopes = np.abs(smooth.gradient(np.zeros(smooth.shape), np.full(3, 1 / 3)))
    weight = np.full(smooth.shape, float(slopes.max()) * rng.uniform(0.05, 0.5)) * rng.uniform(0.5, 1.5, d)
    weight[..., 0] = 0.0
    return fpdfp.Problem(smooth, penalties.L1(weight))


def sent_bounds(problem: fpdfp.Problem, kind: Any) -> Any:
    """What the server knows of bounds for each feature after the exchange."""
    question, everyone = FeatureBounds(kind), np.arange(problem.n_clients)
    sent = question.answer(problem.local(everyone))
    [(compressor, shape)] = question.messages(problem.model.shape).values()
    assert sent.powers.shape[1:] == shape
    decoded = compressor.compress(sent.powers, Draws(0, 0, everyone), 0).values
    np.testing.assert_array_equal(decoded, sent.powers)
    return question.add_up([decoded], everyone)[0] / problem.n_clients


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_slopes_are_bounded(kind: str) -> None:
    for seed in range(6):
        problem = draw_problem(kind, seed)
        own = problem.local(np.arange(3)).slope_bounds()
        assert own is not None
        exact = own.mean(axis=0)
        bounds = sent_bounds(problem, "slopes")
        assert ((bounds >= exact) & (bounds <= 2**0.25 * exact)).all()
        ridge = problem.losses.least_convexity
        for size in (0.1, 10.0, 1000.0):
            x = size * np.random.default_rng(seed).standard_normal(problem.model.shape)
            assert (np.abs(problem.gradient(x) - ridge * x) <= bounds * (1 + 1e-9)).all()


def test_bounds_that_cannot_be_sent_are_infinite() -> None:
    question = FeatureBounds("curvatures")
    sent = np.array([[1.0, 0.0, 2.0**120], [1.0, 1.0, 1.0]])
    sums = question.add_up([sent], np.arange(2))[0]
    np.testing.assert_array_equal(sums, [2.0, 1.0, np.inf])


def words(rows: int = 500, d: int = 1500, seed: int = 0, **given: Any) -> fpdfp.Problem:
    """Word counts with a few words that matter, at four clients."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, d + 1)
    counts = rng.poisson(30 * shares / shares.sum(), (rows, d)).astype(float)
    z = counts[:, :60] @ (rng.standard_normal(60) * (rng.random(60) < 0.2))
    y = np.where(z - z.mean() + rng.logistic(size=rows) > 0, 1.0, -1.0)
    smooth = losses.Logistic(sp.csr_array(counts), y, clients=np.arange(rows) % 4, **given)
    return fpdfp.Problem(smooth, penalties.L1(0.02))


def by_name(problem: fpdfp.Problem, **given: Any) -> fpdfp.Result:
    """What the automatic method does where it is asked for by name."""
    quantizer, down = fpdfp.QSGD(5, norm="max"), fpdfp.QSGD(31, norm="max")
    method = fpdfp.ShiftedPDFP(preconditioner="auto")
    return fpdfp.solve(problem, method, compressor=quantizer, downlink=down, **given)


class Watcher(fpdfp.engines.Observer):
    """Keeps what callbacks see."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.objectives: list[float] = []

    def started(self, run: Any, rounds: int) -> None:
        self.told.append("started")

    def finished(self, run: Any, result: fpdfp.Result) -> None:
        self.told.append("finished")

    def evaluated(self, run: Any) -> None:
        self.objectives.append(run.problem.objective(run.x))
        assert run.v.shape == run.x.shape


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_the_same_result_with_fewer_bits(ridge: float) -> None:
    problem, watcher = words(d=6000, l2=ridge), Watcher()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6}
    metrics = {"size": lambda x: float(x.size)}
    result = fpdfp.solve(problem, callbacks=[watcher], metrics=metrics, **given)
    other = by_name(problem, **given)
    assert result.status == other.status == "converged"
    assert abs(result.objective - other.objective) <= 2e-6 * other.objective
    assert result.total_up < other.total_up / 10
    assert result.bits_down < other.bits_down / 4
    assert result.total_up + result.total_down < (other.total_up + other.total_down) / 5
    assert result.rounds < other.rounds
    # What the result says of the whole problem is so.
    assert result.features is not None
    assert len(result.features.numbers) < 300
    assert f"features      {len(result.features.numbers)} of 6,000 since round" in str(result)
    assert result.x.shape == result.v.shape == result.certificate.v.shape == problem.model.shape
    assert np.isclose(problem.objective(result.x), result.objective, rtol=1e-12)
    assert problem.penalty.conjugate(result.v) == 0
    best = fpdfp.minimize(problem, tol=1e-10)
    assert result.certificate.gap is not None
    assert result.objective - best.objective <= result.certificate.gap
    assert set(np.flatnonzero(np.abs(best.x) > 1e-8)) <= set(result.features.numbers)
    # Those who look on see one run of the whole problem.
    assert watcher.told == ["started", "finished"]
    # Rows of looks at the gap have the objective of the point that was certified: x up to its last digits.
    np.testing.assert_allclose(watcher.objectives, result.history.objective, rtol=1e-6)
    evaluated = Watcher()
    watched = fpdfp.solve(problem, callbacks=[evaluated], evaluate_every=1, **given)
    np.testing.assert_allclose(evaluated.objectives, watched.history.objective, rtol=1e-12)
    np.testing.assert_array_equal(watched.x, result.x)
    assert (result.history["size"] == 6000).all()
    for column in ("round", "total_up", "total_down", "seconds", "inner_server"):
        assert (np.diff(result.history[column]) >= 0).all()
    assert result.history.round[-1] == result.rounds


def draw_lasso(classes: bool = False) -> fpdfp.Problem:
    """A dense problem whose features are alike in size."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((240, 2100))
    z = X[:, :8] @ np.array([3.0, -2, 2, -3, 1, 1, -1, 2])
    if classes:
        smooth: Any = losses.Softmax(X, np.digitize(z, [-3, 3]), clients=np.arange(240) % 3, l2=0.05)
        return fpdfp.Problem(smooth, penalties.L1(0.08))
    smooth = losses.LeastSquares(X, z, clients=np.arange(240) % 3, l2=0.01)
    return fpdfp.Problem(smooth, penalties.L1(np.where(np.arange(2100) == 5, 0.0, 0.8)))


@pytest.mark.parametrize("classes", [False, True])
def test_few_of_many_features_are_enough(classes: bool) -> None:
    problem = draw_lasso(classes)
    result = fpdfp.solve(problem, rounds=600, tol=1e-7)
    assert result.status == "converged"
    assert result.features is not None
    assert result.features.since > 0
    assert len(result.features.numbers) <= 700
    best = fpdfp.minimize(problem, tol=1e-9)
    assert result.objective - best.objective <= 1e-7 * abs(best.objective)
    assert classes or 5 in result.features.numbers


@pytest.mark.parametrize("make", [words, draw_lasso])
def test_resuming_gives_the_same_bits(make: Any, tmp_path: Path) -> None:
    problem = make()
    given: dict[str, Any] = {"tol": 1e-6, "evaluate_every": 7, "checkpoint_every": 1}
    whole = fpdfp.solve(problem, rounds=600, checkpoint=tmp_path / "whole", **given)
    assert whole.features is not None
    since = whole.features.since
    for cut in {3, max(1, since - 1), max(1, since), since + 4}:
        file = tmp_path / str(cut)

        def stop(run: Any, cut: int = cut) -> bool:
            return bool(run.round == cut)

        fpdfp.solve(problem, rounds=600, checkpoint=file, callbacks=[stop], **given)
        again = fpdfp.solve(problem, rounds=600, checkpoint=file, resume=True, **given)
        np.testing.assert_array_equal(again.x, whole.x)
        assert again.traffic == whole.traffic
        assert again.rounds == whole.rounds
        assert str(again) == str(whole)
        for column in set(whole.history) - {"seconds"}:
            np.testing.assert_array_equal(again.history[column], whole.history[column])


class Copier(fpdfp.engines.Observer):
    """Keeps the first checkpoint after features were left out."""

    def __init__(self, file: Path, copy: Path) -> None:
        self.file, self.copy = file, copy

    def saved(self, run: Any) -> None:
        if run.first_round > 0 and not self.copy.exists():
            assert run.round == run.first_round
            shutil.copy(self.file, self.copy)


def test_a_run_goes_on_from_where_features_were_left_out(tmp_path: Path) -> None:
    problem, files = draw_lasso(), (tmp_path / "whole", tmp_path / "copy")
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "checkpoint_every": 1}
    whole = fpdfp.solve(problem, checkpoint=files[0], callbacks=[Copier(*files)], **given)
    again = fpdfp.solve(problem, checkpoint=files[1], resume=True, **given)
    assert str(again) == str(whole)
    np.testing.assert_array_equal(again.x, whole.x)


def test_where_nothing_is_left_zero_is_the_solution() -> None:
    problem = fpdfp.Problem(words().losses, penalties.L1(5.0))
    result = fpdfp.solve(problem, rounds=50, tol=1e-6)
    assert result.status == "converged"
    assert not result.x.any()
    assert result.features is not None
    assert len(result.features.numbers) == 1


@pytest.mark.slow
def test_only_automatic_runs_to_a_tolerance_begin_with_few_features() -> None:
    problem = words()
    assert fpdfp.solve(problem, rounds=3).features is None
    assert by_name(problem, rounds=3, tol=1e-6).features is None
    assert fpdfp.solve(words(d=120), rounds=3, tol=1e-6).features is None
    many = losses.Logistic(np.eye(202, 1000) + np.eye(1, 1000), np.arange(202) % 2, clients=np.arange(202))
    for share, is_left in ((1, False), (3, True)):
        rare = fpdfp.solve(fpdfp.Problem(many, penalties.L1(5.0)), rounds=2, tol=1e-6, clients_per_round=share)
        assert (rare.features is not None) == is_left
    few = fpdfp.Problem(problem.losses, penalties.L1(0.02), Difference(1500))
    assert fpdfp.solve(few, rounds=3, tol=1e-6).features is None


def test_restricted_problems() -> None:
    problem, features = draw_problem("softmax", 0), np.array([0, 3, 7, 20])
    small = problem.restrict(features)
    x = np.random.default_rng(0).standard_normal(small.model.shape)
    whole = np.zeros(problem.model.shape)
    whole[:, features] = x
    assert np.isclose(small.objective(x), problem.objective(whole), rtol=1e-14)
    np.testing.assert_allclose(small.gradient(x), problem.gradient(whole)[:, features], rtol=1e-12, atol=1e-15)
    named = losses.Logistic(np.eye(3), [0, 1, 1], feature_names=["a", "b", "c"], l2=[0.1, 0.2, 0.3])
    some = named.restrict(np.array([0, 2]))
    assert some.feature_names == ("a", "c")
    np.testing.assert_array_equal(some.l2, [0.1, 0.3])
    with pytest.raises(ValueError, match="penalty must be an l1 norm of x itself"):
        fpdfp.Problem(named, penalties.L1(0.1), Difference(3)).restrict(np.array([0]))
    smooth = losses.Custom(lambda i, x: float(x @ x), lambda i, x: 2 * x, shape=3, n_clients=1, lipschitz=2.0)
    with pytest.raises(NotImplementedError, match="Custom cannot be restricted"):
        fpdfp.Problem(smooth, penalties.L1(0.1)).restrict(np.array([0]))


def test_a_part_of_losses_that_were_evaluated_has_its_own_rows() -> None:
    X = np.random.default_rng(0).standard_normal((30, 4))
    smooth = losses.LeastSquares(X, X[:, 0], clients=np.repeat([0, 1, 2], [20, 3, 7]))
    values = smooth.values(np.ones(4), np.arange(3))
    np.testing.assert_array_equal(smooth.part(np.array([1, 2])).values(np.ones(4), np.arange(2)), values[1:])


@pytest.mark.parametrize("make", [words, draw_lasso])
def test_sites_leave_out_the_same_features(make: Any) -> None:
    problem = make()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "evaluate_every": 20}
    whole = fpdfp.solve(problem, **given)
    for trouble in ("none", "restarted"):
        engine = Loopback(problem)

        def restart(run: Any, engine: Loopback = engine) -> None:
            if run.round == run.first_round + 1:
                engine.restart(0)

        there = fpdfp.Problem(engine.losses(), problem.penalty)
        result = fpdfp.solve(there, callbacks=[restart] if trouble == "restarted" else [], **given)
        np.testing.assert_array_equal(result.x, whole.x)
        assert str(result.features) == str(whole.features)
        lines = [{kind: bits for kind, bits in one.traffic.items() if kind != "upkeep"} for one in (result, whole)]
        assert lines[0] == lines[1]
        assert (result.traffic["upkeep"] == (0, 0)) == (trouble != "restarted")
        assert (engine.totals.healed > 0) == (trouble == "restarted")


def test_a_server_goes_on_with_the_features_that_are_left(tmp_path: Path) -> None:
    problem = draw_lasso()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    engine = Loopback(problem)
    there = fpdfp.Problem(engine.losses(), problem.penalty)
    seen: list[Any] = []

    def stop(run: Any) -> bool:
        # The whole problem can be asked about, also in a run with fewer features.
        seen.append((run.problem.objective(run.x), problem.objective(run.x)))
        return bool(run.first_round > 0)

    first = fpdfp.solve(there, callbacks=[stop], **given)
    assert first.status == "stopped"
    there_and_here = np.array(seen)
    np.testing.assert_allclose(there_and_here[:, 0], there_and_here[:, 1], rtol=1e-12)
    for sites in (engine, Loopback(problem)):
        result = fpdfp.solve(fpdfp.Problem(sites.losses(), problem.penalty), resume=True, **given)
    np.testing.assert_array_equal(result.x, fpdfp.solve(problem, rounds=600, tol=1e-6).x)


def test_sites_refuse_masks_that_are_none() -> None:
    site = Site(draw_problem("logistic", 0).losses)

    def ask(mask: Any, **given: Any) -> Any:
        made = Announced.rounded(Natural(), np.asarray(mask, dtype=np.float32))
        return site.handle({"facts": {}, "mask": made, **given})

    some = np.arange(24) % 3 == 0
    known = digest([np.flatnonzero(some)])
    assert site.handle({"facts": {}, "features": known}) == {"needs": ["features"]}
    assert ask(some, features=known)["facts"]["shape"] == (8,)
    assert site.handle({"facts": {}, "features": known})["facts"]["shape"] == (8,)
    assert site.handle({"facts": {}})["facts"]["shape"] == (24,)
    for wrong in (np.ones(23), np.ones((24, 1)), np.zeros(24), 2.0 * some):
        with pytest.raises(MessageError, match="mask must have a zero or a one for each of the 24 features"):
            ask(wrong)
    rest = losses.Custom(lambda i, x: float(x @ x), lambda i, x: 2 * x, shape=24, n_clients=1, lipschitz=2.0)
    site = Site(rest)
    with pytest.raises(MessageError, match="Custom cannot be restricted"):
        ask(some)


def test_a_round_that_was_asked_for_ahead_is_dropped() -> None:
    problem, engine = draw_lasso(), Loopback(draw_lasso())
    engine.slow = True
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "evaluate_every": 1}
    result = fpdfp.solve(fpdfp.Problem(engine.losses(), problem.penalty), **given)
    whole = fpdfp.solve(problem, **given)
    np.testing.assert_array_equal(result.x, whole.x)
    assert result.traffic["upkeep"].up > 0
    for kind in ("rounds", "preconditioner", "facts"):
        assert result.traffic[kind] == whole.traffic[kind]


def test_a_client_without_any_of_the_features_that_are_left() -> None:
    drawn = words(d=1500).losses
    assert isinstance(drawn, losses.Logistic)
    X, y = drawn._rows.X.toarray(), drawn._rows.y
    last = np.arange(500) >= 375
    X[last] = np.eye(125, 1500, 1300)  # rare words alone
    smooth = losses.Logistic(sp.csr_array(X), y, clients=np.arange(500) // 125)
    problem = fpdfp.Problem(smooth, penalties.L1(0.02))
    result = fpdfp.solve(problem, rounds=600, tol=1e-6)
    assert result.status == "converged"
    assert result.features is not None
    curvatures = smooth.restrict(result.features.numbers).curvature_diagonals(np.array([3]))
    assert curvatures is not None
    assert not curvatures.any()


def test_x_has_zeros_where_its_dual_says_so() -> None:
    problem = draw_problem("least squares", 1)
    start = np.random.default_rng(0).standard_normal(24)
    counts: list[int] = []
    method = fpdfp.ShiftedPDFP(preconditioner="moments")
    given: dict[str, Any] = {
        "rounds": 200,
        "tol": 1e-9,
        "callbacks": [lambda run: counts.append(int((run.x != 0).sum()))],
    }
    result = fpdfp.solve(problem, method, x0=start, **given)
    best = fpdfp.minimize(problem, tol=1e-12)
    assert result.status == "converged"
    assert result.history.objective[0] == pytest.approx(problem.objective(start), rel=1e-14)
    assert counts[-1] == np.count_nonzero(np.abs(best.x) > 1e-9) < 24
    settled = problem.penalty.settle(np.ones(24, dtype=np.float32), np.zeros(24))
    assert settled.dtype == np.float32
    assert np.flatnonzero(settled).tolist() == [0]  # the intercept has no weight
