"""Rounds and bits to a relative error: FPDFP as well as it can be tuned, and the shifted method with nothing tuned.

    python -m benchmarks.bits

Graph-guided logistic regression on a9a and covtype (those that are in --data, $FPDFP_DATA or ../shared/data; else on
breast-cancer data of scikit-learn), N = 100 clients, rows dealt out at random or sorted by label, B = [G; I],
μ1 = μ2 = 1e-5, full local gradients. All messages have the same codec and are counted whole.

FPDFP takes n = 20 clients a round, γ_k = γ0/(1 + ck) with γ0 in {1/2, 1, 2, 4, 8, 16}/L, c in {0, 0.001, 0.005, 0.02},
and QSGD messages with s in {2, 5, 20} levels (l2 norm). For each s all settings run 250 rounds, the best third goes on
to 1,000, the best two of those to the end; of what is left the best in rounds and the best in bits to the smallest
error that any reaches are shown. The shifted method is run as it comes, with n = 20 and with everyone, and max-norm
QSGD of 5 levels. One seed. Settings that are done are kept in --output, and a second call goes on there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fpdfp
from benchmarks import _tools, _tuning
from benchmarks._problems import DATA, SETS, N, Setting, graph_guided
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.engines.progress import format_bits

TARGETS = (1e-2, 3e-3, 1e-3, 1e-4, 1e-6)
GAMMAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DECAYS = (0.0, 0.001, 0.005, 0.02)
LEVELS = (2, 5, 20)
PER_ROUND = 20

Totals = dict[str, dict[str, float] | None]


def run(where: Setting, method: Any, rounds: int, n: int, quantizer: fpdfp.QSGD, every: int) -> fpdfp.Result:
    """Run until the smallest target is reached, or to the end."""
    arguments = {"clients_per_round": n, "compressor": quantizer, "evaluate_every": every}
    return _tuning.run_until(where, where.federated, method, TARGETS[-1], rounds=rounds, **arguments)


def totals(where: Setting, result: fpdfp.Result) -> Totals:
    """Rounds and bits at the first evaluation within each relative error."""
    names = ("round", "bits_up", "bits_down")
    return {f"{target:g}": _tuning.first_within(where, result.history, target, names) for target in TARGETS}


_where: dict[tuple[str, str], Setting]
_folder: Path


def _start_worker(folder: Path) -> None:
    global _where, _folder
    _where, _folder = {}, folder


def _work(job: tuple[Any, ...]) -> tuple[str, Any]:
    key, name, split, gamma, decay, levels, rounds = job
    if (name, split) not in _where:
        _where.clear()
        _where[name, split] = graph_guided(_folder, name, split)
    where = _where[name, split]
    result = run(
        where, fpdfp.FPDFP(_tuning.schedule(where, gamma, decay)), rounds, PER_ROUND, fpdfp.QSGD(levels), every=10
    )
    error = float(result.history.objective[-1] / where.best - 1)
    return key, [math.inf if result.status == "diverged" else error, totals(where, result)]


def tuned(where: Setting, name: str, split: str, scores: _tuning.Scores, rounds: int) -> dict[str, Any]:
    """Return the best of FPDFP in rounds and in bits."""
    code, problem = _tuning.code(fpdfp.FPDFP), fingerprint(where.federated)
    stages = _tuning.stages(rounds, lambda count: count)
    ended: dict[tuple[float, float, int], Any] = {}
    for levels in LEVELS:

        def score(settings: Sequence[tuple[float, float]], count: int, levels: int = levels) -> list[Any]:
            jobs = [
                (f"{problem} {code} {gamma:g} {decay:g} {levels} {count}", name, split, gamma, decay, levels, count)
                for gamma, decay in settings
            ]
            found = scores.compute(f"{where.name}: FPDFP, s = {levels}, {count} rounds", jobs)
            if count == rounds:
                ended.update({(*one, levels): value for one, value in zip(settings, found, strict=True)})
            return [error for error, _ in found]

        _tuning.halve([(gamma, decay) for gamma in GAMMAS for decay in DECAYS], stages, score)
    reached = [f"{target:g}" for target in TARGETS if any(found[f"{target:g}"] for _, found in ended.values())]
    if not reached:
        least = min(ended, key=lambda one: ended[one][0])
        return {"FPDFP": (least, ended[least][1])}
    last = reached[-1]

    def best(kind: str) -> tuple[float, float, int]:
        return min((one for one in ended if ended[one][1][last]), key=lambda one: ended[one][1][last][kind])

    return {
        f"FPDFP, best in {label}": (best(kind), ended[best(kind)][1])
        for label, kind in (("rounds", "round"), ("bits", "bits_up"))
    }


def ours(where: Setting, n: int, rounds: int) -> tuple[fpdfp.Result, Totals]:
    method = fpdfp.ShiftedPDFP(preconditioner="moments")
    result = run(where, method, rounds, n, fpdfp.QSGD(5, norm="max"), every=1)
    return result, totals(where, result)


def compare(where: Setting, name: str, split: str, scores: _tuning.Scores, rounds: int) -> dict[str, Any]:
    """Run everything on one problem, print its table, and return the numbers."""
    rows, results = [], {}
    for label, ((gamma, decay, levels), found) in tuned(where, name, split, scores, rounds).items():
        results[label] = {"gamma_times_L": gamma, "decay": decay, "levels": levels, **found}
        rows += write(f"{label}: {gamma:g}/L, c = {decay:g}, s = {levels}", found, "")
    for n in (PER_ROUND, N):
        result, found = ours(where, n, rounds)
        once = {"bits_once_up": result.bits_once_up, "bits_once_down": result.bits_once_down}
        results[f"shifted, n = {n}"] = {**once, **found}
        rows += write(f"shifted, n = {n}", found, format_bits(result.bits_once_up + result.bits_once_down))
    header = ["method", "once, up and down", "error", "rounds", "bits up", "bits up and down"]
    _tools.show(f"{where.name}: at most {rounds} rounds", header, rows)
    return {"optimum": where.best, "methods": results, "ratios": ratios(results)}


def write(label: str, found: Totals, once: str) -> list[list[str]]:
    rows = []
    for target in TARGETS:
        one = found[f"{target:g}"]
        numbers = ["not reached", "", ""]
        if one is not None:
            both = one["bits_up"] + one["bits_down"]
            numbers = [f"{one['round']:,.0f}", format_bits(one["bits_up"]), format_bits(both)]
        first = target == TARGETS[0]
        rows.append([label if first else "", once if first else "", f"{target:g}", *numbers])
    return rows


def ratios(results: dict[str, Any]) -> dict[str, Any]:
    """Rounds and recurring bits up of FPDFP, the best of them, over those of the shifted method, to each error."""
    theirs = [one for label, one in results.items() if label.startswith("FPDFP")]
    found: dict[str, Any] = {}
    for label, one in results.items():
        if label.startswith("FPDFP"):
            continue
        found[label] = {
            f"{target:g}": {
                kind: round(min(other[f"{target:g}"][kind] for other in theirs if other[f"{target:g}"])
                            / one[f"{target:g}"][kind], 1)
                for kind in ("round", "bits_up")
            }
            for target in TARGETS
            if one[f"{target:g}"] and any(other[f"{target:g}"] for other in theirs)
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--rounds", type=_tuning.positive, default=6000)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    names = [name for name in arguments.sets if (arguments.data / SETS[name].file).is_file()] or ["breast cancer"]
    results = {}
    try:
        with _tuning.bar() as bar, _tuning.workers(_start_worker, arguments.data) as pool:
            scores = _tuning.Scores(arguments.output / "bits.jsonl", pool, _work, bar)
            for name in names:
                for split in ("iid", "label"):
                    where = graph_guided(arguments.data, name, split)
                    results[where.name] = compare(where, name, split, scores, arguments.rounds)
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is tuned is in {arguments.output}, and the same command goes on") from None
    _tools.finish({"problems": results})


if __name__ == "__main__":
    main()
