"""Compile the kernels that most tests need, once, before the tests are dealt out to several processes.

    python -m tests.warm messages|problems

Otherwise each test process would compile them, at the same time. The two parts have no kernels in common, so that two
processes can do them side by side. Numba keeps the machine code with the kernels: the next run finds it there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def compile_messages() -> None:
    """Quantizers, and codes of what they give."""
    import numpy as np

    from fpdfp import compress
    from fpdfp.rng import Draws

    kinds = [compress.QSGD(7, norm=norm, codec=codec) for norm in ("l2", "max") for codec in ("auto", "fixed", "omega")]
    for dtype in (np.float64, np.float32):
        # As many as are coded one by one, and as few as are coded together.
        for size in (40, 20_000):
            arrays = np.random.default_rng(0).standard_normal((2, size)).astype(dtype)
            for kind in (*kinds, compress.Natural(), compress.Sign(), compress.TopK(3), compress.RandK(3)):
                draws = Draws(0, 0, np.arange(2))
                kind.compress(arrays, draws, 1)
                quantized = kind.quantize(arrays, draws, 1)
                kind.nbits(quantized)
                kind.decode(kind.encode(quantized), (size,), dtype)


def compile_problems() -> None:
    """Losses, operators and projectors, with exact messages."""
    import numpy as np
    import scipy.sparse

    import fpdfp
    from fpdfp import losses, penalties
    from fpdfp.ct import ConeBeam, ProjectionLosses
    from tests import helpers

    X, y, owner = helpers.classification()
    _, classes, _ = helpers.softmax()
    penalty = penalties.L1(0.01)
    for dtype in (np.float64, np.float32):
        for rows in (X.astype(dtype), scipy.sparse.csr_array(X.astype(dtype))):
            for kind, labels in ((losses.Logistic, y), (losses.LeastSquares, y), (losses.Softmax, classes)):
                problem = fpdfp.Problem(kind(rows, labels, clients=owner, l2=0.05), penalty)
                fpdfp.solve(problem, fpdfp.PDFP(), rounds=2, progress=False)
                fpdfp.solve(problem, fpdfp.FPDFP(batch_size=5), rounds=2, clients_per_round=2, progress=False)
    for problem in helpers.zoo().values():
        fpdfp.solve(problem, rounds=2, compressor=None, downlink=None, progress=False)
    scan = ConeBeam.circular((8, 8, 4), (12, 8), views=6, source=60.0, panel=100.0)
    views = np.ones(scan.data_shape, dtype=np.float32)
    image = fpdfp.Problem(
        ProjectionLosses(views, scan, clients=np.arange(6) % 3),
        penalties.GroupL12(1e-3, axis=0),
        fpdfp.linops.Gradient(scan.volume),
    )
    fpdfp.solve(image, fpdfp.FPDFP(), rounds=2, progress=False)
    fpdfp.ct.fdk(views, scan)


PARTS = {"messages": compile_messages, "problems": compile_problems}


def is_cold() -> bool:
    """Whether there is no machine code of the kernels as they are."""
    import numba

    from fpdfp._kernels import jit

    kept = Path(numba.config.CACHE_DIR or Path(jit.__file__).parent / "__pycache__")
    return next(kept.rglob("*.nbi"), None) is None


def compile_all() -> None:
    """Compile all parts, each in a process of its own; raise an error if one fails."""
    running = [subprocess.Popen([sys.executable, "-m", "tests.warm", part], cwd=ROOT) for part in PARTS]
    failed = [part for part, process in zip(PARTS, running, strict=True) if process.wait() != 0]
    if failed:
        raise RuntimeError(f"kernels could not be compiled: {', '.join(failed)}")


if __name__ == "__main__":
    PARTS[sys.argv[1]]()
