"""``fpdfp.solve``: arguments become options, and options become a run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts import record
from fpdfp.cohorts.local import restore
from fpdfp.cohorts.remote import RemoteEngine, RemoteLosses
from fpdfp.compress import Compressor
from fpdfp.engines import checkpoint as checkpoints
from fpdfp.engines import working_set
from fpdfp.engines.choice import name_method, name_network
from fpdfp.engines.loop import Interrupt, Loop
from fpdfp.engines.prepare import Prepared, RunOptions, prepare, start_point
from fpdfp.engines.result import RESERVED, FeatureSubset, Result, make_result
from fpdfp.engines.run import Run
from fpdfp.engines.stopping import FAILED, Ending
from fpdfp.errors import (
    AbsentError,
    AccuracyWarning,
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    DivergenceWarning,
    SeparationError,
)
from fpdfp.losses.base import EPS
from fpdfp.losses.linear import LinearModel
from fpdfp.methods.base import Method
from fpdfp.pooled.separating import find_growing
from fpdfp.precondition.cost import Prefer
from fpdfp.privacy.clients import ClientPrivacy
from fpdfp.problem import Problem
from fpdfp.quadratic.statement import Work
from fpdfp.traffic import Carried, Meter

log = logging.getLogger("fpdfp.engines")
#: The method of runs with some of the features, which are often restricted again.
RESTRICTED = "ShiftedPDFP"
#: How automatic runs continue that fail, by status and by the name of their method.
RETREATS = {FAILED: {"NewtonSteps": "ShiftedPDFP"}, "diverged": {"ShiftedPDFP": "Diagonal"}}
#: How runs end that have reached no bound, in a problem that may have no minimum.
NOT_REACHED = ("finished", "stationary", "rounding")


def solve(
    problem: Problem,
    method: Method | None = None,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    compressor: Compressor | Mapping[str, Compressor | None] | Literal["auto"] | None = "auto",
    downlink: Compressor | Literal["auto"] | None = "auto",
    sampling: Literal["uniform", "importance"] | Sequence[float] = "uniform",
    drop_out: float = 0.0,
    stateless: bool = False,
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
    scratch: str | Path | None = None,
    privacy: ClientPrivacy | None = None,
    engine: RemoteEngine | None = None,
) -> Result:
    """Minimise f(x) + g(Bx) with a federated method.

    Parameters
    ----------
    problem
        What to minimise.
    method
        How: one of :mod:`fpdfp.methods`. The default is :class:`fpdfp.ShiftedPDFP` with the preconditioner that is
        predicted to pay for itself: second moments for linear models, a diagonal or a low rank beyond 256 features, a
        Fourier transform for images. Some or all clients send something once for it, counted in
        ``traffic["preconditioner"]``. With ``tol`` and up to 256 features (1,000
        unless ``prefer`` is ``"balanced"``) a run begins with Newton steps where sizes predict that this costs less in
        the sense of ``prefer``. Otherwise it ends with them once its rounds have cost as much as they would.
        ``print(result)`` shows the choice and its reason. Losses without Lipschitz constants (Poisson, gamma) take
        :class:`fpdfp.ProximalNewton`, up to 1,000 coefficients.
    rounds
        How many communication rounds.
    clients_per_round
        How many clients, drawn by ``sampling``, take part in a round; None means all clients.
    compressor
        What clients apply to their replies: one for all fields, or a mapping from the names of the fields
        (``{"x": …, "v": …}`` for FPDFP). None means full precision. ``"auto"`` is max-norm QSGD of 5 levels (11 for at
        most 64 numbers, 31 with ``stateless``) where no method is given, and full precision where one is.
    downlink
        What the server applies to its messages, which are then differences against a model that both sides keep; for
        methods whose traits state it. None means full precision. ``"auto"`` is max-norm QSGD of 31 levels where no
        method is given, and full precision where one is.
    sampling
        How clients are drawn, for methods whose traits state it: ``"uniform"``; ``"importance"``, with probabilities
        p_i proportional to the clients' Lipschitz constants (weighted as in f, in the coordinates of the
        preconditioner; at least a tenth of the mean counts). It is for clients that differ much in size or scale. Or
        positive weights of the clients, to which p_i are proportional, none below 1e-9 of the largest. No p_i exceeds
        1, and their sum is ``clients_per_round``: that many take part in every round. The server multiplies a reply by
        n/(N p_i), so that its mean is right in expectation.
    drop_out
        The probability that a client drawn for a round does not answer; the round then continues without it.
    stateless
        Whether clients may keep nothing between rounds, as phones that take part once. The default method is then
        :class:`fpdfp.StatelessPDFP`, whose noise does not vanish, so that it reaches lower accuracies; methods whose
        clients remember something, and compressed messages down, which are differences, raise an error. The memory
        that server and clients need together does not grow with the product of clients and features.
    seed
        The seed of all randomness. The same seed gives the same bits, for any number of threads.
    x0
        Where to start; zero by default. Where the losses live on a GPU, an array here is copied there.
    evaluate_every
        Rounds between evaluations of the objective, or the rounds after which to evaluate (the start and the end always
        are). By default there are about 200 evaluations, and with ``tol`` none: the history then has the start, the
        end, and the rounds after which the gap was looked at. Evaluations never influence a run. They are off the
        method's clock, and what clients and server send for them is counted apart, in ``traffic["evaluation"]``.
    metrics
        Functions of x that return a number, to record at every evaluation, by name; x is a CuPy array where the losses
        live on a GPU.
    callbacks
        Functions called after every round with the :class:`fpdfp.Run`; one that returns True ends it.
    tol
        Stop with the status ``"converged"`` when a bound of F(x) − F* is at most ``tol`` times max(|F(x)|, ε F(0)), ε
        the machine epsilon. The bound is a duality gap, see :meth:`Problem.certificate`. If no bound is known for the
        problem, stop with ``"stationary"`` when the residual of Lemma 1, relative to the gradient at zero, is at most
        ``tol``; this says nothing about F(x) − F*. If rounding prevents further progress, stop with ``"rounding"``.
        With a shifted method that is given, where every f_i is strongly convex, clients certify the gap by two numbers
        each, and those messages are counted; otherwise the gap is computed from sums over clients. When clients are
        asked does not depend on ``rounds``, and without ``method`` or limits not on ``tol``: a looser one ends the
        same run earlier. Such a run may begin or end with Newton steps, in each of which all clients take part,
        whatever ``clients_per_round`` is, and which count as rounds.
        Without ``method``, for a linear model with an l1 norm of x itself (B the identity), a run with at least 128
        features begins with those that are likely to matter (``result.features``). It does not where fewer than one of
        100 clients takes part in a round. The certificate belongs to the problem with all features.
    accuracy
        The relative error of the objective that the run is for, from which the precision of what is sent once follows;
        by default 1e-6, whatever ``tol`` is. A run that continues takes it from its checkpoint. It is a hint: it stops
        nothing.
    prefer
        What an automatic preconditioner is to save. ``"rounds"``: the number of rounds; with at most 1,000 features all
        clients then send their second moments in float32. ``"bits"``: what is sent up and down, before the first round
        and in rounds. ``"balanced"``: the product of rounds and bits. An :class:`fpdfp.Network`: the time on a network
        of that latency and bandwidth. ``"time"``: that on the network which the engine has measured, or on a typical
        one in a simulation. :mod:`fpdfp.precondition.cost` describes how these are predicted. With ``tol`` it also
        decides when Newton steps begin.
    checkpoint
        A file to write the state of the run to, every ``checkpoint_every`` rounds (by default about 20 times
        a run), on Ctrl-C and at the end.
    resume
        A checkpoint to continue from, to exactly the bits of an uninterrupted run; True means ``checkpoint``, if
        the file is there.
    progress
        Whether to show a progress bar; None shows it where standard error is a terminal.
    scratch
        A folder, made if it is missing, for temporary files that hold what clients remember, where that is an array of
        more than 64 MiB. The operating system then keeps as much of it in memory as there is room. The files have no
        names and go with the run. By default this is in memory; with an ``engine``, the server's copies of more than
        256 MiB are in such files regardless, in the folder of ``checkpoint``, or else in the temporary folder.
    privacy
        Client-level differential privacy of x for simulations: :class:`fpdfp.ClientPrivacy` clips replies and adds
        noise to their mean, and ``result.privacy`` has the cost of the rounds. For methods whose clients remember
        nothing and that ask nothing before the first round. Not covered: Lipschitz constants, from which steps are
        chosen, count as public; the history, the objective and the certificate are computed from data without noise.
    engine
        Where the clients are: None for this process, or an engine such as :class:`fpdfp.cohorts.Ray`. The same seed and
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
    if tol is not None:
        _checks.real("tol", tol, positive=True)
    options = RunOptions(
        rounds=rounds, clients_per_round=clients_per_round, compressor=compressor, downlink=downlink,
        sampling=sampling, drop_out=drop_out, stateless=stateless, seed=seed, x0=x0, evaluate_every=evaluate_every,
        metrics=metrics, callbacks=callbacks, tol=tol, accuracy=accuracy, prefer=prefer, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, resume=resume, progress=progress, scratch=scratch,
        privacy=privacy,
    )  # fmt: skip
    return _name_separation(problem, run(problem, method, options, engine), options.tol)


