"""The partial likelihood of Cox against a double loop over risk sets, as a textbook writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import fpdfp
from fpdfp.errors import ArgumentError
from fpdfp.losses import Cox
from fpdfp.rng import Draws

ALL = np.arange(2)


def textbook(X: Any, x: Any, time: Any, event: Any, *, entry: Any = None, strata: Any = None, weights: Any = None,
             offset: Any = None, ties: str = "efron") -> tuple[float, Any, Any]:  # fmt: skip
    """Minus the partial log-likelihood of some rows, its gradient and its Hessian."""
    n, p = X.shape
    entry = np.full(n, -np.inf) if entry is None else entry
    strata = np.zeros(n) if strata is None else strata
    w = np.ones(n) if weights is None else weights
    z = X @ x + (np.zeros(n) if offset is None else offset)
    event = (event > 0) & (w > 0)
    value, gradient, hessian = 0.0, np.zeros(p), np.zeros((p, p))
    for stratum in np.unique(strata):
        here = strata == stratum
        for t in np.unique(time[here & event]):
            risk, dying = here & (entry < t) & (time >= t), here & event & (time == t)
            steps = int(dying.sum()) if ties == "efron" else 1
            share = w[dying].sum() / steps
            value -= (w * z)[dying].sum()
            gradient -= (w[:, None] * X)[dying].sum(axis=0)
            for step in range(steps):
                r = w * np.exp(z) * (risk - step / steps * dying)
                mean = r @ X / r.sum()
                value += share * np.log(r.sum())
                gradient += share * mean
                hessian += share * ((X.T * r) @ X / r.sum() - np.outer(mean, mean))
    return value, gradient, hessian


def study(seed: int, rows: int = 60, **wanted: bool) -> tuple[Any, dict[str, Any], Any]:
    """Rows with ties of two clients, and what else is wanted of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3)) + 2.0
    time = 1.0 + np.round(rng.exponential(5.0, rows), rng.integers(0, 3))
    given: dict[str, Any] = {"time": time, "event": rng.random(rows) < 0.6}
    if wanted.get("entry"):
        given["entry"] = np.where(rng.random(rows) < 0.5, time - rng.exponential(2.0, rows) - 0.01, time - 10.0)
    if wanted.get("strata"):
        given["strata"] = rng.integers(0, 3, rows)
    if wanted.get("weights"):
        given["weights"] = rng.integers(0, 4, rows) * 0.7
    if wanted.get("offset"):
        given["offset"] = rng.standard_normal(rows)
    return X, given, np.append([0, 1], rng.integers(0, 2, rows - 2))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("sparse", [False, True])
