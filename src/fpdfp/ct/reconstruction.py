"""Reconstruction with all projections in one place."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp import _checks, _kernels
from fpdfp._array import namespace
from fpdfp._numbers import accelerate
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp.ct.device import module_for, move_to
from fpdfp.ct.fdk import filter_projections
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.scans import check_projections
from fpdfp.engines.loop import Interrupt
from fpdfp.linops import Gradient
from fpdfp.penalties import GroupL12

#: Frequencies with less than this share of the largest response are treated as if they had it.
FLOOR = 0.05
#: Dual steps of the regulariser in an iteration.
DUAL_STEPS = 10
#: The middle serves for the response where it is seen at least this well, relative to the voxel that is seen best.
HALF = 0.5
#: Steps that are tried in an iteration at most.
MOST_TRIALS = 40
#: What a curvature that turned out too small is multiplied with beyond what was seen.
MARGIN = 1.05

_log = logging.getLogger("fpdfp.ct")


@dataclasses.dataclass(frozen=True)
class Reconstruction:
    """A reconstructed volume with the history of its computation.

    Attributes
    ----------
    volume
        The volume, on the device of the projections.
    objective
        Its objective.
    history
        Arrays with an entry for the start and for each iteration: ``"objective"``, ``"change"`` (of the volume,
        relative), ``"seconds"``, and the metrics.
    status
        ``"finished"`` (all iterations done), ``"stationary"`` (the volume changes by at most ``tol``; how far its
        objective is from the minimum is not known) or ``"interrupted"`` (Ctrl-C).
    seconds
        The time in seconds, without metrics.
    device
        ``"cpu"`` or ``"cuda"``.
    """

    volume: Array
    objective: float
    history: dict[str, Array]
    status: str
    seconds: float
    device: str

    @property
    def iterations(self) -> int:
        """How many iterations were done."""
        return len(self.history["objective"]) - 1

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.volume.shape))
        return (
            f"{self.status} after {self.iterations} iterations in {self.seconds:.2f} s ({self.device}): "
            f"{shape} voxels, objective {self.objective:.7g}"
        )


def reconstruct(
    projections: Any,
    geometry: ConeBeam,
    *,
    tv: float = 1e-3,
    nonnegative: bool = True,
    iterations: int = 50,
    tol: float = 1e-4,
    device: str = "auto",
    metrics: Mapping[str, Callable[[Array], float]] | None = None,
    progress: bool | None = None,
) -> Reconstruction:
    r"""Reconstruct a volume from projections, with total variation.

    .. math:: \min_x \frac{1}{2V} \sum_{\text{views}} \|A_{\text{view}} x - b_{\text{view}}\|^2
              + \text{tv} \, \|\nabla x\|_{1,2} \quad (\text{and } x \ge 0)

    with V the number of views. The method starts from the filtered back-projection of :func:`fpdfp.ct.fdk`, if the scan
    allows it, and takes accelerated proximal gradient steps in the metric of a convolution that approximates the
    Hessian of the data term (its response to an impulse). It needs about as many steps as a problem without blur. A
    step costs one projection and one back-projection; the prox of the regulariser is computed by warm-started dual
    steps. The step size is found from the projections.

    Parameters
    ----------
    projections
        Line integrals, an array of shape ``geometry.data_shape`` of NumPy or CuPy, float32 or float64. Data that
        looks like counts, or as if columns and rows were swapped, gives a :class:`fpdfp.errors.DataWarning`.
    geometry
        The scan.
    tv
        The weight of the total variation; 0 leaves it out.
    nonnegative
        Whether to require x ≥ 0.
    iterations
        The largest number of iterations.
    tol
        Stop when the volume changes by less than this in an iteration, relative to itself.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU if there is one, else the CPU, with a line in the log.
    metrics
        Functions of the volume to record after every iteration, by name.
    progress
        Whether to show a progress bar; None shows it if standard error is a terminal.

    Returns
    -------
    Reconstruction
        Ctrl-C returns the result so far.

    References
    ----------
    A. Beck and M. Teboulle, "Fast gradient-based algorithms for constrained total variation image denoising and
    deblurring problems", IEEE Transactions on Image Processing 18 (2009); N. H. Clinthorne, T.-S. Pan, P.-C. Chiao,
    W. L. Rogers and J. A. Stamos, "Preconditioning methods for improved convergence rates in iterative
    reconstructions", IEEE Transactions on Medical Imaging 12 (1993).

    Examples
    --------
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((16, 16, 8), (24, 16), views=30, source=60.0, panel=90.0)
    >>> chest = fpdfp.ct.phantoms.thorax(scan)
    >>> found = fpdfp.ct.reconstruct(chest.project(scan), scan, tv=1e-2, device="cpu")
    >>> found.volume.shape
    (16, 16, 8)
    """
    data = check_projections(projections, geometry)
    here = namespace(data)
    weight = _checks.real("tv", tv, at_least=0.0)
    nonnegative = _checks.flag("nonnegative", nonnegative)
    most = _checks.integer("iterations", iterations, at_least=1)
    tol = _checks.real("tol", tol, at_least=0.0)
    module = module_for(device)
    began = time.perf_counter()
    # In units of a power of two near the largest line integral: squares then neither overflow nor vanish.
    largest = float(abs(data).max())
    unit = 2.0 ** round(math.log2(largest)) if largest > 0 else 1.0
    solver = _Solver(move_to(data, module) / unit, geometry, weight / unit, nonnegative, module)
    rows: list[dict[str, float]] = []
    status = "finished"
    watches = dict(metrics or {})
    apart = 0.0  # time of metrics

    def record(change: float) -> None:
        nonlocal apart
        seconds = time.perf_counter() - began - apart
        row = {"objective": unit**2 * solver.objective, "change": change, "seconds": seconds}
        rows.append({**row, **{name: float(watch(unit * solver.x)) for name, watch in watches.items()}})
        apart = time.perf_counter() - began - seconds

    # On the processor, with one thread or all, whichever is faster.
    busy = (
        _kernels.jit.fastest(solver.rehearse, math.prod(geometry.data_shape))
        if module is np
        else contextlib.nullcontext()
    )
    with Interrupt() as interrupt, busy, Bar(most, 0, progress, sends=False) as bar:
        record(math.inf)
        for iteration in range(1, most + 1):
            change = solver.advance()
            record(change)
            bar.update(iteration, rows[-1]["objective"], 0)
            if interrupt.requested or change <= tol:
                status = "interrupted" if interrupt.requested else "stationary"
                break
    volume = move_to(unit * solver.x, here)
    history = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    seconds = time.perf_counter() - began - apart
    objective, where = rows[-1]["objective"], "cpu" if module is np else "cuda"
    return Reconstruction(volume, objective, history, status, seconds, where)


class _Solver:
    """Accelerated proximal gradient steps in the metric of a convolution.

    ::

        y     = z − P∇f(z)/L
        x⁺    = argmin_x  L/2 ‖x − y‖²_{P⁻¹} + g(x),   by dual steps: x = y − PBᵀv/L
        z⁺    = x⁺ + (θ − 1)/θ⁺ (x⁺ − x)

    with P the inverse of the convolution, and L such that ‖A(x⁺ − z)‖² is at most L‖x⁺ − z‖² in that metric.
    Projections of x and z are kept, so that this and the objective cost nothing.
    """

    def __init__(self, data: Array, geometry: ConeBeam, tv: float, nonnegative: bool, module: ModuleType) -> None:
        self.xp, self.data, self.tv, self.nonnegative = module, data, tv, nonnegative
        self.projector = XRayTransform(geometry)
        self.views = geometry.n_views
        self.gradient, self.penalty = Gradient(geometry.volume), GroupL12(tv, axis=0).bind((3, *geometry.volume))
        self.filter = self._inverse_response()
        self.curvature, self.theta = 1.0, 1.0
        self.x = self._start(geometry)
        self.image = self.projector.apply(self.x)
        self.z, self.z_image = self.x, self.image
        self.v = module.zeros((3, *geometry.volume), dtype=data.dtype)
        self.w = module.zeros(geometry.volume, dtype=data.dtype)
        self.objective = self._objective(self.x, self.image)

    def _start(self, geometry: ConeBeam) -> Array:
        try:
            start = filter_projections(self.data, geometry)
        except ValueError as reason:
            _log.warning("starting from zero instead of a filtered back-projection: %s", reason)
            start = self.xp.zeros(geometry.volume, dtype=self.data.dtype)
        return self.xp.maximum(start, 0.0) if self.nonnegative else start

    def _inverse_response(self) -> Array:
        """The gains of P: one over the Fourier transform of the response of AᵀA/V to an impulse in the middle.

        Where hardly any ray meets the middle, the impulse is where most do.
        """
        xp, shape = self.xp, self.projector.in_shape
        seen = self.projector.adjoint(xp.ones_like(self.data))
        place = tuple(n // 2 for n in shape)
        most = float(seen.max())
        if most <= 0:
            raise ValueError("geometry: no ray of any view meets the volume")
        if float(seen[place]) < HALF * most:
            place = tuple(int(at) for at in np.unravel_index(int(seen.argmax()), shape))
        impulse = xp.zeros(shape, dtype=self.data.dtype)
        impulse[place] = 1.0
        response = self.projector.adjoint(self.projector.apply(impulse)) / self.views
        spectrum = xp.fft.rfftn(xp.roll(response, [-at for at in place], range(3))).real
        gains: Array = 1.0 / xp.maximum(spectrum, FLOOR * spectrum.max())
        return gains.astype(self.data.dtype)

    def metric(self, x: Array, gains: Array) -> Array:
        """Multiply the Fourier transform of x with gains."""
        fft = _fft(self.xp)
        product: Array = fft.irfftn(fft.rfftn(x) * gains, s=x.shape)
        return product.astype(x.dtype, copy=False)

    def _objective(self, x: Array, image: Array) -> float:
        residual = image - self.data
        data_term = dot(residual, residual) / (2 * self.views)
        return data_term + (self.penalty.value(self.gradient.apply(x)) if self.tv else 0.0)

    def rehearse(self) -> None:
        """Do the expensive part of an iteration without changing anything, to time it."""
        self.projector.adjoint(self.projector.apply(self.x))

    def advance(self) -> float:
        """Do an iteration; return how much the volume has changed, relative to itself."""
        slope = self.metric(self.projector.adjoint(self.z_image - self.data) / self.views, self.filter)
        for _ in range(MOST_TRIALS):
            x = self._prox(self.z - slope / self.curvature)
            image = self.projector.apply(x)
            step, moved_image = x - self.z, image - self.z_image
            length = dot(step, self.metric(step, 1.0 / self.filter))
            seen = dot(moved_image, moved_image) / self.views
            if seen <= self.curvature * length * (1 + 1e-4) or length == 0:
                break
            self.curvature = MARGIN * seen / length
        else:
            raise FloatingPointError("no step was found: projections or geometry are badly scaled")
        objective = self._objective(x, image)
        change = x - self.x
        if objective > self.objective:
            self.theta = 1.0
        beta, self.theta = accelerate(self.theta)
        self.z, self.z_image = x + beta * change, image + beta * (image - self.image)
        self.x, self.image, self.objective = x, image, objective
        size = dot(x, x)
        return math.sqrt(dot(change, change) / size) if size else 0.0

    def _prox(self, y: Array) -> Array:
        """Accelerated dual steps; the duals are kept for the next call."""
        if not self.tv and not self.nonnegative:
            return y
        xp, scaled = self.xp, self.filter / self.curvature
        largest = self.gradient.squared_norm + 1.0
        sigma = 1.0 / (largest * float(scaled.max()))
        v, w, theta = self.v, self.w, 1.0
        v_point, w_point = v, w
        for _ in range(DUAL_STEPS):
            u = y - self.metric(self.gradient.adjoint(v_point) - w_point, scaled)
            v_new = self.penalty.conjugate_prox(v_point + sigma * self.gradient.apply(u), sigma) if self.tv else v
            w_new = xp.maximum(w_point - sigma * u, 0.0) if self.nonnegative else w
            beta, theta = accelerate(theta)
            v_point, w_point = v_new + beta * (v_new - v), w_new + beta * (w_new - w)
            v, w = v_new, w_new
        self.v, self.w = v, w
        u = y - self.metric(self.gradient.adjoint(v) - w, scaled)
        return xp.maximum(u, 0.0) if self.nonnegative else u


def dot(a: Array, b: Array) -> float:
    """The inner product, summed in float64, in the same order whatever the number of threads."""
    return float((a * b).sum(dtype=np.float64))


def _fft(module: ModuleType) -> Any:
    """Return the module with Fourier transforms that keep single precision."""
    if module is np:
        import scipy.fft

        return scipy.fft
    return module.fft
