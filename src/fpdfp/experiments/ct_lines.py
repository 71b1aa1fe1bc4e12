"""The runs of the printed model by case: a row for each seed; what they say at the end, and how two cases differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments import ties
from fpdfp.experiments.cases import Case, Step, gather
from fpdfp.experiments.ct_runs import COLUMNS

#: Parts of the rounds at which runs are compared.
HORIZONS = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: The slope at the end is that of a line fitted to the evaluations of the last part of the rounds, per so many rounds.
LAST, PER = 1 / 8, 1000


class Line(NamedTuple):
    """The runs of a case: ``rounds`` of the evaluations, and arrays with a row for each seed."""

    case: Case
    seeds: tuple[int, ...]
    rounds: Array
    objective: Array
    psnr: Array
    slice_psnr: Array
    bits_up: Array
    bits_down: Array
    once_up: float
    once_down: float
    picture: Array
    step: Step | None = None

    def at(self, part: float) -> int:
        """The number of the first evaluation after a part of the rounds."""
        return int(np.searchsorted(self.rounds, round(part * self.rounds[-1])))

    def slope(self, values: Array) -> float:
        """The slope of the mean over seeds at the end, per so many rounds."""
        late = self.rounds >= (1 - LAST) * self.rounds[-1]
        return PER * float(np.polyfit(self.rounds[late], values[:, late].mean(axis=0), 1)[0])


Lines = Mapping[Case, Line]


def lines_of(runs: Mapping[str, Mapping[str, Any]], pictures: Mapping[str, Array]) -> dict[Case, Line]:
    """Put the runs of each case together; the picture is that of the first seed."""
    by_case: dict[Case, list[Mapping[str, Any]]] = {}
    for one in runs.values():
        if "method" in one:
            case = Case(one["clients_per_round"], one["levels"], one["method"])
            by_case.setdefault(case, []).append(one)
    return {case: line(case, sorted(found, key=lambda one: one["seed"]), pictures) for case, found in by_case.items()}


def line(case: Case, runs: Sequence[Mapping[str, Any]], pictures: Mapping[str, Array]) -> Line:
    """Put the runs of a case together; one that diverged has an infinite objective from there on, and no image."""
    rounds, first = max((one["round"] for one in runs), key=len), runs[0]
    worst = {"objective": math.inf, "psnr": -math.inf, "slice_psnr": -math.inf}
    columns = gather(runs, COLUMNS[1:], len(rounds), worst)
    return Line(
        case, tuple(one["seed"] for one in runs), np.array(rounds, dtype=np.float64), columns["objective"],
        columns["psnr"], columns["slice_psnr"], columns["bits_up"], columns["bits_down"], first["bits_once_up"],
        first["bits_once_down"], pictures.get(first["unit"], np.zeros((1, 1))),
    )  # fmt: skip


class Comparison(NamedTuple):
    """How much worse one case is than another: relative in the objective, and in dB."""

    objective: ties.Comparison
    slice_psnr: ties.Comparison
    psnr: ties.Comparison

    @property
    def judged(self) -> tuple[ties.Comparison, ties.Comparison]:
        """The measures that claims are judged on: the objective, and the PSNR of the slice, as in the paper."""
        return self.objective, self.slice_psnr

    @property
    def outcomes(self) -> tuple[str, str]:
        """What both say."""
        return outcome(self.objective), outcome(self.slice_psnr)

    def __str__(self) -> str:
        objective = write_loss(self.objective, " %", 4, 100.0)
        drops = [write_loss(one, " dB", 3) for one in (self.slice_psnr, self.psnr)]
        return f"objective {objective}, slice {drops[0]}, volume {drops[1]}"


def compare(one: Line, other: Line, part: float = 1.0) -> Comparison:
    """Compare two cases after a part of the rounds, seed by seed."""
    mine, theirs = find_same_seeds(one, other)

    def values(name: str) -> tuple[Array, Array]:
        return getattr(one, name)[mine, one.at(part)], getattr(other, name)[theirs, other.at(part)]

    ours, reference = values("objective")
    slices, volumes = values("slice_psnr"), values("psnr")
    return Comparison(ties.compare_ratio(ours, reference), ties.compare(*slices[::-1]), ties.compare(*volumes[::-1]))


def find_same_seeds(one: Line, other: Line) -> tuple[list[int], list[int]]:
    """Return where the seeds are that both have."""
    seeds = sorted(set(one.seeds) & set(other.seeds))
    mine, theirs = ([line.seeds.index(seed) for seed in seeds] for line in (one, other))
    return mine, theirs


def outcome(loss: ties.Comparison) -> str:
    """Worse, better or a tie; with one seed neither."""
    if loss.seeds < 2:
        return "one seed"
    return "tie" if loss.tied else "worse" if loss.more else "better"


def write_loss(loss: ties.Comparison, unit: str, digits: int, factor: float = 1.0) -> str:
    """A loss in words."""
    zone = "one seed" if loss.seeds < 2 else f"tie zone ±{factor * loss.zone:.{digits}f}, {outcome(loss)}"
    return f"{round(factor * loss.difference, digits) + 0.0:+.{digits}f}{unit} ({zone})"
