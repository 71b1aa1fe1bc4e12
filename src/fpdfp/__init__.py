"""Federated composite optimisation: minimise f(x) + g(Bx) where the data behind f stays with its owners."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp import (
        cohorts,
        compress,
        ct,
        datasets,
        engines,
        errors,
        families,
        federation,
        inference,
        linops,
        loggers,
        losses,
        methods,
        models,
        penalties,
        precondition,
        report,
        rng,
        runs,
        scores,
        steps,
        survival,
        tuning,
    )
    from fpdfp.compress import QSGD
    from fpdfp.engines import History, Result, Run, RunOptions
    from fpdfp.engines.solve import solve
    from fpdfp.federation import Federation
    from fpdfp.folds import Folds
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
    from fpdfp.models import (
        L1,
        MCP,
        SCAD,
        CrossValidation,
        ElasticNet,
        FederatedCoxRegression,
        FederatedCoxRegressionCV,
        FederatedGLM,
        FederatedGLMCV,
        FederatedLinearRegression,
        FederatedLinearRegressionCV,
        FederatedLogisticRegression,
        FederatedLogisticRegressionCV,
        FederatedMultinomialRegression,
        FederatedMultinomialRegressionCV,
        FederatedOrdinalRegression,
        FederatedOrdinalRegressionCV,
        Fused,
        Graph,
        Group,
        Ridge,
        SparseGroup,
        TotalVariation,
        load_model,
        log_rank_test,
        masked_glm,
        private_model,
        survival_curves,
    )
    from fpdfp.pooled.solver import Minimum, minimize
    from fpdfp.precondition.cost import Network
    from fpdfp.problem import Certificate, Problem, Residual
    from fpdfp.selection import ManyResult, Path, path, solve_many

__version__ = "0.1.0"

__all__ = [
    "FPDFP",
    "L1",
    "MCP",
    "PDFP",
    "QSGD",
    "SCAD",
    "SPDFP",
    "SVRGPDFP",
    "Certificate",
    "ChambollePock",
    "CondatVu",
    "CrossValidation",
    "ElasticNet",
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
    "FederatedCoxRegressionCV",
    "FederatedGLM",
    "FederatedGLMCV",
    "FederatedLinearRegression",
    "FederatedLinearRegressionCV",
    "FederatedLogisticRegression",
    "FederatedLogisticRegressionCV",
    "FederatedMultinomialRegression",
    "FederatedMultinomialRegressionCV",
    "FederatedOrdinalRegression",
    "FederatedOrdinalRegressionCV",
    "Federation",
    "Folds",
    "Fused",
    "Graph",
    "Group",
    "History",
    "InnerSolve",
    "ManyResult",
    "Minimum",
    "Network",
    "NewtonPDFP",
    "Path",
    "Problem",
    "ProximalNewton",
    "RandProx",
    "Residual",
    "Result",
    "Ridge",
    "Run",
    "RunOptions",
    "Scaffold",
    "ShiftedPDFP",
    "SparseGroup",
    "StatelessPDFP",
    "TotalVariation",
    "cohorts",
    "compress",
    "ct",
    "datasets",
    "engines",
    "errors",
    "families",
    "federation",
    "inference",
    "linops",
    "load_model",
    "log_rank_test",
    "loggers",
    "losses",
    "masked_glm",
    "methods",
    "minimize",
    "models",
    "path",
    "penalties",
    "precondition",
    "private_model",
    "report",
    "rng",
    "runs",
    "scores",
    "solve",
    "solve_many",
    "steps",
    "survival",
    "survival_curves",
    "tuning",
]

__getattr__ = attach(
    __name__,
    {
        "": "cohorts compress ct datasets engines errors families federation inference linops loggers losses "
        "methods models penalties precondition problem report rng runs scores steps survival tuning",
        "compress": "QSGD",
        "engines": "History Result Run RunOptions",
        "engines.solve": "solve",
        "models": "CrossValidation ElasticNet Fused Graph Group L1 MCP Ridge SCAD SparseGroup TotalVariation "
        "FederatedCoxRegressionCV FederatedGLMCV FederatedLinearRegressionCV "
        "FederatedLogisticRegressionCV FederatedMultinomialRegressionCV FederatedOrdinalRegressionCV "
        "FederatedCoxRegression FederatedGLM "
        "FederatedLinearRegression "
        "FederatedLogisticRegression FederatedMultinomialRegression FederatedOrdinalRegression "
        "load_model log_rank_test masked_glm private_model "
        "survival_curves",
        "federation": "Federation",
        "folds": "Folds",
        "methods": "ChambollePock CondatVu ErrorFeedbackPDFP FPDFP FPDFPIdentity FastFedDualAvg FedADMM FedAvg FedDR "
        "FedDecoupledProx FedDualAvg FedMiD FedPAQ FedProx FedSGD InnerSolve NewtonPDFP PDFP ProximalNewton RandProx "
        "SPDFP SVRGPDFP Scaffold ShiftedPDFP StatelessPDFP",
        "problem": "Certificate Problem Residual",
        "pooled.solver": "Minimum minimize",
        "precondition.cost": "Network",
        "selection": "ManyResult Path path solve_many",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
