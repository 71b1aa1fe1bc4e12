"""The problems of the ablation, by class; all but the last three classes were named before anything was measured.

Data ship with scikit-learn, or are generated from a seed. Defaults were tuned on none of them, but on a9a, covtype,
breast cancer, autoregressions, bags of words and coupled features.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.ndimage
import scipy.sparse

import fpdfp
from fpdfp.linops.base import LinOp

#: The clients of problems in which few take part at a time, and how many do.
MANY, SOME = 60, 12
RIDGE = 1e-3


class Case(NamedTuple):
    """A problem, how many clients take part in a round (None for all), and the share of these that does not answer."""

    problem: fpdfp.Problem
    clients_per_round: int | None = None
    drop_out: float = 0.0


Generator = np.random.Generator


def lasso(X: Any, y: Any, clients: Any, share: float, *, l2: float = RIDGE, dtype: Any = None) -> fpdfp.Problem:
    """l1 logistic regression; the weight is so large a part of the least for which the solution is zero."""
    losses = fpdfp.losses.Logistic(X, y, clients=clients, l2=l2, dtype=dtype)
    return with_l1(losses, share)


def with_l1(losses: Any, share: float, weights: str = "uniform") -> fpdfp.Problem:
    """Losses with an l1 norm; its weight is a share of the least weight for which the solution is zero."""
    free = fpdfp.Problem(losses, fpdfp.penalties.Zero(), weights=weights)
    largest = float(np.abs(free.gradient(np.zeros(losses.shape, dtype=losses.dtype))).max())
    return fpdfp.Problem(losses, fpdfp.penalties.L1(share * largest), weights=weights)


def fused(losses: Any, weight: float, linop: Any, weights: str = "uniform") -> fpdfp.Problem:
    """Losses with the l1 norm of Bx."""
    return fpdfp.Problem(losses, fpdfp.penalties.L1(weight), linop, weights=weights)


def labels(X: Any, generator: Generator, count: int = 15, noise: float = 1.0) -> Any:
    """Labels by a few features and noise."""
    chosen = generator.choice(X.shape[1], min(count, X.shape[1]), replace=False)
    score = X[:, chosen] @ generator.standard_normal(len(chosen))
    return (score + noise * np.std(score) * generator.standard_normal(X.shape[0]) > np.median(score)).astype(float)


def dealt(rows: int, clients: int, generator: Generator) -> Any:
    """Rows dealt out at random, to all clients alike."""
    return generator.permutation(rows) % clients


def pareto(rows: int, clients: int, generator: Generator) -> Any:
    """Rows dealt out to clients whose sizes are Pareto distributed, at least two each."""
    sizes = generator.pareto(1.2, clients) + 0.2
    owner = generator.choice(clients, rows, p=sizes / sizes.sum())
    owner[: 2 * clients] = np.tile(np.arange(clients), 2)
    return owner


def standard(X: Any) -> Any:
    """Columns of mean 0 and variance 1; constant ones go."""
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def table(name: str) -> tuple[Any, Any]:
    """A data set of scikit-learn."""
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return X.astype(float), y


# -- few features -------------------------------------------------------------------------------------------------


def diabetes(generator: Generator) -> Case:
    """scikit-learn's diabetes data, least squares, 10 features, 8 clients."""
    X, y = table("diabetes")
    y = (y - y.mean()) / y.std()
    return Case(with_l1(fpdfp.losses.LeastSquares(standard(X), y, clients=dealt(len(y), 8, generator), l2=RIDGE), 0.05))


def raw_wine(generator: Generator) -> Case:
    """scikit-learn's wine data, the first kind or not, 13 columns as they are (means far from zero), 6 clients."""
    X, y = table("wine")
    return Case(lasso(X, (y == 0).astype(float), dealt(len(y), 6, generator), 0.01))


def digit_zero(generator: Generator) -> Case:
    """scikit-learn's digits, a zero or not, 64 pixels, 10 clients."""
    X, y = table("digits")
    return Case(lasso(X / 16.0, (y == 0).astype(float), dealt(len(y), 10, generator), 0.05))


def alike_single(generator: Generator) -> Case:
    """40 features with a correlation of 0.9 of any two, single precision, 10 clients."""
    X = math.sqrt(0.1) * generator.standard_normal((1500, 40)) + math.sqrt(0.9) * generator.standard_normal((1500, 1))
    return Case(lasso(X, labels(X, generator), dealt(1500, 10, generator), 0.02, dtype=np.float32))


