"""``fpdfp.solve``: check everything, run the rounds, evaluate, checkpoint, and say how it ended."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks, rng, steps
from fpdfp._typing import Array
from fpdfp.compress.base import Compressor, Full
from fpdfp.engines import checkpoint as checkpoints
from fpdfp.engines.interrupt import Interrupt
from fpdfp.engines.local import Run
from fpdfp.engines.progress import Bar
from fpdfp.engines.result import Result
from fpdfp.errors import DivergenceWarning, StepTooLargeWarning
from fpdfp.methods.base import Method
from fpdfp.methods.fpdfp import FPDFP
from fpdfp.problem import Problem

#: An objective this many times that of the start and of zero counts as divergence.
BLOW_UP = 1e3


class Plan(NamedTuple):
    """When to do what, all checked."""

    rounds: int
    evaluate_every: int
    metrics: dict[str, Callable[[Array], float]]
    callbacks: tuple[Callable[[Run], Any], ...]
    tol: float | None
    checkpoint: Path | None
    checkpoint_every: int
    description: dict[str, str]


def solve(
    problem: Problem,
    method: Method | None = None,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    compressor: Compressor | Mapping[str, Compressor | None] | None = None,
    seed: int = 0,
    x0: Any = None,
    evaluate_every: int | None = None,
    metrics: Mapping[str, Callable[[Array], float]] | None = None,
    callbacks: Iterable[Callable[[Run], Any]] = (),
    tol: float | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: str | Path | bool = False,
    progress: bool | None = None,
) -> Result:
    """Minimise f(x) + g(Bx) with a federated method, in this process.

    Parameters
    ----------
    problem
        What to minimise.
    method
        How: one of :mod:`fpdfp.methods`; :class:`fpdfp.FPDFP` by default.
    rounds
        How many communication rounds.
    clients_per_round
        How many clients, drawn uniformly, take part in a round; None means everyone.
    compressor
        What clients apply to their replies: one for all fields, or a mapping from the names of the fields
        (``{"x": …, "v": …}`` for FPDFP). None means full precision.
    seed
        The seed of all randomness. The same seed gives the same bits, for any number of threads.
    x0
        Where to start; zero by default.
    evaluate_every
        Rounds between evaluations of the objective, which are off the method's clock; by default so many
        that there are about 200 evaluations.
    metrics
        Functions of x to record at every evaluation, by name.
    callbacks
        Functions called after every round with the :class:`fpdfp.Run`; one that returns True ends it.
    tol
        Stop when the relative duality gap is at most this; where no gap is known, when the residual of
        Lemma 1 is. Checked at evaluations.
    checkpoint
        A file to write the state of the run to, every ``checkpoint_every`` rounds (by default about 20 times
        a run), on Ctrl-C and at the end.
    resume
        A checkpoint to go on from, to exactly the bits of an uninterrupted run; True means ``checkpoint``, if
        the file is there.
    progress
        Whether to show a progress bar; None shows it where standard error is a terminal.

    Returns
    -------
    Result
        Ctrl-C returns the result so far. A run that diverges warns and returns its last good iterate.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=500, tol=1e-9)
    >>> result.status
    'converged'
    >>> result.x.round(3)
    array([2.75 , 2.75 , 0.179, 0.179])
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be an fpdfp.Problem, got {type(problem).__name__}")
    method = FPDFP() if method is None else method
    if not isinstance(method, Method):
        raise TypeError(f"method must be one of fpdfp.methods, got {type(method).__name__}")
    rounds = _checks.integer("rounds", rounds, at_least=1, at_most=rng.MAX_ROUNDS)
    seed = rng.check_seed(seed)
    n = _participants(problem, method, clients_per_round)
    if method.batch_size is not None and not problem.losses.supports_batches:
        raise ValueError(f"batch_size must be None: {type(problem.losses).__name__} cannot draw mini-batches")
    start = _start(problem, x0)
    prepared, compressors = _prepare(problem, method, compressor, n, rounds)
    plan = _plan(
        problem, prepared, compressors, n, seed, start, rounds, evaluate_every, metrics, callbacks, tol,
        checkpoint, checkpoint_every, resume,
    )  # fmt: skip
    run = Run(problem, prepared, compressors, n, seed, prepared.init(problem.model, start))
    source = plan.checkpoint if resume is True else Path(resume) if resume else None
    if source is not None and (resume is not True or source.exists()):
        _restore(run, checkpoints.load(source), plan, source)
    return _Loop(run, plan).go(progress)


