"""What the scaling of the CT experiment hides: FPDFP's loss by quantization, with μ and the noise of either model.

    python -m benchmarks.ct_scaling

The printed problem at the small size, n = 5, one seed, and the constant step of ``python -m reproduce ct``. μ and the
noise are those of the printed model, or those that the model ``mean`` amounts to in its units: μ times V/a over the
square of the side of its voxels, and the noise over that side.
"""

from __future__ import annotations

import argparse

import numpy as np

import fpdfp
from benchmarks import _tools
from fpdfp.ct.projector import XRayTransform
from fpdfp.declarative.build import solve_options
from fpdfp.declarative.scan import VOXELS, make_problem
from fpdfp.declarative.settings import MEAN
from reproduce.ct import LAMBDA, STEP, messages
from reproduce.runs import Case, build_case, declare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, default=30, help="few, since slices are small")
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()

    where = build_case("ct-small", {})
    scan, side = where.scan, VOXELS[MEAN]
    clean = XRayTransform(where.geometry).apply(where.there)
    rows, results = [], []
    for noise in (1.0, 1 / side):
        for ratio in (1.0, scan.views / scan.pixel_area / side**2):
            data = (clean + noise * (where.projections - clean)).astype(np.float32)
            problem = make_problem(data, scan, where.owner, {"kind": "tv", "weight": ratio * where.tv}, 0.0)
            method = fpdfp.FPDFP(STEP / float(problem.lipschitz.mean()), lam=LAMBDA)
            found = [
                where.psnr(
                    fpdfp.solve(
                        problem, method, rounds=options.rounds, clients_per_round=5, progress=False,
                        evaluate_every=options.rounds,
                        compressor=solve_options(declare("ct-small", messages(Case(5, levels))))["compressor"],
                    ).x
                )
                for levels in (options.levels, None)
            ]  # fmt: skip
            rows.append([f"{noise:g}", f"{ratio:.3g}", *(f"{one:.2f}" for one in found), f"{found[1] - found[0]:.2f}"])
            results.append({"noise": noise, "mu": ratio, "quantized": found[0], "exact": found[1]})
    _tools.show(
        f"PSNR of the volume after {options.rounds} rounds, dB",
        ["noise, times", "μ, times", f"s = {options.levels}", "exact", "lost"],
        rows,
    )
    _tools.finish({"benchmark": "ct_scaling", "levels": options.levels, "rounds": options.rounds, "results": results})


if __name__ == "__main__":
    main()
