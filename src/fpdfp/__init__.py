"""Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners."""

from typing import TYPE_CHECKING, Any

from fpdfp import (
    compress,
    ct,
    datasets,
    engines,
    errors,
    linops,
    loggers,
    losses,
    methods,
    penalties,
    precondition,
    report,
    rng,
    runs,
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
    NewtonPDFP,
    RandProx,
    ShiftedPDFP,
)
from fpdfp.problem import Certificate, Problem, Residual
from fpdfp.reference import Reference, reference_solution

if TYPE_CHECKING:
    from fpdfp import estimators
    from fpdfp.estimators import FederatedLinearRegression, FederatedLogisticRegression

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
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "History",
    "InnerSolve",
    "NewtonPDFP",
    "Problem",
    "RandProx",
    "Reference",
    "Residual",
    "Result",
    "Run",
    "ShiftedPDFP",
    "compress",
    "ct",
    "datasets",
    "engines",
    "errors",
    "estimators",
    "linops",
    "loggers",
    "losses",
    "methods",
    "penalties",
    "precondition",
    "reference_solution",
    "report",
    "rng",
    "runs",
    "solve",
    "steps",
]


def __getattr__(name: str) -> Any:
    # The estimators need scikit-learn, which takes a second to load: they come when they are asked for.
    if name == "estimators" or name.startswith("Federated"):
        import importlib

        module = importlib.import_module("fpdfp.estimators")
        if name == "estimators":
            return module
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
