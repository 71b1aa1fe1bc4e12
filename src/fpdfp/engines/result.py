"""Results of runs: history, features, and the result."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import namespace
from fpdfp._numbers import format_bits
from fpdfp._typing import Array, IntArray, Shape
from fpdfp._warn import warn
from fpdfp.errors import AbsentError, AccuracyWarning
from fpdfp.methods.base import Algorithm, Method
from fpdfp.penalties.separable import L1
from fpdfp.precondition.base import Announced
from fpdfp.privacy.accounting import Spent
from fpdfp.privacy.clients import ClientPrivacy
from fpdfp.problem import Certificate, Problem, Residual
from fpdfp.traffic import Carried, Traffic

if TYPE_CHECKING:
    from fpdfp.engines.run import Certified, Run
    from fpdfp.engines.stopping import Ending

log = logging.getLogger("fpdfp.engines")
#: What was sent so far: all of it, what evaluations have to do with it, and the rounds alone.
SENT = ("total_up", "total_down", "evaluation_up", "evaluation_down", "bits_up", "bits_down")
COLUMNS = ("round", "objective", *SENT, "step", "seconds")
#: The columns of methods that solve problems inside a round.
INNER = ("inner_clients", "inner_server", "inner_unsolved")
#: The names that metrics cannot have.
RESERVED = frozenset({*COLUMNS, *INNER, "violation"})
INTEGERS = frozenset({"round", *SENT, *INNER})


class History(Mapping[str, Array]):
    """The table of a run: a row for each evaluation, a column for each quantity.

    ``round`` is the number of rounds done. ``total_up`` and ``total_down`` are all bits that were sent so far, by all
    clients and to them, without the bits of the end; ``evaluation_up`` and ``evaluation_down`` are what evaluations
    have taken of them, which a run without a history would not send; ``bits_up`` and ``bits_down`` are the bits of the
    rounds alone. ``step`` is the step of the last round done; ``seconds`` is the time that the rounds took, without
    evaluations. Where g is infinite at Bx, ``objective`` takes g at the nearest point of its domain, and ``violation``
    is the largest distance of an entry of Bx from there. Where a method solves problems inside a round,
    ``inner_clients`` and ``inner_server`` are the steps that this took all clients and the server so far, and
    ``inner_unsolved`` counts the solves that did not reach their tolerance. Any metric that was requested has a column
    of its own.

    Columns are arrays, by key or by name:

    >>> history = History()
    >>> history.append(dict.fromkeys(history, 0) | {"objective": 1.5, "step": 0.1})
    >>> history.objective
    array([1.5])
    >>> history["round"]
    array([0])
    >>> len(history), history.rows
    (10, 1)
    """

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        self._columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
        for name, values in (columns or {}).items():
            self._columns[name] = list(values)

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; every row has the same columns."""
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)

    @property
    def rows(self) -> int:
        """The number of evaluations."""
        return len(self._columns["round"])

    def last(self) -> dict[str, float]:
        """Return the latest row."""
        return {name: values[-1] for name, values in self._columns.items()}

    def __getitem__(self, name: str) -> Array:
        dtype = np.int64 if name in INTEGERS else np.float64
        return np.array(self._columns[name], dtype=dtype)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"history has no column {name!r}; it has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"History({self.rows} rows: {', '.join(self)})"

    def as_csv(self) -> str:
        """Return the table as CSV with a header line."""
        lines = io.StringIO(newline="")
        writer = csv.writer(lines)
        writer.writerow(self)
        writer.writerows(zip(*(self[name].tolist() for name in self), strict=True))
        return lines.getvalue()

    def to_csv(self, path: str | Path) -> None:
        """Write the table as a CSV file with a header line."""
        Path(path).write_text(self.as_csv(), newline="")


