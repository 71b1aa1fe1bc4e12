"""From a problem, a method and options to an algorithm that is ready to run; everything is checked before any work.

Options are checked once: ``solve``, estimators, experiment files and federations build the same object.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks, rng, steps
from fpdfp._numbers import one_thread, round_down, round_up
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.question import Question, Total
from fpdfp.cohorts.remote import RemoteLosses
from fpdfp.compress import Compressor, Full
from fpdfp.compress.base import frame_bits
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.checkpoint import check_path
from fpdfp.engines.choice import choose_method, choose_quantizers, typical_bits
from fpdfp.engines.result import RESERVED, History
from fpdfp.errors import ArgumentError, ArgumentTypeError, StepTooLargeWarning
from fpdfp.methods.base import Algorithm, Facts, Method, NeedsSetup, Remembering
from fpdfp.methods.table import ORDER
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.agreement import Agreement
from fpdfp.precondition.cost import Circumstances, Prefer, check_preference
from fpdfp.privacy.clients import ClientPrivacy
from fpdfp.problem import Problem
from fpdfp.sampling import SMALLEST, Sampling, importance, inclusion_probabilities
from fpdfp.traffic import FULL, Downlink, Meter, public_bits

#: What a run is for where neither ``accuracy`` nor a smaller ``tol`` states it. With that in place of tol = 1e-3, 23
#: problems of the ablation take 0.82 times the rounds and 1.06 times the bits (geometric means).
ACCURACY = 1e-6
#: About how many evaluations (without ``tol``) and checkpoints a run has by default.
EVALUATIONS, CHECKPOINTS = 200, 20
#: The most rounds where nothing is said, as in models.
ROUNDS = 1000
#: How clients may be drawn, in words.
SAMPLING = ("uniform", "importance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Participation, messages, stopping, evaluation and persistence of a run.

    The fields are the keyword arguments of :func:`fpdfp.solve`, which describes what they mean, and models take them as
    ``run=fpdfp.RunOptions(…)``. A model has a tolerance of its own where ``tol`` is None; 0 runs all rounds. Whether
    options fit a problem and a method is checked when it is solved; all else is checked here.

    >>> RunOptions(rounds=100, drop_out=1.5)
    Traceback (most recent call last):
    ...
    fpdfp.errors.ArgumentError: drop_out must be below 1, got 1.5
    """

    rounds: int = ROUNDS
    clients_per_round: int | None = None
    compressor: Compressor | Mapping[str, Compressor | None] | Literal["auto"] | None = "auto"
    downlink: Compressor | Literal["auto"] | None = "auto"
    sampling: Literal["uniform", "importance"] | Sequence[float] = "uniform"
    drop_out: float = 0.0
    stateless: bool = False
    seed: int = 0
    x0: Any = None
    evaluate_every: int | Iterable[int] | None = None
    metrics: Mapping[str, Callable[[Array], float]] | None = None
    callbacks: Iterable[Callable[[Any], Any]] = ()
    tol: float | None = None
    accuracy: float | None = None
    prefer: Prefer = "balanced"
    checkpoint: str | Path | None = None
    checkpoint_every: int | None = None
    resume: str | Path | bool = False
    progress: bool | None = None
    scratch: str | Path | None = None
    privacy: ClientPrivacy | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "rounds": _checks.integer("rounds", self.rounds, at_least=1, at_most=rng.MAX_ROUNDS),
            "seed": rng.check_seed(self.seed),
            "sampling": _check_sampling(self.sampling),
            "drop_out": _below_one("drop_out", _checks.real("drop_out", self.drop_out, at_least=0.0)),
            "stateless": _checks.flag("stateless", self.stateless),
            "metrics": _check_metrics(self.metrics),
            "callbacks": _check_callbacks(self.callbacks),
        }
        for name in ("compressor", "downlink"):
            if isinstance(value := getattr(self, name), str) and value != "auto":
                raise ArgumentError(name, f"must be a compressor, 'auto' or None, got {value!r}")
        if self.clients_per_round is not None:
            checked["clients_per_round"] = _checks.integer("clients_per_round", self.clients_per_round, at_least=1)
        if self.evaluate_every is not None:
            checked["evaluate_every"] = _check_evaluations(self.evaluate_every)
        if self.tol is not None:
            checked["tol"] = _checks.real("tol", self.tol, at_least=0.0)
        check_preference(self.prefer)
        if self.accuracy is not None:
            checked["accuracy"] = _below_one("accuracy", _checks.real("accuracy", self.accuracy, positive=True))
        if self.checkpoint_every is not None:
            checked["checkpoint_every"] = _checks.integer("checkpoint_every", self.checkpoint_every, at_least=1)
        if self.progress is not None:
            checked["progress"] = _check_progress(self.progress)
        if self.checkpoint is not None:
            _check_name("checkpoint", self.checkpoint, "the name of a file or None")
        if self.resume is not None and not isinstance(self.resume, bool):
            _check_name("resume", self.resume, "the name of a checkpoint, True or False")
        if self.resume is True and self.checkpoint is None:
            raise ArgumentError("resume", "requires checkpoint=FILE")
        if self.privacy is not None:
            _check_private(self)
        if self.scratch is not None:
            checked["scratch"] = _check_folder(self.scratch)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.file is not None:
            check_path(self.file)

    @property
    def file(self) -> Path | None:
        """The file of checkpoints: ``checkpoint``, or to the file that the run continues from."""
        if self.checkpoint is not None:
            return Path(self.checkpoint)
        return self.source

    @property
    def source(self) -> Path | None:
        """The checkpoint that the run continues from, None if it begins anew."""
        if self.resume is True:
            return Path(self.checkpoint) if self.checkpoint is not None and Path(self.checkpoint).exists() else None
        return Path(self.resume) if self.resume else None

    @property
    def aim(self) -> float:
        """The relative error that the run is for; a looser ``tol`` ends the same run earlier."""
        return ACCURACY if self.accuracy is None else self.accuracy

    def is_due(self, k: int) -> bool:
        """Whether the objective is to be evaluated after k rounds: with ``tol`` only where the caller states it."""
        every = self.evaluate_every
        if every is None:
            if self.tol is not None:
                return False
            every = max(1, self.rounds // EVALUATIONS)
        return k == self.rounds or (k % every == 0 if isinstance(every, int) else k in every)

    def is_saved(self, k: int) -> bool:
        """Whether a checkpoint is to be written after k rounds."""
        every = max(1, self.rounds // CHECKPOINTS) if self.checkpoint_every is None else self.checkpoint_every
        return k % every == 0 and self.file is not None


def _check_private(options: RunOptions) -> None:
    """Refuse what would make a run with client-level privacy depend on replies without noise."""
    if not isinstance(options.privacy, ClientPrivacy):
        raise ArgumentTypeError("privacy", f"must be fpdfp.ClientPrivacy or None, got {_checks.kind(options.privacy)}")
    if options.tol:
        raise ArgumentError("tol", "must be None with privacy: when a run ends would depend on data without noise")
    if options.drop_out or options.sampling != "uniform" or options.stateless:
        raise ArgumentError(
            "privacy", "must be None with drop_out, sampling by weights and stateless: clients are drawn uniformly, "
            "and all of them answer",
        )  # fmt: skip


def _check_progress(given: Any) -> bool:
    if not isinstance(given, bool | np.bool_):
        raise ArgumentTypeError("progress", f"must be True, False or None, got {given!r}")
    return bool(given)


def _check_name(name: str, given: Any, accepted: str) -> None:
    """Refuse anything but a path."""
    if not isinstance(given, str | os.PathLike):
        raise ArgumentTypeError(name, f"must be {accepted}, got {type(given).__name__}")
    if not os.fspath(given):
        raise ArgumentError(name, f"must be {accepted}, got {given!r}")


def _check_folder(given: str | Path) -> Path:
    """Return a folder that can be written to, or that can be made in one; nothing is made yet."""
    _check_name("scratch", given, "the name of a folder or None")
    folder = Path(given)
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise ArgumentError("scratch", f"must be a folder, got the file {there}")
        with tempfile.TemporaryFile(prefix=".fpdfp-memory-", dir=there):
            return folder
    except OSError as error:
        problem = f"must be a folder that can be written to, got {folder}: {error.strerror}"
        raise ArgumentError("scratch", problem) from None


def _check_sampling(given: Any) -> str | tuple[float, ...]:
    accepted = "'uniform', 'importance' or weights of the clients"
    if isinstance(given, str):
        if given not in SAMPLING:
            raise ArgumentError("sampling", f"must be {accepted}, got {given!r}")
        return given
    weights = _checks.numbers("sampling", given, accepted)
    if weights.ndim != 1 or not (weights > 0).all():
        wrong = f"of shape {weights.shape}" if weights.ndim != 1 else f"with {weights.min():g}"
        raise ArgumentError("sampling", f"must be a positive weight for each client, got an array {wrong}")
    if (weights < SMALLEST * weights.max(initial=0.0)).any():
        raise ArgumentError(
            "sampling",
            f"must not be too unequal to compute with: the smallest weight must be at least {SMALLEST:g} times the "
            f"largest, got {weights.min():g} and {weights.max():g}",
        )
    return tuple(weights.tolist())


def _below_one(name: str, value: float) -> float:
    if value >= 1:
        raise ArgumentError(name, f"must be below 1, got {value:g}")
    return value


def _check_evaluations(given: int | Iterable[int]) -> int | frozenset[int]:
    if not isinstance(given, Iterable):
        return _checks.integer("evaluate_every", given, at_least=1)
    return frozenset(_checks.integer("evaluate_every: a round", k, at_least=0) for k in given)


def _check_metrics(given: Any) -> dict[str, Callable[[Array], float]]:
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentTypeError("metrics", f"must map names to functions of x, got {type(given).__name__}")
    metrics = dict(given or {})
    for name, metric in metrics.items():
        if not callable(metric):
            raise ArgumentTypeError(f"metrics[{name!r}]", f"must be a function of x, got {type(metric).__name__}")
        if not isinstance(name, str):
            raise ArgumentTypeError("metrics: a name", f"must be a text, got {name!r}")
        if name in RESERVED or hasattr(History, name):
            raise ArgumentError(f"metrics: {name!r}", "is a name that histories have already; choose another name")
    return metrics


def _check_callbacks(given: Any) -> tuple[Callable[[Any], Any], ...]:
    if callable(given) or not isinstance(given, Iterable):
        raise ArgumentTypeError("callbacks", f"must be a list of functions of the run, got {type(given).__name__}")
    callbacks = tuple(given)
    for callback in callbacks:
        if not callable(callback):
            raise ArgumentTypeError("callbacks", f"must be functions of the run, got {type(callback).__name__}")
    return callbacks


class Choices(NamedTuple):
    """The parts of a run that do not depend on answers of clients.

    Attributes
    ----------
    method
        The method that was given, or the automatic one.
    compressors
        One for each field of a reply.
    downlink
        How the server's messages are compressed, None if they are not.
    clients_per_round
        n.
    automatic
        Whether no method was given.
    """

    method: Method
    compressors: dict[str, Compressor]
    downlink: Downlink | None
    clients_per_round: int
    automatic: bool


class Prepared(NamedTuple):
    """All that a run starts from.

    Attributes
    ----------
    problem
        The problem, which counts what its losses are asked.
    choices
        Method and messages.
    facts
        What the algorithm was prepared from.
    algorithm
        What runs.
    meter
        Counts what is sent.
    sampling
        Who takes part in a round, where clients are drawn with unequal probabilities.
    """

    problem: Problem
    choices: Choices
    facts: Facts
    algorithm: Algorithm
    meter: Meter
    sampling: Sampling | None


def prepare(problem: Problem, method: Method | None, options: RunOptions, *, name: str | None = None) -> Prepared:
    """Check that everything fits, ask the clients what must be known, and return what runs.

    ``name`` names an automatic method that is chosen already.
    """
    choices = choose(problem, method, options, name=name)
    meter = Meter(problem.losses)
    # With one thread BLAS rounds the same way on any number of cores, and so do constants and preconditioners.
    with one_thread():
        problem = problem.metered(meter)
        meter.count_facts(problem.losses, public_bits(problem.model))
        clients = AskedClients(problem, choices, options)
        agreement = choices.method.agree(clients) if isinstance(choices.method, NeedsSetup) else Agreement()
        facts = Facts(problem.model, clients.constants(agreement.coordinates), agreement)
        meter.count("preconditioner", clients.bits, clients.told)
        if choices.method.traits.needs_smooth and not np.isfinite(facts.constants.lipschitz_max):
            name = type(choices.method).__name__
            raise ArgumentError(
                "losses", f"must have Lipschitz continuous gradients for {name}; ProximalNewton needs none"
            )
        algorithm = choices.method.prepare(facts)
    if options.stateless and isinstance(algorithm, Remembering):
        name = type(choices.method).__name__
        message = f"must be False for {name}, whose clients remember something; see StatelessPDFP"
        raise ArgumentError("stateless", message)
    warn_of_step(choices.method, algorithm.step, facts, options.rounds)
    return Prepared(problem, choices, facts, algorithm, meter, clients.sampling)


def choose(problem: Problem, method: Method | None, options: RunOptions, *, name: str | None = None) -> Choices:
    """Choose what is automatic, and refuse what does not fit together.

    ``"auto"`` compresses where the method is automatic as well; a method that was requested runs unchanged.
    """
    compressor, downlink = options.compressor, options.downlink
    automatic = method is None
    if method is None:
        method = choose_method(problem, options, name=name)
    up, down = choose_quantizers(problem, options)
    if compressor == "auto":
        compressor = up if automatic and method.traits.compression else None
    if downlink == "auto":
        downlink = down if automatic and method.traits.downlink and not options.stateless else None
    if downlink is not None and options.stateless:
        raise ArgumentError("downlink", "must be None with stateless=True: differences refer to what clients have kept")
    name = type(method).__name__
    if isinstance(problem.losses, RemoteLosses) and not method.traits.restorable:
        raise ArgumentError(
            "method",
            "must be a method whose client memory the server can restore, such as ShiftedPDFP, because "
            f"clients are at sites, got {name}",
        )
    n = check_participation(problem, method, options)
    server_side = check_downlink(problem, method, downlink)
    check_problem(problem, method)
    return Choices(method, choose_compressors(method, problem, compressor), server_side, n, automatic)


def check_participation(problem: Problem, method: Method, options: RunOptions) -> int:
    """Return how many clients take part in a round."""
    count, name = problem.n_clients, type(method).__name__
    n = count if options.clients_per_round is None else options.clients_per_round
    if n > count:
        raise ArgumentError("clients_per_round", f"must be at most the number of clients, {count}, got {n}")
    if n < count and not method.traits.partial_participation:
        raise ArgumentError("clients_per_round", f"must be None for {name}, which needs every client")
    if options.drop_out > 0 and not method.traits.partial_participation:
        raise ArgumentError("drop_out", f"must be 0 for {name}, which needs every client")
    if not isinstance(options.sampling, str) and len(options.sampling) != count:
        given = len(options.sampling)
        raise ArgumentError("sampling", f"must be a weight for each of the {count} clients, got {given}")
    if not (isinstance(options.sampling, str) and options.sampling == "uniform") and not method.traits.unequal_sampling:
        able = ", ".join(one.__name__ for one in ORDER if one.traits.unequal_sampling)
        raise ArgumentError("sampling", f"must be 'uniform' for {name}; {able} take others")
    return n


def check_downlink(problem: Problem, method: Method, downlink: Any) -> Downlink | None:
    """Return how the server's messages are compressed, None if they are not."""
    if downlink is None:
        return None
    if not isinstance(downlink, Compressor):
        raise ArgumentTypeError("downlink", f"must be a compressor, 'auto' or None, got {_checks.kind(downlink)}")
    if not method.traits.downlink:
        raise ArgumentError("downlink", f"must be None for {type(method).__name__}, whose clients need exact messages")
    if not downlink.unbiased and downlink.omega(problem.model.shape) >= 1:
        raise ArgumentError(
            "downlink",
            f"must be unbiased, or have a relative error below 1, got {downlink!r} with the bound "
            f"{downlink.omega(problem.model.shape):.3g}",
        )
    return Downlink(downlink)


def check_problem(problem: Problem, method: Method) -> None:
    """Refuse a problem that lacks what the method needs."""
    name = type(method).__name__
    if method.traits.needs_one_client and problem.n_clients > 1:
        raise ArgumentError(
            "problem", f"must have one client for {name}, which needs all data in one place, got {problem!r}"
        )
    if method.batch_size is not None and not problem.losses.supports_batches:
        raise ArgumentError("batch_size", f"must be None: {type(problem.losses).__name__} cannot draw mini-batches")
    if method.batch_size is not None and not method.traits.mini_batches:
        raise ArgumentError(
            "batch_size", f"must be None for {name}, which needs full gradients, got {method.batch_size}"
        )
    if (method.local_steps or 1) > 1 and not method.traits.local_steps:
        raise ArgumentError("local_steps", f"must be 1 for {name}, got {method.local_steps}")
    if method.traits.needs_hessians and problem.losses.hessians(start_point(problem, None), np.arange(0)) is None:
        raise ArgumentError(
            "losses",
            f"must have known Hessians for {name}, as Logistic and LeastSquares of up to 2,000 features have, "
            f"got {problem.losses!r} with x of shape {problem.model.shape}",
        )
    method.check(problem.model)
    needed = method.traits.strong_convexity == "needed" and method.strong_convexity is None
    if needed and problem.strong_convexity == 0:
        raise ArgumentError(
            "strong_convexity",
            f"must be given for {name}, since none is known of f: add a ridge (l2=) to the losses, or "
            "take a method that does not need it",
        )


def start_point(problem: Problem, x0: Any) -> Array:
    """Return where the run starts."""
    shape, dtype = problem.model.shape, problem.model.dtype
    if x0 is None:
        start: Array = problem.model.xp.zeros(shape, dtype=dtype)
        return start
    return _checks.float_array("x0", x0, shape=shape, dtype=dtype, xp=problem.model.xp).copy()


def choose_compressors(method: Method, problem: Problem, compressor: Any) -> dict[str, Compressor]:
    """Return a compressor for each field of a reply."""
    shapes = method.reply_shapes(problem.model)
    fields = list(shapes)
    if compressor is None or isinstance(compressor, Compressor):
        given = dict.fromkeys(fields, compressor)
    elif isinstance(compressor, Mapping):
        # Where Algorithm 5 runs for FPDFP no dual is sent: a compressor for it is no mistake.
        if not set(compressor) <= {*fields, *method.traits.sends}:
            raise ArgumentError(
                "compressor:", f"the fields of a reply are {fields}, got {sorted(map(str, compressor))}"
            )
        given = {name: compressor.get(name) for name in fields}
    else:
        raise ArgumentTypeError(
            "compressor", f"must be a compressor, a mapping, 'auto' or None, got {_checks.kind(compressor)}"
        )
    chosen: dict[str, Compressor] = {}
    for name, one in given.items():
        if one is not None and not isinstance(one, Compressor):
            raise ArgumentTypeError(f"compressor[{name!r}]", f"must be a compressor or None, got {_checks.kind(one)}")
        chosen[name] = FULL if one is None else one
        try:
            frame_bits(chosen[name], shapes[name], problem.model.dtype)
        except ValueError as error:
            raise ArgumentError(
                f"compressor[{name!r}]", f"cannot send an array of shape {shapes[name]}: {error}"
            ) from None
    if not method.traits.compression and any(not isinstance(one, Full) for one in chosen.values()):
        other = method.traits.compressed_form
        hint = "" if other is None else f"; {other} sends compressed ones"
        raise ArgumentError("compressor", f"must be None for {type(method).__name__}, which needs exact replies{hint}")
    biased = sorted({repr(one) for one in chosen.values() if not one.unbiased})
    if method.traits.needs_unbiased and biased:
        raise ArgumentError(
            "compressor",
            f"must be unbiased for {type(method).__name__}, as QSGD, NUQSGD, Natural and RandK are, got "
            + ", ".join(biased),
        )
    return chosen


class AskedClients:
    """All clients, as an agreement before the first round sees them: sums, and constants; bits are counted.

    Attributes
    ----------
    bits
        What clients have sent for the agreement.
    told
        What they received: the coordinates of the requested constants.
    sampling
        Who takes part in a round, by the constants that were requested last; None for clients drawn uniformly.
    """

    def __init__(self, problem: Problem, choices: Choices, options: RunOptions) -> None:
        self.problem, self.choices, self.options = problem, choices, options
        self.model, self.losses = problem.model, problem.losses
        # Steps are chosen for those who are expected to answer.
        self.answering = max(1, int(choices.clients_per_round * (1.0 - options.drop_out)))
        self.bits = self.told = 0
        self.sampling: Sampling | None = None
        self._constants: list[tuple[Preconditioner | None, steps.Constants, Sampling | None]] = []

    def describe(self) -> Circumstances:
        """Return what is known of a run before anyone is asked; the bits of a round from normal messages."""
        model, n, compressors = self.model, self.answering, self.choices.compressors
        shapes = self.choices.method.reply_shapes(model).items()
        up = n * sum(typical_bits(compressors[name], shape, model.dtype) for name, shape in shapes)
        down: float = n * plain_bits(model.shape, model.dtype)
        count = self.problem.n_clients
        if self.choices.downlink is not None:
            # A client that takes part gets all differences since the last time, or everything if that is shorter.
            down = min(down, count * typical_bits(self.choices.downlink.compressor, model.shape, model.dtype))
        rows = float(self.losses.sizes.sum()) / count
        return Circumstances(count, n, rows, up, down, self.options.aim, self.options.prefer)

    def ask(self, question: Question) -> Total:
        """Return sums of what clients send once; count the bits."""
        told = clients_of(self.problem).ask(question, seed=self.options.seed)
        self.bits += told.up
        return told

    def constants(self, coordinates: Preconditioner | None) -> steps.Constants:
        """Return the constants for a step; clients receive the coordinates and answer once."""
        if isinstance(self.losses, RemoteLosses):
            self.losses.engine.agreed = coordinates
        for known, constants, sampling in self._constants:
            if known is coordinates:
                self.sampling = sampling
                return constants
        self.told += 0 if coordinates is None else self.problem.n_clients * coordinates.bits
        constants = self._ask_constants(coordinates)
        self._constants.append((coordinates, constants, self.sampling))
        return constants

    def _ask_constants(self, coordinates: Preconditioner | None) -> steps.Constants:
        problem, (method, compressors, downlink, *_) = self.problem, self.choices
        shapes = method.reply_shapes(self.model)
        factor = None if coordinates is None else coordinates.factor
        known = None if coordinates is None else coordinates.smoothness
        lipschitz = problem.lipschitz if factor is None else problem.lipschitz_in(factor)
        mean = float(lipschitz.mean())
        omega = max((one.omega(shapes[name]) for name, one in compressors.items()), default=0.0)
        batches = problem.batch_smoothness(method.batch_size, factor)
        self.sampling, drawn = self._choose_sampling(lipschitz), None
        if self.sampling is not None:
            answers = self.sampling.probabilities * (self.answering / self.sampling.count)
            batches = batches * self.answering / (problem.n_clients * answers)
            drawn = steps.Drawn.by(answers, lipschitz, omega)
        return steps.Constants(
            lipschitz_mean=round_up(mean if known is None else min(mean, known)),
            lipschitz_max=round_up(float(lipschitz.max())),
            strong_convexity=round_down(problem.strong_convexity),
            n_clients=problem.n_clients,
            clients_per_round=self.answering,
            omega=omega,
            batch_smoothness=round_up(float(batches.max())),
            own_lipschitz_max=round_up(problem.total_weight * float(problem.losses.lipschitz().max())),
            client_spread=round_up(float((lipschitz**2).mean()) / mean if 0 < mean < np.inf else mean),
            lipschitz_rms=round_up(float(np.sqrt((lipschitz**2).mean()))),
            unbiased=all(one.unbiased for one in compressors.values()),
            least_convexity=round_down(problem.total_weight * problem.losses.least_convexity),
            typical_omega=max((one.typical_omega(shapes[name]) for name, one in compressors.items()), default=0.0),
            downlink_omega=0.0 if downlink is None else downlink.compressor.typical_omega(self.model.shape),
            drawn=drawn,
        )

    def _choose_sampling(self, lipschitz: Array) -> Sampling | None:
        """Return who takes part in a round, given Lipschitz constants; None for clients drawn uniformly."""
        given, n = self.options.sampling, self.choices.clients_per_round
        if n == self.problem.n_clients or (isinstance(given, str) and given == "uniform"):
            return None
        if isinstance(given, str) and not np.isfinite(lipschitz).all():
            raise ArgumentError("sampling", "must not be 'importance' where clients have no Lipschitz constants")
        weights = importance(lipschitz) if isinstance(given, str) else np.asarray(given)
        return Sampling(inclusion_probabilities(weights, n))


def warn_of_step(method: Method, schedule: steps.Schedule, facts: Facts, rounds: int) -> None:
    """Warn where every step of a run exceeds the stability limit."""
    smallest, largest = min(schedule(0), schedule(rounds - 1)), method.largest_step(facts)
    if smallest > largest * (1 + 1e-9):
        warn(
            f"step: every step of the run is at least {smallest:.4g}, which exceeds the stability limit and may "
            f"diverge; the largest safe one is {largest:.4g}",
            StepTooLargeWarning,
        )
