"""``fpdfp.solve``: check everything, then run the rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from fpdfp import _checks, rng
from fpdfp._blas import one_thread
from fpdfp._typing import Array
from fpdfp.compress import Compressor
from fpdfp.engines import automatic, setup
from fpdfp.engines import checkpoint as checkpoints
from fpdfp.engines.crew import Crew
from fpdfp.engines.history import RESERVED, History
from fpdfp.engines.local import Run, back
from fpdfp.engines.loop import Loop, Plan
from fpdfp.engines.remote import RemoteLosses
from fpdfp.engines.remote_run import RemoteRun
from fpdfp.engines.result import Result
from fpdfp.engines.traffic import Meter
from fpdfp.errors import CheckpointError
from fpdfp.methods.base import Method, Work
from fpdfp.precondition.cost import Prefer
from fpdfp.problem import Problem


def solve(
    problem: Problem,
    method: Method | None = None,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    compressor: Compressor | Mapping[str, Compressor | None] | Literal["auto"] | None = "auto",
    downlink: Compressor | Literal["auto"] | None = "auto",
    drop_out: float = 0.0,
    seed: int = 0,
    x0: Any = None,
    evaluate_every: int | Iterable[int] | None = None,
    metrics: Mapping[str, Callable[[Array], float]] | None = None,
    callbacks: Iterable[Callable[[Run], Any]] = (),
    tol: float | None = None,
    accuracy: float | None = None,
    prefer: Prefer = "balanced",
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: str | Path | bool = False,
    progress: bool | None = None,
    engine: Crew | None = None,
) -> Result:
    """Minimise f(x) + g(Bx) with a federated method.

    Parameters
    ----------
    problem
        What to minimise.
    method
        How: one of :mod:`fpdfp.methods`. By default :class:`fpdfp.ShiftedPDFP` with the preconditioner that is
        predicted to pay for itself (second moments for linear models of up to 2,000 features, their diagonal beyond, a
        Fourier transform for images where it helps), for which some or all clients send something once, counted in
        ``traffic["preconditioner"]``. ``print(result)`` says what was chosen, and why.
    rounds
        How many communication rounds.
    clients_per_round
        How many clients, drawn uniformly, take part in a round; None means everyone.
    compressor
        What clients apply to their replies: one for all fields, or a mapping from the names of the fields
        (``{"x": …, "v": …}`` for FPDFP). None means full precision. ``"auto"`` is max-norm QSGD of 5 levels (11 for at
        most 64 numbers) where no method is given, and full precision where one is.
    downlink
        What the server applies to its messages, which are then differences against a model that both sides keep; for
        methods whose traits say so. None means full precision. ``"auto"`` is max-norm QSGD of 31 levels where no method
        is given, and full precision where one is.
    drop_out
        The probability with which a client that was to take part does not answer, and the round goes on without it.
    seed
        The seed of all randomness. The same seed gives the same bits, for any number of threads.
    x0
        Where to start; zero by default. Where the losses live on a GPU, an array here is copied there.
    evaluate_every
        Rounds between evaluations of the objective, or the rounds after which to evaluate (the start and the end always
        are); by default there are about 200 evaluations. They are off the method's clock, and what clients and server
        send for them is counted apart, in ``traffic["evaluation"]``.
    metrics
        Functions of x to record at every evaluation, by name; x is a CuPy array where the losses live on a GPU.
    callbacks
        Functions called after every round with the :class:`fpdfp.Run`; one that returns True ends it.
    tol
        Stop with the status ``"converged"`` when a bound of F(x) − F* is at most ``tol`` times max(|F(x)|, ε F(0)), ε
        the machine epsilon: a duality gap, see :meth:`Problem.certificate`. Where no bound is known for a problem, stop
        with ``"stationary"`` when the residual of Lemma 1 is at most ``tol`` beside the gradient at zero, which says
        nothing of F(x) − F*. Where rounding allows no more, stop with ``"rounding"``.
        With methods that can (the shifted ones, where every f_i is strongly convex) clients certify the gap by two
        numbers each, as they would in a deployment, and those messages are counted; otherwise the gap is computed from
        sums over clients. When to ask does not depend on ``rounds``.
    accuracy
        The relative error of the objective that the run is for, from which the precision of what is sent once follows;
        by default ``tol``, or 1e-6 where there is none; that of its checkpoint for a run that goes on. It is a hint: it
        stops nothing.
    prefer
        What an automatic preconditioner is to save: ``"rounds"``, with second moments of all clients in float32 where
        there are at most 1,000 features; ``"bits"``, up and down together, with what is sent once; or ``"balanced"``,
        their product. :mod:`fpdfp.precondition.cost` says how both are predicted.
    checkpoint
        A file to write the state of the run to, every ``checkpoint_every`` rounds (by default about 20 times
        a run), on Ctrl-C and at the end.
    resume
        A checkpoint to go on from, to exactly the bits of an uninterrupted run; True means ``checkpoint``, if
        the file is there.
    progress
        Whether to show a progress bar; None shows it where standard error is a terminal.
    engine
        Where the clients are: None for this process, or an engine such as :class:`fpdfp.engines.Ray`. The same seed and
        the same participants give the same bits.

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
    if method is not None and not isinstance(method, Method):
        raise TypeError(f"method must be one of fpdfp.methods, got {_checks.kind(method)}")
    if engine is not None and not isinstance(engine, Crew):
        raise TypeError(f"engine must be one of fpdfp.engines or None, got {_checks.kind(engine)}")
    if engine is None and isinstance(problem.losses, RemoteLosses):
        engine = problem.losses.crew
    if engine is not None:
        with engine.started():
            return _solve(
                engine.attach(problem), method, rounds, clients_per_round, compressor, downlink, drop_out, seed, x0,
                evaluate_every, metrics, callbacks, tol, accuracy, prefer, checkpoint, checkpoint_every, resume,
                progress, engine,
            )  # fmt: skip
    return _solve(
        problem, method, rounds, clients_per_round, compressor, downlink, drop_out, seed, x0, evaluate_every, metrics,
        callbacks, tol, accuracy, prefer, checkpoint, checkpoint_every, resume, progress, None,
    )  # fmt: skip


