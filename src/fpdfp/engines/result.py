"""What a run returns."""

from __future__ import annotations

import dataclasses

from fpdfp._typing import Array
from fpdfp.engines.features import Left
from fpdfp.engines.history import History
from fpdfp.engines.traffic import Traffic
from fpdfp.methods.base import Algorithm, Method
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
        ``"converged"``: F(x) − F* is at most ``tol`` times ``certificate.scale``, by a duality gap. ``"stationary"``:
        the residual is at most ``tol``, and no bound of F(x) − F* is known. ``"rounding"``: the objective no longer
        changes, and its gap is above ``tol``. ``"finished"``: all rounds done. ``"stopped"`` by a callback,
        ``"interrupted"`` by Ctrl-C, or ``"diverged"``.
    message
        The status in a sentence.
    rounds
        The rounds that led to x.
    traffic
        All bits that clients and server sent, by kind of message (``print(result.traffic)``; the kinds are in
        :mod:`fpdfp.engines.traffic`).
    total_up, total_down
        Those of all kinds together.
    bits_up, bits_down
        Those of the rounds alone.
    bits_once_up, bits_once_down
        Those of what was sent once for a preconditioner.
    method, algorithm
        The method, and what it was prepared to: with the step, the preconditioner and all else that was chosen.
    compression
        The compressors of messages up and down, in words.
    certificate
        Duality gap where one is known, residual of Lemma 1, violation of constraints.
    left
        The features that the run has ended with, None for all; x is zero in all others. Where these are certainly zero
        (``left.is_certain``), the certificate is that of the problem in these features, which holds for the whole
        problem, and v is zero in the others as well; elsewhere it is that of the whole problem.
    """

    x: Array
    v: Array
    objective: float
    history: History
    status: str
    message: str
    rounds: int
    traffic: Traffic
    certificate: Certificate
    method: Method | None = None
    algorithm: Algorithm | None = None
    compression: tuple[str, ...] = ()
    left: Left | None = None

    @property
    def total_up(self) -> int:
        """All bits that clients sent."""
        return self.traffic.up

    @property
    def total_down(self) -> int:
        """All bits that the server sent."""
        return self.traffic.down

    @property
    def bits_up(self) -> int:
        """Bits that clients sent in the rounds."""
        return self.traffic["rounds"].up

    @property
    def bits_down(self) -> int:
        """Bits that the server sent in the rounds."""
        return self.traffic["rounds"].down

    @property
    def bits_once_up(self) -> int:
        """Bits that clients sent once, for a preconditioner."""
        return self.traffic["preconditioner"].up

    @property
    def bits_once_down(self) -> int:
        """Bits that the server sent once: the preconditioner."""
        return self.traffic["preconditioner"].down

    def _describe_method(self) -> list[str]:
        if self.algorithm is None:
            return []
        reason = self.algorithm.reason
        return [f"method        {self.algorithm.summary}", *([f"chosen        {reason}"] if reason else [])]

    def __str__(self) -> str:
        certificate = self.certificate
        lines = [
            f"{self.status} after {self.rounds} rounds: {self.message}",
            *self._describe_method(),
            *(f"{name:14}{one}" for name, one in zip(("messages up", "and down"), self.compression, strict=False)),
            *([] if self.left is None else [f"features      {self.left}"]),
            f"objective     {self.objective:.10g}",
            str(self.traffic),
        ]
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
