"""Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners."""

from fpdfp import (
    compress,
    datasets,
    engines,
    errors,
    linops,
    losses,
    methods,
    penalties,
    precondition,
    rng,
    steps,
)
from fpdfp.compress import QSGD
from fpdfp.engines import History, Result, Run, solve
from fpdfp.methods import (
    FPDFP,
    PDFP,
    SPDFP,
    ChambollePock,
    CondatVu,
    ErrorFeedbackPDFP,
    FastFedDualAvg,
    FedAvg,
    FedDualAvg,
    FedMiD,
    FedPAQ,
    FedProx,
    FedSGD,
    FPDFPIdentity,
    InnerSolve,
    ShiftedPDFP,
)
from fpdfp.problem import Certificate, Problem, Residual
from fpdfp.reference import Reference, reference_solution

__version__ = "0.1.0"

__all__ = [
    "FPDFP",
    "PDFP",
    "QSGD",
    "SPDFP",
    "Certificate",
    "ChambollePock",
    "CondatVu",
    "ErrorFeedbackPDFP",
    "FPDFPIdentity",
    "FastFedDualAvg",
    "FedAvg",
    "FedDualAvg",
    "FedMiD",
    "FedPAQ",
    "FedProx",
    "FedSGD",
    "History",
    "InnerSolve",
    "Problem",
    "Reference",
    "Residual",
    "Result",
    "Run",
    "ShiftedPDFP",
    "compress",
    "datasets",
    "engines",
    "errors",
    "linops",
    "losses",
    "methods",
    "penalties",
    "precondition",
    "reference_solution",
    "rng",
    "solve",
    "steps",
]
