"""Every prox is checked by what defines it, not by a second copy of its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fpdfp import penalties
from fpdfp.penalties import L1, Box, ElasticNet, GroupL12, NonNegative, Penalty, SparseGroup, Stacked, Zero

SHAPE = (6,)
IMAGE = (2, 3, 2)

PENALTIES: dict[str, tuple[Penalty, tuple[int, ...]]] = {
    "zero": (Zero(), SHAPE),
    "l1": (L1(0.7), SHAPE),
    "weighted l1": (L1([0.0, 0.1, 1.0, 2.0, 0.5, 3.0]), SHAPE),
    "groups": (GroupL12(0.8, groups=[1, 0, 1, 2, 0, 1]), SHAPE),
    "weighted groups": (GroupL12([0.0, 0.5, 2.0], groups=[1, 0, 1, 2, 0, 1]), SHAPE),
    "groups in an array": (GroupL12([0.0, 0.5, 2.0], groups=[[1, 0, 1], [2, 0, 1]]), (2, 3)),
    "axis": (GroupL12(0.6, axis=0), IMAGE),
    "axis, weighted": (GroupL12(np.linspace(0, 1, 6).reshape(3, 2), axis=0), IMAGE),
    "box": (Box(-0.5, [0.0, 0.5, 1.0, 2.0, np.inf, 0.1]), SHAPE),
    "half-open": (Box(upper=1.0), SHAPE),
    "non-negative": (NonNegative(), SHAPE),
    "elastic net": (ElasticNet(0.4, [0.0, 0.1, 1.0, 2.0, 0.5, 3.0]), SHAPE),
    "ridge": (ElasticNet(l2=0.7), SHAPE),
    "l1 with limits": (ElasticNet([0.0, 0.1, 1.0, 2.0, 0.5, 3.0], 0.0, -0.5, [0.0, 0.5, 1.0, 2.0, np.inf, 0.1]), SHAPE),
    "elastic net with limits": (ElasticNet(0.3, 0.6, -np.inf, 0.4), SHAPE),
    "sparse groups": (SparseGroup(0.3, 0.8, groups=[1, 0, 1, 2, 0, 1]), SHAPE),
    "weighted sparse groups": (
        SparseGroup([0.0, 0.1, 1.0, 0.5, 0.2, 0.0], [0.0, 0.5, 2.0], groups=[1, 0, 1, 2, 0, 1]),
        SHAPE,
    ),
    "stacked": (Stacked([L1(0.5), NonNegative()], shapes=[(2,), (2, 2)]), SHAPE),
}

numbers = st.floats(-50, 50, allow_subnormal=False)
steps = st.floats(1e-3, 1e3)


def case(name: str) -> tuple[Penalty, tuple[int, ...]]:
    penalty, shape = PENALTIES[name]
    return penalty.bind(shape), shape


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data(), t=steps)
def test_prox_gives_a_subgradient(name: str, data: Any, t: float) -> None:
    """p = prox_{tg}(y) if and only if u = (y − p)/t is a subgradient of g at p: g(p) + g*(u) = ⟨p, u⟩."""
    penalty, shape = case(name)
    y = data.draw(arrays(np.float64, shape, elements=numbers))
    p = penalty.prox(y, t)
    u = penalty.conjugate_prox(y / t, 1 / t)
    np.testing.assert_allclose(p + t * u, y, atol=1e-12 * (1 + abs(y).max()))
    value = penalty.value(p) + penalty.conjugate(u)
    assert value == pytest.approx(float(np.vdot(p, u)), abs=1e-9 * (1 + abs(y).max() ** 2 / t))


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data(), sigma=steps)
def test_moreau(name: str, data: Any, sigma: float) -> None:
    """prox_{σg*}(y) = y − σ prox_{g/σ}(y/σ)."""
    penalty, shape = case(name)
    y = data.draw(arrays(np.float64, shape, elements=numbers))
    expected = y - sigma * penalty.prox(y / sigma, 1 / sigma)
    np.testing.assert_allclose(penalty.conjugate_prox(y, sigma), expected, atol=1e-11 * (1 + abs(y).max()))


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data())
def test_fenchel_young_inequality(name: str, data: Any) -> None:
    penalty, shape = case(name)
    y = data.draw(arrays(np.float64, shape, elements=numbers))
    v = data.draw(arrays(np.float64, shape, elements=numbers))
    assert penalty.value(y) + penalty.conjugate(v) >= float(np.vdot(y, v)) - 1e-9


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data(), t=steps)
def test_a_batch_gives_each_client_its_own_bits(name: str, data: Any, t: float) -> None:
    penalty, shape = case(name)
    batch = data.draw(arrays(np.float64, (3, *shape), elements=numbers))
    for function in (penalty.prox, penalty.conjugate_prox):
        together = function(batch, t)
        for i in range(3):
            np.testing.assert_array_equal(together[i], function(batch[i], t))


@pytest.mark.parametrize("name", PENALTIES)
def test_derivative_of_the_conjugate_prox(name: str, rng: np.random.Generator) -> None:
    penalty, shape = case(name)
    y = rng.standard_normal(shape) * 2
    direction = rng.standard_normal(shape)
    h = 1e-6
    for sigma in (0.3, 1.0, 4.0):
        ahead, behind = (penalty.conjugate_prox(y + s * h * direction, sigma) for s in (1, -1))
        derivative = penalty.conjugate_prox_derivative(y, sigma)(direction)
        np.testing.assert_allclose(derivative, (ahead - behind) / (2 * h), atol=1e-6)
        stacked = penalty.conjugate_prox_derivative(y, sigma)(np.stack([direction, 2 * direction]))
        np.testing.assert_allclose(stacked[1], 2 * derivative, atol=1e-14)


@pytest.mark.parametrize("name", PENALTIES)
def test_float32_stays_float32(name: str, rng: np.random.Generator) -> None:
    penalty, shape = case(name)
    y = rng.standard_normal(shape).astype(np.float32)
    assert penalty.prox(y, 0.5).dtype == np.float32
    assert penalty.conjugate_prox(y, 0.5).dtype == np.float32


@pytest.mark.parametrize("name", PENALTIES)
def test_zero_vector(name: str) -> None:
    penalty, shape = case(name)
    zero = np.zeros(shape)
    assert np.isfinite(penalty.prox(zero, 1.0)).all()
    np.testing.assert_array_equal(penalty.conjugate_prox(zero, 1.0), zero)
    assert penalty.value(zero) == 0.0
    assert penalty.conjugate(zero) == 0.0


def test_soft_thresholding_in_closed_form() -> None:
    np.testing.assert_array_equal(L1(1.0).prox(np.array([3.0, -0.5, -2.0]), 0.5), [2.5, 0.0, -1.5])


def test_what_a_box_projects_to_is_inside_in_float32_too() -> None:
    box = Box(-0.1, 0.1)
    assert box.value(box.project(np.array([-1.0, 1.0], dtype=np.float32))) == 0.0


def test_derivatives_of_degenerate_sets() -> None:
    """Weight 0 makes the conjugate prox constant; a box that is a point makes it a translation."""
    zero, u = np.zeros(2), np.ones(2)
    np.testing.assert_array_equal(L1(0.0).conjugate_prox_derivative(zero, 1.0)(u), zero)
    np.testing.assert_array_equal(GroupL12(0.0, axis=0).conjugate_prox_derivative(zero, 1.0)(u), zero)
    np.testing.assert_array_equal(Box(0.0, 0.0).conjugate_prox_derivative(zero, 1.0)(u), u)


def test_value_outside_the_domain_is_infinite_and_projection_is_nearest() -> None:
    box = Box(0.0, 1.0)
    assert box.value(np.array([0.5, 1.1])) == np.inf
    np.testing.assert_array_equal(box.project(np.array([0.5, 1.1])), [0.5, 1.0])
    assert L1(1.0).conjugate(np.array([1.1])) == np.inf
    assert NonNegative().conjugate(np.array([1e-9])) == np.inf


BAD: list[tuple[Any, str]] = [
    (lambda: L1(-1.0), "weight must not be negative, got -1"),
    (lambda: L1([1.0, -2.0]), "weight must not be negative, got -2"),
    (lambda: L1(True), "weight must be a number of at least 0, or an array of such numbers, got True"),
    (lambda: L1([True, False]), "weight must be a number of at least 0, .* got truth values"),
    (lambda: L1(None), "weight must be a number of at least 0, .* got None"),
    (lambda: L1("a"), "weight must be a number of at least 0, .* got 'a'"),
    (lambda: ElasticNet(1.0, -1.0), "l2 must not be negative, got -1"),
    (lambda: ElasticNet(True), "l1 must be a number of at least 0, .* got True"),
    (lambda: SparseGroup(1.0, True, groups=[0, 1]), "group_weight must be a number of at least 0, .* got True"),
    (lambda: L1(np.nan), "weight must be finite"),
    (lambda: L1([1.0, 2.0]).bind((3,)), "weight must be one number or have the shape"),
    (lambda: GroupL12(1.0), "either groups or axis"),
    (lambda: GroupL12(1.0, groups=[0, 1], axis=0), "either groups or axis"),
    (lambda: GroupL12(-1.0, axis=0), "weight must not be negative, got -1"),
    (lambda: GroupL12(1.0, axis=True), "axis must be an integer"),
    (lambda: GroupL12(1.0, groups=np.array([0, None], dtype=object)), "groups must name one for every entry"),
    (lambda: GroupL12(1.0, groups=[]), "groups must have one label"),
    (lambda: GroupL12([1.0], groups=[0, 1]), r"one for each of 2 groups, got shape \(1,\)"),
    (lambda: GroupL12(1.0, groups=[0, 1]).bind((3,)), r"one label for each entry of Bx, .* got shape \(2,\)"),
    (lambda: GroupL12(1.0, axis=2).bind((3, 4)), "axis must be an axis of Bx"),
    (lambda: GroupL12([1.0], axis=0).bind((3, 4)), "weight must be one number or have the shape"),
    (lambda: Box(1.0, 0.0), "lower must not exceed upper, .* got 1 and 0"),
    (lambda: Box([0.0, 3.0], [1.0, 2.0]), "lower must not exceed upper, .* got 3 and 2"),
    (lambda: Box([0.0, 0.0], [1.0, 2.0, 3.0]), r"one shape as arrays, got \(2,\) and \(3,\)"),
    (lambda: Box(np.inf), "some finite value must lie between them, got inf and inf"),
    (lambda: Box(False, True), "lower must be a number, infinite for no bound, .* got False"),
    (lambda: Box(0.0, None), "upper must be a number, infinite for no bound, .* got None"),
    (lambda: Box(np.nan), "must not be NaN"),
    (lambda: Box([0.0, 1.0], 2.0).bind((3,)), "lower must be one number or have the shape"),
    (lambda: Stacked([], []), "parts and shapes"),
    (lambda: Stacked([L1(1.0)], [(2,)]).bind((3,)), "shapes must add up"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_penalty_of_ones_own_needs_three_functions() -> None:
    class Huberish(penalties.Penalty):
        """y²/2, whose prox is y/(1 + t)."""

        def value(self, y: Any) -> float:
            return 0.5 * float(np.vdot(y, y))

        def prox(self, y: Any, t: float) -> Any:
            return y / (1 + t)

        def conjugate(self, v: Any) -> float:
            return 0.5 * float(np.vdot(v, v))

    y = np.array([1.0, -2.0])
    np.testing.assert_allclose(Huberish().conjugate_prox(y, 3.0), y / 4)
    with pytest.raises(NotImplementedError, match="derivative"):
        Huberish().conjugate_prox_derivative(y, 1.0)
