"""Statuses are true: what a run says of its end is compared with solutions that were found in another way."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special

import fpdfp
from fpdfp.bounds import Feasibility
from fpdfp.errors import AccuracyWarning, DivergenceWarning


def steep_logistic(seed: int, penalty: Any, linop: Any = None, **options: Any) -> fpdfp.Problem:
    """Few rows whose features differ by up to 12 orders of magnitude."""
    r = np.random.default_rng(seed)
    scales = 10.0 ** r.uniform(-6, 6, 10)
    X = r.standard_normal((40, 10)) * scales
    y = (r.integers(0, 3, 40) > 0) * 1.0
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, np.arange(40) % 4, **options), penalty, linop)


@pytest.mark.parametrize("penalty", [fpdfp.penalties.NonNegative(), fpdfp.penalties.Box(-1e-3, 1e-3)], ids=repr)
@pytest.mark.parametrize("seed", [5, 4, 1])
def test_constraints_on_x_hold_exactly_where_a_run_has_converged(seed: int, penalty: Any) -> None:
    problem = steep_logistic(seed, penalty)
    result = fpdfp.solve(problem, rounds=300, tol=1e-3)
    assert result.certificate.violation == 0
    best = fpdfp.minimize(problem, tol=1e-9).objective
    assert result.objective >= best * (1 - 1e-6)
    assert result.status != "converged" or result.objective <= best * (1 + 1e-3)


@pytest.mark.parametrize("method", [None, fpdfp.ShiftedPDFP()], ids=repr)
def test_constraints_on_x_hold_where_clients_certify_the_gap(method: Any) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((60, 5)), np.where(generator.random(60) < 0.5, -1.0, 1.0)
    losses = fpdfp.losses.Logistic(X, y, np.arange(60) % 3, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.NonNegative())
    result = fpdfp.solve(problem, method, rounds=500, tol=1e-4)
    assert (result.status, result.certificate.violation) == ("converged", 0)
    assert (result.x >= 0).all()
    assert result.objective == problem.objective(result.x)


@pytest.mark.parametrize("seed", range(3))
def test_violations_of_bx_are_compared_with_their_own_entries(seed: int) -> None:
    # The first row of B is steep, so violations of the others are small beside the largest entry of Bx.
    linop = np.diag([1e3, 1.0, 1e-3]) @ (np.eye(3) - np.eye(3, k=1))
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((40, 3))
    y = X @ np.array([3.0, 1.0, 2.0]) + 0.1 * generator.standard_normal(40)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, np.arange(40) % 4), fpdfp.penalties.NonNegative(), linop)
    result = fpdfp.solve(problem, rounds=5000, tol=1e-2)
    violations = np.maximum(-problem.linop.apply(result.x), 0.0)
    # In u = Bx it is a problem of non-negative least squares.
    best = 0.5 * scipy.optimize.nnls(X @ np.linalg.inv(linop), y)[1] ** 2 / 40
    if result.status == "converged":
        assert (violations <= 1e-2 * (np.abs(linop) @ np.abs(result.x))).all()
        assert result.objective == pytest.approx(best, rel=2e-2)
    assert ("violates constraints" in result.message) == (violations.max() > 0)


@pytest.mark.parametrize("seed", range(6))
def test_rounding_of_zeros_is_no_violation(seed: int) -> None:
    """Coefficients that do not increase and end at zero: (Bx)_i is a difference of two zeros, each up to rounding."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((60, 12))
    y = X[:, :4] @ generator.standard_normal(4) + 0.1 * generator.standard_normal(60)
    losses = fpdfp.losses.LeastSquares(X, y, clients=np.arange(60) % 4, l2=0.01)
    problem = fpdfp.Problem(losses, fpdfp.penalties.NonNegative(), np.eye(12) - np.eye(12, k=1))
    result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=None), rounds=600, tol=1e-8)
    assert result.status == "converged"
    for size, expected in ((1e-17, True), (1e-13, False)):
        point = np.where(np.arange(12) < 11, 0.0, -size)
        assert problem.is_nearly_feasible(point, -np.ones(12), 1e-8, result.certificate.scale) is expected