# -- many features ------------------------------------------------------------------------------------------------


def sparse_counts(generator: Generator) -> Case:
    """2,000 sparse features of very different frequency and scale, 10 clients."""
    rows, d = 2000, 2000
    often = np.minimum(0.3, 8.0 / (1.0 + generator.permutation(d)))
    X = scipy.sparse.csr_array(generator.random((rows, d)) < often) * generator.lognormal(0.0, 0.7, d)
    X = scipy.sparse.csr_array(X)
    return Case(lasso(X, labels(X, generator, 100, 0.3), dealt(rows, 10, generator), 0.1))


def factors(generator: Generator) -> Case:
    """1,200 features from 10 factors and noise, 10 clients."""
    rows, d = 1500, 1200
    X = generator.standard_normal((rows, 10)) @ generator.standard_normal((10, d)) * 0.4
    X += generator.standard_normal((rows, d))
    return Case(lasso(X, labels(X, generator), dealt(rows, 10, generator), 0.1))


def heavy_tails(generator: Generator) -> Case:
    """600 features with Student's t distribution of 2 degrees of freedom, 10 clients."""
    X = generator.standard_t(2, (1500, 600))
    return Case(lasso(X, labels(X, generator), dealt(1500, 10, generator), 0.05))


def dense_solution(generator: Generator) -> Case:
    """500 features from 5 factors and noise, so small a weight that most of them count, 10 clients."""
    rows, d = 1500, 500
    X = generator.standard_normal((rows, 5)) @ generator.standard_normal((5, d)) * 0.5
    X += generator.standard_normal((rows, d))
    return Case(lasso(X, labels(X, generator, 300), dealt(rows, 10, generator), 0.005))


# -- structured penalties -----------------------------------------------------------------------------------------


def fused_signals(generator: Generator) -> Case:
    """Signals of 400 points, random walks with noise, l1 norm of the differences of x, 10 clients."""
    rows, d = 1500, 400
    X = standard(np.cumsum(generator.standard_normal((rows, d)), axis=1) / 10 + generator.standard_normal((rows, d)))
    x = np.repeat(generator.standard_normal(8), d // 8) / 20
    y = (X @ x + generator.standard_normal(rows) > 0).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(rows, 10, generator), l2=RIDGE)
    return Case(fused(losses, 2e-3, fpdfp.linops.Difference(d)))


def grid(height: int, width: int) -> Any:
    """The differences of neighbours of a grid, as a sparse matrix."""
    number = np.arange(height * width).reshape(height, width)
    pairs = np.concatenate(
        [np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
         np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)]
    )  # fmt: skip
    signs = np.tile([-1.0, 1.0], len(pairs))
    return scipy.sparse.csr_array((signs, pairs.ravel(), 2 * np.arange(len(pairs) + 1)), (len(pairs), height * width))


def digits_grid(generator: Generator) -> Case:
    """scikit-learn's digits, below five or not, l1 norm of the differences of neighbouring pixels, 64, 10 clients."""
    X, y = table("digits")
    losses = fpdfp.losses.Logistic(X / 16.0, (y < 5).astype(float), clients=dealt(len(y), 10, generator), l2=RIDGE)
    return Case(fused(losses, 2e-3, fpdfp.linops.Matrix(grid(8, 8))))


def heavy_groups(generator: Generator) -> Case:
    """600 features with t(2) tails in groups of 20, a group norm, 10 clients."""
    rows, d = 1500, 600
    groups = generator.permutation(d) // 20
    X = generator.standard_t(2, (rows, d)) + 0.7 * generator.standard_t(2, (rows, d // 20))[:, groups]
    x = np.where(groups < 4, generator.standard_normal(d), 0.0) / 5
    y = (X @ x + generator.standard_normal(rows) > 0).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(rows, 10, generator), l2=RIDGE)
    slope = X.T @ (y - 0.5) / rows
    weight = 0.05 * float(np.sqrt(np.bincount(groups, slope**2)).max())
    return Case(fpdfp.Problem(losses, fpdfp.penalties.GroupL12(weight, groups=groups)))


def map_variation(generator: Generator) -> Case:
    """Smooth random maps of 20 × 20 points, l1 norm of the differences of neighbours, 10 clients."""
    rows, side = 1500, 20
    maps = scipy.ndimage.gaussian_filter(generator.standard_normal((rows, side, side)), (0, 1, 1)) * 3.0
    X = maps.reshape(rows, -1) + 0.3 * generator.standard_normal((rows, side * side))
    x = np.zeros((side, side))
    x[4:10, 4:12], x[12:18, 8:16] = 0.2, -0.2
    y = (X @ x.ravel() + generator.standard_normal(rows) > 0).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(rows, 10, generator), l2=RIDGE)
    return Case(fused(losses, 3e-3, fpdfp.linops.Matrix(grid(side, side))))


