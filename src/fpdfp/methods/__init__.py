"""Methods, one a file: four pure functions over plain state, which any engine can run."""

from fpdfp.methods.base import Method
from fpdfp.methods.fpdfp import FPDFP
from fpdfp.methods.fpdfp_identity import FPDFPIdentity
from fpdfp.methods.pdfp import PDFP

__all__ = ["FPDFP", "PDFP", "FPDFPIdentity", "Method"]
