"""What several methods ask of their hyper-parameters."""

from __future__ import annotations

from fpdfp import _checks, steps
from fpdfp._typing import Array


def mean(replies: Array) -> Array:
    """Return the plain mean over the client axis, summed in the order of clients."""
    total: Array = replies.sum(axis=0)
    return total / len(replies)


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a batch size that is neither None nor a positive integer."""
    if batch_size is not None:
        _checks.integer("batch_size", batch_size, at_least=1, at_most=2**62)


def is_noisy(batch_size: int | None, constants: steps.Constants) -> bool:
    """Whether the clients' mean step can differ from a PDFP step: then a constant γ stalls."""
    return batch_size is not None or constants.omega > 0 or constants.n_clients > 1
