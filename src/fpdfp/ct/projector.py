"""The X-ray transform: from a volume to its projections, and back; the same in PyTorch."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._kernels.scans import AXIS, FIRST, LENGTH, SLOPE, SQUARE, START, STEP, Columns, Frames
from fpdfp._typing import Array, IntArray
from fpdfp.ct.geometry import ConeBeam, check_geometry
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.linops.base import LinOp, positive_norm_bound

#: Steps towards the norm; after ten the bound is some 1 % above it, after twenty some 0.1 %.
POWERS = 20


class XRayTransform(LinOp):
    r"""Line integrals of a volume along the rays from the source to the pixels, by Joseph's method.

    .. math:: (Ax)_r = \ell_r \sum_i \tilde x(p_{r,i})

    Ray r is sampled where it meets the planes of voxels across its main axis, the one along which it passes most
    voxels. At the points :math:`p_{r,i}` it is sampled by linear interpolation :math:`\tilde x` among the four voxels
    around each (outside the volume it is zero). The way from plane to plane is :math:`\ell_r`. The adjoint is the
    transpose of this matrix, up to rounding.

    Where the geometry is straight (:attr:`fpdfp.ct.ConeBeam.is_straight`), the main axis is x or y, and the rows of a
    detector column share their work; rows may also run from the top. Other geometries go ray by ray, which takes many
    times longer. Arrays of float32
    and float64 are projected in their own precision, with sums along rays in float64; CuPy arrays on the GPU, in
    float32. On the CPU the bits do not depend on the number of threads. Lines go through the whole volume, also
    beyond the panel.

    P. M. Joseph, "An improved algorithm for reprojecting rays through pixel images", IEEE Transactions on Medical
    Imaging 1 (1982) 192-196.

    Parameters
    ----------
    geometry
        Where volume, sources and panels are.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((4, 4, 4), (3, 3), angles=[0.0], source=1e6, panel=1e6 + 10, pixel=1.0)
    >>> A = fpdfp.ct.XRayTransform(scan)
    >>> A
    XRayTransform((4, 4, 4) → (1, 3, 3))
    >>> A.apply(np.ones((4, 4, 4))).round(3)
    array([[[4., 4., 4.],
            [4., 4., 4.],
            [4., 4., 4.]]])
    >>> A.adjoint(np.ones((1, 3, 3)))[0].round(3)
    array([[0.25, 0.5 , 0.5 , 0.25],
           [0.5 , 1.  , 1.  , 0.5 ],
           [0.5 , 1.  , 1.  , 0.5 ],
           [0.25, 0.5 , 0.5 , 0.25]])
    """

    def __init__(self, geometry: ConeBeam) -> None:
        self.geometry = check_geometry(geometry)
        self.in_shape, self.out_shape = geometry.volume, geometry.data_shape
        #: The scan with rows from the bottom, if all views of the given one have theirs from the top.
        self._upwards = rows_upwards(geometry)
        self._flips = self._upwards is not geometry

    def apply(self, x: Array) -> Array:
        return self._each(x, self.in_shape, "x", lambda one: self._project(one, self._all_views))

    def adjoint(self, v: Array) -> Array:
        groups = np.zeros(self.geometry.n_views, dtype=np.int64)
        return self._each(v, self.out_shape, "v", lambda one: self._smear(one, self._all_views, groups, 1)[0])

    def apply_views(self, x: Array, views: Any) -> Array:
        """Return the projections in some of the views, given by their numbers: an array ``(len(views), nu, nv)``."""
        x = _real("x", x)
        if x.shape != self.in_shape:
            raise ValueError(f"x must have shape {self.in_shape}, got {x.shape}")
        return self._project(x, self._numbers(views))

    def adjoint_groups(self, y: Array, views: Any, groups: Any, n_groups: int) -> Array:
        """Return for each group of views the adjoint of its projections: an array ``(n_groups, nx, ny, nz)``.

        A group's volume has the same bits whatever other groups are in the call, but for tilted panels on a GPU, where
        the last bits may differ from call to call.

        Parameters
        ----------
        y
            The projections ``(len(views), nu, nv)``.
        views
            The numbers of their views.
        groups
            For each of them the number of its group, from 0 on, in ascending order.
        n_groups
            How many groups there are. One without views gets zeros.
        """
        numbers = self._numbers(views)
        count = _checks.integer("n_groups", n_groups, at_least=0)
        owners = _integers("groups", groups)
        if len(owners) != len(numbers):
            raise ValueError(f"groups must have a number for each of the {len(numbers)} views, got {len(owners)}")
        if len(owners) and (owners[0] < 0 or owners[-1] >= count or (np.diff(owners) < 0).any()):
            raise ValueError(f"groups must be numbers from 0 to {count - 1} in ascending order")
        y = _real("y", y)
        if y.shape != (len(numbers), *self.geometry.detector):
            raise ArgumentError("y", f"must have shape {(len(numbers), *self.geometry.detector)}, got {y.shape}")
        return self._smear(y, numbers, owners, count)

    def _squared_norm(self) -> float:
        # No entry of A is negative.
        return positive_norm_bound(lambda w: self.adjoint(self.apply(w)), np.ones(self.in_shape), POWERS) * (1.0 + 1e-9)

    def _each(self, array: Array, shape: Any, name: str, work: Callable[[Array], Array]) -> Array:
        """Do some work on one array, or on each along a client axis."""
        array = _real(name, array)
        if self.batch_of(array, shape, name) is None:
            return work(array)
        other = self.out_shape if shape == self.in_shape else self.in_shape
        out: Array = namespace(array).empty((len(array), *other), dtype=array.dtype)
        for i, one in enumerate(array):
            out[i] = work(one)
        return out

    def _project(self, x: Array, views: IntArray) -> Array:
        out = self._project_on_gpu(x, views) if namespace(x) is not np else self._project_on_cpu(x, views)
        return namespace(x).ascontiguousarray(out[..., ::-1]) if self._flips else out

    def _project_on_cpu(self, x: Array, views: IntArray) -> Array:
        out: Array = np.empty((len(views), *self.geometry.detector), dtype=x.dtype)
        if self._upwards.is_straight:
            _kernels.xray.forward(x, *self._columns, views, out)
        else:
            _kernels.rays.forward(x, *self._frames, 3, views, out)
        return out

    def _smear(self, y: Array, views: IntArray, groups: IntArray, n_groups: int) -> Array:
        if self._flips:
            y = namespace(y).ascontiguousarray(y[..., ::-1])
        if namespace(y) is not np:
            return self._smear_on_gpu(y, views, groups, n_groups)
        out: Array = np.zeros((n_groups, *self.in_shape), dtype=y.dtype)
        bounds = np.searchsorted(groups, np.arange(n_groups + 1))
        for group, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if self._upwards.is_straight:
                _kernels.xray.adjoint(y[begin:end], *self._columns, views[begin:end], out[group])
            else:
                _kernels.rays.adjoint(y[begin:end], *self._frames, 3, views[begin:end], out[group])
        return out

    def _project_on_gpu(self, x: Array, views: IntArray) -> Array:
        import cupy

        if self._upwards.is_straight:
            return _cuda.xray.forward(x, self._device_tables, cupy.asarray(views), self.geometry.detector[1])
        return _cuda.rays.forward(x, self._device_tables, cupy.asarray(views), self.geometry.detector)

    def _smear_on_gpu(self, y: Array, views: IntArray, groups: IntArray, n_groups: int) -> Array:
        import cupy

        where = (self._device_tables, cupy.asarray(views))
        if self._upwards.is_straight:
            return _cuda.xray.adjoint_groups(y, *where, groups, n_groups, self.in_shape)
        return _cuda.rays.adjoint_groups(y, *where, groups, n_groups, self.in_shape)

    @functools.cached_property
    def _all_views(self) -> IntArray:
        return np.arange(self.geometry.n_views)

    @functools.cached_property
    def _columns(self) -> Columns:
        return columns(self._upwards)

    @functools.cached_property
    def _frames(self) -> Frames:
        return frames(self._upwards)

    @functools.cached_property
    def _device_tables(self) -> Any:
        """The numbers of the scan in the memory of the GPU."""
        import cupy

        if not self._upwards.is_straight:
            return Frames(*map(cupy.asarray, self._frames))
        return _cuda.xray.place(*self._columns, self.in_shape)

    def _numbers(self, views: Any) -> IntArray:
        numbers = _integers("views", views)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= self.geometry.n_views):
            raise IndexError(f"views must be numbers from 0 to {self.geometry.n_views - 1}")
        return numbers


def _real(name: str, array: Any) -> Array:
    """Return a C-ordered array of float32 or float64."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError(name, "must not be a masked array: fill in or exclude masked values")
    module = np if isinstance(array, list | tuple) else namespace(array)
    given = module.asarray(array)
    if given.dtype.kind not in "fiub":
        raise ArgumentTypeError(name, f"must hold real numbers, got dtype {given.dtype}")
    if module is not np:
        dtype: Any = np.float32
    else:
        dtype = given.dtype if given.dtype in (np.float32, np.float64) else np.float64
    ordered: Array = module.ascontiguousarray(given, dtype=dtype)
    return ordered