class FeatureSubset(NamedTuple):
    """The features that a run is restricted to; all others are zero.

    Attributes
    ----------
    numbers
        Their numbers among all features.
    shape
        The shape of x with all features.
    since
        The round after which all others were excluded.
    until
        The relative gap of the problem in these features at which the excluded ones are checked.
    """

    numbers: IntArray
    shape: Shape
    since: int = 0
    until: float = 0.0

    def lift(self, x: Array) -> Array:
        """Return x with all features: zero in the excluded ones."""
        whole: Array = namespace(x).zeros(self.shape, dtype=x.dtype)
        whole[..., self.numbers] = x
        return whole

    @property
    def mask(self) -> Announced:
        """The mask that clients receive: a one for each of these features, a zero for the others."""
        return Announced.mask(self.numbers, self.shape[-1])

    def __str__(self) -> str:
        return f"{len(self.numbers):,} of {self.shape[-1]:,} since round {self.since}"


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a run; ``print(result)`` describes how far it is from optimal.

    Attributes
    ----------
    x, v
        The solution and its dual; CuPy arrays where the losses live on a GPU.
    objective
        F(x).
    history
        The table of the run.
    status
        ``"converged"``: F(x) − F* is at most ``tol`` times ``certificate.scale``, by a duality gap, and no constraint
        is violated by more than ``tol`` times the size of its entry of Bx. ``"stationary"``: the residual is at most
        ``tol``, and no bound of F(x) − F* is known. ``"rounding"``: the objective no longer changes, and its gap is
        above ``tol``. ``"finished"``: all rounds done. ``"stopped"`` by a callback, ``"interrupted"`` by Ctrl-C, or
        ``"diverged"``. With ``tol``, x satisfies constraints on x itself exactly.
    message
        The status in a sentence, and by how much x violates constraints, if it does.
    rounds
        The rounds that led to x, Newton steps at the end included, in each of which all clients take part.
    traffic
        All bits that clients and server sent, by kind of message (``print(result.traffic)``; the kinds are in
        :mod:`fpdfp.traffic`).
    wire
        The bytes that went over the network of the caller during the run, with all that is around messages; None where
        no one counts them. What several sites are sent alike goes to the hub once, so this may be less than
        ``traffic`` counts.
    total_up, total_down
        Those of all kinds together.
    bits_up, bits_down
        Those of the rounds alone.
    bits_once_up, bits_once_down
        Those of what was sent once for a preconditioner.
    method, algorithm
        The method, and what it was prepared to: with the step, the preconditioner and all else that was chosen.
    compression
        The compressors of messages up and down, in words.
    certificate
        Duality gap where one is known, residual of Lemma 1, violation of constraints. Where the run has not needed it
        (without ``tol``, or where clients have certified the gap by two numbers each) it is computed when it is first
        read. What this sends is then part of ``traffic["end"]``. It takes at most as many products
        with B as the run had rounds where B is large, and has no gap if these are not enough.
    privacy
        What the rounds have cost, with client-level privacy: ε, δ and their unit. None without it.
    features
        The features that the run has ended with, None for all; x is zero in all others. The certificate is that of the
        problem with all features.
    """

    x: Array
    _v: Array | None = dataclasses.field(repr=False)
    objective: float
    history: History
    status: str
    message: str
    rounds: int
    traffic: Traffic
    _certify: Certificate | Callable[[], tuple[Certificate, Traffic]] = dataclasses.field(repr=False, compare=False)
    method: Method | None = None
    algorithm: Algorithm | None = None
    compression: tuple[str, ...] = ()
    features: FeatureSubset | None = None
    wire: Carried | None = None
    privacy: Spent | None = None

    @property
    def v(self) -> Array:
        """The dual of x, from the method, or from the certificate if the method keeps none."""
        return self.certificate.v if self._v is None else self._v

    @functools.cached_property
    def certificate(self) -> Certificate:
        """The distance of x from optimality."""
        if isinstance(self._certify, Certificate):
            return self._certify
        certificate, traffic = self._certify()
        object.__setattr__(self, "traffic", traffic)
        object.__setattr__(self, "_certify", certificate)  # nothing of the run is kept any longer
        return certificate

    @property
    def is_certified(self) -> bool:
        """Whether ``certificate`` is known without asking the clients."""
        return isinstance(self._certify, Certificate)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, with the certificate: it cannot be computed where the clients are not."""
        _ = self.certificate
        return dict(vars(self))

    @property
    def total_up(self) -> int:
        """All bits that clients sent."""
        return self.traffic.up

    @property
    def total_down(self) -> int:
        """All bits that the server sent."""
        return self.traffic.down

    @property
    def bits_up(self) -> int:
        """Bits that clients sent in the rounds."""
        return self.traffic["rounds"].up

    @property
    def bits_down(self) -> int:
        """Bits that the server sent in the rounds."""
        return self.traffic["rounds"].down

    @property
    def bits_once_up(self) -> int:
        """Bits that clients sent once, for a preconditioner."""
        return self.traffic["preconditioner"].up

    @property
    def bits_once_down(self) -> int:
        """Bits that the server sent once: the preconditioner."""
        return self.traffic["preconditioner"].down

    def _describe_method(self) -> list[str]:
        if self.algorithm is None:
            return []
        reason = self.algorithm.reason
        return [f"method        {self.algorithm.summary}", *([f"chosen        {reason}"] if reason else [])]

    def _describe_wire(self, wire: Carried) -> str:
        times = 8 * (wire.up + wire.down) / max(self.traffic.up + self.traffic.down, 1)
        up, down = format_bits(8 * wire.up), format_bits(8 * wire.down)
        return f"on the wire   {up} up, {down} down, {times:.2f} times the total"

    def __str__(self) -> str:
        certificate = self.certificate
        lines = [
            f"{self.status} after {self.rounds} rounds: {self.message}",
            *self._describe_method(),
            *(f"{name:14}{one}" for name, one in zip(("messages up", "and down"), self.compression, strict=False)),
            *([] if self.features is None else [f"features      {self.features}"]),
            f"objective     {self.objective:.10g}",
            str(self.traffic),
            *([] if self.wire is None else [self._describe_wire(self.wire)]),
        ]
        if certificate.relative_gap is None:
            lines.append("duality gap   not known")
        else:
            loose = "; a bound this loose says little" if certificate.relative_gap > 1 else ""
            lines.append(f"duality gap   {certificate.gap:.3g} (relative {certificate.relative_gap:.3g}{loose})")
        residual = certificate.residual
        lines.append(f"residual      primal {residual.primal:.3g}, dual {residual.dual:.3g}")
        if certificate.violation > 0:
            lines.append(f"violation     {certificate.violation:.3g}")
        return "\n".join(lines)


