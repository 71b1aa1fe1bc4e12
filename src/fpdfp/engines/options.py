"""The options of a run, checked once: ``solve``, estimators, experiment files and federations build the same object."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fpdfp import _checks, rng
from fpdfp._typing import Array
from fpdfp.compress import Compressor
from fpdfp.engines.checkpoint import check_path
from fpdfp.engines.result import RESERVED, History
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.precondition.cost import Prefer, check_preference
from fpdfp.privacy.clients import ClientPrivacy
from fpdfp.sampling import SMALLEST

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