def _integers(name: str, value: Any) -> IntArray:
    array = np.asarray(to_host(value))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentTypeError(name, f"must be a list of integers, got shape {array.shape} and dtype {array.dtype}")
    numbers: IntArray = np.ascontiguousarray(array, dtype=np.int64)
    return numbers


def rows_upwards(geometry: ConeBeam) -> ConeBeam:
    """Return the scan with rows from the bottom, if all views have theirs from the top; else itself."""
    return dataclasses.replace(geometry, v=-geometry.v) if (geometry.v[:, 2] < 0).all() else geometry


def columns(geometry: ConeBeam) -> Columns:
    """Return what the fast projectors know of each detector column: the path that its rays share, seen from above."""
    if not geometry.is_straight:
        raise ValueError("geometry must be straight: the panel's columns along z and its rows across")
    nu, nv = geometry.detector
    voxel = np.array(geometry.voxel)
    source = (geometry.sources - geometry.first_voxel) / voxel
    first = geometry.panels - geometry.sources
    offsets = np.arange(nu) - 0.5 * (nu - 1)
    way = first[:, None, :2] + offsets[None, :, None] * geometry.u[:, None, :2]
    steps = way / voxel[:2]
    along_y = np.abs(steps[..., 0]) < np.abs(steps[..., 1])
    main, other = (np.where(along_y, steps[..., 1 - a], steps[..., a]) for a in (0, 1))
    p, q = (np.where(along_y, source[:, None, 1 - a], source[:, None, a]) for a in (0, 1))
    paths = np.empty((geometry.n_views, nu, 7))
    paths[..., AXIS] = along_y
    paths[..., FIRST] = -p / main
    paths[..., STEP] = 1.0 / main
    paths[..., START] = q
    paths[..., SLOPE] = other
    paths[..., LENGTH] = np.abs(1.0 / main)
    paths[..., SQUARE] = (way**2).sum(axis=-1)
    row = geometry.v[:, 2]
    level = first[:, 2] - 0.5 * (nv - 1) * row
    heights = np.stack([source[:, 2], row / voxel[2], -level / row, row, level], axis=1)
    views = np.concatenate([heights, source[:, :2], steps[:, 0], geometry.u[:, :2] / voxel[:2]], axis=1)
    return Columns(paths, views)