def test_a_total_variation_with_a_constraint_gives_a_feasible_image() -> None:
    from tests.helpers import zoo

    problem = zoo()["TV and non-negative"]
    result = fpdfp.solve(problem, rounds=3000, tol=1e-4)
    assert (result.status, result.certificate.violation) == ("converged", 0)
    assert (result.x >= 0).all()


def test_a_run_without_tol_says_by_how_much_x_violates_constraints() -> None:
    generator = np.random.default_rng(0)
    losses = fpdfp.losses.LeastSquares(generator.standard_normal((20, 4)), -np.ones(20), np.arange(20) % 2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.NonNegative(), fpdfp.linops.Difference(4))
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3)
    assert result.certificate.violation > 0
    assert "violates constraints" in result.message


#: Losses of cases; counts, whose gradients are not Lipschitz continuous, are drawn apart: all clients take part.
LOSSES = ("squares", "logistic", "softmax")
PENALTIES = ("none", "l1", "group", "fused", "non-negative", "box", "monotone", "total variation and non-negative")


class Case(NamedTuple):
    """A random problem, and how it is run."""

    loss: str
    penalty: str
    spread: float
    l2: float
    share: float
    tol: float
    seed: int


def draw_case(seed: int) -> Case:
    r = np.random.default_rng([9, seed])
    loss, penalty = LOSSES[seed % 3], PENALTIES[seed // 3 % 8]
    if loss == "softmax" and penalty in ("fused", "monotone", "total variation and non-negative"):
        loss = "logistic"  # those are penalties of a vector
    spread = float(r.choice([0.0, 1.0, 3.0]))
    return Case(loss, penalty, spread, float(r.choice([0.0, 1e-3])), float(r.choice([0.4, 1.0])),
                float(r.choice([1e-2, 1e-3, 1e-5])), seed)  # fmt: skip


def draw_counts(seed: int) -> Case:
    """Return a case with counts."""
    return draw_case(seed)._replace(loss="counts", share=1.0)


class Drawn(NamedTuple):
    """The rows of a case, its penalty's weight, and B as a matrix."""

    X: Any
    y: Any
    clients: Any
    weight: float
    B: Any


def draw_rows(case: Case) -> Drawn:
    r = np.random.default_rng([7, case.seed])
    n, d, count = int(r.integers(40, 90)), int(r.integers(4, 9)), int(r.integers(2, 6))
    clients = np.arange(n) % count
    plain = r.standard_normal((n, d)) + 0.3 * r.standard_normal((count, d))[clients]
    forms = plain @ r.standard_normal(d) * 0.5
    X = plain * 10.0 ** r.uniform(-case.spread, case.spread, d)
    y = {
        "squares": forms + 0.3 * r.standard_normal(n),
        "logistic": np.where(forms + r.logistic(size=n) > 0, 1.0, -1.0),
        "softmax": (plain @ r.standard_normal((d, 3)) * 0.5 + r.gumbel(size=(n, 3))).argmax(axis=1),
        "counts": r.poisson(np.exp(0.7 * forms)) * 1.0,
    }[case.loss]
    steps = np.eye(d, k=1)[:-1] - np.eye(d)[:-1]
    B = {"fused": steps, "monotone": steps, "total variation and non-negative": np.vstack([steps, np.eye(d)])}
    return Drawn(X, y, clients, float(10 ** r.uniform(-2.5, -1)), B.get(case.penalty))


def make_problem(case: Case, rows: Drawn) -> fpdfp.Problem:
    p, d, w = fpdfp.penalties, rows.X.shape[1], rows.weight
    losses: Any
    if case.loss == "counts":
        losses = fpdfp.losses.GLM(rows.X, rows.y, rows.clients, family="poisson", l2=case.l2)
    else:
        kinds = {"squares": "LeastSquares", "logistic": "Logistic", "softmax": "Softmax"}
        losses = getattr(fpdfp.losses, kinds[case.loss])(rows.X, rows.y, rows.clients, l2=case.l2)
    penalty: Any = {
        "none": p.Zero(), "l1": p.L1(w), "fused": p.L1(w), "non-negative": p.NonNegative(), "box": p.Box(-w, w),
        "monotone": p.NonNegative(),
        "group": p.GroupL12(w, axis=0) if case.loss == "softmax" else p.GroupL12(w, groups=np.arange(d) // 2),
        "total variation and non-negative": p.Stacked([p.L1(w), p.NonNegative()], shapes=[(d - 1,), (d,)]),
    }[case.penalty]  # fmt: skip
    linop = rows.B
    if case.penalty == "total variation and non-negative":
        linop = fpdfp.linops.VStack([fpdfp.linops.Difference(d), fpdfp.linops.Identity((d,))])
    return fpdfp.Problem(losses, penalty, linop)


def find_minimum(case: Case, rows: Drawn) -> float | None:
    """Return the minimum by an interior-point method, in units in which columns have one size; None if it fails."""
    sizes = np.sqrt(np.square(rows.X).mean(axis=0))
    X, d, w = rows.X / sizes, rows.X.shape[1], rows.weight
    u = cp.Variable((3, d) if case.loss == "softmax" else d)
    x = cp.multiply(np.tile(1.0 / sizes, (3, 1)) if case.loss == "softmax" else 1.0 / sizes, u)
    if case.loss == "softmax":
        forms = X @ u.T
        losses = cp.log_sum_exp(forms, axis=1) - cp.sum(cp.multiply(forms, np.eye(3)[rows.y]), axis=1)
    elif case.loss == "logistic":
        losses = cp.logistic(-cp.multiply(rows.y, X @ u))
    elif case.loss == "counts":
        forms = X @ u
        losses = cp.exp(forms) - cp.multiply(rows.y, forms) + scipy.special.xlogy(rows.y, rows.y) - rows.y
    else:
        losses = cp.square(rows.y - X @ u) / 2
    counts = np.bincount(rows.clients)
    value = cp.sum(cp.multiply(1.0 / (counts[rows.clients] * len(counts)), losses)) + case.l2 / 2 * cp.sum_squares(x)
    limits: list[Any] = []
    if case.penalty == "l1":
        value += w * cp.sum(cp.abs(x))
    if case.penalty == "group":
        groups = [x[:, j] for j in range(d)] if case.loss == "softmax" else [x[j : j + 2] for j in range(0, d, 2)]
        value += w * sum(cp.norm(one) for one in groups)
    if case.penalty in ("fused", "total variation and non-negative"):
        value += w * cp.sum(cp.abs(rows.B[: d - 1] @ x))
    if case.penalty in ("non-negative", "total variation and non-negative"):
        limits.append(u >= 0)
    if case.penalty == "box":
        limits += [x >= -w, x <= w]
    if case.penalty == "monotone":
        limits.append(rows.B @ x >= 0)
    problem = cp.Problem(cp.Minimize(value), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        except cp.SolverError:
            return None
    return float(problem.value) if problem.status in ("optimal", "optimal_inaccurate") else None


def evaluate(case: Case, rows: Drawn, x: Any) -> float:
    """Return F at x, with g at the nearest point of its domain, from the definitions alone."""
    forms = rows.X @ x.T
    losses = {
        "squares": lambda: 0.5 * np.square(forms - rows.y),
        "logistic": lambda: np.logaddexp(0.0, -rows.y * forms),
        "softmax": lambda: scipy.special.logsumexp(forms, axis=1) - forms[np.arange(len(forms)), rows.y],
        "counts": lambda: np.exp(forms) - rows.y * forms + scipy.special.xlogy(rows.y, rows.y) - rows.y,
    }[case.loss]()
    clients = [losses[rows.clients == client].mean() for client in np.unique(rows.clients)]
    value, w, d = np.mean(clients) + case.l2 / 2 * np.square(x).sum(), rows.weight, rows.X.shape[1]
    if case.penalty == "l1":
        value += w * np.abs(x).sum()
    if case.penalty == "group":
        squares = np.square(x).sum(axis=0) if x.ndim == 2 else np.bincount(np.arange(d) // 2, np.square(x))
        value += w * np.sqrt(squares).sum()
    if case.penalty in ("fused", "total variation and non-negative"):
        value += w * np.abs(np.diff(x)).sum()
    return float(value)


def find_violations(case: Case, rows: Drawn, x: Any) -> Any:
    """Return the violation of each constraint beside the size of the terms it is a sum of."""
    if case.penalty == "monotone":
        return np.maximum(-np.diff(x), 0.0) / (np.abs(x[1:]) + np.abs(x[:-1]) + 1e-300)
    beyond = {"non-negative": -x, "total variation and non-negative": -x, "box": np.abs(x) - rows.weight}
    return np.maximum(beyond.get(case.penalty, np.zeros(1)), 0.0)


def check_status(case: Case) -> str | None:
    """Run a case, compare what it says of its end with the minimum, and return its status."""
    rows = draw_rows(case)
    best = find_minimum(case, rows)
    if best is None:
        return None
    count = int(rows.clients.max()) + 1
    options: dict[str, Any] = {"clients_per_round": max(1, round(case.share * count))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        warnings.simplefilter("ignore", DivergenceWarning)
        result = fpdfp.solve(make_problem(case, rows), rounds=400, tol=case.tol, seed=case.seed, **options)
    objective, violations = evaluate(case, rows, result.x), find_violations(case, rows, result.x)
    # What rounding, and the other solver, may be wrong by.
    slack = 1e-6 * abs(best) + 1e-9
    assert result.objective == pytest.approx(objective, rel=1e-9, abs=1e-12), case
    if case.penalty != "monotone":
        assert violations.max() == 0, case
        assert objective >= best - slack, case
    if result.certificate.gap is not None:
        assert objective - best <= result.certificate.gap + slack, case
    if result.status == "converged":
        assert objective - best <= case.tol * abs(objective) + slack, case
        assert objective - best >= -case.tol * abs(objective) - slack, case
        assert violations.max() <= 10 * case.tol, case
    if result.status == "stationary":  # no bound is known, and an estimate is what is said
        assert objective - best <= 10 * case.tol * abs(objective) + slack, case
    assert ("violates constraints" in result.message) == bool(violations.max() > 0), case
    return result.status


def test_every_status_is_true() -> None:
    statuses = [check_status(draw_case(seed)) for seed in range(24)]
    assert statuses.count("converged") >= 12
    assert statuses.count(None) <= 2


def test_every_status_is_true_for_counts() -> None:
    statuses = [check_status(draw_counts(seed)) for seed in range(8)]
    assert statuses.count("converged") >= 6
    assert all(check_minimum(draw_counts(seed)) for seed in range(8))


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_case, draw_counts])
@pytest.mark.parametrize("part", range(8))
def test_every_status_is_true_on_more_problems(part: int, draw: Any) -> None:
    statuses = [check_status(draw(seed)) for seed in range(24 + 24 * part, 48 + 24 * part)]
    assert statuses.count(None) <= 4


def differ_by_far(case: Case) -> bool:
    """Whether the other solver finds the minimum where columns differ by up to 12 orders of magnitude."""
    return case.penalty not in ("monotone", "total variation and non-negative")


@pytest.mark.parametrize("loss", LOSSES)
def test_every_status_is_true_where_columns_differ_by_far(loss: str) -> None:
    cases = [draw_case(seed)._replace(spread=6.0) for seed in range(48)]
    for case in filter(differ_by_far, cases):
        if case.loss == loss:
            status = check_status(case)
            assert status == "converged" or case.penalty not in ("none", "fused", "non-negative", "box"), case


def check_minimum(case: Case, tol: float = 1e-7) -> bool | None:
    """Minimise, compare the certificate and what is said with the minimum, and return whether it has converged."""
    rows = draw_rows(case)
    best = find_minimum(case, rows)
    if best is None:
        return None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = fpdfp.minimize(make_problem(case, rows), tol=tol)
    objective, violations = evaluate(case, rows, found.x), find_violations(case, rows, found.x)
    slack = 1e-6 * abs(best) + 1e-9
    if found.certificate.gap is not None:
        assert objective - best <= found.certificate.gap + slack, case
    if found.converged:
        assert abs(objective - best) <= tol * abs(objective) + slack, case
        assert violations.max() <= 1e-9, case
    # A ridge on every coefficient leaves nothing to separate.
    assert not (case.l2 and any("no minimum" in str(one.message) for one in warned)), case
    return found.converged


@pytest.mark.parametrize("spread", [None, 6.0])
def test_what_minimize_says_is_true(spread: float | None) -> None:
    drawn = [draw_case(seed) for seed in range(24)]
    cases = [case if spread is None else case._replace(spread=spread) for case in drawn]
    assert all(check_minimum(case) is not False for case in cases if spread is None or differ_by_far(case))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_minimize_says_is_true_on_more_problems(part: int) -> None:
    drawn = [draw_case(seed) for seed in range(24 + 24 * part, 48 + 24 * part)]
    for case in [*drawn, *(case._replace(spread=6.0) for case in drawn if differ_by_far(case))]:
        check_minimum(case)


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("loss", ["squares", "logistic"])
def test_differences_of_columns_of_very_different_sizes_are_certified(loss: str, l2: float) -> None:
    """The dual is a sum of slopes from 1e-7 to 1e7, of which its rounding hides the small ones."""
    cases = [Case(loss, "fused", 6.0, l2, 1.0, 1e-5, seed) for seed in range(12)]
    assert [check_minimum(case) for case in cases].count(True) >= 11


@pytest.mark.parametrize("seed", range(8))
def test_an_image_that_is_constant_and_not_negative_is_certified(seed: int) -> None:
    case = Case(LOSSES[seed % 2], "total variation and non-negative", 0.0, 1e-3 * (seed % 3), 1.0, 1e-5, seed)
    rows = draw_rows(case)._replace(weight=10.0 ** (seed % 3))
    best = fpdfp.minimize(make_problem(case, rows), tol=1e-9)
    assert np.ptp(best.x) <= 1e-8
    assert best.converged


@pytest.mark.parametrize(("seed", "spread", "weight"), [(109, 0.0, None), (22, 1.5, 0.007347027), (92, 1.5, None)])
def test_a_run_with_limits_is_certified_when_it_is_stationary(seed: int, spread: float, weight: float | None) -> None:
    """No scale but 0 makes a dual point with signs feasible: a Newton step in the dual does, for which a run looks."""
    case = draw_case(seed)._replace(spread=spread)
    rows = draw_rows(case)
    rows = rows if weight is None else rows._replace(weight=weight)
    count = int(rows.clients.max()) + 1
    problem, n = make_problem(case, rows), max(1, round(case.share * count))
    result = fpdfp.solve(problem, rounds=400, tol=case.tol, seed=case.seed, clients_per_round=n)
    assert result.status == "converged"
    assert result.rounds <= 80


def sparse_binary(seed: int = 0, **options: Any) -> fpdfp.Problem:
    """Sparse binary features, of which few are frequent, as in text and in questionnaires."""
    r = np.random.default_rng(seed)
    frequency = np.minimum(0.5, 2.0 * (1.0 + np.arange(60)) ** -1.1)
    X = (r.random((600, 60)) < frequency).astype(float)
    truth = 2.0 * r.standard_normal(60) * (r.random(60) < 0.2)
    y = np.where(X @ truth + r.logistic(size=600) > 1, 1.0, -1.0)
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, np.arange(600) % 10, **options), fpdfp.penalties.L1(3e-3))


@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_neither_the_number_of_rounds_nor_evaluations_steer_a_run(l2: float) -> None:
    problem = sparse_binary(l2=l2)
    first = fpdfp.solve(problem, rounds=500, tol=1e-4)
    assert first.status == "converged"
    assert first.traffic["evaluation"] == (0, 0)
    for options in ({"rounds": 20_000}, {"rounds": 500, "evaluate_every": 1}, {"rounds": 500, "evaluate_every": 7}):
        other = fpdfp.solve(problem, tol=1e-4, **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(other.x, first.x)
        assert (other.rounds, other.bits_up, other.bits_down) == (first.rounds, first.bits_up, first.bits_down)
        assert sum(other.traffic["certificate"]) <= sum(first.traffic["certificate"])  # some values are known by then


def count_costs(problem: fpdfp.Problem, **options: Any) -> list[tuple[int, int]]:
    """Return rounds and bits of the default to smaller and smaller tolerances, without evaluations and the end."""
    costs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8):
            result = fpdfp.solve(problem, rounds=400, tol=tol, **options)
            kinds = [sum(bits) for kind, bits in result.traffic.items() if kind not in ("end", "evaluation")]
            costs.append((result.rounds, sum(kinds)))
    return costs


def check_looser_is_cheaper(case: Case, prefer: Any) -> None:
    """A run to a looser tolerance is the same one as to a tighter one, ended earlier: rounds and bits only grow."""
    rows = draw_rows(case)
    if not make_problem(case, rows).penalty.finite:
        return  # with limits looks are for the tolerance
    n = max(1, round(case.share * (int(rows.clients.max()) + 1)))
    costs = count_costs(make_problem(case, rows), seed=case.seed, prefer=prefer, clients_per_round=n)
    for way in zip(*costs, strict=True):
        assert list(way) == sorted(way), (case, prefer, costs)


@pytest.mark.parametrize("prefer", ["balanced", "rounds", "bits"])
def test_a_looser_tolerance_never_costs_more(prefer: Any) -> None:
    for seed in range(4):
        check_looser_is_cheaper(draw_case(seed), prefer)


@pytest.mark.slow
@pytest.mark.parametrize("prefer", ["balanced", "rounds", "bits"])
@pytest.mark.parametrize("part", range(4))
def test_a_looser_tolerance_never_costs_more_on_more_problems(part: int, prefer: Any) -> None:
    for seed in range(4 + 15 * part, 19 + 15 * part):
        check_looser_is_cheaper(draw_case(seed), prefer)


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_a_looser_tolerance_never_costs_more_with_few_features_first(seed: int, l2: float) -> None:
    costs = count_costs(sparse_binary(seed, l2=l2))
    for way in zip(*costs, strict=True):
        assert list(way) == sorted(way)


def test_a_certificate_of_a_large_map_costs_no_more_than_the_run() -> None:
    shape = (40, 40)
    generator = np.random.default_rng(0)
    target = generator.standard_normal(1600).reshape(shape)
    products = 0

    class Counted(fpdfp.linops.Gradient):
        def apply(self, x: Any) -> Any:
            nonlocal products
            products += 1
            return super().apply(x)

    masks = [(generator.random(shape) < 0.5).astype(float) for _ in range(2)]
    losses = fpdfp.losses.OperatorLeastSquares(
        [fpdfp.linops.Diagonal(mask) for mask in masks], [mask * target for mask in masks]
    )
    problem = fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.1, axis=0), Counted(shape))
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=5)
    before = products
    assert not result.is_certified
    assert result.certificate.gap is None  # five products are not enough
    assert products - before <= 5 * 5


