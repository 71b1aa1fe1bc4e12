"""The squared loss of projections: every client holds some of the views of a scan."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fpdfp import _checks, _kernels
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.scans import check_ray_weights, check_shape, warn_of_projections
from fpdfp.linops.base import LinOp, largest_eigenvalue_bound, positive_norm_bound, random_start
from fpdfp.losses.base import Losses, checked_draws
from fpdfp.rng import Draws, Purpose, table_size

#: Power steps for the norm of a client's projector: at most this many, fewer when the bounds are this near to each
#: other.
STEPS, NEAR = 30, 1.01
#: An allowance for rounding in float32.
ROUNDING = 1e-3
#: Lanczos steps for the norm of a projector in other coordinates, at most: they end when the bound is so much above.
LANCZOS_STEPS, CLOSE = 60, 1.1


class ProjectionLosses(Losses):
    r"""Squared losses of projections: each client holds some of the views of a scan, which are its samples.

    .. math:: f_i(x) = \frac{c_i}{2} \sum_{\text{views of } i} \|A_{\text{view}} x - b_{\text{view}}\|^2
              + \frac{l_2}{2} \|x\|^2

    with :math:`c_i = 1` for ``scale="sum"``, and one over the number of pixels of the client for ``scale="mean"``.

    Gradients of several clients take one projection of all their views and one back-projection. They are in float32,
    and on the device of the projections: for a CuPy array everything stays on its GPU, and x must be there as well.

    Parameters
    ----------
    projections
        Line integrals, an array of shape ``geometry.data_shape`` of NumPy or CuPy. A read-only array of
        NumPy in float32 is used unchanged; all others are copied.
    geometry
        The scan.
    clients
        The client of each view: a label for each, as from :mod:`fpdfp.datasets.splits`; None means one client.
    l2
        The weight of the ridge.
    scale
        ``"sum"`` over a client's pixels, or ``"mean"``.
    ray_weights
        What each squared residual is multiplied with, an array like ``projections``: inverse variances, or 0 for pixels
        that do not count. 1 by default.
    memory
        The largest number of bytes for the projections of a call; larger ones are processed in parts.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((8, 8, 4), (12, 8), views=6, source=30.0, panel=45.0)
    >>> sinogram = fpdfp.ct.XRayTransform(scan).apply(np.ones((8, 8, 4)))
    >>> losses = fpdfp.ct.ProjectionLosses(sinogram, scan, clients=[0, 1, 0, 1, 0, 1])
    >>> losses
    ProjectionLosses(6 views of (12, 8) pixels, 2 clients, l2=0, on the CPU)
    >>> losses.values(np.ones((8, 8, 4), dtype=np.float32), np.arange(2)).round(3)
    array([0., 0.])
    """

    lower_bound = 0.0

    def __init__(
        self,
        projections: Any,
        geometry: ConeBeam,
        clients: Any = None,
        *,
        l2: float = 0.0,
        scale: str = "sum",
        ray_weights: Any = None,
        memory: int = 2 << 30,
    ) -> None:
        self.operator = XRayTransform(geometry)
        self.geometry = geometry
        on_gpu = hasattr(projections, "__cuda_array_interface__")
        self.device = "cuda" if on_gpu else "cpu"
        check_shape(projections, geometry)
        self._data = _checks.own_array(
            "projections", projections, shape=geometry.data_shape, dtype=np.float32, xp=self.xp
        )
        warn_of_projections(self._data, geometry)
        self._ray_weights = None if ray_weights is None else check_ray_weights(ray_weights, geometry, self.xp)
        self.client_names, self._views = _dealt(clients, geometry.n_views)
        self.shape, self.dtype = geometry.volume, np.dtype(np.float32)
        self.sizes = np.array([len(views) for views in self._views], dtype=np.int64)
        self.l2 = _checks.real("l2", l2, at_least=0.0)
        mean = _checks.choice("scale", scale, ("sum", "mean")) == "mean"
        pixels = self.sizes * int(np.prod(geometry.detector))
        self._scales = 1.0 / pixels if mean else np.ones(len(self.sizes))
        # A view's residual, and its data while it is subtracted.
        each = 2 * int(np.prod(geometry.detector)) * self.dtype.itemsize
        self._most_views = max(1, _checks.integer("memory", memory, at_least=1) // each)

    def __repr__(self) -> str:
        views, where = self.geometry.n_views, "GPU" if self.device == "cuda" else "CPU"
        pixels = f"{views} views of {self.geometry.detector} pixels"
        return f"ProjectionLosses({pixels}, {self.n_clients} clients, l2={self.l2:g}, on the {where})"

    @property
    def nearly_convolution(self) -> bool:
        return True

    def check(self, x: Array, clients: IntArray, *, shared: bool = False, draws: Draws | None = None) -> None:
        if namespace(x) is not self.xp:
            here = "a GPU: give a CuPy array" if self.device == "cuda" else "the CPU: give a NumPy array"
            raise TypeError(f"x must be on the device of the projections, {here}; got {type(x).__name__}")
        super().check(x, clients, shared=shared, draws=draws)

    def values(self, x: Array, clients: IntArray) -> Array:
        self.check(x, clients, shared=True)
        sums = self.xp.zeros(len(clients), dtype=np.float64)
        views = [self._views[client] for client in clients]
        for rows, pieces in self._portions(views):
            residuals = self._residuals(x, pieces)
            # By client, so that the order of the sum is the client's own.
            ends = np.cumsum([len(piece) for piece in pieces])
            for row, end, piece in zip(rows, ends, pieces, strict=True):
                part = residuals[end - len(piece) : end]
                square = np.multiply(part, part, out=part)
                sums[row] += self._weighted(square, piece).sum(dtype=np.float64)
        ridge = 0.5 * self.l2 * float(np.vdot(x, x)) if self.l2 else 0.0
        values: Array = 0.5 * self._scales[clients] * (sums if self.device == "cpu" else sums.get()) + ridge
        return values

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        self.check(x, clients)
        if batch_size is None:
            views = [self._views[client] for client in clients]
        else:
            drawn = checked_draws(draws, clients)
            views = [
                self._some_views(int(client), int(name), batch_size, drawn)
                for client, name in zip(clients, drawn.clients, strict=True)
            ]
        shared = x.ndim == len(self.shape)
        out: Array = self.xp.zeros((len(clients), *self.shape), dtype=self.dtype)
        for rows, pieces in self._portions(views) if shared else self._singly(views):
            residuals = self._weighted(self._residuals(x if shared else x[rows[0]], pieces), np.concatenate(pieces))
            self._add_adjoints(residuals, pieces, out[rows[0] : rows[-1] + 1])
        # A part of the views stands for all of them.
        shares = self.sizes[clients] / np.array([len(part) for part in views])
        factors = (self._scales[clients] * shares).astype(self.dtype)
        if (factors != 1).any():
            out *= beside(factors.reshape(-1, 1, 1, 1), out)
        if self.l2:
            out += self.l2 * x
        return out

    def _some_views(self, client: int, name: int, batch_size: int, draws: Draws) -> IntArray:
        """Draw views of a client, uniformly without replacement; all where it has no more."""
        count = int(self.sizes[client])
        if batch_size >= count:
            return self._views[client]
        chosen = np.empty(batch_size, dtype=np.int64)
        table = np.empty(table_size(batch_size), dtype=np.int64)
        _kernels.philox.sample_subset(
            *draws.key, draws.tag(Purpose.BATCH), name, draws.round, count, batch_size, table, chosen
        )
        chosen.sort()
        return self._views[client][chosen]

    def _portions(self, views: list[IntArray]) -> Iterator[tuple[range, list[IntArray]]]:
        """Yield rows with their views such that all residuals fit the memory: several clients, or a part of one.

        How a client's views are parted depends on that client alone.
        """
        row = 0
        while row < len(views):
            if len(views[row]) > self._most_views:
                yield from self._singly(views, row, row + 1)
                row += 1
                continue
            first, count = row, 0
            while row < len(views) and count + len(views[row]) <= self._most_views:
                count += len(views[row])
                row += 1
            yield range(first, row), views[first:row]

    def _singly(
        self, views: list[IntArray], first: int = 0, last: int | None = None
    ) -> Iterator[tuple[range, list[IntArray]]]:
        """Yield one client after the other, in parts where it has many views."""
        for row, own in list(enumerate(views))[first:last]:
            for start in range(0, len(own), self._most_views):
                yield range(row, row + 1), [own[start : start + self._most_views]]

    def _residuals(self, x: Array, pieces: list[IntArray]) -> Array:
        """Return A x − b in some views."""
        views = np.concatenate(pieces)
        residuals = self.operator.apply_views(x.astype(self.dtype, copy=False), views)
        residuals -= self._data[views]
        return residuals

    def _weighted(self, projections: Array, views: IntArray) -> Array:
        """Return projections in some views times the weights of their rays."""
        return projections if self._ray_weights is None else projections * self._ray_weights[views]

    def _add_adjoints(self, projections: Array, pieces: list[IntArray], out: Array) -> None:
        """Add the back-projection of each client's views to its volume."""
        groups = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        out += self.operator.adjoint_groups(projections, np.concatenate(pieces), groups, len(pieces))

    def _normal(self, x: Array, views: IntArray) -> Array:
        """Return AᵀWA x for some views, with the weights W of rays."""
        totals: Array = self.xp.zeros((1, *self.shape), dtype=self.dtype)
        for _, pieces in self._singly([views]):
            image = self._weighted(self.operator.apply_views(x, pieces[0]), pieces[0])
            self._add_adjoints(image, pieces, totals)
        total: Array = totals[0]
        return total

    def lipschitz(self) -> Array:
        return self._lipschitz

    @functools.cached_property
    def _lipschitz(self) -> Array:
        norms = np.array([self._squared_norm(views) for views in self._views])
        constants: Array = self._scales * norms + self.l2
        return constants

    def _squared_norm(self, views: IntArray) -> float:
        """Return an upper bound of ‖A‖² for some views; no entry of A is negative."""
        start = self.xp.ones(self.shape, dtype=self.dtype)
        bound = positive_norm_bound(functools.partial(self._normal, views=views), start, STEPS, NEAR)
        return bound * (1.0 + ROUNDING)

    def lipschitz_in(self, factor: LinOp) -> Array:
        def normal(u: Array, views: IntArray) -> Array:
            return factor.adjoint(self._normal(factor.apply(u.astype(self.dtype)), views))

        start = random_start(factor.in_shape, self.xp)
        norms = [
            largest_eigenvalue_bound(
                functools.partial(normal, views=views), factor.in_shape, LANCZOS_STEPS, start, CLOSE
            )
            for views in self._views
        ]
        constants: Array = self._scales * np.array(norms) + self.l2 * factor.squared_norm
        return np.minimum(constants, super().lipschitz_in(factor))

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        largest = np.array([self._view_norms[views].max() for views in self._views])
        stretch = 1.0 if factor is None else factor.squared_norm
        added: Array = self._batch_shares(batch_size) * stretch * (self.sizes * self._scales * largest + self.l2)
        return added

    @functools.cached_property
    def _view_norms(self) -> Array:
        """Upper bounds of ‖A_view‖²: its largest sum of a row times its largest sum of a column."""
        ones = self.xp.ones(self.shape, dtype=self.dtype)
        bounds = np.empty(self.geometry.n_views)
        for view in range(self.geometry.n_views):
            rows = self.operator.apply_views(ones, [view])
            columns = self.operator.adjoint_groups(self.xp.ones_like(rows), [view], [0], 1)
            rows = self._weighted(rows, np.array([view]))
            bounds[view] = float(rows.max()) * float(columns.max()) * (1.0 + ROUNDING)
        return bounds

    @property
    def least_convexity(self) -> float:
        return self.l2

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        total: Array = self.l2 * float(weights.sum()) * direction
        point = direction.astype(self.dtype, copy=False)
        for views, weight in zip(self._views, (weights * self._scales).tolist(), strict=True):
            total = total + weight * self._normal(point, views)
        return total


def _dealt(clients: Any, n_views: int) -> tuple[Array, list[IntArray]]:
    """Return the names of the clients, and the numbers of each one's views in ascending order."""
    if clients is None:
        return np.array([0]), [np.arange(n_views)]
    labels = np.asarray(clients)
    if labels.shape != (n_views,):
        raise ValueError(f"clients must have one entry for each of the {n_views} views, got shape {labels.shape}")
    names, codes = _checks.labels("clients", labels)
    return names, [np.flatnonzero(codes == code) for code in range(len(names))]
