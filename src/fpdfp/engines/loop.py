"""The rounds of a run, and what happens between them."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp.engines.result import INNER, SENT, Result
from fpdfp.engines.run import Run
from fpdfp.engines.stopping import Ending, Stopping
from fpdfp.errors import (
    AbsentError,
    ArgumentTypeError,
    CheckpointError,
    DivergenceError,
    StoppedError,
)
from fpdfp.methods.base import TracksObjective
from fpdfp.problem import Problem, infinite_start

log = logging.getLogger("fpdfp.engines")
#: An objective this many times that of the start and of zero counts as divergence.
BLOW_UP = 1e3
#: How a run ends that the user stops.
INTERRUPTED = Ending("interrupted", "stopped by the user; the result so far is kept")
#: Rounds between two updates of the progress bar, at most.
SHOWN = 10
#: So that zero is at most zero times something.
TINY = 1e-300


class Observer:
    """A callback of ``fpdfp.solve`` that is notified of all events: subclass it and override methods.

    >>> import numpy as np
    >>> import fpdfp
    >>> class Teller(fpdfp.engines.Observer):
    ...     def evaluated(self, run):
    ...         print(run.round, round(run.history.last()["objective"], 3))
    >>> losses = fpdfp.losses.LeastSquares(np.eye(2), [4.0, 2.0])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> _ = fpdfp.solve(problem, fpdfp.PDFP(), rounds=2, callbacks=[Teller()])
    0 5.0
    1 0.58
    2 0.58
    """

    def __call__(self, run: Run) -> Any:
        """Called when a round is done; True ends the run."""

    def started(self, run: Run, rounds: int) -> None:
        """Called when a run begins, or continues from a checkpoint, and how many rounds it is to have in all."""

    def evaluated(self, run: Run) -> None:
        """Called when the history has a new row."""

    def saved(self, run: Run) -> None:
        """Called when a checkpoint is written."""

    def finished(self, run: Run, result: Result) -> None:
        """Called at the end of a run."""

    def failed(self, run: Run, error: BaseException) -> None:
        """Called when a run ends with an error, which is raised after this."""


class Interrupt:
    """While active, the first Ctrl-C only sets ``requested``; a second one acts at once.

    Outside the main thread signals cannot be handled, and nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None
        self._active = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._active = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


