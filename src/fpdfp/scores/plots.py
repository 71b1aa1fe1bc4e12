"""Pictures of an evaluation: ROC curves, calibration, and a forest plot of sites."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from fpdfp import _checks
from fpdfp._plotting import BLUE, DARK, GREY, new_axes, save
from fpdfp.errors import ArgumentError
from fpdfp.inference.heterogeneity import Row, draw_forest

if TYPE_CHECKING:
    from fpdfp.scores.evaluation import Evaluation


def plot_roc(evaluation: Evaluation, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw the ROC curves of all sites together, and of each in a lighter line.

    Parameters
    ----------
    evaluation
        Of a model of two classes.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.
    """
    if evaluation.roc is None:
        raise ArgumentError("evaluation", "must have a ROC curve, from a model of two classes")
    axes = _square("1 − specificity", "sensitivity")
    for name, curve in evaluation.site_roc.items() if len(evaluation.by_site) > 1 else ():
        axes.plot(curve.false_positive_rates, curve.true_positive_rates, linewidth=0.9, alpha=0.6, label=name)
    roc = evaluation.roc
    axes.plot(
        roc.false_positive_rates, roc.true_positive_rates, color=DARK, linewidth=1.8,
        label=f"all sites, area {roc.area:.3f}",
    )  # fmt: skip
    axes.legend(loc="lower right", fontsize="small", frameon=False)
    return save(axes.figure, path)


def plot_calibration(evaluation: Evaluation, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw observed against predicted chances of groups of rows, with 95 % limits.

    The arguments are as for :func:`plot_roc`.
    """
    table = evaluation.calibration_table
    if table is None:
        raise ArgumentError("evaluation", "must have a table of calibration, from a model of two classes")
    axes = _square("predicted chance", "observed share")
    width = [table.observed - table.lower, table.upper - table.observed]
    axes.errorbar(table.predicted, table.observed, width, fmt="o", color=BLUE, markersize=4.0, linewidth=1.0)
    if evaluation.calibration is not None:
        found = evaluation.calibration
        axes.set_title(f"intercept {found.intercept:.2f}, slope {found.slope:.2f}", fontsize="small", loc="left")
    return save(axes.figure, path)


def plot_sites(evaluation: Evaluation, measure: str, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw a forest plot: a measure with its limits, of each site and of all.

    Parameters
    ----------
    evaluation
        Of a model.
    measure
        One of ``evaluation.overall``, ``"auc"`` for instance.
    path
        A file for the picture, whose ending sets the format; None saves nothing.
    """
    _checks.choice("measure", measure, tuple(evaluation.overall))
    found = {name: one[measure] for name, one in evaluation.by_site.items() if measure in one}
    lines = {name: one for name, one in found.items() if math.isfinite(one.value)}
    most = max(evaluation.rows.values())
    rows = [
        Row(name, one.value, *_limits(one), 20.0 + 100.0 * evaluation.rows[name] / most) for name, one in lines.items()
    ]
    overall = evaluation.overall[measure]
    axes = draw_forest([*rows, Row("all sites", overall.value, *_limits(overall), None)])
    ideal = {"auc": 0.5, "concordance": 0.5, "calibration slope": 1.0, "calibration intercept": 0.0}.get(measure)
    if ideal is not None:
        axes.axvline(ideal, color=GREY, linewidth=0.8)
    axes.set_xlabel(measure)
    return save(axes.figure, path)


def _limits(one: Any) -> tuple[float, float]:
    return (one.value, one.value) if math.isnan(one.lower) else (one.lower, one.upper)


def _square(x: str, y: str) -> Any:
    """Return axes from 0 to 1 with the diagonal."""
    axes = new_axes(4.6, 4.6, hidden=["top", "right"])
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    axes.set(aspect="equal", xlim=(0.0, 1.0), ylim=(0.0, 1.0), xlabel=x, ylabel=y)
    return axes
