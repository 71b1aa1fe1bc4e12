"""From a problem, a method and options to an algorithm that is ready to run; everything is checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._numbers import one_thread, round_down, round_up
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.question import Question, Total
from fpdfp.cohorts.remote import RemoteLosses
from fpdfp.compress import Compressor, Full
from fpdfp.compress.base import frame_bits
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.choice import choose_method, choose_quantizers, typical_bits
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError, ArgumentTypeError, StepTooLargeWarning
from fpdfp.methods.base import Algorithm, Facts, Method, NeedsSetup, Remembering
from fpdfp.methods.table import ORDER
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.agreement import Agreement
from fpdfp.precondition.cost import Circumstances
from fpdfp.problem import Problem
from fpdfp.sampling import Sampling, importance, inclusion_probabilities
from fpdfp.traffic import FULL, Downlink, Meter, public_bits


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
