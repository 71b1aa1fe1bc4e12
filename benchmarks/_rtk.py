"""ITK-RTK on the geometry and the arrays of fpdfp.ct."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.circle import circle
from fpdfp.ct.geometry import ConeBeam

#: The projectors of RTK that are matched: Joseph's method, forward and back.
JOSEPH = 0


class Rtk:
    """RTK for one scan on a circle. RTK turns around its y: our (x, y, z) are its (z, x, y)."""

    def __init__(self, geometry: ConeBeam) -> None:
        self.itk: Any = importlib.import_module("itk")
        self.rtk = self.itk.RTK
        self.geometry, found = geometry, circle(geometry)
        self.circle = self.rtk.ThreeDCircularProjectionGeometry.New()
        for source in geometry.sources:
            angle = math.degrees(math.atan2(source[1] - found.axis[1], source[0] - found.axis[0]))
            self.circle.AddProjection(
                found.radius, found.distance, angle, found.turn * found.offset[0], found.offset[1]
            )
        pixel = float(np.linalg.norm(geometry.u[0])), float(np.linalg.norm(geometry.v[0])), 1.0
        self.sides = pixel
        x, y, z = geometry.voxel
        self.voxel, centre = (y, z, x), np.array(geometry.centre) - [*found.axis, found.height]
        self.centre = centre[1], centre[2], centre[0]

    def image(self, array: Array, sides: tuple[float, ...], centre: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Any:
        made = self.itk.image_from_array(np.ascontiguousarray(array.transpose(0, 2, 1), dtype=np.float32))
        made.SetSpacing(sides)
        lengths = made.GetLargestPossibleRegion().GetSize()
        made.SetOrigin([c - 0.5 * (n - 1) * side for n, side, c in zip(lengths, sides, centre, strict=True)])
        return made

    def volume(self, array: Array) -> Any:
        return self.image(array, self.voxel, self.centre)

    def views(self, array: Array) -> Any:
        return self.image(array, self.sides)

    def run(self, name: str, inputs: list[Any], prepare: Any = None) -> Array:
        """Return what a filter makes of some inputs."""
        kind = getattr(self.rtk, name)
        made = kind[(type(inputs[0]),) * (2 if "Joseph" in name else 1)].New()
        for number, one in enumerate(inputs):
            made.SetInput(number, one)
        made.SetGeometry(self.circle)
        if prepare is not None:
            prepare(made)
        made.Update()
        found: Array = np.array(self.itk.array_view_from_image(made.GetOutput()).transpose(0, 2, 1))
        return found

    def project(self, x: Array) -> Array:
        empty = np.zeros(self.geometry.data_shape, dtype=np.float32)
        return self.run("JosephForwardProjectionImageFilter", [self.views(empty), self.volume(x)])

    def fdk(self, data: Array, hann: float) -> Array:
        """Filtered back-projection with a Hann window up to a part of the largest frequency; 0 is none."""
        empty = np.zeros(self.geometry.volume, dtype=np.float32)

        def prepare(made: Any) -> None:
            made.GetRampFilter().SetTruncationCorrection(0.0)
            made.GetRampFilter().SetHannCutFrequency(hann)

        return self.run("FDKConeBeamReconstructionFilter", [self.volume(empty), self.views(data)], prepare)

    def conjugate_gradients(self, data: Array, iterations: int) -> Array:
        empty = np.zeros(self.geometry.volume, dtype=np.float32)

        def prepare(made: Any) -> None:
            made.SetForwardProjectionFilter(JOSEPH)
            made.SetBackProjectionFilter(JOSEPH + 1)  # of RTK's numbers: 0 is by voxels, 1 is Joseph's
            made.SetNumberOfIterations(iterations)
            made.SetCudaConjugateGradient(False)

        return self.run(
            "ConjugateGradientConeBeamReconstructionFilter", [self.volume(empty), self.views(data)], prepare
        )
