"""Curves of scores over weights, and of how often features are selected in halves of rows and samples of sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp._plotting import new_axes
from fpdfp._sections import Section, shorten
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError

Rule = Literal["min", "1se"]
RULES: tuple[Rule, ...] = ("min", "1se")


class Curve(NamedTuple):
    """Scores over the weights: mean and standard error over folds, and which weights are best.

    ``best`` is the weight of the best mean; ``simplest`` the largest weight whose mean is within one standard error of
    that. Both are places in the grid.
    """

    mean: Array
    error: Array
    best: int
    simplest: int


def summarise(scores: Array, weights: Array, *, greater_is_better: bool) -> Curve:
    """Return the curve of scores with a row for each weight, largest first, and a column for each fold.

    Folds are weighted by their size, as in glmnet's ``cv.glmnet``.
    """
    shares = weights / weights.sum()
    mean = scores @ shares
    error = np.sqrt(((scores - mean[:, None]) ** 2) @ shares / max(scores.shape[1] - 1, 1))
    sign = 1.0 if greater_is_better else -1.0
    finite = np.where(np.isfinite(mean), sign * mean, -np.inf)
    best = int(np.argmax(finite))
    within = finite >= finite[best] - error[best]
    return Curve(mean, error, best, int(np.flatnonzero(within)[0]))


def make_axes(ax: Any, name: str) -> Any:
    """Return axes of Matplotlib, new ones if missing, with weights from the largest to the smallest."""
    ax = new_axes() if ax is None else ax
    ax.set_xscale("log")
    ax.set_xlabel("penalty weight α")
    ax.set_ylabel(name)
    return ax


def finish_axes(ax: Any) -> Any:
    """Turn the axis of weights round, and name what has a name."""
    ax.invert_xaxis()
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="small", frameon=False)
    return ax


#: This many curves are in a report, the best ones.
MOST = 20


@dataclasses.dataclass(frozen=True, repr=False)
class Curves(Section):
    """The scores of a cross-validation.

    Attributes
    ----------
    scoring, greater_is_better
        The score, and whether more of it is better.
    rule
        How the weight was chosen.
    folds
        How many folds there were.
    mixings
        How the penalty of each curve is mixed, by the name of the parameter; those that do not vary are excluded.
    alphas
        The weights of each curve, largest first.
    curves
        Mean, standard error over folds, and the best weights of each.
    best
        Which of the curves was chosen.
    """

    section = "cross_validation"

    scoring: str
    greater_is_better: bool
    rule: Rule
    folds: int
    mixings: tuple[Mapping[str, float], ...]
    alphas: tuple[Array, ...]
    curves: tuple[Curve, ...]
    best: int

    def __repr__(self) -> str:
        return (
            f"Curves({self.scoring}, {len(self.curves)} of {self.folds} folds, the chosen weight is {self.alpha:.4g})"
        )

    @property
    def alpha(self) -> float:
        """The weight that was chosen."""
        return self._weight(self.best, self.rule)

    def _weight(self, place: int, rule: Rule) -> float:
        curve = self.curves[place]
        return float(self.alphas[place][curve.best if rule == "min" else curve.simplest])

    def _name(self, place: int) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self.mixings[place].items())

    def to_frame(self) -> Any:
        """Return a data frame of pandas: a row for each weight of each curve."""
        import pandas

        return pandas.concat(
            [
                pandas.DataFrame({**mixing, "alpha": alphas, "mean": curve.mean, "error": curve.error})
                for mixing, alphas, curve in zip(self.mixings, self.alphas, self.curves, strict=True)
            ],
            ignore_index=True,
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores with bars of one standard error, and mark the best weight and the chosen one.

        Parameters
        ----------
        ax
            Axes of Matplotlib, new ones by default.
        """
        ax = make_axes(ax, self.scoring)
        for place, (alphas, curve) in enumerate(zip(self.alphas, self.curves, strict=True)):
            some = alphas > 0
            ax.errorbar(
                alphas[some], curve.mean[some], curve.error[some], fmt="o-", ms=2.5, lw=1.0, elinewidth=0.7,
                label=self._name(place) or None,
            )  # fmt: skip
        for rule in ("min", "1se"):
            ax.axvline(self._weight(self.best, rule), color="0.3", lw=0.8, ls="--" if rule == "min" else ":")
        return finish_axes(ax)

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows: of more than 20 curves the best ones."""
        sign = 1.0 if self.greater_is_better else -1.0
        value = [sign * curve.mean[curve.best] for curve in self.curves]
        kept = sorted({self.best, *np.argsort(-np.nan_to_num(value, nan=-np.inf), kind="stable")[:MOST].tolist()})
        return {
            "scoring": self.scoring,
            "greater_is_better": self.greater_is_better,
            "rule": self.rule,
            "folds": self.folds,
            "of": len(self.curves),
            "alpha": self.alpha,
            "curves": [
                {
                    "name": self._name(place),
                    "chosen": place == self.best,
                    "alphas": self.alphas[place],
                    "mean": shorten(self.curves[place].mean),
                    "error": shorten(self.curves[place].error),
                    "alpha_min": self._weight(place, "min"),
                    "alpha_1se": self._weight(place, "1se"),
                }
                for place in kept
            ],
        }


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
