"""Choosing a weight by what a cross-validation found: curves of scores over the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp._plotting import new_axes
from fpdfp._sections import Section, shorten
from fpdfp._typing import Array

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
