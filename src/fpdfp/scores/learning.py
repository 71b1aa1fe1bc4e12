"""Learning curves: how good a model was after rounds of its fit, over all sites and at each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import format_bits
from fpdfp._plotting import BLUE, new_axes
from fpdfp._sections import Section, shorten
from fpdfp._typing import IntArray
from fpdfp.inference.table import text_table
from fpdfp.scores.evaluation import MISSING, Evaluation, Measure, show

#: This many sites are in a report: those with most rows.
MOST_SITES = 50
Axis = Literal["rounds", "bits", "bits_up"]
AXES: dict[Axis, str] = {
    "rounds": "rounds", "bits": "bits sent by sites and server", "bits_up": "bits sent by sites",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LearningCurve(Section):
    """The evaluation of the iterates of a fit; ``print`` shows it.

    Attributes
    ----------
    rounds, bits_up, bits_down
        The rounds after which the iterates are, and the bits that sites and server had sent by then, without those of
        evaluations for the history. After a cross-validation the bits of the choice come first.
    overall
        The measures of each iterate over all sites, by name.
    by_site
        Those of each site.
    rows
        The rows of each site that were used.
    level
        Of the confidence limits.
    notes
        The scores that sites did not send.
    exchanges, asked_up, asked_down
        The number of requests for this, and all their bits.
    """

    section = "learning_curve"

    rounds: IntArray
    bits_up: IntArray
    bits_down: IntArray
    overall: Mapping[str, Sequence[Measure]]
    by_site: Mapping[str, Mapping[str, Sequence[Measure]]]
    rows: Mapping[str, int]
    level: float
    notes: Sequence[str] = ()
    exchanges: int = 0
    asked_up: int = 0
    asked_down: int = 0

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation], **others: Any) -> LearningCurve:
        """Return the curve of evaluations, one for each iterate; measures that none of them knows are excluded."""
        first = evaluations[0]

        def gather(found: Sequence[Mapping[str, Measure]]) -> dict[str, list[Measure]]:
            columns = {name: [one.get(name, MISSING) for one in found] for name in found[-1]}
            return {name: column for name, column in columns.items() if any(np.isfinite(one.value) for one in column)}

        return cls(
            overall=gather([one.overall for one in evaluations]),
            by_site={site: gather([one.by_site[site] for one in evaluations]) for site in first.by_site},
            rows=first.rows,
            level=first.level,
            notes=list(dict.fromkeys(note for one in evaluations for note in one.notes)),
            **others,
        )

    def to_frame(self) -> Any:
        """Return a data frame of pandas: a row for each measure of each iterate, of all sites and then of each."""
        import pandas

        found = [("all sites", self.overall), *self.by_site.items()]
        return pandas.DataFrame(
            [
                {"site": site, "measure": name, "round": k, "bits_up": up, "bits_down": down, **one._asdict()}
                for site, measures in found
                for name, column in measures.items()
                for k, up, down, one in zip(
                    self.rounds.tolist(), self.bits_up.tolist(), self.bits_down.tolist(), column, strict=True
                )
            ]
        )

    def plot(self, measure: str | None = None, *, x: Axis = "rounds", sites: bool = False, ax: Any = None) -> Any:
        """Draw a measure along the rounds, with its limits; return the axes.

        Parameters
        ----------
        measure
            Its name, by default the first.
        x
            ``"rounds"``, ``"bits"`` for all that was sent, or ``"bits_up"`` for what sites sent.
        sites
            Whether to draw a curve for each site too.
        ax
            Axes of Matplotlib, new ones by default.
        """
        name = _checks.choice("measure", next(iter(self.overall)) if measure is None else measure, tuple(self.overall))
        _checks.choice("x", x, tuple(AXES))
        ax = new_axes() if ax is None else ax
        along = {"rounds": self.rounds, "bits": self.bits_up + self.bits_down, "bits_up": self.bits_up}[x]
        ax.plot(along, [one.value for one in self.overall[name]], color=BLUE, lw=1.8, label="all sites")
        limits = np.array([(one.lower, one.upper) for one in self.overall[name]])
        ax.fill_between(along, limits[:, 0], limits[:, 1], color=BLUE, alpha=0.15, lw=0)
        for site, measures in self.by_site.items() if sites else ():
            if name in measures:
                ax.plot(along, [one.value for one in measures[name]], lw=0.9, label=site)
        ax.set_xlabel(AXES[x])
        ax.set_ylabel(name)
        if sites:
            ax.legend(fontsize="small", frameon=False)
        return ax

    def _lines(self) -> list[str]:
        sites = f"{len(self.rows)} site{'s' if len(self.rows) != 1 else ''}"
        asked = f"{self.exchanges} exchange{'s' if self.exchanges != 1 else ''}"
        return [
            f"scores of {len(self.rounds)} iterates on {sum(self.rows.values()):,} rows at {sites}",
            *self.notes,
            f"{asked}, {format_bits(self.asked_up)} from sites, {format_bits(self.asked_down)} to them",
        ]

    def __str__(self) -> str:
        grid = [["rounds", "bits up", "bits down", *self.overall]]
        for place, (k, up, down) in enumerate(zip(self.rounds, self.bits_up, self.bits_down, strict=True)):
            scores = [show(column[place].value) for column in self.overall.values()]
            grid.append([str(k), format_bits(int(up)), format_bits(int(down)), *scores])
        return "\n".join([text_table(grid), "", *self._lines()])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows; of more than 50 sites those with most rows."""
        largest = sorted(self.by_site, key=lambda site: -self.rows[site])[:MOST_SITES]
        notes = self._lines()
        if len(largest) < len(self.by_site):
            notes.append(f"{len(largest)} of {len(self.by_site)} sites are shown, those with most rows")
        return {
            "rounds": self.rounds,
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
            "overall": _values(self.overall),
            "sites": {site: _values(found) for site, found in self.by_site.items() if site in largest},
            "notes": notes,
        }


def _values(measures: Mapping[str, Sequence[Measure]]) -> dict[str, list[float | None]]:
    return {name: shorten([one.value for one in column]) for name, column in measures.items()}