def test_a_run_with_a_large_map_that_is_stationary_looks_for_a_bound_at_any_price() -> None:
    generator = np.random.default_rng(0)
    difference = scipy.sparse.eye_array(39, 40, k=1) - scipy.sparse.eye_array(39, 40)
    both = [scipy.sparse.kron(difference, np.eye(40)), scipy.sparse.kron(np.eye(40), difference)]
    X, y = generator.standard_normal((60, 1600)), generator.standard_normal(60)
    losses = fpdfp.losses.LeastSquares(X, y, clients=np.arange(60) % 3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), scipy.sparse.vstack(both).tocsr())
    assert problem.has_large_map
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=100, tol=0.3)
    assert problem.certificate(result.x, result.v, thorough=False, products=100).gap is None
    assert result.status == "converged"
    assert result.certificate.relative_gap is not None
    assert result.certificate.relative_gap <= 0.3


def test_a_large_map_sees_no_constants_of_its_components() -> None:
    """Chains of 100 entries, every third of which is cut in two, and entries that no row has."""
    size = 1500
    difference = scipy.sparse.eye_array(size - 1, size, k=1) - scipy.sparse.eye_array(size - 1, size)
    cut = np.arange(99, size - 1, 100)
    kept = np.setdiff1d(np.arange(size - 1), np.concatenate([cut, cut[::3] + 50, [0, 1, 2]]))
    losses = fpdfp.losses.LeastSquares(np.ones((3, size)), np.ones(3))
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), difference.tocsr()[kept])
    kernel = Feasibility(problem.model).kernel
    assert problem.has_large_map
    assert len(kernel) == size - len(kept)
    assert np.abs(problem.linop.matrix @ kernel.T).max() == 0  # type: ignore[attr-defined]
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(len(kernel)), atol=1e-12)


