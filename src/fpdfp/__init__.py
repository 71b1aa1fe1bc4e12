"""Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp import (
        compress,
        ct,
        datasets,
        engines,
        errors,
        estimators,
        families,
        federation,
        inference,
        linops,
        loggers,
        losses,
        methods,
        penalties,
        precondition,
        report,
        rng,
        runs,
        scores,
        steps,
        survival,
    )
    from fpdfp.compress import QSGD
    from fpdfp.engines import History, Result, Run, RunOptions
    from fpdfp.engines.solve import solve
    from fpdfp.estimators import (
        FederatedCoxRegression,
        FederatedGammaRegressor,
        FederatedGLM,
        FederatedLinearRegression,
        FederatedLogisticRegression,
        FederatedMultinomialRegression,
        FederatedOrdinalRegression,
        FederatedPoissonRegressor,
        FederatedQuantileRegressor,
        FederatedTweedieRegressor,
        load_model,
        log_rank_test,
        survival_curves,
    )
    from fpdfp.federation import Federation
    from fpdfp.methods import (
        FPDFP,
        PDFP,
        SPDFP,
        SVRGPDFP,
        ChambollePock,
        CondatVu,
        ErrorFeedbackPDFP,
        FastFedDualAvg,
        FedADMM,
        FedAvg,
        FedDecoupledProx,
        FedDR,
        FedDualAvg,
        FedMiD,
        FedPAQ,
        FedProx,
        FedSGD,
        FPDFPIdentity,
        InnerSolve,
        NewtonPDFP,
        ProximalNewton,
        RandProx,
        Scaffold,
        ShiftedPDFP,
        StatelessPDFP,
    )
    from fpdfp.pooled.solver import Minimum, minimize
    from fpdfp.precondition.cost import Network
    from fpdfp.problem import Certificate, Problem, Residual

__version__ = "0.1.0"

__all__ = [
    "FPDFP",
    "PDFP",
    "QSGD",
    "SPDFP",
    "SVRGPDFP",
    "Certificate",
    "ChambollePock",
    "CondatVu",
    "ErrorFeedbackPDFP",
    "FPDFPIdentity",
    "FastFedDualAvg",
    "FedADMM",
    "FedAvg",
    "FedDR",
    "FedDecoupledProx",
    "FedDualAvg",
    "FedMiD",
    "FedPAQ",
    "FedProx",
    "FedSGD",
    "FederatedCoxRegression",
    "FederatedGLM",
    "FederatedGammaRegressor",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedMultinomialRegression",
    "FederatedOrdinalRegression",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedTweedieRegressor",
    "Federation",
    "History",
    "InnerSolve",
    "Minimum",
    "Network",
    "NewtonPDFP",
    "Problem",
    "ProximalNewton",
    "RandProx",
    "Residual",
    "Result",
    "Run",
    "RunOptions",
    "Scaffold",
    "ShiftedPDFP",
    "StatelessPDFP",
    "compress",
    "ct",
    "datasets",
    "engines",
    "errors",
    "estimators",
    "families",
    "federation",
    "inference",
    "linops",
    "load_model",
    "log_rank_test",
    "loggers",
    "losses",
    "methods",
    "minimize",
    "penalties",
    "precondition",
    "report",
    "rng",
    "runs",
    "scores",
    "solve",
    "steps",
    "survival",
    "survival_curves",
]

__getattr__ = attach(
    __name__,
    {
        "": "compress ct datasets engines errors estimators families federation inference linops loggers losses "
        "methods penalties precondition problem report rng runs scores steps survival",
        "compress": "QSGD",
        "engines": "History Result Run RunOptions solve",
        "estimators": "FederatedCoxRegression FederatedGLM FederatedGammaRegressor FederatedLinearRegression "
        "FederatedLogisticRegression FederatedMultinomialRegression FederatedOrdinalRegression "
        "FederatedPoissonRegressor FederatedQuantileRegressor FederatedTweedieRegressor load_model log_rank_test "
        "survival_curves",
        "federation": "Federation",
        "methods": "ChambollePock CondatVu ErrorFeedbackPDFP FPDFP FPDFPIdentity FastFedDualAvg FedADMM FedAvg FedDR "
        "FedDecoupledProx FedDualAvg FedMiD FedPAQ FedProx FedSGD InnerSolve NewtonPDFP PDFP ProximalNewton RandProx "
        "SPDFP SVRGPDFP Scaffold ShiftedPDFP StatelessPDFP",
        "problem": "Certificate Problem Residual",
        "pooled.solver": "Minimum minimize",
        "precondition.cost": "Network",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