class Loop:
    """The rounds of one run on one problem, and what happens between them.

    Parameters
    ----------
    run
        The run.
    shown
        The run as callbacks, metrics and observers see it.
    tol
        The relative gap at which the rounds end; None does all of them.
    write
        Writes a checkpoint of the run; None without a file.
    """

    def __init__(
        self,
        run: Run,
        shown: Any,
        tol: float | None,
        write: Callable[[Run], None] | None = None,
    ) -> None:
        self.run, self.shown, self.options, self.write = run, shown, run.options, write
        self.observers = [one for one in self.options.callbacks if isinstance(one, Observer)]
        self.good = (run.state, run.work, run.round, run.traffic["rounds"])
        #: Whether rounds were done since the last checkpoint.
        self.unsaved = False
        last = run.round >= run.options.rounds
        with run.participants.asking_ahead(last=last), run.meter.counting("facts" if run.is_fresh else None):
            self.limit = BLOW_UP * self.scale()
            if tol is not None and not isinstance(run.algorithm, TracksObjective):
                with np.errstate(over="ignore", invalid="ignore"):
                    run.level = run.problem.evaluate(run.x)[0]
        if not run.is_fresh:
            run.meter.resume(run.x, run.known.split())
        self.stopping = None if tol is None else Stopping(run, tol)

    def scale(self) -> float:
        """Return a size that the objective should not exceed by far."""
        if isinstance(self.run.algorithm, TracksObjective):
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

    def go(self, interrupt: Interrupt) -> Ending | None:
        """Do the rounds that are left, or those before the tolerance is reached; return what ended them early."""
        run, options = self.run, self.options
        with run.meter.counting("certificate"):
            if self.missing_row():
                self.evaluate_start()
                if self.stopping is not None:
                    self.stopping.keep_schedule()  # with the objective at the start
            ended = self.check()  # if the run was stopped just before one
            if run.round < options.rounds and ended is None:
                # The number of threads is chosen, and kernels are compiled, before the clock starts.
                with (
                    run.participants.choosing_threads(run.rehearse),
                    Bar(options.rounds, run.round, options.progress) as bar,
                ):
                    run.rehearse()
                    ended = self.rounds(interrupt, bar)
        return ended

    def recall(self) -> Ending | None:
        """Return how a run that is resumed has ended, None if it has not, or is to continue to a smaller tolerance."""
        if self.stopping is None or self.options.tol is None or self.stopping.tol > self.options.tol:
            return None
        return self.stopping.recall(self.run.ended)

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

    def rounds(self, interrupt: Interrupt, bar: Bar) -> Ending | None:
        """Do the rounds; return status and message if they ended early."""
        run, options = self.run, self.options
        run.participants.listen(lambda: interrupt.requested)
        try:
            while run.round < options.rounds:
                run.advance()
                self.unsaved = True
                if due := options.is_due(run.round):
                    self.try_to_evaluate()
                ended = self.find_ending(interrupt)  # before the checkpoint, which is to have its bits
                if due or run.round % SHOWN == 0:
                    bar.update(run.round, run.history.last()["objective"], run.traffic.up)
                if ended is not None:
                    return ended
                if options.is_saved(run.round):
                    self.save()
        except DivergenceError as error:
            return self.go_back(str(error))
        except StoppedError:
            return INTERRUPTED
        except BaseException:
            # A callback failed, or the user insists: what was done is kept.
            with contextlib.suppress(CheckpointError, OSError):
                self.save()
            raise
        return None

    def find_ending(self, interrupt: Interrupt) -> Ending | None:
        """Say whether the run is to end before its last round, and why."""
        run = self.run
        for callback in self.options.callbacks:
            outcome = callback(self.shown)
            if isinstance(outcome, bool | np.bool_) and outcome and run.stop_reason is None:
                run.stop()
        if run.stop_reason is not None:
            return Ending("stopped", run.stop_reason)
        if interrupt.requested:
            return INTERRUPTED
        return self.check()

    def check(self) -> Ending | None:
        """Say whether the tolerance has been reached, if it is time to check."""
        run = self.run
        if self.stopping is None:
            return None
        before = run.round
        ending = self.stopping.check(last=run.round == self.options.rounds)
        self.unsaved = self.unsaved or run.round > before
        self.note(ending)
        seen = self.stopping.seen
        if seen is None or self.stopping.looked != run.round or run.history.last()["round"] == run.round:
            return ending
        # A Newton step may lead out of the domain of a loss, from where the next round goes back.
        if math.isfinite(seen[0]) or not isinstance(run.algorithm, TracksObjective):
            self.record(*seen)
        return ending

    def note(self, ending: Ending | None) -> None:
        """Have checkpoints describe how the run has ended; None: it has not."""
        self.run.ended = "" if ending is None or self.stopping is None else self.stopping.describe(ending)

    def try_to_evaluate(self) -> None:
        """Evaluate between rounds; where sites do not answer the round has no row, and the run continues."""
        try:
            with self.run.participants.evaluating(last=self.run.round == self.options.rounds):
                self.evaluate()
        except AbsentError as error:
            log.warning("round %d is not evaluated: %s", self.run.round, error)

    def evaluate(self) -> None:
        """Evaluate the objective, and record a row of the history."""
        run = self.run
        with run.meter.counting("evaluation"):
            objective, violation = run.evaluate()
        if objective == math.inf and isinstance(run.algorithm, TracksObjective):
            if run.round:
                return  # it will be known after the next round
            with np.errstate(all="ignore"):
                objective, violation = run.problem.evaluate(run.x)
            run.level = objective
        self.record(objective, violation)

    def record(self, objective: float, violation: float) -> None:
        """Record a row with an objective that is known; raise DivergenceError if the iterate has diverged."""
        run = self.run
        known = isinstance(run.algorithm, TracksObjective) and not run.round
        if not known and (not math.isfinite(objective) or objective > self.limit):
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

    def evaluate_end(self, ending: Ending | None) -> Ending | None:
        """Evaluate after the last round, unless that is done; return how the run ended."""
        run = self.run
        if run.history.last()["round"] != run.round:
            try:
                if ending is not None and ending.certificate is not None:
                    self.record(ending.certificate.objective, ending.certificate.violation)
                elif ending is not None and ending.certified is not None:
                    self.record(ending.certified.objective, 0.0)
                else:
                    self.evaluate()
            except DivergenceError as error:
                return self.go_back(str(error))
            except AbsentError as error:
                log.warning("the end is not evaluated: %s", error)
        return ending

    def save(self) -> None:
        """Write a checkpoint, if there is a file for it."""
        self.run.commit()
        self.unsaved = False
        if self.write is None:
            return
        self.write(self.run)
        for one in self.observers:
            one.saved(self.shown)

    def go_back(self, what: str) -> Ending:
        """Go back to the last good iterate, and describe what to lower."""
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
        return Ending("diverged", message)


