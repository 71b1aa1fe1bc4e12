"""Time and rounds to within 0.1 dB of the final PSNR: FPDFP, ours, and competitors that have all views in one place.

    python -m benchmarks.ct                              # 64 × 64 × 16 on the CPU
    python -m benchmarks.ct --size paper --device cuda   # 256 × 256 × 64
    python -m benchmarks.ct --size paper --calls         # whole calls of solve, and their certificates
    python -m benchmarks.ct --size paper --profile       # where the time of such calls goes, by function

All have the objective of experiment files with ``data.model = "mean"``, with the same projector. The final PSNR is that
of the minimiser. ``ours`` is the shifted method as ``python -m reproduce ct`` runs it. The steps of FPDFP and PDFP are
the best of a grid, and so is SPDHG's balance of primal and dual steps. SPDHG is stochastic PDHG (A. Chambolle,
M. J. Ehrhardt, P. Richtárik and C.-B. Schönlieb, SIAM Journal on Optimization 28, 2018), not federated, over the same
17 subsets of views: in a round it projects one of them, or, by coin, updates the dual of the regulariser. PDFP and
fpdfp.ct.reconstruct use all views in every round.
``passes`` are projections and back-projections of all views. Times are those of rounds, without what is set up once
(but for fpdfp.ct.reconstruct, whose are all) and without evaluations; what counts is the first evaluation above the
mark. With ``--calls`` nothing is compared: calls of ``solve`` with default settings and of FPDFP are timed from the
call to the result (the second of two, since kernels are compiled by then), and then the certificate, which is
computed when it is read. With ``--profile`` each call is made three times: the third one with a profiler that waits for
the GPU whenever a function begins or ends, so that the time of a kernel is that of the function that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import functools
import math
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks import _tools
from fpdfp._array import namespace
from fpdfp._kernels.jit import fastest
from fpdfp._typing import Array
from fpdfp.ct.device import module_for
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.reconstruction import minimise
from fpdfp.declarative.build import solve_options
from fpdfp.declarative.scan import BuiltScan
from reproduce.ct import CLIENTS, OUR_CASES, messages
from reproduce.runs import Case, build_case, declare

CLOSE = 0.1
#: Voxels, pixels and views of scans.
SIZES = {
    "tiny": ([16, 16, 8], [24, 16], 34), "small": ([64, 64, 16], [128, 96], 167),
    "paper": ([256, 256, 64], [512, 384], 668),
}  # fmt: skip
GAMMAS = (1.0, 1.5, 1.9)
#: Whole calls that are timed: a name, the clients in a round, and the method.
CALLS = [("default", 5, None), ("default", CLIENTS, None), ("FPDFP", 5, fpdfp.FPDFP())]
BALANCES = (0.3, 1.0, 3.0, 10.0)


class Curve(NamedTuple):
    """PSNR after rounds: passes over all views and seconds so far."""

    name: str
    passes: list[float]
    seconds: list[float]
    psnr: list[float]

    def reached(self, target: float) -> int | None:
        """The rounds to a PSNR."""
        there = np.flatnonzero(np.array(self.psnr) >= target)
        return int(there[0]) + 1 if len(there) else None


def federated(where: BuiltScan, name: str, rounds: int, n: int, **how: Any) -> Curve:
    """A run of fpdfp.solve."""
    curve = Curve(name, [], [], [])

    def watch(run: fpdfp.Run) -> None:
        curve.passes.append(run.round * n / CLIENTS)
        curve.seconds.append(run.seconds)
        curve.psnr.append(where.psnr(run.x))

    fpdfp.solve(
        where.problem, rounds=rounds, clients_per_round=n, seed=1, evaluate_every=rounds, callbacks=[watch], **how
    )
    return curve


def central(where: BuiltScan, iterations: int, device: str) -> Curve:
    """fpdfp.ct.reconstruct; its start is a filtered back-projection and one pass for the response to an impulse."""
    found = minimise(
        where.projections,
        where.geometry,
        where.tv / (where.scan.views * where.scan.weight),
        bounds=(-math.inf, math.inf),
        iterations=iterations,
        tol=0.0,
        device=device,
        metrics={"psnr": where.psnr},
    )
    count = found.iterations
    passes, seconds = [2.0 + k for k in range(1, count + 1)], found.history["seconds"][1:].tolist()
    return Curve("fpdfp.ct.reconstruct", passes, seconds, found.history["psnr"][1:].tolist())


class SPDHG:
    """Stochastic PDHG over the clients' views, with serial sampling: data and regulariser in turn, by coin."""

    def __init__(self, where: BuiltScan, balance: float) -> None:
        self.where, self.xp = where, namespace(where.there)
        self.projector, self.gradient = XRayTransform(where.geometry), where.problem.linop
        self.subsets = [np.flatnonzero(where.owner == client) for client in range(CLIENTS)]
        # The data term is ½‖Ax − b‖² over this.
        self.scale = 1.0 / where.scan.weight
        self.chance = 0.5 / CLIENTS
        self.sigma = balance / self.scale
        self.tau = 0.98 * self.chance / (self.sigma * float(where.problem.losses.lipschitz().max()))
        self.sigma_tv = 0.98 * 0.5 / (self.tau * self.gradient.squared_norm)
        self.generator = np.random.default_rng(1)
        zeros = functools.partial(self.xp.zeros, dtype=np.float32)
        self.x, self.z, self.ahead, self.v = (
            zeros(shape) for shape in [*[where.scan.volume] * 3, self.gradient.out_shape]
        )
        self.duals = [zeros((len(part), *where.scan.detector)) for part in self.subsets]

    def step(self) -> float:
        """Do a round; return the share of the views that were projected in it."""
        self.x = self.x - self.tau * self.ahead
        if self.generator.random() < 0.5:
            change, chance, share = self.regularise(), 0.5, 0.0
        else:
            i = int(self.generator.integers(CLIENTS))
            change, chance, share = self.project(i), self.chance, len(self.subsets[i]) / self.where.scan.views
        self.z = self.z + change
        self.ahead = self.z + change / chance
        return share

    def regularise(self) -> Array:
        """Update the dual of the regulariser."""
        pushed = self.v + self.sigma_tv * self.gradient.apply(self.x)
        new = self.where.problem.penalty.conjugate_prox(pushed, self.sigma_tv)
        change, self.v = self.gradient.adjoint(new - self.v), new
        return change

    def project(self, i: int) -> Array:
        """Update the dual of a subset of the views."""
        part = self.subsets[i]
        residual = self.projector.apply_views(self.x, part) - self.where.projections[part]
        new = (self.duals[i] + self.sigma * residual) / (1.0 + self.sigma * self.scale)
        change: Array = self.projector.adjoint_groups(
            new - self.duals[i], part, np.zeros(len(part), dtype=np.int64), 1
        )[0]
        self.duals[i] = new
        return change

    def rehearse(self) -> None:
        """Do the heavy part of a round, and forget it."""
        part = self.subsets[0]
        image = self.projector.apply_views(self.x, part)
        self.projector.adjoint_groups(image, part, np.zeros(len(part), dtype=np.int64), 1)


