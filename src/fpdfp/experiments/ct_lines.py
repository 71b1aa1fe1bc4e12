"""The runs of the printed model by case: a row for each seed; what they say at the end, and how two cases differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments.runs import Case

#: Parts of the rounds at which runs are compared.
HORIZONS = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: The slope at the end is that of a line fitted to the evaluations of the last part of the rounds, per so many rounds.
LAST, PER = 1 / 8, 1000
#: The probability with which the tie zone covers the difference of two cases of equal mean.
CONFIDENCE = 0.95


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

    @property
    def qualities(self) -> dict[str, Array]:
        """What figures show of the image, by title."""
        return {"PSNR of the middle slice": self.slice_psnr, "PSNR of the volume": self.psnr}

    def picture_psnr(self, truth: Array) -> float:
        """The PSNR of the picture, as it was before the picture was rounded to be kept."""
        return float(self.slice_psnr[0, -1])

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
    rounds = max((one["round"] for one in runs), key=len)
    worst = {"objective": math.inf, "psnr": -math.inf, "slice_psnr": -math.inf}

    def column(name: str) -> Array:
        table = np.empty((len(runs), len(rounds)))
        for row, one in zip(table, runs, strict=True):
            known = len(one[name]) - (one["status"] == "diverged")
            row[:known], row[known:] = one[name][:known], worst.get(name, one[name][-1])
        return table

    first = runs[0]
    return Line(
        case, tuple(one["seed"] for one in runs), np.array(rounds, dtype=np.float64), column("objective"),
        column("psnr"), column("slice_psnr"), column("bits_up"), column("bits_down"), first["bits_once_up"],
        first["bits_once_down"], pictures.get(first["unit"], np.zeros((1, 1))),
    )  # fmt: skip


class Loss(NamedTuple):
    """How much worse one case is than another in a measure: the mean over seeds, and the half width of the tie zone.

    The zone is None where there is one seed: then nothing can be said of what another would give.
    """

    mean: float
    zone: float | None
    seeds: int

    @property
    def outcome(self) -> str:
        """Worse, better or a tie; with one seed neither."""
        if self.zone is None:
            return "one seed"
        if not math.isfinite(self.mean):
            return "worse" if self.mean > 0 else "better"
        return "tie" if abs(self.mean) <= self.zone else "worse" if self.mean > 0 else "better"

    def text(self, unit: str, digits: int, factor: float = 1.0) -> str:
        """The loss in words."""
        zone = "one seed" if self.zone is None else f"tie zone ±{factor * self.zone:.{digits}f}, {self.outcome}"
        return f"{round(factor * self.mean, digits) + 0.0:+.{digits}f}{unit} ({zone})"


class Comparison(NamedTuple):
    """How much worse one case is than another: relative in the objective, and in dB."""

    objective: Loss
    slice_psnr: Loss
    psnr: Loss

    @property
    def judged(self) -> tuple[Loss, Loss]:
        """The measures that claims are judged on: the objective, and the PSNR of the slice, as in the paper."""
        return self.objective, self.slice_psnr

    @property
    def outcomes(self) -> tuple[str, str]:
        """What both say."""
        return self.objective.outcome, self.slice_psnr.outcome

    def __str__(self) -> str:
        objective = self.objective.text(" %", 4, 100.0)
        return f"objective {objective}, slice {self.slice_psnr.text(' dB', 3)}, volume {self.psnr.text(' dB', 3)}"


def compare(one: Line, other: Line, part: float = 1.0) -> Comparison:
    """Compare two cases after a part of the rounds, seed by seed."""
    seeds = sorted(set(one.seeds) & set(other.seeds))
    mine, theirs = ([line.seeds.index(seed) for seed in seeds] for line in (one, other))

    def values(name: str) -> tuple[Array, Array]:
        return getattr(one, name)[mine, one.at(part)], getattr(other, name)[theirs, other.at(part)]

    ours, reference = values("objective")
    drops = [reference_psnr - psnr for psnr, reference_psnr in map(values, ("slice_psnr", "psnr"))]
    return Comparison(loss(ours / reference - 1.0), *map(loss, drops))


def loss(differences: Array) -> Loss:
    """Return the mean of the seeds' differences, and the half width of its two-sided t interval."""
    count = len(differences)
    if count < 2:
        return Loss(float(differences[0]) if count else math.nan, None, count)
    if not np.isfinite(differences).all():
        return Loss(float(differences.mean()), 0.0, count)
    from scipy.special import stdtrit

    quantile = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    return Loss(float(differences.mean()), quantile * float(differences.std(ddof=1)) / math.sqrt(count), count)
