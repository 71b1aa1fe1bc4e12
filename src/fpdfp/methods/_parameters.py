"""Hyper-parameters that several methods have: their checks, and how automatic ones are chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fpdfp import _checks, steps
from fpdfp._warn import warn
from fpdfp.errors import StepTooLargeWarning

#: Local steps are 24 bits of the counter of the draws.
MAX_LOCAL_STEPS = 2**24
AVERAGING = ("weighted", "plain")
#: What methods for f alone can do with a penalty.
PENALTY = ("refuse", "subgradient", "ignore")


def check_hyper_parameters(method: Any, *, constant_step: bool = False) -> None:
    """Check the hyper-parameters that several methods have, and keep them as plain numbers.

    Plain, because a NumPy scalar would turn a run in float32 into one in float64.
    """
    checks: dict[str, Callable[[Any], Any]] = {
        "step": lambda value: steps.check(value, constant=constant_step),
        "batch_size": lambda value: _checks.integer("batch_size", value, at_least=1, at_most=2**62),
        "local_steps": lambda value: _checks.integer("local_steps", value, at_least=1, at_most=MAX_LOCAL_STEPS),
        "dual_steps": lambda value: _checks.integer("dual_steps", value, at_least=1),
        "epoch": lambda value: _checks.integer("epoch", value, at_least=1),
        "hessian_step": lambda value: _checks.share("hessian_step", value),
        "lam": lambda value: _checks.real("lam", value, positive=True),
        "sigma": lambda value: _checks.real("sigma", value, positive=True),
        "rho": lambda value: _checks.real("rho", value, at_least=0.0),
        "server_step": lambda value: _checks.real("server_step", value, positive=True),
        "server_prox": lambda value: _checks.flag("server_prox", value),
        "strong_convexity": lambda value: _checks.real("strong_convexity", value, at_least=0.0),
        "averaging": lambda value: _checks.choice("averaging", value, AVERAGING),
        "penalty": lambda value: _checks.choice("penalty", value, PENALTY),
    }
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if field.name in checks and (value is not None or field.default is not None):
            object.__setattr__(method, field.name, checks[field.name](value))


def is_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the clients' mean step can differ from a step for the mean: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.n_clients > 1


def gradients_are_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the mean of what clients send can differ from the gradient of f: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.clients_per_round < constants.n_clients


def local_schedule(
    step: steps.Step, batch_size: int | None, local_steps: int, constants: steps.Constants, server_step: float = 1.0
) -> steps.Schedule:
    """Return the schedule of a method whose clients take local steps on N w_i f_i."""
    # A server step above 1 makes a round that much longer.
    longer = max(1.0, server_step)
    constants = constants._replace(
        lipschitz_mean=longer * constants.lipschitz_mean,
        lipschitz_max=longer * constants.lipschitz_max,
        batch_smoothness=longer * constants.batch_smoothness,
    )
    noisy, smoothness = is_noisy(batch_size, constants), constants.lipschitz_max
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
    # Bounds of ‖B‖² and L may be a few per cent above the truth: a user's own value of the bound is no mistake.
    if value > 1.1 * largest:
        warn(
            f"{name}={value:g} exceeds {bound}: the iterates may diverge; the largest safe {name} is {largest:.6g}",
            StepTooLargeWarning,
        )
    return value
