"""Preconditioners from what clients send once."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.fourier import Fourier
from fpdfp.precondition.scaling import Scaling
from fpdfp.precondition.whitening import Whitening
from fpdfp.problem import LocalLosses, Model

Kind = Literal["moments", "diagonal", "fourier"]
KINDS: tuple[Kind, ...] = ("moments", "diagonal", "fourier")
#: What is sent is rounded: bounds from it get so much room.
ROOM = 1e-3


class Once(NamedTuple):
    """What a client sends: the bound of its Hessian, lower triangle or diagonal, or its response to an impulse."""

    numbers: Array


def gather(kind: Kind, model: Model, local: LocalLosses) -> Once:
    """Return what each of some clients sends for a preconditioner of this kind."""
    if kind == "fourier":
        # For quadratic losses the difference is the Hessian's column, for others an estimate of it.
        impulse = np.zeros(model.shape, dtype=model.dtype)
        impulse[tuple(n // 2 for n in model.shape)] = 1.0
        responses = local.gradients(impulse) - local.gradients(np.zeros_like(impulse))
        return Once(responses.astype(np.float32))
    bounds = local.curvature_diagonals() if kind == "diagonal" else local.curvatures()
    if bounds is None:
        raise ValueError(
            f"preconditioner={kind!r} needs losses with known bounds of their Hessians (linear models; 'moments' for "
            "at most 2,000 features); give one of fpdfp.precondition, or None"
        )
    if kind == "moments":
        rows, columns = np.tril_indices(bounds.shape[1])
        bounds = bounds[:, rows, columns]
    return Once(bounds.astype(np.float32))


def build(kind: Kind, model: Model, numbers: Array) -> Preconditioner:
    """Return the preconditioner that the mean over all clients of what they sent stands for."""
    if kind == "fourier":
        return Fourier(numbers.astype(np.float32))
    if kind == "diagonal":
        return Scaling(numbers)
    d = int(np.prod(model.shape))
    hessian = np.zeros((d, d))
    hessian[np.tril_indices(d)] = numbers
    hessian += np.tril(hessian, -1).T
    return Whitening(hessian, smoothness=1.0 + ROOM)