def spdhg(where: BuiltScan, balance: float, epochs: int) -> Curve:
    """A run of SPDHG."""
    method, curve = SPDHG(where, balance), Curve(f"balance {balance:g}", [], [], [])
    seconds, passes = 0.0, 0.0
    with fastest(method.rehearse, where.projections.size) if method.xp is np else contextlib.nullcontext():
        for _ in range(2 * CLIENTS * epochs):
            began = time.perf_counter()
            passes += method.step()
            if method.xp is not np:
                method.xp.cuda.Device().synchronize()
            seconds += time.perf_counter() - began
            curve.passes.append(passes)
            curve.seconds.append(seconds)
            curve.psnr.append(where.psnr(method.x))
    return curve


def best_of(name: str, curves: list[Curve], target: float) -> Curve:
    """The curve that reaches the target first; if none does, the one that ends best."""
    reached = [(one.reached(target), one) for one in curves]
    there = [(rounds, one) for rounds, one in reached if rounds is not None]
    chosen = min(there, key=lambda pair: pair[0])[1] if there else max(curves, key=lambda one: one.psnr[-1])
    return chosen._replace(name=f"{name} ({chosen.name})")


def competitors(where: BuiltScan, rounds: int, epochs: int, target: float, device: str) -> list[Curve]:
    """All curves."""
    L = float(where.problem.lipschitz.mean())
    given = solve_options(declare("ct-small", messages(OUR_CASES[0])))
    mine = {name: given[name] for name in ("method", "compressor", "downlink")}
    shifted = {n: federated(where, f"ours, n = {n}", min(rounds, 40), n, **mine) for n in (5, CLIENTS)}
    paper: list[Curve] = []
    for n in (5, CLIENTS):
        sent = solve_options(declare("ct-small", messages(Case(n, 1000))))["compressor"]
        grid = [
            federated(where, f"{gamma:g}/L", rounds, n, method=fpdfp.FPDFP(gamma / L), compressor=sent)
            for gamma in GAMMAS
        ]
        paper.append(best_of(f"FPDFP, s = 1000, n = {n}", grid, target))
    pdfp = [
        federated(where, f"{gamma:g}/L", min(rounds, 200), CLIENTS, method=fpdfp.PDFP(gamma / L)) for gamma in GAMMAS
    ]
    stochastic = best_of("SPDHG", [spdhg(where, balance, epochs) for balance in BALANCES], target)
    return [*paper, *shifted.values(), best_of("PDFP", pdfp, target), stochastic, central(where, 60, device)]


def waiting_clock(where: BuiltScan) -> Callable[[], float]:
    """Return a clock that waits for the GPU before it is read."""
    if namespace(where.there) is np:
        return time.perf_counter
    wait: Callable[[], None] = namespace(where.there).cuda.get_current_stream().synchronize

    def clock() -> float:
        wait()
        return time.perf_counter()

    return clock