def make_result(run: Run, ending: Ending, problem: Problem, features: FeatureSubset | None, given: Problem) -> Result:
    """Say how a run ended, and how far from the optimum of the problem with all features.

    ``given`` is the problem that a later certificate is computed for: that of the caller, where the losses of the run
    are not there any more after it.
    """
    unsolved = (run.work + run.server_work).unsolved
    if unsolved:
        warn(
            f"{unsolved} inner solves ended before they reached their tolerance; allow more steps or a larger one",
            AccuracyWarning,
        )
    certify: Certificate | Callable[[], tuple[Certificate, Traffic]]
    v: Array | None
    private: ClientPrivacy | None = run.options.privacy
    if ending.certified is not None and ending.certificate is not None:
        x, certify = ending.certified.x, ending.certificate
        v, objective, violation = certify.v, certify.objective, certify.violation
    elif features is None and (run.options.tol is None or ending.certified is not None) and _is_evaluated(run):
        found, v = run.algorithm.solution(run.state)
        if ending.certified is not None:
            found = ending.certified.x  # as it was sent to be certified
        # with noise x is a function of noisy means alone
        x, row = found if private is not None else clean_point(run, found, v), run.history.last()
        objective, violation = row["objective"], row.get("violation", 0.0)
        if x is not found:
            objective, violation = run.problem.evaluate(x)
        # A copy: the certificate is that of the run, whatever becomes of the result's arrays.
        certify = _Later(run, given, x.copy(), None if v is None else v.copy(), objective, ending.certified)
    else:
        x, v, certify = _certify(run, ending, problem, features)
        objective, violation = certify.objective, certify.violation
    return Result(
        x=x,
        _v=v,
        objective=objective,
        history=run.history,
        status=ending.status,
        message=ending.message + _describe_violation(violation),
        rounds=run.round,
        traffic=run.traffic,
        _certify=certify,
        method=run.method,
        algorithm=run.algorithm,
        compression=run.compression,
        features=features,
        privacy=None if private is None else private.spent(run.round, run.clients_per_round, problem.n_clients),
    )


