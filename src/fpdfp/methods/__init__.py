"""Methods, one a file: values that a user chooses, which are prepared to algorithms that any engine can run."""

from fpdfp.methods.base import Method, Update
from fpdfp.methods.chambolle_pock import ChambollePock
from fpdfp.methods.condat_vu import CondatVu
from fpdfp.methods.decoupled_prox import FedDecoupledProx
from fpdfp.methods.error_feedback import ErrorFeedbackPDFP
from fpdfp.methods.fast_feddualavg import FastFedDualAvg
from fpdfp.methods.fedadmm import FedADMM
from fpdfp.methods.fedavg import FedAvg
from fpdfp.methods.feddr import FedDR
from fpdfp.methods.feddualavg import FedDualAvg
from fpdfp.methods.fedmid import FedMiD
from fpdfp.methods.fedpaq import FedPAQ
from fpdfp.methods.fedprox import FedProx
from fpdfp.methods.fedsgd import FedSGD
from fpdfp.methods.fpdfp import FPDFP
from fpdfp.methods.fpdfp_identity import FPDFPIdentity
from fpdfp.methods.newton import NewtonPDFP
from fpdfp.methods.pdfp import PDFP
from fpdfp.methods.proximal_newton import ProximalNewton
from fpdfp.methods.randprox import RandProx
from fpdfp.methods.scaffold import Scaffold
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.methods.spdfp import SPDFP
from fpdfp.methods.stateless import StatelessPDFP
from fpdfp.methods.svrg_pdfp import SVRGPDFP
from fpdfp.methods.traits import Traits
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
