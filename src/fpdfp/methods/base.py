"""What a method is: ``init``, ``broadcast``, ``client_update``, ``server_update``."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from fpdfp._typing import Array, Shape
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws
from fpdfp.steps import Constants, Schedule


class Method(abc.ABC):
    """A federated method: a frozen dataclass of hyper-parameters with four pure functions.

    State, messages and replies are small named tuples of arrays. None of the functions does I/O, keeps
    anything, or knows which engine runs it. ``client_update`` works over a leading client axis, of length
    one in a deployment; a client's reply does not depend on who else is in the batch.
    """

    #: Whether a round may go on with some of the clients.
    partial_participation: ClassVar[bool] = True
    #: Whether replies may be compressed.
    compression: ClassVar[bool] = True
    #: Whether the theory holds only for compressors whose mean is right: others are refused.
    needs_unbiased: ClassVar[bool] = True

    batch_size: int | None
    step: Any

    def specialise(self, model: Model) -> Method:
        """Return the method that is to run for this model: usually this one."""
        return self

    @abc.abstractmethod
    def prepare(self, model: Model, constants: Constants) -> Method:
        """Return the method with every automatic hyper-parameter chosen."""

    @abc.abstractmethod
    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        """Return the shape of what a client sends in each field of its reply."""

    @abc.abstractmethod
    def init(self, model: Model, x0: Array) -> Any:
        """Return the server's state before the first round."""

    @abc.abstractmethod
    def broadcast(self, model: Model, state: Any) -> Any:
        """Return what the server sends to the clients of a round: a named tuple of arrays."""

    @abc.abstractmethod
    def client_update(self, model: Model, local: LocalLosses, message: Any, k: int, draws: Draws) -> Any:
        """Return the clients' replies in round k: a named tuple of arrays with a leading client axis."""

    @abc.abstractmethod
    def server_update(self, model: Model, state: Any, reply: Any, k: int) -> Any:
        """Return the state after round k, from the replies as the server decoded them."""

    @abc.abstractmethod
    def solution(self, state: Any) -> tuple[Array, Array | None]:
        """Return x and the dual v that a state stands for; None for v where the method keeps none."""

    def schedule(self) -> Schedule:
        """Return the step-size schedule of a prepared method."""
        if not isinstance(self.step, Schedule):
            raise TypeError("prepare the method first: its step is not chosen yet")
        return self.step