def test_steps_find_a_feasible_dual_point_of_a_large_map() -> None:
    linop = fpdfp.linops.Gradient((40, 40))
    problem = fpdfp.Problem(
        fpdfp.losses.OperatorLeastSquares([fpdfp.linops.Identity((40, 40))], [np.zeros((40, 40))]),
        fpdfp.penalties.GroupL12(0.1, axis=0),
        linop,
    )
    feasibility = Feasibility(problem.model)
    assert not feasibility.is_quick
    wanted = linop.adjoint(np.random.default_rng(0).standard_normal(linop.out_shape))
    w, products = feasibility.solve(wanted)
    assert 50 < products < 500
    assert np.abs(linop.adjoint(w) - wanted).max() <= 1e-13
    w, products = feasibility.solve(wanted, 5)
    assert products == 5
    # A constant is no Bᵀw: the steps end, and the rest is left.
    w, products = feasibility.solve(wanted + 1.0)
    assert products <= 2000
    assert np.isfinite(w).all()


def small_logistic(penalty: Any) -> fpdfp.Problem:
    r = np.random.default_rng(0)
    X = r.standard_normal((120, 8)) * 10.0 ** r.uniform(-1, 1, 8)
    y = (X @ r.standard_normal(8) / np.abs(X).mean() + r.logistic(size=120) > 0) * 1.0
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, np.arange(120) % 5), penalty)


