"""What a run returns."""

from __future__ import annotations

import dataclasses

from fpdfp._typing import Array
from fpdfp.engines.history import History
from fpdfp.engines.progress import format_bits
from fpdfp.methods.base import Method
from fpdfp.problem import Certificate


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a run; ``print(result)`` says how far it is from optimal.

    Attributes
    ----------
    x, v
        The solution and its dual; CuPy arrays where the losses live on a GPU.
    objective
        F(x).
    history
        The table of the run.
    status
        ``"finished"`` (all rounds done), ``"converged"`` (``tol`` reached), ``"stopped"`` (by a callback),
        ``"interrupted"`` (Ctrl-C) or ``"diverged"``.
    message
        The status in a sentence.
    rounds
        The rounds that led to x.
    bits_up, bits_down
        Bits that clients and server sent in all rounds.
    bits_once_up, bits_once_down
        Bits that they sent once, before the first round.
    method
        The method that ran, with everything that was chosen for it.
    messages
        What messages went through, up and down.
    certificate
        Duality gap where one is known, residual of Lemma 1, violation of constraints.
    """

    x: Array
    v: Array
    objective: float
    history: History
    status: str
    message: str
    rounds: int
    bits_up: int
    bits_down: int
    certificate: Certificate
    bits_once_up: int = 0
    bits_once_down: int = 0
    method: Method | None = None
    messages: tuple[str, ...] = ()

    def __str__(self) -> str:
        certificate = self.certificate
        lines = [
            f"{self.status} after {self.rounds} rounds: {self.message}",
            *([] if self.method is None else [f"method        {self.method.summary}"]),
            *([] if self.method is None or not self.method.reason else [f"chosen        {self.method.reason}"]),
            *(f"{name:14}{one}" for name, one in zip(("messages up", "and down"), self.messages, strict=False)),
            f"objective     {self.objective:.10g}",
            f"bits          {format_bits(self.bits_up)} up, {format_bits(self.bits_down)} down",
        ]
        if self.bits_once_up or self.bits_once_down:
            lines.append(f"once          {format_bits(self.bits_once_up)} up, {format_bits(self.bits_once_down)} down")
        if certificate.relative_gap is None:
            lines.append("duality gap   not known")
        else:
            loose = "; a bound this loose says little" if certificate.relative_gap > 1 else ""
            lines.append(f"duality gap   {certificate.gap:.3g} (relative {certificate.relative_gap:.3g}{loose})")
        residual = certificate.residual
        lines.append(f"residual      primal {residual.primal:.3g}, dual {residual.dual:.3g}")
        if certificate.violation > 0:
            lines.append(f"violation     {certificate.violation:.3g}")
        return "\n".join(lines)
