"""What several methods ask of their hyper-parameters."""

from __future__ import annotations

import warnings
from typing import Any

from fpdfp import _checks, steps
from fpdfp._typing import Array
from fpdfp.errors import StepTooLargeWarning

#: Local steps are 24 bits of the counter of the draws.
MAX_LOCAL_STEPS = 2**24


def mean(replies: Array) -> Array:
    """Return the plain mean over the client axis, summed in the order of clients."""
    total: Array = replies.sum(axis=0)
    return total / len(replies)


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a batch size that is neither None nor a positive integer."""
    if batch_size is not None:
        _checks.integer("batch_size", batch_size, at_least=1, at_most=2**62)


def check_local_steps(local_steps: int) -> None:
    """Refuse a number of local steps that is no positive integer."""
    _checks.integer("local_steps", local_steps, at_least=1, at_most=MAX_LOCAL_STEPS)


def is_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the clients' mean step can differ from a step for the mean: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.n_clients > 1


def gradients_are_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the mean of what clients send can differ from the gradient of f: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.clients_per_round < constants.n_clients


def local_schedule(
    step: Any, batch_size: int | None, local_steps: int, constants: steps.Constants, *, smoothness: float | None = None
) -> steps.Schedule:
    """Return the schedule of a method whose clients take local steps."""
    smoothness = constants.lipschitz_max if smoothness is None else smoothness
    noisy = is_noisy(batch_size, constants)
    return steps.resolve(step, constants, noisy=noisy, local_steps=local_steps, local_smoothness=smoothness)


def largest_local_step(constants: steps.Constants, local_steps: int, *, smoothness: float | None = None) -> float:
    """Return the largest constant step that is safe for clients that take local steps."""
    if local_steps == 1:
        return constants.largest_safe_step
    smoothness = constants.lipschitz_max if smoothness is None else smoothness
    return 2.0 / smoothness if smoothness > 0 else float("inf")


def choose_within(name: str, value: float | None, largest: float, bound: str) -> float:
    """Return a hyper-parameter, by default the largest that the theory allows; warn of a larger one."""
    if value is None:
        return largest
    chosen = _checks.real(name, value, positive=True)
    # Bounds of ‖B‖² and L may be a few per cent above the truth: a user's own value of the bound is no mistake.
    if chosen > 1.1 * largest:
        warnings.warn(
            f"{name}={chosen:g} exceeds {bound}: the iterates may diverge; the largest safe {name} is {largest:.6g}",
            StepTooLargeWarning,
            stacklevel=2,
        )
    return chosen
