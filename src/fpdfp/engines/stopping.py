"""When a run with ``tol`` ends: at a bound of F(x) − F*, and at nothing else under the name of convergence."""

from __future__ import annotations

import functools
import json
import logging
import math
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.engines.finish import Finish
from fpdfp.engines.looks import LOOSEST, look
from fpdfp.engines.result import clean_point
from fpdfp.engines.run import Certified, Run
from fpdfp.errors import AbsentError, CheckpointError
from fpdfp.losses.base import EPS
from fpdfp.methods.base import Certifying, TracksObjective
from fpdfp.problem import TINY, VANISHING, Certificate, Residual

log = logging.getLogger("fpdfp.engines")
#: A look is worth while where the server expects at most this many times the tolerance: by two numbers of each client,
#: and by gradients, which cost as much as some 50 rounds. On 12 problems with sparse binary features, each to four
#: tolerances, the mean product of rounds and bits is least with 3 (1, 2, 3, 5, 10 were tried).
CHEAP, DEAR = 10.0, 3.0
#: A gap this many times the one that was looked for is taken for that of a rounded x, where features differ by far.
POOR = 30.0
#: Rounds between looks that ask clients grow with this factor: a run ends at most so much later than it could.
PATIENCE = 1.1
#: The same for looks that more is sent for than the two numbers of each client.
THOROUGH = 1.5
#: Where the server has an estimate of its own, the round of the first look without it.
FIRST = 200
#: Where the server's own estimate is below this part of the tolerance, and the two numbers of each client do not show
#: that, it may be their rounding: a full certificate is then requested at once, and after that at the usual times.
#: Without this, float32 rows with tol=1e-8 take 200 rounds instead of 18 (tests/test_single_precision.py).
DOUBT = 0.01
#: Below this tolerance questions are sent in full precision.
FINE = 1e-8
#: An objective that changes by less than this many units of the last place has come to rest.
RESTING = 16
#: Where a duality gap stays above the tolerance, the server's own estimate ends a run below this part of it.
SURE = 1e-3
#: What comes to rest is watched for this many times the rounds, for at least this many rounds, and for this many times
#: those in which as many clients take part as there are.
WATCH, AT_LEAST, EVERYONE = 1.5, 20, 4
#: What a run that is resumed must know to look when one that was not interrupted does, and to see the same.
SCHEDULE = (
    "slope", "next_round", "next_thorough", "promising_below", "progress", "looked", "target", "sought", "doubted",
    "paid", "rounds_x",
)  # fmt: skip


class Ending(NamedTuple):
    """The end of a run: its status, a sentence, and the supporting bound, if clients have certified one.

    ``certificate`` belongs to that point, if more is known than the bound.
    """

    status: str
    message: str
    certified: Certified | None = None
    certificate: Certificate | None = None


#: The status of a run that has begun with Newton steps and continues without them.
FAILED = "steps failed"


def say_gap(gap: float, tol: float) -> str:
    """Say that a relative gap is small enough."""
    return f"the relative duality gap is {gap:.2g}, at most tol={tol:g}"


