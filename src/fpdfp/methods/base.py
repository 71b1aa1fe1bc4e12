"""Methods, which users choose, and algorithms, which run."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from fpdfp import _checks, steps
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError
from fpdfp.linops import LinOp
from fpdfp.penalties.base import Zero
from fpdfp.problem import LocalLosses, Model
from fpdfp.quadratic.statement import Work, check_inner
from fpdfp.rng import Draws

if TYPE_CHECKING:
    from fpdfp.precondition.agreement import Agreement, Clients
    from fpdfp.precondition.base import Announced

#: Local steps are 24 bits of the counter of the draws.
MAX_LOCAL_STEPS = 2**24
#: The objectives: f alone, f + g with the prox of g, or f + g∘B for any linear map B.
Solves = Literal["f", "f + g", "f + g∘B"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traits:
    """A method's declaration, which ``solve`` checks before the first round and the table of methods shows.

    Attributes
    ----------
    title
        What it is, in a few words.
    solves
        The largest class of objectives that it minimises: ``"f"``, ``"f + g"`` (B must be the identity) or
        ``"f + g∘B"``.
    sends
        The fields of a client's reply; compressors can be given for each by these names.
    uplink
        How many numbers a client sends in a round, in terms of d, the size of x, and m, the size of Bx.
    proved
        What its convergence theory says, in a sentence.
    reference
        Where it comes from.
    partial_participation
        Whether a round may continue with some of the clients.
    unequal_sampling
        Whether clients may be drawn with unequal probabilities, and replies weighted accordingly.
    compression
        Whether replies may be compressed.
    compressed_form
        The name of the method that is this one with compressed messages, where ``compression`` is False.
    downlink
        Whether the server's messages may be compressed.
    mini_batches
        Whether clients may use a random part of their samples.
    local_steps
        Whether clients may take several steps between two rounds.
    constant_step
        Whether steps must not change from round to round.
    needs_unbiased
        Whether the theory holds only for compressors whose mean is right: others are refused.
    needs_smooth
        Whether ∇f must be Lipschitz continuous.
    needs_hessians
        Whether clients must know the Hessians of their losses.
    needs_one_client
        Whether all data must be in one place.
    strong_convexity
        What strong convexity of f is for: ``"not needed"``, ``"for its rate"``, ``"needed"``.
    restorable
        Whether a client that lost what it remembered can continue with what the server knows of it: needed by engines
        whose clients are other processes.
    with_inner_solve
        What it minimises with an inner solve of the prox of g∘B, where that is more than ``solves``.
    """

    title: str
    solves: Solves
    sends: tuple[str, ...]
    uplink: Literal["d", "2d", "d + m", "d(d + 3)/2", "2 + d(d + 3)/2"] = "d"
    proved: str
    reference: str
    partial_participation: bool = True
    unequal_sampling: bool = False
    compression: bool = True
    compressed_form: str | None = None
    downlink: bool = False
    mini_batches: bool = True
    local_steps: bool = False
    constant_step: bool = False
    needs_unbiased: bool = True
    needs_smooth: bool = True
    needs_hessians: bool = False
    needs_one_client: bool = False
    strong_convexity: Literal["not needed", "for its rate", "needed"] = "for its rate"
    restorable: bool = True
    with_inner_solve: Solves | None = None


class Update(NamedTuple):
    """The results of the clients of a round.

    Attributes
    ----------
    reply
        What they send: a named tuple of arrays with a leading client axis.
    memory
        What they keep until they take part again: like ``reply``, or an empty tuple.
    work
        What inner solves cost all of them together.
    """

    reply: Any
    memory: Any = ()
    work: Work = Work()


class WeightedMeans(NamedTuple):
    """The means of a round whose clients were drawn with unequal probabilities p_i.

    Attributes
    ----------
    weighted
        The mean of n/(N p_i) times the replies of those who answered: in expectation the mean over all clients.
    plain
        The mean of the replies.
    weight
        The mean of n/(N p_i), which is 1 in expectation.
    """

    weighted: Any
    plain: Any
    weight: float


class Facts(NamedTuple):
    """The input of ``prepare``.

    Attributes
    ----------
    model
        What is public of the problem.
    constants
        Sums, means and maxima of the clients' constants, in the coordinates of ``agreement``.
    agreement
        What clients and server agreed on before the first round: coordinates to work in, or nothing.
    """

    model: Model
    constants: steps.Constants
    agreement: Agreement


def _check_inner(name: str, value: Any) -> Any:
    check_inner(value)
    return value


#: How hyper-parameters are checked that have the same meaning in every method.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "batch_size": partial(_checks.integer, at_least=1, at_most=2**62),
    "local_steps": partial(_checks.integer, at_least=1, at_most=MAX_LOCAL_STEPS),
    "dual_steps": partial(_checks.integer, at_least=1),
    "epoch": partial(_checks.integer, at_least=1),
    "lam": partial(_checks.real, positive=True),
    "sigma": partial(_checks.real, positive=True),
    "server_step": partial(_checks.real, positive=True),
    "rho": partial(_checks.real, at_least=0.0),
    "strong_convexity": partial(_checks.real, at_least=0.0),
    "hessian_step": _checks.share,
    "refresh": _checks.share,
    # 0 is for gradients that are sent as they are
    "shift_step": lambda name, value: value if value == 0 else _checks.share(name, value),
    "momentum": _checks.flag,
    "server_prox": _checks.flag,
    "begin": _checks.flag,
    "averaging": partial(_checks.choice, accepted=("weighted", "plain")),
    "penalty": partial(_checks.choice, accepted=("refuse", "subgradient", "ignore")),
    "inner": _check_inner,
}


class Method(abc.ABC):
    """A federated method as a user chooses it: a frozen dataclass of hyper-parameters, equal by value.

    :meth:`prepare` returns the :class:`Algorithm` that runs for a problem, with everything chosen.
    """

    #: What the method needs and can do; ``solve`` checks it before the first round.
    traits: ClassVar[Traits]

    step: steps.Step
    #: None where a method has no mini-batches.
    batch_size: int | None = None
    #: τ, where a method has no such hyper-parameter.
    local_steps: int | None = 1
    #: μ as the user gave it; None where it was not given, or cannot be.
    strong_convexity: float | None = None

    def __post_init__(self) -> None:
        """Check the hyper-parameters that several methods have, and keep them as plain numbers.

        Plain, because a NumPy scalar would turn a run in float32 into one in float64.
        """
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, value = field.name, getattr(self, field.name)
            if name == "step":
                object.__setattr__(self, name, steps.check(value, constant=self.traits.constant_step))
            elif name in CHECKS and (value is not None or field.default is not None):
                object.__setattr__(self, name, CHECKS[name](name, value))

    @property
    def solves(self) -> Solves:
        """The objectives that this method minimises with its hyper-parameters unchanged."""
        return self.traits.solves

    def check(self, model: Model) -> None:
        """Refuse a model that the method cannot minimise."""
        name = type(self).__name__
        if isinstance(model.penalty, Zero):
            return
        if self.solves == "f":
            raise ArgumentError("penalty", f"must be Zero() for {name}, which minimises f alone, got {model.penalty!r}")
        if self.solves == "f + g" and not model.linop.is_identity:
            other = (
                f"{name}(inner=fpdfp.InnerSolve()) computes it by dual steps; " if self.traits.with_inner_solve else ""
            )
            raise ArgumentError(
                "linop",
                f"must be the identity for {name}, which needs the prox of g∘B, got {model.linop!r}; {other}"
                "FPDFP takes any B",
            )

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        """Return the shape of what a client sends in each field of its reply: by default the shape of x."""
        return dict.fromkeys(self.traits.sends, model.shape)

    @abc.abstractmethod
    def prepare(self, facts: Facts) -> Algorithm:
        """Return the algorithm that runs, with every automatic hyper-parameter chosen."""

    def largest_step(self, facts: Facts) -> float:
        """Return the largest constant step that is safe without noise."""
        return facts.constants.largest_safe_step


@runtime_checkable
class NeedsSetup(Protocol):
    """A method whose clients and server agree on something before the first round, by sums over clients."""

    def agree(self, clients: Clients) -> Agreement:
        """Ask the clients, and return what came of it."""


@dataclasses.dataclass(frozen=True)
class Algorithm(abc.ABC):
    """A method ready to run on a model: five pure functions, every field set.

    State, messages, replies and the clients' memory are named tuples of arrays. None of the functions does I/O, keeps
    anything, or knows which engine runs it. ``client_update`` works over a leading client axis, of length one in a
    deployment; a client's reply does not depend on who else is in the batch. The server sees means of replies alone.

    Attributes
    ----------
    method
        What the user chose.
    model
        What is public of the problem.
    step
        The schedule γ_k.
    """

    #: The fields of a reply whose means are computed in float64 regardless, since clients add them to what they keep.
    double: ClassVar[tuple[str, ...]] = ()
    #: The fields of clients' memory that depend on messages alone, as they were decoded, so that the server can follow.
    shared_memory: ClassVar[tuple[str, ...]] = ()

    method: Method
    model: Model = dataclasses.field(repr=False)
    step: steps.Schedule

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ValueError(f"{field.name} must be at least 0 and finite, got {value:g}")

    def for_sites(self) -> Algorithm:
        """Return the algorithm without what the server alone needs."""
        return self

    @abc.abstractmethod
    def init(self, x0: Array) -> Any:
        """Return the server's state before the first round."""

    @abc.abstractmethod
    def broadcast(self, state: Any) -> Any:
        """Return what the server sends to the clients of a round."""

    @abc.abstractmethod
    def client_update(self, local: LocalLosses, message: Any, k: int, draws: Draws) -> Update:
        """Return the replies in round k of the clients of ``local``, and what they keep in memory."""

    @abc.abstractmethod
    def server_update(self, state: Any, mean: Any, k: int, count: int) -> Any:
        """Return the state after round k, from the mean of the replies of the ``count`` clients that answered."""

    def weighted_update(self, state: Any, means: WeightedMeans, k: int, count: int) -> Any:
        """Return the state after round k whose clients were drawn with unequal probabilities, where traits allow it."""
        return self.server_update(state, means.weighted, k, count)

    @abc.abstractmethod
    def solution(self, state: Any) -> tuple[Array, Array | None]:
        """Return x and the dual v that a state stands for; None for v where the algorithm keeps none."""

    def reply_shapes(self) -> dict[str, Shape]:
        """Return the shape of what a client sends in each field of its reply."""
        return self.method.reply_shapes(self.model)

    @property
    def factor(self) -> LinOp | None:
        """S, where clients send Sᵀ times a gradient; None where they send gradients unchanged."""
        return None

    @property
    def client_steps(self) -> int:
        """The most steps that a client takes in a round."""
        return getattr(self, "local_steps", self.method.local_steps) or 1

    @property
    def summary(self) -> str:
        """A description of the algorithm in a few words."""
        return type(self.method).__name__

    @property
    def reason(self) -> str:
        """Why it is what runs, where that was chosen automatically."""
        return ""

    @property
    def has_inner_solve(self) -> bool:
        """Whether problems are solved inside a round, whose cost the history shows."""
        return False

    def server_work(self, state: Any) -> Work:
        """Return what inner solves have cost the server so far."""
        return Work()


