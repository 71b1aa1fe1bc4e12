"""The shifted method: its rule, its shifts, its coordinates, and that it has no floor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ErrorFeedbackPDFP, ShiftedPDFP, compress, linops, penalties, precondition
from fpdfp.methods.shifted import StepControl
from tests import helpers
from tests.test_identities import iterates

QUANTIZE = int(fpdfp.rng.Purpose.QUANTIZE)


def test_it_is_the_rule_of_its_docstring() -> None:
    """Word for word with dense matrices: two clients of five, quantized, one dual step, no momentum."""
    problem = helpers.graph_guided(weights="samples")
    B, quantizer = helpers.graph(12).toarray(), fpdfp.QSGD(4, norm="max")
    gamma, alpha, lam = 0.2, 0.3, problem.model.largest_lambda
    method = ShiftedPDFP(gamma, dual_steps=1, momentum=False, shift_step=alpha)
    ours = iterates(problem, method, 30, clients_per_round=2, seed=4, compressor=quantizer)
    x, v, h, h_mean = np.zeros(12), np.zeros(24), np.zeros((5, 12)), np.zeros(12)
    for k, (ours_x, ours_v) in enumerate(ours):
        clients = fpdfp.rng.choose_clients(4, k, 5, 2)
        gradients = np.stack([problem.losses.gradients(x, np.array([i]))[0] for i in clients])
        m = quantizer.compress(gradients - h[clients], fpdfp.rng.Draws(4, k, clients), QUANTIZE).values
        estimate = h_mean + m.mean(axis=0)
        h[clients] += alpha * m
        h_mean = h_mean + alpha / 5 * m.sum(axis=0)
        v = np.clip(lam / gamma * B @ (x - gamma * estimate) + (np.eye(24) - lam * B @ B.T) @ v, -0.02, 0.02)
        x = x - gamma * estimate - gamma * B.T @ v
        np.testing.assert_allclose(ours_x, x, atol=1e-13)
        np.testing.assert_allclose(ours_v, v, atol=1e-13)


def test_with_everyone_and_exact_messages_it_is_pdfp() -> None:
    problem = helpers.graph_guided()
    ours = iterates(problem, ShiftedPDFP(0.3, dual_steps=1, momentum=False), 40)
    for (x, v), (expected, dual) in zip(ours, iterates(problem, fpdfp.PDFP(0.3), 40), strict=True):
        np.testing.assert_allclose(x, expected, atol=1e-14)
        np.testing.assert_allclose(v, dual, atol=1e-14)


def test_the_servers_shift_is_the_mean_of_the_clients() -> None:
    problem = helpers.graph_guided()

    def compare(run: fpdfp.Run) -> None:
        np.testing.assert_allclose(run.state.shift, run.memory.shift.mean(axis=0), atol=1e-14)

    for method in (ShiftedPDFP(), ShiftedPDFP(preconditioner="moments")):
        fpdfp.solve(problem, method, rounds=30, clients_per_round=2, compressor=fpdfp.QSGD(3), callbacks=[compare])


UNBIASED = [
    fpdfp.QSGD(1, norm="max"),
    fpdfp.QSGD(5),
    fpdfp.QSGD(3, block=None),
    compress.NUQSGD(3),
    compress.Natural(),
    compress.Sign(),
    compress.RandK(3),
    compress.RandK(0.5),
    compress.Half("bfloat16"),
    compress.Full(),
]


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("compressor", UNBIASED, ids=repr)
@pytest.mark.parametrize("n", [helpers.slow(n, n != 3) for n in (1, 3, 6)])
def test_at_a_constant_step_it_has_no_floor(compressor: compress.Compressor, n: int, momentum: bool) -> None:
    """F(x) − F* to 1e-10 relative on a strongly convex problem, whoever takes part and however it is sent."""
    problem, method = helpers.fused_regression(spread=0.3), ShiftedPDFP(momentum=momentum)
    assert helpers.reaches(problem, method, 20_000, clients_per_round=n, compressor=compressor)


def test_without_shifts_gradients_are_sent_and_there_is_a_floor() -> None:
    """α = 0: with everyone and exact messages it is PDFP, with a quantizer it stops short."""
    problem = helpers.graph_guided()
    plain = ShiftedPDFP(0.4, dual_steps=1, momentum=False, shift_step=0.0)
    for (x, _), (expected, _) in zip(iterates(problem, plain, 30), iterates(problem, fpdfp.PDFP(0.4), 30), strict=True):
        np.testing.assert_allclose(x, expected, atol=1e-13)
    assert not helpers.reaches(problem, plain, 2000, compressor=fpdfp.QSGD(3), error=1e-6)
    shifted = dataclasses.replace(plain, shift_step=None)
    assert helpers.reaches(problem, shifted, 2000, compressor=fpdfp.QSGD(3), error=1e-6)


BIASED = [
    compress.TopK(1),
    compress.TopK(0.4),
    compress.Sign(random=False),
    compress.Half("bfloat16", random=False),
    compress.Half("float16"),
    compress.Natural(),
]


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("compressor", BIASED, ids=repr)
@pytest.mark.parametrize("n", [helpers.slow(n, n != 3) for n in (1, 3, 6)])
def test_biased_messages_have_no_floor_with_error_feedback(compressor: Any, n: int, momentum: bool) -> None:
    problem, method = helpers.fused_regression(spread=0.3), ErrorFeedbackPDFP(momentum=momentum)
    assert helpers.reaches(problem, method, 30_000, every=50, clients_per_round=n, compressor=compressor)


def test_error_feedback_is_its_rule() -> None:
    """Word for word with dense matrices: top-3 of the differences of two clients of five, one dual step."""
    problem = helpers.graph_guided()
    B, gamma, lam = helpers.graph(12).toarray(), 0.05, problem.model.largest_lambda
    method = ErrorFeedbackPDFP(gamma, dual_steps=1)
    ours = iterates(problem, method, 30, clients_per_round=2, seed=4, compressor=compress.TopK(3))
    x, v, h = np.zeros(12), np.zeros(24), np.zeros((5, 12))
    for k, (ours_x, _) in enumerate(ours):
        for i in fpdfp.rng.choose_clients(4, k, 5, 2):
            difference = problem.losses.gradients(x, np.array([i]))[0] - h[i]
            kept = np.argsort(-abs(difference))[:3]
            h[i, kept] += difference[kept]
        estimate = h.mean(axis=0)
        v = np.clip(lam / gamma * B @ (x - gamma * estimate) + (np.eye(24) - lam * B @ B.T) @ v, -0.02, 0.02)
        x = x - gamma * estimate - gamma * B.T @ v
        np.testing.assert_allclose(ours_x, x, atol=1e-13)


def test_error_feedback_needs_messages_that_make_no_larger_errors() -> None:
    problem = helpers.graph_guided()
    with pytest.raises(ValueError, match="compressor must have a relative error below 1 for ErrorFeedbackPDFP"):
        fpdfp.solve(problem, ErrorFeedbackPDFP(), rounds=1, compressor=compress.RandK(2))
    with pytest.raises(ValueError, match="shift_step must be 1 for ErrorFeedbackPDFP"):
        fpdfp.solve(problem, ErrorFeedbackPDFP(shift_step=0.5), rounds=1)
    with pytest.raises(ValueError, match="compressor must be unbiased for ShiftedPDFP"):
        fpdfp.solve(problem, ShiftedPDFP(), rounds=1, compressor=compress.TopK(3))


@pytest.mark.parametrize("kind", [ShiftedPDFP, ErrorFeedbackPDFP])
def test_the_dual_is_known_where_the_prox_is_a_closed_form(kind: Any) -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), penalties.L1(0.02))
    result = fpdfp.solve(problem, kind(), rounds=300)
    np.testing.assert_allclose(result.v, -problem.gradient(result.x), atol=1e-9)
    assert result.certificate.relative_gap is not None
    assert result.certificate.relative_gap < 1e-10


def test_where_fpdfp_stalls() -> None:
    """The same messages at constant steps: FPDFP has a floor, even with everyone and no quantizer."""
    problem = helpers.graph_guided()
    best = fpdfp.minimize(problem, tol=1e-12).objective
    step = 1.0 / float(problem.lipschitz.mean())
    run: dict[str, Any] = {"rounds": 1000, "clients_per_round": 3, "compressor": fpdfp.QSGD(5)}
    theirs = fpdfp.solve(problem, fpdfp.FPDFP(step), **run).objective / best - 1
    ours = fpdfp.solve(problem, ShiftedPDFP(), **run).objective / best - 1
    assert theirs > 1e-3
    assert abs(ours) < 1e-10


@pytest.mark.parametrize("kind", ["moments", "diagonal"])
@pytest.mark.parametrize("loss", [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares])
def test_a_preconditioner_is_a_change_of_coordinates(loss: Any, kind: Any) -> None:
    """The same iterates as without one on the problem whose rows are XS and whose map is BS."""
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(loss(X, y, clients=owner), penalties.L1(0.02), helpers.graph(12))
    seen: list[Any] = []
    run: dict[str, Any] = {"rounds": 15, "clients_per_round": 3, "compressor": fpdfp.QSGD(5), "seed": 1}
    start = np.linspace(-1, 1, 12)
    method = ShiftedPDFP(0.3, dual_steps=7, preconditioner=kind)
    fpdfp.solve(problem, method, x0=start, callbacks=[lambda run: seen.append((run.x.copy(), run.algorithm))], **run)
    prepared = seen[-1][1]
    S = prepared.factor.apply(np.eye(12)).T
    there = fpdfp.Problem(loss(X @ S, y, clients=owner), penalties.L1(0.02), linops.Matrix(helpers.graph(12) @ S))
    plain = iterates(there, ShiftedPDFP(0.3, dual_steps=7), x0=np.linalg.solve(S, start), **run)
    for (x, _), (u, _) in zip(seen, plain, strict=True):
        np.testing.assert_allclose(x, S @ u, atol=1e-6)  # λ comes from other bounds of ‖BS‖


def test_moments_bound_the_hessian_and_whiten_it() -> None:
    problem = helpers.graph_guided(weights="samples")
    seen: list[Any] = []
    fpdfp.solve(
        problem, ShiftedPDFP(preconditioner="moments"), rounds=1, callbacks=[lambda run: seen.append(run.algorithm)]
    )
    S = seen[0].factor.apply(np.eye(12)).T
    X = helpers.classification()[0]
    bound = 0.25 * X.T @ X / len(X) + 0.05 * np.eye(12)
    np.testing.assert_allclose(S.T @ bound @ S, np.eye(12), atol=1e-5)
    for x in (np.zeros(12), np.ones(12)):
        hessian = problem.losses.hessian(x, problem.weights)
        assert np.linalg.eigvalsh(S.T @ hessian @ S)[-1] <= seen[0].coordinates.smoothness
    per_client = problem.lipschitz_in(seen[0].factor)
    for i in range(5):
        rows = X[40 * i : 40 * i + 40] @ S
        true = np.linalg.norm(0.25 * rows.T @ rows / 40 + 0.05 * S.T @ S, 2)
        assert true <= per_client[i] <= 1.0001 * true
    scaling = precondition.Scaling(np.linspace(1, 5, 12))
    T = np.diag(scaling.factor.apply(np.ones(12)))
    for i, value in enumerate(problem.lipschitz_in(scaling.factor)):
        rows = X[40 * i : 40 * i + 40] @ T
        true = np.linalg.norm(0.25 * rows.T @ rows / 40 + 0.05 * T @ T, 2)
        assert true <= value <= 1.2 * true


def test_what_is_sent_once_is_counted_apart() -> None:
    problem = helpers.graph_guided()
    frame = 80
    plain = fpdfp.solve(problem, ShiftedPDFP(), rounds=3)
    assert (plain.bits_once_up, plain.bits_once_down) == (0, 0)
    assert "once" not in str(plain)
    moments = fpdfp.solve(problem, ShiftedPDFP(preconditioner="moments"), rounds=3)
    assert moments.bits_once_up == 5 * (32 * 78 + frame)
    assert moments.bits_once_down == 5 * (32 * 78 + frame)
    assert moments.bits_up == plain.bits_up
    assert "  preconditioner  12.9 kbit up, 12.9 kbit down" in str(moments)
    diagonal = fpdfp.solve(problem, ShiftedPDFP(preconditioner="diagonal"), rounds=3)
    assert diagonal.bits_once_up == 5 * (32 * 12 + frame)
    given = fpdfp.solve(problem, ShiftedPDFP(preconditioner=precondition.Scaling(np.ones(12))), rounds=3)
    assert given.bits_once_up == 0
    assert given.bits_once_down == 5 * (32 * 12 + frame)
    np.testing.assert_allclose(given.x, plain.x, atol=1e-12)


def test_badly_scaled_features_take_few_rounds_with_moments() -> None:
    X, y, owner = helpers.classification(d=12)
    X = X * np.geomspace(1e-2, 1e2, 12)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=1e-6), penalties.L1(1e-4), helpers.graph(12))
    best = fpdfp.minimize(problem, tol=1e-10).objective
    run: dict[str, Any] = {"rounds": 60, "compressor": fpdfp.QSGD(5, norm="max"), "clients_per_round": 3}
    without, with_moments = (
        fpdfp.solve(problem, ShiftedPDFP(preconditioner=kind), **run).objective / best - 1 for kind in (None, "moments")
    )
    assert with_moments < 1e-4 < 0.1 * without


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ShiftedPDFP(dual_steps=0), ValueError, "dual_steps must be an integer of at least 1"),
        (lambda: ShiftedPDFP(shift_step=1.5), ValueError, "shift_step must be at most 1"),
        (lambda: ShiftedPDFP(shift_step=-0.1), ValueError, "shift_step must be a finite number greater than 0"),
        (lambda: ShiftedPDFP(momentum=0.9), TypeError, "momentum must be True or False"),
        (
            lambda: ShiftedPDFP(preconditioner="hessian"),
            ValueError,
            "preconditioner must be one of 'auto', 'moments', 'diagonal'",
        ),
        (lambda: ShiftedPDFP(preconditioner=np.eye(3)), TypeError, "preconditioner must be .* got ndarray"),
        (lambda: precondition.Whitening(np.ones((2, 3))), ValueError, "hessian must be a square matrix"),
        (lambda: precondition.Whitening([[1.0, 0.5], [0.0, 1.0]]), ValueError, "hessian must be symmetric"),
        (lambda: precondition.Whitening(-np.eye(2)), ValueError, "hessian must be positive definite"),
        (lambda: precondition.Scaling([1.0, 0.0]), ValueError, "curvature must be positive"),
        (lambda: linops.Diagonal([]), ValueError, "factors must have at least one entry"),
        (lambda: linops.Compose(np.eye(3), np.eye(2)), ValueError, "inner gives arrays of shape"),
    ],
)
def test_wrong_arguments_are_named(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_losses_without_known_curvature_are_named() -> None:
    problem = helpers.zoo()["isotropic TV"]
    for kind in ("moments", "diagonal"):
        with pytest.raises(ValueError, match=f"preconditioner='{kind}' needs losses with known bounds"):
            fpdfp.solve(problem, ShiftedPDFP(preconditioner=kind), rounds=1)


@pytest.mark.parametrize(("n", "preconditioner"), [(2, None), (2, "moments"), (2, "diagonal"), (6, None)])
def test_mini_batches_have_no_floor(n: int, preconditioner: Any) -> None:
    """Loopless SVRG: to 1e-10 at a constant step with 3 of 20 samples, quantized."""
    problem = helpers.fused_regression(spread=0.3)
    method = ShiftedPDFP(batch_size=3, preconditioner=preconditioner)
    run: dict[str, Any] = {"clients_per_round": n, "compressor": fpdfp.QSGD(5, norm="max")}
    assert helpers.reaches(problem, method, 20_000, every=50, **run)


def test_mini_batches_are_the_rule_of_the_docstring() -> None:
    problem = helpers.fused_regression(spread=0.3)
    method = ShiftedPDFP(0.05, dual_steps=1, momentum=False, shift_step=0.5, batch_size=4, refresh=0.3)
    ours = iterates(problem, method, 25, clients_per_round=2, seed=8)
    B, lam = np.diff(np.eye(8), axis=0), problem.model.largest_lambda
    x, v, h, h_mean = np.zeros(8), np.zeros(7), np.zeros((6, 8)), np.zeros(8)
    anchors: dict[int, Any] = {}
    full = 0
    for k, (ours_x, _) in enumerate(ours):
        clients = fpdfp.rng.choose_clients(8, k, 6, 2)
        m = []
        for i in clients.tolist():
            who = np.array([i])
            draws = fpdfp.rng.Draws(8, k, who)
            coin = draws.words(fpdfp.rng.Purpose.REFRESH, 1)[0, 0] / 2**32
            if i not in anchors or coin < 0.3:
                full += i in anchors
                gradient = problem.losses.gradients(x, who)[0]
                anchors[i] = (x, gradient)
            else:
                here = problem.losses.gradients(x, who, 4, draws)[0]
                gradient = here - problem.losses.gradients(anchors[i][0], who, 4, draws)[0] + anchors[i][1]
            m.append(gradient - h[i])
            h[i] += 0.5 * m[-1]
        estimate = h_mean + np.mean(m, axis=0)
        h_mean = h_mean + 0.5 / 6 * np.sum(m, axis=0)
        v = np.clip(lam / 0.05 * B @ (x - 0.05 * estimate) + v - lam * B @ B.T @ v, -0.1, 0.1)
        x = x - 0.05 * estimate - 0.05 * B.T @ v
        np.testing.assert_allclose(ours_x, x, atol=1e-12)
    assert full > 3


def test_an_automatic_step_grows_to_the_curvature_that_is_there() -> None:
    """Clients with data in different directions: the mean of their constants is far above that of f."""
    parts = [np.diag(np.where(np.arange(8) // 2 == i, 2.0, 0.0)) for i in range(4)]
    losses = fpdfp.losses.LeastSquares.from_clients(parts, [np.arange(8.0)] * 4, l2=0.01)
    problem = fpdfp.Problem(losses, penalties.L1(0.01))
    states: list[Any] = []
    fpdfp.solve(problem, ShiftedPDFP(), rounds=25, callbacks=[lambda run: states.append(run.state)])
    growth = [StepControl(*state.control).growth for state in states]
    assert growth[0] == 1.0
    assert 2.0 < max(growth) <= 4.0  # L of f is a quarter of a client's
    fixed: list[Any] = []
    fpdfp.solve(problem, ShiftedPDFP(0.1), rounds=25, callbacks=[lambda run: fixed.append(run.state)])
    assert {StepControl(*state.control).growth for state in fixed} == {1.0}


def test_typical_errors_are_at_most_the_bound() -> None:
    for compressor in UNBIASED:
        for shape in ((5,), (600,), (8, 9, 10)):
            assert 0 <= compressor.typical_omega(shape) <= compressor.omega(shape)
    assert fpdfp.QSGD(7, norm="max").typical_omega(4096) < 0.1 * fpdfp.QSGD(7, norm="max").omega(4096)
    assert compress.RandK(0.25).typical_omega(400) == pytest.approx(3.0, rel=0.2)