def profile_calls(where: BuiltScan, size: str, rounds: int, shown: int = 45) -> None:
    """Print where the time of whole calls goes, each part as soon as it is known."""
    clock, results = waiting_clock(where), []
    for name, n, method in CALLS:
        call = functools.partial(
            fpdfp.solve, where.problem, method, rounds=rounds, clients_per_round=n, seed=1, progress=False
        )
        seconds = []
        for _ in range(2):
            began = clock()
            result = call()
            seconds.append(clock() - began)
        last = result.history.last()
        print(
            f"\n{name}, n = {n}, {rounds} rounds: first call {seconds[0]:.2f} s, second {seconds[1]:.2f} s, of which "
            f"rounds {last['seconds']:.2f} s; dual steps of the server {last.get('inner_server', 0):g}",
            flush=True,
        )
        profiler = cProfile.Profile(clock)
        profiler.enable()
        call()
        profiler.disable()
        found = pstats.Stats(profiler, stream=sys.stdout).strip_dirs()
        for order in ("tottime", "cumulative"):
            found.sort_stats(order).print_stats(shown)
        sys.stdout.flush()
        results.append(
            {"name": name, "n": n, "first": seconds[0], "second": seconds[1], "rounds": float(last["seconds"])}
        )
    _tools.finish({"benchmark": "ct-profile", "size": size, "rounds": rounds, "results": results})


def time_calls(where: BuiltScan, rounds: int) -> list[dict[str, Any]]:
    """Whole calls of solve, in seconds, and what reading their certificates takes."""
    clock, found = waiting_clock(where), []
    for name, n, method in CALLS:
        for _ in range(2):
            began = clock()
            result = fpdfp.solve(where.problem, method, rounds=rounds, clients_per_round=n, seed=1)
            called = clock()
            certificate = result.certificate
            ended = clock()
        found.append({
            "name": f"{name}, n = {n}", "call": called - began, "rounds": float(result.history["seconds"][-1]),
            "certificate": ended - called, "gap": certificate.relative_gap,
        })  # fmt: skip
    return found


def show_calls(where: BuiltScan, size: str, rounds: int) -> None:
    """Print the seconds of whole calls."""
    results = time_calls(where, rounds)
    rows = [
        [
            one["name"],
            *(f"{one[key]:.2f} s" for key in ("call", "rounds", "certificate")),
            f"{one['gap'] or 'no bound'}",
        ]
        for one in results
    ]
    _tools.show(f"CT, size {size}: {rounds} rounds", ["call", "whole", "rounds", "certificate", "gap"], rows)
    _tools.finish({"benchmark": "ct-calls", "size": size, "rounds": rounds, "results": results})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument(
        "--volume", type=Path, help="a file with the true volume; by default the analytic thorax phantom"
    )
    parser.add_argument("--rounds", type=int, default=400, help="rounds of FPDFP")
    parser.add_argument("--epochs", type=int, default=30, help="passes of SPDHG over all views")
    parser.add_argument("--calls", action="store_true", help="time whole calls of solve, 30 rounds each")
    parser.add_argument("--profile", action="store_true", help="print where the time of default calls goes")
    options = parser.parse_args()

    module = module_for(options.device)
    device = "cpu" if module is np else "cuda"
    shape, detector, views = SIZES[options.size]
    scan = {"data.shape": shape, "data.detector": detector, "data.views": views, "data.device": options.device}
    volume = {} if options.volume is None else {"data.volume": str(options.volume.expanduser().absolute())}
    where = build_case(f"ct-{options.size}", {"data.model": "mean", **scan, **volume})
    if options.profile:
        profile_calls(where, options.size, 30)
        return
    if options.calls:
        show_calls(where, options.size, 30)
        return
    minimiser = minimise(
        where.projections,
        where.geometry,
        where.tv / (where.scan.views * where.scan.weight),
        bounds=(-math.inf, math.inf),
        iterations=150,
        tol=0.0,
        device=device,
    )
    final = where.psnr(minimiser.volume)
    target = final - CLOSE
    rows, results = [], []
    for curve in competitors(where, options.rounds, options.epochs, target, device):
        count = curve.reached(target)
        reached: dict[str, Any] = {"rounds": count, "passes": None, "seconds": None}
        if count is not None:
            reached |= {"passes": curve.passes[count - 1], "seconds": curve.seconds[count - 1]}
        a_round = 1e3 * curve.seconds[-1] / len(curve.seconds)
        cells = ["not reached", "", ""] if count is None else [
            str(count), f"{reached['passes']:.1f}", f"{reached['seconds']:.2f} s",
        ]  # fmt: skip
        rows.append([curve.name, *cells, f"{a_round:.1f} ms", f"{curve.psnr[-1]:.2f}"])
        results.append({"name": curve.name, **reached, "round_ms": a_round, "last_psnr": curve.psnr[-1]})
    _tools.show(
        f"CT, size {options.size}, {device}: to {target:.2f} dB, {CLOSE:g} below the minimiser",
        ["method", "rounds", "passes", "time", "a round", "PSNR at the end"],
        rows,
    )
    _tools.finish({"benchmark": "ct", "size": options.size, "device": device, "final_psnr": final, "results": results})


if __name__ == "__main__":
    main()