class Remembering(abc.ABC):
    """An algorithm whose clients keep something between the rounds that they take part in."""

    shared_memory: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def init_memory(self, n_clients: int) -> Any:
        """Return what clients remember before the first round, with a leading client axis."""

    def take_message(self, shared: dict[str, Array], message: Any) -> dict[str, Array]:
        """Return the fields of ``shared_memory`` after ``client_update`` that the server's message determines."""
        return shared

    def remember(self, shared: dict[str, Array], sent: Any, k: int) -> dict[str, Array]:
        """Return the fields of ``shared_memory`` after round k, from those before it and what the server decoded."""
        return shared

    def confirm(self, memory: Any, sent: Any, k: int) -> Any:
        """Return what the clients of round k remember once the server has what they sent, as it decoded it.

        ``memory`` comes from their update. A client whose message was lost keeps what it had.
        """
        if not self.shared_memory:
            return memory
        shared = {name: getattr(memory, name) for name in self.shared_memory}
        return memory._replace(**self.remember(shared, sent, k))


class TracksObjective(abc.ABC):
    """An algorithm whose server learns the objective from the replies of a round, and about how far it is from F*."""

    @abc.abstractmethod
    def known_objective(self, state: Any) -> float:
        """Return F at the point that was accepted last; infinite before the first."""

    @abc.abstractmethod
    def expected_gap(self, state: Any) -> float:
        """Return an estimate of F minus its minimum at the solution; infinite if the server cannot estimate it."""


