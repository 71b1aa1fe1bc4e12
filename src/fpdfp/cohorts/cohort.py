"""Cohorts of clients: the interface of mathematics to data, which answers questions in sums, and counts the bits."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

from fpdfp._typing import IntArray
from fpdfp.cohorts.question import Question


class Total(NamedTuple):
    """The joint answer of the clients of a cohort.

    Attributes
    ----------
    sums
        What :meth:`fpdfp.cohorts.question.Question.add_up` makes of the answers: sums, or means.
    asked
        How many clients were asked.
    up, down
        The bits of all answers, and of the question to all of them.
    """

    sums: Any
    asked: int
    up: int
    down: int


class Each(NamedTuple):
    """The answers of single clients, or of sites with tables, in order; and the bits of all of them."""

    answers: list[Any]
    up: int
    down: int


class Cohort(abc.ABC):
    """The clients of a study, wherever they are: the only way from mathematics to their data.

    What is asked is a :class:`fpdfp.cohorts.question.Question`. An answer is a sum over clients, so that nothing above
    this package has the numbers of one of them. What needs these, as a forest plot does, states it by :meth:`ask_each`,
    which a site's policy allows or not.
    """

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the sites, in the order in which their answers are added up."""

    @abc.abstractmethod
    def ask(self, question: Question, clients: IntArray | None = None) -> Total:
        """Return the sums of what clients answer.

        Parameters
        ----------
        question
            What is asked.
        clients
            Who is asked, by number; by default those whom the question draws, which mostly are all.
        """

    @abc.abstractmethod
    def ask_each(self, question: Question) -> Each:
        """Return what each client, or each site with a table, answers."""
