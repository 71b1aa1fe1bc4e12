"""What a fitted model says of itself."""

from __future__ import annotations

import dataclasses
from typing import Any

from fpdfp._units import format_bits


@dataclasses.dataclass(frozen=True)
class Summary:
    """A fitted model: ``print`` shows it, and :meth:`frame` returns the coefficients as a table.

    Attributes
    ----------
    title
        The estimator.
    formula
        The formula, None for a model of a matrix.
    coefficients
        By name; for more than two classes a dictionary of these by class.
    sites, rows, left_out
        The sites, the rows of each that were used, and those left out for missing values.
    deviance
        Twice the sum of the negative log-likelihoods, or the sum of squares; without the penalty.
    penalty
        In words.
    status, rounds, bits_up, bits_down
        How the run ended, its rounds, and all bits that sites and server sent.
    """

    title: str
    formula: str | None
    coefficients: dict[str, Any]
    sites: list[str]
    rows: list[int]
    left_out: list[int]
    deviance: float
    penalty: str
    status: str
    rounds: int
    bits_up: int
    bits_down: int

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each coefficient, and a column for each of several classes."""
        import pandas

        several = any(isinstance(value, dict) for value in self.coefficients.values())
        made = pandas.DataFrame(self.coefficients) if several else pandas.DataFrame({"coefficient": self.coefficients})
        made.index.name = "name"
        return made

    def __str__(self) -> str:
        lines = [self.title if self.formula is None else f"{self.title}: {self.formula}"]
        lines += [f"penalty       {self.penalty}", f"{self.status} after {self.rounds} rounds"]
        lines += [f"sent          {format_bits(self.bits_up)} by sites, {format_bits(self.bits_down)} by the server"]
        rows = f"rows          {sum(self.rows):,} used, {sum(self.left_out):,} left out"
        lines += [rows, f"deviance      {self.deviance:.7g}", ""]
        lines += self.frame().to_string(float_format=lambda value: f"{value:.6g}", index_names=False).split("\n")
        width = max([4, *(len(site) for site in self.sites)])
        lines += ["", f"{'site':{width}}  {'rows used':>10}  {'left out':>10}"]
        for site, used, out in zip(self.sites, self.rows, self.left_out, strict=True):
            lines.append(f"{site:{width}}  {used:>10,}  {out:>10,}")
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__