# -- few clients at a time ----------------------------------------------------------------------------------------


def some_of_forty(generator: Generator) -> Case:
    """40 features alike (correlation 0.5), 60 clients with as many rows each, 12 in a round."""
    X = generator.standard_normal((3000, 40)) + generator.standard_normal((3000, 1))
    return Case(lasso(X, labels(X, generator), dealt(3000, MANY, generator), 0.05), SOME)


def some_sparse(generator: Generator) -> Case:
    """800 sparse features, 60 clients of Pareto sizes that count by their rows, 12 in a round."""
    rows, d = 3000, 800
    X = scipy.sparse.csr_array(scipy.sparse.random_array((rows, d), density=0.03, rng=generator))
    y = labels(X, generator, 60, 0.3)
    losses = fpdfp.losses.Logistic(X, y, clients=pareto(rows, MANY, generator), l2=RIDGE)
    return Case(with_l1(losses, 0.1, "samples"), SOME)


def some_fused(generator: Generator) -> Case:
    """Signals of 60 points, l1 norm of differences, 60 clients of Pareto sizes, 12 in a round."""
    rows, d = 3000, 60
    X = standard(np.cumsum(generator.standard_normal((rows, d)), axis=1) / 3 + generator.standard_normal((rows, d)))
    y = (X @ np.repeat(generator.standard_normal(6), 10) / 8 + generator.standard_normal(rows) > 0).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=pareto(rows, MANY, generator), l2=RIDGE)
    return Case(fused(losses, 2e-3, fpdfp.linops.Difference(d), "samples"), SOME)


# -- clients that differ ------------------------------------------------------------------------------------------


def sorted_digits(generator: Generator) -> Case:
    """scikit-learn's digits sorted by label among 20 clients, odd or even, 64 pixels."""
    X, y = table("digits")
    order = np.argsort(y, kind="stable")
    owner = np.empty(len(y), dtype=np.int64)
    owner[order] = np.arange(len(y)) * 20 // len(y)
    return Case(lasso(X / 16.0, (y % 2).astype(float), owner, 0.05))


def pareto_sizes(generator: Generator) -> Case:
    """50 features, 60 clients of Pareto sizes that all count the same, 12 in a round."""
    X = generator.standard_normal((3000, 50)) @ np.diag(generator.lognormal(0.0, 0.5, 50))
    return Case(lasso(X, labels(X, generator), pareto(3000, MANY, generator), 0.05), SOME)


def other_scales(generator: Generator) -> Case:
    """50 features whose scales (lognormal, deviation 0.5) and means differ from client to client, 15 clients."""
    rows, clients, d = 1500, 15, 50
    owner = dealt(rows, clients, generator)
    X = generator.standard_normal((rows, d)) * generator.lognormal(0.0, 0.5, (clients, 1))[owner]
    X = X + 0.5 * generator.standard_normal((clients, d))[owner]
    return Case(lasso(X, labels(X, generator), owner, 0.05))


def scales_of_some(generator: Generator) -> Case:
    """The same of 40 features and 60 clients, scales lognormal with a deviation of 1, 12 in a round."""
    rows, d = 3000, 40
    owner = dealt(rows, MANY, generator)
    X = generator.standard_normal((rows, d)) * generator.lognormal(0.0, 1.0, (MANY, 1))[owner]
    return Case(lasso(X, labels(X, generator), owner, 0.05), SOME)


# -- no ridge -----------------------------------------------------------------------------------------------------


