"""Three hospitals with different patients fit one graph-guided model, and no patient's row leaves its hospital.

    python examples/hospitals.py --output docs/images

The data are the 569 tumours of scikit-learn's breast-cancer set, thirty measurements each. The hospitals differ as real
ones do: a screening centre sees small, mostly benign tumours; a referral centre large, mostly malignant ones; a general
hospital some of both. The script draws three pictures and prints the table in docs/estimators.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import fpdfp

HOSPITALS = ("general", "referral", "screening")


def hospitals(X: Any, y: Any, seed: int = 0) -> Any:
    """Return the hospital of each patient: the larger the tumour, the more likely the referral centre."""
    generator = np.random.default_rng(seed)
    size = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std() + 0.5 * generator.standard_normal(len(y))
    anywhere = generator.random(len(y)) < 0.25
    return np.where(anywhere, "general", np.where(size > 0.3, "referral", "screening"))


def model() -> fpdfp.FederatedLogisticRegression:
    """Return the model that all hospitals fit."""
    return fpdfp.FederatedLogisticRegression(fpdfp.Graph(0.003, sparsity=0.3, form="differences"), standardize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("hospitals-output"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)

    cancer = load_breast_cancer()
    X, y = cancer.data, np.where(cancer.target == 0, "malignant", "benign")
    site = hospitals(X, y)
    X, X_test, y, y_test, site, site_test = train_test_split(X, y, site, test_size=0.3, random_state=0, stratify=site)
    fpdfp.datasets.splits.plot(site, y, path=output / "hospitals-patients.png")

    together = model().fit(X, y, groups=site)
    print(f"{len(together.sites_)} hospitals, {together.n_iter_} rounds, a graph of {together.graph_.edges} edges")
    print(f"sent by hospitals {together.bits_up_ / 8000:.0f} kB, by the server {together.bits_down_ / 8000:.0f} kB")

    print(f"{'test patients of':22}" + "".join(f"{name:>12}" for name in (*HOSPITALS, "all")))
    rows = {"together": together, "all rows in one place": model().fit(X, y)}
    for name in HOSPITALS:
        here = site == name
        rows[f"{name} alone"] = model().fit(X[here], y[here])
    for name, one in rows.items():
        losses = [log_loss(y_test[at], one.predict_proba(X_test[at])) for at in (site_test == h for h in HOSPITALS)]
        losses.append(log_loss(y_test, one.predict_proba(X_test)))
        print(f"{name:22}" + "".join(f"{loss:12.3f}" for loss in losses))

    scaled = together.coef_[0] * X.std(axis=0)
    names = [str(name).replace("error", "s.e.") for name in cancer.feature_names]
    together.graph_.plot(scaled, names, path=output / "hospitals-graph.png")
    draw_coefficients(scaled, names, output / "hospitals-coefficients.png")
    largest = sorted(range(len(names)), key=lambda i: (-abs(round(scaled[i], 2)), names[i]))[:4]
    print("largest coefficients: " + ", ".join(f"{names[i]} {scaled[i]:+.2f}" for i in largest))


def draw_coefficients(scaled: Any, names: list[str], path: Path) -> None:
    """Draw a bar for each coefficient, per standard deviation of its feature."""
    order = np.argsort(scaled)
    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(range(len(names)), scaled[order], color=np.where(scaled[order] > 0, "#228833", "#aa3377").tolist())
    axes.set_yticks(range(len(names)), [names[i] for i in order], fontsize=8)
    axes.set_xlabel("log-odds of malignant for one standard deviation")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
