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

#: The columns that say "yes" or "no", and the traits that they show.
ABILITIES = {
    "partial participation": "partial_participation",
    "unequal sampling": "unequal_sampling",
    "compression": "compression",
    "downlink": "downlink",
    "mini-batches": "mini_batches",
    "local steps": "local_steps",
}
HEADER = ("method", "minimises", "sends", "numbers up", *ABILITIES, "needs")

INTRODUCTION = """# Methods

This page lists the needs and abilities of each method. It is generated from the declarations of the methods
(`make tables`). `solve` checks the same declarations before the first round; an incompatible combination raises an
error that names an alternative. [Choosing](choosing.md) recommends a method. Update rules and parameters are in the
docstrings (`help(fpdfp.FedMiD)`).

In the table, d is the size of x and m the size of Bx. "sends" lists the fields of a client's reply;
`solve(compressor={"x": …})` sets a compressor for each. "numbers up" counts the numbers that a client sends in a
round, before compression. "unequal sampling" means that `solve(sampling=…)` may be other than `"uniform"`.
"compression" is about the clients' messages, "downlink" about the server's.
"""


def needs(traits: Traits) -> str:
    """Say what a method needs."""
    wanted = ["f smooth"] if traits.needs_smooth else []
    if traits.solves == "f":
        wanted.append("g = 0, or subgradients of g∘B by `penalty=`")
    if traits.solves == "f + g":
        wanted.append("B = I" + (", or an inner solve by `inner=`" if traits.with_inner_solve else ""))
    if traits.compression and traits.needs_unbiased:
        wanted.append("unbiased compressor")
    if traits.needs_hessians:
        wanted.append("losses with known Hessians, dense ones of up to 2,000 features")
    if traits.needs_one_client:
        wanted.append("one client")
    if traits.strong_convexity != "not needed":
        wanted.append("f strongly convex" + (" for its rate" if traits.strong_convexity == "for its rate" else ""))
    return "; ".join(wanted)


def row(method: type[Method]) -> tuple[str, ...]:
    """Return the row of a method, one text for each entry of the header."""
    traits = method.traits
    return (
        method.__name__,
        traits.solves,
        ", ".join(traits.sends),
        traits.uplink,
        *("yes" if able else "no" for able in (getattr(traits, name) for name in ABILITIES.values())),
        needs(traits),
    )


def markdown() -> str:
    """Return the page."""
    lines = [INTRODUCTION, "| " + " | ".join(HEADER) + " |", "| " + " | ".join(["---"] * len(HEADER)) + " |"]
    for method in ORDER:
        name, *rest = row(method)
        lines.append(f"| `{name}` | " + " | ".join(rest) + " |")
    lines += ["", "## What is proved", "", "| method | description | proved | reference |", "| --- " * 4 + "|"]
    for method in ORDER:
        traits = method.traits
        lines.append(f"| `{method.__name__}` | {traits.title} | {traits.proved} | {traits.reference} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