def _name_separation(problem: Problem, result: Result, tol: float | None) -> Result:
    """Warn where a run to a tolerance had no minimum to reach, and name the features that separate outcomes."""
    if tol is None or not isinstance(problem.losses, LinearModel):
        return result
    # Newton's method is soon where nothing is left of the objective, and certifies that.
    vanished = result.status == "converged" and abs(result.objective) <= EPS * abs(result.history.objective[0])
    if not (vanished or result.status in NOT_REACHED):
        return result
    meter = Meter(problem.losses)
    with meter.counting("end"):
        growing = find_growing(problem.metered(meter), result.x, result.v, result.objective, tol)
    message, status = result.message, result.status
    if growing:
        status = "stationary" if vanished else status
        message += f"; there is no minimum: {SeparationError(growing)}"
        warn(f"solve found no minimum: {SeparationError(growing)}", AccuracyWarning)
    return dataclasses.replace(result, status=status, message=message, traffic=result.traffic + meter.traffic)


def run(problem: Problem, method: Method | None, options: RunOptions, engine: RemoteEngine | None = None) -> Result:
    """Minimise with options that are checked already: what ``solve`` and everything like it calls."""
    if not isinstance(problem, Problem):
        raise ArgumentTypeError("problem", f"must be an fpdfp.Problem, got {type(problem).__name__}")
    if method is not None and not isinstance(method, Method):
        raise ArgumentTypeError("method", f"must be one of fpdfp.methods, got {_checks.kind(method)}")
    if engine is not None and not isinstance(engine, RemoteEngine):
        raise TypeError(f"engine must be one of fpdfp.engines or None, got {_checks.kind(engine)}")
    if engine is None and isinstance(problem.losses, RemoteLosses):
        engine = problem.losses.engine
    if options.privacy is not None and (engine is not None or method is None):
        raise ArgumentError(
            "privacy", "is for simulations in this process: give method, as fpdfp.FedAvg(), and no engine"
        )
    given = problem
    with contextlib.nullcontext() if engine is None else engine.started():
        if engine is not None:
            problem = engine.attach(problem)
            engine.collector.records.clear()  # exchanges are reported for each run
            options = engine.add_options(problem, options, method)
        options = dataclasses.replace(options, prefer=name_network(options.prefer, engine))
        before = None if engine is None else engine.carried
        result = _Solve(problem, method, options, engine, given).go()
        after = None if engine is None else engine.carried
        if before is None or after is None:
            return result
        return dataclasses.replace(result, wire=Carried(after.up - before.up, after.down - before.down))