def _measured(name: str, value: Any) -> float:
    """Return what a metric gave as a number; it may be infinite or NaN."""
    if not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError, ValueError):
            return float(value)
    raise ArgumentTypeError(f"metrics[{name!r}]", f"must return a number, got {_checks.kind(value)}")


#: The next round that is kept is so much later than the last one, and this many numbers are kept at most.
GROWTH, ROOM = 1.08, 1 << 22


class Iterate(NamedTuple):
    """A point of a run: the rounds done, what was sent so far without evaluations, and x."""

    round: int
    bits_up: int
    bits_down: int
    x: Array


class Iterates(Observer):
    """Keeps x after the first rounds, and after ever fewer of the later ones; of runs one after the other.

    Up to the twelfth each round is kept, and then one in 1.08 as many: some 70 of 1,000. If these are more than four
    million numbers, every second is dropped.

    Attributes
    ----------
    kept
        The points, the last x of the last run included.

    Examples
    --------
    >>> import fpdfp
    >>> problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(2), [4.0, 2.0]), fpdfp.penalties.L1(0.1))
    >>> iterates = Iterates()
    >>> result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=30, callbacks=[iterates])
    >>> [one.round for one in iterates.kept][-5:], bool((iterates.kept[-1].x == result.x).all())
    ([23, 25, 27, 29, 30], True)
    """

    def __init__(self) -> None:
        self.kept: list[Iterate] = []
        self._growth = GROWTH
        self._before = Iterate(0, 0, 0, np.zeros(0))

    def started(self, run: Run, rounds: int) -> None:
        self._before = self.kept[-1]._replace(x=np.zeros(0)) if self.kept else self._before
        self._keep(run, run.x)

    def __call__(self, run: Run) -> None:
        """Keep x if it is time."""
        last = self.kept[-1].round - self._before.round
        if run.round >= max(last + 1, round(last * self._growth)):
            self._keep(run, run.x)

    def finished(self, run: Run, result: Result) -> None:
        # A run that has diverged goes back to a round before.
        self.kept = [one for one in self.kept if one.round - self._before.round < max(result.rounds, 1)]
        self._keep(run, result.x)

    def _keep(self, run: Any, x: Array) -> None:
        sent, before = run.traffic.before_the_end.totals, self._before
        self.kept.append(
            Iterate(
                before.round + run.round,
                before.bits_up + sent["total_up"] - sent["evaluation_up"],
                before.bits_down + sent["total_down"] - sent["evaluation_down"],
                np.array(to_host(x), dtype=np.float64),
            )
        )
        if len(self.kept) * x.size > ROOM and len(self.kept) > 3:
            self.kept, self._growth = self.kept[::2], self._growth**2
