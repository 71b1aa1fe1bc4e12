"""Times of the adjoint on the GPU at the size of the paper; removed when it is decided."""
import sys, time
import cupy
import numpy as np
from fpdfp import ct
from fpdfp._cuda import xray

geometry = ct.ConeBeam.circular((256, 256, 64), (512, 384), views=668, source=1024.0, panel=1536.0)
A = ct.XRayTransform(geometry)
y = cupy.random.default_rng(0).standard_normal(geometry.data_shape, dtype=np.float32)
x = cupy.random.default_rng(1).standard_normal(geometry.volume, dtype=np.float32)
def ms(work):
    work(); cupy.cuda.Device().synchronize()
    out = []
    for _ in range(9):
        a, b = cupy.cuda.Event(), cupy.cuda.Event()
        a.record(); work(); b.record(); b.synchronize(); out.append(cupy.cuda.get_elapsed_time(a, b))
    return "%.2f (%.2f to %.2f) ms" % (np.median(out), min(out), max(out))
Ax, Aty = A.apply(x), A.adjoint(y)
one, two = float(cupy.vdot(Ax.astype("d").ravel(), y.astype("d").ravel())), float(cupy.vdot(x.astype("d").ravel(), Aty.astype("d").ravel()))
print("dot test", abs(one - two) / float(cupy.linalg.norm(Ax.astype("d")) * cupy.linalg.norm(y.astype("d"))), abs(one-two)/abs(one))
print("forward", ms(lambda: A.apply(x)), flush=True)
for most in (8, 12, 16) if len(sys.argv) < 2 else map(int, sys.argv[1:]):
    xray.MOST_COLUMNS = most
    print("adjoint, columns", most, ms(lambda: A.adjoint(y)), flush=True)
# the first pass alone
def first():
    old = xray._add_planes
    xray._add_planes = lambda *a: None
    try: A.adjoint(y)
    finally: xray._add_planes = old
print("sums alone", ms(first))