class Question(NamedTuple):
    """The server's question for a certificate: a named tuple of arrays, x first, and their messages."""

    arrays: Any
    messages: tuple[Announced, ...]

    @property
    def bits(self) -> int:
        """The bits of the question to one client."""
        return sum(message.bits for message in self.messages)


class Certifying(abc.ABC):
    """An algorithm whose clients can certify a duality gap by two numbers each, with what they remember."""

    @abc.abstractmethod
    def question(self, state: Any, *, fine: bool, slack: float = 0.0) -> Question:
        """Return the message that the server sends to all clients.

        Parameters
        ----------
        state
            The state.
        fine
            Whether x is sent in the precision of the model, or else in single precision.
        slack
            What a gap of interest is about: rounding of all but x may add a small part of that to the gap.
        """

    @abc.abstractmethod
    def dual_point(self, state: Any) -> Array:
        """Return the v that the certificate is about, as far as the server knows a good one."""

    @abc.abstractmethod
    def estimate_slope(self, state: Any) -> Array:
        """Return what the server takes for ∇f near its x."""

    @abc.abstractmethod
    def answer(self, local: LocalLosses, question: Any) -> Array:
        """Return two numbers for each client: N w_i f_i(x), and its part of the gap."""

    @abc.abstractmethod
    def conclude(self, state: Any, question: Any, answers: Array) -> tuple[float, float | None]:
        """Return F(x) and an upper bound of F(x) − F* for the x of the question, from the mean of the answers."""