class _Loop:
    """The rounds, and what happens between them."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run = run
        self.plan = plan
        self.good = (run.state, run.round, run.bits_up, run.bits_down)
        zero = np.zeros(run.problem.model.shape, dtype=run.problem.model.dtype)
        self.limit = BLOW_UP * max(abs(run.problem.evaluate(zero)[0]), abs(run.problem.evaluate(run.x)[0]), 1e-300)

    def go(self, progress: bool | None) -> Result:
        run, plan = self.run, self.plan
        status, message = "finished", f"all {plan.rounds} rounds done"
        if run.round == 0 and run.history.rows == 0:
            self.evaluate()
        if run.round < plan.rounds:
            from fpdfp._kernels import threads

            # Kernels are compiled, and the number of threads is chosen, before the clock starts.
            with threads.fastest(run.rehearse):
                ended = self.rounds(progress)
            if isinstance(ended, Result):
                return ended
            status, message = ended or (status, message)
        if run.history.rows == 0 or run.history.last()["round"] != run.round:
            self.evaluate()
        return self.result(status, message)

    def rounds(self, progress: bool | None) -> Result | tuple[str, str] | None:
        """Do the rounds; return why they ended early, or the result if they diverged."""
        run, plan = self.run, self.plan
        ended = None
        with Interrupt() as interrupt, Bar(plan.rounds, run.round, progress) as bar:
            while run.round < plan.rounds and ended is None:
                try:
                    run.advance()
                except FloatingPointError as error:
                    return self.diverged(str(error))
                due = run.round % plan.evaluate_every == 0 or run.round == plan.rounds
                if due:
                    if not self.evaluate():
                        return self.diverged(f"the objective grew to {run.problem.evaluate(run.x)[0]:.3g}")
                    bar.update(run.round, run.history.last()["objective"], run.bits_up)
                if plan.checkpoint is not None and run.round % plan.checkpoint_every == 0:
                    self.save()
                ended = self.ended(due, interrupt)
            if plan.checkpoint is not None:
                self.save()
        return ended

    def ended(self, evaluated: bool, interrupt: Interrupt) -> tuple[str, str] | None:
        """Say whether the run is to end before its last round, and why."""
        run, plan = self.run, self.plan
        for callback in plan.callbacks:
            if callback(run) is True and run.stop_reason is None:
                run.stop()
        if run.stop_reason is not None:
            return "stopped", run.stop_reason
        if interrupt.requested:
            return "interrupted", "stopped by the user; the result so far is kept"
        if evaluated and plan.tol is not None:
            certificate = run.problem.certificate(run.x, run.v)
            if certificate.relative_gap is not None and certificate.relative_gap <= plan.tol:
                return "converged", f"the relative duality gap is at most {plan.tol:g}"
            if run.problem.strong_convexity <= 0 and certificate.residual.norm <= plan.tol:
                return "converged", f"the residual of Lemma 1 is at most {plan.tol:g}"
        return None

    def evaluate(self) -> bool:
        """Record a row of the history; say whether the iterate is still good."""
        run = self.run
        objective, violation = run.problem.evaluate(run.x)
        if not math.isfinite(objective) or abs(objective) > self.limit:
            return False
        row: dict[str, float] = {
            "round": run.round,
            "objective": objective,
            "bits_up": run.bits_up,
            "bits_down": run.bits_down,
            "step": run.method.schedule()(max(run.round - 1, 0)),
            "seconds": run.seconds,
        }
        if not run.problem.penalty.finite:
            row["violation"] = violation
        for name, metric in self.plan.metrics.items():
            row[name] = float(metric(run.x))
        run.history.append(row)
        self.good = (run.state, run.round, run.bits_up, run.bits_down)
        return True

    def save(self) -> None:
        run = self.run
        assert self.plan.checkpoint is not None
        checkpoints.save(
            self.plan.checkpoint,
            checkpoints.Checkpoint(
                run.round, run.state._asdict(), run.bits_up, run.bits_down, run.seconds, run.history,
                self.plan.description,
            ),
        )  # fmt: skip

    def diverged(self, what: str) -> Result:
        """Go back to the last good iterate, and say what to lower."""
        run = self.run
        failed = run.round
        run.state, run.round, run.bits_up, run.bits_down = self.good
        constants = _constants(run.problem, run.method, run.compressors, run.clients_per_round)
        advice = f"lower the step (it was {run.method.schedule()(max(failed - 1, 0)):.4g}; "
        advice += f"without noise the largest safe one is {constants.largest_safe_step:.4g})"
        if constants.omega > 0:
            advice += f", or quantize more finely (the relative variance bound is now {constants.omega:.3g})"
        message = f"{what} by round {failed}; kept the iterate of round {run.round}: {advice}"
        warnings.warn(message, DivergenceWarning, stacklevel=5)
        return self.result("diverged", message)

    def result(self, status: str, message: str) -> Result:
        run = self.run
        x, v = run.method.solution(run.state)
        certificate = run.problem.certificate(x, v)
        return Result(
            x=x,
            v=certificate.v if v is None else v,
            objective=certificate.objective,
            history=run.history,
            status=status,
            message=message,
            rounds=run.round,
            bits_up=run.bits_up,
            bits_down=run.bits_down,
            certificate=certificate,
        )


def _participants(problem: Problem, method: Method, clients_per_round: int | None) -> int:
    count = problem.n_clients
    if clients_per_round is None:
        return count
    n = _checks.integer("clients_per_round", clients_per_round, at_least=1)
    if n > count:
        raise ValueError(f"clients_per_round must be at most the number of clients, {count}, got {n}")
    if n < count and not method.partial_participation:
        raise ValueError(f"clients_per_round must be None for {type(method).__name__}, which needs every client")
    return n


def _start(problem: Problem, x0: Any) -> Array:
    shape, dtype = problem.model.shape, problem.model.dtype
    if x0 is None:
        return np.zeros(shape, dtype=dtype)
    return _checks.float_array("x0", x0, shape=shape, dtype=dtype).copy()


def _prepare(
    problem: Problem, method: Method, compressor: Any, n: int, rounds: int
) -> tuple[Method, dict[str, Compressor]]:
    """Choose compressors for the fields of the reply, and the automatic hyper-parameters."""
    # Which fields there are depends on the method that runs, which depends on B alone.
    bare = method.prepare(problem.model, _constants(problem, method, {}, n))
    compressors = _compressors(bare, problem, compressor)
    constants = _constants(problem, bare, compressors, n)
    prepared = method.prepare(problem.model, constants)
    schedule = prepared.schedule()
    smallest = min(schedule(0), schedule(rounds - 1))
    if smallest > constants.largest_safe_step * (1 + 1e-9):
        warnings.warn(
            f"step: every step of the run is at least {smallest:.4g}, too large to converge for certain; "
            f"the largest safe one is {constants.largest_safe_step:.4g}",
            StepTooLargeWarning,
            stacklevel=3,
        )
    return prepared, compressors


def _compressors(method: Method, problem: Problem, compressor: Any) -> dict[str, Compressor]:
    fields = list(method.reply_sizes(problem.model))
    if compressor is None or isinstance(compressor, Compressor):
        given = dict.fromkeys(fields, compressor)
    elif isinstance(compressor, Mapping):
        unknown = [name for name in compressor if name not in fields]
        # Algorithm 5 sends no dual: a compressor for it is no mistake.
        if [name for name in unknown if name != "v"]:
            raise ValueError(f"compressor: the fields of a reply are {fields}, got {sorted(map(str, compressor))}")
        given = {name: compressor.get(name) for name in fields}
    else:
        raise TypeError(f"compressor must be a compressor, a mapping or None, got {type(compressor).__name__}")
    chosen: dict[str, Compressor] = {}
    for name, one in given.items():
        if one is not None and not isinstance(one, Compressor):
            raise TypeError(f"compressor[{name!r}] must be a compressor or None, got {type(one).__name__}")
        chosen[name] = Full() if one is None else one
    if not method.compression and any(not isinstance(one, Full) for one in chosen.values()):
        raise ValueError(f"compressor must be None for {type(method).__name__}, which needs exact replies")
    return chosen


def _constants(problem: Problem, method: Method, compressors: Mapping[str, Compressor], n: int) -> steps.Constants:
    sizes = method.reply_sizes(problem.model)
    return steps.Constants(
        lipschitz_mean=float(problem.lipschitz.mean()),
        lipschitz_max=float(problem.lipschitz.max()),
        strong_convexity=problem.strong_convexity,
        n_clients=problem.n_clients,
        clients_per_round=n,
        omega=max((one.omega(sizes[name]) for name, one in compressors.items()), default=0.0),
        exact=method.batch_size is None,
    )


def _plan(
    problem: Problem, method: Method, compressors: Mapping[str, Compressor], n: int, seed: int, start: Array,
    rounds: int, evaluate_every: int | None, metrics: Any, callbacks: Any, tol: float | None, checkpoint: Any,
    checkpoint_every: int | None, resume: Any,
) -> Plan:  # fmt: skip
    every = max(1, rounds // 200) if evaluate_every is None else evaluate_every
    every = _checks.integer("evaluate_every", every, at_least=1)
    metrics = dict(metrics or {})
    for name, metric in metrics.items():
        if not callable(metric):
            raise TypeError(f"metrics[{name!r}] must be a function of x, got {type(metric).__name__}")
    callbacks = tuple(callbacks)
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"callbacks must be functions of the run, got {type(callback).__name__}")
    if tol is not None:
        tol = _checks.real("tol", tol, positive=True)
    if resume is True and checkpoint is None:
        raise ValueError("resume=True needs checkpoint: the file to go on from")
    path = checkpoint if checkpoint is not None else resume if resume and resume is not True else None
    save_every = max(1, rounds // 20) if checkpoint_every is None else checkpoint_every
    save_every = _checks.integer("checkpoint_every", save_every, at_least=1)
    description: dict[str, str] = {}
    if path is not None:
        description = {
            "problem": f"{problem!r} [{checkpoints.fingerprint(problem)}]",
            "method": repr(method),
            "compressor": repr(dict(compressors)),
            "clients_per_round": str(n),
            "seed": str(seed),
            "x0": checkpoints.digest(start),
        }
    return Plan(rounds, every, metrics, callbacks, tol, None if path is None else Path(path), save_every, description)


def _restore(run: Run, saved: checkpoints.Checkpoint, plan: Plan, source: Path) -> None:
    """Put a run back to where its checkpoint was taken."""
    checkpoints.compare(saved.description, plan.description, source)
    run.state = type(run.state)(**saved.state)
    run.round = saved.round
    run.bits_up, run.bits_down, run.seconds = saved.bits_up, saved.bits_down, saved.seconds
    run.history = saved.history