def frames(geometry: ConeBeam) -> Frames:
    """Return what the ray-by-ray projectors know of each view, for any position of source and panel."""
    nu, nv = geometry.detector
    voxel = np.array(geometry.voxel)
    way = geometry.panels - geometry.sources - 0.5 * (nu - 1) * geometry.u - 0.5 * (nv - 1) * geometry.v
    return Frames(
        np.stack([geometry.sources - geometry.first_voxel, way, geometry.u, geometry.v], axis=1) / voxel, voxel
    )


def torch_projector(geometry: ConeBeam) -> Callable[[Any], Any]:
    """Return the projector as a function of tensors of PyTorch: volumes ``(nx, ny, nz)`` to ``(views, nu, nv)``.

    Tensors may have a batch axis first, and be of float32 or float64; those on a GPU are handed to CuPy without a copy
    and have float32. The gradient is the adjoint, which is the transpose of the projector up to rounding, and can be
    differentiated again. ``adjoint`` of the function is the back-projection, as a function of tensors too. PyTorch is
    not among the requirements of fpdfp: ``pip install torch``.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((4, 4, 4), (6, 6), views=5, source=20.0, panel=30.0)
    >>> project = fpdfp.ct.torch_projector(scan)
    >>> x = torch.ones(4, 4, 4, requires_grad=True)
    >>> project(x).square().sum().backward()
    >>> x.grad.shape
    torch.Size([4, 4, 4])
    """
    transform = XRayTransform(geometry)
    forward, adjoint = functools.partial(_apply, transform, False), functools.partial(_apply, transform, True)
    forward.adjoint = adjoint  # type: ignore[attr-defined]
    return forward


def _apply(transform: XRayTransform, backwards: bool, x: Any) -> Any:
    torch = importlib.import_module("torch")
    if not isinstance(x, torch.Tensor):
        raise ArgumentTypeError("x", f"must be a tensor of PyTorch, got {type(x).__name__}")
    return _operation().apply(x, transform, backwards)


@functools.cache
def _operation() -> Any:
    torch: Any = importlib.import_module("torch")

    class Projection(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, transform: XRayTransform, backwards: bool) -> Any:
            ctx.transform, ctx.backwards = transform, backwards
            given = _to_array(x.detach())
            return _to_tensor(torch, transform.adjoint(given) if backwards else transform.apply(given), x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, None, None]:
            return Projection.apply(gradient, ctx.transform, not ctx.backwards), None, None

    return Projection


def _to_array(x: Any) -> Array:
    if x.is_cuda:
        array: Array = importlib.import_module("cupy").from_dlpack(x.contiguous())
        return array
    host: Array = x.numpy()
    return host


def _to_tensor(torch: Any, array: Array, like: Any) -> Any:
    return (torch.from_dlpack(array) if like.is_cuda else torch.from_numpy(array)).to(like.dtype)