@given(
    seed=st.integers(0, 10**6), entry=st.booleans(), strata=st.booleans(), weights=st.booleans(), offset=st.booleans()
)
def test_values_gradients_and_hessians_of_each_client(ties: Any, sparse: bool, seed: int, **wanted: bool) -> None:
    X, given, owner = study(seed, **wanted)
    rows = scipy.sparse.csr_array(X) if sparse else X
    ridge = np.array([0.0, 0.1, 0.3])
    losses = Cox(rows, clients=owner, ties=ties, l2=ridge, **given)
    x = np.random.default_rng(seed).standard_normal(3)
    values, gradients, hessians = losses.values(x, ALL), losses.gradients(x, ALL), losses.hessians(x, ALL)
    assert hessians is not None
    for client in ALL:
        own = owner == client
        n = own.sum()
        some = {name: one[own] for name, one in given.items()}
        value, gradient, hessian = textbook(X[own], x, ties=ties, **some)
        assert values[client] == pytest.approx(value / n + (ridge * x**2).sum() / 2, rel=1e-11)
        np.testing.assert_allclose(gradients[client], gradient / n + ridge * x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(hessians[client], hessian / n + np.diag(ridge), rtol=1e-8, atol=1e-12)
        assert np.linalg.eigvalsh(hessians[client])[0] > -1e-12
        np.testing.assert_allclose(losses.scores(x, client).sum(axis=0), -gradient, rtol=1e-8, atol=1e-10)
        alone = losses.part(np.array([client]))
        zero = np.array([0])
        np.testing.assert_array_equal(alone.values(x, zero)[0], values[client])
        np.testing.assert_array_equal(alone.gradients(x, zero)[0], gradients[client])
        np.testing.assert_array_equal(alone.scores(x, 0), losses.scores(x, client))
    both = losses.gradients(np.stack([x, -x]), ALL)
    np.testing.assert_array_equal(both[0], gradients[0])
    np.testing.assert_array_equal(both[1], losses.gradients(-x, np.array([1]))[0])


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("wanted", [{}, {"entry": True, "strata": True, "weights": True}])
def test_scores_of_rows_are_derivatives_in_their_weights(ties: Any, wanted: dict[str, bool]) -> None:
    """At a minimum, the influence of a row is what a small change of its weight does to the gradient (Breslow)."""
    X, given, _ = study(5, rows=30, **wanted)
    x = np.array([0.3, -0.2, 0.5])
    losses = Cox(X, ties=ties, **given)
    scores = losses.scores(x, 0)
    if ties == "efron":  # each score against its formula, from the double loop
        np.testing.assert_allclose(scores, score_loop(X, x, **given), rtol=1e-9, atol=1e-11)
        return
    weights = given.pop("weights", np.ones(len(X)))
    h = 1e-6
    for row in (0, 7, 13):
        if weights[row] == 0:
            continue
        step = h * (np.arange(len(X)) == row)
        ahead, behind = (textbook(X, x, weights=weights + s, ties=ties, **given)[1] for s in (step, -step))
        np.testing.assert_allclose(-weights[row] * (ahead - behind) / (2 * h), scores[row], atol=1e-6)


def score_loop(
    X: Any, x: Any, time: Any, event: Any, entry: Any = None, strata: Any = None, weights: Any = None
) -> Any:
    """The score residuals of Efron's approximation, row by row, as residuals(type="score") of R defines them."""
    n = len(X)
    w = np.ones(n) if weights is None else weights
    entry = np.full(n, -np.inf) if entry is None else entry
    strata = np.zeros(n) if strata is None else strata
    event, r = (event > 0) & (w > 0), np.exp(X @ x)
    out = np.zeros(X.shape)
    for stratum in np.unique(strata):
        here = strata == stratum
        for t in np.unique(time[here & event]):
            risk, dying = here & (entry < t) & (time >= t), here & event & (time == t)
            count = int(dying.sum())
            for step in range(count):
                part = risk - step / count * dying
                total = w * r * part
                mean = total @ X / total.sum()
                hazard = w[dying].mean() / total.sum()
                out += (dying / count)[:, None] * (X - mean) - (r * part * hazard)[:, None] * (X - mean)
    return w[:, None] * out


def test_extreme_points_neither_overflow_nor_lose_late_risk_sets() -> None:
    X, given, _ = study(3, entry=True)
    direction = np.array([1.0, -0.5, 0.2])
    losses = Cox(X, **given)
    zero = np.array([0])
    slope = (losses.values(2e5 * direction, zero) - losses.values(1e5 * direction, zero)) / 1e5
    far = losses.gradients(1e5 * direction, zero)[0]
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far @ direction, slope[0], rtol=1e-9)
    curvature = losses.hessians(1e5 * direction, zero)
    assert curvature is not None
    assert np.isfinite(curvature).all()


def test_a_row_that_is_much_larger_leaves_no_rounding_behind() -> None:
    """A row with a weight of e⁴⁰ is at risk for a short time: risk sets after and before do not notice."""
    time = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    X = np.array([[0.1], [40.0], [0.2], [-0.3], [0.4]])
    entry = np.array([0.0, 1.5, 0.0, 0.0, 0.0])
    losses, others = Cox(X, time, np.ones(5), entry=entry), [0, 2, 3, 4]
    without = Cox(X[others], time[others], np.ones(4))
    one, zero = np.ones(1), np.array([0])
    more = losses.gradients(one, zero)[0] * 5 - without.gradients(one, zero)[0] * 4
    assert abs(more[0]) < 1e-14 * 40


def test_lipschitz_constants_hold_and_other_methods_may_use_them() -> None:
    X, given, owner = study(11, strata=True)
    losses = Cox(X, clients=owner, l2=0.01, **given)
    bounds, rng = losses.lipschitz(), np.random.default_rng(0)
    scaling = fpdfp.linops.Diagonal(np.array([1.0, 0.5, 2.0]))
    scaled = losses.lipschitz_in(scaling)
    for _ in range(20):
        hessians = losses.hessians(3.0 * rng.standard_normal(3), ALL)
        assert hessians is not None
        for client in ALL:
            assert np.linalg.eigvalsh(hessians[client])[-1] <= bounds[client]
            inside = hessians[client] * np.outer(scaling.factors, scaling.factors)
            assert np.linalg.eigvalsh(inside)[-1] <= scaled[client]
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.02), weights="samples")
    found = fpdfp.minimize(problem).x
    run = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3000, compressor=None)
    np.testing.assert_allclose(run.x, found, atol=2e-4)


