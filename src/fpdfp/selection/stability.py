"""Stability of a selection of features: in halves of the rows, and in samples of sites."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.selection.curves import finish_axes, make_axes


@dataclasses.dataclass(frozen=True, repr=False)
class Stability:
    """The frequency of selection of features in halves of the rows.

    Attributes
    ----------
    alphas
        The penalty weights, largest first.
    frequencies
        The share of halves in which each feature has a coefficient: a row for each weight.
    selected
        How many features a half selects on average, with any of the weights.
    pairs
        How many times rows were divided in halves.
    converged
        Whether all problems have reached the tolerance.
    rounds, bits_up, bits_down
        The exchanges with all clients, and all that was sent.
    names
        The names of the features.

    References
    ----------
    N. Meinshausen and P. Bühlmann, "Stability selection", J. R. Stat. Soc. B 72 (2010). R. D. Shah and R. J. Samworth,
    "Variable selection with error control: another look at stability selection", J. R. Stat. Soc. B 75 (2013).
    """

    alphas: Array
    frequencies: Array
    selected: float
    pairs: int
    converged: bool
    rounds: int
    bits_up: int
    bits_down: int
    names: tuple[str, ...]

    @property
    def largest(self) -> dict[str, float]:
        """The largest frequency of each feature over the weights, by name, the most stable first."""
        best = self.frequencies.max(axis=0)
        return {self.names[j]: float(best[j]) for j in np.argsort(-best, kind="stable")}

    def select(self, threshold: float = 0.75) -> list[str]:
        """Return the features whose largest frequency is at least a threshold."""
        self._check(threshold)
        return [name for name, share in self.largest.items() if share >= threshold]

    def false_selections(self, threshold: float = 0.75) -> float:
        """Return the bound q²/((2π − 1) p) of the expected number of false selections, at most p.

        It holds if features without effect are exchangeable and are not selected less well than by chance
        (Meinshausen and Bühlmann 2010, theorem 1); q is estimated by ``selected``.
        """
        self._check(threshold)
        p = len(self.names)
        return min(self.selected**2 / ((2.0 * threshold - 1.0) * p), float(p))

    def _check(self, threshold: float) -> None:
        if not 0.5 < threshold <= 1.0:
            raise ArgumentError("threshold", f"must be above 0.5 and at most 1, got {threshold:g}")

    def __repr__(self) -> str:
        return (
            f"Stability({self.pairs} pairs of halves, {len(self.alphas)} weights, {self.rounds} rounds; selected in "
            f"75 % or more: {', '.join(self.select(0.75)) or 'none'})"
        )

    def plot(self, ax: Any = None, *, threshold: float = 0.75) -> Any:
        """Draw the frequencies against the weight; features above the threshold are named. Return the axes."""
        self._check(threshold)
        ax = make_axes(ax, "share of halves that select a feature")
        for j, name in enumerate(self.names):
            stable = self.frequencies[:, j].max() >= threshold
            ax.plot(
                self.alphas, self.frequencies[:, j], lw=1.2 if stable else 0.6, color=None if stable else "0.7",
                label=name if stable else None,
            )  # fmt: skip
        ax.axhline(threshold, color="0.3", lw=0.8, ls="--")
        return finish_axes(ax)


@dataclasses.dataclass(frozen=True, repr=False)
class Bootstrap:
    """The variation of coefficients between samples of sites.

    Attributes
    ----------
    coef
        The coefficients with all sites.
    draws
        Those of each sample, a row each.
    level
        The level of ``intervals``.
    converged
        Whether all problems have reached the tolerance.
    rounds, bits_up, bits_down
        The exchanges with all clients, and all that was sent.
    names
        The names of the features.
    """

    coef: Array
    draws: Array
    level: float
    converged: bool
    rounds: int
    bits_up: int
    bits_down: int
    names: tuple[str, ...]

    @property
    def standard_errors(self) -> Array:
        """The standard deviation of each coefficient over the samples."""
        return np.asarray(self.draws.std(axis=0, ddof=1))

    @property
    def intervals(self) -> Array:
        """The quantiles of each coefficient over the samples: a row each, of two numbers."""
        tail = 0.5 * (1.0 - self.level)
        return np.asarray(np.quantile(self.draws, [tail, 1.0 - tail], axis=0).T)

    def to_frame(self) -> Any:
        """Return a pandas table: coefficients, standard errors, limits, and how often each is not zero."""
        import pandas as pd

        tail = 50.0 * (1.0 - self.level)
        columns = {
            "coefficient": self.coef, "standard error": self.standard_errors,
            f"{tail:g} %": self.intervals[:, 0], f"{100.0 - tail:g} %": self.intervals[:, 1],
            "not zero": (self.draws != 0).mean(axis=0),
        }  # fmt: skip
        return pd.DataFrame(columns, index=list(self.names))

    def __repr__(self) -> str:
        widest = float(self.standard_errors.max(initial=-math.inf))
        return (
            f"Bootstrap({len(self.draws)} samples of sites, {len(self.names)} coefficients, largest standard error "
            f"{widest:.3g}, {self.rounds} rounds)"
        )
