"""The rounds of a run, and what happens between them."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fpdfp import _checks
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.engines import checkpoint as checkpoints
from fpdfp.engines.features import Left, WholeRun
from fpdfp.engines.history import INNER, SENT
from fpdfp.engines.interrupt import Interrupt
from fpdfp.engines.observer import Observer
from fpdfp.engines.options import RunOptions
from fpdfp.engines.result import Result
from fpdfp.engines.run import DivergenceError, Run, StoppedError
from fpdfp.engines.stopping import Ending, Stopping
from fpdfp.engines.working_set import find_dual
from fpdfp.errors import AbsentError, AccuracyWarning, ArgumentTypeError, CheckpointError, DivergenceWarning
from fpdfp.methods.base import Knowing
from fpdfp.problem import Certificate, Problem, Residual, infinite_start

log = logging.getLogger("fpdfp.engines")
#: An objective this many times that of the start and of zero counts as divergence.
BLOW_UP = 1e3
#: How a run ends that the user stops.
INTERRUPTED = Ending("interrupted", "stopped by the user; the result so far is kept")
#: So that zero is at most zero times something.
TINY = 1e-300


class Stages(Protocol):
    """Begins a run, and again where few features are left."""

    problem: Problem
    options: RunOptions

    def begin(self) -> tuple[Run, Mapping[str, str]]:
        """Return the run, and a description for its checkpoints."""

    def restrict(self, run: Run, left: Left) -> tuple[Run, Mapping[str, str]]:
        """Return a run that goes on with the features that are left."""

    def look_at_others(self, run: Run, ending: Ending) -> Ending | Left:
        """Say whether a run that has reached the tolerance of its features ends, or with which ones it goes on."""


class Loop:
    """The rounds, and what happens between them."""

    def __init__(self, stages: Stages) -> None:
        self.stages, self.options = stages, stages.options
        self.callbacks = tuple(self.options.callbacks)
        self.observers = [one for one in self.callbacks if isinstance(one, Observer)]
        self.enter(*stages.begin())

    def enter(self, run: Run, description: Mapping[str, str]) -> None:
        """Go on with a run: the first one, or one with fewer features."""
        self.run, self.description = run, description
        #: The run as others see it.
        self.shown: Any = run if run.left is None else WholeRun(run, self.stages.problem, run.left)
        self.good = (run.state, run.work, run.round, run.traffic["rounds"])
        last = run.round >= run.options.rounds
        with run.asking_ahead(last=last), run.meter.counting("facts" if run.is_fresh else None):
            self.limit = BLOW_UP * self.scale()
        if not run.is_fresh:
            run.meter.resume(run.x, run.known.split())
        tol = run.options.tol if run.left is None or run.left.is_certain else run.left.until
        self.stopping = None if tol is None else Stopping(run, tol)

    def scale(self) -> float:
        """Return a size that the objective should not exceed by far."""
        if isinstance(self.run.algorithm, Knowing):
            return math.inf  # it accepts no point that is worse
        problem, x = self.run.problem, self.run.x
        zero = problem.model.xp.zeros(problem.model.shape, dtype=problem.model.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = [abs(problem.evaluate(point)[0]) for point in (zero, x)]
            # Nothing is gained by more than what is there, where losses are bounded below.
            if not math.isfinite(problem.losses.lower_bound) or not any(size > 0 for size in sizes):
                sizes += self._possible_gains(problem, x)
        return max(size for size in [*sizes, TINY] if math.isfinite(size))

    def _possible_gains(self, problem: Problem, x: Array) -> list[float]:
        """Return what a step from the start gains at most, and the objective after it."""
        slope = problem.gradient(x)
        v = problem.dual_step(x, None, slope)
        stepped = x - problem.default_step * (slope + problem.linop.adjoint(v))
        return [float(np.vdot(slope, slope)) * problem.default_step, abs(problem.evaluate(stepped)[0])]

    def go(self) -> Result:
        """Do all that is left to do, tell those who look on, and return the result."""
        try:
            for one in self.observers:
                one.started(self.shown, self.options.rounds)
            result = self._go()
            for one in self.observers:
                one.finished(self.shown, result)
        except BaseException as error:
            for one in self.observers:
                one.failed(self.shown, error)
            raise
        return result

    def _go(self) -> Result:
        with Interrupt() as interrupt:
            ended = self.stage(interrupt)
            while isinstance(ended, Left):
                self.enter(*self.stages.restrict(self.run, ended))
                if self.options.is_saved(self.run.round):
                    self.save()
                ended = self.stage(interrupt)
            run = self.run
            with run.ending(), run.meter.counting("end"):
                if run.history.last()["round"] != run.round:
                    try:
                        self.evaluate()
                    except DivergenceError as error:
                        ended = self.go_back(str(error))
                    except AbsentError as error:
                        log.warning("the end is not evaluated: %s", error)
                return self.result(ended or Ending("finished", f"all {self.options.rounds} rounds done"))

    def stage(self, interrupt: Interrupt) -> Ending | Left | None:
        """Do the rounds that are left, as far as they are with the same features; return what ended them early."""
        run, options = self.run, self.options
        # A run that is resumed may have reached its tolerance before.
        ended: Ending | Left | None = None
        if self.stopping is not None and options.tol is not None and self.stopping.tol <= options.tol:
            ended = self.stopping.recall(run.ended)
        with run.meter.counting("certificate"):
            if self.missing_row():
                self.evaluate_start()
            if ended is None:
                ended = self.look()  # if the run was stopped just before one
            if run.round < options.rounds and ended is None:
                # The number of threads is chosen, and kernels are compiled, before the clock starts.
                with run.choosing_threads(), Bar(options.rounds, run.round, options.progress) as bar:
                    run.rehearse()
                    ended = self.rounds(interrupt, bar)
        return ended

    def missing_row(self) -> bool:
        """Whether the round done last should have been evaluated and was not: at the start, or after a crash."""
        run = self.run
        return run.history.rows == 0 or (self.options.is_due(run.round) and run.history.last()["round"] != run.round)

    def evaluate_start(self) -> None:
        """Evaluate before the first round; a start without a finite objective is the caller's mistake."""
        try:
            self.evaluate()
        except DivergenceError:
            objective = self.run.problem.evaluate(self.run.x)[0]
            raise infinite_start(objective) from None

    def rounds(self, interrupt: Interrupt, bar: Bar) -> Ending | Left | None:
        """Do the rounds; return status and message if they ended early, or the features with which they go on."""
        run, options = self.run, self.options
        ended: Ending | Left | None = None
        run.listen(lambda: interrupt.requested)
        try:
            while run.round < options.rounds and ended is None:
                run.advance()
                if options.is_due(run.round) and self.try_to_evaluate():
                    bar.update(run.round, run.history.last()["objective"], run.traffic.up)
                ended = self.find_ending(interrupt)  # before the checkpoint, which is to have its bits
                if isinstance(ended, Left):
                    return ended  # the next checkpoint is that of the run with fewer features
                if options.is_saved(run.round):
                    self.save()
        except DivergenceError as error:
            return self.go_back(str(error))
        except StoppedError:
            ended = INTERRUPTED
        except BaseException:
            # A callback failed, or the user insists: what was done is kept.
            if options.file is not None:
                with contextlib.suppress(CheckpointError, OSError):
                    self.save()
            raise
        if options.file is not None:
            self.save()
        return ended

    def find_ending(self, interrupt: Interrupt) -> Ending | Left | None:
        """Say whether the run is to end before its last round, and why, or to go on with fewer features."""
        run = self.run
        for callback in self.callbacks:
            outcome = callback(self.shown)
            if isinstance(outcome, bool | np.bool_) and outcome and run.stop_reason is None:
                run.stop()
        if run.stop_reason is not None:
            return Ending("stopped", run.stop_reason)
        if interrupt.requested:
            return INTERRUPTED
        return self.look()

    def look(self) -> Ending | Left | None:
        """Say whether the tolerance has been reached, or features can be left out, if it is time to look."""
        run = self.run
        if self.stopping is None or not (run.asks_freely or self.options.is_due(run.round)):
            return None
        ending = self.stopping.look(last=run.round == self.options.rounds)
        return None if ending is None else self.look_at_others(self.stopping, ending)

    def look_at_others(self, stopping: Stopping, ending: Ending) -> Ending | Left | None:
        """Say whether the run ends, or goes on with other features; None where sites do not answer."""
        run = self.run
        try:
            with run.evaluating(last=True):
                found = self.stages.look_at_others(run, ending)
        except AbsentError as error:
            log.warning("round %d is not certified: %s", run.round, error)
            return None
        if isinstance(found, Ending):
            run.ended = stopping.describe(found)
        return found

    def try_to_evaluate(self) -> bool:
        """Evaluate between rounds; where sites do not answer the round has no row, and the run goes on."""
        try:
            with self.run.evaluating(last=self.run.round == self.options.rounds):
                self.evaluate()
        except AbsentError as error:
            log.warning("round %d is not evaluated: %s", self.run.round, error)
            return False
        return True

    def evaluate(self) -> None:
        """Record a row of the history; raise DivergenceError if the iterate is no good any more."""
        run = self.run
        with run.meter.counting("evaluation"):
            objective, violation = run.evaluate()
        if objective == math.inf and isinstance(run.algorithm, Knowing):
            if run.round:
                return  # it will be known after the next round
            with np.errstate(all="ignore"):
                objective, violation = run.problem.evaluate(run.x)
        elif not math.isfinite(objective) or objective > self.limit:
            raise DivergenceError(f"the objective grew to {objective:.3g}")
        sent = run.traffic.before_the_end.totals
        row: dict[str, float] = {
            "round": run.round,
            "objective": objective,
            **{name: sent[name] for name in SENT},
            "step": run.algorithm.step(max(run.round - 1, 0)),
            "seconds": run.seconds,
        }
        if run.algorithm.has_inner_solve:
            server = run.server_work
            row |= dict(zip(INNER, (run.work.steps, server.steps, (run.work + server).unsolved), strict=True))
        if not run.problem.penalty.finite:
            row["violation"] = violation
        for name, metric in (self.options.metrics or {}).items():
            row[name] = _measured(name, metric(self.shown.x))
        run.history.append(row)
        self.good = (run.state, run.work, run.round, run.traffic["rounds"])
        for one in self.observers:
            one.evaluated(self.shown)

    def save(self) -> None:
        """Write a checkpoint."""
        run = self.run
        run.commit()
        if self.options.file is None:
            return
        checkpoints.save(
            self.options.file,
            checkpoints.Checkpoint(
                run.round, run.state._asdict(), run.memory_to_save(), run.kept, (*run.work, *run.spent),
                run.traffic, run.seconds, run.history, {**self.description, **run.labels()}, run.left,
            ),
        )  # fmt: skip
        for one in self.observers:
            one.saved(self.shown)

    def go_back(self, what: str) -> Ending:
        """Go back to the last good iterate, and say what to lower."""
        run = self.run
        failed = run.round
        run.state, run.work, run.round, sent = self.good
        run.meter.traffic = run.meter.traffic.undone(sent)
        facts = run.prepared.facts
        advice = (
            f"lower the step (it was {run.algorithm.step(max(failed - 1, 0)):.4g}; without noise the largest safe one "
            f"is {run.method.largest_step(facts):.4g})"
        )
        if facts.constants.omega > 0:
            advice += f", or quantize more finely (the relative variance bound is now {facts.constants.omega:.3g})"
        message = f"{what} by round {failed}; kept the iterate of round {run.round}: {advice}"
        warn(message, DivergenceWarning)
        return Ending("diverged", message)

    def result(self, ending: Ending) -> Result:
        """Say how it ended, and how far from the optimum."""
        run = self.run
        unsolved = (run.work + run.server_work).unsolved
        if unsolved:
            warn(
                f"{unsolved} inner solves ended before they reached their tolerance; allow more steps or a larger one",
                AccuracyWarning,
            )
        x, v = run.algorithm.solution(run.state)
        if ending.certified is not None:
            x = ending.certified.x  # as it was sent to be certified
        problem, left = run.problem, run.left
        try:
            if ending.certificate is not None:
                certificate, v = ending.certificate, ending.certificate.v
                left = left if left is None or left.is_certain else None  # then it is of all features
            else:
                x = set_zeros(run, x, v)
                if left is not None and not left.is_certain:
                    # That others are zero is not known otherwise.
                    problem, x, left = self.stages.problem.metered(run.meter), left.lift(x), None
                    v = find_dual(problem, x)
                certificate = problem.certificate(x, v, thorough=False)
                if ending.certified is not None:
                    certificate = ending.certified.refine(certificate)
        except AbsentError as error:
            log.warning("nothing is certified: %s", error)
            unknown = problem.model.xp.zeros(problem.model.dual_shape, dtype=x.dtype) if v is None else v
            certificate = Certificate(math.nan, None, Residual(math.nan, math.nan), math.nan, unknown, math.nan)
        v = certificate.v if v is None else v
        if left is not None:
            x, v = left.lift(x), left.lift(v)
            certificate = certificate._replace(v=left.lift(certificate.v))
        return Result(
            x=x,
            v=v,
            objective=certificate.objective,
            history=run.history,
            status=ending.status,
            message=ending.message,
            rounds=run.round,
            traffic=run.traffic,
            certificate=certificate,
            method=run.method,
            algorithm=run.algorithm,
            compression=run.compression,
            left=run.left,
        )


def set_zeros(run: Run, x: Array, v: Array | None) -> Array:
    """Return x after a prox with its own dual, where that is no worse: other coordinates leave zeros at 1e-12."""
    problem = run.problem
    if run.algorithm.factor is None or v is None or not problem.linop.is_identity:
        return x
    step = problem.default_step
    near: Array = problem.penalty.prox(x + step * v, step)
    before, after = problem.evaluate(x), problem.evaluate(near)
    return near if after[0] <= before[0] * (1 + 1e-12) and after[1] <= before[1] else x


def _measured(name: str, value: Any) -> float:
    """Return what a metric gave as a number; it may be infinite or NaN."""
    if not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError, ValueError):
            return float(value)
    raise ArgumentTypeError(f"metrics[{name!r}]", f"must return a number, got {_checks.kind(value)}")