class _Solve:
    """A call of ``solve``: one run, or several, each restricted to the features that are likely to matter.

    Attributes
    ----------
    features
        The features that the present run is restricted to, None for all.
    loop
        Its rounds.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method | None,
        options: RunOptions,
        engine: RemoteEngine | None,
        given: Problem,
    ) -> None:
        self.start = start_point(problem, options.x0)
        source = options.source
        saved = None if source is None else checkpoints.load(source)
        if saved is not None and options.accuracy is None and "accuracy" in saved.description:
            # What was chosen by it is kept, whatever tol is now.
            options = dataclasses.replace(options, accuracy=float(saved.description["accuracy"]))
        self.problem, self.method, self.options, self.engine = problem, method, options, engine
        #: The automatic method of the run that is resumed, or of one that was restricted to some features.
        self.name = None if saved is None else saved.description.get("method name")
        #: The caller's problem, for a certificate that is read after the run.
        self.given = given
        if saved is None or source is None:
            self.features, sent = working_set.choose_features(problem, method, options, self.start)
            run = self._begin(self.start)
            run.meter.traffic = sent + run.meter.traffic
        else:
            self.features = saved.features
            run = self._begin(self.start)
            _restore(run, saved, self.description, source)
        self.loop = self._enter(run)

    def go(self) -> Result:
        """Do all rounds, notify the observers, and return the result."""
        observers = self.loop.observers
        try:
            for one in observers:
                one.started(self.loop.shown, self.options.rounds)
            with Interrupt() as interrupt:
                result = self._conclude(self._go(interrupt))
            for one in observers:
                one.finished(self.loop.shown, result)
        except BaseException as error:
            for one in observers:
                one.failed(self.loop.shown, error)
            raise
        return result

    def _go(self, interrupt: Interrupt) -> Ending | None:
        """Do the rounds of one run after the other; return what ended the last one early."""
        ending = self.loop.recall()  # a run that is resumed may have reached its tolerance before
        if ending is not None:
            return ending
        ending = self.loop.go(interrupt)
        while ending is not None and (
            self._retreats(ending) or (self.features is not None and ending.status == "converged")
        ):
            if ending.status != "converged":
                ending = self.loop.go(interrupt)
                continue
            assert self.features is not None
            try:
                found = self._check_excluded_features(self.features, ending)
            except AbsentError as error:
                log.warning("round %d is not certified: %s", self.loop.run.round, error)
                self.loop.note(None)  # the run continues with its features
            else:
                if isinstance(found, Ending):
                    self.loop.note(found)
                    ending = found
                    break
                self._restrict(found)
            ending = self.loop.go(interrupt)
        if self.loop.unsaved and (ending is None or ending.status != "diverged"):
            self.loop.save()
        return ending

    def _check_excluded_features(self, features: FeatureSubset, ending: Ending) -> Ending | FeatureSubset | None:
        """Say how the run ends, or with which features it continues, None for all."""
        run = self.loop.run
        with run.participants.evaluating(last=True), run.meter.counting("certificate"):
            return working_set.check_excluded_features(self.problem, self.method, self.options, run, features, ending)

    def _retreats(self, ending: Ending) -> bool:
        """Whether an automatic run that failed continues in another way: if so it has begun."""
        run, stopping = self.loop.run, self.loop.stopping
        following = RETREATS.get(ending.status, {}).get(name_method(run.method))
        if self.method is not None or following is None or run.problem.losses.form not in ("linear", "quadratic"):
            return False
        log.info("round %d: %s; the run continues as %s", run.round, ending.message, following)
        self.name = following
        x = run.x if stopping is None or ending.status != FAILED else stopping.finish.reached
        self._restrict(self.features, x)
        return True

    def _restrict(self, features: FeatureSubset | None, x: Array | None = None) -> None:
        """Continue with other features, from the x that was found; what was done and sent so far is carried over."""
        before = self.loop.run
        x = before.x if x is None else x
        x = x if self.features is None else self.features.lift(x)
        if self.engine is not None:
            self.engine.drop_early()
        sent, spent, self.features = before.traffic, before.server_work, features
        run = self._begin(x)
        run.meter.traffic = sent + run.meter.traffic
        run.round, run.first_round, run.work, run.spent = before.round, before.round, before.work, spent
        run.seconds, run.history = before.seconds, before.history
        self.loop = self._enter(run)
        if self.options.is_saved(run.round):
            self.loop.save()

    def _begin(self, start: Array) -> Run:
        """Return a run with the present features, and keep its description for checkpoints."""
        problem, options = self.problem, self.options
        if self.features is not None:
            self.name = RESTRICTED if self.name not in RETREATS["diverged"].values() else self.name
            problem, start = problem.restrict(self.features.numbers), start[..., self.features.numbers]
        prepared = prepare(problem, self.method, options, name=self.name)
        self.description = {} if options.file is None else self._describe(prepared)
        return Run(prepared, options, start)

    def _enter(self, run: Run) -> Loop:
        """Return the rounds of a run."""
        write = None if self.options.file is None else self._write
        if self.features is None:
            return Loop(run, run, self.options.tol, write)
        shown = working_set.LiftedRun(run, self.problem, self.features)
        return Loop(run, shown, self.features.until, write)

    def _write(self, run: Run) -> None:
        """Write a checkpoint."""
        assert self.options.file is not None
        labels = {**self.description, **run.labels(), "method name": name_method(run.method)}
        checkpoints.save(
            self.options.file,
            checkpoints.Checkpoint(
                run.round, run.first_round, run.state._asdict(), run.participants.memory_to_save(), run.kept,
                (*run.work, *run.spent), run.traffic, run.seconds, run.history, labels,
                self.features,
            ),
        )  # fmt: skip

    def _conclude(self, ending: Ending | None) -> Result:
        """Evaluate the end, and return the result."""
        run = self.loop.run
        with run.participants.ending(), run.meter.counting("end"):
            ending = self.loop.evaluate_end(ending)
            if ending is not None and ending.status == "diverged":
                warn(ending.message, DivergenceWarning)
            ending = ending or Ending("finished", f"all {self.options.rounds} rounds done")
            return make_result(run, ending, self.problem, self.features, self.given)

    def _describe(self, prepared: Prepared) -> dict[str, str]:
        """Say what a run is, so that a checkpoint is not used for another run."""
        choices, options, engine = prepared.choices, self.options, self.engine
        what = {
            "method": prepared.algorithm,
            "compressor": choices.compressors,
            "downlink": None if choices.downlink is None else choices.downlink.compressor,
            "drop_out": options.drop_out,
            "accuracy": options.aim,
        }
        if engine is not None and engine.fixed_bound is not None:
            what["norm_bound"] = engine.fixed_bound
        return {
            "problem": record.fingerprint(self.problem),
            **{name: checkpoints.describe(value) for name, value in what.items()},
            "clients_per_round": f"{choices.clients_per_round}{_describe_sampling(options.sampling)}",
            "seed": str(options.seed),
            **({} if options.privacy is None else {"privacy": repr(options.privacy)}),
            "x0": record.digest(self.start),
        }


def _describe_sampling(sampling: str | Sequence[float]) -> str:
    """Say how clients are drawn, where that is not uniform."""
    if isinstance(sampling, str):
        return "" if sampling == "uniform" else f" by {sampling}"
    return f" by weights {record.digest(np.asarray(sampling))}"


def _restore(run: Run, saved: checkpoints.Checkpoint, description: Mapping[str, str], source: Path) -> None:
    """Put a run back to where its checkpoint was taken."""
    options = run.options
    record.compare(saved.description, description, source)
    if saved.round > options.rounds:
        raise ArgumentError(
            "rounds", f"must be at least the {saved.round} that the checkpoint {source} has, got {options.rounds}"
        )
    recorded, wanted = set(saved.history) - RESERVED, set(options.metrics or ())
    if saved.history.rows and recorded != wanted:
        raise CheckpointError(
            f"the checkpoint {source} records the metrics {sorted(recorded)}, but now there are {sorted(wanted)}"
        )
    run.state = restore(run.state, saved.state)
    run.participants.restore_memory(saved.memory)
    run.resumed(saved.description)
    run.work, run.spent, run.kept = Work(*saved.work[:2]), Work(*saved.work[2:]), saved.kept
    if run.kept is not None:
        xp = run.problem.model.xp
        run.kept = run.kept._replace(message=tuple(xp.asarray(array) for array in run.kept.message))
    run.round, run.first_round = saved.round, saved.first_round
    # A run that goes further than it was to has another end.
    run.meter.traffic = saved.traffic if saved.round == options.rounds else saved.traffic.before_the_end
    run.seconds, run.history = saved.seconds, saved.history
