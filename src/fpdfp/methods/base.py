"""What a method is: ``init``, ``broadcast``, ``client_update``, ``server_update``."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Compressor
from fpdfp.linops import LinOp
from fpdfp.losses.base import Losses
from fpdfp.methods.traits import Solves, Traits
from fpdfp.penalties.zero import Zero
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws
from fpdfp.steps import Constants, Schedule

if TYPE_CHECKING:
    from fpdfp.precondition.cost import Circumstances


class Work(NamedTuple):
    """What inner solves cost: their steps, and how many ended before they reached their tolerance."""

    steps: int = 0
    unsolved: int = 0

    def __add__(self, other: tuple[int, ...]) -> Work:  # type: ignore[override]
        steps, unsolved = other
        return Work(self.steps + steps, self.unsolved + unsolved)


class Update(NamedTuple):
    """What the clients of a round give back.

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


class Method(abc.ABC):
    """A federated method: a frozen dataclass of hyper-parameters with four pure functions.

    State, messages, replies and the clients' memory are small named tuples of arrays. None of the functions does I/O,
    keeps anything, or knows which engine runs it. ``client_update`` works over a leading client axis, of length
    one in a deployment; a client's reply does not depend on who else is in the batch.
    """

    #: What the method needs and can do; ``solve`` checks it before the first round.
    traits: ClassVar[Traits]

    step: Any
    batch_size: int | None
    #: τ, where a method has no such hyper-parameter.
    local_steps: int = 1
    #: The fields of the clients' memory that depend on decoded messages alone, so that the server can follow them.
    shared_memory: ClassVar[tuple[str, ...]] = ()
    #: μ as the user gave it; None where it was not given, or cannot be.
    strong_convexity: float | None = None
    #: Why a prepared method is what it is, where that was chosen.
    reason: str = ""

    @property
    def solves(self) -> Solves:
        """The objectives that this method minimises with its hyper-parameters as they are."""
        return self.traits.solves

    @property
    def has_inner_solve(self) -> bool:
        """Whether a prepared method solves problems inside a round, whose cost the history is to show."""
        return False

    @property
    def summary(self) -> str:
        """What a prepared method is, in a few words for a person."""
        return type(self).__name__

    def check(self, model: Model) -> None:
        """Refuse a model that the method cannot minimise."""
        name = type(self).__name__
        if isinstance(model.penalty, Zero):
            return
        if self.solves == "f":
            raise ValueError(f"penalty must be Zero() for {name}, which minimises f alone, got {model.penalty!r}")
        if self.solves == "f + g" and not model.linop.is_identity:
            other = (
                f"{name}(inner=fpdfp.InnerSolve()) computes it by dual steps; " if self.traits.with_inner_solve else ""
            )
            raise ValueError(
                f"linop must be the identity for {name}, which needs the prox of g∘B, got {model.linop!r}; {other}"
                "FPDFP takes any B"
            )

    def specialise(self, model: Model) -> Method:
        """Return the method that is to run for this model: usually this one."""
        return self

    def plan(self, losses: Losses, circumstances: Callable[[], Circumstances]) -> Method:
        """Return the method that says what clients are to send once, by what is known of a run before it begins."""
        return self

    @property
    def gathers(self) -> bool:
        """Whether clients send something once, before the first round."""
        return False

    def asked_once(self, n_clients: int, seed: int) -> IntArray:
        """Return who sends something once: everyone, or some who are drawn at random."""
        return np.arange(n_clients)

    def gather(self, model: Model, local: LocalLosses) -> Any:
        """Return what clients send once, before the first round; an empty tuple where nothing is needed."""
        return ()

    def messages_once(self, model: Model) -> dict[str, tuple[Compressor, Shape]]:
        """Return what the fields of it go through, and their shapes; nothing where they are sent as they are."""
        return {}

    def summed(self, sent: Any, places: IntArray) -> Any:
        """Return sums over clients of what they sent, given their places among those who are asked."""
        return type(sent)(*(array.sum(axis=0, dtype=np.float64) for array in sent))

    def install(self, model: Model, sums: Any, count: int, n_clients: int) -> Method:
        """Return the method with what it makes of sums over ``count`` of all clients of what they sent once."""
        return self

    def for_clients(self) -> Method:
        """Return the method without what the server alone needs, to be sent to clients."""
        return self

    @property
    def announced_bits(self) -> int:
        """The bits of what the server sends to every client once, before the first round."""
        return 0

    @property
    def factor(self) -> LinOp | None:
        """S, where clients send Sᵀ times a gradient; None where they send gradients as they are."""
        return None

    @property
    def smoothness_in_factor(self) -> float | None:
        """A bound of the Lipschitz constant of u ↦ Sᵀ∇f(Su), where one is known without asking clients."""
        return None

    def settle(self, constants: Constants) -> Method:
        """Return the method that is to be prepared, once it knows the constants: one in other coordinates, perhaps."""
        return self

    @abc.abstractmethod
    def prepare(self, model: Model, constants: Constants) -> Method:
        """Return the method with every automatic hyper-parameter chosen."""

    def largest_step(self, model: Model, constants: Constants) -> float:
        """Return the largest constant step that is safe without noise."""
        return constants.largest_safe_step

    @abc.abstractmethod
    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        """Return the shape of what a client sends in each field of its reply."""

    @abc.abstractmethod
    def init(self, model: Model, x0: Array) -> Any:
        """Return the server's state before the first round."""

    def init_memory(self, model: Model, n_clients: int) -> Any:
        """Return what the clients remember before the first round, with a leading client axis."""
        return ()

    @abc.abstractmethod
    def broadcast(self, model: Model, state: Any) -> Any:
        """Return what the server sends to the clients of a round: a named tuple of arrays."""

    @abc.abstractmethod
    def client_update(self, model: Model, local: LocalLosses, message: Any, k: int, draws: Draws) -> Update:
        """Return the replies in round k of the clients of ``local``, and what they keep in memory."""

    def remember(self, model: Model, shared: dict[str, Array], sent: Any, k: int) -> dict[str, Array]:
        """Return the fields of ``shared_memory`` after round k, from those before it and what the server decoded."""
        return shared

    def confirm(self, model: Model, memory: Any, sent: Any, k: int) -> Any:
        """Return what the clients of round k remember once the server has what they sent, as it decoded it.

        ``memory`` is that of their update. A client whose message was lost does not come here.
        """
        if not self.shared_memory:
            return memory
        shared = {name: getattr(memory, name) for name in self.shared_memory}
        return memory._replace(**self.remember(model, shared, sent, k))

    @abc.abstractmethod
    def server_update(self, model: Model, state: Any, reply: Any, k: int) -> Any:
        """Return the state after round k, from the replies as the server decoded them."""

    @abc.abstractmethod
    def solution(self, state: Any) -> tuple[Array, Array | None]:
        """Return x and the dual v that a state stands for; None for v where the method keeps none."""

    @property
    def can_certify(self) -> bool:
        """Whether clients can certify a duality gap with what they remember: ``question``, ``answer``, ``conclude``."""
        return False

    def question(self, model: Model, state: Any, *, fine: bool) -> Any:
        """Return what the server sends to everyone to have a duality gap certified, x first.

        In single precision, or with ``fine`` in that of the model.
        """
        raise NotImplementedError(f"{type(self).__name__} has no certificate of its own")

    def slope_estimate(self, state: Any) -> Array:
        """Return what the server takes for ∇f near its x, of a method that can certify."""
        raise NotImplementedError(f"{type(self).__name__} has no certificate of its own")

    def answer(self, model: Model, local: LocalLosses, question: Any) -> Array:
        """Return two numbers for each client: N w_i f_i(x), and its part of the gap."""
        raise NotImplementedError(f"{type(self).__name__} has no certificate of its own")

    def conclude(self, model: Model, state: Any, question: Any, answers: Array) -> tuple[float, float | None]:
        """Return F(x) and an upper bound of F(x) − F* for the x of the question, from the mean of the answers."""
        raise NotImplementedError(f"{type(self).__name__} has no certificate of its own")

    def server_work(self, state: Any) -> Work:
        """Return what inner solves have cost the server so far."""
        return Work()

    def schedule(self) -> Schedule:
        """Return the step-size schedule of a prepared method."""
        if not isinstance(self.step, Schedule):
            raise TypeError("prepare the method first: its step is not chosen yet")
        return self.step
