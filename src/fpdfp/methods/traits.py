"""What a method declares of itself: what it needs, what it can do, what is proved."""

from __future__ import annotations

import dataclasses
from typing import Literal

#: The objectives: f alone, f + g with the prox of g, or f + g∘B for any linear map B.
Solves = Literal["f", "f + g", "f + g∘B"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traits:
    """A method's declaration, which ``solve`` checks before the first round and the table of methods shows.

    Attributes
    ----------
    title
        What it is, in a few words.
    solves
        The largest class of objectives that it minimises: ``"f"``, ``"f + g"`` (B must be the identity) or
        ``"f + g∘B"``.
    sends
        The fields of a client's reply; compressors can be given for each by these names.
    uplink
        How many numbers a client sends in a round, in terms of d, the size of x, and m, the size of Bx.
    proved
        What its convergence theory says, in a sentence.
    reference
        Where it comes from.
    partial_participation
        Whether a round may go on with some of the clients.
    unequal_sampling
        Whether clients may be drawn with unequal probabilities, and replies weighted accordingly.
    compression
        Whether replies may be compressed.
    compressed_form
        The name of the method that is this one with compressed messages, where ``compression`` is False.
    downlink
        Whether the server's messages may be compressed.
    mini_batches
        Whether clients may use a random part of their samples.
    local_steps
        Whether clients may take several steps between two rounds.
    constant_step
        Whether steps must not change from round to round.
    needs_unbiased
        Whether the theory holds only for compressors whose mean is right: others are refused.
    needs_smooth
        Whether ∇f must be Lipschitz continuous.
    needs_hessians
        Whether clients must know the Hessians of their losses.
    needs_one_client
        Whether all data must be in one place.
    strong_convexity
        What strong convexity of f is for: ``"not needed"``, ``"for its rate"``, ``"needed"``.
    restorable
        Whether a client that lost what it remembered can go on with what the server knows of it: needed by engines
        whose clients are other processes.
    with_inner_solve
        What it minimises with an inner solve of the prox of g∘B, where that is more than ``solves``.
    """

    title: str
    solves: Solves
    sends: tuple[str, ...]
    uplink: Literal["d", "2d", "d + m", "d(d + 3)/2", "2 + d(d + 3)/2"] = "d"
    proved: str
    reference: str
    partial_participation: bool = True
    unequal_sampling: bool = False
    compression: bool = True
    compressed_form: str | None = None
    downlink: bool = False
    mini_batches: bool = True
    local_steps: bool = False
    constant_step: bool = False
    needs_unbiased: bool = True
    needs_smooth: bool = True
    needs_hessians: bool = False
    needs_one_client: bool = False
    strong_convexity: Literal["not needed", "for its rate", "needed"] = "for its rate"
    restorable: bool = True
    with_inner_solve: Solves | None = None
