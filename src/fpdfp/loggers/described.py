"""A run and its end as names with values, for loggers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fpdfp.engines import Result, Run
from fpdfp.engines.checkpoint import describe


def parameters(run: Run, rounds: int) -> dict[str, str | int | float]:
    """Return what is run: the problem, the method with every hyper-parameter, messages, participation and seed."""
    problem, algorithm = run.problem, run.algorithm
    up, down = run.compression
    found: dict[str, str | int | float] = {
        "losses": repr(problem.losses),
        "penalty": repr(problem.penalty),
        "linop": repr(problem.linop),
        "clients": problem.n_clients,
        "clients_per_round": run.clients_per_round,
        "messages_up": up,
        "messages_down": down,
        "sampling": run.options.sampling if isinstance(run.options.sampling, str) else "weights",
        "drop_out": run.drop_out,
        "seed": run.seed,
        "rounds": rounds,
        "method": type(run.method).__name__,
    }
    # What was chosen takes the place of "auto".
    fields = {**_show(run.method), **_show(algorithm)}
    return found | {f"method.{name}": _plain(value) for name, value in fields.items() if name != "method"}


def _show(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that its text shows."""
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.repr}


def _plain(value: Any) -> str | int | float:
    return value if type(value) in (int, float, str) else describe(value)


def outcome(result: Result) -> dict[str, float]:
    """Return the numbers of a run's end: objective, certificate and bits; those that are not known are left out."""
    certificate = result.certificate
    found: dict[str, float | None] = {
        "objective": result.objective,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "residual_primal": certificate.residual.primal,
        "residual_dual": certificate.residual.dual,
        "violation": certificate.violation,
        "rounds": result.rounds,
        **result.traffic.totals,
    }
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