def no_ridge_logistic(generator: Generator) -> Case:
    """30 features, logistic, no ridge, 10 clients."""
    X = generator.standard_normal((1500, 30)) @ generator.standard_normal((30, 30)) / 5
    return Case(lasso(X, labels(X, generator), dealt(1500, 10, generator), 0.05, l2=0.0))


def no_ridge_squares(generator: Generator) -> Case:
    """100 features from 20 factors and little noise, least squares, no ridge, 10 clients."""
    X = generator.standard_normal((1500, 20)) @ generator.standard_normal((20, 100)) / 4
    X += 0.3 * generator.standard_normal((1500, 100))
    y = X[:, :10] @ generator.standard_normal(10) + generator.standard_normal(1500)
    return Case(with_l1(fpdfp.losses.LeastSquares(X, y, clients=dealt(1500, 10, generator)), 0.02))


def no_ridge_wide(generator: Generator) -> Case:
    """900 features, 800 rows, logistic, no ridge, 8 clients."""
    X = generator.standard_normal((800, 900)) + generator.standard_normal((800, 1))
    return Case(lasso(X, labels(X, generator), dealt(800, 8, generator), 0.1, l2=0.0))


# -- several classes ----------------------------------------------------------------------------------------------


def four_digits(generator: Generator) -> Case:
    """scikit-learn's digits below four, 4 classes of 64 pixels, 10 clients."""
    X, y = table("digits")
    X, y = X[y < 4], y[y < 4]
    return Case(with_l1(fpdfp.losses.Softmax(X / 16.0, y, clients=dealt(len(y), 10, generator), l2=RIDGE), 0.02))


def three_wines(generator: Generator) -> Case:
    """scikit-learn's wine data, 3 classes of 13 features, 6 clients."""
    X, y = table("wine")
    return Case(with_l1(fpdfp.losses.Softmax(standard(X), y, clients=dealt(len(y), 6, generator), l2=RIDGE), 0.05))


def wide_classes(generator: Generator) -> Case:
    """4 classes of 400 features from 8 factors and noise, a group norm of each feature, 8 clients."""
    rows, d = 1200, 400
    X = generator.standard_normal((rows, 8)) @ generator.standard_normal((8, d)) * 0.4
    X += generator.standard_normal((rows, d))
    y = np.argmax(X[:, :40] @ generator.standard_normal((40, 4)) + generator.standard_normal((rows, 4)), axis=1)
    losses = fpdfp.losses.Softmax(X, y, clients=dealt(rows, 8, generator), l2=RIDGE)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.01, axis=0)))


# -- least squares ------------------------------------------------------------------------------------------------


def low_rank_regression(generator: Generator) -> Case:
    """scikit-learn's make_regression: 200 features of an effective rank of 30, 10 clients."""
    from sklearn.datasets import make_regression

    X, y = make_regression(
        1500, 200, n_informative=30, effective_rank=30, noise=1.0, random_state=int(generator.integers(2**31))
    )
    X, y = X * math.sqrt(1500 / 4), (y - y.mean()) / y.std()
    return Case(with_l1(fpdfp.losses.LeastSquares(X, y, clients=dealt(1500, 10, generator), l2=RIDGE), 0.02))


def piecewise(generator: Generator) -> Case:
    """300 features of different scales, least squares, piecewise constant x: l1 norm of differences and of x."""
    rows, d = 1500, 300
    X = generator.standard_normal((rows, d)) * generator.lognormal(0.0, 0.7, d)
    y = X @ np.repeat(generator.standard_normal(10), 30) / 10 + generator.standard_normal(rows)
    losses = fpdfp.losses.LeastSquares(X, y, clients=dealt(rows, 10, generator), l2=RIDGE)
    B = scipy.sparse.vstack([scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(d - 1, d)),
                             scipy.sparse.eye_array(d)])  # fmt: skip
    return Case(fused(losses, 0.01, fpdfp.linops.Matrix(scipy.sparse.csr_array(B))))


# -- images -------------------------------------------------------------------------------------------------------


class Blur(LinOp):
    """A Gaussian blur of a periodic image, of which some pixels are seen."""

    def __init__(self, side: int, width: float, seen: Any) -> None:
        self.in_shape = self.out_shape = (side, side)
        self.width, self.seen = width, seen

    def _blur(self, x: Any) -> Any:
        widths = [0.0] * (x.ndim - 2) + [self.width] * 2
        return scipy.ndimage.gaussian_filter(x, widths, mode="wrap")

    def apply(self, x: Any) -> Any:
        return self._blur(x) * self.seen

    def adjoint(self, v: Any) -> Any:
        return self._blur(v * self.seen)


