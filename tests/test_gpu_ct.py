"""The X-ray transform on the GPU: matched, and the same as on the processor.

``python -m tests.test_gpu_ct`` runs the same on a machine without pytest.
"""

from __future__ import annotations

import functools

import numpy as np

from fpdfp._array import to_host
from fpdfp.ct import ConeBeam, XRayTransform
from tests import gpu_checks

CIRCLE = {"source": 160.0, "panel": 240.0}


def tilted() -> ConeBeam:
    """A scan whose panel leans, and whose rays are steep."""
    straight = ConeBeam.circular((20, 18, 22), (24, 26), views=9, source=50.0, panel=90.0)
    up = np.array([0.0, 0.0, 1.0])
    lean = np.array([0.2, -0.1, 0.0]) * np.linalg.norm(straight.v[0])
    return ConeBeam(
        straight.volume, straight.detector, straight.sources + 12.0 * up, straight.panels,
        straight.u + 0.3 * up, straight.v + lean,
    )  # fmt: skip


GEOMETRIES = {
    "fits": ConeBeam.circular((40, 40, 12), (56, 72), views=24, **CIRCLE),
    "odd": ConeBeam.circular((33, 47, 70), (50, 91), views=20, voxel=(1.2, 0.9, 0.4), **CIRCLE),
    "one slice": ConeBeam.circular((21, 17, 1), (30, 5), views=11, **CIRCLE),
    "truncated": ConeBeam.circular((40, 40, 13), (30, 31), views=24, pixel=(1.0, 0.4), offset=(3.0, 2.0), **CIRCLE),
    "coarse rows": ConeBeam.circular((40, 36, 30), (56, 12), views=24, **CIRCLE),
    "fine rows": ConeBeam.circular((24, 24, 130), (20, 700), views=7, **CIRCLE),
    "short": ConeBeam.circular((40, 40, 100), (56, 300), views=24, arc=3.5, offset=(5.0, -3.0), **CIRCLE),
    "helix": ConeBeam.helical((40, 40, 30), (56, 40), views=30, pitch=20.0, pixel=(1.7, 1.0), **CIRCLE),
    "beside": ConeBeam.circular((16, 16, 8), (12, 9), views=10, pixel=1.0, offset=(200.0, 0.0), **CIRCLE),
    "tilted": tilted(),
}


def check_pair(name: str) -> None:
    """The adjoint is the transpose, and both are those of the processor."""
    import cupy

    geometry = GEOMETRIES[name]
    rng = np.random.default_rng(1)
    A = XRayTransform(geometry)
    x = rng.standard_normal(geometry.volume)
    y = rng.standard_normal(geometry.data_shape)
    here, back_here = A.apply(x), A.adjoint(y)
    # Poisoned, so that an entry that nothing writes shows.
    poison = cupy.full(4 * max(here.size, x.size), np.nan, dtype=np.float32)
    del poison
    there = to_host(A.apply(cupy.asarray(x, dtype=np.float32))).astype(np.float64)
    back = to_host(A.adjoint(cupy.asarray(y, dtype=np.float32))).astype(np.float64)
    for one, other in ((here, there), (back_here, back)):
        assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(one), name
    size = np.linalg.norm(there) * np.linalg.norm(y) or 1.0
    assert abs(np.vdot(there, y) - np.vdot(x, back)) <= 1e-6 * size, name


def check_groups(name: str) -> None:
    """A group's volume has the bits that it has alone; views may come in any order, some never."""
    import cupy

    geometry = GEOMETRIES[name]
    A = XRayTransform(geometry)
    y = cupy.random.default_rng(0).standard_normal(geometry.data_shape, dtype=np.float32)
    views = np.random.default_rng(2).permutation(geometry.n_views)[:-2]
    groups = np.sort(np.arange(len(views)) % 3) + 1
    whole = A.adjoint_groups(y[views], views, groups, 5)
    assert not whole[[0, 4]].any()
    for group in (1, 2, 3):
        mine = groups == group
        alone = A.adjoint_groups(y[views[mine]], views[mine], np.zeros(mine.sum(), dtype=np.int64), 1)[0]
        if geometry.is_straight:
            assert bool((whole[group] == alone).all()), name
        else:
            assert float(cupy.abs(whole[group] - alone).max()) <= 1e-4 * float(cupy.abs(alone).max()), name
    x = cupy.random.default_rng(3).standard_normal(geometry.volume, dtype=np.float32)
    assert bool((A.apply_views(x, views) == A.apply(x)[views]).all()), name


CHECKS = {
    f"{check.__name__} {name}": functools.partial(check, name)
    for name in GEOMETRIES
    for check in (check_pair, check_groups)
}


def test_the_gpu_projects_as_the_processor_does() -> None:
    gpu_checks.run_in_test(CHECKS)


if __name__ == "__main__":
    gpu_checks.run(CHECKS)
