"""The warnings and errors that are this package's own."""

from __future__ import annotations

import re
from collections.abc import Mapping


class ArgumentError(ValueError):
    """An argument has a value that is not accepted.

    >>> str(ArgumentError("rounds", "must be at least 1, got 0"))
    'rounds must be at least 1, got 0'

    Parameters
    ----------
    subject
        The argument; where it is a part of one that is wrong, with the part: ``"shape: a length"``, ``"metrics['a']"``.
    problem
        What is accepted, and what was given.

    Attributes
    ----------
    argument
        The name of the argument alone.
    """

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(subject, problem)  # both, so that it can be pickled
        self.argument = re.split(r"[:\[]", subject, maxsplit=1)[0]

    def __str__(self) -> str:
        return " ".join(self.args)


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type that is not accepted."""


class SeparationError(RuntimeError):
    """A likelihood has no maximum: a combination of columns separates outcomes, and their coefficients are infinite.

    >>> print(SeparationError(["dose", "stage[T.IV]"]))
    the likelihood has no maximum: outcomes are separated by dose, stage[T.IV], whose coefficients grow without end. \
Leave columns out, put levels together that have the same outcome in all rows, or use a penalty: penalty='firth' for \
logistic, Poisson and Cox models, penalty=fpdfp.Ridge(0.01) for all

    Attributes
    ----------
    columns
        The names of the coefficients that grow without end.
    """

    def __init__(self, columns: list[str]) -> None:
        super().__init__(columns)
        self.columns = list(columns)

    def __str__(self) -> str:
        shown = ", ".join(self.columns[:10]) + (", …" if len(self.columns) > 10 else "")
        return (
            f"the likelihood has no maximum: outcomes are separated by {shown}, whose coefficients grow without end. "
            "Leave columns out, put levels together that have the same outcome in all rows, or use a penalty: "
            "penalty='firth' for logistic, Poisson and Cox models, penalty=fpdfp.Ridge(0.01) for all"
        )


class StepTooLargeWarning(UserWarning):
    """A step size or λ exceeds the largest value for which convergence is known."""


class DataWarning(UserWarning):
    """Data look as if they were not what they are used as."""


class DivergenceWarning(RuntimeWarning):
    """The iterates grew without bound; the run was stopped and the last good iterate kept."""


class AccuracyWarning(RuntimeWarning):
    """A solver ended before it reached the tolerance that was requested."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read, or belongs to a different run."""


class MessageError(ValueError):
    """A message is cut off, damaged, or not what was agreed on."""


class AbsentError(RuntimeError):
    """Sites that are needed did not answer in time; the message names them."""


class Refusal(Exception):  # noqa: N818 - a refusal is an answer
    """A site does not answer: one sentence for the analyst, a detail for the site's log, and its rule.

    >>> str(Refusal("this site does not send second moments of its rows", "12 rows"))
    'this site does not send second moments of its rows'
    """

    def __init__(self, sentence: str, detail: str = "", rule: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.detail, self.rule = sentence, detail, rule


class RefusalError(RuntimeError):
    """Sites refuse what they were asked; the message names them and says why.

    Attributes
    ----------
    sites
        What each site that refuses says, by its name.
    """

    def __init__(self, message: str, sites: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.sites = dict(sites or {})


class ModelFileError(ValueError):
    """A file does not hold a fitted model, is damaged, or was written by a newer version."""


class DataSetError(RuntimeError):
    """A data set cannot be found, fetched or read: the message describes what to do."""


class StorageError(OSError):
    """A file of a run cannot be written: the message names which, why, and that the old one is intact."""


class RunFolderError(ValueError):
    """A folder does not hold a run, or a file in it is damaged."""


class DivergenceError(ArithmeticError):
    """The iterate, a message or the objective is no longer a finite number of a reasonable size."""


class StoppedError(Exception):
    """The user wants to stop while a cohort waits for clients."""
