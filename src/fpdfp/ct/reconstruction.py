"""Reconstruction with all projections in one place."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import logging
import math
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from fpdfp import _checks, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.ct.device import module_for, move_to
from fpdfp.ct.geometry import ConeBeam, Triple, triple
from fpdfp.ct.rectify import rectify_checked
from fpdfp.ct.scans import check_projections, check_ray_weights, fill_excluded
from fpdfp.ct.solver import Bounds, Solver
from fpdfp.ct.weight import FOLD, Choice, Trials, absolute_weight, choose, coarser, finer
from fpdfp.engines.loop import Interrupt
from fpdfp.errors import AccuracyWarning, ArgumentError

#: Of the objective: a gap of the last proximal step that is worth a warning.
GAP = 1e-3
#: Seconds after which the volume is written to a checkpoint again.
OFTEN = 30.0
#: Views for which left-out ones can choose the weight.
FEWEST = 2 * FOLD

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
        ``"finished"`` (all iterations done), ``"stationary"``, ``"settled"`` or ``"interrupted"`` (Ctrl-C). Stationary
        means that the volume changes by at most ``tol``; how far its objective is from the minimum is not known.
        Settled means, with ``tv="auto"``, that the score of excluded views did not change any more.
    seconds
        The time in seconds, without metrics.
    device
        ``"cpu"`` or ``"cuda"``.
    weight
        The factor of the sum of ‖∇x‖ over voxels in the objective.
    tv
        The weight relative to the data, as in :func:`reconstruct`.
    finer
        Whether voxels of half the side were used and their means returned; ``objective`` and ``weight`` are theirs.
    scores
        With ``tv="auto"`` the weights that were tried and their scores, ``(2, n)``.
    left_out
        With ``tv="auto"`` the residual of the left-out views relative to them, with the best weight that was tried.
    """

    volume: Array
    objective: float
    history: dict[str, Array]
    status: str
    seconds: float
    device: str
    weight: float
    tv: float = math.nan
    finer: bool = False
    scores: Array = dataclasses.field(default_factory=lambda: np.empty((2, 0)))
    left_out: float = math.nan

    @property
    def iterations(self) -> int:
        """The number of iterations that were done."""
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
    tv: float | Literal["auto"] = "auto",
    ray_weights: Any = None,
    bounds: tuple[float, float] = (0.0, math.inf),
    axes: Triple = (1.0, 1.0, 1.0),
    second_order: float | None = None,
    iterations: int = 50,
    tol: float = 1e-4,
    device: str = "auto",
    metrics: Mapping[str, Callable[[Array], float]] | None = None,
    callback: Callable[[int, Array], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Reconstruction:
    r"""Reconstruct a volume from projections, with total variation.

    .. math:: \min_x \frac{p^2}{2V} \sum_{\text{views}} \|A_{\text{view}} x - b_{\text{view}}\|^2
              + \text{tv} \; S p \sum_{\text{voxels}} |\text{voxel}| \, \|\nabla x\|

    over x within ``bounds``. V is the number of views, p the side of a pixel seen at the axis, and S the largest line
    integral (apart from a thousandth of the pixels). The gradient ∇ is in units of length: ``tv`` has no unit, and the
    image does not change with the units of data and lengths or with the shape of voxels. About ``tv=0.003`` is usual;
    more noise needs more.

    The method starts from the filtered back-projection of :func:`fpdfp.ct.fdk`, if the scan allows it, and takes
    accelerated proximal gradient steps. Their metric is a convolution that approximates the Hessian of the data term
    (its response to an impulse). It needs about as many steps as a problem without blur. A step costs one projection
    and one back-projection; the prox of the regulariser is computed by warm-started dual steps, until their duality gap
    is small besides the step. The step size is found from the projections. Views of tilted panels are resampled to
    upright ones first.

    Parameters
    ----------
    projections
        Line integrals, an array of shape ``geometry.data_shape`` of NumPy or CuPy, float32 or float64. Data that
        looks like counts, or as if columns and rows were swapped, gives a :class:`fpdfp.errors.DataWarning`.
    geometry
        The scan.
    tv
        The weight of the total variation; 0 leaves it out. ``"auto"`` chooses it: every fifth view is excluded and
        predicted with several weights. If voxels of half the side predict clearly better, they are used, and means of
        eight are returned. This takes about five times as long as one reconstruction, and much longer with smaller
        voxels.
    ray_weights
        What each squared residual is multiplied with, an array like ``projections``: inverse variances
        (:func:`fpdfp.ct.count_weights`), or 0 for pixels that do not count, such as defective ones. 1 by default.
    bounds
        The least and the largest value that a voxel may have; infinite values exclude a bound.
    axes
        Factors of the differences along x, y and z in the total variation: a smaller one lets the image change more
        along its axis (directional total variation).
    second_order
        The factor α of total generalized variation, which takes the place of the total variation. It is the least
        ``tv`` (Σ‖∇x − s‖ + α Σ‖Es‖) of all fields s, with E the symmetrized gradient in units of a voxel's side. The
        image may then rise and fall evenly without steps; 2 is usual. None for total variation.
    iterations
        The largest number of iterations.
    tol
        Stop when the volume changes by less than this in an iteration, relative to itself.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU if there is one, else the CPU, with a line in the log.
    metrics
        Functions of the volume to record after every iteration, by name.
    callback
        Called after each iteration with its number and the volume.
    checkpoint
        A file (.npz) that keeps the scores of the weights that were tried and, every half a minute and after Ctrl-C,
        the volume. A call with the same projections and options continues from it; ``history`` then has its own
        iterations only. It is deleted when all is done.
    progress
        Whether to show a progress bar; None shows it if standard error is a terminal.

    Returns
    -------
    Reconstruction
        Ctrl-C returns the result so far.

    References
    ----------
    A. Beck and M. Teboulle, "Fast gradient-based algorithms for constrained total variation image denoising and
    deblurring problems", IEEE Transactions on Image Processing 18 (2009); K. Bredies, K. Kunisch and T. Pock, "Total
    generalized variation", SIAM Journal on Imaging Sciences 3 (2010); N. H. Clinthorne, T.-S. Pan, P.-C. Chiao,
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
    if not isinstance(tv, str):
        tv = _checks.real("tv", tv, at_least=0.0)
    elif tv != "auto":
        raise ArgumentError("tv", f"must be a number of at least 0, or 'auto', got {tv!r}")
    limits, ways = _check_bounds(bounds), triple("axes", axes, positive=True)
    second = None if second_order is None else _checks.real("second_order", second_order, positive=True)
    most = _checks.integer("iterations", iterations, at_least=1)
    tol = _checks.real("tol", tol, at_least=0.0)
    module = module_for(device)
    began = time.perf_counter()
    straight, scan = rectify_checked(data, geometry)
    straight = move_to(straight, module)
    rays = None
    if ray_weights is not None:
        rays = move_to(rectify_checked(check_ray_weights(ray_weights, geometry, here), geometry, order=1)[0], module)
        straight = fill_excluded(straight, rays)
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(Path(checkpoint), (data, ray_weights), (geometry, tv, limits, ways, second, most, tol))
    if isinstance(tv, str):
        choice = _chosen(straight, scan, limits, module, rays, kept, ways, second)
    else:
        choice = Choice(tv, False, most, np.empty((2, 0)), math.nan)
    used = finer(scan) if choice.finer else scan
    weight = absolute_weight(choice.tv, straight, used)
    watches = dict(metrics or {})
    if choice.finer:
        watches = {name: functools.partial(_of_coarser, watch) for name, watch in watches.items()}
    found = minimise(
        straight, used, weight, bounds=limits, iterations=min(most, choice.iterations), tol=tol,
        ray_weights=rays, axes=ways, second=second, device="cpu" if module is np else "cuda", metrics=watches,
        progress=progress, kept=kept,
        callback=None if callback is None else _watching(callback, choice.finer),
    )  # fmt: skip
    status = found.status
    if kept is not None and status != "interrupted":
        kept.path.unlink(missing_ok=True)
    if status == "finished" and choice.iterations < most:
        status = "settled"
    volume = coarser(found.volume) if choice.finer else found.volume
    return dataclasses.replace(
        found, volume=move_to(volume, here), status=status, seconds=time.perf_counter() - began, tv=choice.tv,
        finer=choice.finer, scores=choice.curve, left_out=choice.residual,
    )  # fmt: skip


def _check_bounds(bounds: Any) -> Bounds:
    pair = tuple(bounds) if isinstance(bounds, tuple | list) else ()
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in pair)
    if len(pair) != 2 or not numbers or not pair[0] < pair[1]:
        raise ArgumentError("bounds", f"must be two numbers, the least value and a larger one, got {bounds!r}")
    return float(pair[0]), float(pair[1])


def _watching(callback: Callable[[int, Array], Any], fine: bool) -> Callable[[int, Array], Any]:
    return (lambda iteration, volume: callback(iteration, coarser(volume))) if fine else callback


class Checkpoint:
    """State of an interrupted reconstruction, in a file that names projections and options by a digest."""

    def __init__(self, path: Path, arrays: tuple[Any, Any], options: tuple[Any, ...]) -> None:
        if path.suffix != ".npz" or not path.parent.is_dir():
            raise ArgumentError("checkpoint", f"must be a .npz file in a folder that is there, got {path}")
        self.path = path
        digest = hashlib.sha256(repr(options[1:]).encode())
        geometry: ConeBeam = options[0]
        digest.update(repr((geometry.volume, geometry.detector, geometry.voxel, geometry.centre)).encode())
        for array in (*arrays, geometry.sources, geometry.panels, geometry.u, geometry.v):
            digest.update(b"none" if array is None else np.ascontiguousarray(to_host(array)).tobytes())
        self.mark = digest.hexdigest()
        #: Rows of: whether voxels are of half the side, the weight's logarithm, score, residual, iterations.
        self.trials: dict[tuple[bool, float], tuple[float, float, int]] = {}
        self.volume: Array | None = None
        self.done, self._written = 0, time.monotonic()
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                mark, trials, volume, done = (file[name] for name in ("mark", "trials", "volume", "done"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ArgumentError(
                "checkpoint", f"{self.path} cannot be read ({error}); delete it to begin anew"
            ) from error
        if str(mark) != self.mark:
            raise ArgumentError(
                "checkpoint", f"{self.path} is of other projections or options; delete it, or name another file"
            )
        for fine, place, score, residual, count in trials.reshape(-1, 5).tolist():
            self.trials[bool(fine), place] = score, residual, int(count)
        self.volume, self.done = (volume if volume.size else None), int(done)

    def write(self) -> None:
        """Write all of it, so that a file is whole at any time."""
        rows = np.array([[fine, place, *trial] for (fine, place), trial in self.trials.items()], dtype=np.float64)
        volume = np.zeros(0, dtype=np.float32) if self.volume is None else to_host(self.volume)
        other = self.path.with_name(f"{self.path.stem}.writing.npz")
        with other.open("wb") as file:
            np.savez(
                file, mark=np.array(self.mark), trials=rows.reshape(-1, 5), volume=volume, done=np.array(self.done)
            )
        other.replace(self.path)
        self._written = time.monotonic()

    def keep(self, volume: Array, done: int, *, now: bool) -> None:
        """Write a volume, now or if the last one is old."""
        if now or time.monotonic() - self._written > OFTEN:
            self.volume, self.done = volume, done
            self.write()


def _of_coarser(metric: Callable[[Array], float], volume: Array) -> float:
    return metric(coarser(volume))


def _chosen(
    data: Array, geometry: ConeBeam, bounds: Bounds, module: ModuleType, ray_weights: Array | None,
    kept: Checkpoint | None, axes: Triple, second: float | None,
) -> Choice:  # fmt: skip
    """Return the weight that predicts left-out views best."""
    if geometry.n_views < FEWEST:
        raise ArgumentError("tv", f"must be a number where there are less than {FEWEST} views, got 'auto'")
    trials = None if kept is None else Trials(kept.trials, kept.write)
    choice = choose(data, geometry, bounds, module, ray_weights, trials, axes, second)
    _log.info(
        "tv=%.3g predicts left-out views best (relative residual %.4f)%s", choice.tv, choice.residual,
        ", with voxels of half the side" if choice.finer else "",
    )  # fmt: skip
    return choice


def minimise(
    data: Array,
    geometry: ConeBeam,
    weight: float,
    *,
    bounds: Bounds,
    iterations: int,
    tol: float,
    device: str,
    ray_weights: Array | None = None,
    metrics: Mapping[str, Callable[[Array], float]] | None = None,
    callback: Callable[[int, Array], Any] | None = None,
    kept: Checkpoint | None = None,
    axes: Triple = (1.0, 1.0, 1.0),
    second: float | None = None,
    progress: bool | None = None,
) -> Reconstruction:
    """Minimise 1/(2V) Σ‖Ax − b‖² + weight Σ ‖∇x‖, with the gradient in units in which a voxel has the volume 1."""
    here, module = namespace(data), module_for(device)
    began = time.perf_counter()
    # In units of a power of two near the largest line integral: squares then neither overflow nor vanish.
    largest = float(abs(data).max())
    unit = 2.0 ** round(math.log2(largest)) if largest > 0 else 1.0
    limits = bounds[0] / unit, bounds[1] / unit
    before = None if kept is None or kept.volume is None else move_to(kept.volume, module) / np.float32(unit)
    first = 1 if kept is None else kept.done + 1
    solver = Solver(
        move_to(data, module) / unit, geometry, weight / unit, limits, module, ray_weights, before, axes, second
    )
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
    with Interrupt() as interrupt, busy, Bar(iterations, 0, progress, sends=False) as bar:
        record(math.inf)
        for iteration in range(first, iterations + 1):
            change = solver.advance()
            record(change)
            bar.update(iteration, rows[-1]["objective"], 0)
            if callback is not None:
                callback(iteration, unit * solver.x)
            if kept is not None:
                kept.keep(unit * solver.x, iteration, now=bool(interrupt.requested))
            if interrupt.requested or (change <= tol and solver.gap <= GAP * solver.objective):
                status = "interrupted" if interrupt.requested else "stationary"
                break
    if solver.gap > GAP * solver.objective:
        warn(
            "tv: with this weight the regulariser converges slowly: the last step is "
            f"{solver.gap / solver.objective:.1g} of the objective from its minimum; "
            "more iterations or a smaller tv help",
            AccuracyWarning,
        )
    volume = move_to(unit * solver.x, here)
    history = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    seconds = time.perf_counter() - began - apart
    objective, where = rows[-1]["objective"], "cpu" if module is np else "cuda"
    return Reconstruction(volume, objective, history, status, seconds, where, weight)