def _image(generator: Generator, side: int, widths: Any, share: float) -> fpdfp.Problem:
    image = np.zeros((side, side))
    image[side // 5 : side // 2, side // 4 : 3 * side // 4] = 1.0
    image[3 * side // 5 : 4 * side // 5, side // 8 : side // 2] = 0.5
    maps = [Blur(side, width, generator.random((side, side)) < share) for width in widths]
    data = [one.apply(image) + 0.02 * one.seen * generator.standard_normal((side, side)) for one in maps]
    losses = fpdfp.losses.OperatorLeastSquares(maps, data, l2=1e-2, scale="sum", check=False)
    return fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.02, axis=0), fpdfp.linops.Gradient((side, side)))


def blurred(generator: Generator) -> Case:
    """A blurred image of 24 × 24 pixels, total variation, 6 clients that see all of it."""
    return Case(_image(generator, 24, [0.8, 0.9, 1.0, 1.1, 1.2, 1.3], 1.0))


def half_seen(generator: Generator) -> Case:
    """The same of 14 × 14 pixels; each of 6 clients sees half of the pixels, 3 in a round."""
    return Case(_image(generator, 14, [0.6, 0.8, 1.0, 1.0, 1.2, 1.4], 0.5), 3)


# -- added after the first runs: see LATER ------------------------------------------------------------------------


def signals(kind: str, rows: int, d: int, generator: Generator) -> tuple[Any, Any]:
    """Features of which neighbours are nearly the same, and labels by some stretches of them."""
    X = generator.standard_normal((rows, d))
    if kind == "smooth":
        X = scipy.ndimage.gaussian_filter1d(X, 4, axis=1) + 0.02 * generator.standard_normal((rows, d))
    else:
        X = np.cumsum(X.reshape(rows, -1, 30), axis=2).reshape(rows, d)
    X = standard(X)
    x = np.where(np.arange(d) // 30 < 4, generator.standard_normal(d), 0.0) / 5
    return X, (X @ x + generator.standard_normal(rows) > 0).astype(float)


def smooth_fused(generator: Generator) -> Case:
    """Smooth signals of 600 points with hardly any noise, l1 norm of differences, 10 clients."""
    X, y = signals("smooth", 1500, 600, generator)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(1500, 10, generator), l2=RIDGE)
    return Case(fused(losses, 3e-3, fpdfp.linops.Difference(600)))


def walks_fused(generator: Generator) -> Case:
    """Random walks of 30 steps without noise, 1,200 points, l1 norm of differences, 10 clients."""
    X, y = signals("walk", 1500, 1200, generator)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(1500, 10, generator), l2=RIDGE)
    return Case(fused(losses, 3e-3, fpdfp.linops.Difference(1200)))


def walks_groups(generator: Generator) -> Case:
    """The same of 600 points, a group norm of each walk, 10 clients."""
    X, y = signals("walk", 1500, 600, generator)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(1500, 10, generator), l2=RIDGE)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.01, groups=np.arange(600) // 30)))


def far_means(generator: Generator) -> Case:
    """Three features with a mean of 100 deviations, and a constant without penalty, 4 clients."""
    X = np.column_stack([100.0 + generator.standard_normal((400, 3)), np.ones(400)])
    y = (X[:, 0] + generator.standard_normal(400) > 100).astype(float)
    losses = fpdfp.losses.Logistic(X, y, clients=dealt(400, 4, generator), l2=1e-6)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1([1e-3, 1e-3, 1e-3, 0.0])))


def few_sorted_digits(generator: Generator) -> Case:
    """scikit-learn's digits sorted by label among 60 clients, odd or even, 3 in a round."""
    X, y = table("digits")
    owner = np.empty(len(y), dtype=np.int64)
    owner[np.argsort(y, kind="stable")] = np.arange(len(y)) * MANY // len(y)
    return Case(lasso(X / 16.0, (y % 2).astype(float), owner, 0.05), 3)