class Stopping:
    """Looks from time to time whether the tolerance has been reached.

    A look asks something of all clients, so there are few. Where the server knows by itself that the
    gap is still large (``Run.predicted_gap``), no one is asked; otherwise the rounds between looks grow geometrically.

    Parameters
    ----------
    run
        The run.
    tol
        The relative duality gap to reach.
    """

    def __init__(self, run: Run, tol: float) -> None:
        self.run, self.tol = run, tol
        self.next_round = run.round + 1
        self.next_thorough = run.round + (FIRST if run.can_predict_gap else 1)
        # With limits on Bx looks are for tol: bounds say little before a run is nearly stationary.
        self.automatic = run.prepared.choices.automatic and run.problem.penalty.finite
        #: The relative gap that the next looks are for: in automatic runs a power of ten, whatever the tolerance is.
        self.target = LOOSEST if self.automatic else tol
        #: The residual at which a run without a bound looks for one at any price, and at which it may end.
        self.sought = self.target
        self.still = min(LOOSEST, 10.0 ** math.floor(math.log10(max(tol, TINY)))) if self.automatic else tol
        self.promising_below, self.doubted = math.inf, False
        self.finish = Finish(run, tol)
        #: A round, the objective there and the gap: where the run was when it was last seen to make progress.
        self.progress = (run.round, math.inf, math.inf)
        #: The round of the latest look, and what that has shown: the objective, and the violation of constraints.
        self.looked = run.round - self.finish.at_once
        self.seen: tuple[float, float] | None = None
        #: Whether x and gradients may be rounded in looks: until the gap is far larger than the server expected.
        self.rounds_x = True
        #: Where no bound is known, the bits that clients send in rounds from which on a look is paid back.
        self.paid = 0
        self._go_on(run.schedule)

    def check(self, *, last: bool) -> Ending | None:
        """Return how the run ends, None if it continues; ``last`` says that there are no more rounds."""
        run = self.run
        if run.round <= self.looked:
            return None
        finishing = self.finish.is_due()
        due = last or (run.round > 0 and self.is_due())
        if not (due or finishing):
            return None
        ending, self.seen = None, None
        try:
            with run.participants.evaluating(last=True):
                if due:
                    ending = self._check(last)
                if ending is None and finishing:
                    ending = self._finish()
        except AbsentError as error:
            log.warning("round %d is not certified: %s", run.round, error)
        self.looked = run.round
        self.keep_schedule()
        return ending

    def keep_schedule(self) -> None:
        """Have checkpoints say when the looks are."""
        kept = {name: one for name, one in vars(self).items() if name in SCHEDULE}
        self.run.schedule = json.dumps([kept, self.finish.since, self.run.level])

    def _go_on(self, schedule: str) -> None:
        """Go on with the looks of a run that is resumed."""
        if schedule:
            saved, since, level = json.loads(schedule)
            if self.automatic or saved["target"] == self.tol:  # the looks of a method that was given are for tol
                vars(self).update(saved)
                self.finish.since, self.run.level = tuple(since), level
        self.keep_schedule()

    def describe(self, ending: Ending) -> str:
        """Return how the run ended as a text, for a checkpoint."""
        certified, certificate = ending.certified, ending.certificate
        numbers = None if certified is None else (*certified[:3], self.target < FINE)
        where = None  # a point that is not the run's own, and what is known of it
        if certified is not None and certificate is not None:
            where = [certified.x.tolist(), certificate.v.tolist(), *certificate.residual, certificate.violation]
        return json.dumps([ending.status, ending.message, self.tol, numbers, where])

    def recall(self, text: str) -> Ending | None:
        """Return how a run that is resumed has ended, None if it has not, or is to continue to a smaller tolerance."""
        if not text:
            return None
        status, message, tol, numbers, where = json.loads(text)
        if tol > self.tol or status == FAILED:
            return None
        if numbers is None:
            return Ending(status, message)
        gap, objective, scale, fine = numbers
        dtype = self.run.problem.model.dtype
        if where is not None:
            x, v, primal, dual, violation = where
            residual = Residual(primal, dual)
            certificate = Certificate(objective, gap, residual, violation, np.array(v, dtype=dtype), scale)
            return Ending(status, message, Certified(gap, objective, scale, np.array(x, dtype=dtype)), certificate)
        algorithm = self.run.algorithm
        if not isinstance(algorithm, Certifying):
            raise CheckpointError(f"a checkpoint has a certificate that {algorithm.summary} cannot have")
        x = algorithm.question(self.run.state, fine=fine).arrays.x
        return Ending(status, message, Certified(gap, objective, scale, x.astype(dtype)))

    def is_due(self) -> bool:
        """Whether to ask the clients after this round."""
        run = self.run
        if run.traffic["rounds"].up < self.paid:
            return False
        # Where nothing is left of the objective, nothing is small besides it, and estimates show nothing.
        blind = not run.can_predict_gap or run.scale <= self._vanishing
        if run.round >= self.next_thorough or (run.round >= self.next_round and blind):
            return True
        return run.can_predict_gap and self._is_promising()

    @property
    def _vanishing(self) -> float:
        return VANISHING / EPS * self.run.problem.least_scale

    def _is_promising(self) -> bool:
        """Whether the server's own estimate of the gap has come down, also below what it was when it was too good."""
        share = CHEAP if self.run.can_certify and not self.automatic else DEAR
        expected = self.run.predicted_gap()  # infinite where nothing is known, as the scale is then
        return math.isfinite(expected) and expected <= min(share * self.target * self.run.scale, self.promising_below)

    def _check(self, last: bool) -> Ending | None:
        run = self.run
        thorough = last or run.round >= self.next_thorough
        self.next_round = max(run.round + 1, math.ceil(PATIENCE * run.round))
        before, saved = run.traffic["certificate"].up, run.meter.saved_bits(run.x)
        certified = None
        plain = self.automatic and isinstance(run.algorithm, Certifying) and run.problem.slopes_suffice
        if not plain and (last or self._is_promising()):
            certified = run.certify(fine=self.target < FINE, slack=self.target * run.scale)
        if certified is not None:
            run.level, self.seen = certified.objective, (certified.objective, 0.0)
            if certified.gap <= self.tol * certified.scale:
                return Ending("converged", say_gap(certified.gap / certified.scale, self.tol), certified)
            self._learn(certified.gap / certified.scale)
            if not self.doubted and run.predicted_gap() <= DOUBT * self.target * certified.scale:
                self.doubted = thorough = True
        if thorough:
            self.next_thorough = math.ceil(THOROUGH * run.round)
        elif certified is not None:
            return None
        doubtful = not self.doubted and run.predicted_gap() <= DOUBT * self.target * run.scale
        self.doubted, plain = self.doubted or doubtful, plain and not (thorough or doubtful)
        # Coordinates other than those of x leave zeros at 1e-12, of which a gap near rounding consists.
        coarse = plain and self.rounds_x and self.target >= FINE
        if coarse:
            x, _, certificate = look(run, run.x, run.v, self.target)
            self.rounds_x = certificate.gap is not None and certificate.gap <= POOR * self.target * certificate.scale
        else:
            x = clean_point(run, run.x, run.v)
            certificate = run.problem.certificate(x, run.v, thorough=False, products=run.round, slopes_only=plain)
        tracks = isinstance(run.algorithm, TracksObjective)
        run.level, self.seen = certificate.objective, (certificate.objective, certificate.violation)
        if certificate.gap is not None:
            self._learn(certificate.gap / certificate.scale)
        elif not tracks:
            # Nothing says when there will be a bound: clients must not send more for looks than in rounds. Values
            # that came with an evaluation count as well, so that evaluations do not bring the next look forward.
            self.paid = run.traffic["rounds"].up + run.traffic["certificate"].up - before + saved
        # Where a bound says nothing, its dual point is 0.
        found = certificate if certificate.gap is None or run.v is None else certificate._replace(v=run.v)
        lacking = not tracks and ((plain and certificate.gap is None) or self._lacks_bound(certificate))
        if lacking and self._is_feasible(x, certificate, self.sought) and self._is_stationary(found, self.sought):
            # A run that could end without a bound looks for one, whatever it takes.
            certificate = run.problem.certificate(x, run.v, thorough=certificate.gap is not None)
            self.sought = self.sought / 10.0 if self.automatic else self.tol
        if not self._is_feasible(x, certificate, self.tol):
            gap = certificate.relative_gap
            return None if gap is None else self._rests(certificate.objective, gap)
        if coarse and not (certificate.gap is not None and certificate.gap <= self.tol * certificate.scale):
            return None  # rounding may be all that is seen
        ending = self._judge(certificate)
        if ending is not None and ending.status == "converged" and certificate.gap is not None:
            certified = Certified(certificate.gap, certificate.objective, certificate.scale, x)
            return ending._replace(certified=certified, certificate=certificate)
        return ending

    def _finish(self) -> Ending | None:
        """Take Newton steps in few features, and end where one has reached the tolerance."""
        self.seen = None
        found = self.finish.take()
        if found is None:
            self.finish.rest()
            return Ending(FAILED, "Newton steps have not led to the tolerance") if self.finish.at_once else None
        certified, certificate = found
        self.run.reached = certified.x
        return Ending("converged", say_gap(certified.gap / certified.scale, self.tol), certified, certificate)

    def _learn(self, gap: float) -> None:
        """Look for the next smaller power of ten, or for tol, when the server's estimate is down by about as much."""
        if self.automatic:
            self.target = min(LOOSEST, 10.0 ** (math.ceil(math.log10(max(gap, TINY))) - 1))
        self.promising_below = self.run.predicted_gap() * min((self.target / max(gap, TINY)) ** 0.5, 0.9)

    def _judge(self, certificate: Certificate) -> Ending | None:
        gap = certificate.relative_gap
        if gap is None:
            if isinstance(self.run.algorithm, TracksObjective):
                return self._judge_step(certificate, "no bound of F(x) − F* is known for this problem")
            if not self._is_stationary(certificate, self.still):
                return None
            return Ending(
                "stationary",
                f"the relative residual of the optimality condition is at most {self.tol:g}; no bound of F(x) − F* is "
                "known for this problem, so how far x is from optimal is not known",
            )
        if gap <= self.tol:
            return Ending("converged", say_gap(gap, self.tol))
        if isinstance(self.run.algorithm, TracksObjective) and gap >= 0.5 * self.progress[2]:
            # With features of very different sizes a bound that allows for rounding stays far above what is left.
            ending = self._judge_step(certificate, f"the relative duality gap that can be shown is {gap:.2g}", SURE)
            if ending is not None:
                return ending
        return self._rests(certificate.objective, gap)

    def _lacks_bound(self, certificate: Certificate) -> bool:
        """Whether a bound is missing, or says little more than F* ≥ 0, and another one may be found."""
        if certificate.gap is None:
            return self.run.problem.has_large_map
        return not self.run.problem.penalty.finite and certificate.gap >= 0.5 * certificate.scale

    def _judge_step(self, certificate: Certificate, known: str, part: float = 1.0) -> Ending | None:
        """End where the server's own model of F expects no more than (a part of) the tolerance."""
        run, slack = self.run, self.tol * certificate.scale + self.run.problem.least_scale
        expected = run.predicted_gap() / certificate.scale
        # Below the rounding of F, a model of F says nothing about F.
        if not expected <= part * self.tol or self.tol < float(np.finfo(run.problem.model.dtype).eps):
            return None
        # The last step is taken unseen, and its model was wrong where F is larger than at the point before.
        assert isinstance(run.algorithm, TracksObjective)
        if not certificate.objective <= run.algorithm.known_objective(run.state) + slack:
            return None
        return Ending(
            "stationary",
            f"by Newton's model F(x) − F* is about {expected:.2g} of the objective, at most tol={self.tol:g}; {known}",
        )

    def _rests(self, objective: float, gap: float) -> Ending | None:
        """End where neither the objective nor the gap changes any more: rounding is then all that is left."""
        run = self.run
        since, before, least = self.progress
        unit = float(np.finfo(run.problem.model.dtype).eps) * abs(objective)
        if abs(objective) <= run.problem.least_scale:
            unit = run.problem.least_scale  # nothing is left of the objective but rounding
        if abs(objective - before) > RESTING * unit or gap < 0.5 * least:
            self.progress = (run.round, objective, min(gap, least))
            return None
        # Where few clients take part at a time, those who would change something may not have been drawn yet.
        rare = run.problem.n_clients / (run.options.clients_per_round or run.problem.n_clients)
        if run.round < max(WATCH * since, since + max(AT_LEAST, EVERYONE * rare)):
            return None
        dtype = np.dtype(run.problem.model.dtype).name
        return Ending(
            "rounding",
            f"the objective no longer changes in {dtype}, and its relative duality gap is {gap:.2g}: tol={self.tol:g} "
            "cannot be shown to be reached in this precision",
        )

    @functools.cached_property
    def slope(self) -> float:
        """The length of the gradient at 0, besides which residuals are small."""
        model = self.run.problem.model
        gradient = self.run.problem.gradient(model.xp.zeros(model.shape, dtype=model.dtype))
        return max(float(np.linalg.norm(gradient)), TINY)

    def _is_feasible(self, x: Array, certificate: Certificate, tol: float) -> bool:
        """Whether constraints are violated by no more than a tolerance."""
        return self.run.problem.is_nearly_feasible(x, certificate.v, tol, certificate.scale)

    def _is_stationary(self, certificate: Certificate, tol: float) -> bool:
        """Whether the residual is small besides gradients and duals."""
        problem = self.run.problem
        # An error of the dual is one of the gradient, Bᵀv; besides the dual alone it would never be small where v* = 0.
        dual = max(float(np.linalg.norm(certificate.v)), self.slope * problem.model.largest_lambda**0.5, TINY)
        return (
            certificate.residual.primal <= tol * self.slope
            and certificate.residual.dual <= tol * dual
            and self._decrement(certificate.v) <= tol * certificate.scale
        )

    def _decrement(self, v: Array) -> float:
        """About what a step in the method's coordinates would gain; besides one steep feature any residual is small."""
        run = self.run
        if run.algorithm.factor is None:
            return 0.0
        slope = run.problem.gradient(run.x) + run.problem.linop.adjoint(v)
        return 0.5 * float(np.square(run.algorithm.factor.adjoint(slope)).sum())