def _is_evaluated(run: Run) -> bool:
    """Whether the history ends with the last round."""
    return bool(run.history.last()["round"] == run.round)


class _Later:
    """Computes the certificate of a run that is over, with the bound that clients have certified, if they have."""

    def __init__(
        self, run: Run, problem: Problem, x: Array, v: Array | None, objective: float, certified: Certified | None
    ) -> None:
        self.meter, self.problem, self.x, self.v = run.meter, problem.metered(run.meter), x, v
        self.products, self.upkeep = run.round, run.traffic["upkeep"]
        self.objective, self.certified = objective, certified

    def __call__(self) -> tuple[Certificate, Traffic]:
        """Return the certificate, and all that was sent then."""
        try:
            with self.meter.counting("end"):
                certificate = self.problem.certificate(self.x, self.v, thorough=False, products=self.products)
        except RuntimeError as error:  # sites do not answer, refuse, or are not there any more
            certificate = _know_nothing(self.problem, self.x, self.v, error)
            if self.certified is not None:
                certificate = certificate._replace(objective=self.objective, scale=self.certified.scale, violation=0.0)
        if self.certified is not None:
            certificate = self.certified.refine(certificate)
        return certificate, self.meter.traffic.having("upkeep", self.upkeep)


def _know_nothing(problem: Problem, x: Array, v: Array | None, why: Exception) -> Certificate:
    """Return the certificate of a point that nothing is known of."""
    log.warning("nothing is certified: %s", why)
    unknown = problem.model.xp.zeros(problem.model.dual_shape, dtype=x.dtype) if v is None else v
    return Certificate(math.nan, None, Residual(math.nan, math.nan), math.nan, unknown, math.nan)


def _certify(
    run: Run, ending: Ending, problem: Problem, features: FeatureSubset | None
) -> tuple[Array, Array, Certificate]:
    """Return x, v and the certificate of a run that ended without one; with all features."""
    x, v = run.algorithm.solution(run.state)
    if ending.certified is not None:
        x = ending.certified.x  # as it was sent to be certified
    try:
        x = clean_point(run, x, v)
        if features is None:
            problem = run.problem
        else:
            # That the excluded features are zero is not known otherwise.
            problem, x, features = problem.metered(run.meter), features.lift(x), None
            v = find_dual(problem, x)
        certificate = problem.certificate(x, v, thorough=False, products=run.round)
        if ending.certified is not None:
            certificate = ending.certified.refine(certificate)
    except AbsentError as error:
        certificate = _know_nothing(run.problem, x, v, error)
    v = certificate.v if v is None else v
    if features is not None:
        x, v = features.lift(x), features.lift(v)
        certificate = certificate._replace(v=v)
    return x, v, certificate


def _describe_violation(violation: float) -> str:
    """Say that constraints are violated, for the message of a result."""
    return f"; x violates constraints on Bx by up to {violation:.2g}" if violation > 0 else ""


def clean_point(run: Run, x: Array, v: Array | None) -> Array:
    """Return x with exact zeros, and in a run to a tolerance inside constraints on x itself."""
    x = set_zeros(run, x, v)
    return x if run.options.tol is None else run.problem.model.make_feasible(x)


def set_zeros(run: Run, x: Array, v: Array | None) -> Array:
    """Return x after a prox with its own dual, where it is as good: other coordinates leave zeros at 1e-12."""
    problem = run.problem
    if run.algorithm.factor is None or v is None or not problem.linop.is_identity:
        return x
    step = problem.default_step
    near: Array = problem.penalty.prox(x + step * v, step)
    before, after = problem.evaluate(x), problem.evaluate(near)
    return near if after[0] <= before[0] * (1 + 1e-12) and after[1] <= before[1] else x


def find_dual(problem: Problem, x: Array) -> Array:
    """Return the dual point nearest to −∇f(x) of a problem with an l1 norm of x."""
    assert isinstance(problem.penalty, L1)
    v: Array = problem.model.xp.clip(-problem.gradient(x), -problem.penalty.weight, problem.penalty.weight)
    return v
