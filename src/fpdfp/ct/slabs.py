"""Volumes and views larger than the memory of a device: slabs across x, with arrays in memory or in files.

A volume is cut into slabs, which are contiguous in C order. Projections of a volume are the sums of projections of its
slabs, and a back-projection into a slab needs the views alone, so that all of this is exact.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._numbers import accelerate
from fpdfp._typing import Array
from fpdfp.ct.device import module_for
from fpdfp.ct.fdk import WINDOWS, Window, back_project_filtered
from fpdfp.ct.geometry import ConeBeam, check_geometry
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.weight import absolute_weight
from fpdfp.errors import ArgumentError
from fpdfp.linops.maps import tv_kernels

#: Volumes of the size of a slab that the dual steps hold at a time, and the share of the memory that slabs may take.
HELD, SHARE = 16, 0.6
#: Dual steps of the regulariser in an iteration; a slab is read with as many planes of its neighbours.
DUAL_STEPS = 8
#: Threads that copy between the memory of the computer and the GPU, and the bytes that each copies at a time.
COPIERS, PIECE = 8, 1 << 26


class Slab(NamedTuple):
    """Some planes of a volume, and the scan with these planes alone."""

    planes: slice
    geometry: ConeBeam


def cut(geometry: ConeBeam, planes: int) -> list[Slab]:
    """Return the slabs of a volume, of at most a given number of planes."""
    count = geometry.volume[0]
    return [_slab(geometry, begin, min(begin + planes, count)) for begin in range(0, count, planes)]


def _slab(geometry: ConeBeam, begin: int, end: int) -> Slab:
    nx, ny, nz = geometry.volume
    x, y, z = geometry.centre
    centre = (x + (0.5 * (begin + end) - 0.5 * nx) * geometry.voxel[0], y, z)
    return Slab(slice(begin, end), dataclasses.replace(geometry, volume=(end - begin, ny, nz), centre=centre))


class Mover:
    """Copies arrays of NumPy to the device that a module works on, and back.

    A GPU is reached through page-locked memory, by several threads: one alone, or the driver's own copies of other
    memory, would take several times as long.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        if module is not np:
            self._pool = ThreadPoolExecutor(COPIERS)
            self._buffers: queue.SimpleQueue[Array] = queue.SimpleQueue()
            for _ in range(COPIERS):
                memory = module.cuda.alloc_pinned_memory(PIECE)
                self._buffers.put(np.frombuffer(memory, dtype=np.float32, count=PIECE // 4))

    def take(self, host: Array) -> Array:
        """Return an array of float32 on the device: itself on the CPU."""
        if self.module is np:
            return host
        there: Array = self.module.empty(host.shape, dtype=np.float32)
        self.load(host, there)
        return there

    def load(self, host: Array, there: Any) -> None:
        """Copy an array to one on the device, both contiguous."""

        def copy(piece: Array, part: Any, buffer: Array, stream: Any) -> None:
            np.copyto(buffer, piece)
            part.set(buffer, stream=stream)
            stream.synchronize()

        if self.module is np:
            there[...] = host
        else:
            self._copy(host, there, copy)

    def store(self, there: Any, host: Array) -> None:
        """Copy an array on the device to one of NumPy."""

        def copy(piece: Array, part: Any, buffer: Array, stream: Any) -> None:
            part.get(stream=stream, out=buffer)
            stream.synchronize()
            np.copyto(piece, buffer)

        if self.module is np:
            host[...] = there
        elif host.flags.c_contiguous:
            self._copy(host, self.module.ascontiguousarray(there), copy)
        else:
            host[...] = there.get()

    def _copy(self, host: Array, there: Array, copy: Callable[[Array, Array, Array, Any], None]) -> None:
        cuda, count = self.module.cuda, PIECE // 4
        # What was computed on this thread's stream must be there, and memory that it used must be free.
        cuda.get_current_stream().synchronize()
        flat, other, number = host.reshape(-1), there.reshape(-1), cuda.runtime.getDevice()

        def work(begin: int) -> None:
            buffer = self._buffers.get()
            try:
                with cuda.Device(number), cuda.Stream(non_blocking=True) as stream:
                    piece = flat[begin : begin + count]
                    copy(piece, other[begin : begin + count], buffer[: len(piece)], stream)
            finally:
                self._buffers.put(buffer)

        list(self._pool.map(work, range(0, flat.size, count)))


def fdk_in_slabs(
    projections: Any,
    geometry: ConeBeam,
    out: Array | None = None,
    *,
    window: Window = "ram-lak",
    memory: float = 8e9,
    device: str = "auto",
    workers: int = 1,
    until: float = math.inf,
) -> Array:
    """Return what :func:`fpdfp.ct.fdk` does, with a bounded amount of memory on the device.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``, of NumPy; an array mapped from a file (``np.load(…, mmap_mode="r")``) is
        read in parts.
    geometry
        The scan, on a circle with upright panels.
    out
        Where the volume is written, for example an array mapped to a file (``np.lib.format.open_memmap``); a new array
        by default.
    window
        As of :func:`fpdfp.ct.fdk`.
    memory
        The bytes on each device that slabs and views may take.
    device
        ``"cpu"``, ``"cuda"`` or ``"auto"``.
    workers
        How many slabs are computed at a time, on the GPUs in turn, each with a stream of its own.
    until
        The value of ``time.monotonic()`` at which a :class:`TimeoutError` ends the computation between two slabs.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((24, 24, 24), (48, 48), views=90, source=80.0, panel=120.0)
    >>> data = fpdfp.ct.Ellipsoids([[0, 0, 0]], [[8, 8, 8]], [1.0]).project(scan)
    >>> found = fpdfp.ct.fdk_in_slabs(data, scan, memory=1e6, device="cpu")
    >>> bool(np.allclose(found, fpdfp.ct.fdk(data, scan), atol=1e-5))
    True
    """
    _checks.choice("window", window, WINDOWS)
    module, data, out = _begin(projections, geometry, out, device)
    plane = math.prod(geometry.volume[1:]) * data.dtype.itemsize
    planes = max(1, int(SHARE * _checks.real("memory", memory, positive=True) / plane))
    # A third of what is left is for views: they are padded and transformed.
    numbers = max(1, int((1.0 - SHARE) * memory / (12 * data.dtype.itemsize)))
    mover = Mover(module)

    def work(slab: Slab) -> None:
        _in_time(until)
        found = back_project_filtered(data, geometry, window, slab.geometry, module, numbers)
        mover.store(found, out[slab.planes])

    _each(cut(geometry, planes), work, module, workers)
    return out


class SlabProjector:
    """The X-ray transform with slabs of the volume and parts of the views on the device.

    Parameters
    ----------
    geometry
        The scan.
    memory
        The bytes on the device that a slab and some views may take.
    module
        NumPy, or CuPy for a GPU. Arrays are NumPy arrays regardless.
    until
        As of :func:`fdk_in_slabs`.
    """

    def __init__(self, geometry: ConeBeam, memory: float, module: ModuleType, until: float = math.inf) -> None:
        self.geometry, self.module, self.until = geometry, module, until
        plane, view = 4 * math.prod(geometry.volume[1:]), 4 * math.prod(geometry.detector)
        self.slabs = cut(geometry, max(1, int(0.3 * memory / plane)))
        step = max(1, int(0.2 * memory / view))
        self.parts = [np.arange(b, min(b + step, geometry.n_views)) for b in range(0, geometry.n_views, step)]
        self.operators = [XRayTransform(slab.geometry) for slab in self.slabs]
        self.mover = Mover(module)

    def apply(self, x: Array | None, out: Array) -> Array:
        """Write the projections of a volume, by default of ones."""
        for views in self.parts:
            total: Any = None
            for slab, operator in zip(self.slabs, self.operators, strict=True):
                _in_time(self.until)
                if x is None:
                    planes = self.module.ones(slab.geometry.volume, dtype=np.float32)
                else:
                    planes = self.mover.take(x[slab.planes])
                part = operator.apply_views(planes, views)
                total = part if total is None else total + part
            self.mover.store(total, out[views[0] : views[-1] + 1])
        return out

    def adjoint(self, y: Array, out: Array) -> Array:
        """Write the back-projection of views."""
        for slab, operator in zip(self.slabs, self.operators, strict=True):
            total: Any = None
            for views in self.parts:
                _in_time(self.until)
                piece = self.mover.take(y[views[0] : views[-1] + 1])
                part = operator.adjoint_groups(piece, views, np.zeros(len(views), dtype=np.int64), 1)[0]
                total = part if total is None else total + part
            self.mover.store(total, out[slab.planes])
        return out


def reconstruct_in_slabs(
    projections: Any,
    geometry: ConeBeam,
    out: Array | None = None,
    *,
    tv: float,
    iterations: int = 30,
    memory: float = 8e9,
    device: str = "auto",
    until: float = math.inf,
    callback: Callable[[int, float], Any] | None = None,
) -> Array:
    """Minimise the objective of :func:`fpdfp.ct.reconstruct` for volumes that do not fit the device.

    Accelerated proximal gradient steps (FISTA) start from the filtered back-projection, with x ≥ 0, the step of a bound
    of ‖A‖², and a fixed number of warm-started dual steps for the prox of the regulariser. A slab is read with as many
    planes of its neighbours as there are dual steps, so that one slab gives the same result. Seven volumes are held in
    the memory of the computer.

    Parameters
    ----------
    projections, geometry, out, memory, device, until
        As of :func:`fdk_in_slabs`; voxels are cubes.
    tv
        The weight, as of :func:`fpdfp.ct.reconstruct`.
    iterations
        How many steps are taken.
    callback
        Called after each step with its number and the residual of the data before it, relative to them.
    """
    module, data, out = _begin(projections, geometry, out, device)
    if np.ptp(geometry.voxel) > 1e-9 * max(geometry.voxel):
        raise ArgumentError("geometry", f"must have cubic voxels, got {geometry.voxel}")
    weight = absolute_weight(_checks.real("tv", tv, at_least=0.0), data, geometry)
    count = _checks.integer("iterations", iterations, at_least=1)
    projector = SlabProjector(geometry, _checks.real("memory", memory, positive=True), module, until)
    views = geometry.n_views
    seen, slope = np.empty(geometry.data_shape, dtype=np.float32), np.empty(geometry.volume, dtype=np.float32)
    # No entry of A is negative, so that the largest entry of AᵀA1 bounds ‖A‖².
    projector.adjoint(projector.apply(None, seen), slope)
    curvature = float(slope.max()) / views * (1.0 + 1e-3)
    x = fdk_in_slabs(data, geometry, out, memory=memory, device=device, until=until)
    np.maximum(x, 0.0, out=x)
    z, v = x.copy(), np.zeros((4, *geometry.volume), dtype=np.float32)
    size, theta = float(np.linalg.norm(data)) or 1.0, 1.0
    slab_bytes = 4 * math.prod(geometry.volume[1:]) * HELD
    planes = max(1, int(memory / slab_bytes) - 2 * DUAL_STEPS)
    for iteration in range(1, count + 1):
        projector.apply(z, seen)
        seen -= data
        residual = float(np.linalg.norm(seen)) / size
        projector.adjoint(seen, slope)
        beta, theta = accelerate(theta)
        _prox_in_slabs(projector, planes, views * curvature, weight / curvature, beta, (x, z, slope, v))
        if callback is not None:
            callback(iteration, residual)
    return out


def _prox_in_slabs(
    projector: SlabProjector, planes: int, steepness: float, weight: float, beta: float,
    arrays: tuple[Array, Array, Array, Array],
) -> None:  # fmt: skip
    """Write the next x, z and v over the last ones.

    The next slab needs the last planes of a slab as they were: they are kept on the device.
    """
    (x, z, slope, v), xp, mover = arrays, projector.module, projector.mover
    count = x.shape[0]
    kept_half, kept_v = xp.empty((0, *x.shape[1:]), np.float32), xp.empty((4, 0, *x.shape[1:]), np.float32)
    for own, wide in _overlapping(count, planes):
        _in_time(projector.until)
        before, new = own.start - wide.start, slice(own.start, wide.stop)
        half = xp.empty((wide.stop - wide.start, *x.shape[1:]), np.float32)
        half[:before] = kept_half
        mover.load(slope[new], half[before:])
        half[before:] *= np.float32(-1.0 / steepness)
        half[before:] += mover.take(z[new])
        duals = xp.empty((1, 4, *half.shape), np.float32)
        duals[0, :, :before] = kept_v
        for component in range(4):
            mover.load(v[component, new], duals[0, component, before:])
        tail = slice(max(own.stop - DUAL_STEPS - 1, 0) - wide.start, own.stop - wide.start)
        kept_half, kept_v = half[tail].copy(), duals[0, :, tail].copy()
        found, duals = _prox(half, duals, weight)
        inner = slice(before, own.stop - wide.start)
        for component in range(4):
            mover.store(duals[0, component, inner], v[component, own])
        moved = found[inner]
        change = moved - mover.take(x[own])
        change *= np.float32(beta)
        change += moved
        mover.store(change, z[own])
        mover.store(moved, x[own])


def _prox(half: Array, v: Array, weight: float) -> tuple[Array, Array]:
    """Take accelerated dual steps for ½‖x − half‖² + weight Σ‖∇x‖ with x ≥ 0, from v of shape ``(1, 4, nx, ny, nz)``.

    Three arrays of this shape are in use, and v itself is overwritten.
    """
    xp = namespace(half)
    sigma = 1.0 / 13.0  # over the squared norm of the gradient, 12, and that of the identity
    constants = np.array([1.0, 1.0, sigma, weight], dtype=half.dtype)
    point, spare, theta = v, xp.empty_like(v), 1.0
    new_x = xp.empty((1, *half.shape), dtype=half.dtype)
    for _ in range(DUAL_STEPS):
        new_v = spare
        tv_kernels(half).dual_step(half[None], point, True, constants, True, new_v, new_x)
        beta, theta = accelerate(theta)
        spare = xp.empty_like(v) if point is v else point
        # The next point takes the place of the last v.
        xp.subtract(new_v, v, out=v)
        v *= half.dtype.type(beta)
        v += new_v
        point, v = v, new_v
    return xp.maximum(new_x[0], 0.0), v


def _overlapping(count: int, planes: int) -> Iterator[tuple[slice, slice]]:
    """Yield slabs, and the same with planes of their neighbours."""
    for begin in range(0, count, planes):
        end = min(begin + planes, count)
        # The last dual step reads one plane more for x.
        yield slice(begin, end), slice(max(begin - DUAL_STEPS - 1, 0), min(end + DUAL_STEPS + 1, count))


def _begin(projections: Any, geometry: ConeBeam, out: Array | None, device: str) -> tuple[ModuleType, Array, Array]:
    check_geometry(geometry)
    module = module_for(device)
    if not isinstance(projections, np.ndarray) or projections.shape != geometry.data_shape:
        shape = getattr(projections, "shape", None)
        raise ArgumentError("projections", f"must be an array of NumPy of shape {geometry.data_shape}, got {shape}")
    if projections.dtype != np.float32:
        raise ArgumentError("projections", f"must be of float32, got {projections.dtype}")
    if not geometry.is_straight:
        raise ArgumentError("geometry", "must have upright panels: fpdfp.ct.rectify resamples views of tilted ones")
    if out is None:
        out = np.empty(geometry.volume, dtype=np.float32)
    if out.shape != geometry.volume or out.dtype != np.float32 or not out.flags.writeable:
        raise ArgumentError("out", f"must be a writable float32 array of shape {geometry.volume}, got {out.shape}")
    return module, projections, out


def _each(slabs: list[Slab], work: Callable[[Slab], None], module: ModuleType, workers: int) -> None:
    """Do the work for each slab; several at a time, on GPUs in turn with a stream each."""
    count = _checks.integer("workers", workers, at_least=1)
    if count == 1 or module is np:
        for slab in slabs:
            work(slab)
        return
    devices = itertools.cycle(range(module.cuda.runtime.getDeviceCount()))

    def on_stream(slab: Slab, number: int) -> None:
        with module.cuda.Device(number), module.cuda.Stream(non_blocking=True) as stream:
            work(slab)
            stream.synchronize()

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(on_stream, slab, next(devices)) for slab in slabs]:
            done.result()


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError("the time for this computation is over")