def _solve(
    problem: Problem, method: Method | None, rounds: int, clients_per_round: int | None, compressor: Any, downlink: Any,
    drop_out: float, seed: int, x0: Any, evaluate_every: Any, metrics: Any, callbacks: Any, tol: float | None,
    accuracy: Any, prefer: Any, checkpoint: Any, checkpoint_every: int | None, resume: Any, progress: bool | None,
    crew: Crew | None,
) -> Result:  # fmt: skip
    """Run the rounds in this process, or with the clients of a crew."""
    method, compressor, downlink = automatic.choose(problem, method, compressor, downlink)
    if crew is not None and not method.traits.restorable:
        raise ValueError(
            f"method must be one whose clients can be restored where they are elsewhere, as ShiftedPDFP, got "
            f"{type(method).__name__}"
        )
    rounds = _checks.integer("rounds", rounds, at_least=1, at_most=rng.MAX_ROUNDS)
    seed = rng.check_seed(seed)
    n = setup.participants(problem, method, clients_per_round)
    drop_out = setup.check_drop_out(method, drop_out)
    server_side = setup.server_side(problem, method, downlink)
    start = setup.start_point(problem, x0)
    plan = _plan(rounds, evaluate_every, metrics, callbacks, tol, checkpoint, checkpoint_every, resume)
    source = plan.checkpoint if resume is True else Path(resume) if resume else None
    saved = checkpoints.load(source) if source is not None and (resume is not True or source.exists()) else None
    if saved is not None and accuracy is None and "accuracy" in saved.description:
        # What was chosen by it is kept, whatever tol is now.
        accuracy = float(saved.description["accuracy"])
    wanted = setup.wish(accuracy, plan.tol, prefer)
    # Steps are chosen for those who are expected to answer.
    answering = max(1, int(n * (1.0 - drop_out)))
    # With one thread BLAS rounds the same way on any number of cores, and so do constants and preconditioners.
    meter = Meter(problem.losses)
    setup.refuse(problem, method, compressor)
    with one_thread():
        problem = problem.metered(meter)
        meter.count_facts(problem.losses, problem.model)
        prepared, compressors, bits_once = setup.prepare(
            problem, method, compressor, answering, rounds, server_side, seed, wanted
        )
    meter.count("preconditioner", *bits_once)
    if plan.checkpoint is not None:
        what = {"method": prepared, "compressor": compressors, "downlink": downlink, "drop_out": drop_out}
        what["accuracy"] = wanted.accuracy
        if crew is not None and crew.norm_bound is not None:
            what["norm_bound"] = crew.norm_bound
        plan = plan._replace(description=_describe(problem, what, n, seed, start))
    given = (
        problem, prepared, compressors, n, seed, prepared.init(problem.model, start),
        prepared.init_memory(problem.model, problem.n_clients), server_side, drop_out, meter,
    )  # fmt: skip
    run = Run(*given) if crew is None else RemoteRun(crew, *given)
    if saved is not None and source is not None:
        _restore(run, saved, plan, source)
    return Loop(run, plan).go(progress)


