"""The table of methods, made from what each declares of itself: ``python -m fpdfp.methods.table``."""

from __future__ import annotations

import sys

from fpdfp import methods
from fpdfp.methods.base import Method, Traits

#: The order of the page: the paper's own, those for f alone, those for f + g, the centralised ones.
ORDER: tuple[type[Method], ...] = (
    methods.FPDFP,
    methods.FPDFPIdentity,
    methods.ShiftedPDFP,
    methods.ErrorFeedbackPDFP,
    methods.StatelessPDFP,
    methods.RandProx,
    methods.NewtonPDFP,
    methods.ProximalNewton,
    methods.FedSGD,
    methods.FedAvg,
    methods.FedPAQ,
    methods.FedProx,
    methods.Scaffold,
    methods.FedADMM,
    methods.FedMiD,
    methods.FedDualAvg,
    methods.FastFedDualAvg,
    methods.FedDR,
    methods.FedDecoupledProx,
    methods.PDFP,
    methods.SPDFP,
    methods.SVRGPDFP,
    methods.CondatVu,
    methods.ChambollePock,
)

#: What the column "supports" lists, and the traits that it shows.
ABILITIES = {
    "partial": "partial_participation",
    "sampling": "unequal_sampling",
    "compression": "compression",
    "downlink": "downlink",
    "batches": "mini_batches",
    "local": "local_steps",
}
HEADER = ("method", "minimises", "sends", "numbers up", "supports", "needs")

INTRODUCTION = """# Methods

[Choosing](choosing.md) recommends a method. Update rules and parameters are in the docstrings (`help(fpdfp.FedMiD)`).
`solve` checks the same declarations before the first round; an error names an alternative.

In the table, d is the size of x and m the size of Bx. "sends" lists the fields of a client's reply;
`solve(compressor={"x": …})` sets a compressor for each. "numbers up" is how many numbers a client sends in a round,
before compression. All but `ProximalNewton` need a smooth f. Methods support

* *partial*: some of the clients in a round;
* *sampling*: `solve(sampling=…)` other than `"uniform"`;
* *compression* of the clients' messages, unbiased unless *any* compressor will do;
* *downlink*: compression of the server's messages;
* *batches*: mini-batches;
* *local*: several local steps in a round.
"""


def needs(traits: Traits) -> str:
    """Say what a method needs besides a smooth f."""
    wanted = []
    if traits.solves == "f":
        wanted.append("g = 0, or subgradients by `penalty=`")
    if traits.solves == "f + g":
        wanted.append("B = I" + (", or `inner=`" if traits.with_inner_solve else ""))
    if traits.needs_hessians:
        wanted.append("Hessians, dense ones of up to 2,000 features")
    if traits.needs_one_client:
        wanted.append("one client")
    if traits.strong_convexity == "needed":
        wanted.append("f strongly convex")
    return "; ".join(wanted)


def supports(traits: Traits) -> str:
    """List what a method supports."""
    names = [name for name, trait in ABILITIES.items() if getattr(traits, trait)]
    return ", ".join("any compression" if one == "compression" and not traits.needs_unbiased else one for one in names)


def row(method: type[Method]) -> tuple[str, ...]:
    """Return the row of a method, one text for each entry of the header."""
    traits = method.traits
    return (
        method.__name__,
        traits.solves,
        ", ".join(traits.sends),
        traits.uplink,
        supports(traits),
        needs(traits),
    )


def markdown() -> str:
    """Return the page."""
    lines = [INTRODUCTION, "| " + " | ".join(HEADER) + " |", "| " + " | ".join(["---"] * len(HEADER)) + " |"]
    for method in ORDER:
        name, *rest = row(method)
        lines.append(f"| `{name}` | " + " | ".join(rest) + " |")
    lines += ["", "## What is proved", "", "| method | proved | reference |", "| --- " * 3 + "|"]
    for method in ORDER:
        traits = method.traits
        lines.append(f"| `{method.__name__}` | {traits.proved} | {traits.reference} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
