"""Methods, one a file: values that a user chooses, which are prepared to algorithms that any engine can run."""

from fpdfp.methods.base import Method, Traits, Update
from fpdfp.methods.chambolle_pock import ChambollePock
from fpdfp.methods.condat_vu import CondatVu
from fpdfp.methods.decoupled_prox import FedDecoupledProx
from fpdfp.methods.error_feedback import ErrorFeedbackPDFP
from fpdfp.methods.fedadmm import FedADMM
from fpdfp.methods.fedavg import FedAvg, FedPAQ, FedSGD
from fpdfp.methods.feddr import FedDR
from fpdfp.methods.feddualavg import FastFedDualAvg, FedDualAvg
from fpdfp.methods.fedmid import FedMiD
from fpdfp.methods.fedprox import FedProx
from fpdfp.methods.fpdfp import FPDFP, FPDFPIdentity
from fpdfp.methods.newton import NewtonPDFP
from fpdfp.methods.pdfp import PDFP, SPDFP
from fpdfp.methods.proximal_newton import ProximalNewton
from fpdfp.methods.randprox import RandProx
from fpdfp.methods.scaffold import Scaffold
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.methods.stateless import StatelessPDFP
from fpdfp.methods.svrg_pdfp import SVRGPDFP
from fpdfp.quadratic.statement import InnerSolve, Work

__all__ = [
    "FPDFP",
    "PDFP",
    "SPDFP",
    "SVRGPDFP",
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
    "InnerSolve",
    "Method",
    "NewtonPDFP",
    "ProximalNewton",
    "RandProx",
    "Scaffold",
    "ShiftedPDFP",
    "StatelessPDFP",
    "Traits",
    "Update",
    "Work",
]