def few_scales(generator: Generator) -> Case:
    """40 features whose scales and means differ from client to client, 60 clients, 6 in a round, half do not answer."""
    owner = dealt(3000, MANY, generator)
    X = generator.standard_normal((3000, 40)) * generator.lognormal(0.0, 0.5, (MANY, 1))[owner]
    X = X + generator.standard_normal((MANY, 40))[owner]
    return Case(lasso(X, labels(X, generator), owner, 0.05), 6, 0.5)


def bad_scales(generator: Generator) -> Case:
    """30 columns of scales from 1e-3 to 1e3, no ridge, weights that suit each column, 10 clients."""
    scales = 10.0 ** generator.uniform(-3, 3, 30)
    X = generator.standard_normal((1500, 30)) + 0.5 * generator.standard_normal((1500, 1))
    y = labels(X, generator)
    losses = fpdfp.losses.Logistic(X * scales, y, clients=dealt(1500, 10, generator))
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(5e-3 * scales)))


def grouped_classes(generator: Generator) -> Case:
    """scikit-learn's wine data sorted by kind among 18 clients, 3 classes, a group norm, no ridge, 4 in a round."""
    X, y = table("wine")
    losses = fpdfp.losses.Softmax(standard(X), y, clients=np.arange(len(y)) * 18 // len(y))
    return Case(fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.02, axis=0)), 4)


def different(clients: int, mean: float, generator: Generator) -> tuple[Any, Any]:
    """20 features whose scales and means differ from client to client, and whose rows they are."""
    rows = 25 * clients
    owner = dealt(rows, clients, generator)
    X = generator.standard_normal((rows, 20)) * generator.lognormal(0.0, 0.5, (clients, 1))[owner]
    return X + mean * generator.standard_normal((clients, 20))[owner], owner


def one_logistic(generator: Generator) -> Case:
    """20 features whose scales differ from client to client, logistic, 20 clients, 1 in a round."""
    X, owner = different(20, 0.0, generator)
    return Case(lasso(X, labels(X, generator), owner, 0.05), 1)


def one_squares(generator: Generator) -> Case:
    """The same, least squares."""
    X, owner = different(20, 0.0, generator)
    y = X[:, :5].sum(axis=1) + generator.standard_normal(len(X))
    return Case(with_l1(fpdfp.losses.LeastSquares(X, y, clients=owner, l2=RIDGE), 0.05), 1)


def one_means(generator: Generator) -> Case:
    """The same, where means differ as well."""
    X, owner = different(20, 1.0, generator)
    y = X[:, :5].sum(axis=1) + generator.standard_normal(len(X))
    return Case(with_l1(fpdfp.losses.LeastSquares(X, y, clients=owner, l2=RIDGE), 0.05), 1)


#: The classes, and their problems.
CLASSES: dict[str, tuple[Callable[[Generator], Case], ...]] = {
    "few features": (diabetes, raw_wine, digit_zero, alike_single),
    "many features": (sparse_counts, factors, heavy_tails, dense_solution),
    "structured": (fused_signals, digits_grid, heavy_groups, map_variation),
    "few clients a round": (some_of_forty, some_sparse, some_fused),
    "clients that differ": (sorted_digits, pareto_sizes, other_scales, scales_of_some),
    "no ridge": (no_ridge_logistic, no_ridge_squares, no_ridge_wide),
    "several classes": (four_digits, three_wines, wide_classes),
    "least squares": (low_rank_regression, piecewise),
    "images": (blurred, half_seen),
    "smooth signals": (smooth_fused, walks_fused, walks_groups),
    "rare": (far_means, few_sorted_digits, few_scales, bad_scales, grouped_classes),
    "one client a round": (one_logistic, one_squares, one_means),
}
#: These classes were added after the first runs, in which some mechanisms never acted. The first is the best case of
#: blocks of neighbours. The second has means far from zero, scales that differ by a million, and few clients at a time
#: that differ much. The third is for the alarm.
LATER = ("smooth signals", "rare", "one client a round")
PROBLEMS = {one.__name__: one for some in CLASSES.values() for one in some}


def class_of(name: str) -> str:
    """The class of a problem."""
    return next(kind for kind, some in CLASSES.items() if PROBLEMS[name] in some)


@functools.lru_cache(maxsize=12)
def build(name: str, seed: int) -> Case:
    """A problem, with data drawn by a seed."""
    return PROBLEMS[name](np.random.default_rng([seed, sum(map(ord, name))]))