def _plan(
    rounds: int, evaluate_every: int | Iterable[int] | None, metrics: Any, callbacks: Any, tol: float | None,
    checkpoint: Any, checkpoint_every: int | None, resume: Any,
) -> Plan:  # fmt: skip
    every = _evaluations(max(1, rounds // 200) if evaluate_every is None else evaluate_every)
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must map names to functions of x, got {type(metrics).__name__}")
    metrics = dict(metrics or {})
    for name, metric in metrics.items():
        if not callable(metric):
            raise TypeError(f"metrics[{name!r}] must be a function of x, got {type(metric).__name__}")
        if not isinstance(name, str):
            raise TypeError(f"metrics: a name must be a text, got {name!r}")
        if name in RESERVED or hasattr(History, name):
            raise ValueError(f"metrics: {name!r} is a name that histories have already; choose another name")
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks must be a list of functions of the run, got {type(callbacks).__name__}")
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
    if path is not None:
        checkpoints.check_path(Path(path))
    return Plan(rounds, every, metrics, callbacks, tol, None if path is None else Path(path), save_every)


def _evaluations(given: int | Iterable[int]) -> int | frozenset[int]:
    if not isinstance(given, Iterable):
        return _checks.integer("evaluate_every", given, at_least=1)
    return frozenset(_checks.integer("evaluate_every: a round", k, at_least=0) for k in given)


def _describe(problem: Problem, what: Mapping[str, object], n: int, seed: int, start: Array) -> dict[str, str]:
    """Say what a run is, so that a checkpoint is not taken for that of another."""
    return {
        "problem": checkpoints.fingerprint(problem),
        **{name: checkpoints.describe(value) for name, value in what.items()},
        "clients_per_round": str(n),
        "seed": str(seed),
        "x0": checkpoints.digest(start),
    }


def _restore(run: Run, saved: checkpoints.Checkpoint, plan: Plan, source: Path) -> None:
    """Put a run back to where its checkpoint was taken."""
    checkpoints.compare(saved.description, plan.description, source)
    if saved.round > plan.rounds:
        raise ValueError(
            f"rounds must be at least the {saved.round} that the checkpoint {source} has, got {plan.rounds}"
        )
    recorded = set(saved.history) - RESERVED
    if saved.history.rows and recorded != set(plan.metrics):
        raise CheckpointError(
            f"the checkpoint {source} records the metrics {sorted(recorded)}, but now there are {sorted(plan.metrics)}"
        )
    run.state = back(run.state, saved.state)
    run.restore_memory(saved.memory)
    run.resumed(saved.description)
    run.work, run.kept = Work(*saved.work), saved.kept
    if run.kept is not None:
        xp = run.problem.model.xp
        run.kept = run.kept._replace(message=tuple(xp.asarray(array) for array in run.kept.message))
    run.round = saved.round
    # A run that goes further than it was to has another end.
    run.meter.traffic = saved.traffic if saved.round == plan.rounds else saved.traffic.before_the_end
    run.seconds, run.history = saved.seconds, saved.history
