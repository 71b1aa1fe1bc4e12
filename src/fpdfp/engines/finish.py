"""Newton steps in few features: a run with ``tol`` ends with them where they cost no more than its rounds have.

Near the solution few features count, and clients can afford to send how their losses curve in these. The server then
minimises a quadratic model of f plus the penalty in these features, all others being zero, and asks all clients for the
value and the gradient where this leads. That gives a bound of F(x) − F*, whatever the step was made of, and the slope
of the next model, with the same curvature for as long as steps shrink quickly.

A run takes its first steps when its rounds have cost as much as the steps are predicted to cost, in the sense of
``prefer``. It tries again whenever it has spent as much as that since. So a run costs at most about twice what one
does that knows when to begin, besides its start, and nothing of this depends on ``tol``: a looser tolerance ends the
same run earlier.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import LocalModels
from fpdfp.engines.looks import LOOSEST, SMALLEST, announce, look
from fpdfp.engines.prepare import AskedClients
from fpdfp.engines.run import Certified, Run
from fpdfp.linops import Identity
from fpdfp.methods.base import Certifying
from fpdfp.penalties.separable import L1
from fpdfp.precondition import cost
from fpdfp.precondition.base import Announced, full
from fpdfp.problem import Certificate
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Quadratic

#: The levels of the point at which clients give second derivatives.
POINT_LEVELS = 2047
#: The steps that an attempt is predicted to take, and the most that it takes.
STEPS, MOST_STEPS = 3, 20
#: Features differ by far if their largest second derivative is more than this many times the smallest.
UNEVEN = 2.0**16
#: The most features of a model: clients send a message of the square of that, 500,000 numbers of BITS, about 0.75 MB.
MOST = 1000
#: Features count whose slopes are so large a part of their weights.
NEAR = 0.8
#: An objective that grows by so small a part of it has only been rounded.
ROUNDING = 1e-13
#: The least eigenvalue of a model, in coordinates with a diagonal of ones.
EPS = 1e-12


class Finish:
    """Takes Newton steps in few features, in automatic runs to a tolerance.

    Parameters
    ----------
    run
        The run.
    tol
        The relative gap that is to be reached.
    """

    def __init__(self, run: Run, tol: float) -> None:
        self.run, self.tol = run, tol
        #: The best point of the latest attempt.
        self.reached = run.x
        #: The rounds, and the bits up and down, that the run had spent after the last attempt, and before its rounds.
        self.since = (0, 0, 0)
        if run.options.prefer != "balanced":  # every round multiplies what the start has cost
            self.rest()
        problem, choices = run.problem, run.prepared.choices
        losses = problem.losses
        self.applies = (
            choices.automatic and isinstance(run.algorithm, Certifying) and run.can_predict_gap
            and problem.model.xp is np and len(losses.shape) == 1 and losses.can_restrict and problem.penalty.finite
        )  # fmt: skip
        #: Whether x and gradients may be rounded in looks: not where features differ by far.
        self.rounds_x = True
        self.bits = cost.choose_bits(self._given, losses.shape[-1]) if losses.form == "quadratic" else cost.MODEL_BITS
        #: Whether the run is to begin with steps.
        self.at_once = self.applies and getattr(run.method, "preconditioner", "auto") is None

    def features(self, x: Array, slope: Array) -> IntArray:
        """Return the features that count with an l1 norm: those not zero, and those with slopes near their weights."""
        problem = self.run.problem
        known = problem.losses.form == "quadratic" and len(x) <= MOST  # one model is all of f then
        if known or not (isinstance(problem.penalty, L1) and problem.linop.is_identity):
            return np.arange(len(x))
        return np.flatnonzero((x != 0) | (np.abs(slope) >= NEAR * np.asarray(problem.penalty.weight)))

    def is_due(self) -> bool:
        """Whether steps are predicted to cost no more than what the run has spent since the last attempt."""
        run = self.run
        if not self.applies:
            return False
        if run.round == 0:
            return self.at_once and run.traffic["certificate"].up == 0  # once
        assert isinstance(run.algorithm, Certifying)
        count = len(self.features(run.x, run.algorithm.estimate_slope(run.state)))
        spent = self._spent(self.since)
        if not 0 < count <= MOST or spent.rounds <= 0:
            return False
        given = self._given
        steps = cost.of_models(given, count, self.bits).plus(self._price_steps(STEPS + 1))._replace(rounds=STEPS)
        return given.score(spent.plus(steps)) <= given.score(spent.plus(spent))

    def take(self) -> tuple[Certified, Certificate] | None:
        """Look at the gap, and take steps until the tolerance is certified; None where they do not lead there."""
        run, problem = self.run, self.run.problem
        x, v = run.x, run.v if problem.linop.is_identity else None
        features = np.arange(0)
        hessian: Array | None = None
        value = before = math.inf
        for step in range(MOST_STEPS + 1):
            x, slope, certificate = look(run, x, v, self._predict(before), rounded=self.rounds_x)
            gap = math.inf if certificate.gap is None else certificate.gap / certificate.scale
            if certificate.gap is not None and certificate.gap <= self.tol * certificate.scale:
                return Certified(certificate.gap, certificate.objective, certificate.scale, x), certificate
            grown = not certificate.objective < value + ROUNDING * abs(certificate.objective)
            failed = grown and not gap < before
            if (failed and not self._can_refine) or step == MOST_STEPS or run.round == run.options.rounds:
                return None
            self.reached = x
            run.level = value = certificate.objective
            wanted = self.features(x, slope)
            if not 0 < len(wanted) <= MOST:
                return None
            fresh = hessian is None or len(np.setdiff1d(wanted, features)) > 0
            if fresh or failed or self._is_slow(gap, before, len(wanted)):
                features, hessian = wanted, self._ask(wanted, x, finer=not fresh)
                if hessian is None:
                    return None  # features of so different sizes that rounding has left nothing of some
            assert hessian is not None
            x, v = self._minimise(features, x, slope, hessian)
            if not np.isfinite(x).all():
                return None
            before = gap
            run.round += 1
        return None

    def _predict(self, before: float) -> float:
        """The relative gap that a look is for, after that before.

        It is about the square of that before where steps converge quadratically.
        """
        if self.run.options.prefer == "rounds":
            return SMALLEST
        if self.run.problem.losses.form == "quadratic":
            return max(min(cost.MODELS[self.bits][1], before**2), SMALLEST)
        return max(min(LOOSEST, before**2), SMALLEST)

    def rest(self) -> None:
        """Take note of what was spent before rounds, or before more of them."""
        spent = self._spent((0, 0, 0))
        self.since = (int(spent.rounds), int(spent.up), int(spent.down))

    def _spent(self, since: tuple[int, int, int]) -> cost.Price:
        """The bits that the run has spent since then."""
        run = self.run
        kinds = [run.traffic[kind] for kind in ("rounds", "preconditioner", "certificate")]
        rounds = run.round - since[0]
        up, down = (sum(way) - before for way, before in zip(zip(*kinds, strict=True), since[1:], strict=True))
        return cost.Price(rounds, up, down, self._given.price(rounds).seconds)

    def _price_steps(self, steps: float) -> cost.Price:
        """The cost of steps, each of which all clients answer with a value and a gradient."""
        return cost.of_look(self._given, self.run.problem.model.shape[0], steps)._replace(rounds=steps)

    @functools.cached_property
    def _given(self) -> cost.Circumstances:
        return AskedClients(self.run.problem, self.run.prepared.choices, self.run.options).describe()

    def _is_slow(self, gap: float, before: float, count: int) -> bool:
        """Whether a new model is predicted to cost less than the steps with this one that are left."""
        given = self._given
        if self.run.problem.losses.form == "quadratic" and not self._can_refine:
            return False  # it would be the same
        if not gap < before:
            return True
        left = math.log(max(gap / given.accuracy, 1.0)) / max(math.log(before / gap), 1e-3)
        spent = self._spent((0, 0, 0))
        anew = spent.plus(cost.of_models(self._given, count, self.bits)).plus(self._price_steps(2))
        return given.score(spent.plus(self._price_steps(left))) > given.score(anew)

    @property
    def _can_refine(self) -> bool:
        """Whether second derivatives may be sent in more bits: for a quadratic, where they are the same everywhere."""
        return self.run.problem.losses.form == "quadratic" and self.bits < max(cost.MODELS)

    def _ask(self, features: IntArray, x: Array, *, finer: bool) -> Array | None:
        """Ask all clients for their curvature in some features, of a quadratic in more bits where that is needed."""
        run, problem = self.run, self.run.problem
        mask = None if len(features) == x.size else Announced.mask(features, x.size)
        # That of other losses at about x will do.
        there = None if problem.losses.form == "quadratic" else announce(x, POINT_LEVELS)
        while True:
            if finer and self._can_refine:
                self.bits = min(bits for bits in cost.MODELS if bits > self.bits)
            question = LocalModels(there, mask, 2 ** (self.bits - 1) - 1)
            sums, count, up, down = clients_of(problem).ask(question, seed=run.options.seed)
            run.meter.count("certificate", up, down)
            hessian = full(sums[0] / count)
            sizes = np.diag(hessian)
            self.rounds_x = self.rounds_x and sizes.max() <= UNEVEN * sizes.min()
            if (sizes > 0).all():
                return raise_noise(hessian)
            if not self._can_refine:
                return None
            finer = True

    def _minimise(self, features: IntArray, x: Array, slope: Array, hessian: Array) -> tuple[Array, Array | None]:
        """Return where a model of f plus the penalty is least, and its dual."""
        problem, penalty, centre = self.run.problem, self.run.problem.penalty, x[features].astype(np.float64)
        space = problem.model
        if len(features) < len(x):
            assert isinstance(penalty, L1)
            penalty = penalty.restrict(features)
            space = space._replace(penalty=penalty, linop=Identity(centre.shape), shape=centre.shape)
        found = minimise(space, Quadratic(hessian, centre, slope[features]), np.zeros(space.dual_shape))
        reached = np.zeros(x.shape, dtype=x.dtype)
        reached[features] = found.u
        return reached, None if space.linop.is_identity else found.v.astype(x.dtype)


def raise_noise(matrix: Array) -> Array:
    """Return a symmetric matrix without negative eigenvalues, up to rounding, in coordinates with a diagonal of ones.

    A Hessian that was rounded on its way may have some. They show how large the noise is: eigenvalues below that are
    raised to it.
    """
    roots = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(roots, roots))
    if values[0] > EPS:
        return matrix
    raised: Array = (vectors * np.maximum(values, max(-values[0], EPS))) @ vectors.T
    return raised * np.outer(roots, roots)
