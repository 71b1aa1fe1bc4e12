"""The projector as an operation of PyTorch, which differentiates through it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform
from fpdfp.errors import ArgumentTypeError


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
