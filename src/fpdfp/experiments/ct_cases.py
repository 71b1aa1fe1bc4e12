"""The cases of the second experiment: the paper's method for several levels and participations, and the shifted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fpdfp
from fpdfp.experiments.ct_setting import CLIENTS
from fpdfp.experiments.runs import Case

LEVELS: tuple[int | None, ...] = (500, 1000, 3000, 5000, None)
#: The participants where the levels vary, the levels where participation varies, and the participations.
PER_ROUND, FIXED_LEVELS, PARTICIPATION = 5, 1000, (2, 5, 10, CLIENTS)
#: PSNR as the paper reports it, in dB.
PAPER = {
    Case(5, 500): 44.76, Case(5, 1000): 45.78, Case(5, 3000): 45.83, Case(5, 5000): 45.86, Case(5, None): 45.86,
    Case(2, 1000): 45.10, Case(10, 1000): 45.92, Case(17, 1000): 45.82,
}  # fmt: skip
#: Ours: the method and the messages of fpdfp.solve with default settings, but with a few dual steps a round, which is
#: enough for images.
OURS = "ours"
DUAL_STEPS, LEVELS_UP, LEVELS_DOWN = 10, 5, 31


def cases() -> list[Case]:
    """All cases of FPDFP, each once."""
    by_levels = [Case(PER_ROUND, levels) for levels in LEVELS]
    return [*by_levels, *(Case(n, FIXED_LEVELS) for n in PARTICIPATION if n != PER_ROUND)]


def our_cases() -> list[Case]:
    """The shifted method with as many clients, and with everyone."""
    return [Case(n, LEVELS_UP, OURS) for n in (PER_ROUND, CLIENTS)]


def label(case: Case) -> str:
    """The name of a case in tables."""
    return f"ours, n = {case.n}" if case.method == OURS else case.label


def short(case: Case, some: Sequence[Case]) -> str:
    """What tells a case apart from the others of a list."""
    if len({one.n for one in some}) > 1:
        return f"n = {case.n}"
    return "exact" if case.levels is None else f"s = {case.levels}"


def ours() -> dict[str, Any]:
    """Arguments of solve for the shifted method."""
    return {
        "method": fpdfp.ShiftedPDFP(preconditioner="fourier", dual_steps=DUAL_STEPS),
        "compressor": fpdfp.QSGD(LEVELS_UP, norm="max"),
        "downlink": fpdfp.QSGD(LEVELS_DOWN, norm="max"),
    }


def compressors(case: Case, codec: str = "auto") -> Any:
    """One norm for each slice of x, one for each slice and component of v."""
    if case.levels is None:
        return None
    blocks: dict[str, tuple[int, ...]] = {"x": (2,), "v": (0, 3)}
    return {name: fpdfp.QSGD(case.levels, block=block, codec=codec) for name, block in blocks.items()}
