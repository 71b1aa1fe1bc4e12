"""What clients keep between rounds: points, or sums of what they sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.methods.base import Remembering
from fpdfp.problem import Model


def start_sums(model: Model, n_clients: int) -> Array:
    """Return sums of nothing yet, one of the shape of x for each client, in float64: rounding would add up."""
    zeros: Array = model.xp.zeros((n_clients, *model.shape), dtype=np.float64)
    return zeros


def start_points(model: Model, n_clients: int) -> Array:
    """Return a zero of the shape of x for each client; fresh, since memory that is not written to takes no room."""
    zeros: Array = model.xp.zeros((n_clients, *model.shape), dtype=model.dtype)
    return zeros


class Summing(Remembering):
    """Clients send changes of what they keep, under the same name; they and the server add up what was decoded."""

    def remember(self, shared: dict[str, Array], sent: Any, k: int) -> dict[str, Array]:
        return {name: array + getattr(sent, name).astype(np.float64, copy=False) for name, array in shared.items()}
