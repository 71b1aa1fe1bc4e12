"""Cone-beam CT: geometry, phantoms, projectors for CPU and GPU, and reconstruction.

Volumes are arrays ``(nx, ny, nz)``, projections ``(views, nu, nv)``; both may be on the CPU (NumPy) or on a GPU (CuPy).
"""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach
from fpdfp.ct import phantoms
from fpdfp.ct.calibration import Calibration, calibrate
from fpdfp.ct.fdk import fdk
from fpdfp.ct.files import Volume, load_volume, save_volume
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.phantoms import Ellipsoids, psnr
from fpdfp.ct.projector import XRayTransform, torch_projector
from fpdfp.ct.rectify import rectify
from fpdfp.ct.scanners import Scan, load_rtk_geometry, load_scan
from fpdfp.ct.scans import air, correct_hardening, count_weights, from_rows, line_integrals, remove_rings
from fpdfp.ct.slabs import fdk_in_slabs, reconstruct_in_slabs

if TYPE_CHECKING:
    from fpdfp.ct.reconstruction import Reconstruction, reconstruct
    from fpdfp.ct.together import Together, reconstruct_together

__all__ = [
    "Calibration",
    "ConeBeam",
    "Ellipsoids",
    "ProjectionLosses",
    "Reconstruction",
    "Scan",
    "Together",
    "Volume",
    "XRayTransform",
    "air",
    "calibrate",
    "correct_hardening",
    "count_weights",
    "fdk",
    "fdk_in_slabs",
    "from_rows",
    "line_integrals",
    "load_rtk_geometry",
    "load_scan",
    "load_volume",
    "phantoms",
    "psnr",
    "reconstruct",
    "reconstruct_in_slabs",
    "reconstruct_together",
    "rectify",
    "remove_rings",
    "save_volume",
    "torch_projector",
]

# An application among the mathematics: the rest of the package can be imported without what runs methods.
__getattr__ = attach(
    __name__, {"reconstruction": "Reconstruction reconstruct", "together": "Together reconstruct_together"}
)
