"""Clients of a problem: those in this process, asked all at once; elsewhere the engine of their losses has them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.cohort import Cohort, Each, Total
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.record import keep
from fpdfp.compress.plain import plain_bits
from fpdfp.problem import Problem
from fpdfp.rng import Draws, Purpose
from fpdfp.traffic import payload


class Clients(Cohort):
    """The clients of a problem.

    Parameters
    ----------
    problem
        The problem, whose weights count in what is asked.
    """

    #: Answers are added up as they come, about so many numbers at a time.
    at_once: int

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abc.abstractmethod
    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        """Return what some clients answer, as the server decodes it, with a leading client axis; and its bits.

        ``each`` says that answers are to be seen one by one.
        """

    def ask(
        self, question: Question, clients: IntArray | None = None, *, seed: int = 0, times: Array | None = None
    ) -> Total:
        """Return the sums of what clients answer.

        Parameters
        ----------
        question, clients
            What is asked, and of whom.
        seed
            From which clients are drawn, and with which their answers are rounded.
        times
            How often each client counts, a row for each, at each of the question's points; None for once everywhere.
        """
        if clients is None:
            clients = question.draw_clients(self.problem.n_clients, seed)
        sums, up = keep(question, lambda: self._add_up(question, clients, seed, times))
        return Total(sums, len(clients), up, len(clients) * payload(question))

    def _add_up(self, question: Question, clients: IntArray, seed: int, times: Array | None) -> tuple[Any, int]:
        """Return the sums of what some clients answer, and the bits of all answers."""
        sums, up, length = None, 0, len(clients)
        if question.in_parts:
            length = max(1, self.at_once // question.count_numbers(self.problem.model.shape))
        for first in range(0, len(clients), length):
            some = clients[first : first + length]
            sent, bits = self._send(question, some, seed)
            part = question.add_up(sent, np.arange(first, first + len(some)), times)
            sums = part if sums is None else type(part)(*map(np.add, sums, part))
            up += bits
        return sums, up

    def ask_each(self, question: Question) -> Each:
        clients = np.arange(self.problem.n_clients)
        sent, up = keep(question, lambda: self._send(question, clients, 0, each=not question.by_site))
        rows = [type(sent)(*(array[i] for array in sent)) for i in range(len(clients))]
        return Each(rows, up, len(clients) * payload(question))


class LocalClients(Clients):
    """Clients in this process: the question is asked of all at once, and nothing is serialised."""

    at_once = 1 << 22

    @property
    def names(self) -> Sequence[str]:
        return [f"client {number}" for number in range(self.problem.n_clients)]

    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        sent = question.answer(self.problem.local(clients))
        messages = question.messages(self.problem.model.shape)
        if not messages:
            return sent, sum(plain_bits(array.shape[1:], array.dtype) * len(array) for array in sent)
        draws = Draws(seed, 0, clients)
        done = [
            messages[name][0].compress(array, draws, Purpose.ONCE + field)
            for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
        ]
        return type(sent)(*(one.values for one in done)), sum(int(one.bits.sum()) for one in done)


def clients_of(problem: Problem) -> Clients:
    """Return the clients of a problem, wherever they are."""
    engine: Any = getattr(problem.losses, "engine", None)
    found: Clients = LocalClients(problem) if engine is None else engine.clients(problem)
    return found
