"""Digests of short runs of every method on one problem of every kind: the same seeds must give the same bits.

    python -m tools.golden              compare with tools/golden.json, and print what differs
    python -m tools.golden --write      write tools/golden.json anew

Bits depend on the processor and on the versions of NumPy, SciPy and Numba, so this is not one of the tests: take the
digests before a change, on the machine on which they are compared after it. Use one thread (NUMBA_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tests import helpers

import fpdfp
from fpdfp import methods

FILE = Path(__file__).with_suffix(".json")
ROUNDS = 12
QUANTIZER = fpdfp.QSGD(levels=15, norm="max")
INNER = fpdfp.InnerSolve(tol=1e-2)


def list_methods() -> dict[str, Any]:
    """Return every method with its defaults, and the variants that take another path."""
    names = [name for name in methods.__all__ if isinstance(getattr(methods, name), type)]
    kinds = [getattr(methods, name) for name in names]
    found: dict[str, Any] = {"default": None}
    for kind in kinds:
        if issubclass(kind, methods.Method) and kind is not methods.Method:
            found[kind.__name__] = make(kind)
            if kind.traits.mini_batches:
                found[f"{kind.__name__}, batches"] = make(kind, batch_size=3)
            if kind.traits.local_steps:
                found[f"{kind.__name__}, local steps"] = make(kind, local_steps=3)
            if kind.traits.with_inner_solve:
                found[f"{kind.__name__}, inner"] = make(kind, inner=INNER)
    for preconditioner in ("moments", "diagonal", "fourier", "auto"):
        found[f"ShiftedPDFP, {preconditioner}"] = fpdfp.ShiftedPDFP(preconditioner=preconditioner)
    found["ShiftedPDFP, plain"] = fpdfp.ShiftedPDFP(momentum=False, dual_steps=2, step=0.1)
    found["FPDFP, decreasing"] = fpdfp.FPDFP(fpdfp.steps.Decreasing(0.1, 0.05), lam=0.1)
    return {name: one for name, one in found.items() if name == "default" or one is not None}


def make(kind: Any, **arguments: Any) -> Any:
    """Return a method, or None where it does not take the arguments."""
    for more in ({}, {"rho": 0.1}):
        try:
            return kind(**arguments, **more)
        except TypeError:
            continue
    return None


def digest(problem: Any, method: Any, **arguments: Any) -> str:
    """Return a digest of all that comes out of a short run, or what kind of error refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fpdfp.solve(problem, method, rounds=ROUNDS, seed=3, progress=False, **arguments)
        except (ValueError, TypeError) as error:
            return "TypeError" if isinstance(error, TypeError) else "ValueError"
    whole = hashlib.sha256()
    for array in (result.x, result.v, np.array(result.history["objective"])):
        whole.update(np.ascontiguousarray(array + 0.0).tobytes())  # the sign of a zero is of no importance
    totals = result.traffic.totals
    whole.update(json.dumps([totals["bits_up"], totals["bits_down"], result.status]).encode())
    return whole.hexdigest()[:16]


def compute() -> dict[str, str]:
    """Return the digests of all runs, by problem, method and messages."""
    found = {}
    for kind, problem in helpers.zoo().items():
        for name, method in list_methods().items():
            plain = {} if method is None else {"compressor": None}
            found[f"{kind} | {name} | everyone"] = digest(problem, method, **plain)
            messages: dict[str, Any] = {"clients_per_round": 2}
            if method is None:
                messages["tol"] = 1e-3
            else:
                messages["compressor"] = QUANTIZER
                messages["downlink"] = QUANTIZER if method.traits.downlink else None
            found[f"{kind} | {name} | two, compressed"] = digest(problem, method, **messages)
    return found


def main() -> None:
    """Write the digests, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the file anew")
    given = parser.parse_args()
    found = compute()
    if given.write:
        FILE.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{len(found)} digests, {len({*found.values()})} of them different, written to {FILE.name}")
        return
    before = json.loads(FILE.read_text(encoding="utf-8"))
    different = [name for name in before if found.get(name) != before[name]]
    for name in different:
        print(f"{name}: {before[name]} -> {found.get(name)}")
    print(f"{len(before) - len(different)} of {len(before)} digests are the same; {len(found) - len(before)} more now")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
