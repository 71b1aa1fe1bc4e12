"""Three hospitals: one study, from odds ratios to survival curves and calibration.

    python examples/hospitals.py --output docs/images

The patients are simulated. A logistic model of readmission is fitted to two thirds of
the patients of each hospital, and evaluated on the others. For comparison, each
hospital fits the same model to its own patients alone. The script draws a forest plot
of the treatment, Kaplan–Meier curves of both treatment groups, and a calibration plot.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import fpdfp

FORMULA = "readmitted ~ age + C(stage) + treated"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("hospitals-output"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)

    patients = fpdfp.datasets.patients(3000)
    held_out = np.arange(len(patients)) % 3 == 0
    known, new = patients[~held_out], patients[held_out]
    model = fpdfp.FederatedGLM("binomial").fit(known, FORMULA, groups="hospital")
    print(model.table(exponentiate=True))
    fpdfp.inference.forest_plot(
        model.heterogeneity("treated", exponentiate=True),
        output / "hospitals-forest.png",
    )

    evaluation = model.evaluate(new, groups="hospital")
    print(f"{'model of':10} deviance for new patients of all hospitals")
    print(f"{'all':10} {evaluation.overall['deviance'].value:.3f}")
    for name, rows in known.groupby("hospital"):
        alone = fpdfp.FederatedGLM("binomial").fit(rows, FORMULA, groups="hospital")
        print(
            f"{name:10} "
            f"{alone.evaluate(new, groups='hospital').overall['deviance'].value:.3f}"
        )
    fpdfp.scores.plot_calibration(evaluation, output / "hospitals-calibration.png")
    draw_survival(patients, output / "hospitals-survival.png")


def draw_survival(patients: Any, path: Path) -> None:
    """Draw the Kaplan–Meier curves of both treatment groups with 95 % intervals."""
    formula = "Surv(months, relapsed) ~ treated"
    curves = fpdfp.survival_curves(patients, formula, groups="hospital")
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    names = ("untreated", "treated")
    for curve, name, colour in zip(
        curves.values(), names, ("#D55E00", "#0072B2"), strict=True
    ):
        axes.step(curve.times, curve.survival, where="post", color=colour, label=name)
        axes.fill_between(
            curve.times,
            curve.lower,
            curve.upper,
            step="post",
            color=colour,
            alpha=0.15,
            lw=0,
        )
        print(f"{name}: median {curve.median:.1f} months to relapse")
    axes.set(
        xlabel="months",
        ylabel="share of patients without relapse",
        ylim=(0.0, 1.0),
        xlim=(0.0, 60.0),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
