"""The projector as an operation of PyTorch: gradients against differences, and twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fpdfp import ct

SCAN = ct.ConeBeam.circular((4, 3, 4), (5, 4), views=3, source=20.0, panel=30.0)


def test_gradients() -> None:
    torch: Any = pytest.importorskip("torch")
    project = ct.torch_projector(SCAN)
    x = torch.rand(2, *SCAN.volume, dtype=torch.float64, requires_grad=True)
    y = torch.rand(*SCAN.data_shape, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(project(x).detach().numpy(), ct.XRayTransform(SCAN).apply(x.detach().numpy()))
    assert torch.autograd.gradcheck(project, (x,))
    assert torch.autograd.gradcheck(project.adjoint, (y,))  # type: ignore[attr-defined]
    assert torch.autograd.gradgradcheck(lambda one: project(one).square(), (x[0].detach().requires_grad_(),))
    assert project(x.detach().float()).dtype == torch.float32
    with pytest.raises(TypeError, match="x must be a tensor of PyTorch, got ndarray"):
        project(np.ones(SCAN.volume))
