"""Compile the kernels that most tests need, once, before the tests are dealt out to several processes.

    python -m tests.warm messages|problems|models

Otherwise each test process, and each process that a test starts, would compile them, or do without them in NumPy until
that is worth its time. The parts have few kernels in common, so that processes can do them side by side. Numba keeps
the machine code with the kernels: the next run finds it there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def compile_models() -> None:
    """Families of generalized linear models, Cox models, paths, and what default runs use."""
    import numpy as np
    import scipy.sparse

    import fpdfp
    from tests import helpers

    X, y, owner = helpers.classification(clients=3)
    _, classes, _ = helpers.softmax(clients=3)
    several: dict[str, Any] = {"cv": fpdfp.CrossValidation(3, alphas=3)}
    fpdfp.FederatedLogisticRegressionCV(**several).fit(X, y, groups=owner)
    fpdfp.FederatedLogisticRegressionCV(**several).fit(X, classes, groups=owner)
    counts = np.random.default_rng(0).poisson(2.0, len(y)) + 1.0
    for family in ("gaussian", "poisson", "gamma"):
        for rows in (X, scipy.sparse.csr_array(X)):
            fpdfp.FederatedGLM(family=family, run=fpdfp.RunOptions(tol=0.001)).fit(rows, counts, groups=owner)
    times = np.column_stack([counts, y > 0])
    cox = fpdfp.FederatedCoxRegression().fit(X, times, groups=owner)
    cox.evaluate(X, times, groups=owner)
    for problem in helpers.zoo().values():
        fpdfp.solve(problem, rounds=3, progress=False)
        fpdfp.solve(problem, fpdfp.FPDFP(), rounds=2, compressor=fpdfp.QSGD(5), progress=False)
        fpdfp.minimize(problem, tol=1e-3)


PARTS = {"messages": compile_messages, "problems": compile_problems, "models": compile_models}


def compile_at_once() -> None:
    """Have kernels compiled when they are first called, also where NumPy would do their work for some seconds."""
    from fpdfp._kernels import jit

    def at_once(*_: Any) -> Any:
        return lambda kernel: kernel

    vars(jit)["until_compiled"] = at_once


def is_cold() -> bool:
    """Whether there is no machine code of the kernels as they are."""
    import numba

    from fpdfp._kernels import jit

    kept = Path(numba.config.CACHE_DIR or Path(jit.__file__).parent / "__pycache__")
    return next(kept.rglob("*.nbi"), None) is None


def compile_all() -> None:
    """Compile all parts, each in a process of its own; raise an error if one fails."""
    # With one thread, as the test processes: other machine code would not be used.
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.warm"]
    running = [subprocess.Popen([*command, part], cwd=ROOT, env=environment) for part in PARTS]
    failed = [part for part, process in zip(PARTS, running, strict=True) if process.wait() != 0]
    if failed:
        raise RuntimeError(f"kernels could not be compiled: {', '.join(failed)}")


if __name__ == "__main__":
    compile_at_once()
    PARTS[sys.argv[1]]()