def test_restriction_to_some_features() -> None:
    X, given, owner = study(2, entry=True)
    losses = Cox(X, clients=owner, l2=np.array([0.1, 0.2, 0.3]), feature_names=["a", "b", "c"], **given)
    few = losses.restrict(np.array([0, 2]))
    x = np.array([0.4, -1.0])
    assert few.feature_names == ("a", "c")
    np.testing.assert_allclose(few.values(x, ALL), losses.values(np.array([0.4, 0.0, -1.0]), ALL), rtol=1e-14)


def test_start_stop_rows_of_constant_covariates_are_one_row() -> None:
    X, given, _ = study(8)
    cut = np.minimum(2.5, given["time"] / 2)
    rows = np.concatenate([X, X])
    event = np.concatenate([np.zeros(len(X)), given["event"]])
    entry, time = np.concatenate([np.zeros(len(X)), cut]), np.concatenate([cut, given["time"]])
    whole, split, x = Cox(X, **given), Cox(rows, time, event, entry=entry), np.array([0.2, 0.1, -0.4])
    zero = np.array([0])
    np.testing.assert_allclose(split.values(x, zero) * 2, whole.values(x, zero), rtol=1e-12)
    a, b = split.hessians(x, zero), whole.hessians(x, zero)
    assert a is not None
    assert b is not None
    np.testing.assert_allclose(a * 2, b, rtol=1e-10)


def test_whole_weights_are_repeated_rows_with_ties_of_breslow() -> None:
    X, given, _ = study(9)
    weights = np.random.default_rng(1).integers(1, 4, len(X))
    again = np.repeat(np.arange(len(X)), weights)
    repeated = Cox(X[again], given["time"][again], given["event"][again], ties="breslow")
    weighted = Cox(X, weights=weights, ties="breslow", **given)
    x, zero = np.array([0.2, 0.1, -0.4]), np.array([0])
    np.testing.assert_allclose(
        weighted.gradients(x, zero) * len(X), repeated.gradients(x, zero) * len(again), rtol=1e-10, atol=1e-12
    )


def test_the_scale_of_weights_multiplies_losses_alone() -> None:
    X, given, owner = study(6, weights=True)
    plain, scaled = (Cox(X, clients=owner, weight_scale=scale, **given) for scale in (1.0, 0.5))
    x = np.array([0.2, -0.1, 0.3])
    for name in ("values", "gradients", "hessians"):
        np.testing.assert_allclose(getattr(scaled, name)(x, ALL), 0.5 * getattr(plain, name)(x, ALL), rtol=1e-13)
    for one, other in zip(scaled.sums_at(x, ALL, robust=True), plain.sums_at(x, ALL, robust=True), strict=True):  # type: ignore[arg-type]
        np.testing.assert_array_equal(one, other)


def test_sums_for_standard_errors() -> None:
    X, given, owner = study(7, entry=True, strata=True)
    losses, x = Cox(X, clients=owner, l2=0.1, **given), np.array([0.2, -0.1, 0.3])
    sums = losses.sums_at(x, ALL, robust=True)
    assert sums is not None
    lower = np.tril_indices(3)
    for client in ALL:
        own = owner == client
        value, gradient, hessian = textbook(X[own], x, **{name: one[own] for name, one in given.items()})
        np.testing.assert_allclose(sums.numbers[client], [own.sum(), own.sum(), 0.0, 2 * value, 0.0], rtol=1e-12)
        np.testing.assert_allclose(sums.score[client], -gradient, atol=1e-10)
        np.testing.assert_allclose(sums.hessian[client], hessian[lower], atol=1e-10)
        scores = losses.scores(x, client)
        np.testing.assert_allclose(sums.meat[client], (scores.T @ scores)[lower], atol=1e-10)
    assert losses.sums_at(x, ALL, robust=False).meat.shape == (2, 0)  # type: ignore[union-attr]


def test_hazards_of_no_features_are_those_of_nelson_and_aalen() -> None:
    X, given, _ = study(4, entry=True)
    for ties in ("breslow", "efron"):
        (found,) = Cox(X, ties=ties, **given).hazards(np.zeros(3), 0)  # type: ignore[arg-type]
        for k, t in enumerate(found.times):
            risk = ((given["entry"] < t) & (given["time"] >= t)).sum()
            dying = ((given["time"] == t) & given["event"]).sum()
            wanted = dying / risk if ties == "breslow" else sum(1 / (risk - step) for step in range(dying))
            assert found.hazard[k] == pytest.approx(wanted, rel=1e-12)
            assert found.events[k] == dying