@pytest.mark.parametrize("penalty", [fpdfp.penalties.Zero(), fpdfp.penalties.L1(0.01)], ids=repr)
@pytest.mark.parametrize("options", [{}, {"clients_per_round": 2}], ids=repr)
def test_evaluations_do_not_change_a_run(penalty: Any, options: dict[str, Any]) -> None:
    """Without a bound of the gap, looks were paid back sooner where an evaluation had sent values before."""
    problem = small_logistic(penalty)
    one, other = (fpdfp.solve(problem, rounds=400, tol=1e-2, evaluate_every=every, **options) for every in (None, 1))
    assert one.rounds == other.rounds
    assert one.bits_up == other.bits_up
    np.testing.assert_array_equal(one.x, other.x)


def test_a_certificate_that_is_read_later_is_that_of_the_run() -> None:
    problem = small_logistic(fpdfp.penalties.L1(0.02))
    result = fpdfp.solve(problem, rounds=50)
    result.x[:] = 5.0
    assert result.certificate.objective == pytest.approx(result.objective)


def test_separation_is_not_looked_for_where_derivatives_are_infinite() -> None:
    from fpdfp.pooled.separating import find_growing

    X = np.array([[1.0, 0.0], [1e3, 1.0], [1.0, -1.0]])
    losses = fpdfp.losses.GLM(X, np.array([1.0, 2.0, 0.0]), family="poisson")
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    assert find_growing(problem, np.array([1.0, 0.0]), np.zeros(2), np.inf, 1e-6) == []
