"""Cone-beam CT: geometry, phantoms, projectors for CPU and GPU, and reconstruction.

Volumes are arrays ``(nx, ny, nz)``, projections ``(views, nu, nv)``; both may be on the CPU (NumPy) or on a GPU (CuPy).
"""

from fpdfp.ct import phantoms
from fpdfp.ct.ellipsoids import Ellipsoids
from fpdfp.ct.fdk import fdk
from fpdfp.ct.files import Volume, load_volume, save_volume
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.quality import psnr
from fpdfp.ct.reconstruct import Reconstruction, reconstruct
from fpdfp.ct.scans import from_rows, line_integrals

__all__ = [
    "ConeBeam",
    "Ellipsoids",
    "ProjectionLosses",
    "Reconstruction",
    "Volume",
    "XRayTransform",
    "fdk",
    "from_rows",
    "line_integrals",
    "load_volume",
    "phantoms",
    "psnr",
    "reconstruct",
    "save_volume",
]