def test_hazards_do_not_depend_on_what_is_added_to_features() -> None:
    X, given, _ = study(4, strata=True)
    x = np.array([0.5, 0.2, -0.1])
    shift = np.array([1.0, 2.0, 3.0])
    one, other = (Cox(rows, **given).hazards(x, 0) for rows in (X, X + shift))
    assert [stratum.stratum for stratum in one] == [0, 1, 2]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(b.hazard * np.exp(shift @ x), a.hazard, rtol=1e-12)
        np.testing.assert_allclose(b.means / b.hazard[:, None], a.means / a.hazard[:, None] + shift, rtol=1e-10)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_responses_are_derivatives_in_linear_forms(ties: Any) -> None:
    X, given, _ = study(10, rows=25, entry=True, weights=True)
    x, h = np.array([0.2, 0.1, -0.4]), 1e-4
    losses = Cox(X, ties=ties, **given)
    expected, spread = losses.responses(x, 0)
    order = np.argsort(losses._risk.given)
    for row in range(25):
        values = [textbook(X, x, ties=ties, offset=s * h * (np.arange(25) == row), **given)[0] for s in (-1, 0, 1)]
        happened = (given["event"] & (given["weights"] > 0))[row] * given["weights"][row]
        assert expected[order][row] - happened == pytest.approx((values[2] - values[0]) / (2 * h), abs=1e-6)
        assert spread[order][row] == pytest.approx((values[2] - 2 * values[1] + values[0]) / h**2, abs=1e-5)


def test_a_client_without_events_has_a_ridge_alone() -> None:
    losses = Cox(np.eye(3), [1.0, 2.0, 3.0], [0, 0, 1], clients=[0, 0, 1], l2=2.0)
    x = np.ones(3)
    np.testing.assert_allclose(losses.values(x, ALL), [3.0, 3.0])
    np.testing.assert_allclose(losses.gradients(x, ALL), np.full((2, 3), 2.0))
    assert losses.hazards(x, 0)[0].times.size == 0
    assert (losses.scores(x, 0) == 0).all()


def test_newton_steps_from_the_sums_find_the_minimum() -> None:
    X, given, owner = study(21, rows=120, entry=True)
    losses, shares = Cox(X, clients=owner, **given), np.bincount(owner) / len(owner)
    x = np.zeros(3)
    for _ in range(8):
        hessian = losses.hessian(x, shares)
        assert hessian is not None
        x = x - np.linalg.solve(hessian, losses.gradient(x, shares))
    pooled = scipy.optimize.minimize(
        lambda v: textbook(X, v, strata=owner, **given)[0], np.zeros(3), method="BFGS", options={"gtol": 1e-9}
    )
    np.testing.assert_allclose(x, pooled.x, atol=1e-6)
    assert np.abs(losses.gradient(x, shares)).max() < 1e-14


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"event": [1, 2, 0]}, "event must hold 1 or True"),
        ({"event": [1, 0]}, "event must have one entry for each of the 3 times"),
        ({"time": [[1.0], [2.0], [3.0]]}, "time must be one-dimensional"),
        ({"time": [1.0, np.nan, 2.0]}, "time must be finite"),
        ({"entry": [0.0, 2.0, 1.0]}, "entry must be less than time in every row.* row 1, which enters at 2"),
        ({"ties": "exact"}, "ties must be one of 'efron', 'breslow'"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights must be at least 0, got -1"),
        ({"strata": [1, 2]}, "strata must have one label for each of the 3 rows"),
        ({"offset": [1.0]}, "offset must have shape"),
        ({"X": np.eye(4)}, "X must have a row for each of the 3 times"),
    ],
)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"X": np.eye(3), "time": [1.0, 2.0, 3.0], "event": [1, 0, 1]} | change
    with pytest.raises(ArgumentError, match=says):
        Cox(**given)


def test_batches_are_refused() -> None:
    losses = Cox(np.eye(3), [1.0, 2.0, 3.0], [0, 0, 1])
    assert not losses.supports_batches
    with pytest.raises(ArgumentError, match="risk sets need all rows"):
        losses.gradients(np.zeros(3), np.array([0]), 2, Draws(0, 0, np.array([0])))
