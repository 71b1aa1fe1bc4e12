"""Links: the mean as a function of the linear predictor, with two derivatives, compiled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fpdfp._kernels.jit import serial


class Link(NamedTuple):
    """μ(z), μ'(z) and μ''(z), each not a number outside the domain of the link."""

    mean: Any
    first: Any
    second: Any


@serial
def identity_mean(z: Any) -> Any:
    return z


@serial
def identity_first(z: Any) -> Any:
    return 1.0


@serial
def identity_second(z: Any) -> Any:
    return 0.0


@serial
def log_mean(z: Any) -> Any:
    return math.exp(z)


@serial
def inverse_mean(z: Any) -> Any:
    return 1.0 / z if z > 0.0 else math.nan


@serial
def inverse_first(z: Any) -> Any:
    return -1.0 / (z * z)


@serial
def inverse_second(z: Any) -> Any:
    return 2.0 / (z * z * z)


@serial
def inverse_squared_mean(z: Any) -> Any:
    return z**-0.5 if z > 0.0 else math.nan


@serial
def inverse_squared_first(z: Any) -> Any:
    return -0.5 * z**-1.5


@serial
def inverse_squared_second(z: Any) -> Any:
    return 0.75 * z**-2.5


@serial
def sqrt_mean(z: Any) -> Any:
    return z * z if z > 0.0 else math.nan


@serial
def sqrt_first(z: Any) -> Any:
    return 2.0 * z


@serial
def sqrt_second(z: Any) -> Any:
    return 2.0


@serial
def excess_mean(z: Any) -> Any:
    return 1.0 + math.exp(z)


LINKS = {
    "identity": Link(identity_mean, identity_first, identity_second),
    "log": Link(log_mean, log_mean, log_mean),
    "log(mu-1)": Link(excess_mean, log_mean, log_mean),
    "inverse": Link(inverse_mean, inverse_first, inverse_second),
    "1/mu^2": Link(inverse_squared_mean, inverse_squared_first, inverse_squared_second),
    "sqrt": Link(sqrt_mean, sqrt_first, sqrt_second),
}
