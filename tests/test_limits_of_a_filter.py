"""What a filter does not stop: fourth moments from many points of one analysis, and differences of two tables.

Each answer is a sum over all rows. Second differences of sums of squared scores, and third ones of gradients, are sums
of products of four features: Σ a⊗a⊗a⊗a. With n rows of D features where n(n − 1)/2 is less than D²(D² − 1)/12, these
determine all rows (De Lathauwer, Castaing and Cardoso, 2007). These tests show that it works, so that nobody takes the
level ``filter`` for a guarantee; the threat model says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp.cohorts.losses import At, Informations
from fpdfp.cohorts.requests import Request
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import HistogramQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.tree import Coded, Column
from tests.test_hostile_models import EVERYONE, ask, design, model

ROWS, WIDTH = 70, 14
NAMES = [f"v{j}" for j in range(WIDTH - 1)]


def make_table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(ROWS, WIDTH - 1)).round(3) + 0.3 * rng.exponential(size=(ROWS, WIDTH - 1)).round(3)
    frame = pd.DataFrame(values, columns=NAMES)
    return frame.assign(score=rng.normal(size=ROWS).round(3), died=rng.integers(0, 2, ROWS))


def from_squared_scores(guard: RequestGuard) -> Any:
    """Return fourth moments from sums of squared scores of least squares: quadratic functions of the point."""
    about = model(design(Column("score"), *map(Column, NAMES)), "LeastSquares")

    def meat(x: Any) -> Any:
        told = ask(guard, about, Request((Informations(np.asarray(x)),), EVERYONE))["information"]["meat"][0]
        whole = np.zeros((WIDTH, WIDTH))
        whole[np.tril_indices(WIDTH)] = told
        return whole + np.tril(whole, -1).T

    unit, zero = np.eye(WIDTH), meat(np.zeros(WIDTH))
    moments = np.zeros((WIDTH,) * 4)
    for k, m in sorted(itertools.combinations_with_replacement(range(WIDTH), 2), key=lambda pair: pair[0] != pair[1]):
        along = unit[k] + unit[m] * (k != m)
        moments[k, m] = (meat(along) + meat(-along)) / 2.0 - zero
        if k != m:
            moments[m, k] = moments[k, m] = (moments[k, m] - moments[k, k] - moments[m, m]) / 2.0
    return moments


def from_gradients(guard: RequestGuard) -> Any:
    """Return fourth moments from gradients of a logistic model near zero: σ(z) = 1/2 + z/4 − z³/48 + …"""
    about, rng = model(design(Column("died"), *map(Column, NAMES))), np.random.default_rng(0)
    steps = 0.06 * np.arange(1, 5)
    third = np.linalg.inv(np.stack([steps**k for k in (1, 3, 5, 7)], axis=1))[1] * -48.0
    fours = list(itertools.combinations_with_replacement(range(WIDTH), 4))
    threes = np.array(list(itertools.combinations_with_replacement(range(WIDTH), 3)))
    place = {four: i for i, four in enumerate(fours)}
    often = [6.0 / math.prod(math.factorial(c) for c in np.bincount(three)) for three in threes]
    columns = np.array([[place[tuple(sorted((*three, j)))] for three in threes.tolist()] for j in range(WIDTH)])
    equations, sums = [], []

    def gradient(x: Any) -> Any:
        told = ask(guard, about, Request((At(x, ["gradients"]),), EVERYONE))["at"]["gradients"][0]
        return ROWS * told

    for _ in range(330):
        u = rng.normal(size=WIDTH)
        u /= np.linalg.norm(u)
        sums.append(third @ np.stack([(gradient(t * u) - gradient(-t * u)) / 2.0 for t in steps]))
        equation = np.zeros((WIDTH, len(fours)))
        for j in range(WIDTH):
            np.add.at(equation[j], columns[j], often * u[threes].prod(axis=1))
        equations.append(equation)
    found = np.linalg.lstsq(np.concatenate(equations), np.concatenate(sums), rcond=None)[0]
    moments = np.zeros((WIDTH,) * 4)
    for four, value in zip(fours, found, strict=True):
        for order in set(itertools.permutations(four)):
            moments[order] = value
    return moments


def decompose(moments: Any) -> Any:
    """Return the vectors of which fourth moments are a sum, up to their lengths: those with matrices of rank one."""
    sizes, vectors = np.linalg.eigh(moments.reshape(WIDTH**2, WIDTH**2))
    parts = [(np.sqrt(sizes[-i]) * vectors[:, -i]).reshape(WIDTH, WIDTH) for i in range(1, ROWS + 1)]
    parts = [(part + part.T) / 2.0 for part in parts]
    a, b = np.triu_indices(WIDTH, 1)

    def minors(X: Any, Y: Any) -> Any:
        return X[np.ix_(a, a)] * Y[np.ix_(b, b)] - X[np.ix_(a, b)] * Y[np.ix_(b, a)]

    pairs = [(r, q) for r in range(ROWS) for q in range(r + 1)]
    products = np.stack([(minors(parts[r], parts[q]) + minors(parts[q], parts[r])).ravel() for r, q in pairs], axis=1)
    products[:, [r == q for r, q in pairs]] /= 2.0
    kernel = np.linalg.eigh(products.T @ products)[1][:, :ROWS]
    mixed = np.zeros((ROWS, ROWS))
    for weight, (r, q) in zip(kernel @ np.random.default_rng(1).normal(size=ROWS), pairs, strict=True):
        mixed[r, q] = mixed[q, r] = weight
    turned = np.linalg.eigh(mixed)[1]
    rows = []
    for i in range(ROWS):
        lengths, axes = np.linalg.eigh(sum(turned[r, i] * parts[r] for r in range(ROWS)))
        axis = axes[:, np.abs(lengths).argmax()]
        rows.append(axis / axis[-1])
    return np.array(rows)[:, :-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask_for", "answers", "found", "close"), [(from_squared_scores, 211, 70, 1e-6), (from_gradients, 2640, 35, 1e-2)]
)
def test_one_allowed_analysis_at_many_points_tells_the_rows(
    ask_for: Callable[[RequestGuard], Any], answers: int, found: int, close: float, tmp_path: Path
) -> None:
    frame = make_table()
    with RequestGuard("north", SiteTable.read(frame), Policy(), tmp_path) as guard:
        rows = decompose(ask_for(guard))
        spent = guard.budget.spent
        assert (spent.total, sum(spent.points.values()), spent.refusals) == (1, answers, 0)
    nearest = np.abs(rows[:, None] - frame[NAMES].to_numpy()).max(axis=2).min(axis=0)
    assert (nearest < close).sum() >= found


def test_counts_of_all_rows_less_those_of_groups_tell_cells_that_a_group_withholds(tmp_path: Path) -> None:
    """Each table has no cell of one or two rows, and where it has them is told by the other table."""
    rng, edges = np.random.default_rng(0), np.linspace(-3.0, 3.0, 61)
    frame = pd.DataFrame({"pressure": rng.normal(size=400), "grade": rng.choice(["a", "b", "c"], 400)})
    by = Coded("grade", "grade", ("a", "b", "c"))
    with RequestGuard("north", SiteTable.read(frame), Policy(), tmp_path) as guard:
        whole, parts = (ask(guard, HistogramQuestion(("pressure",), [edges], one)) for one in (None, by))
    least, most = np.array(parts["least"][0]), np.array(parts["most"][0])
    told = np.where(least == most, least, -1)
    total = np.where(whole["least"][0] == whole["most"][0], whole["least"][0], -1)[0]
    for place in np.flatnonzero((total >= 0) & ((told < 0).sum(axis=0) == 1)):
        told[told[:, place] < 0, place] = total[place] - told[told[:, place] >= 0, place].sum()
    small = 0
    for group, counts in zip("abc", told, strict=True):
        values = np.sort(frame.pressure[frame.grade == group])
        known = np.flatnonzero(counts >= 0)
        np.testing.assert_array_equal(counts[known], np.searchsorted(values, edges[known], "right"))
        small += int(np.isin(np.diff(counts[known]), (1, 2)).sum())
    assert small > 0
